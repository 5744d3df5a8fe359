//! Times in messages: patterns such as `yyyyMMddHHmm`, and HL7's own form of any precision.
//!
//! ```text
//! HL7:       YYYY[MM[DD[HH[MM[SS[.S[S[S[S]]]]]]]]][+/-ZZZZ]          (v2.5.1, 2.A.22 DTM)
//! patterns:  yyyy yy  MM M MMM  dd d  HH H hh h  mm m  ss s  S..SSSSSS  a  Z (and X three times)  'text'
//! ```
//!
//! A time is a local time, with the offset that was written beside it, if any; a change of form never converts it to
//! another zone. `now` is in the zone of the context.
//!
//! Invariant: a time knows which of its parts were written, and no other part is ever written out: `199007` has no day.
//! Only a form that ends in ` first` fills missing parts with their first value: 01 for month and day, 00 for the rest.
//! An offset that was not written is that of the context's zone at that time; this needs the hour.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Span as Length, Timestamp, Zoned, tz::TimeZone};

/// A local time, the offset written beside it in seconds, and which parts of it were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    time: DateTime,
    offset: Option<i32>,
    /// Characters of the HL7 form: 4 year, 6 month, 8 day, 10 hour, 12 minute, 14 second, then `.` and digits. None: it
    /// cannot be written so, since a part before a known one is not known.
    precision: Option<usize>,
    known: Known,
}

/// Which parts of a time are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    parts: u8,
    /// Digits of the second's fraction, 0 to 6.
    fraction: usize,
}

impl Known {
    const YEAR: u8 = 1;
    const MONTH: u8 = 2;
    const DAY: u8 = 4;
    const HOUR: u8 = 8;
    const MINUTE: u8 = 16;
    const SECOND: u8 = 32;
    const ALL: Known = Known { parts: 63, fraction: 6 };
    const NONE: Known = Known { parts: 0, fraction: 0 };

    fn has(self, parts: u8) -> bool {
        self.parts & parts == parts
    }

    /// See [`Moment::precision`].
    fn precision(self) -> Option<usize> {
        // Known from the year on without a gap: the bits are ones from the lowest up.
        let count = self.parts.trailing_ones();
        let whole = self.parts != 0 && u32::from(self.parts) + 1 == 1 << count;
        let fraction = if self.fraction > 0 { 1 + self.fraction } else { 0 };
        (whole && (fraction == 0 || self.has(Known::SECOND))).then_some(2 + 2 * count as usize + fraction)
    }
}

/// The present, computed only when a form needs it, and the zone of times without an offset.
pub(super) struct Present<'n> {
    pub(super) now: &'n dyn Fn() -> Moment,
    pub(super) zone: &'n TimeZone,
}

/// How a time is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    notation: Notation,
    /// When read: missing parts are filled with their first value, and a missing year with the present one.
    first: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Notation {
    /// HL7's own, in the precision of the time that was read.
    Hl7,
    Pattern(Vec<Piece>),
}

/// Why a value could not be read as a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It does not match the form, or is no possible time.
    NotATime,
    /// It is a time, but has not all requested parts.
    Imprecise,
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

/// The unit that `add_days` and similar functions add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Minutes,
    Hours,
    Days,
    Months,
}

impl Form {
    /// HL7's own, of any precision.
    pub(super) const HL7: Form = Form { notation: Notation::Hl7, first: false };

    /// The form that times are read in; the error describes the fault in it.
    pub(super) fn to_read(pattern: &str) -> Result<Form, String> {
        let (pattern, first) = pattern.strip_suffix(" first").map_or((pattern, false), |pattern| (pattern, true));
        let form = Form { first, ..Form::parse(pattern)? };
        if let Notation::Pattern(pieces) = &form.notation {
            let half_hour = pieces.iter().any(|piece| matches!(piece, Piece::HalfHour(_)));
            if half_hour != pieces.contains(&Piece::HalfDay) {
                return Err("`h` and `a` are read together: an hour of half a day does not say which half".to_owned());
            }
        }
        Ok(form)
    }

