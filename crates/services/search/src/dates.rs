//! Dates as documents and queries write them: formats, date math (`now-1d/d`), and how results show them.
//!
//! A date is a number of milliseconds since 1970, UTC. Formats are Elasticsearch's names (`strict_date_optional_time`,
//! `epoch_millis`, ...) or patterns of `y M d H h m s S Z X` and literal text, several separated by `||`.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};
use serde_json::Value;

use crate::error::SearchError;

mod clocks;
mod shapes;

/// The format of a date field whose mapping has none.
pub const DEFAULT_FORMAT: &str = "strict_date_optional_time||epoch_millis";

/// Longest pattern, in bytes: each letter of it is a character of every date that is shown.
const FORMAT_BYTES_MAX: usize = 128;

/// The formats of a date field, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DateFormats(Vec<String>);

impl Default for DateFormats {
    fn default() -> DateFormats {
        DateFormats(DEFAULT_FORMAT.split("||").map(str::to_owned).collect())
    }
}

/// A unit of date math and of calendar intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// Years.
    Year,
    /// Quarters of a year.
    Quarter,
    /// Months.
    Month,
    /// Weeks from Monday.
    Week,
    /// Days.
    Day,
    /// Hours.
    Hour,
    /// Minutes.
    Minute,
    /// Seconds.
    Second,
}

impl CalendarUnit {
    /// Of date math's letter.
    fn of_letter(letter: char) -> Option<CalendarUnit> {
        Some(match letter {
            'y' => CalendarUnit::Year,
            'M' => CalendarUnit::Month,
            'w' => CalendarUnit::Week,
            'd' => CalendarUnit::Day,
            'h' | 'H' => CalendarUnit::Hour,
            'm' => CalendarUnit::Minute,
            's' => CalendarUnit::Second,
            _ => return None,
        })
    }

    /// Of a calendar interval (`month`, `1M`).
    pub fn of_interval(text: &str) -> Option<CalendarUnit> {
        Some(match text {
            "year" | "1y" => CalendarUnit::Year,
            "quarter" | "1q" => CalendarUnit::Quarter,
            "month" | "1M" => CalendarUnit::Month,
            "week" | "1w" => CalendarUnit::Week,
            "day" | "1d" => CalendarUnit::Day,
            "hour" | "1h" => CalendarUnit::Hour,
            "minute" | "1m" => CalendarUnit::Minute,
            "second" | "1s" => CalendarUnit::Second,
            _ => return None,
        })
    }

    fn span(self, count: i64) -> Result<Span, jiff::Error> {
        let span = Span::new();
        match self {
            CalendarUnit::Year => span.try_years(count),
            CalendarUnit::Quarter => span.try_months(count.saturating_mul(3)),
            CalendarUnit::Month => span.try_months(count),
            CalendarUnit::Week => span.try_weeks(count),
            CalendarUnit::Day => span.try_days(count),
            CalendarUnit::Hour => span.try_hours(count),
            CalendarUnit::Minute => span.try_minutes(count),
            CalendarUnit::Second => span.try_seconds(count),
        }
    }

    /// The first day of the unit that contains a day; none for units that are parts of a day.
    fn first_day(self, date: Date) -> Option<Date> {
        Some(match self {
            CalendarUnit::Year => date.first_of_year(),
            CalendarUnit::Quarter => Date::new(date.year(), (date.month() - 1) / 3 * 3 + 1, 1).ok()?,
            CalendarUnit::Month => date.first_of_month(),
            CalendarUnit::Week => date.checked_sub(i64::from(date.weekday().to_monday_zero_offset()).days()).ok()?,
            CalendarUnit::Day => date,
            _ => return None,
        })
    }

    /// Milliseconds of a unit that is a part of a day.
    fn part_millis(self) -> i64 {
        match self {
            CalendarUnit::Second => 1_000,
            CalendarUnit::Minute => 60_000,
            _ => 3_600_000,
        }
    }

    /// The beginning of the unit that contains `millis`, in a time zone.
    pub fn floor(self, millis: i64, zone: &TimeZone) -> Option<i64> {
        let date = Timestamp::from_millisecond(millis).ok()?.to_zoned(zone.clone()).date();
        match self.first_day(date) {
            Some(first) => first_moment(first, zone),
            None => clocks::floor(millis, zone, self.part_millis()),
        }
    }

