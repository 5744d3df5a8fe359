//! [`ByQueryJob`]: the work of a request by query, batch by batch.
//!
//! Invariants: what is counted is durable; the memory is that of the numbers of one batch and of the documents of one transaction; a
//! version conflict or another failure ends the work after its transaction, unless conflicts are to be passed over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use node::Audit;
use serde_json::{Value, json};

use super::copying::writing;
use super::{ByQueryOptions, ByQueryWork};
use crate::error::SearchError;
use crate::hits::{self, SearchLimits, SearchTarget, Walk};
use crate::index::{DocumentOp, ExpectedVersion, OpKind, OpOutcome, SearchIndex};
use crate::indices::Indices;
use crate::rest::audited;
use crate::rest::searches::{is_cheap, limits_of};
use crate::rest::tasks::{Progress, RunningTask, add, count};
use crate::rights::Asker;
use crate::stop::SearchStop;

/// Bytes of documents in one transaction, as those of a bulk request.
const TRANSACTION_BYTES: usize = 8 << 20;

/// How often a transaction that was refused for a moment is sent again, and the first pause, which doubles.
const RETRIES: u32 = 6;
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// See the head comment of this file.
pub(super) struct ByQueryJob {
    pub(super) indices: Arc<Indices>,
    /// Who asked for it: it goes on only while its rights are there.
    pub(super) asker: Asker,
    pub(super) audit: Option<Arc<Audit>>,
    pub(super) targets: Vec<SearchTarget>,
    pub(super) query: Value,
    pub(super) now: i64,
    pub(super) options: ByQueryOptions,
    pub(super) work: ByQueryWork,
    pub(super) progress: Arc<Progress>,
    pub(super) failures: Vec<(u16, Value)>,
}

impl ByQueryJob {
    /// Does it all; returns the response with its status. Errors: the query cannot be, the index cannot be read.
    pub(super) fn run(mut self, task: &RunningTask) -> Result<(u16, Value), SearchError> {
        let stop = Arc::new(SearchStop::new(Arc::clone(&task.cancelled), None));
        match self.walk(task, &stop) {
            Ok(()) => {}
            // What was done until then counts.
            Err(_) if stop.is_cancelled() => {}
            Err(error) => return Err(error),
        }
        let mut response = serde_json::Map::new();
        response.insert("took".to_owned(), json!(task.started.elapsed().as_millis() as u64));
        response.insert("timed_out".to_owned(), json!(false));
        if stop.is_cancelled() {
            response.insert("canceled".to_owned(), json!("by user request"));
        }
        response.extend(self.progress.shown());
        let status = self.failures.iter().map(|(status, _)| *status).max().unwrap_or(200);
        let failures = self.failures.into_iter().map(|(_, failure)| failure).collect();
        response.insert("failures".to_owned(), Value::Array(failures));
        Ok((status, Value::Object(response)))
    }

    fn walk(&mut self, task: &RunningTask, stop: &Arc<SearchStop>) -> Result<(), SearchError> {
        let targets = std::mem::take(&mut self.targets);
        let cheap = is_cheap(&self.indices);
        let limits = SearchLimits { cheap, ..limits_of(&targets) };
        let total = hits::count(&targets, Some(&self.query), &limits, None, &task.cancelled)?;
        self.progress.total.store(self.options.max_docs.map_or(total, |most| most.min(total)), Ordering::Relaxed);
        let mut left = self.options.max_docs.unwrap_or(u64::MAX);
        let query = self.query.clone();
        for target in &targets {
            let walk = Walk { target, query: &query, now: self.now, cheap, batch: self.options.batch };
            let mut each = |seqs: &[u64]| {
                let since = Instant::now();
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(seqs.len());
                let goes_on = self.batch(target, &seqs[..most], stop)?;
                add(&self.progress.batches, 1);
                left -= most as u64;
                let is_more = goes_on && left > 0;
                let done = self.handled();
                if is_more && done < count(&self.progress.total) {
                    self.progress.throttle(most as u64, since, &task.cancelled);
                }
                Ok(is_more)
            };
            if !walk.run(stop, &mut each)? {
                break;
            }
        }
        if self.options.refresh {
            self.refresh(&targets)?;
        }
        Ok(())
    }

    /// Documents that are done with.
    fn handled(&self) -> u64 {
        let Progress { created, updated, deleted, conflicts, noops, .. } = &*self.progress;
        [created, updated, deleted, conflicts, noops].map(count).iter().sum()
    }

