//! [`Queue`]: records that are appended to the journal and not yet in the trees, in log order.
//!
//! The payload is kept in memory as one copy, so it need not be read back from the journal. Its bytes are counted; an
//! append makes room first ([`crate::Options::queue_bytes`]). Behind a spilled transaction, which may be applied for minutes,
//! that would take as long: a service's record that finds no room there is read back from the journal when its turn comes.
//!
//! Invariant: entries are pushed under the order lock of commits, so they are in LSN order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use journal::Lsn;
use parking_lot::Mutex;

use crate::StoreError;
use crate::interpreter::Foreign;
use crate::record::{self, Change, RecordDamage, SpilledRun};

/// The content of a record.
#[derive(Debug)]
pub(crate) enum RecordBody {
    /// A transaction's changes.
    Changes(Vec<Change>),
    /// A service's record, for the interpreter.
    Foreign { kind: u8, payload: Bytes },
    /// The commit record of a spilled transaction, whose changes are in spill chunks in the journal.
    Spilled(Vec<SpilledRun>),
    /// A service's record of so many bytes that is in the journal only: the queue was full.
    InJournal {
        /// Its size.
        bytes: usize,
    },
}

/// One record.
#[derive(Debug)]
pub(crate) struct QueuedRecord {
    pub(crate) lsn: u64,
    /// Memory that the entry takes.
    pub(crate) bytes: usize,
    pub(crate) what: RecordBody,
}

impl QueuedRecord {
    /// What is to be applied, and is not in memory.
    fn deferred_bytes(&self) -> usize {
        if let RecordBody::InJournal { bytes } = self.what { bytes } else { 0 }
    }

    /// Converts a journal record to a queue entry; `None` for spill chunks, which only their commit record refers to.
    ///
    /// Errors: [`StoreError::Corrupt`] if it cannot be decoded, or if this version has no such kind.
    pub(crate) fn of(record: journal::Record) -> Result<Option<QueuedRecord>, StoreError> {
        let journal::Record { lsn, kind, payload } = record;
        let damaged = |damage: RecordDamage| StoreError::Corrupt(format!("the record at lsn {lsn}: {damage}").into());
        let bytes = payload.len();
        let payload = Bytes::from(payload);
        let what = match kind {
            record::KIND_TRANSACTION => RecordBody::Changes(record::decode(payload).map_err(damaged)?),
            record::KIND_SPILLED_COMMIT => {
                RecordBody::Spilled(record::decode_spilled_commit(payload).map_err(damaged)?)
            }
            record::KIND_SPILL_CHUNK => return Ok(None),
            kind if kind < Foreign::KINDS => RecordBody::Foreign { kind, payload },
            kind => {
                let what = format!("the record at lsn {lsn} has kind {kind}, which this version does not know");
                return Err(StoreError::Corrupt(what.into()));
            }
        };
        Ok(Some(QueuedRecord { lsn: lsn.0, bytes, what }))
    }
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: Mutex<VecDeque<QueuedRecord>>,
    bytes: AtomicUsize,
    /// Bytes of records that are in the journal only.
    deferred: AtomicUsize,
    /// Bytes of the batch that is being applied, or waits for space.
    taken: AtomicUsize,
    /// Spilled transactions that are queued or being applied.
    spilled: AtomicUsize,
}

impl Queue {
    /// Adds the newest record.
    pub(crate) fn push(&self, entry: QueuedRecord) {
        self.bytes.fetch_add(entry.bytes, Ordering::Relaxed);
        self.deferred.fetch_add(entry.deferred_bytes(), Ordering::Relaxed);
        if matches!(entry.what, RecordBody::Spilled(_)) {
            self.spilled.fetch_add(1, Ordering::Relaxed);
        }
        let mut entries = self.entries.lock();
        debug_assert!(entries.back().is_none_or(|last| last.lsn < entry.lsn));
        entries.push_back(entry);
    }

