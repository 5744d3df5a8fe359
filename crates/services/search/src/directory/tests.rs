//! Files on a shelf: reading, crashes, space that is used again, damage.

use std::io::Write;

use device::MemoryShelf;
use device::crash::CrashShelf;
use encryption::Sealer;
use tantivy::directory::TerminatingWrite;

use super::testing::{clear_and_encrypted, sealer, store_with};
use super::*;

pub(super) struct TestPlace {
    pub(super) store: Store,
    pub(super) table: TreeId,
    pub(super) shelf: Arc<MemoryShelf>,
    /// That of large files.
    pub(super) capacity: Option<Arc<MemoryShelf>>,
}

impl TestPlace {
    fn new() -> TestPlace {
        TestPlace::with(sealer())
    }

    pub(super) fn with(sealer: Option<Arc<Sealer>>) -> TestPlace {
        let store = store_with(sealer);
        let mut transaction = store.begin();
        let table = transaction.create_tree("files").expect("a new name");
        transaction.commit().expect("committed");
        TestPlace { store, table, shelf: Arc::new(MemoryShelf::new()), capacity: None }
    }

    pub(super) fn shelves(&self) -> FileShelves {
        let capacity = self.capacity.clone().map(|shelf| (shelf as Arc<dyn Shelf>, 4 * EXTENT_BYTES));
        FileShelves { fast: self.shelf.clone(), capacity }
    }

    pub(super) fn open(&self, memory: u64) -> (ShelfDirectory, u64) {
        let memory = Arc::new(FileMemory::new(memory));
        ShelfDirectory::open((&self.store, self.table), &self.shelves(), "index", memory).expect("opened")
    }
}

pub(super) fn write(directory: &ShelfDirectory, name: &str, bytes: &[u8]) {
    let mut writer = directory.open_write(Path::new(name)).expect("a new file");
    writer.write_all(bytes).expect("written");
    writer.terminate().expect("terminated");
}

pub(super) fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..bytes).map(|_| random.u8(..)).collect()
}

#[test]
fn files_are_read_as_written_from_memory_and_by_range() {
    clear_and_encrypted(|| {
        let place = TestPlace::new();
        for memory in [0, 1 << 30] {
            let (directory, _) = place.open(memory);
            for (number, bytes) in [0, 1, EXTENT_BYTES - 1, EXTENT_BYTES, 3 * EXTENT_BYTES + 17].into_iter().enumerate()
            {
                let (name, all) = (format!("{memory}-{number}"), content(number as u64, bytes));
                write(&directory, &name, &all);
                let file = directory.get_file_handle(Path::new(&name)).expect("there");
                assert_eq!(file.len(), bytes);
                for range in [0..bytes, bytes / 3..bytes / 2, bytes.saturating_sub(5)..bytes] {
                    assert_eq!(file.read_bytes(range.clone()).expect("read").as_slice(), &all[range]);
                }
            }
            assert_eq!(directory.inner.memory.used(), 0, "closed files take no memory");
        }
    });
}

#[test]
fn a_removed_file_is_read_as_written_while_it_is_open_and_its_space_is_used_again_after_that() {
    clear_and_encrypted(|| {
        let place = TestPlace::new();
        // Nothing stays in memory.
        let (directory, _) = place.open(0);
        let all = content(1, 3 * EXTENT_BYTES);
        write(&directory, "a", &all);
        let file = directory.get_file_handle(Path::new("a")).expect("there");
        directory.persist(&place.store, place.table, 1).expect("persisted");
        directory.delete(Path::new("a")).expect("there");
        let mut places = BTreeSet::new();
        for number in 2..5 {
            directory.persist(&place.store, place.table, number).expect("persisted");
            write(&directory, &number.to_string(), &content(number, 3 * EXTENT_BYTES));
            places.extend(directory.inner.fast.removed_so_far());
            assert_eq!(file.read_bytes(0..all.len()).expect("not damaged").as_slice(), all);
        }
        assert!(directory.damage().is_none() && places.len() == 3);
        drop(file);
        directory.persist(&place.store, place.table, 5).expect("persisted");
        assert!(directory.inner.fast.removed_so_far().is_empty(), "its space is free");
    });
}

