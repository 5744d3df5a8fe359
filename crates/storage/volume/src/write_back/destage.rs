//! Destaging: copies dirty pages to the capacity, and makes room for writes that wait.
//!
//! ```text
//!   a round   1  dirty pages from where the last round ended, ascending, of all shards
//!             2  their dirty blocks: cache -> memory, neighbours joined to runs -> capacity, many at once
//!             3  capacity: flush
//!             4  the blocks count as clean, unless they were written since 2
//!             5  the entries of the pages are made durable: only now may their places get other pages
//! ```
//!
//! A failure of the capacity poisons that device; its pages stay dirty in the cache, durable, and are destaged once the device has
//! been opened again. A dirty block that the cache cannot read back is set aside until it is written again; reads of it fail.
//!
//! Rounds are serial. The thread works while a shard has more dirty pages than `dirty_start`; a write that finds no place waits for
//! the end of a round, or does one itself where there is no thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{AlignedBuffer, DeviceError, IoRequest, IoSink};
use parking_lot::{Condvar, Mutex};

use super::backing::Backing;
use super::format::PageKey;
use super::page_bits::PageBits;
use super::pool::{BLOCK, CachePool, add};
use crate::options::Threads;

/// Bytes of a round.
const ROUND_BYTES: u64 = 8 << 20;
/// Pages of a round at most.
const ROUND_PAGES: u64 = 512;
/// Bytes of a write to the capacity at most.
const RUN_BYTES: usize = 1 << 20;

/// A write that waits looks this often whether the cache still works.
const LOOK: Duration = Duration::from_millis(200);

/// The pause of the thread after a round that achieved nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// One page on its way to the capacity.
struct Copying {
    key: PageKey,
    slot: u32,
    bits: PageBits,
}

impl CachePool {
    /// One round; returns how many pages it destaged, and at least 1 if it made entries durable: places may be free now.
    ///
    /// Errors: those of the devices, which poison; the pages of other devices were destaged nevertheless.
    pub(super) fn destage_round(&self) -> Result<u64, DeviceError> {
        let mut cursor = self.destaging.cursor.lock();
        self.destaging.is_running.store(true, Ordering::Relaxed);
        let batch = self.choose(&mut cursor);
        let mut pages = 0;
        let mut failure = None;
        for group in batch.chunk_by(|a, b| a.device == b.device) {
            let backing = self.names.lock().backing(group[0].device);
            let Some(backing) = backing.filter(|backing| self.check(backing).is_ok()) else {
                continue;
            };
            match self.destage_device(&backing, group) {
                Ok(destaged) => pages += destaged,
                Err(error) => failure = Some(error),
            }
        }
        let has_pending = self.has_pending();
        let persisted = if batch.is_empty() && !has_pending { Ok(()) } else { self.persist() };
        pages = pages.max(u64::from(has_pending && persisted.is_ok()));
        self.destaging.is_running.store(false, Ordering::Relaxed);
        let mut progress = self.destaging.progress.lock();
        progress.rounds += 1;
        self.destaging.fruitful.fetch_add(u64::from(pages > 0), Ordering::SeqCst);
        drop(progress);
        self.destaging.changed.notify_all();
        match failure {
            Some(error) => Err(error),
            None => persisted.map(|()| pages),
        }
    }

    /// The next dirty pages, ascending; leaves the cursor behind them.
    fn choose(&self, cursor: &mut PageKey) -> Vec<PageKey> {
        let most = (ROUND_BYTES / u64::from(self.layout.page_bytes)).clamp(1, ROUND_PAGES) as usize;
        // Pages are spread over the shards by a hash: of each, a share and a half contains nearly all of the next ones.
        let shares = self.shards().count();
        let each = (most / shares) * 3 / 2 + 8;
        let pick = |from: PageKey| {
            let mut found = Vec::new();
            for (_, shard) in self.shards() {
                found.extend(shard.lock().candidates(from, each));
            }
            found.sort_unstable();
            found.truncate(most);
            found
        };
        let mut batch = pick(*cursor);
        if batch.is_empty() {
            batch = pick(PageKey::default());
        }
        *cursor = batch.last().map_or(PageKey::default(), |last| PageKey { device: last.device, page: last.page + 1 });
        batch
    }

    fn destage_device(&self, backing: &Backing, keys: &[PageKey]) -> Result<u64, DeviceError> {
        let mut copying = Vec::with_capacity(keys.len());
        let mut requests: Vec<IoRequest> = Vec::new();
        let mut unreadable = None;
        for key in keys {
            let (number, shard) = self.shard_of(*key);
            let Some((local, bits)) = shard.lock().begin_destage(*key) else {
                continue;
            };
            let page = Copying { key: *key, slot: self.slot_of(number, local), bits };
            match self.copy_page(&page, &mut requests) {
                Ok(()) => copying.push(page),
                Err(error) => {
                    let mut state = shard.lock();
                    state.end_destage(*key, local, false);
                    state.set_aside(*key);
                    tracing::warn!(%error, device = backing.name, page = key.page, "a dirty page cannot be destaged");
                    unreadable = Some(error.named(&backing.name));
                }
            }
        }
        let written = write_all(backing, requests).and_then(|()| backing.capacity.flush());
        let mut blocks = 0;
        for page in &copying {
            let (shard, local) = self.local_of(page.slot);
            let mut state = shard.lock();
            let (clean, is_pending) = state.end_destage(page.key, local, written.is_ok());
            blocks += u64::from(clean);
            if is_pending {
                self.add_pending(&state, page.slot);
            }
        }
        written.map_err(|error| self.poison(Some(backing), error.named(&backing.name)))?;
        add(&self.counts.destaged_bytes, blocks * BLOCK);
        unreadable.map_or(Ok(copying.len() as u64), Err)
    }

