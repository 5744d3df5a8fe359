//! [`OidcProvider`]: begins logins and finishes them; knows the provider's places and keys, and asks for them anew when it has to.
//!
//! Invariants: places and keys are read when they are first needed, so a provider that is away stops no start of the node; they are read
//! again after [`PLACES_SECONDS`], and keys also when a token names one that is not known, but not more often than every
//! [`KEYS_AGAIN_SECONDS`]: nobody makes the node ask by inventing ids. What failed tells the log why and the browser nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use tokio_rustls::rustls::ClientConfig;

use super::documents::{DOCUMENT_BYTES_MAX, ProviderKeys, ProviderPlaces, shortened};
use super::flow::{LoginRandom, PendingLogin, PendingLogins};
use super::http::{Asking, request};
use super::id_token::{Expected, TOKEN_BYTES_MAX, TokenFault, verified};
use super::settings::{OidcSettings, OidcSettingsError};
use crate::Clock;
use crate::tls::{self, TlsError};

/// How long places and keys are kept.
const PLACES_SECONDS: i64 = 3600;

/// How often keys are asked for because a token names an unknown one.
const KEYS_AGAIN_SECONDS: i64 = 30;

/// Most bytes of a code, and of a state, that a browser brings.
const BROUGHT_BYTES_MAX: usize = 4096;

/// A login that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcBegun {
    /// Where the browser is sent.
    pub redirect: String,
    /// What has to come back with the code. The console also keeps it in a cookie of this browser, and compares: a state that another
    /// browser began must not be finished here.
    pub state: String,
}

/// Who a provider says somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcIdentity {
    /// The user's name here.
    pub user: String,
    /// The roles of its groups.
    pub roles: BTreeSet<String>,
}

/// Why a login did not begin or was not finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// The state is not one of a login that waits: begin again.
    #[error("the login is not known any more: begin again")]
    State,
    /// The provider cannot be asked, or its answer is none: see the log.
    #[error("the provider cannot be asked: {0}")]
    Away(String),
    /// The provider, or its token, does not say who it is.
    #[error("the login was refused: {0}")]
    Refused(String),
    /// The system returned no random bytes.
    #[error("the system returned no random bytes")]
    Randomness,
}

/// What is known of the provider.
#[derive(Debug, Clone)]
struct KnownProvider {
    places: Arc<ProviderPlaces>,
    keys: Arc<ProviderKeys>,
    read: i64,
}

/// A provider.
#[derive(Debug)]
pub struct OidcProvider {
    settings: OidcSettings,
    tls: Option<Arc<ClientConfig>>,
    clock: Clock,
    pending: Mutex<PendingLogins>,
    known: Mutex<Option<KnownProvider>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

#[derive(Deserialize)]
struct TokenRefusal {
    error: String,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panicked while it was held left whole values.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OidcProvider {
    /// A provider by these settings. Asks nothing yet.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(settings: OidcSettings, clock: Clock) -> Result<OidcProvider, OidcSettingsError> {
        settings.check()?;
        let wrong = |error: TlsError| OidcSettingsError { key: "authority", problem: error.to_string() };
        let tls = settings.authority.as_deref().map(tls::client_config).transpose().map_err(wrong)?.map(Arc::new);
        Ok(OidcProvider { settings, tls, clock, pending: Mutex::default(), known: Mutex::default() })
    }

    fn now(&self) -> i64 {
        self.clock.now_us() / 1_000_000
    }

    /// Begins a login.
    ///
    /// # Errors
    /// [`OidcError::Away`], [`OidcError::Randomness`].
    pub async fn begin(&self) -> Result<OidcBegun, OidcError> {
        let places = self.known().await?.places;
        let mut random: LoginRandom = [0; 96];
        SystemRandom::new().fill(&mut random).map_err(|_| OidcError::Randomness)?;
        let (state, login) = locked(&self.pending).begin(&random, self.now());
        let scope = ["openid"].into_iter().chain(self.settings.scopes.iter().map(String::as_str));
        let scope: Vec<&str> = scope.collect();
        let query = form(&[
            ("response_type", "code"),
            ("client_id", self.settings.client_id.as_str()),
            ("redirect_uri", self.settings.redirect_url.as_str()),
            ("scope", scope.join(" ").as_str()),
            ("state", state.as_str()),
            ("nonce", login.nonce.as_str()),
            ("code_challenge", login.challenge().as_str()),
            ("code_challenge_method", "S256"),
        ]);
        let place = &places.authorization_endpoint;
        let separator = if place.contains('?') { '&' } else { '?' };
        Ok(OidcBegun { redirect: format!("{place}{separator}{query}"), state })
    }

