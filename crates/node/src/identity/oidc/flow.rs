//! [`PendingLogins`]: the logins that have begun and wait for their browser; a pure state machine.
//!
//! ```text
//!   begin --state, and a secret in a cookie--> browser --> provider --> browser --both--> finish, once, within PENDING_SECONDS
//! ```
//!
//! The secret is 256 random bits that nobody can guess, and the state its hash: whoever sees an address with the state cannot finish the
//! login without the cookie of the browser that began it. With it are kept the nonce that the token has to repeat and PKCE's verifier,
//! which proves to the provider that who brings the code is who began (RFC 7636). At most [`PENDING_MAX`] wait, and
//! [`OF_NETWORK_MAX`] of one network: the oldest of a network that has the most is given up for a new one, so a flood of begins costs
//! those who share its network a second try, and no memory.

use std::collections::HashMap;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;

/// How long a login may take its browser, in seconds.
pub(super) const PENDING_SECONDS: i64 = 600;

/// Most logins that wait.
const PENDING_MAX: usize = 4096;

/// Most of them from one network.
const OF_NETWORK_MAX: usize = 256;

/// Most bytes of the place that a browser goes to in the end.
const BACK_TO_BYTES_MAX: usize = 2048;

/// What a login is drawn from.
pub(super) type LoginRandom = [u8; 96];

/// A login that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingLogin {
    pub(super) nonce: String,
    pub(super) verifier: String,
    /// Where in the port the browser goes to in the end.
    pub(super) back_to: String,
    network: u64,
    begun: i64,
}

/// From which network: an IPv4 address, or the first 64 bits of an IPv6 one.
fn network(from: Option<IpAddr>) -> u64 {
    match from.map(|address| address.to_canonical()) {
        None => 0,
        Some(IpAddr::V4(address)) => u64::from(address.to_bits()),
        Some(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64 | 1 << 63,
    }
}

/// The state of the secret that a browser keeps.
fn state_of(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, format!("state {secret}").as_bytes()))
}

impl PendingLogin {
    /// PKCE's challenge of its verifier, by S256.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, self.verifier.as_bytes()))
    }
}

/// All that wait, by their states.
#[derive(Debug, Default)]
pub(super) struct PendingLogins(HashMap<String, PendingLogin>);

impl PendingLogins {
    /// A login begins at a time, in seconds. Returns the secret for the cookie, the state, and the login.
    pub(super) fn begin(
        &mut self,
        random: &LoginRandom,
        (from, back_to): (Option<IpAddr>, &str),
        now: i64,
    ) -> (String, String, PendingLogin) {
        self.0.retain(|_, login| now.saturating_sub(login.begun) < PENDING_SECONDS);
        let network = network(from);
        if self.0.values().filter(|login| login.network == network).count() >= OF_NETWORK_MAX {
            self.give_up_oldest(network);
        }
        if self.0.len() >= PENDING_MAX {
            let mut counts: HashMap<u64, usize> = HashMap::new();
            self.0.values().for_each(|login| *counts.entry(login.network).or_default() += 1);
            let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(network, _)| network);
            most.into_iter().for_each(|network| self.give_up_oldest(network));
        }
        let part = |at: usize| URL_SAFE_NO_PAD.encode(&random[at * 32..(at + 1) * 32]);
        let (secret, state) = (part(0), state_of(&part(0)));
        let back_to = if back_to.len() > BACK_TO_BYTES_MAX { String::new() } else { back_to.to_owned() };
        let login = PendingLogin { nonce: part(1), verifier: part(2), back_to, network, begun: now };
        self.0.insert(state.clone(), login.clone());
        (secret, state, login)
    }

    fn give_up_oldest(&mut self, network: u64) {
        let of_network = self.0.iter().filter(|(_, login)| login.network == network);
        let oldest = of_network.min_by_key(|(_, login)| login.begun).map(|(state, _)| state.clone());
        oldest.into_iter().for_each(|state| _ = self.0.remove(&state));
    }

    /// The login of a state, which is then used; of another browser's state nothing is used.
    pub(super) fn take(&mut self, state: &str, secret: &str, now: i64) -> Option<PendingLogin> {
        // What is compared is a hash, and of no use to who measures the time.
        if state_of(secret) != state {
            return None;
        }
        self.0.remove(state).filter(|login| now.saturating_sub(login.begun) < PENDING_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> LoginRandom {
        let mut random = fastrand::Rng::with_seed(seed);
        std::array::from_fn(|_| random.u8(..))
    }

    const HERE: (Option<IpAddr>, &str) = (None, "/");

    #[test]
    fn a_state_counts_once_for_a_time_and_in_its_own_browser() {
        let mut pending = PendingLogins::default();
        let (secret, state, login) = pending.begin(&random(1), HERE, 0);
        let (other, ..) = pending.begin(&random(3), HERE, 0);
        for (wrong_state, wrong_secret) in [("other", &*secret), (&*state, &*other), (&*state, ""), (&*state, &*state)]
        {
            assert_eq!(pending.take(wrong_state, wrong_secret, 1), None);
        }
        assert_eq!(pending.take(&state, &secret, 1), Some(login));
        assert_eq!(pending.take(&state, &secret, 1), None);
        let (secret, state, _) = pending.begin(&random(2), HERE, 0);
        assert_eq!(pending.take(&state, &secret, PENDING_SECONDS), None);
    }

    #[test]
    fn a_flood_of_begins_gives_up_its_own_oldest_and_is_bounded() {
        let mut pending = PendingLogins::default();
        let (secret, state, _) = pending.begin(&random(9_999), (Some(IpAddr::from([10, 0, 0, 1])), "/"), 0);
        let flood = (Some(IpAddr::from([10, 0, 0, 2])), "/");
        let begun: Vec<_> = (0..1_000).map(|at| pending.begin(&random(at), flood, at as i64 / 100)).collect();
        assert_eq!(pending.0.len(), OF_NETWORK_MAX + 1);
        assert!(pending.take(&begun[0].1, &begun[0].0, 50).is_none());
        assert!(pending.take(&begun[999].1, &begun[999].0, 50).is_some());
        // From many networks at once.
        for at in 0..6_000_u32 {
            let from = Some(IpAddr::from(std::net::Ipv4Addr::from_bits(0x0b00_0000 + at / 200)));
            pending.begin(&random(u64::from(at) + 20_000), (from, "/"), 50);
        }
        assert_eq!(pending.0.len(), PENDING_MAX);
        assert!(pending.take(&state, &secret, 50).is_some(), "one of its own network waits still");
        let (.., login) = pending.begin(&random(3), (None, &"x".repeat(BACK_TO_BYTES_MAX + 1)), 50);
        assert_eq!(login.back_to, "");
    }

    // RFC 7636, appendix B.
    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let login = PendingLogin { nonce: String::new(), verifier, back_to: String::new(), network: 0, begun: 0 };
        assert_eq!(login.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
