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
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Lsn, Store, TreeId};
use tantivy::schema::Schema;
use tantivy::{Index, IndexReader, IndexWriter, Searcher, TantivyDocument};

use crate::analysis::Analyzers;
use crate::directory::{FileMemory, FileShelves, ShelfDirectory};
use crate::error::SearchError;
use crate::mapping::{Columns, Mapping};
use crate::schema::OwnFields;
use crate::shards::IndexShards;
use crate::view::{IndexView, UsedTerms};
use crate::zones::ZonedColumns;

mod apply;
mod blocks;
mod careful;
mod catalog;
mod counters;
mod feed;
mod opening;
mod rebuild;
mod redefining;
mod rewriting;
mod rows;
#[cfg(test)]
mod sealed_tests;
mod searchable;
mod sequence;
mod services;
#[cfg(test)]
mod tests;

pub(crate) use apply::now_millis;
pub use apply::{DocumentOp, ExpectedVersion, OpKind, OpOutcome, PartialUpdate};
pub(crate) use blocks::{check_block, check_deletable, check_settings_writable};
pub(crate) use catalog::{items as catalog_items, put_item as put_catalog_item};
pub use counters::Counters;
pub use feed::{DocumentFeed, FedBatch, guarded};
pub use opening::data_keys_in_use;
use opening::{library_index, next_seq, reader_of, tree_names};
pub(crate) use redefining::redefine_all;
pub(crate) use rewriting::rewrite_files;
pub use rows::{ID_BYTES_MAX, IdState, StoredDocument};
use sequence::Sequencer;
pub(crate) use services::{service_field, services as services_of};

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
    /// Of an index over documents that lie elsewhere: what decided how it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<Value>,
}

impl IndexDefinition {
    /// The shards into which its settings divide it.
    pub fn shards(&self) -> IndexShards {
        IndexShards::of(&self.settings)
    }
}

/// What all indices of a node share.
#[derive(Clone)]
pub struct IndexPlace {
    /// The node's store.
    pub store: Store,
    /// Where the library's files lie.
    pub shelves: FileShelves,
    /// Memory of open files.
    pub memory: Arc<FileMemory>,
    /// Memory of the writer of an index, in bytes.
    pub writer_bytes: usize,
    /// The turn of large documents, which are read one after the other: their words take many times their bytes.
    pub large_turn: Arc<Mutex<()>>,
}

impl std::fmt::Debug for IndexPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexPlace").field("shelves", &self.shelves).finish_non_exhaustive()
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
    definition: RwLock<Arc<IndexDefinition>>,
    fields: RwLock<Fields>,
    trees: Trees,
    sequencer: Mutex<Sequencer<Vec<IndexedOp>>>,
    writer: Mutex<WriterState>,
    published: RwLock<Published>,
    used: Arc<UsedTerms>,
    zones: Arc<ZonedColumns>,
    /// The last commit of an operation: what reads wait for.
    last_commit: AtomicU64,
    /// Superseded rows, and the refresh after which no new view shows them.
    replaced: Mutex<BTreeMap<u64, Vec<u64>>>,
    counters: Counters,
    /// Held by a request whose ids another one changed first.
    contended: Mutex<()>,
    deleted: AtomicBool,
    /// See [`rebuild`]. Changes under the writer's lock.
    rebuilding: AtomicBool,
    /// The one of the writer.
    directory: ShelfDirectory,
    /// Its documents lie elsewhere.
    feeding: Option<feed::Feeding>,
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
    /// The writer does not have all operations below `applied`, or it failed: a new one gets them from the store, from its last
    /// commit on.
    is_behind: bool,
}

/// What searches see.
struct Published {
    /// Opens what the writer committed.
    reader: IndexReader,
    searcher: Searcher,
    schema: Schema,
    /// Number of the refresh that made it.
    epoch: Arc<u64>,
    /// All operations below it are in it.
    refreshed: u64,
    /// The views given out by epoch, to know which may still be read.
    alive: Vec<std::sync::Weak<u64>>,
}

