//! Media that a plan can use: of each one of the catalogue what it could be for, where it is plugged in, and its timing model.
//!
//! Invariants: a medium without a model is left out by name, with the figure that is missing; DRAM alone may borrow the times of another
//! DRAM, which the plan then says. Nothing here knows prices.

use catalogue::medium::{Key, Medium, MediumKind};
use catalogue::{CatalogueError, Model};

use crate::PlanError;

/// DRAM whose measured times stand for DRAM without any.
pub(super) const DRAM_STAND_IN: &str = "ddr4-3200";

/// Lanes of a card.
pub(super) const CARD_LANES: u32 = 8;

/// Where a medium is plugged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plug {
    /// A slot for modules of memory.
    Dimm,
    /// Eight lanes: a card of CXL.
    Lanes,
    /// A bay, with four lanes of its own.
    Bay,
    /// Nothing: a volume of a network or a cloud.
    Network,
}

/// What a medium can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Near memory.
    Near,
    /// Far memory behind it, as a node of memory that the page cache manages.
    Far,
    /// Modules that are far memory, hold the journal, or both, as their goal says.
    Modules,
    /// The journal alone.
    Journal,
    /// Data, and the journal with it or alone.
    Drive,
}

/// A medium with what a plan needs of it.
#[derive(Clone, Debug)]
pub struct Supply {
    /// The medium.
    pub medium: Medium,
    /// Where it is plugged in.
    pub plug: Plug,
    /// What it can be used for.
    pub duty: Duty,
    /// No more of it than what is owned: it is not offered, or left out by `--no`.
    pub only_owned: bool,
    /// It is rented by its operations each second: there is a price of them, and it is not owned.
    pub by_operations: bool,
}

impl Supply {
    /// What the catalogue says of a medium.
    pub fn of(medium: &Medium) -> Supply {
        let name = medium.name.as_str();
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let (plug, duty) = match medium.kind {
            MediumKind::Drive => (Plug::Bay, Duty::Drive),
            MediumKind::San => (Plug::Network, Duty::Drive),
            MediumKind::Pmem if starts(&["dcpmm", "pmem"]) => (Plug::Dimm, Duty::Modules),
            MediumKind::Pmem if starts(&["nvdimm"]) => (Plug::Dimm, Duty::Journal),
            MediumKind::Pmem => (Plug::Lanes, Duty::Journal),
            MediumKind::Memory if starts(&["cxl"]) => (Plug::Lanes, Duty::Far),
            MediumKind::Memory => (Plug::Dimm, Duty::Near),
        };
        Supply { medium: medium.clone(), plug, duty, only_owned: false, by_operations: false }
    }

    /// Whether it is not made any more: Intel ended Optane in 2022 (Intel's second quarter of 2022), and NVDIMM-N ended with DDR4.
    pub fn is_discontinued(&self) -> bool {
        let name = &self.medium.name;
        ["dcpmm", "pmem", "optane", "nvdimm"].iter().any(|prefix| name.starts_with(prefix))
    }

    /// The words by which `--no` leaves it out.
    pub fn is_named(&self, word: &str) -> bool {
        let name = &self.medium.name;
        name == word
            || word.len() >= 3 && name.starts_with(word)
            || match word {
                "cxl" => self.plug == Plug::Lanes,
                "pmem" => self.medium.kind == MediumKind::Pmem,
                "network" => self.plug == Plug::Network,
                "discontinued" => self.is_discontinued(),
                "far" => matches!(self.duty, Duty::Far | Duty::Modules),
                _ => false,
            }
    }

    /// Whether a server with this DRAM has a place for it; else why not.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn fits(&self, dram: &str) -> Result<(), String> {
        let name = &self.medium.name;
        let wants = if name.starts_with("dcpmm100") {
            "ddr4-2666"
        } else if name.starts_with("pmem200") {
            "ddr4-3200"
        } else if name.starts_with("nvdimm") {
            "ddr4"
        } else if self.plug == Plug::Lanes {
            "ddr5"
        } else {
            return Ok(());
        };
        if dram.starts_with(wants) { Ok(()) } else { Err(format!("goes into servers with {wants}")) }
    }

    /// The model of so many.
    ///
    /// # Errors
    /// The figure that the catalogue has not.
    pub fn model(&self, modules: u32) -> Result<Model, PlanError> {
        Model::of(&self.medium, modules).map_err(refused)
    }

    /// The model of so many; a volume that is rented by its operations does no more of them.
    ///
    /// # Errors
    /// As [`model`](Supply::model).
    pub fn model_with(&self, modules: u32, iops: f64) -> Result<Model, PlanError> {
        if !self.by_operations {
            return self.model(modules);
        }
        let mut medium = self.medium.clone();
        for figure in medium.figures.iter_mut().filter(|one| matches!(one.key, Key::ReadIops | Key::WriteIops)) {
            figure.value = figure.value.min(iops);
        }
        Model::of(&medium, modules).map_err(refused)
    }

    /// Whether there may be so many, of which some are owned.
    pub fn may_be(&self, count: u32, owned: u32) -> bool {
        !self.only_owned || count <= owned
    }

    /// Operations each second that it can be rented with at most.
    pub fn operations_most(&self) -> f64 {
        let figures = [Key::ReadIops, Key::WriteIops].into_iter().filter_map(|key| self.medium.figure(key));
        figures.map(|figure| figure.value).reduce(f64::max).unwrap_or(f64::INFINITY)
    }

    /// Bytes of one. Modules of memory hold what their label says in GiB, drives count in powers of ten.
    pub fn bytes(&self) -> u64 {
        let gb = if self.medium.kind.is_addressed() { (1u64 << 30) as f64 } else { 1e9 };
        (self.medium.capacity_gb * gb) as u64
    }

    /// Full writes of its capacity a day, over the warranty.
    pub fn endurance(&self) -> Option<f64> {
        self.medium.figure(Key::Endurance).map(|figure| figure.value)
    }

    /// By how much the 99th percentile of a read lies above its mean, ns.
    pub fn read_tail_ns(&self) -> Option<f64> {
        let p99 = self.medium.figure(Key::ReadP99)?.value;
        Some((p99 - self.medium.figure(Key::ReadLatency)?.value).max(0.0))
    }
}

