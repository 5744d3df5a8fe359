//! Intervals as PostgreSQL computes with them: products and quotients with a number, `age`, `justify_days`, `justify_hours`,
//! `justify_interval`, `make_interval`, and casts between intervals and times of day.
//!
//! A part of a month becomes days, of 30 each, and a part of a day becomes hours.

use std::sync::Arc;

use datafusion::arrow::array::Time64MicrosecondArray;
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};

use super::datetime_functions::TIMESTAMP;
use super::pg_function::{PgFunction, no_function};
use super::rows::{ArgumentRow, INTERVAL, Span, each, interval_out_of_range, spans, wanted};
use crate::SqlError;
use crate::text::calendar::{DAY_US, civil, days_of_month};

const DAY_SECONDS: f64 = 86_400.0;

fn interval(_: &[super::pg_function::Argument<'_>]) -> Result<DataType, SqlError> {
    Ok(INTERVAL)
}

/// `interval * number`.
pub(crate) const TIMES: PgFunction = PgFunction {
    name: "interval_times",
    wants: |types| wanted("*", "vf", types),
    gives: interval,
    run: |arrays, _| spans(arrays, |row| scaled(row.span(0), |part| part * row.float(1))),
    between: Some(" * "),
};

/// `interval / number`.
pub(crate) const OVER: PgFunction = PgFunction {
    name: "interval_over",
    wants: |types| wanted("/", "vf", types),
    gives: interval,
    run: |arrays, _| {
        spans(arrays, |row| match row.float(1) {
            0.0 => Err(SqlError::value("22012", "division by zero")),
            divisor => scaled(row.span(0), |part| part / divisor),
        })
    },
    between: Some(" / "),
};

/// `- interval`.
pub(crate) const NEGATED: PgFunction = PgFunction {
    name: "interval_negated",
    wants: |types| wanted("-", "v", types),
    gives: interval,
    run: |arrays, _| spans(arrays, |row| negated(row.span(0))),
    between: Some(""),
};

fn negated(span: Span) -> Result<Span, SqlError> {
    let parts = (span.months.checked_neg(), span.days.checked_neg(), span.us.checked_neg());
    let (Some(months), Some(days), Some(us)) = parts else { return Err(interval_out_of_range()) };
    Ok(Span { months, days, us })
}

/// An interval in Arrow's units. Errors: 22008 for more than 292 years of microseconds.
pub(crate) fn arrow(months: i32, days: i32, us: i64) -> Result<IntervalMonthDayNano, SqlError> {
    Span { months, days, us }.arrow()
}

/// Microseconds are the last digits of seconds and days that count.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round_ties_even() / 1e6
}

fn whole(value: f64) -> Result<i32, SqlError> {
    let fits = value > f64::from(i32::MIN) - 1.0 && value < f64::from(i32::MAX) + 1.0;
    if fits { Ok(value as i32) } else { Err(interval_out_of_range()) }
}

/// An interval whose parts were multiplied (PostgreSQL's `interval_mul` and `interval_div`).
fn scaled(span: Span, by: impl Fn(f64) -> f64) -> Result<Span, SqlError> {
    let (all_months, all_days) = (by(f64::from(span.months)), by(f64::from(span.days)));
    let (months, mut days) = (whole(all_months)?, whole(all_days)?);
    let days_of_months = rounded((all_months - f64::from(months)) * 30.0);
    let mut seconds = rounded((all_days - f64::from(days) + days_of_months - days_of_months.trunc()) * DAY_SECONDS);
    if seconds.abs() >= DAY_SECONDS {
        let more = (seconds / DAY_SECONDS).trunc();
        days = days.checked_add(more as i32).ok_or_else(interval_out_of_range)?;
        seconds -= more * DAY_SECONDS;
    }
    let days = days.checked_add(days_of_months as i32).ok_or_else(interval_out_of_range)?;
    let us = (by(span.us as f64) + seconds * 1e6).round_ties_even();
    if !us.is_finite() || us.abs() >= 9.2e18 {
        return Err(interval_out_of_range());
    }
    Ok(Span { months, days, us: us as i64 })
}

