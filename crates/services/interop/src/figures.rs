//! What services and operations have done since the node started, for its metrics: counts and times, by name.
//!
//! ```text
//!   connection, file --> ServiceFigures of the service   received, refused, duplicates; bytes; time to decide, to acknowledge
//!   lane ------------> OperationFigures of the operation  answers, tries again; time to an answer; lanes with a connection
//! ```
//!
//! Noting is an addition or two (see [`Distribution`]); readers take no lock. A reload hands the figures of a service on by its name, and a
//! queue keeps those of its operation.
//!
//! Invariant: names come from the production and from the lists of this file, so their number does not grow with messages.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use device::{Distribution, Noted};

use crate::record::Status;

/// Threads that note at a time, at most: those of the node's runtime share two shards.
type Times = Distribution<2>;

/// What was decided on messages, in the order of the counts: [`Status`], and `refused`, which are not stored.
const STATUSES: [&str; 6] = ["routed", "dropped", "unmatched", "rejected", "errored", "refused"];

/// The last of them.
const REFUSED: usize = STATUSES.len() - 1;

fn index(status: Status) -> usize {
    match status {
        Status::Routed => 0,
        Status::Dropped => 1,
        Status::Unmatched => 2,
        Status::Rejected => 3,
        Status::Errored => 4,
    }
}

/// Figures of one service.
#[derive(Debug)]
pub struct ServiceFigures {
    statuses: [AtomicU64; STATUSES.len()],
    sizes: Times,
    decided: Times,
    acknowledged: Times,
    /// When the last message came, microseconds since 1970; 0: none yet.
    last_us: AtomicI64,
    /// Messages seen before.
    pub duplicates: AtomicU64,
    /// Bytes between frames that belonged to none.
    pub junk_bytes: AtomicU64,
    /// Partial frames thrown away.
    pub partial: AtomicU64,
    /// Frames, or messages in a file, over the size bound.
    pub oversize: AtomicU64,
}

impl Default for ServiceFigures {
    fn default() -> ServiceFigures {
        ServiceFigures {
            statuses: [const { AtomicU64::new(0) }; STATUSES.len()],
            sizes: Times::default(),
            decided: Times::default(),
            acknowledged: Times::default(),
            last_us: AtomicI64::new(0),
            duplicates: AtomicU64::new(0),
            junk_bytes: AtomicU64::new(0),
            partial: AtomicU64::new(0),
            oversize: AtomicU64::new(0),
        }
    }
}

impl ServiceFigures {
    /// A message of so many bytes was handed to the store.
    pub fn took(&self, status: Status, bytes: usize, now_us: i64) {
        self.statuses[index(status)].fetch_add(1, Ordering::Relaxed);
        self.sizes.note_value(bytes as u64);
        self.last_us.store(now_us, Ordering::Relaxed);
    }

    /// A message was refused and not stored.
    pub fn refused(&self) {
        self.statuses[REFUSED].fetch_add(1, Ordering::Relaxed);
    }

    /// A message was decided on.
    pub fn decided(&self, took: Duration) {
        self.decided.note(1, 0, took);
    }

    /// An answer was written, so long after the last byte of its message had come.
    pub fn acknowledged(&self, after: Duration) {
        self.acknowledged.note(1, 0, after);
    }

    /// How many messages had each status.
    pub fn statuses(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        STATUSES.into_iter().zip(&self.statuses).map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Sizes of the messages handed to the store, bytes.
    pub fn sizes(&self) -> Noted {
        self.sizes.noted()
    }

    /// Times of the decisions.
    pub fn decision_times(&self) -> Noted {
        self.decided.noted()
    }

    /// Times from the last byte of a frame to its answer being written; of MLLP.
    pub fn acknowledge_times(&self) -> Noted {
        self.acknowledged.noted()
    }

    /// When the last message was handed to the store, microseconds since 1970; none since the start.
    pub fn last_us(&self) -> Option<i64> {
        Some(self.last_us.load(Ordering::Relaxed)).filter(|us| *us != 0)
    }
}

/// What a try of a delivery ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; the reply table and `operation::reply` explain them")]
pub enum AnswerCode {
    AA,
    AE,
    AR,
    CA,
    CE,
    CR,
    Timeout,
    WrongId,
    Unreadable,
    Written,
    Unreachable,
    Unanswered,
    Impossible,
}

impl AnswerCode {
    /// All of them, in the order of the counts.
    pub const ALL: [AnswerCode; 13] = [
        AnswerCode::AA,
        AnswerCode::AE,
        AnswerCode::AR,
        AnswerCode::CA,
        AnswerCode::CE,
        AnswerCode::CR,
        AnswerCode::Timeout,
        AnswerCode::WrongId,
        AnswerCode::Unreadable,
        AnswerCode::Written,
        AnswerCode::Unreachable,
        AnswerCode::Unanswered,
        AnswerCode::Impossible,
    ];

