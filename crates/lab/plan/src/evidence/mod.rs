//! What others have reported and measured of mixes of media: records with a source and a date, to be asked, and to be shown beside a plan that
//! resembles one.
//!
//! ```text
//!   records.toml, in the program  ->  records()      all of them, checked once
//!   query.rs                      ->  which of them fit a medium, a workload, a metric; which resemble a plan
//!   command.rs                    ->  `terrace plan evidence`
//! ```
//!
//! Invariants, which a test holds: each record has a source, a place in it, a date and a unit; no plan is computed from one. They are figures of
//! others for a reader to compare with, not input.

mod command;
mod query;

pub use command::{EvidenceArgs, beside};
pub use query::{EvidenceQuery, PlanShape, resembling};

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvidenceKind {
    /// Measured by who published it, with conditions.
    Measurement,
    /// Reported of a system in use.
    Deployment,
    /// Claimed or quoted by who sells it.
    Vendor,
    /// Advice on sizes.
    Rule,
    /// Counted over reports.
    Survey,
}

/// What the date of a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DateOf {
    /// That of the publication.
    #[default]
    Publication,
    /// The source has none; it is that of the work that cites it.
    Citation,
    /// The source has none; it is when it was read.
    Reading,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceRecord {
    /// Its name; each is there once.
    pub id: String,
    /// Where it comes from.
    pub kind: EvidenceKind,
    /// The number of the published experiment that this project reproduces, 1 to 5.
    pub experiment: Option<u32>,
    /// The program, product or owner.
    pub system: String,
    /// The class of the workload: `messaging`, `analytics`, `search`, `volumes`, `database`, `key-value`, `virtual-machines`, `device`, `rule`,
    /// `survey`.
    pub workload: String,
    /// What was run or counted.
    pub what: String,
    /// Kinds of media: `dram`, `pmem`, `cxl`, `nvme`, `san`.
    pub media: Vec<String>,
    /// `memory`, `app-direct`, `dual`, `far`, `tier` (drives as memory); absent: DRAM alone, or not said.
    pub mode: Option<String>,
    /// The mix, in words.
    pub mix: String,
    /// Bytes of far memory for each byte of near memory.
    pub far_to_near: Option<f64>,
    /// What the figure is.
    pub metric: String,
    /// The figure.
    pub figure: f64,
    /// Its unit.
    pub unit: String,
    /// The low end, if the source has a range.
    pub low: Option<f64>,
    /// The high end.
    pub high: Option<f64>,
    /// `at most` or `at least`, if the source says so.
    pub bound: Option<String>,
    /// What it is compared with.
    pub against: Option<String>,
    /// How it was computed of what the source says.
    pub how: Option<String>,
    /// Year or month.
    pub dated: String,
    /// What that date is.
    #[serde(default)]
    pub date_of: DateOf,
    /// The source.
    pub source: String,
    /// Section, table or figure in it.
    pub at: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    record: Vec<EvidenceRecord>,
}

/// All records, in the order of the file.
pub fn records() -> &'static [EvidenceRecord] {
    static RECORDS: OnceLock<Vec<EvidenceRecord>> = OnceLock::new();
    // A test reads the file, so that there is none in a program that was released which cannot be read.
    RECORDS.get_or_init(|| parse(include_str!("records.toml")).unwrap_or_default())
}

fn parse(text: &str) -> Result<Vec<EvidenceRecord>, toml::de::Error> {
    toml::from_str::<File>(text).map(|file| file.record)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_record_has_a_source_a_place_in_it_a_date_and_a_unit_and_a_name_of_its_own() {
        let records = parse(include_str!("records.toml")).expect("the file is well-formed");
        assert!(records.len() > 80);
        let classes = [
            "messaging",
            "analytics",
            "search",
            "volumes",
            "database",
            "key-value",
            "virtual-machines",
            "device",
            "rule",
            "survey",
        ];
        let kinds = ["dram", "pmem", "cxl", "nvme", "san"];
        let modes = ["memory", "app-direct", "dual", "far", "tier"];
        let mut names = BTreeSet::new();
        for record in &records {
            let EvidenceRecord { id, system, what, media, mix, metric, figure, unit, dated, source, at, .. } = record;
            assert!(names.insert(id), "{id} is there twice");
            for text in [system, what, mix, metric, unit, source, at] {
                assert!(!text.trim().is_empty() && !text.contains(['\n', '<']), "{id}: {text}");
            }
            assert!(figure.is_finite() && *figure > 0.0, "{id}");
            assert!(classes.contains(&record.workload.as_str()), "{id}: {}", record.workload);
            assert!(!media.is_empty() && media.iter().all(|kind| kinds.contains(&kind.as_str())), "{id}: {media:?}");
            assert!(record.mode.as_deref().is_none_or(|mode| modes.contains(&mode)), "{id}");
            assert!(record.bound.as_deref().is_none_or(|bound| ["at most", "at least"].contains(&bound)), "{id}");
            let is_date = match dated.split_once('-') {
                Some(_) => catalogue::price::PriceDate::parse(dated).is_some() && dated.len() == 7,
                None => dated.len() == 4 && dated.parse::<u32>().is_ok_and(|year| (2015..=2026).contains(&year)),
            };
            assert!(is_date, "{id}: {dated}");
            let is_range = |(low, high): (f64, f64)| low <= *figure && *figure <= high;
            assert!(record.low.zip(record.high).is_none_or(is_range), "{id}: its range");
            assert_eq!(record.low.is_some(), record.high.is_some(), "{id}: its range");
        }
    }

    #[test]
    fn each_figure_of_the_five_published_experiments_is_there() {
        let has = |experiment: u32, figure: f64, unit: &str| {
            records()
                .iter()
                .any(|one| one.experiment == Some(experiment) && (one.figure - figure).abs() < 1e-9 && one.unit == unit)
        };
        let experiments: [(u32, &str, &[f64]); 15] = [
            (1, "messages/s", &[3355.0, 4684.0, 4845.0, 5399.0, 76.0, 112.0]),
            (1, "writes/s", &[2010.0, 2400.0, 2540.0, 2630.0]),
            (1, "%", &[39.0, 44.0, 60.0, 5.0]),
            (2, "x", &[6.0, 8.0]),
            (2, "%", &[20.0]),
            (2, "GB/s", &[6.8, 1.85, 2.5, 2.2, 25.0]),
            (2, "TB", &[1.0]),
            (2, "TiB", &[12.0]),
            (3, "x", &[2.0]),
            (3, "TB", &[1.5]),
            (4, "IOPS", &[13_798_674.0, 9_459_587.0, 1_149_890.0, 788_299.0, 20_534.0, 14_077.0]),
            (4, "GB/s", &[535.86, 44.66, 0.80]),
            (4, "us", &[40.0]),
            (4, "TiB", &[9.36]),
            (5, "%", &[50.0, 24.0, 14.3]),
        ];
        for (experiment, unit, figures) in experiments {
            for figure in figures {
                assert!(has(experiment, *figure, unit), "experiment {experiment}: {figure} {unit}");
            }
        }
        assert_eq!(records().iter().filter(|one| one.experiment == Some(3) && one.unit == "x").count(), 2);
    }
}
