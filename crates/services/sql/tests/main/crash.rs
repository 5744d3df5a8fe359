//! Every moment at which the power may fail during a random history of SQL, with the real engine on the real store, on
//! a simulated shelf. A confirmed commit is present; any other transaction is present as a whole or not at all; the
//! contents are those of all tables after one of the commits.
//!
//! The history runs one session after the other, so commits have an order. The engine itself reads the contents of the
//! tables after each commit, and the engine that is opened after the power failure reads them again.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use device::{CrashShelf, Shelf};
use sql::engine::read_tables;
use sql::{Engine, EngineOptions, Session, SqlError, StatementResult};
use store::{Options, Places, Store, StoreError, verify_places};

use crate::support::try_run;

const TEST: &str = "crash::a_power_failure_at_any_point_leaves_every_answered_commit_and_no_half_of_one";

/// The smallest size of each structure, without threads: every run of a history is the same.
fn options() -> Options {
    let journal = journal::Options {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        preparation: journal::Preparation::Inline,
        identity: 0x5eed_1d00,
        ..journal::Options::default()
    };
    Options {
        journal,
        page_bytes: 4096,
        cache_bytes: 4 << 20,
        data_device_bytes: 1 << 20,
        images_device_bytes: 64 << 10,
        transaction_bytes: 24 << 10,
        background: false,
        clock: Arc::new(|| 1),
        ..Options::default()
    }
}

fn places(shelf: &Arc<CrashShelf>) -> Places {
    let shelf: Arc<dyn Shelf> = shelf.clone();
    Places { journal: shelf.clone(), images: shelf.clone(), data: shelf }
}

pub(crate) fn open(shelf: &Arc<CrashShelf>) -> Result<(Store, Arc<Engine>), SqlError> {
    open_with(shelf, EngineOptions::default().row_group_rows)
}

/// The same, with row groups of so many rows.
pub(crate) fn open_with(shelf: &Arc<CrashShelf>, row_group_rows: usize) -> Result<(Store, Arc<Engine>), SqlError> {
    let (store, _) = Store::open(places(shelf), options())?;
    let engine_options = EngineOptions { threads: 1, row_group_rows, tuple_mover: None, ..EngineOptions::default() };
    let engine = Engine::new(store.clone(), engine_options)?;
    Ok((store, engine))
}

/// All tables with their columns, keys, indexes and rows, as text.
async fn dump(engine: &Arc<Engine>) -> Result<String, SqlError> {
    let mut session = engine.session("reader");
    let mut text = String::new();
    for table in engine.tables()?.tables() {
        let columns: Vec<String> =
            table.columns.iter().map(|column| format!("{} {:?}", column.name, column.kind)).collect();
        let index = |index: &sql::table::Index| format!("{} {:?} {}", index.name, index.columns, index.unique);
        let indexes: Vec<String> = table.indexes.iter().map(index).collect();
        let rows = try_run(&mut session, &format!("SELECT * FROM {} ORDER BY 1, 2", table.name), &[]).await?;
        let (name, columns, indexes) = (&table.name, columns.join(", "), indexes.join(", "));
        let (key, foreign) = (&table.key, &table.foreign_keys);
        text += &format!("{name} ({columns}), key {key:?}, indexes {indexes}, foreign keys {foreign:?}\n{rows}\n");
    }
    Ok(text)
}

/// The contents of the tables after each commit, and when the commit was confirmed.
pub(crate) struct History {
    pub(crate) states: Vec<String>,
    /// The number of operations of the shelf at that time, and the number of the state.
    answered: Vec<(usize, usize)>,
}

impl History {
    /// A history that begins with no tables.
    pub(crate) fn new() -> History {
        History { states: vec![String::new()], answered: Vec::new() }
    }

    /// What was done until now is confirmed.
    pub(crate) async fn note(&mut self, engine: &Arc<Engine>, shelf: &CrashShelf) {
        let operations = shelf.operations();
        let state = dump(engine).await.expect("it reads");
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
        self.answered.push((operations, self.states.len() - 1));
    }

    fn check(&self, point: usize, found: &str) -> Result<(), String> {
        let least = self.answered.iter().rfind(|(when, _)| *when <= point).map_or(0, |(_, state)| *state);
        match self.states[least..].iter().take(2).position(|state| state == found) {
            Some(_) => Ok(()),
            None => Err(format!(
                "neither the state behind commit {least}, which was answered, nor the next:\n{found}\nbut\n{}",
                self.states[least]
            )),
        }
    }
}

/// The changes of one statement, all with the same number, so that a partial transaction is visible.
fn change(random: &mut fastrand::Rng, number: usize) -> String {
    let id = random.u32(..40);
    let text = "x".repeat([3, 200, 3000, 9000][random.usize(..4)]);
    match random.u8(..8) {
        0 => format!("DELETE FROM t WHERE id = {id} OR id = {}", id + 1),
        1 => format!("UPDATE t SET v = {number} WHERE id % 7 = {}", id % 7),
        2 => format!("INSERT INTO u SELECT id, v FROM t WHERE id < {id}"),
        3 => format!("DELETE FROM u WHERE v < {}", number.saturating_sub(10)),
        4 => format!("UPDATE t SET body = '{text}', v = {number} WHERE id = {id}"),
        _ => format!(
            "INSERT INTO t VALUES ({id}, {number}, '{text}'), ({}, {number}, NULL) ON CONFLICT DO NOTHING",
            id + 100
        ),
    }
}

