//! The interfaces that the cache needs for durable pages: [`BackingStore`], which reads and writes them, and
//! [`PageAllocator`], which keeps a record of the used ones.
//!
//! The cache calls both from any thread and with latches held. So neither may call the cache, nor wait for the applier.

use encryption::Sealer;

use crate::StoreError;
use crate::page::{EXTENT_BYTES_MAX, PageId};

/// Reads and writes pages on the data devices.
pub trait BackingStore: Send + Sync {
    /// Reads a run of pages: `buffer` is a whole number of pages and begins at a multiple of 4096 in memory. The bytes
    /// are returned as they were written; the cache verifies them. Errors: [`StoreError::Device`],
    /// [`StoreError::Corrupt`] if there is no such page.
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError>;

    /// Writes a run of sealed pages; lengths and places as for [`read`](BackingStore::read). Volatile until
    /// [`flush`](BackingStore::flush). The cache itself writes only fresh pages, and only when it has no free frames:
    /// nothing durable refers to them before the next checkpoint, which flushes. Errors: [`StoreError::Device`].
    fn write(&self, first: PageId, bytes: &[u8]) -> Result<(), StoreError>;

    /// Makes all completed writes persistent. Errors: [`StoreError::Device`].
    fn flush(&self) -> Result<(), StoreError>;

    /// Whether the pages from `first` to `last` can be read with one read. Provided: yes.
    fn is_one_run(&self, first: PageId, last: PageId) -> bool {
        first <= last
    }

    /// What encrypts the pages; provided: none.
    fn sealer(&self) -> Option<&Sealer> {
        None
    }

    /// The place of a page as text for messages: the device's name and the offset in it.
    fn place(&self, page: PageId) -> String {
        format!("page {page}")
    }
}

/// Knows which pages are in use.
pub trait PageAllocator: Send + Sync {
    /// The largest size of a run, bytes. Provided: 1 MiB.
    fn run_bytes_max(&self) -> usize {
        EXTENT_BYTES_MAX
    }

    /// Allocates a run of `pages` adjacent unused pages, from 1 to as many as fit in
    /// [`run_bytes_max`](PageAllocator::run_bytes_max). Errors: [`StoreError::Full`].
    fn allocate(&self, pages: u32) -> Result<PageId, StoreError>;

    /// Frees a run as it was allocated. It may be allocated again when neither a checkpoint nor a snapshot needs it.
    fn free(&self, first: PageId, pages: u32);
}
