//! [`ShelfDirectory`]: the files of the index library on a few devices of a shelf.
//!
//! ```text
//!   device <index>-0, 64 MiB   | extent 0 | extent 1 | ...      extents of 64 KiB
//!   file a1b2.fast             = 150,000 bytes in extents 7, 8, 12 of device 0, each with its checksum
//!   tree of the store          file a1b2.fast -> its extents; meta.json -> its text; the sequence number that all this holds
//! ```
//!
//! A file is written once. What [`persist`](ShelfDirectory::persist) recorded is found again after a crash, and nothing else: it
//! flushes the devices, then writes the table of files in one transaction of the store. The index is behind the documents by
//! design (they are in the store), so nothing is flushed between two such moments.
//!
//! Invariants: an extent of a removed file is used again only after a `persist` that does not name the file, and once nobody has the
//! file open; every extent that is
//! read is compared with its checksum, so damage is an error with its place and never a wrong result.
//!
//! In an encrypted store each extent is sealed before it is written (`sealing`), and opened when it is read from the shelf: what lies in
//! memory, whole files and extents of the cache, is plaintext. The table, and small files that are replaced as a whole, lie in the store.
//!
//! With a second shelf, files beyond a size lie there: only merges make them, so what is searched and merged often stays on the first
//! one. A file moves when it grows beyond that size while it is written, and never again.
//!
//! What is read and written is told to whoever records a profile of the node: each extent of a file, whether it is in memory or not, and beside that
//! the reads of the shelf.
//!
//! Small files of open segments stay in memory as a whole while a half of `memory` has room for them: reading them copies nothing. All
//! others are read by extents, of which those that are used stay in the other half.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter};
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use device::{Device, Shelf};
use parking_lot::{Condvar, Mutex};
use store::cache::tap::{AccessTap, Blocks, SEGMENTS, Use, object_of};
use store::{Direction, Store, StoreError, TreeId};
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, Lock, OwnedBytes, WatchCallback, WatchCallbackList, WatchHandle, WritePtr,
};

mod cache;
mod extents;
mod key_use;
mod reserve;
mod rewriting;
mod sealing;
#[cfg(test)]
pub(crate) mod testing;
mod writing;

use cache::ExtentCache;
use extents::{EXTENT_BYTES, ExtentPool, FileExtents, FileTier, Place};
use sealing::IndexSealing;
use writing::ShelfWriter;

pub use key_use::data_keys_in_use;
pub use reserve::ReservedShelf;
pub use rewriting::OnBytes;

/// Memory that open files of all indices may take.
#[derive(Debug)]
pub struct FileMemory {
    /// Of files that are held as a whole.
    bytes: AtomicU64,
    most: u64,
    cache: ExtentCache,
}

/// Of the memory of whole files, what one of them may take.
const WHOLE_OF: u64 = 8;

impl FileMemory {
    /// Room for so many bytes.
    pub fn new(most: u64) -> FileMemory {
        FileMemory { bytes: AtomicU64::new(0), most: most / 2, cache: ExtentCache::new(most / 2) }
    }

    /// Bytes in use by files that are held as a whole.
    pub fn used(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        if bytes > self.most / WHOLE_OF {
            return false;
        }
        let taken = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let new = used.checked_add(bytes)?;
            (new <= self.most).then_some(new)
        });
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Where the files of indices lie.
#[derive(Clone, Debug)]
pub struct FileShelves {
    /// All files, or the small ones.
    pub fast: Arc<dyn Shelf>,
    /// The large ones, and how many bytes a file has at most that is not large.
    pub capacity: Option<(Arc<dyn Shelf>, usize)>,
}

