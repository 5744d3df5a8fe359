//! Requests about aliases, and which names there are.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest, any_state, resolved};
use super::message::{RestMethod, RestResponse};
use super::templates::acknowledged;
use crate::error::SearchError;
use crate::index::SearchIndex;
use crate::indices::Resolved;
use crate::mapping::matches_pattern;
use crate::rights::Asker;

/// A change of one alias of one index; none removes it.
type AliasChange = (Arc<SearchIndex>, String, Option<Value>);

/// The aliases of an index whose names match.
pub(super) fn shown(index: &SearchIndex, patterns: Option<&[&str]>) -> Value {
    let wanted = |name: &str| match patterns {
        None => true,
        Some(patterns) => patterns.iter().fold(false, |wanted, pattern| match pattern.strip_prefix('-') {
            Some(excluded) => wanted && !matches_pattern(excluded, name),
            None => wanted || *pattern == "_all" || matches_pattern(pattern, name),
        }),
    };
    let aliases = index.definition().aliases.clone();
    Value::Object(aliases.into_iter().filter(|(name, _)| wanted(name)).collect())
}

/// `GET /<index>/_alias/<name>`.
pub(super) fn get(api: &Api, request: &AskedRequest<'_>, names: &str, alias: Option<&str>) -> Answer {
    let patterns: Option<Vec<&str>> = alias.map(|names| names.split(',').collect());
    let mut body = Map::new();
    for Resolved { index, .. } in resolved(api, request, names, any_state())? {
        let aliases = shown(&index, patterns.as_deref());
        let is_empty = aliases.as_object().is_none_or(Map::is_empty);
        if !is_empty || patterns.is_none() {
            body.insert(index.name(), json!({"aliases": aliases}));
        }
    }
    let all: Vec<&String> =
        body.values().filter_map(|index| index["aliases"].as_object()).flat_map(Map::keys).collect();
    let is_there = |name: &&str| all.iter().any(|found| *found == name);
    let mut missing: Vec<&str> = patterns
        .iter()
        .flatten()
        .filter(|name| !name.contains('*') && **name != "_all" && !name.starts_with('-') && !is_there(name))
        .copied()
        .collect();
    if missing.is_empty() {
        return Ok(RestResponse::json(200, Value::Object(body)));
    }
    if request.method == RestMethod::Head {
        return Ok(RestResponse::json(404, json!({})));
    }
    missing.sort_unstable();
    let word = if missing.len() > 1 { "aliases" } else { "alias" };
    body.insert("error".to_owned(), json!(format!("{word} [{}] missing", missing.join(","))));
    body.insert("status".to_owned(), json!(404));
    Ok(RestResponse::json(404, Value::Object(body)))
}

/// `PUT /<index>/_alias/<name>`.
pub(super) fn put(api: &Api, request: &AskedRequest<'_>, names: &str, alias: &str) -> Answer {
    let body = request.json()?.unwrap_or_else(|| json!({}));
    let options = crate::indices::ResolveOptions { allow_no_indices: false, ..any_state() };
    request.asker.check(alias)?;
    let found = resolved(api, request, names, options)?;
    found.iter().try_for_each(|found| request.asker.check(&found.index.name()))?;
    let changes: Vec<AliasChange> =
        found.into_iter().map(|Resolved { index, .. }| (index, alias.to_owned(), Some(body.clone()))).collect();
    request.asker.record()?;
    api.indices.put_aliases(&changes)?;
    Ok(acknowledged())
}

/// `DELETE /<index>/_alias/<name>`.
pub(super) fn delete(api: &Api, request: &AskedRequest<'_>, names: &str, aliases: &str) -> Answer {
    let mut changes = Vec::new();
    for Resolved { index, .. } in api.indices.resolve(names, any_state(), &request.asker)? {
        removals(&request.asker, &index, aliases, &mut changes)?;
    }
    if changes.is_empty() {
        return Err(missing(aliases));
    }
    request.asker.record()?;
    api.indices.put_aliases(&changes)?;
    Ok(acknowledged())
}

fn missing(names: &str) -> SearchError {
    SearchError::new(404, "aliases_not_found_exception", format!("aliases [{names}] missing"))
}

