//! [`RoleCounts`]: how many of something each role has now: connections, or sessions that no connection stands for.
//!
//! A session of the console is one of these: its browser asks when it likes. What ends sessions of users of a directory asks about roles
//! that have either. The limit of connections of a role counts connections only; ports that keep sessions bound them themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::role::RoleId;

type Counts = Mutex<HashMap<RoleId, u32>>;

fn lock(counts: &Counts) -> MutexGuard<'_, HashMap<RoleId, u32>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct RoleCounts(Arc<Counts>);

/// A connection, or a session, of a role: it counts until it is dropped.
#[derive(Debug)]
pub struct Connected {
    counts: Arc<Counts>,
    id: RoleId,
}

impl RoleCounts {
    /// Counts one more of a role; `None`: it has as many as it may.
    pub(super) fn take(&self, id: RoleId, limit: Option<u32>) -> Option<Connected> {
        let mut counts = lock(&self.0);
        let now = counts.get(&id).copied().unwrap_or_default();
        if limit.is_some_and(|limit| now >= limit) {
            return None;
        }
        counts.insert(id, now + 1);
        Some(Connected { counts: Arc::clone(&self.0), id })
    }

    /// The roles that have one.
    pub(super) fn roles(&self) -> Vec<RoleId> {
        lock(&self.0).keys().copied().collect()
    }

    /// Those of all roles.
    pub(super) fn all(&self) -> u32 {
        lock(&self.0).values().sum()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(now) = counts.get_mut(&self.id) {
            *now = now.saturating_sub(1);
            if *now == 0 {
                counts.remove(&self.id);
            }
        }
    }
}
