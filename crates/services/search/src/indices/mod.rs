//! [`Indices`]: all indices of a node, by name and alias, with their templates and settings, and the thread that keeps them.
//!
//! ```text
//!   request --name, alias, pattern--> resolve --> SearchIndex
//!   first document of an index ------> create, by the templates that match its name
//!   upkeep (one thread) -------------> refresh each second, persist each half minute, make again what is damaged
//! ```
//!
//! Invariants: a name is an index or an alias, never both; an index that cannot be opened is listed and red, and the others work.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Shelf;
use parking_lot::{Condvar, Mutex, RwLock};
use serde_json::{Value, json};
use store::Store;

use crate::directory::{FileMemory, FileShelves};
use crate::error::SearchError;
use crate::index::{IndexDefinition, IndexPlace, SearchIndex};
use crate::memory::SearchMemory;

mod create;
mod feeding;
mod resolve;
mod rewriting;
#[cfg(test)]
mod robust_tests;
mod settings;
mod templates;
#[cfg(test)]
mod tests;
mod upkeep;

pub use create::{AliasChange, NewIndex};
pub use feeding::FedIndex;
pub use resolve::{Expand, ResolveOptions, Resolved};
pub use rewriting::rewrite_files;
pub use settings::{duration, flat_settings, flat_values};
pub use templates::{TemplateKind, Templates};
pub use upkeep::Upkeep;

/// Settings by their full names.
pub type FlatSettings = BTreeMap<String, Value>;

/// Where indices lie and what they may use.
#[derive(Clone)]
pub struct IndicesOptions {
    /// The node's store.
    pub store: Store,
    /// Where the library's files lie.
    pub shelf: Arc<dyn Shelf>,
    /// Where large files lie that merges made, if not there too: those larger than the memory of a writer.
    pub capacity: Option<Arc<dyn Shelf>>,
    /// Memory of open files, in bytes, and half as much again of what searches find.
    pub file_bytes: u64,
    /// Memory of the writer of an index, in bytes.
    pub writer_bytes: usize,
    /// Most indices.
    pub indices_max: usize,
    /// Indices over documents that lie elsewhere in the node.
    pub feeds: Vec<FedIndex>,
    /// Names of indices with a feed, whether or not there is one now: requests cannot take them.
    pub reserved: Vec<String>,
}

impl std::fmt::Debug for IndicesOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndicesOptions").field("shelf", &self.shelf).finish_non_exhaustive()
    }
}

/// An index that could not be opened.
#[derive(Clone, Debug)]
pub struct RedIndex {
    /// What is stored about it.
    pub definition: IndexDefinition,
    /// Why it cannot be opened.
    pub why: SearchError,
}

/// Indices by name, and those that could not be opened.
#[derive(Default)]
struct Registry {
    open: BTreeMap<String, Arc<SearchIndex>>,
    red: BTreeMap<String, RedIndex>,
}

/// See the head comment of this file.
pub struct Indices {
    place: IndexPlace,
    indices_max: usize,
    reserved: Vec<String>,
    registry: RwLock<Registry>,
    /// Memory of what all searches find.
    found: Arc<SearchMemory>,
    /// Held while names change.
    naming: Mutex<()>,
    /// Its templates.
    pub templates: Templates,
    /// Settings of the cluster that a restart forgets.
    transient: Mutex<BTreeMap<String, Value>>,
    /// Counts the rounds of the upkeep: who waits for a refresh waits for one of them.
    rounds: Mutex<u64>,
    round: Condvar,
    /// Names the cluster to clients.
    uuid: String,
}

impl std::fmt::Debug for Indices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indices").field("open", &self.registry.read().open.len()).finish_non_exhaustive()
    }
}

/// Of the memory of open files, what all searches have.
const FOUND_OF: u64 = 2;

/// The least memory of what all searches find: without some, none could answer.
const FOUND_BYTES_MIN: u64 = 32 << 20;

/// Bytes of the settings of the cluster, as they are stored: searches read them.
const CLUSTER_BYTES_MAX: usize = 64 << 10;

/// The item of the catalog with the cluster's settings.
const CLUSTER: &str = "cluster";

impl Indices {
    /// Opens all indices of a store. An index that cannot be opened is red; the others work.
    ///
    /// Errors: the catalog cannot be read; those of the shelf.
    pub fn open(options: IndicesOptions) -> Result<Arc<Indices>, SearchError> {
        let IndicesOptions { store, shelf, capacity, file_bytes, writer_bytes, indices_max, feeds, reserved } = options;
        let capacity = capacity.map(|shelf| (shelf, writer_bytes));
        let shelves = FileShelves { fast: shelf, capacity };
        let memory = Arc::new(FileMemory::new(file_bytes));
        let place = IndexPlace { store, shelves, memory, writer_bytes, large_turn: Arc::default() };
        let definitions = SearchIndex::definitions(&place.store)?;
        if let Err(error) = SearchIndex::remove_orphans(&place, &definitions) {
            tracing::warn!(%error, "files of deleted search indices are left");
        }
        let mut registry = Registry::default();
        let (fed, definitions): (Vec<_>, Vec<_>) =
            definitions.into_iter().partition(|definition| definition.feed.is_some());
        for definition in definitions {
            let name = definition.name.clone();
            match SearchIndex::open(place.clone(), definition.clone(), None) {
                Ok(index) => drop(registry.open.insert(name, index)),
                Err(why) => {
                    tracing::error!(index = name, error = %why, "a search index cannot be opened; it is red");
                    registry.red.insert(name, RedIndex { definition, why });
                }
            }
        }
        feeding::open_all(&place, fed, &feeds, &mut registry);
        let uuid = match crate::index::catalog_items(&place.store, CLUSTER)?.remove("uuid") {
            Some(Value::String(uuid)) => uuid,
            _ => {
                let uuid = create::new_uuid();
                // A full medium must not keep the node from starting.
                if let Err(error) = crate::index::put_catalog_item(&place.store, CLUSTER, "uuid", Some(&json!(uuid))) {
                    tracing::warn!(%error, "the cluster of search gets another id at the next start");
                }
                uuid
            }
        };
        Ok(Arc::new(Indices {
            templates: Templates::new(place.store.clone()),
            place,
            indices_max,
            reserved,
            registry: RwLock::new(registry),
            found: SearchMemory::new((file_bytes / FOUND_OF).max(FOUND_BYTES_MIN)),
            naming: Mutex::new(()),
            transient: Mutex::default(),
            rounds: Mutex::new(0),
            round: Condvar::new(),
            uuid,
        }))
    }

