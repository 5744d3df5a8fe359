//! API tokens: 32 random bytes that stand for a role, shown once and stored as their SHA-256.
//!
//! A token has so much randomness that it cannot be guessed, so a fast hash suffices, and finding it is a look into a
//! table. The prefix `trc_` lets scanners of source code find tokens that were checked in by mistake.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest;
use serde::{Deserialize, Serialize};

use super::error::IdentityError;
use super::scram;

const PREFIX: &str = "trc_";
const SECRET_BYTES: usize = 32;

/// Last characters that are kept to recognize a token.
const SHOWN: usize = 4;

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of a token's text; `None` if the text is no token.
    pub fn of(text: &str) -> Option<TokenDigest> {
        let secret = BASE64.decode(text.strip_prefix(PREFIX)?).ok().filter(|secret| secret.len() == SECRET_BYTES)?;
        let mut all = [0; 32];
        all.copy_from_slice(digest::digest(&digest::SHA256, &secret).as_ref());
        Some(TokenDigest(all))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest")
    }
}

impl From<TokenDigest> for String {
    fn from(digest: TokenDigest) -> String {
        BASE64.encode(digest.0)
    }
}

impl TryFrom<String> for TokenDigest {
    type Error = IdentityError;

    fn try_from(text: String) -> Result<TokenDigest, IdentityError> {
        let bytes = BASE64.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(TokenDigest).ok_or_else(|| IdentityError::Unreadable("a token's digest is not 32 bytes".into()))
    }
}

/// A name that somebody claims, as logs and the audit show it: who types a token in its place must not have it read by others.
pub fn shown_name(claimed: &str) -> &str {
    if claimed.contains(PREFIX) { "(token)" } else { claimed }
}

/// What is stored of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    /// What its owner calls it; unique for a role.
    pub name: String,
    /// The digest of the secret.
    pub digest: TokenDigest,
    /// The last characters of its text.
    pub last: String,
    /// When it was made, in microseconds since 1970.
    pub made_us: i64,
    /// From when on it is not accepted, in microseconds since 1970.
    pub until_us: Option<i64>,
}

/// Draws a token. Returns its text, which is not kept anywhere, and what is stored of it.
///
/// Errors: [`IdentityError::Randomness`].
pub fn draw(name: &str, now_us: i64, until_us: Option<i64>) -> Result<(String, ApiToken), IdentityError> {
    let mut secret = [0; SECRET_BYTES];
    scram::random(&mut secret).map_err(|_| IdentityError::Randomness)?;
    let text = format!("{PREFIX}{}", BASE64.encode(secret));
    let digest = TokenDigest::of(&text).ok_or(IdentityError::Randomness)?;
    let last = text[text.len() - SHOWN..].to_owned();
    Ok((text, ApiToken { name: name.to_owned(), digest, last, made_us: now_us, until_us }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_digest_and_what_is_stored_does_not_contain_it() {
        let (text, token) = draw("ci", 1, None).expect("there is randomness");
        assert_eq!(TokenDigest::of(&text), Some(token.digest));
        let stored = serde_json::to_string(&token).expect("it is JSON");
        assert!(!stored.contains(&text[PREFIX.len()..]), "{stored}");
        assert_eq!(serde_json::from_str::<ApiToken>(&stored).expect("it is one"), token);
        for broken in ["", "trc_", "trc_AAAA", &text[1..], &text[..text.len() - 1]] {
            assert_eq!(TokenDigest::of(broken), None, "{broken}");
        }
    }
}
