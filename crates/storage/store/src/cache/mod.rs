//! The page cache (elsewhere the buffer pool): all pages in memory, in near and far memory, in front of the data
//! devices.
//!
//! ```text
//!   Pages (trees)              CheckpointPages (checkpoints)
//!        \                      /
//!   table: a word per page ----+        state.rs, table.rs   where it is, dirty, fresh, in the checkpoint
//!        |            \
//!   frames             slots            frames.rs, slots.rs  leaves and extents; inner pages
//!        |            /
//!   BackingStore (data devices), PageAllocator (pages in use)      backing.rs
//!
//!   eviction.rs: which page leaves     ring.rs, read_ahead.rs: scans     far.rs: near and far memory     direct.rs: Memory Mode as hardware does it
//!   external.rs: blocks of files that are not the store's     seals.rs: what a run is sealed with
//!   tap.rs: which pages are accessed, for a profile
//! ```
//!
//! # How a page is found
//!
//! A page's word contains the frame of the page. A reader latches that frame and reads the word again. If the word is
//! unchanged, the frame is the page's as long as the latch is held, because a page leaves a frame only under its
//! exclusive latch. Otherwise the reader starts again. On a miss, the reader latches a free frame exclusively,
//! publishes it in the word, and reads the page into it; other readers wait for the latch. Inner pages work in the same
//! way, with versions instead of latches.
//!
//! # Invariants
//!
//! 1. A word is changed by compare-and-swap only. The thread that changes the place in it holds the exclusive latch of
//!    the frame (or the odd version of the slot). A thread that frees a page needs only a shared latch.
//! 2. A dirty page is evicted only after it was written in place. Outside a checkpoint only fresh pages are written in
//!    place: nothing durable refers to them (*early write-back*).
//! 3. A page of a checkpoint is not changed before its pre-image is saved.
//! 4. Checksums are verified whenever a page was read from a device, and never in memory.
//! 5. A thread that holds latches may call everything here: eviction only tries latches and never waits for them.
//! 6. Readers never fail because the cache is full: they read past the cache. A thread that changes pages waits for a
//!    running checkpoint; if none runs, it gets the error that the cache is full, which [`Cache::pressure`] is designed
//!    to prevent.
//!
//! The cache does not flush, and writes only fresh pages for early write-back; checkpoints write all others. It does
//! not interpret trees.

pub mod backing;
mod checkpoint;
mod direct;
mod eviction;
mod extent;
mod external;
mod far;
mod frames;
mod inner;
mod leaf;
mod metrics;
mod options;
mod read_ahead;
mod ring;
mod scan_reader;
mod seals;
mod slots;
mod state;
mod table;
pub mod tap;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use catalogue::ModelMemory;
use device::{Arena, DeviceError};
use parking_lot::Mutex;

pub use backing::{BackingStore, PageAllocator};
pub use checkpoint::{CheckpointPages, PageRun};
pub use external::{EXTERNAL_BLOCK_BYTES, ExternalFile};
pub use far::Hint;
pub use leaf::{LeafRead, LeafWrite};
pub use metrics::CacheMetrics;
pub use options::{CacheOptions, MEMORY_BYTES_MAX, NEAR_BYTES_MIN, Policy};
pub use read_ahead::ReadAhead;
pub(crate) use read_ahead::ahead_bytes_max;
pub(crate) use scan_reader::ScanReader;
pub(crate) use seals::stored_data_key;

use crate::StoreError;
use crate::damage::Damage;
use crate::page::encrypted::seal_bytes;
use crate::page::{Extent, PageId};
use direct::DirectMap;
use external::Numbers;
use far::Draw;
use frames::Tier;
use metrics::{Count, Counters};
use ring::Ring;
use slots::Slots;
use state::{Flag, Place, State};
use table::Table;
use tap::{AccessTap, Owner, Use};

/// Bytes of a slab, as a 64-bit number.
const SLAB: u64 = device::arena::SLAB_BYTES as u64;

/// Number of locks over which loads of inner pages are spread.
const STRIPES: usize = 64;

/// What the applier must do about changes that are not written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Continue.
    None,
    /// A checkpoint should begin.
    Checkpoint,
    /// The applier should wait, between two records, until a checkpoint has written pages back.
    Wait,
}

/// Bytes of changes in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyBytes {
    /// Of pages allocated since the last checkpoint began, which can be written in place at any time.
    pub fresh: u64,
    /// Of other pages changed since the last checkpoint began.
    pub changed: u64,
    /// Of pages that belong to a checkpoint and are not written back yet.
    pub checkpoint: u64,
}

