//! The statements DECLARE, FETCH and CLOSE, over the cursors of the open transaction.
//!
//! A cursor goes forward only, and ends with its transaction: SCROLL, WITH HOLD and FETCH of rows before are refused by name. BINARY is
//! refused as well, since a format is the client's choice at each FETCH.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    CloseCursor, Declare, DeclareType, FetchDirection, Ident, Statement, Value, ValueWithSpan,
};

use crate::SqlError;
use crate::engine::parse::ast::folded;
use crate::engine::plan::{column_labels, prepared};
use crate::engine::{Session, StatementResult};

/// Runs such a statement; `None` if it is another one.
pub(super) async fn control(
    session: &mut Session,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<Option<StatementResult>, SqlError> {
    match statement {
        Statement::Declare { stmts } => match stmts.as_slice() {
            [one] => declare(session, one, parameters).await.map(Some),
            _ => Err(SqlError::unsupported("DECLARE of several")),
        },
        Statement::Fetch { name, direction, into: None, .. } => fetch(session, name, direction).map(Some),
        Statement::Fetch { .. } => Err(SqlError::unsupported("FETCH INTO")),
        Statement::Close { cursor: CloseCursor::All } => {
            if let Some(open) = session.transaction.open_mut() {
                open.cursors.keep(0);
            }
            Ok(Some(StatementResult::Done { tag: "CLOSE CURSOR ALL".into() }))
        }
        Statement::Close { cursor: CloseCursor::Specific { name } } => {
            let name = folded(name);
            match session.transaction.open_mut() {
                Some(open) => open.cursors.close(&name)?,
                None => return Err(missing(&name)),
            }
            Ok(Some(StatementResult::Done { tag: "CLOSE CURSOR".into() }))
        }
        _ => Ok(None),
    }
}

fn missing(name: &str) -> SqlError {
    SqlError::transaction("34000", format!("cursor \"{name}\" does not exist"))
}

async fn declare(
    session: &mut Session,
    declare: &Declare,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let Declare { names, declare_type, binary, scroll, hold, for_query, .. } = declare;
    let refused = [
        (*binary == Some(true), "a cursor that is BINARY"),
        (*scroll == Some(true), "a cursor with SCROLL"),
        (*hold == Some(true), "a cursor WITH HOLD"),
        (*declare_type != Some(DeclareType::Cursor), "DECLARE of something else than a cursor"),
    ];
    if let Some((_, what)) = refused.iter().find(|(is, _)| *is) {
        return Err(SqlError::unsupported(what));
    }
    let ([name], Some(query)) = (names.as_slice(), for_query) else {
        return Err(SqlError::unsupported("a cursor without a query"));
    };
    let name = folded(name);
    session.transaction.in_block("DECLARE CURSOR")?.cursors.check_new(&name)?;
    session.refresh()?;
    let statement = Statement::Query(query.clone());
    let plan = prepared::plan_query(&session.context, &statement).await?;
    let stream = session.run(plan, parameters).await?;
    let schema = column_labels::labelled(&statement, &stream.schema());
    let stream = session.held(column_labels::relabel(stream, schema.clone()));
    session.transaction.in_block("DECLARE CURSOR")?.cursors.declare(&name, schema, stream)?;
    Ok(StatementResult::Done { tag: "DECLARE CURSOR".into() })
}

fn fetch(session: &mut Session, name: &Ident, direction: &FetchDirection) -> Result<StatementResult, SqlError> {
    let most = rows(direction)?;
    let name = folded(name);
    let open = session.transaction.open().ok_or_else(|| missing(&name))?;
    let (schema, stream) = (open.cursors.schema(&name)?, open.cursors.fetch(&name, most)?);
    Ok(StatementResult::Rows { schema, stream, tag: "FETCH" })
}

/// How many rows FETCH takes. Errors: 0A000 for those before.
fn rows(direction: &FetchDirection) -> Result<u64, SqlError> {
    let backward = || {
        SqlError::unsupported(format!("FETCH {direction}"))
            .with_hint("A cursor goes forward: FETCH NEXT, FETCH n, FETCH FORWARD n, FETCH ALL.")
    };
    let number = |limit: &ValueWithSpan| match &limit.value {
        Value::Number(text, _) => text.parse().map_err(|_| backward()),
        _ => Err(backward()),
    };
    match direction {
        FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => match number(limit)? {
            // PostgreSQL's returns the present row again.
            0 => Err(backward()),
            rows => Ok(rows),
        },
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Ok(1),
        FetchDirection::All | FetchDirection::ForwardAll => Ok(u64::MAX),
        _ => Err(backward()),
    }
}

/// The columns that FETCH returns, if the cursor is there.
pub(super) fn schema(session: &Session, name: &Ident) -> Option<SchemaRef> {
    session.transaction.open()?.cursors.schema(&folded(name)).ok()
}
