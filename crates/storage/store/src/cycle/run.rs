//! [`Run`]: gathers pages that lie side by side at home into one write of up to a mebibyte.

use device::AlignedBuffer;

use crate::StoreError;
use crate::page::PageId;
use crate::space::home::Devices;

/// Largest write, in bytes; a single run may be as large.
const RUN_BYTES: usize = 1 << 20;

/// Pages on their way home. What was given room is written by [`finish`](Run::finish) at the latest.
pub(crate) struct Run<'a> {
    home: &'a Devices,
    first: PageId,
    buffer: AlignedBuffer,
    written: u64,
}

impl<'a> Run<'a> {
    /// Nothing yet.
    pub(crate) fn new(home: &'a Devices) -> Run<'a> {
        Run { home, first: PageId(0), buffer: AlignedBuffer::new(), written: 0 }
    }

    /// Room for the image of a page or run; what lies elsewhere is written ahead of it.
    ///
    /// Errors: those of [`Devices::write`].
    pub(crate) fn room(&mut self, page: PageId, bytes: usize) -> Result<&mut [u8], StoreError> {
        let geometry = self.home.geometry();
        let next = PageId(self.first.0 + (self.buffer.len() / geometry.page_bytes as usize) as u32);
        let is_beside = page == next && geometry.place(page).1 != 0 && self.buffer.len() + bytes <= RUN_BYTES;
        if self.buffer.is_empty() || !is_beside {
            self.write()?;
            self.first = page;
        }
        let start = self.buffer.len();
        self.buffer.resize(start + bytes, 0);
        Ok(&mut self.buffer[start..])
    }

    /// Takes back the room given last.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        self.buffer.truncate(self.buffer.len() - bytes);
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if !self.buffer.is_empty() {
            self.home.write(self.first, &self.buffer)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes what is left; answers the bytes written in all.
    ///
    /// Errors: those of [`Devices::write`].
    pub(crate) fn finish(mut self) -> Result<u64, StoreError> {
        self.write()?;
        Ok(self.written)
    }
}
