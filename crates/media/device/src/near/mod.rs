//! Near memory in front of far memory: Memory Mode as a device.
//!
//! ```text
//!   read, write (pages of 4096)
//!        |
//!   shard of the page:  lock | table: page -> slot (table.rs) | dirty bits
//!        |  hit                        |  miss
//!   near memory: slot x 4096           1 victim dirty?  near -> far      (write-back)
//!                                      2 victim leaves the table
//!                                      3 far -> near, or the new bytes   (a whole page is written without reading it)
//!                                      4 the page enters the table
//! ```
//!
//! [`Policy::DirectMapped`] is that of the hardware: one place for each page, no hints, all of near memory is cache,
//! write-back (intel/ipmctl issues 132 and 161: direct-mapped, no hint can be given, 100 % of DRAM becomes cache). The
//! hardware's unit is a line of 64 bytes. Here it is a page of 4096, since software cannot intercept single loads: a
//! run of adjacent lines causes one miss here and up to 64 in hardware, and a single line costs a whole page's
//! transfer. The same pages contend for one slot. [`Policy::Managed`] is what software can do instead: any page in any
//! slot of its shard, with S3-FIFO.
//!
//! # Invariants
//!
//! 1. A page's newest bytes are in near memory if the table has it, else in far memory.
//! 2. A dirty page leaves near memory only after far memory has accepted it. A write-back that fails leaves the page in
//!    place and poisons the cache: the content of far memory for that page is unknown. The call that caused it, even a
//!    read, returns the error. Reads continue after that: hits from near memory, misses past it.
//! 3. One lock protects a page's table entry, slot and transfers. Pages of one shard wait for each other's far
//!    accesses; pages of different shards do not.
//!
//! # Durability
//!
//! [`Durability::None`]: Memory Mode is volatile, whatever far memory consists of. [`flush`](Device::flush) writes all
//! dirty pages to far memory and flushes that, so that a test can read it. The content must not be used after a
//! restart, because evictions between flushes also write to far memory, in no order.
//!
//! The cache does not pin pages for a caller, prefetch, move lines, or survive a restart.

mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use table::Table;

use crate::contract::assert_range;
use crate::poison::Poison;
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability};

/// The unit of caching: a page.
const PAGE: u64 = BLOCK_BYTES as u64;

/// The smallest number of slots of a shard, so that the queues of a managed shard are useful: a tenth of them is the
/// small queue.
const SHARD_SLOTS: u64 = 64;

/// The largest number of shards: far more than the threads that wait for far memory at a time.
const SHARDS_MAX: u64 = 64;

/// The name of the cache in errors.
const NAME: &str = "near-memory cache";

/// Selects the page that leaves near memory when another comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The page in the new page's only place: page modulo slots. This is what the hardware does.
    DirectMapped,
    /// The page that S3-FIFO selects: pages seen once are evicted first, so a scan does not empty the cache (Yang et
    /// al., "FIFO queues are all you need for cache eviction", SOSP 2023).
    Managed,
}

/// Counters of a cache since it was created. Counts are pages of 4096 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearStats {
    /// Pages read by the caller.
    pub reads: u64,
    /// Pages written by the caller.
    pub writes: u64,
    /// Accesses that were found in near memory.
    pub hits: u64,
    /// Pages read from far memory.
    pub far_reads: u64,
    /// Dirty pages written to far memory.
    pub write_backs: u64,
}

impl NearStats {
    /// Converts a count of pages to bytes.
    pub fn bytes(pages: u64) -> u64 {
        pages * PAGE
    }