    /// Memory of what all searches find, until it is written as the bytes of a response.
    pub fn found_memory(&self) -> &Arc<SearchMemory> {
        &self.found
    }

    /// Names the cluster to clients; stays the same.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The index of this name.
    pub fn get(&self, name: &str) -> Option<Arc<SearchIndex>> {
        self.registry.read().open.get(name).cloned()
    }

    /// All indices that are open, by name.
    pub fn all(&self) -> Vec<Arc<SearchIndex>> {
        self.registry.read().open.values().cloned().collect()
    }

    /// Whether a write of a document takes only instructions: journal and pages are on persistent memory, and there is room.
    pub fn is_inline(&self) -> bool {
        let store = &self.place.store;
        store.is_inline() && store.has_inline_pages() && store.waits_for_room().is_none()
    }

    /// The indices that could not be opened.
    pub fn red(&self) -> Vec<RedIndex> {
        self.registry.read().red.values().cloned().collect()
    }

    /// Deletes an index, also one that could not be opened. Durable when it returns.
    ///
    /// Errors: there is none of this name; those of the store.
    pub fn delete(&self, name: &str) -> Result<(), SearchError> {
        let _naming = self.naming.lock();
        let index = self.get(name);
        match index {
            Some(index) => {
                crate::index::check_deletable(&index)?;
                index.delete()?;
                self.registry.write().open.remove(name);
            }
            None => {
                let red = self.registry.read().red.get(name).cloned();
                let red = red.ok_or_else(|| SearchError::no_index(name))?;
                SearchIndex::delete_closed(&self.place, &red.definition)?;
                self.registry.write().red.remove(name);
            }
        }
        Ok(())
    }

    /// Waits until every operation of an index below `seq` is searchable: until the upkeep's next refresh, and not longer than a
    /// moment; then, or where the index has no refresh interval, it refreshes itself.
    ///
    /// Errors: those of the refresh.
    pub fn wait_searchable(&self, index: &SearchIndex, seq: u64) -> Result<(), SearchError> {
        let until = std::time::Instant::now() + upkeep::WAIT_MAX;
        loop {
            let mut rounds = self.rounds.lock();
            if index.searchable_below() >= seq {
                return Ok(());
            }
            if *rounds == 0 || settings::refresh_interval(index).is_none() {
                drop(rounds);
                return index.refresh();
            }
            // Bounded: the interval may be long, and the upkeep may end meanwhile.
            if self.round.wait_until(&mut rounds, until).timed_out() {
                drop(rounds);
                return index.refresh();
            }
        }
    }

    /// Settings of the cluster: those that a restart keeps, and those that it forgets.
    ///
    /// Errors: those of the store.
    pub fn cluster_settings(&self) -> Result<(FlatSettings, FlatSettings), SearchError> {
        let kept = crate::index::catalog_items(&self.place.store, CLUSTER)?.remove("settings");
        let kept = kept.and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default();
        Ok((kept, self.transient.lock().clone()))
    }

    /// Changes settings of the cluster; null removes one. Durable when it returns.
    ///
    /// Errors: a setting that is not known, too many of them, those of the store.
    pub fn put_cluster_settings(&self, persistent: &Value, transient: &Value) -> Result<(), SearchError> {
        let (mut kept, _) = self.cluster_settings()?;
        for (name, value) in settings::flat_values(persistent)?.into_iter() {
            settings::check_cluster(&name)?;
            settings::set(&mut kept, name, value);
        }
        let changes = settings::flat_values(transient)?;
        for name in changes.keys() {
            settings::check_cluster(name)?;
        }
        let mut transient = self.transient.lock();
        let mut forgotten = transient.clone();
        for (name, value) in changes {
            settings::set(&mut forgotten, name, value);
        }
        if json!([kept, forgotten]).to_string().len() > CLUSTER_BYTES_MAX {
            return Err(SearchError::argument(format!(
                "the settings of the cluster would have more than {CLUSTER_BYTES_MAX} bytes"
            )));
        }
        crate::index::put_catalog_item(&self.place.store, CLUSTER, "settings", Some(&json!(kept)))?;
        *transient = forgotten;
        Ok(())
    }

    /// A setting of the cluster.
    pub fn cluster_setting(&self, name: &str) -> Option<Value> {
        let transient = self.transient.lock().get(name).cloned();
        transient.or_else(|| self.cluster_settings().ok()?.0.remove(name))
    }

    /// Whether wildcards may delete.
    pub fn destructive_requires_name(&self) -> bool {
        let value = self.cluster_setting("action.destructive_requires_name");
        // Elasticsearch's default since 8.0.
        value.is_none_or(|value| value.as_str() != Some("false") && value != Value::Bool(false))
    }
}
