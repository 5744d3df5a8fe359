//! Rows of a table without a plan: all of both stores, or those at addresses. For its indexes.

use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray};
use datafusion::arrow::compute::filter;
use store::Direction;
use store::cache::Hint;

use super::row_groups::{Address, RowGroupCache, RowGroups, SearchedKeys, Trees, locate, metadata_of, read_rows};
use super::{VECTOR_ROWS, damaged};
use crate::SqlError;
use crate::table::row_encoding::BatchBuilder;
use crate::table::{ColumnRows, Table, View};

/// Calls `each` with all rows of a table in some columns, and their addresses: a batch of at most a vector at a time.
pub(crate) fn all_rows(
    shared: &RowGroupCache,
    view: &View,
    table: &Arc<Table>,
    columns: &[usize],
    mut each: impl FnMut(&[ArrayRef], &BinaryArray) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let projection: Vec<usize> = columns.iter().copied().chain([table.columns.len()]).collect();
    let schema = Arc::new(table.addressed.project(&projection)?);
    let mut builder = BatchBuilder::new(table, &projection, schema, VECTOR_ROWS);
    let mut cursor = view.scan(table.rows, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?.once();
    loop {
        let row = cursor.next()?;
        let is_end = row.is_none();
        if let Some((key, row)) = row {
            builder.push(&key, &row)?;
        }
        if builder.rows() > 0 && (is_end || builder.is_full() || builder.rows() == VECTOR_ROWS) {
            let batch = builder.finish()?;
            let (addresses, columns) = batch.columns().split_last().unwrap_or_else(|| unreachable!("an address"));
            each(columns, addresses.as_binary())?;
        }
        if is_end {
            break;
        }
    }
    match RowGroups::open(view, table, shared)? {
        Some(row_groups) => in_row_groups(&row_groups, columns, each),
        None => Ok(()),
    }
}

fn in_row_groups(
    row_groups: &RowGroups,
    columns: &[usize],
    mut each: impl FnMut(&[ArrayRef], &BinaryArray) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let (view, table) = (&row_groups.view, row_groups.table.as_ref());
    let get = |key: &[u8]| view.get_with(row_groups.trees.chunks, key, Hint::Scan);
    for row_group in row_groups.list.iter() {
        for (vector, first) in (0..row_group.metadata.rows).step_by(VECTOR_ROWS).enumerate() {
            let rows = row_group.metadata.vector_rows(vector);
            let numbers = first as u32..(first + rows) as u32;
            let there: BooleanArray = numbers.clone().map(|row| Some(row_group.has(row))).collect();
            if there.true_count() == 0 {
                continue;
            }
            let values = read_rows(&get, table, (row_group.id, &row_group.metadata), vector, columns, (0, rows))?;
            let values: Vec<ArrayRef> = values.iter().map(|column| filter(column, &there)).collect::<Result<_, _>>()?;
            let left = numbers.filter(|row| row_group.has(*row));
            let addresses: Vec<_> = left.map(|row| Address { row_group: row_group.id, row }.encode()).collect();
            each(&values, &BinaryArray::from_iter_values(addresses))?;
        }
    }
    Ok(())
}

/// Rows of one table in the column store by their addresses, in some columns. The vector that was read last is kept: the rows that a
/// statement changes, and those that an index leads to, are mostly in order.
#[derive(Debug)]
pub(crate) struct AddressedRows {
    shared: Arc<RowGroupCache>,
    view: View,
    columns: Vec<usize>,
    /// The table's trees, once it has row groups in the view.
    trees: Option<Trees>,
    searched: SearchedKeys,
    vector: Option<(u32, usize)>,
    values: Vec<ArrayRef>,
}

impl AddressedRows {
    /// Reads rows of the table whose row groups `shared` knows in these columns.
    pub(crate) fn new(shared: Arc<RowGroupCache>, view: View, columns: Vec<usize>) -> AddressedRows {
        let searched = SearchedKeys::default();
        AddressedRows { shared, view, columns, trees: None, searched, vector: None, values: Vec::new() }
    }

    fn trees(&mut self, table: &Table) -> Result<Option<Trees>, SqlError> {
        if self.trees.is_none() {
            self.trees = Trees::find(&self.view, table.storage)?;
        }
        Ok(self.trees)
    }

    /// The columns with the row at an address, and its position in them; whether it is deleted is not looked at.
    ///
    /// Errors: damaged, if there is no such row group.
    pub(crate) fn get(&mut self, table: &Table, address: &[u8]) -> Result<(&[ArrayRef], usize), SqlError> {
        let Address { row_group, row } = Address::decode(address)?;
        let (vector, at) = (row as usize / VECTOR_ROWS, row as usize % VECTOR_ROWS);
        if self.vector != Some((row_group, vector)) {
            let missing = || damaged(format!("there is no row group {row_group}"));
            let trees = self.trees(table)?.ok_or_else(missing)?;
            let metadata = metadata_of(&self.view, &trees, &table.schema, &self.shared, row_group)?;
            let metadata = metadata.ok_or_else(missing)?;
            let get = |key: &[u8]| self.view.get(trees.chunks, key);
            let rows = metadata.vector_rows(vector);
            self.values = read_rows(&get, table, (row_group, &metadata), vector, &self.columns, (0, rows))?;
            self.vector = Some((row_group, vector));
        }
        match self.values.first().is_none_or(|column| at < column.len()) {
            true => Ok((&self.values, at)),
            false => Err(damaged(format!("row group {row_group} has no row {row}"))),
        }
    }
}

impl ColumnRows for AddressedRows {
    fn at(&mut self, table: &Table, address: &[u8]) -> Result<Option<(&[ArrayRef], usize)>, SqlError> {
        let Some(trees) = self.trees(table)? else { return Ok(None) };
        match self.view.get(trees.deleted, &Address::decode(address)?.key())? {
            Some(_) => Ok(None),
            None => self.get(table, address).map(Some),
        }
    }

    fn with_key(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        let found = locate(&self.view, table, key, &self.shared, &mut self.searched)?;
        Ok(found.map(|(_, _, address)| address.encode().to_vec()))
    }
}
