//! [`Frame`]: the frame that a connection is at, and the memory that it has.

use std::time::Duration;

/// The frame that a connection is at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Bytes that it may have in memory.
    pub(super) bytes: u64,
    /// When it was last given some, or requested more.
    pub(super) since: Duration,
    /// It reads on although a bound is reached.
    pub(super) beyond: bool,
    /// It requested more and waits.
    pub(super) waits: bool,
    /// All of it came.
    pub(super) whole: bool,
}
