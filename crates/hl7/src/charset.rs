//! Character sets: from the bytes of a value to text, and back.
//!
//! MSH-18 names them from HL7 table 0211; senders also write IANA names, or nothing, or another name than that of the
//! charset they use. So names are read liberally, and decoding never fails. It tries, in this order:
//!
//! 1. the charset MSH-18 declares, or else the one configured;
//! 2. UTF-8, whose rules random bytes of another charset almost never meet;
//! 3. ISO 8859-1, in which every byte is a character.
//!
//! In some of them a byte below 0x80 may be the second half of a character and look like a delimiter ([`Charset::splits`]
//! is false): a message in one of those is split in a transcript, see [`Reading`](crate::Reading).
//!
//! Not supported: UTF-16 and UTF-32 by name, which MLLP cannot carry (a `Reading` detects UTF-16 by its bytes), and
//! switching sets inside a value with `\C..\`, `\M..\`.

mod iso2022;
mod suspect;

use std::borrow::Cow;

use encoding_rs::{
    BIG5, EUC_KR, Encoding, GB18030, GBK, ISO_2022_JP, SHIFT_JIS, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252,
    X_USER_DEFINED,
};
use thiserror::Error;

pub(crate) use suspect::suspect;

use crate::segment::parts;
use crate::{Delimiters, escape};

/// A charset to read and write values in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charset {
    encoding: &'static Encoding,
    repertoire: Repertoire,
}

/// How much of its encoding a charset may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repertoire {
    /// All.
    Full,
    /// Not the bytes 0x80 to 0x9F: the web's windows-1252 stands in for ISO 8859-1, and has letters there.
    Iso8859,
    /// Bytes below 0x80.
    Ascii,
}

/// A character the charset does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("character '{character}' cannot be written in {charset}; declare UNICODE UTF-8 in MSH-18 or replace it")]
pub struct EncodeError {
    /// The first such character.
    pub character: char,
    /// The charset's name.
    pub charset: &'static str,
}

/// HL7 table 0211 and what senders write for it, in capitals and without blanks and punctuation.
const NAMES: &[(&str, Charset)] = &[
    ("UNICODE", Charset::UTF_8), // meant UCS-2 until 2.3.1; over MLLP it can only be UTF-8
    ("UNICODEUTF8", Charset::UTF_8),
    ("UTF8", Charset::UTF_8),
    ("ISOIR6", Charset::ASCII),
    ("ASCII", Charset::ASCII),
    ("USASCII", Charset::ASCII),
    ("ISOIR100", Charset::ISO_8859_1),
    ("ISOIR13", Charset::ISO_2022_JP),
    ("ISOIR14", Charset::ISO_2022_JP),
    ("ISOIR87", Charset::ISO_2022_JP),
    ("ISOIR159", Charset::ISO_2022_JP),
    ("JISX02011976", Charset::ISO_2022_JP),
    ("JISX02081990", Charset::ISO_2022_JP),
    ("JISX0202", Charset::ISO_2022_JP),
    ("JAS2020", Charset::ISO_2022_JP),
    ("GB180302000", Charset::GB_18030),
    ("KSX1001", Charset::EUC_KR),
    ("BIG5", Charset::BIG_5),
    ("CP932", Charset::SHIFT_JIS),
    ("CP936", Charset::GBK),
    ("CP949", Charset::EUC_KR),
    ("UHC", Charset::EUC_KR),
    ("CP950", Charset::BIG_5),
];

/// Sets of several bytes a character that are known by name and cannot be read: their bytes must not be read as another
/// set.
const UNSUPPORTED: &[&str] =
    &["JOHAB", "CP1361", "MS1361", "CNS11643", "CNS116431992", "EUCTW", "ISO2022KR", "ISO2022CN", "HZGB2312"];

/// Encodings in which a byte below 0x80 may be a part of a character. (EUC-KR, that is UHC, is none of them: its second
/// bytes below 0x80 are letters, and a delimiter is punctuation.)
const COLLIDING: &[&Encoding] = &[SHIFT_JIS, GBK, GB18030, BIG5, ISO_2022_JP, UTF_16LE, UTF_16BE];

