//! [`Keeping`]: the thread that writes what alerts keep, so that a medium that hangs or is full does not keep anybody from being told.
//!
//! ```text
//!   change --add--> pending --thread--> store
//!      +--- wait, ten seconds at most <----+
//! ```
//!
//! Invariants: changes are written in their order; what could not be written stays pending and goes with the next change.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::kept::{AlertChange, KeptAlerts};

/// How long anybody waits for the store.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct PendingChanges {
    change: AlertChange,
    /// How many changes were added.
    added: u64,
    /// How many of them were tried to be written.
    done: u64,
    /// Why the last try failed.
    failed: Option<String>,
    ends: bool,
    has_ended: bool,
}

type Shared = (Mutex<PendingChanges>, Condvar);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Keeping(Arc<Shared>);

impl Keeping {
    /// Starts the thread. Errors: the system cannot.
    pub(super) fn start(kept: KeptAlerts) -> Result<Keeping, String> {
        let shared = Arc::new((Mutex::new(PendingChanges::default()), Condvar::new()));
        let (of_thread, of_failure) = (Arc::clone(&shared), Arc::clone(&shared));
        let failed = move |why: &str| {
            tracing::error!(why, "alerts are not kept any more until the next start: report it");
            let mut pending = of_failure.0.lock();
            pending.has_ended = true;
            of_failure.1.notify_all();
        };
        device::supervise::thread("alerts-keep", move || write_all(&of_thread, &kept), failed)
            .map_err(|error| error.to_string())?;
        Ok(Keeping(shared))
    }

    /// Has a change written. Errors: it could not, or not within ten seconds; it goes with the next one.
    pub(super) fn keep(&self, change: AlertChange) -> Result<(), String> {
        if change.is_empty() {
            return Ok(());
        }
        let (pending, changed) = &*self.0;
        let mut pending = pending.lock();
        pending.change.add(change);
        pending.added += 1;
        let number = pending.added;
        changed.notify_all();
        while pending.done < number {
            if pending.has_ended {
                return Err("alerts are not kept any more".to_owned());
            }
            if changed.wait_for(&mut pending, PATIENCE).timed_out() && pending.done < number {
                return Err(format!("the store did not take it within {} s", PATIENCE.as_secs()));
            }
        }
        pending.failed.clone().map_or(Ok(()), Err)
    }

    /// Ends the thread, after what is pending; waits ten seconds at most.
    pub(super) fn stop(&self) {
        let (pending, changed) = &*self.0;
        let mut pending = pending.lock();
        pending.ends = true;
        changed.notify_all();
        while !pending.has_ended {
            if changed.wait_for(&mut pending, PATIENCE).timed_out() {
                return;
            }
        }
    }
}

fn write_all(shared: &Shared, kept: &KeptAlerts) {
    let (pending, changed) = shared;
    loop {
        let (change, number) = {
            let mut pending = pending.lock();
            while pending.added == pending.done && !pending.ends {
                changed.wait(&mut pending);
            }
            if pending.added == pending.done {
                pending.has_ended = true;
                changed.notify_all();
                return;
            }
            (std::mem::take(&mut pending.change), pending.added)
        };
        device::supervise::rehearse("alerts-keep");
        let wrote = kept.write(&change);
        let mut pending = pending.lock();
        pending.done = number;
        pending.failed = wrote.as_ref().err().map(ToString::to_string);
        if wrote.is_err() {
            let later = std::mem::replace(&mut pending.change, change);
            pending.change.add(later);
        }
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use store::{Options, Store};

    use super::super::book::AlertState;
    use super::*;

    #[test]
    fn what_was_kept_is_in_the_store_when_it_returns_and_after_the_end_nothing_is_taken() {
        let kept = KeptAlerts::of(Store::in_memory(Options::default()).expect("memory"));
        let keeping = Keeping::start(kept.clone()).expect("a thread");
        for last_silence in 1..20 {
            let state = AlertState { last_silence, ..AlertState::default() };
            keeping.keep(AlertChange { state: Some(state.clone()), ..AlertChange::default() }).expect("kept");
            assert_eq!(kept.state().expect("there").0, state);
        }
        keeping.keep(AlertChange::default()).expect("nothing to do");
        keeping.stop();
        let change = AlertChange { drop: [7].into(), ..AlertChange::default() };
        assert!(keeping.keep(change).is_err());
    }
}
