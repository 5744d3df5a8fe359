//! Encrypted stores: nothing of a key or value is on any medium or in a backup, and pages that were changed or exchanged are refused
//! although every checksum matches. That crashes, damage and backups are handled as in clear ones is tested with those, by
//! `clear_and_encrypted`.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::{AlignedBuffer, MemoryShelf, Shelf};
use encryption::Sealer;
use store::page::{Kind, PageHeader, PageId, seal};
use store::{Options, Places, Store, StoreError, TreeId, Until, VALUE_BYTES_MAX, verify_places};

use crate::support::{clear_and_encrypted, memory, open_with_tree, restored, sealer, small, verified};

const PAGE: usize = 4096;
const MARKER: &[u8] = b"Doe^Jane";

fn options() -> Options {
    Options { page_bytes: PAGE as u32, data_device_bytes: 256 * PAGE as u64, cache_bytes: 4 << 20, ..small() }
}

/// A store with short values, and values in extents of one and of many pages.
fn fill(places: &Places) -> (Store, TreeId) {
    let (store, tree) = open_with_tree(places, &options());
    for number in 0..300_usize {
        let mut transaction = store.begin();
        let key = [MARKER, format!("{number:04}").as_bytes()].concat();
        let value = MARKER.repeat([5, 30, 400, 3000][number % 4]);
        transaction.put(tree, &key, &value).expect("fits");
        transaction.commit().expect("commits");
        if number % 100 == 50 {
            store.checkpoint().expect("writes in place");
        }
    }
    (store, tree)
}

fn bytes_of(shelf: &dyn Shelf) -> Vec<(String, Vec<u8>)> {
    let read = shelf.list().expect("lists").into_iter().map(|name| {
        let device = shelf.open_read_only(&name).expect("opens");
        let mut bytes = AlignedBuffer::zeroed(device.len() as usize);
        device.read(0, &mut bytes).expect("reads");
        (name, bytes.to_vec())
    });
    read.collect()
}

/// The first place of a part of the marker.
fn seen(shelf: &dyn Shelf) -> Option<String> {
    let twice = MARKER.repeat(2);
    let parts: HashSet<&[u8]> = twice.windows(6).collect();
    let at = |bytes: &[u8]| bytes.windows(6).position(|window| parts.contains(window));
    bytes_of(shelf).into_iter().find_map(|(name, bytes)| Some(format!("{name} at {}", at(&bytes)?)))
}

/// Runs a test with encrypted stores only.
fn encrypted(test: impl Fn()) {
    clear_and_encrypted(|| {
        if sealer().is_some() {
            test();
        }
    });
}

#[test]
fn nothing_of_a_key_or_value_is_in_any_byte_of_journal_images_pages_and_backup() {
    clear_and_encrypted(|| {
        let is_encrypted = sealer().is_some();
        let (places, backup) = (memory(), Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>);
        let (store, tree) = fill(&places);
        store.backup(backup.clone(), &mut |_| ControlFlow::Continue(())).expect("backs up");
        let mut transaction = store.begin();
        transaction.put(tree, b"last", &MARKER.repeat(500)).expect("fits");
        transaction.commit().expect("commits");
        store.checkpoint().expect("writes in place");
        store.close().expect("closes");
        for (name, shelf) in
            [("journal", &places.journal), ("images", &places.images), ("pages", &places.data), ("backup", &backup)]
        {
            let found = seen(&**shelf);
            assert_eq!(
                found.is_none(),
                is_encrypted,
                "{name}: {found:?}: a clear store shows that the test can see it"
            );
        }
        let places = memory();
        restored(&backup, None, &places, Until::End).expect("restores");
        let (store, _) = Store::open(places, options()).expect("opens");
        let value = store.snapshot().get(tree, &[MARKER, b"0003"].concat()).expect("reads");
        assert_eq!(value.as_deref(), Some(&*MARKER.repeat(3000)));
    });
}

