//! [`Options`]: the parameters of one aggregation, each read by name; one that nothing reads is refused.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::document;
use crate::error::SearchError;

/// The parameters of an aggregation.
pub(super) struct Options<'a> {
    /// Type of the aggregation, for errors.
    pub(super) type_name: &'static str,
    map: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Options<'a> {
    /// Errors: no object.
    pub(super) fn of(type_name: &'static str, body: &'a Value) -> Result<Options<'a>, SearchError> {
        let map = body
            .as_object()
            .ok_or_else(|| SearchError::parsing(format!("[{type_name}] is an object, not [{body}]")))?;
        Ok(Options { type_name, map, read: RefCell::new(BTreeSet::new()) })
    }

    /// The parameter; an explicit null is as none.
    pub(super) fn get(&self, name: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Errors: the parameter is given as an explicit null.
    pub(super) fn not_null(&self, name: &'static str) -> Result<(), SearchError> {
        match self.map.get(name) {
            Some(Value::Null) => Err(self.wrong(name, &Value::Null)),
            _ => Ok(()),
        }
    }

    /// Parameters that change how fast a result is found, not which.
    pub(super) fn ignore(&self, names: &[&'static str]) {
        self.read.borrow_mut().extend(names);
    }

    /// Errors: a parameter that is not built.
    pub(super) fn refuse(&self, names: &[&'static str]) -> Result<(), SearchError> {
        match names.iter().find(|name| self.get(name).is_some()) {
            Some(name) => Err(SearchError::unsupported(format!("[{name}] in aggregation [{}]", self.type_name))),
            None => Ok(()),
        }
    }

    fn wrong(&self, name: &str, value: &Value) -> SearchError {
        SearchError::parsing(format!("[{}] [{name}] cannot be [{value}]", self.type_name))
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<&'a str>, SearchError> {
        self.get(name).map(|value| value.as_str().ok_or_else(|| self.wrong(name, value))).transpose()
    }

    pub(super) fn number(&self, name: &'static str) -> Result<Option<f64>, SearchError> {
        self.get(name).map(|value| document::real(value).map_err(|_| self.wrong(name, value))).transpose()
    }

    pub(super) fn count(&self, name: &'static str) -> Result<Option<u64>, SearchError> {
        self.get(name).map(|value| document::unsigned(value).map_err(|_| self.wrong(name, value))).transpose()
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, SearchError> {
        self.get(name).map(|value| document::boolean(value).map_err(|_| self.wrong(name, value))).transpose()
    }

    /// Errors: a parameter that nothing has read.
    pub(super) fn finish(&self) -> Result<(), SearchError> {
        match self.map.keys().find(|key| !self.read.borrow().contains(key.as_str())) {
            Some(key) => Err(SearchError::parsing(format!("[{}] unknown field [{key}]", self.type_name))),
            None => Ok(()),
        }
    }
}

/// The sort order `[{"_count": "desc"}, "_key", ...]`: what to sort by, and whether the greatest comes first.
pub(super) fn order(value: &Value) -> Result<Vec<(String, bool)>, SearchError> {
    let failed = || SearchError::parsing(format!("[order] cannot be [{value}]"));
    let entries = match value {
        Value::Array(entries) => entries.iter().collect(),
        one => vec![one],
    };
    let mut order = Vec::new();
    for entry in entries {
        match entry {
            Value::Object(map) if !map.is_empty() => {
                for (name, direction) in map {
                    let direction = match direction {
                        Value::Object(inner) => inner.get("order").and_then(Value::as_str),
                        other => other.as_str(),
                    };
                    let descending = match direction.map(str::to_ascii_lowercase).as_deref() {
                        Some("asc") => false,
                        Some("desc") => true,
                        _ => return Err(SearchError::parsing(format!("Unknown order direction [{entry}]"))),
                    };
                    order.push((if name == "_term" { "_key" } else { name.as_str() }.to_owned(), descending));
                }
            }
            Value::String(name) => order.push((name.clone(), name == "_score")),
            _ => return Err(failed()),
        }
    }
    Ok(order)
}
