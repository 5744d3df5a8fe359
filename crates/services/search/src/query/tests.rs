//! Queries against a small index in memory: which documents they find, how they score, and what is refused.

mod expansions;

use serde_json::json;
use tantivy::collector::{Count, TopDocs};
use tantivy::{Index, IndexWriter};

use super::*;
use crate::analysis::Analyzers;
use crate::document::IndexedDocument;
use crate::mapping::Mapping;
use crate::schema::{OwnFields, of_mapping};
use crate::view::QueryBounds;

/// 2024-03-15T12:00:00Z
const NOW: QueryContext = QueryContext { now: 1_710_504_000_000, stop: None, cheap: false };

struct Shelf {
    view: IndexView,
    ids: Vec<&'static str>,
}

/// Documents of every kind of field. `_seq` is the document's place in `ids`.
fn shelf() -> Shelf {
    let mapping = json!({"properties": {
        "title": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
        "body": {"type": "text"},
        "stopped": {"type": "text", "analyzer": "stop"},
        "tag": {"type": "keyword"},
        "low": {"type": "keyword", "normalizer": "lowercase"},
        "n": {"type": "integer"},
        "big": {"type": "long"},
        "u": {"type": "unsigned_long"},
        "quiet": {"type": "long", "index": false},
        "f": {"type": "float"},
        "d": {"type": "double"},
        "ok": {"type": "boolean"},
        "at": {"type": "date"},
        "ip": {"type": "ip"},
        "hidden": {"type": "keyword", "index": false, "doc_values": false},
        "o": {"properties": {"x": {"type": "keyword"}, "y": {"type": "long"}}},
        "other": {"type": "alias", "path": "tag"}
    }});
    let documents = [
        (
            "1",
            json!({"title": "The quick brown fox", "body": "jumps over the lazy dog", "tag": "red", "n": 1, "f": 1.1,
            "at": "2024-01-01T10:00:00Z", "ip": "10.0.0.1", "ok": true, "low": "ABC", "quiet": 5, "o": {"x": "a"}}),
        ),
        (
            "2",
            json!({"title": "Quick silver", "body": "quick quick fox", "tag": ["red", "blue"], "n": 2, "f": 2.5,
            "at": "2024-01-01T23:59:59.999Z", "ip": "10.0.1.7", "ok": false, "low": "abd", "quiet": 6, "o": {"y": 3}}),
        ),
        (
            "3",
            json!({"title": "A brown bear", "body": "sleeps", "tag": "green", "n": -3, "big": 9_007_199_254_740_993_i64,
            "u": u64::MAX, "d": -0.5, "at": "2024-01-02", "ip": "2001:db8::1", "stopped": "the fox"}),
        ),
        ("4", json!({"title": "brown the fox", "tag": "re*d", "n": 40, "at": "2024-03-15T11:30:00Z", "hidden": "x"})),
        ("5", json!({"body": "caf\u{e9} con leche", "tag": "", "d": 2.0})),
    ];
    let mapping = Mapping::empty().merged(&mapping).expect("a mapping");
    let analyzers = Analyzers::default();
    let schema = of_mapping(&mapping, 2);
    let index = Index::create_in_ram(schema.clone());
    crate::schema::register(&index).expect("its texts are packed");
    let mut writer: IndexWriter = index.writer_with_num_threads(1, 20_000_000).expect("a writer");
    for (seq, (id, source)) in documents.iter().enumerate() {
        let source = source.as_object().expect("an object");
        let document = IndexedDocument::read_again(&mapping, &analyzers, &schema, (id, seq as u64), source);
        writer.add_document(document.expect("a document")).expect("room");
        // Two segments, so that nothing holds for one alone.
        if seq == 2 {
            writer.commit().expect("a commit");
        }
    }
    writer.commit().expect("a commit");
    let searcher = index.reader().expect("a reader").searcher();
    let view = IndexView {
        name: "shelf".to_owned(),
        mapping: mapping.into(),
        analyzers: analyzers.into(),
        searcher,
        own: OwnFields::of(&schema),
        bounds: QueryBounds::default(),
        used: Arc::default(),
        schema,
        zones: Arc::default(),
    };
    Shelf { view, ids: documents.iter().map(|(id, _)| *id).collect() }
}

