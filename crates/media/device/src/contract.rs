//! The contract of a device and of a shelf of devices: what a caller may rely on, on every medium.
//!
//! # States
//!
//! ```text
//!               write or flush fails
//!     Open  ------------------------->  Poisoned
//!      ^   read, write, flush, discard     |  read: as before;  write, flush, discard: DeviceError::Poisoned
//!      |                                   |
//!      +--- drop the handle, Shelf::open --+  (recovery decides again what is there)
//! ```
//!
//! A failed flush is never retried and then believed. On Linux a second `fsync` may answer success although the pages
//! whose write-back failed were dropped (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC
//! 2020; the PostgreSQL "fsyncgate" thread, 2018). So the first failure of a write, a flush or a discard poisons the
//! handle: what was written since the last successful flush is unknown, sector by sector, and stays unknown until
//! somebody opens the device anew, reads it, and decides.
//!
//! # What survives a crash
//!
//! Three moments of a write: *called*, *completed* (it returned `Ok`), *persistent*.
//!
//! 1. **Flush.** When a flush returns `Ok`, every write and discard on that device that had completed before the flush
//!    was *called* is persistent. Writes that overlap the flush in time are not covered.
//! 2. **Atomicity.** The unit is the *atom*, [`Device::atom_bytes`]: a sector of [`SECTOR_BYTES`] on drives, 8 bytes on
//!    persistent memory. After a crash an atom holds the bytes of exactly one write, never a mixture. Nothing larger is
//!    atomic. A 4 KiB block may come back as any mixture of old and new atoms.
//! 3. **Order.** None between flushes. An atom may come back as the last persistent write left it, or as any later
//!    write to it did, whether or not that write completed; each atom independently of every other.
//! 4. **No invention.** An atom that no write touched since the last flush comes back unchanged. (Damage by the medium
//!    itself is outside this contract; records certify themselves by checksums.)
//! 5. **Open.** What reads return once [`Shelf::open`] has returned is persistent: opening flushes. A process killed
//!    between write and flush leaves bytes that a successor can read and a power failure could still take; without this
//!    rule recovery might acknowledge them.
//! 6. **Names.** [`Shelf::create`], [`Shelf::remove`] and [`Shelf::rename`] are atomic, and persistent when they return.
//!    A crash inside the call leaves either outcome, never a third: a name that exists has its full length, and reads
//!    as zeros until written. A call that fails with [`DeviceError::Io`] leaves either outcome too, and which one is
//!    not persistent yet: open the shelf anew. Every other error changed nothing.
//!
//! # Concurrency
//!
//! Any number of threads may use one device. A read sees every write that completed before it was called. A read that
//! overlaps a write in time sees old or new bytes, atom by atom. Two writes that overlap in time *and* in range
//! leave the range undefined (any mixture of the two) until the next write there; on the medium as in the cache.
//!
//! # Alignment
//!
//! Offsets and lengths are multiples of [`Device::block_bytes`], which differs from kind to kind, and ranges lie inside [`Device::len`]; anything else is
//! a programmer's error and panics. Buffers may lie anywhere in memory; an aligned one ([`crate::AlignedBuffer`]) spares
//! a copy. A device never grows or shrinks.

use std::fmt;
use std::sync::Arc;

use crate::DeviceError;

/// Bytes that a crash leaves whole: the old ones or the new ones, never a mixture.
///
/// 512 is the smallest logical block any block device of Linux has; a drive with 4 KiB sectors promises more, and no
/// engine here relies on it.
pub const SECTOR_BYTES: usize = 512;

/// The block of most devices: offsets and lengths are multiples of it. Persistent memory mapped by line has a smaller one.
/// The size of every device is a multiple of this one, whatever its block.
///
/// 4 KiB is the page of the CPU and the physical sector of current drives, so that a block written whole never makes the
/// drive read before it writes.
pub const BLOCK_BYTES: usize = 4096;

