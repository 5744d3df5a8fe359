//! The result as data, with the keys that scripts rely on, and as JSON.
//!
//! The keys `name, tier, model, rate, unit, latency_us, cpu_s, ratio_to_bare`, `durability` and `real` are a contract; the others may grow.
//!
//! Invariant: a figure that is missing or was refused is `null`, never 0.

use serde::Serialize;
use workload::machine::{self, FileSystem, Machine};

use crate::calibrate::{Calibrated, in_us};
use crate::options::WhatIfOptions;
use crate::runs::{Latency, Summed};

/// How a figure came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The real disk, without the path.
    Disk,
    /// The path alone.
    Path,
    /// The command ran with the medium's times.
    Run,
    /// Read off four runs with added times.
    Extrapolated,
    /// The four runs are no line.
    Refused,
}

impl How {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            How::Disk => "disk",
            How::Path => "path",
            How::Run => "run",
            How::Extrapolated => "extrapolated",
            How::Refused => "refused",
        }
    }
}

/// A run with something added.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AddedRun {
    /// Added to each read, write and flush, microseconds.
    pub added_us: f64,
    /// The median rate.
    pub rate: f64,
}

/// A rate that was read off runs with added times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadOff {
    /// The rate with nothing added.
    pub rate: f64,
    /// The largest distance of a run from the line, as a part of the run's value.
    pub residual: f64,
    /// More time did not slow the command.
    pub is_flat: bool,
}

/// A place and what the command achieved there.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The medium, `disk` or `path`.
    pub name: String,
    /// What kind of place.
    pub tier: String,
    /// The medium of the catalogue whose times it has.
    pub model: Option<String>,
    /// How the figure came about.
    pub how: How,
    /// What a flush protects from.
    pub durability: String,
    /// Whether no medium was modelled.
    pub real: bool,
    /// The median rate; nothing if it was refused.
    pub rate: Option<f64>,
    /// The smallest and the largest rate of the rounds.
    pub rate_range: Option<(f64, f64)>,
    /// The unit of the rate.
    pub unit: &'static str,
    /// Latencies as the file system sees them; not of the disk.
    pub latency_us: Option<Latency>,
    /// The latency that the command printed.
    pub command_latency_us: Option<f64>,
    /// Processor time of the machine in one run, without the path.
    pub cpu_s: f64,
    /// Processor time of the path (nbdfuse and this process) in one run.
    pub path_cpu_s: f64,
    /// Length of a run.
    pub seconds: f64,
    /// The rate divided by that of the disk.
    pub ratio_to_bare: Option<f64>,
    /// Reads, writes and flushes that reached the device for each unit of the rate.
    pub requests_per_unit: Option<[f64; 3]>,
    /// The largest distance of the four runs from a line, percent.
    pub residual_percent: Option<f64>,
    /// More time did not slow the command: it is not bound by its storage, and the figure is the mean of the four runs.
    pub is_flat: bool,
    /// The four runs.
    pub added: Vec<AddedRun>,
    /// Why there is no figure.
    pub why: Option<String>,
    /// Single requests.
    #[serde(skip)]
    pub calibration: Option<Calibrated>,
    /// The same for JSON.
    pub calibration_us: Option<CalibrationUs>,
}

/// Single requests, microseconds: reads, writes, flushes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CalibrationUs {
    /// What the path costs.
    pub path: [f64; 3],
    /// What was added to the medium's times.
    pub added: f64,
    /// What the requests should take then.
    pub wanted: Option<[f64; 3]>,
    /// What they took.
    pub achieved: Option<[f64; 3]>,
}

impl Place {
    /// The place of some runs; `bare` is the rate of the disk.
    pub fn new(name: &str, tier: &str, how: How, runs: &Summed, bare: Option<f64>) -> Place {
        Place {
            name: name.to_owned(),
            tier: tier.to_owned(),
            model: None,
            how,
            durability: String::new(),
            real: true,
            rate: Some(runs.rate),
            rate_range: Some(runs.range),
            unit: runs.unit,
            latency_us: runs.latency_us,
            command_latency_us: runs.command_latency_us,
            cpu_s: runs.cpu_s,
            path_cpu_s: runs.path_cpu_s,
            seconds: runs.seconds,
            ratio_to_bare: bare.filter(|bare| *bare > 0.0).map(|bare| runs.rate / bare),
            requests_per_unit: runs.per_unit,
            residual_percent: None,
            is_flat: false,
            added: Vec::new(),
            why: None,
            calibration: None,
            calibration_us: None,
        }
    }

    /// The real disk.
    pub fn on_disk(file_system: &FileSystem, runs: &Summed) -> Place {
        let durability = if file_system.is_volatile() { "none" } else { "power-fail-safe" }.to_owned();
        let tier = format!("{} on {}", file_system.kind, file_system.source);
        let mut place = Place { durability, path_cpu_s: 0.0, ..Place::new("disk", &tier, How::Disk, runs, None) };
        place.ratio_to_bare = Some(1.0);
        place
    }

    /// Makes it one that is read off `points` of added nanoseconds and rate. Latencies are of the run with the least added, and are left
    /// out, as is the latency that the command printed there.
    pub fn set_extrapolated(
        &mut self,
        points: &[(f64, f64)],
        found: Result<ReadOff, (String, f64)>,
        bare: Option<f64>,
    ) {
        self.added = points.iter().map(|(ns, rate)| AddedRun { added_us: ns / 1e3, rate: *rate }).collect();
        (self.latency_us, self.command_latency_us, self.rate_range) = (None, None, None);
        match found {
            Ok(ReadOff { rate, residual, is_flat }) => {
                (self.rate, self.is_flat) = (Some(rate), is_flat);
                self.ratio_to_bare = bare.filter(|bare| *bare > 0.0).map(|bare| rate / bare);
                self.residual_percent = Some(residual * 100.0);
            }
            Err((why, residual)) => {
                (self.how, self.rate, self.ratio_to_bare) = (How::Refused, None, None);
                (self.why, self.residual_percent) = (Some(why), Some(residual * 100.0));
            }
        }
    }
}

