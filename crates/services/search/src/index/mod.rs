//! [`SearchIndex`]: the documents of an index in the store, and the library's index over them.
//!
//! ```text
//!   operation --> rows in the store, one transaction for a request --durable--> answer
//!                      |
//!                      +--in order of sequence numbers--> library's writer --refresh--> searchable --persist--> found after a crash
//! ```
//!
//! The documents are the truth: the library's index is made of them, and made again from them if it is lost or damaged. After a
//! crash it continues at the sequence number of its last `persist`.
//!
//! Invariants: an operation is answered after its transaction is durable; the writer takes operations in the order of their
//! numbers; a view shows each document as it was when the view was made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use device::Shelf;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Lsn, Store, TreeId};
use tantivy::schema::Schema;
use tantivy::{Index, IndexReader, IndexWriter, TantivyDocument};

use crate::analysis::Analyzers;
use crate::directory::{FileMemory, ShelfDirectory};
use crate::error::SearchError;
use crate::mapping::{Columns, Mapping};
use crate::schema::OwnFields;
use crate::view::IndexView;

mod apply;
mod open;
mod rows;
mod searchable;
mod sequence;
#[cfg(test)]
mod tests;

pub use apply::{DocumentOp, ExpectedVersion, OpKind, OpOutcome, PartialUpdate};
pub use rows::{ID_BYTES_MAX, IdState, StoredDocument};
use sequence::Sequencer;

/// What is stored about an index, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// Its name.
    pub name: String,
    /// Names its trees and devices; never used again.
    pub uuid: String,
    /// When it was created, milliseconds.
    pub created: i64,
    /// Settings as put, flat (`index.refresh_interval`).
    pub settings: BTreeMap<String, Value>,
    /// Its mapping as put.
    pub mapping: Value,
    /// Where its fields lie.
    pub columns: Columns,
    /// Its aliases, with what was put about each.
    pub aliases: BTreeMap<String, Value>,
    /// Whether it takes no documents and answers nothing.
    #[serde(default)]
    pub closed: bool,
}

/// What all indices of a node share.
#[derive(Clone)]
pub struct IndexPlace {
    /// The node's store.
    pub store: Store,
    /// Where the library's files lie.
    pub shelf: Arc<dyn Shelf>,
    /// Memory of open files.
    pub memory: Arc<FileMemory>,
    /// Memory of the writer of an index, in bytes.
    pub writer_bytes: usize,
}

impl std::fmt::Debug for IndexPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexPlace").field("shelf", &self.shelf).finish_non_exhaustive()
    }
}

/// The fields of an index and how to read documents by them; replaced as a whole.
#[derive(Clone)]
pub(crate) struct Fields {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) analyzers: Arc<Analyzers>,
    pub(crate) schema: Schema,
    /// Changes where columns changed their places: documents prepared before are prepared again.
    pub(crate) generation: u64,
}

/// The trees of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trees {
    pub(crate) docs: TreeId,
    pub(crate) ids: TreeId,
    pub(crate) files: TreeId,
}

/// See the head comment of this file.
pub struct SearchIndex {
    place: IndexPlace,
    definition: RwLock<IndexDefinition>,
    fields: RwLock<Fields>,
    trees: Trees,
    sequencer: Mutex<Sequencer<Vec<IndexedOp>>>,
    writer: Mutex<WriterState>,
    published: RwLock<Published>,
    /// The last commit of an operation: what reads wait for.
    last_commit: AtomicU64,
    /// Superseded rows, and the refresh after which no new view shows them.
    replaced: Mutex<BTreeMap<u64, Vec<u64>>>,
    counters: Counters,
    deleted: AtomicBool,
}

/// A committed operation on its way to the library's index.
struct IndexedOp {
    id: String,
    seq: u64,
    /// Whether the id may be in the index already.
    replaces: bool,
    /// What to add, with the generation of the fields that it was prepared by; `None` to delete.
    document: Option<(TantivyDocument, u64)>,
    bytes: u64,
}

struct WriterState {
    directory: ShelfDirectory,
    index: Index,
    writer: Option<IndexWriter>,
    /// Every operation below it is in the writer.
    applied: u64,
    /// As of the last refresh, and of the last `persist`.
    refreshed: u64,
    persisted: u64,
    /// Bytes of sources since the last `persist`.
    bytes: u64,
}

/// What searches see.
struct Published {
    reader: IndexReader,
    schema: Schema,
    /// Number of the refresh that made it.
    epoch: Arc<u64>,
    /// All operations below it are in it.
    refreshed: u64,
    /// The views given out by epoch, to know which may still be read.
    alive: Vec<std::sync::Weak<u64>>,
}

