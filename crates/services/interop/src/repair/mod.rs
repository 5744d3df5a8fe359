//! Repairs the stored data of a stopped node: damaged data is restored from other data, and the rest is given up and
//! listed by name.
//!
//! ```text
//!   look         every tree is walked, each value read                                what is lost
//!   reclaim      rows of leaves that are whole, and to which the way was lost         as they were
//!   backup       with the node's journal, where that reaches from the backup to now   as they were; else what checksums prove,
//!                                                                                     and messages, which never change
//!   derive       index entries, what waits, outcomes: from the messages themselves       see `messages`
//!   give up      messages that are not whole; rows of others by their service         named
//!   close        what was lost space is free again; everything is checked
//! ```
//!
//! A dry run performs all steps over a layer of memory, and reports the same. Each step may be interrupted: the next
//! run starts from the beginning.
//!
//! Not here: journals, superblocks and the catalog of trees, without which a store does not open. Restore a backup then.

mod messages;

use std::path::Path;
use std::sync::Arc;

use device::{FileOptions, FileShelf, MemoryShelf, OverlayShelf, Shelf};
use journal::View;
use node::audit::rows::AUDIT_TREE;
use node::{DirectoryLock, Location, Locations, control, encryption, location, maintenance, stopped};
use serde::Serialize;
use store::{Loss, Lsn, Manifest, Part, Places, Snapshot, Store, StoreError};

use crate::error::InteropError;
use crate::rows::{Reader, check, interpreter};

/// Something that cannot be had back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GivenUp {
    /// Its description, for display.
    pub what: String,
    /// The message, where it is one.
    pub message: Option<u64>,
    /// It was acknowledged, and had not been delivered: its sender has to send it again.
    pub waited: bool,
}

/// Something that was damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damaged {
    /// Tree and keys.
    pub what: String,
    /// The fault, and its place.
    pub why: String,
}

/// The actions of a repair, done or planned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// False for a dry run.
    pub applied: bool,
    /// The damage found.
    pub damaged: Vec<Damaged>,
    /// Rows found in leaves to which the way was lost.
    pub reclaimed: u64,
    /// Rows taken from the backup.
    pub from_backup: u64,
    /// Whether the backup, with the journal, is the state of now; none without one.
    pub backup_is_current: Option<bool>,
    /// Rows made anew from the messages.
    pub derived: u64,
    /// The data that is lost.
    pub given_up: Vec<GivenUp>,
    /// Pages that are free again.
    pub freed: u64,
    /// The remaining faults.
    pub problems: Vec<String>,
}

/// Gives up the lost data in the trees of other services, and returns a list of it.
pub type Others<'a> = &'a dyn Fn(&Store, &[Loss]) -> Result<Vec<String>, StoreError>;

/// Repairs the node whose data directory is `data`; a dry run unless `apply` is set. `backup` is a folder with a backup of it.
/// `others` knows the trees that are not the engine's. `on_progress` is called with the rows read so far.
///
/// # Errors
/// `Refused` while a node runs there, or where its medium is no folder of files; `Store` with `Corrupt` where it cannot be opened
/// at all; those of the store.
pub fn repair(
    data: &Path,
    backup: Option<&Path>,
    apply: bool,
    others: Others<'_>,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Repaired, InteropError> {
    if control::is_running(data) {
        return Err(InteropError::Refused("a node runs there: `terrace stop` it first".to_owned()));
    }
    let locations = location::locations(data)?;
    let _lock = if apply { Some(DirectoryLock::acquire(data)?) } else { DirectoryLock::acquire_to_read(data)? };
    // Ahead of any change: with the journal as the node left it.
    let source = backup.map(|folder| source(folder, data, &locations)).transpose()?;
    let places = if apply { real(data, &locations)? } else { stopped::places_over(data, &locations)? };
    let sealer = if apply { encryption::to_write(data)? } else { encryption::to_look(data)? };
    let store = stopped::open_to_repair(places, interpreter(), sealer)?;
    // Also what a retention has kept so far: a repair must not cost the way back.
    store.keep_journal(Lsn::ZERO);
    let mut report = Repaired { applied: apply, ..Repaired::default() };
    let losses = store.losses(on_progress)?;
    let of = |loss: &Loss| Damaged { what: loss.to_string(), why: loss.why.clone() };
    report.damaged = losses.iter().map(of).collect();
    losses.iter().try_for_each(|loss| store.open_hole(loss))?;
    let (reclaimed, mut left) = store.reclaim(&losses)?;
    report.reclaimed = reclaimed;
    if let Some((source, is_current)) = &source {
        report.backup_is_current = Some(*is_current);
        left = take(&store, &left, &source.snapshot(), *is_current, &mut report)?;
    }
    report.derived = messages::derive(&store, &left)?;
    report.given_up = messages::give_up(&store, &left)?;
    report.given_up.extend(left.iter().filter(|loss| loss.name == AUDIT_TREE).map(|loss| GivenUp {
        what: format!("{loss}: entries of the audit; `terrace audit verify` reports them as missing"),
        message: None,
        waited: false,
    }));
    let others = others(&store, &left)?;
    report.given_up.extend(others.into_iter().map(|what| GivenUp { what, message: None, waited: false }));
    report.freed = store.close_holes(&losses)?;
    report.problems = problems(&store)?;
    store.close()?;
    Ok(report)
}

