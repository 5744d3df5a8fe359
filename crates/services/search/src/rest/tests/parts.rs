//! Parts of searches and mappings, each with the response that shows what it does.

use super::*;

/// An index with these mappings and documents, refreshed.
fn filled(api: &Api, mappings: Value, documents: &[Value]) {
    let body = json!({"settings": {"number_of_shards": 5}, "mappings": {"properties": mappings}}).to_string();
    assert_eq!(send(api, RestMethod::Put, "i", body).0, 200);
    for (id, document) in documents.iter().enumerate() {
        let (status, answer) = send(api, RestMethod::Put, &format!("i/_doc/{id}"), document.to_string());
        assert_eq!(status, 201, "{answer}");
    }
    send(api, RestMethod::Post, "i/_refresh", "");
}

fn ids(api: &Api, body: Value) -> Vec<String> {
    let (status, answer) = send(api, RestMethod::Post, "i/_search", body.to_string());
    assert_eq!(status, 200, "{body}: {answer}");
    let hits = answer["hits"]["hits"].as_array().expect("a list");
    hits.iter().map(|hit| hit["_id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn collapsed_hits_are_the_best_of_each_value_whatever_the_page() {
    let (api, _) = api();
    let documents: Vec<Value> = (0..300).map(|n| json!({"group": n % 7, "n": n})).collect();
    filled(&api, json!({"group": {"type": "keyword"}}), &documents);
    let of = |from: usize, size: usize| json!({"from": from, "size": size, "sort": [{"n": "desc"}], "collapse": {"field": "group"}});
    assert_eq!(ids(&api, of(0, 10)), ["299", "298", "297", "296", "295", "294", "293"]);
    assert_eq!(ids(&api, of(5, 10)), ["294", "293"]);
    // Values that only the last documents have are found too.
    let (_, answer) = send(
        &api,
        RestMethod::Post,
        "i/_search",
        json!({
            "query": {"bool": {"should": [{"range": {"n": {"lt": 290}}}, {"term": {"n": 299}}]}}, "size": 2,
            "sort": ["n"], "collapse": {"field": "group", "inner_hits": {"name": "best", "size": 1, "sort": [{"n": "desc"}]}},
        })
        .to_string(),
    );
    assert_eq!(answer["hits"]["total"]["value"], 291);
    assert_eq!(answer["hits"]["hits"][0]["fields"]["group"], json!(["0"]));
    assert_eq!(answer["hits"]["hits"][0]["inner_hits"]["best"]["hits"]["hits"][0]["_id"], "287");
    for (collapse, named) in [
        (json!({"field": "nowhere"}), "no mapping found for `nowhere`"),
        (json!({"field": "group", "inner_hits": {"size": 1}}), "needs a [name]"),
        (json!({"colour": 1}), "[colour]"),
    ] {
        let body = json!({ "collapse": collapse }).to_string();
        let (status, answer) = send(&api, RestMethod::Post, "i/_search", body);
        assert_eq!(status, 400);
        assert!(answer["error"]["reason"].as_str().expect("a text").contains(named), "{named}: {answer}");
    }
}

#[test]
fn slices_of_a_scroll_have_every_document_once() {
    let (api, _) = api();
    let documents: Vec<Value> = (0..50).map(|n| json!({"n": n})).collect();
    filled(&api, json!({}), &documents);
    let mut all = Vec::new();
    for id in 0..3 {
        let body = json!({"size": 100, "slice": {"id": id, "max": 3}}).to_string();
        let (_, page) = send(&api, RestMethod::Post, "i/_search?scroll=1m", body);
        let hits = page["hits"]["hits"].as_array().expect("a list");
        assert!(hits.len() < 50);
        all.extend(hits.iter().map(|hit| hit["_id"].as_str().expect("an id").to_owned()));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 50);
    let outside = json!({"slice": {"id": 0, "max": 3}}).to_string();
    assert_eq!(send(&api, RestMethod::Post, "i/_search", outside).0, 400);
}

#[test]
fn a_document_is_found_by_the_routing_of_its_shard_alone() {
    let (api, _) = api();
    filled(&api, json!({}), &[]);
    use RestMethod::{Delete, Get, Post};
    assert_eq!(send(&api, RestMethod::Put, "i/_doc/1?routing=5", "{}").0, 201);
    for (method, target, body, status) in [
        (Get, "i/_doc/1?routing=5", "", 200),
        (Get, "i/_doc/1", "", 404),
        (Get, "i/_source/1", "", 404),
        (Post, "i/_update/1", r#"{"doc":{"a":1}}"#, 404),
        (Post, "i/_update/1", r#"{"doc":{"a":1},"doc_as_upsert":true}"#, 400),
        (Delete, "i/_doc/1", "", 404),
        (Post, "i/_update/1?routing=5", r#"{"doc":{"a":1}}"#, 200),
        (Delete, "i/_doc/1?routing=5", "", 200),
    ] {
        assert_eq!(send(&api, method, target, body).0, status, "{method:?} {target}");
    }
}

#[test]
fn what_is_kept_without_being_indexed_is_not_found_and_values_that_are_passed_over_are_named() {
    let (api, _) = api();
    let mappings = json!({
        "people": {"type": "nested", "properties": {"age": {"type": "long"}}}, "n": {"type": "long", "ignore_malformed": true},
        "kind": {"type": "constant_keyword", "value": "a"},
    });
    filled(&api, mappings, &[json!({"people": [{"age": 4}, {"age": 5}], "n": "none"}), json!({"n": 1, "kind": "a"})]);
    for (query, found) in [
        (json!({"term": {"people.age": 4}}), vec![]),
        (json!({"exists": {"field": "people"}}), vec![]),
        (json!({"term": {"kind": "a"}}), vec!["0", "1"]),
        (json!({"exists": {"field": "_ignored"}}), vec!["0"]),
        (json!({"term": {"_ignored": "n"}}), vec!["0"]),
    ] {
        assert_eq!(ids(&api, json!({ "query": query, "sort": ["_doc"] })), found, "{query}");
    }
    let (_, answer) = send(&api, RestMethod::Post, "i/_search", r#"{"sort":["_doc"]}"#);
    assert_eq!(answer["hits"]["hits"][0]["_ignored"], json!(["n"]));
    assert_eq!(answer["hits"]["hits"][0]["_source"]["people"][1]["age"], 5);
    for (method, target, body, status) in [
        (RestMethod::Put, "i/_doc/2", r#"{"people":{"age":"old"}}"#, 400),
        (RestMethod::Put, "i/_doc/2", r#"{"kind":"b"}"#, 400),
        (RestMethod::Post, "i/_search", r#"{"query":{"nested":{"path":"people","query":{"match_all":{}}}}}"#, 400),
    ] {
        assert_eq!(send(&api, method, target, body).0, status, "{body}");
    }
}

#[test]
fn a_lookup_of_terms_reads_one_document_and_groups_count_searches() {
    let (api, _) = api();
    filled(&api, json!({}), &[json!({"n": 0, "friends": [1, 2]}), json!({"n": 1}), json!({"n": 2})]);
    let lookup =
        |index: &str, id: &str| json!({"query": {"terms": {"n": {"index": index, "id": id, "path": "friends"}}}});
    assert_eq!(ids(&api, lookup("i", "0")), ["1", "2"]);
    assert!(ids(&api, lookup("i", "9")).is_empty());
    assert_eq!(send(&api, RestMethod::Post, "i/_search", lookup("none", "0").to_string()).0, 404);
    send(&api, RestMethod::Post, "i/_search", r#"{"stats":["a","b"]}"#);
    let (_, answer) = send(&api, RestMethod::Get, "i/_stats?groups=a", "");
    let groups = answer["_all"]["total"]["search"]["groups"].as_object().expect("groups");
    assert_eq!((groups.len(), &groups["a"]["query_total"]), (1, &json!(1)));
}

#[test]
fn intervals_are_found_by_their_rules_and_wrong_rules_are_refused() {
    let (api, _) = api();
    let documents = ["cold rain makes it wet", "outside it is cold and wet", "that is some cold cold rain"];
    filled(&api, json!({"t": {"type": "text"}}), &documents.map(|text| json!({ "t": text })));
    let of = |rule: Value| json!({"query": {"intervals": {"t": rule}}, "sort": ["_doc"]});
    for (rule, found) in [
        (json!({"match": {"query": "cold wet", "mode": "ordered"}}), vec!["0", "1"]),
        (json!({"match": {"query": "cold wet", "max_gaps": 1}}), vec!["1"]),
        (json!({"all_of": {"intervals": [{"prefix": {"prefix": "out"}}, {"fuzzy": {"term": "cald"}}]}}), vec!["1"]),
        (json!({"match": {"query": "cold", "filter": {"after": {"match": {"query": "outside"}}}}}), vec!["1"]),
        (
            json!({"any_of": {"intervals": [{"wildcard": {"pattern": "r?in"}}, {"regexp": {"pattern": "nowhere"}}]}}),
            vec!["0", "2"],
        ),
    ] {
        assert_eq!(ids(&api, of(rule.clone())), found, "{rule}");
    }
    for rule in [json!({}), json!({"near": {}}), json!({"match": {"query": "a", "max_gaps": -2}}), json!({"match": {}})]
    {
        assert_eq!(send(&api, RestMethod::Post, "i/_search", of(rule.clone()).to_string()).0, 400, "{rule}");
    }
}

#[test]
fn fields_are_listed_by_the_names_of_their_aliases_too() {
    let (api, _) = api();
    let properties = json!({"k": {"type": "keyword"}, "other": {"type": "alias", "path": "k"}});
    let body = json!({"mappings": {"properties": properties}}).to_string();
    assert_eq!(send(&api, RestMethod::Put, "a", body).0, 200);
    let fields = &send(&api, RestMethod::Get, "a/_field_caps?fields=*", "").1["fields"];
    for name in ["k", "other"] {
        assert_eq!(fields[name]["keyword"]["aggregatable"], true, "{fields}");
    }
    let fields = &send(&api, RestMethod::Get, "a/_field_caps?fields=ot*", "").1["fields"];
    assert_eq!(fields.as_object().map(serde_json::Map::len), Some(1), "{fields}");
}
