//! Row groups: every kind of column written and read back, damage, queries compared with a table in memory, keys,
//! conflicts, the move from the delta store. Loads are small, with a few row groups; the bench tests loads with many.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::{Field, Int64Type, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use store::{Options, Store};

use super::chunk::{ColumnChunk, PickedRows, encode};
use super::metadata::{ColumnMetadata, RowGroupMetadata, Zone};
use super::{Compacted, ROW_GROUP_ROWS, RowGroupStore, RowGroupTable, VECTOR_ROWS};
use crate::SqlError;
use crate::table::{Column, ColumnStore, SqlType, View};

/// A column of uuids of these bits.
fn uuids(values: impl Iterator<Item = Option<u128>>) -> ArrayRef {
    let bytes = values.map(|value| value.map(u128::to_be_bytes));
    Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).unwrap())
}

fn columns_of_all_kinds(rows: usize, nulls: bool) -> Vec<ArrayRef> {
    let mut random = fastrand::Rng::with_seed(7);
    let keep = |row: usize| !nulls || row % 7 != 3;
    let number = |row: usize| (row as i64 * 31) % 1000 - 500;
    vec![
        Arc::new((0..rows).map(|row| keep(row).then(|| number(row))).collect::<datafusion::arrow::array::Int64Array>()),
        Arc::new((0..rows).map(|row| keep(row).then_some(number(row) as i32)).collect::<Int32Array>()),
        Arc::new((0..rows).map(|row| keep(row).then_some(i64::MAX - row as i64 * (1 << 44))).collect::<Int64Array>()),
        Arc::new(
            (0..rows)
                .map(|row| keep(row).then_some(if row % 2 == 0 { i64::MIN } else { i64::MAX }))
                .collect::<Int64Array>(),
        ),
        Arc::new((0..rows).map(|row| keep(row).then_some(u64::MAX - row as u64)).collect::<UInt64Array>()),
        Arc::new((0..rows).map(|row| keep(row).then_some(row as f64 / 3.0)).collect::<Float64Array>()),
        Arc::new((0..rows).map(|row| keep(row).then_some(row % 3 == 0)).collect::<BooleanArray>()),
        Arc::new((0..rows).map(|row| keep(row).then_some(row as i32 % 2500)).collect::<Date32Array>()),
        Arc::new(
            (0..rows).map(|row| keep(row).then_some(row as i64 * 1_000_003)).collect::<TimestampMicrosecondArray>(),
        ),
        Arc::new(
            (0..rows)
                .map(|row| keep(row).then_some(row as i128 * 17 - 4000))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(15, 2)
                .unwrap(),
        ),
        Arc::new(
            (0..rows)
                .map(|row| keep(row).then_some((row as i128) << 90))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(38, 2)
                .unwrap(),
        ),
        Arc::new((0..rows).map(|row| keep(row).then(|| format!("mode {}", row % 5))).collect::<StringViewArray>()),
        Arc::new(
            (0..rows).map(|row| keep(row).then(|| format!("entry number {}", row % 900))).collect::<StringViewArray>(),
        ),
        Arc::new(
            (0..rows)
                .map(|row| keep(row).then(|| format!("{row} comment \u{e9} {}", random.u64(..1 << 30))))
                .collect::<StringViewArray>(),
        ),
        Arc::new((0..rows).map(|row| keep(row).then(|| vec![row as u8; row % 40])).collect::<BinaryArray>()),
        uuids((0..rows).map(|row| keep(row).then_some(row as u128 * 0x0102_0304_0506_0708_090a_0b0c))),
    ]
}

fn chunks_of(column: &ArrayRef) -> Vec<(usize, ColumnChunk, Vec<u8>)> {
    let read = |(first, bytes): (u16, Vec<u8>)| {
        let chunk = ColumnChunk::read(Bytes::from(bytes.clone()), column.data_type()).unwrap();
        (usize::from(first) * VECTOR_ROWS, chunk, bytes)
    };
    encode(column).unwrap().into_iter().map(read).collect()
}

