//! Snapshot isolation: random histories with a seed, in one thread, compared with a model that keeps every committed
//! state; and invariants with real threads.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{Direction, Options, Snapshot, Store, StoreError, Transaction, TreeId};

use crate::support::{
    all, clear_and_encrypted, get, memory, open_with_tree, put, replay, seed, small, walk, with_tree,
};

const KEYS: u32 = 12;

type State = BTreeMap<String, String>;

/// An open transaction, and its expected content.
struct Open {
    transaction: Transaction,
    /// The committed state at its beginning.
    began: usize,
    writes: BTreeMap<String, Option<String>>,
}

impl Open {
    fn sees(&self, states: &[State]) -> State {
        let mut state = states[self.began].clone();
        for (key, value) in &self.writes {
            match value {
                Some(value) => drop(state.insert(key.clone(), value.clone())),
                None => drop(state.remove(key)),
            }
        }
        state
    }
}

fn lines(state: &State) -> Vec<String> {
    state.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// Up to six interleaved transactions, long snapshots and reopenings. Each read is compared with the model.
fn history(seed: u64, options: &Options, steps: u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let places = memory();
    let (mut store, tree) = open_with_tree(&places, options);
    // Every committed state, and for each key the states that changed it.
    let mut states = vec![State::new()];
    let mut changed: BTreeMap<String, usize> = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    let mut snapshots: Vec<(Snapshot, usize)> = Vec::new();
    for step in 0..steps {
        match random.u32(..100) {
            0..15 if open.len() < 6 => {
                open.push(Open { transaction: store.begin(), began: states.len() - 1, writes: BTreeMap::new() });
            }
            15..55 if !open.is_empty() => {
                let at = random.usize(..open.len());
                let key = format!("k{}", random.u32(..KEYS));
                let value = random.bool().then(|| format!("{step}{}", "v".repeat(random.usize(..300))));
                let one = &mut open[at];
                match &value {
                    Some(value) => one.transaction.put(tree, key.as_bytes(), value.as_bytes()).expect("fits"),
                    None => one.transaction.delete(tree, key.as_bytes()).expect("fits"),
                }
                one.writes.insert(key, value);
            }
            55..75 if !open.is_empty() => {
                let one = &open[random.usize(..open.len())];
                let expected = lines(&one.sees(&states));
                let scan = one.transaction.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                assert_eq!(walk(scan).expect("reads"), expected, "step {step}");
            }
            75..90 if !open.is_empty() => {
                let one = open.swap_remove(random.usize(..open.len()));
                let lost = one.writes.keys().any(|key| changed.get(key).is_some_and(|state| *state > one.began));
                let state = states.last().expect("one at least").clone();
                let after = Open { began: states.len() - 1, ..one };
                states.push(state);
                let next = after.sees(&states);
                match after.transaction.commit() {
                    Ok(_) => {
                        assert!(!lost, "step {step}: a lost update was allowed");
                        let number = states.len() - 1;
                        changed.extend(after.writes.into_keys().map(|key| (key, number)));
                        states[number] = next;
                    }
                    Err(StoreError::Conflict) => assert!(lost, "step {step}: refused without a conflict"),
                    Err(error) => panic!("step {step}: {error}"),
                }
            }
            90..93 => snapshots.push((store.snapshot(), states.len() - 1)),
            93..96 if !snapshots.is_empty() => {
                let (snapshot, state) = &snapshots[random.usize(..snapshots.len())];
                assert_eq!(all(snapshot, tree), lines(&states[*state]), "step {step}");
                let key = format!("k{}", random.u32(..KEYS));
                assert_eq!(get(snapshot, tree, &key).as_ref(), states[*state].get(&key), "step {step}");
            }
            96..98 if snapshots.len() > 3 => drop(snapshots.swap_remove(random.usize(..snapshots.len()))),
            98 if random.u32(..8) == 0 => {
                open.clear();
                snapshots.clear();
                drop(store);
                store = Store::open(places.clone(), options.clone()).expect("opens").0;
                assert_eq!(all(&store.snapshot(), tree), lines(states.last().expect("one at least")), "step {step}");
            }
            _ => {}
        }
    }
}

fn histories(test: &str, options: &Options) {
    let first = seed(1);
    for seed in first..first + 30 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history(seed, options, 600)));
        assert!(outcome.is_ok(), "{}", replay(seed, test));
    }
}

#[test]
fn random_histories_are_snapshot_isolated() {
    clear_and_encrypted(|| {
        histories("histories::random_histories_are_snapshot_isolated", &small());
    });
}