/// Counts since the index was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Documents stored.
    pub indexed: AtomicU64,
    /// Documents deleted.
    pub deleted: AtomicU64,
    /// Microseconds that storing took.
    pub index_us: AtomicU64,
    /// Searches.
    pub searches: AtomicU64,
    /// Microseconds that searching took.
    pub search_us: AtomicU64,
    /// Refreshes.
    pub refreshes: AtomicU64,
    /// Microseconds that refreshing took.
    pub refresh_us: AtomicU64,
    /// Persisted states.
    pub persists: AtomicU64,
    /// Reads by id.
    pub gets: AtomicU64,
    /// Merges asked for.
    pub merges: AtomicU64,
}

/// A view, and what keeps the documents that it shows.
#[derive(Clone)]
pub struct OpenView {
    /// The index at one moment.
    pub view: IndexView,
    _epoch: Arc<u64>,
}

impl std::fmt::Debug for OpenView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view.fmt(f)
    }
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchIndex").field("name", &self.definition.read().name).finish_non_exhaustive()
    }
}

impl SearchIndex {
    /// What is stored about it.
    pub fn definition(&self) -> IndexDefinition {
        self.definition.read().clone()
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.definition.read().name.clone()
    }

    /// Its mapping.
    pub fn mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.fields.read().mapping)
    }

    /// Its analyzers.
    pub fn analyzers(&self) -> Arc<Analyzers> {
        Arc::clone(&self.fields.read().analyzers)
    }

    /// Counts since it was opened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of the library's files.
    pub fn file_bytes(&self) -> u64 {
        self.writer.lock().directory.bytes()
    }

    /// The highest sequence number given out; `None` if none was.
    pub fn highest_seq(&self) -> Option<u64> {
        self.sequencer.lock().highest()
    }

    /// Damage of the library's files that a read has found, with its place.
    pub fn damage(&self) -> Option<Arc<str>> {
        self.writer.lock().directory.damage()
    }

    /// A setting (`index.refresh_interval`), if it was put.
    pub fn setting(&self, name: &str) -> Option<Value> {
        self.definition.read().settings.get(name).cloned()
    }

    /// The last operation on an id; `None` if there was none. Sees every operation that was answered.
    ///
    /// Errors: those of the store.
    pub fn id_state(&self, id: &str) -> Result<Option<IdState>, SearchError> {
        self.wait_for_commits()?;
        let row = self.place.store.snapshot().get(self.trees.ids, id.as_bytes())?;
        row.map(|row| IdState::decode(&row)).transpose()
    }

    /// A document by its id, with its sequence number: as the last answered operation left it.
    ///
    /// Errors: those of the store.
    pub fn get(&self, id: &str) -> Result<Option<(StoredDocument, u64)>, SearchError> {
        Counters::add(&self.counters.gets, 1);
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Ok(None);
        }
        self.wait_for_commits()?;
        let snapshot = self.place.store.snapshot();
        let Some(row) = snapshot.get(self.trees.ids, id.as_bytes())? else { return Ok(None) };
        let state = IdState::decode(&row)?;
        if state.deleted {
            return Ok(None);
        }
        let row = snapshot.get(self.trees.docs, &rows::key(rows::DOCUMENT, state.seq))?;
        let row = row.ok_or_else(|| SearchError::internal(format!("document [{id}] has no row")))?;
        Ok(Some((rows::decode_document(&row)?, state.seq)))
    }

    /// The document of a hit, by its sequence number.
    ///
    /// Errors: those of the store; the row is gone, which does not happen while the view is held that found it.
    pub fn document_at(&self, seq: u64) -> Result<StoredDocument, SearchError> {
        let row = self.place.store.snapshot().get(self.trees.docs, &rows::key(rows::DOCUMENT, seq))?;
        let row = row.ok_or_else(|| SearchError::internal(format!("the document of operation {seq} has no row")))?;
        rows::decode_document(&row)
    }

    fn wait_for_commits(&self) -> Result<(), SearchError> {
        let last = self.last_commit.load(Ordering::Acquire);
        if last > 0 {
            self.place.store.wait_visible(Lsn(last))?;
        }
        Ok(())
    }

    /// Marks the index as deleted: operations under way fail.
    pub(crate) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }
}

impl Counters {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}

/// Names of an index's trees.
pub(crate) fn tree_names(uuid: &str) -> [String; 3] {
    ["docs", "ids", "files"].map(|part| format!("search.{uuid}.{part}"))
}

/// The fields of a library's index that was opened.
pub(crate) fn own(schema: &Schema) -> OwnFields {
    OwnFields::of(schema)
}

/// A source as an object. Errors: it is not JSON, or not an object.
pub fn parse_source(source: &Bytes) -> Result<serde_json::Map<String, Value>, SearchError> {
    match serde_json::from_slice(source) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(SearchError::mapping("failed to parse: the source is not an object")),
        Err(error) => Err(SearchError::mapping(format!("failed to parse: {error}"))),
    }
}
