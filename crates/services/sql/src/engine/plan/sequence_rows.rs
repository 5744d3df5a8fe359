//! A sequence as a table: its one row says where it stands. And the list of sequences in `information_schema`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int32Array, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::error::Result as DfResult;

use crate::engine::parse::ast::DATABASE;
use crate::table::{Counter, Sequence, SqlType};

/// The columns, as PostgreSQL's. `log_cnt` is 0: how many values are made persistent ahead is no state of the sequence.
pub(crate) fn schema() -> SchemaRef {
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![
        number("last_value"),
        number("log_cnt"),
        Field::new("is_called", DataType::Boolean, false),
    ]))
}

/// The table of a sequence that stands there.
pub(crate) fn table(counter: Counter) -> DfResult<MemTable> {
    let number = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let columns = vec![number(counter.last), number(0), Arc::new(BooleanArray::from(vec![counter.is_called]))];
    MemTable::try_new(schema(), vec![vec![RecordBatch::try_new(schema(), columns)?]])
}

/// `information_schema.sequences`.
pub(crate) fn listed<'a>(sequences: impl Iterator<Item = &'a Arc<Sequence>>) -> DfResult<MemTable> {
    let sequences: Vec<&Sequence> = sequences.map(|sequence| &**sequence).collect();
    let text = |of: &dyn Fn(&Sequence) -> String| {
        Arc::new(sequences.iter().map(|sequence| Some(of(sequence))).collect::<StringArray>()) as ArrayRef
    };
    let number = |of: &dyn Fn(&Sequence) -> i32| {
        Arc::new(Int32Array::from_iter_values(sequences.iter().map(|sequence| of(sequence)))) as ArrayRef
    };
    let bits = |sequence: &Sequence| match sequence.kind {
        SqlType::SmallInt => 16,
        SqlType::Integer => 32,
        _ => 64,
    };
    let cycle = |sequence: &Sequence| if sequence.cycle { "YES" } else { "NO" }.to_owned();
    let columns: [(&str, ArrayRef); 12] = [
        ("sequence_catalog", text(&|_| DATABASE.to_owned())),
        ("sequence_schema", text(&|sequence| sequence.schema_name.clone())),
        ("sequence_name", text(&|sequence| sequence.name.clone())),
        ("data_type", text(&|sequence| sequence.kind.name())),
        ("numeric_precision", number(&bits)),
        ("numeric_precision_radix", number(&|_| 2)),
        ("numeric_scale", number(&|_| 0)),
        ("start_value", text(&|sequence| sequence.start.to_string())),
        ("minimum_value", text(&|sequence| sequence.min.to_string())),
        ("maximum_value", text(&|sequence| sequence.max.to_string())),
        ("increment", text(&|sequence| sequence.increment.to_string())),
        ("cycle_option", text(&cycle)),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    MemTable::try_new(batch.schema(), vec![vec![batch]])
}
