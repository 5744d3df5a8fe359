//! [`KeyReader`]: the values of a sort's key in one segment, as whole numbers of which the smaller comes first.
//!
//! ```text
//!   value of the column        a              b              c     (terms by their numbers, numbers as the library orders them)
//!   its code                   0              1              2
//!   SegmentKey   (1, 0..2) (1,3) (1, 4..6) (1,7) (1, 8..10) (1,11)  complemented if the key descends
//!                  gap              gap            gap
//! ```
//!
//! Values that the segment does not have lie in the gaps: that of `missing`, and the one after which a page begins, which another
//! segment filled. Each gap has a place before the value of `missing`, one for it and one after it: those two may lie in the same.
//! Without `missing`, documents without a value have FIRST or LAST. A segment without the column is one gap.
//!
//! Invariant: keys of a segment are ordered as the [`SortValue`]s behind them; a value that the segment cannot have lies between
//! those that it has.

use std::cmp::Ordering;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::sync::Arc;

use tantivy::DocId;
use tantivy::columnar::{Column, MonotonicallyMappableToU64, StrColumn};

use super::sort_value::{SortValue, whole_and_real};
use crate::error::SearchError;
use crate::mapping::FieldKind;
use crate::zones::{Zone, Zones};

/// Nanoseconds of a millisecond: the library keeps dates in nanoseconds.
const NANOS: i64 = 1_000_000;

/// A value within a segment: smaller comes first.
pub(super) type SegmentKey = (u8, u128);

const FIRST: SegmentKey = (0, 0);
const LAST: SegmentKey = (2, 0);

/// Which of several values counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SortMode {
    Min,
    Max,
    Sum,
    Avg,
    Median,
}

/// Where a key's values are.
pub(super) enum KeyColumn {
    Score,
    /// Added to the document's number in the segment.
    Place(i64),
    /// Values as the library keeps them, in an order that whole numbers have.
    Number(Arc<Zones>, FieldKind),
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
    /// Errors: the terms cannot be read.
    pub(super) fn new(
        column: KeyColumn,
        descending: bool,
        mode: SortMode,
        missing_value: SortValue,
    ) -> Result<KeyReader, SearchError> {
        let mut reader = KeyReader { column, descending, mode, missing: LAST, missing_value };
        reader.missing = reader.key_of(&reader.missing_value)?;
        Ok(reader)
    }

    fn ordered(&self, value: u128) -> SegmentKey {
        (1, if self.descending { !value } else { value })
    }

    /// The key of a document.
    pub(super) fn key(&self, doc: DocId, score: f32) -> SegmentKey {
        let found = match &self.column {
            KeyColumn::Score => Some(u128::from(f64::from(score).to_u64())),
            KeyColumn::Place(base) => Some(u128::from((base + i64::from(doc)).to_u64())),
            KeyColumn::None => None,
            KeyColumn::Number(zones, kind) => {
                self.number(&zones.column, *kind, doc).map(|code| place(u128::from(code)))
            }
            KeyColumn::Text(column) => {
                let ords = column.term_ords(doc);
                let ord = if self.mode == SortMode::Max { ords.max() } else { ords.min() };
                ord.map(|ord| place(u128::from(ord)))
            }
            KeyColumn::Address(column) => {
                let values = column.values_for_doc(doc);
                let value = if self.mode == SortMode::Max { values.max() } else { values.min() };
                value.map(u128::from)
            }
        };
        found.map_or(self.missing, |value| self.ordered(value))
    }

    /// The best and the worst key that documents of a zone can have. `docs` are their numbers.
    pub(super) fn zone_keys(&self, number: u32, docs: &Range<DocId>) -> (SegmentKey, SegmentKey) {
        let ends = |a: u128, b: u128| {
            let (a, b) = (self.ordered(a), self.ordered(b));
            (a.min(b), a.max(b))
        };
        match &self.column {
            KeyColumn::Place(base) => {
                let code = |doc: DocId| u128::from((base + i64::from(doc)).to_u64());
                ends(code(docs.start), code(docs.end.saturating_sub(1)))
            }
            KeyColumn::Number(zones, _) => {
                let zone: &Zone = &zones.all()[number as usize];
                let (best, worst) = ends(place(u128::from(zone.min)), place(u128::from(zone.max)));
                match (zone.has_values(), zone.has_missing) {
                    (false, _) => (self.missing, self.missing),
                    (true, true) => (best.min(self.missing), worst.max(self.missing)),
                    (true, false) => (best, worst),
                }
            }
            KeyColumn::None => (self.missing, self.missing),
            // Nothing is known.
            KeyColumn::Score | KeyColumn::Text(_) | KeyColumn::Address(_) => (FIRST, LAST),
        }
    }

