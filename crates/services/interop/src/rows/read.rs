//! Reads rows: one message with all of its rows, the waiting outputs, and walks over the indexes in either direction.
//!
//! A [`Reader`] is one snapshot: the results of all its calls are consistent.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use store::{Cursor, Direction, Skipped, Snapshot, Store, StoreError, TreeId};

use super::id_range::{IdRange, upper};
use super::{
    FAILED_OUTPUT, SET_ASIDE_OUTPUT, Trees, link_prefix, links_prefix, object_key, object_of, object_of_output,
    state_key, text_entry, text_prefix, time_key, time_of,
};
use crate::error::InteropError;
use crate::record::{self, Delivery, Derivation, Output, Status, Stored, Switch};

/// A message's value in the index by time, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Status byte of the record.
    pub(crate) status: u8,
    /// Flags byte of the record.
    pub(crate) flags: u8,
    /// How many outputs it has.
    pub outputs: u16,
    /// See [`record::search::SearchKeys::identity`]; 0 for bytes that are no message.
    pub identity: u64,
    /// See [`record::search::SearchKeys::content`].
    pub content: u64,
}

impl Summary {
    /// Its bytes.
    pub(super) fn encode(&self) -> [u8; 20] {
        let mut out = [0; 20];
        out[0] = self.status;
        out[1] = self.flags;
        out[2..4].copy_from_slice(&self.outputs.to_le_bytes());
        out[4..12].copy_from_slice(&self.identity.to_le_bytes());
        out[12..].copy_from_slice(&self.content.to_le_bytes());
        out
    }

    /// Reads it; none where the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Summary> {
        let bytes: &[u8; 20] = bytes.try_into().ok()?;
        record::decode_flags(bytes[0], bytes[1])?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        Some(Summary {
            status: bytes[0],
            flags: bytes[1],
            outputs: u16::from_le_bytes([bytes[2], bytes[3]]),
            identity: word(4)?,
            content: word(12)?,
        })
    }

    /// Status, whether it was seen before, whether it was made from another one that is stored here.
    pub fn decided(&self) -> (Status, bool, bool) {
        let (status, duplicate, derivation) =
            record::decode_flags(self.status, self.flags).expect("checked when it was read or made");
        (status, duplicate, derivation.is_some_and(|how| how != Derivation::Imported))
    }
}

/// A message's value in the index by type, as stored: enough to count its rows without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// How many outputs it has.
    pub outputs: u16,
}

impl Brief {
    /// Its bytes.
    pub(super) fn encode(self) -> [u8; 10] {
        let mut out = [0; 10];
        out[..8].copy_from_slice(&self.received_us.to_le_bytes());
        out[8..].copy_from_slice(&self.outputs.to_le_bytes());
        out
    }

    /// Reads it; none where the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Brief> {
        let (at, outputs) = bytes.split_first_chunk::<8>()?;
        let (received_us, outputs) = (i64::from_le_bytes(*at), u16::from_le_bytes(outputs.try_into().ok()?));
        Some(Brief { received_us, outputs })
    }
}

/// A message that was made from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DerivedMessage {
    /// Its id.
    pub id: u64,
    /// How it was made.
    pub how: Derivation,
}

/// What is stored under an id, for who wants the messages of some services.
pub(crate) enum InboundOf {
    /// Nothing: retention has removed it, or it never was.
    Gone,
    /// A message of another service.
    Unwanted,
    /// The message, without its outputs.
    Wanted(Box<Stored>),
}

/// A time, microseconds since 1970, and an id: a place in the order of times.
type Moment = (i64, u64);

/// Rows of one moment.
#[derive(Clone, Debug)]
pub struct Reader {
    snapshot: Snapshot,
    trees: Trees,
}

/// The store's answer where a row cannot be read.
pub(super) fn damaged(what: &str, id: u64) -> InteropError {
    store::StoreError::Corrupt(format!("{what} of message {id} cannot be read").into()).into()
}

impl Reader {
    /// A snapshot of what is visible now in a store that has the engine's interpreter.
    pub fn new(store: &Store) -> Reader {
        Reader { snapshot: store.snapshot(), trees: Trees::of(store.interpreted()) }
    }