    /// The beginning of the unit after the one that begins at `millis`. Where clocks skip midnight a day begins later; the next one
    /// does not.
    pub fn next(self, millis: i64, zone: &TimeZone) -> Option<i64> {
        let date = Timestamp::from_millisecond(millis).ok()?.to_zoned(zone.clone()).date();
        match self.first_day(date) {
            Some(first) => first_moment(self.first_day(first.checked_add(self.span(1).ok()?).ok()?)?, zone),
            None => clocks::next(millis, zone, self.part_millis()),
        }
    }
}

/// The first moment of a day.
fn first_moment(date: Date, zone: &TimeZone) -> Option<i64> {
    let midnight = DateTime::from_parts(date, Time::midnight());
    Some(midnight.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond())
}

/// The beginning of the step of `length` milliseconds, by the clocks of a zone, that a moment is in.
pub fn clock_floor(millis: i64, zone: &TimeZone, length: i64) -> Option<i64> {
    clocks::floor(millis, zone, length)
}

/// The beginning of the step after the one that begins at `begin`.
pub fn clock_next(begin: i64, zone: &TimeZone, length: i64) -> Option<i64> {
    clocks::next(begin, zone, length)
}

/// A time zone by its name or offset (`Europe/Berlin`, `+01:00`). Errors: there is none.
pub fn zone(name: &str) -> Result<TimeZone, SearchError> {
    let unknown = || SearchError::argument(format!("time_zone [{name}] is not known"));
    if name == "Z" || name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    // `UTC+1` is `+1`.
    match offset(["UTC", "GMT", "UT"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)) {
        Some(seconds) => Ok(TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).map_err(|_| unknown())?)),
        None => TimeZone::get(name).map_err(|_| unknown()),
    }
}

/// Seconds of `+01:00`, `+0100`, `-5`.
fn offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = text[1..].chars().filter(|c| *c != ':').collect();
    if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: i32 = digits.parse().ok()?;
    let (hours, minutes) = if digits.len() <= 2 { (number, 0) } else { (number / 100, number % 100) };
    (minutes < 60 && hours <= 18).then_some(sign * (hours * 3600 + minutes * 60))
}

/// How a text that names no instant but a span of time (a day, a month) becomes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Its first millisecond.
    Down,
    /// Its last millisecond.
    Up,
}

/// The context in which a date of a query is read.
#[derive(Clone, Debug)]
pub struct DateContext {
    /// What `now` is, in milliseconds.
    pub now: i64,
    /// Zone of dates that name none.
    pub zone: TimeZone,
}

impl DateFormats {
    /// Of a mapping's `format`. Errors: a format that is not known.
    pub fn parse_list(text: &str) -> Result<DateFormats, SearchError> {
        let formats: Vec<String> = text.split("||").map(|format| format.trim().to_owned()).collect();
        for format in &formats {
            if !is_known(format) {
                return Err(SearchError::argument(format!("Invalid format: [{format}]: it is not supported")));
            }
        }
        Ok(DateFormats(formats))
    }

    /// The first of them: results are shown in it.
    pub fn first(&self) -> &str {
        &self.0[0]
    }

    /// A date of a document, in milliseconds. Errors: no format fits.
    pub fn value(&self, value: &Value) -> Result<i64, SearchError> {
        self.value_in(value, Digits::AsSaid)
    }

    /// The same, of a document that was accepted before: earlier builds took fewer digits and other parts than a format says. Errors: as there.
    pub fn accepted_value(&self, value: &Value) -> Result<i64, SearchError> {
        self.value_in(value, Digits::Any)
    }

