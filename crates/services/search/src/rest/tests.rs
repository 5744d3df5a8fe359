//! The API without sockets: a request in, a response out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::MemoryShelf;
use node::identity::Caller;
use serde_json::{Value, json};
use store::{Options, Store};

use super::*;
use crate::indices::{Indices, IndicesOptions, Upkeep};
use crate::rights::testing::guard_with;

mod aliases;
mod audited;
mod limits;
mod messages;
mod partial;
mod parts;
mod refusals;
mod rights;

pub(super) fn api() -> (Api, Arc<Indices>) {
    let store = Store::in_memory(Options::default()).expect("a store in memory");
    let shelf = Arc::new(MemoryShelf::new());
    let options = IndicesOptions {
        store,
        shelf,
        capacity: None,
        file_bytes: 1 << 28,
        writer_bytes: 16 << 20,
        indices_max: 10,
        feeds: Vec::new(),
        reserved: vec![".node".to_owned()],
    };
    let indices = Indices::open(options).expect("opened");
    (Api::new(Arc::clone(&indices), guard_with(&[]), "node"), indices)
}

pub(super) fn send(api: &Api, method: RestMethod, target: &str, body: impl Into<bytes::Bytes>) -> (u16, Value) {
    send_as(api, &Caller::node(), method, target, body)
}

pub(super) fn send_as(
    api: &Api,
    caller: &Caller,
    method: RestMethod,
    target: &str,
    body: impl Into<bytes::Bytes>,
) -> (u16, Value) {
    let response = api.respond(&request(caller, method, target, body));
    let body = match response.body {
        RestBody::Json(body) => body,
        RestBody::RawJson(body) => serde_json::from_slice(&body).expect("it is JSON"),
        RestBody::Text(text) => json!(text),
    };
    (response.status, body)
}

fn request(caller: &Caller, method: RestMethod, target: &str, body: impl Into<bytes::Bytes>) -> RestRequest {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let parameters: BTreeMap<String, String> = pairs
        .map(|pair| {
            pair.split_once('=').map_or((pair.to_owned(), String::new()), |(a, b)| (a.to_owned(), b.to_owned()))
        })
        .collect();
    RestRequest {
        method,
        path: path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
        parameters,
        body: body.into(),
        caller: caller.clone(),
        opaque_id: None,
        cancelled: Arc::default(),
    }
}

#[test]
fn each_operation_of_a_bulk_request_has_its_own_result() {
    let (api, _) = api();
    let body = concat!(
        "{\"index\":{\"_id\":\"1\"}}\n{\"a\":1}\n",
        "{\"create\":{\"_id\":\"1\"}}\n{\"a\":2}\n",
        "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{\"b\":3}}\n",
        "{\"index\":{\"_id\":\"2\"}}\n{\"a\":\"no number\"}\n",
        "{\"delete\":{\"_id\":\"3\"}}\n",
        "{\"index\":{\"_id\":\"4\",\"_index\":\"Wrong\"}}\n{}\n",
    );
    let (status, answer) = send(&api, RestMethod::Post, "i/_bulk?refresh=true", body);
    assert_eq!((status, &answer["errors"]), (200, &json!(true)), "{answer}");
    let items = answer["items"].as_array().expect("a list");
    let statuses: Vec<u64> = items
        .iter()
        .map(|item| item.as_object().and_then(|item| item.values().next())?["status"].as_u64())
        .map(|status| status.expect("each has one"))
        .collect();
    assert_eq!(statuses, [201, 409, 200, 400, 404, 400], "{answer}");
    assert_eq!(send(&api, RestMethod::Get, "i/_source/1", "").1, json!({"a": 1, "b": 3}));
    assert_eq!(send(&api, RestMethod::Get, "i/_count", "").1["count"], 1);
}

#[test]
fn a_bulk_request_that_cannot_be_read_changes_nothing() {
    let (api, indices) = api();
    let one = "{\"delete\":{\"_index\":\"i\",\"_id\":\"1\"}}\n";
    for (body, named) in [
        (format!("{one}nonsense\n"), "Malformed action/metadata line [2]"),
        (format!("{one}{{}}\n"), "expected FIELD_NAME"),
        (format!("{one}{{\"index\":{{\"_index\":\"i\"}}}}\n{{\"a\":1}}"), "terminated by a newline"),
        ("\n\n".to_owned(), "no requests added"),
        (one.repeat(100_001), "at most 100000 operations"),
    ] {
        let (status, answer) = send(&api, RestMethod::Post, "_bulk", body);
        assert_eq!(status, 400);
        assert!(answer["error"]["reason"].as_str().expect("a text").contains(named), "{named}: {answer}");
    }
    assert!(indices.all().is_empty());
}

