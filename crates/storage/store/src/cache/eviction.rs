//! Eviction: selects the page that leaves memory when another needs its frame.
//!
//! ```text
//!   free frame of the class?  ->  use it
//!   CLOCK over the frames:    used      -> its usage count goes down, skipped
//!                             clean     -> evicted
//!                             fresh     -> written in place, evicted (early write-back)
//!                             dirty, in the checkpoint, latched, pinned -> skipped
//!   slabs of other classes:   emptied if few of their frames are in use; these, and those that cannot be evicted, are
//!                             moved to other slabs of their class
//!   nothing after some rounds -> slabs beyond the budget, or Full
//! ```
//!
//! A page that leaves near memory goes to far memory if there is any (far.rs). A page survives up to three rounds of
//! the hand after its last use. After three unsuccessful rounds usage counts are ignored. Eviction never waits for a
//! latch, because the caller may hold latches.

use std::sync::atomic::{AtomicBool, Ordering};

use device::AlignedBuffer;
use device::arena::Exclusive;

use super::Cache;
use super::far::Hint;
use super::frames::Tier;
use super::metrics::Count;
use super::ring::ScannedPage;
use super::slots::Writing;
use super::state::{Flag, Place, State};
use crate::StoreError;
use crate::page::{self, PageId};

/// Rounds of the hand after which usage counts are ignored; and after which eviction fails.
const ROUNDS_COUNTED: u32 = 4;
const ROUNDS: u32 = 6;

/// A slab is used for another class only if at most one in this many of its frames is in use.
const SLAB_IN_USE: u32 = 8;

/// After unsuccessful rounds: a slab is used for another class only if at most one in this many of its frames contains
/// changes that cannot leave memory.
const SLAB_STAYING: u32 = 2;

/// Pause between two attempts while a checkpoint frees space: a device writes dozens of pages in that time.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// The error if no slot is available.
pub(super) fn full() -> StoreError {
    StoreError::Full("all memory for inner pages is changed; give the page cache more memory".into())
}

/// The result of an attempt to evict a frame's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictOutcome {
    /// The frame is free.
    Evicted,
    /// Its usage count went down.
    Used,
    /// It cannot be evicted now.
    Held,
}

impl Cache {
    /// Returns a free frame for `pages` pages, latched exclusively and without an owner.
    pub(super) fn frame<'a>(&'a self, tier: &'a Tier, pages: u32) -> Result<Exclusive<'a>, StoreError> {
        let class = tier.arena.class_of(pages as usize * self.page_bytes);
        if let Some(frame) = tier.arena.allocate(class, tier.slabs) {
            return Ok(frame);
        }
        tier.reap();
        let mut failed = None;
        // Units are those of the smallest class; a round over larger frames takes fewer steps.
        let mut steps = 0;
        let round = tier.units();
        while steps < ROUNDS * round {
            if let Some(frame) = tier.arena.allocate(class, tier.slabs) {
                return Ok(frame);
            }
            let count_usage = steps < ROUNDS_COUNTED * round;
            match self.sweep(tier, class, count_usage) {
                Ok(units) => steps += units,
                Err(error) => {
                    failed = Some(error);
                    steps += round / 4 + 1;
                }
            }
        }
        tier.reap();
        let frame = tier.arena.allocate(class, tier.arena.slabs());
        frame.ok_or_else(|| {
            failed.unwrap_or_else(|| {
                let bytes = tier.bytes();
                let text = format!("all {bytes} bytes of the page cache are in use or changed; give it more memory");
                StoreError::Full(text.into())
            })
        })
    }

