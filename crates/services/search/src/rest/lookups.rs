//! Lookups of `terms` queries: the values of a field of one document take the place of its name.
//!
//! ```text
//!   {"terms": {"user": {"index": "people", "id": "1", "path": "friends"}}}   -->   {"terms": {"user": ["2", "3"]}}
//! ```

use node::identity::Action;
use serde_json::{Map, Value};

use super::api::Api;
use crate::error::SearchError;
use crate::index::parse_source;
use crate::indices::ResolveOptions;
use crate::memory::value_bytes;
use crate::rights::Asker;
use crate::source::values_at;

/// The most lookups of a request: each reads a document.
const LOOKUPS_MAX: usize = 100;

/// Memory of the values of all lookups of a request: as much as those that a body has itself.
const VALUES_BYTES_MAX: usize = 128 << 20;

/// What a request may still look up.
struct LookupsLeft {
    lookups: usize,
    bytes: usize,
}

/// Puts the values in the place of all lookups of a request's body. Errors: an index that is not there or
/// may not be read, too many lookups.
pub(super) fn expand(api: &Api, asker: &Asker, body: &mut Value) -> Result<(), SearchError> {
    let mut left = LookupsLeft { lookups: LOOKUPS_MAX, bytes: VALUES_BYTES_MAX };
    walk(api, asker, body, &mut left)
}

fn walk(api: &Api, asker: &Asker, value: &mut Value, left: &mut LookupsLeft) -> Result<(), SearchError> {
    match value {
        Value::Array(values) => values.iter_mut().try_for_each(|value| walk(api, asker, value, left)),
        Value::Object(object) => {
            for (name, value) in object {
                match value {
                    Value::Object(terms) if name == "terms" => expand_terms(api, asker, terms, left)?,
                    value => walk(api, asker, value, left)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn expand_terms(
    api: &Api,
    asker: &Asker,
    terms: &mut Map<String, Value>,
    left: &mut LookupsLeft,
) -> Result<(), SearchError> {
    for value in terms.values_mut() {
        let is_lookup =
            |lookup: &Map<String, Value>| ["index", "id", "path"].iter().all(|part| lookup.contains_key(*part));
        match value {
            Value::Object(lookup) if is_lookup(lookup) => {
                left.lookups = left.lookups.checked_sub(1).ok_or_else(|| {
                    SearchError::argument(format!("a request has at most {LOOKUPS_MAX} lookups of [terms]"))
                })?;
                *value = Value::Array(values(api, asker, lookup)?);
                left.bytes = left.bytes.checked_sub(value_bytes(value)).ok_or_else(|| {
                    SearchError::argument("the lookups of [terms] of a request have too many values together")
                })?;
            }
            value => walk(api, asker, value, left)?,
        }
    }
    Ok(())
}

/// The values that a lookup means; none if there is no such document.
fn values(api: &Api, asker: &Asker, lookup: &Map<String, Value>) -> Result<Vec<Value>, SearchError> {
    let text = |name: &str| match lookup.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => Err(SearchError::argument(format!("[terms] query lookup element requires specifying the {name}."))),
    };
    let known = ["index", "id", "path", "routing", "type"];
    if let Some(other) = lookup.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(SearchError::unsupported(format!("[{other}] of a lookup of [terms]")));
    }
    let asker = asker.asking("indices:data/read/get", &[Action::IndexRead]);
    let (index, id, path) = (text("index")?, text("id")?, text("path")?);
    let mut found =
        api.indices.resolve(&index, ResolveOptions { allow_no_indices: false, ..Default::default() }, &asker)?;
    let (Some(one), true) = (found.pop(), found.is_empty()) else {
        return Err(SearchError::argument(format!("a lookup of [terms] reads one index, not [{index}]")));
    };
    one.check_whole(&asker)?;
    let routing = lookup.contains_key("routing").then(|| text("routing")).transpose()?;
    let document = one.index.get(&id)?;
    let document =
        document.filter(|(document, _)| one.index.shards().finds(&id, routing.as_deref(), document.routing.as_deref()));
    let mut values = Vec::new();
    if let Some((document, _)) = document {
        let source = parse_source(&document.source)?;
        if one.scope.as_ref().is_some_and(|scope| !scope.shows(&source)) {
            return Ok(values);
        }
        if one.index.is_fed() {
            document.id.parse().into_iter().for_each(|id| asker.notes().read(id));
        }
        values_at(&path, &source, &mut values);
    }
    Ok(values)
}
