//! Statements that meet the changes of another transaction: they wait for its end, and run again on a newer snapshot.
//!
//! ```text
//!   run --a row is another transaction's--> undo the statement --wait for the row--> run
//!       --a row was changed since the snapshot--> undo the statement --> run
//! ```
//!
//! Rows that a statement has locked stay locked when it runs again, so each of its runs comes further. In a transaction it locks none
//! behind the one that it waits for, so that transactions that lock in one order do not wait for one another. In an open transaction
//! only the statement is undone, and in REPEATABLE READ it runs again only if the other transaction has changed nothing; so it is while
//! rows of an earlier query are read in a view with the transaction's changes, which has to stay. A
//! statement that is a transaction of its own has nothing to lose: after a deadlock it releases its rows and begins again. But
//! advisory locks of its session would stay, and with them the circle: then it is as one in a transaction.

use std::time::Duration;

use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;

use crate::SqlError;
use crate::engine::parse::rights::statement::RightsStatement;
use crate::engine::parse::row_locking::RowLocking;
use crate::engine::parse::sequence_parser::SequenceStatement;
use crate::engine::session::transaction::SessionTransaction;
use crate::engine::{Session, StatementResult};

/// How often a statement is repeated after a conflict that it could not wait for, or after a deadlock, and the longest pause before.
const AGAIN_MOST: u32 = 50;
const AGAIN_PAUSE_MOST: Duration = Duration::from_millis(50);

/// How often a statement of a transaction waits before it locks rows behind the one that it waits for as well: it runs again for
/// each wait, and would have no end among many that change its rows.
const WAITS_IN_ORDER_MOST: u32 = 16;

/// SQLSTATE of a deadlock.
const DEADLOCK: &str = "40P01";

/// A statement that changes something, with its parameters.
#[derive(Clone, Copy)]
pub(super) enum Changing<'a> {
    Rights(&'a RightsStatement),
    Sequence(&'a SequenceStatement),
    Other(&'a Statement, Option<RowLocking>, &'a [ScalarValue]),
}

impl Changing<'_> {
    /// Whether it can be undone and run again in an open transaction.
    fn is_repeatable(self) -> bool {
        match self {
            Changing::Rights(_) | Changing::Sequence(_) => false,
            Changing::Other(Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_), ..) => true,
            Changing::Other(Statement::Lock(_), ..) => true,
            Changing::Other(_, locking, _) => locking.is_some(),
        }
    }
}

async fn pause(tries: u32) {
    let pause = Duration::from_micros(100 << tries.min(10)).min(AGAIN_PAUSE_MOST);
    tokio::time::sleep(pause).await;
}

/// Runs a statement that changes something, or locks rows: in the open transaction, or in one of its own.
pub(super) async fn changing_rows(session: &mut Session, changing: Changing<'_>) -> Result<StatementResult, SqlError> {
    match session.transaction.is_open() {
        true => in_transaction(session, changing).await,
        false => alone(session, changing).await,
    }
}

/// Runs it as a transaction of its own.
async fn alone(session: &mut Session, changing: Changing<'_>) -> Result<StatementResult, SqlError> {
    let gives_way = session.advisory.is_empty();
    let locks = match gives_way {
        true => session.engine.row_locks.owner_that_gives_way(session.number()),
        false => session.engine.row_locks.owner(session.number()),
    };
    let (mut tries, mut deadlocks) = (0, 0);
    loop {
        session.transaction.begin(session.new_transaction_with(true, locks.clone()));
        let outcome = match session.refresh() {
            Ok(()) => session.change(changing).await,
            Err(error) => Err(error),
        };
        let Some(transaction) = session.transaction.take() else { return outcome };
        let outcome = match outcome.and_then(|answer| session.canceller.close().map(|()| answer)) {
            Ok(answer) => transaction.commit().await.map(|()| answer),
            Err(error) => {
                drop(transaction);
                Err(error)
            }
        };
        let wanted = locks.take_wanted();
        match (outcome, wanted) {
            (Err(SqlError::Again(_)), Some(wanted)) => match locks.wait(&wanted, lock_timeout(session)).await {
                Err(error) if error.code() == DEADLOCK && gives_way && deadlocks < AGAIN_MOST => {
                    locks.give_back_to(0);
                    pause(deadlocks).await;
                    deadlocks += 1;
                }
                waited => waited?,
            },
            (Err(SqlError::Again(_)), None) if tries < AGAIN_MOST => {
                tries += 1;
                session.canceller.reopen();
                pause(tries).await;
            }
            (outcome, _) => return outcome,
        }
    }
}

/// Runs it in the open transaction.
async fn in_transaction(session: &mut Session, changing: Changing<'_>) -> Result<StatementResult, SqlError> {
    if !changing.is_repeatable() {
        session.refresh()?;
        return session.change(changing).await;
    }
    if let Some(open) = session.transaction.open() {
        open.row_locks().begin_statement();
    }
    let (mut tries, mut waits) = (0, 0);
    // As in PostgreSQL a lock of a table reads nothing: REPEATABLE READ sees what is committed when it has the lock.
    let reads = !matches!(changing, Changing::Other(Statement::Lock(_), ..))
        || session.transaction.open().is_some_and(SessionTransaction::has_read);
    loop {
        session.refresh()?;
        let is_read = session.is_read();
        let Some(open) = session.transaction.open() else { return session.change(changing).await };
        let (locks, mark) = (open.row_locks().clone(), open.mark()?);
        locks.set_in_order(waits < WAITS_IN_ORDER_MOST);
        let changed = session.change(changing).await;
        let outcome = changed.and_then(|answer| check_changes(session).map(|()| answer));
        if let Some(open) = session.transaction.open_mut() {
            open.set_read(reads);
        }
        let Some(open) = session.transaction.open() else { return outcome };
        let (wanted, is_renewed) = (locks.take_wanted(), open.moves(is_read));
        let again = matches!(outcome, Err(SqlError::Again(_)));
        if !again || (wanted.is_none() && (!is_renewed || tries >= AGAIN_MOST)) {
            open.forget(&mark);
            return outcome;
        }
        open.back_to(&mark);
        open.forget(&mark);
        match wanted {
            Some(wanted) => {
                waits += 1;
                locks.wait(&wanted, lock_timeout(session)).await?;
                let is_current = |session: &Session| match session.transaction.open() {
                    Some(open) => open.is_current(wanted.tree, &wanted.key),
                    None => Ok(true),
                };
                if !is_renewed && !is_current(session)? {
                    return outcome;
                }
            }
            None => {
                tries += 1;
                pause(tries).await;
            }
        }
    }
}

/// Whether what a statement of READ COMMITTED has changed was as its snapshot says: the rows are locked now.
///
/// Errors: [`SqlError::Again`].
fn check_changes(session: &mut Session) -> Result<(), SqlError> {
    let is_read = session.is_read();
    match session.transaction.open_mut() {
        Some(open) => open.check_changes(is_read),
        None => Ok(()),
    }
}

fn lock_timeout(session: &Session) -> Duration {
    session.settings.now().lock_timeout()
}
