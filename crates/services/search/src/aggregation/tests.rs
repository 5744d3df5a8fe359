//! Whole responses over small indices, each in several segments.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use tantivy::indexer::NoMergePolicy;
use tantivy::query::{AllQuery, Query, TermQuery};
use tantivy::schema::IndexRecordOption;
use tantivy::{Index, IndexWriter, Term};

use super::seq_ref::{seq_of, seq_ref};
use super::{AggregationInput, AggregationLimits, run};
use crate::analysis::Analyzers;
use crate::document::IndexedDocument;
use crate::error::SearchError;
use crate::mapping::Mapping;
use crate::schema::{self, OwnFields};
use crate::stop::SearchStop;
use crate::view::IndexView;

mod ranges;
mod refusals;

pub(super) const LIMITS: AggregationLimits =
    AggregationLimits { buckets: 65_535, memory_bytes: 100_000_000, now: 1_704_067_200_000 };

/// An index with a segment for each two documents.
fn index(name: &str, properties: Value, documents: &[Value]) -> IndexView {
    let mapping = Mapping::empty().merged(&json!({ "properties": properties })).expect("a mapping");
    let analyzers = Analyzers::of_settings(&json!({})).expect("the default analyzers");
    let schema = schema::of_mapping(&mapping, 1);
    let index = Index::create_in_ram(schema.clone());
    schema::register(&index).expect("its texts are packed");
    let mut writer: IndexWriter = index.writer_with_num_threads(1, 20_000_000).expect("a writer");
    writer.set_merge_policy(Box::new(NoMergePolicy));
    for (seq, document) in documents.iter().enumerate() {
        let source: &Map<String, Value> = document.as_object().expect("an object");
        let id = (format!("{name}{seq}"), seq as u64);
        let document =
            IndexedDocument::read_again(&mapping, &analyzers, &schema, (&id.0, id.1), source).expect("a document");
        writer.add_document(document).expect("added");
        if seq % 2 == 1 {
            writer.commit().expect("committed");
        }
    }
    writer.commit().expect("committed");
    IndexView {
        name: name.to_owned(),
        mapping: Arc::new(mapping),
        analyzers: Arc::new(analyzers),
        searcher: index.reader().expect("a reader").searcher(),
        own: OwnFields::of(&schema),
        bounds: crate::view::QueryBounds::default(),
        used: Arc::default(),
        schema,
        zones: Arc::default(),
    }
}

fn properties() -> Value {
    json!({
        "kind": {"type": "keyword"}, "n": {"type": "long"}, "x": {"type": "double"}, "ok": {"type": "boolean"},
        "at": {"type": "date"}, "ip": {"type": "ip"}, "text": {"type": "text"},
    })
}

pub(super) fn sales() -> IndexView {
    index(
        "sales",
        properties(),
        &[
            json!({"kind": "a", "n": 1, "x": 0.5, "ok": true, "at": "2024-01-01T10:00:00Z", "ip": "10.0.0.2"}),
            json!({"kind": "b", "n": 2, "x": 1.5, "ok": false, "at": "2024-01-31T23:30:00Z", "ip": "9.0.0.1"}),
            json!({"kind": "a", "n": 3, "x": 2.5, "ok": true, "at": "2024-02-01T00:30:00Z", "ip": "10.0.0.2"}),
            json!({"kind": "c", "n": 12, "ok": true, "at": "2024-04-02"}),
            json!({"text": "nothing else"}),
        ],
    )
}

/// The same field names in other columns, and one field less.
fn returns() -> IndexView {
    let mut properties = json!({"other": {"type": "keyword"}, "second": {"type": "long"}});
    for (name, definition) in self::properties().as_object().expect("an object") {
        if name != "ip" {
            properties[name] = definition.clone();
        }
    }
    index("returns", properties, &[json!({"kind": "b", "n": 4, "x": 4.0, "at": "2024-02-03", "other": "z"})])
}

