//! [`DateRounding`]: the buckets of a date histogram, as beginnings in milliseconds.
//!
//! Invariant: `floor(x) <= x < next(floor(x))`, and the beginnings of all buckets are those that `next` visits. Rounding that is
//! the same at every moment ([`DateRounding::Fixed`]) is left to the library; every other one is a list of boundaries.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use crate::dates::{self, CalendarUnit};
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
                dates::clock_floor(millis.checked_sub(*offset)?, zone, *interval)?.checked_add(*offset)
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
                dates::clock_next(floor.checked_sub(*offset)?, zone, *interval)?.checked_add(*offset)
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

    /// The parts of a bucket that dates are first counted in, in milliseconds: no longer than a bucket, up to an hour's change of clocks.
    pub(super) fn length(&self) -> i64 {
        match self {
            DateRounding::Fixed { interval, .. } | DateRounding::Clocks { interval, .. } => *interval,
            DateRounding::Calendar { unit, .. } => match unit {
                CalendarUnit::Second => 1_000,
                CalendarUnit::Minute => 60_000,
                CalendarUnit::Hour => 3_600_000,
                _ => DAY,
            },
        }
    }

    /// The buckets that touch one of the parts which begin at these dates, each with its end, in order. Errors: far more than `max`.
    pub(super) fn near(&self, parts: impl Iterator<Item = i64>, max: u32) -> Result<Vec<(i64, i64)>, SearchError> {
        let outside = || SearchError::argument("a date is outside of the years that a date histogram can have");
        let length = self.length();
        let mut all = BTreeMap::new();
        for part in parts {
            let mut at = self.floor(part).ok_or_else(outside)?;
            while at < part.saturating_add(length) {
                let next = self.next(at).ok_or_else(outside)?;
                all.insert(at, next);
                at = next;
            }
            // A part touches two buckets, or three where clocks are set; which of them are empty is seen later.
            if all.len() > (max as usize).saturating_mul(3) {
                return Err(super::too_many_buckets(max));
            }
        }
        Ok(all.into_iter().collect())
    }
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

    #[test]
    fn every_date_lies_in_the_bucket_that_floor_and_next_name() {
        // Rules instead of names: a machine need not have a database of time zones.
        // The third sets its clocks at midnight, the fourth by half an hour.
        let rules = [
            "CET-1CEST,M3.5.0,M10.5.0/3",
            "EST5EDT,M3.2.0,M11.1.0",
            "<-03>3<-02>,M4.1.0/0,M10.1.0/0",
            "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
        ];
        let rules = rules.map(|rule| TimeZone::posix(rule).expect(rule));
        for zone in ["UTC", "+05:30"].map(|name| dates::zone(name).expect(name)).into_iter().chain(rules) {
            for rounding in [
                DateRounding::fixed(3 * 3_600_000, zone.clone(), 0),
                DateRounding::fixed(3_600_000, zone.clone(), 0),
                DateRounding::fixed(50 * 60_000, zone.clone(), 0),
                DateRounding::calendar(CalendarUnit::Hour, zone.clone(), 0),
                DateRounding::fixed(DAY, zone.clone(), 6 * 3_600_000),
                DateRounding::calendar(CalendarUnit::Week, zone.clone(), 0),
                DateRounding::calendar(CalendarUnit::Month, zone.clone(), -DAY),
                DateRounding::calendar(CalendarUnit::Day, zone.clone(), 0),
            ] {
                // From 2024-03-01 on, an hour and a bit at a time: over both changes of the clocks.
                for step in 0..24 * 260 {
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
    fn an_hour_that_clocks_show_twice_is_two_buckets() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule");
        const FIRST: i64 = 1_729_987_200_000; // 2024-10-27T00:00Z, 02:00 for the first time
        for rounding in [
            DateRounding::fixed(3_600_000, zone.clone(), 0),
            DateRounding::calendar(CalendarUnit::Hour, zone.clone(), 0),
        ] {
            for (minutes, begins) in [(30, 0), (90, 60), (119, 60), (120, 120)] {
                let floor = rounding.floor(FIRST + minutes * 60_000);
                assert_eq!(floor, Some(FIRST + begins * 60_000), "{minutes} minutes later: {rounding:?}");
            }
        }
        // Three hours from midnight on: the second 02:00 belongs to them.
        let three = DateRounding::fixed(3 * 3_600_000, zone, 0);
        assert_eq!(three.floor(FIRST + 90 * 60_000), Some(FIRST - 2 * 3_600_000));
        assert_eq!(three.next(FIRST - 2 * 3_600_000), Some(FIRST + 2 * 3_600_000));
    }

    #[test]
    fn a_week_begins_on_monday() {
        let rounding = DateRounding::calendar(CalendarUnit::Week, TimeZone::UTC, 0);
        assert!(matches!(rounding, DateRounding::Fixed { .. }));
        assert_eq!(rounding.floor(1_704_326_400_000), Some(1_704_067_200_000)); // Thursday 2024-01-04
    }
}