/// See the head comment of this module.
pub struct Cache {
    page_bytes: usize,
    /// Of these, the bytes that a node may use: less by a seal if pages are encrypted.
    node_bytes: usize,
    backing: Arc<dyn BackingStore>,
    space: Arc<dyn PageAllocator>,
    table: Table,
    /// The tier into which pages are read. Near memory; with a direct map far memory, of which near memory caches what
    /// the map contains.
    main: Tier,
    far: Option<Tier>,
    direct: Option<DirectMap>,
    far_model: Option<Arc<ModelMemory>>,
    promote: Draw,
    ring: Ring,
    slots: Slots,
    /// Held while an inner page is read from its device, so that only one thread reads it.
    stripes: Box<[Mutex<()>]>,
    /// Pages that became dirty since the last checkpoint began, some more than once.
    touched: Mutex<Vec<PageId>>,
    /// Pre-images of pages of the checkpoint that were changed since it began.
    pre_images: Mutex<HashMap<PageId, Box<[u8]>>>,
    /// Whether there is a checkpoint.
    checkpointing: AtomicBool,
    /// Whether one was dropped unfinished: its pages stay, and no checkpoint frees space any more.
    checkpoint_failed: AtomicBool,
    /// Whether the checkpoint waits for space on its medium, and so frees none here for now.
    checkpoint_waits: AtomicBool,
    dirty: Dirty,
    /// Number of pages that have left memory: the clock of the ghost list.
    left: AtomicU32,
    counters: Counters,
    external: Numbers,
    tap: Arc<AccessTap>,
}

#[derive(Default)]
struct Dirty {
    fresh: AtomicU64,
    changed: AtomicU64,
    checkpoint: AtomicU64,
}

impl Cache {
    /// An empty cache. Errors: [`StoreError::Refused`] if the options are impossible, [`StoreError::Device`] if memory
    /// cannot be allocated.
    pub fn new(
        options: &CacheOptions,
        backing: Arc<dyn BackingStore>,
        space: Arc<dyn PageAllocator>,
    ) -> Result<Arc<Cache>, StoreError> {
        options.check()?;
        let page_bytes = options.page_bytes;
        let node_bytes = page_bytes - seal_bytes(backing.sealer());
        let slots = (options.near_bytes / 16 / page_bytes as u64).max(16) as u32;
        let near = options.near_bytes - options.near_bytes / 16;
        let far_memory = Memory { name: &options.far_name, node: options.far_node, bytes: options.far_bytes };
        let far = (options.far_bytes > 0).then_some(far_memory);
        let (main, far, direct, promote) = match options.policy {
            Policy::Managed { promote } => {
                (Memory { name: &options.near_name, node: options.near_node, bytes: near }, far, None, promote)
            }
            // Near memory consists of tags only.
            Policy::DirectMapped => {
                let map = DirectMap::new((near / page_bytes as u64) as usize);
                (far_memory, None, Some(map), 0.0)
            }
        };
        let main = tier(Place::Near, main, true, page_bytes)?;
        let far = far.map(|far| tier(Place::Far, far, false, page_bytes));
        let ring = Ring::new((main.bytes() / 16).max(SLAB));
        Ok(Arc::new(Cache {
            page_bytes,
            node_bytes,
            backing,
            space,
            table: Table::new(),
            main,
            far: far.transpose()?,
            direct,
            far_model: options.far_model.clone(),
            promote: Draw::new(promote, options.seed),
            ring,
            slots: Slots::new(node_bytes, slots, slots * 4),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            touched: Mutex::default(),
            pre_images: Mutex::default(),
            checkpointing: AtomicBool::new(false),
            checkpoint_failed: AtomicBool::new(false),
            checkpoint_waits: AtomicBool::new(false),
            dirty: Dirty::default(),
            left: AtomicU32::new(0),
            counters: Counters::default(),
            external: Numbers::default(),
            tap: Arc::new(AccessTap::new(page_bytes as u64)),
        }))
    }

    /// Bytes of a page on its device; [`Pages::page_bytes`](crate::pages::Pages::page_bytes) are those that a node may use.
    pub fn whole_page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Changes that are not written back.
    pub fn dirty_bytes(&self) -> DirtyBytes {
        // A thread may have subtracted a page before the thread that made it dirty has added it: the sum can be
        // negative for a moment.
        let read = |counter: &AtomicU64| (counter.load(Ordering::Relaxed) as i64).max(0) as u64;
        let Dirty { fresh, changed, checkpoint } = &self.dirty;
        DirtyBytes { fresh: read(fresh), changed: read(changed), checkpoint: read(checkpoint) }
    }

    /// What the applier must do; called between records. A checkpoint begins when a quarter of the cache is changed;
    /// fresh pages count half, because they can be written back early. The applier waits when pages that cannot be
    /// written back early fill half of the cache.
    pub fn pressure(&self) -> Pressure {
        let bytes = self.main.bytes() + self.far.as_ref().map_or(0, Tier::bytes);
        let dirty = self.dirty_bytes();
        if dirty.changed + dirty.checkpoint > bytes / 2 {
            Pressure::Wait
        } else if dirty.changed + dirty.fresh / 2 > bytes / 4 {
            Pressure::Checkpoint
        } else {
            Pressure::None
        }
    }

    /// Counters so far.
    pub fn metrics(&self) -> CacheMetrics {
        self.counters.metrics()
    }

    /// Which pages are accessed.
    pub fn tap(&self) -> &Arc<AccessTap> {
        &self.tap
    }

