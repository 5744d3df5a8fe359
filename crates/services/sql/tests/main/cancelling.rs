//! Cancelling: a statement whose commit has not begun has no effect; one whose commit has begun takes effect, and its
//! result is returned.

use std::sync::Arc;

use device::{Device, DeviceError, Durability, MemoryShelf, WrappedShelf};
use parking_lot::{Condvar, Mutex};
use sql::{Engine, EngineOptions, Session, SessionState};
use store::{Options, Places, Store};

use crate::support::{check, engine, run};

/// While it is held, flushes wait.
#[derive(Debug, Default)]
struct Gate {
    held: Mutex<bool>,
    opened: Condvar,
    waiting: Mutex<usize>,
}

impl Gate {
    fn hold(&self, held: bool) {
        *self.held.lock() = held;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut held = self.held.lock();
        *self.waiting.lock() += 1;
        while *held {
            self.opened.wait(&mut held);
        }
        *self.waiting.lock() -= 1;
    }

    async fn until_somebody_waits(&self) {
        while !(*self.held.lock() && *self.waiting.lock() > 0) {
            tokio::task::yield_now().await;
        }
    }
}

/// A device whose flushes go through a gate.
#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl Device for Gated {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

fn gated() -> (Arc<Engine>, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let gates = gate.clone();
    let wrap = move |inner| Arc::new(Gated { inner, gate: gates.clone() }) as Arc<dyn Device>;
    let shelf = Arc::new(WrappedShelf::new(Arc::new(MemoryShelf::new()), wrap));
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) = Store::open(places, Options::default()).expect("memory is enough");
    assert!(!store.is_inline(), "commits wait for flushes");
    let engine = Engine::new(store, EngineOptions { threads: 2, ..EngineOptions::default() }).expect("it starts");
    (engine, gate)
}

/// Runs a statement whose commit is held, cancels it meanwhile, and returns its result.
async fn cancelled_in_its_commit(mut session: Session, gate: &Gate, sql: &'static str) -> (Session, String) {
    let canceller = session.canceller();
    gate.hold(true);
    let running = tokio::spawn(async move {
        let answer = run(&mut session, sql).await;
        (session, answer)
    });
    gate.until_somebody_waits().await;
    canceller.cancel();
    // A statement that noticed the request would have ended by then.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!running.is_finished(), "{sql}: answered before it was durable");
    gate.hold(false);
    running.await.expect("nobody panicked")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_has_begun_is_not_cancelled() {
    let (engine, gate) = gated();
    let mut s = engine.session("a");
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY)").await;
    check(&mut s, &[("BEGIN", "BEGIN"), ("INSERT INTO t VALUES (1)", "INSERT 0 1")]).await;
    let (s, answer) = cancelled_in_its_commit(s, &gate, "COMMIT").await;
    assert_eq!(answer, "COMMIT");
    let (s, answer) = cancelled_in_its_commit(s, &gate, "INSERT INTO t VALUES (2)").await;
    assert_eq!(answer, "INSERT 0 1");
    let (mut s, answer) = cancelled_in_its_commit(s, &gate, "ALTER TABLE t ADD COLUMN v int").await;
    assert_eq!(answer, "ALTER TABLE");
    check(&mut s, &[("SELECT id, v FROM t ORDER BY id", "1|NULL\n2|NULL")]).await;
    check(&mut engine.session("b"), &[("DROP TABLE t", "DROP TABLE")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_goes_away_in_its_commit_leaves_nothing_behind() {
    let (engine, gate) = gated();
    let mut s = engine.session("a");
    gate.hold(true);
    let running = tokio::spawn(async move { run(&mut s, "CREATE TABLE t (id int)").await });
    gate.until_somebody_waits().await;
    running.abort();
    assert!(running.await.is_err());
    gate.hold(false);
    let mut b = engine.session("b");
    while run(&mut b, "SELECT count(*) FROM t").await.starts_with("error") {
        tokio::task::yield_now().await;
    }
    // No commit is pending any more: the catalog is kept between statements.
    let known = engine.tables().expect("it reads");
    assert!(Arc::ptr_eq(&known, &engine.tables().expect("it reads")));
    check(&mut b, &[("DROP TABLE t", "DROP TABLE")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_change_ends_its_own_transaction() {
    let engine = engine();
    let mut s = engine.session("a");
    run(&mut s, "CREATE TABLE t (id int, v bigint); INSERT INTO t VALUES (1, 0)").await;
    let canceller = s.canceller();
    let sql = "UPDATE t SET v = (SELECT count(*) FROM generate_series(1, 100000000000) AS g(i) WHERE g.i % 7 = 8)";
    let running = tokio::spawn(async move {
        let answer = run(&mut s, sql).await;
        (s, answer)
    });
    while !running.is_finished() {
        canceller.cancel();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let (mut s, answer) = running.await.expect("nobody panicked");
    assert_eq!(&answer[..11], "error 57014");
    assert_eq!(s.state(), SessionState::Idle);
    check(&mut s, &[("SELECT v FROM t", "0")]).await;
    check(&mut engine.session("b"), &[("DROP TABLE t", "DROP TABLE")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_long_containments_is_cancelled_between_its_rows() {
    let engine = engine();
    let mut s = engine.session("a");
    let canceller = s.canceller();
    // Each row takes a good part of the steps that one may; all of them many minutes.
    let sql = "SELECT count(nullif((d || to_jsonb(i)) @> d, false)) FROM \
               (SELECT jsonb_agg(jsonb_build_array(g)) AS d FROM generate_series(1, 3000) AS t(g)) AS s, generate_series(1, 4000) AS r(i)";
    let running = tokio::spawn(async move { run(&mut s, sql).await });
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!running.is_finished(), "it takes long");
    canceller.cancel();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), running).await;
    let answer = ended.expect("it ends soon after it is asked to").expect("nobody panicked");
    assert_eq!(&answer[..11], "error 57014");
}