impl FileShelves {
    /// All on one.
    pub fn one(fast: Arc<dyn Shelf>) -> FileShelves {
        FileShelves { fast, capacity: None }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn Shelf>> {
        std::iter::once(&self.fast).chain(self.capacity.as_ref().map(|(shelf, _)| shelf))
    }

    /// Removes all devices of an index: it is gone, or it is made anew.
    ///
    /// Errors: those of the shelves.
    pub fn remove_devices(&self, name: &str) -> Result<(), StoreError> {
        self.all().try_for_each(|shelf| ExtentPool::remove_devices(&**shelf, name))
    }

    /// Removes the devices whose index is not among those of these names.
    ///
    /// Errors: those of the shelves.
    pub fn remove_orphans(&self, is_owner: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        for shelf in self.all() {
            for name in shelf.list()? {
                if !name.rsplit_once('-').is_some_and(|(owner, _)| is_owner(owner)) {
                    shelf.remove(&name)?;
                }
            }
        }
        Ok(())
    }
}

/// See the head comment of this file.
#[derive(Clone)]
pub struct ShelfDirectory {
    inner: Arc<Inner>,
}

struct Inner {
    fast: ExtentPool,
    capacity: Option<ExtentPool>,
    /// Of an encrypted store.
    sealing: Option<IndexSealing>,
    /// Bytes of a file that is not large.
    large_bytes: usize,
    files: Mutex<BTreeMap<PathBuf, Stored>>,
    /// Files that are open: a new reader of the same segments shares what the one before it has in memory.
    open: Mutex<BTreeMap<PathBuf, Weak<ShelfFile>>>,
    /// Removed files that may still be open.
    removed: Mutex<Vec<Arc<FileExtents>>>,
    memory: Arc<FileMemory>,
    /// Whoever records a profile.
    tap: Arc<AccessTap>,
    watchers: WatchCallbackList,
    locks: Arc<LibraryLocks>,
    /// The first damage that was found.
    damage: Mutex<Option<Arc<str>>>,
}

/// A file that is there.
#[derive(Clone)]
enum Stored {
    /// On the shelf.
    Extents(Arc<FileExtents>),
    /// A small one that is replaced as a whole, in memory until the next `persist`.
    Whole(Arc<Vec<u8>>),
}

/// Keys of the table: files, large ones, and what else it holds.
const FILE: u8 = b'f';
const LARGE: u8 = b'c';
const WHOLE: u8 = b'w';
const APPLIED: &[u8] = b"applied";

impl ShelfDirectory {
    /// Reads the table of an index from the store: its files, and the sequence number up to which they contain all operations; 0
    /// and no file for a new index. `name` is that of the devices. If the store is encrypted, so are the files.
    ///
    /// Errors: those of the store and of the shelf.
    pub fn open(
        (store, table): (&Store, TreeId),
        shelves: &FileShelves,
        name: &str,
        memory: Arc<FileMemory>,
    ) -> Result<(ShelfDirectory, u64), StoreError> {
        let sealing = IndexSealing::of(store, name);
        let mut files = BTreeMap::new();
        let mut applied = 0;
        let (mut in_fast, mut in_capacity) = (Vec::new(), Vec::new());
        let mut cursor = store.snapshot().scan(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((key, value)) = cursor.next()? {
            let path = || PathBuf::from(String::from_utf8_lossy(&key[1..]).into_owned());
            match key.first() {
                _ if key == APPLIED => applied = value.as_ref().try_into().map(u64::from_le_bytes).unwrap_or(0),
                Some(&kind @ (FILE | LARGE)) => {
                    let (tier, in_use) = match kind {
                        FILE => (FileTier::Fast, &mut in_fast),
                        _ => (FileTier::Capacity, &mut in_capacity),
                    };
                    let path = path();
                    let sealing = sealing.as_ref().map(|sealing| (sealing, &*path));
                    let extents = FileExtents::decode(&value, tier, sealing).ok_or_else(|| {
                        StoreError::Refused(
                            format!("the table of search index {name} cannot be read: {}", path.display()).into(),
                        )
                    })?;
                    in_use.extend_from_slice(&extents.extents);
                    files.insert(path, Stored::Extents(Arc::new(extents)));
                }
                Some(&WHOLE) => {
                    files.insert(path(), Stored::Whole(Arc::new(value.to_vec())));
                }
                _ => {}
            }
        }
        let fast = ExtentPool::open(Arc::clone(&shelves.fast), (name, &memory, store.access_tap()), &in_fast)?;
        let capacity = shelves.capacity.as_ref();
        let tap = Arc::clone(store.access_tap());
        let opened =
            capacity.map(|(shelf, _)| ExtentPool::open(Arc::clone(shelf), (name, &memory, &tap), &in_capacity));
        let inner = Inner {
            fast,
            capacity: opened.transpose()?,
            sealing,
            large_bytes: capacity.map_or(usize::MAX, |(_, bytes)| *bytes),
            files: Mutex::new(files),
            open: Mutex::default(),
            removed: Mutex::default(),
            memory,
            tap,
            watchers: WatchCallbackList::default(),
            locks: Arc::default(),
            damage: Mutex::new(None),
        };
        Ok((ShelfDirectory { inner: Arc::new(inner) }, applied))
    }

    /// Whether it has no file.
    pub fn is_empty(&self) -> bool {
        self.inner.files.lock().is_empty()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let files = self.inner.files.lock();
        files.values().map(|file| file.len() as u64).sum()
    }

    /// The first damage that was found, with its place: a file that cannot be read, or cannot be made persistent. The index is to be
    /// made again.
    pub fn damage(&self) -> Option<Arc<str>> {
        self.inner.damage.lock().clone()
    }

    /// Makes the present files what is found after a crash, with `applied`: every operation below this sequence number is in
    /// them. Durable when it returns.
    ///
    /// Errors: those of the devices and of the store; the files recorded before stay what is found.
    pub fn persist(&self, store: &Store, table: TreeId, applied: u64) -> Result<(), StoreError> {
        let (files, removed) = {
            let files = self.inner.files.lock();
            (files.clone(), self.inner.closed_so_far())
        };
        if let Err(error) = self.inner.pools().try_for_each(|(_, pool)| pool.flush()) {
            let why: Arc<str> = format!("its files cannot be made persistent: {error}").into();
            self.inner.damage.lock().get_or_insert(why);
            return Err(error);
        }
        let mut transaction = store.begin();
        let mut known = BTreeMap::new();
        let mut cursor = transaction.scan(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((key, value)) = cursor.next()? {
            known.insert(key.to_vec(), value);
        }
        drop(cursor);
        let mut put = |key: Vec<u8>, value: &[u8]| -> Result<(), StoreError> {
            match known.remove(&key) {
                Some(old) if old == value => Ok(()),
                _ => transaction.put(table, &key, value),
            }
        };
        for (path, file) in &files {
            let name = path.to_string_lossy();
            match file {
                Stored::Extents(extents) => {
                    let kind = if extents.tier == FileTier::Fast { FILE } else { LARGE };
                    put(key(kind, &name), &extents.encode())?;
                }
                Stored::Whole(bytes) => put(key(WHOLE, &name), bytes)?,
            }
        }
        put(APPLIED.to_vec(), &applied.to_le_bytes())?;
        for key in known.keys() {
            transaction.delete(table, key)?;
        }
        transaction.commit()?;
        for (tier, pool) in self.inner.pools() {
            removed.get(&tier).into_iter().for_each(|places| pool.free(places));
        }
        Ok(())
    }

    /// Removes all files; what was persisted is still found after a crash until the next [`persist`](ShelfDirectory::persist).
    pub fn clear(&self) {
        let files = std::mem::take(&mut *self.inner.files.lock());
        self.inner.open.lock().clear();
        for file in files.into_values() {
            if let Stored::Extents(extents) = file {
                self.inner.remove(extents);
            }
        }
        self.inner.pools().for_each(|(_, pool)| pool.forget_failures());
        *self.inner.damage.lock() = None;
    }

    /// Reads every extent of every file. Returns how many bytes were read; the first damage is an error with its place.
    pub fn check(&self) -> Result<u64, String> {
        let files = self.inner.files.lock().clone();
        let mut bytes = 0;
        for (path, file) in files {
            if let Stored::Extents(extents) = file {
                let mut at = 0;
                while at < extents.len {
                    let end = (at + EXTENT_BYTES).min(extents.len);
                    let read = self.inner.read(&extents, at..end);
                    bytes += read.map_err(|error| format!("{}: {error}", path.display()))?.len() as u64;
                    at = end;
                }
            }
        }
        Ok(bytes)
    }
}

impl Inner {
    /// A file is no longer there. Who has it open may read it until it is closed: a view of a scroll, a search that is running.
    fn remove(&self, file: Arc<FileExtents>) {
        self.removed.lock().push(Arc::clone(&file));
        if let Some(pool) = self.pool(file.tier) {
            pool.remove(&file.extents);
        }
    }

    /// The extents of removed files that nobody has open.
    fn closed_so_far(&self) -> BTreeMap<FileTier, BTreeSet<Place>> {
        let mut closed: BTreeMap<_, _> = self.pools().map(|(tier, pool)| (tier, pool.removed_so_far())).collect();
        let mut removed = self.removed.lock();
        removed.retain(|file| Arc::strong_count(file) > 1);
        for file in removed.iter() {
            if let Some(closed) = closed.get_mut(&file.tier) {
                file.extents.iter().for_each(|extent| _ = closed.remove(&extent.place));
            }
        }
        closed
    }

    fn pools(&self) -> impl Iterator<Item = (FileTier, &ExtentPool)> {
        let capacity = self.capacity.iter().map(|pool| (FileTier::Capacity, pool));
        std::iter::once((FileTier::Fast, &self.fast)).chain(capacity)
    }

    fn pool(&self, tier: FileTier) -> Option<&ExtentPool> {
        match tier {
            FileTier::Fast => Some(&self.fast),
            FileTier::Capacity => self.capacity.as_ref(),
        }
    }

    /// Passes on, to whoever records a profile, which extents of a file are used: from one to another.
    fn pass_on(&self, object: u64, (from, to): (usize, usize), how: Use) {
        let numbers = from as u64..to as u64;
        self.tap.beside(|| Blocks { structure: SEGMENTS, object, numbers, bytes: EXTENT_BYTES as u32 }, how);
    }

    /// A file that nothing names is not made.
    fn give_up(&self, file: &FileExtents) {
        if let Some(pool) = self.pool(file.tier) {
            pool.free(&file.extents.iter().map(|extent| extent.place).collect());
        }
    }

    /// Reads a range of a file. Errors: as for the pool; the large files of an index are there, and their shelf is not set any more.
    fn read(&self, file: &FileExtents, range: Range<usize>) -> io::Result<Vec<u8>> {
        match self.pool(file.tier) {
            Some(pool) => pool.read(file, range),
            None => Err(io::Error::other("it lies on the tier of large files, and none is set")),
        }
    }
}

fn key(kind: u8, name: &str) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend_from_slice(name.as_bytes());
    key
}

impl Stored {
    fn len(&self) -> usize {
        match self {
            Stored::Extents(extents) => extents.len,
            Stored::Whole(bytes) => bytes.len(),
        }
    }
}

impl std::fmt::Debug for ShelfDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShelfDirectory").field("files", &self.inner.files.lock().len()).finish_non_exhaustive()
    }
}

