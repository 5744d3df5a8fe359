//! An index over documents that lie elsewhere in the node, such as the messages: it keeps no copies of them.
//!
//! ```text
//!   DocumentFeed --documents(from, most)--> feed --> library's writer --refresh--> searchable
//!        ^                                   number of a document = its `_seq`; its id is that number
//!        +--document(seq)-- what hits show
//! ```
//!
//! Numbers ascend in the order in which documents become visible. The index remembers the number it has come to with its persisted
//! state, and goes on there after a start. Requests cannot write to it.
//!
//! One document must not stop the others: what panics when it is read or indexed is named in the log and passed over. The library
//! indexes on threads of its own, and does not say which document ended one: it is looked for by halves ([`Careful`]).
//!
//! Invariants: `applied` of the writer is the number that the next batch begins with; a document that its owner removed is shown
//! without a source until [`SearchIndex::trim`] removes it from the index too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tantivy::Term;
use tantivy::query::RangeQuery;

use super::careful::Careful;
use super::rows::StoredDocument;
use super::{Fields, IndexedOp, SearchIndex, WriterState, own};
use crate::document::IndexedDocument;
use crate::error::{INDEXING_ENDED, SearchError};

/// Documents of one batch.
pub(crate) const BATCH: usize = 1_000;

/// Where the documents of an index lie.
pub trait DocumentFeed: Send + Sync + std::fmt::Debug {
    /// Documents from number `from` on, at most `most` and at least one where there is any.
    ///
    /// Errors: they cannot be read. Single ones that cannot are reported by the feed, and left out.
    fn documents(&self, from: u64, most: usize) -> Result<FedBatch, SearchError>;

    /// The source of a document; `None` if it was removed.
    ///
    /// Errors: it cannot be read.
    fn document(&self, seq: u64) -> Result<Option<Map<String, Value>>, SearchError>;

    /// The lowest number that a document has; `None` if there is no document.
    ///
    /// Errors: it cannot be read.
    fn first(&self) -> Result<Option<u64>, SearchError>;

    /// The field that names the service that a message came in by, of single terms. Documents with it are for who may read
    /// messages of that service; without such a field all are for who may read those of every service.
    fn service_field(&self) -> Option<&str> {
        None
    }
}

/// Documents in the order of their numbers.
#[derive(Debug, Default)]
pub struct FedBatch {
    /// Number and source of each.
    pub documents: Vec<(u64, Map<String, Value>)>,
    /// Where the next batch begins; the same as before if there is nothing new.
    pub next: u64,
    /// Bytes of what was read, for the decision when to persist.
    pub bytes: u64,
}

/// The state of an index with a feed.
#[derive(Debug)]
pub(super) struct Feeding {
    feed: Arc<dyn DocumentFeed>,
    /// One batch at a time.
    one: Mutex<()>,
    /// Every document below it is in the writer.
    fed_below: AtomicU64,
    /// The highest such number ever: documents below it may be in the index already.
    seen_below: AtomicU64,
    /// Documents below it were removed.
    trimmed_below: AtomicU64,
    careful: Mutex<Careful>,
}

/// Runs work that a document may make panic. Errors: the text of the panic.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| device::supervise::said(&*payload))
}

impl Feeding {
    pub(super) fn new(feed: Arc<dyn DocumentFeed>, from: u64) -> Feeding {
        Feeding {
            feed,
            one: Mutex::default(),
            fed_below: AtomicU64::new(from),
            seen_below: AtomicU64::new(from),
            trimmed_below: AtomicU64::new(0),
            careful: Mutex::default(),
        }
    }

    pub(super) fn service_field(&self) -> Option<&str> {
        self.feed.service_field()
    }

    pub(super) fn fed_below(&self) -> u64 {
        self.fed_below.load(Ordering::Acquire)
    }

    pub(super) fn set_fed_below(&self, number: u64) {
        self.fed_below.store(number, Ordering::Release);
        self.seen_below.fetch_max(number, Ordering::AcqRel);
    }

    /// A document as hits show it.
    pub(super) fn stored(&self, seq: u64) -> Result<Option<StoredDocument>, SearchError> {
        let Some(source) = self.feed.document(seq)? else { return Ok(None) };
        let source = Value::Object(source).to_string().into();
        Ok(Some(StoredDocument { id: seq.to_string(), version: 1, routing: None, source }))
    }
}

