//! The page cache: every page that is in memory, over near and far memory, in front of the data devices.
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
//!   eviction.rs: which page leaves     ring.rs: scans     far.rs: near and far memory     direct.rs: Memory Mode as hardware does it
//!   external.rs: blocks of files that are not the store's
//! ```
//!
//! # How a page is found
//!
//! The word says in which frame a page lies. A reader latches that frame and looks at the word again: if it still says so, the
//! frame is the page's as long as the latch is held, because a page leaves a frame only under its exclusive latch. Else he
//! starts again. Who finds a page nowhere takes a free frame, exclusively, puts it into the word, and reads the page into it;
//! others wait for the latch. Inner pages are the same with versions instead of latches.
//!
//! # Invariants
//!
//! 1. A word is changed by compare-and-swap only; where it says changes only with the frame's exclusive latch held (odd version
//!    of the slot) by whoever changes it, but for pages given up, for which a shared one is enough.
//! 2. A dirty page leaves memory only when it was written in place, and is written in place outside a checkpoint only if it is fresh:
//!    nothing durable refers to it (*early write-back*).
//! 3. What a checkpoint holds is not changed: its pre-image is saved before the first change.
//! 4. Checksums are compared whenever something was read from a device, and never in memory.
//! 5. Whoever holds latches may call everything here: room is made by trying latches, never by waiting for them.
//! 6. Readers never fail for want of room: they read past the cache. Whoever changes something waits for a checkpoint that is
//!    under way; where none is, it is told that the cache is full, which [`Cache::pressure`] is there to prevent.
//!
//! What it does not do: it does not flush, and writes nothing but pages written back early; checkpoints do. It does not know trees.

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
mod ring;
mod scan_reader;
mod slots;
mod state;
mod table;
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
pub(crate) use scan_reader::ScanReader;

use crate::StoreError;
use crate::damage::Damage;
use crate::page::PageId;
use direct::DirectMap;
use external::Numbers;
use far::Draw;
use frames::Tier;
use metrics::{Count, Counters};
use ring::Ring;
use slots::Slots;
use state::{Flag, Place, State};
use table::Table;

/// Bytes of a slab, as a 64-bit number.
const SLAB: u64 = device::arena::SLAB_BYTES as u64;

/// Locks that loads of inner pages are spread over.
const STRIPES: usize = 64;

/// What the applier should do about changes that are not written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Go on.
    None,
    /// A checkpoint should begin.
    Checkpoint,
    /// The applier should wait, between two records, until a checkpoint has written pages back.
    Wait,
}

/// How many bytes of changes the cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyBytes {
    /// Of pages allocated since the last checkpoint began, which can be written in place at any time.
    pub fresh: u64,
    /// Of other pages changed since the last checkpoint began.
    pub changed: u64,
    /// Of pages that belong to a checkpoint and are not written back yet.
    pub checkpoint: u64,
}

/// See the module's text.
pub struct Cache {
    page_bytes: usize,
    backing: Arc<dyn BackingStore>,
    space: Arc<dyn PageAllocator>,
    table: Table,
    /// Where pages come to. Near memory; with a direct map far memory, in which near memory is what the map says.
    main: Tier,
    far: Option<Tier>,
    direct: Option<DirectMap>,
    far_model: Option<Arc<ModelMemory>>,
    promote: Draw,
    ring: Ring,
    slots: Slots,
    /// Held while an inner page is read from its device, so that only one thread does.
    stripes: Box<[Mutex<()>]>,
    /// Pages that became dirty since the last checkpoint began, some more than once.
    touched: Mutex<Vec<PageId>>,
    /// Of pages of the checkpoint that were changed since.
    pre_images: Mutex<HashMap<PageId, Box<[u8]>>>,
    /// Whether there is a checkpoint.
    checkpointing: AtomicBool,
    /// Whether one was dropped unfinished: its pages stay, and no checkpoint makes room any more.
    checkpoint_failed: AtomicBool,
    /// Whether it waits for room on its medium, so that none is made here for now.
    checkpoint_waits: AtomicBool,
    dirty: Dirty,
    /// Pages that left memory, a moment in the life of the ghost list.
    left: AtomicU32,
    counters: Counters,
    external: Numbers,
}

