//! Requests by query: what they count, conflicts, refusals, and that they can be slowed down, listed and ended.

use node::identity::Action;
use serde_json::{Value, json};

use super::*;
use crate::rest::RestMethod::{self, Delete, Get, Post, Put};
use crate::rest::tests::{api, send, send_as};
use crate::rights::testing::{grant, user};

fn put(api: &Api, index: &str, ids: std::ops::Range<u32>) {
    for id in ids {
        let body = json!({"n": id, "t": "red"}).to_string();
        assert_eq!(send(api, Put, &format!("{index}/_doc/{id}"), body).0, 201);
    }
    send(api, Post, "_refresh", "");
}

fn count(api: &Api, index: &str) -> u64 {
    send(api, Post, &format!("{index}/_refresh"), "");
    send(api, Get, &format!("{index}/_count"), "").1["count"].as_u64().expect("a number")
}

/// The task as `_tasks/<id>` shows it, once it is as wanted.
fn task_when(api: &Api, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let (status, answer) = send(api, Get, &format!("_tasks/{id}"), "");
        assert_eq!(status, 200, "{answer}");
        if wanted(&answer) {
            return answer;
        }
        std::thread::yield_now();
    }
}

#[test]
fn documents_that_changed_since_are_conflicts_that_end_the_request_or_are_passed_over() {
    for (parameters, status, deleted, conflicts) in
        [("", 409, 2, 1), ("?conflicts=abort&scroll_size=1", 409, 1, 1), ("?conflicts=proceed&refresh", 200, 2, 1)]
    {
        let (api, _) = api();
        put(&api, "i", 0..3);
        // Searches do not see this yet.
        send(&api, Put, "i/_doc/1", r#"{"n": 7}"#);
        let (got, answer) =
            send(&api, Post, &format!("i/_delete_by_query{parameters}"), r#"{"query":{"match_all":{}}}"#);
        assert_eq!(got, status, "{answer}");
        assert_eq!((&answer["total"], &answer["deleted"]), (&json!(3), &json!(deleted)), "{answer}");
        assert_eq!(answer["version_conflicts"], conflicts, "{answer}");
        let failures = answer["failures"].as_array().expect("a list");
        assert_eq!(failures.len(), usize::from(status == 409), "{answer}");
        if let Some(failure) = failures.first() {
            assert_eq!((&failure["id"], &failure["status"]), (&json!("1"), &json!(409)));
            assert_eq!(failure["cause"]["type"], "version_conflict_engine_exception");
        }
        assert_eq!(count(&api, "i"), 3 - deleted, "{parameters}");
        assert_eq!(send(&api, Get, "i/_source/1", "").1, json!({"n": 7}));
        for key in ["took", "timed_out", "batches", "noops", "retries", "throttled_millis", "requests_per_second"] {
            assert!(answer.get(key).is_some(), "{key}: {answer}");
        }
        assert!(answer.get("created").is_none() && answer.get("updated").is_none(), "{answer}");
    }
}

#[test]
fn an_update_without_a_script_takes_the_documents_into_the_present_mapping() {
    let (api, _) = api();
    send(&api, Put, "i", r#"{"mappings": {"dynamic": false}}"#);
    put(&api, "i", 0..5);
    send(&api, Put, "i/_mapping", r#"{"properties": {"n": {"type": "long"}}}"#);
    let found = || send(&api, Post, "i/_count", r#"{"query": {"range": {"n": {"gte": 3}}}}"#).1["count"].clone();
    assert_eq!(found(), 0);
    let (status, answer) = send(&api, Post, "i/_update_by_query?refresh=true&slices=auto&max_docs=4", "");
    assert_eq!((status, &answer["updated"], &answer["total"]), (200, &json!(4), &json!(4)), "{answer}");
    assert_eq!(found(), 1, "four of five have the new field");
    assert_eq!(send(&api, Post, "i/_update_by_query?refresh=true&scroll_size=2", "").1["batches"], 3);
    assert_eq!(found(), 2);
    assert_eq!(send(&api, Get, "i/_doc/0", "").1["_version"], 3, "each time it is stored again");
}

#[test]
fn documents_are_copied_as_they_are_and_the_destination_decides_about_conflicts() {
    let (api, _) = api();
    put(&api, "a", 0..10);
    send(&api, Put, "a/_doc/9?routing=r", r#"{"n": 9, "t": "blue"}"#);
    send(&api, Post, "_refresh", "");
    let copy = |body: Value| send(&api, Post, "_reindex?refresh", body.to_string());
    let from = json!({"index": ["a"], "query": {"range": {"n": {"gte": 5}}}, "_source": ["n"], "size": 2});
    let (status, answer) = copy(json!({"source": from, "dest": {"index": "b"}}));
    assert_eq!((status, &answer["created"], &answer["updated"]), (200, &json!(5), &json!(0)), "{answer}");
    assert_eq!((&answer["batches"], &answer["total"]), (&json!(3), &json!(5)), "{answer}");
    let copied = send(&api, Get, "b/_doc/9", "").1;
    assert_eq!(
        (&copied["_source"], &copied["_routing"], &copied["_version"]),
        (&json!({"n": 9}), &json!("r"), &json!(1))
    );
    for (dest, status, created, updated, conflicts) in [
        (json!({"index": "b"}), 200, 5, 5, 0),
        (json!({"index": "b", "op_type": "create"}), 409, 0, 0, 10),
        (json!({"index": "c", "version_type": "external"}), 200, 10, 0, 0),
        (json!({"index": "c", "version_type": "external"}), 409, 0, 0, 10),
        (json!({"index": "c", "version_type": "external_gte", "routing": "=x"}), 200, 0, 10, 0),
    ] {
        let (got, answer) = copy(json!({"source": {"index": "a"}, "dest": dest}));
        let counts = ["created", "updated", "version_conflicts"].map(|key| answer[key].as_u64().expect("a number"));
        assert_eq!((got, counts), (status, [created, updated, conflicts]), "{dest}: {answer}");
    }
    let copied = send(&api, Get, "c/_doc/9", "").1;
    assert_eq!((&copied["_version"], &copied["_routing"]), (&json!(2), &json!("x")));
    let (status, answer) = send(
        &api,
        Post,
        "_reindex",
        r#"{"conflicts": "proceed", "max_docs": 3, "source": {"index": "a"}, "dest": {"index": "b", "op_type": "create"}}"#,
    );
    assert_eq!((status, &answer["version_conflicts"], &answer["failures"]), (200, &json!(3), &json!([])), "{answer}");
}

#[test]
fn what_cannot_be_done_is_refused_by_its_name_and_changes_nothing() {
    let (api, _) = api();
    put(&api, "i", 0..3);
    send(&api, Put, "i/_alias/in", "");
    let all = r#"{"query": {"match_all": {}}}"#;
    let copy = |source: &str, dest: &str| format!(r#"{{"source": {source}, "dest": {dest}}}"#);
    let (from, to) = (r#"{"index": "i"}"#, r#"{"index": "j"}"#);
    let cases: Vec<(&str, String, u16, &str)> = vec![
        ("i/_delete_by_query", String::new(), 400, "query is missing"),
        ("i/_delete_by_query", r#"{"query": {"nonsense": {}}}"#.to_owned(), 400, "unknown query [nonsense]"),
        ("i/_delete_by_query", r#"{"colour": 1}"#.to_owned(), 400, "[colour]"),
        ("i/_delete_by_query?slices=5", all.to_owned(), 400, "[slices]"),
        ("i/_delete_by_query?slices=0", all.to_owned(), 400, "[slices]"),
        ("i/_delete_by_query?routing=x", all.to_owned(), 400, "[routing]"),
        ("i/_delete_by_query?max_docs=0", all.to_owned(), 400, "maxDocs"),
        ("i/_delete_by_query?conflicts=maybe", all.to_owned(), 400, "[maybe]"),
        ("i/_delete_by_query?requests_per_second=0", all.to_owned(), 400, "[requests_per_second]"),
        ("i/_delete_by_query?scroll_size=20000", all.to_owned(), 400, "10000"),
        ("none/_delete_by_query", all.to_owned(), 404, "no such index [none]"),
        ("i/_update_by_query", r#"{"script": {"source": "x"}}"#.to_owned(), 400, "[script]"),
        ("i/_update_by_query?pipeline=p", String::new(), 400, "[pipeline]"),
        ("_reindex", "{}".to_owned(), 400, "[source]"),
        ("_reindex", copy(r#"{"index": "i", "remote": {"host": "http://x"}}"#, to), 400, "[remote]"),
        ("_reindex", copy(r#"{"index": "i", "slice": {}}"#, to), 400, "[slice]"),
        ("_reindex", copy("{}", to), 400, "_all"),
        ("_reindex", copy(from, "{}"), 400, "index is missing"),
        ("_reindex", copy(from, r#"{"index": "i"}"#), 400, "cannot write into an index its reading from"),
        ("_reindex", copy(from, r#"{"index": "in"}"#), 400, "cannot write into an index its reading from"),
        ("_reindex", copy(from, r#"{"index": "j", "pipeline": "p"}"#), 400, "[pipeline]"),
        ("_reindex", copy(from, r#"{"index": "j", "op_type": "create", "version_type": "external"}"#), 400, "internal"),
        ("_reindex", r#"{"script": {}, "source": {}, "dest": {}}"#.to_owned(), 400, "[script]"),
        ("_reindex", copy(from, r#"{"index": "J"}"#), 400, "must be lowercase"),
    ];
    for (target, body, status, named) in cases {
        let (got, answer) = send(&api, Post, target, body.clone());
        assert_eq!(got, status, "{target} {body}: {answer}");
        assert!(answer.to_string().contains(named), "{target} {body}: {answer}");
    }
    assert_eq!(count(&api, "i"), 3);
    assert_eq!(send(&api, RestMethod::Head, "j", "").0, 404, "no destination was made");
}

#[test]
fn a_request_that_nobody_waits_for_is_a_task_with_a_result() {
    let (api, _) = api();
    put(&api, "i", 0..4);
    let (status, answer) =
        send(&api, Post, "i/_delete_by_query?wait_for_completion=false", r#"{"query": {"range": {"n": {"lt": 3}}}}"#);
    let id = answer["task"].as_str().expect("an id").to_owned();
    assert_eq!(status, 200, "{answer}");
    let done = send(&api, Get, &format!("_tasks/{id}?wait_for_completion=true&timeout=60s"), "").1;
    assert_eq!((&done["completed"], &done["response"]["deleted"]), (&json!(true), &json!(3)), "{done}");
    assert_eq!(done["task"]["action"], "indices:data/write/delete/byquery");
    assert_eq!(done["task"]["status"]["deleted"], 3);
    assert_eq!(count(&api, "i"), 1);
    let failing = send(&api, Post, "i/_update_by_query?wait_for_completion=false", r#"{"query": {"nonsense": {}}}"#).1;
    let id = failing["task"].as_str().expect("an id");
    let done = task_when(&api, id, |task| task["completed"] == true);
    assert_eq!(done["error"]["type"], "parsing_exception", "{done}");
}

#[test]
fn a_slow_request_is_listed_goes_faster_on_request_and_ends_when_it_is_cancelled() {
    let (api, _) = api();
    put(&api, "i", 0..4);
    let slow = "wait_for_completion=false&requests_per_second=0.001&scroll_size=1";
    let begin = |target: &str| {
        let answer = send(&api, Post, &format!("{target}?{slow}"), r#"{"query": {"match_all": {}}}"#).1;
        answer["task"].as_str().expect("an id").to_owned()
    };
    let id = begin("i/_update_by_query");
    let is_throttled = |task: &Value| task["task"]["status"]["throttled_until_millis"].as_u64() > Some(0);
    let shown = task_when(&api, &id, is_throttled);
    assert_eq!((&shown["task"]["status"]["updated"], &shown["task"]["status"]["total"]), (&json!(1), &json!(4)));
    let listed = send(&api, Get, "_tasks?actions=*byquery&detailed&group_by=none", "").1;
    assert_eq!(listed["tasks"][0]["description"], "update-by-query [i]", "{listed}");
    let (status, answer) = send(&api, Post, &format!("_update_by_query/{id}/_rethrottle?requests_per_second=-1"), "");
    assert_eq!(status, 200, "{answer}");
    let done = task_when(&api, &id, |task| task["completed"] == true);
    assert_eq!((&done["response"]["updated"], &done["response"]["batches"]), (&json!(4), &json!(4)), "{done}");
    send(&api, Post, "_refresh", "");
    let id = begin("i/_delete_by_query");
    task_when(&api, &id, is_throttled);
    let (status, answer) = send(&api, Post, &format!("_tasks/{id}/_cancel?wait_for_completion=true"), "");
    assert_eq!(status, 200, "{answer}");
    let done = task_when(&api, &id, |task| task["completed"] == true);
    assert_eq!((&done["response"]["canceled"], &done["response"]["deleted"]), (&json!("by user request"), &json!(1)));
    assert_eq!(done["task"]["cancelled"], true);
    assert_eq!(count(&api, "i"), 4 - 1, "what is counted is done, and nothing else");
    send(&api, Post, "i/_refresh", "");
    let id = begin("i/_update_by_query");
    task_when(&api, &id, is_throttled);
    api.end();
    assert_eq!(send(&api, Get, &format!("_tasks/{id}"), "").1["response"]["canceled"], "by user request");
    assert_eq!(send(&api, Post, "i/_update_by_query", "").0, 503, "the node ends");
}

#[test]
fn more_than_some_at_a_time_are_refused() {
    let (api, _) = api();
    put(&api, "i", 0..2);
    let slow = "i/_update_by_query?wait_for_completion=false&requests_per_second=0.001&scroll_size=1&conflicts=proceed";
    let callers = ["ann", "bob"].map(|name| user(&api.guard, name).1);
    for name in ["ann", "bob"] {
        for right in [Action::IndexRead, Action::IndexWrite] {
            grant(&api.guard, right, "index i", name);
        }
    }
    // Half of the places are for one role.
    for caller in &callers {
        let statuses: Vec<u16> = (0..5).map(|_| send_as(&api, caller, Post, slow, "").0).collect();
        assert_eq!(statuses, [200, 200, 200, 200, 429]);
    }
    assert_eq!(send(&api, Post, slow, "").0, 429, "all places are taken");
    let cancelled = send(&api, Post, "_tasks/_cancel?actions=*byquery&wait_for_completion&group_by=parents", "").1;
    assert_eq!(cancelled["tasks"].as_object().map(Map::len), Some(8), "{cancelled}");
    assert_eq!(send(&api, Post, "i/_update_by_query?conflicts=proceed", "").0, 200);
    assert_eq!(send(&api, Delete, "i", "").0, 200);
}
