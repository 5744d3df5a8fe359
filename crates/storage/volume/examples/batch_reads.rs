//! What reads that are submitted together cost on files: on one file, and on a volume of three copies:
//!
//! ```text
//!   cargo run --release -p volume --example batch_reads -- FOLDER [--mib N] [--depth N] [--seconds S] [--rounds R]
//! ```
//!
//! Each round measures, one after the other, reads of 4 KiB at random with `depth` of them in progress: on a file, through the ring of its
//! shelf and by 4 and 16 threads of plain calls; on a volume whose copies are files with a ring, and without, where the volume's own
//! threads read. One thread submits, and sends a new request for each that is complete. Processor time is that of the process, with the
//! threads that the kernel has for it. `FOLDER` is made, and not removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, FileOptions, FileShelf, IoRequest, IoSink, Shelf};
use parking_lot::{Condvar, Mutex};
use volume::{NewVolume, Options, Place, Volume};

/// What is measured on one subject.
struct Part {
    name: String,
    device: Arc<dyn Device>,
    /// Threads with plain calls instead of a thread that submits; 0 for none.
    threads: u64,
    reads: u64,
    processor: Duration,
    elapsed: Duration,
    rates: Vec<f64>,
}

/// Requests that came back.
#[derive(Default)]
struct Returned {
    requests: Mutex<Vec<IoRequest>>,
    arrived: Condvar,
}

impl IoSink for Returned {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        result.expect("reads");
        self.requests.lock().push(request);
        self.arrived.notify_one();
    }
}

struct Setup {
    folder: PathBuf,
    mib: u64,
    depth: u64,
    time: Duration,
    rounds: u64,
}

impl Part {
    fn new(name: &str, device: Arc<dyn Device>, threads: u64) -> Part {
        let (processor, elapsed) = (Duration::ZERO, Duration::ZERO);
        Part { name: name.to_owned(), device, threads, reads: 0, processor, elapsed, rates: Vec::new() }
    }

    fn run(&mut self, setup: &Setup, seed: u64) {
        let (began, processor) = (Instant::now(), processor_time());
        let reads = match self.threads {
            0 => submit_reads(&*self.device, setup, seed),
            threads => call_reads(&*self.device, setup.time, threads, seed),
        };
        self.elapsed += began.elapsed();
        self.processor += processor_time() - processor;
        self.reads += reads;
        self.rates.push(reads as f64 / began.elapsed().as_secs_f64());
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reads = self.reads as f64;
        let (rate, cost) = (reads / self.elapsed.as_secs_f64(), self.processor.as_secs_f64() * 1e6 / reads);
        let rounds: Vec<String> = self.rates.iter().map(|rate| format!("{rate:.0}")).collect();
        write!(f, "{:<24} {rate:>9.0}/s {cost:>7.2} us CPU   rounds {}", self.name, rounds.join(" "))
    }
}

fn submit_reads(device: &dyn Device, setup: &Setup, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let blocks = device.len() / BLOCK_BYTES as u64;
    let returned = Arc::new(Returned::default());
    let sink: Arc<dyn IoSink> = returned.clone();
    let buffers = (0..setup.depth).map(|_| AlignedBuffer::zeroed(BLOCK_BYTES));
    let mut batch: Vec<IoRequest> =
        buffers.map(|buffer| IoRequest::read(random.u64(..blocks) * BLOCK_BYTES as u64, buffer, 0)).collect();
    let began = Instant::now();
    let (mut reads, mut in_progress) = (0, setup.depth);
    device.submit(&mut batch, &sink);
    while in_progress > 0 {
        let mut requests = returned.requests.lock();
        while requests.is_empty() {
            returned.arrived.wait(&mut requests);
        }
        std::mem::swap(&mut *requests, &mut batch);
        drop(requests);
        reads += batch.len() as u64;
        if began.elapsed() >= setup.time {
            in_progress -= batch.len() as u64;
            batch.clear();
            continue;
        }
        batch.iter_mut().for_each(|request| request.offset = random.u64(..blocks) * BLOCK_BYTES as u64);
        device.submit(&mut batch, &sink);
    }
    reads
}

