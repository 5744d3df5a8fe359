//! [`MessageWalk`]: all messages in the order in which they were received, each with the requested parts, read leaf by
//! leaf.
//!
//! ```text
//!   hl7.messages   (7,0) (7,1) (7,2)   (9,0) (9,1)   ...      one cursor, which reads ahead
//!   hl7.fates            (7,1) (7,2)         (9,1)   ...      another, in the same order
//! ```
//!
//! For readers of many messages: a lookup of each single message would need a read of the device for every second
//! message. Several walks beside each other take parts of the ids (parts.rs).

use std::iter::Peekable;
use std::ops::Bound;

use bytes::Bytes;
use store::{Cursor, Direction, ReadAhead};

use super::read::{Reader, damaged};
use super::{object_key, object_of};
use crate::error::InteropError;
use crate::record::{self, Delivery, Stored};

/// The parts to read besides the message as received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Its outputs.
    pub outputs: bool,
    /// The outcomes of its outputs.
    pub outcomes: bool,
}

/// A range of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The first.
    pub from: u64,
    /// The one after the last; none means no bound.
    pub to: Option<u64>,
}

impl Ids {
    /// Every id.
    pub const ALL: Ids = Ids { from: 0, to: None };
}

/// A message with the requested parts.
#[derive(Clone, Debug)]
pub struct ReadMessage {
    /// Its id.
    pub id: u64,
    /// The message; its outputs only if they were wanted.
    pub stored: Stored,
    /// The known outcomes of its outputs, in their order; empty if they were not requested.
    pub outcomes: Vec<Delivery>,
}

impl Reader {
    /// One message; none where there is none of this id.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn read(&self, id: u64, wanted: Wanted) -> Result<Option<ReadMessage>, InteropError> {
        let Some((mut stored, outputs)) = self.inbound(id)? else { return Ok(None) };
        for n in 0..if wanted.outputs { outputs } else { 0 } {
            stored.outputs.push(self.output(id, n, &stored.raw)?);
        }
        let outcomes = if wanted.outcomes && outputs > 0 { self.outcomes(id)? } else { Vec::new() };
        Ok(Some(ReadMessage { id, stored, outcomes }))
    }

    /// Loads what [`read`](Reader::read) needs for these messages, in the order of their ids: of as many of the first ones as
    /// may be read ahead, at least one. Returns how many.
    pub fn load(&self, ids: &[u64], wanted: Wanted, ahead: &mut ReadAhead) -> usize {
        let behind = |outputs| if outputs { u16::MAX } else { 1 };
        let load = |tree, ids: &[u64], objects, ahead: &mut ReadAhead| {
            let keys: Vec<_> = ids.iter().map(|id| (object_key(*id, 0), object_key(*id, objects))).collect();
            let ranges: Vec<(&[u8], &[u8])> = keys.iter().map(|(from, to)| (&from[..], &to[..])).collect();
            self.snapshot().load(tree, &ranges, ahead)
        };
        let loaded = load(self.trees().messages, ids, behind(wanted.outputs), ahead);
        if wanted.outcomes {
            load(self.trees().outcomes, &ids[..loaded], u16::MAX, ahead);
        }
        loaded
    }

    /// The messages with these ids.
    pub fn walk(&self, ids: Ids, wanted: Wanted) -> MessageWalk {
        let from = object_key(ids.from, 0);
        let to = ids.to.map(|to| object_key(to, 0));
        let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(&to[..]));
        let objects = |tree, only_received| {
            let cursor = self.snapshot().scan(tree, Bound::Included(&from), to, Direction::Forward);
            Objects { cursor: cursor.once(), only_received }.peekable()
        };
        let messages = objects(self.trees().messages, !wanted.outputs);
        MessageWalk { messages, outcomes: wanted.outcomes.then(|| objects(self.trees().outcomes, false)), wanted }
    }
}

/// Whether a key is that of a message as received; or of nothing, which is reported where it is read.
pub(super) fn is_received(key: &[u8]) -> bool {
    object_of(key).is_none_or(|(_, object)| object == 0)
}

/// Rows of a tree of objects.
#[derive(Debug)]
struct Objects {
    cursor: Cursor,
    /// Only messages as received: parts that are left out and lie in pages of their own are not read.
    only_received: bool,
}

type Object = (u64, u16, Bytes);

impl Iterator for Objects {
    type Item = Result<Object, InteropError>;

    fn next(&mut self) -> Option<Self::Item> {
        let only = self.only_received;
        let (key, row) = match self.cursor.next_of(|key| !only || is_received(key)).transpose()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error.into())),
        };
        Some(object_of(&key).map(|(id, object)| (id, object, row)).ok_or_else(|| damaged("the key", 0)))
    }
}

/// See [`Reader::walk`].
#[derive(Debug)]
pub struct MessageWalk {
    messages: Peekable<Objects>,
    outcomes: Option<Peekable<Objects>>,
    wanted: Wanted,
}

impl MessageWalk {
    /// The next one. After an error the walk has ended.
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<ReadMessage>, InteropError> {
        let Some((id, object, row)) = self.messages.next().transpose()? else { return Ok(None) };
        if object != 0 {
            return Err(damaged("the row", id));
        }
        let (mut stored, outputs) = record::decode_inbound(&row).ok_or_else(|| damaged("the row", id))?;
        // If a row after this message cannot be read, that is the next one's error, unless a part of this one is
        // missing.
        let is_of_it = |next: &Result<Object, InteropError>| next.as_ref().is_ok_and(|(found, ..)| *found == id);
        while let Some((_, object, row)) = self.messages.next_if(is_of_it).transpose()? {
            // The next one of those that it must have, so that none is passed over.
            let output = if usize::from(object) == stored.outputs.len() + 1 {
                record::decode_output(&row, &stored.raw)
            } else {
                None
            };
            stored.outputs.push(output.ok_or_else(|| damaged("an output", id))?);
        }
        if self.wanted.outputs && stored.outputs.len() != usize::from(outputs) {
            let error = self.messages.next_if(Result::is_err).and_then(Result::err);
            return Err(error.unwrap_or_else(|| damaged("an output", id)));
        }
        let mut outcomes = Vec::new();
        if let Some(rows) = &mut self.outcomes {
            while let Some((of, object, row)) = next_of(rows, |found| found <= id)? {
                if of == id {
                    let outcome = object.checked_sub(1).and_then(|n| record::decode_outcome(id, n, &row));
                    outcomes.push(outcome.ok_or_else(|| damaged("an outcome", id))?);
                }
            }
        }
        Ok(Some(ReadMessage { id, stored, outcomes }))
    }
}

/// The next object, if it is of such a message.
fn next_of(objects: &mut Peekable<Objects>, is_of: impl Fn(u64) -> bool) -> Result<Option<Object>, InteropError> {
    let next = objects.next_if(|object| object.as_ref().map_or(true, |(id, ..)| is_of(*id)));
    next.transpose()
}