    /// Its name in metrics: the code, or a word of the reply table.
    pub fn name(self) -> &'static str {
        match self {
            AnswerCode::AA => "AA",
            AnswerCode::AE => "AE",
            AnswerCode::AR => "AR",
            AnswerCode::CA => "CA",
            AnswerCode::CE => "CE",
            AnswerCode::CR => "CR",
            AnswerCode::Timeout => "timeout",
            AnswerCode::WrongId => "wrong-id",
            AnswerCode::Unreadable => "unreadable",
            AnswerCode::Written => "written",
            AnswerCode::Unreachable => "unreachable",
            AnswerCode::Unanswered => "unanswered",
            AnswerCode::Impossible => "impossible",
        }
    }

    /// Whether the receiver was waited for: until it answered, or until its time was over.
    fn has_time(self) -> bool {
        !matches!(self, AnswerCode::Unreachable | AnswerCode::Unanswered | AnswerCode::Impossible)
    }
}

/// A count for each of them.
type AnswerCounts = [AtomicU64; AnswerCode::ALL.len()];

fn read(counts: &AnswerCounts) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    AnswerCode::ALL.into_iter().zip(counts).map(|(code, count)| (code.name(), count.load(Ordering::Relaxed)))
}

/// Figures of one operation.
#[derive(Debug)]
pub struct OperationFigures {
    answers: AnswerCounts,
    retries: AnswerCounts,
    times: Times,
    connected: AtomicUsize,
    /// When the last output was delivered, microseconds since 1970; 0: none yet.
    last_us: AtomicI64,
}

impl Default for OperationFigures {
    fn default() -> OperationFigures {
        OperationFigures {
            answers: [const { AtomicU64::new(0) }; AnswerCode::ALL.len()],
            retries: [const { AtomicU64::new(0) }; AnswerCode::ALL.len()],
            times: Times::default(),
            connected: AtomicUsize::new(0),
            last_us: AtomicI64::new(0),
        }
    }
}

impl OperationFigures {
    /// A try ended, so long after it began.
    pub fn answered(&self, code: AnswerCode, after: Duration) {
        self.answers[code as usize].fetch_add(1, Ordering::Relaxed);
        if code.has_time() {
            self.times.note(1, 0, after);
        }
    }

    /// A try is to be followed by another.
    pub fn tries_again(&self, code: AnswerCode) {
        self.retries[code as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// An output was delivered.
    pub fn delivered(&self, now_us: i64) {
        self.last_us.store(now_us, Ordering::Relaxed);
    }

    /// A lane has a connection, or has one no longer.
    pub fn connects(&self, is_connected: bool) {
        match is_connected {
            true => self.connected.fetch_add(1, Ordering::Relaxed),
            false => self.connected.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// How many tries ended with each answer.
    pub fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        read(&self.answers)
    }

    /// How many tries were followed by another, by what they had ended with.
    pub fn retries(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        read(&self.retries)
    }

    /// Times from the begin of a try to its answer or its time limit; files: until they were persistent.
    pub fn times(&self) -> Noted {
        self.times.noted()
    }

    /// Lanes that have a connection, as of their last try; of MLLP.
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// When the last output was delivered, microseconds since 1970; none since the start.
    pub fn last_us(&self) -> Option<i64> {
        Some(self.last_us.load(Ordering::Relaxed)).filter(|us| *us != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_and_every_answer_has_a_count_of_its_own() {
        let figures = ServiceFigures::default();
        let all = [Status::Routed, Status::Dropped, Status::Unmatched, Status::Rejected, Status::Errored];
        all.into_iter().for_each(|status| figures.took(status, 10, 5));
        figures.refused();
        assert!(figures.statuses().all(|(_, count)| count == 1));
        assert_eq!((figures.sizes().count(), figures.sizes().sum, figures.last_us()), (5, 50, Some(5)));
        let figures = OperationFigures::default();
        for (at, code) in AnswerCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, at);
            figures.answered(code, Duration::from_millis(1));
            figures.tries_again(code);
        }
        assert!(figures.answers().chain(figures.retries()).all(|(_, count)| count == 1));
        assert_eq!(figures.times().count(), 10, "replies and files: what was not answered has no time");
    }
}
