//! Checks every figure of a medium's file against the model, with simulated threads on virtual time.

use super::{Calibration, Quantity, Row};
use crate::budget::{Budget, Request};
use crate::medium::{Direction, Key, Medium, Pattern, Store};
use crate::model::{Access, Model};

/// Accesses of each simulated thread before it is measured, so that all threads are active.
const WARM_UP: u32 = 8;

/// Accesses of each simulated thread that are measured.
const ACCESSES: u32 = 64;

/// GB/s (1e9) of `threads` simulated threads together, each with one such access after the other, through a separate
/// budget.
pub fn bandwidth(model: &Model, access: &Access, threads: u32) -> f64 {
    let budget = Budget::new(model);
    let mut times = vec![0.0_f64; threads.max(1) as usize];
    let mut done = vec![0_u32; times.len()];
    let mut from = 0.0_f64;
    let mut bytes = 0;
    // Always the thread with the least time: this is the order in which real threads would come.
    while let Some((queue, now)) = behind(&times) {
        if done[queue] >= WARM_UP + ACCESSES {
            break;
        }
        let offset = ((queue as u64) << 32) | (u64::from(done[queue]) * access.bytes);
        let request = Request {
            overlapped: access.overlapped,
            store: Some(access.store),
            pattern: Some(access.pattern),
            ..Request::new(0, access.direction, offset, access.bytes)
        };
        times[queue] = budget.take(model, queue as u64, now, &request);
        if done.iter().all(|done| *done >= WARM_UP) {
            bytes += access.bytes;
        } else {
            from = from.max(now);
        }
        done[queue] += 1;
    }
    let end = times.iter().copied().fold(0.0, f64::max);
    bytes as f64 / (end - from)
}

/// The thread with the least time; the first of several.
fn behind(times: &[f64]) -> Option<(usize, f64)> {
    times.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1))
}

pub(super) fn check(medium: &Medium, model: &Model, calibration: &mut Calibration) {
    for curve in medium.curves.iter().filter(|curve| curve.modules == model.modules()) {
        let store = curve.store.unwrap_or(Store::Nt);
        let (direction, pattern, bytes) = (curve.direction, curve.pattern, u64::from(curve.bytes));
        let access = Access { direction, pattern, store, bytes, overlapped: true };
        let stored = curve.store.map_or_else(String::new, |store| format!(", {store}"));
        for (threads, target) in &curve.points {
            let threads = *threads as u32;
            let achieved = bandwidth(model, &access, threads);
            let operation = format!("{pattern} {direction}{stored}");
            calibration.rows.push(row(operation, bytes, threads, Quantity::Bandwidth, (*target, achieved)));
        }
    }
    if medium.curves.iter().all(|curve| curve.modules != model.modules()) && medium.kind.is_addressed() {
        let what = format!("bandwidth of {} modules: no curve in the file is of that number", model.modules());
        calibration.left_out.push(what);
    }
    for figure in medium.figures.iter().filter(|figure| figure.key.is_modelled()) {
        calibration.rows.extend(of_figure(figure.key, figure.value, model));
    }
}

fn row(operation: String, bytes: u64, threads: u32, quantity: Quantity, (target, achieved): (f64, f64)) -> Row {
    let mut row =
        Row { timed: false, operation, bytes, threads, quantity, target, achieved, native: None, p99: None, why: None };
    if !row.is_good() {
        row.why = Some("the model's interpolation misses this point".into());
    }
    row
}

/// The row of a single figure; `None` for figures that are neither a time nor a rate.
fn of_figure(key: Key, value: f64, model: &Model) -> Option<Row> {
    let access = |direction, pattern, bytes| Access { direction, pattern, store: Store::Nt, bytes, overlapped: false };
    let (read, write) = (Direction::Read, Direction::Write);
    let modules = f64::from(model.modules());
    let name = |what: &str| what.to_owned();
    Some(match key {
        Key::ReadLatencyRandom => once(model, name("random read, idle"), access(read, Pattern::Random, 64), value),
        Key::ReadLatencySequential => {
            once(model, name("sequential read, idle"), access(read, Pattern::Sequential, 64), value)
        }
        Key::ReadLatency => once(model, name("read, idle"), access(read, Pattern::Random, 4096), value),
        Key::WriteLatency => once(model, name("write, idle"), access(write, Pattern::Random, 4096), value),
        Key::FlushLatency => row(name("flush"), 0, 1, Quantity::Time, (value, model.flush())),
        Key::ReflushPenalty => reflush(model, value)?,
        Key::ReadIops | Key::WriteIops => {
            let direction = if key == Key::ReadIops { read } else { write };
            let access = access(direction, Pattern::Random, 4096);
            let threads = enough(model, &access);
            let achieved = bandwidth(model, &access, threads) / 4096e-9;
            row(format!("random {direction}"), 4096, threads, Quantity::Rate, (value * modules, achieved))
        }
        Key::ReadBandwidth | Key::WriteBandwidth => {
            let direction = if key == Key::ReadBandwidth { read } else { write };
            let access = access(direction, Pattern::Sequential, 128 << 10);
            let threads = enough(model, &access);
            let achieved = bandwidth(model, &access, threads);
            row(
                format!("sequential {direction}"),
                access.bytes,
                threads,
                Quantity::Bandwidth,
                (value * modules, achieved),
            )
        }
        _ => return None,
    })
}

/// The number of commands in progress that keep the medium busy: twice the result of Little's law.
fn enough(model: &Model, access: &Access) -> u32 {
    (2.0 * model.alone(access) / model.at_least(access)).ceil().max(1.0) as u32
}

fn once(model: &Model, operation: String, access: Access, target: f64) -> Row {
    let request = Request {
        store: Some(access.store),
        pattern: Some(access.pattern),
        ..Request::new(0, access.direction, 0, access.bytes)
    };
    let achieved = Budget::new(model).take(model, 0, 0.0, &request);
    row(operation, access.bytes, 1, Quantity::Time, (target, achieved))
}

/// The additional time of a second write-back of the same line, compared with another line.
fn reflush(model: &Model, target: f64) -> Option<Row> {
    let write = |second: u64| {
        let budget = Budget::new(model);
        let request = |offset| Request {
            store: Some(Store::Clwb),
            pattern: Some(Pattern::Random),
            ..Request::new(0, Direction::Write, offset, 64)
        };
        let first = budget.take(model, 0, 0.0, &request(0));
        budget.take(model, 0, first, &request(second)) - first
    };
    let achieved = write(0) - write(1 << 20);
    let what = "clwb of one line again, added";
    (target > 0.0).then(|| row(what.to_owned(), 64, 1, Quantity::Time, (target, achieved)))
}
