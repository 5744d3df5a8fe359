//! Dates and times as text, as PostgreSQL writes and reads them with DateStyle ISO; intervals are read by
//! [`intervals`](super::intervals). The calendar is
//! chrono's: the Gregorian one, also for all earlier and later dates.

use std::fmt::Write;

use bytes::BytesMut;
use chrono::{Datelike, Days, NaiveDate};

/// Microseconds of a day.
pub(crate) const DAY_US: i64 = 86_400_000_000;

/// Microseconds of a second.
pub(crate) const SECOND_US: i64 = 1_000_000;

/// Days from 1970-01-01, Arrow's first, to 2000-01-01, PostgreSQL's.
pub(crate) const EPOCH_DAYS: i32 = 10_957;

/// Days of 400 years, after which the calendar repeats itself.
const ERA_DAYS: i64 = 146_097;

/// The days that PostgreSQL has: 4714-11-24 BC to 5874897-12-31.
pub(crate) const DAYS: std::ops::RangeInclusive<i64> = -2_440_588..=2_145_042_905;

/// The day with this number, counted from 0 for 1970-01-01, as year (0 is 1 BC), month and day.
pub(crate) fn civil(days: i64) -> (i64, u32, u32) {
    // chrono's years end at 262,142 and PostgreSQL's at 5,874,897. So chrono computes the same day of the first 400
    // years.
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let date = NaiveDate::default() + Days::new(of_era as u64);
    (i64::from(date.year()) + era * 400, date.month(), date.day())
}

/// The number of a day; `None` if there is no such day.
pub(crate) fn days(year: i64, month: u32, day: u32) -> Option<i64> {
    if year.abs() > 6_000_000 {
        return None;
    }
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let date = NaiveDate::from_ymd_opt(of_era as i32, month, day)?;
    Some((date - NaiveDate::default()).num_days() + era * ERA_DAYS).filter(|number| DAYS.contains(number))
}

/// How many days a month has.
pub(crate) fn days_of_month(year: i64, month: u32) -> u32 {
    (29..=31).rev().find(|day| days(year, month, *day).is_some()).unwrap_or(28)
}

/// Writes a day.
pub(crate) fn write_date(out: &mut BytesMut, number: i64) {
    let (year, month, day) = civil(number);
    let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    // Writing to memory cannot fail.
    let _ = write!(out, "{shown:04}-{month:02}-{day:02}{era}");
}

/// Writes a time of day, in microseconds.
pub(crate) fn write_time(out: &mut BytesMut, us: i64) {
    let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    write_fraction(out, fraction);
}

/// Writes microseconds behind a point, without trailing zeros.
fn write_fraction(out: &mut BytesMut, us: i64) {
    if us != 0 {
        let digits = format!(".{us:06}");
        let _ = write!(out, "{}", digits.trim_end_matches('0'));
    }
}

/// Writes a timestamp, in microseconds since 1970; with the zone `+00` if it has one, because such timestamps are
/// written in UTC.
pub(crate) fn write_timestamp(out: &mut BytesMut, us: i64, zoned: bool) {
    let (number, time) = (us.div_euclid(DAY_US), us.rem_euclid(DAY_US));
    let (year, month, day) = civil(number);
    let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    let _ = write!(out, "{shown:04}-{month:02}-{day:02} ");
    write_time(out, time);
    out.extend_from_slice(if zoned { b"+00" } else { b"" });
    out.extend_from_slice(era.as_bytes());
}

