//! [`TakenValues`]: what a session has taken from sequences: the results of `currval` and `lastval`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::table::{Catalog, Sequence};

/// So many are kept without a look at whether their sequences are still there.
const MANY: usize = 1024;

/// The values that a session has taken.
#[derive(Debug, Default)]
pub(crate) struct TakenValues(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    /// By the numbers of sequences.
    values: HashMap<u64, i64>,
    /// At this number those of sequences that are gone are removed.
    most: usize,
    last: Option<Arc<Sequence>>,
}

impl TakenValues {
    /// `nextval` has given a value. `catalog` has the sequences that there are.
    pub(crate) fn take(&self, sequence: Arc<Sequence>, value: i64, catalog: &Catalog) {
        let mut taken = self.0.lock();
        if taken.values.len() >= taken.most.max(MANY) {
            let known: HashSet<u64> = catalog.sequences().map(|sequence| sequence.id).collect();
            taken.values.retain(|id, _| known.contains(id));
            taken.most = 2 * taken.values.len();
        }
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
