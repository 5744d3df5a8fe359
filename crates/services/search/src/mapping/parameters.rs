//! From a field's definition to what it means: types and parameters, each known or refused.

use serde_json::{Map, Value, json};

use super::{FieldKind, MappedField};
use crate::dates::DateFormats;
use crate::error::SearchError;
use crate::scalars;

/// Positions between two values of a text where a mapping does not say (Elasticsearch's default).
const POSITION_GAP: usize = 100;

/// Checks a part of a mapping beside its fields. Errors: it is not known, or has no effect here.
pub(super) fn check_root(key: &str, value: &Value) -> Result<(), SearchError> {
    match key {
        "dynamic" | "_meta" | "_field_names" => Ok(()),
        "_source" => {
            for (name, value) in value.as_object().ok_or_else(|| SearchError::mapping("[_source] is an object"))? {
                match (name.as_str(), value) {
                    ("enabled", Value::Bool(_)) => {}
                    ("includes" | "excludes", Value::Array(patterns)) if patterns.is_empty() => {}
                    ("mode", Value::String(mode)) if mode == "stored" => {}
                    _ => return Err(SearchError::unsupported(format!("[_source.{name}: {value}] in a mapping"))),
                }
            }
            Ok(())
        }
        "date_detection" => flag(key, value).map(drop),
        "numeric_detection" if !flag(key, value)? => Ok(()),
        "_routing" if value.get("required").is_none_or(|required| required == &json!(false)) => Ok(()),
        "_size" if value.get("enabled").is_none_or(|enabled| enabled == &json!(false)) => Ok(()),
        "dynamic_templates" if value.as_array().is_some_and(Vec::is_empty) => Ok(()),
        "dynamic_templates" | "runtime" => Err(SearchError::unsupported(format!("[{key}] in a mapping"))),
        "numeric_detection" | "_routing" | "_size" => {
            Err(SearchError::unsupported(format!("[{key}: {value}] in a mapping")))
        }
        "_doc" => Err(SearchError::argument("Types cannot be provided in put mapping requests")),
        other => Err(SearchError::mapping(format!(
            "Root mapping definition has unsupported parameters: [{other} : {value}]"
        ))),
    }
}

/// Reads the definition of a field that is no object. Errors: a type or parameter that is not known; of one that is stored, a type.
pub(super) fn field(
    path: &str,
    type_name: &str,
    definition: &Map<String, Value>,
    is_stored: bool,
) -> Result<MappedField, SearchError> {
    let kind = match type_name {
        "text" | "match_only_text" => FieldKind::Text,
        "keyword" | "constant_keyword" | "wildcard" => FieldKind::Keyword,
        "long" => FieldKind::Integer(64),
        "integer" => FieldKind::Integer(32),
        "short" => FieldKind::Integer(16),
        "byte" => FieldKind::Integer(8),
        "unsigned_long" => FieldKind::UnsignedLong,
        "double" => FieldKind::Real(false),
        "float" | "half_float" => FieldKind::Real(true),
        "boolean" => FieldKind::Boolean,
        "date" => FieldKind::Date,
        "ip" => FieldKind::Ip,
        "scaled_float" => FieldKind::Real(false),
        "binary" | "geo_point" => FieldKind::Opaque,
        other => return Err(SearchError::mapping(format!("No handler for type [{other}] declared on field [{path}]"))),
    };
    let mut field = MappedField {
        path: path.to_owned(),
        kind,
        type_name: type_name.to_owned(),
        column: String::new(),
        indexed: true,
        doc_values: !matches!(kind, FieldKind::Text | FieldKind::Opaque),
        analyzer: None,
        search_analyzer: None,
        formats: DateFormats::default(),
        ignore_above: None,
        ignore_malformed: false,
        coerce: true,
        null_value: None,
        copy_to: Vec::new(),
        multi: Vec::new(),
        is_multi: false,
        scaling: None,
        stored: false,
        constant: None,
        position_gap: POSITION_GAP,
    };
    for (key, value) in definition {
        match set(&mut field, key, value) {
            Err(error) if is_stored => super::passed_over(path, &error),
            done => done?,
        }
    }
    if let Err(error) = check_null_value(&field) {
        match is_stored {
            true => super::passed_over(path, &error),
            false => return Err(error),
        }
    }
    if type_name == "constant_keyword" && field.constant.is_none() {
        return Err(SearchError::mapping(format!("Field [{path}] is missing required parameter [value]")));
    }
    if type_name == "scaled_float" && field.scaling.is_none() {
        return Err(SearchError::mapping(format!("Field [{path}] misses required parameter [scaling_factor]")));
    }
    if kind == FieldKind::Text && field.search_analyzer.is_none() {
        field.search_analyzer.clone_from(&field.analyzer);
    }
    Ok(field)
}

/// True or false, as a mapping writes it.
pub(super) fn flag(key: &str, value: &Value) -> Result<bool, SearchError> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(SearchError::mapping(format!("[{key}] is true or false, not [{other}]"))),
    }
}

