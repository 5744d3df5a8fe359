//! One connection after its login: messages in, answers out.
//!
//! ```text
//!   Query                      split into statements, each prepared and run, ReadyForQuery     simple
//!   Parse Bind Describe        prepared statements and portals                                 extended
//!   Execute Close Flush Sync   after an error: everything up to Sync is skipped
//! ```
//!
//! Statements that come together, in one Query or before one Sync, are one transaction if they do not begin one
//! themselves: as in PostgreSQL, either all of them take effect or none. The transaction is begun only if there are
//! several statements; a single statement commits by itself.
//!
//! pgwire's own handlers are not used. For a Query they run all statements before they answer the first one, so a COPY
//! in the middle cannot wait for its data. For an Execute they collect all rows before they send one.
//!
//! Invariants: a failed statement leaves no row sent in part; each Query and each Sync is answered by exactly one
//! ReadyForQuery; a portal does not outlive its transaction.

mod copy;
mod extended;
mod row_exchange;
mod send_rows;
mod simple;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use node::identity::Connected;
use pgwire::messages::response::{NotificationResponse, ReadyForQuery, TransactionStatus};
use tokio::sync::Notify;

use super::catalog::Catalogs;
use super::connection::Connection;
use super::connection_error::ConnectionError;
use super::error_response::ErrorResponse;
use super::figures::Protocol;
use super::login::Entered;
use super::registry::Registered;
use super::reply_text::sent;
use super::server_state::ServerState;
use super::{Message, Reply};
use crate::{Session, SessionState, SqlError};
use extended::Portal;
use row_exchange::RowExchange;

/// Why a statement or a message failed.
#[derive(Debug)]
pub(super) enum StatementError {
    /// The client receives an error; the connection continues.
    Response(Box<ErrorResponse>),
    /// The connection ends.
    Connection(ConnectionError),
}

impl From<ErrorResponse> for StatementError {
    fn from(error_response: ErrorResponse) -> StatementError {
        StatementError::Response(Box::new(error_response))
    }
}

impl From<crate::SqlError> for StatementError {
    fn from(error: crate::SqlError) -> StatementError {
        ErrorResponse::from(&error).into()
    }
}

impl From<ConnectionError> for StatementError {
    fn from(broken: ConnectionError) -> StatementError {
        StatementError::Connection(broken)
    }
}

/// Waits for the time, and returns the error.
async fn too_idle(idle: Option<(std::time::Duration, ErrorResponse)>) -> ErrorResponse {
    match idle {
        Some((most, error)) => {
            tokio::time::sleep(most).await;
            error
        }
        None => std::future::pending().await,
    }
}

fn fatal(error: SqlError) -> ConnectionError {
    ConnectionError::fatal(ErrorResponse::from(&error))
}

/// A connection that is being served.
pub(super) struct Serving<'a> {
    connection: &'a mut Connection,
    shared: &'a Arc<ServerState>,
    session: Session,
    /// Its entry in the registry; dropping it removes the entry.
    registered: Registered,
    /// Counts against the role's limit of connections until it is dropped.
    _connected: Connected,
    cancelled: Arc<Notify>,
    catalogs: Catalogs,
    portals: HashMap<String, Portal>,
    /// A transaction was begun around statements that came together.
    implicit: bool,
    /// An error occurred; everything is skipped up to Sync.
    skipping: bool,
    /// Messages of the extended protocol have come, and no Sync yet.
    between: bool,
}

