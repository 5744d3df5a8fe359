//! Maintenance of a node's stored data, whether the node runs or not: check it, back it up, restore a backup.
//!
//! ```text
//!                          a node runs there         none does                     a backup
//! journal                  read beside the node      read as it lies               read as it lies
//! images, pages, trees     requested of the node     read as they lie              read as they lie
//! rows of the services     requested of the node     recovered in memory           recovered in memory
//! backing up               requested of the node     recovered in memory           (copy its folder)
//! ```
//!
//! *Recovered in memory*: the store is opened over a layer of memory, so that nothing on the medium changes. A backup
//! is one folder with all parts of a store; a restore makes a data directory with everything below it.
//!
//! Damage is a finding, not an error: an error means that data could not be checked.
//!
//! Not here: the meaning of a service's rows, which the service checks; settings and productions, which are separate
//! text files that no backup contains.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::encryption::EnvelopeFile;
use device::{FileOptions, FileShelf, Shelf};
use journal::View;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{BackupSource, Interpreter, Manifest, Places, Restoration, Restoring, Store, StoreError, Until, Verified};

use crate::control::{self, OnProgress, Progress, ProgressSender};
use crate::encryption;
use crate::error::NodeError;
use crate::location::{self, IMAGES, JOURNAL, Locations, PAGES, PLACEMENT_FILE};
use crate::lock::DirectoryLock;
use crate::stoppable::{Stopped, stoppable};
use crate::stopped;

/// The device by which a folder is known as a backup.
const BACKUP: &str = "backup";

/// The result of a check of images, pages and trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// The checkpoint whose state it is.
    pub cycle: u64,
    /// Every record before this is in the pages.
    pub applied: u64,
    /// Pages of that state that are in the write image journal, and are written in place at the next start.
    pub images: u32,
    /// Pages in use.
    pub used: u64,
    /// Trees.
    pub trees: usize,
    /// Rows of all trees.
    pub cells: u64,
    /// Pages in use that nothing refers to; none if damage prevents their count.
    pub leaked: Option<u64>,
    /// How much is wrong.
    pub faults: u64,
    /// The damage and its places, the first hundred.
    pub problems: Vec<String>,
    /// All of it, for people.
    pub text: String,
}

impl StoreReport {
    fn of(found: &Verified) -> StoreReport {
        StoreReport {
            sound: found.is_sound(),
            cycle: found.checkpoint,
            applied: found.redo_lsn.0,
            images: found.images,
            used: found.used,
            trees: found.trees.len(),
            cells: found.trees.iter().map(|(_, report)| report.cells).sum(),
            leaked: found.leaked,
            faults: found.faults,
            problems: found.messages.clone(),
            text: found.to_string(),
        }
    }

    /// The same of pages that are not those of the backup in whose folder they lie: two were copied over each other.
    fn of_another(mut self) -> StoreReport {
        let why = "the backup's pages do not match its manifest";
        self.problems.push(why.to_owned());
        self.text.push_str(&format!("damaged: {why}\n"));
        StoreReport { sound: false, faults: self.faults + 1, ..self }
    }

    /// Of a store that cannot be opened.
    fn unreadable(why: &str) -> StoreReport {
        StoreReport {
            sound: false,
            cycle: 0,
            applied: 0,
            images: 0,
            used: 0,
            trees: 0,
            cells: 0,
            leaked: None,
            faults: 1,
            problems: vec![why.to_owned()],
            text: format!("damaged: {why}\n"),
        }
    }
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// Its folder.
    pub folder: PathBuf,
    /// The earliest moment that it can be restored to: the first end of a group commit from this position on.
    pub from: u64,
    /// The latest, without another journal.
    pub until: u64,
    /// When the state of its pages was, microseconds since 1970.
    pub from_us: u64,
}

