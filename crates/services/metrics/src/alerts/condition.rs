//! [`Condition`]: what a rule is about, read from `queue_age > 5m`, and found in the figures of a moment.
//!
//! | condition | subject | holds if |
//! |---|---|---|
//! | `queue_age > TIME` | operation | its oldest message has waited longer |
//! | `queue_messages > N` | operation | more deliveries wait |
//! | `suspended` | operation | it stands still |
//! | `failed > N` | operation | more deliveries were given up within ten minutes |
//! | `silent > TIME` | service | no message came for longer, within the hours of the rule |
//! | `errored > N`, `refused > N` | service | more messages were stopped by an error, or refused, within ten minutes |
//! | `disk_free < SIZE` | tier | less space is free where it lies |
//! | `volume_degraded` | volume | a copy is missing or out |
//! | `not_ready`, `trouble` | node, matter | messages are not taken; the node has a trouble |

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::schedule::Schedule;
use crate::samples::Samples;

/// What a condition is about: an operation, a service, a tier, a volume, a matter.
pub type Subject = String;

/// Counters are compared with what they were so long ago.
const WITHIN_US: i64 = 600_000_000;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Condition {
    /// Seconds.
    QueueAge(f64),
    /// Deliveries.
    QueueMessages(f64),
    /// It stands still.
    Suspended,
    /// Deliveries given up within ten minutes.
    Failed(f64),
    /// Seconds.
    Silent(f64),
    /// Messages within ten minutes.
    Errored(f64),
    /// Messages within ten minutes.
    Refused(f64),
    /// Bytes.
    DiskFree(f64),
    /// A copy is missing or out.
    VolumeDegraded,
    /// Messages are not taken.
    NotReady,
    /// The node has a trouble.
    Trouble,
}

/// A time as `90s`, `5m`, `2h`, `1d`. Errors: it is none.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];
    let read =
        units.iter().find_map(|(unit, of)| Some(text.strip_suffix(unit)?.trim().parse::<u32>().ok()? as f64 * of));
    read.ok_or_else(|| format!("`{text}` is no time: write it as 90s, 5m, 2h or 1d"))
}

/// The same as a duration.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    seconds(text).map(Duration::from_secs_f64)
}

fn number(text: &str) -> Result<f64, String> {
    text.parse::<u64>().map(|number| number as f64).map_err(|_| format!("`{text}` is no number"))
}

fn size(text: &str) -> Result<f64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let read = units.iter().find_map(|(unit, shift)| {
        Some(text.strip_suffix(unit)?.trim().parse::<u32>().ok()? as f64 * (1u64 << shift) as f64)
    });
    read.ok_or_else(|| format!("`{text}` is no size: write it as 10GiB"))
}

impl std::str::FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let (name, comparison) = match text.split_once(['>', '<']) {
            None => (text.trim(), None),
            Some((name, value)) => (name.trim(), Some((text.contains('<'), value.trim()))),
        };
        let known = "queue_age, queue_messages, suspended, failed, silent, errored, refused, disk_free, volume_degraded, not_ready, trouble";
        match (name, comparison) {
            ("queue_age", Some((false, value))) => seconds(value).map(Condition::QueueAge),
            ("queue_messages", Some((false, value))) => number(value).map(Condition::QueueMessages),
            ("failed", Some((false, value))) => number(value).map(Condition::Failed),
            ("silent", Some((false, value))) => seconds(value).map(Condition::Silent),
            ("errored", Some((false, value))) => number(value).map(Condition::Errored),
            ("refused", Some((false, value))) => number(value).map(Condition::Refused),
            ("disk_free", Some((true, value))) => size(value).map(Condition::DiskFree),
            ("suspended", None) => Ok(Condition::Suspended),
            ("volume_degraded", None) => Ok(Condition::VolumeDegraded),
            ("not_ready", None) => Ok(Condition::NotReady),
            ("trouble", None) => Ok(Condition::Trouble),
            ("disk_free", _) => Err("`disk_free` is compared with `<`, as disk_free < 10GiB".to_owned()),
            ("queue_age" | "queue_messages" | "failed" | "silent" | "errored" | "refused", _) => Err(format!(
                "`{name}` is compared with `>`, as {name} > {}",
                if matches!(name, "queue_age" | "silent") { "5m" } else { "0" }
            )),
            ("suspended" | "volume_degraded" | "not_ready" | "trouble", Some(_)) => {
                Err(format!("`{name}` has no value: leave the comparison out"))
            }
            _ => Err(format!("`{name}` is no condition: there are {known}")),
        }
    }
}

