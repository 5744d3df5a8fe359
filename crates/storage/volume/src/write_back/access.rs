//! Reads, writes and discards of cached devices, page by page.
//!
//! ```text
//!   read     each page: blocks it has  <- cache, without a lock      others  <- capacity, neighbours together
//!
//!   write    place of the page, or a free one, or an evicted one     -> cache, block by block, nothing is read before
//!            no place: wait for destaging; nothing to destage        -> capacity, past the cache
//!            large, and nothing dirty in the way                     -> capacity, past the cache
//!
//!   discard  blocks that are dirty or listed: zeros in the cache; others: discarded in the capacity
//! ```
//!
//! Why a block that is dirty or listed never changes past the cache: its older bytes may be durable in the cache alone, and of "the
//! entry is gone" and "the new bytes are in the capacity" each could become durable without the other.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use device::{DeviceError, Extent};

use super::backing::Backing;
use super::fills::Fill;
use super::format::PageKey;
use super::options::CachePolicy;
use super::page_bits::PageBits;
use super::pool::{BLOCK, CachePool, add, pieces};
use super::populate;
use super::shard::Begun;

/// Attempts of a write to get a place before it goes past the cache.
const ATTEMPTS: u32 = 64;

/// Pages that are emptied in the capacity at once: a range may be as large as a device.
const ERASE_PAGES: usize = 4096;

/// What a read did not find in the cache.
#[derive(Debug, Default)]
pub(super) struct Misses {
    /// Ranges of the device, ascending.
    pub(super) ranges: Vec<Range<u64>>,
    /// What may be put into the cache afterwards.
    pub(super) fills: Vec<Fill>,
}

impl Misses {
    fn add(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }
}

/// How a range is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Erase {
    /// Its space may be given up.
    Discard,
    /// It keeps its space.
    Zeros,
}

impl CachePool {
    /// Fills `buffer` from a device.
    ///
    /// Errors: those of [`device::Device::read`].
    pub(super) fn read(&self, backing: &Backing, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let mut misses = Misses::default();
        for (key, blocks, part) in pieces(backing.number, self.layout.page_bytes, offset, buffer.len() as u64) {
            let at = offset + part.start;
            let out = &mut buffer[part.start as usize..part.end as usize];
            if let Err(error) = self.read_page(backing, key, &blocks, (at, out), &mut misses) {
                populate::cancel(self, misses.fills);
                return Err(error);
            }
        }
        if misses.ranges.is_empty() {
            return Ok(());
        }
        for range in &misses.ranges {
            let out = &mut buffer[(range.start - offset) as usize..(range.end - offset) as usize];
            if let Err(error) = backing.capacity.read(range.start, out) {
                populate::cancel(self, misses.fills);
                return Err(error.named(&backing.name));
            }
        }
        populate::take(self, misses.fills, offset, buffer);
        Ok(())
    }

    /// Reads what the cache has of one page, and notes the rest.
    #[inline]
    fn read_page(
        &self,
        backing: &Backing,
        key: PageKey,
        blocks: &Range<u32>,
        (offset, buffer): (u64, &mut [u8]),
        misses: &mut Misses,
    ) -> Result<(), DeviceError> {
        let place_of = |block: u32| u64::from(block - blocks.start) * BLOCK;
        let (_, shard) = self.shard_of(key);
        let (noted, fills) =
            (misses.ranges.last().cloned().map(|last| (misses.ranges.len(), last)), misses.fills.len());
        loop {
            let Some((found, turn)) = self.look(key, blocks, misses) else {
                misses.add(offset..offset + buffer.len() as u64);
                return Ok(());
            };
            let mut block = blocks.start;
            let mut is_again = false;
            while block < blocks.end {
                let end = found.valid.run_end(block, blocks.end);
                let (from, to) = (place_of(block), place_of(end));
                if found.valid.contains(block) {
                    let out = &mut buffer[from as usize..to as usize];
                    if let Err(error) = self.cache.read(self.layout.block_at(found.slot, block), out) {
                        // The capacity has what is clean.
                        if !shard.lock().drop_clean(key, &(block..end)) {
                            return Err(located(error, &backing.name, offset + from, to - from));
                        }
                        is_again = true;
                        break;
                    }
                } else {
                    misses.add(offset + from..offset + to);
                }
                block = end;
            }
            // Pairs with the fence of `next_turn`.
            fence(Ordering::Acquire);
            if !is_again && shard.turn(found.slot_in_shard) == turn {
                return Ok(());
            }
            // The place has another page now: what was read is not ours, and where the page is now is looked up again.
            match &noted {
                Some((count, last)) => {
                    misses.ranges.truncate(*count);
                    misses.ranges[*count - 1] = last.clone();
                }
                None => misses.ranges.clear(),
            }
            populate::cancel(self, misses.fills.split_off(fills));
        }
    }

