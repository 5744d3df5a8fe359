//! A directory as a shelf: durable names, one writer, any number of readers.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batches::{BatchRing, BatchedFile};
use super::device::{FileDevice, Writer};
use super::flushers::Flushers;
use super::lock::{LOCK_NAME, Lock};
use super::ring::Rings;
use super::system_error::failed;
use super::transfer::write_fully;
use crate::contract::{assert_name, assert_size, is_name};
use crate::os::FileSystem;
use crate::poison::Poison;
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, Operation, Shelf, os};

/// Suffix of a device that create has not finished; because of the leading dot it is not a device name.
const MAKING_SUFFIX: &str = ".making";

/// The unit in which a new device is filled with zeros.
const ZEROS_BYTES: usize = 1 << 20;

/// Zeros written between two flushes while a device is filled. A flush empties the drive's cache, and all other flushes
/// wait for it: with only one flush at the end, a journal on the same drive would wait for all of a segment's zeros.
const FILL_FLUSH_BYTES: u64 = 4 << 20;

/// File systems that write changed bytes to another place: also what was reserved or written before needs space to be written again.
const COPY_ON_WRITE: [&str; 2] = ["btrfs", "zfs"];

/// How to use the files. A chosen option that is not available is not used, and [`FileShelf::kind`] reports that.
///
/// The defaults had the best results (example `sync_cost`, 2026-11-21, 2 cores, Linux 6.18, ext4 on a virtio disk with
/// a volatile write cache and no FUA). One `write_flush` of one thread, p50 and CPU time / p50 with two threads, us:
///
/// ```text
///   machine idle               4 KiB             64 KiB            256 KiB
///   direct, plain (default)   101  29 / 131     117  29 / 163     160  34 / 255
///   direct, io_uring          166  55 / 199     189  48 / 223     249  57 / 328
///   buffered, plain           101  26 / 140     126  39 / 181     188  65 / 359
///   O_DIRECT | O_DSYNC         98  24 / 136     113  26 / 167     151  28 / 231
///
///   both cores busy            4 KiB             64 KiB            256 KiB
///   direct, plain (default)   128  24 / 133     150  28 / 177     204  34 / 271
///   direct, io_uring          118  28 / 145     148  33 / 172     206  39 / 280
/// ```
///
/// io_uring takes more CPU because the kernel passes every fsync to a worker thread, and more time if that worker's
/// core must first wake up. It is useful if one thread keeps many requests in flight, which this blocking contract does
/// not need. `O_DSYNC` is not used although it saves a call: on a drive with FUA it would make the write persistent
/// without the writes that completed before it, which is less than [`Device::write_flush`] guarantees.
///
/// Writing zeros at creation: the first `pwrite` and `fdatasync` of a block took 138 us on a file that was only
/// reserved and 94 us on a pre-written one (p50 of 600, interleaved, idle); filling 64 MiB took 30 ms, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Bypass the page cache (`O_DIRECT`); default true.
    pub direct: bool,
    /// Submit a write and its flush to the kernel as one io_uring submission; default false: pwrite, then fdatasync.
    pub uring: bool,
    /// Hand the requests of a batch ([`Device::submit`]) to the kernel at once through an io_uring of the shelf; default true. Without, a
    /// batch is done in turn on the thread that submits it. It is refused on a file system in memory, where nothing is waited for and a
    /// plain read of 4 KiB took a third of the processor time (1.3 us, by a ring 3.5 us; example `batch_reads` of crate volume, 2026-11-25).
    pub batches: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { direct: true, uring: false, batches: true }
    }
}

/// How the files of a shelf are actually used; reports print it beside every figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKind {
    /// Whether the page cache is bypassed.
    pub direct: bool,
    /// Whether a write and its flush are one io_uring submission.
    pub uring: bool,
    /// Whether batches go through an io_uring.
    pub batches: bool,
    /// The file system, by its usual name.
    pub file_system: String,
    /// The durability of a flush there.
    pub durability: Durability,
    /// Requested options that were refused, and why.
    pub refused: Vec<String>,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = if self.direct { "O_DIRECT" } else { "buffered" };
        let method = if self.uring { "io_uring write linked to fdatasync" } else { "pwrite then fdatasync" };
        let batches = if self.batches { "batches by io_uring" } else { "batches in turn" };
        write!(f, "{}, {access}, {method}, {batches}, {}", self.file_system, self.durability)?;
        self.refused.iter().try_for_each(|refused| write!(f, "; {refused}"))
    }
}

