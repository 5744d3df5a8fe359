//! Alerts of a node for who has no Prometheus: rules in `alerts.toml`, one message when a condition begins, one when it is over.
//!
//! ```text
//!   Samples, every ten seconds --conditions--> what holds, by rule and subject --AlertBook::apply--> actions
//!                                                                                 |      tell a channel, note in the history, save
//!                                                             silences, escalation, quiet hours
//! ```
//!
//! The book, conditions, rules and schedules are pure: time comes in with each event. The keeper is the thin shell around them, which looks,
//! keeps and sends.
//!
//! Invariants: of a condition that lasts one message goes out when it begins and one when it is over, through any number of looks and
//! restarts; who was told of its begin is told of its end; what is silenced is told once its silence is over, if it still holds.

mod book;
mod condition;
mod deliver;
mod keeper;
mod kept;
mod rules;
mod schedule;

pub use book::{
    AlertAction, AlertBook, AlertEvent, AlertKey, AlertNote, AlertNotice, AlertState, Firing, NoticeKind, Silence,
};
pub use condition::{Condition, Look, Subject};
pub use keeper::AlertKeeper;
pub use rules::{AlertRule, AlertRules, Channel, Escalation};
pub use schedule::Schedule;
