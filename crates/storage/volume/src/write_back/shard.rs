//! [`CacheShard`]: which page is in which place of one part of the cache, and what is dirty there. Pure: no bytes, no locks.
//!
//! ```text
//!   place   valid     blocks that reads may take from the place
//!           dirty     of these, blocks that the capacity does not have yet
//!           listed    blocks that the entry on the medium names: after a crash they come from the place
//!           copying   of the dirty ones, blocks that are being destaged and were not written since
//!           filling   blocks that a read miss is putting there and nobody has written since
//!
//!   write      valid, dirty +                         flush    listed = dirty
//!   destaged   dirty -                                evict    only if dirty and listed are empty
//! ```
//!
//! Invariants:
//! 1. A page has at most one place, and a place at most one page.
//! 2. A place changes its page only when `dirty` and `listed` are empty, nobody writes to it and no entry of it is on its way: so the
//!    medium never names blocks of a place that has another page's bytes.
//! 3. `dirty` and `listed` lie in `valid`, except for pages of a device that is gone.
//! 4. A block is copied (`copying`) as it is at some moment after `begin_destage`; a write that overlaps that in time takes the block
//!    out of `copying`, at its begin and at its end, so that it stays dirty.
//! 5. A read miss has a token for its page; every change of the page takes it away. Only with its token may it put bytes here, so
//!    they are never older than the page.
//!
//! The page that leaves is found by a clock: pages that were seen again stay for up to three rounds. Where no place is free, a page
//! that was read enters only at its second miss within a while (a table of the last misses), so that a scan leaves the cache as it is.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use super::format::PageKey;
use super::page_bits::PageBits;

/// Rounds of the clock that a page stays.
const SEEN_MAX: u8 = 3;

/// A page of one device and its hash: a multiplication (Knuth, vol. 3, 6.4), since a lookup is on the path of each read.
#[derive(Debug, Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(32) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The hash of a page.
#[inline]
pub(super) fn hash_of(key: PageKey) -> u64 {
    let mut hasher = PageHasher::default();
    hasher.write_u32(key.device);
    hasher.write_u64(key.page);
    hasher.finish()
}

type PageMap<T> = HashMap<PageKey, T, BuildHasherDefault<PageHasher>>;

/// One place of the cache.
#[derive(Clone, Debug)]
struct CacheSlot {
    key: Option<PageKey>,
    valid: PageBits,
    dirty: PageBits,
    listed: PageBits,
    copying: PageBits,
    filling: PageBits,
    is_filling: bool,
    /// An entry of it is on its way to the medium.
    is_persisting: bool,
    /// It is in the list of entries to be written.
    is_pending: bool,
    /// The place of the entry that was written last.
    side: u8,
    seen: u8,
    writers: u16,
}

impl CacheSlot {
    fn is_held(&self) -> bool {
        !self.dirty.is_empty() || !self.listed.is_empty()
    }

    fn may_leave(&self) -> bool {
        !self.is_held() && self.writers == 0 && !self.is_filling && !self.is_persisting
    }
}

/// The outcome of [`CacheShard::begin_write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// Write to this place, then call `end_write`.
    Place(u32),
    /// A read miss is putting blocks there: try again at once.
    Filling,
    /// There is no place for another dirty page.
    NoRoom,
}

/// What a lookup found.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundPage {
    pub(super) slot: u32,
    pub(super) valid: PageBits,
    pub(super) dirty: PageBits,
}

/// What is to be written for a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) content: Option<(PageKey, PageBits)>,
    pub(super) side: u8,
}

/// Counters of a shard; the units are those of [`super::CacheStatus`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShardCounts {
    pub(super) read_hits: u64,
    pub(super) read_misses: u64,
    pub(super) absorbed_blocks: u64,
    pub(super) evicted: u64,
    pub(super) used: u64,
    /// Places that are dirty or listed.
    pub(super) held: u64,
}

/// See the head comment of this file. Places are numbered within the shard.
#[derive(Debug)]
pub(super) struct CacheShard {
    slots: Vec<CacheSlot>,
    map: PageMap<u32>,
    free: Vec<u32>,
    hand: usize,
    /// Pages that can be destaged.
    dirty: BTreeSet<PageKey>,
    /// Tokens of read misses.
    reading: PageMap<u64>,
    /// Parts of the hashes of pages that a read has missed: sets of two, the newer one first. Twice as many as there are places.
    missed: Vec<[u32; 2]>,
    /// Places that are dirty or listed: from this number on they are destaged, and up to that one there may be.
    held_start: u64,
    held_max: u64,
    pub(super) counts: ShardCounts,
}

