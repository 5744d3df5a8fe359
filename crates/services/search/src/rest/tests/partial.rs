//! An index of messages for who may read those of some services only.

use node::identity::Action;

use super::*;
use crate::SearchError;
use crate::index::{DocumentFeed, FedBatch};
use crate::indices::FedIndex;
use crate::rest::RestMethod::{Delete, Get, Post};
use crate::rights::testing::{grant, guard_with, revoke, user};

/// Service and text of each message, by its id from 1 on.
const STORED: &[(&str, &str)] = &[
    ("lab", "potassium adams"),
    ("adt", "admission adams smith"),
    ("adt", "admission smith"),
    ("lab", "sodium smith"),
    ("adt", "discharge smith hidden adama"),
    ("lab-old", "glucose adams"),
    ("adt", "admission smith"),
];

#[derive(Debug)]
struct Messages;

impl DocumentFeed for Messages {
    fn documents(&self, from: u64, _: usize) -> Result<FedBatch, SearchError> {
        let end = STORED.len() as u64 + 1;
        let mut batch = FedBatch { next: from.max(end), ..Default::default() };
        for id in from.max(1)..end {
            batch.documents.push((id, self.document(id)?.unwrap_or_default()));
        }
        Ok(batch)
    }

    fn document(&self, seq: u64) -> Result<Option<serde_json::Map<String, Value>>, SearchError> {
        let stored = usize::try_from(seq).ok().and_then(|seq| STORED.get(seq.checked_sub(1)?));
        let source = stored.map(|(service, text)| json!({"number": seq, "service": service, "text": text}));
        Ok(source.and_then(|source| source.as_object().cloned()))
    }

    fn first(&self) -> Result<Option<u64>, SearchError> {
        Ok(Some(1))
    }

    fn service_field(&self) -> Option<&str> {
        Some("service")
    }
}

