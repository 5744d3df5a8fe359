//! [`RowLocks`]: the locks of rows, by transaction, and who waits for which.
//!
//! ```text
//!   try_take --free, or its own-----------------> held --end of the transaction, ROLLBACK TO--> free
//!            --held by another session--> wait ---^  in the order of arrival
//!                                          |--> 40P01  the wait would close a circle
//!                                          |--> 55P03  lock_timeout
//!                                          |--> the statement is ended
//! ```
//!
//! A transaction locks a row before it changes it, so that another one waits for it instead of failing. Nothing depends on
//! this for the safety of data: the store still refuses the second of two transactions that change one key. So locks are
//! in memory only, and bounded: beyond [`LOCKS_OF_TRANSACTION`] rows of a transaction, and [`LOCKS_IN_ALL`], rows are
//! changed without; who meets another transaction there is told to run again (40001).
//!
//! A row is locked where it is stored: by its key in the delta store, by its address in the column store. Keys are represented
//! by a keyed hash of 64 bits. Two with the same hash wait for one another, and nothing else happens.
//!
//! Invariants: two sessions hold one lock only if both share it. A session waits for one lock at a time. Who waits holds its
//! place: later ones that do not agree with it wait behind it.

pub(crate) mod shown;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use store::TreeId;
use tokio::sync::oneshot;

pub(crate) use super::lock_queues::{LockKey, LockMode};
use super::lock_queues::{LockQueues, Waiter};
use super::table_locks::{REFERRING, REMOVING, TABLES, table_of};
use crate::{ErrorFields, SqlError};

/// Rows that one transaction locks: with keys of 8 bytes some 10 MB.
const LOCKS_OF_TRANSACTION: usize = 65_536;
/// Advisory locks of a session, and of a transaction.
const NUMBERS_OF_OWNER: usize = 1024;
/// Rows that all transactions together lock: some 80 MB.
const LOCKS_IN_ALL: usize = 524_288;
/// Locks that a background thread takes, or a transaction releases, at a time: others need the mutex too.
const LOCKS_AT_A_TIME: usize = 1024;

/// All row locks of an engine.
#[derive(Debug, Default)]
pub(crate) struct RowLocks {
    inner: Mutex<LockQueues>,
    hasher: RandomState,
    owners: AtomicU64,
}

impl RowLocks {
    /// A new owner of locks, for a transaction of a session.
    pub(crate) fn owner(self: &Arc<Self>, session: u64) -> Arc<LockOwner> {
        self.owner_that(session, false)
    }

    /// A new owner of locks, for a statement that begins again where waits form a circle: the others go on.
    pub(crate) fn owner_that_gives_way(self: &Arc<Self>, session: u64) -> Arc<LockOwner> {
        self.owner_that(session, true)
    }

    fn owner_that(self: &Arc<Self>, session: u64, gives_way: bool) -> Arc<LockOwner> {
        let (locks, id) = (Arc::clone(self), self.owners.fetch_add(1, Ordering::Relaxed));
        let (held, wanted, in_order) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(LockOwner { locks, session, id, gives_way, in_order, held, begun: AtomicUsize::new(0), wanted })
    }

    /// The lock of a key of a tree.
    pub(crate) fn key(&self, tree: TreeId, key: &[u8]) -> LockKey {
        match table_of(key).filter(|_| tree == TABLES || tree == REFERRING || tree == REMOVING) {
            Some(table) if tree == TABLES => LockKey::Table(table),
            Some(table) => LockKey::Keys(table, tree.0),
            None => LockKey::Row(self.hasher.hash_one((tree.0, key))),
        }
    }

    /// Whether a session has a key of a tree, or waits for it.
    pub(crate) fn is_locked(&self, tree: TreeId, key: &[u8]) -> bool {
        let key = self.key(tree, key);
        self.inner.lock().locks.contains_key(&key)
    }

