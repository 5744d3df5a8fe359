//! Pages in frames: leaves and other pages that are read as bytes; and the cache's implementation of [`Pages`].

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use catalogue::medium::Direction;
use device::AlignedBuffer;
use device::arena::{Exclusive, Shared};

use super::far::Hint;
use super::frames::Tier;
use super::metrics::Count;
use super::state::{Flag, Place, State};
use super::tap::{Owner, Use};
use super::{Cache, other_kind};
use crate::page::encrypted::{decrypt, seal_bytes};
use crate::page::{self, Extent, Kind, PageId};
use crate::pages::Pages;
use crate::{StoreError, TreeId};

/// The name of a page in a frame in messages.
const LEAF: &str = "a leaf now";

/// A page under a shared latch; or a private copy, if no frame was available.
#[derive(Debug)]
pub struct LeafRead<'a> {
    held: Held<'a>,
    /// Of a node; the frame may have a seal behind them.
    bytes: usize,
}

#[derive(Debug)]
enum Held<'a> {
    Frame(Shared<'a>),
    Copy(AlignedBuffer),
}

/// A dirty page under an exclusive latch.
#[derive(Debug)]
pub struct LeafWrite<'a> {
    frame: Exclusive<'a>,
    bytes: usize,
}

impl Deref for LeafRead<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.held {
            Held::Frame(frame) => &frame[..self.bytes],
            Held::Copy(copy) => &copy[..self.bytes],
        }
    }
}

impl Deref for LeafWrite<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame[..self.bytes]
    }
}

impl DerefMut for LeafWrite<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.frame[..self.bytes]
    }
}

impl Pages for Cache {
    type Read<'a> = LeafRead<'a>;
    type Write<'a> = LeafWrite<'a>;

    #[expect(clippy::misnamed_getters, reason = "the page of a tree is what the seal leaves of a page of the medium")]
    fn page_bytes(&self) -> usize {
        self.node_bytes
    }

    fn read(&self, page: PageId) -> Result<LeafRead<'_>, StoreError> {
        self.read_with(page, Hint::Point)
    }

    fn write(&self, page: PageId) -> Result<LeafWrite<'_>, StoreError> {
        let write = self.write_leaf(page)?;
        self.tap.access(page, self.page_bytes as u64, Use::Write, || tree_of(&write));
        Ok(write)
    }

    fn create_leaf(&self) -> Result<(PageId, LeafWrite<'_>), StoreError> {
        let page = self.space.allocate(1)?;
        let mut frame = match self.in_time(|| self.frame(&self.main, 1)) {
            Ok(frame) => frame,
            Err(error) => {
                self.space.free(page, 1);
                return Err(error);
            }
        };
        frame.fill(0);
        self.publish(page, 1, &frame, false);
        Ok((page, LeafWrite { frame, bytes: self.node_bytes }))
    }

    fn create_inner(&self, image: &[u8]) -> Result<PageId, StoreError> {
        let page = self.create_slot(image)?;
        self.tap.access(page, self.page_bytes as u64, Use::Make, || Owner::Inner);
        Ok(page)
    }

    fn inner<R>(&self, page: PageId, probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError> {
        self.tap.access(page, self.page_bytes as u64, Use::Read, || Owner::Inner);
        self.read_slot(page, probe)
    }

    fn replace_inner(&self, page: PageId, image: &[u8]) -> Result<(), StoreError> {
        self.tap.access(page, self.page_bytes as u64, Use::Write, || Owner::Inner);
        self.replace_slot(page, image)
    }

    fn made(&self, first: PageId, bytes: usize, tree: TreeId) {
        let whole = bytes.next_multiple_of(self.page_bytes) as u64;
        self.tap.access(first, whole, Use::Make, || Owner::Tree(Some(tree.0)));
    }

    fn free(&self, page: PageId) {
        self.give_back(page, 1);
    }

    fn extent_bytes_max(&self) -> usize {
        self.space.run_bytes_max() - seal_bytes(self.backing.sealer())
    }

    fn create_extent(&self, bytes: &[u8]) -> Result<Extent, StoreError> {
        self.create_run(bytes)
    }

    fn read_extent(&self, extent: Extent) -> Result<Bytes, StoreError> {
        self.read_extent_with(extent, Hint::Point)
    }

    fn free_extent(&self, extent: Extent) {
        self.give_back(extent.first, extent.pages(self.page_bytes));
    }
}

/// The tree of a leaf, as its header says.
fn tree_of(leaf: &[u8]) -> Owner {
    Owner::Tree(page::u32_at(leaf, page::TREE_AT))
}