#[test]
fn every_kind_of_column_comes_back_as_it_was() {
    for nulls in [false, true] {
        for rows in [1, 100, VECTOR_ROWS, 40_000] {
            for column in columns_of_all_kinds(rows, nulls) {
                let mut end = 0;
                for (first, chunk, bytes) in chunks_of(&column) {
                    assert_eq!(first, end);
                    assert!(bytes.len() <= super::chunk::CHUNK_BYTES_MAX || chunk.rows() <= VECTOR_ROWS);
                    let all = chunk.decode(PickedRows::Range(0, chunk.rows())).unwrap();
                    assert_eq!(all.as_ref(), column.slice(first, chunk.rows()).as_ref(), "{}", column.data_type());
                    let some: Vec<u32> = (0..chunk.rows() as u32).filter(|row| row % 5 < 2).collect();
                    let picked = chunk.decode(PickedRows::At(&some)).unwrap();
                    for (at, row) in some.iter().enumerate() {
                        assert_eq!(picked.slice(at, 1).as_ref(), column.slice(first + *row as usize, 1).as_ref());
                    }
                    end = first + chunk.rows();
                }
                assert_eq!(end, rows);
            }
        }
    }
}

#[test]
fn the_largest_fixed_width_chunk_stays_below_a_mebibyte() {
    let values: Int64Array = (0..ROW_GROUP_ROWS)
        .map(|row| (row % 9 != 0).then_some(if row % 2 == 0 { i64::MIN } else { i64::MAX }))
        .collect();
    let chunks = encode(&(Arc::new(values) as ArrayRef)).unwrap();
    assert_eq!(chunks.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [998_464]);
}

#[test]
fn any_bytes_are_a_chunk_or_an_error() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for column in columns_of_all_kinds(300, true) {
        for (_, _, bytes) in chunks_of(&column) {
            for _ in 0..400 {
                let mut bad = bytes.clone();
                for _ in 0..=random.u8(..3) {
                    // Mostly in the header, where a change has the most effect.
                    let at = if random.bool() { random.usize(..64) } else { random.usize(..bad.len()) };
                    bad[at] = random.u8(..);
                }
                bad.truncate(bad.len() - random.usize(..3) * random.usize(..40));
                let Ok(chunk) = ColumnChunk::read(Bytes::from(bad), column.data_type()) else { continue };
                if chunk.rows() > 0 {
                    let _ = chunk.decode(PickedRows::Range(0, chunk.rows())).unwrap();
                    let _ = chunk.decode(PickedRows::At(&[chunk.rows() as u32 - 1])).unwrap();
                    let _ = chunk.domain(1000).unwrap();
                }
            }
        }
    }
}

fn described() -> (RowGroupMetadata, Arc<Schema>) {
    let columns = columns_of_all_kinds(20_000, true);
    let field = |(at, column): (usize, &ArrayRef)| Field::new(format!("c{at}"), column.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()));
    let facts = columns.iter().map(|column| {
        let vectors = [(0, VECTOR_ROWS), (VECTOR_ROWS, VECTOR_ROWS), (2 * VECTOR_ROWS, 20_000 - 2 * VECTOR_ROWS)];
        let vectors = vectors.map(|(from, rows)| Zone::of(&column.slice(from, rows)).unwrap()).to_vec();
        ColumnMetadata::new(vec![0, 2], 17, Zone::of(column).unwrap(), vectors).unwrap()
    });
    let keys = vec![b"a".to_vec(), b"bb".to_vec(), b"c".to_vec(), b"d".to_vec()];
    (RowGroupMetadata { rows: 20_000, keys, columns: facts.collect() }, schema)
}