    /// Locks all of these keys for a background thread, or none, if a session holds one of them. They are released when the
    /// result is dropped.
    pub(crate) fn reserve(self: &Arc<Self>, keys: &[LockKey]) -> Option<Arc<LockOwner>> {
        let owner = self.owner(NO_SESSION);
        for part in keys.chunks(LOCKS_AT_A_TIME) {
            let mut inner = self.inner.lock();
            if part.iter().any(|key| inner.locks.get(key).is_some_and(|lock| !lock.is_of(owner.id))) {
                // The owner releases the parts before.
                return None;
            }
            for key in part {
                inner.locks.entry(*key).or_default().hold(NO_SESSION, owner.id, LockMode::Alone);
            }
            owner.held.lock().extend_from_slice(part);
        }
        Some(owner)
    }

    /// The sessions that wait.
    pub(crate) fn waiting(&self) -> Vec<u64> {
        self.inner.lock().waiting.keys().copied().collect()
    }

    /// Whom a session waits for.
    pub(crate) fn blockers(&self, session: u64) -> Vec<u64> {
        self.inner.lock().blockers(session)
    }
}

/// The number of no session: sessions are counted from 1.
const NO_SESSION: u64 = 0;

/// A row that a statement needs and another transaction has: where it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) tree: TreeId,
    pub(crate) key: Vec<u8>,
    pub(crate) mode: LockMode,
}

/// The locks of one transaction. They are released when this is dropped.
#[derive(Debug)]
pub(crate) struct LockOwner {
    locks: Arc<RowLocks>,
    session: u64,
    id: u64,
    gives_way: bool,
    /// Whether its statement locks no row behind one that it waits for.
    in_order: AtomicBool,
    /// In the order in which they were taken.
    held: Mutex<Vec<LockKey>>,
    /// How many there were when the statement began, which may have waited and run again since.
    begun: AtomicUsize,
    /// The row for which the statement has to wait before it runs again.
    wanted: Mutex<Option<Wanted>>,
}

impl LockOwner {
    /// Locks a row, unless another session has it: then it notes that this one is wanted and returns false. Beyond the bounds it
    /// returns true without locking.
    pub(crate) fn try_take(&self, tree: TreeId, key: &[u8], mode: LockMode) -> bool {
        let lock_key = self.locks.key(tree, key);
        let is_free = self.take(lock_key, mode);
        if !is_free {
            self.wanted.lock().get_or_insert_with(|| Wanted { tree, key: key.to_vec(), mode });
        }
        is_free
    }

    /// Whether its session has the lock of a key: beyond the bounds [`try_take`](LockOwner::try_take) goes on without.
    pub(crate) fn has(&self, tree: TreeId, key: &[u8]) -> bool {
        let key = self.locks.key(tree, key);
        self.locks.inner.lock().locks.get(&key).is_some_and(|lock| lock.is_held_by(self.session))
    }

    /// Whether it has the lock, or goes on without, beyond the bounds.
    fn take(&self, key: LockKey, mode: LockMode) -> bool {
        let mut inner = self.locks.inner.lock();
        let is_full = inner.locks.len() >= LOCKS_IN_ALL;
        match inner.locks.get_mut(&key) {
            Some(lock) => {
                let waits = |waiter: &Waiter| waiter.session != self.session && !waiter.mode.agrees(mode);
                let is_behind = !lock.is_held_by(self.session) && lock.waiters.iter().any(waits);
                if is_behind || !lock.is_free_for(self.session, mode) {
                    return false;
                }
                if lock.hold(self.session, self.id, mode) {
                    self.held.lock().push(key);
                }
            }
            None => {
                let mut held = self.held.lock();
                let is_row = matches!(key, LockKey::Row(_));
                if !is_row || (!is_full && held.len() < LOCKS_OF_TRANSACTION) {
                    inner.locks.entry(key).or_default().hold(self.session, self.id, mode);
                    held.push(key);
                }
            }
        }
        true
    }

    /// A statement begins.
    pub(crate) fn begin_statement(&self) {
        self.begun.store(self.count(), Ordering::Relaxed);
    }

