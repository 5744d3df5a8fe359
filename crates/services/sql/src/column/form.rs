//! [`Columns`]: the segments of all tables, as tables see them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use store::Transaction;

use super::scan::SegmentScan;
use super::segments::{Address, Segments, Shared, Trees, delete, find};
use super::{Appender, SEGMENT_ROWS, damaged};
use crate::SqlError;
use crate::table::{ColumnForm, FormRequest, Table, View};

/// Column form over a store. One for each open store: it remembers which numbers of segments were given out.
#[derive(Debug)]
pub struct Columns {
    segment_rows: usize,
    tables: Mutex<HashMap<u64, Arc<Shared>>>,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns::with_segments_of(SEGMENT_ROWS)
    }
}

/// Key in the tree of segments, behind all numbers, of the largest row id that was moved.
pub(crate) const LAST_ROW_ID: &[u8] = b"\xFF\xFF\xFF\xFFrow id";

impl Columns {
    /// For a store just opened.
    pub fn new() -> Columns {
        Columns::default()
    }

    /// The same with segments of other sizes: 1 to [`SEGMENT_ROWS`] rows.
    pub fn with_segments_of(rows: usize) -> Columns {
        Columns { segment_rows: rows.clamp(1, SEGMENT_ROWS), tables: Mutex::default() }
    }

    /// Rows of a whole segment.
    pub fn segment_rows(&self) -> usize {
        self.segment_rows
    }

    pub(crate) fn shared(&self, storage: u64) -> Arc<Shared> {
        let make = || Arc::new(Shared::new(self.segment_rows));
        self.tables.lock().entry(storage).or_insert_with(make).clone()
    }

    /// Adds rows straight to segments: a bulk load. The caller commits. Of two transactions that add one primary key, in
    /// whatever form, the first to commit wins.
    pub fn append(&self, table: &Arc<Table>) -> Appender {
        Appender::new(table.clone(), self.shared(table.storage), false)
    }

    /// Takes rows that are on their way from row form: their keys were checked when they came.
    pub(crate) fn moved(&self, table: &Arc<Table>) -> Appender {
        Appender::new(table.clone(), self.shared(table.storage), true)
    }

    /// Bytes of chunks that scans asked the store for, since this was made.
    pub fn bytes_asked(&self) -> u64 {
        self.tables.lock().values().map(|table| table.asked.load(Ordering::Relaxed)).sum()
    }
}

impl ColumnForm for Columns {
    fn scan(
        &self,
        view: &View,
        table: &Arc<Table>,
        request: FormRequest<'_>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, SqlError> {
        let shared = self.shared(table.storage);
        let Some(mut segments) = Segments::open(view, table, &shared)? else { return Ok(None) };
        segments.hint = segments.hint_for(request.projection)?;
        let names = DFSchema::try_from(table.schema.as_ref().clone())?;
        let properties = ExecutionProps::new();
        // What cannot be said here alone, such as a subquery, is checked above.
        let planning = PhysicalPlanningContext::default();
        let conditions = request.filters.iter();
        let conditions = conditions.filter_map(|one| create_physical_expr(one, &names, &properties, &planning).ok());
        let repeatable: Vec<_> = conditions.filter(super::scan::is_repeatable).collect();
        let (addressed, projection) = (table.addressed.clone(), request.projection.to_vec());
        let scan = SegmentScan::new(segments, addressed, projection, &repeatable, request.limit, request.partitions)?;
        Ok(Some(Arc::new(scan)))
    }

    fn find(&self, view: &View, table: &Table, key: &[u8]) -> Result<Option<(Vec<u8>, RecordBatch)>, SqlError> {
        let found = find(view, table, key, &self.shared(table.storage))?;
        Ok(found.map(|(address, row)| (address.encode().to_vec(), row)))
    }

    fn delete(&self, transaction: &mut Transaction, table: &Table, address: &[u8]) -> Result<(), SqlError> {
        delete(transaction, table.storage, Address::decode(address)?)
    }

    fn last_row_id(&self, view: &View, table: &Table) -> Result<u64, SqlError> {
        let Some(trees) = Trees::find(view, table.storage)? else { return Ok(0) };
        match view.get(trees.segments, LAST_ROW_ID)? {
            None => Ok(0),
            Some(bytes) => match bytes.as_ref().try_into() {
                Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
                Err(_) => Err(damaged("the largest row id has 8 bytes")),
            },
        }
    }

    fn discard(&self, transaction: &mut Transaction, table: &Table) -> Result<(), SqlError> {
        if Trees::find(transaction, table.storage)?.is_some() {
            for name in Trees::names(table.storage) {
                transaction.drop_tree(&name)?;
            }
        }
        Ok(())
    }
}
