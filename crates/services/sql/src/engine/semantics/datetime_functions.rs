//! Functions of dates, times and intervals with PostgreSQL's results: `timezone` (AT TIME ZONE), `extract`,
//! `date_part`, the difference of two timestamps, and the length by which intervals are compared.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, IntervalMonthDayNanoArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::scalar::ScalarValue;

use chrono::{DateTime, Datelike, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike};

use super::pg_function::{PgFunction, no_function};
use crate::SqlError;
use crate::table::types::UTC;
use crate::text::calendar::{DAY_US, SECOND_US};

/// A timestamp without time zone.
pub(crate) const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// A timestamp with time zone.
pub(crate) fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn out_of_range() -> SqlError {
    SqlError::value("22008", "timestamp out of range")
}

/// `timezone(zone, value)`: converts a timestamp with time zone to the local time of `zone`, or a local time there to a
/// timestamp with time zone.
pub(crate) const TIMEZONE: PgFunction = PgFunction {
    name: "timezone",
    wants: |types| match types {
        [zone, value] if is_text(zone) => Ok(vec![
            DataType::Utf8,
            match value {
                DataType::Timestamp(_, None) => TIMESTAMP,
                DataType::Timestamp(_, Some(_)) | DataType::Date32 | DataType::Null => moment(),
                text if is_text(text) => moment(),
                _ => return Err(no_function("timezone", types)),
            },
        ]),
        _ => Err(no_function("timezone", types)),
    },
    gives: |types| Ok(if matches!(types, [_, (DataType::Timestamp(_, None), _)]) { moment() } else { TIMESTAMP }),
    run: |arrays, gives| {
        let (zones, values) = (arrays[0].as_string::<i32>(), arrays[1].as_primitive::<TimestampMicrosecondType>());
        let to_local = *gives == TIMESTAMP;
        let mut last: Option<(&str, Tz)> = None;
        let moved = (0..values.len()).map(|row| {
            if zones.is_null(row) || values.is_null(row) {
                return Ok(None);
            }
            let name = zones.value(row);
            let zone = match last {
                Some((known, zone)) if known == name => zone,
                _ => zone_of(name)?,
            };
            last = Some((name, zone));
            let moved = if to_local { self::to_local } else { from_local };
            moved(zone, values.value(row)).map(Some)
        });
        let moved = moved.collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
        Ok(Arc::new(moved.with_data_type(gives.clone())))
    },
    between: None,
};

/// The local time of a moment.
pub(crate) fn to_local(zone: Tz, us: i64) -> Result<i64, SqlError> {
    let time = DateTime::from_timestamp_micros(us).ok_or_else(out_of_range)?.naive_utc();
    let offset = TimeDelta::seconds(zone.offset_from_utc_datetime(&time).fix().local_minus_utc().into());
    Ok(time.checked_add_signed(offset).ok_or_else(out_of_range)?.and_utc().timestamp_micros())
}

/// The moment of a local time.
pub(crate) fn from_local(zone: Tz, us: i64) -> Result<i64, SqlError> {
    let time = DateTime::from_timestamp_micros(us).ok_or_else(out_of_range)?.naive_utc();
    let time = time.checked_sub_signed(local_offset(zone, time)?).ok_or_else(out_of_range)?;
    Ok(time.and_utc().timestamp_micros())
}

/// A zone of the IANA database. Names that look like an offset are refused, because they have the other sign in
/// PostgreSQL; so are abbreviations, which are PostgreSQL's own.
pub(crate) fn zone_of(name: &str) -> Result<Tz, SqlError> {
    let known = name.contains('/') || name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("gmt");
    let parsed = if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("gmt") { UTC } else { name };
    match parsed.parse::<Tz>() {
        Ok(zone) if known => Ok(zone),
        Err(_) if known => Err(SqlError::value("22023", format!("time zone \"{name}\" not recognized"))),
        _ => Err(SqlError::unsupported(format!("time zone \"{name}\""))
            .with_hint("Name UTC or a zone with its region, such as Europe/Berlin.")),
    }
}

/// The offset of a local time. A time that is skipped when clocks are set forward has the offset before the change; a
/// time that occurs twice when they are set back has the second offset. PostgreSQL does the same.
fn local_offset(zone: Tz, local: NaiveDateTime) -> Result<TimeDelta, SqlError> {
    let offset = match zone.offset_from_local_datetime(&local) {
        chrono::offset::MappedLocalTime::Single(offset) | chrono::offset::MappedLocalTime::Ambiguous(_, offset) => {
            offset
        }
        chrono::offset::MappedLocalTime::None => {
            // No zone skips more than a day.
            let before = local.checked_sub_signed(TimeDelta::hours(25)).ok_or_else(out_of_range)?;
            zone.offset_from_local_datetime(&before).latest().ok_or_else(out_of_range)?
        }
    };
    Ok(TimeDelta::seconds(offset.fix().local_minus_utc().into()))
}