    /// The form that times are written in; the error describes the fault in it.
    pub(super) fn to_write(pattern: &str) -> Result<Form, String> {
        if pattern.ends_with(" first") {
            return Err("`first` is of the form that is read".to_owned());
        }
        Form::parse(pattern)
    }

    fn parse(pattern: &str) -> Result<Form, String> {
        if pattern == "hl7" {
            return Ok(Form::HL7);
        }
        let mut pieces = Vec::new();
        let mut rest = pattern;
        while let Some(first) = rest.chars().next() {
            if first == '\'' {
                let (text, after) = rest[1..].split_once('\'').ok_or("the text after ' has no closing '")?;
                // Two quotes in a row are one quote, as in Java's patterns.
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
        Ok(Form { notation: Notation::Pattern(pieces), first: false })
    }

    /// Reads a time that was written in this form; the present decides the century of a year with two digits.
    pub(super) fn read(&self, text: &str, present: &Present<'_>) -> Result<Moment, Unfit> {
        let moment = match &self.notation {
            Notation::Hl7 => read_hl7(text),
            Notation::Pattern(pieces) => read_pattern(pieces, text, self.first, present),
        };
        let moment = moment.ok_or(Unfit::NotATime)?;
        Ok(if self.first { Moment { known: Known::ALL, ..moment } } else { moment })
    }

    /// Writes a time in this form.
    pub(super) fn write(&self, moment: &Moment, present: &Present<'_>, to: &mut String) -> Result<(), Unfit> {
        match &self.notation {
            Notation::Hl7 => moment.write_hl7(to),
            Notation::Pattern(pieces) => pieces.iter().try_for_each(|piece| write_piece(*piece, moment, present, to)),
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
        let offset = Some(zoned.offset().seconds());
        Moment { time: zoned.datetime(), offset, precision: Some(14), known: Known::ALL }
    }

    /// The same form, later (or earlier, for a negative `amount`). Not a time outside the years 0 to 9999; imprecise where
    /// the unit itself is not known.
    pub(super) fn add(&self, unit: Unit, amount: i32) -> Result<Moment, Unfit> {
        let needed = match unit {
            Unit::Minutes => Known::MINUTE,
            Unit::Hours => Known::HOUR,
            Unit::Days => Known::DAY,
            Unit::Months => Known::MONTH,
        };
        if !self.known.has(needed) {
            return Err(Unfit::Imprecise);
        }
        let time = match unit {
            Unit::Minutes => self.time.checked_add(SignedDuration::from_mins(amount.into())),
            Unit::Hours => self.time.checked_add(SignedDuration::from_hours(amount.into())),
            Unit::Days => self.time.checked_add(SignedDuration::from_hours(i64::from(amount) * 24)),
            // Years 0 to 9999 are fewer than 120,000 months.
            Unit::Months if amount.abs() < 120_000 => self.time.checked_add(Length::new().months(amount)),
            Unit::Months => return Err(Unfit::NotATime),
        };
        let time = time.ok().filter(|time| (0..=9999).contains(&time.year())).ok_or(Unfit::NotATime)?;
        Ok(Moment { time, ..*self })
    }

    fn write_hl7(&self, to: &mut String) -> Result<(), Unfit> {
        let precision = self.precision.ok_or(Unfit::Imprecise)?;
        let time = &self.time;
        let start = to.len();
        push_digits(to, time.year().unsigned_abs().into(), 4);
        for part in [time.month(), time.day(), time.hour(), time.minute(), time.second()] {
            push_digits(to, part.unsigned_abs().into(), 2);
        }
        to.push('.');
        push_digits(to, time.subsec_nanosecond().unsigned_abs() / 1000, 6);
        to.truncate(start + precision.min(21));
        if let Some(offset) = self.offset {
            write_offset(offset, false, to);
        }
        Ok(())
    }

    /// The offset written beside it, else that of the zone at that time: of two, the earlier. It needs the hour.
    fn offset_in(&self, zone: &TimeZone) -> Result<i32, Unfit> {
        match self.offset {
            Some(offset) => Ok(offset),
            None if self.known.has(Known::YEAR | Known::MONTH | Known::DAY | Known::HOUR) => {
                let zoned = self.time.to_zoned(zone.clone()).map_err(|_| Unfit::NotATime)?;
                Ok(zoned.offset().seconds())
            }
            None => Err(Unfit::Imprecise),
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

/// Writes one part, if the time knows it.
fn write_piece(piece: Piece, moment: &Moment, present: &Present<'_>, to: &mut String) -> Result<(), Unfit> {
    let known = match piece {
        Piece::Fraction(width) => moment.known.fraction >= width,
        piece => moment.known.has(piece.part()),
    };
    if !known {
        return Err(Unfit::Imprecise);
    }
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
        Piece::Offset { colon } => write_offset(moment.offset_in(present.zone)?, colon, to),
        Piece::Literal(c) => to.push(c),
    }
    Ok(())
}

impl Piece {
    /// Which part of a time it is; 0 if it is none of them.
    fn part(self) -> u8 {
        match self {
            Piece::Year | Piece::ShortYear => Known::YEAR,
            Piece::Month(_) | Piece::MonthName => Known::MONTH,
            Piece::Day(_) => Known::DAY,
            Piece::Hour(_) | Piece::HalfHour(_) | Piece::HalfDay => Known::HOUR,
            Piece::Minute(_) => Known::MINUTE,
            Piece::Second(_) => Known::SECOND,
            Piece::Fraction(_) | Piece::Offset { .. } | Piece::Literal(_) => 0,
        }
    }
}

/// The parts of a time that have been read.
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

    fn moment(self, known: Known) -> Option<Moment> {
        let hour = match self.afternoon {
            Some(_) if !(1..=12).contains(&self.hour) => return None,
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let time = DateTime::new(self.year, self.month, self.day, hour, self.minute, self.second, self.nanosecond);
        Some(Moment { time: time.ok()?, offset: self.offset, precision: known.precision(), known })
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
    let mut known = Known { parts: Known::YEAR, fraction: 0 };
    let steps = [&mut parts.month, &mut parts.day, &mut parts.hour, &mut parts.minute, &mut parts.second];
    for step in steps {
        if !digits.0.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        *step = digits.number(2)?;
        known.parts = known.parts << 1 | 1;
    }
    if known.has(Known::SECOND) && digits.accept(".").is_some() {
        known.fraction = digits.0.bytes().take(6).take_while(u8::is_ascii_digit).count();
        parts.nanosecond = digits.fraction(known.fraction)?;
    }
    if !digits.0.is_empty() {
        parts.offset = Some(digits.offset()?);
    }
    if digits.0.is_empty() { parts.moment(known) } else { None }
}

fn read_pattern(pieces: &[Piece], text: &str, first: bool, present: &Present<'_>) -> Option<Moment> {
    // Without a written year, a day of any year may be meant: it is kept in a year that has a 29 February.
    let mut parts = Parts::of_year(if first { (present.now)().time.year() } else { 2000 });
    let mut digits = Digits(text.trim());
    let mut known = Known::NONE;
    for piece in pieces {
        read_piece(*piece, &mut digits, &mut parts, present)?;
        known.parts |= piece.part();
        if let Piece::Fraction(width) = piece {
            known.fraction = *width;
        }
    }
    if digits.0.is_empty() { parts.moment(known) } else { None }
}

/// Reads one part.
fn read_piece(piece: Piece, digits: &mut Digits<'_>, parts: &mut Parts, present: &Present<'_>) -> Option<()> {
    match piece {
        Piece::Year => parts.year = digits.exactly(4)?.try_into().ok()?,
        Piece::ShortYear => parts.year = century(digits.exactly(2)?.try_into().ok()?, (present.now)().time.year()),
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
    Some(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `text`, read in one form and written in another, in a zone that has summer time (IEEE 1003.1, TZ).
    fn made(text: &str, from: &str, to: &str) -> Result<String, Unfit> {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        let now = || Moment::now("2026-07-01T10:00:00Z".parse().expect("a time"), &zone);
        let present = Present { now: &now, zone: &zone };
        let (from, to) = (Form::to_read(from).expect("a form"), Form::to_write(to).expect("a form"));
        let moment = from.read(text, &present)?;
        let mut out = String::new();
        to.write(&moment, &present, &mut out).map(|()| out)
    }

    #[test]
    fn no_part_of_a_time_is_written_that_was_not_read_unless_it_is_asked_for() {
        let cases = [
            ("1991", "hl7", "yyyy-MM-dd", None),
            ("1991", "hl7", "yyyy", Some("1991")),
            ("199107", "hl7", "yyyy-MM-dd", None),
            ("19910704", "hl7", "yyyyMMddHHmm", None),
            ("19910704", "hl7", "HH", None),
            ("1991070412", "hl7", "yyyyMMddHHmm", None),
            ("199107041230", "hl7", "HH:mm:ss", None),
            ("19910704123015", "hl7", "ss.SSS", None),
            ("19910704123015.12", "hl7", "ss.SSS", None),
            ("19910704123015.125", "hl7", "ss.SS", Some("15.12")),
            ("04.07.", "dd.MM.", "yyyyMMdd", None),
            ("29.02.", "dd.MM.", "MM/dd", Some("02/29")),
            ("12:30", "HH:mm", "hl7", None),
            ("1991 12", "yyyy HH", "hl7", None),
            ("07.1991", "MM.yyyy", "hl7", Some("199107")),
            ("1991", "hl7 first", "yyyy-MM-dd", Some("1991-01-01")),
            ("1991", "hl7 first", "yyyyMMddHHmmss.SSS", Some("19910101000000.000")),
            ("1991", "hl7 first", "hl7", Some("1991")),
            ("04.07.", "dd.MM. first", "yyyyMMdd", Some("20260704")),
        ];
        for (text, from, to, expected) in cases {
            let expected = expected.map(str::to_owned).ok_or(Unfit::Imprecise);
            assert_eq!(made(text, from, to), expected, "{text} from {from} to {to}");
        }
    }

    #[test]
    fn an_offset_that_was_not_written_is_the_zones_at_that_time_and_needs_the_hour() {
        let cases = [
            ("20260101120000", Some("+0100")),
            ("20260701120000", Some("+0200")),
            ("2026070112", Some("+0200")),
            ("20260701120000-0500", Some("-0500")),
            ("20260701", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(str::to_owned).ok_or(Unfit::Imprecise);
            assert_eq!(made(text, "hl7", "Z"), expected, "{text}");
        }
    }

    #[test]
    fn what_is_added_needs_a_part_that_was_written() {
        let zone = TimeZone::UTC;
        let now = || Moment::now(Timestamp::UNIX_EPOCH, &zone);
        let present = Present { now: &now, zone: &zone };
        let cases = [
            ("1991", Unit::Months, false),
            ("199107", Unit::Months, true),
            ("199107", Unit::Days, false),
            ("19910704", Unit::Days, true),
            ("19910704", Unit::Hours, false),
            ("1991070412", Unit::Minutes, false),
            ("199107041230", Unit::Minutes, true),
        ];
        for (text, unit, fits) in cases {
            let moment = Form::HL7.read(text, &present).expect("a time");
            assert_eq!(moment.add(unit, 1).is_ok(), fits, "{unit:?} to {text}");
        }
    }

    #[test]
    fn a_form_that_cannot_be_meant_is_refused_when_it_is_loaded() {
        assert!(Form::to_read("hh:mm").is_err(), "which half of the day");
        assert!(Form::to_read("HH:mm a").is_err(), "a half of what");
        assert!(Form::to_read("hh:mm a").is_ok() && Form::to_write("hh:mm").is_ok());
        assert!(Form::to_write("yyyyMMdd first").is_err());
    }
}
