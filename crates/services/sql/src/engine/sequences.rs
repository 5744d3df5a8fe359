//! [`Sequences`]: where sequences stand, and how they give out values.
//!
//! ```text
//!   tree sql.sequences     counter (8 bytes, big-endian) -> last value, 1 if it was given      see `table::sequence`
//! ```
//!
//! A value is not part of a transaction: what a rolled back transaction took is not given again, and two transactions never
//! wait for each other. But a value must never be given twice, also not after a crash. So before a value is given, the
//! store contains one that is not before it: a small transaction of its own writes a value some steps ahead, waits until it
//! is durable, and the steps up to there are given from memory. A crash skips what was left of them.
//!
//! ```text
//!   given    stored     memory
//!   1        33         last 1, 32 left
//!   2 .. 33  33         last 33, 0 left
//!   34       66         last 34, 32 left        crash: 67 is next
//! ```
//!
//! The lock of a counter is held while the store writes: another session that needs the same sequence has to wait for the
//! same write.
//!
//! Counters of sequences that are gone (dropped, begun anew with another counter, or created by a transaction that was rolled back) are
//! removed some at a time, once no open snapshot is older than their end, and those that are left when the engine starts. Until then no
//! other sequence gets their number.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use store::{Direction, Store, StoreError, TreeId};

use crate::SqlError;
use crate::table::sequence::{Counter, Sequence};
use crate::table::{Catalog, View};

/// The name of the tree.
pub(crate) const TREE: &str = "sql.sequences";

/// How many values are made persistent before they are needed, as in PostgreSQL (SEQ_LOG_VALS).
const AHEAD: i64 = 32;

/// So many counters that are gone are removed at a time: one small transaction is enough for them.
const RETIRED_AT_A_TIME: usize = 64;

/// A counter in memory.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    counter: Counter,
    /// So many values behind it, `by` apart, are before what the store contains.
    left: u64,
    by: i64,
}

/// The counters of all sequences.
#[derive(Debug)]
pub(crate) struct Sequences {
    store: Store,
    tree: Mutex<Option<TreeId>>,
    counters: Mutex<HashMap<u64, Arc<Mutex<Option<Reserved>>>>>,
    retired: Mutex<Retired>,
}

/// Counters that are gone.
#[derive(Debug)]
struct Retired {
    /// Each with the LSN of the commit that ended it: older snapshots may still use it.
    counters: Vec<(u64, u64)>,
    /// So many have to be there before some are removed.
    enough: usize,
}

fn damaged() -> SqlError {
    StoreError::Corrupt("the counter of a sequence cannot be read".into()).into()
}

impl Sequences {
    /// The counters in a store; those of sequences that the catalog does not contain are removed. Returns also the
    /// greatest number of a counter.
    pub(crate) fn open(store: &Store, catalog: &Catalog) -> Result<(Sequences, u64), SqlError> {
        let tree = store.snapshot().tree(TREE)?;
        let known: HashSet<u64> = catalog.sequences().map(|sequence| sequence.counter).collect();
        let mut last = known.iter().copied().max().unwrap_or(0);
        if let Some(tree) = tree {
            let mut gone = Vec::new();
            let view = View::Snapshot(store.snapshot());
            let mut cursor = view.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
            while let Some((key, _)) = cursor.next()? {
                let number = u64::from_be_bytes(key[..].try_into().map_err(|_| damaged())?);
                last = last.max(number);
                if !known.contains(&number) {
                    gone.push(key);
                }
            }
            if !gone.is_empty() {
                store.transact(|transaction| gone.iter().try_for_each(|key| transaction.delete(tree, key)))?;
            }
        }
        let retired = Mutex::new(Retired { counters: Vec::new(), enough: RETIRED_AT_A_TIME });
        let sequences = Sequences { store: store.clone(), tree: Mutex::new(tree), counters: Mutex::default(), retired };
        Ok((sequences, last))
    }

    fn reserved(&self, sequence: &Sequence) -> Arc<Mutex<Option<Reserved>>> {
        self.counters.lock().entry(sequence.counter).or_default().clone()
    }

    /// What the store contains.
    fn stored(&self, sequence: &Sequence) -> Result<Counter, SqlError> {
        let Some(tree) = *self.tree.lock() else { return Ok(sequence.beginning()) };
        match self.store.snapshot().get(tree, &sequence.counter.to_be_bytes())? {
            Some(bytes) => Counter::decode(&bytes).ok_or_else(damaged),
            None => Ok(sequence.beginning()),
        }
    }

