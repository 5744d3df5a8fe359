//! The reaction to an answer: the reply table, the limit of tries, the pause before the next. Pure.
//!
//! | answer | counts as a try | default |
//! |---|---|---|
//! | AA, CA | | delivered |
//! | AE, CE | yes | failed (it can be resent by hand) |
//! | AR, CR | yes | tried again |
//! | no answer in time, another's, unreadable | yes | tried again, the socket closed |
//! | closed while it was sent, or before the answer | yes | tried again |
//! | not connected | no | tried again without end |
//!
//! A receiver that is down uses up no tries: after an outage of a night, the night's messages must not be marked
//! failed.

use std::time::Duration;

use crate::figures::AnswerCode;
use crate::production::settings::{OperationSettings, ReplyAction, ReplyKind, Retry};
use crate::queue::hindrance::Reached;
use crate::queue::progress::LastAnswer;

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The receiver answered, or did not answer in time.
    Reply {
        /// Which kind of answer.
        kind: ReplyKind,
        /// For the record: the code, with what makes it plain; no bytes of the message.
        detail: String,
        /// What the receiver says about it, which can quote the message: for display to who may read that.
        text: Option<String>,
    },
    /// A file was written and is persistent.
    Written,
    /// No connection.
    Unreachable {
        /// Why.
        reason: String,
    },
    /// The connection broke while the message was sent, or before its answer. It is unknown whether it was received.
    Unanswered {
        /// Why.
        reason: String,
    },
    /// It cannot be sent at all, however often.
    Impossible {
        /// Why.
        reason: String,
    },
}

impl Answer {
    /// The same for the progress of a lane.
    pub(super) fn noted(&self, at_us: i64) -> LastAnswer {
        let (answer, text, reached, unknown) = match self {
            Answer::Written => ("written", None, true, false),
            Answer::Reply { kind, detail, text } => {
                let unknown = matches!(kind, ReplyKind::Timeout | ReplyKind::WrongId | ReplyKind::Unreadable);
                (detail.as_str(), text.clone(), true, unknown)
            }
            Answer::Unreachable { reason } => (reason.as_str(), None, false, false),
            Answer::Unanswered { reason } => (reason.as_str(), None, true, true),
            Answer::Impossible { reason } => (reason.as_str(), None, true, false),
        };
        LastAnswer { answer: answer.to_owned(), text, reached, unknown, at_us }
    }

    /// What it says about the connection.
    pub(super) fn connection(&self) -> Reached {
        match self {
            Answer::Unreachable { reason } => Reached::Down(reason.clone()),
            _ => Reached::Connected,
        }
    }

    /// Its code in the figures of the operation.
    pub fn code(&self) -> AnswerCode {
        match self {
            Answer::Reply { kind, .. } => match kind {
                ReplyKind::AA => AnswerCode::AA,
                ReplyKind::AE => AnswerCode::AE,
                ReplyKind::AR => AnswerCode::AR,
                ReplyKind::CA => AnswerCode::CA,
                ReplyKind::CE => AnswerCode::CE,
                ReplyKind::CR => AnswerCode::CR,
                ReplyKind::Timeout => AnswerCode::Timeout,
                ReplyKind::WrongId => AnswerCode::WrongId,
                ReplyKind::Unreadable => AnswerCode::Unreadable,
            },
            Answer::Written => AnswerCode::Written,
            Answer::Unreachable { .. } => AnswerCode::Unreachable,
            Answer::Unanswered { .. } => AnswerCode::Unanswered,
            Answer::Impossible { .. } => AnswerCode::Impossible,
        }
    }
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Delivered.
    Complete {
        /// For the record.
        detail: String,
        /// Log it as a warning.
        warn: bool,
    },
    /// Given up.
    Fail {
        /// For the record.
        detail: String,
    },
    /// The same message again after a pause.
    Retry {
        /// How long to wait.
        pause: Duration,
        /// For the log.
        reason: String,
    },
    /// Suspend the operation, with the message at the head.
    Suspend {
        /// For the log and the record.
        reason: String,
    },
}

/// Tries of the message at the head of a lane.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tries {
    answered: u32,
    all: u32,
}

impl Tries {
    /// Tries so far.
    pub fn count(&self) -> u32 {
        self.all
    }

    /// The 1st, 2nd, 4th, 8th ... try: a receiver that is down for a night gives a dozen lines, not ten thousand.
    pub fn worth_a_line(&self) -> bool {
        self.all.is_power_of_two()
    }

    /// The next pause is the shortest again: an operator resumed the operation.
    pub fn start_over(&mut self) {
        self.all = 0;
    }

    fn pause(&self, retry: &Retry) -> Duration {
        retry.pause_after(self.all)
    }
}