impl BackupReport {
    fn of(folder: &Path, manifest: &Manifest) -> BackupReport {
        let Manifest { consistent_lsn, end, micros, .. } = *manifest;
        BackupReport { folder: folder.to_owned(), from: consistent_lsn.0, until: end.0, from_us: micros }
    }
}

/// The kind of data in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeFolder {
    /// The data directory of a node that runs.
    Running(PathBuf),
    /// The data directory of a node that does not.
    Stopped(PathBuf),
    /// A backup.
    Backup(PathBuf),
}

impl NodeFolder {
    /// Finds out what lies in `folder`.
    ///
    /// # Errors
    /// `NoData` and the like where it is neither a data directory nor a backup.
    pub fn find(folder: &Path) -> Result<NodeFolder, NodeError> {
        if control::is_running(folder) {
            return Ok(NodeFolder::Running(folder.to_owned()));
        }
        if folder.join(BACKUP).is_file() {
            return Ok(NodeFolder::Backup(folder.to_owned()));
        }
        location::locations(folder)?;
        Ok(NodeFolder::Stopped(folder.to_owned()))
    }

    /// Its name, for display.
    pub fn name(&self) -> &'static str {
        match self {
            NodeFolder::Running(_) => "a running node",
            NodeFolder::Stopped(_) => "a stopped node",
            NodeFolder::Backup(_) => "a backup",
        }
    }

    fn folder(&self) -> &Path {
        match self {
            NodeFolder::Running(folder) | NodeFolder::Stopped(folder) | NodeFolder::Backup(folder) => folder,
        }
    }

    fn locations(&self) -> Result<Locations, NodeError> {
        match self {
            NodeFolder::Running(data) | NodeFolder::Stopped(data) => location::locations(data),
            NodeFolder::Backup(_) => Ok(Locations::in_one()),
        }
    }

    /// Reads the whole journal: every checksum, and every byte that should be zero.
    ///
    /// # Errors
    /// It cannot be read at all.
    pub fn journal(&self) -> Result<journal::Verified, NodeError> {
        let folder = self.locations()?.journal.folder_in(self.folder());
        let folder = folder.ok_or_else(|| NodeError::NoData { path: self.folder().to_owned() })?;
        let shelf = FileShelf::open_read_only(&folder)?;
        Ok(journal::verify(&View::open(Arc::new(shelf))?)?)
    }

    /// The manifest of a backup; none of a data directory.
    ///
    /// # Errors
    /// `Store` with `Corrupt` where it was not finished, or its manifest is damaged.
    pub fn manifest(&self) -> Result<Option<Manifest>, NodeError> {
        match self {
            NodeFolder::Backup(folder) => Ok(Some(Manifest::read(&FileShelf::open_read_only(folder)?)?)),
            NodeFolder::Running(_) | NodeFolder::Stopped(_) => Ok(None),
        }
    }

    /// Why the journal of a backup is not that of its manifest, or not all of it; `None`: it is, or this is no backup. `journal`: as it
    /// was read.
    ///
    /// # Errors
    /// Those of [`manifest`](NodeFolder::manifest); it cannot be read.
    pub fn journal_misses(&self, journal: &journal::Verified) -> Result<Option<String>, NodeError> {
        let Some(manifest) = self.manifest()? else { return Ok(None) };
        let view = View::open(Arc::new(FileShelf::open_read_only(self.folder())?))?;
        Ok(manifest.misses(journal, view.identity()))
    }

    /// Checks write images, every page and extent, and each tree. Of a running node: the state of a checkpoint that it runs
    /// first. None where there are no pages yet, and all is in the journal.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn store(&self, on_progress: &mut dyn FnMut(Progress)) -> Result<Option<StoreReport>, NodeError> {
        if let NodeFolder::Running(data) = self {
            let answer = control::request_with_progress(data, "verify", on_progress)?;
            return control::read_response(answer).map(Some);
        }
        let _lock = self.lock()?;
        let locations = self.locations()?;
        let shelf = |location: &location::Location| stopped::shelf_to_read(self.folder(), location);
        let places = Places {
            journal: shelf(&locations.journal)?,
            images: shelf(&locations.images)?,
            data: shelf(&locations.data)?,
        };
        let mut progress = |read: store::Progress| on_progress(Progress { done: read.done, total: read.total });
        let sealer = encryption::to_look(self.folder())?;
        match store::verify_places_with(&places, sealer, &mut progress) {
            Ok(found) => {
                let report = StoreReport::of(&found);
                // A manifest that cannot be read is told by who asks for it.
                let is_other = self.manifest().is_ok_and(|own| own.is_some_and(|own| !own.is_of(&found)));
                Ok(Some(if is_other { report.of_another() } else { report }))
            }
            Err(StoreError::Refused(_)) => Ok(None),
            Err(StoreError::Corrupt(why)) => Ok(Some(StoreReport::unreadable(&why))),
            Err(error) => Err(error.into()),
        }
    }

    /// The numbers of the data keys that something stored is encrypted with: reads all of it. None where it is not encrypted.
    ///
    /// # Errors
    /// `Refused` for a running node, and where something is damaged, so that not all is known; it cannot be read.
    pub fn data_keys_in_use(&self, on_progress: &mut dyn FnMut(Progress)) -> Result<Option<Vec<u32>>, NodeError> {
        if let NodeFolder::Running(_) = self {
            return Err(NodeError::Refused(
                "a node runs there, and changes what is stored: `terrace stop` it".to_owned(),
            ));
        }
        let _lock = self.lock()?;
        let Some(sealer) = encryption::to_look(self.folder())? else { return Ok(None) };
        let locations = self.locations()?;
        let shelf = |location: &location::Location| stopped::shelf_to_read(self.folder(), location);
        let (journal, images, data) = (shelf(&locations.journal)?, shelf(&locations.images)?, shelf(&locations.data)?);
        let view = View::open_with(Arc::clone(&journal), Some(Arc::clone(&sealer)))?;
        let unknown = |why: &dyn std::fmt::Display| {
            NodeError::Refused(format!("which data keys are needed is not known: {why}; see `terrace verify`"))
        };
        if let Some(corruption) = view.corruption() {
            return Err(unknown(&corruption));
        }
        for record in view.read(view.first()) {
            record.map_err(|error| unknown(&error))?;
        }
        let places = Places { journal, images, data };
        let mut progress = |read: store::Progress| on_progress(Progress { done: read.done, total: read.total });
        match store::verify_places_with(&places, Some(Arc::clone(&sealer)), &mut progress) {
            // All is in the journal yet.
            Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(unknown(&error)),
            Ok(found) => {
                let report = StoreReport::of(&found);
                if !report.sound {
                    return Err(unknown(&report.problems.first().map_or("something is damaged", String::as_str)));
                }
            }
        }
        Ok(Some(sealer.opened_with()))
    }

    /// Opens the store over a layer of memory: nothing on the medium changes. Not that of a running node, whose journal moves
    /// on meanwhile. No node can start as long as the lock lives.
    ///
    /// # Errors
    /// `Refused` for a running node; as opening it would.
    pub fn open(&self, interpreter: Arc<dyn Interpreter>) -> Result<(Store, Option<DirectoryLock>), NodeError> {
        match self {
            NodeFolder::Running(_) => {
                Err(NodeError::Refused("a node runs there: its store is read through its control socket".to_owned()))
            }
            NodeFolder::Stopped(data) | NodeFolder::Backup(data) => {
                let lock = self.lock()?;
                Ok((stopped::open_at(data, &self.locations()?, interpreter)?, lock))
            }
        }
    }

    /// Keeps a node from starting meanwhile, where the folder can be written.
    fn lock(&self) -> Result<Option<DirectoryLock>, NodeError> {
        match self {
            NodeFolder::Stopped(data) => DirectoryLock::acquire_to_read(data),
            NodeFolder::Running(_) | NodeFolder::Backup(_) => Ok(None),
        }
    }

    /// Makes a backup of it in `to`, which is made where it is absent and has to be empty.
    ///
    /// # Errors
    /// `Refused` for a backup; those of the store, after which there is nothing in `to`.
    pub fn back_up(
        &self,
        to: &Path,
        interpreter: Arc<dyn Interpreter>,
        on_progress: OnProgress<'_>,
    ) -> Result<BackupReport, NodeError> {
        match self {
            NodeFolder::Running(data) => {
                let to = std::path::absolute(to).map_err(NodeError::file("find", to))?;
                let request = format!("backup {}", serde_json::Value::from(to.display().to_string()));
                // It ends when this side hangs up, and not by what `on_progress` returns.
                control::read_response(control::request_with_progress(data, &request, &mut |progress| {
                    let _ = on_progress(progress);
                })?)
            }
            NodeFolder::Stopped(_) => {
                let (store, _lock) = self.open(interpreter)?;
                let never: Stopped = Arc::new(|| false);
                back_up(&store, to, &never, on_progress)
            }
            NodeFolder::Backup(_) => Err(NodeError::Refused("this is a backup: copy its folder".to_owned())),
        }
    }
}

