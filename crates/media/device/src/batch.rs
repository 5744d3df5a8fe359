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
//! a request is a call of the method of [`crate::Device`] with the same name, with the same guarantees, errors and poisoning. Between the
//! requests of a batch there is no order: a flush covers the writes that were *complete* when it was submitted.

use std::fmt;

use crate::{AlignedBuffer, DeviceError};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// [`crate::Device::read`]: fills the buffer.
    Read,
    /// [`crate::Device::write`]: writes the buffer.
    Write,
    /// [`crate::Device::write_flush`]: writes the buffer; it is persistent when the request is complete.
    WriteFlush,
    /// [`crate::Device::flush`].
    Flush,
    /// [`crate::Device::discard`] of [`IoRequest::bytes`] bytes.
    Discard,
    /// [`crate::Device::write_zeroes`] of [`IoRequest::bytes`] bytes.
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
}

impl fmt::Debug for IoRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoRequest { kind, offset, bytes, token, .. } = self;
        write!(f, "{kind:?} {offset}+{bytes} (token {token})")
    }
}

/// Where requests are returned to.
pub trait IoSink: Send + Sync {
    /// Takes back a request that is complete. It is called on a thread of the device, or inside [`crate::Device::submit`] on the caller's: it
    /// must not wait, and it may submit further requests only to another device.
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>);
}
