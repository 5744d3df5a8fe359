//! Timestamps as PostgreSQL makes and cuts them: `date_trunc`, `make_date`, `make_time`, `make_timestamp`, `make_timestamptz`, `isfinite`,
//! and casts to a number of digits of a second.
//!
//! DataFusion's `date_trunc` stays for constant units that both have, because scans know it; see [`is_plain`].

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;

use super::datetime_functions::{TIMESTAMP, moment, zone_of};
use super::pg_function::{Argument, PgFunction, no_function};
use super::rows::{ArgumentRow, INTERVAL, Kept, Span, each, is_text, moments, spans, wanted};
use crate::SqlError;
use crate::text::calendar::{DAY_US, SECOND_US, civil, days};

/// The type of times of day.
const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

fn out_of_range() -> SqlError {
    SqlError::value("22008", "timestamp out of range")
}

/// Whether a unit is a constant at which DataFusion cuts timestamps as PostgreSQL does.
pub(crate) fn is_plain(unit: &Expr) -> bool {
    let Expr::Literal(ScalarValue::Utf8(Some(unit)) | ScalarValue::Utf8View(Some(unit)), _) = unit else {
        return false;
    };
    let unit = unit.to_lowercase();
    matches!(unit.as_str(), "second" | "minute" | "hour" | "day" | "week" | "month" | "quarter" | "year")
}

/// `date_trunc(unit, value [, zone])`.
pub(crate) const DATE_TRUNC: PgFunction = PgFunction {
    name: "date_trunc",
    wants: |types| match types {
        [unit, value, rest @ ..] if is_text(unit) && rest.len() < 2 && rest.iter().all(is_text) => {
            let value = match value {
                DataType::Timestamp(_, None) if rest.is_empty() => TIMESTAMP,
                DataType::Interval(_) | DataType::Duration(_) | DataType::Time64(_) if rest.is_empty() => INTERVAL,
                DataType::Timestamp(_, Some(_)) | DataType::Date32 | DataType::Date64 => moment(),
                text if is_text(text) => moment(),
                _ => return Err(no_function("date_trunc", types)),
            };
            Ok([DataType::Utf8, value].into_iter().chain(rest.iter().map(|_| DataType::Utf8)).collect())
        }
        _ => Err(no_function("date_trunc", types)),
    },
    gives: |types: &[Argument<'_>]| match types {
        [_, (kind, _), ..] => Ok((*kind).clone()),
        _ => Err(no_function("date_trunc", &[])),
    },
    run: |arrays, gives| {
        let zones = Kept::new(zone_of);
        if matches!(gives, DataType::Interval(_)) {
            return spans(arrays, |row| cut_span(row.text(0), row.span(1)));
        }
        moments(arrays, gives, |row| {
            let name = if gives == &TIMESTAMP { "timestamp without time zone" } else { "timestamp with time zone" };
            let cut = |us| cut(row.text(0), us, name);
            if row.width() < 3 {
                return cut(row.moment(1));
            }
            let zone = *zones.of(row.text(2))?;
            let local = super::datetime_functions::to_local(zone, row.moment(1))?;
            super::datetime_functions::from_local(zone, cut(local)?)
        })
    },
    between: None,
};

fn unknown(unit: &str, kind: &str) -> SqlError {
    SqlError::value("22023", format!("unit \"{unit}\" not recognized for type {kind}"))
}

/// The years that a unit takes.
fn years_of(unit: &str) -> Option<i64> {
    Some(match unit {
        "decade" | "decades" => 10,
        "century" | "centuries" => 100,
        "millennium" | "millennia" => 1000,
        _ => return None,
    })
}

/// The microseconds that a unit takes, if it is always the same number.
fn us_of(unit: &str) -> Option<i64> {
    Some(match unit {
        "microsecond" | "microseconds" => 1,
        "millisecond" | "milliseconds" => 1000,
        "second" | "seconds" => SECOND_US,
        "minute" | "minutes" => 60 * SECOND_US,
        "hour" | "hours" => 3600 * SECOND_US,
        "day" | "days" => DAY_US,
        _ => return None,
    })
}

/// A timestamp cut at a unit.
fn cut(unit: &str, us: i64, kind: &str) -> Result<i64, SqlError> {
    let unit = unit.to_lowercase();
    let unit = unit.as_str();
    if let Some(length) = us_of(unit) {
        return Ok(us.div_euclid(length) * length);
    }
    let number = us.div_euclid(DAY_US);
    let (year, month, _) = civil(number);
    let first = match unit {
        // Day 0 was a Thursday.
        "week" | "weeks" => Some(number - (number + 3).rem_euclid(7)),
        "month" | "months" => days(year, month, 1),
        "quarter" | "quarters" => days(year, (month - 1) / 3 * 3 + 1, 1),
        "year" | "years" => days(year, 1, 1),
        "decade" | "decades" => days(year.div_euclid(10) * 10, 1, 1),
        other => match years_of(other) {
            // The first century begins with the year 1.
            Some(years) => days((year - 1).div_euclid(years) * years + 1, 1, 1),
            None => return Err(unknown(unit, kind)),
        },
    };
    first.and_then(|first| first.checked_mul(DAY_US)).ok_or_else(out_of_range)
}

