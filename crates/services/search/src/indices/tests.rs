//! The indices of a node: names, aliases, templates, settings, and what a restart keeps.

use std::sync::Arc;

use device::MemoryShelf;
use serde_json::{Value, json};
use store::{Options, Store};

use super::*;
use crate::rights::testing::node;

struct Bed {
    store: Store,
    shelf: Arc<MemoryShelf>,
    feeds: Vec<FedIndex>,
}

impl Bed {
    fn new() -> Bed {
        Bed {
            store: Store::in_memory(Options::default()).expect("a store in memory"),
            shelf: Arc::new(MemoryShelf::new()),
            feeds: Vec::new(),
        }
    }

    fn open(&self) -> Arc<Indices> {
        let options = IndicesOptions {
            store: self.store.clone(),
            shelf: Arc::<MemoryShelf>::clone(&self.shelf),
            capacity: None,
            file_bytes: 1 << 28,
            writer_bytes: 16 << 20,
            indices_max: 4,
            feeds: self.feeds.clone(),
            reserved: vec![".node".to_owned()],
        };
        Indices::open(options).expect("opened")
    }
}

fn new(body: &Value) -> NewIndex {
    NewIndex::read(Some(body)).expect("a body")
}

fn names(found: &[Resolved]) -> Vec<String> {
    found.iter().map(|resolved| resolved.index.name()).collect()
}

#[test]
fn names_aliases_and_patterns_stand_for_indices() {
    let indices = Bed::new().open();
    indices
        .create(
            "log-1",
            new(&json!({"aliases": {"logs": {}, "errors": {"filter": {"term": {"level": "error"}}}}})),
            &node(),
        )
        .expect("created");
    indices.create("log-2", new(&json!({"aliases": {"logs": {"is_write_index": true}}})), &node()).expect("created");
    indices.create("hidden", new(&json!({"settings": {"hidden": true}})), &node()).expect("created");
    let resolve = |names: &str| indices.resolve(names, ResolveOptions::default(), &node());
    for (expression, expected) in [
        ("log-1", Ok(&["log-1"][..])),
        ("logs", Ok(&["log-1", "log-2"])),
        ("log-*", Ok(&["log-1", "log-2"])),
        ("log-*,-log-1", Ok(&["log-2"])),
        ("_all", Ok(&["log-1", "log-2"])),
        ("hidden", Ok(&["hidden"])),
        ("none*", Ok(&[])),
        ("none", Err(404)),
        ("log-1,none", Err(404)),
    ] {
        match (resolve(expression), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(names(&found), expected, "{expression}"),
            (Err(error), Err(status)) => assert_eq!(error.status, status, "{expression}"),
            (found, _) => panic!("{expression}: {found:?}"),
        }
    }
    assert!(resolve("errors").expect("there").remove(0).filter.is_some());
    assert!(resolve("errors,log-1").expect("there").remove(0).filter.is_none());
    assert_eq!(indices.write_index("logs", &node()).expect("one writes").name(), "log-2");
    assert_eq!(indices.create("logs", NewIndex::default(), &node()).expect_err("an alias").status, 400);
    assert_eq!(
        indices.create("log-1", NewIndex::default(), &node()).expect_err("taken").kind,
        "resource_already_exists_exception"
    );
    for name in ["Upper", "_x", "a b", "a,b", "..", ""] {
        assert_eq!(
            indices.create(name, NewIndex::default(), &node()).expect_err(name).kind,
            "invalid_index_name_exception"
        );
    }
    indices.create("fourth", NewIndex::default(), &node()).expect("created");
    assert!(indices.create("fifth", NewIndex::default(), &node()).expect_err("too many").reason.contains("at most 4"));
}

