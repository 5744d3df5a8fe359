//! [`Condition`]: what a rule is about, read from `queue_age > 5m`, and found in the figures of a moment.
//!
//! | condition | subject | holds if |
//! |---|---|---|
//! | `queue_age > TIME` | operation | its oldest message has waited longer |
//! | `queue_messages > N` | operation | more deliveries wait |
//! | `suspended` | operation | it stands still |
//! | `failed > N` | operation | more deliveries were given up within ten minutes |
//! | `silent > TIME` | service | no message was stored for longer, within the hours of the rule |
//! | `errored > N`, `rejected > N` | service | more messages were stopped by an error, or rejected, within ten minutes |
//! | `refused > N` | service | more messages were refused without being stored within ten minutes |
//! | `disk_free < SIZE` | tier | less space is free where it lies |
//! | `volume_degraded` | volume | a copy is missing or out |
//! | `volume_resync` | volume | a copy is being brought up to date |
//! | `pages_damaged` | node | damaged pages were set aside |
//! | `backup_age > TIME` | node | the last good backup by schedule is older |
//! | `backup_failed` | node | the last backup by schedule failed |
//! | `certificate_left < TIME` | setting | the certificate that it names ends sooner |
//! | `not_ready`, `trouble` | node, matter | messages are not taken; the node has a trouble |

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::schedule::Schedule;
use crate::samples::Samples;

/// What a condition is about: an operation, a service, a tier, a volume, a matter.
pub type Subject = String;

/// Counters are compared with what they were so long ago, microseconds.
const WITHIN_US: i64 = 600_000_000;

/// With a longer pause between looks, it is not known what counters were: looks are ten minutes apart at most.
const PAUSE_US: i64 = 2 * WITHIN_US;

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
    Rejected(f64),
    /// Messages within ten minutes.
    Refused(f64),
    /// Bytes.
    DiskFree(f64),
    /// A copy is missing or out.
    VolumeDegraded,
    /// A copy is being brought up to date.
    VolumeResync,
    /// Damaged pages were set aside.
    PagesDamaged,
    /// Seconds.
    CertificateLeft(f64),
    /// Seconds.
    BackupAge(f64),
    /// The last backup by schedule failed.
    BackupFailed,
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
        let known = "queue_age, queue_messages, suspended, failed, silent, errored, rejected, refused, disk_free, certificate_left, \
                     backup_age, backup_failed, volume_degraded, volume_resync, pages_damaged, not_ready, trouble";
        match (name, comparison) {
            ("queue_age", Some((false, value))) => seconds(value).map(Condition::QueueAge),
            ("queue_messages", Some((false, value))) => number(value).map(Condition::QueueMessages),
            ("failed", Some((false, value))) => number(value).map(Condition::Failed),
            ("silent", Some((false, value))) => seconds(value).map(Condition::Silent),
            ("errored", Some((false, value))) => number(value).map(Condition::Errored),
            ("rejected", Some((false, value))) => number(value).map(Condition::Rejected),
            ("refused", Some((false, value))) => number(value).map(Condition::Refused),
            ("disk_free", Some((true, value))) => size(value).map(Condition::DiskFree),
            ("suspended", None) => Ok(Condition::Suspended),
            ("certificate_left", Some((true, value))) => seconds(value).map(Condition::CertificateLeft),
            ("backup_age", Some((false, value))) => seconds(value).map(Condition::BackupAge),
            ("backup_failed", None) => Ok(Condition::BackupFailed),
            ("volume_degraded", None) => Ok(Condition::VolumeDegraded),
            ("volume_resync", None) => Ok(Condition::VolumeResync),
            ("pages_damaged", None) => Ok(Condition::PagesDamaged),
            ("not_ready", None) => Ok(Condition::NotReady),
            ("trouble", None) => Ok(Condition::Trouble),
            ("disk_free", _) => Err("`disk_free` is compared with `<`, as disk_free < 10GiB".to_owned()),
            ("certificate_left", _) => {
                Err("`certificate_left` is compared with `<`, as certificate_left < 14d".to_owned())
            }
            ("queue_age" | "silent" | "backup_age", _) => Err(format!("`{name}` is compared with `>`, as {name} > 5m")),
            ("queue_messages" | "failed" | "errored" | "rejected" | "refused", _) => {
                Err(format!("`{name}` is compared with `>`, as {name} > 0"))
            }
            (
                "suspended" | "volume_degraded" | "volume_resync" | "pages_damaged" | "backup_failed" | "not_ready"
                | "trouble",
                Some(_),
            ) => Err(format!("`{name}` has no value: leave the comparison out")),
            _ => Err(format!("`{name}` is no condition: there are {known}")),
        }
    }
}