impl Shelf {
    /// Ids and scores, the best first.
    fn scored(&self, dsl: &Value) -> Vec<(&'static str, f32)> {
        let query = build(&self.view, dsl, &NOW).unwrap_or_else(|error| panic!("{dsl}: {error}"));
        let searcher = &self.view.searcher;
        let found = searcher.search(&query, &TopDocs::with_limit(10).order_by_score()).expect("a search");
        assert_eq!(searcher.search(&query, &Count).expect("a count"), found.len(), "{dsl}: counted and scored");
        let id = |segment: u32, doc: u32| {
            let column = searcher.segment_reader(segment).fast_fields().u64("_seq").expect("every index has it");
            self.ids[column.first(doc).expect("every document has it") as usize]
        };
        found.into_iter().map(|(score, at)| (id(at.segment_ord, at.doc_id), score)).collect()
    }

    fn found(&self, dsl: &Value) -> String {
        let mut ids: Vec<&str> = self.scored(dsl).into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids.join(" ")
    }

    fn all_find(&self, cases: Vec<(Value, &str)>) {
        for (dsl, expected) in cases {
            assert_eq!(self.found(&dsl), expected, "{dsl}");
        }
    }

    fn refused(&self, dsl: &Value) -> SearchError {
        match build(&self.view, dsl, &NOW) {
            Ok(query) => panic!("{}: {query:?}", dsl.to_string().chars().take(200).collect::<String>()),
            Err(error) => error,
        }
    }
}

#[test]
fn terms_are_taken_as_they_are() {
    shelf().all_find(vec![
        (json!({"term": {"title": "quick"}}), "1 2"),
        (json!({"term": {"title": "Quick"}}), ""),
        (json!({"term": {"title": {"value": "QUICK", "case_insensitive": true}}}), "1 2"),
        (json!({"term": {"title.raw": "Quick silver"}}), "2"),
        (json!({"term": {"tag": {"value": "red", "boost": 2}}}), "1 2"),
        (json!({"term": {"other": "blue"}}), "2"),
        (json!({"term": {"tag": ""}}), "5"),
        (json!({"term": {"low": "aBc"}}), "1"),
        (json!({"term": {"n": "2"}}), "2"),
        (json!({"term": {"n": 2.0}}), "2"),
        (json!({"term": {"n": 1.5}}), ""),
        (json!({"term": {"n": 99_999_999_999_i64}}), ""),
        (json!({"term": {"big": 9_007_199_254_740_993_i64}}), "3"),
        (json!({"term": {"big": 9_007_199_254_740_992_i64}}), ""),
        (json!({"term": {"u": u64::MAX}}), "3"),
        (json!({"term": {"u": -1}}), ""),
        (json!({"term": {"quiet": 5}}), "1"),
        (json!({"term": {"f": 1.1}}), "1"),
        (json!({"term": {"ok": "true"}}), "1"),
        (json!({"term": {"ok": false}}), "2"),
        (json!({"term": {"at": "2024-01-01"}}), "1 2"),
        (json!({"term": {"at": "2024-01-01T10:00:00Z"}}), "1"),
        (json!({"term": {"ip": "10.0.0.1"}}), "1"),
        (json!({"term": {"ip": "10.0.0.0/16"}}), "1 2"),
        (json!({"term": {"ip": "::/0"}}), "1 2 3"),
        (json!({"term": {"nobody": 1}}), ""),
        (json!({"term": {"_id": "4"}}), "4"),
        (json!({"term": {"_index": "shelf"}}), "1 2 3 4 5"),
        (json!({"term": {"_index": "table"}}), ""),
        (json!({"terms": {"tag": ["blue", "green", "none"]}}), "2 3"),
        (json!({"terms": {"n": [1, "40", 1.5]}}), "1 4"),
        (json!({"terms": {"quiet": [5, 6]}}), "1 2"),
        (json!({"terms": {"ip": ["10.0.1.7", "2001:db8::/32"]}}), "2 3"),
        (json!({"terms": {"at": ["2024-01-02", "2024-01-02", "2024-03"]}}), "3 4"),
        (json!({"terms": {"tag": []}}), ""),
        (json!({"terms": {"_id": ["1", "3", "9"]}}), "1 3"),
        (json!({"ids": {"values": ["2", "5"]}}), "2 5"),
        (json!({"ids": {"values": []}}), ""),
    ]);
}

