//! The store's options, and what opening returns.

use std::sync::Arc;

use device::Shelf;
use journal::Lsn;

use crate::cache::CacheOptions;
use crate::checkpoint::open::Layout;
use crate::checkpoint::pace::CheckpointOptions;
use crate::interpreter::Interpreter;
use crate::limits::SpaceLimits;

/// The shelves of a store's structures. One shelf may be used for several.
#[derive(Clone, Debug)]
pub struct Places {
    /// The journal.
    pub journal: Arc<dyn Shelf>,
    /// The write image journal.
    pub images: Arc<dyn Shelf>,
    /// The pages.
    pub data: Arc<dyn Shelf>,
}

/// Layout and limits of a store. `page_bytes` takes effect when the store is created, the rest at each opening.
#[derive(Clone)]
pub struct Options {
    /// Size of a page, a power of two, 4 to 64 KiB. Default 8 KiB.
    pub page_bytes: u32,
    /// Near memory of the page cache, in bytes. Default 256 MiB. [`Options::with_cache`] also sets the values that
    /// depend on it.
    pub cache_bytes: u64,
    /// The place of the cache's memory, far memory and its model, and the policy between them. Its `page_bytes` and
    /// `near_bytes` are those above. Default: all of it near memory.
    pub cache: CacheOptions,
    /// Options of the journal; more segments are kept for reuse if a checkpoint frees more at once.
    pub journal: journal::Options,
    /// Interprets the records that services append with [`crate::Store::append`].
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Memory of old versions, in bytes; beyond it the oldest snapshots become [`crate::StoreError::TooOld`]. Default
    /// 256 MiB; with [`Options::with_cache`] the size of the cache, 64 MiB to 1 GiB.
    pub versions_bytes: u64,
    /// Memory of one transaction's changes, in bytes; beyond it they spill into the journal. Default 64 MiB.
    pub transaction_bytes: usize,
    /// Memory of records that are appended and not applied yet, in bytes; beyond it, an append first applies some.
    /// Default 64 MiB; with [`Options::with_cache`] a quarter of the cache, 8 to 64 MiB.
    pub queue_bytes: usize,
    /// Whether dedicated threads apply records and write pages. Without them everything happens on the calling threads,
    /// so that every run with one caller is the same: for simulations and tools. Default true.
    pub background: bool,
    /// Size of each data device, a power of two of pages, 64 or more; takes effect when the store is created. Below 2
    /// MiB the longest value is 32 times this ([`crate::Store::value_bytes_max`]). Default 256 MiB.
    pub data_device_bytes: u64,
    /// Size of each device of the write image journal, a multiple of 4 KiB, at least 64 KiB; takes effect when it is
    /// created. Default 64 MiB.
    pub images_device_bytes: u64,
    /// Journal that is kept in addition to what recovery needs, in bytes: a backup can be brought up to any moment in
    /// it. Default 0.
    pub keep_journal_bytes: u64,
    /// Open for repair: holes are also made in vital trees, and nothing else may use the store until they are repaired.
    /// Default false.
    pub repair: bool,
    /// The space that transactions leave to the records of services. Default: no limits.
    pub limits: SpaceLimits,
    /// When checkpoints run. Default: [`CheckpointOptions::for_cache`].
    pub checkpoints: Option<CheckpointOptions>,
    /// Returns microseconds since 1970, for the records of transactions. Default: the system's clock.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Descriptors of the shelves of pages and of images, and of devices that are being created or backed up.
const SHELVES: u64 = 16;

/// The most segments that are kept because of [`CheckpointOptions::journal_bytes`].
const SPARE_SEGMENTS_MAX: u64 = 6;

impl Options {
    /// Sets the size of the page cache, and the values that depend on it: how much of it may be dirty, the memory of
    /// records that wait to be applied, and that of old versions. So a node with a small cache takes little memory in
    /// all.
    #[must_use]
    pub fn with_cache(self, cache_bytes: u64) -> Options {
        let CheckpointOptions { dirty_bytes, dirty_bytes_max, .. } = CheckpointOptions::for_cache(cache_bytes);
        let checkpoints = CheckpointOptions { dirty_bytes, dirty_bytes_max, ..self.checkpoint_options() };
        Options {
            cache_bytes,
            queue_bytes: (cache_bytes / 4).clamp(8 << 20, 64 << 20) as usize,
            versions_bytes: cache_bytes.clamp(64 << 20, 1 << 30),
            checkpoints: Some(checkpoints),
            ..self
        }
    }

