//! The file descriptions through which a device flushes: its own, and a second one once two threads write and flush in
//! parallel.
//!
//! ```text
//!   alone            own description                                      one descriptor, as for most devices
//!   in parallel      own | second, opened by the first that had to wait   two: a journal hands two batches to a device
//! ```
//!
//! Invariants:
//! 1. One flush at a time goes through a description: a description reports the error of a failed write-back to one
//!    flush only.
//! 2. A thread that flushes holds its turn until the device is poisoned, if the flush failed: the turn is taken before
//!    the poison's guard, and released after it.
//! 3. The second description is opened under the turn of the first, while no flush is in flight. An error that was
//!    reported by then has poisoned the device. One that was not is reported to the new description too (errseq_t
//!    reports unseen errors).
//!
//! If there is no descriptor for the second one, flushes run one after the other, which is slower and as safe.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct Flushers {
    own: Mutex<()>,
    second: Mutex<Option<File>>,
}

/// The right to flush through a description.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    Own(&'a File, #[expect(dead_code, reason = "held, not read")] MutexGuard<'a, ()>),
    Second(MutexGuard<'a, Option<File>>, &'a File),
}

impl Turn<'_> {
    /// The description.
    pub(crate) fn file(&self) -> &File {
        match self {
            Turn::Own(own, _) => own,
            // It exists as long as the guard lives; the fallback is never used.
            Turn::Second(second, own) => second.as_ref().unwrap_or(own),
        }
    }
}

impl Flushers {
    /// Returns the turn of the device's own description; waits for it.
    pub(crate) fn own<'a>(&'a self, file: &'a File) -> Turn<'a> {
        Turn::Own(file, self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a free turn; waits if there is none. `direct`: how the device's own description was opened.
    pub(crate) fn any<'a>(&'a self, file: &'a File, direct: bool) -> Turn<'a> {
        match self.own.try_lock() {
            Ok(own) => return Turn::Own(file, own),
            Err(TryLockError::Poisoned(poisoned)) => return Turn::Own(file, poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        if let Some(second) = self.try_second()
            && second.is_some()
        {
            return Turn::Second(second, file);
        }
        let turn = self.own(file);
        if let Some(mut second) = self.try_second()
            && second.is_none()
        {
            // Without it there is one turn, as described above.
            *second = again(file, direct).ok();
        }
        turn
    }

    fn try_second(&self) -> Option<MutexGuard<'_, Option<File>>> {
        match self.second.try_lock() {
            Ok(second) => Some(second),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Opens another description of an open file, whatever its present name is (proc_pid_fd(5)).
fn again(file: &File, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    File::options().read(true).write(true).custom_flags(flags).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_description_is_opened_only_where_two_flush_side_by_side_and_a_panic_costs_none() {
        let home = tempfile::tempdir().expect("temporary directory");
        let file = File::options().read(true).write(true).create_new(true).open(home.path().join("a")).expect("a file");
        let flushers = Flushers::default();
        let is_own = |turn: &Turn<'_>| std::ptr::eq(turn.file(), &raw const file);
        for _ in 0..3 {
            assert!(is_own(&flushers.any(&file, false)), "alone it has its own");
        }
        assert!(flushers.second.lock().expect("no panic").is_none());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = flushers.any(&file, false);
            panic!("while it has a turn");
        }));
        assert!(panicked.is_err());
        let has_second = || flushers.second.lock().expect("no panic").is_some();
        // The other thread may arrive when the turn is free again, and then need not wait.
        for _ in 0..1_000 {
            std::thread::scope(|scope| {
                let own = flushers.any(&file, false);
                let waits = scope.spawn(|| drop(flushers.any(&file, false)));
                std::thread::sleep(std::time::Duration::from_millis(1));
                drop(own);
                waits.join().expect("no panic");
            });
            if has_second() {
                break;
            }
        }
        assert!(has_second(), "who has to wait opens the second for those to come");
        let own = flushers.own(&file);
        let second = flushers.any(&file, false);
        assert!(is_own(&own) && !is_own(&second));
    }
}
