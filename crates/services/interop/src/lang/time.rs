//! Times in messages: patterns such as `yyyyMMddHHmm`, and HL7's own form of any precision.
//!
//! ```text
//! HL7:       YYYY[MM[DD[HH[MM[SS[.S[S[S[S]]]]]]]]][+/-ZZZZ]          (v2.5.1, 2.A.22 DTM)
//! patterns:  yyyy yy  MM M MMM  dd d  HH H hh h  mm m  ss s  S..SSSSSS  a  Z (and X three times)  'text'
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

/// The present, worked out only when a form needs it.
pub(super) type Now<'n> = &'n dyn Fn() -> Moment;

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
    pub(super) fn read(&self, text: &str, now: Now<'_>) -> Option<Moment> {
        match self {
            Form::Hl7 => read_hl7(text),
            Form::Pattern(pieces) => read_pattern(pieces, text, now),
        }
    }

    /// Writes a time in this form; a part the form needs and the time does not know (its offset) comes from `now`.
    pub(super) fn write(&self, moment: &Moment, now: Now<'_>, to: &mut String) {
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
        push_digits(to, time.year().unsigned_abs().into(), 4);
        for part in [time.month(), time.day(), time.hour(), time.minute(), time.second()] {
            push_digits(to, part.unsigned_abs().into(), 2);
        }
        to.push('.');
        push_digits(to, time.subsec_nanosecond().unsigned_abs() / 1000, 6);
        to.truncate(start + self.precision.min(21));
        if let Some(offset) = self.offset {
            write_offset(offset, false, to);
        }
    }
}

fn write_offset(seconds: i32, colon: bool, to: &mut String) {
    let minutes = seconds.unsigned_abs() / 60;
    to.push(if seconds < 0 { '-' } else { '+' });
    push_digits(to, minutes / 60, 2);
    to.push_str(if colon { ":" } else { "" });
    push_digits(to, minutes % 60, 2);
}

/// Appends at least `width` digits of a number. This runs for every message: formatting machinery would be most of it.
fn push_digits(to: &mut String, number: u32, width: usize) {
    let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1).max(width);
    for place in (0..digits as u32).rev() {
        to.push(char::from(b'0' + (number / 10_u32.pow(place) % 10) as u8));
    }
}

fn write_piece(piece: Piece, moment: &Moment, now: Now<'_>, to: &mut String) {
    let time = &moment.time;
    let mut part = |number: i8, width| push_digits(to, number.unsigned_abs().into(), width);
    match piece {
        Piece::Year => push_digits(to, time.year().unsigned_abs().into(), 4),
        Piece::ShortYear => push_digits(to, u32::from(time.year().unsigned_abs()) % 100, 2),
        Piece::Month(width) => part(time.month(), width),
        Piece::MonthName => to.push_str(MONTHS[time.month() as usize - 1]),
        Piece::Day(width) => part(time.day(), width),
        Piece::Hour(width) => part(time.hour(), width),
        Piece::HalfHour(width) => part((time.hour() + 11) % 12 + 1, width),
        Piece::HalfDay => to.push_str(if time.hour() < 12 { "AM" } else { "PM" }),
        Piece::Minute(width) => part(time.minute(), width),
        Piece::Second(width) => part(time.second(), width),
        Piece::Fraction(width) => {
            let start = to.len();
            push_digits(to, time.subsec_nanosecond().unsigned_abs() / 1000, 6);
            to.truncate(start + width);
        }
        Piece::Offset { colon } => write_offset(moment.offset.or_else(|| now().offset).unwrap_or(0), colon, to),
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
    fn of_year(year: i16) -> Parts {
        Parts { year, month: 1, day: 1, hour: 0, afternoon: None, minute: 0, second: 0, nanosecond: 0, offset: None }
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
    let mut parts = Parts::of_year(digits.exactly(4)?.try_into().ok()?);
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

fn read_pattern(pieces: &[Piece], text: &str, now: Now<'_>) -> Option<Moment> {
    // A pattern without a year (a birthday in a list) means the present one.
    let has_year = pieces.iter().any(|piece| matches!(piece, Piece::Year | Piece::ShortYear));
    let mut parts = Parts::of_year(if has_year { 1 } else { now().time.year() });
    let mut digits = Digits(text.trim());
    let mut precision = 4;
    for piece in pieces {
        precision = precision.max(read_piece(*piece, &mut digits, &mut parts, now)?);
    }
    if digits.0.is_empty() { parts.moment(precision) } else { None }
}

/// Reads one part; answers how precise a time is that has it.
fn read_piece(piece: Piece, digits: &mut Digits<'_>, parts: &mut Parts, now: Now<'_>) -> Option<usize> {
    match piece {
        Piece::Year => parts.year = digits.exactly(4)?.try_into().ok()?,
        Piece::ShortYear => parts.year = century(digits.exactly(2)?.try_into().ok()?, now().time.year()),
        Piece::Month(width) => parts.month = digits.number(width)?,
        Piece::MonthName => parts.month = month_name(digits)?,
        Piece::Day(width) => parts.day = digits.number(width)?,
        Piece::Hour(width) => parts.hour = digits.number(width)?,
        Piece::HalfHour(width) => {
            parts.hour = digits.number(width)?;
            parts.afternoon.get_or_insert(false);
        }
        Piece::HalfDay => parts.afternoon = Some(afternoon(digits)?),
        Piece::Minute(width) => parts.minute = digits.number(width)?,
        Piece::Second(width) => parts.second = digits.number(width)?,
        Piece::Fraction(width) => parts.nanosecond = digits.fraction(width)?,
        Piece::Offset { .. } => parts.offset = Some(digits.offset()?),
        Piece::Literal(c) => digits.accept(c.encode_utf8(&mut [0; 4]))?,
    }
    Some(match piece {
        Piece::Year | Piece::ShortYear | Piece::Offset { .. } | Piece::Literal(_) => 4,
        Piece::Month(_) | Piece::MonthName => 6,
        Piece::Day(_) => 8,
        Piece::Hour(_) | Piece::HalfHour(_) | Piece::HalfDay => 10,
        Piece::Minute(_) => 12,
        Piece::Second(_) => 14,
        Piece::Fraction(width) => 15 + width,
    })
}

fn afternoon(digits: &mut Digits<'_>) -> Option<bool> {
    let half = digits.0.get(..2)?;
    let afternoon = half.eq_ignore_ascii_case("PM");
    if !afternoon && !half.eq_ignore_ascii_case("AM") {
        return None;
    }
    digits.0 = &digits.0[2..];
    Some(afternoon)
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
