//! [`SharedParts`]: all messages, for concurrent walks. Each walk takes the next part that no other walk has taken.
//!
//! ```text
//!   parts    1   2   3   4   5   6 ...     loaded one after the other, by the walk that takes it
//!   walk 0   1       3   4                 goes through part 1 while walk 1 loads part 2
//!   walk 1       2           5
//! ```
//!
//! Invariant: a part belongs to the walk that took it, as long as the shared parts exist. So a walk that begins again has the
//! same messages again, and all walks together have each message once, however often each of them begins.

use std::sync::{Arc, Mutex, PoisonError};

use store::ScanParts;

use super::object_key;
use super::read::Reader;
use super::walk::{Ids, MessageWalk, ReadMessage, Wanted, is_received};
use crate::error::InteropError;

/// See the head comment of this file.
#[derive(Debug)]
pub struct SharedParts {
    reader: Reader,
    wanted: Wanted,
    state: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    parts: MessageParts,
    /// The parts of each walk, in the order in which it took them.
    by_walk: Vec<Vec<Ids>>,
}

impl SharedParts {
    /// All messages that a reader sees, for so many walks, at least one.
    pub fn new(reader: &Reader, wanted: Wanted, walks: usize) -> Arc<SharedParts> {
        let by_walk = vec![Vec::new(); walks.max(1)];
        let state = Mutex::new(Taken { parts: MessageParts::new(reader, wanted), by_walk });
        Arc::new(SharedParts { reader: reader.clone(), wanted, state })
    }

    /// Begins one of the walks, counted from 0, or begins it again.
    pub fn walk(self: &Arc<SharedParts>, number: usize) -> PartedWalk {
        PartedWalk { shared: Arc::clone(self), number, begun: 0, walk: None }
    }

    /// A walk's part at a place: one that it has taken, or the next one of all; none where there is no further one.
    fn part(&self, walk: usize, at: usize) -> Option<Ids> {
        // A panic of another walk ends the query anyway.
        let Taken { parts, by_walk } = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = by_walk.get_mut(walk)?;
        if at == taken.len() {
            taken.push(parts.load_next()?);
        }
        taken.get(at).copied()
    }
}

/// The messages of one of several walks. See [`SharedParts`].
#[derive(Debug)]
pub struct PartedWalk {
    shared: Arc<SharedParts>,
    number: usize,
    /// How many of its parts were begun.
    begun: usize,
    walk: Option<Box<MessageWalk>>,
}

impl PartedWalk {
    /// The next one. After an error the walk has ended.
    ///
    /// # Errors
    /// As [`Reader::inbound`].
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<ReadMessage>, InteropError> {
        loop {
            if let Some(walk) = &mut self.walk
                && let Some(message) = walk.next()?
            {
                return Ok(Some(message));
            }
            let Some(ids) = self.shared.part(self.number, self.begun) else { return Ok(None) };
            self.begun += 1;
            self.walk = Some(Box::new(self.shared.reader.walk(ids, self.shared.wanted)));
        }
    }
}

/// The stored messages, divided into parts of about 1 MiB. Each is loaded before it is returned.
#[derive(Debug)]
struct MessageParts {
    messages: ScanParts,
    /// With the id that the loaded outcomes reach; none for all.
    outcomes: Option<(ScanParts, Option<u64>)>,
    wanted: Wanted,
    /// The first id of the next part; none after the last one.
    next: Option<u64>,
}

impl MessageParts {
    fn new(reader: &Reader, wanted: Wanted) -> MessageParts {
        let (snapshot, trees) = (reader.snapshot(), reader.trees());
        let outcomes = wanted.outcomes.then(|| (snapshot.parts(trees.outcomes), Some(0)));
        MessageParts { messages: snapshot.parts(trees.messages), outcomes, wanted, next: Some(0) }
    }

    /// Loads the next part; none after the last one. Each message is in one part, with all its rows.
    fn load_next(&mut self) -> Option<Ids> {
        let from = self.next?;
        let only_received = !self.wanted.outputs;
        let is_wanted = |key: &[u8]| !only_received || is_received(key);
        let to = loop {
            // Parts of keys may end within a message.
            match first_id_from(&self.messages.load_next(is_wanted).unwrap_or_default()) {
                Some(to) if to <= from => {}
                to => break to,
            }
        };
        if let Some((outcomes, read)) = &mut self.outcomes {
            // The last part has no end, and may have many: its walk reads them itself.
            while to.is_some_and(|to| read.is_some_and(|read| read < to)) {
                *read = outcomes.load_next(|_| true).and_then(|end| first_id_from(&end));
            }
        }
        self.next = to;
        Some(Ids { from, to })
    }
}

/// The first id whose objects all have keys not less than this key; none for an empty key, which means no bound.
fn first_id_from(key: &[u8]) -> Option<u64> {
    let mut id = [0; 8];
    let shared = key.len().min(id.len());
    id[..shared].copy_from_slice(&key[..shared]);
    let id = u64::from_be_bytes(id);
    match key {
        [] => None,
        _ if *key > object_key(id, 0)[..] => id.checked_add(1),
        _ => Some(id),
    }
}
