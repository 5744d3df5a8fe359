//! The entries of indexes for the rows that a statement adds, changes and deletes one by one.
//!
//! ```text
//!   a row is deleted, or its values change   its entry's key is locked, where values are unique, and the entry removed
//!   a row is added, or has its new values    its entry's key is locked, searched, and the entry added
//! ```
//!
//! So who adds a value waits for who adds or deletes it, as for a primary key. All old entries of a statement's batch are removed
//! before new ones are searched, so values may be shifted.

use datafusion::arrow::array::ArrayRef;

use crate::SqlError;
use crate::column::AddressedRows;
use crate::engine::Engine;
use crate::engine::session::transaction::SessionTransaction;
use crate::table::index::{self, IndexEncoder, reference_of_key, reference_of_row};
use crate::table::key::KeyColumn;
use crate::table::row_encoding::BatchBuilder;
use crate::table::{COLUMN_TAG, Index, ROW_TAG, Table};

/// The entries of rows with these columns.
pub(crate) struct NewEntries<'a> {
    table: &'a Table,
    columns: &'a [ArrayRef],
    encoders: Vec<IndexEncoder<'a>>,
    key: Vec<u8>,
}

impl<'a> NewEntries<'a> {
    pub(crate) fn new(table: &'a Table, columns: &'a [ArrayRef]) -> NewEntries<'a> {
        let encoders = table.indexes.iter().map(|one| IndexEncoder::new(one, columns)).collect();
        NewEntries { table, columns, encoders, key: Vec::new() }
    }

    /// The number of indexes.
    pub(crate) fn count(&self) -> usize {
        self.encoders.len()
    }

    /// Whether another row has the values of this one in a unique index.
    ///
    /// Errors: [`SqlError::Again`] if another transaction adds or deletes such a row, or has deleted it since the snapshot: its end decides.
    pub(crate) fn is_taken(
        &mut self,
        transaction: &SessionTransaction,
        at: usize,
        row: usize,
    ) -> Result<bool, SqlError> {
        let encoder = &self.encoders[at];
        if !encoder.is_unique(row) {
            return Ok(false);
        }
        encoder.encode(row, &[], &mut self.key)?;
        let tree = encoder.index.tree();
        transaction.lock_row(tree, &self.key)?;
        match transaction.get(tree, &self.key)? {
            None => Ok(false),
            Some(_) => transaction.check_newest(tree, &self.key).map(|()| true),
        }
    }

    /// Adds a row to an index.
    pub(crate) fn add(
        &mut self,
        transaction: &SessionTransaction,
        at: usize,
        row: usize,
        reference: &[u8],
    ) -> Result<(), SqlError> {
        let encoder = &self.encoders[at];
        encoder.encode(row, reference, &mut self.key)?;
        transaction.put(encoder.index.tree(), &self.key, reference)
    }

    /// Adds a row to all indexes, by its key in the delta store.
    pub(crate) fn add_to_all(
        &mut self,
        transaction: &SessionTransaction,
        row: usize,
        key: &[u8],
    ) -> Result<(), SqlError> {
        if self.encoders.is_empty() {
            return Ok(());
        }
        let mut reference = Vec::new();
        reference_of_key(self.table, key, &mut reference);
        (0..self.count()).try_for_each(|at| self.add(transaction, at, row, &reference))
    }

    /// The error for a row whose values another one has.
    pub(crate) fn duplicate(&self, at: usize, row: usize) -> SqlError {
        let index = self.encoders[at].index;
        let columns: Vec<ArrayRef> = index.columns.iter().map(|at| self.columns[*at].clone()).collect();
        index::duplicate(self.table, index, &columns, row)
    }

    fn key(&self, at: usize, row: usize, reference: &[u8]) -> Result<Vec<u8>, SqlError> {
        let mut key = Vec::new();
        self.encoders[at].encode(row, reference, &mut key).map(|()| key)
    }
}

/// An entry that is still to be added: of a row, in an index, with its reference.
pub(crate) struct Pending {
    pub(crate) row: usize,
    pub(crate) at: usize,
    pub(crate) reference: Vec<u8>,
}

/// The entry of a row in an index.
struct OldEntry {
    key: Vec<u8>,
    is_unique: bool,
}

/// The entries of the rows that are there.
pub(crate) struct OldEntries<'a> {
    transaction: &'a SessionTransaction,
    table: &'a Table,
    /// The columns that entries and references need, by their positions.
    columns: Vec<usize>,
    builder: BatchBuilder,
    rows: AddressedRows,
}

