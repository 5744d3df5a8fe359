//! [`StructureStatus`]: what a recording knows of each structure so far, and what part of its accesses a memory of any size would miss.

use profile::Recorder;
use profile::reuse::MissRatioCurve;
use serde::{Deserialize, Serialize};

/// Points of a curve.
const POINTS: usize = 40;
/// The smallest memory of a curve, bytes.
const LEAST_BYTES: f64 = 65_536.0;

/// A structure of a recording: a kind of page, the page cache as a whole, or what is beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StructureStatus {
    /// Its name; `page cache`: all that share it.
    pub name: String,
    /// Whether it does not go through the page cache.
    pub beside: bool,
    /// Accesses that read.
    pub reads: u64,
    /// Accesses that write.
    pub writes: u64,
    /// Pages, extents and blocks that were made.
    pub made: u64,
    /// Bytes that were used, where they are counted: of the page cache as a whole, and of what is beside it.
    pub touched_bytes: Option<u64>,
    /// Bytes of an LRU memory, and the part of the accesses that it misses, by size. Structures in the page cache share it.
    pub points: Vec<(u64, f64)>,
}

/// The page cache, then each structure that was used; `names` are those of all.
pub(super) fn report(recorder: &Recorder, cache_bytes: u64, names: &[&str]) -> Vec<StructureStatus> {
    let (_, touched) = recorder.touched();
    let reuse = recorder.reuse();
    let mut all =
        StructureStatus { name: "page cache".into(), touched_bytes: Some(touched as u64), ..Default::default() };
    // Beyond what was used nothing more is found: a memory that is larger shows where that is.
    let high = |touched: f64| (touched * 1.25).max(cache_bytes as f64);
    all.points = points(&reuse.curve(), high(touched));
    let mut found = Vec::new();
    for ((structure, used), name) in (0u8..).zip(recorder.used()).zip(names) {
        if used.reads + used.writes + used.made == 0 {
            continue;
        }
        let beside = recorder.touched_beside(structure).map(|(_, bytes)| bytes);
        if beside.is_none() {
            (all.reads, all.writes, all.made) =
                (all.reads + used.reads, all.writes + used.writes, all.made + used.made);
        }
        let high = beside.map_or(high(touched), |bytes| bytes * 1.25);
        let points = if used.reuse.accesses > 0 { points(&used.reuse.curve(), high) } else { Vec::new() };
        found.push(StructureStatus {
            name: (*name).into(),
            beside: beside.is_some(),
            reads: used.reads,
            writes: used.writes,
            made: used.made,
            touched_bytes: beside.map(|bytes| bytes as u64),
            points,
        });
    }
    if reuse.accesses > 0 {
        found.insert(0, all);
    }
    found
}

/// Sizes in equal steps of their logarithm.
fn points(curve: &MissRatioCurve, high: f64) -> Vec<(u64, f64)> {
    let high = high.max(2.0 * LEAST_BYTES);
    let size = |step: usize| LEAST_BYTES * (high / LEAST_BYTES).powf(step as f64 / (POINTS - 1) as f64);
    let rounded = |ratio: f64| (ratio * 1e4).round() / 1e4;
    (0..POINTS).map(|step| size(step) as u64).map(|bytes| (bytes, rounded(curve.miss_ratio(bytes)))).collect()
}
