//! Damage found by readers. A reader whose error is final reports it here, with the tree and the keys it
//! was reading. The resulting error contains tree, page, place and keys, and the page is in the
//! [`Quarantine`](crate::damage::Quarantine) from then on.

use bytes::Bytes;

use super::VersionedTrees;
use crate::cache::BackingStore;
use crate::catalog::CATALOG;
use crate::damage::{Damage, Quarantined, range_shown, shown};
use crate::page::{Extent, PageId};
use crate::range::{Direction, Span};
use crate::tree::{Cell, lost};
use crate::{StoreError, TreeId};

impl VersionedTrees {
    /// The name of a tree. Only used for reports, because it searches the catalog.
    pub(crate) fn tree_name(&self, tree: TreeId) -> String {
        if tree == CATALOG {
            return "(catalog)".to_owned();
        }
        let place = self.interpreted().iter().position(|id| *id == tree);
        let of_interpreter = place.zip(self.interpreter.as_ref());
        if let Some((place, interpreter)) = of_interpreter {
            return interpreter.trees().swap_remove(place);
        }
        let known = self.catalog().unwrap_or_default();
        let name = known.into_iter().find(|(_, id)| *id == tree);
        name.map_or_else(|| format!("{}", tree.0), |(name, _)| String::from_utf8_lossy(&name).into_owned())
    }

    /// The error of reading a range of a tree, with everything known about it.
    pub(crate) fn met(&self, tree: TreeId, span: &Span, direction: Direction, error: StoreError) -> StoreError {
        let StoreError::Corrupt(damage) = &error else { return error };
        if damage.is_placed() {
            return error;
        }
        // A temporary error is not damage: it is returned unchanged.
        let Ok(Some(broken)) = self.forest.broken(tree, span, direction) else { return error };
        let keys = range_shown(&broken.low, &broken.high);
        self.note(tree, (broken.page, 1), &format!("{}: {keys}", text_of(&broken.error)))
    }

    /// The error of reading a key.
    pub(crate) fn met_key(&self, tree: TreeId, key: &[u8], error: StoreError) -> StoreError {
        let span = Span { from: Bytes::copy_from_slice(key), to: Bytes::new() };
        self.met(tree, &span, Direction::Forward, error)
    }

    /// The error of a range that begins with a hole.
    pub(crate) fn met_hole(&self, tree: TreeId, page: PageId, low: &[u8], high: &[u8]) -> StoreError {
        self.note(tree, (page, 1), &format!("{}: {}", text_of(&lost(page)), range_shown(low, high)))
    }

    /// The error of reading the value of a key, with everything known about it.
    pub(crate) fn met_value(&self, tree: TreeId, key: &[u8], cell: &Cell, error: StoreError) -> StoreError {
        let StoreError::Corrupt(damage) = &error else { return error };
        let Some((page, pages)) = damage.pages().filter(|_| !damage.is_placed()) else { return error };
        let page_bytes = self.forest.cache.whole_page_bytes();
        let of = |extent: &Extent| (extent.first, extent.pages(page_bytes));
        let run = match cell {
            Cell::Large(extents) => extents.iter().find(|extent| extent.first == page).map_or((page, pages), of),
            Cell::Inline(_) | Cell::Lost(_) => (page, pages),
        };
        self.note(tree, run, &format!("{damage}: the value of key {}", shown(key)))
    }

    fn note(&self, tree: TreeId, (page, pages): (PageId, u32), why: &str) -> StoreError {
        let name = self.tree_name(tree);
        let data_devices = &*self.data_devices;
        let place = data_devices.place(page);
        let why = if why.contains(&place) { why.to_owned() } else { format!("{place}: {why}") };
        let text = format!("tree {name}: {why}");
        let quarantined = Quarantined { page, pages, tree: name, why };
        data_devices.quarantine().note(quarantined);
        StoreError::Corrupt(Damage::of(page, pages, "").placed(text))
    }
}

/// The text of the damage alone.
fn text_of(error: &StoreError) -> String {
    match error {
        StoreError::Corrupt(damage) => damage.to_string(),
        other => other.to_string(),
    }
}
