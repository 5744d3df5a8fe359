//! Tests of pages: recovery from the state of a checkpoint, snapshots that are open during checkpoints, values in
//! extents, faults while writing in place.

use std::ops::Bound;
use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};
use store::{CheckpointOptions, Direction, Options, Places, Store, StoreError};

use crate::support::{
    all, clear_and_encrypted, get, memory, open_with_tree, places, put, replay, seed, small, walk, with_tree,
};

#[test]
fn recovery_begins_at_the_redo_lsn_of_the_last_checkpoint_and_the_journal_before_is_given_up() {
    let places = memory();
    let (store, opened) = Store::open(places.clone(), small()).expect("opens");
    assert!(opened.is_new);
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("new");
    transaction.commit().expect("commits");
    for key in 0..2000 {
        put(&store, tree, &format!("k{key:04}"), &"v".repeat(300));
    }
    let written = store.checkpoint().expect("writes");
    assert!(store.journal().first() > journal::Lsn(0), "whole segments before the redo LSN are given up");
    put(&store, tree, "k0000", "later");
    let expected = all(&store.snapshot(), tree);
    drop(store);
    let (store, opened) = Store::open(places.clone(), small()).expect("opens");
    assert_eq!((opened.applied_from, opened.records, opened.is_new), (written.redo_lsn, 1, false));
    assert_eq!(all(&store.snapshot(), tree), expected);
    store.close().expect("closes");
    let (store, opened) = Store::open(places, small()).expect("opens");
    assert_eq!(opened.records, 0, "a closed store has nothing to apply");
    assert_eq!(all(&store.snapshot(), tree), expected);
}

#[test]
fn a_snapshot_held_over_checkpoints_keeps_its_values_also_those_in_extents() {
    clear_and_encrypted(|| {
        let (store, tree) = with_tree(small());
        let large = |byte: u8| vec![byte; 300_000];
        let mut transaction = store.begin();
        transaction.put(tree, b"large", &large(0)).expect("fits");
        transaction.put(tree, b"small", b"0").expect("fits");
        transaction.commit().expect("commits");
        let old = store.snapshot();
        let lent = old.get(tree, b"large").expect("reads").expect("is there");
        for round in 1..=20_u8 {
            let mut transaction = store.begin();
            transaction.put(tree, b"large", &large(round)).expect("fits");
            transaction.put(tree, b"small", round.to_string().as_bytes()).expect("fits");
            transaction.commit().expect("commits");
            store.checkpoint().expect("writes");
            let verified = store.verify(&mut |_| ()).expect("reads");
            assert!(verified.is_sound(), "what only a snapshot sees is not lost space after a crash: {verified}");
            assert_eq!(get(&old, tree, "small").as_deref(), Some("0"), "round {round}");
            assert!(old.get(tree, b"large").expect("reads").expect("is there") == large(0), "round {round}");
        }
        let used = store.metrics().pages_used;
        assert!(lent == large(0), "what was lent stays what it was");
        drop((old, lent));
        put(&store, tree, "small", "last");
        store.checkpoint().expect("writes");
        assert!(store.metrics().pages_used <= used);
        assert_eq!(store.metrics().versions, 0);
        let verified = store.verify(&mut |_| ()).expect("reads");
        assert!(verified.is_sound(), "{verified}");
    });
}

#[test]
fn a_tree_larger_than_the_cache_is_loaded_read_and_recovered() {
    clear_and_encrypted(|| {
        let seed = seed(3);
        let mut random = fastrand::Rng::with_seed(seed);
        let places = memory();
        let options = Options {
            cache_bytes: 4 << 20,
            data_device_bytes: 16 << 20,
            images_device_bytes: 1 << 20,
            checkpoints: Some(CheckpointOptions {
                dirty_bytes: 1 << 20,
                dirty_bytes_max: 2 << 20,
                ..CheckpointOptions::default()
            }),
            ..small()
        };
        let (store, _) = Store::open(places.clone(), options.clone()).expect("opens");
        let mut transaction = store.begin();
        let tree = transaction.create_tree("t").expect("new");
        transaction.commit().expect("commits");
        let mut model = std::collections::BTreeMap::new();
        for _ in 0..120 {
            let mut transaction = store.begin();
            for _ in 0..100 {
                let key = random.u32(..20_000);
                let value = format!("{key}.{}", "v".repeat(random.usize(..900)));
                transaction.put(tree, format!("k{key:05}").as_bytes(), value.as_bytes()).expect("fits");
                model.insert(format!("k{key:05}"), value);
            }
            transaction.commit().expect("commits");
        }
        let metrics = store.metrics();
        assert!(metrics.checkpoints.checkpoints > 2 && metrics.cache.misses > 0, "{metrics:?}");
        let expected: Vec<String> = model.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let told = replay(seed, "pages::a_tree_larger_than_the_cache_is_loaded_read_and_recovered");
        assert!(all(&store.snapshot(), tree) == expected, "{told}");
        drop(store);
        let (store, _) = Store::open(places, options).expect("opens");
        assert!(all(&store.snapshot(), tree) == expected, "{told}");
    });
}

