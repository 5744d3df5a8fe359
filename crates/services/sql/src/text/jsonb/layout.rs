//! The bytes of a document: compared as bytes, documents are in PostgreSQL's order.
//!
//! ```text
//!   u8     0 an empty array, 1 a value, 2 an array, 3 an object: PostgreSQL orders whole documents so
//!   value  01                                    null
//!          02 bytes 00                           string (no text has 00)
//!          03 02                                 zero
//!          03 03 i16 digits 00                   positive number: the place of the point, counted from the first digit; digits as letters
//!          03 01 ~(i16 digits 00)                negative number
//!          04 | 05                               false, true
//!          10 u32 values                         array: number of elements
//!          11 u32 (bytes 00 value)..             object: number of members; keys in the document's order
//!   u16..  zeros at the end of each number, in their order, if any number has some: they are shown, and not compared
//! ```
//!
//! Numbers are big-endian; the sign bit of i16 is flipped. Objects are larger than arrays, those than true, .., null. More elements are larger
//! than fewer. Decoding is total: any bytes are a document or an error.

use super::{DEPTH_MAX, Document};
use crate::SqlError;
use store::StoreError;

pub(super) const NULL: u8 = 1;
pub(super) const STRING: u8 = 2;
const NUMBER: u8 = 3;
const FALSE: u8 = 4;
const TRUE: u8 = 5;
pub(super) const ARRAY: u8 = 0x10;
pub(super) const OBJECT: u8 = 0x11;

const NEGATIVE: u8 = 1;
const ZERO: u8 = 2;
const POSITIVE: u8 = 3;

/// The bytes of a document. Errors: 54001 if it is too deep, 54000 if its text is too long.
pub(crate) fn encode(document: &Document) -> Result<Vec<u8>, SqlError> {
    if !document.fits() {
        return Err(super::too_large());
    }
    let mut encoder = Encoder { out: Vec::new(), zeros: Vec::new() };
    encoder.out.push(match document {
        Document::Array(elements) if elements.is_empty() => 0,
        Document::Array(_) => 2,
        Document::Object(_) => 3,
        _ => 1,
    });
    encoder.value(document, 0)?;
    if encoder.zeros.iter().any(|zeros| *zeros > 0) {
        encoder.zeros.iter().for_each(|zeros| encoder.out.extend(zeros.to_be_bytes()));
    }
    Ok(encoder.out)
}

struct Encoder {
    out: Vec<u8>,
    zeros: Vec<u16>,
}