#[test]
fn metadata_of_a_row_group_comes_back_as_it_was_and_any_bytes_are_one_or_an_error() {
    let (metadata, schema) = described();
    let bytes = metadata.encode().unwrap();
    assert_eq!(RowGroupMetadata::decode(&bytes, &schema).unwrap(), metadata);
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..3000 {
        let mut bad = bytes.clone();
        let at = random.usize(..bad.len());
        bad[at] = random.u8(..);
        bad.truncate(bad.len() - random.usize(..2) * random.usize(..40));
        let _ = RowGroupMetadata::decode(&bad, &schema);
    }
}

#[test]
fn a_long_texts_bounds_are_around_it() {
    for text in [
        "\u{e9}".repeat(40),
        "x".repeat(100),
        "\u{10FFFF}".repeat(20),
        format!("{}{}", "x".repeat(31), "\u{e9}".repeat(9)),
    ] {
        let column: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str()]));
        let zone = Zone::of(&column).unwrap();
        assert!(!zone.exact);
        let bound = |value: &datafusion::scalar::ScalarValue| match value {
            datafusion::scalar::ScalarValue::Utf8View(text) => text.clone(),
            other => panic!("{other}"),
        };
        assert!(bound(&zone.least).unwrap() <= text);
        assert!(bound(&zone.largest).is_none_or(|bound| bound > text));
    }
}

#[test]
fn a_uuids_bounds_are_the_least_and_the_largest_by_its_bytes() {
    let zone = Zone::of(&uuids([Some(7), None, Some(u128::MAX), Some(1 << 127)].into_iter())).unwrap();
    let uuid = |value: u128| datafusion::scalar::ScalarValue::FixedSizeBinary(16, Some(value.to_be_bytes().to_vec()));
    assert_eq!(zone, Zone { nulls: 1, least: uuid(7), largest: uuid(u128::MAX), exact: true });
}

fn column(name: &str, kind: SqlType, not_null: bool) -> Column {
    Column { not_null, ..Column::new(name, kind) }
}

fn orders() -> (Vec<Column>, Vec<usize>) {
    let columns = vec![
        column("a", SqlType::BigInt, true),
        column("b", SqlType::Integer, true),
        column("price", SqlType::Numeric(15, 2), false),
        column("mode", SqlType::Text, false),
        column("comment", SqlType::Text, false),
        column("day", SqlType::Date, false),
    ];
    (columns, vec![0, 1])
}

fn rows(from: i64, count: usize) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..count as i64).map(|row| from + row / 3))),
        Arc::new(Int32Array::from_iter_values((0..count as i32).map(|row| row % 3))),
        Arc::new(
            (0..count)
                .map(|row| (row % 11 != 0).then_some((row as i128 * 7919) % 100_000))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(15, 2)
                .unwrap(),
        ),
        Arc::new(
            (0..count)
                .map(|row| (row % 13 != 0).then_some(["AIR", "SHIP", "RAIL", "TRUCK BY NIGHT"][row % 4]))
                .collect::<StringViewArray>(),
        ),
        Arc::new(StringViewArray::from_iter_values(
            (0..count).map(|row| format!("comment {} of row {row}", row * 7919 % 10007)),
        )),
        Arc::new(Date32Array::from_iter_values((0..count as i32).map(|row| 8000 + row / 100))),
    ];
    let (definition, key) = orders();
    RecordBatch::try_new(crate::table::Table::schemas(&definition, &key).0, columns).unwrap()
}

struct Both {
    store: Store,
    columns: Arc<RowGroupStore>,
    table: RowGroupTable,
    ours: SessionContext,
    plain: SessionContext,
}

