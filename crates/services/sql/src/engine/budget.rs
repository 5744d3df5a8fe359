//! [`Budget`]: the memory that all statements together may take, and [`Account`]: what one session takes of it.
//!
//! ```text
//!   session's thread --+
//!   threads of query --+--counted by the allocator--> Account --sum--> Budget
//!
//!   before something large is made     Account::afford    is there room for it?
//!   between two batches                Account::check     did somebody take too much?
//! ```
//!
//! DataFusion's operators reserve what they keep in its own pool, and spill; the pool is a part of the budget. All else, batches under
//! way, what functions make, plans, rows that are being changed, is counted as it is allocated. Nothing is counted where
//! the program's allocator is not [`device::CountedHeap`]; then only what is about to be made is bounded.
//!
//! What a transaction has changed is counted until it ends; beyond a bound of its own it is the store's journal that keeps it.
//!
//! Where all together took too much, who has more than its share ends, and no other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::HeapCount;
use parking_lot::{Mutex, MutexGuard};

use crate::{Report, SqlError};

/// Who takes less than this part of the memory is not asked to share.
const BUSY_PART: usize = 64;

/// How often, and how long each time, it is waited for what was told to end.
const RETURN_TIMES: u32 = 50;
const RETURN_PAUSE: Duration = Duration::from_millis(10);

/// The memory of all statements of an engine.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    /// What is about to be made.
    reserved: AtomicUsize,
    accounts: Mutex<Vec<Weak<Account>>>,
}

/// What a session takes.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    /// Of the thread that is the session's own.
    own: Arc<HeapCount>,
    /// Of the threads of its queries.
    teams: Mutex<Vec<Arc<HeapCount>>>,
    /// Of threads that were given up and have not ended: what they compute they still take memory for.
    given_up: Mutex<Vec<Arc<HeapCount>>>,
    /// Held while something large is made: threads of one statement that ask at the same time would all be given what is left.
    making: Mutex<()>,
}

/// Room for something large, until it is made: what was taken for it is counted from then on.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    account: &'a Account,
    bytes: usize,
    _alone: MutexGuard<'a, ()>,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.account.budget.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { limit, reserved: AtomicUsize::new(0), accounts: Mutex::default() })
    }

    /// An account of a new session.
    pub(crate) fn account(self: &Arc<Budget>) -> Arc<Account> {
        let account = Arc::new(Account {
            budget: self.clone(),
            own: Arc::default(),
            teams: Mutex::default(),
            given_up: Mutex::default(),
            making: Mutex::default(),
        });
        let mut accounts = self.accounts.lock();
        accounts.retain(|account| account.strong_count() > 0);
        accounts.push(Arc::downgrade(&account));
        account
    }

    /// What all sessions take, and how many of them take a part that counts.
    fn taken(&self) -> (usize, usize) {
        let accounts = self.accounts.lock();
        let taken = accounts.iter().filter_map(Weak::upgrade).map(|account| account.taken());
        taken.fold((0, 0), |(sum, busy), taken| (sum + taken, busy + usize::from(taken > self.limit / BUSY_PART)))
    }
}

impl Account {
    /// The thread that calls is the session's own from now on.
    pub(crate) fn count_here(&self) {
        device::heap::count_here(&self.own);
    }

    /// A statement begins. What the session keeps from before is not the statement's; what queries that are read in part keep is,
    /// and what the transaction has changed that it `goes_on` with.
    pub(crate) fn begin(&self, goes_on: bool) {
        if goes_on || !self.teams.lock().is_empty() {
            return;
        }
        // What threads made that were given up, this one may have given back: only both together say what is left.
        let given_up = self.given_up();
        if self.given_up.lock().is_empty() {
            self.own.set(0);
        } else if self.own.bytes() + given_up < 0 {
            self.own.set(-given_up);
        }
    }

    /// A query's threads count as this session's.
    pub(crate) fn join(&self, team: &Arc<HeapCount>) {
        self.teams.lock().push(team.clone());
    }

    /// They do so no more, at once or when they have ended. What they took and others give back, or the other way round, stays in the
    /// account.
    pub(crate) fn leave(&self, team: &Arc<HeapCount>, is_idle: bool) {
        let mut teams = self.teams.lock();
        teams.retain(|other| !Arc::ptr_eq(other, team));
        match is_idle {
            true => self.own.add(team.bytes()),
            false => self.given_up.lock().push(team.clone()),
        }
    }

    /// Bytes of threads that were given up. Those that have ended are the account's from here on.
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

    /// Errors: 53200 where all sessions take more than they may, and this one more than its share.
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

    /// Room for so many bytes, kept until what is returned is dropped; no other thread of the session makes something large
    /// meanwhile. Errors: 53200 where there is none.
    pub(crate) fn reserve(&self, bytes: u128) -> Result<Room<'_>, SqlError> {
        let alone = self.making.lock();
        self.afford(bytes)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.budget.reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(Room { account: self, bytes, _alone: alone })
    }

    /// Waits, not for long, until threads that were given up have given back what they took.
    pub(crate) async fn ended(&self) {
        if !self.given_up.lock().is_empty() {
            self.returned().await;
        }
    }

    /// Waits, not for long, until what was told to end has given back what it took.
    pub(crate) async fn returned(&self) {
        for _ in 0..RETURN_TIMES {
            if self.taken() <= self.budget.limit / BUSY_PART {
                return;
            }
            tokio::time::sleep(RETURN_PAUSE).await;
        }
    }

    /// Errors: 53200 where there is no room for so many bytes more.
    pub(crate) fn afford(&self, bytes: u128) -> Result<(), SqlError> {
        match u128::try_from(self.room()).is_ok_and(|room| bytes <= room) {
            true => Ok(()),
            false => Err(out_of_memory(usize::try_from(bytes).unwrap_or(usize::MAX), self.budget.limit)),
        }
    }
}

/// SQLSTATE `out_of_memory`.
pub(crate) const OUT_OF_MEMORY: &str = "53200";

/// That there is no room.
pub(crate) fn out_of_memory(wanted: usize, limit: usize) -> SqlError {
    let report = Report::new(OUT_OF_MEMORY, "out of memory");
    SqlError::Engine(Box::new(Report {
        detail: Some(format!("The statement needs {wanted} bytes; all statements together may take {limit}.")),
        hint: Some("Ask for less at a time, or raise `memory` in [sql].".into()),
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
        assert_eq!(small.afford(11).unwrap_err().code(), "53200");
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
