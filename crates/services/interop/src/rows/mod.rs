//! HL7 messages as rows of the store: the names of the trees, the layout of keys and values, and the records that write
//! them.
//!
//! ```text
//!  record in the journal (record.rs)          rows, one transaction a record
//!  MESSAGE  head + raw | output | output      hl7.messages      id, 0            head and message as received
//!                                             hl7.messages      id, n            output n: its operation, transform, body
//!                                             hl7.pending       id, n            -                  until an outcome is known
//!                                             hl7.by_time       time, id         Summary
//!                                             hl7.by_control    MSH-10, 0, id    -
//!                                             hl7.by_mrn        PID-3.1, 0, id   -                  one a repetition
//!                                             hl7.by_type       ADT^A01, 0, id   Brief
//!                                             hl7.by_interface  name, 0, id      -                  service, operations
//!                                             hl7.by_state      status, id       -                  unless routed
//!                                             hl7.by_state      254, origin, key, id     u8 how     if it was made from another
//!                                             hl7.by_state      252, number, source, id  u8 how     if it was imported
//!  DELIVERIES                                 hl7.fates         id, n            outcome, time, detail
//!                                             hl7.pending       id, n            removed
//!                                             hl7.by_state      255, id          -                  of a failed output
//!                                             hl7.by_state      253, id          -                  of one set aside
//!  OPERATION                                  hl7.operations    name             the record
//!  (retention, a transaction of its own)      hl7.marks         id               bytes of messages up to there
//!  (a note, a transaction of its own)         hl7.todo          id               the note, see `todo`; not one of the interpreter's
//! ```
//!
//! The records of the audit (`node::audit`) lie in the same journal: [`interpreter`] knows both.
//!
//! Numbers in keys are big endian, so that keys sort as their numbers: id 8 bytes, n 2 bytes, time 8 bytes with its
//! sign bit turned. Texts in keys are UTF-8, decoded and unescaped as users type them, cut at [`TEXT_BYTES_MAX`];
//! behind the text come a zero and the id. A text may itself hold a zero: an entry belongs to a text only if it is as
//! long as that. The idempotency key in the index by state is behind its length, one byte.
//!
//! Values are the record's own bytes, little endian:
//!
//! ```text
//! hl7.messages id, 0    the record from its version (1) to the count of outputs: status, flags, charset, time, origin, service,
//!                       reason, the message as received
//! hl7.messages id, n    the record's bytes of output n - 1: operation, transform, length, pieces; of the version in row id, 0
//! hl7.fates             u8 outcome, u64 time, u16 length + detail, of one set aside u16 length + who
//! hl7.by_time           u8 status, u8 flags, u16 outputs, u64 identity, u64 content      (Summary)
//! hl7.by_type           i64 time, u16 outputs                                            (Brief)
//! hl7.marks             u64 bytes
//! ```
//!
//! Invariants:
//! 1. Rows are a pure function of the record, so that recovery makes the same rows again.
//! 2. A message's rows, its index entries and its waiting outputs appear in one transaction, and are removed in one
//!    ([`prune`]).
//! 3. Reading any bytes as a row never panics (fuzzed); a row that cannot be read is reported as damage.
//!
//! It deliberately has no more indexes: SQL reads the other paths of a message.

pub mod check;
mod id_range;
mod interpret;
mod parts;
pub mod prune;
pub mod read;
mod walk;

use std::sync::Arc;

use node::Interpreters;
use node::audit::{AuditRows, KIND_AUDIT};
use store::{Interpreter, Snapshot, StoreError, TreeId};

use crate::record::search::{TEXT_BYTES_MAX, TextIndex};
use crate::record::{self, DeliveryOutcome, Derivation};

pub(crate) use id_range::IdRange;
pub use interpret::Rows;
pub use parts::{PartedWalk, SharedParts};
pub(crate) use read::InboundOf;
pub use read::{Brief, DerivedMessage, Reader, Summary};
pub use walk::{Ids, MessageWalk, ReadMessage, Wanted};

/// Name of the tree of what waits.
pub(crate) const PENDING: &str = "hl7.pending";

/// Name of the tree of operations suspended and resumed.
pub(crate) const OPERATIONS: &str = "hl7.operations";