fn both(loads: &[RecordBatch], deleted: impl Fn(i64, i32) -> bool) -> Both {
    let store = Store::in_memory(Options::default()).unwrap();
    let columns = Arc::new(RowGroupStore::new());
    let (definition, key) = orders();
    let table = RowGroupTable::open(&store, &columns, "orders", 1, definition, key).unwrap();
    let mut kept = Vec::new();
    for load in loads {
        table.append([load.clone()]).unwrap();
        let (a, b) = (
            load.column(0).as_primitive::<Int64Type>(),
            load.column(1).as_primitive::<datafusion::arrow::datatypes::Int32Type>(),
        );
        let keep: BooleanArray = (0..load.num_rows()).map(|row| Some(!deleted(a.value(row), b.value(row)))).collect();
        kept.push(datafusion::arrow::compute::filter_record_batch(load, &keep).unwrap());
        let mut transaction = store.begin();
        let view = View::Snapshot(store.snapshot());
        for row in (0..load.num_rows()).filter(|&row| deleted(a.value(row), b.value(row))) {
            let keys = super::writer::BatchKeys::of(&load.slice(row, 1), &[0, 1]);
            let (address, _) = columns.find(&view, table.table(), keys.get(0), &[]).unwrap().unwrap();
            columns.delete(&mut transaction, table.table(), &address).unwrap();
        }
        transaction.commit().unwrap();
    }
    let config = || SessionConfig::new().with_target_partitions(2);
    let (ours, plain) = (SessionContext::new_with_config(config()), SessionContext::new_with_config(config()));
    ours.register_table("orders", Arc::new(table.clone())).unwrap();
    let schema = table.table().schema.clone();
    plain.register_table("orders", Arc::new(MemTable::try_new(schema, vec![kept]).unwrap())).unwrap();
    Both { store, columns, table, ours, plain }
}

impl Both {
    async fn compare(&self, sql: &str) {
        let ours = self.ours.sql(sql).await.unwrap().collect().await.unwrap();
        let plain = self.plain.sql(sql).await.unwrap().collect().await.unwrap();
        let text = |batches| pretty_format_batches(batches).unwrap().to_string();
        assert_eq!(text(&ours), text(&plain), "{sql}");
    }
}