#[test]
fn a_new_index_gets_what_its_templates_say_and_a_restart_keeps_it() {
    let bed = Bed::new();
    let indices = bed.open();
    let component = json!({"template": {"mappings": {"properties": {"at": {"type": "date"}}}}});
    indices.templates.put(TemplateKind::Component, "times", &component, false).expect("put");
    let template = json!({
        "index_patterns": ["log-*"], "composed_of": ["times"], "priority": 5,
        "template": {"settings": {"number_of_replicas": 0}, "aliases": {"logs": {}}},
    });
    indices.templates.put(TemplateKind::Index, "logs", &template, false).expect("put");
    let error = indices.templates.put(TemplateKind::Index, "other", &template, false).expect_err("the same priority");
    assert!(error.reason.contains("same priority"), "{error}");
    assert_eq!(indices.templates.delete(TemplateKind::Component, "times").expect_err("in use").status, 400);
    let index = indices.for_write("log-7", false, &node()).expect("created by its first document");
    assert!(index.mapping().field("at").is_some());
    indices.put_settings(&index, &json!({"refresh_interval": "5s"}), false).expect("changed");
    let error = indices.put_settings(&index, &json!({"number_of_shards": 3}), false).expect_err("final");
    assert!(error.reason.contains("non dynamic"), "{error}");
    assert!(indices.put_settings(&index, &json!({"colour": 3}), false).expect_err("unknown").reason.contains("colour"));
    indices.put_cluster_settings(&json!({"action": {"auto_create_index": "false"}}), &json!({})).expect("put");
    let uuid = indices.uuid().to_owned();
    index.close().expect("persisted");
    drop((index, indices));

    let indices = bed.open();
    assert_eq!(indices.uuid(), uuid);
    let index = indices.get("log-7").expect("there");
    assert_eq!(index.setting("index.refresh_interval"), Some(json!("5s")));
    assert_eq!(index.setting("index.number_of_replicas"), Some(json!("0")));
    assert!(indices.is_alias("logs"));
    assert_eq!(indices.for_write("log-8", false, &node()).expect_err("forbidden").status, 404);
    indices.delete("log-7").expect("deleted");
    assert!(indices.all().is_empty() && !indices.is_alias("logs"));
}

#[test]
fn an_index_that_cannot_be_opened_is_red_and_can_be_deleted() {
    let bed = Bed::new();
    let indices = bed.open();
    indices.create("good", NewIndex::default(), &node()).expect("created");
    indices.create("bad", NewIndex::default(), &node()).expect("created");
    let mut stored = json!(*indices.get("bad").expect("there").definition());
    stored["mapping"] = json!({"properties": {"a": {"type": "of another release"}}});
    crate::index::put_catalog_item(&bed.store, "index", "bad", Some(&stored)).expect("put");
    drop(indices);

    let indices = bed.open();
    assert_eq!(indices.all().len(), 1);
    assert!(indices.red()[0].why.reason.contains("of another release"), "{:?}", indices.red());
    assert_eq!(indices.resolve("bad", ResolveOptions::default(), &node()).expect_err("red").status, 503);
    assert_eq!(indices.for_write("bad", false, &node()).expect_err("red").status, 503);
    assert!(indices.resolve("good", ResolveOptions::default(), &node()).is_ok());
    indices.delete("bad").expect("deleted");
    assert!(indices.red().is_empty());
}

#[test]
fn a_mapping_that_an_older_release_spoilt_opens_again() {
    let bed = Bed::new();
    let indices = bed.open();
    let mapping = json!({"mappings": {"properties": {"s": {"type": "double"}}}});
    let index = indices.create("spoilt", new(&mapping), &node()).expect("created");
    let error = index.put_mapping(&json!({"properties": {"s": {"type": "float"}}})).expect_err("another type");
    assert!(error.reason.contains("from type [double] to [float]"), "{error}");
    let mut stored = json!(*index.definition());
    stored["mapping"]["properties"]["s"]["scaling_factor"] = json!(10);
    crate::index::put_catalog_item(&bed.store, "index", "spoilt", Some(&stored)).expect("put");
    drop((index, indices));
    let indices = bed.open();
    assert!(indices.red().is_empty(), "{:?}", indices.red());
    let index = indices.get("spoilt").expect("open");
    index.put_mapping(&json!({"properties": {"new": {"type": "long"}}})).expect("it goes on");
}

