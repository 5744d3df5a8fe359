//! More data than fits: transactions larger than the cache, and a full data medium.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, FileOptions, FileShelf, MemoryShelf, Operation, Shelf};
use store::{
    Changes, CheckpointOptions, Foreign, Interpreter, Lsn, Options, Places, SpaceLimit, SpaceLimits, Store, StoreError,
    TreeId,
};

use crate::support::{all, fail_flushes, get, memory, open_with_tree, put, small};

fn key(number: u32) -> String {
    format!("k{number:06}")
}

fn fill(store: &Store, tree: TreeId, numbers: impl Iterator<Item = u32>, value: &str) -> Result<(), StoreError> {
    let mut transaction = store.begin();
    for number in numbers {
        transaction.put(tree, key(number).as_bytes(), value.as_bytes()).expect("fits");
    }
    transaction.commit().map(drop)
}

#[test]
fn a_transaction_that_changes_more_pages_than_the_cache_has_is_applied_and_redone() {
    for background in [false, true] {
        let places = memory();
        let options = Options { cache_bytes: 4 << 20, background, ..small() };
        let (store, tree) = open_with_tree(&places, &options);
        for thousand in 0..12 {
            fill(&store, tree, thousand * 1000..(thousand + 1) * 1000, &"v".repeat(1000)).expect("commits");
        }
        store.checkpoint().expect("writes in place");
        let before = store.snapshot();
        // One row of each leaf changes: 12 MiB of leaves, and none may be written before a checkpoint begins.
        fill(&store, tree, (0..12_000).step_by(8), &"w".repeat(1000)).expect("commits");
        let check = |store: &Store| {
            let rows = all(&store.snapshot(), tree);
            assert_eq!(rows.len(), 12_000);
            assert_eq!(rows.iter().filter(|row| row.ends_with('w')).count(), 1500);
        };
        check(&store);
        assert!(get(&before, tree, &key(8)).is_some_and(|value| value.starts_with('v')), "a snapshot stays what it is");
        assert!(store.metrics().checkpoints.checkpoints > 2, "checkpoints began while it was applied");
        drop((before, store));
        let (store, _) = Store::open(places, options).expect("opens");
        check(&store);
        store.checkpoint().expect("writes in place");
        let verified = store.verify(&mut |_| ()).expect("reads");
        assert!(verified.is_sound(), "{verified}");
    }
}

/// A store with devices of a mebibyte. After the first rows, no further device can be created.
fn full(background: bool) -> (Arc<FaultyShelf>, Places, Options, Store, TreeId) {
    full_over(memory(), background, false)
}

/// The same over these places; `long`: 200 of the rows have pages of their own.
fn full_over(inner: Places, background: bool, long: bool) -> (Arc<FaultyShelf>, Places, Options, Store, TreeId) {
    let shelf = Arc::new(FaultyShelf::new(inner.data.clone()));
    let places = Places { data: shelf.clone(), ..inner };
    let options = Options { page_bytes: 4096, data_device_bytes: 1 << 20, background, ..small() };
    let (store, tree) = open_with_tree(&places, &options);
    fill(&store, tree, (0..1000).map(|n| n * 100), &"v".repeat(700)).expect("commits");
    if long {
        fill(&store, tree, (0..200).map(|n| n * 500 + 1), &"l".repeat(LONG)).expect("commits");
    }
    shelf.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    (shelf, places, options, store, tree)
}

/// The size of a value that has pages of its own.
const LONG: usize = 5000;

/// Leaves few pages free, then begins to commit short rows that each split a full leaf: they take more pages than are
/// reserved for so few bytes. Returns the number of rows before, and the commit, once it has found no room.
fn wait_for_room(shelf: &FaultyShelf, store: &Store, tree: TreeId) -> (usize, JoinHandle<Result<Lsn, StoreError>>) {
    put(store, tree, "large", &"1".repeat(20_000));
    let mut row = 1001;
    while store.metrics().pages - store.metrics().pages_used > 110 {
        put(store, tree, &key(row * 100), &"v".repeat(700));
        row += 1;
    }
    let rows = all(&store.snapshot(), tree).len();
    let mut transaction = store.begin();
    transaction.put(tree, b"a large one that comes first", &[b'x'; 20_000]).expect("fits");
    (0..200).for_each(|n| transaction.put(tree, key(n * 500 + 1).as_bytes(), &[b'y'; 500]).expect("fits"));
    transaction.put(tree, key(1).as_bytes(), &[b'2'; 20_000]).expect("fits");
    let waiting = std::thread::spawn(move || transaction.commit());
    while shelf.hits() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    (rows, waiting)
}

