//! What tables of the history share: the columns that say which message a row belongs to, and how values become columns.
//!
//! ```text
//!   message_id | interface | control_id | mrn | type | received_at | what the table itself has ...
//! ```
//!
//! Not here: which messages there are (`walk`).

use std::sync::Arc;

use hl7::charset::Charset;
use interop::record::search::{SearchKeys, TextIndex};
use interop::rows::ReadMessage;
use sql::arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray};
use sql::arrow::datatypes::{DataType, Field, TimeUnit};

use super::walk::{Keys, Scan};

/// Control id, first medical record number and type of a message; nothing for bytes that are no message.
pub(super) fn search_texts(keys: &SearchKeys) -> [Option<String>; 3] {
    let mut texts = [None, None, None];
    keys.texts(|index, text| {
        let first = match index {
            TextIndex::Control => &mut texts[0],
            TextIndex::Mrn => &mut texts[1],
            TextIndex::Type => &mut texts[2],
        };
        first.get_or_insert_with(|| text.to_owned());
    });
    texts
}

/// The message that rows of its content belong to: their first columns.
#[derive(Debug)]
pub(super) struct About {
    id: u64,
    interface: String,
    keys: [Option<String>; 3],
    received_us: i64,
}

/// How many columns these are.
pub(super) const ABOUT: usize = 6;

/// Where the keys are among them.
pub(super) const ABOUT_KEYS: Keys =
    Keys { id: 0, interface: 1, control: 2, mrn: 3, kind: 4, received: 5, status: None };

impl About {
    /// The columns.
    pub(super) fn fields() -> Vec<Field> {
        vec![
            Field::new("message_id", DataType::Int64, false),
            text_field("interface"),
            text_field("control_id"),
            text_field("mrn"),
            text_field("type"),
            Field::new("received_at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        ]
    }

    /// A message, its bytes as received and the charset they came in where they declare none.
    pub(super) fn of(scan: &Scan, message: ReadMessage) -> (Arc<About>, bytes::Bytes, Option<Charset>) {
        let ReadMessage { id, stored, .. } = message;
        let wants_keys = [ABOUT_KEYS.control, ABOUT_KEYS.mrn, ABOUT_KEYS.kind].into_iter().any(|at| scan.wants(at));
        let keys = if wants_keys { search_texts(&stored.keys) } else { [None, None, None] };
        let about = About { id, interface: stored.service, keys, received_us: stored.received_us };
        (Arc::new(about), stored.raw, stored.charset)
    }

    /// One of the columns.
    pub(super) fn column<'a>(position: usize, of: impl Iterator<Item = &'a About>) -> ArrayRef {
        match position {
            0 => numbers(of.map(|about| about.id)),
            1 => Arc::new(of.map(|about| Some(about.interface.as_str())).collect::<StringArray>()),
            5 => Arc::new(TimestampMicrosecondArray::from_iter_values(of.map(|about| about.received_us))),
            _ => Arc::new(of.map(|about| about.keys[position - 2].as_deref()).collect::<StringArray>()),
        }
    }
}

/// A column of text that may be NULL.
pub(super) fn text_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

/// A column of numbers that may be NULL.
pub(super) fn count_field(name: &str) -> Field {
    Field::new(name, DataType::Int32, true)
}

/// Ids as a column.
pub(super) fn numbers(ids: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(ids.map(|id| i64::try_from(id).unwrap_or(i64::MAX)).collect::<Int64Array>())
}

/// Counts as a column.
pub(super) fn counts(counts: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    Arc::new(counts.map(|count| count.map(|count| i32::try_from(count).unwrap_or(i32::MAX))).collect::<Int32Array>())
}
