//! Templates of dates, times and intervals.

use crate::SqlError;
use crate::text::calendar::{DAY_US, civil, days};

/// The longest template.
const LENGTH_MAX: usize = 1024;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

pub(super) fn out_of_range() -> SqlError {
    SqlError::value("22008", "date/time field value out of range")
}

/// How letters are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Upper,
    Lower,
    Title,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    /// The last digits of the year, of the ISO year; with a comma behind the thousands.
    Year(usize),
    IsoYear(usize),
    YearWithComma,
    Era(Case, bool),
    MonthName(Case),
    MonthShort(Case),
    Month,
    MonthRoman(Case),
    DayName(Case),
    DayShort(Case),
    DayOfYear,
    IsoDayOfYear,
    Day,
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Julian,
    Quarter,
    Hour24,
    Hour12,
    Minute,
    Second,
    Milliseconds,
    Microseconds,
    SecondsOfDay,
    Noon(Case, bool),
    Zone(Case),
    ZoneHours,
    ZoneMinutes,
    Offset,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Field { field: Field, is_tight: bool, ordinal: Option<Case> },
    Plain(char),
}

/// The names of fields, longer ones before their beginnings.
const FIELDS: &[(&str, Field)] = &[
    ("A.D.", Field::Era(Case::Upper, true)),
    ("a.d.", Field::Era(Case::Lower, true)),
    ("B.C.", Field::Era(Case::Upper, true)),
    ("b.c.", Field::Era(Case::Lower, true)),
    ("A.M.", Field::Noon(Case::Upper, true)),
    ("a.m.", Field::Noon(Case::Lower, true)),
    ("P.M.", Field::Noon(Case::Upper, true)),
    ("p.m.", Field::Noon(Case::Lower, true)),
    ("AD", Field::Era(Case::Upper, false)),
    ("ad", Field::Era(Case::Lower, false)),
    ("BC", Field::Era(Case::Upper, false)),
    ("bc", Field::Era(Case::Lower, false)),
    ("AM", Field::Noon(Case::Upper, false)),
    ("am", Field::Noon(Case::Lower, false)),
    ("PM", Field::Noon(Case::Upper, false)),
    ("pm", Field::Noon(Case::Lower, false)),
    ("Y,YYY", Field::YearWithComma),
    ("y,yyy", Field::YearWithComma),
    ("MONTH", Field::MonthName(Case::Upper)),
    ("Month", Field::MonthName(Case::Title)),
    ("month", Field::MonthName(Case::Lower)),
    ("MON", Field::MonthShort(Case::Upper)),
    ("Mon", Field::MonthShort(Case::Title)),
    ("mon", Field::MonthShort(Case::Lower)),
    ("RM", Field::MonthRoman(Case::Upper)),
    ("rm", Field::MonthRoman(Case::Lower)),
    ("DAY", Field::DayName(Case::Upper)),
    ("Day", Field::DayName(Case::Title)),
    ("day", Field::DayName(Case::Lower)),
    ("DY", Field::DayShort(Case::Upper)),
    ("Dy", Field::DayShort(Case::Title)),
    ("dy", Field::DayShort(Case::Lower)),
    ("TZH", Field::ZoneHours),
    ("tzh", Field::ZoneHours),
    ("TZM", Field::ZoneMinutes),
    ("tzm", Field::ZoneMinutes),
    ("TZ", Field::Zone(Case::Upper)),
    ("tz", Field::Zone(Case::Lower)),
    ("OF", Field::Offset),
    ("of", Field::Offset),
    ("IYYY", Field::IsoYear(4)),
    ("iyyy", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("iyy", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("iy", Field::IsoYear(2)),
    ("IDDD", Field::IsoDayOfYear),
    ("iddd", Field::IsoDayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("id", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("iw", Field::IsoWeek),
    ("I", Field::IsoYear(1)),
    ("i", Field::IsoYear(1)),
    ("YYYY", Field::Year(4)),
    ("yyyy", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("yyy", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("yy", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("y", Field::Year(1)),
    ("MM", Field::Month),
    ("mm", Field::Month),
    ("DDD", Field::DayOfYear),
    ("ddd", Field::DayOfYear),
    ("DD", Field::Day),
    ("dd", Field::Day),
    ("D", Field::DayOfWeek),
    ("d", Field::DayOfWeek),
    ("WW", Field::WeekOfYear),
    ("ww", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("w", Field::WeekOfMonth),
    ("CC", Field::Century),
    ("cc", Field::Century),
    ("J", Field::Julian),
    ("j", Field::Julian),
    ("Q", Field::Quarter),
    ("q", Field::Quarter),
    ("HH24", Field::Hour24),
    ("hh24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("hh12", Field::Hour12),
    ("HH", Field::Hour12),
    ("hh", Field::Hour12),
    ("MI", Field::Minute),
    ("mi", Field::Minute),
    ("SSSSS", Field::SecondsOfDay),
    ("sssss", Field::SecondsOfDay),
    ("SSSS", Field::SecondsOfDay),
    ("ssss", Field::SecondsOfDay),
    ("SS", Field::Second),
    ("ss", Field::Second),
    ("MS", Field::Milliseconds),
    ("ms", Field::Milliseconds),
    ("US", Field::Microseconds),
    ("us", Field::Microseconds),
];

/// A template.
#[derive(Debug)]
pub(super) struct Template {
    parts: Vec<Part>,
}

impl Template {
    pub(super) fn new(text: &str) -> Result<Template, SqlError> {
        if text.len() > LENGTH_MAX {
            return Err(SqlError::value("22023", "the template of a date is too long"));
        }
        let (mut parts, mut rest, mut is_tight) = (Vec::new(), text, false);
        while let Some(letter) = rest.chars().next() {
            if let Some(behind) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
                (is_tight, rest) = (true, behind);
                continue;
            }
            for other in ["TM", "tm", "FX", "fx", "FF"] {
                if rest.starts_with(other) && !rest.starts_with("tmz") {
                    return Err(SqlError::unsupported(format!("\"{other}\" in a template of a date")));
                }
            }
            if let Some((name, field)) = FIELDS.iter().find(|(name, _)| rest.starts_with(name)) {
                rest = &rest[name.len()..];
                let ordinal =
                    [("TH", Case::Upper), ("th", Case::Lower)].into_iter().find(|(th, _)| rest.starts_with(th));
                rest = if ordinal.is_some() { &rest[2..] } else { rest };
                parts.push(Part::Field { field: *field, is_tight, ordinal: ordinal.map(|(_, case)| case) });
                is_tight = false;
                continue;
            }
            rest = &rest[letter.len_utf8()..];
            match letter {
                '"' => {
                    let (plain, behind) = rest.split_once('"').unwrap_or((rest, ""));
                    parts.extend(plain.chars().map(Part::Plain));
                    rest = behind;
                }
                '\\' if rest.starts_with('"') => {
                    parts.push(Part::Plain('"'));
                    rest = &rest[1..];
                }
                other => parts.push(Part::Plain(other)),
            }
        }
        Ok(Template { parts })
    }

    /// Writes a timestamp or an interval.
    pub(super) fn write(&self, value: &Parts) -> Result<String, SqlError> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Plain(letter) => out.push(*letter),
                Part::Field { field, is_tight, ordinal } => {
                    let text = value.field(*field, *is_tight)?;
                    out.push_str(&text);
                    if let Some(case) = ordinal {
                        out.push_str(&cased(ordinal_of(&text), *case));
                    }
                }
            }
        }
        Ok(out)
    }

    /// Reads a timestamp, as microseconds since 1970.
    pub(super) fn read(&self, text: &str) -> Result<i64, SqlError> {
        let mut read = Reading { rest: text, ..Reading::default() };
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                Part::Plain(letter) if letter.is_alphanumeric() => {
                    read.rest = read.rest.strip_prefix(*letter).unwrap_or_else(|| {
                        let first = read.rest.chars().next().map_or(0, char::len_utf8);
                        &read.rest[first..]
                    });
                }
                Part::Plain(letter) => read.separator(*letter),
                Part::Field { field, is_tight, .. } => {
                    let next_is_digits = matches!(self.parts.get(at + 1), Some(Part::Field { .. }));
                    read.field(*field, *is_tight || !next_is_digits)?;
                }
            }
        }
        read.moment()
    }
}

/// The parts of a timestamp or an interval.
#[derive(Debug)]
pub(super) struct Parts {
    year: i64,
    month: u32,
    day: i64,
    /// The number of the day; `None` for an interval.
    number: Option<i64>,
    us: i64,
    is_zoned: bool,
}

impl Parts {
    pub(super) fn of_moment(us: i64, is_zoned: bool) -> Parts {
        let number = us.div_euclid(DAY_US);
        let (year, month, day) = civil(number);
        Parts { year, month, day: i64::from(day), number: Some(number), us: us.rem_euclid(DAY_US), is_zoned }
    }

    pub(super) fn of_span(span: super::super::rows::Span) -> Parts {
        let (years, months) = (span.months / 12, span.months % 12);
        Parts {
            year: i64::from(years),
            month: months.unsigned_abs(),
            day: i64::from(span.days),
            number: None,
            us: span.us,
            is_zoned: false,
        }
    }

    /// The number of the day. Errors: 22007 for an interval.
    fn number(&self) -> Result<i64, SqlError> {
        self.number.ok_or_else(|| {
            SqlError::value("22007", "invalid format specification for an interval value")
                .with_hint("Intervals are not tied to specific calendar dates.")
        })
    }

    /// Sunday is 0.
    fn weekday(&self) -> Result<usize, SqlError> {
        Ok((self.number()? + 4).rem_euclid(7) as usize)
    }

    fn day_of_year(&self) -> Result<i64, SqlError> {
        let first = days(self.year, 1, 1).ok_or_else(out_of_range)?;
        Ok(self.number()? - first + 1)
    }

    /// The ISO year, the week of it, and the day of that year, from 1.
    fn iso(&self) -> Result<(i64, i64, i64), SqlError> {
        let number = self.number()?;
        // The week belongs to the year of its Thursday.
        let monday = number - (number + 3).rem_euclid(7);
        let (year, _, _) = civil(monday + 3);
        let january4 = days(year, 1, 4).ok_or_else(out_of_range)?;
        let first = january4 - (january4 + 3).rem_euclid(7);
        Ok((year, (monday - first) / 7 + 1, number - first + 1))
    }

    fn field(&self, field: Field, is_tight: bool) -> Result<String, SqlError> {
        let number = |value: i64, width: usize| match (is_tight, value < 0) {
            (true, _) => value.to_string(),
            (false, true) => format!("-{:0width$}", value.unsigned_abs()),
            (false, false) => format!("{value:0width$}"),
        };
        let name = |name: &str, width: usize, case| match is_tight {
            true => cased(name, case),
            false => format!("{:width$}", cased(name, case)),
        };
        let shown_year = |year: i64| if self.number.is_some() && year <= 0 { 1 - year } else { year };
        let last = |year: i64, digits: usize| match digits {
            4 => number(shown_year(year), 4),
            _ => number(shown_year(year).rem_euclid(10i64.pow(digits as u32)), digits),
        };
        let seconds = self.us / 1_000_000;
        Ok(match field {
            Field::Year(digits) => last(self.year, digits),
            Field::IsoYear(digits) => last(self.iso()?.0, digits),
            Field::YearWithComma => format!("{},{:03}", shown_year(self.year) / 1000, shown_year(self.year) % 1000),
            Field::Era(case, points) => {
                self.number()?;
                let (plain, dotted) = if self.year > 0 { ("AD", "A.D.") } else { ("BC", "B.C.") };
                cased(if points { dotted } else { plain }, case)
            }
            Field::Century | Field::Quarter | Field::Month | Field::MonthRoman(_) => self.of_months(field, is_tight)?,
            Field::MonthName(case) | Field::MonthShort(case) => {
                self.number()?;
                let month = MONTHS[(self.month.max(1) - 1) as usize % 12];
                if field == Field::MonthName(case) { name(month, 9, case) } else { cased(&month[..3], case) }
            }
            Field::DayName(case) => name(WEEKDAYS[self.weekday()?], 9, case),
            Field::DayShort(case) => cased(&WEEKDAYS[self.weekday()?][..3], case),
            Field::DayOfYear => number(self.day_of_year()?, 3),
            Field::IsoDayOfYear => number(self.iso()?.2, 3),
            Field::Day => number(self.day, 2),
            Field::DayOfWeek => (self.weekday()? + 1).to_string(),
            Field::IsoDayOfWeek => ((self.weekday()? + 6) % 7 + 1).to_string(),
            Field::WeekOfMonth => ((self.day - 1) / 7 + 1).to_string(),
            Field::WeekOfYear => number((self.day_of_year()? - 1) / 7 + 1, 2),
            Field::IsoWeek => number(self.iso()?.1, 2),
            Field::Julian => (self.number()? + 2_440_588).to_string(),
            Field::Hour24 => number(seconds / 3600, 2),
            Field::Hour12 => match seconds / 3600 % 12 {
                0 => number(12, 2),
                hour => number(hour, 2),
            },
            Field::Minute => number(seconds / 60 % 60, 2),
            Field::Second => number(seconds % 60, 2),
            Field::Milliseconds => number(self.us % 1_000_000 / 1000, 3),
            Field::Microseconds => number(self.us % 1_000_000, 6),
            Field::SecondsOfDay => seconds.to_string(),
            Field::Noon(case, points) => {
                let (plain, dotted) = if seconds / 3600 % 24 >= 12 { ("PM", "P.M.") } else { ("AM", "A.M.") };
                cased(if points { dotted } else { plain }, case)
            }
            Field::Zone(case) => cased(if self.is_zoned { "UTC" } else { "" }, case),
            Field::ZoneHours => "+00".into(),
            Field::ZoneMinutes => "00".into(),
            Field::Offset => "+00".into(),
        })
    }

    fn of_months(&self, field: Field, is_tight: bool) -> Result<String, SqlError> {
        let number = |value: i64| if is_tight { value.to_string() } else { format!("{value:02}") };
        Ok(match field {
            Field::Month => number(i64::from(self.month)),
            Field::Quarter if self.month == 0 => String::new(),
            Field::Quarter => ((self.month - 1) / 3 + 1).to_string(),
            Field::MonthRoman(_) if self.month == 0 => String::new(),
            Field::MonthRoman(case) => {
                let month = cased(ROMAN[(self.month - 1) as usize % 12], case);
                if is_tight { month } else { format!("{month:4}") }
            }
            _ if self.number.is_none() => number(self.year / 100),
            _ if self.year > 0 => number((self.year - 1) / 100 + 1),
            _ => number(self.year / 100 - 1),
        })
    }
}

fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_uppercase(),
        Case::Lower => text.to_lowercase(),
        Case::Title => text.to_owned(),
    }
}

fn ordinal_of(number: &str) -> &'static str {
    let last = number.as_bytes().last().copied().unwrap_or(b'0');
    match (number.len() > 1 && number.as_bytes()[number.len() - 2] == b'1', last) {
        (false, b'1') => "st",
        (false, b'2') => "nd",
        (false, b'3') => "rd",
        _ => "th",
    }
}

