//! JIS in seven bits: ISO-2022-JP as RFC 1468 has it, with JIS X 0212 (RFC 2237) and half-width katakana, which HL7 lists too
//! (ISO IR159 and ISO IR13).
//!
//! ```text
//!   ESC ( B  ASCII             ESC $ @  ESC $ B  JIS X 0208, two bytes
//!   ESC ( J  JIS X 0201 Roman  ESC $ ( D         JIS X 0212, two bytes
//!   ESC ( I  JIS X 0201 katakana
//! ```
//!
//! Characters come from EUC-JP, which has the same sets with the high bits set. A line begins in ASCII, and what is written
//! ends in it. An ESC that begins none of these sets makes the bytes none of theirs. Roman is read as ASCII: its yen sign and overline would otherwise hide two delimiters. In ASCII a byte 0xA1 to
//! 0xDF is katakana, as eight-bit senders have it.

use encoding_rs::EUC_JP;

use super::ESC;

/// The set in force.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Ascii,
    Katakana,
    Kanji,
    Supplement,
}

impl Set {
    /// How many bytes a character has.
    pub(super) fn character(self) -> usize {
        if matches!(self, Set::Kanji | Set::Supplement) { 2 } else { 1 }
    }

    /// The sequence that begins it.
    pub(super) fn sequence(self) -> &'static [u8] {
        match self {
            Set::Ascii => b"\x1B(B",
            Set::Katakana => b"\x1B(I",
            Set::Kanji => b"\x1B$B",
            Set::Supplement => b"\x1B$(D",
        }
    }
}

/// The set that an escape sequence begins, and its length.
pub(super) fn designated(bytes: &[u8]) -> Option<(Set, usize)> {
    match bytes {
        [ESC, b'(', b'B' | b'J', ..] => Some((Set::Ascii, 3)),
        [ESC, b'(', b'I', ..] => Some((Set::Katakana, 3)),
        [ESC, b'$', b'@' | b'B', ..] => Some((Set::Kanji, 3)),
        [ESC, b'$', b'(', b'D', ..] => Some((Set::Supplement, 4)),
        _ => None,
    }
}

/// Text; nothing where the bytes are not of these sets.
pub(super) fn decode(bytes: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(bytes.len());
    let mut set = Set::Ascii;
    let mut at = 0;
    let push = |text: &mut String, euc: &[u8]| -> Option<()> {
        text.push_str(&EUC_JP.decode_without_bom_handling_and_without_replacement(euc)?);
        Some(())
    };
    while at < bytes.len() {
        let byte = bytes[at];
        if let Some((begun, len)) = designated(&bytes[at..]) {
            set = begun;
            at += len;
            continue;
        }
        if byte == ESC {
            return None;
        }
        if matches!(byte, b'\r' | b'\n') {
            set = Set::Ascii;
        }
        if byte < 0x20 {
            text.push(char::from(byte));
            at += 1;
            continue;
        }
        at += match set {
            Set::Ascii if byte < 0x80 => {
                text.push(char::from(byte));
                1
            }
            Set::Ascii if (0xA1..=0xDF).contains(&byte) => {
                push(&mut text, &[0x8E, byte])?;
                1
            }
            Set::Katakana if (0x21..=0x5F).contains(&byte) => {
                push(&mut text, &[0x8E, byte | 0x80])?;
                1
            }
            Set::Kanji | Set::Supplement => {
                let second = *bytes.get(at + 1)?;
                if !(0x21..=0x7E).contains(&byte) || !(0x21..=0x7E).contains(&second) {
                    return None;
                }
                let pair = [0x8F, byte | 0x80, second | 0x80];
                push(&mut text, &pair[usize::from(set == Set::Kanji)..])?;
                2
            }
            _ => return None,
        };
    }
    Some(text)
}

/// Bytes; nothing where a character is in none of the sets.
pub(super) fn encode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut set = Set::Ascii;
    let mut turn = |bytes: &mut Vec<u8>, to: Set| {
        if set != to {
            bytes.extend_from_slice(to.sequence());
            set = to;
        }
    };
    let mut buffer = [0; 4];
    for character in text.chars() {
        if character == char::from(ESC) {
            return None; // with what follows it could begin another set
        }
        if character.is_ascii() {
            turn(&mut bytes, Set::Ascii);
            bytes.push(u8::try_from(character).ok()?);
            continue;
        }
        let (euc, _, unmappable) = EUC_JP.encode(character.encode_utf8(&mut buffer));
        match *euc {
            _ if unmappable => return None,
            [0x8E, katakana] => {
                turn(&mut bytes, Set::Katakana);
                bytes.push(katakana & 0x7F);
            }
            [first @ 0xA1..=0xFE, second] => {
                turn(&mut bytes, Set::Kanji);
                bytes.extend_from_slice(&[first & 0x7F, second & 0x7F]);
            }
            // EUC-JP has the yen sign and the overline in the places of two delimiters.
            _ => return None,
        }
    }
    turn(&mut bytes, Set::Ascii);
    Some(bytes)
}
