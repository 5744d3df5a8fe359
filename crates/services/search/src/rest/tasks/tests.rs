//! Tasks: which are listed, what ends them, and which results are kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;

use super::*;
use crate::rest::RestMethod::{self, Get, Post};
use crate::rest::tests::{api, send};

fn request(method: RestMethod, path: &str, body: &'static str) -> RestRequest {
    RestRequest {
        method,
        path: path.split('/').map(str::to_owned).collect(),
        parameters: BTreeMap::new(),
        body: Bytes::from_static(body.as_bytes()),
        caller: node::identity::Caller::node(),
        opaque_id: Some("mine".to_owned()),
        cancelled: Arc::default(),
    }
}

#[test]
fn requests_are_listed_by_the_names_of_elasticsearch_while_they_run() {
    let tasks = Arc::new(Tasks::default());
    for (method, path, action, cancellable) in [
        (Post, "i/_search", "indices:data/read/search", true),
        (Get, "_search/scroll", "indices:data/read/scroll", true),
        (Get, "i/_count", "indices:data/read/search", true),
        (Post, "_msearch", "indices:data/read/msearch", true),
        (RestMethod::Put, "_bulk", "indices:data/write/bulk", false),
        (RestMethod::Delete, "i/_doc/_search", "indices:data/write/delete", false),
        (Post, "_all/_forcemerge", "indices:admin/forcemerge", false),
        (Get, "_tasks", "cluster:monitor/tasks/lists", false),
    ] {
        let guard = tasks.begin_request(&request(method, path, "")).expect("listed");
        assert_eq!((guard.task().action, guard.task().is_cancellable), (action, cancellable), "{path}");
        assert_eq!(tasks.running().len(), 1);
        drop(guard);
        assert!(tasks.running().is_empty(), "{path}");
    }
    for (method, path) in [(Get, "_cluster/health"), (RestMethod::Put, "i"), (Post, "i/_delete_by_query")] {
        assert!(tasks.begin_request(&request(method, path, "")).is_none(), "{path}");
    }
}

