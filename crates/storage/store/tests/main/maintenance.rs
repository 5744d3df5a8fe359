//! Tests of verify, backup and restore through the public interface.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::faulty::{Fault, Rule};
use device::{AlignedBuffer, FaultyShelf, MemoryShelf, Operation, Shelf};
use store::{Lsn, Manifest, Options, Places, Store, StoreError, TreeId, Until, inspect_places};

use crate::support::{all, clear_and_encrypted, get, memory, put, restored, small, verified};

fn filled(places: &Places, keys: usize) -> Store {
    let options = Options { page_bytes: 4096, data_device_bytes: 256 * 4096, cache_bytes: 4 << 20, ..small() };
    let (store, _) = Store::open(places.clone(), options).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    for key in 0..keys {
        let value = vec![key as u8; [20, 300, 5000][key % 3]];
        transaction.put(tree, format!("{key:05}").as_bytes(), &value).expect("fits");
    }
    transaction.commit().expect("commits");
    store
}

#[test]
fn a_store_verifies_while_it_is_open_and_as_it_lies_and_the_report_says_what_is_in_it() {
    clear_and_encrypted(|| {
        let places = memory();
        let store = filled(&places, 200);
        store.checkpoint().expect("writes in place");
        let mut told = Vec::new();
        let online = store.verify(&mut |progress| told.push(progress)).expect("reads");
        assert!(online.is_sound(), "{online}");
        let last = told.last().expect("progress is told");
        assert_eq!((last.done, last.total), (online.used, online.used), "at the end everything was looked at");
        let (_, report) = online.trees.iter().find(|(name, _)| name == "t").expect("is listed");
        assert_eq!(report.cells, 200);
        assert!(report.extents >= 66);
        assert!(online.to_string().ends_with("sound\n"), "{online}");
        store.close().expect("closes");
        let offline = verified(&places).expect("reads");
        assert!(offline.is_sound(), "{offline}");
        assert_eq!((offline.identity, &offline.trees), (online.identity, &online.trees));
    });
}

