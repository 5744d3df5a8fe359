//! Looking after what a node keeps, whether it runs or not: checking it, backing it up, restoring a backup.
//!
//! ```text
//!                          a node runs there         none does                     a backup
//! journal                  read beside the node      read as it lies               read as it lies
//! images, pages, trees     asked of the node         read as they lie              read as they lie
//! rows against messages    asked of the node         recovered in memory           recovered in memory
//! backing up               done by the node          recovered in memory           (copy its folder)
//! ```
//!
//! *Recovered in memory*: the store is opened over a layer of memory, so that nothing on the medium changes. A backup is one
//! folder with everything of a store in it; what a restoration makes is a data directory with everything below it.
//!
//! Damage is a finding, not an error: errors are that something could not be looked at.
//!
//! Not here: settings and productions. They are text files of their own, and no backup has them.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{DeviceError, FileOptions, FileShelf, MemoryShelf, Shelf};
use journal::View;
use serde::{Deserialize, Serialize};
use store::{Manifest, Places, Restoration, Restoring, Store, StoreError, Until, Verified};

use crate::error::InteropError;
use crate::history::open;
use crate::location::{self, Hold, IMAGES, JOURNAL, Locations, NOTE, PAGES};
use crate::node;
use crate::record;
use crate::rows::{Reader, check};

/// The device by which a folder is known as a backup.
const BACKUP: &str = "backup";

/// How far something has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// So much is done, of what is counted.
    pub done: u64,
    /// All there is.
    pub total: u64,
}

/// Whom long work tells how far it has come, and who may end it.
pub type Tell<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// What a check of images, pages and trees found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// The checkpoint whose state it is.
    pub cycle: u64,
    /// Every record before this is in the pages.
    pub applied: u64,
    /// Pages of that state that are in the write image journal, and go home at the next start.
    pub images: u32,
    /// Pages in use.
    pub used: u64,
    /// Trees.
    pub trees: usize,
    /// Rows of all trees.
    pub cells: u64,
    /// Pages in use that nothing reaches; none where damage hides what is reached.
    pub leaked: Option<u64>,
    /// How much is wrong.
    pub faults: u64,
    /// What and where, the first hundred.
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

/// What lies in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// The data directory of a node that runs.
    Running(PathBuf),
    /// The data directory of a node that does not.
    Stopped(PathBuf),
    /// A backup.
    Backup(PathBuf),
}

impl Kept {
    /// Looks what lies in `folder`.
    ///
    /// # Errors
    /// `NoData` and the like where it is neither a data directory nor a backup.
    pub fn find(folder: &Path) -> Result<Kept, InteropError> {
        if node::answers(folder) {
            return Ok(Kept::Running(folder.to_owned()));
        }
        if folder.join(BACKUP).is_file() {
            return Ok(Kept::Backup(folder.to_owned()));
        }
        location::locations(folder)?;
        Ok(Kept::Stopped(folder.to_owned()))
    }

