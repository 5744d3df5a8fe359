//! The contract of a device and of a shelf of devices: the guarantees to callers on every medium.
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
//! A failed flush is never retried and then trusted. On Linux a second `fsync` may return success although the pages
//! whose write-back failed were dropped (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC
//! 2020; the PostgreSQL "fsyncgate" thread, 2018). So the first failure of a write, a flush or a discard poisons the
//! handle: the state of everything written since the last successful flush is unknown, sector by sector. It stays
//! unknown until the device is opened again, read, and recovered.
//!
//! # What survives a crash
//!
//! Three moments of a write: *called*, *completed* (it returned `Ok`), *persistent*.
//!
//! 1. **Flush.** When a flush returns `Ok`, every write and discard on that device that had completed before the flush
//!    was *called* is persistent. Writes that overlap the flush in time are not covered.
//! 2. **Atomicity.** The unit is the *atom*, [`Device::atom_bytes`]: a sector of [`SECTOR_BYTES`] on drives, 8 bytes on
//!    persistent memory. After a crash an atom contains the bytes of exactly one write, never a mixture. Nothing larger
//!    is atomic: a 4 KiB block may contain any mixture of old and new atoms.
//! 3. **Order.** There is none between flushes. After a crash an atom may contain the last persistent write, or any
//!    later write to it, whether or not that write completed; each atom independently of every other.
//! 4. **No invention.** An atom that no write touched since the last flush is unchanged after a crash. (Damage by the
//!    medium itself is outside this contract; records certify themselves by checksums.)
//! 5. **Open.** Everything that reads return after [`Shelf::open`] has returned is persistent, because opening flushes.
//!    A process that is killed between write and flush leaves bytes that its successor can read but a power failure
//!    could still remove; without this rule recovery might acknowledge them.
//! 6. **Names.** [`Shelf::create`], [`Shelf::remove`] and [`Shelf::rename`] are atomic, and persistent when they
//!    return. A crash inside the call leaves one of the two outcomes, never a third: a name that exists has its full
//!    length, and reads as zeros until written. A call that fails with [`DeviceError::Io`] also leaves one of the two,
//!    which is not persistent yet: open the shelf again. After every other error nothing was changed.
//!
//! # Concurrency
//!
//! Any number of threads may use one device. A read sees every write that completed before the read was called. A read
//! that overlaps a write in time sees old or new bytes, atom by atom. Two writes that overlap in time *and* in range
//! leave the range undefined (any mixture of the two) until the next write there; on the medium as in the cache.
//!
//! # Alignment
//!
//! Offsets and lengths are multiples of [`Device::block_bytes`], which depends on the kind of device, and ranges lie
//! inside [`Device::len`]; anything else is a programming error and panics. Buffers may lie anywhere in memory; an
//! aligned one ([`crate::AlignedBuffer`]) saves a copy. A device never changes its size.

use std::fmt;
use std::sync::Arc;

use crate::batch::{IoKind, IoRequest, IoSink};
use crate::{AlignedBuffer, BLOCK_BYTES, DeviceError, Operation, SECTOR_BYTES};

/// The durability of a flush on a medium; reports print it beside every figure. The weaker one is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Persistent against loss of power, provided the drive honours a cache flush.
    PowerFailSafe,
    /// Behaves like a persistent medium but is not one: a crash simulator, a timing model, or persistent memory emulated on
    /// an ordinary mapping.
    Emulated,
    /// Lost with the process or with the machine: memory, and files on `tmpfs`.
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

/// A part of a device that has space of its own, or has none and reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length, bytes.
    pub bytes: u64,
    /// Whether it has space; if not, it reads as zeros.
    pub has_space: bool,
}

/// Largest single write of [`Device::write_zeroes`] as provided: large enough that the call costs nothing beside the bytes.
const ZEROS_BYTES: u64 = 256 << 10;

/// A fixed number of bytes that can be read, written and made persistent. The head comment of this module is the
/// contract.
#[expect(clippy::len_without_is_empty, reason = "a device is a place, not a collection: it is never empty")]
pub trait Device: Send + Sync + fmt::Debug {
    /// Size in bytes, a multiple of [`block_bytes`](Device::block_bytes); never changes.
    fn len(&self) -> u64;

    /// The unit of offsets and lengths, a power of two up to [`BLOCK_BYTES`], which is the default; [`crate::WORD_BYTES`] for
    /// persistent memory mapped by line.
    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    /// The bytes that a crash leaves whole, a power of two; [`SECTOR_BYTES`] unless the kind of device specifies
    /// otherwise.
    fn atom_bytes(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    /// Whether [`write_flush`](Device::write_flush) takes only instructions: about a microsecond on the calling thread,
    /// and no system call. Callers then write on their own thread, under their own locks, instead of passing the write
    /// to another thread or gathering a group for it. Default false.
    fn is_inline(&self) -> bool {
        false
    }

    /// A [`flush`](Device::flush) that also empties the buffers that the medium's own power protection covers: it
    /// protects against a module whose protection fails. Slower; for a clean shutdown and for checks. If there are no
    /// such buffers, it is the same as a flush.
    ///
    /// Errors, all of which poison: as for [`flush`](Device::flush).
    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.flush()
    }

