//! The cache against a model: reads return what was written last, and a checkpoint contains what was there when it
//! began.

mod external;
mod model;
mod stress;
mod tiers;

use std::collections::{BTreeMap, BTreeSet};

use catalogue::{Model as TimingModel, Timing, VirtualClock, media};

use super::*;
use crate::page::{self, Extent, Kind, PageHeader};
use crate::pages::Pages;

const PAGE: usize = 4096;

/// Data devices and space in plain memory. Freed pages are not allocated again before [`Medium::settle`], as with a
/// checkpoint.
#[derive(Default)]
struct Medium {
    pages: Mutex<BTreeMap<u32, Box<[u8]>>>,
    space: Mutex<Used>,
    /// Pages to which durable content refers: only a checkpoint may write them.
    durable: Mutex<BTreeSet<u32>>,
}

#[derive(Default)]
struct Used {
    next: u32,
    /// Pages freed since the last checkpoint began; before it; and before one that is finished.
    freed: Vec<(u32, u32)>,
    waiting: Vec<(u32, u32)>,
    settled: Vec<(u32, u32)>,
}

impl BackingStore for Medium {
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        let pages = self.pages.lock();
        for (page, bytes) in (first.0..).zip(buffer.chunks_exact_mut(PAGE)) {
            match pages.get(&page) {
                Some(content) => bytes.copy_from_slice(content),
                None => bytes.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, first: PageId, bytes: &[u8]) -> Result<(), StoreError> {
        assert!(!self.durable.lock().contains(&first.0), "page {first} was written in place outside a checkpoint");
        self.put(first, bytes);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Medium {
    /// Writes like a checkpoint.
    fn put(&self, first: PageId, bytes: &[u8]) {
        let mut pages = self.pages.lock();
        for (page, bytes) in (first.0..).zip(bytes.chunks_exact(PAGE)) {
            pages.insert(page, bytes.into());
        }
    }
}

impl PageAllocator for Medium {
    fn allocate(&self, pages: u32) -> Result<PageId, StoreError> {
        let mut space = self.space.lock();
        if let Some(at) = space.settled.iter().position(|(_, length)| *length == pages) {
            return Ok(PageId(space.settled.swap_remove(at).0));
        }
        space.next += pages;
        Ok(PageId(space.next - pages + 1))
    }

    fn free(&self, first: PageId, pages: u32) {
        self.space.lock().freed.push((first.0, pages));
    }
}

impl Medium {
    /// Called with a checkpoint: pages freed so far can be used again when it is finished.
    fn wait(&self) {
        let mut space = self.space.lock();
        space.waiting = std::mem::take(&mut space.freed);
    }

    fn settle(&self) {
        let mut space = self.space.lock();
        let freed = std::mem::take(&mut space.waiting);
        space.settled.extend(freed);
    }
}

fn options(near_bytes: u64) -> CacheOptions {
    CacheOptions { page_bytes: PAGE, near_bytes, ..CacheOptions::default() }
}

fn cache(options: &CacheOptions) -> (Arc<Cache>, Arc<Medium>) {
    let medium = Arc::new(Medium::default());
    (Cache::new(options, medium.clone(), medium.clone()).expect("a cache"), medium)
}

/// Far memory as slow as persistent memory, on a virtual clock.
fn modelled() -> (Arc<ModelMemory>, Arc<VirtualClock>) {
    let medium = media().iter().find(|medium| medium.name == "dcpmm100-128g").expect("in the catalogue");
    let model = TimingModel::of(medium, 0).expect("a model");
    let (budget, clock) = (catalogue::Budget::new(&model), VirtualClock::new());
    (Arc::new(ModelMemory::new(model, budget, Timing::Accounted(clock.clone()))), clock)
}

/// Caches of every policy: with near memory alone, with far memory, in Memory Mode.
fn makes() -> Vec<CacheOptions> {
    let small = options(NEAR_BYTES_MIN);
    let managed = |promote| Policy::Managed { promote };
    let far = CacheOptions { far_bytes: 8 << 20, policy: managed(0.5), ..small.clone() };
    let modelled = CacheOptions { policy: managed(1.0), far_model: Some(modelled().0), ..far.clone() };
    let direct = CacheOptions { policy: Policy::DirectMapped, ..modelled.clone() };
    vec![small, options(16 << 20), far, modelled, direct]
}

/// An image whose every byte depends on page and version.
fn image(kind: Kind, version: u64) -> Vec<u8> {
    let mut image: Vec<u8> = (0..PAGE as u64).map(|at| (at ^ version.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
    image[..32].fill(0);
    PageHeader { kind, level: 0, flags: 0, tree: 1, lsn: version }.put(&mut image);
    image
}

/// All bytes except the checksum, which is not maintained in memory.
fn body(page: &[u8]) -> &[u8] {
    &page[4..]
}

#[test]
fn damage_on_a_data_device_is_found_when_it_is_read_and_says_where() {
    let medium = Arc::new(Medium::default());
    let cache = Cache::new(&options(NEAR_BYTES_MIN), medium.clone(), medium.clone()).expect("a cache");
    let (page, mut leaf) = cache.create_leaf().expect("room");
    leaf.copy_from_slice(&image(Kind::Leaf, 1));
    drop(leaf);
    let inner = cache.create_inner(&image(Kind::Inner, 2)).expect("room");
    let extent = cache.create_extent(&[7; 10_000]).expect("room");
    let checkpoint = cache.begin_checkpoint();
    for run in checkpoint.fresh() {
        let mut bytes = vec![0; run.pages as usize * PAGE];
        checkpoint.image(*run, &mut bytes);
        medium.put(run.first, &bytes);
    }
    checkpoint.finish();
    for at in [page, inner, extent.first] {
        medium.pages.lock().get_mut(&at.0).expect("is written back")[100] ^= 1;
    }
    let anew = Cache::new(&options(NEAR_BYTES_MIN), medium.clone(), medium.clone()).expect("a cache");
    for _ in 0..2 {
        let errors = [
            anew.read(page).expect_err("damaged"),
            anew.inner(inner, |_| ()).expect_err("damaged"),
            anew.read_extent(extent).expect_err("damaged"),
        ];
        for (error, page) in errors.iter().zip([page, inner, extent.first]) {
            let text = error.to_string();
            assert!(matches!(error, StoreError::Corrupt(_)) && text.contains(&format!("page {page}")), "{text}");
        }
    }
    // Repaired, it can be read.
    medium.pages.lock().get_mut(&page.0).expect("is written back")[100] ^= 1;
    assert_eq!(body(&anew.read(page).expect("mended")), body(&image(Kind::Leaf, 1)));
}

#[test]
fn looking_for_a_value_that_is_gone_leaves_nothing_behind_at_the_page_that_is_there_now() {
    let medium = Arc::new(Medium::default());
    let (leaf, inner) = (PageId(7), PageId(20));
    for (page, kind) in [(leaf, Kind::Leaf), (inner, Kind::Inner)] {
        let mut bytes = image(kind, 1);
        page::seal(page, &mut bytes);
        medium.put(page, &bytes);
    }
    let cache = Cache::new(&options(NEAR_BYTES_MIN), medium.clone(), medium.clone()).expect("a cache");
    for first in [leaf, inner] {
        let gone = Extent { first, bytes: 10_000, checksum: 1 };
        assert!(matches!(cache.read_extent(gone), Err(StoreError::Corrupt(_))));
    }
    cache.write(leaf).expect("reads")[100] ^= 1;
    cache.replace_inner(inner, &image(Kind::Inner, 2)).expect("reads");
    let checkpoint = cache.begin_checkpoint();
    let runs: Vec<_> = checkpoint.changed().iter().map(|run| (run.first, run.pages)).collect();
    assert_eq!(runs, [(leaf, 1), (inner, 1)]);
    checkpoint.finish();
}

#[test]
fn a_load_larger_than_the_cache_is_written_back_early_while_it_is_fresh() {
    let medium = Arc::new(Medium::default());
    let cache = Cache::new(&options(NEAR_BYTES_MIN), medium.clone(), medium.clone()).expect("a cache");
    let pages: Vec<PageId> = (0..4000)
        .map(|version| {
            let (page, mut leaf) = cache.create_leaf().expect("fresh pages make room");
            leaf.copy_from_slice(&image(Kind::Leaf, version));
            page
        })
        .collect();
    assert!(medium.pages.lock().len() > 2000, "most were written in place");
    for (page, version) in pages.iter().zip(0..) {
        assert_eq!(body(&cache.read(*page).expect("reads")), body(&image(Kind::Leaf, version)));
    }
    // Changed again after a checkpoint, they must stay, until there is no more space.
    let checkpoint = cache.begin_checkpoint();
    for run in checkpoint.fresh() {
        let mut bytes = vec![0; PAGE];
        checkpoint.image(*run, &mut bytes);
        medium.put(run.first, &bytes);
    }
    checkpoint.finish();
    let mut waited = None;
    for (number, page) in pages.iter().enumerate() {
        match cache.write(*page) {
            Ok(_) => waited = waited.or_else(|| (cache.pressure() == Pressure::Wait).then_some(number)),
            Err(StoreError::Full(text)) => {
                assert!(text.contains("page cache"), "{text}");
                let waited = waited.expect("it said so before");
                assert!(waited < number / 2 + 100, "it said so at {waited} of {number}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("4000 changed pages found room in 4 MiB");
}
