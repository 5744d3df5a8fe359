//! Verification of ID tokens (OpenID Connect Core 1.0, 3.1.3.7; JWS, RFC 7515), with ring; pure.
//!
//! ```text
//!   base64url(header) . base64url(claims) . base64url(signature)
//!   header: alg is RS256 or ES256, and of the kind of the key; `none` and HS* are refused, and so is `crit`
//!   claims: iss, aud (and azp), exp, iat, nonce
//! ```
//!
//! Invariants: no claim is looked at before the signature is right; the key decides which algorithm is used, and the header only whether
//! it agrees; what is missing is refused. Clocks may differ by [`SKEW_SECONDS`].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::documents::{ProviderKey, ProviderKeys};

/// How far clocks may differ.
pub(super) const SKEW_SECONDS: i64 = 60;

/// The oldest token that is taken: one is asked for and used at once.
const AGE_SECONDS_MAX: i64 = 600;

/// Most bytes of a token.
pub(super) const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Why a token is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenFault {
    /// It is not a token in this form.
    #[error("the ID token cannot be read: {0}")]
    Form(&'static str),
    /// It is signed in a way that is not taken.
    #[error("the ID token is signed by `{0}`: RS256 and ES256 are taken")]
    Algorithm(String),
    /// No key of the provider has its id: the keys may have changed.
    #[error("the provider has no key of the ID token's id")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature of the ID token is wrong")]
    Signature,
    /// A claim is not as it has to be.
    #[error("the ID token's claim {0} is not as it has to be")]
    Claim(&'static str),
}

/// What a token has to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// Seconds since 1970.
    pub(super) now: i64,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The claims of a token, if it is right.
pub(super) fn verified(
    token: &str,
    keys: &ProviderKeys,
    expected: Expected<'_>,
) -> Result<Map<String, Value>, TokenFault> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenFault::Form("it is too long"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Form("it has no signature"))?;
    let (header, claims) = signed.split_once('.').ok_or(TokenFault::Form("it has no claims"))?;
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFault::Form("a part is not base64url"));
    let header: Header =
        serde_json::from_slice(&decoded(header)?).map_err(|_| TokenFault::Form("its header is not JSON of a JWS"))?;
    if !matches!(header.alg.as_str(), "RS256" | "ES256") {
        return Err(TokenFault::Algorithm(super::documents::shortened(&header.alg)));
    }
    if header.crit.is_some() {
        return Err(TokenFault::Form("it demands extensions"));
    }
    let keys = keys.of(header.kid.as_deref());
    if keys.is_empty() {
        return Err(TokenFault::UnknownKey);
    }
    let signature = decoded(signature)?;
    if !keys.into_iter().any(|key| is_signed(key, &header.alg, signed.as_bytes(), &signature)) {
        return Err(TokenFault::Signature);
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&decoded(claims)?).map_err(|_| TokenFault::Form("its claims are no object of JSON"))?;
    check(&claims, expected)?;
    Ok(claims)
}

fn is_signed(key: &ProviderKey, alg: &str, message: &[u8], signature: &[u8]) -> bool {
    match (key, alg) {
        (ProviderKey::Rsa { n, e }, "RS256") => signature::RsaPublicKeyComponents { n, e }
            .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
            .is_ok(),
        (ProviderKey::P256(point), "ES256") => {
            UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
        }
        _ => false,
    }
}