    /// Fills `buffer` from `offset`; sees every write that completed before the call. Also works on a poisoned device,
    /// but then the bytes need not be persistent.
    ///
    /// Errors: [`DeviceError::Io`] and [`DeviceError::Lost`], which do not poison.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;

    /// Writes all of `data` at `offset`. Volatile until a flush that is called after this returns.
    ///
    /// Errors, all of which poison: [`DeviceError::Io`], [`DeviceError::Full`] (only if the range had been discarded);
    /// and [`DeviceError::Poisoned`], [`DeviceError::ReadOnly`].
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError>;

    /// Makes every write and discard that completed before this call persistent.
    ///
    /// Errors, all of which poison: [`DeviceError::Io`]; and [`DeviceError::Poisoned`], [`DeviceError::ReadOnly`].
    fn flush(&self) -> Result<(), DeviceError>;

    /// [`write`](Device::write), then [`flush`](Device::flush), as one request if the medium supports that. When it
    /// returns `Ok`, `data` is persistent, and so is everything that had completed before the call. A crash inside it
    /// is a crash inside the write: any subset of the sectors may be written.
    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, data)?;
        self.flush()
    }

    /// Marks a range as no longer needed. It reads as zeros afterwards; like a write, this is volatile until a flush.
    /// The medium may give the space to others: a later write there can return [`DeviceError::Full`], and takes as long
    /// as a first write. A journal that recycles its segments never calls this.
    ///
    /// Errors, all of which poison: as for [`write`](Device::write), and [`DeviceError::Unsupported`], which does not. Nor does
    /// [`DeviceError::Full`], where giving space back needs some: each block of the range is as it was, or zero.
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Makes a range read as zeros, as a write does: volatile until a flush. With `free`, its space may be given up, as by a discard;
    /// without, later writes there find their space. Provided: a discard where it may be and can be, otherwise writes.
    ///
    /// Errors, all of which poison: as for [`write`](Device::write).
    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        if free {
            match self.discard(offset, bytes) {
                Err(DeviceError::Unsupported { .. }) => {}
                other => return other,
            }
        }
        let zeros = AlignedBuffer::zeroed(bytes.min(ZEROS_BYTES) as usize);
        let mut at = offset;
        while at < offset + bytes {
            let piece = (offset + bytes - at).min(ZEROS_BYTES);
            self.write(at, &zeros[..piece as usize])?;
            at += piece;
        }
        Ok(())
    }

    /// Which parts of a range have space of their own, in order, together as long as the range; neighbours that are alike may be
    /// given as one. A part without space reads as zeros; space that was reserved and never written may be given as none. Provided: all
    /// of it has.
    ///
    /// Errors: as for [`read`](Device::read).
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        assert_range_of(self.len(), u64::from(self.block_bytes()), offset, bytes);
        Ok(vec![Extent { bytes, has_space: true }])
    }

    /// Makes sure that a range of a device that was made by [`Shelf::create_sparse`] has space: later writes there do not fail for want of
    /// it, until the range is discarded. It changes no byte, and like a write it is volatile until a flush. Provided: there is nothing to
    /// do, since all other devices have all of their space.
    ///
    /// Errors, none of which poisons: [`DeviceError::Full`] (a part of the range may have got its space), [`DeviceError::Io`];
    /// [`DeviceError::Poisoned`], [`DeviceError::ReadOnly`].
    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range_of(self.len(), u64::from(self.block_bytes()), offset, bytes);
        Ok(())
    }

    /// Bytes of the medium that it takes. Provided: its size.
    ///
    /// Errors: [`DeviceError::Io`].
    fn allocated_bytes(&self) -> Result<u64, DeviceError> {
        Ok(self.len())
    }

    /// Starts the requests of `batch`, which it empties, and returns them through `sink`, once each: see [`crate::batch`]. Media that
    /// can wait by themselves (files through io_uring, other nodes) work on many at once. Provided: one after the other,
    /// complete before the call returns.
    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        submit_in_turn(self, batch, sink);
    }

    /// Whether [`submit`](Device::submit) returns without waiting for the medium: the device completes requests on threads of its own.
    /// Callers then hand over many requests from one thread, and need no threads around the device. The answer does not change. The first
    /// question may start these threads. Provided: no.
    fn waits_by_itself(&self) -> bool {
        false
    }

    /// The durability of a flush on this device.
    fn durability(&self) -> Durability;
}

