//! [`SessionTable`]: who is signed in.
//!
//! ```text
//!   open --secret--> cookie of the browser          kept: its SHA-256, the caller, the times
//!   find (digest, now)   idle too long, or too old: gone
//!   close, close_all_of  sign-out
//! ```
//!
//! Pure: times are parameters, in milliseconds of a clock that never goes back.
//!
//! Invariants: a session ends [`IDLE_MS`] after its last request and [`ABSOLUTE_MS`] (or its own, shorter time) after its beginning,
//! whatever happens; a role has
//! [`OF_ROLE_MAX`] at most, all together [`ALL_MAX`]: a new one takes the place of the one that was silent longest. They end with the
//! process.
//!
//! Whether the role may still use the node is asked for each request, elsewhere: what proved it may have been changed since (`proof`).

use std::collections::HashMap;
use std::sync::Arc;

use node::identity::oidc::OidcToken;
use node::identity::{Caller, Connected, RoleId};

use crate::secret::SecretDigest;

/// Silence after which a session ends: 30 min.
pub(crate) const IDLE_MS: u64 = 30 * 60_000;

/// Age at which a session ends: 12 h.
pub(crate) const ABSOLUTE_MS: u64 = 12 * 3_600_000;

/// Sessions of one role.
const OF_ROLE_MAX: usize = 16;

/// Sessions of all roles.
const ALL_MAX: usize = 1_024;

/// Somebody who is signed in.
#[derive(Debug, Clone)]
pub(crate) struct SignedIn {
    /// Who.
    pub(crate) caller: Caller,
    /// What proved it then, hashed: the session ends when that is changed.
    pub(crate) proof: SecretDigest,
    /// How long the session lasts at most, if shorter than [`ABSOLUTE_MS`].
    pub(crate) lasts_ms: u64,
    /// The token of a login by a provider, for a sign-out there.
    pub(crate) token: Option<OidcToken>,
    /// Lets the guard ask the directory about the user as long as the session is there.
    pub(crate) _present: Option<Arc<Connected>>,
}

#[derive(Debug)]
struct Session {
    signed_in: SignedIn,
    began_ms: u64,
    seen_ms: u64,
}

impl Session {
    fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.seen_ms) >= IDLE_MS
            || now_ms.saturating_sub(self.began_ms) >= ABSOLUTE_MS.min(self.signed_in.lasts_ms)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    sessions: HashMap<SecretDigest, Session>,
}

impl SessionTable {
    /// Begins a session.
    pub(crate) fn open(&mut self, digest: SecretDigest, signed_in: SignedIn, now_ms: u64) {
        self.sessions.retain(|_, session| !session.is_over(now_ms));
        let role = signed_in.caller.session();
        while self.of(role).count() >= OF_ROLE_MAX {
            self.close_quietest(Some(role));
        }
        while self.sessions.len() >= ALL_MAX {
            self.close_quietest(None);
        }
        self.sessions.insert(digest, Session { signed_in, began_ms: now_ms, seen_ms: now_ms });
    }

    fn of(&self, role: RoleId) -> impl Iterator<Item = (&SecretDigest, &Session)> {
        self.sessions.iter().filter(move |(_, session)| session.signed_in.caller.session() == role)
    }

    fn close_quietest(&mut self, role: Option<RoleId>) {
        let is_meant = |session: &Session| role.is_none_or(|role| session.signed_in.caller.session() == role);
        let all = self.sessions.iter().filter(|(_, session)| is_meant(session));
        let quietest = all.min_by_key(|(_, session)| session.seen_ms).map(|(digest, _)| *digest);
        quietest.map(|digest| self.sessions.remove(&digest));
    }

    /// Who has a session; with a request of it, which keeps it.
    pub(crate) fn find(&mut self, digest: &SecretDigest, now_ms: u64) -> Option<SignedIn> {
        let session = self.sessions.get_mut(digest)?;
        if session.is_over(now_ms) {
            self.sessions.remove(digest);
            return None;
        }
        session.seen_ms = session.seen_ms.max(now_ms);
        Some(session.signed_in.clone())
    }

    /// Who has a session, without keeping it: what a page does by itself is no sign of a person.
    pub(crate) fn look(&self, digest: &SecretDigest, now_ms: u64) -> Option<SignedIn> {
        let session = self.sessions.get(digest)?;
        (!session.is_over(now_ms)).then(|| session.signed_in.clone())
    }

