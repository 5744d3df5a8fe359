//! Values of queries as the terms and ranges of a field's column.
//!
//! ```text
//!   "10.5" asked of a long     no term               a date without a time    the range of its milliseconds
//!   5                          the term 5            10.0.0.0/8               the range of its addresses
//! ```

use std::sync::Arc;

use serde_json::Value;
use tantivy::columnar::MonotonicallyMappableToU64;
use tantivy::query::{RangeQuery, TermQuery};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DateTime, Term};

use crate::dates::{DateContext, DateFormats, Rounding};
use crate::document::{address, boolean, real, text_of};
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};

use super::column_range::ColumnRangeQuery;
use super::{BoxedQuery, QueryBuilder, constant, failed, none};

/// The longest value that is looked up, in bytes: longer ones were never indexed.
const VALUE_BYTES_MAX: usize = crate::document::TERM_BYTES_MAX;

/// The last millisecond whose nanoseconds fit into 64 bits.
const MILLIS_MAX: i64 = i64::MAX / 1_000_000;

/// A number as a query writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WrittenNumber {
    /// A whole number, far beyond 64 bits at its ends.
    Whole(i128),
    /// A number with a fraction.
    Fraction(f64),
}

/// What a value of a query stands for in a column.
#[derive(Debug)]
pub(super) enum ColumnValue {
    /// One term.
    One(Term),
    /// All from the first to the second, both included.
    Span(Term, Term),
    /// Nothing that the field can hold.
    Nothing,
}

/// Reads a number. Errors: it is none.
pub(super) fn written_number(value: &Value) -> Result<WrittenNumber, String> {
    let of_real = |number: f64| match number.fract() == 0.0 && number.abs() < 1e30 {
        true => WrittenNumber::Whole(number as i128),
        false => WrittenNumber::Fraction(number),
    };
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => Ok(WrittenNumber::Whole(whole.into())),
            (_, Some(whole), _) => Ok(WrittenNumber::Whole(whole.into())),
            (.., Some(number)) => Ok(of_real(number)),
            _ => Err(format!("For input string: \"{number}\"")),
        },
        Value::String(text) => match (text.trim().parse::<i128>(), text.trim().parse::<f64>()) {
            (Ok(whole), _) => Ok(WrittenNumber::Whole(whole)),
            (_, Ok(number)) if number.is_finite() => Ok(of_real(number)),
            _ => Err(format!("For input string: \"{}\"", shortened(text))),
        },
        other => Err(format!("For input string: \"{}\"", shortened(&other.to_string()))),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The term of a date; the column's milliseconds are clamped to those that it can hold.
pub(super) fn date_term(column: Field, millis: i64) -> Term {
    Term::from_field_date(column, DateTime::from_timestamp_millis(millis.clamp(-MILLIS_MAX, MILLIS_MAX)))
}

/// A number of the precision that the field keeps.
pub(super) fn kept_real(number: f64, short: bool) -> f64 {
    if short { f64::from(number as f32) } else { number }
}

/// The addresses of `10.0.0.0/8`. Errors: it is no network.
pub(super) fn network(text: &str) -> Result<Option<(u128, u128)>, String> {
    let Some((start, bits)) = text.split_once('/') else { return Ok(None) };
    let start_address = address(start)?;
    let width = if start.contains(':') { 128 } else { 32 };
    let bits: u32 = bits.parse().map_err(|_| format!("'{text}' is not a network"))?;
    if bits > width {
        return Err(format!("'{text}' is not a network: it has {bits} bits of {width}"));
    }
    let free = width - bits;
    let mask = if free == 128 { u128::MAX } else { (1u128 << free) - 1 };
    let start = u128::from(start_address) & !mask;
    Ok(Some((start, start | mask)))
}

/// A term's value as the columns of numbers and dates have it; `None` for those of other columns.
fn column_code(term: &Term) -> Option<u64> {
    let value = term.value();
    let whole = value.as_u64().or_else(|| value.as_i64().map(i64::to_u64));
    whole.or_else(|| value.as_f64().map(f64::to_u64)).or_else(|| value.as_date().map(DateTime::to_u64))
}

