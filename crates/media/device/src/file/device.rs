//! One file as a device: positioned reads and writes, and a flush that can be believed.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::lock::Lock;
use super::ring::{Outcome, Rings};
use super::shelf::failed;
use super::slots::Slots;
use super::transfer::{read_fully, write_fully};
use crate::contract::assert_range;
use crate::poison::Poison;
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, Operation, os};

/// Largest piece in which a read into unaligned memory passes through an aligned buffer.
const BOUNCE_BYTES: usize = 256 << 10;

/// A file, open to read or to read and write.
pub(crate) struct FileDevice {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Whether the descriptors are `O_DIRECT`, so that memory must be aligned.
    pub(crate) direct: bool,
    pub(crate) durability: Durability,
    /// Reads, and writes without a flush.
    pub(crate) file: File,
    /// What only a writer has.
    pub(crate) writer: Option<Writer>,
}

/// The writing half of a device.
pub(crate) struct Writer {
    /// Descriptions to flush through, one per flush in flight; see the essay in `mod.rs`.
    pub(crate) flushers: Slots<File>,
    /// Where io_uring is used.
    pub(crate) rings: Option<Arc<Rings>>,
    pub(crate) poison: Poison,
    /// Keeps the directory ours for as long as anything of it can be written.
    pub(crate) _lock: Arc<Lock>,
}

impl FileDevice {
    /// Runs a change on the writing half, in the state machine of the contract.
    fn change(
        &self,
        operation: Operation,
        change: impl FnOnce(&Writer) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(writer) = &self.writer else {
            return Err(DeviceError::ReadOnly { operation, name: self.name.clone() });
        };
        writer.poison.guard(&self.name, || change(writer))
    }

    fn failed(&self, operation: Operation, offset: u64, source: io::Error) -> DeviceError {
        failed(operation, &self.name, offset, source)
    }

    /// Calls `write` with the data where direct I/O can take it from.
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
        write_fully(offset, data, |offset, rest| file.write_at(rest, offset))
            .map_err(|source| self.failed(Operation::Write, offset, source))?;
        file.sync_data().map_err(|source| self.failed(Operation::Flush, offset, source))
    }

    fn write_linked_to_flush(&self, rings: &Rings, file: &File, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let Outcome { write, flush } =
            rings.write_flush(file, offset, data).map_err(|source| self.failed(Operation::Write, offset, source))?;
        let written = match write {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => 0,
            Err(source) => return Err(self.failed(Operation::Write, offset, source)),
        };
        if written < data.len() {
            // A short write cancelled the flush; the plain way continues where it stopped.
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
        self.change(Operation::Write, |_| {
            self.with_aligned(data, |data| {
                write_fully(offset, data, |offset, rest| self.file.write_at(rest, offset))
                    .map_err(|source| self.failed(Operation::Write, offset, source))
            })
        })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.change(Operation::Flush, |writer| {
            writer.flushers.acquire().sync_data().map_err(|source| self.failed(Operation::Flush, 0, source))
        })
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, data.len() as u64);
        self.change(Operation::Write, |writer| {
            self.with_aligned(data, |data| {
                let file = writer.flushers.acquire();
                match &writer.rings {
                    Some(rings) => self.write_linked_to_flush(rings, &file, offset, data),
                    None => self.write_then_flush(&file, offset, data),
                }
            })
        })
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range(self.bytes, offset, bytes);
        self.change(Operation::Discard, |_| {
            if bytes == 0 {
                return Ok(());
            }
            os::punch_hole(&self.file, offset, bytes).map_err(|source| match source.raw_os_error() {
                Some(libc::EOPNOTSUPP) => {
                    DeviceError::Unsupported { operation: Operation::Discard, name: self.name.clone() }
                }
                _ => self.failed(Operation::Discard, offset, source),
            })
        })
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
