//! The result of persist: every figure as a run of one JSON object, for scripts. The text is beside this (`text`).
//!
//! The JSON keys are a contract (`bench, version, machine, config, runs`, and in a run the keys of the bench): keys may
//! be added, never renamed. A value that was not measured is null, never zero.

use device::pmem::bare::Stores;
use serde::Serialize;

use super::clock::{Latency, less};
use super::commits::{self, Commits, RECORD_BYTES, Ratio};
use super::models::{Achieved, ModelCompared, SERIES_100, SERIES_200, Series, Timed};
use super::published::{self, Comparison, SHOWN, store_key};
use super::{Measured, stores};
use crate::target::{self, Target};
use workload::machine::{FileSystem, Machine};

/// The journal's commit may take so many times what the bare instructions take.
pub(super) const OVER_BARE_MOST: f64 = 2.0;
/// A commit on this disk is to take at least so many times what one on persistent memory takes.
pub(super) const DISK_OVER_LEAST: f64 = 100.0;

/// Everything about one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct PersistReport {
    /// Always `persist`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: PersistConfig,
    /// The figures.
    pub runs: Vec<PersistRun>,
    /// How the journal compares.
    pub journal: JournalRatios,
    /// The targets of the journal.
    pub targets: Vec<Target>,
    /// The published comparison of two platforms, by each reading of it; modelled, accounted.
    pub comparisons: Vec<Comparison>,
    /// Rows in real time that this host is too slow for, and why.
    pub refused: Vec<String>,
}

/// The options of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PersistConfig {
    /// Shorter turns.
    pub quick: bool,
    /// Most threads.
    pub threads: usize,
    /// The file system that holds the mapping.
    pub file_system: FileSystem,
    /// The file system of the journal on the disk.
    pub disk: FileSystem,
    /// Bytes that each thread walks around in.
    pub region_bytes: u64,
    /// The processor's last cache, if the system reports it.
    pub last_cache_bytes: Option<u64>,
    /// The time of two readings of the clock; it is part of every latency except those called `less_clock`.
    pub clock_ns: f64,
    /// The machine's load in the minute before.
    pub load_average: Option<f64>,
    /// The differences from the published experiment.
    pub differs: Vec<String>,
}

/// One figure; the keys down to `published` are the contract's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PersistRun {
    /// Names the run among several.
    pub name: String,
    /// The durability of a flush on its medium: `power-fail-safe`, `emulated` or `none`.
    pub durability: &'static str,
    /// False where the medium is modelled.
    pub real: bool,
    /// `sequential write`, or `append and persist`.
    pub pattern: &'static str,
    /// Threads at once.
    pub threads: usize,
    /// How bytes were stored: `ntstore`, `clwb`, or `none`: left in the caches, or written by the kernel.
    pub store: &'static str,
    /// The platform whose rules the stores follow: `adr` with flushes, `eadr` without; null where a disk is written.
    pub domain: Option<&'static str>,
    /// Bytes of the caller, each second.
    pub bytes_per_s: f64,
    /// Bytes written for each byte of the caller's; null where it cannot be seen.
    pub amplification: Option<f64>,
    /// The published figure.
    pub published: Option<String>,
    /// Bytes of one block or record.
    pub block_bytes: usize,
    /// The medium, in words.
    pub medium: String,
    /// The slowest turn's bytes a second and the fastest one's.
    pub bytes_per_s_range: Option<(f64, f64)>,
    /// Latency of one block, nanoseconds, the clock in it.
    pub latency_ns: Option<Latency>,
    /// Its median without the clock's cost, nanoseconds.
    pub p50_less_clock_ns: Option<f64>,
    /// Processor time for one block, nanoseconds, all threads of the process.
    pub cpu_ns: Option<f64>,
    /// The model's figure, bytes a second.
    pub target_bytes_per_s: Option<f64>,
    /// The model's time of one block, nanoseconds.
    pub target_ns: Option<f64>,
}

impl PersistRun {
    /// The common part of a model's rows.
    fn modelled(series: Series, store: &'static str, block: usize, threads: usize, bytes_per_s: f64) -> PersistRun {
        PersistRun {
            name: format!("{}, {store}, {block} B, {}", series.name, counted(threads)),
            durability: "emulated",
            real: false,
            pattern: "sequential write",
            threads,
            store,
            domain: Some(if store == "none" { "eadr" } else { "adr" }),
            bytes_per_s,
            amplification: None,
            published: None,
            block_bytes: block,
            medium: format!("model of {}", series.name),
            bytes_per_s_range: None,
            latency_ns: None,
            p50_less_clock_ns: None,
            cpu_ns: None,
            target_bytes_per_s: None,
            target_ns: None,
        }
    }
}

