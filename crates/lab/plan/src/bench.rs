//! `terrace bench plan`: predictions of the planner beside the real page cache, held out.
//!
//! ```text
//!   made-up accesses, seed n     -> a profile -> a plan        predicted
//!   others of the same, seed n+1 -> the store's page cache     measured
//! ```
//!
//! A pair is a workload and a server. The result is written after each pair, and what is in it is not run again ([`BenchPlanArgs::resume`]).
//!
//! Media are models with virtual time: the figures are the same on every machine. Not here: queues, journal, processors.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use catalogue::media;
use catalogue::price::PriceDate;
use clap::Args;
use serde::Deserialize;

use crate::PlanError;
use crate::generate::{Shape, generate};
use crate::hash::Salt;
use crate::mix::sizing::origin;
use crate::mix::{
    PlanRequest, Planning, PriceList, ProfileSource, Server, Shortness, Target, VerifyConfig, VerifyReport, VerifyRun,
    Workload,
};
use crate::output::{print, read_text, write_durably};
use crate::profile::{Access, Lack, Recorder, RecorderOptions};

/// Pages of a workload, and bytes of one: 64 MiB.
const PAGES: u32 = 8192;
const PAGE_BYTES: u32 = 8192;
/// Seconds that a workload takes.
const SECONDS: u64 = 3600;
/// Points by which a prediction may be wrong.
const POINTS_MOST: f64 = 3.0;

/// Servers with cards of CXL, and with persistent modules; and how many times larger the workload is taken to be than what is run: 64 MiB stand
/// for 4 and for 64 GiB.
const SERVERS: [(&str, &str, f64); 2] = [
    (
        "cards of CXL",
        "sockets = 1\ncores = 8\ndimm_slots = 16\nchannels = 8\nlanes = 32\nbays = 8\nreserve = '512MiB'\n\
         dimms = ['1GiB', '2GiB']\noffer = ['cxl-expander', 'nvme-p4510']\n",
        64.0,
    ),
    (
        "persistent modules",
        "sockets = 1\ncores = 8\ndimm_slots = 12\nchannels = 6\nbays = 8\nreserve = '512MiB'\ndram = 'ddr4-2666'\n\
         dimms = ['16GiB']\noffer = ['dcpmm100-128g', 'nvme-p4510']\n",
        1024.0,
    ),
];

/// Workloads. A loop is not here: it is the same accesses with every seed.
const WORKLOADS: [(&str, Shape); 4] = [
    ("zipf 0.7", Shape::Zipf { skew: 0.7 }),
    ("scans", Shape::Scans),
    ("zipf 1.0", Shape::Zipf { skew: 1.0 }),
    ("phase shift", Shape::PhaseShift),
];

/// `terrace bench plan`
#[derive(Debug, Args)]
pub struct BenchPlanArgs {
    /// Two workloads in place of four, with fewer accesses
    #[arg(long)]
    pub quick: bool,
    /// Seed of the accesses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run so many pairs of a workload and a server in place of all
    #[arg(long, value_name = "MANY")]
    pub pairs: Option<usize>,
    /// Write the result to a file as JSON, after each pair
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep the pairs that the file has from a run that did not end, and run the others
    #[arg(long, requires = "json")]
    pub resume: bool,
}

/// What a file has of an earlier run.
#[derive(Deserialize)]
struct Kept {
    version: String,
    config: VerifyConfig,
    runs: Vec<VerifyRun>,
}

/// The largest result that is read, bytes.
const RESULT_BYTES_MAX: u64 = 16 << 20;

