//! [`Document`]: a jsonb value: read, written and ordered as PostgreSQL does.
//!
//! ```text
//!   text --parse--> Document --encode--> bytes, as they are stored (`layout`)
//!   {"bb":1.50,"a":[]}                   compared as bytes, documents are in PostgreSQL's order
//!   {"a": [], "bb": 1.50}   <--write--
//! ```
//!
//! The keys of an object are in order of their length, then of their bytes; of two members with one key the last stays. A number keeps its digits,
//! also zeros at its end. White space is not kept.
//!
//! Bounds: a document has at most [`BYTES_MAX`] bytes of text, escapes not counted, and [`DEPTH_MAX`] levels, a number [`DIGITS_MAX`] digits, so that neither a tree nor
//! a text of `1e100000` outgrows what it was made of.

mod edit;
mod joined;
mod layout;
mod parse;

pub(crate) use edit::{
    CONTAINMENT_STEPS_MAX, concatenated, contains, has_key, key_finder, set_path, without_key, without_nulls,
    without_path, without_place,
};
pub(crate) use joined::{joined_array, joined_object};
pub(crate) use layout::{compared, decode, encode, parts_at_most, written_at_most};
pub(crate) use parse::{is_number, number, parse, parts_of_text_at_most};

use crate::SqlError;

/// Largest text of a document, read or written.
pub(crate) const BYTES_MAX: usize = 4 << 20;
/// Largest text that is written: the pretty form has a line for each part.
const TEXT_MAX: usize = 64 << 20;
/// Most levels of objects and arrays.
pub(crate) const DEPTH_MAX: usize = 256;
/// Most digits of a number, as it is written.
pub(crate) const DIGITS_MAX: usize = 1000;

/// A document or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    Null,
    Boolean(bool),
    /// A number as PostgreSQL writes a numeric.
    Number(Box<str>),
    Text(String),
    Array(Vec<Document>),
    /// Members in the order of their keys: see [`object`](Document::object).
    Object(Vec<(String, Document)>),
}

/// The error for a document that is too large.
pub(crate) fn too_large() -> SqlError {
    SqlError::value("54000", format!("a jsonb document has more than {BYTES_MAX} bytes"))
}

/// The error for a document with too many levels.
fn too_deep() -> SqlError {
    SqlError::value("54001", format!("a jsonb document has more than {DEPTH_MAX} levels"))
}

impl Document {
    /// An object of these members; of those with one key the last stays.
    pub(crate) fn object(mut members: Vec<(String, Document)>) -> Document {
        members.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
        let mut kept: Vec<(String, Document)> = Vec::with_capacity(members.len());
        for (key, value) in members {
            match kept.last_mut() {
                Some((last, there)) if *last == key => *there = value,
                _ => kept.push((key, value)),
            }
        }
        Document::Object(kept)
    }

    /// What it is, as `jsonb_typeof` names it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Document::Null => "null",
            Document::Boolean(_) => "boolean",
            Document::Number(_) => "number",
            Document::Text(_) => "string",
            Document::Array(_) => "array",
            Document::Object(_) => "object",
        }
    }

    /// Whether it is no object and no array.
    pub(crate) fn is_scalar(&self) -> bool {
        !matches!(self, Document::Array(_) | Document::Object(_))
    }

    /// The member of an object.
    pub(crate) fn member(&self, key: &str) -> Option<&Document> {
        let Document::Object(members) = self else { return None };
        let place = members.binary_search_by(|(name, _)| (name.len(), name.as_str()).cmp(&(key.len(), key)));
        place.ok().map(|at| &members[at].1)
    }

    /// The element of an array; negative numbers count from the end. A scalar is its own only element, as in PostgreSQL.
    pub(crate) fn element(&self, number: i64) -> Option<&Document> {
        match self {
            Document::Array(elements) => elements.get(place(elements.len(), number)?),
            Document::Object(_) => None,
            _ => matches!(number, 0 | -1).then_some(self),
        }
    }

    /// The part at the end of a path.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Document> {
        path.iter().try_fold(self, |part, step| match part {
            Document::Array(_) => part.element(step_number(step)?),
            _ => part.member(step),
        })
    }

    /// The value as text: a string without quotes, `None` for null.
    pub(crate) fn plain(&self) -> Result<Option<String>, SqlError> {
        match self {
            Document::Null => Ok(None),
            Document::Text(text) => Ok(Some(text.clone())),
            other => other.text().map(Some),
        }
    }

    /// Whether its text has at most [`BYTES_MAX`] bytes, if no letter is written as an escape.
    fn fits(&self) -> bool {
        self.room_left(BYTES_MAX).is_some()
    }

    /// What is left of some room behind its text, if no letter is written as an escape; `None` if it does not fit.
    pub(crate) fn room_left(&self, room: usize) -> Option<usize> {
        match self {
            Document::Null | Document::Boolean(_) => room.checked_sub(5),
            Document::Number(number) => room.checked_sub(number.len()),
            Document::Text(text) => room.checked_sub(text.len() + 2),
            Document::Array(elements) => {
                elements.iter().try_fold(room.checked_sub(2)?, |room, element| element.room_left(room.checked_sub(2)?))
            }
            Document::Object(members) => members
                .iter()
                .try_fold(room.checked_sub(2)?, |room, (key, value)| value.room_left(room.checked_sub(key.len() + 6)?)),
        }
    }

    /// The document as PostgreSQL writes it. Errors: 54000.
    pub(crate) fn text(&self) -> Result<String, SqlError> {
        let mut out = String::new();
        write(self, None, &mut out)?;
        Ok(out)
    }

    /// The document with a line for each part, as `jsonb_pretty` writes it. Errors: 54000.
    pub(crate) fn pretty(&self) -> Result<String, SqlError> {
        let mut out = String::new();
        write(self, Some(0), &mut out)?;
        Ok(out)
    }
}

