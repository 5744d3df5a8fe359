//! [`Pool`]: the part of the memory that DataFusion's operators reserve, shared out between those that spill and those that cannot.
//!
//! DataFusion's own pool lets operators that spill take all of it; then a merge, which cannot, finds nothing left, and
//! the query fails although every sort below it has spilled. Here a part is never theirs.
//!
//! What hands rows from thread to thread is never refused: DataFusion 55 would spill them, and two threads that do so at the same time
//! wait for each other for ever (apache/datafusion issue 24883). What it holds takes room from the others, and the account bounds it.

use std::fmt;

use datafusion::common::DataFusionError;
use datafusion::error::Result as DfResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

/// Of five parts, those that operators may take that can spill.
const SPILLABLE_OF_FIVE: usize = 3;

/// How the names of consumers that hand rows on begin.
const HANDS_ON: &str = "RepartitionExec";

/// What a consumer does where there is no room for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WithoutRoom {
    Spills,
    Fails,
    /// It is not refused.
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
    /// How many operators can spill.
    spilling: usize,
    spillable: usize,
    unspillable: usize,
}

impl Pool {
    /// A pool of so many bytes.
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
        let mut state = self.state.lock();
        match without_room(reservation.consumer()) {
            WithoutRoom::Spills => state.spillable += additional,
            WithoutRoom::Fails | WithoutRoom::Waits => state.unspillable += additional,
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut state = self.state.lock();
        match without_room(reservation.consumer()) {
            WithoutRoom::Spills => state.spillable = state.spillable.saturating_sub(shrink),
            WithoutRoom::Fails | WithoutRoom::Waits => state.unspillable = state.unspillable.saturating_sub(shrink),
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DfResult<()> {
        let mut state = self.state.lock();
        let without_room = without_room(reservation.consumer());
        let (taken, most) = match without_room {
            // Each that spills may have as much as the others.
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
        match without_room {
            WithoutRoom::Spills => state.spillable += additional,
            WithoutRoom::Fails | WithoutRoom::Waits => state.unspillable += additional,
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        let state = self.state.lock();
        state.spillable + state.unspillable
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
        let hands_on = MemoryConsumer::new("RepartitionExec[0]").with_can_spill(true).register(&pool);
        hands_on.try_grow(500).expect("it is not refused");
        assert_eq!(pool.reserved(), 1500);
        drop(hands_on);
        assert_eq!(pool.reserved(), 1000);
    }
}