impl QueryBuilder<'_> {
    /// All values of a column from one to another, both included; score 1.
    pub(super) fn span(&self, from: Term, to: Term) -> BoxedQuery {
        let range: BoxedQuery = match column_code(&from).zip(column_code(&to)) {
            Some((low, high)) => Box::new(ColumnRangeQuery {
                zones: Arc::clone(&self.view.zones),
                column: self.view.schema.get_field_name(from.field()).to_owned(),
                from: low,
                to: high,
            }),
            None => Box::new(RangeQuery::new(std::ops::Bound::Included(from), std::ops::Bound::Included(to))),
        };
        constant(range, 1.0)
    }

    /// The context of dates, in a zone.
    pub(super) fn dates(&self, zone: jiff::tz::TimeZone) -> DateContext {
        DateContext { now: self.context.now, zone }
    }

    /// The text of a keyword's value, normalized as the documents' values were.
    pub(super) fn normalized(&self, field: &MappedField, text: &str) -> Result<String, SearchError> {
        match (&field.analyzer, field.kind) {
            (Some(normalizer), FieldKind::Keyword) => Ok(self.view.analyzers.normalizer(normalizer)?.normalize(text)),
            _ => Ok(text.to_owned()),
        }
    }

    /// What a value stands for in a field's column. Errors: the field's type has no such value.
    pub(super) fn column_value(
        &self,
        (field, column): (&MappedField, Field),
        value: &Value,
    ) -> Result<ColumnValue, SearchError> {
        let number = |value: &Value| written_number(value).map_err(failed);
        Ok(match field.kind {
            FieldKind::Text | FieldKind::Keyword => {
                let text = self.normalized(field, &text_of(value).map_err(failed)?)?;
                match text.len() > VALUE_BYTES_MAX {
                    true => ColumnValue::Nothing,
                    false => ColumnValue::One(Term::from_field_text(column, &text)),
                }
            }
            FieldKind::Integer(_) => match number(value)? {
                WrittenNumber::Whole(whole) => match i64::try_from(whole) {
                    Ok(whole) => ColumnValue::One(Term::from_field_i64(column, whole)),
                    Err(_) => ColumnValue::Nothing,
                },
                WrittenNumber::Fraction(_) => ColumnValue::Nothing,
            },
            FieldKind::UnsignedLong => match number(value)? {
                WrittenNumber::Whole(whole) => match u64::try_from(whole) {
                    Ok(whole) => ColumnValue::One(Term::from_field_u64(column, whole)),
                    Err(_) => ColumnValue::Nothing,
                },
                WrittenNumber::Fraction(_) => ColumnValue::Nothing,
            },
            FieldKind::Real(short) => {
                let number = real(value).map_err(|_| {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    failed(format!("For input string: \"{}\"", shortened(&text)))
                })?;
                // As a document's would be kept.
                let number = field.scaling.map_or(number, |factor| (number * factor).round() / factor);
                ColumnValue::One(Term::from_field_f64(column, kept_real(number, short)))
            }
            FieldKind::Opaque => {
                let (path, type_name) = (&field.path, &field.type_name);
                return Err(SearchError::argument(format!(
                    "Field [{path}] of type [{type_name}] does not support term queries"
                )));
            }
            FieldKind::Boolean => ColumnValue::One(Term::from_field_bool(column, boolean(value).map_err(failed)?)),
            FieldKind::Date => self.date_value(&field.formats, column, value)?,
            FieldKind::Ip => {
                let text = text_of(value).map_err(failed)?;
                match network(&text).map_err(failed)? {
                    Some((from, to)) => ColumnValue::Span(
                        Term::from_field_ip_addr(column, from.into()),
                        Term::from_field_ip_addr(column, to.into()),
                    ),
                    None => ColumnValue::One(Term::from_field_ip_addr(column, address(&text).map_err(failed)?)),
                }
            }
        })
    }

    fn date_value(&self, formats: &DateFormats, column: Field, value: &Value) -> Result<ColumnValue, SearchError> {
        let context = self.dates(jiff::tz::TimeZone::UTC);
        let at = |rounding| {
            let millis = formats.query(value, rounding, &context).map_err(|error| failed(error.reason))?;
            Ok::<Term, SearchError>(date_term(column, millis))
        };
        Ok(ColumnValue::Span(at(Rounding::Down)?, at(Rounding::Up)?))
    }

    /// Documents whose field has a value: BM25 for text and keywords, score 1 for the others.
    pub(super) fn exact(
        &self,
        (field, column): (&MappedField, Field),
        value: &Value,
    ) -> Result<BoxedQuery, SearchError> {
        if !field.indexed && matches!(field.kind, FieldKind::Text | FieldKind::Keyword | FieldKind::Boolean) {
            return Err(failed(format!("Cannot search on field [{}] since it is not indexed.", field.path)));
        }
        Ok(match self.column_value((field, column), value)? {
            ColumnValue::Nothing => none(),
            ColumnValue::Span(from, to) => self.span(from, to),
            ColumnValue::One(term) => match field.kind {
                FieldKind::Text | FieldKind::Keyword => term_query(term),
                FieldKind::Ip => constant(term_query(term), 1.0),
                _ if field.indexed => constant(term_query(term), 1.0),
                _ => self.span(term.clone(), term),
            },
        })
    }
}

/// Documents with a term.
pub(super) fn term_query(term: Term) -> BoxedQuery {
    Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs))
}