impl Directory for ShelfDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        let file = self.inner.files.lock().get(path).cloned();
        match file {
            None => Err(OpenReadError::FileDoesNotExist(path.to_owned())),
            Some(Stored::Whole(bytes)) => Ok(Arc::new(OwnedBytes::new(bytes.as_ref().clone()))),
            Some(Stored::Extents(extents)) => {
                let mut open = self.inner.open.lock();
                let known = open.get(path).and_then(Weak::upgrade);
                if let Some(file) = known.filter(|file| Arc::ptr_eq(&file.extents, &extents)) {
                    return Ok(file);
                }
                let (path, inner) = (path.to_owned(), Arc::clone(&self.inner));
                let object = object_of(path.as_os_str().as_encoded_bytes());
                let file = Arc::new(ShelfFile { path: path.clone(), object, extents, inner, loaded: Mutex::new(None) });
                open.insert(path, Arc::downgrade(&file));
                Ok(file)
            }
        }
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        match self.inner.files.lock().remove(path) {
            None => Err(DeleteError::FileDoesNotExist(path.to_owned())),
            Some(Stored::Whole(_)) => Ok(()),
            Some(Stored::Extents(extents)) => {
                self.inner.open.lock().remove(path);
                self.inner.remove(extents);
                Ok(())
            }
        }
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.inner.files.lock().contains_key(path))
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        if self.inner.files.lock().contains_key(path) {
            return Err(OpenWriteError::FileAlreadyExists(path.to_owned()));
        }
        let writer = ShelfWriter::new(path, &self.inner);
        let writer = writer.map_err(|error| OpenWriteError::wrap_io_error(error, path.to_owned()))?;
        Ok(BufWriter::new(Box::new(writer)))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        match self.inner.files.lock().get(path) {
            Some(Stored::Whole(bytes)) => Ok(bytes.as_ref().clone()),
            _ => Err(OpenReadError::FileDoesNotExist(path.to_owned())),
        }
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.inner.files.lock().insert(path.to_owned(), Stored::Whole(Arc::new(data.to_vec())));
        self.inner.watchers.broadcast();
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        // The lock of the data directory keeps other processes out. In this one, a reader that opens the segments of a list must not
        // meet a merge that removes the files of that list.
        let mut held = self.inner.locks.held.lock();
        while held.contains(&lock.filepath) {
            if !lock.is_blocking {
                return Err(LockError::LockBusy);
            }
            self.inner.locks.changed.wait(&mut held);
        }
        held.insert(lock.filepath.clone());
        let guard = HeldLock { path: lock.filepath.clone(), locks: Arc::clone(&self.inner.locks) };
        Ok(DirectoryLock::from(Box::new(guard)))
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(self.inner.watchers.subscribe(callback))
    }
}

