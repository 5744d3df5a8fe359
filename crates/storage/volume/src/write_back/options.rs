//! What a cache is made of and how it works: [`CacheOptions`], and what it reports: [`CacheStatus`].

use crate::error::VolumeError;
use crate::options::Threads;

/// Smallest page, bytes: one block.
pub const PAGE_BYTES_MIN: u32 = 4 << 10;
/// Largest page, bytes.
pub const PAGE_BYTES_MAX: u32 = 1 << 20;

/// What goes into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// Writes, and reads of what was written lately. The policy of Storage Spaces Direct where the capacity is flash.
    WriteOnly,
    /// Also what is read: a read that misses is answered by the capacity, and its blocks are put into the cache afterwards.
    ReadWrite,
}

/// A cache to be created, and how an opened one works.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheOptions {
    /// Identifies the cache and the capacity that needs it; drawn at random by the caller, once. Only for creating.
    pub identity: [u8; 16],
    /// Bytes that the cache takes on its shelf, with its entries: a multiple of 4096, enough for one page. Only for creating.
    pub cache_bytes: u64,
    /// Bytes of a page: a power of two, [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`]. Default 16 KiB. Only for creating.
    pub page_bytes: u32,
    /// What goes into the cache. Default [`CachePolicy::WriteOnly`].
    pub policy: CachePolicy,
    /// The share of pages that are dirty, 0 to 1, at which destaging begins. Default 0.5.
    pub dirty_start: f64,
    /// The share of dirty pages at which a write that needs another page waits; above `dirty_start`, at most 1. Default 0.9.
    pub dirty_max: f64,
    /// Writes of at least so many bytes go past the cache where no dirty page is in their way. Default `None`: none do.
    pub bypass_bytes: Option<u64>,
    /// Its threads: one that destages and, with [`CachePolicy::ReadWrite`], one that populates; or none, so that callers destage by
    /// [`super::CachedShelf::destage_step`] and when they find no page, and populate in their reads. Default
    /// [`Threads::Background`].
    pub threads: Threads,
}

impl CacheOptions {
    /// The defaults, for a new cache of a size.
    pub fn new(identity: [u8; 16], cache_bytes: u64) -> CacheOptions {
        CacheOptions {
            identity,
            cache_bytes,
            page_bytes: 16 << 10,
            policy: CachePolicy::WriteOnly,
            dirty_start: 0.5,
            dirty_max: 0.9,
            bypass_bytes: None,
            threads: Threads::Background,
        }
    }

    /// Errors: [`VolumeError::Options`].
    pub(super) fn check(&self) -> Result<(), VolumeError> {
        if !(0.0..=1.0).contains(&self.dirty_start) || !(self.dirty_start..=1.0).contains(&self.dirty_max) {
            return Err(VolumeError::Options("dirty_start and dirty_max of a cache are from 0 to 1, in this order"));
        }
        Ok(())
    }
}

/// What a cache contains and has done since it was opened. Accesses in progress may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheStatus {
    /// Counts the openings of the cache.
    pub generation: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages that the cache has room for.
    pub pages: u64,
    /// Pages with blocks that the capacity does not have yet, or whose entry still says so.
    pub dirty_pages: u64,
    /// Pages whose blocks the capacity has too.
    pub clean_pages: u64,
    /// Blocks of 4096 bytes read from the cache.
    pub read_hits: u64,
    /// Blocks of 4096 bytes read from the capacity.
    pub read_misses: u64,
    /// Bytes written to the cache.
    pub absorbed_bytes: u64,
    /// Bytes written past the cache, by a large write or because no page was free.
    pub passed_bytes: u64,
    /// Bytes that destaging has written to the capacity and flushed there.
    pub destaged_bytes: u64,
    /// Bytes that read misses have put into the cache.
    pub populated_bytes: u64,
    /// Clean pages that gave their place to another.
    pub evicted_pages: u64,
    /// Writes that waited for destaging, or destaged themselves, because no page was free for them.
    pub stalls: u64,
    /// Entries written to the cache device.
    pub entries_written: u64,
    /// Whether pages are being destaged at the moment.
    pub is_destaging: bool,
    /// Entries that were damaged when the cache was opened: the page may have lost its last writes, or all.
    pub damaged_entries: u64,
    /// What ended the service of the cache or of one of its devices, the last one.
    pub failure: Option<String>,
}

impl CacheStatus {
    /// Blocks read from the cache as a share of all blocks read, 0 to 1; 0 if nothing was read.
    pub fn hit_ratio(&self) -> f64 {
        let all = self.read_hits + self.read_misses;
        if all == 0 { 0.0 } else { self.read_hits as f64 / all as f64 }
    }
}
