//! [`Schedule`]: when a service or an operation works, by weekday, time of day and time zone. Pure: the time is passed in.
//!
//! ```toml
//! [schedule]
//! open = ["Mon-Fri 07:00-19:00", "Sat 08:00-12:00"]     # windows: they may overlap, and go beyond midnight ("Fri 22:00-06:00")
//! zone = "Europe/Zurich"
//! holidays = ["2026-12-25"]                             # nothing is open on these dates
//! ```
//!
//! ```text
//!   date + window --zone--> [first moment at which clocks there show its begin, last moment at which they show its end)
//!   a moment      --------> open: in one of them; until when: the end of the last one that touches it; else the next begin
//! ```
//!
//! Invariants:
//! 1. A window opens once and closes once, also on a day on which clocks change. Of a time that clocks show twice, the first counts for the
//!    begin and the last for the end: such a window is an hour longer. A time that clocks leave out is the moment at which they leave it
//!    out: such a window is shorter, and one that lies in what is left out is not open on that day.
//! 2. A window belongs to the date on which it begins. On a holiday none begins, and one from the day before ends at its midnight.
//! 3. What is open, and until when, depends on the schedule and the moment alone. So there is nothing to keep across a restart.
//!
//! Not here: who acts on it (a lane, a listener, backups), and orders of people that win over it.

mod text;

use std::collections::BTreeSet;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

pub use text::{HolidayDate, OpenTime, ZoneName};

/// Windows of a schedule at most.
pub const WINDOWS_MAX: usize = 64;

/// Holidays of a schedule at most: those of some years.
pub const HOLIDAYS_MAX: usize = 400;

/// Days over which the end of an open time is looked for: what is open for longer counts as open for ever.
const OPEN_DAYS_MAX: usize = 800;

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ScheduleText")]
pub struct Schedule {
    open: Vec<OpenTime>,
    zone: ZoneName,
    holidays: BTreeSet<HolidayDate>,
}

/// A schedule as it is written, each part of it readable.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleText {
    open: Vec<OpenTime>,
    zone: ZoneName,
    #[serde(default)]
    holidays: Vec<HolidayDate>,
}

impl TryFrom<ScheduleText> for Schedule {
    type Error = String;
    fn try_from(text: ScheduleText) -> Result<Schedule, String> {
        let ScheduleText { open, zone, holidays } = text;
        if open.is_empty() {
            return Err("`open` is empty: it would never be open; leave the table out for no schedule".to_owned());
        }
        if open.len() > WINDOWS_MAX || holidays.len() > HOLIDAYS_MAX {
            return Err(format!("a schedule has {WINDOWS_MAX} windows and {HOLIDAYS_MAX} holidays at most"));
        }
        Ok(Schedule { open, zone, holidays: holidays.into_iter().collect() })
    }
}

/// What a schedule says about a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleState {
    /// Whether it is open.
    pub is_open: bool,
    /// When that changes, microseconds since 1970; none: never, as far as can be seen.
    pub changes_us: Option<i64>,
}

/// Which of two moments at which clocks show the same time.
#[derive(Clone, Copy)]
enum Doubled {
    First,
    Last,
}

impl Schedule {
    /// Its time zone.
    pub fn zone(&self) -> &TimeZone {
        &self.zone.0
    }

    /// Whether it is open at a moment, microseconds since 1970, and until when that stays so.
    pub fn at(&self, now_us: i64) -> ScheduleState {
        match self.end_of(now_us) {
            Some(first) => {
                let (mut end, last) = (first, now_us.saturating_add(OPEN_DAYS_MAX as i64 * DAY_US));
                while let Some(next) = self.end_of(end) {
                    end = next;
                    if end > last {
                        return ScheduleState { is_open: true, changes_us: None };
                    }
                }
                ScheduleState { is_open: true, changes_us: Some(end) }
            }
            None => ScheduleState { is_open: false, changes_us: self.next_begin(now_us) },
        }
    }

    /// Whether it is open at a moment: the same as by [`at`](Schedule::at), for who asks for each message.
    pub fn is_open(&self, now_us: i64) -> bool {
        self.end_of(now_us).is_some()
    }