const QUERIES: &[&str] = &[
    "SELECT count(*), count(price), sum(price), min(day), max(comment) FROM orders",
    "SELECT count(*) FROM orders WHERE a BETWEEN 1000 AND 1100",
    "SELECT * FROM orders WHERE a = 77777 ORDER BY a, b",
    "SELECT mode, count(*), sum(price) FROM orders GROUP BY mode ORDER BY mode",
    "SELECT sum(price) FROM orders WHERE mode IN ('AIR', 'RAIL') AND day < DATE '1992-06-01' AND price > 100",
    "SELECT count(*) FROM orders WHERE mode IS NULL",
    "SELECT count(*) FROM orders WHERE mode IS NULL OR price IS NULL",
    "SELECT count(*) FROM orders WHERE comment LIKE '%99 of row%' AND mode LIKE '%NIGHT'",
    "SELECT a, b, comment FROM orders WHERE price = 999.99 ORDER BY a, b LIMIT 20",
    "SELECT a, b FROM orders ORDER BY comment DESC, a, b LIMIT 10",
    "SELECT count(*) FROM orders WHERE 10 / (b - 5) < 100 AND b < 2",
    "SELECT o.mode, count(*) FROM orders o JOIN (SELECT a, b FROM orders WHERE price < 1 AND mode = 'SHIP') p ON o.a = p.a GROUP BY o.mode ORDER BY 1",
    "SELECT count(*) FROM orders WHERE price > (SELECT avg(price) FROM orders)",
    "SELECT b, max(a) FROM orders WHERE mode <> 'AIR' GROUP BY b ORDER BY b",
    "SELECT day FROM orders WHERE a < 0",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_give_what_a_table_in_memory_gives() {
    let loads = [rows(0, 300_000), rows(100_000, 50_000), rows(-5_000, 700)];
    let both = both(&loads, |a, b| a % 1000 == 77 && b == 1);
    for sql in QUERIES {
        both.compare(sql).await;
    }
    assert!(both.table.table().key == [0, 1]);
}

#[tokio::test]
async fn conditions_are_the_scans_own_and_exclude_vectors_by_their_zones() {
    let both = both(&[rows(0, 300_000)], |_, _| false);
    let sql = "SELECT sum(price) FROM orders WHERE a BETWEEN 50000 AND 50010 AND mode = 'AIR'";
    let plan = both.ours.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let text = datafusion::physical_plan::displayable(plan.as_ref()).indent(true).to_string();
    assert!(!text.contains("FilterExec") && text.contains("RowGroupScan"), "{text}");
    assert!(text.contains("columns=[price]"), "{text}");
    datafusion::physical_plan::collect(plan.clone(), both.ours.task_ctx()).await.unwrap();
    let text = datafusion::physical_plan::displayable(plan.as_ref());
    let mut found = (0, 0);
    fn walk(plan: &Arc<dyn datafusion::physical_plan::ExecutionPlan>, found: &mut (usize, usize)) {
        if let Some(metrics) = plan.metrics() {
            let count = |name: &str| metrics.sum_by_name(name).map_or(0, |value| value.as_usize());
            *found = (found.0 + count("row_groups_pruned"), found.1 + count("vectors_pruned"));
        }
        plan.children().into_iter().for_each(|child| walk(child, found));
    }
    let _ = text;
    walk(&plan, &mut found);
    // Three row groups. One of them contains the keys, in one of its 15 vectors. It crosses the border of the two
    // partitions at key 50000, so both read it.
    assert_eq!(found, (2, 28));
}

#[tokio::test]
async fn tables_that_are_cut_at_the_same_keys_are_joined_and_grouped_without_dealing_rows_out() {
    let both = both(&[rows(0, 300_000)], |_, _| false);
    let provider = Arc::new(both.table.clone());
    let ours = SessionContext::new_with_config(super::session_config(2));
    ours.register_table("orders", provider.clone()).unwrap();
    ours.register_table("lines", provider).unwrap();
    for sql in [
        "SELECT sum(l.price) FROM orders o JOIN lines l ON o.a = l.a WHERE o.b < 2",
        "SELECT a, sum(price) AS total, max(day) FROM orders GROUP BY a ORDER BY total DESC, a LIMIT 3",
    ] {
        let plan = ours.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let text = datafusion::physical_plan::displayable(plan.as_ref()).indent(true).to_string();
        assert!(!text.contains("RepartitionExec"), "{text}");
        let found = datafusion::physical_plan::collect(plan, ours.task_ctx()).await.unwrap();
        let plain = both.plain.sql(&sql.replace("lines", "orders")).await.unwrap().collect().await.unwrap();
        let text = |batches: &[RecordBatch]| pretty_format_batches(batches).unwrap().to_string();
        assert_eq!(text(&found), text(&plain), "{sql}");
    }
}

#[test]
fn a_primary_key_is_there_once() {
    let both = both(&[rows(0, 150_000)], |a, b| a == 40 && b == 2);
    let again = |from: i64, count: usize| match both.table.append([rows(from, count)]) {
        Err(SqlError::Value(report)) => report.code,
        Err(other) => panic!("{other}"),
        Ok(_) => "",
    };
    assert_eq!(again(49_999, 3), "23505");
    assert_eq!(again(-10, 60_000), "23505");
    assert_eq!(again(50_000, 3), "");
    let twice =
        datafusion::arrow::compute::concat_batches(&rows(90_000, 3).schema(), &[rows(90_000, 3), rows(90_000, 1)])
            .unwrap();
    assert!(both.table.append([twice]).is_err());
    // A deleted row's key is free again.
    assert_eq!(again(40, 3), "23505");
    let freed = rows(40, 3).slice(2, 1);
    assert_eq!(both.table.append([freed]).unwrap(), 1);
}

#[test]
fn two_that_delete_one_row_conflict_and_two_that_delete_neighbours_do_not() {
    let both = both(&[rows(0, 20_000)], |_, _| false);
    let view = View::Snapshot(both.store.snapshot());
    let address = |row: usize| {
        let keys = super::writer::BatchKeys::of(&rows(0, 20_000).slice(row, 1), &[0, 1]);
        both.columns.find(&view, both.table.table(), keys.get(0), &[]).unwrap().unwrap().0
    };
    let delete = |row: usize| {
        let mut transaction = both.store.begin();
        both.columns.delete(&mut transaction, both.table.table(), &address(row)).unwrap();
        transaction
    };
    let (first, second, neighbour) = (delete(9000), delete(9000), delete(9001));
    first.commit().unwrap();
    assert!(matches!(second.commit(), Err(store::StoreError::Conflict)));
    neighbour.commit().unwrap();
}

#[test]
fn unsorted_rows_are_ordered_by_key_on_the_way_in() {
    let both = both(&[], |_, _| false);
    let batch = rows(0, 30_000);
    let backwards = datafusion::arrow::array::UInt32Array::from_iter_values((0..30_000).rev());
    both.table.append([datafusion::arrow::compute::take_record_batch(&batch, &backwards).unwrap()]).unwrap();
    let view = View::Snapshot(both.store.snapshot());
    let all: Vec<usize> = (0..batch.num_columns()).collect();
    for row in [0, 1, 8191, 8192, 29_999] {
        let keys = super::writer::BatchKeys::of(&batch.slice(row, 1), &[0, 1]);
        let (_, found) = both.columns.find(&view, both.table.table(), keys.get(0), &all).unwrap().unwrap();
        assert_eq!(found, batch.slice(row, 1));
    }
}

#[test]
fn rows_that_are_read_one_after_the_other_share_what_was_decoded() {
    let batch = rows(0, 10_000);
    let both = both(std::slice::from_ref(&batch), |a, _| a == 2);
    let (view, table) = (View::Snapshot(both.store.snapshot()), both.table.table());
    let keys = super::writer::BatchKeys::of(&batch, &[0, 1]);
    let mut reader = both.columns.rows(&view, table, &[1, 2]);
    let mut last = None;
    for row in [0, 1, 8191, 8192, 9999] {
        let address = reader.with_key(table, keys.get(row)).unwrap().unwrap();
        let (columns, at) = reader.at(table, &address).unwrap().unwrap();
        assert_eq!(&columns[1].slice(at, 1), &batch.column(2).slice(row, 1));
        let is_same = last.replace(columns[1].clone()).is_some_and(|last| Arc::ptr_eq(&last, &columns[1]));
        assert_eq!(is_same, row > 0 && row != 8192, "row {row}");
    }
    let a = batch.column(0).as_primitive::<Int64Type>();
    let gone = (0..batch.num_rows()).find(|row| a.value(*row) == 2).unwrap();
    assert_eq!(reader.with_key(table, keys.get(gone)).unwrap(), None);
    assert!(reader.at(table, &super::Address { row_group: 1, row: gone as u32 }.encode()).unwrap().is_none());
}

fn hex(bytes: &[u8]) -> String {
    let line = |(at, line): (usize, &[u8])| {
        let bytes: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04x}  {}\n", at * 16, bytes.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[test]
fn the_format_is_the_one_in_the_golden_dump() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("plain, double precision", Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-2.0)]))),
        ("narrow, bigint", Arc::new(Int64Array::from(vec![1000, 1003, 1001]))),
        (
            "dictionary, text",
            Arc::new((0..16).map(|row| (row != 3).then_some(["AIR", "SHIP"][row % 2])).collect::<StringViewArray>()),
        ),
        ("text, text", Arc::new(StringViewArray::from(vec!["one", "", "three"]))),
        ("bits, boolean", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("plain, uuid", uuids([Some(0xa0ee_bc99 << 96 | 0x11), None, Some(7)].into_iter())),
    ];
    let mut text = String::new();
    for (what, column) in &columns {
        for (first, bytes) in encode(column).unwrap() {
            text += &format!("chunk: {what}, from vector {first}\n{}\n", hex(&bytes));
        }
    }
    let facts = |column: &ArrayRef| {
        ColumnMetadata::new(vec![0], 3, Zone::of(column).unwrap(), vec![Zone::of(column).unwrap()]).unwrap()
    };
    let keys = vec![b"first".to_vec(), b"last".to_vec()];
    let metadata = RowGroupMetadata { rows: 3, keys, columns: [1, 3, 4, 5].map(|at| facts(&columns[at].1)).to_vec() };
    text += &format!(
        "metadata of a row group of three rows: bigint, text, boolean, uuid\n{}",
        hex(&metadata.encode().unwrap())
    );
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/column/golden.txt");
    let golden = std::fs::read_to_string(golden).unwrap_or_default();
    assert!(text == golden, "the format is now:\n{text}");
}

