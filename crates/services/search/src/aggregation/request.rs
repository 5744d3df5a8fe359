//! The `aggs` object of a search, read and checked against the mappings of all indices.
//!
//! Invariants: a node's id is unique in its request (the library's names are made of it, so that names of users cannot collide
//! with anything); a field is none, or is mapped with types that can be aggregated together.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::kinds;
use super::node::{AggregationNode, NodeKind, Reader};
use crate::error::SearchError;

/// The deepest aggregations in aggregations.
const DEPTH_MAX: usize = 20;

/// The most aggregations of a search.
const COUNT_MAX: usize = 1000;

impl Reader<'_> {
    /// The aggregations of an `aggs` object. Errors: one that is not known, a name or a parameter that is wrong.
    pub(super) fn nodes(&mut self, aggs: &Value, depth: usize) -> Result<Vec<AggregationNode>, SearchError> {
        let Value::Object(aggs) = aggs else {
            return Err(SearchError::parsing(format!("aggregations are an object, not [{aggs}]")));
        };
        if depth > DEPTH_MAX && !aggs.is_empty() {
            return Err(SearchError::argument(format!("aggregations are nested deeper than [{DEPTH_MAX}]")));
        }
        let mut nodes = Vec::with_capacity(aggs.len());
        for (name, body) in aggs {
            if name.is_empty() || name.contains(['[', ']', '>']) {
                return Err(SearchError::parsing(format!(
                    "Invalid aggregation name [{name}]. Aggregation names can contain any character except '[', ']', and '>'"
                )));
            }
            self.count += 1;
            if self.count > COUNT_MAX {
                return Err(SearchError::argument(format!("a search has more than [{COUNT_MAX}] aggregations")));
            }
            nodes.push(self.node(name, body, depth)?);
        }
        Ok(nodes)
    }

    fn node(&mut self, name: &str, body: &Value, depth: usize) -> Result<AggregationNode, SearchError> {
        let Value::Object(body) = body else {
            return Err(SearchError::parsing(format!(
                "Expected [START_OBJECT] under [{name}], but got [{body}] in [{name}]"
            )));
        };
        let id = self.count;
        let (type_name, options) = one_type(name, body)?;
        let subs = match body.get("aggs").or_else(|| body.get("aggregations")) {
            Some(_) if body.contains_key("aggs") && body.contains_key("aggregations") => {
                return Err(SearchError::parsing(format!("Found two sub aggregation definitions under [{name}]")));
            }
            Some(subs) => self.nodes(subs, depth + 1)?,
            None => Vec::new(),
        };
        let node = AggregationNode {
            id,
            name: name.to_owned(),
            kind: NodeKind::Global,
            field: None,
            path: None,
            format: "strict_date_optional_time".to_owned(),
            zone: TimeZone::UTC,
            subs,
            meta: body.get("meta").cloned(),
        };
        let node = kinds::read(self, node, (type_name, depth), options)?;
        if !node.subs.is_empty() && !node.kind.has_buckets() {
            return Err(SearchError::argument(format!(
                "Aggregator [{name}] of type [{type_name}] cannot accept sub-aggregations"
            )));
        }
        if matches!(node.kind, NodeKind::Global) && depth > 1 {
            return Err(SearchError::argument(format!(
                "Aggregation [{name}] cannot have a global sub-aggregation: it stands at the top"
            )));
        }
        if matches!(node.kind, NodeKind::Composite(_)) && depth > 1 {
            return Err(SearchError::argument("[composite] aggregation cannot be used with a parent aggregation"));
        }
        Ok(node)
    }
}

/// The one type of an aggregation, and its parameters.
fn one_type<'a>(name: &str, body: &'a Map<String, Value>) -> Result<(&'a str, &'a Value), SearchError> {
    let known = BTreeSet::from(["aggs", "aggregations", "meta"]);
    let mut types = body.iter().filter(|(key, _)| !known.contains(key.as_str()));
    let first =
        types.next().ok_or_else(|| SearchError::parsing(format!("Missing definition for aggregation [{name}]")))?;
    match types.next() {
        Some((second, _)) => Err(SearchError::parsing(format!(
            "Found two aggregation type definitions in [{name}]: [{}] and [{second}]",
            first.0
        ))),
        None => Ok((first.0, first.1)),
    }
}
