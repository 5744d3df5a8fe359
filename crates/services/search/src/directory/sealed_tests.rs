//! Files of an encrypted store: nothing of them is on a shelf in clear, and no extent counts for another one. That crashes and damage are
//! handled as in clear is tested with those, by `clear_and_encrypted`.

use std::ops::ControlFlow;

use device::MemoryShelf;
use encryption::Sealer;

use super::extents::{FileExtent, FileExtents, FileTier};
use super::sealing::IndexSealing;
use super::testing::{holds, store_with};
use super::tests::{TableRows, TestPlace, content, rows_of, write};
use super::*;

fn sealed(epoch: u32) -> Option<Arc<Sealer>> {
    Some(Sealer::for_tests(1, epoch, 0))
}

/// The table of files becomes these rows.
fn put_rows(place: &TestPlace, rows: &TableRows) {
    let mut transaction = place.store.begin();
    for (key, value) in rows {
        transaction.put(place.table, key, value).expect("put");
    }
    transaction.commit().expect("committed");
}

/// An entry of a row: place 4, checksum 4, and a seal of 40 where it is sealed. Entries begin behind the length, or behind version, length and
/// number.
struct Layout {
    first: usize,
    entry: usize,
}

const CLEAR: Layout = Layout { first: 8, entry: 8 };
const SEALED: Layout = Layout { first: 25, entry: 48 };

/// Extents and rows of a directory that nobody has open, to be changed as somebody could who writes the medium.
struct Changed<'a> {
    device: Arc<dyn Device>,
    rows: TableRows,
    layout: &'a Layout,
}