#[test]
fn ranges_hold_at_their_ends_in_every_kind_of_field() {
    shelf().all_find(vec![
        (json!({"range": {"n": {"gte": 1, "lt": 40}}}), "1 2"),
        (json!({"range": {"n": {"gt": 1}}}), "2 4"),
        (json!({"range": {"n": {"gt": 0.5, "lte": 2.9}}}), "1 2"),
        (json!({"range": {"n": {"gt": 1.0}}}), "2 4"),
        (json!({"range": {"n": {"lte": -2.5}}}), "3"),
        (json!({"range": {"n": {"gte": 1e300}}}), ""),
        (json!({"range": {"n": {"from": 1, "to": 2, "include_upper": false}}}), "1"),
        (json!({"range": {"n": {"gte": 5, "lte": 1}}}), ""),
        (json!({"range": {"n": {}}}), "1 2 3 4"),
        (json!({"range": {"quiet": {"gt": 5}}}), "2"),
        (json!({"range": {"u": {"gt": -1}}}), "3"),
        (json!({"range": {"u": {"lt": u64::MAX}}}), ""),
        (json!({"range": {"f": {"gt": 1.1}}}), "2"),
        (json!({"range": {"f": {"gte": 1.1, "lte": 2.5}}}), "1 2"),
        (json!({"range": {"d": {"lt": 0}}}), "3"),
        (json!({"range": {"ok": {"gt": false}}}), "1"),
        (json!({"range": {"ok": {"gte": "false"}}}), "1 2"),
        (json!({"range": {"at": {"gte": "2024-01-01", "lte": "2024-01-01"}}}), "1 2"),
        (json!({"range": {"at": {"gt": "2024-01-01"}}}), "3 4"),
        (json!({"range": {"at": {"lt": "2024-01-02"}}}), "1 2"),
        (json!({"range": {"at": {"lt": "2024-01-02||-1d/d"}}}), ""),
        (json!({"range": {"at": {"gte": "now-1h"}}}), "4"),
        (json!({"range": {"at": {"gte": "now/d", "lte": "now/d"}}}), "4"),
        (json!({"range": {"at": {"gte": "01/02/2024", "format": "MM/dd/yyyy", "lt": "01/03/2024"}}}), "3"),
        (json!({"range": {"at": {"gte": "2024-01-02T00:30:00", "lt": "2024-01-02T01:30:00", "time_zone": "+01:00"}}}), "2 3"),
        (json!({"range": {"at": {"gte": 1_704_153_600_000_i64, "lte": 1_704_153_600_000_i64}}}), "3"),
        (json!({"range": {"at": {"lte": i64::MAX}}}), "1 2 3 4"),
        (json!({"range": {"ip": {"gt": "10.0.0.1", "lt": "10.1.0.0"}}}), "2"),
        (json!({"range": {"ip": {"gt": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}}}), ""),
        (json!({"range": {"ip": {"lt": "::"}}}), ""),
        (json!({"range": {"ip": {"lt": "0.0.0.1"}}}), ""),
        (json!({"range": {"tag": {"gte": "blue", "lt": "red"}}}), "2 3 4"),
        (json!({"range": {"tag": {"gt": "re*d"}}}), "1 2"),
        (json!({"range": {"tag": {"gt": "x", "lt": "a"}}}), ""),
        (json!({"range": {"tag": {"gte": "green", "lte": "green"}}}), "3"),
        (json!({"range": {"title": {"gte": "s"}}}), "1 2 4"),
        (json!({"range": {"nobody": {"gte": 1}}}), ""),
    ]);
}

#[test]
fn patterns_and_near_terms_find_terms() {
    shelf().all_find(vec![
        (json!({"exists": {"field": "ip"}}), "1 2 3"),
        (json!({"exists": {"field": "o"}}), "1 2"),
        (json!({"exists": {"field": "o.y"}}), "2"),
        (json!({"exists": {"field": "title.raw"}}), "1 2 3 4"),
        (json!({"exists": {"field": "nobody"}}), ""),
        (json!({"prefix": {"title": "qu"}}), "1 2"),
        (json!({"prefix": {"tag": {"value": "RE", "case_insensitive": true}}}), "1 2 4"),
        (json!({"prefix": {"low": "AB"}}), "1 2"),
        (json!({"wildcard": {"tag": "r*d"}}), "1 2 4"),
        (json!({"wildcard": {"tag": {"value": "re\\*d"}}}), "4"),
        (json!({"wildcard": {"tag": {"wildcard": "?re?n"}}}), "3"),
        (json!({"wildcard": {"body": "caf?"}}), "5"),
        (json!({"wildcard": {"title": "*i*v*"}}), "2"),
        (json!({"wildcard": {"title": format!("*q{}*", "?".repeat(4))}}), "1 2"),
        (json!({"wildcard": {"title.raw": "*brown*"}}), "1 3 4"),
        (json!({"regexp": {"title": "b.*r"}}), "3"),
        (json!({"regexp": {"title": "(fox|bear)"}}), "1 3 4"),
        (json!({"regexp": {"title": "fo"}}), ""),
        (json!({"regexp": {"title": "[e-f]o?x"}}), "1 4"),
        (json!({"regexp": {"tag": "re\"*\"d"}}), "4"),
        (json!({"regexp": {"tag": {"value": "BL@", "case_insensitive": true}}}), "2"),
        (json!({"regexp": {"title": "quic+k{1,2}?"}}), "1 2"),
        (json!({"fuzzy": {"title": "quikc"}}), "1 2"),
        (json!({"fuzzy": {"title": {"value": "quikc", "transpositions": false, "fuzziness": 1}}}), ""),
        (json!({"fuzzy": {"title": {"value": "brawn", "fuzziness": 1, "prefix_length": 2}}}), "1 3 4"),
        (json!({"fuzzy": {"title": {"value": "crown", "fuzziness": 1, "prefix_length": 1}}}), ""),
        (json!({"fuzzy": {"title": {"value": "foz", "fuzziness": 0}}}), ""),
    ]);
}

