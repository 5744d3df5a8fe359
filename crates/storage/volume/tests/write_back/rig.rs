//! What the tests of the cache share: small caches over shelves of several kinds, and blocks that say who wrote them.

use std::sync::Arc;

use device::crash::PmemMode;
use device::{BLOCK_BYTES, CrashShelf, Device, DeviceError, Durability, MemoryShelf, Shelf, WrappedShelf};
use volume::Threads;
use volume::write_back::{CacheOptions, CachePolicy, CachedShelf};

use crate::support::part;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes of a cache for so many pages.
pub(crate) fn cache_bytes(pages: u64, page_bytes: u32) -> u64 {
    let entries = (pages * 128).next_multiple_of(BLOCK);
    2 * BLOCK + entries + pages * u64::from(page_bytes)
}

/// A cache of so many pages, without threads.
pub(crate) fn small(pages: u64, page_bytes: u32) -> CacheOptions {
    CacheOptions {
        page_bytes,
        threads: Threads::Callers,
        ..CacheOptions::new(*b"cache for tests!", cache_bytes(pages, page_bytes))
    }
}

/// Media for cache and capacity, by name.
pub(crate) fn media(seed: u64) -> Vec<(&'static str, Arc<CrashShelf>)> {
    vec![
        ("sectors", Arc::new(CrashShelf::new(seed))),
        ("lines, ADR", Arc::new(CrashShelf::pmem(seed, PmemMode::Adr))),
        ("lines, eADR", Arc::new(CrashShelf::pmem(seed, PmemMode::Eadr))),
        ("pages", Arc::new(CrashShelf::pmem(seed, PmemMode::Pages))),
    ]
}

/// Capacity and cache as two parts of one shelf, so that one recording has both.
pub(crate) fn parts(shelf: &Arc<dyn Shelf>) -> (Arc<dyn Shelf>, Arc<dyn Shelf>) {
    (part(shelf, "far"), part(shelf, "near"))
}

pub(crate) fn create(shelf: &Arc<dyn Shelf>, options: &CacheOptions) -> CachedShelf {
    let (capacity, cache) = parts(shelf);
    CachedShelf::create(capacity, cache, options).expect("creates")
}

pub(crate) fn open(shelf: &Arc<dyn Shelf>, options: &CacheOptions) -> CachedShelf {
    let (capacity, cache) = parts(shelf);
    CachedShelf::open(capacity, cache, options).expect("opens")
}

/// As `open`, with devices that let other threads go first.
pub(crate) fn open_lazily(shelf: &Arc<dyn Shelf>, options: &CacheOptions) -> CachedShelf {
    let (capacity, cache) = parts(shelf);
    let lazy = |inner| Arc::new(WrappedShelf::new(inner, |inner| Arc::new(Lazy(inner))));
    CachedShelf::open(lazy(capacity), lazy(cache), options).expect("opens")
}

/// A cache over memory.
pub(crate) fn in_memory(options: &CacheOptions) -> CachedShelf {
    CachedShelf::create(Arc::new(MemoryShelf::new()), Arc::new(MemoryShelf::new()), options).expect("creates")
}

/// Blocks filled with a number.
pub(crate) fn filled(tag: u64, blocks: u64) -> Vec<u8> {
    tag.to_le_bytes().repeat((blocks * BLOCK) as usize / 8)
}

pub(crate) fn read(device: &dyn Device, block: u64, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0xEE; (blocks * BLOCK) as usize];
    device.read(block * BLOCK, &mut bytes).expect("reads");
    bytes
}

/// The number that fills a block.
pub(crate) fn tag_at(device: &dyn Device, block: u64) -> u64 {
    let bytes = read(device, block, 1);
    let tag = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(bytes == filled(tag, 1), "block {block} is a mixture");
    tag
}

/// Both policies, with and without writes past the cache.
pub(crate) fn policies(options: &CacheOptions) -> Vec<CacheOptions> {
    let mut out = Vec::new();
    for policy in [CachePolicy::WriteOnly, CachePolicy::ReadWrite] {
        for bypass_bytes in [None, Some(4 * BLOCK)] {
            out.push(CacheOptions { policy, bypass_bytes, ..options.clone() });
        }
    }
    out
}

/// The seeds of a randomised test: those of `SEED`, or the first `count`.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Lets other threads go first before it reads, and has read: what a lookup has found is old by then.
#[derive(Debug)]
pub(crate) struct Lazy(pub(crate) Arc<dyn Device>);

impl Device for Lazy {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn block_bytes(&self) -> u32 {
        self.0.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.0.atom_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        for _ in 0..offset / BLOCK % 4 * 5 {
            std::thread::yield_now();
        }
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        std::thread::yield_now();
        self.0.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        for _ in 0..8 {
            std::thread::yield_now();
        }
        self.0.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }
}