#[test]
fn after_a_crash_the_files_of_the_last_persist_are_there_and_no_others() {
    clear_and_encrypted(|| {
        let place = TestPlace::new();
        let all = content(1, 100_000);
        {
            let (directory, applied) = place.open(1 << 20);
            assert_eq!(applied, 0);
            write(&directory, "kept", &all);
            directory.atomic_write(Path::new("meta.json"), b"1").expect("written");
            directory.persist(&place.store, place.table, 7).expect("persistent");
            write(&directory, "lost", &all);
            directory.atomic_write(Path::new("meta.json"), b"2").expect("written");
            directory.delete(Path::new("kept")).expect("there");
            // The extents of a file that the table names are not used for another one.
            write(&directory, "another", &content(2, 100_000));
        }
        let (directory, applied) = place.open(1 << 20);
        assert_eq!(applied, 7);
        assert_eq!(directory.atomic_read(Path::new("meta.json")).expect("there"), b"1");
        assert!(!directory.exists(Path::new("lost")).expect("known"));
        let file = directory.get_file_handle(Path::new("kept")).expect("there");
        assert_eq!(file.read_bytes(0..100_000).expect("read").as_slice(), &all);
        directory.delete(Path::new("kept")).expect("there");
        directory.persist(&place.store, place.table, 8).expect("persistent");
        let before = place.shelf.list().expect("listed").len();
        for number in 0..2000 {
            let name = format!("round-{number}");
            write(&directory, &name, &all);
            directory.delete(Path::new(&name)).expect("there");
            directory.persist(&place.store, place.table, 9).expect("persistent");
        }
        assert_eq!(place.shelf.list().expect("listed").len(), before, "space of removed files is used again");
    });
}

#[test]
fn a_damaged_extent_is_an_error_that_names_its_place() {
    clear_and_encrypted(|| {
        let place = TestPlace::new();
        let (directory, _) = place.open(0);
        write(&directory, "a", &content(1, 2 * EXTENT_BYTES));
        let device = place.shelf.open("index-0").expect("there");
        let mut block = vec![0; 4096];
        device.read(EXTENT_BYTES as u64, &mut block).expect("read");
        block[100] ^= 1;
        device.write(EXTENT_BYTES as u64, &block).expect("written");
        let file = directory.get_file_handle(Path::new("a")).expect("there");
        assert!(file.read_bytes(0..EXTENT_BYTES).is_ok(), "what is whole can be read");
        let error = file.read_bytes(EXTENT_BYTES..EXTENT_BYTES + 1).expect_err("damaged");
        assert!(error.to_string().contains("a: extent at 65536 of device index-0 is damaged"), "{error}");
        assert!(directory.check().is_err());
        assert!(directory.damage().is_some());
    });
}

#[test]
fn a_lock_is_held_by_one_at_a_time() {
    use tantivy::directory::{INDEX_WRITER_LOCK, META_LOCK};

    let place = TestPlace::new();
    let (directory, _) = place.open(0);
    let writer = directory.acquire_lock(&INDEX_WRITER_LOCK).expect("free");
    assert!(directory.acquire_lock(&INDEX_WRITER_LOCK).is_err(), "it does not wait");
    drop(writer);
    directory.acquire_lock(&INDEX_WRITER_LOCK).expect("free again");
    let inside = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let _held = directory.acquire_lock(&META_LOCK).expect("it waits");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
}

