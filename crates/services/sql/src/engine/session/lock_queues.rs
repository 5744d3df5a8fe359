//! [`LockQueues`]: who holds which lock, who waits for it, and whether waits form a circle.
//!
//! ```text
//!   lock    holders: 7 shared, 9 shared      queue: 4 alone, 5 shared, 6 alone
//!           4 waits for 7 and 9; 5 waits for 4; 6 waits for 7, 9, 4 and 5
//! ```
//!
//! One mutex is around all of it, so a search for a circle has a bound: it follows each lock once for each mode, not once for each
//! session that waits, of which there may be thousands for one row.
//!
//! Invariants: two sessions hold one lock only if both share it. A session waits for one lock at a time.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockKey {
    /// A row, by the hash of its tree and key.
    Row(u64),
    /// A table, for LOCK TABLE.
    Table(u64),
    /// All keys of a table that foreign keys refer to, by a number for the use.
    Keys(u64, u32),
    /// An advisory lock.
    Number(i64),
    /// An advisory lock of two numbers, which is no one of one.
    Pair(i32, i32),
}

/// How it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// With others that share it.
    Shared,
    /// Alone.
    Alone,
}

impl LockMode {
    /// Whether two sessions can have one lock with these modes.
    pub(super) fn agrees(self, other: LockMode) -> bool {
        self == LockMode::Shared && other == LockMode::Shared
    }
}

/// Who has a lock.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) session: u64,
    pub(super) owner: u64,
    pub(super) mode: LockMode,
}

/// Who waits for a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) session: u64,
    pub(super) owner: u64,
    pub(super) mode: LockMode,
    /// Whether it has nothing to lose, and is sent away where waits form a circle.
    pub(super) gives_way: bool,
    /// Whether it has the lock now; it was sent away if not.
    pub(super) granted: oneshot::Sender<bool>,
}

/// A lock: who has it, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) holders: Vec<Holder>,
    pub(super) waiters: VecDeque<Waiter>,
}

impl Lock {
    /// Whether a session could have it now with this mode.
    pub(super) fn is_free_for(&self, session: u64, mode: LockMode) -> bool {
        self.holders.iter().all(|holder| holder.session == session || holder.mode.agrees(mode))
    }

    /// Whether a session has it.
    pub(super) fn is_held_by(&self, session: u64) -> bool {
        self.holders.iter().any(|holder| holder.session == session)
    }

    /// Whether this owner has it alone, and nobody waits.
    pub(super) fn is_of(&self, owner: u64) -> bool {
        self.waiters.is_empty() && self.holders.iter().all(|holder| holder.owner == owner)
    }

    /// Adds a holder. Returns whether the owner did not hold it before.
    pub(super) fn hold(&mut self, session: u64, owner: u64, mode: LockMode) -> bool {
        match self.holders.iter_mut().find(|holder| holder.owner == owner) {
            Some(holder) => {
                if mode == LockMode::Alone {
                    holder.mode = mode;
                }
                false
            }
            None => {
                self.holders.push(Holder { session, owner, mode });
                true
            }
        }
    }

    /// Gives the lock to those who waited longest and agree with its holders.
    pub(super) fn hand_on(&mut self, waiting: &mut HashMap<u64, LockKey>) {
        while let Some(first) = self.waiters.front() {
            if !self.is_free_for(first.session, first.mode) {
                return;
            }
            let Some(Waiter { session, owner, mode, granted, .. }) = self.waiters.pop_front() else { return };
            waiting.remove(&session);
            self.hold(session, owner, mode);
            // If nobody receives it, the wait was given up, and releases it.
            let _ = granted.send(true);
        }
    }
}

/// All locks, and who waits.
#[derive(Debug, Default)]
pub(super) struct LockQueues {
    pub(super) locks: HashMap<LockKey, Lock>,
    /// For each session that waits: for what.
    pub(super) waiting: HashMap<u64, LockKey>,
}

/// How much of a lock a search has followed.
struct Followed {
    /// Where each session stands in its queue.
    places: HashMap<u64, usize>,
    /// By mode of who waits: so many waiters were looked at, and for whom its holders were.
    modes: [(usize, Option<u64>); 2],
}

impl Followed {
    fn of(lock: &Lock) -> Followed {
        let places = lock.waiters.iter().enumerate().map(|(at, waiter)| (waiter.session, at));
        Followed { places: places.collect(), modes: [(0, None); 2] }
    }

    /// The sessions for which this one waits, but those that were returned before for others that wait for the lock with its mode.
    fn blockers(&mut self, lock: &Lock, session: u64) -> Vec<u64> {
        let Some(at) = self.places.get(&session).copied() else { return Vec::new() };
        let mode = lock.waiters[at].mode;
        let (looked, without) = &mut self.modes[usize::from(mode == LockMode::Alone)];
        let blocks = |held: LockMode| !held.agrees(mode);
        let holders = lock.holders.iter().filter(|holder| blocks(holder.mode)).map(|holder| holder.session);
        // The first one does not wait for itself; each later one waits for that one too, if it is a holder.
        let mut found: Vec<u64> = match without.replace(session) {
            None => holders.filter(|other| *other != session).collect(),
            Some(first) => holders.filter(|other| *other == first && *other != session).collect(),
        };
        let from = (*looked).min(at);
        let before = lock.waiters.range(from..at).filter(|waiter| waiter.session != session && blocks(waiter.mode));
        found.extend(before.map(|waiter| waiter.session));
        *looked = (*looked).max(at);
        found
    }
}

impl LockQueues {
    /// Whom a waiting session waits for.
    pub(super) fn blockers(&self, session: u64) -> Vec<u64> {
        let Some(lock) = self.waiting.get(&session).and_then(|key| self.locks.get(key)) else { return Vec::new() };
        Followed::of(lock).blockers(lock, session)
    }