/// `a - b` of timestamps: days, and the rest.
pub(crate) const DIFFERENCE: PgFunction = PgFunction {
    name: "timestamp_difference",
    wants: |types| {
        let zoned = types.iter().any(|kind| matches!(kind, DataType::Timestamp(_, Some(_))));
        Ok(vec![if zoned { moment() } else { TIMESTAMP }; 2])
    },
    gives: |_| Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
    run: |arrays, _| {
        let [left, right] = [0, 1].map(|at: usize| arrays[at].as_primitive::<TimestampMicrosecondType>());
        let spans = left.iter().zip(right).map(|pair| {
            let (Some(left), Some(right)) = pair else { return Ok(None) };
            let span = left.checked_sub(right).ok_or_else(|| SqlError::value("22008", "interval out of range"))?;
            // 292,000 years of microseconds are 107 million days.
            Ok(Some(IntervalMonthDayNano::new(0, (span / DAY_US) as i32, span % DAY_US * 1000)))
        });
        Ok(Arc::new(spans.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?))
    },
    between: Some(" - "),
};

/// `date + time`.
pub(crate) const DATE_AND_TIME: PgFunction = PgFunction {
    name: "date_and_time",
    wants: |types| match types {
        [DataType::Date32 | DataType::Timestamp(..), DataType::Time64(_)] => {
            Ok(vec![TIMESTAMP, DataType::Time64(TimeUnit::Microsecond)])
        }
        _ => Err(no_function("+", types)),
    },
    gives: |_| Ok(TIMESTAMP),
    run: |arrays, _| {
        let days = arrays[0].as_primitive::<TimestampMicrosecondType>();
        let times = arrays[1].as_primitive::<Time64MicrosecondType>();
        let sums = days.iter().zip(times).map(|(day, time)| match (day, time) {
            (Some(day), Some(time)) => day.checked_add(time).map(Some).ok_or_else(out_of_range),
            _ => Ok(None),
        });
        Ok(Arc::new(sums.collect::<Result<TimestampMicrosecondArray, SqlError>>()?))
    },
    between: Some(" + "),
};

/// The length by which intervals are compared: microseconds, with months of 30 days and days of 24 hours.
pub(crate) const SPAN: PgFunction = PgFunction {
    name: "interval_span",
    wants: |_| Ok(vec![DataType::Interval(IntervalUnit::MonthDayNano)]),
    gives: |_| Ok(DataType::Decimal128(38, 0)),
    run: |arrays, gives| {
        let spans = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
        let spans = spans.iter().map(|span| span.map(span_us));
        Ok(Arc::new(spans.collect::<Decimal128Array>().with_data_type(gives.clone())))
    },
    between: None,
};

/// The length of an interval in microseconds, with months of 30 days.
pub(crate) fn span_us(span: IntervalMonthDayNano) -> i128 {
    let days = i128::from(span.months) * 30 + i128::from(span.days);
    days * i128::from(DAY_US) + i128::from(span.nanoseconds / 1000)
}

/// `extract(field FROM value)`: a numeric.
pub(crate) const EXTRACT: PgFunction = PgFunction {
    name: "extract_field",
    wants: field_and_value,
    gives: |types| {
        let scale = match types {
            [(_, Some(field)), (kind, _)] => part_of(field, kind)?.scale(kind),
            _ => 6,
        };
        Ok(DataType::Decimal128(38, scale))
    },
    run: |arrays, gives| {
        let parts = parts(arrays)?;
        let DataType::Decimal128(_, scale) = gives else { return Err(no_function("extract", &[])) };
        let less = 10i128.pow(6 - *scale as u32);
        let values = parts.iter().map(|part| part.map(|millionths| millionths / less));
        Ok(Arc::new(values.collect::<Decimal128Array>().with_data_type(gives.clone())))
    },
    between: None,
};

/// `date_part(field, value)`: the same as a float.
pub(crate) const DATE_PART: PgFunction = PgFunction {
    name: "date_part",
    wants: field_and_value,
    gives: |_| Ok(DataType::Float64),
    run: |arrays, _| {
        let values = parts(arrays)?.into_iter().map(|part| part.map(|millionths| millionths as f64 / 1e6));
        Ok(Arc::new(values.collect::<Float64Array>()))
    },
    between: None,
};