#[test]
fn texts_match_by_their_terms() {
    shelf().all_find(vec![
        (json!({"match": {"title": "QUICK bear"}}), "1 2 3"),
        (json!({"match": {"title": {"query": "brown fox", "operator": "and"}}}), "1 4"),
        (json!({"match": {"title": {"query": "quick brown fox", "minimum_should_match": "2"}}}), "1 4"),
        (json!({"match": {"title": {"query": "quick brown fox", "minimum_should_match": "-34%"}}}), "1 4"),
        (json!({"match": {"title": {"query": "quick brown fox", "minimum_should_match": "2<75%"}}}), "1 4"),
        (json!({"match": {"title": {"query": "quikc", "fuzziness": "AUTO"}}}), "1 2"),
        (json!({"match": {"title": "!!"}}), ""),
        (json!({"match": {"title": {"query": "!!", "zero_terms_query": "all"}}}), "1 2 3 4 5"),
        (json!({"match": {"stopped": "the"}}), ""),
        (json!({"match": {"tag": "red"}}), "1 2"),
        (json!({"match": {"n": "2"}}), "2"),
        (json!({"match": {"n": {"query": "two", "lenient": true}}}), ""),
        (json!({"match": {"title": {"query": "QUICK", "analyzer": "whitespace"}}}), ""),
        (json!({"match_phrase": {"title": "brown fox"}}), "1"),
        (json!({"match_phrase": {"title": {"query": "brown fox", "slop": 1}}}), "1 4"),
        (json!({"match_phrase": {"title": "fox"}}), "1 4"),
        (json!({"match_phrase": {"title": {"query": "fox brown", "slop": i32::MAX}}}), "1 4"),
        (json!({"match_phrase_prefix": {"title": "quick br"}}), "1"),
        (json!({"match_phrase_prefix": {"title": "bro"}}), "1 3 4"),
        (json!({"match_bool_prefix": {"title": "silver bea"}}), "2 3"),
        (json!({"match_bool_prefix": {"title": {"query": "brown fo", "operator": "AND"}}}), "1 4"),
        (json!({"multi_match": {"query": "fox", "fields": ["title", "body"]}}), "1 2 4"),
        (json!({"multi_match": {"query": "fox", "fields": ["bo*^3"]}}), "2"),
        (json!({"multi_match": {"query": "fox"}}), "1 2 3 4"),
        (json!({"multi_match": {"query": "quick dog", "fields": ["title", "body"], "operator": "and"}}), ""),
        (json!({"multi_match": {"query": "quick dog", "fields": ["title", "body"], "operator": "and", "type": "cross_fields"}}), "1"),
        (json!({"multi_match": {"query": "quick fox", "fields": ["title", "body"], "type": "phrase"}}), "2"),
        (json!({"multi_match": {"query": "lazy d", "fields": ["title", "body"], "type": "phrase_prefix"}}), "1"),
        (json!({"multi_match": {"query": "lec", "fields": ["title", "body"], "type": "bool_prefix"}}), "5"),
    ]);
}