    /// Releases what the statement has locked, in all of its runs: it has changed nothing.
    pub(crate) fn give_back_statement(&self) {
        self.give_back_to(self.begun.load(Ordering::Relaxed));
    }

    /// Whether its statement locks no row behind one that it waits for: transactions that lock in one order never wait in a circle.
    pub(crate) fn is_in_order(&self) -> bool {
        self.in_order.load(Ordering::Relaxed)
    }

    /// Says so.
    pub(crate) fn set_in_order(&self, in_order: bool) {
        self.in_order.store(in_order, Ordering::Relaxed);
    }

    /// The row for which the statement has to wait, if that is why it failed.
    pub(crate) fn take_wanted(&self) -> Option<Wanted> {
        self.wanted.lock().take()
    }

    /// Waits until it has the lock of a row. Zero time means no limit.
    ///
    /// Errors: 40P01, 55P03.
    pub(crate) async fn wait(&self, wanted: &Wanted, most: Duration) -> Result<(), SqlError> {
        self.wait_for(self.locks.key(wanted.tree, &wanted.key), wanted.mode, most).await
    }

    async fn wait_for(&self, key: LockKey, mode: LockMode, most: Duration) -> Result<(), SqlError> {
        let Some(mut wait) = self.queue(key, mode)? else { return Ok(()) };
        let granted = match most.is_zero() {
            true => Ok((&mut wait.granted).await),
            false => tokio::time::timeout(most, &mut wait.granted).await,
        };
        match granted {
            Ok(Ok(true)) => {
                wait.is_received = true;
                let mut held = self.held.lock();
                // One that it shared before, and has alone now, stays where it is: it was not taken behind a savepoint.
                if !held.contains(&key) {
                    held.push(key);
                }
                Ok(())
            }
            Ok(_) => Err(deadlock()),
            Err(_) => Err(SqlError::transaction("55P03", "canceling statement due to lock timeout")),
        }
    }

    /// Takes an advisory lock, after a wait if `waits` says how long; zero means no limit. Returns whether it has it.
    ///
    /// Errors: 40P01, 55P03; 53200 beyond the bounds.
    pub(crate) async fn lock_number(
        &self,
        key: LockKey,
        mode: LockMode,
        waits: Option<Duration>,
    ) -> Result<bool, SqlError> {
        let is_number = |key: &&LockKey| matches!(key, LockKey::Number(_) | LockKey::Pair(..));
        if self.held.lock().iter().filter(is_number).count() >= NUMBERS_OF_OWNER {
            return Err(SqlError::Engine(Box::new(ErrorFields::new(
                "53200",
                "this session has too many advisory locks",
            ))));
        }
        match waits {
            _ if self.take(key, mode) => Ok(true),
            Some(most) => self.wait_for(key, mode, most).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Leaves a lock with this mode; `None` releases it.
    pub(crate) fn reduce(&self, key: LockKey, left: Option<LockMode>) {
        let mut inner = self.locks.inner.lock();
        match left {
            None => {
                self.held.lock().retain(|held| *held != key);
                inner.release(key, self.id);
            }
            Some(mode) => {
                let LockQueues { locks, waiting } = &mut *inner;
                let Some(lock) = locks.get_mut(&key) else { return };
                lock.holders.iter_mut().filter(|holder| holder.owner == self.id).for_each(|holder| holder.mode = mode);
                lock.hand_on(waiting);
            }
        }
    }

    /// A place in the queue; `None` if the lock was free.
    fn queue(&self, key: LockKey, mode: LockMode) -> Result<Option<Wait<'_>>, SqlError> {
        if self.take(key, mode) {
            return Ok(None);
        }
        let mut inner = self.locks.inner.lock();
        let (sender, granted) = oneshot::channel();
        let (session, gives_way) = (self.session, self.gives_way);
        let waiter = Waiter { session, owner: self.id, mode, gives_way, granted: sender };
        let lock = inner.locks.entry(key).or_default();
        // Who has it already goes first: the others cannot have it before.
        match lock.is_held_by(self.session) {
            true => lock.waiters.push_front(waiter),
            false => lock.waiters.push_back(waiter),
        }
        inner.waiting.insert(self.session, key);
        let wait = Wait { owner: self, key, granted, is_received: false };
        if !inner.is_out_of_circle(self.session) {
            drop(inner);
            drop(wait);
            return Err(deadlock());
        }
        // It may have become free before this one was in the queue.
        let LockQueues { locks, waiting } = &mut *inner;
        locks.entry(key).or_default().hand_on(waiting);
        drop(inner);
        Ok(Some(wait))
    }

    /// How many locks it has, for [`give_back_to`](LockOwner::give_back_to).
    pub(crate) fn count(&self) -> usize {
        self.held.lock().len()
    }

    /// Releases the locks that it took since it had this number of them.
    pub(crate) fn give_back_to(&self, count: usize) {
        let later = {
            let mut held = self.held.lock();
            let at = count.min(held.len());
            held.split_off(at)
        };
        for part in later.chunks(LOCKS_AT_A_TIME) {
            let mut inner = self.locks.inner.lock();
            part.iter().for_each(|key| inner.release(*key, self.id));
        }
    }

    /// Releases rows, of those that it has locked since it had this number of locks.
    pub(crate) fn give_back_some<'a>(&self, count: usize, rows: impl Iterator<Item = (TreeId, &'a [u8])>) {
        let rows: HashSet<LockKey> = rows.map(|(tree, key)| self.locks.key(tree, key)).collect();
        let mut inner = self.locks.inner.lock();
        let mut held = self.held.lock();
        let from = count.min(held.len());
        for key in held.split_off(from) {
            match rows.contains(&key) {
                true => inner.release(key, self.id),
                false => held.push(key),
            }
        }
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        self.give_back_to(0);
    }
}

