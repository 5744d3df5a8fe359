//! Alerts of a node for who has no Prometheus: rules in `alerts.toml`, one message when a condition begins, one when it is over.
//!
//! ```text
//!   Samples, every ten seconds --conditions--> what holds, by rule and subject --AlertBook::apply--> actions
//!                                                                                 |      tell a channel, note in the history, save
//!                                                             silences, escalation, quiet hours
//! ```
//!
//! The book, conditions, rules and schedules are pure: time comes in with each event. The keeper is the thin shell around them, which looks,
//! keeps and sends. A message holds names of the configuration and figures: nothing of a message of a patient.
//!
//! Invariants: of a condition that lasts one message goes out when it begins and one when it is over, through any number of looks and
//! restarts; who was told of its begin is told of its end; what is silenced is told once its silence is over, if it still holds.

mod book;
mod channel;
mod condition;
mod connect;
#[cfg(test)]
mod crash_tests;
mod deliver;
mod files;
mod keeper;
mod keeping;
mod kept;
mod mail;
mod rules;
mod schedule;
mod smtp;
mod untaken;
mod webhook;

pub use book::{
    AlertAction, AlertBook, AlertEvent, AlertKey, AlertNote, AlertNotice, AlertState, Firing, NoticeKind, Outgoing,
    Silence,
};
pub use channel::{Channel, ChannelKind, MailSecurity, Mailbox, Webhook};
pub use condition::{Condition, Look, Subject};
pub use keeper::AlertKeeper;
pub use rules::{AlertRule, AlertRules, Escalation, FILE_BYTES_MAX};
pub use schedule::Schedule;

/// Reads bytes as a reply of SMTP and as an answer of HTTP; for fuzzing.
pub fn read_replies(bytes: &[u8]) {
    if let Ok(Some((_, length))) = smtp::reply_in(bytes) {
        assert!(length <= bytes.len(), "a reply is not longer than what was read");
    }
    let _ = webhook::status_of(bytes);
}