#[test]
fn clauses_combine() {
    let (red, brown) = (json!({"term": {"tag": "red"}}), json!({"match": {"title": "brown"}}));
    shelf().all_find(vec![
        (json!({"match_all": {}}), "1 2 3 4 5"),
        (json!({"match_none": {}}), ""),
        (json!({"bool": {}}), "1 2 3 4 5"),
        (json!({"bool": {"must": red, "filter": [brown]}}), "1"),
        (json!({"bool": {"should": [red, brown]}}), "1 2 3 4"),
        (json!({"bool": {"should": [red, brown], "minimum_should_match": "100%"}}), "1"),
        (json!({"bool": {"should": [red, brown], "minimum_should_match": -1}}), "1 2 3 4"),
        (json!({"bool": {"should": [red], "minimum_should_match": 2}}), ""),
        (json!({"bool": {"must": red, "should": brown}}), "1 2"),
        (json!({"bool": {"filter": red, "should": brown}}), "1 2"),
        (json!({"bool": {"filter": red, "should": brown, "minimum_should_match": 1}}), "1"),
        (json!({"bool": {"must_not": red}}), "3 4 5"),
        (json!({"bool": {"should": brown, "must_not": [red]}}), "3 4"),
        (json!({"bool": {"must": [{"match_all": {}}], "must_not": [{"match_all": {}}]}}), ""),
        (json!({"constant_score": {"filter": red}}), "1 2"),
        (json!({"dis_max": {"queries": [red, {"match_none": {}}]}}), "1 2"),
        (json!({"boosting": {"positive": brown, "negative": red, "negative_boost": 0.2}}), "1 3 4"),
    ]);
}

#[test]
fn query_strings_are_read_as_lucene_does() {
    let shelf = shelf();
    for (text, expected) in [
        ("title:quick", "1 2"),
        ("quick", "1 2"),
        ("quick AND fox", "1 2"),
        ("title:(quick AND fox)", "1"),
        ("title:quick AND NOT tag:blue", "1"),
        ("title:quick -tag:blue", "1"),
        ("-tag:red", "3 4 5"),
        ("+title:brown title:bear", "1 3 4"),
        ("title:\"brown fox\"", "1"),
        ("title:\"brown fox\"~1", "1 4"),
        ("title:QU*", "1 2"),
        ("title:b?ar", "3"),
        ("title:*", "1 2 3 4"),
        ("*:*", "1 2 3 4 5"),
        ("*", "1 2 3 4 5"),
        ("title:brawn~", "1 3 4"),
        ("title:brawn~0", ""),
        ("title:/be.r/", "3"),
        ("n:[1 TO 2]", "1 2"),
        ("n:[1 TO 2}", "1"),
        ("n:{* TO 0]", "3"),
        ("n:>=2", "2 4"),
        ("n:<0", "3"),
        ("at:[2024-01-02 TO *]", "3 4"),
        ("ip:\"2001:db8::1\"", "3"),
        ("ip:2001\\:db8\\:\\:1", "3"),
        ("tag:re\\*d", "4"),
        ("_exists_:ip", "1 2 3"),
        ("_id:3", "3"),
        ("tit*:silver", "2"),
        ("title:quick^2 OR title:bear^0.5", "1 2 3"),
        ("title:(quick || bear) && !tag:green", "1 2"),
        ("nobody:x", ""),
        ("", ""),
    ] {
        assert_eq!(shelf.found(&json!({"query_string": {"query": text}})), expected, "{text}");
    }
    shelf.all_find(vec![
        (json!({"query_string": {"query": "brown fox", "default_field": "title", "default_operator": "AND"}}), "1 4"),
        (json!({"query_string": {"query": "brown fox quick", "fields": ["title"], "minimum_should_match": 2}}), "1 4"),
        (json!({"query_string": {"query": "n:foo", "lenient": true}}), ""),
        (json!({"query_string": {"query": "a:b (", "escape": true}}), ""),
        (json!({"simple_query_string": {"query": "brown + fox", "fields": ["title"]}}), "1 4"),
        (
            json!({"simple_query_string": {"query": "silver | bear", "fields": ["title"], "default_operator": "and"}}),
            "2 3",
        ),
        (json!({"simple_query_string": {"query": "brown -fox", "fields": ["title"], "default_operator": "and"}}), "3"),
        (json!({"simple_query_string": {"query": "\"brown fox\"", "fields": ["title"]}}), "1"),
        (json!({"simple_query_string": {"query": "(silver | bea*) +(((", "fields": ["title"]}}), "2 3"),
        (json!({"simple_query_string": {"query": "brawn~1 \"unended", "fields": ["title"]}}), "1 3 4"),
    ]);
}

#[test]
fn the_q_of_a_url_is_a_query_string() {
    let parameters = [("q", "brown fox"), ("df", "title"), ("default_operator", "AND"), ("lenient", "")];
    let find = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let dsl = query_string_of(find).expect("there is a q");
    assert_eq!(shelf().found(&dsl), "1 4");
    assert_eq!(query_string_of(|_| None), None);
}

