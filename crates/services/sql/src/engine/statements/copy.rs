//! COPY: rows in and out in bulk. The wire handles the formats; here rows are batches.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Statement,
};

use node::identity::Action;

use super::bulk_load::BulkLoad;
use super::changed_table;
use super::changed_table::column_position;
use super::check_constraints;
use super::column_defaults;
use super::column_defaults::ColumnDefaults;
use super::references;
use crate::SqlError;
use crate::engine::limits::cancellation::Running;
use crate::engine::parse::ast;
use crate::engine::parse::ast::{folded, resolve};
use crate::engine::parse::statement_check;
use crate::engine::plan::access::{Access, hidden};
use crate::engine::plan::prepared;
use crate::engine::run::cancellable_stream;
use crate::engine::semantics::assignment_casts::assign;
use crate::engine::session::row_locks::{LockOwner, Wanted};
use crate::engine::session::transaction::SessionTransaction;
use crate::engine::session::transaction_state::{Failure, Lent};
use crate::engine::statement_result::{CopyFormat, CopyIn, CopyOut, CopySink};
use crate::engine::{Session, StatementResult};
use crate::table::Table;

fn positions(table: &Table, columns: &[Ident]) -> Result<Vec<usize>, SqlError> {
    let mut positions = Vec::new();
    for column in columns {
        let at = column_position(table, &folded(column))?;
        if positions.contains(&at) {
            return Err(SqlError::statement("42701", format!("column \"{column}\" specified more than once")));
        }
        positions.push(at);
    }
    match positions.is_empty() {
        true => Ok((0..table.columns.len()).collect()),
        false => Ok(positions),
    }
}

pub(crate) async fn copy(session: &mut Session, statement: &Statement) -> Result<StatementResult, SqlError> {
    let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
        return Err(super::create_drop::unsupported(statement));
    };
    let format = format(options, legacy_options)?;
    let freezes = options.iter().any(|option| matches!(option, CopyOption::Freeze(true)));
    match (to, target) {
        (true, CopyTarget::Stdout) => copy_out(session, source, format).await,
        (false, CopyTarget::Stdin) => copy_in(session, source, format, freezes).await,
        _ => Err(SqlError::unsupported("COPY with files and programs of the server")
            .with_hint("Use COPY .. FROM STDIN or TO STDOUT; psql's \\copy does.")),
    }
}

async fn copy_out(session: &mut Session, source: &CopySource, format: CopyFormat) -> Result<StatementResult, SqlError> {
    session.refresh()?;
    let query = match source {
        CopySource::Query(query) => Statement::Query(query.clone()),
        CopySource::Table { table_name, columns } => {
            let columns: Vec<String> = columns.iter().map(Ident::to_string).collect();
            let columns = if columns.is_empty() { "*".to_string() } else { columns.join(", ") };
            ast::parse(&format!("SELECT {columns} FROM {table_name}"))?
        }
    };
    statement_check::check(&query)?;
    let plan = prepared::plan_query(&session.context, &query).await?;
    let stream = session.run(plan, &[]).await?;
    let access = session.access();
    if let Some(access) = &access {
        let object = match source {
            CopySource::Table { table_name, .. } => {
                let (schema, name) = resolve(table_name)?;
                format!("table {schema}.{name}")
            }
            CopySource::Query(_) => "query".to_owned(),
        };
        access.exports(&object, &query.to_string())?;
    }
    Ok(StatementResult::CopyOut(CopyOut { schema: stream.schema(), stream, format, access }))
}

