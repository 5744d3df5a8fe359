//! Templates: what an index that is created by a name gets besides what its request says.
//!
//! ```text
//!   _index_template   the one of the highest priority that matches, after its component templates in their order
//!   _template         where no index template matches: all that match, by their order
//! ```

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use store::Store;

use super::settings::flat_settings;
use crate::error::SearchError;
use crate::index::{catalog_items, put_catalog_item};
use crate::mapping::{Mapping, matches_pattern};

/// The kinds of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateKind {
    /// `_index_template`.
    Index,
    /// `_component_template`.
    Component,
    /// `_template`.
    Legacy,
}

impl TemplateKind {
    /// Its items of the catalog.
    fn items(self) -> &'static str {
        match self {
            TemplateKind::Index => "index-template",
            TemplateKind::Component => "component-template",
            TemplateKind::Legacy => "legacy-template",
        }
    }

    /// The parameters that a template may have.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            TemplateKind::Index => {
                &["index_patterns", "template", "priority", "composed_of", "version", "_meta", "allow_auto_create"]
            }
            TemplateKind::Component => &["template", "version", "_meta"],
            TemplateKind::Legacy => &["index_patterns", "order", "version", "settings", "mappings", "aliases"],
        }
    }
}

/// What templates say of a new index.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    pub(super) settings: Map<String, Value>,
    pub(super) mappings: Vec<Value>,
    pub(super) aliases: Map<String, Value>,
}

impl Template {
    fn add(&mut self, part: &Value) -> Result<(), SearchError> {
        if let Some(settings) = part.get("settings") {
            self.settings.extend(flat_settings(settings)?);
        }
        if let Some(mapping) = part.get("mappings") {
            self.mappings.push(mapping.clone());
        }
        if let Some(aliases) = part.get("aliases").and_then(Value::as_object) {
            self.aliases.extend(aliases.clone());
        }
        Ok(())
    }
}

fn patterns(template: &Value) -> Vec<&str> {
    match &template["index_patterns"] {
        Value::String(pattern) => vec![pattern],
        Value::Array(patterns) => patterns.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Most templates of a kind: each new index looks at all of them.
const TEMPLATES_MAX: usize = 1_000;

/// Bytes of all templates of a kind, as they are stored.
const TEMPLATES_BYTES_MAX: usize = 16 << 20;

/// Errors: the templates of a kind take too many bytes with this one.
fn check_bytes(templates: &BTreeMap<String, Value>, name: &str, stored: &Value) -> Result<(), SearchError> {
    let others = templates.iter().filter(|(other, _)| *other != name).map(|(_, template)| template.to_string().len());
    match others.sum::<usize>() + stored.to_string().len() > TEMPLATES_BYTES_MAX {
        true => Err(SearchError::argument(format!(
            "the templates of a kind would have more than {TEMPLATES_BYTES_MAX} bytes together"
        ))),
        false => Ok(()),
    }
}

/// The templates of a node.
pub struct Templates {
    store: Store,
    /// Held while they change.
    changing: Mutex<()>,
}

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Templates").finish_non_exhaustive()
    }
}

impl Templates {
    pub(super) fn new(store: Store) -> Templates {
        Templates { store, changing: Mutex::new(()) }
    }

    /// The templates of a kind, by name.
    ///
    /// Errors: those of the store.
    pub fn all(&self, kind: TemplateKind) -> Result<BTreeMap<String, Value>, SearchError> {
        catalog_items(&self.store, kind.items())
    }