#[test]
fn rows_move_from_row_form_a_row_group_at_a_time_and_numbers_of_row_groups_go_on() {
    let both = both(&[], |_, _| false);
    let (table, batch) = (both.table.table(), rows(0, ROW_GROUP_ROWS + 2000));
    let mut transaction = both.store.begin();
    let encoder = crate::table::row_encoding::RowEncoder::new(table, batch.columns());
    let keys = super::writer::BatchKeys::of(&batch, &[0, 1]);
    for row in 0..batch.num_rows() {
        let mut bytes = Vec::new();
        encoder.encode(row, &mut bytes).unwrap();
        transaction.put(table.rows, keys.get(row), &bytes).unwrap();
    }
    transaction.commit().unwrap();
    assert_eq!(both.columns.move_rows(both.store.begin(), table, 2001, |_, _| false, |_, _| Ok(())).unwrap(), 0);
    assert_eq!(
        both.columns.move_rows(both.store.begin(), table, 2000, |_, _| false, |_, _| Ok(())).unwrap(),
        ROW_GROUP_ROWS
    );
    assert_eq!(both.columns.move_rows(both.store.begin(), table, 0, |_, _| false, |_, _| Ok(())).unwrap(), 0);
    let view = View::Snapshot(both.store.snapshot());
    let all: Vec<usize> = (0..batch.num_columns()).collect();
    for row in [0, 8192, ROW_GROUP_ROWS - 1] {
        let (_, found) = both.columns.find(&view, table, keys.get(row), &all).unwrap().unwrap();
        assert_eq!(found, batch.slice(row, 1));
        assert_eq!(view.get(table.rows, keys.get(row)).unwrap(), None);
    }
    assert!(both.columns.find(&view, table, keys.get(ROW_GROUP_ROWS), &[]).unwrap().is_none());
    assert!(view.get(table.rows, keys.get(ROW_GROUP_ROWS)).unwrap().is_some());
    // Another process does not know which numbers this one has used.
    let other = Arc::new(RowGroupStore::new());
    let mut appender = other.append(table);
    let mut transaction = both.store.begin();
    appender.push(&mut transaction, rows(1_000_000, 10)).unwrap();
    appender.finish(&mut transaction).unwrap();
    transaction.commit().unwrap();
    let view = View::Snapshot(both.store.snapshot());
    let keys = super::writer::BatchKeys::of(&rows(1_000_000, 1), &[0, 1]);
    let (address, _) = other.find(&view, table, keys.get(0), &[]).unwrap().unwrap();
    assert_eq!(super::Address::decode(&address).unwrap().row_group, 2);
}

