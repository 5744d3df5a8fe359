//! Buffers of one worker that are used again, by size, and the memory that all sessions of a server share.
//!
//! ```text
//!   class 0   4 KiB    [ ][ ][ ][ ]        last in, first out: the bytes are probably still in the processor's cache
//!   class 1   8 KiB    [ ]
//!     ...
//!   class 13  32 MiB   [ ]                 what exceeds the pool's bound is freed instead
//! ```
//!
//! Invariant: a buffer that is taken may contain bytes of another session; whoever takes one fills all of it before a
//! byte of it is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{AlignedBuffer, BLOCK_BYTES};
use parking_lot::Mutex;

use super::mailbox::Mailbox;

/// Classes of sizes: 4 KiB to 64 MiB, which is the largest payload with the blocks around it.
const CLASSES: usize = 15;

/// Bytes that one worker keeps: a queue of 64 requests of 256 KiB.
const KEPT_BYTES: usize = 16 << 20;

/// The buffers of one worker.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    inner: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    classes: [Vec<AlignedBuffer>; CLASSES],
}

fn class_of(bytes: usize) -> usize {
    let blocks = bytes.div_ceil(BLOCK_BYTES).max(1).next_power_of_two();
    blocks.trailing_zeros() as usize
}

/// The memory of a buffer of `bytes` bytes.
pub(super) fn memory_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64).max(1).next_power_of_two() * BLOCK_BYTES as u64
}

impl BufferPool {
    /// A buffer of `bytes` bytes of unknown content.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> AlignedBuffer {
        let class = class_of(bytes);
        let kept = {
            let mut inner = self.inner.lock();
            let kept = inner.classes[class].pop();
            if kept.is_some() {
                inner.bytes -= BLOCK_BYTES << class;
            }
            kept
        };
        let mut buffer = kept.unwrap_or_else(|| AlignedBuffer::zeroed(BLOCK_BYTES << class));
        buffer.set_len(bytes);
        buffer
    }

    /// Takes a buffer back.
    #[inline]
    pub(super) fn give(&self, buffer: AlignedBuffer) {
        let (bytes, class) = (buffer.capacity(), class_of(buffer.capacity()));
        let mut inner = self.inner.lock();
        if bytes == BLOCK_BYTES << class && class < CLASSES && inner.bytes + bytes <= KEPT_BYTES {
            inner.bytes += bytes;
            inner.classes[class].push(buffer);
        }
    }
}

/// Memory that each session may use without a share of the budget, so that clients with small requests never wait.
pub(super) const OWN_BYTES: u64 = 256 << 10;

/// The step in which a session takes memory of the budget.
const SHARE_BYTES: u64 = 1 << 20;

/// The memory of all sessions of a server beyond [`OWN_BYTES`] each.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// How long a client may hold memory for which others wait, and do nothing for it.
    patience: Duration,
    /// Whether anybody waits, for those who look often.
    is_short: AtomicBool,
    inner: Mutex<Shares>,
}

#[derive(Debug, Default)]
struct Shares {
    used: u64,
    waiting: VecDeque<Arc<Mailbox>>,
}

impl Budget {
    pub(super) fn new(limit: u64, patience: Duration) -> Budget {
        Budget { limit, patience, is_short: AtomicBool::new(false), inner: Mutex::default() }
    }

    /// Whether a session waits for memory.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }

    /// Under the lock: notes whether a session waits.
    fn note(&self, inner: &Shares) {
        self.is_short.store(!inner.waiting.is_empty(), Ordering::Release);
    }
}

/// The memory of one session. Dropping it gives everything back.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
    waits: bool,
}

impl Share {
    pub(super) fn new(budget: &Arc<Budget>) -> Share {
        Share { budget: Arc::clone(budget), bytes: 0, waits: false }
    }

