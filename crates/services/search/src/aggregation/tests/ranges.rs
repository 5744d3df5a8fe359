//! Ranges of numbers and of dates.

use super::*;

#[test]
fn ranges_may_overlap_and_may_be_of_dates() {
    let sales = sales();
    check(
        &[&sales],
        &[
            (
                json!({"range": {"field": "n", "ranges": [{"from": 2, "to": 12}, {"to": 2, "key": "few"}]}}),
                json!({"buckets": [
                    {"key": "few", "to": 2.0, "doc_count": 1},
                    {"key": "2.0-12.0", "from": 2.0, "to": 12.0, "doc_count": 2},
                ]}),
            ),
            (
                json!({"range": {"field": "n", "keyed": true, "ranges": [{"from": 1.5}, {"from": 2.5, "to": 2.7}, {"to": 100}]}}),
                json!({"buckets": {
                    "1.5-*": {"from": 1.5, "doc_count": 3},
                    "2.5-2.7": {"from": 2.5, "to": 2.7, "doc_count": 0},
                    "*-100.0": {"to": 100.0, "doc_count": 4},
                }}),
            ),
            (
                json!({"date_range": {"field": "at", "format": "yyyy-MM-dd", "ranges": [
                    {"to": "now/M"}, {"from": "2024-02-01", "to": "2024-02-01||+1M"},
                ]}}),
                json!({"buckets": [
                    {"key": "*-2024-01-01", "to": 1_704_067_200_000.0, "to_as_string": "2024-01-01", "doc_count": 0},
                    {
                        "key": "2024-02-01-2024-03-01", "doc_count": 1,
                        "from": 1_706_745_600_000.0, "from_as_string": "2024-02-01",
                        "to": 1_709_251_200_000.0, "to_as_string": "2024-03-01",
                    },
                ]}),
            ),
            (
                json!({"range": {"field": "nowhere", "ranges": [{"from": 1}]}}),
                json!({"buckets": [{"key": "1.0-*", "from": 1.0, "doc_count": 0}]}),
            ),
        ],
    );
}

#[test]
fn ranges_count_the_least_and_the_greatest_value_of_a_type() {
    for (kind, least, greatest) in [
        ("long", json!(i64::MIN), json!(i64::MAX)),
        ("unsigned_long", json!(0), json!(u64::MAX)),
        ("double", json!(f64::MIN), json!(f64::MAX)),
    ] {
        let ends = index("ends", json!({"n": {"type": kind}}), &[json!({ "n": least }), json!({ "n": greatest })]);
        let aggs = json!({"a": {"range": {"field": "n", "ranges": [{"to": 10}, {"from": 10}]}}});
        let found = run_over(&[&ends], &aggs, false, &LIMITS).expect(kind);
        let counts: Vec<&Value> = (0..2).map(|at| &found["a"]["buckets"][at]["doc_count"]).collect();
        assert_eq!(counts, [&json!(1), &json!(1)], "{kind}: {found}");
    }
}
