//! The wrapped device in real time, compared with the model's time and with the device below.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use ::device::{AlignedBuffer, Device, DeviceError, Shelf};

use super::{Calibration, Options, Quantity, Row};
use crate::budget::{Budget, Traffic};
use crate::clock;
use crate::medium::{Direction, Pattern};
use crate::model::{Access, Model};
use crate::{CatalogueError, ModelDevice, Timing};

/// The name of the temporary device.
const NAME: &str = "calibration";

/// Number of places from which a thread's accesses choose: so many that a random one rarely follows a recent one.
const PLACES: u64 = 4096;

/// The operations, by pattern and bytes. Writes are `write_flush`.
const OPERATIONS: &[(Direction, Pattern, u64)] = &[
    (Direction::Read, Pattern::Random, 64),
    (Direction::Read, Pattern::Random, 256),
    (Direction::Read, Pattern::Random, 4096),
    (Direction::Read, Pattern::Sequential, 4096),
    (Direction::Write, Pattern::Random, 64),
    (Direction::Write, Pattern::Random, 256),
    (Direction::Write, Pattern::Sequential, 512),
    (Direction::Write, Pattern::Sequential, 4096),
    (Direction::Write, Pattern::Random, 4096),
];

pub(super) fn measure(
    inner: &Arc<dyn Shelf>,
    model: &Model,
    options: Options,
    calibration: &mut Calibration,
) -> Result<(), CatalogueError> {
    let native = inner.create(NAME, options.bytes)?;
    let measured = measure_on(&native, model, options, calibration);
    drop(native);
    let removed = inner.remove(NAME);
    measured?;
    Ok(removed?)
}

fn measure_on(
    native: &Arc<dyn Device>,
    model: &Model,
    options: Options,
    calibration: &mut Calibration,
) -> Result<(), CatalogueError> {
    touch(native)?;
    for (direction, pattern, bytes) in OPERATIONS.iter().copied() {
        let block = u64::from(native.block_bytes());
        if !bytes.is_multiple_of(block) {
            let what = format!("{pattern} {direction} of {bytes} bytes in real time: the device's block is {block}");
            calibration.left_out.push(what);
            continue;
        }
        let store = model.store(bytes);
        let access = Access { direction, pattern, store, bytes, overlapped: false };
        for threads in [1, options.threads] {
            if threads == 1 || threads != calibration.rows.last().map_or(0, |row| row.threads) {
                calibration.rows.push(one(native, model, &access, threads, options)?);
            }
        }
    }
    Ok(())
}

/// Allocates pages and space of files before anything is measured.
fn touch(device: &Arc<dyn Device>) -> Result<(), DeviceError> {
    let zeros = AlignedBuffer::zeroed(1 << 16);
    for offset in (0..device.len()).step_by(zeros.len()) {
        let piece = zeros.len().min((device.len() - offset) as usize);
        device.write(offset, &zeros[..piece])?;
    }
    device.flush()
}

fn one(
    native: &Arc<dyn Device>,
    model: &Model,
    access: &Access,
    threads: u32,
    options: Options,
) -> Result<Row, CatalogueError> {
    let every = model.at_least(access) * f64::from(threads);
    let target = model.among(access, threads).max(every);
    let operation = format!("{} {}, device", access.pattern, access.direction);
    let alone = times(native, access, threads, options)?;
    let host = quantile(&alone, 0.5);
    if host > target {
        return Err(CatalogueError::HostTooSlow {
            medium: model.name().into(),
            operation: format!("{} {} of {} bytes, {threads} threads", access.pattern, access.direction, access.bytes),
            target_ns: target,
            native_ns: host,
        });
    }
    let budget = Budget::new(model);
    let timed = ModelDevice::new(Arc::clone(native), model.clone(), Arc::clone(&budget), Timing::Timed);
    let modelled: Arc<dyn Device> = Arc::new(timed);
    let times = times(&modelled, access, threads, options)?;
    let (achieved, p99) = (quantile(&times, 0.5), quantile(&times, 0.99));
    let (bytes, quantity) = (access.bytes, Quantity::Time);
    let (native, p99) = (Some(host), Some(p99));
    let mut row = Row { timed: true, operation, bytes, threads, quantity, target, achieved, native, p99, why: None };
    if !row.is_good() {
        row.why = Some(why(&row, budget.traffic()));
    }
    Ok(row)
}

/// The reason of a miss: most operations ended after their deadline, or they waited and the wait is inaccurate.
fn why(row: &Row, traffic: Traffic) -> String {
    let Traffic { late, accesses, late_ns, .. } = traffic;
    if late * 2 >= accesses {
        let by = late_ns / late as f64;
        return format!("{late} of {accesses} ended late by {by:.0} ns: the host and the model's own bookkeeping");
    }
    if row.achieved < row.target {
        return format!("{} threads of this host are not under way together all the time", row.threads);
    }
    let look = clock::look().as_nanos();
    format!("{} of {accesses} were waited for, and a look at the clock takes {look} ns", accesses - late)
}

/// Nanoseconds of each operation of all threads, sorted.
fn times(
    device: &Arc<dyn Device>,
    access: &Access,
    threads: u32,
    options: Options,
) -> Result<Vec<f64>, CatalogueError> {
    // The time of reading the clock is not part of the measurement.
    let look = clock::look();
    let start = Barrier::new(threads as usize);
    let run = |thread: u32| -> Result<Vec<f64>, DeviceError> {
        let mut buffer = AlignedBuffer::zeroed(access.bytes.next_multiple_of(4096) as usize);
        let buffer = &mut buffer[..access.bytes as usize];
        let mut random = fastrand::Rng::with_seed(options.seed + u64::from(thread));
        let places = (device.len() / u64::from(threads) / access.bytes).min(PLACES);
        let mut times = Vec::with_capacity(options.operations as usize);
        start.wait();
        for index in 0..u64::from(options.operations) {
            let place = match access.pattern {
                Pattern::Sequential => index % places,
                Pattern::Random => random.u64(0..places),
            };
            let offset = (u64::from(thread) * places + place) * access.bytes;
            let begun = Instant::now();
            match access.direction {
                Direction::Read => device.read(offset, buffer)?,
                Direction::Write => device.write_flush(offset, buffer)?,
            }
            times.push(begun.elapsed().saturating_sub(look).as_nanos() as f64);
        }
        Ok(times)
    };
    let results: Vec<Result<Vec<f64>, DeviceError>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a panic of a thread is ours")).collect()
    });
    let mut all = Vec::new();
    for result in results {
        all.extend(result?);
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

/// The value at `share` of sorted values; there must be at least one.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}
