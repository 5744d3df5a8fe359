//! [`Stripes`]: locks over blocks, so that two writes of one block follow each other on all copies alike.
//!
//! Neighbouring blocks have different stripes: sequential writes of a block each, many at a time, share a group commit instead of
//! waiting for each other. A write of many blocks locks its stripes in ascending order, so no two threads wait for each other.

use parking_lot::{Mutex, MutexGuard};

/// Stripes of a volume; a write has at most [`PIECE_BLOCKS`] blocks at a time.
const STRIPES: u64 = 1024;

/// The largest number of blocks that are written as one record: 256 KiB.
pub(crate) const PIECE_BLOCKS: u64 = 64;

#[derive(Debug)]
pub(crate) struct Stripes {
    locks: Vec<Mutex<()>>,
}

/// Holds the stripes of some blocks.
#[derive(Debug)]
pub(crate) struct Held<'s> {
    _guards: Vec<MutexGuard<'s, ()>>,
}

impl Stripes {
    pub(crate) fn new() -> Stripes {
        Stripes { locks: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }

    /// Locks the stripes of `blocks` blocks from `first` on.
    pub(crate) fn lock(&self, first: u64, blocks: u64) -> Held<'_> {
        assert!(blocks <= PIECE_BLOCKS, "a write is cut into pieces");
        let mut wanted: Vec<u64> = (first..first + blocks).map(|block| block % STRIPES).collect();
        wanted.sort_unstable();
        Held { _guards: wanted.into_iter().map(|stripe| self.locks[stripe as usize].lock()).collect() }
    }

    /// As [`lock`](Stripes::lock), if none of them is held by another.
    pub(crate) fn try_lock(&self, first: u64, blocks: u64) -> Option<Held<'_>> {
        let guards: Option<Vec<_>> =
            (first..first + blocks).map(|block| self.locks[(block % STRIPES) as usize].try_lock()).collect();
        guards.map(|guards| Held { _guards: guards })
    }
}
