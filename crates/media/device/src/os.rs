//! Linux calls that the standard library does not offer, each as a safe function.
//!
//! Locks (`File::try_lock` is `flock`), positioned reads and writes, `fdatasync` and `O_DIRECT` are in the standard
//! library. The rest is here: the space of a file system, the CPU time of a process, and its limit of open files.
//! Nothing here keeps state or retries a failure.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

/// The mode of files with stored data: accessible to their owner only. Messages are about patients.
pub const PRIVATE_FILE: u32 = 0o600;

/// The mode of folders, likewise.
pub const PRIVATE_FOLDER: u32 = 0o700;

/// From now on files that this process creates are accessible to its user only, whatever the umask of the shell was
/// (umask(2)).
pub fn make_all_private() {
    // SAFETY: umask takes and answers a number, and cannot fail.
    unsafe { libc::umask(0o077) };
}

/// Creates a directory and its missing ancestors, and makes the name of each persistent: its content must not disappear
/// with it. The created ones are accessible to their user only ([`PRIVATE_FOLDER`]).
///
/// Errors: those of the system; some of the ancestors may have been created.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_directory(parent)?;
    match fs::DirBuilder::new().mode(PRIVATE_FOLDER).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
        other => other?,
    }
    sync_directory(parent)
}

/// Makes the names of a directory persistent.
///
/// Errors: those of the system; which names are persistent is then unknown.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Replaces a small file by another content, or makes it: whole and persistent when it returns, as before after a crash or an error. A
/// file `.NAME.part` beside it is used meanwhile.
///
/// Errors: those of the system.
///
/// # Panics
/// If the path does not end with a name.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().expect("a file has a name");
    let part = path.with_file_name(format!(".{}.part", name.to_string_lossy()));
    let mut file = File::create(&part)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    sync_parent(path)
}

/// Removes a file; persistent when it returns.
///
/// Errors: those of the system.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    sync_parent(path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        _ => sync_directory(Path::new(".")),
    }
}

/// A counter of the kernel (eventfd(2)): it is readable while it is not zero, a write adds to it, a read sets it to zero. Neither waits.
///
/// Errors: no descriptor is free.
pub(crate) fn event_counter() -> io::Result<File> {
    // SAFETY: eventfd takes and returns numbers.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this call, so nobody else owns or closes it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// The file system of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The `f_type` of statfs(2), for reports.
    pub magic: u64,
    /// Bytes that an unprivileged process may still allocate.
    pub free_bytes: u64,
}

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of statfs(2): file systems whose content is lost without power.
const VOLATILE_MAGICS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

impl FileSystem {
    /// Whether its files are lost without power.
    pub fn is_volatile(self) -> bool {
        VOLATILE_MAGICS.contains(&self.magic)
    }

    /// The usual name, or the magic number in hexadecimal if this table does not contain it (statfs(2) lists them).
    pub fn name(self) -> String {
        let known = match self.magic {
            0x0102_1994 => "tmpfs",
            0x8584_58f6 => "ramfs",
            0xef53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0xf2f5_2010 => "f2fs",
            0x2fc1_2fc1 => "zfs",
            0x794c_7630 => "overlayfs",
            0x6969 => "nfs",
            0x6573_5546 => "fuse",
            other => return format!("file system 0x{other:x}"),
        };
        known.into()
    }
}

/// Calls statfs(2) for the file system of `path`.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut out = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: path is a NUL-terminated string and out a statfs to fill; both live until the call returns.
    let result = unsafe { libc::statfs(path.as_ptr(), out.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statfs returned success, so the kernel has filled the whole structure.
    let out = unsafe { out.assume_init() };
    // The widths differ between architectures; none of these values is negative.
    let magic = out.f_type as u64 & 0xffff_ffff;
    Ok(FileSystem { magic, free_bytes: out.f_bavail.saturating_mul(out.f_bsize as u64) })
}

/// Bytes that an unprivileged process may still allocate on the file system of `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    file_system(path).map(|found| found.free_bytes)
}

/// Allocates the first `bytes` of a file and sets its length to that: fallocate(2) with mode 0. The space is reserved
/// but, on most file systems, marked unwritten; the first write to each part still changes metadata.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    fallocate(file, 0, 0, bytes)
}

/// As [`reserve`], for a range inside a file; the length stays.
pub fn reserve_range(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_KEEP_SIZE, offset, bytes)
}

/// Returns a range of a file to the file system; it reads as zeros afterwards. The length stays.
pub fn punch_hole(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, bytes)
}

fn fallocate(file: &File, mode: libc::c_int, offset: u64, bytes: u64) -> io::Result<()> {
    let (offset, bytes) = (file_offset(offset)?, file_offset(bytes)?);
    loop {
        // SAFETY: no memory is passed; the descriptor is open for as long as file is borrowed.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Where the next bytes of a file are that have been written, at `offset` or after it; `None`: there are none up to its end. lseek(2)
/// `SEEK_DATA`; it moves the position of the descriptor, which nothing here uses. Space that was reserved and not written counts as a hole.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, offset, libc::SEEK_DATA)
}

/// Where the next hole of a file is, at `offset` or after it; its end counts as one. As [`next_data`].
pub fn next_hole(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, offset, libc::SEEK_HOLE)
}

