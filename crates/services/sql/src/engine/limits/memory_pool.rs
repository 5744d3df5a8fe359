//! [`Pool`]: the part of the memory that DataFusion's operators reserve, divided between operators that spill and those
//! that cannot.
//!
//! DataFusion's own pool lets operators that spill take all of it. Then a merge, which cannot spill, finds no memory
//! left, and the query fails although every sort below it has spilled. Here a part of the pool is never given to
//! operators that spill.
//!
//! Operators that pass batches between threads are never refused: DataFusion 55 would spill the batches, and two
//! threads that do so at the same time wait for each other without end (apache/datafusion issue 24883). Batches on
//! their way between threads are not charged to the pool: charging them would make other operators fail. The session's
//! account bounds them.

use std::fmt;

use datafusion::common::DataFusionError;
use datafusion::error::Result as DfResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

/// The part of the pool that operators that spill may take, in fifths.
const SPILLABLE_OF_FIVE: usize = 3;

/// The prefix of the names of consumers that pass batches between threads.
const HANDS_ON: &str = "RepartitionExec";

/// The effect on a consumer if there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WithoutRoom {
    Spills,
    Fails,
    /// The consumer is never refused.
    Waits,
}

fn without_room(consumer: &MemoryConsumer) -> WithoutRoom {
    match consumer.can_spill() {
        _ if consumer.name().starts_with(HANDS_ON) => WithoutRoom::Waits,
        true => WithoutRoom::Spills,
        false => WithoutRoom::Fails,
    }
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    bytes: usize,
    state: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    /// The number of operators that can spill.
    spilling: usize,
    spillable: usize,
    unspillable: usize,
    /// Bytes on their way from thread to thread.
    waiting: usize,
}

impl Reserved {
    fn part(&mut self, consumer: &MemoryConsumer) -> &mut usize {
        match without_room(consumer) {
            WithoutRoom::Spills => &mut self.spillable,
            WithoutRoom::Fails => &mut self.unspillable,
            WithoutRoom::Waits => &mut self.waiting,
        }
    }
}

impl Pool {
    /// A pool of `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Pool {
        Pool { bytes, state: Mutex::default() }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.bytes)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "sql"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.state.lock().spilling += usize::from(without_room(consumer) == WithoutRoom::Spills);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock();
        state.spilling = state.spilling.saturating_sub(usize::from(without_room(consumer) == WithoutRoom::Spills));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.state.lock().part(reservation.consumer()) += additional;
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut state = self.state.lock();
        let part = state.part(reservation.consumer());
        *part = part.saturating_sub(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DfResult<()> {
        let mut state = self.state.lock();
        let (taken, most) = match without_room(reservation.consumer()) {
            // Each operator that spills may take as much as the others.
            WithoutRoom::Spills => {
                let all = (self.bytes / 5 * SPILLABLE_OF_FIVE).min(self.bytes.saturating_sub(state.unspillable));
                (reservation.size(), all / state.spilling.max(1))
            }
            WithoutRoom::Fails => (state.unspillable + state.spillable, self.bytes),
            WithoutRoom::Waits => (0, usize::MAX),
        };
        if taken.saturating_add(additional) > most {
            let name = reservation.consumer().name();
            let text = format!("out of memory: {name} needs {additional} bytes more, and has {taken} of {most}");
            return Err(DataFusionError::ResourcesExhausted(text));
        }
        *state.part(reservation.consumer()) += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        let state = self.state.lock();
        state.spillable + state.unspillable + state.waiting
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_spills_leaves_room_for_what_cannot() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(1000));
        let sort = |name| MemoryConsumer::new(name).with_can_spill(true).register(&pool);
        let (first, second) = (sort("first"), sort("second"));
        first.try_grow(300).expect("a half of three fifths");
        assert!(first.try_grow(1).is_err());
        second.try_grow(300).expect("the other half");
        let merge = MemoryConsumer::new("merge").register(&pool);
        merge.try_grow(400).expect("what is left");
        assert!(merge.try_grow(1).is_err());
        drop((first, second));
        merge.try_grow(600).expect("all is left");
        assert_eq!(pool.reserved(), 1000);
        drop(merge);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn what_is_on_its_way_is_not_refused_and_takes_no_room() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(1000));
        let consumer = |name, spills| MemoryConsumer::new(name).with_can_spill(spills).register(&pool);
        let (hands_on, sort, merge) =
            (consumer("RepartitionExec[0]", true), consumer("sort", true), consumer("merge", false));
        hands_on.try_grow(1500).expect("it is not refused");
        sort.try_grow(600).expect("three fifths are its");
        merge.try_grow(400).expect("the rest is its");
        assert!(sort.try_grow(1).is_err() && merge.try_grow(1).is_err());
        assert_eq!(pool.reserved(), 2500);
        drop(hands_on);
        assert_eq!(pool.reserved(), 1000);
    }
}
