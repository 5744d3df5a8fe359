//! [`BackupFolder`]: the folder in which a node keeps its backups by schedule.
//!
//! ```text
//!   .terrace-backups           whose folder it is; locked as long as its node runs
//!   .backup-TIME.part          what is being made, or removed: a crash leaves it, and the next backup begins with removing it
//!     | made, and checked      nothing of it counts until then
//!     v one rename, durable
//!   backup-TIME                a good one; removed by the same way back
//! ```
//!
//! Invariants:
//! 1. A folder `backup-TIME` is never changed here; it is removed only as one of the oldest, when its manifest says that it is of this store.
//! 2. What cannot be looked at stays.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{FileOptions, FileShelf, Shelf, os};
use journal::View;
use serde::{Deserialize, Serialize};
use store::{Manifest, Store, StoreError};

use super::{BackupRecord, BackupSettings, GoodBackup, beyond, is_name, name_of};
use crate::error::NodeError;
use crate::maintenance::{self, BackupReport};
use crate::stoppable::{Stopped, stoppable};

/// The file that says whose folder it is, and whose lock says that the node runs.
const LOCK_FILE: &str = ".terrace-backups";

/// Longest content of that file that is read, bytes.
const OWNER_BYTES_MAX: u64 = 16 << 10;

/// Where Linux keeps the name of the machine.
const HOST_FILE: &str = "/proc/sys/kernel/hostname";

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

/// Whose folder it is: the content of its file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FolderOwner {
    /// Identity of the journal of the store, in digits to base 16: this decides.
    store: String,
    /// The data directory, for people.
    data: PathBuf,
    /// The machine, for people.
    host: String,
}

/// See the module's text.
#[derive(Debug)]
pub struct BackupFolder {
    settings: BackupSettings,
    page_bytes: u64,
    segment_bytes: u64,
    lock: File,
}

fn refused(why: String) -> NodeError {
    NodeError::Refused(why)
}

