//! Who a request is from: Basic authentication, or trust in this machine.
//!
//! ```text
//!   Authorization: Basic ... --> known? --yes--> user
//!                                  |no
//!                                  +--> a turn, a thread, Authenticate --yes--> known for a minute --> user
//!                                                                      --no--> a pause, 401
//! ```
//!
//! Checking a password takes thousands of rounds of hashing, on purpose. A right one is therefore remembered for a while after
//! its last use, as a keyed hash under a key that exists only in this process. Wrong ones are not remembered: they take turns,
//! few at a time, and each answer waits a moment, so that guessing is slow and leaves processors to others.
//!
//! Trust in this machine is no trust in the pages that a browser on it shows: a request without a password that comes from one
//! (it has an `Origin`, or asks for a host by another name than this machine's) is refused.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::time::{Instant, sleep};

use super::lanes::RequestLane;
use super::options::{Authenticate, HttpError, HttpOptions, LaneBounds};
use crate::error::SearchError;
use crate::rest::message::RestResponse;

/// How long a right password is remembered after its last use.
const KNOWN: Duration = Duration::from_secs(60);

/// How many right passwords are remembered.
const KNOWN_MAX: usize = 1024;

/// The pause before the answer to a wrong password.
const WRONG_PAUSE: Duration = Duration::from_millis(500);

/// Passwords that are checked at a time.
const CHECKS: LaneBounds = LaneBounds { running: 2, waiting: 64 };

/// What is remembered of a right password.
type KnownKey = [u8; 32];

/// Decides who requests are from.
pub(super) struct BasicLogins {
    authenticate: Option<Authenticate>,
    trust: bool,
    key: hmac::Key,
    known: Mutex<HashMap<KnownKey, Instant>>,
    checks: RequestLane,
}

impl BasicLogins {
    pub(super) fn new(options: &HttpOptions) -> Result<BasicLogins, HttpError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| HttpError::Randomness)?;
        Ok(BasicLogins {
            authenticate: options.authenticate.clone(),
            trust: options.trust || options.authenticate.is_none(),
            key,
            known: Mutex::default(),
            checks: RequestLane::new(CHECKS),
        })
    }

    /// The user; none where the machine is trusted. Errors: the response with the refusal.
    pub(super) async fn user(
        &self,
        headers: &HeaderMap,
        peer: SocketAddr,
        path: &str,
    ) -> Result<Option<String>, RestResponse> {
        let given = headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
        let (Some(authenticate), Some(given)) = (&self.authenticate, given) else {
            if !self.trust || !peer.ip().to_canonical().is_loopback() {
                return Err(unauthorized(&format!("missing authentication credentials for REST request [{path}]")));
            }
            if is_of_page(headers) {
                let reason = "a request without a user and a password must ask for localhost or an address, and not be of a page in \
                              a browser";
                return Err(SearchError::new(403, "security_exception", reason).into());
            }
            return Ok(None);
        };
        let Some((user, password)) = basic(given) else {
            return Err(unauthorized(&format!(
                "unable to read the credentials for REST request [{path}]: only Basic is known"
            )));
        };
        let key = self.key_of(&user, &password);
        if !self.is_known(&key) {
            let is_right = self.check(authenticate, user.clone(), password).await?;
            if !is_right {
                // The turn was given back: others are checked meanwhile.
                sleep(WRONG_PAUSE).await;
                return Err(unauthorized(&format!("unable to authenticate user [{user}] for REST request [{path}]")));
            }
            self.remember(key);
        }
        Ok(Some(user))
    }

    async fn check(&self, authenticate: &Authenticate, user: String, password: String) -> Result<bool, RestResponse> {
        let Some(turn) = self.checks.turn().await else {
            return Err(SearchError::busy("too many passwords are being checked").into());
        };
        let authenticate = Arc::clone(authenticate);
        let checked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            authenticate(&user, &password)
        });
        checked.await.map_err(|error| SearchError::internal(format!("a password could not be checked: {error}")).into())
    }

    fn key_of(&self, user: &str, password: &str) -> KnownKey {
        let mut text = hmac::Context::with_key(&self.key);
        // The length ends the name: no name and password are those of others moved by some letters.
        text.update(&(user.len() as u64).to_le_bytes());
        text.update(user.as_bytes());
        text.update(password.as_bytes());
        let mut key = KnownKey::default();
        key.copy_from_slice(text.sign().as_ref());
        key
    }

    fn is_known(&self, key: &KnownKey) -> bool {
        let now = Instant::now();
        let mut known = self.known.lock();
        match known.get_mut(key) {
            Some(used) if now.duration_since(*used) < KNOWN => {
                *used = now;
                true
            }
            _ => false,
        }
    }

    fn remember(&self, key: KnownKey) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, used| now.duration_since(*used) < KNOWN);
        }
        if known.len() >= KNOWN_MAX {
            let oldest = known.iter().min_by_key(|(_, used)| **used).map(|(key, _)| *key);
            oldest.map(|key| known.remove(&key));
        }
        known.insert(key, now);
    }
}

