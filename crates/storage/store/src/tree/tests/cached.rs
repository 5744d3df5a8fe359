//! The tree over a page cache that is smaller than the tree, with checkpoints in between: pages are evicted and loaded.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::cache::{BackingStore, Cache, CacheOptions, CheckpointPages, PageAllocator, PageRun, Pressure};

const PAGE: usize = 4096;

/// Data devices and free pages in plain memory. Freed pages are used again after the next finished checkpoint.
#[derive(Default)]
struct Medium {
    pages: Mutex<BTreeMap<u32, Box<[u8]>>>,
    next: Mutex<u32>,
    freed: Mutex<Vec<(u32, u32)>>,
    usable: Mutex<Vec<(u32, u32)>>,
}

impl BackingStore for Medium {
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        let pages = self.pages.lock();
        for (page, bytes) in (first.0..).zip(buffer.chunks_exact_mut(PAGE)) {
            let found = pages.get(&page).ok_or_else(|| StoreError::Corrupt(format!("no page {page}").into()))?;
            bytes.copy_from_slice(found);
        }
        Ok(())
    }

    fn write(&self, first: PageId, bytes: &[u8]) -> Result<(), StoreError> {
        let written = (first.0..).zip(bytes.chunks_exact(PAGE).map(Into::into));
        self.pages.lock().extend(written);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl PageAllocator for Medium {
    fn allocate(&self, pages: u32) -> Result<PageId, StoreError> {
        let mut usable = self.usable.lock();
        if let Some(at) = usable.iter().rposition(|(_, length)| *length == pages) {
            return Ok(PageId(usable.swap_remove(at).0));
        }
        let mut next = self.next.lock();
        *next += pages;
        Ok(PageId(*next - pages + 1))
    }

    fn free(&self, first: PageId, pages: u32) {
        self.freed.lock().push((first.0, pages));
    }
}

struct Cached {
    cache: Arc<Cache>,
    medium: Arc<Medium>,
    checkpoint: Option<Checkpoint>,
}

/// A checkpoint in progress.
struct Checkpoint {
    checkpoint: CheckpointPages,
    /// The pages that are not written back yet.
    left: Vec<PageRun>,
    /// The pages freed before the checkpoint.
    freed: Vec<(u32, u32)>,
}

impl Cached {
    fn new(near_bytes: u64) -> Cached {
        let medium = Arc::new(Medium::default());
        let options = CacheOptions { page_bytes: PAGE, near_bytes, ..CacheOptions::default() };
        let cache = Cache::new(&options, medium.clone(), medium.clone()).expect("possible");
        Cached { cache, medium, checkpoint: None }
    }

    /// The applier's work between two changes: now and then a part of a checkpoint, and a whole one if it must wait.
    fn between(&mut self, rng: &mut fastrand::Rng) {
        match self.cache.pressure() {
            Pressure::None if self.checkpoint.is_none() => {}
            Pressure::None | Pressure::Checkpoint if rng.u8(..10) > 0 => {}
            Pressure::None | Pressure::Checkpoint => self.step(rng.usize(..40)),
            Pressure::Wait => {
                while self.cache.pressure() == Pressure::Wait {
                    self.step(usize::MAX);
                }
            }
        }
    }

    /// A part of a checkpoint: writes at most so many runs in place.
    fn step(&mut self, runs: usize) {
        let checkpoint = self.checkpoint.get_or_insert_with(|| {
            let freed = std::mem::take(&mut *self.medium.freed.lock());
            let checkpoint = self.cache.begin_checkpoint();
            let left = checkpoint.fresh().iter().chain(checkpoint.changed()).copied().collect();
            Checkpoint { checkpoint, left, freed }
        });
        for run in checkpoint.left.split_off(checkpoint.left.len().saturating_sub(runs)) {
            let mut image = vec![0; run.pages as usize * PAGE];
            checkpoint.checkpoint.image(run, &mut image);
            self.medium.write(run.first, &image).expect("memory does not fail");
            checkpoint.checkpoint.written_back(run);
        }
        if let Some(mut done) = self.checkpoint.take_if(|checkpoint| checkpoint.left.is_empty()) {
            self.medium.usable.lock().append(&mut done.freed);
            done.checkpoint.finish();
        }
    }
}

#[test]
fn readers_see_what_was_there_while_pages_come_and_go_in_the_cache() {
    let mut cached = Cached::new(4 << 20);
    let cache = cached.cache.clone();
    let mut rng = fastrand::Rng::with_seed(seed(21));
    super::readers::beside_one_another(&*cache, 100, || cached.between(&mut rng));
}

#[test]
fn a_tree_larger_than_the_cache_is_an_ordered_map() {
    let mut rng = fastrand::Rng::with_seed(seed(22));
    let mut cached = Cached::new(4 << 20);
    let cache = cached.cache.clone();
    let tree = Tree::create(&*cache, ID, Lsn(1)).expect("room");
    let mut model = BTreeMap::new();
    let mut old = Vec::new();
    for round in 0..60 {
        let mut writer = tree.writer(&*cache);
        for at in 0..1000u64 {
            let lsn = Lsn(round * 1000 + at);
            cached.between(&mut rng);
            let key = rng.u32(..60_000).to_be_bytes().to_vec();
            if rng.u8(..4) == 0 {
                old.extend(writer.delete(&key, lsn).expect("room"));
                model.remove(&key);
            } else {
                let bytes = if rng.u8(..200) == 0 { rng.usize(..100_000) } else { rng.usize(..500) };
                let value = vec![rng.u8(..); bytes];
                old.extend(writer.put(&key, &value, lsn).expect("room"));
                model.insert(key, value);
            }
        }
        old.drain(..).for_each(|cell| cell.free(&*cache));
    }
    let report = tree.check(&*cache, |_| ()).expect("memory does not fail");
    assert_eq!(report.messages, Vec::<String>::new());
    assert!(report.leaves * PAGE as u64 > 6 << 20, "larger than the cache: {report:?}");
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found = all(tree, &*cache, direction);
        if direction == Direction::Backward {
            found.reverse();
        }
        assert_eq!(found.len(), model.len());
        for ((key, cell), (expected, value)) in found.iter().zip(&model) {
            assert!(key == expected && cell.read(&*cache).expect("sound") == value, "{key:02x?}");
        }
    }
}
