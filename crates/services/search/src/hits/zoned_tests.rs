//! What is found by the bounds of zones is what is found without them: seeded documents in several segments of several zones, with
//! deletions, several values and none.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::tests::{LIMITS, create, found_ids, indices, targets};
use super::*;
use crate::index::{DocumentOp, ExpectedVersion, OpKind, SearchIndex};
use crate::indices::Indices;

/// Documents: three segments of two zones and a bit, and replaced ones behind them.
const DOCUMENTS: usize = 7_000;

/// A document as it was put last.
#[derive(Clone)]
struct Model {
    numbers: Vec<i64>,
    at: i64,
    real: Option<f64>,
    word: &'static str,
}

/// Which documents a query matches.
type Matches<'a> = &'a dyn Fn(&Model) -> bool;

fn op(id: usize, kind: OpKind) -> DocumentOp {
    DocumentOp { id: Some(id.to_string()), kind, expected: ExpectedVersion::Any, routing: None }
}

fn apply(index: &SearchIndex, ops: &[DocumentOp]) {
    let done = index.apply(ops).expect("the store works");
    done.into_iter().for_each(|one| drop(one.expect("done")));
}

fn document(random: &mut fastrand::Rng, id: usize) -> (Model, OpKind) {
    let count = [1, 1, 1, 1, 0, 3][random.usize(..6)];
    let model = Model {
        numbers: (0..count).map(|_| random.i64(-500..500)).collect(),
        // Mostly in order, as times of a log are.
        at: id as i64 * 100 + random.i64(0..3_000),
        real: (random.u8(..9) > 0).then(|| f64::from(random.i32(-1_000..1_000)) / 8.0),
        word: ["red", "green", "blue", "red"][random.usize(..4)],
    };
    let mut source = json!({"n": model.numbers, "at": model.at, "k": model.word, "one": id / 10, "ip": format!("10.0.{}.{}", id % 7, id % 250)});
    if let Some(real) = model.real {
        source["x"] = json!(real);
    }
    (model, OpKind::Index(bytes::Bytes::from(source.to_string())))
}

/// The index, and what is in it. Without deletions if `whole`.
fn filled(seed: u64, whole: bool) -> (Arc<Indices>, Arc<SearchIndex>, BTreeMap<usize, Model>) {
    let indices = indices();
    let properties = json!({
        "n": {"type": "long"}, "at": {"type": "date", "format": "epoch_millis"}, "x": {"type": "double"}, "k": {"type": "keyword"},
        "one": {"type": "integer"}, "ip": {"type": "ip"},
    });
    let index = create(&indices, "a", &properties);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kept = BTreeMap::new();
    for part in 0..3 {
        let ids = part * DOCUMENTS / 3..(part + 1) * DOCUMENTS / 3;
        let mut ops = Vec::new();
        for id in ids {
            let (model, kind) = document(&mut random, id);
            kept.insert(id, model);
            ops.push(op(id, kind));
        }
        apply(&index, &ops);
        index.refresh().expect("refreshed");
    }
    let mut ops = Vec::new();
    for id in (0..DOCUMENTS).filter(|_| !whole) {
        match random.u8(..12) {
            0 => {
                kept.remove(&id);
                ops.push(op(id, OpKind::Delete));
            }
            1 => {
                let (model, kind) = document(&mut random, id);
                kept.insert(id, model);
                ops.push(op(id, kind));
            }
            _ => {}
        }
    }
    if !ops.is_empty() {
        apply(&index, &ops);
        index.refresh().expect("refreshed");
    }
    assert!(index.segments().len() >= 3);
    (indices, index, kept)
}

fn run(targets: &[SearchTarget], body: &Value) -> Value {
    let limits = SearchLimits { buckets: 65_535, ..LIMITS };
    let read = SearchBody::read(Some(body), &BTreeMap::new()).unwrap_or_else(|error| panic!("{body}: {error}"));
    search(targets, &read, &limits, &Arc::default()).unwrap_or_else(|error| panic!("{body}: {error}")).response
}

