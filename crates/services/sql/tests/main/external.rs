//! External tables: Parquet files as tables, the folders that may contain them, and the reaction to changed files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, TimestampNanosecondArray};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use device::{MemoryShelf, Shelf};
use futures::TryStreamExt;
use sql::{Engine, EngineOptions, Session, SqlError, StatementResult};
use store::{Options, Places, Store};
use tempfile::TempDir;

use crate::support::{check, run};

/// Rows `(id, name, at)` from `from` on.
fn rows(from: i64, many: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + many));
    let names: ArrayRef =
        Arc::new(StringArray::from_iter((from..from + many).map(|id| (id % 3 > 0).then(|| format!("n{id}")))));
    let at = (from..from + many).map(|id| id * 1_000_000_000);
    let at: ArrayRef = Arc::new(TimestampNanosecondArray::from_iter_values(at));
    RecordBatch::try_from_iter([("id", ids), ("name", names), ("at", at)]).expect("columns of one length")
}

/// Rows of a row group. A query has a few row groups in memory before its client takes the first rows.
const GROUP_ROWS: usize = 1 << 12;

fn write(path: &Path, batch: &RecordBatch) {
    // As other programs should do it: whole files, renamed to their place.
    let new = path.with_extension("new");
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP_ROWS)).build();
    let mut writer =
        ArrowWriter::try_new(File::create(&new).expect("a file to write"), batch.schema(), Some(properties))
            .expect("a file to write");
    writer.write(batch).expect("a file to write");
    writer.close().expect("a file to write");
    std::fs::rename(new, path).expect("a file to write");
}

fn engine(store: &Store, folder: &Path) -> Arc<Engine> {
    let options = EngineOptions { threads: 2, external: vec![folder.to_owned()], ..EngineOptions::default() };
    Engine::new(store.clone(), options).expect("an engine starts")
}

fn place() -> (TempDir, Store, Session) {
    let folder = tempfile::tempdir().expect("a place for the test");
    let store = Store::in_memory(Options::default()).expect("a place for the test");
    let session = engine(&store, folder.path()).session("tester");
    (folder, store, session)
}

/// Runs each text after replacing `{}` by the folder; see [`check`].
async fn check_in(session: &mut Session, folder: &Path, script: &[(&str, &str)]) {
    for (sql, expected) in script {
        let sql = sql.replace("{}", &folder.display().to_string());
        check(session, &[(&sql, expected)]).await;
    }
}

