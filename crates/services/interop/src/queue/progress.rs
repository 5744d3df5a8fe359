//! [`LaneProgress`]: what a lane does with the message at its head, and why it waits, in words. Pure.
//!
//! ```text
//!   Taken -> Connecting -> Sent -> Answered --> Pausing --> Taken (the same message again)
//!                 \         |          \--> Gone: another message, or none
//!                  \--> Answered (not connected)
//! ```
//!
//! The lane's task applies an event at each step; readers take a copy. The text of a receiver's answer can quote the message: it is
//! kept apart from the code, and shown only to who may read bodies without the mask.

use serde::{Deserialize, Serialize};

/// Longest text of an answer that is kept.
pub const ANSWER_TEXT_MAX: usize = 200;

/// What a lane does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneStage {
    /// Nothing.
    #[default]
    Idle,
    /// It connects to the receiver.
    Connecting,
    /// It has sent, or is sending, and waits for the answer.
    Answer,
    /// It writes files.
    Writing,
    /// It waits until the next try.
    Pause,
}

/// The state of its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// None was needed since the start, or its operation has none.
    #[default]
    None,
    /// It is open.
    Connected,
    /// The last try to connect failed, or the connection was lost.
    Down,
    /// It was closed after an answer that was missing, doubtful or not wanted.
    Closed,
}

/// The result of a try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAnswer {
    /// The code, or what happened, in words of the engine: `AE`, `no answer within 30s`, `no connection to h:1: ...`.
    pub answer: String,
    /// The receiver's text, cut at [`ANSWER_TEXT_MAX`] bytes; none where it sent none, or where who asks may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether the receiver was reached.
    pub reached: bool,
    /// Whether it is unknown that the receiver has the message.
    pub unknown: bool,
    /// When, microseconds since 1970.
    pub at_us: i64,
}

/// A step of a lane's task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneEvent {
    /// It takes the message at the head in hand, for the first time or again.
    Taken {
        /// The message.
        id: u64,
    },
    /// It connects.
    Connecting,
    /// It is connected, and sends.
    Sent,
    /// It writes files.
    Writing,
    /// A try has ended.
    Answered(LastAnswer),
    /// Whether a connection is open after a try.
    Connection(ConnectionState),
    /// It waits so long for the next try, microseconds.
    Pausing {
        /// How long.
        pause_us: i64,
    },
    /// The message at the head has its outcome, and has left.
    Gone,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneProgress {
    /// The message in hand.
    pub head: Option<u64>,
    /// What is done with it, and since when.
    pub stage: LaneStage,
    /// See `stage`; microseconds since 1970.
    pub stage_since_us: i64,
    /// When the next try is due.
    pub next_try_us: Option<i64>,
    /// Tries of the message in hand that have ended.
    pub tries: u32,
    /// When the first of them began.
    pub first_try_us: i64,
    /// The connection.
    pub connection: ConnectionState,
    /// The result of the last try of any message since the start.
    pub last: Option<LastAnswer>,
}

impl LaneProgress {
    /// The state after an event.
    pub fn apply(&mut self, event: LaneEvent, now_us: i64) {
        let stage = match event {
            LaneEvent::Taken { id } => {
                if self.head != Some(id) {
                    (self.head, self.tries, self.first_try_us) = (Some(id), 0, now_us);
                }
                self.next_try_us = None;
                return;
            }
            LaneEvent::Connecting => LaneStage::Connecting,
            LaneEvent::Sent => {
                self.connection = ConnectionState::Connected;
                LaneStage::Answer
            }
            LaneEvent::Writing => LaneStage::Writing,
            LaneEvent::Answered(answer) => {
                self.tries = self.tries.saturating_add(1);
                self.last = Some(answer);
                LaneStage::Idle
            }
            LaneEvent::Connection(state) => {
                self.connection = state;
                return;
            }
            LaneEvent::Pausing { pause_us } => {
                self.next_try_us = Some(now_us.saturating_add(pause_us));
                LaneStage::Pause
            }
            LaneEvent::Gone => {
                (self.head, self.tries, self.next_try_us) = (None, 0, None);
                LaneStage::Idle
            }
        };
        (self.stage, self.stage_since_us) = (stage, now_us);
    }