/// What counters were at earlier looks.
#[derive(Debug, Default)]
pub struct Look {
    counters: BTreeMap<(&'static str, String), VecDeque<(i64, f64)>>,
}

impl Look {
    /// How much a counter has grown within the last ten minutes, as far as it was looked at; a restart begins at 0.
    fn growth(&mut self, what: (&'static str, &str), now_us: i64, value: f64) -> f64 {
        let seen = self.counters.entry((what.0, what.1.to_owned())).or_default();
        if seen.back().is_some_and(|(_, before)| *before > value) {
            seen.clear();
            seen.push_back((now_us, 0.0));
        }
        if seen.back().is_none_or(|(at, _)| *at < now_us) {
            seen.push_back((now_us, value));
        }
        while seen.len() > 1 && seen.front().is_some_and(|(at, _)| *at < now_us - WITHIN_US) {
            seen.pop_front();
        }
        value - seen.front().map_or(value, |(_, first)| *first)
    }
}

impl Condition {
    /// The subjects for which it holds now, each with what is the matter, in words.
    pub fn holds(
        &self,
        samples: &Samples,
        schedule: &Schedule,
        now_us: i64,
        look: &mut Look,
    ) -> BTreeMap<Subject, String> {
        let now = now_us as f64 / 1e6;
        let one = |name: &str| -> Vec<(Subject, f64)> {
            let label = |labels: Vec<String>| labels.into_iter().next().unwrap_or_else(|| "node".to_owned());
            samples.values(name).into_iter().map(|(labels, value)| (label(labels), value)).collect()
        };
        let of = |found: Vec<(Subject, f64)>, holds: &dyn Fn(f64) -> bool, says: &dyn Fn(f64) -> String| {
            found
                .into_iter()
                .filter(|(_, value)| holds(*value))
                .map(|(subject, value)| (subject, says(value)))
                .collect()
        };
        match *self {
            Condition::QueueAge(most) => {
                let age = |(subject, since): (Subject, f64)| (subject, now - since);
                let ages = one("terrace_queue_oldest_timestamp_seconds").into_iter().map(age).collect();
                of(ages, &|age| age > most, &|age| format!("the oldest message has waited {}", in_words(age)))
            }
            Condition::QueueMessages(most) => {
                of(one("terrace_queue_messages"), &|n| n > most, &|n| format!("{n} deliveries wait"))
            }
            Condition::Suspended => {
                of(one("terrace_operation_suspended"), &|is| is > 0.0, &|_| "stands still".to_owned())
            }
            Condition::Failed(most) => grown(samples, look, now_us, ("terrace_deliveries_total", "failed"), most),
            Condition::Errored(most) => {
                grown(samples, look, now_us, ("terrace_messages_received_total", "errored"), most)
            }
            Condition::Refused(most) => {
                grown(samples, look, now_us, ("terrace_messages_received_total", "refused"), most)
            }
            Condition::Silent(most) => silent(samples, schedule, now_us, most),
            Condition::DiskFree(least) => of(one("terrace_disk_free_bytes"), &|free| free < least, &|free| {
                format!("{:.1} GiB are free", free / f64::from(1 << 30))
            }),
            Condition::VolumeDegraded => {
                let away = samples.values("terrace_volume_copies").into_iter();
                let away =
                    away.filter(|(labels, copies)| matches!(labels[1].as_str(), "missing" | "out") && *copies > 0.0);
                away.map(|(mut labels, copies)| {
                    (labels.swap_remove(0), format!("works without {copies} of its copies"))
                })
                .collect()
            }
            Condition::NotReady => of(one("terrace_ready"), &|is| is == 0.0, &|_| "messages are not taken".to_owned()),
            Condition::Trouble => of(one("terrace_trouble"), &|is| is > 0.0, &|_| {
                "`terrace status` has the reason and what to do".to_owned()
            }),
        }
    }
}

/// Subjects whose counter with this second label has grown by more than `most`.
fn grown(
    samples: &Samples,
    look: &mut Look,
    now_us: i64,
    (name, second): (&'static str, &'static str),
    most: f64,
) -> BTreeMap<Subject, String> {
    let mut found = BTreeMap::new();
    for (labels, value) in samples.values(name) {
        if labels.get(1).is_none_or(|label| label != second) {
            continue;
        }
        let growth = look.growth((second, &labels[0]), now_us, value);
        if growth > most {
            found.insert(labels[0].clone(), format!("{growth} {second} within ten minutes"));
        }
    }
    found
}

/// Services that received nothing for longer than `most` seconds: since their last message, since the node started, or since the hours of
/// the rule began, whatever came last.
fn silent(samples: &Samples, schedule: &Schedule, now_us: i64, most: f64) -> BTreeMap<Subject, String> {
    let (now, started) = (now_us as f64 / 1e6, samples.value("process_start_time_seconds", &[]).unwrap_or(0.0));
    let last: BTreeMap<String, f64> = samples
        .values("terrace_service_last_message_timestamp_seconds")
        .into_iter()
        .filter_map(|(labels, at)| Some((labels.into_iter().next()?, at)))
        .collect();
    let began = schedule.began_us(now_us).map_or(0.0, |us| us as f64 / 1e6);
    let services =
        samples.values("terrace_duplicates_total").into_iter().filter_map(|(labels, _)| labels.into_iter().next());
    let quiet = services.filter_map(|service| {
        let since = last.get(&service).copied().unwrap_or(0.0).max(started).max(began);
        (now - since > most).then(|| (service, format!("nothing came for {}", in_words(now - since))))
    });
    quiet.collect()
}

/// Seconds, in the largest unit that is not too rough.
pub(super) fn in_words(seconds: f64) -> String {
    match seconds as u64 {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7_199 => format!("{} min", s / 60),
        s @ 7_200..=172_799 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn conditions_are_read_as_they_are_written_and_others_are_refused_with_what_to_write() {
        for (text, condition) in [
            ("queue_age > 5m", Condition::QueueAge(300.0)),
            ("errored > 0", Condition::Errored(0.0)),
            ("disk_free < 10GiB", Condition::DiskFree(10.0 * f64::from(1 << 30))),
            ("volume_degraded", Condition::VolumeDegraded),
        ] {
            assert_eq!(text.parse(), Ok(condition), "{text}");
        }
        for (text, why) in [
            ("queue_age < 5m", "with `>`"),
            ("queue_age > 5", "no time"),
            ("disk_free > 1GiB", "with `<`"),
            ("suspended > 1", "no value"),
            ("nonsense", "there are queue_age"),
            ("errored > many", "no number"),
        ] {
            let told = text.parse::<Condition>().expect_err("it is none");
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn each_condition_holds_for_the_subjects_that_the_figures_say() {
        let now_us = 10_000_000_000;
        let mut samples = Samples::default();
        samples.moment(table::QUEUE_OLDEST, &["lab"], Some(now_us - 400_000_000));
        samples.moment(table::QUEUE_OLDEST, &["ward"], Some(now_us - 100_000_000));
        samples.gauge(table::QUEUE_MESSAGES, &["lab"], 12.0);
        samples.flag(table::OPERATION_SUSPENDED, &["ward"], true);
        samples.gauge(table::DISK_FREE_BYTES, &["home"], 5.0);
        samples.gauge(table::VOLUME_COPIES, &["v", "in-sync"], 2.0);
        samples.gauge(table::VOLUME_COPIES, &["v", "out"], 1.0);
        samples.flag(table::READY, &[], false);
        samples.flag(table::TROUBLE, &["clock"], true);
        samples.count(table::DUPLICATES_TOTAL, &["adt"], 0);
        samples.moment(table::SERVICE_LAST_MESSAGE, &["adt"], Some(now_us - 2_000_000_000));
        let holds = |text: &str| {
            let condition: Condition = text.parse().expect("one");
            condition
                .holds(&samples, &Schedule::default(), now_us, &mut Look::default())
                .into_keys()
                .collect::<Vec<_>>()
        };
        for (text, subject) in [
            ("queue_age > 5m", "lab"),
            ("queue_messages > 11", "lab"),
            ("suspended", "ward"),
            ("disk_free < 1KiB", "home"),
            ("volume_degraded", "v"),
            ("not_ready", "node"),
            ("trouble", "clock"),
            ("silent > 30m", "adt"),
        ] {
            assert_eq!(holds(text), [subject], "{text}");
        }
        assert!(holds("silent > 1h").is_empty() && holds("queue_messages > 12").is_empty());
    }

    #[test]
    fn a_counter_is_compared_with_ten_minutes_ago_and_begins_at_0_after_a_restart() {
        let mut look = Look::default();
        let mut growth = |minute: i64, value: f64| look.growth(("errored", "adt"), minute * 60_000_000, value);
        assert_eq!((growth(0, 7.0), growth(1, 9.0), growth(5, 9.0), growth(10, 9.0)), (0.0, 2.0, 2.0, 2.0));
        assert_eq!((growth(12, 9.0), growth(13, 3.0), growth(24, 3.0)), (0.0, 3.0, 0.0));
    }
}
