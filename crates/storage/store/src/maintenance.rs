//! Maintenance of a store: checking, backup, restore; while it is open, or while it is closed.
//!
//! ```text
//!   Store::verify   Store::backup      while it is used: between checkpoints, the pages on the data devices are one state
//!   verify_places   restore            while no process has it open
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;

use device::Shelf;
use encryption::Sealer;
use journal::{Journal, Record};

use crate::apply::Applier;
use crate::backup::restore::{self, BackupSource, Restoration, Restoring};
use crate::backup::{Copying, Manifest, Source, Until, check_empty};
use crate::catalog::{CATALOG, ROOTS};
use crate::checkpoint::runner::Checkpoints;
use crate::interpreter::Foreign;
use crate::options::Places;
use crate::page::PageId;
use crate::range::{Direction, Span};
use crate::record::{self, KIND_SPILLED_COMMIT, KIND_TRANSACTION};
use crate::space::devices::DataDevices;
use crate::tree::Tree;
use crate::verify::{self, Progress, UncachedReader, Verified};
use crate::{StoreError, TreeId};

/// The parts of a store that a backup needs.
pub(crate) struct BackedUp<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) applier: &'a Applier,
    pub(crate) data_devices: &'a DataDevices,
    /// The shelf of the journal.
    pub(crate) segments: &'a Arc<dyn Shelf>,
}

/// Implements [`Store::verify`](crate::Store::verify).
pub(crate) fn verify(checkpoints: &Checkpoints, progress: &mut dyn FnMut(Progress)) -> Result<Verified, StoreError> {
    let mut found = None;
    checkpoints.between(&mut |writer| {
        found = Some(verify::online(writer.data_devices(), writer.superblock(), &trees_of, progress)?);
        Ok(())
    })?;
    found.ok_or_else(StoreError::closed)
}

/// Implements [`Store::backup`](crate::Store::backup).
pub(crate) fn backup(
    of: BackedUp<'_>,
    to: &Arc<dyn Shelf>,
    progress: &mut dyn FnMut(Copying) -> ControlFlow<()>,
) -> Result<Manifest, StoreError> {
    let BackedUp { journal, applier, data_devices, segments } = of;
    let consistent_lsn = || applier.redo.consistent_lsn();
    let check = |to: &Arc<dyn Shelf>, manifest: &Manifest| {
        let found =
            verify::offline(to.clone(), to.clone(), applier.options.journal.sealer.clone(), &trees_of, &mut |_| ())?;
        restore::check(manifest, &found)
    };
    let (retention, consistent_lsn) = (&*applier.retention, &consistent_lsn);
    let source = Source { data_devices, journal, segments, retention, consistent_lsn, check: &check };
    crate::backup::backup(source, &|work| applier.checkpoints.between(work), to, progress).map_err(not_backed_up)
}

/// Adds to an error what to do if a store cannot be backed up.
fn not_backed_up(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(why) => {
            let text = format!("{why}; there is no backup: stop the node, see `terrace repair`, and back up again");
            StoreError::Corrupt(why.said(text))
        }
        other => other,
    }
}

/// Checks the store in places that no process has open for writing; changes nothing.
///
/// Errors: [`StoreError::Refused`] if there is no store, [`StoreError::Corrupt`] if it could not be opened either,
/// [`StoreError::Device`]. Other damage is not an error but part of the result. The journal is not checked: use
/// [`journal::verify`].
pub fn verify_places(places: &Places, progress: &mut dyn FnMut(Progress)) -> Result<Verified, StoreError> {
    verify_places_with(places, None, progress)
}

