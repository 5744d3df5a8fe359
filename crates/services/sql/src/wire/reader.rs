//! [`SqlReader`]: one statement that reads, for a caller who has proven at another port of the process who it is.
//!
//! ```text
//!   caller, text --may it connect?--> a session of its own, on a thread of its own, in a transaction that only reads
//!       --> columns and rows as texts, bounded in rows, bytes and time          dropped: the statement is ended
//! ```
//!
//! The session is one as of a client of the socket: rights are asked for by the same code, it is in `pg_stat_activity`, who may signal
//! it ends it, a role that is locked loses it. It ends with its one statement, so that no setting and no transaction outlives it.
//!
//! Invariants: the engine refuses every change (25006), not a look at the text; who drops the future of an answer ends the statement;
//! no more than [`SESSIONS_MAX`] run at a time, and [`SESSIONS_OF_ROLE`] of one role.
//!
//! Not here: COPY, several statements, parameters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use datafusion::arrow::record_batch::RecordBatch;
use futures::StreamExt as _;
use node::identity::{Caller, Connected, RoleId};
use node::{NoPlace, RolePlace, RolePlaces};
use pgwire::messages::ProtocolVersion;
use tokio::sync::oneshot;

use super::activity::Activity;
use super::catalog::Catalogs;
use super::error_response::ErrorResponse;
use super::login::may_connect;
use super::oid::{Described, Kind};
use super::registry::Registered;
use super::server_state::ServerState;
use super::{Format, session_thread, value};
use crate::{Canceller, Session, SqlError, StatementResult};

/// Statements that run at a time for all callers.
const SESSIONS_MAX: usize = 8;

/// Statements of one role that run at a time.
const SESSIONS_OF_ROLE: usize = 2;

/// How long after its time a statement may take to notice that.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes that a value takes besides its text, also one that is NULL.
const VALUE_BYTES: usize = size_of::<Option<String>>();

/// Bytes of a statement.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// How much of an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBounds {
    /// Rows at most.
    pub rows: usize,
    /// Bytes of all rows at most: of each value its text, and what it takes without one.
    pub bytes: usize,
    /// How long the statement may take.
    pub time: Duration,
}

/// What a statement returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// The names of the columns; none of a statement without rows.
    pub columns: Vec<String>,
    /// The rows, each value as PostgreSQL writes it as text; none for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// Whether these are all rows; otherwise a bound ended them.
    pub is_whole: bool,
    /// The first word of the statement's tag, such as `SELECT`.
    pub tag: String,
}

/// Why a statement was refused, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (SQLSTATE {code})")]
pub struct ReadRefusal {
    /// SQLSTATE, five characters.
    pub code: &'static str,
    /// One sentence.
    pub message: String,
    /// More about this occurrence.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// The position in the statement, in characters from 1.
    pub position: Option<usize>,
}

impl From<ErrorResponse> for ReadRefusal {
    fn from(error: ErrorResponse) -> ReadRefusal {
        let ErrorResponse { code, message, detail, hint, position, .. } = error;
        ReadRefusal { code, message, detail, hint, position }
    }
}

impl From<SqlError> for ReadRefusal {
    fn from(error: SqlError) -> ReadRefusal {
        ErrorResponse::from(&error).into()
    }
}

