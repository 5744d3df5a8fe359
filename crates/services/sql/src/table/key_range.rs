//! Derives ranges of keys from conditions: the range of a table's tree that a query needs, and the bounds for virtual
//! tables.
//!
//! For a primary key (a, b, c): equalities on a and b and a comparison on c give one range of keys. Conditions are only
//! used to read less; all of them are checked again above the scan.

use std::ops::Bound;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Column;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;

use super::definition::Table;
use super::key::{self, KeyColumn};
use super::virtual_table::ColumnBound;
use crate::SqlError;

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) from: Bound<Vec<u8>>,
    pub(crate) to: Bound<Vec<u8>>,
    /// The only key, if all columns of the key are given.
    pub(crate) point: Option<Vec<u8>>,
}

impl KeyRange {
    pub(crate) fn all() -> KeyRange {
        KeyRange { from: Bound::Unbounded, to: Bound::Unbounded, point: None }
    }
}

/// One condition: a column, an operator, and a value of the column's type.
pub(crate) struct Condition {
    pub(crate) column: usize,
    pub(crate) operator: Operator,
    pub(crate) value: ScalarValue,
}

/// The condition that a filter is, if it is one.
pub(crate) fn condition(schema: &SchemaRef, filter: &Expr) -> Option<Condition> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else {
        return None;
    };
    let (column, operator, value) = match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), Expr::Literal(value, _)) => (column, *op, value),
        (Expr::Literal(value, _), Expr::Column(column)) => (column, op.swap()?, value),
        _ => return None,
    };
    let known = matches!(operator, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
    if !known || value.is_null() {
        return None;
    }
    let Column { name, .. } = column;
    let column = schema.index_of(name).ok()?;
    let kind = schema.field(column).data_type();
    let value = if value.data_type() == *kind {
        value.clone()
    } else {
        // Only a value that can be converted without loss in both directions has a position among the keys.
        let cast = value.cast_to(kind).ok().filter(|cast| !cast.is_null())?;
        cast.cast_to(&value.data_type()).ok().filter(|back| back == value)?;
        cast
    };
    Some(Condition { column, operator, value })
}

/// Appends the encoded value of a key column.
pub(crate) fn encode(value: &ScalarValue, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let array = value.to_array()?;
    KeyColumn::new(&array).encode(0, out);
    Ok(())
}

/// The range of keys that contains all rows that fulfil the conditions.
pub(crate) fn key_range(table: &Table, filters: &[Expr]) -> Result<KeyRange, SqlError> {
    let conditions: Vec<Condition> = filters.iter().filter_map(|f| condition(&table.schema, f)).collect();
    let mut prefix = Vec::new();
    for (depth, column) in table.key.iter().enumerate() {
        let here = || conditions.iter().filter(|c| c.column == *column);
        if let Some(equal) = here().find(|c| c.operator == Operator::Eq) {
            encode(&equal.value, &mut prefix)?;
            if depth + 1 == table.key.len() {
                let to = key::after(&prefix);
                return Ok(KeyRange { from: Bound::Included(prefix.clone()), to, point: Some(prefix) });
            }
            continue;
        }
        let mut range = KeyRange { from: Bound::Included(prefix.clone()), to: key::after(&prefix), point: None };
        for c in here() {
            let mut bytes = prefix.clone();
            encode(&c.value, &mut bytes)?;
            narrow(&mut range, c.operator, bytes);
        }
        if prefix.is_empty() && range.from == Bound::Included(Vec::new()) {
            range.from = Bound::Unbounded;
        }
        return Ok(range);
    }
    Ok(KeyRange::all())
}

/// Narrows a range by a comparison with a value, whose encoding with all that is before it is given.
pub(crate) fn narrow(range: &mut KeyRange, operator: Operator, bytes: Vec<u8>) {
    let from = match operator {
        Operator::GtEq => Some(bytes.clone()),
        // Behind all keys with that value; if there are none, nothing is larger and the whole prefix is searched.
        Operator::Gt => match key::after(&bytes) {
            Bound::Excluded(next) => Some(next),
            _ => None,
        },
        _ => None,
    };
    let to = match operator {
        Operator::Lt => Bound::Excluded(bytes),
        Operator::LtEq => key::after(&bytes),
        _ => Bound::Unbounded,
    };
    if let (Some(from), Bound::Included(old)) = (from, &range.from)
        && from > *old
    {
        range.from = Bound::Included(from);
    }
    match (&to, &range.to) {
        (Bound::Excluded(new), Bound::Excluded(old)) if new < old => range.to = to,
        (Bound::Excluded(_), Bound::Unbounded) => range.to = to,
        _ => {}
    }
}

/// The conditions on single columns, for a virtual table; and whether they express all conditions.
pub(crate) fn bounds(schema: &SchemaRef, filters: &[Expr]) -> (Vec<ColumnBound>, bool) {
    let mut complete = true;
    let mut bounds = Vec::new();
    for filter in filters {
        let Some(c) = condition(schema, filter) else {
            complete = false;
            continue;
        };
        let (from, to) = match c.operator {
            Operator::Eq => (Bound::Included(c.value.clone()), Bound::Included(c.value)),
            Operator::Lt => (Bound::Unbounded, Bound::Excluded(c.value)),
            Operator::LtEq => (Bound::Unbounded, Bound::Included(c.value)),
            Operator::Gt => (Bound::Excluded(c.value), Bound::Unbounded),
            _ => (Bound::Included(c.value), Bound::Unbounded),
        };
        bounds.push(ColumnBound { column: c.column, from, to });
    }
    (bounds, complete)
}

/// Whether a condition can be passed to a virtual table.
pub(crate) fn is_bound(schema: &SchemaRef, filter: &Expr) -> bool {
    condition(schema, filter).is_some()
}