    fn value_in(&self, value: &Value, how: Digits) -> Result<i64, SearchError> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => return Err(SearchError::mapping(format!("[{other}] is not a date"))),
        };
        match self.read(&text, how, Rounding::Down, &TimeZone::UTC) {
            Some(at) if is_in_range(&at) => Ok(at),
            Some(_) => Err(SearchError::mapping(format!("date [{text}] is out of range: a date is from 1678 to 2261"))),
            None => Err(SearchError::mapping(format!(
                "failed to parse date field [{text}] with format [{}]",
                self.0.join("||")
            ))),
        }
    }

    /// A date of a query, which may have date math (`now-1d/d`, `2024-01-01||+1M/d`). Errors: it cannot be read.
    pub fn query(&self, value: &Value, rounding: Rounding, context: &DateContext) -> Result<i64, SearchError> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => return Err(SearchError::parsing(format!("[{other}] is not a date"))),
        };
        let failed =
            || SearchError::parsing(format!("failed to parse date field [{text}] with format [{}]", self.0.join("||")));
        if let Some(math) = text.strip_prefix("now") {
            return date_math(context.now, math, rounding, &context.zone).ok_or_else(failed);
        }
        match text.split_once("||") {
            Some((date, math)) => {
                let at = self.read(date, Digits::AsSaid, Rounding::Down, &context.zone).ok_or_else(failed)?;
                date_math(at, math, rounding, &context.zone).ok_or_else(failed)
            }
            // An end of a range beyond every date is as good as the last one.
            None => {
                let at = self.read(&text, Digits::AsSaid, rounding, &context.zone);
                at.map(|at| at.clamp(-MILLIS_MAX, MILLIS_MAX)).ok_or_else(failed)
            }
        }
    }

    /// By the first format that reads a date which can be, or else by the first one that reads any.
    fn read(&self, text: &str, how: Digits, rounding: Rounding, zone: &TimeZone) -> Option<i64> {
        let mut found = self.0.iter().filter_map(|format| read((format, how), text, rounding, zone));
        let first = found.next()?;
        if is_in_range(&first) { Some(first) } else { found.find(is_in_range).or(Some(first)) }
    }
}

/// The last date: its nanoseconds fit into 64 bits, which is how the index keeps it.
const MILLIS_MAX: i64 = i64::MAX / 1_000_000;

fn is_in_range(millis: &i64) -> bool {
    (-MILLIS_MAX..=MILLIS_MAX).contains(millis)
}

/// `+1M-2d/d`.
fn date_math(mut at: i64, mut math: &str, rounding: Rounding, zone: &TimeZone) -> Option<i64> {
    while let Some(operation) = math.chars().next() {
        let rest = &math[operation.len_utf8()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let count: i64 = if digits == 0 { 1 } else { rest[..digits].parse().ok()? };
        let letter = rest[digits..].chars().next()?;
        let unit = CalendarUnit::of_letter(letter)?;
        math = &rest[digits + letter.len_utf8()..];
        match operation {
            '+' | '-' => {
                let count = if operation == '+' { count } else { -count };
                let moved = Timestamp::from_millisecond(at)
                    .ok()?
                    .to_zoned(zone.clone())
                    .checked_add(unit.span(count).ok()?)
                    .ok()?;
                at = moved.timestamp().as_millisecond();
            }
            '/' if digits == 0 => {
                at = unit.floor(at, zone)?;
                if rounding == Rounding::Up {
                    at = unit.next(at, zone).map_or(i64::MAX, |next| next - 1);
                }
            }
            _ => return None,
        }
    }
    // An end of a range beyond every date is as good as the last one.
    Some(at.clamp(-MILLIS_MAX, MILLIS_MAX))
}

fn is_known(format: &str) -> bool {
    let is_pattern = format.len() <= FORMAT_BYTES_MAX && pattern_of(format).is_some();
    is_pattern || matches!(format, "epoch_millis" | "epoch_second") || is_iso(format)
}

fn is_iso(format: &str) -> bool {
    matches!(
        format,
        "strict_date_optional_time"
            | "date_optional_time"
            | "strict_date_optional_time_nanos"
            | "strict_date_time"
            | "date_time"
            | "strict_date_time_no_millis"
            | "date_time_no_millis"
            | "iso8601"
            | "strict_date"
            | "date"
            | "strict_year_month"
            | "year_month"
            | "strict_year"
            | "year"
            | "strict_year_month_day"
            | "year_month_day"
            | "strict_date_hour_minute_second"
            | "date_hour_minute_second"
            | "yyyy-MM-dd"
            | "uuuu-MM-dd"
            | "yyyy-MM"
            | "yyyy"
    )
}

/// The pattern of a named format, or the format itself if it is a pattern.
fn pattern_of(format: &str) -> Option<&str> {
    match format {
        "basic_date" => return Some("yyyyMMdd"),
        "basic_date_time" => return Some("yyyyMMdd'T'HHmmss.SSSXX"),
        "basic_date_time_no_millis" => return Some("yyyyMMdd'T'HHmmssXX"),
        _ => {}
    }
    let has_year = format.contains("yy") || format.contains("uu");
    let mut quoted = false;
    let known = format.chars().all(|c| {
        quoted ^= c == '\'';
        quoted || !c.is_ascii_alphabetic() || "yuMdHhmsSZXx".contains(c)
    });
    (has_year && known && !format.contains('_')).then_some(format)
}

/// How closely a text has to keep to its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    /// All parts and digits that it says.
    AsSaid,
    /// Its order alone.
    Any,
}