fn with(body: &Value, name: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[name] = value;
    body
}

fn queries() -> Vec<Value> {
    let range = |field: &str, from: i64, to: i64| json!({"range": {field: {"gte": from, "lt": to}}});
    vec![
        json!({"match_all": {}}),
        json!({"term": {"k": "red"}}),
        range("n", -20, 20),
        range("at", 100_000, 300_000),
        range("x", 100, 1_000),
        json!({"bool": {"must": [range("at", 50_000, 400_000), range("n", 0, 50)]}}),
        json!({"bool": {"filter": [range("at", 350_000, 420_000), {"term": {"k": "blue"}}], "must_not": [range("x", 0, 50)]}}),
        json!({"bool": {"should": [range("n", 0, 9), range("at", 0, 9_000)]}}),
        json!({"constant_score": {"filter": {"term": {"k": "green"}}, "boost": 2.5}}),
        json!({"bool": {"must": [{"term": {"one": 17}}, range("at", 0, 10_000_000)]}}),
        json!({"match_none": {}}),
    ]
}

#[test]
fn the_best_zones_have_the_hits_of_a_search_that_looks_at_all() {
    for whole in [true, false] {
        let (_indices, index, _) = filled(7, whole);
        let targets = targets(&[&index]);
        let sorts = [
            json!(["_doc"]),
            json!([{"at": "desc"}]),
            json!([{"at": "asc"}, {"n": "desc"}]),
            json!([{"n": {"order": "asc", "missing": "_first"}}]),
            json!([{"n": {"order": "desc", "missing": 3}}, {"at": "asc"}]),
            json!([{"n": {"order": "asc", "mode": "max"}}]),
            json!([{"x": "desc"}]),
            json!([{"_seq_no": "desc"}]),
        ];
        for query in queries() {
            for sort in &sorts {
                for (size, count) in [(1, json!(true)), (10, json!(false)), (1_200, json!(100))] {
                    let mut body = json!({"query": query, "sort": sort, "size": size, "track_total_hits": count});
                    for _ in 0..2 {
                        let zoned = run(&targets, &body);
                        let all = run(&targets, &with(&body, "track_scores", json!(true)));
                        assert_eq!(found_ids(&zoned), found_ids(&all), "{body}");
                        assert_eq!(zoned["hits"]["total"], all["hits"]["total"], "{body}");
                        let Some(last) = zoned["hits"]["hits"].as_array().and_then(|hits| hits.last()) else { break };
                        body["search_after"] = last["sort"].clone();
                    }
                }
            }
        }
    }
}

#[test]
fn the_first_hits_of_one_score_are_those_of_a_search_that_scores_all() {
    for whole in [true, false] {
        let (_indices, index, _) = filled(11, whole);
        let targets = targets(&[&index]);
        for query in queries() {
            for size in [0, 5, 3_000] {
                for count in [json!(true), json!(50), json!(false)] {
                    let body = json!({"query": query, "size": size, "track_total_hits": count});
                    let first = run(&targets, &body);
                    let scored = run(&targets, &with(&body, "min_score", json!(0.0)));
                    assert_eq!(first["hits"]["hits"], scored["hits"]["hits"], "{body}");
                    assert_eq!(first["hits"]["total"], scored["hits"]["total"], "{body}");
                    assert_eq!(first["hits"]["max_score"], scored["hits"]["max_score"], "{body}");
                }
            }
        }
    }
}

