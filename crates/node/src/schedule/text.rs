//! The parts of a schedule as they are written: `"Mon-Fri 07:00-19:00"`, `"Europe/Zurich"`, `"2026-12-25"`. Each reads back as it prints.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::MINUTES;

const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

/// A window on days of the week: `"Mon-Fri 07:00-19:00"`, `"Mon,Wed 08:00-12:00"`, `"Fri 22:00-06:00"` up to Saturday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTime {
    /// Bit 0 is Monday.
    days: u8,
    /// Minutes from midnight, below a day.
    pub(super) from: u16,
    /// Minutes from the same midnight, above `from` and below two days.
    pub(super) to: u16,
}

impl OpenTime {
    /// Whether it begins on such a day.
    pub(super) fn is_on(self, day: Weekday) -> bool {
        self.days & (1 << day.to_monday_zero_offset()) != 0
    }
}

fn day(text: &str) -> Result<usize, String> {
    let known = DAYS.iter().position(|(name, _)| *name == text);
    known.ok_or_else(|| format!("`{text}` is no day: there are Mon, Tue, Wed, Thu, Fri, Sat and Sun"))
}

fn days(text: &str) -> Result<u8, String> {
    let mut days = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        loop {
            days |= 1 << at;
            if at == last {
                break;
            }
            at = (at + 1) % DAYS.len();
        }
    }
    Ok(days)
}

fn minutes(text: &str) -> Result<u16, String> {
    let wrong = || format!("`{text}` is no time of day: write HH:MM, from 00:00 to 24:00");
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |part: &str| {
        let is_plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u16>().ok().filter(|_| is_plain)
    };
    let (hour, minute) = (number(hour).ok_or_else(wrong)?, number(minute).ok_or_else(wrong)?);
    let all = hour * 60 + minute;
    if minute < 60 && all <= MINUTES { Ok(all) } else { Err(wrong()) }
}

impl FromStr for OpenTime {
    type Err = String;
    fn from_str(text: &str) -> Result<OpenTime, String> {
        let shape = || format!("`{text}` is no open time: write days and times, as in \"Mon-Fri 07:00-19:00\"");
        let (of_days, times) = text.split_once(' ').ok_or_else(shape)?;
        let (from, to) = times.trim().split_once('-').ok_or_else(shape)?;
        let (days, from, mut to) = (days(of_days)?, minutes(from)?, minutes(to)?);
        if from == MINUTES || from == to {
            return Err(format!("`{text}` is never open: a whole day is 00:00-24:00"));
        }
        if to < from {
            to += MINUTES;
        }
        Ok(OpenTime { days, from, to })
    }
}

impl fmt::Display for OpenTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_on = |at: usize| self.days & (1 << at) != 0;
        let (mut at, mut separator) = (0, "");
        while at < DAYS.len() {
            if !is_on(at) {
                at += 1;
                continue;
            }
            let first = at;
            while at + 1 < DAYS.len() && is_on(at + 1) {
                at += 1;
            }
            write!(f, "{separator}{}", DAYS[first].0)?;
            if at > first {
                write!(f, "-{}", DAYS[at].0)?;
            }
            (at, separator) = (at + 1, ",");
        }
        // The end of a day is written 24:00, unless that is the next one's begin.
        let to = if self.to > MINUTES { self.to - MINUTES } else { self.to };
        write!(f, " {:02}:{:02}-{:02}:{:02}", self.from / 60, self.from % 60, to / 60, to % 60)
    }
}

/// A time zone by its name in the IANA database, as `"Europe/Zurich"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneName(pub TimeZone);

impl FromStr for ZoneName {
    type Err = String;
    fn from_str(text: &str) -> Result<ZoneName, String> {
        TimeZone::get(text).map(ZoneName).map_err(|_| {
            format!("`{text}` is no time zone: names are those of the IANA database, as \"Europe/Zurich\" or \"UTC\"")
        })
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.iana_name().unwrap_or("UTC"))
    }
}

/// A date on which nothing is open, as `"2026-12-25"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HolidayDate(pub Date);

impl FromStr for HolidayDate {
    type Err = String;
    fn from_str(text: &str) -> Result<HolidayDate, String> {
        let date = Date::strptime("%Y-%m-%d", text).ok().map(HolidayDate);
        // One way to write a date: a file that is read by people has no second one.
        let date = date.filter(|date| date.to_string() == text);
        date.ok_or_else(|| format!("`{text}` is no date: write it as \"2026-12-25\""))
    }
}

impl fmt::Display for HolidayDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

struct Text<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, as in \"Mon-Fri 07:00-19:00\", \"Europe/Zurich\" or \"2026-12-25\"")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! serde_as_text {
    ($($kind:ty),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_str(Text::<$kind>(std::marker::PhantomData))
            }
        }
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
    )*};
}
serde_as_text!(OpenTime, ZoneName, HolidayDate);
