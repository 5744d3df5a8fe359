//! Random histories of tables with indexes, beside tables with the same rows and none: what is refused, what is found, and whether each
//! index has all rows.

use std::sync::Arc;

use sql::{Engine, Session};

use crate::indexes::{is_sound, small};
use crate::support::run;

/// A random history of a table with indexes, beside a table with the same rows and none.
struct Life {
    engine: Arc<Engine>,
    session: Session,
    random: fastrand::Rng,
    seed: u64,
}

impl Life {
    /// Runs a statement on both tables. The one with indexes may only refuse it if the other one then has a value twice.
    async fn both(&mut self, sql: &str) {
        let of = |table: &str| sql.replace("$t", table);
        let context = format!("SEED={}: {sql}", self.seed);
        run(&mut self.session, "begin").await;
        let plain = run(&mut self.session, &of("plain")).await;
        let twice = "select 1 from plain where u is not null group by u having count(*) > 1 union all \
                     select 1 from plain where v is not null and w is not null group by v, w having count(*) > 1";
        let is_twice = !plain.starts_with("error") && !run(&mut self.session, twice).await.is_empty();
        let indexed = run(&mut self.session, &of("t")).await;
        match is_twice {
            true => {
                assert!(indexed.starts_with("error 23505"), "{context} gave {indexed}");
                run(&mut self.session, "rollback").await;
            }
            false => {
                assert_eq!(indexed, plain, "{context}");
                let end = if self.random.u8(..8) == 0 { "rollback" } else { "commit" };
                run(&mut self.session, end).await;
            }
        }
    }

    fn value(&mut self) -> String {
        match self.random.u8(..8) {
            0 => "null".into(),
            _ => self.random.u32(..120).to_string(),
        }
    }

    async fn step(&mut self) {
        let (from, count) = (self.random.u32(..120), self.random.u32(1..60));
        let (one, two, three) = (self.value(), self.value(), self.value());
        let sql = match self.random.u8(..12) {
            0 => format!("insert into $t select g, g, g % 3, g from generate_series({from}, {from} + {count}) as x(g)"),
            1 => format!(
                "insert into $t select g, null, null, {two} from generate_series({from}, {from} + {count}) as x(g)"
            ),
            2 | 3 => format!("insert into $t values ({from}, {one}, {two}, {three})"),
            4 => format!("update $t set u = {one} where id = {from}"),
            5 => format!("update $t set u = u + 1, v = {two} where id between {from} and {from} + 3"),
            6 => format!("update $t set w = w + 1 where v = {two}"),
            7 => format!("update $t set id = id + 200 where id between {from} and {from} + 2"),
            8 => format!("delete from $t where id between {from} and {from} + {count} / 2"),
            9 => format!("delete from $t where u = {one} or v = {two}"),
            10 => return assert!(self.engine.move_rows(self.random.usize(..9)).is_ok(), "SEED={}", self.seed),
            _ => return assert!(self.engine.compact().is_ok(), "SEED={}", self.seed),
        };
        self.both(&sql).await;
    }
}

#[tokio::test]
async fn random_changes_are_refused_only_if_a_value_would_be_there_twice_and_indexes_have_all_rows() {
    let first = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut moved = 0;
    for seed in first..first + 4 {
        let engine = small();
        let mut session = engine.session("tester");
        let columns = "(id int, u int, v int, w int";
        run(&mut session, &format!("create table plain {columns})")).await;
        let key = if seed % 2 == 0 { ", n serial primary key" } else { "" };
        run(&mut session, &format!("create table t {columns}{key}, unique (u))")).await;
        run(&mut session, "create unique index on t (v, w)").await;
        run(&mut session, "create index on t (w)").await;
        let mut life = Life { engine, session, random: fastrand::Rng::with_seed(seed), seed };
        for step in 0..80 {
            life.step().await;
            if step % 8 == 0 {
                let all = |table| format!("select id, u, v, w from {table} order by 1, 2, 3, 4");
                let indexed = run(&mut life.session, &all("t")).await;
                assert_eq!(indexed, run(&mut life.session, &all("plain")).await, "SEED={seed}");
                is_sound(life.engine.store(), &format!("SEED={seed}, step {step}")).await;
            }
        }
        moved += life.engine.tuple_mover_stats().row_groups;
    }
    assert!(moved > 0, "nothing was moved");
}

