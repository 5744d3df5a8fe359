//! An index over a store in memory: versions, refreshes, crashes at any moment, damage, many writers.

use std::collections::BTreeSet;

use device::faulty::{Fault, FaultyShelf, Rule};
use device::{MemoryShelf, Operation};
use serde_json::json;
use tantivy::Term;
use tantivy::collector::{Count, DocSetCollector};
use tantivy::query::TermQuery;
use tantivy::schema::IndexRecordOption;

use super::*;
use crate::directory::testing::{clear_and_encrypted, store};

pub(super) struct Node {
    pub(super) place: IndexPlace,
}

impl Node {
    pub(super) fn new() -> Node {
        let memory = Arc::new(FileMemory::new(1 << 30));
        let place = IndexPlace {
            store: store(),
            shelves: FileShelves::one(Arc::new(MemoryShelf::new())),
            memory,
            writer_bytes: 15 << 20,
            large_turn: Arc::default(),
        };
        Node { place }
    }

    pub(super) fn create(&self, mapping: Value) -> Arc<SearchIndex> {
        let definition = IndexDefinition {
            name: "i".into(),
            uuid: "u1".into(),
            created: 0,
            settings: BTreeMap::new(),
            mapping,
            columns: Columns::default(),
            aliases: BTreeMap::new(),
            closed: false,
            feed: None,
        };
        SearchIndex::create(self.place.clone(), definition, None).expect("created")
    }

    /// The index as a start after a crash finds it.
    pub(super) fn reopen(&self) -> Arc<SearchIndex> {
        let definition = SearchIndex::definitions(&self.place.store).expect("readable").pop().expect("one index");
        SearchIndex::open(self.place.clone(), definition, None).expect("opened")
    }
}

fn op(id: Option<&str>, kind: OpKind) -> DocumentOp {
    DocumentOp { id: id.map(str::to_owned), kind, expected: ExpectedVersion::Any, routing: None }
}

pub(super) fn put(index: &SearchIndex, id: &str, source: &Value) -> OpOutcome {
    one(index, op(Some(id), OpKind::Index(Bytes::from(source.to_string())))).expect("stored")
}

fn one(index: &SearchIndex, op: DocumentOp) -> Result<OpOutcome, SearchError> {
    index.apply(&[op]).expect("the store works").pop().expect("one result")
}

/// The ids of the documents whose text field `a` has a term, by what a new view shows.
pub(super) fn found(index: &SearchIndex, term: &str) -> BTreeSet<String> {
    let OpenView { view, .. } = index.view();
    let field = view.mapping.field("a").expect("mapped").clone();
    let Some(column) = view.column(&field) else { return BTreeSet::new() };
    let query = TermQuery::new(Term::from_field_text(column, term), IndexRecordOption::Basic);
    let addresses = view.searcher.search(&query, &DocSetCollector).expect("searched");
    let seq = |address: tantivy::DocAddress| {
        let reader = view.searcher.segment_reader(address.segment_ord);
        reader.fast_fields().u64(crate::schema::SEQ).expect("a column").first(address.doc_id).expect("each has one")
    };
    addresses.into_iter().map(|address| index.document_at(seq(address)).expect("its row").id).collect()
}

