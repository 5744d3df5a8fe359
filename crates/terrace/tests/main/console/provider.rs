//! A provider of logins (OpenID Connect) on this machine, as small as can be: real documents, real tokens by a drawn key, over real HTTP.
//! Who comes is who the test says, and each part of a token can be made wrong.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use node::Clock;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::browser::Browser;

/// What the node knows as its secret at the provider.
pub(super) const SECRET: &str = "a secret of the client";

/// Challenge, nonce, and where the browser goes, of a code.
type Begun = (String, String, String);

/// See the module's text.
pub(super) struct Provider {
    pub(super) issuer: String,
    key: EcdsaKeyPair,
    /// Claims of who comes, over those that every token has.
    claims: Mutex<BTreeMap<&'static str, Value>>,
    /// What the header of a token says its algorithm is.
    algorithm: Mutex<&'static str>,
    codes: Mutex<HashMap<String, Begun>>,
}

/// The fields of a query or a form.
fn fields(text: &str) -> HashMap<String, String> {
    let decoded = |value: &str| {
        let mut parts = value.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        }
        String::from_utf8(bytes).expect("text")
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

impl Provider {
    pub(super) fn start() -> Arc<Provider> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("randomness");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).expect("a key");
        let provider = Arc::new(Provider {
            issuer: format!("http://{}/realm", listener.local_addr().expect("it is bound")),
            key,
            claims: Mutex::default(),
            algorithm: Mutex::new("ES256"),
            codes: Mutex::default(),
        });
        let serving = Arc::clone(&provider);
        // It ends with the process of the test.
        thread::spawn(move || listener.incoming().filter_map(Result::ok).for_each(|stream| serving.serve(stream)));
        provider
    }

    /// From now on this one comes, with these groups.
    pub(super) fn comes(&self, user: &str, subject: &str, groups: &[&str]) {
        let claims = [("preferred_username", json!(user)), ("sub", json!(subject)), ("groups", json!(groups))];
        *self.claims.lock().expect("nobody panicked") = BTreeMap::from(claims);
        *self.algorithm.lock().expect("nobody panicked") = "ES256";
    }

    /// From now on its tokens have this claim.
    pub(super) fn lies(&self, claim: &'static str, value: Value) {
        self.claims.lock().expect("nobody panicked").insert(claim, value);
    }

    /// From now on its tokens say that they are signed by this algorithm.
    pub(super) fn signs_by(&self, algorithm: &'static str) {
        *self.algorithm.lock().expect("nobody panicked") = algorithm;
    }

    /// A browser goes to the provider, and comes back with this address of the console.
    pub(super) fn visited(&self, address: &str) -> String {
        let target = address.strip_prefix(self.issuer.trim_end_matches("/realm")).expect("an address of the provider");
        let authority = self.issuer.trim_start_matches("http://").trim_end_matches("/realm").to_owned();
        let page = Browser::at(authority.parse().expect("an address")).send("GET", target, "").is(302);
        let back = page.headers["location"].clone();
        back.strip_prefix("http://127.0.0.1:8480").expect("the address of the settings").to_owned()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
        let (mut first, mut length, mut secret) = (String::new(), 0, String::new());
        if reader.read_line(&mut first).is_err() {
            return;
        }
        loop {
            let mut line = String::new();
            let Ok(1..) = reader.read_line(&mut line) else { return };
            match line.trim_end().to_owned().split_once(": ") {
                None => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().unwrap_or(0)
                }
                Some((name, value)) if name.eq_ignore_ascii_case("authorization") => secret = value.to_owned(),
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let target = first.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (status, location, body) = match path {
            "/realm/.well-known/openid-configuration" => (200, None, self.discovery()),
            "/realm/keys" => (200, None, self.keys()),
            "/realm/authorize" => (302, Some(self.authorized(&fields(query))), Value::Null),
            "/realm/token" => self.token(&fields(&String::from_utf8_lossy(&body)), &secret),
            _ => (404, None, Value::Null),
        };
        let location = location.map(|to| format!("Location: {to}\r\n")).unwrap_or_default();
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {status} X\r\n{location}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        // A node that has ended does not read it.
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
    }

    fn discovery(&self) -> Value {
        let place = |name: &str| format!("{}/{name}", self.issuer);
        json!({"issuer": self.issuer, "authorization_endpoint": place("authorize"), "token_endpoint": place("token"),
            "jwks_uri": place("keys"), "end_session_endpoint": place("logout")})
    }

    fn keys(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..]));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "use": "sig", "kid": "a", "x": x, "y": y}]})
    }

    /// Where a browser is sent back to.
    fn authorized(&self, asked: &HashMap<String, String>) -> String {
        assert_eq!((&*asked["response_type"], &*asked["client_id"]), ("code", "terrace"));
        assert_eq!((&*asked["code_challenge_method"], &*asked["scope"]), ("S256", "openid profile"));
        let (state, back) = (asked["state"].clone(), asked["redirect_uri"].clone());
        let begun = (asked["code_challenge"].clone(), asked["nonce"].clone(), back.clone());
        let mut codes = self.codes.lock().expect("nobody panicked");
        let code = format!("code-{}", codes.len());
        codes.insert(code.clone(), begun);
        format!("{back}?code={code}&state={state}")
    }

    fn token(&self, asked: &HashMap<String, String>, secret: &str) -> (u16, Option<String>, Value) {
        let refused = |why: &str| (400, None, json!({"error": why}));
        let expected = format!("Basic {}", STANDARD.encode(format!("terrace:{}", SECRET.replace(' ', "%20"))));
        if secret != expected {
            return refused("invalid_client");
        }
        // A code counts once: its entry stays, so that codes are numbered on, and is empty.
        let found = self.codes.lock().expect("nobody panicked").get_mut(&asked["code"]).map(std::mem::take);
        let challenge = BASE64.encode(digest::digest(&digest::SHA256, asked["code_verifier"].as_bytes()));
        match found {
            Some((own, nonce, back)) if own == challenge && back == asked["redirect_uri"] => {
                (200, None, json!({"access_token": "x", "token_type": "Bearer", "id_token": self.signed(&nonce)}))
            }
            _ => refused("invalid_grant"),
        }
    }

    fn signed(&self, nonce: &str) -> String {
        let now = Clock::system().now_us() / 1_000_000;
        let mut claims = json!({"iss": self.issuer, "aud": "terrace", "exp": now + 300, "iat": now, "nonce": nonce});
        for (name, value) in self.claims.lock().expect("nobody panicked").iter() {
            claims[*name] = value.clone();
        }
        let header = json!({"alg": *self.algorithm.lock().expect("nobody panicked"), "kid": "a"});
        let text = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes()).expect("it signs");
        format!("{text}.{}", BASE64.encode(signature.as_ref()))
    }
}