/// The model of DRAM: its own, or else that of [`DRAM_STAND_IN`] with a note.
///
/// # Errors
/// There is no such medium, or it is no DRAM.
pub(super) fn dram_model(
    media: &[Medium],
    name: &str,
    times: Option<&str>,
    modules: u32,
) -> Result<(Model, Option<String>), PlanError> {
    let dram = Medium::find_in(media, name).map_err(refused)?;
    if Supply::of(&dram).duty != Duty::Near {
        return Err(PlanError::Refused(format!(
            "dram = \"{name}\" is no DRAM of the catalogue: ddr5, ddr4-3200, ddr4-2666"
        )));
    }
    if times.is_none()
        && let Ok(model) = Model::of(&dram, modules)
    {
        return Ok((model, None));
    }
    let stand_in = times.unwrap_or(DRAM_STAND_IN);
    let other = Medium::find_in(media, stand_in).map_err(refused)?;
    let model = Model::of(&other, modules).map_err(refused)?;
    Ok((model, Some(format!("{name} has no measured times in the catalogue: those of {stand_in} are taken"))))
}

fn refused(error: CatalogueError) -> PlanError {
    PlanError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use catalogue::media;

    use super::*;

    #[test]
    fn media_have_a_duty_a_plug_and_platforms_and_are_left_out_by_words() {
        let supply = |name: &str| Supply::of(&Medium::find(name).expect(name));
        for (name, plug, duty) in [
            ("ddr5", Plug::Dimm, Duty::Near),
            ("cxl-expander", Plug::Lanes, Duty::Far),
            ("dcpmm100-128g", Plug::Dimm, Duty::Modules),
            ("pmem200-256g", Plug::Dimm, Duty::Modules),
            ("nvdimm-n", Plug::Dimm, Duty::Journal),
            ("nv-cmm-e3s", Plug::Lanes, Duty::Journal),
            ("nvme-p4510", Plug::Bay, Duty::Drive),
            ("ebs-io2bx", Plug::Network, Duty::Drive),
        ] {
            assert_eq!((supply(name).plug, supply(name).duty), (plug, duty), "{name}");
        }
        assert!(supply("dcpmm100-128g").fits("ddr4-2666").is_ok() && supply("dcpmm100-128g").fits("ddr5").is_err());
        assert!(supply("cxl-expander").fits("ddr5").is_ok() && supply("cxl-expander").fits("ddr4-3200").is_err());
        let named = |name: &str, word: &str| supply(name).is_named(word);
        assert!(named("cxl-expander", "cxl") && named("nv-cmm-e3s", "cxl") && !named("ddr5", "cxl"));
        assert!(named("optane-p5800x", "discontinued") && named("optane-p5800x", "optane"));
        assert!(named("nvme-p4510", "nvme-p4510") && !named("nvme-p4510", "discontinued"));
    }

    #[test]
    fn dram_without_times_borrows_them_and_says_so_and_others_are_left_out_by_the_missing_figure() {
        let (model, note) = dram_model(media(), "ddr5", None, 8).expect("a model");
        assert_eq!(model.name(), DRAM_STAND_IN);
        assert!(note.expect("a note").contains("ddr5 has no measured times"));
        assert!(dram_model(media(), "ddr4-3200", None, 8).expect("its own").1.is_none());
        assert!(dram_model(media(), "nvme-p4510", None, 1).is_err());
        let error = Supply::of(&Medium::find("nvme-micron9550").expect("there")).model(1).expect_err("no latency");
        assert!(error.to_string().contains("read_latency"), "{error}");
    }
}