/// Filters of the tests: `{"term": {"kind": "a"}}`, `{"match_all": {}}`.
fn filter(view: &IndexView, dsl: &Value) -> Result<Box<dyn Query>, SearchError> {
    match dsl["term"]["kind"].as_str() {
        Some(kind) => {
            let field = view.column(view.mapping.field("kind").expect("mapped")).expect("a column");
            Ok(Box::new(TermQuery::new(Term::from_field_text(field, kind), IndexRecordOption::Basic)))
        }
        None if dsl.get("match_all").is_some() => Ok(Box::new(AllQuery)),
        None => Err(SearchError::parsing("unknown query")),
    }
}

fn run_over(views: &[&IndexView], aggs: &Value, typed: bool, limits: &AggregationLimits) -> Result<Value, SearchError> {
    let inputs: Vec<_> = views
        .iter()
        .map(|view| AggregationInput { view, query: Box::new(AllQuery) as Box<dyn Query>, base: Box::new(AllQuery) })
        .collect();
    run(&inputs, aggs, &filter, limits, typed, &SearchStop::default())
}

/// Compares the responses of single aggregations named `a`.
fn check(views: &[&IndexView], cases: &[(Value, Value)]) {
    for (agg, expected) in cases {
        let found =
            run_over(views, &json!({ "a": agg }), false, &LIMITS).unwrap_or_else(|error| panic!("{agg}: {error}"));
        assert_eq!(found, json!({ "a": expected }), "{agg}");
    }
}

fn terms(buckets: Value) -> Value {
    json!({"doc_count_error_upper_bound": 0, "sum_other_doc_count": 0, "buckets": buckets})
}

#[test]
fn terms_count_documents_by_values_of_every_type() {
    let sales = sales();
    check(
        &[&sales],
        &[
            (
                json!({"terms": {"field": "kind"}}),
                terms(
                    json!([{"key": "a", "doc_count": 2}, {"key": "b", "doc_count": 1}, {"key": "c", "doc_count": 1}]),
                ),
            ),
            (
                json!({"terms": {"field": "kind", "size": 1}}),
                json!({"doc_count_error_upper_bound": 0, "sum_other_doc_count": 2, "buckets": [{"key": "a", "doc_count": 2}]}),
            ),
            (
                json!({"terms": {"field": "kind", "order": {"_key": "desc"}, "missing": "none", "exclude": ["b"]}}),
                terms(
                    json!([{"key": "none", "doc_count": 1}, {"key": "c", "doc_count": 1}, {"key": "a", "doc_count": 2}]),
                ),
            ),
            (json!({"terms": {"field": "kind", "include": "[a]"}}), terms(json!([{"key": "a", "doc_count": 2}]))),
            (json!({"terms": {"field": "kind", "min_doc_count": 2}}), terms(json!([{"key": "a", "doc_count": 2}]))),
            (
                json!({"terms": {"field": "n", "order": {"_key": "desc"}, "exclude": [2, 3]}}),
                terms(json!([{"key": 12, "doc_count": 1}, {"key": 1, "doc_count": 1}])),
            ),
            (
                json!({"terms": {"field": "ok"}}),
                terms(json!([
                    {"key": 1, "key_as_string": "true", "doc_count": 3},
                    {"key": 0, "key_as_string": "false", "doc_count": 1},
                ])),
            ),
            (
                json!({"terms": {"field": "ip", "order": {"_key": "asc"}}}),
                terms(json!([{"key": "9.0.0.1", "doc_count": 1}, {"key": "10.0.0.2", "doc_count": 2}])),
            ),
            (
                json!({"terms": {"field": "at", "size": 1, "order": {"_key": "desc"}}}),
                json!({"doc_count_error_upper_bound": 0, "sum_other_doc_count": 3, "buckets": [
                    {"key": 1_712_016_000_000_i64, "key_as_string": "2024-04-02T00:00:00.000Z", "doc_count": 1},
                ]}),
            ),
            (json!({"terms": {"field": "nowhere"}}), terms(json!([]))),
        ],
    );
}

