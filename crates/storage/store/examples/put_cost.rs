//! Durable puts per second of the store and of the journal alone, in the same run.
//!
//! ```text
//! cargo run --release -p store --example put_cost [-- [--puts] [DIR [SECONDS_PER_TURN [THREADS...]]]]
//! ```
//!
//! Each thread puts 1 KiB under a random key of 16 bytes, in a transaction, and waits until it is durable and visible.
//! *journal* appends the same bytes and commits. The two take turns, so that a slow minute of the disk affects both.
//! The CPU time is that of the whole process. With `--puts` the program ends after one turn each: scripts use it to
//! alternate with other databases. The last lines measure service records of ten rows each, appended and committed by
//! four threads, and the cost of applying them; then rows loaded by one transaction, which spills, and read again.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use device::Shelf;
use device::file::{FileOptions, FileShelf};
use journal::Journal;
use store::{Changes, Direction, Foreign, Interpreter, Options, Places, Store, StoreError, TreeId};

type Error = Box<dyn std::error::Error>;

const VALUE_BYTES: usize = 1024;
const ROUNDS: usize = 3;
/// The cache for puts, as large as that of PostgreSQL in `scripts/bench-put-peers.sh`.
const CACHE_BYTES: u64 = 1 << 30;
/// The rows of one record.
const ROWS: u64 = 10;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).peekable();
    let puts_only = arguments.next_if(|first| first == "--puts").is_some();
    let rounds = if puts_only { 1 } else { ROUNDS };
    let directory = arguments.next().unwrap_or_else(|| "put-cost-data".into());
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let mut threads = arguments.map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    if threads.is_empty() {
        threads = vec![1, 16, 128];
    }
    let root = Path::new(&directory);
    println!("{:>8} {:>8} {:>10} {:>8} {:>8} {:>10}", "", "threads", "puts/s", "p50 us", "p99 us", "us CPU/put");
    for threads in threads {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let journal = run_journal(root, threads, seconds)?;
            let store = run_store(root, threads, seconds)?;
            journal.print("journal", threads);
            store.print("store", threads);
            ratios.push(store.rate() / journal.rate());
        }
        ratios.sort_by(f64::total_cmp);
        println!("{:>8} {threads:>8} {:>10.2} store / journal, median of {rounds}", "ratio", ratios[rounds / 2]);
    }
    if !puts_only {
        run_records(root, seconds)?;
        run_bulk(root)?;
    }
    std::fs::remove_dir_all(root)?;
    Ok(())
}

struct PageRun {
    seconds: f64,
    cpu: f64,
    latencies_us: Vec<u32>,
}

impl PageRun {
    fn rate(&self) -> f64 {
        self.latencies_us.len() as f64 / self.seconds
    }

    fn print(&self, name: &str, threads: usize) {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        let cpu = self.cpu * 1e6 / sorted.len() as f64;
        println!("{name:>8} {threads:>8} {:>10.0} {:>8} {:>8} {cpu:>10.1}", self.rate(), at(0.5), at(0.99));
    }
}

fn shelf(root: &Path, name: &str) -> Result<Arc<dyn Shelf>, Error> {
    let path = root.join(name);
    std::fs::create_dir_all(&path)?;
    Ok(Arc::new(FileShelf::open(&path, FileOptions::default())?))
}

/// Runs `put` with a random number on the given number of threads for the given time.
fn drive(threads: usize, seconds: f64, put: &(dyn Fn(u128) + Sync)) -> PageRun {
    let stop = AtomicBool::new(false);
    let all = Mutex::new(Vec::new());
    let (cpu, start) = (cpu_seconds(), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (stop, all) = (&stop, &all);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let mut mine = Vec::with_capacity(1 << 16);
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    put(random.u128(..));
                    mine.push(began.elapsed().as_micros() as u32);
                }
                all.lock().expect("no thread panicked").extend(mine);
            });
        }
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    let latencies_us = all.into_inner().expect("no thread panicked");
    PageRun { seconds: start.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu, latencies_us }
}

fn run_journal(root: &Path, threads: usize, seconds: f64) -> Result<PageRun, Error> {
    let _ = std::fs::remove_dir_all(root.join("bare"));
    let (journal, _) = Journal::open(shelf(root, "bare")?, journal::Options::default())?;
    let value = vec![7; VALUE_BYTES];
    let run = drive(threads, seconds, &|number| {
        let lsn = journal.append(1, &[&number.to_le_bytes(), &value]).expect("appends");
        journal.commit(lsn).expect("commits");
    });
    journal.close()?;
    Ok(run)
}

fn open(root: &Path, options: Options) -> Result<Store, Error> {
    let _ = std::fs::remove_dir_all(root.join("store"));
    let places = Places {
        journal: shelf(root, "store/journal")?,
        images: shelf(root, "store/images")?,
        data: shelf(root, "store/data")?,
    };
    Ok(Store::open(places, options)?.0)
}

