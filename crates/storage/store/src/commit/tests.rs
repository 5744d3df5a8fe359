//! Committers when something fails while they wait: none waits for ever.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use device::{MemoryShelf, Shelf};
use parking_lot::Mutex;

use crate::record::{Change, Op};
use crate::{Changes, Foreign, Interpreter, Options, Places, Store, StoreError, TreeId};

/// Signals each call, and blocks at each record until the test releases it.
struct Held(Mutex<(Sender<()>, Receiver<()>)>);

impl Interpreter for Held {
    fn trees(&self) -> Vec<String> {
        vec!["t".into()]
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let ends = self.0.lock();
        // When one end of the channel is dropped, every call continues.
        let _ = (ends.0.send(()), ends.1.recv());
        changes.put(trees[0], record.payload.to_vec(), record.payload.to_vec());
        Ok(())
    }

    fn check(&self, _: &Foreign<'_>, _: &[TreeId], _: usize) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn whoever_waits_for_the_applier_returns_when_a_checkpoint_poisons_the_store() {
    let ((called, calls), (go, held)) = (channel(), channel());
    let options = Options { interpreter: Some(Arc::new(Held(Mutex::new((called, held))))), ..Options::default() };
    let store = Store::in_memory(options).expect("opens");
    let first = store.append(3, &b"a"[..]).expect("appends");
    store.commit(first).expect("is durable");
    // From here on the store's own thread has the applier's role, and no other thread can apply.
    calls.recv().expect("is applied");
    let lsns: Vec<_> = (0..4).map(|_| store.append(3, &b"b"[..]).expect("appends")).collect();
    let (told, outcomes) = channel();
    let waiting: Vec<_> = lsns
        .into_iter()
        .map(|lsn| {
            let (store, told) = (store.clone(), told.clone());
            std::thread::spawn(move || told.send(store.wait_visible(lsn)).expect("the test listens"))
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.engine.committer.waiters.seated() < 4 {
        assert!(Instant::now() < deadline, "all wait for the applier");
        std::thread::sleep(Duration::from_millis(1));
    }
    // A device or the checkpointer poisons the store in this way; it has no reference to the waiters.
    store.engine.applier.poison.set(&"a flush failed");
    for _ in 0..4 {
        let outcome = outcomes.recv_timeout(Duration::from_secs(20));
        assert!(matches!(outcome, Ok(Err(StoreError::Poisoned { .. }))), "{outcome:?}");
    }
    drop(go);
    waiting.into_iter().for_each(|thread| thread.join().expect("does not panic"));
}

/// Cannot apply the record `bad` until it is mended.
struct Fragile {
    is_mended: bool,
    panics: bool,
}

impl Interpreter for Fragile {
    fn trees(&self) -> Vec<String> {
        vec!["t".into()]
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        if record.payload[..] == *b"bad" && !self.is_mended {
            assert!(!self.panics, "a mistake in a service's program");
            return Err(StoreError::Corrupt("not understood".into()));
        }
        changes.put(trees[0], record.payload.to_vec(), record.payload.to_vec());
        Ok(())
    }

    fn check(&self, _: &Foreign<'_>, _: &[TreeId], _: usize) -> Result<(), StoreError> {
        Ok(())
    }
}

fn fragile(is_mended: bool, panics: bool, background: bool) -> Options {
    Options { interpreter: Some(Arc::new(Fragile { is_mended, panics })), background, ..Options::default() }
}

/// Runs a call and checks that it returns within a reasonable time.
fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (told, outcome) = channel();
    std::thread::spawn(move || told.send(call()));
    outcome.recv_timeout(Duration::from_secs(20)).expect("it returns, and does not panic")
}

#[test]
fn a_record_that_cannot_be_applied_poisons_the_store_whatever_the_reason_and_is_found_by_a_program_that_can() {
    for (panics, background) in [(true, true), (true, false), (false, true), (false, false)] {
        let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
        let (store, _) = Store::open(places.clone(), fragile(false, panics, background)).expect("opens");
        let tree = store.interpreted()[0];
        store.wait_visible(store.append(3, &b"good"[..]).expect("appends")).expect("applies");
        store.append(3, &b"bad"[..]).expect("appends");
        let behind = store.append(3, &b"behind"[..]).expect("appends");
        if background {
            store.commit(behind).expect("is durable");
            let began = std::time::Instant::now();
            while store.poisoned().is_none() && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            // A thread that waits applies, and panics.
            let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.wait_visible(behind)));
            assert_eq!(seen.is_err(), panics);
        }
        assert!(store.poisoned().is_some());
        let of = store.clone();
        let outcome = in_time(move || of.wait_visible(behind));
        assert!(matches!(outcome, Err(StoreError::Poisoned { .. })), "{outcome:?}");
        let mut transaction = store.begin();
        transaction.put(tree, b"x", b"x").expect("fits");
        let outcome = in_time(move || transaction.commit());
        assert!(matches!(outcome, Err(StoreError::Poisoned { .. })), "{outcome:?}");
        assert!(
            matches!(store.engine.applier.checkpoint(), Err(StoreError::Poisoned { .. })),
            "no checkpoint of what is half changed"
        );
        assert!(store.snapshot().get(tree, b"good").expect("reads").is_some(), "reads go on");
        let outcome = in_time(move || store.close());
        assert!(matches!(outcome, Err(StoreError::Poisoned { .. })), "{outcome:?}");
        let (store, _) = Store::open(places, fragile(true, panics, background)).expect("opens");
        for key in ["good", "bad", "behind"] {
            assert!(store.snapshot().get(tree, key.as_bytes()).expect("reads").is_some(), "{key}");
        }
    }
}

