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

/// Keys that are remembered; beyond it the oldest that is done is forgotten.
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
            let done = self.known.iter().filter(|(_, known)| known.sent.is_some());
            let oldest = done.min_by_key(|(_, known)| known.at_ms).map(|(key, _)| *key);
            oldest.map(|key| self.known.remove(&key));
        }
        self.known.insert((role, key), Known { request, sent: None, at_ms: now_ms });
        KeyAnswer::New
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
    fn what_is_remembered_is_bounded() {
        let mut keys = ResendKeys::default();
        for number in 0..20_000u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            keys.begin(RoleId::LOCAL, (key, [0; 32]), u64::from(number));
            keys.end(RoleId::LOCAL, key, Some(1));
        }
        assert!(keys.known.len() <= KEYS_MAX);
    }
}
