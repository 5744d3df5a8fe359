//! The `range` query: bounds made inclusive for the field's type, then one range over its column.

use serde_json::{Map, Value};
use std::ops::Bound;
use tantivy::Term;
use tantivy::query::{InvertedIndexRangeQuery, RangeQuery};
use tantivy::schema::Field;

use crate::dates::{DateFormats, Rounding};
use crate::document::{address, boolean, real, text_of};
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};

use super::values::{WrittenNumber, date_term, kept_real, network, written_number};
use super::{BoxedQuery, QueryBuilder, all, boost_of, boosted, constant, failed, field_of, flag_of, known_only, none};

/// A bound of a range: the value, and whether it belongs to the range.
type RangeEnd<'v> = Option<(&'v Value, bool)>;

/// What a range query says.
struct RangeBounds<'v> {
    lower: RangeEnd<'v>,
    upper: RangeEnd<'v>,
    formats: Option<DateFormats>,
    zone: jiff::tz::TimeZone,
}

impl<'v> RangeBounds<'v> {
    fn of(field: &str, body: &'v Map<String, Value>) -> Result<RangeBounds<'v>, SearchError> {
        let known = [
            "gt",
            "gte",
            "lt",
            "lte",
            "from",
            "to",
            "include_lower",
            "include_upper",
            "format",
            "time_zone",
            "relation",
        ];
        known_only("range", body, &known)?;
        let end = |exclusive: &str, inclusive: &str, other: &str, include: &str| -> Result<RangeEnd<'v>, SearchError> {
            let present = |key: &str| body.get(key).filter(|value| !value.is_null());
            if let Some(value) = present(exclusive) {
                return Ok(Some((value, false)));
            }
            if let Some(value) = present(inclusive) {
                return Ok(Some((value, true)));
            }
            let included = if body.contains_key(include) { flag_of("range", body, include)? } else { true };
            Ok(present(other).map(|value| (value, included)))
        };
        let text = |key: &str| match body.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(other) => Err(SearchError::parsing(format!("[range] [{key}] of [{field}] is a text, not [{other}]"))),
        };
        let zone = match text("time_zone")? {
            Some(name) => crate::dates::zone(name)?,
            None => jiff::tz::TimeZone::UTC,
        };
        Ok(RangeBounds {
            lower: end("gt", "gte", "from", "include_lower")?,
            upper: end("lt", "lte", "to", "include_upper")?,
            formats: text("format")?.map(DateFormats::parse_list).transpose()?,
            zone,
        })
    }
}

impl QueryBuilder<'_> {
    /// `{"range": {field: {"gte": ..}}}`
    pub(super) fn range(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let (path, inner) = field_of("range", body)?;
        let Value::Object(inner) = inner else {
            return Err(SearchError::parsing(format!("[range] query does not support [{path}]")));
        };
        let boost = boost_of("range", inner)? * boost_of("range", body)?;
        Ok(boosted(self.range_of(path, inner)?, boost))
    }

    /// The range of one field, without its boost.
    pub(super) fn range_of(&mut self, path: &str, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let bounds = RangeBounds::of(path, body)?;
        let Some((field, column)) = self.resolve(path)? else { return Ok(none()) };
        if bounds.lower.is_none() && bounds.upper.is_none() {
            return self.exists_of(&field.path);
        }
        match field.kind {
            FieldKind::Text | FieldKind::Keyword => self.text_range(&field, column, &bounds),
            FieldKind::Integer(_) => {
                let (from, to) = whole_bounds(&bounds, i64::MIN.into(), i64::MAX.into())?;
                let term = |number: i128| Term::from_field_i64(column, number as i64);
                Ok(if from > to { none() } else { self.span(term(from), term(to)) })
            }
            FieldKind::UnsignedLong => {
                let (from, to) = whole_bounds(&bounds, 0, u64::MAX.into())?;
                let term = |number: i128| Term::from_field_u64(column, number as u64);
                Ok(if from > to { none() } else { self.span(term(from), term(to)) })
            }
            FieldKind::Real(short) => {
                let (from, to) = real_bounds(&bounds, short)?;
                let term = |number: f64| Term::from_field_f64(column, number);
                Ok(if from > to { none() } else { self.span(term(from), term(to)) })
            }
            FieldKind::Opaque => Err(SearchError::argument(format!(
                "Field [{}] of type [{}] does not support range queries",
                field.path, field.type_name
            ))),
            FieldKind::Boolean => self.boolean_range(&field, column, &bounds),
            FieldKind::Date => self.date_range(&field, column, &bounds),
            FieldKind::Ip => {
                let (from, to) = match address_bounds(&bounds)? {
                    Some(ends) => ends,
                    None => return Ok(none()),
                };
                let term = |number: u128| Term::from_field_ip_addr(column, number.into());
                Ok(if from > to { none() } else { self.span(term(from), term(to)) })
            }
        }
    }

    fn text_range(
        &mut self,
        field: &MappedField,
        column: Field,
        bounds: &RangeBounds<'_>,
    ) -> Result<BoxedQuery, SearchError> {
        self.check_cheap("range", " on [text] or [keyword] fields")?;
        let bound = |end: RangeEnd<'_>| -> Result<Bound<Term>, SearchError> {
            let Some((value, included)) = end else { return Ok(Bound::Unbounded) };
            let text = self.normalized(field, &text_of(value).map_err(failed)?)?;
            let term = Term::from_field_text(column, &text);
            Ok(if included { Bound::Included(term) } else { Bound::Excluded(term) })
        };
        let (lower, upper) = (bound(bounds.lower)?, bound(bounds.upper)?);
        // The library takes it for granted that a range of terms is the right way round.
        if let (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) =
            (&lower, &upper)
        {
            let both = matches!((&lower, &upper), (Bound::Included(_), Bound::Included(_)));
            if from > to || (from == to && !both) {
                return Ok(none());
            }
        }
        Ok(match field.indexed {
            true if field.kind == FieldKind::Text || !field.doc_values => {
                constant(Box::new(InvertedIndexRangeQuery::new(lower, upper)) as BoxedQuery, 1.0)
            }
            _ => constant(Box::new(RangeQuery::new(lower, upper)) as BoxedQuery, 1.0),
        })
    }

    /// The library has no ranges of true and false: the values in the range are asked for one by one.
    fn boolean_range(
        &mut self,
        field: &MappedField,
        column: Field,
        bounds: &RangeBounds<'_>,
    ) -> Result<BoxedQuery, SearchError> {
        let end = |end: RangeEnd<'_>| -> Result<Option<(bool, bool)>, SearchError> {
            match end {
                None => Ok(None),
                Some((value, included)) => Ok(Some((boolean(value).map_err(failed)?, included))),
            }
        };
        let (lower, upper) = (end(bounds.lower)?, end(bounds.upper)?);
        let inside = |flag: bool| {
            lower.is_none_or(|(from, included)| if included { flag >= from } else { flag & !from })
                && upper.is_none_or(|(to, included)| if included { flag <= to } else { !flag & to })
        };
        match (inside(false), inside(true)) {
            (false, false) => Ok(none()),
            (true, true) => self.exists_of(&field.path),
            (_, flag) => self.exact((field, column), &Value::Bool(flag)),
        }
    }

    fn date_range(
        &mut self,
        field: &MappedField,
        column: Field,
        bounds: &RangeBounds<'_>,
    ) -> Result<BoxedQuery, SearchError> {
        let formats = bounds.formats.as_ref().unwrap_or(&field.formats);
        let context = self.dates(bounds.zone.clone());
        let millis =
            |value: &Value, rounding| formats.query(value, rounding, &context).map_err(|error| failed(error.reason));
        let from = match bounds.lower {
            None => i64::MIN,
            Some((value, true)) => millis(value, Rounding::Down)?,
            Some((value, false)) => millis(value, Rounding::Up)?.saturating_add(1),
        };
        let to = match bounds.upper {
            None => i64::MAX,
            Some((value, true)) => millis(value, Rounding::Up)?,
            Some((value, false)) => millis(value, Rounding::Down)?.saturating_sub(1),
        };
        Ok(if from > to { none() } else { self.span(date_term(column, from), date_term(column, to)) })
    }

    /// Documents that have a field: for ranges without bounds.
    pub(super) fn exists_of(&mut self, path: &str) -> Result<BoxedQuery, SearchError> {
        if matches!(path, "_id" | "_index" | "_source") {
            return Ok(all(1.0));
        }
        let names = self.names_of(path);
        Ok(self.has_any_name(names))
    }
}

