//! What an operator sees of the locks: who has one, and who waits for whom.

use super::{LockKey, LockMode, RowLocks};

/// A lock that a session has, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownLock {
    pub(crate) key: LockKey,
    pub(crate) session: u64,
    /// The transaction, by a number of its own.
    pub(crate) owner: u64,
    pub(crate) mode: LockMode,
    pub(crate) is_granted: bool,
}

impl RowLocks {
    /// The sessions that wait for a lock, each with those that it waits for.
    pub(crate) fn waits(&self) -> Vec<(u64, Vec<u64>)> {
        let inner = self.inner.lock();
        let mut waits: Vec<_> = inner.waiting.keys().map(|session| (*session, inner.blockers(*session))).collect();
        waits.sort_unstable();
        waits
    }

    /// The locks of tables, advisory locks, and the locks of rows for which somebody waits.
    pub(crate) fn shown(&self) -> Vec<ShownLock> {
        let inner = self.inner.lock();
        let is_shown = |key: &LockKey, waits: bool| waits || !matches!(key, LockKey::Row(_) | LockKey::Keys(..));
        let shown = inner.locks.iter().filter(|(key, lock)| is_shown(key, !lock.waiters.is_empty()));
        let mut all = Vec::new();
        for (key, lock) in shown {
            all.extend(lock.holders.iter().map(|holder| ShownLock {
                key: *key,
                session: holder.session,
                owner: holder.owner,
                mode: holder.mode,
                is_granted: true,
            }));
            all.extend(lock.waiters.iter().map(|waiter| ShownLock {
                key: *key,
                session: waiter.session,
                owner: waiter.owner,
                mode: waiter.mode,
                is_granted: false,
            }));
        }
        all
    }
}
