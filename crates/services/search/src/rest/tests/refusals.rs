//! What cannot be read is refused, and does not become less than it says: parameters of the URL, conditions, doubled keys.

use RestMethod::{Delete, Get, Post, Put};

use super::*;

fn reason(answer: &Value) -> &str {
    answer["error"]["reason"].as_str().unwrap_or_default()
}

fn filled() -> Api {
    let (api, _) = api();
    for id in 0..5 {
        assert_eq!(send(&api, Put, &format!("i/_doc/{id}"), json!({"n": id}).to_string()).0, 201);
    }
    assert_eq!(send(&api, Post, "i/_refresh", "").0, 200);
    api
}

#[test]
fn parameters_that_a_route_does_not_know_are_refused() {
    let api = filled();
    for (method, target, text) in [
        (
            Post,
            "i/_delete_by_query?maxdocs=1",
            "request [/i/_delete_by_query] contains unrecognized parameter: [maxdocs] -> did you mean [max_docs]?",
        ),
        (
            Put,
            "i/_doc/1?if_seqno=0&zzzzzz=1",
            "contains unrecognized parameters: [if_seqno] -> did you mean [if_seq_no]?, [zzzzzz]",
        ),
        (Get, "_search?index=hid", "unrecognized parameter: [index]"),
        (Get, "i/_search?source_type=x", "unrecognized parameter: [source_type] -> did you mean any of ["),
        (Get, "i/_doc/1?source=%7B%7D&source_content_type=application/json", "unrecognized parameters: [source]"),
        (Get, "_cat/indices?verbose=1", "unrecognized parameter: [verbose]"),
        (Get, "?colour=1", "request [/] contains unrecognized parameter: [colour]"),
        (Post, "_aliases?wait=1", "unrecognized parameter: [wait]"),
    ] {
        let (status, answer) = send(&api, method, target, r#"{"query":{"match_all":{}}}"#);
        assert_eq!(
            (status, &answer["error"]["type"]),
            (400, &json!("illegal_argument_exception")),
            "{target}: {answer}"
        );
        assert!(reason(&answer).contains(text), "{target}: {answer}");
    }
    for target in [
        "i/_search?pretty&human&error_trace=false&filter_path=hits&preference=_local&typed_keys=true&max_concurrent_shard_requests=5",
        "i/_count?q=n:1&df=n&lenient=true&expand_wildcards=open&ignore_throttled=false",
        "_cat/indices?v&h=index&s=index&bytes=b&time=s&master_timeout=30s&format=json&expand_wildcards=all",
        "_cluster/health?level=shards&cluster_manager_timeout=30s&timeout=1s&local=true",
    ] {
        let (status, answer) = send(&api, Get, target, "");
        assert_eq!(status, 200, "{target}: {answer}");
    }
    assert_eq!(send(&api, Get, "i/_count", "").1["count"], 5, "nothing was deleted");
    assert_eq!(send(&api, Post, "i/_update/new?doc_as_upsert=true", r#"{"doc":{"n":1}}"#).0, 201);
    let lines = "{\"index\":\"i\"}\n{}\n{\"index\":\"i\",\"size\":1}\n{}\n";
    let answer = send(&api, Post, "_msearch", lines).1;
    assert_eq!(answer["responses"][0]["hits"]["total"]["value"], 5, "{answer}");
    assert_eq!(answer["responses"][1]["error"]["reason"], "key [size] is not supported in the metadata section");
    let (status, answer) = send(&api, Get, "i/_count?terminate_after=1", "");
    assert!(status == 400 && reason(&answer).contains("terminate_after"), "{answer}");
}

#[test]
fn size_is_the_older_name_of_max_docs_in_requests_by_query() {
    let api = filled();
    let all = r#"{"query":{"match_all":{}}}"#;
    assert_eq!(send(&api, Post, "i/_delete_by_query?size=2&refresh=true", all).1["deleted"], 2);
    assert_eq!(send(&api, Get, "i/_count", "").1["count"], 3);
}

#[test]
fn a_body_may_stand_in_the_url() {
    let api = filled();
    let source = r#"{"query":{"term":{"n":2}}}"#;
    let with = |kind: &str| format!("i/_search?source={source}{kind}");
    let json = "&source_content_type=application/json";
    let (status, answer) = send(&api, Get, &with(json), "");
    assert_eq!((status, &answer["hits"]["total"]["value"]), (200, &json!(1)), "{answer}");
    assert_eq!(send(&api, Get, &format!("i/_count?source={source}{json}"), "").1["count"], 1);
    for (target, body, text) in [
        (with(""), "", "source and source_content_type parameters are required"),
        (with("&source_content_type=application/yaml"), "", "application/yaml"),
        (with(json), "{}", "not both"),
    ] {
        let (status, answer) = send(&api, Get, &target, body);
        assert!(status == 400 && reason(&answer).contains(text), "{target}: {answer}");
    }
}

#[test]
fn conditions_are_read_as_numbers_or_refused() {
    let (api, _) = api();
    for n in 0..2 {
        send(&api, Put, "i/_doc/1", json!({"n": n}).to_string());
    }
    let item = |lines: &str| {
        let (status, answer) = send(&api, Post, "i/_bulk", lines.to_owned());
        let item = answer["items"][0].as_object().and_then(|item| item.values().next()).cloned();
        item.and_then(|item| item["status"].as_u64()).unwrap_or(status.into())
    };
    for (lines, expected) in [
        ("{\"index\":{\"_id\":\"1\",\"if_seq_no\":\"0\",\"if_primary_term\":\"1\"}}\n{}\n", 409),
        ("{\"index\":{\"_id\":\"1\",\"if_seq_no\":\"x\",\"if_primary_term\":1}}\n{}\n", 400),
        ("{\"index\":{\"_id\":\"1\",\"if_seq_no\":-1,\"if_primary_term\":1}}\n{}\n", 400),
        ("{\"index\":{\"_id\":\"1\",\"if_seq_no\":[1],\"if_primary_term\":1}}\n{}\n", 400),
        ("{\"index\":{\"_id\":\"1\",\"version\":\"abc\"}}\n{}\n", 400),
        ("{\"delete\":{\"_id\":\"1\",\"version\":\"1\",\"version_type\":\"external\"}}\n", 409),
        ("{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{\"n\":9},\"if_seq_no\":0,\"if_primary_term\":1}\n", 409),
        ("{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{\"n\":9},\"if_seq_no\":\"0\",\"if_primary_term\":\"1\"}\n", 409),
        ("{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{\"n\":9},\"if_seq_no\":1.5,\"if_primary_term\":1}\n", 400),
        ("{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{},\"upsert\":{},\"if_seq_no\":1,\"if_primary_term\":1}\n", 400),
        ("{\"update\":{\"_id\":\"1\",\"if_seq_no\":0,\"if_primary_term\":1}}\n{\"doc\":{\"n\":9}}\n", 409),
    ] {
        assert_eq!(item(lines), expected, "{lines}");
    }
    let stale = r#"{"doc":{"n":9},"if_seq_no":"0","if_primary_term":"1"}"#;
    assert_eq!(send(&api, Post, "i/_update/1", stale).0, 409);
    assert_eq!(send(&api, Get, "i/_source/1", "").1, json!({"n": 1}), "nobody overwrote it");
    let fresh = "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{\"n\":3},\"if_seq_no\":\"1\",\"if_primary_term\":1}\n";
    assert_eq!(item(fresh), 200);
}

#[test]
fn a_version_leaves_room_for_the_next_ones() {
    let (api, _) = api();
    let put = |version: u64| send(&api, Put, &format!("i/_doc/1?version={version}&version_type=external"), "{}");
    for version in [u64::MAX, i64::MAX as u64] {
        let (status, answer) = put(version);
        assert!(status == 400 && reason(&answer).contains("illegal version value"), "{answer}");
    }
    assert_eq!(put(i64::MAX as u64 - 1).0, 201);
    assert_eq!(send(&api, Put, "i/_doc/1", "{}").1["_version"], i64::MAX);
    let lines = "{\"index\":{\"_id\":\"1\"}}\n{}\n{\"index\":{\"_id\":\"2\"}}\n{}\n";
    assert_eq!(send(&api, Post, "i/_bulk", lines).1["errors"], false);
    assert_eq!(send(&api, Delete, "i/_doc/1", "").0, 200);
}

#[test]
fn keys_that_stand_twice_are_refused() {
    let api = filled();
    let twice = r#"{"query":{"term":{"n":2}},"query":{"match_all":{}}}"#;
    for (target, body) in [
        ("i/_search", twice.to_owned()),
        ("i/_delete_by_query", twice.to_owned()),
        ("i/_doc", r#"{"a":1,"a":2}"#.to_owned()),
        ("i/_bulk", "{\"index\":{\"_id\":\"1\",\"_id\":\"2\"}}\n{}\n".to_owned()),
    ] {
        let (status, answer) = send(&api, Post, target, body);
        assert!(status == 400 && reason(&answer).contains("Duplicate field"), "{target}: {answer}");
    }
    assert_eq!(send(&api, Get, "i/_count", "").1["count"], 5);
}

#[test]
fn a_scroll_cannot_begin_after_a_hit() {
    let api = filled();
    let (status, answer) = send(&api, Post, "i/_search?scroll=1m", r#"{"sort":"n","search_after":[1]}"#);
    assert!(status == 400 && reason(&answer).contains("`search_after` cannot be used in a scroll"), "{answer}");
}
