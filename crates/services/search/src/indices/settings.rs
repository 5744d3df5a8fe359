//! Settings of indices and of the cluster: which ones there are, and their flat form.
//!
//! A setting that this node does not know is refused. One that is known and has no effect here (because there is one node, or
//! because it tells another storage engine what to do) is kept and shown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::error::SearchError;
use crate::index::{SearchIndex, check_block};
use crate::mapping::{DEPTH_MAX, FIELDS_MAX};
use crate::view::{REGEX_CHARS_MAX, TERMS_MAX};

/// How often changes become searchable where nothing is set (Elasticsearch's default).
const REFRESH: Duration = Duration::from_secs(1);

/// Settings of an index: a name, or a prefix that ends with a dot.
const KNOWN: &[&str] = &[
    "index.number_of_shards",
    "index.number_of_replicas",
    "index.auto_expand_replicas",
    "index.refresh_interval",
    "index.max_result_window",
    "index.max_inner_result_window",
    "index.max_docvalue_fields_search",
    "index.max_script_fields",
    "index.max_ngram_diff",
    "index.max_shingle_diff",
    "index.max_terms_count",
    "index.max_regex_length",
    "index.max_refresh_listeners",
    "index.max_slices_per_scroll",
    "index.highlight.",
    "index.hidden",
    "index.analysis.",
    "index.mapping.",
    "index.translog.",
    "index.merge.",
    "index.routing.",
    "index.unassigned.",
    "index.codec",
    "index.priority",
    "index.requests.cache.enable",
    "index.queries.cache.enabled",
    "index.query.default_field",
    "index.gc_deletes",
    "index.search.",
    "index.indexing.slowlog.",
    "index.soft_deletes.",
    "index.write.wait_for_active_shards",
    "index.number_of_routing_shards",
    "index.blocks.",
    "index.lifecycle.",
    "index.version.created",
    "index.uuid",
    "index.creation_date",
    "index.provided_name",
    "index.warmer.enabled",
    "index.load_fixed_bitset_filters_eagerly",
    "index.check_on_startup",
    "index.shard.check_on_startup",
];

/// Values of `index.codec`.
const CODECS: &[&str] = &["default", "lz4", "best_compression", "zlib"];

/// Settings that cannot change while the index is there.
const FINAL: &[&str] =
    &["index.number_of_shards", "index.analysis.", "index.codec", "index.soft_deletes.", "index.uuid"];

/// Settings of the cluster: prefixes.
const CLUSTER: &[&str] =
    &["action.", "cluster.", "search.", "indices.", "logger.", "ingest.", "script.", "xpack.", "http."];

/// A JSON object of settings in its flat form: `{"a": {"b": 1}}` is `a.b`, and texts stand for all values but null and lists.
///
/// Errors: it is not an object.
pub fn flat_values(settings: &Value) -> Result<BTreeMap<String, Value>, SearchError> {
    let mut flat = BTreeMap::new();
    match settings {
        Value::Null => {}
        Value::Object(object) => flatten("", object, &mut flat),
        other => return Err(SearchError::argument(format!("settings are an object, not [{other}]"))),
    }
    Ok(flat)
}

fn flatten(prefix: &str, object: &Map<String, Value>, flat: &mut BTreeMap<String, Value>) {
    for (name, value) in object {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(inner) => flatten(&name, inner, flat),
            Value::Null | Value::String(_) => drop(flat.insert(name, value.clone())),
            Value::Array(values) => drop(flat.insert(name, values.iter().map(text).collect())),
            other => drop(flat.insert(name, text(other))),
        }
    }
}

/// A value as clients read it: text.
fn text(value: &Value) -> Value {
    match value {
        Value::String(_) | Value::Null => value.clone(),
        other => json!(other.to_string()),
    }
}

/// The settings of an index in their flat form, each with the prefix `index.`.
///
/// Errors: one that is not known or has no value that it can have.
pub fn flat_settings(settings: &Value) -> Result<BTreeMap<String, Value>, SearchError> {
    let mut flat = BTreeMap::new();
    for (name, value) in flat_values(settings)? {
        let name = if name.starts_with("index.") { name } else { format!("index.{name}") };
        check(&name, &value)?;
        flat.insert(name, value);
    }
    Ok(flat)
}

fn is_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| if known.ends_with('.') { name.starts_with(known) } else { *known == name })
}

