//! The result of the workload: as one JSON object for scripts, as a table for people, as a shorter table for newcomers.
//!
//! The JSON keys are a contract (`bench, version, machine, config, runs`, and in a run the keys of the bench): keys may be
//! added, never renamed. Rates count from the first byte sent until the last outbound message was acknowledged.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;

use ::node::status::ModelStatus;
use serde::Serialize;

use super::published::{self, Published};
use super::{NodeSample, Outcome, Quantiles};
use crate::machine::{FileSystem, Machine};
use crate::table::grouped;

/// Everything about one run of the workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Always `t4`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: Config,
    /// One run.
    pub runs: Vec<Run>,
}

/// The options of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Inbound services.
    pub services: usize,
    /// Messages for each.
    pub messages_per_service: usize,
    /// Outbound interfaces.
    pub interfaces: usize,
    /// Seed of the messages.
    pub seed: u64,
    /// Mean length of an inbound message.
    pub mean_message_bytes: usize,
    /// How outputs are stored: `full` or `delta` (only what a transform changed).
    pub bodies: &'static str,
    /// Folder of the node's data.
    pub data: PathBuf,
    /// Whether it is still there.
    pub data_kept: bool,
    /// The file system it is on.
    pub file_system: FileSystem,
    /// The published tests.
    pub published: [Published; 4],
    /// The differences of this run from the published ones.
    pub differs: Vec<String>,
}

/// The figures of a run; the keys down to `published_inbound_per_s` are the contract's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Names the run among several.
    pub name: String,
    /// The durability of a flush of the journal: `power-fail-safe`, `emulated` or `none`, as the node reports it.
    pub durability: String,
    /// False if any medium is a timing model, as the node reports it.
    pub real: bool,
    /// Messages acknowledged to the senders.
    pub inbound: u64,
    /// First deliveries, over all interfaces.
    pub outbound: u64,
    /// Message objects found in the node's journal afterwards.
    pub stored: u64,
    /// Acknowledged messages times interfaces that never came.
    pub lost: u64,
    /// Deliveries beyond the first.
    pub duplicated: u64,
    /// From the first byte sent until the last outbound message was acknowledged.
    pub seconds: f64,
    /// Sustained rate.
    pub inbound_per_s: f64,
    /// Writes to the journal's device.
    pub journal_writes_per_s: f64,
    /// Bytes of them, with padding.
    pub journal_bytes_per_s: f64,
    /// From a message's send to its acknowledgement, seen by the sender; microseconds.
    pub ack_us: Quantiles,
    /// Processor time of the node for each inbound message, kernel included; microseconds.
    pub server_cpu_us_per_inbound: f64,
    /// The tier of the journal, as the node reports it; `home` is its data folder.
    pub journal_tier: String,
    /// The medium of the journal and how it is written, in the node's words.
    pub journal_device: String,
    /// The memory of the page cache, as the node reports it: `dram`, `memory-mode`, `dual`, or `two-tier` for near and
    /// far memory that no mode has placed.
    pub cache_mode: String,
    /// The timing models, and how many accesses took longer on the host than in them, as the node reports it.
    pub models: Vec<ModelStatus>,
    /// The best published figure.
    pub published_inbound_per_s: f64,
    /// Whether everything sent was acknowledged and delivered before the load gave up waiting.
    pub complete: bool,
    /// Deliveries after one of a later message of the same service.
    pub out_of_order: u64,
    /// Deliveries whose bytes are not the expected ones.
    pub wrong_content: u64,
    /// Negative acknowledgements to the senders.
    pub refused: u64,
    /// Any other breach of protocol: foreign messages, unrelated replies, framing, broken connections.
    pub other_faults: u64,
    /// Processor time of the load for each inbound message, which the node could not have; microseconds.
    pub load_cpu_us_per_inbound: f64,
    /// Bytes the kernel sent to storage for the node: a check on `journal_bytes_per_s` from outside.
    pub storage_bytes_per_s: f64,
    /// The first faults, for people.
    pub examples: Vec<String>,
}

