//! [`Canceller`]: ends a session's running statement from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Ends what its session is doing; clones are the same. A request between two statements has no effect.
#[derive(Clone, Debug, Default)]
pub struct Canceller {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    // Odd while a statement runs; the number of the statement, so that a late request does not hit the next one.
    statement: AtomicU64,
    requested: AtomicU64,
    notify: Notify,
}

impl Canceller {
    /// Asks the running statement to end with SQLSTATE 57014.
    pub fn cancel(&self) {
        let running = self.inner.statement.load(Ordering::Acquire);
        if running % 2 == 1 {
            self.inner.requested.store(running, Ordering::Release);
            self.inner.notify.notify_waiters();
        }
    }

    /// A statement begins.
    pub(crate) fn begin(&self) -> u64 {
        let next = self.inner.statement.load(Ordering::Acquire) | 1;
        let next = if self.inner.requested.load(Ordering::Acquire) == next { next + 2 } else { next };
        self.inner.statement.store(next, Ordering::Release);
        next
    }

    /// The statement is over.
    pub(crate) fn end(&self, statement: u64) {
        self.inner.statement.store(statement + 1, Ordering::Release);
    }

    /// Whether the statement was asked to end.
    pub(crate) fn is_requested(&self, statement: u64) -> bool {
        self.inner.requested.load(Ordering::Acquire) == statement
    }

    /// Returns when the statement is asked to end.
    pub(crate) async fn requested(&self, statement: u64) {
        loop {
            let notified = self.inner.notify.notified();
            if self.is_requested(statement) {
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_between_statements_hits_none() {
        let canceller = Canceller::default();
        let first = canceller.begin();
        canceller.end(first);
        canceller.cancel();
        let second = canceller.begin();
        assert!(!canceller.is_requested(second));
        canceller.cancel();
        assert!(canceller.is_requested(second));
        canceller.end(second);
        let third = canceller.begin();
        assert!(!canceller.is_requested(third));
    }
}
