//! Calibration: what the path costs, and that single requests take what they should.
//!
//! ```text
//!   all places     a fixed delay; what single requests take longer: the path's cost
//!   each medium    its delays less that cost; single requests again; what they are off by goes into the cost, a few times
//! ```

use std::path::Path;
use std::time::Duration;

use catalogue::Model;
use catalogue::medium::{Direction, Pattern};
use catalogue::model::Access;

use crate::delay::{DelayedDevice, Delays, PathCost};
use crate::probe::{self, Probed, middle};

/// What each request takes while the path is measured: as long as media take, so that the timer is part of the path's cost.
const PROBE_DELAY: Duration = Duration::from_micros(150);
/// The least excess: below it the four runs would differ by less than the noise, nanoseconds.
pub const EXCESS_MIN: f64 = 20_000.0;
/// Single requests that come this near to what they should take need no correction.
const NEAR: f64 = 0.05;
/// How often the cost is corrected at most.
const CORRECTIONS: usize = 3;
/// A corrected cost is at most this multiple of the one that was measured. Without it the corrections of a noisy machine followed each
/// other upwards, until 1.6 ms were added to persistent memory (2026-11-26).
const CORRECTED_MAX: f64 = 1.25;

/// Single requests of 4 KiB on the loop device.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// What the path costs.
    pub path: PathCost,
    /// What the path takes longer than the medium, where it is most; 0: the medium can be run.
    pub excess_ns: f64,
    /// What the requests should take, with what is added, if the medium has a model.
    pub wanted: Option<PathCost>,
    /// What they took.
    pub achieved: Option<PathCost>,
}

impl Calibrated {
    /// What is added to the medium's times in the first run.
    pub fn added_ns(&self) -> f64 {
        if self.excess_ns > 0.0 { self.excess_ns.max(EXCESS_MIN) } else { 0.0 }
    }

    /// The largest difference of what was achieved, as a part of what was wanted.
    pub fn is_off_by(&self) -> f64 {
        let (Some(wanted), Some(achieved)) = (&self.wanted, &self.achieved) else { return 0.0 };
        let off =
            in_us(wanted).into_iter().zip(in_us(achieved)).map(|(wanted, achieved)| (achieved / wanted - 1.0).abs());
        off.fold(0.0, f64::max)
    }
}

/// Reads, writes and flushes, microseconds.
pub fn in_us(cost: &PathCost) -> [f64; 3] {
    [cost.read_ns, cost.write_ns, cost.flush_ns].map(|ns| ns / 1e3)
}

/// What the path costs: the median of all block devices, since it is the same for all and other programs disturb each measurement.
///
/// # Errors
/// Those of the devices, and the user's request to end.
pub fn path_cost<'d>(devices: impl Iterator<Item = (&'d DelayedDevice, &'d Path)>) -> anyhow::Result<PathCost> {
    let fixed = PROBE_DELAY.as_nanos() as f64;
    let mut probes = Vec::new();
    eprintln!("measuring the path");
    for (device, path) in devices {
        device.set(Delays::Fixed(PROBE_DELAY));
        probes.push(probe::probe(path)?);
    }
    let cost = |of: fn(&Probed) -> f64| (middle(probes.iter().map(of).collect()) - fixed).max(0.0);
    Ok(PathCost {
        read_ns: cost(|probed| probed.read_ns),
        write_ns: cost(|probed| probed.write_ns),
        flush_ns: cost(|probed| probed.flush_ns),
    })
}

/// What single requests of 4 KiB take on a medium.
fn times_of(model: &Model) -> Probed {
    let alone = |direction| {
        let (pattern, bytes) = (Pattern::Random, 4096);
        model.alone(&Access { direction, pattern, store: model.store(bytes), bytes, overlapped: false })
    };
    Probed { read_ns: alone(Direction::Read), write_ns: alone(Direction::Write), flush_ns: model.flush() }
}

/// By how much the path is slower than a medium, in the kind of request where it is most.
fn excess(cost: &PathCost, medium: Option<&Probed>) -> f64 {
    let medium = medium.copied().unwrap_or_default();
    let beyond = [cost.read_ns - medium.read_ns, cost.write_ns - medium.write_ns, cost.flush_ns - medium.flush_ns];
    beyond.into_iter().fold(0.0, f64::max)
}

/// Single requests with the delays of the first run, beside what they should take. What they are off by is added to the path's cost, and they
/// are timed again: how long a thread takes to wake depends on how long it has slept.
///
/// # Errors
/// Those of the device, and the user's request to end.
pub fn calibrate(
    device: &DelayedDevice,
    model: Option<&Model>,
    block_device: &Path,
    path: PathCost,
) -> anyhow::Result<Calibrated> {
    let target = model.map(times_of);
    let mut calibrated = Calibrated { excess_ns: excess(&path, target.as_ref()), path, wanted: None, achieved: None };
    let Some(target) = target else { return Ok(calibrated) };
    for corrections in 0..=CORRECTIONS {
        let added_ns = calibrated.added_ns();
        device.set(Delays::Medium { cost: calibrated.path, added_ns });
        let achieved = probe::probe(block_device)?;
        calibrated.wanted = Some(target.map(|ns| ns + added_ns));
        calibrated.achieved = Some(achieved);
        // The last measurement is with the cost that is used.
        if calibrated.is_off_by() <= NEAR || corrections == CORRECTIONS {
            break;
        }
        let cost = &calibrated.path;
        let corrected = PathCost {
            read_ns: corrected(cost.read_ns, target.read_ns + added_ns, achieved.read_ns, path.read_ns),
            write_ns: corrected(cost.write_ns, target.write_ns + added_ns, achieved.write_ns, path.write_ns),
            flush_ns: corrected(cost.flush_ns, target.flush_ns + added_ns, achieved.flush_ns, path.flush_ns),
        };
        calibrated.excess_ns = excess(&corrected, Some(&target));
        calibrated.path = corrected;
    }
    Ok(calibrated)
}

/// A cost, after requests took `achieved` instead of `wanted`: half of the difference, since each measurement is noisy.
fn corrected(cost: f64, wanted: f64, achieved: f64, measured: f64) -> f64 {
    (cost + (achieved - wanted) / 2.0).clamp(0.0, measured * CORRECTED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_half_of_the_difference_and_bounded() {
        assert_eq!(corrected(100.0, 300.0, 320.0, 100.0), 110.0);
        assert_eq!(corrected(100.0, 300.0, 900.0, 100.0), 125.0);
        assert_eq!(corrected(100.0, 900.0, 300.0, 100.0), 0.0);
    }

    #[test]
    fn the_excess_is_that_of_the_kind_of_request_in_which_the_path_is_slowest() {
        let cost = PathCost { read_ns: 100.0, write_ns: 120.0, flush_ns: 90.0 };
        let medium = Probed { read_ns: 150.0, write_ns: 130.0, flush_ns: 20.0 };
        assert_eq!(excess(&cost, Some(&medium)), 70.0);
        assert_eq!(excess(&cost, Some(&Probed { flush_ns: 95.0, ..medium })), 0.0);
        assert_eq!(excess(&cost, None), 120.0);
    }
}