/// Writes an interval in IntervalStyle `postgres`.
pub(crate) fn write_interval(out: &mut BytesMut, months: i32, days: i32, us: i64) {
    let start = out.len();
    // A part after a negative one shows its sign.
    let mut negative_before = false;
    let mut part = |out: &mut BytesMut, count: i64, name: &str| {
        if count != 0 {
            let blank = if out.len() > start { " " } else { "" };
            let plus = if negative_before && count > 0 { "+" } else { "" };
            let plural = if count == 1 { "" } else { "s" };
            let _ = write!(out, "{blank}{plus}{count} {name}{plural}");
            negative_before = count < 0;
        }
    };
    part(out, i64::from(months / 12), "year");
    part(out, i64::from(months % 12), "mon");
    part(out, i64::from(days), "day");
    if us != 0 || out.len() == start {
        let sign = if us < 0 {
            "-"
        } else if negative_before {
            "+"
        } else {
            ""
        };
        let blank = if out.len() > start { " " } else { "" };
        let us = us.unsigned_abs();
        let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
        let _ = write!(out, "{blank}{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        write_fraction(out, fraction as i64);
    }
}

/// A scanner over a text.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    /// Reads at least `least` and at most `most` digits.
    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let count = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if count < least {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    }

    fn takes(&mut self, wanted: impl Fn(u8) -> bool) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        wanted(*first).then(|| {
            self.0 = rest;
            *first
        })
    }

    fn blanks(&mut self) -> usize {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.0 = &self.0[count..];
        count
    }

    /// Reads `YYYY-MM-DD` without an era.
    fn date(&mut self) -> Option<(i64, u32, u32)> {
        let year = self.digits(4, 7)?;
        self.takes(|byte| byte == b'-')?;
        let month = self.digits(1, 2)? as u32;
        self.takes(|byte| byte == b'-')?;
        Some((year, month, self.digits(1, 2)? as u32))
    }

    /// Reads `HH:MM[:SS[.ffffff]]` in microseconds; further digits are rounded.
    fn time(&mut self) -> Option<i64> {
        let hour = self.digits(1, 2)?;
        self.takes(|byte| byte == b':')?;
        let minute = self.digits(2, 2)?;
        let (mut second, mut us) = (0, 0);
        if self.takes(|byte| byte == b':').is_some() {
            second = self.digits(2, 2)?;
            if self.takes(|byte| byte == b'.' || byte == b',').is_some() {
                us = self.fraction();
            }
        }
        let whole = hour * 3600 + minute * 60 + second;
        (minute < 60 && second <= 60 && whole * 1_000_000 + us <= DAY_US).then_some(whole * 1_000_000 + us)
    }

    fn fraction(&mut self) -> i64 {
        let (mut us, mut unit) = (0, 100_000);
        while let Some(digit) = self.takes(|byte| byte.is_ascii_digit()) {
            us += i64::from(digit - b'0') * unit;
            if unit == 0 && digit >= b'5' {
                us += 1;
                while self.takes(|byte| byte.is_ascii_digit()).is_some() {}
                break;
            }
            if unit == 0 {
                while self.takes(|byte| byte.is_ascii_digit()).is_some() {}
                break;
            }
            unit /= 10;
        }
        us
    }

    /// Reads a zone as seconds east of Greenwich: `Z`, `UTC`, `+HH[[:]MM[[:]SS]]`. Returns `None` if there is none,
    /// which callers treat as an error.
    fn zone(&mut self) -> Option<i64> {
        for name in [&b"utc"[..], b"gmt", b"z"] {
            if self.0.len() >= name.len() && self.0[..name.len()].eq_ignore_ascii_case(name) {
                self.0 = &self.0[name.len()..];
                return Some(0);
            }
        }
        let sign = if self.takes(|byte| byte == b'+' || byte == b'-')? == b'-' { -1 } else { 1 };
        let mut seconds = self.digits(1, 2)? * 3600;
        for unit in [60, 1] {
            let colon = self.takes(|byte| byte == b':').is_some();
            match self.digits(2, 2) {
                Some(count) if count < 60 => seconds += count * unit,
                None if !colon => break,
                _ => return None,
            }
        }
        (seconds <= 16 * 3600).then_some(sign * seconds)
    }

    /// Reads ` BC`, ` AD` or nothing, and returns the year.
    fn era(&mut self, year: i64) -> Option<i64> {
        self.blanks();
        match self.0 {
            [a, b, rest @ ..] if [*a, *b].eq_ignore_ascii_case(b"bc") => {
                self.0 = rest;
                (year > 0).then_some(1 - year)
            }
            [a, b, rest @ ..] if [*a, *b].eq_ignore_ascii_case(b"ad") => {
                self.0 = rest;
                Some(year)
            }
            _ => (year > 0).then_some(year),
        }
    }
}

/// Reads a date; a time or a zone behind it is checked and ignored, as PostgreSQL does.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    i32::try_from(parse_moment(text)?.day).ok()
}

/// Reads a time of day.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let mut scan = Scan(text.trim().as_bytes());
    let us = scan.time()?;
    scan.0.is_empty().then_some(us)
}

/// Reads a timestamp without a zone; a zone is checked and ignored.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    parse_moment(text)?.us()
}

/// Reads a timestamp with time zone; without a zone it is UTC.
pub(crate) fn parse_timestamptz(text: &str) -> Option<i64> {
    let moment = parse_moment(text)?;
    moment.us()?.checked_sub(moment.zone.unwrap_or(0) * 1_000_000)
}

/// A timestamp as it was written.
struct Moment {
    /// The number of its day: there are days whose microseconds do not fit in 64 bits.
    day: i64,
    /// Microseconds of the day.
    time: i64,
    /// Seconds east of Greenwich, if a zone was written.
    zone: Option<i64>,
}

impl Moment {
    /// Microseconds since 1970, in the zone of the text.
    fn us(&self) -> Option<i64> {
        self.day.checked_mul(DAY_US)?.checked_add(self.time)
    }
}

