//! [`Fills`]: blocks that a read missed, on their way into the cache: their tokens and their queue.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::format::PageKey;

/// Bytes that wait, of all reads.
const WAITING_BYTES: usize = 16 << 20;

/// Blocks of one page that a read missed.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) key: PageKey,
    pub(super) blocks: Range<u32>,
    pub(super) token: u64,
    pub(super) data: Vec<u8>,
}

impl Fill {
    pub(super) fn new(key: PageKey, blocks: Range<u32>, token: u64) -> Fill {
        Fill { key, blocks, token, data: Vec::new() }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    fills: VecDeque<Fill>,
    bytes: usize,
    is_stopped: bool,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(super) struct Fills {
    tokens: AtomicU64,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Fills {
    /// A token that no other read has.
    pub(super) fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a fill with its bytes; gives it back if the queue is full or stopped.
    pub(super) fn add(&self, mut fill: Fill, data: &[u8]) -> Result<(), Fill> {
        let mut waiting = self.waiting.lock();
        if waiting.bytes + data.len() > WAITING_BYTES || waiting.is_stopped {
            return Err(fill);
        }
        fill.data.extend_from_slice(data);
        waiting.bytes += data.len();
        waiting.fills.push_back(fill);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the next one; `None` when it is stopped.
    pub(super) fn next(&self) -> Option<Fill> {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.fills.pop_front() {
                Some(fill) => {
                    waiting.bytes -= fill.data.len();
                    return Some(fill);
                }
                None if waiting.is_stopped => return None,
                None => self.changed.wait(&mut waiting),
            }
        }
    }

    /// Takes no more; returns what waits.
    pub(super) fn stop(&self) -> Vec<Fill> {
        let mut waiting = self.waiting.lock();
        waiting.is_stopped = true;
        self.changed.notify_all();
        waiting.fills.drain(..).collect()
    }
}
