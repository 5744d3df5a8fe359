//! Structures whose accesses do not go through the page cache: index files of search, blocks of volumes.
//!
//! Each has a sample of its own, whose distances count its own bytes alone: it has a memory of its own, or none. Its keys are in the stream as
//! all others are.

use serde::{Deserialize, Serialize};

use crate::reuse::{Sampled, Shards};

/// A structure beside the page cache, in a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BesideUse {
    /// Its number in [`Summary::structures`](crate::Summary::structures).
    pub structure: u8,
    /// Keys that were used: an estimate.
    pub touched_keys: u64,
    /// Their bytes: an estimate.
    pub touched_bytes: u64,
    /// Reads from a device, of one that has a memory of its own; none: each read is one.
    pub device_reads: Option<u64>,
    /// Their bytes.
    pub device_read_bytes: Option<u64>,
}

/// The sample of one of them.
pub(crate) struct BesideSample {
    structure: u8,
    shards: Shards,
    device_reads: Option<(u64, u64)>,
}

impl BesideSample {
    /// What the sample says about an access; hashes at or above `most` are not passed any more.
    pub(crate) fn access(&mut self, hash: u64, bytes: u64, most: u64) -> Option<Sampled> {
        if most < self.shards.threshold().unwrap_or(u64::MAX) {
            self.shards.lower(most);
        }
        self.shards.access(hash, bytes)
    }

    /// Adds reads from a device, and their bytes.
    pub(crate) fn add_device_reads(&mut self, (many, bytes): (u64, u64)) {
        let (many_before, bytes_before) = self.device_reads.unwrap_or_default();
        self.device_reads = Some((many_before + many, bytes_before + bytes));
    }

    fn report(&self) -> BesideUse {
        let (keys, bytes) = self.shards.touched();
        BesideUse {
            structure: self.structure,
            touched_keys: keys.round() as u64,
            touched_bytes: bytes.round() as u64,
            device_reads: self.device_reads.map(|(many, _)| many),
            device_read_bytes: self.device_reads.map(|(_, bytes)| bytes),
        }
    }
}

/// The samples of all of them.
pub(crate) struct BesideSamples(Vec<BesideSample>);

impl BesideSamples {
    /// Samples of so many keys each.
    pub(crate) fn of(structures: &[u8], keys: usize) -> BesideSamples {
        let sample =
            |structure: &u8| BesideSample { structure: *structure, shards: Shards::new(keys), device_reads: None };
        BesideSamples(structures.iter().map(sample).collect())
    }

    /// That of a structure, if it is beside the page cache.
    pub(crate) fn of_structure(&mut self, structure: u8) -> Option<&mut BesideSample> {
        self.0.iter_mut().find(|beside| beside.structure == structure)
    }

    pub(crate) fn has(&self, structure: usize) -> bool {
        self.0.iter().any(|beside| usize::from(beside.structure) == structure)
    }

    /// Keys and bytes that were used of one of them: estimates.
    pub(crate) fn touched(&self, structure: u8) -> Option<(f64, f64)> {
        self.0.iter().find(|beside| beside.structure == structure).map(|beside| beside.shards.touched())
    }

    pub(crate) fn lower(&mut self, threshold: u64) {
        self.0.iter_mut().for_each(|beside| beside.shards.lower(threshold));
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.iter().map(|beside| beside.shards.memory_bytes()).sum()
    }

    pub(crate) fn report(&self) -> Vec<BesideUse> {
        self.0.iter().map(BesideSample::report).collect()
    }
}
