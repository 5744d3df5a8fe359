//! `hl7.messages`: the message history as a table, one row for each object: a message as received, and each of its outputs.
//!
//! ```text
//!   id | object | direction | interface | transform | status | reason | control_id | mrn | type | received_at | body | raw | generation
//!        0 in, from 1 out                                               of the message as received       text, bytes   that decided
//! ```
//!
//! `raw` is the message, byte for byte: `hl7(raw, 'PID-5.1')` decodes it by the message's own character set. `body` is the
//! same as text, decoded whole. `received_at` has no zone: it is UTC.

use std::sync::Arc;

use bytes::Bytes;
use hl7::Reading;
use hl7::charset::Charset;
use interop::rows::{Brief, ReadMessage, Wanted};
use sql::ScalarValue;
use sql::arrow::array::{ArrayRef, BinaryBuilder, Int32Array, StringArray, TimestampMicrosecondArray};
use sql::arrow::datatypes::{DataType, Field, TimeUnit};

use super::about::{numbers, search_texts, text_field};
use super::walk::{Keys, Scan, Table};

const ID: usize = 0;
const OBJECT: usize = 1;
const DIRECTION: usize = 2;
const INTERFACE: usize = 3;
const TRANSFORM: usize = 4;
const STATUS: usize = 5;
const REASON: usize = 6;
const CONTROL: usize = 7;
const MRN: usize = 8;
const TYPE: usize = 9;
const RECEIVED: usize = 10;
const BODY: usize = 11;
const RAW: usize = 12;
const GENERATION: usize = 13;

/// The direction of a message as received.
const IN: &str = "in";

/// The table.
#[derive(Debug)]
pub(super) struct Messages;

/// One object.
pub(super) struct MessageRow {
    id: u64,
    object: i32,
    direction: &'static str,
    interface: Option<String>,
    transform: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    control_id: Option<String>,
    mrn: Option<String>,
    kind: Option<String>,
    received_us: i64,
    body: Option<String>,
    raw: Option<Bytes>,
    generation: Option<i32>,
}

impl Table for Messages {
    type Row = MessageRow;
    const KEYS: Keys = Keys {
        id: ID,
        interface: INTERFACE,
        control: CONTROL,
        mrn: MRN,
        kind: TYPE,
        received: RECEIVED,
        status: Some(STATUS),
    };
    const BODIES: &'static [usize] = &[REASON, CONTROL, MRN, BODY, RAW];
    const OUTSIDE: &'static [usize] = &[ID, OBJECT, DIRECTION, INTERFACE, TRANSFORM, STATUS, RECEIVED, GENERATION];
    const NAME: &'static str = "messages";
    const BRIEF: &'static [usize] = &[ID, OBJECT, DIRECTION, RECEIVED];

