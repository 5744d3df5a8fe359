//! Repair: finds everything that is lost, restores what can be restored, and gives up the rest.
//!
//! ```text
//!   losses         walks every tree and reads each value: returns what cannot be read      changes nothing
//!   open_hole      puts a hole in the place of a page that cannot be read, so that it can be filled
//!   reclaim        finds leaves that are unreachable because the path to them was lost     the rows are as they were
//!   take           takes rows from a backup: all if the journal reaches from there to now, else those that can be proved
//!   give_up        removes the rest: values that cannot be read any more
//!   close_holes    turns holes into leaves; frees what is unreachable
//! ```
//!
//! Rows are put back as transactions, and each step can be repeated: after an interruption, start again. Between the
//! steps, the service that knows the meaning of the rows rebuilds those that depend on others.
//!
//! The store must be opened with [`Options::repair`](crate::Options::repair), and by no other process, because it is
//! used with parts missing. Repair cannot restore the catalog of trees or the superblock.

use std::ops::Bound;

use bytes::Bytes;
use device::AlignedBuffer;

use crate::damage::{range_shown, shown};
use crate::engine::Store;
use crate::maintenance::trees_of;
use crate::page::{self, Extent, Kind, PageHeader, PageId};
use crate::pages::Pages;
use crate::range::Direction;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::tree::{Cell, Tree};
use crate::verify::{self, UncachedReader};
use crate::{Lsn, StoreError, TreeId};

/// Bytes of rows that one transaction puts back. A choice: one record, and far smaller than the smallest journal.
const BATCH_BYTES: usize = 256 << 10;

/// A part of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Keys from the first to before the second; empty means no bound.
    Keys(Bytes, Bytes),
    /// The value of one key.
    Value(Bytes),
}

/// A part of a tree that cannot be read.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The tree.
    pub tree: TreeId,
    /// Its name.
    pub name: String,
    /// The lost part.
    pub part: Part,
    /// What is wrong, and where.
    pub why: String,
}

impl Loss {
    /// Whether a key is affected.
    pub fn covers(&self, key: &[u8]) -> bool {
        match &self.part {
            Part::Keys(low, high) => *low <= *key && (high.is_empty() || key < &high[..]),
            Part::Value(own) => *own == *key,
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.part {
            Part::Keys(low, high) => write!(f, "tree {}, {}", self.name, range_shown(low, high)),
            Part::Value(key) => write!(f, "tree {}, the value of key {}", self.name, shown(key)),
        }
    }
}

/// A leaf's tree and fences.
type Fenced = (TreeId, Vec<u8>, Vec<u8>);

/// Whether leaves, which are in order, cover all keys of a loss without a gap.
fn is_covered(loss: &Loss, leaves: &[Fenced]) -> bool {
    let Part::Keys(low, high) = &loss.part else { return false };
    let mut from = low.to_vec();
    for (_, low, end) in leaves.iter().filter(|(tree, ..)| *tree == loss.tree) {
        if *low <= from && (end.is_empty() || *end > from) {
            if end.is_empty() || (!high.is_empty() && *end >= *high) {
                return true;
            }
            from.clone_from(end);
        }
    }
    false
}

/// Puts rows, several in one transaction.
struct Putting<'a> {
    store: &'a Store,
    transaction: Option<Transaction>,
    bytes: usize,
    rows: u64,
}

