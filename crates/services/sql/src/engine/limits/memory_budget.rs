//! [`Budget`]: the memory that all statements together may take, and [`Account`]: the memory that one session takes of
//! it.
//!
//! ```text
//!   session's thread --+
//!   threads of query --+--counted by the allocator--> Account --sum--> Budget
//!
//!   before a large allocation          Account::check_room    is there room for it?
//!   between two batches                Account::check     did this session take too much?
//! ```
//!
//! DataFusion's operators reserve the memory that they keep in DataFusion's own pool, and spill; the pool is a part of
//! the budget. All other memory is counted when it is allocated: batches on their way, results of functions, plans,
//! rows that are being changed. Nothing is counted if the program's allocator is not [`device::CountedHeap`]; then only
//! announced allocations are bounded.
//!
//! The changes of a transaction are counted until it ends; beyond a bound of their own, the store's journal keeps them.
//!
//! If all sessions together take too much, a statement of a session that takes more than its share ends, and no other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::HeapCount;
use parking_lot::{Mutex, MutexGuard};

use crate::{ErrorFields, SqlError};

/// A session that takes less than this part of the memory does not count as busy, and the memory is not divided by it.
const BUSY_PART: usize = 64;

/// Waiting for threads that were told to end: how often, and how long each time.
const RETURN_TIMES: u32 = 50;
const RETURN_PAUSE: Duration = Duration::from_millis(10);

/// The same for threads that end: they have nothing else to do.
const END_PAUSE: Duration = Duration::from_millis(2);

/// The memory of all statements of an engine.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    /// Bytes of announced allocations that are not made yet.
    reserved: AtomicUsize,
    accounts: Mutex<Vec<Weak<Account>>>,
}

/// The memory that a session takes.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    /// Of the session's own thread.
    own: Arc<HeapCount>,
    /// Of the threads of its queries.
    teams: Mutex<Vec<Arc<HeapCount>>>,
    /// Of threads that were given up and have not ended: their computations still take memory.
    given_up: Mutex<Vec<Arc<HeapCount>>>,
    /// Of threads that are ending: their pages go back to the system when they have ended.
    ending: Mutex<Vec<Arc<HeapCount>>>,
    /// Held during a large allocation: without it, several threads of one statement that request memory at the same
    /// time would each get all of the rest.
    making: Mutex<()>,
}

/// Room for a large allocation until it is made; from then on the allocation itself is counted.
#[derive(Debug)]
pub(crate) struct MemoryReservation<'a> {
    account: &'a Account,
    bytes: usize,
    _alone: MutexGuard<'a, ()>,
}

impl Drop for MemoryReservation<'_> {
    fn drop(&mut self) {
        self.account.budget.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { limit, reserved: AtomicUsize::new(0), accounts: Mutex::default() })
    }

    /// The account of a new session.
    pub(crate) fn account(self: &Arc<Budget>) -> Arc<Account> {
        let account = Arc::new(Account {
            budget: self.clone(),
            own: Arc::default(),
            teams: Mutex::default(),
            given_up: Mutex::default(),
            ending: Mutex::default(),
            making: Mutex::default(),
        });
        let mut accounts = self.accounts.lock();
        accounts.retain(|account| account.strong_count() > 0);
        accounts.push(Arc::downgrade(&account));
        account
    }

    /// The bytes that all sessions take, and the number of busy sessions.
    fn taken(&self) -> (usize, usize) {
        let accounts = self.accounts.lock();
        let taken = accounts.iter().filter_map(Weak::upgrade).map(|account| account.taken());
        taken.fold((0, 0), |(sum, busy), taken| (sum + taken, busy + usize::from(taken > self.limit / BUSY_PART)))
    }
}

impl Account {
    /// Counts the calling thread as the session's own from now on.
    pub(crate) fn count_here(&self) {
        device::heap::count_here(&self.own);
    }

