//! Searches over small indices: orders, pages, totals, sources, highlights, refusals.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use device::MemoryShelf;
use serde_json::{Value, json};
use store::{Options, Store};

use super::*;
use crate::index::{DocumentOp, ExpectedVersion, OpKind};
use crate::indices::{Indices, IndicesOptions, NewIndex};

pub(super) fn indices() -> Arc<Indices> {
    let store = Store::in_memory(Options::default()).expect("a store in memory");
    let shelf = Arc::new(MemoryShelf::new());
    let options = IndicesOptions {
        store,
        shelf,
        capacity: None,
        file_bytes: 1 << 28,
        writer_bytes: 16 << 20,
        indices_max: 10,
        feeds: Vec::new(),
        reserved: vec![".node".to_owned()],
    };
    Indices::open(options).expect("opened")
}

pub(super) fn create(indices: &Indices, name: &str, properties: &Value) -> Arc<SearchIndex> {
    let new = NewIndex::read(Some(&json!({"mappings": {"properties": properties}}))).expect("a body");
    indices.create(name, new, &crate::rights::testing::node()).expect("created")
}

pub(super) fn put(index: &SearchIndex, id: usize, source: &Value) {
    let kind = OpKind::Index(bytes::Bytes::from(source.to_string()));
    let op = DocumentOp { id: Some(id.to_string()), kind, expected: ExpectedVersion::Any, routing: None };
    index.apply(&[op]).expect("the store works").pop().expect("one result").expect("stored");
}

pub(super) fn targets(found: &[&Arc<SearchIndex>]) -> Vec<SearchTarget> {
    let target = |index: &&Arc<SearchIndex>| SearchTarget::whole(Arc::clone(index));
    found.iter().map(target).collect()
}

pub(super) const LIMITS: SearchLimits = SearchLimits {
    buckets: 1_000,
    memory_bytes: 1 << 24,
    found_bytes: 1 << 26,
    of_all: None,
    owner: None,
    part_of: None,
    source_bytes: 1 << 24,
    now: 0,
    window: 10_000,
    cheap: false,
};

pub(super) fn run(targets: &[SearchTarget], body: &Value) -> Result<Value, SearchError> {
    let body = SearchBody::read(Some(body), &BTreeMap::new())?;
    Ok(search(targets, &body, &LIMITS, &Arc::default())?.response)
}

pub(super) fn found_ids(response: &Value) -> Vec<String> {
    let hits = response["hits"]["hits"].as_array().expect("a list");
    hits.iter().map(|hit| hit["_id"].as_str().expect("an id").to_owned()).collect()
}

/// A document's id, its number, its word.
type KeptDocument = (usize, Option<i64>, Option<String>);

/// Documents over two indices, several segments and deletions, and what each has in its fields.
fn random_documents(indices: &Indices, seed: u64) -> (Vec<SearchTarget>, Vec<KeptDocument>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let properties = json!({"n": {"type": "long"}, "k": {"type": "keyword"}});
    let both = [create(indices, "a", &properties), create(indices, "b", &properties)];
    let mut kept = Vec::new();
    for id in 0..120 {
        let number = random.bool().then(|| random.i64(-5..5));
        let word = (random.u8(..4) > 0).then(|| ["x", "y", "z", "ab"][random.usize(..4)].to_owned());
        let mut source = json!({"id": id});
        if let Some(number) = number {
            source["n"] = json!(number);
        }
        if let Some(word) = &word {
            source["k"] = json!(word);
        }
        let index = &both[id % 2];
        put(index, id, &source);
        if random.u8(..10) == 0 {
            let op = DocumentOp {
                id: Some(id.to_string()),
                kind: OpKind::Delete,
                expected: ExpectedVersion::Any,
                routing: None,
            };
            index.apply(&[op]).expect("the store works").pop().expect("one result").expect("deleted");
        } else {
            kept.push((id, number, word));
        }
        if random.u8(..15) == 0 {
            index.refresh().expect("refreshed");
        }
    }
    both.iter().for_each(|index| index.refresh().expect("refreshed"));
    (targets(&[&both[0], &both[1]]), kept)
}

