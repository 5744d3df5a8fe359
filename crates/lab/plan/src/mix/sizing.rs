//! A sizing without a profile: from messages a day, their size, how long they are kept and how many queries read them, a stream of accesses is
//! made up, which is then planned as a recorded one.
//!
//! ```text
//!   messages a day -> two days, with a tenth of a day's messages in its busiest hour; of less than a day that hour alone
//!     each writes the newest page and a page of an index, and is read twice soon after
//!   queries a day  -> as many in its busiest hour, at times of their own; each reads pages of messages; older ones less often: the age is
//!     drawn evenly by its logarithm
//! ```
//!
//! A large workload is made up small, and taken for one of as many times the size ([`Sizing::scale`]): caches are as many times smaller, too.
//!
//! What is assumed is stated in the plan with its error ([`Sizing::sure`]). Nothing about the reuse of a real workload is known from four
//! numbers: a profile of a day replaces all of it.

use std::path::Path;

use super::report::SureReport;
use super::workload::{Commits, ProfileSource};
use crate::PlanError;
use crate::hash::Salt;
use crate::profile::{Access, Lack, Origin, Recorder, RecorderOptions};

const PAGE_BYTES: u64 = 8192;
const DAY_S: f64 = 86_400.0;
/// Length of the stream, days.
const DAYS: f64 = 2.0;
/// Its least length, seconds.
const SECONDS_LEAST: f64 = 180.0;
/// The busiest hour of a day.
const BUSIEST: f64 = 10.0;
/// The part of a day's messages that comes in its busiest hour.
const BUSIEST_HOUR: f64 = 0.1;
/// Bytes that are stored of a message for each of its own, with outputs and indices, and beside them.
const STORED: (f64, f64) = (2.0, 1024.0);
/// Bytes of the journal of a commit for each of its message, and beside them.
const JOURNAL: (f64, f64) = (1.2, 300.0);
/// How long after its arrival a message is delivered, and how long after a page a query reads the next one, microseconds.
const DELIVERED_US: u64 = 2000;
const QUERY_STEP_US: u64 = 200;
/// Commits of a message: it is taken, and its delivery is confirmed.
const COMMITS: f64 = 2.0;
/// Pages of a query, if nothing else is said.
pub const QUERY_PAGES: u32 = 100;
/// What is said of the error of an assumption: there is none that anything backs.
const ASSUMED: &str = "assumed, not measured";
/// Accesses of the stream at most: a workload with more is made up smaller.
const ACCESSES_MAX: f64 = 600_000.0;

/// What is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizingInput {
    /// Messages a day.
    pub messages_per_day: f64,
    /// Bytes of one.
    pub message_bytes: f64,
    /// How long they are kept, days.
    pub retention_days: f64,
    /// Queries a day.
    pub queries_per_day: f64,
    /// Pages that a query reads.
    pub query_pages: u32,
}

/// A made-up workload.
#[derive(Clone, Debug)]
pub struct Sizing {
    /// Its profile.
    pub source: ProfileSource,
    /// Its commits.
    pub commits: Commits,
    /// Bytes that are stored.
    pub data_bytes: u64,
    /// How many times larger the workload is than the profile.
    pub scale: f64,
    /// What is assumed, with its error.
    pub sure: Vec<SureReport>,
}