/// What a flush is worth on a medium; reports print it beside every figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Persistent against loss of power, provided the drive honours a cache flush.
    PowerFailSafe,
    /// Behaves like a persistent medium but is not one: a crash simulator, a timing model, or persistent memory emulated on
    /// an ordinary mapping.
    Emulated,
    /// Gone with the process or with the machine: memory, and files on `tmpfs`.
    None,
}

impl Durability {
    /// The key that reports and JSON results use.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::PowerFailSafe => "power-fail-safe",
            Durability::Emulated => "emulated",
            Durability::None => "none",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A fixed number of bytes that can be read, written and made persistent. The module documentation is the contract.
#[expect(clippy::len_without_is_empty, reason = "a device is a place, not a collection: it is never empty")]
pub trait Device: Send + Sync + fmt::Debug {
    /// Size in bytes, a multiple of [`block_bytes`](Device::block_bytes); never changes.
    fn len(&self) -> u64;

    /// The unit of offsets and lengths, a power of two up to [`BLOCK_BYTES`], which is the default; [`WORD_BYTES`] for
    /// persistent memory mapped by line.
    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    /// What a crash leaves whole, a power of two; [`SECTOR_BYTES`] unless the kind says otherwise.
    fn atom_bytes(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    /// Whether [`write_flush`](Device::write_flush) is a matter of instructions: about a microsecond on the calling
    /// thread, and no system call. Callers then write themselves, under their own locks, instead of handing the
    /// write to another thread or gathering a group for it. Default false.
    fn is_inline(&self) -> bool {
        false
    }

    /// A [`flush`](Device::flush) that also empties what the medium's own power protection covers: against a module whose
    /// protection fails. Slower; for a clean shutdown and for checks. The same as a flush where there is no such thing.
    ///
    /// Errors, all of which poison: as for [`flush`](Device::flush).
    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.flush()
    }

    /// Fills `buffer` from `offset`; sees every write that completed before the call. Works on a poisoned device too,
    /// where it says nothing about what is persistent.
    ///
    /// Errors: [`DeviceError::Io`] and [`DeviceError::Lost`], which do not poison.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;

    /// Writes all of `data` at `offset`. Volatile until a flush that is called after this returns.
    ///
    /// Errors, all of which poison: [`DeviceError::Io`], [`DeviceError::Full`] (only where the range had been
    /// discarded); and [`DeviceError::Poisoned`], [`DeviceError::ReadOnly`].
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Makes every write and discard that completed before this call persistent.
    ///
    /// Errors, all of which poison: [`DeviceError::Io`]; and [`DeviceError::Poisoned`], [`DeviceError::ReadOnly`].
    fn flush(&self) -> Result<(), DeviceError>;

    /// [`write`](Device::write), then [`flush`](Device::flush), as one request where the medium can. When it returns
    /// `Ok`, `data` is persistent, and so is everything that had completed before the call. A crash inside it is a
    /// crash inside the write: any subset of the sectors.
    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, data)?;
        self.flush()
    }

    /// Says that a range is no longer needed. It reads as zeros afterwards; like a write, this is volatile until a
    /// flush. The medium may give the space to others: a later write there can answer [`DeviceError::Full`], and costs
    /// what a first write costs. A journal that recycles its segments never calls this.
    ///
    /// Errors, all of which poison: as for [`write`](Device::write), and [`DeviceError::Unsupported`], which does not.
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// What a flush is worth here.
    fn durability(&self) -> Durability;
}

/// A place that holds devices by name: a directory of files, or its simulation.
///
/// Names are 1 to [`NAME_BYTES_MAX`] characters of `a-z A-Z 0-9 . _ -`, do not start with a dot and are not `lock`;
/// another name is a programmer's error and panics. A handle outlives its name: after [`remove`](Shelf::remove) or
/// [`rename`](Shelf::rename) it still refers to the same bytes.
pub trait Shelf: Send + Sync + fmt::Debug {
    /// Makes a device of `bytes` zeros, all of its space reserved, and opens it. Persistent, its name included, when it
    /// returns; a crash inside leaves the whole device or nothing.
    ///
    /// Errors: [`DeviceError::AlreadyExists`], [`DeviceError::Full`] (nothing is left behind, try again when there is
    /// space), [`DeviceError::ReadOnly`], [`DeviceError::Io`].
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError>;