    fn number(&self, column: &Column<u64>, kind: FieldKind, doc: DocId) -> Option<u64> {
        match (self.mode, kind) {
            (SortMode::Min, _) => column.values_for_doc(doc).min(),
            (SortMode::Max, _) => column.values_for_doc(doc).max(),
            (mode, FieldKind::Real(_)) => {
                let mut values: Vec<f64> = column.values_for_doc(doc).map(f64::from_u64).collect();
                values.sort_by(f64::total_cmp);
                let middle = values.len() / 2;
                let value = match mode {
                    _ if values.is_empty() => return None,
                    SortMode::Sum => values.iter().sum(),
                    SortMode::Avg => values.iter().sum::<f64>() / values.len() as f64,
                    _ if values.len() % 2 == 1 => values[middle],
                    _ => (values[middle - 1] + values[middle]) / 2.0,
                };
                Some(value.to_u64())
            }
            (mode, kind) => {
                let mut values: Vec<i128> = column.values_for_doc(doc).map(|value| whole_of(value, kind)).collect();
                values.sort_unstable();
                joined(&values, mode, kind).map(|value| code_of(value, kind))
            }
        }
    }

    /// The key that a value has, or would have, in this segment. Errors: the terms cannot be read.
    pub(super) fn key_of(&self, value: &SortValue) -> Result<SegmentKey, SearchError> {
        let found = match (value, &self.column) {
            (SortValue::First, _) => return Ok(FIRST),
            (SortValue::Last, _) => return Ok(LAST),
            (_, KeyColumn::None) => self.in_gap(value, 0),
            (SortValue::Text(text), KeyColumn::Text(column)) => {
                let unreadable = |error: std::io::Error| SearchError::internal(format!("terms of a column: {error}"));
                match column.dictionary().term_ord(text.as_bytes()).map_err(unreadable)? {
                    Some(ord) => place(u128::from(ord)),
                    None => self.in_gap(value, u128::from(terms_before(column, text).map_err(unreadable)?)),
                }
            }
            (SortValue::Address(address), KeyColumn::Address(_)) => u128::from(*address),
            (SortValue::Whole(whole), KeyColumn::Place(_)) => u128::from(whole.to_u64()),
            (SortValue::Real(real), KeyColumn::Score) => u128::from(real.to_u64()),
            (_, KeyColumn::Number(_, kind)) => {
                let found = match value {
                    SortValue::Whole(whole) => code_at_whole(i128::from(*whole), *kind),
                    SortValue::Unsigned(whole) => code_at_whole(i128::from(*whole), *kind),
                    SortValue::Real(real) => code_at_real(*real, *kind),
                    _ => return Ok(LAST),
                };
                match found {
                    Ok(code) => place(code),
                    Err(next) => self.in_gap(value, next),
                }
            }
            // A value of another kind than the column's: a search refuses such indices together.
            _ => return Ok(LAST),
        };
        Ok(self.ordered(found))
    }