#[test]
fn counts_of_terms_in_one_segment_are_exact_however_many_there_are() {
    // A segment returns ten times as many terms as are shown.
    let many =
        |name| index(name, properties(), &[json!({"kind": (10..60).map(|n| n.to_string()).collect::<Vec<_>>()})]);
    let one = many("one");
    let shown = |error, count| json!({"doc_count_error_upper_bound": error, "sum_other_doc_count": 49 * count, "buckets": [{"key": "10", "doc_count": count}]});
    check(&[&one], &[(json!({"terms": {"field": "kind", "size": 1}}), shown(0, 1))]);
    check(&[&one, &many("two")], &[(json!({"terms": {"field": "kind", "size": 1}}), shown(2, 2))]);
}

#[test]
fn terms_are_sorted_by_the_numbers_in_them() {
    let sales = sales();
    let aggs = json!({"m": {"max": {"field": "x"}}, "s": {"stats": {"field": "n"}}});
    for (order, expected) in [
        (json!({"m": "desc"}), ["a", "b", "c"]),
        (json!({"m": "asc"}), ["b", "a", "c"]),
        (json!({"s.avg": "desc"}), ["c", "a", "b"]),
        (json!([{"s.count": "asc"}, {"_key": "desc"}]), ["c", "b", "a"]),
    ] {
        let aggs = json!({"a": {"terms": {"field": "kind", "order": order}, "aggs": aggs}});
        let found = run_over(&[&sales], &aggs, false, &LIMITS).expect("found");
        let keys: Vec<_> = found["a"]["buckets"].as_array().expect("a list").iter().map(|b| b["key"].clone()).collect();
        assert_eq!(json!(keys), json!(expected), "{order}");
    }
}

#[test]
fn numbers_are_computed_over_values() {
    let sales = sales();
    let none = json!({"value": null});
    check(
        &[&sales],
        &[
            (json!({"avg": {"field": "x"}}), json!({"value": 1.5})),
            (json!({"sum": {"field": "n"}}), json!({"value": 18.0})),
            (json!({"avg": {"field": "x", "missing": 1.5}}), json!({"value": 1.5})),
            (
                json!({"min": {"field": "at"}}),
                json!({"value": 1_704_103_200_000.0, "value_as_string": "2024-01-01T10:00:00.000Z"}),
            ),
            (
                json!({"max": {"field": "at", "format": "yyyy"}}),
                json!({"value": 1_712_016_000_000.0, "value_as_string": "2024"}),
            ),
            (json!({"avg": {"field": "ok"}}), json!({"value": 0.75, "value_as_string": "true"})),
            (json!({"min": {"field": "ok"}}), json!({"value": 0.0, "value_as_string": "false"})),
            (json!({"value_count": {"field": "kind"}}), json!({"value": 4})),
            (json!({"value_count": {"field": "ip"}}), json!({"value": 3})),
            (json!({"cardinality": {"field": "kind"}}), json!({"value": 3})),
            (json!({"cardinality": {"field": "ip"}}), json!({"value": 2})),
            (json!({"stats": {"field": "n"}}), json!({"count": 4, "min": 1.0, "max": 12.0, "avg": 4.5, "sum": 18.0})),
            (
                json!({"stats": {"field": "nowhere"}}),
                json!({"count": 0, "min": null, "max": null, "avg": null, "sum": 0.0}),
            ),
            (json!({"avg": {"field": "nowhere"}}), none.clone()),
            (json!({"max": {"field": "nowhere"}}), none),
            (json!({"value_count": {"field": "nowhere"}}), json!({"value": 0})),
            (json!({"cardinality": {"field": "nowhere"}}), json!({"value": 0})),
            (
                json!({"percentiles": {"field": "nowhere", "percents": [50, 99.9]}}),
                json!({"values": {"50.0": null, "99.9": null}}),
            ),
        ],
    );
    let found = run_over(
        &[&sales],
        &json!({
            "e": {"extended_stats": {"field": "n"}},
            "p": {"percentiles": {"field": "n", "percents": [0, 100], "keyed": false}},
            "none": {"extended_stats": {"field": "nowhere"}},
        }),
        false,
        &LIMITS,
    )
    .expect("found");
    assert_eq!(found["e"]["sum_of_squares"], json!(158.0));
    assert_eq!(found["e"]["variance"], json!(19.25));
    assert!(found["none"]["std_deviation_bounds"]["upper"].is_null());
    let last = found["p"]["values"][1]["value"].as_f64().expect("a number");
    assert!((last - 12.0).abs() < 0.3, "{last}");
}