async fn copy(session: &mut Session, random: &mut fastrand::Rng, number: usize) {
    let prepared = session.prepare("COPY u FROM STDIN", &[]).await.expect("it parses").remove(0);
    let StatementResult::CopyIn(mut copy) = session.execute(&prepared, &[]).await.expect("it begins") else {
        panic!("COPY .. FROM STDIN takes rows")
    };
    let rows = random.usize(1..60);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row as i64)));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| number as i64)));
    let columns = [ids, numbers].map(|column| {
        let text = datafusion::arrow::compute::cast(&column, &datafusion::arrow::datatypes::DataType::Utf8);
        text.expect("numbers are text, too")
    });
    let batch = RecordBatch::try_from_iter(["id", "v"].into_iter().zip(columns)).expect("columns are of one length");
    assert!(batch.column(0).as_any().is::<StringArray>());
    copy.push(batch).await.expect("rows are taken");
    copy.finish().await.expect("it ends");
}

/// One transaction of a random kind; each is confirmed before the next.
async fn transaction(session: &mut Session, random: &mut fastrand::Rng, number: usize) {
    let run = async |session: &mut Session, sql: &str| {
        try_run(session, sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    match random.u8(..10) {
        0 => copy(session, random, number).await,
        1 => {
            run(session, "BEGIN").await;
            run(session, &format!("CREATE TABLE made{number} AS SELECT id, v FROM t WHERE v > 2")).await;
            if number.is_multiple_of(2) {
                run(session, &format!("ALTER TABLE made{number} ADD PRIMARY KEY (id)")).await;
            }
            run(session, "COMMIT").await;
        }
        2 => run(session, &format!("ALTER TABLE t ADD COLUMN c{number} int")).await,
        3..=5 => run(session, &change(random, number)).await,
        kind => {
            run(session, "BEGIN").await;
            for step in 0..random.usize(2..5) {
                if step == 1 && kind == 6 {
                    run(session, "SAVEPOINT s").await;
                }
                run(session, &change(random, number)).await;
                if step == 1 && kind == 6 {
                    run(session, "ROLLBACK TO s").await;
                }
            }
            run(session, if kind == 7 { "ROLLBACK" } else { "COMMIT" }).await;
        }
    }
}

async fn live(shelf: &Arc<CrashShelf>, seed: u64) -> History {
    let random = &mut fastrand::Rng::with_seed(seed);
    let mut history = History::new();
    let mut number = 0;
    for life in 0..3 {
        let (store, engine) = open(shelf).expect("it opens");
        let mut session = engine.session("writer");
        if life == 0 {
            for sql in [
                "CREATE TABLE t (id int PRIMARY KEY, v bigint NOT NULL, body text)",
                "CREATE TABLE u (id bigint, v bigint)",
            ] {
                try_run(&mut session, sql, &[]).await.expect("it is made");
                history.note(&engine, shelf).await;
            }
        }
        for _ in 0..12 {
            number += 1;
            transaction(&mut session, random, number).await;
            history.note(&engine, shelf).await;
            if number.is_multiple_of(5) {
                store.checkpoint().expect("it writes");
            }
        }
        drop((session, engine));
        if life == 1 {
            store.close().expect("it closes");
        }
    }
    history
}

/// Opens what a power failure has left: it is the last confirmed state or the next one, and indexes have its rows.
pub(crate) async fn recover(history: &History, point: usize, after: &Arc<CrashShelf>) -> Result<(), String> {
    match verify_places(&places(after), &mut |_| ()) {
        Ok(report) if report.is_sound() => {}
        Ok(report) => return Err(format!("before opening:\n{report}")),
        // Before the table is created there is none.
        Err(StoreError::Refused(_)) => {}
        Err(error) => return Err(format!("before opening: {error}")),
    }
    // Twice, because recovery itself has written.
    for _ in 0..2 {
        let (store, engine) = open(after).map_err(|error| error.to_string())?;
        let found = dump(&engine).await.map_err(|error| error.to_string())?;
        history.check(point, &found)?;
        let options = EngineOptions { threads: 1, tuple_mover: None, ..EngineOptions::default() };
        let reports = read_tables(store, options).await.map_err(|error| error.to_string())?;
        if let Some(problem) = reports.into_iter().find_map(|report| report.problem) {
            return Err(problem);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_power_failure_at_any_point_leaves_every_answered_commit_and_no_half_of_one() {
    let seed = std::env::var("SEED").map_or(7, |text| text.parse().expect("SEED is a number"));
    let shelf = Arc::new(CrashShelf::new(seed));
    let history = live(&shelf, seed).await;
    assert!(history.states.len() > 20, "only {} states: too few to mean anything", history.states.len());
    let mut images = 0;
    // One of the images of each point, another one each time.
    for point in shelf.points() {
        let all: Vec<_> = shelf.images(point).collect();
        let Some(image) = all.get(point % all.len().max(1)) else { continue };
        let after = Arc::new(image.shelf());
        recover(&history, point, &after).await.unwrap_or_else(|why| {
            panic!("{image}: {why}\nreplay: SEED={seed} cargo test -p sql --test main {TEST} -- --exact --nocapture")
        });
        images += 1;
    }
    println!("{} operations, {} states, {images} images", shelf.operations(), history.states.len());
    assert!(images > 200, "only {images} images: too few to mean anything");
}
