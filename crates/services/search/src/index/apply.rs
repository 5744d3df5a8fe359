//! Operations on documents: versions are checked, rows are written in one transaction for a request, then the operations go to
//! the library's writer in the order of their numbers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Map, Value};
use store::{StoreError, Transaction};
use tantivy::TantivyDocument;

use super::rows::{self, DOCUMENT, ID_BYTES_MAX, IdState, REPLACED, StoredDocument, TOMBSTONE};
use super::{Counters, Fields, IndexedOp, SearchIndex, parse_source};
use crate::document::{IndexedDocument, new_fields};
use crate::error::SearchError;
use crate::memory::object_bytes;
use crate::schema::ROUTING;
use crate::waiting::waiting;

/// How often a request is repeated when another one that committed first changed the same ids.
const ATTEMPTS: usize = 100;

/// Memory of an operation beside its source, about.
const OP_BYTES: u64 = 200;

/// Documents of more bytes are read one after the other.
const LARGE_BYTES: usize = 4 << 20;

/// How often a document's new fields are added to the mapping while others add some too.
const MAPPING_ATTEMPTS: usize = 10;

/// What an operation does.
#[derive(Clone, Debug)]
pub enum OpKind {
    /// Stores a source, whether or not the id is there.
    Index(Bytes),
    /// Stores a source if the id is not there.
    Create(Bytes),
    /// Deletes.
    Delete,
    /// Changes a part.
    Update(PartialUpdate),
}

/// A partial update.
#[derive(Clone, Debug, Default)]
pub struct PartialUpdate {
    /// What is merged into the source.
    pub doc: Option<Map<String, Value>>,
    /// The source if there is none.
    pub upsert: Option<Map<String, Value>>,
    /// `doc` is also the source if there is none.
    pub doc_as_upsert: bool,
    /// An update that changes nothing stores nothing.
    pub detect_noop: bool,
}

/// What must hold of an id's last operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Anything.
    Any,
    /// It has this sequence number and this primary term.
    Seq(u64, u64),
    /// Its version is lower than this one, which becomes the document's.
    External(u64),
    /// Its version is not higher than this one.
    ExternalGte(u64),
}

/// One operation of a request.
#[derive(Clone, Debug)]
pub struct DocumentOp {
    /// The id; `None` for a new one.
    pub id: Option<String>,
    /// What to do.
    pub kind: OpKind,
    /// On which condition.
    pub expected: ExpectedVersion,
    /// Kept with the document, and shown; at most 512 bytes. A delete or an update does not find a document in another shard.
    pub routing: Option<String>,
}

/// What an operation did.
#[derive(Clone, Debug)]
pub struct OpOutcome {
    /// The id.
    pub id: String,
    /// The version now.
    pub version: u64,
    /// The sequence number now.
    pub seq: u64,
    /// `created`, `updated`, `deleted`, `noop` or `not_found`.
    pub result: &'static str,
    /// The source now, of an update.
    pub source: Option<Bytes>,
}

impl OpOutcome {
    /// The HTTP status that goes with it.
    pub fn status(&self) -> u16 {
        match self.result {
            "created" => 201,
            "not_found" => 404,
            _ => 200,
        }
    }
}

/// A source that was read once, whatever becomes of the attempts to commit.
struct Prepared {
    document: TantivyDocument,
    generation: u64,
}

/// Sequence numbers of a request. They are given up if the request ends in any way without completing them: later operations
/// would wait for them without end.
struct Reservation<'a> {
    index: &'a SearchIndex,
    base: u64,
    is_complete: bool,
}

impl<'a> Reservation<'a> {
    fn new(index: &'a SearchIndex, count: u64) -> Reservation<'a> {
        Reservation { index, base: index.sequencer.lock().reserve(count), is_complete: false }
    }

    fn complete(mut self, ops: Vec<IndexedOp>) {
        self.is_complete = true;
        let bytes = ops.iter().map(|op| op.bytes + OP_BYTES).sum();
        self.index.sequencer.lock().complete(self.base, ops, bytes);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.index.sequencer.lock().abandon(self.base);
        }
    }
}

/// A request's changes in one attempt.
struct Attempt<'a> {
    index: &'a SearchIndex,
    transaction: Transaction,
    base: u64,
    ops: Vec<IndexedOp>,
}

