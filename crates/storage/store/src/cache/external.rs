//! External files: files that are not the store's, whose blocks lie in its page cache.
//!
//! ```text
//!   page numbers   0 ................ FIRST_EXTERNAL ................ 2^32
//!                  the store's pages   external file | external file |  ...   each as many as its blocks have pages
//!   block          1 MiB of the file in one frame, like an extent; the last one is shorter
//! ```
//!
//! So they share near and far memory with the store's pages, by the same rules. The caller passes in how a block is
//! read: the cache has neither path nor file. An external file is a file at one point in time; after a change it is a
//! different external file.
//!
//! Invariants: a page of an external file is never dirty and never written. Page numbers are reused only when nothing
//! of their previous external file is in memory. Pins on its frames outlive an external file.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Cache;
use super::far::Hint;
use super::metrics::Count;
use super::state::State;
use super::tap::{Owner, Use};
use crate::StoreError;
use crate::page::{EXTENT_BYTES_MAX, FIRST_EXTERNAL, PageId};

/// Bytes of a block of an external file.
pub const EXTERNAL_BLOCK_BYTES: u64 = EXTENT_BYTES_MAX as u64;

/// The page numbers of external files: first number and count.
#[derive(Default)]
pub(super) struct Numbers(Mutex<BTreeMap<u32, u32>>);

impl Numbers {
    /// Takes the first gap of so many numbers.
    fn take(&self, pages: u32) -> Option<u32> {
        let mut taken = self.0.lock();
        let mut first = FIRST_EXTERNAL;
        for (next, length) in &*taken {
            if next - first >= pages {
                break;
            }
            first = next + length;
        }
        // The very last number is never used: it means none.
        (u32::MAX - first >= pages).then(|| {
            taken.insert(first, pages);
            first
        })
    }
}

/// A file that is not the store's, in its page cache. Dropping it removes its blocks from memory.
pub struct ExternalFile {
    cache: Arc<Cache>,
    first: u32,
    bytes: u64,
}

impl ExternalFile {
    /// An external file of so many bytes. Errors: [`StoreError::Full`] if all numbers are taken: drop other external
    /// files.
    pub(crate) fn new(cache: &Arc<Cache>, bytes: u64) -> Result<ExternalFile, StoreError> {
        let blocks = bytes.div_ceil(EXTERNAL_BLOCK_BYTES).max(1);
        let pages = u32::try_from(blocks * u64::from(cache.block_pages())).ok();
        let first = pages.and_then(|pages| cache.external.take(pages));
        let full =
            || StoreError::Full(format!("no page numbers in the cache are free for a file of {bytes} bytes").into());
        Ok(ExternalFile { cache: Arc::clone(cache), first: first.ok_or_else(full)?, bytes })
    }

    /// Returns block `number`, from 0: from memory, or read by `read` into a buffer of the block's length. `read` may
    /// be called more than once, and must return the same bytes each time.
    ///
    /// Errors: those of `read`, and the cache's. Panics if the file has no such block.
    pub fn block<E: From<StoreError>>(
        &self,
        number: u64,
        read: impl Fn(&mut [u8]) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        let begin = number * EXTERNAL_BLOCK_BYTES;
        assert!(begin < self.bytes, "a file of {} bytes has no block {number}", self.bytes);
        let bytes = (self.bytes - begin).min(EXTERNAL_BLOCK_BYTES) as usize;
        let (failed, was_read) = (RefCell::new(None), Cell::new(false));
        let fill = |buffer: &mut [u8]| {
            was_read.set(true);
            read(&mut buffer[..bytes]).map_err(|error| {
                failed.replace(Some(error));
                StoreError::Refused("an external file could not be read".into())
            })
        };
        let whole = bytes.next_multiple_of(self.cache.page_bytes) as u64;
        self.cache.tap.access(self.page(number), whole, Use::Read, || Owner::External);
        let found = self.cache.read_run(self.page(number), bytes, Hint::Point, fill);
        self.cache.counters.add(if was_read.get() { Count::ExternalMiss } else { Count::ExternalHit }, 1);
        found.map_err(|error| failed.take().unwrap_or_else(|| error.into()))
    }

    /// The first page number.
    #[cfg(test)]
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    fn page(&self, block: u64) -> PageId {
        PageId(self.first + block as u32 * self.cache.block_pages())
    }
}

impl Drop for ExternalFile {
    fn drop(&mut self) {
        for block in 0..self.bytes.div_ceil(EXTERNAL_BLOCK_BYTES) {
            self.cache.dismiss(self.page(block));
        }
        self.cache.external.0.lock().remove(&self.first);
    }
}

impl fmt::Debug for ExternalFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("first", &self.first).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Cache {
    fn block_pages(&self) -> u32 {
        (EXTENT_BYTES_MAX / self.page_bytes) as u32
    }

    /// Removes an external block from memory, as if it had never been read.
    fn dismiss(&self, page: PageId) {
        while self.table.made(page).is_some() {
            let state = self.state(page);
            let Some(tier) = self.at(state.place()) else {
                // It is not in memory. Its word is reset, so that it is not mistaken for the next file's.
                if self.change(page, |now| (now == state).then(State::default)).is_ok() {
                    return;
                }
                continue;
            };
            // A shared latch is enough: a reader may hold a pin, but this waits for a thread that moves the page.
            let Some(frame) = tier.arena.shared(state.frame()) else { continue };
            let gone = self.change(page, |now| now.is_where(state).then(State::default));
            drop(frame);
            if gone.is_ok() {
                tier.retire(state.frame());
                return;
            }
        }
    }
}