impl Report {
    /// Puts the figures together.
    pub(super) fn new(
        machine: Machine,
        config: Config,
        outcome: &Outcome,
        stored: u64,
        samples: Range<&NodeSample>,
    ) -> Report {
        let (before, after) = (samples.start, samples.end);
        let counts = outcome.counts;
        let per_second = |count: u64| if outcome.seconds > 0.0 { count as f64 / outcome.seconds } else { 0.0 };
        let per_inbound = |micros: u64| micros as f64 / counts.acknowledged.max(1) as f64;
        let journal = |of: fn(&NodeSample) -> u64| per_second(of(after).saturating_sub(of(before)));
        let usage = after.usage.since(before.usage);
        let run = Run {
            name: format!("t4, bodies {}", config.bodies),
            durability: after.durability.clone(),
            real: after.real,
            inbound: counts.acknowledged,
            outbound: counts.delivered,
            stored,
            lost: outcome.lost,
            duplicated: counts.duplicated,
            seconds: outcome.seconds,
            inbound_per_s: per_second(counts.acknowledged),
            journal_writes_per_s: journal(|sample| sample.journal_writes),
            journal_bytes_per_s: journal(|sample| sample.journal_bytes),
            ack_us: outcome.ack_us,
            server_cpu_us_per_inbound: per_inbound(usage.cpu_us),
            journal_tier: after.journal_tier.clone(),
            journal_device: after.journal_device.clone(),
            cache_mode: after.cache_mode.clone(),
            models: after.models.clone(),
            published_inbound_per_s: published::BEST.inbound_per_s,
            complete: outcome.complete,
            out_of_order: counts.out_of_order,
            wrong_content: counts.wrong,
            refused: counts.refused,
            other_faults: counts.foreign + counts.bad_acknowledgements + counts.framing + counts.resends,
            load_cpu_us_per_inbound: per_inbound(outcome.cpu_us),
            storage_bytes_per_s: per_second(usage.written_bytes),
            examples: outcome.examples.clone(),
        };
        let mut report = Report { bench: "t4", version: env!("CARGO_PKG_VERSION"), machine, config, runs: vec![run] };
        report.config.differs = report.differences();
        report
    }

    /// Whether every message arrived once, in order, as expected, and all objects are stored.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| {
            let faults =
                run.lost + run.duplicated + run.out_of_order + run.wrong_content + run.refused + run.other_faults;
            let interfaces = self.config.interfaces as u64;
            faults == 0
                && run.complete
                && run.inbound > 0
                && run.outbound == run.inbound * interfaces
                && run.stored == run.inbound * (interfaces + 1)
        })
    }

    /// The report as one JSON object, ended by a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data with text keys");
        text.push('\n');
        text
    }

    fn differences(&self) -> Vec<String> {
        let cores = self.machine.cores;
        let file_system = &self.config.file_system;
        let bodies = match self.config.bodies {
            "full" => "every body stored whole",
            _ => "the transformed bodies stored as what changed",
        };
        let mut differs = vec![
            format!("{cores} cores, published {}", published::BEST.cores),
            "senders, receivers and the checks run on the same cores as the node".to_owned(),
            match self.runs.first() {
                Some(run) if run.real => format!("journal: on {} ({})", file_system.source, run.journal_device),
                Some(run) => format!("journal: tier {}, {}", run.journal_tier, run.journal_device),
                None => "no run".to_owned(),
            },
            format!("five message objects for each message, in one journal record; {bodies}"),
            "receivers acknowledge at once".to_owned(),
            format!(
                "messages of {} bytes on average, made up; the published ones are not described",
                self.config.mean_message_bytes
            ),
        ];
        differs.extend(self.runs.iter().flat_map(|run| run.models.iter().map(model_in_words)));
        differs
    }

    /// The report as a table.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let machine = &self.machine;
        let config = &self.config;
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(
            out,
            "T4: {} services x {} messages, each to {} interfaces through a transform\n\
             Terrace {} on {}, {} cores, {gib:.0} GiB; data in {} ({} on {})\n",
            config.services,
            grouped(config.messages_per_service as f64),
            config.interfaces,
            self.version,
            machine.cpu,
            machine.cores,
            config.data.display(),
            config.file_system.kind,
            config.file_system.source,
        );
        for run in &self.runs {
            let _ = writeln!(out, "{:<34}{:>16}{:>14}", "", "this run", "published");
            for (what, ours, published) in rows(run, machine.cores) {
                let line = format!("{what:<34}{ours:>16}{published:>14}");
                let _ = writeln!(out, "{}", line.trim_end());
            }
            let _ = writeln!(out, "{:<34}{:>16}  ({})", "durability", run.durability, run.journal_device);
            if !run.complete {
                let _ = writeln!(
                    out,
                    "  fault: messages were left without an acknowledgement or a delivery when the load gave up"
                );
            }
            for example in &run.examples {
                let _ = writeln!(out, "  fault: {example}");
            }
        }
        let _ = writeln!(out, "\nPublished (IRIS for Health; the column above is test 4):");
        for test in &config.published {
            let _ = writeln!(
                out,
                "  test {}  {:>2} cores  {:>6} inbound/s  {:>6} journal writes/s  {}",
                test.test,
                test.cores,
                grouped(test.inbound_per_s),
                grouped(test.journal_writes_per_s),
                test.media
            );
        }
        let _ = writeln!(out, "\nWhat differs here:");
        for line in &config.differs {
            let _ = writeln!(out, "  - {line}");
        }
        out
    }
}

