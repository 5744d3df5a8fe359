//! Times in messages: patterns such as `yyyyMMddHHmm`, and HL7's own form of any precision.
//!
//! ```text
//! HL7:       YYYY[MM[DD[HH[MM[SS[.S[S[S[S]]]]]]]]][+/-ZZZZ]          (v2.5.1, 2.A.22 DTM)
//! patterns:  yyyy yy  MM M MMM  dd d  HH H hh h  mm m  ss s  S..SSSSSS  a  Z XXX  'text'
//! ```
//!
//! A time is what a clock on a wall shows, with the offset that was written beside it, if any; a change of form never
//! moves it to another zone. `now` is shown in the zone of the context. What a form does not hold (the day of
//! `199007`) counts as its first: 01 for month and day, 00 for the rest.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Span as Length, Timestamp, Zoned, tz::TimeZone};

/// A wall time, the offset written beside it in seconds, and how much of it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    time: DateTime,
    offset: Option<i32>,
    /// Characters of the HL7 form: 4 year, 6 month, 8 day, 10 hour, 12 minute, 14 second, then `.` and digits.
    precision: usize,
}

/// How a time is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// HL7's own, in the precision of what was read.
    Hl7,
    Pattern(Vec<Piece>),
}

/// One part of a pattern; numbers are widths: digits written, or the most digits read where `exact` is not meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Year,
    ShortYear,
    Month(usize),
    MonthName,
    Day(usize),
    Hour(usize),
    HalfHour(usize),
    HalfDay,
    Minute(usize),
    Second(usize),
    Fraction(usize),
    Offset { colon: bool },
    Literal(char),
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// What `add_days` and its like add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Minutes,
    Hours,
    Days,
    Months,
}

impl Form {
    /// Reads a pattern; the error says what is wrong with it.
    pub(super) fn parse(pattern: &str) -> Result<Form, String> {
        if pattern == "hl7" {
            return Ok(Form::Hl7);
        }
        let mut pieces = Vec::new();
        let mut rest = pattern;
        while let Some(first) = rest.chars().next() {
            if first == '\'' {
                let (text, after) = rest[1..].split_once('\'').ok_or("the text after ' has no closing '")?;
                // Two quotes in a row are one quote, as in the patterns people know.
                if text.is_empty() {
                    pieces.push(Piece::Literal('\''));
                }
                pieces.extend(text.chars().map(Piece::Literal));
                rest = after;
                continue;
            }
            let width = rest.chars().take_while(|c| *c == first).count();
            if first.is_ascii_alphabetic() {
                pieces.push(letter(first, width)?);
            } else {
                pieces.extend(std::iter::repeat_n(Piece::Literal(first), width));
            }
            rest = &rest[width * first.len_utf8()..];
        }
        if pieces.iter().all(|piece| matches!(piece, Piece::Literal(_))) {
            return Err("this pattern holds no part of a time".to_owned());
        }
        Ok(Form::Pattern(pieces))
    }

    /// Reads a time that was written in this form; `now` decides the century of a year with two digits.
    pub(super) fn read(&self, text: &str, now: &Moment) -> Option<Moment> {
        match self {
            Form::Hl7 => read_hl7(text),
            Form::Pattern(pieces) => read_pattern(pieces, text, now),
        }
    }

    /// Writes a time in this form; a part the form needs and the time does not know (its offset) comes from `now`.
    pub(super) fn write(&self, moment: &Moment, now: &Moment, to: &mut String) {
        match self {
            Form::Hl7 => moment.write_hl7(to),
            Form::Pattern(pieces) => pieces.iter().for_each(|piece| write_piece(*piece, moment, now, to)),
        }
    }
}

fn letter(letter: char, width: usize) -> Result<Piece, String> {
    let piece = match (letter, width) {
        ('y', 4) => Piece::Year,
        ('y', 2) => Piece::ShortYear,
        ('M', 1 | 2) => Piece::Month(width),
        ('M', 3) => Piece::MonthName,
        ('d', 1 | 2) => Piece::Day(width),
        ('H', 1 | 2) => Piece::Hour(width),
        ('h', 1 | 2) => Piece::HalfHour(width),
        ('a', 1) => Piece::HalfDay,
        ('m', 1 | 2) => Piece::Minute(width),
        ('s', 1 | 2) => Piece::Second(width),
        ('S', 1..=6) => Piece::Fraction(width),
        ('Z', 1) => Piece::Offset { colon: false },
        ('X', 3) => Piece::Offset { colon: true },
        _ => return Err(format!("`{}` is no part of a time", String::from(letter).repeat(width.min(12)))),
    };
    Ok(piece)
}

