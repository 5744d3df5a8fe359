//! What is refused, and what ends a run.

use super::*;

#[test]
fn what_is_not_built_or_wrong_is_refused_by_name() {
    let sales = sales();
    let deep = (0..20)
        .fold(json!({"avg": {"field": "n"}}), |inner, _| json!({"filter": {"match_all": {}}, "aggs": {"x": inner}}));
    let many: Map<String, Value> = (0..1001).map(|i| (i.to_string(), json!({"avg": {"field": "n"}}))).collect();
    for (aggs, named) in [
        (json!({"a": {"geo_bounds": {"field": "n"}}}), "aggregation [geo_bounds]"),
        (json!({"a": {"sums": {"field": "n"}}}), "Unknown aggregation type [sums]"),
        (json!({"a": {"avg": {"field": "n"}, "sum": {"field": "n"}}}), "two aggregation type"),
        (json!({"a": {}}), "Missing definition"),
        (json!({"a>b": {"avg": {"field": "n"}}}), "[a>b]"),
        (json!({"a": {"avg": {"field": "n"}, "aggs": {"b": {"avg": {"field": "n"}}}}}), "sub-aggregations"),
        (json!({"a": {"terms": {"field": "text"}}}), "[text]"),
        (json!({"a": {"avg": {"field": "kind"}}}), "[kind]"),
        (json!({"a": {"avg": {"script": "1"}}}), "[script]"),
        (json!({"a": {"avg": {"field": "n", "colour": 1}}}), "[colour]"),
        (json!({"a": {"terms": {"field": "n", "order": {"b": "asc"}}}}), "[b]"),
        (json!({"a": {"filters": {"filters": {}}}}), "[filters] cannot be empty"),
        (json!({"a": {"date_histogram": {"field": "at", "calendar_interval": "2d"}}}), "[2d]"),
        (json!({"a": {"filter": {"match_all": {}}, "aggs": {"b": {"global": {}}}}}), "global"),
        (json!({ "a": deep }), "nested deeper"),
        (Value::Object(many), "[1000]"),
    ] {
        let error = run_over(&[&sales], &aggs, false, &LIMITS).expect_err(named);
        assert!(error.reason.contains(named), "{error} for {named}");
        assert_eq!(error.status, 400);
    }
}

#[test]
fn limits_and_cancellation_end_a_run() {
    let sales = sales();
    for (buckets, agg) in [
        (10, json!({"date_histogram": {"field": "at", "fixed_interval": "1ms"}})),
        (3, json!({"date_histogram": {"field": "at", "calendar_interval": "month"}})),
        (
            10,
            json!({"terms": {"field": "kind"}, "aggs": {"b": {"terms": {"field": "n"}, "aggs": {"c": {"terms": {"field": "at"}}}}}}),
        ),
    ] {
        let few = AggregationLimits { buckets, ..LIMITS };
        let error = run_over(&[&sales], &json!({ "a": agg }), false, &few).expect_err("too many");
        assert_eq!((error.status, error.kind), (400, "too_many_buckets_exception"), "{agg}");
        assert!(error.reason.ends_with(&format!("[{buckets}]")), "{error}");
    }
    let aggs = json!({"a": {"terms": {"field": "kind"}, "aggs": {"n": {"avg": {"field": "n"}}}}});
    let error =
        run_over(&[&sales], &aggs, false, &AggregationLimits { memory_bytes: 10, ..LIMITS }).expect_err("too large");
    assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"));
    let input = AggregationInput { view: &sales, query: Box::new(AllQuery), base: Box::new(AllQuery) };
    let error = run(&[input], &aggs, &filter, &LIMITS, false, &SearchStop::new(Arc::new(AtomicBool::new(true)), None))
        .expect_err("cancelled");
    assert_eq!(error.kind, "task_cancelled_exception");
}