/// An interval cut at a unit.
fn cut_span(unit: &str, span: Span) -> Result<Span, SqlError> {
    let unit = unit.to_lowercase();
    let of_months = |count: i32| Ok(Span { months: span.months / count * count, ..Span::default() });
    match unit.as_str() {
        "month" | "months" => of_months(1),
        "quarter" | "quarters" => of_months(3),
        "year" | "years" => of_months(12),
        "day" | "days" => Ok(Span { us: 0, ..span }),
        "week" | "weeks" => Err(SqlError::value("0A000", "unit \"week\" not supported for type interval")
            .with_detail("Months usually have fractional weeks.")),
        other => match (us_of(other), years_of(other)) {
            (Some(length), _) => Ok(Span { us: span.us / length * length, ..span }),
            (_, Some(years)) => of_months(12 * years as i32),
            _ => Err(unknown(other, "interval")),
        },
    }
}

/// A timestamp or a time rounded to a number of digits behind the second: `timestamp(n)`, `time(n)`.
pub(crate) const ROUNDED: PgFunction = PgFunction {
    name: "rounded_timestamp",
    wants: |types| match types {
        [DataType::Timestamp(_, zone), digits] if digits.is_integer() => {
            Ok(vec![zone.as_ref().map_or(TIMESTAMP, |_| moment()), DataType::Int64])
        }
        [DataType::Time64(_) | DataType::Time32(_), digits] if digits.is_integer() => Ok(vec![TIME, DataType::Int64]),
        _ => Err(no_function("timestamp", types)),
    },
    gives: |types| types.first().map(|(kind, _)| (*kind).clone()).ok_or_else(|| no_function("timestamp", &[])),
    run: |arrays, gives| match gives {
        DataType::Time64(_) => {
            let digits = arrays[1].as_primitive::<Int64Type>();
            let times = arrays[0].as_primitive::<Time64MicrosecondType>().iter().zip(digits);
            Ok(Arc::new(times.map(|(us, digits)| Some(rounded_time(us?, digits?))).collect::<Time64MicrosecondArray>()))
        }
        _ => moments(arrays, gives, |row| rounded(row.moment(0), row.int(1)).ok_or_else(out_of_range)),
    },
    between: Some(""),
};

/// Times and timestamps in microseconds, rounded to a number of digits behind the second; other values stay as they are.
pub(crate) fn with_digits(array: &ArrayRef, digits: u8) -> Result<ArrayRef, SqlError> {
    let digits = i64::from(digits);
    Ok(match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let values = array.as_primitive::<TimestampMicrosecondType>().iter();
            let values = values.map(|us| us.map(|us| rounded(us, digits).ok_or_else(out_of_range)).transpose());
            let values = values.collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
            Arc::new(values.with_data_type(array.data_type().clone()))
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            let values = array.as_primitive::<Time64MicrosecondType>().iter();
            Arc::new(values.map(|us| Some(rounded_time(us?, digits))).collect::<Time64MicrosecondArray>())
        }
        _ => array.clone(),
    })
}

/// The microseconds of the last digit.
fn unit(digits: i64) -> i64 {
    10i64.pow(6 - digits.clamp(0, 6) as u32)
}

/// A time of day, rounded: 24:00:00 is one.
fn rounded_time(us: i64, digits: i64) -> i64 {
    let unit = unit(digits);
    (us + unit / 2) / unit * unit
}

/// 2000-01-01: halves are rounded away from it, since PostgreSQL counts from there.
const MIDDLE_US: i64 = 946_684_800 * SECOND_US;

fn rounded(us: i64, digits: i64) -> Option<i64> {
    let unit = unit(digits);
    let distance = us.checked_sub(MIDDLE_US)?;
    let length = distance.checked_abs()?.checked_add(unit / 2)? / unit * unit;
    MIDDLE_US.checked_add(distance.signum() * length)
}