    /// Finishes a login by what the browser brought back.
    ///
    /// # Errors
    /// [`OidcError`]; the state is used up in any case.
    pub async fn finish(&self, code: &str, state: &str) -> Result<OidcIdentity, OidcError> {
        let login = locked(&self.pending).take(state, self.now()).ok_or(OidcError::State)?;
        if code.is_empty() || code.len() > BROUGHT_BYTES_MAX {
            return Err(OidcError::Refused("the code is none".to_owned()));
        }
        let known = self.known().await?;
        let token = self.token(&known.places, code, &login).await?;
        let expected = Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: &login.nonce,
            now: self.now(),
        };
        let claims = match verified(&token, &known.keys, expected) {
            Err(TokenFault::UnknownKey) => verified(&token, &self.keys_again(known).await?, expected),
            ended => ended,
        };
        let refused = |why: String| {
            tracing::warn!(why, "a login by the provider was refused");
            OidcError::Refused(why)
        };
        let claims = claims.map_err(|error| refused(error.to_string()))?;
        let (user, roles) = self.settings.identity(&claims).map_err(refused)?;
        Ok(OidcIdentity { user, roles })
    }

    /// The ID token for a code.
    async fn token(&self, places: &ProviderPlaces, code: &str, login: &PendingLogin) -> Result<String, OidcError> {
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.settings.redirect_url.as_str()),
            ("client_id", self.settings.client_id.as_str()),
            ("code_verifier", login.verifier.as_str()),
        ];
        let authorization = match self.settings.client_secret.clone() {
            None => None,
            Some(place) => {
                let read = tokio::task::spawn_blocking(move || place.read()).await;
                let secret = read.unwrap_or_else(|_| Err("the node is stopping".to_owned())).map_err(away)?;
                // RFC 6749, 2.3.1: both are written as in a form first.
                let pair = format!("{}:{}", encoded(&self.settings.client_id), encoded(&secret));
                fields.retain(|(name, _)| *name != "client_id");
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
        };
        let asking = Asking::Form { body: form(&fields), authorization: authorization.as_deref() };
        let bounds = (self.settings.timeout, TOKEN_BYTES_MAX * 2);
        let (status, body) = request(&places.token_endpoint, asking, self.tls.as_ref(), bounds).await.map_err(away)?;
        if status == 200 {
            let answer: TokenAnswer = serde_json::from_slice(&body).map_err(|error| away(error.to_string()))?;
            return Ok(answer.id_token);
        }
        let refusal: Option<TokenRefusal> = serde_json::from_slice(&body).ok();
        let why = refusal.map_or_else(|| format!("status {status}"), |refusal| shortened(&refusal.error));
        tracing::warn!(why, "the provider gives no token for a code");
        Err(OidcError::Refused(format!("the provider: {why}")))
    }

    /// Places and keys, as they are known or read now.
    async fn known(&self) -> Result<KnownProvider, OidcError> {
        let now = self.now();
        let known = locked(&self.known).clone();
        if let Some(known) = known.filter(|known| (0..PLACES_SECONDS).contains(&now.saturating_sub(known.read))) {
            return Ok(known);
        }
        let place = format!("{}/.well-known/openid-configuration", self.settings.issuer.trim_end_matches('/'));
        let document = self.document(&place).await?;
        let places = ProviderPlaces::read(&document, &self.settings.issuer).map_err(away)?;
        let keys = ProviderKeys::read(&self.document(&places.jwks_uri).await?).map_err(away)?;
        let known = KnownProvider { places: Arc::new(places), keys: Arc::new(keys), read: now };
        *locked(&self.known) = Some(known.clone());
        Ok(known)
    }

    /// The keys, read again if that has not just been done.
    async fn keys_again(&self, known: KnownProvider) -> Result<Arc<ProviderKeys>, OidcError> {
        let now = self.now();
        if now.saturating_sub(known.read) < KEYS_AGAIN_SECONDS {
            return Ok(known.keys);
        }
        let keys = Arc::new(ProviderKeys::read(&self.document(&known.places.jwks_uri).await?).map_err(away)?);
        *locked(&self.known) = Some(KnownProvider { keys: Arc::clone(&keys), read: now, ..known });
        Ok(keys)
    }

    async fn document(&self, place: &str) -> Result<bytes::Bytes, OidcError> {
        let bounds = (self.settings.timeout, DOCUMENT_BYTES_MAX);
        match request(place, Asking::Document, self.tls.as_ref(), bounds).await {
            Ok((200, body)) => Ok(body),
            Ok((status, _)) => Err(away(format!("{place}: status {status}"))),
            Err(why) => Err(away(format!("{place}: {why}"))),
        }
    }
}

