//! [`ScanReader`]: the cache as seen by a scan, which reads each page once.

use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use super::Cache;
use super::far::Hint;
use super::leaf::{LeafRead, LeafWrite};
use crate::StoreError;
use crate::page::{Extent, PageId};
use crate::pages::Pages;

/// Reads with the scan hint; everything else is the cache's.
pub(crate) struct ScanReader<'a>(pub(crate) &'a Cache);

impl Pages for ScanReader<'_> {
    type Read<'a>
        = LeafRead<'a>
    where
        Self: 'a;
    type Write<'a>
        = LeafWrite<'a>
    where
        Self: 'a;

    fn page_bytes(&self) -> usize {
        self.0.page_bytes()
    }

    fn read(&self, page: PageId) -> Result<LeafRead<'_>, StoreError> {
        self.0.read_with(page, Hint::Scan)
    }

    fn write(&self, page: PageId) -> Result<LeafWrite<'_>, StoreError> {
        self.0.write(page)
    }

    fn create_leaf(&self) -> Result<(PageId, LeafWrite<'_>), StoreError> {
        self.0.create_leaf()
    }

    fn create_inner(&self, image: &[u8]) -> Result<PageId, StoreError> {
        self.0.create_inner(image)
    }

    fn inner<R>(&self, page: PageId, probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError> {
        self.0.inner(page, probe)
    }

    fn replace_inner(&self, page: PageId, image: &[u8]) -> Result<(), StoreError> {
        self.0.replace_inner(page, image)
    }

    fn free(&self, page: PageId) {
        self.0.free(page);
    }

    fn extent_bytes_max(&self) -> usize {
        self.0.extent_bytes_max()
    }

    fn create_extent(&self, bytes: &[u8]) -> Result<Extent, StoreError> {
        self.0.create_extent(bytes)
    }

    fn read_extent(&self, extent: Extent) -> Result<Bytes, StoreError> {
        self.0.read_extent_with(extent, Hint::Scan)
    }

    fn free_extent(&self, extent: Extent) {
        self.0.free_extent(extent);
    }
}