#[test]
fn text_scores_by_its_terms_and_everything_else_as_a_constant() {
    let shelf = shelf();
    for dsl in [
        json!({"match_all": {}}),
        json!({"term": {"n": 1}}),
        json!({"term": {"at": "2024-01-01"}}),
        json!({"term": {"ok": true}}),
        json!({"range": {"n": {"gte": 1}}}),
        json!({"range": {"tag": {"gte": "a"}}}),
        json!({"prefix": {"title": "q"}}),
        json!({"exists": {"field": "n"}}),
        json!({"terms": {"tag": ["red"]}}),
        json!({"constant_score": {"filter": {"match": {"title": "fox"}}}}),
        json!({"bool": {"must": {"term": {"n": 1}}, "filter": {"match": {"title": "fox"}}}}),
        json!({"bool": {"must": {"match_all": {}}, "filter": {"term": {"n": 1}}}}),
    ] {
        let scored = shelf.scored(&dsl);
        assert!(!scored.is_empty() && scored.iter().all(|(_, score)| *score == 1.0), "{dsl}: {scored:?}");
    }
    for dsl in
        [json!({"bool": {"filter": {"match": {"title": "fox"}}}}), json!({"bool": {"must_not": {"term": {"n": 1}}}})]
    {
        assert!(shelf.scored(&dsl).iter().all(|(_, score)| *score == 0.0), "{dsl}");
    }
    let plain = shelf.scored(&json!({"match": {"body": "fox"}}))[0].1;
    assert!(plain > 0.0);
    let boosted = shelf.scored(&json!({"match": {"body": {"query": "fox", "boost": 3}}}))[0].1;
    assert!((boosted - 3.0 * plain).abs() < 1e-5, "{boosted} {plain}");
    let filtered = shelf.scored(&json!({"bool": {"must": {"match": {"body": "fox"}}, "filter": {"term": {"n": 2}}}}));
    assert!((filtered[0].1 - plain).abs() < 1e-6, "{filtered:?}");
    // A keyword's rare value is worth more than a frequent one, and neither is worth nothing.
    let (rare, frequent) =
        (shelf.scored(&json!({"term": {"tag": "green"}})), shelf.scored(&json!({"term": {"tag": "red"}})));
    assert!(rare[0].1 > frequent[0].1 && frequent[0].1 > 0.0, "{rare:?} {frequent:?}");
    let brown = json!({"constant_score": {"filter": {"match": {"title": "brown"}}}});
    let demoted = shelf.scored(
        &json!({"boosting": {"positive": brown, "negative": {"term": {"tag": "red"}}, "negative_boost": 0.25}}),
    );
    assert_eq!(demoted.last(), Some(&("1", 0.25)));
    // A bare union of everything must not lose its score beside other clauses.
    let both = shelf.scored(&json!({"bool": {"must": [{"match_all": {}}, {"term": {"n": 1}}]}}));
    assert_eq!(both, [("1", 2.0)]);
}