    /// Looks a page up for a read; registers a miss, if reads populate the cache.
    #[inline]
    fn look(&self, key: PageKey, blocks: &Range<u32>, misses: &mut Misses) -> Option<(PlaceFound, u32)> {
        let (number, shard) = self.shard_of(key);
        let mut state = shard.lock();
        let found = state.find_seen(key);
        let wanted = blocks.end - blocks.start;
        let hits = found.map_or(0, |found| match found.valid.run_end(blocks.start, blocks.end) == blocks.end {
            true if found.valid.contains(blocks.start) => wanted,
            true => 0,
            false => found.valid.and(PageBits::of(blocks)).count(),
        });
        state.counts.read_hits += u64::from(hits);
        state.counts.read_misses += u64::from(wanted - hits);
        if hits < wanted && self.options.policy == CachePolicy::ReadWrite {
            let token = self.fills.token();
            if state.begin_miss(key, token) {
                misses.fills.push(Fill::new(key, blocks.clone(), token));
            }
        }
        let found = found?;
        let place =
            PlaceFound { slot: self.slot_of(number, found.slot), slot_in_shard: found.slot, valid: found.valid };
        Some((place, shard.turn(found.slot)))
    }

    /// Whether the cache has nothing of a range; then it is read from the capacity, as a miss of all of it.
    pub(super) fn look_for_misses(&self, backing: &Backing, offset: u64, bytes: u64) -> Option<Misses> {
        let has_any = |(key, blocks, _): (PageKey, Range<u32>, _)| {
            let found = self.shard_of(key).1.lock().find(key);
            found.is_some_and(|found| {
                found.valid.contains(blocks.start) || found.valid.run_end(blocks.start, blocks.end) < blocks.end
            })
        };
        if pieces(backing.number, self.layout.page_bytes, offset, bytes).any(has_any) {
            return None;
        }
        let mut misses = Misses::default();
        for (key, blocks, _) in pieces(backing.number, self.layout.page_bytes, offset, bytes) {
            // It may have got the page meanwhile: reading older bytes of the capacity is what a read may do that overlaps a write.
            let _ = self.look(key, &blocks, &mut misses);
        }
        Some(misses)
    }

    /// Writes `data` to a device.
    ///
    /// Errors, all of which poison: those of [`device::Device::write`].
    pub(super) fn write(&self, backing: &Backing, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(backing)?;
        if self.options.bypass_bytes.is_some_and(|least| data.len() as u64 >= least) {
            return self.write_past(backing, offset, data);
        }
        for (key, blocks, part) in pieces(backing.number, self.layout.page_bytes, offset, data.len() as u64) {
            self.write_page(backing, key, &blocks, &data[part.start as usize..part.end as usize])?;
        }
        Ok(())
    }

    #[inline]
    fn write_page(&self, backing: &Backing, key: PageKey, blocks: &Range<u32>, data: &[u8]) -> Result<(), DeviceError> {
        let (number, shard) = self.shard_of(key);
        let mut attempts = 0;
        let mut is_forced = false;
        let local = loop {
            let fruitful = self.destaging.fruitful.load(Ordering::SeqCst);
            let mut state = shard.lock();
            let (begun, is_evicted) = state.begin_write(key, blocks, is_forced);
            match begun {
                Begun::Place(local) => {
                    if is_evicted {
                        shard.next_turn(local);
                    }
                    break local;
                }
                Begun::Filling => {
                    drop(state);
                    std::thread::yield_now();
                }
                Begun::NoRoom => {
                    drop(state);
                    attempts += 1;
                    if attempts <= ATTEMPTS && self.make_room(backing, fruitful)? {
                        continue;
                    }
                    if self.pass_page(backing, key, blocks, data)? {
                        return Ok(());
                    }
                    // The page has a place: it may have one dirty page too many.
                    is_forced = true;
                }
            }
        };
        let slot = self.slot_of(number, local);
        if let Err(error) = self.cache.write(self.layout.block_at(slot, blocks.start), data) {
            shard.lock().end_failed_write(local, blocks);
            let place = key.page * u64::from(self.layout.page_bytes) + u64::from(blocks.start) * BLOCK;
            return Err(self.poison(None, located(error, &backing.name, place, data.len() as u64)));
        }
        let mut state = shard.lock();
        let is_pending = state.end_write(local, blocks);
        if is_pending {
            self.add_pending(&state, slot);
        }
        let is_enough = state.is_to_be_destaged();
        drop(state);
        if is_enough {
            self.destaging.wake();
        }
        Ok(())
    }