#[test]
fn random_histories_are_snapshot_isolated_with_transactions_that_spill() {
    let options = Options { transaction_bytes: 1 << 10, ..small() };
    histories("histories::random_histories_are_snapshot_isolated_with_transactions_that_spill", &options);
}

#[test]
fn write_skew_is_allowed_as_snapshot_isolation_allows_it() {
    let (store, tree) = with_tree(small());
    put(&store, tree, "a", "on call");
    put(&store, tree, "b", "on call");
    let (mut first, mut second) = (store.begin(), store.begin());
    assert!(first.get(tree, b"b").expect("reads").is_some() && second.get(tree, b"a").expect("reads").is_some());
    first.delete(tree, b"a").expect("fits");
    second.delete(tree, b"b").expect("fits");
    first.commit().expect("nobody changed what it changed");
    second.commit().expect("nor here: each read what the other wrote, which snapshot isolation does not see");
    assert!(all(&store.snapshot(), tree).is_empty());
}

#[test]
fn a_snapshot_beyond_the_limit_of_old_versions_is_too_old_and_a_new_one_is_not() {
    let (store, tree) = with_tree(Options { versions_bytes: 20_000, ..small() });
    put(&store, tree, "a", "0");
    let old = store.snapshot();
    let mut cursor = old.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    for number in 0..200 {
        put(&store, tree, "a", &number.to_string());
    }
    assert!(matches!(old.get(tree, b"a"), Err(StoreError::TooOld)));
    assert!(matches!(cursor.next(), Err(StoreError::TooOld)));
    assert_eq!(get(&store.snapshot(), tree, "a").as_deref(), Some("199"));
}

const ACCOUNTS: u32 = 6;
const BALANCE: i64 = 100;

fn balance(value: Option<bytes::Bytes>) -> i64 {
    crate::support::text(value.expect("an account is never removed")).parse().expect("a number")
}

/// Moves money between two accounts until it succeeds. Returns whether it took more than one attempt.
fn transfer(store: &Store, tree: TreeId, random: &mut fastrand::Rng) -> bool {
    let (from, to) = (random.u32(..ACCOUNTS), random.u32(..ACCOUNTS));
    let amount = random.i64(1..10);
    for tries in 0.. {
        let mut transaction = store.begin();
        let keys = [from, to].map(|account| format!("account{account:02}"));
        let left = balance(transaction.get(tree, keys[0].as_bytes()).expect("reads"));
        std::thread::yield_now();
        transaction.put(tree, keys[0].as_bytes(), (left - amount).to_string().as_bytes()).expect("fits");
        let right = balance(transaction.get(tree, keys[1].as_bytes()).expect("reads"));
        transaction.put(tree, keys[1].as_bytes(), (right + amount).to_string().as_bytes()).expect("fits");
        match transaction.commit() {
            Ok(_) => return tries > 0,
            Err(StoreError::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("it is tried for ever")
}

#[test]
fn transfers_of_many_threads_keep_the_sum_at_every_moment() {
    let seed = seed(7);
    let (store, tree) = with_tree(Options { background: true, ..small() });
    for account in 0..ACCOUNTS {
        put(&store, tree, &format!("account{account:02}"), &BALANCE.to_string());
    }
    let done = AtomicBool::new(false);
    let sum = |snapshot: &Snapshot| {
        let entries = all(snapshot, tree);
        assert_eq!(entries.len(), ACCOUNTS as usize);
        let of = |entry: &String| entry.split_once('=').expect("a pair").1.parse::<i64>().expect("a number");
        entries.iter().map(of).sum::<i64>()
    };
    let told = replay(seed, "histories::transfers_of_many_threads_keep_the_sum_at_every_moment");
    let conflicts: u32 = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut held = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let snapshot = store.snapshot();
                assert_eq!(sum(&snapshot), i64::from(ACCOUNTS) * BALANCE, "{told}");
                held.push(snapshot);
                if held.len() > 20 {
                    let old = held.remove(0);
                    assert_eq!(sum(&old), i64::from(ACCOUNTS) * BALANCE, "{told}");
                }
            }
        });
        let work = |thread| {
            let mut random = fastrand::Rng::with_seed(seed + thread);
            (0..150).map(|_| u32::from(transfer(&store, tree, &mut random))).sum::<u32>()
        };
        let threads: Vec<_> = (0..6).map(|thread| scope.spawn(move || work(thread))).collect();
        let conflicts = threads.into_iter().map(|thread| thread.join().expect("no thread fails")).sum();
        done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader does not fail");
        conflicts
    });
    assert_eq!(sum(&store.snapshot()), i64::from(ACCOUNTS) * BALANCE, "{told}");
    assert!(conflicts > 0, "nothing met: the test has become too tame to mean anything; {told}");
}
