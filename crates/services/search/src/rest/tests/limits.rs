//! What settings bound, names that are the node's, and shards that are shown as they are asked for.

use RestMethod::{Get, Post, Put};
use serde_json::json;

use super::*;

fn reason(answer: &Value) -> &str {
    answer["error"]["reason"].as_str().unwrap_or_default()
}

#[test]
fn queries_that_look_at_many_terms_are_refused_where_the_cluster_says_so() {
    let (api, _) = api();
    send(&api, Put, "i/_doc/1?refresh", r#"{"a":"word","n":1}"#);
    let expensive = [
        (json!({"prefix": {"a": "wo"}}), "[prefix]"),
        (json!({"wildcard": {"a": "w*d"}}), "[wildcard]"),
        (json!({"regexp": {"a": "w.*"}}), "[regexp]"),
        (json!({"fuzzy": {"a": "wort"}}), "[fuzzy]"),
        (json!({"query_string": {"query": "a:wo*"}}), "[prefix]"),
        (json!({"bool": {"filter": {"range": {"a.keyword": {"gte": "a"}}}}}), "[range]"),
    ];
    for value in [json!(true), json!("false"), json!(null)] {
        let settings = json!({"persistent": {"search.allow_expensive_queries": value}}).to_string();
        assert_eq!(send(&api, Put, "_cluster/settings", settings).0, 200);
        for (query, name) in &expensive {
            let (status, answer) = send(&api, Post, "i/_search", json!({"query": query}).to_string());
            let refused = value == json!("false");
            assert_eq!(status, if refused { 400 } else { 200 }, "{query} {value}: {answer}");
            assert!(!refused || reason(&answer).starts_with(name), "{query}: {answer}");
        }
        let cheap =
            json!({"query": {"bool": {"must": {"match": {"a": "word"}}, "filter": {"range": {"n": {"gte": 1}}}}}});
        assert_eq!(send(&api, Post, "i/_search", cheap.to_string()).1["hits"]["total"]["value"], 1);
    }
}

#[test]
fn an_index_bounds_the_values_of_a_terms_query_and_regular_expressions() {
    let (api, _) = api();
    let settings = r#"{"settings":{"index.max_terms_count":2,"index.max_regex_length":3}}"#;
    assert_eq!(send(&api, Put, "i", settings).0, 200);
    send(&api, Put, "i/_doc/1?refresh", r#"{"a":"x"}"#);
    for (query, status, named) in [
        (json!({"terms": {"a": ["x", "y"]}}), 200, ""),
        (json!({"terms": {"a": ["x", "y", "z"]}}), 400, "exceeded the allowed maximum of [2]"),
        (json!({"regexp": {"a": "x.*"}}), 200, ""),
        (json!({"regexp": {"a": "xx.*"}}), 400, "exceeded the allowed maximum of [3]"),
    ] {
        let (got, answer) = send(&api, Post, "i/_search", json!({"query": query}).to_string());
        assert!(got == status && reason(&answer).contains(named), "{query}: {answer}");
    }
    for wrong in [r#"{"index.max_terms_count":70000}"#, r#"{"index.max_regex_length":0}"#] {
        assert_eq!(send(&api, Put, "i/_settings", wrong).0, 400, "{wrong}");
    }
}

#[test]
fn a_wrong_search_of_many_is_an_error_of_its_own() {
    let (api, _) = api();
    send(&api, Put, "i/_doc/1?refresh", r#"{"a":1}"#);
    let body =
        "{\"index\":\"i\"}\n{}\n{}\n{\"query\":\n{\"index\":\"none\"}\n{}\n{}\n{\"query\":{\"no\":{}}}\n{}\n{}\n";
    let (status, answer) = send(&api, Post, "_msearch", body);
    let statuses: Vec<&Value> =
        answer["responses"].as_array().expect("a list").iter().map(|one| &one["status"]).collect();
    assert_eq!(
        (status, statuses),
        (200, vec![&json!(200), &json!(400), &json!(404), &json!(400), &json!(200)]),
        "{answer}"
    );
    let (status, answer) = send(&api, Post, "_msearch", "{\"index\":\n{}\n");
    assert_eq!(status, 400, "without a header nobody knows which line is which: {answer}");
}

#[test]
fn names_of_the_nodes_own_indices_cannot_be_taken() {
    let (api, indices) = api();
    send(&api, Put, "i", "");
    for (method, target, body) in [
        (Put, ".node", ""),
        (Put, ".node/_doc/1", "{}"),
        (Put, "i/_alias/.node", ""),
        (Put, "j", r#"{"aliases":{".node":{}}}"#),
    ] {
        let (status, answer) = send(&api, method, target, body);
        assert!(status == 400 && reason(&answer).contains("the node itself makes"), "{target}: {answer}");
    }
    let bulk = "{\"index\":{\"_index\":\".node\"}}\n{}\n";
    let (_, answer) = send(&api, Post, "_bulk", bulk);
    assert_eq!(answer["items"][0]["index"]["status"], 400, "{answer}");
    assert_eq!(indices.all().len(), 1);
}

#[test]
fn shards_are_shown_everywhere_as_they_are_asked_for() {
    let (api, _) = api();
    send(&api, Put, "i", r#"{"settings":{"number_of_shards":5,"number_of_replicas":1}}"#);
    send(&api, Put, "i/_doc/1?refresh", r#"{"a":1}"#);
    for (target, pointer, expected) in [
        ("i/_settings", "/i/settings/index/number_of_shards", json!("5")),
        ("i/_search", "/_shards/total", json!(5)),
        ("i/_count", "/_shards/successful", json!(5)),
        ("i/_stats", "/_shards/total", json!(10)),
        ("_cluster/health?level=shards", "/active_primary_shards", json!(5)),
        ("_cluster/health?level=shards", "/unassigned_shards", json!(5)),
        ("_cluster/health?level=shards", "/indices/i/number_of_shards", json!(5)),
        ("_cluster/health?level=shards", "/indices/i/shards/4/active_shards", json!(1)),
        ("_cluster/state", "/routing_table/indices/i/shards/4/0/shard", json!(4)),
        ("_cluster/stats", "/indices/shards/primaries", json!(5)),
    ] {
        let (_, answer) = send(&api, Get, target, "");
        assert_eq!(answer.pointer(pointer), Some(&expected), "{target} {pointer}: {answer}");
    }
    assert_eq!(send(&api, Post, "i/_pit?keep_alive=1m", "").1["_shards"]["total"], 5);
    let (_, shards) = send(&api, Get, "_cat/shards", "");
    assert_eq!(shards.as_str().expect("a table").lines().count(), 10);
}

#[test]
fn operations_of_a_bulk_find_a_document_by_the_routing_of_its_shard_alone() {
    let (api, _) = api();
    send(&api, Put, "i", r#"{"settings":{"number_of_shards":5}}"#);
    send(&api, Put, "i/_doc/1?routing=5", r#"{"a":1}"#);
    let (delete, update) = (r#"{"delete":{"_id":"1"ROUTING}}"#, r#"{"update":{"_id":"1"ROUTING}}"#);
    for (line, routing, status) in [
        (update, "", 404),
        (update, r#","routing":"5""#, 200),
        (delete, "", 404),
        (delete, r#","routing":"1""#, 404),
        (delete, r#","routing":"5""#, 200),
    ] {
        let doc = if line == update { "{\"doc\":{\"b\":1}}\n" } else { "" };
        let body = format!("{}\n{doc}", line.replace("ROUTING", routing));
        let (_, answer) = send(&api, Post, "i/_bulk", body);
        let item = answer["items"][0].as_object().and_then(|item| item.values().next()).expect("an item");
        assert_eq!(item["status"], status, "{line} {routing}: {answer}");
    }
    assert_eq!(send(&api, Get, "i/_doc/1?routing=5", "").0, 404);
}

#[test]
fn lookups_have_so_many_values_together_and_scrolls_take_places_by_what_they_keep() {
    let (api, _) = api();
    let values: Vec<u32> = (0..50_000).collect();
    assert_eq!(send(&api, Put, "l/_doc/1?refresh", json!({ "n": values }).to_string()).0, 201);
    let lookups = |count: usize| {
        let lookup = json!({"terms": {"n": {"index": "l", "id": "1", "path": "n"}}});
        json!({"query": {"bool": {"should": vec![lookup; count]}}}).to_string()
    };
    assert_eq!(send(&api, Post, "l/_search", lookups(1)).1["hits"]["total"]["value"], 1);
    let (status, answer) = send(&api, Post, "l/_search", lookups(90));
    assert!(status == 400 && reason(&answer).contains("too many values together"), "{answer}");
    // A query of 50,000 numbers is some three and a half MiB.
    let mut opened = 0;
    let refused = loop {
        let (status, answer) = send(&api, Post, "l/_search?scroll=1m", lookups(1));
        match status {
            200 => opened += 1,
            _ => break (status, answer),
        }
    };
    assert!((5..=15).contains(&opened), "{opened}");
    assert!(refused.0 == 429 && reason(&refused.1).contains("each MiB of a query"), "{refused:?}");
    assert_eq!(send(&api, Post, "l/_search?scroll=1m", "{}").0, 200, "one with a small query has a place");
}

#[test]
fn what_is_kept_of_indices_templates_and_the_cluster_is_bounded() {
    let (api, _) = api();
    let long = |mib: usize| "x".repeat(mib << 20);
    assert_eq!(send(&api, Put, "i", "").0, 200);
    let settings = |mib: usize| json!({ "index.lifecycle.name": long(mib) }).to_string();
    let template = |mib: usize| json!({"template": {"mappings": {"_meta": {"a": long(mib)}}}}).to_string();
    let cluster = |kib: usize| json!({"persistent": {"cluster.a": "x".repeat(kib << 10)}}).to_string();
    for (path, body, status) in [
        ("j", json!({"settings": {"index.lifecycle.name": long(33)}}).to_string(), 400),
        ("i/_settings", settings(33), 400),
        ("i/_mapping", json!({"_meta": {"a": long(33)}}).to_string(), 400),
        ("i/_settings", settings(1), 200),
        ("_component_template/a", template(9), 200),
        ("_component_template/b", template(9), 400),
        ("_component_template/a", template(10), 200),
        ("_cluster/settings", cluster(65), 400),
        ("_cluster/settings", json!({"transient": {"cluster.a": "x".repeat(65 << 10)}}).to_string(), 400),
        ("_cluster/settings", cluster(1), 200),
    ] {
        let (got, answer) = send(&api, Put, path, body);
        assert_eq!(got, status, "{path}: {}", reason(&answer));
    }
    assert_eq!(send(&api, Get, "j", "").0, 404);
}