    /// Ends a session.
    pub(crate) fn close(&mut self, digest: &SecretDigest) -> Option<SignedIn> {
        self.sessions.remove(digest).map(|session| session.signed_in)
    }

    /// How many there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.sessions.len()
    }
}

#[cfg(test)]
mod tests {
    use node::Clock;
    use node::identity::Guard;
    use node::identity::scram::Mock;
    use store::{Options, Store};

    use super::*;

    fn digest(number: u32) -> SecretDigest {
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&number.to_le_bytes());
        digest
    }

    fn guard() -> Arc<Guard> {
        let store = Store::in_memory(Options::default()).expect("there is memory");
        Guard::open(store, Clock::fixed(1), Mock::of([7; 32])).expect("it opens")
    }

    fn signed_in() -> SignedIn {
        signed_in_at(&guard())
    }

    fn signed_in_at(guard: &Arc<Guard>) -> SignedIn {
        let (caller, present) = (Caller::node(), guard.present(&Caller::node()).map(Arc::new));
        SignedIn { caller, proof: [0; 32], lasts_ms: ABSOLUTE_MS, token: None, _present: present }
    }

    #[test]
    fn a_user_is_present_while_it_has_a_session_and_no_longer() {
        let (guard, mut table) = (guard(), SessionTable::default());
        (1..=3).for_each(|number| table.open(digest(number), signed_in_at(&guard), 0));
        assert!(table.find(&digest(2), 1).is_some() && table.look(&digest(3), 1).is_some());
        assert_eq!(guard.present_sessions(), 3);
        table.close(&digest(1));
        assert!(table.find(&digest(2), IDLE_MS + 1).is_none());
        assert_eq!(guard.present_sessions(), 1);
        table.open(digest(4), signed_in_at(&guard), IDLE_MS);
        assert_eq!(guard.present_sessions(), 1, "what is over is gone, at the latest when another one begins");
    }

    #[test]
    fn a_session_ends_by_silence_by_age_and_by_signing_out() {
        let mut table = SessionTable::default();
        table.open(digest(1), signed_in(), 0);
        assert!(table.find(&digest(1), IDLE_MS - 1).is_some());
        assert!(table.look(&digest(1), 2 * IDLE_MS - 2).is_some(), "the request before kept it");
        assert!(table.find(&digest(1), 2 * IDLE_MS - 1).is_none(), "and what only looks does not");
        table.open(digest(2), signed_in(), 0);
        let mut now = 0;
        while now + IDLE_MS / 2 < ABSOLUTE_MS {
            now += IDLE_MS / 2;
            assert!(table.find(&digest(2), now).is_some());
        }
        assert!(table.find(&digest(2), ABSOLUTE_MS).is_none());
        table.open(digest(3), signed_in(), ABSOLUTE_MS);
        assert!(table.close(&digest(3)).is_some() && table.find(&digest(3), ABSOLUTE_MS).is_none());
        assert!(table.find(&digest(4), ABSOLUTE_MS).is_none(), "what nobody opened is none");
    }

    #[test]
    fn a_session_of_a_shorter_time_ends_by_that_however_busy_it_is() {
        let mut table = SessionTable::default();
        let lasts_ms = 60_000;
        table.open(digest(1), SignedIn { lasts_ms, ..signed_in() }, 1_000);
        for now in (1_000..1_000 + lasts_ms).step_by(10_000) {
            assert!(table.find(&digest(1), now).is_some());
        }
        assert!(table.look(&digest(1), 1_000 + lasts_ms - 1).is_some());
        assert!(
            table.look(&digest(1), 1_000 + lasts_ms).is_none() && table.find(&digest(1), 1_000 + lasts_ms).is_none()
        );
    }

    #[test]
    fn sessions_of_a_role_are_bounded_and_the_quietest_makes_room() {
        let (guard, mut table) = (guard(), SessionTable::default());
        (0..100).for_each(|number| table.open(digest(number), signed_in_at(&guard), u64::from(number)));
        assert_eq!(table.len(), OF_ROLE_MAX);
        assert!(table.look(&digest(99), 100).is_some() && table.look(&digest(1), 100).is_none());
    }
}
