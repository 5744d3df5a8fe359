//! Cancelled work ends, and a node that is requested to end has ended, whatever runs.
//!
//! The bounds are not measurements: each is ten and more times the promised time, so that only hanging work reaches it.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use bench::postgres::{Client, Error};

use crate::node::{Bed, Node, message, until};

/// Cancelled work must be gone by then.
const GONE: Duration = Duration::from_secs(10);

/// A node that was requested to end must have ended by then.
const ENDED: Duration = Duration::from_secs(30);

/// A hundredth of a second: the unit in which Linux counts processor time.
const TICK: Duration = Duration::from_millis(10);

/// Statements that run for hours, each busy in another part: a join, an aggregate, a sort, a change, rows on their way out.
const ENDLESS: [&str; 5] = [
    "select count(*) from generate_series(1, 300000) a(x), generate_series(1, 300000) b(y) where a.x * b.y < 0",
    "select count(distinct a.x * b.y) from generate_series(1, 300000) a(x), generate_series(1, 300000) b(y)",
    "select a.x from generate_series(1, 300000) a(x), generate_series(1, 300000) b(y) order by (a.x * b.y) % 7919",
    "insert into t select a.x * 300000 + b.y from generate_series(1, 300000) a(x), generate_series(1, 300000) b(y)",
    "copy (select x from generate_series(1, 100000000000) a(x) where x % 7 = 8) to stdout",
];

fn bed() -> Bed {
    let bed = Bed::new();
    let verifier = sql::wire::Verifier::of("not asked for").expect("there is randomness");
    bed.configure(&format!("[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n[sql.users]\nann = \"{verifier}\"\n"));
    bed
}

fn client(node: &Node<'_>) -> Client {
    Client::connect(node.sql(), "ann", Duration::from_secs(120)).expect("it is let in")
}

/// Processor time that a process has had.
fn processor_time(node: &Node<'_>) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", node.pid())).expect("it runs");
    // The name before it may hold anything but the last parenthesis; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit(')').next().expect("there is one").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u32>().expect("a number");
    TICK * (ticks(11) + ticks(12))
}

/// Waits until the process is as good as idle, for so long.
fn idle_within(node: &Node<'_>, patience: Duration, what: &str) {
    let deadline = Instant::now() + patience;
    loop {
        let before = processor_time(node);
        let began = Instant::now();
        thread::sleep(Duration::from_millis(400));
        // A fifth of one core: a thread that still works takes a whole one, or its share of a busy machine.
        if processor_time(node) - before < began.elapsed() / 5 {
            return;
        }
        assert!(Instant::now() < deadline, "it still works: {what}");
    }
}

fn active(other: &mut Client) -> usize {
    let sql = "select pid from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()";
    other.query(sql).expect("it answers").rows.len()
}

#[test]
fn work_that_is_cancelled_is_gone_from_the_processor_and_the_session_goes_on() {
    let bed = bed();
    let node = bed.start();
    let mut other = client(&node);
    other.query("create table t (id bigint)").expect("it is made");
    for sql in ENDLESS {
        let mut session = client(&node);
        session.begin_query(sql).expect("it is sent");
        until("it runs", || active(&mut other) == 1);
        let before = processor_time(&node);
        until("it works", || processor_time(&node) > before + 10 * TICK);
        session.canceller().cancel().expect("it is heard");
        let deadline = Instant::now() + GONE;
        while active(&mut other) > 0 {
            assert!(Instant::now() < deadline, "it still runs: {sql}");
            thread::sleep(Duration::from_millis(20));
        }
        session.drain().expect("the session goes on");
        idle_within(&node, GONE, sql);
        assert_eq!(session.query("select 1").expect("it answers").tag, "SELECT 1");
    }
    // One that was never cancelled would be refused as well: so the reason is checked.
    let mut session = client(&node);
    session.query("set statement_timeout = '200ms'").expect("it is set");
    let ended = session.query(ENDLESS[0]);
    assert!(matches!(&ended, Err(Error::Refused { .. })), "{ended:?}");
    assert_eq!(other.query("select count(*) from t").expect("it reads").rows, [[Some("0".to_owned())]]);
    drop((other, session));
    node.stop();
}

#[test]
fn a_node_that_is_told_to_end_has_ended_whatever_runs() {
    let bed = bed();
    let node = bed.start();
    let mut other = client(&node);
    other.query("create table t (id bigint)").expect("it is made");
    node.send("before");
    let mut sessions = Vec::new();
    // Besides: a COPY whose client sends nothing, rows that no client reads, a transaction whose client sleeps.
    let silent = ["copy t from stdin", "select x, repeat('x', 1000) from generate_series(1, 1000000000) a(x)"];
    for sql in ENDLESS.into_iter().chain(silent) {
        let mut session = client(&node);
        session.begin_query(sql).expect("it is sent");
        sessions.push(session);
    }
    let mut sleeping = client(&node);
    sleeping.query("begin").expect("it begins");
    sleeping.query("insert into t values (1)").expect("it is taken");
    until("all of them run", || active(&mut other) == sessions.len());
    let mut half = TcpStream::connect(node.mllp()).expect("it listens");
    half.write_all(&format!("\x0b{}", message("half")).as_bytes()[..40]).expect("it is sent");
    let idle = TcpStream::connect(node.mllp()).expect("it listens");
    node.terminate();
    assert_eq!(node.ends_within(ENDED), Some(0), "{}", bed.log());
    drop((sessions, sleeping, half, idle));
    let node = bed.start();
    let mut other = client(&node);
    assert_eq!(other.query("select count(*) from t").expect("it reads").rows, [[Some("0".to_owned())]]);
    drop(other);
    node.stop();
    assert_eq!(bed.stored(), ["before"]);
}

#[test]
fn stop_returns_when_the_node_has_ended_so_that_another_starts_at_once() {
    let bed = Bed::new();
    for round in 0..4 {
        let node = bed.start();
        node.send(&format!("M{round}"));
        bed.run(&["stop", "--data"]).succeeds("");
        let lock = fs::File::open(bed.data().join("node.lock")).expect("the node made it");
        assert!(lock.try_lock().is_ok(), "round {round}: another node could not have the data directory");
        drop(lock);
        assert_eq!(node.ended(), Some(0));
    }
}