impl Feeding {
    /// See [`SearchIndex::feed`].
    pub(super) fn feed(&self, index: &SearchIndex) -> Result<bool, SearchError> {
        index.check_deleted()?;
        let _one = self.one.lock();
        let from = {
            let mut state = index.writer.lock();
            index.recover(&mut state)?;
            state.applied
        };
        let most = self.careful.lock().batch(BATCH);
        let batch = self.feed.documents(from, most)?;
        if batch.next <= from {
            return Ok(false);
        }
        let fields = index.fields.read().clone();
        let ops: Vec<IndexedOp> = batch.documents.iter().filter_map(|one| self.op(index, &fields, one)).collect();
        let mut state = index.writer.lock();
        // It was made anew meanwhile: the next call begins there.
        if state.applied != from || state.is_behind {
            return Ok(true);
        }
        if let Err(error) = ops.into_iter().try_for_each(|op| index.index_op(&mut state, op)) {
            state.applied = batch.next;
            index.fall_behind(&mut state, &error);
            return Err(error);
        }
        state.bytes += batch.bytes;
        state.applied = batch.next;
        if self.careful.lock().is_on() {
            self.commit_part(index, &mut state, &batch.documents)?;
        }
        self.set_fed_below(batch.next);
        Ok(true)
    }

    /// A document on its way to the writer; `None` if it is passed over.
    fn op(&self, index: &SearchIndex, fields: &Fields, (seq, source): &(u64, Map<String, Value>)) -> Option<IndexedOp> {
        if self.careful.lock().passes_over(*seq) {
            return None;
        }
        let Fields { mapping, analyzers, schema, generation } = fields;
        let id = seq.to_string();
        let read = || IndexedDocument::read_again(mapping, analyzers, schema, (&id, *seq), source);
        match guarded(read).map_err(SearchError::internal).flatten() {
            Ok(document) => {
                let replaces = *seq > 0 && *seq < self.seen_below.load(Ordering::Acquire);
                Some(IndexedOp { id, seq: *seq, replaces, document: Some((document, *generation)), bytes: 0 })
            }
            Err(error) => {
                self.pass_over(index, *seq, error.kind);
                None
            }
        }
    }

    /// From now on the index goes on without this document. The log gets no text of the error: it may contain a part of the document.
    fn pass_over(&self, index: &SearchIndex, seq: u64, kind: &str) {
        if self.careful.lock().pass_over(seq) {
            let index = index.name();
            tracing::error!(index, document = seq, kind, "a document cannot be indexed and is not found; report it");
        }
    }

    /// Commits a batch by itself, after a larger one failed.
    fn commit_part(
        &self,
        index: &SearchIndex,
        state: &mut WriterState,
        documents: &[(u64, Map<String, Value>)],
    ) -> Result<(), SearchError> {
        let next = state.applied;
        match index.refresh_with(state) {
            Ok(()) => {
                self.careful.lock().done(BATCH, next);
                Ok(())
            }
            // The medium's failures have other types, and pass.
            Err(error) if error.kind == INDEXING_ENDED && documents.len() == 1 => {
                self.pass_over(index, documents[0].0, error.kind);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The writer lost everything below `until` that it had not committed.
    pub(super) fn fell_behind(&self, until: u64) {
        self.careful.lock().failed(BATCH, until);
    }

    /// See [`SearchIndex::trim`].
    pub(super) fn trim(&self, index: &SearchIndex) -> Result<(), SearchError> {
        let first = self.feed.first()?.unwrap_or_else(|| self.fed_below());
        if first <= self.trimmed_below.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = index.writer.lock();
        index.check_deleted()?;
        index.recover(&mut state)?;
        let end = Term::from_field_u64(own(&index.fields.read().schema).seq, first);
        let query = RangeQuery::new(std::ops::Bound::Unbounded, std::ops::Bound::Excluded(end));
        state.writer(index.place.writer_bytes)?.delete_query(Box::new(query))?;
        index.commit(&mut state)?;
        state.refreshed = state.applied;
        // What a start finds is behind now.
        state.bytes += 1;
        index.publish(&state)?;
        self.trimmed_below.store(first, Ordering::Release);
        Ok(())
    }
}