    /// The begin of the window that is open at a moment, of several the last one; none where it is closed.
    pub fn window_begin(&self, now_us: i64) -> Option<i64> {
        let windows = self.dates_around(now_us).into_iter().flat_map(|date| self.windows_of(date));
        windows.filter(|(begin, end)| (*begin..*end).contains(&now_us)).map(|(begin, _)| begin).max()
    }

    /// Why something does not work at a moment, in words: `outside its schedule until Mon 07:00`, the time in its zone, with the date where it
    /// is more than six days away. None where it is open.
    pub fn words(&self, now_us: i64) -> Option<String> {
        if self.is_open(now_us) {
            return None;
        }
        Some(match self.next_begin(now_us) {
            Some(at_us) => format!("outside its schedule until {}", self.time_words(now_us, at_us)),
            None => "outside its schedule, which is never open again".to_owned(),
        })
    }

    /// A moment as people of its zone write it, seen from another one.
    pub fn time_words(&self, now_us: i64, at_us: i64) -> String {
        let at = timestamp(at_us).to_zoned(self.zone.0.clone());
        let is_near = at_us.saturating_sub(now_us) < 6 * DAY_US;
        at.strftime(if is_near { "%a %H:%M" } else { "%Y-%m-%d %H:%M" }).to_string()
    }

    /// The latest end of the windows that are open at a moment.
    fn end_of(&self, at_us: i64) -> Option<i64> {
        let windows = self.dates_around(at_us).into_iter().flat_map(|date| self.windows_of(date));
        windows.filter(|(begin, end)| (*begin..*end).contains(&at_us)).map(|(_, end)| end).max()
    }

    /// The first begin behind a moment.
    fn next_begin(&self, at_us: i64) -> Option<i64> {
        let mut date = self.dates_around(at_us).first().copied()?;
        // A week has each window at least once, unless its dates are holidays or clocks leave it out.
        for _ in 0..7 * (self.holidays.len() + 3) {
            let begins = self.windows_of(date).map(|(begin, _)| begin);
            if let Some(next) = begins.filter(|begin| *begin > at_us).min() {
                return Some(next);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The dates whose windows may be open at a moment: its own, and those before.
    fn dates_around(&self, at_us: i64) -> Vec<Date> {
        let today = self.zone.0.to_datetime(timestamp(at_us)).date();
        (0..=2).rev().filter_map(|days| today.checked_sub(days.days()).ok()).collect()
    }

    /// The windows that begin on a date.
    fn windows_of(&self, date: Date) -> impl Iterator<Item = (i64, i64)> + '_ {
        let is_holiday = self.holidays.contains(&HolidayDate(date));
        let open = self.open.iter().filter(move |window| !is_holiday && window.is_on(date.weekday()));
        open.filter_map(move |window| {
            let begin = self.moment(date, window.from, Doubled::First)?;
            let next = date.tomorrow().ok()?;
            let is_cut = window.to > MINUTES && self.holidays.contains(&HolidayDate(next));
            let end = self.moment(date, if is_cut { MINUTES } else { window.to }, Doubled::Last)?;
            (begin < end).then_some((begin, end))
        })
    }

    /// The moment at which clocks show a time, in minutes from the midnight at which a date begins, up to the next day.
    fn moment(&self, date: Date, minute: u16, doubled: Doubled) -> Option<i64> {
        let days = i32::from(minute / MINUTES);
        let (hour, minute) = (minute % MINUTES / 60, minute % 60);
        let date = date.checked_add(days.days()).ok()?;
        let time =
            DateTime::from_parts(date, jiff::civil::time(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0));
        let ambiguous = self.zone.0.to_ambiguous_timestamp(time);
        let moment = match (ambiguous.offset(), doubled) {
            (AmbiguousOffset::Gap { .. }, _) => {
                let before = ambiguous.earlier().ok()?;
                self.zone.0.following(before).next()?.timestamp()
            }
            (_, Doubled::First) => ambiguous.earlier().ok()?,
            (_, Doubled::Last) => ambiguous.later().ok()?,
        };
        Some(moment.as_microsecond())
    }
}

/// Minutes of a day.
pub(crate) const MINUTES: u16 = 24 * 60;

fn timestamp(us: i64) -> Timestamp {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
