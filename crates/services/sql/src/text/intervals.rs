//! Intervals as text, as PostgreSQL reads them: numbers with units, a time, `ago`; `1-2` for years and months, `1 02:03:04` for a day and a
//! time, and ISO 8601's `P1Y2M3DT4H5M6S`. A part of a unit becomes smaller units: a month has 30 days, a day 24 hours.

use super::calendar::{DAY_US, SECOND_US, parse_hours};

/// What was read so far.
#[derive(Clone, Copy, Default)]
struct Sum {
    months: i64,
    days: i64,
    us: i64,
}

impl Sum {
    /// Adds a number of a unit that is `months`, `days` or `us` long; one of them is not zero.
    fn add(&mut self, number: &Number, months: i64, days: i64, us: i64) -> Option<()> {
        self.months = self.months.checked_add(number.whole.checked_mul(months)?)?;
        self.days = self.days.checked_add(number.whole.checked_mul(days)?)?;
        self.us = self.us.checked_add(number.whole.checked_mul(us)?)?;
        if number.part == 0.0 {
            return Some(());
        }
        // A part of a year is whole months, as PostgreSQL has it; a part of a month is days, of a day hours.
        let part_months = number.part * months as f64;
        let whole_months = if months > 1 { part_months.round_ties_even() } else { 0.0 };
        let part_days = number.part * days as f64 + if months == 1 { part_months * 30.0 } else { 0.0 };
        let whole_days = part_days.trunc();
        let rest = (part_days - whole_days) * DAY_US as f64 + number.part * us as f64;
        self.months = self.months.checked_add(whole_months as i64)?;
        self.days = self.days.checked_add(whole_days as i64)?;
        // A half is dropped, as PostgreSQL has it.
        let us = if rest.fract().abs() > 0.5 { rest.round() } else { rest.trunc() };
        self.us = self.us.checked_add(us as i64)?;
        Some(())
    }

    fn negated(self) -> Option<Sum> {
        let (months, days) = (self.months.checked_neg()?, self.days.checked_neg()?);
        Some(Sum { months, days, us: self.us.checked_neg()? })
    }
}

/// A number with the part behind its point.
struct Number {
    whole: i64,
    part: f64,
}

fn number(text: &str) -> Option<Number> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || whole.is_empty() && part.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()? };
    let part = if part.is_empty() { 0.0 } else { format!("0.{part}").parse::<f64>().ok()? };
    Some(Number { whole: sign * whole, part: sign as f64 * part })
}

/// Reads an interval. Returns months, days and microseconds.
pub(crate) fn parse_interval(text: &str) -> Option<(i32, i32, i64)> {
    let lower = text.trim().to_ascii_lowercase();
    let sum = match lower.strip_prefix('p') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_digit() || matches!(first, 't' | '-' | '+')) => {
            iso(rest)?
        }
        _ => words(&lower)?,
    };
    Some((i32::try_from(sum.months).ok()?, i32::try_from(sum.days).ok()?, sum.us))
}

fn words(lower: &str) -> Option<Sum> {
    let (mut sum, mut any) = (Sum::default(), false);
    let mut words = lower.strip_prefix('@').unwrap_or(lower).split_ascii_whitespace().peekable();
    words.peek()?;
    while let Some(word) = words.next() {
        if word == "ago" {
            return sum.negated().filter(|_| any && words.peek().is_none());
        }
        any = true;
        if word.contains(':') {
            let (sign, rest) = match word.strip_prefix('-') {
                Some(rest) => (-1, rest),
                None => (1, word.strip_prefix('+').unwrap_or(word)),
            };
            sum.us = sum.us.checked_add(sign * parse_hours(rest)?)?;
            continue;
        }
        let letters = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
        let (amount, unit) = word.split_at(letters);
        if unit.is_empty()
            && let Some((years, months)) = years_and_months(amount)
        {
            sum.months = sum.months.checked_add(years.checked_mul(12)?.checked_add(months)?)?;
            continue;
        }
        let unit = match (unit, words.peek()) {
            ("", Some(next)) if next.contains(':') => "day",
            ("", _) => words.next().unwrap_or("s"),
            (unit, _) => unit,
        };
        add_unit(&number(amount)?, unit, &mut sum)?;
    }
    Some(sum)
}

