//! Documents: which are taken, the fields that they add, and what the index gets of them.

use std::collections::BTreeMap;

use super::*;
use crate::analysis::Analyzers;

fn mapping(json: &Value) -> Mapping {
    Mapping::empty().merged(json).expect("valid")
}

/// The values that the index gets, by the names of the fields.
fn indexed(mapping: &Mapping, source: &Value) -> Result<BTreeMap<String, usize>, SearchError> {
    let schema = crate::schema::of_mapping(mapping, 0);
    let analyzers = Analyzers::of_settings(&json!({})).expect("valid");
    let doc = IndexedDocument::prepare(mapping, &analyzers, &schema, source.as_object().expect("an object"))?;
    let count = |field: &MappedField| doc.get_all(schema.get_field(&field.column).expect("a column")).count();
    Ok(mapping.fields().map(|field| (field.path.clone(), count(field))).filter(|(_, count)| *count > 0).collect())
}

#[test]
fn a_document_that_no_field_can_hold_is_refused() {
    let mapping = mapping(&json!({"properties": {
        "k": {"type": "keyword"}, "al": {"type": "alias", "path": "k"}, "off": {"enabled": false},
        "n": {"type": "long"}, "f": {"type": "float"}, "h": {"type": "half_float"},
    }}));
    for (source, named) in [
        (json!({"al": "x"}), "Cannot write to a field alias [al]"),
        (json!({"_id": "1"}), "Field [_id] is a metadata field"),
        (json!({"_source": {}}), "Field [_source] is a metadata field"),
        (json!({"n": 9_223_372_036_854_775_808_u64}), "out of range"),
        (json!({"n": "9223372036854775808"}), "For input string"),
        (json!({"f": 3.5e38}), "[float] supports only finite values"),
        (json!({"h": 70_000}), "[half_float] supports only finite values"),
    ] {
        let error = indexed(&mapping, &source).expect_err(named);
        assert!(error.reason.contains(named), "{error}");
        assert_eq!((error.status, error.kind), (400, "mapper_parsing_exception"));
    }
    for disabled in [json!("text"), json!([1, {"a": 2}]), json!({"a": {"b": 1}})] {
        let source = json!({"off": disabled, "k": "x"});
        assert_eq!(indexed(&mapping, &source).expect("taken").len(), 1, "{source}");
        let new = new_fields(&mapping, source.as_object().expect("an object")).expect("taken");
        assert_eq!(new, None, "nothing of it is read");
    }
}

#[test]
fn a_term_counts_once_in_a_document() {
    let mapping =
        mapping(&json!({"properties": {"k": {"type": "keyword"}, "ip": {"type": "ip"}, "n": {"type": "long"}}}));
    let source = json!({"k": ["a", "b", "a", ["b", "c"]], "ip": ["::1", "0:0::1", "10.0.0.1"], "n": [1, 1]});
    let expected = [("ip", 2), ("k", 3), ("n", 2)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(indexed(&mapping, &source).expect("taken"), BTreeMap::from(expected));
}

#[test]
fn copied_values_reach_multi_fields_and_make_fields() {
    let mapping = mapping(&json!({"properties": {
        "a": {"type": "keyword", "copy_to": ["all", "dyn", "o.dyn"]},
        "all": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
    }}));
    let source = json!({"a": ["x", "y"]});
    let new = new_fields(&mapping, source.as_object().expect("an object")).expect("taken").expect("new fields");
    let mapping = mapping.merged(&new).expect("valid");
    let indexed = indexed(&mapping, &source).expect("taken");
    for name in ["a", "all", "all.raw", "dyn", "dyn.keyword", "o.dyn"] {
        assert_eq!(indexed.get(name), Some(&2), "{name}: {indexed:?}");
    }
    assert_eq!(new_fields(&mapping, source.as_object().expect("an object")).expect("taken"), None);
    let strict = json!({"dynamic": "strict", "properties": {"a": {"type": "keyword", "copy_to": "dyn"}}});
    let strict = Mapping::empty().merged(&strict).expect("valid");
    let error = new_fields(&strict, source.as_object().expect("an object")).expect_err("strict");
    assert_eq!(error.kind, "strict_dynamic_mapping_exception");
}

#[test]
fn texts_are_dates_only_where_the_mapping_looks_for_them() {
    for (mapping, text, type_name) in [
        (json!({}), "2024-01-01", "date"),
        (json!({}), "2024/01/01", "date"),
        (json!({}), "2024/01/01 10:00:00", "date"),
        (json!({}), "2024/01", "text"),
        (json!({}), "2024/31/01", "text"),
        (json!({}), "1234/5678/9", "text"),
        (json!({"date_detection": false}), "2024-01-01", "text"),
        (json!({"date_detection": false}), "2024/01/01", "text"),
    ] {
        let mapping = Mapping::empty().merged(&mapping).expect("valid");
        let source = json!({"d": text});
        let new = new_fields(&mapping, source.as_object().expect("an object")).expect("taken").expect("a field");
        let mapping = mapping.merged(&new).expect("valid");
        assert!(new_fields(&mapping, source.as_object().expect("an object")).expect("taken").is_none());
        assert!(indexed(&mapping, &source).expect("it fits").contains_key("d"), "{text}");
        assert_eq!(new["properties"]["d"]["type"], type_name, "{text}");
    }
}

#[test]
fn a_document_has_a_bounded_number_of_values_and_terms_and_what_was_accepted_before_is_indexed_again() {
    let mapping = mapping(&json!({"properties": {
        "n": {"type": "byte", "copy_to": ["c0", "c1", "c2"]}, "c0": {"type": "long"}, "c1": {"type": "long"}, "c2": {"type": "long"},
        "t": {"type": "text", "analyzer": "whitespace"}, "k": {"type": "text", "analyzer": "whitespace"},
    }}));
    let words = "a ".repeat(VALUES_MAX + 1);
    for source in [
        json!({"n": vec![1; VALUES_MAX / 4 + 1]}),
        json!({"t": words}),
        json!({"t": ["b", &words[..VALUES_MAX], &words[..VALUES_MAX + 2]]}),
        json!({"t": &words[..VALUES_MAX], "k": &words[..VALUES_MAX + 2]}),
    ] {
        let refused = indexed(&mapping, &source).expect_err("too many");
        assert!(refused.reason.contains("values and terms") && refused.status == 400, "{refused}");
    }
    let schema = crate::schema::of_mapping(&mapping, 0);
    let analyzers = Analyzers::of_settings(&json!({})).expect("valid");
    let source = json!({"t": words});
    let source = source.as_object().expect("an object");
    let again = IndexedDocument::read_again(&mapping, &analyzers, &schema, ("1", 1), source).expect("it was accepted");
    assert!(
        again.get_first(schema.get_field(&mapping.field("t").expect("mapped").column).expect("a column")).is_some()
    );
}
