//! The mailbox of a session: what happens to its requests elsewhere, and whether it may go on.
//!
//! ```text
//!   device threads --complete--> [ event | event | event ] --one wake--> session, which takes all of them
//! ```
//!
//! Invariants: a session that waits has put its waker here before it looked a last time, so no event is missed; many
//! events that come before the session runs wake it once. Events that a device completes inside `submit`, on the
//! session's own thread, wake nobody.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Waker;

use device::{DeviceError, Extent, IoRequest, IoSink};
use parking_lot::Mutex;

/// What happened to a request of a session.
#[derive(Debug)]
pub(super) enum Event {
    /// The device has completed it.
    Done(IoRequest, Result<(), DeviceError>),
    /// Its range is locked for it.
    Locked(u32),
    /// The extents of its range.
    Extents(u32, Result<Vec<Extent>, DeviceError>),
}

/// How a session may go on. It only becomes stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Course {
    /// Without restriction.
    On,
    /// Further requests are refused, what has begun ends and is replied to.
    Drain,
    /// What has begun ends; nothing is sent or received any more.
    Cut,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Mailbox {
    course: AtomicU8,
    is_read_only: AtomicBool,
    inner: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Event>,
    waker: Option<Waker>,
    is_woken: bool,
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox {
            course: AtomicU8::new(Course::On as u8),
            is_read_only: AtomicBool::new(false),
            inner: Mutex::default(),
        }
    }
}

impl Mailbox {
    /// Adds an event.
    #[inline]
    pub(super) fn put(&self, event: Event) {
        let waker = {
            let mut inner = self.inner.lock();
            inner.events.push(event);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Lets the session look again.
    pub(super) fn wake(&self) {
        let waker = {
            let mut inner = self.inner.lock();
            inner.is_woken = true;
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves the events into `events`, which is empty.
    #[inline]
    pub(super) fn take(&self, events: &mut Vec<Event>) {
        std::mem::swap(&mut self.inner.lock().events, events);
    }

    /// Waits for the next event, unless there is one already, or somebody called [`Mailbox::wake`]: then `false`.
    #[inline]
    pub(super) fn park(&self, waker: &Waker) -> bool {
        let mut inner = self.inner.lock();
        if !inner.events.is_empty() || std::mem::take(&mut inner.is_woken) {
            return false;
        }
        if inner.waker.as_ref().is_none_or(|own| !own.will_wake(waker)) {
            inner.waker = Some(waker.clone());
        }
        true
    }

    /// How the session may go on.
    #[inline]
    pub(super) fn course(&self) -> Course {
        match self.course.load(Ordering::Acquire) {
            0 => Course::On,
            1 => Course::Drain,
            _ => Course::Cut,
        }
    }

    /// Restricts the session. Returns whether it was not restricted so far already.
    pub(super) fn restrict(&self, course: Course) -> bool {
        let is_new = self.course.fetch_max(course as u8, Ordering::AcqRel) < course as u8;
        if is_new {
            self.wake();
        }
        is_new
    }

    /// Whether the session may change nothing, whatever its export allows.
    #[inline]
    pub(super) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// Lets the session change nothing from now on. Returns whether it could until now.
    pub(super) fn make_read_only(&self) -> bool {
        !self.is_read_only.swap(true, Ordering::AcqRel)
    }
}

impl IoSink for Mailbox {
    #[inline]
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.put(Event::Done(request, result));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn many_events_wake_once_and_none_is_missed() {
        let (mailbox, count) = (Mailbox::default(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        mailbox.put(Event::Locked(1));
        assert!(!mailbox.park(&waker), "an event is there already");
        let mut events = Vec::new();
        mailbox.take(&mut events);
        assert_eq!(events.len(), 1);
        assert!(mailbox.park(&waker));
        (0..5).for_each(|slot| mailbox.put(Event::Locked(slot)));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        mailbox.take(&mut Vec::new());
        mailbox.wake();
        assert!(!mailbox.park(&waker), "it was woken before it waited");
        assert!(mailbox.park(&waker));
    }

    #[test]
    fn a_course_only_becomes_stricter() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.course(), Course::On);
        mailbox.restrict(Course::Cut);
        mailbox.restrict(Course::Drain);
        assert_eq!(mailbox.course(), Course::Cut);
    }
}