impl BackupFolder {
    /// Takes the folder for a store that was opened with `options`, and whose data directory is `data`. It is not made: a medium that is not
    /// mounted is noticed. It is this node's as long as the value lives, and no other store's afterwards.
    ///
    /// # Errors
    /// `File`: it is not there, or cannot be used; `Refused`: it is another node's.
    pub fn take(
        settings: BackupSettings,
        store: &Store,
        options: &store::Options,
        data: &Path,
    ) -> Result<BackupFolder, NodeError> {
        let (page_bytes, segment_bytes) = (u64::from(options.page_bytes), options.journal.segment_bytes);
        let folder = &settings.folder;
        let path = folder.join(LOCK_FILE);
        let lock = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let lock = lock.map_err(NodeError::file("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(refused(format!(
                    "another node, which runs, keeps its backups in {}: give this one a folder of its own",
                    folder.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(NodeError::file("lock", &path)(error)),
        }
        let taken = BackupFolder { settings, page_bytes, segment_bytes, lock };
        taken.own(FolderOwner::of(store, data))?;
        Ok(taken)
    }

    /// Refuses a folder of another store; writes down that it is this one's.
    fn own(&self, this: FolderOwner) -> Result<(), NodeError> {
        let path = self.settings.folder.join(LOCK_FILE);
        let mut text = String::new();
        (&self.lock).take(OWNER_BYTES_MAX).read_to_string(&mut text).map_err(NodeError::file("read", &path))?;
        if !text.is_empty() {
            let shown = path.display();
            let owner: FolderOwner = serde_json::from_str(&text).map_err(|error| {
                refused(format!(
                    "{shown} does not say whose backups these are ({error}): if no other node's, remove it"
                ))
            })?;
            if owner == this {
                return Ok(());
            }
            let (data, host) = (owner.data.display(), &owner.host);
            if owner.store != this.store {
                return Err(refused(format!(
                    "{} has the backups of another node, with the data directory {data} on {host}: give this one a folder of its own; \
                     or, if that node is no more, remove {shown}: its backups stay, and are not removed by schedule",
                    self.settings.folder.display()
                )));
            }
            tracing::warn!(%data, host, "the folder of backups was that of the same store at another place, and is now this one's");
        }
        let text = serde_json::to_vec(&this).expect("plain data becomes JSON");
        let written = self.lock.write_all_at(&text, 0).and_then(|()| self.lock.set_len(text.len() as u64));
        written.and_then(|()| self.lock.sync_all()).map_err(NodeError::file("write", &path))?;
        os::sync_directory(&self.settings.folder).map_err(NodeError::file("sync", &self.settings.folder))
    }

    /// Whether it still is the folder that was taken: another medium may be mounted there.
    pub fn is_in_place(&self) -> bool {
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        let there = fs::symlink_metadata(self.settings.folder.join(LOCK_FILE)).map(place);
        there.is_ok_and(|there| self.lock.metadata().map(place).is_ok_and(|held| held == there))
    }

    /// Makes a backup, begun at `began_us`, checks it, and records it in the store. `stopped` ends it within an operation of the medium. It
    /// takes long.
    ///
    /// # Errors
    /// Why there is none: nothing of it is left, and nothing else was changed.
    pub fn make(
        &self,
        store: &Store,
        began_us: i64,
        now_us: &dyn Fn() -> i64,
        stopped: &Stopped,
    ) -> Result<GoodBackup, NodeError> {
        let made = self.copy(store, began_us, stopped)?;
        let good = GoodBackup {
            folder: made.folder,
            began_us,
            ended_us: now_us(),
            until: made.until,
            verified: self.settings.verify,
        };
        match BackupRecord::change(store, &|record| record.succeeded(good.clone())) {
            Ok(_) => Ok(good),
            Err(error) => {
                // One that is not recorded would be made again and again. After `Poisoned` it may be.
                if !matches!(error, StoreError::Poisoned { .. })
                    && let Err(error) = self.remove(&good.folder)
                {
                    tracing::error!(folder = %good.folder.display(), %error, "a backup that is not recorded could not be removed");
                }
                Err(error.into())
            }
        }
    }

    /// Makes it, and gives it its name once it is checked.
    fn copy(&self, store: &Store, began_us: i64, stopped: &Stopped) -> Result<BackupReport, NodeError> {
        let folder = &self.settings.folder;
        self.remove_unfinished()?;
        let room = BackupRoom { needed: self.size_of(store), free: free(folder)? };
        if let Some(lack) = room.lack() {
            return Err(refused(lack));
        }
        let path = folder.join(name_of(began_us));
        let is_absent =
            |found: io::Result<fs::Metadata>| found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if !is_absent(fs::symlink_metadata(&path)) {
            return Err(refused(format!("{} is there already: the clock was set back", path.display())));
        }
        let part = part_of(&path);
        let mut full = false;
        let made = self.copy_to(store, &part, &mut full, stopped);
        let named = made.and_then(|report| {
            fs::rename(&part, &path).map_err(NodeError::file("rename", &part))?;
            self.sync().inspect_err(|_| _ = fs::rename(&path, &part))?;
            Ok(BackupReport { folder: path.clone(), ..report })
        });
        named.map_err(|error| {
            // The first error is returned, not what removing may add; the next try removes what is left.
            _ = fs::remove_dir_all(&part);
            match (full, stopped()) {
                (true, _) => refused("the medium became full while it was made".to_owned()),
                (false, true) => NodeError::Stopping,
                (false, false) => error,
            }
        })
    }

    fn copy_to(
        &self,
        store: &Store,
        part: &Path,
        full: &mut bool,
        stopped: &Stopped,
    ) -> Result<BackupReport, NodeError> {
        let shelf = stoppable(Arc::new(FileShelf::open(part, FileOptions::default())?), stopped);
        let mut looked = 0;
        let report = maintenance::back_up_to(store, part, &shelf, &mut |progress| {
            if progress.done.saturating_sub(looked) >= LOOK_PAGES {
                looked = progress.done;
                *full = free(&self.settings.folder).is_ok_and(|free| free < SPARE_BYTES);
            }
            if *full || stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if self.settings.verify {
            check_journal(shelf)?;
        }
        Ok(report)
    }

    /// Bytes that a backup of a store takes: its devices at full length, and its journal.
    fn size_of(&self, store: &Store) -> u64 {
        let pages = store.metrics().pages.saturating_mul(self.page_bytes);
        let kept = store.durable().0.saturating_sub(store.oldest().0);
        pages.saturating_add(kept).saturating_add(self.segment_bytes.saturating_mul(2))
    }

    /// The oldest backups of the same store beyond those that are kept; the one at `newest` is good, and recorded.
    ///
    /// # Errors
    /// `File`, `Store`: the folder, or the manifest of the newest, cannot be read.
    pub fn old(&self, newest: &Path) -> Result<Vec<PathBuf>, NodeError> {
        let folder = &self.settings.folder;
        let name = newest.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let identity = manifest(newest)?.identity;
        let is_ours = |name: &String| manifest(&folder.join(name)).is_ok_and(|manifest| manifest.identity == identity);
        let names: Vec<String> = self.names(is_name)?.into_iter().filter(is_ours).collect();
        Ok(beyond(&names, self.settings.keep, name).iter().map(|old| folder.join(old)).collect())
    }

    /// Removes one of them. A crash meanwhile leaves no half of a backup with the name of one.
    ///
    /// # Errors
    /// `File`.
    pub fn remove(&self, old: &Path) -> Result<(), NodeError> {
        let part = part_of(old);
        fs::rename(old, &part).map_err(NodeError::file("rename", old))?;
        self.sync()?;
        fs::remove_dir_all(&part).map_err(NodeError::file("remove", &part))
    }

    /// Removes what a crash left of backups that were being made or removed.
    fn remove_unfinished(&self) -> Result<(), NodeError> {
        for name in self.names(is_part)? {
            let path = self.settings.folder.join(name);
            tracing::warn!(folder = %path.display(), "a backup that was not finished is removed");
            fs::remove_dir_all(&path).map_err(NodeError::file("remove", &path))?;
        }
        Ok(())
    }

    /// The names of folders in it, of one kind.
    fn names(&self, is_one: impl Fn(&str) -> bool) -> Result<Vec<String>, NodeError> {
        let folder = &self.settings.folder;
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(NodeError::file("read", folder))? {
            let entry = entry.map_err(NodeError::file("read", folder))?;
            // A link is none of ours.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            names.extend(entry.file_name().into_string().ok().filter(|name| is_folder && is_one(name)));
        }
        Ok(names)
    }

    /// Makes the names in it durable.
    fn sync(&self) -> Result<(), NodeError> {
        let folder = &self.settings.folder;
        os::sync_directory(folder).map_err(NodeError::file("sync", folder))
    }
}

impl FolderOwner {
    fn of(store: &Store, data: &Path) -> FolderOwner {
        let host = fs::read_to_string(HOST_FILE).unwrap_or_default();
        let data = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
        FolderOwner { store: format!("{:08x}", store.journal().identity()), data, host: host.trim().to_owned() }
    }
}

/// The name of a backup while it is made, or removed.
fn part_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.part"))
}

fn is_part(name: &str) -> bool {
    name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".part")).is_some_and(is_name)
}

fn manifest(path: &Path) -> Result<Manifest, NodeError> {
    Ok(Manifest::read(&FileShelf::open_read_only(path)?)?)
}

fn free(folder: &Path) -> Result<u64, NodeError> {
    device::free_bytes(folder).map_err(NodeError::file("ask about", folder))
}

/// Reads the journal of a backup; its pages were read when it was made.
fn check_journal(shelf: Arc<dyn Shelf>) -> Result<(), NodeError> {
    match journal::verify(&View::open(shelf)?)?.corruption {
        Some(corruption) => Err(refused(format!("its journal is damaged: {corruption}"))),
        None => Ok(()),
    }
}