impl SearchIndex {
    /// Does the operations of a request, in order, and returns when they are durable; they are in the writer before the next refresh.
    /// Each has its own result.
    ///
    /// Errors: the store's, and the index is being deleted; then nothing was done, except after
    /// [`StoreError::Poisoned`], where the next start shows it.
    pub fn apply(&self, ops: &[DocumentOp]) -> Result<Vec<Result<OpOutcome, SearchError>>, SearchError> {
        super::blocks::check_documents_writable(self)?;
        let started = Instant::now();
        let mut prepared: Vec<Option<Result<Prepared, SearchError>>> = ops
            .iter()
            .map(|op| match &op.kind {
                OpKind::Index(source) | OpKind::Create(source) => Some(self.prepare_new(source)),
                OpKind::Delete | OpKind::Update(_) => None,
            })
            .collect();
        // Requests that met each other once go on one at a time.
        let mut alone = None;
        for _ in 0..ATTEMPTS {
            self.check_deleted()?;
            let reservation = Reservation::new(self, ops.len() as u64);
            let base = reservation.base;
            let mut attempt = Attempt { index: self, transaction: self.place.store.begin(), base, ops: Vec::new() };
            let outcomes: Vec<Result<OpOutcome, SearchError>> =
                ops.iter().zip(&mut prepared).map(|(op, prepared)| attempt.one(op, prepared)).collect();
            let Attempt { transaction, ops: done, .. } = attempt;
            if done.is_empty() {
                return Ok(outcomes);
            }
            match transaction.commit() {
                Ok(lsn) => {
                    self.last_commit.fetch_max(lsn.0, Ordering::AcqRel);
                    self.count(&done, started);
                    reservation.complete(done);
                    self.drain();
                    return Ok(outcomes);
                }
                Err(error) => {
                    drop(reservation);
                    self.drain();
                    if !matches!(error, StoreError::Conflict) {
                        return Err(error.into());
                    }
                    alone.get_or_insert_with(|| waiting(|| self.contended.lock()));
                    // What won is appended, and the next attempt must see it.
                    waiting(|| self.place.store.wait_visible(self.place.store.appended()))?;
                    // The documents moved into the attempt: read them again.
                    for (op, prepared) in ops.iter().zip(&mut prepared) {
                        if let (OpKind::Index(source) | OpKind::Create(source), None) = (&op.kind, &prepared) {
                            *prepared = Some(self.prepare_new(source));
                        }
                    }
                }
            }
        }
        drop(alone);
        Err(SearchError::conflict("other requests kept changing the same documents; send this one again"))
    }

    fn count(&self, ops: &[IndexedOp], started: Instant) {
        let stored = ops.iter().filter(|op| op.document.is_some()).count() as u64;
        Counters::add(&self.counters.indexed, stored);
        Counters::add(&self.counters.deleted, ops.len() as u64 - stored);
        Counters::add(&self.counters.index_us, started.elapsed().as_micros() as u64);
    }

    /// Reads the source of a new document. Errors: it is larger than a document may be, which is looked at before it is read; as
    /// [`parse_new`] and [`prepare`](SearchIndex::prepare).
    fn prepare_new(&self, source: &Bytes) -> Result<Prepared, SearchError> {
        let most = self.place.store.value_bytes_max();
        if source.len() > most {
            let reason = format!("a document of {} bytes; with its id it has at most {most}", source.len());
            return Err(SearchError::new(413, "document_too_large_exception", reason));
        }
        self.prepare(&parse_new(source)?, source.len() > LARGE_BYTES)
    }

    /// Reads a source by the present fields, after it has added the ones that are new. The words of large ones are made one at a time.
    fn prepare(&self, source: &Map<String, Value>, is_large: bool) -> Result<Prepared, SearchError> {
        for _ in 0..MAPPING_ATTEMPTS {
            let fields: Fields = self.fields.read().clone();
            match new_fields(&fields.mapping, source)? {
                // It may make the index again, and waits for who refreshes it.
                Some(update) => waiting(|| self.put_mapping(&update))?,
                None => {
                    // Nothing is waited for under it.
                    let _turn = is_large.then(|| waiting(|| self.place.large_turn.lock()));
                    let Fields { mapping, analyzers, schema, generation } = &fields;
                    let document = IndexedDocument::prepare(mapping, analyzers, schema, source)?;
                    return Ok(Prepared { document, generation: *generation });
                }
            }
        }
        Err(SearchError::busy("the mapping keeps changing; send the document again"))
    }
}

