//! Pages that follow each other: by `search_after` and by the values that a scroll keeps, no hit is lost or comes twice.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tests::{LIMITS, create, found_ids, indices, put, run, targets};
use super::*;

/// All ids, page by page, continued with the values that the last hit of a page shows.
fn by_search_after(targets: &[SearchTarget], body: &Value, size: usize) -> Vec<String> {
    let mut body = body.clone();
    body["size"] = json!(size);
    let mut ids = Vec::new();
    for _ in 0..1_000 {
        let page = run(targets, &body).unwrap_or_else(|error| panic!("{body}: {error}"));
        let Some(last) = page["hits"]["hits"].as_array().expect("a list").last() else { return ids };
        body["search_after"] = last["sort"].clone();
        ids.extend(found_ids(&page));
    }
    panic!("{body}: the pages do not end");
}

/// All ids, page by page as a scroll continues.
fn by_scroll(targets: &[SearchTarget], body: &Value, size: usize) -> Vec<String> {
    let mut search = SearchBody::read(Some(body), &BTreeMap::new()).expect("a search");
    search.size = size;
    let _hidden = search.hide_ties();
    let mut ids = Vec::new();
    for _ in 0..1_000 {
        let page = super::search(targets, &search, &LIMITS, &Arc::default()).expect("searched");
        ids.extend(found_ids(&page.response));
        match page.last {
            Some(last) if page.hits > 0 => search.continue_after(last),
            _ => return ids,
        }
    }
    panic!("{body}: the pages do not end");
}

fn whole(targets: &[SearchTarget], body: &Value) -> Vec<String> {
    let mut body = body.clone();
    body["size"] = json!(1_000);
    found_ids(&run(targets, &body).unwrap_or_else(|error| panic!("{body}: {error}")))
}

#[test]
fn a_scroll_by_score_shows_each_hit_once() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"t": {"type": "text"}}));
    for id in 0..40 {
        put(&index, id, &json!({"t": format!("red {}", "apple ".repeat(id % 7))}));
    }
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for query in
        [json!({"match": {"t": "apple"}}), json!({"match": {"t": "red"}}), json!({"match": {"t": "red apple"}})]
    {
        let body = json!({"query": query});
        assert_eq!(by_scroll(&targets, &body, 3), whole(&targets, &body), "{body}");
    }
}

#[test]
fn hits_of_segments_and_indices_without_the_field_are_on_later_pages_too() {
    let indices = indices();
    let properties = json!({"k": {"type": "keyword"}, "i": {"type": "long"}});
    let both = [create(&indices, "a", &properties), create(&indices, "b", &json!({"i": {"type": "long"}}))];
    for id in 0..8 {
        put(&both[0], id, &json!({"i": id, "k": format!("k{id}")}));
    }
    both[0].refresh().expect("refreshed");
    for id in 8..16 {
        put(&both[id % 2], id, &json!({"i": id}));
    }
    both.iter().for_each(|index| index.refresh().expect("refreshed"));
    let targets = targets(&[&both[0], &both[1]]);
    for missing in ["_last", "_first", "k3a", "a", "z"] {
        for order in ["asc", "desc"] {
            let key = json!({"k": {"order": order, "missing": missing, "unmapped_type": "keyword"}});
            let body = json!({"sort": [key, "i"]});
            assert_eq!(by_search_after(&targets, &body, 3), whole(&targets, &body), "{body}");
            assert_eq!(whole(&targets, &body).len(), 16);
        }
    }
}

#[test]
fn numbers_of_different_types_have_one_order() {
    let indices = indices();
    let both = [
        create(&indices, "a", &json!({"n": {"type": "long"}, "i": {"type": "long"}})),
        create(&indices, "b", &json!({"n": {"type": "double"}, "i": {"type": "long"}})),
    ];
    for id in 0..60_usize {
        let (index, number) = match id % 3 {
            0 => (0, json!((id as i64 - 30) / 3)),
            1 => (1, json!((id as f64 - 30.0) / 6.0)),
            _ => (0, json!((1_i64 << 53) + (id as i64 % 5))),
        };
        put(&both[index], id, &json!({"n": number, "i": id}));
    }
    for id in 60..80_usize {
        put(&both[1], id, &json!({"n": (1_i64 << 53) as f64 + (id % 4) as f64, "i": id}));
    }
    both.iter().for_each(|index| index.refresh().expect("refreshed"));
    let targets = targets(&[&both[0], &both[1]]);
    for order in ["asc", "desc"] {
        let body = json!({"sort": [{"n": order}, {"i": order}]});
        assert_eq!(whole(&targets, &body).len(), 80);
        assert_eq!(by_search_after(&targets, &body, 7), whole(&targets, &body), "{body}");
    }
}