fn deadlock() -> SqlError {
    SqlError::transaction("40P01", "deadlock detected")
        .with_detail("Sessions wait for rows of one another.")
        .with_hint("Run the transaction again.")
}

/// A place in the queue of a lock. Dropping it leaves the queue, or gives the lock back that nobody received.
struct Wait<'a> {
    owner: &'a LockOwner,
    key: LockKey,
    granted: oneshot::Receiver<bool>,
    is_received: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.is_received {
            return;
        }
        let mut inner = self.owner.locks.inner.lock();
        let LockQueues { locks, waiting } = &mut *inner;
        let Some(lock) = locks.get_mut(&self.key) else { return };
        let before = lock.waiters.len();
        lock.waiters.retain(|waiter| waiter.owner != self.owner.id);
        if lock.waiters.len() < before {
            waiting.remove(&self.owner.session);
            lock.hand_on(waiting);
            if lock.holders.is_empty() && lock.waiters.is_empty() {
                locks.remove(&self.key);
            }
        } else if !self.owner.held.lock().contains(&self.key) {
            inner.release(self.key, self.owner.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(9);

    fn wanted(key: u8, mode: LockMode) -> Wanted {
        Wanted { tree: TREE, key: vec![key], mode }
    }

    async fn until_waiting(locks: &RowLocks, count: usize) {
        while locks.waits().len() < count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn locks_are_shared_handed_on_in_order_and_released_with_their_owner() {
        let locks = Arc::new(RowLocks::default());
        let [a, b, c] = [1, 2, 3].map(|session| locks.owner(session));
        assert!(a.try_take(TREE, &[1], LockMode::Shared) && b.try_take(TREE, &[1], LockMode::Shared));
        assert!(!c.try_take(TREE, &[1], LockMode::Alone));
        assert_eq!(c.take_wanted().map(|wanted| wanted.key), Some(vec![1]));
        let waiting = {
            let c = Arc::clone(&c);
            tokio::spawn(async move { c.wait(&wanted(1, LockMode::Alone), Duration::ZERO).await })
        };
        until_waiting(&locks, 1).await;
        assert_eq!(locks.waits(), [(3, vec![1, 2])]);
        assert!(!locks.owner(4).try_take(TREE, &[1], LockMode::Shared), "it would be before one that waits");
        assert!(a.try_take(TREE, &[1], LockMode::Shared), "it has it already");
        drop((a, b));
        waiting.await.expect("no panic").expect("it is free");
        let d = locks.owner(4);
        let late = d.wait(&wanted(1, LockMode::Shared), Duration::from_millis(1)).await;
        assert_eq!(late.expect_err("it is held").code(), "55P03");
        assert!(locks.waits().is_empty());
        let before = c.count();
        assert!(c.try_take(TREE, &[2], LockMode::Alone));
        c.give_back_to(before);
        assert!(d.try_take(TREE, &[2], LockMode::Alone));
        drop((c, d));
        assert!(locks.inner.lock().locks.is_empty());
    }

    #[tokio::test]
    async fn of_a_circle_of_waits_who_gives_way_is_sent_away_and_else_the_last() {
        for gives_way in [true, false] {
            let locks = Arc::new(RowLocks::default());
            let a = if gives_way { locks.owner_that_gives_way(1) } else { locks.owner(1) };
            let b = locks.owner(2);
            assert!(a.try_take(TREE, &[1], LockMode::Alone) && b.try_take(TREE, &[2], LockMode::Alone));
            let first = tokio::spawn(async move {
                let outcome = a.wait(&wanted(2, LockMode::Alone), Duration::ZERO).await;
                (a, outcome.map_err(|error| error.code()))
            });
            until_waiting(&locks, 1).await;
            if gives_way {
                let second = tokio::spawn(async move {
                    let outcome = b.wait(&wanted(1, LockMode::Alone), Duration::ZERO).await;
                    (b, outcome.map_err(|error| error.code()))
                });
                let (a, outcome) = first.await.expect("no panic");
                assert_eq!(outcome, Err("40P01"));
                a.give_back_to(0);
                assert_eq!(second.await.expect("no panic").1, Ok(()));
            } else {
                let outcome = b.wait(&wanted(1, LockMode::Alone), Duration::ZERO).await;
                assert_eq!(outcome.map_err(|error| error.code()), Err("40P01"));
                drop(b);
                assert_eq!(first.await.expect("no panic").1, Ok(()));
            }
            assert!(locks.inner.lock().locks.is_empty());
        }
    }

    #[test]
    fn a_background_thread_locks_all_of_its_rows_or_none() {
        let locks = Arc::new(RowLocks::default());
        let owner = locks.owner(1);
        let key = |number: u16| number.to_be_bytes();
        let keys: Vec<_> = (0..3000).map(|number| locks.key(TREE, &key(number))).collect();
        // The first and the last of the parts in which they are taken.
        for number in [3, 2999] {
            assert!(owner.try_take(TREE, &key(number), LockMode::Alone));
            assert!(locks.reserve(&keys).is_none());
            assert!(owner.try_take(TREE, &key(4), LockMode::Alone), "none is locked");
            owner.give_back_to(0);
        }
        drop(owner);
        let reserved = locks.reserve(&keys).expect("nobody has one");
        assert!(locks.reserve(&keys[2000..]).is_none(), "another background thread has them");
        assert!(!locks.owner(1).try_take(TREE, &key(2500), LockMode::Alone));
        drop(reserved);
        assert!(locks.inner.lock().locks.is_empty());
    }

    #[test]
    fn rows_beyond_the_bound_are_changed_without_a_lock() {
        let locks = Arc::new(RowLocks::default());
        let owner = locks.owner(1);
        for key in 0..=LOCKS_OF_TRANSACTION as u64 {
            assert!(owner.try_take(TREE, &key.to_be_bytes(), LockMode::Alone));
        }
        assert_eq!(owner.count(), LOCKS_OF_TRANSACTION);
    }
}