#[test]
fn hits_come_in_the_order_of_the_keys_and_pages_together_are_all_of_them() {
    for seed in 1..5 {
        let indices = indices();
        let (targets, mut kept) = random_documents(&indices, seed);
        // Numbers descending with those that have none first, then words ascending with those that have none last.
        kept.sort_by(|(_, a, _), (_, b, _)| match (a, b) {
            (None, None) => std::cmp::Ordering::Equal,
            (None, _) => std::cmp::Ordering::Less,
            (_, None) => std::cmp::Ordering::Greater,
            (Some(a), Some(b)) => b.cmp(a),
        });
        kept.sort_by(|(_, a, x), (_, b, y)| {
            let rank = |word: &Option<String>| (word.is_none(), word.clone());
            let order = match (a, b) {
                (None, None) => std::cmp::Ordering::Equal,
                (None, _) => std::cmp::Ordering::Less,
                (_, None) => std::cmp::Ordering::Greater,
                (Some(a), Some(b)) => b.cmp(a),
            };
            order.then_with(|| rank(x).cmp(&rank(y)))
        });
        let sort = json!([{"n": {"order": "desc", "missing": "_first"}}, "k", {"id": "asc"}]);
        let whole = run(&targets, &json!({"size": 200, "sort": sort})).expect("searched");
        assert_eq!(whole["hits"]["total"]["value"], kept.len(), "seed {seed}");
        let keys = |response: &Value| -> Vec<(Value, Value)> {
            let hits = response["hits"]["hits"].as_array().expect("a list");
            hits.iter().map(|hit| (hit["sort"][0].clone(), hit["sort"][1].clone())).collect()
        };
        let expected: Vec<(Value, Value)> = kept.iter().map(|(_, number, word)| (json!(number), json!(word))).collect();
        assert_eq!(keys(&whole), expected, "seed {seed}");
        let (mut paged, mut after) = (Vec::new(), None::<Value>);
        loop {
            let mut body = json!({"size": 7, "sort": sort});
            if let Some(after) = &after {
                body["search_after"] = after.clone();
            }
            let page = run(&targets, &body).expect("searched");
            let hits = page["hits"]["hits"].as_array().expect("a list");
            let Some(last) = hits.last() else { break };
            after = Some(last["sort"].clone());
            paged.extend(found_ids(&page));
        }
        assert_eq!(paged, found_ids(&whole), "seed {seed}");
    }
}

#[test]
fn totals_are_counted_as_far_as_the_request_says() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"t": {"type": "text"}}));
    for id in 0..30 {
        put(&index, id, &json!({"t": if id % 3 == 0 { "red apple" } else { "green apple" }}));
    }
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for (body, total) in [
        (json!({}), json!({"value": 30, "relation": "eq"})),
        (json!({"query": {"match": {"t": "red"}}}), json!({"value": 10, "relation": "eq"})),
        (
            json!({"query": {"match": {"t": "red green"}}, "track_total_hits": 5}),
            json!({"value": 5, "relation": "gte"}),
        ),
        (json!({"query": {"match": {"t": "red"}}, "track_total_hits": 10}), json!({"value": 10, "relation": "eq"})),
        (json!({"track_total_hits": false}), Value::Null),
        (json!({"query": {"match": {"t": "apple"}}, "min_score": 99}), json!({"value": 0, "relation": "eq"})),
        (json!({"post_filter": {"match": {"t": "red"}}}), json!({"value": 10, "relation": "eq"})),
        (json!({"terminate_after": 4}), json!({"value": 4, "relation": "eq"})),
    ] {
        assert_eq!(run(&targets, &body).expect("searched")["hits"]["total"], total, "{body}");
    }
    let best = run(&targets, &json!({"query": {"match": {"t": "red apple"}}, "size": 10})).expect("searched");
    let scores: Vec<f64> = best["hits"]["hits"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|hit| hit["_score"].as_f64().expect("a score"))
        .collect();
    assert!(scores.is_sorted_by(|a, b| a >= b) && scores.len() == 10, "{scores:?}");
    assert_eq!(best["hits"]["max_score"].as_f64(), Some(scores[0]));
}

