//! The searches of messages that users of the console have saved, in the store.
//!
//! ```text
//!   tree console.searches      number of the role, big endian      its searches as JSON, with their version
//! ```
//!
//! They may name patients, and lie where messages lie: encrypted if the store is. Each is of one role, and shown to nobody else. A row is
//! bounded, and there is one for each role at most; roles are numbered once, so no role finds those of another that was dropped.

use node::identity::RoleId;
use serde::{Deserialize, Serialize};
use store::{Store, StoreError};
use web_console::AdminError;
use web_console::admin::SavedSearch;

/// The tree.
const TREE: &str = "console.searches";

const VERSION: u8 = 1;

/// How often a change is tried that meets another one.
const TRIES: usize = 20;

#[derive(Debug, Serialize, Deserialize)]
struct SavedRow {
    version: u8,
    searches: Vec<SavedSearch>,
}

fn failed(error: StoreError) -> AdminError {
    AdminError::Unavailable(error.to_string())
}

fn decode(row: &[u8]) -> Result<Vec<SavedSearch>, AdminError> {
    let read = serde_json::from_slice::<SavedRow>(row).ok().filter(|row| row.version == VERSION);
    let row =
        read.ok_or_else(|| AdminError::Unavailable("saved searches are not of a version this release reads".into()))?;
    Ok(row.searches)
}

/// Those of a role, by name.
pub fn read(store: &Store, role: RoleId) -> Result<Vec<SavedSearch>, AdminError> {
    let snapshot = store.snapshot();
    let Some(tree) = snapshot.tree(TREE).map_err(failed)? else { return Ok(Vec::new()) };
    let row = snapshot.get(tree, &role.0.to_be_bytes()).map_err(failed)?;
    row.map_or(Ok(Vec::new()), |row| decode(&row))
}

/// Saves a search of a role under its name, or without a target forgets it; durable.
pub fn change(store: &Store, role: RoleId, name: &str, target: Option<&str>) -> Result<(), AdminError> {
    let is_plain = (1..=SavedSearch::NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if !is_plain || target.is_some_and(|target| target.len() > SavedSearch::TARGET_BYTES_MAX) {
        return Err(AdminError::Refused("a saved search has a short name, on one line, and a short query".to_owned()));
    }
    let mut tried = 0;
    loop {
        tried += 1;
        match try_change(store, role, name, target)? {
            Err(StoreError::Conflict) if tried < TRIES => {}
            done => return done.map_err(failed),
        }
    }
}

type Tried = Result<Result<(), StoreError>, AdminError>;

fn try_change(store: &Store, role: RoleId, name: &str, target: Option<&str>) -> Tried {
    let key = role.0.to_be_bytes();
    let mut transaction = store.begin();
    let tree = match transaction.tree(TREE).map_err(failed)? {
        Some(tree) => tree,
        None => match transaction.create_tree(TREE) {
            Ok(tree) => tree,
            Err(error) => return Ok(Err(error)),
        },
    };
    let row = transaction.get(tree, &key).map_err(failed)?;
    let mut searches = row.map_or(Ok(Vec::new()), |row| decode(&row))?;
    searches.retain(|one| one.name != name);
    if let Some(target) = target {
        if searches.len() >= SavedSearch::MOST {
            let text = format!("{} searches are saved already: forget one first", SavedSearch::MOST);
            return Err(AdminError::Refused(text));
        }
        searches.push(SavedSearch { name: name.to_owned(), target: target.to_owned() });
        searches.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let row = serde_json::to_vec(&SavedRow { version: VERSION, searches }).unwrap_or_default();
    if let Err(error) = transaction.put(tree, &key, &row) {
        return Ok(Err(error));
    }
    Ok(transaction.commit().map(drop))
}