/// What counters were at earlier looks.
#[derive(Debug, Default)]
pub struct Look {
    /// When the first look was since the start or a long pause, and the last one, microseconds since 1970.
    looks_us: Option<(i64, i64)>,
    counters: BTreeMap<(&'static str, String), VecDeque<(i64, f64)>>,
}

impl Look {
    /// Whether counters were looked at for as long as they are compared with.
    fn is_long(&self, now_us: i64) -> bool {
        self.looks_us.is_some_and(|(began, _)| now_us.saturating_sub(began) >= WITHIN_US)
    }

    /// Begins another look. Counters that are not there any more are forgotten; after a long pause, or with a clock that was set back, all are.
    pub fn begin(&mut self, now_us: i64) {
        let goes_on = |at: i64| (0..=PAUSE_US).contains(&now_us.saturating_sub(at));
        let began_us = self.looks_us.filter(|(_, last)| goes_on(*last)).map_or(now_us, |(began, _)| began);
        self.looks_us = Some((began_us, now_us));
        self.counters.retain(|_, seen| seen.back().is_some_and(|(at, _)| goes_on(*at)));
    }

    /// How much a counter has grown within the last ten minutes, as far as it was looked at. Seen for the first time, it has not grown, but in a
    /// process that is younger than that and in which it was 0: a rule may begin long after the node.
    fn growth(&mut self, what: (&'static str, &str), (now_us, value): (i64, f64), started_us: Option<i64>) -> f64 {
        let seen = self.counters.entry((what.0, what.1.to_owned())).or_default();
        if seen.back().is_some_and(|(_, before)| *before > value) {
            seen.clear();
            seen.push_back((now_us, 0.0));
        }
        if seen.is_empty() {
            let started_us = started_us.filter(|us| (0..WITHIN_US).contains(&now_us.saturating_sub(*us)));
            seen.push_back(started_us.map_or((now_us, value), |us| (us, 0.0)));
        }
        if seen.back().is_none_or(|(at, before)| *at < now_us || *before < value) {
            seen.push_back((now_us, value));
        }
        // What it was ten minutes ago is what the last look before that has seen.
        while seen.get(1).is_some_and(|(at, _)| *at <= now_us - WITHIN_US) {
            seen.pop_front();
        }
        value - seen.front().map_or(value, |(_, first)| *first)
    }
}

const BACKUP_FAILED: &str = "the last backup by schedule failed: `terrace status` has the reason";
const TROUBLE: &str = "`terrace status` has the reason and what to do";

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
            Condition::Rejected(most) => {
                grown(samples, look, now_us, ("terrace_messages_received_total", "rejected"), most)
            }
            Condition::Refused(most) => {
                grown(samples, look, now_us, ("terrace_messages_received_total", "refused"), most)
            }
            Condition::Silent(most) => silent(samples, schedule, now_us, most),
            Condition::DiskFree(least) => of(one("terrace_disk_free_bytes"), &|free| free < least, &|free| {
                format!("{:.1} GiB are free", free / f64::from(1 << 30))
            }),
            Condition::VolumeDegraded => copies(samples, &["missing", "out"])
                .map(|(volume, copies)| (volume, format!("works without {copies} of its copies")))
                .collect(),
            Condition::VolumeResync => copies(samples, &["syncing"])
                .map(|(volume, copies)| (volume, format!("{copies} of its copies are being brought up to date")))
                .collect(),
            Condition::PagesDamaged => of(one("terrace_pages_quarantined"), &|pages| pages > 0.0, &|pages| {
                format!("{pages} damaged pages were set aside")
            }),
            Condition::CertificateLeft(least) => {
                let left = |(subject, end): (Subject, f64)| (subject, end - now);
                let all = one("terrace_certificate_end_timestamp_seconds").into_iter().map(left).collect();
                of(all, &|left| left < least, &certificate_words)
            }
            Condition::BackupAge(most) => of(vec![backup_age(samples, now)], &|age| age > most, &|age| {
                format!("no backup by schedule was good for {}", in_words(age))
            }),
            Condition::BackupFailed => of(one("terrace_backup_failed"), &|is| is > 0.0, &|_| BACKUP_FAILED.to_owned()),
            Condition::NotReady => of(one("terrace_ready"), &|is| is == 0.0, &|_| "messages are not taken".to_owned()),
            Condition::Trouble => of(one("terrace_trouble"), &|is| is > 0.0, &|_| TROUBLE.to_owned()),
        }
    }

    /// Whether it cannot be told if it is over for a subject of which it held since a moment: what it compares with is not known yet since
    /// the start, or nothing has happened that would end it.
    pub fn is_open(&self, samples: &Samples, subject: &str, since_us: i64, (now_us, look): (i64, &Look)) -> bool {
        let has =
            |name: &str| samples.values(name).iter().any(|(labels, _)| labels.first().is_some_and(|of| of == subject));
        match self {
            Condition::Failed(_) => !look.is_long(now_us) && has("terrace_deliveries_total"),
            Condition::Errored(_) | Condition::Rejected(_) | Condition::Refused(_) => {
                !look.is_long(now_us) && has("terrace_messages_received_total")
            }
            // Only a message ends silence, and neither a restart nor another morning.
            Condition::Silent(_) => {
                let last = samples.value("terrace_service_last_message_timestamp_seconds", &[subject]);
                has("terrace_duplicates_total") && last.is_none_or(|last| last * 1e6 < since_us as f64)
            }
            // A file that is gone or damaged is no certificate that lasts.
            Condition::CertificateLeft(_) => has("terrace_certificate_unreadable"),
            // Before the first good backup its age counts from the start of the process, and another start is no backup.
            Condition::BackupAge(_) => samples.value("terrace_backup_last_success_timestamp_seconds", &[]).is_none(),
            Condition::BackupFailed => samples.value("terrace_backup_failed", &[]).is_none(),
            Condition::VolumeDegraded | Condition::VolumeResync => {
                samples.value("terrace_volume_open", &[subject]) == Some(0.0)
            }
            Condition::QueueAge(_)
            | Condition::QueueMessages(_)
            | Condition::Suspended
            | Condition::DiskFree(_)
            | Condition::PagesDamaged
            | Condition::NotReady
            | Condition::Trouble => false,
        }
    }
}

