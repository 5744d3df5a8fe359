//! Whole responses of aggregations that are made here.

use serde_json::{Value, json};
use tantivy::query::AllQuery;

use crate::aggregation::tests::{LIMITS, sales};
use crate::aggregation::{AggregationInput, AggregationLimits, run};
use crate::error::SearchError;
use crate::memory::MemoryUse;
use crate::query::{QueryContext, build};
use crate::stop::SearchStop;
use crate::view::IndexView;

fn run_over(view: &IndexView, aggs: &Value, limits: &AggregationLimits) -> Result<Value, SearchError> {
    run_within(view, aggs, (limits, &SearchStop::default()))
}

fn run_within(
    view: &IndexView,
    aggs: &Value,
    (limits, stop): (&AggregationLimits, &SearchStop),
) -> Result<Value, SearchError> {
    let build = |view: &IndexView, dsl: &Value| build(view, dsl, &QueryContext { now: 0, stop: None, cheap: false });
    let input = AggregationInput { view, query: Box::new(AllQuery), base: Box::new(AllQuery) };
    run(&[input], aggs, &build, limits, false, stop)
}

#[test]
fn lists_of_documents_count_against_the_memory_of_a_search() {
    let few = SearchStop::default().within(MemoryUse::new(None, 8));
    let aggs = json!({"x": {"rare_terms": {"field": "kind"}}});
    let error = run_within(&sales(), &aggs, (&LIMITS, &few)).expect_err("too much");
    assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"));
}

#[test]
fn aggregations_over_lists_of_documents_have_the_shape_and_the_values_of_elasticsearch() {
    let sales = sales();
    for (agg, shown) in [
        (json!({"percentiles": {"field": "n", "percents": [50]}}), json!({"values": {"50.0": 3.0}})),
        (
            json!({"percentiles": {"field": "n", "percents": [50], "hdr": {}}}),
            json!({"values": {"50.0": 2.0009765625}}),
        ),
        (json!({"percentile_ranks": {"field": "n", "values": [12]}}), json!({"values": {"12.0": 100.0}})),
        (json!({"median_absolute_deviation": {"field": "n"}}), json!({"value": 2.0})),
        (json!({"weighted_avg": {"value": {"field": "n"}, "weight": {"field": "n"}}}), json!({"value": 158.0 / 18.0})),
        (
            json!({"rare_terms": {"field": "kind"}}),
            json!({"buckets": [{"key": "b", "doc_count": 1}, {"key": "c", "doc_count": 1}]}),
        ),
        (
            json!({"multi_terms": {"terms": [{"field": "kind"}, {"field": "ok"}], "size": 1}}),
            json!({
                "doc_count_error_upper_bound": 0, "sum_other_doc_count": 2,
                "buckets": [{"key": ["a", true], "key_as_string": "a|true", "doc_count": 2}],
            }),
        ),
        (
            json!({"ip_range": {"field": "ip", "ranges": [{"to": "10.0.0.0"}, {"mask": "10.0.0.0/8"}]}}),
            json!({"buckets": [
                {"key": "*-10.0.0.0", "to": "10.0.0.0", "doc_count": 1},
                {"key": "10.0.0.0/8", "from": "10.0.0.0", "to": "11.0.0.0", "doc_count": 2},
            ]}),
        ),
        (
            json!({"adjacency_matrix": {"filters": {"a": {"term": {"kind": "a"}}, "ok": {"term": {"ok": "true"}}}}}),
            json!({"buckets": [
                {"key": "a", "doc_count": 2}, {"key": "a&ok", "doc_count": 2}, {"key": "ok", "doc_count": 3},
            ]}),
        ),
    ] {
        let found = run_over(&sales, &json!({"x": agg}), &LIMITS).expect("it runs");
        assert_eq!(found["x"], shown, "{agg}");
    }
}

#[test]
fn what_the_library_lacks_is_made_inside_of_its_buckets_and_the_other_way_round() {
    let sales = sales();
    let weighted = json!({"weighted_avg": {"value": {"field": "n"}, "weight": {"field": "x"}}});
    let sum = json!({"sum": {"field": "n"}});
    let aggs = json!({
        "kinds": {"terms": {"field": "kind"}, "aggs": {"w": weighted}},
        "months": {"date_histogram": {"field": "at", "calendar_interval": "month"}, "aggs": {
            "w": weighted, "sum": sum, "so_far": {"cumulative_sum": {"buckets_path": "sum"}},
        }},
        "auto": {"auto_date_histogram": {"field": "at", "buckets": 5}, "aggs": {"sum": sum}},
        "best": {"max_bucket": {"buckets_path": "auto>sum"}},
        "all": {"global": {}, "aggs": {"w": weighted}},
    });
    let found = run_over(&sales, &aggs, &LIMITS).expect("it runs");
    let of = |name: &str, part: &str| -> Vec<Value> {
        let buckets = found[name]["buckets"].as_array().expect(name).iter();
        buckets.map(|bucket| bucket[part]["value"].clone()).collect()
    };
    assert_eq!(of("kinds", "w"), [json!(8.0 / 3.0), json!(2.0), json!(null)]);
    assert_eq!(of("months", "w"), [json!(3.5 / 2.0), json!(3.0), json!(null), json!(null)]);
    assert_eq!(of("months", "so_far"), [json!(3.0), json!(6.0), json!(6.0), json!(18.0)]);
    assert_eq!(found["auto"]["interval"], json!("1M"));
    assert_eq!(of("auto", "sum"), [json!(3.0), json!(3.0), json!(0.0), json!(12.0)]);
    assert_eq!(found["best"], json!({"value": 12.0, "keys": ["2024-04-01T00:00:00.000Z"]}));
    assert_eq!(found["all"]["w"]["value"], json!(11.0 / 4.5));
}