/// How the journal's commit compares, by medians.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JournalRatios {
    /// To the bare ntstore + fence of a record's bytes, as measured.
    pub over_bare: Spread,
    /// To the same, the clock's cost taken off both.
    pub over_bare_less_clock: Spread,
    /// To the bare stores of as many bytes as the journal writes, the clock's cost taken off both.
    pub over_same_bytes_less_clock: Spread,
    /// The most that it is to take: times the bare one.
    pub over_bare_target: f64,
    /// The commit on the disk, to the commit on persistent memory.
    pub disk_over: Spread,
    /// The same of the medians of all commits together: a disk that is fast now and slow then commits most while it is fast,
    /// so that this is the lesser of the two.
    pub disk_over_together: f64,
    /// The least that both are to be.
    pub disk_over_target: f64,
    /// Whether the disk forgets everything with the power, so that the comparison means nothing.
    pub disk_is_volatile: bool,
}

/// A ratio over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median round's.
    pub median: f64,
    /// A quarter of the rounds had less.
    pub low: f64,
    /// A quarter had more.
    pub high: f64,
}

impl From<Ratio> for Spread {
    fn from(ratio: Ratio) -> Spread {
        Spread { median: ratio.median, low: ratio.low, high: ratio.high }
    }
}

impl JournalRatios {
    fn of(commits: &Commits, disk_is_volatile: bool) -> JournalRatios {
        JournalRatios {
            over_bare: commits.over_bare.into(),
            over_bare_less_clock: commits.over_bare_less.into(),
            over_same_bytes_less_clock: commits.over_same_less.into(),
            over_bare_target: OVER_BARE_MOST,
            disk_over: commits.disk_over.into(),
            disk_over_together: commits.rows[3].latency.p50 / commits.rows[2].latency.p50.max(1.0),
            disk_over_target: DISK_OVER_LEAST,
            disk_is_volatile,
        }
    }
}

impl JournalRatios {
    /// The targets of the journal; that of the disk only if the folder is on a disk.
    pub fn targets(&self) -> Vec<Target> {
        let (most, least) = (self.over_bare_target, self.disk_over_target);
        let bare = "journal over bare ntstore + fence of 1,024 B";
        let mut targets = vec![
            Target::at_most(bare, self.over_bare.median, most),
            Target::at_most(format!("{bare}, the clock's cost taken off both"), self.over_bare_less_clock.median, most),
        ];
        if !self.disk_is_volatile {
            let what = "journal on the disk with fdatasync over journal on the mapping";
            targets.push(Target::at_least(what, self.disk_over.median.min(self.disk_over_together), least));
        }
        targets
    }
}

impl PersistReport {
    /// A line for each target that is missed.
    pub fn missed(&self) -> Vec<String> {
        target::missed(&self.targets).collect()
    }

    /// Puts the figures together.
    pub(super) fn new(machine: Machine, config: PersistConfig, measured: &Measured) -> PersistReport {
        let Measured { stores, commits, compared, timed } = measured;
        let mut refused = Vec::new();
        let mut runs: Vec<PersistRun> = stores.iter().map(|row| store_run(row, &config)).collect();
        runs.extend(commits.rows.iter().map(|row| commit_run(row, config.clock_ns)));
        runs.extend(compared.iter().flat_map(accounted_runs));
        for row in timed {
            match &row.result {
                Ok(achieved) => runs.push(timed_run(row, achieved, config.clock_ns)),
                Err(why) => {
                    refused.push(format!("{}, {} B, {}: {why}", row.series.name, row.block, counted(row.threads)))
                }
            }
        }
        let journal = JournalRatios::of(commits, config.disk.is_volatile());
        let comparisons = compared.iter().map(Comparison::of).collect();
        let version = env!("CARGO_PKG_VERSION");
        let targets = journal.targets();
        let mut report =
            PersistReport { bench: "persist", version, machine, config, runs, journal, targets, comparisons, refused };
        report.config.differs = report.differences();
        report
    }

