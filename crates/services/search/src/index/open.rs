//! Creating, opening and deleting an index: its definition, its trees, its devices.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use store::{Direction, Store, StoreError, Transaction, TreeId};
use tantivy::Index;

use super::rows::{self, DOCUMENT, TOMBSTONE};
use super::searchable::{new_index, reader_of};
use super::{
    Counters, Fields, IndexDefinition, IndexPlace, Published, SearchIndex, Sequencer, Trees, WriterState, tree_names,
};
use crate::analysis::Analyzers;
use crate::directory::ShelfDirectory;
use crate::error::SearchError;
use crate::mapping::Mapping;

/// The tree of definitions.
pub const CATALOG: &str = "search";

/// Key of an index's definition.
fn key(name: &str) -> Vec<u8> {
    format!("index/{name}").into_bytes()
}

/// The catalog's tree, created if it is not there.
fn catalog(transaction: &mut Transaction) -> Result<TreeId, StoreError> {
    match transaction.tree(CATALOG)? {
        Some(tree) => Ok(tree),
        None => transaction.create_tree(CATALOG),
    }
}

/// Stores a definition. Durable when it returns.
pub(super) fn save(store: &Store, definition: &IndexDefinition) -> Result<(), SearchError> {
    put(store, &key(&definition.name), &json!(definition))
}

fn put(store: &Store, key: &[u8], value: &Value) -> Result<(), SearchError> {
    let mut transaction = store.begin();
    let tree = catalog(&mut transaction)?;
    transaction.put(tree, key, value.to_string().as_bytes())?;
    let lsn = transaction.commit()?;
    Ok(store.wait_visible(lsn)?)
}

/// Stores something else of the catalog, such as a template. Durable when it returns.
///
/// Errors: those of the store.
pub fn put_item(store: &Store, kind: &str, name: &str, value: Option<&Value>) -> Result<(), SearchError> {
    let key = format!("{kind}/{name}").into_bytes();
    match value {
        Some(value) => put(store, &key, value),
        None => {
            let mut transaction = store.begin();
            let tree = catalog(&mut transaction)?;
            transaction.delete(tree, &key)?;
            let lsn = transaction.commit()?;
            Ok(store.wait_visible(lsn)?)
        }
    }
}

/// The items of a kind in the catalog, by name.
///
/// Errors: those of the store; an item that is no JSON.
pub fn items(store: &Store, kind: &str) -> Result<BTreeMap<String, Value>, SearchError> {
    let snapshot = store.snapshot();
    let Some(tree) = snapshot.tree(CATALOG)? else { return Ok(BTreeMap::new()) };
    let prefix = format!("{kind}/").into_bytes();
    let mut cursor = snapshot.scan(tree, Bound::Included(&prefix), Bound::Unbounded, Direction::Forward);
    let mut found = BTreeMap::new();
    while let Some((key, value)) = cursor.next()? {
        let Some(name) = key.strip_prefix(&prefix[..]) else { break };
        let name = String::from_utf8_lossy(name).into_owned();
        let value = serde_json::from_slice(&value)
            .map_err(|error| SearchError::internal(format!("{kind} {name} in the catalog of search cannot be read: {error}")))?;
        found.insert(name, value);
    }
    Ok(found)
}

/// The analyzers of flat settings.
pub fn analyzers_of(settings: &BTreeMap<String, Value>) -> Result<Analyzers, SearchError> {
    let mut analysis = json!({});
    for (name, value) in settings {
        if let Some(path) = name.strip_prefix("index.analysis.") {
            let mut at = &mut analysis;
            for part in path.split('.') {
                if !at.is_object() {
                    *at = json!({});
                }
                at = &mut at[part];
            }
            *at = value.clone();
        }
    }
    Analyzers::of_settings(&analysis)
}

impl SearchIndex {
    /// Creates an index. Durable when it returns.
    ///
    /// Errors: a mapping or an analyzer that cannot be; those of the store and the medium, after which nothing is left.
    pub fn create(place: IndexPlace, definition: IndexDefinition) -> Result<Arc<SearchIndex>, SearchError> {
        let analyzers = analyzers_of(&definition.settings)?;
        let mapping = Mapping::stored(&definition.mapping, definition.columns.clone())?;
        for field in mapping.fields() {
            if let (Some(name), crate::mapping::FieldKind::Text) = (&field.analyzer, field.kind) {
                analyzers.get(name).map_err(|error| SearchError::mapping(error.reason))?;
            } else if let Some(name) = &field.analyzer {
                analyzers.normalizer(name).map_err(|error| SearchError::mapping(error.reason))?;
            }
        }
        let definition =
            IndexDefinition { mapping: mapping.to_json(), columns: mapping.columns().clone(), ..definition };
        let mut transaction = place.store.begin();
        for name in tree_names(&definition.uuid) {
            transaction.create_tree(&name)?;
        }
        let tree = catalog(&mut transaction)?;
        transaction.put(tree, &key(&definition.name), json!(definition).to_string().as_bytes())?;
        let lsn = transaction.commit()?;
        place.store.wait_visible(lsn)?;
        SearchIndex::open(place, definition)
    }

    /// The definitions in the catalog.
    ///
    /// Errors: those of the store; a definition that cannot be read.
    pub fn definitions(store: &Store) -> Result<Vec<IndexDefinition>, SearchError> {
        let read = |(name, value)| {
            serde_json::from_value(value)
                .map_err(|error| SearchError::internal(format!("the definition of index {name} cannot be read: {error}")))
        };
        items(store, "index")?.into_iter().map(read).collect()
    }