#[test]
fn a_change_beside_a_batch_applied_in_part_conflicts_only_where_the_batch_has_its_key() {
    let ((called, calls), (go, held)) = (channel(), channel());
    let interpreter = Arc::new(Held(Mutex::new((called, held))));
    let options = Options { interpreter: Some(interpreter), background: false, ..Options::default() };
    let store = Store::in_memory(options).expect("opens");
    drop((calls, go));
    let (tree, snapshot) = (store.interpreted()[0], store.snapshot());
    let change = |key: &'static str| Change { tree, key: key.into(), op: Op::Delete };
    let meets = |key| {
        store.engine.committer.meets_records(snapshot.lsn().0, &[change("z"), change(key)]).expect("is looked up")
    };
    // The state between two pieces of a batch: its records are no longer queued, and not all of them are in the trees.
    store.engine.applier.lock().batch = Arc::new(vec![change("b"), change("d")]);
    assert_eq!(["a", "b", "c", "d", "e"].map(meets), [false, true, false, true, false]);
    let lsn = store.append(3, &b"c"[..]).expect("appends");
    assert!(meets("c"), "is in the queue");
    store.wait_visible(lsn).expect("is applied");
    assert!(meets("c"), "is among the old versions");
    assert!(!meets("b"), "the batch is over");
}

#[test]
fn an_open_snapshot_that_is_too_old_keeps_no_write_sets_and_its_transaction_conflicts_with_none_unseen() {
    let options = Options { versions_bytes: 1 << 10, background: false, ..Options::default() };
    let store = Store::in_memory(options).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    transaction.commit().expect("commits");
    let (mut old, reads, mut renews) = (store.begin(), store.snapshot(), store.begin());
    renews.put(tree, b"others change it too", b"1").expect("fits");
    old.put(tree, b"others change it too", b"1").expect("fits");
    let keys = 10 * super::RECENT_MAX as u32;
    for key in 0..keys {
        let mut transaction = store.begin();
        transaction.put(tree, &key.to_be_bytes(), b"1").expect("fits");
        if key == 0 {
            transaction.put(tree, b"others change it too", b"2").expect("fits");
        }
        transaction.commit().expect("commits");
    }
    assert!(matches!(reads.get(tree, b"x"), Err(StoreError::TooOld)));
    let kept = store.engine.committer.order.lock().recent.hashes();
    assert!(kept <= 2 * super::RECENT_MAX, "{kept} of {keys} keys");
    assert!(!old.is_current(tree, b"others change it too"), "what was forgotten may have changed");
    assert!(matches!(renews.renew(), Err(StoreError::TooOld | StoreError::Conflict)));
    assert!(matches!(old.commit(), Err(StoreError::TooOld | StoreError::Conflict)));
    let mut new = store.begin();
    new.put(tree, b"others change it too", b"3").expect("fits");
    new.commit().expect("commits");
}

#[test]
fn records_of_services_do_not_wait_for_a_spilled_transaction_and_are_read_back_behind_it() {
    const RECORDS: u32 = 2000;
    let options = Options { transaction_bytes: 16 << 10, queue_bytes: 64 << 10, ..fragile(true, false, true) };
    let store = Store::in_memory(options).expect("opens");
    let tree = store.interpreted()[0];
    let mut transaction = store.begin();
    for key in 0..1000_u32 {
        transaction.put(tree, &key.to_be_bytes(), &[7; 100]).expect("fits");
    }
    // As if the transaction were being applied for minutes.
    let state = store.engine.applier.lock();
    let committing = std::thread::spawn(move || transaction.commit());
    let began = Instant::now();
    while !store.engine.applier.queue.has_spilled() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is appended");
        std::thread::sleep(Duration::from_millis(1));
    }
    let payload = |number: u32| format!("{number:0200}").into_bytes();
    let of = store.clone();
    let append = move |number| of.append(3, payload(number)).expect("is taken");
    let last = in_time(move || (0..RECORDS).map(append).last()).expect("some");
    store.commit(last).expect("is durable, and acknowledged");
    assert!(store.engine.applier.queue.deferred() > 0 && store.engine.applier.queue.bytes() < 1 << 20);
    drop(state);
    committing.join().expect("does not panic").expect("commits");
    store.wait_visible(last).expect("is applied");
    let snapshot = store.snapshot();
    for number in 0..RECORDS {
        assert!(snapshot.get(tree, &payload(number)).expect("reads").is_some(), "{number}");
    }
    assert!(snapshot.get(tree, &999_u32.to_be_bytes()).expect("reads").is_some());
    let queue = &store.engine.applier.queue;
    assert!(!queue.has_spilled() && queue.deferred() == 0 && queue.bytes() == 0);
}
