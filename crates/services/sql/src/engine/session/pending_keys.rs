//! [`PendingKeys`]: what a statement has still to ask of foreign keys when its rows are written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::scalar::ScalarValue;

use crate::SqlError;
use crate::table::Table;

/// Keys that one statement removes, or refers to before they are there: with their values at most some 150 MB, with short keys 20.
const KEYS_MOST: usize = 65_536;

/// How a key was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Removal {
    /// With its row.
    Deleted,
    /// By other values of its row.
    Updated,
}

/// Keys by their bytes, with their values.
pub(crate) type KeyValues = BTreeMap<Vec<u8>, Vec<ScalarValue>>;

/// Keys of a table that a statement has removed.
#[derive(Debug)]
pub(crate) struct RemovedKeys {
    /// The table.
    pub(crate) table: u64,
    /// The positions of the columns.
    pub(crate) columns: Vec<usize>,
    pub(crate) removal: Removal,
    pub(crate) keys: KeyValues,
}

/// Keys that were not found when rows were written that refer to them, and those of removed rows.
#[derive(Debug, Default)]
pub(crate) struct PendingKeys {
    /// The columns that the statement assigns, and their table; `None`: all.
    assigned: Option<(u64, Vec<usize>)>,
    /// The tables that its foreign keys connect.
    tables: HashMap<u64, Arc<Table>>,
    /// By table and position of the foreign key.
    missing: BTreeMap<(u64, usize), KeyValues>,
    removed: Vec<RemovedKeys>,
    count: usize,
}

impl PendingKeys {
    /// Forgets what earlier statements have left.
    pub(crate) fn clear(&mut self) {
        if !self.is_clear() {
            *self = PendingKeys::default();
        }
    }

    fn is_clear(&self) -> bool {
        self.assigned.is_none() && self.tables.is_empty() && !self.has_some()
    }

    /// Whether there is something to ask.
    pub(crate) fn has_some(&self) -> bool {
        !self.missing.is_empty() || !self.removed.is_empty()
    }

    /// Says which columns of a table the statement assigns.
    pub(crate) fn set_assigned(&mut self, table: u64, columns: Vec<usize>) {
        self.assigned = Some((table, columns));
    }

    /// The statement may change all columns again.
    pub(crate) fn clear_assigned(&mut self) {
        self.assigned = None;
    }

    /// Whether the statement may change one of these columns of a table.
    pub(crate) fn may_change(&self, table: u64, columns: &[usize]) -> bool {
        match &self.assigned {
            Some((of, assigned)) if *of == table => columns.iter().any(|at| assigned.contains(at)),
            _ => true,
        }
    }

    /// Keeps a table that foreign keys connect with another one.
    pub(crate) fn keep(&mut self, table: &Arc<Table>) {
        self.tables.insert(table.id, Arc::clone(table));
    }

    /// One of those tables. Errors: XX000.
    pub(crate) fn table(&self, id: u64) -> Result<Arc<Table>, SqlError> {
        let missing = || crate::ErrorFields::new("XX000", "the foreign keys were not prepared");
        self.tables.get(&id).cloned().ok_or_else(|| SqlError::Engine(Box::new(missing())))
    }

    /// A row refers to a key that was not found. Errors: 54000.
    pub(crate) fn miss(&mut self, of: (u64, usize), key: Vec<u8>, values: Vec<ScalarValue>) -> Result<(), SqlError> {
        if self.missing.entry(of).or_default().insert(key, values).is_none() {
            self.count_one()?;
        }
        Ok(())
    }

    /// A row's key is removed. Errors: 54000.
    pub(crate) fn remove(
        &mut self,
        (table, columns, removal): (u64, &[usize], Removal),
        key: Vec<u8>,
        values: Vec<ScalarValue>,
    ) -> Result<(), SqlError> {
        let is_it =
            |removed: &RemovedKeys| removed.table == table && removed.columns == columns && removed.removal == removal;
        let at = match self.removed.iter().position(is_it) {
            Some(at) => at,
            None => {
                let keys = KeyValues::new();
                self.removed.push(RemovedKeys { table, columns: columns.to_vec(), removal, keys });
                self.removed.len() - 1
            }
        };
        if self.removed[at].keys.insert(key, values).is_none() {
            self.count_one()?;
        }
        Ok(())
    }

    fn count_one(&mut self) -> Result<(), SqlError> {
        self.count += 1;
        match self.count > KEYS_MOST {
            false => Ok(()),
            true => Err(SqlError::value("54000", "the statement has too many keys to check for foreign keys")
                .with_hint(format!("At most {KEYS_MOST} keys are removed, or referred to before they are there."))),
        }
    }

    /// Takes removed keys, to follow them.
    pub(crate) fn take_removed(&mut self) -> Option<RemovedKeys> {
        let taken = self.removed.pop();
        self.count -= taken.as_ref().map_or(0, |taken| taken.keys.len());
        taken
    }

    /// Takes the keys that were not found.
    pub(crate) fn take_missing(&mut self) -> BTreeMap<(u64, usize), KeyValues> {
        let taken = std::mem::take(&mut self.missing);
        self.count -= taken.values().map(BTreeMap::len).sum::<usize>();
        taken
    }

    /// Puts them back.
    pub(crate) fn put_back(&mut self, missing: BTreeMap<(u64, usize), KeyValues>) {
        self.count += missing.values().map(BTreeMap::len).sum::<usize>();
        self.missing = missing;
    }
}
