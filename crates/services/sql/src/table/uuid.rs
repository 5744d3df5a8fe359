//! The text of a uuid, as PostgreSQL reads and writes it.
//!
//! ```text
//!   written   a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11
//!   read      32 hexadecimal digits in any case, a hyphen behind each four of them if the writer wants, all of it in braces if he wants
//! ```
//!
//! A column of uuid is Arrow's FixedSizeBinary(16), and nothing else is. Its bytes are in the order of the digits, so uuids sort as their bytes
//! do.

use datafusion::arrow::datatypes::DataType;

/// Bytes of a uuid.
pub(crate) const BYTES: usize = 16;

/// The Arrow type of uuids.
pub(crate) const UUID: DataType = DataType::FixedSizeBinary(BYTES as i32);

/// Digits after which a hyphen may be.
const GROUP: usize = 4;

/// Reads a uuid; `None` if the text is none.
pub(crate) fn parse(text: &str) -> Option<[u8; BYTES]> {
    let inside = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let (mut uuid, mut digits) = ([0u8; BYTES], 0);
    let mut letters = inside.bytes().peekable();
    while let Some(letter) = letters.next() {
        let digit = (letter as char).to_digit(16)? as u8;
        let byte = uuid.get_mut(digits / 2)?;
        *byte = *byte << 4 | digit;
        digits += 1;
        if digits % GROUP == 0 && digits < 2 * BYTES {
            letters.next_if_eq(&b'-');
        }
    }
    (digits == 2 * BYTES).then_some(uuid)
}

/// The text of a uuid.
pub(crate) fn text(uuid: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read_in_all_forms_that_postgresql_takes_and_in_no_others() {
        let plain = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for taken in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        ] {
            assert_eq!(parse(taken).map(|uuid| text(&uuid)).as_deref(), Some(plain), "{taken}");
        }
        for refused in [
            "",
            "{}",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a112",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a-0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "-a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "\u{e9}0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }
}