/// What the writer of an index has left to do.
#[derive(Clone, Debug)]
pub struct WriterReport {
    /// Bytes of sources since the last persisted state: what a start would index again.
    pub bytes: u64,
    /// Whether there are operations that the persisted state does not contain.
    pub behind: bool,
    /// Damage of the library's files that a read has found, with its place.
    pub damage: Option<Arc<str>>,
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
    /// Creates an index, with a feed over documents that lie elsewhere. Durable when it returns.
    ///
    /// Errors: a mapping or an analyzer that cannot be; those of the store and the medium, after which nothing is left.
    pub fn create(
        place: IndexPlace,
        definition: IndexDefinition,
        feed: Option<Arc<dyn DocumentFeed>>,
    ) -> Result<Arc<SearchIndex>, SearchError> {
        let analyzers = catalog::analyzers_of(&definition.settings)?;
        let mapping = Mapping::stored(&definition.mapping, definition.columns.clone())?;
        catalog::check_analyzers(&mapping, &analyzers).map_err(|error| SearchError::mapping(error.reason))?;
        let definition =
            IndexDefinition { mapping: mapping.to_json(), columns: mapping.columns().clone(), ..definition };
        let mut transaction = place.store.begin();
        for name in tree_names(&definition.uuid) {
            transaction.create_tree(&name)?;
        }
        let tree = catalog::catalog(&mut transaction)?;
        transaction.put(tree, &catalog::key(&definition.name), catalog::written(&json!(definition))?.as_bytes())?;
        let lsn = transaction.commit()?;
        place.store.wait_visible(lsn)?;
        SearchIndex::open(place, definition, feed)
    }

    /// Changes what is stored about it besides mapping and columns. Durable when it returns.
    ///
    /// Errors: those of the store; the index is being made again (503).
    pub fn redefine(&self, change: impl FnOnce(&mut IndexDefinition)) -> Result<(), SearchError> {
        redefine_all(vec![(self, change)], || ())
    }

    /// The definitions in the catalog.
    ///
    /// Errors: those of the store; a definition that cannot be read.
    pub fn definitions(store: &Store) -> Result<Vec<IndexDefinition>, SearchError> {
        let read = |(name, value)| {
            serde_json::from_value(value).map_err(|error| {
                SearchError::internal(format!("the definition of index {name} cannot be read: {error}"))
            })
        };
        catalog::items(store, "index")?.into_iter().map(read).collect()
    }

    /// Opens an index and indexes what its last persisted state does not contain. An index whose files cannot be read is made
    /// again from the documents. Those of a feed come with [`feed`](SearchIndex::feed).
    ///
    /// Errors: those of the store and of the medium.
    pub fn open(
        place: IndexPlace,
        definition: IndexDefinition,
        feed: Option<Arc<dyn DocumentFeed>>,
    ) -> Result<Arc<SearchIndex>, SearchError> {
        let analyzers = Arc::new(catalog::analyzers_of(&definition.settings)?);
        let mapping = Arc::new(Mapping::stored(&definition.mapping, definition.columns.clone())?);
        let snapshot = place.store.snapshot();
        let tree = |name: &String| -> Result<TreeId, SearchError> {
            snapshot.tree(name)?.ok_or_else(|| SearchError::internal(format!("tree {name} is missing")))
        };
        let [docs, ids, files] = tree_names(&definition.uuid);
        let trees = Trees { docs: tree(&docs)?, ids: tree(&ids)?, files: tree(&files)? };
        let (directory, persisted) = ShelfDirectory::open(
            (&place.store, trees.files),
            &place.shelves,
            &definition.uuid,
            Arc::clone(&place.memory),
        )?;
        let (index, unreadable) = library_index(&directory, &mapping)?;
        let persisted = if unreadable.is_some() { 0 } else { persisted };
        let schema = index.schema();
        let next = next_seq(&place.store, trees)?.max(persisted);
        let epoch = Arc::new(1);
        let alive = vec![Arc::downgrade(&epoch)];
        let published = {
            let reader = reader_of(&index)?;
            let searcher = reader.searcher();
            Published { reader, searcher, schema: schema.clone(), epoch, refreshed: persisted, alive }
        };
        let writer = WriterState {
            directory: directory.clone(),
            index,
            writer: None,
            applied: persisted,
            refreshed: persisted,
            persisted,
            bytes: 0,
            is_behind: persisted < next,
        };
        let index = Arc::new(SearchIndex {
            place,
            definition: RwLock::new(Arc::new(definition)),
            fields: RwLock::new(Fields { mapping: Arc::clone(&mapping), analyzers, schema, generation: 0 }),
            trees,
            sequencer: Mutex::new(Sequencer::new(next)),
            writer: Mutex::new(writer),
            published: RwLock::new(published),
            used: Arc::default(),
            zones: Arc::default(),
            last_commit: AtomicU64::new(0),
            replaced: Mutex::default(),
            counters: Counters::default(),
            contended: Mutex::new(()),
            deleted: AtomicBool::new(false),
            rebuilding: AtomicBool::new(false),
            directory,
            feeding: feed.map(|feed| feed::Feeding::new(feed, persisted)),
        });
        if let Some(why) = unreadable {
            tracing::error!(
                index = index.name(),
                why,
                "the files of a search index are damaged; it is made again from its documents"
            );
        }
        index.catch_up()?;
        Ok(index)
    }