/// What stands for the control that begins an escape sequence of ISO 2022.
pub(crate) const ESC: u8 = 0x1B;

impl Charset {
    /// The default: most senders that declare no charset send UTF-8.
    pub const UTF_8: Charset = Charset { encoding: UTF_8, repertoire: Repertoire::Full };
    /// ISO 8859-1. Reads 0x80 to 0x9F as windows-1252 does, since that is what such bytes were; does not write them.
    pub const ISO_8859_1: Charset = Charset { encoding: WINDOWS_1252, repertoire: Repertoire::Iso8859 };
    /// ASCII, which MSH-18 means when empty.
    pub const ASCII: Charset = Charset { encoding: WINDOWS_1252, repertoire: Repertoire::Ascii };
    /// Shift_JIS, as Windows-31J has it.
    pub const SHIFT_JIS: Charset = Charset { encoding: SHIFT_JIS, repertoire: Repertoire::Full };
    /// GB 18030, of which GBK and GB 2312 are parts.
    pub const GB_18030: Charset = Charset { encoding: GB18030, repertoire: Repertoire::Full };
    /// Big5 with the characters of Hong Kong.
    pub const BIG_5: Charset = Charset { encoding: BIG5, repertoire: Repertoire::Full };
    /// JIS in seven bits, switched by escape sequences: JIS X 0201, 0208 and 0212.
    pub const ISO_2022_JP: Charset = Charset { encoding: ISO_2022_JP, repertoire: Repertoire::Full };
    const EUC_KR: Charset = Charset { encoding: EUC_KR, repertoire: Repertoire::Full };
    const GBK: Charset = Charset { encoding: GBK, repertoire: Repertoire::Full };
    pub(crate) const UTF_16_LE: Charset = Charset { encoding: UTF_16LE, repertoire: Repertoire::Full };
    pub(crate) const UTF_16_BE: Charset = Charset { encoding: UTF_16BE, repertoire: Repertoire::Full };

