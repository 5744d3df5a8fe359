//! A sizing without a profile: from messages a day, their size, how long they are kept and how many queries read them, a stream of accesses is
//! made up, which is then planned as a recorded one.
//!
//! ```text
//!   messages a day -> a tenth of them in the busiest hour -> three minutes of it
//!     each writes the newest page and a page of an index, and is read twice soon after
//!   queries a day  -> each reads pages of messages; older ones less often: the age is drawn evenly by its logarithm
//! ```
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
/// Length of the stream, seconds.
const SECONDS: f64 = 180.0;
/// The part of a day's messages that comes in its busiest hour.
const BUSIEST_HOUR: f64 = 0.1;
/// Bytes that are stored of a message for each of its own, with outputs and indices, and beside them.
const STORED: (f64, f64) = (2.0, 1024.0);
/// Bytes of the journal of a commit for each of its message, and beside them.
const JOURNAL: (f64, f64) = (1.2, 300.0);
/// Commits of a message: it is taken, and its delivery is confirmed.
const COMMITS: f64 = 2.0;
/// Pages of a query, if nothing else is said.
pub const QUERY_PAGES: u32 = 100;
/// Accesses of the stream at most: then only a part of the messages is in it, and counts for all.
const ACCESSES_MAX: f64 = 2_000_000.0;

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
    let stream = Stream {
        messages: per_s * SECONDS,
        queries: queries_per_s * SECONDS,
        query_pages,
        pages: (data_bytes / PAGE_BYTES as f64).max(64.0),
        pages_of_message: (stored / PAGE_BYTES as f64).max(1e-6),
    };
    let bytes = stream.record(folder)?;
    let commits = Commits { per_s: per_s * COMMITS, bytes: message_bytes * JOURNAL.0 + JOURNAL.1 };
    let assumed =
        |what: &str, error: &str, because: String| SureReport { what: what.into(), error: error.into(), because };
    let sure = vec![
        assumed(
            "the workload",
            "not measured",
            "a sizing by four numbers: record a day with terrace profile start for a plan".into(),
        ),
        assumed("rates", "half to twice", "a tenth of a day's messages is taken to come in its busiest hour".into()),
        assumed(
            "miss ratios, of a sizing",
            "+-20 points",
            "how often older messages are read is assumed: evenly by the logarithm of their age".into(),
        ),
        assumed(
            "bytes that are stored",
            "half to twice",
            format!("{:.1} times the message and {:.0} bytes", STORED.0, STORED.1),
        ),
        assumed("bytes and number of commits", "half to twice", format!("{COMMITS:.0} commits of a message")),
    ];
    Ok(Sizing {
        source: ProfileSource::Bytes("sizing".into(), bytes.into()),
        commits,
        data_bytes: data_bytes as u64,
        sure,
    })
}

/// The stream of the busiest minutes.
struct Stream {
    messages: f64,
    queries: f64,
    query_pages: u32,
    /// Pages in all.
    pages: f64,
    /// Pages that a message fills.
    pages_of_message: f64,
}

impl Stream {
    fn record(&self, folder: &Path) -> Result<Vec<u8>, PlanError> {
        let mut recorder = Recorder::new(RecorderOptions::new(Salt::of_seed(1), &["page"], PAGE_BYTES, folder))?;
        let mut random = fastrand::Rng::with_seed(1);
        // Each message makes four accesses, or those of its pages.
        let spans = self.pages_of_message.ceil();
        let all = self.messages * (2.0 * spans + 2.0) + self.queries * f64::from(self.query_pages);
        let part = (ACCESSES_MAX / all).min(1.0);
        let messages = (self.messages * part).max(1.0) as u64;
        let queries_of_one = self.queries * part / messages as f64;
        let mut debt = 0.0;
        let mut record = |time_us: u64, key: u64, is_write: bool| {
            recorder.record(Access { time_us, key, bytes: PAGE_BYTES as u32, structure: 0, is_write }).map(|_| ())
        };
        for number in 0..messages {
            let at = number as f64 / messages as f64;
            let time_us = (at * SECONDS * 1e6) as u64;
            // Pages are numbered by age at the end; the newest have the largest numbers.
            let newest = self.pages + at * self.messages * self.pages_of_message;
            for page in 0..spans as u64 {
                record(time_us, (newest as u64).saturating_add(page), true)?;
            }
            let index = (1u64 << 62) + (self.aged(&mut random) / 50.0) as u64;
            record(time_us, index, true)?;
            for page in 0..spans as u64 {
                record(time_us, (newest as u64).saturating_add(page), false)?;
            }
            record(time_us, index, false)?;
            debt += queries_of_one;
            while debt >= 1.0 {
                debt -= 1.0;
                let age = self.aged(&mut random);
                for page in 0..self.query_pages {
                    record(time_us, (newest - age).max(0.0) as u64 + u64::from(page), false)?;
                }
            }
        }
        record((SECONDS * 1e6) as u64 + 1, 0, false)?;
        let origin = Origin {
            kind: "sizing".into(),
            made_by: concat!("terrace ", env!("CARGO_PKG_VERSION")).into(),
            keys: "page".into(),
            bad_lines: 0,
            other_requests: 0,
            flushes: None,
            times_back: 0,
        };
        let lacks = [Lack::Structures, Lack::Flushes, Lack::Journal, Lack::Cpu, Lack::Concurrency];
        let mut bytes = Vec::new();
        recorder.finish(origin, &lacks, &mut bytes)?;
        Ok(bytes)
    }

    /// How many pages ago, evenly by its logarithm.
    fn aged(&self, random: &mut fastrand::Rng) -> f64 {
        self.pages.powf(random.f64())
    }
}
