//! A tier's frames: an arena, the page that owns each frame, and the CLOCK hand over them.
//!
//! A frame that its page has left while it is still being read (through a pin, or by a reader that is about to notice)
//! is *retired*: it has no owner, and returns to the arena once its latch is free.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use device::Arena;
use device::arena::{Exclusive, SLAB_BYTES};
use parking_lot::Mutex;

use super::state::Place;
use crate::page::PageId;

/// Owner of a frame that has none.
const NOBODY: u32 = u32::MAX;

/// See the head comment of this file.
pub(super) struct Tier {
    pub(super) place: Place,
    pub(super) arena: Arc<Arena>,
    /// Slabs in the budget; the arena's other slabs are used only if all of these are dirty or in use.
    pub(super) slabs: u32,
    /// Indexed by unit.
    owners: Box<[AtomicU32]>,
    hand: AtomicU32,
    retired: Mutex<Vec<u32>>,
}

impl Tier {
    pub(super) fn new(place: Place, arena: Arena, slabs: u32) -> Tier {
        let units = arena.slabs() * arena.slab_units();
        Tier {
            place,
            arena: Arc::new(arena),
            slabs,
            owners: (0..units).map(|_| AtomicU32::new(NOBODY)).collect(),
            hand: AtomicU32::new(0),
            retired: Mutex::default(),
        }
    }

    /// Bytes in the budget.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.slabs) * SLAB_BYTES as u64
    }

    pub(super) fn units(&self) -> u32 {
        self.owners.len() as u32
    }

    pub(super) fn owner(&self, frame: u32) -> Option<PageId> {
        let owner = self.owners[frame as usize].load(Ordering::Relaxed);
        (owner != NOBODY).then_some(PageId(owner))
    }

    pub(super) fn set_owner(&self, frame: u32, page: PageId) {
        self.owners[frame as usize].store(page.0, Ordering::Relaxed);
    }

    /// Releases a frame that no word refers to.
    pub(super) fn release(&self, frame: Exclusive<'_>) {
        self.owners[frame.number() as usize].store(NOBODY, Ordering::Relaxed);
        self.arena.release(frame);
    }

    /// Releases a frame that other threads may still read.
    pub(super) fn retire(&self, frame: u32) {
        self.owners[frame as usize].store(NOBODY, Ordering::Relaxed);
        match self.arena.try_exclusive(frame) {
            Some(guard) => self.arena.release(guard),
            None => self.retired.lock().push(frame),
        }
    }

    /// Releases retired frames that are no longer read; returns whether there were any.
    pub(super) fn reap(&self) -> bool {
        let mut retired = self.retired.lock();
        let before = retired.len();
        retired.retain(|frame| match self.arena.try_exclusive(*frame) {
            Some(guard) => {
                self.arena.release(guard);
                false
            }
            None => true,
        });
        retired.len() < before
    }

    /// Returns the next frame under the hand. The hand also passes the slabs beyond the budget, so that they become
    /// free.
    pub(super) fn next(&self) -> u32 {
        let slab_units = self.arena.slab_units();
        let step = |unit: u32| {
            let class = self.arena.class(unit / slab_units);
            let next = ((unit >> class) + 1) << class;
            Some(if next >= self.units() { 0 } else { next })
        };
        // The closure always returns a value, so both arms contain the old position.
        let (Ok(unit) | Err(unit)) = self.hand.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        unit
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("place", &self.place).field("bytes", &self.bytes()).finish()
    }
}