/// Errors: what nulls count as is no value of the field's type.
fn check_null_value(field: &MappedField) -> Result<(), SearchError> {
    let Some(value) = &field.null_value else { return Ok(()) };
    let checked = match field.kind {
        FieldKind::Text | FieldKind::Keyword => scalars::text_of(value).map(drop),
        FieldKind::Integer(bits) => scalars::integer(value, bits, field.coerce).map(drop),
        FieldKind::UnsignedLong => scalars::unsigned_part(value).map(drop),
        FieldKind::Real(_) => scalars::real_of(value, &field.type_name).map(drop),
        FieldKind::Boolean => scalars::boolean(value).map(drop),
        FieldKind::Date => field.formats.value(value).map(drop).map_err(|error| error.reason),
        FieldKind::Ip => scalars::text_of(value).and_then(|text| scalars::address(&text)).map(drop),
        FieldKind::Opaque => scalars::opaque(&field.type_name, value),
    };
    checked.map_err(|why| {
        let path = &field.path;
        SearchError::mapping(format!("[null_value] of field [{path}] of type [{}]: {why}", field.type_name))
    })
}

/// A whole number from 0 on, also as a text.
fn size(key: &str, value: &Value) -> Result<usize, SearchError> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| {
        SearchError::argument(format!(
            "Failed to parse value [{value}] for parameter [{key}]: a whole number from 0 on"
        ))
    })
}

fn set(field: &mut MappedField, key: &str, value: &Value) -> Result<(), SearchError> {
    let unknown = || {
        let (path, type_name) = (&field.path, &field.type_name);
        SearchError::mapping(format!("unknown parameter [{key}] on mapper [{path}] of type [{type_name}]"))
    };
    let flag = || flag(key, value);
    let name = || {
        value
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| SearchError::mapping(format!("[{key}] is a name, not [{value}]")))
    };
    match (key, field.kind) {
        ("store", _) => field.stored = flag()?,
        ("type" | "fields" | "meta", _) => {}
        ("similarity", _) if value == "BM25" => {}
        ("boost", _) if value.as_f64() == Some(1.0) => {}
        ("norms", kind) if flag()? == (kind == FieldKind::Text) => {}
        ("index_options", FieldKind::Text) if value == "positions" || value == "offsets" => {}
        ("index_options", FieldKind::Keyword) if value == "docs" => {}
        ("similarity" | "boost" | "norms" | "index_options" | "search_quote_analyzer", _) => {
            let path = &field.path;
            return Err(SearchError::unsupported(format!("[{key}: {value}] on mapper [{path}]")));
        }
        ("index", _) => field.indexed = flag()?,
        ("value", FieldKind::Keyword) if field.type_name == "constant_keyword" => field.constant = Some(name()?),
        ("doc_values", FieldKind::Opaque) => drop(flag()?),
        ("scaling_factor", FieldKind::Real(_)) if field.type_name == "scaled_float" => {
            field.scaling = Some(scaling(value)?)
        }
        ("doc_values", kind) if kind != FieldKind::Text => field.doc_values = flag()?,
        ("copy_to", _) => {
            field.copy_to = match value {
                Value::String(one) => vec![one.clone()],
                Value::Array(all) => all.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect(),
                _ => return Err(unknown()),
            }
        }
        ("analyzer", FieldKind::Text) => field.analyzer = Some(name()?),
        ("search_analyzer", FieldKind::Text) => field.search_analyzer = Some(name()?),
        ("normalizer", FieldKind::Keyword) => field.analyzer = Some(name()?),
        ("ignore_above", FieldKind::Keyword) => field.ignore_above = Some(size(key, value)?),
        ("position_increment_gap", FieldKind::Text) => field.position_gap = size(key, value)?,
        (
            "fielddata"
            | "term_vector"
            | "index_prefixes"
            | "index_phrases"
            | "fielddata_frequency_filter"
            | "eager_global_ordinals",
            FieldKind::Text,
        )
        | ("eager_global_ordinals" | "split_queries_on_whitespace" | "time_series_dimension", FieldKind::Keyword) => {}
        ("format", FieldKind::Date) => field.formats = DateFormats::parse_list(&name()?)?,
        ("locale", FieldKind::Date) => {}
        ("null_value", kind) if kind != FieldKind::Text => {
            field.null_value = Some(value.clone()).filter(|value| !value.is_null())
        }
        ("ignore_malformed", kind) if !matches!(kind, FieldKind::Text | FieldKind::Keyword) => {
            field.ignore_malformed = flag()?
        }
        ("coerce", kind) if kind.is_number() => field.coerce = flag()?,
        ("time_series_metric", _) => {}
        _ => return Err(unknown()),
    }
    Ok(())
}

/// The factor of a `scaled_float`. Errors: it is no positive number.
fn scaling(value: &Value) -> Result<f64, SearchError> {
    let factor = value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    factor
        .filter(|factor| *factor > 0.0)
        .ok_or_else(|| SearchError::mapping("[scaling_factor] must be a positive number"))
}
