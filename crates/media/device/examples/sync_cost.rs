//! The cost of making a write persistent on this machine: `cargo run --release -p device --example sync_cost [-- DIRECTORY]`.
//!
//! It compares, on files of the given directory (default: the temporary directory), each `write_flush` of 4 to 256 KiB
//! by one thread and by two threads at the same time:
//!
//! * `uring`: [`FileShelf`], write linked to fdatasync in one io_uring submission
//! * `plain`: [`FileShelf`], pwrite, then fdatasync
//! * `buffered`: as `plain`, but through the page cache
//! * `dsync`: pwrite to a descriptor opened with `O_DIRECT | O_DSYNC` (`RWF_DSYNC` has this effect for every write)
//!
//! To measure the benefit of pre-writing, it also runs `plain` on a file that is only reserved: the first pass over the
//! file converts unwritten extents into written ones, the second pass finds them written.
//!
//! The kinds take turns in short rounds, so that slow periods of the machine affect all of them. The whole run takes
//! about 20 seconds. CPU is user plus system time of the process divided by the number of operations. getrusage
//! includes the io_uring workers of the kernel, because they are threads of the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{AlignedBuffer, FileOptions, FileShelf, Shelf, os};

/// The size of the file that is overwritten repeatedly: that of a journal segment.
const FILE_BYTES: u64 = 64 << 20;
const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
const ROUNDS: usize = 12;
const ROUND: Duration = Duration::from_millis(40);

/// A way to make a write persistent. It takes an offset and data, and returns when they are persistent.
type WriteFlush = Arc<dyn Fn(u64, &[u8]) + Send + Sync>;

/// The latencies of one cell of the table in nanoseconds, and their total time.
#[derive(Default)]
struct Cell {
    latencies: Vec<u64>,
    wall: Duration,
    cpu: Duration,
}

fn main() {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = parent.join(format!("sync_cost-{}", std::process::id()));
    let mut out = io::stdout().lock();
    let kinds = kinds(&directory, &mut out);
    let mut cells: Vec<(usize, usize, Vec<Cell>)> = Vec::new();
    for threads in [1, 2] {
        for bytes in SIZES {
            cells.push((threads, bytes, kinds.iter().map(|_| Cell::default()).collect()));
        }
    }
    for _ in 0..ROUNDS {
        for (threads, bytes, row) in &mut cells {
            for (cell, (_, write_flush)) in row.iter_mut().zip(&kinds) {
                round(cell, *threads, *bytes, write_flush);
            }
        }
    }
    report(&mut out, &kinds, &mut cells).expect("standard output");
    prewriting(&directory, &mut out).expect("standard output");
    drop(kinds);
    fs::remove_dir_all(&directory).expect("the directory is ours");
}

fn kinds(directory: &Path, out: &mut impl Write) -> Vec<(&'static str, WriteFlush)> {
    let mut kinds = Vec::new();
    let mut shelf_kind = |name: &'static str, options: FileOptions| {
        let shelf = FileShelf::open(&directory.join(name), options).expect("open a shelf");
        let began = Instant::now();
        let device = shelf.create("segment", FILE_BYTES).expect("create a device");
        writeln!(out, "{name}: {}; created {} MiB in {:?}", shelf.kind(), FILE_BYTES >> 20, began.elapsed())
            .expect("standard output");
        let write_flush: WriteFlush = Arc::new(move |at, data| device.write_flush(at, data).expect("write_flush"));
        kinds.push((name, write_flush));
    };
    shelf_kind("uring", FileOptions { direct: true, uring: true, batches: false });
    shelf_kind("plain", FileOptions { direct: true, uring: false, batches: false });
    shelf_kind("buffered", FileOptions { direct: false, uring: false, batches: false });
    let path = directory.join("dsync");
    fs::copy(directory.join("plain/segment"), &path).expect("copy");
    let file = direct(&path, libc::O_DSYNC);
    file.sync_all().expect("sync");
    kinds.push(("dsync", Arc::new(move |at, data| file.write_all_at(data, at).expect("write"))));
    kinds
}

fn direct(path: &Path, flags: libc::c_int) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_DIRECT | flags)
        .open(path)
        .expect("open")
}

