//! Retention: messages that are older than the retention, or exceed its size, are removed with all their rows and index
//! entries.
//!
//! ```text
//! hl7.marks    id 4096: 10 MiB    id 9000: 20 MiB    id 15000: 30 MiB       bytes of messages taken up to that id, ever
//!                  |                                     |
//!                  +--------- more than the retention ---+  now: 31 MiB     messages up to id 4096 may go
//!
//! position --> | waits: kept | done: removed | done: removed | young enough: stop |      by id, which is the order of arrival
//! by time  --> | too old, behind a young one: removed                          |      where an age is set, now and then
//! ```
//!
//! The size of a message is counted when it is stored, and the sum is written to a tree at intervals, so the stored
//! messages need not be read to determine their size. The unit of retention by bytes is the distance of two marks, a
//! 32nd of it.
//!
//! Invariants:
//! 1. A message with an output that waits is never removed; it is checked again later.
//! 2. One transaction removes whole messages: a reader sees a message with all its entries, or none of it.
//! 3. A transaction is bounded (`KEYS_PER_TRANSACTION`), whatever there is to remove.
//! 4. Where room is made for others, only what is done goes: no message that needs a person (errored, unmatched, an output that failed or
//!    was set aside, and nothing made from it since). Each transaction then frees about what is wanted, so that the caller can
//!    look whether that was enough.
//!
//! Damaged messages are left unchanged and checked again later; the others are removed nevertheless.
//!
//! It deliberately does not free space itself: the store uses freed pages again, and its checkpoints truncate the
//! journal.

use std::ops::Bound;
use std::time::Duration;

use store::{Direction, Store, StoreError, Transaction};

use super::read::Reader;
use super::{
    FAILED_OUTPUT, SET_ASIDE_OUTPUT, TODO_TREE, Trees, link_prefix, object_key, object_of, state_key, text_prefix,
    time_key,
};
use crate::error::InteropError;
use crate::record::{self, Status, Stored};

/// Keys that one transaction removes before it commits; one message may go beyond. 4,096 keys of some 30 bytes make a record
/// of about 120 KB, far below what the smallest journal takes.
const KEYS_PER_TRANSACTION: usize = 4_096;

/// Messages that one transaction for room looks at: where many stay, the caller is asked in between whether to go on.
const LOOKED_MAX: u32 = 4_096;

/// Passes over the front after which messages that waited are looked at again, and old ones behind younger ones.
const PASSES_BETWEEN_LOOKS: u32 = 60;

/// How much is kept, beyond what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of messages and outputs, as their records count them; indexes and pages take more.
    pub bytes: u64,
    /// Since they came in; none: however old.
    pub age: Option<Duration>,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Messages removed.
    pub messages: u64,
    /// Messages that would have gone and have an output that waits.
    pub held: u64,
    /// Messages, or parts of the tree of messages, that cannot be read, and stay.
    pub damaged: u64,
}

/// Removes what need not be kept, pass by pass.
#[derive(Debug)]
pub struct Pruner {
    store: Store,
    trees: Trees,
    retention: Retention,
    /// Bytes of messages taken before this start.
    before: u64,
    /// The newest message that was there at this start.
    newest: u64,
    /// Bytes at the newest mark.
    marked: u64,
    /// Messages before this are gone, or waited when they were looked at.
    position: u64,
    /// Whether one of them waited.
    held: bool,
    /// The last pass has come to the end of what may go; the next one otherwise goes on where it was.
    ended: bool,
    passes: u32,
}