    /// What it is, in words.
    pub fn name(&self) -> &'static str {
        match self {
            Kept::Running(_) => "a running node",
            Kept::Stopped(_) => "a stopped node",
            Kept::Backup(_) => "a backup",
        }
    }

    fn folder(&self) -> &Path {
        match self {
            Kept::Running(folder) | Kept::Stopped(folder) | Kept::Backup(folder) => folder,
        }
    }

    fn locations(&self) -> Result<Locations, InteropError> {
        match self {
            Kept::Running(data) | Kept::Stopped(data) => location::locations(data),
            Kept::Backup(_) => Ok(Locations::in_one()),
        }
    }

    /// Reads the whole journal: every checksum, and every byte that should be zero.
    ///
    /// # Errors
    /// It cannot be read at all.
    pub fn journal(&self) -> Result<journal::Verified, InteropError> {
        let folder = self.locations()?.journal.folder_in(self.folder());
        let folder = folder.ok_or_else(|| InteropError::NoData { path: self.folder().to_owned() })?;
        let shelf = FileShelf::open_read_only(&folder)?;
        Ok(journal::verify(&View::open(Arc::new(shelf))?)?)
    }

    /// What a backup says of itself; none of a data directory.
    ///
    /// # Errors
    /// `Store` with `Corrupt` where it was not finished, or says it in damaged words.
    pub fn manifest(&self) -> Result<Option<Manifest>, InteropError> {
        match self {
            Kept::Backup(folder) => Ok(Some(Manifest::read(&FileShelf::open_read_only(folder)?)?)),
            Kept::Running(_) | Kept::Stopped(_) => Ok(None),
        }
    }

    /// Checks write images, every page and extent, and each tree. Of a running node: the state of a checkpoint that it runs
    /// first. None where there are no pages yet, and all is in the journal.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn store(&self, tell: &mut dyn FnMut(Progress)) -> Result<Option<StoreReport>, InteropError> {
        if let Kept::Running(data) = self {
            let answer = node::ask_telling(data, "verify", tell)?;
            return open::read(answer).map(Some);
        }
        let _hold = self.hold()?;
        let locations = self.locations()?;
        let shelf = |location: &location::Location| -> Result<Arc<dyn Shelf>, InteropError> {
            let folder = location.folder_in(self.folder());
            match folder.map(|folder| FileShelf::open_read_only(&folder)) {
                Some(Ok(shelf)) => Ok(Arc::new(shelf)),
                None | Some(Err(DeviceError::NotFound { .. })) => Ok(Arc::new(MemoryShelf::new())),
                Some(Err(error)) => Err(error.into()),
            }
        };
        let places = Places {
            journal: shelf(&locations.journal)?,
            images: shelf(&locations.images)?,
            data: shelf(&locations.data)?,
        };
        let mut progress = |told: store::Progress| tell(Progress { done: told.done, total: told.total });
        match store::verify_places(&places, &mut progress) {
            Ok(found) => Ok(Some(StoreReport::of(&found))),
            Err(StoreError::Refused(_)) => Ok(None),
            Err(StoreError::Corrupt(why)) => Ok(Some(StoreReport::unreadable(&why))),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads every row of every message and each entry of the indexes, as recovery would leave them.
    ///
    /// # Errors
    /// They cannot be read; `Store` with `Corrupt` where opening would be refused.
    pub fn rows(&self) -> Result<check::Report, InteropError> {
        match self {
            Kept::Running(data) => open::read(node::ask(data, "check")?),
            Kept::Stopped(_) | Kept::Backup(_) => {
                let (store, _hold) = self.open()?;
                rows(&store)
            }
        }
    }

    /// Opens the store over a layer of memory: nothing on the medium changes. Not that of a running node, whose journal moves
    /// on meanwhile; a node cannot start as long as the answer lives.
    ///
    /// # Errors
    /// `Refused` for a running node; as opening it would.
    pub fn open(&self) -> Result<(Store, Option<Hold>), InteropError> {
        match self {
            Kept::Running(_) => Err(InteropError::Refused("a node that runs is asked, not read".to_owned())),
            Kept::Stopped(data) | Kept::Backup(data) => {
                let hold = self.hold()?;
                Ok((open::open_at(data, &self.locations()?)?, hold))
            }
        }
    }

    /// Keeps a node from starting meanwhile, where the folder can be written.
    fn hold(&self) -> Result<Option<Hold>, InteropError> {
        match self {
            Kept::Stopped(data) => open::hold(data),
            Kept::Running(_) | Kept::Backup(_) => Ok(None),
        }
    }

    /// Makes a backup of it in `to`, which is made where it is absent and has to be empty.
    ///
    /// # Errors
    /// `Refused` for a backup; those of the store, after which there is nothing in `to`.
    pub fn back_up(&self, to: &Path, tell: Tell<'_>) -> Result<BackupReport, InteropError> {
        match self {
            Kept::Running(data) => {
                let to = std::path::absolute(to).map_err(InteropError::file("find", to))?;
                let request = format!("backup {}", serde_json::Value::from(to.display().to_string()));
                // It ends when whoever asked hangs up, and not by an answer to what it tells.
                open::read(node::ask_telling(data, &request, &mut |progress| {
                    let _ = tell(progress);
                })?)
            }
            Kept::Stopped(_) => {
                let (store, _hold) = self.open()?;
                back_up(&store, to, tell)
            }
            Kept::Backup(_) => Err(InteropError::Refused("this is a backup: copy its folder".to_owned())),
        }
    }
}