#[test]
fn what_cannot_be_read_is_refused_by_its_name() {
    let shelf = shelf();
    for (dsl, kind, named) in [
        (json!({"nonsense": {}}), "parsing_exception", "unknown query [nonsense]"),
        (json!({"nested": {}}), "unsupported_operation_exception", "[nested]"),
        (json!({"bool": {"_name": "x"}}), "unsupported_operation_exception", "[_name]"),
        (json!({"term": {"n": {"value": 1, "_name": "x"}}}), "unsupported_operation_exception", "[_name]"),
        (json!({"term": {"n": 1, "_name": "x"}}), "unsupported_operation_exception", "[_name]"),
        (json!({"range": {"_id": {"gte": "1"}}}), "query_shard_exception", "[_id]"),
        (json!({"prefix": {"_id": "1"}}), "query_shard_exception", "[_id]"),
        (json!({"range": {"_seq_no": {"gte": 1}}}), "query_shard_exception", "[_seq_no]"),
        (json!({"term": {"_version": 1}}), "query_shard_exception", "[_version]"),
        (json!({"terms": {"_routing": ["a"]}}), "query_shard_exception", "[_routing]"),
        (
            json!({"term": {"n": 1}, "match_all": {}}),
            "parsing_exception",
            "expected [END_OBJECT] but found [FIELD_NAME]",
        ),
        (json!({}), "illegal_argument_exception", "empty clause"),
        (json!([]), "parsing_exception", "start_object"),
        (json!({"term": {"n": 1, "u": 2}}), "parsing_exception", "multiple fields"),
        (json!({"term": {"n": [1]}}), "parsing_exception", "array"),
        (json!({"term": {"n": {"value": 1, "colour": 2}}}), "parsing_exception", "colour"),
        (json!({"term": {"n": "foo"}}), "query_shard_exception", "For input string: \"foo\""),
        (json!({"term": {"f": "foo"}}), "query_shard_exception", "For input string: \"foo\""),
        (json!({"term": {"at": "soon"}}), "query_shard_exception", "soon"),
        (json!({"term": {"ip": "10.0.0.0/33"}}), "query_shard_exception", "network"),
        (json!({"term": {"ok": "maybe"}}), "query_shard_exception", "maybe"),
        (json!({"term": {"hidden": "x"}}), "query_shard_exception", "not indexed"),
        (json!({"match": {"n": "foo"}}), "query_shard_exception", "foo"),
        (json!({"match_phrase_prefix": {"n": "1"}}), "query_shard_exception", "phrase prefix"),
        (json!({"prefix": {"n": "1"}}), "query_shard_exception", "[integer]"),
        (json!({"range": {"n": {"near": 1}}}), "parsing_exception", "near"),
        (json!({"range": {"at": {"gte": 1, "time_zone": "Mars/North"}}}), "illegal_argument_exception", "Mars"),
        (json!({"match": {"title": {"query": "a", "boost": -1}}}), "illegal_argument_exception", "boost"),
        (json!({"bool": {"must": 3}}), "parsing_exception", "must"),
        (json!({"bool": {"must": [], "maybe": []}}), "parsing_exception", "maybe"),
        (json!({"bool": {"should": [], "minimum_should_match": "many"}}), "illegal_argument_exception", "many"),
        (json!({"regexp": {"title": "a("}}), "illegal_argument_exception", "a("),
        (json!({"regexp": {"title": "~a"}}), "unsupported_operation_exception", "~"),
        (json!({"fuzzy": {"title": {"value": "a", "fuzziness": 3}}}), "illegal_argument_exception", "3"),
        (json!({"multi_match": {"query": "a", "fields": [null]}}), "parsing_exception", "null"),
        (json!({"query_string": {"query": "a", "fields": [null]}}), "parsing_exception", "cannot be null"),
        (json!({"query_string": {"query": "title:(a"}}), "parse_exception", "Failed to parse query [title:(a]"),
        (json!({"query_string": {"query": "AND"}}), "parse_exception", "Failed to parse query"),
        (json!({"query_string": {"query": "a OR"}}), "parse_exception", "Failed to parse query"),
        (json!({"query_string": {"query": "a\\"}}), "parse_exception", "backslash"),
        (json!({"query_string": {"query": "\"a"}}), "parse_exception", "no end"),
        (json!({"query_string": {"query": "n:[1 2]"}}), "parse_exception", "TO"),
        (json!({"query_string": {"query": "n:foo", "lenient": false}}), "query_shard_exception", "foo"),
    ] {
        let error = shelf.refused(&dsl);
        assert_eq!((error.kind, error.status), (kind, 400), "{dsl}: {error}");
        assert!(error.reason.contains(named), "{dsl}: {error}");
    }
}

#[test]
fn hostile_queries_are_refused_without_harm() {
    let shelf = shelf();
    let mut deep = json!({"match_all": {}});
    for _ in 0..100 {
        deep = json!({"bool": {"must": [deep]}});
    }
    let wide = json!({"bool": {"should": vec![json!({"match_all": {}}); 5000]}});
    let words = "word ".repeat(5000);
    let alternating = "a + b | ".repeat(10_000);
    for (dsl, named) in [
        (deep, "nested depth"),
        (wide, "too many nested clauses"),
        (json!({"terms": {"tag": vec!["x"; TERMS_MAX + 1]}}), "number of terms"),
        (json!({"ids": {"values": vec!["x"; TERMS_MAX + 1]}}), "at most"),
        (json!({"match": {"title": words}}), "too many nested clauses"),
        (json!({"regexp": {"title": "a".repeat(1001)}}), "length of regex [1001]"),
        (json!({"regexp": {"title": "((((a{1000}){1000}){1000}){1000})"}}), "too complex"),
        (json!({"regexp": {"title": format!("{}a{}", "(".repeat(400), ")".repeat(400))}}), "cannot be read"),
        (json!({"wildcard": {"title": "a?".repeat(16_000)}}), "too complex"),
        (json!({"fuzzy": {"title": {"value": "a".repeat(300), "fuzziness": 2}}}), "fuzzy text"),
        (json!({"query_string": {"query": "(".repeat(100_000)}}), "deep"),
        (json!({"query_string": {"query": format!("{}a{}", "(".repeat(500), ")".repeat(500))}}), "deep"),
        (json!({"query_string": {"query": "NOT ".repeat(10_000)}}), "Failed to parse query"),
        (json!({"query_string": {"query": "title:/a(/"}}), "cannot be read"),
        (json!({"query_string": {"query": "a AND ".repeat(5000) + "a"}}), "too many nested clauses"),
        (json!({"simple_query_string": {"query": "(".repeat(100_000)}}), "deep"),
        (json!({"simple_query_string": {"query": alternating}}), "take turns"),
    ] {
        let error = shelf.refused(&dsl);
        assert_eq!(error.status, 400, "{error}");
        assert!(error.reason.contains(named), "{named}: {error}");
    }
    // Two stars in a row are as one, and a pattern that would need very many states is run as it is.
    assert_eq!(shelf.found(&json!({"wildcard": {"title": "*".repeat(10_000)}})), "1 2 3 4");
    assert_eq!(shelf.found(&json!({"wildcard": {"title": format!("*a{}", "?".repeat(20))}})), "");
    let large: Vec<String> = (0..TERMS_MAX).map(|number| format!("t{number}")).collect();
    assert_eq!(shelf.found(&json!({"terms": {"tag": large}})), "");
}