#[test]
fn histograms_fill_the_gaps_between_their_buckets() {
    let sales = sales();
    check(
        &[&sales],
        &[
            (
                json!({"histogram": {"field": "n", "interval": 5}}),
                json!({"buckets": [
                    {"key": 0.0, "doc_count": 3}, {"key": 5.0, "doc_count": 0}, {"key": 10.0, "doc_count": 1},
                ]}),
            ),
            (
                json!({"histogram": {"field": "n", "interval": 5, "offset": 2, "min_doc_count": 1, "keyed": true}}),
                json!({"buckets": {
                    "-3.0": {"key": -3.0, "doc_count": 1}, "2.0": {"key": 2.0, "doc_count": 2}, "12.0": {"key": 12.0, "doc_count": 1},
                }}),
            ),
            (
                json!({"histogram": {"field": "x", "interval": 1, "extended_bounds": {"min": -1, "max": 3}}}),
                json!({"buckets": [
                    {"key": -1.0, "doc_count": 0}, {"key": 0.0, "doc_count": 1}, {"key": 1.0, "doc_count": 1},
                    {"key": 2.0, "doc_count": 1}, {"key": 3.0, "doc_count": 0},
                ]}),
            ),
            (json!({"histogram": {"field": "nowhere", "interval": 1}}), json!({"buckets": []})),
        ],
    );
}

/// Buckets of a date histogram from their texts and counts.
fn dates(buckets: &[(i64, &str, u64)]) -> Value {
    let bucket = |(key, text, count): &(i64, &str, u64)| json!({"key": key, "key_as_string": text, "doc_count": count});
    json!({"buckets": buckets.iter().map(bucket).collect::<Vec<_>>()})
}

#[test]
fn date_histograms_follow_calendars_clocks_and_offsets() {
    let sales = sales();
    const DAY: i64 = 86_400_000;
    const NEW_YEAR: i64 = 1_704_067_200_000;
    let day = |number: i64| NEW_YEAR + number * DAY;
    check(
        &[&sales],
        &[
            (
                json!({"date_histogram": {"field": "at", "calendar_interval": "month", "format": "yyyy-MM"}}),
                dates(&[
                    (day(0), "2024-01", 2),
                    (day(31), "2024-02", 1),
                    (day(60), "2024-03", 0),
                    (day(91), "2024-04", 1),
                ]),
            ),
            (
                json!({"date_histogram": {"field": "at", "calendar_interval": "1q", "format": "yyyy-MM"}}),
                dates(&[(day(0), "2024-01", 3), (day(91), "2024-04", 1)]),
            ),
            (
                json!({"date_histogram": {
                    "field": "at", "calendar_interval": "month", "format": "yyyy-MM", "time_zone": "+01:00", "min_doc_count": 1,
                }}),
                dates(&[
                    (day(0) - 3_600_000, "2024-01", 1),
                    (day(31) - 3_600_000, "2024-02", 2),
                    (day(91) - 3_600_000, "2024-04", 1),
                ]),
            ),
            (
                json!({"date_histogram": {"field": "at", "fixed_interval": "1d", "min_doc_count": 1, "format": "yyyy-MM-dd"}}),
                dates(&[
                    (day(0), "2024-01-01", 1),
                    (day(30), "2024-01-31", 1),
                    (day(31), "2024-02-01", 1),
                    (day(92), "2024-04-02", 1),
                ]),
            ),
            (
                json!({"date_histogram": {
                    "field": "at", "calendar_interval": "day", "min_doc_count": 1, "format": "yyyy-MM-dd HH:mm", "offset": "+6h",
                    "time_zone": "+01:00", "hard_bounds": {"min": "2024-01-31", "max": "2024-02-10"},
                }}),
                dates(&[(day(30) + 5 * 3_600_000, "2024-01-31 06:00", 2)]),
            ),
            (
                json!({"date_histogram": {
                    "field": "at", "calendar_interval": "year", "format": "yyyy", "extended_bounds": {"min": "2023-05-01", "max": "2025"},
                }}),
                dates(&[(day(-365), "2023", 0), (day(0), "2024", 4), (day(366), "2025", 0)]),
            ),
            (
                json!({"date_histogram": {"field": "at", "calendar_interval": "year", "keyed": true}}),
                json!({"buckets": {
                    "2024-01-01T00:00:00.000Z": {"key": day(0), "key_as_string": "2024-01-01T00:00:00.000Z", "doc_count": 4},
                }}),
            ),
            (json!({"date_histogram": {"field": "nowhere", "calendar_interval": "year"}}), json!({"buckets": []})),
        ],
    );
}