/// Name of the tree of what people have noted about messages, by id; it is made when the first note is. See [`crate::todo`].
pub(crate) const TODO_TREE: &str = "hl7.todo";

/// Names of the trees, in the order in which the store numbers them.
pub const TREES: [&str; 11] = [
    "hl7.messages",
    PENDING,
    "hl7.fates",
    OPERATIONS,
    "hl7.by_time",
    "hl7.by_control",
    "hl7.by_mrn",
    "hl7.by_type",
    "hl7.by_interface",
    "hl7.marks",
    "hl7.by_state",
];

/// The interpreter of all records of a node: those of the engine, whose trees come first, and those of the audit.
pub fn interpreter() -> Arc<dyn Interpreter> {
    let engine: &[u8] = &[record::KIND_MESSAGE, record::KIND_DELIVERIES, record::KIND_OPERATION];
    Arc::new(Interpreters::of(vec![(engine, Arc::new(Rows)), (&[KIND_AUDIT], Arc::new(AuditRows))]))
}

/// In the index by state: a message with an output that failed. Other states are status bytes of records.
pub(crate) const FAILED_OUTPUT: u8 = u8::MAX;

/// The same of an output that was set aside.
pub(crate) const SET_ASIDE_OUTPUT: u8 = 253;

/// In the index by state: messages by the one that they were made from.
const DERIVED: u8 = 254;

/// The same of imported ones, by the one at their source.
const IMPORTED: u8 = 252;

/// Where the index by state has the message of an output with this outcome; none where it has it nowhere.
pub(crate) fn state_of_outcome(outcome: DeliveryOutcome) -> Option<u8> {
    match outcome {
        DeliveryOutcome::Delivered => None,
        DeliveryOutcome::Failed => Some(FAILED_OUTPUT),
        DeliveryOutcome::SetAside => Some(SET_ASIDE_OUTPUT),
    }
}

/// The trees of the engine in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trees {
    /// Messages and outputs.
    pub messages: TreeId,
    /// Outputs without an outcome.
    pub pending: TreeId,
    /// The outcomes of outputs.
    pub outcomes: TreeId,
    /// Operations suspended and resumed.
    pub operations: TreeId,
    /// By the time it came in, with a summary.
    pub by_time: TreeId,
    /// By MSH-10.
    pub by_control: TreeId,
    /// By each PID-3.1 of the first PID.
    pub by_mrn: TreeId,
    /// By MSH-9.1 and MSH-9.2.
    pub by_type: TreeId,
    /// By service and by operation.
    pub by_interface: TreeId,
    /// How many bytes of messages there were up to an id.
    pub marks: TreeId,
    /// By what few messages have: a status other than routed, an output that failed.
    pub by_state: TreeId,
}

impl Trees {
    /// The index of texts of this kind.
    pub fn of_text(&self, index: TextIndex) -> TreeId {
        match index {
            TextIndex::Control => self.by_control,
            TextIndex::Mrn => self.by_mrn,
            TextIndex::Type => self.by_type,
        }
    }

    /// The engine's trees, as the store numbers them: the first ones of all that the interpreter of the node has.
    ///
    /// # Panics
    /// They are not those of [`TREES`]: a programmer's error.
    pub fn of(ids: &[TreeId]) -> Trees {
        let Some(
            &[
                messages,
                pending,
                outcomes,
                operations,
                by_time,
                by_control,
                by_mrn,
                by_type,
                by_interface,
                marks,
                by_state,
            ],
        ) = ids.first_chunk::<{ TREES.len() }>()
        else {
            panic!("the store gives each tree of the interpreter a number, those of the engine first")
        };
        Trees {
            messages,
            pending,
            outcomes,
            operations,
            by_time,
            by_control,
            by_mrn,
            by_type,
            by_interface,
            marks,
            by_state,
        }
    }

    /// The same by name, for readers that are not the engine. None where the store holds no messages.
    ///
    /// # Errors
    /// The store's.
    pub fn find(snapshot: &Snapshot) -> Result<Option<Trees>, StoreError> {
        let mut ids = Vec::with_capacity(TREES.len());
        for name in TREES {
            let Some(id) = snapshot.tree(name)? else { return Ok(None) };
            ids.push(id);
        }
        Ok(Some(Trees::of(&ids)))
    }
}

