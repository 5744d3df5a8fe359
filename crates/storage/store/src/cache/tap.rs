//! [`AccessTap`]: passes on which pages are accessed, as hashes, while somebody records a profile.
//!
//! ```text
//!   lookup --threshold 0: nobody records--> returns                         one load
//!          --> count of its structure                                       one addition, striped; three of what is no page
//!          --> seen not to be sampled?  yes: returns                        one load
//!          --> hash of the page below the threshold?  no: remembers it, returns
//!                                                     yes: into the buffer of a stripe   --> [`AccessTap::drain`], another thread
//! ```
//!
//! Most accesses are of a few pages, above all of roots and inner pages: a table of [`PASSED_OVER`] places remembers pages that are not sampled, since
//! the threshold only falls. Measured 2026-11-27 under T4: hash and counts took 0.6 % of the node's processor time without it.
//!
//! Invariants: nobody waits here. A buffer that is full or held by another thread drops an access, and counts that. No page number leaves: what
//! is passed on are SipHash-2-4 hashes under the recorder's salt. Memory is a constant ([`BUFFER_ACCESSES`] times [`STRIPES`] entries), and is
//! only allocated while somebody records.
//!
//! What has no page of the cache is noted by whoever reads and writes it ([`AccessTap::beside`]): index files of search, blocks of volumes. Their
//! keys are above all numbers of pages, and are hashed as these are.
//!
//! A structure is a number below [`STRUCTURES`]: those of inner pages, of external files and of everything else are fixed, and those of trees
//! are set by whoever records ([`AccessTap::set_tree`]). Pages of a tree that was made meanwhile count as everything else until then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use profile::hash::Salt;
use profile::{AccessCounts, SampledAccess};

use super::metrics::own_stripe;
use crate::page::PageId;

/// The number of structures at most.
pub const STRUCTURES: usize = profile::STRUCTURES_MAX;
/// Accesses that a buffer holds until it is drained.
pub const BUFFER_ACCESSES: usize = 2048;
/// Buffers.
pub const STRIPES: usize = super::metrics::STRIPES;
/// Pages that can be left out of the sample.
pub const LEFT_OUT_MAX: usize = 32;

/// The structure of inner pages of all trees.
pub const INNER: u8 = 0;
/// The structure of blocks of external files.
pub const EXTERNAL: u8 = 1;
/// The structure of trees that have none of their own.
pub const OTHER: u8 = 2;
/// The structure of index files of search, beside the page cache.
pub const SEGMENTS: u8 = 9;
/// The structure of blocks of volumes, beside the page cache.
pub const VOLUMES: u8 = 10;
/// Those beside the page cache.
pub const BESIDE: [u8; 2] = [SEGMENTS, VOLUMES];

/// Keys of what is beside the page cache have this bit; numbers of pages do not.
const BESIDE_BIT: u64 = 1 << 63;

/// Places of the table of pages that are not sampled.
const PASSED_OVER: usize = 4096;

/// Entries of the table of trees that is read without a lock.
const TREES: usize = 1024;
/// Trees without a structure that are remembered until the next drain.
const UNKNOWN_MAX: usize = 256;

/// What is done to a page, or to a block beside the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is changed, or written as a whole.
    Write,
    /// It is made: nothing was looked for.
    Make,
}

/// Blocks of something beside the page cache.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// [`SEGMENTS`] or [`VOLUMES`].
    pub structure: u8,
    /// Whose blocks they are: a number of [`object_of`].
    pub object: u64,
    /// Their numbers.
    pub numbers: std::ops::Range<u64>,
    /// Bytes of one.
    pub bytes: u32,
}

/// The number of something with this name (FNV-1a). It leaves the process under the salt only.
pub fn object_of(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Inner,
    External,
    /// A leaf or an extent of the tree with this number; none: unknown.
    Tree(Option<u32>),
}