    /// What is known of the last try of this message, where it is unknown whether the receiver has it.
    pub fn unknown(&self, id: u64) -> Option<&str> {
        let last = self.last.as_ref().filter(|last| last.unknown && self.head == Some(id) && self.tries > 0)?;
        Some(&last.answer)
    }

    /// Why its messages wait, in words. `shows_text`: with the receiver's text.
    pub fn words(&self, now_us: i64, shows_text: bool) -> String {
        let since = |at_us: i64| span(now_us.saturating_sub(at_us));
        let Some(head) = self.head else { return "it is about to be sent".to_owned() };
        let last = self.last.as_ref().filter(|_| self.tries > 0);
        let before = last.map(|last| format!(": {}", answered(last, shows_text))).unwrap_or_default();
        let (try_now, so_far) = (ordinal(self.tries.saturating_add(1)), count(self.tries));
        match (self.stage, last) {
            (LaneStage::Answer, _) => {
                let waits = format!("waits for the answer to message {head} for {}", since(self.stage_since_us));
                format!("{waits}, {try_now} try{before}")
            }
            (LaneStage::Writing, _) => format!("writes message {head} for {}{before}", since(self.stage_since_us)),
            (_, Some(last)) if !last.reached => {
                let tries = format!("{so_far} of message {head} in {}", since(self.first_try_us));
                format!("{}, {tries}{}", last.answer, self.next(now_us))
            }
            (LaneStage::Connecting, _) => format!("connects for {}{before}", since(self.stage_since_us)),
            (_, Some(_)) => format!("{so_far} of message {head}{}{before}", self.next(now_us)),
            (_, None) => format!("message {head} is about to be sent"),
        }
    }

    /// When it is tried again.
    fn next(&self, now_us: i64) -> String {
        match self.next_try_us.filter(|_| self.stage == LaneStage::Pause) {
            Some(at_us) => format!(", the next in {}", span(at_us.saturating_sub(now_us))),
            None => ", again now".to_owned(),
        }
    }
}

fn answered(last: &LastAnswer, shows_text: bool) -> String {
    match &last.text {
        Some(text) if shows_text => format!("{} {text}", last.answer),
        _ => last.answer.clone(),
    }
}

fn count(tries: u32) -> String {
    if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") }
}

fn ordinal(n: u32) -> String {
    let ending = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// A time span in the two largest units that it has: `4 s`, `14 min`, `2 h 5 min`, `3 d 1 h`.
pub fn span(us: i64) -> String {
    let seconds = us.max(0) / 1_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {small_unit}") }
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => pair(minutes, "min", seconds % 60, "s"),
        (0, ..) => pair(hours, "h", minutes % 60, "min"),
        _ => pair(days, "d", hours % 24, "h"),
    }
}

