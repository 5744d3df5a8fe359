//! The statements DECLARE, FETCH and CLOSE, over the cursors of the open transaction.
//!
//! A cursor goes forward only, and ends with its transaction: SCROLL, WITH HOLD and FETCH of rows before are refused by name. BINARY is
//! refused as well, since a format is the client's choice at each FETCH.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    CloseCursor, Declare, DeclareType, FetchDirection, Ident, Statement, Value, ValueWithSpan,
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::SqlError;
use crate::engine::parse::ast::folded;
use crate::engine::parse::move_parser::is_move;
use crate::engine::plan::{column_labels, prepared};
use crate::engine::{Session, StatementResult};
use crate::table::View;
use crate::table::providers::Reads;

/// Bytes of rows that a cursor reads at DECLARE, in a transaction that has changed something.
const FROZEN_BYTES_MAX: usize = 4 << 20;

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
        Statement::Fetch { name, direction, into, .. } if is_move(into.as_ref()) => {
            leave_out(session, name, direction).await.map(Some)
        }
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
    let stream = column_labels::relabel(stream, schema.clone());
    let (stream, is_frozen) = match session.shared.view() {
        View::Snapshot(_) => (session.kept(stream)?, true),
        View::Transaction(_) => frozen(session, stream).await?,
    };
    session.transaction.in_block("DECLARE CURSOR")?.cursors.declare(&name, schema, stream, is_frozen)?;
    Ok(StatementResult::Done { tag: "DECLARE CURSOR".into() })
}

/// Rows of a view that moves with the transaction, as they are now. Returns also whether all were read: otherwise they are too
/// large, and the rest is read from the transaction.
async fn frozen(
    session: &Session,
    mut stream: SendableRecordBatchStream,
) -> Result<(SendableRecordBatchStream, bool), SqlError> {
    let (schema, access) = (stream.schema(), session.access());
    let (mut rows, mut bytes, mut is_over) = (Vec::new(), 0, false);
    while bytes <= FROZEN_BYTES_MAX && !is_over {
        match stream.try_next().await? {
            Some(batch) => {
                bytes += batch.get_array_memory_size();
                rows.push(batch);
            }
            None => is_over = true,
        }
    }
    // Who has lost a right meanwhile gets no more rows.
    let rows = stream::iter(rows).map(move |batch| match &access {
        Some(access) => access.recheck().map(|()| batch).map_err(DataFusionError::from),
        None => Ok(batch),
    });
    Ok(match is_over {
        true => (Box::pin(RecordBatchStreamAdapter::new(schema, rows)), true),
        false => {
            let rows = Box::pin(RecordBatchStreamAdapter::new(schema, rows.chain(session.kept(stream)?)));
            (session.held(rows), false)
        }
    })
}

fn fetch(session: &mut Session, name: &Ident, direction: &FetchDirection) -> Result<StatementResult, SqlError> {
    let most = rows(direction)?;
    let name = folded(name);
    let open = session.transaction.open().ok_or_else(|| missing(&name))?;
    let (schema, stream) = (open.cursors.schema(&name)?, open.cursors.fetch(&name, most)?);
    Ok(StatementResult::Rows { schema, stream, tag: "FETCH" })
}

/// MOVE: FETCH without the rows.
async fn leave_out(
    session: &mut Session,
    name: &Ident,
    direction: &FetchDirection,
) -> Result<StatementResult, SqlError> {
    let most = rows(direction).map_err(|error| match error.code() {
        "0A000" => SqlError::unsupported(format!("MOVE {direction}")).with_hint("A cursor goes forward."),
        _ => error,
    })?;
    let name = folded(name);
    let open = session.transaction.open().ok_or_else(|| missing(&name))?;
    let (mut stream, mut count) = (open.cursors.fetch(&name, most)?, 0);
    while let Some(batch) = stream.try_next().await? {
        count += batch.num_rows();
    }
    Ok(StatementResult::Done { tag: format!("MOVE {count}") })
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

#[cfg(test)]
mod tests {
    use store::{Options, Store};

    use crate::{Engine, EngineOptions, Session, StatementResult};

    async fn answer(session: &mut Session, sql: &str) -> Result<usize, &'static str> {
        let prepared = session.prepare(sql, &[]).await.map_err(|error| error.code())?;
        match session.execute(&prepared[0], &[]).await.map_err(|error| error.code())? {
            StatementResult::Rows { stream, .. } => {
                let batches: Vec<_> = futures::TryStreamExt::try_collect(stream).await.map_err(|_| "stream")?;
                Ok(batches.iter().map(|batch| batch.num_rows()).sum())
            }
            _ => Ok(0),
        }
    }

    #[tokio::test]
    async fn a_cursor_has_one_of_the_places_for_queries_that_are_read_in_part_until_its_end() {
        let store = Store::in_memory(Options::default()).expect("memory is enough");
        let engine = Engine::new(store, EngineOptions { threads: 2, ..EngineOptions::default() }).expect("it starts");
        let mut session = engine.session("a");
        let mut places: Vec<_> = std::iter::from_fn(|| engine.teams.keep("a").ok()).collect();
        let declare = "DECLARE c CURSOR FOR SELECT x FROM generate_series(1, 10) s(x)";
        assert_eq!(answer(&mut session, "BEGIN").await, Ok(0));
        assert_eq!(answer(&mut session, declare).await, Err("53300"));
        assert_eq!(answer(&mut session, "ROLLBACK").await, Ok(0));
        places.truncate(places.len() - 1);
        assert_eq!(answer(&mut session, "BEGIN").await, Ok(0));
        assert_eq!(answer(&mut session, declare).await, Ok(0));
        assert!(engine.teams.keep("a").is_err(), "the cursor has it");
        assert_eq!(answer(&mut session, "FETCH ALL FROM c").await, Ok(10));
        drop(engine.teams.keep("a").expect("the cursor is at its end"));
        // A cursor whose rows were read at DECLARE needs none.
        places.push(engine.teams.keep("a").expect("one is free"));
        assert_eq!(answer(&mut session, "CREATE TABLE t (a int)").await, Ok(0));
        assert_eq!(answer(&mut session, "DECLARE d CURSOR FOR SELECT 1").await, Ok(0));
        assert_eq!(answer(&mut session, "FETCH ALL FROM d").await, Ok(1));
    }
}