    /// Whether the session may have `bytes` of memory in all. If not, `mailbox` is woken when memory was given back.
    #[inline]
    pub(super) fn covers(&mut self, bytes: u64, mailbox: &Arc<Mailbox>) -> bool {
        let wanted = bytes.saturating_sub(OWN_BYTES).next_multiple_of(SHARE_BYTES);
        if wanted <= self.bytes {
            return true;
        }
        let mut inner = self.budget.inner.lock();
        let more = wanted - self.bytes;
        // Who waits longest goes first: another session takes nothing in front of it.
        let first = inner.waiting.front().is_none_or(|first| Arc::ptr_eq(first, mailbox));
        if first && inner.used + more <= self.budget.limit {
            inner.used += more;
            self.bytes = wanted;
            if self.waits {
                self.waits = false;
                inner.waiting.pop_front();
                self.budget.note(&inner);
                // There may be enough for the next one too, and nobody else tells it.
                if let Some(next) = inner.waiting.front() {
                    next.wake();
                }
            }
            return true;
        }
        if !self.waits {
            self.waits = true;
            inner.waiting.push_back(Arc::clone(mailbox));
            self.budget.note(&inner);
        }
        false
    }

    /// Gives everything back that exceeds the `bytes` in use.
    #[inline]
    pub(super) fn shrink(&mut self, bytes: u64) {
        let needed = bytes.saturating_sub(OWN_BYTES).next_multiple_of(SHARE_BYTES);
        if needed < self.bytes {
            let mut inner = self.budget.inner.lock();
            inner.used -= self.bytes - needed;
            self.bytes = needed;
            if let Some(first) = inner.waiting.front() {
                first.wake();
            }
        }
    }

    /// No longer waits for memory.
    pub(super) fn forget(&mut self, mailbox: &Arc<Mailbox>) {
        if self.waits {
            self.waits = false;
            let mut inner = self.budget.inner.lock();
            inner.waiting.retain(|other| !Arc::ptr_eq(other, mailbox));
            self.budget.note(&inner);
            if let Some(first) = inner.waiting.front() {
                first.wake();
            }
        }
    }

    /// Whether the session has a part of the budget.
    pub(super) fn has_some(&self) -> bool {
        self.bytes > 0
    }

    /// Whether another session waits for memory while this one has some.
    pub(super) fn is_wanted(&self) -> bool {
        self.bytes > 0 && self.budget.is_short()
    }

    /// How long a client may hold memory that is wanted, and do nothing for it.
    pub(super) fn patience(&self) -> Duration {
        self.budget.patience
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_back_is_taken_again_and_the_pool_keeps_a_bounded_amount() {
        let pool = BufferPool::default();
        let buffer = pool.take(5000);
        assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
        let address = buffer.as_ptr();
        pool.give(buffer);
        let again = pool.take(8192);
        assert_eq!((again.as_ptr(), again.len()), (address, 8192));
        let many: Vec<_> = (0..40).map(|_| pool.take(1 << 20)).collect();
        many.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!(pool.inner.lock().bytes, KEPT_BYTES);
        assert_eq!(pool.take(64 << 20).len(), 64 << 20);
    }

    #[test]
    fn memory_is_given_in_the_order_of_waiting_and_small_needs_never_wait() {
        let budget = Arc::new(Budget::new(4 << 20, Duration::MAX));
        let mailboxes: Vec<_> = (0..3).map(|_| Arc::new(Mailbox::default())).collect();
        let mut shares: Vec<_> = (0..3).map(|_| Share::new(&budget)).collect();
        assert!(shares[0].covers((4 << 20) + OWN_BYTES, &mailboxes[0]));
        assert!(!shares[1].covers((4 << 20) + OWN_BYTES, &mailboxes[1]));
        assert!(!shares[2].covers((1 << 20) + OWN_BYTES, &mailboxes[2]));
        assert!(shares[2].covers(OWN_BYTES, &mailboxes[2]), "a small need");
        assert!(shares[0].is_wanted());
        shares[0].shrink((1 << 20) + OWN_BYTES);
        assert!(!shares[2].covers((1 << 20) + OWN_BYTES, &mailboxes[2]), "the other one came first");
        shares[1].forget(&mailboxes[1]);
        assert!(shares[2].covers((1 << 20) + OWN_BYTES, &mailboxes[2]));
        assert!(!budget.is_short());
        drop(shares);
        assert_eq!(budget.inner.lock().used, 0);
    }
}
