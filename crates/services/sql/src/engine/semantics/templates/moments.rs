//! Templates of dates, times and intervals: the text of a moment by a template, and the moment of such a text.
//!
//! [`moment_fields`](super::moment_fields) has the parts of a template. A field that cannot be read is refused by name.

use super::moment_fields::{LetterCase, MomentField, MomentPart, parts_of};
use crate::SqlError;
use crate::text::calendar::{DAY_US, DAYS, civil, days};

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

/// A template.
#[derive(Debug)]
pub(super) struct MomentTemplate {
    parts: Vec<MomentPart>,
}

impl MomentTemplate {
    /// Errors: 0A000 for a part that is not supported, 22023 for a template that is too long.
    pub(super) fn new(text: &str) -> Result<MomentTemplate, SqlError> {
        Ok(MomentTemplate { parts: parts_of(text)? })
    }

    /// Writes a timestamp or an interval.
    pub(super) fn write(&self, value: &Parts) -> Result<String, SqlError> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                MomentPart::Plain(letter) => out.push(*letter),
                MomentPart::MomentField { field, is_tight, ordinal } => {
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
                MomentPart::Plain(letter) if letter.is_alphanumeric() => {
                    read.rest = read.rest.strip_prefix(*letter).unwrap_or_else(|| {
                        let first = read.rest.chars().next().map_or(0, char::len_utf8);
                        &read.rest[first..]
                    });
                }
                MomentPart::Plain(letter) => read.separator(*letter),
                MomentPart::MomentField { field, is_tight, .. } => {
                    let next_is_digits = matches!(self.parts.get(at + 1), Some(MomentPart::MomentField { .. }));
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
    /// Negative only in an interval.
    month: i64,
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
        Parts {
            year,
            month: i64::from(month),
            day: i64::from(day),
            number: Some(number),
            us: us.rem_euclid(DAY_US),
            is_zoned,
        }
    }

    pub(super) fn of_span(span: super::super::rows::Span) -> Parts {
        let (years, months) = (span.months / 12, span.months % 12);
        Parts {
            year: i64::from(years),
            month: i64::from(months),
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

    fn field(&self, field: MomentField, is_tight: bool) -> Result<String, SqlError> {
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
            _ => number(shown_year(year) % 10i64.pow(digits as u32), digits),
        };
        let seconds = self.us / 1_000_000;
        Ok(match field {
            MomentField::Year(digits) => last(self.year, digits),
            MomentField::IsoYear(digits) => last(self.iso()?.0, digits),
            MomentField::YearWithComma => {
                format!("{},{:03}", shown_year(self.year) / 1000, shown_year(self.year) % 1000)
            }
            MomentField::Era(case, points) => {
                self.number()?;
                let (plain, dotted) = if self.year > 0 { ("AD", "A.D.") } else { ("BC", "B.C.") };
                cased(if points { dotted } else { plain }, case)
            }
            MomentField::Century | MomentField::Quarter | MomentField::Month | MomentField::MonthRoman(_) => {
                self.of_months(field, is_tight)?
            }
            MomentField::MonthName(case) | MomentField::MonthShort(case) => {
                self.number()?;
                let month = MONTHS[(self.month.max(1) - 1) as usize % 12];
                if field == MomentField::MonthName(case) { name(month, 9, case) } else { cased(&month[..3], case) }
            }
            MomentField::DayName(case) => name(WEEKDAYS[self.weekday()?], 9, case),
            MomentField::DayShort(case) => cased(&WEEKDAYS[self.weekday()?][..3], case),
            MomentField::DayOfYear => number(self.day_of_year()?, 3),
            MomentField::IsoDayOfYear => number(self.iso()?.2, 3),
            // The sign counts among the two digits.
            MomentField::Day if is_tight => self.day.to_string(),
            MomentField::Day => format!("{:02}", self.day),
            MomentField::DayOfWeek => (self.weekday()? + 1).to_string(),
            MomentField::IsoDayOfWeek => ((self.weekday()? + 6) % 7 + 1).to_string(),
            MomentField::WeekOfMonth => ((self.day - 1) / 7 + 1).to_string(),
            MomentField::WeekOfYear => number((self.day_of_year()? - 1) / 7 + 1, 2),
            MomentField::IsoWeek => number(self.iso()?.1, 2),
            MomentField::Julian => (self.number()? + 2_440_588).to_string(),
            MomentField::Hour24 => number(seconds / 3600, 2),
            MomentField::Hour12 => match seconds / 3600 % 12 {
                0 => number(12, 2),
                hour => number(hour, 2),
            },
            MomentField::Minute => number(seconds / 60 % 60, 2),
            MomentField::Second => number(seconds % 60, 2),
            // Without blanks too; the sign counts among the digits.
            MomentField::Milliseconds => format!("{:03}", self.us % 1_000_000 / 1000),
            MomentField::Microseconds => format!("{:06}", self.us % 1_000_000),
            MomentField::SecondsOfDay => seconds.to_string(),
            MomentField::Noon(case, points) => {
                let (plain, dotted) = if seconds / 3600 % 24 >= 12 { ("PM", "P.M.") } else { ("AM", "A.M.") };
                cased(if points { dotted } else { plain }, case)
            }
            MomentField::Zone(case) => cased(if self.is_zoned { "UTC" } else { "" }, case),
            MomentField::ZoneHours => "+00".into(),
            MomentField::ZoneMinutes => "00".into(),
            MomentField::Offset => "+00".into(),
        })
    }

    fn of_months(&self, field: MomentField, is_tight: bool) -> Result<String, SqlError> {
        let number = |value: i64| match (is_tight, value < 0) {
            (true, _) => value.to_string(),
            (false, true) => format!("{value:03}"),
            (false, false) => format!("{value:02}"),
        };
        if self.month < 0 && matches!(field, MomentField::Quarter | MomentField::MonthRoman(_)) {
            return Err(SqlError::unsupported(
                "Q and RM in a template of an interval with a negative number of months",
            ));
        }
        Ok(match field {
            MomentField::Month => number(self.month),
            MomentField::Quarter if self.month == 0 => String::new(),
            MomentField::Quarter => ((self.month - 1) / 3 + 1).to_string(),
            MomentField::MonthRoman(_) if self.month == 0 => String::new(),
            MomentField::MonthRoman(case) => {
                let month = cased(ROMAN[(self.month - 1) as usize % 12], case);
                if is_tight { month } else { format!("{month:4}") }
            }
            _ if self.number.is_none() => number(self.year / 100),
            _ if self.year > 0 => number((self.year - 1) / 100 + 1),
            _ => number(self.year / 100 - 1),
        })
    }
}

fn cased(text: &str, case: LetterCase) -> String {
    match case {
        LetterCase::Upper => text.to_uppercase(),
        LetterCase::Lower => text.to_lowercase(),
        LetterCase::Title => text.to_owned(),
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
    fn field(&mut self, field: MomentField, is_open: bool) -> Result<(), SqlError> {
        let most = |digits: usize| if is_open { 9 } else { digits };
        match field {
            MomentField::Year(digits) => {
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
            MomentField::Month => self.month = Some(self.digits(most(2), "MM")?.0),
            MomentField::MonthName(_) => self.month = Some(self.word(&MONTHS, "Month")? as i64 + 1),
            MomentField::MonthShort(_) => {
                let short: Vec<&str> = MONTHS.iter().map(|month| &month[..3]).collect();
                self.month = Some(self.word(&short, "Mon")? as i64 + 1);
            }
            MomentField::DayName(_) => drop(self.word(&WEEKDAYS, "Day")?),
            MomentField::DayShort(_) => {
                let short: Vec<&str> = WEEKDAYS.iter().map(|day| &day[..3]).collect();
                self.word(&short, "Dy")?;
            }
            MomentField::Day => self.day = Some(self.digits(most(2), "DD")?.0),
            MomentField::DayOfYear => self.day_of_year = Some(self.digits(most(3), "DDD")?.0),
            MomentField::Julian => self.number = Some(self.digits(most(9), "J")?.0 - 2_440_588),
            MomentField::Era(..) => self.is_before = self.word(&["AD", "BC", "A.D.", "B.C."], "BC")? % 2 == 1,
            other => return self.clock(other, most),
        }
        Ok(())
    }

    fn clock(&mut self, field: MomentField, most: impl Fn(usize) -> usize) -> Result<(), SqlError> {
        let fits = |value: i64, range: std::ops::RangeInclusive<i64>| match range.contains(&value) {
            true => Ok(value),
            false => Err(out_of_range()),
        };
        match field {
            MomentField::Hour24 => self.hour = fits(self.digits(most(2), "HH24")?.0, 0..=23)?,
            MomentField::Hour12 => {
                let hour = self.digits(most(2), "HH12")?.0;
                if !(1..=12).contains(&hour) {
                    let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                    return Err(SqlError::value("22007", message)
                        .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
                }
                (self.hour, self.is_half) = (hour, true);
            }
            MomentField::Minute => self.us += fits(self.digits(most(2), "MI")?.0, 0..=59)? * 60_000_000,
            MomentField::Second => self.us += fits(self.digits(most(2), "SS")?.0, 0..=59)? * 1_000_000,
            MomentField::Milliseconds => self.us += self.fraction((3, most(3)), "MS")?,
            MomentField::Microseconds => self.us += self.fraction((6, most(6)), "US")?,
            MomentField::Noon(..) => {
                self.is_afternoon = Some(self.word(&["AM", "PM", "A.M.", "P.M."], "AM")? % 2 == 1);
            }
            MomentField::ZoneHours => self.zone += self.digits(most(2), "TZH")?.0 * 3600,
            MomentField::ZoneMinutes => self.zone += self.digits(most(2), "TZM")?.0 * 60 * self.zone.signum(),
            other => {
                return Err(SqlError::unsupported(format!("reading {other:?} by a template of a date")));
            }
        }
        Ok(())
    }

    /// Digits behind the point of a second, in microseconds: `12` are 120 milliseconds. More than the field has are an error.
    fn fraction(&mut self, (digits, most): (usize, usize), name: &str) -> Result<i64, SqlError> {
        let (value, count) = self.digits(most, name)?;
        if count > digits {
            return Err(out_of_range());
        }
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
            (Some(number), _) => Some(number).filter(|number| DAYS.contains(number)),
            (None, Some(_)) if self.year.is_none() => {
                return Err(SqlError::value("22007", "cannot calculate day of year without year information"));
            }
            (None, Some(day)) => {
                let (first, next) = (days(year, 1, 1), days(year + 1, 1, 1));
                let length = first.zip(next).map(|(first, next)| next - first);
                first.filter(|_| length.is_some_and(|length| (1..=length).contains(&day))).map(|first| first + day - 1)
            }
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
            let template_ = MomentTemplate::new(template).expect(template);
            assert_eq!(template_.write(&Parts::of_moment(us, false)).expect(template), expected, "{template}");
        }
        for (text, template, expected) in [
            ("29.02.2024", "DD.MM.YYYY", "2024-02-29"),
            ("2024-02-29 13", "YYYY-MM-DD HH24", "2024-02-29 13:00"),
            ("20240229", "YYYYMMDD", "2024-02-29"),
            ("5 Mar 99", "DD Mon YY", "1999-03-05"),
            ("01:30 pm 2024-01-02", "HH12:MI am YYYY-MM-DD", "2024-01-02 13:30"),
        ] {
            let read = MomentTemplate::new(template).and_then(|it| it.read(text)).expect(template);
            assert_eq!(Some(read), parse_timestamp(expected), "{template}");
        }
        for (text, template, code) in [
            ("x", "YYYY", "22007"),
            ("2024-02-30", "YYYY-MM-DD", "22008"),
            ("2023 366", "YYYY DDD", "22008"),
            ("2023 0", "YYYY DDD", "22008"),
            ("2024-01-01 24:00:00", "YYYY-MM-DD HH24:MI:SS", "22008"),
            ("12:00:00.123456789", "HH24:MI:SS.US", "22008"),
        ] {
            assert_eq!(MomentTemplate::new(template).and_then(|it| it.read(text)).expect_err(text).code(), code);
        }
    }
}