#[test]
fn a_store_without_file_descriptors_refuses_updates_is_not_poisoned_and_goes_on_once_there_are_some() {
    for (on_journal, background) in [(true, false), (true, true), (false, false), (false, true)] {
        let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>));
        let others = memory();
        let places = match on_journal {
            true => Places { journal: shelf.clone(), ..others },
            false => Places { data: shelf.clone(), ..others },
        };
        let options = Options { page_bytes: 4096, data_device_bytes: 1 << 20, background, ..small() };
        let (store, tree) = open_with_tree(&places, &options);
        for operation in [Operation::Create, Operation::Open] {
            shelf.inject(Rule::from(operation, 1, Fault::NoDescriptors));
        }
        let refused = (0..20_000).find_map(|number| fill(&store, tree, number..number + 1, &"v".repeat(700)).err());
        let Some(StoreError::Full(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("descriptor"), "{why}");
        assert!(store.lacks_descriptor() && store.poisoned().is_none(), "it waits, and is not poisoned");
        assert!(matches!(store.try_room(100_000), Err(StoreError::Full(_))));
        shelf.heal();
        store.try_room(100_000).expect("there is room");
        fill(&store, tree, 30_000..30_001, "w").expect("it goes on");
        assert_eq!(get(&store.snapshot(), tree, &key(30_000)).as_deref(), Some("w"));
        store.close().expect("closes");
        let (store, _) = Store::open(places, options).expect("opens");
        assert_eq!(get(&store.snapshot(), tree, &key(30_000)).as_deref(), Some("w"));
    }
}

#[test]
fn transactions_leave_room_to_records_of_services_and_say_which_setting_bounds_them() {
    let pages = SpaceLimits { pages: Some(SpaceLimit { bytes: 1 << 20, setting: "space" }), ..SpaceLimits::default() };
    let reserve =
        SpaceLimits { reserve: Some(SpaceLimit { bytes: u64::MAX / 2, setting: "reserve" }), ..SpaceLimits::default() };
    let cases = [(pages, "space"), (reserve, "reserve")];
    // Large rows, many rows, and many rows that spill.
    let sizes = [(30, 60_000, 64 << 20), (3_000, 1_000, 64 << 20), (3_000, 1_000, 64 << 10)];
    for ((limits, setting), (rows, bytes, transaction_bytes)) in
        cases.into_iter().flat_map(|case| sizes.map(|size| (case, size)))
    {
        // Only files report free space.
        let home = tempfile::tempdir().expect("a folder");
        let shelf: Arc<dyn Shelf> = Arc::new(FileShelf::open(home.path(), FileOptions::default()).expect("a shelf"));
        let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
        let options = Options { interpreter: Some(Arc::new(Keys)), transaction_bytes, ..small() };
        let (store, tree) = open_with_tree(&places, &options);
        fill(&store, tree, 0..10, "kept").expect("commits");
        store.close().expect("closes");
        let (store, _) = Store::open(places.clone(), Options { limits, ..options.clone() }).expect("opens");
        let appended = store.appended();
        let mut transaction = store.begin();
        let value = "v".repeat(bytes);
        let failed = (0..rows).find_map(|n| transaction.put(tree, key(100 + n).as_bytes(), value.as_bytes()).err());
        let error = failed.or_else(|| transaction.commit().err()).expect("it is refused");
        assert!(matches!(&error, StoreError::Full(why) if why.contains(setting)), "{error}");
        assert!(transaction_bytes == 64 << 10 || store.appended() == appended, "nothing of it is in the journal");
        let mut removes = store.begin();
        removes.delete(tree, key(3).as_bytes()).expect("fits");
        removes.commit().expect("what removes is not refused");
        for number in 0..50 {
            let lsn = store
                .append(3, [key(number).as_bytes(), &[7; 20_000]].concat())
                .expect("records of services are taken");
            store.commit(lsn).expect("commits");
        }
        store.close().expect("closes");
        let (store, _) = Store::open(places, options).expect("opens");
        assert_eq!(all(&store.snapshot(), tree).len(), 9);
        fill(&store, tree, 0..20, "again").expect("without a bound it is taken");
    }
}