/// The lines of the table: what, ours, the published figure.
fn rows(run: &Run, cores: usize) -> Vec<(&'static str, String, String)> {
    let best = published::BEST;
    let none = String::new;
    let per_core = |rate: f64, cores: f64| format!("{:.0}", rate / cores);
    vec![
        ("inbound messages", grouped(run.inbound as f64), "614,400".to_owned()),
        ("outbound messages", grouped(run.outbound as f64), "2,457,600".to_owned()),
        ("message objects stored", grouped(run.stored as f64), "3,072,000".to_owned()),
        ("lost", grouped(run.lost as f64), none()),
        ("duplicated", grouped(run.duplicated as f64), none()),
        ("out of order", grouped(run.out_of_order as f64), none()),
        ("wrong content", grouped(run.wrong_content as f64), none()),
        ("refused, other faults", grouped((run.refused + run.other_faults) as f64), none()),
        ("seconds", format!("{:.1}", run.seconds), none()),
        ("inbound messages/s", grouped(run.inbound_per_s), grouped(best.inbound_per_s)),
        ("  a core", per_core(run.inbound_per_s, cores as f64), per_core(best.inbound_per_s, f64::from(best.cores))),
        ("journal writes/s", grouped(run.journal_writes_per_s), grouped(best.journal_writes_per_s)),
        ("journal MB/s", format!("{:.1}", run.journal_bytes_per_s / 1e6), none()),
        ("storage MB/s, as the kernel counts", format!("{:.1}", run.storage_bytes_per_s / 1e6), none()),
        ("ACK latency, median, us", grouped(run.ack_us.p50), none()),
        ("ACK latency, 99 %, us", grouped(run.ack_us.p99), none()),
        ("ACK latency, 99.9 %, us", grouped(run.ack_us.p999), none()),
        ("node CPU an inbound message, us", format!("{:.1}", run.server_cpu_us_per_inbound), none()),
        ("load CPU an inbound message, us", format!("{:.1}", run.load_cpu_us_per_inbound), none()),
    ]
}

/// The model of a medium, and how many of its accesses measured the host instead.
pub fn model_in_words(model: &ModelStatus) -> String {
    let ModelStatus { tier, medium, modules, accesses, late, late_us, .. } = model;
    let (late, accesses, late_us) = (grouped(*late as f64), grouped(*accesses as f64), grouped(*late_us as f64));
    format!(
        "tier {tier}: modelled {modules} x {medium}; {late} of {accesses} accesses took the host longer, {late_us} us together"
    )
}