impl CacheShard {
    pub(super) fn new(slots: u32, (held_start, held_max): (u64, u64)) -> CacheShard {
        let empty = CacheSlot {
            key: None,
            valid: PageBits::NONE,
            dirty: PageBits::NONE,
            listed: PageBits::NONE,
            copying: PageBits::NONE,
            filling: PageBits::NONE,
            is_filling: false,
            is_persisting: false,
            is_pending: false,
            side: 0,
            seen: 0,
            writers: 0,
        };
        CacheShard {
            slots: vec![empty; slots as usize],
            map: PageMap::default(),
            free: (0..slots).rev().collect(),
            hand: 0,
            dirty: BTreeSet::new(),
            reading: PageMap::default(),
            missed: vec![[0; 2]; slots as usize],
            held_start,
            held_max,
            counts: ShardCounts::default(),
        }
    }

    /// What an opened cache found in an entry.
    pub(super) fn restore(&mut self, slot: u32, key: PageKey, bits: PageBits, side: u8) {
        let place = &mut self.slots[slot as usize];
        (place.key, place.valid, place.dirty, place.listed, place.side) = (Some(key), bits, bits, bits, side);
        self.map.insert(key, slot);
        self.dirty.insert(key);
        self.counts.used += 1;
        self.counts.held += 1;
    }

    /// What an opened cache found of an entry that does not count.
    pub(super) fn restore_side(&mut self, slot: u32, side: u8) {
        self.slots[slot as usize].side = side;
    }

    /// A listed place whose content nobody needs: its entry is to be written.
    pub(super) fn restore_stale(&mut self, slot: u32, key: PageKey, bits: PageBits, side: u8) {
        let place = &mut self.slots[slot as usize];
        (place.listed, place.side, place.is_pending) = (bits, side, true);
        // It is evicted like any page once its entry is written.
        place.key = Some(key);
        self.counts.held += 1;
        self.counts.used += 1;
    }

    /// Whether there are enough dirty pages for destaging.
    #[inline]
    pub(super) fn is_to_be_destaged(&self) -> bool {
        self.counts.held > self.held_start
    }

    /// All entries have been restored.
    pub(super) fn end_restore(&mut self) {
        let slots = &self.slots;
        self.free.retain(|free| slots[*free as usize].key.is_none());
    }

    /// The place of a page.
    #[inline]
    pub(super) fn find(&self, key: PageKey) -> Option<FoundPage> {
        let slot = *self.map.get(&key)?;
        let place = &self.slots[slot as usize];
        Some(FoundPage { slot, valid: place.valid, dirty: place.dirty })
    }

    /// As `find`, for a read: the page counts as seen.
    #[inline]
    pub(super) fn find_seen(&mut self, key: PageKey) -> Option<FoundPage> {
        let slot = *self.map.get(&key)?;
        let place = &mut self.slots[slot as usize];
        place.seen = SEEN_MAX.min(place.seen + 1);
        Some(FoundPage { slot, valid: place.valid, dirty: place.dirty })
    }

    /// Registers a read miss; whether it has the token: another one may have it already.
    pub(super) fn begin_miss(&mut self, key: PageKey, token: u64) -> bool {
        *self.reading.entry(key).or_insert(token) == token
    }

    /// The read miss will put nothing here.
    pub(super) fn cancel_miss(&mut self, key: PageKey, token: u64) {
        if self.reading.get(&key) == Some(&token) {
            self.reading.remove(&key);
        }
    }

    /// A place for a page that has none; the second value is whether it had another page.
    fn take_slot(&mut self, key: PageKey) -> Option<(u32, bool)> {
        let (slot, is_evicted) = match self.free.pop() {
            Some(slot) => (slot, false),
            None => (self.clock()?, true),
        };
        let place = &mut self.slots[slot as usize];
        debug_assert!(place.may_leave(), "a place that is used got another page");
        if let Some(old) = place.key.replace(key) {
            if self.map.get(&old) == Some(&slot) {
                self.map.remove(&old);
            }
            self.counts.evicted += 1;
        } else {
            self.counts.used += 1;
        }
        (place.valid, place.seen) = (PageBits::NONE, 0);
        self.map.insert(key, slot);
        Some((slot, is_evicted))
    }

    fn clock(&mut self) -> Option<u32> {
        if self.counts.held as usize == self.slots.len() {
            return None;
        }
        for _ in 0..self.slots.len() * (usize::from(SEEN_MAX) + 1) {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let place = &mut self.slots[slot];
            if !place.may_leave() {
                continue;
            }
            if place.seen == 0 {
                return Some(slot as u32);
            }
            place.seen -= 1;
        }
        None
    }