/// What was drained.
#[derive(Debug, Default)]
pub struct Drained {
    /// Accesses to sampled pages, by time. Times are microseconds after [`AccessTap::start`].
    pub sampled: Vec<SampledAccess>,
    /// All accesses since the last drain, by structure.
    pub counts: [AccessCounts; STRUCTURES],
    /// Reads from devices and their bytes since the last drain, as far as structures beside the page cache say so.
    pub device_reads: [(u64, u64); STRUCTURES],
    /// Sampled accesses that were lost since the last drain.
    pub dropped: u64,
    /// Trees that have no structure yet.
    pub unknown: Vec<u32>,
}

/// One stripe's counts, by structure and use: pages; then what has another size, and its bytes. Aligned as those of the cache's counters are.
#[repr(align(128))]
struct Counts([[[AtomicU64; 3]; 3]; STRUCTURES]);

#[derive(Default)]
struct Buffer {
    /// Of which recording.
    generation: u64,
    accesses: Vec<SampledAccess>,
}

/// See the head comment of this file.
pub struct AccessTap {
    /// Hashes below are sampled; 0: nobody records.
    threshold: AtomicU64,
    generation: AtomicU64,
    salt: [AtomicU64; 2],
    page_bytes: u64,
    counts: Box<[Counts]>,
    /// Pages that are not sampled, each behind its recording's generation; 0: none.
    passed_over: Box<[AtomicU64]>,
    buffers: Box<[Mutex<Buffer>]>,
    /// Reads from devices, and their bytes.
    device_reads: [[AtomicU64; 2]; STRUCTURES],
    dropped: AtomicU64,
    /// Hashes that are not sampled although they are below the threshold; 0: none.
    left_out: [AtomicU64; LEFT_OUT_MAX],
    /// The tree, shifted by 8 bits, and its structure; 0: none.
    trees: Box<[AtomicU64]>,
    all_trees: RwLock<HashMap<u32, u8, foldhash::fast::FixedState>>,
    unknown: Mutex<Vec<u32>>,
    begun: RwLock<Option<Instant>>,
}

impl AccessTap {
    /// Of a cache with pages of that size.
    pub fn new(page_bytes: u64) -> AccessTap {
        let zeros = || [const { [const { [const { AtomicU64::new(0) }; 3] }; 3] }; STRUCTURES];
        AccessTap {
            threshold: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            salt: [const { AtomicU64::new(0) }; 2],
            page_bytes,
            counts: (0..STRIPES).map(|_| Counts(zeros())).collect(),
            passed_over: (0..PASSED_OVER).map(|_| AtomicU64::new(0)).collect(),
            buffers: (0..STRIPES).map(|_| Mutex::default()).collect(),
            device_reads: [const { [const { AtomicU64::new(0) }; 2] }; STRUCTURES],
            dropped: AtomicU64::new(0),
            left_out: [const { AtomicU64::new(0) }; LEFT_OUT_MAX],
            trees: (0..TREES).map(|_| AtomicU64::new(0)).collect(),
            all_trees: RwLock::default(),
            unknown: Mutex::default(),
            begun: RwLock::default(),
        }
    }
}

