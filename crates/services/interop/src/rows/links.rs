//! The messages that were made from a stored one: resent, edited, reprocessed. Each has an entry in the index by state under its
//! origin and its idempotency key.

use std::ops::Bound;

use store::Direction;

use super::read::{ById, Reader, damaged};
use super::{FAILED_OUTPUT, SET_ASIDE_OUTPUT, link_prefix, links_prefix};
use crate::error::InteropError;
use crate::record::{self, Derivation, Status};

/// A message that was made from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DerivedMessage {
    /// Its id.
    pub id: u64,
    /// How it was made.
    pub how: Derivation,
}

impl Reader {
    /// The messages that were made from one, by their ids; the newest `max` at most.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn derived_from(&self, origin: u64, max: usize) -> Result<Vec<DerivedMessage>, InteropError> {
        let (from, to) = (links_prefix(origin), origin.checked_add(1).map(links_prefix));
        let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(&to[..]));
        let mut cursor =
            self.snapshot().scan(self.trees().by_state, Bound::Included(&from[..]), to, Direction::Forward);
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next()? {
            // Above the last origin lie the entries of another kind.
            if !key.starts_with(&from) {
                break;
            }
            let id = key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id));
            let how = value.first().and_then(|code| record::derivation_of(*code)).flatten();
            let link = id.zip(how).map(|(id, how)| DerivedMessage { id, how });
            found.push(link.ok_or_else(|| damaged("an entry by origin", origin))?);
        }
        found.sort_unstable_by_key(|link| link.id);
        Ok(found.split_off(found.len().saturating_sub(max)))
    }

    /// The first message that was made from one under an idempotency key.
    ///
    /// # Errors
    /// As [`inbound`](Reader::inbound).
    pub fn derived_under(&self, origin: u64, key: &str) -> Result<Option<u64>, InteropError> {
        let from = link_prefix(origin, key);
        let to = [&from[..], &[0xff; 8]].concat();
        let (from, to) = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        let mut cursor = self.snapshot().scan(self.trees().by_state, from, to, Direction::Forward);
        let Some((key, _)) = cursor.next()? else { return Ok(None) };
        Ok(key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id)))
    }

    /// Ids above `after` of messages that are errored, that no rule matched, with an output that failed, and with one that was set aside.
    pub fn with_trouble_after(&self, after: u64) -> [ById; 4] {
        let by_status = |status| record::status_code(status);
        [by_status(Status::Errored), by_status(Status::Unmatched), FAILED_OUTPUT, SET_ASIDE_OUTPUT]
            .map(|state| self.by_state_from(state, after.saturating_add(1), Direction::Forward))
    }

    /// Ids above `after` of messages with a status, in their order; none for routed ones, of which there is no index.
    pub fn by_status_after(&self, status: Status, after: u64) -> Option<ById> {
        let code = record::status_code(status);
        (status != Status::Routed).then(|| self.by_state_from(code, after.saturating_add(1), Direction::Forward))
    }
}
