//! One connection after its login: messages in, answers out.
//!
//! ```text
//!   Query                      split into statements, each prepared and run, ReadyForQuery     simple
//!   Parse Bind Describe        prepared statements and portals                                 extended
//!   Execute Close Flush Sync   after an error: everything up to Sync is left out
//! ```
//!
//! Statements that come together, in one Query or before one Sync, are one transaction if they do not begin one
//! themselves: as in PostgreSQL, either all of them happened or none. It is begun only if there are several, so that a
//! single statement commits by itself.
//!
//! pgwire's own handlers are not used: of a Query they run all statements before they answer the first, so that COPY in the
//! middle cannot wait for its data, and of an Execute they gather all rows before they send one.
//!
//! Invariants: a failed statement leaves no rows half sent; each Query and each Sync is answered by exactly one
//! ReadyForQuery; a portal does not outlive its transaction.

mod copying;
mod extended;
mod rows;
mod simple;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Statement;
use pgwire::messages::response::{CommandComplete, ReadyForQuery, TransactionStatus};
use tokio::sync::Notify;

use super::catalog::Catalogs;
use super::codec::sent;
use super::connection::{Broken, Connection};
use super::fault::Fault;
use super::login::Entered;
use super::registry::Registered;
use super::server::Shared;
use super::{Message, Reply};
use crate::engine::control::folded;
use crate::{Prepared, Session, SessionState, SqlError};
use extended::{Portal, Stated};

/// Why a statement, or a message, was not carried out.
#[derive(Debug)]
pub(super) enum Stop {
    /// The client is told; the connection goes on.
    Fault(Box<Fault>),
    /// The connection ends.
    Broken(Broken),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(Box::new(fault))
    }
}

impl From<crate::SqlError> for Stop {
    fn from(error: crate::SqlError) -> Stop {
        Fault::from(&error).into()
    }
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Broken(broken)
    }
}

/// A connection that is served.
pub(super) struct Serving<'a> {
    connection: &'a mut Connection,
    shared: &'a Arc<Shared>,
    session: Session,
    /// Its place in the registry, which it leaves with this.
    registered: Registered,
    cancelled: Arc<Notify>,
    catalogs: Catalogs,
    statements: HashMap<String, Arc<Stated>>,
    portals: HashMap<String, Portal>,
    /// A transaction was begun around statements that came together.
    implicit: bool,
    /// An error came; everything is left out up to Sync.
    skipping: bool,
}

