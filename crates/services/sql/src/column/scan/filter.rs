//! Conditions of a scan, and how they narrow the rows of a vector.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::{is_volatile, snapshot_generation};

use super::Scanned;
use super::reader::RowGroupReader;
use crate::column::chunk::{PickedRows, flags_of};
use crate::column::is_text;

/// A condition is evaluated once per value if there is at most one value for this number of rows.
const ROWS_PER_VALUE: usize = 4;
/// A condition that a join or a top-k computed is dropped if more than this share of rows passes it.
const USELESS: f64 = 0.85;
/// The number of rows over which this share is measured, at least.
const TRIAL_ROWS: u64 = 65_536;

/// One condition; every row of a scan fulfils all of them.
#[derive(Clone, Debug)]
pub(crate) struct Conjunct {
    /// The condition over the addressed schema.
    pub(crate) over_table: Arc<dyn PhysicalExpr>,
    /// The condition over its own columns only, in their order.
    compact: Arc<dyn PhysicalExpr>,
    /// Positions of its columns in the addressed schema.
    pub(crate) columns: Vec<usize>,
    schema: SchemaRef,
    /// Whether it is computed while the query runs: it may change, and it may be left out.
    pub(crate) dynamic: bool,
    rank: u8,
}

/// Whether a condition gives the same result each time for the same row.
pub(crate) fn is_repeatable(condition: &Arc<dyn PhysicalExpr>) -> bool {
    !is_volatile(condition)
}

impl Conjunct {
    pub(crate) fn new(over_table: &Arc<dyn PhysicalExpr>, scanned: &Scanned) -> Result<Conjunct> {
        let mut columns: Vec<usize> = collect_columns(over_table).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let compact = over_table.clone().transform_down(|part| {
            Ok(match part.downcast_ref::<Column>() {
                Some(column) => {
                    let at = columns.iter().position(|&position| position == column.index()).unwrap_or_default();
                    Transformed::yes(Arc::new(Column::new(column.name(), at)) as Arc<dyn PhysicalExpr>)
                }
                None => Transformed::no(part),
            })
        })?;
        let schema = Arc::new(scanned.addressed.project(&columns)?);
        let dynamic = snapshot_generation(over_table) != 0;
        let texts = schema.fields().iter().any(|field| is_text(field.data_type()));
        let rank = match (dynamic, texts, columns.len()) {
            (false, false, 1) => 0,
            (false, false, _) => 1,
            (true, false, _) => 2,
            (_, true, _) => 3,
        };
        Ok(Conjunct { over_table: over_table.clone(), compact: compact.data, columns, schema, dynamic, rank })
    }

    fn evaluate(&self, columns: Vec<Arc<dyn Array>>, rows: usize) -> Result<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let answer = self.compact.evaluate(&batch)?.into_array(rows)?;
        Ok(as_boolean_array(&answer)?.clone())
    }
}

/// The remaining rows of a vector; their numbers are those in the row group.
#[derive(Debug)]
pub(crate) enum Left {
    /// So many rows from the first one on.
    All(usize, usize),
    /// These rows.
    Some(Vec<u32>),
}

impl Left {
    pub(crate) fn len(&self) -> usize {
        match self {
            Left::All(_, rows) => *rows,
            Left::Some(rows) => rows.len(),
        }
    }

    pub(crate) fn rows(&self) -> PickedRows<'_> {
        match self {
            Left::All(from, rows) => PickedRows::Range(*from, *rows),
            Left::Some(rows) => PickedRows::At(rows),
        }
    }

    fn keep(self, answer: &BooleanArray) -> Left {
        if answer.null_count() == 0 && answer.true_count() == answer.len() {
            return self;
        }
        let bits = match answer.nulls() {
            Some(nulls) => answer.values() & nulls.inner(),
            None => answer.values().clone(),
        };
        Left::Some(match self {
            Left::All(from, _) => bits.set_indices().map(|at| (from + at) as u32).collect(),
            Left::Some(rows) => bits.set_indices().map(|at| rows[at]).collect(),
        })
    }
}

/// How many rows one condition has tested and passed so far.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    asked: u64,
    passed: u64,
}

