//! Requests about aliases, and which names there are.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest, any_state, resolved};
use super::message::{RestMethod, RestResponse};
use super::templates::acknowledged;
use crate::error::SearchError;
use crate::index::SearchIndex;
use crate::indices::{AliasChange, Resolved};
use crate::mapping::matches_pattern;
use crate::rights::Asker;

/// Most names of a request, and most changes that they become: one of one alias of one index each.
const CHANGES_MAX: usize = 1_000;

/// Bytes of the filters and options of all changes of a request, as they are stored.
const CHANGES_BYTES_MAX: usize = 16 << 20;

/// The changes of a request, bounded.
#[derive(Default)]
struct AliasChanges {
    all: Vec<AliasChange>,
    bytes: usize,
}

impl AliasChanges {
    /// Adds a change; a body of `bytes` bytes is put. Errors: these are too many.
    fn push(
        &mut self,
        index: &Arc<SearchIndex>,
        alias: &str,
        body: Option<(&Arc<Value>, usize)>,
    ) -> Result<(), SearchError> {
        self.bytes += body.map_or(0, |(_, bytes)| bytes);
        if self.all.len() == CHANGES_MAX || self.bytes > CHANGES_BYTES_MAX {
            return Err(SearchError::argument(format!(
                "a request changes at most {CHANGES_MAX} aliases, an alias of each index counted, with {CHANGES_BYTES_MAX} bytes"
            )));
        }
        self.all.push((Arc::clone(index), alias.to_owned(), body.map(|(body, _)| Arc::clone(body))));
        Ok(())
    }
}

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
    let (bytes, body) = (body.to_string().len(), Arc::new(body));
    let mut changes = AliasChanges::default();
    found.iter().try_for_each(|found| changes.push(&found.index, alias, Some((&body, bytes))))?;
    request.asker.record()?;
    api.indices.put_aliases(&changes.all)?;
    Ok(acknowledged())
}

/// `DELETE /<index>/_alias/<name>`.
pub(super) fn delete(api: &Api, request: &AskedRequest<'_>, names: &str, aliases: &str) -> Answer {
    check_names(aliases.split(',').count())?;
    let mut changes = AliasChanges::default();
    for Resolved { index, .. } in api.indices.resolve(names, any_state(), &request.asker)? {
        removals(&request.asker, &index, aliases, &mut changes)?;
    }
    if changes.all.is_empty() {
        return Err(missing(aliases));
    }
    request.asker.record()?;
    api.indices.put_aliases(&changes.all)?;
    Ok(acknowledged())
}

/// Errors: a request cannot name so many.
fn check_names(names: usize) -> Result<(), SearchError> {
    match names > CHANGES_MAX {
        true => {
            Err(SearchError::argument(format!("a request about aliases has {names} names, and at most {CHANGES_MAX}")))
        }
        false => Ok(()),
    }
}

fn missing(names: &str) -> SearchError {
    SearchError::new(404, "aliases_not_found_exception", format!("aliases [{names}] missing"))
}

/// Adds the removals of aliases of an index: of those that are named, and of those that patterns stand for and `asker` may change.
/// Errors: one that is named and may not be changed; too many changes.
fn removals(
    asker: &Asker,
    index: &Arc<SearchIndex>,
    aliases: &str,
    changes: &mut AliasChanges,
) -> Result<(), SearchError> {
    let is_pattern = |name: &&str| *name == "_all" || name.contains('*');
    asker.check(&index.name())?;
    aliases.split(',').filter(|name| !is_pattern(name)).try_for_each(|name| asker.check(name))?;
    for name in index.definition().aliases.keys() {
        let is_meant = aliases.split(',').any(|pattern| pattern == "_all" || matches_pattern(pattern, name));
        if is_meant && asker.may(name) {
            changes.push(index, name, None)?;
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

/// One action of `_aliases`.
struct AliasAction<'r> {
    kind: &'r str,
    parts: &'r Map<String, Value>,
    indices: Vec<String>,
    aliases: Vec<String>,
}

impl<'r> AliasAction<'r> {
    /// Errors: it has no name, or another form.
    fn read(action: &'r Value) -> Result<AliasAction<'r>, SearchError> {
        let mut parts = action.as_object().into_iter().flatten();
        let (Some((kind, Value::Object(parts))), None) = (parts.next(), parts.next()) else {
            return Err(SearchError::parsing("an action of _aliases is an object with one part"));
        };
        let (indices, aliases) = (texts(parts, "index", "indices"), texts(parts, "alias", "aliases"));
        if indices.is_empty() {
            return Err(SearchError::argument("One of [index] or [indices] is required"));
        }
        if aliases.is_empty() && kind != "remove_index" {
            return Err(SearchError::argument("One of [alias] or [aliases] is required"));
        }
        match kind.as_str() {
            "add" | "remove" | "remove_index" => Ok(AliasAction { kind, parts, indices, aliases }),
            other => Err(SearchError::parsing(format!("[alias_action] unknown field [{other}]"))),
        }
    }

    /// Adds the changes of one index that it names. Errors: `asker` may not make them; an alias is not there that must be; too many.
    fn of_index(&self, index: &Arc<SearchIndex>, asker: &Asker, changes: &mut AliasChanges) -> Result<(), SearchError> {
        if self.kind == "add" {
            // Who reads through the alias reads the index from now on, which another alias is no right to.
            asker.check(&index.name())?;
            self.aliases.iter().try_for_each(|alias| asker.check(alias))?;
            let mut body = self.parts.clone();
            body.retain(|name, _| !matches!(name.as_str(), "index" | "indices" | "alias" | "aliases" | "must_exist"));
            let body = Value::Object(body);
            let (bytes, body) = (body.to_string().len(), Arc::new(body));
            return self.aliases.iter().try_for_each(|alias| changes.push(index, alias, Some((&body, bytes))));
        }
        let before = changes.all.len();
        removals(asker, index, &self.aliases.join(","), changes)?;
        match changes.all.len() == before && self.parts.get("must_exist") == Some(&json!(true)) {
            true => Err(missing(&self.aliases.join(","))),
            false => Ok(()),
        }
    }
}

/// `POST /_aliases`.
pub(super) fn update(api: &Api, request: &AskedRequest<'_>) -> Answer {
    let body = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    let actions = body["actions"].as_array().ok_or_else(|| SearchError::argument("No action specified"))?;
    check_names(actions.len())?;
    let actions: Vec<AliasAction<'_>> = actions.iter().map(AliasAction::read).collect::<Result<_, _>>()?;
    check_names(actions.iter().map(|action| action.aliases.len().max(action.indices.len())).sum())?;
    let (mut changes, mut deletes) = (AliasChanges::default(), Vec::new());
    for action in &actions {
        let options = crate::indices::ResolveOptions { allow_no_indices: false, ..any_state() };
        for Resolved { index, .. } in api.indices.resolve(&action.indices.join(","), options, &request.asker)? {
            match action.kind {
                "remove_index" => {
                    request.asker.check(&index.name())?;
                    deletes.push(index.name());
                }
                _ => action.of_index(&index, &request.asker, &mut changes)?,
            }
        }
    }
    // An index is deleted by itself: with something else in the request, a failure between them would leave half of it.
    if !deletes.is_empty() && actions.len() + deletes.len() > 2 {
        return Err(SearchError::unsupported("[remove_index] beside other actions, or of several indices"));
    }
    request.asker.record()?;
    api.indices.put_aliases(&changes.all)?;
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
