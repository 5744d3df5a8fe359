//! An index of an encrypted store: what of it lies where, and files that were changed with their checksums.

use std::ops::Bound;

use device::MemoryShelf;
use encryption::Sealer;
use store::{Direction, Places};

use super::tests::{Node, found, put};
use super::*;
use crate::directory::testing::{holds, options_with};

/// A store on a shelf of its own, with an index whose files lie on another one.
fn node(sealer: Option<Arc<Sealer>>) -> (Node, Places) {
    let shelf: Arc<dyn device::Shelf> = Arc::new(MemoryShelf::new());
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) = Store::open(places.clone(), options_with(sealer)).expect("it opens");
    (Node { place: IndexPlace { store, ..Node::new().place } }, places)
}

const MAPPING: &str = r#"{"properties": {"a": {"type": "text"}, "diagnosis_code": {"type": "keyword"}}}"#;

fn mapping() -> Value {
    serde_json::from_str(MAPPING).expect("JSON")
}

#[test]
fn no_term_text_or_field_of_an_index_lies_anywhere_in_clear() {
    for (sealer, is_seen) in [(None, true), (Some(Sealer::for_tests(1, 1, 0)), false)] {
        let (node, places) = node(sealer);
        let index = node.create(mapping());
        for number in 0..200 {
            let code = format!("haemochromatosis-{number}");
            put(&index, &number.to_string(), &json!({"a": "seen on ward seven", "diagnosis_code": code}));
            if number % 50 == 49 {
                index.persist().expect("persistent");
            }
        }
        index.force_merge(1).expect("merged");
        index.persist().expect("persistent");
        node.place.store.checkpoint().expect("written");
        assert_eq!(found(&index, "ward").len(), 200);
        let files = &*node.place.shelves.fast;
        assert_eq!(holds(files, "haemochromatosis-"), is_seen, "a term in the files of the index");
        assert!(!holds(files, "diagnosis_code") || is_seen, "a field in the files of the index");
        // The documents, the mapping and the library's list of segments.
        for text in ["haemochromatosis-", "seen on ward seven", "diagnosis_code", "segment_id"] {
            assert_eq!(holds(&*places.data, text), is_seen, "{text} in the store");
        }
        drop(index);
        assert_eq!(found(&node.reopen(), "ward").len(), 200);
    }
}

#[test]
fn an_index_of_an_encrypted_store_cannot_be_read_with_another_key() {
    let (node, places) = node(Some(Sealer::for_tests(1, 1, 0)));
    let index = node.create(mapping());
    put(&index, "1", &json!({"a": "word"}));
    index.persist().expect("persistent");
    index.close().expect("persistent");
    drop(index);
    let IndexPlace { store, shelves, .. } = node.place;
    store.close().expect("closed");
    for sealer in [Some(Sealer::for_tests(2, 2, 0)), None] {
        assert!(Store::open(places.clone(), options_with(sealer)).is_err(), "another key, or none");
    }
    let (store, _) = Store::open(places, options_with(Some(Sealer::for_tests(1, 2, 0)))).expect("the right key");
    let node = Node { place: IndexPlace { store, shelves, ..Node::new().place } };
    assert_eq!(found(&node.reopen(), "word").len(), 1);
}

#[test]
fn files_that_were_changed_with_their_checksums_are_made_again_from_the_documents() {
    let (node, _) = node(Some(Sealer::for_tests(1, 1, 0)));
    let index = node.create(mapping());
    (0..50).for_each(|number| drop(put(&index, &number.to_string(), &json!({"a": "word"}))));
    index.persist().expect("persistent");
    let files = index.trees.files;
    drop(index);
    let (store, device) = (&node.place.store, node.place.shelves.fast.open("u1-0").expect("there"));
    let wrong = vec![0xAA; 65_536];
    (0..40).for_each(|extent| device.write(extent * 65_536, &wrong).expect("written"));
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &wrong) as u32;
    let mut cursor = store.snapshot().scan(files, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    let (mut transaction, mut changed) = (store.begin(), 0);
    while let Some((key, value)) = cursor.next().expect("read") {
        let mut row = value.to_vec();
        if key.first() == Some(&b'f') && row.len() > 25 {
            // Behind version, length and number: place, checksum, seal.
            row[25..].chunks_exact_mut(48).for_each(|entry| entry[4..8].copy_from_slice(&checksum.to_le_bytes()));
            transaction.put(files, &key, &row).expect("put");
            changed += 1;
        }
    }
    assert!(changed > 3, "a segment has more files");
    transaction.commit().expect("committed");
    let index = node.reopen();
    assert_eq!(found(&index, "word").len(), 50);
    assert!(index.damage().is_none(), "it was made again");
    index.persist().expect("persistent");
    drop(index);
    assert_eq!(found(&node.reopen(), "word").len(), 50);
}

#[test]
fn an_index_that_is_written_to_has_all_its_files_written_anew_and_is_found_after_a_crash() {
    let (node, _places) = node(Some(Sealer::for_tests(1, 1, 0)));
    let index = node.create(mapping());
    for number in 0..40 {
        put(&index, &number.to_string(), &json!({"a": "word"}));
        if number % 10 == 9 {
            index.persist().expect("persistent");
        }
    }
    node.place.store.sealer().expect("it is encrypted").begin_data_key_for_tests(2, 2);
    for number in 40..50 {
        put(&index, &number.to_string(), &json!({"a": "word"}));
    }
    let mut number = 50;
    let done = rewrite_files(&index, 2, &mut |_| {
        // Beside it.
        put(&index, &number.to_string(), &json!({"a": "word"}));
        number += 1;
        std::ops::ControlFlow::Continue(())
    });
    assert!(done.expect("it works").is_continue() && number > 60, "{number} extents");
    assert_eq!(data_keys_in_use(&node.place.store).expect("it reads").into_iter().collect::<Vec<_>>(), [2]);
    index.refresh().expect("refreshed");
    assert_eq!(found(&index, "word").len(), number);
    drop(index);
    let index = node.reopen();
    index.refresh().expect("refreshed");
    assert_eq!(found(&index, "word").len(), number);
}