#[tokio::test]
async fn files_of_a_folder_are_a_table_that_is_only_read() {
    let (folder, store, mut s) = place();
    write(&folder.path().join("a.parquet"), &rows(0, 4000));
    write(&folder.path().join("b.parquet"), &rows(4000, 3));
    std::fs::write(folder.path().join("notes.txt"), "no rows").unwrap();
    std::fs::create_dir(folder.path().join("old.parquet")).unwrap();
    check_in(
        &mut s,
        folder.path(),
        &[
            ("CREATE EXTERNAL TABLE e STORED AS PARQUET LOCATION '{}'", "CREATE EXTERNAL TABLE"),
            ("CREATE EXTERNAL TABLE f (name varchar(9), id int) STORED AS PARQUET LOCATION 'file://{}/b.parquet'", "CREATE EXTERNAL TABLE"),
            ("SELECT count(*), sum(id), count(name), max(at) FROM e", "4003|8010003|2668|1970-01-01T01:06:42"),
            ("SELECT * FROM e WHERE id BETWEEN 3999 AND 4001 ORDER BY id", "3999|NULL|1970-01-01T01:06:39\n4000|n4000|1970-01-01T01:06:40\n4001|n4001|1970-01-01T01:06:41"),
            ("SELECT f.name, e.at FROM f JOIN e ON e.id = f.id WHERE f.id > 4000 ORDER BY 1", "n4001|1970-01-01T01:06:41\nNULL|1970-01-01T01:06:42"),
            ("INSERT INTO e VALUES (1)", "error 42809: \"e\" is an external table"),
            ("UPDATE e SET id = 1", "error 42809"),
            ("DELETE FROM e", "error 42809"),
            ("TRUNCATE e", "error 42809"),
            ("ALTER TABLE e ADD COLUMN x int", "error 42809"),
            ("CREATE TABLE copied AS SELECT * FROM e WHERE id < 10", "SELECT 10"),
            ("CREATE EXTERNAL TABLE e STORED AS PARQUET LOCATION '{}'", "error 42P07"),
            ("CREATE EXTERNAL TABLE IF NOT EXISTS e STORED AS PARQUET LOCATION '{}'", "CREATE EXTERNAL TABLE"),
            (
                "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_name = 'f' ORDER BY ordinal_position",
                "f|name|character varying\nf|id|integer",
            ),
            ("SELECT table_type FROM information_schema.tables WHERE table_name IN ('e', 'f')", "BASE TABLE\nBASE TABLE"),
            ("DROP VIEW e", "error 42809"),
            ("BEGIN; DROP TABLE e", "BEGIN\nDROP TABLE"),
            ("SELECT count(*) FROM e", "error 42P01"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT count(*) FROM e", "4003"),
            ("DROP TABLE e", "DROP TABLE"),
            ("SELECT count(*) FROM e", "error 42P01"),
        ],
    )
    .await;
    assert!(folder.path().join("a.parquet").exists(), "DROP leaves the files");
    let metrics = store.metrics().cache;
    assert!(metrics.external_hits > metrics.external_misses && metrics.external_misses >= 2, "{metrics:?}");
}

#[tokio::test]
async fn an_external_table_is_there_after_a_restart_and_only_where_its_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &rows(0, 5));
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let places = || Places { journal: shelf.clone(), images: shelf.clone(), data: shelf.clone() };
    let (store, _) = Store::open(places(), Options::default()).unwrap();
    let mut s = engine(&store, folder.path()).session("a");
    check_in(
        &mut s,
        folder.path(),
        &[("CREATE EXTERNAL TABLE e STORED AS PARQUET LOCATION '{}'", "CREATE EXTERNAL TABLE")],
    )
    .await;
    drop(s);
    store.close().unwrap();
    let (store, _) = Store::open(places(), Options::default()).unwrap();
    check(&mut engine(&store, folder.path()).session("b"), &[("SELECT count(*) FROM e", "5")]).await;
    let other = tempfile::tempdir().unwrap();
    check(&mut engine(&store, other.path()).session("c"), &[("SELECT count(*) FROM e", "error 42501")]).await;
    let mut none = Engine::new(store, EngineOptions::default()).unwrap().session("d");
    check(&mut none, &[("SELECT count(*) FROM e", "error 55000"), ("SELECT 1", "1"), ("DROP TABLE e", "DROP TABLE")])
        .await;
}

