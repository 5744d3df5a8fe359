//! [`Canceller`]: ends a session's running statement from another thread. [`Running`]: the statement that can be ended.
//!
//! ```text
//!   begin --> open --close--> runs to its end --end--> closed
//!               |      ^            |
//!               |      +---reopen---+
//!               +--requested: by a request, by its time, by the session's end, by a right that is revoked
//! ```
//!
//! A commit that has begun cannot be undone: after `close`, requests are ignored. Computing threads call
//! [`Running::check`] between two steps; waiting threads also wait for [`Running::requested_end`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::SqlError;

/// States of a statement: the last four are reasons why it ends.
const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const CANCELLED: u8 = 2;
const TIMED_OUT: u8 = 3;
const TERMINATED: u8 = 4;
const REVOKED: u8 = 5;

/// The text of the error of a statement whose right was revoked while it ran.
pub(crate) const RIGHT_REVOKED: &str = "permission denied: a right of this statement was revoked";

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Ends the running statement of its session; clones are equivalent. A request between two statements has no effect.
#[derive(Clone, Debug, Default)]
pub struct Canceller {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    running: Arc<Running>,
    /// The session is to end: each statement is asked to end when it begins.
    terminated: bool,
}

/// One statement.
#[derive(Debug)]
pub(crate) struct Running {
    state: AtomicU8,
    notify: Notify,
    began: Instant,
    /// The deadline, in microseconds after the statement's begin.
    deadline: AtomicU64,
}

impl Default for Running {
    /// The state in which no statement runs.
    fn default() -> Running {
        Running {
            state: AtomicU8::new(CLOSED),
            notify: Notify::new(),
            began: Instant::now(),
            deadline: AtomicU64::new(NEVER),
        }
    }
}

impl Canceller {
    /// Asks the running statement to end with SQLSTATE 57014.
    pub fn cancel(&self) {
        self.current().request_end(CANCELLED);
    }

    /// Asks the running statement, and all later ones, to end with SQLSTATE 57P01: the session is to end.
    pub fn terminate(&self) {
        let mut inner = self.inner.lock();
        inner.terminated = true;
        inner.running.request_end(TERMINATED);
    }

    /// Begins a statement that may take `most`; zero means no limit.
    pub(crate) fn begin(&self, most: Duration) -> Arc<Running> {
        let deadline = if most.is_zero() { NEVER } else { u64::try_from(most.as_micros()).unwrap_or(NEVER) };
        let mut inner = self.inner.lock();
        let state = AtomicU8::new(if inner.terminated { TERMINATED } else { OPEN });
        let running = Running { state, deadline: AtomicU64::new(deadline), ..Running::default() };
        inner.running = Arc::new(running);
        inner.running.clone()
    }

    /// The statement that began last.
    pub(crate) fn current(&self) -> Arc<Running> {
        self.inner.lock().running.clone()
    }

    /// Why the running statement was asked to end, by who has asked it.
    pub(crate) fn why(&self) -> SqlError {
        self.current().check().err().unwrap_or(SqlError::Cancelled)
    }

    /// From now on the running statement, if any, runs to its end. Errors: the earlier request to end.
    pub(crate) fn close(&self) -> Result<(), SqlError> {
        self.current().close()
    }

