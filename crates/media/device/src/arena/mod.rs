//! Memory cut into latched frames: what a cache of pages keeps its pages in.
//!
//! ```text
//!   arena   [ slab 1 MiB | slab 1 MiB | slab 1 MiB | ...      mapped, aligned to 2 MiB, large pages advised
//!   slab    [ frame | frame | frame | ...                     all of one class: units << class bytes
//!   unit    the smallest frame; each unit has a latch, that of a frame is its first unit's
//! ```
//!
//! A frame is named by its first unit. A guard ([`Shared`], [`Exclusive`]) holds the frame's latch and gives its bytes; a
//! [`Pinned`] is a guard without a lifetime, for bytes that outlive a call: it pins the frame, and can go to other threads.
//!
//! # Invariants
//!
//! 1. Bytes of a frame are touched only by whoever holds its latch: many who read, or one who writes; a pinned frame cannot be
//!    latched exclusively.
//! 2. The class of a slab changes only while every frame that it had is latched exclusively. Whoever takes a latch looks at
//!    the class after that, and gives it back where his frame does not begin there: so frames under guards never overlap.
//! 3. A slab all of whose frames are free can take another class; which one is decided when a frame is wanted.
//!
//! 1 and 2 make it safe whatever the caller does: the number of a frame that meanwhile is another page's, or of another
//! class, is a wrong answer at worst, and the caller's to find out. That frames are given back once is the caller's too.
//!
//! Latches are fair to those who write: a thread must not take a shared latch that it has. It deliberately does not know what
//! lies in a frame, when it was used, or which to give up.

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

/// See the module's text.
pub struct Arena {
    memory: NodeMemory,
    unit_bytes: usize,
    /// By unit.
    latches: Box<[Latch]>,
    /// By slab.
    classes: Box<[AtomicU8]>,
    frames: Mutex<Frames>,
}

/// A frame's latch, and its pins.
struct Latch {
    raw: RawRwLock,
    /// Goes up under the shared latch, down without any.
    pins: AtomicU32,
}

impl Arena {
    /// Memory wherever the kernel finds it, in units of `unit_bytes`; taken from the machine as it is first used.
    ///
    /// Errors: those of mmap(2). Panics unless `unit_bytes` is a power of two of 4 KiB to [`SLAB_BYTES`], and `slabs` at
    /// least 1.
    pub fn anywhere(slabs: u32, unit_bytes: usize) -> io::Result<Arena> {
        Ok(Arena::over(NodeMemory::anywhere(bytes_of(slabs, unit_bytes))?, slabs, unit_bytes))
    }

    /// Memory of one node, all of it taken now. Errors: no such node, not as much free (`OutOfMemory`), or binding is not
    /// allowed (`Unsupported`). Panics as [`anywhere`](Arena::anywhere).
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

    /// Units in a slab.
    pub fn slab_units(&self) -> u32 {
        (SLAB_BYTES / self.unit_bytes) as u32
    }

    /// How many slabs there are.
    pub fn slabs(&self) -> u32 {
        self.classes.len() as u32
    }

    /// The class whose frames hold at least `bytes`: they have unit bytes << class. Panics beyond [`SLAB_BYTES`].
    pub fn class_of(&self, bytes: usize) -> u8 {
        assert!(bytes <= SLAB_BYTES, "{bytes} bytes are more than a slab");
        bytes.div_ceil(self.unit_bytes).max(1).next_power_of_two().trailing_zeros() as u8
    }

    /// The class of a slab's frames now. It may change at any moment: a hint, but under a guard of one of its frames.
    pub fn class(&self, slab: u32) -> u8 {
        self.classes[slab as usize].load(Ordering::Acquire)
    }

    /// A free frame of a class, latched exclusively, its bytes as they were left; from the first `slabs` slabs only. None
    /// where there is none, nor a slab that could be made into some.
    pub fn allocate(&self, class: u8, slabs: u32) -> Option<Exclusive<'_>> {
        self.allocate_outside(class, slabs, u32::MAX)
    }

    /// The same, but not from the slab `outside`, which is to be emptied.
    pub fn allocate_outside(&self, class: u8, slabs: u32, outside: u32) -> Option<Exclusive<'_>> {
        let reassign = |slab, old| self.reassign(slab, old, class);
        let frame = self.frames.lock().take(class, slabs, outside, reassign)?;
        // Only somebody with a number of old can hold the latch, to find that out and give it back.
        let guard = self.exclusive(frame);
        if guard.is_none() {
            self.frames.lock().give(frame, class);
        }
        guard
    }

    /// Gives a frame back.
    pub fn release(&self, frame: Exclusive<'_>) {
        assert!(std::ptr::eq(frame.arena(), self), "a frame of another arena");
        let (number, class) = (frame.number(), self.class(frame.number() / self.slab_units()));
        drop(frame);
        self.frames.lock().give(number, class);
    }

    /// Frames that are free in slabs that have the class already, and slabs that are free altogether.
    pub fn free(&self, class: u8) -> (u32, u32) {
        self.frames.lock().free(class)
    }

    /// Latches a frame for reading, when those who write are done. None where no frame begins at that unit.
    pub fn shared(&self, frame: u32) -> Option<Shared<'_>> {
        self.latches[frame as usize].raw.lock_shared();
        Shared::of(self, frame)
    }

    /// As [`shared`](Arena::shared), none also where somebody writes or waits for it.
    pub fn try_shared(&self, frame: u32) -> Option<Shared<'_>> {
        if !self.latches[frame as usize].raw.try_lock_shared() {
            return None;
        }
        Shared::of(self, frame)
    }

    /// Latches a frame for writing, when all others have given back their latches. None where no frame begins at that unit,
    /// or where it is pinned by a [`Pinned`].
    pub fn exclusive(&self, frame: u32) -> Option<Exclusive<'_>> {
        self.latches[frame as usize].raw.lock_exclusive();
        Exclusive::of(self, frame)
    }

    /// As [`exclusive`](Arena::exclusive), none also where anybody has a latch.
    pub fn try_exclusive(&self, frame: u32) -> Option<Exclusive<'_>> {
        if !self.latches[frame as usize].raw.try_lock_exclusive() {
            return None;
        }
        Exclusive::of(self, frame)
    }

    /// Whether the frame is pinned now.
    pub fn is_pinned(&self, frame: u32) -> bool {
        self.latches[frame as usize].pins.load(Ordering::Acquire) > 0
    }

    /// A guard without a lifetime; see [`Pinned`].
    pub fn pin(self: &Arc<Arena>, frame: &Shared<'_>, bytes: usize) -> Pinned {
        assert!(std::ptr::eq(frame.arena(), &**self), "a frame of another arena");
        Pinned::of(self, frame, bytes)
    }

    /// Gives a slab whose frames are all free another class; false where somebody holds one of their latches, which passes.
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
        // Every frame of the old class is ours (invariant 2); the latches, given back after this, tell the others.
        self.classes[slab as usize].store(class, Ordering::Release);
        true
    }

    /// The latch's frame, if one begins there: its length in bytes. To be called with the latch held.
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