    /// Indexes what is in the store and not in the persisted state.
    fn catch_up(&self) -> Result<(), SearchError> {
        // A crash may lie between a mapping's new field and the column for it.
        self.put_mapping(&json!({}))?;
        // A feed's documents come later: the start does not depend on them.
        if self.is_fed() { Ok(()) } else { self.refresh() }
    }

    /// Deletes the index: its definition, documents and files. Durable when it returns.
    ///
    /// Errors: those of the store, and it is being made again (503); the index is then still there.
    pub fn delete(&self) -> Result<(), SearchError> {
        let mut state = self.lock_writer()?;
        self.check_deleted()?;
        let definition = self.definition.read().clone();
        let mut transaction = self.place.store.begin();
        let tree = catalog::catalog(&mut transaction)?;
        transaction.delete(tree, &catalog::key(&definition.name))?;
        for name in tree_names(&definition.uuid) {
            transaction.drop_tree(&name)?;
        }
        let lsn = transaction.commit()?;
        self.mark_deleted();
        self.place.store.wait_visible(lsn)?;
        if let Err(error) = state.end_writer() {
            tracing::warn!(index = definition.name, %error, "a merge of a deleted index failed");
        }
        // What a failure leaves of the files is removed at the next start.
        if let Err(error) = self.place.shelves.remove_devices(&definition.uuid) {
            tracing::warn!(index = definition.name, %error, "files of a deleted index are left");
        }
        Ok(())
    }

    /// Deletes an index that cannot be opened. Durable when it returns.
    ///
    /// Errors: those of the store; the index is then still there.
    pub fn delete_closed(place: &IndexPlace, definition: &IndexDefinition) -> Result<(), SearchError> {
        let mut transaction = place.store.begin();
        let tree = catalog::catalog(&mut transaction)?;
        transaction.delete(tree, &catalog::key(&definition.name))?;
        for name in tree_names(&definition.uuid) {
            if transaction.tree(&name)?.is_some() {
                transaction.drop_tree(&name)?;
            }
        }
        let lsn = transaction.commit()?;
        place.store.wait_visible(lsn)?;
        // What a failure leaves of the files is removed at the next start.
        if let Err(error) = place.shelves.remove_devices(&definition.uuid) {
            tracing::warn!(index = definition.name, %error, "files of a deleted index are left");
        }
        Ok(())
    }