/// As [`verify_places`], of an encrypted store: every seal is checked too.
///
/// Errors: as there; [`StoreError::Corrupt`] if the sealer is not the store's.
pub fn verify_places_with(
    places: &Places,
    sealer: Option<Arc<Sealer>>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified, StoreError> {
    verify::offline(places.data.clone(), places.images.clone(), sealer, &trees_of, progress)
}

/// Describes the content of the places as text, for diagnosis: superblock, write images, devices. The store may be
/// open; damage is described, not refused. Changes nothing.
///
/// Errors: [`StoreError::Corrupt`] if devices are missing, [`StoreError::Device`].
pub fn inspect_places(places: &Places) -> Result<String, StoreError> {
    let mut out = String::new();
    verify::inspect::inspect(places.data.clone(), places.images.clone(), &mut out)?;
    Ok(out)
}

/// Restores a backup to empty places, up to a moment; opening the store there redoes the journal up to it. `foreign` returns
/// when a record of a service was appended, in microseconds since 1970, if the record contains it; transactions always
/// do. `progress` is called now and then.
///
/// The whole backup is checked before anything is copied. Going back is as exact as group commits are: of the records
/// that were made persistent together all are kept or none.
///
/// Errors: [`StoreError::Refused`] if the places are not empty, or the moment lies before the backup;
/// [`StoreError::Corrupt`], with the place, if the backup is incomplete or damaged, or the journal does not belong to
/// it; [`StoreError::Full`], [`StoreError::Journal`], [`StoreError::Device`]. After an error the places must be
/// emptied.
pub fn restore(
    source: BackupSource<'_>,
    places: &Places,
    until: Until,
    foreign: &dyn Fn(&Record) -> Option<u64>,
    progress: &mut dyn FnMut(Restoring),
) -> Result<Restoration, StoreError> {
    let backup = source.backup;
    let manifest = Manifest::read(&**backup)?;
    [&places.journal, &places.images, &places.data].into_iter().try_for_each(|shelf| check_empty(&**shelf))?;
    // A backup has no write images: any of its shelves can be passed for them.
    let found = verify::offline(backup.clone(), backup.clone(), source.sealer.cloned(), &trees_of, &mut |told| {
        progress(Restoring::Checking(told));
    })?;
    restore::check(&manifest, &found)?;
    let time_of = |record: &Record| match record.kind {
        KIND_TRANSACTION | KIND_SPILLED_COMMIT => record::time_us(&record.payload).ok(),
        kind if kind < Foreign::KINDS => foreign(record),
        _ => None,
    };
    restore::restore(source, places, until, &time_of, progress)
}

/// Returns the trees of a store with their names, from the root of the tree of roots.
pub(crate) fn trees_of(still: &UncachedReader<'_>, roots: PageId) -> Result<Vec<(String, Tree)>, StoreError> {
    let roots = Tree { root: roots, id: ROOTS };
    let mut trees = Vec::new();
    each(still, roots, &mut |key, value| {
        let (Ok(id), Ok(root)) = (key.try_into(), value.try_into()) else { return false };
        trees.push(Tree { root: PageId(u32::from_le_bytes(root)), id: TreeId(u32::from_be_bytes(id)) });
        true
    })?;
    let mut names = std::collections::HashMap::new();
    if let Some(catalog) = trees.iter().find(|tree| tree.id == CATALOG) {
        each(still, *catalog, &mut |key, value| {
            if let Ok(id) = value.try_into()
                && key.first() != Some(&0)
            {
                names.insert(u32::from_le_bytes(id), String::from_utf8_lossy(key).into_owned());
            }
            true
        })?;
    }
    let name = |tree: &Tree| match tree.id {
        CATALOG => "(catalog)".to_owned(),
        // Dropped; the next opening frees its pages, if not before.
        id => names.get(&id.0).cloned().unwrap_or_else(|| format!("(dropped {})", id.0)),
    };
    let mut named: Vec<(String, Tree)> = trees.iter().map(|tree| (name(tree), *tree)).collect();
    named.push(("(roots)".to_owned(), roots));
    Ok(named)
}

/// Called with a key and its value; returns `false` if they are not a row of the catalog.
type CatalogRow<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Calls `row` with each key and value of a tree without long values.
fn each(still: &UncachedReader<'_>, tree: Tree, row: CatalogRow<'_>) -> Result<(), StoreError> {
    let mut left = Some(Span::all());
    while let Some(span) = left {
        let block = tree.leaf_block(still, &span.from, &span.to, Direction::Forward)?;
        if let Some(at) = (0..block.len()).find(|at| !row(block.key(*at), block.stored(*at).bytes())) {
            return Err(block.corrupt(at, "is not a tree and its root"));
        }
        left = span.split(&block.low, &block.high, Direction::Forward).1;
    }
    Ok(())
}