/// The place of an element by its number, which counts from the end if it is negative.
fn place(length: usize, number: i64) -> Option<usize> {
    let number = if number < 0 { number.checked_add(length as i64)? } else { number };
    usize::try_from(number).ok().filter(|at| *at < length)
}

/// The number of an element, from the step of a path: with blanks in front of it, as PostgreSQL reads it, and none behind.
pub(crate) fn step_number(step: &str) -> Option<i64> {
    let digits = step.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    digits.parse::<i32>().ok().map(i64::from)
}

/// Spaces in front of a level of the pretty form.
const INDENT: usize = 4;

fn write(document: &Document, level: Option<usize>, out: &mut String) -> Result<(), SqlError> {
    // A letter may become six by its escape: what was taken can always be written.
    if out.len() > TEXT_MAX {
        return Err(too_large());
    }
    let inside = level.map(|level| level + 1);
    let line = |level: Option<usize>, out: &mut String| {
        if let Some(level) = level {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', level * INDENT));
        }
    };
    let between = if level.is_some() { "," } else { ", " };
    match document {
        Document::Null => out.push_str("null"),
        Document::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Document::Number(number) => out.push_str(number),
        Document::Text(text) => write_string(text, out),
        Document::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { between });
                line(inside, out);
                write(element, inside, out)?;
            }
            line(level, out);
            out.push(']');
        }
        Document::Object(members) => {
            out.push('{');
            for (at, (key, value)) in members.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { between });
                line(inside, out);
                write_string(key, out);
                out.push_str(": ");
                write(value, inside, out)?;
            }
            line(level, out);
            out.push('}');
        }
    }
    Ok(())
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_written_as_postgresql_writes_it() {
        // Results of PostgreSQL 15.18.
        for (text, written) in [
            (r#" {"bb":1,"a":2, "bb" : 3, "":null} "#, r#"{"": null, "a": 2, "bb": 3}"#),
            (
                r#"[1,2.50,-0,-0.0,1e2,1.50e1,1e-3,0.05e1,12e-1,0e5,0.0e-2]"#,
                "[1, 2.50, 0, 0.0, 100, 15.0, 0.001, 0.5, 1.2, 0, 0.000]",
            ),
            (r#""\u00e4\ud83d\ude00\/\b\u001f\u007f""#, "\"\u{e4}\u{1f600}/\\b\\u001f\u{7f}\""),
            (r#"{"b":[],"a":{}}"#, r#"{"a": {}, "b": []}"#),
            ("true", "true"),
        ] {
            let document = parse(text).expect(text);
            assert_eq!(document.text().expect(text), written, "{text}");
            assert_eq!(decode(&encode(&document).expect(text)).expect(text), document, "{text}");
        }
        let pretty = parse(r#"{"a":[1,{}],"b":[]}"#).and_then(|document| document.pretty()).expect("it is one");
        assert_eq!(pretty, "{\n    \"a\": [\n        1,\n        {\n        }\n    ],\n    \"b\": [\n    ]\n}");
    }

    #[test]
    fn what_is_no_document_or_too_large_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "'a'",
            "\"\n\"",
            "nul",
            "[1] 2",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"a",
        ] {
            assert_eq!(parse(text).expect_err(text).code(), "22P02", "{text}");
        }
        assert_eq!(parse("\"\\u0000\"").expect_err("no text has it").code(), "22P05");
        assert_eq!(parse("1e1000").expect_err("many digits").code(), "0A000");
        assert_eq!(parse("1e-99999999999999999999").expect_err("many digits").code(), "0A000");
        // The longest numbers that are taken are read as they are written.
        for longest in ["5e-999", "1e999", "-2.5e-998"] {
            let written = parse(longest).expect("it has a thousand digits").text().expect("it is short");
            assert_eq!(parse(&written).expect("it is one of ours").text().expect("it is short"), written, "{longest}");
        }
        assert_eq!(parse("[".repeat(DEPTH_MAX + 1).as_str()).expect_err("deep").code(), "54001");
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert_eq!(parse(&deep).and_then(|deep| decode(&encode(&deep)?)?.text()).expect("as deep as may be"), deep);
        assert_eq!(parse(&" ".repeat(BYTES_MAX + 1)).expect_err("long").code(), "54000");
        // Few bytes, many digits: it is refused before all of them are made.
        let numbers = |count: usize| parse(&format!("[{}0]", "1e999,".repeat(count)));
        numbers(4000).expect("four megabytes");
        assert_eq!(numbers(4200).expect_err("more").code(), "54000");
    }
}