/// The whole numbers of a range, both included, within what the column can hold.
fn whole_bounds(bounds: &RangeBounds<'_>, min: i128, max: i128) -> Result<(i128, i128), SearchError> {
    let from = match bounds.lower {
        None => min,
        Some((value, included)) => match written_number(value).map_err(failed)? {
            WrittenNumber::Whole(whole) => whole.saturating_add(i128::from(!included)),
            WrittenNumber::Fraction(number) => number.ceil() as i128,
        },
    };
    let to = match bounds.upper {
        None => max,
        Some((value, included)) => match written_number(value).map_err(failed)? {
            WrittenNumber::Whole(whole) => whole.saturating_sub(i128::from(!included)),
            WrittenNumber::Fraction(number) => number.floor() as i128,
        },
    };
    // A bound beyond the column's ends must not become its last value.
    if from > max || to < min {
        return Ok((1, 0));
    }
    Ok((from.max(min), to.min(max)))
}

fn real_bounds(bounds: &RangeBounds<'_>, short: bool) -> Result<(f64, f64), SearchError> {
    let number = |value: &Value| real(value).map(|number| kept_real(number, short)).map_err(failed);
    let from = match bounds.lower {
        None => f64::NEG_INFINITY,
        Some((value, true)) => number(value)?,
        Some((value, false)) => number(value)?.next_up(),
    };
    let to = match bounds.upper {
        None => f64::INFINITY,
        Some((value, true)) => number(value)?,
        Some((value, false)) => number(value)?.next_down(),
    };
    Ok((from, to))
}

/// The addresses of a range, both included; none if it ends before it begins. A network stands for its first address as a
/// lower bound and for its last as an upper bound, as it does in a term.
fn address_bounds(bounds: &RangeBounds<'_>) -> Result<Option<(u128, u128)>, SearchError> {
    let ends = |value: &Value| -> Result<(u128, u128), SearchError> {
        let text = text_of(value).map_err(failed)?;
        match network(&text).map_err(failed)? {
            Some(ends) => Ok(ends),
            None => address(&text).map(|address| (address.into(), address.into())).map_err(failed),
        }
    };
    let from = match bounds.lower {
        None => Some(0),
        Some((value, true)) => Some(ends(value)?.0),
        Some((value, false)) => ends(value)?.1.checked_add(1),
    };
    let to = match bounds.upper {
        None => Some(u128::MAX),
        Some((value, true)) => Some(ends(value)?.1),
        Some((value, false)) => ends(value)?.0.checked_sub(1),
    };
    Ok(from.zip(to))
}
