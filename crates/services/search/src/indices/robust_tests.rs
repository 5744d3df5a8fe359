//! What one document, a full medium or a request cannot do to an index of the node's own.

use std::collections::BTreeSet;

use device::{Device, DeviceError, Durability, FileOptions, FileShelf, MemoryShelf, WrappedShelf};
use store::Options;

use super::*;
use crate::directory::ReservedShelf;
use crate::index::{DocumentFeed, FedBatch};
use crate::rest::{Api, RestBody, RestHandler, RestMethod, RestRequest};

/// Documents `0..2_000`, one of them with a word that no other has.
#[derive(Debug)]
struct Words {
    poison: u64,
}

impl Words {
    fn source(&self, seq: u64) -> serde_json::Map<String, Value> {
        let word = if seq == self.poison { "poisonous" } else { "harmless" };
        json!({"word": word}).as_object().expect("an object").clone()
    }
}

impl DocumentFeed for Words {
    fn documents(&self, from: u64, most: usize) -> Result<FedBatch, SearchError> {
        let to = (from + most as u64).min(2_000);
        let documents = (from..to).map(|seq| (seq, self.source(seq))).collect();
        Ok(FedBatch { documents, next: to.max(from), bytes: 10 * to.saturating_sub(from) })
    }

    fn document(&self, seq: u64) -> Result<Option<serde_json::Map<String, Value>>, SearchError> {
        assert!(seq != self.poison, "this one cannot be read");
        Ok(Some(self.source(seq)))
    }

    fn first(&self) -> Result<Option<u64>, SearchError> {
        Ok(Some(0))
    }
}

/// A medium that ends the thread that writes a certain word, as a fault of the library would.
#[derive(Debug)]
struct PoisonedDevice(Arc<dyn Device>);

impl Device for PoisonedDevice {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert!(!data.windows(9).any(|window| window == b"poisonous"), "the word is there");
        self.0.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }
}

fn open(store: &Store, shelf: Arc<dyn Shelf>, poison: u64) -> Arc<Indices> {
    let fed = FedIndex {
        name: ".words".to_owned(),
        settings: BTreeMap::new(),
        mapping: json!({"properties": {"word": {"type": "keyword"}}}),
        revision: json!(1),
        feed: Arc::new(Words { poison }),
    };
    let options = IndicesOptions {
        store: store.clone(),
        shelf,
        capacity: None,
        file_bytes: 1 << 28,
        writer_bytes: 16 << 20,
        indices_max: 4,
        feeds: vec![fed],
        reserved: vec![".node".to_owned()],
    };
    Indices::open(options).expect("opened")
}

fn store() -> Store {
    Store::in_memory(Options::default()).expect("a store in memory")
}

/// Feeds and refreshes as the thread does, until nothing is left or it failed so often. Returns the failures.
fn feed(index: &SearchIndex, most: u32) -> u32 {
    let mut failures = 0;
    while failures < most {
        match index.feed().and_then(|more| index.refresh().map(|()| more)) {
            Ok(false) => break,
            Ok(true) => {}
            Err(_) => failures += 1,
        }
    }
    failures
}

fn found(index: &Arc<SearchIndex>, word: &str) -> BTreeSet<u64> {
    let target = crate::hits::SearchTarget::whole(Arc::clone(index));
    let mut found = BTreeSet::new();
    let query = json!({"term": {"word": word}});
    let walk = crate::hits::Walk { target: &target, query: &query, now: 0, cheap: false, batch: 100 };
    let stop = Arc::default();
    walk.run(&stop, &mut |seqs| {
        found.extend(seqs);
        Ok(true)
    })
    .expect("walked");
    found
}

#[test]
fn a_document_that_ends_the_library_s_thread_is_passed_over_and_the_others_are_found() {
    for poison in [0, 777, 1_999] {
        let shelf =
            Arc::new(WrappedShelf::new(Arc::new(MemoryShelf::new()), |device| Arc::new(PoisonedDevice(device))));
        let indices = open(&store(), shelf, poison);
        let index = indices.get(".words").expect("it was made");
        let failures = feed(&index, 100);
        assert!(failures < 60, "{failures} failures");
        let all: BTreeSet<u64> = (0..2_000).filter(|seq| *seq != poison).collect();
        assert_eq!(found(&index, "harmless"), all, "{poison}");
        assert!(found(&index, "poisonous").is_empty());
        assert_eq!(index.searchable_below(), 2_000, "it is not behind");
        index.persist().expect("persistent");
    }
}

