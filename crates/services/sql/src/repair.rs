//! What a repair gives up of SQL tables where nothing brings it back.
//!
//! ```text
//!   sql.rows.N             the rows of a range of keys, or one row                       the hole is closed over them
//!   columns.N.segments     the segments that lie there, whole: of one with a column lost, or whose deletions are not known,
//!   columns.N.chunks       nobody can say what its rows are
//!   columns.N.deleted
//!   sql.catalog            nothing: without its definition a table's rows mean nothing
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use bytes::Bytes;
use store::{Direction, Loss, Part, Snapshot, Store, StoreError, TreeId};

use crate::column::segment_trees;
use crate::table::catalog::{CATALOG_TREE, names_by_storage};

/// Keys that one transaction removes.
const BATCH: usize = 2_000;

/// Gives up what is lost of tables, and says what it is.
///
/// # Errors
/// [`StoreError::Corrupt`] where definitions of tables are lost; those of the store.
pub fn give_up(store: &Store, losses: &[Loss]) -> Result<Vec<String>, StoreError> {
    if let Some(loss) = losses.iter().find(|loss| loss.name == CATALOG_TREE && is_lost(store, loss)) {
        let text = format!(
            "{loss}: definitions of SQL tables are lost, and are not given up; repair with --backup, or restore"
        );
        return Err(StoreError::Corrupt(text.into()));
    }
    let snapshot = store.snapshot();
    let names = names_by_storage(&snapshot);
    let mut given_up = Vec::new();
    let mut segments: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for loss in losses.iter().filter(|loss| is_lost(store, loss)) {
        if let Some(storage) = number(&loss.name, "sql.rows.", "") {
            given_up.push(format!("rows of table {}: {loss}", named(&names, storage)));
            if let Part::Value(key) = &loss.part {
                remove(store, &[(loss.tree, key.clone())])?;
            }
        }
        for kind in [".segments", ".chunks", ".deleted"] {
            if let Some(storage) = number(&loss.name, "columns.", kind) {
                segments.entry(storage).or_default().extend(touched(&snapshot, storage, &loss.part)?);
            }
        }
    }
    for (storage, lost) in segments {
        for segment in lost {
            remove(store, &keys(&snapshot, storage, segment)?)?;
            given_up.push(format!("column segment {segment} of table {}, with all its rows", named(&names, storage)));
        }
    }
    Ok(given_up)
}

/// Whether it was not brought back: of a range nobody can tell.
fn is_lost(store: &Store, loss: &Loss) -> bool {
    match &loss.part {
        Part::Keys(..) => true,
        Part::Value(key) => !store.is_known(loss.tree, key).unwrap_or(false),
    }
}

fn number(name: &str, before: &str, behind: &str) -> Option<u64> {
    name.strip_prefix(before)?.strip_suffix(behind)?.parse().ok()
}

fn named(names: &HashMap<u64, String>, storage: u64) -> String {
    names.get(&storage).cloned().unwrap_or_else(|| format!("of storage {storage}"))
}

/// Segments of which something lies in a part of one of their trees. Each key begins with its segment's number.
fn touched(snapshot: &Snapshot, storage: u64, part: &Part) -> Result<BTreeSet<u32>, StoreError> {
    let segment = |key: &[u8]| key.first_chunk::<4>().map(|id| u32::from_be_bytes(*id));
    let (low, high) = match part {
        Part::Value(key) => return Ok(segment(key).into_iter().collect()),
        Part::Keys(low, high) => (segment(low).unwrap_or(0), segment(high).unwrap_or(u32::MAX - 1)),
    };
    let mut found = BTreeSet::new();
    for tree in segment_trees(snapshot, storage)? {
        for key in walk(snapshot, tree, (low, high))? {
            // Behind all numbers stands something else.
            found.extend(segment(&key).filter(|id| (low..=high).contains(id) && *id != u32::MAX));
        }
    }
    Ok(found)
}

/// All keys of a segment.
fn keys(snapshot: &Snapshot, storage: u64, segment: u32) -> Result<Vec<(TreeId, Bytes)>, StoreError> {
    let mut all = Vec::new();
    for tree in segment_trees(snapshot, storage)? {
        all.extend(walk(snapshot, tree, (segment, segment))?.into_iter().map(|key| (tree, key)));
    }
    Ok(all)
}

/// The keys of segments, as far as they can be read.
fn walk(snapshot: &Snapshot, tree: TreeId, (first, last): (u32, u32)) -> Result<Vec<Bytes>, StoreError> {
    let (from, to) = (first.to_be_bytes(), last.saturating_add(1).to_be_bytes());
    let mut cursor = snapshot.scan(tree, Bound::Included(&from), Bound::Excluded(&to), Direction::Forward).once();
    let mut keys = Vec::new();
    loop {
        match cursor.next_key() {
            Ok(Some((key, _))) => keys.push(key),
            Ok(None) => return Ok(keys),
            Err(StoreError::Corrupt(_)) => {
                cursor.skip_damage()?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn remove(store: &Store, keys: &[(TreeId, Bytes)]) -> Result<(), StoreError> {
    for some in keys.chunks(BATCH) {
        let mut transaction = store.begin();
        some.iter().try_for_each(|(tree, key)| transaction.delete(*tree, key))?;
        transaction.commit()?;
    }
    Ok(())
}
