//! A directory on persistent memory as a shelf: a file shelf for everything about names, and a mapping for the bytes of
//! every device.
//!
//! ```text
//!   create, open, rename, remove, lock     FileShelf, buffered        names and lengths are metadata of the kernel
//!   read, write, flush                     PmemDevice on FileMapping  instructions
//! ```
//!
//! Opening a device first flushes its file through the kernel (the file shelf does that). This is sufficient for stores
//! that a killed predecessor left in the caches: the kernel has marked every page that was made writable through a
//! mapping as dirty, including synchronous ones (Linux, fs/dax.c, `dax_insert_pfn_mkwrite`), and fsync(2) writes back
//! all lines of all dirty pages, whichever process stored to them.
//!
//! The capabilities of the file system are determined once, when the shelf is opened, with a file that is removed
//! again.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::device::PmemDevice;
use super::domain::detect;
use super::instructions::Instructions;
use super::mapping::{Access, FileMapping, is_synchronous};
use super::{Domain, Granularity};
use crate::contract::assert_name;
use crate::file::{FileDevice, LOCK_NAME, failed};
use crate::{BLOCK_BYTES, Device, DeviceError, Durability, FileOptions, FileShelf, Operation, Shelf};

/// Where the kernel describes persistent memory.
const SYSFS: &str = "/sys";

/// The file with which the shelf tests the file system. If a crash leaves it, the next writer removes it.
const PROBE_NAME: &str = ".mapping-probe.making";

/// What to do if the file system cannot map synchronously: it is not on persistent memory, or not mounted for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absent {
    /// Refuse, with an error that names what to mount. The default.
    #[default]
    Refuse,
    /// Map it anyway and make pages persistent by msync(2): blocks of 4096 bytes, a system call for each flush, and the
    /// durability of the file system below.
    Pages,
    /// Map it anyway and behave as if lines were persistent: for tests and for models. Always [`Durability::Emulated`].
    Emulate,
}

/// How to use persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmemOptions {
    /// What to do if there is no persistent memory; default: refuse.
    pub absent: Absent,
}

/// How the devices of a shelf are actually mapped; reports print it beside every figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Whether the kernel maps synchronously (`MAP_SYNC`): real persistent memory, persistent by instructions.
    pub synchronous: bool,
    /// The unit in which writes become persistent.
    pub granularity: Granularity,
    /// What the power supply preserves.
    pub domain: Domain,
    /// The instruction that writes a line back: `clwb`, `clflushopt`, `clflush`, `dc cvap`, `dc cvac`; `none` if none
    /// is used (eADR, page granularity, opened read-only).
    pub write_back: &'static str,
    /// Whether persistence by line is only emulated.
    pub emulated: bool,
    /// The file system, by its usual name.
    pub file_system: String,
    /// The durability of a flush there.
    pub durability: Durability,
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = if self.synchronous { "MAP_SYNC" } else { "no MAP_SYNC" };
        let granularity = match self.granularity {
            Granularity::Line => "by line",
            Granularity::Page => "by page",
        };
        let domain = match self.domain {
            Domain::Adr => "ADR",
            Domain::Eadr => "eADR",
            Domain::Unknown => "unknown (taken for ADR)",
        };
        let Mapping { file_system, write_back, durability, .. } = self;
        write!(
            f,
            "{file_system}, {sync}, {granularity}, persistence domain {domain}, write-back {write_back}, {durability}"
        )
    }
}

type Mapped = PmemDevice<Arc<FileMapping>>;

/// Mappings that are kept although their devices are closed. A log recycles its segments: mapping 64 MiB again and
/// touching every page took 16 ms of a core each time (2026-11-21, tmpfs, perf), as much as 60,000 records of 1 KiB.
///
/// Only mappings by line are kept. A mapping by page would keep the cached pages that a failed sync left, but opening
/// must read the medium.
const KEPT_MAX: usize = 4;

/// Devices that are mapped files of one directory.
pub struct PmemShelf {
    directory: PathBuf,
    files: FileShelf,
    instructions: Instructions,
    mapping: Mapping,
    /// The devices that were opened for writing, by name, for [`PmemShelf::inject_poison`].
    opened: Mutex<Vec<(String, Weak<Mapped>)>>,
    /// The mappings by line that were opened for writing last, newest first.
    kept: Mutex<VecDeque<Arc<FileMapping>>>,
}