    /// Runs on the session's thread what is not the session's: a commit, which may apply the changes of others and takes pages of the store.
    pub(crate) fn not_counted<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = self.own.bytes();
        let done = work();
        self.own.set(before);
        done
    }

    /// Begins a statement. Memory that the session keeps from before is not charged to the statement. Exceptions are
    /// the memory of queries that are read in part, and the changes of a transaction that continues (`goes_on`).
    pub(crate) fn begin(&self, goes_on: bool) {
        if goes_on || !self.teams.lock().is_empty() {
            return;
        }
        // The session's thread may have freed memory that given-up threads allocated: only the sum of both is what
        // remains.
        let given_up = self.given_up();
        if self.given_up.lock().is_empty() {
            self.own.set(0);
        } else if self.own.bytes() + given_up < 0 {
            self.own.set(-given_up);
        }
    }

    /// Counts a query's threads as this session's.
    pub(crate) fn join(&self, team: &Arc<HeapCount>) {
        self.teams.lock().push(team.clone());
    }

    /// Ends that counting, at once or when the threads have ended. Memory that these threads took and others free, or
    /// the other way round, stays in the account.
    pub(crate) fn leave(&self, team: &Arc<HeapCount>, is_idle: bool) {
        let mut teams = self.teams.lock();
        teams.retain(|other| !Arc::ptr_eq(other, team));
        match is_idle {
            true => self.own.add(team.bytes()),
            false => self.given_up.lock().push(team.clone()),
        }
    }

    /// Bytes of threads that were given up. The bytes of those that have ended are moved to the session's own count.
    fn given_up(&self) -> i64 {
        let mut given_up = self.given_up.lock();
        given_up.retain(|team| {
            let has_ended = Arc::strong_count(team) == 1;
            if has_ended {
                self.own.add(team.bytes());
            }
            !has_ended
        });
        given_up.iter().map(|team| team.bytes()).sum()
    }

    /// Bytes that the session takes.
    fn taken(&self) -> usize {
        let given_up = self.given_up();
        let teams: i64 = self.teams.lock().iter().map(|team| team.bytes()).sum();
        usize::try_from(self.own.bytes() + teams + given_up).unwrap_or(0)
    }

    /// Errors: 53200 if all sessions together take more than the limit, and this one more than its share.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        let (all, busy) = self.budget.taken();
        if all <= self.budget.limit || self.taken() <= self.budget.limit / busy.max(1) {
            return Ok(());
        }
        Err(out_of_memory(self.taken(), self.budget.limit))
    }

    /// Bytes that may still be taken.
    pub(crate) fn room(&self) -> usize {
        let taken = self.budget.taken().0.saturating_add(self.budget.reserved.load(Ordering::Relaxed));
        self.budget.limit.saturating_sub(taken)
    }

    /// Reserves room for `bytes` bytes until the returned reservation is dropped; meanwhile no other thread of the
    /// session makes a large allocation. Errors: 53200 if there is no room.
    pub(crate) fn reserve(&self, bytes: u128) -> Result<MemoryReservation<'_>, SqlError> {
        let alone = self.making.lock();
        self.check_room(bytes)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.budget.reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(MemoryReservation { account: self, bytes, _alone: alone })
    }

    /// The threads of a query that has left are ending.
    pub(crate) fn ends(&self, team: &Arc<HeapCount>) {
        self.ending.lock().push(team.clone());
    }

    /// Whether all ending threads have ended.
    fn have_ended(&self) -> bool {
        let mut ending = self.ending.lock();
        ending.retain(|team| Arc::strong_count(team) > 1);
        ending.is_empty()
    }

    /// Waits a short time until the threads of earlier queries have ended, and until given-up threads have freed their
    /// memory.
    pub(crate) async fn ended(&self) {
        for _ in 0..RETURN_TIMES {
            if self.have_ended() {
                break;
            }
            tokio::time::sleep(END_PAUSE).await;
        }
        if !self.given_up.lock().is_empty() {
            self.returned().await;
        }
    }

    /// Waits a short time until threads that were told to end have freed their memory.
    pub(crate) async fn returned(&self) {
        for _ in 0..RETURN_TIMES {
            if self.taken() <= self.budget.limit / BUSY_PART {
                return;
            }
            tokio::time::sleep(RETURN_PAUSE).await;
        }
    }

    /// Errors: 53200 if there is no room for `bytes` more bytes.
    pub(crate) fn check_room(&self, bytes: u128) -> Result<(), SqlError> {
        match u128::try_from(self.room()).is_ok_and(|room| bytes <= room) {
            true => Ok(()),
            false => Err(out_of_memory(usize::try_from(bytes).unwrap_or(usize::MAX), self.budget.limit)),
        }
    }
}

/// SQLSTATE `out_of_memory`.
pub(crate) const OUT_OF_MEMORY: &str = "53200";

/// The error that there is no room.
pub(crate) fn out_of_memory(wanted: usize, limit: usize) -> SqlError {
    let report = ErrorFields::new(OUT_OF_MEMORY, "out of memory");
    SqlError::Engine(Box::new(ErrorFields {
        detail: Some(format!("The statement needs {wanted} bytes; all statements together may take {limit}.")),
        hint: Some("Process less at a time, or raise `memory` in [sql].".into()),
        ..report
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_more_than_its_share_ends_and_no_other() {
        let budget = Budget::new(1000);
        let (large, small) = (budget.account(), budget.account());
        large.own.set(900);
        small.own.set(90);
        assert!(large.check().is_ok() && small.check().is_ok());
        assert_eq!(small.room(), 10);
        assert_eq!(small.check_room(11).unwrap_err().code(), "53200");
        small.own.set(101);
        assert!(small.check().is_ok());
        assert_eq!(large.check().unwrap_err().code(), "53200");
        drop(large);
        assert_eq!(small.room(), 899);
    }

    #[test]
    fn what_a_querys_threads_made_and_the_session_dropped_is_even() {
        let account = Budget::new(1000).account();
        let team = Arc::new(HeapCount::default());
        account.join(&team);
        team.add(500);
        account.own.add(-400);
        assert_eq!(account.taken(), 100);
        account.begin(false);
        assert_eq!(account.taken(), 100, "the query is not over");
        account.leave(&team, false);
        assert_eq!(account.taken(), 100, "its threads go on");
        team.add(50);
        assert_eq!(account.taken(), 150);
        team.add(-50);
        drop(team);
        assert_eq!(account.taken(), 100);
        account.begin(true);
        assert_eq!(account.taken(), 100, "the transaction goes on");
        account.begin(false);
        assert_eq!(account.taken(), 0);
    }

    #[test]
    fn what_is_about_to_be_made_takes_room_from_others() {
        let budget = Budget::new(1000);
        let (first, second) = (budget.account(), budget.account());
        let room = first.reserve(700).expect("it is there");
        assert_eq!((second.room(), second.reserve(301).unwrap_err().code()), (300, "53200"));
        assert!(second.check().is_ok(), "nothing was taken");
        drop(room);
        assert_eq!(second.room(), 1000);
    }
}
