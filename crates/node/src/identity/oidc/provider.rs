//! [`OidcProvider`]: begins logins and finishes them; knows the provider's places and keys, and asks for them anew when it has to.
//!
//! Invariants: places and keys are read when they are first needed, so a provider that is away stops no start of the node; they are read
//! again after [`PLACES_SECONDS`], and keys also when a token names one that is not known, but not more often than every
//! [`KEYS_AGAIN_SECONDS`]: nobody makes the node ask by inventing ids. One request at a time asks for them, and after a failure none
//! for [`AWAY_SECONDS`]. At most [`TURNS`] logins are finished at a time, each within [`LOGIN_TIME`], and at most [`WAITING_MAX`] wait
//! for the provider in any way: one that hangs holds up none of who comes by a password. What failed tells the log why and the browser
//! nothing.
//!
//! A login is refused for what its browser did: a code that is none, a token with the nonce of another login. What only the provider or
//! the settings can have done (a client that it does not know, a signature that is wrong, a clock) is [`OidcError::Away`], which an
//! operator sees, and no failure of who wanted to log in.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use super::documents::{DOCUMENT_BYTES_MAX, ProviderKeys, ProviderPlaces, shortened};
use super::flow::{LoginRandom, PendingLogin, PendingLogins};
use super::http::{Asking, request};
use super::id_token::{Expected, TOKEN_BYTES_MAX, TokenFault, verified};
use super::settings::{OidcSettings, OidcSettingsError};
use crate::Clock;
use crate::tls::{self, TlsError};

/// How long places and keys are kept.
pub(super) const PLACES_SECONDS: i64 = 3600;

/// How often keys are asked for because a token names an unknown one.
pub(super) const KEYS_AGAIN_SECONDS: i64 = 30;

/// How long a provider that is away is not asked again for its places.
pub(in crate::identity) const AWAY_SECONDS: i64 = 5;

/// How long a failure is a trouble, if nobody tries again: nothing asks the provider but logins.
pub(super) const TROUBLE_SECONDS: i64 = 900;

/// Most bytes of a code that a browser brings.
const CODE_BYTES_MAX: usize = 4096;

/// Logins that are finished at a time.
const TURNS: usize = 8;

/// Requests that wait for the provider at a time; more are turned away at once. The console has turns for twice as many.
pub(super) const WAITING_MAX: usize = 16;

/// How long one waits for its turn.
const TURN_TIME: Duration = Duration::from_secs(2);

/// The longest that it takes to finish a login: one that takes 10 s has failed for the throttle.
const LOGIN_TIME: Duration = Duration::from_secs(8);

/// The longest ID token that is kept for a sign-out at the provider.
const HINT_BYTES_MAX: usize = 8 << 10;

/// A login that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcBegun {
    /// Where the browser is sent.
    pub redirect: String,
    /// What this browser keeps in a cookie and brings back: without it nobody finishes the login.
    pub secret: String,
}

/// What a browser brings back from the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OidcReturn<'a> {
    /// The state of the address.
    pub state: &'a str,
    /// The secret of the cookie.
    pub secret: &'a str,
    /// The code; `None`: the provider gave none.
    pub code: Option<&'a str>,
    /// Why it gave none.
    pub error: Option<&'a str>,
    /// Who says that it is the provider (RFC 9207), where it is said.
    pub issuer: Option<&'a str>,
}

/// An ID token, for a sign-out at the provider. It is about a person: shown nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct OidcToken(Arc<str>);

impl OidcToken {
    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OidcToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OidcToken(..)")
    }
}

/// Who a provider says somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcIdentity {
    /// The user's name here.
    pub user: String,
    /// Who it is at the provider.
    pub subject: String,
    /// The roles of its groups.
    pub roles: BTreeSet<String>,
    /// Where in the port the browser goes to.
    pub back_to: String,
    /// The token, which a sign-out at the provider shows; `None` where it is too long to be kept.
    pub token: Option<OidcToken>,
}