    /// The sessions of a circle of waits through this one, without it; `None` if it does not wait for itself. Takes as long as the queues
    /// of the locks that it meets.
    fn circle(&self, session: u64) -> Option<Vec<u64>> {
        let (mut open, mut found_by) = (VecDeque::from([session]), HashMap::<u64, u64>::new());
        let mut followed: HashMap<LockKey, Followed> = HashMap::new();
        while let Some(next) = open.pop_front() {
            let Some((key, lock)) = self.waiting.get(&next).and_then(|key| Some((*key, self.locks.get(key)?))) else {
                continue;
            };
            for blocker in followed.entry(key).or_insert_with(|| Followed::of(lock)).blockers(lock, next) {
                if blocker == session {
                    let back = |at: &u64| found_by.get(at).copied().filter(|before| *before != session);
                    return Some(std::iter::successors(Some(next).filter(|next| *next != session), back).collect());
                }
                if let Entry::Vacant(place) = found_by.entry(blocker) {
                    place.insert(next);
                    open.push_back(blocker);
                }
            }
        }
        None
    }

    /// Sends away those that give way until a session that waits does not wait for itself. Returns whether it does not.
    pub(super) fn is_out_of_circle(&mut self, session: u64) -> bool {
        while let Some(others) = self.circle(session) {
            if !others.into_iter().any(|other| self.send_away(other)) {
                return false;
            }
        }
        true
    }

    /// Ends the wait of a session that gives way. Returns whether it is one.
    fn send_away(&mut self, session: u64) -> bool {
        let LockQueues { locks, waiting } = self;
        let Some(lock) = waiting.get(&session).and_then(|key| locks.get_mut(key)) else { return false };
        let is_it = |waiter: &Waiter| waiter.session == session && waiter.gives_way;
        let Some(waiter) = lock.waiters.iter().position(is_it).and_then(|at| lock.waiters.remove(at)) else {
            return false;
        };
        waiting.remove(&session);
        // Those behind it may agree with the holders.
        lock.hand_on(waiting);
        let _ = waiter.granted.send(false);
        true
    }

    /// Releases a lock of an owner.
    pub(super) fn release(&mut self, key: LockKey, owner: u64) {
        let Some(lock) = self.locks.get_mut(&key) else { return };
        lock.holders.retain(|holder| holder.owner != owner);
        lock.hand_on(&mut self.waiting);
        if lock.holders.is_empty() && lock.waiters.is_empty() {
            self.locks.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock with these holders and waiters: `(session, whether alone)`.
    fn lock(queues: &mut LockQueues, key: i64, holders: &[(u64, bool)], waiters: &[(u64, bool)]) {
        let mode = |alone: bool| if alone { LockMode::Alone } else { LockMode::Shared };
        let mut lock = Lock::default();
        for (session, alone) in holders {
            lock.holders.push(Holder { session: *session, owner: *session, mode: mode(*alone) });
        }
        for (session, alone) in waiters {
            let (granted, _) = oneshot::channel();
            let (session, mode) = (*session, mode(*alone));
            lock.waiters.push_back(Waiter { session, owner: session, mode, gives_way: false, granted });
            queues.waiting.insert(session, LockKey::Number(key));
        }
        queues.locks.insert(LockKey::Number(key), lock);
    }

    /// Whether a session waits for itself, by looking at each wait alone.
    fn waits_for_itself(queues: &LockQueues, session: u64) -> bool {
        let (mut open, mut seen) = (vec![session], Vec::new());
        while let Some(next) = open.pop() {
            for blocker in queues.blockers(next) {
                if !seen.contains(&blocker) {
                    seen.push(blocker);
                    open.push(blocker);
                }
            }
        }
        seen.contains(&session)
    }

    #[test]
    fn a_circle_is_found_where_there_is_one_however_locks_are_shared() {
        // Each number makes two locks of four sessions, each of which waits for one at most.
        let mut circles = 0;
        for number in 0..40_000_u64 {
            let mut bits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
            let mut take = |count: u64| {
                let taken = bits % count;
                bits /= count;
                taken
            };
            let (mut waits, mut holds): ([Vec<_>; 2], [Vec<_>; 2]) = Default::default();
            for session in 1..=4 {
                let (lock, alone) = (take(3), take(2) == 1);
                if lock < 2 {
                    waits[lock as usize].push((session, alone));
                }
                let (lock, alone) = (take(3), take(2) == 1);
                if lock < 2 {
                    holds[lock as usize].push((session, alone));
                }
            }
            let mut queues = LockQueues::default();
            (0..2).for_each(|at| lock(&mut queues, at as i64, &holds[at], &waits[at]));
            for session in 1..=4 {
                let circle = queues.circle(session);
                assert_eq!(circle.is_some(), waits_for_itself(&queues, session), "{number}: {queues:?}");
                for other in circle.iter().flatten() {
                    assert!(*other != session && waits_for_itself(&queues, *other), "{number}: {queues:?}");
                }
                circles += usize::from(circle.is_some());
            }
        }
        assert!(circles > 1000, "{circles}");
    }

    #[test]
    fn a_search_looks_at_each_waiter_once_for_each_mode() {
        let all: Vec<(u64, bool)> = (2..2002).map(|session| (session, session % 3 > 0)).collect();
        let mut queues = LockQueues::default();
        lock(&mut queues, 1, &[(1, true)], &all);
        let lock = &queues.locks[&LockKey::Number(1)];
        let mut followed = Followed::of(lock);
        let found: usize = all.iter().rev().map(|(session, _)| followed.blockers(lock, *session).len()).sum();
        assert!(found <= 2 * (all.len() + 2), "{found} steps");
        assert_eq!(queues.circle(2001), None);
    }
}
