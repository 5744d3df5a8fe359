//! Random histories over delta store and column store, compared with a simple model, with stores that are reopened.
//! Also every moment at which the power may fail while rows go to row groups in bulk and in the background, and while
//! row groups are compacted.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array};
use device::{CrashShelf, MemoryShelf, Shelf};
use sql::{Engine, Session};
use store::{Options, Places, Store};

use crate::support::{copy, run, with_row_groups_of};

const ROW_GROUP_ROWS: usize = 30;

type Model = BTreeMap<i32, i64>;

fn seed(usual: u64) -> u64 {
    std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn places(shelf: &Arc<dyn Shelf>) -> Places {
    Places { journal: shelf.clone(), images: shelf.clone(), data: shelf.clone() }
}

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
        images_device_bytes: 256 << 10,
        background: false,
        clock: Arc::new(|| 1),
        ..Options::default()
    }
}

fn lines(model: &Model) -> String {
    model.iter().map(|(id, v)| format!("{id}|{v}")).collect::<Vec<_>>().join("\n")
}

/// A store, a session, and the contents that they should have.
struct Life {
    engine: Arc<Engine>,
    session: Session,
    random: fastrand::Rng,
    is_keyed: bool,
    model: Model,
    /// In a transaction: the contents before it, then those at each savepoint.
    before: Vec<Model>,
    seed: u64,
}

impl Life {
    async fn expect(&mut self, sql: &str, answer: &str) {
        let got = run(&mut self.session, sql).await;
        assert_eq!(got, answer, "SEED={}: {sql}", self.seed);
    }

    fn range(&mut self) -> (i32, i32) {
        let from = self.random.i32(0..400);
        (from, from + self.random.i32(0..60))
    }

    /// Rows with new keys, often more than a row group of them.
    fn fresh(&mut self) -> Vec<(i32, i64)> {
        let (from, count) = (self.random.i32(0..400), self.random.i32(1..90));
        let mut rows: Vec<(i32, i64)> = (from..from + count).map(|id| (id, i64::from(id) * 7)).collect();
        rows.retain(|(id, _)| !self.model.contains_key(id));
        if self.random.bool() {
            self.random.shuffle(&mut rows);
        }
        rows
    }

