//! Runs one partition of a scan.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use tokio::runtime::Handle;

use super::Scanned;
use super::filter::{Conjunct, Filter, Left};
use super::layout::Part;
use super::prune::Pruner;
use super::reader::RowGroupReader;
use crate::SqlError;
use crate::column::VECTOR_ROWS;

/// The work of a partition.
pub(crate) struct Work {
    pub(crate) scanned: Arc<Scanned>,
    pub(crate) projection: Vec<usize>,
    pub(crate) conjuncts: Vec<Conjunct>,
    pub(crate) parts: Vec<Part>,
    /// The condition for rows of a row group that crosses a border of partitions.
    pub(crate) bounds: Option<Conjunct>,
    pub(crate) fetch: Option<usize>,
    pub(crate) batch_rows: usize,
    pub(crate) schema: SchemaRef,
}

struct Counts {
    baseline: BaselineMetrics,
    row_groups_pruned: Count,
    vectors_pruned: Count,
    rows_filtered: Count,
}

/// The present row group.
struct Current {
    reader: RowGroupReader,
    wanted: Option<Vec<bool>>,
    vector: usize,
}

struct Partition {
    work: Work,
    filter: Filter,
    pruner: Pruner,
    counts: Counts,
    /// Position of the next row group in the work's list.
    next: usize,
    current: Option<Current>,
    ahead: Option<(usize, SpawnedTask<Result<RowGroupReader, SqlError>>)>,
    /// Remaining rows of the current row group that are not returned yet.
    pending: Vec<u32>,
    /// Rows of a vector that are too wide to be returned at once, and how many are returned at a time.
    rest: Option<(RecordBatch, usize)>,
    left: usize,
}