    fn fields() -> Vec<Field> {
        vec![
            Field::new("id", DataType::Int64, false),
            Field::new("object", DataType::Int32, false),
            text_field("direction"),
            text_field("interface"),
            text_field("transform"),
            text_field("status"),
            text_field("reason"),
            text_field("control_id"),
            text_field("mrn"),
            text_field("type"),
            Field::new("received_at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
            text_field("body"),
            Field::new("raw", DataType::Binary, true),
            Field::new("generation", DataType::Int32, true),
        ]
    }

    fn brief_rows(scan: &Scan, id: u64, brief: Brief, rows: &mut Vec<MessageRow>) {
        let kind = if scan.wants(TYPE) { scan.text(TYPE) } else { None };
        rows.extend((0..=i32::from(brief.outputs)).map(|object| MessageRow {
            id,
            object,
            direction: if object == 0 { IN } else { "out" },
            interface: None,
            transform: None,
            status: None,
            reason: None,
            control_id: None,
            mrn: None,
            kind: kind.map(str::to_owned),
            received_us: brief.received_us,
            body: None,
            raw: None,
            generation: None,
        }));
    }

    fn wanted(scan: &Scan) -> Wanted {
        let is_inbound = scan.is_only(OBJECT, &ScalarValue::Int32(Some(0))) || scan.text(DIRECTION) == Some(IN);
        Wanted { outputs: !is_inbound, outcomes: !is_inbound && (scan.wants(STATUS) || scan.wants(REASON)) }
    }

    fn wants_keys(scan: &Scan) -> bool {
        [CONTROL, MRN, TYPE].into_iter().any(|column| scan.wants(column))
    }

    /// Adds a message with its outputs.
    fn rows(scan: &Scan, message: ReadMessage, rows: &mut Vec<MessageRow>) {
        let ReadMessage { id, stored, outcomes } = message;
        let keys = if Self::wants_keys(scan) { search_texts(&stored.keys) } else { [None, None, None] };
        let [control_id, mrn, kind] = keys;
        let body = |bytes: &Bytes| scan.wants(BODY).then(|| readable(bytes, stored.charset));
        let raw = |bytes: &Bytes| scan.wants(RAW).then(|| bytes.clone());
        let status = |status: &dyn std::fmt::Debug| scan.wants(STATUS).then(|| format!("{status:?}").to_lowercase());
        let generation = i32::try_from(stored.generation).ok().filter(|generation| *generation > 0);
        rows.push(MessageRow {
            id,
            object: 0,
            direction: IN,
            interface: scan.wants(INTERFACE).then_some(stored.service),
            transform: None,
            status: status(&stored.status),
            reason: scan.wants(REASON).then_some(stored.reason),
            control_id: control_id.clone(),
            mrn: mrn.clone(),
            kind: kind.clone(),
            received_us: stored.received_us,
            body: body(&stored.raw),
            raw: raw(&stored.raw),
            generation,
        });
        for (object, output) in (1..).zip(stored.outputs) {
            let outcome = outcomes.iter().find(|outcome| i32::from(outcome.output) + 1 == object);
            rows.push(MessageRow {
                id,
                object,
                direction: "out",
                interface: Some(output.operation),
                transform: (!output.transform.is_empty()).then_some(output.transform),
                status: match outcome {
                    None => Some("waiting".to_owned()),
                    Some(outcome) => scan.wants(STATUS).then(|| outcome.outcome.name().to_owned()),
                },
                reason: outcome.map(|outcome| outcome.detail.clone()),
                control_id: control_id.clone(),
                mrn: mrn.clone(),
                kind: kind.clone(),
                received_us: stored.received_us,
                body: body(&output.body),
                raw: raw(&output.body),
                generation,
            });
        }
    }

    fn row_bytes(row: &MessageRow) -> usize {
        row.body.as_ref().map_or(0, String::len) + row.raw.as_ref().map_or(0, Bytes::len)
    }

    fn column(position: usize, rows: &[MessageRow]) -> ArrayRef {
        let text = |of: &dyn Fn(&MessageRow) -> Option<String>| {
            Arc::new(rows.iter().map(of).collect::<StringArray>()) as ArrayRef
        };
        match position {
            ID => numbers(rows.iter().map(|row| row.id)),
            OBJECT => Arc::new(rows.iter().map(|row| row.object).collect::<Int32Array>()),
            DIRECTION => text(&|row| Some(row.direction.to_owned())),
            INTERFACE => text(&|row| row.interface.clone()),
            TRANSFORM => text(&|row| row.transform.clone()),
            STATUS => text(&|row| row.status.clone()),
            REASON => text(&|row| row.reason.clone()),
            CONTROL => text(&|row| row.control_id.clone()),
            MRN => text(&|row| row.mrn.clone()),
            TYPE => text(&|row| row.kind.clone()),
            RECEIVED => Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.received_us))),
            BODY => text(&|row| row.body.clone()),
            RAW => {
                let mut raw = BinaryBuilder::with_capacity(rows.len(), rows.iter().map(Self::row_bytes).sum());
                rows.iter().for_each(|row| raw.append_option(row.raw.as_deref()));
                Arc::new(raw.finish())
            }
            GENERATION => Arc::new(rows.iter().map(|row| row.generation).collect::<Int32Array>()),
            other => panic!("the relation has no column {other}"),
        }
    }
}

/// A message as text, by the character set that it declares, or the one it came in where it declares none.
fn readable(raw: &[u8], charset: Option<Charset>) -> String {
    Reading::lenient(raw, charset).shown().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_by_the_character_set_that_it_declares() {
        let message = |charset: &str, name: &[u8]| {
            let header = format!("MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5||||||{charset}\rPID|||||");
            [header.as_bytes(), name].concat()
        };
        assert!(readable(&message("8859/1", b"M\xfcller"), None).ends_with("M\u{fc}ller"));
        assert!(readable(&message("UNICODE UTF-8", "M\u{fc}ller".as_bytes()), None).ends_with("M\u{fc}ller"));
        assert!(readable(&message("", "M\u{fc}ller".as_bytes()), None).ends_with("M\u{fc}ller"));
        assert_eq!(readable(b"no message", None), "no message");
        let japanese = readable(&message("", b"\x83\x7C\x81\x5B\x83\x8B"), Some(Charset::SHIFT_JIS));
        assert!(japanese.ends_with("\u{30dd}\u{30fc}\u{30eb}"), "as the service had been told");
    }
}
