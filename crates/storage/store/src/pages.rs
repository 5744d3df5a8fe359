//! [`Pages`]: what a tree needs of whatever keeps its pages. The cache is one; tests have one in plain memory.
//!
//! ```text
//!   readers (many)   inner: optimistic, no latch     read: shared latch on one leaf at a time
//!   writer (one)     replace_inner: whole images     write: exclusive latches, two leaves at most
//! ```
//!
//! Invariants:
//!
//! 1. Only one thread at a time (the applier) calls `write`, `create_leaf`, `create_inner`, `replace_inner` and `free`. The
//!    others may be called by any thread at any time.
//! 2. While it holds write latches, the writer calls everything else, also what must find room by evicting pages. So eviction
//!    never waits for a latch: it tries, and takes another page.
//! 3. A reader can come with the id of a page that was freed, or reused as another kind or for another tree, since it saw the
//!    id. It gets some page or an error, never undefined bytes; the tree looks at kind, tree and fences and starts again.
//!    In particular `read` of what is an inner page now, and `inner` of what is a leaf, answer [`StoreError::Corrupt`].
//! 4. What one write latch changed is seen as a whole by every `read` that begins after the latch was given back.

pub mod memory;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use crate::StoreError;
use crate::page::{Extent, PageId};

/// Pages of one size, in memory while they are used. See the file's essay for who may call what.
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

    /// Latches a leaf (or another page with bytes) for reading; faults it in and checks its checksum. Errors:
    /// [`StoreError::Corrupt`] also for a page that is an inner page, [`StoreError::Device`].
    fn read(&self, page: PageId) -> Result<Self::Read<'_>, StoreError>;

    /// Latches a leaf for changing. The writer only. Errors as [`read`](Pages::read), [`StoreError::Full`].
    fn write(&self, page: PageId) -> Result<Self::Write<'_>, StoreError>;

    /// A new page of zeros, latched. The writer only. Errors: [`StoreError::Full`].
    fn create_leaf(&self) -> Result<(PageId, Self::Write<'_>), StoreError>;

    /// A new inner page with this image of [`page_bytes`](Pages::page_bytes) bytes. The writer only. Errors: [`StoreError::Full`].
    fn create_inner(&self, image: &[u8]) -> Result<PageId, StoreError>;

    /// Reads an inner page without a latch: `probe` gets its bytes as little-endian words, [`page_bytes`](Pages::page_bytes)
    /// / 8 of them. They may be torn by the writer meanwhile, so `probe` must answer something for any words; it is called
    /// again until no write came in between. Errors: [`StoreError::Corrupt`] also for a page that is no inner page.
    fn inner<R>(&self, page: PageId, probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError>;

    /// Puts a whole new image in an inner page's place. The writer only. Errors as [`write`](Pages::write).
    fn replace_inner(&self, page: PageId, image: &[u8]) -> Result<(), StoreError>;

    /// Gives a leaf or inner page up. The writer only, and without a latch on it.
    fn free(&self, page: PageId);

    /// Most bytes of one extent: where devices are small, less than [`EXTENT_BYTES_MAX`](crate::page::EXTENT_BYTES_MAX).
    fn extent_bytes_max(&self) -> usize;

    /// Stores 1 to [`extent_bytes_max`](Pages::extent_bytes_max) bytes in pages of their own. Any thread. Errors:
    /// [`StoreError::Full`].
    fn create_extent(&self, bytes: &[u8]) -> Result<Extent, StoreError>;

    /// The bytes of an extent, not copied: they keep their place in the cache while they live. Errors:
    /// [`StoreError::Corrupt`] where checksum or length do not fit.
    fn read_extent(&self, extent: Extent) -> Result<Bytes, StoreError>;

    /// Gives an extent up. Any thread.
    fn free_extent(&self, extent: Extent);
}