/// Does the requests one after the other on the calling thread: [`Device::submit`] as provided.
pub fn submit_in_turn<D: Device + ?Sized>(device: &D, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
    for mut request in batch.drain(..) {
        let result = request.perform(device);
        sink.complete(request, result);
    }
}

impl IoRequest {
    /// Does the request on the calling thread.
    ///
    /// Errors: those of the method of [`Device`].
    pub fn perform<D: Device + ?Sized>(&mut self, device: &D) -> Result<(), DeviceError> {
        match self.kind {
            IoKind::Read => device.read(self.offset, &mut self.buffer),
            IoKind::Write => device.write(self.offset, &self.buffer),
            IoKind::WriteFlush => device.write_flush(self.offset, &self.buffer),
            IoKind::Flush => device.flush(),
            IoKind::Discard => device.discard(self.offset, self.bytes),
            IoKind::WriteZeroes { free } => device.write_zeroes(self.offset, self.bytes, free),
        }
    }
}

/// A place that contains devices by name: a directory of files, or its simulation.
///
/// Names are 1 to [`NAME_BYTES_MAX`] characters of `a-z A-Z 0-9 . _ -`, do not start with a dot and are not `lock`;
/// any other name is a programming error and panics. A handle outlives its name: after [`remove`](Shelf::remove) or
/// [`rename`](Shelf::rename) it still refers to the same bytes.
pub trait Shelf: Send + Sync + fmt::Debug {
    /// Creates a device of `bytes` zeros, with all of its space reserved, and opens it. It is persistent, with its
    /// name, when the call returns; a crash inside leaves the whole device or nothing.
    ///
    /// Errors: [`DeviceError::AlreadyExists`], [`DeviceError::Full`] (nothing is left behind; retry when there is
    /// space), [`DeviceError::ReadOnly`], [`DeviceError::Io`].
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError>;

    /// As [`create`](Shelf::create), for a device with many writes between two flushes: its space may be reserved
    /// without being written, which saves writing all of its bytes. The first write of each place then changes metadata
    /// of the file system, which the following flush makes persistent: a small cost for pages, a large one for the
    /// records of a journal. Provided: [`create`](Shelf::create).
    ///
    /// Errors: those of `create`.
    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.create(name, bytes)
    }

    /// As [`create`](Shelf::create), without reserving its space: a write takes it where there is none and may return
    /// [`DeviceError::Full`], [`Device::reserve`] takes it beforehand, a discard gives it back. A file system that copies on write cannot
    /// reserve what a later write takes, so it has none. Provided: unsupported.
    ///
    /// Errors: those of `create`; [`DeviceError::Unsupported`]: the medium cannot, and nothing was changed.
    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        assert_size(bytes);
        Err(DeviceError::Unsupported { operation: Operation::Create, name: name.into() })
    }

    /// Free space for further devices, bytes; `None` if it is unknown. Provided: `None`.
    ///
    /// Errors: [`DeviceError::Io`].
    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        Ok(None)
    }

    /// Identifies the medium whose [`free_bytes`](Shelf::free_bytes) these are, among the shelves of this process; `None` if that is
    /// unknown. Provided: `None`.
    fn medium(&self) -> Option<u64> {
        None
    }

    /// Opens a device for reading and writing; flushes it first, so that everything it shows is persistent.
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::NotADevice`], [`DeviceError::ReadOnly`], [`DeviceError::Io`].
    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError>;

    /// Opens a device for reading, even while another process writes it; its content need not be persistent. Write,
    /// flush and discard return [`DeviceError::ReadOnly`].
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

    /// Changes the name of a device; the new name must be free. Persistent when it returns. It does not affect the
    /// device's un-flushed writes.
    ///
    /// Errors: [`DeviceError::NotFound`], [`DeviceError::AlreadyExists`], [`DeviceError::ReadOnly`],
    /// [`DeviceError::Io`].
    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError>;
}

/// Longest name of a device, in bytes: the 255 of Linux file systems, less a suffix that is used while a device is
/// created.
pub const NAME_BYTES_MAX: usize = 200;

/// Whether `name` is a valid device name; the rule is documented at [`Shelf`].
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name != "lock"
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Panics unless `name` is a valid device name.
pub(crate) fn assert_name(name: &str) {
    assert!(is_name(name), "not a device name: {name:?}");
}

/// Panics unless `bytes` is a valid size of a device.
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
    // Masks, because a division would take a twentieth of the time of a small write to persistent memory.
    assert!(offset & (block - 1) == 0, "offset {offset} is not a multiple of {block}");
    assert!(bytes & (block - 1) == 0, "length {bytes} is not a multiple of {block}");
    assert!(
        offset <= len && bytes <= len - offset,
        "range {offset}+{bytes} does not lie inside the device, which has {len} bytes"
    );
}