/// Rows of a table in a store.
pub(super) type TableRows = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn rows_of(store: &Store, table: TreeId) -> TableRows {
    let mut rows = Vec::new();
    let mut cursor = store.snapshot().scan(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((key, value)) = cursor.next().expect("read") {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}

/// Files that come and go on a shelf that loses what was not flushed; what the table was after each persist, and how many
/// operations of the shelf there were then.
fn rounds(shelf: &Arc<CrashShelf>) -> Vec<(usize, TableRows)> {
    let place = TestPlace::new();
    let memory = Arc::new(FileMemory::new(0));
    let (directory, _) =
        ShelfDirectory::open((&place.store, place.table), &FileShelves::one(shelf.clone()), "index", memory)
            .expect("opened");
    let mut random = fastrand::Rng::with_seed(5);
    let mut states = vec![(0, Vec::new())];
    let mut files: Vec<String> = Vec::new();
    for round in 0..12_u64 {
        for number in 0..3 {
            let name = format!("{round}-{number}");
            write(&directory, &name, &content(round * 10 + number, random.usize(1..2 * EXTENT_BYTES)));
            files.push(name);
        }
        while files.len() > 4 {
            directory.delete(Path::new(&files.swap_remove(random.usize(..files.len())))).expect("there");
        }
        if round % 3 == 2 {
            directory.persist(&place.store, place.table, round).expect("persistent");
            states.push((shelf.operations(), rows_of(&place.store, place.table)));
        }
    }
    states
}

/// Opens every image of every moment with the table of that moment; returns the first file that cannot be read.
fn first_loss(shelf: &CrashShelf, states: &[(usize, TableRows)]) -> Option<String> {
    for (at, point) in shelf.points().enumerate() {
        // Every tenth moment, and those around a persist, where the table changes.
        if at % 10 != 0 && !states.iter().any(|(operations, _)| operations.abs_diff(point) < 2) {
            continue;
        }
        let (_, table) = states.iter().rev().find(|(operations, _)| *operations <= point).expect("the first is empty");
        for image in shelf.images(point).take(4) {
            let place = TestPlace::new();
            let mut transaction = place.store.begin();
            for (key, value) in table {
                transaction.put(place.table, key, value).expect("put");
            }
            transaction.commit().expect("committed");
            let memory = Arc::new(FileMemory::new(0));
            let opened = ShelfDirectory::open(
                (&place.store, place.table),
                &FileShelves::one(Arc::new(image.shelf())),
                "index",
                memory,
            );
            let (directory, _) = opened.expect("opened");
            if let Err(error) = directory.check() {
                return Some(format!("point {point}: {error}"));
            }
        }
    }
    None
}

#[test]
fn after_every_crash_the_files_that_the_table_names_are_whole() {
    clear_and_encrypted(|| {
        let shelf = Arc::new(CrashShelf::new(11));
        let states = rounds(&shelf);
        assert_eq!(states.len(), 5);
        assert_eq!(first_loss(&shelf, &states), None);
    });
}

#[test]
fn a_persist_that_forgets_a_flush_is_caught_by_the_images() {
    clear_and_encrypted(|| {
        let flushes = {
            let shelf = Arc::new(CrashShelf::new(11));
            rounds(&shelf);
            shelf.persists().len()
        };
        let caught = (0..flushes).filter(|nth| {
            let shelf = Arc::new(CrashShelf::new(11));
            shelf.omit(*nth);
            let states = rounds(&shelf);
            first_loss(&shelf, &states).is_some()
        });
        assert!(caught.count() > 0, "the images are strong enough to see a missing flush");
    });
}

#[test]
fn files_that_are_made_again_after_devices_were_lost_stay_whole() {
    clear_and_encrypted(|| {
        for lost in [&["index-0", "index-1"][..], &["index-0"]] {
            let place = TestPlace::new();
            let (directory, _) = place.open(0);
            // More than one device holds.
            write(&directory, "large", &content(1, (64 << 20) + 1));
            write(&directory, "small", &content(2, 100_000));
            directory.persist(&place.store, place.table, 7).expect("persistent");
            drop(directory);
            lost.iter().for_each(|name| place.shelf.remove(name).expect("it was there"));
            let (directory, _) = place.open(0);
            directory.check().expect_err("they are lost");
            directory.clear();
            let names = ["a", "b", "c"];
            for (number, name) in names.iter().enumerate() {
                write(&directory, name, &content(number as u64, 40 << 20));
                directory.persist(&place.store, place.table, 8).expect("persistent");
                directory.check().unwrap_or_else(|error| panic!("{lost:?} were lost, {name}: {error}"));
            }
            drop(directory);
            place.open(0).0.check().expect("found again");
        }
    });
}

#[test]
fn files_beyond_a_size_lie_on_the_second_shelf_and_are_found_there_after_a_restart() {
    clear_and_encrypted(|| {
        let place = TestPlace { capacity: Some(Arc::new(MemoryShelf::new())), ..TestPlace::new() };
        let (directory, _) = place.open(0);
        let sizes = [0, 100, 4 * EXTENT_BYTES, 4 * EXTENT_BYTES + 1, 9 * EXTENT_BYTES + 5];
        for (number, bytes) in sizes.into_iter().enumerate() {
            write(&directory, &number.to_string(), &content(number as u64, bytes));
        }
        let lies = |directory: &ShelfDirectory| {
            let files = directory.inner.files.lock();
            let tier = |file: &Stored| matches!(file, Stored::Extents(extents) if extents.tier == FileTier::Capacity);
            files.values().map(tier).collect::<Vec<_>>()
        };
        assert_eq!(lies(&directory), [false, false, false, true, true]);
        assert_eq!(directory.inner.fast.free_so_far(), 1_024 - 5, "what was moved is free again");
        directory.persist(&place.store, place.table, 7).expect("persistent");
        drop(directory);
        let (directory, applied) = place.open(0);
        assert_eq!((applied, lies(&directory)), (7, vec![false, false, false, true, true]));
        for (number, bytes) in sizes.into_iter().enumerate() {
            let file = directory.get_file_handle(Path::new(&number.to_string())).expect("there");
            assert_eq!(file.read_bytes(0..bytes).expect("read").as_slice(), content(number as u64, bytes));
        }
        // Space of removed ones is used again, and devices of neither shelf are left of an index that is gone.
        let capacity = place.capacity.clone().expect("it is set");
        for round in 0..300 {
            let name = format!("r{round}");
            write(&directory, &name, &content(1, 9 * EXTENT_BYTES));
            directory.delete(Path::new(&name)).expect("there");
            directory.persist(&place.store, place.table, 8).expect("persistent");
        }
        assert_eq!(capacity.list().expect("listed").len(), 1);
        drop(directory);
        let one =
            TestPlace { capacity: None, store: place.store.clone(), table: place.table, shelf: place.shelf.clone() };
        let (directory, _) = one.open(0);
        let file = directory.get_file_handle(Path::new("4")).expect("named");
        let error = file.read_bytes(0..1).expect_err("its shelf is not set");
        assert!(error.to_string().contains("none is set") && directory.damage().is_some(), "{error}");
        place.shelves().remove_devices("index").expect("removed");
        assert!(capacity.list().expect("listed").is_empty() && place.shelf.list().expect("listed").is_empty());
    });
}

#[test]
fn a_second_shelf_that_fails_fails_the_file_alone() {
    clear_and_encrypted(|| {
        use device::faulty::{Fault, FaultyShelf, Rule};

        let place = TestPlace::new();
        let faulty = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
        let shelves = FileShelves { fast: place.shelf.clone(), capacity: Some((faulty.clone(), EXTENT_BYTES)) };
        let memory = Arc::new(FileMemory::new(0));
        let (directory, _) =
            ShelfDirectory::open((&place.store, place.table), &shelves, "index", memory).expect("opened");
        write(&directory, "small", &content(1, EXTENT_BYTES));
        faulty.inject(Rule::from(device::Operation::Write, 1, Fault::Eio));
        let mut writer = directory.open_write(Path::new("large")).expect("a new file");
        let written = writer.write_all(&content(2, 3 * EXTENT_BYTES)).and_then(|()| writer.terminate());
        assert!(written.is_err() && !directory.exists(Path::new("large")).expect("known"));
        write(&directory, "after", &content(3, EXTENT_BYTES));
        directory.check().expect("the others are whole");
        assert_eq!(directory.inner.fast.free_so_far(), 1_024 - 2);
    });
}

/// A profile has the extents of files as they are used, and beside that what the shelf had to read.
#[test]
fn whoever_records_a_profile_is_told_of_extents_that_are_made_and_read_and_of_reads_of_the_shelf() {
    use profile::hash::Salt;
    use store::cache::tap::SEGMENTS;
    let place = TestPlace::new();
    let (directory, _) = place.open(0);
    write(&directory, "before", &content(1, 10));
    let tap = place.store.access_tap();
    tap.start(Salt::of_seed(1), u64::MAX);
    write(&directory, "a1.pos", &content(2, 3 * EXTENT_BYTES + 5));
    let file = directory.get_file_handle(Path::new("a1.pos")).expect("there");
    file.read_bytes(EXTENT_BYTES - 1..2 * EXTENT_BYTES + 1).expect("read");
    file.read_bytes(7..9).expect("read");
    let drained = tap.drain();
    let counts = drained.counts[usize::from(SEGMENTS)];
    let bytes = EXTENT_BYTES as u64;
    assert_eq!((counts.made, counts.reads, counts.writes, counts.read_bytes), (4, 4, 0, 4 * bytes));
    assert_eq!(drained.device_reads[usize::from(SEGMENTS)], (4, 4 * bytes), "nothing stays in memory");
    let hashes: Vec<u64> = drained.sampled.iter().filter(|one| one.structure == SEGMENTS).map(|one| one.hash).collect();
    assert_eq!(hashes.len(), 8);
    assert_eq!([hashes[4], hashes[5], hashes[6], hashes[7]], [hashes[0], hashes[1], hashes[2], hashes[0]]);
    let other = place.open(1 << 30).0;
    write(&other, "b2.pos", &content(3, EXTENT_BYTES));
    let file = other.get_file_handle(Path::new("b2.pos")).expect("there");
    (0..5).for_each(|at| drop(file.read_bytes(at..at + 1).expect("read")));
    let drained = tap.drain();
    assert_eq!(drained.counts[usize::from(SEGMENTS)].reads, 5, "also what is in memory");
    assert_eq!(drained.device_reads[usize::from(SEGMENTS)].0, 0);
}
