//! A few values of which each may be used by one thread at a time: the rings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// How many submissions may be in flight; a further one waits. A journal has two; beyond four, drives and the file
/// system's own journal merge flushes anyway.
pub(crate) const SLOTS: usize = 4;

/// [`SLOTS`] values, each behind its own lock.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Mutex<T>>,
    next: AtomicUsize,
}

impl<T> Slots<T> {
    /// Fills every slot with a value from `make`.
    pub(crate) fn new<E>(mut make: impl FnMut() -> Result<T, E>) -> Result<Slots<T>, E> {
        let slots = (0..SLOTS).map(|_| make().map(Mutex::new)).collect::<Result<_, E>>()?;
        Ok(Slots { slots, next: AtomicUsize::new(0) })
    }

    /// Returns a free slot, the lowest first so that a single thread always has the same one; waits if all are taken.
    pub(crate) fn acquire(&self) -> MutexGuard<'_, T> {
        for slot in &self.slots {
            match slot.try_lock() {
                Ok(guard) => return guard,
                // A panic leaves the content of a slot whole: a ring is taken out while in use.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        self.slots[turn].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_are_slots_are_held_at_once_and_a_panic_costs_none() {
        let mut count = 0;
        let slots = Slots::new(|| {
            count += 1;
            Ok::<_, ()>(count)
        })
        .expect("infallible");
        let held: Vec<_> = (0..SLOTS).map(|_| slots.acquire()).collect();
        let mut numbers: Vec<i32> = held.iter().map(|guard| **guard).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=SLOTS as i32).collect::<Vec<_>>());
        drop(held);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _first = slots.acquire();
            panic!("while holding a slot");
        }));
        assert!(panicked.is_err());
        assert_eq!(*slots.acquire(), 1);
    }
}