fn run_store(root: &Path, threads: usize, seconds: f64) -> Result<PageRun, Error> {
    let store = open(root, Options { cache_bytes: CACHE_BYTES, ..Options::default() })?;
    let mut transaction = store.begin();
    let tree = transaction.create_tree("puts")?;
    transaction.commit()?;
    let value = vec![7; VALUE_BYTES];
    let run = drive(threads, seconds, &|number| {
        let key = number.to_be_bytes();
        loop {
            let mut transaction = store.begin();
            transaction.put(tree, &key, &value).expect("fits");
            match transaction.commit() {
                Ok(_) => return,
                Err(StoreError::Conflict) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let checkpoints = store.metrics().checkpoints;
    let (images, data) = (checkpoints.image_bytes >> 20, checkpoints.data_bytes >> 20);
    println!(
        "{:>8} {threads:>8} {} checkpoints, {images} MiB of images, {data} MiB in place",
        "", checkpoints.checkpoints
    );
    store.close()?;
    Ok(run)
}

/// A record becomes ten rows, as a message with its index entries would.
struct Rows;

impl Interpreter for Rows {
    fn trees(&self) -> Vec<String> {
        (0..ROWS).map(|tree| format!("rows{tree}")).collect()
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let number: [u8; 8] = record.payload[..8].try_into().map_err(|_| StoreError::Corrupt("short".into()))?;
        changes.put(trees[0], record.lsn.0.to_be_bytes().to_vec(), record.payload.to_vec());
        for tree in &trees[1..] {
            changes.put(*tree, [&number[..], &record.lsn.0.to_be_bytes()].concat(), &b""[..]);
        }
        Ok(())
    }
}

fn run_records(root: &Path, seconds: f64) -> Result<(), Error> {
    let store = open(root, Options { interpreter: Some(Arc::new(Rows)), ..Options::default() })?;
    let record = vec![7; 1500];
    let last = AtomicU64::new(0);
    let run = drive(4, seconds, &|number| {
        let lsn = store.append(1, [&(number as u64).to_le_bytes()[..], &record].concat()).expect("appends");
        store.commit(lsn).expect("commits");
        last.fetch_max(lsn.0, Ordering::Relaxed);
    });
    run.print("records", 4);
    let began = Instant::now();
    store.wait_visible(journal::Lsn(last.into_inner()))?;
    println!("{:>8} the last one was visible {} us later", "", began.elapsed().as_micros());
    let metrics = store.metrics();
    println!("{:>8} {} records, {} rows applied", "", metrics.records_applied, metrics.changes_applied);
    store.close()?;
    apply_alone(root)
}

/// The same records, applied by one thread without other load, as opening does after a crash.
fn apply_alone(root: &Path) -> Result<(), Error> {
    let options = Options { interpreter: Some(Arc::new(Rows)), background: false, ..Options::default() };
    let store = open(root, options)?;
    let record = vec![7; 1500];
    let mut random = fastrand::Rng::with_seed(1);
    let count = 50_000_u64;
    let mut cpu = 0.0;
    for _ in 0..count / 500 {
        let mut lsn = journal::Lsn::ZERO;
        for _ in 0..500 {
            lsn = store.append(1, [&random.u64(..).to_le_bytes()[..], &record].concat())?;
        }
        store.journal().commit(lsn)?;
        let before = cpu_seconds_of_thread();
        store.wait_visible(lsn)?;
        cpu += cpu_seconds_of_thread() - before;
    }
    println!("{:>8} applying alone: {:.1} us CPU a record of {ROWS} rows", "", cpu * 1e6 / count as f64);
    store.close()?;
    Ok(())
}

/// Rows that one transaction loads, and that are read again.
fn run_bulk(root: &Path) -> Result<(), Error> {
    const LOADED: u64 = 1_000_000;
    let store = open(root, Options::default())?;
    let mut transaction = store.begin();
    let tree = transaction.create_tree("loaded")?;
    transaction.commit()?;
    let began = Instant::now();
    let mut transaction = store.begin();
    for number in 0..LOADED {
        transaction.put(tree, &number.to_be_bytes(), &[number as u8; 100])?;
    }
    let gathered = began.elapsed().as_secs_f64();
    transaction.commit()?;
    let all = began.elapsed().as_secs_f64();
    println!(
        "{:>8} {LOADED} rows of 100 bytes in one transaction: {all:.1} s, {gathered:.1} s of it before commit",
        ""
    );
    let snapshot = store.snapshot();
    let (began, mut rows) = (Instant::now(), 0_u64);
    let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while cursor.next()?.is_some() {
        rows += 1;
    }
    println!("{:>8} scanned at {:.1} million rows/s", "", rows as f64 / began.elapsed().as_secs_f64() / 1e6);
    let (began, mut random) = (Instant::now(), fastrand::Rng::with_seed(1));
    for _ in 0..200_000 {
        snapshot.get(tree, &random.u64(..LOADED).to_be_bytes())?.ok_or("a row is missing")?;
    }
    println!("{:>8} {:.2} us a random get", "", began.elapsed().as_secs_f64() * 1e6 / 200_000.0);
    drop((cursor, snapshot));
    store.close()?;
    Ok(())
}

/// User and system time of this process so far. Linux counts it in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// CPU time of this thread so far, in seconds. Linux counts it in nanoseconds.
fn cpu_seconds_of_thread() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}