#[test]
fn a_checkpoint_that_cannot_write_poisons_the_store_and_loses_nothing() {
    let kept: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let faulty = Arc::new(FaultyShelf::new(kept.clone()));
    let split = |shelf: Arc<dyn Shelf>| Places { data: shelf, ..memory() };
    let all_places = split(faulty.clone());
    let (store, _) = Store::open(all_places.clone(), small()).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("new");
    transaction.put(tree, b"a", b"1").expect("fits");
    transaction.commit().expect("commits");
    faulty.inject(Rule::from(Operation::Write, 1, Fault::Eio));
    assert!(matches!(store.checkpoint(), Err(StoreError::Poisoned { .. })));
    assert!(faulty.hits() > 0);
    let mut transaction = store.begin();
    transaction.put(tree, b"b", b"2").expect("fits");
    assert!(matches!(transaction.commit(), Err(StoreError::Poisoned { .. })));
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
    drop(store);
    faulty.heal();
    let (store, _) = Store::open(Places { data: kept, ..all_places }, small()).expect("opens");
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
}

#[test]
fn one_shelf_may_serve_for_everything() {
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let (store, _) = Store::open(places(&shelf), Options { background: true, ..small() }).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("new");
    transaction.put(tree, b"a", b"1").expect("fits");
    transaction.commit().expect("commits");
    store.checkpoint().expect("writes");
    store.close().expect("closes");
    let (store, _) = Store::open(places(&shelf), small()).expect("opens");
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
}

#[test]
fn a_tree_dropped_under_a_snapshot_is_no_lost_space_before_or_after_reopening() {
    let places = memory();
    let (store, tree) = open_with_tree(&places, &small());
    for key in 0..300 {
        put(&store, tree, &format!("k{key:03}"), &"v".repeat(200));
    }
    put(&store, tree, "large", &"v".repeat(200_000));
    let old = store.snapshot();
    let mut transaction = store.begin();
    transaction.drop_tree("t").expect("is there");
    transaction.commit().expect("commits");
    store.checkpoint().expect("writes");
    let verified = store.verify(&mut |_| ()).expect("reads");
    assert!(verified.is_sound(), "{verified}");
    assert_eq!(all(&old, tree).len(), 301);
    let used = store.metrics().pages_used;
    drop((old, store));
    let (store, _) = Store::open(places, small()).expect("opens");
    store.checkpoint().expect("writes");
    let verified = store.verify(&mut |_| ()).expect("reads");
    assert!(verified.is_sound(), "{verified}");
    assert!(store.metrics().pages_used + 30 < used, "its pages are free: {:?}", store.metrics());
}

#[test]
fn a_scan_reads_neighbouring_leaves_together_and_finds_what_point_reads_find() {
    clear_and_encrypted(|| {
        let places = memory();
        let options = Options { cache_bytes: 8 << 20, ..small() };
        let (store, tree) = open_with_tree(&places, &options);
        // Pages of another tree are in between.
        let mut transaction = store.begin();
        let other = transaction.create_tree("other").expect("new");
        transaction.commit().expect("commits");
        for batch in 0..100 {
            let mut transaction = store.begin();
            for key in batch * 200..(batch + 1) * 200 {
                let value = format!("{key}").repeat(100);
                transaction.put(tree, format!("k{key:06}").as_bytes(), value.as_bytes()).expect("fits");
                transaction.put(other, format!("o{key:06}").as_bytes(), b"small").expect("fits");
            }
            transaction.commit().expect("commits");
        }
        store.close().expect("closes");
        let (store, _) = Store::open(places, options).expect("opens");
        let scanned = |from: &[u8], to: &[u8]| {
            let before = store.metrics();
            let range = (Bound::Included(from), Bound::Excluded(to));
            let rows = walk(store.snapshot().scan(tree, range.0, range.1, Direction::Forward).once()).expect("reads");
            let after = store.metrics();
            let reads = after.data_devices.reads - before.data_devices.reads;
            (
                rows,
                reads,
                (after.data_devices.read_bytes - before.data_devices.read_bytes) / u64::from(small().page_bytes),
            )
        };
        let (few, reads, pages) = scanned(b"k010000", b"k010002");
        assert_eq!((few.len(), pages < 8), (2, true), "{reads} reads of {pages} pages for two rows");
        let (rows, reads, pages) = scanned(b"k", b"l");
        assert_eq!(rows.len(), 20_000);
        assert!(pages > 1000 && reads < pages / 6, "{reads} reads of {pages} pages");
        let expected = walk(store.snapshot().scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward));
        assert!(rows == expected.expect("reads"), "the same rows");
    });
}