impl Pruner {
    /// Reads the stored size: the newest mark, and the messages after it.
    ///
    /// # Errors
    /// The store's.
    pub fn new(store: &Store, retention: Retention) -> Result<Pruner, InteropError> {
        let reader = Reader::new(store);
        let trees = *reader.trees();
        let mark = past_damage(&mut reader.all(trees.marks, Direction::Backward), store::Cursor::next)?;
        let (id, marked) = mark.and_then(|(key, value)| mark_of(&key, &value)).unwrap_or((0, 0));
        let (mut before, mut newest) = (marked, id);
        let after = object_key(id.saturating_add(1), 0);
        let from = Bound::Included(&after[..]);
        let mut cursor = reader.snapshot().scan(trees.messages, from, Bound::Unbounded, Direction::Forward);
        // Without the bodies: there may be hundreds of megabytes of them, and damage to one does not matter here.
        while let Some((key, bytes)) = past_damage(&mut cursor, store::Cursor::next_key)? {
            before += bytes as u64;
            newest = object_of(&key).map_or(newest, |(id, _)| id);
        }
        let store = store.clone();
        Ok(Pruner { store, trees, retention, before, newest, marked, position: 0, held: false, ended: true, passes: 0 })
    }

    /// One pass. `newest` is the id of the newest message and how many bytes were taken since the start, that message's
    /// included, and (0, 0) where none was; `wanted`: there is no room for so many bytes, so retention does not count. `stop` ends it
    /// early, before the first transaction and between them.
    ///
    /// # Errors
    /// The store's; messages removed before stay removed.
    pub fn pass(
        &mut self,
        newest: (u64, u64),
        now_us: i64,
        wanted: Option<u64>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Pruned, InteropError> {
        let (id, taken) = (newest.0.max(self.newest), newest.1);
        let (total, pressed) = (self.before + taken, wanted.is_some());
        let mut pruned = Pruned::default();
        // Where there is no room, what makes room comes first.
        let cut = if pressed { id } else { self.cut(total)? };
        let age = self.retention.age.filter(|_| !pressed);
        let oldest_us =
            age.map_or(i64::MIN, |age| now_us.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)));
        self.passes += 1;
        if self.held && self.ended && (pressed || self.passes.is_multiple_of(PASSES_BETWEEN_LOOKS)) {
            (self.position, self.held) = (0, false);
        }
        self.ended = false;
        while !stop() && !self.ended {
            self.ended = !self.some(cut, oldest_us, wanted, &mut pruned)?;
        }
        if age.is_some() && self.passes.is_multiple_of(PASSES_BETWEEN_LOOKS) {
            let mut after = None;
            while !stop() && self.old_ones(oldest_us, &mut after, &mut pruned)? {}
        }
        self.mark(id, total, cut)?;
        Ok(pruned)
    }

    /// The newest id that the retention in bytes lets go.
    fn cut(&self, total: u64) -> Result<u64, InteropError> {
        let reader = Reader::new(&self.store);
        let mut cursor = reader.all(self.trees.marks, Direction::Backward);
        while let Some((key, value)) = past_damage(&mut cursor, store::Cursor::next)? {
            if let Some((id, bytes)) = mark_of(&key, &value)
                && total.saturating_sub(bytes) >= self.retention.bytes
            {
                return Ok(id);
            }
        }
        Ok(0)
    }

    /// Notes how much there is, where enough has come since; forgets marks that have done their work.
    fn mark(&mut self, id: u64, total: u64, cut: u64) -> Result<(), InteropError> {
        let distance = (self.retention.bytes / 32).max(1);
        if total - self.marked < distance {
            return Ok(());
        }
        let mut transaction = self.store.begin();
        transaction.put(self.trees.marks, &id.to_be_bytes(), &total.to_le_bytes())?;
        let end = cut.to_be_bytes();
        let old = transaction.scan(self.trees.marks, Bound::Unbounded, Bound::Excluded(&end), Direction::Forward);
        for key in keys(old)? {
            transaction.delete(self.trees.marks, &key)?;
        }
        transaction.commit()?;
        self.marked = total;
        Ok(())
    }

    /// One transaction; whether there may be more to do.
    fn some(
        &mut self,
        cut: u64,
        oldest_us: i64,
        wanted: Option<u64>,
        pruned: &mut Pruned,
    ) -> Result<bool, InteropError> {
        let mut transaction = self.store.begin();
        let from = object_key(self.position, 0);
        let reader = Reader::at(transaction.snapshot().clone());
        let snapshot = reader.snapshot();
        let mut cursor =
            snapshot.scan(self.trees.messages, Bound::Included(&from), Bound::Unbounded, Direction::Forward);
        let (mut removed, mut messages, mut bytes, mut position) = (0, 0, 0, self.position);
        let (mut more, mut looked) = (false, 0);
        while let Some(key) = self.key(&mut cursor, pruned)? {
            let Some((id, object)) = object_of(&key) else { return Err(damaged(position).into()) };
            if object != 0 {
                continue;
            }
            if removed >= KEYS_PER_TRANSACTION || wanted.is_some_and(|wanted| bytes >= wanted || looked == LOOKED_MAX) {
                more = true;
                break;
            }
            looked += 1;
            let Some((stored, outputs)) = self.readable(reader.inbound(id), pruned)?.flatten() else {
                position = id + 1;
                continue;
            };
            if id > cut && stored.received_us >= oldest_us {
                break;
            }
            position = id + 1;
            let needed = wanted.map_or(Ok(false), |_| is_needed(&reader, id, &stored));
            let Some(needed) = self.readable(needed, pruned)? else { continue };
            if needed || waits(&transaction, &self.trees, id)? {
                pruned.held += 1;
                self.held = true;
                continue;
            }
            if let Some(keys) = self.readable(remove(&mut transaction, &reader, id, &stored, outputs), pruned)? {
                removed += keys;
                messages += 1;
                bytes += stored.raw.len() as u64;
            }
        }
        transaction.commit()?;
        self.position = position;
        pruned.messages += messages;
        Ok(more)
    }
}