    /// The same at a snapshot of such a store that the caller took.
    pub fn at(snapshot: Snapshot) -> Reader {
        let trees = Trees::of(snapshot.store().interpreted());
        Reader { snapshot, trees }
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The trees.
    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    /// A message without its outputs, and how many it has; none where there is none of this id.
    ///
    /// # Errors
    /// The store's; `Corrupt` where the row cannot be read.
    pub fn inbound(&self, id: u64) -> Result<Option<(Stored, u16)>, InteropError> {
        let Some(row) = self.snapshot.get(self.trees.messages, &object_key(id, 0))? else { return Ok(None) };
        record::decode_inbound(&row).map(Some).ok_or_else(|| damaged("the row", id))
    }

    /// A message without its outputs, where its service is wanted: of others only the head is decoded.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub(crate) fn inbound_of(&self, id: u64, wants: impl FnOnce(&str) -> bool) -> Result<InboundOf, InteropError> {
        let row = self.snapshot.get(self.trees.messages, &object_key(id, 0))?;
        let Some(row) = row else { return Ok(InboundOf::Gone) };
        if !wants(&record::decode_service(&row).ok_or_else(|| damaged("the row", id))?) {
            return Ok(InboundOf::Unwanted);
        }
        let (stored, _) = record::decode_inbound(&row).ok_or_else(|| damaged("the row", id))?;
        Ok(InboundOf::Wanted(Box::new(stored)))
    }

