//! [`TakenValues`]: what a session has taken from sequences: the results of `currval` and `lastval`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::table::Sequence;

/// The values that a session has taken.
#[derive(Debug, Default)]
pub(crate) struct TakenValues(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    /// By the numbers of sequences.
    values: HashMap<u64, i64>,
    last: Option<Arc<Sequence>>,
}

impl TakenValues {
    /// `nextval` has given a value.
    pub(crate) fn take(&self, sequence: Arc<Sequence>, value: i64) {
        let mut taken = self.0.lock();
        taken.values.insert(sequence.id, value);
        taken.last = Some(sequence);
    }

    /// `setval` has set a value as given.
    pub(crate) fn set(&self, sequence: u64, value: i64) {
        self.0.lock().values.insert(sequence, value);
    }

    /// The last value of a sequence.
    pub(crate) fn value(&self, sequence: u64) -> Option<i64> {
        self.0.lock().values.get(&sequence).copied()
    }

    /// The sequence of the last `nextval`, and its last value.
    pub(crate) fn last(&self) -> Option<(Arc<Sequence>, i64)> {
        let taken = self.0.lock();
        let last = taken.last.clone()?;
        let value = taken.values.get(&last.id).copied()?;
        Some((last, value))
    }

    /// Forgets them: DISCARD.
    pub(crate) fn forget(&self) {
        *self.0.lock() = Taken::default();
    }
}