#[test]
fn blocks_of_an_index_hold_until_they_are_lifted() {
    let indices = Bed::new().open();
    let index = indices.create("i", NewIndex::default(), &node()).expect("created");
    for (block, [documents, mapping, deletion]) in
        [("write", [403, 200, 200]), ("read_only_allow_delete", [403, 403, 200]), ("read_only", [403, 403, 403])]
    {
        let name = format!("index.blocks.{block}");
        let status = |done: Result<(), SearchError>| done.map_or_else(|error| error.status, |()| 200);
        indices.put_settings(&index, &json!({&name: true}), false).expect("set");
        let got = [
            status(index.apply(&[]).map(drop)),
            status(index.put_mapping(&json!({"properties": {"n": {"type": "long"}}}))),
            status(crate::index::check_deletable(&index)),
        ];
        assert_eq!(got, [documents, mapping, deletion], "{block}");
        assert_eq!(status(indices.put_settings(&index, &json!({"refresh_interval": "5s"}), false)), mapping, "{block}");
        assert_eq!(index.apply(&[]).expect_err("blocked").kind, "cluster_block_exception");
        indices.put_settings(&index, &json!({&name: false}), false).expect("lifted");
        assert!(index.apply(&[]).is_ok());
    }
}

#[test]
fn settings_that_would_change_results_and_do_not_are_refused() {
    let indices = Bed::new().open();
    let index = indices.create("i", NewIndex::default(), &node()).expect("created");
    for (name, value, taken) in [
        ("index.blocks.read", json!(true), false),
        ("index.blocks.metadata", json!(true), false),
        ("index.blocks.metadata", json!(false), true),
        ("index.blocks.write", json!("maybe"), false),
        ("index.mapping.ignore_malformed", json!(true), false),
        ("index.mapping.ignore_malformed", json!(false), true),
        ("index.mapping.coerce", json!(false), false),
        ("index.mapping.total_fields.limit", json!(2), false),
        ("index.mapping.total_fields.limit", json!(10_000), true),
        ("index.mapping.depth.limit", json!(1), false),
        ("index.query.default_field", json!("title"), false),
        ("index.query.default_field", json!("*"), true),
    ] {
        let put = indices.put_settings(&index, &json!({name: value}), false);
        assert_eq!(put.is_ok(), taken, "{name} {value}: {put:?}");
        if let Err(error) = put {
            assert_eq!(error.status, 400);
        }
    }
    for (codec, taken) in [("default", true), ("best_compression", true), ("zzz", false), ("", false)] {
        let read = crate::indices::flat_settings(&json!({"codec": codec}));
        assert_eq!(read.is_ok(), taken, "{codec}: {read:?}");
    }
}

/// Numbers of documents that are there.
#[derive(Debug, Default)]
struct Numbers(Mutex<std::collections::BTreeSet<u64>>);

impl crate::index::DocumentFeed for Numbers {
    fn documents(&self, from: u64, most: usize) -> Result<crate::index::FedBatch, SearchError> {
        let numbers = self.0.lock();
        let mut batch = crate::index::FedBatch { next: from, ..Default::default() };
        for number in numbers.range(from..).take(most) {
            let source = json!({"number": number, "kind": if number % 2 == 0 { "even" } else { "odd" }});
            batch.documents.push((*number, source.as_object().expect("an object").clone()));
            (batch.next, batch.bytes) = (number + 1, batch.bytes + 20);
        }
        Ok(batch)
    }

    fn document(&self, seq: u64) -> Result<Option<serde_json::Map<String, Value>>, SearchError> {
        let source = json!({"number": seq});
        Ok(self.0.lock().contains(&seq).then(|| source.as_object().expect("an object").clone()))
    }

    fn first(&self) -> Result<Option<u64>, SearchError> {
        Ok(self.0.lock().first().copied())
    }
}