impl Pruner {
    /// One transaction over messages that are too old and lie behind younger ones, as those that were imported with their times; whether
    /// there may be more.
    fn old_ones(
        &mut self,
        oldest_us: i64,
        after: &mut Option<(i64, u64)>,
        pruned: &mut Pruned,
    ) -> Result<bool, InteropError> {
        let mut transaction = self.store.begin();
        let reader = Reader::at(transaction.snapshot().clone());
        let mut old = reader.by_time_within((None, Some(oldest_us)), (*after, None), Direction::Forward);
        let (mut removed, mut messages) = (0, 0);
        // Behind damage of the index the walk ends: what lies there is removed when it is repaired.
        while let Some((at_us, id, _)) = self.readable(old.next(), pruned)?.flatten() {
            *after = Some((at_us, id));
            // Those that the front has passed wait, and are looked at with it again.
            if id < self.position {
                continue;
            }
            if waits(&transaction, &self.trees, id)? {
                pruned.held += 1;
                continue;
            }
            let Some((stored, outputs)) = self.readable(reader.inbound(id), pruned)?.flatten() else { continue };
            if let Some(keys) = self.readable(remove(&mut transaction, &reader, id, &stored, outputs), pruned)? {
                removed += keys;
                messages += 1;
            }
            if removed >= KEYS_PER_TRANSACTION {
                break;
            }
        }
        transaction.commit()?;
        pruned.messages += messages;
        Ok(removed >= KEYS_PER_TRANSACTION)
    }