/// What was read so far.
#[derive(Default)]
struct Reading<'a> {
    rest: &'a str,
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    is_half: bool,
    is_afternoon: Option<bool>,
    is_before: bool,
    us: i64,
    /// Seconds east of Greenwich.
    zone: i64,
    number: Option<i64>,
}

impl Reading<'_> {
    /// A character of the template that is no letter and no digit: it stands for any such character, or for none.
    fn separator(&mut self, letter: char) {
        if letter.is_whitespace() {
            self.rest = self.rest.trim_start();
            return;
        }
        self.rest = self.rest.trim_start();
        let stands = |first: char| first == letter || !first.is_alphanumeric() && !matches!(first, '-' | '+');
        if let Some(first) = self.rest.chars().next().filter(|first| stands(*first)) {
            self.rest = &self.rest[first.len_utf8()..];
        }
    }

    fn digits(&mut self, most: usize, name: &str) -> Result<(i64, usize), SqlError> {
        self.rest = self.rest.trim_start();
        let bytes = self.rest.as_bytes();
        let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
        let count = bytes.iter().skip(sign).take(most).take_while(|byte| byte.is_ascii_digit()).count();
        let text = &self.rest[..sign + count];
        let wrong = || {
            let found: String = self.rest.chars().take(most.min(8)).collect();
            SqlError::value("22007", format!("invalid value \"{found}\" for \"{name}\""))
                .with_detail("Value must be an integer.")
        };
        if count == 0 {
            return Err(wrong());
        }
        let value = text.parse().map_err(|_| wrong())?;
        self.rest = &self.rest[sign + count..];
        Ok((value, count))
    }

    fn word(&mut self, words: &[&str], name: &str) -> Result<usize, SqlError> {
        self.rest = self.rest.trim_start();
        for (at, word) in words.iter().enumerate() {
            if let Some(rest) = super::after(self.rest, word) {
                self.rest = rest;
                return Ok(at);
            }
        }
        let found: String = self.rest.chars().take(12).collect();
        Err(SqlError::value("22007", format!("invalid value \"{found}\" for \"{name}\""))
            .with_detail("The given value did not match any of the allowed values for this field."))
    }

    /// Reads a field. `is_open`: it may have more digits than its name.
    fn field(&mut self, field: Field, is_open: bool) -> Result<(), SqlError> {
        let most = |digits: usize| if is_open { 9 } else { digits };
        match field {
            Field::Year(digits) => {
                let (year, count) = self.digits(most(digits), "YYYY")?;
                // Two digits are a year near 2000.
                self.year = Some(match digits {
                    4 => year,
                    _ if count > 3 => year,
                    _ if year < 70 => year + 2000,
                    _ if year < 100 => year + 1900,
                    _ if year < 520 => year + 2000,
                    _ => year + 1000,
                });
            }
            Field::Month => self.month = Some(self.digits(most(2), "MM")?.0),
            Field::MonthName(_) => self.month = Some(self.word(&MONTHS, "Month")? as i64 + 1),
            Field::MonthShort(_) => {
                let short: Vec<&str> = MONTHS.iter().map(|month| &month[..3]).collect();
                self.month = Some(self.word(&short, "Mon")? as i64 + 1);
            }
            Field::DayName(_) => drop(self.word(&WEEKDAYS, "Day")?),
            Field::DayShort(_) => {
                let short: Vec<&str> = WEEKDAYS.iter().map(|day| &day[..3]).collect();
                self.word(&short, "Dy")?;
            }
            Field::Day => self.day = Some(self.digits(most(2), "DD")?.0),
            Field::DayOfYear => self.day_of_year = Some(self.digits(most(3), "DDD")?.0),
            Field::Julian => self.number = Some(self.digits(most(9), "J")?.0 - 2_440_588),
            Field::Era(..) => self.is_before = self.word(&["AD", "BC", "A.D.", "B.C."], "BC")? % 2 == 1,
            other => return self.clock(other, most),
        }
        Ok(())
    }

    fn clock(&mut self, field: Field, most: impl Fn(usize) -> usize) -> Result<(), SqlError> {
        let fits = |value: i64, range: std::ops::RangeInclusive<i64>| match range.contains(&value) {
            true => Ok(value),
            false => Err(out_of_range()),
        };
        match field {
            Field::Hour24 => self.hour = fits(self.digits(most(2), "HH24")?.0, 0..=24)?,
            Field::Hour12 => {
                let hour = self.digits(most(2), "HH12")?.0;
                if !(1..=12).contains(&hour) {
                    let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                    return Err(SqlError::value("22007", message)
                        .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
                }
                (self.hour, self.is_half) = (hour, true);
            }
            Field::Minute => self.us += fits(self.digits(most(2), "MI")?.0, 0..=59)? * 60_000_000,
            Field::Second => self.us += fits(self.digits(most(2), "SS")?.0, 0..=59)? * 1_000_000,
            Field::Milliseconds => self.us += self.fraction(3, "MS")?,
            Field::Microseconds => self.us += self.fraction(6, "US")?,
            Field::Noon(..) => {
                self.is_afternoon = Some(self.word(&["AM", "PM", "A.M.", "P.M."], "AM")? % 2 == 1);
            }
            Field::ZoneHours => self.zone += self.digits(most(2), "TZH")?.0 * 3600,
            Field::ZoneMinutes => self.zone += self.digits(most(2), "TZM")?.0 * 60 * self.zone.signum(),
            other => {
                return Err(SqlError::unsupported(format!("reading {other:?} by a template of a date")));
            }
        }
        Ok(())
    }

    /// Digits behind the point of a second, in microseconds: `12` are 120 milliseconds.
    fn fraction(&mut self, digits: usize, name: &str) -> Result<i64, SqlError> {
        let (value, count) = self.digits(digits, name)?;
        Ok(value * 10i64.pow(6 - count.min(6) as u32))
    }

    fn moment(self) -> Result<i64, SqlError> {
        let hour = match (self.is_half, self.is_afternoon) {
            (true, Some(true)) => self.hour % 12 + 12,
            (true, _) => self.hour % 12,
            (false, Some(true)) if self.hour < 12 => self.hour + 12,
            _ => self.hour,
        };
        // A template without a year is about 1 BC.
        let year = match self.year {
            None | Some(0) => 0,
            Some(year) if self.is_before => 1 - year,
            Some(year) if year < 0 => year + 1,
            Some(year) => year,
        };
        let small = |value: Option<i64>| u32::try_from(value.unwrap_or(1)).map_err(|_| out_of_range());
        let number = match (self.number, self.day_of_year) {
            (Some(number), _) => Some(number),
            (None, Some(day)) => days(year, 1, 1).map(|first| first + day - 1),
            (None, None) => days(year, small(self.month)?, small(self.day)?),
        };
        let us = number.and_then(|number| number.checked_mul(DAY_US)).ok_or_else(out_of_range)?;
        us.checked_add(self.us + hour * 3_600_000_000 - self.zone * 1_000_000).ok_or_else(out_of_range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::calendar::parse_timestamp;

    #[test]
    fn timestamps_are_written_and_read_as_postgresql_does() {
        // Results of PostgreSQL 15.18.
        let us = parse_timestamp("2024-02-29 13:04:05.678").expect("it is one");
        for (template, expected) in [
            ("YYYY-MM-DD HH24:MI:SS", "2024-02-29 13:04:05"),
            ("Day, DD Mon YYYY", "Thursday , 29 Feb 2024"),
            ("FMMonth FMDD, YYYY HH12:MI AM", "February 29, 2024 01:04 PM"),
            ("YYYY\"Q\"Q IW IYYY DDD D MS US", "2024Q1 09 2024 060 5 678 678000"),
            ("DDth Y,YYY CC J", "29th 2,024 21 2460370"),
            ("Month|RM|", "February |II  |"),
        ] {
            let template_ = Template::new(template).expect(template);
            assert_eq!(template_.write(&Parts::of_moment(us, false)).expect(template), expected, "{template}");
        }
        for (text, template, expected) in [
            ("29.02.2024", "DD.MM.YYYY", "2024-02-29"),
            ("2024-02-29 13", "YYYY-MM-DD HH24", "2024-02-29 13:00"),
            ("20240229", "YYYYMMDD", "2024-02-29"),
            ("5 Mar 99", "DD Mon YY", "1999-03-05"),
            ("01:30 pm 2024-01-02", "HH12:MI am YYYY-MM-DD", "2024-01-02 13:30"),
        ] {
            let read = Template::new(template).and_then(|it| it.read(text)).expect(template);
            assert_eq!(Some(read), parse_timestamp(expected), "{template}");
        }
        for (text, template, code) in [("x", "YYYY", "22007"), ("2024-02-30", "YYYY-MM-DD", "22008")] {
            assert_eq!(Template::new(template).and_then(|it| it.read(text)).expect_err(text).code(), code);
        }
    }
}
