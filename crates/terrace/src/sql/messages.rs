//! `hl7.messages`: the message history as a table, one row for each object: a message as received, and each of its outputs.
//!
//! ```text
//!   id | object | direction | interface | transform | status | reason | control_id | mrn | type | received_at | body | raw
//!        0 in, from 1 out                                               of the message as received       text, bytes
//! ```
//!
//! `raw` is the message, byte for byte: `hl7(raw, 'PID-5.1')` decodes it by the message's own character set. `body` is the
//! same as text, decoded whole. `received_at` has no zone: it is UTC.

use std::sync::Arc;

use bytes::Bytes;
use hl7::Reading;
use hl7::charset::Charset;
use interop::InteropError;
use interop::rows::Brief;
use sql::arrow::array::{ArrayRef, BinaryArray, Int32Array, StringArray, TimestampMicrosecondArray};
use sql::arrow::datatypes::{DataType, Field, TimeUnit};

use super::walk::{Keys, Scan, Table, numbers, search_keys, text_field};

const ID: usize = 0;
const OBJECT: usize = 1;
const DIRECTION: usize = 2;
const STATUS: usize = 5;
const CONTROL: usize = 7;
const MRN: usize = 8;
const TYPE: usize = 9;
const RECEIVED: usize = 10;
const BODY: usize = 11;
const RAW: usize = 12;

/// The table.
#[derive(Debug)]
pub(super) struct Messages;

/// One object.
pub(super) struct Row {
    id: u64,
    object: i32,
    direction: &'static str,
    interface: String,
    transform: Option<String>,
    status: String,
    reason: Option<String>,
    control_id: Option<String>,
    mrn: Option<String>,
    kind: Option<String>,
    received_us: i64,
    body: Option<String>,
    raw: Option<Bytes>,
}

impl Table for Messages {
    type Row = Row;
    const KEYS: Keys =
        Keys { id: ID, interface: 3, control: CONTROL, mrn: MRN, kind: TYPE, received: RECEIVED, status: Some(STATUS) };
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
        ]
    }

    fn brief_rows(scan: &Scan, id: u64, brief: Brief, rows: &mut Vec<Row>) {
        let kind = if scan.wants(TYPE) { scan.text(TYPE) } else { None };
        rows.extend((0..=i32::from(brief.outputs)).map(|object| Row {
            id,
            object,
            direction: if object == 0 { "in" } else { "out" },
            interface: String::new(),
            transform: None,
            status: String::new(),
            reason: None,
            control_id: None,
            mrn: None,
            kind: kind.map(str::to_owned),
            received_us: brief.received_us,
            body: None,
            raw: None,
        }));
    }

    /// Adds a message with its outputs.
    fn rows(scan: &Scan, id: u64, rows: &mut Vec<Row>) -> Result<(), InteropError> {
        let Some((stored, outputs)) = scan.reader.inbound(id)? else { return Ok(()) };
        let keys = if [CONTROL, MRN, TYPE].into_iter().any(|column| scan.wants(column)) {
            search_keys(&stored.raw, stored.charset)
        } else {
            [None, None, None]
        };
        let [control_id, mrn, kind] = keys;
        let body = |bytes: &Bytes| scan.wants(BODY).then(|| readable(bytes, stored.charset));
        let raw = |bytes: &Bytes| scan.wants(RAW).then(|| bytes.clone());
        rows.push(Row {
            id,
            object: 0,
            direction: "in",
            interface: stored.service.clone(),
            transform: None,
            status: format!("{:?}", stored.status).to_lowercase(),
            reason: Some(stored.reason.clone()),
            control_id: control_id.clone(),
            mrn: mrn.clone(),
            kind: kind.clone(),
            received_us: stored.received_us,
            body: body(&stored.raw),
            raw: raw(&stored.raw),
        });
        let fates = if outputs > 0 { scan.reader.fates(id)? } else { Vec::new() };
        for n in 0..outputs {
            let output = scan.reader.output(id, n, &stored.raw)?;
            let fate = fates.iter().find(|fate| fate.output == n);
            rows.push(Row {
                id,
                object: i32::from(n) + 1,
                direction: "out",
                interface: output.operation,
                transform: (!output.transform.is_empty()).then_some(output.transform),
                status: fate.map_or("waiting".to_owned(), |fate| format!("{:?}", fate.fate).to_lowercase()),
                reason: fate.map(|fate| fate.note.clone()),
                control_id: control_id.clone(),
                mrn: mrn.clone(),
                kind: kind.clone(),
                received_us: stored.received_us,
                body: body(&output.body),
                raw: raw(&output.body),
            });
        }
        Ok(())
    }

    fn column(position: usize, rows: &[Row]) -> ArrayRef {
        let text =
            |of: &dyn Fn(&Row) -> Option<String>| Arc::new(rows.iter().map(of).collect::<StringArray>()) as ArrayRef;
        match position {
            ID => numbers(rows.iter().map(|row| row.id)),
            OBJECT => Arc::new(rows.iter().map(|row| row.object).collect::<Int32Array>()),
            DIRECTION => text(&|row| Some(row.direction.to_owned())),
            3 => text(&|row| Some(row.interface.clone())),
            4 => text(&|row| row.transform.clone()),
            STATUS => text(&|row| Some(row.status.clone())),
            6 => text(&|row| row.reason.clone()),
            CONTROL => text(&|row| row.control_id.clone()),
            MRN => text(&|row| row.mrn.clone()),
            TYPE => text(&|row| row.kind.clone()),
            RECEIVED => Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.received_us))),
            BODY => text(&|row| row.body.clone()),
            RAW => Arc::new(rows.iter().map(|row| row.raw.as_deref()).collect::<BinaryArray>()),
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