impl<'a> Serving<'a> {
    /// Serves who is logged in.
    pub(super) fn new(connection: &'a mut Connection, entered: Entered, shared: &'a Arc<Shared>) -> Serving<'a> {
        let Entered { session, registered } = entered;
        let cancelled = Arc::clone(&registered.notify);
        let catalogs = Catalogs::new(shared, registered.process);
        Serving {
            connection,
            shared,
            session,
            registered,
            cancelled,
            catalogs,
            statements: HashMap::new(),
            portals: HashMap::new(),
            implicit: false,
            skipping: false,
        }
    }

    /// Until the client goes, breaks the protocol, or the server stops.
    pub(super) async fn run(mut self) -> Result<(), Broken> {
        let mut terminated = self.registered.terminated.clone();
        loop {
            let idle = self.idle_time();
            let message = tokio::select! {
                biased;
                // The sender lives as long as the place in the registry.
                _ = terminated.wait_for(|terminated| *terminated) => {
                    return Err(Broken::fatal(Fault::from(SqlError::Terminated)));
                }
                message = self.connection.message() => message?,
                () = tokio::time::sleep(idle.unwrap_or_default()), if idle.is_some() => {
                    let message = "terminating connection due to idle-in-transaction timeout";
                    return Err(Broken::fatal(Fault::new("25P03", message)));
                }
            };
            match message {
                Message::Terminate(_) => return Ok(()),
                Message::Query(query) => {
                    self.skipping = false;
                    let outcome = self.query(&query.query).await;
                    self.end_series(outcome).await?;
                }
                Message::Sync(_) => {
                    self.skipping = false;
                    self.end_series(Ok(())).await?;
                }
                // Leftovers of a COPY that failed: the client may have sent them before it heard of the error.
                Message::CopyData(_) | Message::CopyDone(_) | Message::CopyFail(_) => {}
                _ if self.skipping => {}
                message => match self.extended(message).await {
                    Ok(()) => {}
                    Err(Stop::Broken(broken)) => return Err(broken),
                    Err(Stop::Fault(fault)) => {
                        self.fail(&fault).await?;
                        // Now, as PostgreSQL does: a client such as asyncpg waits for it before it sends its Sync.
                        self.connection.flush().await?;
                        self.skipping = true;
                    }
                },
            }
        }
    }

    /// How long the client may take for its next message, if that is bounded: inside a transaction that it began.
    fn idle_time(&self) -> Option<std::time::Duration> {
        let most = self.session.settings().idle_in_transaction_session_timeout();
        (!most.is_zero() && self.session.state() != SessionState::Idle).then_some(most)
    }

    /// Ends what came together, commits it if it is our transaction, and says that the next may come.
    async fn end_series(&mut self, outcome: Result<(), Stop>) -> Result<(), Broken> {
        let outcome = match outcome {
            Ok(()) if std::mem::take(&mut self.implicit) => {
                self.end_portals();
                self.session.end_implicit().await.map_err(Stop::from)
            }
            outcome => outcome,
        };
        match outcome {
            Ok(()) => {}
            Err(Stop::Broken(broken)) => return Err(broken),
            Err(Stop::Fault(fault)) => self.fail(&fault).await?,
        }
        self.end_portals();
        let application = self.session.settings().get("application_name").unwrap_or_default();
        self.registered.activity.waits(self.session.state(), &application);
        let status = match self.session.state() {
            SessionState::Idle => TransactionStatus::Idle,
            SessionState::InTransaction => TransactionStatus::Transaction,
            SessionState::Failed => TransactionStatus::Error,
        };
        self.connection.reply(Reply::ReadyForQuery(ReadyForQuery::new(status))).await?;
        self.connection.flush().await
    }

    /// Drops the portals, unless they are in a transaction that the client began and goes on with.
    fn end_portals(&mut self) {
        if self.session.state() == SessionState::Idle {
            self.portals.clear();
        }
    }

    /// Tells of an error, and takes back what came together with what failed.
    async fn fail(&mut self, fault: &Fault) -> Result<(), Broken> {
        let told = self.connection.reply(fault.reply(false)).await;
        if std::mem::take(&mut self.implicit) {
            self.end_portals();
            // What failed is told already, and takes back what came before it.
            let _ = self.session.end_implicit().await;
        }
        told
    }

    /// Says that a statement is done.
    async fn complete(&mut self, tag: &str) -> Result<(), Broken> {
        self.connection.reply(Reply::CommandComplete(CommandComplete::new(sent(tag)))).await
    }

    /// Forgets prepared statements, which are the connection's and not the engine's: DEALLOCATE, whose tag this answers, and what
    /// DISCARD does beside what the engine does for it. Errors: 26000.
    fn forget(&mut self, prepared: &Prepared) -> Result<Option<&'static str>, Fault> {
        if self.session.state() == SessionState::Failed {
            return Ok(None);
        }
        match prepared.statement() {
            Some(Statement::Deallocate { name, .. })
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") =>
            {
                self.statements.clear();
                Ok(Some("DEALLOCATE ALL"))
            }
            Some(Statement::Deallocate { name, .. }) => match self.statements.remove(&folded(name)) {
                Some(_) => Ok(Some("DEALLOCATE")),
                None => {
                    self.session.set_failed(true);
                    Err(Fault::new("26000", format!("prepared statement \"{}\" does not exist", folded(name))))
                }
            },
            Some(Statement::Discard { .. }) => {
                self.statements.clear();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Begins our transaction around statements that come together, unless there is one. A BEGIN among them makes it the
    /// client's own.
    fn begin_series(&mut self) {
        self.session.begin_implicit();
        self.implicit = true;
    }
}
