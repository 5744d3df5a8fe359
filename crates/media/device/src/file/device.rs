//! One file as a device: positioned reads and writes, and a reliable flush.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use super::flushers::Flushers;
use super::lock::Lock;
use super::ring::{Outcome, Rings};
use super::system_error::failed;
use super::transfer::{read_fully, write_fully};
use crate::contract::assert_range;
use crate::poison::Poison;
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, Extent, Operation, os};

/// Largest part of a read into unaligned memory that is copied through an aligned buffer.
const BOUNCE_BYTES: usize = 256 << 10;

/// The unit of `st_blocks` of stat(2).
const STAT_BLOCK_BYTES: u64 = 512;

/// A file, open to read or to read and write.
pub(crate) struct FileDevice {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Whether the descriptors are `O_DIRECT`, so that memory must be aligned.
    pub(crate) direct: bool,
    pub(crate) durability: Durability,
    /// The file descriptor of the device itself.
    pub(crate) file: File,
    /// Only in devices open for writing.
    pub(crate) writer: Option<Writer>,
}

/// The writing half of a device.
pub(crate) struct Writer {
    /// Determines which thread may flush; see the head comment of `mod.rs`.
    pub(crate) flushers: Flushers,
    /// Set if io_uring is used.
    pub(crate) rings: Option<Arc<Rings>>,
    pub(crate) poison: Poison,
    /// Keeps the directory locked while any device in it can be written.
    pub(crate) _lock: Arc<Lock>,
}

impl FileDevice {
    /// The writing half.
    fn writer(&self, operation: Operation) -> Result<&Writer, DeviceError> {
        self.writer.as_ref().ok_or_else(|| DeviceError::ReadOnly { operation, name: self.name.clone() })
    }

    /// Runs a change without a flush, under the states of the contract.
    fn change(
        &self,
        operation: Operation,
        change: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.writer(operation)?.poison.guard(&self.name, change)
    }

    pub(super) fn failed(&self, operation: Operation, offset: u64, source: io::Error) -> DeviceError {
        failed(operation, &self.name, offset, source)
    }

    /// Whether a change may begin that another thread does in parts: see `batches`.
    ///
    /// Errors: [`DeviceError::ReadOnly`], [`DeviceError::Poisoned`].
    pub(super) fn check_change(&self, operation: Operation) -> Result<(), DeviceError> {
        self.writer(operation)?.poison.check(&self.name)
    }

    /// Poisons the device after the error of such a change, as [`FileDevice::change`] does; returns the error.
    pub(super) fn poison(&self, error: DeviceError) -> DeviceError {
        match &self.writer {
            Some(writer) => writer.poison.note(error),
            None => error,
        }
    }

    /// Flushes; an error names the offset of the write that needed it.
    pub(super) fn flush_for(&self, offset: u64) -> Result<(), DeviceError> {
        let writer = self.writer(Operation::Flush)?;
        let turn = writer.flushers.own(&self.file);
        writer.poison.guard(&self.name, || {
            turn.file().sync_data().map_err(|source| self.failed(Operation::Flush, offset, source))
        })
    }

    fn write_all(&self, file: &File, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        write_fully(offset, data, |offset, rest| file.write_at(rest, offset))
            .map_err(|source| self.failed(Operation::Write, offset, source).wanting(data.len() as u64))
    }

    /// Calls `write` with the data in memory that direct I/O accepts.
    fn with_aligned(
        &self,
        data: &[u8],
        write: impl FnOnce(&[u8]) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if self.is_usable(data) { write(data) } else { write(&AlignedBuffer::from(data)) }
    }

    fn is_usable(&self, memory: &[u8]) -> bool {
        !self.direct || memory.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
    }

    fn write_then_flush(&self, file: &File, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write_all(file, offset, data)?;
        file.sync_data().map_err(|source| self.failed(Operation::Flush, offset, source))
    }

