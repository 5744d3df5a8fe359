//! Memory divided into latched frames, in which a cache of pages keeps its pages.
//!
//! ```text
//!   arena   [ slab 1 MiB | slab 1 MiB | slab 1 MiB | ...      mapped, aligned to 2 MiB, large pages advised
//!   slab    [ frame | frame | frame | ...                     all of one class: units << class bytes
//!   unit    the smallest frame; each unit has a latch, that of a frame is its first unit's
//! ```
//!
//! A frame is identified by its first unit. A guard ([`Shared`], [`Exclusive`]) holds the frame's latch and gives
//! access to its bytes. A [`Pinned`] is a guard without a lifetime, for bytes that outlive a call: it pins the frame,
//! and can be sent to other threads.
//!
//! # Invariants
//!
//! 1. Only a thread that holds a frame's latch accesses its bytes: many readers, or one writer. A pinned frame cannot
//!    be latched exclusively.
//! 2. The class of a slab changes only while all of its frames are latched exclusively. A thread that takes a latch
//!    then reads the class, and releases the latch if its frame does not begin there: so frames under guards never
//!    overlap.
//! 3. A slab whose frames are all free can change its class; the class is chosen when a frame is requested.
//!
//! Invariants 1 and 2 make the arena memory-safe whatever the caller does. A stale frame number, which now belongs to
//! another page or another class, gives at worst a wrong result, and the caller must detect that. The caller must also
//! ensure that each frame is released once.
//!
//! Latches are fair to writers: a thread must not take a shared latch that it already has. The arena keeps no
//! record of what a frame contains, when it was used, or which one to evict.

mod guard;
mod memory;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use parking_lot::lock_api::RawRwLock as _;
use parking_lot::{Mutex, RawRwLock};

pub use guard::{Exclusive, Pinned, Shared};
use memory::Frames;

use crate::memory::NodeMemory;

/// Bytes of a slab, and of the largest frame.
pub const SLAB_BYTES: usize = 1 << 20;

/// Smallest unit, bytes: the bitmap of a slab has 256 bits.
const UNIT_BYTES_MIN: usize = 4096;

/// See the head comment of this module.
pub struct Arena {
    memory: NodeMemory,
    unit_bytes: usize,
    /// Indexed by unit.
    latches: Box<[Latch]>,
    /// Indexed by slab.
    classes: Box<[AtomicU8]>,
    frames: Mutex<Frames>,
}

/// A frame's latch and its pins.
struct Latch {
    raw: RawRwLock,
    /// Increased under the shared latch, decreased without a latch.
    pins: AtomicU32,
}

impl Arena {
    /// Memory from any node that the kernel chooses, in units of `unit_bytes`; allocated as it is first used.
    ///
    /// Errors: those of mmap(2). Panics unless `unit_bytes` is a power of two of 4 KiB to [`SLAB_BYTES`], and `slabs` at
    /// least 1.
    pub fn anywhere(slabs: u32, unit_bytes: usize) -> io::Result<Arena> {
        Ok(Arena::over(NodeMemory::anywhere(bytes_of(slabs, unit_bytes))?, slabs, unit_bytes))
    }

    /// Memory of one node, all of it allocated now. Errors: no such node, not enough free memory (`OutOfMemory`), or
    /// binding is not allowed (`Unsupported`). Panics as [`anywhere`](Arena::anywhere).
    pub fn on_node(node: u32, slabs: u32, unit_bytes: usize) -> io::Result<Arena> {
        Ok(Arena::over(NodeMemory::zeroed(node, bytes_of(slabs, unit_bytes))?, slabs, unit_bytes))
    }

    fn over(memory: NodeMemory, slabs: u32, unit_bytes: usize) -> Arena {
        let units = slabs as usize * (SLAB_BYTES / unit_bytes);
        assert!(u32::try_from(units).is_ok(), "units are counted in 32 bits");
        let latch = |_| Latch { raw: RawRwLock::INIT, pins: AtomicU32::new(0) };
        Arena {
            memory,
            unit_bytes,
            latches: (0..units).map(latch).collect(),
            classes: (0..slabs).map(|_| AtomicU8::new(0)).collect(),
            frames: Mutex::new(Frames::new(slabs, SLAB_BYTES / unit_bytes)),
        }
    }

    /// Bytes of the smallest frame.
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Number of units in a slab.
    pub fn slab_units(&self) -> u32 {
        (SLAB_BYTES / self.unit_bytes) as u32
    }

    /// Number of slabs.
    pub fn slabs(&self) -> u32 {
        self.classes.len() as u32
    }

    /// The class whose frames have at least `bytes`: their size is the unit << class. Panics beyond [`SLAB_BYTES`].
    pub fn class_of(&self, bytes: usize) -> u8 {
        assert!(bytes <= SLAB_BYTES, "{bytes} bytes are more than a slab");
        bytes.div_ceil(self.unit_bytes).max(1).next_power_of_two().trailing_zeros() as u8
    }