#[test]
fn a_scroll_gives_every_document_once_and_ends_with_its_index() {
    let (api, _) = api();
    for id in 0..25 {
        assert_eq!(send(&api, RestMethod::Put, &format!("i/_doc/{id}"), r#"{"t":"red"}"#).0, 201);
    }
    send(&api, RestMethod::Post, "_refresh", "");
    let (_, mut page) =
        send(&api, RestMethod::Post, "i/_search?scroll=1m", r#"{"size":10,"query":{"match":{"t":"red"}}}"#);
    let mut ids = Vec::new();
    loop {
        let hits = page["hits"]["hits"].as_array().expect("a list");
        if hits.is_empty() {
            break;
        }
        ids.extend(hits.iter().map(|hit| hit["_id"].as_str().expect("an id").to_owned()));
        let next = json!({"scroll_id": page["_scroll_id"], "scroll": "1m"}).to_string();
        page = send(&api, RestMethod::Post, "_search/scroll", next).1;
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 25);
    let (_, pit) = send(&api, RestMethod::Post, "i/_pit?keep_alive=1m", "");
    assert_eq!(send(&api, RestMethod::Delete, "i", "").0, 200);
    let search = json!({"pit": {"id": pit["id"]}}).to_string();
    assert_eq!(send(&api, RestMethod::Post, "_search", search).0, 404);
    assert_eq!(send(&api, RestMethod::Post, "_search/scroll", r#"{"scroll_id":"none"}"#).0, 404);
}

#[test]
fn who_waits_for_a_refresh_waits_a_moment_whatever_the_interval() {
    let (api, indices) = api();
    let upkeep = Upkeep::start(indices).expect("a thread");
    send(&api, RestMethod::Put, "i", r#"{"settings":{"refresh_interval":"1h"}}"#);
    let from = Instant::now();
    send(&api, RestMethod::Put, "i/_doc/1?refresh=wait_for", r#"{"a":1}"#);
    assert!(from.elapsed() < Duration::from_secs(30), "{:?}", from.elapsed());
    assert_eq!(send(&api, RestMethod::Get, "i/_count", "").1["count"], 1);
    upkeep.stop();
}

#[test]
fn what_is_not_there_or_not_built_is_refused_in_the_shape_that_clients_read() {
    let (api, _) = api();
    send(&api, RestMethod::Put, "i/_doc/1", r#"{"a":1}"#);
    use RestMethod::{Delete, Get, Post, Put};
    for (method, target, body, status, kind) in [
        (Get, "none/_search", "", 404, "index_not_found_exception"),
        (Get, "i/_doc", "", 400, "illegal_argument_exception"),
        (Put, "i", "", 400, "resource_already_exists_exception"),
        (Put, "A", "", 400, "invalid_index_name_exception"),
        (Put, "b", r#"{"mappings":{"properties":{"v":{"type":"dense_vector"}}}}"#, 400, "mapper_parsing_exception"),
        (Put, "b", r#"{"settings":{"colour":1}}"#, 400, "illegal_argument_exception"),
        (Put, "i/_alias/*", "", 400, "invalid_alias_name_exception"),
        (Put, "i/_alias/A,B", "", 400, "invalid_alias_name_exception"),
        (Delete, "*", "", 400, "illegal_argument_exception"),
        (Post, "i/_update/1", r#"{"script":"x"}"#, 400, "unsupported_operation_exception"),
        (Put, "i/_doc/1?pipeline=p", "{}", 400, "unsupported_operation_exception"),
        (Put, "i/_doc/1?if_seq_no=7&if_primary_term=1", "{}", 409, "version_conflict_engine_exception"),
        (Put, "i/_doc/2", "[1]", 400, "mapper_parsing_exception"),
        (Post, "i/_search", "{", 400, "parse_exception"),
        (Get, "_tasks/a:1", "", 404, "resource_not_found_exception"),
    ] {
        let (got, answer) = send(&api, method, target, body);
        assert_eq!((got, answer["error"]["type"].as_str()), (status, Some(kind)), "{method:?} {target}: {answer}");
        assert_eq!(answer["status"], status);
    }
}
