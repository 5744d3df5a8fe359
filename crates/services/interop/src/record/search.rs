//! [`SearchKeys`]: what a message is found and recognised by. They are read once, when the message is received, from its
//! header and its first PID; its record and its row hold them, so that nothing parses the message again to index it, to
//! show it or to remove it.
//!
//! ```text
//!   u64 identity    u64 content    u16 length + texts, each    u8 index (0 control id, 1 number, 2 type)
//!                                                              u8 length + text, 1 to TEXT_BYTES_MAX bytes of UTF-8
//! ```
//! Little endian. Nearly every value is plain ASCII without an escape, and is its own text; only other values are decoded
//! by the message's charset and unescaped. Bytes that are no message have no texts, and identity 0.

use std::borrow::Cow;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use hl7::charset::Charset;
use hl7::{Message, Reading, Segment};

/// Longest text in a key, in bytes; more is cut on a character boundary. Names and numbers of HL7 are far shorter.
pub const TEXT_BYTES_MAX: usize = 200;

/// Repetitions of PID-3 that are indexed; a patient with more numbers is found by these.
const NUMBERS_MAX: usize = 16;

/// Which index a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextIndex {
    /// MSH-10.
    Control = 0,
    /// PID-3.1, one call for each repetition.
    Mrn = 1,
    /// MSH-9.1 and MSH-9.2, as `ADT^A01`.
    Type = 2,
}

impl TextIndex {
    fn of(code: u8) -> Option<TextIndex> {
        [TextIndex::Control, TextIndex::Mrn, TextIndex::Type].into_iter().find(|index| *index as u8 == code)
    }
}

/// See the head comment of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchKeys {
    /// Identity of a sender's message, for duplicates: service, MSH-3, MSH-4 and MSH-10, as one number; 0 for bytes that
    /// are no message.
    pub identity: u64,
    /// Checksum of the message as received.
    pub content: u64,
    /// As written; checked.
    texts: Bytes,
}

impl SearchKeys {
    /// Those of a message that came in through `service` as `raw`; none where these bytes are no message.
    pub fn of(service: &str, message: Option<&Message<'_>>, raw: &[u8]) -> SearchKeys {
        let mut written = Vec::with_capacity(64);
        if let Some(message) = message {
            texts(message, |index, text| {
                written.extend_from_slice(&[index as u8, text.len() as u8]);
                written.extend_from_slice(text.as_bytes());
            });
        }
        let identity = message.map_or(0, |message| identity(service, message));
        SearchKeys { identity, content: content(raw), texts: written.into() }
    }

    /// The same of bytes that are not parsed yet, in `charset` where they declare none.
    pub fn read(service: &str, raw: &[u8], charset: Option<Charset>) -> SearchKeys {
        let reading = Reading::lenient(raw, charset);
        SearchKeys::of(service, reading.message().ok().as_ref(), raw)
    }

    /// As stored; none where the texts are not as written.
    pub(super) fn stored(identity: u64, content: u64, texts: Bytes) -> Option<SearchKeys> {
        each_text(&texts, |_, _| ())?;
        Some(SearchKeys { identity, content, texts })
    }

    /// Gives `each` every text that the message is found by, none of them empty.
    pub fn texts(&self, each: impl FnMut(TextIndex, &str)) {
        each_text(&self.texts, each).expect("they were checked");
    }

    /// Appends them as they are stored.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.identity.to_le_bytes());
        out.extend_from_slice(&self.content.to_le_bytes());
        let bytes = u16::try_from(self.texts.len()).expect("NUMBERS_MAX + 2 texts of TEXT_BYTES_MAX");
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(&self.texts);
    }
}

/// The texts as written; none where they are not.
pub(crate) fn each_text(mut written: &[u8], mut each: impl FnMut(TextIndex, &str)) -> Option<()> {
    while let [index, length, rest @ ..] = written {
        let index = TextIndex::of(*index)?;
        let length = usize::from(*length);
        let (text, rest) = rest.split_at_checked(length).filter(|_| (1..=TEXT_BYTES_MAX).contains(&length))?;
        each(index, std::str::from_utf8(text).ok()?);
        written = rest;
    }
    written.is_empty().then_some(())
}

/// Gives `each` every text that the message is found by; empty ones are left out.
fn texts(message: &Message<'_>, mut each: impl FnMut(TextIndex, &str)) {
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
fn kind_text<'a>(kind: &'a str, event: &str) -> Cow<'a, str> {
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
fn identity(service: &str, message: &Message<'_>) -> u64 {
    let header = message.header();
    let mut bytes = Vec::with_capacity(96);
    for part in [service.as_bytes(), header.field(3).bytes(), header.field(4).bytes(), header.field(10).bytes()] {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    checksum(CrcAlgorithm::Crc64Nvme, &bytes)
}

/// The identity of a content: CRC-64/NVME of the message as received.
pub(crate) fn content(raw: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(raw: &[u8]) -> Vec<(TextIndex, String)> {
        let mut all = Vec::new();
        SearchKeys::read("in", raw, None).texts(|index, text| all.push((index, text.to_owned())));
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
    fn texts_are_cut_so_that_each_fits_a_key_and_numbers_are_bounded() {
        let numbers: Vec<String> = (0..100).map(|n| format!("{n:0>300}")).collect();
        let raw = format!("MSH|^~\\&|||||||ADT|{}\rPID|||{}\r", "\u{e4}".repeat(300), numbers.join("~"));
        let keys = SearchKeys::read("in", raw.as_bytes(), None);
        let mut lengths = Vec::new();
        keys.texts(|_, text| lengths.push(text.len()));
        assert_eq!(lengths, [vec![200, 3], vec![200; NUMBERS_MAX]].concat());
    }

    #[test]
    fn written_texts_are_read_as_they_were_and_others_are_refused() {
        let keys = SearchKeys::read("in", b"MSH|^~\\&|A|B|||1||ADT^A01|C1|P|2.5\rPID|1||7~8\r", None);
        let mut written = Vec::new();
        keys.write(&mut written);
        let texts = Bytes::copy_from_slice(&written[18..]);
        assert_eq!(SearchKeys::stored(keys.identity, keys.content, texts.clone()), Some(keys));
        let long = [&[0, 201][..], &[b'a'; 201]].concat();
        for wrong in [&texts[..texts.len() - 1], &[0], &[3, 1, b'a'], &[0, 0], &[0, 2, 0xC3, 0x28], &long] {
            assert_eq!(SearchKeys::stored(0, 0, Bytes::copy_from_slice(wrong)), None, "{wrong:?}");
        }
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