/// Lets `threads` write for one round, each in its own part of the file.
fn round(cell: &mut Cell, threads: usize, bytes: usize, write_flush: &WriteFlush) {
    let (began, cpu) = (Instant::now(), cpu_time());
    let part = FILE_BYTES / threads as u64;
    let workers: Vec<_> = (0..threads as u64)
        .map(|thread| {
            let write_flush = Arc::clone(write_flush);
            std::thread::spawn(move || {
                let mut data = AlignedBuffer::zeroed(bytes);
                let mut latencies = Vec::new();
                for turn in 0.. {
                    data[..8].copy_from_slice(&u64::to_le_bytes(turn));
                    let at = thread * part + turn * bytes as u64 % part;
                    let start = Instant::now();
                    write_flush(at, &data);
                    latencies.push(start.elapsed().as_nanos() as u64);
                    if began.elapsed() >= ROUND {
                        break;
                    }
                }
                latencies
            })
        })
        .collect();
    for worker in workers {
        cell.latencies.extend(worker.join().expect("a worker"));
    }
    cell.wall += began.elapsed();
    cell.cpu += cpu_time() - cpu;
}

fn report(
    out: &mut impl Write,
    kinds: &[(&'static str, WriteFlush)],
    cells: &mut [(usize, usize, Vec<Cell>)],
) -> io::Result<()> {
    writeln!(out, "\nthreads   KiB  kind        p50 us  p99 us p999 us     ops/s   MB/s  cpu us/op")?;
    for (threads, bytes, row) in cells {
        for (cell, (name, _)) in row.iter_mut().zip(kinds) {
            let ops = cell.latencies.len() as f64;
            let rate = ops / cell.wall.as_secs_f64();
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|p| percentile(&mut cell.latencies, p));
            writeln!(
                out,
                "{threads:7} {:5}  {name:9} {p50:8.0} {p99:7.0} {p999:7.0} {rate:9.0} {:6.0} {:10.1}",
                *bytes >> 10,
                rate * *bytes as f64 / 1e6,
                cell.cpu.as_secs_f64() * 1e6 / ops,
            )?;
        }
    }
    Ok(())
}

/// Writes 4 KiB blocks over a reserved file and over a pre-written one, alternately, twice each.
fn prewriting(directory: &Path, out: &mut impl Write) -> io::Result<()> {
    const BLOCKS: usize = 600;
    let files = ["reserved only", "pre-written"].map(|name| {
        let file = direct(&directory.join(name), 0);
        os::reserve(&file, FILE_BYTES).expect("reserve");
        if name == "pre-written" {
            let zeros = AlignedBuffer::zeroed(1 << 20);
            (0..FILE_BYTES >> 20).for_each(|at| file.write_all_at(&zeros, at << 20).expect("write"));
        }
        file.sync_all().expect("sync");
        (name, file)
    });
    writeln!(out, "\nfirst writes of 4 KiB, pwrite then fdatasync, {BLOCKS} blocks")?;
    let data = AlignedBuffer::zeroed(4096);
    for pass in ["first pass", "second pass"] {
        let mut latencies = [Vec::new(), Vec::new()];
        for block in 0..BLOCKS as u64 {
            for ((_, file), latencies) in files.iter().zip(&mut latencies) {
                let start = Instant::now();
                file.write_all_at(&data, block * 4096).expect("write");
                file.sync_data().expect("sync");
                latencies.push(start.elapsed().as_nanos() as u64);
            }
        }
        for ((name, _), mut latencies) in files.iter().zip(latencies) {
            let [p50, p99] = [0.5, 0.99].map(|p| percentile(&mut latencies, p));
            writeln!(out, "{pass:12} {name:14} p50 {p50:5.0} us  p99 {p99:5.0} us")?;
        }
    }
    Ok(())
}

/// A percentile in microseconds (nearest rank).
fn percentile(latencies: &mut [u64], p: f64) -> f64 {
    latencies.sort_unstable();
    let rank = (p * latencies.len() as f64).ceil() as usize;
    latencies[rank.clamp(1, latencies.len()) - 1] as f64 / 1e3
}

fn cpu_time() -> Duration {
    os::cpu_time().expect("getrusage")
}
