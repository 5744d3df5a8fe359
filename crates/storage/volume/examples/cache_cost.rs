//! The cost of the write-back cache on the path of a hit: `cargo run --release -p volume --example cache_cost [-- DIRECTORY]`.
//!
//! It compares a device by itself with a cached device whose cache lies on the same kind of device, over capacity in memory: in the
//! memory of the process, and on persistent memory emulated in the given directory (default `/dev/shm`, if it exists). Blocks of
//! 4096 bytes, random places of 64 MiB:
//!
//! * `read`: of blocks that the cache has
//! * `write`: of blocks that are dirty already; with `+ flush` each write is made durable
//! * `write clean + flush`: of blocks whose pages are clean, so that each flush writes an entry
//!
//! The two take turns in short rounds, so that slow periods of the machine affect both. Figures are nanoseconds for one call: the
//! median of the rounds, and the processor time of the process over all of them. With two threads the time is that of one call of one
//! of them.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{AlignedBuffer, BLOCK_BYTES, Device, MemoryShelf, Shelf};
use volume::Threads;
use volume::write_back::{CacheOptions, CachedShelf};

const BYTES: u64 = 64 << 20;
const BLOCKS: u64 = BYTES / BLOCK_BYTES as u64;
const ROUNDS: usize = 200;
const CALLS: usize = 512;

#[derive(Clone, Copy, PartialEq)]
enum Call {
    Read,
    Write,
    WriteFlush,
    WriteClean,
}

struct Cost {
    median: f64,
    processor: f64,
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    compare(&mut out, "memory", &|| Arc::new(MemoryShelf::new()))?;
    let shared = PathBuf::from("/dev/shm");
    let parent = if shared.is_dir() { shared } else { std::env::temp_dir() };
    let parent = std::env::args_os().nth(1).map_or(parent, PathBuf::from);
    let directory = parent.join(format!("cache_cost-{}", std::process::id()));
    let number = std::cell::Cell::new(0);
    let lines = || -> Arc<dyn Shelf> {
        number.set(number.get() + 1);
        let path = directory.join(number.get().to_string());
        Arc::new(PmemShelf::open(&path, PmemOptions { absent: Absent::Emulate }).expect("opens a shelf"))
    };
    compare(&mut out, "persistent memory by line, emulated where it is not", &lines)?;
    drop(std::fs::remove_dir_all(&directory));
    Ok(())
}

fn compare(out: &mut impl Write, name: &str, shelf: &dyn Fn() -> Arc<dyn Shelf>) -> io::Result<()> {
    let bare = shelf().create("a", BYTES).expect("room");
    let options =
        CacheOptions { threads: Threads::Callers, dirty_max: 1.0, ..CacheOptions::new([1; 16], BYTES + BYTES / 4) };
    let cached = CachedShelf::create(Arc::new(MemoryShelf::new()), shelf(), &options).expect("creates");
    let device = cached.create("a", BYTES).expect("room");
    let data = AlignedBuffer::zeroed(1 << 20);
    for at in (0..BYTES).step_by(1 << 20) {
        bare.write(at, &data).expect("writes");
        device.write(at, &data).expect("writes");
    }
    device.flush().expect("flushes");
    writeln!(out, "{name}\n                        bare    cpu   cached    cpu   cached - bare")?;
    let calls = [
        ("read, 1 thread", Call::Read, 1),
        ("read, 2 threads", Call::Read, 2),
        ("write, 1 thread", Call::Write, 1),
        ("write, 2 threads", Call::Write, 2),
        ("write + flush", Call::WriteFlush, 1),
        ("write clean + flush", Call::WriteClean, 1),
    ];
    for (what, call, threads) in calls {
        let clean = || {
            if call == Call::WriteClean {
                cached.destage_all().expect("destages");
            }
        };
        let [bare, cached] = measure([&bare, &device], call, threads, &clean);
        let (a, b) = (bare.median, cached.median);
        writeln!(
            out,
            "  {what:<20} {a:>6.0} {:>6.0}   {b:>6.0} {:>6.0}   {:>8.0} ns",
            bare.processor,
            cached.processor,
            b - a
        )?;
    }
    let status = cached.status();
    writeln!(
        out,
        "  hit ratio {:.3}, {} entries written, {} stalls\n",
        status.hit_ratio(),
        status.entries_written,
        status.stalls
    )
}

/// The costs of a call on each of two devices, which take turns.
fn measure(devices: [&Arc<dyn Device>; 2], call: Call, threads: usize, before: &dyn Fn()) -> [Cost; 2] {
    let mut rounds = [Vec::new(), Vec::new()];
    let mut processor = [0.0; 2];
    let mut seed = 0;
    for _ in 0..ROUNDS {
        for (index, device) in devices.iter().enumerate() {
            before();
            seed += 1;
            let cpu = device::os::cpu_time().expect("the system says it");
            let start = Instant::now();
            std::thread::scope(|scope| {
                for thread in 1..threads {
                    scope.spawn(move || round(device, call, seed * 16 + thread as u64));
                }
                round(device, call, seed * 16);
            });
            rounds[index].push(start.elapsed().as_nanos() as f64 / CALLS as f64);
            let used = device::os::cpu_time().expect("the system says it") - cpu;
            processor[index] += used.as_nanos() as f64 / (CALLS * threads * ROUNDS) as f64;
        }
    }
    let [bare, cached] = rounds.map(|mut rounds| {
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    });
    [Cost { median: bare, processor: processor[0] }, Cost { median: cached, processor: processor[1] }]
}

fn round(device: &Arc<dyn Device>, call: Call, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut data = AlignedBuffer::zeroed(BLOCK_BYTES);
    for _ in 0..CALLS {
        let at = random.u64(..BLOCKS) * BLOCK_BYTES as u64;
        match call {
            Call::Read => device.read(at, &mut data).expect("reads"),
            Call::Write => device.write(at, &data).expect("writes"),
            Call::WriteFlush | Call::WriteClean => device.write_flush(at, &data).expect("writes"),
        }
    }
}