    /// The message that was read; none if it is damaged: it stays, and is checked again with the waiting ones.
    fn readable<T>(&mut self, read: Result<T, InteropError>, pruned: &mut Pruned) -> Result<Option<T>, InteropError> {
        match read {
            Err(InteropError::Store(StoreError::Corrupt(_))) => {
                pruned.damaged += 1;
                self.held = true;
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// The next key; keys that cannot be read are left out and counted.
    fn key(&mut self, cursor: &mut store::Cursor, pruned: &mut Pruned) -> Result<Option<bytes::Bytes>, InteropError> {
        loop {
            match cursor.next_key() {
                Err(StoreError::Corrupt(_)) => {
                    cursor.skip_damage()?;
                    pruned.damaged += 1;
                    self.held = true;
                }
                next => return Ok(next?.map(|(key, _)| key)),
            }
        }
    }
}

/// The next entry that can be read: the store reports and quarantines what cannot.
fn past_damage<T>(
    cursor: &mut store::Cursor,
    next: impl Fn(&mut store::Cursor) -> Result<Option<T>, StoreError>,
) -> Result<Option<T>, StoreError> {
    loop {
        match next(cursor) {
            Err(StoreError::Corrupt(_)) => {
                cursor.skip_damage()?;
            }
            next => return next,
        }
    }
}

fn damaged(id: u64) -> StoreError {
    StoreError::Corrupt(format!("the row of message {id} cannot be read").into())
}

fn mark_of(key: &[u8], value: &[u8]) -> Option<(u64, u64)> {
    Some((u64::from_be_bytes(key.try_into().ok()?), u64::from_le_bytes(value.try_into().ok()?)))
}

fn keys(mut cursor: store::Cursor) -> Result<Vec<bytes::Bytes>, StoreError> {
    let mut keys = Vec::new();
    while let Some((key, _)) = past_damage(&mut cursor, store::Cursor::next_key)? {
        keys.push(key);
    }
    Ok(keys)
}

fn waits(transaction: &Transaction, trees: &Trees, id: u64) -> Result<bool, StoreError> {
    let (from, to) = (object_key(id, 0), object_key(id, u16::MAX));
    let (from, to) = (Bound::Included(&from[..]), Bound::Included(&to[..]));
    Ok(transaction.snapshot().scan(trees.pending, from, to, Direction::Forward).next()?.is_some())
}

/// Whether a message needs a person, as in the list of those that do: `TodoReason::of`.
fn is_needed(reader: &Reader, id: u64, stored: &Stored) -> Result<bool, InteropError> {
    let mut needed = matches!(stored.status, Status::Errored | Status::Unmatched);
    for state in [FAILED_OUTPUT, SET_ASIDE_OUTPUT] {
        needed = needed || reader.snapshot().get(reader.trees().by_state, &state_key(state, id))?.is_some();
    }
    Ok(needed && reader.derived_from(id, 1)?.is_empty())
}

/// Removes all that [`super::Rows`] has made of a message; how many keys that is.
fn remove(
    transaction: &mut Transaction,
    reader: &Reader,
    id: u64,
    stored: &Stored,
    outputs: u16,
) -> Result<usize, InteropError> {
    let trees = *reader.trees();
    let mut keys = vec![(trees.messages, object_key(id, 0).to_vec())];
    for n in 1..=outputs {
        keys.push((trees.messages, object_key(id, n).to_vec()));
        keys.push((trees.outcomes, object_key(id, n).to_vec()));
    }
    keys.push((trees.by_time, time_key(stored.received_us, id).to_vec()));
    if stored.status != Status::Routed {
        keys.push((trees.by_state, state_key(record::status_code(stored.status), id).to_vec()));
    }
    for state in [FAILED_OUTPUT, SET_ASIDE_OUTPUT] {
        let of_output = state_key(state, id);
        if reader.snapshot().get(trees.by_state, &of_output)?.is_some() {
            keys.push((trees.by_state, of_output.to_vec()));
        }
    }
    // What was made from it has an entry of its own, which goes with that.
    if let Some(origin) = &stored.origin {
        let link = link_prefix(origin.derivation, origin.id, &origin.key);
        keys.push((trees.by_state, [&link[..], &id.to_be_bytes()].concat()));
    }
    let entry = |text: &str| {
        let mut key = text_prefix(text);
        key.extend_from_slice(&id.to_be_bytes());
        key
    };
    keys.push((trees.by_interface, entry(&stored.service)));
    for operation in reader.operations_of(id)? {
        keys.push((trees.by_interface, entry(&operation)));
    }
    stored.keys.texts(|index, text| keys.push((trees.of_text(index), entry(text))));
    if let Some(tree) = transaction.tree(TODO_TREE)?
        && transaction.get(tree, &id.to_be_bytes())?.is_some()
    {
        keys.push((tree, id.to_be_bytes().to_vec()));
    }
    for (tree, key) in &keys {
        transaction.delete(*tree, key)?;
    }
    Ok(keys.len())
}