/// What the runs have in common.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfConfig {
    /// The command.
    pub command: Vec<String>,
    /// What prepared each place.
    pub setup: Option<String>,
    /// Rounds.
    pub rounds: usize,
    /// Size of the file systems.
    pub bytes: u64,
    /// The machine's load before.
    pub load_average: Option<f64>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfReport {
    /// The name of the measurement.
    pub bench: &'static str,
    /// Of the program.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub config: WhatIfConfig,
    /// The places: the disk, the path, the media.
    pub runs: Vec<Place>,
}

impl WhatIfReport {
    /// The report of places.
    pub fn new(options: &WhatIfOptions, places: Vec<Place>) -> WhatIfReport {
        let config = WhatIfConfig {
            command: options.command.clone(),
            setup: options.setup.clone(),
            rounds: options.rounds,
            bytes: options.bytes,
            load_average: machine::load_average(),
        };
        let with_us = |mut place: Place| {
            place.calibration_us = place.calibration.as_ref().map(|calibrated| CalibrationUs {
                path: in_us(&calibrated.path),
                added: calibrated.added_ns() / 1e3,
                wanted: calibrated.wanted.as_ref().map(in_us),
                achieved: calibrated.achieved.as_ref().map(in_us),
            });
            place
        };
        let (bench, version) = ("what-if", env!("CARGO_PKG_VERSION"));
        let runs = places.into_iter().map(with_us).collect();
        WhatIfReport { bench, version, machine: Machine::here(), config, runs }
    }

    /// Whether every place has a figure.
    pub fn is_complete(&self) -> bool {
        self.runs.iter().all(|place| place.how != How::Refused)
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::delay::PathCost;

    /// A report of made-up figures: a disk, the path, a medium that was run, one that was extrapolated, one that was refused.
    pub(crate) fn example() -> WhatIfReport {
        let summed = |rate: f64| Summed {
            rate,
            unit: "transactions/s",
            range: (rate * 0.9, rate * 1.1),
            command_latency_us: Some(1_604.0),
            cpu_s: 3.2,
            path_cpu_s: 0.4,
            seconds: 10.0,
            latency_us: Some(Latency { p50: 90.0, p99: 450.0 }),
            per_unit: Some([0.1, 1.5, 1.0]),
        };
        let kind = FileSystem { kind: "ext4".to_owned(), source: "/dev/vda".to_owned() };
        let path = PathCost { read_ns: 90e3, write_ns: 80e3, flush_ns: 70e3 };
        let calibrated = Calibrated { path, excess_ns: 20e3, wanted: Some(path), achieved: Some(path) };
        let bare = Place::on_disk(&kind, &Summed { latency_us: None, per_unit: None, ..summed(800.0) });
        let medium = |name: &str, how| {
            let mut place = Place::new(name, "drive", how, &summed(1_000.0), bare.rate);
            (place.model, place.real, place.durability) = (Some(name.to_owned()), false, "emulated".to_owned());
            place.calibration = Some(calibrated.clone());
            place
        };
        let points = [(20e3, 900.0), (40e3, 800.0), (60e3, 700.0), (80e3, 600.0)];
        let mut faster = medium("optane-p4800x", How::Extrapolated);
        faster.set_extrapolated(&points, Ok(ReadOff { rate: 1_200.0, residual: 0.03, is_flat: false }), bare.rate);
        let mut refused = medium("dcpmm100-128g", How::Extrapolated);
        refused.set_extrapolated(&points, Err(("no line".to_owned(), 0.3)), bare.rate);
        let slow = medium("sata-s4500", How::Run);
        let path = Place {
            durability: "none".to_owned(),
            ..Place::new("path", "memory", How::Path, &summed(1_500.0), bare.rate)
        };
        let config = WhatIfConfig {
            command: vec!["pgbench".to_owned(), "-T".to_owned(), "10".to_owned()],
            setup: None,
            rounds: 3,
            bytes: 1 << 30,
            load_average: Some(0.1),
        };
        WhatIfReport {
            bench: "what-if",
            version: "0.1.0",
            machine: Machine::here(),
            config,
            runs: vec![bare, path, slow, faster, refused],
        }
    }

    #[test]
    fn the_contract_has_its_keys_and_a_refused_figure_is_null() {
        let json: serde_json::Value = serde_json::from_str(&example().to_json()).expect("JSON");
        for key in ["bench", "version", "machine", "config", "runs"] {
            assert!(!json[key].is_null(), "{key}");
        }
        let runs = json["runs"].as_array().expect("runs");
        for key in
            ["name", "tier", "model", "rate", "unit", "latency_us", "cpu_s", "ratio_to_bare", "durability", "real"]
        {
            assert!(runs.iter().all(|run| run.get(key).is_some()), "{key}");
        }
        assert_eq!((&runs[3]["how"], &runs[3]["rate"]), (&"extrapolated".into(), &1_200.0.into()));
        assert_eq!((&runs[3]["ratio_to_bare"], &runs[3]["residual_percent"]), (&1.5.into(), &3.0.into()));
        assert!(runs[4]["rate"].is_null() && runs[4]["ratio_to_bare"].is_null() && runs[4]["why"] == "no line");
        assert!(!example().is_complete());
    }
}
