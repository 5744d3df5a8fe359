//! Changes of several aliases are one, and bounded.

use std::sync::atomic::{AtomicBool, Ordering};

use RestMethod::{Get, Post, Put};

use super::*;
use crate::indices::ResolveOptions;
use crate::rights::testing::node;

fn actions(actions: &[Value]) -> String {
    json!({ "actions": actions }).to_string()
}

fn swap(from: &str, to: &str) -> String {
    actions(&[
        json!({"remove": {"index": from, "alias": "cur"}}),
        json!({"add": {"index": to, "alias": "cur", "is_write_index": true}}),
    ])
}

#[test]
fn a_swap_of_an_alias_has_no_moment_without_it() {
    let (api, indices) = api();
    for name in ["a", "b"] {
        assert_eq!(send(&api, Put, name, "").0, 200);
    }
    assert_eq!(send(&api, Post, "_aliases", actions(&[json!({"add": {"index": "a", "alias": "cur"}})])).0, 200);
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let look = || {
            let mut looks = 0;
            while !ended.load(Ordering::Relaxed) || looks == 0 {
                let found = indices.resolve("cur", ResolveOptions::default(), &node());
                let found = found.unwrap_or_else(|error| panic!("it is always there: {error}"));
                assert_eq!(found.len(), 1, "{found:?}");
                let writer = indices.for_write("cur", false, &node());
                writer.unwrap_or_else(|error| panic!("one of them takes writes: {error}"));
                looks += 1;
            }
        };
        let watchers = [threads.spawn(look), threads.spawn(look)];
        for round in 0..200 {
            let body = if round % 2 == 0 { swap("a", "b") } else { swap("b", "a") };
            assert_eq!(send(&api, Post, "_aliases", body).0, 200);
        }
        ended.store(true, Ordering::Relaxed);
        watchers.into_iter().for_each(|watcher| watcher.join().expect("it saw the alias all the time"));
    });
    assert!(indices.get("cur").is_none(), "no write made an index of that name");
}

#[test]
fn all_changes_of_a_request_are_made_or_none() {
    let (api, _) = api();
    for name in ["a", "b"] {
        assert_eq!(send(&api, Put, name, "").0, 200);
    }
    let many = |count: usize, index: &str| -> String {
        let action = |n: usize| json!({"add": {"index": index, "alias": format!("n{n}")}});
        actions(&(0..count).map(action).collect::<Vec<_>>())
    };
    let filter = "x".repeat(1 << 20);
    let large =
        |n: usize| json!({"add": {"indices": ["a", "b"], "alias": format!("f{n}"), "filter": {"term": {"k": filter}}}});
    let refused = [
        (actions(&[json!({"add": {"index": "a", "alias": "x"}}), json!({"add": {"index": "b", "alias": "a"}})]), "a"),
        (
            actions(&[
                json!({"add": {"index": "a", "alias": "x"}}),
                json!({"add": {"index": "b", "alias": "y", "routing": "1"}}),
            ]),
            "routing",
        ),
        (many(1001, "a"), "at most 1000"),
        (many(600, "*"), "at most 1000"),
        (actions(&(0..9).map(large).collect::<Vec<_>>()), "at most 1000"),
        (actions(&[json!({"add": {"index": "a", "aliases": vec!["x"; 1001]}})]), "at most 1000"),
    ];
    for (body, named) in refused {
        let (status, answer) = send(&api, Post, "_aliases", body);
        assert_eq!(status, 400, "{answer}");
        assert!(answer["error"]["reason"].as_str().is_some_and(|reason| reason.contains(named)), "{answer}");
        let shown = send(&api, Get, "_alias", "").1;
        assert_eq!(shown, json!({"a": {"aliases": {}}, "b": {"aliases": {}}}), "{named}");
    }
    assert_eq!(send(&api, Post, "_aliases", many(1000, "a")).0, 200);
    let (status, answer) = send(&api, Put, "a/_alias/more", "");
    assert_eq!(status, 400, "{answer}");
    assert!(answer["error"]["reason"].as_str().is_some_and(|reason| reason.contains("1001 aliases")), "{answer}");
    assert_eq!(send(&api, Put, "a/_alias/n7", "{}").0, 200, "one that is there may change");
    assert_eq!(send(&api, RestMethod::Delete, "a/_alias/n*", "").0, 200);
    assert_eq!(send(&api, Get, "a/_alias", "").1, json!({"a": {"aliases": {}}}));
}

#[test]
fn what_would_make_an_alias_useless_or_half_of_a_request_is_refused() {
    let (api, _) = api();
    for name in ["a", "b", "c"] {
        assert_eq!(send(&api, Put, name, "").0, 200);
    }
    let writer = |index: &str| json!({"add": {"index": index, "alias": "w", "is_write_index": true}});
    let remove = |index: &str| json!({"remove_index": {"index": index}});
    for (body, named) in [
        (vec![json!({"add": {"index": "a", "alias": "x", "filter": {"foo": {}}}})], "failed to parse filter"),
        (vec![writer("a"), writer("b")], "more than one write index [a,b]"),
        (vec![remove("a"), json!({"add": {"index": "b", "alias": "x"}})], "[remove_index]"),
        (vec![remove("a"), remove("b")], "[remove_index]"),
        (vec![json!({"remove_index": {"indices": ["a", "b"]}})], "[remove_index]"),
    ] {
        let (status, answer) = send(&api, Post, "_aliases", actions(&body));
        let said = answer["error"]["reason"].as_str().unwrap_or_default();
        assert!(status == 400 && said.contains(named), "{answer}");
    }
    assert_eq!(send(&api, Post, "_aliases", actions(&[writer("a")])).0, 200);
    let other = json!({"aliases": {"w": {"is_write_index": true}}}).to_string();
    for (path, body) in [("b/_alias/w", json!({"is_write_index": true}).to_string()), ("d", other)] {
        assert_eq!(send(&api, Put, path, body).0, 400, "{path}");
    }
    assert_eq!(send(&api, Get, "d", "").0, 404, "nothing was made");
    let moved = [json!({"add": {"index": "a", "alias": "w", "is_write_index": false}}), writer("b")];
    assert_eq!(send(&api, Post, "_aliases", actions(&moved)).0, 200, "the writer moves");
    assert_eq!(send(&api, Post, "_aliases", actions(&[remove("c")])).0, 200);
    assert_eq!(send(&api, Get, "c", "").0, 404);
}