/// Adds the removals of aliases of an index: of those that are named, and of those that patterns stand for and `asker` may change.
/// Errors: one that is named and may not be changed.
fn removals(
    asker: &Asker,
    index: &Arc<SearchIndex>,
    aliases: &str,
    changes: &mut Vec<AliasChange>,
) -> Result<(), SearchError> {
    let is_pattern = |name: &&str| *name == "_all" || name.contains('*');
    asker.check(&index.name())?;
    aliases.split(',').filter(|name| !is_pattern(name)).try_for_each(|name| asker.check(name))?;
    for name in index.definition().aliases.keys() {
        let is_meant = aliases.split(',').any(|pattern| pattern == "_all" || matches_pattern(pattern, name));
        if is_meant && asker.may(name) {
            changes.push((Arc::clone(index), name.clone(), None));
        }
    }
    Ok(())
}

fn texts(action: &Map<String, Value>, one: &str, many: &str) -> Vec<String> {
    let value = action.get(one).or_else(|| action.get(many));
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// `POST /_aliases`.
pub(super) fn update(api: &Api, request: &AskedRequest<'_>) -> Answer {
    let body = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    let actions = body["actions"].as_array().ok_or_else(|| SearchError::argument("No action specified"))?;
    let (mut changes, mut deletes) = (Vec::new(), Vec::new());
    for action in actions {
        let mut parts = action.as_object().into_iter().flatten();
        let (Some((kind, Value::Object(action))), None) = (parts.next(), parts.next()) else {
            return Err(SearchError::parsing("an action of _aliases is an object with one part"));
        };
        let indices = texts(action, "index", "indices");
        let aliases = texts(action, "alias", "aliases");
        if indices.is_empty() {
            return Err(SearchError::argument("One of [index] or [indices] is required"));
        }
        if aliases.is_empty() && kind != "remove_index" {
            return Err(SearchError::argument("One of [alias] or [aliases] is required"));
        }
        let options = crate::indices::ResolveOptions { allow_no_indices: false, ..any_state() };
        for Resolved { index, .. } in api.indices.resolve(&indices.join(","), options, &request.asker)? {
            match kind.as_str() {
                "add" => {
                    // Who reads through the alias reads the index from now on, which another alias is no right to.
                    request.asker.check(&index.name())?;
                    aliases.iter().try_for_each(|alias| request.asker.check(alias))?;
                    let mut body = action.clone();
                    body.retain(|name, _| {
                        !matches!(name.as_str(), "index" | "indices" | "alias" | "aliases" | "must_exist")
                    });
                    changes.extend(
                        aliases
                            .iter()
                            .map(|alias| (Arc::clone(&index), alias.clone(), Some(Value::Object(body.clone())))),
                    );
                }
                "remove" => {
                    let before = changes.len();
                    removals(&request.asker, &index, &aliases.join(","), &mut changes)?;
                    if changes.len() == before && action.get("must_exist") == Some(&json!(true)) {
                        return Err(missing(&aliases.join(",")));
                    }
                }
                "remove_index" => {
                    request.asker.check(&index.name())?;
                    deletes.push(index.name());
                }
                other => return Err(SearchError::parsing(format!("[alias_action] unknown field [{other}]"))),
            }
        }
    }
    request.asker.record()?;
    api.indices.put_aliases(&changes)?;
    deletes.iter().try_for_each(|name| api.indices.delete(name))?;
    Ok(acknowledged())
}

/// `GET /_resolve/index/<names>`.
pub(super) fn resolve(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let (mut indices, mut aliases) = (Vec::new(), std::collections::BTreeMap::<String, Vec<String>>::new());
    for Resolved { index, .. } in resolved(api, request, names, any_state())? {
        let definition = index.definition();
        let by_name = names.split(',').any(|pattern| pattern == "_all" || matches_pattern(pattern, &definition.name));
        let state = if definition.closed { "closed" } else { "open" };
        if by_name {
            let mut shown = json!({"name": definition.name, "attributes": [state]});
            if !definition.aliases.is_empty() {
                shown["aliases"] = definition.aliases.keys().map(|name| json!(name)).collect();
            }
            indices.push(shown);
        }
        for alias in definition.aliases.keys().filter(|alias| names.split(',').any(|name| matches_pattern(name, alias)))
        {
            aliases.entry(alias.clone()).or_default().push(definition.name.clone());
        }
    }
    let aliases: Vec<Value> =
        aliases.into_iter().map(|(name, indices)| json!({"name": name, "indices": indices})).collect();
    Ok(RestResponse::json(200, json!({"indices": indices, "aliases": aliases, "data_streams": []})))
}
