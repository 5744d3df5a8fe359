//! Requests on the wire, and what has come of their replies.

use std::time::Instant;

use super::job::{Part, Place};
use crate::protocol::command;

/// A request without its reply.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) job: u64,
    pub(super) part: Part,
    pub(super) sent_at: Instant,
    /// Bytes of a read.
    pub(super) received: u64,
    pub(super) chunks: u64,
    pub(super) error: u32,
    /// Of a flush: the number of the first write that it does not cover.
    pub(super) mark: u64,
}

/// Bytes of a read that are on their way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Incoming {
    pub(super) cookie: u64,
    pub(super) job: u64,
    pub(super) place: Place,
    pub(super) at: u64,
    pub(super) left: u64,
    pub(super) is_last: bool,
}

impl Wire {
    /// Bytes of a read, or a hole of it.
    pub(super) fn take(&mut self, offset: u64, length: u64) -> Result<(), &'static str> {
        let (start, whole) = (self.part.offset, u64::from(self.part.length));
        if self.part.command != command::READ {
            return Err("bytes that nobody requested");
        }
        let is_inside = length > 0 && offset >= start && offset - start <= whole && length <= whole - (offset - start);
        self.chunks += 1;
        self.received += length;
        if !is_inside || self.received > whole {
            return Err("bytes of a range that was not requested");
        }
        Ok(())
    }
}