fn seek(file: &File, offset: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    let offset = file_offset(offset)?;
    // SAFETY: no memory is passed; the descriptor is open for as long as file is borrowed.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if let Ok(found) = u64::try_from(found) {
        return Ok(Some(found));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

/// Drops the clean cached pages of a file, so that the next read goes to the medium: posix_fadvise(2) `DONTNEED`.
pub fn drop_cache(file: &File) -> io::Result<()> {
    // SAFETY: no memory is passed; the descriptor is open for as long as file is borrowed.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Time since the machine started, including suspended time; it cannot be set: clock_gettime(2) `CLOCK_BOOTTIME`.
pub fn boot_time() -> io::Result<Duration> {
    let mut out = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: out is a timespec to fill and lives until the call returns.
    if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, out.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: clock_gettime returned success, so the kernel has filled the whole structure.
    let out = unsafe { out.assume_init() };
    // Neither is negative: the machine started before now.
    Ok(Duration::new(out.tv_sec as u64, out.tv_nsec as u32))
}

/// User plus system time of this process, including all of its threads: getrusage(2) `RUSAGE_SELF`.
pub fn cpu_time() -> io::Result<Duration> {
    let mut out = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: out is an rusage to fill and lives until the call returns.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, out.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: getrusage returned success, so the kernel has filled the whole structure.
    let out = unsafe { out.assume_init() };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(of(out.ru_utime) + of(out.ru_stime))
}

/// Makes the calling thread allocate its memory from one NUMA node from now on: set_mempolicy(2) `MPOL_BIND`. Memory
/// that it has already touched stays in place; other threads are not affected.
///
/// Errors: those of the system; `InvalidInput` for a node that Linux cannot have.
pub fn allocate_on(node: u32) -> io::Result<()> {
    // include/uapi/linux/mempolicy.h; at most 1024 nodes (CONFIG_NODES_SHIFT).
    const MPOL_BIND: libc::c_long = 2;
    const NODES: usize = 1024;
    let mut mask = [0 as libc::c_ulong; NODES / libc::c_ulong::BITS as usize];
    let (word, bit) = (node as usize / libc::c_ulong::BITS as usize, node % libc::c_ulong::BITS);
    *mask.get_mut(word).ok_or(io::ErrorKind::InvalidInput)? = 1 << bit;
    // SAFETY: the mask has NODES bits and lives until the call returns. The kernel reads one bit less than the given
    // number.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, mask.as_ptr(), NODES as libc::c_ulong + 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number of descriptors (files, sockets) that this process may have open: getrlimit(2) `RLIMIT_NOFILE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The current limit.
    pub soft: u64,
    /// The limit up to which a process may raise it without privileges.
    pub hard: u64,
}

/// Returns the limit of descriptors.
///
/// Errors: those of the system.
pub fn descriptor_limit() -> io::Result<DescriptorLimit> {
    let mut out = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: out is an rlimit to fill and lives until the call returns.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, out.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: getrlimit returned success, so the kernel has filled the whole structure.
    let out = unsafe { out.assume_init() };
    Ok(DescriptorLimit { soft: out.rlim_cur, hard: out.rlim_max })
}

/// Sets the soft limit of descriptors; the hard one stays: setrlimit(2).
///
/// Errors: those of the system, also for a limit above the hard one.
pub fn set_descriptor_limit(soft: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: descriptor_limit()?.hard };
    // SAFETY: limit is an rlimit to read and lives until the call returns.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn file_offset(value: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(value).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_reserved_file_has_its_blocks_and_a_punched_one_gives_them_back() {
        let file = tempfile::tempfile().expect("temporary file");
        reserve(&file, 1 << 20).expect("reserve");
        assert_eq!(file.metadata().expect("metadata").len(), 1 << 20);
        assert!(file.metadata().expect("metadata").blocks() * 512 >= 1 << 20);
        punch_hole(&file, 0, 1 << 20).expect("punch");
        assert_eq!(file.metadata().expect("metadata").len(), 1 << 20);
        assert!(file.metadata().expect("metadata").blocks() * 512 < 1 << 20);
        drop_cache(&file).expect("drop cache");
    }

    #[test]
    fn a_size_no_file_can_have_is_an_error_not_a_wrapped_number() {
        let file = tempfile::tempfile().expect("temporary file");
        assert_eq!(reserve(&file, u64::MAX).expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn memory_is_taken_from_a_node_that_is_there_and_another_is_an_error() {
        std::thread::spawn(|| {
            assert_eq!(allocate_on(100_000).expect_err("no such number").kind(), io::ErrorKind::InvalidInput);
            assert!(allocate_on(1000).is_err(), "no machine of ours has a thousand nodes");
            match allocate_on(0) {
                Ok(()) => assert_eq!(vec![7u8; 1 << 20].iter().map(|byte| u64::from(*byte)).sum::<u64>(), 7 << 20),
                // A container may not be allowed to, and a kernel may not support nodes.
                Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}"),
            }
        })
        .join()
        .expect("the thread ends");
    }

    #[test]
    fn the_limit_of_descriptors_is_told_and_the_soft_one_is_raised_to_the_hard_one_and_not_beyond() {
        let before = descriptor_limit().expect("getrlimit");
        assert!(before.soft <= before.hard);
        set_descriptor_limit(before.hard).expect("up to the hard one");
        assert_eq!(descriptor_limit().expect("getrlimit"), DescriptorLimit { soft: before.hard, ..before });
        if let Some(beyond) = before.hard.checked_add(1) {
            assert!(set_descriptor_limit(beyond).is_err(), "not beyond");
        }
    }

    #[test]
    fn the_file_system_of_a_directory_has_a_name_and_free_space() {
        let found = file_system(&std::env::temp_dir()).expect("statfs");
        assert!(!found.name().is_empty());
        assert!(free_bytes(&std::env::temp_dir()).expect("statfs") > 0);
        assert!(FileSystem { magic: 0x0102_1994, free_bytes: 0 }.is_volatile());
        assert!(!FileSystem { magic: 0xef53, free_bytes: 0 }.is_volatile());
    }
}