/// Devices that are files of one directory.
pub struct FileShelf {
    directory: PathBuf,
    kind: FileKind,
    /// `None` if the shelf was opened read-only.
    lock: Option<Arc<Lock>>,
    rings: Option<Arc<Rings>>,
    batches: Option<Arc<BatchRing>>,
    /// Held while names change: the check that a name is free and the change are one step, and one sync at a time goes
    /// through the directory's descriptor.
    names: Mutex<Names>,
}

/// The directory, open so that its names can be made persistent; `None` if the shelf was opened read-only. It stays
/// open as long as the shelf is: a name change that has taken effect must not fail afterwards for lack of a descriptor.
#[derive(Debug)]
struct Names {
    directory: Option<File>,
    /// A change was made and could not be made persistent: nobody may rely on a name that this shelf has made, or take a later
    /// sync for a proof, until the shelf is opened again.
    failed: bool,
}

impl Names {
    fn new(directory: Option<File>) -> Names {
        Names { directory, failed: false }
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.directory.as_ref().map_or(Ok(()), File::sync_all);
        self.failed |= synced.is_err();
        synced
    }

    /// Errors: [`DeviceError::Poisoned`].
    fn check(&self, name: &str) -> Result<(), DeviceError> {
        if self.failed { Err(DeviceError::Poisoned { name: name.into() }) } else { Ok(()) }
    }
}

impl FileShelf {
    /// Opens a directory for reading and writing; creates it if necessary. Only one process at a time can.
    ///
    /// Devices that a crash left unfinished are removed, and the names in the directory are made persistent.
    ///
    /// Errors: [`DeviceError::Busy`], [`DeviceError::Full`], [`DeviceError::Io`].
    pub fn open(directory: &Path, options: FileOptions) -> Result<FileShelf, DeviceError> {
        let open = |source| failed(Operation::Open, &directory.display().to_string(), 0, source);
        os::make_directory(directory).map_err(open)?;
        let lock = Lock::take(directory)?;
        remove_unfinished(directory).map_err(open)?;
        let mut names = Names::new(Some(File::open(directory).map_err(open)?));
        names.sync().map_err(open)?;
        let mut refused = Vec::new();
        let rings = options
            .uring
            .then(Rings::new)
            .and_then(|rings| rings.inspect_err(|why| refused.push(format!("io_uring cannot be used ({why})"))).ok());
        let found = os::file_system(directory).map_err(open)?;
        let batches = batch_ring(options.batches, found, &mut refused);
        let direct = options.direct && probe_direct(directory).map_err(open)?;
        if options.direct && !direct {
            refused.push("the file system refuses O_DIRECT".into());
        }
        let kind = FileKind { direct, uring: rings.is_some(), batches: batches.is_some(), refused, ..kind_of(found) };
        Ok(FileShelf {
            directory: directory.into(),
            kind,
            lock: Some(Arc::new(lock)),
            rings: rings.map(Arc::new),
            batches,
            names: Mutex::new(names),
        })
    }

