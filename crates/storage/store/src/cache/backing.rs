//! What the cache needs of whoever keeps pages durably: [`BackingStore`], where pages lie, and [`PageAllocator`], which are in use.
//!
//! The cache calls both from any thread and with latches held, so neither may call the cache back, nor wait for the applier.

use crate::StoreError;
use crate::page::{EXTENT_BYTES_MAX, PageId};

/// The pages' places in the data devices.
pub trait BackingStore: Send + Sync {
    /// Reads a run of pages: `buffer` is a whole number of pages and begins at a multiple of 4096 in memory. The bytes are as
    /// they were written; the cache checks them. Errors: [`StoreError::Device`], [`StoreError::Corrupt`] where there is no
    /// such page.
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError>;

    /// Writes a run of pages, sealed; lengths and places as for [`read`](BackingStore::read). Volatile until
    /// [`flush`](BackingStore::flush). The cache itself writes only fresh pages, and only when it runs out of frames: nothing durable
    /// refers to them before the next checkpoint, which flushes. Errors: [`StoreError::Device`].
    fn write(&self, first: PageId, bytes: &[u8]) -> Result<(), StoreError>;

    /// Makes all completed writes persistent. Errors: [`StoreError::Device`].
    fn flush(&self) -> Result<(), StoreError>;

    /// Where a page lies, in words, for messages: the device's name and the offset in it.
    fn place(&self, page: PageId) -> String {
        format!("page {page}")
    }
}

/// Which pages are in use.
pub trait PageAllocator: Send + Sync {
    /// Most bytes of a run. Provided: 1 MiB.
    fn run_bytes_max(&self) -> usize {
        EXTENT_BYTES_MAX
    }

    /// A run of `pages` neighbouring pages that nobody uses, of 1 to as many as make [`run_bytes_max`](PageAllocator::run_bytes_max). Errors: [`StoreError::Full`].
    fn allocate(&self, pages: u32) -> Result<PageId, StoreError>;

    /// Gives a run back as it was allocated. It may be given out again when neither a checkpoint nor a snapshot needs it.
    fn free(&self, first: PageId, pages: u32);
}