    /// The tree; it is created when it is first needed.
    fn tree(&self) -> Result<TreeId, SqlError> {
        let mut tree = self.tree.lock();
        match *tree {
            Some(tree) => Ok(tree),
            None => {
                let made = self.store.transact(|transaction| transaction.create_tree(TREE))?;
                Ok(*tree.insert(made))
            }
        }
    }

    /// Returns when it is durable.
    fn write(&self, sequence: &Sequence, counter: Counter) -> Result<(), SqlError> {
        let tree = self.tree()?;
        let (key, value) = (sequence.counter.to_be_bytes(), counter.encode());
        Ok(self.store.transact(|transaction| transaction.put(tree, &key, &value))?)
    }

    /// These counters are gone for all snapshots that see the commit with this LSN. Some time later they are removed, here and in the store.
    pub(crate) fn retire(&self, lsn: u64, counters: Vec<u64>) {
        if counters.is_empty() {
            return;
        }
        let gone: Vec<u64> = {
            let mut retired = self.retired.lock();
            retired.counters.extend(counters.into_iter().map(|counter| (lsn, counter)));
            if retired.counters.len() < retired.enough {
                return;
            }
            let oldest = self.store.oldest().0;
            let (gone, kept): (Vec<_>, Vec<_>) = retired.counters.drain(..).partition(|(lsn, _)| *lsn <= oldest);
            retired.enough = RETIRED_AT_A_TIME.max(2 * kept.len());
            retired.counters = kept;
            gone.into_iter().map(|(_, counter)| counter).collect()
        };
        {
            let mut known = self.counters.lock();
            gone.iter().for_each(|counter| drop(known.remove(counter)));
        }
        let Some(tree) = self.tree.lock().filter(|_| !gone.is_empty()) else { return };
        let removed = self.store.transact(|transaction| {
            gone.iter().try_for_each(|counter| transaction.delete(tree, &counter.to_be_bytes()))
        });
        if let Err(error) = removed {
            tracing::debug!(%error, "counters of sequences that are gone stay until the next start");
        }
    }

    /// Takes the next values: as many as there are, and the error 2200H if these are fewer. Errors: those of the store.
    pub(crate) fn take(&self, sequence: &Sequence, count: usize) -> Result<(Vec<i64>, Option<SqlError>), SqlError> {
        let shared = self.reserved(sequence);
        let mut reserved = shared.lock();
        let now = match reserved.as_ref() {
            Some(reserved) => *reserved,
            None => Reserved { counter: self.stored(sequence)?, left: 0, by: sequence.increment },
        };
        let mut values = Vec::with_capacity(count);
        let mut counter = now.counter;
        let mut end = None;
        while values.len() < count && end.is_none() {
            match sequence.next(counter) {
                Ok(last) => {
                    counter = Counter { last, is_called: true };
                    values.push(last);
                }
                Err(error) => end = Some(error),
            }
        }
        let Some(last) = values.last().copied() else { return Ok((values, end)) };
        let steps = values.len() as u64;
        let left = match now.by == sequence.increment && steps <= now.left {
            true => now.left - steps,
            false => {
                let (ahead, left) = sequence.ahead(last, AHEAD.max(sequence.cache));
                self.write(sequence, Counter { last: ahead, is_called: true })?;
                left
            }
        };
        *reserved = Some(Reserved { counter, left, by: sequence.increment });
        Ok((values, end))
    }

    /// Sets where a sequence stands. Errors: 22003; those of the store.
    pub(crate) fn set(&self, sequence: &Sequence, counter: Counter) -> Result<(), SqlError> {
        sequence.check_set(counter.last)?;
        let shared = self.reserved(sequence);
        let mut reserved = shared.lock();
        self.write(sequence, counter)?;
        *reserved = Some(Reserved { counter, left: 0, by: sequence.increment });
        Ok(())
    }

    /// Where a sequence stands, which the store contains from then on: what was reserved ahead by its definition is not.
    pub(crate) fn settle(&self, sequence: &Sequence) -> Result<Counter, SqlError> {
        let shared = self.reserved(sequence);
        let mut reserved = shared.lock();
        let Some(Reserved { counter, left, .. }) = reserved.as_mut() else { return self.stored(sequence) };
        if *left > 0 {
            self.write(sequence, *counter)?;
            *left = 0;
        }
        Ok(*counter)
    }

    /// Where a sequence stands.
    pub(crate) fn now(&self, sequence: &Sequence) -> Result<Counter, SqlError> {
        let shared = self.reserved(sequence);
        let reserved = shared.lock();
        reserved.as_ref().map_or_else(|| self.stored(sequence), |reserved| Ok(reserved.counter))
    }
}
