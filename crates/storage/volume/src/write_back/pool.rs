//! [`CachePool`]: the pages of one cache, shared by all devices of the capacity, and how they become durable.
//!
//! ```text
//!   flush     1  capacity of this device: flush, if anything went past the cache
//!             2  the list of changed entries, as they are now, is taken
//!             3  cache: flush                      data before the entries that name it
//!             4  cache: changed entries, flush     nothing if no entry changed
//! ```
//!
//! On persistent memory by line a write is durable when it returns: 3 costs nothing, and 4 is one fence for each changed entry. A
//! flush after writes to blocks that are dirty already writes no entry on any medium.
//!
//! Invariants:
//! 1. An entry never names a block whose bytes are not durable: 2 comes before 3, and 3 before 4.
//! 2. Entries are written by one thread at a time, each into the place that does not have the last flushed one.
//! 3. No lock is held while a device works, except by those who write entries, or destage, among themselves.
//! 4. A read takes bytes of a place only if the place has had the same page from the lookup to the end of the copy; a place counts up
//!    (`turns`) before it gets another page.
//!
//! Locks, in this order: destaging, entries, shard, list of changed entries.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use device::{BLOCK_BYTES, Device, DeviceError};
use parking_lot::{Mutex, MutexGuard};

use super::backing::Backing;
use super::fills::Fills;
use super::format::{CacheEntry, ENTRY_BYTES, HEADERS_BYTES, Layout, PageKey};
use super::names::DeviceNames;
use super::options::{CacheOptions, CacheStatus};
use super::progress::Destaging;
use super::shard::{CacheShard, Snapshot, hash_of};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Places of a shard at least, so that the clock has a choice.
const SHARD_SLOTS_MIN: u32 = 64;
/// Shards at most: far more than the processors that contend for them.
const SHARDS_MAX: u32 = 256;

/// One shard, and how often each of its places has got another page.
pub(super) struct PoolShard {
    state: Mutex<CacheShard>,
    turns: Box<[AtomicU32]>,
}

/// What those who write entries share.
pub(super) struct Entries {
    sequence: u64,
    /// The number of the last run of `persist` that succeeded.
    succeeded: u64,
    /// The entries as they were written, if the cache device has larger blocks than an entry.
    image: Option<Vec<u8>>,
}

impl Entries {
    pub(super) fn new(sequence: u64, image: Option<Vec<u8>>) -> Entries {
        Entries { sequence, succeeded: 0, image }
    }
}

/// Counters; the units are those of [`CacheStatus`].
#[derive(Debug, Default)]
pub(super) struct PoolCounts {
    pub(super) passed_bytes: AtomicU64,
    pub(super) destaged_bytes: AtomicU64,
    pub(super) populated_bytes: AtomicU64,
    pub(super) stalls: AtomicU64,
    entries_written: AtomicU64,
    pub(super) damaged_entries: AtomicU64,
}

