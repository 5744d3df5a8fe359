//! [`SortKey`]: what hits are ordered by, as requests write it and responses show it.
//!
//! ```text
//!   in a segment    SegmentKey (key_reader): a column's value or a term's number, as one whole number; smaller comes first
//!   between them    SortValue (sort_value): the value itself
//! ```

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tantivy::SegmentReader;

use super::key_reader::{KeyColumn, KeyReader, SortMode};
use super::sort_value::SortValue;
use crate::dates::{DateContext, DateFormats, Rounding};
use crate::document::address;
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField, Mapping};
use crate::schema::SEQ;
use crate::view::IndexView;

/// Most keys of a sort.
const KEYS_MAX: usize = 16;

/// What a key reads.
#[derive(Clone, Debug, PartialEq)]
enum KeySource {
    Score,
    /// The place of a document in the snapshot: no two have the same.
    Place,
    Seq,
    Field(String),
}

/// A key of a sort.
#[derive(Clone, Debug)]
pub struct SortKey {
    source: KeySource,
    descending: bool,
    missing: Option<Value>,
    mode: Option<SortMode>,
    /// Stands for the field where an index does not have it: of its type are the values of `missing`.
    unmapped: Option<Arc<MappedField>>,
    format: Option<String>,
}

impl SortKey {
    fn of(source: KeySource, descending: bool) -> SortKey {
        SortKey { source, descending, missing: None, mode: None, unmapped: None, format: None }
    }

    /// By score, best first.
    pub fn score() -> SortKey {
        SortKey::of(KeySource::Score, true)
    }

    /// By the place in the snapshot.
    pub fn place() -> SortKey {
        SortKey::of(KeySource::Place, false)
    }

    /// Whether no two hits have the same value.
    pub fn is_place(&self) -> bool {
        self.source == KeySource::Place
    }

    pub(super) fn is_score(&self) -> bool {
        self.source == KeySource::Score
    }

    /// Whether higher values come first.
    pub(super) fn is_descending(&self) -> bool {
        self.descending
    }