impl std::fmt::Debug for AccessTap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessTap").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl AccessTap {
    /// Memory that its buffers take while somebody records, bytes.
    pub fn memory_bytes() -> usize {
        STRIPES * BUFFER_ACCESSES * std::mem::size_of::<SampledAccess>()
    }

    /// Whether somebody records.
    pub fn is_on(&self) -> bool {
        self.threshold.load(Ordering::Relaxed) != 0
    }

    /// Begins to pass on accesses whose hashes under `salt` are below the threshold, which is above 0. Whoever calls it stops it before
    /// another one does: there is one recorder at a time.
    pub fn start(&self, salt: Salt, threshold: u64) {
        assert!(threshold > 0 && !self.is_on(), "one recording at a time, of something");
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        let (first, second) = salt.keys();
        self.salt[0].store(first, Ordering::Relaxed);
        self.salt[1].store(second, Ordering::Relaxed);
        self.left_out.iter().for_each(|hash| hash.store(0, Ordering::Relaxed));
        self.trees.iter().for_each(|tree| tree.store(0, Ordering::Relaxed));
        self.all_trees.write().clear();
        for buffer in &self.buffers {
            *buffer.lock() = Buffer { generation, accesses: Vec::with_capacity(BUFFER_ACCESSES) };
        }
        for count in self.counts.iter().flat_map(|stripe| stripe.0.iter().flatten().flatten()) {
            count.store(0, Ordering::Relaxed);
        }
        self.device_reads.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
        self.dropped.store(0, Ordering::Relaxed);
        *self.begun.write() = Some(Instant::now());
        self.threshold.store(threshold, Ordering::Release);
    }

    /// Samples fewer pages from now on.
    pub fn lower(&self, threshold: u64) {
        if self.is_on() {
            self.threshold.fetch_min(threshold.max(1), Ordering::AcqRel);
        }
    }

    /// Leaves a page out of the sample; returns `false` if too many are.
    pub fn leave_out(&self, hash: u64) -> bool {
        let free = self.left_out.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        free.is_some_and(|place| place.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Sets the structure of a tree: below [`STRUCTURES`], and not [`INNER`].
    pub fn set_tree(&self, tree: u32, structure: u8) {
        assert!(usize::from(structure) < STRUCTURES && structure != INNER, "structure {structure}");
        self.all_trees.write().insert(tree, structure);
        self.trees[tree as usize % TREES].store(u64::from(tree) << 8 | u64::from(structure), Ordering::Release);
    }

    /// Ends the recording: nothing is passed on any more. What was not drained can still be, once.
    pub fn stop(&self) {
        self.threshold.store(0, Ordering::Release);
    }

    /// Frees the buffers of a recording that was stopped.
    pub fn clear(&self) {
        for buffer in &self.buffers {
            *buffer.lock() = Buffer::default();
        }
    }

    /// Takes what has been sampled and counted since the last call.
    pub fn drain(&self) -> Drained {
        let mut drained = Drained { dropped: self.dropped.swap(0, Ordering::Relaxed), ..Drained::default() };
        for buffer in &self.buffers {
            let mut buffer = buffer.lock();
            drained.sampled.extend_from_slice(&buffer.accesses);
            buffer.accesses.clear();
        }
        // Stable: those of one thread keep their order.
        drained.sampled.sort_by_key(|access| access.time_us);
        for stripe in &self.counts {
            for (structure, uses) in stripe.0.iter().enumerate() {
                let [reads, writes, made] = [0, 1, 2].map(|at: usize| {
                    let [pages, others, bytes] = &uses[at];
                    let [pages, others, bytes] =
                        [pages, others, bytes].map(|count| match count.load(Ordering::Relaxed) {
                            0 => 0,
                            _ => count.swap(0, Ordering::Relaxed),
                        });
                    (pages + others, pages * self.page_bytes + bytes)
                });
                let counts = &mut drained.counts[structure];
                counts.reads += reads.0;
                counts.read_bytes += reads.1;
                counts.writes += writes.0;
                counts.write_bytes += writes.1;
                counts.made += made.0;
                counts.made_bytes += made.1;
            }
        }
        for (drained, [many, bytes]) in drained.device_reads.iter_mut().zip(&self.device_reads) {
            *drained = (many.swap(0, Ordering::Relaxed), bytes.swap(0, Ordering::Relaxed));
        }
        drained.unknown = std::mem::take(&mut *self.unknown.lock());
        drained
    }

    /// Notes an access to each of these blocks.
    #[inline]
    pub fn beside(&self, blocks: impl FnOnce() -> Blocks, how: Use) {
        let threshold = self.threshold.load(Ordering::Relaxed);
        if threshold != 0 {
            self.note_blocks(threshold, &blocks(), how);
        }
    }

    /// Counts a read from a device, of so many bytes, for a structure beside the page cache that has a memory of its own.
    pub fn device_read(&self, structure: u8, bytes: u64) {
        if self.is_on() {
            let [many, sum] = &self.device_reads[usize::from(structure)];
            many.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn note_blocks(&self, threshold: u64, blocks: &Blocks, how: Use) {
        assert!(BESIDE.contains(&blocks.structure), "structure {}", blocks.structure);
        let (many, bytes) = (blocks.numbers.end.saturating_sub(blocks.numbers.start), u64::from(blocks.bytes));
        let count = self.count(blocks.structure, how, (many, many * bytes));
        for number in blocks.numbers.clone() {
            let key = blocks.object.wrapping_add(number) | BESIDE_BIT;
            self.sample((threshold, count), key, (blocks.structure, bytes, how));
        }
    }

    /// Called with each access: `owner` is only called while somebody records.
    #[inline]
    pub(crate) fn access(&self, page: PageId, bytes: u64, how: Use, owner: impl FnOnce() -> Owner) {
        let threshold = self.threshold.load(Ordering::Relaxed);
        if threshold != 0 {
            self.note(threshold, page, bytes, (how, owner()));
        }
    }

    fn note(&self, threshold: u64, page: PageId, bytes: u64, (how, owner): (Use, Owner)) {
        // The structures that belong to the threshold.
        fence(Ordering::Acquire);
        let structure = match owner {
            Owner::Inner => INNER,
            Owner::External => EXTERNAL,
            Owner::Tree(tree) => self.structure_of(tree),
        };
        let count = self.count(structure, how, (1, bytes));
        self.sample((threshold, count), page.0.into(), (structure, bytes, how));
    }

    /// Counts accesses, and returns the stripe of this thread and the recording.
    #[inline]
    fn count(&self, structure: u8, how: Use, (many, bytes): (u64, u64)) -> (usize, u64) {
        // The salt that belongs to the threshold.
        fence(Ordering::Acquire);
        let stripe = own_stripe();
        let [pages, others, sum] = &self.counts[stripe].0[usize::from(structure)][how as usize];
        if (many, bytes) == (1, self.page_bytes) {
            pages.fetch_add(1, Ordering::Relaxed);
        } else {
            others.fetch_add(many, Ordering::Relaxed);
            sum.fetch_add(bytes, Ordering::Relaxed);
        }
        (stripe, self.generation.load(Ordering::Relaxed))
    }

    /// Keeps an access if its key is in the sample.
    #[inline]
    fn sample(
        &self,
        (threshold, (stripe, generation)): (u64, (usize, u64)),
        key: u64,
        (structure, bytes, how): (u8, u64, Use),
    ) {
        let place = &self.passed_over[key as usize % PASSED_OVER];
        // Keys of what is beside the page cache are longer, and their accesses few.
        let page = (key >> 32 == 0).then_some(generation << 32 | key);
        if page.is_some_and(|page| place.load(Ordering::Relaxed) == page) {
            return;
        }
        let pass_over = || {
            if let Some(page) = page {
                place.store(page, Ordering::Relaxed);
            }
        };
        let keys = (self.salt[0].load(Ordering::Relaxed), self.salt[1].load(Ordering::Relaxed));
        let hash = Salt::of_keys(keys).hash(key);
        if hash < threshold {
            let access = SampledAccess {
                time_us: 0,
                hash,
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                structure,
                is_write: how == Use::Write,
                is_new: how == Use::Make,
            };
            if self.left_out.iter().any(|left| left.load(Ordering::Relaxed) == hash) {
                pass_over();
                return;
            }
            self.keep(stripe, generation, access);
        } else if self.threshold.load(Ordering::Relaxed) == threshold {
            // Another recording, which may sample it, would have another threshold.
            pass_over();
        }
    }

    #[cold]
    fn keep(&self, stripe: usize, generation: u64, mut access: SampledAccess) {
        let begun = self.begun.try_read().and_then(|begun| *begun);
        // While one is drained, the next one is not yet, or any more.
        let buffer = self.buffers[stripe].try_lock().or_else(|| self.buffers[(stripe + 1) % STRIPES].try_lock());
        let kept = match (begun, buffer) {
            // What began before this recording is not of it.
            (_, Some(buffer)) if buffer.generation != generation => return,
            (Some(begun), Some(mut buffer)) if buffer.accesses.len() < BUFFER_ACCESSES => {
                access.time_us = begun.elapsed().as_micros() as u64;
                buffer.accesses.push(access);
                true
            }
            _ => false,
        };
        if !kept {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn structure_of(&self, tree: Option<u32>) -> u8 {
        let Some(tree) = tree else { return OTHER };
        let word = self.trees[tree as usize % TREES].load(Ordering::Relaxed);
        if word >> 8 == u64::from(tree) && word != 0 { word as u8 } else { self.structure_among_all(tree) }
    }

    #[cold]
    fn structure_among_all(&self, tree: u32) -> u8 {
        // Whoever sets one holds the lock for a moment: it is not waited for.
        let Some(all) = self.all_trees.try_read() else { return OTHER };
        if let Some(structure) = all.get(&tree) {
            self.trees[tree as usize % TREES].store(u64::from(tree) << 8 | u64::from(*structure), Ordering::Relaxed);
            return *structure;
        }
        if let Some(mut unknown) = self.unknown.try_lock()
            && unknown.len() < UNKNOWN_MAX
            && !unknown.contains(&tree)
        {
            unknown.push(tree);
        }
        OTHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tap: &AccessTap, page: u32, tree: u32) {
        tap.access(PageId(page), 8192, Use::Read, || Owner::Tree(Some(tree)));
    }

    #[test]
    fn what_is_passed_on_is_every_access_in_order_with_its_structure_and_no_page_number() {
        let (tap, salt) = (AccessTap::new(8192), Salt::of_seed(7));
        read(&tap, 1, 5);
        assert!(tap.drain().sampled.is_empty(), "nobody records");
        tap.start(salt, u64::MAX);
        tap.set_tree(5, 4);
        let mut random = fastrand::Rng::with_seed(1);
        let pages: Vec<u32> = (0..1000).map(|_| random.u32(..100)).collect();
        for page in &pages {
            read(&tap, *page, 5 + page % 2);
        }
        tap.access(PageId(3), 1 << 20, Use::Make, || Owner::External);
        tap.access(PageId(4), 8192, Use::Write, || Owner::Inner);
        let drained = tap.drain();
        let structures = [4, OTHER];
        for (access, page) in drained.sampled.iter().zip(&pages) {
            assert_eq!(access.hash, salt.hash(u64::from(*page)));
            assert_eq!(access.structure, structures[*page as usize % 2]);
        }
        assert_eq!(drained.sampled.len(), 1002);
        assert!(drained.sampled[1000].is_new && drained.sampled[1001].is_write);
        let odd = pages.iter().filter(|page| *page % 2 == 1).count() as u64;
        assert_eq!((drained.counts[4].reads, drained.counts[usize::from(OTHER)].reads), (1000 - odd, odd));
        assert_eq!(drained.counts[4].read_bytes, (1000 - odd) * 8192);
        assert_eq!(drained.counts[usize::from(EXTERNAL)].made_bytes, 1 << 20);
        assert_eq!(drained.counts[usize::from(INNER)].writes, 1);
        assert_eq!((drained.unknown, drained.dropped), (vec![6], 0));
    }

    #[test]
    fn a_page_is_sampled_always_or_never_and_all_are_counted() {
        let (tap, salt) = (AccessTap::new(8192), Salt::of_seed(8));
        let threshold = u64::MAX / 10;
        tap.start(salt, threshold);
        let hot = (0..1000).map(|page| salt.hash(page)).find(|hash| *hash < threshold).expect("a tenth is");
        (0..1000).for_each(|page| read(&tap, page, 9));
        assert!(tap.leave_out(hot));
        (0..1000).for_each(|page| read(&tap, page, 9));
        let drained = tap.drain();
        let wanted: Vec<u64> = (0..1000).map(|page| salt.hash(page)).filter(|hash| *hash < threshold).collect();
        let found: Vec<u64> = drained.sampled.iter().map(|access| access.hash).collect();
        assert_eq!(found[..wanted.len()], wanted);
        assert_eq!(found.len(), 2 * wanted.len() - 1);
        assert!(!found[wanted.len()..].contains(&hot), "it was left out");
        assert_eq!(drained.counts[usize::from(OTHER)].reads, 2000);
    }

    #[test]
    fn a_page_that_one_recording_passes_over_is_sampled_by_the_next_and_counted_by_both() {
        let tap = AccessTap::new(8192);
        for (round, threshold) in [1, u64::MAX, 1, u64::MAX].into_iter().enumerate() {
            tap.start(Salt::of_seed(round as u64), threshold);
            (0..3).for_each(|_| read(&tap, 7, 1));
            tap.access(PageId(7), 100, Use::Read, || Owner::Tree(Some(1)));
            let drained = tap.drain();
            assert_eq!(drained.sampled.len(), if threshold == 1 { 0 } else { 4 }, "round {round}");
            let counts = &drained.counts[usize::from(OTHER)];
            assert_eq!((counts.reads, counts.read_bytes), (4, 3 * 8192 + 100));
            tap.stop();
        }
    }

    #[test]
    fn a_full_buffer_drops_and_says_how_many_and_what_is_stopped_passes_on_nothing() {
        let tap = AccessTap::new(8192);
        tap.start(Salt::of_seed(9), u64::MAX);
        (0..BUFFER_ACCESSES as u32 + 100).for_each(|page| read(&tap, page, 1));
        let drained = tap.drain();
        assert_eq!((drained.sampled.len(), drained.dropped), (BUFFER_ACCESSES, 100));
        tap.stop();
        read(&tap, 1, 1);
        assert!(tap.drain().sampled.is_empty() && !tap.is_on());
        tap.start(Salt::of_seed(10), u64::MAX);
        read(&tap, 1, 1);
        assert_eq!(tap.drain().sampled.len(), 1, "it can begin again");
    }

    #[test]
    fn blocks_beside_the_cache_have_structures_and_keys_of_their_own() {
        let (tap, salt) = (AccessTap::new(8192), Salt::of_seed(12));
        let blocks =
            |object: u64, numbers: std::ops::Range<u64>| Blocks { structure: VOLUMES, object, numbers, bytes: 4096 };
        tap.beside(|| panic!("nobody records"), Use::Read);
        tap.device_read(SEGMENTS, 1);
        tap.start(salt, u64::MAX);
        tap.beside(|| blocks(object_of(b"a"), 0..3), Use::Write);
        tap.beside(|| blocks(object_of(b"a"), 1..2), Use::Read);
        tap.beside(|| blocks(object_of(b"b"), 1..2), Use::Read);
        tap.beside(|| Blocks { structure: SEGMENTS, ..blocks(0, 7..8) }, Use::Make);
        read(&tap, 7, 1);
        tap.device_read(SEGMENTS, 65536);
        let drained = tap.drain();
        let hashes: Vec<u64> = drained.sampled.iter().map(|access| access.hash).collect();
        assert_eq!((hashes.len(), hashes[1]), (7, hashes[3]), "the same block of the same volume");
        let others: std::collections::HashSet<u64> = hashes.iter().copied().collect();
        assert_eq!(others.len(), 6, "of another volume, of an index file and of the cache they are others");
        let counts = drained.counts[usize::from(VOLUMES)];
        assert_eq!((counts.writes, counts.write_bytes, counts.reads), (3, 3 * 4096, 2));
        assert_eq!(drained.counts[usize::from(SEGMENTS)].made, 1);
        assert_eq!(drained.device_reads[usize::from(SEGMENTS)], (1, 65536));
    }

    #[test]
    fn what_many_threads_access_is_all_counted_and_sampled_or_dropped() {
        let tap = AccessTap::new(8192);
        tap.start(Salt::of_seed(11), u64::MAX);
        std::thread::scope(|scope| {
            for thread in 0..20u32 {
                let tap = &tap;
                scope.spawn(move || (0..500).for_each(|page| read(tap, thread * 500 + page, 1)));
            }
        });
        let drained = tap.drain();
        let sampled = drained.sampled.len() as u64;
        assert_eq!((drained.counts[usize::from(OTHER)].reads, sampled + drained.dropped), (10_000, 10_000));
    }
}