/// The text of an answer, as far as it is kept: on one line, without control characters.
pub fn answer_text(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2 * ANSWER_TEXT_MAX)]);
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let plain = plain.trim();
    (!plain.is_empty()).then(|| plain[..plain.floor_char_boundary(ANSWER_TEXT_MAX)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn answer(answer: &str, text: Option<&str>, reached: bool) -> LaneEvent {
        let (answer, text) = (answer.to_owned(), text.map(str::to_owned));
        LaneEvent::Answered(LastAnswer { answer, text, reached, unknown: false, at_us: 0 })
    }

    fn after(events: &[(i64, LaneEvent)]) -> LaneProgress {
        let mut progress = LaneProgress::default();
        events.iter().for_each(|(at, event)| progress.apply(event.clone(), at * S));
        progress
    }

    #[test]
    fn the_cause_of_waiting_is_told_at_each_step() {
        let mut events = Vec::new();
        let refused = "no connection to 10.1.2.3:6661: Connection refused";
        for (at, event, expected) in [
            (0, LaneEvent::Taken { id: 7 }, "message 7 is about to be sent"),
            (0, LaneEvent::Connecting, "connects for 3 s"),
            (
                1,
                answer(refused, None, false),
                "no connection to 10.1.2.3:6661: Connection refused, 1 try of message 7 in 4 s, again now",
            ),
            (
                1,
                LaneEvent::Pausing { pause_us: 5 * S },
                "no connection to 10.1.2.3:6661: Connection refused, 1 try of message 7 in 4 s, the next in 2 s",
            ),
            (
                6,
                LaneEvent::Taken { id: 7 },
                "no connection to 10.1.2.3:6661: Connection refused, 1 try of message 7 in 9 s, again now",
            ),
            (
                6,
                LaneEvent::Sent,
                "waits for the answer to message 7 for 3 s, 2nd try: no connection to 10.1.2.3:6661: Connection refused",
            ),
            (9, answer("AE", Some("unknown patient"), true), "2 tries of message 7, again now: AE"),
            (9, LaneEvent::Pausing { pause_us: 60 * S }, "2 tries of message 7, the next in 57 s: AE"),
            (70, LaneEvent::Taken { id: 7 }, "2 tries of message 7, again now: AE"),
            (70, LaneEvent::Sent, "waits for the answer to message 7 for 3 s, 3rd try: AE"),
            (70, LaneEvent::Gone, "it is about to be sent"),
            (71, LaneEvent::Taken { id: 9 }, "message 9 is about to be sent"),
            (71, LaneEvent::Sent, "waits for the answer to message 9 for 3 s, 1st try"),
        ] {
            events.push((at, event));
            assert_eq!(after(&events).words((at + 3) * S, false), expected, "{:?}", events.last());
        }
    }

    #[test]
    fn the_text_of_an_answer_is_shown_only_where_that_is_allowed_and_is_short_and_plain() {
        let progress = after(&[
            (0, LaneEvent::Taken { id: 7 }),
            (0, answer("AE", Some("unknown patient"), true)),
            (1, LaneEvent::Sent),
        ]);
        assert!(progress.words(5 * S, true).ends_with("2nd try: AE unknown patient"));
        assert!(progress.words(5 * S, false).ends_with("2nd try: AE"));
        assert_eq!(answer_text(b" a\rb\x1b[2J "), Some("a b [2J".to_owned()));
        assert_eq!((answer_text(b""), answer_text(b" \r ")), (None, None));
        assert!(answer_text(&[0xc3; 10_000]).expect("a text").len() <= ANSWER_TEXT_MAX);
    }

    #[test]
    fn what_is_unknown_of_a_message_is_forgotten_with_it() {
        let lost =
            LastAnswer { answer: "no answer within 1s".into(), text: None, reached: true, unknown: true, at_us: 0 };
        let mut progress = after(&[(0, LaneEvent::Taken { id: 7 }), (1, LaneEvent::Answered(lost))]);
        assert_eq!((progress.unknown(7), progress.unknown(8)), (Some("no answer within 1s"), None));
        progress.apply(LaneEvent::Gone, 2 * S);
        progress.apply(LaneEvent::Taken { id: 8 }, 2 * S);
        assert_eq!((progress.unknown(7), progress.unknown(8)), (None, None));
    }

    #[test]
    fn spans_have_two_units_and_ordinals_their_endings() {
        let spans = [0, 59, 60, 61, 3_600, 7_500, 86_400, 262_800, -5].map(|s| span(s * S));
        let expected = ["0 s", "59 s", "1 min", "1 min 1 s", "1 h", "2 h 5 min", "1 d", "3 d 1 h", "0 s"];
        assert_eq!(spans, expected);
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 102].map(ordinal),
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd"]
        );
    }
}
