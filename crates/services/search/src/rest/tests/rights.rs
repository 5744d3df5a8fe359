//! Rights: every route is refused without them, and what lasts ends with them.

use std::collections::BTreeSet;

use node::identity::{Action, AttributeChange, Guard, IdentityChange};

use super::*;
use crate::rest::RestMethod::{self, Delete, Get, Head, Post, Put};
use crate::rest::routing::{Route, Routed};
use crate::rights::testing::{grant, revoke, user};

/// A right, and on what.
type Right = (Action, &'static str);

const MONITOR: &[Right] = &[(Action::SearchMonitor, "node")];
const ADMINISTER: &[Right] = &[(Action::SearchManage, "node")];
const READ: &[Right] = &[(Action::IndexRead, "index i")];
const WRITE: &[Right] = &[(Action::IndexWrite, "index i")];
const BOTH: &[Right] = &[(Action::IndexRead, "index i"), (Action::IndexWrite, "index i")];
const SEE: &[Right] = &[(Action::IndexMonitor, "index i")];
const MANAGE: &[Right] = &[(Action::IndexManage, "index i")];
const ALIAS: &[Right] = &[(Action::IndexManage, "index i"), (Action::IndexManage, "index b")];
const COPY: &[Right] =
    &[(Action::IndexRead, "index i"), (Action::IndexWrite, "index copy"), (Action::IndexMake, "index copy")];
const MAKE: &[Right] = &[(Action::IndexMake, "index made")];
const NONE: &[Right] = &[];

/// A request for each route, and exactly what it needs besides a login.
const REQUESTS: &[(RestMethod, &str, &str, &[Right])] = &[
    (Get, "", "", NONE),
    (Get, "_security/_authenticate", "", NONE),
    (Get, "_cluster/health", "", MONITOR),
    (Get, "_cluster/settings", "", MONITOR),
    (Put, "_cluster/settings", r#"{"persistent":{}}"#, ADMINISTER),
    (Get, "_cluster/state", "", MONITOR),
    (Get, "_cluster/stats", "", MONITOR),
    (Get, "_cluster/pending_tasks", "", MONITOR),
    (Get, "_nodes", "", MONITOR),
    (Get, "_tasks", "", NONE),
    (Get, "_tasks/x:1", "", NONE),
    (Post, "_tasks/_cancel", "", NONE),
    (Post, "_reindex/x:1/_rethrottle?requests_per_second=1", "", NONE),
    (Get, "_index_template", "", MONITOR),
    (Put, "_index_template/t", r#"{"index_patterns":["zz"]}"#, ADMINISTER),
    (Delete, "_index_template/t", "", ADMINISTER),
    (Get, "_cat", "", NONE),
    (Get, "_cat/indices/i", "", SEE),
    (Get, "_cat/count/i", "", READ),
    (Get, "_cat/shards/i", "", SEE),
    (Get, "_cat/segments/i", "", SEE),
    (Get, "_cat/aliases", "", NONE),
    (Get, "_cat/health", "", MONITOR),
    (Get, "_cat/nodes", "", MONITOR),
    (Get, "_cat/templates", "", MONITOR),
    (Get, "_cat/master", "", MONITOR),
    (Get, "_cat/tasks", "", NONE),
    (Get, "_cat/plugins", "", NONE),
    (Put, "made", "", MAKE),
    (Delete, "gone", "", &[(Action::IndexManage, "index gone")]),
    (Head, "i", "", SEE),
    (Get, "i", "", SEE),
    (Get, "i/_mapping", "", SEE),
    (Put, "i/_mapping", r#"{"properties":{}}"#, MANAGE),
    (Get, "i/_mapping/field/*", "", SEE),
    (Get, "i/_settings", "", SEE),
    (Put, "i/_settings", "{}", MANAGE),
    (Post, "i/_close", "", MANAGE),
    (Post, "i/_open", "", MANAGE),
    (Post, "_aliases", r#"{"actions":[{"add":{"index":"i","alias":"b"}}]}"#, ALIAS),
    (Get, "i/_alias", "", SEE),
    (Put, "i/_alias/b", "", ALIAS),
    (Delete, "i/_alias/b", "", ALIAS),
    (Post, "i/_refresh", "", WRITE),
    (Post, "i/_flush", "", MANAGE),
    (Post, "i/_forcemerge", "", MANAGE),
    (Post, "i/_cache/clear", "", MANAGE),
    (Get, "i/_stats", "", SEE),
    (Get, "i/_analyze", r#"{"text":"a"}"#, READ),
    (Get, "i/_field_caps?fields=*", "", READ),
    (Get, "_resolve/index/i", "", SEE),
    (Get, "i/_search", "", READ),
    (Post, "_search/scroll", r#"{"scroll_id":"x"}"#, NONE),
    (Delete, "_search/scroll", r#"{"scroll_id":"x"}"#, NONE),
    (Post, "i/_pit?keep_alive=1m", "", READ),
    (Delete, "_pit", r#"{"id":"x"}"#, NONE),
    (Delete, "_search/point_in_time/_all", "", NONE),
    (Get, "_search/point_in_time/_all", "", NONE),
    (Post, "_msearch", "{\"index\":\"i\"}\n{}\n", READ),
    (Get, "i/_count", "", READ),
    (Get, "i/_validate/query", "", READ),
    (Post, "i/_delete_by_query", r#"{"query":{"match_none":{}}}"#, BOTH),
    (Post, "i/_update_by_query", r#"{"query":{"match_none":{}}}"#, BOTH),
    (Post, "_reindex", r#"{"source":{"index":"i"},"dest":{"index":"copy"}}"#, COPY),
    (Post, "_bulk", "{\"index\":{\"_index\":\"i\",\"_id\":\"9\"}}\n{}\n", WRITE),
    (Post, "_bulk", "{\"update\":{\"_index\":\"i\",\"_id\":\"1\"}}\n{\"doc\":{},\"_source\":true}\n", BOTH),
    (Post, "_mget", r#"{"docs":[{"_index":"i","_id":"1"}]}"#, READ),
    (Post, "i/_doc", "{}", WRITE),
    (Put, "i/_create/8", "{}", WRITE),
    (Get, "i/_doc/1", "", READ),
    (Get, "i/_source/1", "", READ),
    (Delete, "i/_doc/8", "", WRITE),
    (Post, "i/_update/1", r#"{"doc":{}}"#, WRITE),
    (Post, "i/_update/1?_source=true", r#"{"doc":{}}"#, BOTH),
];

/// An API with the indices `i` and `gone`, and its guard.
fn bed() -> (Api, Arc<Guard>) {
    let (api, _) = api();
    assert_eq!(send(&api, Put, "i/_doc/1?refresh=true", r#"{"a":1,"t":"red"}"#).0, 201);
    assert_eq!(send(&api, Put, "i/_doc/2?refresh=true", r#"{"a":2,"t":"blue"}"#).0, 201);
    assert_eq!(send(&api, Put, "gone", "").0, 200);
    let guard = Arc::clone(&api.guard);
    (api, guard)
}

fn is_refused((status, answer): &(u16, Value)) -> bool {
    *status == 403 || answer.to_string().contains("is unauthorized for user")
}

#[test]
fn every_route_is_refused_without_its_rights_and_answered_with_exactly_these() {
    let (api, guard) = bed();
    let mut seen = Vec::new();
    for (number, (method, target, body, rights)) in REQUESTS.iter().enumerate() {
        let name = format!("u{number}");
        let (_, caller) = user(&guard, &name);
        let all = request(&caller, *method, target, *body);
        seen.push(Routed::of(&all).expect("it has a route").route);
        // One right after the other: all but the last do not suffice.
        for (action, object) in *rights {
            let answer = send_as(&api, &caller, *method, target, *body);
            assert!(is_refused(&answer), "{method:?} {target} without {action:?}: {answer:?}");
            grant(&guard, *action, object, &name);
        }
        let answer = send_as(&api, &caller, *method, target, *body);
        assert!(!is_refused(&answer), "{method:?} {target}: {answer:?}");
        assert!(answer.0 < 500, "{method:?} {target}: {answer:?}");
        // A login that does not hold is refused whatever the rights.
        let locked =
            IdentityChange::Set { role: name, changes: vec![AttributeChange::Locked(Some("test".to_owned()))] };
        guard.change(&Caller::node(), &[locked]).expect("locked");
        let answer = send_as(&api, &caller, *method, target, *body);
        assert_eq!(answer.0, 403, "{method:?} {target} locked: {answer:?}");
    }
    let missing: Vec<Route> = Route::all().into_iter().filter(|route| !seen.contains(route)).collect();
    assert!(missing.is_empty(), "no request of this test asks for {missing:?}");
}

#[test]
fn patterns_shrink_to_what_may_be_read_and_names_are_refused_with_one_text() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    assert_eq!(send(&api, Put, "other/_doc/1?refresh=true", "{}").0, 201);
    let count = |names: &str| send_as(&api, &ann, Get, &format!("{names}/_count"), "");
    for names in ["*", "_all", "i*"] {
        let (status, answer) = count(names);
        assert_eq!((status, &answer["count"]), (200, &json!(0)), "{names}: {answer}");
    }
    let refused = |name: &str| count(name).1["error"]["reason"].as_str().expect("a reason").to_owned();
    assert_eq!(refused("i"), "action [indices:data/read/search] is unauthorized for user [ann]");
    assert_eq!(refused("i"), refused("there_is_none"));
    assert_eq!(count("i,there_is_none").0, 403);
    grant(&guard, Action::IndexRead, "index i", "ann");
    assert_eq!(count("*").1["count"], 2);
    assert_eq!(count("i,other").0, 403);
    assert_eq!(count("i,oth*").1["count"], 2);
    grant(&guard, Action::IndexRead, "index oth*", "ann");
    assert_eq!(count("*").1["count"], 3);
    assert_eq!(count("other2").0, 404, "who may read it may know that there is none");
    grant(&guard, Action::IndexMonitor, "index i", "ann");
    let indices = send_as(&api, &ann, Get, "_cat/indices?h=index", "").1;
    assert_eq!(indices.as_str().map(str::trim), Some("i"));
}

#[test]
fn a_right_on_an_alias_is_one_on_what_its_filter_leaves() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    assert_eq!(send(&api, Put, "i/_alias/reds", r#"{"filter":{"term":{"t":"red"}}}"#).0, 200);
    grant(&guard, Action::IndexRead, "index reds", "ann");
    let ids = |target: &str, body: &str| {
        let (status, answer) = send_as(&api, &ann, Get, target, body.to_owned());
        let hits = answer["hits"]["hits"].as_array().cloned().unwrap_or_default();
        (status, hits.iter().map(|hit| hit["_id"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>())
    };
    for names in ["reds", "*", "_all", "r*"] {
        assert_eq!(ids(&format!("{names}/_search"), ""), (200, vec!["1".to_owned()]), "{names}");
    }
    assert_eq!(ids("i/_search", "").0, 403);
    // Reads by id go past the filter.
    assert_eq!(send_as(&api, &ann, Get, "reds/_doc/2", "").0, 403);
    let lookup = r#"{"query":{"terms":{"a":{"index":"reds","id":"2","path":"a"}}}}"#;
    assert_eq!(ids("reds/_search", lookup).0, 403);
    // Who manages the alias cannot give others more than its filter leaves.
    grant(&guard, Action::IndexManage, "index reds", "ann");
    grant(&guard, Action::IndexManage, "index wide", "ann");
    assert_eq!(send_as(&api, &ann, Put, "reds/_alias/wide", "").0, 403);
    // Who may read the index may read it by its alias too.
    let (_, bob) = user(&guard, "bob");
    grant(&guard, Action::IndexRead, "index i", "bob");
    assert_eq!(send_as(&api, &bob, Get, "reds/_count", "").1["count"], 1);
    assert_eq!(send_as(&api, &bob, Get, "reds/_doc/2", "").0, 200);
    assert_eq!(send_as(&api, &bob, Get, "_count", "").1["count"], 2);
}

#[test]
fn requests_about_many_documents_are_decided_for_each_of_them() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    grant(&guard, Action::IndexWrite, "index n*", "ann");
    grant(&guard, Action::IndexMake, "index new", "ann");
    let body = "{\"index\":{\"_index\":\"new\",\"_id\":\"1\"}}\n{}\n{\"index\":{\"_index\":\"i\",\"_id\":\"1\"}}\n{}\n\
                {\"index\":{\"_index\":\"none\",\"_id\":\"1\"}}\n{}\n";
    let (_, answer) = send_as(&api, &ann, Post, "_bulk", body);
    let statuses: Vec<u64> = answer["items"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|item| item["index"]["status"].as_u64())
        .collect();
    assert_eq!(statuses, [201, 403, 403], "{answer}");
    assert_eq!(send(&api, Get, "i/_source/1", "").1["a"], 1, "it was not changed");
    grant(&guard, Action::IndexRead, "index new", "ann");
    let body = r#"{"docs":[{"_index":"new","_id":"1"},{"_index":"i","_id":"1"}]}"#;
    let (_, answer) = send_as(&api, &ann, Post, "_mget", body);
    assert_eq!(answer["docs"][0]["found"], true, "{answer}");
    assert_eq!(answer["docs"][1]["error"]["type"], "security_exception", "{answer}");
}

#[test]
fn scrolls_and_points_in_time_are_their_callers_and_end_with_the_right() {
    let (api, guard) = bed();
    let ((_, ann), (_, bob)) = (user(&guard, "ann"), user(&guard, "bob"));
    for name in ["ann", "bob"] {
        grant(&guard, Action::IndexRead, "index i", name);
    }
    let scroll = send_as(&api, &ann, Post, "i/_search?scroll=1m", r#"{"size":1}"#).1["_scroll_id"].clone();
    let point = send_as(&api, &ann, Post, "i/_pit?keep_alive=1m", "").1["id"].clone();
    let page = |caller: &Caller| {
        send_as(&api, caller, Post, "_search/scroll", json!({"scroll_id": scroll, "scroll": "1m"}).to_string()).0
    };
    let search = |caller: &Caller| send_as(&api, caller, Post, "_search", json!({"pit": {"id": point}}).to_string()).0;
    assert_eq!((page(&bob), search(&bob)), (404, 404), "to others it is not there");
    let close = json!({"id": point}).to_string();
    assert_eq!(send_as(&api, &bob, Delete, "_pit", close).0, 404);
    assert_eq!(send_as(&api, &bob, Get, "_search/point_in_time/_all", "").1["pits"], json!([]));
    assert_eq!(send_as(&api, &bob, Delete, "_search/scroll/_all", "").1["num_freed"], 0);
    assert_eq!((page(&ann), search(&ann)), (200, 200));
    revoke(&guard, Action::IndexRead, "index i", "ann").expect("revoked");
    assert_eq!((page(&ann), search(&ann)), (403, 403));
    grant(&guard, Action::IndexRead, "index *", "ann");
    assert_eq!((page(&ann), search(&ann)), (200, 200));
}

#[test]
fn a_request_by_query_ends_at_the_batch_after_the_right_was_revoked() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    for right in [Action::IndexRead, Action::IndexWrite] {
        grant(&guard, right, "index i", "ann");
    }
    for id in 0..50 {
        send(&api, Put, &format!("i/_doc/x{id}"), "{}");
    }
    send(&api, Post, "i/_refresh", "");
    let target = "i/_delete_by_query?scroll_size=1&requests_per_second=20&wait_for_completion=false";
    let (status, answer) = send_as(&api, &ann, Post, target, r#"{"query":{"match_all":{}}}"#);
    assert_eq!(status, 200, "{answer}");
    let task = answer["task"].as_str().expect("a task").to_owned();
    // Nobody else sees it without a right, and what it is about only with another one.
    let (_, bob) = user(&guard, "bob");
    let seen = |caller: &Caller| send_as(&api, caller, Get, &format!("_tasks/{task}"), "");
    let listed = |caller: &Caller| send_as(&api, caller, Get, "_tasks?detailed", "").1.to_string();
    assert_eq!(seen(&bob).0, 404);
    assert!(!listed(&bob).contains("byquery") && listed(&ann).contains("delete-by-query"));
    assert_eq!(send_as(&api, &bob, Post, &format!("_tasks/{task}/_cancel"), "").0, 404);
    grant(&guard, Action::SearchMonitor, "node", "bob");
    assert_eq!(seen(&bob).0, 200);
    assert!(listed(&bob).contains("byquery") && !listed(&bob).contains("delete-by-query"));
    assert_eq!(send_as(&api, &bob, Post, &format!("_tasks/{task}/_cancel"), "").0, 404);
    revoke(&guard, Action::IndexWrite, "index i", "ann").expect("revoked");
    let from = Instant::now();
    let ended = loop {
        let (_, answer) = seen(&ann);
        if answer["completed"] == true {
            break answer;
        }
        assert!(from.elapsed() < Duration::from_secs(1), "{answer}");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(ended["error"]["type"], "security_exception", "{ended}");
    assert_eq!(seen(&bob).0, 404, "results are their caller's");
    send(&api, Post, "i/_refresh", "");
    assert!(send(&api, Get, "i/_count", "").1["count"].as_u64().expect("a number") > 2);
}

#[test]
fn who_one_is_can_be_asked() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    let (status, answer) = send_as(&api, &ann, Get, "_security/_authenticate", "");
    assert_eq!((status, &answer["username"], &answer["authentication_type"]), (200, &json!("ann"), &json!("token")));
    let names: BTreeSet<String> = answer.as_object().expect("an object").keys().cloned().collect();
    assert!(names.contains("roles") && names.contains("authentication_realm"));
}