fn check(name: &str, value: &Value) -> Result<(), SearchError> {
    if !is_of(KNOWN, name) {
        return Err(SearchError::argument(format!(
            "unknown setting [{name}] please check that any required plugins are installed, or check the breaking changes \
             documentation for removed settings"
        )));
    }
    check_block(name, value)?;
    let text = value.as_str().unwrap_or_default();
    if !value.is_null() && is_without_effect(name, text) {
        return Err(SearchError::unsupported(format!("setting [{name}: {text}]")));
    }
    let bad = |what: String| Err(SearchError::argument(what));
    match name {
        "index.number_of_shards" | "index.number_of_replicas" => {
            let least = i64::from(name.ends_with("shards"));
            match text.parse::<i64>() {
                Ok(number) if number < least => {
                    bad(format!("Failed to parse value [{text}] for setting [{name}] must be >= {least}"))
                }
                Ok(number) if number > 1024 => {
                    bad(format!("Failed to parse value [{text}] for setting [{name}] must be <= 1024"))
                }
                Err(_) if !value.is_null() => bad(format!("Failed to parse value [{text}] for setting [{name}]")),
                _ => Ok(()),
            }
        }
        "index.refresh_interval" if !value.is_null() && text != "-1" => match duration(text) {
            Some(_) => Ok(()),
            None => bad(format!(
                "failed to parse setting [{name}] with value [{text}] as a time value: unit is missing or unrecognized"
            )),
        },
        // Files have one form, whatever it says; a name that no release of Elasticsearch or OpenSearch knows is a mistake.
        "index.codec" if !value.is_null() && !CODECS.contains(&text) => {
            bad(format!("unknown value for [index.codec] must be one of [{}] but is: {text}", CODECS.join(", ")))
        }
        "index.max_result_window" if !value.is_null() && text.parse::<u32>().is_err() => {
            bad(format!("Failed to parse value [{text}] for setting [{name}]"))
        }
        "index.max_terms_count" | "index.max_regex_length" if !value.is_null() => {
            let most = if name.ends_with("length") { REGEX_CHARS_MAX } else { TERMS_MAX };
            match text.parse::<usize>() {
                Ok(number) if (1..=most).contains(&number) => Ok(()),
                _ => bad(format!("Failed to parse value [{text}] for setting [{name}] must be from 1 to {most}")),
            }
        }
        _ => Ok(()),
    }
}

/// Whether a setting would change what is stored or found, and does not here. Bounds of a mapping are fixed: one that is wider is
/// kept, and what lies beyond the fixed one is refused by its name.
fn is_without_effect(name: &str, text: &str) -> bool {
    let is_less_than = |bound: usize| !text.parse::<usize>().is_ok_and(|number| number >= bound);
    match name {
        "index.mapping.ignore_malformed" => text != "false",
        "index.mapping.coerce" => text != "true",
        "index.mapping.total_fields.limit" => is_less_than(FIELDS_MAX),
        "index.mapping.depth.limit" => is_less_than(DEPTH_MAX),
        "index.query.default_field" => !matches!(text, "*" | "*.*"),
        _ => false,
    }
}

/// Errors: the setting is not known.
pub(super) fn check_cluster(name: &str) -> Result<(), SearchError> {
    match CLUSTER.iter().any(|prefix| name.starts_with(prefix)) {
        true => Ok(()),
        false => Err(SearchError::argument(format!("persistent setting [{name}], not recognized"))),
    }
}

/// Settings that an open index cannot change. Errors: one of them is there.
pub(super) fn check_dynamic(index: &str, settings: &BTreeMap<String, Value>) -> Result<(), SearchError> {
    match settings.keys().find(|name| is_of(FINAL, name)) {
        Some(name) => Err(SearchError::argument(format!(
            "Can't update non dynamic settings [[{name}]] for open indices [[{index}]]"
        ))),
        None => Ok(()),
    }
}

/// Sets a setting; null removes it, and with `*` all that match.
pub(super) fn set(settings: &mut BTreeMap<String, Value>, name: String, value: Value) {
    match value {
        Value::Null if name.contains('*') => {
            settings.retain(|known, _| !crate::mapping::matches_pattern(&name, known));
        }
        Value::Null => drop(settings.remove(&name)),
        value => drop(settings.insert(name, value)),
    }
}

/// A time such as `30s` or `500ms`.
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "nanos" => 1e-9,
        "micros" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

/// How long work on an index that failed is left alone; twice as long each time, up to the second. A writer that failed indexes
/// again what it lost, and a full medium stays full for a while.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// How long to leave something alone that failed so often.
pub(super) fn retry_after(failures: u32) -> Duration {
    RETRY_AFTER.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(RETRY_MAX)
}

/// How often changes of an index become searchable; `None` if only on request.
pub(super) fn refresh_interval(index: &SearchIndex) -> Option<Duration> {
    match index.setting("index.refresh_interval").as_ref().and_then(Value::as_str) {
        None => Some(REFRESH),
        Some("-1") => None,
        Some(text) => Some(duration(text).unwrap_or(REFRESH)),
    }
}

/// Settings in their nested form, as responses show them.
pub(super) fn nested(flat: &BTreeMap<String, Value>) -> Value {
    let mut root = json!({});
    for (name, value) in flat {
        let mut at = &mut root;
        for part in name.split('.') {
            if !at.is_object() {
                // Both `a` and `a.b` are set: the value of `a` has no place.
                *at = json!({});
            }
            at = &mut at[part];
        }
        *at = value.clone();
    }
    root
}