    /// The report as one JSON object, ended by a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data with text keys");
        text.push('\n');
        text
    }

    fn differences(&self) -> Vec<String> {
        let mut differs = vec![
            format!(
                "the real rows store to DRAM ({} on {}): what the instructions cost, not what a module takes",
                self.config.file_system.kind, self.config.file_system.source
            ),
            format!("the real rows have {} processors; published: 48 and 56 cores", self.machine.cores),
            "our own loop of stores; published: FIO with PMDK 1.11.1".to_owned(),
        ];
        differs.extend(published::differs());
        if let Some(load) = self.config.load_average.filter(|load| *load > 0.25 * self.machine.cores as f64) {
            differs.push(format!("the machine was not quiet: load average {load:.1} before the run"));
        }
        differs
    }
}

/// The key of a way of storing.
pub(super) fn store_name(how: Stores) -> &'static str {
    match how {
        Stores::PastCache => "ntstore",
        Stores::WrittenBack => "clwb",
        Stores::Plain => "none",
    }
}

fn counted(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

fn store_run(row: &stores::StoresRow, config: &PersistConfig) -> PersistRun {
    let flushed = row.how != Stores::Plain;
    let store = store_name(row.how);
    PersistRun {
        name: format!("mapping, {store}, {} B, {}", row.block, counted(row.threads)),
        durability: "none",
        real: true,
        pattern: "sequential write",
        threads: row.threads,
        store,
        domain: Some(if flushed { "adr" } else { "eadr" }),
        bytes_per_s: row.bytes_per_s,
        amplification: None,
        published: None,
        block_bytes: row.block,
        medium: format!("DRAM, a shared mapping on {}", config.file_system.kind),
        bytes_per_s_range: Some(row.range),
        latency_ns: row.latency,
        p50_less_clock_ns: row.latency.map(|latency| less(latency.p50, config.clock_ns)),
        cpu_ns: None,
        target_bytes_per_s: None,
        target_ns: None,
    }
}

fn commit_run(row: &commits::CommitsRow, clock_ns: f64) -> PersistRun {
    PersistRun {
        name: row.name.clone(),
        durability: row.durability,
        real: true,
        pattern: "append and persist",
        threads: 1,
        store: row.store,
        domain: (row.store == "ntstore").then_some("adr"),
        bytes_per_s: row.per_s * RECORD_BYTES as f64,
        amplification: Some(row.written / RECORD_BYTES as f64),
        published: None,
        block_bytes: RECORD_BYTES,
        medium: row.medium.clone(),
        bytes_per_s_range: None,
        latency_ns: Some(row.latency),
        p50_less_clock_ns: Some(less(row.latency.p50, clock_ns)),
        cpu_ns: Some(row.cpu_ns),
        target_bytes_per_s: None,
        target_ns: None,
    }
}

/// Both platforms of one reading, at the numbers of threads that are shown.
fn accounted_runs(compared: &ModelCompared) -> Vec<PersistRun> {
    let reading = compared.reading;
    let block = usize::try_from(reading.bytes).expect("a block fits in memory");
    let mut runs = Vec::new();
    for threads in SHOWN {
        let point = compared.points[threads as usize - 1];
        for (series, store, gb_per_s) in
            [(SERIES_100, reading.flushed, point.series_100), (SERIES_200, reading.unflushed, point.series_200)]
        {
            let threads = threads as usize;
            let mut run = PersistRun::modelled(series, store_key(store), block, threads, gb_per_s * 1e9);
            run.name += ", accounted";
            // Stores past the cache and lines written back in order fill whole units; lines that the cache evicts do
            // not.
            run.amplification = (run.store != "none").then_some(1.0);
            if run.store == "none" {
                run.published = match threads {
                    ..=2 => Some("up to +50 % over the 100 series flushed".to_owned()),
                    48.. => Some("-24 % to the 100 series flushed, with many threads".to_owned()),
                    _ => None,
                };
            }
            runs.push(run);
        }
    }
    runs
}

fn timed_run(row: &Timed, achieved: &Achieved, clock_ns: f64) -> PersistRun {
    let mut run = PersistRun::modelled(row.series, "ntstore", row.block, row.threads, achieved.gb_per_s * 1e9);
    run.name += ", timed";
    run.amplification = Some(achieved.amplification);
    run.latency_ns = Some(achieved.latency);
    run.target_bytes_per_s = Some(row.target * 1e9);
    run.target_ns = Some(row.target_ns);
    run.p50_less_clock_ns = Some(less(achieved.latency.p50, clock_ns));
    run
}
