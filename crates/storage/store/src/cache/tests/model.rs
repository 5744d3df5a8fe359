//! Random operations of one thread against a map, with checkpoints and write-backs in between, with every policy of the
//! cache.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::*;
use crate::page::{Extent, check};

#[derive(Clone, Debug)]
enum Held {
    Leaf(u64),
    Inner(u64),
    Extent(Extent, Vec<u8>),
}

/// The cache and its expected content.
struct Model {
    cache: Arc<Cache>,
    medium: Arc<Medium>,
    held: BTreeMap<PageId, Held>,
    version: u64,
    random: fastrand::Rng,
    /// The checkpoint, its expected content, and its pages that are not written back.
    checkpoint: Option<(CheckpointPages, BTreeMap<PageId, Held>, Vec<PageRun>)>,
    pins: Vec<(bytes::Bytes, Vec<u8>)>,
    /// Pages to which durable content refers.
    durable: BTreeSet<PageId>,
}

impl Model {
    fn new(seed: u64, options: &CacheOptions) -> Model {
        let (cache, medium) = cache(options);
        Model {
            cache,
            medium,
            held: BTreeMap::new(),
            version: 0,
            random: fastrand::Rng::with_seed(seed),
            checkpoint: None,
            pins: Vec::new(),
            durable: BTreeSet::new(),
        }
    }

    fn pick(&mut self) -> Option<(PageId, Held)> {
        let at = self.random.usize(..self.held.len().max(1));
        self.held.iter().nth(at).map(|(page, held)| (*page, held.clone()))
    }

    fn step(&mut self) {
        self.version += 1;
        match self.random.u32(..100) {
            0..12 => self.create(),
            12..56 => self.read(),
            56..60 => self.read_ahead(),
            60..80 => self.change(),
            80..86 => self.free(),
            86..88 => self.begin_checkpoint(),
            88..98 => self.write_back_one(),
            _ => self.finish_checkpoint(),
        }
        // The applier waits when the cache requires it.
        while self.cache.pressure() == Pressure::Wait {
            self.begin_checkpoint();
            self.finish_checkpoint();
        }
    }

    fn create(&mut self) {
        if self.held.len() > 1500 {
            return self.free();
        }
        let version = self.version;
        let (page, held) = match self.random.u32(..10) {
            0..6 => {
                let (page, mut leaf) = self.cache.create_leaf().expect("room");
                assert!(leaf.iter().all(|byte| *byte == 0), "a new leaf is zeros");
                leaf.copy_from_slice(&image(Kind::Leaf, version));
                (page, Held::Leaf(version))
            }
            6..8 => (self.cache.create_inner(&image(Kind::Inner, version)).expect("room"), Held::Inner(version)),
            _ => {
                let length = if self.random.u32(..20) == 0 { 1 << 20 } else { self.random.usize(1..100_000) };
                let bytes: Vec<u8> = (0..length).map(|at| (at as u64 ^ version) as u8).collect();
                let extent = self.cache.create_extent(&bytes).expect("room");
                (extent.first, Held::Extent(extent, bytes))
            }
        };
        assert!(self.held.insert(page, held).is_none(), "page {page} was given out twice");
    }

    /// Any adjacent pages of any kind, except those after the first of an extent, which are never read as leaves.
    fn read_ahead(&mut self) {
        let Some((first, _)) = self.pick() else { return };
        let near: Vec<(PageId, Held)> =
            self.held.range(first..).map(|(page, held)| (*page, held.clone())).take(40).collect();
        let pages: Vec<PageId> = near.iter().map(|(page, _)| *page).collect();
        let extents = near.iter().filter_map(|(_, held)| match held {
            Held::Extent(extent, _) => Some(*extent),
            _ => None,
        });
        let mut ahead = ReadAhead::default();
        if self.random.bool() {
            ahead.leaves(&self.cache, &pages);
        }
        ahead.extents(&self.cache, &extents.collect::<Vec<_>>());
    }

    fn read(&mut self) {
        let Some((page, held)) = self.pick() else { return };
        let hint = if self.random.bool() { Hint::Point } else { Hint::Scan };
        match held {
            Held::Leaf(version) => {
                assert_eq!(
                    body(&self.cache.read_with(page, hint).expect("reads")),
                    body(&image(Kind::Leaf, version)),
                    "{page}"
                );
                assert!(self.cache.inner(page, |_| ()).is_err(), "a leaf is no inner page");
            }
            Held::Inner(version) => {
                let mut found = vec![0; PAGE];
                self.cache.inner(page, |words| slots::copy(words, &mut found)).expect("reads");
                assert_eq!(body(&found), body(&image(Kind::Inner, version)), "{page}");
                assert!(self.cache.read(page).is_err(), "an inner page is no leaf");
            }
            Held::Extent(extent, bytes) => {
                let found = self.cache.read_extent_with(extent, hint).expect("reads");
                assert!(found == bytes, "extent {page}");
                assert!(self.cache.read(page).is_err(), "an extent is no leaf");
                if self.random.u32(..4) == 0 && self.pins.len() < 3 {
                    self.pins.push((found, bytes));
                } else if !self.pins.is_empty() {
                    let (pinned, bytes) = self.pins.swap_remove(0);
                    assert!(pinned == bytes, "a pin changed");
                }
            }
        }
    }