fn field_and_value(types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [field, value] if is_text(field) => Ok(vec![
            DataType::Utf8,
            match value {
                DataType::Timestamp(_, zone) => zone.as_ref().map_or(TIMESTAMP, |_| moment()),
                DataType::Date64 => DataType::Date32,
                DataType::Date32 => DataType::Date32,
                DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
                DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
                DataType::Null => TIMESTAMP,
                _ => return Err(no_function("extract", types)),
            },
        ]),
        _ => Err(no_function("extract", types)),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Milliseconds,
    Microseconds,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    Week,
    IsoYear,
    Quarter,
    Epoch,
    Century,
    Decade,
    Millennium,
    Julian,
    Zone,
}

impl Part {
    /// Digits behind the point.
    fn scale(self, kind: &DataType) -> i8 {
        match self {
            Part::Second => 6,
            Part::Epoch if *kind != DataType::Date32 => 6,
            Part::Milliseconds => 3,
            _ => 0,
        }
    }
}

/// The part of this name for values of a type. Errors: 22023 for an unknown name, 0A000 if the type does not have the
/// part.
fn part_of(field: &ScalarValue, kind: &DataType) -> Result<Part, SqlError> {
    let name = field.to_string().to_lowercase();
    let type_name = || {
        let field = datafusion::arrow::datatypes::Field::new("", kind.clone(), true);
        crate::table::SqlType::from_arrow(&field).map_or_else(|_| kind.to_string(), |kind| kind.name())
    };
    let part = match name.as_str() {
        "year" | "years" => Part::Year,
        "month" | "months" => Part::Month,
        "day" | "days" => Part::Day,
        "hour" | "hours" => Part::Hour,
        "minute" | "minutes" => Part::Minute,
        "second" | "seconds" => Part::Second,
        "millisecond" | "milliseconds" => Part::Milliseconds,
        "microsecond" | "microseconds" => Part::Microseconds,
        "dow" => Part::DayOfWeek,
        "isodow" => Part::IsoDayOfWeek,
        "doy" => Part::DayOfYear,
        "week" => Part::Week,
        "isoyear" => Part::IsoYear,
        "quarter" => Part::Quarter,
        "epoch" => Part::Epoch,
        "century" => Part::Century,
        "decade" => Part::Decade,
        "millennium" => Part::Millennium,
        "julian" if *kind == DataType::Date32 => Part::Julian,
        "julian" => return Err(SqlError::unsupported("extract(julian from a timestamp)")),
        // Sessions have the time zone UTC.
        "timezone" | "timezone_hour" | "timezone_minute" => Part::Zone,
        _ => {
            let message = format!("unit \"{name}\" not recognized for type {}", type_name());
            return Err(SqlError::statement("22023", message));
        }
    };
    let clock = matches!(part, Part::Hour | Part::Minute | Part::Second | Part::Milliseconds | Part::Microseconds);
    let there = match kind {
        _ if part == Part::Zone => matches!(kind, DataType::Timestamp(_, Some(_))),
        DataType::Date32 => !clock,
        DataType::Time64(_) => clock || part == Part::Epoch,
        DataType::Interval(_) => clock || is_part_of_intervals(part),
        _ => true,
    };
    match there {
        true => Ok(part),
        false => Err(SqlError::statement("0A000", format!("unit \"{name}\" not supported for type {}", type_name()))),
    }
}

fn is_part_of_intervals(part: Part) -> bool {
    use Part as P;
    matches!(part, P::Year | P::Month | P::Day | P::Epoch | P::Quarter | P::Decade | P::Century | P::Millennium)
}

/// The parts in millionths. The field is usually the same in all rows.
fn parts(arrays: &[ArrayRef]) -> Result<Vec<Option<i128>>, SqlError> {
    let (fields, values) = (arrays[0].as_string::<i32>(), &arrays[1]);
    let kind = values.data_type();
    let mut last: Option<(&str, Part)> = None;
    (0..values.len())
        .map(|row| {
            if fields.is_null(row) || values.is_null(row) {
                return Ok(None);
            }
            let name = fields.value(row);
            let part = match last {
                Some((known, part)) if known == name => part,
                _ => part_of(&ScalarValue::from(name), kind)?,
            };
            last = Some((name, part));
            Ok(Some(match kind {
                DataType::Interval(_) => {
                    of_interval(part, values.as_primitive::<IntervalMonthDayNanoType>().value(row))
                }
                DataType::Time64(_) => of_clock(part, values.as_primitive::<Time64MicrosecondType>().value(row)),
                DataType::Date32 => {
                    of_timestamp(part, i64::from(values.as_primitive::<Date32Type>().value(row)) * DAY_US)?
                }
                _ => of_timestamp(part, values.as_primitive::<TimestampMicrosecondType>().value(row))?,
            }))
        })
        .collect()
}