impl Attempt<'_> {
    fn one(
        &mut self,
        op: &DocumentOp,
        prepared: &mut Option<Result<Prepared, SearchError>>,
    ) -> Result<OpOutcome, SearchError> {
        if let Some(Err(error)) = prepared {
            return Err(error.clone());
        }
        let (id, state) = match &op.id {
            Some(id) => {
                if id.is_empty() || id.len() > ID_BYTES_MAX {
                    let reason =
                        format!("id [{}...] has 1 to {ID_BYTES_MAX} bytes", id.chars().take(20).collect::<String>());
                    return Err(SearchError::argument(reason));
                }
                let row = self.transaction.get(self.index.trees.ids, id.as_bytes())?;
                (id.clone(), row.map(|row| IdState::decode(&row)).transpose()?)
            }
            None => (new_id(), None),
        };
        if op.routing.as_ref().is_some_and(|routing| routing.len() > ID_BYTES_MAX) {
            return Err(SearchError::argument(format!("a routing has at most {ID_BYTES_MAX} bytes")));
        }
        let version = check(&id, state, op.expected, matches!(op.kind, OpKind::Create(_)))?;
        if let Some(outcome) = self.elsewhere(&id, state, op)? {
            return Ok(outcome);
        }
        match &op.kind {
            OpKind::Index(source) | OpKind::Create(source) => {
                let Some(Ok(ready)) = prepared.take() else {
                    return Err(SearchError::internal("a source was not prepared"));
                };
                self.store(id, (state, version), op.routing.as_deref(), source, ready)
            }
            OpKind::Delete => self.delete(id, state, version),
            OpKind::Update(update) => self.update(id, state, version, (update, op.routing.as_deref())),
        }
    }

    /// What a delete does where the document lies in another shard than its routing names: nothing. Errors: as an update does there.
    fn elsewhere(&self, id: &str, state: Option<IdState>, op: &DocumentOp) -> Result<Option<OpOutcome>, SearchError> {
        let shards = self.index.shards();
        let Some(state) = state.filter(|state| !state.deleted && shards.count > 1) else { return Ok(None) };
        if matches!(op.kind, OpKind::Index(_) | OpKind::Create(_)) {
            return Ok(None);
        }
        let stored = self.stored(id, state)?;
        if shards.finds(id, op.routing.as_deref(), stored.routing.as_deref()) {
            return Ok(None);
        }
        match &op.kind {
            OpKind::Update(update) if update.upsert.is_some() || update.doc_as_upsert => {
                Err(SearchError::unsupported(format!("a second document with the id [{id}] by another routing")))
            }
            OpKind::Update(_) => Err(missing(id)),
            _ => {
                Ok(Some(OpOutcome { id: id.to_owned(), version: 1, seq: state.seq, result: "not_found", source: None }))
            }
        }
    }

    fn stored(&self, id: &str, state: IdState) -> Result<StoredDocument, SearchError> {
        let row = self.transaction.get(self.index.trees.docs, &rows::key(DOCUMENT, state.seq))?;
        rows::decode_document(&row.ok_or_else(|| SearchError::internal(format!("document [{id}] has no row")))?)
    }

    fn seq(&self) -> u64 {
        self.base + self.ops.len() as u64
    }

    fn store(
        &mut self,
        id: String,
        (state, version): (Option<IdState>, u64),
        routing: Option<&str>,
        source: &Bytes,
        ready: Prepared,
    ) -> Result<OpOutcome, SearchError> {
        let (seq, trees) = (self.seq(), self.index.trees);
        let row = rows::encode_document(&id, version, routing, source);
        let most = self.index.place.store.value_bytes_max();
        if row.len() > most {
            let reason = format!("document [{id}] has {} bytes; with its id it has at most {most}", source.len());
            return Err(SearchError::new(413, "document_too_large_exception", reason));
        }
        self.transaction.put(trees.docs, &rows::key(DOCUMENT, seq), &row)?;
        self.supersede(state)?;
        self.transaction.put(trees.ids, id.as_bytes(), &IdState { seq, version, deleted: false }.encode())?;
        let Prepared { mut document, generation } = ready;
        let own = super::own(&self.index.fields.read().schema);
        document.add_text(own.id, &id);
        document.add_u64(own.seq, seq);
        if routing.is_some() {
            document.add_text(own.names, ROUTING);
        }
        let bytes = source.len() as u64;
        self.ops.push(IndexedOp {
            id: id.clone(),
            seq,
            replaces: state.is_some(),
            document: Some((document, generation)),
            bytes,
        });
        let was_there = state.is_some_and(|state| !state.deleted);
        Ok(OpOutcome { id, version, seq, result: if was_there { "updated" } else { "created" }, source: None })
    }

    fn delete(&mut self, id: String, state: Option<IdState>, version: u64) -> Result<OpOutcome, SearchError> {
        let (seq, trees) = (self.seq(), self.index.trees);
        let was_there = state.is_some_and(|state| !state.deleted);
        let mut tombstone = now_millis().to_le_bytes().to_vec();
        tombstone.extend_from_slice(id.as_bytes());
        self.transaction.put(trees.docs, &rows::key(TOMBSTONE, seq), &tombstone)?;
        self.supersede(state)?;
        self.transaction.put(trees.ids, id.as_bytes(), &IdState { seq, version, deleted: true }.encode())?;
        self.ops.push(IndexedOp { id: id.clone(), seq, replaces: true, document: None, bytes: 0 });
        Ok(OpOutcome { id, version, seq, result: if was_there { "deleted" } else { "not_found" }, source: None })
    }

    fn update(
        &mut self,
        id: String,
        state: Option<IdState>,
        version: u64,
        (update, routing): (&PartialUpdate, Option<&str>),
    ) -> Result<OpOutcome, SearchError> {
        let mut routing = routing.map(str::to_owned);
        let source = match state.filter(|state| !state.deleted) {
            Some(state) => {
                let stored = self.stored(&id, state)?;
                routing = routing.or(stored.routing);
                let old = parse_source(&stored.source)?;
                let mut new = old.clone();
                if let Some(doc) = &update.doc {
                    merge(&mut new, doc);
                }
                if update.detect_noop && new == old {
                    Counters::add(&self.index.counters.noops, 1);
                    let source = Some(Bytes::from(Value::Object(old).to_string()));
                    return Ok(OpOutcome { id, version: state.version, seq: state.seq, result: "noop", source });
                }
                new
            }
            None => match (&update.upsert, &update.doc) {
                (Some(upsert), _) => upsert.clone(),
                (None, Some(doc)) if update.doc_as_upsert => doc.clone(),
                _ => {
                    return Err(missing(&id));
                }
            },
        };
        let ready = self.index.prepare(&source, object_bytes(&source) > LARGE_BYTES)?;
        let source = Bytes::from(Value::Object(source).to_string());
        let outcome = self.store(id, (state, version), routing.as_deref(), &source, ready)?;
        Ok(OpOutcome { source: Some(source), ..outcome })
    }

    /// Marks the row of the operation before as replaced.
    fn supersede(&mut self, state: Option<IdState>) -> Result<(), SearchError> {
        if let Some(state) = state {
            self.transaction.put(self.index.trees.docs, &rows::key(REPLACED, state.seq), b"")?;
        }
        Ok(())
    }
}

