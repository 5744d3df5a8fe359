//! Opening the store of a node that starts.
//!
//! ```text
//!   lock the data directory -> compare the wanted places with those recorded, record them -> begin an epoch of the keys, where the
//!   directory is encrypted -> open the shelves -> open the store
//!   (recovery) -> record what is made by now -> warn of folders that others can read
//! ```
//!
//! Invariant: nothing is opened or made before its place is recorded in the data directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{FileOptions, FileShelf, Shelf};
use store::{Opened, Options, Places, Store};

use crate::encryption;
use crate::error::NodeError;
use crate::location::{self, Location, Locations};
use crate::lock::DirectoryLock;
use crate::media::{Media, MediumInUse};

/// The store of a running node, and its media.
#[derive(Debug)]
pub struct NodeStore {
    store: Store,
    opened: Opened,
    media: Media,
    options: Options,
    /// None where the store was given its shelf, and nothing is recorded in a data directory.
    _lock: Option<DirectoryLock>,
}

impl NodeStore {
    /// Opens a store at `locations`, whose shelves `open_shelves` opens.
    ///
    /// # Errors
    /// The places are not the recorded ones, a structure is missing, stored data is damaged, a key is missing or wrong, and the errors of
    /// `open_shelves`.
    pub fn open(
        lock: DirectoryLock,
        locations: &Locations,
        open_shelves: impl FnOnce() -> Result<(Places, Media), NodeError>,
        options: Options,
    ) -> Result<NodeStore, NodeError> {
        location::claim(lock.data(), locations)?;
        let sealer = encryption::to_write(lock.data())?;
        let (places, media) = open_shelves()?;
        let options = Options { journal: journal::Options { sealer, ..options.journal.clone() }, ..options };
        let (store, opened) = Store::open(places, options.clone())?;
        location::record_made(lock.data(), locations)?;
        warn_of_open_folders(lock.data(), locations);
        Ok(NodeStore { store, opened, media, options, _lock: Some(lock) })
    }

    /// Opens a store on `shelf`, which `medium` describes. Where that is is not recorded, and no lock keeps a second node from it.
    ///
    /// # Errors
    /// Stored data is damaged.
    pub fn open_on(shelf: Arc<dyn Shelf>, medium: &MediumInUse, options: Options) -> Result<NodeStore, NodeError> {
        let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
        let (store, opened) = Store::open(places, options.clone())?;
        Ok(NodeStore { store, opened, media: Media::all(medium), options, _lock: None })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The media of its structures.
    pub fn media(&self) -> &Media {
        &self.media
    }

    /// Records that were in the journal when it was opened.
    pub fn records(&self) -> u64 {
        self.opened.records
    }

    /// Bytes cut off then, which a crash had torn.
    pub fn torn_bytes(&self) -> u64 {
        self.opened.journal.torn_bytes
    }
}

/// Opens the shelves of a store whose structures are files below the data directory `data`.
///
/// # Errors
/// `Device`.
pub fn open_home(data: &Path) -> Result<(Places, Media), NodeError> {
    let home = Locations::home();
    let open = |location: &Location| {
        let folder = location.folder_in(data).expect("home is a folder");
        let shelf = FileShelf::open(&folder, FileOptions::default())?;
        let (device, durability) = (shelf.kind().to_string(), shelf.kind().durability);
        let medium = MediumInUse { tier: "home".to_owned(), device, durability, real: true };
        Ok::<_, NodeError>((Arc::new(shelf) as Arc<dyn Shelf>, medium))
    };
    let ((journal, a), (images, b), (data, c)) = (open(&home.journal)?, open(&home.images)?, open(&home.data)?);
    Ok((Places { journal, images, data }, Media::of(a, b, c)))
}

/// Warns of folders of the node that other users of the machine can read; folders that the node makes are not readable
/// for them.
fn warn_of_open_folders(data: &Path, locations: &Locations) {
    let elsewhere = [&locations.journal, &locations.images, &locations.data].map(|place| place.folder_in(data));
    let mut folders: Vec<PathBuf> =
        elsewhere.into_iter().flatten().filter(|folder| !folder.starts_with(data)).collect();
    folders.push(data.to_owned());
    for folder in folders {
        let open = open_to_others(&folder);
        if open > 0 {
            let next = format!("chmod -R go= {}", folder.display());
            tracing::warn!(folder = %folder.display(), open, next, "other users of this machine can look into stored messages");
        }
    }
}

/// How many files and folders at and below a folder other users of the machine may read or write; 0 where they cannot get in.
fn open_to_others(folder: &Path) -> usize {
    let is_open = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
    if !is_open(folder) {
        return 0;
    }
    let mut count = 1;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // A folder that cannot be listed is an error later, for the code that uses it.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            // A link itself is readable for all; its target has a mode of its own.
            count += usize::from(!kind.is_symlink() && is_open(&entry.path()));
            if kind.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    count
}
