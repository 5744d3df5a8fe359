//! A look at a watched folder: which files of it have settled, and what is known of each.
//!
//! ```text
//! names --that end so--> stamps --the same since `settle`--> to be taken, in order of name
//! ```
//!
//! Invariants: a file is known by its version (number, size, time of change); what is known of one version counts for no
//! other. Files that were moved are looked at for a minute more: one that grows has a producer that was not done, and the log
//! says so. The three folders of a service lie on one file system: a file that could not be moved would be taken again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::InteropError;
use crate::folder::{FileStamp, Folder, FolderId};
use crate::production::settings::FileService;

/// The folders of a service, open.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) inbox: Folder,
    pub(super) done: Folder,
    pub(super) error: Folder,
    /// That of the inbox.
    pub(super) id: FolderId,
}

impl Folders {
    /// Opens them.
    ///
    /// # Errors
    /// `File`; `Refused` where a file of the one could not be moved to the others.
    pub(super) fn open(settings: &FileService) -> Result<Folders, InteropError> {
        let open = |folder: &Path| -> Result<(Folder, FolderId), InteropError> {
            let opened = Folder::open(folder).map_err(InteropError::file("open", folder))?;
            let id = opened.id().map_err(InteropError::file("open", folder))?;
            Ok((opened, id))
        };
        let (inbox, id) = open(&settings.folder)?;
        let beside = |path: &Option<PathBuf>| {
            let path = path.as_ref().expect("loading a production fills it in");
            let (opened, other) = open(path)?;
            let (at, watched) = (path.display(), settings.folder.display());
            if other == id {
                return Err(InteropError::Refused(format!("{at} is the watched folder {watched} itself")));
            }
            if other.device != id.device {
                let text = format!("{at} is on another file system than {watched}: no file could be moved there");
                return Err(InteropError::Refused(text));
            }
            opened.check_writable().map_err(InteropError::file("write to", path))?;
            Ok(opened)
        };
        let (done, error) = (beside(&settings.done)?, beside(&settings.error)?);
        Ok(Folders { inbox, done, error, id })
    }
}

/// Where a file goes of which all was taken that can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilePlace {
    Done,
    /// With the reason.
    Error(&'static str),
}

/// A version of a file, since when it has been the same, and how much of it is stored.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) stamp: FileStamp,
    pub(super) since: Instant,
    /// Messages stored, from the first on; none until the progress file was read.
    pub(super) stored: Option<u64>,
    /// Messages among these that were refused for good, for their size.
    pub(super) too_large: u64,
    /// The largest message taken, by which these were counted.
    pub(super) bound: usize,
    /// All was taken, and it could not be moved yet.
    pub(super) goes: Option<FilePlace>,
    /// It was moved, under this name.
    pub(super) moved: Option<OsString>,
}

impl Look {
    pub(super) fn new(stamp: FileStamp) -> Self {
        Self { stamp, since: Instant::now(), stored: None, too_large: 0, bound: 0, goes: None, moved: None }
    }
}

/// How many files that were moved are looked at, and for how long.
const MOVED_MAX: usize = 1_000;
const MOVED_FOR: Duration = Duration::from_secs(60);

/// Files that were moved a moment ago.
#[derive(Debug, Default)]
pub(super) struct MovedFiles(VecDeque<(Instant, FilePlace, OsString, FileStamp)>);

impl MovedFiles {
    /// Remembers one that was moved, if it was.
    pub(super) fn push(&mut self, look: &mut Look) {
        let Some((place, name)) = look.goes.zip(look.moved.take()) else { return };
        if self.0.len() == MOVED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now(), place, name, look.stamp));
    }

    /// The names of those that have grown since; they are looked at no more.
    pub(super) fn grown(&mut self, folders: &Folders) -> Vec<OsString> {
        let mut grown = Vec::new();
        self.0.retain(|(at, place, name, stamp)| {
            let folder = if *place == FilePlace::Done { &folders.done } else { &folders.error };
            let found = folder.look(name).ok().flatten().filter(|found| found.number == stamp.number);
            let has_grown = found.is_some_and(|found| found.size > stamp.size);
            if has_grown {
                grown.push(name.clone());
            }
            found.is_some() && !has_grown && at.elapsed() < MOVED_FOR
        });
        grown
    }
}

/// The names in the inbox that have stayed the same long enough, in order.
///
/// # Errors
/// `File`.
pub(super) fn settled(
    folders: &Folders,
    settings: &FileService,
    seen: &mut HashMap<OsString, Look>,
) -> Result<Vec<OsString>, InteropError> {
    let read = |error| InteropError::file("read", &settings.folder)(error);
    let mut ready = Vec::new();
    let mut present = HashSet::new();
    for name in folders.inbox.names().map_err(read)? {
        if !name.as_bytes().ends_with(settings.suffix.as_bytes()) {
            continue;
        }
        let Some(stamp) = folders.inbox.look(&name).map_err(read)?.filter(|stamp| stamp.is_file || stamp.is_link)
        else {
            continue;
        };
        let look = seen.entry(name.clone()).or_insert_with(|| Look::new(stamp));
        if look.stamp != stamp {
            *look = Look::new(stamp);
        }
        if look.since.elapsed() >= settings.settle.0 {
            ready.push(name.clone());
        }
        present.insert(name);
    }
    seen.retain(|name, _| present.contains(name));
    Ok(ready)
}