fn fed(numbers: &Arc<Numbers>, revision: u64) -> FedIndex {
    FedIndex {
        name: ".numbers".to_owned(),
        settings: BTreeMap::new(),
        mapping: json!({"properties": {"number": {"type": "long"}, "kind": {"type": "keyword"}}}),
        revision: json!(revision),
        feed: Arc::<Numbers>::clone(numbers),
    }
}

fn found(index: &Arc<SearchIndex>, query: &Value) -> u64 {
    let target = crate::hits::SearchTarget::whole(Arc::clone(index));
    let limits = crate::hits::SearchLimits {
        buckets: 1,
        memory_bytes: 0,
        found_bytes: 1 << 20,
        of_all: None,
        owner: None,
        part_of: None,
        source_bytes: 1 << 20,
        now: 0,
        window: 10_000,
        cheap: false,
    };
    let never = Arc::default();
    crate::hits::count(&[target], Some(query), &limits, None, &never).expect("counted")
}

#[test]
fn a_fed_index_goes_on_where_it_was_and_is_made_again_if_its_documents_look_different() {
    let numbers = Arc::new(Numbers::default());
    numbers.0.lock().extend(0..2_500);
    let bed = Bed { feeds: vec![fed(&numbers, 1)], ..Bed::new() };
    {
        let indices = bed.open();
        let index = indices.get(".numbers").expect("it was made");
        while index.feed().expect("fed") {}
        index.refresh().expect("refreshed");
        assert_eq!(found(&index, &json!({"term": {"kind": "odd"}})), 1_250);
        index.persist().expect("persisted");
        // In the index, and lost with the process: it comes from the feed again.
        numbers.0.lock().extend(2_500..2_600);
        while index.feed().expect("fed") {}
        index.refresh().expect("refreshed");
        assert_eq!(found(&index, &json!({"match_all": {}})), 2_600);
        assert_eq!(names(&indices.resolve("*", ResolveOptions::default(), &node()).expect("resolved")), [""; 0]);
        for refused in [
            indices.delete(".numbers").expect_err("the node's own"),
            index.put_mapping(&json!({"properties": {"x": {"type": "long"}}})).expect_err("the node's own"),
            index.apply(&[]).expect_err("the node's own"),
        ] {
            assert_eq!((refused.status, refused.kind), (403, "cluster_block_exception"), "{refused}");
        }
    }
    {
        let index = bed.open().get(".numbers").expect("it is there");
        assert_eq!(index.searchable_below(), 2_500, "as persisted");
        while index.feed().expect("fed") {}
        index.refresh().expect("refreshed");
        assert_eq!(found(&index, &json!({"match_all": {}})), 2_600);
        let (document, seq) = index.get("2599").expect("read").expect("it is there");
        assert_eq!((&document.source[..], seq), (&br#"{"number":2599}"#[..], 2_599));
        // Its owner removed documents: those below all that are left go.
        numbers.0.lock().retain(|number| *number >= 2_000 || *number == 1_000);
        index.trim().expect("trimmed");
        assert_eq!(found(&index, &json!({"match_all": {}})), 1_600);
        assert_eq!(&index.document_at(1_500).expect("a document").source[..], b"{}", "removed, and still in the index");
        index.rebuild().expect("made again");
        while index.feed().expect("fed") {}
        index.refresh().expect("refreshed");
        assert_eq!(found(&index, &json!({"match_all": {}})), 601);
    }
    let other = Bed { feeds: vec![fed(&numbers, 2)], store: bed.store.clone(), shelf: Arc::clone(&bed.shelf) };
    let index = other.open().get(".numbers").expect("it was made");
    assert_eq!(found(&index, &json!({"match_all": {}})), 0, "from the beginning");
    while index.feed().expect("fed") {}
    index.refresh().expect("refreshed");
    assert_eq!(found(&index, &json!({"match_all": {}})), 601);
    drop(index);
    let none = Bed { feeds: Vec::new(), store: bed.store.clone(), shelf: bed.shelf };
    assert!(none.open().get(".numbers").is_none(), "its feed is gone");
}
