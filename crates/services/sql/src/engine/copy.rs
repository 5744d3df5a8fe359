//! COPY: rows in and out in bulk. The formats are the wire's; here rows are batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Statement,
};
use parking_lot::Mutex;

use super::answer::{CopyFormat, CopyIn, CopyOut, CopySink};
use super::assign::assign;
use super::block::Block;
use super::bulk::Bulk;
use super::cancel::Running;
use super::control::folded;
use super::defaults::Defaults;
use super::insert::column_position;
use super::target;
use super::{Answer, Session};
use crate::SqlError;
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

impl Session {
    pub(crate) async fn copy(&mut self, statement: &Statement) -> Result<Answer, SqlError> {
        let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
            return Err(super::define::unsupported(statement));
        };
        let format = format(options, legacy_options)?;
        match (to, target) {
            (true, CopyTarget::Stdout) => self.copy_out(source, format).await,
            (false, CopyTarget::Stdin) => self.copy_in(source, format).await,
            _ => Err(SqlError::unsupported("COPY with files and programs of the server")
                .with_hint("COPY .. FROM STDIN and TO STDOUT work; psql's \\copy uses them.")),
        }
    }

    async fn copy_out(&mut self, source: &CopySource, format: CopyFormat) -> Result<Answer, SqlError> {
        self.refresh()?;
        let query = match source {
            CopySource::Query(query) => Statement::Query(query.clone()),
            CopySource::Table { table_name, columns } => {
                let columns: Vec<String> = columns.iter().map(Ident::to_string).collect();
                let columns = if columns.is_empty() { "*".to_string() } else { columns.join(", ") };
                target::parse(&format!("SELECT {columns} FROM {table_name}"))?
            }
        };
        let plan = self.plan(&query).await?;
        let stream = self.run(plan, &[]).await?;
        Ok(Answer::CopyOut(CopyOut { schema: stream.schema(), stream, format }))
    }

    async fn copy_in(&mut self, source: &CopySource, format: CopyFormat) -> Result<Answer, SqlError> {
        let CopySource::Table { table_name, columns } = source else {
            return Err(SqlError::statement("42601", "COPY FROM needs a table"));
        };
        // The table is looked up in the transaction that the rows go into.
        let mine = self.block.is_none();
        if mine {
            self.block = Some(self.new_block(true));
        }
        self.refresh()?;
        let table = target::table(&self.shared.catalog(), table_name)?;
        let columns = positions(&table, columns)?;
        let fields: Vec<_> =
            columns.iter().map(|at| table.columns[*at].kind.field(&table.columns[*at].name, true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let defaults = self.defaults(&table, &columns).await?;
        self.changing("COPY FROM")?.lock(table.id, false)?;
        let block = self.block.take();
        let back = (!mine).then(|| self.lent.clone());
        let failed = self.failed_flag();
        let bulk = Some(Bulk::new(&self.engine, &table));
        let running = self.canceller.current();
        let rows = CopyRows { table, columns, defaults, block, bulk, back, failed, running: running.clone() };
        Ok(Answer::CopyIn(CopyIn { schema, format, sink: Box::new(rows), running }))
    }
}

/// The rows that one COPY brings, and the transaction they go into: its own, or one that the session lends it.
struct CopyRows {
    table: Arc<Table>,
    /// For each column of a batch its position in the table.
    columns: Vec<usize>,
    /// The defaults of the others.
    defaults: Defaults,
    block: Option<Block>,
    bulk: Option<Bulk>,
    /// Where a lent transaction is given back.
    back: Option<Arc<Mutex<Option<Block>>>>,
    failed: Arc<AtomicBool>,
    /// The statement: over when this is dropped.
    running: Arc<Running>,
}

#[async_trait]
impl CopySink for CopyRows {
    async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let (Some(block), Some(bulk)) = (&self.block, &mut self.bulk) else {
            return Err(SqlError::transaction("25000", "this COPY has ended"));
        };
        let values = batch.columns().iter().zip(&self.columns);
        let values = values.map(|(array, at)| assign(array, &self.table.columns[*at], true));
        let values: Vec<ArrayRef> = values.collect::<Result<_, _>>()?;
        bulk.push(block, self.defaults.whole(&self.table, &self.columns, values, batch.num_rows())?)
    }

    async fn finish(mut self: Box<Self>) -> Result<u64, SqlError> {
        let rows = match (&self.block, self.bulk.take()) {
            (Some(block), Some(bulk)) => bulk.finish(block)?,
            _ => 0,
        };
        self.running.close()?;
        match (self.block.take(), &self.back) {
            (Some(block), Some(back)) => *back.lock() = Some(block),
            (Some(block), None) => block.commit().await?,
            (None, _) => {}
        }
        Ok(rows)
    }
}

impl Drop for CopyRows {
    fn drop(&mut self) {
        self.running.end();
        // Not finished: the statement failed. Its own transaction is rolled back by being dropped.
        if let Some(block) = self.block.take() {
            self.failed.store(true, Ordering::Release);
            if let Some(back) = &self.back {
                *back.lock() = Some(block);
            }
        }
    }
}

/// The options, as PostgreSQL reads them in both of its spellings.
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
            CopyOption::Freeze(false) => {}
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
