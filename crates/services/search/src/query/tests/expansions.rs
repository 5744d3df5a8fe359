//! How many terms queries of near terms and of beginnings look up.

use super::*;

#[test]
fn queries_look_up_as_many_terms_as_max_expansions_says_the_nearest_or_the_first_of_all_segments() {
    // Terms of `body` that begin with "l": lazy (1), leche (5). Near to "rek" in `tag`: red (1, 2), re*d (4).
    shelf().all_find(vec![
        (json!({"match_phrase_prefix": {"body": "l"}}), "1 5"),
        (json!({"match_phrase_prefix": {"body": {"query": "l", "max_expansions": 1}}}), "1"),
        (json!({"match_phrase_prefix": {"body": {"query": "x", "max_expansions": 1}}}), ""),
        (json!({"fuzzy": {"tag": {"value": "rek", "fuzziness": 2}}}), "1 2 4"),
        (json!({"fuzzy": {"tag": {"value": "rek", "fuzziness": 2, "max_expansions": 2}}}), "1 2 4"),
        (json!({"fuzzy": {"tag": {"value": "rek", "fuzziness": 2, "max_expansions": 1}}}), "1 2"),
        (json!({"fuzzy": {"tag": {"value": "rek", "fuzziness": 2, "prefix_length": 1, "max_expansions": 1}}}), "1 2"),
        (json!({"match": {"tag": {"query": "rek", "fuzziness": 2, "max_expansions": 1}}}), "1 2"),
        (json!({"query_string": {"query": "tag:rek~2", "fuzzy_max_expansions": 1}}), "1 2"),
    ]);
}

#[test]
fn what_would_not_bound_the_terms_of_a_query_is_refused() {
    let intervals = json!({"intervals": {"title": {"wildcard": {"pattern": "b*", "max_expansions": 3}}}});
    assert!(shelf().refused(&intervals).reason.contains("max_expansions"));
}

#[test]
fn a_text_of_more_words_than_a_query_has_clauses_is_refused_before_it_is_kept() {
    let words = "a ".repeat(CLAUSES_MAX + 2);
    for query in [
        json!({"match": {"title": words}}),
        json!({"multi_match": {"query": words, "fields": ["title", "body"], "type": "cross_fields"}}),
        json!({"intervals": {"title": {"match": {"query": words}}}}),
    ] {
        assert_eq!(shelf().refused(&query).kind, "too_many_nested_clauses");
    }
}