    /// Retries `take` while there is no space and a running checkpoint will free some. It does not retry while the
    /// checkpoint waits for space on its own medium, which may last for ever. Latches of the caller do not block the
    /// checkpoint: a page that the caller holds for writing has a pre-image if it is in the checkpoint.
    pub(super) fn in_time<T>(&self, take: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        loop {
            let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
            let is_checkpointing =
                is(&self.checkpointing) && !is(&self.checkpoint_failed) && !is(&self.checkpoint_waits);
            match take() {
                Err(StoreError::Full(_)) if is_checkpointing => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
    }

    /// Returns a free frame for a page that is read from its device. If none is free, a scan reuses a frame of its
    /// ring.
    pub(super) fn frame_for(&self, pages: u32, hint: Hint) -> Result<Exclusive<'_>, StoreError> {
        if hint == Hint::Point {
            return self.frame(&self.main, pages);
        }
        let tier = &self.main;
        let class = tier.arena.class_of(pages as usize * self.page_bytes);
        if let Some(frame) = tier.arena.allocate(class, tier.slabs) {
            return Ok(frame);
        }
        tier.reap();
        // Entries of pages that other readers use, or that have left, no longer belong to the ring.
        while let Some(entry) = self.ring.pop() {
            let ours = |(page, state): (PageId, State)| page == entry.page && state.usage() == 0;
            if !self.of_frame(tier, entry.frame).is_some_and(ours) {
                continue;
            }
            if self.try_evict(tier, entry.frame, false)? == EvictOutcome::Evicted
                && let Some(frame) = tier.arena.allocate(class, tier.slabs)
            {
                return Ok(frame);
            }
        }
        self.frame(tier, pages)
    }

    /// Adds a page that a scan read to the ring.
    pub(super) fn scanned(&self, page: PageId, frame: &Exclusive<'_>) {
        self.ring.push(ScannedPage { page, frame: frame.number(), bytes: frame.len() as u64 });
    }

    /// Returns a frame of far memory for a page that leaves near memory; evicts another page only if `displaces`.
    pub(super) fn far_frame<'a>(&'a self, far: &'a Tier, pages: u32, displaces: bool) -> Option<Exclusive<'a>> {
        let class = far.arena.class_of(pages as usize * self.page_bytes);
        if let Some(frame) = far.arena.allocate(class, far.slabs) {
            return Some(frame);
        }
        if !displaces {
            return None;
        }
        far.reap();
        let mut steps = 0;
        while steps < ROUNDS * far.units() {
            steps += self.sweep(far, class, steps < ROUNDS_COUNTED * far.units()).ok()?;
            if let Some(frame) = far.arena.allocate(class, far.slabs) {
                return Some(frame);
            }
        }
        None
    }

    /// Moves the hand until a frame is evicted, or past one slab; returns how many units it passed.
    fn sweep(&self, tier: &Tier, class: u8, count_usage: bool) -> Result<u32, StoreError> {
        let slab_units = tier.arena.slab_units();
        let mut passed = 0;
        while passed < slab_units {
            let frame = tier.next();
            let slab = frame / slab_units;
            let own = tier.arena.class(slab);
            if own != class && frame.is_multiple_of(slab_units) && self.is_idle(tier, slab, count_usage) {
                self.empty(tier, slab, own)?;
                return Ok(passed + slab_units);
            }
            passed += 1 << own;
            // For frames of another class only the usage count goes down.
            if own != class {
                self.decrement_usage(tier, frame);
            } else if self.try_evict(tier, frame, count_usage)? == EvictOutcome::Evicted {
                break;
            }
        }
        Ok(passed)
    }

    /// Whether a slab can be emptied: few frames are in use, and all of these can move.
    fn is_idle(&self, tier: &Tier, slab: u32, count_usage: bool) -> bool {
        let first = slab * tier.arena.slab_units();
        let frames = (first..first + tier.arena.slab_units()).step_by(1 << tier.arena.class(slab));
        let many = frames.len() as u32;
        let (mut in_use, mut must_stay) = (0, 0);
        for frame in frames {
            if let Some((_, state)) = self.of_frame(tier, frame) {
                if tier.arena.is_pinned(frame) {
                    return false;
                }
                let stays = !state.is_clean() && !state.may_write_early() && !self.has_below(tier);
                must_stay += u32::from(stays);
                in_use += u32::from(stays || state.usage() > 0);
            }
        }
        if count_usage { in_use * SLAB_IN_USE <= many } else { must_stay * SLAB_STAYING <= many }
    }

    /// Evicts the pages of a slab, or moves them to other slabs of the class.
    fn empty(&self, tier: &Tier, slab: u32, class: u8) -> Result<(), StoreError> {
        let first = slab * tier.arena.slab_units();
        for frame in (first..first + tier.arena.slab_units()).step_by(1 << class) {
            let is_used = self.of_frame(tier, frame).is_some_and(|(_, state)| state.usage() > 0);
            if is_used && self.relocate(tier, frame, slab, class)? {
                continue;
            }
            if self.try_evict(tier, frame, false)? != EvictOutcome::Evicted {
                self.relocate(tier, frame, slab, class)?;
            }
        }
        Ok(())
    }

    /// Moves a page to another slab of its class; returns `false` if it is latched or there is no space.
    fn relocate(&self, tier: &Tier, frame: u32, slab: u32, class: u8) -> Result<bool, StoreError> {
        let Some((page, _)) = self.of_frame(tier, frame) else { return Ok(false) };
        let Some(mut to) = self.frame_outside(tier, class, slab)? else { return Ok(false) };
        let from = tier.arena.try_exclusive(frame);
        match (&from, self.of_frame(tier, frame)) {
            // Another thread may have emptied the slab and given it another class.
            (Some(from), Some((now, state))) if now == page && from.len() == to.len() => {
                to.copy_from_slice(from);
                self.moved(page, state, &to, tier);
                self.counters.add(Count::Relocation, 1);
            }
            _ => {
                tier.release(to);
                return Ok(false);
            }
        }
        from.into_iter().for_each(|from| tier.release(from));
        Ok(true)
    }

    /// Returns a free frame of a class in another slab than `slab`; evicts a page if necessary.
    fn frame_outside<'a>(&'a self, tier: &'a Tier, class: u8, slab: u32) -> Result<Option<Exclusive<'a>>, StoreError> {
        let slab_units = tier.arena.slab_units();
        let mut steps = 0;
        loop {
            if let Some(frame) = tier.arena.allocate_outside(class, tier.slabs, slab) {
                return Ok(Some(frame));
            }
            if steps >= 2 * tier.units() {
                return Ok(None);
            }
            let frame = tier.next();
            let own = tier.arena.class(frame / slab_units);
            steps += 1 << own;
            if own == class && frame / slab_units != slab {
                self.try_evict(tier, frame, true)?;
            }
        }
    }

    /// Whether pages that leave this tier may go to another.
    fn has_below(&self, tier: &Tier) -> bool {
        tier.place == Place::Near && self.far.is_some()
    }

    /// Returns the page that owns a frame, if the page's word agrees.
    fn of_frame(&self, tier: &Tier, frame: u32) -> Option<(PageId, State)> {
        let page = tier.owner(frame)?;
        let state = self.state(page);
        (state.place() == tier.place && state.frame() == frame).then_some((page, state))
    }

    fn decrement_usage(&self, tier: &Tier, frame: u32) -> bool {
        let Some((page, _)) = self.of_frame(tier, frame) else { return false };
        let here = |state: State| state.place() == tier.place && state.frame() == frame && state.usage() > 0;
        self.change(page, |state| here(state).then(|| state.with_usage(state.usage() - 1))).is_ok()
    }

    /// Tries to evict the frame's page.
    fn try_evict(&self, tier: &Tier, frame: u32, count_usage: bool) -> Result<EvictOutcome, StoreError> {
        if count_usage && self.decrement_usage(tier, frame) {
            return Ok(EvictOutcome::Used);
        }
        let Some((page, state)) = self.of_frame(tier, frame) else { return Ok(EvictOutcome::Held) };
        if !state.is_clean() && !state.may_write_early() && !self.has_below(tier) {
            return Ok(EvictOutcome::Held);
        }
        let Some(mut guard) = tier.arena.try_exclusive(frame) else { return Ok(EvictOutcome::Held) };
        // Under the latch the page's place cannot change, but a checkpoint can begin.
        let state = match self.of_frame(tier, frame) {
            Some((now, state)) if now == page => state,
            _ => return Ok(EvictOutcome::Held),
        };
        if self.has_below(tier) && self.demote(page, state, &guard) {
            tier.release(guard);
            return Ok(EvictOutcome::Evicted);
        }
        if state.may_write_early() && !self.written_early(page, state, &mut guard)? {
            return Ok(EvictOutcome::Held);
        }
        if !self.leave(page, state) {
            return Ok(EvictOutcome::Held);
        }
        tier.release(guard);
        Ok(EvictOutcome::Evicted)
    }

    /// Removes a clean page from memory, if it is still at the place in `from`.
    fn leave(&self, page: PageId, from: State) -> bool {
        let left = self.left.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let leave = |state: State| (state.is_where(from) && state.is_clean()).then(|| state.nowhere(left));
        let gone = self.change(page, leave).is_ok();
        if gone {
            self.counters.add(Count::Eviction, 1);
        }
        gone
    }

    /// Writes a fresh page in place; returns `false` if the store is poisoned, so that the page stays in memory: who reads another
    /// one must not get that error.
    fn written_early(&self, page: PageId, state: State, bytes: &mut [u8]) -> Result<bool, StoreError> {
        match self.write_early(page, state, bytes) {
            Err(StoreError::Poisoned { .. }) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Writes a fresh page in place, so that it is clean. If a checkpoint begins meanwhile, the checkpoint writes the
    /// page again after this write, because it waits for the latch that the caller holds. So this write ends before
    /// anything durable refers to the page.
    fn write_early(&self, page: PageId, state: State, bytes: &mut [u8]) -> Result<(), StoreError> {
        let bytes = &mut bytes[..state.pages() as usize * self.page_bytes];
        match (state.has(Flag::Extent), self.backing.sealer()) {
            (true, None) => self.backing.write(page, bytes)?,
            (true, sealer @ Some(_)) => {
                let mut image = AlignedBuffer::from(&*bytes);
                page::encrypted::seal_extent_again(sealer, page, &mut image)?;
                self.backing.write(page, &image)?;
            }
            (false, None) => {
                page::seal(page, bytes);
                self.backing.write(page, bytes)?;
            }
            // The frame stays readable: only a copy is encrypted.
            (false, sealer @ Some(_)) => {
                let mut image = AlignedBuffer::from(&*bytes);
                page::encrypted::seal_with(sealer, page, &mut image);
                self.backing.write(page, &image)?;
            }
        }
        self.counters.add(Count::EarlyWrite, 1);
        self.counters.add(Count::EarlyWriteBytes, bytes.len() as u64);
        // If a checkpoint has begun, it writes the page again or refers to it from now on: the word then stays as the
        // checkpoint set it.
        let _ = self.change(page, |state| state.may_write_early().then(|| state.without(Flag::Dirty)));
        Ok(())
    }

    /// Returns a slot without an owner for an inner page, locked for writing.
    pub(super) fn slot(&self) -> Result<Writing<'_>, StoreError> {
        if let Some(slot) = self.slots.take(false) {
            return Ok(slot);
        }
        let mut failed = None;
        for step in 0..ROUNDS * self.slots.made() {
            let (slot, made) = self.slots.next();
            match self.try_evict_slot(slot, step < ROUNDS_COUNTED * made) {
                Ok(Some(writing)) => return Ok(writing),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        self.slots.take(true).ok_or_else(|| failed.unwrap_or_else(full))
    }

    /// Tries to evict a slot's page.
    fn try_evict_slot(&self, slot: u32, count_usage: bool) -> Result<Option<Writing<'_>>, StoreError> {
        let Some(page) = self.slots.owner(slot) else { return Ok(None) };
        let here = |state: State| state.place() == Place::Slot && state.frame() == slot;
        if count_usage {
            let down = |state: State| (here(state) && state.usage() > 0).then(|| state.with_usage(state.usage() - 1));
            if self.change(page, down).is_ok() {
                return Ok(None);
            }
        }
        let state = self.state(page);
        if !here(state) || !state.is_clean() && !state.may_write_early() {
            return Ok(None);
        }
        let Some(writing) = self.slots.try_write(slot) else { return Ok(None) };
        let state = self.state(page);
        if here(state) && state.may_write_early() {
            let mut image = AlignedBuffer::zeroed(self.page_bytes);
            writing.copy(&mut image);
            if !self.written_early(page, state, &mut image)? {
                return Ok(None);
            }
        }
        if !here(state) || !self.leave(page, state) {
            return Ok(None);
        }
        writing.set_owner(None);
        Ok(Some(writing))
    }
}