    /// Writes one page past the cache, if nothing of it is dirty or listed.
    fn pass_page(
        &self,
        backing: &Backing,
        key: PageKey,
        blocks: &Range<u32>,
        data: &[u8],
    ) -> Result<bool, DeviceError> {
        let (_, shard) = self.shard_of(key);
        if !shard.lock().begin_bypass(key, blocks) {
            return Ok(false);
        }
        let at = key.page * u64::from(self.layout.page_bytes) + u64::from(blocks.start) * BLOCK;
        self.pass(backing, at, data)?;
        shard.lock().end_bypass(key, blocks);
        Ok(true)
    }

    fn pass(&self, backing: &Backing, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let written = backing.capacity.write(offset, data);
        backing.is_unflushed.store(true, Ordering::Release);
        written.map_err(|error| self.poison(Some(backing), error.named(&backing.name)))?;
        add(&self.counts.passed_bytes, data.len() as u64);
        Ok(())
    }

    /// Writes past the cache where nothing is in the way, neighbouring pages together, and the rest into the cache.
    fn write_past(&self, backing: &Backing, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let mut run: Vec<(PageKey, Range<u32>, Range<u64>)> = Vec::new();
        for (key, blocks, part) in pieces(backing.number, self.layout.page_bytes, offset, data.len() as u64) {
            if self.shard_of(key).1.lock().begin_bypass(key, &blocks) {
                run.push((key, blocks, part));
                continue;
            }
            self.pass_run(backing, offset, data, &mut run)?;
            self.write_page(backing, key, &blocks, &data[part.start as usize..part.end as usize])?;
        }
        self.pass_run(backing, offset, data, &mut run)
    }

    fn pass_run(
        &self,
        backing: &Backing,
        offset: u64,
        data: &[u8],
        run: &mut Vec<(PageKey, Range<u32>, Range<u64>)>,
    ) -> Result<(), DeviceError> {
        let (Some((_, _, first)), Some((_, _, last))) = (run.first(), run.last()) else {
            return Ok(());
        };
        let range = first.start..last.end;
        self.pass(backing, offset + range.start, &data[range.start as usize..range.end as usize])?;
        for (key, blocks, _) in run.drain(..) {
            self.shard_of(key).1.lock().end_bypass(key, &blocks);
        }
        Ok(())
    }

    /// Makes a range read as zeros.
    ///
    /// Errors, all of which poison: those of [`device::Device::write`]; and [`DeviceError::Unsupported`], which does not, and then
    /// nothing was changed.
    pub(super) fn erase(&self, backing: &Backing, offset: u64, bytes: u64, how: Erase) -> Result<(), DeviceError> {
        self.check(backing)?;
        let mut kept = Vec::new();
        let mut run: Vec<(PageKey, Range<u32>, Range<u64>)> = Vec::new();
        let mut pieces = pieces(backing.number, self.layout.page_bytes, offset, bytes);
        loop {
            let piece = pieces.next();
            match &piece {
                Some((key, blocks, _)) if self.shard_of(*key).1.lock().begin_bypass(*key, blocks) => {
                    run.extend(piece.clone());
                    if run.len() < ERASE_PAGES {
                        continue;
                    }
                }
                Some(piece) => kept.push(piece.clone()),
                None => {}
            }
            if let (Some((_, _, first)), Some((_, _, last))) = (run.first(), run.last()) {
                let (at, bytes) = (offset + first.start, last.end - first.start);
                let erased = match how {
                    Erase::Discard => backing.capacity.discard(at, bytes),
                    Erase::Zeros => backing.capacity.write_zeroes(at, bytes, false),
                };
                backing.is_unflushed.store(true, Ordering::Release);
                erased.map_err(|error| self.poison(Some(backing), error.named(&backing.name)))?;
                for (key, blocks, _) in run.drain(..) {
                    self.shard_of(key).1.lock().end_bypass(key, &blocks);
                }
            }
            if piece.is_none() {
                break;
            }
        }
        let zeros = vec![0; if kept.is_empty() { 0 } else { self.layout.page_bytes as usize }];
        kept.into_iter().try_for_each(|(key, blocks, part)| {
            self.write_page(backing, key, &blocks, &zeros[..(part.end - part.start) as usize])
        })
    }