    /// The service of a message, by the head of its row.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    fn service_of(&self, id: u64) -> Result<Option<String>, InteropError> {
        let row = self.snapshot.get(self.trees.messages, &object_key(id, 0))?;
        row.map(|row| record::decode_service(&row).ok_or_else(|| damaged("the row", id))).transpose()
    }

    /// Whether there is a message of this id; its row is not read.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn is_there(&self, id: u64) -> Result<bool, InteropError> {
        let key = object_key(id, 0);
        let only = Bound::Included(&key[..]);
        Ok(self.snapshot.scan(self.trees.messages, only, only, Direction::Forward).next_key()?.is_some())
    }

    /// Whether a message is of the service with this name, or has an output to the operation with it: by the index, without its row.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn is_about(&self, name: &str, id: u64) -> Result<bool, InteropError> {
        Ok(self.snapshot.get(self.trees.by_interface, &[&text_prefix(name)[..], &id.to_be_bytes()].concat())?.is_some())
    }

    /// The service of a message, and true; where there is none of this id, the service of one beside it, and false. None where there are no
    /// messages. Both take the same steps, so that who may not know of a message cannot learn from the time whether it is there.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn service_at_or_beside(&self, id: u64) -> Result<Option<(bool, String)>, InteropError> {
        let key = object_key(id, 0);
        let is_inbound = |key: &[u8]| object_of(key).is_some_and(|(_, object)| object == 0);
        let scan = |from, to, direction| self.snapshot.scan(self.trees.messages, from, to, direction);
        let mut row = scan(Bound::Included(&key[..]), Bound::Unbounded, Direction::Forward).next_of(is_inbound)?;
        if row.is_none() {
            row = scan(Bound::Unbounded, Bound::Excluded(&key[..]), Direction::Backward).next_of(is_inbound)?;
        }
        let Some((found, row)) = row else { return Ok(None) };
        let service = record::decode_service(&row)
            .ok_or_else(|| damaged("the row", object_of(&found).map_or(id, |(id, _)| id)))?;
        Ok(Some((found[..] == key, service)))
    }

    /// The id of the newest message; 0 where there is none.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn newest(&self) -> Result<u64, InteropError> {
        let newest = self.all(self.trees.messages, Direction::Backward).next()?;
        newest.map_or(Ok(0), |(key, _)| object_of(&key).map(|(id, _)| id).ok_or_else(|| damaged("the key", 0)))
    }

    /// Output `n`, from 0, of the message that came in as `raw`.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound); `NoMessage` where there is none.
    pub fn output(&self, id: u64, n: u16, raw: &Bytes) -> Result<Output, InteropError> {
        let row = self.snapshot.get(self.trees.messages, &object_key(id, object_of_output(usize::from(n))))?;
        let row = row.ok_or(InteropError::NoMessage { id })?;
        record::decode_output(&row, raw).ok_or_else(|| damaged("an output", id))
    }

    /// A message with its outputs.
    ///
    /// # Errors
    /// `NoMessage`, and as [`inbound`](Reader::inbound).
    pub fn message(&self, id: u64) -> Result<Stored, InteropError> {
        let (mut stored, outputs) = self.inbound(id)?.ok_or(InteropError::NoMessage { id })?;
        for n in 0..outputs {
            stored.outputs.push(self.output(id, n, &stored.raw)?);
        }
        Ok(stored)
    }

    /// The operations that a message's outputs go to, without their bodies.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn operations_of(&self, id: u64) -> Result<Vec<String>, InteropError> {
        let mut cursor = self.scan_ids(self.trees.messages, id, 1);
        let mut names = Vec::new();
        while let Some((_, row)) = cursor.next()? {
            names.push(operation_of(&row).ok_or_else(|| damaged("an output", id))?);
        }
        Ok(names)
    }

    /// The outcomes of a message's outputs, in their order.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn outcomes(&self, id: u64) -> Result<Vec<Delivery>, InteropError> {
        let mut cursor = self.scan_ids(self.trees.outcomes, id, 0);
        let mut outcomes = Vec::new();
        while let Some((key, row)) = cursor.next()? {
            let outcome = object_of(&key).and_then(|(id, n)| record::decode_outcome(id, n.checked_sub(1)?, &row));
            outcomes.push(outcome.ok_or_else(|| damaged("an outcome", id))?);
        }
        Ok(outcomes)
    }

    /// The entries of a message in a tree of objects, from object `from` on.
    fn scan_ids(&self, tree: TreeId, id: u64, from: u16) -> Cursor {
        let (from, to) = (object_key(id, from), object_key(id, u16::MAX));
        self.snapshot.scan(tree, Bound::Included(&from[..]), Bound::Included(&to[..]), Direction::Forward)
    }

    /// Outputs (from 0) without an outcome, by message.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn pending(&self) -> Result<BTreeMap<u64, BTreeSet<u16>>, InteropError> {
        let mut all: BTreeMap<u64, BTreeSet<u16>> = BTreeMap::new();
        let mut cursor = self.all(self.trees.pending, Direction::Forward);
        while let Some((key, _)) = cursor.next()? {
            let entry = object_of(&key).and_then(|(id, n)| Some((id, n.checked_sub(1)?)));
            let (id, n) = entry.ok_or_else(|| damaged("what waits", 0))?;
            all.entry(id).or_default().insert(n);
        }
        Ok(all)
    }

    /// The last word on each operation that was ever suspended.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn switches(&self) -> Result<Vec<Switch>, InteropError> {
        let mut cursor = self.all(self.trees.operations, Direction::Forward);
        let mut switches = Vec::new();
        while let Some((_, row)) = cursor.next()? {
            switches.push(record::decode_switch(&row)?);
        }
        Ok(switches)
    }

    /// All of a tree.
    pub(crate) fn all(&self, tree: TreeId, direction: Direction) -> Cursor {
        self.snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, direction)
    }

    /// Ids with their time and summary, received from `since` up to but not at `until`, microseconds since 1970.
    pub fn by_time(&self, since: Option<i64>, until: Option<i64>, direction: Direction) -> ByTime {
        self.by_time_within((since, until), (None, None), direction)
    }

    /// The same of what is behind a time and an id, and before another.
    pub(crate) fn by_time_within(
        &self,
        (since, until): (Option<i64>, Option<i64>),
        (after, before): (Option<Moment>, Option<Moment>),
        direction: Direction,
    ) -> ByTime {
        let until = until.map(|at| time_key(at, 0));
        let before = before.map(|(at, id)| time_key(at, id));
        let after = after.map(|(at, id)| time_key(at, id.saturating_add(1)));
        let from = since.map(|at| time_key(at, 0)).into_iter().chain(after).max();
        let to = until.into_iter().chain(before).min();
        // A scan begins before its end.
        let from = if to.is_some_and(|to| from.is_some_and(|from| from > to)) { to } else { from };
        let from = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(&key[..]));
        let to = to.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        ByTime { cursor: self.snapshot.scan(self.trees.by_time, from, to, direction) }
    }

    /// The summary of one message.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn summary(&self, received_us: i64, id: u64) -> Result<Option<Summary>, InteropError> {
        let Some(row) = self.snapshot.get(self.trees.by_time, &time_key(received_us, id))? else { return Ok(None) };
        Summary::decode(&row).map(Some).ok_or_else(|| damaged("the summary", id))
    }

    /// Ids of messages with a status. Of those that are routed, which nearly all are, there is no index: none.
    pub fn by_status(&self, status: Status, direction: Direction) -> Option<ById> {
        self.by_status_within(status, IdRange::default(), direction)
    }

    /// The same of some ids.
    pub(crate) fn by_status_within(&self, status: Status, ids: IdRange, direction: Direction) -> Option<ById> {
        (status != Status::Routed).then(|| self.by_state_within(record::status_code(status), ids, direction))
    }

    /// Ids of messages with an output that failed.
    pub fn with_failed_output(&self, direction: Direction) -> ById {
        self.with_failed_output_within(IdRange::default(), direction)
    }

    /// The same of some ids.
    pub(crate) fn with_failed_output_within(&self, ids: IdRange, direction: Direction) -> ById {
        self.by_state_within(FAILED_OUTPUT, ids, direction)
    }

    /// Ids of messages with an output that was set aside.
    pub fn with_set_aside_output(&self, direction: Direction) -> ById {
        self.with_set_aside_output_within(IdRange::default(), direction)
    }

    /// The same of some ids.
    pub(crate) fn with_set_aside_output_within(&self, ids: IdRange, direction: Direction) -> ById {
        self.by_state_within(SET_ASIDE_OUTPUT, ids, direction)
    }

    /// Ids not below `first` of messages in a state, in their order.
    fn by_state_from(&self, state: u8, first: u64, direction: Direction) -> ById {
        self.by_state_within(state, IdRange { first, below: None }, direction)
    }

    fn by_state_within(&self, state: u8, ids: IdRange, direction: Direction) -> ById {
        let (from, to) = (state_key(state, ids.first()), state_key(state, ids.below.unwrap_or(u64::MAX)));
        let (from, to) = (Bound::Included(&from[..]), upper(&to[..], ids.below));
        ById { cursor: self.snapshot.scan(self.trees.by_state, from, to, direction), at: 1, last: None }
    }

    /// The messages that were made from one, by their ids; the newest `max` at most.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn derived_from(&self, origin: u64, max: usize) -> Result<Vec<DerivedMessage>, InteropError> {
        let (from, to) = (links_prefix(origin), origin.checked_add(1).map(links_prefix));
        let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(&to[..]));
        let mut cursor =
            self.snapshot().scan(self.trees().by_state, Bound::Included(&from[..]), to, Direction::Forward);
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next()? {
            // Above the last origin lie the entries of another kind.
            if !key.starts_with(&from) {
                break;
            }
            let id = key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id));
            let how = value.first().and_then(|code| record::derivation_of(*code)).flatten();
            let link = id.zip(how).map(|(id, how)| DerivedMessage { id, how });
            found.push(link.ok_or_else(|| damaged("an entry by origin", origin))?);
        }
        found.sort_unstable_by_key(|link| link.id);
        Ok(found.split_off(found.len().saturating_sub(max)))
    }

    /// The first message that was made from one under an idempotency key.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn derived_under(&self, origin: u64, key: &str) -> Result<Option<u64>, InteropError> {
        // Which of the ways that are linked alike counts for nothing.
        self.linked(&link_prefix(Derivation::Reprocessed, origin, key))
    }

    /// The message that was imported into a service as this one of a source. Others may have imported it into other services.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn imported_as(&self, number: u64, source: &str, service: &str) -> Result<Option<u64>, InteropError> {
        let from = link_prefix(Derivation::Imported, number, source);
        let to = [&from[..], &[0xff; 8]].concat();
        let (from, to) = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        let mut cursor = self.snapshot.scan(self.trees.by_state, from, to, Direction::Forward);
        while let Some((key, _)) = cursor.next()? {
            let id = key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id));
            let id = id.ok_or_else(|| damaged("an entry by source", number))?;
            // One whose row cannot be read counts as imported: the others of its file do not wait for its repair.
            let is_there = || match self.service_of(id) {
                Ok(of) => Ok(of.is_some_and(|of| of == service)),
                Err(InteropError::Store(StoreError::Corrupt(_))) => Ok(true),
                Err(error) => Err(error),
            };
            if self.is_about(service, id)? && is_there()? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The first message whose entry begins so.
    fn linked(&self, from: &[u8]) -> Result<Option<u64>, InteropError> {
        let to = [from, &[0xff; 8]].concat();
        let (from, to) = (Bound::Included(from), Bound::Included(&to[..]));
        let mut cursor = self.snapshot().scan(self.trees().by_state, from, to, Direction::Forward);
        let Some((key, _)) = cursor.next()? else { return Ok(None) };
        Ok(key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id)))
    }

    /// Ids above `after` of messages that are errored, that no rule matched, with an output that failed, and with one that was set aside.
    pub fn with_trouble_after(&self, after: u64) -> [ById; 4] {
        let by_status = |status| record::status_code(status);
        [by_status(Status::Errored), by_status(Status::Unmatched), FAILED_OUTPUT, SET_ASIDE_OUTPUT]
            .map(|state| self.by_state_from(state, after.saturating_add(1), Direction::Forward))
    }

    /// Ids above `after` of messages with a status, in their order; none for routed ones, of which there is no index.
    pub fn by_status_after(&self, status: Status, after: u64) -> Option<ById> {
        let code = record::status_code(status);
        (status != Status::Routed).then(|| self.by_state_from(code, after.saturating_add(1), Direction::Forward))
    }

    /// Ids of messages with an output that waits.
    pub fn with_waiting_output(&self, direction: Direction) -> ById {
        self.with_waiting_output_within(IdRange::default(), direction)
    }

    /// The same of some ids.
    pub(crate) fn with_waiting_output_within(&self, ids: IdRange, direction: Direction) -> ById {
        let (from, to) = (object_key(ids.first(), 0), ids.below.map(|id| object_key(id, 0)));
        let to = to.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let cursor = self.snapshot.scan(self.trees.pending, Bound::Included(&from[..]), to, direction);
        ById { cursor, at: 0, last: None }
    }

    /// Ids that an index has for a text.
    pub fn by_text(&self, tree: TreeId, text: &str, direction: Direction) -> ByText {
        self.by_text_within(tree, text, IdRange::default(), direction)
    }

    /// The same of some ids.
    pub(crate) fn by_text_within(&self, tree: TreeId, text: &str, ids: IdRange, direction: Direction) -> ByText {
        let prefix = text_prefix(text);
        let begin = [&prefix[..], &ids.first().to_be_bytes()].concat();
        let end = [&prefix[..], &ids.below.unwrap_or(u64::MAX).to_be_bytes()].concat();
        let cursor = self.snapshot.scan(tree, Bound::Included(&begin), upper(&end, ids.below), direction);
        ByText { cursor, prefix }
    }
}

