//! [`Overlay`]: the blocks that are durable in the journals and not yet in place.
//!
//! ```text
//!   write      journals durable  -->  overlay  -->  acknowledged
//!   read       bit set?  overlay   :  in place
//!   checkpoint overlay  -->  in place on every copy, flushed  -->  removed, unless written again meanwhile
//! ```
//!
//! It contains the stored form, which is the same for all copies: one block of memory serves three media.
//!
//! Invariants:
//! 1. Every block in it is durable in the journal of every copy in sync.
//! 2. A block is written in place only while it is in the overlay. So a block that is not in it has no write in progress in place,
//!    except that of a thread that holds its stripe.
//! 3. A reader that finds the bit set and no entry looks again: the checkpoint removes the entry first, then the bit.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::bits::Bits;
use crate::mark::BlockSeal;
use crate::record::Order;

/// Shards: enough that two threads rarely meet.
const SHARDS: u64 = 64;

/// What a block contains.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    /// Its 4096 stored bytes, and their seal if they are encrypted.
    Bytes(Arc<[u8]>, BlockSeal),
    /// Nothing; with `free` its client has given the space up, which a thin volume gives back and another one keeps.
    Zeroes { free: bool },
}

/// A block of the overlay.
#[derive(Clone, Debug)]
pub(crate) struct Fresh {
    pub(crate) order: Order,
    pub(crate) stored: Stored,
}

pub(crate) struct Overlay {
    shards: Vec<Mutex<HashMap<u64, Fresh>>>,
    present: Bits,
    blocks: AtomicU64,
}

/// Without the blocks, which are many.
impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").finish_non_exhaustive()
    }
}

impl Overlay {
    pub(crate) fn new(blocks: u64) -> Overlay {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Overlay { shards, present: Bits::new(blocks), blocks: AtomicU64::new(0) }
    }

    fn shard(&self, block: u64) -> &Mutex<HashMap<u64, Fresh>> {
        &self.shards[(block % SHARDS) as usize]
    }

    /// Blocks in it.
    pub(crate) fn len(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Puts the content of a block; the caller holds its stripe.
    pub(crate) fn put(&self, block: u64, fresh: Fresh) {
        let replaced = self.shard(block).lock().insert(block, fresh);
        if replaced.is_none() {
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
        self.present.set(block);
    }

    /// Whether the block is in it, perhaps.
    #[inline]
    pub(crate) fn has(&self, block: u64) -> bool {
        self.present.get(block)
    }

    pub(crate) fn get(&self, block: u64) -> Option<Stored> {
        self.shard(block).lock().get(&block).map(|fresh| fresh.stored.clone())
    }

    /// All blocks, ascending. The caller holds the gate: no write is being applied.
    pub(crate) fn snapshot(&self) -> Vec<(u64, Fresh)> {
        let mut all: Vec<(u64, Fresh)> = Vec::with_capacity(self.len() as usize);
        for shard in &self.shards {
            all.extend(shard.lock().iter().map(|(block, fresh)| (*block, fresh.clone())));
        }
        all.sort_unstable_by_key(|(block, _)| *block);
        all
    }

    /// Removes the blocks of a snapshot that were not written since.
    pub(crate) fn remove(&self, snapshot: &[(u64, Fresh)]) {
        for (block, fresh) in snapshot {
            let mut shard = self.shard(*block).lock();
            if shard.get(block).is_some_and(|current| current.order == fresh.order) {
                shard.remove(block);
                // Under the shard's lock: a writer that puts the block again sets the bit after this.
                self.present.clear(*block);
                self.blocks.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}
