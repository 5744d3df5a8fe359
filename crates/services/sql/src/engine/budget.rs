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
//! Statements that change rows are not counted: the store keeps the changes of a transaction in memory until they are committed.
//!
//! Where all together took too much, who has more than its share ends, and no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use device::HeapCount;
use parking_lot::Mutex;

use crate::{Report, SqlError};

/// Who takes less than this part of the memory is not asked to share.
const BUSY_PART: usize = 64;

/// The memory of all statements of an engine.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
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
    /// Its statement changes rows: what it takes is the store's, which keeps the changes of a transaction in memory.
    changes: AtomicBool,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { limit, accounts: Mutex::default() })
    }

    /// An account of a new session.
    pub(crate) fn account(self: &Arc<Budget>) -> Arc<Account> {
        let account = Arc::new(Account {
            budget: self.clone(),
            own: Arc::default(),
            teams: Mutex::default(),
            changes: AtomicBool::new(false),
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

    /// A statement begins. What the session keeps from before is not the statement's; what queries that are read in part keep is.
    /// One that changes rows is not counted.
    pub(crate) fn begin(&self, changes: bool) {
        self.changes.store(changes, Ordering::Relaxed);
        if self.teams.lock().is_empty() {
            self.own.set(0);
        }
    }

    /// A query's threads count as this session's.
    pub(crate) fn join(&self, team: &Arc<HeapCount>) {
        self.teams.lock().push(team.clone());
    }

    /// They do so no more. What they took and others give back, or the other way round, stays in the account.
    pub(crate) fn leave(&self, team: &Arc<HeapCount>) {
        let mut teams = self.teams.lock();
        teams.retain(|other| !Arc::ptr_eq(other, team));
        self.own.add(team.bytes());
    }

    /// Bytes that the session takes.
    fn taken(&self) -> usize {
        if self.changes.load(Ordering::Relaxed) {
            return 0;
        }
        let teams: i64 = self.teams.lock().iter().map(|team| team.bytes()).sum();
        usize::try_from(self.own.bytes() + teams).unwrap_or(0)
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
        self.budget.limit.saturating_sub(self.budget.taken().0)
    }

    /// Errors: 53200 where there is no room for so many bytes more.
    pub(crate) fn afford(&self, bytes: u128) -> Result<(), SqlError> {
        match u128::try_from(self.room()).is_ok_and(|room| bytes <= room) {
            true => Ok(()),
            false => Err(out_of_memory(usize::try_from(bytes).unwrap_or(usize::MAX), self.budget.limit)),
        }
    }
}

/// SQLSTATE 53200.
pub(crate) fn out_of_memory(wanted: usize, limit: usize) -> SqlError {
    let report = Report::new("53200", "out of memory");
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
        account.leave(&team);
        assert_eq!(account.taken(), 100);
        account.begin(false);
        assert_eq!(account.taken(), 0);
        account.own.add(100);
        account.begin(true);
        account.own.add(100);
        assert_eq!(account.taken(), 0, "what is changed is the store's");
    }
}
