//! [`QueryLimits`]: what the work of one plan checks between two batches: whether it continues, and whether there is room.
//!
//! The reader of the rows may be what takes the memory: INSERT .. SELECT writes a row group, or spills its transaction, while the plan
//! makes the next batches. Where there is no room, the plan waits for a reader that is busy, for a bounded time, and does not fail at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::SqlError;
use crate::engine::limits::cancellation::Running;
use crate::engine::limits::memory_budget::Account;
use crate::engine::limits::memory_budget::OUT_OF_MEMORY;
use crate::table::index_scan::ReadLimits;

/// How long the plan waits for room while the reader works on a batch: longer than a slow disk needs to write a spilled transaction.
const BUSY_READER_WAIT: Duration = Duration::from_secs(5);

/// How long it waits for room while the reader waits too: batches on their way to the reader have time to arrive.
const IDLE_READER_WAIT: Duration = Duration::from_millis(20);

/// Time between two checks.
const ROOM_PAUSE: Duration = Duration::from_millis(2);

/// What the work of one plan checks.
#[derive(Debug)]
pub(crate) struct QueryLimits {
    running: Arc<Running>,
    account: Arc<Account>,
    /// Nobody reads its rows any more.
    abandoned: AtomicBool,
    /// The reader has taken a batch, and has not come back for the next one.
    reader_is_busy: AtomicBool,
}

impl QueryLimits {
    /// For a statement that runs, and the account of its session.
    pub(crate) fn new(running: &Arc<Running>, account: &Arc<Account>) -> QueryLimits {
        QueryLimits {
            running: running.clone(),
            account: account.clone(),
            abandoned: AtomicBool::new(false),
            reader_is_busy: AtomicBool::new(false),
        }
    }

    /// No reader takes its rows any more: the work ends at its next check.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// The reader has taken a batch, or comes for the next one.
    pub(crate) fn set_reader_busy(&self, is_busy: bool) {
        self.reader_is_busy.store(is_busy, Ordering::Release);
    }

    /// Waits, for a bounded time, until there is room for what was made. Errors: as [`QueryLimits::check`], and 53200.
    pub(crate) async fn room(&self) -> Result<(), SqlError> {
        let mut begun = None;
        loop {
            self.check()?;
            let Err(error) = self.account.check() else { return Ok(()) };
            let limit = match self.reader_is_busy.load(Ordering::Acquire) {
                true => BUSY_READER_WAIT,
                false => IDLE_READER_WAIT,
            };
            if error.code() != OUT_OF_MEMORY || begun.get_or_insert_with(Instant::now).elapsed() > limit {
                return Err(error);
            }
            tokio::time::sleep(ROOM_PAUSE).await;
        }
    }

    /// Errors: 53200 if there is no memory for so many more bytes.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), SqlError> {
        self.account.check_room(bytes as u128)
    }

    /// The account of its session.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Errors: why the statement must end.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        if self.abandoned.load(Ordering::Acquire) {
            return Err(SqlError::Cancelled);
        }
        self.running.check()
    }
}

impl ReadLimits for QueryLimits {
    fn may_go_on(&self) -> Result<(), SqlError> {
        self.check()?;
        self.account.check()
    }
}
