//! [`HeldResponses`]: memory of responses whose clients have not read them yet.
//!
//! A response is made whole, and waits in memory for a client that reads slowly, or not at all until its connection ends. The turn of its
//! request is over by then, so nothing else bounds how many there are. Small ones are not counted: there are no more of them than connections.
//!
//! Invariants: a role has three quarters of the memory at most, so that the rest is for others, or one response that is larger; the response to a
//! change is never refused, as the change is made.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use node::identity::RoleId;
use parking_lot::Mutex;

use super::answer::HttpResponse;
use crate::error::SearchError;

/// Responses up to this are not counted: 256 connections of them have 16 MiB.
const SMALL_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
struct HeldState {
    bytes: usize,
    of_roles: HashMap<RoleId, usize>,
}

/// See the head comment of this file.
#[derive(Debug)]
pub(super) struct HeldResponses {
    most: usize,
    state: Mutex<HeldState>,
}

/// The bytes of a response, and their part of the memory.
struct HeldBytes {
    bytes: Bytes,
    role: RoleId,
    of_all: Arc<HeldResponses>,
}

impl HeldResponses {
    pub(super) fn new(most: usize) -> Arc<HeldResponses> {
        Arc::new(HeldResponses { most, state: Mutex::default() })
    }

    /// Counts a response until its last byte is sent or its connection ends. Errors: there is no room for it, and it may be refused.
    pub(super) async fn hold(
        self: &Arc<HeldResponses>,
        role: RoleId,
        may_refuse: bool,
        response: HttpResponse,
    ) -> Result<HttpResponse, SearchError> {
        let (head, body) = response.into_parts();
        // A body of one piece: this neither waits nor copies, and it cannot fail.
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if bytes.len() <= SMALL_BYTES {
            return Ok(HttpResponse::from_parts(head, Full::new(bytes)));
        }
        {
            let mut state = self.state.lock();
            let of_role = state.of_roles.get(&role).copied().unwrap_or(0);
            let beyond = |held: usize, most: usize| held > 0 && held + bytes.len() > most;
            let is_full = beyond(state.bytes, self.most) || beyond(of_role, self.most / 4 * 3);
            if is_full && may_refuse {
                return Err(self.full(bytes.len()));
            }
            state.bytes += bytes.len();
            *state.of_roles.entry(role).or_default() += bytes.len();
        }
        let held = HeldBytes { bytes, role, of_all: Arc::clone(self) };
        Ok(HttpResponse::from_parts(head, Full::new(Bytes::from_owner(held))))
    }

    fn full(&self, wanted: usize) -> SearchError {
        let reason = format!(
            "[parent] Data too large, data for [<http_response>] would be [{wanted}b] besides those that their clients have not read yet, \
             which is larger than the limit of [{}b], or three quarters of it of one user",
            self.most
        );
        SearchError::new(429, "circuit_breaking_exception", reason)
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let mut state = self.of_all.state.lock();
        state.bytes -= self.bytes.len();
        if let Some(of_role) = state.of_roles.get_mut(&self.role) {
            *of_role -= self.bytes.len();
            if *of_role == 0 {
                state.of_roles.remove(&self.role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(bytes: usize) -> HttpResponse {
        HttpResponse::new(Full::new(Bytes::from(vec![b'x'; bytes])))
    }

    #[tokio::test]
    async fn responses_count_until_they_are_gone_a_part_for_one_role_and_changes_are_always_answered() {
        let held = HeldResponses::new(1_000_000);
        let (ann, bob) = (RoleId(1), RoleId(2));
        let first = held.hold(ann, true, response(400_000)).await.expect("there is room");
        for (role, may_refuse, bytes, fits) in [
            (ann, true, 400_000, false),
            (ann, true, SMALL_BYTES, true),
            (ann, false, 400_000, true),
            (bob, true, 500_000, true),
            (bob, true, 600_001, false),
        ] {
            let answered = held.hold(role, may_refuse, response(bytes)).await;
            let answered = answered.map_err(|error| assert_eq!((error.status, fits), (429, false), "{error}"));
            assert_eq!(answered.is_ok(), fits, "{role:?} {bytes}");
        }
        let bobs = held.hold(bob, true, response(500_000)).await.expect("there is room");
        assert_eq!(held.hold(RoleId(3), true, response(200_000)).await.expect_err("all of it is held").status, 429);
        let body = first.into_body().collect().await.expect("there").to_bytes();
        assert!(body.len() == 400_000 && held.hold(RoleId(3), true, response(200_000)).await.is_err(), "still here");
        drop(body);
        held.hold(RoleId(3), true, response(200_000)).await.expect("the first one is gone");
        drop(bobs);
        let state = held.state.lock();
        assert!(state.bytes == 0 && state.of_roles.is_empty(), "{state:?}");
    }
}