/// The report for a user who sees Terrace for the first time.
pub fn demo_table(report: &Report) -> String {
    let mut out = String::new();
    let config = &report.config;
    for run in &report.runs {
        let verdict = if report.is_clean() {
            "every message arrived once at every receiver, in order, with the expected content".to_owned()
        } else {
            let wrong = run.wrong_content + run.out_of_order + run.refused + run.other_faults;
            let expected = grouped((run.inbound * (config.interfaces as u64 + 1)) as f64);
            format!(
                "NOT CLEAN: {}{} lost, {} duplicated, {wrong} other faults, {} of {expected} objects stored",
                if run.complete { "" } else { "the node stood still, " },
                run.lost,
                run.duplicated,
                grouped(run.stored as f64)
            )
        };
        let durable = durability_in_words(run);
        let lines = [
            (
                "what ran",
                format!(
                    "{} sending systems, {} receiving systems, real TCP on this machine",
                    config.services, config.interfaces
                ),
            ),
            (
                "messages in",
                format!(
                    "{}  (HL7 v2, {} bytes on average)",
                    grouped(run.inbound as f64),
                    grouped(config.mean_message_bytes as f64)
                ),
            ),
            ("messages out", format!("{}  (each transformed for its receiver)", grouped(run.outbound as f64))),
            ("verdict", verdict),
            (
                "speed",
                format!(
                    "{} messages in a second, {} in and out",
                    grouped(run.inbound_per_s),
                    grouped(run.inbound_per_s + run.outbound as f64 / run.seconds.max(1e-9))
                ),
            ),
            (
                "acknowledged after",
                format!("{:.1} ms (median), {:.1} ms (99 of 100)", run.ack_us.p50 / 1e3, run.ack_us.p99 / 1e3),
            ),
            ("stored", format!("{} message objects, {durable}", grouped(run.stored as f64))),
            (
                "data",
                format!("{} ({} on {})", config.data.display(), config.file_system.kind, config.file_system.source),
            ),
            (
                "published",
                format!(
                    "{} messages in a second on {} cores; here {} cores, shared with the senders",
                    grouped(run.published_inbound_per_s),
                    published::BEST.cores,
                    report.machine.cores
                ),
            ),
        ];
        for (what, text) in lines {
            let _ = writeln!(out, "  {what:<20}{text}");
        }
    }
    out
}

