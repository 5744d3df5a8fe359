//! [`SearchStop`]: whether a search has to end before it is done: it was cancelled, its time is over, or it has no more memory.
//!
//! Whoever works for a search looks at it every few thousand steps: collecting, aggregating, scanning terms, highlighting, reading
//! documents. A cancelled search is an error; one whose time is over responds with what it has, and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tantivy::TantivyError;

use crate::error::{CANCELLED, STOPPED, SearchError};
use crate::memory::MemoryUse;

/// How long after its time a search may still read the documents of the hits that it has.
pub(crate) const FETCH_GRACE: Duration = Duration::from_millis(500);

/// See the head comment of this file.
#[derive(Debug, Default)]
pub struct SearchStop {
    /// Set by the client's leaving, by a request to cancel, and by the end of the server.
    cancelled: Arc<AtomicBool>,
    until: Option<Instant>,
    /// Somebody stopped because the time was over.
    cut_short: AtomicBool,
    memory: Arc<MemoryUse>,
}

impl SearchStop {
    /// Stops when `cancelled` is set, or at `until`.
    pub fn new(cancelled: Arc<AtomicBool>, until: Option<Instant>) -> SearchStop {
        SearchStop { cancelled, until, ..SearchStop::default() }
    }

    /// The same, with so much memory for what it finds.
    #[must_use]
    pub fn within(self, memory: MemoryUse) -> SearchStop {
        SearchStop { memory: Arc::new(memory), ..self }
    }

    /// Memory of what the search finds.
    pub fn memory(&self) -> &Arc<MemoryUse> {
        &self.memory
    }

    /// Whether the search was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether some of the work was left out because the time was over.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short.load(Ordering::Relaxed)
    }

    /// Whether the time is over: what calls it leaves the rest of its work out.
    ///
    /// Errors: the search was cancelled.
    pub fn is_over(&self) -> Result<bool, SearchError> {
        self.is_over_after(Duration::ZERO)
    }

    /// As [`is_over`](SearchStop::is_over), for the documents of hits that were found in time.
    ///
    /// Errors: the search was cancelled.
    pub fn is_fetch_over(&self) -> Result<bool, SearchError> {
        self.is_over_after(FETCH_GRACE)
    }

    fn is_over_after(&self, grace: Duration) -> Result<bool, SearchError> {
        if self.is_cancelled() {
            return Err(SearchError::cancelled());
        }
        let over = self.until.is_some_and(|until| Instant::now() >= until + grace);
        if over {
            self.cut_short.store(true, Ordering::Relaxed);
        }
        Ok(over)
    }

    /// For work inside of the library.
    ///
    /// Errors: the search has to end; see [`SearchStop::cut`] for where that is handled.
    pub(crate) fn check(&self) -> tantivy::Result<()> {
        match self.is_over() {
            Ok(false) => Ok(()),
            Ok(true) | Err(_) => Err(TantivyError::InternalError(STOPPED.to_owned())),
        }
    }

    /// What work inside of the library ended in: nothing if its time was over.
    ///
    /// Errors: the search was cancelled; the work failed for another reason.
    pub(crate) fn cut<T>(&self, done: Result<T, SearchError>) -> Result<Option<T>, SearchError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.kind == CANCELLED && !self.is_cancelled() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_search_is_an_error_and_one_out_of_time_is_cut_short() {
        let flag = Arc::new(AtomicBool::new(false));
        let stop = SearchStop::new(Arc::clone(&flag), None);
        assert!(!stop.is_over().expect("not cancelled") && stop.check().is_ok() && !stop.is_cut_short());
        let late = SearchStop::new(Arc::clone(&flag), Some(Instant::now()));
        let failed = late.check().map_err(SearchError::from);
        assert!(late.cut(failed).expect("no error").is_none(), "what was not done is left out");
        assert!(late.is_over().expect("not cancelled") && late.is_cut_short());
        flag.store(true, Ordering::Relaxed);
        for stop in [stop, late] {
            assert_eq!(stop.is_over().expect_err("cancelled").kind, CANCELLED);
            let failed = stop.check().map_err(SearchError::from);
            assert_eq!(stop.cut(failed).expect_err("cancelled").kind, CANCELLED);
        }
        let other = SearchStop::default().cut::<()>(Err(SearchError::internal("broken")));
        assert_eq!(other.expect_err("it failed").status, 500, "other errors stay");
    }
}