    /// Notes that the value of a tree in these extents was read.
    pub(crate) fn note_value(&self, tree: u32, extents: &[Extent]) {
        for extent in extents {
            let bytes = u64::from(extent.pages(self.page_bytes)) * self.page_bytes as u64;
            self.tap.access(extent.first, bytes, Use::Read, || Owner::Tree(Some(tree)));
        }
    }

    fn state(&self, page: PageId) -> State {
        State(self.table.word(page).load(Ordering::Acquire))
    }

    /// Changes a page's word to the result of `change`; leaves it if that is `None`. Returns both words, or as error
    /// the current one.
    fn change(&self, page: PageId, mut change: impl FnMut(State) -> Option<State>) -> Result<(State, State), State> {
        let word = self.table.word(page);
        let mut old = State(word.load(Ordering::Acquire));
        loop {
            let Some(new) = change(old) else { return Err(old) };
            match word.compare_exchange_weak(old.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.account(old, new);
                    return Ok((old, new));
                }
                Err(now) => old = State(now),
            }
        }
    }

    /// Updates the sums of dirty bytes.
    fn account(&self, old: State, new: State) {
        let page_bytes = self.page_bytes as u64;
        let move_by = |counter: &AtomicU64, is: fn(State) -> bool| {
            if is(old) {
                counter.fetch_sub(u64::from(old.pages()) * page_bytes, Ordering::Relaxed);
            }
            if is(new) {
                counter.fetch_add(u64::from(new.pages()) * page_bytes, Ordering::Relaxed);
            }
        };
        let bits =
            |state: State| (state.has(Flag::Dirty), state.has(Flag::Fresh), state.has(Flag::Checkpoint), state.pages());
        if bits(old) != bits(new) {
            move_by(&self.dirty.fresh, |state| state.has(Flag::Dirty) && state.has(Flag::Fresh));
            move_by(&self.dirty.changed, |state| state.has(Flag::Dirty) && !state.has(Flag::Fresh));
            move_by(&self.dirty.checkpoint, |state| state.has(Flag::Checkpoint));
        }
    }

    /// Counts a use of a page for CLOCK; a page that is used often causes no write.
    fn count_use(&self, page: PageId, state: State) {
        if state.usage() < state::USAGE_MAX || !state.has(Flag::Used) {
            let word = self.table.word(page);
            let new = state.with_usage(state.usage() + 1).with(Flag::Used);
            // The count is lost if the word changed meanwhile, which does not matter.
            let _ = word.compare_exchange(state.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Marks a page dirty; the caller holds its frame or slot for writing.
    fn mark_dirty(&self, page: PageId) {
        let marked = self.change(page, |state| (!state.has(Flag::Dirty)).then(|| state.with(Flag::Dirty)));
        if marked.is_ok() {
            self.touched.lock().push(page);
        }
    }

    /// Saves the pre-image of a page in the checkpoint, before it is changed or freed; the caller holds the frame or slot.
    fn save_pre_image(&self, page: PageId, image: impl FnOnce() -> Box<[u8]>) {
        let mut pre_images = self.pre_images.lock();
        // Under this lock the page cannot be written back in between.
        if self.change(page, |state| state.is_held().then(|| state.with(Flag::PreImage))).is_ok() {
            pre_images.insert(page, image());
            self.counters.add(Count::PreImage, 1);
        }
    }

    /// Adds the page's place in the data devices to an error of damage.
    fn at_place(&self, page: PageId, error: StoreError) -> StoreError {
        match error {
            StoreError::Corrupt(what) => {
                StoreError::Corrupt(what.said(format_args!("{what} (at {})", self.backing.place(page))))
            }
            other => other,
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("main", &self.main)
            .field("far", &self.far)
            .field("dirty", &self.dirty_bytes())
            .finish_non_exhaustive()
    }
}

/// Memory of a tier of the cache.
#[derive(Clone, Copy)]
struct Memory<'a> {
    /// Its name in errors.
    name: &'a str,
    /// The NUMA node; `None`: any.
    node: Option<u32>,
    bytes: u64,
}

/// Creates a tier with frames on a node, or anywhere; `beyond` adds slabs beyond the budget.
fn tier(place: Place, memory: Memory<'_>, beyond: bool, page_bytes: usize) -> Result<Tier, StoreError> {
    let Memory { name, node, bytes } = memory;
    let slabs = (bytes / SLAB).max(1) as u32;
    let all = if beyond { slabs + (slabs / 4).max(4) } else { slabs };
    let arena = match node {
        Some(node) => Arena::on_node(node, all, page_bytes),
        None => Arena::anywhere(all, page_bytes),
    };
    let no_memory = |source| {
        let on = node.map_or(String::new(), |node| format!(" of NUMA node {node}"));
        DeviceError::NoMemory { name: format!("{name}{on}"), bytes: u64::from(all) * SLAB, source }
    };
    Ok(Tier::new(place, arena.map_err(no_memory)?, slabs))
}

/// The error for a page that is of another kind than requested.
fn other_kind(page: PageId, what: &str) -> StoreError {
    StoreError::Corrupt(Damage::of(page, 1, format_args!("page {page} is not {what}")))
}