    /// The same for a device of which much is written between two flushes: its space may be reserved without being written,
    /// which spares as many writes as it has bytes. The first write of each place then costs the file system a note that the
    /// flush behind it makes persistent: little beside pages, much beside the record of a journal. Provided: [`create`](Shelf::create).
    ///
    /// Errors: those of `create`.
    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.create(name, bytes)
    }

    /// Bytes that devices may still be made of; none where nobody knows. Provided: none.
    ///
    /// Errors: [`DeviceError::Io`].
    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        Ok(None)
    }

    /// Opens a device to read and write; flushes it first, so that what it shows is persistent.
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::NotADevice`], [`DeviceError::ReadOnly`], [`DeviceError::Io`].
    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError>;

    /// Opens a device to read, also while another process writes it; what it shows need not be persistent.
    /// Write, flush and discard answer [`DeviceError::ReadOnly`].
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::NotADevice`], [`DeviceError::Io`].
    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError>;

    /// The names of all devices, in byte order.
    ///
    /// Errors: [`DeviceError::Io`].
    fn list(&self) -> Result<Vec<String>, DeviceError>;

    /// Removes a device. Persistent when it returns.
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::ReadOnly`], [`DeviceError::Io`].
    fn remove(&self, name: &str) -> Result<(), DeviceError>;

    /// Gives a device another name, which must be free. Persistent when it returns. Says nothing about the device's
    /// un-flushed writes.
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::AlreadyExists`], [`DeviceError::ReadOnly`],
    /// [`DeviceError::Io`].
    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError>;
}

/// Bytes that persistent memory leaves whole: an aligned store of a word is atomic, nothing larger is (Intel 64 SDM, vol. 3A,
/// "Guaranteed Atomic Operations").
pub const WORD_BYTES: usize = 8;

/// Longest name of a device, in bytes: the 255 of Linux file systems, less a suffix used while a device is made.
pub const NAME_BYTES_MAX: usize = 200;

/// Whether `name` may name a device; the rule is at [`Shelf`].
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name != "lock"
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Panics unless `name` may name a device.
pub(crate) fn assert_name(name: &str) {
    assert!(is_name(name), "not a device name: {name:?}");
}

/// Panics unless `bytes` is a size that a device can have.
pub(crate) fn assert_size(bytes: u64) {
    assert!(bytes > 0, "a device has at least one block");
    assert!(bytes.is_multiple_of(BLOCK_BYTES as u64), "device size {bytes} is not a multiple of {BLOCK_BYTES}");
    assert!(i64::try_from(bytes).is_ok(), "device size {bytes} exceeds what a file offset can address");
}

/// Panics unless the range is aligned to [`BLOCK_BYTES`] and inside a device of `len` bytes.
pub(crate) fn assert_range(len: u64, offset: u64, bytes: u64) {
    assert_range_of(len, BLOCK_BYTES as u64, offset, bytes);
}

/// Panics unless the range is aligned to `block`, a power of two, and inside a device of `len` bytes.
#[inline]
pub(crate) fn assert_range_of(len: u64, block: u64, offset: u64, bytes: u64) {
    // Masks, because a division would cost a twentieth of a small write to persistent memory.
    assert!(offset & (block - 1) == 0, "offset {offset} is not a multiple of {block}");
    assert!(bytes & (block - 1) == 0, "length {bytes} is not a multiple of {block}");
    assert!(
        offset <= len && bytes <= len - offset,
        "range {offset}+{bytes} does not lie inside the device, which has {len} bytes"
    );
}