impl Moment {
    /// The present in a zone, to the second.
    pub(super) fn now(now: Timestamp, zone: &TimeZone) -> Moment {
        let zoned = Zoned::new(now, zone.clone());
        Moment { time: zoned.datetime(), offset: Some(zoned.offset().seconds()), precision: 14 }
    }

    /// The same form, later (or earlier, for a negative `amount`); `None` outside the years 0 to 9999.
    pub(super) fn add(&self, unit: Unit, amount: i32) -> Option<Moment> {
        let time = match unit {
            Unit::Minutes => self.time.checked_add(SignedDuration::from_mins(amount.into())),
            Unit::Hours => self.time.checked_add(SignedDuration::from_hours(amount.into())),
            Unit::Days => self.time.checked_add(SignedDuration::from_hours(i64::from(amount) * 24)),
            // Years 0 to 9999 are fewer than 120,000 months.
            Unit::Months if amount.abs() < 120_000 => self.time.checked_add(Length::new().months(amount)),
            Unit::Months => return None,
        };
        time.ok().filter(|time| (0..=9999).contains(&time.year())).map(|time| Moment { time, ..*self })
    }

    fn write_hl7(&self, to: &mut String) {
        let time = &self.time;
        let start = to.len();
        to.push_str(&format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}.{:06}",
            time.year(),
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 1000
        ));
        to.truncate(start + self.precision.min(21));
        if let Some(offset) = self.offset {
            write_offset(offset, false, to);
        }
    }
}

fn write_offset(seconds: i32, colon: bool, to: &mut String) {
    let minutes = seconds.abs() / 60;
    let sign = if seconds < 0 { '-' } else { '+' };
    let between = if colon { ":" } else { "" };
    to.push_str(&format!("{sign}{:02}{between}{:02}", minutes / 60, minutes % 60));
}

fn write_piece(piece: Piece, moment: &Moment, now: &Moment, to: &mut String) {
    let time = &moment.time;
    let hour = time.hour();
    match piece {
        Piece::Year => to.push_str(&format!("{:04}", time.year())),
        Piece::ShortYear => to.push_str(&format!("{:02}", time.year() % 100)),
        Piece::Month(width) => to.push_str(&format!("{:0width$}", time.month())),
        Piece::MonthName => to.push_str(MONTHS[time.month() as usize - 1]),
        Piece::Day(width) => to.push_str(&format!("{:0width$}", time.day())),
        Piece::Hour(width) => to.push_str(&format!("{hour:0width$}")),
        Piece::HalfHour(width) => to.push_str(&format!("{:0width$}", (hour + 11) % 12 + 1)),
        Piece::HalfDay => to.push_str(if hour < 12 { "AM" } else { "PM" }),
        Piece::Minute(width) => to.push_str(&format!("{:0width$}", time.minute())),
        Piece::Second(width) => to.push_str(&format!("{:0width$}", time.second())),
        Piece::Fraction(width) => to.push_str(&format!("{:06}", time.subsec_nanosecond() / 1000)[..width]),
        Piece::Offset { colon } => write_offset(moment.offset.or(now.offset).unwrap_or(0), colon, to),
        Piece::Literal(c) => to.push(c),
    }
}

/// What has been read of a time.
struct Parts {
    year: i16,
    month: i8,
    day: i8,
    hour: i8,
    afternoon: Option<bool>,
    minute: i8,
    second: i8,
    nanosecond: i32,
    offset: Option<i32>,
}

impl Parts {
    fn new(now: &Moment) -> Parts {
        // A pattern without a year (a birthday in a list) means the present one.
        Parts {
            year: now.time.year(),
            month: 1,
            day: 1,
            hour: 0,
            afternoon: None,
            minute: 0,
            second: 0,
            nanosecond: 0,
            offset: None,
        }
    }

    fn moment(self, precision: usize) -> Option<Moment> {
        let hour = match self.afternoon {
            Some(_) if !(1..=12).contains(&self.hour) => return None,
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let time = DateTime::new(self.year, self.month, self.day, hour, self.minute, self.second, self.nanosecond);
        Some(Moment { time: time.ok()?, offset: self.offset, precision })
    }
}

/// Takes digits off the front of a text.
struct Digits<'a>(&'a str);

