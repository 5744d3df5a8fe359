//! What a read and a write of a volume cost, in the process, at queue depth 1:
//!
//! ```text
//!   cargo run --release -p volume --example volume_bench -- [--mib N] [--seconds S] [--rounds R]
//! ```
//!
//! A volume of three copies on memory shelves, checksums on. Each round measures, one after the other: reads of 4 KiB at random from a
//! bare memory device of the same size, the same from the volume, and writes of 4 KiB at random to the volume, its checkpoints
//! included. So what else the machine does meets all of them. Processor time is that of the process.
//!
//! Choose a size of at least twice the processor's cache.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{BLOCK_BYTES, Device, MemoryShelf, Shelf};
use hdrhistogram::Histogram;
use volume::{NewVolume, Options, Place, Threads, Volume};

/// Calls between two looks at the clock that ends a part.
const CALLS: u64 = 256;

struct Part {
    name: &'static str,
    latency: Histogram<u64>,
    processor: Duration,
    elapsed: Duration,
}

impl Part {
    fn new(name: &'static str) -> Part {
        let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are possible");
        Part { name, latency, processor: Duration::ZERO, elapsed: Duration::ZERO }
    }

    fn run(&mut self, time: Duration, mut call: impl FnMut()) {
        let (began, processor) = (Instant::now(), processor_time());
        while began.elapsed() < time {
            for _ in 0..CALLS {
                let call_began = Instant::now();
                call();
                self.latency.saturating_record(call_began.elapsed().as_nanos() as u64);
            }
        }
        self.elapsed += began.elapsed();
        self.processor += processor_time() - processor;
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls = self.latency.len() as f64;
        let us = |quantile: f64| self.latency.value_at_quantile(quantile) as f64 / 1000.0;
        write!(
            f,
            "{:<14} {:>10.0}/s {:>10.0} per core-second {:>7.2} us CPU   p50 {:>6.2}  p99 {:>6.2}  p99.9 {:>7.2}  max {:>8.1} us",
            self.name,
            calls / self.elapsed.as_secs_f64(),
            calls / self.processor.as_secs_f64(),
            self.processor.as_secs_f64() * 1e6 / calls,
            us(0.5),
            us(0.99),
            us(0.999),
            us(1.0)
        )
    }
}

/// User and system time of this process, in steps of a hundredth of a second.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn main() -> ExitCode {
    let (mut mib, mut seconds, mut rounds) = (256_u64, 2_u64, 5_u64);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next().and_then(|value| value.parse().ok())) {
            ("--mib", Some(value)) => mib = value,
            ("--seconds", Some(value)) => seconds = value,
            ("--rounds", Some(value)) => rounds = value,
            _ => {
                eprintln!("volume_bench [--mib N] [--seconds S] [--rounds R]");
                return ExitCode::from(2);
            }
        }
    }
    let (bytes, time) = (mib << 20, Duration::from_secs(seconds));
    let blocks = bytes / BLOCK_BYTES as u64;
    let bare = MemoryShelf::new().create("bare", bytes).expect("there is memory");
    let places: Vec<Place> = (0..3).map(|_| Place::on(Arc::new(MemoryShelf::new()))).collect();
    let options = Options { threads: Threads::Background, scrub_interval: None, ..Options::new(1) };
    let new = NewVolume { volume: *b"volume of a run!", bytes, min_copies: None, is_thin: false };
    Volume::create(&places, &new, &options).expect("creates");
    let volume = Volume::open(places, options).expect("opens");
    let mut random = fastrand::Rng::with_seed(1);
    let mut buffer = device::AlignedBuffer::zeroed(BLOCK_BYTES);
    // Every block has content of its own: nothing is read from where nothing was written.
    for block in 0..blocks {
        random.fill(&mut buffer);
        bare.write(block * BLOCK_BYTES as u64, &buffer).expect("writes");
        volume.write(block * BLOCK_BYTES as u64, &buffer).expect("writes");
    }
    volume.checkpoint().expect("checkpoints");
    let mut parts = ["bare reads", "volume reads", "volume writes"].map(Part::new);
    for _ in 0..rounds {
        let [reads_bare, reads, writes] = &mut parts;
        let mut at = || random.u64(..blocks) * BLOCK_BYTES as u64;
        reads_bare.run(time, || bare.read(at(), &mut buffer).expect("reads"));
        reads.run(time, || volume.read(at(), &mut buffer).expect("reads"));
        writes.run(time, || volume.write(at(), &buffer).expect("writes"));
        volume.checkpoint().expect("checkpoints");
    }
    println!("{mib} MiB, three copies in memory, checksums on, queue depth 1, {rounds} rounds of {seconds} s each");
    parts.iter().for_each(|part| println!("{part}"));
    ExitCode::SUCCESS
}