/// Decides.
pub fn decide(operation: &OperationSettings, answer: &Answer, tries: &mut Tries) -> Next {
    tries.all = tries.all.saturating_add(1);
    let retry = operation.retry();
    let (kind, detail) = match answer {
        Answer::Written => return Next::Complete { detail: "written".to_owned(), warn: false },
        Answer::Impossible { reason } => return Next::Fail { detail: reason.clone() },
        Answer::Unreachable { reason } => return Next::Retry { pause: tries.pause(&retry), reason: reason.clone() },
        Answer::Unanswered { reason } => (None, reason.clone()),
        Answer::Reply { kind, detail, .. } => (Some(*kind), detail.clone()),
    };
    let action = match (operation, kind) {
        (OperationSettings::Mllp(mllp), Some(kind)) => mllp.action(kind),
        _ => ReplyAction::Retry,
    };
    match action {
        ReplyAction::Complete => Next::Complete { detail, warn: false },
        ReplyAction::Warn => Next::Complete { detail, warn: true },
        ReplyAction::Fail => Next::Fail { detail },
        ReplyAction::Suspend => Next::Suspend { reason: format!("the receiver answered {detail}") },
        ReplyAction::Retry => {
            tries.answered = tries.answered.saturating_add(1);
            if retry.attempts > 0 && tries.answered >= retry.attempts {
                return Next::Fail { detail: format!("{detail}, after {} tries", tries.answered) };
            }
            Next::Retry { pause: tries.pause(&retry), reason: detail }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(extra: &str) -> OperationSettings {
        let text = format!("kind = \"mllp\"\naddress = \"h:1\"\n{extra}");
        OperationSettings::Mllp(toml::from_str(&text).unwrap())
    }

    fn reply(kind: ReplyKind) -> Answer {
        Answer::Reply { kind, detail: format!("{kind:?}"), text: None }
    }

    #[test]
    fn the_default_table_loses_nothing_and_keeps_the_order() {
        let operation = operation("");
        for (kind, expected) in [
            (ReplyKind::AA, "Complete"),
            (ReplyKind::CA, "Complete"),
            (ReplyKind::AE, "Fail"),
            (ReplyKind::CE, "Fail"),
            (ReplyKind::AR, "Retry"),
            (ReplyKind::CR, "Retry"),
            (ReplyKind::Timeout, "Retry"),
            (ReplyKind::WrongId, "Retry"),
            (ReplyKind::Unreadable, "Retry"),
        ] {
            let next = format!("{:?}", decide(&operation, &reply(kind), &mut Tries::default()));
            assert!(next.starts_with(expected), "{kind:?}: {next}");
        }
    }

    #[test]
    fn the_reply_table_overrides_each_default() {
        let operation =
            operation("[reply]\nAE = \"warn\"\nAR = \"suspend\"\ntimeout = \"fail\"\nwrong-id = \"complete\"\n");
        let next = |kind| decide(&operation, &reply(kind), &mut Tries::default());
        assert_eq!(next(ReplyKind::AE), Next::Complete { detail: "AE".into(), warn: true });
        assert_eq!(next(ReplyKind::AR), Next::Suspend { reason: "the receiver answered AR".into() });
        assert_eq!(next(ReplyKind::Timeout), Next::Fail { detail: "Timeout".into() });
        assert_eq!(next(ReplyKind::WrongId), Next::Complete { detail: "WrongId".into(), warn: false });
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_answered_tries_run_out() {
        let operation = operation("[retry]\nfirst = \"1s\"\nmax = \"5s\"\nattempts = 5\n");
        let mut tries = Tries::default();
        let mut pauses = Vec::new();
        let last = loop {
            match decide(&operation, &reply(ReplyKind::AR), &mut tries) {
                Next::Retry { pause, .. } => pauses.push(pause.as_secs()),
                other => break other,
            }
        };
        assert_eq!(pauses, [1, 2, 4, 5]);
        assert_eq!(last, Next::Fail { detail: "AR, after 5 tries".into() });
    }

    #[test]
    fn a_receiver_that_is_back_is_tried_within_seconds_by_default_and_at_once_when_somebody_says_so() {
        let operation = operation("");
        let down = Answer::Unreachable { reason: "refused".into() };
        let mut tries = Tries::default();
        let mut pause = || match decide(&operation, &down, &mut tries) {
            Next::Retry { pause, .. } => pause.as_secs(),
            other => panic!("{other:?}"),
        };
        let pauses: Vec<u64> = (0..100).map(|_| pause()).collect();
        assert_eq!((&pauses[..4], pauses.iter().max()), (&[1, 2, 4, 5][..], Some(&5)));
        tries.start_over();
        assert!(matches!(decide(&operation, &down, &mut tries), Next::Retry { pause, .. } if pause.as_secs() == 1));
    }

    #[test]
    fn a_receiver_that_is_down_uses_up_no_tries() {
        let operation = operation("[retry]\nattempts = 2\n");
        let mut tries = Tries::default();
        for _ in 0..1_000 {
            let down = Answer::Unreachable { reason: "refused".into() };
            assert!(matches!(decide(&operation, &down, &mut tries), Next::Retry { .. }));
        }
        let gone = Answer::Unanswered { reason: "closed".into() };
        assert!(matches!(decide(&operation, &gone, &mut tries), Next::Retry { .. }));
        assert!(
            matches!(decide(&operation, &gone, &mut tries), Next::Fail { .. }),
            "a poison message runs out of tries"
        );
    }
}
