//! A directory: files as the journal uses them, and the mapping where it is on persistent memory.
//!
//! All files lie in a folder of the probe's own, which is removed at the end, and are removed from it as soon as they
//! are open: their space is freed even if the probe is killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{AlignedBuffer, Device, DeviceError, FileOptions, FileShelf, Shelf};
use serde::Serialize;

use super::curves::{Curve, reads, writes};
use super::times::{Latency, Measured, rate, sample};

/// Threads that keep a drive busy for its IOPS.
pub const DEPTH: usize = 16;

/// How long one latency is sampled at most.
const SAMPLING: Duration = Duration::from_secs(1);

/// Bytes of one sequential access.
const LARGE: usize = 1 << 20;

/// The results for a directory.
#[derive(Debug, Clone, Serialize)]
pub struct Folder {
    /// Where.
    pub path: String,
    /// How much was free there, in bytes.
    pub free_bytes: u64,
    /// Its kind, in words of the device.
    pub kind: String,
    /// Latencies of one operation at a time.
    pub latencies: Vec<Latency>,
    /// As files.
    pub files: Option<Files>,
    /// As mapped persistent memory.
    pub mapped: Option<Mapped>,
}

/// Rates of files.
#[derive(Debug, Clone, Serialize)]
pub struct Files {
    /// Sequential reads of 1 MiB.
    pub read_gb_per_s: f64,
    /// Sequential writes of 1 MiB, the flush at the end included.
    pub write_gb_per_s: f64,
    /// Random reads of 4 KiB by [`DEPTH`] threads.
    pub read_iops: Measured,
    /// Random writes of 4 KiB by [`DEPTH`] threads.
    pub write_iops: Measured,
    /// Medians of a read, a write, and a write with a flush, of 4 KiB.
    pub p50_ns: [f64; 3],
}

/// Rates of mapped persistent memory.
#[derive(Debug, Clone, Serialize)]
pub struct Mapped {
    /// A read that needs the one before it, anywhere.
    pub random_ns: Measured,
    /// A read of the next line that needs the one before it.
    pub sequential_ns: Measured,
    /// Bandwidth.
    pub curves: Vec<Curve>,
}

/// Measures with files of `bytes` below `path`.
pub fn measure(path: &Path, bytes: usize, threads: &[usize]) -> anyhow::Result<Folder> {
    let place =
        tempfile::Builder::new().prefix("terrace-probe-").tempdir_in(path).context("it cannot be written to")?;
    let result = match PmemShelf::open(&place.path().join("mapped"), PmemOptions { absent: Absent::Refuse }) {
        Ok(shelf) => mapped(path, place.path(), &shelf, bytes, threads),
        Err(DeviceError::NotPersistentMemory { .. }) => files(path, place.path(), bytes),
        Err(error) => Err(error.into()),
    };
    place.close().context("the probe's folder cannot be removed")?;
    result
}

/// A device whose name is removed: its space is freed with the handle.
fn nameless(shelf: &dyn Shelf, bytes: usize) -> anyhow::Result<Arc<dyn Device>> {
    let device = shelf.create("probe", bytes as u64)?;
    shelf.remove("probe")?;
    Ok(device)
}

