//! An index of messages: who may read it, and what is recorded of that.

use node::audit::{AuditEntry, AuditQuery, AuditReader, AuditRows, KIND_AUDIT};
use node::identity::Action;
use node::{Audit, AuditSettings, Clock, Interpreters};

use super::*;
use crate::SearchError;
use crate::index::{DocumentFeed, FedBatch};
use crate::indices::FedIndex;
use crate::rest::RestMethod::{Get, Post};
use crate::rights::testing::{grant, guard_with, user};

/// Three messages.
#[derive(Debug)]
struct Messages;

impl DocumentFeed for Messages {
    fn documents(&self, from: u64, _: usize) -> Result<FedBatch, SearchError> {
        let mut batch = FedBatch { next: from.max(4), ..Default::default() };
        for id in from.max(1)..4 {
            batch.documents.push((id, self.document(id)?.unwrap_or_default()));
        }
        Ok(batch)
    }

    fn document(&self, seq: u64) -> Result<Option<serde_json::Map<String, Value>>, SearchError> {
        let source = json!({"number": seq, "text": "a secret"});
        Ok((1..4).contains(&seq).then(|| source.as_object().expect("an object").clone()))
    }

    fn first(&self) -> Result<Option<u64>, SearchError> {
        Ok(Some(1))
    }
}

pub(super) struct Bed {
    pub(super) api: Api,
    store: Store,
}

impl Bed {
    pub(super) fn new() -> Bed {
        let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
        let store = Store::in_memory(Options { interpreter: Some(Arc::new(interpreter)), ..Options::default() })
            .expect("a store in memory");
        let messages = FedIndex {
            name: ".messages".to_owned(),
            settings: BTreeMap::new(),
            mapping: json!({"properties": {"number": {"type": "long"}, "text": {"type": "text"}}}),
            revision: json!(1),
            feed: Arc::new(Messages),
        };
        let options = IndicesOptions {
            store: store.clone(),
            shelf: Arc::new(MemoryShelf::new()),
            capacity: None,
            file_bytes: 1 << 28,
            writer_bytes: 16 << 20,
            indices_max: 10,
            feeds: vec![messages],
            reserved: vec![".messages".to_owned()],
        };
        let indices = Indices::open(options).expect("opened");
        let index = indices.get(".messages").expect("it was made");
        while index.feed().expect("fed") {}
        index.refresh().expect("refreshed");
        let audit = Audit::open(&store, AuditSettings::default(), Clock::fixed(1));
        Bed { api: Api::new(indices, guard_with(&[]), "node").with_audit(audit), store }
    }

    /// An audit of the same store that takes no entry.
    pub(super) fn full_audit(&self) -> Arc<Audit> {
        Audit::open(&self.store, AuditSettings { max_bytes: 1, ..AuditSettings::default() }, Clock::fixed(1))
    }

    /// The entries of the audit, from the first on.
    pub(super) fn entries(&self) -> Vec<AuditEntry> {
        self.api.audit.as_ref().expect("there").wait_visible().expect("visible");
        let reader = AuditReader::at(self.store.snapshot()).expect("it can be read");
        let page = reader.page(&AuditQuery::default()).expect("a page");
        assert_eq!(page.next, None, "all are in one page");
        page.entries.into_iter().map(|shown| shown.chained.entry).collect()
    }

    /// The newest entry of the audit.
    pub(super) fn newest(&self) -> Option<AuditEntry> {
        self.entries().pop()
    }
}