/// Checks the state of a checkpoint that is run now, while the store is used.
///
/// # Errors
/// The store's.
pub fn verify(store: &Store, on_progress: &mut dyn FnMut(Progress)) -> Result<StoreReport, NodeError> {
    match store.checkpoint() {
        // Without room for a checkpoint, the state of the last one is used.
        Ok(_) | Err(StoreError::Full(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let found = store.verify(&mut |read| on_progress(Progress { done: read.done, total: read.total }))?;
    Ok(StoreReport::of(&found))
}

/// Answers the request `verify` of the control socket.
///
/// # Errors
/// Those of [`verify`].
pub async fn answer_verify(store: &Store, progress: ProgressSender) -> Result<Value, NodeError> {
    let store = store.clone();
    let work = move || Ok(json!(verify(&store, &mut |read| _ = progress.send(read))?));
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(NodeError::Stopping))
}

/// Answers the request `backup FOLDER` of the control socket.
///
/// # Errors
/// The store's, after which there is nothing in the folder.
pub async fn answer_backup(store: &Store, folder: PathBuf, progress: ProgressSender) -> Result<Value, NodeError> {
    let (store, progress) = (store.clone(), Arc::new(progress));
    let work = move || {
        // What is read back, after the last page was copied, reports nothing.
        let stopped: Stopped = {
            let progress = Arc::clone(&progress);
            Arc::new(move || !progress.goes_on())
        };
        let made = back_up(&store, &folder, &stopped, &mut |copied| progress.send(copied));
        Ok(json!(made.map_err(|error| if stopped() { NodeError::Stopping } else { error })?))
    };
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(NodeError::Stopping))
}

/// Makes a backup of a store that is open; ends within an operation of a device once it is `stopped`.
///
/// # Errors
/// The store's, after which there is nothing in `to`.
pub(crate) fn back_up(
    store: &Store,
    to: &Path,
    stopped: &Stopped,
    on_progress: OnProgress<'_>,
) -> Result<BackupReport, NodeError> {
    let shelf = stoppable(Arc::new(FileShelf::open(to, FileOptions::default())?), stopped);
    back_up_to(store, to, &shelf, on_progress)
}

/// As [`back_up`], on a shelf that lies in `to`.
///
/// # Errors
/// As there.
pub(crate) fn back_up_to(
    store: &Store,
    to: &Path,
    shelf: &Arc<dyn Shelf>,
    on_progress: OnProgress<'_>,
) -> Result<BackupReport, NodeError> {
    // A data key that is made meanwhile would not be in the envelope of the backup.
    let _held = store.sealer().map(|sealer| sealer.hold_keys());
    let was_there = encryption::is_envelope_of(to, store.sealer())?;
    if !was_there {
        // Ahead of the manifest: a backup that is complete can be read.
        encryption::put_envelope(to, store.sealer())?;
    }
    let made =
        store.backup(Arc::clone(shelf), &mut |copied| on_progress(Progress { done: copied.done, total: copied.total }));
    if made.is_err() && !was_there {
        // The first error is returned, not what removing may add.
        let _ = fs::remove_file(EnvelopeFile::of(to).path());
    }
    Ok(BackupReport::of(to, &made?))
}

/// Makes a data directory at `to` of the backup in the folder `backup`, as it was at a moment. `kept` is a data
/// directory, or another backup, whose journal continues that of the backup. `time_of` reads the time of a record of
/// the services, microseconds since 1970, where it has one. No other process has the directory until the lock is dropped: whoever restores
/// says so in its audit before a node starts there.
///
/// # Errors
/// `Refused` where `to` is a data directory already, or has the envelope of one; those of the store, after which `to` is as it was.
pub fn restore(
    backup: &Path,
    kept: Option<&Path>,
    to: &Path,
    until: Until,
    time_of: &dyn Fn(&journal::Record) -> Option<u64>,
    on_progress: &mut dyn FnMut(Restoring),
) -> Result<(Restoration, DirectoryLock), NodeError> {
    let from: Arc<dyn Shelf> = Arc::new(FileShelf::open_read_only(backup)?);
    // The envelope of the journal that goes on knows also data keys that are newer than the backup; that of the backup, those that were
    // retired since.
    let sealer = match kept {
        Some(kept) => encryption::to_look_at_both(kept, backup)?,
        None => encryption::to_look(backup)?,
    };
    let kept = kept.map(|kept| -> Result<Arc<dyn Shelf>, NodeError> {
        let kept = NodeFolder::find(kept)?;
        let folder = kept.locations()?.journal.folder_in(kept.folder()).unwrap_or_else(|| kept.folder().join(JOURNAL));
        Ok(Arc::new(FileShelf::open_read_only(&folder)?))
    });
    let kept = kept.transpose()?;
    let folders = [JOURNAL, IMAGES, PAGES].map(|name| to.join(name));
    let is_free = || -> Result<(), NodeError> {
        let placement = to.join(PLACEMENT_FILE);
        if let Some(taken) = folders.iter().chain([&placement]).find(|path| is_taken(path)) {
            let text = format!("{} is there already: restore to a new folder", taken.display());
            return Err(StoreError::Refused(text.into()).into());
        }
        // What was encrypted with a key that only this file has would be lost with it.
        encryption::is_envelope_of(to, sealer.as_deref()).map(|_| ())
    };
    is_free()?;
    let was_there = is_taken(to);
    let lock = DirectoryLock::acquire(to)?;
    // A node may have begun there meanwhile, and ended.
    is_free()?;
    let mut copy = || -> Result<Restoration, NodeError> {
        let open = |folder: &Path| -> Result<Arc<dyn Shelf>, NodeError> {
            Ok(Arc::new(FileShelf::open(folder, FileOptions::default())?))
        };
        let places = Places { journal: open(&folders[0])?, images: open(&folders[1])?, data: open(&folders[2])? };
        let source = BackupSource { backup: &from, kept: kept.as_ref(), sealer: sealer.as_ref() };
        let restored = store::restore(source, &places, until, &time_of, on_progress)?;
        encryption::put_envelope(to, sealer.as_deref())?;
        Ok(restored)
    };
    let made = copy();
    if made.is_err() {
        // Under the lock, so that none of it is a node's that starts. The first error is returned, not what removing may add.
        let _ = folders.iter().try_for_each(fs::remove_dir_all);
        if !was_there {
            let _ = fs::remove_dir_all(to);
        }
    }
    made.map(|made| (made, lock))
}

fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests;
