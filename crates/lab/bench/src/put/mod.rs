//! Put: durable puts of 1 KiB into the store by 1, 16 and 128 committers, beside the bare journal and the raw medium.
//!
//! ```text
//! round:   raw     one writer: as many KiB at once as there are committers, one flush, again and again       the ceiling
//!          journal append and commit by each committer: records, checksums, group commit
//!          store   a transaction with one put under a random key of 16 bytes: journal, tree, checkpoints beside it
//! ```
//!
//! The three take turns, round after round, so that a slow minute of the disk hits all of them; ratios are taken within a round.
//! Journal and store are opened anew for each number of committers and stay open over its rounds, so the tree grows and write
//! checkpoints run. A put counts when its commit has returned: durable, and visible to the next transaction.
//!
//! Invariants: all three write to the same place; every put is a transaction of its own; the report states the
//! durability of a flush there. No thread reads meanwhile.
//!
//! Other databases beside it: `scripts/bench-put-peers.sh`.

mod engines;
mod report;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use device::{FileOptions, FileShelf, PmemOptions, PmemShelf, Shelf, pmem::Absent};
use indicatif::{ProgressBar, ProgressStyle};

pub use report::{Against, PutConfig, PutReport, PutRun};

use engines::Engine;
use workload::histogram::Histogram;
use workload::interrupt;
use workload::machine::{Machine, load_average};
use workload::process::cpu_ns;
use workload::t4::Folder;

/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 1024;
/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// The maximum number of committers.
const COMMITTERS_MOST: usize = 1024;

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PutOptions {
    /// Turns of 0.3 s, three rounds: some ten seconds in all.
    pub quick: bool,
    /// How many committers; each number by itself. Default: 1, 16, 128.
    pub committers: Vec<usize>,
    /// Length of a turn, in seconds. Default 2, with `quick` 0.3.
    pub seconds: Option<f64>,
    /// Turns of each engine. Default 5, with `quick` 3.
    pub rounds: Option<usize>,
    /// Where the pages go, in a folder that is removed afterwards. Default: the current folder.
    pub dir: Option<PathBuf>,
    /// Where the journal goes, as above. Default: beside the pages.
    pub journal: Option<PathBuf>,
    /// The journal's place is mapped as persistent memory. If the file system cannot do that, it is emulated and
    /// reported as such.
    pub pmem: bool,
}

/// Runs all of it.
///
/// # Errors
/// If a folder cannot be written, has no room, or a store fails; `Interrupted` if the user ended it.
pub fn run(options: &PutOptions) -> anyhow::Result<PutReport> {
    let (machine, load_average) = (Machine::here(), load_average());
    let committers = if options.committers.is_empty() { vec![1, 16, 128] } else { options.committers.clone() };
    let fits = committers.iter().all(|count| (1..=COMMITTERS_MOST).contains(count));
    ensure!(fits, "--committers takes numbers from 1 to {COMMITTERS_MOST}");
    let seconds = options.seconds.unwrap_or(if options.quick { 0.3 } else { 2.0 });
    ensure!(seconds > 0.0 && seconds <= 3600.0, "--seconds takes more than 0 and at most 3,600");
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 5 }).max(1);
    let pages = Folder::scratch(options.dir.as_deref(), "put")?;
    let beside = Folder::scratch(options.journal.as_deref().or(options.dir.as_deref()), "put-journal")?;
    let journal = Place::open(beside.path(), options.pmem)?;

    let bar = ProgressBar::new((committers.len() * rounds * Engine::ALL.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos} of {len} turns, {elapsed}, {msg}")?);
    let mut measured = Vec::new();
    for &count in &committers {
        let mut engines = engines::open(&journal, pages.path(), count)?;
        let mut turns: Vec<Vec<Turn>> = engines.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (engine, turns) in engines.iter_mut().zip(&mut turns) {
                bar.set_message(format!("{count} committers, {}", engine.name()));
                turns.push(engine.turn(count, Duration::from_secs_f64(seconds))?);
                bar.inc(1);
            }
        }
        for (engine, turns) in engines.into_iter().zip(turns) {
            measured.push((count, engine.name(), turns));
            engine.close()?;
        }
    }
    bar.finish_and_clear();
    let config = PutConfig {
        seconds_per_turn: seconds,
        rounds,
        value_bytes: VALUE_BYTES,
        key_bytes: KEY_BYTES,
        journal: journal.medium,
        load_average,
    };
    Ok(PutReport::new(machine, config, journal.durability, &measured))
}

