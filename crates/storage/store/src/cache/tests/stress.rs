//! Readers beside one writer, extents, checkpoints and evictions, with every policy of the cache. Content certifies
//! itself: object, version, and bytes that follow from both.

use std::sync::atomic::AtomicBool;
use std::thread;

use parking_lot::RwLock;

use super::*;
use crate::page::Extent;

/// Objects that the writer keeps; most of them do not fit in memory.
const OBJECTS: usize = 1500;
const EXTENTS: usize = 60;
const STEPS: u32 = 3_000;

/// The place of an object: page, kind and version, in one word; 0 while it does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    page: PageId,
    is_inner: bool,
    version: u32,
}

impl Entry {
    fn word(self) -> u64 {
        u64::from(self.page.0) << 32 | u64::from(self.is_inner) << 31 | u64::from(self.version)
    }

    fn of(word: u64) -> Option<Entry> {
        let version = word as u32 & (u32::MAX >> 1);
        (word != 0).then_some(Entry { page: PageId((word >> 32) as u32), is_inner: word >> 31 & 1 == 1, version })
    }
}

struct Scene {
    cache: Arc<Cache>,
    medium: Arc<Medium>,
    entries: Vec<AtomicU64>,
    extents: Vec<RwLock<Option<(Extent, u32)>>>,
    /// The applier's lock.
    applier: Mutex<()>,
    stop: AtomicBool,
}

