//! Random secrets of the console, and what is kept of them: their SHA-256.
//!
//! A secret has 256 bits, so that a fast hash suffices and guessing is of no use. The token of a form is made of the session's secret
//! by another hash: it shows nothing of the secret, and needs no place of its own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// What is kept of a secret.
pub(crate) type SecretDigest = [u8; 32];

/// The system returned no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system returned no random bytes")]
pub(crate) struct NoRandomness;

/// A new secret, as text for a cookie.
pub(crate) fn draw() -> Result<String, NoRandomness> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(BASE64.encode(bytes))
}

fn hashed(purpose: &str, text: &str) -> SecretDigest {
    let mut hash = Context::new(&SHA256);
    // The length ends the purpose: no text is one of another purpose.
    hash.update(&(purpose.len() as u64).to_le_bytes());
    hash.update(purpose.as_bytes());
    hash.update(text.as_bytes());
    let mut digest = SecretDigest::default();
    digest.copy_from_slice(hash.finish().as_ref());
    digest
}

/// What is kept of a secret; none if the text is no secret.
pub(crate) fn digest(secret: &str) -> Option<SecretDigest> {
    let bytes = BASE64.decode(secret).ok()?;
    (bytes.len() == SECRET_BYTES).then(|| hashed("session", secret))
}

/// The token of the forms of a session.
pub(crate) fn form_token(secret: &str) -> String {
    BASE64.encode(hashed("form", secret))
}

/// Whether `token` is that of the session's forms. Compared as hashes, so that the time says nothing about where they differ.
pub(crate) fn is_form_token(secret: &str, token: &str) -> bool {
    hashed("compared", token) == hashed("compared", &form_token(secret))
}

/// The SHA-256 of anything else.
pub(crate) fn sha256(bytes: &[u8]) -> SecretDigest {
    let mut digest = SecretDigest::default();
    digest.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_form_is_of_one_session_and_shows_nothing_of_its_secret() {
        let (one, other) = (draw().expect("there is randomness"), draw().expect("there is randomness"));
        assert_ne!(one, other);
        assert!(digest(&one).is_some() && digest("short").is_none() && digest("").is_none());
        assert!(is_form_token(&one, &form_token(&one)));
        assert!(!is_form_token(&one, &form_token(&other)) && !is_form_token(&one, "") && !is_form_token(&one, &one));
        assert_ne!(form_token(&one), one);
    }
}