#[test]
fn parts_of_a_text_that_a_query_found_are_marked() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"t": {"type": "text"}, "k": {"type": "keyword"}}));
    put(&index, 1, &json!({"t": "The quick brown fox jumps over the lazy dog & the quick cat", "k": "fox"}));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    let whole = "The <em>quick</em> brown <em>fox</em> jumps over the lazy dog & the <em>quick</em> cat";
    for (query, highlight, expected) in [
        (json!({"match": {"t": "quick fox"}}), json!({"fields": {"t": {}}}), json!({"t": [whole]})),
        (
            json!({"match_phrase": {"t": "quick cat"}}),
            json!({"pre_tags": ["<b>"], "post_tags": ["</b>"], "encoder": "html", "number_of_fragments": 0, "fields": {"t": {}}}),
            json!({"t": ["The quick brown fox jumps over the lazy dog &amp; the <b>quick</b> <b>cat</b>"]}),
        ),
        (
            json!({"match": {"t": "fox"}}),
            json!({"fields": {"t": {"fragment_size": 20}}}),
            json!({"t": ["brown <em>fox</em> jumps"]}),
        ),
        (json!({"term": {"k": "fox"}}), json!({"fields": {"k": {}, "t": {}}}), json!({"k": ["<em>fox</em>"]})),
        (json!({"match_all": {}}), json!({"fields": {"t": {"no_match_size": 9}}}), json!({"t": ["The quick"]})),
        (json!({"match_all": {}}), json!({"fields": {"t": {}}}), Value::Null),
    ] {
        let found = run(&targets, &json!({"query": query, "highlight": highlight})).expect("searched");
        assert_eq!(found["hits"]["hits"][0]["highlight"], expected, "{query} {highlight}");
    }
}

#[test]
fn a_field_that_others_are_copied_to_is_highlighted_where_they_were_found() {
    let indices = indices();
    let properties = json!({
        "first": {"type": "text", "copy_to": "all"}, "last": {"type": "keyword", "copy_to": "all"},
        "all": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
    });
    let index = create(&indices, "a", &properties);
    put(&index, 1, &json!({"first": "Ann Mary", "last": "Adams", "all": "of her own"}));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for (query, shown) in [
        (json!({"match": {"all": "mary"}}), json!({"all": ["Ann <em>Mary</em>"]})),
        (json!({"match": {"all": "adams own"}}), json!({"all": ["of her <em>own</em>", "<em>Adams</em>"]})),
        (json!({"term": {"all.raw": "Adams"}}), json!({"all.raw": ["<em>Adams</em>"]})),
        (json!({"match": {"first": "ann"}}), Value::Null),
    ] {
        let found = run(&targets, &json!({"query": query, "highlight": {"fields": {"all*": {}}}})).expect("searched");
        assert_eq!(found["hits"]["hits"][0]["highlight"], shown, "{query}");
    }
}

#[test]
fn a_number_with_more_digits_than_its_field_keeps_is_sought_as_it_would_be_kept() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"s": {"type": "scaled_float", "scaling_factor": 100}}));
    put(&index, 1, &json!({"s": 1.002}));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for (query, hits) in [
        (json!({"term": {"s": 1.004}}), 1),
        (json!({"terms": {"s": [7, "0.999"]}}), 1),
        (json!({"term": {"s": 1.006}}), 0),
        (json!({"range": {"s": {"gt": 1.0}}}), 0),
    ] {
        let found = run(&targets, &json!({"query": query})).expect("searched");
        assert_eq!(found["hits"]["total"]["value"], hits, "{query}");
    }
}

#[test]
fn a_search_has_so_much_memory_for_what_it_finds_and_all_of_them_too() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"k": {"type": "keyword"}, "n": {"type": "long"}}));
    (0..200).for_each(|n| put(&index, n, &json!({"k": format!("k{n}"), "n": n, "filler": vec![n; 100]})));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    let stats = json!({"s": {"stats": {"field": "n"}}, "t": {"top_hits": {"size": 1}}});
    for body in [
        json!({"size": 200}),
        json!({"size": 0, "aggs": {"k": {"terms": {"field": "k", "size": 200}, "aggs": stats}}}),
        json!({"size": 200, "collapse": {"field": "k"}}),
    ] {
        let read = SearchBody::read(Some(&body), &BTreeMap::new()).expect("read");
        let all = SearchMemory::new(8 << 20);
        let within = |found_bytes, of_all| {
            let limits = SearchLimits { found_bytes, of_all, ..LIMITS };
            search(&targets, &read, &limits, &Arc::default())
        };
        let found = within(1 << 24, Some(Arc::clone(&all))).unwrap_or_else(|error| panic!("{body}: {error}"));
        assert!(all.left() < 8 << 20, "{body}: it has some while its response is there");
        drop(found);
        assert_eq!(all.left(), 8 << 20, "{body}");
        for few in [within(100_000, None), within(1 << 24, Some(SearchMemory::new(100_000)))] {
            let error = few.map(|found| found.response).expect_err("too much");
            assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"), "{body}");
        }
    }
}

