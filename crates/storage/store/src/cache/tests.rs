//! The cache against a model: what is read is what was written last, and what a cut says is what was there at the cut.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::*;
use crate::page::{Extent, Header, Kind, check};
use crate::pages::Pages;

const PAGE: usize = 4096;

/// Homes and space in plain memory. Pages freed are not given out again before [`Medium::settle`], as in a write cycle.
#[derive(Default)]
pub(super) struct Medium {
    pages: Mutex<BTreeMap<u32, Box<[u8]>>>,
    space: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    next: u32,
    /// Freed since the last cut, before it, and before one that is finished.
    freed: Vec<(u32, u32)>,
    waiting: Vec<(u32, u32)>,
    settled: Vec<(u32, u32)>,
}

impl Home for Medium {
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
        let mut pages = self.pages.lock();
        for (page, bytes) in (first.0..).zip(bytes.chunks_exact(PAGE)) {
            pages.insert(page, bytes.into());
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Space for Medium {
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
    /// With a cut: what was freed so far can be used again when it is finished.
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

pub(super) fn options(near_bytes: u64) -> CacheOptions {
    CacheOptions { page_bytes: PAGE, near_bytes, ..CacheOptions::default() }
}

/// An image whose every byte depends on page and version.
pub(super) fn image(kind: Kind, version: u64) -> Vec<u8> {
    let mut image: Vec<u8> = (0..PAGE as u64).map(|at| (at ^ version.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
    image[..32].fill(0);
    Header { kind, level: 0, flags: 0, tree: 1, lsn: version }.put(&mut image);
    image
}

/// All but the checksum, which means nothing in memory.
fn body(page: &[u8]) -> &[u8] {
    &page[4..]
}

#[derive(Clone, Debug)]
enum Held {
    Leaf(u64),
    Inner(u64),
    Extent(Extent, Vec<u8>),
}

/// The cache and what should be in it.
struct Model {
    cache: Arc<Cache>,
    medium: Arc<Medium>,
    held: BTreeMap<PageId, Held>,
    version: u64,
    random: fastrand::Rng,
    /// The cut, what was held then, and what of it is not home.
    cut: Option<(Cut, BTreeMap<PageId, Held>, Vec<Run>)>,
    leases: Vec<(bytes::Bytes, Vec<u8>)>,
    /// Pages that durable content refers to.
    durable: BTreeSet<PageId>,
}

impl Model {
    fn new(seed: u64, near_bytes: u64) -> Model {
        let medium = Arc::new(Medium::default());
        let cache = Cache::new(&options(near_bytes), medium.clone(), medium.clone()).expect("a cache");
        Model {
            cache,
            medium,
            held: BTreeMap::new(),
            version: 0,
            random: fastrand::Rng::with_seed(seed),
            cut: None,
            leases: Vec::new(),
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
            12..60 => self.read(),
            60..80 => self.change(),
            80..86 => self.free(),
            86..88 => self.begin_cut(),
            88..98 => self.home_one(),
            _ => self.finish_cut(),
        }
        // The applier waits where it is told to.
        while self.cache.pressure() == Pressure::Wait {
            self.begin_cut();
            self.finish_cut();
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

    fn read(&mut self) {
        let Some((page, held)) = self.pick() else { return };
        match held {
            Held::Leaf(version) => {
                assert_eq!(body(&self.cache.read(page).expect("reads")), body(&image(Kind::Leaf, version)), "{page}");
                assert!(self.cache.inner(page, |_| ()).is_err(), "a leaf is no inner page");
            }
            Held::Inner(version) => {
                let mut found = vec![0; PAGE];
                self.cache.inner(page, |words| slots::copy(words, &mut found)).expect("reads");
                assert_eq!(body(&found), body(&image(Kind::Inner, version)), "{page}");
                assert!(self.cache.read(page).is_err(), "an inner page is no leaf");
            }
            Held::Extent(extent, bytes) => {
                let found = self.cache.read_extent(extent).expect("reads");
                assert!(found == bytes, "extent {page}");
                assert!(self.cache.read(page).is_err(), "an extent is no leaf");
                if self.random.u32(..4) == 0 && self.leases.len() < 3 {
                    self.leases.push((found, bytes));
                } else if !self.leases.is_empty() {
                    let (lease, bytes) = self.leases.swap_remove(0);
                    assert!(lease == bytes, "a lease changed");
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

    fn begin_cut(&mut self) {
        if self.cut.is_some() {
            return;
        }
        let cut = self.cache.cut();
        self.medium.wait();
        for run in cut.fresh() {
            assert!(!self.durable.contains(&run.first), "page {} is not fresh", run.first);
        }
        for run in cut.changed() {
            assert!(self.durable.contains(&run.first), "page {} is fresh", run.first);
        }
        let open = cut.fresh().iter().chain(cut.changed()).copied().collect();
        self.durable = self.held.keys().copied().collect();
        self.cut = Some((cut, self.held.clone(), open));
    }

    fn home_one(&mut self) {
        let Some((cut, then, open)) = &mut self.cut else { return };
        if open.is_empty() {
            return self.finish_cut();
        }
        let run = open.swap_remove(self.random.usize(..open.len()));
        let mut bytes = vec![0; run.pages as usize * PAGE];
        cut.image(run, &mut bytes);
        match then.get(&run.first) {
            Some(Held::Leaf(version)) => assert_eq!(body(&bytes), body(&image(Kind::Leaf, *version))),
            Some(Held::Inner(version)) => assert_eq!(body(&bytes), body(&image(Kind::Inner, *version))),
            Some(Held::Extent(_, content)) => assert!(bytes.starts_with(content), "{run:?}"),
            None => panic!("{run:?} was in the cut and not held"),
        }
        if !run.is_extent {
            check(run.first, &bytes).expect("sealed");
        }
        self.medium.write(run.first, &bytes).expect("writes");
        cut.homed(run);
    }

    fn finish_cut(&mut self) {
        while self.cut.as_ref().is_some_and(|(_, _, open)| !open.is_empty()) {
            self.home_one();
        }
        let Some((cut, then, _)) = self.cut.take() else { return };
        cut.finish();
        self.medium.settle();
        assert_eq!(self.cache.dirty_bytes().cut, 0);
        // What is at home now is what was there at the cut.
        for (page, held) in then.iter().filter(|(page, _)| self.durable.contains(page)) {
            let mut bytes = vec![0; PAGE];
            self.medium.read(*page, &mut bytes).expect("reads");
            match held {
                Held::Leaf(version) => assert_eq!(body(&bytes), body(&image(Kind::Leaf, *version)), "{page} at home"),
                Held::Inner(version) => assert_eq!(body(&bytes), body(&image(Kind::Inner, *version)), "{page} at home"),
                Held::Extent(_, content) => {
                    let length = content.len().min(PAGE);
                    assert!(bytes[..length] == content[..length], "extent {page} at home");
                }
            }
        }
    }

    /// The sums are those of the words.
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
            sums.cut += if state.has(Flag::Cut) { bytes } else { 0 };
        }
        assert_eq!(self.cache.dirty_bytes(), sums);
        let kept: HashMap<_, _> = self.cache.kept.lock().keys().map(|page| (*page, ())).collect();
        assert!(kept.keys().all(|page| self.cache.state(*page).has(Flag::Kept)));
    }
}

#[test]
fn what_is_read_is_what_was_written_last_and_a_cut_is_what_was_there() {
    for seed in 0..6 {
        let steps = 6000;
        println!("seed {seed}");
        let mut model = Model::new(seed, if seed % 2 == 0 { NEAR_BYTES_MIN } else { 16 << 20 });
        for step in 0..steps {
            model.step();
            if step % 500 == 0 {
                model.check_sums();
            }
        }
        model.finish_cut();
        model.begin_cut();
        model.finish_cut();
        // A new cache over the same homes finds everything.
        model.leases.clear();
        let fresh = Model::new(seed, NEAR_BYTES_MIN);
        model.cache = Cache::new(&options(NEAR_BYTES_MIN), model.medium.clone(), fresh.medium).expect("a cache");
        for _ in 0..2000 {
            model.read();
        }
    }
}

#[test]
fn damage_at_home_is_found_when_it_is_read_and_says_where() {
    let medium = Arc::new(Medium::default());
    let cache = Cache::new(&options(NEAR_BYTES_MIN), medium.clone(), medium.clone()).expect("a cache");
    let (page, mut leaf) = cache.create_leaf().expect("room");
    leaf.copy_from_slice(&image(Kind::Leaf, 1));
    drop(leaf);
    let inner = cache.create_inner(&image(Kind::Inner, 2)).expect("room");
    let extent = cache.create_extent(&[7; 10_000]).expect("room");
    let cut = cache.cut();
    for run in cut.fresh() {
        let mut bytes = vec![0; run.pages as usize * PAGE];
        cut.image(*run, &mut bytes);
        medium.write(run.first, &bytes).expect("writes");
    }
    cut.finish();
    for at in [page, inner, extent.first] {
        medium.pages.lock().get_mut(&at.0).expect("is home")[100] ^= 1;
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
    // Mended, it is read.
    medium.pages.lock().get_mut(&page.0).expect("is home")[100] ^= 1;
    assert_eq!(body(&anew.read(page).expect("mended")), body(&image(Kind::Leaf, 1)));
}

#[test]
fn a_load_larger_than_the_cache_goes_home_by_itself_while_it_is_fresh() {
    let medium = Arc::new(Medium::default());
    let cache = Cache::new(&options(NEAR_BYTES_MIN), medium.clone(), medium.clone()).expect("a cache");
    let pages: Vec<PageId> = (0..4000)
        .map(|version| {
            let (page, mut leaf) = cache.create_leaf().expect("fresh pages make room");
            leaf.copy_from_slice(&image(Kind::Leaf, version));
            page
        })
        .collect();
    assert!(medium.pages.lock().len() > 2000, "most were written home");
    for (page, version) in pages.iter().zip(0..) {
        assert_eq!(body(&cache.read(*page).expect("reads")), body(&image(Kind::Leaf, version)));
    }
    // Changed again after a cut they must stay, until there is no more room.
    let cut = cache.cut();
    for run in cut.fresh() {
        let mut bytes = vec![0; PAGE];
        cut.image(*run, &mut bytes);
        medium.write(run.first, &bytes).expect("writes");
    }
    cut.finish();
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