impl BenchPlanArgs {
    /// Runs it. Exit code 1: a prediction was wrong by more than 3 points, or nothing could be run.
    ///
    /// # Errors
    /// What cannot be planned or run, with the reason; those of writing.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let report = self.bench()?;
        print(&report.to_text())?;
        let missed = missed(&report);
        print(&missed.iter().map(|line| line.clone() + "\n").collect::<String>())?;
        Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// What was promised and is not so, a line each.
fn missed(report: &VerifyReport) -> Vec<String> {
    let is_off = |run: &&VerifyRun| run.error_points.is_some_and(|points| points.abs() > POINTS_MOST);
    let mut lines: Vec<String> = report
        .runs
        .iter()
        .filter(is_off)
        .map(|run| format!("target missed: {}, {}: more than {POINTS_MOST} points: MISSED", run.name, run.mix))
        .collect();
    if report.runs.iter().all(|run| run.refused.is_some()) {
        lines.push("target missed: no mix could be run: MISSED".into());
    }
    lines
}

/// Runs of one pair.
///
/// # Errors
/// What cannot be planned or run; those of writing a temporary file.
fn run_pair(
    (name, shape): (&str, Shape),
    (server_name, server, scale): (&str, &str, f64),
    (accesses, seed): (u64, u64),
) -> Result<Vec<VerifyRun>, PlanError> {
    let source = profile(name, shape, accesses, seed)?;
    let mut held_out = Workload::of(vec![profile(name, shape, accesses, seed + 1)?], Shortness::Take)?;
    held_out.enlarge(scale);
    let planning = Planning::of(request(source, server, scale)?)?;
    let mut report = planning.report(&[])?;
    // Mixes that differ in drives alone have the same page cache.
    let mut known = Vec::new();
    report.mixes.retain(|mix| {
        let shape = (mix.near_bytes, mix.far_bytes, mix.mode.clone());
        let is_new = !known.contains(&shape);
        known.push(shape);
        is_new
    });
    let runs = planning.verify(&report, Some(&held_out))?;
    let pair = pair_name(name, server_name);
    let named = |run: VerifyRun| VerifyRun { name: format!("{name}: {}", run.name), pair: Some(pair.clone()), ..run };
    Ok(runs.into_iter().map(named).collect())
}

fn pair_name(workload: &str, server: &str) -> String {
    format!("{workload}, {server}")
}

impl BenchPlanArgs {
    fn bench(&self) -> anyhow::Result<VerifyReport> {
        let (workloads, accesses) = if self.quick { (&WORKLOADS[..2], 60_000) } else { (&WORKLOADS[..], 400_000) };
        let names = workloads.iter().map(|(name, _)| (*name).to_owned()).collect();
        let config = VerifyConfig { held_out: true, seed: Some(self.seed), accesses: Some(accesses), workloads: names };
        let mut runs = self.kept(&config)?;
        let pairs = workloads.iter().flat_map(|workload| SERVERS.map(|server| (*workload, server)));
        for (workload, server) in pairs.take(self.pairs.unwrap_or(usize::MAX)) {
            let pair = pair_name(workload.0, server.0);
            if runs.iter().any(|run| run.pair.as_deref() == Some(&pair)) {
                continue;
            }
            runs.extend(run_pair(workload, server, (accesses, self.seed)).with_context(|| pair)?);
            if let Some(file) = &self.json {
                let report = VerifyReport::new(config.clone(), runs.clone());
                write_durably(file, (serde_json::to_string_pretty(&report)? + "\n").as_bytes())?;
            }
        }
        Ok(VerifyReport::new(config, runs))
    }

