//! Where the accesses of a workload would be served, for many shapes of the page cache in one pass over its stream.

use std::collections::BTreeMap;

use super::workload::{MINUTE_US, Workload};
use crate::PlanError;
use crate::simulate::{CacheMemory, CacheShape, PageCacheModel, Served};

/// Accesses of the worst minute that are kept, at most.
const KEPT_MAX: u64 = 1 << 17;

/// Numbers of places, as [`Found`](crate::simulate::Found) has them.
const NEAR: usize = 0;
const DEVICE: usize = 2;

/// An access of the worst minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinuteAccess {
    /// Nanoseconds after the begin of the minute.
    pub at_ns: u64,
    /// Its bytes.
    pub bytes: u32,
    /// Whether it writes.
    pub is_write: bool,
}

/// The accesses of the worst minute that are in the sample.
#[derive(Clone, Debug, Default)]
pub struct Minute {
    /// By time.
    pub accesses: Vec<MinuteAccess>,
    /// Of so many accesses of the sample, one is kept: the minute is whole.
    pub every: u64,
    /// Its length, seconds.
    pub seconds: f64,
}

/// What a shape of the page cache serves.
#[derive(Clone, Debug, Default)]
pub struct ShapeServed {
    /// Over the whole record.
    pub all: Served,
    /// In the worst minute.
    pub minute: Served,
    /// Each access of [`Minute`]: 0 near, 1 far, 2 device.
    pub found: Vec<u8>,
}

/// The key of a shape, so that equal ones are simulated once.
pub(super) type ShapeKey = (u64, u64, bool);

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct ServedByShape {
    /// The worst minute.
    pub minute: Minute,
    /// By shape.
    pub shapes: BTreeMap<ShapeKey, ShapeServed>,
    /// Shapes that are too small to be simulated with this sample, and why.
    pub refused: BTreeMap<ShapeKey, String>,
}

/// Parts of all accesses; too few in the sample count as found in near memory (SHARDS_adj), too many are taken from there.
fn parts(found: [u64; 3], expected: f64) -> Served {
    let [near, far, device] = found.map(|count| count as f64);
    let near = (near + expected - (near + far + device)).max(0.0);
    let all = (near + far + device).max(1.0);
    Served { near: near / all, far: far / all, device: device / all }
}

/// Simulates the shapes; sizes are divided by `growth`, which is the same as keys that are multiplied by it.
///
/// # Errors
/// Those of reading a profile.
pub(super) fn serve(
    workload: &Workload,
    shapes: impl IntoIterator<Item = ShapeKey>,
    growth: f64,
    promote: f64,
) -> Result<ServedByShape, PlanError> {
    let mut out = ServedByShape::default();
    let mut models = Vec::new();
    for key in shapes {
        let (near, far, is_direct) = key;
        let part = |bytes: u64| (bytes as f64 / growth) as u64;
        let memory = match (far, is_direct) {
            (0, _) => CacheMemory::Near,
            (far, true) => CacheMemory::DirectMapped { far_bytes: part(far) },
            (far, false) => CacheMemory::NearFar { far_bytes: part(far), promote },
        };
        let shape = CacheShape { page_bytes: workload.page_bytes, near_bytes: part(near), memory };
        match PageCacheModel::new(&shape, workload.stream_rate, workload.has_pages) {
            Ok(model) => models.push((key, model, [0u64; 3], [0u64; 3], Vec::new())),
            Err(why) => {
                out.refused.insert(key, why);
            }
        }
    }
    let (begin, end) = (workload.minute_us, workload.minute_us.saturating_add(MINUTE_US));
    let minute = &mut out.minute;
    (minute.every, minute.seconds) = (workload.minute_accesses.div_ceil(KEPT_MAX).max(1), 60.0);
    let mut in_all = 0u64;
    workload.each(|entry| {
        // A page that is made takes memory; it was nowhere to be found before.
        let is_in = !entry.is_new && (begin..end).contains(&entry.time_us);
        let is_kept = is_in && in_all.is_multiple_of(minute.every);
        in_all += u64::from(is_in);
        if is_kept {
            let at_ns = (entry.time_us - begin) * 1000;
            minute.accesses.push(MinuteAccess { at_ns, bytes: entry.bytes, is_write: entry.is_write });
        }
        for (_, model, all, in_minute, found) in &mut models {
            let place = model.access(entry.hash, entry.bytes) as usize;
            if entry.is_new {
                continue;
            }
            all[place] += 1;
            // What is written as a whole needs no read.
            let place = if entry.is_write && workload.writes_whole && place == DEVICE { NEAR } else { place };
            if is_in {
                in_minute[place] += 1;
            }
            if is_kept {
                found.push(place as u8);
            }
        }
    })?;
    let rate = workload.stream_rate;
    // What the sample has in place of its part of all accesses is what one of it stands for.
    let adjusted = |found: [u64; 3]| parts(found, found.iter().sum::<u64>() as f64 * workload.stands_for * rate);
    for (key, _, all, in_minute, found) in models {
        let (all, minute) = (adjusted(all), adjusted(in_minute));
        out.shapes.insert(key, ShapeServed { all, minute, found });
    }
    Ok(out)
}