#[test]
fn a_scroll_by_dates_in_a_coarse_format_shows_each_hit_once() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"at": {"type": "date"}}));
    for id in 0..20 {
        put(&index, id, &json!({"at": format!("2024-01-{:02}T00:00:00Z", id + 1)}));
    }
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    for order in ["asc", "desc"] {
        let body = json!({"sort": [{"at": {"order": order, "format": "yyyy-MM"}}]});
        assert_eq!(by_scroll(&targets, &body, 3), whole(&targets, &body), "{body}");
    }
}

#[test]
fn several_values_of_a_whole_number_are_joined_exactly() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"n": {"type": "long"}, "u": {"type": "unsigned_long"}}));
    put(
        &index,
        0,
        &json!({"n": [9_007_199_254_740_993_i64, 2], "u": [13_835_058_055_282_163_713_u64, 13_835_058_055_282_163_714_u64]}),
    );
    put(&index, 1, &json!({"n": [1, 2], "u": [13_835_058_055_282_163_722_u64, 5, 6, 7]}));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    // Of the unsigned numbers: Elasticsearch's sort of unsigned longs, which wraps around.
    for (key, mode, first, second) in [
        ("n", "sum", json!(9_007_199_254_740_995_i64), json!(3)),
        ("n", "median", json!(4_503_599_627_370_498_i64), json!(2)),
        ("u", "sum", json!(9_223_372_036_854_775_811_u64), json!(13_835_058_055_282_163_740_u64)),
        ("u", "avg", json!(4_611_686_018_427_387_906_u64), json!(3_458_764_513_820_540_935_u64)),
        ("u", "median", json!(4_611_686_018_427_387_906_u64), json!(7)),
    ] {
        let body = json!({"sort": [{key: {"mode": mode}}]});
        let found = run(&targets, &body).expect("searched");
        for hit in found["hits"]["hits"].as_array().expect("a list") {
            let expected = if hit["_id"] == "0" { &first } else { &second };
            assert_eq!(&hit["sort"][0], expected, "{body}");
        }
    }
}

#[test]
fn a_search_ends_after_so_many_hits_of_an_index_however_many_segments_it_has() {
    let indices = indices();
    let index = create(&indices, "a", &json!({"t": {"type": "keyword"}}));
    for id in 0..12 {
        put(&index, id, &json!({"t": "x"}));
        if id % 3 == 2 {
            index.refresh().expect("refreshed");
        }
    }
    let targets = targets(&[&index]);
    for (most, total, early) in [(2, 2, true), (5, 5, true), (12, 12, false), (20, 12, false)] {
        let found = run(&targets, &json!({"terminate_after": most})).expect("searched");
        assert_eq!(
            (&found["hits"]["total"]["value"], &found["terminated_early"]),
            (&json!(total), &json!(early)),
            "{most}"
        );
    }
}

#[test]
fn sequence_numbers_are_sorted_by_and_shown_as_they_are() {
    let indices = indices();
    let index = create(&indices, "a", &json!({}));
    (0..5).for_each(|id| put(&index, id, &json!({})));
    index.refresh().expect("refreshed");
    let targets = targets(&[&index]);
    let body = json!({"sort": [{"_seq_no": "desc"}]});
    let found = run(&targets, &body).expect("searched");
    let shown: Vec<_> =
        found["hits"]["hits"].as_array().expect("a list").iter().map(|hit| hit["sort"][0].clone()).collect();
    assert_eq!(json!(shown), json!([4, 3, 2, 1, 0]));
    assert_eq!(by_search_after(&targets, &body, 2), ["4", "3", "2", "1", "0"]);
}

#[test]
fn indices_whose_values_have_no_common_order_are_refused_together() {
    let indices = indices();
    for (first, second, named) in
        [("unsigned_long", "long", "unsigned_long"), ("long", "keyword", "keyword"), ("ip", "double", "ip")]
    {
        let name = |part: &str| format!("{first}-{second}-{part}");
        let both = [
            create(&indices, &name("a"), &json!({"f": {"type": first}})),
            create(&indices, &name("b"), &json!({"f": {"type": second}})),
        ];
        for order in [[0, 1], [1, 0]] {
            let error = run(&targets(&[&both[order[0]], &both[order[1]]]), &json!({"sort": "f"})).expect_err("refused");
            let reason = format!(
                "Can't do sort across indices, as a field has [{named}] type in one index, and different type in another index!"
            );
            assert_eq!((error.status, error.reason), (400, reason));
        }
    }
}
