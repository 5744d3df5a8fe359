//! [`FileCache`]: external files by version, and their blocks in the store's page cache.
//!
//! A version identifies a file at one time: device, inode, length, time of change. The cache identifies a file by its
//! version, so a changed file is read again. A block is read with the version compared before and after, so no block
//! mixes two versions. A change that leaves all four values the same is not detected; only rewriting a file in place
//! within the clock's tick does that.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use store::cache::{EXTERNAL_BLOCK_BYTES, ExternalFile};
use store::{Store, StoreError};

use super::allowed_folders::{AllowedFolders, missing};
use crate::SqlError;

/// A file as it was at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// The path without symbolic links.
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Seconds and nanoseconds since 1970 of the last change.
    pub(super) changed: (i64, i64),
    device: u64,
    inode: u64,
}

impl Version {
    fn of(path: &Path, metadata: &Metadata) -> Version {
        Version {
            path: path.into(),
            bytes: metadata.len(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    /// The version without the path, as one word.
    pub(super) fn tag(&self) -> String {
        let Version { bytes, changed: (seconds, nanos), device, inode, .. } = self;
        format!("{device:x}-{inode:x}-{bytes:x}-{seconds:x}.{nanos:x}")
    }
}

/// The external files of a node.
#[derive(Debug)]
pub struct FileCache {
    store: Store,
    folders: AllowedFolders,
    cached: Mutex<HashMap<PathBuf, (Version, Arc<ExternalFile>)>>,
}

impl FileCache {
    /// A cache for files in these folders, with their blocks in the store's page cache.
    pub fn new(store: &Store, folders: AllowedFolders) -> FileCache {
        FileCache { store: store.clone(), folders, cached: Mutex::default() }
    }

    /// The file that a path leads to. Errors as [`AllowedFolders::resolve`].
    pub(crate) fn resolve(&self, path: &Path) -> Result<PathBuf, SqlError> {
        self.folders.resolve(path)
    }

    /// The present version of a file. Errors: as [`resolve`](FileCache::resolve); 58P01 if it is not a file.
    pub(super) fn version(&self, path: &Path) -> Result<Version, SqlError> {
        let real = self.resolve(path)?;
        let metadata = fs::symlink_metadata(&real).map_err(|error| missing(&shown(&real), error))?;
        match metadata.is_file() {
            true => Ok(Version::of(&real, &metadata)),
            false => Err(missing(&shown(&real), "it is not a file")),
        }
    }

    /// The `.parquet` files of a folder, in the order of their names. Folders in it are ignored.
    pub(super) fn of_folder(&self, folder: &Path) -> Result<Vec<Version>, SqlError> {
        let folder = self.resolve(folder)?;
        let failed = |error| missing(&shown(&folder), error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "parquet") && !path.is_dir() {
                names.push(path);
            }
        }
        names.sort();
        names.iter().map(|path| self.version(path)).collect()
    }

    /// Bytes of a file of that version. Waits for the disk. Errors: 58P01 if it no longer exists, 58030 if it cannot be
    /// read or has changed.
    pub(super) fn read(&self, version: &Version, from: u64, to: u64) -> Result<Bytes, SqlError> {
        let to = to.min(version.bytes);
        if from >= to {
            return Ok(Bytes::new());
        }
        let file = self.file(version)?;
        let block =
            |number: u64| file.block(number, |buffer| read_block(version, number * EXTERNAL_BLOCK_BYTES, buffer));
        let (first, last) = (from / EXTERNAL_BLOCK_BYTES, (to - 1) / EXTERNAL_BLOCK_BYTES);
        let part = |number: u64, block: &Bytes| {
            let begin = number * EXTERNAL_BLOCK_BYTES;
            block.slice(from.saturating_sub(begin) as usize..(to - begin).min(block.len() as u64) as usize)
        };
        if first == last {
            return Ok(part(first, &block(first)?));
        }
        let mut all = BytesMut::with_capacity((to - from) as usize);
        for number in first..=last {
            all.extend_from_slice(&part(number, &block(number)?));
        }
        Ok(all.freeze())
    }

    /// The external file of a version; other versions of the same file are dropped.
    fn file(&self, version: &Version) -> Result<Arc<ExternalFile>, SqlError> {
        let mut cached = self.cached.lock();
        if let Some((known, file)) = cached.get(&version.path)
            && known == version
        {
            return Ok(file.clone());
        }
        let file = match self.store.external_file(version.bytes) {
            Err(StoreError::Full(_)) if !cached.is_empty() => {
                // Page numbers are used up: files that were read earlier are dropped.
                cached.clear();
                self.store.external_file(version.bytes)
            }
            file => file,
        };
        let file = Arc::new(file?);
        cached.insert(version.path.clone(), (version.clone(), file.clone()));
        Ok(file)
    }
}

fn read_block(version: &Version, from: u64, buffer: &mut [u8]) -> Result<(), SqlError> {
    let what = shown(&version.path);
    let file = File::open(&version.path).map_err(|error| missing(&what, error))?;
    let same = || match file.metadata() {
        Ok(metadata) if Version::of(&version.path, &metadata) == *version => Ok(()),
        Ok(_) => Err(changed(&version.path)),
        Err(error) => Err(SqlError::statement("58030", format!("could not read {what}: {error}"))),
    };
    same()?;
    file.read_exact_at(buffer, from)
        .map_err(|error| SqlError::statement("58030", format!("could not read {what}: {error}")))?;
    same()
}

/// The error for a file that has changed since the query began.
pub(super) fn changed(path: &Path) -> SqlError {
    SqlError::statement("58030", format!("{} changed while it was read", shown(path)))
        .with_hint("Run the query again; replace files by renaming new ones over them.")
}

fn shown(path: &Path) -> String {
    format!("the external file \"{}\"", path.display())
}