    /// Begins a write of blocks; `is_forced`: also if too many pages are dirty. The second value is whether the place had another page.
    #[inline]
    pub(super) fn begin_write(&mut self, key: PageKey, range: &Range<u32>, is_forced: bool) -> (Begun, bool) {
        self.forget_misses(key);
        let may_hold = is_forced || self.counts.held < self.held_max;
        let bits = PageBits::of(range);
        let (slot, is_evicted) = match self.map.get(&key) {
            Some(slot) => (*slot, false),
            None if !may_hold => return (Begun::NoRoom, false),
            None => match self.take_slot(key) {
                Some(taken) => taken,
                None => return (Begun::NoRoom, false),
            },
        };
        let place = &mut self.slots[slot as usize];
        if place.is_filling {
            return (Begun::Filling, is_evicted);
        }
        if !may_hold && !place.is_held() && place.writers == 0 {
            return (Begun::NoRoom, is_evicted);
        }
        place.writers += 1;
        place.copying = place.copying.minus(bits);
        place.seen = SEEN_MAX.min(place.seen + 1);
        (Begun::Place(slot), is_evicted)
    }

    /// Ends a write whose bytes are in the place. Returns whether the place has to be added to the list of entries to be written.
    #[inline]
    pub(super) fn end_write(&mut self, slot: u32, range: &Range<u32>) -> bool {
        let bits = PageBits::of(range);
        let place = &mut self.slots[slot as usize];
        let was_held = place.is_held();
        place.writers -= 1;
        place.valid = place.valid.or(bits);
        place.dirty = place.dirty.or(bits);
        place.copying = place.copying.minus(bits);
        let is_new = place.dirty != place.listed && !std::mem::replace(&mut place.is_pending, true);
        let key = place.key.expect("a place that is written to has a page");
        self.forget_misses(key);
        self.dirty.insert(key);
        self.counts.held += u64::from(!was_held);
        self.counts.absorbed_blocks += u64::from(range.end - range.start);
        is_new
    }

    /// Ends a write that failed: what its blocks contain is unknown; those that the capacity has are read there.
    pub(super) fn end_failed_write(&mut self, slot: u32, range: &Range<u32>) {
        let place = &mut self.slots[slot as usize];
        place.writers -= 1;
        place.valid = place.valid.minus(PageBits::of(range).minus(place.dirty));
        let key = place.key.expect("a place that is written to has a page");
        self.forget_misses(key);
    }

    fn forget_misses(&mut self, key: PageKey) {
        if !self.reading.is_empty() {
            self.reading.remove(&key);
        }
    }

    /// Whether blocks may be changed in the capacity, past the cache. If so, the cache has none of them any more; after the change
    /// call `end_bypass`.
    pub(super) fn begin_bypass(&mut self, key: PageKey, range: &Range<u32>) -> bool {
        let bits = PageBits::of(range);
        if let Some(slot) = self.map.get(&key) {
            let place = &self.slots[*slot as usize];
            let is_needed = !place.dirty.or(place.listed).and(bits).is_empty();
            if is_needed || place.writers > 0 || place.is_persisting {
                return false;
            }
        }
        self.end_bypass(key, range);
        true
    }

    /// Drops what reads have put here of blocks that were changed in the capacity.
    pub(super) fn end_bypass(&mut self, key: PageKey, range: &Range<u32>) {
        self.forget_misses(key);
        if let Some(slot) = self.map.get(&key) {
            let place = &mut self.slots[*slot as usize];
            let bits = PageBits::of(range);
            place.filling = place.filling.minus(bits);
            place.valid = place.valid.minus(bits.minus(place.dirty));
        }
    }

    /// Drops clean blocks that cannot be read; whether all of them were clean.
    pub(super) fn drop_clean(&mut self, key: PageKey, range: &Range<u32>) -> bool {
        let Some(slot) = self.map.get(&key) else {
            return true;
        };
        let place = &mut self.slots[*slot as usize];
        let bits = PageBits::of(range);
        if !place.dirty.and(bits).is_empty() || place.writers > 0 {
            return false;
        }
        place.valid = place.valid.minus(bits);
        true
    }

    /// Begins to put blocks that a read missed into a place: which one, which blocks, and whether the place had another page.
    pub(super) fn begin_fill(&mut self, key: PageKey, token: u64, range: &Range<u32>) -> Option<(u32, PageBits, bool)> {
        if self.reading.get(&key) != Some(&token) {
            return None;
        }
        self.reading.remove(&key);
        let bits = PageBits::of(range);
        let (slot, is_evicted) = match self.map.get(&key) {
            Some(slot) => (*slot, false),
            None => {
                if self.free.is_empty() && !self.has_missed_before(key) {
                    return None;
                }
                self.take_slot(key)?
            }
        };
        let place = &mut self.slots[slot as usize];
        let bits = bits.minus(place.valid).minus(place.listed);
        if place.writers > 0 || place.is_filling || bits.is_empty() {
            return None;
        }
        (place.is_filling, place.filling) = (true, bits);
        Some((slot, bits, is_evicted))
    }

