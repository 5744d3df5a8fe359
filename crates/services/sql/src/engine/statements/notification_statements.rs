//! LISTEN, UNLISTEN, NOTIFY and `SELECT pg_notify(channel, payload)`. They take effect when their transaction commits; a statement outside of
//! one is its own.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Statement};

use super::changed_table;
use crate::SqlError;
use crate::engine::notifications::{Listening, Notification, PendingNotifications, channel_name, of_messages};
use crate::engine::parse::ast::folded;
use crate::engine::parse::bare_calls::calls_of;
use crate::engine::plan::column_labels;
use crate::engine::semantics::notify_function::PG_NOTIFY;
use crate::engine::{Session, StatementResult};

/// Runs LISTEN, UNLISTEN and NOTIFY; `None` if it is another statement.
///
/// Errors: 54000; 0A000 for a channel of messages where there are none; 42501 for NOTIFY on a channel of the node's own, and LISTEN to one for who may not read what it tells.
pub(super) fn control(session: &mut Session, statement: &Statement) -> Result<Option<StatementResult>, SqlError> {
    let name = |channel: &Ident| channel_name(&folded(channel));
    let tag = match statement {
        Statement::LISTEN { channel } => {
            session.listener.check_room()?;
            let channel = name(channel);
            if of_messages::is_of_messages(&channel) {
                if !session.engine.notifications.has_message_source() {
                    return Err(SqlError::unsupported(format!("LISTEN \"{channel}\" without messages")));
                }
                of_messages::check(session.identity())?;
            }
            within(session, |pending| pending.listen(Listening::Begin(channel)))?;
            "LISTEN"
        }
        Statement::UNLISTEN { channel } => {
            let is_all = channel.quote_style.is_none() && channel.value == "*";
            let ends = if is_all { Listening::EndAll } else { Listening::End(name(channel)) };
            within(session, |pending| pending.listen(ends))?;
            "UNLISTEN"
        }
        Statement::NOTIFY { channel, payload } => {
            let notification = Notification::new(name(channel), payload.clone().unwrap_or_default())?;
            within(session, |pending| pending.send(notification))?;
            "NOTIFY"
        }
        _ => return Ok(None),
    };
    Ok(Some(StatementResult::Done { tag: tag.into() }))
}

/// Adds to what the open transaction will do, or does it now.
fn within(
    session: &mut Session,
    add: impl FnOnce(&mut PendingNotifications) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    if let Some(open) = session.transaction.open_mut() {
        return add(&mut open.notifications);
    }
    let mut pending = PendingNotifications::default();
    add(&mut pending)?;
    session.listener.apply(pending);
    Ok(())
}

/// The calls of `pg_notify` that a statement consists of; `None` if it is another statement.
pub(super) fn calls(statement: &Statement) -> Option<Vec<Vec<Expr>>> {
    calls_of(statement, PG_NOTIFY, 2)
}

/// Runs the calls.
///
/// Errors: 22023, 54000; 42501 for a channel of the node's own; those of the arguments.
pub(super) async fn run(
    session: &mut Session,
    calls: Vec<Vec<Expr>>,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let row = changed_table::arguments_of(session, &calls, parameters).await?;
    let texts = row.columns().iter().map(|column| {
        let column = cast(column, &DataType::Utf8)?;
        let column = column.as_string::<i32>();
        // As PostgreSQL's, NULL is an empty text.
        Ok(column.iter().next().flatten().unwrap_or_default().to_owned())
    });
    let texts: Vec<String> = texts.collect::<Result<_, SqlError>>()?;
    for call in texts.chunks_exact(2) {
        let notification = Notification::new(call[0].clone(), call[1].clone())?;
        within(session, |pending| pending.send(notification))?;
    }
    let fields: Vec<Field> = calls.iter().map(|_| Field::new("", DataType::Utf8, true)).collect();
    let columns = calls.iter().map(|_| Arc::new(StringArray::from(vec![""])) as ArrayRef).collect();
    let schema = column_labels::labelled(statement, &Arc::new(Schema::new(fields)));
    Ok(StatementResult::of_batch(RecordBatch::try_new(schema, columns)?, "SELECT"))
}
