//! [`Schedule`]: the hours of the week in which a rule counts, in a time zone.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Deserialize;

/// As `alerts.toml` has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleText {
    /// As `mon-fri` or `sat,sun`. Default: every day.
    days: Option<String>,
    /// As `7-19`: from 7:00 up to 19:00. Default: all day.
    hours: Option<String>,
    /// A name of the time zone database. Default: the machine's.
    zone: Option<String>,
}

/// Hours of the week.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Which days, from Monday.
    days: [bool; 7],
    /// From this hour up to that one.
    hours: (i8, i8),
    zone: TimeZone,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { days: [true; 7], hours: (0, 24), zone: TimeZone::UTC }
    }
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

fn day(name: &str) -> Result<usize, String> {
    let name = name.trim().to_ascii_lowercase();
    DAYS.iter().position(|day| *day == name).ok_or_else(|| format!("`{name}` is no day: write mon, tue, .. sun"))
}

impl Schedule {
    /// Errors: the fault in it.
    pub(super) fn of(text: &ScheduleText) -> Result<Schedule, String> {
        let mut days = [text.days.is_none(); 7];
        for part in text.days.iter().flat_map(|days| days.split(',')) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (day(first)?, day(last)?);
            // fri-mon goes over the end of the week.
            let count = (last + 7 - first) % 7 + 1;
            (0..count).for_each(|step| days[(first + step) % 7] = true);
        }
        let hours = match &text.hours {
            None => (0, 24),
            Some(hours) => {
                let hour = |text: &str| text.trim().parse::<i8>().ok().filter(|hour| (0..=24).contains(hour));
                let pair = hours.split_once('-').and_then(|(from, to)| Some((hour(from)?, hour(to)?)));
                pair.filter(|(from, to)| from < to)
                    .ok_or_else(|| format!("`{hours}` is no hours: write them as 7-19"))?
            }
        };
        let zone = match &text.zone {
            None => TimeZone::system(),
            Some(name) => TimeZone::get(name).map_err(|error| error.to_string())?,
        };
        Ok(Schedule { days, hours, zone })
    }

    fn at(&self, us: i64) -> Zoned {
        Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(self.zone.clone())
    }

    fn has_day(&self, day: Weekday) -> bool {
        self.days[usize::try_from(day.to_monday_zero_offset()).unwrap_or(0)]
    }

    /// Whether a moment, microseconds since 1970, is within it.
    pub fn contains(&self, us: i64) -> bool {
        let at = self.at(us);
        self.has_day(at.weekday()) && (self.hours.0..self.hours.1).contains(&at.hour())
    }

    /// When the hours began that a moment is in, microseconds since 1970; of a schedule without hours the moment of the day's begin counts
    /// only if the day before is not in it. `None`: the moment is not within it, or it has no begin.
    pub fn began_us(&self, us: i64) -> Option<i64> {
        if !self.contains(us) || (self.hours == (0, 24) && self.days == [true; 7]) {
            return None;
        }
        let mut day = self.at(us);
        // Whole days follow each other without an end.
        for _ in 0..7 {
            let before = day.yesterday().ok()?;
            if self.hours != (0, 24) || !self.has_day(before.weekday()) {
                break;
            }
            day = before;
        }
        let begin = day.date().at(self.hours.0, 0, 0, 0).to_zoned(self.zone.clone()).ok()?;
        Some(begin.timestamp().as_microsecond())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Result<Schedule, String> {
        Schedule::of(&toml::from_str(text).map_err(|error| error.to_string())?)
    }

    fn us(text: &str) -> i64 {
        text.parse::<Timestamp>().expect("a time").as_microsecond()
    }

    #[test]
    fn days_and_hours_are_those_of_the_zone_also_when_its_clocks_change() {
        let office = schedule("days = 'mon-fri'\nhours = '7-19'\nzone = 'Europe/Berlin'").expect("it can work");
        // Friday 2026-03-27 is in winter time (UTC+1), Monday 2026-03-30 in summer time (UTC+2).
        for (at, within, began) in [
            ("2026-03-27T05:59:00Z", false, None),
            ("2026-03-27T06:00:00Z", true, Some("2026-03-27T06:00:00Z")),
            ("2026-03-27T17:59:00Z", true, Some("2026-03-27T06:00:00Z")),
            ("2026-03-27T18:00:00Z", false, None),
            ("2026-03-28T10:00:00Z", false, None),
            ("2026-03-30T05:00:00Z", true, Some("2026-03-30T05:00:00Z")),
            ("2026-03-30T04:59:00Z", false, None),
        ] {
            assert_eq!((office.contains(us(at)), office.began_us(us(at))), (within, began.map(us)), "{at}");
        }
        let weekend = schedule("days = 'sat,sun'\nzone = 'UTC'").expect("it can work");
        assert_eq!(weekend.began_us(us("2026-03-29T12:00:00Z")), Some(us("2026-03-28T00:00:00Z")));
        assert_eq!(Schedule::default().began_us(us("2026-03-29T12:00:00Z")), None);
        assert!(schedule("days = 'fri-mon'\nzone = 'UTC'").expect("it can work").contains(us("2026-03-29T12:00:00Z")));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (text, why) in [
            ("days = 'monday'", "no day"),
            ("hours = '19-7'", "7-19"),
            ("hours = '7-25'", "7-19"),
            ("zone = 'Nowhere/City'", "Nowhere"),
            ("minutes = 1", "minutes"),
        ] {
            let told = schedule(text).expect_err("it cannot work");
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