/// See the head comment of this file.
pub(super) struct CachePool {
    identity: [u8; 16],
    pub(super) generation: u64,
    pub(super) layout: Layout,
    pub(super) options: CacheOptions,
    pub(super) cache: Arc<dyn Device>,
    shards: Box<[PoolShard]>,
    /// Places whose entries have to be written.
    pending: Mutex<Vec<u32>>,
    entries: Mutex<Entries>,
    /// The number of the last run of `persist` that began.
    begun: AtomicU64,
    pub(super) names: Mutex<DeviceNames>,
    pub(super) destaging: Destaging,
    pub(super) fills: Fills,
    pub(super) counts: PoolCounts,
    is_poisoned: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl CachePool {
    /// An empty pool; `super::recovery` fills it.
    pub(super) fn new(
        (identity, generation): ([u8; 16], u64),
        layout: Layout,
        options: CacheOptions,
        cache: Arc<dyn Device>,
        names: DeviceNames,
    ) -> CachePool {
        let wanted = (layout.slots / SHARD_SLOTS_MIN).clamp(1, SHARDS_MAX);
        let count = 1 << wanted.ilog2();
        let shard = |number: u32| {
            let slots = (layout.slots - number).div_ceil(count);
            let share = |ratio: f64| (f64::from(slots) * ratio) as u64;
            let held = (share(options.dirty_start), share(options.dirty_max).max(1));
            let state = Mutex::new(CacheShard::new(slots, held));
            PoolShard { state, turns: (0..slots).map(|_| AtomicU32::new(0)).collect() }
        };
        CachePool {
            identity,
            generation,
            layout,
            shards: (0..count).map(shard).collect(),
            options,
            cache,
            pending: Mutex::new(Vec::new()),
            entries: Mutex::new(Entries::new(0, None)),
            begun: AtomicU64::new(0),
            names: Mutex::new(names),
            destaging: Destaging::default(),
            fills: Fills::default(),
            counts: PoolCounts::default(),
            is_poisoned: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    pub(super) fn identity(&self) -> &[u8; 16] {
        &self.identity
    }

    /// Whether an entry is smaller than a block of the cache device.
    pub(super) fn writes_blocks(&self) -> bool {
        self.cache.block_bytes() as usize > ENTRY_BYTES
    }

    pub(super) fn restore_entries(&mut self, entries: Entries) {
        self.entries = Mutex::new(entries);
    }

    /// The shard of a page, and its number.
    #[inline]
    pub(super) fn shard_of(&self, key: PageKey) -> (u32, &PoolShard) {
        // Bits that the tables of the shard do not use.
        let number = (hash_of(key) >> 40) as u32 & (self.shards.len() as u32 - 1);
        (number, &self.shards[number as usize])
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = (u32, &PoolShard)> {
        (0..).zip(self.shards.iter())
    }

    /// The number of a place of a shard in the whole cache, and back.
    #[inline]
    pub(super) fn slot_of(&self, shard: u32, local: u32) -> u32 {
        local * self.shards.len() as u32 + shard
    }

    pub(super) fn local_of(&self, slot: u32) -> (&PoolShard, u32) {
        let count = self.shards.len() as u32;
        (&self.shards[(slot % count) as usize], slot / count)
    }

    /// Adds a place to the list of entries to be written. The lock of its shard is held from the change of the place on: who writes to
    /// the place after that, and finds it marked, relies on its being in the list when it flushes.
    #[inline]
    pub(super) fn add_pending(&self, _locked: &MutexGuard<'_, CacheShard>, slot: u32) {
        self.pending.lock().push(slot);
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// A device, or all of the cache, failed: it refuses changes from now on. Returns the error.
    #[cold]
    pub(super) fn poison(&self, backing: Option<&Backing>, error: DeviceError) -> DeviceError {
        // As in the contract: refusals change nothing, and a simulated machine without power stays so.
        if matches!(error, DeviceError::PowerLost | DeviceError::ReadOnly { .. } | DeviceError::Unsupported { .. }) {
            return error;
        }
        let flag = backing.map_or(&self.is_poisoned, |backing| &backing.is_poisoned);
        if !flag.swap(true, Ordering::AcqRel) {
            let name = backing.map_or("all of it", |backing| backing.name.as_str());
            tracing::error!(%error, device = name, "a write-back cache takes no more changes");
        }
        *self.failure.lock() = Some(error.to_string());
        error
    }

    /// A thread of the cache panicked, or the cache is closed.
    pub(super) fn end(&self, why: &str) {
        self.is_poisoned.store(true, Ordering::Release);
        *self.failure.lock() = Some(why.to_owned());
        self.destaging.wake_all();
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Acquire)
    }

    /// Errors: [`DeviceError::Poisoned`].
    #[inline]
    pub(super) fn check(&self, backing: &Backing) -> Result<(), DeviceError> {
        if self.is_poisoned() || backing.is_poisoned.load(Ordering::Acquire) {
            return Err(DeviceError::Poisoned { name: backing.name.clone() });
        }
        Ok(())
    }

    /// Makes all that is complete persistent, with its entries.
    ///
    /// Errors, all of which poison the cache: those of the cache device, and [`DeviceError::Poisoned`].
    pub(super) fn persist(&self) -> Result<(), DeviceError> {
        let seen = self.begun.load(Ordering::Acquire);
        let mut entries = self.entries.lock();
        if self.is_poisoned() {
            return Err(DeviceError::Poisoned { name: super::WRITE_BACK.into() });
        }
        // One that began after this call, and succeeded, has done its work.
        if entries.succeeded > seen {
            return Ok(());
        }
        let number = self.begun.load(Ordering::Acquire) + 1;
        self.begun.store(number, Ordering::Release);
        match self.persist_pending(&mut entries) {
            Ok(()) => {
                entries.succeeded = number;
                Ok(())
            }
            Err(error) => Err(self.poison(None, error)),
        }
    }

    fn persist_pending(&self, entries: &mut Entries) -> Result<(), DeviceError> {
        let pending = std::mem::take(&mut *self.pending.lock());
        let begin = |slot: u32| {
            let (shard, local) = self.local_of(slot);
            shard.lock().begin_persist(local).map(|snapshot| (slot, snapshot))
        };
        let mut changed: Vec<(u32, Snapshot)> = pending.into_iter().filter_map(begin).collect();
        self.cache.flush()?;
        if changed.is_empty() {
            return Ok(());
        }
        changed.sort_unstable_by_key(|(slot, _)| *slot);
        self.write_entries(entries, &changed)?;
        self.cache.flush()?;
        self.counts.entries_written.fetch_add(changed.len() as u64, Ordering::Relaxed);
        for (slot, snapshot) in changed {
            let (shard, local) = self.local_of(slot);
            let mut state = shard.lock();
            if state.end_persist(local, snapshot) {
                self.add_pending(&state, slot);
            }
        }
        Ok(())
    }

    /// Writes entries, ascending: each by itself, or the blocks that they lie in.
    fn write_entries(&self, entries: &mut Entries, changed: &[(u32, Snapshot)]) -> Result<(), DeviceError> {
        let mut blocks: Vec<u64> = Vec::new();
        for (slot, snapshot) in changed {
            entries.sequence += 1;
            let entry = CacheEntry { slot: *slot, sequence: entries.sequence, content: snapshot.content };
            let bytes = entry.encode(&self.identity);
            let at = self.layout.entry_at(*slot, snapshot.side);
            match &mut entries.image {
                None => self.cache.write(at, &bytes)?,
                Some(image) => {
                    let within = (at - HEADERS_BYTES) as usize;
                    image[within..within + ENTRY_BYTES].copy_from_slice(&bytes);
                    let block = (at - HEADERS_BYTES) / BLOCK;
                    if blocks.last() != Some(&block) {
                        blocks.push(block);
                    }
                }
            }
        }
        if let Some(image) = &entries.image {
            for run in blocks.chunk_by(|a, b| a + 1 == *b) {
                let range = (run[0] * BLOCK) as usize..((run[0] + run.len() as u64) * BLOCK) as usize;
                self.cache.write(HEADERS_BYTES + range.start as u64, &image[range])?;
            }
        }
        Ok(())
    }

    /// The flush of a device.
    pub(super) fn flush(&self, backing: &Backing) -> Result<(), DeviceError> {
        self.check(backing)?;
        if backing.is_unflushed.load(Ordering::Acquire) || backing.flushing.is_locked() {
            self.flush_capacity(backing)?;
        }
        self.persist().map_err(|error| error.named(&backing.name))
    }

    fn flush_capacity(&self, backing: &Backing) -> Result<(), DeviceError> {
        // Held during the flush: who finds the flag down may rely on it only once that flush has returned.
        let _serial = backing.flushing.lock();
        self.check(backing)?;
        if backing.is_unflushed.swap(false, Ordering::AcqRel) {
            let flushed = backing.capacity.flush();
            return flushed.map_err(|error| self.poison(Some(backing), error.named(&backing.name)));
        }
        Ok(())
    }

    /// Drops the pages of a device that is gone.
    pub(super) fn drop_device(&self, number: u32) {
        for (index, shard) in self.shards() {
            let mut state = shard.lock();
            let pending = state.drop_device(number);
            pending.into_iter().for_each(|local| self.add_pending(&state, self.slot_of(index, local)));
        }
    }

    pub(super) fn status(&self) -> CacheStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let PoolCounts { passed_bytes, destaged_bytes, populated_bytes, stalls, entries_written, damaged_entries } =
            &self.counts;
        let mut status = CacheStatus {
            generation: self.generation,
            page_bytes: self.layout.page_bytes,
            pages: u64::from(self.layout.slots),
            passed_bytes: read(passed_bytes),
            destaged_bytes: read(destaged_bytes),
            populated_bytes: read(populated_bytes),
            stalls: read(stalls),
            entries_written: read(entries_written),
            damaged_entries: read(damaged_entries),
            is_destaging: self.destaging.is_running(),
            failure: self.failure.lock().clone(),
            ..CacheStatus::default()
        };
        for (_, shard) in self.shards() {
            let counts = shard.lock().counts;
            status.read_hits += counts.read_hits;
            status.read_misses += counts.read_misses;
            status.absorbed_bytes += counts.absorbed_blocks * BLOCK;
            status.evicted_pages += counts.evicted;
            status.dirty_pages += counts.held;
            status.clean_pages += counts.used - counts.held;
        }
        status
    }
}

impl PoolShard {
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, CacheShard> {
        self.state.lock()
    }

    /// How often a place has got another page.
    #[inline]
    pub(super) fn turn(&self, local: u32) -> u32 {
        self.turns[local as usize].load(Ordering::Relaxed)
    }

    /// Counts up, under the lock, before the place gets the bytes of another page.
    pub(super) fn next_turn(&self, local: u32) {
        self.turns[local as usize].fetch_add(1, Ordering::Relaxed);
        // Before every store of the new bytes: a reader that has seen one of them sees the count too.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

impl fmt::Debug for CachePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachePool").field("cache", &self.cache).field("layout", &self.layout).finish()
    }
}

/// The pages of a range of a device: the page, its blocks, and the part of the buffer.
#[inline]
pub(super) fn pieces(
    device: u32,
    page_bytes: u32,
    offset: u64,
    bytes: u64,
) -> impl Iterator<Item = (PageKey, Range<u32>, Range<u64>)> {
    let shift = page_bytes.trailing_zeros();
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= bytes {
            return None;
        }
        let at = offset + done;
        let within = (at & u64::from(page_bytes - 1)) as u32;
        let part = u64::from(page_bytes - within).min(bytes - done);
        let block = within / BLOCK_BYTES as u32;
        let blocks = block..block + (part / BLOCK) as u32;
        let range = done..done + part;
        done += part;
        Some((PageKey { device, page: at >> shift }, blocks, range))
    })
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, bytes: u64) {
    counter.fetch_add(bytes, Ordering::Relaxed);
}
