//! Sessions that change the same rows: who waits for whom, and what they find then. Results are those of PostgreSQL 15 for the same
//! statements in the same order.

use std::sync::Arc;
use std::time::Duration;

use sql::{Engine, EngineOptions, Session, TupleMoverOptions};
use store::{Options, Store};
use tokio::task::JoinHandle;

use crate::support::{check, engine, run, with_row_groups_of};

/// A statement that runs in a session of its own task.
pub(crate) type Running = JoinHandle<(Session, String)>;

fn start(mut session: Session, sql: &str) -> Running {
    let sql = sql.to_owned();
    tokio::spawn(async move {
        let answer = run(&mut session, &sql).await;
        (session, answer)
    })
}

/// Begins a statement and returns when it waits for a row of another session; `waiting` sessions do so then.
pub(crate) async fn begin_waiting(engine: &Engine, session: Session, sql: &str, waiting: usize) -> Running {
    let running = start(session, sql);
    while engine.row_waits().len() < waiting {
        assert!(!running.is_finished(), "{sql} does not wait: {}", running.await.expect("no panic").1);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running
}

const SETUP: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2); CREATE TABLE plain (v int); \
                     INSERT INTO plain VALUES (1); CREATE TABLE un (id int, u int UNIQUE); INSERT INTO un VALUES (1, 1)";

/// What the first session does in a transaction, what the second one does meanwhile, and how that ends.
struct Case {
    name: &'static str,
    /// Before, in the second session.
    before: &'static str,
    first: &'static str,
    second: &'static str,
    end: &'static str,
    /// The second one's answer, or the beginning of its error.
    answer: &'static str,
    /// In the second session, and its answer.
    after: (&'static str, &'static str),
}

const fn case(name: &'static str, first: &'static str, second: &'static str) -> Case {
    Case { name, before: "", first, second, end: "COMMIT", answer: "", after: ("", "") }
}

