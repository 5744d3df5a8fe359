//! A tree read in parts by several threads: the same as by one cursor, with fewer reads of the device, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};
use parking_lot::Mutex;
use store::{CheckpointOptions, Direction, Options, Places, ScanParts, Snapshot, Store, StoreError, TreeId};

use crate::support::{memory, open_with_tree, replay, seed, small};

type Rows = BTreeMap<Bytes, Result<Bytes, String>>;

/// A cache that the rows do not fit in.
fn options() -> Options {
    let checkpoints =
        CheckpointOptions { dirty_bytes: 1 << 20, dirty_bytes_max: 2 << 20, ..CheckpointOptions::default() };
    Options {
        cache_bytes: 4 << 20,
        data_device_bytes: 8 << 20,
        images_device_bytes: 1 << 20,
        checkpoints: Some(checkpoints),
        ..small()
    }
}

/// Some changes: short values, values in pages of their own, a few that no part has room for; keys come and go.
fn change(store: &Store, tree: TreeId, keys: u32, random: &mut fastrand::Rng) {
    let mut transaction = store.begin();
    for _ in 0..40 {
        let key = format!("key {:06}", random.u32(..keys));
        if random.u32(..4) == 0 {
            transaction.delete(tree, key.as_bytes()).expect("fits");
            continue;
        }
        let bytes = match random.u32(..40) {
            0 => random.usize(..1_500_000),
            1..10 => random.usize(4_000..30_000),
            _ => random.usize(..3_000),
        };
        let value = vec![random.u8(..); bytes];
        transaction.put(tree, key.as_bytes(), &value).expect("fits");
    }
    transaction.commit().expect("commits");
}

/// What a cursor has between two keys; behind the error of a value it goes on.
fn rows_of(snapshot: &Snapshot, tree: TreeId, from: &[u8], to: &[u8], rows: &mut Rows) {
    let to = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
    let mut cursor = snapshot.scan(tree, Bound::Included(from), to, Direction::Forward).once();
    while let Some((key, value)) = cursor.next_tried().expect("the leaves are sound") {
        // A copy: a value in pages of its own keeps its place in the cache.
        let value = value.map(|value| Bytes::copy_from_slice(&value)).map_err(|error| error.to_string());
        assert!(rows.insert(key, value).is_none(), "a key of two parts");
    }
}

/// The same by threads that take one part after the other; every third key's long values are not loaded.
fn parted(snapshot: &Snapshot, tree: TreeId, threads: usize) -> (Rows, usize) {
    let parts: Mutex<(ScanParts, Bytes)> = Mutex::new((snapshot.parts(tree), Bytes::new()));
    let next = || {
        let (parts, from) = &mut *parts.lock();
        let to = parts.load_next(|key| key[key.len() - 1] % 3 != 0)?;
        assert!(to.is_empty() || to > *from, "parts go forward");
        Some((std::mem::replace(from, to.clone()), to))
    };
    let all = Mutex::new((Rows::new(), 0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((from, to)) = next() {
                    let mut rows = Rows::new();
                    rows_of(snapshot, tree, &from, &to, &mut rows);
                    let (all, parts) = &mut *all.lock();
                    *parts += 1;
                    for (key, value) in rows {
                        assert!(all.insert(key, value).is_none(), "a key of two parts");
                    }
                }
            });
        }
    });
    all.into_inner()
}

#[test]
fn parts_read_side_by_side_have_each_row_once_as_its_snapshot_sees_it_while_the_tree_changes() {
    let seed = seed(11);
    let mut random = fastrand::Rng::with_seed(seed);
    let (store, tree) = open_with_tree(&memory(), &options());
    (0..40).for_each(|_| change(&store, tree, 2_000, &mut random));
    for round in 0..6 {
        let snapshot = store.snapshot();
        let done = AtomicBool::new(false);
        let (found, parts) = std::thread::scope(|scope| {
            let mut random = fastrand::Rng::with_seed(random.u64(..));
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    change(store, tree, 2_000, &mut random);
                }
            });
            let found = std::panic::catch_unwind(AssertUnwindSafe(|| parted(&snapshot, tree, 1 + round % 3)));
            done.store(true, Ordering::Relaxed);
            found.unwrap_or_else(|_| panic!("{}", replay(seed, "parts")))
        });
        let mut expected = Rows::new();
        rows_of(&snapshot, tree, b"", b"", &mut expected);
        assert!(found == expected, "{}", replay(seed, "parts"));
        assert!(found.len() > 500 && parts > 10, "{} rows in {parts} parts", found.len());
    }
}

