//! Requests about indices themselves: create, delete, get, mappings, settings.

use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest, any_state, resolved};
use super::message::RestResponse;
use super::templates::acknowledged;
use crate::error::SearchError;
use crate::index::SearchIndex;
use crate::indices::{Expand, Indices, NewIndex, ResolveOptions, Resolved};
use crate::mapping::matches_pattern;

/// `PUT /<index>`.
pub(super) fn create(api: &Api, request: &AskedRequest<'_>, name: &str) -> Answer {
    let new = NewIndex::read(request.json()?.as_ref())?;
    api.indices.create(name, new, &request.asker)?;
    Ok(RestResponse::json(200, json!({"acknowledged": true, "shards_acknowledged": true, "index": name})))
}

/// `DELETE /<index>`.
pub(super) fn delete(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let is_pattern = names.split(',').any(|name| name.contains('*') || name == "_all");
    if is_pattern && api.indices.destructive_requires_name() {
        return Err(SearchError::argument("Wildcard expressions or all indices are not allowed"));
    }
    let all = Expand { open: true, closed: true, hidden: false };
    let options = ResolveOptions { expand: all, aliases: false, ..any_state() }.of(&request.parameters)?;
    for name in names.split(',').filter(|name| !name.contains('*') && *name != "_all") {
        if !options.ignore_unavailable {
            api.indices.check_use(name, &request.asker)?;
        }
        if api.indices.is_alias(name) && !options.ignore_unavailable {
            return Err(SearchError::argument(format!(
                "The provided expression [{name}] matches an alias, specify the corresponding concrete indices instead."
            )));
        }
    }
    let found = match api.indices.resolve(names, options, &request.asker) {
        // A red index can be deleted by its name.
        Err(error) if error.status == 503 => {
            request.asker.record()?;
            api.indices.delete(names)?;
            return Ok(acknowledged());
        }
        found => found?,
    };
    request.asker.record()?;
    for Resolved { index, .. } in found {
        let name = index.name();
        let by_name = names.split(',').any(|pattern| pattern == "_all" || matches_pattern(pattern, &name));
        if by_name {
            api.indices.delete(&name)?;
        }
    }
    Ok(acknowledged())
}

/// `HEAD /<index>`.
pub(super) fn exists(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let options = ResolveOptions { allow_no_indices: false, ..any_state() }.of(&request.parameters)?;
    let found = api.indices.resolve(names, options, &request.asker);
    let status = match found {
        Ok(_) => 200,
        Err(error) if error.status == 404 => 404,
        Err(error) => return Err(error),
    };
    Ok(RestResponse::json(status, json!({})))
}

fn shown_settings(index: &SearchIndex, flat: bool, only: Option<&str>) -> Value {
    let mut settings = Indices::shown_settings(index);
    if let Some(only) = only.filter(|only| *only != "_all") {
        settings.retain(|name, _| only.split(',').any(|pattern| matches_pattern(pattern, name)));
    }
    match flat {
        true => json!(settings),
        false => Indices::nested_settings(&settings),
    }
}

/// `GET /<index>`.
pub(super) fn get(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let flat = request.flag("flat_settings")?.unwrap_or(false);
    let features = request.parameter("features").map(|text| text.split(',').collect::<Vec<_>>());
    let mut body = Map::new();
    for Resolved { index, .. } in resolved(api, request, names, any_state())? {
        let mut shown = json!({});
        let wants = |name: &str| features.as_ref().is_none_or(|features| features.contains(&name));
        if wants("aliases") {
            shown["aliases"] = super::aliases::shown(&index, None);
        }
        if wants("mappings") {
            shown["mappings"] = index.mapping().to_json();
        }
        if wants("settings") {
            shown["settings"] = shown_settings(&index, flat, None);
        }
        body.insert(index.name(), shown);
    }
    Ok(RestResponse::json(200, Value::Object(body)))
}

/// `GET /<index>/_mapping`.
pub(super) fn mapping(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let mut body = Map::new();
    for Resolved { index, .. } in resolved(api, request, names, any_state())? {
        body.insert(index.name(), json!({"mappings": index.mapping().to_json()}));
    }
    Ok(RestResponse::json(200, Value::Object(body)))
}

