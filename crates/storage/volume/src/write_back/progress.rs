//! [`Destaging`]: who destages, who wants it, and who waits for it.
//!
//! Writers wake the thread without a lock as long as it is awake. Those that wait look at the number of rounds that have ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::format::PageKey;

/// How far destaging is.
#[derive(Debug, Default)]
pub(super) struct DestageProgress {
    /// Rounds that have ended.
    pub(super) rounds: u64,
    pub(super) is_wanted: bool,
    pub(super) is_stopped: bool,
}

/// What those who destage, and those who wait for it, share.
#[derive(Debug, Default)]
pub(super) struct Destaging {
    /// Where the next round begins. Held during a round.
    pub(super) cursor: Mutex<PageKey>,
    pub(super) progress: Mutex<DestageProgress>,
    pub(super) changed: Condvar,
    /// Rounds that made places free. A write that found none compares it with what it read before it looked, so that a round in
    /// between is not missed, however late the write wakes.
    pub(super) fruitful: AtomicU64,
    pub(super) is_running: AtomicBool,
    /// The thread has been woken and has not begun yet.
    pub(super) is_woken: AtomicBool,
}

impl Destaging {
    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// There is something to destage.
    #[inline]
    pub(super) fn wake(&self) {
        if !self.is_woken.load(Ordering::Relaxed) {
            self.wake_now();
        }
    }

    #[cold]
    pub(super) fn wake_now(&self) {
        let mut progress = self.progress.lock();
        self.is_woken.store(true, Ordering::Relaxed);
        progress.is_wanted = true;
        drop(progress);
        self.changed.notify_all();
    }

    pub(super) fn wake_all(&self) {
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.progress.lock().is_stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.progress.lock().is_stopped
    }
}