/// User and password of a header.
fn basic(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.trim().split_once(' ')?;
    let decoded = BASE64.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Whether a page in a browser may have sent the request.
fn is_of_page(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // The name of a page can be made to mean this machine; an address and `localhost` cannot be the name of a page.
    let is_here = host.is_empty()
        || host.parse::<SocketAddr>().is_ok()
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || host.rsplit_once(':').map_or(host, |(name, _)| name).eq_ignore_ascii_case("localhost");
    headers.contains_key(ORIGIN) || !is_here
}

fn unauthorized(reason: &str) -> RestResponse {
    let mut response = RestResponse::from(SearchError::new(401, "security_exception", reason));
    response.headers.push(("WWW-Authenticate", "Basic realm=\"terrace\"".to_owned()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_as_rfc_7617_says() {
        let read = |header: &str| basic(header);
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read("Basic YW5uOnNlY3JldA=="), pair("ann", "secret"));
        assert_eq!(read("basic  YW5uOmE6Yg== "), pair("ann", "a:b"));
        for wrong in ["", "Basic", "Bearer YW5uOnNlY3JldA==", "Basic ***", "Basic YW5u"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pages_are_told_from_programs() {
        for (host, origin, of_page) in [
            ("localhost:9200", None, false),
            ("127.0.0.1:9200", None, false),
            ("[::1]:9200", None, false),
            ("[::1]", None, false),
            ("page.example:9200", None, true),
            ("localhost:9200", Some("https://page.example"), true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().expect("a header"));
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().expect("a header"));
            }
            assert_eq!(is_of_page(&headers), of_page, "{host} {origin:?}");
        }
    }

    #[tokio::test]
    async fn right_passwords_are_checked_once_a_minute_and_wrong_ones_each_time() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let checks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&checks);
        let authenticate: Authenticate = Arc::new(move |user, password| {
            counted.fetch_add(1, Ordering::Relaxed);
            (user, password) == ("ann", "secret")
        });
        let options = HttpOptions { authenticate: Some(authenticate), ..HttpOptions::default() };
        let logins = BasicLogins::new(&options).expect("there is randomness");
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let log_in = async |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, format!("Basic {}", BASE64.encode(text)).parse().expect("a header"));
            logins.user(&headers, peer, "/").await.map_err(|refused| refused.status)
        };
        for _ in 0..3 {
            assert_eq!(log_in("ann:secret").await, Ok(Some("ann".to_owned())));
        }
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        assert_eq!((log_in("ann:wrong").await, log_in("ann:wrong").await), (Err(401), Err(401)));
        assert_eq!(checks.load(Ordering::Relaxed), 3);
        logins.known.lock().values_mut().for_each(|used| *used = used.checked_sub(KNOWN).expect("it is later"));
        assert!(log_in("ann:secret").await.is_ok());
        assert_eq!(checks.load(Ordering::Relaxed), 4);
        assert_eq!(logins.user(&HeaderMap::new(), peer, "/").await.map_err(|refused| refused.status), Err(401));
    }
}