    /// What an earlier run of the same has left.
    fn kept(&self, config: &VerifyConfig) -> anyhow::Result<Vec<VerifyRun>> {
        let Some(file) = self.json.as_ref().filter(|file| self.resume && file.exists()) else { return Ok(Vec::new()) };
        let kept: Kept = serde_json::from_str(&read_text(file, RESULT_BYTES_MAX)?)
            .with_context(|| format!("{} is no result of this bench", file.display()))?;
        ensure!(
            kept.version == env!("CARGO_PKG_VERSION") && kept.config == *config,
            "{} is of another version, seed or size: give the same options, or another file",
            file.display()
        );
        Ok(kept.runs)
    }
}

fn request(source: ProfileSource, server: &str, scale: f64) -> Result<PlanRequest, PlanError> {
    let day = PriceDate::parse("2026-11-27").ok_or_else(|| PlanError::Refused("no date".into()))?;
    Ok(PlanRequest {
        sources: vec![source],
        short: Shortness::Take,
        server: Server::parse(server)?,
        media: media().to_vec(),
        prices: PriceList::new(&[], 36.0, day, false)?,
        target: Target { p99_read_s: Some(1.0), ..Target::default() },
        without: Vec::new(),
        data_bytes: None,
        cpu_s: None,
        sessions: None,
        query: None,
        commits: None,
        scale,
        assumed: Vec::new(),
    })
}

/// A profile of accesses to pages, evenly over its time.
fn profile(name: &str, shape: Shape, accesses: u64, seed: u64) -> Result<ProfileSource, PlanError> {
    let folder = std::env::temp_dir();
    let options = RecorderOptions::new(Salt::of_seed(1), &["page"], PAGE_BYTES.into(), &folder);
    let mut recorder = Recorder::new(options)?;
    for (number, key) in (0..).zip(generate(shape, PAGES, accesses, seed)) {
        let time_us = number * SECONDS * 1_000_000 / accesses;
        recorder.record(Access { time_us, key, bytes: PAGE_BYTES, structure: 0, is_write: false })?;
    }
    let mut bytes = Vec::new();
    recorder.finish(origin("made up"), &[Lack::Flushes, Lack::Journal, Lack::Cpu], &mut bytes)?;
    Ok(ProfileSource::Bytes(name.into(), bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_out_accesses_are_found_where_the_plan_says_and_the_result_has_the_keys_of_the_contract() {
        let args = BenchPlanArgs { quick: true, seed: 1, pairs: None, json: None, resume: false };
        let report = args.bench().expect("runs");
        assert_eq!(missed(&report), Vec::<String>::new(), "{}", report.to_text());
        let wanted = |what: &str| report.runs.iter().any(|run| run.name.contains(what) && run.measured > Some(1.0));
        assert!(wanted("near memory") && wanted("far memory") && wanted("drives"), "{}", report.to_text());
        let json = serde_json::to_value(&report).expect("plain data");
        let keys = |value: &serde_json::Value, keys: &[&str]| {
            keys.iter().all(|key| value.as_object().is_some_and(|object| object.contains_key(*key)))
        };
        assert!(keys(&json, &["bench", "version", "machine", "config", "runs"]) && json["bench"] == "plan", "{json}");
        let of_run = ["name", "mix", "predicted", "measured", "unit", "error_percent", "refused", "durability", "real"];
        let runs = json["runs"].as_array().expect("runs");
        assert!(runs.iter().all(|run| keys(run, &of_run) && run["durability"] == "none" && run["real"] == false));
        let off = VerifyRun { error_points: Some(3.5), ..report.runs[0].clone() };
        let none = VerifyRun { refused: Some("too small".into()), ..VerifyRun::default() };
        for (run, says) in [(off, "more than 3 points"), (none, "no mix could be run")] {
            assert!(missed(&VerifyReport { runs: vec![run], ..report.clone() })[0].contains(says), "{says}");
        }
    }

    #[test]
    fn a_bench_that_was_ended_goes_on_with_the_pairs_that_are_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let json = folder.path().join("plan.json");
        let args = |seed: u64, pairs: usize, resume: bool| BenchPlanArgs {
            quick: true,
            seed,
            pairs: Some(pairs),
            json: Some(json.clone()),
            resume,
        };
        let pairs = |report: &VerifyReport| {
            let mut pairs: Vec<String> = report.runs.iter().filter_map(|run| run.pair.clone()).collect();
            pairs.dedup();
            pairs
        };
        assert_eq!(pairs(&args(1, 1, true).bench().expect("nothing is there yet")), ["zipf 0.7, cards of CXL"]);
        // What is there is taken as it is.
        let text = std::fs::read_to_string(&json).expect("written");
        let marked = text.replacen("\"refused\": null", "\"refused\": \"kept\"", 1);
        std::fs::write(&json, &marked).expect("written");
        let both = args(1, 2, true).bench().expect("goes on");
        assert_eq!(pairs(&both), ["zipf 0.7, cards of CXL", "zipf 0.7, persistent modules"]);
        assert_eq!(both.runs.iter().filter(|run| run.refused.as_deref() == Some("kept")).count(), 1);
        let again = args(1, 2, true).bench().expect("nothing is missing");
        assert_eq!((again.runs.len(), pairs(&again)), (both.runs.len(), pairs(&both)));
        let other = args(2, 2, true).bench().expect_err("another seed").to_string();
        assert!(other.contains("another version, seed or size"), "{other}");
        let anew = args(2, 1, false).bench().expect("begins anew");
        assert_eq!(pairs(&anew).len(), 1);
        std::fs::write(&json, "{").expect("written");
        assert!(args(1, 1, true).bench().is_err_and(|error| error.to_string().contains("no result of this bench")));
    }

    #[test]
    fn the_accesses_that_are_run_are_not_those_of_the_plan() {
        for (name, shape) in WORKLOADS {
            let keys = |seed: u64| generate(shape, PAGES, 2000, seed).collect::<Vec<_>>();
            assert_ne!(keys(1), keys(2), "{name}");
        }
    }
}