#[test]
fn many_exact_aggregations_have_the_memory_of_one_search_and_the_rest_are_estimates() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"n": {"type": "long"}}));
    [0, 7, 1_i64 << 40].into_iter().enumerate().for_each(|(id, n)| put(&index, id, &json!({"n": n})));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    let aggs: serde_json::Map<String, Value> = (0..400)
        .map(|n| match n % 2 {
            0 => (format!("a{n}"), json!({"percentiles": {"field": "n", "percents": [50]}})),
            _ => (format!("a{n}"), json!({"cardinality": {"field": "n"}})),
        })
        .collect();
    let read = SearchBody::read(Some(&json!({"size": 0, "aggs": aggs})), &BTreeMap::new()).expect("read");
    let all = SearchMemory::new(64 << 20);
    let limits = SearchLimits { of_all: Some(Arc::clone(&all)), ..LIMITS };
    let found = search(&targets, &read, &limits, &Arc::default()).expect("searched");
    for n in 0..400 {
        let value = &found.response["aggregations"][format!("a{n}")];
        let value = if n % 2 == 0 { &value["values"]["50.0"] } else { &value["value"] };
        let expected = if n % 2 == 0 { 7.0 } else { 3.0 };
        assert!(value.as_f64().is_some_and(|value| (value - expected).abs() < 0.2), "a{n}: {value}");
    }
    drop(found);
    assert_eq!(all.left(), 64 << 20);
}

#[test]
fn hits_in_many_buckets_count_before_there_are_too_many() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"k": {"type": "keyword"}}));
    (0..500).for_each(|n| put(&index, n, &json!({"k": format!("k{n}")})));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for (size, fits) in [(1, true), (100, false)] {
        let aggs = json!({"k": {"terms": {"field": "k", "size": 1}, "aggs": {"t": {"top_hits": {"size": size}}}}});
        let read = SearchBody::read(Some(&json!({"size": 0, "aggs": aggs})), &BTreeMap::new()).expect("read");
        // 500 buckets of 100 hits each have room for 4.8 MB.
        let limits = SearchLimits { memory_bytes: 1 << 18, ..LIMITS };
        let found = search(&targets, &read, &limits, &Arc::default()).map(|found| found.response);
        assert_eq!(found.is_ok(), fits, "{size}");
        assert!(found.err().is_none_or(|error| error.kind == "circuit_breaking_exception"), "{size}");
    }
}

#[test]
fn fields_show_what_the_index_has_and_what_types_read() {
    let indices = indices();
    let properties = json!({
        "s": {"type": "scaled_float", "scaling_factor": 100}, "f": {"type": "float"},
        "k": {"type": "keyword", "null_value": "none"}, "c": {"type": "keyword"}, "ip": {"type": "ip"},
        "n": {"type": "long", "copy_to": "c"}, "d": {"type": "date", "format": "dd/MM/yyyy"},
        "other": {"type": "alias", "path": "n"}, "hidden": {"type": "keyword", "doc_values": false},
    });
    let index = create(&indices, "a", &properties);
    put(
        &index,
        1,
        &json!({"s": 1.005, "f": 16_777_217, "k": ["b", null, "b"], "n": [3, 1], "ip": "::ffff:10.0.0.1", "d": "02/01/2024"}),
    );
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for (field, of_column, of_source) in [
        ("s", json!([1.0]), json!([1.0])),
        ("f", json!([16_777_216.0]), json!([16_777_216.0])),
        ("k", json!(["b", "none"]), json!(["b", "none", "b"])),
        ("c", json!(["1", "3"]), json!(["3", "1"])),
        ("n", json!([1, 3]), json!([3, 1])),
        ("ot*", json!([1, 3]), json!([3, 1])),
        ("ip", json!(["10.0.0.1"]), json!(["::ffff:10.0.0.1"])),
        ("d", json!(["02/01/2024"]), json!(["02/01/2024"])),
    ] {
        let name = if field == "ot*" { "other" } else { field };
        for (part, expected) in [("docvalue_fields", of_column), ("fields", of_source)] {
            let found = run(&targets, &json!({part: [field]})).expect("searched");
            assert_eq!(found["hits"]["hits"][0]["fields"], json!({name: expected}), "{part} {field}");
        }
    }
    let error = run(&targets, &json!({"docvalue_fields": ["hidden"]})).expect_err("no column");
    assert!(error.reason.contains("Can't load fielddata on [hidden]"), "{error}");
}

