//! Persist: the cost of making bytes persistent, with flushed stores and without, by threads; on this machine's memory,
//! on models of persistent memory, and through the journal.
//!
//! ```text
//! stores     a real mapping of DRAM: ntstore + fence, store + clwb + fence, plain stores; threads 1..N        real
//! models     100 series flushed (ADR) against 200 series not flushed (eADR), 1 to 56 threads               modelled
//! commits    1 KiB by one committer: bare instructions, the journal on a mapping, the journal on a disk       real
//! ```
//!
//! The published experiment (FIO, sequential writes) found the second platform up to 50 % ahead with few threads and 24
//! % behind with many, because caches evict lines in an order that breaks the medium's access unit. Our figures are
//! printed beside it, with the differences.
//!
//! Invariants: a mapping of DRAM is reported as such, with durability `none`, whatever instructions are used; modelled
//! figures are marked as such; compared figures were taken in turns in one run; the clock's own cost is stated.
//!
//! Not measured: reads, random writes, a real module (none is at hand; with one mounted for DAX, `--dir` measures it).

mod clock;
mod commits;
mod models;
mod published;
mod report;
mod stores;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

pub use clock::Latency;
pub(crate) use commits::Ratio;
pub use published::Comparison;
pub use report::{JournalRatios, PersistConfig, PersistReport, PersistRun, Spread};

use workload::machine::{FileSystem, Machine};
use workload::t4::Folder;

/// Least bytes of a thread's region.
const REGION_BYTES: u64 = 128 << 20;
/// Where memory is a file system, on most Linux machines.
const SHARED_MEMORY: &str = "/dev/shm";
/// Most threads that are asked for.
const MOST_THREADS: usize = 1024;

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistOptions {
    /// Shorter turns, fewer of them: less than 10 seconds in all.
    pub quick: bool,
    /// Folder of the mapping; nothing in it is touched but a new folder, removed afterwards. Default: `/dev/shm` where there
    /// is one, else that for temporary files.
    pub dir: Option<PathBuf>,
    /// Folder on the disk that the journal is compared on; as above. Default: the current one, or if that is in memory, that
    /// for temporary files.
    pub data: Option<PathBuf>,
    /// Most threads, 1 to 1,024. Default: as many as processors.
    pub threads: Option<usize>,
}

/// Runs all of it.
///
/// # Errors
/// If a folder cannot be written, has no room, or a journal fails; `Interrupted` if the user ended it.
pub fn run(options: &PersistOptions) -> anyhow::Result<PersistReport> {
    let sizes = if options.quick { Sizes::quick() } else { Sizes::full() };
    run_with(options, &sizes)
}

/// How long everything takes.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    store_rounds: usize,
    store_turn: Duration,
    commit_rounds: usize,
    commit_turn: Duration,
    segment: u64,
    /// None: by the size of the last cache.
    region: Option<u64>,
}

impl Sizes {
    fn full() -> Sizes {
        Sizes {
            store_rounds: 7,
            store_turn: Duration::from_millis(100),
            commit_rounds: 15,
            commit_turn: Duration::from_millis(200),
            segment: 64 << 20,
            region: None,
        }
    }

    /// A quarter of a second of stores for each round, and as much for the commits.
    fn quick() -> Sizes {
        Sizes {
            store_rounds: 3,
            store_turn: Duration::from_millis(12),
            commit_rounds: 7,
            commit_turn: Duration::from_millis(40),
            ..Sizes::full()
        }
    }
}

fn run_with(options: &PersistOptions, sizes: &Sizes) -> anyhow::Result<PersistReport> {
    let machine = Machine::here();
    let load_average = workload::machine::load_average();
    let threads = options.threads.unwrap_or(machine.cores);
    if !(1..=MOST_THREADS).contains(&threads) {
        bail!("--threads takes 1 to {MOST_THREADS}");
    }
    let memory = memory_folder(options.dir.as_deref())?;
    let disk = Folder::scratch(options.data.as_deref(), "persist-disk")?;
    let last_cache = last_cache_bytes(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    let region = sizes.region.unwrap_or_else(|| region_bytes(last_cache));
    require_room(memory.path(), region * threads as u64 + 8 * sizes.segment + threads as u64 * (4 << 20))?;

    let clock_ns = clock::cost_ns();
    let plan = stores::StoresPlan {
        threads: thread_counts(threads),
        region: usize::try_from(region).context("a region larger than memory")?,
        rounds: sizes.store_rounds,
        turn: sizes.store_turn,
    };
    let file = memory.path().join("stores");
    let stores = stores::measure(&file, &plan)?;
    let commits = commits::measure(
        &commits::CommitsPlan {
            memory: memory.path(),
            disk: disk.path(),
            rounds: sizes.commit_rounds,
            turn: sizes.commit_turn,
            segment: sizes.segment,
        },
        clock_ns,
    )?;
    let compared = models::compare()?;
    let timed = models::in_real_time(&memory.path().join("timed"), &plan.threads, sizes.store_turn, clock_ns)?;
    let config = PersistConfig {
        quick: options.quick,
        threads,
        file_system: FileSystem::of(memory.path()),
        disk: FileSystem::of(disk.path()),
        region_bytes: region,
        last_cache_bytes: last_cache,
        clock_ns,
        load_average,
        differs: Vec::new(),
    };
    Ok(PersistReport::new(machine, config, &Measured { stores, commits, compared, timed }))
}

/// Everything that was measured.
struct Measured {
    stores: Vec<stores::StoresRow>,
    commits: commits::Commits,
    compared: Vec<models::ModelCompared>,
    timed: Vec<models::Timed>,
}

/// The requested folder, or the one where memory is a file system.
fn memory_folder(asked: Option<&Path>) -> anyhow::Result<Folder> {
    let shared = Path::new(SHARED_MEMORY);
    let parent = match asked {
        Some(folder) => folder.to_owned(),
        None if shared.is_dir() => shared.to_owned(),
        None => std::env::temp_dir(),
    };
    Folder::scratch(Some(&parent), "persist")
}

/// 1, 2, 3, 4, then doubling, and `most`.
fn thread_counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (1..=4.min(most)).collect();
    let mut next = 8;
    while next < most {
        counts.push(next);
        next *= 2;
    }
    if counts.last() != Some(&most) {
        counts.push(most);
    }
    counts
}

