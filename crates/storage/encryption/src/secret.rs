//! [`Secret`]: 32 bytes of key that are cleared from memory when they are dropped; and where random ones come from.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::EncryptionError;

/// Bytes of a key of AES-256.
pub const KEY_BYTES: usize = 32;

/// Where random bytes come from. Tests pass a seeded one.
pub trait Randomness {
    /// Fills the bytes. Errors: [`EncryptionError::Randomness`].
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EncryptionError>;
}

/// The operating system's source of random bytes.
#[derive(Debug)]
pub struct SystemRandomness(SystemRandom);

impl Default for SystemRandomness {
    fn default() -> SystemRandomness {
        SystemRandomness(SystemRandom::new())
    }
}

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EncryptionError> {
        self.0.fill(bytes).map_err(|_| EncryptionError::Randomness)
    }
}

/// A key, or what keys are derived from.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<[u8; KEY_BYTES]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Bytes that HKDF derives.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Secret {
    /// These bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// A random one. Errors: [`EncryptionError::Randomness`].
    pub fn random(random: &dyn Randomness) -> Result<Secret, EncryptionError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        random.fill(&mut *bytes)?;
        Ok(Secret(bytes))
    }

    /// Reads what a provider gave: 32 raw bytes, or text of 64 hexadecimal digits or of base64, with white space around it. `None`: it is
    /// none of these.
    pub fn parse(given: &[u8]) -> Option<Secret> {
        if let Ok(raw) = given.try_into() {
            return Some(Secret::new(raw));
        }
        let text = given.trim_ascii();
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        if text.len() == 2 * KEY_BYTES {
            for (byte, digits) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
                let digit = |at: usize| char::from(digits[at]).to_digit(16);
                *byte = (digit(0)? * 16 + digit(1)?) as u8;
            }
            return Some(Secret(bytes));
        }
        // 32 bytes are 43 characters and one of padding.
        let engine = if text.ends_with(b"=") { &STANDARD } else { &STANDARD_NO_PAD };
        let decoded = Zeroizing::new(engine.decode(text).ok()?);
        bytes.copy_from_slice(decoded.get(..).filter(|decoded| decoded.len() == KEY_BYTES)?);
        Some(Secret(bytes))
    }

    /// Derives a key from a secret of [`KEY_BYTES`] bytes or more, of which every bit is used, and a salt. `None`: it is shorter.
    pub fn of_long(given: &[u8], salt: &[u8], purpose: &[u8]) -> Option<Secret> {
        if given.len() < KEY_BYTES {
            return None;
        }
        let (mut into, purpose) = (Zeroizing::new([0; KEY_BYTES]), [purpose]);
        let key = Salt::new(HKDF_SHA256, salt).extract(given);
        key.expand(&purpose, Length(KEY_BYTES)).and_then(|key| key.fill(&mut *into)).ok()?;
        Some(Secret(into))
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Derives `N` bytes for a purpose, by HKDF-SHA-256.
    pub(crate) fn derive<const N: usize>(&self, salt: &[u8], purpose: &[u8]) -> Zeroizing<[u8; N]> {
        let mut into = Zeroizing::new([0; N]);
        let purpose = [purpose];
        let key = Salt::new(HKDF_SHA256, salt).extract(&*self.0);
        let filled = key.expand(&purpose, Length(N)).and_then(|key| key.fill(&mut *into));
        filled.expect("HKDF-SHA-256 derives up to 8,160 bytes");
        into
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_raw_in_hexadecimal_and_in_base64_and_nothing_else_is_a_key() {
        let raw: Vec<u8> = (0..32).map(|at| at * 7 + 1).collect();
        let hex: String = raw.iter().map(|byte| format!("{byte:02X}")).collect();
        let base = STANDARD.encode(&raw);
        let expected = Secret::new(raw.clone().try_into().expect("32 bytes"));
        for given in [raw.clone(), hex.clone().into(), format!(" {hex}\n").into(), base.clone().into()] {
            assert_eq!(Secret::parse(&given), Some(expected.clone()), "{given:?}");
        }
        assert_eq!(Secret::parse(base.trim_end_matches('=').as_bytes()), Some(expected));
        for odd in [&b""[..], b"short", &[7; 31], &[7; 33], &hex.as_bytes()[1..], b"g".repeat(64).as_slice()] {
            assert_eq!(Secret::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn equal_inputs_derive_equal_bytes_and_each_input_matters() {
        let one = Secret::new([1; 32]);
        assert_eq!(*one.derive::<32>(b"salt", b"use"), *one.derive::<32>(b"salt", b"use"));
        assert_ne!(*one.derive::<32>(b"salt", b"use"), *one.derive::<32>(b"salt", b"us"));
        assert_ne!(*one.derive::<32>(b"salt", b"use"), *one.derive::<32>(b"sal", b"use"));
        assert_ne!(*one.derive::<32>(b"salt", b"use"), *Secret::new([2; 32]).derive::<32>(b"salt", b"use"));
        assert_eq!(format!("{one:?}"), "Secret");
        let long = |given: &[u8], salt: &[u8]| Secret::of_long(given, salt, b"use");
        assert_eq!(long(&[1; 32], b"salt"), Some(Secret(one.derive(b"salt", b"use"))));
        assert_ne!(long(&[1; 64], b"salt"), long(&[1; 32], b"salt"));
        assert_ne!(long(&[1; 64], b"salt"), long(&[1; 64], b"sal"));
        assert_eq!(long(&[1; 31], b"salt"), None);
    }
}