#[test]
fn what_a_search_cannot_do_is_refused_by_its_name() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"t": {"type": "text"}, "n": {"type": "long"}}));
    put(&index, 1, &json!({"t": "x", "n": 1}));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for (body, status, named) in [
        (json!({"rescore": {}}), 400, "rescore"),
        (json!({"colour": {}}), 400, "colour"),
        (json!({"min_score": "high"}), 400, "min_score"),
        (json!({"_source": "a".repeat(513)}), 400, "at most 512"),
        (json!({"_source": {"excludes": vec!["a".repeat(500); 40]}}), 400, "at most 16384"),
        (json!({"size": -1}), 400, "size"),
        (json!({"from": 9_999, "size": 2}), 400, "Result window is too large"),
        (json!({"sort": "t"}), 400, "Text fields are not optimised"),
        (json!({"sort": "nothing"}), 400, "No mapping found for [nothing]"),
        (json!({"sort": "_id"}), 400, "_id"),
        (json!({"sort": "n", "search_after": [1, 2]}), 400, "search_after has 2 value(s) but sort has 1"),
        (json!({"search_after": [1]}), 400, "Sort must contain at least one field"),
        (json!({"sort": "n", "search_after": ["x"]}), 400, "x"),
        (json!({"highlight": {"type": "fvh", "fields": {"t": {}}}}), 400, "fvh"),
        (json!({"docvalue_fields": ["t"]}), 400, "Text fields are not optimised"),
    ] {
        let error = run(&targets, &body).expect_err(named);
        assert_eq!(error.status, status, "{body}: {error}");
        assert!(error.reason.contains(named), "{body}: {error}");
    }
    let scored = json!({"query": {"match": {"t": "x"}}, "min_score": "100"});
    assert_eq!(run(&targets, &scored).expect("a text is read as a number")["hits"]["hits"], json!([]));
    let limits = SearchLimits { source_bytes: 3, ..LIMITS };
    let error = search(&targets, &SearchBody::default(), &limits, &Arc::default()).err().expect("too large");
    assert_eq!(error.status, 429);
    let error =
        search(&targets, &SearchBody::default(), &LIMITS, &Arc::new(AtomicBool::new(true))).err().expect("cancelled");
    assert_eq!(error.kind, "task_cancelled_exception");
}

#[test]
fn a_search_whose_time_is_over_shows_what_it_has_and_says_so() {
    let indices = indices();
    let index = create(&indices, "i", &json!({"k": {"type": "keyword"}, "t": {"type": "text"}}));
    for id in 0..10 {
        put(&index, id, &json!({"k": format!("k{id}"), "t": "red word"}));
    }
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for body in [
        json!({}),
        json!({"sort": [{"k": "asc"}]}),
        json!({"query": {"wildcard": {"k": "*k*"}}}),
        json!({"query": {"match": {"t": "red"}}, "highlight": {"fields": {"t": {}}}}),
        json!({"size": 0, "aggs": {"a": {"terms": {"field": "k"}, "aggs": {"top": {"top_hits": {}}}}}}),
        json!({"aggs": {"a": {"global": {}, "aggs": {"b": {"filter": {"prefix": {"k": "k"}}}}}}}),
    ] {
        let mut late = body.clone();
        late["timeout"] = json!("1nanos");
        let answer = run(&targets, &late).unwrap_or_else(|error| panic!("{error}: {body}"));
        assert_eq!(answer["timed_out"], true, "{body}: {answer}");
        assert_eq!(run(&targets, &body).expect("it has time")["timed_out"], false, "{body}");
        let body = SearchBody::read(Some(&body), &BTreeMap::new()).expect("a body");
        let cancelled = search(&targets, &body, &LIMITS, &Arc::new(AtomicBool::new(true)));
        assert_eq!(cancelled.err().expect("cancelled").kind, "task_cancelled_exception");
    }
}
