//! The body of the fuzz target of a provider's documents and tokens: what must hold for any bytes at all.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::documents::{ProviderKeys, ProviderPlaces};
use super::id_token::{self, Expected, verified};
use super::settings::{OidcSettings, check_url};

/// The key of RFC 7515, appendix A.3, which signs nothing here.
const KEYS: &[u8] = br#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// Reads the bytes as a discovery document and as keys; as text they are an address, which has no blanks and is https or of this machine, and
/// a token, which no key has signed; as an object they are claims.
pub fn provider(input: &[u8]) {
    let issuer = "https://id.example.org";
    let expected = Expected { issuer, client_id: "terrace", nonce: "n", now: 1_800_000_000 };
    if let Ok(places) = ProviderPlaces::read(input, issuer) {
        assert!(places.token_endpoint.starts_with("https://"), "{}", places.token_endpoint);
    }
    if let Ok(keys) = ProviderKeys::read(input) {
        assert!(keys.count() > 0 && keys.of(None).len() == keys.count());
    }
    if let Ok(Value::Object(claims)) = serde_json::from_slice(input) {
        let settings = OidcSettings {
            group_claim: Some("groups".to_owned()),
            roles: BTreeMap::from([("doctors".to_owned(), vec!["doctors".to_owned()])]),
            ..OidcSettings::default()
        };
        let is_right = id_token::check(&claims, expected).is_ok();
        let identity = OidcSettings::subject(&claims).and_then(|_| settings.identity(&claims));
        assert!(!is_right || claims["iss"] == issuer, "{claims:?}");
        assert!(identity.is_err() || claims.contains_key("sub"), "{claims:?}");
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(url) = check_url(text) {
        let own = url.host.parse::<IpAddr>();
        let is_here =
            url.host.eq_ignore_ascii_case("localhost") || own.is_ok_and(|own| own.to_canonical().is_loopback());
        assert!(url.is_tls || is_here, "{text}");
        assert!(!url.host.contains(char::is_whitespace) && !url.target.contains(char::is_whitespace), "{text:?}");
    }
    let keys = ProviderKeys::read(KEYS).unwrap_or_default();
    assert!(keys.count() == 1 && verified(text, &keys, expected).is_err(), "nobody signed {text:?}");
}
