//! Computations of one row at a time over whole arrays, for functions of [`PgFunction`](super::pg_function::PgFunction): NULL in any
//! argument is NULL.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimestampMicrosecondType,
};

use super::pg_function::no_function;
use crate::SqlError;
use crate::text::jsonb::{self, Document};

/// The type of intervals.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The arguments of one row.
pub(crate) struct ArgumentRow<'a> {
    arrays: &'a [ArrayRef],
    row: usize,
}

impl<'a> ArgumentRow<'a> {
    /// How many there are.
    pub(crate) fn width(&self) -> usize {
        self.arrays.len()
    }

    /// A text, of [`DataType::Utf8`].
    pub(crate) fn text(&self, at: usize) -> &'a str {
        self.arrays[at].as_string::<i32>().value(self.row)
    }

    /// Whether an argument is a text.
    pub(crate) fn is_text(&self, at: usize) -> bool {
        *self.arrays[at].data_type() == DataType::Utf8
    }

    /// Bytes, of [`DataType::Binary`].
    pub(crate) fn bytes(&self, at: usize) -> &'a [u8] {
        self.arrays[at].as_binary::<i32>().value(self.row)
    }

    /// A bigint.
    pub(crate) fn int(&self, at: usize) -> i64 {
        self.arrays[at].as_primitive::<Int64Type>().value(self.row)
    }

    /// A double.
    pub(crate) fn float(&self, at: usize) -> f64 {
        self.arrays[at].as_primitive::<Float64Type>().value(self.row)
    }

    /// A truth value.
    pub(crate) fn flag(&self, at: usize) -> bool {
        self.arrays[at].as_boolean().value(self.row)
    }

    /// The elements of an array.
    pub(crate) fn list(&self, at: usize) -> ArrayRef {
        self.arrays[at].as_list::<i32>().value(self.row)
    }

    /// A jsonb document. Errors: damaged.
    pub(crate) fn document(&self, at: usize) -> Result<Document, SqlError> {
        jsonb::decode(self.arrays[at].as_binary_view().value(self.row))
    }

    /// Microseconds of a timestamp.
    pub(crate) fn moment(&self, at: usize) -> i64 {
        self.arrays[at].as_primitive::<TimestampMicrosecondType>().value(self.row)
    }

    /// An interval.
    pub(crate) fn span(&self, at: usize) -> Span {
        Span::from(self.arrays[at].as_primitive::<IntervalMonthDayNanoType>().value(self.row))
    }
}

/// An interval in PostgreSQL's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Months.
    pub(crate) months: i32,
    /// Days.
    pub(crate) days: i32,
    /// Microseconds.
    pub(crate) us: i64,
}

impl Span {
    /// The sum; `None` for one that is too long.
    pub(crate) fn checked_add(self, other: Span) -> Option<Span> {
        let (months, days) = (self.months.checked_add(other.months)?, self.days.checked_add(other.days)?);
        Some(Span { months, days, us: self.us.checked_add(other.us)? })
    }

    /// The difference; `None` for one that is too long.
    pub(crate) fn checked_sub(self, other: Span) -> Option<Span> {
        let (months, days) = (self.months.checked_sub(other.months)?, self.days.checked_sub(other.days)?);
        Some(Span { months, days, us: self.us.checked_sub(other.us)? })
    }

    /// Arrow's value. Errors: 22008 for more than 292 years of microseconds.
    pub(crate) fn arrow(self) -> Result<IntervalMonthDayNano, SqlError> {
        let nanoseconds = self.us.checked_mul(1000).ok_or_else(interval_out_of_range)?;
        Ok(IntervalMonthDayNano::new(self.months, self.days, nanoseconds))
    }
}

impl From<IntervalMonthDayNano> for Span {
    fn from(value: IntervalMonthDayNano) -> Span {
        Span { months: value.months, days: value.days, us: value.nanoseconds / 1000 }
    }
}

/// The error for an interval that is too long.
pub(crate) fn interval_out_of_range() -> SqlError {
    SqlError::value("22008", "interval out of range")
}

/// How many values [`Kept`] has at most.
const KEPT_MAX: usize = 32;

/// What was made of a text, such as a pattern or a template, for the rows that have the same one.
pub(crate) struct Kept<T> {
    made: RefCell<Vec<(String, Rc<T>)>>,
    make: fn(&str) -> Result<T, SqlError>,
}

