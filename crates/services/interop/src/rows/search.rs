//! The search keys of a message, and its identity for duplicates: read from MSH and the first PID in one pass.
//!
//! Nearly every value is plain ASCII without an escape, and is its own text; only other values are decoded by the
//! message's charset and unescaped. Bytes that are no message have no search keys.

use std::borrow::Cow;

use crc_fast::{CrcAlgorithm, checksum};
use hl7::charset::Charset;
use hl7::{Message, Segment};

use super::TEXT_BYTES_MAX;

/// Repetitions of PID-3 that are indexed; a patient with more numbers is found by these.
const NUMBERS_MAX: usize = 16;

/// Which index a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextIndex {
    /// MSH-10.
    Control,
    /// PID-3.1, one call for each repetition.
    Mrn,
    /// MSH-9.1 and MSH-9.2, as `ADT^A01`.
    Type,
}

/// Gives `each` every text that the message is found by; empty ones are left out.
pub fn texts(message: &Message<'_>, mut each: impl FnMut(TextIndex, &str)) {
    let mut texts = Texts { message, charset: None };
    let header = message.header();
    let delimiters = message.delimiters();
    let control = texts.of(header.field(10).bytes());
    give(&mut each, TextIndex::Control, &control);
    let mut kind = parts(header.field(9).bytes(), delimiters.component);
    let (first, event) = (texts.of(kind.next().unwrap_or_default()), texts.of(kind.next().unwrap_or_default()));
    give(&mut each, TextIndex::Type, &kind_text(&first, &event));
    if let Some(patient) = patient(message) {
        for number in parts(patient.field(3).bytes(), delimiters.repetition).take(NUMBERS_MAX) {
            let number = parts(number, delimiters.component).next().unwrap_or_default();
            let number = texts.of(number);
            give(&mut each, TextIndex::Mrn, &number);
        }
    }
}

/// How the index of types writes a type and its event.
pub fn kind_text<'a>(kind: &'a str, event: &str) -> Cow<'a, str> {
    if event.is_empty() { Cow::Borrowed(kind) } else { Cow::Owned(format!("{kind}^{event}")) }
}

fn give(each: &mut impl FnMut(TextIndex, &str), index: TextIndex, text: &str) {
    if !text.is_empty() {
        each(index, &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    }
}

fn patient<'a>(message: &Message<'a>) -> Option<Segment<'a>> {
    let separator = message.delimiters().field;
    message.segments().find(|s| s.raw().strip_prefix(b"PID").is_some_and(|rest| rest.first() == Some(&separator)))
}

fn parts(bytes: &[u8], separator: Option<u8>) -> impl Iterator<Item = &[u8]> {
    bytes.split(move |byte| Some(*byte) == separator)
}

struct Texts<'m, 'a> {
    message: &'m Message<'a>,
    charset: Option<Charset>,
}

impl<'a> Texts<'_, 'a> {
    fn of(&mut self, raw: &'a [u8]) -> Cow<'a, str> {
        let delimiters = self.message.delimiters();
        let escaped = delimiters.escape.is_some_and(|escape| raw.contains(&escape));
        match std::str::from_utf8(raw) {
            Ok(text) if raw.is_ascii() && !escaped => Cow::Borrowed(text),
            _ => {
                let message = self.message;
                let charset = || message.charset().unwrap_or(Charset::UTF_8);
                self.charset.get_or_insert_with(charset).text(raw, delimiters)
            }
        }
    }
}

/// The identity of a sender's message: service, MSH-3, MSH-4 and MSH-10, as one number. The same in every release,
/// since rows hold it: CRC-64/NVME over the four, each behind its length (u32, little endian).
pub fn identity(service: &str, message: &Message<'_>) -> u64 {
    let header = message.header();
    let mut bytes = Vec::with_capacity(96);
    for part in [service.as_bytes(), header.field(3).bytes(), header.field(4).bytes(), header.field(10).bytes()] {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    checksum(CrcAlgorithm::Crc64Nvme, &bytes)
}

/// The identity of a content: CRC-64/NVME of the message as received.
pub fn content(raw: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(raw: &[u8]) -> Vec<(TextIndex, String)> {
        let mut all = Vec::new();
        texts(&Message::parse(raw).expect("a message"), |index, text| all.push((index, text.to_owned())));
        all
    }

    #[test]
    fn a_message_is_found_by_its_control_id_type_and_every_number_of_its_first_patient() {
        let raw = b"MSH|^~\\&|A|B|||1||ADT^A01^ADT_A01|C1|P|2.5\rEVN|A01\rPID|1||7^^^X~8^^^Y||N\rPID|2||9\r";
        let expected =
            [(TextIndex::Control, "C1"), (TextIndex::Type, "ADT^A01"), (TextIndex::Mrn, "7"), (TextIndex::Mrn, "8")];
        assert_eq!(found(raw), expected.map(|(index, text)| (index, text.to_owned())));
    }

    #[test]
    fn texts_are_what_a_person_types_whatever_the_delimiters_and_the_charset() {
        let raw = b"MSH#*%!+#A#B###1##ACK#a!F!b#P#2.5######8859/1\nPID#1##\xfc\xdf*x%%\n";
        let expected = [(TextIndex::Control, "a#b"), (TextIndex::Type, "ACK"), (TextIndex::Mrn, "\u{fc}\u{df}")];
        assert_eq!(found(raw), expected.map(|(index, text)| (index, text.to_owned())));
    }

    #[test]
    fn what_is_empty_or_absent_is_not_indexed() {
        assert_eq!(found(b"MSH|^~\\&\rPIDX|1||7\rPID\r"), []);
        assert_eq!(found(b"MSH|^~\\&|||||||^A01\r"), [(TextIndex::Type, "^A01".to_owned())]);
    }

    #[test]
    fn parts_of_an_identity_do_not_run_into_each_other() {
        let of = |service: &str, raw: &str| identity(service, &Message::parse(raw.as_bytes()).expect("a message"));
        let all = [
            of("in", "MSH|^~\\&|A|B||||||1\r"),
            of("in", "MSH|^~\\&|AB|||||||1\r"),
            of("in", "MSH|^~\\&|A||||||||1\r"),
            of("inA", "MSH|^~\\&||B||||||1\r"),
            of("in", "MSH|^~\\&|A|B||||||2\r"),
        ];
        let mut distinct = all.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(
            checksum(CrcAlgorithm::Crc64Nvme, b"123456789"),
            0xae8b_1486_0a79_9888,
            "the catalogue's check value"
        );
    }
}