#[test]
fn what_lies_in_the_places_is_printed_also_where_there_is_nothing_or_damage() {
    let places = memory();
    assert_eq!(inspect_places(&places).expect("reads"), "no write image journal\nno data devices\n");
    let store = filled(&places, 60);
    store.checkpoint().expect("writes in place");
    let text = inspect_places(&places).expect("reads");
    for part in [
        "checkpoint 1 begun at",
        "invalidated: all of it is written back",
        "all images verify",
        "pages-0000: ",
        "closed: false",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    store.close().expect("closes");
    assert!(inspect_places(&places).expect("reads").contains("closed: true"));
    flip(&*places.data, 100);
    assert!(inspect_places(&places).expect("reads").contains("superblock: damaged"));
}

#[test]
fn an_empty_place_is_no_store() {
    assert!(matches!(verified(&memory()), Err(StoreError::Refused(_))));
}

/// The content of the store, or the error that prevents reading it.
fn everything(places: &Places) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StoreError> {
    let options = Options { page_bytes: 4096, cache_bytes: 4 << 20, ..small() };
    let (store, _) = Store::open(places.clone(), options)?;
    let snapshot = store.snapshot();
    let Some(tree) = snapshot.tree("t")? else { return Err(StoreError::Corrupt("there is no tree".into())) };
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let mut cursor = snapshot.scan(tree, all.0, all.1, store::Direction::Forward);
    let mut found = BTreeMap::new();
    while let Some((key, value)) = cursor.next()? {
        found.insert(key.to_vec(), value.to_vec());
    }
    Ok(found)
}

fn flip(shelf: &dyn Shelf, offset: u64) {
    let device = shelf.open("pages-0000").expect("is there");
    let mut block = AlignedBuffer::zeroed(4096);
    device.read(offset / 4096 * 4096, &mut block).expect("reads");
    block[(offset % 4096) as usize] ^= 0x20;
    device.write(offset / 4096 * 4096, &block).expect("writes");
}

#[test]
fn a_changed_bit_is_named_or_lies_where_nothing_is_and_nothing_wrong_is_ever_read() {
    clear_and_encrypted(|| {
        let places = memory();
        filled(&places, 60).close().expect("closes");
        let expected = everything(&places).expect("reads");
        let sound = verified(&places).expect("reads");
        let random = &mut fastrand::Rng::with_seed(3);
        let (mut named, mut harmless) = (0, 0);
        for page in 0..sound.used + 4 {
            let offset = page * 4096 + random.u64(..4096);
            flip(&*places.data, offset);
            match verified(&places) {
                Ok(report) if report.is_sound() => {
                    assert_eq!(everything(&places).expect("reads"), expected, "byte {offset}");
                    harmless += 1;
                }
                Ok(report) => {
                    let text = report.to_string();
                    assert!(
                        text.contains("page") && text.contains("damaged: `terrace repair`"),
                        "byte {offset}: {text}"
                    );
                    named += 1;
                }
                Err(error) => {
                    assert!(matches!(error, StoreError::Corrupt(_)), "byte {offset}: {error}");
                    assert!(page == 0, "only the superblock is needed to begin");
                    named += 1;
                }
            }
            flip(&*places.data, offset);
        }
        assert!(named > 25 && harmless > 0, "{named} named, {harmless} harmless");
        assert!(verified(&places).expect("reads").is_sound());
    });
}

#[test]
fn values_that_a_snapshot_still_reads_are_no_lost_space_and_come_back_once_it_is_over() {
    clear_and_encrypted(|| {
        let places = memory();
        let store = filled(&places, 60);
        store.checkpoint().expect("writes in place");
        let reader = store.snapshot();
        let tree = reader.tree("t").expect("reads").expect("is there");
        for round in 0..3 {
            for key in 0..60 {
                put(&store, tree, &format!("{key:05}"), &"x".repeat(3000 + round));
            }
            store.checkpoint().expect("writes in place");
            let report = store.verify(&mut |_| ()).expect("reads");
            assert!(report.is_sound(), "{report}");
            assert_eq!(reader.get(tree, b"00002").expect("reads").map(|value| value.len()), Some(5000));
        }
        let waiting = store.metrics().pages_waiting;
        drop(reader);
        put(&store, tree, "another", "one");
        store.checkpoint().expect("writes in place");
        store.checkpoint().expect("writes in place");
        let after = store.metrics();
        assert!(after.pages_waiting < waiting.max(10), "{} pages wait, {waiting} did", after.pages_waiting);
    });
}

/// A clock that counts its calls.
fn ticking() -> (Arc<AtomicU64>, Arc<dyn Fn() -> u64 + Send + Sync>) {
    let now = Arc::new(AtomicU64::new(1000));
    let clock = now.clone();
    (now, Arc::new(move || clock.load(Ordering::SeqCst)))
}

/// The end of the journal after a commit, and the time of the commit.
type Commits = BTreeMap<u64, (Lsn, u64)>;

/// Backs a store up while a thread puts one key after the other. Returns the content at the beginning, and every
/// commit.
fn back_up_under_load(
    store: &Store,
    tree: TreeId,
    now: &AtomicU64,
    backup: &Arc<dyn Shelf>,
) -> (Manifest, u64, Commits) {
    let count = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut commits = BTreeMap::new();
            while !stop.load(Ordering::SeqCst) || commits.len() < 50 {
                let number = count.load(Ordering::SeqCst);
                let time = now.fetch_add(10, Ordering::SeqCst) + 10;
                put(store, tree, &format!("{number:06}"), &"v".repeat(1 + number as usize % 4000));
                commits.insert(number, (store.durable(), time));
                count.store(number + 1, Ordering::SeqCst);
            }
            commits
        });
        while count.load(Ordering::SeqCst) < 20 {
            std::thread::yield_now();
        }
        store.checkpoint().expect("writes in place");
        let before = count.load(Ordering::SeqCst);
        let manifest = store.backup(backup.clone(), &mut |_| ControlFlow::Continue(())).expect("backs up");
        stop.store(true, Ordering::SeqCst);
        (manifest, before, writer.join().expect("works"))
    })
}