/// Seconds since the last good backup was begun; before the first one, since the node started.
fn backup_age(samples: &Samples, now: f64) -> (Subject, f64) {
    let last = samples.value("terrace_backup_last_success_timestamp_seconds", &[]);
    let last = last.or(samples.value("process_start_time_seconds", &[])).unwrap_or(now);
    ("node".to_owned(), now - last)
}

fn certificate_words(left: f64) -> String {
    match left > 0.0 {
        true => format!("the certificate ends in {}", in_words(left)),
        false => "the certificate has ended".to_owned(),
    }
}

/// Volumes that have copies in one of these states, with how many.
fn copies(samples: &Samples, states: &[&str]) -> impl Iterator<Item = (Subject, f64)> {
    let mut found = BTreeMap::new();
    for (mut labels, copies) in samples.values("terrace_volume_copies") {
        if states.contains(&labels[1].as_str()) && copies > 0.0 {
            *found.entry(labels.swap_remove(0)).or_insert(0.0) += copies;
        }
    }
    found.into_iter()
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
    let started_us = samples.value("process_start_time_seconds", &[]).map(|seconds| (seconds * 1e6) as i64);
    for (labels, value) in samples.values(name) {
        if labels.get(1).is_none_or(|label| label != second) {
            continue;
        }
        let growth = look.growth((second, &labels[0]), (now_us, value), started_us);
        if growth > most {
            found.insert(labels[0].clone(), format!("{growth} {second} within ten minutes"));
        }
    }
    found
}

