//! The space runs out at every place where it can during a change: the change is refused as a whole, and the tree stays
//! valid and usable.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;

use super::*;
use crate::page::Extent;
use crate::pages::memory::{Read, Write};

/// Pages that are full at one call, counted from when it was armed.
struct Failing {
    pages: MemoryPages,
    calls: AtomicU32,
    fails_at: AtomicU32,
}

impl Failing {
    fn call(&self) -> Result<(), StoreError> {
        match self.calls.fetch_add(1, Ordering::Relaxed) == self.fails_at.load(Ordering::Relaxed) {
            true => Err(StoreError::Full("by script".into())),
            false => Ok(()),
        }
    }

    fn arm(&self, fails_at: u32) {
        self.calls.store(0, Ordering::Relaxed);
        self.fails_at.store(fails_at, Ordering::Relaxed);
    }
}

impl Pages for Failing {
    type Read<'a> = Read<'a>;
    type Write<'a> = Write<'a>;

    fn page_bytes(&self) -> usize {
        self.pages.page_bytes()
    }

    fn read(&self, page: PageId) -> Result<Read<'_>, StoreError> {
        self.pages.read(page)
    }

    fn write(&self, page: PageId) -> Result<Write<'_>, StoreError> {
        self.call().and_then(|()| self.pages.write(page))
    }

    fn create_leaf(&self) -> Result<(PageId, Write<'_>), StoreError> {
        self.call().and_then(|()| self.pages.create_leaf())
    }

    fn create_inner(&self, image: &[u8]) -> Result<PageId, StoreError> {
        self.call().and_then(|()| self.pages.create_inner(image))
    }

    fn inner<R>(&self, page: PageId, probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError> {
        self.call().and_then(|()| self.pages.inner(page, probe))
    }

    fn replace_inner(&self, page: PageId, image: &[u8]) -> Result<(), StoreError> {
        self.call().and_then(|()| self.pages.replace_inner(page, image))
    }

    fn free(&self, page: PageId) {
        self.pages.free(page);
    }

    fn extent_bytes_max(&self) -> usize {
        self.pages.extent_bytes_max()
    }

    fn create_extent(&self, bytes: &[u8]) -> Result<Extent, StoreError> {
        self.call().and_then(|()| self.pages.create_extent(bytes))
    }

    fn read_extent(&self, extent: Extent) -> Result<Bytes, StoreError> {
        self.pages.read_extent(extent)
    }

    fn free_extent(&self, extent: Extent) {
        self.pages.free_extent(extent);
    }
}

/// A change: the key, and the length of its value, or `None` to delete it.
type Change = (Vec<u8>, Option<usize>);

/// Keys whose neighbours share most of their bytes, while the separators of a node share nothing, so that inner pages
/// are split as well.
fn changes(rng: &mut fastrand::Rng) -> Vec<Change> {
    let key = |at: usize| [vec![(at / 8) as u8; 850], (at as u16).to_be_bytes().to_vec()].concat();
    let mut order: Vec<usize> = (0..200).collect();
    rng.shuffle(&mut order);
    let mut changes: Vec<Change> = order.iter().map(|at| (key(*at), Some(rng.usize(..1200)))).collect();
    rng.shuffle(&mut order);
    changes.extend(order.into_iter().map(|at| (key(at), None)));
    changes
}

#[test]
fn no_room_at_any_call_refuses_the_change_and_leaves_a_sound_tree() {
    let (mut refused, mut poisoned) = (0, 0);
    'runs: for fails_at in 0..24 {
        let mut rng = fastrand::Rng::with_seed(6);
        let pages =
            Failing { pages: MemoryPages::new(4096), calls: AtomicU32::new(0), fails_at: AtomicU32::new(u32::MAX) };
        let tree = Tree::create(&pages, ID, Lsn(1)).expect("not armed");
        let mut writer = tree.writer(&pages);
        let mut model = BTreeMap::new();
        for (key, value) in changes(&mut rng) {
            let value = value.map(|bytes| vec![7; bytes]);
            let mut change = || match &value {
                Some(value) => writer.put(&key, value, Lsn(2)),
                None => writer.delete(&key, Lsn(2)),
            };
            pages.arm(fails_at);
            let mut done = change();
            pages.arm(u32::MAX);
            if let Err(error) = &done {
                if matches!(error, StoreError::Poisoned { .. }) {
                    // A part of the change is in the tree; a reader finds the tree valid as far as it goes, but it must
                    // not be changed.
                    poisoned += 1;
                    continue 'runs;
                }
                assert!(matches!(error, StoreError::Full(_)), "{error}");
                refused += 1;
                sound(tree, &pages.pages);
                equal(tree, &pages.pages, &model);
                done = change();
            }
            let old = done.expect("room again");
            let expected = match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
            assert_eq!(old.as_ref().map(|cell| cell.value_bytes(0)), expected.as_ref().map(Vec::len));
            old.iter().for_each(|old| old.free(&pages));
        }
        sound(tree, &pages.pages);
        equal(tree, &pages.pages, &model);
    }
    assert!(refused > 100 && poisoned > 0, "refused {refused}, poisoned {poisoned}");
}
