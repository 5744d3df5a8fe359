//! [`RunWriter`]: gathers pages that are adjacent on the data devices into one write of up to a mebibyte.
//!
//! The buffer belongs to the thread that runs checkpoints, and only grows. The system must clear new memory; allocating
//! it for each write took a third of the time of writing in place (perf, 2026-11-22).

use device::AlignedBuffer;

use crate::StoreError;
use crate::page::PageId;
use crate::space::devices::DataDevices;

/// Largest write, in bytes; a single run may be that large.
const RUN_BYTES: usize = 1 << 20;

/// Pages that are being written in place. [`finish`](RunWriter::finish) writes whatever is still in the buffer.
pub(crate) struct RunWriter<'a> {
    data_devices: &'a DataDevices,
    first: PageId,
    buffer: &'a mut AlignedBuffer,
    /// How much of the buffer waits to be written.
    used: usize,
    written: u64,
}

impl<'a> RunWriter<'a> {
    /// Starts empty; the buffer's old content is ignored.
    pub(crate) fn new(data_devices: &'a DataDevices, buffer: &'a mut AlignedBuffer) -> RunWriter<'a> {
        RunWriter { data_devices, first: PageId(0), buffer, used: 0, written: 0 }
    }

    /// Returns space for the image of a page or run, which the caller fills completely. Pages that are not adjacent to
    /// it are written first.
    ///
    /// Errors: those of [`DataDevices::write`].
    pub(crate) fn room(&mut self, page: PageId, bytes: usize) -> Result<&mut [u8], StoreError> {
        let geometry = self.data_devices.geometry();
        let next = PageId(self.first.0 + (self.used / geometry.page_bytes as usize) as u32);
        let is_beside = page == next && geometry.place(page).1 != 0 && self.used + bytes <= RUN_BYTES;
        if self.used == 0 || !is_beside {
            self.write()?;
            self.first = page;
        }
        let start = self.used;
        self.used += bytes;
        if self.buffer.len() < self.used {
            self.buffer.resize(self.used, 0);
        }
        Ok(&mut self.buffer[start..self.used])
    }

    /// Takes back the space that was returned last.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        self.used -= bytes;
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if self.used > 0 {
            self.data_devices.write(self.first, &self.buffer[..self.used])?;
            self.written += self.used as u64;
            self.used = 0;
        }
        Ok(())
    }

    /// Writes the rest; returns the total of bytes written.
    ///
    /// Errors: those of [`DataDevices::write`].
    pub(crate) fn finish(mut self) -> Result<u64, StoreError> {
        self.write()?;
        Ok(self.written)
    }
}
