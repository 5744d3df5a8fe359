//! Mappings: what is added, changed, refused and read again.

use super::*;

#[test]
fn fields_keep_their_columns_when_others_are_added() {
    let first = Mapping::empty()
        .merged(&json!({"properties": {"a": {"type": "text", "fields": {"raw": {"type": "keyword"}}}, "b.c": {"type": "long"}}}))
        .expect("valid");
    let second = first.merged(&json!({"properties": {"A": {"type": "date"}}})).expect("valid");
    for path in ["a", "a.raw", "b.c"] {
        assert_eq!(first.field(path).expect(path).column, second.field(path).expect(path).column);
    }
    assert_eq!(second.field("a").expect("a").multi, ["a.raw"]);
    assert!(second.is_object("b"));
    let stored = Mapping::stored(&second.to_json(), second.columns().clone()).expect("valid");
    assert_eq!(stored.columns(), second.columns());
}

#[test]
fn what_cannot_be_mapped_is_refused_by_its_name() {
    let mapping = Mapping::empty()
        .merged(&json!({"properties": {"a": {"type": "long"}, "o": {"properties": {}}}}))
        .expect("valid");
    for (update, named) in [
        (json!({"properties": {"a": {"type": "text"}}}), "from type [long] to [text]"),
        (json!({"properties": {"g": {"type": "geo_shape"}}}), "geo_shape"),
        (json!({"properties": {"g": {"type": "keyword", "shape": "round"}}}), "shape"),
        (json!({"properties": {"o": {"type": "long"}}}), "[o]"),
        (json!({"properties": {"a": {"properties": {}}}}), "[a]"),
        (json!({"dynamic_templates": [{}]}), "dynamic_templates"),
        (json!({"colour": 1}), "colour"),
    ] {
        let error = mapping.merged(&update).expect_err(named);
        assert!(error.reason.contains(named), "{error}");
        assert_eq!(error.status, 400);
    }
}

#[test]
fn patterns_match_names() {
    for (pattern, name, matches) in [
        ("a*", "abc", true),
        ("*c", "abc", true),
        ("a*c", "abc", true),
        ("a*b*", "abc", true),
        ("a", "abc", false),
        ("a*d", "abc", false),
        ("aa*a", "aa", false),
    ] {
        assert_eq!(matches_pattern(pattern, name), matches, "{pattern} {name}");
    }
}

#[test]
fn a_field_keeps_what_its_index_was_made_with() {
    let mapping = Mapping::empty()
        .merged(&json!({"properties": {
            "s": {"type": "scaled_float", "scaling_factor": 10},
            "k": {"type": "keyword", "index": false},
            "n": {"type": "keyword", "null_value": "none", "ignore_above": 5},
            "f": {"type": "float"},
            "t": {"type": "text", "analyzer": "whitespace", "fields": {"raw": {"type": "keyword"}}},
            "d": {"type": "date", "format": "dd/MM/yyyy"},
            "c": {"type": "constant_keyword", "value": "x"},
            "al": {"type": "alias", "path": "f"},
            "off": {"type": "object", "enabled": false},
        }}))
        .expect("valid");
    for (name, definition, named) in [
        ("s", json!({"type": "double"}), "from type [scaled_float] to [double]"),
        ("s", json!({"type": "scaled_float", "scaling_factor": 100}), "[scaling_factor] from [10] to [100]"),
        ("k", json!({"type": "keyword"}), "Cannot update parameter [index] from [false] to [true]"),
        ("k", json!({"type": "keyword", "index": false, "doc_values": false}), "[doc_values] from [true] to [false]"),
        ("k", json!({"type": "constant_keyword", "value": "a"}), "from type [keyword] to [constant_keyword]"),
        ("n", json!({"type": "keyword"}), "[null_value] from [none] to [null]"),
        ("f", json!({"type": "half_float"}), "from type [float] to [half_float]"),
        ("f", json!({"type": "alias", "path": "n"}), "from type [float] to [alias]"),
        ("t", json!({"type": "text"}), "[analyzer] from [whitespace] to [default]"),
        ("t", json!({"type": "text", "analyzer": "whitespace", "position_increment_gap": 5}), "from [100] to [5]"),
        ("d", json!({"type": "date", "format": "MM/dd/yyyy"}), "[format] from [dd/MM/yyyy] to [MM/dd/yyyy]"),
        ("d", json!({"type": "date", "format": "dd/MM/yyyy||yyyy"}), "[format]"),
        ("c", json!({"type": "constant_keyword", "value": "y"}), "[value] from [x] to [y]"),
        ("al", json!({"type": "float"}), "from type [alias] to [float]"),
        ("off", json!({"enabled": true}), "[enabled]"),
        ("k", json!({"type": "keyword", "index": false, "normalizer": "lowercase"}), "[normalizer] from [null]"),
    ] {
        let error = mapping.merged(&json!({"properties": {name: definition}})).expect_err(named);
        assert!(error.reason.contains(named), "{error}");
        assert_eq!((error.status, error.kind), (400, "illegal_argument_exception"), "{error}");
    }
    let error = mapping.merged(&json!({"_source": {"enabled": false}})).expect_err("documents are shown");
    assert!(error.reason.contains("Mapper for [_source] conflicts"), "{error}");
    let changed = mapping
        .merged(&json!({"properties": {
            "n": {"type": "keyword", "null_value": "none", "copy_to": "t"},
            "t": {"type": "text", "analyzer": "whitespace", "search_analyzer": "standard",
                "fields": {"low": {"type": "keyword"}}},
        }}))
        .expect("what only counts from now on");
    // What is stored means the same: parameters that the update does not have are gone in both.
    let stored = Mapping::stored(&changed.to_json(), changed.columns().clone()).expect("valid");
    for mapping in [&changed, &stored] {
        assert_eq!(mapping.field("n").expect("n").ignore_above, None);
        assert_eq!(mapping.field("t").expect("t").search_analyzer.as_deref(), Some("standard"));
        let mut multi = mapping.field("t").expect("t").multi.clone();
        multi.sort();
        assert_eq!(multi, ["t.low", "t.raw"]);
    }
    changed.check_stored().expect("it is read again");
}