#[test]
fn ranges_find_the_documents_with_a_value_in_them() {
    let (_indices, index, kept) = filled(23, false);
    let targets = targets(&[&index]);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..60 {
        let width = [3, 100, 5_000, 200_000][random.usize(..4)];
        let (n, at) = (random.i64(-600..600), random.i64(-5_000..720_000));
        let (in_n, in_at) = (n..n + width, at..at + width);
        let number = json!({"range": {"n": {"gte": in_n.start, "lt": in_n.end}}});
        let date = json!({"range": {"at": {"gte": in_at.start, "lt": in_at.end}}});
        let word = json!({"term": {"k": "blue"}});
        let has_number = |model: &Model| model.numbers.iter().any(|number| in_n.contains(number));
        let cases: [(Value, Matches<'_>); 5] = [
            (number.clone(), &|model| has_number(model)),
            (date.clone(), &|model| in_at.contains(&model.at)),
            (json!({"bool": {"must": [number, date]}}), &|model| has_number(model) && in_at.contains(&model.at)),
            (json!({"bool": {"must": [word, date]}}), &|model| model.word == "blue" && in_at.contains(&model.at)),
            (json!({"bool": {"must": [word], "must_not": [number]}}), &|model| {
                model.word == "blue" && !has_number(model)
            }),
        ];
        for (query, matches) in cases {
            let expected: Vec<usize> = kept.iter().filter(|(_, model)| matches(model)).map(|(id, _)| *id).collect();
            let body = json!({"query": query, "size": 10_000, "track_total_hits": true});
            let found = run(&targets, &body);
            let mut ids: Vec<usize> = found_ids(&found).iter().map(|id| id.parse().expect("a number")).collect();
            ids.sort_unstable();
            assert_eq!(ids, expected, "{body}");
            assert_eq!(found["hits"]["total"]["value"], json!(expected.len()), "{body}");
        }
    }
}

/// Whether two results are the same, but for `share` of their numbers.
fn is_near(a: &Value, b: &Value, share: f64) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_near(a, b, share)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b, share)),
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
            (a - b).abs() <= a.abs().max(b.abs()) * share
        }
        (Value::String(_), Value::String(_)) if share > 0.0 => true,
        (a, b) => a == b,
    }
}

#[test]
fn aggregations_of_columns_are_those_of_the_library() {
    let metrics = ["min", "max", "sum", "avg", "value_count", "stats"];
    let mut cases: Vec<(Value, f64)> = Vec::new();
    for field in ["n", "x", "at", "one"] {
        cases.extend(metrics.iter().map(|metric| (json!({ *metric: {"field": field} }), 1e-9)));
    }
    // The library estimates within a few per cent.
    cases.extend(["n", "x", "k", "ip", "one"].map(|field| (json!({"cardinality": {"field": field}}), 0.06)));
    cases.push((json!({"date_histogram": {"field": "at", "fixed_interval": "7s"}}), 0.0));
    cases.push((json!({"date_histogram": {"field": "at", "calendar_interval": "minute", "offset": "+3s"}}), 0.0));
    cases.push((json!({"date_histogram": {"field": "at", "fixed_interval": "30s", "min_doc_count": 290}}), 0.0));
    for whole in [true, false] {
        let (_indices, index, kept) = filled(31, whole);
        let targets = targets(&[&index]);
        for query in queries() {
            for (aggregation, share) in &cases {
                let body = json!({"query": query, "size": 0, "aggs": {"a": aggregation}});
                let direct = run(&targets, &body);
                let inside = json!({"f": {"filter": {"match_all": {}}, "aggs": {"a": aggregation}}});
                let library = run(&targets, &with(&body, "aggs", inside));
                let (direct, library) = (&direct["aggregations"]["a"], &library["aggregations"]["f"]["a"]);
                assert!(is_near(direct, library, *share), "{body}: {direct} is not {library}");
            }
        }
        let values: std::collections::BTreeSet<i64> = kept.values().flat_map(|model| model.numbers.clone()).collect();
        let found = run(&targets, &json!({"size": 0, "aggs": {"a": {"cardinality": {"field": "n"}}}}));
        assert_eq!(found["aggregations"]["a"]["value"], json!(values.len()), "exact, and not an estimate");
    }
}
