//! The parts of SQL tables that a repair gives up if nothing can restore them.
//!
//! ```text
//!   sql.rows.N             the rows of a range of keys, or one row                       the hole is closed over them
//!   columns.N.segments     the row groups that lie there, whole: if a column or the deletions of a row group are lost,
//!   columns.N.chunks       its rows are not known
//!   columns.N.deleted
//!   sql.index.N            nothing: what is lost is made again from the rows of the table; so are the entries of rows that are
//!                          given up removed
//!   sql.sequences          nothing: sequences would give the same values again
//!   sql.catalog            nothing: without its definition a table's rows cannot be read
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use store::{Direction, Loss, Part, Snapshot, Store, StoreError, TreeId};

use crate::SqlError;
use crate::column::row_group_trees;
use crate::engine::sequences::TREE as SEQUENCES_TREE;
use crate::index_check;
use crate::table::Table;
use crate::table::catalog::{CATALOG_TREE, readable_tables};

/// The number of keys that one transaction removes.
const BATCH: usize = 2_000;

/// Gives up lost data of tables, and returns a description of it.
///
/// # Errors
/// [`StoreError::Corrupt`] if definitions of tables are lost, or where sequences stand; errors of the store.
pub fn give_up(store: &Store, losses: &[Loss]) -> Result<Vec<String>, StoreError> {
    if let Some(loss) = losses.iter().find(|loss| loss.name == CATALOG_TREE && is_lost(store, loss)) {
        let text = format!(
            "{loss}: definitions of SQL tables are lost and cannot be given up; repair with --backup, or restore"
        );
        return Err(StoreError::Corrupt(text.into()));
    }
    if let Some(loss) = losses.iter().find(|loss| loss.name == SEQUENCES_TREE && is_lost(store, loss)) {
        let text = format!(
            "{loss}: where SQL sequences stand is lost, and they would give values again; repair with --backup, or restore"
        );
        return Err(StoreError::Corrupt(text.into()));
    }
    let snapshot = store.snapshot();
    let tables = readable_tables(&snapshot);
    let names = tables.iter().map(|table| (table.storage, format!("{}.{}", table.schema_name, table.name))).collect();
    let mut with_indexes: BTreeSet<u64> = BTreeSet::new();
    let mut given_up = Vec::new();
    let mut row_groups: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for loss in losses.iter().filter(|loss| is_lost(store, loss)) {
        if let Some(storage) = number(&loss.name, "sql.rows.", "") {
            given_up.push(format!("rows of table {}: {loss}", named(&names, storage)));
            with_indexes.insert(storage);
            if let Part::Value(key) = &loss.part {
                remove(store, &[(loss.tree, key.clone())])?;
            }
        }
        if let Some(index) = number(&loss.name, "sql.index.", "") {
            let has_it = |table: &&Arc<Table>| table.indexes.iter().any(|known| known.number == index);
            with_indexes.extend(tables.iter().find(has_it).map(|table| table.storage));
        }
        for kind in [".segments", ".chunks", ".deleted"] {
            if let Some(storage) = number(&loss.name, "columns.", kind) {
                row_groups.entry(storage).or_default().extend(touched(&snapshot, storage, &loss.part)?);
            }
        }
    }
    for (storage, lost) in row_groups {
        for row_group in lost {
            remove(store, &keys(&snapshot, storage, row_group)?)?;
            given_up.push(format!("row group {row_group} of table {}, with all its rows", named(&names, storage)));
        }
        with_indexes.insert(storage);
    }
    for table in tables.iter().filter(|table| !table.indexes.is_empty() && with_indexes.contains(&table.storage)) {
        make_again(store, table)?;
    }
    Ok(given_up)
}

/// Makes the indexes of a table again from the rows that it has.
fn make_again(store: &Store, table: &Arc<Table>) -> Result<(), StoreError> {
    index_check::make_again(store, table).map_err(|error| match error {
        SqlError::Store(error) => error,
        other => StoreError::Corrupt(format!("the indexes of table {}: {other}", table.display()).into()),
    })
}

/// Whether the lost data was not restored: for a range this is always assumed, because it cannot be checked.
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

/// Row groups with data in a part of one of their trees. Each key begins with its row group's number.
fn touched(snapshot: &Snapshot, storage: u64, part: &Part) -> Result<BTreeSet<u32>, StoreError> {
    let row_group = |key: &[u8]| key.first_chunk::<4>().map(|id| u32::from_be_bytes(*id));
    let (low, high) = match part {
        Part::Value(key) => return Ok(row_group(key).into_iter().collect()),
        Part::Keys(low, high) => (row_group(low).unwrap_or(0), row_group(high).unwrap_or(u32::MAX - 1)),
    };
    let mut found = BTreeSet::new();
    for tree in row_group_trees(snapshot, storage)? {
        for key in walk(snapshot, tree, (low, high))? {
            // The key behind all numbers has another purpose.
            found.extend(row_group(&key).filter(|id| (low..=high).contains(id) && *id != u32::MAX));
        }
    }
    Ok(found)
}

/// All keys of a row group.
fn keys(snapshot: &Snapshot, storage: u64, row_group: u32) -> Result<Vec<(TreeId, Bytes)>, StoreError> {
    let mut all = Vec::new();
    for tree in row_group_trees(snapshot, storage)? {
        all.extend(walk(snapshot, tree, (row_group, row_group))?.into_iter().map(|key| (tree, key)));
    }
    Ok(all)
}

/// The keys of row groups, as far as they are readable.
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

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;

    #[test]
    fn lost_definitions_and_lost_counters_of_sequences_are_not_given_up() {
        let store = Store::in_memory(Options::default()).expect("memory is enough");
        for name in [CATALOG_TREE, SEQUENCES_TREE] {
            let tree = store.transact(|transaction| transaction.create_tree(name)).expect("it is made");
            let part = Part::Keys(Default::default(), Default::default());
            let loss = Loss { tree, name: name.into(), part, why: "damaged".into() };
            let refused = give_up(&store, &[loss]).expect_err(name);
            assert!(matches!(&refused, StoreError::Corrupt(why) if why.contains("lost")), "{refused}");
        }
    }
}