impl<'a> Serving<'a> {
    /// Serves a client that is logged in.
    pub(super) fn new(connection: &'a mut Connection, entered: Entered, shared: &'a Arc<ServerState>) -> Serving<'a> {
        let Entered { mut session, registered, connected } = entered;
        session.listener.process = registered.process;
        let cancelled = Arc::clone(&registered.notify);
        let catalogs = Catalogs::new(shared, registered.process);
        Serving {
            connection,
            shared,
            session,
            registered,
            _connected: connected,
            cancelled,
            catalogs,
            portals: HashMap::new(),
            implicit: false,
            skipping: false,
            between: false,
        }
    }

    /// Runs until the client disconnects, breaks the protocol, or the server stops.
    pub(super) async fn run(mut self) -> Result<(), ConnectionError> {
        let mut terminated = self.registered.terminated.clone();
        let mailbox = Arc::clone(&self.session.listener.mailbox);
        loop {
            let idle = self.idle_time();
            let message = tokio::select! {
                biased;
                // The sender lives as long as the entry in the registry.
                _ = terminated.wait_for(|terminated| *terminated) => {
                    return Err(ConnectionError::fatal(ErrorResponse::from(SqlError::Terminated)));
                }
                message = self.connection.message() => message?,
                () = mailbox.filled() => {
                    self.notified().await?;
                    continue;
                }
                error = too_idle(idle) => return Err(ConnectionError::fatal(error)),
            };
            match message {
                Message::Terminate(_) => return Ok(()),
                Message::Query(query) => {
                    self.skipping = false;
                    let began = Instant::now();
                    let outcome = self.query(&query.query).await;
                    self.shared.figures.took(Protocol::Simple, began.elapsed());
                    self.end_series(outcome).await?;
                }
                Message::Sync(_) => {
                    self.skipping = false;
                    self.end_series(Ok(())).await?;
                }
                // Remaining messages of a failed COPY: the client may have sent them before it received the error.
                Message::CopyData(_) | Message::CopyDone(_) | Message::CopyFail(_) => {}
                _ if self.skipping => {}
                message => match self.extended_of_series(message).await {
                    Ok(()) => {}
                    Err(StatementError::Connection(broken)) => return Err(broken),
                    Err(StatementError::Response(error_response)) => {
                        self.fail(&error_response).await?;
                        // Flush now, as PostgreSQL does: a client such as asyncpg waits for the error before it sends
                        // its Sync.
                        self.connection.flush().await?;
                        self.skipping = true;
                    }
                },
            }
        }
    }

    /// How long the client may wait with its next message, if that is bounded, and the error when it is over.
    fn idle_time(&self) -> Option<(std::time::Duration, ErrorResponse)> {
        let settings = self.session.settings();
        let (most, code, what) = match self.session.state() {
            SessionState::Idle => (settings.idle_session_timeout(), "57P05", "idle-session"),
            _ => (settings.idle_in_transaction_session_timeout(), "25P03", "idle-in-transaction"),
        };
        let error = || ErrorResponse::new(code, format!("terminating connection due to {what} timeout"));
        (!most.is_zero()).then(|| (most, error()))
    }

    /// Ends statements that came together: commits if the transaction is implicit, and sends ReadyForQuery.
    async fn end_series(&mut self, outcome: Result<(), StatementError>) -> Result<(), ConnectionError> {
        let outcome = match outcome {
            Ok(()) if std::mem::take(&mut self.implicit) => {
                self.end_portals();
                self.session.end_implicit().await.map_err(StatementError::from)
            }
            outcome => outcome,
        };
        match outcome {
            Ok(()) => {}
            Err(StatementError::Connection(broken)) => return Err(broken),
            Err(StatementError::Response(error_response)) => self.fail(&error_response).await?,
        }
        self.end_portals();
        self.between = false;
        self.notify().await?;
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

    /// A message of the extended protocol: until Sync, nothing else is sent.
    async fn extended_of_series(&mut self, message: Message) -> Result<(), StatementError> {
        self.between = true;
        self.extended(message).await
    }

    /// Something came for the client while it was waited for.
    async fn notified(&mut self) -> Result<(), ConnectionError> {
        if self.between {
            return self.check_mailbox();
        }
        self.notify().await?;
        self.connection.flush().await
    }

    /// Errors: FATAL 54000 if notifications were lost.
    fn check_mailbox(&self) -> Result<(), ConnectionError> {
        match self.session.listener.mailbox.is_over() {
            true => self.session.listener.mailbox.take().map(drop).map_err(fatal),
            false => Ok(()),
        }
    }

    /// Sends the notifications that came, outside of a transaction.
    async fn notify(&mut self) -> Result<(), ConnectionError> {
        if self.session.state() != SessionState::Idle {
            return self.check_mailbox();
        }
        for (notification, process) in self.session.listener.mailbox.take().map_err(fatal)? {
            let (channel, payload) = (sent(&notification.channel), sent(&notification.payload));
            let response = NotificationResponse::new(process, channel, payload);
            self.connection.reply(Reply::NotificationResponse(response)).await?;
        }
        Ok(())
    }

    /// Drops the portals, unless they belong to an open transaction of the client.
    fn end_portals(&mut self) {
        if self.session.state() == SessionState::Idle {
            self.portals.clear();
            self.session.rest();
        }
    }

    /// Sends an error, and rolls back the statements that came together with the failed one.
    async fn fail(&mut self, error_response: &ErrorResponse) -> Result<(), ConnectionError> {
        self.shared.figures.failed(error_response.code);
        let sent = self.connection.reply(error_response.reply(false)).await;
        if std::mem::take(&mut self.implicit) {
            self.end_portals();
            // The error is already sent; this rolls back the statements before it.
            let _ = self.session.end_implicit().await;
        }
        sent
    }

    /// Sends that a statement is complete.
    async fn complete(&mut self, tag: &str) -> Result<(), ConnectionError> {
        self.rows().complete(tag).await
    }

    /// For the rows of a statement.
    fn rows(&mut self) -> RowExchange<'_> {
        RowExchange {
            connection: self.connection,
            session: &mut self.session,
            cancelled: Arc::clone(&self.cancelled),
            figures: &self.shared.figures,
            message_bytes_max: self.shared.options.message_bytes_max,
        }
    }

    /// Begins an implicit transaction around statements that come together, unless one is open. A BEGIN among them
    /// makes it the client's own.
    fn begin_series(&mut self) {
        self.session.begin_implicit();
        self.implicit = true;
    }
}