#[test]
fn a_full_data_medium_refuses_updates_before_they_are_durable_and_a_store_on_it_opens() {
    for (background, reopens) in [(false, false), (false, true), (true, false), (true, true)] {
        let (shelf, places, options, mut store, tree) = full(background);
        let refused = (0..2000).find_map(|number| {
            let appended = store.appended();
            let error = fill(&store, tree, number * 100 + 7..number * 100 + 8, &"w".repeat(700)).err()?;
            assert_eq!(store.appended(), appended, "nothing of it is durable");
            Some((number, error))
        });
        let Some((number, StoreError::Full(_))) = refused else { panic!("{refused:?}") };
        assert!(store.poisoned().is_none(), "full is not poisoned");
        if reopens {
            drop(store);
            store = Store::open(places, options).expect("opens on a full medium").0;
        }
        assert_eq!(all(&store.snapshot(), tree).len(), 1000 + number as usize);
        let mut transaction = store.begin();
        (0..40).for_each(|n| transaction.delete(tree, key(n * 100).as_bytes()).expect("fits"));
        transaction.commit().expect("what makes room is not refused");
        shelf.heal();
        for number in number..number + 100 {
            fill(&store, tree, number * 100 + 7..number * 100 + 8, &"w".repeat(700)).expect("there is room again");
        }
        assert_eq!(all(&store.snapshot(), tree).len(), 1060 + number as usize);
    }
}

#[test]
fn a_batch_that_finds_no_room_waits_for_it_unseen_and_poisons_nothing() {
    for long in [false, true] {
        let (shelf, places, options, store, tree) = full_over(memory(), true, long);
        let (rows, waiting) = wait_for_room(&shelf, &store, tree);
        let (before, added) = (store.snapshot(), if long { 1 } else { 201 });
        std::thread::sleep(Duration::from_millis(300));
        assert!(store.poisoned().is_none(), "{:?}", store.poisoned());
        assert!(!waiting.is_finished(), "it is durable, so it is not refused");
        assert_eq!(all(&store.snapshot(), tree).len(), rows, "no part of it is seen");
        shelf.heal();
        waiting.join().expect("does not panic").expect("commits");
        assert_eq!(all(&store.snapshot(), tree).len(), rows + added);
        let seen = all(&before, tree);
        assert_eq!(seen.len(), rows);
        let is_long = |row: &&String| row.ends_with(&"l".repeat(LONG));
        assert_eq!(seen.iter().filter(is_long).count(), if long { 200 } else { 0 }, "old values stay what they are");
        drop(before);
        put(&store, tree, "last", "1");
        store.checkpoint().expect("writes in place");
        let verified = store.verify(&mut |_| ()).expect("reads");
        assert!(verified.is_sound(), "{verified}");
        let used = store.metrics().pages_used;
        store.close().expect("closes");
        let (store, _) = Store::open(places, options).expect("opens");
        assert_eq!(store.metrics().pages_used, used, "what was begun in vain is free again");
        assert_eq!(all(&store.snapshot(), tree).len(), rows + added + 1);
    }
}