impl Changed<'_> {
    fn extent(&self, place: u64) -> Vec<u8> {
        let mut bytes = vec![0; EXTENT_BYTES];
        self.device.read(place * EXTENT_BYTES as u64, &mut bytes).expect("read");
        bytes
    }

    fn put(&self, place: u64, bytes: &[u8]) {
        self.device.write(place * EXTENT_BYTES as u64, bytes).expect("written");
    }

    fn exchange(&self, one: u64, other: u64) {
        let (a, b) = (self.extent(one), self.extent(other));
        self.put(one, &b);
        self.put(other, &a);
    }

    fn row(&mut self, name: &str) -> &mut Vec<u8> {
        let key = key(FILE, name);
        &mut self.rows.iter_mut().find(|(known, _)| *known == key).expect("the table has it").1
    }

    /// Exchanges a part of two entries.
    fn exchange_entries(&mut self, one: (&str, usize), other: (&str, usize), part: Range<usize>) {
        let (first, entry) = (self.layout.first, self.layout.entry);
        let at = |number: usize| first + number * entry + part.start..first + number * entry + part.end.min(entry);
        let a = self.row(one.0)[at(one.1)].to_vec();
        let b = self.row(other.0)[at(other.1)].to_vec();
        self.row(one.0)[at(one.1)].copy_from_slice(&b);
        self.row(other.0)[at(other.1)].copy_from_slice(&a);
    }

    /// The checksum of an entry becomes that of these bytes.
    fn set_checksum(&mut self, (name, number): (&str, usize), bytes: &[u8]) {
        let at = self.layout.first + number * self.layout.entry + 4;
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
        self.row(name)[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

const CHECKSUM: Range<usize> = 4..8;
const WHOLE_ENTRY: Range<usize> = 0..usize::MAX;

/// What lay at place 0 before, of a file that had the name of the one that lies there now, and its entry.
struct Former {
    bytes: Vec<u8>,
    entry: Vec<u8>,
}

/// Changes something.
type Change = fn(&mut Changed<'_>, &Former);

/// What is done, what it does, and the offset at which file `a` is damaged then.
const CASES: [(&str, Change, u64); 8] = [
    (
        "extents of two files, with their checksums",
        |changed, _| {
            changed.exchange(0, 2);
            changed.exchange_entries(("a", 0), ("b", 0), CHECKSUM);
        },
        0,
    ),
    (
        "two extents of one file, with their checksums",
        |changed, _| {
            changed.exchange(0, 1);
            changed.exchange_entries(("a", 0), ("a", 1), CHECKSUM);
        },
        0,
    ),
    (
        "two entries of one file, with their seals",
        |changed, _| changed.exchange_entries(("a", 0), ("a", 1), WHOLE_ENTRY),
        65_536,
    ),
    (
        "entries of two files, with their seals",
        |changed, _| changed.exchange_entries(("a", 0), ("b", 0), WHOLE_ENTRY),
        131_072,
    ),
    (
        "rows of two files",
        |changed, _| {
            let b = changed.row("b").clone();
            let a = std::mem::replace(changed.row("a"), b);
            *changed.row("b") = a;
        },
        131_072,
    ),
    (
        "what lay there before",
        |changed, former| {
            changed.put(0, &former.bytes);
            changed.set_checksum(("a", 0), &former.bytes);
        },
        0,
    ),
    (
        "what lay there before, with its seal",
        |changed, former| {
            changed.put(0, &former.bytes);
            let first = changed.layout.first;
            changed.row("a")[first..first + former.entry.len()].copy_from_slice(&former.entry);
        },
        0,
    ),
    (
        "a bit",
        |changed, _| {
            let mut bytes = changed.extent(0);
            bytes[1234] ^= 1;
            changed.put(0, &bytes);
            changed.set_checksum(("a", 0), &bytes);
        },
        0,
    ),
];

#[test]
fn an_extent_of_another_file_place_or_time_is_damage_although_every_checksum_matches() {
    for (what, change, at) in CASES {
        for (sealer, layout) in [(None, &CLEAR), (sealed(1), &SEALED)] {
            let is_sealed = sealer.is_some();
            let place = TestPlace::with(sealer);
            let (directory, _) = place.open(0);
            write(&directory, "a", &content(9, EXTENT_BYTES));
            directory.persist(&place.store, place.table, 1).expect("persistent");
            let device = place.shelf.open("index-0").expect("there");
            let mut changed = Changed { device, rows: rows_of(&place.store, place.table), layout };
            let former = Former { bytes: changed.extent(0), entry: changed.row("a")[layout.first..].to_vec() };
            directory.delete(Path::new("a")).expect("there");
            directory.persist(&place.store, place.table, 2).expect("persistent");
            for (seed, name) in [(1, "a"), (2, "b"), (3, "c")] {
                write(&directory, name, &content(seed, 2 * EXTENT_BYTES));
            }
            directory.persist(&place.store, place.table, 3).expect("persistent");
            drop(directory);
            changed.rows = rows_of(&place.store, place.table);
            change(&mut changed, &former);
            put_rows(&place, &changed.rows);
            let (directory, _) = place.open(0);
            let read = |name: &str| {
                let file = directory.get_file_handle(Path::new(name)).expect("there");
                file.read_bytes(0..2 * EXTENT_BYTES).map(|bytes| bytes.as_slice().to_vec())
            };
            assert_eq!(read("c").expect("nobody touched it"), content(3, 2 * EXTENT_BYTES), "{what}");
            match (read("a"), is_sealed) {
                // That is what checksums cannot see.
                (Ok(bytes), false) => assert_ne!(bytes, content(1, 2 * EXTENT_BYTES), "{what}"),
                (Err(error), true) => {
                    let told = format!("a: extent at {at} of device index-0 is damaged: its seal does not verify");
                    assert!(error.to_string().contains(&told), "{what}: {error}");
                    assert!(directory.damage().is_some() && directory.check().is_err(), "{what}");
                }
                (read, _) => panic!("{what}, sealed {is_sealed}: {read:?}"),
            }
        }
    }
}

#[test]
fn files_are_of_no_use_to_another_index_another_key_and_a_store_in_clear() {
    let place = TestPlace::with(sealed(1));
    let (directory, _) = place.open(0);
    write(&directory, "a", &content(1, 100_000));
    directory.persist(&place.store, place.table, 1).expect("persistent");
    drop(directory);
    let rows = rows_of(&place.store, place.table);
    let opened_by = |sealer: Option<Arc<Sealer>>, name: &str| {
        let other = TestPlace { shelf: place.shelf.clone(), ..TestPlace::with(sealer) };
        put_rows(&other, &rows);
        let memory = Arc::new(FileMemory::new(0));
        let opened = ShelfDirectory::open((&other.store, other.table), &other.shelves(), name, memory);
        opened.map_err(|error| error.to_string()).and_then(|(directory, _)| directory.check())
    };
    assert_eq!(opened_by(sealed(2), "index"), Ok(100_000), "a later opening with the same data key");
    let refused = opened_by(Some(Sealer::for_tests(2, 1, 0)), "index").expect_err("another key");
    assert!(refused.contains("a: extent at 0 of device index-0 is damaged: its seal does not verify"), "{refused}");
    let refused = opened_by(None, "index").expect_err("in clear");
    assert!(refused.contains("the table of search index index cannot be read: a"), "{refused}");
    place.shelf.rename("index-0", "other-0").expect("renamed");
    let refused = opened_by(sealed(2), "other").expect_err("another index");
    assert!(refused.contains("a: extent at 0 of device other-0 is damaged: its seal does not verify"), "{refused}");
    // A file in clear does not become one of an encrypted store.
    let clear = TestPlace::with(None);
    let (directory, _) = clear.open(0);
    write(&directory, "a", &content(1, 100_000));
    directory.persist(&clear.store, clear.table, 1).expect("persistent");
    let encrypted = TestPlace { shelf: clear.shelf.clone(), ..TestPlace::with(sealed(1)) };
    put_rows(&encrypted, &rows_of(&clear.store, clear.table));
    let memory = Arc::new(FileMemory::new(0));
    let opened =
        ShelfDirectory::open((&encrypted.store, encrypted.table), &encrypted.shelves(), "index", memory).map(|_| ());
    assert!(opened.expect_err("refused").to_string().contains("cannot be read: a"));
}

#[test]
fn nothing_of_a_file_lies_on_either_shelf_in_clear() {
    let text = "the patient of ward seven has been seen ".repeat(10_000);
    for (sealer, is_seen) in [(None, true), (sealed(1), false)] {
        let place = TestPlace { capacity: Some(Arc::new(MemoryShelf::new())), ..TestPlace::with(sealer) };
        let (directory, _) = place.open(1 << 30);
        // The second one moves while it is written.
        write(&directory, "small", &text.as_bytes()[..1_000]);
        write(&directory, "large", text.as_bytes());
        directory.persist(&place.store, place.table, 1).expect("persistent");
        let capacity = place.capacity.clone().expect("it is set");
        for shelf in [&place.shelf, &capacity] {
            assert_eq!(holds(&**shelf, "patient of ward seven"), is_seen);
        }
        assert_eq!(directory.check(), Ok(1_000 + text.len() as u64));
        let (again, _) = place.open(0);
        let file = again.get_file_handle(Path::new("large")).expect("there");
        assert_eq!(file.read_bytes(0..text.len()).expect("read").as_slice(), text.as_bytes());
    }
}

#[test]
fn a_row_of_a_sealed_file_has_this_form_and_nothing_shorter_or_in_clear_is_one() {
    let sealing = IndexSealing::of(&store_with(sealed(1)), "index").expect("it is encrypted");
    let path = Path::new("a");
    let extents = vec![FileExtent { place: 3, checksum: 0x0403_0201 }, FileExtent { place: 258, checksum: 5 }];
    let seals = Some(sealing.known(path, [7; 16], vec![[8; 40], [9; 40]]));
    let file = FileExtents { tier: FileTier::Fast, len: 65_537, extents, seals };
    let form = [
        &[1][..],
        &[1, 0, 1, 0, 0, 0, 0, 0],
        &[7; 16],
        &[3, 0, 0, 0, 1, 2, 3, 4],
        &[8; 40],
        &[2, 1, 0, 0, 5, 0, 0, 0],
        &[9; 40],
    ]
    .concat();
    assert_eq!(file.encode(), form);
    let read = |bytes: &[u8]| FileExtents::decode(bytes, FileTier::Fast, Some((&sealing, path)));
    assert_eq!(read(&form).expect("it is one").encode(), form);
    assert!((0..form.len()).all(|bytes| read(&form[..bytes]).is_none()));
    assert!(read(&[&[2], &form[1..]].concat()).is_none(), "of another version");
    assert!(FileExtents::decode(&form, FileTier::Fast, None).is_none());
    let clear = FileExtents { seals: None, ..file }.encode();
    assert_eq!(clear, [&form[1..9], &form[25..33], &form[73..81]].concat(), "as it always was");
    assert!(read(&clear).is_none() && FileExtents::decode(&clear, FileTier::Fast, None).is_some());
}

#[test]
fn a_seal_is_for_one_index_name_number_and_position_and_each_of_them_matters() {
    let store = store_with(sealed(1));
    let sealing = |index: &str| IndexSealing::of(&store, index).expect("it is encrypted");
    let plain = [content(1, 100), content(2, 100)];
    let mut file = sealing("index").known(Path::new("a"), [7; 16], Vec::new());
    let stored = [file.seal_next(&plain[0]), file.seal_next(&plain[1])];
    let opened = |index: &str, path: &str, number: u8, order: [usize; 2]| {
        let seals = order.iter().map(|at| file.seals()[*at]).collect();
        let file = sealing(index).known(Path::new(path), [number; 16], seals);
        let open = |position: usize| {
            let mut bytes = stored[order[position]].clone();
            file.open(position, &mut bytes).map(|()| bytes)
        };
        [open(0), open(1)]
    };
    assert_eq!(opened("index", "a", 7, [0, 1]), plain.map(Ok));
    for (index, path, number, order) in
        [("inde", "xa", 7, [0, 1]), ("index", "b", 7, [0, 1]), ("index", "a", 8, [0, 1]), ("index", "a", 7, [1, 0])]
    {
        let opened = opened(index, path, number, order);
        assert!(opened.iter().all(Result::is_err), "{index}, {path}, {number}, {order:?}: {opened:?}");
    }
    assert_eq!(file.begun_again().seals().len(), 0);
    let again = file.begun_again().seal_next(&content(1, 100));
    assert_ne!(again, stored[0], "what is sealed again has another nonce");
}

#[test]
fn files_of_an_older_data_key_are_written_anew_and_who_has_them_open_reads_on() {
    let place = TestPlace::with(sealed(1));
    // Nothing stays in memory.
    let (directory, _) = place.open(0);
    let (a, b) = (content(1, 3 * EXTENT_BYTES + 5), content(2, 70_000));
    write(&directory, "a", &a);
    write(&directory, "b", &b);
    directory.persist(&place.store, place.table, 1).expect("persisted");
    let read = |directory: &ShelfDirectory, name: &str| {
        let file = directory.get_file_handle(Path::new(name)).expect("there");
        file.read_bytes(0..file.len()).expect("read").to_vec()
    };
    let keys = || data_keys_in_use(&place.store, place.table).expect("it reads").into_iter().collect::<Vec<_>>();
    let open = directory.get_file_handle(Path::new("a")).expect("there");
    place.store.sealer().expect("it is encrypted").begin_data_key_for_tests(2, 2);
    write(&directory, "c", &b);
    let free = directory.inner.fast.free_so_far();
    let ended = directory.rewrite(2, &mut |_| ControlFlow::Break(())).expect("it works");
    assert_eq!((ended, directory.inner.fast.free_so_far()), (ControlFlow::Break(()), free), "nothing is left of it");
    let mut bytes = 0;
    let mut all = |directory: &ShelfDirectory| {
        let done = directory.rewrite(2, &mut |more| {
            bytes += more;
            ControlFlow::Continue(())
        });
        done.expect("it works")
    };
    assert_eq!((all(&directory), all(&directory)), (ControlFlow::Continue(2), ControlFlow::Continue(0)));
    assert_eq!(bytes, 6 * 2 * EXTENT_BYTES as u64);
    // What a start after a crash finds.
    assert_eq!(keys(), [1]);
    let (crashed, _) = place.open(0);
    assert_eq!((read(&crashed, "a"), read(&crashed, "b")), (a.clone(), b.clone()));
    drop(crashed);
    directory.persist(&place.store, place.table, 2).expect("persisted");
    assert_eq!(keys(), [2]);
    for directory in [&directory, &place.open(0).0] {
        assert_eq!(
            (read(directory, "a"), read(directory, "b"), read(directory, "c")),
            (a.clone(), b.clone(), b.clone())
        );
    }
    assert_eq!(open.read_bytes(0..a.len()).expect("not damaged").as_slice(), a);
    drop(open);
    directory.persist(&place.store, place.table, 3).expect("persisted");
    assert!(directory.inner.fast.removed_so_far().is_empty() && directory.damage().is_none());
}