    fn change(&mut self) {
        let version = self.version;
        let Some((page, held)) = self.pick() else { return };
        let new = match held {
            Held::Leaf(old) => {
                let mut leaf = self.cache.write(page).expect("writes");
                assert_eq!(body(&leaf), body(&image(Kind::Leaf, old)), "{page}");
                leaf.copy_from_slice(&image(Kind::Leaf, version));
                Held::Leaf(version)
            }
            Held::Inner(_) => {
                self.cache.replace_inner(page, &image(Kind::Inner, version)).expect("replaces");
                Held::Inner(version)
            }
            extent => extent,
        };
        self.held.insert(page, new);
    }

    fn free(&mut self) {
        let Some((page, held)) = self.pick() else { return };
        self.held.remove(&page);
        match held {
            Held::Extent(extent, _) => self.cache.free_extent(extent),
            _ => self.cache.free(page),
        }
        assert!(self.cache.read(page).is_err() && self.cache.inner(page, |_| ()).is_err(), "a freed page is read");
    }

    fn begin_checkpoint(&mut self) {
        if self.checkpoint.is_some() {
            return;
        }
        let checkpoint = self.cache.begin_checkpoint();
        self.medium.wait();
        for run in checkpoint.fresh() {
            assert!(!self.durable.contains(&run.first), "page {} is not fresh", run.first);
        }
        for run in checkpoint.changed() {
            assert!(self.durable.contains(&run.first), "page {} is fresh", run.first);
        }
        let open = checkpoint.fresh().iter().chain(checkpoint.changed()).copied().collect();
        self.durable = self.held.keys().copied().collect();
        *self.medium.durable.lock() = self.held.keys().map(|page| page.0).collect();
        self.checkpoint = Some((checkpoint, self.held.clone(), open));
    }

    fn write_back_one(&mut self) {
        let Some((checkpoint, then, open)) = &mut self.checkpoint else { return };
        if open.is_empty() {
            return self.finish_checkpoint();
        }
        let run = open.swap_remove(self.random.usize(..open.len()));
        let mut bytes = vec![0; run.pages as usize * PAGE];
        checkpoint.image(run, &mut bytes);
        match then.get(&run.first) {
            Some(Held::Leaf(version)) => assert_eq!(body(&bytes), body(&image(Kind::Leaf, *version))),
            Some(Held::Inner(version)) => assert_eq!(body(&bytes), body(&image(Kind::Inner, *version))),
            Some(Held::Extent(_, content)) => assert!(bytes.starts_with(content), "{run:?}"),
            None => panic!("{run:?} was in the checkpoint and not held"),
        }
        if !run.is_extent {
            check(run.first, &bytes).expect("sealed");
        }
        self.medium.put(run.first, &bytes);
        checkpoint.written_back(run);
    }

    fn finish_checkpoint(&mut self) {
        while self.checkpoint.as_ref().is_some_and(|(_, _, open)| !open.is_empty()) {
            self.write_back_one();
        }
        let Some((checkpoint, then, _)) = self.checkpoint.take() else { return };
        checkpoint.finish();
        self.medium.settle();
        assert_eq!(self.cache.dirty_bytes().checkpoint, 0);
        // The data devices now contain what was there when the checkpoint began.
        for (page, held) in then.iter().filter(|(page, _)| self.durable.contains(page)) {
            let mut bytes = vec![0; PAGE];
            self.medium.read(*page, &mut bytes).expect("reads");
            match held {
                Held::Leaf(version) => {
                    assert_eq!(body(&bytes), body(&image(Kind::Leaf, *version)), "{page} on the data devices")
                }
                Held::Inner(version) => {
                    assert_eq!(body(&bytes), body(&image(Kind::Inner, *version)), "{page} on the data devices")
                }
                Held::Extent(_, content) => {
                    let length = content.len().min(PAGE);
                    assert!(bytes[..length] == content[..length], "extent {page} on the data devices");
                }
            }
        }
    }

    /// The sums must equal those of the words.
    fn check_sums(&self) {
        let mut sums = DirtyBytes::default();
        for page in 0..=self.medium.space.lock().next {
            let state = self.cache.state(PageId(page));
            let bytes = u64::from(state.pages()) * PAGE as u64;
            match (state.has(Flag::Dirty), state.has(Flag::Fresh)) {
                (true, true) => sums.fresh += bytes,
                (true, false) => sums.changed += bytes,
                _ => {}
            }
            sums.checkpoint += if state.has(Flag::Checkpoint) { bytes } else { 0 };
        }
        assert_eq!(self.cache.dirty_bytes(), sums);
        let pre_images: HashMap<_, _> = self.cache.pre_images.lock().keys().map(|page| (*page, ())).collect();
        assert!(pre_images.keys().all(|page| self.cache.state(*page).has(Flag::PreImage)));
    }
}

#[test]
fn what_is_read_is_what_was_written_last_and_a_checkpoint_is_what_was_there() {
    for (make, options) in makes().iter().enumerate() {
        for seed in [1, 2] {
            println!("seed {seed}, make {make}: {options:?}");
            let mut model = Model::new(seed, options);
            for step in 0..3000 {
                model.step();
                if step % 500 == 0 {
                    model.check_sums();
                }
            }
            model.finish_checkpoint();
            model.begin_checkpoint();
            model.finish_checkpoint();
            // A new cache over the same data devices finds everything.
            model.pins.clear();
            let nothing = Arc::new(Medium::default());
            model.cache = Cache::new(options, model.medium.clone(), nothing).expect("a cache");
            for _ in 0..2000 {
                model.read();
            }
        }
    }
}