#[test]
fn a_store_whose_images_have_no_room_can_be_closed_and_opened() {
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>));
    let places = Places { images: shelf.clone(), ..memory() };
    let checkpoints =
        CheckpointOptions { dirty_bytes: 8 << 10, dirty_bytes_max: 512 << 10, ..CheckpointOptions::default() };
    let options =
        Options { images_device_bytes: 64 << 10, checkpoints: Some(checkpoints), background: true, ..small() };
    let options = Options { interpreter: Some(Arc::new(Keys)), cache_bytes: 4 << 20, ..options };
    let (store, _) = Store::open(places.clone(), options.clone()).expect("opens");
    let tree = store.interpreted()[0];
    let append = |from: u32, byte: u8| {
        let append =
            |n: u32| store.append(3, [key(n).as_bytes(), &[byte; 700]].concat()).expect("there is room in the queue");
        (from..from + 3000).map(append).fold(Lsn(0), |_, lsn| lsn)
    };
    store.wait_visible(append(0, b'1')).expect("applies");
    store.checkpoint().expect("writes in place");
    shelf.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    // The dirty pages are larger than a batch of write images, and larger than the cache.
    store.commit(append(0, b'2')).expect("is durable");
    let (told, closed) = std::sync::mpsc::channel();
    let closing = std::thread::spawn(move || told.send(store.close()));
    let closed = closed.recv_timeout(Duration::from_secs(60)).expect("it returns");
    assert!(matches!(closed, Err(StoreError::Full(_))), "{closed:?}");
    closing.join().expect("does not panic").expect("is listened to");
    shelf.heal();
    let (store, _) = Store::open(places, options).expect("opens");
    let rows = all(&store.snapshot(), tree);
    assert!(rows.len() == 3000 && rows.iter().all(|row| row.ends_with('2')));
}

#[test]
fn a_store_whose_images_have_no_room_is_checked_and_backed_up_as_of_the_last_checkpoint_and_can_be_closed() {
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>));
    let places = Places { images: shelf.clone(), ..memory() };
    let options = Options { images_device_bytes: 64 << 10, background: true, ..small() };
    let (store, tree) = open_with_tree(&places, &options);
    fill(&store, tree, 0..3000, &"1".repeat(700)).expect("commits");
    store.checkpoint().expect("writes in place");
    shelf.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    fill(&store, tree, 0..3000, &"2".repeat(700)).expect("commits");
    assert!(matches!(store.checkpoint(), Err(StoreError::Full(_))));
    let (told, outcomes) = std::sync::mpsc::channel();
    let working = std::thread::spawn(move || {
        let verified = store.verify(&mut |_| ()).expect("reads the state of the last checkpoint");
        told.send(verified.is_sound()).expect("is listened to");
        let backup: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let made = store.backup(backup, &mut |_| std::ops::ControlFlow::Continue(()));
        told.send(made.is_ok()).expect("is listened to");
        told.send(store.close().is_err()).expect("is listened to");
    });
    for what in ["the check", "the backup", "closing, which says that pages were not written"] {
        assert_eq!(outcomes.recv_timeout(Duration::from_secs(60)), Ok(true), "{what}");
    }
    working.join().expect("does not panic");
    shelf.heal();
    let (store, _) = Store::open(places, options).expect("opens");
    let rows = all(&store.snapshot(), tree);
    assert!(rows.len() == 3000 && rows.iter().all(|row| row.ends_with('2')));
}

#[test]
fn after_a_failed_flush_everything_is_read_also_while_the_cache_is_full_of_pages_that_were_never_written() {
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>));
    let places = Places { journal: shelf.clone(), ..memory() };
    let checkpoints =
        CheckpointOptions { dirty_bytes: 1 << 30, dirty_bytes_max: 1 << 30, ..CheckpointOptions::default() };
    let options = Options { page_bytes: 4096, cache_bytes: 4 << 20, checkpoints: Some(checkpoints), ..small() };
    let (store, tree) = open_with_tree(&places, &options);
    let load = |from: u32| {
        (from..from + 6000).step_by(500).for_each(|n| fill(&store, tree, n..n + 500, &"v".repeat(1000)).expect("fits"));
    };
    load(0);
    store.checkpoint().expect("writes in place");
    load(10_000);
    fail_flushes(&shelf);
    assert!(fill(&store, tree, 50_000..50_001, "v").is_err() && store.poisoned().is_some());
    let snapshot = store.snapshot();
    for number in (0..6000).step_by(3).chain((10_000..16_000).step_by(3)) {
        assert!(get(&snapshot, tree, &key(number)).is_some(), "{number}");
    }
    assert_eq!(all(&snapshot, tree).len(), 12_000);
}

/// Record kind 3: a key of seven bytes and its value.
struct Keys;

impl Interpreter for Keys {
    fn trees(&self) -> Vec<String> {
        vec!["keys".into()]
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let (key, value) = record.payload.split_at(7);
        changes.put(trees[0], key.to_vec(), value.to_vec());
        Ok(())
    }
}
