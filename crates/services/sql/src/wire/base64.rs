//! Base64 with the standard alphabet and padding (RFC 4648, section 4), as SCRAM's messages and verifiers use it.
//!
//! Reading is strict: padding is needed, bits that no byte uses must be zero, nothing else may stand between.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let six = (word >> (18 - 6 * at)) & 63;
            text.push(if at <= chunk.len() { ALPHABET[six as usize] as char } else { '=' });
        }
    }
    text
}

/// The bytes of `text`, if it is Base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let last = (text.len() / 4).checked_sub(1);
    for (number, chunk) in text.chunks(4).enumerate() {
        let padding = chunk.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && Some(number) != last) {
            return None;
        }
        let mut word = 0u32;
        for byte in &chunk[..4 - padding] {
            let six = ALPHABET.iter().position(|letter| letter == byte)?;
            word = word << 6 | six as u32;
        }
        word <<= 6 * padding;
        let [_, all @ ..] = word.to_be_bytes();
        if all[3 - padding..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&all[..3 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_go_both_ways() {
        // RFC 4648, section 10.
        let examples =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (plain, text) in examples {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()));
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in ["Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Zm-_"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