fn parse_moment(text: &str) -> Option<Moment> {
    let mut scan = Scan(text.trim().as_bytes());
    let (year, month, day) = scan.date()?;
    let (mut time, mut zone) = (0, None);
    let separated = scan.takes(|byte| byte == b'T' || byte == b't').is_some() || scan.blanks() > 0;
    if separated && scan.0.first().is_some_and(u8::is_ascii_digit) {
        time = scan.time()?;
        scan.blanks();
    }
    if scan.0.first().is_some_and(|byte| b"+-ZzUuGg".contains(byte)) {
        zone = Some(scan.zone()?);
    }
    let year = scan.era(year)?;
    scan.blanks();
    if !scan.0.is_empty() {
        return None;
    }
    Some(Moment { day: days(year, month, day)?, time, zone })
}

/// Reads hours (also 24 or more), minutes and seconds.
pub(super) fn parse_hours(text: &str) -> Option<i64> {
    let mut scan = Scan(text.as_bytes());
    let hours = scan.digits(1, 9)?;
    scan.takes(|byte| byte == b':')?;
    let minutes = scan.digits(2, 2)?;
    let (mut seconds, mut us) = (0, 0);
    if scan.takes(|byte| byte == b':').is_some() {
        seconds = scan.digits(2, 2)?;
        if scan.takes(|byte| byte == b'.').is_some() {
            us = scan.fraction();
        }
    }
    (scan.0.is_empty() && minutes < 60 && seconds < 60)
        .then_some((hours * 3600 + minutes * 60 + seconds) * 1_000_000 + us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::intervals::parse_interval;

    fn written(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).expect("it is text")
    }

    #[test]
    fn every_day_of_two_thousand_years_leads_back_to_itself() {
        let mut before = civil(-720_000);
        for number in -719_999..20_000 {
            let (year, month, day) = civil(number);
            assert!((year, month, day) > before, "days follow each other");
            assert_eq!(days(year, month, day), Some(number));
            before = (year, month, day);
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(i64::from(EPOCH_DAYS)), (2000, 1, 1));
        assert_eq!(days(2023, 2, 29), None);
        assert_eq!(days(1900, 2, 29), None);
        assert_eq!(days(2000, 2, 29), Some(11_016));
        // The first day and the last one that PostgreSQL has.
        assert_eq!((days(-4713, 11, 24), days(5_874_897, 12, 31)), (Some(*DAYS.start()), Some(*DAYS.end())));
        assert_eq!((days(-4713, 11, 23), days(5_874_898, 1, 1)), (None, None));
    }

    #[test]
    fn moments_read_as_they_are_written() {
        for text in
            ["2024-02-29 23:59:59.999999", "0001-01-01 00:00:00", "0044-03-15 12:00:00 BC", "1969-12-31 23:00:00.5"]
        {
            let us = parse_timestamp(text).expect(text);
            assert_eq!(written(|out| write_timestamp(out, us, false)), text);
        }
        assert_eq!(parse_timestamptz("2024-01-01T00:00:00Z"), parse_timestamptz("2024-01-01 02:30+02:30"));
        assert_eq!(parse_timestamptz("2024-01-01 00:00:00-0130"), parse_timestamptz("2024-01-01 01:30 UTC"));
        assert_eq!(parse_timestamp("2024-01-01 00:00+05"), parse_timestamp("2024-01-01"), "the zone is left out");
        assert_eq!(parse_date("2024-01-31"), Some(19_753));
        for broken in
            ["", "2024", "2024-13-01", "2024-02-30", "2024-01-01 25:00", "2024-01-01 x", "24-01-01", "0000-01-01"]
        {
            assert_eq!(parse_timestamp(broken), None, "{broken}");
        }
    }

    #[test]
    fn spans_are_written_as_postgresql_does() {
        // Outputs of PostgreSQL 15 with IntervalStyle postgres.
        let examples = [
            ((0, 0, 0), "00:00:00"),
            ((14, 3, 14_706_000_000), "1 year 2 mons 3 days 04:05:06"),
            ((-1, 0, 0), "-1 mons"),
            ((0, -1, 7_200_000_000), "-1 days +02:00:00"),
            ((12, -1, -1_500_000), "1 year -1 days -00:00:01.5"),
        ];
        for ((months, days, us), text) in examples {
            assert_eq!(written(|out| write_interval(out, months, days, us)), text);
            assert_eq!(parse_interval(text), Some((months, days, us)), "{text}");
        }
        assert_eq!(parse_interval("1.5 seconds ago"), Some((0, 0, -1_500_000)));
        assert_eq!(parse_interval("2h 30 min"), Some((0, 0, 9_000_000_000)));
        for broken in ["", "1 fortnight", "x", "ago 1 day"] {
            assert_eq!(parse_interval(broken), None, "{broken}");
        }
    }
}