#[test]
fn a_search_is_shown_with_its_body_and_ends_when_it_is_cancelled() {
    let (api, _) = api();
    let searching = request(Post, "logs/_search", r#"{"query":{"match_all":{}}}"#);
    let guard = api.tasks.begin_request(&searching).expect("listed");
    let id = format!("{}:{}", api.node_id(), guard.id());
    let (_, listed) = send(&api, Get, "_tasks?detailed=true&actions=indices:data/read/*", "");
    let shown = &listed["nodes"][api.node_id()]["tasks"][&id];
    let about = r#"indices[logs], search_type[QUERY_THEN_FETCH], source[{"query":{"match_all":{}}}]"#;
    assert_eq!(shown["description"], about, "{listed}");
    assert_eq!(shown["headers"], json!({"X-Opaque-Id": "mine"}));
    assert_eq!(
        send(&api, Get, "_tasks", "").1["nodes"][api.node_id()]["tasks"].as_object().map(|all| all.len()),
        Some(2)
    );
    assert_eq!(send(&api, Get, "_tasks?group_by=none&nodes=other", "").1, json!({"tasks": []}));
    assert!(
        send(&api, Get, "_cat/tasks?detailed", "").1.as_str().expect("a table").contains("indices:data/read/search")
    );
    assert_eq!(send(&api, Post, "_tasks/_cancel?actions=*bulk", "").1, json!({"nodes": {}}));
    assert!(!searching.is_cancelled());
    assert_eq!(send(&api, Post, &format!("_tasks/{id}/_cancel"), "").0, 200);
    assert!(searching.is_cancelled(), "what the search looks at is set");
    assert_eq!(send(&api, Get, &format!("_tasks/{id}"), "").1["task"]["cancelled"], true);
    drop(guard);
    assert_eq!(send(&api, Get, &format!("_tasks/{id}"), "").0, 404);
}

#[test]
fn ids_that_name_no_task_are_refused() {
    let (api, _) = api();
    let bulk = api.tasks.begin_request(&request(Post, "_bulk", "")).expect("listed");
    let own = |number: u64| format!("{}:{number}", api.node_id());
    for (target, status, named) in [
        ("foo:1".to_owned(), 404, "belongs to the node [foo] which isn't part of the cluster"),
        ("foo".to_owned(), 400, "malformed task id foo"),
        (own(999), 404, "999"),
        (own(bulk.id()), 400, "doesn't support cancellation"),
    ] {
        let (got, answer) = send(&api, Post, &format!("_tasks/{target}/_cancel"), "");
        assert_eq!(got, status, "{answer}");
        assert!(answer["error"]["reason"].as_str().expect("a text").contains(named), "{answer}");
    }
    let rethrottle = format!("_reindex/{}/_rethrottle?requests_per_second=5", own(bulk.id()));
    assert_eq!(send(&api, Post, &rethrottle, "").0, 404, "it is no request by query");
}

#[test]
fn results_are_bounded_in_number_and_in_bytes() {
    let tasks = Arc::new(Tasks::default());
    let progress = Arc::new(Progress::new(f32::INFINITY, &[]));
    let ended = |size: usize| {
        let asked = request(Post, "_reindex", "");
        let guard = tasks.begin_by_query("a", String::new(), &asked, &progress).expect("there is room");
        guard.keep("n", Ok(json!("x".repeat(size))));
        guard.id()
    };
    let first = ended(1);
    assert!(tasks.result(first, |_| true).is_some());
    let mut last = first;
    for _ in 0..RESULTS_MAX {
        last = ended(1);
    }
    assert!(tasks.result(first, |_| true).is_none() && tasks.result(last, |_| true).is_some());
    let large = [ended(RESULT_BYTES_MAX / 2), ended(RESULT_BYTES_MAX / 2), ended(1)];
    assert!(tasks.result(large[0], |_| true).is_none() && tasks.result(large[2], |_| true).is_some());
    assert!(tasks.running().is_empty());
    let asked = request(Post, "_search", "");
    asked.cancelled.store(true, Ordering::Relaxed);
    let guard = tasks.begin_request(&asked).expect("listed");
    let waits = tasks.wait(&[guard.id()], Duration::from_secs(60), &asked.cancelled);
    assert_eq!(waits.expect_err("nobody waits any more").kind, "task_cancelled_exception");
}

#[test]
fn one_role_has_half_of_the_places_for_requests_by_query_and_a_tenth_of_the_results() {
    let guard = crate::rights::testing::guard_with(&[]);
    let (_, ann) = crate::rights::testing::user(&guard, "ann");
    let tasks = Arc::new(Tasks::default());
    let progress = Arc::new(Progress::new(f32::INFINITY, &[]));
    let begin = |caller: &Caller| {
        let asked = RestRequest { caller: caller.clone(), ..request(Post, "_reindex", "") };
        tasks.begin_by_query("a", String::new(), &asked, &progress)
    };
    let node = Caller::node();
    let others = begin(&node).expect("there is room");
    others.keep("n", Ok(json!(1)));
    let running: Vec<TaskGuard> = (0..ROLE_BY_QUERY_MAX).map(|_| begin(&ann).expect("there is room")).collect();
    let refused = begin(&ann).err().expect("it has enough");
    assert_eq!((refused.status, refused.reason.contains("of this user")), (429, true), "{refused}");
    assert!(begin(&node).is_ok());
    drop(running);
    for _ in 0..RESULTS_MAX {
        begin(&ann).expect("there is room").keep("n", Ok(json!(1)));
    }
    assert!(tasks.result(others.id(), |_| true).is_some(), "those of one role do not push it out");
    assert_eq!(tasks.state.lock().results.len(), ROLE_RESULTS_MAX + 1);
}
