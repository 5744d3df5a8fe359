//! Which records fit a question, and which resemble a plan.

use catalogue::{Medium, MediumKind};

use super::{EvidenceKind, EvidenceRecord, records};
use crate::mix::report::{MixReport, PlanReport};

/// What is asked; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvidenceQuery {
    /// A kind (`pmem`, `cxl`, ...) or a medium of the catalogue.
    pub medium: Option<String>,
    /// A class of workload, or part of what was run or of the system.
    pub workload: Option<String>,
    /// Part of the metric or its unit.
    pub metric: Option<String>,
    /// Where it comes from.
    pub kind: Option<EvidenceKind>,
}

impl EvidenceQuery {
    /// The records that fit, in the order of the file.
    pub fn find(&self) -> Vec<&'static EvidenceRecord> {
        let medium = self.medium.as_deref().map(|name| kind_of(name).unwrap_or(name).to_ascii_lowercase());
        let part = |text: &Option<String>| text.as_deref().map(str::to_ascii_lowercase);
        let (workload, metric) = (part(&self.workload), part(&self.metric));
        let fits = |record: &&EvidenceRecord| {
            let has = |part: &String, texts: &[&str]| {
                texts.iter().any(|text| text.to_ascii_lowercase().contains(part.as_str()))
            };
            medium.as_ref().is_none_or(|kind| record.media.contains(kind))
                && workload.as_ref().is_none_or(|part| has(part, &[&record.workload, &record.what, &record.system]))
                && metric.as_ref().is_none_or(|part| has(part, &[&record.metric, &record.unit]))
                && self.kind.is_none_or(|kind| record.kind == kind)
        };
        records().iter().filter(fits).collect()
    }
}

/// The kind of media that records name, of a medium of the catalogue.
pub(super) fn kind_of(medium: &str) -> Option<&'static str> {
    let found = Medium::find(medium).ok()?;
    Some(match found.kind {
        MediumKind::Memory if medium.starts_with("cxl") => "cxl",
        MediumKind::Memory => "dram",
        MediumKind::Pmem => "pmem",
        MediumKind::Drive => "nvme",
        MediumKind::San => "san",
    })
}

/// What makes plans resemble records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanShape {
    /// Kinds of media.
    pub kinds: Vec<&'static str>,
    /// The mode, as records name it; `None`: DRAM alone.
    pub mode: Option<String>,
    /// Bytes of far memory for each byte of near memory.
    pub far_to_near: Option<f64>,
    /// Operations are commits, and not reads.
    pub is_of_commits: bool,
}

impl PlanShape {
    /// The shape of a mix of a plan.
    pub fn of(plan: &PlanReport, mix: &MixReport) -> PlanShape {
        let mut kinds: Vec<&'static str> = mix.parts.iter().filter_map(|part| kind_of(&part.medium)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let far_to_near = mix.far_bytes.filter(|_| mix.near_bytes > 0).map(|far| far as f64 / mix.near_bytes as f64);
        PlanShape {
            kinds,
            mode: Some(mix.mode.clone()).filter(|mode| mode != "dram" && !mode.is_empty()),
            far_to_near,
            is_of_commits: plan.workloads.iter().any(|one| one.operation == "commit"),
        }
    }
}

/// The most records beside a plan.
const RESEMBLING_MAX: usize = 8;

/// The records that resemble a plan's chosen mix, or its first one; the most alike first.
///
/// One resembles it if it has the same kinds of memory, in the same mode where both say one, at a ratio of far to near memory that is not off by
/// more than twice, with a workload of the same sort. Figures of bare media, and counts of reports, resemble no plan.
pub fn resembling(plan: &PlanReport) -> Vec<&'static EvidenceRecord> {
    let Some(mix) = plan.chosen.and_then(|chosen| plan.mixes.get(chosen)).or(plan.mixes.first()) else {
        return Vec::new();
    };
    let shape = PlanShape::of(plan, mix);
    let mut alike: Vec<(u32, &EvidenceRecord)> =
        records().iter().filter_map(|record| Some((likeness(record, &shape)?, record))).collect();
    alike.sort_by_key(|(likeness, _)| std::cmp::Reverse(*likeness));
    alike.into_iter().take(RESEMBLING_MAX).map(|(_, record)| record).collect()
}