    /// Hits as a share of all accesses, 0 to 1; 0 if there were none.
    pub fn hit_ratio(&self) -> f64 {
        let all = self.reads + self.writes;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    hits: AtomicU64,
    far_reads: AtomicU64,
    write_backs: AtomicU64,
}

/// The pages of one shard. Slot numbers are those of the whole near memory.
struct Shard {
    table: Table,
    /// Indexed by the shard's own slot number.
    dirty: Vec<bool>,
}

/// See the head comment of this module.
pub struct NearCache {
    near: Arc<dyn Device>,
    far: Arc<dyn Device>,
    policy: Policy,
    shards: Vec<Mutex<Shard>>,
    counters: Counters,
    poison: Poison,
}

impl NearCache {
    /// A cache in `near` over `far`. It is as long as `far`; the old content of `near` is overwritten.
    ///
    /// Panics unless both are multiples of 4096 bytes with blocks of at most that, and `near` has at least one page.
    pub fn new(near: Arc<dyn Device>, far: Arc<dyn Device>, policy: Policy) -> NearCache {
        for device in [&near, &far] {
            assert!(device.len() >= PAGE && device.len().is_multiple_of(PAGE), "a device of whole pages");
            assert!(PAGE.is_multiple_of(u64::from(device.block_bytes())), "a page is whole blocks");
        }
        let slots = near.len() / PAGE;
        let shards = (slots / SHARD_SLOTS).clamp(1, SHARDS_MAX);
        let shard = |number: u64| {
            // Slots are distributed in turn; if they do not divide evenly, the first shards have one more.
            let own = (slots - number).div_ceil(shards) as usize;
            let table = match policy {
                Policy::DirectMapped => Table::direct(own),
                Policy::Managed => Table::managed(own),
            };
            Mutex::new(Shard { table, dirty: vec![false; own] })
        };
        let shards = (0..shards).map(shard).collect();
        NearCache { near, far, policy, shards, counters: Counters::default(), poison: Poison::default() }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Counters so far. Accesses in progress may be missing.
    pub fn stats(&self) -> NearStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { reads, writes, hits, far_reads, write_backs } = &self.counters;
        NearStats {
            reads: read(reads),
            writes: read(writes),
            hits: read(hits),
            far_reads: read(far_reads),
            write_backs: read(write_backs),
        }
    }

