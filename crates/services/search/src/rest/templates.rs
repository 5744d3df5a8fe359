//! Requests about templates: index templates, their components, and those of the older kind.

use serde_json::{Map, Value, json};

use super::api::{Answer, Api};
use super::message::{RestRequest, RestResponse};
use crate::error::SearchError;
use crate::indices::TemplateKind;
use crate::mapping::matches_pattern;

/// `GET /_index_template/<pattern>` and its brothers.
pub(super) fn get(api: &Api, request: &RestRequest, kind: TemplateKind, pattern: Option<&str>) -> Answer {
    let wanted: Vec<&str> = pattern.unwrap_or("*").split(',').collect();
    let all = api.indices.templates.all(kind)?;
    let found: Vec<(String, Value)> =
        all.into_iter().filter(|(name, _)| wanted.iter().any(|pattern| matches_pattern(pattern, name))).collect();
    let named = pattern.filter(|pattern| !pattern.contains('*'));
    if found.is_empty() && kind == TemplateKind::Legacy && named.is_some() {
        return Ok(RestResponse::json(404, json!({})));
    }
    if let (true, Some(name)) = (found.is_empty(), named) {
        let reason = format!("index template matching [{name}] not found");
        return Err(SearchError::new(404, "resource_not_found_exception", reason));
    }
    let flat = request.flag("flat_settings")?.unwrap_or(false);
    let shown = |mut template: Value| {
        let part = if kind == TemplateKind::Legacy { Some(&mut template) } else { template.get_mut("template") };
        if let Some(part) = part.filter(|part| flat && part.get("settings").is_some()) {
            let settings = crate::indices::flat_settings(&part["settings"]).unwrap_or_default();
            part["settings"] = json!(settings);
        }
        template
    };
    let (list, item) = match kind {
        TemplateKind::Index => ("index_templates", "index_template"),
        TemplateKind::Component => ("component_templates", "component_template"),
        TemplateKind::Legacy => {
            let legacy = |(name, template): (String, Value)| {
                let mut whole = json!({"order": 0, "settings": {}, "mappings": {}, "aliases": {}});
                for (key, value) in shown(template).as_object().into_iter().flatten() {
                    whole[key] = value.clone();
                }
                (name, whole)
            };
            let body: Map<String, Value> = found.into_iter().map(legacy).collect();
            return Ok(RestResponse::json(200, Value::Object(body)));
        }
    };
    let composable = |mut template: Value| {
        if kind == TemplateKind::Index && template.get("composed_of").is_none() {
            template["composed_of"] = json!([]);
        }
        shown(template)
    };
    let found: Vec<Value> =
        found.into_iter().map(|(name, template)| json!({"name": name, item: composable(template)})).collect();
    Ok(RestResponse::json(200, json!({list: found})))
}

/// `HEAD /_index_template/<name>` and its brothers.
pub(super) fn exists(api: &Api, kind: TemplateKind, pattern: &str) -> Answer {
    let found = api.indices.templates.all(kind)?.keys().any(|name| matches_pattern(pattern, name));
    Ok(RestResponse::json(if found { 200 } else { 404 }, json!({})))
}

/// `PUT /_index_template/<name>` and its brothers.
pub(super) fn put(api: &Api, request: &RestRequest, kind: TemplateKind, name: &str) -> Answer {
    let body = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    api.indices.templates.put(kind, name, &body, request.flag("create")?.unwrap_or(false))?;
    Ok(acknowledged())
}

/// `DELETE /_index_template/<name>` and its brothers.
pub(super) fn delete(api: &Api, kind: TemplateKind, pattern: &str) -> Answer {
    api.indices.templates.delete(kind, pattern)?;
    Ok(acknowledged())
}

/// The response of a change that is done.
pub(super) fn acknowledged() -> RestResponse {
    RestResponse::json(200, json!({"acknowledged": true}))
}
