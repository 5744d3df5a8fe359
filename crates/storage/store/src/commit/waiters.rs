//! [`CommitWaiters`]: committers wait here until their change is durable and visible, and take the roles that make it
//! so.
//!
//! ```text
//!   thread 1   flush A --------> apply A -> wakes all of A, one of C
//!   thread 2   waits here        ........... returns: woken once, takes no lock
//!   thread 3        flush B (waits in the journal) --------> apply B -> ...
//!   thread 4             waits ....................................... returns
//! ```
//!
//! A thread that finds the journal free flushes for all that wait; a thread that finds durable records that no thread
//! applies applies them. At most [`FLUSHERS_MAX`] committers wait in the journal, and the others here: so no committer
//! is woken twice, once by the journal and once by the applier.
//!
//! Invariants:
//! 1. A thread that waits here is woken: by the applier that made its record visible, or, to take a role, by a thread
//!    that released that role while there was work for it. A role is refused only while another thread holds it.
//! 2. One thread at a time holds `applying`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

/// Committers that wait in the journal: one for the batch in flight, one for the next batch.
const FLUSHERS_MAX: u32 = 2;

/// A waiting committer: its thread, and whether it was woken.
#[derive(Debug)]
pub(crate) struct CommitWaiter {
    woken: AtomicBool,
    thread: Thread,
}

impl CommitWaiter {
    fn new() -> Arc<CommitWaiter> {
        Arc::new(CommitWaiter { woken: AtomicBool::new(false), thread: std::thread::current() })
    }

    /// Waits until woken; called by the thread that owns the seat.
    pub(crate) fn wait(&self) {
        while !self.woken.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The next step of a committer.
#[derive(Debug)]
pub(crate) enum Role {
    /// Nothing: its record is visible.
    Done,
    /// Commit the journal, then call [`CommitWaiters::flushed`].
    Flush,
    /// Apply the durable records, then call [`CommitWaiters::applied`].
    Apply,
    /// Wait, then enter again.
    Wait(Arc<CommitWaiter>),
}

#[derive(Debug, Default)]
struct State {
    flushers: u32,
    applying: bool,
    seats: VecDeque<(u64, Arc<CommitWaiter>)>,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct CommitWaiters {
    state: Mutex<State>,
}

impl CommitWaiters {
    /// How many threads wait to be woken.
    #[cfg(test)]
    pub(crate) fn seated(&self) -> usize {
        self.state.lock().seats.len()
    }

    /// Returns the next step for the committer of `lsn`. `visible` and `durable` are read under the lock.
    pub(crate) fn enter(&self, lsn: u64, visible: impl Fn() -> u64, durable: impl Fn() -> u64) -> Role {
        let mut state = self.state.lock();
        if visible() >= lsn {
            return Role::Done;
        }
        if durable() > lsn {
            if !state.applying {
                state.applying = true;
                return Role::Apply;
            }
        } else if state.flushers < FLUSHERS_MAX {
            state.flushers += 1;
            return Role::Flush;
        }
        let seat = CommitWaiter::new();
        state.seats.push_back((lsn, seat.clone()));
        Role::Wait(seat)
    }

    /// Takes the applier's role if it is free.
    pub(crate) fn try_apply(&self) -> bool {
        let mut state = self.state.lock();
        !std::mem::replace(&mut state.applying, true)
    }

    /// Releases the role of a flusher: a thread that still waits for the journal takes it.
    pub(crate) fn flushed(&self, durable: impl Fn() -> u64) {
        let mut state = self.state.lock();
        state.flushers -= 1;
        let (durable, applying) = (durable(), state.applying);
        let next = state.seats.iter().position(|(lsn, _)| *lsn >= durable || !applying);
        let next = next.and_then(|at| state.seats.remove(at));
        drop(state);
        if let Some((_, seat)) = next {
            seat.wake();
        }
    }

    /// Releases the applier's role: wakes the threads whose record is visible, and one whose record is durable but not
    /// applied.
    pub(crate) fn applied(&self, visible: impl Fn() -> u64, durable: impl Fn() -> u64) {
        let mut state = self.state.lock();
        state.applying = false;
        let (visible, durable) = (visible(), durable());
        let mut woken = Vec::with_capacity(state.seats.len());
        state.seats.retain(|(lsn, seat)| {
            let done = *lsn <= visible;
            if done {
                woken.push(seat.clone());
            }
            !done
        });
        let next = state.seats.iter().position(|(lsn, _)| *lsn < durable);
        woken.extend(next.and_then(|at| state.seats.remove(at)).map(|(_, seat)| seat));
        // If no flusher is left, wakes one more: a thread that arrived just before the last flusher left may not have
        // been woken by it.
        if state.flushers == 0 {
            woken.extend(state.seats.pop_front().map(|(_, seat)| seat));
        }
        drop(state);
        woken.iter().for_each(|seat| seat.wake());
    }

    /// Wakes every thread, so that it checks again: the store is poisoned or closed.
    pub(crate) fn wake_all(&self) {
        let seats = std::mem::take(&mut self.state.lock().seats);
        seats.iter().for_each(|(_, seat)| seat.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_handed_on_and_nobody_is_forgotten() {
        let waiters = CommitWaiters::default();
        let enter = |lsn, visible: u64, durable: u64| waiters.enter(lsn, || visible, || durable);
        assert!(matches!(enter(10, 0, 5), Role::Flush) && matches!(enter(20, 0, 5), Role::Flush));
        let Role::Wait(third) = enter(30, 0, 5) else { panic!("two flush") };
        waiters.flushed(|| 15);
        assert!(third.woken.load(Ordering::Acquire), "takes over the flusher's role");
        assert!(matches!(enter(30, 0, 15), Role::Flush));
        assert!(matches!(enter(10, 0, 15), Role::Apply));
        assert!(!waiters.try_apply());
        let Role::Wait(second) = enter(12, 0, 15) else { panic!("one applies") };
        let Role::Wait(late) = enter(14, 0, 15) else { panic!("one applies") };
        waiters.applied(|| 12, || 15);
        assert!(second.woken.load(Ordering::Acquire), "is visible");
        assert!(late.woken.load(Ordering::Acquire), "is durable, and has to apply");
        assert!(matches!(enter(12, 12, 15), Role::Done) && matches!(enter(14, 12, 15), Role::Apply));
    }
}