/// Why a login did not begin or was not finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// The state is not one of a login of this browser that waits: begin again.
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
    keys_read: i64,
}

/// A provider.
#[derive(Debug)]
pub struct OidcProvider {
    settings: OidcSettings,
    tls: Option<Arc<ClientConfig>>,
    clock: Clock,
    pending: Mutex<PendingLogins>,
    known: Mutex<Option<KnownProvider>>,
    /// When it could not be asked, and why.
    trouble: Mutex<Option<(i64, String)>>,
    /// Held while places and keys are asked for.
    asking: tokio::sync::Mutex<()>,
    waiting: Semaphore,
    turns: Semaphore,
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
        let tls = match &settings.authority {
            Some(file) => Some(tls::client_config(file).map_err(wrong)?),
            None if settings.issuer.starts_with("https://") => Some(tls::client_config_of_system().map_err(wrong)?),
            None => None,
        };
        Ok(OidcProvider {
            settings,
            tls: tls.map(Arc::new),
            clock,
            pending: Mutex::default(),
            known: Mutex::default(),
            trouble: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
            turns: Semaphore::new(TURNS),
        })
    }

    /// What people call the provider.
    pub fn title(&self) -> String {
        self.settings.shown_title()
    }

    /// Its settings.
    pub fn settings(&self) -> &OidcSettings {
        &self.settings
    }

    /// What keeps the provider from being asked; `None`: it answered the last time, or that is long ago.
    pub fn trouble(&self) -> Option<String> {
        let (at, why) = locked(&self.trouble).clone()?;
        (0..TROUBLE_SECONDS).contains(&self.now().saturating_sub(at)).then_some(why)
    }

    fn now(&self) -> i64 {
        self.clock.now_us() / 1_000_000
    }

    /// Begins a login of a browser at an address, which goes to `back_to` in the end.
    ///
    /// # Errors
    /// [`OidcError::Away`], [`OidcError::Randomness`].
    pub async fn begin(&self, from: Option<IpAddr>, back_to: &str) -> Result<OidcBegun, OidcError> {
        let places = match self.kept() {
            Some(known) => known.places,
            None => {
                let _place = self.place()?;
                self.known().await?.places
            }
        };
        let mut random: LoginRandom = [0; 96];
        SystemRandom::new().fill(&mut random).map_err(|_| OidcError::Randomness)?;
        let (secret, state, login) = locked(&self.pending).begin(&random, (from, back_to), self.now());
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
        Ok(OidcBegun { redirect: with_query(&places.authorization_endpoint, &query), secret })
    }

    /// Finishes a login by what the browser brought back.
    ///
    /// # Errors
    /// [`OidcError`]; the state is used up, unless it is none of this browser.
    pub async fn finish(&self, came: OidcReturn<'_>) -> Result<OidcIdentity, OidcError> {
        let login = locked(&self.pending).take(came.state, came.secret, self.now()).ok_or(OidcError::State)?;
        let refused = |why: String| {
            tracing::warn!(why, "a login by the provider was refused");
            OidcError::Refused(why)
        };
        if came.issuer.is_some_and(|issuer| issuer != self.settings.issuer) {
            return Err(refused("the answer says that it is of another issuer".to_owned()));
        }
        let code = match (came.code, came.error) {
            (Some(code), None) if !code.is_empty() && code.len() <= CODE_BYTES_MAX => code,
            // A browser can say it too, so it is no trouble for the operator.
            (_, Some(error @ ("server_error" | "temporarily_unavailable"))) => {
                tracing::warn!(error, "the provider of logins says that it cannot log anybody in");
                return Err(OidcError::Away(error.to_owned()));
            }
            (_, Some(error)) => return Err(refused(format!("the provider: {}", shortened(error)))),
            _ => return Err(refused("the code is none".to_owned())),
        };
        let _place = self.place()?;
        let Ok(Ok(_turn)) = timeout(TURN_TIME, self.turns.acquire()).await else { return Err(busy()) };
        let ended = timeout(LOGIN_TIME, self.identified(code, login)).await;
        ended.unwrap_or_else(|_| Err(self.away(format!("a login took longer than {} s", LOGIN_TIME.as_secs()))))
    }

    async fn identified(&self, code: &str, login: PendingLogin) -> Result<OidcIdentity, OidcError> {
        let known = self.known().await?;
        let token = self.token(&known.places, code, &login).await?;
        let expected = Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: &login.nonce,
            now: self.now(),
        };
        let claims = match verified(&token, &known.keys, expected) {
            Err(TokenFault::UnknownKey) => {
                let keys = self.keys_again().await?;
                verified(&token, &keys, expected)
            }
            ended => ended,
        };
        let refused = |why: String| {
            tracing::warn!(why, "a login by the provider was refused");
            OidcError::Refused(why)
        };
        let claims = claims.map_err(|fault| match fault {
            // A code of another login of this browser is one too many, and all else no browser can bring about.
            TokenFault::Claim("nonce") => refused(fault.to_string()),
            _ => self.away(fault.to_string()),
        })?;
        let subject = OidcSettings::subject(&claims).map_err(refused)?;
        let (user, roles) = self.settings.identity(&claims).map_err(refused)?;
        *locked(&self.trouble) = None;
        let token = (token.len() <= HINT_BYTES_MAX).then(|| OidcToken(Arc::from(token)));
        Ok(OidcIdentity { user, subject, roles, back_to: login.back_to, token })
    }

    /// Where a browser signs out at the provider, with the token of its login; `None`: nowhere, as far as is known.
    pub fn sign_out_place(&self, token: Option<&OidcToken>) -> Option<String> {
        let known = locked(&self.known).clone()?;
        let place = known.places.end_session_endpoint.as_deref()?;
        let mut fields = vec![("client_id", self.settings.client_id.as_str())];
        fields.extend(self.settings.signed_out_url.as_deref().map(|url| ("post_logout_redirect_uri", url)));
        fields.extend(token.map(|token| ("id_token_hint", token.text())));
        Some(with_query(place, &form(&fields)))
    }

    /// Asks for places and keys, step by step, for who tries the settings. `told` gets each step and what was found.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub async fn probe(&self, told: &mut dyn FnMut(&'static str, String)) -> Result<(), (&'static str, String)> {
        let place = self.discovery_place();
        let of = |step| move |error: OidcError| (step, error.to_string());
        let document = self.document(&place).await.map_err(of("discovery"))?;
        let places = ProviderPlaces::read(&document, &self.settings.issuer).map_err(|why| ("discovery", why))?;
        told("discovery", place);
        told("authorize", places.authorization_endpoint.clone());
        told("token", places.token_endpoint.clone());
        told("sign-out", places.end_session_endpoint.clone().unwrap_or_else(|| "the provider has none".to_owned()));
        let keys = self.document(&places.jwks_uri).await.map_err(of("keys"))?;
        let keys = ProviderKeys::read(&keys).map_err(|why| ("keys", why))?;
        told("keys", format!("{}: {} for RS256 or ES256", places.jwks_uri, keys.count()));
        Ok(())
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
        let away = |why: String| self.away(why);
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
            let answer: TokenAnswer = serde_json::from_slice(&body)
                .map_err(|error| away(format!("what it answers to a code has no ID token: {error}")))?;
            return Ok(answer.id_token);
        }
        if status >= 500 {
            return Err(away(format!("{}: status {status}", places.token_endpoint)));
        }
        let refusal: Option<TokenRefusal> = serde_json::from_slice(&body).ok();
        let why = refusal.map_or_else(|| format!("status {status}"), |refusal| shortened(&refusal.error));
        // RFC 6749, 5.2: these two are about what the browser brought, and the others about the client and its secret.
        if !matches!(why.as_str(), "invalid_grant" | "invalid_request") {
            return Err(away(format!(
                "{} answers {why}: check oidc.client_id and oidc.client_secret",
                places.token_endpoint
            )));
        }
        tracing::warn!(why, "the provider gives no token for a code");
        Err(OidcError::Refused(format!("the provider: {why}")))
    }

    /// A place among those who wait for the provider.
    fn place(&self) -> Result<SemaphorePermit<'_>, OidcError> {
        self.waiting.try_acquire().map_err(|_| busy())
    }

    fn discovery_place(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.settings.issuer.trim_end_matches('/'))
    }

    /// What is known and not too old.
    fn kept(&self) -> Option<KnownProvider> {
        let now = self.now();
        let known = locked(&self.known).clone();
        known.filter(|known| (0..PLACES_SECONDS).contains(&now.saturating_sub(known.read)))
    }

    /// Places and keys, as they are known or read now.
    async fn known(&self) -> Result<KnownProvider, OidcError> {
        if let Some(known) = self.kept() {
            return Ok(known);
        }
        let _one = self.asking.lock().await;
        if let Some(known) = self.kept() {
            return Ok(known);
        }
        let now = self.now();
        let failed = locked(&self.trouble).clone();
        if let Some((at, why)) = failed.filter(|(at, _)| (0..AWAY_SECONDS).contains(&now.saturating_sub(*at))) {
            tracing::debug!(at, why, "the provider of logins was away a moment ago");
            return Err(OidcError::Away(why));
        }
        let document = self.document(&self.discovery_place()).await?;
        let places = ProviderPlaces::read(&document, &self.settings.issuer).map_err(|why| self.away(why))?;
        let keys = ProviderKeys::read(&self.document(&places.jwks_uri).await?).map_err(|why| self.away(why))?;
        let known = KnownProvider { places: Arc::new(places), keys: Arc::new(keys), read: now, keys_read: now };
        *locked(&self.known) = Some(known.clone());
        *locked(&self.trouble) = None;
        Ok(known)
    }

    /// The keys, read again if that has not just been done.
    async fn keys_again(&self) -> Result<Arc<ProviderKeys>, OidcError> {
        let _one = self.asking.lock().await;
        let Some(known) = locked(&self.known).clone() else { return Err(OidcError::State) };
        let now = self.now();
        if now.saturating_sub(known.keys_read) < KEYS_AGAIN_SECONDS {
            return Ok(known.keys);
        }
        let read = ProviderKeys::read(&self.document(&known.places.jwks_uri).await?);
        let keys = Arc::new(read.map_err(|why| self.away(why))?);
        *locked(&self.known) = Some(KnownProvider { keys: Arc::clone(&keys), keys_read: now, ..known });
        Ok(keys)
    }

    async fn document(&self, place: &str) -> Result<bytes::Bytes, OidcError> {
        let bounds = (self.settings.timeout, DOCUMENT_BYTES_MAX);
        match request(place, Asking::Document, self.tls.as_ref(), bounds).await {
            Ok((200, body)) => Ok(body),
            Ok((status, _)) => Err(self.away(format!("{place}: status {status}"))),
            Err(why) => Err(self.away(format!("{place}: {why}"))),
        }
    }

    /// Remembers why the provider cannot be asked.
    fn away(&self, why: String) -> OidcError {
        tracing::warn!(why, "the provider of logins cannot be asked");
        *locked(&self.trouble) = Some((self.now(), why.clone()));
        OidcError::Away(why)
    }
}

/// Too many want something of the provider at a time: anybody can be the reason, so it is no trouble for the operator.
fn busy() -> OidcError {
    tracing::warn!("too many logins wait for the provider at a time");
    OidcError::Away("too many logins wait for it at a time".to_owned())
}

/// A place of a provider with more of a query.
fn with_query(place: &str, query: &str) -> String {
    format!("{place}{}{query}", if place.contains('?') { '&' } else { '?' })
}

/// A text as it stands in a form or a query.
pub(super) fn encoded(text: &str) -> String {
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
