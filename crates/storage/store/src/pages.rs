//! [`Pages`]: the interface through which a tree accesses its pages. The cache implements it; tests have an
//! implementation in plain memory.
//!
//! ```text
//!   readers (many)   inner: optimistic, no latch     read: shared latch on one leaf at a time
//!   writer (one)     replace_inner: whole images     write: exclusive latches, two leaves at most
//! ```
//!
//! Invariants:
//!
//! 1. Only one thread at a time (the applier) calls `write`, `create_leaf`, `create_inner`, `replace_inner` and `free`.
//!    Any thread may call the others at any time.
//! 2. While it holds write latches, the writer calls everything else, including calls that must evict pages. So
//!    eviction never waits for a latch: it tries, and takes another page.
//! 3. A reader can arrive with the id of a page that has since been freed, or reused as another kind or for another
//!    tree. It gets some page or an error, never undefined bytes; the tree checks kind, tree and fences and starts
//!    again. In particular, `read` of a page that is now an inner page, and `inner` of one that is now a leaf, return
//!    [`StoreError::Corrupt`].
//! 4. A `read` that begins after a write latch was released sees all of the changes made under that latch.

pub mod memory;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use crate::page::{Extent, PageId};
use crate::{StoreError, TreeId};

/// Pages of one size, in memory while they are used. The head comment of this file lists which thread may call what.
pub trait Pages: Send + Sync {
    /// A leaf under a shared latch: [`page_bytes`](Pages::page_bytes) bytes.
    type Read<'a>: Deref<Target = [u8]>
    where
        Self: 'a;
    /// A leaf under an exclusive latch; it is dirty from the beginning.
    type Write<'a>: DerefMut<Target = [u8]>
    where
        Self: 'a;

    /// Bytes of every page: a power of two from 4 KiB to 64 KiB.
    fn page_bytes(&self) -> usize;

    /// Latches a leaf (or another page with bytes) for reading; loads it and verifies its checksum. Errors:
    /// [`StoreError::Corrupt`], also for an inner page; [`StoreError::Device`].
    fn read(&self, page: PageId) -> Result<Self::Read<'_>, StoreError>;

    /// Latches a leaf for changing. Writer only. Errors: as [`read`](Pages::read), [`StoreError::Full`].
    fn write(&self, page: PageId) -> Result<Self::Write<'_>, StoreError>;

    /// Creates a page of zeros, latched. Writer only. Errors: [`StoreError::Full`].
    fn create_leaf(&self) -> Result<(PageId, Self::Write<'_>), StoreError>;

    /// Creates an inner page with this image of [`page_bytes`](Pages::page_bytes) bytes. Writer only. Errors:
    /// [`StoreError::Full`].
    fn create_inner(&self, image: &[u8]) -> Result<PageId, StoreError>;

    /// Reads an inner page without a latch: `probe` gets its bytes as [`page_bytes`](Pages::page_bytes) / 8
    /// little-endian words. The writer may tear them meanwhile, so `probe` must return for any words; it is called
    /// again until no write interfered. Errors: [`StoreError::Corrupt`], also for a page that is not an inner page.
    fn inner<R>(&self, page: PageId, probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError>;

    /// Replaces the whole image of an inner page. Writer only. Errors: as [`write`](Pages::write).
    fn replace_inner(&self, page: PageId, image: &[u8]) -> Result<(), StoreError>;

    /// Notes that pages were made for a tree: a leaf, or an extent, of so many bytes. For profiles; it changes nothing.
    fn made(&self, _first: PageId, _bytes: usize, _tree: TreeId) {}

    /// Frees a leaf or inner page. Writer only, and without a latch on it.
    fn free(&self, page: PageId);

    /// Largest size of one extent, bytes: less than [`EXTENT_BYTES_MAX`](crate::page::EXTENT_BYTES_MAX) if devices are
    /// small.
    fn extent_bytes_max(&self) -> usize;

    /// Stores 1 to [`extent_bytes_max`](Pages::extent_bytes_max) bytes in pages of their own. Any thread. Errors:
    /// [`StoreError::Full`].
    fn create_extent(&self, bytes: &[u8]) -> Result<Extent, StoreError>;

    /// Returns the bytes of an extent without copying: they stay in their frame of the cache while the result lives.
    /// Errors: [`StoreError::Corrupt`] if checksum or length do not match.
    fn read_extent(&self, extent: Extent) -> Result<Bytes, StoreError>;

    /// Frees an extent. Any thread.
    fn free_extent(&self, extent: Extent);
}