/// Takes data from a backup; returns the remaining losses.
fn take(
    store: &Store,
    losses: &[Loss],
    source: &Snapshot,
    is_current: bool,
    report: &mut Repaired,
) -> Result<Vec<Loss>, InteropError> {
    let mut left = Vec::new();
    for loss in losses {
        let (rows, is_whole) = store.take(loss, source, is_current, &|tree| tree == crate::rows::TREES[0])?;
        report.from_backup += rows;
        if !is_whole {
            left.push(loss.clone());
        }
    }
    Ok(left)
}

/// The faults that remain after all steps.
fn problems(store: &Store) -> Result<Vec<String>, InteropError> {
    let found = maintenance::verify(store, &mut |_| ())?;
    let mut problems = found.problems;
    problems.extend(found.leaked.filter(|pages| *pages > 0).map(|pages| format!("{pages} pages are lost")));
    if problems.is_empty() {
        let check::Report { problems: rows, wrong, .. } = check::check(&Reader::new(store))?;
        problems.extend(rows);
        if wrong > problems.len() as u64 {
            problems.push(format!("{wrong} rows or entries in all"));
        }
    }
    Ok(problems)
}

/// The places themselves, to be written.
fn real(data: &Path, locations: &Locations) -> Result<Places, InteropError> {
    let shelf = |location: &Location| -> Result<Arc<dyn Shelf>, InteropError> {
        let folder = location.folder_in(data).filter(|_| location.kind == "file");
        let folder = folder.ok_or_else(|| {
            let text =
                "only what lies in folders of files can be repaired in place: restore a backup, or move it first";
            InteropError::Refused(format!("tier {} is of kind {}; {text}", location.tier, location.kind))
        })?;
        Ok(Arc::new(FileShelf::open(&folder, FileOptions::default())?))
    };
    Ok(Places { journal: shelf(&locations.journal)?, images: shelf(&locations.images)?, data: shelf(&locations.data)? })
}

/// A backup, opened over a layer of memory with the node's journal where that goes on behind it; and whether it does.
/// It may be damaged itself: parts of it that cannot be read are not taken.
fn source(backup: &Path, data: &Path, locations: &Locations) -> Result<(Store, bool), InteropError> {
    let shelf: Arc<dyn Shelf> = Arc::new(FileShelf::open_read_only(backup)?);
    let manifest = Manifest::read(&*shelf)?;
    let over = |shelf: &Arc<dyn Shelf>| -> Result<Arc<dyn Shelf>, InteropError> {
        Ok(Arc::new(OverlayShelf::new(Arc::clone(shelf))?))
    };
    let kept = match locations.journal.folder_in(data) {
        Some(folder) => {
            let kept: Arc<dyn Shelf> = Arc::new(FileShelf::open_read_only(&folder)?);
            let view = View::open(Arc::clone(&kept))?;
            if view.identity().is_some_and(|identity| identity != manifest.journal) {
                return Err(InteropError::Refused(
                    "the backup is another node's: its journal is another one".to_owned(),
                ));
            }
            let reaches = view.first() <= manifest.from && view.end() >= manifest.end;
            // Of a node that was restored, and went on otherwise than the one that was backed up, it is not what follows. Nor is it
            // known where the backup's own journal is damaged.
            let goes_on = || -> Result<bool, journal::JournalError> {
                let own = View::open(Arc::clone(&shelf))?;
                Ok(own.end() >= manifest.end && journal::is_continued_by(&own, &view)?)
            };
            Some(kept).filter(|_| reaches && goes_on().unwrap_or(false))
        }
        None => None,
    };
    let journal = over(kept.as_ref().unwrap_or(&shelf))?;
    let places = Places { journal, images: Arc::new(MemoryShelf::new()), data: over(&shelf)? };
    // The node's own envelope knows also data keys that are newer than the backup; that of the backup, those that were retired since. Of a
    // backup of another history it is the only one: the same number may be that of another key there.
    let sealer = match (&kept, encryption::is_encrypted(data)?) {
        (Some(_), true) => encryption::to_look_at_both(data, backup)?,
        (None, true) => encryption::to_look(backup).or_else(|_| encryption::to_look(data))?,
        (_, false) => encryption::to_look(backup)?,
    };
    let store = stopped::open_to_repair(places, interpreter(), sealer)?;
    Ok((store, kept.is_some()))
}

/// Whether a loss concerns a tree of the engine.
fn is_ours(loss: &Loss) -> bool {
    crate::rows::TREES.contains(&loss.name.as_str())
}

/// Whether a key of a tree was lost, and is still.
fn is_lost(store: &Store, losses: &[Loss], tree: store::TreeId, key: &[u8]) -> Result<bool, StoreError> {
    let concerns = |loss: &Loss| loss.tree == tree && matches!(loss.part, Part::Keys(..)) && loss.covers(key);
    Ok(losses.iter().any(concerns) && !store.is_known(tree, key)?)
}