fn call_reads(device: &dyn Device, time: Duration, threads: u64, seed: u64) -> u64 {
    let is_over = AtomicBool::new(false);
    let blocks = device.len() / BLOCK_BYTES as u64;
    let reading = |number: u64| {
        let (mut random, mut buffer) = (fastrand::Rng::with_seed(seed ^ number), AlignedBuffer::zeroed(BLOCK_BYTES));
        let mut reads = 0;
        while !is_over.load(Ordering::Relaxed) {
            device.read(random.u64(..blocks) * BLOCK_BYTES as u64, &mut buffer).expect("reads");
            reads += 1;
        }
        reads
    };
    let reading = &reading;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || reading(number))).collect();
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        all.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// User and system time of this process, in steps of a hundredth of a second.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Writes every block, each with content of its own.
fn fill(device: &dyn Device) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut offset = 0;
    while offset < device.len() {
        random.fill(&mut buffer);
        device.write(offset, &buffer).expect("writes");
        offset += buffer.len() as u64;
    }
    device.flush().expect("flushes");
}

fn shelf(folder: &Path, name: &str, batches: bool) -> Arc<FileShelf> {
    let options = FileOptions { batches, ..FileOptions::default() };
    Arc::new(FileShelf::open(&folder.join(name), options).expect("opens a shelf"))
}

fn volume(setup: &Setup, name: &str, batches: bool) -> Arc<Volume> {
    let place = |copy| Place::on(shelf(&setup.folder, &format!("{name}-{copy}"), batches));
    let places: Vec<Place> = (0..3).map(place).collect();
    let options = Options { scrub_interval: None, ..Options::new(1) };
    let new = NewVolume { volume: *b"volume of a run!", bytes: setup.mib << 20, min_copies: None, is_thin: false };
    Volume::create(&places, &new, &options).expect("creates");
    let volume = Volume::open(places, options).expect("opens");
    fill(&volume);
    volume.checkpoint().expect("checkpoints");
    Arc::new(volume)
}

fn setup() -> Option<Setup> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next()?);
    let mut setup = Setup { folder, mib: 512, depth: 64, time: Duration::from_secs(3), rounds: 5 };
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?.parse().ok()?;
        match argument.as_str() {
            "--mib" => setup.mib = value,
            "--depth" => setup.depth = value,
            "--seconds" => setup.time = Duration::from_secs(value),
            "--rounds" => setup.rounds = value,
            _ => return None,
        }
    }
    Some(setup)
}

fn main() -> ExitCode {
    let Some(setup) = setup() else {
        eprintln!("batch_reads FOLDER [--mib N] [--depth N] [--seconds S] [--rounds R]");
        return ExitCode::from(2);
    };
    let bare = shelf(&setup.folder, "bare", true);
    println!("{}", bare.kind());
    let file = bare.create("bare", setup.mib << 20).expect("creates");
    fill(&*file);
    let mut parts = [
        Part::new("file, ring", file.clone(), 0),
        Part::new("file, 4 threads", file.clone(), 4),
        Part::new("file, 16 threads", file, 16),
        Part::new("volume, rings", volume(&setup, "ring", true), 0),
        Part::new("volume, its threads", volume(&setup, "plain", false), 0),
    ];
    for round in 0..setup.rounds {
        parts.iter_mut().for_each(|part| part.run(&setup, round));
    }
    let Setup { mib, depth, time, rounds, .. } = setup;
    println!("{mib} MiB, 4 KiB at random, {depth} in progress, {rounds} rounds of {time:?} each, in turns");
    parts.iter().for_each(|part| println!("{part}"));
    ExitCode::SUCCESS
}
