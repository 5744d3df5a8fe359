//! [`Background`]: the thread that applies records for which no committer waits, such as services' records.
//!
//! Records arrive one by one and are applied in batches: after each batch the thread pauses, so that more records can
//! collect. While the queue is empty it waits to be woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use device::supervise;
use parking_lot::{Condvar, Mutex};

use super::Committer;
use crate::StoreError;
use crate::apply::BATCH_BYTES;

/// The pause between two batches. If no committer waits for a record, it becomes visible about this long after it is
/// durable. Large batches are cheap: a leaf is looked up once, and a row that is inserted and deleted within a batch,
/// such as an output that waits for its delivery, costs almost nothing. T4 was 6 to 9 % faster with 8 ms than with 2,
/// and no faster with 16 (medians of four in turns, 2026-11-22).
const PAUSE: Duration = Duration::from_millis(8);
/// How often the thread collects old versions while there is nothing to apply.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Background {
    idle: AtomicBool,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Background {
    /// Wakes the thread when a record was queued.
    pub(crate) fn wake_if_idle(&self) {
        if self.idle.load(Ordering::SeqCst) && self.idle.swap(false, Ordering::SeqCst) {
            let _stop = self.stop.lock();
            self.wake.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_all();
    }

    /// Waits, longer if there is nothing to do; returns whether to continue.
    fn sleep(&self, has_work: impl Fn() -> bool) -> bool {
        let mut stop = self.stop.lock();
        // A thread that queues a record reads `idle` after the push, and this thread reads the queue after setting
        // `idle`: so at least one of them sees the other's store.
        self.idle.store(true, Ordering::SeqCst);
        let time = if has_work() { PAUSE } else { LOOK };
        if time == PAUSE {
            self.idle.store(false, Ordering::SeqCst);
        }
        if !*stop {
            self.wake.wait_for(&mut stop, time);
        }
        self.idle.store(false, Ordering::SeqCst);
        !*stop
    }
}

/// Starts the thread.
///
/// Errors: [`StoreError::Refused`] if the system cannot start a thread.
pub(crate) fn start(committer: &Arc<Committer>) -> Result<JoinHandle<()>, StoreError> {
    let work = {
        let committer = committer.clone();
        move || run(&committer)
    };
    let poison = committer.applier.poison.clone();
    let spawned = supervise::thread("store-apply", work, move |why| _ = poison.set(&why));
    spawned.map_err(|error| StoreError::Refused(format!("the applying thread could not be started: {error}").into()))
}

fn run(committer: &Committer) {
    let applier = &*committer.applier;
    let (mut applied, mut full) = (false, false);
    loop {
        // If more than a batch waits there is no reason to pause, unless all of it waits for the journal or for space.
        let waiting = applier.queue.bytes() + applier.queue.deferred();
        let behind = applied && waiting > BATCH_BYTES && !applier.is_poisoned();
        applied = false;
        // If the medium is full, pause in any case: space does not become free at once.
        if !behind && !committer.background.sleep(|| !full && applier.queue.first().is_some()) {
            return;
        }
        applier.truncate_if_wanted();
        supervise::rehearse("store-apply");
        if applier.is_poisoned() || !committer.waiters.try_apply() {
            continue;
        }
        // A failure poisons the store; the next call returns the cause.
        let outcome = committer.apply_in_role();
        (applied, full) = (matches!(outcome, Ok(true)), matches!(outcome, Err(StoreError::Full(_))));
    }
}