    /// The largest number of file descriptors that a store with so many bytes of pages uses at a time, on shelves of
    /// files: one for each data device, one or two for each device of the write image journal, which must contain a
    /// batch of all dirty pages, and those of the journal.
    pub fn descriptors(&self, stored_bytes: u64) -> u64 {
        let images = self.checkpoint_options().dirty_bytes_max.div_ceil(self.images_device_bytes.max(1)) + 1;
        stored_bytes.div_ceil(self.data_device_bytes.max(1)) + 2 * images + self.journal.descriptors() + SHELVES
    }

    /// When checkpoints run.
    pub(crate) fn checkpoint_options(&self) -> CheckpointOptions {
        self.checkpoints.unwrap_or_else(|| CheckpointOptions::for_cache(self.cache_bytes))
    }

    /// A checkpoint frees the segments that the journal needs until the next one. If they were deleted and created
    /// again, each segment would be written twice.
    pub(crate) fn journal_of_checkpoints(&self) -> journal::Options {
        let freed = self.checkpoint_options().journal_bytes / self.journal.segment_bytes.max(1);
        let spare_segments = self.journal.spare_segments.max(freed.min(SPARE_SEGMENTS_MAX) as usize);
        journal::Options { spare_segments, ..self.journal.clone() }
    }
}

/// The system's time in microseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the default of the one place where the store gets the time from outside"
)]
fn system_time_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

impl Default for Options {
    fn default() -> Options {
        Options {
            page_bytes: 8192,
            cache_bytes: 256 << 20,
            cache: CacheOptions::default(),
            journal: journal::Options::default(),
            interpreter: None,
            versions_bytes: 256 << 20,
            transaction_bytes: 64 << 20,
            queue_bytes: 64 << 20,
            background: true,
            data_device_bytes: Layout::default().data_device_bytes,
            images_device_bytes: Layout::default().images_device_bytes,
            keep_journal_bytes: 0,
            repair: false,
            limits: SpaceLimits::default(),
            checkpoints: None,
            clock: Arc::new(system_time_us),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("page_bytes", &self.page_bytes).finish_non_exhaustive()
    }
}

/// What opening found.
#[derive(Clone, Debug)]
pub struct Opened {
    /// What opening the journal found.
    pub journal: journal::Recovered,
    /// Everything before this was in the pages; the journal was applied from here on.
    pub applied_from: Lsn,
    /// Records applied.
    pub records: u64,
    /// This opening created the store.
    pub is_new: bool,
    /// Pages that were restored from the write image journal because a crash had interrupted a checkpoint.
    pub restored_pages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_the_size_of_the_cache_follows_it_and_the_journals_limits_stay() {
        let limits = CheckpointOptions { journal_bytes: 5, journal_bytes_max: 7, ..CheckpointOptions::default() };
        for (cache, queue, versions, dirty, dirty_max) in [
            (4 << 20, 8 << 20, 64 << 20, 1 << 20, 2 << 20),
            (256 << 20, 64 << 20, 256 << 20, 64 << 20, 128 << 20),
            (64 << 30, 64 << 20, 1 << 30, 2 << 30, 4 << 30),
        ] {
            let options = Options { checkpoints: Some(limits), ..Options::default() }.with_cache(cache);
            assert_eq!((options.queue_bytes as u64, options.versions_bytes), (queue, versions), "{cache}");
            let found = options.checkpoint_options();
            assert_eq!(
                found,
                CheckpointOptions { dirty_bytes: dirty, dirty_bytes_max: dirty_max, ..limits },
                "{cache}"
            );
        }
    }
}