#[test]
fn messages_are_read_by_the_right_on_bodies_beside_that_on_the_index_and_each_read_is_recorded() {
    let bed = Bed::new();
    let (api, guard) = (&bed.api, &bed.api.guard);
    let (_, ann) = user(guard, "ann");
    let requests = [
        (Get, ".messages/_search", ""),
        (Get, ".messages/_count", ""),
        (Get, ".messages/_doc/2", ""),
        (Get, ".messages/_source/2", ""),
        (Get, "_mget", r#"{"docs":[{"_index":".messages","_id":"2"}]}"#),
        (Post, "_msearch", "{\"index\":\".messages\"}\n{}\n"),
        (Post, ".messages/_search", r#"{"size":0,"aggs":{"n":{"max":{"field":"number"}}}}"#),
        (Post, "_reindex", r#"{"source":{"index":".messages"},"dest":{"index":"copy"}}"#),
        (Get, ".messages/_field_caps?fields=*", ""),
        (Get, "copy/_search", r#"{"query":{"terms":{"a":{"index":".messages","id":"2","path":"number"}}}}"#),
    ];
    for object in ["index .messages", "index copy"] {
        for action in [Action::IndexRead, Action::IndexWrite, Action::IndexMake] {
            grant(guard, action, object, "ann");
        }
    }
    let refused = |caller: &Caller, (method, target, body): (RestMethod, &str, &str)| {
        let (status, answer) = send_as(api, caller, method, target, body.to_owned());
        assert!(status == 403 || answer.to_string().contains("is unauthorized for user"), "{target}: {answer}");
    };
    for request in requests {
        refused(&ann, request);
        // Administrators do not have it until somebody grants it to them.
        refused(&Caller::node(), request);
    }
    grant(guard, Action::MessageBody, "service adt*", "ann");
    refused(&ann, requests[0]);
    let all = |caller: &Caller| send_as(api, caller, Get, "_search?expand_wildcards=all", "").1.to_string();
    assert!(!all(&ann).contains("secret"), "a pattern does not stand for it");
    grant(guard, Action::MessageBody, "service *", "ann");
    grant(guard, Action::Unmasked, "service *", "ann");
    for (request, action, count) in [
        (requests[0], "message.body", 3),
        (requests[1], "message.search", 0),
        (requests[2], "message.body", 1),
        (requests[3], "message.body", 1),
        (requests[4], "message.body", 1),
        (requests[5], "message.body", 3),
        (requests[6], "message.search", 0),
    ] {
        let (status, answer) = send_as(api, &ann, request.0, request.1, request.2.to_owned());
        assert_eq!(status, 200, "{answer}");
        let entry = bed.newest().expect("an entry");
        assert_eq!((&*entry.action, entry.reads.count), (action, count), "{request:?}: {entry:?}");
        assert_eq!((&*entry.actor.name, &*entry.object), ("ann", ".messages"));
    }
    assert!(all(&ann).contains("secret"));
    // A page of a scroll is recorded as its search.
    let (_, page) = send_as(api, &ann, Post, ".messages/_search?scroll=1m", r#"{"size":1}"#);
    assert_eq!(bed.newest().expect("an entry").reads.count, 1);
    let next = json!({"scroll_id": page["_scroll_id"]}).to_string();
    send_as(api, &ann, Post, "_search/scroll", next);
    let entry = bed.newest().expect("an entry");
    assert_eq!((&*entry.action, entry.reads.count), ("message.body", 1), "{entry:?}");
    // Copies are recorded by the job, before they are written.
    let (status, answer) = send_as(api, &ann, Post, requests[7].1, requests[7].2);
    assert_eq!((status, &answer["created"]), (200, &json!(3)), "{answer}");
    let (status, answer) = send_as(api, &ann, Get, requests[9].1, requests[9].2);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(bed.newest().expect("an entry").reads.ranges, [(2, 2)], "the lookup read it");
}

#[test]
fn where_the_audit_takes_no_entry_nothing_is_answered() {
    let bed = Bed::new();
    let audit = bed.full_audit();
    let Bed { api, .. } = bed;
    let api = api.with_audit(audit);
    let (_, ann) = user(&api.guard, "ann");
    grant(&api.guard, Action::IndexRead, "index .messages", "ann");
    grant(&api.guard, Action::MessageBody, "service *", "ann");
    grant(&api.guard, Action::Unmasked, "service *", "ann");
    let (status, answer) = send_as(&api, &ann, Get, ".messages/_search", "");
    assert_eq!(status, 503, "{answer}");
    assert!(!answer.to_string().contains("secret"));
}