#[test]
fn a_backup_taken_under_load_is_restored_to_any_commit_by_position_and_by_time() {
    clear_and_encrypted(|| {
        let (now, clock) = ticking();
        let source = memory();
        let options = Options {
            background: true,
            clock,
            keep_journal_bytes: 1 << 30,
            data_device_bytes: 4 << 20,
            images_device_bytes: 1 << 20,
            ..small()
        };
        let (store, _) = Store::open(source.clone(), options.clone()).expect("opens");
        let mut transaction = store.begin();
        let tree = transaction.create_tree("t").expect("is new");
        transaction.commit().expect("commits");
        let backup: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let (manifest, before, commits) = back_up_under_load(&store, tree, &now, &backup);
        store.checkpoint().expect("writes in place");
        let again = store.backup(backup.clone(), &mut |_| ControlFlow::Continue(())).expect_err("the shelf is taken");
        assert!(again.to_string().contains("choose an empty place"), "{again}");
        drop(store);
        let open = |kept: Option<&Arc<dyn Shelf>>, until| {
            let places = memory();
            restored(&backup, kept, &places, until).expect("restores");
            let report = verified(&places).expect("reads");
            assert!(report.is_sound(), "{report}");
            let (store, _) = Store::open(places, options.clone()).expect("opens");
            store
        };
        let keys = |store: &Store| all(&store.snapshot(), tree).len() as u64;
        let by_itself = keys(&open(None, Until::End));
        assert!(by_itself >= before, "{by_itself} of {before} that were there when it began");
        assert_eq!(
            keys(&open(Some(&source.journal), Until::End)),
            commits.len() as u64,
            "with the journal nothing is lost"
        );
        let behind: Vec<_> = commits.iter().filter(|(_, (end, _))| *end >= manifest.redo_lsn).collect();
        assert!(!behind.is_empty(), "it wrote until the backup was made");
        for (number, (end, time)) in behind.iter().step_by(behind.len() / 8 + 1) {
            let store = open(Some(&source.journal), Until::Lsn(*end));
            assert_eq!(keys(&store), *number + 1, "up to {end}");
            assert!(get(&store.snapshot(), tree, &format!("{number:06}")).is_some());
            if *time > manifest.micros {
                assert_eq!(keys(&open(Some(&source.journal), Until::Micros(*time))), *number + 1, "up to {time}");
            }
            put(&store, tree, "new", "life");
            store.close().expect("closes");
        }
    });
}

/// The offset of a text in the first data device.
fn place_of(shelf: &dyn Shelf, text: &[u8]) -> u64 {
    let device = shelf.open_read_only("pages-0000").expect("is there");
    let mut bytes = AlignedBuffer::zeroed(device.len() as usize);
    device.read(0, &mut bytes).expect("reads");
    bytes.windows(text.len()).position(|part| part == text).expect("lies there") as u64
}

#[test]
fn a_tree_with_a_damaged_page_can_be_dropped_and_others_go_on() {
    let places = memory();
    let store = filled(&places, 200);
    let mut transaction = store.begin();
    let other = transaction.create_tree("other").expect("is new");
    transaction.commit().expect("commits");
    put(&store, other, "a", "1");
    store.close().expect("closes");
    flip(&*places.data, place_of(&*places.data, &[100; 300]));
    assert!(!verified(&places).expect("reads").is_sound(), "a leaf is damaged");
    let options = Options { cache_bytes: 4 << 20, ..small() };
    let (store, _) = Store::open(places.clone(), options.clone()).expect("opens");
    let mut transaction = store.begin();
    transaction.drop_tree("t").expect("is there");
    transaction.commit().expect("commits");
    put(&store, other, "b", "2");
    assert!(store.poisoned().is_none());
    drop(store);
    let (store, _) = Store::open(places, options).expect("opens again");
    assert_eq!(all(&store.snapshot(), other), ["a=1", "b=2"]);
    assert_eq!(store.snapshot().tree("t").expect("reads"), None);
    store.checkpoint().expect("writes in place");
    let verified = store.verify(&mut |_| ()).expect("reads");
    assert!(verified.faults == 0 && verified.leaked > Some(0), "only its pages are lost: {verified}");
}