/// A time of day as an interval.
pub(crate) const OF_TIME: PgFunction = PgFunction {
    name: "interval_of_time",
    wants: |_| Ok(vec![DataType::Int64]),
    gives: interval,
    run: |arrays, _| spans(arrays, |row| Ok(Span { us: row.int(0), ..Span::default() })),
    between: Some(""),
};

/// The time of day of an interval: its days and months do not count.
pub(crate) const TO_TIME: PgFunction = PgFunction {
    name: "time_of_interval",
    wants: |types| wanted("time", "v", types),
    gives: |_| Ok(DataType::Time64(TimeUnit::Microsecond)),
    run: |arrays, _| {
        let times = each::<_, Time64MicrosecondArray>(arrays, |row| Ok(Some(row.span(0).us.rem_euclid(DAY_US))))?;
        Ok(Arc::new(times))
    },
    between: Some(""),
};

/// The functions that can be called by name.
pub(crate) const CALLED: &[PgFunction] = &[
    PgFunction {
        name: "age",
        wants: |types| match types {
            [DataType::Timestamp(..) | DataType::Date32 | DataType::Utf8 | DataType::Utf8View | DataType::Null, _] => {
                Ok(vec![TIMESTAMP, TIMESTAMP])
            }
            _ => Err(no_function("age", types)),
        },
        gives: interval,
        run: |arrays, _| spans(arrays, |row| Ok(age(row.moment(0), row.moment(1)))),
        between: None,
    },
    PgFunction {
        name: "justify_hours",
        wants: |types| wanted("justify_hours", "v", types),
        gives: interval,
        run: |arrays, _| spans(arrays, |row| justified_hours(row.span(0))),
        between: None,
    },
    PgFunction {
        name: "justify_days",
        wants: |types| wanted("justify_days", "v", types),
        gives: interval,
        run: |arrays, _| spans(arrays, |row| justified_days(row.span(0))),
        between: None,
    },
    PgFunction {
        name: "justify_interval",
        wants: |types| wanted("justify_interval", "v", types),
        gives: interval,
        run: |arrays, _| spans(arrays, |row| justified(row.span(0))),
        between: None,
    },
    PgFunction {
        name: "make_interval",
        wants: |types| wanted("make_interval", "?iiiiiif", types),
        gives: interval,
        run: |arrays, _| spans(arrays, |row| made(&row)),
        between: None,
    },
];

fn made(row: &ArgumentRow<'_>) -> Result<Span, SqlError> {
    let part = |at: usize| if at < row.width() { row.int(at) } else { 0 };
    let seconds = if row.width() > 6 { row.float(6) } else { 0.0 };
    let months = part(0).checked_mul(12).and_then(|months| months.checked_add(part(1)));
    let days = part(2).checked_mul(7).and_then(|days| days.checked_add(part(3)));
    let minutes = part(4).checked_mul(60).and_then(|minutes| minutes.checked_add(part(5)));
    let us = minutes.and_then(|minutes| minutes.checked_mul(60_000_000));
    let of_seconds = (seconds * 1e6).round_ties_even();
    let us = us.filter(|_| of_seconds.abs() < 9.2e18).and_then(|us| us.checked_add(of_seconds as i64));
    let fits = |number: Option<i64>| number.and_then(|number| i32::try_from(number).ok());
    match (fits(months), fits(days), us) {
        (Some(months), Some(days), Some(us)) => Ok(Span { months, days, us }),
        _ => Err(interval_out_of_range()),
    }
}

/// Hours as days, of 24 hours each.
fn justified_hours(span: Span) -> Result<Span, SqlError> {
    let more = i32::try_from(span.us / DAY_US).map_err(|_| interval_out_of_range())?;
    let days = span.days.checked_add(more).ok_or_else(interval_out_of_range)?;
    Ok(same_sign_of_hours(Span { days, us: span.us % DAY_US, ..span }))
}