    /// Stores a template. Durable when it returns.
    ///
    /// Errors: what an index could not be created with, a parameter that is not known, `create` and it is there.
    pub fn put(&self, kind: TemplateKind, name: &str, body: &Value, create: bool) -> Result<(), SearchError> {
        let Value::Object(parameters) = body else {
            return Err(SearchError::body("a template is an object"));
        };
        let known = kind.parameters();
        if let Some(other) = parameters.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(SearchError::unsupported(format!("[{other}] of a template")));
        }
        if kind != TemplateKind::Component && patterns(body).is_empty() {
            return Err(SearchError::new(
                400,
                "action_request_validation_exception",
                "Validation Failed: 1: index patterns are missing;",
            ));
        }
        let _naming = self.changing.lock();
        let templates = self.all(kind)?;
        if create && templates.contains_key(name) {
            return Err(SearchError::argument(format!("index_template [{name}] already exists")));
        }
        if !templates.contains_key(name) && templates.len() >= TEMPLATES_MAX {
            return Err(SearchError::argument(format!(
                "there are {} templates, and at most {TEMPLATES_MAX}",
                templates.len()
            )));
        }
        let mut whole = Template::default();
        for component in body["composed_of"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let part = self.component(component)?;
            whole.add(&part["template"])?;
        }
        whole.add(if kind == TemplateKind::Legacy { body } else { &body["template"] })?;
        for mapping in &whole.mappings {
            Mapping::empty().merged(mapping)?;
        }
        if kind == TemplateKind::Index {
            let priority = body["priority"].as_i64().unwrap_or(0);
            for (other, template) in &templates {
                let same = template["priority"].as_i64().unwrap_or(0) == priority && other != name;
                if same && patterns(template).iter().any(|a| patterns(body).iter().any(|b| overlap(a, b))) {
                    return Err(SearchError::argument(format!(
                        "index template [{name}] has index patterns {:?} matching patterns from existing templates [{other}] \
                         with patterns ({other} => {:?}) that have the same priority [{priority}], multiple index templates may \
                         not match during index creation, please use a different priority",
                        patterns(body),
                        patterns(template)
                    )));
                }
            }
        }
        let mut stored = body.clone();
        if kind != TemplateKind::Component {
            stored["index_patterns"] = json!(patterns(body));
        }
        for part in [if kind == TemplateKind::Legacy { &mut stored } else { &mut stored["template"] }] {
            if let Some(settings) = part.get("settings") {
                part["settings"] = super::settings::nested(&flat_settings(settings)?);
            }
        }
        if stored["template"].is_null() {
            stored.as_object_mut().map(|stored| stored.remove("template"));
        }
        check_bytes(&templates, name, &stored)?;
        put_catalog_item(&self.store, kind.items(), name, Some(&stored))
    }

    fn component(&self, name: &str) -> Result<Value, SearchError> {
        self.all(TemplateKind::Component)?
            .remove(name)
            .ok_or_else(|| SearchError::argument(format!("component template [{name}] does not exist")))
    }

    /// Deletes the templates of a name or pattern. Durable when it returns.
    ///
    /// Errors: 404 if there is none; 400 for a component that an index template uses.
    pub fn delete(&self, kind: TemplateKind, pattern: &str) -> Result<(), SearchError> {
        let _naming = self.changing.lock();
        let found: Vec<String> = self.all(kind)?.into_keys().filter(|name| matches_pattern(pattern, name)).collect();
        if found.is_empty() && pattern != "*" {
            return Err(SearchError::new(
                404,
                "index_template_missing_exception",
                format!("index_template [{pattern}] missing"),
            ));
        }
        if kind == TemplateKind::Component {
            for (user, template) in self.all(TemplateKind::Index)? {
                let used = template["composed_of"].as_array().into_iter().flatten().filter_map(Value::as_str);
                if let Some(name) = used.into_iter().find(|name| found.iter().any(|found| found == name)) {
                    return Err(SearchError::argument(format!(
                        "component templates [{name}] cannot be removed as they are still in use by index templates [{user}]"
                    )));
                }
            }
        }
        found.iter().try_for_each(|name| put_catalog_item(&self.store, kind.items(), name, None))
    }

    /// What the templates say of an index of this name.
    pub(super) fn for_index(&self, index: &str) -> Result<Template, SearchError> {
        let matching = |templates: BTreeMap<String, Value>| -> Vec<Value> {
            let fits = |template: &Value| patterns(template).iter().any(|pattern| matches_pattern(pattern, index));
            templates.into_values().filter(fits).collect()
        };
        let mut whole = Template::default();
        let composable = matching(self.all(TemplateKind::Index)?);
        if let Some(best) = composable.iter().max_by_key(|template| template["priority"].as_i64().unwrap_or(0)) {
            for component in best["composed_of"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                whole.add(&self.component(component)?["template"])?;
            }
            whole.add(&best["template"])?;
            return Ok(whole);
        }
        let mut legacy = matching(self.all(TemplateKind::Legacy)?);
        legacy.sort_by_key(|template| template["order"].as_i64().unwrap_or(0));
        legacy.iter().try_for_each(|template| whole.add(template))?;
        Ok(whole)
    }
}

/// Whether two patterns may match the same name; patterns with a `*` on both sides of a text are taken to overlap.
fn overlap(a: &str, b: &str) -> bool {
    let ends = |pattern: &str| {
        let (first, last) = (pattern.split('*').next().unwrap_or(""), pattern.rsplit('*').next().unwrap_or(""));
        (first.to_owned(), last.to_owned())
    };
    match (a.contains('*'), b.contains('*')) {
        (false, _) => matches_pattern(b, a),
        (_, false) => matches_pattern(a, b),
        _ => {
            let ((first_a, last_a), (first_b, last_b)) = (ends(a), ends(b));
            (first_a.starts_with(&first_b) || first_b.starts_with(&first_a))
                && (last_a.ends_with(&last_b) || last_b.ends_with(&last_a))
        }
    }
}