impl<'a> Putting<'a> {
    fn new(store: &'a Store) -> Putting<'a> {
        Putting { store, transaction: None, bytes: 0, rows: 0 }
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let transaction = self.transaction.get_or_insert_with(|| self.store.begin());
        transaction.put(tree, key, value)?;
        self.bytes += key.len() + value.len();
        self.rows += 1;
        if self.bytes >= BATCH_BYTES { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        match self.transaction.take() {
            Some(transaction) => transaction.commit().map(drop),
            None => Ok(()),
        }
    }
}

impl Store {
    fn check_repairing(&self) -> Result<(), StoreError> {
        match self.engine.options.repair {
            true => Ok(()),
            false => Err(StoreError::Refused("the store is not open for repair".into())),
        }
    }

    /// Walks every tree and reads each value; returns what cannot be read. `progress` is called now and then with the
    /// number of keys read so far.
    ///
    /// Errors: those that are not damage; [`StoreError::Corrupt`] if the catalog of trees is damaged.
    pub fn losses(&self, progress: &mut dyn FnMut(u64)) -> Result<Vec<Loss>, StoreError> {
        let snapshot = self.snapshot();
        let (mut losses, mut keys) = (Vec::new(), 0_u64);
        for (name, tree) in snapshot.trees()? {
            let loss = |part, why: &StoreError| Loss { tree, name: name.clone(), part, why: why.to_string() };
            let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward).once();
            loop {
                match cursor.next_tried() {
                    Ok(None) => break,
                    Ok(Some((_, Ok(_)))) => {}
                    Ok(Some((key, Err(why @ StoreError::Corrupt(_))))) => losses.push(loss(Part::Value(key), &why)),
                    Ok(Some((_, Err(error)))) => return Err(error),
                    Err(why @ StoreError::Corrupt(_)) => {
                        if let Some(skipped) = cursor.skip_damage()? {
                            losses.push(loss(Part::Keys(skipped.low, skipped.high), &why));
                        }
                    }
                    Err(error) => return Err(error),
                }
                keys += 1;
                if keys.is_multiple_of(1024) {
                    progress(keys);
                }
            }
        }
        Ok(losses)
    }

    /// Whether the value of a key is known: `false` if a hole covers it, or its value cannot be read. Errors: those
    /// that are not damage.
    pub fn is_known(&self, tree: TreeId, key: &[u8]) -> Result<bool, StoreError> {
        match self.snapshot().get(tree, key) {
            Ok(_) => Ok(true),
            Err(StoreError::Corrupt(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts a hole in the place of keys that cannot be read; does nothing if there is one already.
    ///
    /// Errors: [`StoreError::Refused`], [`StoreError::Full`], [`StoreError::Poisoned`].
    pub fn open_hole(&self, loss: &Loss) -> Result<(), StoreError> {
        self.check_repairing()?;
        let Part::Keys(low, _) = &loss.part else { return Ok(()) };
        let _applier = self.engine.applier.lock();
        let mut writer = self.engine.trees.forest.change(loss.tree, self.engine.trees.snapshots.visible())?;
        writer.open_hole(low)
    }

    /// Puts back the rows of leaves that are unreachable because the path to them was lost, in their state at that
    /// time. Returns how many rows, and the remaining losses, which such leaves do not cover without a gap.
    ///
    /// Errors: those of [`open_hole`](Store::open_hole), and of committing.
    pub fn reclaim(&self, losses: &[Loss]) -> Result<(u64, Vec<Loss>), StoreError> {
        self.check_repairing()?;
        self.checkpoint()?;
        let leaves = self.lost_leaves(losses)?;
        let data_devices = &*self.engine.data_devices;
        let mut putting = Putting::new(self);
        let mut covered = Vec::new();
        let mut bytes = AlignedBuffer::zeroed(self.engine.trees.forest.cache.whole_page_bytes());
        for (_, page, tree) in leaves {
            data_devices.read(page, &mut bytes)?;
            if page::encrypted::open_with(data_devices.sealer(), page, &mut bytes).is_err() {
                continue;
            }
            let node = &bytes[..self.engine.trees.forest.cache.page_bytes()];
            let mut rows = Vec::new();
            let of_leaf = Tree { root: page, id: tree }.cells_of(node, |key, cell| rows.push((key.to_vec(), cell)));
            let Some((low, high)) = of_leaf else { continue };
            let mut is_whole = true;
            for (key, cell) in rows {
                let is_lost = losses.iter().any(|loss| loss.tree == tree && loss.covers(&key));
                if !is_lost || self.is_known(tree, &key)? {
                    continue;
                }
                let still = UncachedReader::new(data_devices, std::collections::HashMap::new());
                match cell.read(&still) {
                    Ok(value) => putting.put(tree, &key, &value)?,
                    // The value is lost as well: it stays unknown.
                    Err(StoreError::Corrupt(_)) => is_whole = false,
                    Err(error) => return Err(error),
                }
            }
            // The next leaf checks what is known.
            putting.commit()?;
            if is_whole {
                covered.push((tree, low, high));
            }
        }
        covered.sort_unstable();
        let left = losses.iter().filter(|loss| !is_covered(loss, &covered)).cloned().collect();
        Ok((putting.rows, left))
    }

    /// Leaves of trees with holes that are in use but unreachable, the newest first.
    fn lost_leaves(&self, losses: &[Loss]) -> Result<Vec<(u64, PageId, TreeId)>, StoreError> {
        let data_devices = &*self.engine.data_devices;
        let mut leaves = Vec::new();
        let mut bytes = AlignedBuffer::zeroed(self.engine.trees.forest.cache.whole_page_bytes());
        for id in self.unreached()? {
            match data_devices.read(id, &mut bytes).map_err(|error| error.of_reading(id, 1)) {
                Err(StoreError::Corrupt(_)) => continue,
                read => read?,
            }
            // This also reads extents, whose bytes may be anything: their checksum does not verify as a page's.
            let Some(header) = PageHeader::of(&bytes).filter(|_| page::check(id, &bytes).is_ok()) else { continue };
            let tree = TreeId(header.tree);
            if header.kind == Kind::Leaf && losses.iter().any(|loss| loss.tree == tree) {
                leaves.push((header.lsn, id, tree));
            }
        }
        leaves.sort_unstable_by(|a, b| b.cmp(a));
        Ok(leaves)
    }

    fn unreached(&self) -> Result<Vec<PageId>, StoreError> {
        let mut pages = Vec::new();
        self.engine.applier.checkpoints.between(&mut |writer| {
            pages = verify::unreached(writer.data_devices(), writer.superblock(), &trees_of)?;
            Ok(())
        })?;
        Ok(pages)
    }

    /// Takes lost rows from another store, which is a restored backup of this one. `is_current`: it has applied this
    /// store's journal to its end, so all its rows are valid. Otherwise only values are taken whose checksum matches
    /// the lost one's, and rows of trees for which `never_changes` is true. Returns how many rows, and whether the
    /// whole loss is now known.
    ///
    /// Errors: those that are not damage.
    pub fn take(
        &self,
        loss: &Loss,
        source: &Snapshot,
        is_current: bool,
        never_changes: &dyn Fn(&str) -> bool,
    ) -> Result<(u64, bool), StoreError> {
        self.check_repairing()?;
        let mut putting = Putting::new(self);
        let is_whole = match &loss.part {
            Part::Value(key) => match source.get(loss.tree, key) {
                Ok(Some(value)) if is_current || self.was(loss.tree, key, &value)? => {
                    putting.put(loss.tree, key, &value)?;
                    true
                }
                Ok(_) | Err(StoreError::Corrupt(_)) => false,
                Err(error) => return Err(error),
            },
            Part::Keys(..) if !is_current && !never_changes(&loss.name) => false,
            Part::Keys(low, high) => {
                let to = if high.is_empty() { Bound::Unbounded } else { Bound::Excluded(&high[..]) };
                let mut cursor = source.scan(loss.tree, Bound::Included(low), to, Direction::Forward).once();
                let mut is_whole = is_current;
                loop {
                    match cursor.next_tried() {
                        Ok(None) => break,
                        Ok(Some((key, Ok(value)))) => {
                            if !self.is_known(loss.tree, &key)? {
                                putting.put(loss.tree, &key, &value)?;
                            }
                        }
                        Ok(Some((_, Err(StoreError::Corrupt(_))))) => is_whole = false,
                        Err(StoreError::Corrupt(_)) => {
                            is_whole = false;
                            cursor.skip_damage()?;
                        }
                        Ok(Some((_, Err(error)))) | Err(error) => return Err(error),
                    }
                }
                is_whole
            }
        };
        putting.commit()?;
        Ok((putting.rows, is_whole))
    }

    /// Whether a value matches the cell of the value that cannot be read.
    fn was(&self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let (cell, _) = self.engine.trees.forest.get(tree, key, u64::MAX)?;
        let Some(Cell::Large(extents)) = cell else { return Ok(false) };
        let parts = value.chunks(self.engine.data_devices.geometry().run_bytes_max());
        let fits = |(extent, part): (&Extent, &[u8])| extent.check(part).is_ok();
        Ok(parts.len() == extents.len() && extents.iter().zip(parts).all(fits))
    }

    /// Turns every hole into a normal leaf: keys that are still unknown are given up. Frees pages that are in use but
    /// unreachable, clears the quarantine, and writes everything back. Returns how many pages became free.
    ///
    /// Errors: those of [`open_hole`](Store::open_hole).
    pub fn close_holes(&self, losses: &[Loss]) -> Result<u64, StoreError> {
        self.check_repairing()?;
        for loss in losses {
            let Part::Keys(low, high) = &loss.part else { continue };
            // The hole may have been split since: from its smallest key on, leaf by leaf.
            let mut next = Some(low.clone());
            while let Some(key) = next {
                let applier = self.engine.applier.lock();
                let mut writer = self.engine.trees.forest.change(loss.tree, self.engine.trees.snapshots.visible())?;
                next = writer.heal(&key)?.filter(|end| !end.is_empty() && (high.is_empty() || *end < *high));
                drop(applier);
            }
        }
        self.engine.data_devices.quarantine().clear();
        self.checkpoint()?;
        let lost = self.unreached()?;
        {
            let _applier = self.engine.applier.lock();
            self.engine.applier.space.applying(Lsn(self.engine.trees.snapshots.visible()));
            lost.iter().for_each(|page| self.engine.applier.space.free(*page, 1));
        }
        self.checkpoint()?;
        Ok(lost.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_covered_by_leaves_without_a_gap_and_by_no_others() {
        let leaf = |low: &str, high: &str| (TreeId(7), low.as_bytes().to_vec(), high.as_bytes().to_vec());
        let loss = |low: &str, high: &str| Loss {
            tree: TreeId(7),
            name: String::new(),
            part: Part::Keys(Bytes::copy_from_slice(low.as_bytes()), Bytes::copy_from_slice(high.as_bytes())),
            why: String::new(),
        };
        let leaves = [leaf("", "b"), leaf("b", "d"), leaf("d", "f"), leaf("m", "")];
        for (low, high, covered) in [
            ("", "f", true),
            ("b", "f", true),
            ("d", "f", true),
            ("c", "e", true),
            ("a", "c", true),
            ("f", "m", false),
            ("d", "", false),
            ("m", "", true),
            ("", "", false),
        ] {
            assert_eq!(is_covered(&loss(low, high), &leaves), covered, "{low} to {high}");
        }
        let other = Loss { tree: TreeId(8), ..loss("", "f") };
        assert!(!is_covered(&other, &leaves));
    }
}
