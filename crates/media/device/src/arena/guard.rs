//! Guards of frames: a latch and the bytes that it protects, in one value.
//!
//! ```text
//!   Shared      latch shared      &[u8]      released when dropped, by the thread that took it
//!   Exclusive   latch exclusive   &mut [u8]  the same
//!   Pinned      pinned            &[u8]      owns its arena; may be dropped by any thread
//! ```
//!
//! A [`Pinned`] holds no latch: it counts as a pin, which is taken under a shared latch; an exclusive latch is refused
//! while there are pins. So it can be kept for long and passed to other threads, which is impossible with a latch of
//! parking_lot.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::lock_api::RawRwLock as _;

use super::Arena;

/// A frame under a shared latch.
pub struct Shared<'a> {
    arena: &'a Arena,
    frame: u32,
    bytes: usize,
    /// The latch belongs to this thread.
    here: PhantomData<*const u8>,
}

/// A frame under an exclusive latch.
pub struct Exclusive<'a> {
    arena: &'a Arena,
    frame: u32,
    bytes: usize,
    here: PhantomData<*const u8>,
}

impl<'a> Shared<'a> {
    /// Called with the shared latch held. The guard owns it; if no frame begins at that unit, the latch is released.
    pub(super) fn of(arena: &'a Arena, frame: u32) -> Option<Shared<'a>> {
        let mut guard = Shared { arena, frame, bytes: 0, here: PhantomData };
        guard.bytes = arena.frame_bytes(frame)?;
        Some(guard)
    }

    /// The frame's number.
    pub fn number(&self) -> u32 {
        self.frame
    }

    pub(super) fn arena(&self) -> &Arena {
        self.arena
    }
}

impl<'a> Exclusive<'a> {
    /// Called with the exclusive latch held. The guard owns it; if no frame begins at that unit, or the frame is
    /// pinned, the latch is released.
    pub(super) fn of(arena: &'a Arena, frame: u32) -> Option<Exclusive<'a>> {
        let mut guard = Exclusive { arena, frame, bytes: 0, here: PhantomData };
        // Pins are taken under the shared latch, so none can be added now. The Acquire load orders this after the reads
        // of the last pin's holder.
        if arena.latches[frame as usize].pins.load(Ordering::Acquire) > 0 {
            return None;
        }
        guard.bytes = arena.frame_bytes(frame)?;
        Some(guard)
    }

    /// The frame's number.
    pub fn number(&self) -> u32 {
        self.frame
    }

    pub(super) fn arena(&self) -> &Arena {
        self.arena
    }

    /// Converts to a shared guard; no thread writes in between.
    pub fn downgrade(self) -> Shared<'a> {
        let Exclusive { arena, frame, bytes, .. } = self;
        std::mem::forget(self);
        // SAFETY: the exclusive latch was taken by this thread (the guard is not Send) and is not given back by the
        // forgotten guard; from here on the shared latch is the new guard's.
        unsafe { parking_lot::lock_api::RawRwLockDowngrade::downgrade(&arena.latches[frame as usize].raw) };
        Shared { arena, frame, bytes, here: PhantomData }
    }
}

impl Arena {
    /// The address of a frame.
    fn start(&self, frame: u32) -> NonNull<u8> {
        // SAFETY: the frame's latch was found by its number, so that it is below the number of units, all of which lie
        // inside the mapping.
        unsafe { self.memory.base().add(frame as usize * self.unit_bytes) }
    }
}

impl Deref for Shared<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is `bytes` long and inside the mapping. Under its shared latch no thread writes to it, and
        // no other frame overlaps it, because its slab cannot change class (invariants 1 and 2 of the arena). Mapped
        // memory is zeroed, so all of it is initialised.
        unsafe { slice::from_raw_parts(self.arena.start(self.frame).as_ptr(), self.bytes) }
    }
}

impl Deref for Exclusive<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for Shared.
        unsafe { slice::from_raw_parts(self.arena.start(self.frame).as_ptr(), self.bytes) }
    }
}

impl DerefMut for Exclusive<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for Shared. Under the exclusive latch of a frame without pins no other thread reads it, and the
        // borrow of the only guard is exclusive.
        unsafe { slice::from_raw_parts_mut(self.arena.start(self.frame).as_ptr(), self.bytes) }
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        // SAFETY: the guard stands for a shared latch that this thread took (it is not Send) and gives back once.
        unsafe { self.arena.latches[self.frame as usize].raw.unlock_shared() };
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        // SAFETY: as for Shared, exclusive; one that was downgraded was forgotten.
        unsafe { self.arena.latches[self.frame as usize].raw.unlock_exclusive() };
    }
}

/// Bytes of a frame that stay in place, unchanged, while this lives: the frame cannot be latched exclusively. It keeps
/// its arena alive, can be sent to any thread, and can be passed to `Bytes::from_owner`.
pub struct Pinned {
    arena: Arc<Arena>,
    frame: u32,
    bytes: usize,
}

impl Pinned {
    pub(super) fn of(arena: &Arc<Arena>, frame: &Shared<'_>, bytes: usize) -> Pinned {
        assert!(bytes <= frame.len(), "{bytes} bytes of a frame of {}", frame.len());
        let pins = &arena.latches[frame.number() as usize].pins;
        let before = pins.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "pins are counted in 32 bits");
        Pinned { arena: Arc::clone(arena), frame: frame.number(), bytes }
    }

    /// The frame's number.
    pub fn number(&self) -> u32 {
        self.frame
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the pin was taken under the shared latch, and Exclusive::of refuses while it is counted. So no thread
        // writes to the frame, and its slab keeps its class (reassigning needs every frame exclusively). The arena
        // lives as long as this.
        unsafe { slice::from_raw_parts(self.arena.start(self.frame).as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Release: everything that was read through the pin was read before another thread sees the frame without pins.
        self.arena.latches[self.frame as usize].pins.fetch_sub(1, Ordering::Release);
    }
}

impl fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.frame)
    }
}

impl fmt::Debug for Exclusive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exclusive({})", self.frame)
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({}, {} bytes)", self.frame, self.bytes)
    }
}
