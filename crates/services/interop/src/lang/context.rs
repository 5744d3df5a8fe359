//! The inputs of a run besides the message, its results, and its errors.

use std::sync::Arc;
use std::time::Duration;

use super::Allowance;
use hl7::EditError;
use hl7::charset::Charset;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The environment of one decision or transform. A run has no other input, so the same message and context always
/// give the same result.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The present, for `now(...)`.
    pub now: Timestamp,
    /// The zone of `now(...)`, and of times without an offset where one is to be written.
    pub zone: TimeZone,
    /// Name of the service that received the message, for `service`.
    pub service: &'a str,
    /// The result of `control_id()`: an id that no other message of this sender has.
    pub control_id: &'a str,
    /// The character set of messages that declare none in MSH-18.
    pub charset: Charset,
    /// The time that the run may take; none: no limit.
    pub allowance: Option<&'a Allowance>,
}

impl<'a> Context<'a> {
    /// A context in UTC, with UTF-8 for messages that declare no character set.
    #[must_use]
    pub fn new(now: Timestamp, service: &'a str, control_id: &'a str) -> Context<'a> {
        Context { now, zone: TimeZone::UTC, service, control_id, charset: Charset::UTF_8, allowance: None }
    }
}

/// The result of a transform that ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The draft, as it is now, is sent.
    Send,
    /// `skip`: it is not sent to this operation.
    Skip,
}

/// Why a message could not be decided on or transformed. Names the file, the line and the expression there, but never
/// contents of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct RunError {
    /// The declared file, as named when it was loaded.
    pub file: Arc<str>,
    /// The line in it, from 1.
    pub line: u32,
    /// What went wrong there.
    pub problem: RunProblem,
}

/// What can go wrong in a run. The strings are text of the declared files: paths, expressions, names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunProblem {
    /// A lookup without a default met a key the table does not have.
    #[error("table `{table}` has no entry for the value of {what}; add one, or give lookup a default")]
    NoEntry {
        /// The table.
        table: String,
        /// The key's expression.
        what: String,
    },
    /// A value that should be a time is not written as the pattern says.
    #[error("the value of {what} is not a time in the expected form; check the pattern, or give date a default")]
    NotATime {
        /// The value's expression.
        what: String,
    },
    /// A time has not all requested parts: for example a year alone, where a day is to be written.
    #[error(
        "the value of {what} is a time that does not say all that is asked for; give date a default, or end its first \
         form in ` first`, which counts what is missing as 01 or 00"
    )]
    Imprecise {
        /// The value's expression.
        what: String,
    },
    /// The place cannot be written.
    #[error("cannot write {place}: {source}")]
    Edit {
        /// The place, as written in the file.
        place: String,
        /// Why the message's form does not allow it.
        source: EditError,
    },
    /// The statement inserts beside, writes to or copies from a segment that does not exist.
    #[error("the message has no {place}; test for it with `if exists {place}`")]
    NoSegment {
        /// The place, as written in the file.
        place: String,
    },
    /// A loop variable names a segment or repetition that the loop has deleted.
    #[error("{place} was deleted before this line")]
    Deleted {
        /// The place, as written in the file.
        place: String,
    },
    /// A text of the file, of a table or of the configuration cannot be written in the message's character set.
    #[error("a text does not fit the message's character set, {charset}; use plain letters, or convert the message")]
    Charset {
        /// Name of the character set.
        charset: &'static str,
    },
    /// `fail`.
    #[error("{text}")]
    Failed {
        /// The text after `fail`.
        text: String,
    },
    /// The run made more output than the limit for a message: loops within loops that insert, values that double.
    #[error("this transform makes more than {limit} {what} of one message; check its loops")]
    TooMuch {
        /// The limit.
        limit: u32,
        /// Of what.
        what: &'static str,
    },
    /// The allowance was used up while this statement was run. It need not be the most expensive statement; the loop
    /// around it is.
    #[error(
        "deciding on this message took more than {limit:?} and was given up at this statement; check the loops around it, \
         or raise `decision_time` of the service"
    )]
    OutOfTime {
        /// The allowance.
        limit: Duration,
    },
}
