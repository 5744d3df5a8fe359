//! Copies of acknowledged writes that no flush has covered yet: a server that crashes may lose them, and then they are sent again.
//!
//! ```text
//!   write acknowledged --> | 7 | 8 | 9 | 10 |        a flush that was sent when 9 was next, and succeeds, drops 7 and 8
//! ```
//!
//! Invariants: they are in the order of their acknowledgements, and sent again in that order where they overlap.

use std::collections::VecDeque;
use std::sync::Arc;

use device::AlignedBuffer;

/// Memory of a copy beside its bytes.
const OVERHEAD_BYTES: u64 = 128;

/// What was written.
#[derive(Debug)]
pub(super) enum Content {
    Bytes(AlignedBuffer),
    Zeroes { free: bool },
}

/// One write.
#[derive(Debug)]
pub(super) struct KeptWrite {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) content: Content,
}

/// The memory that a copy of a write takes.
pub(super) fn cost(bytes: u64, has_content: bool) -> u64 {
    OVERHEAD_BYTES + if has_content { bytes.next_multiple_of(device::BLOCK_BYTES as u64) } else { 0 }
}

impl KeptWrite {
    fn cost(&self) -> u64 {
        cost(self.bytes, matches!(self.content, Content::Bytes(_)))
    }
}

/// See the head comment of this module.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    writes: VecDeque<Arc<KeptWrite>>,
    /// The number of the first one.
    first: u64,
    bytes: u64,
}

impl Unflushed {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Memory of the copies.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number that the next write gets.
    pub(super) fn next(&self) -> u64 {
        self.first + self.writes.len() as u64
    }

    pub(super) fn push(&mut self, write: KeptWrite) {
        self.bytes += write.cost();
        self.writes.push_back(Arc::new(write));
    }

    /// Everything before `next` is persistent.
    pub(super) fn flushed(&mut self, next: u64) {
        while self.first < next
            && let Some(write) = self.writes.pop_front()
        {
            self.first += 1;
            self.bytes -= write.cost();
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<&Arc<KeptWrite>> {
        self.writes.get(at)
    }

    pub(super) fn clear(&mut self) {
        self.flushed(u64::MAX);
    }
}
