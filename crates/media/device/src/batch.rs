//! Many requests at once: a caller hands over a batch, goes on, and is called back once for each request.
//!
//! ```text
//!   caller    submit [ read | read | write | flush ]        returns at once where the medium can wait by itself
//!                       |      |       |       |
//!   device      io_uring, the requests of a connection, or one after the other on the calling thread
//!                       |      |       |       |
//!   sink      complete(request, result)     once for each, in any order, on any thread, perhaps before submit returns
//! ```
//!
//! The request owns its buffer until it is complete: the caller cannot free or change bytes that a kernel or another thread still
//! reads or fills.
//!
//! Invariants: every request that was submitted is completed exactly once, also after an error or a panic of the device's own threads;
//! a request is a call of the method of [`Device`] with the same name, with the same guarantees, errors and poisoning. Between the
//! requests of a batch there is no order: a flush covers the writes that were *complete* when it was submitted.

use std::fmt;
use std::sync::Arc;

use crate::{AlignedBuffer, Device, DeviceError};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// [`Device::read`]: fills the buffer.
    Read,
    /// [`Device::write`]: writes the buffer.
    Write,
    /// [`Device::write_flush`]: writes the buffer; it is persistent when the request is complete.
    WriteFlush,
    /// [`Device::flush`].
    Flush,
    /// [`Device::discard`] of [`IoRequest::bytes`] bytes.
    Discard,
    /// [`Device::write_zeroes`] of [`IoRequest::bytes`] bytes.
    WriteZeroes {
        /// Whether the space may be given up.
        free: bool,
    },
}

/// One request of a batch.
pub struct IoRequest {
    /// What it does.
    pub kind: IoKind,
    /// Where, in bytes from the start of the device; 0 for a flush.
    pub offset: u64,
    /// Bytes of a discard or of zeros; the length of the buffer otherwise; 0 for a flush.
    pub bytes: u64,
    /// The bytes to write, or the place for the bytes read; empty for a flush, a discard and zeros.
    pub buffer: AlignedBuffer,
    /// A number of the caller's, which the device does not interpret.
    pub token: u64,
}

impl IoRequest {
    /// A read of as many bytes as `buffer` is long.
    pub fn read(offset: u64, buffer: AlignedBuffer, token: u64) -> IoRequest {
        IoRequest { kind: IoKind::Read, offset, bytes: buffer.len() as u64, buffer, token }
    }

    /// A write of `buffer`, volatile until a flush.
    pub fn write(offset: u64, buffer: AlignedBuffer, token: u64) -> IoRequest {
        IoRequest { kind: IoKind::Write, offset, bytes: buffer.len() as u64, buffer, token }
    }

    /// A write of `buffer` that is persistent when it is complete.
    pub fn write_flush(offset: u64, buffer: AlignedBuffer, token: u64) -> IoRequest {
        IoRequest { kind: IoKind::WriteFlush, offset, bytes: buffer.len() as u64, buffer, token }
    }

    /// A flush of all that is complete now.
    pub fn flush(token: u64) -> IoRequest {
        IoRequest { kind: IoKind::Flush, offset: 0, bytes: 0, buffer: AlignedBuffer::new(), token }
    }

    /// A discard of `bytes` bytes.
    pub fn discard(offset: u64, bytes: u64, token: u64) -> IoRequest {
        IoRequest { kind: IoKind::Discard, offset, bytes, buffer: AlignedBuffer::new(), token }
    }

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

impl fmt::Debug for IoRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoRequest { kind, offset, bytes, token, .. } = self;
        write!(f, "{kind:?} {offset}+{bytes} (token {token})")
    }
}

/// Where requests are returned to.
pub trait IoSink: Send + Sync {
    /// Takes back a request that is complete. It is called on a thread of the device, or inside [`Device::submit`] on the caller's: it
    /// must not wait, and it may submit further requests only to another device.
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>);
}

/// Does the requests one after the other on the calling thread; what [`Device::submit`] does where nothing better is known.
pub fn submit_in_turn<D: Device + ?Sized>(device: &D, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
    for mut request in batch.drain(..) {
        let result = request.perform(device);
        sink.complete(request, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK_BYTES, MemoryShelf, Shelf};
    use std::sync::Mutex;

    #[derive(Default)]
    struct Completed(Mutex<Vec<(u64, bool, Vec<u8>)>>);

    impl IoSink for Completed {
        fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
            self.0.lock().expect("no panic").push((request.token, result.is_ok(), request.buffer.to_vec()));
        }
    }

    #[test]
    fn a_batch_does_what_the_single_calls_do() {
        let shelf = MemoryShelf::new();
        let device = shelf.create("a", 8 * BLOCK_BYTES as u64).expect("memory");
        let completed = Arc::new(Completed::default());
        let sink: Arc<dyn IoSink> = completed.clone();
        let block = |value| AlignedBuffer::from(&[value; BLOCK_BYTES][..]);
        let at = |index: u64| index * BLOCK_BYTES as u64;
        let mut batch = vec![
            IoRequest::write(at(1), block(1), 10),
            IoRequest::write_flush(at(2), block(2), 11),
            IoRequest::flush(12),
            IoRequest::discard(at(1), BLOCK_BYTES as u64, 13),
            IoRequest::write(at(3), block(3), 16),
            IoRequest::write(at(4), block(3), 17),
            IoRequest {
                kind: IoKind::WriteZeroes { free: false },
                ..IoRequest::discard(at(3), BLOCK_BYTES as u64, 18)
            },
            IoRequest { kind: IoKind::WriteZeroes { free: true }, ..IoRequest::discard(at(4), BLOCK_BYTES as u64, 19) },
        ];
        device.submit(&mut batch, &sink);
        assert!(batch.is_empty(), "a batch is taken");
        let reads = (1..5).map(|index| IoRequest::read(at(index), block(9), 20 + index));
        device.submit(&mut reads.collect(), &sink);
        let extents = device.extents(at(0), at(8)).expect("known");
        assert_eq!(extents.iter().map(|extent| extent.bytes).sum::<u64>(), at(8));
        let mut told = std::mem::take(&mut *completed.0.lock().expect("no panic"));
        told.sort_unstable_by_key(|(token, ..)| *token);
        assert!(told.iter().all(|(_, ok, _)| *ok));
        let tokens: Vec<u64> = told.iter().map(|(token, ..)| *token).collect();
        assert_eq!(tokens, [10, 11, 12, 13, 16, 17, 18, 19, 21, 22, 23, 24]);
        let read: Vec<u8> = told[8..].iter().map(|(.., bytes)| bytes[0]).collect();
        assert_eq!(read, [0, 2, 0, 0]);
    }
}
