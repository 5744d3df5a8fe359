//! [`SortKey`]: what hits are ordered by, and how their values are read and compared.
//!
//! ```text
//!   in a segment    SegmentKey: a column's value or a term's number, as one whole number; smaller comes first
//!   between them    SortValue: the value itself
//! ```

use std::cmp::Ordering;
use std::net::Ipv6Addr;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tantivy::columnar::{Column, MonotonicallyMappableToU64, StrColumn};
use tantivy::{DocId, SegmentReader};

use crate::dates::{DateContext, DateFormats, Rounding};
use crate::document::address;
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};
use crate::schema::SEQ;
use crate::view::IndexView;

/// Most keys of a sort.
const KEYS_MAX: usize = 16;

/// Nanoseconds of a millisecond: the library keeps dates in nanoseconds.
const NANOS: i64 = 1_000_000;

/// What a key reads.
#[derive(Clone, Debug, PartialEq)]
enum KeySource {
    Score,
    /// The place of a document in the snapshot: no two have the same.
    Place,
    Seq,
    Field(String),
}

/// Which of several values counts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SortMode {
    Min,
    Max,
    Sum,
    Avg,
    Median,
}

/// A key of a sort.
#[derive(Clone, Debug)]
pub struct SortKey {
    source: KeySource,
    descending: bool,
    missing: Option<Value>,
    mode: Option<SortMode>,
    unmapped: bool,
    format: Option<String>,
}

/// A value that hits are compared by.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SortValue {
    /// Before all others, in the order of the key.
    First,
    Whole(i64),
    Unsigned(u64),
    Real(f64),
    Text(String),
    Address(Ipv6Addr),
    /// After all others.
    Last,
}

/// A value within a segment: smaller comes first.
pub(super) type SegmentKey = (u8, u128);

const FIRST: SegmentKey = (0, 0);
const LAST: SegmentKey = (2, 0);

