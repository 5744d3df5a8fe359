//! What encryption of a volume costs, in the process, at queue depth 1, in turns with a volume in clear and with the cipher alone:
//!
//! ```text
//!   cargo run --release -p volume --example volume_encryption_cost -- [--mib N] [--milliseconds N] [--rounds R]
//! ```
//!
//! Two volumes of two copies in memory, one in clear and one encrypted; sizes of 4 KiB and 64 KiB at random places. Each round measures, one
//! after the other, reads and writes of both, and one pass of AES-256-GCM over as many blocks of 4 KiB: sealing them, and opening them. The
//! last column is what is demanded to be 1.2 at most: what encryption adds, in passes of the cipher. What counts is the processor
//! time of the process, with the checkpoints of its threads; a step of it is 10 ms. The median of the rounds counts. For the same over NBD:
//! `cargo run --release -p nbd --example nbd_encryption_cost`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{AlignedBuffer, BLOCK_BYTES, Device, MemoryShelf};
use encryption::{SEAL_BYTES, Sealer};
use volume::encryption::{Secret, VolumeKeys};
use volume::{NewVolume, Options, Place, Volume};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// User and system time of this process, in steps of a hundredth of a second.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Nanoseconds of processor time of a call, in the middle of some hundred.
fn nanoseconds(time: Duration, mut call: impl FnMut()) -> f64 {
    let (began, processor, mut calls) = (Instant::now(), processor_time(), 0_u32);
    while began.elapsed() < time {
        (0..64).for_each(|_| call());
        calls += 64;
    }
    (processor_time() - processor).as_nanos() as f64 / f64::from(calls)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn volume(bytes: u64, keys: Option<Arc<VolumeKeys>>) -> Volume {
    let places: Vec<Place> = (0..2).map(|_| Place::on(Arc::new(MemoryShelf::new()))).collect();
    let options = Options { scrub_interval: None, keys, ..Options::new(1) };
    let new = NewVolume { volume: *b"volume of a run!", bytes, min_copies: None, is_thin: false };
    Volume::create(&places, &new, &options).expect("creates");
    let volume = Volume::open(places, options).expect("opens");
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut random = fastrand::Rng::with_seed(1);
    for at in (0..bytes).step_by(1 << 20) {
        random.fill(&mut buffer);
        volume.write(at, &buffer).expect("writes");
    }
    volume.checkpoint().expect("checkpoints");
    volume
}

/// Seals, and opens, blocks of a buffer; the seals lie apart, as in a volume.
fn cipher(sealer: &Sealer, buffer: &mut [u8], seals: &mut [[u8; SEAL_BYTES]], opens: bool) {
    for (number, (block, seal)) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(seals).enumerate() {
        let place = (number as u64).to_le_bytes();
        if opens {
            sealer.open_apart(&place, block, seal).expect("it was sealed so");
        } else {
            *seal = sealer.seal_apart(&place, block);
        }
    }
}

/// Reads or writes of one size: what they cost in clear, encrypted, and the cipher alone.
fn measure(volumes: &[Volume; 2], bytes: usize, is_read: bool, (time, rounds): (Duration, u32)) {
    let sealer = Sealer::for_tests(1, 1, 1);
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut buffer = AlignedBuffer::zeroed(bytes);
    let mut seals = vec![[0; SEAL_BYTES]; bytes / BLOCK_BYTES];
    let mut found: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for (volume, found) in volumes.iter().zip(&mut found) {
            let count = volume.len() / bytes as u64;
            let mut at = || random.u64(..count) * bytes as u64;
            found.push(match is_read {
                true => nanoseconds(time, || volume.read(at(), &mut buffer).expect("reads")),
                false => nanoseconds(time, || volume.write(at(), &buffer).expect("writes")),
            });
            volume.checkpoint().expect("checkpoints");
        }
        // Opening needs sealed bytes: both are measured, and the half of it that is meant is taken.
        let seal = nanoseconds(time, || cipher(&sealer, &mut buffer, &mut seals, false));
        let both = nanoseconds(time, || {
            cipher(&sealer, &mut buffer, &mut seals, false);
            cipher(&sealer, &mut buffer, &mut seals, true);
        });
        found[2].push(if is_read { both - seal } else { seal });
    }
    let [clear, encrypted, pass] = found.map(median);
    println!(
        "{:<6} {:>7} {:>12.2} {:>12.2} {:>12.2} {:>8.2}",
        if is_read { "read" } else { "write" },
        bytes,
        clear / 1000.0,
        encrypted / 1000.0,
        pass / 1000.0,
        (encrypted - clear) / pass
    );
}

fn main() -> ExitCode {
    let (mut mib, mut milliseconds, mut rounds) = (256_u64, 1000_u64, 9_u32);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next().and_then(|value| value.parse::<u64>().ok())) {
            ("--mib", Some(value)) => mib = value.max(1),
            ("--milliseconds", Some(value)) => milliseconds = value,
            ("--rounds", Some(value)) => rounds = value.clamp(1, 1000) as u32,
            _ => {
                eprintln!("volume_encryption_cost [--mib N] [--milliseconds N] [--rounds R]");
                return ExitCode::from(2);
            }
        }
    }
    let keys = VolumeKeys::new(vec![(1, Secret::new([1; 32]))]);
    let volumes = [volume(mib << 20, None), volume(mib << 20, keys)];
    let turn = (Duration::from_millis(milliseconds), rounds);
    println!(
        "{mib} MiB, two copies in memory, medians of {rounds} rounds; microseconds of processor time for each request"
    );
    println!("{:<6} {:>7} {:>12} {:>12} {:>12} {:>8}", "", "bytes", "clear", "encrypted", "cipher", "added");
    for bytes in [BLOCK_BYTES, 16 * BLOCK_BYTES] {
        measure(&volumes, bytes, true, turn);
        measure(&volumes, bytes, false, turn);
    }
    println!("added: what encryption adds, in passes of the cipher over the request ({} bytes at a time)", BLOCK);
    ExitCode::SUCCESS
}
