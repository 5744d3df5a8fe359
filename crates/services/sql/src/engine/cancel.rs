//! [`Canceller`]: ends a session's running statement from outside.
//!
//! ```text
//!   begin --> may be cancelled --close--> runs to its end --end--> nothing runs
//!               |       ^                       |                     ^
//!               |       +--------reopen---------+                     |
//!               +------------------------ end ------------------------+
//! ```
//!
//! A commit that has begun cannot be taken back: from `close` on requests are not heard.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::SqlError;

/// Ends what its session is doing; clones are the same. A request between two statements has no effect.
#[derive(Clone, Debug, Default)]
pub struct Canceller {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    statement: Mutex<Running>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Running {
    /// The number of the last statement that began, so that who is late does not hit the next one.
    number: u64,
    /// It may still be cancelled.
    open: bool,
    requested: bool,
}

impl Canceller {
    /// Asks the running statement to end with SQLSTATE 57014.
    pub fn cancel(&self) {
        let mut running = self.inner.statement.lock();
        if running.open {
            running.requested = true;
            self.inner.notify.notify_waiters();
        }
    }

    /// A statement begins.
    pub(crate) fn begin(&self) -> u64 {
        let mut running = self.inner.statement.lock();
        *running = Running { number: running.number + 1, open: true, requested: false };
        running.number
    }

    /// The statement is over. Nothing happens if another has begun since.
    pub(crate) fn end(&self, statement: u64) {
        let mut running = self.inner.statement.lock();
        if running.number == statement {
            running.open = false;
        }
    }

    /// The running statement, if any, goes on to its end from here. Errors: [`SqlError::Cancelled`] if it was asked to
    /// end before.
    pub(crate) fn close(&self) -> Result<(), SqlError> {
        let mut running = self.inner.statement.lock();
        if running.open && running.requested {
            return Err(SqlError::Cancelled);
        }
        running.open = false;
        Ok(())
    }

    /// The running statement is tried again: requests are heard again.
    pub(crate) fn reopen(&self) {
        self.inner.statement.lock().open = true;
    }

    /// Whether the statement was asked to end.
    pub(crate) fn is_requested(&self, statement: u64) -> bool {
        let running = self.inner.statement.lock();
        running.number == statement && running.requested
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
    fn a_request_hits_the_running_statement_and_no_other() {
        let canceller = Canceller::default();
        let first = canceller.begin();
        canceller.end(first);
        canceller.cancel();
        let second = canceller.begin();
        assert!(!canceller.is_requested(second));
        // The rows of the first are dropped late.
        canceller.end(first);
        canceller.cancel();
        assert!(canceller.is_requested(second));
        assert!(canceller.close().is_err());
        canceller.end(second);
        let third = canceller.begin();
        assert!(!canceller.is_requested(third));
        canceller.close().unwrap();
        canceller.cancel();
        assert!(!canceller.is_requested(third), "what goes on to its end is not asked");
    }
}