    /// Opens a directory for reading, even while another process writes it. Takes no lock and changes nothing.
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::Io`].
    pub fn open_read_only(directory: &Path) -> Result<FileShelf, DeviceError> {
        let open = |source| failed(Operation::Open, &directory.display().to_string(), 0, source);
        fs::read_dir(directory).map_err(open)?;
        let direct = probe_direct_read(directory).map_err(open)?;
        let mut refused = Vec::new();
        let found = os::file_system(directory).map_err(open)?;
        let batches = batch_ring(true, found, &mut refused);
        let kind = FileKind { direct, batches: batches.is_some(), refused, ..kind_of(found) };
        let (directory, names) = (directory.into(), Mutex::new(Names::new(None)));
        Ok(FileShelf { directory, kind, lock: None, rings: None, batches, names })
    }

    /// How the files are actually used.
    pub fn kind(&self) -> &FileKind {
        &self.kind
    }

    /// A file as its users see it.
    fn device(&self, file: Arc<FileDevice>) -> Arc<dyn Device> {
        match &self.batches {
            Some(ring) => Arc::new(BatchedFile::new(file, ring)),
            None => file,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The lock that every change needs, or the error of a shelf opened read-only.
    fn lock(&self, operation: Operation, name: &str) -> Result<&Arc<Lock>, DeviceError> {
        self.lock.as_ref().ok_or_else(|| DeviceError::ReadOnly { operation, name: name.into() })
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        // Guards no data: after a panic the directory is as consistent as after a crash.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_free(&self, operation: Operation, name: &str) -> Result<(), DeviceError> {
        match self.path(name).try_exists() {
            Ok(false) => Ok(()),
            Ok(true) => Err(DeviceError::AlreadyExists { name: name.into() }),
            Err(source) => Err(failed(operation, name, 0, source)),
        }
    }

    /// [`Shelf::create`], returning the file device.
    pub(crate) fn create_file(&self, name: &str, bytes: u64) -> Result<Arc<FileDevice>, DeviceError> {
        self.make(name, bytes, bytes, fill)
    }

    /// Creates a device with the content that `prepare` makes persistent in its file, which needs `wanted` bytes of space.
    fn make(
        &self,
        name: &str,
        bytes: u64,
        wanted: u64,
        prepare: fn(&File, u64) -> io::Result<()>,
    ) -> Result<Arc<FileDevice>, DeviceError> {
        assert_name(name);
        assert_size(bytes);
        self.lock(Operation::Create, name)?;
        self.names().check(name)?;
        self.check_free(Operation::Create, name)?;
        // Checked first, so that an impossible request does not fill the disk before it is refused.
        let io = |source| failed(Operation::Create, name, 0, source);
        if os::free_bytes(&self.directory).map_err(io)? < wanted {
            return Err(DeviceError::Full { name: name.into(), bytes: wanted });
        }
        let making = self.directory.join(format!(".{name}{MAKING_SUFFIX}"));
        // Fails if another thread is creating a device of that name.
        let file = self.files().write(true).create_new(true).open(&making).map_err(io)?;
        let made = prepare(&file, bytes)
            .map_err(|source| io(source).wanting(wanted))
            .and_then(|()| self.publish(&making, name, file, bytes));
        if made.is_err() {
            // Best effort: the next writer removes it too. The first error is returned.
            let _ = fs::remove_file(&making);
        }
        made
    }

    /// [`Shelf::open`], returning the file device.
    pub(crate) fn open_file(&self, name: &str) -> Result<Arc<FileDevice>, DeviceError> {
        assert_name(name);
        // The name must refer to the same file until the last descriptor is open.
        let _names = self.names();
        self.open_to_write(name)
    }

    /// [`Shelf::open_read_only`], returning the file device.
    pub(crate) fn open_file_read_only(&self, name: &str) -> Result<Arc<FileDevice>, DeviceError> {
        assert_name(name);
        let file = self.files().open(self.path(name)).map_err(|source| failed(Operation::Open, name, 0, source))?;
        let bytes = device_bytes(name, &file)?;
        let FileKind { direct, durability, .. } = self.kind;
        Ok(Arc::new(FileDevice { name: name.into(), bytes, direct, durability, file, writer: None }))
    }

    /// The open options for this kind.
    fn files(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).mode(os::PRIVATE_FILE).custom_flags(if self.kind.direct { libc::O_DIRECT } else { 0 });
        options
    }

    /// Gives a finished file its name. Filling takes long and is done without the lock of the names, which is held only
    /// while they change. The open file is used: its content is persistent, and opening it again could fail after the
    /// name exists.
    fn publish(&self, making: &Path, name: &str, file: File, bytes: u64) -> Result<Arc<FileDevice>, DeviceError> {
        let mut names = self.names();
        names.check(name)?;
        self.check_free(Operation::Create, name)?;
        fs::rename(making, self.path(name))
            .and_then(|()| names.sync())
            .map_err(|source| failed(Operation::Create, name, 0, source))?;
        self.writable(name, file, bytes)
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<FileDevice>, DeviceError> {
        self.lock(Operation::Open, name)?;
        let io = |source| failed(Operation::Open, name, 0, source);
        let file = self.files().write(true).open(self.path(name)).map_err(io)?;
        let bytes = device_bytes(name, &file)?;
        // Bytes that a killed predecessor wrote and did not flush become persistent before they are read. They are then
        // read from the medium, not from pages that a failed write-back left in the cache.
        file.sync_data().map_err(io)?;
        if !self.kind.direct {
            os::drop_cache(&file).map_err(io)?;
        }
        self.writable(name, file, bytes)
    }

    /// Makes a device of a file that is open for writing.
    fn writable(&self, name: &str, file: File, bytes: u64) -> Result<Arc<FileDevice>, DeviceError> {
        let lock = Arc::clone(self.lock(Operation::Open, name)?);
        let (flushers, poison) = (Flushers::default(), Poison::default());
        let writer = Writer { flushers, rings: self.rings.clone(), poison, _lock: lock };
        let FileKind { direct, durability, .. } = self.kind;
        Ok(Arc::new(FileDevice { name: name.into(), bytes, direct, durability, file, writer: Some(writer) }))
    }
}

impl fmt::Debug for FileShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileShelf {{ directory: {:?}, kind: {} }}", self.directory, self.kind)
    }
}

impl Shelf for FileShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.device(self.create_file(name, bytes)?))
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.device(self.make(name, bytes, bytes, reserve)?))
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        if COPY_ON_WRITE.contains(&self.kind.file_system.as_str()) {
            return Err(DeviceError::Unsupported { operation: Operation::Create, name: name.into() });
        }
        match self.make(name, bytes, BLOCK_BYTES as u64, leave_sparse) {
            Ok(file) => Ok(self.device(file)),
            Err(DeviceError::Io { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err(DeviceError::Unsupported { operation: Operation::Create, name: name.into() })
            }
            Err(error) => Err(error),
        }
    }

    fn medium(&self) -> Option<u64> {
        fs::metadata(&self.directory).ok().map(|found| found.dev())
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        let io = |source| failed(Operation::List, &self.directory.display().to_string(), 0, source);
        os::free_bytes(&self.directory).map(Some).map_err(io)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.device(self.open_file(name)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.device(self.open_file_read_only(name)?))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        let io = |source| failed(Operation::List, &self.directory.display().to_string(), 0, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            let is_file = match entry.file_type() {
                Ok(kind) => kind.is_file(),
                // The writer renamed or removed it after the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(io(error)),
            };
            names.extend(entry.file_name().into_string().ok().filter(|name| is_file && is_name(name)));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        assert_name(name);
        self.lock(Operation::Remove, name)?;
        let mut names = self.names();
        names.check(name)?;
        fs::remove_file(self.path(name))
            .and_then(|()| names.sync())
            .map_err(|source| failed(Operation::Remove, name, 0, source))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        assert_name(from);
        assert_name(to);
        self.lock(Operation::Rename, from)?;
        let mut names = self.names();
        names.check(from)?;
        self.check_free(Operation::Rename, to)?;
        fs::rename(self.path(from), self.path(to))
            .and_then(|()| names.sync())
            .map_err(|source| failed(Operation::Rename, from, 0, source))
    }
}

/// Reserves a new file that reads as zeros; fills it if the file system cannot do that.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match os::reserve(file, bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => fill(file, bytes),
        other => other.and_then(|()| file.sync_all()),
    }
}

/// Gives a new file its length and no space, if the file system can reserve a part of it and take that back.
fn leave_sparse(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    os::reserve_range(file, 0, BLOCK_BYTES as u64)?;
    os::punch_hole(file, 0, BLOCK_BYTES as u64)?;
    file.sync_all()
}

/// Reserves and fills a new file, and makes its content persistent; its name is not persistent yet.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    match os::reserve(file, bytes) {
        // A file system that cannot reserve (NFS before 4.2) can still be filled, which reserves the space.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(bytes)?,
        other => other?,
    }
    let zeros = AlignedBuffer::zeroed(ZEROS_BYTES);
    let mut offset = 0;
    while offset < bytes {
        let piece = &zeros[..zeros.len().min((bytes - offset) as usize)];
        write_fully(offset, piece, |offset, rest| file.write_at(rest, offset))?;
        offset += piece.len() as u64;
        if offset.is_multiple_of(FILL_FLUSH_BYTES) {
            file.sync_data()?;
        }
    }
    file.sync_all()
}

/// The size of a file that was created here; anything else in the directory is not a device.
fn device_bytes(name: &str, file: &File) -> Result<u64, DeviceError> {
    let found = file.metadata().map_err(|source| failed(Operation::Open, name, 0, source))?;
    let bytes = found.len();
    if !found.is_file() || bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(DeviceError::NotADevice { name: name.into(), bytes });
    }
    Ok(bytes)
}

/// The kind of files for which no option is used.
fn kind_of(found: FileSystem) -> FileKind {
    let durability = if found.is_volatile() { Durability::None } else { Durability::PowerFailSafe };
    let (file_system, refused) = (found.name(), Vec::new());
    FileKind { direct: false, uring: false, batches: false, file_system, durability, refused }
}

/// The ring for batches, if it is wanted, of use, and the kernel has one.
fn batch_ring(is_wanted: bool, found: FileSystem, refused: &mut Vec<String>) -> Option<Arc<BatchRing>> {
    if !is_wanted {
        return None;
    }
    if found.is_volatile() {
        refused.push("memory needs no io_uring for batches".into());
        return None;
    }
    let ring = BatchRing::probe();
    ring.inspect_err(|why| refused.push(format!("io_uring cannot be used for batches ({why})"))).ok().map(Arc::new)
}

/// Removes files that a crash inside create left.
fn remove_unfinished(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_unfinished =
            entry.file_name().to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(MAKING_SUFFIX));
        if is_unfinished {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether the file system accepts `O_DIRECT`: tried by writing one block, because some refuse at open and some at I/O.
fn probe_direct(directory: &Path) -> io::Result<bool> {
    let path = directory.join(format!(".probe{MAKING_SUFFIX}"));
    let open = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT).open(&path);
    let wrote = open.and_then(|file| file.write_all_at(&AlignedBuffer::zeroed(BLOCK_BYTES), 0));
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    accepted(wrote)
}

/// As [`probe_direct`], for a viewer, which may not write: tried by reading the lock file. If there is none no process
/// writes, and the page cache is sufficient. Beside a writer with `O_DIRECT` it is not: Linux keeps the two coherent
/// only on a best-effort basis (open(2), NOTES).
fn probe_direct_read(directory: &Path) -> io::Result<bool> {
    let open = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(directory.join(LOCK_NAME));
    match open.and_then(|file| file.read_at(&mut AlignedBuffer::zeroed(BLOCK_BYTES), 0)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => accepted(other.map(drop)),
    }
}

fn accepted(direct: io::Result<()>) -> io::Result<bool> {
    match direct {
        Ok(()) => Ok(true),
        // This is not a refusal of direct access. A full disk must not prevent stored data from being opened.
        Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_whose_directory_could_not_be_synced_changes_no_name_until_it_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || FileShelf::open(folder.path(), FileOptions::default()).expect("opens");
        let shelf = open();
        for name in ["a", "b"] {
            shelf.create(name, BLOCK_BYTES as u64).expect("creates");
        }
        // A sync of this device is refused.
        shelf.names().directory = Some(File::open("/dev/null").expect("opens"));
        let failed = shelf.create("c", BLOCK_BYTES as u64).expect_err("its name is not persistent");
        assert!(matches!(failed, DeviceError::Io { .. }), "{failed}");
        for error in [
            shelf.create("c", BLOCK_BYTES as u64).map(drop),
            shelf.create("d", BLOCK_BYTES as u64).map(drop),
            shelf.rename("a", "e"),
            shelf.remove("b"),
        ] {
            assert!(matches!(error, Err(DeviceError::Poisoned { .. })), "{error:?}");
        }
        drop(shelf);
        let shelf = open();
        assert_eq!(shelf.list().expect("lists"), ["a", "b", "c"]);
        shelf.rename("c", "d").expect("goes on");
    }

    #[test]
    fn a_full_disk_does_not_keep_a_shelf_from_being_opened() {
        let answer = |code| accepted(Err(io::Error::from_raw_os_error(code))).ok();
        assert_eq!([libc::ENOSPC, libc::EDQUOT].map(answer), [Some(true); 2]);
        assert_eq!([libc::EINVAL, libc::EOPNOTSUPP].map(answer), [Some(false); 2], "direct access is refused");
        assert_eq!([libc::EIO, libc::EACCES].map(answer), [None; 2], "other errors are told");
    }
}
