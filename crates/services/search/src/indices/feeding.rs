//! Indices with a feed: opened or made at the start of a node, and fed by one thread.
//!
//! ```text
//!   stored definition    same name, mapping and revision: goes on where it was
//!                        other: deleted, and made again from number 0, while searches see what is there so far
//!                        no feed of that name: deleted
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Indices, Registry, create, settings};
use crate::error::SearchError;
use crate::index::{DocumentFeed, IndexDefinition, IndexPlace, SearchIndex, now_millis};
use crate::mapping::Columns;

/// How long the thread waits where there is nothing new: what is new is searchable after that and the refresh interval.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it looks for documents that were removed.
const TRIM_AFTER: Duration = Duration::from_secs(60);

/// An index over documents that lie elsewhere.
#[derive(Clone, Debug)]
pub struct FedIndex {
    /// Its name.
    pub name: String,
    /// Its settings, flat.
    pub settings: BTreeMap<String, Value>,
    /// Its mapping.
    pub mapping: Value,
    /// What else decides how documents look: if it differs from that of the last start, the index is made again.
    pub revision: Value,
    /// Where the documents lie.
    pub feed: Arc<dyn DocumentFeed>,
}

impl FedIndex {
    fn signature(&self) -> Value {
        json!({"settings": self.settings, "mapping": self.mapping, "revision": self.revision})
    }

    fn definition(&self) -> IndexDefinition {
        let mut settings = self.settings.clone();
        settings.insert("index.number_of_shards".to_owned(), json!("1"));
        settings.insert("index.number_of_replicas".to_owned(), json!("0"));
        settings.insert("index.hidden".to_owned(), json!("true"));
        IndexDefinition {
            name: self.name.clone(),
            uuid: create::new_uuid(),
            created: now_millis() as i64,
            settings,
            mapping: self.mapping.clone(),
            columns: Columns::default(),
            aliases: BTreeMap::new(),
            closed: false,
            feed: Some(self.signature()),
        }
    }
}

/// Opens or makes the indices of `feeds`, and deletes those whose feed is gone. What fails is logged and left for the next start: the
/// node, which has more to do, goes on.
pub(super) fn open_all(place: &IndexPlace, stored: Vec<IndexDefinition>, feeds: &[FedIndex], registry: &mut Registry) {
    // What cannot be deleted is not made again over it.
    let mut left = BTreeSet::new();
    let mut delete = |definition: &IndexDefinition| {
        if let Err(error) = SearchIndex::delete_closed(place, definition) {
            tracing::error!(index = definition.name, %error, "a search index of the node's own cannot be deleted");
            left.insert(definition.name.clone());
        }
    };
    for definition in stored {
        let same =
            feeds.iter().find(|fed| fed.name == definition.name && definition.feed.as_ref() == Some(&fed.signature()));
        let name = definition.name.clone();
        let opened = same.map(|fed| SearchIndex::open(place.clone(), definition.clone(), Some(Arc::clone(&fed.feed))));
        match opened {
            Some(Ok(index)) => {
                // Requests of older releases could close it.
                if definition.closed
                    && let Err(error) = index.redefine(|definition| definition.closed = false)
                {
                    tracing::error!(index = name, %error, "a search index of the node's own stays closed");
                }
                registry.open.insert(name, index);
            }
            Some(Err(error)) => {
                tracing::error!(index = name, %error, "a search index cannot be opened; it is made again");
                delete(&definition);
            }
            None => {
                tracing::info!(index = name, "what this search index holds has changed; it is made again");
                delete(&definition);
            }
        }
    }
    for fed in feeds.iter().filter(|fed| !left.contains(&fed.name)) {
        let taken = registry.open.get(&fed.name).map(|index| index.is_fed());
        match taken.or_else(|| registry.red.contains_key(&fed.name).then_some(false)) {
            Some(true) => {}
            Some(false) => tracing::error!(
                index = fed.name,
                "an index of this name is in the way of the node's own: delete it, and start the node again"
            ),
            None => match SearchIndex::create(place.clone(), fed.definition(), Some(Arc::clone(&fed.feed))) {
                Ok(index) => drop(registry.open.insert(fed.name.clone(), index)),
                Err(error) => tracing::error!(
                    index = fed.name, %error,
                    "a search index cannot be made; the next start of the node tries again"
                ),
            },
        }
    }
}

/// Feeds the indices until `ends`, and refreshes them. Messages go first: the thread, and those of the library that it starts, get
/// processor time that others leave, and while there is none the index is behind.
pub(super) fn run(indices: &Indices, ends: &AtomicBool) {
    device::supervise::lower_priority();
    let mut trimmed: Option<Instant> = None;
    let mut refreshed: BTreeMap<String, Instant> = BTreeMap::new();
    let mut failures = 0;
    while !ends.load(Ordering::Acquire) {
        let trims = trimmed.is_none_or(|at| at.elapsed() >= TRIM_AFTER);
        let (mut pause, mut failed) = (Some(PAUSE), false);
        for index in indices.all().iter().filter(|index| index.is_fed()) {
            let work = || -> Result<bool, SearchError> {
                if trims {
                    index.trim()?;
                }
                let more = index.feed()?;
                let at = refreshed.entry(index.definition().uuid.clone()).or_insert_with(Instant::now);
                let is_due = settings::refresh_interval(index).is_some_and(|interval| at.elapsed() >= interval);
                if is_due && index.needs_refresh() {
                    index.refresh()?;
                    *at = Instant::now();
                }
                Ok(more)
            };
            // A panic of the library ends this batch, not the thread.
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(true)) => pause = None,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    failed = true;
                    let seconds = settings::retry_after(failures + 1).as_secs();
                    tracing::error!(
                        index = index.name(), %error,
                        "a search index cannot be fed; it is tried again in {seconds} s"
                    );
                }
                Err(_) => {
                    failed = true;
                    tracing::error!(index = index.name(), "feeding a search index failed; it is tried again");
                }
            }
        }
        if trims {
            trimmed = Some(Instant::now());
        }
        failures = if failed { failures + 1 } else { 0 };
        if failed {
            pause = Some(settings::retry_after(failures));
        }
        if let Some(pause) = pause {
            std::thread::park_timeout(pause);
        }
    }
}