/// Services that stored nothing for longer than `most` seconds: since their last message, since the node started, or since the hours of the rule
/// began, whatever came last. What is rejected is stored, what is refused is not.
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
            ("certificate_left < 14d", Condition::CertificateLeft(14.0 * 86_400.0)),
        ] {
            assert_eq!(text.parse(), Ok(condition), "{text}");
        }
        for (text, why) in [
            ("queue_age < 5m", "with `>`"),
            ("queue_age > 5", "no time"),
            ("disk_free > 1GiB", "with `<`"),
            ("suspended > 1", "no value"),
            ("certificate_left > 1d", "with `<`"),
            ("backup_age < 1d", "with `>`"),
            ("backup_failed > 1", "no value"),
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
        samples.gauge(table::VOLUME_COPIES, &["w", "syncing"], 1.0);
        samples.gauge(table::PAGES_QUARANTINED, &[], 3.0);
        samples.moment(table::CERTIFICATE_END, &["sql.certificate"], Some(now_us + 86_400_000_000));
        samples.moment(table::BACKUP_LAST_SUCCESS, &[], Some(now_us - 7_200_000_000));
        samples.flag(table::BACKUP_FAILED, &[], true);
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
            ("volume_resync", "w"),
            ("pages_damaged", "node"),
            ("certificate_left < 2d", "sql.certificate"),
            ("backup_age > 1h", "node"),
            ("backup_failed", "node"),
            ("not_ready", "node"),
            ("trouble", "clock"),
            ("silent > 30m", "adt"),
        ] {
            assert_eq!(holds(text), [subject], "{text}");
        }
        assert!(holds("silent > 1h").is_empty() && holds("queue_messages > 12").is_empty());
    }

    const MINUTE: i64 = 60_000_000;

    /// What a counter has grown by at these minutes with these values, in a process that started at a minute.
    fn grown_at(started: i64, looks: &[(i64, f64)]) -> Vec<f64> {
        let mut look = Look::default();
        let growth = |(minute, value): &(i64, f64)| {
            look.begin(minute * MINUTE);
            look.growth(("errored", "adt"), (minute * MINUTE, *value), Some(started * MINUTE))
        };
        looks.iter().map(growth).collect()
    }

    #[test]
    fn a_counter_is_compared_with_ten_minutes_ago_and_was_0_in_a_process_that_is_younger() {
        let looks = [(1, 7.0), (5, 9.0), (10, 9.0), (12, 9.0), (13, 3.0), (24, 3.0)];
        assert_eq!(grown_at(0, &looks), [7.0, 9.0, 9.0, 2.0, 3.0, 0.0]);
    }

    #[test]
    fn the_past_of_a_counter_that_is_seen_late_or_after_a_pause_is_no_growth_and_looks_may_be_ten_minutes_apart() {
        assert_eq!(grown_at(-60, &[(0, 700.0), (1, 702.0), (5, 702.0)]), [0.0, 2.0, 2.0]);
        assert_eq!(grown_at(-60, &[(0, 700.0), (30, 900.0), (31, 901.0)]), [0.0, 0.0, 1.0]);
        assert_eq!(grown_at(-60, &[(0, 7.0), (10, 8.0), (20, 10.0), (31, 10.0)]), [0.0, 1.0, 2.0, 0.0]);
        assert_eq!(grown_at(-60, &[(0, 7.0), (10, 8.0), (-5, 8.0)]), [0.0, 1.0, 0.0], "a clock that was set back");
        let mut look = Look::default();
        look.begin(0);
        look.begin(9 * MINUTE);
        assert!(look.is_long(10 * MINUTE));
        look.begin(40 * MINUTE);
        assert!(!look.is_long(41 * MINUTE), "it has to be looked at anew");
    }

    #[test]
    fn rejected_messages_are_counted_by_a_condition_of_their_own() {
        let (mut look, condition) = (Look::default(), "rejected > 1".parse::<Condition>().expect("one"));
        let mut holds = |minute: i64, count: u64| {
            let mut samples = Samples::default();
            samples.count(table::MESSAGES_RECEIVED_TOTAL, &["adt", "rejected"], count);
            samples.count(table::MESSAGES_RECEIVED_TOTAL, &["adt", "refused"], 9 * count);
            look.begin(minute * MINUTE);
            condition.holds(&samples, &Schedule::default(), minute * MINUTE, &mut look)
        };
        assert!(holds(100, 5).is_empty() && holds(101, 6).is_empty());
        assert_eq!(holds(102, 7)["adt"], "2 rejected within ten minutes");
    }

    #[test]
    fn what_cannot_be_known_after_a_restart_does_not_end_what_was_on() {
        let minute = MINUTE;
        let mut samples = Samples::default();
        samples.count(table::DUPLICATES_TOTAL, &["adt"], 0);
        samples.count(table::MESSAGES_RECEIVED_TOTAL, &["adt", "errored"], 0);
        samples.flag(table::VOLUME_OPEN, &["v"], false);
        let mut look = Look::default();
        look.begin(20 * minute);
        let open = |text: &str, subject: &str, minutes: i64, samples: &Samples| {
            let condition: Condition = text.parse().expect("one");
            condition.is_open(samples, subject, 15 * minute, (minutes * minute, &look))
        };
        assert!(open("errored > 0", "adt", 21, &samples) && !open("errored > 0", "adt", 30, &samples));
        assert!(!open("errored > 0", "gone", 21, &samples), "it is not there any more");
        assert!(open("silent > 5m", "adt", 1_000, &samples) && !open("silent > 5m", "gone", 21, &samples));
        assert!(open("backup_age > 1d", "node", 21, &samples) && open("backup_failed", "node", 21, &samples));
        assert!(!open("certificate_left < 1d", "sql.certificate", 21, &samples), "no setting names it any more");
        samples.flag(table::CERTIFICATE_UNREADABLE, &["sql.certificate"], true);
        samples.moment(table::BACKUP_LAST_SUCCESS, &[], Some(20 * minute));
        assert!(open("certificate_left < 1d", "sql.certificate", 21, &samples), "it cannot be read");
        assert!(!open("backup_age > 1d", "node", 21, &samples));
        assert!(open("volume_degraded", "v", 21, &samples) && !open("queue_age > 5m", "lab", 21, &samples));
        samples.moment(table::SERVICE_LAST_MESSAGE, &["adt"], Some(22 * minute));
        assert!(!open("silent > 5m", "adt", 23, &samples), "a message ends it");
    }
}