/// A thread that fails stops the others, so that the test ends.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn mix(value: u64) -> u64 {
    (value ^ value >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn content(kind: Kind, object: usize, version: u32) -> Vec<u8> {
    let base = (object as u64) << 32 | u64::from(version);
    let words = (0..PAGE as u64 / 8).flat_map(|at| mix(base + (at << 20)).to_le_bytes());
    let mut page: Vec<u8> = words.collect();
    page[..32].fill(0);
    PageHeader { kind, level: 0, flags: 0, tree: object as u32, lsn: version.into() }.put(&mut page);
    page
}

fn extent_content(object: usize, version: u32) -> Vec<u8> {
    let base = mix((object as u64) << 32 | u64::from(version));
    let length = if version.is_multiple_of(16) { 300_000 } else { 1 + (base % 50_000) as usize };
    (0..length as u64).map(|at| (base >> (at % 57)) as u8).collect()
}

/// The object and version that a page contains, if all of its bytes agree.
fn certified(page: &[u8]) -> (usize, u32) {
    let header = PageHeader::of(page).expect("a header");
    let (object, version) = (header.tree as usize, header.lsn as u32);
    assert!(body(page) == body(&content(header.kind, object, version)), "page of object {object} is torn");
    (object, version)
}

impl Scene {
    fn entry(&self, object: usize) -> Option<Entry> {
        Entry::of(self.entries[object].load(Ordering::Acquire))
    }

    /// Reads an object; it must be as new as its entry was before, unless the entry has changed.
    fn read(&self, random: &mut fastrand::Rng) {
        // A tenth of the objects is used often.
        let object = if random.bool() { random.usize(..OBJECTS / 10) } else { random.usize(..OBJECTS) };
        let Some(entry) = self.entry(object) else { return };
        let hint = if random.u8(..4) == 0 { Hint::Scan } else { Hint::Point };
        let found = if entry.is_inner {
            let mut image = vec![0; PAGE];
            let read = self.cache.inner(entry.page, |words| slots::copy(words, &mut image));
            read.map(|()| certified(&image))
        } else {
            self.cache.read_with(entry.page, hint).map(|page| match page[..32] == [0; 32] {
                // Created a moment ago, and not yet filled: the entry is that of its previous life.
                true => (usize::MAX, 0),
                false => certified(&page),
            })
        };
        match found {
            Ok((is, version)) if is == object => {
                let later = self.entry(object).is_none_or(|now| now.page != entry.page);
                assert!(later || version >= entry.version, "object {object}: {version} after {}", entry.version);
            }
            Ok(_) | Err(StoreError::Corrupt(_)) => {
                assert_ne!(self.entry(object), Some(entry), "object {object}: {found:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Adjacent pages, some of which other threads free, change and write back meanwhile.
    fn read_ahead(&self, random: &mut fastrand::Rng) {
        let first = random.usize(..OBJECTS);
        let entries = (first..OBJECTS).take(30).filter_map(|object| self.entry(object));
        let leaves: Vec<PageId> = entries.map(|entry| entry.page).collect();
        let mut ahead = ReadAhead::default();
        ahead.leaves(&self.cache, &leaves);
        // The locks stand for the snapshot, as where one is read.
        let places: Vec<_> = self.extents.iter().filter_map(|place| place.try_read()).collect();
        let extents: Vec<Extent> = places.iter().filter_map(|place| Some(place.as_ref()?.0)).collect();
        ahead.extents(&self.cache, &extents);
    }

    fn read_extent(&self, random: &mut fastrand::Rng, pins: &mut Vec<(bytes::Bytes, usize, u32)>) {
        let object = random.usize(..EXTENTS);
        let hint = if random.bool() { Hint::Scan } else { Hint::Point };
        // The lock takes the place of the snapshot that keeps freed pages from being used again.
        let place = self.extents[object].read();
        if let Some((extent, version)) = *place {
            let bytes = self.cache.read_extent_with(extent, hint).expect("reads");
            pins.push((bytes, object, version));
        }
        drop(place);
        if pins.len() > 2 {
            let (bytes, object, version) = pins.swap_remove(random.usize(..pins.len()));
            assert!(bytes == extent_content(object, version), "extent {object}: not version {version}");
        }
    }

    fn reader(&self, seed: u64) {
        let _stop = StopOnPanic(&self.stop);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pins = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            match random.u32(..20) {
                0 => self.read_extent(&mut random, &mut pins),
                1 => self.read_ahead(&mut random),
                _ => self.read(&mut random),
            }
        }
    }

    fn write(&self, random: &mut fastrand::Rng, version: u32) {
        let object = random.usize(..OBJECTS);
        let _applier = self.applier.lock();
        let entry = match self.entry(object) {
            None => {
                let is_inner = random.u8(..8) == 0;
                let page = if is_inner {
                    self.cache.create_inner(&content(Kind::Inner, object, version)).expect("room")
                } else {
                    let (page, mut leaf) = self.cache.create_leaf().expect("room");
                    leaf.copy_from_slice(&content(Kind::Leaf, object, version));
                    page
                };
                Some(Entry { page, is_inner, version })
            }
            Some(entry) if random.u8(..10) == 0 => {
                self.entries[object].store(0, Ordering::Release);
                self.cache.free(entry.page);
                None
            }
            Some(entry) => {
                if entry.is_inner {
                    self.cache.replace_inner(entry.page, &content(Kind::Inner, object, version)).expect("replaces");
                } else {
                    let mut leaf = self.cache.write(entry.page).expect("writes");
                    assert_eq!(certified(&leaf), (object, entry.version), "what the writer wrote last");
                    leaf.copy_from_slice(&content(Kind::Leaf, object, version));
                }
                Some(Entry { version, ..entry })
            }
        };
        self.entries[object].store(entry.map_or(0, Entry::word), Ordering::Release);
    }

    fn writer(&self, seed: u64) {
        let _stop = StopOnPanic(&self.stop);
        let mut random = fastrand::Rng::with_seed(seed);
        for version in 1..=STEPS {
            self.write(&mut random, version);
            while self.cache.pressure() == Pressure::Wait && !self.stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Creates extents beside the writer, as transactions do.
    fn spiller(&self, seed: u64) {
        let _stop = StopOnPanic(&self.stop);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut version = 0;
        while !self.stop.load(Ordering::Relaxed) {
            version += 1;
            let object = random.usize(..EXTENTS);
            let extent = match self.cache.create_extent(&extent_content(object, version)) {
                Ok(extent) => extent,
                // A few slabs, and pins in most of them.
                Err(StoreError::Full(_)) => {
                    thread::yield_now();
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let _applier = self.applier.lock();
            let old = self.extents[object].write().replace((extent, version));
            if let Some((old, _)) = old {
                self.cache.free_extent(old);
            }
        }
    }

    /// Runs checkpoints, one after the other. What is written in place must be what was there when the checkpoint
    /// began.
    fn checkpoints(&self) {
        let _stop = StopOnPanic(&self.stop);
        while !self.stop.load(Ordering::Relaxed) {
            let standing = self.applier.lock();
            let checkpoint = self.cache.begin_checkpoint();
            self.medium.wait();
            let then: BTreeMap<u32, (usize, u32)> = (0..OBJECTS)
                .filter_map(|object| self.entry(object).map(|entry| (entry.page.0, (object, entry.version))))
                .collect();
            let extents = self.extents.iter().filter_map(|extent| Some(extent.read().as_ref()?.0.first.0));
            let after: BTreeSet<u32> = then.keys().copied().chain(extents).collect();
            // An early write-back of a fresh page may be in progress. The page counts as durable once the checkpoint
            // has its image: reading that image waits for the latch of the thread that writes.
            let fresh: BTreeSet<u32> = checkpoint.fresh().iter().map(|run| run.first.0).collect();
            self.medium.durable.lock().extend(after.difference(&fresh));
            drop(standing);
            for run in checkpoint.fresh().iter().chain(checkpoint.changed()) {
                // Like a device: the writer continues meanwhile, and changes pages that are not written back.
                thread::yield_now();
                let mut bytes = vec![0; run.pages as usize * PAGE];
                checkpoint.image(*run, &mut bytes);
                self.medium.durable.lock().insert(run.first.0);
                match then.get(&run.first.0) {
                    Some(object) => assert_eq!(certified(&bytes), *object, "{run:?}"),
                    None => assert!(run.is_extent, "{run:?} was nothing when the checkpoint began"),
                }
                self.medium.put(run.first, &bytes);
                checkpoint.written_back(*run);
            }
            checkpoint.finish();
            *self.medium.durable.lock() = after;
            self.medium.settle();
        }
    }
}

#[test]
fn readers_never_see_a_frame_of_another_page_beside_writer_checkpoints_and_evictions() {
    let makes = makes();
    let mut pre_images = 0;
    for (make, options) in makes.iter().enumerate().filter(|(_, options)| options.near_bytes == NEAR_BYTES_MIN) {
        let seed = 10 * make as u64;
        println!("seed {seed}, make {make}: {options:?}");
        let (cache, medium) = cache(options);
        let scene = Scene {
            cache,
            medium,
            entries: (0..OBJECTS).map(|_| AtomicU64::new(0)).collect(),
            extents: (0..EXTENTS).map(|_| RwLock::new(None)).collect(),
            applier: Mutex::new(()),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            scope.spawn(|| scene.reader(seed + 1));
            scope.spawn(|| scene.reader(seed + 2));
            scope.spawn(|| scene.spiller(seed + 3));
            scope.spawn(|| scene.checkpoints());
            scene.writer(seed + 4);
        });
        let metrics = scene.cache.metrics();
        println!("{metrics:?}");
        assert!(metrics.evictions > 0 && metrics.misses > 0, "{metrics:?}");
        pre_images += metrics.pre_images;
    }
    assert!(pre_images > 0, "the writer never met a checkpoint");
}