    /// The running statement is repeated: requests have an effect again.
    pub(crate) fn reopen(&self) {
        // A statement that was asked to end stays so.
        let _ = self.current().state.compare_exchange(CLOSED, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Running {
    fn request_end(&self, why: u8) {
        if self.state.compare_exchange(OPEN, why, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.notify.notify_waiters();
        }
    }

    /// Asks the statement to end because one of its rights was revoked; `is_over`: its session is to end, too. Returns the
    /// error that it ends with; none where it runs to its end.
    pub(crate) fn revoke(&self, is_over: bool) -> Option<SqlError> {
        self.request_end(if is_over { TERMINATED } else { REVOKED });
        self.check_state().err()
    }

    /// From now on the statement runs to its end. Errors: the earlier request to end.
    pub(crate) fn close(&self) -> Result<(), SqlError> {
        self.check()?;
        self.end();
        // A request came between the two steps.
        self.check()
    }

    /// The statement is over.
    pub(crate) fn end(&self) {
        // A statement that was asked to end stays so: threads that still compute for it must end.
        let _ = self.state.compare_exchange(OPEN, CLOSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns an error if the statement was asked to end. Errors: [`SqlError::Cancelled`], [`SqlError::TimedOut`],
    /// [`SqlError::Terminated`], 42501.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        match self.state.load(Ordering::Acquire) {
            CLOSED => Ok(()),
            OPEN => match self.left() {
                Some(left) if left.is_zero() => {
                    self.request_end(TIMED_OUT);
                    self.check_state()
                }
                _ => Ok(()),
            },
            _ => self.check_state(),
        }
    }

    fn check_state(&self) -> Result<(), SqlError> {
        match self.state.load(Ordering::Acquire) {
            CANCELLED => Err(SqlError::Cancelled),
            TIMED_OUT => Err(SqlError::TimedOut),
            TERMINATED => Err(SqlError::Terminated),
            REVOKED => Err(SqlError::statement("42501", RIGHT_REVOKED)),
            _ => Ok(()),
        }
    }

    /// The remaining time, if it is bounded.
    fn left(&self) -> Option<Duration> {
        let deadline = self.deadline.load(Ordering::Relaxed);
        (deadline != NEVER).then(|| Duration::from_micros(deadline).saturating_sub(self.began.elapsed()))
    }

    /// Extends the deadline by time that the client took.
    pub(crate) fn excuse(&self, time: Duration) {
        let deadline = self.deadline.load(Ordering::Relaxed);
        if deadline != NEVER {
            let time = u64::try_from(time.as_micros()).unwrap_or(NEVER);
            self.deadline.store(deadline.saturating_add(time), Ordering::Relaxed);
        }
    }

    /// Whether the statement's time is bounded.
    pub(crate) fn is_timed(&self) -> bool {
        self.deadline.load(Ordering::Relaxed) != NEVER
    }

    /// Waits until the statement is asked to end, and returns the error that it ends with.
    pub(crate) async fn requested_end(&self) -> SqlError {
        loop {
            let notified = self.notify.notified();
            if let Err(why) = self.check() {
                return why;
            }
            match self.left() {
                // After the timeout it checks again, because the remaining time may have grown.
                Some(left) => drop(tokio::time::timeout(left, notified).await),
                None => notified.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_hits_the_running_statement_and_no_other() {
        let canceller = Canceller::default();
        let first = canceller.begin(Duration::ZERO);
        first.end();
        canceller.cancel();
        let second = canceller.begin(Duration::ZERO);
        assert!(second.check().is_ok());
        // The rows of the first statement are dropped late.
        first.end();
        canceller.cancel();
        assert!(matches!(second.check(), Err(SqlError::Cancelled)));
        assert!(canceller.close().is_err());
        second.end();
        assert!(second.check().is_err(), "what still computes for it must end");
        let third = canceller.begin(Duration::ZERO);
        assert!(third.check().is_ok());
        canceller.close().unwrap();
        canceller.cancel();
        assert!(third.check().is_ok(), "what goes on to its end is not asked");
    }

    #[test]
    fn a_session_that_is_to_end_ends_each_statement() {
        let canceller = Canceller::default();
        canceller.terminate();
        for _ in 0..2 {
            assert!(matches!(canceller.begin(Duration::ZERO).check(), Err(SqlError::Terminated)));
        }
    }

    #[tokio::test]
    async fn a_statement_ends_when_its_time_is_over_unless_it_commits() {
        let canceller = Canceller::default();
        let running = canceller.begin(Duration::from_millis(1));
        running.excuse(Duration::from_millis(1));
        assert!(matches!(running.requested_end().await, SqlError::TimedOut));
        assert!(matches!(running.check(), Err(SqlError::TimedOut)));
        let commits = canceller.begin(Duration::from_secs(3600));
        canceller.close().unwrap();
        commits.deadline.store(0, Ordering::Relaxed);
        assert!(commits.check().is_ok());
    }
}
