//! `hl7.fields`: one row for each value in each message as received.
//!
//! ```text
//!   message_id | interface | control_id | mrn | type | received_at       the message's, as in hl7.messages: bounds on them are used
//!   position | segment | occurrence                                      the segment's, as in hl7.segments
//!   path | field | repetition | component | subcomponent | value | error
//! ```
//!
//! There is a row for each repetition of a field (`PID-3`), one for each of its components (`PID-3.1`), also where
//! there is only one, and where a component has several subcomponents one for each (`PID-3.4.2`). The value is what
//! `hl7(body, 'PID[1]-3[2].4.2')` gives for the place. Places that are empty have no row. `path` has neither occurrence
//! nor repetition in it, so that `path = 'OBX-3.1'` finds all of them; with a condition `path = ..` or `segment = ..`,
//! the other rows are not made.
//!
//! A part that cannot be read is reported in `error`, in a row without a path: a message that is not HL7, a line
//! without a segment's name.

use std::sync::Arc;

use hl7::charset::Charset;
use hl7::{Reading, Segment, SegmentName};
use interop::rows::ReadMessage;
use sql::arrow::array::{ArrayRef, StringArray};
use sql::arrow::datatypes::Field;

use super::about::{ABOUT, ABOUT_KEYS, About, count_field, counts, text_field};
use super::segments::{NAMELESS, name_column, numbered};
use super::walk::{Keys, Scan, Table};

const SEGMENT: usize = ABOUT + 1;
const PATH: usize = ABOUT + 3;
const VALUE: usize = ABOUT + 8;

/// The table.
#[derive(Debug)]
pub(super) struct Fields;

/// A value.
pub(super) struct FieldRow {
    about: Arc<About>,
    position: u32,
    segment: Option<SegmentName>,
    occurrence: Option<u32>,
    place: Option<Place>,
    value: Option<String>,
    error: Option<String>,
}

/// Where in a segment, all counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    field: u32,
    repetition: u32,
    component: Option<u32>,
    subcomponent: Option<u32>,
}

/// The places that a query needs, as far as its conditions on `path` determine them.
struct Wanted<'a> {
    segment: Option<&'a str>,
    /// Field, component and subcomponent; a path that is none of ours fits no place.
    place: Option<(u32, Option<u32>, Option<u32>)>,
}

impl<'a> Wanted<'a> {
    fn of(scan: &'a Scan) -> Wanted<'a> {
        let Some(path) = scan.text(PATH) else { return Wanted { segment: scan.text(SEGMENT), place: None } };
        let (segment, place) = path.split_once('-').unwrap_or((path, ""));
        let mut numbers = place.split('.').map(|number| number.parse().ok());
        let field = numbers.next().flatten().unwrap_or(0);
        Wanted { segment: Some(segment), place: Some((field, numbers.next().flatten(), numbers.next().flatten())) }
    }

    fn field(&self, field: u32) -> bool {
        self.place.is_none_or(|(wanted, ..)| wanted == field)
    }

    fn place(&self, place: Place) -> bool {
        self.place.is_none_or(|wanted| wanted == (place.field, place.component, place.subcomponent))
    }
}

impl Table for Fields {
    type Row = FieldRow;
    const KEYS: Keys = ABOUT_KEYS;
    const BODIES: &'static [usize] = &[];
    const IS_BODY: bool = true;
    const NAME: &'static str = "fields";

    fn fields() -> Vec<Field> {
        let mut fields = About::fields();
        fields.extend([count_field("position"), text_field("segment"), count_field("occurrence"), text_field("path")]);
        fields.extend(["field", "repetition", "component", "subcomponent"].map(count_field));
        fields.extend([text_field("value"), text_field("error")]);
        fields
    }