    /// Adds the dirty blocks of a page to the writes, joined to the last one where they follow it.
    fn copy_page(&self, page: &Copying, requests: &mut Vec<IoRequest>) -> Result<(), DeviceError> {
        // All of it before any: a page that cannot be read as a whole is not written in part.
        let mut runs = Vec::new();
        for run in page.bits.runs(self.layout.blocks()) {
            let mut bytes = AlignedBuffer::zeroed(((run.end - run.start) as u64 * BLOCK) as usize);
            self.cache.read(self.layout.block_at(page.slot, run.start), &mut bytes)?;
            let offset = page.key.page * u64::from(self.layout.page_bytes) + u64::from(run.start) * BLOCK;
            runs.push((offset, bytes));
        }
        for (offset, bytes) in runs {
            match requests.last_mut() {
                Some(last)
                    if last.offset + last.buffer.len() as u64 == offset
                        && last.buffer.len() + bytes.len() <= RUN_BYTES =>
                {
                    last.buffer.extend_from_slice(&bytes);
                    last.bytes = last.buffer.len() as u64;
                }
                _ => requests.push(IoRequest::write(offset, bytes, 0)),
            }
        }
        Ok(())
    }

    /// Waits until there may be a place for another dirty page; false if destaging does not help. `fruitful` is the count of
    /// fruitful rounds from before the write looked for a place.
    #[cold]
    pub(super) fn make_room(&self, backing: &Backing, fruitful: u64) -> Result<bool, DeviceError> {
        self.check(backing)?;
        self.counts.stalls.fetch_add(1, Ordering::Relaxed);
        if self.options.threads == Threads::Callers || self.destaging.is_stopped() {
            // Its failure is that of another device, or this one's next check reports it.
            let destaged = self.destage_round().unwrap_or(0);
            self.check(backing)?;
            return Ok(destaged > 0);
        }
        self.destaging.wake_now();
        let mut progress = self.destaging.progress.lock();
        // A round that has begun may have chosen its pages before: wait for the one after it.
        let seen = progress.rounds;
        loop {
            if self.destaging.fruitful.load(Ordering::SeqCst) > fruitful {
                return Ok(true);
            }
            if progress.rounds > seen + 1 || progress.is_stopped {
                return Ok(false);
            }
            // The thread may have ended a round since it was woken, and sleep again.
            if !std::mem::replace(&mut progress.is_wanted, true) {
                self.destaging.changed.notify_all();
            }
            self.destaging.changed.wait_for(&mut progress, LOOK);
            self.check(backing)?;
        }
    }

    /// Destages until nothing is dirty.
    ///
    /// Errors: those of [`Self::destage_round`], and [`DeviceError::Poisoned`] if pages are left that cannot be destaged.
    pub(super) fn destage_all(&self) -> Result<(), DeviceError> {
        loop {
            let destaged = self.destage_round()?;
            let held: u64 = self.shards().map(|(_, shard)| shard.lock().counts.held).sum();
            if held == 0 {
                return Ok(());
            }
            // Somebody writes all the time; or the pages belong to a device that refuses changes, or cannot be read.
            if destaged == 0 {
                return Err(DeviceError::Poisoned { name: super::WRITE_BACK.into() });
            }
        }
    }

    fn is_to_be_destaged(&self) -> bool {
        self.shards().any(|(_, shard)| shard.lock().is_to_be_destaged())
    }

    /// Destages until it is stopped: the work of the thread.
    pub(super) fn run_destaging(&self) {
        loop {
            {
                let mut progress = self.destaging.progress.lock();
                while !progress.is_wanted && !progress.is_stopped {
                    self.destaging.changed.wait(&mut progress);
                }
                if progress.is_stopped {
                    return;
                }
                progress.is_wanted = false;
                self.destaging.is_woken.store(false, Ordering::Relaxed);
            }
            device::supervise::rehearse("cache-destage");
            loop {
                // Errors have been reported by then.
                let destaged = self.destage_round().unwrap_or(0);
                if destaged == 0 || !self.is_to_be_destaged() || self.destaging.is_stopped() {
                    if destaged == 0 {
                        let mut progress = self.destaging.progress.lock();
                        if !progress.is_stopped {
                            self.destaging.changed.wait_for(&mut progress, PAUSE);
                        }
                    }
                    break;
                }
            }
        }
    }
}

/// Collects the outcomes of a batch.
#[derive(Debug, Default)]
struct Outcomes {
    state: Mutex<(usize, Option<DeviceError>)>,
    changed: Condvar,
}

impl IoSink for Outcomes {
    fn complete(&self, _: IoRequest, result: Result<(), DeviceError>) {
        let mut state = self.state.lock();
        state.0 += 1;
        if let Err(error) = result {
            state.1.get_or_insert(error);
        }
        self.changed.notify_all();
    }
}

/// Writes a batch to a capacity device; returns when all of it is complete.
fn write_all(backing: &Backing, mut requests: Vec<IoRequest>) -> Result<(), DeviceError> {
    let count = requests.len();
    let outcomes = Arc::new(Outcomes::default());
    let sink: Arc<dyn IoSink> = outcomes.clone();
    backing.capacity.submit(&mut requests, &sink);
    let mut state = outcomes.state.lock();
    while state.0 < count {
        outcomes.changed.wait(&mut state);
    }
    state.1.take().map_or(Ok(()), Err)
}
