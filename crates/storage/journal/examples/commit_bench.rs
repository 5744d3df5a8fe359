//! Commits per second of the journal, compared with the simplest loop that makes the same bytes durable on the same
//! disk.
//!
//! ```text
//! cargo run --release -p journal --example commit_bench [-- DIR [SECONDS_PER_TURN [COMMITTERS...]]]
//! ```
//!
//! Each committer appends 1 KiB and waits until it is durable, again and again. *bare* is a preallocated file, one
//! mutex, two buffers, `pwrite` and `fdatasync`: group commit without records, checksums, recovery or segments. It is
//! an upper limit for every journal of this design. The two take turns (bare, journal, bare, journal), so that a slow
//! minute of the disk affects both. The CPU time is that of the whole process, with the committers.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use device::file::{FileOptions, FileShelf};
use journal::{Journal, Options};

const RECORD_BYTES: usize = 1024;
/// Many short turns: on a machine with other load, the median of the ratios becomes stable long before the rates do.
const ROUNDS: usize = 9;
const BARE_BYTES: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(|| PathBuf::from("commit-bench-data"), PathBuf::from);
    let seconds: f64 = arguments.next().map_or(Ok(0.7), |text| text.parse())?;
    let mut committers = arguments.map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    if committers.is_empty() {
        committers = vec![1, 16, 128];
    }
    std::fs::create_dir_all(&directory)?;
    println!(
        "{:>9} {:>8} {:>11} {:>8} {:>8} {:>9} {:>10} {:>10}",
        "", "threads", "commits/s", "p50 us", "p99 us", "p999 us", "us CPU/c.", "per flush"
    );
    for threads in committers {
        let mut totals = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            totals[0].push(run_bare(&directory, threads, seconds)?);
            totals[1].push(run_journal(&directory, threads, seconds)?);
        }
        let [bare, ours] = &totals;
        let mut ratios: Vec<f64> =
            ours.iter().zip(bare).map(|(ours, bare)| ours.per_second() / bare.per_second()).collect();
        ratios.sort_by(f64::total_cmp);
        for (name, runs) in ["bare", "journal"].iter().zip(&mut totals) {
            print(name, threads, runs);
        }
        let (low, middle, high) = (ratios[ROUNDS / 4], ratios[ROUNDS / 2], ratios[ROUNDS - 1 - ROUNDS / 4]);
        println!(
            "{:>9} {threads:>8} {middle:>11.2} journal / bare: median of {ROUNDS} turns, quartiles {low:.2} {high:.2}",
            "ratio"
        );
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// One run of one engine.
struct Run {
    seconds: f64,
    cpu_seconds: f64,
    latencies_us: Vec<u32>,
    flushes: u64,
}

impl Run {
    fn per_second(&self) -> f64 {
        self.latencies_us.len() as f64 / self.seconds
    }
}

/// All rounds of one engine on one line: the rate of the median round, and the latencies of all rounds together.
fn print(name: &str, threads: usize, runs: &mut [Run]) {
    runs.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    let rate = runs[runs.len() / 2].per_second();
    let mut latencies: Vec<u32> = runs.iter().flat_map(|run| run.latencies_us.iter().copied()).collect();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let cpu: f64 = runs.iter().map(|run| run.cpu_seconds).sum::<f64>() * 1e6 / latencies.len() as f64;
    let flushes: u64 = runs.iter().map(|run| run.flushes).sum();
    let per_flush = latencies.len() as f64 / flushes.max(1) as f64;
    println!(
        "{name:>9} {threads:>8} {rate:>11.0} {:>8} {:>8} {:>9} {cpu:>10.1} {per_flush:>10.1}",
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

/// Runs `commit` on the given number of threads for the given time.
fn drive(threads: usize, seconds: f64, commit: &(dyn Fn(&[u8]) + Sync)) -> (f64, f64, Vec<u32>) {
    let stop = AtomicBool::new(false);
    let all = Mutex::new(Vec::new());
    let (cpu, start) = (cpu_seconds(), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, all) = (&stop, &all);
            scope.spawn(move || {
                let record = vec![thread as u8; RECORD_BYTES];
                let mut mine = Vec::with_capacity(1 << 16);
                while !stop.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    commit(&record);
                    mine.push(started.elapsed().as_micros() as u32);
                }
                all.lock().expect("no committer panicked").extend(mine);
            });
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    (start.elapsed().as_secs_f64(), cpu_seconds() - cpu, all.into_inner().expect("no committer panicked"))
}

/// User and system time of this process so far. Linux counts it in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let after_name = stat.rsplit(')').next().expect("the name is in parentheses");
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn run_journal(directory: &Path, threads: usize, seconds: f64) -> Result<Run, Box<dyn std::error::Error>> {
    let directory = directory.join("journal");
    let shelf = Arc::new(FileShelf::open(&directory, FileOptions::default())?);
    let (journal, _) = Journal::open(shelf, Options::default())?;
    let commit = |record: &[u8]| {
        let lsn = journal.append(1, &[record]).expect("the disk has space");
        journal.commit(lsn).expect("the disk works");
        // The log is truncated, as in a real application: it does not grow without end.
        if lsn.0 % (16 << 20) < RECORD_BYTES as u64 {
            journal.truncate(lsn).expect("the disk works");
        }
    };
    let (seconds, cpu_seconds, latencies_us) = drive(threads, seconds, &commit);
    Ok(Run { seconds, cpu_seconds, latencies_us, flushes: journal.stats().batches })
}

/// The upper limit.
struct Bare {
    file: File,
    state: Mutex<BareState>,
    written: Condvar,
}

#[derive(Default)]
struct BareState {
    filling: Vec<u8>,
    spare: Vec<u8>,
    /// The batches that were taken, and those that are durable.
    taken: u64,
    durable: u64,
    offset: u64,
    flushing: bool,
}

impl Bare {
    fn commit(&self, record: &[u8]) {
        let mut state = self.state.lock().expect("no committer panicked");
        state.filling.extend_from_slice(record);
        let mine = state.taken + 1;
        while state.durable < mine {
            if state.flushing {
                state = self.written.wait(state).expect("no committer panicked");
                continue;
            }
            state.flushing = true;
            state.taken += 1;
            let batch = state.taken;
            let spare = std::mem::take(&mut state.spare);
            let mut buffer = std::mem::replace(&mut state.filling, spare);
            let offset = state.offset;
            state.offset = (offset + buffer.len() as u64) % (BARE_BYTES - (1 << 20));
            drop(state);
            self.file.write_all_at(&buffer, offset).expect("the disk works");
            self.file.sync_data().expect("the disk works");
            buffer.clear();
            state = self.state.lock().expect("no committer panicked");
            state.spare = buffer;
            state.durable = batch;
            state.flushing = false;
            self.written.notify_all();
        }
    }
}

fn run_bare(directory: &Path, threads: usize, seconds: f64) -> Result<Run, Box<dyn std::error::Error>> {
    let path = directory.join("bare");
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
    if file.metadata()?.len() != BARE_BYTES {
        let zeros = vec![0u8; 1 << 20];
        for at in 0..BARE_BYTES >> 20 {
            file.write_all_at(&zeros, at << 20)?;
        }
        file.sync_all()?;
    }
    let bare = Bare { file, state: Mutex::default(), written: Condvar::new() };
    let (seconds, cpu_seconds, latencies_us) = drive(threads, seconds, &|record| bare.commit(record));
    let flushes = bare.state.lock().expect("no committer panicked").taken;
    Ok(Run { seconds, cpu_seconds, latencies_us, flushes })
}
