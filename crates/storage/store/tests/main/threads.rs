//! Real threads with all features at once: writers, readers with old snapshots, checkpoints, spills, a cache that is
//! too small, values in extents; and a journal whose commits take few instructions.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Shelf;
use device::pmem::{Absent, PmemOptions, PmemShelf};
use store::{CheckpointOptions, Direction, Options, Places, Snapshot, Store, StoreError, TreeId};

use crate::support::{memory, open_with_tree, replay, seed, small, verified};

const WRITERS: u32 = 4;
const KEYS: u32 = 40;

/// A value whose bytes all identify the writer and the step.
fn value(writer: u32, step: u32, bytes: usize) -> Vec<u8> {
    [writer.to_le_bytes(), step.to_le_bytes()].concat().into_iter().cycle().take(8 + bytes / 8 * 8).collect()
}

/// Every writer sets all its keys in one transaction: a snapshot contains one step of each writer.
fn check(snapshot: &Snapshot, tree: TreeId) -> Result<usize, StoreError> {
    let mut seen = vec![None; WRITERS as usize];
    let mut rows = 0;
    let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((key, value)) = cursor.next()? {
        let writer = u32::from(key[0] - b'0');
        assert!(value.chunks(8).all(|chunk| chunk == &value[..8]), "a torn value of {key:?}");
        assert_eq!(value[..4], writer.to_le_bytes(), "another's value under {key:?}");
        let step = u32::from_le_bytes(value[4..8].try_into().expect("four bytes"));
        assert_eq!(*seen[writer as usize].get_or_insert(step), step, "half a transaction of writer {writer}");
        rows += 1;
    }
    Ok(rows)
}

fn write(store: &Store, tree: TreeId, writer: u32, steps: u32, random: &mut fastrand::Rng) {
    for step in 0..steps {
        let mut transaction = store.begin();
        let bytes = if random.u8(..6) == 0 { random.usize(..40_000) } else { random.usize(..300) };
        for key in 0..KEYS {
            let key = format!("{writer}.{key:03}");
            // Some rows come and go, so that leaves become empty and are removed.
            if step % 7 == 3 {
                transaction.delete(tree, key.as_bytes()).expect("fits");
            } else {
                transaction.put(tree, key.as_bytes(), &value(writer, step, bytes)).expect("fits");
            }
        }
        transaction.commit().expect("nobody else writes these keys");
    }
}

fn stress(places: &Places, options: &Options, seed: u64, steps: u32) {
    let (store, tree) = open_with_tree(places, options);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (store, done) = (&store, &done);
                scope.spawn(move || {
                    let mut held = Vec::new();
                    let mut rounds = 0;
                    while !done.load(Ordering::Relaxed) || rounds < 3 {
                        held.push(store.snapshot());
                        check(held.last().expect("just pushed"), tree).expect("reads");
                        if held.len() > 1 + 10 * reader {
                            check(&held.remove(0), tree).expect("reads what it saw");
                        }
                        rounds += 1;
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = &store;
                let mut random = fastrand::Rng::with_seed(seed + u64::from(writer));
                scope.spawn(move || write(store, tree, writer, steps, &mut random))
            })
            .collect();
        let failed = writers.into_iter().map(|writer| writer.join().is_err()).collect::<Vec<_>>().contains(&true);
        done.store(true, Ordering::Relaxed);
        let failed =
            readers.into_iter().map(|reader| reader.join().is_err()).collect::<Vec<_>>().contains(&true) || failed;
        assert!(!failed, "{}", replay(seed, "threads"));
    });
    let rows = check(&store.snapshot(), tree).expect("reads");
    assert!(store.metrics().checkpoints.checkpoints > 0, "no checkpoint ran: {:?}", store.metrics());
    store.close().expect("closes");
    let verified = verified(places).expect("reads");
    assert!(verified.is_sound(), "{verified}");
    let (store, opened) = Store::open(places.clone(), options.clone()).expect("opens");
    assert_eq!(opened.records, 0);
    assert_eq!(check(&store.snapshot(), tree).expect("reads"), rows);
}

fn busy() -> Options {
    let checkpoints = CheckpointOptions {
        interval: Duration::from_millis(5),
        dirty_bytes: 1 << 20,
        dirty_bytes_max: 2 << 20,
        ..CheckpointOptions::default()
    };
    let sizes = Options { cache_bytes: 4 << 20, data_device_bytes: 16 << 20, images_device_bytes: 1 << 20, ..small() };
    Options {
        background: true,
        checkpoints: Some(checkpoints),
        transaction_bytes: 1 << 20,
        queue_bytes: 1 << 20,
        ..sizes
    }
}

#[test]
fn readers_see_whole_transactions_beside_writers_and_checkpoints() {
    stress(&memory(), &busy(), seed(5), 30);
}

#[test]
fn the_same_with_the_journal_on_mapped_memory() {
    let folder = tempfile::tempdir().expect("there is room");
    let shelf = PmemShelf::open(folder.path(), PmemOptions { absent: Absent::Emulate }).expect("opens");
    let places = Places { journal: Arc::new(shelf) as Arc<dyn Shelf>, ..memory() };
    stress(&places, &busy(), seed(6), 15);
    let (store, _) = Store::open(places, busy()).expect("opens");
    assert!(store.is_inline());
}

#[test]
fn a_closed_store_reads_and_takes_no_updates() {
    let (store, tree) = open_with_tree(&memory(), &busy());
    let other = store.clone();
    store.close().expect("closes");
    let mut transaction = other.begin();
    transaction.put(tree, b"a", b"1").expect("fits");
    assert!(matches!(transaction.commit(), Err(StoreError::Refused(_))));
    assert!(matches!(other.append(1, &b"x"[..]), Err(StoreError::Refused(_))));
    assert!(matches!(other.checkpoint(), Err(StoreError::Refused(_))));
    assert_eq!(check(&other.snapshot(), tree).expect("reads"), 0);
    assert!(other.poisoned().is_none(), "closed is not poisoned");
}

#[test]
fn threads_that_change_the_same_key_all_succeed_and_each_change_counts() {
    const CHANGES: u64 = 50;
    let (store, tree) = open_with_tree(&memory(), &small());
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..CHANGES {
                    let changed: Result<(), StoreError> = store.transact(|transaction| {
                        let before = transaction
                            .get(tree, b"sum")?
                            .map_or(0, |row| row[..].try_into().map_or(0, u64::from_be_bytes));
                        transaction.put(tree, b"sum", &(before + 1).to_be_bytes())
                    });
                    changed.expect("it begins again after a conflict");
                }
            });
        }
    });
    let sum = store.snapshot().get(tree, b"sum").expect("it is read").expect("it is there");
    assert_eq!(sum[..], (u64::from(WRITERS) * CHANGES).to_be_bytes());
    let refused: Result<(), StoreError> = store.transact(|_| Err(StoreError::Refused("no".into())));
    assert!(matches!(refused, Err(StoreError::Refused(_))), "an error of the work itself ends it");
}