fn same_sign_of_hours(span: Span) -> Span {
    match (span.days.signum(), span.us.signum()) {
        (1, -1) => Span { days: span.days - 1, us: span.us + DAY_US, ..span },
        (-1, 1) => Span { days: span.days + 1, us: span.us - DAY_US, ..span },
        _ => span,
    }
}

/// Days as months, of 30 days each.
fn justified_days(span: Span) -> Result<Span, SqlError> {
    let months = span.months.checked_add(span.days / 30).ok_or_else(interval_out_of_range)?;
    let span = Span { months, days: span.days % 30, ..span };
    Ok(match (span.months.signum(), span.days.signum()) {
        (1, -1) => Span { months: months - 1, days: span.days + 30, ..span },
        (-1, 1) => Span { months: months + 1, days: span.days - 30, ..span },
        _ => span,
    })
}

fn justified(span: Span) -> Result<Span, SqlError> {
    let more = i32::try_from(span.us / DAY_US).map_err(|_| interval_out_of_range())?;
    let days = span.days.checked_add(more).ok_or_else(interval_out_of_range)?;
    let months = span.months.checked_add(days / 30).ok_or_else(interval_out_of_range)?;
    let mut span = Span { months, days: days % 30, us: span.us % DAY_US };
    let rest = (span.days.signum(), span.us.signum());
    if span.months > 0 && matches!(rest, (-1, _) | (0, -1)) {
        span = Span { months: months - 1, days: span.days + 30, ..span };
    } else if span.months < 0 && matches!(rest, (1, _) | (0, 1)) {
        span = Span { months: months + 1, days: span.days - 30, ..span };
    }
    Ok(same_sign_of_hours(span))
}

/// Years, months, days and hours between two timestamps. The days of a month are those of the month of the earlier one
/// (PostgreSQL's `timestamp_age`).
fn age(one: i64, other: i64) -> Span {
    let (later, earlier, sign) = if one < other { (other, one, -1) } else { (one, other, 1) };
    let parts = |us: i64| (civil(us.div_euclid(DAY_US)), us.rem_euclid(DAY_US));
    let (((year, month, day), time), ((year0, month0, day0), time0)) = (parts(later), parts(earlier));
    let mut us = time - time0;
    let mut days = i64::from(day) - i64::from(day0);
    let mut months = (year - year0) * 12 + i64::from(month) - i64::from(month0);
    if us < 0 {
        us += DAY_US;
        days -= 1;
    }
    if days < 0 {
        days += i64::from(days_of_month(year0, month0));
        months -= 1;
    }
    Span { months: (sign * months) as i32, days: (sign * days) as i32, us: sign * us }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(text: &str) -> Span {
        let (months, days, us) = crate::text::intervals::parse_interval(text).expect(text);
        Span { months, days, us }
    }

    #[test]
    fn parts_of_months_become_days_and_parts_of_days_hours_as_in_postgresql() {
        // Results of PostgreSQL 15.18.
        for (text, factor, expected) in [
            ("1 day", 1.5, "1 day 12:00:00"),
            ("1 month", 0.5, "15 days"),
            ("1 year 2 mons 3 days 04:05:06.7", 1.5, "1 year 9 mons 4 days 18:07:40.05"),
            ("-1 days +02:00:00", 2.0, "-2 days +04:00:00"),
            ("1 mon", -1.5, "-1 mons -15 days"),
        ] {
            assert_eq!(scaled(span(text), |part| part * factor).expect(text), span(expected), "{text} * {factor}");
        }
        assert!(scaled(span("1 year"), |part| part * 1e12).is_err());
    }

    #[test]
    fn parts_of_an_interval_get_one_sign() {
        assert_eq!(justified_hours(span("27 hours")).expect("fits"), span("1 day 3 hours"));
        assert_eq!(justified_days(span("35 days")).expect("fits"), span("1 month 5 days"));
        assert_eq!(justified(span("1 mon -1 hour")).expect("fits"), span("29 days 23 hours"));
    }
}