/// `PUT /<index>/_mapping`.
pub(super) fn put_mapping(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let update = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    let options = ResolveOptions { allow_no_indices: false, ..any_state() };
    let found = resolved(api, request, names, options)?;
    // All are asked before any is changed.
    for Resolved { index, .. } in &found {
        index.mapping().merged(&update)?;
    }
    request.asker.record()?;
    found.iter().try_for_each(|Resolved { index, .. }| index.put_mapping(&update))?;
    Ok(acknowledged())
}

/// `GET /<index>/_mapping/field/<fields>`.
pub(super) fn field_mapping(api: &Api, request: &AskedRequest<'_>, names: &str, fields: &str) -> Answer {
    let patterns: Vec<&str> = fields.split(',').collect();
    let mut body = Map::new();
    for Resolved { index, .. } in resolved(api, request, names, any_state())? {
        let (mapping, mut found) = (index.mapping(), Map::new());
        let json = mapping.to_json();
        for field in mapping.fields() {
            if patterns.iter().any(|pattern| matches_pattern(pattern, &field.path)) {
                let leaf = field.path.rsplit('.').next().unwrap_or_default();
                let definition = definition_of(&json, &field.path).unwrap_or_else(|| json!({"type": field.type_name}));
                found.insert(field.path.clone(), json!({"full_name": field.path, "mapping": {leaf: definition}}));
            }
        }
        body.insert(index.name(), json!({"mappings": found}));
    }
    Ok(RestResponse::json(200, Value::Object(body)))
}

/// The definition of a field in a mapping.
fn definition_of(mapping: &Value, path: &str) -> Option<Value> {
    let mut at = mapping;
    let mut parts = path.split('.');
    at = at.get("properties")?.get(parts.next()?)?;
    for part in parts {
        at = at.get("properties").and_then(|inner| inner.get(part)).or_else(|| at.get("fields")?.get(part))?;
    }
    Some(at.clone())
}

/// `GET /<index>/_settings/<name>`.
pub(super) fn settings(api: &Api, request: &AskedRequest<'_>, names: &str, only: Option<&str>) -> Answer {
    let flat = request.flag("flat_settings")?.unwrap_or(false);
    let mut body = Map::new();
    let all = Expand { open: true, closed: true, hidden: false };
    for Resolved { index, .. } in resolved(api, request, names, ResolveOptions { expand: all, ..any_state() })? {
        body.insert(index.name(), json!({"settings": shown_settings(&index, flat, only)}));
    }
    Ok(RestResponse::json(200, Value::Object(body)))
}

/// `PUT /<index>/_settings`.
pub(super) fn put_settings(api: &Api, request: &AskedRequest<'_>, names: &str) -> Answer {
    let body = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    let changes = body.get("settings").unwrap_or(&body);
    let preserve = request.flag("preserve_existing")?.unwrap_or(false);
    let options = ResolveOptions { allow_no_indices: false, ..any_state() };
    let found = resolved(api, request, names, options)?;
    request.asker.record()?;
    for Resolved { index, .. } in found {
        api.indices.put_settings(&index, changes, preserve)?;
    }
    Ok(acknowledged())
}

/// `POST /<index>/_open`, `POST /<index>/_close`.
pub(super) fn open_or_close(api: &Api, request: &AskedRequest<'_>, names: &str, close: bool) -> Answer {
    let all = Expand { open: true, closed: true, hidden: false };
    let options = ResolveOptions { expand: all, allow_no_indices: false, ..any_state() };
    let mut indices = Map::new();
    let found = resolved(api, request, names, options)?;
    found.iter().try_for_each(|resolved| resolved.index.check_writable())?;
    request.asker.record()?;
    for Resolved { index, .. } in found {
        if close {
            index.persist()?;
        }
        index.redefine(|definition| definition.closed = close)?;
        indices.insert(index.name(), json!({"closed": true}));
    }
    let mut body = json!({"acknowledged": true, "shards_acknowledged": true});
    if close {
        body["indices"] = Value::Object(indices);
    }
    Ok(RestResponse::json(200, body))
}