#[derive(Default)]
struct Dirty {
    fresh: AtomicU64,
    changed: AtomicU64,
    checkpoint: AtomicU64,
}

impl Cache {
    /// An empty cache. Errors: [`StoreError::Refused`] where the options are impossible, [`StoreError::Device`] where memory
    /// cannot be had.
    pub fn new(
        options: &CacheOptions,
        backing: Arc<dyn BackingStore>,
        space: Arc<dyn PageAllocator>,
    ) -> Result<Arc<Cache>, StoreError> {
        options.check()?;
        let page_bytes = options.page_bytes;
        let slots = (options.near_bytes / 16 / page_bytes as u64).max(16) as u32;
        let near = options.near_bytes - options.near_bytes / 16;
        let far_memory = Memory { name: &options.far_name, node: options.far_node, bytes: options.far_bytes };
        let far = (options.far_bytes > 0).then_some(far_memory);
        let (main, far, direct, promote) = match options.policy {
            Policy::Managed { promote } => {
                (Memory { name: &options.near_name, node: options.near_node, bytes: near }, far, None, promote)
            }
            // Near memory is tags.
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
            backing,
            space,
            table: Table::new(),
            main,
            far: far.transpose()?,
            direct,
            far_model: options.far_model.clone(),
            promote: Draw::new(promote, options.seed),
            ring,
            slots: Slots::new(page_bytes, slots, slots * 4),
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
        }))
    }

    /// Changes that are not written back.
    pub fn dirty_bytes(&self) -> DirtyBytes {
        // A thread may have taken a page off before another, that put it on, has counted it: for a moment less than nothing.
        let read = |counter: &AtomicU64| (counter.load(Ordering::Relaxed) as i64).max(0) as u64;
        let Dirty { fresh, changed, checkpoint } = &self.dirty;
        DirtyBytes { fresh: read(fresh), changed: read(changed), checkpoint: read(checkpoint) }
    }

    /// What the applier should do, to be asked between records: a checkpoint at a quarter of the cache full of changes, fresh ones
    /// counted half since they can be written back early; wait where what cannot be written back early fills half of it.
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

    /// What passed so far.
    pub fn metrics(&self) -> CacheMetrics {
        self.counters.metrics()
    }

    fn state(&self, page: PageId) -> State {
        State(self.table.word(page).load(Ordering::Acquire))
    }

    /// Changes a page's word to what `change` makes of it; nothing where it answers none. Both words, or the present one.
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

    /// Keeps the sums of dirty bytes.
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

    /// Counts a use of a page for the clock; a page used often costs no write.
    fn count_use(&self, page: PageId, state: State) {
        if state.usage() < state::USAGE_MAX || !state.has(Flag::Used) {
            let word = self.table.word(page);
            let new = state.with_usage(state.usage() + 1).with(Flag::Used);
            // Lost where the word changed meanwhile: it is a count of uses, one more or less.
            let _ = word.compare_exchange(state.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Makes a page dirty, whose frame or slot the caller holds for writing.
    fn mark_dirty(&self, page: PageId) {
        let marked = self.change(page, |state| (!state.has(Flag::Dirty)).then(|| state.with(Flag::Dirty)));
        if marked.is_ok() {
            self.touched.lock().push(page);
        }
    }

    /// Saves the pre-image of a page in the checkpoint, before it is changed or freed; the caller holds the frame or slot.
    fn save_pre_image(&self, page: PageId, image: impl FnOnce() -> Box<[u8]>) {
        let mut pre_images = self.pre_images.lock();
        // Under the lock it is not written back in between.
        if self.change(page, |state| state.is_held().then(|| state.with(Flag::PreImage))).is_ok() {
            pre_images.insert(page, image());
            self.counters.add(Count::PreImage, 1);
        }
    }

    /// Damage, with the page's place in the data devices.
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
    /// What errors call it.
    name: &'a str,
    /// The NUMA node; none: anywhere.
    node: Option<u32>,
    bytes: u64,
}

/// Frames on a node, or anywhere; with some beyond the budget where that is said.
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

/// What cannot be answered since the page is something else.
fn other_kind(page: PageId, what: &str) -> StoreError {
    StoreError::Corrupt(Damage::of(page, 1, format_args!("page {page} is no {what}")))
}