/// Spills a transaction over several segments of the journal, and leaves it open.
fn spilled(store: &Store, tree: TreeId) -> store::Transaction {
    let mut spilled = store.begin();
    for key in 0..2000 {
        spilled.put(tree, format!("spilled {key:05}").as_bytes(), &[b'h'; 300]).expect("fits");
    }
    spilled
}

#[test]
fn a_backup_taken_while_a_spilled_transaction_is_committed_is_restored_and_opens() {
    clear_and_encrypted(|| {
        let source = memory();
        let journal = journal::Options { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, ..small().journal };
        let options = Options { journal, transaction_bytes: 64 << 10, ..small() };
        let (store, tree) = crate::support::open_with_tree(&source, &options);
        let mut spilled = Some(spilled(&store, tree));
        put(&store, tree, "behind", "1");
        let written = store.checkpoint().expect("writes in place");
        let backup: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let manifest = store.backup(backup.clone(), &mut |_| {
            if let Some(spilled) = spilled.take() {
                spilled.commit().expect("commits");
            }
            ControlFlow::Continue(())
        });
        let manifest = manifest.expect("backs up");
        assert!(manifest.from < manifest.redo_lsn && manifest.redo_lsn >= written.redo_lsn, "{manifest:?}");
        for kept in [None, Some(&source.journal)] {
            let places = memory();
            restored(&backup, kept, &places, Until::End).expect("restores");
            let (store, _) = Store::open(places, options.clone()).expect("opens");
            assert_eq!(all(&store.snapshot(), tree).len(), 2001);
            store.checkpoint().expect("writes in place");
        }
        for until in (0..manifest.end.0).step_by(997).chain([
            manifest.redo_lsn.0,
            manifest.consistent_lsn.0,
            manifest.consistent_lsn.0 + 1,
        ]) {
            let places = memory();
            match restored(&backup, None, &places, Until::Lsn(Lsn(until))) {
                Ok(restored) => {
                    assert!(restored.end >= manifest.consistent_lsn && restored.end.0 <= until);
                    let (store, _) = Store::open(places, options.clone()).expect("opens");
                    assert!([1, 2001].contains(&all(&store.snapshot(), tree).len()), "up to {until}");
                }
                Err(StoreError::Refused(why)) => assert!(why.contains("the first that it can be restored to"), "{why}"),
                Err(error) => panic!("up to {until}: {error}"),
            }
        }
    });
}

#[test]
fn the_journal_that_is_kept_holds_what_its_commit_records_name() {
    let places = memory();
    let options = Options { transaction_bytes: 64 << 10, keep_journal_bytes: 16 << 10, ..small() };
    let (store, tree) = crate::support::open_with_tree(&places, &options);
    let begin = store.appended();
    spilled(&store, tree).commit().expect("commits");
    store.checkpoint().expect("writes in place");
    assert!(store.journal().first() <= begin, "the commit record is kept, so its spill chunks are");
    for key in 0..200 {
        put(&store, tree, &format!("k{key}"), &"v".repeat(1000));
    }
    store.checkpoint().expect("writes in place");
    assert!(store.journal().first() > begin, "the commit record is not kept any more");
}