impl PmemShelf {
    /// Opens a directory for reading and writing; creates it if necessary. Only one process at a time can.
    ///
    /// Errors: [`DeviceError::NotPersistentMemory`], and those of [`FileShelf::open`].
    pub fn open(directory: &Path, options: PmemOptions) -> Result<PmemShelf, DeviceError> {
        let instructions = instructions(directory)?;
        let files = FileShelf::open(directory, FileOptions { direct: false, uring: false, batches: false })?;
        let granted = probe(directory).map_err(|source| failed(Operation::Open, &shown(directory), 0, source))?;
        // A medium that loses its content without power is not persistent memory, whatever is granted: an emulator of
        // system calls may ignore a flag that it does not know (QEMU 7.2 does).
        let synchronous = granted && files.kind().durability == Durability::PowerFailSafe;
        let absent = if synchronous { None } else { Some(options.absent) };
        let domain = detect(Path::new(SYSFS));
        let granularity = match absent {
            Some(Absent::Refuse) => return Err(refused(&shown(directory), &files.kind().file_system)),
            Some(Absent::Pages) => Granularity::Page,
            Some(Absent::Emulate) | None => Granularity::Line,
        };
        let durability = match absent {
            None => Durability::PowerFailSafe,
            Some(Absent::Emulate) => Durability::Emulated,
            Some(_) => files.kind().durability,
        };
        let writes_back = granularity == Granularity::Line && domain != Domain::Eadr;
        let mapping = Mapping {
            synchronous,
            granularity,
            domain,
            write_back: if writes_back { instructions.write_back_name() } else { "none" },
            emulated: absent == Some(Absent::Emulate),
            file_system: files.kind().file_system.clone(),
            durability,
        };
        Ok(PmemShelf {
            directory: directory.into(),
            files,
            instructions,
            mapping,
            opened: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// Opens a directory for reading, even while another process writes it. Takes no lock and changes nothing. Blocks
    /// are words of 8 bytes, however the writer maps: a viewer may read any of them.
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::Io`].
    pub fn open_read_only(directory: &Path) -> Result<PmemShelf, DeviceError> {
        let instructions = instructions(directory)?;
        let files = FileShelf::open_read_only(directory)?;
        let io = |source| failed(Operation::Open, &shown(directory), 0, source);
        // Every writer leaves a lock file; if there is none, there are no devices.
        let synchronous = match File::open(directory.join(LOCK_NAME)) {
            Ok(file) => is_synchronous(&file, Access::Read).map_err(io)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io(error)),
        };
        // As for a writer: a medium that loses its content without power is not persistent memory, whatever is granted.
        let synchronous = synchronous && files.kind().durability == Durability::PowerFailSafe;
        let mapping = Mapping {
            synchronous,
            granularity: Granularity::Line,
            domain: detect(Path::new(SYSFS)),
            write_back: "none",
            emulated: !synchronous,
            file_system: files.kind().file_system.clone(),
            durability: if synchronous { Durability::PowerFailSafe } else { Durability::Emulated },
        };
        Ok(PmemShelf {
            directory: directory.into(),
            files,
            instructions,
            mapping,
            opened: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// How the devices are actually mapped.
    pub fn mapping(&self) -> Mapping {
        self.mapping.clone()
    }

    /// Makes the kernel treat the page of 4096 bytes at `offset` as broken, as if the memory had reported it
    /// (`MADV_HWPOISON`). **It destroys the page, and the machine may lose that piece of memory until its next start:
    /// for a test in a virtual machine, never on a host.** Needs `CAP_SYS_ADMIN`, and a handle of the device that is
    /// open for writing.
    ///
    /// Errors: [`DeviceError::NotFound`] (no such handle), [`DeviceError::Io`].
    pub fn inject_poison(&self, name: &str, offset: u64) -> Result<(), DeviceError> {
        let found =
            self.opened().iter().rev().find(|(opened, _)| opened == name).and_then(|(_, device)| device.upgrade());
        let device = found.ok_or_else(|| DeviceError::NotFound { name: name.into() })?;
        assert!(
            offset.is_multiple_of(BLOCK_BYTES as u64) && offset < device.len(),
            "no page of {name} starts at {offset}"
        );
        device.lines().inject_poison(offset).map_err(|source| failed(Operation::Write, name, offset, source))
    }

    fn opened(&self) -> MutexGuard<'_, Vec<(String, Weak<Mapped>)>> {
        // The list is consistent after any panic, because it is only pushed to and dropped from.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, name: &str, file: Arc<FileDevice>, writable: bool) -> Result<Arc<Mapped>, DeviceError> {
        let Mapping { synchronous, granularity, domain, durability, .. } = self.mapping;
        let access = match (writable, granularity) {
            (false, _) => Access::Read,
            (true, Granularity::Line) => Access::Write,
            (true, Granularity::Page) => Access::WriteByPage,
        };
        let io = |source| failed(Operation::Open, name, 0, source);
        let is_kept = access == Access::Write;
        let kept = if is_kept { self.take_kept(&file.file).map_err(io)? } else { None };
        // Losses are detected again after each opening.
        let kept = kept.filter(|mapped| mapped.is_whole());
        let mapped = match kept {
            Some(mapped) => {
                // Opening has flushed the file, after which stores fault again.
                mapped.warm(access);
                mapped
            }
            None => Arc::new(
                FileMapping::of(file, self.instructions, access, synchronous)
                    .map_err(io)?
                    // The directory supports it, but this file does not: with dax=inode, DAX is a property of each
                    // file.
                    .ok_or_else(|| refused(name, &self.mapping.file_system))?,
            ),
        };
        if is_kept {
            let mut kept = self.kept();
            kept.push_front(mapped.clone());
            kept.truncate(KEPT_MAX);
        }
        Ok(Arc::new(PmemDevice::new(name, mapped, (granularity, domain), durability, writable)))
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<FileMapping>>> {
        // The list is consistent after any panic, because it is only pushed to and dropped from.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the mapping of a file from the list.
    fn take_kept(&self, file: &File) -> io::Result<Option<Arc<FileMapping>>> {
        let mut kept = self.kept();
        for index in 0..kept.len() {
            if kept[index].is_of(file)? {
                return Ok(kept.remove(index));
            }
        }
        Ok(None)
    }

    fn map_to_write(&self, name: &str, file: Arc<FileDevice>) -> Result<Arc<dyn Device>, DeviceError> {
        let device = self.map(name, file, true)?;
        let mut opened = self.opened();
        opened.retain(|(_, device)| device.strong_count() > 0);
        opened.push((name.into(), Arc::downgrade(&device)));
        Ok(device)
    }
}

impl fmt::Debug for PmemShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PmemShelf {{ directory: {:?}, mapping: {} }}", self.directory, self.mapping)
    }
}

impl Shelf for PmemShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        let file = self.files.create_file(name, bytes)?;
        let mapped = self.map_to_write(name, file);
        if mapped.is_err() {
            // The device is unusable, and each further attempt would leave another. The first error is returned.
            let _ = self.files.remove(name);
        }
        mapped
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.files.free_bytes()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.map_to_write(name, self.files.open_file(name)?)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.map(name, self.files.open_file_read_only(name)?, false)?)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.files.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        assert_name(name);
        // Its space is freed only when it is not mapped any more.
        if let Ok(file) = File::open(self.directory.join(name)) {
            self.take_kept(&file).map_err(|source| failed(Operation::Remove, name, 0, source))?;
        }
        self.files.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.files.rename(from, to)?;
        assert_name(to);
        for (name, _) in self.opened().iter_mut().filter(|(name, _)| name == from) {
            *name = to.into();
        }
        Ok(())
    }
}

fn shown(directory: &Path) -> String {
    directory.display().to_string()
}

fn instructions(directory: &Path) -> Result<Instructions, DeviceError> {
    Instructions::find().map_err(|why| DeviceError::NotPersistentMemory { name: shown(directory), why })
}

fn refused(name: &str, file_system: &str) -> DeviceError {
    let why = format!("its {file_system} does not map synchronously (MAP_SYNC)");
    DeviceError::NotPersistentMemory { name: name.into(), why }
}

/// Whether files of a directory can be mapped synchronously: tried with a file that is removed again.
fn probe(directory: &Path) -> io::Result<bool> {
    let path = directory.join(PROBE_NAME);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    let answer = file.set_len(BLOCK_BYTES as u64).and_then(|()| is_synchronous(&file, Access::Write));
    fs::remove_file(&path)?;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_mapped_is_not_left_behind() {
        let home = tempfile::tempdir().expect("temporary directory");
        let options = PmemOptions { absent: Absent::Emulate };
        let mut shelf = PmemShelf::open(home.path(), options).expect("open a shelf");
        // The probe of the directory succeeded, but its files cannot be mapped: those of an ordinary file system never
        // can.
        let real = std::mem::replace(&mut shelf.mapping.synchronous, true);
        if real {
            println!("skipped: the temporary directory lies on persistent memory");
            return;
        }
        for _ in 0..2 {
            let refused = shelf.create("a", BLOCK_BYTES as u64).expect_err("cannot be mapped synchronously");
            assert!(matches!(refused, DeviceError::NotPersistentMemory { .. }), "{refused}");
            assert_eq!(shelf.list().expect("list"), [""; 0]);
        }
    }
}
