//! [`FlushRequests`]: what callers that do not wait share with the [flusher](crate::flusher), and the observer of
//! `durable`.
//!
//! Invariant: the flusher clears `pending` before it looks how far the log is appended, and a request is made after its
//! append: so a record whose request found `pending` set is seen by the flusher.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, OnceLock};

/// What callers and the flusher share.
#[derive(Default)]
pub(crate) struct FlushRequests {
    /// A flush was requested that the flusher has not begun.
    pending: AtomicBool,
    /// Wakes the flusher.
    pub(crate) work: Condvar,
    observer: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for FlushRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlushRequests").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl FlushRequests {
    /// Records a request; returns whether the flusher must be woken. If it has not begun since the last request, it will
    /// see this one too.
    pub(crate) fn request(&self) -> bool {
        !self.pending.swap(true, Ordering::AcqRel)
    }

    /// Takes the request, if there is one.
    pub(crate) fn take(&self) -> bool {
        self.pending.swap(false, Ordering::AcqRel)
    }

    /// Sets the observer. Panics if there is one.
    pub(crate) fn observe(&self, observer: Box<dyn Fn() + Send + Sync>) {
        assert!(self.observer.set(observer).is_ok(), "a journal has one flusher");
    }

    /// Calls the observer, if there is one.
    pub(crate) fn notify_observer(&self) {
        if let Some(observer) = self.observer.get() {
            observer();
        }
    }

    /// Wakes the flusher, so that it sees that it must end.
    pub(crate) fn wake(&self) {
        self.work.notify_all();
    }
}