/// Reads every row of every message and each entry of the indexes.
///
/// # Errors
/// The store's.
pub fn rows(store: &Store) -> Result<check::Report, InteropError> {
    check::check(&Reader::new(store))
}

/// Checks the state of a checkpoint that is run now, while the store is used.
///
/// # Errors
/// The store's.
pub(crate) fn verify(store: &Store, tell: &mut dyn FnMut(Progress)) -> Result<StoreReport, InteropError> {
    match store.checkpoint() {
        // Without room for a checkpoint the state of the last one is what there is.
        Ok(_) | Err(StoreError::Full(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let found = store.verify(&mut |told| tell(Progress { done: told.done, total: told.total }))?;
    Ok(StoreReport::of(&found))
}

/// Makes a backup of a store that is open.
///
/// # Errors
/// The store's, after which there is nothing in `to`.
pub(crate) fn back_up(store: &Store, to: &Path, tell: Tell<'_>) -> Result<BackupReport, InteropError> {
    let shelf = Arc::new(FileShelf::open(to, FileOptions::default())?);
    let manifest = store.backup(shelf, &mut |told| tell(Progress { done: told.done, total: told.total }))?;
    Ok(BackupReport::of(to, &manifest))
}

/// Makes a data directory at `to` of the backup in the folder `backup`, as it was at a moment. `kept` is a data directory, or
/// another backup, whose journal goes on behind the backup's.
///
/// # Errors
/// `Refused` where `to` is a data directory already; those of the store, after which `to` is as it was.
pub fn restore(
    backup: &Path,
    kept: Option<&Path>,
    to: &Path,
    until: Until,
    tell: &mut dyn FnMut(Restoring),
) -> Result<Restoration, InteropError> {
    let from: Arc<dyn Shelf> = Arc::new(FileShelf::open_read_only(backup)?);
    let kept = kept.map(|kept| -> Result<Arc<dyn Shelf>, InteropError> {
        let kept = Kept::find(kept)?;
        let folder = kept.locations()?.journal.folder_in(kept.folder()).unwrap_or_else(|| kept.folder().join(JOURNAL));
        Ok(Arc::new(FileShelf::open_read_only(&folder)?))
    });
    let kept = kept.transpose()?;
    let folders = [JOURNAL, IMAGES, PAGES].map(|name| to.join(name));
    let is_taken = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
    if let Some(taken) = folders.iter().chain([&to.join(NOTE)]).find(|path| is_taken(path)) {
        let text = format!("{} is there already: restore to a new folder", taken.display());
        return Err(StoreError::Refused(text.into()).into());
    }
    let was_there = is_taken(&to.to_owned());
    let hold = Hold::take(to)?;
    let mut copy = || -> Result<Restoration, InteropError> {
        let open = |folder: &Path| -> Result<Arc<dyn Shelf>, InteropError> {
            Ok(Arc::new(FileShelf::open(folder, FileOptions::default())?))
        };
        let places = Places { journal: open(&folders[0])?, images: open(&folders[1])?, data: open(&folders[2])? };
        let time_of = |record: &journal::Record| record::time_us(record.kind, &record.payload);
        Ok(store::restore(&from, kept.as_ref(), &places, until, &time_of, tell)?)
    };
    let made = copy();
    drop(hold);
    if made.is_err() {
        // What went wrong is the error to tell, not what removing may add.
        let _ = folders.iter().try_for_each(fs::remove_dir_all);
        if !was_there {
            let _ = fs::remove_dir_all(to);
        }
    }
    made
}