    /// Opens an index and indexes what its last persisted state does not contain. An index whose files cannot be read is made
    /// again from the documents.
    ///
    /// Errors: those of the store and of the medium.
    pub fn open(place: IndexPlace, definition: IndexDefinition) -> Result<Arc<SearchIndex>, SearchError> {
        let analyzers = Arc::new(analyzers_of(&definition.settings)?);
        let mapping = Arc::new(Mapping::stored(&definition.mapping, definition.columns.clone())?);
        let snapshot = place.store.snapshot();
        let tree = |name: &String| -> Result<TreeId, SearchError> {
            snapshot.tree(name)?.ok_or_else(|| SearchError::internal(format!("tree {name} is missing")))
        };
        let [docs, ids, files] = tree_names(&definition.uuid);
        let trees = Trees { docs: tree(&docs)?, ids: tree(&ids)?, files: tree(&files)? };
        let (directory, persisted) = ShelfDirectory::open(
            (&place.store, trees.files),
            Arc::clone(&place.shelf),
            &definition.uuid,
            Arc::clone(&place.memory),
        )?;
        let mut unreadable = None;
        let index = match directory.is_empty() {
            true => new_index(directory.clone(), &mapping)?,
            false => match Index::open(directory.clone()).and_then(|index| index.reader().map(|_| index)) {
                Ok(index) => index,
                Err(error) => {
                    unreadable = Some(error.to_string());
                    directory.clear();
                    new_index(directory.clone(), &mapping)?
                }
            },
        };
        let persisted = if unreadable.is_some() { 0 } else { persisted };
        let schema = index.schema();
        let next = next_seq(&place.store, trees)?.max(persisted);
        let published = Published {
            reader: reader_of(&index)?,
            schema: schema.clone(),
            epoch: Arc::new(1),
            refreshed: persisted,
            alive: Vec::new(),
        };
        let writer = WriterState {
            directory,
            index,
            writer: None,
            applied: persisted,
            refreshed: persisted,
            persisted,
            bytes: 0,
        };
        let index = Arc::new(SearchIndex {
            place,
            definition: RwLock::new(definition),
            fields: RwLock::new(Fields { mapping: Arc::clone(&mapping), analyzers, schema, generation: 0 }),
            trees,
            sequencer: Mutex::new(Sequencer::new(next)),
            writer: Mutex::new(writer),
            published: RwLock::new(published),
            last_commit: AtomicU64::new(0),
            replaced: Mutex::default(),
            counters: Counters::default(),
            deleted: AtomicBool::new(false),
        });
        if let Some(why) = unreadable {
            tracing::error!(index = index.name(), why, "the files of a search index are damaged; it is made again from its documents");
        }
        index.catch_up(next)?;
        Ok(index)
    }

    /// Indexes what is in the store and not in the persisted state.
    fn catch_up(&self, next: u64) -> Result<(), SearchError> {
        // A crash may lie between a mapping's new field and the column for it.
        self.put_mapping(&json!({}))?;
        let mut state = self.writer.lock();
        let from = state.persisted;
        if state.applied < next {
            self.replay(&mut state, from, next)?;
        }
        state.applied = next;
        drop(state);
        self.refresh()
    }

    /// Changes what is stored about it besides mapping and columns. Durable when it returns.
    ///
    /// Errors: those of the store.
    pub fn redefine(&self, change: impl FnOnce(&mut IndexDefinition)) -> Result<(), SearchError> {
        // The writer's lock: a mapping update saves the definition too.
        let _writer = self.writer.lock();
        let mut definition = self.definition.read().clone();
        change(&mut definition);
        save(&self.place.store, &definition)?;
        *self.definition.write() = definition;
        Ok(())
    }

    /// Deletes the index: its definition, documents and files. Durable when it returns.
    ///
    /// Errors: those of the store; the index is then still there.
    pub fn delete(&self) -> Result<(), SearchError> {
        let mut state = self.writer.lock();
        let definition = self.definition.read().clone();
        let mut transaction = self.place.store.begin();
        let tree = catalog(&mut transaction)?;
        transaction.delete(tree, &key(&definition.name))?;
        for name in tree_names(&definition.uuid) {
            transaction.drop_tree(&name)?;
        }
        let lsn = transaction.commit()?;
        self.mark_deleted();
        self.place.store.wait_visible(lsn)?;
        state.writer = None;
        // What a failure leaves of the files is removed at the next start.
        if let Err(error) = ShelfDirectory::remove_devices(&*self.place.shelf, &definition.uuid) {
            tracing::warn!(index = definition.name, %error, "files of a deleted index are left");
        }
        Ok(())
    }

    /// Removes devices of the shelf that belong to no index: a crash lay between the two steps of a deletion.
    ///
    /// Errors: those of the shelf.
    pub fn remove_orphans(place: &IndexPlace, definitions: &[IndexDefinition]) -> Result<(), SearchError> {
        for name in place.shelf.list().map_err(StoreError::from)? {
            let owner = name.rsplit_once('-').map(|(uuid, _)| uuid);
            if !definitions.iter().any(|definition| Some(definition.uuid.as_str()) == owner) {
                place.shelf.remove(&name).map_err(StoreError::from)?;
            }
        }
        Ok(())
    }
}

/// The number after the last operation in the store.
fn next_seq(store: &Store, trees: Trees) -> Result<u64, SearchError> {
    let snapshot = store.snapshot();
    let mut next = 0;
    for kind in [DOCUMENT, TOMBSTONE] {
        let (from, to) = (rows::key(kind, 0), rows::key(kind, u64::MAX));
        let mut cursor = snapshot.scan(trees.docs, Bound::Included(&from), Bound::Included(&to), Direction::Backward);
        if let Some((key, _)) = cursor.next_key()? {
            next = next.max(rows::seq_of(kind, &key).map_or(0, |seq| seq + 1));
        }
    }
    Ok(next)
}
