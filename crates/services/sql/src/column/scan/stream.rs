//! A partition of a scan at work.

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
use super::reader::Reader;
use crate::SqlError;
use crate::column::VECTOR_ROWS;

/// What a partition has to do.
pub(crate) struct Work {
    pub(crate) scanned: Arc<Scanned>,
    pub(crate) projection: Vec<usize>,
    pub(crate) conjuncts: Vec<Conjunct>,
    pub(crate) parts: Vec<Part>,
    /// What rows of a segment across a border of partitions must fulfil.
    pub(crate) bounds: Option<Conjunct>,
    pub(crate) fetch: Option<usize>,
    pub(crate) batch_rows: usize,
    pub(crate) schema: SchemaRef,
}

struct Counts {
    baseline: BaselineMetrics,
    segments_pruned: Count,
    vectors_pruned: Count,
    rows_filtered: Count,
}

/// The segment at hand.
struct Current {
    reader: Reader,
    wanted: Option<Vec<bool>>,
    vector: usize,
}

struct Partition {
    work: Work,
    filter: Filter,
    pruner: Pruner,
    counts: Counts,
    /// Position in the work's segments of the next one.
    next: usize,
    current: Option<Current>,
    ahead: Option<(usize, SpawnedTask<Result<Reader, SqlError>>)>,
    /// Rows of the current segment that are left and not yet given out.
    pending: Vec<u32>,
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
        segments_pruned: MetricBuilder::new(metrics).counter("segments_pruned", partition),
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

    /// Goes to the next segment that may hold rows; false after the last.
    async fn advance(&mut self) -> Result<bool> {
        loop {
            let Some(&Part { segment, across }) = self.work.parts.get(self.next) else { return Ok(false) };
            self.next += 1;
            let descriptor = self.work.scanned.segments.list[segment].descriptor.clone();
            if !self.pruner.may_hold(&descriptor)? {
                self.counts.segments_pruned.add(1);
                self.ahead.take_if(|(number, _)| *number == segment);
                continue;
            }
            let reader = match self.ahead.take() {
                Some((number, task)) if number == segment => match task.join().await {
                    Ok(reader) => reader?,
                    Err(failed) => return Err(SqlError::statement("XX000", failed.to_string()).into()),
                },
                _ => Reader::new(self.work.scanned.clone(), segment),
            };
            let wanted = self.pruner.vectors(&descriptor)?;
            self.filter.begin(across);
            self.current = Some(Current { reader, wanted, vector: 0 });
            return Ok(true);
        }
    }

    /// Works on one vector, or gives out what is left at the segment's end. `None`: nothing to give out yet.
    fn step(&mut self) -> Result<Option<RecordBatch>> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let rows = current.reader.segment.descriptor.rows;
        let from = current.vector * VECTOR_ROWS;
        if from >= rows {
            let batch = self.give_out()?;
            self.leave();
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
            // A whole vector goes out as it lies in the chunks; what waits before it goes first.
            Left::All(..) if !self.pending.is_empty() => self.give_out(),
            Left::All(from, rows) => {
                current.vector += 1;
                let batch = materialise(&mut current.reader, &self.work, &Left::All(from, rows))?;
                Ok(Some(batch))
            }
            Left::Some(rows) => {
                current.vector += 1;
                self.pending.extend(rows);
                if self.pending.len() >= self.work.batch_rows { self.give_out() } else { Ok(None) }
            }
        }
    }

    fn give_out(&mut self) -> Result<Option<RecordBatch>> {
        let Some(current) = &mut self.current else { return Ok(None) };
        if self.pending.is_empty() {
            return Ok(None);
        }
        let rows = Left::Some(std::mem::take(&mut self.pending));
        Ok(Some(materialise(&mut current.reader, &self.work, &rows)?))
    }

    /// Leaves a segment, and has the next one read ahead: the chunks of the columns that this one needed.
    fn leave(&mut self) {
        let Some(current) = self.current.take() else { return };
        // The segment after the next one: the next is in hand already or small enough to begin with.
        let Some(&Part { segment, .. }) = self.work.parts.get(self.next) else { return };
        // Batches of few rows are those of little memory, which two segments may be a great part of.
        if Handle::try_current().is_err() || self.work.batch_rows < VECTOR_ROWS {
            return;
        }
        let touched = current.reader.touched();
        let scanned = self.work.scanned.clone();
        let task = SpawnedTask::spawn_blocking(move || {
            let mut reader = Reader::new(scanned, segment);
            reader.read_ahead(&touched)?;
            Ok(reader)
        });
        self.ahead = Some((segment, task));
    }
}

fn without_deleted(reader: &Reader, from: usize, count: usize) -> Left {
    let deleted = &reader.segment.deleted;
    let first = deleted.partition_point(|&row| (row as usize) < from);
    let end = deleted.partition_point(|&row| (row as usize) < from + count);
    if first == end {
        return Left::All(from, count);
    }
    let mut gone = deleted[first..end].iter().peekable();
    let there = (from as u32..(from + count) as u32).filter(|row| gone.next_if_eq(&row).is_none());
    Left::Some(there.collect())
}

fn materialise(reader: &mut Reader, work: &Work, rows: &Left) -> Result<RecordBatch> {
    let columns = work.projection.iter().map(|&column| reader.column(column, rows.rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(work.schema.clone(), columns, &options)?)
}

/// How many rows of a vector the conditions let pass, and how many it has; for estimates.
pub(crate) fn sample(
    scanned: &Arc<Scanned>,
    conjuncts: &[Conjunct],
    segment: usize,
    vector: usize,
) -> Result<(usize, usize)> {
    let mut reader = Reader::new(scanned.clone(), segment);
    let from = vector * VECTOR_ROWS;
    let count = reader.segment.descriptor.vector_rows(vector);
    let left = Filter::new(conjuncts.to_vec(), None).narrow(&mut reader, Left::All(from, count))?;
    Ok((left.len(), count))
}