    /// The place of a value that the segment does not have, before the value with the code `next`.
    fn in_gap(&self, value: &SortValue, next: u128) -> u128 {
        let slot = match value.compare(&self.missing_value, false) {
            Ordering::Less => 0,
            Ordering::Equal => 1,
            Ordering::Greater => 2,
        };
        next * PLACES + slot
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
        let code = (value / PLACES) as u64;
        Ok(match &self.column {
            KeyColumn::Score => SortValue::Real(f64::from_u64(value as u64)),
            KeyColumn::Place(_) => SortValue::Whole(i64::from_u64(value as u64)),
            KeyColumn::None => SortValue::Last,
            KeyColumn::Number(_, kind) => match kind {
                FieldKind::Real(_) => SortValue::Real(f64::from_u64(code)),
                FieldKind::UnsignedLong => SortValue::Unsigned(code),
                kind => SortValue::Whole(whole_of(code, *kind) as i64),
            },
            KeyColumn::Text(column) => {
                let mut text = String::new();
                column
                    .ord_to_str(code, &mut text)
                    .map_err(|error| SearchError::internal(format!("terms of a column: {error}")))?;
                SortValue::Text(text)
            }
            KeyColumn::Address(_) => SortValue::Address(Ipv6Addr::from(value)),
        })
    }
}

/// Places of a value and of the gap before it.
const PLACES: u128 = 4;

/// The place of the value with a code.
fn place(code: u128) -> u128 {
    code * PLACES + PLACES - 1
}

/// What is behind a column's value, for all kinds but those with a fraction; dates in milliseconds.
fn whole_of(code: u64, kind: FieldKind) -> i128 {
    match kind {
        FieldKind::UnsignedLong | FieldKind::Boolean => i128::from(code),
        FieldKind::Date => i128::from(i64::from_u64(code).div_euclid(NANOS)),
        _ => i128::from(i64::from_u64(code)),
    }
}

/// The reverse of [`whole_of`], for values that the kind can have.
fn code_of(whole: i128, kind: FieldKind) -> u64 {
    match kind {
        FieldKind::UnsignedLong | FieldKind::Boolean => whole as u64,
        FieldKind::Date => (whole as i64).saturating_mul(NANOS).to_u64(),
        _ => (whole as i64).to_u64(),
    }
}

/// The least and the greatest value that a kind's column can have.
fn bounds(kind: FieldKind) -> (i128, i128) {
    match kind {
        FieldKind::UnsignedLong | FieldKind::Boolean => (0, i128::from(u64::MAX)),
        FieldKind::Date => (i128::from(i64::MIN / NANOS), i128::from(i64::MAX / NANOS)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    }
}

/// The code of a whole number in a column. Errors: the column cannot have it; the code of the next greater value.
fn code_at_whole(whole: i128, kind: FieldKind) -> Result<u128, u128> {
    if let FieldKind::Real(_) = kind {
        let near = whole as f64;
        let code = u128::from(near.to_u64());
        return match whole_and_real(whole, near) {
            Ordering::Less => Err(code),
            Ordering::Equal => Ok(code),
            Ordering::Greater => Err(code + 1),
        };
    }
    match bounds(kind) {
        (least, _) if whole < least => Err(0),
        (_, most) if whole > most => Err(u128::from(u64::MAX) + 1),
        _ => Ok(u128::from(code_of(whole, kind))),
    }
}

/// The code of a number with a fraction in a column. Errors: as for [`code_at_whole`].
fn code_at_real(real: f64, kind: FieldKind) -> Result<u128, u128> {
    if let FieldKind::Real(_) = kind {
        return Ok(u128::from(real.to_u64()));
    }
    let next = real.ceil() as i128;
    match whole_and_real(next, real) {
        Ordering::Equal => code_at_whole(next, kind),
        _ => Err(code_at_whole(next, kind).unwrap_or_else(|next| next)),
    }
}

/// One value of several that are sorted, rounded up from the half; too large a sum wraps around, as Elasticsearch's does.
fn joined(values: &[i128], mode: SortMode, kind: FieldKind) -> Option<i128> {
    let wrapped = |sum: i128| match kind {
        FieldKind::UnsignedLong => i128::from(sum as u64),
        _ => i128::from(sum as i64),
    };
    let rounded = |sum: i128, count: i128| (2 * sum + count).div_euclid(2 * count);
    let middle = values.len() / 2;
    Some(match mode {
        _ if values.is_empty() => return None,
        SortMode::Sum => wrapped(values.iter().sum()),
        SortMode::Avg => rounded(wrapped(values.iter().sum()), values.len() as i128),
        _ if values.len() % 2 == 1 => values[middle],
        _ => rounded(wrapped(values[middle - 1] + values[middle]), 2),
    })
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