    /// The extents of a range: what is dirty has space of its own; for the rest the capacity says so.
    pub(super) fn extents(&self, backing: &Backing, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        let page_bytes = u64::from(self.layout.page_bytes);
        let end = offset + bytes;
        let key = |page: u64| PageKey { device: backing.number, page };
        let pages = key(offset / page_bytes)..key(end.div_ceil(page_bytes));
        // Dirty first: what is destaged meanwhile is then counted twice, never missed.
        let mut dirty = Vec::new();
        for (_, shard) in self.shards() {
            dirty.extend(shard.lock().dirty_pages(pages.clone()));
        }
        let below = backing.capacity.extents(offset, bytes).map_err(|error| error.named(&backing.name))?;
        dirty.sort_unstable_by_key(|(key, _)| *key);
        let runs = dirty.iter().flat_map(|(key, bits)| {
            let start = key.page * page_bytes;
            let range = move |run: Range<u32>| start + u64::from(run.start) * BLOCK..start + u64::from(run.end) * BLOCK;
            bits.runs(self.layout.blocks()).map(range)
        });
        Ok(overlaid(offset..end, &below, runs))
    }
}

/// Extents with further ranges that have space, ascending and disjoint.
fn overlaid(range: Range<u64>, below: &[Extent], space: impl Iterator<Item = Range<u64>>) -> Vec<Extent> {
    let mut out: Vec<Extent> = Vec::new();
    let mut add = |bytes: u64, has_space: bool| match out.last_mut() {
        _ if bytes == 0 => {}
        Some(last) if last.has_space == has_space => last.bytes += bytes,
        _ => out.push(Extent { bytes, has_space }),
    };
    let mut space = space.map(|run| run.start.max(range.start)..run.end.min(range.end)).peekable();
    let mut at = range.start;
    for extent in below {
        let end = at + extent.bytes;
        while at < end {
            while space.next_if(|run| run.end <= at || run.is_empty()).is_some() {}
            let (next, is_space) = match space.peek() {
                Some(run) if run.start <= at => (run.end, true),
                Some(run) => (run.start, false),
                None => (end, false),
            };
            let next = next.min(end);
            add(next - at, extent.has_space || is_space);
            at = next;
        }
    }
    out
}

/// Where a page of a read lies.
struct PlaceFound {
    slot: u32,
    slot_in_shard: u32,
    valid: PageBits,
}

/// An error of the cache device, as one of the device whose block it concerns.
fn located(error: DeviceError, name: &str, place: u64, length: u64) -> DeviceError {
    match error {
        DeviceError::Lost { .. } => DeviceError::Lost { name: name.into(), offset: place, bytes: length },
        DeviceError::Io { operation, source, .. } => {
            DeviceError::Io { operation, name: name.into(), offset: place, source }
        }
        other => other.named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_blocks_have_space_wherever_the_capacity_has_a_hole() {
        let extent = |bytes, has_space| Extent { bytes, has_space };
        let below = [extent(10, false), extent(10, true), extent(20, false)];
        let all = 90..200;
        let cases: [(&[Range<u64>], &[Extent]); 4] = [
            (&[], &below),
            (&[100..103, 105..112], &[extent(3, true), extent(2, false), extent(15, true), extent(20, false)]),
            (std::slice::from_ref(&all), &[extent(40, true)]),
            (&[125..130, 130..140], &[extent(10, false), extent(10, true), extent(5, false), extent(15, true)]),
        ];
        for (space, expected) in cases {
            assert_eq!(overlaid(100..140, &below, space.iter().cloned()), expected, "{space:?}");
        }
    }
}