/// A scan's conditions with their state. One for each partition.
pub(crate) struct Filter {
    conjuncts: Vec<Conjunct>,
    records: Vec<Record>,
    /// Results for each value, by condition and chunk of the present row group; `None` if there are too many values.
    known: HashMap<(usize, usize), Option<Vec<bool>>>,
    /// Whether the first condition is left out: it is only for row groups that cross a border of partitions.
    skips_first: bool,
    has_bounds: bool,
}

impl Filter {
    /// All conditions, and those for row groups that cross a border.
    pub(crate) fn new(mut conjuncts: Vec<Conjunct>, bounds: Option<Conjunct>) -> Filter {
        conjuncts.sort_by_key(|conjunct| conjunct.rank);
        let has_bounds = bounds.is_some();
        let conjuncts: Vec<Conjunct> = bounds.into_iter().chain(conjuncts).collect();
        let records = vec![Record::default(); conjuncts.len()];
        Filter { conjuncts, records, known: HashMap::new(), skips_first: false, has_bounds }
    }

    /// Begins another row group, which crosses a border or not.
    pub(crate) fn begin(&mut self, across: bool) {
        self.known.clear();
        self.skips_first = self.has_bounds && !across;
    }

    /// The rows of a vector that fulfil all conditions.
    pub(crate) fn narrow(&mut self, reader: &mut RowGroupReader, mut left: Left) -> Result<Left> {
        for number in usize::from(self.skips_first)..self.conjuncts.len() {
            if left.len() == 0 {
                break;
            }
            let record = self.records[number];
            let useless = record.asked >= TRIAL_ROWS && record.passed as f64 > USELESS * record.asked as f64;
            if self.conjuncts[number].dynamic && useless {
                continue;
            }
            let asked = left.len() as u64;
            left = self.apply(number, reader, left)?;
            let record = &mut self.records[number];
            (record.asked, record.passed) = (record.asked + asked, record.passed + left.len() as u64);
        }
        Ok(left)
    }

    fn apply(&mut self, number: usize, reader: &mut RowGroupReader, left: Left) -> Result<Left> {
        let conjunct = &self.conjuncts[number];
        if let &[column] = conjunct.columns.as_slice()
            && reader.has(column)
        {
            let at = match &left {
                Left::All(from, _) => *from,
                Left::Some(rows) => rows[0] as usize,
            };
            let (chunk, chunk_number, first) = reader.chunk_at(column, at)?;
            let known = match self.known.get(&(number, chunk_number)) {
                Some(known) => known,
                None => {
                    let made = match chunk.domain(chunk.rows() / ROWS_PER_VALUE)? {
                        // The condition may fail on a value that no remaining row has: then it is evaluated on rows.
                        Some(domain) => {
                            let rows = domain.values.len();
                            conjunct.evaluate(vec![domain.values], rows).ok().map(|answer| flags_of(&answer))
                        }
                        None => None,
                    };
                    self.known.entry((number, chunk_number)).or_insert(made)
                }
            };
            if let Some(answers) = known {
                return Ok(select(&chunk, first, answers, left));
            }
        }
        let rows = left.rows();
        let columns = conjunct.columns.iter().map(|&column| reader.column(column, rows));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let answer = conjunct.evaluate(columns, rows.len())?;
        Ok(left.keep(&answer))
    }
}

fn select(chunk: &crate::column::chunk::ColumnChunk, first: usize, answers: &[bool], left: Left) -> Left {
    if answers.iter().all(|&answer| answer) {
        return left;
    }
    if !answers.iter().any(|&answer| answer) {
        return Left::Some(Vec::new());
    }
    let mut kept = Vec::new();
    match &left {
        Left::All(from, rows) => chunk.select(PickedRows::Range(from - first, *rows), answers, first as u32, &mut kept),
        Left::Some(rows) if first == 0 => chunk.select(PickedRows::At(rows), answers, 0, &mut kept),
        Left::Some(rows) => {
            let inside: Vec<u32> = rows.iter().map(|&row| row - first as u32).collect();
            chunk.select(PickedRows::At(&inside), answers, first as u32, &mut kept);
        }
    }
    if kept.len() == left.len() { left } else { Left::Some(kept) }
}