/// A region that no cache holds: twice the last one, so that plain stores are evicted as they would be for ever.
fn region_bytes(last_cache: Option<u64>) -> u64 {
    (2 * last_cache.unwrap_or(0)).max(REGION_BYTES).next_multiple_of(4096)
}

/// Size of the largest cache of the first processor, from sysfs (`cache/index*/size`, as `32768K`).
fn last_cache_bytes(folder: &Path) -> Option<u64> {
    let sizes = fs::read_dir(folder).ok()?.filter_map(|entry| {
        let text = fs::read_to_string(entry.ok()?.path().join("size")).ok()?;
        let text = text.trim();
        let (digits, factor) = match text.strip_suffix('K') {
            Some(digits) => (digits, 1 << 10),
            None => (text.strip_suffix('M').unwrap_or(text), if text.ends_with('M') { 1 << 20 } else { 1 }),
        };
        Some(digits.parse::<u64>().ok()? * factor)
    });
    sizes.max()
}

fn require_room(folder: &Path, bytes: u64) -> anyhow::Result<()> {
    let free = device::free_bytes(folder)?;
    if free < bytes {
        bail!(
            "{} has {} MiB free and this takes {}: give --dir another folder, or fewer --threads",
            folder.display(),
            free >> 20,
            bytes >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_rise_from_one_to_the_most() {
        for (most, counts) in [
            (1, vec![1]),
            (2, vec![1, 2]),
            (4, vec![1, 2, 3, 4]),
            (6, vec![1, 2, 3, 4, 6]),
            (16, vec![1, 2, 3, 4, 8, 16]),
            (48, vec![1, 2, 3, 4, 8, 16, 32, 48]),
        ] {
            assert_eq!(thread_counts(most), counts);
        }
    }

    #[test]
    fn a_region_is_twice_the_last_cache_and_never_small() {
        let folder = tempfile::tempdir().expect("a folder");
        for (index, size) in [("index0", "48K\n"), ("index3", "260096K\n"), ("power", "")] {
            fs::create_dir(folder.path().join(index)).expect("a folder");
            fs::write(folder.path().join(index).join("size"), size).expect("a file");
        }
        assert_eq!(last_cache_bytes(folder.path()), Some(260_096 << 10));
        assert_eq!(region_bytes(Some(260_096 << 10)), 2 * (260_096 << 10));
        assert_eq!(region_bytes(None), REGION_BYTES);
    }

    #[test]
    fn a_small_run_from_end_to_end_gives_every_key_of_the_contract_and_leaves_nothing_behind() {
        let (memory, disk) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let options = PersistOptions {
            quick: true,
            dir: Some(memory.path().to_owned()),
            data: Some(disk.path().to_owned()),
            threads: Some(2),
        };
        let short = Duration::from_micros(500);
        let sizes = Sizes {
            store_rounds: 1,
            store_turn: short,
            commit_rounds: 1,
            commit_turn: short,
            segment: 1 << 20,
            region: Some(1 << 16),
        };
        let report = run_with(&options, &sizes).expect("it runs");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("our own JSON");
        let runs = json["runs"].as_array().expect("runs");
        for run in runs {
            for key in ["name", "durability", "pattern", "store"] {
                assert!(run[key].is_string(), "{key} of {run}");
            }
            assert!(run["real"].is_boolean() && run["threads"].is_u64() && run["bytes_per_s"].is_f64(), "{run}");
            for key in ["domain", "amplification", "published"] {
                assert!(run.get(key).is_some(), "{key} of {run}");
            }
        }
        let stores = runs.iter().filter(|run| run["pattern"] == "sequential write" && run["real"] == true).count();
        assert_eq!(stores, 3 * 3 * 2);
        for folder in [memory.path(), disk.path()] {
            assert_eq!(fs::read_dir(folder).expect("it is there").count(), 0, "something is left");
        }
        assert!(report.to_text().contains("journal, persistent memory"));
    }
}
