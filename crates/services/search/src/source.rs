//! [`SourceFilter`]: which parts of a source a response shows.
//!
//! ```text
//!   "_source": false | true | "a.*" | ["a", "b.c"] | {"includes": [..], "excludes": [..]}
//! ```
//!
//! A pattern names a path; it stands for all that lies below it. `*` stands for any text, dots too.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::SearchError;
use crate::mapping::{Mapping, matches_pattern};

/// Most patterns of a filter.
const PATTERNS_MAX: usize = 1_000;

/// Most bytes of all of them: each is compared with each path of each source that is shown.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// Which parts of a source are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFilter {
    shown: bool,
    includes: Vec<String>,
    excludes: Vec<String>,
}

impl SourceFilter {
    /// Everything.
    pub fn all() -> SourceFilter {
        SourceFilter { shown: true, includes: Vec::new(), excludes: Vec::new() }
    }

    /// Nothing.
    pub fn none() -> SourceFilter {
        SourceFilter { shown: false, ..SourceFilter::all() }
    }

    /// Whether anything is shown.
    pub fn is_shown(&self) -> bool {
        self.shown
    }

    /// Whether all is shown: the source is shown as it was sent.
    pub fn is_all(&self) -> bool {
        self.shown && self.includes.is_empty() && self.excludes.is_empty()
    }

    /// The filter of a `_source` in a body. Errors: it is none.
    pub fn of_value(value: &Value) -> Result<SourceFilter, SearchError> {
        let mut filter = SourceFilter::all();
        match value {
            Value::Bool(shown) => filter.shown = *shown,
            Value::String(pattern) => filter.includes = vec![pattern.clone()],
            Value::Array(_) => filter.includes = patterns(value)?,
            Value::Object(object) => {
                for (name, value) in object {
                    match name.as_str() {
                        "includes" | "include" => filter.includes = patterns(value)?,
                        "excludes" | "exclude" => filter.excludes = patterns(value)?,
                        other => {
                            return Err(SearchError::parsing(format!("Unknown key for a START_ARRAY in [{other}].")));
                        }
                    }
                }
            }
            _ => {
                return Err(SearchError::parsing(format!(
                    "Expected one of [VALUE_BOOLEAN, START_OBJECT] but found [{value}] in [_source]"
                )));
            }
        }
        filter.checked()
    }

    /// The filter of a request's parameters; everything where they say nothing. Errors: too many patterns.
    pub fn of_parameters(parameters: &BTreeMap<String, String>) -> Result<SourceFilter, SearchError> {
        SourceFilter::of_parameters_or(parameters, SourceFilter::all())
    }

    /// As [`of_parameters`](SourceFilter::of_parameters), with another filter where they say nothing.
    pub fn of_parameters_or(
        parameters: &BTreeMap<String, String>,
        default: SourceFilter,
    ) -> Result<SourceFilter, SearchError> {
        let list = |names: &[&str]| -> Option<Vec<String>> {
            let text = names.iter().find_map(|name| parameters.get(*name))?;
            Some(text.split(',').map(str::to_owned).collect())
        };
        let mut filter = default;
        match parameters.get("_source").map(String::as_str) {
            None => {}
            Some("" | "true") => filter = SourceFilter::all(),
            Some("false") => filter = SourceFilter::none(),
            Some(_) => {
                filter = SourceFilter { includes: list(&["_source"]).unwrap_or_default(), ..SourceFilter::all() }
            }
        }
        if let Some(includes) = list(&["_source_includes", "_source_include"]) {
            filter = SourceFilter { shown: true, includes, ..filter };
        }
        if let Some(excludes) = list(&["_source_excludes", "_source_exclude"]) {
            filter = SourceFilter { shown: true, excludes, ..filter };
        }
        filter.checked()
    }

    /// Errors: more patterns than a filter has, or longer ones.
    fn checked(self) -> Result<SourceFilter, SearchError> {
        let patterns = || self.includes.iter().chain(&self.excludes);
        let (number, bytes) = (patterns().count(), patterns().map(String::len).sum::<usize>());
        match number > PATTERNS_MAX || bytes > PATTERN_BYTES_MAX {
            true => Err(SearchError::argument(format!(
                "a source filter has at most {PATTERNS_MAX} patterns, of {PATTERN_BYTES_MAX} bytes together"
            ))),
            false => Ok(self),
        }
    }

    /// The parts of a source that are shown.
    pub fn apply(&self, source: Map<String, Value>) -> Map<String, Value> {
        if !self.shown {
            return Map::new();
        }
        if self.is_all() {
            return source;
        }
        self.object("", source, self.includes.is_empty())
    }