#[test]
fn empty_buckets_of_a_zone_are_counted_only_where_they_are_shown() {
    let sales = sales();
    const NEW_YEAR: i64 = 1_704_067_200_000;
    let day = |number: i64| NEW_YEAR + number * 86_400_000;
    check(
        &[&sales],
        &[(
            // Three months have more minutes than a response has buckets: empty ones are not made.
            json!({"date_histogram": {
                "field": "at", "calendar_interval": "minute", "time_zone": "Europe/Berlin", "min_doc_count": 1, "format": "yyyy-MM-dd HH:mm",
            }}),
            dates(&[
                (day(0) + 10 * 3_600_000, "2024-01-01 11:00", 1),
                (day(30) + 47 * 1_800_000, "2024-02-01 00:30", 1),
                (day(31) + 1_800_000, "2024-02-01 01:30", 1),
                (day(92), "2024-04-02 02:00", 1),
            ]),
        )],
    );
    let filled =
        json!({"a": {"date_histogram": {"field": "at", "calendar_interval": "minute", "time_zone": "Europe/Berlin"}}});
    assert_eq!(run_over(&[&sales], &filled, false, &LIMITS).expect_err("too many").kind, "too_many_buckets_exception");
}

#[test]
fn filters_missing_and_global_are_buckets() {
    let sales = sales();
    let n = json!({"n": {"sum": {"field": "n"}}});
    check(
        &[&sales],
        &[
            (json!({"filter": {"term": {"kind": "a"}}, "aggs": n}), json!({"doc_count": 2, "n": {"value": 4.0}})),
            (
                json!({"filters": {"other_bucket_key": "rest", "filters": {"a": {"term": {"kind": "a"}}}}, "aggs": n}),
                json!({"buckets": {"a": {"doc_count": 2, "n": {"value": 4.0}}, "rest": {"doc_count": 3, "n": {"value": 14.0}}}}),
            ),
            (
                json!({"filters": {"filters": [{"term": {"kind": "a"}}, {"match_all": {}}]}}),
                json!({"buckets": [{"doc_count": 2}, {"doc_count": 5}]}),
            ),
            (json!({"missing": {"field": "x"}, "aggs": n}), json!({"doc_count": 2, "n": {"value": 12.0}})),
            (json!({"missing": {"field": "nowhere"}}), json!({"doc_count": 5})),
        ],
    );
    let query = filter(&sales, &json!({"term": {"kind": "a"}})).expect("a query");
    let aggs = json!({"g": {"global": {}, "aggs": n, "meta": {"colour": "blue"}}, "n": {"sum": {"field": "n"}}});
    let input = AggregationInput { view: &sales, query, base: Box::new(AllQuery) };
    let found = run(&[input], &aggs, &filter, &LIMITS, false, &SearchStop::default()).expect("found");
    assert_eq!(
        found,
        json!({"g": {"doc_count": 5, "n": {"value": 18.0}, "meta": {"colour": "blue"}}, "n": {"value": 4.0}})
    );
}