/// See [`Reader::by_time`].
#[derive(Debug)]
pub struct ByTime {
    cursor: Cursor,
}

impl ByTime {
    /// After damage: goes on behind what cannot be read; see [`Cursor::skip_damage`].
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    pub fn skip_damage(&mut self) -> Result<Option<Skipped>, InteropError> {
        Ok(self.cursor.skip_damage()?)
    }

    /// The next one.
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<(i64, u64, Summary)>, InteropError> {
        let Some((key, row)) = self.cursor.next()? else { return Ok(None) };
        let entry = time_of(&key).zip(Summary::decode(&row));
        entry.map(|((at, id), summary)| Some((at, id, summary))).ok_or_else(|| damaged("an entry by time", 0))
    }
}

/// A walk over ids of messages in the order of a tree's keys, each once.
#[derive(Debug)]
pub struct ById {
    cursor: Cursor,
    /// Where in a key the id begins.
    at: usize,
    last: Option<u64>,
}

impl ById {
    /// The next id.
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<u64>, InteropError> {
        while let Some((key, _)) = self.cursor.next()? {
            let id = key.get(self.at..).and_then(|rest| rest.first_chunk()).map(|id| u64::from_be_bytes(*id));
            let id = id.ok_or_else(|| damaged("an entry by state", 0))?;
            if self.last.replace(id) != Some(id) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}

/// See [`Reader::by_text`].
#[derive(Debug)]
pub struct ByText {
    cursor: Cursor,
    prefix: Vec<u8>,
}

impl ByText {
    /// The next id.
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<u64>, InteropError> {
        Ok(self.next_entry()?.map(|(id, _)| id))
    }

    /// The next id, and its value in the index.
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    pub fn next_entry(&mut self) -> Result<Option<(u64, Bytes)>, InteropError> {
        while let Some((key, value)) = self.cursor.next()? {
            // Others in between are of a longer text that begins like this one and holds a zero.
            if let Some(id) = text_entry(&key, &self.prefix) {
                return Ok(Some((id, value)));
            }
        }
        Ok(None)
    }
}

/// The operation of an output's row.
fn operation_of(row: &[u8]) -> Option<String> {
    let (len, rest) = row.split_first_chunk::<2>()?;
    let name = rest.get(..usize::from(u16::from_le_bytes(*len)))?;
    String::from_utf8(name.to_vec()).ok()
}
