//! Character sets: from the bytes of a value to text, and back.
//!
//! MSH-18 names them from HL7 table 0211; senders also write IANA names, or nothing, or something else than they
//! send. So names are read liberally, and decoding never fails. It tries, in this order:
//!
//! 1. the charset MSH-18 declares, or else the one configured;
//! 2. UTF-8, whose rules random bytes of another charset almost never meet;
//! 3. ISO 8859-1, in which every byte is a character.
//!
//! Not supported: UTF-16 and UTF-32, which MLLP cannot carry, and switching sets inside a value with `\C..\`, `\M..\`.
//! ISO 2022 (JIS) values decode, but see the crate's essay on separators in them.

use std::borrow::Cow;

use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, WINDOWS_1252};
use thiserror::Error;

use crate::segment::parts;
use crate::{Delimiters, Message, escape};

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
const NAMES: &[(&str, &str)] = &[
    ("UNICODE", "utf-8"), // meant UCS-2 until 2.3.1; over MLLP it can only be UTF-8
    ("UNICODEUTF8", "utf-8"),
    ("UTF8", "utf-8"),
    ("ISOIR6", "us-ascii"),
    ("ASCII", "us-ascii"),
    ("USASCII", "us-ascii"),
    ("ISOIR100", "iso-8859-1"),
    ("ISOIR14", "iso-2022-jp"),
    ("ISOIR87", "iso-2022-jp"),
    ("ISOIR159", "iso-2022-jp"),
    ("JISX02011976", "iso-2022-jp"),
    ("JISX02081990", "iso-2022-jp"),
    ("JISX0202", "iso-2022-jp"),
    ("JAS2020", "iso-2022-jp"),
    ("GB180302000", "gb18030"),
    ("KSX1001", "euc-kr"),
    ("BIG5", "big5"),
];

impl Charset {
    /// The default: what senders that declare nothing mostly send.
    pub const UTF_8: Charset = Charset { encoding: UTF_8, repertoire: Repertoire::Full };
    /// ISO 8859-1. Reads 0x80 to 0x9F as windows-1252 does, since that is what such bytes were; does not write them.
    pub const ISO_8859_1: Charset = Charset { encoding: WINDOWS_1252, repertoire: Repertoire::Iso8859 };
    /// ASCII, which MSH-18 means when empty.
    pub const ASCII: Charset = Charset { encoding: WINDOWS_1252, repertoire: Repertoire::Ascii };

    /// The charset of a name: HL7 table 0211 (`8859/15`, `UNICODE UTF-8`, `ISO IR87`) or IANA (`iso-8859-15`), in any
    /// case. None: not known, or not supported.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Charset> {
        let plain: String =
            name.iter().filter(|b| b.is_ascii_alphanumeric()).map(|b| char::from(b.to_ascii_uppercase())).collect();
        let part = plain.strip_prefix("ISO").unwrap_or(&plain).strip_prefix("8859");
        let label = match (NAMES.iter().find(|(known, _)| *known == plain), part) {
            (Some((_, label)), _) => (*label).to_owned(),
            (None, Some(part)) => format!("iso-8859-{part}"),
            (None, None) => String::from_utf8_lossy(name).into_owned(),
        };
        if label == "us-ascii" {
            return Some(Charset::ASCII);
        }
        let encoding = Encoding::for_label_no_replacement(label.as_bytes())?;
        if !encoding.is_ascii_compatible() && encoding != ISO_2022_JP {
            return None; // UTF-16
        }
        let repertoire = if label.starts_with("iso-8859-") { Repertoire::Iso8859 } else { Repertoire::Full };
        Some(Charset { encoding, repertoire })
    }

    /// The charset MSH-18 declares. Its first repetition is the default and the others may be switched to, so an
    /// ISO 2022 one in any place wins: it starts as ASCII. Else the first that is known; none where none is.
    #[must_use]
    pub fn declared(message: &Message<'_>) -> Option<Charset> {
        let field = message.header().field(18).bytes();
        if field.is_empty() {
            return None;
        }
        let mut first = None;
        for charset in parts(field, message.delimiters().repetition).filter_map(Charset::named) {
            if charset.encoding == ISO_2022_JP {
                return Some(charset);
            }
            first = first.or(Some(charset));
        }
        first
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
            (_, name) => name,
        }
    }

    /// Text from bytes; where they are not of this charset, as UTF-8, and where they are not that, as ISO 8859-1.
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        if bytes.is_ascii() && self.encoding != ISO_2022_JP {
            // `from_utf8` checks once more what is proven; it is the safe way to say so.
            return String::from_utf8_lossy(bytes);
        }
        let own = if self.repertoire == Repertoire::Ascii { None } else { Some(self.encoding) };
        let decoded = [own, Some(UTF_8)]
            .into_iter()
            .flatten()
            .find_map(|encoding| encoding.decode_without_bom_handling_and_without_replacement(bytes));
        decoded.unwrap_or_else(|| WINDOWS_1252.decode_without_bom_handling(bytes).0)
    }

    /// Bytes from text, to be escaped and written into a message that declares this charset.
    ///
    /// # Errors
    /// [`EncodeError`] with the first character the charset does not have; nothing is replaced silently.
    pub fn encode(self, text: &str) -> Result<Cow<'_, [u8]>, EncodeError> {
        let (bytes, _, unmappable) = self.encoding.encode(text);
        if !unmappable && self.may_write(&bytes) {
            return Ok(bytes);
        }
        let mut buffer = [0; 4];
        let character = text.chars().find(|character| {
            let (bytes, _, unmappable) = self.encoding.encode(character.encode_utf8(&mut buffer));
            unmappable || !self.may_write(&bytes)
        });
        match character {
            Some(character) => Err(EncodeError { character, charset: self.name() }),
            None => Ok(bytes),
        }
    }

    /// A raw value as text to show: unescaped, then decoded, since `\Xhh\` holds bytes of the charset.
    #[must_use]
    pub fn text(self, raw: &[u8], delimiters: Delimiters) -> Cow<'_, str> {
        match escape::unescape(raw, delimiters) {
            Cow::Borrowed(raw) => self.decode(raw),
            Cow::Owned(bytes) => Cow::Owned(self.decode(&bytes).into_owned()),
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
