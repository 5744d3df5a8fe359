//! From a field's definition to what it means: types and parameters, each known or refused.

use serde_json::{Map, Value};

use super::{FieldKind, MappedField};
use crate::dates::DateFormats;
use crate::error::SearchError;

/// Reads the definition of a field that is no object. Errors: a type or parameter that is not known.
pub(super) fn field(path: &str, type_name: &str, definition: &Map<String, Value>) -> Result<MappedField, SearchError> {
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
    };
    for (key, value) in definition {
        set(&mut field, key, value)?;
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

fn set(field: &mut MappedField, key: &str, value: &Value) -> Result<(), SearchError> {
    let unknown = || {
        let (path, type_name) = (&field.path, &field.type_name);
        SearchError::mapping(format!("unknown parameter [{key}] on mapper [{path}] of type [{type_name}]"))
    };
    let flag = || match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(SearchError::mapping(format!("[{key}] is true or false, not [{other}]"))),
    };
    let name = || {
        value
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| SearchError::mapping(format!("[{key}] is a name, not [{value}]")))
    };
    match (key, field.kind) {
        ("store", _) => field.stored = flag()?,
        ("type" | "fields" | "meta" | "norms" | "index_options" | "similarity" | "boost", _) => {
            if key == "similarity" && value != "BM25" {
                return Err(SearchError::unsupported(format!("similarity [{value}]")));
            }
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
        ("search_analyzer" | "search_quote_analyzer", FieldKind::Text) => field.search_analyzer = Some(name()?),
        ("normalizer", FieldKind::Keyword) => field.analyzer = Some(name()?),
        ("ignore_above", FieldKind::Keyword) => field.ignore_above = value.as_u64().map(|length| length as usize),
        (
            "fielddata"
            | "term_vector"
            | "position_increment_gap"
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
