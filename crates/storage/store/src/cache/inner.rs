//! Inner pages: read without latches, replaced as a whole.

use std::sync::atomic::{AtomicU64, Ordering};

use device::AlignedBuffer;

use super::eviction::full;
use super::metrics::Count;
use super::slots::{self, Wait};
use super::state::{Place, State};
use super::{Cache, STRIPES, other_kind};
use crate::StoreError;
use crate::page::{self, Kind, PageId};

/// The name of a page in a slot in messages.
const INNER: &str = "an inner page now";

impl Cache {
    pub(super) fn read_slot<R>(&self, page: PageId, mut probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError> {
        let mut wait = Wait::default();
        loop {
            let state = self.state(page);
            if !self.is_in_slot(page, state)? {
                match self.load_slot(page)? {
                    None => continue,
                    // No slot is available: read from the copy.
                    Some(image) => {
                        let (chunks, _) = image.as_chunks::<8>();
                        let words: Vec<AtomicU64> = chunks[..self.node_bytes / 8]
                            .iter()
                            .map(|bytes| AtomicU64::new(u64::from_le_bytes(*bytes)))
                            .collect();
                        return Ok(probe(&words));
                    }
                }
            }
            let still = || self.state(page).is_where(state);
            if let Some(result) = self.slots.read(state.frame(), still, &mut probe) {
                self.counters.add(Count::InnerHit, 1);
                self.count_use(page, state);
                return Ok(result);
            }
            wait.once();
        }
    }

    /// Whether it is in memory. Errors: it is not an inner page.
    fn is_in_slot(&self, page: PageId, state: State) -> Result<bool, StoreError> {
        match state.place() {
            Place::Slot => Ok(true),
            Place::Nowhere if state.can_be_loaded_as_page() => Ok(false),
            _ => Err(other_kind(page, INNER)),
        }
    }

    /// Reads an inner page from its device into a slot, unless another thread does. Returns its image if no slot is
    /// available.
    fn load_slot(&self, page: PageId) -> Result<Option<AlignedBuffer>, StoreError> {
        let _alone = self.stripes[page.0 as usize % STRIPES].lock();
        let state = self.state(page);
        if self.is_in_slot(page, state)? {
            return Ok(None);
        }
        let mut image = AlignedBuffer::zeroed(self.page_bytes);
        let read = self.backing.read(page, &mut image).map_err(|error| error.of_reading(page, 1));
        let read = read.and_then(|()| page::encrypted::open_with(self.backing.sealer(), page, &mut image));
        read.map_err(|error| self.at_place(page, error))?;
        if page::kind(&image) != Some(Kind::Inner) {
            return Err(other_kind(page, INNER));
        }
        self.missed(state.left_lately(self.left.load(Ordering::Relaxed), self.slots.made()), image.len());
        let writing = match self.slot() {
            Err(StoreError::Full(_)) => return Ok(Some(image)),
            slot => slot?,
        };
        writing.put(&image);
        writing.set_owner(Some(page));
        let slot = writing.slot;
        if self.change(page, |now| (now == state).then(|| now.of_pages(1).at(Place::Slot, slot))).is_err() {
            self.slots.give(writing);
        }
        Ok(None)
    }

    pub(super) fn create_slot(&self, image: &[u8]) -> Result<PageId, StoreError> {
        assert_eq!(image.len(), self.node_bytes, "an image is a node");
        let page = self.space.allocate(1)?;
        let writing = match self.in_time(|| self.slot()) {
            Ok(writing) => writing,
            Err(error) => {
                self.space.free(page, 1);
                return Err(error);
            }
        };
        writing.put(image);
        writing.set_owner(Some(page));
        let slot = writing.slot;
        self.put_new(page, |now| now.created(1).at(Place::Slot, slot));
        Ok(page)
    }

    pub(super) fn replace_slot(&self, page: PageId, image: &[u8]) -> Result<(), StoreError> {
        assert_eq!(image.len(), self.node_bytes, "an image is a node");
        loop {
            let state = self.state(page);
            if !self.is_in_slot(page, state)? {
                self.in_time(|| self.load_slot(page)?.map_or(Ok(()), |_| Err(full())))?;
                continue;
            }
            let writing = self.slots.write(state.frame());
            let now = self.state(page);
            if !now.is_where(state) {
                continue;
            }
            if now.is_held() {
                self.save_pre_image(page, || {
                    let mut old = vec![0; self.page_bytes];
                    writing.copy(&mut old);
                    old.into()
                });
            }
            writing.put(image);
            self.mark_dirty(page);
            return Ok(());
        }
    }

    /// Frees an inner page; returns `false` if it moved meanwhile.
    pub(super) fn give_back_slot(&self, page: PageId, state: State) -> bool {
        let writing = self.slots.write(state.frame());
        let now = self.state(page);
        if !now.is_where(state) {
            return false;
        }
        if now.is_held() {
            self.save_pre_image(page, || {
                let mut old = vec![0; self.page_bytes];
                writing.copy(&mut old);
                old.into()
            });
        }
        let freed = self.change(page, |now| now.is_where(state).then(|| now.freed())).is_ok();
        if freed {
            self.slots.give(writing);
        }
        freed
    }

    /// Copies a page's slot if it still contains the checkpoint's image; returns `false` if the page moved or was
    /// changed meanwhile.
    pub(super) fn checkpoint_slot(&self, page: PageId, state: State, image: &mut [u8]) -> bool {
        let still = || {
            let now = self.state(page);
            now.is_where(state) && now.is_held()
        };
        let copied = self.slots.read(state.frame(), still, |words| slots::copy(words, image));
        copied.is_some()
    }
}