    /// Removes devices of the shelf that belong to no index: a crash lay between the two steps of a deletion.
    ///
    /// Errors: those of the shelf.
    pub fn remove_orphans(place: &IndexPlace, definitions: &[IndexDefinition]) -> Result<(), SearchError> {
        let is_owner = |owner: &str| definitions.iter().any(|definition| definition.uuid == owner);
        Ok(place.shelves.remove_orphans(is_owner)?)
    }

    /// What is stored about it.
    pub fn definition(&self) -> Arc<IndexDefinition> {
        Arc::clone(&self.definition.read())
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.definition.read().name.clone()
    }

    /// The shards into which its settings divide it.
    pub fn shards(&self) -> IndexShards {
        IndexShards::of(&self.definition.read().settings)
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
        self.directory.bytes()
    }

    /// Whether its documents lie elsewhere, and requests cannot write to it.
    pub fn is_fed(&self) -> bool {
        self.feeding.is_some()
    }

    /// Errors: requests cannot change it.
    pub(crate) fn check_writable(&self) -> Result<(), SearchError> {
        blocks::check_writable(self)
    }

    /// Takes a batch of its feed into the writer. Returns whether there was any; an index without a feed has none.
    ///
    /// Errors: those of the feed and of the library; the next call goes on where the index is.
    pub fn feed(&self) -> Result<bool, SearchError> {
        self.feeding.as_ref().map_or(Ok(false), |feeding| feeding.feed(self))
    }

    /// Removes the documents from the index that are below all that its feed still has.
    ///
    /// Errors: those of the feed and of the library.
    pub fn trim(&self) -> Result<(), SearchError> {
        self.feeding.as_ref().map_or(Ok(()), |feeding| feeding.trim(self))
    }

    /// The highest sequence number given out; `None` if none was.
    pub fn highest_seq(&self) -> Option<u64> {
        self.sequencer.lock().highest()
    }

    /// Damage of the library's files that a read has found, with its place.
    pub fn damage(&self) -> Option<Arc<str>> {
        self.directory.damage()
    }

    /// A setting (`index.refresh_interval`), if it was put.
    pub fn setting(&self, name: &str) -> Option<Value> {
        self.definition.read().settings.get(name).cloned()
    }

    /// The last operation on an id; `None` if there was none. Sees every operation that was answered.
    ///
    /// Errors: those of the store.
    pub fn id_state(&self, id: &str) -> Result<Option<IdState>, SearchError> {
        if self.feeding.is_some() {
            let state = |(_, seq)| IdState { seq, version: 1, deleted: false };
            return Ok(self.get(id)?.map(state));
        }
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
        if let Some(feeding) = &self.feeding {
            let Ok(seq) = id.parse() else { return Ok(None) };
            return Ok(feeding.stored(seq)?.map(|stored| (stored, seq)));
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
        Counters::add(&self.counters.found, 1);
        Ok(Some((rows::decode_document(&row)?, state.seq)))
    }

    /// The document of a hit, by its sequence number.
    ///
    /// Errors: those of the store; the row is gone, which does not happen while the view is held that found it.
    pub fn document_at(&self, seq: u64) -> Result<StoredDocument, SearchError> {
        if let Some(feeding) = &self.feeding {
            let id = seq.to_string();
            let shown = |source| StoredDocument { id, version: 1, routing: None, source };
            let read = || feeding.stored(seq);
            return Ok(match feed::guarded(read).unwrap_or_else(|why| Err(SearchError::internal(why))) {
                Ok(Some(stored)) => stored,
                Ok(None) => shown(Bytes::from_static(b"{}")),
                // One document must not take the other hits with it.
                Err(error) => shown(json!({"unreadable": error.reason}).to_string().into()),
            });
        }
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

    /// Errors: the index was deleted.
    pub(crate) fn check_deleted(&self) -> Result<(), SearchError> {
        match self.deleted.load(Ordering::Acquire) {
            true => Err(SearchError::no_index(&self.name())),
            false => Ok(()),
        }
    }

    /// Marks the index as deleted: operations under way fail.
    pub(crate) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }
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