fn files(path: &Path, place: &Path, bytes: usize) -> anyhow::Result<Folder> {
    let shelf = FileShelf::open(&place.join("files"), FileOptions::default())?;
    let device = nameless(&shelf, bytes)?;
    let buffer = || AlignedBuffer::zeroed(LARGE);
    let (mut large, blocks) = (buffer(), bytes / 4096);
    let mut random = fastrand::Rng::with_seed(1);
    let small = AlignedBuffer::zeroed(4096);
    let place_of = |number: usize| (number % blocks * 4096) as u64;
    let flushed = sample("write and flush 4096 B", SAMPLING, |n| device.write_flush(place_of(n), &small))?;
    let written = sample("write 4096 B", SAMPLING, |_| device.write((random.usize(..blocks) * 4096) as u64, &small))?;
    device.flush()?;
    let mut into = AlignedBuffer::zeroed(4096);
    let read =
        sample("read 4096 B, anywhere", SAMPLING, |_| device.read((random.usize(..blocks) * 4096) as u64, &mut into))?;
    let begin = std::time::Instant::now();
    for at in (0..bytes).step_by(LARGE) {
        device.write(at as u64, &large[..LARGE.min(bytes - at)])?;
    }
    device.flush()?;
    let write_gb_per_s = bytes as f64 / begin.elapsed().as_nanos() as f64;
    let begin = std::time::Instant::now();
    for at in (0..bytes).step_by(LARGE) {
        let length = LARGE.min(bytes - at);
        device.read(at as u64, &mut large[..length])?;
    }
    let read_gb_per_s = bytes as f64 / begin.elapsed().as_nanos() as f64;
    let state = |thread: usize| {
        Ok::<_, anyhow::Error>((fastrand::Rng::with_seed(thread as u64 + 7), AlignedBuffer::zeroed(4096)))
    };
    let read_iops = rate(DEPTH, state, |(random, into)| {
        device.read((random.usize(..blocks) * 4096) as u64, into)?;
        Ok(1)
    })?;
    let write_iops = rate(DEPTH, state, |(random, from)| {
        device.write((random.usize(..blocks) * 4096) as u64, from)?;
        Ok(1)
    })?;
    let p50_ns = [read.p50_ns, written.p50_ns, flushed.p50_ns];
    Ok(Folder {
        path: path.display().to_string(),
        free_bytes: device::free_bytes(path)?,
        kind: shelf.kind().to_string(),
        latencies: vec![flushed, written, read],
        files: Some(Files { read_gb_per_s, write_gb_per_s, read_iops, write_iops, p50_ns }),
        mapped: None,
    })
}

fn mapped(path: &Path, place: &Path, shelf: &PmemShelf, bytes: usize, threads: &[usize]) -> anyhow::Result<Folder> {
    let device = nameless(shelf, bytes)?;
    let mut latencies = Vec::new();
    for length in [256usize, 1024, 4096] {
        let from = AlignedBuffer::zeroed(4096);
        let places = bytes / length;
        let name = format!("store and fence {length} B");
        latencies.push(sample(&name, SAMPLING, |n| device.write_flush((n % places * length) as u64, &from[..length]))?);
    }
    let (random_ns, sequential_ns) = (chase(device.as_ref(), bytes, true)?, chase(device.as_ref(), bytes, false)?);
    let state = |_| Ok(AlignedBuffer::zeroed(4096));
    let mut curves = reads(bytes, threads, state, |into: &mut AlignedBuffer, at, length| {
        Ok(device.read(at as u64, &mut into[..length])?)
    })?;
    curves.extend(writes(place, bytes, threads, || Ok(()))?);
    Ok(Folder {
        path: path.display().to_string(),
        free_bytes: device::free_bytes(path)?,
        kind: shelf.mapping().to_string(),
        latencies,
        files: None,
        mapped: Some(Mapped { random_ns, sequential_ns, curves }),
    })
}

/// Nanoseconds for each read of a line whose place was in the one before it: the median of several stretches.
fn chase(device: &dyn Device, bytes: usize, shuffled: bool) -> anyhow::Result<Measured> {
    const STEPS: usize = 2000;
    let lines = bytes / 64;
    let mut order: Vec<usize> = (0..lines).collect();
    let mut random = fastrand::Rng::with_seed(1);
    if shuffled {
        for at in (1..lines).rev() {
            order.swap(at, random.usize(..at + 1));
        }
    }
    let mut image = vec![0u8; lines * 64];
    for at in 0..lines {
        let next = (order[(at + 1) % lines] * 64) as u64;
        image[order[at] * 64..order[at] * 64 + 8].copy_from_slice(&next.to_le_bytes());
    }
    device.write_flush(0, &image)?;
    drop(image);
    let (mut at, mut times) = (0u64, Vec::new());
    let begin = std::time::Instant::now();
    while times.len() < 5 || begin.elapsed() < super::times::TURN {
        let start = std::time::Instant::now();
        for _ in 0..STEPS {
            let mut word = [0u8; 8];
            device.read(at, &mut word)?;
            at = u64::from_le_bytes(word);
        }
        times.push(start.elapsed().as_nanos() as f64 / STEPS as f64);
    }
    Ok(Measured::of(times))
}
