//! Detects whether bytes that are not UTF-8, and whose charset is not declared, may be in a charset whose characters
//! hide delimiters.
//!
//! Most such messages are in a set of one byte a character and are read as such. Any bytes can be read as some Chinese
//! or Japanese text, so this alone is no proof. The detection looks for properties that texts in other sets do not
//! have:
//!
//! - a delimiter that is the second byte of a character (else it does not matter which set it is);
//! - in Shift_JIS, next to another a character of the rows that texts mostly use, whose first bytes are no letters of
//!   ISO 8859, and no quotes and dashes of Windows;
//! - in GB 18030 and Big5, whose first bytes are letters of other alphabets, a character of the common rows with a high second byte,
//!   and next to it one whose second byte is a Latin letter: as Cyrillic or Greek that would be a misspelling.
//!
//! A suspected message is refused; every other message is split as bytes.

use super::Charset;
use crate::Delimiters;

/// A set that the bytes may be in, and the meaning of bytes in it.
struct Candidate {
    charset: Charset,
    /// The first byte of a character of two.
    leads: fn(u8) -> bool,
    /// A pair from the rows that texts mostly use: kana and the first level of kanji or hanzi.
    is_common: fn(u8, u8) -> bool,
    /// Those rows are letters of other alphabets as well.
    needs_letters: bool,
}

const CANDIDATES: [Candidate; 3] = [
    Candidate {
        charset: Charset::SHIFT_JIS,
        leads: |byte| matches!(byte, 0x81..=0x9F | 0xE0..=0xFC),
        is_common: |lead, _| matches!(lead, 0x82 | 0x83 | 0x88..=0x90 | 0x95),
        needs_letters: false,
    },
    Candidate {
        charset: Charset::BIG_5,
        leads: |byte| byte >= 0x81,
        is_common: |lead, trail| matches!(lead, 0xA4..=0xC6) && trail >= 0xA1,
        needs_letters: true,
    },
    Candidate {
        charset: Charset::GB_18030,
        leads: |byte| byte >= 0x81,
        is_common: |lead, trail| matches!(lead, 0xB0..=0xD7) && trail >= 0xA1,
        needs_letters: true,
    },
];

/// The charset that undeclared bytes are suspected to be in.
pub(crate) fn suspect(raw: &[u8], delimiters: Delimiters) -> Option<Charset> {
    let fits = |candidate: &&Candidate| candidate.fits(raw, delimiters) && candidate.charset.read(raw).is_some();
    CANDIDATES.iter().find(fits).map(|candidate| candidate.charset)
}

impl Candidate {
    fn fits(&self, raw: &[u8], delimiters: Delimiters) -> bool {
        let (mut hidden, mut beside, mut letters) = (false, false, false);
        // For a character of two bytes that ends here: whether it was common, and whether its second byte was a letter.
        let mut before = None;
        let mut at = 0;
        while at < raw.len() {
            let (true, Some(&trail)) = ((self.leads)(raw[at]), raw.get(at + 1)) else {
                before = None;
                at += 1;
                continue;
            };
            let (is_common, is_letter) = ((self.is_common)(raw[at], trail), trail.is_ascii_alphabetic());
            hidden |= delimiters.contains(trail);
            if let Some((was_common, was_letter)) = before {
                beside |= is_common || was_common;
                letters |= (is_letter && was_common) || (is_common && was_letter);
            }
            before = Some((is_common, is_letter));
            at += 2;
        }
        hidden && if self.needs_letters { letters } else { beside }
    }
}