/// A random condition on the columns of the tables below.
fn condition(random: &mut fastrand::Rng) -> String {
    let mut one = || {
        let (a, b) = (random.u32(..60), random.u32(..60));
        match random.u8(..14) {
            0 => format!("a = {a}"),
            1 => format!("a in ({a}, {b}, null)"),
            2 => format!("a in ({a}, {b}, 7, 8, 9, 1000)"),
            3 => format!("(a = {a} or a = {b})"),
            4 => format!("a > {}", 55 + a % 6),
            5 => format!("a between {a} and {a} + 1"),
            6 => format!("b = 'x{a}'"),
            7 => format!("b in ('x{a}', 'x{b}') and c < {b}"),
            8 => format!("c = {a}.50"),
            9 => format!("c >= {a} and c <= {a}.5"),
            10 => format!("d = date '2024-01-01' + {a}"),
            11 => format!("e = {a}"),
            12 => format!("e < -{a}"),
            _ => "a is null".into(),
        }
    };
    let (first, second) = (one(), one());
    if random.bool() { first } else { format!("{first} and {second}") }
}

#[tokio::test]
async fn what_is_read_by_an_index_is_what_a_scan_finds_before_and_after_changes() {
    let first = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut by_index = 0;
    for seed in first..first + 3 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let engine = small();
        let mut session = engine.session("tester");
        for (table, key) in [("plain", ""), ("t", if seed % 2 == 0 { " primary key" } else { "" })] {
            let columns = "a int, b text, c numeric(6,2), d date, e double precision";
            run(&mut session, &format!("create table {table} (id int{key}, {columns})")).await;
        }
        let rows = "insert into plain select g, nullif(g * 7 % 61, 60), 'x' || (g % 53)::text, nullif(g % 97, 3) / 2.0, \
                    date '2024-01-01' + g % 71, nullif(g % 83, 0) - 41 from generate_series(1, 600) as x(g)";
        assert_eq!(run(&mut session, rows).await, "INSERT 0 600");
        for sql in ["insert into t select * from plain", "create index on t (a)", "create index on t (b, c)"] {
            assert!(!run(&mut session, sql).await.starts_with("error"), "{sql}");
        }
        for sql in ["create index on t (c, a)", "create index on t (d, e)", "create unique index on t (e, id)"] {
            assert!(!run(&mut session, sql).await.starts_with("error"), "{sql}");
        }
        for step in 0..60 {
            let condition = condition(random);
            let context = format!("SEED={seed}, step {step}: {condition}");
            let query = |table: &str| format!("select * from {table} where {condition} order by id");
            let found = run(&mut session, &query("t")).await;
            assert_eq!(found, run(&mut session, &query("plain")).await, "{context}");
            assert!(!found.starts_with("error"), "{context}: {found}");
            by_index += usize::from(run(&mut session, &format!("explain {}", query("t"))).await.contains("IndexScan"));
            let change = match random.u8(..6) {
                0 => format!("delete from $t where {condition} and id % 5 = 0"),
                1 => format!("update $t set a = a + 1, c = c + 0.5 where {condition}"),
                2 => format!("update $t set e = null, b = b || 'y' where {condition} returning id"),
                3 => format!("insert into $t select id + 1000, a, b, c, d, e from $t where {condition} and id < 1000"),
                4 => {
                    engine.move_rows(random.usize(..50)).expect("rows are moved");
                    continue;
                }
                _ => {
                    engine.compact().expect("row groups are compacted");
                    continue;
                }
            };
            run(&mut session, "begin").await;
            let plain = run(&mut session, &change.replace("$t", "plain")).await;
            let indexed = run(&mut session, &change.replace("$t", "t")).await;
            if indexed.starts_with("error 23505") {
                run(&mut session, "rollback").await;
                continue;
            }
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&indexed), sorted(&plain), "{context}: {change}");
            assert_eq!(run(&mut session, &query("t")).await, run(&mut session, &query("plain")).await, "{context}");
            run(&mut session, "commit").await;
        }
        is_sound(engine.store(), &format!("SEED={seed}")).await;
    }
    assert!(by_index > 30, "an index was used {by_index} times only");
}
