//! [`MemoryPages`]: pages in plain memory, with the same latches as the cache, for tests and for measuring trees alone.
//!
//! Each leaf has a lock; inner pages are atomic words with a version that is odd while they are being replaced. Freed
//! pages are reused at once, the last freed first, so that late readers find other pages as often as possible.
//!
//! It writes nothing to a device, and never releases memory.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Pages;
use crate::StoreError;
use crate::page::{EXTENT_BYTES_MAX, Extent, PageId};

/// Pages of a chunk of the table.
const CHUNK: usize = 1 << 10;
/// Chunks of the table.
const CHUNKS: usize = 1 << 10;

const LEAF: u8 = 1;
const INNER: u8 = 2;

/// Pages in memory, at most a million.
pub struct MemoryPages {
    page_bytes: usize,
    table: Box<[OnceLock<Box<[Slot]>>]>,
    space: Mutex<Space>,
    extents: RwLock<BTreeMap<PageId, Bytes>>,
}

#[derive(Default)]
struct Slot {
    kind: AtomicU8,
    leaf: RwLock<Box<[u8]>>,
    version: AtomicU64,
    words: OnceLock<Box<[AtomicU64]>>,
}

struct Space {
    next: u32,
    limit: u32,
    free: Vec<PageId>,
    pages: usize,
}

/// A leaf under its shared latch.
pub struct Read<'a>(RwLockReadGuard<'a, Box<[u8]>>);

impl Deref for Read<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A leaf under its exclusive latch.
pub struct Write<'a>(RwLockWriteGuard<'a, Box<[u8]>>);

impl Deref for Write<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Write<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl MemoryPages {
    /// No pages yet. Panics for an invalid page size.
    pub fn new(page_bytes: usize) -> MemoryPages {
        assert!(crate::page::is_page_bytes(page_bytes), "{page_bytes} bytes is not a page size");
        MemoryPages {
            page_bytes,
            table: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            space: Mutex::new(Space { next: 1, limit: (CHUNK * CHUNKS) as u32, free: Vec::new(), pages: 0 }),
            extents: RwLock::default(),
        }
    }

    /// Allows this many more pages; after that it is full.
    pub fn limit(&self, more: usize) {
        let mut space = self.space.lock();
        space.limit = space.next + (more.saturating_sub(space.free.len())) as u32;
        let keep = space.free.len().min(more);
        space.free.truncate(keep);
    }

    /// Pages in use, without those of extents.
    pub fn pages_used(&self) -> usize {
        self.space.lock().pages
    }

    /// Extents in use.
    pub fn extents_used(&self) -> usize {
        self.extents.read().len()
    }

    /// Changes the bytes of a page without a latch, as damage does.
    pub fn damage(&self, page: PageId, change: impl FnOnce(&mut [u8])) {
        let Some(slot) = self.slot(page) else { return };
        if slot.kind.load(Ordering::Acquire) == LEAF {
            return change(&mut slot.leaf.write());
        }
        let Some(words) = slot.words.get() else { return };
        let mut image: Vec<u8> = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        change(&mut image);
        slot.replace(words, &image);
    }

    fn slot(&self, page: PageId) -> Option<&Slot> {
        self.table.get(page.0 as usize / CHUNK)?.get()?.get(page.0 as usize % CHUNK)
    }

    fn of_kind(&self, page: PageId, kind: u8) -> Result<&Slot, StoreError> {
        let slot = self.slot(page).filter(|slot| slot.kind.load(Ordering::Acquire) == kind);
        slot.ok_or_else(|| StoreError::Corrupt(format!("page {page} is not of that kind").into()))
    }

    fn allocate(&self, pages: u32) -> Result<PageId, StoreError> {
        let mut space = self.space.lock();
        if pages == 1
            && let Some(page) = space.free.pop()
        {
            return Ok(page);
        }
        let first = space.next;
        if space.limit < first.saturating_add(pages) {
            return Err(StoreError::Full("no more pages in memory".into()));
        }
        space.next += pages;
        Ok(PageId(first))
    }

    fn create(&self) -> Result<(PageId, &Slot), StoreError> {
        let page = self.allocate(1)?;
        self.space.lock().pages += 1;
        let chunk = &self.table[page.0 as usize / CHUNK];
        Ok((page, &chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect())[page.0 as usize % CHUNK]))
    }
}

impl Slot {
    fn replace(&self, words: &[AtomicU64], image: &[u8]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, bytes) in words.iter().zip(image.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

impl Pages for MemoryPages {
    type Read<'a> = Read<'a>;
    type Write<'a> = Write<'a>;

    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn read(&self, page: PageId) -> Result<Read<'_>, StoreError> {
        Ok(Read(self.of_kind(page, LEAF)?.leaf.read()))
    }

    fn write(&self, page: PageId) -> Result<Write<'_>, StoreError> {
        Ok(Write(self.of_kind(page, LEAF)?.leaf.write()))
    }

    fn create_leaf(&self) -> Result<(PageId, Write<'_>), StoreError> {
        let (page, slot) = self.create()?;
        let mut leaf = slot.leaf.write();
        *leaf = vec![0; self.page_bytes].into();
        slot.kind.store(LEAF, Ordering::Release);
        Ok((page, Write(leaf)))
    }

    fn create_inner(&self, image: &[u8]) -> Result<PageId, StoreError> {
        let (page, slot) = self.create()?;
        let words = slot.words.get_or_init(|| (0..self.page_bytes / 8).map(|_| AtomicU64::new(0)).collect());
        slot.replace(words, image);
        slot.kind.store(INNER, Ordering::Release);
        Ok(page)
    }

    #[inline]
    fn inner<R>(&self, page: PageId, mut probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError> {
        let slot = self.of_kind(page, INNER)?;
        let words = slot.words.get().map_or(&[][..], |words| words);
        loop {
            let version = slot.version.load(Ordering::Acquire);
            let answer = probe(words);
            fence(Ordering::Acquire);
            if version % 2 == 0 && slot.version.load(Ordering::Relaxed) == version {
                return Ok(answer);
            }
            std::thread::yield_now();
        }
    }

    fn replace_inner(&self, page: PageId, image: &[u8]) -> Result<(), StoreError> {
        let slot = self.of_kind(page, INNER)?;
        slot.replace(slot.words.get().map_or(&[], |words| words), image);
        Ok(())
    }

    fn free(&self, page: PageId) {
        let mut space = self.space.lock();
        space.free.push(page);
        space.pages -= 1;
    }

    fn extent_bytes_max(&self) -> usize {
        EXTENT_BYTES_MAX
    }

    fn create_extent(&self, bytes: &[u8]) -> Result<Extent, StoreError> {
        let first = self.allocate(bytes.len().div_ceil(self.page_bytes) as u32)?;
        self.extents.write().insert(first, Bytes::copy_from_slice(bytes));
        Ok(Extent::of(first, bytes))
    }

    fn read_extent(&self, extent: Extent) -> Result<Bytes, StoreError> {
        let bytes = self.extents.read().get(&extent.first).cloned().unwrap_or_default();
        extent.check(&bytes)?;
        Ok(bytes)
    }

    fn free_extent(&self, extent: Extent) {
        let freed = self.extents.write().remove(&extent.first);
        assert!(freed.is_some(), "extent {extent:?} is freed twice");
    }
}