/// Where the journal lies.
pub(crate) struct Place {
    folder: PathBuf,
    pmem: bool,
    /// In the device's words.
    medium: String,
    durability: &'static str,
}

impl Place {
    fn open(folder: &Path, pmem: bool) -> anyhow::Result<Place> {
        let probe = folder.join("probe");
        std::fs::create_dir_all(&probe).with_context(|| format!("making {}", probe.display()))?;
        let (medium, durability) = if pmem {
            let shelf = PmemShelf::open(&probe, PmemOptions { absent: Absent::Emulate })?;
            let mapping = shelf.mapping();
            (mapping.to_string(), mapping.durability.as_str())
        } else {
            let shelf = FileShelf::open(&probe, FileOptions::default())?;
            (shelf.kind().to_string(), shelf.kind().durability.as_str())
        };
        Ok(Place { folder: folder.to_owned(), pmem, medium, durability })
    }

    /// An empty shelf there.
    fn shelf(&self, name: &str) -> anyhow::Result<Arc<dyn Shelf>> {
        let folder = fresh(&self.folder.join(name))?;
        Ok(match self.pmem {
            true => Arc::new(PmemShelf::open(&folder, PmemOptions { absent: Absent::Emulate })?),
            false => Arc::new(FileShelf::open(&folder, FileOptions::default())?),
        })
    }
}

/// An empty folder.
fn fresh(folder: &Path) -> anyhow::Result<PathBuf> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("clearing {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder.to_owned())
}

/// One engine's turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    puts: u64,
    seconds: f64,
    cpu_ns: f64,
    /// Nanoseconds from the call to its return.
    latency: Histogram,
}

/// Calls `put` on so many threads for so long, each with random numbers of its own; a call is so many puts.
fn drive(
    threads: usize,
    time: Duration,
    puts_of_call: u64,
    put: &(dyn Fn(&mut fastrand::Rng) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<Turn> {
    interrupt::check()?;
    let stop = AtomicBool::new(false);
    let gathered = Mutex::new((Histogram::default(), Ok(())));
    let (cpu, begun) = (cpu_ns(), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (stop, gathered) = (&stop, &gathered);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let (mut mine, mut result) = (Histogram::default(), Ok(()));
                while !stop.load(Ordering::Relaxed) && result.is_ok() {
                    let before = Instant::now();
                    result = put(&mut random);
                    mine.record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
                let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
                gathered.0.add(&mine);
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                    gathered.1 = result;
                }
            });
        }
        while begun.elapsed() < time && !stop.load(Ordering::Relaxed) && !interrupt::is_asked() {
            std::thread::sleep(Duration::from_millis(20).min(time.saturating_sub(begun.elapsed())));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (latency, result) = gathered.into_inner().unwrap_or_else(PoisonError::into_inner);
    result?;
    interrupt::check()?;
    let (seconds, cpu_ns) = (begun.elapsed().as_secs_f64(), cpu_ns() - cpu);
    Ok(Turn { puts: latency.count() * puts_of_call, seconds, cpu_ns, latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_each_engine_by_each_number_of_committers_and_leaves_nothing_behind() {
        for pmem in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let options = PutOptions {
                committers: vec![1, 3],
                seconds: Some(0.01),
                rounds: Some(2),
                dir: Some(folder.path().to_owned()),
                pmem,
                ..PutOptions::default()
            };
            let report = run(&options).expect("it runs");
            let names: Vec<_> = report.runs.iter().map(|run| (run.name, run.committers)).collect();
            let of = |count| [("raw", count), ("journal", count), ("store", count)];
            assert_eq!(names, [of(1), of(3)].concat());
            for run in &report.runs {
                assert!(run.puts_per_s > 0.0 && run.p50_us <= run.p99_us && run.p99_us <= run.p999_us, "{run:?}");
            }
            assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0, "something is left");
            let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("our own JSON");
            assert_eq!(json["runs"].as_array().map(Vec::len), Some(6));
            assert!(report.to_text().contains("committers"));
        }
    }

    #[test]
    fn a_put_that_fails_ends_the_turn_with_its_error() {
        let error = drive(2, Duration::from_secs(60), 1, &|_| anyhow::bail!("the disk is gone")).expect_err("it fails");
        assert_eq!(error.to_string(), "the disk is gone");
    }
}
