//! [`ListedRow`]: a row of a view of `information_schema`, and how rows become columns of Arrow.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Text(String),
    Number(i32),
}

/// A row: values of the columns that are not NULL.
pub(super) type ListedRow = Vec<(&'static str, Cell)>;

/// A text.
pub(super) fn text(value: impl Into<String>) -> Cell {
    Cell::Text(value.into())
}

/// A truth value, as `information_schema` writes it.
pub(super) fn yes_or_no(is: bool) -> Cell {
    text(if is { "YES" } else { "NO" })
}

/// The columns of a view: their names, behind commas. Those of numbers have `int4` behind the name, the others are texts.
pub(super) fn shape(columns: &str) -> SchemaRef {
    let field = |column: &str| match column.split_once(' ') {
        Some((name, _)) => Field::new(name, DataType::Int32, true),
        None => Field::new(column, DataType::Utf8, true),
    };
    Arc::new(Schema::new(columns.split(", ").map(field).collect::<Vec<_>>()))
}

/// The rows in Arrow.
pub(super) fn batch_of(schema: SchemaRef, rows: &[ListedRow]) -> DfResult<RecordBatch> {
    let columns: Vec<ArrayRef> = schema.fields().iter().map(|field| column_of(field, rows)).collect();
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn column_of(field: &Field, rows: &[ListedRow]) -> ArrayRef {
    let cell = |row: &ListedRow| {
        let found = row.iter().find(|(name, _)| *name == field.name().as_str());
        found.map(|(_, cell)| cell.clone())
    };
    if *field.data_type() == DataType::Int32 {
        let number = |row: &ListedRow| match cell(row) {
            Some(Cell::Number(number)) => Some(number),
            _ => None,
        };
        return Arc::new(rows.iter().map(number).collect::<Int32Array>());
    }
    let text = |row: &ListedRow| match cell(row) {
        Some(Cell::Text(text)) => Some(text),
        _ => None,
    };
    Arc::new(rows.iter().map(text).collect::<StringArray>())
}