    /// `included` says that an object above is included as a whole.
    fn object(&self, prefix: &str, object: Map<String, Value>, included: bool) -> Map<String, Value> {
        let mut shown = Map::new();
        for (name, value) in object {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            if self.excludes.iter().any(|pattern| matches_pattern(pattern, &path)) {
                continue;
            }
            let included = included || self.includes.iter().any(|pattern| matches_pattern(pattern, &path));
            if let Some(value) = self.value(&path, value, included) {
                shown.insert(name, value);
            }
        }
        shown
    }

    fn value(&self, path: &str, value: Value, included: bool) -> Option<Value> {
        match value {
            Value::Object(object) => {
                let was_empty = object.is_empty();
                let shown = self.object(path, object, included);
                (!shown.is_empty() || (included && (was_empty || !self.excludes.is_empty())))
                    .then_some(Value::Object(shown))
            }
            Value::Array(values) => {
                let was_empty = values.is_empty();
                let shown: Vec<Value> =
                    values.into_iter().filter_map(|value| self.value(path, value, included)).collect();
                (!shown.is_empty() || (included && was_empty)).then_some(Value::Array(shown))
            }
            value => included.then_some(value),
        }
    }
}

fn patterns(value: &Value) -> Result<Vec<String>, SearchError> {
    let refused = || SearchError::parsing(format!("patterns of [_source] are texts, not [{value}]"));
    match value {
        Value::String(pattern) => Ok(vec![pattern.clone()]),
        Value::Array(values) if values.len() <= PATTERNS_MAX => {
            values.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(refused)).collect()
        }
        _ => Err(refused()),
    }
}

/// The values of stored fields, read from the source; a field that the mapping does not store has none.
pub fn stored_fields(mapping: &Mapping, names: &[String], source: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = Map::new();
    for field in mapping.fields().filter(|field| field.stored) {
        if names.iter().any(|name| matches_pattern(name, &field.path)) {
            let mut values = Vec::new();
            values_at(&field.path, source, &mut values);
            if !values.is_empty() {
                fields.insert(field.path.clone(), Value::Array(values));
            }
        }
    }
    fields
}

/// The values at a path of a source, in their order; lists are taken apart.
pub fn values_at(path: &str, source: &Map<String, Value>, found: &mut Vec<Value>) {
    collect(path, source, None, found);
}

/// As [`values_at`], with what each null counts as.
pub fn values_or_null_at(path: &str, source: &Map<String, Value>, null: Option<&Value>) -> Vec<Value> {
    let mut found = Vec::new();
    collect(path, source, null, &mut found);
    found
}

fn collect(path: &str, source: &Map<String, Value>, null: Option<&Value>, found: &mut Vec<Value>) {
    for (name, value) in source {
        match path.strip_prefix(name.as_str()) {
            Some("") => flatten(value, null, found),
            Some(rest) => {
                if let Some(rest) = rest.strip_prefix('.') {
                    below(rest, value, null, found);
                }
            }
            None => {}
        }
    }
}

fn below(path: &str, value: &Value, null: Option<&Value>, found: &mut Vec<Value>) {
    match value {
        Value::Object(object) => collect(path, object, null, found),
        Value::Array(values) => values.iter().for_each(|value| below(path, value, null, found)),
        _ => {}
    }
}

fn flatten(value: &Value, null: Option<&Value>, found: &mut Vec<Value>) {
    match value {
        Value::Null => found.extend(null.cloned()),
        Value::Array(values) => values.iter().for_each(|value| flatten(value, null, found)),
        other => found.push(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_filter_shows_the_paths_that_it_names() {
        let source = json!({"a": {"b": 1, "c": [{"d": 2, "e": 3}, {"e": 4}]}, "count": 5, "x": {}});
        for (filter, shown) in [
            (json!(true), source.clone()),
            (json!(false), json!({})),
            (json!("count"), json!({"count": 5})),
            (json!(["a.b", "count"]), json!({"a": {"b": 1}, "count": 5})),
            (json!("a"), json!({"a": {"b": 1, "c": [{"d": 2, "e": 3}, {"e": 4}]}})),
            (json!("a.c.d"), json!({"a": {"c": [{"d": 2}]}})),
            (json!({"includes": "a", "excludes": ["a.c"]}), json!({"a": {"b": 1}})),
            (json!({"excludes": ["*.e", "count"]}), json!({"a": {"b": 1, "c": [{"d": 2}, {}]}, "x": {}})),
            (json!("*"), source.clone()),
        ] {
            let applied = SourceFilter::of_value(&filter)
                .expect("a filter")
                .apply(source.as_object().expect("an object").clone());
            assert_eq!(Value::Object(applied), shown, "{filter}");
        }
        assert!(SourceFilter::of_value(&json!(5)).is_err());
        assert!(SourceFilter::of_value(&json!(["*".repeat(PATTERN_BYTES_MAX + 1)])).is_err());
        assert!(
            SourceFilter::of_value(&json!({"includes": "a".repeat(9_000), "excludes": "b".repeat(9_000)})).is_err()
        );
        assert!(SourceFilter::of_value(&json!({"include_all": true})).is_err());
    }
}
