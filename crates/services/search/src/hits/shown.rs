//! Fields of a hit: `docvalue_fields` as the columns have them, `fields` as the source has them and their types read them.
//!
//! ```text
//!   {"f": 16777217, "k": ["B", "a", "B"]}     f a float, k a keyword in lower case
//!       docvalue_fields    f 16777216.0       k a, b
//!       fields             f 16777216.0       k b, a, b
//! ```

use std::collections::HashMap;
use std::net::Ipv6Addr;

use serde_json::{Map, Value, json};
use tantivy::columnar::{Column, StrColumn};
use tantivy::{DateTime, DocId, SegmentReader};

use super::body::ShownField;
use crate::dates::write;
use crate::document::{boolean, integer, real, text_of, unsigned};
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};
use crate::source::values_or_null_at;
use crate::view::IndexView;

/// Columns of segments that hits of a page were shown from: opening one takes longer than reading it.
#[derive(Default)]
pub(super) struct ShownColumns(HashMap<(usize, u32, String), ShownColumn>);

/// Where the values of a field are.
enum ShownColumn {
    Text(StrColumn),
    Whole(Column<i64>),
    Unsigned(Column<u64>),
    Real(Column<f64>),
    Flag(Column<bool>),
    Date(Column<DateTime>),
    Address(Column<Ipv6Addr>),
    /// No document of the segment has a value.
    None,
}

impl ShownColumn {
    fn open(reader: &SegmentReader, field: &MappedField) -> Result<ShownColumn, SearchError> {
        let (fast, name) = (reader.fast_fields(), field.column.as_str());
        let column = match field.kind {
            FieldKind::Keyword => fast.str(name)?.map(ShownColumn::Text),
            FieldKind::Integer(_) => fast.column_opt(name)?.map(ShownColumn::Whole),
            FieldKind::UnsignedLong => fast.column_opt(name)?.map(ShownColumn::Unsigned),
            FieldKind::Real(_) => fast.column_opt(name)?.map(ShownColumn::Real),
            FieldKind::Boolean => fast.column_opt(name)?.map(ShownColumn::Flag),
            FieldKind::Date => fast.column_opt(name)?.map(ShownColumn::Date),
            FieldKind::Ip => fast.column_opt(name)?.map(ShownColumn::Address),
            FieldKind::Text | FieldKind::Opaque => None,
        };
        Ok(column.unwrap_or(ShownColumn::None))
    }

    /// The values of a document, in their order.
    fn values(&self, doc: DocId, field: &MappedField, format: Option<&str>) -> Result<Vec<Value>, SearchError> {
        Ok(match self {
            ShownColumn::None => Vec::new(),
            ShownColumn::Text(column) => {
                let text = |term| {
                    let mut text = String::new();
                    column.ord_to_str(term, &mut text).map(|_| json!(text))
                };
                let mut terms: Vec<u64> = column.term_ords(doc).collect();
                terms.sort_unstable();
                let read: Result<_, _> = terms.into_iter().map(text).collect();
                read.map_err(|error| SearchError::internal(error.to_string()))?
            }
            ShownColumn::Whole(column) => sorted(column, doc).map(|whole| json!(whole)).collect(),
            ShownColumn::Unsigned(column) => sorted(column, doc).map(|whole| json!(whole)).collect(),
            ShownColumn::Real(column) => {
                let mut values: Vec<f64> = column.values_for_doc(doc).collect();
                values.sort_by(f64::total_cmp);
                values.into_iter().map(|real| json!(real)).collect()
            }
            ShownColumn::Flag(column) => sorted(column, doc).map(|flag| json!(flag)).collect(),
            ShownColumn::Date(column) => sorted(column, doc)
                .map(|date| date_text(field, date.into_timestamp_millis(), format))
                .collect::<Result<_, _>>()?,
            ShownColumn::Address(column) => sorted(column, doc)
                .map(|address| match address.to_ipv4_mapped() {
                    Some(short) => json!(short.to_string()),
                    None => json!(address.to_string()),
                })
                .collect(),
        })
    }
}

fn sorted<T: Ord + Copy + PartialOrd + std::fmt::Debug + Send + Sync + 'static>(
    column: &Column<T>,
    doc: DocId,
) -> impl Iterator<Item = T> {
    let mut values: Vec<T> = column.values_for_doc(doc).collect();
    values.sort();
    values.into_iter()
}

fn date_text(field: &MappedField, millis: i64, format: Option<&str>) -> Result<Value, SearchError> {
    let format = format.unwrap_or(field.formats.first());
    Ok(json!(write(millis, format.split("||").next().unwrap_or(format), &jiff::tz::TimeZone::UTC)?))
}

/// A hit's source, and its place in the index.
pub(super) struct HitSource<'a> {
    pub(super) view: &'a IndexView,
    pub(super) source: &'a Map<String, Value>,
    /// The number of its target, its segment and its number in it; none where the columns must not be shown.
    pub(super) segment: Option<(usize, u32, DocId)>,
}