/// The source of a new document. Errors: it is not JSON, not an object, or has a key twice.
fn parse_new(source: &Bytes) -> Result<Map<String, Value>, SearchError> {
    match crate::strict::value(source) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(SearchError::mapping("failed to parse: the source is not an object")),
        Err(error) => Err(SearchError::mapping(format!("failed to parse: {error}"))),
    }
}

/// Errors: there is nothing to update.
fn missing(id: &str) -> SearchError {
    SearchError::new(404, "document_missing_exception", format!("[{id}]: document missing"))
}

/// Checks what is expected of an id; returns the version that the operation makes.
fn check(id: &str, state: Option<IdState>, expected: ExpectedVersion, create: bool) -> Result<u64, SearchError> {
    let present = state.filter(|state| !state.deleted);
    if let (true, Some(state)) = (create, present) {
        let reason = format!("[{id}]: version conflict, document already exists (current version [{}])", state.version);
        return Err(SearchError::conflict(reason));
    }
    let last = state.map_or(0, |state| state.version);
    // An earlier release took versions up to the last number: such a document stays at it, and can be deleted.
    let next = last.saturating_add(1);
    match expected {
        ExpectedVersion::Any => Ok(next),
        ExpectedVersion::Seq(seq, term) => match present {
            Some(state) if state.seq == seq && term == 1 => Ok(next),
            Some(state) => {
                let found = state.seq;
                Err(SearchError::conflict(format!(
                    "[{id}]: version conflict, required seqNo [{seq}], primary term [{term}]. current document has seqNo [{found}] and primary term [1]"
                )))
            }
            None => Err(SearchError::conflict(format!(
                "[{id}]: version conflict, required seqNo [{seq}], primary term [{term}]. but no document was found"
            ))),
        },
        ExpectedVersion::External(version) if state.is_none() || last < version => Ok(version),
        ExpectedVersion::ExternalGte(version) if state.is_none() || last <= version => Ok(version),
        ExpectedVersion::External(version) | ExpectedVersion::ExternalGte(version) => {
            Err(SearchError::conflict(format!(
                "[{id}]: version conflict, current version [{last}] is higher or equal to the one provided [{version}]"
            )))
        }
    }
}

/// Merges objects into objects; any other value replaces.
fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A new id: 15 bytes as 20 characters, the moment of this program's first one, a random number, and a count.
///
/// Ids that are made one after the other differ in their last characters alone: the list of terms of an index and the tree of ids
/// grow at one place. With random ids the list took an eighth of all work of indexing (perf, 2026-11-25).
fn new_id() -> String {
    use base64::Engine as _;
    static FIRST: OnceLock<[u8; 9]> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let first = FIRST.get_or_init(|| {
        let mut bytes = [0; 9];
        bytes[..6].copy_from_slice(&now_millis().to_be_bytes()[2..]);
        fastrand::fill(&mut bytes[6..]);
        bytes
    });
    let mut bytes = [0; 15];
    bytes[..9].copy_from_slice(first);
    bytes[9..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..]);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Milliseconds since 1970.
pub(crate) fn now_millis() -> u64 {
    jiff::Timestamp::now().as_millisecond().max(0) as u64
}
