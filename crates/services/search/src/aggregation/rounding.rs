//! [`DateRounding`]: the buckets of a date histogram, as beginnings in milliseconds.
//!
//! Invariant: `floor(x) <= x < next(floor(x))`, and the beginnings of all buckets are those that `next` visits. Rounding that is
//! the same at every moment ([`DateRounding::Fixed`]) is left to the library; every other one is a list of boundaries.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::dates::CalendarUnit;
use crate::error::SearchError;

const DAY: i64 = 86_400_000;

/// How dates become buckets.
#[derive(Clone, Debug)]
pub(super) enum DateRounding {
    /// Buckets of the same length, from `offset` on.
    Fixed { interval: i64, offset: i64 },
    /// Units of a calendar in a time zone, moved by `offset`.
    Calendar { unit: CalendarUnit, zone: TimeZone, offset: i64 },
    /// Buckets of the same length by the clocks of a time zone that changes its offset.
    Clocks { interval: i64, zone: TimeZone, offset: i64 },
}

impl DateRounding {
    /// Buckets of `interval` milliseconds.
    pub(super) fn fixed(interval: i64, zone: TimeZone, offset: i64) -> DateRounding {
        match zone.to_fixed_offset() {
            Ok(fixed) => DateRounding::Fixed { interval, offset: offset - i64::from(fixed.seconds()) * 1000 },
            Err(_) => DateRounding::Clocks { interval, zone, offset },
        }
    }

    /// Buckets of one unit of the calendar.
    pub(super) fn calendar(unit: CalendarUnit, zone: TimeZone, offset: i64) -> DateRounding {
        // The first Monday of 1970 is the fifth day.
        let (interval, origin) = match unit {
            CalendarUnit::Second => (1000, 0),
            CalendarUnit::Minute => (60_000, 0),
            CalendarUnit::Hour => (3_600_000, 0),
            CalendarUnit::Day => (DAY, 0),
            CalendarUnit::Week => (7 * DAY, 4 * DAY),
            _ => return DateRounding::Calendar { unit, zone, offset },
        };
        match zone.to_fixed_offset() {
            Ok(_) => DateRounding::fixed(interval, zone, offset + origin),
            Err(_) => DateRounding::Calendar { unit, zone, offset },
        }
    }

    /// The beginning of the bucket of a date.
    pub(super) fn floor(&self, millis: i64) -> Option<i64> {
        match self {
            DateRounding::Fixed { interval, offset } => {
                millis.checked_sub(*offset)?.div_euclid(*interval).checked_mul(*interval)?.checked_add(*offset)
            }
            DateRounding::Calendar { unit, zone, offset } => {
                unit.floor(millis.checked_sub(*offset)?, zone)?.checked_add(*offset)
            }
            DateRounding::Clocks { interval, zone, offset } => {
                let local = clock(millis.checked_sub(*offset)?, zone)?;
                let floor = instant(local.div_euclid(*interval).checked_mul(*interval)?, zone)?;
                floor.checked_add(*offset)
            }
        }
    }

    /// The beginning of the bucket after the one that begins at `floor`.
    pub(super) fn next(&self, floor: i64) -> Option<i64> {
        match self {
            DateRounding::Fixed { interval, .. } => floor.checked_add(*interval),
            DateRounding::Calendar { unit, zone, offset } => {
                unit.next(floor.checked_sub(*offset)?, zone)?.checked_add(*offset)
            }
            DateRounding::Clocks { interval, zone, offset } => {
                // An hour that the clocks leave out has no bucket: the next one that is later is the next one.
                let mut local = clock(floor.checked_sub(*offset)?, zone)?;
                for _ in 0..10_000 {
                    local = local.checked_add(*interval)?;
                    let next = instant(local, zone)?.checked_add(*offset)?;
                    if next > floor {
                        return Some(next);
                    }
                }
                None
            }
        }
    }

    /// The beginnings of the buckets of the dates `from..=to`, and of the one after them. Errors: more than `max`.
    pub(super) fn boundaries(&self, from: i64, to: i64, max: u32) -> Result<Vec<i64>, SearchError> {
        let outside = || SearchError::argument("a date is outside of the years that a date histogram can have");
        let mut at = self.floor(from).ok_or_else(outside)?;
        let mut all = vec![at];
        while at <= to {
            at = self.next(at).ok_or_else(outside)?;
            all.push(at);
            if all.len() > max as usize + 1 {
                return Err(super::too_many_buckets(max));
            }
        }
        Ok(all)
    }
}

/// What the clocks of a zone show, as milliseconds since what they showed in 1970.
fn clock(millis: i64, zone: &TimeZone) -> Option<i64> {
    let at = Timestamp::from_millisecond(millis).ok()?;
    millis.checked_add(i64::from(zone.to_offset(at).seconds()) * 1000)
}

/// When the clocks of a zone show that.
fn instant(local: i64, zone: &TimeZone) -> Option<i64> {
    let civil = Timestamp::from_millisecond(local).ok()?.to_zoned(TimeZone::UTC).datetime();
    Some(civil.checked_add(0.seconds()).ok()?.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond())
}

/// Milliseconds of `1d`, `90m`, `+6h`, `-1d`. Errors: another unit, no number.
pub(super) fn interval_millis(text: &str, what: &str) -> Result<i64, SearchError> {
    let failed = || {
        SearchError::argument(format!(
            "failed to parse setting [{what}] with value [{text}] as a time value: unit is missing or unrecognized"
        ))
    };
    let (sign, rest) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let number: i64 = rest[..end].parse().map_err(|_| failed())?;
    let unit = match rest[end..].trim() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => DAY,
        _ => return Err(failed()),
    };
    // Above a century the library's nanoseconds do not fit.
    number.checked_mul(unit).filter(|millis| *millis <= 36_600 * DAY).map(|millis| sign * millis).ok_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dates;

    #[test]
    fn every_date_lies_in_the_bucket_that_floor_and_next_name() {
        // Rules instead of names: a machine need not have a database of time zones.
        let rules = ["CET-1CEST,M3.5.0,M10.5.0/3", "EST5EDT,M3.2.0,M11.1.0"];
        let rules = rules.map(|rule| TimeZone::posix(rule).expect(rule));
        for zone in ["UTC", "+05:30"].map(|name| dates::zone(name).expect(name)).into_iter().chain(rules) {
            for rounding in [
                DateRounding::fixed(3 * 3_600_000, zone.clone(), 0),
                DateRounding::fixed(DAY, zone.clone(), 6 * 3_600_000),
                DateRounding::calendar(CalendarUnit::Week, zone.clone(), 0),
                DateRounding::calendar(CalendarUnit::Month, zone.clone(), -DAY),
                DateRounding::calendar(CalendarUnit::Day, zone.clone(), 0),
            ] {
                // From 2024-03-01 on, an hour and a bit at a time: over the change of the clocks.
                for step in 0..24 * 60 {
                    let at = 1_709_251_200_000 + step * 3_700_001;
                    let floor = rounding.floor(at).expect("a date");
                    let next = rounding.next(floor).expect("a date");
                    assert!(floor <= at && at < next, "{floor} {at} {next} {rounding:?}");
                    assert_eq!(rounding.floor(next), Some(next), "{rounding:?}");
                }
            }
        }
    }

    #[test]
    fn a_week_begins_on_monday() {
        let rounding = DateRounding::calendar(CalendarUnit::Week, TimeZone::UTC, 0);
        assert!(matches!(rounding, DateRounding::Fixed { .. }));
        assert_eq!(rounding.floor(1_704_326_400_000), Some(1_704_067_200_000)); // Thursday 2024-01-04
    }
}