    async fn add(&mut self) {
        let rows = self.fresh();
        if rows.is_empty() {
            return;
        }
        if self.random.bool() {
            let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|(id, _)| *id)));
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, v)| *v)));
            let copied = copy(&mut self.session, "COPY t FROM STDIN", vec![ids, values]).await;
            assert_eq!(copied.unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed)), rows.len() as u64);
        } else {
            let values: Vec<String> = rows.iter().map(|(id, v)| format!("({id}, {v})")).collect();
            let tag = format!("INSERT 0 {}", rows.len());
            self.expect(&format!("INSERT INTO t VALUES {}", values.join(", ")), &tag).await;
        }
        self.model.extend(rows);
    }

    /// Adds keys that may exist: they are refused, or skipped.
    async fn add_again(&mut self) {
        let (from, to) = self.range();
        let there = self.model.range(from..=to).count() as i32;
        let query = format!("INSERT INTO t SELECT i, 1 FROM generate_series({from}, {to}) AS g(i)");
        if there > 0 && self.before.is_empty() {
            let got = run(&mut self.session, &query).await;
            assert!(got.starts_with("error 23505"), "SEED={}: {query} gave {got}", self.seed);
        }
        let tag = format!("INSERT 0 {}", to - from + 1 - there);
        self.expect(&format!("{query} ON CONFLICT DO NOTHING"), &tag).await;
        (from..=to).for_each(|id| _ = self.model.entry(id).or_insert(1));
    }

    async fn change(&mut self) {
        let (from, to) = self.range();
        match self.random.u8(..5) {
            0 => {
                let tag = format!("UPDATE {}", self.model.range(from..=to).count());
                self.expect(&format!("UPDATE t SET v = v + 1 WHERE id BETWEEN {from} AND {to}"), &tag).await;
                self.model.range_mut(from..=to).for_each(|(_, v)| *v += 1);
            }
            1 => {
                let tag = format!("UPDATE {}", u8::from(self.model.contains_key(&from)));
                self.expect(&format!("UPDATE t SET v = {to} WHERE id = {from}"), &tag).await;
                self.model.entry(from).and_modify(|v| *v = i64::from(to));
            }
            2 => {
                let gone: Vec<i32> = self.model.range(from..=to).map(|(id, _)| *id).collect();
                let sql = format!("DELETE FROM t WHERE id >= {from} AND id <= {to} RETURNING id");
                let got = run(&mut self.session, &sql).await;
                let mut found: Vec<i32> = got.lines().map(|id| id.parse().expect("a number")).collect();
                found.sort_unstable();
                assert_eq!(found, gone, "SEED={}: {sql}", self.seed);
                self.model.retain(|id, _| !(from..=to).contains(id));
            }
            3 => {
                let tag = format!("DELETE {}", u8::from(self.model.remove(&from).is_some()));
                self.expect(&format!("DELETE FROM t WHERE id = {from}"), &tag).await;
            }
            _ => {
                // Shifts all keys of a range by one, if no other key is in the way.
                let moved: Model = self.model.range(from..=to).map(|(id, v)| (id + 1, *v)).collect();
                if !self.model.contains_key(&(to + 1)) {
                    let sql = format!("UPDATE t SET id = id + 1 WHERE id BETWEEN {from} AND {to}");
                    self.expect(&sql, &format!("UPDATE {}", moved.len())).await;
                    self.model.retain(|id, _| !(from..=to).contains(id));
                    self.model.extend(moved);
                }
            }
        }
    }

    async fn transaction(&mut self) {
        match (self.before.len(), self.random.u8(..3)) {
            (0, _) => {
                self.expect("BEGIN", "BEGIN").await;
                self.before.push(self.model.clone());
            }
            (_, 0) => {
                self.expect("COMMIT", "COMMIT").await;
                self.before.clear();
            }
            (1, 1) => {
                self.expect("ROLLBACK", "ROLLBACK").await;
                self.model = self.before.swap_remove(0);
            }
            (depth, 1) => {
                self.expect(&format!("ROLLBACK TO s{}", depth - 2), "ROLLBACK").await;
                self.model = self.before[depth - 1].clone();
            }
            (depth, _) => {
                self.expect(&format!("SAVEPOINT s{}", depth - 1), "SAVEPOINT").await;
                self.before.push(self.model.clone());
            }
        }
    }

    async fn look(&mut self) {
        self.expect("SELECT id, v FROM t ORDER BY id", &lines(&self.model.clone())).await;
        let (from, to) = self.range();
        let some: Model = self.model.range(from..=to).map(|(id, v)| (*id, *v)).collect();
        let sql = format!("SELECT id, v FROM t WHERE id >= {from} AND {to} >= id ORDER BY id");
        self.expect(&sql, &lines(&some)).await;
        let one: Model = self.model.get(&from).map(|v| (from, *v)).into_iter().collect();
        self.expect(&format!("SELECT id, v FROM t WHERE id = {from}"), &lines(&one)).await;
    }

    async fn step(&mut self) {
        match self.random.u8(..13) {
            0..3 => self.add().await,
            3 if self.is_keyed => self.add_again().await,
            3..8 => self.change().await,
            8..10 => self.transaction().await,
            10 if self.before.is_empty() => {
                let keep = self.random.usize(..20);
                self.engine.move_rows(keep).unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed));
            }
            11 if self.before.is_empty() => {
                _ = self.engine.compact().unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed))
            }
            _ => self.look().await,
        }
    }
}