/// Whether the claims are as they have to be.
pub(super) fn check(claims: &Map<String, Value>, expected: Expected<'_>) -> Result<(), TokenFault> {
    let Expected { issuer, client_id, nonce, now } = expected;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    // Some providers write times with a fraction.
    let time = |name: &'static str| claims.get(name).and_then(Value::as_f64).map(|time| time as i64);
    if text("iss") != Some(issuer) {
        return Err(TokenFault::Claim("iss"));
    }
    let audience: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !audience.contains(&client_id) {
        return Err(TokenFault::Claim("aud"));
    }
    let is_party = text("azp").map(|party| party == client_id);
    if is_party == Some(false) || (audience.len() > 1 && is_party.is_none()) {
        return Err(TokenFault::Claim("azp"));
    }
    if time("exp").is_none_or(|exp| now.saturating_sub(SKEW_SECONDS) >= exp) {
        return Err(TokenFault::Claim("exp"));
    }
    let is_of_now =
        |iat: i64| iat <= now.saturating_add(SKEW_SECONDS) && iat >= now.saturating_sub(AGE_SECONDS_MAX + SKEW_SECONDS);
    if !time("iat").is_some_and(is_of_now) {
        return Err(TokenFault::Claim("iat"));
    }
    if time("nbf").is_some_and(|nbf| nbf > now.saturating_add(SKEW_SECONDS)) {
        return Err(TokenFault::Claim("nbf"));
    }
    if text("nonce") != Some(nonce) {
        return Err(TokenFault::Claim("nonce"));
    }
    if text("sub").is_none_or(str::is_empty) {
        return Err(TokenFault::Claim("sub"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::SigningKey;
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn expected() -> Expected<'static> {
        Expected { issuer: "https://id.example.org", client_id: "terrace", nonce: "n-1", now: NOW }
    }

    fn claims() -> Value {
        json!({"iss": "https://id.example.org", "sub": "1", "aud": "terrace", "exp": NOW + 300, "iat": NOW, "nonce": "n-1"})
    }

    #[test]
    fn a_right_token_is_right_and_a_changed_claim_is_not() {
        let key = SigningKey::new("a");
        let keys = key.keys();
        assert_eq!(verified(&key.token(&claims()), &keys, expected()).expect("it is right")["sub"], "1");
        for (name, value, is_right) in [
            ("iss", json!("https://id.example.org/"), false),
            ("iss", Value::Null, false),
            ("aud", json!("other"), false),
            ("aud", json!(["other", "terrace"]), false),
            ("aud", json!(["terrace"]), true),
            ("aud", json!([]), false),
            ("azp", json!("terrace"), true),
            ("azp", json!("other"), false),
            ("exp", json!(NOW - 59), true),
            ("exp", json!(NOW - 60), false),
            ("exp", json!("never"), false),
            ("exp", Value::Null, false),
            ("iat", json!(NOW + 60), true),
            ("iat", json!(NOW + 61), false),
            ("iat", json!(NOW - 660), true),
            ("iat", json!(NOW - 661), false),
            ("iat", Value::Null, false),
            ("nbf", json!(NOW + 61), false),
            ("nonce", json!("n-2"), false),
            ("nonce", Value::Null, false),
            ("sub", json!(""), false),
        ] {
            let mut changed = claims();
            changed[name] = value.clone();
            let told = verified(&key.token(&changed), &keys, expected());
            assert_eq!(told.is_ok(), is_right, "{name} = {value}: {told:?}");
        }
    }

    #[test]
    fn what_is_not_signed_by_a_key_of_the_provider_is_refused() {
        let (key, other) = (SigningKey::new("a"), SigningKey::new("a"));
        let keys = key.keys();
        let right = key.token(&claims());
        let refused = |token: &str| verified(token, &keys, expected()).expect_err(token);
        assert_eq!(refused(&other.token(&claims())), TokenFault::Signature);
        assert_eq!(refused(&SigningKey::new("b").token(&claims())), TokenFault::UnknownKey);
        for alg in ["none", "HS256", "hs256", "RS512", "ES256K", ""] {
            let token = key.signed(json!({"alg": alg, "kid": "a"}), &claims());
            assert_eq!(refused(&token), TokenFault::Algorithm(alg.to_owned()));
        }
        // The kind of the key and the algorithm have to agree.
        assert_eq!(refused(&key.signed(json!({"alg": "RS256", "kid": "a"}), &claims())), TokenFault::Signature);
        let crit = json!({"alg": "ES256", "kid": "a", "crit": ["b64"]});
        assert!(matches!(refused(&key.signed(crit, &claims())), TokenFault::Form(_)));
        let parts: Vec<&str> = right.split('.').collect();
        let unsigned = format!("{}.{}.", parts[0], parts[1]);
        let mut evil = claims();
        evil["sub"] = json!("2");
        let swapped = format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(evil.to_string()), parts[2]);
        assert_eq!((refused(&unsigned), refused(&swapped)), (TokenFault::Signature, TokenFault::Signature));
        for broken in ["", ".", "..", "a.b.c", &right[1..], &format!("{right}=")] {
            assert!(verified(broken, &keys, expected()).is_err(), "{broken}");
        }
        assert!(matches!(refused(&"a".repeat(TOKEN_BYTES_MAX + 1)), TokenFault::Form(_)));
    }

    // RFC 7515, appendix A.2: an RS256 signature of a real RSA key; its claims are none of an ID token.
    #[test]
    fn the_rs256_signature_of_rfc_7515_is_verified() {
        let key = ProviderKey::Rsa {
            n: URL_SAFE_NO_PAD
                .decode(
                    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yR\
                     T-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXB\
                     dQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9ia\
                     GNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
                )
                .expect("base64url"),
            e: vec![1, 0, 1],
        };
        let message = b"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let signature = URL_SAFE_NO_PAD
            .decode(
                "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdb\
                 F9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383\
                 LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWy\
                 wlVmtVrBp0igcN_IoypGlUPQGe77Rw",
            )
            .expect("base64url");
        assert!(is_signed(&key, "RS256", message, &signature));
        assert!(!is_signed(&key, "RS256", &message[1..], &signature) && !is_signed(&key, "ES256", message, &signature));
    }
}