fn ids(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn a_document_is_read_at_once_and_found_after_a_refresh() {
    let index = Node::new().create(json!({}));
    let first = put(&index, "1", &json!({"a": "quick fox", "n": 3}));
    assert_eq!((first.result, first.version, first.seq), ("created", 1, 0));
    let (document, seq) = index.get("1").expect("read").expect("there");
    assert_eq!((&document.source[..], seq), (&br#"{"a":"quick fox","n":3}"#[..], 0));
    assert_eq!(found(&index, "fox"), ids(&[]), "not searchable yet");
    index.refresh().expect("refreshed");
    assert_eq!(found(&index, "fox"), ids(&["1"]));
    let second = put(&index, "1", &json!({"a": "slow fox"}));
    assert_eq!((second.result, second.version, second.seq), ("updated", 2, 1));
    let deleted = one(&index, op(Some("1"), OpKind::Delete)).expect("deleted");
    assert_eq!((deleted.result, deleted.version, deleted.seq), ("deleted", 3, 2));
    assert!(index.get("1").expect("read").is_none());
    index.refresh().expect("refreshed");
    assert_eq!(found(&index, "fox"), ids(&[]));
    assert_eq!(put(&index, "1", &json!({"a": "fox"})).version, 4, "the version goes on after a deletion");
}

#[test]
fn conditions_on_versions_are_checked() {
    let index = Node::new().create(json!({}));
    put(&index, "1", &json!({"a": "x"}));
    let source = || OpKind::Index(Bytes::from_static(b"{}"));
    for (kind, expected, holds) in [
        (OpKind::Create(Bytes::from_static(b"{}")), ExpectedVersion::Any, false),
        (source(), ExpectedVersion::Seq(5, 1), false),
        (source(), ExpectedVersion::Seq(0, 2), false),
        (source(), ExpectedVersion::Seq(0, 1), true),
        (source(), ExpectedVersion::External(2), false),
        (source(), ExpectedVersion::ExternalGte(2), true),
        (source(), ExpectedVersion::External(9), true),
        (OpKind::Delete, ExpectedVersion::External(9), false),
    ] {
        let result = one(&index, DocumentOp { id: Some("1".into()), kind: kind.clone(), expected, routing: None });
        match result {
            Ok(_) => assert!(holds, "{kind:?} {expected:?}"),
            Err(error) => {
                assert!(!holds, "{kind:?} {expected:?}: {error}");
                assert_eq!(error.status, 409);
            }
        }
    }
}

#[test]
fn partial_updates_merge_objects_and_see_what_changes_nothing() {
    let index = Node::new().create(json!({}));
    let update = |doc: Value, upsert: bool| {
        let doc = doc.as_object().cloned();
        OpKind::Update(PartialUpdate { doc, upsert: None, doc_as_upsert: upsert, detect_noop: true })
    };
    let missing = one(&index, op(Some("1"), update(json!({"o": {"x": 1}}), false))).expect_err("there is none");
    assert_eq!(missing.status, 404);
    assert_eq!(one(&index, op(Some("1"), update(json!({"o": {"x": 1}}), true))).expect("stored").result, "created");
    assert_eq!(one(&index, op(Some("1"), update(json!({"o": {"y": 2}}), false))).expect("stored").result, "updated");
    let noop = one(&index, op(Some("1"), update(json!({"o": {"y": 2}}), false))).expect("no change");
    assert_eq!((noop.result, noop.version), ("noop", 2));
    let (document, _) = index.get("1").expect("read").expect("there");
    assert_eq!(parse_source(&document.source).expect("JSON")["o"], json!({"x": 1, "y": 2}));
}

#[test]
fn a_document_that_cannot_be_indexed_is_refused_and_the_others_of_its_request_are_stored() {
    let index = Node::new().create(json!({"properties": {"n": {"type": "long"}}}));
    let source = |text: &'static str| OpKind::Index(Bytes::from_static(text.as_bytes()));
    let ops = [r#"{"n": 1}"#, r#"{"n": "many"}"#, "[1]", "{", r#"{"n": 2}"#].map(|text| op(None, source(text)));
    let results = index.apply(&ops).expect("the store works");
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, false, true]);
    assert!(results[1].as_ref().expect_err("refused").reason.contains("[n] of type [long]"));
    index.refresh().expect("refreshed");
    assert_eq!(index.document_count(), 2);
}

#[test]
fn after_a_crash_every_answered_document_is_found_with_its_last_version_whatever_was_persisted() {
    clear_and_encrypted(|| {
        for seed in 0..6 {
            let mut random = fastrand::Rng::with_seed(seed);
            let node = Node::new();
            let mut index = node.create(json!({"properties": {"a": {"type": "text"}}}));
            let mut model: BTreeMap<String, (u64, bool)> = BTreeMap::new();
            for round in 0..120_u64 {
                let id = format!("d{}", random.u8(..20));
                match random.u8(..10) {
                    0..6 => {
                        let mut source = json!({"a": format!("all round{round}")});
                        if random.u8(..8) == 0 {
                            // New fields, some of them texts: the schema grows, or the index is made again.
                            source[format!("t{round}")] = json!("new text");
                            source[format!("n{round}")] = json!(round);
                        }
                        put(&index, &id, &source);
                        model.insert(id, (round, true));
                    }
                    6 => {
                        one(&index, op(Some(&id), OpKind::Delete)).expect("answered");
                        model.insert(id, (round, false));
                    }
                    7 => index.refresh().expect("refreshed"),
                    8 => index.persist().expect("persistent"),
                    _ => {
                        drop(index);
                        index = node.reopen();
                    }
                }
            }
            drop(index);
            let index = node.reopen();
            let there = model.iter().filter(|(_, (_, there))| *there);
            let wanted: BTreeSet<String> = there.clone().map(|(id, _)| id.clone()).collect();
            assert_eq!(found(&index, "all"), wanted, "seed {seed}");
            for (id, (round, _)) in there {
                assert_eq!(found(&index, &format!("round{round}")), BTreeSet::from([id.clone()]), "seed {seed}");
            }
            assert_eq!(index.document_count(), wanted.len() as u64, "seed {seed}: no document twice");
        }
    });
}

#[test]
fn a_view_shows_its_documents_while_they_are_replaced_and_swept() {
    let index = Node::new().create(json!({"properties": {"a": {"type": "text"}}}));
    put(&index, "1", &json!({"a": "old"}));
    index.refresh().expect("refreshed");
    let before = index.view();
    for round in 0..3 {
        put(&index, "1", &json!({"a": format!("new {round}")}));
        index.persist().expect("persistent");
    }
    assert_eq!(index.document_at(0).expect("its row is kept").source, Bytes::from_static(br#"{"a":"old"}"#));
    drop(before);
    put(&index, "2", &json!({"a": "x"}));
    index.persist().expect("persistent");
    index.persist().expect("persistent");
    put(&index, "3", &json!({"a": "x"}));
    index.persist().expect("persistent");
    assert!(index.document_at(0).is_err(), "nothing shows it any more");
    assert_eq!(found(&index, "new"), ids(&["1"]));
}

#[test]
fn damaged_files_are_made_again_from_the_documents() {
    clear_and_encrypted(|| {
        let node = Node::new();
        let index = node.create(json!({"properties": {"a": {"type": "text"}}}));
        for number in 0..50 {
            put(&index, &number.to_string(), &json!({"a": "word"}));
        }
        index.persist().expect("persistent");
        drop(index);
        let device = node.place.shelves.fast.open("u1-0").expect("there");
        for extent in 0..40 {
            device.write(extent * 65_536, &[0xAA; 4096]).expect("written");
        }
        let index = node.reopen();
        assert_eq!(found(&index, "word").len(), 50);
    });
}

#[test]
fn many_writers_of_few_ids_leave_one_document_each_and_every_version_once() {
    let index = Node::new().create(json!({"properties": {"a": {"type": "text"}}}));
    let versions: Vec<(String, u64)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let index = &index;
                scope.spawn(move || {
                    let write = |round: u64| {
                        let id = format!("d{}", round % 3);
                        (id.clone(), put(index, &id, &json!({"a": format!("w{writer} r{round}")})).version)
                    };
                    (0..60).map(write).collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect()
    });
    assert_eq!(versions.iter().collect::<BTreeSet<_>>().len(), 240, "no version was given out twice");
    index.refresh().expect("refreshed");
    assert_eq!(index.document_count(), 3);
    for id in ["d0", "d1", "d2"] {
        let (document, _) = index.get(id).expect("read").expect("there");
        assert_eq!(document.version, 80);
        let text = parse_source(&document.source).expect("JSON")["a"].as_str().expect("a text").to_owned();
        let last = text.split(' ').next_back().expect("a word");
        assert!(found(&index, last).contains(id), "the index has the last version of {id}");
    }
}

#[test]
fn a_merge_leaves_one_segment_and_the_same_documents() {
    clear_and_encrypted(|| {
        let index = Node::new().create(json!({"properties": {"a": {"type": "text"}}}));
        for number in 0..12 {
            put(&index, &number.to_string(), &json!({"a": "word"}));
            index.refresh().expect("refreshed");
        }
        one(&index, op(Some("3"), OpKind::Delete)).expect("deleted");
        index.force_merge(1).expect("merged");
        assert_eq!(index.segments().len(), 1);
        assert_eq!(found(&index, "word").len(), 11);
        let all = index.view().view.searcher.search(&tantivy::query::AllQuery, &Count).expect("searched");
        assert_eq!(all, 11);
    });
}

#[test]
fn a_medium_that_fails_loses_no_document_and_the_index_catches_up_when_it_is_well() {
    clear_and_encrypted(|| {
        for (operation, fault) in [
            (Operation::Write, Fault::Eio),
            (Operation::Write, Fault::NoSpace),
            (Operation::Create, Fault::NoSpace),
            (Operation::Flush, Fault::Eio),
        ] {
            let mut node = Node::new();
            let shelf = Arc::new(FaultyShelf::new(Arc::clone(&node.place.shelves.fast)));
            node.place.shelves = FileShelves::one(shelf.clone());
            let index = node.create(json!({"properties": {"a": {"type": "text"}}}));
            put(&index, "0", &json!({"a": "word"}));
            if operation != Operation::Create {
                index.persist().expect("persistent");
            }
            shelf.inject(Rule::from(operation, 1, fault));
            for number in 1..30 {
                let id = number.to_string();
                put(&index, &id, &json!({"a": "word"}));
                assert!(index.get(&id).expect("read").is_some());
                if number % 10 == 0 {
                    // Whether it fails depends on the operation; the documents stay.
                    drop(index.refresh());
                }
            }
            index.persist().expect_err("the medium fails");
            shelf.heal();
            if index.persist().is_err() {
                assert!(index.damage().is_some(), "{operation:?} {fault:?}: the operator sees it");
                index.rebuild().expect("made again");
                index.persist().expect("persistent");
            }
            assert!(!index.needs_refresh());
            assert_eq!(found(&index, "word").len(), 30, "{operation:?} {fault:?}");
            drop(index);
            assert_eq!(found(&node.reopen(), "word").len(), 30, "{operation:?} {fault:?}: after a restart");
        }
    });
}

#[test]
fn a_deleted_index_does_not_come_back_by_a_late_request() {
    let node = Node::new();
    let index = node.create(json!({}));
    put(&index, "1", &json!({"a": 1}));
    index.delete().expect("deleted");
    assert_eq!(index.put_mapping(&json!({"properties": {"x": {"type": "long"}}})).expect_err("gone").status, 404);
    assert_eq!(index.redefine(|definition| definition.closed = true).expect_err("gone").status, 404);
    assert_eq!(index.persist().expect_err("gone").status, 404);
    assert_eq!(index.apply(&[op(None, OpKind::Index(Bytes::from_static(b"{}")))]).expect_err("gone").status, 404);
    assert_eq!(index.delete().expect_err("gone").status, 404);
    assert!(SearchIndex::definitions(&node.place.store).expect("readable").is_empty());
    assert!(node.place.shelves.fast.list().expect("listed").is_empty());
}

#[test]
fn the_first_view_after_a_start_keeps_its_documents_too() {
    let node = Node::new();
    let index = node.create(json!({"properties": {"a": {"type": "text"}}}));
    put(&index, "1", &json!({"a": "old"}));
    index.persist().expect("persistent");
    drop(index);
    let index = node.reopen();
    let before = index.view();
    put(&index, "1", &json!({"a": "new"}));
    for _ in 0..3 {
        index.persist().expect("persistent");
    }
    assert!(index.document_at(0).is_ok());
    drop(before);
}

#[test]
fn a_value_that_does_not_fit_a_field_mapped_later_costs_no_document() {
    let node = Node::new();
    let index = node.create(json!({"dynamic": false, "properties": {"a": {"type": "text"}}}));
    put(&index, "1", &json!({"a": "word", "n": "many", "o": 1}));
    index
        .put_mapping(&json!({"properties": {"n": {"type": "long"}, "o": {"properties": {"x": {"type": "long"}}}}}))
        .expect("added");
    index.rebuild().expect("made again");
    assert_eq!(found(&index, "word"), ids(&["1"]));
    let refused = one(&index, op(Some("2"), OpKind::Index(Bytes::from_static(br#"{"n": "many"}"#))));
    assert_eq!(refused.expect_err("it does not fit").status, 400);
}

#[test]
fn numbers_that_are_given_up_do_not_hold_up_those_after_them() {
    let index = Node::new().create(json!({"properties": {"a": {"type": "text"}}}));
    let base = index.sequencer.lock().reserve(3);
    put(&index, "1", &json!({"a": "word"}));
    index.refresh().expect("refreshed");
    assert_eq!(found(&index, "word"), ids(&[]), "an earlier number is still open");
    index.sequencer.lock().abandon(base);
    index.refresh().expect("refreshed");
    assert_eq!(found(&index, "word"), ids(&["1"]));
}

#[test]
fn writes_do_not_wait_while_the_index_is_made_again_and_what_needs_the_writer_is_refused() {
    let node = Node::new();
    let index = node.create(json!({"properties": {"a": {"type": "text"}}}));
    put(&index, "1", &json!({"a": "word"}));
    let state = index.writer.lock();
    index.rebuilding.store(true, Ordering::Release);
    put(&index, "2", &json!({"a": "word"}));
    assert!(index.get("2").expect("read").is_some());
    let new_field = one(&index, op(Some("3"), OpKind::Index(Bytes::from_static(br#"{"b": 1}"#))));
    for refused in [
        new_field.expect_err("a new field"),
        index.refresh().expect_err("a refresh"),
        index.force_merge(1).expect_err("a merge"),
        index.redefine(|_| ()).expect_err("a setting"),
        index.delete().expect_err("its end"),
    ] {
        assert_eq!(refused.status, 503, "{refused}");
    }
    index.rebuilding.store(false, Ordering::Release);
    drop(state);
    index.rebuild().expect("made again");
    assert_eq!(found(&index, "word"), ids(&["1", "2"]), "what was written meanwhile is there");
}

#[test]
fn an_index_that_is_made_again_under_writes_has_the_last_of_each() {
    let node = Node::new();
    let index = node.create(json!({"properties": {"a": {"type": "text"}}}));
    for round in 0..3 {
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let index = &index;
                scope.spawn(move || {
                    for number in 0..300 {
                        let id = format!("{writer}-{}", number % 100);
                        put(index, &id, &json!({"a": format!("last{round}x{}", number / 100)}));
                        if number % 10 == 9 {
                            one(index, op(Some(&id), OpKind::Delete)).expect("deleted");
                        }
                    }
                });
            }
            index.rebuild().expect("made again");
        });
        index.refresh().expect("refreshed");
        assert_eq!(found(&index, &format!("last{round}x2")).len(), 270, "round {round}");
        for old in [format!("last{round}x0"), format!("last{round}x1")] {
            assert!(found(&index, &old).is_empty(), "round {round}");
        }
    }
    index.persist().expect("persistent");
    drop(index);
    assert_eq!(found(&node.reopen(), "last2x2").len(), 270, "after a restart");
}

#[test]
fn more_deletes_than_a_batch_are_in_an_index_that_is_made_again() {
    let node = Node::new();
    let index = node.create(json!({"properties": {"a": {"type": "text"}}}));
    let source = || OpKind::Index(Bytes::from(json!({"a": "word"}).to_string()));
    let all: Vec<String> = (0..2_500).map(|number| number.to_string()).collect();
    let apply = |ops: Vec<DocumentOp>| index.apply(&ops).expect("the store works").len();
    assert_eq!(apply(all.iter().map(|id| op(Some(id), source())).collect()), 2_500);
    assert_eq!(apply(all[..2_400].iter().map(|id| op(Some(id), OpKind::Delete)).collect()), 2_400);
    // Some of them are there again: a delete must not come behind what was written after it.
    assert_eq!(apply(all[1_000..1_010].iter().map(|id| op(Some(id), source())).collect()), 10);
    let expected: BTreeSet<String> = all[2_400..].iter().chain(&all[1_000..1_010]).cloned().collect();
    index.rebuild().expect("made again");
    assert_eq!(found(&index, "word"), expected);
}
