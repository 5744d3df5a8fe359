//! What a node reads and writes beside its page cache: index files of search, blocks of volumes. It is a load on the data drives.
//!
//! ```text
//!   search segments   reads of the medium, as a part of all reads, as it was recorded; what is made is written once
//!   volumes           each read; each write twice: into the journal of the volume, then in place
//! ```
//!
//! Invariants: none of it is in a page cache that is simulated, and no figure of its own times is given; it makes others wait.

use std::collections::BTreeMap;

use crate::profile::{BesideUse, StreamEntry, StructureUse, Summary};

/// The structure whose writes go through a journal of their own.
const VOLUMES: &str = "volumes";
const SECONDS_OF_A_MINUTE: f64 = 60.0;

/// The load of one structure in the worst minute.
#[derive(Clone, Debug, PartialEq)]
pub struct BesideLoad {
    /// The structure.
    pub name: String,
    /// Reads of the drives each second.
    pub reads_per_s: f64,
    /// Bytes of one.
    pub read_bytes: f64,
    /// Writes of the drives each second.
    pub writes_per_s: f64,
    /// Bytes of one.
    pub write_bytes: f64,
    /// Bytes that are written each second on average over the record.
    pub written_per_s: f64,
}

impl BesideLoad {
    /// Reads and writes for each operation, of which there are so many each second.
    pub fn of_operation(&self, operations_per_s: f64) -> (f64, f64) {
        (self.reads_per_s / operations_per_s, self.writes_per_s / operations_per_s)
    }
}

/// Entries of the stream by structure and minute: reads, and what is written or made.
#[derive(Debug, Default)]
pub(super) struct BesideScan(BTreeMap<u8, BTreeMap<u64, [u64; 2]>>);

impl BesideScan {
    pub(super) fn add(&mut self, entry: &StreamEntry, minute: u64) {
        let is_written = entry.is_write || entry.is_new;
        let minutes = self.0.entry(entry.structure).or_default();
        minutes.entry(minute).or_default()[usize::from(is_written)] += 1;
    }
}

/// The load of each structure in this minute.
pub(super) fn loads(summary: &Summary, scan: &BesideScan, minute: u64) -> Vec<BesideLoad> {
    let totals = summary.totals();
    let of = |beside: &BesideUse| {
        let structure = usize::from(beside.structure);
        let (name, used) = (summary.structures.get(structure)?, totals.structures.get(structure)?);
        let minutes = scan.0.get(&beside.structure)?;
        Some(load(name, (used, beside), minutes, (minute, summary.seconds.max(1) as f64)))
    };
    summary.beside.iter().filter_map(of).collect()
}

fn load(
    name: &str,
    (used, beside): (&StructureUse, &BesideUse),
    minutes: &BTreeMap<u64, [u64; 2]>,
    (minute, seconds): (u64, f64),
) -> BesideLoad {
    let ratio = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
    let (reads, written) = (used.reads as f64, used.writes as f64 + used.made as f64);
    let written_bytes = used.write_bytes as f64 + used.made_bytes as f64;
    let sampled = |at: usize| minutes.values().map(|counts| counts[at]).sum::<u64>() as f64;
    let in_minute = |at: usize| minutes.get(&minute).map_or(0.0, |counts| counts[at] as f64);
    let per_s = |all: f64, at: usize| ratio(all, sampled(at)) * in_minute(at) / SECONDS_OF_A_MINUTE;
    // Of what has a memory of its own, so large a part is read from the medium.
    let of_medium = beside.device_reads.map_or(1.0, |device| ratio(device as f64, reads).min(1.0));
    let read_bytes = match beside.device_reads.zip(beside.device_read_bytes) {
        Some((many, bytes)) => ratio(bytes as f64, many as f64),
        None => ratio(used.read_bytes as f64, reads),
    };
    let times = if name == VOLUMES { 2.0 } else { 1.0 };
    BesideLoad {
        name: name.to_owned(),
        reads_per_s: per_s(reads, 0) * of_medium,
        read_bytes,
        writes_per_s: per_s(written, 1) * times,
        write_bytes: ratio(written_bytes, written),
        written_per_s: written_bytes * times / seconds,
    }
}