/// Runs a partition.
pub(crate) fn run(
    work: Work,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
) -> Result<SendableRecordBatchStream> {
    let counts = Counts {
        baseline: BaselineMetrics::new(metrics, partition),
        row_groups_pruned: MetricBuilder::new(metrics).counter("row_groups_pruned", partition),
        vectors_pruned: MetricBuilder::new(metrics).counter("vectors_pruned", partition),
        rows_filtered: MetricBuilder::new(metrics).counter("rows_filtered", partition),
    };
    let schema = work.schema.clone();
    let state = Partition {
        filter: Filter::new(work.conjuncts.clone(), work.bounds.clone()),
        pruner: Pruner::new(work.conjuncts.iter().chain(&work.bounds), &work.scanned),
        counts,
        next: 0,
        current: None,
        ahead: None,
        pending: Vec::new(),
        rest: None,
        left: work.fetch.unwrap_or(usize::MAX),
        work,
    };
    let batches = futures::stream::try_unfold(state, |mut state| async move {
        let batch = state.batch().await?;
        Ok(batch.map(|batch| (batch, state)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

impl Partition {
    async fn batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.left == 0 {
            self.counts.baseline.done();
            return Ok(None);
        }
        loop {
            if self.current.is_none() && !self.advance().await? {
                self.counts.baseline.done();
                return Ok(None);
            }
            let elapsed = self.counts.baseline.elapsed_compute().clone();
            let _timer = elapsed.timer();
            if let Some(batch) = self.step()? {
                let batch = if batch.num_rows() > self.left { batch.slice(0, self.left) } else { batch };
                self.left -= batch.num_rows();
                self.counts.baseline.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
        }
    }

    /// Goes to the next row group that may contain matching rows; false after the last.
    async fn advance(&mut self) -> Result<bool> {
        loop {
            let Some(&Part { row_group, across }) = self.work.parts.get(self.next) else { return Ok(false) };
            self.next += 1;
            let metadata = self.work.scanned.row_groups.list[row_group].metadata.clone();
            if !self.pruner.may_hold(&metadata)? {
                self.counts.row_groups_pruned.add(1);
                self.ahead.take_if(|(number, _)| *number == row_group);
                continue;
            }
            let reader = match self.ahead.take() {
                Some((number, task)) if number == row_group => match task.join().await {
                    Ok(reader) => reader?,
                    Err(failed) => return Err(SqlError::statement("XX000", failed.to_string()).into()),
                },
                _ => RowGroupReader::new(self.work.scanned.clone(), row_group),
            };
            let wanted = self.pruner.vectors(&metadata)?;
            self.filter.begin(across);
            self.current = Some(Current { reader, wanted, vector: 0 });
            return Ok(true);
        }
    }

    /// Processes one vector, or returns the rest of it or of the row group. `None`: there is nothing to return yet.
    fn step(&mut self) -> Result<Option<RecordBatch>> {
        if let Some((rest, rows)) = self.rest.take() {
            return Ok(Some(self.first_of(rest, rows)));
        }
        let Some(current) = &mut self.current else { return Ok(None) };
        if let Some(&row) = self.pending.first() {
            let most = current.reader.rows_at_once(&self.work.projection, row as usize)?;
            if self.pending.len() >= most.min(self.work.batch_rows) {
                return self.give_out();
            }
        }
        let rows = current.reader.row_group.metadata.rows;
        let from = current.vector * VECTOR_ROWS;
        current.reader.release_before(self.pending.first().map_or(from, |&row| row as usize));
        if from >= rows {
            let batch = self.give_out()?;
            if self.pending.is_empty() {
                self.leave();
            }
            return Ok(batch);
        }
        let count = VECTOR_ROWS.min(rows - from);
        if current.wanted.as_ref().is_some_and(|wanted| !wanted[current.vector]) {
            current.vector += 1;
            self.counts.vectors_pruned.add(1);
            return Ok(None);
        }
        let there = without_deleted(&current.reader, from, count);
        let left = self.filter.narrow(&mut current.reader, there)?;
        self.counts.rows_filtered.add(count - left.len());
        match left {
            // A whole vector is returned as it lies in the chunks; rows that wait before it are returned first.
            Left::All(..) if !self.pending.is_empty() => self.give_out(),
            Left::All(from, rows) => {
                current.vector += 1;
                let most = current.reader.rows_at_once(&self.work.projection, from)?;
                let batch = materialise(&mut current.reader, &self.work, &Left::All(from, rows))?;
                Ok(Some(self.first_of(batch, most)))
            }
            Left::Some(rows) => {
                current.vector += 1;
                self.pending.extend(rows);
                Ok(None)
            }
        }
    }

    /// Returns the first rows, at most `rows`; the others are returned next.
    fn first_of(&mut self, batch: RecordBatch, rows: usize) -> RecordBatch {
        if batch.num_rows() <= rows {
            return batch;
        }
        self.rest = Some((batch.slice(rows, batch.num_rows() - rows), rows));
        batch.slice(0, rows)
    }

    fn give_out(&mut self) -> Result<Option<RecordBatch>> {
        let (Some(current), Some(&row)) = (&mut self.current, self.pending.first()) else { return Ok(None) };
        let most = current.reader.rows_at_once(&self.work.projection, row as usize)?;
        let later = self.pending.split_off(most.min(self.pending.len()));
        let rows = Left::Some(std::mem::replace(&mut self.pending, later));
        Ok(Some(materialise(&mut current.reader, &self.work, &rows)?))
    }

    /// Leaves a row group, and starts to read ahead the next one: the chunks of the columns that this one needed.
    fn leave(&mut self) {
        let Some(current) = self.current.take() else { return };
        // The row group after the next one: the next one is already in memory, or small enough to begin with.
        let Some(&Part { row_group, .. }) = self.work.parts.get(self.next) else { return };
        // Batches of few rows are those of plans for little memory, of which two row groups may be a large part.
        if Handle::try_current().is_err() || self.work.batch_rows < VECTOR_ROWS {
            return;
        }
        let touched = current.reader.touched();
        let scanned = self.work.scanned.clone();
        let task = SpawnedTask::spawn_blocking(move || {
            let mut reader = RowGroupReader::new(scanned, row_group);
            reader.read_ahead(&touched)?;
            Ok(reader)
        });
        self.ahead = Some((row_group, task));
    }
}

fn without_deleted(reader: &RowGroupReader, from: usize, count: usize) -> Left {
    let deleted = &reader.row_group.deleted;
    let first = deleted.partition_point(|&row| (row as usize) < from);
    let end = deleted.partition_point(|&row| (row as usize) < from + count);
    if first == end {
        return Left::All(from, count);
    }
    let mut gone = deleted[first..end].iter().peekable();
    let there = (from as u32..(from + count) as u32).filter(|row| gone.next_if_eq(&row).is_none());
    Left::Some(there.collect())
}

fn materialise(reader: &mut RowGroupReader, work: &Work, rows: &Left) -> Result<RecordBatch> {
    let columns = work.projection.iter().map(|&column| reader.column(column, rows.rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(work.schema.clone(), columns, &options)?)
}

/// The number of rows of a vector that fulfil the conditions, and of all; for estimates.
pub(crate) fn sample(
    scanned: &Arc<Scanned>,
    conjuncts: &[Conjunct],
    row_group: usize,
    vector: usize,
) -> Result<(usize, usize)> {
    let mut reader = RowGroupReader::new(scanned.clone(), row_group);
    let from = vector * VECTOR_ROWS;
    let count = reader.row_group.metadata.vector_rows(vector);
    let left = Filter::new(conjuncts.to_vec(), None).narrow(&mut reader, Left::All(from, count))?;
    Ok((left.len(), count))
}