impl SortKey {
    fn of(source: KeySource, descending: bool) -> SortKey {
        SortKey { source, descending, missing: None, mode: None, unmapped: false, format: None }
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
                "unmapped_type" | "ignore_unmapped" => self.unmapped = true,
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
                true => Ok(None),
                false => Err(SearchError::new(
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

    /// Where hits without a value come. Errors: it cannot be a value of the field.
    fn missing_value(&self, field: Option<&MappedField>) -> Result<SortValue, SearchError> {
        match (&self.missing, field) {
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
                None => SortValue::Whole(number.ok_or_else(bad)? as i64),
            },
            FieldKind::UnsignedLong => {
                match value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok())) {
                    Some(whole) => SortValue::Unsigned(whole),
                    None => SortValue::Unsigned(number.ok_or_else(bad)? as u64),
                }
            }
            FieldKind::Real(_) => SortValue::Real(number.ok_or_else(bad)?),
            FieldKind::Boolean => match value {
                Value::Bool(flag) => SortValue::Whole(i64::from(*flag)),
                Value::String(text) if text == "true" || text == "false" => SortValue::Whole(i64::from(text == "true")),
                _ => SortValue::Whole(number.ok_or_else(bad)? as i64),
            },
            FieldKind::Date => match value.as_i64() {
                // What a response showed: milliseconds, whatever the format of the field.
                Some(millis) if self.format.is_none() => SortValue::Whole(millis),
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
            KeySource::Score => Ok(SortValue::Real(number()?)),
            KeySource::Place | KeySource::Seq => {
                let whole = value.as_i64();
                whole
                    .map(SortValue::Whole)
                    .ok_or_else(|| SearchError::argument(format!("Failed to parse sort value [{value}]")))
            }
            // A response shows null for a hit without a value.
            KeySource::Field(_) if value.is_null() => self.missing_value(self.field(view)?.as_deref()),
            KeySource::Field(_) => match self.field(view)? {
                Some(field) => self.value_of(&field, value),
                None => Ok(SortValue::Last),
            },
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

    /// The key's reader for a segment. Errors: the field cannot be sorted by, the column cannot be read.
    pub(super) fn reader(&self, view: &IndexView, reader: &SegmentReader, base: i64) -> Result<KeyReader, SearchError> {
        let field = self.field(view)?;
        let fast = reader.fast_fields();
        let column = match (&self.source, &field) {
            (KeySource::Score, _) => KeyColumn::Score,
            (KeySource::Place, _) => KeyColumn::Place(base),
            (KeySource::Seq, _) => KeyColumn::Number(fast.u64(SEQ)?, FieldKind::Integer(64)),
            (KeySource::Field(_), None) => KeyColumn::None,
            (KeySource::Field(_), Some(field)) => {
                let name = &field.column;
                match field.kind {
                    _ if view.column(field).is_none() => KeyColumn::None,
                    FieldKind::Keyword | FieldKind::Text => fast.str(name)?.map_or(KeyColumn::None, KeyColumn::Text),
                    FieldKind::Ip => KeyColumn::Address(fast.ip_addr(name)?),
                    kind => match fast.u64_lenient(name)? {
                        Some((column, _)) => KeyColumn::Number(column, kind),
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
        let missing_value = self.missing_value(field.as_deref())?;
        let mut key = KeyReader { column, descending: self.descending, mode, missing: LAST, missing_value };
        key.missing = key.key_of(&key.missing_value)?;
        Ok(key)
    }
}

impl SortValue {
    /// Compares in the order of a key.
    pub(super) fn compare(&self, other: &SortValue, descending: bool) -> Ordering {
        use SortValue::{Address, First, Last, Real, Text, Unsigned, Whole};
        let order = match (self, other) {
            (First, First) | (Last, Last) => return Ordering::Equal,
            (First, _) | (_, Last) => return Ordering::Less,
            (_, First) | (Last, _) => return Ordering::Greater,
            (Whole(a), Whole(b)) => a.cmp(b),
            (Unsigned(a), Unsigned(b)) => a.cmp(b),
            (Text(a), Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Address(a), Address(b)) => a.cmp(b),
            (Real(a), Real(b)) => a.total_cmp(b),
            // Fields of several indices with different types.
            (a, b) => match (a.number(), b.number()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        };
        if descending { order.reverse() } else { order }
    }

    fn number(&self) -> Option<f64> {
        match self {
            SortValue::Whole(whole) => Some(*whole as f64),
            SortValue::Unsigned(whole) => Some(*whole as f64),
            SortValue::Real(real) => Some(*real),
            _ => None,
        }
    }
}

enum KeyColumn {
    Score,
    /// Added to the document's number in the segment.
    Place(i64),
    /// Values as the library keeps them, in an order that whole numbers have.
    Number(Column<u64>, FieldKind),
    Text(StrColumn),
    Address(Column<Ipv6Addr>),
    /// No document of the segment has a value.
    None,
}

/// Reads a key in a segment.
pub(super) struct KeyReader {
    column: KeyColumn,
    descending: bool,
    mode: SortMode,
    missing: SegmentKey,
    missing_value: SortValue,
}

impl KeyReader {
    fn ordered(&self, value: u128) -> SegmentKey {
        (1, if self.descending { !value } else { value })
    }

    /// The key of a document.
    pub(super) fn key(&self, doc: DocId, score: f32) -> SegmentKey {
        let found = match &self.column {
            KeyColumn::Score => Some(u128::from(f64::from(score).to_u64())),
            KeyColumn::Place(base) => Some(u128::from((base + i64::from(doc)).to_u64())),
            KeyColumn::None => None,
            KeyColumn::Number(column, kind) => self.number(column, *kind, doc).map(u128::from),
            // Twice, and one: between two terms there is room for a text that the segment does not have.
            KeyColumn::Text(column) => {
                let ords = column.term_ords(doc);
                let ord = if self.mode == SortMode::Max { ords.max() } else { ords.min() };
                ord.map(|ord| u128::from(ord) * 2 + 1)
            }
            KeyColumn::Address(column) => {
                let values = column.values_for_doc(doc);
                let value = if self.mode == SortMode::Max { values.max() } else { values.min() };
                value.map(u128::from)
            }
        };
        found.map_or(self.missing, |value| self.ordered(value))
    }

    fn number(&self, column: &Column<u64>, kind: FieldKind, doc: DocId) -> Option<u64> {
        match self.mode {
            SortMode::Min => column.values_for_doc(doc).min(),
            SortMode::Max => column.values_for_doc(doc).max(),
            mode => {
                let real = |value: u64| match kind {
                    FieldKind::Real(_) => f64::from_u64(value),
                    FieldKind::UnsignedLong => value as f64,
                    FieldKind::Boolean => value as f64,
                    _ => i64::from_u64(value) as f64,
                };
                let mut values: Vec<f64> = column.values_for_doc(doc).map(real).collect();
                if values.is_empty() {
                    return None;
                }
                values.sort_by(f64::total_cmp);
                let sum: f64 = values.iter().sum();
                let middle = values.len() / 2;
                let value = match mode {
                    SortMode::Sum => sum,
                    SortMode::Avg => sum / values.len() as f64,
                    _ if values.len() % 2 == 1 => values[middle],
                    _ => (values[middle - 1] + values[middle]) / 2.0,
                };
                Some(match kind {
                    FieldKind::Real(_) => value.to_u64(),
                    FieldKind::UnsignedLong | FieldKind::Boolean => value as u64,
                    _ => (value.round() as i64).to_u64(),
                })
            }
        }
    }

    /// The key that a value has, or would have, in this segment. Errors: the terms cannot be read.
    pub(super) fn key_of(&self, value: &SortValue) -> Result<SegmentKey, SearchError> {
        let found = match (value, &self.column) {
            (SortValue::First, _) => return Ok(FIRST),
            (SortValue::Last, _) => return Ok(LAST),
            (SortValue::Text(text), KeyColumn::Text(column)) => {
                let unreadable = |error: std::io::Error| SearchError::internal(format!("terms of a column: {error}"));
                let dictionary = column.dictionary();
                match dictionary.term_ord(text.as_bytes()).map_err(unreadable)? {
                    Some(ord) => u128::from(ord) * 2 + 1,
                    None => u128::from(terms_before(column, text).map_err(unreadable)?) * 2,
                }
            }
            (SortValue::Address(address), _) => u128::from(*address),
            (SortValue::Whole(whole), KeyColumn::Number(_, kind)) => u128::from(match kind {
                FieldKind::Date => whole.saturating_mul(NANOS).to_u64(),
                FieldKind::Boolean => *whole as u64,
                FieldKind::UnsignedLong => (*whole).max(0) as u64,
                FieldKind::Real(_) => (*whole as f64).to_u64(),
                _ => whole.to_u64(),
            }),
            (SortValue::Whole(whole), _) => u128::from(whole.to_u64()),
            (SortValue::Unsigned(whole), _) => u128::from(*whole),
            (SortValue::Real(real), _) => u128::from(real.to_u64()),
            (SortValue::Text(_), _) => return Ok(LAST),
        };
        Ok(self.ordered(found))
    }

    /// The value behind a key of this segment. Errors: the terms cannot be read.
    pub(super) fn value_of(&self, key: SegmentKey) -> Result<SortValue, SearchError> {
        let (rank, value) = key;
        // Its text may be one that the segment does not have.
        if key == self.missing {
            return Ok(self.missing_value.clone());
        }
        match rank {
            0 => return Ok(SortValue::First),
            2 => return Ok(SortValue::Last),
            _ => {}
        }
        let value = if self.descending { !value } else { value };
        let small = value as u64;
        Ok(match &self.column {
            KeyColumn::Score => SortValue::Real(f64::from_u64(small)),
            KeyColumn::Place(_) => SortValue::Whole(i64::from_u64(small)),
            KeyColumn::None => SortValue::Last,
            KeyColumn::Number(_, kind) => match kind {
                FieldKind::Real(_) => SortValue::Real(f64::from_u64(small)),
                FieldKind::UnsignedLong => SortValue::Unsigned(small),
                FieldKind::Boolean => SortValue::Whole(small as i64),
                FieldKind::Date => SortValue::Whole(i64::from_u64(small).div_euclid(NANOS)),
                _ => SortValue::Whole(i64::from_u64(small)),
            },
            KeyColumn::Text(column) => {
                let mut text = String::new();
                column
                    .ord_to_str(small / 2, &mut text)
                    .map_err(|error| SearchError::internal(format!("terms of a column: {error}")))?;
                SortValue::Text(text)
            }
            KeyColumn::Address(_) => SortValue::Address(Ipv6Addr::from(value)),
        })
    }
}

/// How many terms of a column come before a text.
fn terms_before(column: &StrColumn, text: &str) -> std::io::Result<u64> {
    let (mut low, mut high) = (0, column.num_terms() as u64);
    let mut term = String::new();
    while low < high {
        let middle = low.midpoint(high);
        term.clear();
        column.ord_to_str(middle, &mut term)?;
        if term.as_bytes() < text.as_bytes() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