/// How alike they are; `None`: not at all.
fn likeness(record: &EvidenceRecord, shape: &PlanShape) -> Option<u32> {
    const MEMORY: [&str; 3] = ["dram", "pmem", "cxl"];
    if matches!(record.workload.as_str(), "device" | "survey") {
        return None;
    }
    let is_alike =
        |kind: &&str| record.media.iter().any(|one| one == *kind) == shape.kinds.iter().any(|one| one == kind);
    if !MEMORY.iter().all(is_alike) {
        return None;
    }
    if record.mode.is_some() && record.mode != shape.mode {
        return None;
    }
    let off = record.far_to_near.zip(shape.far_to_near).map(|(one, two)| (one / two).max(two / one));
    if off.is_some_and(|off| off > 2.0) {
        return None;
    }
    let is_of_commits = matches!(record.workload.as_str(), "messaging" | "database" | "key-value");
    let is_rule = record.workload == "rule";
    if !is_rule && is_of_commits != shape.is_of_commits {
        return None;
    }
    let is_stored_alike = ["nvme", "san"].iter().all(is_alike);
    let is_measured = matches!(record.kind, EvidenceKind::Measurement | EvidenceKind::Deployment);
    Some(
        u32::from(off.is_some()) * 4
            + u32::from(!is_rule) * 2
            + u32::from(is_stored_alike) * 2
            + u32::from(is_measured),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::report::{PartReport, WorkloadReport};

    fn plan(media: &[&str], mode: &str, far_to_near: Option<u64>, operation: &str) -> PlanReport {
        let part = |medium: &&str| PartReport { medium: (*medium).into(), count: 1, ..PartReport::default() };
        let mix = MixReport {
            parts: media.iter().map(part).collect(),
            mode: mode.into(),
            near_bytes: 1 << 37,
            far_bytes: far_to_near.map(|ratio| ratio << 37),
            ..MixReport::default()
        };
        let workload = WorkloadReport { operation: operation.into(), ..WorkloadReport::default() };
        PlanReport { mixes: vec![mix], workloads: vec![workload], ..PlanReport::default() }
    }

    fn names(plan: &PlanReport) -> Vec<&'static str> {
        resembling(plan).iter().map(|record| record.id.as_str()).collect()
    }

    #[test]
    fn a_plan_is_shown_beside_what_was_measured_with_the_same_kinds_mode_ratio_and_sort_of_workload() {
        let messages = names(&plan(&["ddr4-2666", "dcpmm100-128g", "optane-p4800x"], "app-direct", Some(8), "commit"));
        assert!(messages.contains(&"iris-t4-4-rate") && !messages.contains(&"iris-t4-2-rate"), "{messages:?}");
        assert!(messages.len() <= RESEMBLING_MAX);
        let memory = names(&plan(&["ddr4-2666", "dcpmm100-128g", "fc-san-16g"], "memory", Some(4), "access"));
        assert_eq!(memory.first(), Some(&"iris-queries-cache"), "{memory:?}");
        assert!(!memory.contains(&"iris-t4-2-rate"), "its workload is another: {memory:?}");
        let wide = names(&plan(&["ddr4-2666", "dcpmm100-128g", "fc-san-16g"], "memory", Some(20), "access"));
        assert!(!wide.contains(&"iris-queries-cache"), "{wide:?}");
        let far = names(&plan(&["ddr5", "cxl-expander", "nvme-p4510"], "far", Some(1), "access"));
        assert_eq!(far, ["cxl-tpch", "pond-slow"]);
        let plain = names(&plan(&["ddr5", "nvme-p4510"], "dram", None, "commit"));
        assert!(plain.contains(&"iris-t4-3-rate") && plain.iter().all(|name| !name.starts_with("vcf")), "{plain:?}");
        assert_eq!(resembling(&PlanReport::default()), Vec::<&EvidenceRecord>::new());
    }

    #[test]
    fn records_are_found_by_medium_workload_metric_and_kind() {
        let query = |medium: &str, workload: &str, metric: &str| {
            let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            EvidenceQuery { medium: text(medium), workload: text(workload), metric: text(metric), kind: None }
                .find()
                .len()
        };
        assert_eq!(query("", "", ""), records().len());
        assert_eq!(query("", "hl7", "messages/s"), 6);
        assert_eq!(query("dcpmm100-128g", "", ""), query("PMEM", "", ""));
        assert!(query("cxl", "", "latency") >= 4);
        assert_eq!(query("", "", "no such thing"), 0);
        let rules = EvidenceQuery { kind: Some(EvidenceKind::Rule), ..EvidenceQuery::default() }.find();
        assert!(rules.iter().any(|record| record.id == "iris-rule-ratio"));
        assert!(rules.iter().all(|record| record.kind == EvidenceKind::Rule));
    }
}