#[test]
fn a_compacted_row_groups_number_is_not_given_again_while_it_is_known() {
    let both = both(&[rows(0, 3000), rows(10_000, 3000)], |a, _| a >= 10_000);
    // As in another process that opens the store: it knows neither the used numbers nor the metadata that was read.
    let (table, columns) = (both.table.table(), RowGroupStore::new());
    let before = View::Snapshot(both.store.snapshot());
    let gone = columns.compact(both.store.begin(), table, |_, _| Ok(())).unwrap();
    assert_eq!(gone, Some(Compacted { row_groups: 1, rows: 0 }));
    assert_eq!(columns.compact(both.store.begin(), table, |_, _| Ok(())).unwrap(), None);
    let mut transaction = both.store.begin();
    let mut appender = columns.append(table);
    appender.push(&mut transaction, rows(10_000, 50)).unwrap();
    appender.finish(&mut transaction).unwrap();
    transaction.commit().unwrap();
    drop(before);
    assert_eq!(
        columns.compact(both.store.begin(), table, |_, _| Ok(())).unwrap(),
        None,
        "what no view sees is forgotten"
    );
    let view = View::Snapshot(both.store.snapshot());
    let key = super::writer::BatchKeys::of(&rows(10_000, 50), &[0, 1]);
    let (address, _) = columns.find(&view, table, key.get(49), &[]).unwrap().unwrap();
    assert_eq!(super::Address::decode(&address).unwrap(), super::Address { row_group: 3, row: 49 });
}