#[test]
fn a_store_that_was_opened_since_it_was_closed_is_not_taken_for_closed() {
    for opens_again in [false, true] {
        let places = memory();
        filled(&places, 20).close().expect("closes");
        assert!(inspect_places(&places).expect("reads").contains("closed: true"));
        if opens_again {
            drop(Store::open(places.clone(), small()).expect("opens"));
            assert!(inspect_places(&places).expect("reads").contains("closed: false"));
        }
        // After an opening, a checkpoint may have begun whose write images are the only whole copies of its pages.
        for name in places.images.list().expect("reads") {
            places.images.remove(&name).expect("is there");
        }
        match Store::open(places, small()) {
            Err(StoreError::Corrupt(why)) if opens_again => {
                assert!(why.contains("write image journal is missing"), "{why}")
            }
            Ok(_) if !opens_again => {}
            other => panic!("{opens_again}: {other:?}"),
        }
    }
}

#[test]
fn a_damaged_backup_is_refused_with_its_place_and_nothing_is_made_of_it() {
    clear_and_encrypted(|| {
        let source = memory();
        let store = filled(&source, 60);
        store.checkpoint().expect("writes in place");
        let backup: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        store.backup(backup.clone(), &mut |_| ControlFlow::Continue(())).expect("backs up");
        let as_it_lies = Places { journal: backup.clone(), images: backup.clone(), data: backup.clone() };
        let sound = verified(&as_it_lies).expect("reads");
        assert!(sound.is_sound(), "{sound}");
        let random = &mut fastrand::Rng::with_seed(11);
        let mut refused = 0;
        for page in 0..sound.used {
            let offset = page * 4096 + random.u64(..4096);
            flip(&*backup, offset);
            let places = memory();
            match restored(&backup, None, &places, Until::End) {
                // An unused byte of the page: no data is lost.
                Ok(_) => assert!(verified(&as_it_lies).expect("reads").is_sound(), "byte {offset}"),
                Err(error) => {
                    assert!(matches!(error, StoreError::Corrupt(_)), "byte {offset}: {error}");
                    assert!(page == 0 || error.to_string().contains("page"), "byte {offset}: {error}");
                    assert_eq!(
                        places.data.list().expect("lists").len() + places.journal.list().expect("lists").len(),
                        0
                    );
                    refused += 1;
                }
            }
            flip(&*backup, offset);
        }
        assert!(refused > 25, "{refused} refused");
        let journal =
            backup.list().expect("lists").into_iter().find(|name| name.starts_with("journal")).expect("is there");
        let segment = backup.open(&journal).expect("opens");
        let mut block = AlignedBuffer::zeroed(4096);
        // The last batch of the journal. If it is damaged, it looks like the end of a journal after a crash.
        let mut blocks = (0..segment.len() / 4096).map(|block| block * 4096);
        let last = blocks.rfind(|at| {
            segment.read(*at, &mut block).expect("reads");
            block.iter().any(|byte| *byte != 0)
        });
        let zeros = AlignedBuffer::zeroed(4096);
        segment.read(last.expect("there is one"), &mut block).expect("reads");
        segment.write(last.expect("there is one"), &zeros).expect("writes");
        let error = restored(&backup, None, &memory(), Until::End).expect_err("it is not whole");
        assert!(error.to_string().contains("journal"), "{error}");
        segment.write(last.expect("there is one"), &block).expect("writes");
        restored(&backup, None, &memory(), Until::End).expect("it is whole again");
    });
}

#[test]
fn a_backup_that_is_ended_or_runs_out_of_room_leaves_nothing_and_can_be_made_again_there() {
    let store = filled(&memory(), 60);
    let to: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let ended = store.backup(to.clone(), &mut |_| ControlFlow::Break(())).expect_err("it was ended");
    assert!(ended.to_string().contains("ended before it was complete"), "{ended}");
    assert_eq!(to.list().expect("lists"), [""; 0]);
    let full = FaultyShelf::new(to.clone());
    full.inject(Rule::from(Operation::Create, 2, Fault::NoSpace));
    let error = store.backup(Arc::new(full), &mut |_| ControlFlow::Continue(())).expect_err("there is no room");
    assert!(matches!(error, StoreError::Full(_) | StoreError::Journal(_)), "{error}");
    assert_eq!(to.list().expect("lists"), [""; 0]);
    store.backup(to, &mut |_| ControlFlow::Continue(())).expect("it can be made there");
}