const ADDS: &str = "UPDATE t SET v = v + 10 WHERE id = 1";
const LOCKS: &str = "SELECT v FROM t WHERE id = 1 FOR UPDATE";
const V: &str = "SELECT v FROM t WHERE id = 1";

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { answer: "UPDATE 1", after: (V, "21"), ..case("adds to what was committed", ADDS, ADDS) },
    Case { answer: "UPDATE 1", after: (V, "11"), end: "ROLLBACK", ..case("adds to what was before", ADDS, ADDS) },
    Case { answer: "UPDATE 2", after: (V, "21"), ..case("without a key", ADDS, "UPDATE t SET v = v + 10") },
    Case { answer: "21", after: (V, "21"), ..case("returning", ADDS, "UPDATE t SET v = v + 10 WHERE id = 1 RETURNING v") },
    Case { answer: "UPDATE 0", after: (V, "11"), ..case("a condition that is false then", ADDS, "UPDATE t SET v = 7 WHERE v = 1") },
    Case { answer: "UPDATE 0", ..case("deleted meanwhile", "DELETE FROM t WHERE id = 1", ADDS) },
    Case { answer: "DELETE 1", after: ("SELECT count(*) FROM t", "1"), ..case("deletes what was changed", ADDS, "DELETE FROM t WHERE id = 1") },
    Case { answer: "DELETE 0", ..case("deleted twice", "DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id = 1") },
    Case { answer: "UPDATE 1", after: ("SELECT v FROM plain", "21"), ..case("without a primary key", "UPDATE plain SET v = v + 10", "UPDATE plain SET v = v + 10") },
    Case { answer: "error 23505", ..case("one key twice", "INSERT INTO t VALUES (3, 3)", "INSERT INTO t VALUES (3, 4)") },
    Case { answer: "INSERT 0 1", end: "ROLLBACK", after: ("SELECT v FROM t WHERE id = 3", "4"), ..case("one key once", "INSERT INTO t VALUES (3, 3)", "INSERT INTO t VALUES (3, 4)") },
    Case { answer: "INSERT 0 1", ..case("a key that becomes free", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (2, 4)") },
    Case { answer: "INSERT 0 0", ..case("do nothing", "INSERT INTO t VALUES (3, 3)", "INSERT INTO t VALUES (3, 4) ON CONFLICT DO NOTHING") },
    Case { answer: "INSERT 0 1", after: ("SELECT v FROM t WHERE id = 3", "7"), ..case("do update", "INSERT INTO t VALUES (3, 3)", "INSERT INTO t VALUES (3, 4) ON CONFLICT (id) DO UPDATE SET v = t.v + excluded.v") },
    Case { answer: "error 23505", ..case("a key that another row gets", "UPDATE t SET id = 3 WHERE id = 2", "INSERT INTO t VALUES (3, 4)") },
    Case { answer: "error 23505", ..case("one value twice", "INSERT INTO un VALUES (2, 5)", "INSERT INTO un VALUES (3, 5)") },
    Case { answer: "INSERT 0 1", end: "ROLLBACK", after: ("SELECT id FROM un WHERE u = 5", "3"), ..case("one value once", "INSERT INTO un VALUES (2, 5)", "INSERT INTO un VALUES (3, 5)") },
    Case { answer: "INSERT 0 1", after: ("SELECT id FROM un", "3"), ..case("a value that becomes free", "DELETE FROM un WHERE u = 1", "INSERT INTO un VALUES (3, 1)") },
    Case { answer: "error 23505", end: "ROLLBACK", ..case("a value that does not become free", "DELETE FROM un WHERE u = 1", "INSERT INTO un VALUES (3, 1)") },
    Case { answer: "INSERT 0 1", ..case("a value that a row had", "UPDATE un SET u = 7", "INSERT INTO un VALUES (3, 1)") },
    Case { answer: "error 23505", ..case("a value that a row gets", "UPDATE un SET u = 7", "INSERT INTO un VALUES (3, 7)") },
    Case { answer: "INSERT 0 0", ..case("do nothing for a value", "INSERT INTO un VALUES (2, 5)", "INSERT INTO un VALUES (3, 5) ON CONFLICT (u) DO NOTHING") },
    Case { answer: "INSERT 0 1", after: ("SELECT id FROM un WHERE u = 5", "23"), ..case("do update for a value", "INSERT INTO un VALUES (2, 5)", "INSERT INTO un VALUES (3, 5) ON CONFLICT (u) DO UPDATE SET id = un.id * 10 + excluded.id") },
    Case { before: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", answer: "error 40001", ..case("a value in repeatable read", "INSERT INTO un VALUES (2, 5)", "INSERT INTO un VALUES (3, 5)") },
    Case { before: "BEGIN; INSERT INTO t VALUES (9, 9)", answer: "UPDATE 1", after: ("COMMIT; SELECT v FROM t WHERE id IN (1, 9) ORDER BY id", "COMMIT\n21\n9"), ..case("in a transaction", ADDS, ADDS) },
    Case { before: "BEGIN; SAVEPOINT a; INSERT INTO t VALUES (9, 9)", answer: "UPDATE 1", after: ("ROLLBACK TO a; SELECT sum(v) FROM t; COMMIT", "ROLLBACK\n13\nCOMMIT"), ..case("after a savepoint", ADDS, ADDS) },
    Case { before: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", answer: "error 40001", ..case("repeatable read", ADDS, ADDS) },
    Case { before: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", end: "ROLLBACK", answer: "UPDATE 1", after: ("COMMIT; SELECT v FROM t WHERE id = 1", "COMMIT\n11"), ..case("repeatable read, undone", ADDS, ADDS) },
    Case { before: "BEGIN; SELECT v FROM t WHERE id = 1", answer: "UPDATE 1", after: (V, "21"), ..case("a snapshot for each statement", ADDS, ADDS) },
    Case { answer: "UPDATE 1", after: (V, "11"), ..case("a row that was locked", LOCKS, ADDS) },
    Case { answer: "UPDATE 1", ..case("a row that was shared", "SELECT v FROM t FOR SHARE", ADDS) },
    Case { answer: "11", ..case("locks what was changed", ADDS, LOCKS) },
    Case { answer: "1|11\n2|2", ..case("locks all", ADDS, "SELECT * FROM t ORDER BY id FOR UPDATE") },
    Case { answer: "2", ..case("locks what still fulfils its condition", ADDS, "SELECT id FROM t WHERE v < 10 FOR SHARE") },
    Case { answer: "", ..case("locks what is not there any more", "DELETE FROM t WHERE id = 1", LOCKS) },
    Case { answer: "21", ..case("locks without a primary key", "UPDATE plain SET v = 21", "SELECT v FROM plain FOR UPDATE") },
    Case { before: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", answer: "error 40001", ..case("locks in repeatable read", ADDS, LOCKS) },
    Case { before: "BEGIN; INSERT INTO t VALUES (9, 9)", answer: "11", after: ("UPDATE t SET v = v + 1 WHERE id = 1; COMMIT; SELECT sum(v) FROM t", "UPDATE 1\nCOMMIT\n23"), ..case("locks in a transaction", ADDS, LOCKS) },
];

#[tokio::test]
async fn locked_rows_are_refused_or_skipped_where_that_is_asked_for() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, SETUP).await;
    run(&mut a, "INSERT INTO t VALUES (3, 3), (4, 4)").await;
    check(&mut a, &[("BEGIN", "BEGIN"), ("SELECT v FROM t WHERE id IN (1, 3) ORDER BY id FOR UPDATE", "1\n3")]).await;
    check(
        &mut b,
        &[
            (V, "1"),
            (
                "SELECT v FROM t WHERE id = 1 FOR UPDATE NOWAIT",
                "error 55P03: could not obtain lock on row in relation \"t\"",
            ),
            ("SELECT v FROM t ORDER BY id FOR SHARE NOWAIT", "error 55P03"),
            ("SELECT v FROM t WHERE id = 2 FOR UPDATE NOWAIT", "2"),
            ("SELECT id FROM t ORDER BY id FOR UPDATE SKIP LOCKED", "2\n4"),
            ("SELECT x.* FROM t AS x ORDER BY id LIMIT 1 FOR UPDATE OF x SKIP LOCKED", "2|2"),
            ("SELECT id + 1 AS next FROM t ORDER BY id LIMIT 1 OFFSET 1 FOR UPDATE SKIP LOCKED", "5"),
            ("SELECT id FROM t ORDER BY id LIMIT 1 + 1 FOR UPDATE SKIP LOCKED", "error 0A000"),
            ("SELECT count(*) FROM t FOR UPDATE", "error 0A000"),
            ("SELECT rank() OVER (ORDER BY id) FROM t FOR UPDATE", "error 0A000"),
            ("SELECT * FROM (SELECT * FROM t FOR UPDATE) AS s", "error 0A000"),
            ("SELECT v FROM nosuch FOR UPDATE", "error 42P01"),
            ("BEGIN READ ONLY", "BEGIN"),
            ("SELECT v FROM t FOR UPDATE", "error 25006: cannot execute SELECT FOR UPDATE in a read-only transaction"),
            ("ROLLBACK", "ROLLBACK"),
        ],
    )
    .await;
    check(&mut a, &[("COMMIT", "COMMIT"), ("BEGIN", "BEGIN"), ("SELECT v FROM t WHERE id = 1 FOR SHARE", "1")]).await;
    check(
        &mut b,
        &[
            ("SELECT v FROM t WHERE id = 1 FOR SHARE NOWAIT", "1"),
            ("SELECT v FROM t WHERE id = 1 FOR UPDATE NOWAIT", "error 55P03"),
            ("BEGIN; SAVEPOINT s", "BEGIN\nSAVEPOINT"),
            ("SELECT v FROM t WHERE id = 2 FOR UPDATE", "2"),
            ("ROLLBACK TO s", "ROLLBACK"),
        ],
    )
    .await;
    check(&mut a, &[("SELECT v FROM t WHERE id = 2 FOR UPDATE NOWAIT", "2")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_waits_for_the_row_of_another_transaction_and_goes_on_with_what_that_left() {
    for Case { name, before, first, second, end, answer, after } in CASES {
        let engine = engine();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        run(&mut a, SETUP).await;
        run(&mut b, before).await;
        run(&mut a, &format!("BEGIN; {first}")).await;
        let waiting = begin_waiting(&engine, b, second, 1).await;
        run(&mut a, end).await;
        let (mut b, got) = waiting.await.expect("no panic");
        assert!(if answer.starts_with("error") { got.starts_with(answer) } else { got == *answer }, "{name}: {got}");
        if !after.0.is_empty() {
            assert_eq!(run(&mut b, after.0).await, after.1, "{name}");
        }
        drop((a, b));
        assert!(engine.row_waits().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn each_statement_of_read_committed_sees_what_is_committed() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, SETUP).await;
    for (begin, level, later) in [
        ("BEGIN", "read committed", "11"),
        ("BEGIN ISOLATION LEVEL READ UNCOMMITTED", "read committed", "11"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", "repeatable read", "1"),
        ("BEGIN; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "repeatable read", "1"),
        ("SET default_transaction_isolation = 'repeatable read'; BEGIN", "repeatable read", "1"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN", "read committed", "11"),
    ] {
        run(&mut b, "UPDATE t SET v = 1 WHERE id = 1").await;
        run(&mut a, begin).await;
        check(
            &mut a,
            &[("SHOW transaction_isolation", level), (V, "1"), ("INSERT INTO t VALUES (5, 5)", "INSERT 0 1")],
        )
        .await;
        run(&mut b, ADDS).await;
        check(&mut a, &[(V, later), ("SELECT v FROM t WHERE id = 5", "5"), ("ROLLBACK", "ROLLBACK")]).await;
    }
    check(
        &mut a,
        &[
            ("BEGIN", "BEGIN"),
            ("SELECT 1", "1"),
            ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "error 25001"),
            ("ROLLBACK", "ROLLBACK"),
            ("SET default_transaction_isolation = serializable", "error 0A000"),
            ("SET default_transaction_isolation = nonsense", "error 22023"),
            ("SHOW default_transaction_isolation", "read committed"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_transactions_that_wait_for_one_another_one_is_told_and_the_other_goes_on() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, SETUP).await;
    run(&mut a, "BEGIN; UPDATE t SET v = 10 WHERE id = 1").await;
    run(&mut b, "BEGIN; UPDATE t SET v = 20 WHERE id = 2").await;
    let waiting = begin_waiting(&engine, b, "UPDATE t SET v = 21 WHERE id = 1", 1).await;
    check(&mut a, &[("UPDATE t SET v = 11 WHERE id = 2", "error 40P01"), ("COMMIT", "ROLLBACK")]).await;
    let (mut b, answer) = waiting.await.expect("no panic");
    assert_eq!(answer, "UPDATE 1");
    check(&mut b, &[("COMMIT", "COMMIT"), ("SELECT v FROM t ORDER BY id", "21\n20")]).await;
    // What is a transaction of its own has nothing to lose, and gives way.
    check(&mut b, &[("BEGIN", "BEGIN"), ("UPDATE t SET v = 0 WHERE id = 2", "UPDATE 1")]).await;
    let waiting = begin_waiting(&engine, a, "UPDATE t SET v = v + 1", 1).await;
    check(&mut b, &[("UPDATE t SET v = 0 WHERE id = 1", "UPDATE 1"), ("COMMIT", "COMMIT")]).await;
    let (mut a, answer) = waiting.await.expect("no panic");
    assert_eq!(answer, "UPDATE 2");
    check(&mut a, &[("SELECT v FROM t ORDER BY id", "1\n1")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_by_its_time_by_a_cancel_and_by_the_end_of_the_other_session() {
    let engine = engine();
    let mut a = engine.session("a");
    run(&mut a, SETUP).await;
    run(&mut a, &format!("BEGIN; {ADDS}")).await;
    for (setting, code) in [("lock_timeout = '20ms'", "55P03"), ("statement_timeout = '20ms'", "57014")] {
        for begin in ["ROLLBACK", "BEGIN"] {
            let mut b = engine.session("b");
            run(&mut b, &format!("SET {setting}; {begin}")).await;
            let answer = run(&mut b, ADDS).await;
            assert!(answer.starts_with(&format!("error {code}")), "{setting}, {begin}: {answer}");
            assert!(engine.row_waits().is_empty());
        }
    }
    let b = engine.session("b");
    let canceller = b.canceller();
    let waiting = begin_waiting(&engine, b, ADDS, 1).await;
    canceller.cancel();
    let (b, answer) = waiting.await.expect("no panic");
    assert!(answer.starts_with("error 57014"), "{answer}");
    let waiting = begin_waiting(&engine, b, ADDS, 1).await;
    drop(a);
    let (mut b, answer) = waiting.await.expect("no panic");
    assert_eq!(answer, "UPDATE 1");
    check(&mut b, &[(V, "11")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_released_by_a_rollback_to_a_savepoint_and_by_a_statement_that_finds_none() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, SETUP).await;
    check(
        &mut a,
        &[
            ("BEGIN", "BEGIN"),
            ("UPDATE t SET v = 5 WHERE id = 2", "UPDATE 1"),
            ("SAVEPOINT s", "SAVEPOINT"),
            (ADDS, "UPDATE 1"),
            ("INSERT INTO t VALUES (3, 3)", "INSERT 0 1"),
            ("ROLLBACK TO s", "ROLLBACK"),
            ("UPDATE t SET v = 5 WHERE id = 4", "UPDATE 0"),
            ("DELETE FROM t WHERE id = 4", "DELETE 0"),
        ],
    )
    .await;
    check(
        &mut b,
        &[
            ("SET lock_timeout = 10", "SET"),
            (ADDS, "UPDATE 1"),
            ("INSERT INTO t VALUES (3, 30), (4, 40)", "INSERT 0 2"),
            ("UPDATE t SET v = 6 WHERE id = 2", "error 55P03"),
        ],
    )
    .await;
    check(&mut a, &[("COMMIT", "COMMIT"), ("SELECT v FROM t ORDER BY id", "11\n5\n30\n40")]).await;
}

#[tokio::test]
async fn a_failed_transaction_keeps_only_the_rows_from_before_its_last_savepoint() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, SETUP).await;
    run(&mut b, "SET lock_timeout = 10").await;
    for fails in ["SELECT 1 / 0", "SELECT nothing"] {
        check(&mut a, &[("BEGIN", "BEGIN"), ("UPDATE t SET v = 5 WHERE id = 2", "UPDATE 1")]).await;
        check(&mut a, &[("SAVEPOINT s", "SAVEPOINT"), (ADDS, "UPDATE 1")]).await;
        assert!(run(&mut a, fails).await.starts_with("error"), "{fails}");
        check(
            &mut b,
            &[("UPDATE t SET v = 7 WHERE id = 1", "UPDATE 1"), ("UPDATE t SET v = 6 WHERE id = 2", "error 55P03")],
        )
        .await;
        check(&mut a, &[("ROLLBACK TO s", "ROLLBACK"), (V, "7"), ("COMMIT", "COMMIT")]).await;
        check(&mut a, &[("BEGIN", "BEGIN"), (ADDS, "UPDATE 1")]).await;
        assert!(run(&mut a, fails).await.starts_with("error"), "{fails}");
        check(&mut b, &[("UPDATE t SET v = 1 WHERE id = 1", "UPDATE 1")]).await;
        check(&mut a, &[("COMMIT", "ROLLBACK"), ("SELECT v FROM t ORDER BY id", "1\n5")]).await;
    }
}

#[tokio::test]
async fn a_shared_row_that_was_locked_alone_after_a_wait_stays_locked_behind_a_rollback_to_a_savepoint() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, SETUP).await;
    let shares = "SELECT v FROM t WHERE id = 1 FOR SHARE";
    for session in [&mut a, &mut b] {
        check(session, &[("BEGIN", "BEGIN"), (shares, "1")]).await;
    }
    check(&mut a, &[("SAVEPOINT s", "SAVEPOINT")]).await;
    let running = begin_waiting(&engine, a, ADDS, 1).await;
    check(&mut b, &[("COMMIT", "COMMIT"), ("SET lock_timeout = 10", "SET")]).await;
    let (mut a, answer) = running.await.expect("no panic");
    assert_eq!(answer, "UPDATE 1");
    check(&mut a, &[("ROLLBACK TO s", "ROLLBACK")]).await;
    check(&mut b, &[(ADDS, "error 55P03")]).await;
    check(&mut a, &[("COMMIT", "COMMIT")]).await;
    check(&mut b, &[(ADDS, "UPDATE 1")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_skip_locked_rows_take_each_job_once_and_are_never_told_to_run_again() {
    let engine = engine();
    let mut session = engine.session("a");
    run(&mut session, "CREATE TABLE jobs (id int PRIMARY KEY)").await;
    run(&mut session, "INSERT INTO jobs SELECT n FROM generate_series(1, 200) AS s(n)").await;
    let worker = async |mut session: Session| {
        let mut taken = Vec::new();
        let mut empty = 0;
        while empty < 3 {
            assert_eq!(run(&mut session, "BEGIN").await, "BEGIN");
            let job = run(&mut session, "SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED").await;
            match job.parse::<u32>() {
                Ok(id) => {
                    assert_eq!(run(&mut session, &format!("DELETE FROM jobs WHERE id = {id}")).await, "DELETE 1");
                    taken.push(id);
                    empty = 0;
                }
                Err(_) => {
                    assert_eq!(job, "", "no error");
                    empty += 1;
                }
            }
            assert_eq!(run(&mut session, "COMMIT").await, "COMMIT");
        }
        taken
    };
    let workers: Vec<_> = (0..6).map(|_| tokio::spawn(worker(engine.session("worker")))).collect();
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.expect("no panic"));
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=200).collect::<Vec<u32>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sessions_that_add_to_few_rows_lose_nothing_and_never_have_to_run_again() {
    let engine = engine();
    let rows = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)";
    run(&mut engine.session("a"), rows).await;
    let adder = |mut session: Session, seed: u64| async move {
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..30 {
            let id = random.u32(1..=3);
            let answer = match round % 3 {
                0 => run(&mut session, &format!("UPDATE t SET v = v + 1 WHERE id = {id}")).await,
                1 => run(&mut session, &format!("UPDATE t SET v = v + 1 WHERE id + 0 = {id}")).await,
                _ => {
                    let sql = format!(
                        "BEGIN; INSERT INTO t VALUES ({}, 0); UPDATE t SET v = v + 1 WHERE id = {id}; COMMIT",
                        seed * 1000 + round
                    );
                    run(&mut session, &sql).await.replace("BEGIN\nINSERT 0 1\n", "").replace("\nCOMMIT", "")
                }
            };
            assert_eq!(answer, "UPDATE 1", "seed {seed}, round {round}");
        }
    };
    let tasks: Vec<_> = (1..=16).map(|seed| tokio::spawn(adder(engine.session("u"), seed))).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    check(&mut engine.session("r"), &[("SELECT sum(v), count(*) FROM t", "480|163")]).await;
    assert!(engine.row_waits().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_move_amounts_beside_the_tuple_mover_keep_the_sum_and_are_not_told_to_run_again() {
    let tuple_mover = TupleMoverOptions { every: Duration::from_millis(1), share: 1.0, keep: 0 };
    let options =
        EngineOptions { threads: 2, row_group_rows: 40, tuple_mover: Some(tuple_mover), ..EngineOptions::default() };
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let engine: Arc<Engine> = Engine::new(store, options).expect("an engine starts");
    let sql =
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 400) AS g(i)";
    run(&mut engine.session("u"), sql).await;
    let mover = |mut session: Session, seed: u64| async move {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..60 {
            // In one order, so that there are no deadlocks.
            let (from, to) = (random.u32(1..=200), random.u32(201..=400));
            let sql = format!(
                "BEGIN; UPDATE t SET v = v - 1 WHERE id = {from}; UPDATE t SET v = v + 1 WHERE id = {to}; COMMIT"
            );
            assert_eq!(run(&mut session, &sql).await, "BEGIN\nUPDATE 1\nUPDATE 1\nCOMMIT", "seed {seed}");
        }
    };
    let tasks = [1, 2, 3].map(|seed| tokio::spawn(mover(engine.session("u"), seed)));
    let mut reader = engine.session("r");
    while !tasks.iter().all(|task| task.is_finished()) {
        check(&mut reader, &[("SELECT count(*), sum(v) FROM t", "400|0")]).await;
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    check(&mut reader, &[("SELECT count(*), sum(v) FROM t", "400|0")]).await;
    engine.close();
    let moved = engine.tuple_mover_stats();
    assert!(moved.row_groups > 0, "{moved:?}");
}

#[tokio::test]
async fn only_locked_rows_stay_where_others_are_moved() {
    let engine = with_row_groups_of(Store::in_memory(Options::default()).expect("memory is enough"), 10);
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    run(&mut a, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    // Few at a time, so that they do not go to row groups at once.
    for (from, to) in [(1, 7), (8, 14), (15, 21)] {
        run(&mut a, &format!("INSERT INTO t SELECT i, 0 FROM generate_series({from}, {to}) AS g(i)")).await;
    }
    check(&mut b, &[("BEGIN; SELECT v FROM t WHERE id IN (1, 5) FOR UPDATE", "BEGIN\n0\n0")]).await;
    assert_eq!(engine.move_rows(0).expect("moves"), 10);
    assert_eq!(engine.move_rows(0).expect("too few others"), 0);
    check(&mut b, &[("UPDATE t SET v = 1 WHERE id = 5; COMMIT", "UPDATE 1\nCOMMIT")]).await;
    assert_eq!(engine.move_rows(0).expect("moves"), 10);
    check(&mut a, &[("SELECT count(*), sum(v), sum(id) FROM t", "21|1|231")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_are_counted_and_those_of_a_transaction_end_with_it() {
    let engine = engine();
    let (mut a, mut b) = (engine.session("a"), engine.session("b"));
    check(
        &mut a,
        &[
            ("SELECT pg_advisory_lock(1)", ""),
            ("SELECT pg_try_advisory_lock(1) AS again, pg_try_advisory_lock_shared(2)", "true|true"),
            ("BEGIN", "BEGIN"),
            ("SELECT pg_advisory_xact_lock(3), pg_advisory_xact_lock_shared(1, 1)", "|"),
            ("SELECT pg_try_advisory_lock(NULL)", "NULL"),
            ("SELECT pg_advisory_lock(1 + v) FROM (VALUES (1)) AS x(v)", "error 0A000"),
            ("ROLLBACK", "ROLLBACK"),
            ("SELECT pg_advisory_lock(2147483648, 1)", "error 42883"),
        ],
    )
    .await;
    let held = "SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2), pg_try_advisory_lock_shared(2), pg_try_advisory_lock(3)";
    check(
        &mut b,
        &[
            (held, "false|false|true|true"),
            ("SET lock_timeout = 10", "SET"),
            ("SELECT pg_advisory_lock(1)", "error 55P03"),
        ],
    )
    .await;
    check(
        &mut b,
        &[("SELECT pg_try_advisory_lock(1, 1), pg_advisory_unlock(1), pg_advisory_unlock(1, 1)", "true|false|true")],
    )
    .await;
    check(&mut a, &[("SELECT pg_advisory_unlock(1)", "true")]).await;
    let waiting = begin_waiting(&engine, engine.session("c"), "SELECT pg_advisory_lock(1 + 0)", 1).await;
    check(&mut a, &[("SELECT pg_advisory_unlock(1), pg_advisory_unlock(1)", "true|false")]).await;
    let (c, answer) = waiting.await.expect("no panic");
    assert_eq!(answer, "");
    let waiting = begin_waiting(&engine, a, "SELECT pg_advisory_lock(1)", 1).await;
    drop(c);
    let (mut a, answer) = waiting.await.expect("no panic");
    assert_eq!(answer, "");
    check(&mut a, &[("DISCARD ALL", "DISCARD ALL")]).await;
    check(&mut b, &[("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)", "true|true")]).await;
    check(&mut b, &[("SELECT pg_advisory_unlock_all()", ""), ("SELECT pg_advisory_unlock(2)", "false")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_adds_a_key_waits_for_who_deletes_its_row_in_a_row_group() {
    for (adds, end, answer) in [
        ("INSERT INTO t VALUES (5, 0)", "COMMIT", "INSERT 0 1"),
        ("INSERT INTO t VALUES (5, 0)", "ROLLBACK", "error 23505"),
        ("INSERT INTO t VALUES (5, 0) ON CONFLICT DO NOTHING", "COMMIT", "INSERT 0 1"),
        ("UPDATE t SET id = 5 WHERE id = 6", "COMMIT", "UPDATE 1"),
        ("UPDATE t SET id = 5 WHERE id = 6", "ROLLBACK", "error 23505"),
    ] {
        let engine = with_row_groups_of(Store::in_memory(Options::default()).expect("memory is enough"), 10);
        let (mut a, b) = (engine.session("a"), engine.session("b"));
        run(
            &mut a,
            "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 20) AS g(i)",
        )
        .await;
        engine.move_rows(0).expect("moves");
        check(&mut a, &[("BEGIN; DELETE FROM t WHERE v = 5", "BEGIN\nDELETE 1")]).await;
        let waiting = begin_waiting(&engine, b, adds, 1).await;
        run(&mut a, end).await;
        let (_, got) = waiting.await.expect("no panic");
        assert!(got.starts_with(answer), "{adds}, {end}: {got}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_lock_in_one_order_do_not_wait_in_a_circle() {
    for (locks, answer) in [
        ("SELECT id FROM t WHERE id IN (1, 2, 3) ORDER BY id FOR UPDATE", "1\n2\n3"),
        ("UPDATE t SET v = 5 WHERE id IN (1, 2, 3)", "UPDATE 3"),
        ("DELETE FROM t WHERE v < 4", "DELETE 2"),
    ] {
        let engine = engine();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        run(&mut a, SETUP).await;
        run(&mut a, "INSERT INTO t VALUES (3, 3); BEGIN; UPDATE t SET v = 7 WHERE id = 2").await;
        run(&mut b, "BEGIN").await;
        let waiting = begin_waiting(&engine, b, locks, 1).await;
        check(&mut a, &[("UPDATE t SET v = 0 WHERE id = 3", "UPDATE 1"), ("COMMIT", "COMMIT")]).await;
        let (mut b, got) = waiting.await.expect("no panic");
        assert_eq!(got, answer, "{locks}");
        check(&mut b, &[("COMMIT", "COMMIT")]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_through_an_advisory_lock_is_told_to_the_last_one_who_waits() {
    let (number, row) = ("SELECT pg_advisory_lock(1)", "UPDATE t SET v = v + 1 WHERE id = 1");
    for (first, last, answer) in [(row, number, "UPDATE 1"), (number, row, "")] {
        let engine = engine();
        let (mut a, mut b) = (engine.session("a"), engine.session("b"));
        run(&mut a, SETUP).await;
        run(&mut a, number).await;
        run(&mut b, "BEGIN; UPDATE t SET v = v + 1 WHERE id = 1").await;
        let (waiting, mut other) = match first == row {
            true => (begin_waiting(&engine, a, first, 1).await, b),
            false => (begin_waiting(&engine, b, first, 1).await, a),
        };
        check(&mut other, &[(last, "error 40P01"), ("ROLLBACK; SELECT pg_advisory_unlock_all()", "ROLLBACK\n")]).await;
        assert_eq!(waiting.await.expect("no panic").1, answer);
    }
}

#[tokio::test]
async fn advisory_locks_are_bounded() {
    let mut session = engine().session("a");
    for number in 0..1024 {
        assert_eq!(run(&mut session, &format!("SELECT pg_try_advisory_lock({number})")).await, "true");
    }
    check(
        &mut session,
        &[("SELECT pg_try_advisory_lock(5000)", "error 53200"), ("SELECT pg_advisory_unlock(5)", "true")],
    )
    .await;
    check(&mut session, &[("SELECT pg_advisory_lock(5000)", "")]).await;
}
