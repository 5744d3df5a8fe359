//! Spilled transactions: their changes are in the journal; otherwise they behave as small transactions do.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};
use store::{Direction, Options, Places, Store, StoreError, Transaction, TreeId};

use crate::support::{all, memory, open_with_tree, put, replay, seed, small, walk, with_tree};

/// Spills after a few dozen changes.
fn spilling() -> Options {
    Options { transaction_bytes: 12 << 10, ..small() }
}

type Model = BTreeMap<String, String>;

fn lines(model: &Model) -> Vec<String> {
    model.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn check(transaction: &Transaction, tree: TreeId, model: &Model, random: &mut fastrand::Rng) {
    let key = format!("k{:03}", random.u32(..300));
    let found = transaction.get(tree, key.as_bytes()).expect("reads").map(crate::support::text);
    assert_eq!(found.as_ref(), model.get(&key), "{key}");
    let (from, to) = (format!("k{:03}", random.u32(..300)), format!("k{:03}", random.u32(..300)));
    if from < to {
        let expected: Vec<String> =
            lines(&model.range(from.clone()..to.clone()).map(|(k, v)| (k.clone(), v.clone())).collect());
        let (low, high) = (Bound::Included(from.as_bytes()), Bound::Excluded(to.as_bytes()));
        assert_eq!(walk(transaction.scan(tree, low, high, Direction::Forward)).expect("reads"), expected);
        let mut found = walk(transaction.scan(tree, low, high, Direction::Backward)).expect("reads");
        found.reverse();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_spilled_transaction_with_savepoints_is_what_a_model_says() {
    let first = seed(1);
    for seed in first..first + 12 {
        let told = replay(seed, "spill::a_spilled_transaction_with_savepoints_is_what_a_model_says");
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "{told}");
    }
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let places = memory();
    let (store, _) = Store::open(places.clone(), spilling()).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("new");
    transaction.commit().expect("commits");
    let mut committed = Model::new();
    for _ in 0..4 {
        let mut transaction = store.begin();
        let mut model = committed.clone();
        let mut savepoints = Vec::new();
        for step in 0..600 {
            let key = format!("k{:03}", random.u32(..300));
            match random.u32(..100) {
                0..60 => {
                    let value = format!("{step}.{}", "x".repeat(random.usize(..60)));
                    transaction.put(tree, key.as_bytes(), value.as_bytes()).expect("fits");
                    model.insert(key, value);
                }
                60..85 => {
                    transaction.delete(tree, key.as_bytes()).expect("fits");
                    model.remove(&key);
                }
                85..88 => savepoints.push((transaction.savepoint(), model.clone())),
                88..90 if !savepoints.is_empty() => {
                    savepoints.truncate(random.usize(1..=savepoints.len()));
                    let (savepoint, then) = savepoints.last().expect("one is left").clone();
                    transaction.rollback_to(savepoint);
                    model = then;
                }
                _ => check(&transaction, tree, &model, &mut random),
            }
        }
        if random.bool() {
            transaction.commit().expect("commits");
            committed = model;
        } else {
            transaction.rollback();
        }
        assert_eq!(all(&store.snapshot(), tree), lines(&committed));
    }
    drop(store);
    let (store, _) = Store::open(places, spilling()).expect("opens");
    assert_eq!(all(&store.snapshot(), tree), lines(&committed));
}

#[test]
fn a_transaction_with_a_savepoint_for_each_change_is_applied_and_redone_without_going_through_all_for_each() {
    const SAVEPOINTS: u32 = 20_000;
    let places = memory();
    let options = Options { transaction_bytes: 2 << 20, ..small() };
    let (store, tree) = open_with_tree(&places, &options);
    let mut transaction = store.begin();
    for number in 0..SAVEPOINTS {
        // Each key is changed ten times, in ten runs.
        let (key, value) = (format!("k{:05}", number % (SAVEPOINTS / 10)), number.to_string());
        transaction.savepoint();
        transaction.put(tree, key.as_bytes(), value.as_bytes()).expect("fits");
    }
    let began = Instant::now();
    transaction.commit().expect("commits");
    let check = |store: &Store| {
        let rows = all(&store.snapshot(), tree);
        assert_eq!(rows.len() as u32, SAVEPOINTS / 10);
        let newest = |(at, row): (usize, &String)| row.ends_with(&format!("={}", SAVEPOINTS * 9 / 10 + at as u32));
        assert!(rows.iter().enumerate().all(newest));
    };
    check(&store);
    drop(store);
    let (store, _) = Store::open(places, options).expect("opens");
    check(&store);
    // Twice 20,000 keys times 20,000 runs take minutes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn a_spilled_transaction_conflicts_and_is_conflicted_with_like_a_small_one() {
    let (store, tree) = with_tree(spilling());
    let fill = |transaction: &mut Transaction| {
        for key in 0..1000 {
            transaction.put(tree, format!("k{key:04}").as_bytes(), &[b'x'; 40]).expect("fits");
        }
    };
    let (mut spilled, mut small) = (store.begin(), store.begin());
    fill(&mut spilled);
    small.put(tree, b"k0001", b"small").expect("fits");
    spilled.commit().expect("is first");
    assert!(matches!(small.commit(), Err(StoreError::Conflict)));
    let mut spilled = store.begin();
    fill(&mut spilled);
    put(&store, tree, "k0002", "small");
    assert!(matches!(spilled.commit(), Err(StoreError::Conflict)));
    assert_eq!(all(&store.snapshot(), tree)[2], "k0002=small");
    assert_eq!(all(&store.snapshot(), tree).len(), 1000);
}

#[test]
fn a_snapshot_stays_what_it_was_beside_a_spilled_transaction_and_its_failure_leaves_nothing() {
    let (store, tree) = with_tree(spilling());
    put(&store, tree, "a", "1");
    let before = store.snapshot();
    let mut spilled = store.begin();
    for key in 0..2000 {
        spilled.put(tree, format!("k{key:04}").as_bytes(), b"huge").expect("fits");
    }
    spilled.delete(tree, b"a").expect("fits");
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
    spilled.commit().expect("commits");
    assert_eq!(all(&before, tree), ["a=1"]);
    assert_eq!(all(&store.snapshot(), tree).len(), 2000);
}

#[test]
fn a_transaction_that_found_no_room_to_spill_says_so_whatever_is_asked_of_it_and_can_be_dropped() {
    let journal = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>));
    let places = Places { journal: journal.clone(), ..memory() };
    let (store, tree) = open_with_tree(&places, &spilling());
    journal.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    let mut transaction = store.begin();
    let first = transaction.savepoint();
    transaction.put(tree, b"before", b"1").expect("fits");
    let second = transaction.savepoint();
    let failed = (0..20_000).find_map(|n| transaction.put(tree, format!("k{n:05}").as_bytes(), &[b'v'; 200]).err());
    assert!(matches!(failed, Some(StoreError::Full(_))), "{failed:?}");
    for savepoint in [second, first] {
        transaction.rollback_to(savepoint);
        assert!(matches!(transaction.check(), Err(StoreError::Full(_))));
        assert!(!transaction.is_read_only(), "it is not a transaction without changes");
        assert!(matches!(transaction.get(tree, b"before"), Err(StoreError::Full(_))));
        assert!(matches!(transaction.put(tree, b"more", b"1"), Err(StoreError::Full(_))));
        assert!(matches!(transaction.renew(), Err(StoreError::Full(_))));
        let cursor = transaction.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        assert!(matches!(walk(cursor), Err(StoreError::Full(_))));
    }
    transaction.release(first);
    assert!(matches!(transaction.commit(), Err(StoreError::Full(_))));
    journal.heal();
    put(&store, tree, "a", "1");
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
}