/// Makes it up; `folder` is for a temporary file.
///
/// # Errors
/// Numbers that are impossible, or more than one machine can be planned for; those of writing.
pub fn sizing(input: &SizingInput, folder: &Path) -> Result<Sizing, PlanError> {
    let SizingInput { messages_per_day, message_bytes, retention_days, queries_per_day, query_pages } = *input;
    let is_within = |value: f64, most: f64| value > 0.0 && value <= most;
    if !is_within(messages_per_day, 1e10)
        || !is_within(message_bytes, 64e6)
        || !is_within(retention_days, 36_500.0)
        || !(0.0..=1e9).contains(&queries_per_day)
        || !(1..=1_000_000).contains(&query_pages)
    {
        return Err(PlanError::Refused(
            "a sizing has 1 to 10^10 messages a day of up to 64 MB, kept for up to 100 years, and up to 10^9 queries a day of up to 10^6 pages"
                .into(),
        ));
    }
    let stored = message_bytes * STORED.0 + STORED.1;
    let data_bytes = messages_per_day * retention_days * stored;
    if data_bytes > 1e16 {
        return Err(PlanError::Refused(format!("{:.0} TB are kept: more than one machine stores", data_bytes / 1e12)));
    }
    let per_s = messages_per_day * BUSIEST_HOUR / 3600.0;
    let queries_per_s = queries_per_day * BUSIEST_HOUR / 3600.0;
    let days = (retention_days.min(DAYS) * DAY_S).max(SECONDS_LEAST) / DAY_S;
    // Of less than a day, the busiest hour is all.
    let is_whole = days >= 1.0;
    let of_days = |a_day: f64, per_s: f64| if is_whole { a_day * days } else { per_s * days * DAY_S };
    let (messages, queries) = (of_days(messages_per_day, per_s), of_days(queries_per_day, queries_per_s));
    let pages_of_message = (stored / PAGE_BYTES as f64).max(1e-6);
    let all = messages * (2.0 * pages_of_message.ceil() + 2.0) + queries * f64::from(query_pages);
    let scale = (all / ACCESSES_MAX).max(1.0);
    let stream = Stream {
        messages: messages / scale,
        queries: queries / scale,
        query_pages,
        scale,
        pages: (data_bytes / PAGE_BYTES as f64 / scale).max(64.0),
        pages_of_message,
        seconds: days * DAY_S,
        is_whole,
    };
    let bytes = stream.record(folder)?;
    let commits = Commits { per_s: per_s * COMMITS, bytes: message_bytes * JOURNAL.0 + JOURNAL.1 };
    Ok(Sizing {
        source: ProfileSource::Bytes("sizing".into(), bytes.into()),
        commits,
        data_bytes: data_bytes as u64,
        scale,
        sure: assumptions(),
    })
}

/// What is assumed, with its error.
fn assumptions() -> Vec<SureReport> {
    let assumed =
        |what: &str, error: &str, because: String| SureReport { what: what.into(), error: error.into(), because };
    vec![
        assumed(
            "the workload",
            "not measured",
            "a sizing by four numbers: record a day with terrace profile start for a plan".into(),
        ),
        assumed(
            "rates",
            ASSUMED,
            "a tenth of a day's messages and queries is taken to come in its busiest hour".into(),
        ),
        assumed(
            "miss ratios, of a sizing",
            ASSUMED,
            "how often older messages are read is assumed: evenly by the logarithm of their age".into(),
        ),
        assumed(
            "bytes that are stored",
            ASSUMED,
            format!("{:.1} times the message and {:.0} bytes", STORED.0, STORED.1),
        ),
        assumed("bytes and number of commits", ASSUMED, format!("{COMMITS:.0} commits of a message")),
    ]
}

/// The stream, of a workload that is as many times smaller.
struct Stream {
    messages: f64,
    queries: f64,
    query_pages: u32,
    /// How many times larger the workload is.
    scale: f64,
    /// Pages in all.
    pages: f64,
    /// Pages that a message fills.
    pages_of_message: f64,
    seconds: f64,
    /// Whole days, with a busiest hour.
    is_whole: bool,
}

impl Stream {
    /// When a part of all messages has come, microseconds.
    fn time_us(&self, part: f64) -> u64 {
        if !self.is_whole {
            return (part * self.seconds * 1e6) as u64;
        }
        let days = part * self.seconds / DAY_S;
        // Of a day's messages, what comes before, in, and after its busiest hour.
        let each = (1.0 - BUSIEST_HOUR) / 23.0;
        let (before, of_day) = (BUSIEST * each, days.fract());
        let hour = if of_day < before {
            of_day / each
        } else if of_day < before + BUSIEST_HOUR {
            BUSIEST + (of_day - before) / BUSIEST_HOUR
        } else {
            BUSIEST + 1.0 + (of_day - before - BUSIEST_HOUR) / each
        };
        ((days.floor() + hour / 24.0) * DAY_S * 1e6) as u64
    }

