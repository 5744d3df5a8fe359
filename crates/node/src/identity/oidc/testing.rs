//! A small provider for tests: its keys are drawn, its documents and tokens real, its socket on this machine. Who comes is ann.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::documents::ProviderKeys;
pub(in crate::identity) use super::provider::AWAY_SECONDS;
use super::{OidcProvider, OidcSettings};
use crate::Clock;
use crate::identity::SecretPlace;
use crate::task;

/// What a test looks at or changes.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A key of a provider that the test makes.
pub(crate) struct SigningKey {
    pair: EcdsaKeyPair,
    kid: String,
}

impl SigningKey {
    pub(crate) fn new(kid: &str) -> SigningKey {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("randomness");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random);
        SigningKey { pair: pair.expect("it is a key"), kid: kid.to_owned() }
    }

    /// As in a set of keys.
    pub(crate) fn shown(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.kid, "x": x, "y": y})
    }

    pub(in crate::identity::oidc) fn keys(&self) -> ProviderKeys {
        ProviderKeys::read(json!({"keys": [self.shown()]}).to_string().as_bytes()).expect("there is one")
    }

    pub(crate) fn signed(&self, header: Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).expect("it signs");
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.signed(json!({"alg": "ES256", "typ": "JWT", "kid": self.kid}), claims)
    }
}

/// The time of a test's provider.
pub(crate) const NOW_US: i64 = 1_800_000_000_000_000;

/// What the provider of a test does.
pub(crate) struct TestProvider {
    pub(crate) issuer: String,
    pub(crate) key: Mutex<SigningKey>,
    /// Changes the claims of tokens.
    pub(crate) changed: Mutex<BTreeMap<&'static str, Value>>,
    /// Sent in place of the discovery document.
    pub(crate) document: Mutex<Option<Vec<u8>>>,
    /// Status and body that the token endpoint sends in place of a token.
    pub(crate) refusal: Mutex<Option<(u16, Vec<u8>)>>,
    /// Challenge and nonce of each code.
    pub(crate) codes: Mutex<HashMap<String, (String, String)>>,
    /// Headers of authorization at the token endpoint.
    pub(crate) authorizations: Mutex<Vec<String>>,
    pub(crate) keys_read: Mutex<u32>,
    pub(crate) clock: Clock,
}

impl TestProvider {
    pub(crate) async fn start() -> Arc<TestProvider> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let issuer = format!("http://{}/realm", listener.local_addr().expect("it is bound"));
        let made = Arc::new(TestProvider {
            issuer,
            key: Mutex::new(SigningKey::new("a")),
            changed: Mutex::default(),
            document: Mutex::default(),
            refusal: Mutex::default(),
            codes: Mutex::default(),
            authorizations: Mutex::default(),
            keys_read: Mutex::default(),
            clock: Clock::fixed(NOW_US),
        });
        let serving = Arc::clone(&made);
        let accepting = async move {
            let mut sessions = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                sessions.spawn(Arc::clone(&serving).serve(socket));
            }
        };
        // It ends with the runtime of the test.
        drop(task::session("test provider", accepting));
        made
    }

    /// A node that knows it.
    pub(crate) fn node(self: &Arc<Self>, change: impl FnOnce(&mut OidcSettings)) -> OidcProvider {
        let mut settings = OidcSettings {
            issuer: self.issuer.clone(),
            client_id: "terrace".into(),
            client_secret: Some(SecretPlace::Variable("PATH".into())),
            redirect_url: "http://127.0.0.1/back".into(),
            group_claim: Some("groups".into()),
            roles: BTreeMap::from([("doctors".to_owned(), vec!["doctors".to_owned()])]),
            timeout: Duration::from_millis(500),
            ..OidcSettings::default()
        };
        change(&mut settings);
        OidcProvider::new(settings, self.clock.clone()).expect("they can work")
    }

    /// What the provider does with a browser that comes: it logs ann in, and returns a code and the state.
    pub(crate) fn visited(&self, redirect: &str) -> (String, String) {
        let query: HashMap<&str, &str> =
            redirect.split_once('?').expect("a query").1.split('&').filter_map(|pair| pair.split_once('=')).collect();
        assert_eq!((query["response_type"], query["client_id"]), ("code", "terrace"));
        assert_eq!((query["code_challenge_method"], query["scope"]), ("S256", "openid%20profile"));
        let code = format!("code/{}", query["state"]);
        let kept = (query["code_challenge"].to_owned(), query["nonce"].to_owned());
        locked(&self.codes).insert(code.clone(), kept);
        (code, query["state"].to_owned())
    }

    async fn serve(self: Arc<Self>, mut socket: TcpStream) {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        let (head, body) = loop {
            let count = socket.read(&mut part).await.unwrap_or(0);
            if count == 0 {
                return;
            }
            bytes.extend_from_slice(&part[..count]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                break (head.to_owned(), body.to_owned());
            }
        };
        let target = head.split(' ').nth(1).unwrap_or_default();
        let (status, body) = match target {
            "/realm/.well-known/openid-configuration" => (200, self.discovery()),
            "/realm/keys" => {
                *locked(&self.keys_read) += 1;
                (200, json!({"keys": [locked(&self.key).shown()]}).to_string().into_bytes())
            }
            "/realm/token" => self.token(&head, &body),
            _ => (404, Vec::new()),
        };
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _ = socket.write_all(&[head.as_bytes(), &body].concat()).await;
    }

    fn discovery(&self) -> Vec<u8> {
        if let Some(document) = locked(&self.document).clone() {
            return document;
        }
        let place = |name: &str| format!("{}/{name}", self.issuer);
        json!({"issuer": self.issuer, "authorization_endpoint": place("authorize"), "token_endpoint": place("token"),
            "jwks_uri": place("keys"), "end_session_endpoint": place("logout")})
        .to_string()
        .into_bytes()
    }

    fn token(&self, head: &str, body: &str) -> (u16, Vec<u8>) {
        let authorization = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization: "));
        locked(&self.authorizations).extend(authorization.map(str::to_owned));
        if let Some(refusal) = locked(&self.refusal).clone() {
            return refusal;
        }
        let fields: HashMap<&str, &str> = body.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let code = fields["code"].replace("%2F", "/");
        let kept = locked(&self.codes).remove(&code);
        let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, fields["code_verifier"].as_bytes()));
        let Some((_, nonce)) = kept.filter(|(own, _)| *own == challenge) else {
            return (400, br#"{"error": "invalid_grant"}"#.to_vec());
        };
        let now = self.clock.now_us() / 1_000_000;
        let mut claims = json!({"iss": self.issuer, "sub": "1", "aud": "terrace", "exp": now + 300, "iat": now,
            "nonce": nonce, "preferred_username": "ann", "groups": ["doctors", "others"]});
        for (name, value) in locked(&self.changed).iter() {
            claims[*name] = value.clone();
        }
        let token = locked(&self.key).token(&claims);
        (200, json!({"access_token": "x", "token_type": "Bearer", "id_token": token}).to_string().into_bytes())
    }
}
