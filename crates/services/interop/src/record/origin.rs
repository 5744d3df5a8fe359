//! [`MessageOrigin`]: of a message that was made from a stored one, or imported from elsewhere, which one, how, and under which
//! idempotency key.
//!
//! ```text
//!   flags of the record      bit 1 resent, bit 2 edited, bit 3 reprocessed, bit 4 imported: one, or none for a message received
//!   behind the origin's id   u8 length + key; no bytes = no key
//! ```
//!
//! Invariant: the key lies in the record of the message that was made under it, so that the two are durable together: after
//! a crash either both are there or none.
//!
//! Of an imported message the id is that of its source, not of this node: the message's id there, or its number in a file; the key
//! names the source (see `transfer`).

use serde::{Deserialize, Serialize};

/// Longest idempotency key, in bytes: it is a part of a key of the index by state.
pub const KEY_TEXT_MAX: usize = 100;

const FLAG_RESENT: u8 = 2;
const FLAG_EDITED: u8 = 4;
const FLAG_REPROCESSED: u8 = 8;
const FLAG_IMPORTED: u8 = 16;

/// How a message was made from a stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Derivation {
    /// Its outputs are those of the stored one.
    Resent,
    /// Its bytes are those that a person made of the stored one's.
    Edited,
    /// It was decided on anew, with the bytes of the stored one.
    Reprocessed,
    /// It came from another node or a file, by an import.
    Imported,
}

impl Derivation {
    /// Its name, for display.
    pub fn name(self) -> &'static str {
        match self {
            Derivation::Resent => "resent",
            Derivation::Edited => "edited",
            Derivation::Reprocessed => "reprocessed",
            Derivation::Imported => "imported",
        }
    }
}

/// See the head comment of this file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageOrigin {
    /// The stored message; of one imported, its id or number at its source.
    pub id: u64,
    /// How.
    pub derivation: Derivation,
    /// The idempotency key; empty for none.
    #[serde(default)]
    pub key: String,
}

/// Digits of the checksum of a file that are shown as the name of a source: enough to tell files apart, and too few to try values of a
/// message against it.
const FILE_DIGITS: usize = 8;

/// The name of a source as it is shown: without what says something of a body, as the checksums in a key do.
pub fn shown_source(key: &str) -> &str {
    let name = key.split(' ').next().unwrap_or_default();
    match name.strip_prefix("file-") {
        Some(digits) => &name[..name.len() - digits.len() + digits.floor_char_boundary(FILE_DIGITS.min(digits.len()))],
        None => name,
    }
}

impl MessageOrigin {
    /// As it is shown: of an imported message its key has checksums of the body, which who may not see that must not have.
    #[must_use]
    pub fn shown(mut self) -> MessageOrigin {
        if self.derivation == Derivation::Imported {
            self.key = shown_source(&self.key).to_owned();
        }
        self
    }

    /// The stored message of this node that it was made from; none of one imported.
    pub fn stored(&self) -> Option<u64> {
        (self.derivation != Derivation::Imported).then_some(self.id)
    }

    /// Checks the text of a key. The error says what is wrong.
    ///
    /// # Errors
    /// It is empty, too long, or has control characters.
    pub fn check_key(key: &str) -> Result<(), String> {
        let is_plain = !key.chars().any(char::is_control);
        if (1..=KEY_TEXT_MAX).contains(&key.len()) && is_plain {
            return Ok(());
        }
        Err(format!("an idempotency key has 1 to {KEY_TEXT_MAX} bytes and no control characters"))
    }

    /// Appends the key as it is stored.
    pub(super) fn write_key(&self, out: &mut Vec<u8>) {
        let key = &self.key[..self.key.floor_char_boundary(KEY_TEXT_MAX)];
        out.push(u8::try_from(key.len()).expect("cut at KEY_TEXT_MAX"));
        out.extend_from_slice(key.as_bytes());
    }
}

/// A key as stored; none where it is not as written.
pub(super) fn key_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|key| key.len() <= KEY_TEXT_MAX)
}

/// The flag of a derivation.
pub(crate) fn derivation_code(derivation: Derivation) -> u8 {
    match derivation {
        Derivation::Resent => FLAG_RESENT,
        Derivation::Edited => FLAG_EDITED,
        Derivation::Reprocessed => FLAG_REPROCESSED,
        Derivation::Imported => FLAG_IMPORTED,
    }
}

/// The derivation of flags without the one for duplicates; the outer none: these are no flags.
pub(crate) fn derivation_of(flags: u8) -> Option<Option<Derivation>> {
    match flags {
        0 => Some(None),
        FLAG_RESENT => Some(Some(Derivation::Resent)),
        FLAG_EDITED => Some(Some(Derivation::Edited)),
        FLAG_REPROCESSED => Some(Some(Derivation::Reprocessed)),
        FLAG_IMPORTED => Some(Some(Derivation::Imported)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_made_in_one_way_from_another_or_was_received() {
        for derivation in [Derivation::Resent, Derivation::Edited, Derivation::Reprocessed, Derivation::Imported] {
            assert_eq!(derivation_of(derivation_code(derivation)), Some(Some(derivation)));
        }
        let ways: Vec<u8> = (0..=255).filter(|flags| derivation_of(*flags).is_some()).collect();
        assert_eq!(ways, [0, 2, 4, 8, 16]);
    }

    #[test]
    fn what_is_shown_of_an_imported_message_says_nothing_of_its_body() {
        let of = |derivation, key: &str| MessageOrigin { id: 7, derivation, key: key.to_owned() }.shown().key;
        for (key, shown) in [
            ("node-0000002a 0123456789abcdef", "node-0000002a"),
            ("file-0123456789abcdef0123456789abcdef", "file-01234567"),
            ("file-\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}", "file-\u{e4}\u{e4}\u{e4}\u{e4}"),
            ("file-", "file-"),
            ("", ""),
        ] {
            assert_eq!(of(Derivation::Imported, key), shown, "{key}");
        }
        assert_eq!(of(Derivation::Reprocessed, "ticket 4711"), "ticket 4711");
    }

    #[test]
    fn a_key_is_short_and_plain() {
        for (key, is_one) in [("", false), ("a", true), ("ticket 4711", true), ("a\nb", false), ("\u{e4}", true)] {
            assert_eq!(MessageOrigin::check_key(key).is_ok(), is_one, "{key:?}");
        }
        assert!(MessageOrigin::check_key(&"k".repeat(KEY_TEXT_MAX)).is_ok());
        assert!(MessageOrigin::check_key(&"k".repeat(KEY_TEXT_MAX + 1)).is_err());
    }
}
