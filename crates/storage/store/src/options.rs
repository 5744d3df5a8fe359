//! What a caller sets, and what it is told.

use std::sync::Arc;

use device::Shelf;
use journal::Lsn;

use crate::cache::CacheOptions;
use crate::checkpoint::open::Layout;
use crate::checkpoint::pace::CheckpointOptions;
use crate::interpreter::Interpreter;
use crate::limits::SpaceLimits;

/// The shelves that a store's structures lie on. The same shelf may serve for several.
#[derive(Clone, Debug)]
pub struct Places {
    /// The journal.
    pub journal: Arc<dyn Shelf>,
    /// The write image journal.
    pub images: Arc<dyn Shelf>,
    /// The pages.
    pub data: Arc<dyn Shelf>,
}

/// How a store is laid out and how much it takes. `page_bytes` counts when the store is created, the rest at each opening.
#[derive(Clone)]
pub struct Options {
    /// Size of a page, a power of two, 4 to 64 KiB. Default 8 KiB.
    pub page_bytes: u32,
    /// Near memory of the page cache, in bytes. Default 256 MiB.
    pub cache_bytes: u64,
    /// Where the cache's memory is, far memory and its model, and what moves between them. Its `page_bytes` and `near_bytes`
    /// are those above. Default: all of it near memory.
    pub cache: CacheOptions,
    /// The journal's own; more segments are kept to be used again where a checkpoint frees more at once.
    pub journal: journal::Options,
    /// Who understands the records that others append with [`crate::Store::append`].
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Memory of old versions, in bytes; beyond it the oldest snapshots become [`crate::StoreError::TooOld`]. Default 256 MiB.
    pub versions_bytes: u64,
    /// Memory of one transaction's changes, in bytes; beyond it they spill into the journal. Default 64 MiB.
    pub transaction_bytes: usize,
    /// Memory of records that are appended and not applied yet, in bytes; beyond it, who appends first applies. Default
    /// 64 MiB.
    pub queue_bytes: usize,
    /// Whether threads of the store's own apply and write pages. Without them everything happens on the threads that call,
    /// so that every run of one caller is alike: for simulations and tools. Default true.
    pub background: bool,
    /// Size of each data device, a power of two of pages, 64 or more; counts when the store is created. Below 2 MiB the longest
    /// value is 32 times this ([`crate::Store::value_bytes_max`]). Default 256 MiB.
    pub data_device_bytes: u64,
    /// Size of each device of the write image journal, a multiple of 4 KiB, at least 64 KiB; counts when it is created.
    /// Default 64 MiB.
    pub images_device_bytes: u64,
    /// Journal kept behind what recovery needs, in bytes: so far back a backup can be brought up to any moment. Default 0.
    pub keep_journal_bytes: u64,
    /// Opened to be repaired: also what is lost of vital trees is gone round, and nobody may use it before that is mended. Default
    /// false.
    pub repair: bool,
    /// What transactions leave to the records of services. Default: nothing.
    pub limits: SpaceLimits,
    /// When checkpoints run. Default: [`CheckpointOptions::for_cache`].
    pub checkpoints: Option<CheckpointOptions>,
    /// Microseconds since 1970, for the records of transactions. Default: the system's clock.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Descriptors of the shelves of pages and of images, and of devices that are made or backed up.
const SHELVES: u64 = 16;

/// Most segments that are kept because of [`CheckpointOptions::journal_bytes`].
const SPARE_SEGMENTS_MAX: u64 = 6;

impl Options {
    /// Most file descriptors that a store of so many bytes of pages holds at a time, on shelves of files: one for each data
    /// device, one or two for each of the write image journal, which holds a batch of what may be dirty, and those of the
    /// journal.
    pub fn descriptors(&self, stored_bytes: u64) -> u64 {
        let images = self.checkpoint_options().dirty_bytes_max.div_ceil(self.images_device_bytes.max(1)) + 1;
        stored_bytes.div_ceil(self.data_device_bytes.max(1)) + 2 * images + self.journal.descriptors() + SHELVES
    }

    /// When checkpoints run.
    pub(crate) fn checkpoint_options(&self) -> CheckpointOptions {
        self.checkpoints.unwrap_or_else(|| CheckpointOptions::for_cache(self.cache_bytes))
    }

    /// A checkpoint frees at once what the journal needs until the next: removed and made anew, each segment would be written twice.
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
    /// What the journal found.
    pub journal: journal::Recovered,
    /// Everything before this was in the pages; the journal was applied from here.
    pub applied_from: Lsn,
    /// Records applied.
    pub records: u64,
    /// The store was made by this opening.
    pub is_new: bool,
    /// Pages that the write image journal restored, because a crash had ended a checkpoint early.
    pub restored_pages: u64,
}