    fn record(&self, folder: &Path) -> Result<Vec<u8>, PlanError> {
        let mut recorder = Recorder::new(RecorderOptions::new(Salt::of_seed(1), &["page"], PAGE_BYTES, folder))?;
        let mut random = fastrand::Rng::with_seed(1);
        let spans = self.pages_of_message.ceil() as u64;
        let messages = self.messages.max(1.0) as u64;
        let mut accesses: Vec<(u64, u64, bool)> = Vec::new();
        let mut record = |time_us: u64, key: u64, is_write: bool| accesses.push((time_us, key, is_write));
        for number in 0..messages {
            let part = number as f64 / messages as f64;
            let time_us = self.time_us(part);
            // Pages are numbered by age at the begin; the newest have the largest numbers.
            let newest = self.pages + part * self.messages * self.pages_of_message;
            for page in 0..spans {
                record(time_us, (newest as u64).saturating_add(page), true);
            }
            let index = (1u64 << 62) + (self.aged(&mut random) / 50.0) as u64;
            record(time_us, index, true);
            for page in 0..spans {
                record(time_us + DELIVERED_US, (newest as u64).saturating_add(page), false);
            }
            record(time_us + DELIVERED_US, index, false);
        }
        self.queries(&mut random, &mut record);
        record((self.seconds * 1e6) as u64 + 1, 0, false);
        accesses.sort_by_key(|(time_us, ..)| *time_us);
        for (time_us, key, is_write) in accesses {
            recorder.record(Access { time_us, key, bytes: PAGE_BYTES as u32, structure: 0, is_write })?;
        }
        let lacks = [Lack::Structures, Lack::Flushes, Lack::Journal, Lack::Cpu, Lack::Concurrency];
        let mut bytes = Vec::new();
        recorder.finish(origin("sizing"), &lacks, &mut bytes)?;
        Ok(bytes)
    }

    /// Queries have times of their own. One of a smaller workload stands for `scale` of them, which come one after the other until the next
    /// one: its pages are spread over that time.
    fn queries(&self, random: &mut fastrand::Rng, record: &mut impl FnMut(u64, u64, bool)) {
        let many = self.queries.round().max(1.0);
        // Less than one query is one of fewer pages.
        let pages = (f64::from(self.query_pages) * self.queries / many).round() as u64;
        let spread = (1.0 - 1.0 / self.scale).max(0.0);
        for number in 0..if pages > 0 { many as u64 } else { 0 } {
            let begin = number as f64 / many;
            let newest = self.pages + begin * self.messages * self.pages_of_message;
            let age = self.aged(random);
            let first = (newest - age).max(0.0) as u64;
            // Towards the newest page, and again from the first: there are no others.
            let different = (age.ceil() as u64).max(1);
            for page in 0..pages {
                let part = begin + (0.5 + spread * (page as f64 / pages as f64 - 0.5)) / many;
                record(self.time_us(part) + page * QUERY_STEP_US, first + page % different, false);
            }
        }
    }

    /// How many pages ago, evenly by its logarithm.
    fn aged(&self, random: &mut fastrand::Rng) -> f64 {
        self.pages.powf(random.f64())
    }
}

/// Where accesses come from that were made here and not recorded.
pub(crate) fn origin(kind: &str) -> Origin {
    Origin {
        kind: kind.into(),
        made_by: concat!("terrace ", env!("CARGO_PKG_VERSION")).into(),
        keys: "page".into(),
        bad_lines: 0,
        other_requests: 0,
        flushes: None,
        times_back: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine tenths of a day's messages come in 23 hours: 0.39130 of them in the first ten, then a tenth in one.
    #[test]
    fn a_tenth_of_a_day_comes_in_its_busiest_hour() {
        let stream = Stream {
            messages: 1.0,
            queries: 0.0,
            query_pages: 1,
            scale: 1.0,
            pages: 64.0,
            pages_of_message: 1.0,
            seconds: 2.0 * DAY_S,
            is_whole: true,
        };
        let before = 0.9 / 23.0 * 10.0;
        for (of_day, hour) in
            [(0.0, 0.0), (before / 2.0, 5.0), (before, 10.0), (before + 0.05, 10.5), (before + 0.1, 11.0)]
        {
            for day in [0.0, 1.0] {
                let time_s = stream.time_us((day + of_day) / 2.0) as f64 / 1e6;
                let wanted = (day * 24.0 + hour) * 3600.0;
                assert!((time_s - wanted).abs() < 1.0, "{of_day} of day {day}: {time_s} s instead of {wanted}");
            }
        }
        let flat = Stream { seconds: 180.0, is_whole: false, ..stream };
        assert_eq!(flat.time_us(0.5), 90_000_000);
    }
}
