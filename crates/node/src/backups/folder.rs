//! [`BackupFolder`]: the folder in which a node keeps its backups by schedule. One node at a time has it.

use std::fs::{self, File, TryLockError};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use device::FileShelf;
use store::{Manifest, Store};

use super::{BackupSettings, beyond, is_name, name_of};
use crate::error::NodeError;
use crate::maintenance::{self, BackupReport, NodeFolder};

/// The file whose lock says that a node has the folder.
const LOCK_FILE: &str = ".terrace-backups";

/// What stays free on the file system of the folder beside a backup, at least.
const SPARE_BYTES: u64 = 256 << 20;

/// Pages between two looks at what is free.
const LOOK_PAGES: u64 = 4_096;

/// How much room a backup takes, and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupRoom {
    /// Bytes of the devices and of the journal that are copied.
    pub needed: u64,
    /// Bytes that are free.
    pub free: u64,
}

impl BackupRoom {
    /// What keeps a backup from being begun, in words.
    pub fn lack(&self) -> Option<String> {
        let wanted = self.needed.saturating_add(SPARE_BYTES);
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        (self.free < wanted).then(|| {
            format!(
                "there is no room: a backup takes {} MiB and {} MiB are to stay free, {} MiB are free; nothing was removed for it",
                mib(self.needed),
                mib(SPARE_BYTES),
                mib(self.free)
            )
        })
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct BackupFolder {
    settings: BackupSettings,
    page_bytes: u64,
    segment_bytes: u64,
    _lock: File,
}

fn refused(why: String) -> NodeError {
    NodeError::Refused(why)
}

impl BackupFolder {
    /// Takes the folder, for a store that was opened with `options`. It is not made: a medium that is not mounted is noticed.
    ///
    /// # Errors
    /// `File`: it is not there, or cannot be used; `Refused`: another node has it.
    pub fn take(settings: BackupSettings, options: &store::Options) -> Result<BackupFolder, NodeError> {
        let (page_bytes, segment_bytes) = (u64::from(options.page_bytes), options.journal.segment_bytes);
        let folder = &settings.folder;
        let path = folder.join(LOCK_FILE);
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(NodeError::file("open", &path))?;
        match lock.try_lock() {
            Ok(()) => Ok(BackupFolder { settings, page_bytes, segment_bytes, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(refused(format!(
                "another node keeps its backups in {}: give this one a folder of its own",
                folder.display()
            ))),
            Err(TryLockError::Error(error)) => Err(NodeError::file("lock", &path)(error)),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &BackupSettings {
        &self.settings
    }

    /// Makes a backup, begun at `began_us`, and checks it. `stopped` ends it early. It takes long.
    ///
    /// # Errors
    /// Why there is none: nothing of it is left, and nothing else was changed.
    pub fn make(&self, store: &Store, began_us: i64, stopped: &dyn Fn() -> bool) -> Result<BackupReport, NodeError> {
        let folder = &self.settings.folder;
        self.remove_unfinished()?;
        let room = BackupRoom { needed: self.size_of(store), free: free(folder)? };
        if let Some(lack) = room.lack() {
            return Err(refused(lack));
        }
        let path = folder.join(name_of(began_us));
        if fs::symlink_metadata(&path).is_ok() {
            return Err(refused(format!("{} is there already: the clock was set back", path.display())));
        }
        let mut looked = 0;
        let mut full = false;
        let made = maintenance::back_up(store, &path, &mut |progress| {
            if progress.done.saturating_sub(looked) >= LOOK_PAGES {
                looked = progress.done;
                full = free(folder).is_ok_and(|free| free < SPARE_BYTES);
            }
            if full || stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let checked = made.and_then(|report| match self.settings.verify {
            true => verify(&path, stopped).map(|()| report),
            false => Ok(report),
        });
        checked.map_err(|error| {
            // The first error is returned, not what removing may add; the next try removes what is left.
            _ = fs::remove_dir_all(&path);
            if full { refused("the medium became full while it was made".to_owned()) } else { error }
        })
    }

    /// Bytes that a backup of a store takes: its devices at full length, and its journal.
    fn size_of(&self, store: &Store) -> u64 {
        let pages = store.metrics().pages.saturating_mul(self.page_bytes);
        let kept = store.durable().0.saturating_sub(store.oldest().0);
        pages.saturating_add(kept).saturating_add(self.segment_bytes.saturating_mul(2))
    }

    /// The oldest backups beyond those that are kept; the one at `newest` is good, and recorded.
    ///
    /// # Errors
    /// `File`: the folder cannot be read.
    pub fn old(&self, newest: &Path) -> Result<Vec<PathBuf>, NodeError> {
        let folder = &self.settings.folder;
        let name = newest.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let complete: Vec<String> = self.names()?.into_iter().filter(|name| is_complete(&folder.join(name))).collect();
        Ok(beyond(&complete, self.settings.keep, name).iter().map(|old| folder.join(old)).collect())
    }

    /// Removes one of them.
    ///
    /// # Errors
    /// `File`.
    pub fn remove(&self, old: &Path) -> Result<(), NodeError> {
        fs::remove_dir_all(old).map_err(NodeError::file("remove", old))
    }

    /// Removes what backups have left behind that a crash or a stop ended: a complete one has its manifest.
    fn remove_unfinished(&self) -> Result<(), NodeError> {
        for name in self.names()? {
            let path = self.settings.folder.join(name);
            if !has_manifest(&path) {
                tracing::warn!(folder = %path.display(), "a backup that was not finished is removed");
                fs::remove_dir_all(&path).map_err(NodeError::file("remove", &path))?;
            }
        }
        Ok(())
    }

    /// The names of backups in it, folders all of them.
    fn names(&self) -> Result<Vec<String>, NodeError> {
        let folder = &self.settings.folder;
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(NodeError::file("read", folder))? {
            let entry = entry.map_err(NodeError::file("read", folder))?;
            // A link is none of ours.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            names.extend(entry.file_name().into_string().ok().filter(|name| is_folder && is_name(name)));
        }
        Ok(names)
    }
}

/// Whether a folder has the device that is made last.
fn has_manifest(path: &Path) -> bool {
    matches!(NodeFolder::find(path), Ok(NodeFolder::Backup(_)))
}

/// Whether a folder is a backup that was finished. One whose manifest is damaged is none, and stays where it is.
fn is_complete(path: &Path) -> bool {
    has_manifest(path) && FileShelf::open_read_only(path).is_ok_and(|shelf| Manifest::read(&shelf).is_ok())
}

fn free(folder: &Path) -> Result<u64, NodeError> {
    device::free_bytes(folder).map_err(NodeError::file("ask about", folder))
}

/// Reads all of a backup, as `terrace verify` does.
fn verify(path: &Path, stopped: &dyn Fn() -> bool) -> Result<(), NodeError> {
    let backup = NodeFolder::Backup(path.to_owned());
    let journal = backup.journal()?;
    if let Some(corruption) = &journal.corruption {
        return Err(refused(format!("its journal is damaged: {corruption}")));
    }
    if stopped() {
        return Err(NodeError::Stopping);
    }
    match backup.store(&mut |_| {})? {
        Some(report) if report.sound => Ok(()),
        Some(report) => {
            let first = report.problems.first().map_or("a page cannot be read", String::as_str);
            Err(refused(format!("it is damaged: {first}")))
        }
        None => Err(refused("it has no pages".to_owned())),
    }
}