impl<'a> OldEntries<'a> {
    /// The entries of a table's rows; `None` if it has no indexes.
    pub(crate) fn new(
        engine: &'a Engine,
        transaction: &'a SessionTransaction,
        table: &'a Table,
    ) -> Result<Option<OldEntries<'a>>, SqlError> {
        if table.indexes.is_empty() {
            return Ok(None);
        }
        let of_indexes = table.indexes.iter().flat_map(|index| &index.columns);
        let mut columns: Vec<usize> = of_indexes.chain(&table.key).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        let schema = std::sync::Arc::new(table.schema.project(&columns)?);
        let builder = BatchBuilder::new(table, &columns, schema, 1);
        let rows = AddressedRows::new(engine.columns.shared(table.storage), transaction.own_view(), columns.clone());
        Ok(Some(OldEntries { transaction, table, columns, builder, rows }))
    }

    /// The entries of the row at an address, one for each index, and its reference; none if it is not there.
    fn of(&mut self, address: &[u8]) -> Result<(Vec<OldEntry>, Vec<u8>), SqlError> {
        match address.split_first() {
            Some((&ROW_TAG, key)) => {
                let Some(row) = self.transaction.get(self.table.rows, key)? else {
                    return Ok((Vec::new(), Vec::new()));
                };
                self.builder.push(key, &row)?;
                let batch = self.builder.finish()?;
                let mut reference = Vec::new();
                reference_of_key(self.table, key, &mut reference);
                let entries = entries(self.table, &self.columns, (batch.columns(), 0), &reference)?;
                Ok((entries, reference))
            }
            Some((&COLUMN_TAG, _)) => {
                let (values, at) = self.rows.get(self.table, address)?;
                let mut reference = Vec::new();
                let keys = self.table.key.iter().map(|key| KeyColumn::new(&values[place(&self.columns, *key)]));
                reference_of_row(&keys.collect::<Vec<_>>(), (address, at), &mut reference);
                Ok((entries(self.table, &self.columns, (values, at), &reference)?, reference))
            }
            _ => Err(damaged_address()),
        }
    }

    /// Removes the entries of the row at an address, which is deleted or moves.
    pub(crate) fn remove(&mut self, address: &[u8]) -> Result<(), SqlError> {
        let (old, _) = self.of(address)?;
        old.iter().enumerate().try_for_each(|(at, entry)| self.remove_one(at, entry))
    }

    /// Removes the entries that change for the row at an address, which stays there and gets the values of a new row: those are still
    /// to be added.
    pub(crate) fn replace(
        &mut self,
        address: &[u8],
        new: &NewEntries<'_>,
        row: usize,
        pending: &mut Vec<Pending>,
    ) -> Result<(), SqlError> {
        let (old, reference) = self.of(address)?;
        for (at, entry) in old.iter().enumerate() {
            if new.key(at, row, &reference)? != entry.key {
                pending.push(Pending { row, at, reference: reference.clone() });
                self.remove_one(at, entry)?;
            }
        }
        Ok(())
    }

    fn remove_one(&self, at: usize, entry: &OldEntry) -> Result<(), SqlError> {
        let tree = self.table.indexes[at].tree();
        if entry.is_unique {
            self.transaction.lock_row(tree, &entry.key)?;
        }
        self.transaction.with(|transaction| Ok(transaction.delete(tree, &entry.key)?))
    }
}

/// The error for an address that is none.
pub(crate) fn damaged_address() -> SqlError {
    store::StoreError::Corrupt("the address of a row cannot be read".into()).into()
}

fn place(columns: &[usize], column: usize) -> usize {
    columns.binary_search(&column).unwrap_or_else(|_| unreachable!("columns of indexes and keys are read"))
}

fn entries(
    table: &Table,
    columns: &[usize],
    (values, row): (&[ArrayRef], usize),
    reference: &[u8],
) -> Result<Vec<OldEntry>, SqlError> {
    let one = |index: &Index| {
        let encoder = IndexEncoder::of(index, index.columns.iter().map(|at| &values[place(columns, *at)]));
        let mut key = Vec::new();
        encoder.encode(row, reference, &mut key)?;
        Ok(OldEntry { key, is_unique: encoder.is_unique(row) })
    };
    table.indexes.iter().map(one).collect()
}
