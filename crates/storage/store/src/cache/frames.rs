//! A tier's frames: an arena, which page each frame is of, and the clock's hand over them.
//!
//! A frame that its page left while somebody still reads it (a pin, a reader about to find out) is *retired*: nobody's, and
//! given back to the arena once its latch can be had.

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

/// See the file's essay.
pub(super) struct Tier {
    pub(super) place: Place,
    pub(super) arena: Arc<Arena>,
    /// Slabs in the budget; the arena's others are for when all of these are dirty or in use.
    pub(super) slabs: u32,
    /// By unit.
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

    /// Gives a frame back that no word names any more.
    pub(super) fn release(&self, frame: Exclusive<'_>) {
        self.owners[frame.number() as usize].store(NOBODY, Ordering::Relaxed);
        self.arena.release(frame);
    }

    /// The same for a frame that others may still look at.
    pub(super) fn retire(&self, frame: u32) {
        self.owners[frame as usize].store(NOBODY, Ordering::Relaxed);
        match self.arena.try_exclusive(frame) {
            Some(guard) => self.arena.release(guard),
            None => self.retired.lock().push(frame),
        }
    }

    /// Gives back what retired and is not looked at any more; whether there was any.
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

    /// The next frame under the hand. It goes over the slabs beyond the budget as well, so that they come free.
    pub(super) fn next(&self) -> u32 {
        let slab_units = self.arena.slab_units();
        let step = |unit: u32| {
            let class = self.arena.class(unit / slab_units);
            let next = ((unit >> class) + 1) << class;
            Some(if next >= self.units() { 0 } else { next })
        };
        // Always an update, so that both arms hold the old position.
        let (Ok(unit) | Err(unit)) = self.hand.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        unit
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("place", &self.place).field("bytes", &self.bytes()).finish()
    }
}
