//! [`ResendKeys`]: which resends were asked for, so that a request that is sent twice sends nothing twice.
//!
//! ```text
//!   key --begin--> New: send        --end(id)--> Done(id)      the same key again: the same answer, nothing is sent
//!                  Running: wait    --end(none)--> forgotten, as nothing was sent
//! ```
//!
//! Pure. A key is of one role and one request: with another request it is refused. Keys are forgotten after [`KEPT_MS`], and with the
//! process, as sessions are; the form of a page cannot be sent again after that either.

use std::collections::HashMap;

use node::identity::RoleId;

use crate::secret::SecretDigest;

/// How long a key is remembered: as long as a session lasts.
const KEPT_MS: u64 = crate::sessions::ABSOLUTE_MS;

/// Keys that are remembered; beyond it the oldest that is done of the role with most of them is forgotten: who sends much forgets its own.
const KEYS_MAX: usize = 10_000;

/// What to do about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyAnswer {
    /// It is new: send.
    New,
    /// It is being sent.
    Running,
    /// It was sent, as this message.
    Done(u64),
    /// It was another request.
    Other,
}

#[derive(Debug)]
struct Known {
    request: SecretDigest,
    sent: Option<u64>,
    at_ms: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ResendKeys {
    known: HashMap<(RoleId, SecretDigest), Known>,
}

impl ResendKeys {
    /// Somebody asks for a request under a key.
    pub(crate) fn begin(
        &mut self,
        role: RoleId,
        (key, request): (SecretDigest, SecretDigest),
        now_ms: u64,
    ) -> KeyAnswer {
        match self.known.get(&(role, key)) {
            Some(known) if known.request != request => return KeyAnswer::Other,
            Some(Known { sent: Some(id), .. }) => return KeyAnswer::Done(*id),
            Some(Known { sent: None, .. }) => return KeyAnswer::Running,
            None => {}
        }
        if self.known.len() >= KEYS_MAX {
            self.known.retain(|_, known| now_ms.saturating_sub(known.at_ms) < KEPT_MS);
        }
        if self.known.len() >= KEYS_MAX {
            self.forget_one();
        }
        self.known.insert((role, key), Known { request, sent: None, at_ms: now_ms });
        KeyAnswer::New
    }

    /// Forgets the oldest that is done of the role that has most of them.
    fn forget_one(&mut self) {
        let done = || self.known.iter().filter(|(_, known)| known.sent.is_some());
        let mut of_role: HashMap<RoleId, usize> = HashMap::new();
        done().for_each(|((role, _), _)| *of_role.entry(*role).or_default() += 1);
        let most = of_role.into_iter().max_by_key(|(_, number)| *number).map(|(role, _)| role);
        let own = done().filter(|((role, _), _)| Some(*role) == most);
        let oldest = own.min_by_key(|(_, known)| known.at_ms).map(|(key, _)| *key);
        oldest.map(|key| self.known.remove(&key));
    }

    /// It was sent, as a new message, or it could not be.
    pub(crate) fn end(&mut self, role: RoleId, key: SecretDigest, sent: Option<u64>) {
        match (sent, self.known.get_mut(&(role, key))) {
            (Some(id), Some(known)) => known.sent = Some(id),
            (None, _) => _ = self.known.remove(&(role, key)),
            (Some(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_sent_twice_is_done_once_and_one_that_failed_may_be_tried_again() {
        let (mut keys, role) = (ResendKeys::default(), RoleId::LOCAL);
        let request = ([1; 32], [2; 32]);
        assert_eq!(keys.begin(role, request, 0), KeyAnswer::New);
        assert_eq!(keys.begin(role, request, 0), KeyAnswer::Running);
        keys.end(role, request.0, None);
        assert_eq!(keys.begin(role, request, 0), KeyAnswer::New);
        keys.end(role, request.0, Some(7));
        assert_eq!(keys.begin(role, request, KEPT_MS * 2), KeyAnswer::Done(7));
        assert_eq!(keys.begin(role, ([1; 32], [3; 32]), 0), KeyAnswer::Other);
        assert_eq!(keys.begin(RoleId::PUBLIC, request, 0), KeyAnswer::New, "a key of another role is another one");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_who_sends_much_forgets_its_own() {
        let (mut keys, other) = (ResendKeys::default(), RoleId(100));
        keys.begin(other, ([1; 32], [2; 32]), 0);
        keys.end(other, [1; 32], Some(7));
        for number in 0..KEYS_MAX as u32 + 100 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            keys.begin(RoleId::LOCAL, (key, [0; 32]), u64::from(number) + 1);
            keys.end(RoleId::LOCAL, key, Some(1));
        }
        assert!(keys.known.len() <= KEYS_MAX);
        assert_eq!(keys.begin(other, ([1; 32], [2; 32]), 9), KeyAnswer::Done(7), "the oldest is of another role");
    }
}