/// The library's locks that are held.
#[derive(Default)]
struct LibraryLocks {
    held: Mutex<BTreeSet<PathBuf>>,
    changed: Condvar,
}

/// One of them, until it is dropped.
struct HeldLock {
    path: PathBuf,
    locks: Arc<LibraryLocks>,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.locks.held.lock().remove(&self.path);
        self.locks.changed.notify_all();
    }
}

/// An open file.
struct ShelfFile {
    path: PathBuf,
    /// Its number in profiles.
    object: u64,
    extents: Arc<FileExtents>,
    inner: Arc<Inner>,
    /// All of it, once it was read and had room.
    loaded: Mutex<Option<OwnedBytes>>,
}

impl ShelfFile {
    fn read(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        self.inner.read(&self.extents, range).map_err(|error| {
            let why: Arc<str> = format!("{}: {error}", self.path.display()).into();
            self.inner.damage.lock().get_or_insert_with(|| why.clone());
            io::Error::other(why.to_string())
        })
    }
}

impl FileHandle for ShelfFile {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        if range.start >= range.end {
            return Ok(OwnedBytes::empty());
        }
        self.inner.pass_on(self.object, (range.start / EXTENT_BYTES, range.end.div_ceil(EXTENT_BYTES)), Use::Read);
        let mut loaded = self.loaded.lock();
        if let Some(all) = &*loaded {
            return Ok(all.slice(range));
        }
        if !self.inner.memory.take(self.extents.len as u64) {
            drop(loaded);
            return Ok(OwnedBytes::new(self.read(range)?));
        }
        match self.read(0..self.extents.len) {
            Ok(all) => {
                let all = OwnedBytes::new(all);
                let part = all.slice(range);
                *loaded = Some(all);
                Ok(part)
            }
            Err(error) => {
                self.inner.memory.give_back(self.extents.len as u64);
                Err(error)
            }
        }
    }
}

impl tantivy::HasLen for ShelfFile {
    fn len(&self) -> usize {
        self.extents.len
    }
}

impl Drop for ShelfFile {
    fn drop(&mut self) {
        if self.loaded.get_mut().is_some() {
            self.inner.memory.give_back(self.extents.len as u64);
        }
    }
}

impl std::fmt::Debug for ShelfFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShelfFile").field("path", &self.path).field("bytes", &self.extents.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod sealed_tests;
#[cfg(test)]
mod tests;