/// Rows as messages have them: most short, some in pages of their own beside the leaves.
fn filled(data: Arc<dyn Shelf>) -> (Places, Options, TreeId, usize) {
    let places = Places { data, ..memory() };
    let options = Options { cache_bytes: 64 << 20, data_device_bytes: 64 << 20, ..small() };
    let (store, tree) = open_with_tree(&places, &options);
    let mut long = 0;
    for key in 0..6_000_u32 {
        let mut transaction = store.begin();
        let bytes = if key % 9 == 0 { 9_000 } else { 1_000 };
        long += usize::from(bytes > 4_096);
        let value = [&key.to_le_bytes()[..], &vec![key as u8; bytes]].concat();
        transaction.put(tree, format!("key {key:06}").as_bytes(), &value).expect("fits");
        transaction.commit().expect("commits");
    }
    store.close().expect("closes");
    (places, options, tree, long)
}

#[test]
fn long_values_near_the_leaves_of_a_part_are_read_with_them() {
    let (places, options, tree, long) = filled(Arc::new(MemoryShelf::new()));
    let reads = |read: &dyn Fn(&Snapshot) -> Rows| {
        let (store, _) = Store::open(places.clone(), options.clone()).expect("opens");
        let before = store.metrics().data_devices.reads;
        let rows = read(&store.snapshot());
        (rows, (store.metrics().data_devices.reads - before) as usize)
    };
    let (expected, one_by_one) = reads(&|snapshot| {
        let mut rows = Rows::new();
        rows_of(snapshot, tree, b"", b"", &mut rows);
        rows
    });
    // Every third long value is not asked for, and read alone.
    let (found, together) = reads(&|snapshot| parted(snapshot, tree, 2).0);
    assert!(found == expected && found.len() == 6_000);
    assert!(one_by_one > long, "{one_by_one} reads");
    assert!(together < long / 3 + 120, "{together} reads in parts, {one_by_one} by a cursor, {long} long values");
}

#[test]
fn a_damaged_long_value_and_a_read_that_fails_are_errors_of_their_rows_alone() {
    let raw: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let faulty = Arc::new(FaultyShelf::new(raw.clone()));
    let (places, options, tree, _) = filled(faulty.clone());
    // One byte of the value of key 4,500.
    let device = raw.open("pages-0000").expect("it is there");
    let mut bytes = device::AlignedBuffer::zeroed(device.len() as usize);
    device.read(0, &mut bytes).expect("reads");
    let head = [&4_500_u32.to_le_bytes()[..], &[4_500_u32 as u8; 60]].concat();
    let at = bytes.chunks(4096).position(|page| page.starts_with(&head)).expect("it begins a page") * 4096;
    bytes[at + 2_000] ^= 1;
    device.write(at as u64, &bytes[at..at + 4096]).expect("writes");
    let (store, _) = Store::open(places, options).expect("opens");
    // Of those that load the first part; the cursor reads its pages again.
    for nth in [1, 3, 4, 6] {
        faulty.inject(Rule::nth(Operation::Read, nth, Fault::Eio));
    }
    let (found, _) = parted(&store.snapshot(), tree, 1);
    assert_eq!(faulty.hits(), 4, "all of them failed");
    let damaged: Vec<_> = found.iter().filter(|(_, value)| value.is_err()).collect();
    assert_eq!((found.len(), damaged.len()), (6_000, 1), "{damaged:?}");
    let (key, Err(why)) = damaged[0] else { panic!("{damaged:?}") };
    assert_eq!(key.as_ref(), b"key 004500");
    assert!(why.contains("extent at page") && why.contains("checksum"), "{why}");
    assert!(matches!(store.snapshot().get(tree, key), Err(StoreError::Corrupt(_))));
}
