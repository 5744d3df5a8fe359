//! [`Window`]: a sliding part of a segment in memory, so that walking small frames does not read the device for each.
//!
//! A window never contains bytes after the limit that its user passes, because they may still be being written. So its
//! content stays valid.

use std::sync::Arc;

use device::{AlignedBuffer, DeviceError};

use crate::format::BLOCK_BYTES;
use crate::lsn::Lsn;
use crate::segment::Segment;

/// Bytes per read of a walk: so many that a device's cost per request is small compared with the transfer (20 us
/// against 250 us at 1 GB/s).
pub(crate) const WALK_BYTES: u64 = 256 << 10;
/// Bytes per read of a single record: most HL7 messages are smaller, and it is still one request.
pub(crate) const LOOK_BYTES: u64 = 16 << 10;

#[derive(Debug)]
pub(crate) struct Window {
    segment: Arc<Segment>,
    /// Offset in the segment of the first byte in the window.
    start: u64,
    held: AlignedBuffer,
    read_ahead: u64,
}

impl Window {
    pub(crate) fn new(segment: Arc<Segment>, read_ahead: u64) -> Window {
        Window { segment, start: 0, held: AlignedBuffer::new(), read_ahead }
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Clears the window: the next call reads the device again.
    pub(crate) fn forget(&mut self) {
        self.held.clear();
    }

    /// Returns the `bytes` at `lsn`, none of which may be after `limit`; reads ahead up to `limit`.
    pub(crate) fn bytes(&mut self, lsn: Lsn, bytes: usize, limit: Lsn) -> Result<&[u8], DeviceError> {
        let from = self.segment.offset(lsn);
        let to = from + bytes as u64;
        assert!(to <= self.segment.header.bytes, "a frame does not leave its segment");
        if from < self.start || to > self.start + self.held.len() as u64 {
            self.load(from, to, limit)?;
        }
        let at = (from - self.start) as usize;
        Ok(&self.held[at..at + bytes])
    }

    fn load(&mut self, from: u64, to: u64, limit: Lsn) -> Result<(), DeviceError> {
        let start = from - from % BLOCK_BYTES;
        let allowed = self.segment.offset(limit.min(self.segment.end()).max(self.segment.header.base)).max(to);
        let end = (start + self.read_ahead).max(to).min(allowed).next_multiple_of(BLOCK_BYTES);
        // Cleared first: after a failed read the window is empty.
        self.held.clear();
        let mut held = std::mem::take(&mut self.held);
        held.resize((end - start) as usize, 0);
        let device = self.segment.device()?;
        let named = |error: DeviceError| error.named(&self.segment.name());
        match device.read(start, &mut held) {
            // Bytes further ahead that the medium has lost must not fail this request.
            Err(DeviceError::Lost { .. }) => {
                held.truncate((to.next_multiple_of(BLOCK_BYTES) - start) as usize);
                device.read(start, &mut held).map_err(named)?;
            }
            other => other.map_err(named)?,
        }
        // The last block may hold units that are still being written.
        held.truncate((allowed - start) as usize);
        self.held = held;
        self.start = start;
        Ok(())
    }
}