fn bed() -> Api {
    let store = Store::in_memory(Options::default()).expect("a store in memory");
    let mapping = json!({"properties": {
        "number": {"type": "long"}, "service": {"type": "keyword"}, "text": {"type": "text"}
    }});
    let messages = FedIndex {
        name: ".messages".to_owned(),
        settings: BTreeMap::new(),
        mapping,
        revision: json!(1),
        feed: Arc::new(Messages),
    };
    let options = IndicesOptions {
        store,
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
    Api::new(indices, guard_with(&[]), "node")
}

/// A user with the right to the index, and the rights to messages on this object.
fn reader(api: &Api, name: &str, object: &str) -> Caller {
    let (_, caller) = user(&api.guard, name);
    for action in [Action::IndexRead, Action::IndexMonitor, Action::IndexWrite, Action::IndexMake] {
        grant(&api.guard, action, "index *", name);
    }
    grant(&api.guard, Action::SearchMonitor, "node", name);
    for action in [Action::MessageBody, Action::Unmasked] {
        grant(&api.guard, action, object, name);
    }
    caller
}

fn ids(answer: &Value) -> Vec<&str> {
    let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut ids: Vec<&str> = hits.iter().filter_map(|hit| hit["_id"].as_str()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn who_may_read_some_services_searches_their_messages_as_if_there_were_no_others() {
    let api = bed();
    let ann = reader(&api, "ann", "service lab*");
    let whole = reader(&api, "whole", "service *");
    let ask = |caller: &Caller, target: &str, body: &str| send_as(&api, caller, Post, target, body.to_owned());
    // What is asked, what the partial reader finds, what the whole reader finds.
    let searches: &[(&str, &[&str], usize)] = &[
        ("{}", &["1", "4", "6"], 7),
        (r#"{"query":{"match":{"text":"smith"}}}"#, &["4"], 5),
        (r#"{"query":{"match":{"text":"hidden"}}}"#, &[], 1),
        (r#"{"query":{"term":{"service":"adt"}}}"#, &[], 4),
        (r#"{"query":{"bool":{"must_not":[{"term":{"service":"lab"}}]}}}"#, &["6"], 5),
        (r#"{"query":{"bool":{"should":[{"term":{"service":"adt"}},{"match":{"text":"sodium"}}]}}}"#, &["4"], 5),
        (r#"{"query":{"ids":{"values":["2","4"]}}}"#, &["4"], 2),
        (r#"{"query":{"prefix":{"text":"adm"}}}"#, &[], 3),
        (r#"{"query":{"match":{"text":"adams"}},"post_filter":{"match_all":{}}}"#, &["1", "6"], 3),
        // The nearest term, and the first one, is one of a message that others have.
        (r#"{"query":{"fuzzy":{"text":{"value":"adama","fuzziness":1,"max_expansions":1}}}}"#, &["1", "6"], 4),
        (r#"{"query":{"match_phrase_prefix":{"text":{"query":"adam","max_expansions":1}}}}"#, &["1", "6"], 4),
        (r#"{"sort":[{"number":"desc"}],"search_after":[6]}"#, &["1", "4"], 5),
    ];
    for (body, found, all) in searches {
        let (status, answer) = ask(&ann, ".messages/_search", body);
        assert_eq!((status, ids(&answer)), (200, found.to_vec()), "{body}: {answer}");
        let total = answer["hits"]["total"]["value"].as_u64();
        assert!(total == Some(found.len() as u64) || body.contains("search_after"), "{body}: {answer}");
        assert!(!answer.to_string().contains("\"adt\""), "{body}: {answer}");
        assert_eq!(ids(&ask(&whole, ".messages/_search", body).1).len(), *all, "{body}");
        let query: Value = serde_json::from_str(body).expect("JSON");
        if let (Some(query), true) = (query.get("query"), query.as_object().is_some_and(|body| body.len() == 1)) {
            let (_, counted) = ask(&ann, ".messages/_count", &json!({ "query": query }).to_string());
            assert_eq!(counted["count"], json!(found.len()), "{body}");
        }
    }
    let (_, pattern) = ask(&ann, "_search?expand_wildcards=all", "{}");
    assert_eq!(ids(&pattern), ["1", "4", "6"], "a pattern stands for the same");
    let (_, many) = ask(&ann, "_msearch", "{\"index\":\".messages\"}\n{}\n");
    assert_eq!(ids(&many["responses"][0]), ["1", "4", "6"]);
}

#[test]
fn aggregations_and_highlights_of_a_partial_reader_are_of_its_services() {
    let api = bed();
    let ann = reader(&api, "ann", "service lab*");
    let aggs = json!({"size": 0, "query": {"match": {"text": "smith"}}, "aggs": {
        "by": {"terms": {"field": "service", "min_doc_count": 1}},
        "all": {"global": {}, "aggs": {"by": {"terms": {"field": "service"}}, "most": {"max": {"field": "number"}}}},
        "pairs": {"multi_terms": {"terms": [{"field": "service"}, {"field": "number"}], "min_doc_count": 0}},
        "numbers": {"histogram": {"field": "number", "interval": 1, "min_doc_count": 0}},
        "kinds": {"cardinality": {"field": "service"}},
    }});
    let (status, answer) = send_as(&api, &ann, Post, ".messages/_search", aggs.to_string());
    assert_eq!(status, 200, "{answer}");
    let found = &answer["aggregations"];
    assert_eq!(found["by"]["buckets"], json!([{"key": "lab", "doc_count": 1}]), "{answer}");
    assert_eq!((&found["all"]["doc_count"], &found["all"]["most"]["value"]), (&json!(3), &json!(6.0)), "{answer}");
    assert_eq!(found["kinds"]["value"], json!(1), "{answer}");
    assert!(!answer.to_string().contains("adt"), "{answer}");
    let lit = r#"{"query":{"match":{"text":"smith"}},"highlight":{"fields":{"text":{}}}}"#;
    let (_, answer) = send_as(&api, &ann, Post, ".messages/_search", lit);
    let hits = answer["hits"]["hits"].as_array().expect("hits");
    assert_eq!(hits.len(), 1, "{answer}");
    assert_eq!(hits[0]["highlight"]["text"][0], json!("sodium <em>smith</em>"));
}

#[test]
fn scores_of_a_partial_reader_do_not_depend_on_what_it_may_not_see() {
    let api = bed();
    let ann = reader(&api, "ann", "service lab*");
    let whole = reader(&api, "whole", "service *");
    let score = |caller: &Caller, word: &str| {
        let body = json!({"query": {"match": {"text": word}}}).to_string();
        let (_, answer) = send_as(&api, caller, Post, ".messages/_search", body);
        let hits = answer["hits"]["hits"].as_array().expect("hits").clone();
        let of = |id: &str| hits.iter().find(|hit| hit["_id"] == id).map(|hit| hit["_score"].to_string());
        of("4").expect("it is among the hits")
    };
    // Both words are once in the message, and one of them often in others.
    assert_eq!(score(&ann, "sodium"), score(&ann, "smith"));
    assert_ne!(score(&whole, "sodium"), score(&whole, "smith"));
    let validate = ".messages/_validate/query?explain=true";
    let (_, told) = send_as(&api, &ann, Post, validate, r#"{"query":{"prefix":{"text":"adm"}}}"#);
    assert!(!told.to_string().contains("admission"), "{told}");
}

#[test]
fn a_message_of_another_service_is_one_that_is_not_there() {
    let api = bed();
    let ann = reader(&api, "ann", "service lab*");
    for (target, status) in [
        (".messages/_doc/4", 200),
        (".messages/_source/4", 200),
        (".messages/_doc/2", 404),
        (".messages/_source/2", 404),
        (".messages/_doc/99", 404),
    ] {
        let (found, answer) = send_as(&api, &ann, Get, target, "");
        assert_eq!(found, status, "{target}: {answer}");
        assert!(!answer.to_string().contains("admission"), "{answer}");
    }
    let (_, got) = send_as(&api, &ann, Post, ".messages/_mget", r#"{"ids":["2","4"]}"#);
    assert_eq!((&got["docs"][0]["found"], &got["docs"][1]["found"]), (&json!(false), &json!(true)), "{got}");
    let by_lookup = |id: &str| {
        let lookup = json!({"terms": {"service": {"index": ".messages", "id": id, "path": "service"}}});
        let (_, answer) = send_as(&api, &ann, Post, ".messages/_search", json!({ "query": lookup }).to_string());
        ids(&answer).len()
    };
    assert_eq!((by_lookup("4"), by_lookup("2")), (2, 0));
    let copy = r#"{"source":{"index":".messages"},"dest":{"index":"copy"}}"#;
    let (status, answer) = send_as(&api, &ann, Post, "_reindex?refresh=true", copy);
    assert_eq!((status, &answer["created"]), (200, &json!(3)), "{answer}");
}

#[test]
fn scrolls_and_points_in_time_of_a_partial_reader_hold_its_services_and_end_with_its_rights() {
    let api = bed();
    let ann = reader(&api, "ann", "service lab");
    for action in [Action::MessageBody, Action::Unmasked] {
        grant(&api.guard, action, "service lab-old", "ann");
    }
    let post = |target: &str, body: Value| send_as(&api, &ann, Post, target, body.to_string());
    let (_, page) = post(".messages/_search?scroll=1m", json!({"size": 2, "sort": [{"number": "asc"}]}));
    assert_eq!((ids(&page), &page["hits"]["total"]["value"]), (vec!["1", "4"], &json!(3)), "{page}");
    let (_, point) = send_as(&api, &ann, Post, ".messages/_pit?keep_alive=1m", "");
    let in_point = json!({"pit": {"id": point["id"]}});
    assert_eq!(ids(&post("_search", in_point.clone()).1), ["1", "4", "6"]);
    let next = json!({"scroll_id": page["_scroll_id"]});
    assert_eq!(ids(&post("_search/scroll", next.clone()).1), ["6"]);
    revoke(&api.guard, Action::Unmasked, "service lab-old", "ann").expect("revoked");
    assert_eq!(post("_search/scroll", next).0, 403);
    assert_eq!(post("_search", in_point).0, 403);
    // A new search is by the rights of now.
    assert_eq!(ids(&post(".messages/_search", json!({})).1), ["1", "4"]);
    revoke(&api.guard, Action::Unmasked, "service lab", "ann").expect("revoked");
    assert_eq!(post(".messages/_search", json!({})).0, 403);
    let (status, _) = send_as(&api, &ann, Delete, "_search/scroll/_all", "");
    assert!(status == 200 || status == 404);
}

#[test]
fn statistics_of_the_index_of_messages_show_to_who_may_list_all_messages() {
    let api = bed();
    let ann = reader(&api, "ann", "service lab*");
    grant(&api.guard, Action::MessageMetadata, "service lab*", "ann");
    let text = |caller: &Caller, target: &str| {
        let (status, answer) = send_as(&api, caller, Get, target, "");
        assert_eq!(status, 200, "{target}: {answer}");
        answer
    };
    let targets = ["_stats", ".messages/_stats?level=shards", "_cluster/stats", "_nodes/stats"];
    let counts = |caller: &Caller| -> Vec<u64> {
        let docs = |answer: &Value| {
            let places = ["/_all/primaries/docs/count", "/indices/docs/count"];
            let own = places.iter().find_map(|place| answer.pointer(place)?.as_u64());
            let nodes = answer["nodes"].as_object().into_iter().flatten();
            own.or_else(|| nodes.filter_map(|(_, node)| node.pointer("/indices/docs/count")?.as_u64()).next())
        };
        targets.iter().map(|target| docs(&text(caller, target)).unwrap_or(0)).collect()
    };
    assert_eq!(counts(&ann), [0; 4]);
    let cat = |caller: &Caller, what: &str| text(caller, what).as_str().unwrap_or_default().to_owned();
    let tables = [
        "_cat/indices/.messages?h=docs.count,store.size",
        "_cat/shards/.messages?h=docs,store",
        "_cat/segments/.messages",
    ];
    for table in tables {
        assert!(!cat(&ann, table).contains(|c: char| c.is_ascii_digit()), "{table}: {}", cat(&ann, table));
    }
    assert!(cat(&ann, "_cat/indices/.messages").contains(".messages"), "that it is there is no secret");
    assert_eq!(cat(&ann, "_cat/count/.messages?h=count").trim(), "3");
    grant(&api.guard, Action::MessageMetadata, "service *", "ann");
    assert!(counts(&ann).contains(&7), "{:?}", counts(&ann));
    for table in tables {
        assert!(cat(&ann, table).contains('7'), "{table}: {}", cat(&ann, table));
    }
}