/// `1-2`, `-1-2`: years and months with one sign.
fn years_and_months(text: &str) -> Option<(i64, i64)> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (years, months) = digits.split_once('-')?;
    let (years, months) = (years.parse::<i64>().ok()?, months.parse::<i64>().ok()?);
    (0..12).contains(&months).then_some((sign * years, sign * months))
}

fn add_unit(number: &Number, unit: &str, sum: &mut Sum) -> Option<()> {
    let unit = if unit.len() > 2 { unit.strip_suffix('s').unwrap_or(unit) } else { unit };
    match unit {
        "millennium" | "millennia" | "mil" => sum.add(number, 12_000, 0, 0),
        "century" | "centurie" | "cent" | "c" => sum.add(number, 1200, 0, 0),
        "decade" | "dec" => sum.add(number, 120, 0, 0),
        "year" | "yr" | "y" => sum.add(number, 12, 0, 0),
        "month" | "mon" => sum.add(number, 1, 0, 0),
        "week" | "w" => sum.add(number, 0, 7, 0),
        "day" | "d" => sum.add(number, 0, 1, 0),
        "hour" | "hr" | "h" => sum.add(number, 0, 0, 3600 * SECOND_US),
        "minute" | "min" | "m" => sum.add(number, 0, 0, 60 * SECOND_US),
        "second" | "sec" | "s" => sum.add(number, 0, 0, SECOND_US),
        "millisecond" | "msec" | "ms" => sum.add(number, 0, 0, 1000),
        "microsecond" | "usec" | "us" => sum.add(number, 0, 0, 1),
        _ => None,
    }
}

/// ISO 8601 behind its `P`: numbers with a letter each, those of a time behind a `T`.
fn iso(text: &str) -> Option<Sum> {
    let (mut sum, mut rest, mut in_time, mut any) = (Sum::default(), text, false, false);
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('t').filter(|_| !in_time) {
            (in_time, rest) = (true, behind);
            continue;
        }
        let letter = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (amount, unit) = (number(&rest[..letter])?, rest.as_bytes()[letter]);
        let unit = match (unit, in_time) {
            (b'y', false) => "year",
            (b'm', false) => "month",
            (b'w', false) => "week",
            (b'd', false) => "day",
            (b'h', true) => "hour",
            (b'm', true) => "minute",
            (b's', true) => "second",
            _ => return None,
        };
        add_unit(&amount, unit, &mut sum)?;
        (any, rest) = (true, &rest[letter + 1..]);
    }
    any.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_postgresql_reads_them() {
        // Results of PostgreSQL 15.18.
        const HOUR: i64 = 3600 * SECOND_US;
        for (text, expected) in [
            ("1-2", (14, 0, 0)),
            ("P1Y2M3DT4H5M6S", (14, 3, 14_706 * SECOND_US)),
            ("1 day ago", (0, -1, 0)),
            ("-1 day +2 hours", (0, -1, 2 * HOUR)),
            ("1 02:03:04", (0, 1, 7384 * SECOND_US)),
            ("1.5 days", (0, 1, 12 * HOUR)),
            ("1.5 months", (1, 15, 0)),
            ("1.5 years", (18, 0, 0)),
            ("0.5 hours", (0, 0, HOUR / 2)),
            ("1.5 weeks", (0, 10, 12 * HOUR)),
            ("2h 30 min", (0, 0, 5 * HOUR / 2)),
            ("1 decade", (120, 0, 0)),
        ] {
            assert_eq!(parse_interval(text), Some(expected), "{text}");
        }
        for broken in ["", "P", "PT", "1 fortnight", "x", "1-13", "day", "ago", "-9223372036854775807 us -1 us ago"] {
            assert_eq!(parse_interval(broken), None, "{broken}");
        }
    }
}
