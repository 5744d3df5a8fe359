//! `hl7.segments`: one row for each segment of each message as received.
//!
//! ```text
//!   message_id | interface | control_id | mrn | type | received_at       the message's, as in hl7.messages: bounds on them are used
//!   position | segment | occurrence | fields | raw | error               the segment's
//! ```
//!
//! `position` counts the segments of a message from 1, `occurrence` those of one name, as in the path `OBX[2]`. `raw`
//! is the segment as text, decoded by the message's character set but not unescaped. A part that cannot be read is
//! reported in `error`: a message that is not HL7 is one row at position 0 without a segment; the row of a line without
//! a segment's name has no segment either.

use std::collections::HashMap;
use std::sync::Arc;

use hl7::charset::Charset;
use hl7::{Message, Reading, SegmentName};
use interop::rows::ReadMessage;
use sql::arrow::array::{ArrayRef, StringArray};
use sql::arrow::datatypes::Field;

use super::about::{ABOUT, ABOUT_KEYS, About, count_field, counts, text_field};
use super::walk::{Keys, Scan, Table};

const SEGMENT: usize = ABOUT + 1;
const RAW: usize = ABOUT + 4;

/// The error of a line without a segment's name.
pub(super) const NAMELESS: &str = "a line that does not begin with a segment's name";

/// The table.
#[derive(Debug)]
pub(super) struct Segments;

/// A segment.
pub(super) struct SegmentRow {
    about: Arc<About>,
    position: u32,
    segment: Option<SegmentName>,
    occurrence: Option<u32>,
    fields: Option<u32>,
    raw: Option<String>,
    error: Option<String>,
}

impl Table for Segments {
    type Row = SegmentRow;
    const KEYS: Keys = ABOUT_KEYS;
    const BODIES: &'static [usize] = &[];
    const IS_BODY: bool = true;
    const NAME: &'static str = "segments";

    fn fields() -> Vec<Field> {
        let mut fields = About::fields();
        fields.extend([
            count_field("position"),
            text_field("segment"),
            count_field("occurrence"),
            count_field("fields"),
        ]);
        fields.extend([text_field("raw"), text_field("error")]);
        fields
    }

    fn rows(scan: &Scan, message: ReadMessage, rows: &mut Vec<SegmentRow>) {
        let (about, raw, charset) = About::of(scan, message);
        // Split only if this is known to be right: else a row with the reason in `error`.
        let reading = Reading::of(&raw, charset).map_err(|error| error.to_string());
        let message = match reading.as_ref().map_err(String::clone).and_then(|r| r.message().map_err(|e| e.to_string()))
        {
            Ok(message) => message,
            Err(error) => {
                let raw = scan.wants(RAW).then(|| Reading::lenient(&raw, charset).shown().into_owned());
                let error = Some(error);
                rows.push(SegmentRow { about, position: 0, segment: None, occurrence: None, fields: None, raw, error });
                return;
            }
        };
        let charset = message.charset().unwrap_or(Charset::UTF_8);
        let only = scan.text(SEGMENT);
        for (position, occurrence, segment) in numbered(&message) {
            let name = segment.name();
            if only.is_some_and(|only| only.as_bytes() != name.bytes()) {
                continue;
            }
            let is_known = name != SegmentName::UNREADABLE;
            rows.push(SegmentRow {
                about: Arc::clone(&about),
                position,
                segment: is_known.then_some(name),
                occurrence: is_known.then_some(occurrence),
                fields: Some(segment.fields().count() as u32),
                raw: scan.wants(RAW).then(|| charset.decode(segment.raw()).into_owned()),
                error: (!is_known).then(|| NAMELESS.to_owned()),
            });
        }
    }

    fn row_bytes(row: &SegmentRow) -> usize {
        row.raw.as_ref().map_or(0, String::len)
    }

    fn column(position: usize, rows: &[SegmentRow]) -> ArrayRef {
        let text = |of: &dyn Fn(&SegmentRow) -> Option<&str>| {
            Arc::new(rows.iter().map(of).collect::<StringArray>()) as ArrayRef
        };
        match position.checked_sub(ABOUT) {
            None => About::column(position, rows.iter().map(|row| &*row.about)),
            Some(0) => counts(rows.iter().map(|row| Some(row.position))),
            Some(1) => name_column(rows.iter().map(|row| row.segment)),
            Some(2) => counts(rows.iter().map(|row| row.occurrence)),
            Some(3) => counts(rows.iter().map(|row| row.fields)),
            Some(4) => text(&|row| row.raw.as_deref()),
            _ => text(&|row| row.error.as_deref()),
        }
    }
}

/// The segments of a message: their places from 1, which of their name they are from 1, and they themselves.
pub(super) fn numbered<'a>(message: &Message<'a>) -> impl Iterator<Item = (u32, u32, hl7::Segment<'a>)> {
    let mut of_name: HashMap<SegmentName, u32> = HashMap::new();
    (1..).zip(message.segments()).map(move |(position, segment)| {
        let occurrence = of_name.entry(segment.name()).or_insert(0);
        *occurrence += 1;
        (position, *occurrence, segment)
    })
}

/// Names of segments as a column.
pub(super) fn name_column(names: impl Iterator<Item = Option<SegmentName>>) -> ArrayRef {
    Arc::new(names.map(|name| name.map(|name| name.to_string())).collect::<StringArray>())
}
