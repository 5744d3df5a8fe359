//! The catalog: what is stored about the indices of a node, in one tree of its store.
//!
//! ```text
//!   tree search    index/<name>   an `IndexDefinition`, as JSON      index-template/<name>   cluster/settings ...
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::{Value, json};
use store::{Direction, Store, StoreError, Transaction, TreeId};

use super::IndexDefinition;
use crate::analysis::Analyzers;
use crate::error::SearchError;
use crate::mapping::{FieldKind, Mapping};

/// The tree of definitions.
const CATALOG: &str = "search";

/// Longest item: the definition of an index is in memory, and is written again with each change of it.
const ITEM_BYTES_MAX: usize = 32 << 20;

/// An item as it is stored. Errors: it is longer than one may be.
pub(super) fn written(value: &Value) -> Result<String, SearchError> {
    let written = value.to_string();
    match written.len() > ITEM_BYTES_MAX {
        true => Err(SearchError::argument(format!(
            "mapping, settings and aliases of an index, or a template, have {} bytes together, and at most {ITEM_BYTES_MAX}",
            written.len()
        ))),
        false => Ok(written),
    }
}

/// Key of an index's definition.
pub(super) fn key(name: &str) -> Vec<u8> {
    format!("index/{name}").into_bytes()
}

/// The catalog's tree, created if it is not there.
pub(super) fn catalog(transaction: &mut Transaction) -> Result<TreeId, StoreError> {
    match transaction.tree(CATALOG)? {
        Some(tree) => Ok(tree),
        None => transaction.create_tree(CATALOG),
    }
}

/// Stores a definition. Durable when it returns.
pub(super) fn save(store: &Store, definition: &IndexDefinition) -> Result<(), SearchError> {
    put_item(store, "index", &definition.name, Some(&json!(definition)))
}

/// Stores several definitions, all or none. Durable when it returns.
pub(super) fn save_all<'d>(
    store: &Store,
    definitions: impl Iterator<Item = &'d IndexDefinition>,
) -> Result<(), SearchError> {
    let mut transaction = store.begin();
    let tree = catalog(&mut transaction)?;
    for definition in definitions {
        transaction.put(tree, &key(&definition.name), written(&json!(definition))?.as_bytes())?;
    }
    let lsn = transaction.commit()?;
    Ok(store.wait_visible(lsn)?)
}

/// Stores an item of a kind, or removes it. Durable when it returns.
///
/// Errors: it is too long; those of the store.
pub(crate) fn put_item(store: &Store, kind: &str, name: &str, value: Option<&Value>) -> Result<(), SearchError> {
    let key = format!("{kind}/{name}").into_bytes();
    let mut transaction = store.begin();
    let tree = catalog(&mut transaction)?;
    match value {
        Some(value) => transaction.put(tree, &key, written(value)?.as_bytes())?,
        None => transaction.delete(tree, &key)?,
    }
    let lsn = transaction.commit()?;
    Ok(store.wait_visible(lsn)?)
}

/// The items of a kind in the catalog, by name.
///
/// Errors: those of the store; an item that is no JSON.
pub(crate) fn items(store: &Store, kind: &str) -> Result<BTreeMap<String, Value>, SearchError> {
    let snapshot = store.snapshot();
    let Some(tree) = snapshot.tree(CATALOG)? else { return Ok(BTreeMap::new()) };
    let prefix = format!("{kind}/").into_bytes();
    let mut cursor = snapshot.scan(tree, Bound::Included(&prefix), Bound::Unbounded, Direction::Forward);
    let mut found = BTreeMap::new();
    while let Some((key, value)) = cursor.next()? {
        let Some(name) = key.strip_prefix(&prefix[..]) else { break };
        let name = String::from_utf8_lossy(name).into_owned();
        let value = serde_json::from_slice(&value).map_err(|error| {
            SearchError::internal(format!("{kind} {name} in the catalog of search cannot be read: {error}"))
        })?;
        found.insert(name, value);
    }
    Ok(found)
}

/// The analyzers of flat settings.
pub(super) fn analyzers_of(settings: &BTreeMap<String, Value>) -> Result<Analyzers, SearchError> {
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

/// Errors: a field names an analyzer or a normalizer that is not there.
pub(super) fn check_analyzers(mapping: &Mapping, analyzers: &Analyzers) -> Result<(), SearchError> {
    for field in mapping.fields() {
        match (&field.analyzer, field.kind) {
            (Some(name), FieldKind::Text) => drop(analyzers.get(name)?),
            (Some(name), _) => drop(analyzers.normalizer(name)?),
            (None, _) => {}
        }
        if let Some(name) = &field.search_analyzer {
            analyzers.get(name)?;
        }
    }
    Ok(())
}