/// `freezes`: FREEZE, which takes a table that the transaction has made or emptied. Its rows are no others then, as in PostgreSQL.
async fn copy_in(
    session: &mut Session,
    source: &CopySource,
    format: CopyFormat,
    freezes: bool,
) -> Result<StatementResult, SqlError> {
    let CopySource::Table { table_name, columns } = source else {
        return Err(SqlError::statement("42601", "COPY FROM needs a table"));
    };
    // The table is looked up in the transaction that will contain the rows.
    let mine = !session.transaction.is_open();
    if mine {
        session.transaction.begin(session.new_transaction(true));
    }
    session.refresh()?;
    let table = changed_table::table(session, table_name, Action::TableInsert)?;
    let columns = positions(&table, columns)?;
    changed_table::may_change(session, &table, Action::TableInsert, columns.iter().copied())?;
    let fields: Vec<_> =
        columns.iter().map(|at| table.columns[*at].kind.field(&table.columns[*at].name, true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let defaults = column_defaults::defaults(session, &table, &columns).await?;
    let transaction = session.changing("COPY FROM")?;
    if freezes && !transaction.has_alone(table.id) {
        let message =
            "cannot perform COPY FREEZE because the table was not created or truncated in the current subtransaction";
        return Err(SqlError::transaction("55000", message));
    }
    lock(session, table.id).await?;
    if let Some(open) = session.transaction.open() {
        open.pending_keys().clear();
    }
    references::prepare(session, &table, None)?;
    check_constraints::prepare(session, &table).await?;
    let most = session.settings.now().lock_timeout();
    let failure = session.transaction.failure();
    let mut transaction = session.transaction.take();
    if let Some(transaction) = &mut transaction {
        // Its rows cannot come again, so it could not run again after a wait.
        transaction.locks_rows = false;
    }
    let back = (!mine).then(|| session.transaction.lent());
    let bulk = Some(BulkLoad::new(&session.engine, &table));
    let running = session.canceller.current();
    let access = session.access();
    let (running_too, access_too) = (running.clone(), access.clone());
    let rows = CopyRows {
        table,
        columns,
        defaults,
        transaction,
        bulk,
        back,
        failure,
        most,
        access: access_too,
        running: running_too,
    };
    Ok(StatementResult::CopyIn(CopyIn { schema, format, sink: Box::new(rows), running, access }))
}

/// Shares the lock of the table, after a wait for who has it alone. Errors: 40P01, 55P03; [`SqlError::Again`].
async fn lock(session: &mut Session, table: u64) -> Result<(), SqlError> {
    let most = session.settings.now().lock_timeout();
    loop {
        let open = session.changing("COPY FROM")?;
        let locks = open.row_locks().clone();
        match (open.lock(table, false), locks.take_wanted()) {
            (Err(SqlError::Again(_)), Some(wanted)) => locks.wait(&wanted, most).await?,
            (locked, _) => return locked,
        }
    }
}

/// The rows of one COPY, and their transaction: its own, or one that the session lends it.
struct CopyRows {
    table: Arc<Table>,
    /// For each column of a batch its position in the table.
    columns: Vec<usize>,
    /// The defaults of the other columns.
    defaults: ColumnDefaults,
    transaction: Option<SessionTransaction>,
    bulk: Option<BulkLoad>,
    /// The place where a lent transaction is returned.
    back: Option<Lent>,
    failure: Failure,
    /// How long it waits for a lock.
    most: Duration,
    /// The rights of the statement.
    access: Option<Access>,
    /// The statement; it ends when this is dropped.
    running: Arc<Running>,
}

#[async_trait]
impl CopySink for CopyRows {
    async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let (Some(transaction), Some(bulk)) = (&self.transaction, &mut self.bulk) else {
            return Err(SqlError::transaction("25000", "this COPY has ended"));
        };
        self.access.as_ref().map_or(Ok(()), Access::recheck)?;
        let values = batch.columns().iter().zip(&self.columns);
        let values = values.map(|(array, at)| assign(array, &self.table.columns[*at], true));
        let values: Vec<ArrayRef> = values.collect::<Result<_, _>>()?;
        let whole = self.defaults.whole(&self.table, &self.columns, values, batch.num_rows())?;
        bulk.push(transaction, whole).map_err(|error| hidden(error, self.access.as_ref()))
    }

    async fn finish(mut self: Box<Self>) -> Result<u64, SqlError> {
        let rows = match (&self.transaction, self.bulk.take()) {
            (Some(transaction), Some(bulk)) => {
                bulk.finish(transaction).map_err(|error| hidden(error, self.access.as_ref()))?
            }
            _ => 0,
        };
        while let Some(wait) = self.missing_keys()? {
            tokio::select! {
                biased;
                why = cancellable_stream::ended(&self.running, self.access.as_ref()) => return Err(why),
                waited = references::wait(wait, self.most) => waited?,
            }
        }
        self.access.as_ref().map_or(Ok(()), Access::recheck)?;
        self.running.close()?;
        match (self.transaction.take(), &self.back) {
            (Some(mut transaction), Some(back)) => {
                transaction.locks_rows = true;
                *back.lock() = Some(transaction);
            }
            (Some(transaction), None) => transaction.commit().await?,
            (None, _) => {}
        }
        Ok(rows)
    }
}

impl CopyRows {
    /// What it has to wait for before the keys to which its rows refer are looked for again. Errors: 23503.
    fn missing_keys(&self) -> Result<Option<(Arc<LockOwner>, Wanted)>, SqlError> {
        match &self.transaction {
            Some(transaction) => {
                references::end_of_copy(transaction).map_err(|error| hidden(error, self.access.as_ref()))
            }
            None => Ok(None),
        }
    }
}

impl Drop for CopyRows {
    fn drop(&mut self) {
        self.running.end();
        // It was not finished: the statement failed. Its own transaction is rolled back when it is dropped.
        if let Some(mut transaction) = self.transaction.take() {
            transaction.locks_rows = true;
            self.failure.report();
            if let Some(back) = &self.back {
                *back.lock() = Some(transaction);
            }
        }
    }
}

/// The options, in both of PostgreSQL's syntaxes.
fn format(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<CopyFormat, SqlError> {
    let mut name = "text".to_string();
    let (mut delimiter, mut null, mut header, mut quote, mut escape) = (None, None, false, None, None);
    for option in options {
        match option {
            CopyOption::Format(format) => name = format.value.to_lowercase(),
            CopyOption::Delimiter(c) => delimiter = Some(*c),
            CopyOption::Null(text) => null = Some(text.clone()),
            CopyOption::Header(is) => header = *is,
            CopyOption::Quote(c) => quote = Some(*c),
            CopyOption::Escape(c) => escape = Some(*c),
            CopyOption::Freeze(_) => {}
            CopyOption::Encoding(name) if matches!(name.to_lowercase().as_str(), "utf8" | "utf-8") => {}
            other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
        }
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Binary => name = "binary".into(),
            CopyLegacyOption::Delimiter(c) => delimiter = Some(*c),
            CopyLegacyOption::Null(text) => null = Some(text.clone()),
            CopyLegacyOption::Header => header = true,
            CopyLegacyOption::Csv(options) => {
                name = "csv".into();
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => header = true,
                        CopyLegacyCsvOption::Quote(c) => quote = Some(*c),
                        CopyLegacyCsvOption::Escape(c) => escape = Some(*c),
                        other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
                    }
                }
            }
            other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
        }
    }
    if !matches!(name.as_str(), "text" | "csv" | "binary") {
        return Err(SqlError::statement("22023", format!("COPY format \"{name}\" not recognized")));
    }
    let csv = name == "csv";
    let byte = |c: Option<char>, default: u8| match c {
        None => Ok(default),
        Some(c) if c.is_ascii() && !matches!(c, '\n' | '\r') => Ok(c as u8),
        Some(_) => {
            Err(SqlError::statement("22023", "COPY delimiter, quote and escape must be a single one-byte character"))
        }
    };
    let quote = byte(quote, b'"')?;
    Ok(CopyFormat {
        delimiter: byte(delimiter, if csv { b',' } else { b'\t' })?,
        null: null.unwrap_or_else(|| if csv { String::new() } else { "\\N".into() }),
        header,
        quote,
        escape: byte(escape, quote)?,
        name,
    })
}