    fn write_linked_to_flush(&self, rings: &Rings, file: &File, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let Outcome { write, flush } =
            rings.write_flush(file, offset, data).map_err(|source| self.failed(Operation::Write, offset, source))?;
        let written = match write {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => 0,
            Err(source) => {
                return Err(self.failed(Operation::Write, offset, source).wanting(data.len() as u64));
            }
        };
        if written < data.len() {
            // A short write cancelled the flush; plain calls continue where it stopped.
            return self.write_then_flush(file, offset + written as u64, &data[written..]);
        }
        flush.map_err(|source| self.failed(Operation::Flush, offset, source))
    }
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, buffer.len() as u64);
        let read = |offset, buffer: &mut [u8]| {
            read_fully(offset, buffer, |offset, rest| self.file.read_at(rest, offset))
                .map_err(|source| self.failed(Operation::Read, offset, source))
        };
        if self.is_usable(buffer) {
            return read(offset, buffer);
        }
        let mut bounce = AlignedBuffer::zeroed(buffer.len().min(BOUNCE_BYTES));
        for (index, piece) in buffer.chunks_mut(BOUNCE_BYTES).enumerate() {
            let aligned = &mut bounce[..piece.len()];
            read(offset + (index * BOUNCE_BYTES) as u64, aligned)?;
            piece.copy_from_slice(aligned);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, data.len() as u64);
        self.change(Operation::Write, || self.with_aligned(data, |data| self.write_all(&self.file, offset, data)))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_for(0)
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, data.len() as u64);
        let writer = self.writer(Operation::Write)?;
        let turn = writer.flushers.any(&self.file, self.direct);
        writer.poison.guard(&self.name, || {
            self.with_aligned(data, |data| match &writer.rings {
                Some(rings) => self.write_linked_to_flush(rings, turn.file(), offset, data),
                None => self.write_then_flush(turn.file(), offset, data),
            })
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, bytes);
        self.writer(Operation::Discard)?.poison.guard_discard(&self.name, || {
            if bytes == 0 {
                return Ok(());
            }
            // Without space to split an extent every byte is as it was, or zero.
            os::punch_hole(&self.file, offset, bytes).map_err(|source| match source.raw_os_error() {
                Some(libc::EOPNOTSUPP) => {
                    DeviceError::Unsupported { operation: Operation::Discard, name: self.name.clone() }
                }
                _ => self.failed(Operation::Discard, offset, source),
            })
        })
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        assert_range(self.bytes, offset, bytes);
        let (mut at, end, mut extents) = (offset, offset + bytes, Vec::new());
        while at < end {
            let found = os::next_data(&self.file, at).and_then(|data| match data {
                Some(data) if data == at => os::next_hole(&self.file, at).map(|hole| (true, hole)),
                data => Ok((false, data)),
            });
            let (has_space, next) = match found {
                // Not a file with holes.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (true, None),
                found => found.map_err(|source| self.failed(Operation::Read, at, source))?,
            };
            // Beside a discard a hole can be where data was a moment ago.
            let next = next.unwrap_or(end).clamp(at, end);
            if next > at {
                extents.push(Extent { bytes: next - at, has_space });
            }
            at = next;
        }
        Ok(extents)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, bytes);
        self.check_change(Operation::Write)?;
        if bytes == 0 {
            return Ok(());
        }
        os::reserve_range(&self.file, offset, bytes)
            .map_err(|source| self.failed(Operation::Write, offset, source).wanting(bytes))
    }

    fn allocated_bytes(&self) -> Result<u64, DeviceError> {
        let found = self.file.metadata().map_err(|source| self.failed(Operation::Read, 0, source))?;
        Ok(found.blocks() * STAT_BLOCK_BYTES)
    }

    fn durability(&self) -> Durability {
        self.durability
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileDevice { name, bytes, direct, writer, .. } = self;
        let writable = writer.is_some();
        write!(f, "FileDevice {{ name: {name:?}, bytes: {bytes}, direct: {direct}, writable: {writable} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A device of one block whose writes and flushes go to `path`.
    fn device(home: &Path, path: &str, rings: Option<Arc<Rings>>) -> FileDevice {
        let writer = Writer {
            flushers: Flushers::default(),
            rings,
            poison: Poison::default(),
            _lock: Arc::new(Lock::take(home).expect("a fresh directory")),
        };
        FileDevice {
            name: "a".into(),
            bytes: BLOCK_BYTES as u64,
            direct: false,
            durability: Durability::None,
            file: File::options().read(true).write(true).open(path).expect("open"),
            writer: Some(writer),
        }
    }

    fn is_poisoned(device: &FileDevice) -> bool {
        let later = [device.write(0, &[]), device.flush(), device.write_flush(0, &[]), device.discard(0, 0)];
        later.iter().all(|result| matches!(result, Err(DeviceError::Poisoned { .. })))
    }

    #[test]
    fn a_failed_system_call_is_reported_once_and_poisons_with_and_without_io_uring() {
        let home = tempfile::tempdir().expect("temporary directory");
        let rings = [None, Rings::new().ok().map(Arc::new)];
        for rings in rings {
            // The kernel cannot flush a character device (EINVAL), and /dev/full is always full (ENOSPC).
            let null = || device(home.path(), "/dev/null", rings.clone());
            let full = || device(home.path(), "/dev/full", rings.clone());
            let block = [1; BLOCK_BYTES];

            let subject = null();
            subject.write(0, &block).expect("/dev/null takes everything");
            let failed = subject.flush();
            assert!(matches!(failed, Err(DeviceError::Io { operation: Operation::Flush, .. })), "{failed:?}");
            assert!(is_poisoned(&subject));
            drop(subject);

            let subject = null();
            let failed = subject.write_flush(0, &block);
            assert!(matches!(failed, Err(DeviceError::Io { operation: Operation::Flush, .. })), "{failed:?}");
            assert!(is_poisoned(&subject));
            drop(subject);

            let subject = full();
            let failed = subject.write(0, &block);
            assert!(matches!(failed, Err(DeviceError::Full { bytes: 4096, .. })), "{failed:?}");
            assert!(is_poisoned(&subject));
            drop(subject);

            let subject = full();
            let failed = subject.write_flush(0, &block);
            assert!(matches!(failed, Err(DeviceError::Full { bytes: 4096, .. })), "{failed:?}");
            assert!(is_poisoned(&subject));
            drop(subject);

            let subject = null();
            let unsupported = subject.discard(0, BLOCK_BYTES as u64);
            assert!(unsupported.is_err(), "a character device has no holes");
        }
    }
}