    /// The shard of a page, and with a direct map the page's place in it.
    fn home(&self, page: u64) -> (usize, usize) {
        let shards = self.shards.len() as u64;
        match self.policy {
            Policy::DirectMapped => {
                let slot = page % (self.near.len() / PAGE);
                ((slot % shards) as usize, (slot / shards) as usize)
            }
            // Multiplied by 2^64 over the golden ratio (Knuth, vol. 3, 6.4), so that strided accesses do not all fall
            // into one shard.
            Policy::Managed => (((page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % shards) as usize, 0),
        }
    }

    fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        // A panic under this lock comes from a device; the table changes only between transfers.
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset of a shard's slot in near memory.
    fn near_offset(&self, shard: usize, slot: usize) -> u64 {
        (slot as u64 * self.shards.len() as u64 + shard as u64) * PAGE
    }

    /// Copies a dirty page to far memory; it stays in near memory.
    fn write_back(&self, number: usize, shard: &mut Shard, slot: usize, page: u64) -> Result<(), DeviceError> {
        let mut bytes = AlignedBuffer::zeroed(PAGE as usize);
        self.poison.guard(NAME, || {
            self.near.read(self.near_offset(number, slot), &mut bytes)?;
            self.far.write(page * PAGE, &bytes)
        })?;
        shard.dirty[slot] = false;
        count(&self.counters.write_backs);
        Ok(())
    }

    /// Frees a slot for `page`: steps 1 and 2 of the picture.
    fn make_room(&self, number: usize, shard: &mut Shard, place: usize) -> Result<usize, DeviceError> {
        let choice = shard.table.choose(place);
        if let Some(victim) = choice.page {
            if shard.dirty[choice.slot] {
                self.write_back(number, shard, choice.slot, victim)?;
            }
            shard.table.evict(&choice);
        }
        Ok(choice.slot)
    }

    fn read_page(&self, page: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        count(&self.counters.reads);
        let (number, place) = self.home(page);
        let mut shard = self.shard(number);
        if let Some(slot) = shard.table.find(page, place) {
            count(&self.counters.hits);
            return self.near.read(self.near_offset(number, slot), buffer);
        }
        let slot = match self.make_room(number, &mut shard, place) {
            Ok(slot) => slot,
            // Nothing leaves near memory any more; a page that is not there is unchanged in far memory.
            Err(DeviceError::Poisoned { .. }) => {
                count(&self.counters.far_reads);
                return self.far.read(page * PAGE, buffer);
            }
            Err(error) => return Err(error),
        };
        count(&self.counters.far_reads);
        let filled = self.far.read(page * PAGE, buffer).and_then(|()| {
            // A slot that is not in the table has no content: its write may fail without loss.
            self.near.write(self.near_offset(number, slot), buffer)
        });
        self.enter(&mut shard, page, slot, false, filled)
    }

    fn write_page(&self, page: u64, data: &[u8]) -> Result<(), DeviceError> {
        count(&self.counters.writes);
        let (number, place) = self.home(page);
        let mut shard = self.shard(number);
        if let Some(slot) = shard.table.find(page, place) {
            count(&self.counters.hits);
            shard.dirty[slot] = true;
            return self.near.write(self.near_offset(number, slot), data);
        }
        let slot = self.make_room(number, &mut shard, place)?;
        let filled = self.near.write(self.near_offset(number, slot), data);
        self.enter(&mut shard, page, slot, true, filled)
    }

    /// Enters the page into the table if its bytes are in its slot; otherwise frees the slot.
    fn enter(
        &self,
        shard: &mut Shard,
        page: u64,
        slot: usize,
        dirty: bool,
        filled: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match filled {
            Ok(()) => {
                shard.table.insert(page, slot);
                shard.dirty[slot] = dirty;
            }
            Err(_) => shard.table.release(slot),
        }
        filled
    }

    /// Drops a page without writing it back.
    fn forget(&self, page: u64) -> Result<(), DeviceError> {
        let (number, place) = self.home(page);
        let mut shard = self.shard(number);
        self.far.discard(page * PAGE, PAGE)?;
        if let Some(slot) = shard.table.find(page, place) {
            shard.table.remove(page, slot);
            shard.dirty[slot] = false;
        }
        Ok(())
    }

    /// Writes every dirty page to far memory.
    fn clean(&self) -> Result<(), DeviceError> {
        for number in 0..self.shards.len() {
            let mut shard = self.shard(number);
            let mut dirty: Vec<(u64, usize)> = shard.table.pages().filter(|(_, slot)| shard.dirty[*slot]).collect();
            // In the order of far memory, where adjacent writes are faster.
            dirty.sort_unstable();
            for (page, slot) in dirty {
                self.write_back(number, &mut shard, slot, page)?;
            }
        }
        Ok(())
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Debug for NearCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NearCache { near, far, policy, .. } = self;
        f.debug_struct("NearCache").field("policy", policy).field("near", near).field("far", far).finish()
    }
}

impl Device for NearCache {
    fn len(&self) -> u64 {
        self.far.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        assert_range(self.len(), offset, buffer.len() as u64);
        let mut pages = (offset / PAGE..).zip(buffer.chunks_exact_mut(PAGE as usize));
        pages.try_for_each(|(page, bytes)| self.read_page(page, bytes))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range(self.len(), offset, data.len() as u64);
        for (page, bytes) in (offset / PAGE..).zip(data.chunks_exact(PAGE as usize)) {
            self.poison.guard(NAME, || self.write_page(page, bytes))?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.poison.guard(NAME, || {
            self.clean()?;
            self.far.flush()
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range(self.len(), offset, bytes);
        let mut pages = offset / PAGE..(offset + bytes) / PAGE;
        self.poison.guard(NAME, || pages.try_for_each(|page| self.forget(page)))
    }

    fn durability(&self) -> Durability {
        Durability::None
    }
}