    /// The keys of a `sort` in a body. Errors: one that cannot be read.
    pub(super) fn read(value: &Value) -> Result<Vec<SortKey>, SearchError> {
        let items: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            other => vec![other],
        };
        let mut keys = Vec::new();
        for item in items {
            match item {
                Value::String(name) => keys.push(SortKey::named(name, None)?),
                Value::Object(object) => {
                    for (name, options) in object {
                        keys.push(SortKey::named(name, Some(options))?);
                    }
                }
                other => return Err(SearchError::argument(format!("malformed sort format, found [{other}]"))),
            }
        }
        match keys.len() > KEYS_MAX {
            true => Err(SearchError::argument(format!("a sort has at most {KEYS_MAX} keys"))),
            false => Ok(keys),
        }
    }

    /// The keys of a parameter: `a:desc,b`.
    pub(super) fn of_parameter(text: &str) -> Result<Vec<SortKey>, SearchError> {
        let key = |part: &str| match part.rsplit_once(':') {
            Some((name, order)) => SortKey::named(name, Some(&json!(order))),
            None => SortKey::named(part, None),
        };
        text.split(',').take(KEYS_MAX + 1).map(key).collect()
    }

    fn named(name: &str, options: Option<&Value>) -> Result<SortKey, SearchError> {
        let source = match name {
            "_score" => KeySource::Score,
            "_doc" | "_shard_doc" => KeySource::Place,
            "_seq_no" => KeySource::Seq,
            "_id" => {
                return Err(SearchError::argument(
                    "Fielddata access on the _id field is disallowed: copy the id to a keyword field and sort by that",
                ));
            }
            "_script" | "_geo_distance" => return Err(SearchError::unsupported(format!("sort by [{name}]"))),
            name => KeySource::Field(name.to_owned()),
        };
        let mut key = SortKey::of(source, name == "_score");
        match options {
            None => {}
            Some(Value::String(order)) => key.order(order)?,
            Some(Value::Object(options)) => key.options(name, options)?,
            Some(other) => return Err(SearchError::argument(format!("malformed sort format, found [{other}]"))),
        }
        Ok(key)
    }

    fn order(&mut self, order: &str) -> Result<(), SearchError> {
        self.descending = match order.to_lowercase().as_str() {
            "asc" => false,
            "desc" => true,
            other => return Err(SearchError::argument(format!("Unknown SortOrder [{other}]"))),
        };
        Ok(())
    }

    fn options(&mut self, name: &str, options: &Map<String, Value>) -> Result<(), SearchError> {
        for (option, value) in options {
            let text = value.as_str().unwrap_or_default();
            match option.as_str() {
                "order" | "reverse" => self.order(text)?,
                "missing" => self.missing = Some(value.clone()),
                "unmapped_type" => self.unmapped = Some(stand_in(name, text)?),
                "ignore_unmapped" if value == &json!(true) => self.unmapped = Some(stand_in(name, "long")?),
                "ignore_unmapped" => self.unmapped = None,
                "format" => self.format = Some(text.to_owned()),
                "mode" => {
                    self.mode = Some(match text {
                        "min" => SortMode::Min,
                        "max" => SortMode::Max,
                        "sum" => SortMode::Sum,
                        "avg" => SortMode::Avg,
                        "median" => SortMode::Median,
                        other => return Err(SearchError::argument(format!("Unknown SortMode [{other}]"))),
                    })
                }
                // What it would change is the type in which values are compared; dates have milliseconds.
                "numeric_type" if matches!(text, "long" | "double" | "date") => {}
                other => {
                    return Err(SearchError::unsupported(format!("[{other}] of the sort by [{name}]")));
                }
            }
        }
        Ok(())
    }

    /// The field of an index. Errors: there is none, or one that cannot be sorted by.
    pub(super) fn field(&self, view: &IndexView) -> Result<Option<Arc<MappedField>>, SearchError> {
        let KeySource::Field(path) = &self.source else { return Ok(None) };
        let Some(field) = view.mapping.field(path) else {
            return match self.unmapped {
                Some(_) => Ok(None),
                None => Err(SearchError::new(
                    400,
                    "query_shard_exception",
                    format!("No mapping found for [{path}] in order to sort on"),
                )
                .of(&view.name)),
            };
        };
        if field.kind == FieldKind::Text {
            return Err(SearchError::argument(format!(
                "Text fields are not optimised for operations that require per-document field data like aggregations and \
                 sorting, so these operations are disabled by default. Please use a keyword field instead of [{path}]."
            )));
        }
        if !field.doc_values {
            return Err(SearchError::argument(format!(
                "Can't load fielddata on [{path}] because fielddata is unsupported on fields of type [{}] without doc values",
                field.type_name
            )));
        }
        Ok(Some(Arc::clone(field)))
    }

    /// Errors: the values of several indices have no common order.
    pub(super) fn check_together<'v>(&self, views: impl Iterator<Item = &'v IndexView>) -> Result<(), SearchError> {
        let KeySource::Field(path) = &self.source else { return Ok(()) };
        let class = |field: &MappedField| match field.kind {
            FieldKind::UnsignedLong => "unsigned_long",
            FieldKind::Ip => "ip",
            FieldKind::Integer(_) | FieldKind::Real(_) | FieldKind::Boolean | FieldKind::Date => "number",
            FieldKind::Keyword | FieldKind::Text | FieldKind::Opaque => "keyword",
        };
        let mut classes = views.filter_map(|view| view.mapping.field(path)).map(|field| class(field));
        let first = classes.next();
        match classes.find(|other| Some(*other) != first) {
            None => Ok(()),
            Some(other) => {
                let named = if first == Some("number") { other } else { first.unwrap_or(other) };
                Err(SearchError::argument(format!(
                    "Can't do sort across indices, as a field has [{named}] type in one index, and different type in another \
                     index!"
                )))
            }
        }
    }

    /// Where hits without a value come. Errors: it cannot be a value of the field.
    fn missing_value(&self, field: Option<&MappedField>) -> Result<SortValue, SearchError> {
        match (&self.missing, field.or(self.unmapped.as_deref())) {
            (None, _) => Ok(SortValue::Last),
            (Some(Value::String(text)), _) if text == "_last" => Ok(SortValue::Last),
            (Some(Value::String(text)), _) if text == "_first" => Ok(SortValue::First),
            (Some(_), None) => Ok(SortValue::Last),
            (Some(value), Some(field)) => self.value_of(field, value),
        }
    }

    /// A value of a request as one to compare with.
    fn value_of(&self, field: &MappedField, value: &Value) -> Result<SortValue, SearchError> {
        let bad = || SearchError::argument(format!("Failed to parse sort value [{value}] for field [{}]", field.path));
        if value.is_null() {
            return Ok(SortValue::Last);
        }
        let number = value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        Ok(match field.kind {
            FieldKind::Keyword | FieldKind::Text | FieldKind::Opaque => match value {
                Value::String(text) => SortValue::Text(text.clone()),
                other => SortValue::Text(other.to_string()),
            },
            FieldKind::Integer(_) => match value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
            {
                Some(whole) => SortValue::Whole(whole),
                // Where the fields of several indices have different types, the last hit of a page may have a fraction.
                None => SortValue::Real(number.ok_or_else(bad)?),
            },
            FieldKind::UnsignedLong => {
                match value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok())) {
                    Some(whole) => SortValue::Unsigned(whole),
                    None => SortValue::Real(number.ok_or_else(bad)?),
                }
            }
            // A whole number of another index, which a number with a fraction may not be able to hold.
            FieldKind::Real(_) => match (value.as_i64(), value.as_u64()) {
                (Some(whole), _) => SortValue::Whole(whole),
                (None, Some(whole)) => SortValue::Unsigned(whole),
                _ => SortValue::Real(number.ok_or_else(bad)?),
            },
            FieldKind::Boolean => match value {
                Value::Bool(flag) => SortValue::Whole(i64::from(*flag)),
                Value::String(text) if text == "true" || text == "false" => SortValue::Whole(i64::from(text == "true")),
                _ => SortValue::Whole(number.ok_or_else(bad)? as i64),
            },
            FieldKind::Date => match value.as_i64() {
                // Milliseconds, whatever the format of the field: what a response shows, and what a scroll goes on with.
                Some(millis) => SortValue::Whole(millis),
                _ => {
                    let formats = match &self.format {
                        Some(format) => DateFormats::parse_list(format)?,
                        None => field.formats.clone(),
                    };
                    let context = DateContext { now: 0, zone: jiff::tz::TimeZone::UTC };
                    SortValue::Whole(formats.query(value, Rounding::Down, &context)?)
                }
            },
            FieldKind::Ip => SortValue::Address(address(value.as_str().ok_or_else(bad)?).map_err(|_| bad())?),
        })
    }

    /// The value of `search_after` for this key. Errors: it cannot be one.
    pub(super) fn after(&self, view: &IndexView, value: &Value) -> Result<SortValue, SearchError> {
        let number =
            || value.as_f64().ok_or_else(|| SearchError::argument(format!("Failed to parse sort value [{value}]")));
        match &self.source {
            // The digits that a response shows are those of a short number: as a long one they are another number.
            KeySource::Score => Ok(SortValue::Real(f64::from(number()? as f32))),
            KeySource::Place | KeySource::Seq => {
                let whole = value.as_i64();
                whole
                    .map(SortValue::Whole)
                    .ok_or_else(|| SearchError::argument(format!("Failed to parse sort value [{value}]")))
            }
            // A response shows null for a hit without a value.
            KeySource::Field(_) if value.is_null() => self.missing_value(self.field(view)?.as_deref()),
            KeySource::Field(_) => match self.field(view)?.or(self.unmapped.clone()) {
                Some(field) => self.value_of(&field, value),
                None => Ok(SortValue::Last),
            },
        }
    }

    /// The value as [`after`](SortKey::after) reads it, with nothing lost to a format.
    pub(super) fn exact(&self, view: &IndexView, value: &SortValue) -> Result<Value, SearchError> {
        match value {
            SortValue::Whole(whole) => Ok(json!(whole)),
            value => self.shown(view, value),
        }
    }

    /// The value as responses show it. Errors: a format that is not known.
    pub(super) fn shown(&self, view: &IndexView, value: &SortValue) -> Result<Value, SearchError> {
        Ok(match value {
            SortValue::First | SortValue::Last => Value::Null,
            SortValue::Whole(millis) => match (&self.format, self.field(view)?) {
                (Some(format), Some(field)) if field.kind == FieldKind::Date => {
                    json!(crate::dates::write(
                        *millis,
                        format.split("||").next().unwrap_or(format),
                        &jiff::tz::TimeZone::UTC
                    )?)
                }
                _ => json!(millis),
            },
            SortValue::Unsigned(whole) => json!(whole),
            SortValue::Real(real) if self.is_score() => super::score_json(*real as f32),
            SortValue::Real(real) => json!(real),
            SortValue::Text(text) => json!(text),
            SortValue::Address(address) => json!(match address.to_ipv4_mapped() {
                Some(short) => short.to_string(),
                None => address.to_string(),
            }),
        })
    }

    /// Whether it has bounds for the documents of a zone.
    pub(super) fn has_zones(&self, view: &IndexView) -> bool {
        let of_one = !matches!(self.mode, Some(SortMode::Sum | SortMode::Avg | SortMode::Median));
        match &self.source {
            KeySource::Score => false,
            KeySource::Place | KeySource::Seq => true,
            KeySource::Field(path) => view.mapping.field(path).is_some_and(|field| {
                of_one && !matches!(field.kind, FieldKind::Keyword | FieldKind::Text | FieldKind::Ip)
            }),
        }
    }

    /// The key's reader for a segment. Errors: the field cannot be sorted by, the column cannot be read.
    pub(super) fn reader(&self, view: &IndexView, reader: &SegmentReader, base: i64) -> Result<KeyReader, SearchError> {
        let field = self.field(view)?;
        let fast = reader.fast_fields();
        let column = match (&self.source, &field) {
            (KeySource::Score, _) => KeyColumn::Score,
            (KeySource::Place, _) => KeyColumn::Place(base),
            (KeySource::Seq, _) => match view.zones.of(reader, SEQ)? {
                Some(zones) => KeyColumn::Number(zones, FieldKind::UnsignedLong),
                None => KeyColumn::None,
            },
            (KeySource::Field(_), None) => KeyColumn::None,
            (KeySource::Field(_), Some(field)) => {
                let name = &field.column;
                match field.kind {
                    _ if view.column(field).is_none() => KeyColumn::None,
                    FieldKind::Keyword | FieldKind::Text => fast.str(name)?.map_or(KeyColumn::None, KeyColumn::Text),
                    FieldKind::Ip => KeyColumn::Address(fast.ip_addr(name)?),
                    kind => match view.zones.of(reader, name)? {
                        Some(zones) => KeyColumn::Number(zones, kind),
                        None => KeyColumn::None,
                    },
                }
            }
        };
        let mode = self.mode.unwrap_or(if self.descending { SortMode::Max } else { SortMode::Min });
        if !matches!(mode, SortMode::Min | SortMode::Max)
            && matches!(column, KeyColumn::Text(_) | KeyColumn::Address(_))
        {
            return Err(SearchError::argument("we only support MAX and MIN for sorting texts and addresses"));
        }
        KeyReader::new(column, self.descending, mode, self.missing_value(field.as_deref())?)
    }
}

/// What stands for a field that an index does not have. Errors: the type is not known.
fn stand_in(name: &str, type_name: &str) -> Result<Arc<MappedField>, SearchError> {
    let mapping = Mapping::empty().merged(&json!({"properties": {"field": {"type": type_name}}}))?;
    let field = mapping.field("field").ok_or_else(|| {
        SearchError::argument(format!("[unmapped_type] of the sort by [{name}] is a type of fields, not [{type_name}]"))
    })?;
    Ok(Arc::clone(field))
}