/// Runs a history. Returns the number of compacted row groups.
async fn history(seed: u64, is_keyed: bool) -> u64 {
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::new();
    let (mut row_groups, mut compacted) = (0, 0);
    for life in 0..3 {
        let (store, _) = Store::open(places(&shelf), options()).expect("opens");
        let engine = with_row_groups_of(store.clone(), ROW_GROUP_ROWS);
        let session = engine.session("u");
        let mut life_now = Life { engine, session, random: random.fork(), is_keyed, model, before: Vec::new(), seed };
        if life == 0 {
            let key = if is_keyed { " PRIMARY KEY" } else { "" };
            life_now.expect(&format!("CREATE TABLE t (id int{key}, v bigint)"), "CREATE TABLE").await;
        }
        for _ in 0..60 {
            life_now.step().await;
        }
        if !life_now.before.is_empty() {
            life_now.expect("COMMIT", "COMMIT").await;
        }
        life_now.look().await;
        row_groups += life_now.engine.tuple_mover_stats().row_groups;
        compacted += life_now.engine.tuple_mover_stats().compacted;
        model = life_now.model;
        // Dropped queries may keep the store for a short time: it must not write beside the next one.
        store.close().expect("closes");
    }
    assert!(row_groups > 0, "SEED={seed}: nothing was moved");
    compacted
}

#[tokio::test]
async fn random_histories_over_both_forms_are_what_a_model_says() {
    let mut compacted = 0;
    for seed in seed(1)..seed(1) + 4 {
        compacted += history(seed, seed % 2 == 0).await;
    }
    assert!(compacted > 0, "nothing was compacted");
}

/// The contents of the table, and whether it exists; they must be the same before and after compaction.
async fn content(store: Store) -> String {
    let engine = with_row_groups_of(store, ROW_GROUP_ROWS);
    let mut session = engine.session("u");
    let found = run(&mut session, "SELECT id, v FROM t ORDER BY id").await;
    engine.compact().expect("compacts what a crash left");
    assert_eq!(run(&mut session, "SELECT id, v FROM t ORDER BY id").await, found);
    found
}

#[tokio::test]
async fn a_power_failure_leaves_rows_in_one_form_and_loads_whole_or_absent() {
    let seed = seed(3);
    let shelf = Arc::new(CrashShelf::new(seed));
    let dyn_shelf: Arc<dyn Shelf> = shelf.clone();
    // The contents after each statement, and the number of operations of the shelf until then.
    let (mut states, mut acknowledged) = (vec![String::from("error 42P01")], vec![0]);
    let (store, _) = Store::open(places(&dyn_shelf), options()).expect("opens");
    let engine = with_row_groups_of(store.clone(), ROW_GROUP_ROWS);
    let mut session = engine.session("u");
    let steps = [
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 80) AS g(i)",
        "UPDATE t SET v = 1 WHERE id % 3 = 0",
        "move",
        "checkpoint",
        "DELETE FROM t WHERE id < 20",
        "INSERT INTO t SELECT i, 2 FROM generate_series(101, 150) AS g(i)",
        "move",
        "checkpoint",
        "compact",
        "DELETE FROM t WHERE id BETWEEN 40 AND 60",
        "compact",
        "checkpoint",
    ];
    for step in steps {
        match step {
            "checkpoint" => _ = store.checkpoint().expect("writes home"),
            "move" => assert!(engine.move_rows(0).expect("moves") > 0),
            "compact" => assert!(engine.compact().expect("compacts") > 0),
            sql => assert!(!run(&mut session, sql).await.starts_with("error"), "{sql}"),
        }
        states.push(run(&mut session, "SELECT id, v FROM t ORDER BY id").await);
        acknowledged.push(shelf.operations());
    }
    let mut images = 0;
    for point in shelf.points() {
        // Every fourth image, with another offset at each point.
        for image in shelf.images(point).skip(point % 4).step_by(4) {
            let after: Arc<dyn Shelf> = Arc::new(image.shelf());
            let (store, _) = Store::open(places(&after), options()).unwrap_or_else(|error| panic!("{image}: {error}"));
            let found = content(store).await;
            let at_least = acknowledged.iter().rposition(|operations| *operations <= point).unwrap_or(0);
            let is_absent = found.starts_with("error 42P01") && at_least == 0;
            let fits = is_absent || states[at_least..].iter().take(2).any(|state| *state == found);
            assert!(fits, "SEED={seed}: {image}: neither the state behind step {at_least} nor the next, but\n{found}");
            images += 1;
        }
    }
    assert!(images > 30, "only {images} images: too few to mean anything");
}