#[test]
fn composite_goes_through_all_keys_page_by_page() {
    let sales = sales();
    let composite = |after: Value| {
        json!({"composite": {"size": 2, "after": after, "sources": [
            {"ok": {"terms": {"field": "ok", "order": "desc"}}},
            {"kind": {"terms": {"field": "kind", "missing_bucket": true}}},
            {"month": {"date_histogram": {"field": "at", "calendar_interval": "month", "format": "yyyy-MM"}}},
        ]}})
    };
    let key = |ok: bool, kind: &str, month: &str| json!({"ok": ok, "kind": kind, "month": month});
    let first = key(true, "a", "2024-02");
    check(
        &[&sales],
        &[
            (
                composite(Value::Null),
                json!({"after_key": first, "buckets": [
                    {"key": key(true, "a", "2024-01"), "doc_count": 1}, {"key": first, "doc_count": 1},
                ]}),
            ),
            (
                composite(first.clone()),
                json!({"after_key": key(false, "b", "2024-01"), "buckets": [
                    {"key": key(true, "c", "2024-04"), "doc_count": 1}, {"key": key(false, "b", "2024-01"), "doc_count": 1},
                ]}),
            ),
            (composite(key(false, "b", "2024-01")), json!({"buckets": []})),
            (
                json!({"composite": {"sources": [{"n": {"histogram": {"field": "n", "interval": 10}}}]}}),
                json!({"after_key": {"n": 10.0}, "buckets": [
                    {"key": {"n": 0.0}, "doc_count": 3}, {"key": {"n": 10.0}, "doc_count": 1},
                ]}),
            ),
            (json!({"composite": {"sources": [{"n": {"terms": {"field": "nowhere"}}}]}}), json!({"buckets": []})),
        ],
    );
}

#[test]
fn top_hits_name_the_documents_of_each_bucket() {
    let sales = sales();
    let aggs = json!({"a": {"terms": {"field": "kind", "size": 1}, "aggs": {
        "t": {"top_hits": {"size": 1, "sort": [{"n": {"order": "desc"}}], "_source": false}},
    }}});
    let found = run_over(&[&sales], &aggs, false, &LIMITS).expect("found");
    let hit = json!({"_index": "sales", "_seq_ref": seq_ref(2), "_score": null, "_source_spec": false, "sort": [3]});
    let hits = json!({"hits": {"total": {"value": 2, "relation": "eq"}, "max_score": null, "hits": [hit]}});
    assert_eq!(found["a"]["buckets"][0]["t"], hits);
    let found = run_over(&[&sales], &json!({"t": {"top_hits": {}}}), false, &LIMITS).expect("found");
    let seqs: Vec<_> =
        found["t"]["hits"]["hits"].as_array().expect("hits").iter().map(|hit| seq_of(&hit["_seq_ref"])).collect();
    assert_eq!((json!(seqs), &found["t"]["hits"]["total"]["value"]), (json!([0, 1, 2]), &json!(5)));
    for (options, expected) in [
        (json!({"size": 0}), json!([])),
        (json!({"from": 50}), json!([])),
        (json!({"from": 1, "size": 1, "sort": "n"}), json!([1])),
        (json!({"size": 1, "sort": {"at": "desc"}}), json!([3])),
    ] {
        let found = run_over(&[&sales], &json!({"t": {"top_hits": options}}), false, &LIMITS).expect("found");
        let hits = found["t"]["hits"]["hits"].as_array().expect("hits");
        let seqs: Vec<_> = hits.iter().map(|hit| seq_of(&hit["_seq_ref"])).collect();
        assert_eq!(json!(seqs), expected, "{options}");
    }
}

