//! What a mapping update may change of a field that is there: what the index already holds has to stay right.
//!
//! ```text
//!   type, index, doc_values, store, analyzer, normalizer, format, null_value, scaling_factor, value ...   never
//!   search_analyzer, ignore_above, ignore_malformed, coerce, copy_to, meta, fields                         from now on
//! ```

use serde_json::{Map, Value, json};

use super::{FieldKind, MappedField};
use crate::error::SearchError;

/// A field cannot get another type.
pub(super) fn other_type(path: &str, from: &str, to: &str) -> SearchError {
    SearchError::argument(format!("mapper [{path}] cannot be changed from type [{from}] to [{to}]"))
}

/// Errors: the new definition of a field differs from the old one in what cannot change.
pub(super) fn check(old: &MappedField, new: &MappedField) -> Result<(), SearchError> {
    if old.type_name != new.type_name {
        return Err(other_type(&old.path, &old.type_name, &new.type_name));
    }
    let conflicts: Vec<String> = fixed(old)
        .into_iter()
        .zip(fixed(new))
        .filter(|((_, from), (_, to))| from != to)
        .map(|((name, from), (_, to))| format!("\tCannot update parameter [{name}] from [{from}] to [{to}]"))
        .collect();
    // A date's formats may differ behind their first one.
    match (conflicts.is_empty(), old.formats == new.formats) {
        (true, true) => Ok(()),
        (true, false) => Err(conflict(old, &["\tCannot update parameter [format]".to_owned()])),
        (false, _) => Err(conflict(old, &conflicts)),
    }
}

fn conflict(field: &MappedField, conflicts: &[String]) -> SearchError {
    let path = &field.path;
    SearchError::argument(format!("Mapper for [{path}] conflicts with existing mapper:\n{}", conflicts.join("\n")))
}

/// The parameters that cannot change, as texts.
fn fixed(field: &MappedField) -> Vec<(&'static str, String)> {
    let text = |value: Option<&str>| value.unwrap_or("null").to_owned();
    let null_value = field.null_value.as_ref().map(|value| crate::scalars::text_of(value).unwrap_or_default());
    let (analysis, default) = match field.kind {
        FieldKind::Text => ("analyzer", "default"),
        _ => ("normalizer", "null"),
    };
    vec![
        ("index", field.indexed.to_string()),
        ("doc_values", field.doc_values.to_string()),
        ("store", field.stored.to_string()),
        (analysis, field.analyzer.as_deref().unwrap_or(default).to_owned()),
        ("format", field.formats.first().to_owned()),
        ("null_value", text(null_value.as_deref())),
        ("scaling_factor", text(field.scaling.map(|factor| factor.to_string()).as_deref())),
        ("value", text(field.constant.as_deref())),
        ("position_increment_gap", field.position_gap.to_string()),
    ]
}

/// Puts a definition in the place of what is kept of a field; multi-fields that it does not name stay.
pub(super) fn redefine(kept: &mut Value, update: &Map<String, Value>) {
    let old = std::mem::replace(kept, Value::Object(update.clone()));
    let Some(Value::Object(multi)) = old.get("fields") else { return };
    for (name, definition) in multi {
        if kept.get("fields").and_then(|fields| fields.get(name)).is_none() {
            kept["fields"][name] = definition.clone();
        }
    }
}

/// Lays one mapping over another: objects are joined, and a field's definition takes the place of another.
pub(super) fn overlay(under: &mut Value, over: Value) {
    let Value::Object(over) = over else { return };
    for (key, value) in over {
        if key != "properties" {
            under[key] = value;
            continue;
        }
        let Value::Object(properties) = value else { continue };
        for (name, definition) in properties {
            let properties = &mut under["properties"];
            if properties.is_null() {
                *properties = json!({});
            }
            match is_object(&definition) && properties.get(&name).is_some_and(is_object) {
                true => overlay(&mut properties[name], definition),
                false => properties[name] = definition,
            }
        }
    }
}

fn is_object(definition: &Value) -> bool {
    matches!(definition.get("type").and_then(Value::as_str), None | Some("object" | "nested"))
}