fn away(why: String) -> OidcError {
    tracing::warn!(why, "the provider of logins cannot be asked");
    OidcError::Away(why)
}

/// A text as it stands in a form or a query.
fn encoded(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => made.push(char::from(byte)),
            _ => made.push_str(&format!("%{byte:02X}")),
        }
    }
    made
}

fn form(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    fields.join("&")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::time::Duration;

    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::digest;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::id_token::tests::SigningKey;
    use super::*;
    use crate::identity::SecretPlace;

    const NOW_US: i64 = 1_800_000_000_000_000;

    /// What the provider of a test does.
    struct TestProvider {
        issuer: String,
        key: Mutex<SigningKey>,
        /// Changes the claims of tokens.
        changed: Mutex<BTreeMap<&'static str, Value>>,
        /// Sent in place of the discovery document.
        document: Mutex<Option<Vec<u8>>>,
        /// Challenge and nonce of each code.
        codes: Mutex<HashMap<String, (String, String)>>,
        /// Headers of authorization at the token endpoint.
        authorizations: Mutex<Vec<String>>,
        keys_read: Mutex<u32>,
        clock: Clock,
    }

    impl TestProvider {
        async fn start() -> Arc<TestProvider> {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let issuer = format!("http://{}/realm", listener.local_addr().expect("it is bound"));
            let made = Arc::new(TestProvider {
                issuer,
                key: Mutex::new(SigningKey::new("a")),
                changed: Mutex::default(),
                document: Mutex::default(),
                codes: Mutex::default(),
                authorizations: Mutex::default(),
                keys_read: Mutex::default(),
                clock: Clock::fixed(NOW_US),
            });
            let serving = Arc::clone(&made);
            tokio::spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    tokio::spawn(Arc::clone(&serving).serve(socket));
                }
            });
            made
        }

        fn node(self: &Arc<Self>) -> OidcProvider {
            let settings = OidcSettings {
                issuer: self.issuer.clone(),
                client_id: "terrace".into(),
                client_secret: Some(SecretPlace::Variable("PATH".into())),
                redirect_url: "http://127.0.0.1/back".into(),
                group_claim: Some("groups".into()),
                roles: BTreeMap::from([("doctors".to_owned(), vec!["doctors".to_owned()])]),
                timeout: Duration::from_millis(500),
                ..OidcSettings::default()
            };
            OidcProvider::new(settings, self.clock.clone()).expect("they can work")
        }

        /// What the provider does with a browser that comes: it logs ann in and returns a code.
        fn visited(&self, redirect: &str) -> String {
            let query: HashMap<&str, &str> = redirect
                .split_once('?')
                .expect("a query")
                .1
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .collect();
            assert_eq!((query["response_type"], query["client_id"]), ("code", "terrace"));
            assert_eq!((query["code_challenge_method"], query["scope"]), ("S256", "openid%20profile"));
            let code = format!("code/{}", query["state"]);
            let kept = (query["code_challenge"].to_owned(), query["nonce"].to_owned());
            locked(&self.codes).insert(code.clone(), kept);
            code
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
                let length = head
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
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
                "jwks_uri": place("keys")})
            .to_string()
            .into_bytes()
        }

        fn token(&self, head: &str, body: &str) -> (u16, Vec<u8>) {
            let authorization = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization: "));
            locked(&self.authorizations).extend(authorization.map(str::to_owned));
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

    #[tokio::test]
    async fn a_browser_comes_back_as_who_the_provider_says() {
        let provider = TestProvider::start().await;
        let node = provider.node();
        let begun = node.begin().await.expect("it is there");
        let code = provider.visited(&begun.redirect);
        let identity = node.finish(&code, &begun.state).await.expect("it is right");
        assert_eq!(identity, OidcIdentity { user: "ann".into(), roles: BTreeSet::from(["doctors".to_owned()]) });
        let secret = std::env::var("PATH").expect("it is there");
        let basic = STANDARD.encode(format!("terrace:{}", encoded(&secret)));
        let sent = locked(&provider.authorizations).clone();
        assert!(sent.iter().all(|line| line.split(' ').next_back() == Some(&basic)) && sent.len() == 1, "{sent:?}");
    }

    #[tokio::test]
    async fn a_state_or_code_that_is_not_ones_own_or_was_used_is_refused() {
        let provider = TestProvider::start().await;
        let node = provider.node();
        let (one, other) = (node.begin().await.expect("it is there"), node.begin().await.expect("it is there"));
        let code = provider.visited(&one.redirect);
        assert_eq!(node.finish(&code, "nothing").await, Err(OidcError::State));
        // The code of one browser with the state of another: PKCE's verifier is not that of its begin.
        assert!(matches!(node.finish(&code, &other.state).await, Err(OidcError::Refused(_))));
        let code = provider.visited(&one.redirect);
        assert!(node.finish(&code, &one.state).await.is_ok());
        assert_eq!(node.finish(&code, &one.state).await, Err(OidcError::State));
        let late = node.begin().await.expect("it is there");
        let code = provider.visited(&late.redirect);
        provider.clock.set(NOW_US + 601_000_000);
        assert_eq!(node.finish(&code, &late.state).await, Err(OidcError::State));
    }

    #[tokio::test]
    async fn a_token_that_says_something_else_is_refused() {
        let provider = TestProvider::start().await;
        let node = provider.node();
        for (name, value) in [
            ("nonce", json!("another")),
            ("iss", json!("https://evil.example.org")),
            ("aud", json!("another")),
            ("exp", json!(1)),
            ("preferred_username", json!("terrace_local")),
        ] {
            *locked(&provider.changed) = BTreeMap::from([(name, value)]);
            let begun = node.begin().await.expect("it is there");
            let code = provider.visited(&begun.redirect);
            assert!(matches!(node.finish(&code, &begun.state).await, Err(OidcError::Refused(_))), "{name}");
        }
    }

    #[tokio::test]
    async fn a_new_key_of_the_provider_is_found_and_its_keys_are_not_asked_for_without_end() {
        let provider = TestProvider::start().await;
        let node = provider.node();
        let log_in = async || {
            let begun = node.begin().await.expect("it is there");
            let code = provider.visited(&begun.redirect);
            node.finish(&code, &begun.state).await
        };
        assert!(log_in().await.is_ok());
        *locked(&provider.key) = SigningKey::new("b");
        for _ in 0..5 {
            assert!(log_in().await.is_err(), "the keys were read a moment ago");
        }
        assert_eq!(*locked(&provider.keys_read), 1);
        provider.clock.set(NOW_US + KEYS_AGAIN_SECONDS * 1_000_000);
        assert!(log_in().await.is_ok());
        assert_eq!(*locked(&provider.keys_read), 2);
        provider.clock.set(NOW_US + 2 * PLACES_SECONDS * 1_000_000);
        assert!(log_in().await.is_ok());
        assert_eq!(*locked(&provider.keys_read), 3);
    }

    #[tokio::test]
    async fn a_provider_that_is_away_hangs_or_sends_too_much_is_an_error_within_its_time() {
        let provider = TestProvider::start().await;
        for document in [b"{".to_vec(), b"{}".to_vec(), vec![b' '; DOCUMENT_BYTES_MAX + 1]] {
            *locked(&provider.document) = Some(document);
            assert!(matches!(provider.node().begin().await, Err(OidcError::Away(_))));
        }
        *locked(&provider.document) = None;
        assert!(provider.node().begin().await.is_ok());
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let settings = OidcSettings {
            issuer: format!("http://{}", silent.local_addr().expect("it is bound")),
            client_id: "terrace".into(),
            redirect_url: "http://127.0.0.1/back".into(),
            timeout: Duration::from_millis(100),
            ..OidcSettings::default()
        };
        let node = OidcProvider::new(settings, Clock::fixed(NOW_US)).expect("they can work");
        assert!(matches!(node.begin().await, Err(OidcError::Away(_))));
    }
}