    /// The current class of a slab's frames. It may change at any moment, unless the caller has a guard of one of its
    /// frames.
    pub fn class(&self, slab: u32) -> u8 {
        self.classes[slab as usize].load(Ordering::Acquire)
    }

    /// Returns a free frame of a class, latched exclusively, with its previous content; from the first `slabs` slabs
    /// only. `None` if there is none, and no slab that could be divided.
    pub fn allocate(&self, class: u8, slabs: u32) -> Option<Exclusive<'_>> {
        self.allocate_outside(class, slabs, u32::MAX)
    }

    /// As [`allocate`](Arena::allocate), but not from the slab `outside`, which is being emptied.
    pub fn allocate_outside(&self, class: u8, slabs: u32, outside: u32) -> Option<Exclusive<'_>> {
        let reassign = |slab, old| self.reassign(slab, old, class);
        let frame = self.frames.lock().take(class, slabs, outside, reassign)?;
        // Only a thread with a stale frame number can hold the latch; it notices that and releases it.
        let guard = self.exclusive(frame);
        if guard.is_none() {
            self.frames.lock().give(frame, class);
        }
        guard
    }

    /// Releases a frame.
    pub fn release(&self, frame: Exclusive<'_>) {
        assert!(std::ptr::eq(frame.arena(), self), "a frame of another arena");
        let (number, class) = (frame.number(), self.class(frame.number() / self.slab_units()));
        drop(frame);
        self.frames.lock().give(number, class);
    }

    /// Free frames in slabs that already have the class, and slabs that are completely free.
    pub fn free(&self, class: u8) -> (u32, u32) {
        self.frames.lock().free(class)
    }

    /// Latches a frame for reading; waits for writers. `None` if no frame begins at that unit.
    pub fn shared(&self, frame: u32) -> Option<Shared<'_>> {
        self.latches[frame as usize].raw.lock_shared();
        Shared::of(self, frame)
    }

    /// As [`shared`](Arena::shared); also `None` if a thread writes or waits to write.
    pub fn try_shared(&self, frame: u32) -> Option<Shared<'_>> {
        if !self.latches[frame as usize].raw.try_lock_shared() {
            return None;
        }
        Shared::of(self, frame)
    }

    /// Latches a frame for writing; waits until all other latches are released. `None` if no frame begins at that unit,
    /// or if it is pinned by a [`Pinned`].
    pub fn exclusive(&self, frame: u32) -> Option<Exclusive<'_>> {
        self.latches[frame as usize].raw.lock_exclusive();
        Exclusive::of(self, frame)
    }

    /// As [`exclusive`](Arena::exclusive); also `None` if any thread has a latch.
    pub fn try_exclusive(&self, frame: u32) -> Option<Exclusive<'_>> {
        if !self.latches[frame as usize].raw.try_lock_exclusive() {
            return None;
        }
        Exclusive::of(self, frame)
    }

    /// Whether the frame is currently pinned.
    pub fn is_pinned(&self, frame: u32) -> bool {
        self.latches[frame as usize].pins.load(Ordering::Acquire) > 0
    }

    /// A guard without a lifetime; see [`Pinned`].
    pub fn pin(self: &Arc<Arena>, frame: &Shared<'_>, bytes: usize) -> Pinned {
        assert!(std::ptr::eq(frame.arena(), &**self), "a frame of another arena");
        Pinned::of(self, frame, bytes)
    }

    /// Changes the class of a slab whose frames are all free; returns `false` if a thread temporarily holds one of
    /// their latches.
    fn reassign(&self, slab: u32, old: u8, class: u8) -> bool {
        let first = slab * self.slab_units();
        let frames = (first..first + self.slab_units()).step_by(1 << old);
        let mut held = Vec::with_capacity(frames.len());
        for frame in frames {
            match self.try_exclusive(frame) {
                Some(guard) => held.push(guard),
                None => return false,
            }
        }
        // This thread holds every frame of the old class (invariant 2); the latches are released after this, so others
        // see the new class.
        self.classes[slab as usize].store(class, Ordering::Release);
        true
    }

    /// The length of the frame that begins at this unit, if one does. Called with the latch held.
    fn frame_bytes(&self, frame: u32) -> Option<usize> {
        let class = self.class(frame / self.slab_units());
        frame.is_multiple_of(1 << class).then(|| self.unit_bytes << class)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("slabs", &self.slabs()).field("unit_bytes", &self.unit_bytes).finish()
    }
}

fn bytes_of(slabs: u32, unit_bytes: usize) -> usize {
    let possible = unit_bytes.is_power_of_two() && (UNIT_BYTES_MIN..=SLAB_BYTES).contains(&unit_bytes);
    assert!(possible, "a unit is a power of two from {UNIT_BYTES_MIN} to {SLAB_BYTES} bytes, not {unit_bytes}");
    assert!(slabs > 0, "an arena has at least one slab");
    slabs as usize * SLAB_BYTES
}