impl Encoder {
    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
    }

    fn value(&mut self, document: &Document, depth: usize) -> Result<(), SqlError> {
        match document {
            Document::Null => self.out.push(NULL),
            Document::Boolean(value) => self.out.push(if *value { TRUE } else { FALSE }),
            Document::Text(text) => {
                self.out.push(STRING);
                self.text(text);
            }
            Document::Number(number) => self.number(number),
            _ if depth == DEPTH_MAX => return Err(super::too_deep()),
            Document::Array(elements) => {
                self.out.push(ARRAY);
                self.out.extend((elements.len() as u32).to_be_bytes());
                for element in elements {
                    self.value(element, depth + 1)?;
                }
            }
            Document::Object(members) => {
                self.out.push(OBJECT);
                self.out.extend((members.len() as u32).to_be_bytes());
                for (key, value) in members {
                    self.text(key);
                    self.value(value, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn number(&mut self, number: &str) {
        let (is_negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let all = format!("{whole}{part}");
        let behind_zeros = all.trim_start_matches('0');
        let digits = behind_zeros.trim_end_matches('0');
        let point = whole.len() as i64 - (all.len() - behind_zeros.len()) as i64;
        let shown = part.len() as i64 - if digits.is_empty() { 0 } else { (digits.len() as i64 - point).max(0) };
        self.zeros.push(shown.clamp(0, i64::from(u16::MAX)) as u16);
        self.out.push(NUMBER);
        if digits.is_empty() {
            return self.out.push(ZERO);
        }
        self.out.push(if is_negative { NEGATIVE } else { POSITIVE });
        let from = self.out.len();
        self.out.extend((point as i16 as u16 ^ 1 << 15).to_be_bytes());
        self.out.extend_from_slice(digits.as_bytes());
        self.out.push(0);
        if is_negative {
            self.out[from..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

pub(super) fn damaged(what: &str) -> SqlError {
    StoreError::Corrupt(format!("a jsonb value cannot be read: {what}").into()).into()
}

/// The part of a document's bytes that is compared. Errors: damaged.
pub(crate) fn compared(bytes: &[u8]) -> Result<&[u8], SqlError> {
    let mut decoder = Decoder { bytes: bytes.get(1..).unwrap_or_default(), numbers: 0 };
    decoder.value(0)?;
    Ok(&bytes[..bytes.len() - decoder.bytes.len()])
}

/// Reads a document. Errors: damaged.
pub(crate) fn decode(bytes: &[u8]) -> Result<Document, SqlError> {
    let (_, rest) = bytes.split_first().ok_or_else(|| damaged("it is empty"))?;
    let mut decoder = Decoder { bytes: rest, numbers: 0 };
    let mut document = decoder.value(0)?;
    if decoder.bytes.is_empty() {
        return Ok(document);
    }
    if decoder.bytes.len() != 2 * decoder.numbers {
        return Err(damaged("it is longer than its content"));
    }
    let mut zeros = decoder.bytes.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    show_zeros(&mut document, &mut zeros);
    Ok(document)
}

/// The most bytes that a document takes as text, or with a line for each part; it is not made for that. Errors: damaged.
pub(crate) fn written_at_most(bytes: &[u8], is_pretty: bool) -> Result<usize, SqlError> {
    let (_, rest) = bytes.split_first().ok_or_else(|| damaged("it is empty"))?;
    let mut decoder = Decoder { bytes: rest, numbers: 0 };
    let written = decoder.written(0, is_pretty)?;
    let zeros = decoder.bytes.chunks_exact(2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    // There may be a point in front of them.
    Ok(written + zeros.map(|zeros| zeros.min(super::DIGITS_MAX) + 1).sum::<usize>())
}

/// The most bytes that the parts of a document take in memory; they are not made for that. Errors: damaged.
pub(crate) fn parts_at_most(bytes: &[u8]) -> Result<usize, SqlError> {
    let (_, rest) = bytes.split_first().ok_or_else(|| damaged("it is empty"))?;
    let mut decoder = Decoder { bytes: rest, numbers: 0 };
    let mut no_zeros: &[u8] = &[];
    let parts = decoder.measure(0, &mut no_zeros)?.parts;
    // Zeros at the end of a number, and a point in front of them.
    let zeros = decoder.bytes.chunks_exact(2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    Ok(size_of::<Document>() + parts + zeros.map(|zeros| zeros.min(super::DIGITS_MAX) + 1).sum::<usize>())
}

/// The bytes of a text in quotes, with escapes.
fn escaped(text: &[u8]) -> usize {
    let each = text.iter().map(|byte| match byte {
        b'"' | b'\\' => 2_usize,
        control if *control < b' ' => 6,
        _ => 1,
    });
    2 + each.sum::<usize>()
}

/// Adds zeros to the ends of numbers.
fn show_zeros(document: &mut Document, zeros: &mut impl Iterator<Item = u16>) {
    match document {
        Document::Number(number) => {
            let zeros = usize::from(zeros.next().unwrap_or(0)).min(super::DIGITS_MAX);
            if zeros > 0 {
                let point = if number.contains('.') { "" } else { "." };
                *number = format!("{number}{point}{}", "0".repeat(zeros)).into_boxed_str();
            }
        }
        Document::Array(elements) => elements.iter_mut().for_each(|element| show_zeros(element, zeros)),
        Document::Object(members) => members.iter_mut().for_each(|(_, value)| show_zeros(value, zeros)),
        _ => {}
    }
}

/// What a value is known to be, without its parts.
#[derive(Clone, Copy, Default)]
pub(super) struct Measured {
    /// The bytes of its text, if no letter is written as an escape.
    pub(super) written: usize,
    /// Levels of arrays and objects.
    pub(super) levels: usize,
    /// The most bytes of its parts in memory, without the value itself.
    pub(super) parts: usize,
}

/// What the allocator adds to a text, at most.
const OF_ALLOCATOR: usize = 32;

/// Places of a list that grows by doubling.
fn places(count: usize) -> usize {
    if count == 0 { 0 } else { count.next_power_of_two().max(4) }
}

/// The zeros of the next number.
fn next_zeros(zeros: &mut &[u8]) -> usize {
    let all = *zeros;
    match all.split_first_chunk::<2>() {
        Some((two, rest)) => {
            *zeros = rest;
            usize::from(u16::from_be_bytes(*two)).min(super::DIGITS_MAX)
        }
        None => 0,
    }
}

/// Reads the bytes of values.
pub(super) struct Decoder<'a> {
    pub(super) bytes: &'a [u8],
    /// How many were read.
    pub(super) numbers: usize,
}

impl<'a> Decoder<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], SqlError> {
        let (head, rest) = self.bytes.split_at_checked(length).ok_or_else(|| damaged("it ends too early"))?;
        self.bytes = rest;
        Ok(head)
    }

    pub(super) fn byte(&mut self) -> Result<u8, SqlError> {
        Ok(self.take(1)?[0])
    }

    /// The bytes before an end, which is taken too.
    fn until(&mut self, end: u8) -> Result<&'a [u8], SqlError> {
        let length = self.bytes.iter().position(|byte| *byte == end).ok_or_else(|| damaged("it ends too early"))?;
        let found = self.take(length)?;
        self.take(1)?;
        Ok(found)
    }

    fn text(&mut self) -> Result<String, SqlError> {
        String::from_utf8(self.until(0)?.to_vec()).map_err(|_| damaged("text is not UTF-8"))
    }

    /// The number of parts, each of which has a byte at least.
    pub(super) fn count(&mut self) -> Result<usize, SqlError> {
        let four = self.take(4)?;
        let count = u32::from_be_bytes([four[0], four[1], four[2], four[3]]) as usize;
        if count > self.bytes.len() { Err(damaged("it ends too early")) } else { Ok(count) }
    }

    fn value(&mut self, depth: usize) -> Result<Document, SqlError> {
        Ok(match self.byte()? {
            NULL => Document::Null,
            FALSE => Document::Boolean(false),
            TRUE => Document::Boolean(true),
            STRING => Document::Text(self.text()?),
            NUMBER => {
                self.numbers += 1;
                Document::Number(self.number()?.into_boxed_str())
            }
            ARRAY | OBJECT if depth == DEPTH_MAX => return Err(damaged("it is too deep")),
            ARRAY => {
                let count = self.count()?;
                let mut elements = Vec::new();
                for _ in 0..count {
                    elements.push(self.value(depth + 1)?);
                }
                Document::Array(elements)
            }
            OBJECT => {
                let count = self.count()?;
                let mut members = Vec::new();
                for _ in 0..count {
                    members.push((self.text()?, self.value(depth + 1)?));
                }
                Document::Object(members)
            }
            _ => return Err(damaged("it has a part of an unknown kind")),
        })
    }

    /// The most bytes that a value takes as text, without zeros at the ends of its numbers.
    fn written(&mut self, depth: usize, is_pretty: bool) -> Result<usize, SqlError> {
        let line = |depth: usize| if is_pretty { 1 + super::INDENT * depth } else { 0 };
        Ok(match self.byte()? {
            NULL | FALSE | TRUE => 5,
            STRING => escaped(self.until(0)?),
            NUMBER => {
                self.numbers += 1;
                self.number_length(0)?
            }
            ARRAY | OBJECT if depth == DEPTH_MAX => return Err(damaged("it is too deep")),
            kind @ (ARRAY | OBJECT) => {
                let mut written = 2 + line(depth);
                for _ in 0..self.count()? {
                    if kind == OBJECT {
                        written += escaped(self.until(0)?) + 2;
                    }
                    written += 2 + line(depth + 1) + self.written(depth + 1, is_pretty)?;
                }
                written
            }
            _ => return Err(damaged("it has a part of an unknown kind")),
        })
    }

    /// Passes over a value, whose numbers have these zeros at their ends; its parts are not made.
    pub(super) fn measure(&mut self, depth: usize, zeros: &mut &[u8]) -> Result<Measured, SqlError> {
        let text = |written: usize, length: usize| Measured { written, levels: 0, parts: length + OF_ALLOCATOR };
        Ok(match self.byte()? {
            NULL | FALSE | TRUE => Measured { written: 5, ..Measured::default() },
            STRING => {
                let length = self.until(0)?.len();
                text(length + 2, length)
            }
            NUMBER => {
                self.numbers += 1;
                let length = self.number_length(next_zeros(zeros))?;
                text(length, length)
            }
            ARRAY | OBJECT if depth == DEPTH_MAX => return Err(damaged("it is too deep")),
            kind @ (ARRAY | OBJECT) => {
                let count = self.count()?;
                let place = if kind == OBJECT { size_of::<(String, Document)>() } else { size_of::<Document>() };
                let mut all = Measured { written: 2, levels: 0, parts: places(count) * place + OF_ALLOCATOR };
                for _ in 0..count {
                    let mut beside = 2;
                    if kind == OBJECT {
                        let key = self.until(0)?.len();
                        beside = key + 6;
                        all.parts += key + OF_ALLOCATOR;
                    }
                    let part = self.measure(depth + 1, zeros)?;
                    all.written += beside + part.written;
                    all.levels = all.levels.max(part.levels);
                    all.parts += part.parts;
                }
                Measured { levels: all.levels + 1, ..all }
            }
            _ => return Err(damaged("it has a part of an unknown kind")),
        })
    }

    /// Passes over a number, behind the byte that says that it is one. Returns its length as it is written, with some zeros at its end.
    fn number_length(&mut self, zeros: usize) -> Result<usize, SqlError> {
        let (flip, sign) = match self.byte()? {
            ZERO => return Ok(if zeros == 0 { 1 } else { 2 + zeros }),
            POSITIVE => (0, 0),
            NEGATIVE => (0xFF, 1),
            _ => return Err(damaged("a number has no sign")),
        };
        let place = self.take(2)?;
        let point = (u16::from_be_bytes([place[0] ^ flip, place[1] ^ flip]) ^ 1 << 15) as i16;
        let digits = self.until(flip)?.len();
        let far = usize::from(point.unsigned_abs());
        let (length, is_whole) = match point {
            // A zero and a point are in front.
            ..=0 => (2 + far + digits, false),
            _ if far >= digits => (far, true),
            _ => (digits + 1, false),
        };
        Ok(sign + length + zeros + usize::from(is_whole && zeros > 0))
    }

    fn number(&mut self) -> Result<String, SqlError> {
        let sign = self.byte()?;
        let flip = match sign {
            ZERO => return Ok("0".to_owned()),
            POSITIVE => 0,
            NEGATIVE => 0xFF,
            _ => return Err(damaged("a number has no sign")),
        };
        let place = self.take(2)?;
        let point = (u16::from_be_bytes([place[0] ^ flip, place[1] ^ flip]) ^ 1 << 15) as i16;
        let digits: Vec<u8> = self.until(flip)?.iter().map(|byte| byte ^ flip).collect();
        let digits = String::from_utf8(digits).map_err(|_| damaged("a number has no digits"))?;
        let sensible = usize::from(point.unsigned_abs()) <= super::DIGITS_MAX && digits.len() <= super::DIGITS_MAX;
        if !sensible || digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(damaged("a number has no digits"));
        }
        let sign = if sign == NEGATIVE { "-" } else { "" };
        let point = i32::from(point);
        Ok(if point <= 0 {
            format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize))
        } else if point as usize >= digits.len() {
            format!("{sign}{digits}{}", "0".repeat(point as usize - digits.len()))
        } else {
            let (whole, part) = digits.split_at(point as usize);
            format!("{sign}{whole}.{part}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn documents_are_in_postgresqls_order() {
        // The order of PostgreSQL 15.18.
        let ordered = [
            "[]",
            "null",
            "\"\"",
            "\"a\"",
            "\"ab\"",
            "\"b\"",
            "-100",
            "-99.5",
            "-1.5",
            "-1",
            "-0.01",
            "0",
            "0.001",
            "0.01",
            "1",
            "1.05",
            "1.5",
            "2",
            "10",
            "99.5",
            "100",
            "false",
            "true",
            "[null]",
            "[\"a\"]",
            "[1]",
            "[true]",
            "[[]]",
            "[[1]]",
            "[{}]",
            "[1, 1]",
            "[1, 2]",
            "[1, 2, 3]",
            "{}",
            "{\"a\": null}",
            "{\"a\": 1}",
            "{\"a\": 2}",
            "{\"b\": 0}",
            "{\"a\": 1, \"b\": 1}",
            "{\"a\": 1, \"c\": 0}",
            "{\"a\": 2, \"b\": 0}",
        ];
        let bytes = |text: &str| encode(&parse(text).expect(text)).expect(text);
        for pair in ordered.windows(2) {
            assert!(bytes(pair[0]) < bytes(pair[1]), "{} < {}", pair[0], pair[1]);
        }
        for (one, other) in [("1.0", "1"), ("[0.00, 2.50]", "[0, 2.5]"), ("-0", "0.0")] {
            assert_eq!(compared(&bytes(one)).expect(one), compared(&bytes(other)).expect(other));
            assert_eq!(decode(&bytes(one)).expect(one), parse(one).expect(one));
        }
    }

    #[test]
    fn the_layout_is_the_one_in_the_golden_text() {
        let hex = |text: &str| {
            let bytes = encode(&parse(text).expect(text)).expect(text);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hex("null"), "0101");
        assert_eq!(hex("[]"), "001000000000");
        assert_eq!(hex("-12.50"), "010301".to_owned() + "7ffdcecdcaff" + "0001");
        assert_eq!(hex("{\"a\": [true, \"x\"], \"bb\": 3}"), "0311000000026100100000000205027800626200030380013300");
    }

    /// Bytes of a document and of its parts in memory.
    fn taken_by(document: &Document) -> usize {
        let parts = match document {
            Document::Null | Document::Boolean(_) => 0,
            Document::Number(number) => number.len(),
            Document::Text(text) => text.capacity(),
            Document::Array(elements) => {
                let free = elements.capacity() - elements.len();
                free * size_of::<Document>() + elements.iter().map(taken_by).sum::<usize>()
            }
            Document::Object(members) => {
                let free = members.capacity() - members.len();
                let each = members.iter().map(|(key, value)| size_of::<String>() + key.capacity() + taken_by(value));
                free * size_of::<(String, Document)>() + each.sum::<usize>()
            }
        };
        size_of::<Document>() + parts
    }

    #[test]
    fn a_document_is_known_to_take_as_many_bytes_as_it_is_written_with() {
        for text in [
            "null",
            "[]",
            "{}",
            "[1e999, -1e-900, 0, -12.50, 0.000, 1e3]",
            "{\"a\\n\\u0001\": [\"\\\"\\\\\", true, [[{}]]], \"b\": {\"c\": false}}",
            "[[[[[[[[[[1, 2], 3]]]]]]]]]",
        ] {
            let document = parse(text).expect(text);
            let bytes = encode(&document).expect(text);
            for (is_pretty, written) in [(false, document.text()), (true, document.pretty())] {
                let written = written.expect(text).len();
                let most = written_at_most(&bytes, is_pretty).expect(text);
                assert!(written <= most && most <= 2 * written + 8, "{text} takes {written}, at most {most}");
            }
            let (parts, most) = (taken_by(&document), parts_at_most(&bytes).expect(text));
            assert!(parts <= most && most <= 4 * parts + 64, "{text} takes {parts}, at most {most}");
            let of_text = super::super::parts_of_text_at_most(text);
            assert!(parts <= of_text + size_of::<Document>(), "{text} takes {parts}, at most {of_text}");
        }
    }

    #[test]
    fn any_bytes_are_a_document_or_an_error() {
        let seed = std::process::id().into();
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let whole =
            encode(&parse(r#"{"a": [1.50, -2e3, null, {"b": "c"}], "d": true}"#).expect("it is one")).expect("it fits");
        for _ in 0..5000 {
            let mut bad = whole.clone();
            let at = random.usize(..bad.len());
            bad[at] = random.u8(..);
            bad.truncate(bad.len() - random.usize(..2) * random.usize(..bad.len()));
            if let Ok(document) = decode(&bad) {
                let _ = document.text();
            }
            let _ = compared(&bad);
            let _ = written_at_most(&bad, true);
            let _ = parts_at_most(&bad);
        }
    }
}