/// The functions that can be called by name.
pub(crate) const CALLED: &[PgFunction] = &[
    DATE_TRUNC,
    PgFunction {
        name: "make_date",
        wants: |types| wanted("make_date", "iii", types),
        gives: |_| Ok(DataType::Date32),
        run: |arrays, _| {
            Ok(Arc::new(each::<_, Date32Array>(arrays, |row| made_day(&row).map(|day| Some(day as i32)))?))
        },
        between: None,
    },
    PgFunction {
        name: "make_time",
        wants: |types| wanted("make_time", "iif", types),
        gives: |_| Ok(DataType::Time64(TimeUnit::Microsecond)),
        run: |arrays, _| Ok(Arc::new(each::<_, Time64MicrosecondArray>(arrays, |row| made_time(&row, 0).map(Some))?)),
        between: None,
    },
    PgFunction {
        name: "make_timestamp",
        wants: |types| wanted("make_timestamp", "iiiiif", types),
        gives: |_| Ok(TIMESTAMP),
        run: |arrays, gives| moments(arrays, gives, |row| made_moment(&row)),
        between: None,
    },
    PgFunction {
        name: "make_timestamptz",
        wants: |types| wanted("make_timestamptz", "iiiiif?t", types),
        gives: |_| Ok(moment()),
        run: |arrays, gives| {
            let zones = Kept::new(zone_of);
            moments(arrays, gives, |row| match row.width() {
                6 => made_moment(&row),
                _ => super::datetime_functions::from_local(*zones.of(row.text(6))?, made_moment(&row)?),
            })
        },
        between: None,
    },
    PgFunction {
        name: "isfinite",
        wants: |types| match types {
            [DataType::Timestamp(..) | DataType::Date32 | DataType::Interval(_) | DataType::Duration(_)] => {
                Ok(types.to_vec())
            }
            _ => Err(no_function("isfinite", types)),
        },
        gives: |_| Ok(DataType::Boolean),
        run: |arrays, _| is_finite(arrays),
        between: None,
    },
];

/// No infinite value can be stored.
fn is_finite(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let values = (0..arrays[0].len()).map(|row| arrays[0].is_valid(row).then_some(true));
    Ok(Arc::new(values.collect::<BooleanArray>()))
}

fn made_day(row: &ArgumentRow<'_>) -> Result<i64, SqlError> {
    let (year, month, day) = (row.int(0), row.int(1), row.int(2));
    let wrong = || SqlError::value("22008", format!("date field value out of range: {year}-{month:02}-{day:02}"));
    // There is no year 0: -1 is 1 BC.
    let counted = if year < 0 { year + 1 } else { year };
    match (year, u32::try_from(month), u32::try_from(day)) {
        (0, _, _) => Err(wrong()),
        (_, Ok(month), Ok(day)) => days(counted, month, day).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// The time of day of the arguments from `at`: hours, minutes, seconds.
fn made_time(row: &ArgumentRow<'_>, at: usize) -> Result<i64, SqlError> {
    let (hour, minute, second) = (row.int(at), row.int(at + 1), row.float(at + 2));
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    let us = |second: f64| (hour * 3600 + minute * 60) * SECOND_US + (second * 1e6).round_ties_even() as i64;
    match fits && us(second) <= DAY_US {
        true => Ok(us(second)),
        false => {
            let written = format!("{hour}:{minute:02}:{second:02}");
            Err(SqlError::value("22008", format!("time field value out of range: {written}")))
        }
    }
}

fn made_moment(row: &ArgumentRow<'_>) -> Result<i64, SqlError> {
    let time = made_time(row, 3)?;
    made_day(row)?.checked_mul(DAY_US).and_then(|day| day.checked_add(time)).ok_or_else(out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::calendar::parse_timestamp;

    #[test]
    fn timestamps_are_cut_where_postgresql_cuts_them() {
        // Results of PostgreSQL 15.18.
        for (unit, expected) in [
            ("milliseconds", "2024-02-29 12:34:56.789"),
            ("week", "2024-02-26"),
            ("quarter", "2024-01-01"),
            ("decade", "2020-01-01"),
            ("century", "2001-01-01"),
            ("millennium", "2001-01-01"),
        ] {
            let us = parse_timestamp("2024-02-29 12:34:56.789123").expect("it is one");
            assert_eq!(cut(unit, us, "timestamp").expect(unit), parse_timestamp(expected).expect(unit), "{unit}");
        }
        for (text, digits, expected) in [
            ("1999-12-31 23:59:59.5", 0, "1999-12-31 23:59:59"),
            ("1969-12-31 23:59:59.25", 1, "1969-12-31 23:59:59.2"),
            ("1990-01-01 00:00:00.45", 1, "1990-01-01 00:00:00.4"),
            ("2024-01-01 00:00:00.45", 1, "2024-01-01 00:00:00.5"),
        ] {
            let us = parse_timestamp(text).expect(text);
            assert_eq!(rounded(us, digits), parse_timestamp(expected), "{text}");
        }
        for (us, digits, expected) in [(1_499_999, 0, 1_000_000), (1_500_000, 0, 2_000_000), (DAY_US - 1, 2, DAY_US)] {
            assert_eq!(rounded_time(us, digits), expected, "{us}");
        }
        assert_eq!(rounded(i64::MIN, 0), None);
        assert_eq!(cut("fortnight", 0, "timestamp").expect_err("there is none").code(), "22023");
    }
}