#[test]
fn what_a_mapping_would_promise_in_vain_is_refused() {
    for (mapping, named) in [
        (json!({"_source": {"excludes": ["secret"]}}), "_source.excludes"),
        (json!({"_source": {"mode": "synthetic"}}), "synthetic"),
        (json!({"_routing": {"required": true}}), "_routing"),
        (json!({"numeric_detection": true}), "numeric_detection"),
        (json!({"properties": {"t": {"type": "text", "search_quote_analyzer": "keyword"}}}), "search_quote_analyzer"),
        (json!({"properties": {"t": {"type": "text", "index_options": "docs"}}}), "index_options"),
        (json!({"properties": {"t": {"type": "text", "norms": false}}}), "norms"),
        (json!({"properties": {"k": {"type": "keyword", "norms": true}}}), "norms"),
        (json!({"properties": {"k": {"type": "keyword", "ignore_above": "abc"}}}), "ignore_above"),
        (json!({"properties": {"k": {"type": "keyword", "ignore_above": -1}}}), "ignore_above"),
        (json!({"properties": {"k": {"type": "keyword", "ignore_above": 2.5}}}), "ignore_above"),
        (json!({"properties": {"n": {"type": "long", "null_value": "none"}}}), "null_value"),
        (json!({"properties": {"n": {"type": "byte", "null_value": 200}}}), "null_value"),
        (json!({"properties": {"d": {"type": "date", "format": "yyyy", "null_value": "x"}}}), "null_value"),
        (json!({"properties": {"o": {"enabled": "maybe"}}}), "enabled"),
    ] {
        let error = Mapping::empty().merged(&mapping).expect_err(named);
        assert!(error.reason.contains(named), "{error}");
        assert_eq!(error.status, 400);
        if !named.contains("enabled") {
            Mapping::stored(&mapping, Columns::default()).expect("an index that has it already opens");
        }
    }
    let mapping = json!({
        "_source": {"enabled": true}, "_routing": {"required": false}, "numeric_detection": false, "date_detection": false,
        "properties": {
            "k": {"type": "keyword", "ignore_above": "3", "norms": false, "index_options": "docs"},
            "t": {"type": "text", "norms": true, "index_options": "offsets", "position_increment_gap": 7},
        },
    });
    let mapping = Mapping::empty().merged(&mapping).expect("it says what is so anyway");
    assert_eq!(mapping.field("k").expect("k").ignore_above, Some(3));
    assert_eq!(mapping.field("t").expect("t").position_gap, 7);
    assert!(!mapping.detects_dates());
}

#[test]
fn the_last_definition_of_a_field_counts_in_a_mapping_of_several_templates() {
    let parts = [
        json!({"dynamic": "strict", "properties": {"k": {"type": "keyword", "index": false}, "o.a": {"type": "long"}}}),
        json!({"properties": {"k": {"type": "text"}, "o": {"properties": {"b": {"type": "long"}}}}}),
    ];
    let mapping = Mapping::composed(parts.iter()).expect("valid");
    assert_eq!(mapping.field("k").expect("k").type_name, "text");
    assert!(mapping.field("o.a").is_some() && mapping.field("o.b").is_some());
    assert_eq!(mapping.dynamic_at(""), Dynamic::Strict);
}