impl Digits<'_> {
    fn exactly(&mut self, width: usize) -> Option<i32> {
        let (digits, rest) = self.0.split_at_checked(width)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        self.0 = rest;
        digits.parse().ok()
    }

    /// A number of `width` digits, or of one or two where the pattern has a single letter.
    fn number(&mut self, width: usize) -> Option<i8> {
        let count = self.0.bytes().take(2).take_while(u8::is_ascii_digit).count();
        self.exactly(if width == 1 { count } else { width })?.try_into().ok()
    }

    fn accept(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// `+0100`, `-05:30`, or `Z`, in seconds.
    fn offset(&mut self) -> Option<i32> {
        if self.accept("Z").is_some() {
            return Some(0);
        }
        let sign = if self.accept("-").is_some() { -1 } else { self.accept("+").map(|()| 1)? };
        let hours = self.exactly(2)?;
        let _ = self.accept(":");
        let minutes = self.exactly(2)?;
        (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
    }

    fn fraction(&mut self, width: usize) -> Option<i32> {
        let value = self.exactly(width)?;
        Some(value * 10_i32.pow(9 - width as u32))
    }
}

fn read_hl7(text: &str) -> Option<Moment> {
    let mut digits = Digits(text.trim());
    let mut parts = Parts {
        year: digits.exactly(4)?.try_into().ok()?,
        month: 1,
        day: 1,
        hour: 0,
        afternoon: None,
        minute: 0,
        second: 0,
        nanosecond: 0,
        offset: None,
    };
    let mut precision = 4;
    let steps = [&mut parts.month, &mut parts.day, &mut parts.hour, &mut parts.minute, &mut parts.second];
    for step in steps {
        if !digits.0.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        *step = digits.number(2)?;
        precision += 2;
    }
    if precision == 14 && digits.accept(".").is_some() {
        let width = digits.0.bytes().take(6).take_while(u8::is_ascii_digit).count();
        parts.nanosecond = digits.fraction(width)?;
        precision += 1 + width;
    }
    if !digits.0.is_empty() {
        parts.offset = Some(digits.offset()?);
    }
    if digits.0.is_empty() { parts.moment(precision) } else { None }
}

fn read_pattern(pieces: &[Piece], text: &str, now: &Moment) -> Option<Moment> {
    let mut parts = Parts::new(now);
    let mut digits = Digits(text.trim());
    let mut precision = 4;
    for piece in pieces {
        let reached = match piece {
            Piece::Year => {
                parts.year = digits.exactly(4)?.try_into().ok()?;
                4
            }
            Piece::ShortYear => {
                parts.year = century(digits.exactly(2)?.try_into().ok()?, now.time.year());
                4
            }
            Piece::Month(width) => {
                parts.month = digits.number(*width)?;
                6
            }
            Piece::MonthName => {
                parts.month = month_name(&mut digits)?;
                6
            }
            Piece::Day(width) => {
                parts.day = digits.number(*width)?;
                8
            }
            Piece::Hour(width) | Piece::HalfHour(width) => {
                parts.hour = digits.number(*width)?;
                if matches!(piece, Piece::HalfHour(_)) {
                    parts.afternoon.get_or_insert(false);
                }
                10
            }
            Piece::HalfDay => {
                let half = digits.0.get(..2)?.to_ascii_uppercase();
                parts.afternoon = Some(match half.as_str() {
                    "AM" => false,
                    "PM" => true,
                    _ => return None,
                });
                digits.0 = &digits.0[2..];
                10
            }
            Piece::Minute(width) => {
                parts.minute = digits.number(*width)?;
                12
            }
            Piece::Second(width) => {
                parts.second = digits.number(*width)?;
                14
            }
            Piece::Fraction(width) => {
                parts.nanosecond = digits.fraction(*width)?;
                15 + width
            }
            Piece::Offset { .. } => {
                parts.offset = Some(digits.offset()?);
                4
            }
            Piece::Literal(c) => {
                digits.accept(c.encode_utf8(&mut [0; 4]))?;
                4
            }
        };
        precision = precision.max(reached);
    }
    if digits.0.is_empty() { parts.moment(precision) } else { None }
}

/// The year of two digits that lies within 80 years before and 19 after the present one, as in Java's patterns.
fn century(short: i16, present: i16) -> i16 {
    let year = present - present.rem_euclid(100) + short;
    if year > present + 19 {
        year - 100
    } else if year < present - 80 {
        year + 100
    } else {
        year
    }
}

fn month_name(digits: &mut Digits<'_>) -> Option<i8> {
    let name = digits.0.get(..3)?;
    let at = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name))?;
    digits.0 = &digits.0[3..];
    Some(at as i8 + 1)
}