fn refusal(code: &'static str, message: impl Into<String>) -> ReadRefusal {
    ErrorResponse::new(code, message).into()
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct SqlReader {
    shared: Arc<ServerState>,
    places: RolePlaces,
}

/// Ends the statement of an answer that nobody waits for any more.
struct Ending(Canceller);

impl Drop for Ending {
    fn drop(&mut self) {
        // Without effect on one that is over.
        self.0.terminate();
    }
}

/// What a statement runs in.
struct Reading {
    session: Session,
    registered: Registered,
    shared: Arc<ServerState>,
    bounds: ReadBounds,
    _connected: Connected,
    _place: RolePlace,
}

impl SqlReader {
    /// The engine.
    #[cfg(test)]
    pub(super) fn engine(&self) -> Arc<crate::Engine> {
        Arc::clone(&self.shared.engine)
    }

    pub(super) fn new(shared: Arc<ServerState>) -> SqlReader {
        SqlReader { shared, places: RolePlaces::new(SESSIONS_MAX, SESSIONS_OF_ROLE) }
    }

    fn place(&self, role: RoleId) -> Result<RolePlace, ReadRefusal> {
        self.places.take(role).map_err(|none| {
            let text = match none {
                NoPlace::OfAll(all) => format!("{all} statements run already: try again in a moment"),
                NoPlace::OfRole(own) => format!("{own} statements of yours run already: wait until one has ended"),
            };
            refusal("53300", text)
        })
    }

    /// Opens a session for a caller.
    fn open(&self, caller: &Caller, bounds: ReadBounds) -> Result<Reading, ReadRefusal> {
        let shared = &self.shared;
        may_connect(caller, shared)?;
        let place = self.place(caller.session())?;
        let connected = shared.guard.connect(caller).map_err(|error| refusal("53300", error.to_string()))?;
        let mut session = shared.engine.session_of(Arc::clone(&shared.guard), caller.clone())?;
        session.settings_mut().set("statement_timeout", &format!("{}ms", bounds.time.as_millis()))?;
        let peer = caller.address().map(|address| SocketAddr::new(address, 0));
        let peer = peer.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let activity = Activity::new((session.user(), session.number()), "console", peer);
        let entry = (activity, caller.clone());
        let registered = shared.registry.register(session.canceller(), entry, ProtocolVersion::PROTOCOL3_2);
        let registered = registered.map_err(|error| refusal("58000", error.to_string()))?;
        // Rights may have changed before it was registered: then nobody would end it.
        shared.guard.view().holds(caller).map_err(|error| refusal("57P01", error.to_string()))?;
        let shared = Arc::clone(shared);
        Ok(Reading { session, registered, shared, bounds, _connected: connected, _place: place })
    }

    /// Runs a statement that reads. Dropping the future ends the statement.
    ///
    /// # Errors
    /// The caller may not use SQL (42501), the statement changes something (25006), takes too long (57014), is wrong, or too many run.
    pub async fn read(&self, caller: &Caller, sql: &str, bounds: ReadBounds) -> Result<ReadAnswer, ReadRefusal> {
        if sql.len() > TEXT_BYTES_MAX {
            let text = format!("the statement has {} bytes, and at most {TEXT_BYTES_MAX}", sql.len());
            return Err(refusal("54000", text));
        }
        let reading = self.open(caller, bounds)?;
        let ending = Ending(reading.session.canceller());
        let (tell, told) = oneshot::channel();
        let sql = sql.to_owned();
        let work = move || {
            // Nobody may wait any more.
            let _ = tell.send(run(reading, &sql));
        };
        session_thread::start("sql reading", work)
            .map_err(|error| refusal("53000", format!("the system starts no thread: {error}")))?;
        let answer = tokio::time::timeout(bounds.time + GRACE, told).await;
        drop(ending);
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                tracing::error!("a statement that reads ended by a panic");
                Err(refusal("XX000", "the statement ended by a fault of the program; its log has the text"))
            }
            Err(_) => Err(SqlError::TimedOut.into()),
        }
    }
}

/// Runs on the session's thread.
fn run(mut reading: Reading, sql: &str) -> Result<ReadAnswer, ReadRefusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| refusal("53000", format!("the system starts no runtime: {error}")))?;
    reading.session.count_here();
    let answer = runtime.block_on(answer(&mut reading, sql));
    runtime.shutdown_background();
    answer.map_err(ReadRefusal::from)
}

