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
    let (mut moved, mut compacted) = (0, 0);
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
        let stats = life.engine.tuple_mover_stats();
        (moved, compacted) = (moved + stats.row_groups, compacted + stats.compacted);
    }
    assert!(moved > 0 && compacted > 0, "{moved} row groups were made of moved rows, {compacted} compacted");
}