/// The Julian day of 1970-01-01.
const JULIAN_1970: i32 = 2_440_588;

const MILLION: i128 = 1_000_000;

/// The part of a time of day, or of any number of microseconds.
fn of_clock(part: Part, us: i64) -> i128 {
    let seconds = us / SECOND_US;
    let part = match part {
        Part::Hour => seconds / 3600,
        Part::Minute => seconds / 60 % 60,
        Part::Second => return i128::from(us % (60 * SECOND_US)),
        Part::Milliseconds => return i128::from(us % (60 * SECOND_US)) * 1000,
        Part::Microseconds => us % (60 * SECOND_US),
        _ => return i128::from(us),
    };
    i128::from(part) * MILLION
}

fn of_interval(part: Part, span: IntervalMonthDayNano) -> i128 {
    let part = match part {
        Part::Year => span.months / 12,
        Part::Month => span.months % 12,
        Part::Quarter => span.months % 12 / 3 + 1,
        Part::Decade => span.months / 120,
        Part::Century => span.months / 1200,
        Part::Millennium => span.months / 12_000,
        Part::Day => span.days,
        Part::Epoch => {
            // A year has 365.25 days here, a month 30.
            let quarters = i128::from(span.months / 12) * 1461 + i128::from(span.months % 12) * 120;
            let days = quarters * i128::from(DAY_US) / 4 + i128::from(span.days) * i128::from(DAY_US);
            return days + i128::from(span.nanoseconds / 1000);
        }
        clock => return of_clock(clock, span.nanoseconds / 1000),
    };
    i128::from(part) * MILLION
}

fn of_timestamp(part: Part, us: i64) -> Result<i128, SqlError> {
    let time = DateTime::from_timestamp_micros(us).ok_or_else(out_of_range)?.naive_utc();
    // There is no year 0: the year before 1 is 1 BC, which is -1.
    let without_zero = |year: i32| if year > 0 { year } else { year - 1 };
    let grouped = |years: i32| match time.year() {
        year if year > 0 => (year + years - 1) / years,
        year => -((years - year) / years),
    };
    let part = match part {
        Part::Year => without_zero(time.year()),
        Part::IsoYear => without_zero(time.iso_week().year()),
        Part::Decade => time.year().div_euclid(10),
        Part::Century => grouped(100),
        Part::Millennium => grouped(1000),
        Part::Quarter => (time.month0() / 3 + 1) as i32,
        Part::Month => time.month() as i32,
        Part::Week => time.iso_week().week() as i32,
        Part::Day => time.day() as i32,
        Part::DayOfYear => time.ordinal() as i32,
        Part::DayOfWeek => time.weekday().num_days_from_sunday() as i32,
        Part::IsoDayOfWeek => time.weekday().number_from_monday() as i32,
        Part::Epoch => return Ok(i128::from(us)),
        Part::Zone => 0,
        Part::Julian => us.div_euclid(DAY_US) as i32 + JULIAN_1970,
        clock => {
            let since_midnight = i64::from(time.num_seconds_from_midnight()) * SECOND_US;
            return Ok(of_clock(clock, since_midnight + i64::from(time.nanosecond() / 1000)));
        }
    };
    Ok(i128::from(part) * MILLION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_before_the_first_are_counted_as_postgresql_counts_them() {
        // Results of PostgreSQL 15.18 for 1 BC, 100 BC and 101 BC, the first of January each.
        for (year, expected) in [(0, (-1, -1, -1, 0)), (-99, (-100, -1, -1, -10)), (-100, (-101, -2, -1, -10))] {
            let day = chrono::NaiveDate::from_ymd_opt(year, 1, 1).expect("it is a day");
            let us = day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros();
            let part = |part| (of_timestamp(part, us).expect("it is there") / MILLION) as i32;
            let found = (part(Part::Year), part(Part::Century), part(Part::Millennium), part(Part::Decade));
            assert_eq!(found, expected, "{year}");
        }
    }
}