    fn refresh(&self, targets: &[SearchTarget]) -> Result<(), SearchError> {
        match &self.work {
            ByQueryWork::Copy(copying) => match self.indices.write_index(&copying.index, &writing(&self.asker)) {
                Ok(index) => index.refresh(),
                // Nothing was copied, so there may be none.
                Err(_) => Ok(()),
            },
            _ => targets.iter().try_for_each(|target| target.index.refresh()),
        }
    }

    /// Does the documents of a batch; returns whether to go on.
    fn batch(&mut self, target: &SearchTarget, seqs: &[u64], stop: &SearchStop) -> Result<bool, SearchError> {
        self.asker.still()?;
        let (mut ops, mut bytes) = (Vec::new(), 0);
        for seq in seqs {
            // A scroll may outlive its index, and so may this.
            target.index.check_deleted()?;
            stop.is_over()?;
            // Not by the target, which notes reads for a response: those of a copy have their entries with each transaction.
            let document = target.index.document_at(*seq)?;
            bytes += document.source.len();
            let op = match &self.work {
                ByQueryWork::Copy(copying) => copying.op(document, target.index.is_fed())?,
                ByQueryWork::Delete => Some((OpKind::Delete, document)),
                ByQueryWork::Update => Some((OpKind::Index(document.source.clone()), document)),
            }
            .map(|(kind, document)| DocumentOp {
                expected: match &self.work {
                    ByQueryWork::Copy(copying) => copying.expected(&document),
                    _ => ExpectedVersion::Seq(*seq, 1),
                },
                id: Some(document.id),
                kind,
                routing: document.routing,
            });
            match op {
                Some(op) => ops.push(op),
                None => add(&self.progress.noops, 1),
            }
            if bytes >= TRANSACTION_BYTES {
                if !self.transaction(target, &std::mem::take(&mut ops), stop)? {
                    return Ok(false);
                }
                bytes = 0;
            }
        }
        Ok(ops.is_empty() || self.transaction(target, &ops, stop)?)
    }

    /// Does operations as one transaction, counts them, and returns whether to go on.
    fn transaction(
        &mut self,
        target: &SearchTarget,
        ops: &[DocumentOp],
        stop: &SearchStop,
    ) -> Result<bool, SearchError> {
        self.asker.still()?;
        if target.index.is_fed() {
            let ids: Vec<String> = ops.iter().filter_map(|op| op.id.clone()).collect();
            let query = self.query.to_string();
            audited::read(self.audit.as_ref(), &self.asker, &ids, (self.work.action(), &query))?;
        }
        let index = match &self.work {
            ByQueryWork::Copy(copying) => {
                self.indices.for_write(&copying.index, copying.require_alias, &writing(&self.asker))
            }
            _ => Ok(Arc::clone(&target.index)),
        };
        let done = index.and_then(|index| Ok((self.apply(&index, ops, stop)?, index)));
        let (outcomes, index) = match done {
            Ok(done) => done,
            Err(error) => {
                let first = ops.first().and_then(|op| op.id.clone());
                self.failures
                    .push((error.status, json!({"id": first, "cause": error.cause(), "status": error.status})));
                return Ok(false);
            }
        };
        let (name, mut goes_on) = (index.name(), true);
        for (op, outcome) in ops.iter().zip(outcomes) {
            let error = match outcome {
                Ok(outcome) => {
                    self.count(&outcome);
                    continue;
                }
                Err(error) => error,
            };
            if error.status == 409 {
                add(&self.progress.conflicts, 1);
                if self.options.proceed {
                    continue;
                }
            }
            goes_on = false;
            let cause = error.clone().of(&name).cause();
            let failure = json!({"index": name, "id": op.id, "cause": cause, "status": error.status});
            self.failures.push((error.status, failure));
        }
        Ok(goes_on)
    }

    /// Applies operations; what is refused for a moment is sent again.
    fn apply(
        &self,
        index: &SearchIndex,
        ops: &[DocumentOp],
        stop: &SearchStop,
    ) -> Result<Vec<Result<OpOutcome, SearchError>>, SearchError> {
        let mut pause = RETRY_AFTER;
        for _ in 0..RETRIES {
            match index.apply(ops) {
                Err(error) if error.kind == "es_rejected_execution_exception" && !stop.is_cancelled() => {}
                done => return done,
            }
            add(&self.progress.retries, 1);
            std::thread::sleep(pause);
            self.asker.still()?;
            pause *= 2;
        }
        index.apply(ops)
    }

    fn count(&self, outcome: &OpOutcome) {
        let Progress { created, updated, deleted, noops, .. } = &*self.progress;
        let counter = match outcome.result {
            "created" => created,
            "updated" => updated,
            "deleted" => deleted,
            _ => noops,
        };
        add(counter, 1);
    }
}