async fn answer(reading: &mut Reading, sql: &str) -> Result<ReadAnswer, ErrorResponse> {
    let Reading { session, registered, shared, bounds, .. } = reading;
    registered.activity.begins(sql);
    let begin = session.prepare("START TRANSACTION READ ONLY", &[]).await?;
    for begin in &begin {
        session.execute(begin, &[]).await?;
    }
    let of_text = |error: &SqlError| ErrorResponse::of_statement(error, sql);
    let mut catalogs = Catalogs::new(shared, registered.process);
    let rewritten = catalogs.rewrite(session, sql)?;
    let prepared = session.prepare(&rewritten, &[]).await.map_err(|error| of_text(&error))?;
    let mut all = prepared.iter().filter(|prepared| !prepared.is_empty());
    let (Some(prepared), None) = (all.next(), all.next()) else {
        return Err(ErrorResponse::new("42601", "one statement is run at a time, and there is none, or more than one"));
    };
    match session.execute(prepared, &[]).await.map_err(|error| of_text(&error))? {
        StatementResult::Rows { schema, mut stream, tag } => {
            let columns = schema.fields().iter().map(|field| Described::of(field)).collect::<Result<Vec<_>, _>>()?;
            let kinds: Vec<Kind> = columns.iter().map(|column| column.kind).collect();
            let names = columns.into_iter().map(|column| column.name).collect();
            let mut found = ReadAnswer { columns: names, tag: tag.to_owned(), is_whole: true, ..ReadAnswer::default() };
            let mut left = bounds.bytes;
            while found.is_whole {
                let next = tokio::select! {
                    biased;
                    next = stream.next() => next,
                    () = registered.notify.notified() => Some(Err(session.canceller().why().into())),
                };
                let Some(batch) = next else { break };
                add(&mut found, &batch.map_err(SqlError::from)?, &kinds, (bounds.rows, &mut left))?;
            }
            Ok(found)
        }
        StatementResult::Done { tag } => Ok(ReadAnswer { tag, is_whole: true, ..ReadAnswer::default() }),
        StatementResult::CopyIn(_) | StatementResult::CopyOut(_) => {
            let refused = ErrorResponse::new("0A000", "COPY is for clients of the SQL port");
            Err(refused.with_hint("Write the query without COPY, or use psql."))
        }
    }
}

/// Adds the rows of a batch, as far as the bounds go.
fn add(
    found: &mut ReadAnswer,
    batch: &RecordBatch,
    kinds: &[Kind],
    (rows_max, left): (usize, &mut usize),
) -> Result<(), ErrorResponse> {
    let mut text = BytesMut::new();
    for row in 0..batch.num_rows() {
        if found.rows.len() >= rows_max {
            found.is_whole = false;
            return Ok(());
        }
        let mut values = Vec::with_capacity(kinds.len());
        for (column, kind) in batch.columns().iter().zip(kinds) {
            text.clear();
            let is_there = value::write(column, row, *kind, Format::Text, &mut text)?;
            let bytes = VALUE_BYTES + text.len();
            if bytes > *left {
                found.is_whole = false;
                return Ok(());
            }
            *left -= bytes;
            values.push(is_there.then(|| String::from_utf8_lossy(&text).into_owned()));
        }
        found.rows.push(values);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, new_null_array};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn rows_without_any_text_are_bounded_in_bytes_too() {
        const COLUMNS: usize = 3_000;
        let fields: Vec<Field> = (0..COLUMNS).map(|at| Field::new(format!("c{at}"), DataType::Utf8, true)).collect();
        let arrays: Vec<ArrayRef> = fields.iter().map(|field| new_null_array(field.data_type(), 100)).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("it is a batch");
        let kinds = vec![Kind::of(&DataType::Utf8).expect("it is sent"); COLUMNS];
        let mut found = ReadAnswer { is_whole: true, ..ReadAnswer::default() };
        let mut left = 1 << 20;
        add(&mut found, &batch, &kinds, (usize::MAX, &mut left)).expect("it is written");
        assert!(!found.is_whole && !found.rows.is_empty());
        let held: usize = found.rows.iter().flatten().map(size_of_val).sum();
        assert!(held <= 1 << 20, "{held} bytes of {} rows", found.rows.len());
        let mut all = ReadAnswer { is_whole: true, ..ReadAnswer::default() };
        add(&mut all, &batch, &kinds, (usize::MAX, &mut (8 << 20))).expect("it is written");
        assert!(all.is_whole && all.rows.len() == 100);
    }
}
