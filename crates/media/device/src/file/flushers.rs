//! The descriptions that one device flushes through: its own, and a second one once two threads write and flush side by side.
//!
//! ```text
//!   alone            own description                                      one descriptor, as most devices have for ever
//!   side by side     own | second, opened by the first that had to wait   two: a journal hands two batches to a device
//! ```
//!
//! Invariants:
//! 1. One flush at a time goes through a description: it takes the error of a failed write-back for itself alone.
//! 2. Whoever flushes holds its turn until the device is poisoned, where the flush failed: the turn is taken before, and given
//!    up after, the poison's guard.
//! 3. The second description is opened under the turn of the first, while no flush is in flight: an error that was told by then
//!    has poisoned the device, and one that was not is told to the new description too (errseq_t: unseen errors are).
//!
//! Without a descriptor for the second one flushes go one after the other, which is slower and as safe.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// See the module's text.
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
            // It is there for as long as the guard lives; the other is never taken.
            Turn::Second(second, own) => second.as_ref().unwrap_or(own),
        }
    }
}

impl Flushers {
    /// The turn of the device's own description; waits for it.
    pub(crate) fn own<'a>(&'a self, file: &'a File) -> Turn<'a> {
        Turn::Own(file, self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A turn that is free; waits if none is. `direct`: as the device's own description was opened.
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
            // Without it there is one turn: said above.
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

/// Another description of an open file, whatever its name is by now (proc_pid_fd(5)).
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
        // The other thread may come when the turn is free again, and has nothing to wait for then.
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
