//! [`PendingLogins`]: the logins that have begun and wait for their browser; a pure state machine.
//!
//! ```text
//!   begin --state--> browser --> provider --> browser --state--> finish, once, within PENDING_SECONDS
//! ```
//!
//! A state is 256 random bits that nobody can guess; with it are kept the nonce that the token has to repeat and PKCE's verifier, which
//! proves to the provider that who brings the code is who began (RFC 7636). At most [`PENDING_MAX`] wait: the oldest is given up for a new
//! one, so a flood of begins costs those who are slow a second try, and no memory.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;

/// How long a login may take its browser, in seconds.
pub(super) const PENDING_SECONDS: i64 = 600;

/// Most logins that wait.
const PENDING_MAX: usize = 4096;

/// What a login is drawn from.
pub(super) type LoginRandom = [u8; 96];

/// A login that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingLogin {
    pub(super) nonce: String,
    pub(super) verifier: String,
    begun: i64,
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
    /// A login begins at a time, in seconds. Returns its state.
    pub(super) fn begin(&mut self, random: &LoginRandom, now: i64) -> (String, PendingLogin) {
        self.0.retain(|_, login| now.saturating_sub(login.begun) < PENDING_SECONDS);
        if self.0.len() >= PENDING_MAX {
            let oldest = self.0.iter().min_by_key(|(_, login)| login.begun).map(|(state, _)| state.clone());
            oldest.map(|state| self.0.remove(&state));
        }
        let part = |at: usize| URL_SAFE_NO_PAD.encode(&random[at * 32..(at + 1) * 32]);
        let login = PendingLogin { nonce: part(1), verifier: part(2), begun: now };
        self.0.insert(part(0), login.clone());
        (part(0), login)
    }

    /// The login of a state, which is then used.
    pub(super) fn take(&mut self, state: &str, now: i64) -> Option<PendingLogin> {
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

    #[test]
    fn a_state_counts_once_and_for_a_time() {
        let mut pending = PendingLogins::default();
        let (state, login) = pending.begin(&random(1), 0);
        assert_eq!(pending.take("other", 1), None);
        assert_eq!(pending.take(&state, 1), Some(login));
        assert_eq!(pending.take(&state, 1), None);
        let (state, _) = pending.begin(&random(2), 0);
        assert_eq!(pending.take(&state, PENDING_SECONDS), None);
    }

    #[test]
    fn a_flood_of_begins_gives_up_the_oldest() {
        let mut pending = PendingLogins::default();
        let states: Vec<String> = (0..5_000).map(|at| pending.begin(&random(at), at as i64 / 100).0).collect();
        assert_eq!(pending.0.len(), PENDING_MAX);
        assert!(pending.take(&states[0], 50).is_none() && pending.take(&states[4_999], 50).is_some());
    }

    // RFC 7636, appendix B.
    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let login = PendingLogin { nonce: String::new(), verifier, begun: 0 };
        assert_eq!(login.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
