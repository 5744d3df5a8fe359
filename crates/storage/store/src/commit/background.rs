//! [`Background`]: the thread that applies what nobody waits for, such as services' records.
//!
//! Records come one by one and are applied in batches: after each batch the thread sleeps for a moment, so that more can
//! come. While the queue is empty it sleeps until it is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use device::supervise;
use parking_lot::{Condvar, Mutex};

use super::Committer;
use crate::StoreError;
use crate::apply::BATCH_BYTES;

/// Between batches. A record becomes visible about so much later than durable, if nobody waits for it. Large batches are cheap: a
/// leaf is looked up once, and a row that is made and deleted again, such as an output that waits for its delivery, costs
/// next to nothing. T4 was 6 to 9 % faster with 8 ms than with 2, and no faster with 16 (medians of four in turns, 2026-11-22).
const PAUSE: Duration = Duration::from_millis(8);
/// With nothing to apply: how often old versions are looked at.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Background {
    idle: AtomicBool,
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Background {
    /// A record came.
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

    /// Sleeps, long if there is nothing to do; whether to go on.
    fn sleep(&self, has_work: impl Fn() -> bool) -> bool {
        let mut stop = self.stop.lock();
        // Whoever pushes a record after this looks at it after that: one of the two sees the other.
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
/// Errors: [`StoreError::Refused`] where the system gives no thread.
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
        // With more than a batch behind there is nothing to wait for, unless all of it waits for the journal, or for room.
        let behind = applied && applier.queue.bytes() > BATCH_BYTES && !applier.is_poisoned();
        applied = false;
        // Where there is no room, room does not come in a moment.
        if !behind && !committer.background.sleep(|| !full && applier.queue.first().is_some()) {
            return;
        }
        supervise::rehearse("store-apply");
        if applier.is_poisoned() || !committer.waiters.try_apply() {
            continue;
        }
        // A failure poisons the store, and is reported to the next caller.
        let outcome = committer.apply_in_role();
        (applied, full) = (matches!(outcome, Ok(true)), matches!(outcome, Err(StoreError::Full(_))));
    }
}
