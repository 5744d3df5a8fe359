//! Many searches at the same time: together they have the memory of all, and no more.

use std::collections::BTreeMap;
use std::thread;

use node::identity::RoleId;
use serde_json::{Value, json};

use super::tests::{LIMITS, create, indices, targets};
use super::*;
use crate::index::{DocumentOp, ExpectedVersion, OpKind};

/// Memory of all searches of a test.
const ALL_BYTES: u64 = 64 << 20;

/// Memory that the library gets first, with what is made of it.
const FIRST_BYTES: u64 = 2 << 20;

fn heavy_bodies() -> Vec<Value> {
    let of_key = |aggs: Value| json!({"size": 0, "aggs": {"k": {"terms": {"field": "k", "size": 900}, "aggs": aggs}}});
    vec![
        of_key(json!({"n": {"terms": {"field": "n"}}})),
        of_key(json!({"p": {"percentiles": {"field": "n"}}})),
        of_key(json!({"d": {"cardinality": {"field": "n"}}})),
        of_key(json!({"t": {"top_hits": {"size": 3}}})),
        json!({"size": 0, "aggs": {"c": {"composite": {"size": 900, "sources": [{"k": {"terms": {"field": "k"}}}]}}}}),
        json!({"size": 0, "aggs": {"g": {"global": {}, "aggs": {"k": {"terms": {"field": "k", "size": 900}}}}}}),
        json!({"size": 900, "sort": [{"k": "desc"}, {"n": "asc"}]}),
        json!({"size": 900, "query": {"match": {"t": "red"}}, "highlight": {"fields": {"t": {}}}}),
    ]
}

fn put_all(index: &SearchIndex, documents: usize, source: &dyn Fn(usize) -> Value) {
    let document = |n: usize| {
        let kind = OpKind::Index(bytes::Bytes::from(source(n).to_string()));
        DocumentOp { id: Some(n.to_string()), kind, expected: ExpectedVersion::Any, routing: None }
    };
    let documents: Vec<DocumentOp> = (0..documents).map(document).collect();
    for one in index.apply(&documents).expect("the store works") {
        one.expect("stored");
    }
}

#[test]
fn many_heavy_searches_at_the_same_time_have_the_memory_of_all_and_give_it_back() {
    let indices = indices();
    let properties = json!({"k": {"type": "keyword"}, "n": {"type": "long"}, "t": {"type": "text"}});
    let index = create(&indices, "a", &properties);
    put_all(&index, 900, &|n| json!({"k": format!("key {n}"), "n": n % 7, "t": "a red word ".repeat(20)}));
    index.refresh().expect("refreshed");
    let bodies = heavy_bodies();
    let all = SearchMemory::new(ALL_BYTES);
    let run = |number: usize| {
        let body = SearchBody::read(Some(&bodies[number % bodies.len()]), &BTreeMap::new()).expect("a body");
        let owner = Some(RoleId(number as u32 % 3));
        let limits = SearchLimits { buckets: 65_535, of_all: Some(Arc::clone(&all)), owner, ..LIMITS };
        search(&targets(&[&index]), &body, &limits, &Arc::default()).map(drop)
    };
    for (number, body) in bodies.iter().enumerate() {
        run(number).unwrap_or_else(|error| panic!("alone it has the memory: {error}: {body}"));
        assert_eq!(all.left(), ALL_BYTES, "{body}");
    }
    assert!(all.peak() >= FIRST_BYTES, "what the library takes counts: {}", all.peak());
    let refused: Vec<SearchError> = thread::scope(|scope| {
        let running: Vec<_> = (0..40)
            .map(|number| {
                let run = &run;
                scope.spawn(move || run(number))
            })
            .collect();
        running.into_iter().filter_map(|one| one.join().expect("no panic").err()).collect()
    });
    // Where waiting would not have helped, or did not in time.
    for error in &refused {
        assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"), "{error}");
    }
    assert!(refused.len() < 40, "some are answered");
    assert!(all.peak() <= ALL_BYTES, "{}", all.peak());
    assert_eq!((all.left(), all.waiting()), (ALL_BYTES, 0));
}

#[test]
fn an_aggregation_gets_more_memory_where_little_does_not_do_and_none_where_there_is_too_little() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"k": {"type": "keyword"}}));
    put_all(&index, 3_000, &|n| json!({"k": format!("key {n}")}));
    index.refresh().expect("refreshed");
    // 3,000 buckets with room for 100 hits each are counted as 29 MB.
    let aggs = json!({"k": {"terms": {"field": "k", "size": 1}, "aggs": {"t": {"top_hits": {"size": 100}}}}});
    let body = SearchBody::read(Some(&json!({"size": 0, "aggs": aggs})), &BTreeMap::new()).expect("a body");
    for (bytes, fits) in [(1_u64 << 30, true), (4 << 20, false)] {
        let all = SearchMemory::new(bytes);
        let limits = SearchLimits { memory_bytes: 128 << 20, of_all: Some(Arc::clone(&all)), ..LIMITS };
        let found = search(&targets(&[&index]), &body, &limits, &Arc::default()).map(drop);
        assert_eq!(found.is_ok(), fits, "{bytes}: {found:?}");
        assert!(found.err().is_none_or(|error| error.kind == "circuit_breaking_exception"), "{bytes}");
        assert!(!fits || all.peak() > FIRST_BYTES, "it began with little, and had more: {}", all.peak());
        assert_eq!(all.left(), bytes);
    }
}
