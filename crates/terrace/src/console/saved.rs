//! The searches of messages that users of the console have saved, in the store.
//!
//! ```text
//!   tree console.searches      number of the role, big endian      its searches as JSON, with their version
//! ```
//!
//! They may name patients, and lie where messages lie: encrypted if the store is. Each is of one role, and shown to nobody else. A row is
//! bounded, and there is one for each role at most; roles are numbered once, so no role finds those of another that was dropped.
//!
//! A row goes with its role: at the next change of roles, and at the latest when a node with a console starts. Where the roles cannot be
//! read, nothing goes.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use node::identity::{Guard, RoleId};
use serde::{Deserialize, Serialize};
use store::{Direction, Store, StoreError};
use web_console::AdminError;
use web_console::admin::SavedSearch;

/// The tree.
const TREE: &str = "console.searches";

const VERSION: u8 = 1;

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

/// Whether a search can be saved, or forgotten: asked before that is recorded. Errors: why not.
pub fn check(store: &Store, role: RoleId, name: &str, target: Option<&str>) -> Result<(), AdminError> {
    let is_plain = (1..=SavedSearch::NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if !is_plain || target.is_some_and(|target| target.len() > SavedSearch::TARGET_BYTES_MAX) {
        return Err(AdminError::Refused("a saved search has a short name, on one line, and a short query".to_owned()));
    }
    let searches = read(store, role)?;
    if target.is_some() { room(&searches, name) } else { Ok(()) }
}

/// Whether there is room for a search beside those of other names.
fn room(searches: &[SavedSearch], name: &str) -> Result<(), AdminError> {
    if searches.iter().filter(|one| one.name != name).count() < SavedSearch::MOST {
        return Ok(());
    }
    Err(AdminError::Refused(format!("{} searches are saved already: forget one first", SavedSearch::MOST)))
}

/// Saves a search of a role under its name, or without a target forgets it; durable.
pub fn change(store: &Store, role: RoleId, name: &str, target: Option<&str>) -> Result<(), AdminError> {
    check(store, role, name, target)?;
    let changed = store.transact(|transaction| {
        let key = role.0.to_be_bytes();
        let tree = match transaction.tree(TREE)? {
            Some(tree) => tree,
            None => transaction.create_tree(TREE)?,
        };
        let row = transaction.get(tree, &key)?;
        let mut searches = row.map_or(Ok(Vec::new()), |row| decode(&row)).map_err(Unchanged)?;
        searches.retain(|one| one.name != name);
        if let Some(target) = target {
            room(&searches, name).map_err(Unchanged)?;
            searches.push(SavedSearch { name: name.to_owned(), target: target.to_owned() });
            searches.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let row = serde_json::to_vec(&SavedRow { version: VERSION, searches }).unwrap_or_default();
        transaction.put(tree, &key, &row)?;
        Ok(())
    });
    changed.map_err(|Unchanged(error)| error)
}

/// Why a row stays as it was.
struct Unchanged(AdminError);

impl From<StoreError> for Unchanged {
    fn from(error: StoreError) -> Unchanged {
        Unchanged(failed(error))
    }
}

/// Forgets the searches of roles that are not there any more, now and at each change of roles; ends with its runtime.
pub async fn follow_roles(store: Store, guard: Arc<Guard>) {
    let mut changed = guard.changed();
    loop {
        changed.mark_unchanged();
        // Where they cannot be read, all roles seem to be gone.
        if guard.unreadable().is_none() {
            let (store, guard) = (store.clone(), Arc::clone(&guard));
            let work = move || forget_dropped(&store, || guard.view().directory().roles().keys().copied().collect());
            match tokio::task::spawn_blocking(work).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(rows)) => tracing::info!(rows, "saved searches of dropped roles are forgotten"),
                Ok(Err(error)) => tracing::warn!(%error, "saved searches of dropped roles are not forgotten yet"),
            }
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Deletes the rows of roles that are not among those that `roles` tells after the rows were seen; how many.
fn forget_dropped(store: &Store, roles: impl FnOnce() -> BTreeSet<RoleId>) -> Result<usize, StoreError> {
    let snapshot = store.snapshot();
    let Some(tree) = snapshot.tree(TREE)? else { return Ok(0) };
    let mut keys = Vec::new();
    let mut rows = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((key, _)) = rows.next_key()? {
        keys.push(key);
    }
    // A role that is made after this has no row among them.
    let roles = roles();
    let is_gone = |key: &[u8]| {
        let number: Option<[u8; 4]> = key.try_into().ok();
        number
            .map(|number| RoleId(u32::from_be_bytes(number)))
            .is_some_and(|role| role != RoleId::LOCAL && !roles.contains(&role))
    };
    keys.retain(|key| is_gone(key));
    if keys.is_empty() {
        return Ok(0);
    }
    let mut transaction = store.begin();
    for key in &keys {
        transaction.delete(tree, key)?;
    }
    transaction.commit()?;
    Ok(keys.len())
}

#[cfg(test)]
mod tests {
    use device::{MemoryShelf, Shelf};
    use store::{Options, Places};

    use super::*;

    fn store() -> Store {
        let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
        let options = Options { cache_bytes: 8 << 20, background: false, ..Options::default() };
        Store::open(places, options).expect("it opens").0
    }

    #[test]
    fn searches_go_with_their_role_and_others_stay() {
        let (store, roles) = (store(), [RoleId::LOCAL, RoleId(100), RoleId(101)]);
        assert_eq!(forget_dropped(&store, BTreeSet::new).expect("there is none"), 0);
        for role in roles {
            change(&store, role, "failed", Some("/messages?state=failed")).expect("it is saved");
        }
        assert_eq!(forget_dropped(&store, || roles.into()).expect("it is read"), 0);
        assert_eq!(forget_dropped(&store, || [RoleId(101)].into()).expect("it is read"), 1);
        let left = roles.map(|role| read(&store, role).expect("it is read").len());
        assert_eq!(left, [1, 0, 1]);
    }

    #[test]
    fn what_cannot_be_saved_is_refused_before_it_is_recorded() {
        let (store, role) = (store(), RoleId(100));
        for number in 0..SavedSearch::MOST {
            change(&store, role, &number.to_string(), Some("/messages")).expect("there is room");
        }
        let refused = |name: &str, target| check(&store, role, name, target).is_err();
        assert!(refused("one more", Some("/messages")) && refused("", None) && refused("a\nb", Some("/messages")));
        assert!(!refused("7", Some("/messages?state=failed")) && !refused("7", None));
    }
}
