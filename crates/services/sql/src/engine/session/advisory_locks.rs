//! [`AdvisoryLocks`]: the locks that a session has on numbers, for its client's use. They outlive transactions.
//!
//! As in PostgreSQL each is counted, shared and alone separately: it is free when each was unlocked as often as it was locked.
//! They end with the session, and are in the table of [`RowLocks`](super::row_locks::RowLocks), so that a circle of waits through rows and
//! numbers is found.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::row_locks::{LockKey, LockMode, LockOwner};
use crate::SqlError;

/// How often a session has a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    shared: u32,
    alone: u32,
}

impl Times {
    fn of(&mut self, mode: LockMode) -> &mut u32 {
        match mode {
            LockMode::Shared => &mut self.shared,
            LockMode::Alone => &mut self.alone,
        }
    }
}

/// See the head comment of this file.
#[derive(Debug)]
pub(crate) struct AdvisoryLocks {
    owner: Arc<LockOwner>,
    times: HashMap<LockKey, Times>,
}

impl AdvisoryLocks {
    /// Of a session; none yet.
    pub(crate) fn new(owner: Arc<LockOwner>) -> AdvisoryLocks {
        AdvisoryLocks { owner, times: HashMap::new() }
    }

    /// Whether it has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Takes a lock, after a wait if `waits` says how long. Returns whether it has it.
    ///
    /// Errors: 40P01, 55P03; 53200 for too many.
    pub(crate) async fn lock(
        &mut self,
        key: LockKey,
        mode: LockMode,
        waits: Option<Duration>,
    ) -> Result<bool, SqlError> {
        let is_taken = self.owner.lock_number(key, mode, waits).await?;
        if is_taken {
            *self.times.entry(key).or_default().of(mode) += 1;
        }
        Ok(is_taken)
    }

    /// Releases a lock once. Returns whether it had it.
    pub(crate) fn unlock(&mut self, key: LockKey, mode: LockMode) -> bool {
        let Some(times) = self.times.get_mut(&key) else { return false };
        let Some(left) = times.of(mode).checked_sub(1) else { return false };
        *times.of(mode) = left;
        let left = match *times {
            Times { shared: 0, alone: 0 } => None,
            Times { alone: 0, .. } => Some(LockMode::Shared),
            Times { .. } => Some(LockMode::Alone),
        };
        if left.is_none() {
            self.times.remove(&key);
        }
        self.owner.reduce(key, left);
        true
    }

    /// Releases all.
    pub(crate) fn unlock_all(&mut self) {
        self.times.clear();
        self.owner.give_back_to(0);
    }
}