#[test]
fn pages_that_were_exchanged_or_changed_are_damage_although_every_checksum_matches() {
    encrypted(|| {
        let places = memory();
        let (store, tree) = fill(&places);
        store.close().expect("closes");
        assert!(verified(&places).expect("reads").is_sound());
        let device = places.data.open("pages-0000").expect("is there");
        let read = |page: u32| {
            let mut bytes = AlignedBuffer::zeroed(PAGE);
            device.read(u64::from(page) * PAGE as u64, &mut bytes).expect("reads");
            bytes
        };
        let write = |page: u32, bytes: &AlignedBuffer| {
            let mut bytes = AlignedBuffer::from(&bytes[..]);
            seal(PageId(page), &mut bytes);
            device.write(u64::from(page) * PAGE as u64, &bytes).expect("writes");
        };
        let of_tree = |page: &u32| {
            let header = PageHeader::of(&read(*page));
            header.is_some_and(|header| header.kind == Kind::Leaf && header.tree == tree.0)
                && store::page::check(PageId(*page), &read(*page)).is_ok()
        };
        let leaves: Vec<u32> = (2..256).filter(of_tree).collect();
        let (one, other) = (leaves[leaves.len() - 2], leaves[leaves.len() - 1]);
        let (first, second) = (read(one), read(other));
        let mut changed = read(one);
        changed[PAGE / 2] ^= 1;
        let mut header = read(one);
        header[16] ^= 1;
        let cases: [(&str, &[(u32, &AlignedBuffer)]); 3] = [
            ("exchanged", &[(one, &second), (other, &first)]),
            ("a changed byte", &[(one, &changed)]),
            ("a changed LSN", &[(one, &header)]),
        ];
        for (name, writes) in cases {
            writes.iter().for_each(|(page, bytes)| write(*page, bytes));
            let report = verified(&places).expect("reads");
            assert!(!report.is_sound() && report.to_string().contains("seal"), "{name}: {report}");
            let (store, _) = Store::open(places.clone(), options()).expect("opens");
            let read =
                |number: usize| store.snapshot().get(tree, &[MARKER, format!("{number:04}").as_bytes()].concat());
            let lost = (0..300).filter(|number| matches!(read(*number), Err(StoreError::Corrupt(_)))).count();
            let whole = (0..300).filter(|number| matches!(read(*number), Ok(Some(_)))).count();
            assert!(lost > 0 && lost + whole == 300, "{name}: {lost} lost, {whole} whole");
            drop(store);
            write(one, &first);
            write(other, &second);
        }
        assert!(verified(&places).expect("reads").is_sound());
    });
}

#[test]
fn a_wrong_key_no_key_and_a_key_too_many_are_told_before_anything_is_written() {
    let with = |sealer| Options { journal: journal::Options { sealer, ..options().journal }, ..options() };
    let all = |places: &Places| [&places.journal, &places.images, &places.data].map(|shelf| bytes_of(&**shelf));
    let (right, wrong) = (|epoch| Some(Sealer::for_tests(1, epoch, 0)), Some(Sealer::for_tests(2, 1, 0)));
    for is_encrypted in [true, false] {
        let places = memory();
        let own = if is_encrypted { right(1) } else { None };
        Store::open(places.clone(), with(own.clone())).expect("is made").0.close().expect("closes");
        let before = all(&places);
        let others = if is_encrypted { vec![None, wrong.clone()] } else { vec![right(1)] };
        for other in others {
            let error = Store::open(places.clone(), with(other.clone())).expect_err("the key is not this one's");
            assert!(error.to_string().contains("key"), "{error}");
            let error = store::verify_places_with(&places, other, &mut |_| ()).expect_err("neither here");
            assert!(matches!(&error, StoreError::Corrupt(why) if why.contains("key")), "{error}");
        }
        assert!(all(&places) == before);
        assert_eq!(verify_places(&places, &mut |_| ()).is_ok(), !is_encrypted);
        Store::open(places, with(if is_encrypted { right(2) } else { None })).expect("the right one");
    }
}

#[test]
fn the_longest_value_of_an_encrypted_store_is_stored_and_lengths_are_those_of_values() {
    encrypted(|| {
        let places = memory();
        let journal = journal::Options { max_record_bytes: 128 << 20, ..small().journal };
        let options = Options { journal, data_device_bytes: 4 << 20, ..options() };
        let (store, tree) = open_with_tree(&places, &options);
        let longest = store.value_bytes_max();
        assert!(longest < VALUE_BYTES_MAX && longest + 64 * 1024 > VALUE_BYTES_MAX, "{longest}");
        let mut transaction = store.begin();
        assert!(matches!(transaction.put(tree, b"k", &vec![7; longest + 1]), Err(StoreError::Refused(_))));
        transaction.put(tree, b"k", &vec![7; longest]).expect("it is taken");
        transaction.put(tree, b"l", &[8; 5000]).expect("it is taken");
        transaction.commit().expect("commits");
        store.close().expect("closes");
        let (store, _) = Store::open(places.clone(), options.clone()).expect("opens");
        assert!(store.snapshot().get(tree, b"k").expect("reads").is_some_and(|value| *value == vec![7; longest]));
        let (from, to) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let mut cursor = store.snapshot().scan(tree, from, to, store::Direction::Forward);
        let lengths: Vec<usize> =
            std::iter::from_fn(|| cursor.next_key().expect("reads")).map(|(_, bytes)| bytes).collect();
        assert_eq!(lengths, [longest, 5000]);
    });
}
