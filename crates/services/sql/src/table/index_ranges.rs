//! Which entries of a table's indexes a query needs: [`find`] derives ranges of entries from conditions, and reads where they lead to.
//!
//! For an index (a, b, c): values of a and b, by `=`, `IN` or `OR`, and a comparison of c, give some ranges of entries. An index is used if
//! they have few entries: a row that is read by its reference costs about as much as a vector of rows in a scan. Conditions are only
//! used to read less; all of them are checked again above the scan.

use std::ops::Bound;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use store::Direction;

use super::definition::{Index, Table};
use super::index::VALUE;
use super::key;
use super::key_range::{self, KeyRange};
use super::view::View;
use crate::SqlError;

/// Most ranges of one index that a query reads.
const RANGES_MOST: usize = 256;

/// The rows to which entries of an index lead.
#[derive(Clone, Debug)]
pub(crate) struct IndexedRows {
    /// The index's name.
    pub(crate) index: String,
    /// References to the rows, each once, in order.
    pub(crate) references: Vec<Bytes>,
}

/// The rows that can fulfil the conditions, by the index that leads to the fewest; `None` if there are more than `most`, or no index has a
/// condition on its first column.
pub(crate) fn find(view: &View, table: &Table, filters: &[Expr], most: usize) -> Result<Option<IndexedRows>, SqlError> {
    let mut best: Option<IndexedRows> = None;
    for index in &table.indexes {
        let most = best.as_ref().map_or(most, |best| best.references.len().saturating_sub(1));
        let Some(ranges) = ranges(&table.schema, index, filters)? else { continue };
        if let Some(mut references) = references(view, index, &ranges, most)? {
            references.sort_unstable();
            references.dedup();
            best = Some(IndexedRows { index: index.name.clone(), references });
        }
    }
    Ok(best)
}

/// What entries of some ranges lead to; `None` if there are more than `most`.
fn references(view: &View, index: &Index, ranges: &[KeyRange], most: usize) -> Result<Option<Vec<Bytes>>, SqlError> {
    let mut found = Vec::new();
    for range in ranges {
        let (from, to) = (range.from.as_ref().map(Vec::as_slice), range.to.as_ref().map(Vec::as_slice));
        let mut cursor = view.scan(index.tree(), from, to, Direction::Forward)?;
        while let Some((_, reference)) = cursor.next()? {
            if found.len() == most {
                return Ok(None);
            }
            found.push(reference);
        }
    }
    Ok(Some(found))
}

/// The ranges of an index's entries for all rows that fulfil the conditions.
fn ranges(schema: &SchemaRef, index: &Index, filters: &[Expr]) -> Result<Option<Vec<KeyRange>>, SqlError> {
    let mut prefixes = vec![Vec::new()];
    for (depth, column) in index.columns.iter().enumerate() {
        let values = filters.iter().filter_map(|filter| values(schema, filter, *column)).min_by_key(Vec::len);
        if let Some(values) = values.filter(|values| values.len() * prefixes.len() <= RANGES_MOST) {
            let mut longer = Vec::with_capacity(values.len() * prefixes.len());
            for prefix in &prefixes {
                for value in &values {
                    let mut bytes: Vec<u8> = prefix.clone();
                    bytes.push(VALUE);
                    key_range::encode(value, &mut bytes)?;
                    longer.push(bytes);
                }
            }
            prefixes = longer;
            continue;
        }
        let compared: Vec<_> = filters.iter().filter_map(|filter| key_range::condition(schema, filter)).collect();
        let compared: Vec<_> = compared.into_iter().filter(|one| one.column == *column).collect();
        if compared.is_empty() {
            return Ok((depth > 0).then(|| prefixes.iter().map(|prefix| with_prefix(prefix)).collect()));
        }
        let narrowed = |prefix: &Vec<u8>| {
            let prefix = [prefix.as_slice(), &[VALUE]].concat();
            let mut range = with_prefix(&prefix);
            for one in &compared {
                let mut bytes = prefix.clone();
                key_range::encode(&one.value, &mut bytes)?;
                key_range::narrow(&mut range, one.operator, bytes);
            }
            Ok(range)
        };
        return prefixes.iter().map(narrowed).collect::<Result<_, SqlError>>().map(Some);
    }
    Ok(Some(prefixes.iter().map(|prefix| with_prefix(prefix)).collect()))
}

/// All entries with a prefix.
fn with_prefix(prefix: &[u8]) -> KeyRange {
    KeyRange { from: Bound::Included(prefix.to_vec()), to: key::after(prefix), point: None }
}

/// The values of a column of which a row has one if it fulfils the condition; `None` if any.
fn values(schema: &SchemaRef, filter: &Expr, column: usize) -> Option<Vec<ScalarValue>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let mut all = values(schema, left, column)?;
            all.extend(values(schema, right, column)?);
            (all.len() <= RANGES_MOST).then_some(all)
        }
        Expr::InList(InList { expr, list, negated: false }) if list.len() <= RANGES_MOST => {
            let mut all = Vec::with_capacity(list.len());
            for value in list {
                // NULL equals nothing.
                if matches!(value, Expr::Literal(value, _) if value.is_null()) {
                    continue;
                }
                let equal = BinaryExpr::new(expr.clone(), Operator::Eq, Box::new(value.clone()));
                let equal = key_range::condition(schema, &Expr::BinaryExpr(equal))?;
                (equal.column == column).then(|| all.push(equal.value))?;
            }
            Some(all)
        }
        other => {
            let equal = key_range::condition(schema, other)?;
            (equal.operator == Operator::Eq && equal.column == column).then(|| vec![equal.value])
        }
    }
}