#[test]
fn indices_with_different_columns_are_aggregated_together() {
    let (sales, returns) = (sales(), returns());
    check(
        &[&sales, &returns],
        &[
            (
                json!({"terms": {"field": "kind", "size": 2}, "aggs": {"n": {"avg": {"field": "n"}}, "ip": {"value_count": {"field": "ip"}}}}),
                json!({"doc_count_error_upper_bound": 0, "sum_other_doc_count": 1, "buckets": [
                    {"key": "a", "doc_count": 2, "n": {"value": 2.0}, "ip": {"value": 2}},
                    {"key": "b", "doc_count": 2, "n": {"value": 3.0}, "ip": {"value": 1}},
                ]}),
            ),
            (json!({"terms": {"field": "other"}}), terms(json!([{"key": "z", "doc_count": 1}]))),
            (json!({"missing": {"field": "other"}}), json!({"doc_count": 5})),
            (json!({"cardinality": {"field": "kind"}}), json!({"value": 3})),
            (
                json!({"terms": {"field": "kind", "include": ["b"]}, "aggs": {
                    "d": {"date_histogram": {"field": "at", "calendar_interval": "month", "format": "MM-yyyy"}},
                }}),
                terms(json!([{"key": "b", "doc_count": 2, "d": {"buckets": [
                    {"key": 1_704_067_200_000_i64, "key_as_string": "01-2024", "doc_count": 1},
                    {"key": 1_706_745_600_000_i64, "key_as_string": "02-2024", "doc_count": 1},
                ]}}])),
            ),
        ],
    );
    let without = index("without", json!({"n": {"type": "long"}}), &[json!({"n": 7})]);
    for views in [[&without, &returns], [&returns, &without]] {
        let day =
            json!({"date_histogram": {"field": "at", "fixed_interval": "1d"}, "aggs": {"n": {"sum": {"field": "n"}}}});
        let year = json!({"date_histogram": {"field": "at", "calendar_interval": "year", "format": "yyyy"}});
        check(
            &views,
            &[
                (
                    day,
                    json!({"buckets": [{
                        "key": 1_706_918_400_000_i64, "key_as_string": "2024-02-03T00:00:00.000Z", "doc_count": 1,
                        "n": {"value": 4.0},
                    }]}),
                ),
                (year, dates(&[(1_704_067_200_000, "2024", 1)])),
                (json!({"sum": {"field": "n"}}), json!({"value": 11.0})),
                (json!({"avg": {"field": "ok"}}), json!({"value": null})),
                (
                    json!({"composite": {"sources": [{"k": {"terms": {"field": "kind"}}}]}}),
                    json!({
                        "after_key": {"k": "b"}, "buckets": [{"key": {"k": "b"}, "doc_count": 1}],
                    }),
                ),
                (
                    json!({"terms": {"field": "kind", "missing": "none"}}),
                    terms(json!([
                        {"key": "b", "doc_count": 1}, {"key": "none", "doc_count": 1},
                    ])),
                ),
            ],
        );
    }
    for views in [&[&sales, &returns][..], &[&returns, &sales], &[]] {
        let aggs = json!({"a": {"range": {"field": "second", "ranges": [{"from": 1.2, "to": 1.5}, {"from": 1.1}]}, "aggs": {"n": {"sum": {"field": "n"}}}}});
        let found = run_over(views, &aggs, false, &LIMITS).expect("found");
        assert_eq!(
            found["a"]["buckets"][1],
            json!({"key": "1.2-1.5", "from": 1.2, "to": 1.5, "doc_count": 0, "n": {"value": 0.0}})
        );
    }
}

#[test]
fn typed_keys_name_the_type_of_each_aggregation() {
    let sales = sales();
    for (agg, prefix) in [
        (json!({"terms": {"field": "kind"}}), "sterms"),
        (json!({"terms": {"field": "n"}}), "lterms"),
        (json!({"terms": {"field": "x"}}), "dterms"),
        (json!({"date_histogram": {"field": "at", "fixed_interval": "30d"}}), "date_histogram"),
        (json!({"percentiles": {"field": "n"}}), "tdigest_percentiles"),
        (json!({"global": {}}), "global"),
    ] {
        let found = run_over(&[&sales], &json!({ "a": agg }), true, &LIMITS).expect("found");
        let names: Vec<_> = found.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(names, [format!("{prefix}#a")]);
    }
}