impl HitSource<'_> {
    /// Adds the values of `docvalue_fields`. Errors: a text, or a field without a column.
    pub(super) fn of_columns(
        &self,
        wanted: &ShownField,
        columns: &mut ShownColumns,
        fields: &mut Map<String, Value>,
    ) -> Result<(), SearchError> {
        for (name, field) in self.view.mapping.named(&wanted.pattern) {
            let has_column = field.kind != FieldKind::Text && (field.doc_values || field.kind != FieldKind::Keyword);
            if !has_column {
                match wanted.pattern.contains('*') {
                    true => continue,
                    false => return Err(no_column(field)),
                }
            }
            let format = wanted.format.as_deref();
            let values = match (self.segment, field.kind) {
                (Some((target, segment, doc)), kind) if kind != FieldKind::Opaque => {
                    let key = (target, segment, field.column.clone());
                    let column = match columns.0.entry(key) {
                        std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                        std::collections::hash_map::Entry::Vacant(entry) => {
                            entry.insert(ShownColumn::open(self.view.searcher.segment_reader(segment), field)?)
                        }
                    };
                    column.values(doc, field, format)?
                }
                _ => ordered(self.source_values(field, format)?, field.kind),
            };
            if !values.is_empty() {
                fields.insert(name.to_owned(), Value::Array(values));
            }
        }
        Ok(())
    }

    /// Adds the values of `fields`. Errors: a format of a field that has none.
    pub(super) fn of_source(&self, wanted: &ShownField, fields: &mut Map<String, Value>) -> Result<(), SearchError> {
        for (name, field) in self.view.mapping.named(&wanted.pattern) {
            if wanted.format.is_some() && field.kind != FieldKind::Date && !wanted.pattern.contains('*') {
                let (path, type_name) = (&field.path, &field.type_name);
                return Err(SearchError::argument(format!(
                    "error fetching [{path}]: field [{path}] of type [{type_name}] doesn't support formats."
                )));
            }
            let values = self.source_values(field, wanted.format.as_deref())?;
            if !values.is_empty() {
                fields.insert(name.to_owned(), Value::Array(values));
            }
        }
        Ok(())
    }

    /// The values of a field in the source, also in those that are copied to it.
    fn source_values(&self, field: &MappedField, format: Option<&str>) -> Result<Vec<Value>, SearchError> {
        let path = match field.is_multi {
            true => field.path.rsplit_once('.').map_or(field.path.as_str(), |(parent, _)| parent),
            false => &field.path,
        };
        let copied = self.view.mapping.copied_to(path).map(|field| field.path.as_str());
        let mut read = Vec::new();
        for path in std::iter::once(path).chain(copied) {
            for value in values_or_null_at(path, self.source, field.null_value.as_ref()) {
                read.extend(self.shown(field, &value, format)?);
            }
        }
        Ok(read)
    }

    /// A value as its field reads it; none if the field passes over it.
    fn shown(&self, field: &MappedField, value: &Value, format: Option<&str>) -> Result<Option<Value>, SearchError> {
        Ok(match field.kind {
            FieldKind::Opaque => Some(value.clone()),
            FieldKind::Text | FieldKind::Keyword | FieldKind::Ip => {
                let text = text_of(value).unwrap_or_else(|_| value.to_string());
                match (field.ignore_above, &field.analyzer) {
                    (Some(most), _) if text.chars().count() > most => None,
                    (_, Some(name)) if field.kind == FieldKind::Keyword => {
                        Some(json!(self.view.analyzers.normalizer(name)?.normalize(&text)))
                    }
                    _ => Some(json!(text)),
                }
            }
            FieldKind::Integer(bits) => integer(value, bits, true).ok().map(|whole| json!(whole)),
            FieldKind::UnsignedLong => unsigned(value).ok().map(|whole| json!(whole)),
            FieldKind::Real(short) => real(value).ok().map(|real| match field.scaling {
                Some(factor) => json!((real * factor).round() / factor),
                // The shortest number that is the same in 32 bits.
                None if short => json!((real as f32).to_string().parse().unwrap_or(real)),
                None => json!(real),
            }),
            FieldKind::Boolean => boolean(value).ok().map(|flag| json!(flag)),
            FieldKind::Date => match field.formats.value(value) {
                Ok(millis) => Some(date_text(field, millis, format)?),
                Err(_) => None,
            },
        })
    }
}

/// Values of a source in the order in which a column would have them.
fn ordered(mut values: Vec<Value>, kind: FieldKind) -> Vec<Value> {
    values.sort_by(|a, b| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.as_str().cmp(&b.as_str()),
    });
    if kind == FieldKind::Keyword {
        values.dedup();
    }
    values
}

fn no_column(field: &MappedField) -> SearchError {
    let (path, type_name) = (&field.path, &field.type_name);
    SearchError::argument(match field.kind {
        FieldKind::Text => format!(
            "Text fields are not optimised for operations that require per-document field data like aggregations and \
             sorting, so these operations are disabled by default. Please use a keyword field instead of [{path}]."
        ),
        _ => format!(
            "Can't load fielddata on [{path}] because fielddata is unsupported on fields of type [{type_name}]. Use doc values instead."
        ),
    })
}