fn read((format, how): (&str, Digits), text: &str, rounding: Rounding, zone: &TimeZone) -> Option<i64> {
    match format {
        "epoch_millis" => text.split('.').next()?.parse().ok(),
        "epoch_second" => match text.split_once('.') {
            None => text.parse::<i64>().ok()?.checked_mul(1000),
            Some(_) => Some((text.parse::<f64>().ok()? * 1000.0) as i64),
        },
        _ if is_iso(format) && how == Digits::AsSaid && !shapes::fits(format, text) => None,
        _ if is_iso(format) => parts_of_iso(text)?.millis(rounding, zone),
        _ => parts_of_pattern(pattern_of(format)?, how, text)?.millis(rounding, zone),
    }
}

/// What a text says about a date: year, month, day, hour, minute, second; what it does not say is missing from the end.
#[derive(Default)]
struct Parts {
    numbers: Vec<u32>,
    nanos: Option<u32>,
    offset: Option<i32>,
}

impl Parts {
    fn millis(&self, rounding: Rounding, zone: &TimeZone) -> Option<i64> {
        let part = |at: usize, default: u32| i8::try_from(*self.numbers.get(at).unwrap_or(&default)).ok();
        let year = i16::try_from(*self.numbers.first()?).ok()?;
        let date = Date::new(year, part(1, 1)?, part(2, 1)?).ok()?;
        let time =
            Time::new(part(3, 0)?, part(4, 0)?, part(5, 0)?, i32::try_from(self.nanos.unwrap_or(0)).ok()?).ok()?;
        let zone = match self.offset {
            Some(seconds) => TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).ok()?),
            None => zone.clone(),
        };
        // The last day of all is not a moment of the library.
        let Ok(at) = DateTime::from_parts(date, time).to_zoned(zone.clone()) else {
            return Some(if year > 1970 { i64::MAX } else { i64::MIN });
        };
        let at = at.timestamp().as_millisecond();
        let unit = match self.numbers.len() {
            _ if rounding == Rounding::Down || self.nanos.is_some() => return Some(at),
            1 => CalendarUnit::Year,
            2 => CalendarUnit::Month,
            3 => CalendarUnit::Day,
            4 => CalendarUnit::Hour,
            5 => CalendarUnit::Minute,
            _ => CalendarUnit::Second,
        };
        // After the last unit of all there is no other one.
        Some(unit.next(at, &zone).map_or(i64::MAX, |next| next - 1))
    }
}

/// `2024-01-31T10:20:30.123456Z`, or a beginning of it.
fn parts_of_iso(text: &str) -> Option<Parts> {
    let mut parts = Parts::default();
    let (date, time) = match text.split_once(['T', 't']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut fields = date.split('-');
    let year = fields.next()?;
    if year.len() != 4 {
        return None;
    }
    parts.numbers.push(digits(year)?);
    for field in fields {
        if !(1..=2).contains(&field.len()) || parts.numbers.len() == 3 {
            return None;
        }
        parts.numbers.push(digits(field)?);
    }
    let Some(time) = time.filter(|time| !time.is_empty()) else { return Some(parts) };
    if parts.numbers.len() != 3 {
        return None;
    }
    let (clock, zone) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => (&time[..at], Some(&time[at..])),
        None => (time, None),
    };
    if let Some(zone) = zone {
        parts.offset = Some(if zone.eq_ignore_ascii_case("z") { 0 } else { offset(zone)? });
    }
    let (clock, fraction) = match clock.split_once(['.', ',']) {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (clock, None),
    };
    for field in clock.split(':') {
        if !(1..=2).contains(&field.len()) || parts.numbers.len() == 6 {
            return None;
        }
        parts.numbers.push(digits(field)?);
    }
    if let Some(fraction) = fraction {
        parts.nanos = Some(nanos(fraction)?);
    }
    Some(parts)
}

fn digits(text: &str) -> Option<u32> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// Nanoseconds of the digits after the point.
fn nanos(fraction: &str) -> Option<u32> {
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(9)];
    digits(kept)?.checked_mul(10u32.checked_pow(9 - kept.len() as u32)?)
}

