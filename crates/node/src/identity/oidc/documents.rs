//! What a provider says of itself: the discovery document (OpenID Connect Discovery 1.0) and its keys (JWKS, RFC 7517); pure.
//!
//! Invariants: a document counts only if it names the issuer that the settings name, byte by byte, so that no provider speaks for
//! another one; the places it names are https, or on this machine where the issuer is; keys of kinds that are not used are passed over,
//! and there are at most [`KEYS_MAX`] of the others.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::settings::check_url;

/// Most bytes of a document of a provider.
pub(super) const DOCUMENT_BYTES_MAX: usize = 256 << 10;

/// Most keys of a provider that are kept.
const KEYS_MAX: usize = 64;

/// Least and most bits of an RSA key: ring's bounds for verifying.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// Where a provider does what.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ProviderPlaces {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) jwks_uri: String,
    /// Where a browser signs out (RP-Initiated Logout 1.0), if anywhere.
    pub(super) end_session_endpoint: Option<String>,
}

impl ProviderPlaces {
    /// Reads a discovery document of an issuer. Errors: what is wrong with it.
    pub(super) fn read(document: &[u8], issuer: &str) -> Result<ProviderPlaces, String> {
        let places: ProviderPlaces = serde_json::from_slice(document)
            .map_err(|error| format!("the discovery document cannot be read: {error}"))?;
        if places.issuer != issuer {
            return Err(format!("the discovery document is of the issuer `{}`", shortened(&places.issuer)));
        }
        let is_here = check_url(issuer).is_ok_and(|url| !url.is_tls);
        for (name, place) in [
            ("authorization_endpoint", &places.authorization_endpoint),
            ("token_endpoint", &places.token_endpoint),
            ("jwks_uri", &places.jwks_uri),
        ]
        .into_iter()
        .chain(places.end_session_endpoint.as_ref().map(|place| ("end_session_endpoint", place)))
        {
            let url = check_url(place).map_err(|why| format!("{name} of the discovery document: {why}"))?;
            if !url.is_tls && !is_here {
                return Err(format!("{name} of the discovery document is without TLS"));
            }
        }
        Ok(places)
    }
}

/// A key by which tokens are verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProviderKey {
    /// For RS256: modulus and exponent.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// For ES256: the point, uncompressed.
    P256(Vec<u8>),
}

/// The keys of a provider, by their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProviderKeys(Vec<(Option<String>, ProviderKey)>);

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct StoredKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl ProviderKeys {
    /// Reads a set of keys. What is no key that is used here is passed over. Errors: it is no set of keys, or has none.
    pub(super) fn read(document: &[u8]) -> Result<ProviderKeys, String> {
        let set: KeySet =
            serde_json::from_slice(document).map_err(|error| format!("the provider's keys cannot be read: {error}"))?;
        let known = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).filter_map(key);
        let keys: Vec<_> = known.take(KEYS_MAX).collect();
        if keys.is_empty() {
            Err("the provider has no key for RS256 or ES256".to_owned())
        } else {
            Ok(ProviderKeys(keys))
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The keys that a token with this id may be verified by: the one of that id; without an id all, for providers with one key.
    pub(super) fn of<'k>(&'k self, kid: Option<&str>) -> Vec<&'k ProviderKey> {
        let is_it = |own: &Option<String>| kid.is_none() || own.as_deref() == kid;
        self.0.iter().filter(|(own, _)| is_it(own)).map(|(_, key)| key).collect()
    }
}

fn key(stored: StoredKey) -> Option<(Option<String>, ProviderKey)> {
    if stored.usage.as_deref().is_some_and(|usage| usage != "sig") {
        return None;
    }
    let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
    let is_for = |alg: &str| stored.alg.as_deref().is_none_or(|own| own == alg);
    let key = match stored.kty.as_str() {
        "RSA" if is_for("RS256") => {
            let n = bytes(stored.n)?;
            // ring demands numbers without zeros in front.
            let n: Vec<u8> = n.into_iter().skip_while(|byte| *byte == 0).collect();
            let e: Vec<u8> = bytes(stored.e)?.into_iter().skip_while(|byte| *byte == 0).collect();
            (RSA_BYTES.contains(&n.len()) && (1..=8).contains(&e.len())).then_some(ProviderKey::Rsa { n, e })?
        }
        "EC" if is_for("ES256") && stored.crv.as_deref() == Some("P-256") => {
            let (x, y) = (bytes(stored.x)?, bytes(stored.y)?);
            (x.len() == 32 && y.len() == 32).then(|| ProviderKey::P256([&[4][..], &x, &y].concat()))?
        }
        _ => return None,
    };
    Some((stored.kid, key))
}

/// The begin of a text of the provider, for a message.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(200).map(|own| if own.is_control() { ' ' } else { own }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_counts_for_its_own_issuer_and_names_places_with_tls() {
        let document = |issuer: &str, keys: &str| {
            format!(
                r#"{{"issuer": "{issuer}", "authorization_endpoint": "https://id.example.org/auth", "token_endpoint":
                "https://id.example.org/token", "jwks_uri": "{keys}", "claims_supported": ["sub"]}}"#
            )
        };
        let issuer = "https://id.example.org/realm";
        let read = |text: &str| ProviderPlaces::read(text.as_bytes(), issuer);
        let places = read(&document(issuer, "https://id.example.org/keys")).expect("it is one");
        assert_eq!(places.token_endpoint, "https://id.example.org/token");
        for wrong in [
            document("https://id.example.org/realm/", "https://id.example.org/keys"),
            document("https://evil.example.org", "https://id.example.org/keys"),
            document(issuer, "http://id.example.org/keys"),
            document(issuer, "http://127.0.0.1/keys"),
            document(issuer, "file:///etc/passwd"),
            "{}".to_owned(),
            "[".to_owned(),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_of_other_kinds_are_passed_over() {
        let n = URL_SAFE_NO_PAD.encode([&[0][..], &[0xab; 256]].concat());
        let point = URL_SAFE_NO_PAD.encode([7; 32]);
        let set = format!(
            r#"{{"keys": [{{"kty": "RSA", "kid": "a", "use": "sig", "n": "{n}", "e": "AQAB"}},
            {{"kty": "EC", "kid": "b", "crv": "P-256", "x": "{point}", "y": "{point}"}},
            {{"kty": "RSA", "kid": "c", "use": "enc", "n": "{n}", "e": "AQAB"}},
            {{"kty": "RSA", "kid": "d", "n": "AQAB", "e": "AQAB"}}, {{"kty": "oct", "k": "AQAB"}}, 7]}}"#
        );
        let keys = ProviderKeys::read(set.as_bytes()).expect("there are some");
        assert_eq!(keys.of(Some("a")), [&ProviderKey::Rsa { n: vec![0xab; 256], e: vec![1, 0, 1] }]);
        assert!(matches!(keys.of(Some("b"))[..], [ProviderKey::P256(point)] if point.len() == 65));
        assert_eq!((keys.of(Some("c")).len(), keys.of(Some("d")).len(), keys.of(None).len()), (0, 0, 2));
        assert!(ProviderKeys::read(br#"{"keys": []}"#).is_err() && ProviderKeys::read(b"[]").is_err());
    }
}