    /// Takes durable records from the front: a spilled one alone, otherwise up to `limit` bytes, and at least one
    /// record.
    pub(crate) fn take(&self, durable: Lsn, limit: usize) -> Vec<QueuedRecord> {
        let mut taken = Vec::new();
        let (mut bytes, mut deferred) = (0, 0);
        let mut entries = self.entries.lock();
        while let Some(entry) = entries.front() {
            let spilled = matches!(entry.what, RecordBody::Spilled(_));
            let all = bytes + deferred + entry.bytes + entry.deferred_bytes();
            if entry.lsn >= durable.0 || (!taken.is_empty() && (spilled || all > limit)) {
                break;
            }
            bytes += entry.bytes;
            deferred += entry.deferred_bytes();
            taken.extend(entries.pop_front());
            if spilled {
                break;
            }
        }
        drop(entries);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.deferred.fetch_sub(deferred, Ordering::Relaxed);
        self.taken.fetch_add(bytes + deferred, Ordering::Relaxed);
        taken
    }

    /// Calls `look` for each queued record, until one call fails.
    pub(crate) fn visit<E>(&self, mut look: impl FnMut(&QueuedRecord) -> Result<(), E>) -> Result<(), E> {
        self.entries.lock().iter().try_for_each(&mut look)
    }

    /// Memory used.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Called when the batch that was taken is applied.
    pub(crate) fn batch_is_applied(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Bytes of all that is not applied: queued, in the journal only, or in the batch that was taken.
    pub(crate) fn pending(&self) -> usize {
        self.bytes() + self.deferred() + self.taken.load(Ordering::Relaxed)
    }

    /// Bytes of what is to be applied and is in the journal only.
    pub(crate) fn deferred(&self) -> usize {
        self.deferred.load(Ordering::Relaxed)
    }

    /// Whether a spilled transaction is queued or being applied: what is behind it waits for long.
    pub(crate) fn has_spilled(&self) -> bool {
        self.spilled.load(Ordering::Relaxed) > 0
    }

    /// Called when a spilled transaction from the queue is applied.
    pub(crate) fn spilled_is_applied(&self) {
        self.spilled.fetch_sub(1, Ordering::Relaxed);
    }

    /// The oldest record.
    pub(crate) fn first(&self) -> Option<u64> {
        self.entries.lock().front().map(|entry| entry.lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_durable_is_taken_and_a_spilled_one_stands_alone() {
        let queue = Queue::default();
        for lsn in [10, 20, 30, 40, 50] {
            let what = if lsn == 30 { RecordBody::Spilled(Vec::new()) } else { RecordBody::Changes(Vec::new()) };
            queue.push(QueuedRecord { lsn, bytes: 100, what });
        }
        let taken = |durable, limit| queue.take(Lsn(durable), limit).iter().map(|e| e.lsn).collect::<Vec<_>>();
        assert_eq!(taken(10, 1000), [0; 0]);
        assert_eq!(taken(20, 1000), [10]);
        assert_eq!(taken(50, 1000), [20]);
        assert_eq!(taken(50, 1000), [30]);
        assert_eq!((queue.first(), queue.bytes()), (Some(40), 200));
        assert_eq!(taken(99, 10), [40], "one at least, whatever the limit");
        assert!(queue.has_spilled());
        queue.spilled_is_applied();
        for lsn in [60, 70] {
            queue.push(QueuedRecord { lsn, bytes: 100, what: RecordBody::InJournal { bytes: 500 } });
        }
        assert_eq!((queue.bytes(), queue.deferred(), queue.has_spilled()), (300, 1000, false));
        assert_eq!(taken(99, 1000), [50, 60], "what is read back counts");
        assert_eq!((queue.bytes(), queue.deferred()), (100, 500));
        assert!(queue.pending() > 600, "what was taken is wanted until it is applied");
        queue.batch_is_applied();
        assert_eq!(queue.pending(), 600);
    }
}
