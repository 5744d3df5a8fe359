//! What is in the audit: changes before they are made, what failed and what was refused, and every way to read a message.

use node::audit::{AuditEntry, AuditOutcome};
use node::identity::Action;

use super::messages::Bed;
use super::*;
use crate::rest::RestMethod::{self, Delete, Get, Post, Put};
use crate::rights::testing::{grant, user};

/// Changes whose use of a right is recorded, each with the action and the object of its entry.
const CHANGES: &[(RestMethod, &str, &str, &str, &str)] = &[
    (Put, "i/_mapping", r#"{"properties":{"new":{"type":"long"}}}"#, "search.index-manage", "index i"),
    (Put, "i/_settings", r#"{"refresh_interval":"5s"}"#, "search.index-manage", "index i"),
    (Put, "i/_alias/b", "", "search.index-manage", "index i"),
    (Post, "_aliases", r#"{"actions":[{"add":{"index":"i","alias":"c"}}]}"#, "search.index-manage", "index i"),
    (Delete, "i/_alias/a", "", "search.index-manage", "index i"),
    (Put, "_index_template/t", r#"{"index_patterns":["zz"]}"#, "search.search-manage", "node"),
    (Put, "_cluster/settings", r#"{"persistent":{"search.max_buckets":9}}"#, "search.search-manage", "node"),
    (Put, "made", "", "search.index-make", "index made"),
    (Put, "written/_doc/1", "{}", "search.index-make", "index written"),
    (Post, "_bulk", "{\"index\":{\"_index\":\"bulk\",\"_id\":\"1\"}}\n{}\n", "search.index-make", "index bulk"),
    (Post, "_reindex", r#"{"source":{"index":"i"},"dest":{"index":"copy"}}"#, "search.index-make", "index copy"),
    (Post, "i/_flush", "", "search.index-manage", "index i"),
    (Post, "i/_forcemerge", "", "search.index-manage", "index i"),
    (Post, "i/_close", "", "search.index-manage", "index i"),
    (Delete, "gone", "", "search.index-manage", "index gone"),
];

/// A bed with the indices `i`, which has the alias `a`, and `gone`.
fn bed() -> Bed {
    let mut bed = Bed::new();
    let audit = bed.api.audit.take();
    assert_eq!(send(&bed.api, Put, "i/_doc/1?refresh=true", r#"{"n":1}"#).0, 201);
    assert_eq!(send(&bed.api, Put, "i/_alias/a", "").0, 200);
    assert_eq!(send(&bed.api, Put, "gone", "").0, 200);
    bed.api.audit = audit;
    bed
}

fn state(api: &Api) -> Value {
    let all = ["_all", "_index_template", "_cluster/settings"].map(|target| send(api, Get, target, "").1);
    Value::Array(all.into())
}

#[test]
fn a_change_has_a_durable_entry_before_it_is_made_and_is_not_made_without_one() {
    let mut bed = bed();
    let before = state(&bed.api);
    let audit = bed.api.audit.replace(bed.full_audit());
    for (method, target, body, ..) in CHANGES {
        let (status, answer) = send(&bed.api, *method, target, *body);
        assert!(status == 503 || answer.to_string().contains("takes no entry"), "{method:?} {target}: {answer}");
        assert_eq!(state(&bed.api), before, "{method:?} {target}");
    }
    bed.api.audit = audit;
    for (method, target, body, action, object) in CHANGES {
        let from = bed.entries().len();
        let (status, answer) = send(&bed.api, *method, target, *body);
        assert!(status < 300, "{method:?} {target}: {answer}");
        let entries = bed.entries().split_off(from);
        let found = entries.iter().filter(|entry| entry.action == *action && entry.object == *object);
        let outcomes: Vec<AuditOutcome> = found.map(|entry| entry.outcome).collect();
        assert_eq!(outcomes, [AuditOutcome::Granted], "{method:?} {target}: {entries:?}");
    }
}

#[test]
fn a_change_that_fails_has_a_second_entry_and_one_that_is_refused_has_one() {
    let bed = bed();
    let (_, ann) = user(&bed.api.guard, "ann");
    grant(&bed.api.guard, Action::IndexMake, "index i", "ann");
    assert_eq!(send_as(&bed.api, &ann, Put, "i", "").0, 400, "it is there");
    let entries = bed.entries();
    let [granted, failed] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(
        (granted.outcome, &*granted.action, &*granted.object),
        (AuditOutcome::Granted, "search.index-make", "index i")
    );
    assert_eq!((failed.outcome, failed.details["entry"].as_str()), (AuditOutcome::Failed, "1"), "{failed:?}");
    assert!(failed.reason.contains("already exists"), "{failed:?}");
    for (method, target, action, object) in [
        (Put, "other", "search.index-make", "index other"),
        (Delete, "i", "search.index-manage", "index i"),
        (Put, "_index_template/t", "search.search-manage", "node"),
        (Get, ".messages/_doc/1", "", ""),
        (Get, "i/_doc/1", "", ""),
    ] {
        let before = bed.entries().len();
        assert_eq!(send_as(&bed.api, &ann, method, target, "{}").0, 403, "{target}");
        let entries = bed.entries().split_off(before);
        let refused: Vec<(AuditOutcome, &str, &str, &str)> =
            entries.iter().map(|entry| (entry.outcome, &*entry.actor.name, &*entry.action, &*entry.object)).collect();
        let expected: &[_] = &[(AuditOutcome::Refused, "ann", action, object)];
        assert_eq!(refused, if action.is_empty() { &expected[1..] } else { expected }, "{target}");
    }
    grant(&bed.api.guard, Action::IndexRead, "index .messages", "ann");
    let (_, answer) = send_as(&bed.api, &ann, Get, ".messages/_doc/1", "");
    let reason = answer["error"]["reason"].as_str().expect("a reason");
    assert!(reason.ends_with(r#"terrace role grant message-body unmasked --on "service *" --to ann"#), "{answer}");
    let newest = bed.newest().expect("an entry");
    assert_eq!((newest.outcome, &*newest.action), (AuditOutcome::Refused, "message.body"), "{newest:?}");
}

#[test]
fn a_flood_of_refusals_does_not_fill_the_audit() {
    let bed = bed();
    let (_, ann) = user(&bed.api.guard, "ann");
    for number in 0..200 {
        assert_eq!(send_as(&bed.api, &ann, Put, &format!("x{number}"), "").0, 403);
    }
    assert!((1..=40).contains(&bed.entries().len()), "{}", bed.entries().len());
}

/// A bed whose user `ann` may read messages.
fn reading() -> (Bed, Caller) {
    let bed = Bed::new();
    let (_, ann) = user(&bed.api.guard, "ann");
    for right in [Action::IndexRead, Action::IndexWrite, Action::IndexMake] {
        grant(&bed.api.guard, right, "index *", "ann");
    }
    grant(&bed.api.guard, Action::MessageBody, "service *", "ann");
    grant(&bed.api.guard, Action::Unmasked, "service *", "ann");
    (bed, ann)
}

#[test]
fn every_way_to_read_a_message_is_recorded_whatever_the_response_looks_like() {
    let (bed, ann) = reading();
    let search = |body: Value| send_as(&bed.api, &ann, Post, ".messages/_search", body.to_string());
    let bare = json!({"stored_fields": "_none_", "docvalue_fields": ["number"]});
    let top = |hits: Value| json!({"size": 0, "aggs": {"t": {"top_hits": hits}}});
    let per_number = json!({"terms": {"field": "number"}, "aggs": {"t": {"top_hits": {"size": 1}}}});
    for (body, reads, aggregates) in [
        (json!({}), 3, false),
        (json!({"_source": false}), 3, false),
        (bare, 3, false),
        (
            json!({"_source": false, "query": {"match": {"text": "secret"}}, "highlight": {"fields": {"text": {}}}}),
            3,
            false,
        ),
        (json!({"_source": false, "fields": ["text"], "size": 2}), 2, false),
        (json!({"collapse": {"field": "number", "inner_hits": {"name": "n"}}}), 3, false),
        (top(json!({"_source": false, "size": 2})), 2, true),
        (json!({"size": 0, "aggs": {"n": per_number}}), 3, true),
        (json!({"size": 0, "aggs": {"n": {"terms": {"field": "number"}}}}), 0, true),
        (json!({"size": 0, "query": {"match": {"text": "secret"}}}), 0, false),
    ] {
        let before = bed.entries().len();
        let (status, answer) = search(body.clone());
        assert_eq!(status, 200, "{body}: {answer}");
        let entries = bed.entries().split_off(before);
        let [entry] = &entries[..] else { panic!("{body}: {entries:?}") };
        let action = if reads > 0 { "message.body" } else { "message.search" };
        assert_eq!((&*entry.action, entry.reads.count), (action, reads), "{body}: {entry:?}");
        assert_eq!(entry.details.contains_key("aggregates"), aggregates, "{body}");
        assert_eq!(query_in(entry), body.to_string());
    }
    // A page of a scroll and a search in a point in time belong to their own requests.
    let (_, page) = send_as(&bed.api, &ann, Post, ".messages/_search?scroll=1m", r#"{"size":2,"_source":false}"#);
    assert_eq!(bed.newest().expect("an entry").reads.ranges, [(1, 2)]);
    send_as(&bed.api, &ann, Post, "_search/scroll", json!({"scroll_id": page["_scroll_id"]}).to_string());
    assert_eq!(bed.newest().expect("an entry").reads.ranges, [(3, 3)]);
    let (_, point) = send_as(&bed.api, &ann, Post, ".messages/_pit?keep_alive=1m", "");
    let in_point = json!({"pit": {"id": point["id"]}, "stored_fields": "_none_"}).to_string();
    send_as(&bed.api, &ann, Post, "_search", in_point);
    assert_eq!(bed.newest().expect("an entry").reads.ranges, [(1, 3)]);
}

fn query_in(entry: &AuditEntry) -> String {
    let names = (1..).map(|part| if part == 1 { "query".to_owned() } else { format!("query part {part}") });
    names.map_while(|name| entry.details.get(&name).cloned()).collect()
}

#[test]
fn a_search_of_messages_that_fails_is_recorded_too_and_a_long_query_is_whole() {
    let (bed, ann) = reading();
    let long = "a".repeat(1_500);
    for (body, outcome) in [
        (json!({"docvalue_fields": ["text"]}), AuditOutcome::Failed),
        (json!({"query": {"nonsense": {}}}), AuditOutcome::Failed),
        (json!({"query": {"match": {"text": long}}}), AuditOutcome::Granted),
    ] {
        let before = bed.entries().len();
        let (status, answer) = send_as(&bed.api, &ann, Post, ".messages/_search", body.to_string());
        assert_eq!(status == 200, outcome == AuditOutcome::Granted, "{answer}");
        let entries = bed.entries().split_off(before);
        let [entry] = &entries[..] else { panic!("{body}: {entries:?}") };
        assert_eq!((entry.outcome, query_in(entry)), (outcome, body.to_string()), "{entry:?}");
    }
}

#[test]
fn an_administrator_that_gave_itself_the_right_is_seen_in_the_entry() {
    use node::identity::{AttributeChange, IdentityChange, ObjectPattern, Privileges};
    let bed = Bed::new();
    let guard = &bed.api.guard;
    let (_, ann) = user(guard, "ann");
    let changes = vec![AttributeChange::Administrator(true)];
    guard.change(&Caller::node(), &[IdentityChange::Set { role: "ann".to_owned(), changes }]).expect("set");
    let privileges = Privileges {
        actions: vec![Action::MessageBody, Action::Unmasked],
        object: ObjectPattern::parse("service *").expect("it is one"),
        columns: Vec::new(),
        grantee: "ann".to_owned(),
    };
    guard.change(&ann, &[IdentityChange::Grant { privileges, grant_option: false }]).expect("granted");
    assert_eq!(send_as(&bed.api, &ann, Get, ".messages/_doc/2", "").0, 200);
    let entry = bed.newest().expect("an entry");
    assert_eq!(entry.details.get("self_granted").map(String::as_str), Some("yes"), "{entry:?}");
}