#[test]
fn a_hit_that_cannot_be_read_names_that_and_no_other_hit_is_lost() {
    let indices = open(&store(), Arc::new(MemoryShelf::new()), 3);
    let index = indices.get(".words").expect("it was made");
    assert_eq!(feed(&index, 1), 0);
    assert_eq!(found(&index, "poisonous"), BTreeSet::from([3]));
    let shown = |seq| String::from_utf8(index.document_at(seq).expect("shown").source.to_vec()).expect("text");
    assert!(shown(3).contains("unreadable") && shown(3).contains("this one cannot be read"), "{}", shown(3));
    assert_eq!(shown(4), r#"{"word":"harmless"}"#);
}

#[test]
fn index_files_leave_the_reserve_of_the_medium_free_and_the_index_goes_on_when_there_is_room() {
    let (store, folder) = (store(), tempfile::tempdir().expect("a folder"));
    let files: Arc<dyn Shelf> = Arc::new(FileShelf::open(folder.path(), FileOptions::default()).expect("a shelf"));
    {
        let indices = open(&store, Arc::new(ReservedShelf::new(Arc::clone(&files), u64::MAX / 2)), u64::MAX);
        let index = indices.get(".words").expect("it was made");
        assert_eq!(feed(&index, 5), 5, "there is no room");
        assert!(files.list().expect("listed").is_empty(), "nothing was written");
        let other = indices.create("i", NewIndex::default(), &crate::rights::testing::node()).expect("created");
        let kind = crate::index::OpKind::Index(bytes::Bytes::from_static(b"{\"a\":1}"));
        let expected = crate::index::ExpectedVersion::Any;
        let op = crate::index::DocumentOp { id: Some("1".to_owned()), kind, expected, routing: None };
        other.apply(&[op]).expect("the store works").pop().expect("a result").expect("stored");
        other.refresh().expect_err("there is no room");
        assert!(other.get("1").expect("read").is_some(), "the document is durable all the same");
    }
    let indices = open(&store, Arc::new(ReservedShelf::new(files, 0)), u64::MAX);
    assert_eq!(feed(&indices.get(".words").expect("it was made"), 1), 0);
    assert_eq!(found(&indices.get(".words").expect("it is there"), "harmless").len(), 2_000);
    assert_eq!(indices.get("i").expect("it is there").document_count(), 1);
}

#[test]
fn requests_change_nothing_of_an_index_of_the_node_s_own() {
    let indices = open(&store(), Arc::new(MemoryShelf::new()), u64::MAX);
    indices.create("i", NewIndex::default(), &crate::rights::testing::node()).expect("created");
    let api = Api::new(Arc::clone(&indices), crate::rights::testing::guard_with(&[]), "node");
    let before = serde_json::json!(*indices.get(".words").expect("there").definition());
    use RestMethod::{Delete, Post, Put};
    let alias = r#"{"actions": [{"add": {"index": "i", "alias": "a"}}, {"add": {"index": ".words", "alias": "a"}}]}"#;
    for (method, target, body) in [
        (Post, ".words/_close", ""),
        (Post, "i,.words/_close", ""),
        (Post, ".words/_open", ""),
        (Put, ".words/_settings", r#"{"index": {"refresh_interval": "-1"}}"#),
        (Put, ".words/_mapping", r#"{"properties": {"x": {"type": "long"}}}"#),
        (Put, ".words/_alias/a", ""),
        (Post, "_aliases", alias),
        (Put, ".words/_doc/1", "{}"),
        (Delete, ".words", ""),
        (Post, ".words/_delete_by_query", r#"{"query": {"match_all": {}}}"#),
        (Post, ".words/_update_by_query", ""),
        (Post, "_reindex", r#"{"source": {"index": "i"}, "dest": {"index": ".words"}}"#),
    ] {
        let request = RestRequest {
            method,
            path: target.split('/').map(str::to_owned).collect(),
            parameters: BTreeMap::new(),
            body: bytes::Bytes::from_static(body.as_bytes()),
            caller: node::identity::Caller::node(),
            opaque_id: None,
            cancelled: Arc::default(),
        };
        let response = api.respond(&request);
        let RestBody::Json(answer) = response.body else { panic!("{target}: no JSON") };
        assert_eq!(response.status, 403, "{target}: {answer}");
    }
    assert_eq!(serde_json::json!(*indices.get(".words").expect("there").definition()), before);
    let other = indices.get("i").expect("there").definition();
    assert!(!other.closed && other.aliases.is_empty(), "a request that is refused changes nothing: {other:?}");
}