#[test]
fn highlighted_terms_are_those_that_may_match() {
    let shelf = shelf();
    let dsl = json!({"bool": {
        "must": [{"match": {"title": "Quick FOX"}}, {"match_phrase": {"body": "lazy dog"}}, {"prefix": {"tag": "re"}}],
        "filter": [{"wildcard": {"tag": "b*e"}}, {"fuzzy": {"title": "bronw"}}],
        "must_not": [{"match": {"title": "bear"}}]
    }});
    let terms = highlight_terms(&shelf.view, &dsl, &NOW).expect("valid");
    let lit =
        |field: &str, word: &str| terms.get(field).is_some_and(|terms| terms.iter().any(|term| term.matches(word)));
    for (field, word, expected) in [
        ("title", "quick", true),
        ("title", "brown", true),
        ("title", "bear", false),
        ("body", "lazy", true),
        ("body", "fox", false),
        ("tag", "red", true),
        ("tag", "blue", true),
        ("tag", "green", false),
    ] {
        assert_eq!(lit(field, word), expected, "{field} {word}");
    }
}

#[test]
fn a_scan_of_terms_ends_when_the_search_has_to() {
    use crate::stop::SearchStop;
    let mapping = Mapping::empty().merged(&json!({"properties": {"k": {"type": "keyword"}}})).expect("a mapping");
    let schema = of_mapping(&mapping, 0);
    let index = Index::create_in_ram(schema.clone());
    crate::schema::register(&index).expect("registered");
    let analyzers = Arc::new(Analyzers::default());
    let mut writer: IndexWriter = index.writer_with_num_threads(1, 20_000_000).expect("a writer");
    for id in 0..3_000_u64 {
        let source = json!({"k": format!("k{id}")});
        let source = source.as_object().expect("an object");
        let id_text = id.to_string();
        let document =
            IndexedDocument::read_again(&mapping, &analyzers, &schema, (&id_text, id), source).expect("read");
        writer.add_document(document).expect("added");
    }
    writer.commit().expect("committed");
    let searcher = index.reader().expect("a reader").searcher();
    let own = OwnFields::of(&schema);
    let view = IndexView {
        name: "i".to_owned(),
        mapping: Arc::new(mapping),
        analyzers,
        searcher,
        schema,
        own,
        bounds: QueryBounds::default(),
        used: Arc::default(),
        zones: Arc::default(),
    };
    for (dsl, found) in [
        (json!({"prefix": {"k": "k"}}), 3_000),
        (json!({"wildcard": {"k": "*9*9*"}}), 84),
        (json!({"regexp": {"k": "k.*"}}), 3_000),
        (json!({"fuzzy": {"k": {"value": "k1000", "fuzziness": 2, "prefix_length": 1}}}), 0),
    ] {
        let count = |stop: SearchStop| {
            let context = QueryContext { now: 0, stop: Some(Arc::new(stop)), cheap: false };
            view.searcher.search(&*build(&view, &dsl, &context).expect("built"), &Count)
        };
        let all = count(SearchStop::default()).expect("it has time");
        assert!(all == found || found == 0 && all > 0, "{dsl}: {all}");
        count(SearchStop::new(Arc::default(), Some(std::time::Instant::now()))).expect_err("its time is over");
        count(SearchStop::new(Arc::new(true.into()), None)).expect_err("it was cancelled");
    }
}