#[tokio::test]
async fn what_lies_elsewhere_or_is_no_parquet_or_says_too_much_is_refused() {
    let (folder, _, mut s) = place();
    let outside = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &rows(0, 5));
    write(&outside.path().join("secret.parquet"), &rows(0, 5));
    std::fs::create_dir(folder.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.parquet"), folder.path().join("linked/l.parquet")).unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    std::fs::write(folder.path().join("broken"), "PAR1 and nothing").unwrap();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    write(&folder.path().join("lists"), &RecordBatch::try_from_iter([("l", Arc::new(lists) as ArrayRef)]).unwrap());
    let secret =
        format!("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/secret.parquet'", outside.path().display());
    check(&mut s, &[(&secret, "error 42501")]).await;
    check_in(
        &mut s,
        folder.path(),
        &[
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/../'", "error 42501"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/linked/l.parquet'", "error 42501"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/linked'", "error 42501"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '/etc/passwd'", "error 42501"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION 'a.parquet'", "error 42501"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION 's3://bucket/x'", "error 0A000"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/none'", "error 58P01"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/empty'", "error 58P01"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/broken'", "error"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}/lists'", "error 0A000"),
            ("CREATE EXTERNAL TABLE x STORED AS ORC LOCATION '{}'", "error 0A000"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET", "error 42601"),
            ("CREATE EXTERNAL TABLE x (id int NOT NULL) STORED AS PARQUET LOCATION '{}'", "error 0A000"),
            ("CREATE EXTERNAL TABLE x (id int, PRIMARY KEY (id)) STORED AS PARQUET LOCATION '{}'", "error 0A000"),
            ("CREATE EXTERNAL TABLE x (nosuch int) STORED AS PARQUET LOCATION '{}'", "error 42703"),
            ("CREATE EXTERNAL TABLE x (at boolean) STORED AS PARQUET LOCATION '{}'", "error 42804"),
            ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}' OPTIONS (a = 'b')", "error 0A000"),
            ("SELECT * FROM '{}/a.parquet'", "error"),
            ("SELECT count(*) FROM x", "error 42P01"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_replaced_file_is_read_anew_and_a_vanished_one_is_an_error() {
    let (folder, _, mut s) = place();
    let file = folder.path().join("a.parquet");
    write(&file, &rows(0, 10));
    let make = [
        ("CREATE EXTERNAL TABLE one STORED AS PARQUET LOCATION '{}/a.parquet'", "CREATE EXTERNAL TABLE"),
        ("CREATE EXTERNAL TABLE all_of STORED AS PARQUET LOCATION '{}'", "CREATE EXTERNAL TABLE"),
        ("SELECT count(*), sum(id) FROM one", "10|45"),
    ];
    check_in(&mut s, folder.path(), &make).await;
    write(&file, &rows(100, 10));
    write(&folder.path().join("b.parquet"), &rows(0, 1));
    check(&mut s, &[("SELECT count(*), sum(id) FROM one", "10|1045"), ("SELECT sum(id) FROM all_of", "1045")]).await;
    std::fs::remove_file(&file).unwrap();
    check(&mut s, &[("SELECT count(*) FROM one", "error 58P01"), ("SELECT sum(id) FROM all_of", "0")]).await;
    std::fs::remove_file(folder.path().join("b.parquet")).unwrap();
    check(&mut s, &[("SELECT sum(id) FROM all_of", "error 58P01")]).await;
    std::fs::remove_dir(folder.path()).unwrap();
    check(&mut s, &[("SELECT sum(id) FROM all_of", "error 58P01"), ("SELECT 1", "1")]).await;
}

#[tokio::test]
async fn a_query_whose_file_changes_under_it_fails_and_says_so() {
    for vanishes in [false, true] {
        let (folder, _, mut s) = place();
        let file = folder.path().join("a.parquet");
        // Far more than is read ahead of the client: the query is still running when the file changes.
        write(&file, &rows(0, 64 * GROUP_ROWS as i64));
        check_in(
            &mut s,
            folder.path(),
            &[("CREATE EXTERNAL TABLE e STORED AS PARQUET LOCATION '{}'", "CREATE EXTERNAL TABLE")],
        )
        .await;
        let prepared = s.prepare("SELECT id FROM e", &[]).await.unwrap();
        let StatementResult::Rows { stream, .. } = s.execute(&prepared[0], &[]).await.unwrap() else {
            panic!("no rows")
        };
        match vanishes {
            true => std::fs::remove_file(&file).unwrap(),
            false => write(&file, &rows(0, 64 * GROUP_ROWS as i64 + 1)),
        }
        let error = SqlError::from(stream.try_collect::<Vec<_>>().await.unwrap_err());
        assert_eq!(error.code(), if vanishes { "58P01" } else { "58030" }, "{error}");
        assert!(error.to_string().contains("a.parquet"), "{error}");
        let again = run(&mut s, "SELECT count(*) FROM e").await;
        assert_eq!(again.starts_with("error 58P01"), vanishes, "{again}");
    }
}