impl Cache {
    fn write_leaf(&self, page: PageId) -> Result<LeafWrite<'_>, StoreError> {
        let mut may_promote = true;
        loop {
            let state = self.state(page);
            let (tier, frame) = match self.leaf_tier(page, state)? {
                Some(tier) => {
                    if may_promote && tier.place == Place::Far {
                        may_promote = false;
                        if self.promote.wins() && self.promote(page, state) {
                            continue;
                        }
                    }
                    (tier, tier.arena.exclusive(state.frame()))
                }
                None => (&self.main, self.in_time(|| self.load_leaf(page, state, Hint::Point))?),
            };
            // A frame that no longer belongs to this page may even be pinned by a reader of another page.
            let Some(frame) = frame else { continue };
            let now = self.state(page);
            if now.place() != tier.place || now.frame() != frame.number() || now.has(Flag::Extent) {
                continue;
            }
            if now.is_held() {
                self.save_pre_image(page, || frame[..].into());
            }
            self.mark_dirty(page);
            if state.place() != Place::Nowhere {
                self.touch(tier, frame.number(), 1, Direction::Write, false);
                self.count_use(page, self.state(page));
            }
            return Ok(LeafWrite { frame, bytes: self.node_bytes });
        }
    }

    /// As [`read`](Pages::read), with a hint about the reader's use.
    pub fn read_with(&self, page: PageId, hint: Hint) -> Result<LeafRead<'_>, StoreError> {
        let read = self.read_leaf(page, hint)?;
        self.tap.access(page, self.page_bytes as u64, Use::Read, || tree_of(&read));
        Ok(read)
    }

    fn read_leaf(&self, page: PageId, hint: Hint) -> Result<LeafRead<'_>, StoreError> {
        let mut may_promote = hint == Hint::Point;
        loop {
            let state = self.state(page);
            let Some(tier) = self.leaf_tier(page, state)? else {
                match self.load_leaf(page, state, hint) {
                    Ok(Some(frame)) => return Ok(self.leaf_read(Held::Frame(frame.downgrade()))),
                    Err(StoreError::Full(_)) => {
                        match self.read_past(page, state, 1, |bytes| self.fill_leaf(page, bytes))? {
                            Some(copy) => return Ok(self.leaf_read(Held::Copy(copy))),
                            None => continue,
                        }
                    }
                    Ok(None) => continue,
                    Err(error) => return Err(error),
                }
            };
            if may_promote && tier.place == Place::Far {
                may_promote = false;
                if self.promote.wins() && self.promote(page, state) {
                    continue;
                }
            }
            let Some(frame) = tier.arena.shared(state.frame()) else { continue };
            let now = self.state(page);
            // An extent that is read for the first time gets its flag while it is read: so the flag is checked again.
            if now.is_where(state) && !now.has(Flag::Extent) {
                self.used(tier, page, now, hint);
                return Ok(self.leaf_read(Held::Frame(frame)));
            }
        }
    }

    fn leaf_read<'a>(&self, held: Held<'a>) -> LeafRead<'a> {
        LeafRead { held, bytes: self.node_bytes }
    }

    /// Charges and counts a read of a page in a frame.
    pub(super) fn used(&self, tier: &Tier, page: PageId, state: State, hint: Hint) {
        self.touch(tier, state.frame(), state.pages(), Direction::Read, false);
        if hint == Hint::Point {
            self.count_use(page, state);
        }
    }

    /// The tier of a place, if it has frames.
    pub(super) fn at(&self, place: Place) -> Option<&Tier> {
        match place {
            Place::Near => Some(&self.main),
            Place::Far => self.far.as_ref(),
            Place::Nowhere | Place::Slot => None,
        }
    }

    /// The tier of a page's frame; `None` if the page must be read from its device.
    fn leaf_tier(&self, page: PageId, state: State) -> Result<Option<&Tier>, StoreError> {
        if state.has(Flag::Extent) {
            return Err(other_kind(page, LEAF));
        }
        self.tier(page, state, LEAF)
    }

    pub(super) fn tier(&self, page: PageId, state: State, what: &str) -> Result<Option<&Tier>, StoreError> {
        match (self.at(state.place()), state.place()) {
            (Some(tier), _) => Ok(Some(tier)),
            (None, Place::Nowhere) if !state.has(Flag::Freed) => Ok(None),
            _ => Err(other_kind(page, what)),
        }
    }

    /// Reads a page from its device into a frame; returns `None` if another thread was faster.
    fn load_leaf(&self, page: PageId, state: State, hint: Hint) -> Result<Option<Exclusive<'_>>, StoreError> {
        self.load(page, state, 1, hint, |bytes| self.fill_leaf(page, bytes))
    }

    /// Reads a page from its device, verifies and decrypts it.
    fn fill_leaf(&self, page: PageId, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.backing.read(page, bytes).map_err(|error| error.of_reading(page, 1))?;
        check_leaf(page, bytes)?;
        decrypt(self.backing.sealer(), page, bytes)
    }

    /// Reads a run that is not in memory (word `state`) past the cache, by `fill`, when no frame is available: a reader
    /// need not wait for the thread that fills the cache with changes. Returns `None` if the run came into memory
    /// meanwhile: only then can its place on the device change.
    pub(super) fn read_past(
        &self,
        page: PageId,
        state: State,
        pages: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), StoreError>,
    ) -> Result<Option<AlignedBuffer>, StoreError> {
        let mut copy = AlignedBuffer::zeroed(pages as usize * self.page_bytes);
        let read = fill(&mut copy);
        if self.state(page) != state {
            return Ok(None);
        }
        read.map_err(|error| self.at_place(page, error))?;
        self.missed(false, copy.len());
        Ok(Some(copy))
    }

    /// Reads a run that is not in memory (word `state`) into a frame; `fill` reads and verifies it. If that fails, the
    /// run stays out of memory. Returns `None` if another thread was faster.
    pub(super) fn load(
        &self,
        page: PageId,
        state: State,
        pages: u32,
        hint: Hint,
        fill: impl FnOnce(&mut [u8]) -> Result<(), StoreError>,
    ) -> Result<Option<Exclusive<'_>>, StoreError> {
        let tier = &self.main;
        let mut frame = self.frame_for(pages, hint)?;
        tier.set_owner(frame.number(), page);
        let number = frame.number();
        // A page that left recently would still be here with slightly more memory: it may stay longer now.
        let is_ghost = state.left_lately(self.left.load(Ordering::Relaxed), tier.units());
        let seen = if is_ghost && hint == Hint::Point { 2 } else { 0 };
        let there = |now: State| now.of_pages(pages).at(tier.place, number).with_usage(seen);
        let put = self.change(page, |now| (now == state).then(|| there(now)));
        if put.is_err() {
            tier.release(frame);
            return Ok(None);
        }
        // Other threads find the frame from here on, and wait for its latch.
        let bytes = &mut frame[..pages as usize * self.page_bytes];
        if let Err(error) = fill(bytes) {
            // A reader with a stale list of extents may have requested a run that no longer exists: its length must not
            // stay in the word. The word gets a new value, like that of any page that leaves, because other readers
            // compare it with the value from before their read.
            let left = self.left.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let _ = self.change(page, |now| Some(now.of_pages(state.pages()).nowhere(left)));
            tier.release(frame);
            return Err(self.at_place(page, error));
        }
        self.missed(is_ghost, bytes.len());
        self.touch(tier, number, pages, Direction::Write, true);
        if hint == Hint::Scan {
            self.scanned(page, &frame);
        }
        Ok(Some(frame))
    }

    /// Counts a read from a device.
    pub(super) fn missed(&self, is_ghost: bool, bytes: usize) {
        self.counters.add(Count::Miss, 1);
        self.counters.add(Count::ReadBytes, bytes as u64);
        if is_ghost {
            self.counters.add(Count::GhostHit, 1);
        }
    }

    /// Enters a new run into the table, dirty and fresh; the caller has filled its frame.
    pub(super) fn publish(&self, page: PageId, pages: u32, frame: &Exclusive<'_>, is_extent: bool) {
        self.main.set_owner(frame.number(), page);
        self.put_new(page, |now| {
            let new = now.created(pages).at(Place::Near, frame.number());
            if is_extent { new.with(Flag::Extent) } else { new }
        });
        self.touch(&self.main, frame.number(), pages, Direction::Write, true);
    }

    /// Sets the word of a page that was just allocated, and records that it is dirty.
    pub(super) fn put_new(&self, page: PageId, new: impl Fn(State) -> State) {
        while self.change(page, |now| (now.place() == Place::Nowhere).then(|| new(now))).is_err() {
            // A thread has read it while it was unallocated.
            self.forget(page);
        }
        self.touched.lock().push(page);
    }

    /// Frees a run: removes it from memory, and returns it to the space.
    fn give_back(&self, page: PageId, pages: u32) {
        self.forget(page);
        self.space.free(page, pages);
    }

    /// Removes a run from memory, whatever its state; keeps the pre-image if a checkpoint needs it.
    fn forget(&self, page: PageId) {
        loop {
            let state = self.state(page);
            match state.place() {
                place @ (Place::Near | Place::Far) => {
                    let Some(tier) = self.at(place) else { return };
                    // A shared latch is enough: a reader may hold a pin, but this waits for a thread that writes it in
                    // place or loads it.
                    let Some(frame) = tier.arena.shared(state.frame()) else { continue };
                    let now = self.state(page);
                    if !now.is_where(state) {
                        continue;
                    }
                    if now.is_held() {
                        let bytes = now.pages() as usize * self.page_bytes;
                        self.save_pre_image(page, || frame[..bytes].into());
                    }
                    let freed = self.change(page, |now| now.is_where(state).then(|| now.freed()));
                    drop(frame);
                    if freed.is_ok() {
                        tier.retire(state.frame());
                        break;
                    }
                }
                Place::Slot => {
                    if self.give_back_slot(page, state) {
                        break;
                    }
                }
                Place::Nowhere => {
                    if self.change(page, |now| (now == state).then(|| now.freed())).is_ok() {
                        break;
                    }
                }
            }
        }
    }
}

pub(super) fn check_leaf(page: PageId, bytes: &[u8]) -> Result<(), StoreError> {
    page::check(page, bytes)?;
    if page::kind(bytes) == Some(Kind::Inner) { Err(other_kind(page, LEAF)) } else { Ok(()) }
}