fn parts_of_pattern(pattern: &str, how: Digits, text: &str) -> Option<Parts> {
    let (mut year, mut numbers, mut given) = (None, [1, 1, 0, 0, 0], 0);
    let mut parts = Parts::default();
    let mut rest = text;
    let letters: Vec<char> = pattern.chars().collect();
    let (mut at, mut quoted) = (0, false);
    while at < letters.len() {
        let letter = letters[at];
        let run = letters[at..].iter().take_while(|c| **c == letter).count();
        if letter == '\'' {
            quoted = !quoted;
            at += 1;
            continue;
        }
        if quoted || !letter.is_ascii_alphabetic() {
            rest = rest.strip_prefix(letter)?;
            at += 1;
            continue;
        }
        at += run;
        if matches!(letter, 'Z' | 'X' | 'x') {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-:Zz".contains(c))).unwrap_or(rest.len());
            let (zone, after) = rest.split_at(end);
            parts.offset = Some(if zone.eq_ignore_ascii_case("z") { 0 } else { offset(zone)? });
            rest = after;
            continue;
        }
        let width = rest.bytes().take(run.max(2)).take_while(u8::is_ascii_digit).count();
        if how == Digits::AsSaid && run > 1 && width != run {
            return None;
        }
        let (number, after) = rest.split_at(width);
        rest = after;
        match letter {
            'y' | 'u' if run == 2 => year = Some(2000 + digits(number)?),
            'y' | 'u' => year = Some(digits(number)?),
            'S' => parts.nanos = Some(nanos(number)?),
            letter => {
                let place = "MdHms".find(if letter == 'h' { 'H' } else { letter })?;
                numbers[place] = digits(number)?;
                given = given.max(place + 1);
            }
        }
    }
    parts.numbers.push(year?);
    parts.numbers.extend_from_slice(&numbers[..given]);
    rest.is_empty().then_some(parts)
}

/// A date as results show it. Errors: the format cannot be written.
pub fn write(millis: i64, format: &str, zone: &TimeZone) -> Result<String, SearchError> {
    let unknown = || SearchError::argument(format!("Invalid format: [{format}]: it is not supported"));
    let at = Timestamp::from_millisecond(millis)
        .map_err(|error| SearchError::argument(error.to_string()))?
        .to_zoned(zone.clone());
    let suffix = match at.offset().seconds() {
        0 => "Z".to_owned(),
        seconds => {
            format!("{}{:02}:{:02}", if seconds < 0 { '-' } else { '+' }, seconds.abs() / 3600, seconds.abs() / 60 % 60)
        }
    };
    let pattern = match format {
        "epoch_millis" => return Ok(millis.to_string()),
        "epoch_second" => return Ok(millis.div_euclid(1000).to_string()),
        "strict_year" | "year" => "yyyy",
        "strict_year_month" | "year_month" => "yyyy-MM",
        "strict_date" | "date" | "strict_year_month_day" | "year_month_day" => "yyyy-MM-dd",
        "strict_date_time_no_millis" | "date_time_no_millis" => "yyyy-MM-dd'T'HH:mm:ssX",
        "strict_date_hour_minute_second" | "date_hour_minute_second" => "yyyy-MM-dd'T'HH:mm:ss",
        "strict_date_optional_time"
        | "date_optional_time"
        | "strict_date_time"
        | "date_time"
        | "iso8601"
        | "strict_date_optional_time_nanos" => "yyyy-MM-dd'T'HH:mm:ss.SSSX",
        other if other.len() > FORMAT_BYTES_MAX => return Err(unknown()),
        other => pattern_of(other).ok_or_else(unknown)?,
    };
    let mut out = String::new();
    let letters: Vec<char> = pattern.chars().collect();
    let (mut place, mut quoted) = (0, false);
    while let Some(letter) = letters.get(place).copied() {
        let run = letters[place..].iter().take_while(|c| **c == letter).count();
        if letter == '\'' || quoted || !letter.is_ascii_alphabetic() {
            match letter {
                '\'' => quoted = !quoted,
                literal => out.push(literal),
            }
            place += 1;
            continue;
        }
        place += run;
        let number = match letter {
            'y' | 'u' if run == 2 => i64::from(at.year() % 100),
            'y' | 'u' => i64::from(at.year()),
            'M' => i64::from(at.month()),
            'd' => i64::from(at.day()),
            'H' => i64::from(at.hour()),
            'h' => i64::from((at.hour() + 11) % 12 + 1),
            'm' => i64::from(at.minute()),
            's' => i64::from(at.second()),
            'S' => i64::from(at.subsec_nanosecond()) / 10i64.pow(9 - run.min(9) as u32),
            _ => {
                out.push_str(&suffix);
                continue;
            }
        };
        out.push_str(&format!("{number:0run$}"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