#[test]
fn a_view_from_before_a_compaction_finds_keys_where_they_were() {
    let both = both(&[rows(0, 3000)], |a, _| a % 5 < 2);
    // As in another process that opens the store: it knows neither the used numbers nor the metadata that was read.
    let (table, columns) = (both.table.table(), RowGroupStore::new());
    let before = View::Snapshot(both.store.snapshot());
    let compacted = columns.compact(both.store.begin(), table, |_, _| Ok(())).unwrap();
    assert_eq!(compacted, Some(Compacted { row_groups: 1, rows: 1800 }));
    let after = View::Snapshot(both.store.snapshot());
    let keys = super::writer::BatchKeys::of(&rows(0, 3000), &[0, 1]);
    for (view, row_group) in [(&after, 2), (&before, 1)] {
        for row in [0, 6, 9, 1500, 1506, 2999] {
            let found = columns.find(view, table, keys.get(row), &[]).unwrap();
            let row_groups = found.map(|(address, _)| super::Address::decode(&address).unwrap().row_group);
            assert_eq!(row_groups, (row / 3 % 5 >= 2).then_some(row_group), "row {row}");
        }
    }
}

#[test]
fn of_a_compaction_and_a_deletion_beside_it_the_first_to_commit_wins() {
    for compaction_first in [true, false] {
        let both = both(&[rows(0, 3000)], |a, _| a % 5 < 2);
        let (table, columns) = (both.table.table(), &both.columns);
        let (mut deletion, compaction) = (both.store.begin(), both.store.begin());
        let view = View::Snapshot(deletion.snapshot().clone());
        let keys = super::writer::BatchKeys::of(&rows(0, 3000), &[0, 1]);
        let (address, _) = columns.find(&view, table, keys.get(2999), &[]).unwrap().unwrap();
        columns.delete(&mut deletion, table, &address).unwrap();
        let (compacted, deleted) = if compaction_first {
            let compacted = columns.compact(compaction, table, |_, _| Ok(()));
            (compacted, deletion.commit())
        } else {
            let deleted = deletion.commit();
            (columns.compact(compaction, table, |_, _| Ok(())), deleted)
        };
        if compaction_first {
            assert_eq!(compacted.unwrap(), Some(Compacted { row_groups: 1, rows: 1800 }));
            assert!(matches!(deleted, Err(store::StoreError::Conflict)), "{deleted:?}");
        } else {
            assert!(matches!(compacted, Err(SqlError::Again(_))), "{compacted:?}");
            deleted.unwrap();
        }
        let after = View::Snapshot(both.store.snapshot());
        assert_eq!(columns.find(&after, table, keys.get(2999), &[]).unwrap().is_some(), compaction_first);
    }
}