    fn has_missed_before(&mut self, key: PageKey) -> bool {
        let hash = hash_of(key);
        // Bits that did not select the shard.
        let index = (hash as u32) as usize % self.missed.len();
        let part = (hash >> 32) as u32;
        let set = &mut self.missed[index];
        let is_known = set.contains(&part);
        if !is_known {
            *set = [part, set[0]];
        }
        is_known
    }

    /// Ends it; how many blocks are there now.
    pub(super) fn end_fill(&mut self, slot: u32, is_filled: bool) -> u32 {
        let place = &mut self.slots[slot as usize];
        let filled = std::mem::take(&mut place.filling);
        place.is_filling = false;
        if !is_filled {
            return 0;
        }
        place.valid = place.valid.or(filled);
        filled.count()
    }

    /// Up to `most` pages to destage, ascending, from a page on.
    pub(super) fn candidates(&self, from: PageKey, most: usize) -> impl Iterator<Item = PageKey> {
        self.dirty.range(from..).take(most).copied()
    }

    /// The dirty pages of a range of one device, ascending, with their dirty blocks.
    pub(super) fn dirty_pages(&self, range: Range<PageKey>) -> impl Iterator<Item = (PageKey, PageBits)> {
        self.dirty.range(range).filter_map(|key| self.find(*key).map(|found| (*key, found.dirty)))
    }

    /// Begins to destage a page: its place and the blocks to copy; `None` if nothing is dirty.
    pub(super) fn begin_destage(&mut self, key: PageKey) -> Option<(u32, PageBits)> {
        let slot = *self.map.get(&key)?;
        let place = &mut self.slots[slot as usize];
        if place.dirty.is_empty() {
            return None;
        }
        place.copying = place.dirty;
        Some((slot, place.dirty))
    }

    /// Ends it: with `is_persistent`, the capacity has the blocks, flushed. Returns how many are clean now, and whether the place has
    /// to be added to the list of entries to be written.
    pub(super) fn end_destage(&mut self, key: PageKey, slot: u32, is_persistent: bool) -> (u32, bool) {
        let place = &mut self.slots[slot as usize];
        if place.key != Some(key) {
            return (0, false);
        }
        let copied = std::mem::take(&mut place.copying);
        if !is_persistent {
            return (0, false);
        }
        let was_held = place.is_held();
        place.dirty = place.dirty.minus(copied);
        if place.dirty.is_empty() {
            self.dirty.remove(&key);
        }
        let is_new = place.dirty != place.listed && !std::mem::replace(&mut place.is_pending, true);
        self.counts.held -= u64::from(was_held && !place.is_held());
        (copied.count(), is_new)
    }

    /// The page is not destaged until it is written again: its bytes cannot be read.
    pub(super) fn set_aside(&mut self, key: PageKey) {
        self.dirty.remove(&key);
    }

    /// Begins to write the entry of a place in the list; `None` if the medium has it already.
    pub(super) fn begin_persist(&mut self, slot: u32) -> Option<Snapshot> {
        let place = &mut self.slots[slot as usize];
        place.is_pending = false;
        if place.dirty == place.listed {
            return None;
        }
        place.is_persisting = true;
        let content = place.key.filter(|_| !place.dirty.is_empty()).map(|key| (key, place.dirty));
        Some(Snapshot { content, side: place.side ^ 1 })
    }

    /// Ends it: the entry is persistent. Returns whether the place has to be added to the list again.
    pub(super) fn end_persist(&mut self, slot: u32, written: Snapshot) -> bool {
        let place = &mut self.slots[slot as usize];
        let was_held = place.is_held();
        place.is_persisting = false;
        place.side = written.side;
        place.listed = written.content.map_or(PageBits::NONE, |(_, bits)| bits);
        let is_held = place.is_held();
        self.counts.held = self.counts.held + u64::from(is_held) - u64::from(was_held);
        place.dirty != place.listed && !std::mem::replace(&mut place.is_pending, true)
    }

    /// Drops all pages of a device that is gone. Returns the places to be added to the list of entries to be written.
    pub(super) fn drop_device(&mut self, device: u32) -> Vec<u32> {
        self.reading.retain(|key, _| key.device != device);
        self.dirty.retain(|key| key.device != device);
        let mut pending = Vec::new();
        for (index, place) in self.slots.iter_mut().enumerate() {
            if place.key.is_none_or(|key| key.device != device) {
                continue;
            }
            let was_held = place.is_held();
            (place.valid, place.dirty, place.copying, place.filling) =
                (PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE);
            place.seen = 0;
            if !place.listed.is_empty() && !std::mem::replace(&mut place.is_pending, true) {
                pending.push(index as u32);
            }
            self.counts.held -= u64::from(was_held && !place.is_held());
        }
        pending
    }
}