impl<T> Kept<T> {
    /// Nothing is made yet.
    pub(crate) fn new(make: fn(&str) -> Result<T, SqlError>) -> Kept<T> {
        Kept { made: RefCell::default(), make }
    }

    /// The value of a text. Errors: those of making it.
    pub(crate) fn of(&self, text: &str) -> Result<Rc<T>, SqlError> {
        let mut made = self.made.borrow_mut();
        if let Some(at) = made.iter().position(|(known, _)| known == text) {
            // The last one is in front.
            made[..=at].rotate_right(1);
            return Ok(made[0].1.clone());
        }
        let value = Rc::new((self.make)(text)?);
        made.truncate(KEPT_MAX - 1);
        made.insert(0, (text.to_owned(), value.clone()));
        Ok(value)
    }
}

/// The result of each row; NULL where an argument is.
pub(crate) fn each<T, A: FromIterator<Option<T>>>(
    arrays: &[ArrayRef],
    of: impl Fn(ArgumentRow<'_>) -> Result<Option<T>, SqlError>,
) -> Result<A, SqlError> {
    let rows = arrays.first().map_or(1, |array| array.len());
    (0..rows)
        .map(|row| match arrays.iter().any(|array| array.is_null(row)) {
            true => Ok(None),
            false => of(ArgumentRow { arrays, row }),
        })
        .collect()
}

/// A text of each row.
pub(crate) fn texts(
    arrays: &[ArrayRef],
    of: impl Fn(ArgumentRow<'_>) -> Result<String, SqlError>,
) -> Result<ArrayRef, SqlError> {
    Ok(Arc::new(each::<String, StringArray>(arrays, |row| of(row).map(Some))?))
}

/// A timestamp of each row, with or without a zone as `gives` says.
pub(crate) fn moments(
    arrays: &[ArrayRef],
    gives: &DataType,
    of: impl Fn(ArgumentRow<'_>) -> Result<i64, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let values = each::<i64, TimestampMicrosecondArray>(arrays, |row| of(row).map(Some))?;
    Ok(Arc::new(values.with_data_type(gives.clone())))
}

/// An interval of each row.
pub(crate) fn spans(
    arrays: &[ArrayRef],
    of: impl Fn(ArgumentRow<'_>) -> Result<Span, SqlError>,
) -> Result<ArrayRef, SqlError> {
    Ok(Arc::new(each::<_, IntervalMonthDayNanoArray>(arrays, |row| of(row)?.arrow().map(Some))?))
}

/// Whether values of a type are text, or NULL or a quoted literal, which may be.
pub(crate) fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
}

/// The types of arguments by a letter each: `t` text, `i` a whole number, `f` any number as a double, `v` an interval, `b` bytes,
/// `a` anything as text. Letters behind a `?` may be missing.
pub(crate) fn wanted(name: &str, letters: &str, types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    let (must, may) = letters.split_once('?').unwrap_or((letters, ""));
    let all: Vec<char> = must.chars().chain(may.chars()).collect();
    if types.len() < must.len() || types.len() > all.len() {
        return Err(no_function(name, types));
    }
    let each = types.iter().zip(all).map(|(kind, letter)| match letter {
        't' if is_text(kind) => Some(DataType::Utf8),
        'i' if kind.is_integer() || kind.is_null() => Some(DataType::Int64),
        'f' if kind.is_numeric() || kind.is_null() => Some(DataType::Float64),
        'v' if matches!(kind, DataType::Interval(_) | DataType::Duration(_)) || is_text(kind) => Some(INTERVAL),
        'b' if kind.is_binary() || kind.is_null() => Some(DataType::Binary),
        'a' => Some(DataType::Utf8),
        _ => None,
    });
    each.collect::<Option<Vec<_>>>().ok_or_else(|| no_function(name, types))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_of_a_text_is_kept_for_the_rows_that_have_it() {
        let kept = Kept::new(|text: &str| match text {
            "" => Err(SqlError::value("22023", "it is empty")),
            text => Ok(text.to_owned()),
        });
        let first = kept.of("a").expect("it is made");
        for other in 1..KEPT_MAX {
            kept.of(&other.to_string()).expect("it is made");
        }
        assert!(Rc::ptr_eq(&first, &kept.of("a").expect("it is kept")));
        for other in 0..KEPT_MAX {
            kept.of(&format!("other {other}")).expect("it is made");
        }
        assert!(!Rc::ptr_eq(&first, &kept.of("a").expect("it is made again")));
        assert_eq!(kept.of("").expect_err("it is none").code(), "22023");
    }
}