fn durability_in_words(run: &Run) -> &'static str {
    match run.durability.as_str() {
        "emulated" => "on a medium that is only emulated",
        "none" => "in memory only: this folder is lost when the power goes",
        _ => "on disk before each acknowledgement",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Counts;
    use crate::process::Usage;

    fn report(change: impl FnOnce(&mut Outcome)) -> Report {
        let counts = Counts { sent: 100, acknowledged: 100, delivered: 400, ..Counts::default() };
        let ack_us = Quantiles { p50: 800.0, p99: 2_000.0, p999: 3_000.0 };
        let mut outcome = Outcome { counts, complete: true, seconds: 0.5, ack_us, cpu_us: 2_500, ..Outcome::default() };
        change(&mut outcome);
        let file_system = FileSystem { kind: "ext4".to_owned(), source: "/dev/sda1".to_owned() };
        let config = Config {
            services: 2,
            messages_per_service: 50,
            interfaces: 4,
            seed: 9,
            mean_message_bytes: 2_400,
            bodies: "full",
            data: PathBuf::from("/data"),
            data_kept: true,
            file_system,
            published: published::TESTS,
            differs: Vec::new(),
        };
        let after = NodeSample {
            usage: Usage { cpu_us: 9_000, written_bytes: 1_100_000 },
            journal_writes: 40,
            journal_bytes: 1_000_000,
            journal_device: "file".to_owned(),
            journal_tier: "home".to_owned(),
            durability: "power-fail-safe".to_owned(),
            real: true,
            cache_mode: "dram".to_owned(),
            models: Vec::new(),
        };
        Report::new(Machine::here(), config, &outcome, 500, &NodeSample::default()..&after)
    }

    #[test]
    fn the_json_has_the_keys_of_the_contract() {
        let json: serde_json::Value = serde_json::from_str(&report(|_| ()).to_json()).expect("our own JSON");
        for key in ["bench", "version", "machine", "config", "runs"] {
            assert!(!json[key].is_null(), "{key}");
        }
        let run = &json["runs"][0];
        for (key, value) in [
            ("inbound", 100.0),
            ("outbound", 400.0),
            ("stored", 500.0),
            ("lost", 0.0),
            ("duplicated", 0.0),
            ("seconds", 0.5),
            ("inbound_per_s", 200.0),
            ("journal_writes_per_s", 80.0),
            ("journal_bytes_per_s", 2_000_000.0),
            ("server_cpu_us_per_inbound", 90.0),
            ("published_inbound_per_s", 5_399.0),
            ("load_cpu_us_per_inbound", 25.0),
        ] {
            assert_eq!(run[key].as_f64(), Some(value), "{key}");
        }
        assert_eq!(run["ack_us"], serde_json::json!({"p50": 800.0, "p99": 2000.0, "p999": 3000.0}));
        assert_eq!((&run["durability"], &run["real"]), (&"power-fail-safe".into(), &true.into()));
        for key in ["name", "journal_tier", "cache_mode"] {
            assert!(run[key].is_string(), "{key}");
        }
    }

    #[test]
    fn any_fault_makes_a_report_unclean_and_the_demo_says_so() {
        assert!(report(|_| ()).is_clean());
        assert!(demo_table(&report(|_| ())).contains("every message arrived once"));
        let faults: [fn(&mut Outcome); 10] = [
            |outcome| outcome.complete = false,
            |outcome| outcome.lost = 1,
            |outcome| outcome.counts.duplicated = 1,
            |outcome| outcome.counts.out_of_order = 1,
            |outcome| outcome.counts.wrong = 1,
            |outcome| outcome.counts.refused = 1,
            |outcome| outcome.counts.framing = 1,
            |outcome| outcome.counts.foreign = 1,
            |outcome| outcome.counts.bad_acknowledgements = 1,
            |outcome| outcome.counts.delivered -= 1,
        ];
        for (number, fault) in faults.into_iter().enumerate() {
            let report = report(fault);
            assert!(!report.is_clean(), "fault {number}");
            assert!(demo_table(&report).contains("NOT CLEAN"), "fault {number}");
        }
    }

    #[test]
    fn objects_missing_from_the_journal_make_a_report_unclean() {
        let mut report = report(|_| ());
        report.runs[0].stored = 499;
        assert!(!report.is_clean());
    }

    #[test]
    fn what_the_journal_lies_on_and_is_worth_is_what_the_node_says() {
        let report = report(|_| ());
        let after = NodeSample {
            journal_tier: "pmem".to_owned(),
            durability: "emulated".to_owned(),
            real: false,
            models: vec![ModelStatus {
                tier: "far".to_owned(),
                medium: "dcpmm100-128g".to_owned(),
                modules: 6,
                accesses: 1_000,
                read_bytes: 0,
                written_bytes: 0,
                late: 7,
                late_us: 3,
            }],
            ..NodeSample::default()
        };
        let samples = &NodeSample::default()..&after;
        let again = Report::new(report.machine, report.config, &Outcome::default(), 0, samples);
        let run = &again.runs[0];
        assert_eq!((run.journal_tier.as_str(), run.durability.as_str(), run.real), ("pmem", "emulated", false));
        assert!(demo_table(&again).contains("emulated"));
        let text = again.to_text();
        let says = "tier far: modelled 6 x dcpmm100-128g; 7 of 1,000 accesses took the host longer, 3 us together";
        assert!(text.contains(says), "{text}");
    }

    #[test]
    fn the_table_shows_our_rate_beside_the_published_one() {
        let text = report(|_| ()).to_text();
        let line = text.lines().find(|line| line.starts_with("inbound messages/s")).expect("a line for the rate");
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["inbound", "messages/s", "200", "5,399"]);
    }
}