    fn rows(scan: &Scan, message: ReadMessage, rows: &mut Vec<FieldRow>) {
        let (about, raw, charset) = About::of(scan, message);
        let unreadable = |position, error: String| {
            let (about, error) = (Arc::clone(&about), Some(error));
            FieldRow { about, position, segment: None, occurrence: None, place: None, value: None, error }
        };
        // Split only if this is known to be right: else a row with the reason in `error`.
        let reading = Reading::of(&raw, charset).map_err(|error| error.to_string());
        let message = match reading.as_ref().map_err(String::clone).and_then(|r| r.message().map_err(|e| e.to_string()))
        {
            Ok(message) => message,
            Err(error) => {
                rows.push(unreadable(0, error));
                return;
            }
        };
        let charset = message.charset().unwrap_or(Charset::UTF_8);
        let wanted = Wanted::of(scan);
        for (position, occurrence, segment) in numbered(&message) {
            let name = segment.name();
            if wanted.segment.is_some_and(|wanted| wanted.as_bytes() != name.bytes()) {
                continue;
            }
            if name == SegmentName::UNREADABLE {
                rows.push(unreadable(position, NAMELESS.to_owned()));
                continue;
            }
            places(&segment, &wanted, |place, raw| {
                rows.push(FieldRow {
                    about: Arc::clone(&about),
                    position,
                    segment: Some(name),
                    occurrence: Some(occurrence),
                    place: Some(place),
                    value: scan.wants(VALUE).then(|| charset.text(raw, message.delimiters()).into_owned()),
                    error: None,
                });
            });
        }
    }

    fn row_bytes(row: &FieldRow) -> usize {
        row.value.as_ref().map_or(0, String::len)
    }

    fn column(position: usize, rows: &[FieldRow]) -> ArrayRef {
        let text = |of: &dyn Fn(&FieldRow) -> Option<String>| {
            Arc::new(rows.iter().map(of).collect::<StringArray>()) as ArrayRef
        };
        let count = |of: &dyn Fn(Place) -> Option<u32>| counts(rows.iter().map(|row| row.place.and_then(of)));
        match position.checked_sub(ABOUT) {
            None => About::column(position, rows.iter().map(|row| &*row.about)),
            Some(0) => counts(rows.iter().map(|row| Some(row.position))),
            Some(1) => name_column(rows.iter().map(|row| row.segment)),
            Some(2) => counts(rows.iter().map(|row| row.occurrence)),
            Some(3) => text(&|row| Some(path(row.segment?, row.place?))),
            Some(4) => count(&|place| Some(place.field)),
            Some(5) => count(&|place| Some(place.repetition)),
            Some(6) => count(&|place| place.component),
            Some(7) => count(&|place| place.subcomponent),
            Some(8) => text(&|row| row.value.clone()),
            _ => text(&|row| row.error.clone()),
        }
    }
}

fn path(segment: SegmentName, place: Place) -> String {
    let part = |number: Option<u32>| number.map_or(String::new(), |number| format!(".{number}"));
    format!("{segment}-{}{}{}", place.field, part(place.component), part(place.subcomponent))
}

/// The places of a segment that hold something, in order, with their raw bytes.
fn places<'a>(segment: &Segment<'a>, wanted: &Wanted<'_>, mut each: impl FnMut(Place, &'a [u8])) {
    let delimiters = segment.delimiters();
    for (field, value) in (1..).zip(segment.fields()) {
        if !wanted.field(field) || value.bytes().is_empty() {
            continue;
        }
        let mut give = |place: Place, raw: &'a [u8]| {
            if !raw.is_empty() && wanted.place(place) {
                each(place, raw);
            }
        };
        // MSH-1 and MSH-2 are made of delimiters, and not divided by them.
        let is_whole = field <= 2 && segment.name().is_header();
        let repetitions = if is_whole { None } else { delimiters.repetition };
        for (repetition, raw) in parts(value.bytes(), repetitions) {
            let place = Place { field, repetition, component: None, subcomponent: None };
            give(place, raw);
            if is_whole {
                continue;
            }
            for (component, raw) in parts(raw, delimiters.component) {
                let place = Place { component: Some(component), ..place };
                give(place, raw);
                let several = delimiters.subcomponent.filter(|separator| raw.contains(separator));
                for (subcomponent, raw) in parts(raw, several).filter(|_| several.is_some()) {
                    give(Place { subcomponent: Some(subcomponent), ..place }, raw);
                }
            }
        }
    }
}

/// The parts that a separator makes, counted from 1.
fn parts(bytes: &[u8], separator: Option<u8>) -> impl Iterator<Item = (u32, &[u8])> {
    (1..).zip(bytes.split(move |byte| Some(*byte) == separator))
}