    /// The charset of a name: HL7 table 0211 (`8859/15`, `UNICODE UTF-8`, `ISO IR87`) or IANA (`iso-8859-15`), in any
    /// case. None: not known, or not supported.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Charset> {
        if let Some((_, charset)) = NAMES.iter().find(|(known, _)| plain(name).eq(known.bytes())) {
            return Some(*charset);
        }
        let plain: String = plain(name).map(char::from).collect();
        let label = match plain.strip_prefix("ISO").unwrap_or(&plain).strip_prefix("8859") {
            Some(part) => format!("iso-8859-{part}"),
            None => String::from_utf8_lossy(name).into_owned(),
        };
        let encoding = Encoding::for_label_no_replacement(label.as_bytes())?;
        if (!encoding.is_ascii_compatible() && encoding != ISO_2022_JP) || encoding == X_USER_DEFINED {
            return None; // UTF-16
        }
        let repertoire = if label.starts_with("iso-8859-") { Repertoire::Iso8859 } else { Repertoire::Full };
        Some(Charset { encoding, repertoire })
    }

    /// The charset that a value of MSH-18 declares; see [`declared`](Charset::declared).
    pub(crate) fn declared_by(field: &[u8], delimiters: Delimiters) -> Option<Charset> {
        if field.is_empty() {
            return None;
        }
        let mut first = None;
        for charset in parts(field, delimiters.repetition).filter_map(Charset::named) {
            if charset.encoding == ISO_2022_JP {
                return Some(charset);
            }
            first = first.or(Some(charset));
        }
        first
    }

    /// The name in a value of MSH-18 that is known and cannot be read, in capitals and without punctuation.
    pub(crate) fn unsupported(field: &[u8], delimiters: Delimiters) -> Option<&'static str> {
        parts(field, delimiters.repetition)
            .find_map(|name| UNSUPPORTED.iter().find(|known| plain(name).eq(known.bytes())).copied())
    }

    /// Whether a message in it can be split at its delimiters as bytes: a byte below 0x80 is always ASCII, or no
    /// punctuation.
    #[must_use]
    pub fn splits(self) -> bool {
        !COLLIDING.contains(&self.encoding)
    }

    pub(crate) fn is_utf16(self) -> bool {
        [UTF_16LE, UTF_16BE].contains(&self.encoding)
    }

    /// Whether two names mean one encoding, or one that holds the other.
    pub(crate) fn reads_as(self, other: Charset) -> bool {
        let whole = |encoding| if encoding == GBK { GB18030 } else { encoding };
        whole(self.encoding) == whole(other.encoding)
    }

    /// The value of MSH-18 that declares it.
    pub(crate) fn declaration(self, delimiters: Delimiters) -> Vec<u8> {
        // ISO 2022 begins in ASCII, which is the empty first name; the sets that may be switched to follow.
        let before = delimiters.repetition.filter(|_| self.encoding == ISO_2022_JP);
        before.into_iter().chain(self.name().bytes()).collect()
    }

    /// Its name in the terms of HL7 table 0211, or of IANA where that has none.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.repertoire, self.encoding.name()) {
            (Repertoire::Ascii, _) => "ASCII",
            (_, "UTF-8") => "UNICODE UTF-8",
            (Repertoire::Iso8859, "windows-1252") => "8859/1",
            (Repertoire::Iso8859, "windows-1254") => "8859/9",
            (Repertoire::Iso8859, "windows-874") => "8859/11",
            (_, "ISO-8859-2") => "8859/2",
            (_, "ISO-8859-3") => "8859/3",
            (_, "ISO-8859-4") => "8859/4",
            (_, "ISO-8859-5") => "8859/5",
            (_, "ISO-8859-6") => "8859/6",
            (_, "ISO-8859-7") => "8859/7",
            (_, "ISO-8859-8") => "8859/8",
            (_, "ISO-8859-15") => "8859/15",
            (_, "gb18030") => "GB 18030-2000",
            (_, "Big5") => "BIG-5",
            (_, "EUC-KR") => "KS X 1001",
            (_, "ISO-2022-JP") => "ISO IR87",
            (_, name) => name,
        }
    }

    /// Text from bytes of this charset; bytes that are not valid in it are read as UTF-8, and if they are not UTF-8
    /// either, as ISO 8859-1.
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        if bytes.is_ascii() && self.encoding != ISO_2022_JP {
            // The bytes are known to be UTF-8; this call checks them once more, because it is the safe conversion.
            return String::from_utf8_lossy(bytes);
        }
        let own = if self.repertoire == Repertoire::Ascii { None } else { self.read(bytes) };
        own.or_else(|| Charset::UTF_8.read(bytes)).unwrap_or_else(|| WINDOWS_1252.decode_without_bom_handling(bytes).0)
    }

    /// Text from bytes; nothing where they are not of this charset.
    #[must_use]
    pub fn read(self, bytes: &[u8]) -> Option<Cow<'_, str>> {
        if self.encoding == ISO_2022_JP {
            return iso2022::decode(bytes).map(Cow::Owned);
        }
        if self.repertoire == Repertoire::Ascii && !bytes.is_ascii() {
            return None;
        }
        self.encoding.decode_without_bom_handling_and_without_replacement(bytes)
    }

    /// Bytes from text, to be escaped and written into a message that declares this charset.
    ///
    /// # Errors
    /// [`EncodeError`] with the first character the charset does not have; nothing is replaced silently.
    pub fn encode(self, text: &str) -> Result<Cow<'_, [u8]>, EncodeError> {
        if let Some(bytes) = self.write(text) {
            return Ok(bytes);
        }
        let mut buffer = [0; 4];
        match text.chars().find(|character| self.write(character.encode_utf8(&mut buffer)).is_none()) {
            Some(character) => Err(EncodeError { character, charset: self.name() }),
            None => unreachable!("a text of which each character can be written can be written"),
        }
    }

    /// Bytes from text, with `replacement` for each character the charset does not have; `?` where it does not have a
    /// character of that either.
    #[must_use]
    pub fn encode_or<'t>(self, text: &'t str, replacement: &str) -> Cow<'t, [u8]> {
        if let Some(bytes) = self.write(text) {
            return bytes;
        }
        let replacement = if self.write(replacement).is_some() { replacement } else { "?" };
        let mut buffer = [0; 4];
        let mut kept = String::with_capacity(text.len());
        for character in text.chars() {
            let can = self.write(character.encode_utf8(&mut buffer)).is_some();
            kept.push_str(if can { character.encode_utf8(&mut buffer) } else { replacement });
        }
        let bytes = self.write(&kept).expect("a text of which each character can be written can be written");
        Cow::Owned(bytes.into_owned())
    }

    /// Bytes that read back as this text; nothing where there are none. The web's encoders, which these are, write some
    /// characters as others: in Shift_JIS a yen sign as the byte of the backslash, which separates.
    fn write(self, text: &str) -> Option<Cow<'_, [u8]>> {
        if self.encoding == ISO_2022_JP {
            let bytes = iso2022::encode(text)?;
            return self.read(&bytes).is_some_and(|read| read == text).then_some(Cow::Owned(bytes));
        }
        let (bytes, _, unmappable) = self.encoding.encode(text);
        if unmappable || !self.may_write(&bytes) {
            return None;
        }
        let is_exact = self.encoding == UTF_8 || text.is_ascii() || self.read(&bytes).is_some_and(|read| read == text);
        is_exact.then_some(bytes)
    }

    /// A raw value as text to show: unescaped, then decoded, since `\Xhh\` holds bytes of the charset.
    #[must_use]
    pub fn text(self, raw: &[u8], delimiters: Delimiters) -> Cow<'_, str> {
        match escape::unescape(raw, delimiters) {
            Cow::Borrowed(raw) => self.decode(raw),
            Cow::Owned(bytes) => Cow::Owned(self.decode(&bytes).into_owned()),
        }
    }

    /// The parts of a line between separators that are characters of their own, not halves of others. Each begins and ends in
    /// ASCII, where the set has escape sequences.
    pub(crate) fn values(self, line: &[u8], separates: impl Fn(u8) -> bool) -> Vec<Cow<'_, [u8]>> {
        let (mut values, mut start, mut at) = (Vec::new(), 0, 0);
        let mut set = iso2022::Set::Ascii;
        while at < line.len() {
            if self.encoding == ISO_2022_JP
                && let Some((begun, len)) = iso2022::designated(&line[at..])
            {
                set = begun;
                at += len;
                continue;
            }
            let len = if set == iso2022::Set::Ascii { self.character(&line[at..]) } else { set.character() };
            if len == 1 && set == iso2022::Set::Ascii && separates(line[at]) {
                values.push(Cow::Borrowed(&line[start..at]));
                start = at + 1;
            }
            at += len;
        }
        let mut last = Cow::Borrowed(&line[start..]);
        if set != iso2022::Set::Ascii {
            last.to_mut().extend_from_slice(iso2022::Set::Ascii.sequence());
        }
        values.push(last);
        values
    }

    /// How many bytes the character at the beginning of a line has.
    fn character(self, line: &[u8]) -> usize {
        let two = |leads: fn(u8) -> bool| if leads(line[0]) { 2 } else { 1 };
        if self.encoding == SHIFT_JIS {
            two(|byte| matches!(byte, 0x81..=0x9F | 0xE0..=0xFC))
        } else if [GBK, GB18030].contains(&self.encoding) {
            if matches!(line, [0x81..=0xFE, b'0'..=b'9', ..]) { 4 } else { two(|byte| matches!(byte, 0x81..=0xFE)) }
        } else if self.encoding == BIG5 {
            two(|byte| matches!(byte, 0x81..=0xFE))
        } else {
            1
        }
    }

    fn may_write(self, bytes: &[u8]) -> bool {
        match self.repertoire {
            Repertoire::Full => true,
            Repertoire::Iso8859 => !bytes.iter().any(|b| (0x80..=0x9F).contains(b)),
            Repertoire::Ascii => bytes.is_ascii(),
        }
    }
}

/// A name in capitals, without blanks and punctuation.
fn plain(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_uppercase)
}