/// Key of an object of a message: 0 is the message as received, n its output n - 1.
pub fn object_key(id: u64, object: u16) -> [u8; 10] {
    let mut key = [0; 10];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&object.to_be_bytes());
    key
}

/// The object that a key names.
pub fn object_of(key: &[u8]) -> Option<(u64, u16)> {
    let (id, object) = key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*id), u16::from_be_bytes(object.try_into().ok()?)))
}

/// Key of a moment: microseconds since 1970, and an id.
pub fn time_key(at_us: i64, id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&sortable(at_us).to_be_bytes());
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

/// The moment and the id that a key names.
pub fn time_of(key: &[u8]) -> Option<(i64, u64)> {
    let (at, id) = key.split_first_chunk::<8>()?;
    let at = (u64::from_be_bytes(*at) ^ SIGN) as i64;
    Some((at, u64::from_be_bytes(id.try_into().ok()?)))
}

const SIGN: u64 = 1 << 63;

fn sortable(at_us: i64) -> u64 {
    (at_us as u64) ^ SIGN
}

/// Key of a message in the index by state.
pub(crate) fn state_key(state: u8, id: u64) -> [u8; 9] {
    let mut key = [state; 9];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

/// The beginning of the entries of all messages that were made from one.
pub(crate) fn links_prefix(origin: u64) -> [u8; 9] {
    state_key(DERIVED, origin)
}

/// The beginning of the entries of messages that were made in a way from one under an idempotency key, or under none; the id of the new
/// message follows.
pub(crate) fn link_prefix(how: Derivation, origin: u64, key: &str) -> Vec<u8> {
    let state = if how == Derivation::Imported { IMPORTED } else { DERIVED };
    let key = &key[..key.floor_char_boundary(record::KEY_TEXT_MAX)];
    let mut prefix = Vec::with_capacity(18 + key.len());
    prefix.extend_from_slice(&state_key(state, origin));
    prefix.push(u8::try_from(key.len()).expect("cut at KEY_TEXT_MAX"));
    prefix.extend_from_slice(key.as_bytes());
    prefix
}

/// The beginning of an index entry of a text: the text, cut, and the zero after it.
pub fn text_prefix(text: &str) -> Vec<u8> {
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    let mut prefix = Vec::with_capacity(text.len() + 9);
    prefix.extend_from_slice(text.as_bytes());
    prefix.push(0);
    prefix
}

/// The id of an index entry, if it belongs to the text of `prefix`.
pub fn text_entry(key: &[u8], prefix: &[u8]) -> Option<u64> {
    key.strip_prefix(prefix)?.try_into().ok().map(u64::from_be_bytes)
}

/// The object number of an output. A record counts its outputs in 16 bits, and the engine makes 1,000 at most.
fn object_of_output(output: usize) -> u16 {
    u16::try_from(output + 1).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers_and_read_back() {
        let objects = [(0, 0), (0, 1), (255, 0), (256, 7), (u64::MAX, u16::MAX)];
        assert!(objects.map(|(id, n)| object_key(id, n)).is_sorted());
        assert!(objects.iter().all(|(id, n)| object_of(&object_key(*id, *n)) == Some((*id, *n))));
        let times = [(i64::MIN, 9), (-1, 0), (0, 0), (0, 1), (1, 0), (i64::MAX, 0)];
        assert!(times.map(|(at, id)| time_key(at, id)).is_sorted());
        assert!(times.iter().all(|(at, id)| time_of(&time_key(*at, *id)) == Some((*at, *id))));
        assert_eq!((object_of(b"short"), time_of(b"short")), (None, None));
    }

    #[test]
    fn an_entry_belongs_to_its_text_and_to_no_other_that_begins_like_it() {
        let entry = |text: &str, id: u64| [text_prefix(text), id.to_be_bytes().to_vec()].concat();
        let prefix = text_prefix("a");
        assert_eq!(text_entry(&entry("a", 7), &prefix), Some(7));
        for other in ["ab", "a\0b", "", "a\0\0\0\0\0\0\0\0"] {
            assert_eq!(text_entry(&entry(other, 7), &prefix), None, "{other:?}");
        }
        let long = "\u{e4}".repeat(TEXT_BYTES_MAX);
        assert_eq!(text_prefix(&long).len(), TEXT_BYTES_MAX + 1);
    }
}
