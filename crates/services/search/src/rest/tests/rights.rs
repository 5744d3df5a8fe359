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

#[test]
fn who_writes_and_may_not_read_learns_nothing_of_what_is_stored() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    grant(&guard, Action::IndexWrite, "index i", "ann");
    let update =
        |doc: &str| send_as(&api, &ann, Post, "i/_update/1", format!(r#"{{"doc":{doc}}}"#)).1["result"].clone();
    let bulk = |line: &str, doc: &str| {
        let (_, answer) = send_as(&api, &ann, Post, "i/_bulk", format!("{line}\n{doc}\n"));
        answer["items"][0].as_object().and_then(|item| item.values().next()).cloned().expect("an item")
    };
    let in_bulk = |doc: &str| bulk(r#"{"update":{"_id":"1"}}"#, &format!(r#"{{"doc":{doc}}}"#))["result"].clone();
    let conditional = "i/_doc/1?if_seq_no=0&if_primary_term=1";
    let line = r#"{"index":{"_id":"1","if_seq_no":0,"if_primary_term":1}}"#;
    for (equal, other) in [(r#"{"a":1}"#, r#"{"a":3}"#), (r#"{"a":3}"#, r#"{"a":1}"#)] {
        assert_eq!((update(equal), update(other)), (json!("updated"), json!("updated")));
    }
    assert_eq!((in_bulk(r#"{"a":1}"#), in_bulk(r#"{"a":1}"#)), (json!("updated"), json!("updated")));
    assert_eq!(send_as(&api, &ann, Put, conditional, "{}").0, 403);
    assert_eq!(send_as(&api, &ann, Delete, conditional, "").0, 403);
    assert_eq!(bulk(line, "{}")["status"], 403);
    grant(&guard, Action::IndexRead, "index i", "ann");
    assert_eq!((update(r#"{"a":1}"#), in_bulk(r#"{"a":1}"#)), (json!("noop"), json!("noop")));
    assert_eq!(send_as(&api, &ann, Put, conditional, "{}").0, 409);
    assert_eq!(bulk(line, "{}")["status"], 409);
}

#[test]
fn counts_of_an_alias_are_those_of_its_filter() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    assert_eq!(send(&api, Put, "i/_alias/reds", r#"{"filter":{"term":{"t":"red"}}}"#).0, 200);
    grant(&guard, Action::IndexRead, "index reds", "ann");
    for names in ["/reds", "/*", ""] {
        let (status, table) = send_as(&api, &ann, Get, &format!("_cat/count{names}?h=count"), "");
        assert_eq!((status, table.as_str().map(str::trim)), (200, Some("1")), "{names}");
        assert_eq!(send_as(&api, &ann, Get, &format!("{names}/_count"), "").1["count"], 1, "{names}");
    }
}

#[test]
fn a_right_that_is_revoked_while_a_request_runs_is_not_used_by_its_next_part() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    grant(&guard, Action::IndexWrite, "index *", "ann");
    let asker = crate::rights::Asker::new(&guard, ann, "test", &[Action::IndexWrite]);
    assert!(api.indices.for_write("i", false, &asker).is_ok());
    revoke(&guard, Action::IndexWrite, "index *", "ann").expect("revoked");
    assert_eq!(asker.still().expect_err("what it used is gone").status, 403);
    assert_eq!(api.indices.for_write("gone", false, &asker).expect_err("decided by the rights of now").status, 403);
}

#[test]
fn one_role_does_not_take_the_places_of_others_and_loses_its_own_with_its_login() {
    let (api, guard) = bed();
    let ((_, ann), (_, bob)) = (user(&guard, "ann"), user(&guard, "bob"));
    for name in ["ann", "bob"] {
        grant(&guard, Action::IndexRead, "index i", name);
    }
    let open = |caller: &Caller| send_as(&api, caller, Post, "i/_pit?keep_alive=1h", "");
    let opened = (0..60).map(|_| open(&ann)).take_while(|(status, _)| *status == 200).count();
    assert_eq!(opened, 50);
    let (status, answer) = open(&ann);
    assert_eq!((status, &answer["error"]["type"]), (429, &json!("es_rejected_execution_exception")), "{answer}");
    assert!(answer["error"]["reason"].as_str().is_some_and(|reason| reason.contains("user [ann]")), "{answer}");
    assert_eq!(send_as(&api, &ann, Post, "i/_search?scroll=1m", "{}").0, 429);
    assert_eq!(open(&bob).0, 200);
    let locked =
        IdentityChange::Set { role: "ann".to_owned(), changes: vec![AttributeChange::Locked(Some("test".to_owned()))] };
    guard.change(&Caller::node(), &[locked]).expect("locked");
    assert_eq!(send(&api, Get, "", "").0, 200);
    assert_eq!(format!("{:?}", api.contexts), "Contexts { open: 1 }");
}

#[test]
fn scrolls_and_points_in_time_over_no_indices_take_no_place_and_have_no_hits() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    for _ in 0..60 {
        let (status, page) = send_as(&api, &ann, Post, "none*/_search?scroll=1m", "{}");
        assert_eq!(status, 200, "{page}");
        let next = json!({"scroll_id": page["_scroll_id"], "scroll": "1m"}).to_string();
        let (status, page) = send_as(&api, &ann, Post, "_search/scroll", next.clone());
        assert_eq!((status, &page["hits"]["total"]["value"], &page["hits"]["hits"]), (200, &json!(0), &json!([])));
        assert_eq!(
            send_as(&api, &ann, Delete, "_search/scroll", json!({"scroll_id": page["_scroll_id"]}).to_string()).0,
            200
        );
        let (_, point) = send_as(&api, &ann, Post, "none*/_pit?keep_alive=1m", "");
        let (status, found) = send_as(&api, &ann, Post, "_search", json!({"pit": {"id": point["id"]}}).to_string());
        assert_eq!((status, &found["hits"]["hits"]), (200, &json!([])), "{found}");
    }
    assert_eq!(format!("{:?}", api.contexts), "Contexts { open: 0 }");
}

#[test]
fn a_body_is_not_read_for_who_may_not_send_it() {
    let (api, guard) = bed();
    let (_, ann) = user(&guard, "ann");
    let admitted = |method: RestMethod, target: &str| {
        use crate::rest::RestHandler as _;
        api.admit(&request(&ann, method, target, "")).map_err(|refusal| refusal.status)
    };
    const SMALL: usize = 64 << 10;
    for (method, target) in [
        (Post, "_bulk"),
        (Post, "i/_bulk"),
        (Put, "i/_doc/1"),
        (Put, "there_is_none/_doc/1"),
        (Post, "i/_search"),
        (Post, "*/_search"),
        (Post, "_msearch"),
        (Post, "_reindex"),
        (Put, "made"),
        (Put, "_cluster/settings"),
        (Put, "_index_template/t"),
    ] {
        assert_eq!(admitted(method, target), Err(403), "{target}");
    }
    for (method, target) in [(Post, "_search/scroll"), (Delete, "_pit"), (Post, "_analyze"), (Post, "_nothing/at/all")]
    {
        assert_eq!(admitted(method, target), Ok(SMALL), "{target}");
    }
    grant(&guard, Action::IndexWrite, "index i", "ann");
    for (target, expected) in
        [("_bulk", Ok(usize::MAX)), ("i/_doc/1", Ok(usize::MAX)), ("other/_doc/1", Err(403)), ("i/_search", Err(403))]
    {
        assert_eq!(admitted(Post, target), expected, "{target}");
    }
}
