//! [`WatchAdmin`]: alerts and the history of figures, as the console asks a node for them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use node::identity::Caller;
use serde::Serialize;

use crate::admin_error::AdminError;

/// What a node is asked about alerts and the history of its figures; a part of [`Admin`](crate::Admin).
#[async_trait]
pub trait WatchAdmin: Send + Sync + 'static {
    /// Alerts, silences, rules, and what was. Needs `node-status`.
    async fn alerts(&self, caller: &Caller) -> Result<AlertsView, AdminError>;

    /// Silences alerts; the number of the silence. Needs `alert-silence`.
    async fn silence_alerts(&self, caller: &Caller, asked: &SilenceAsked) -> Result<u64, AdminError>;

    /// Ends a silence. Needs `alert-silence`.
    async fn unsilence_alerts(&self, caller: &Caller, number: u64) -> Result<(), AdminError>;

    /// All figures of the history, or one with its points, within a range such as `1h`. Needs `node-metrics`.
    async fn history(&self, caller: &Caller, series: Option<&str>, range: &str) -> Result<HistoryView, AdminError>;

    /// The names of all figures of the history. It reads no points. Needs `node-metrics`.
    async fn history_names(&self, caller: &Caller) -> Result<Vec<String>, AdminError>;

    /// A few figures of the history, each with its points, within a range; read once for all of them. Those that there are not are left
    /// out. Needs `node-metrics`.
    async fn histories(
        &self,
        caller: &Caller,
        series: &[String],
        range: &str,
    ) -> Result<Vec<(String, HistoryView)>, AdminError>;
}

/// An alert that waits or is on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AlertLine {
    /// The rule.
    pub rule: String,
    /// What it is about: an operation, a service, a tier.
    pub subject: String,
    /// Since when its condition holds, microseconds since 1970.
    pub since_us: i64,
    /// How far it is.
    pub state: AlertLineState,
    /// Channels that were told.
    pub told: Vec<String>,
    /// What was the matter when it began.
    pub text: String,
}

/// How far an alert is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertLineState {
    /// Its condition has not held for long enough.
    #[default]
    Waits,
    /// Somebody was told.
    On,
    /// Those of its escalation were told too.
    Escalated,
    /// Nobody is told.
    Silenced,
}

impl AlertLineState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            AlertLineState::Waits => "waits",
            AlertLineState::On => "on",
            AlertLineState::Escalated => "escalated",
            AlertLineState::Silenced => "silenced",
        }
    }
}

/// A silence.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SilenceLine {
    /// Its number.
    pub number: u64,
    /// The rule; none: all.
    pub rule: Option<String>,
    /// The subject; none: all.
    pub subject: Option<String>,
    /// Until when, microseconds since 1970.
    pub until_us: i64,
    /// Why.
    pub reason: String,
    /// Who set it.
    pub by: String,
}

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AlertRuleLine {
    /// Its name.
    pub name: String,
    /// Its condition, as it was written.
    pub when: String,
    /// Channels that are told.
    pub channels: Vec<String>,
}

/// A line of the history of alerts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AlertNoteLine {
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// What happened: on, off, escalated, silenced, not told.
    pub what: String,
    /// The rule; empty where it is about all.
    pub rule: String,
    /// The subject; empty where it is about all.
    pub subject: String,
    /// More, in words.
    pub text: String,
}

/// What there is to see about alerts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AlertsView {
    /// Alerts that wait or are on.
    pub alerts: Vec<AlertLine>,
    /// Silences.
    pub silences: Vec<SilenceLine>,
    /// Messages that wait for a channel to take them, by channel.
    pub waiting: BTreeMap<String, usize>,
    /// Rules in force.
    pub rules: Vec<AlertRuleLine>,
    /// What was, newest first.
    pub notes: Vec<AlertNoteLine>,
}

/// A silence that is asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SilenceAsked {
    /// The rule; none: all.
    pub rule: Option<String>,
    /// The subject; none: all.
    pub subject: Option<String>,
    /// For how long, minutes.
    pub minutes: u32,
    /// Why.
    pub reason: String,
}

/// A figure in the list of the history, each value with its unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HistoryLine {
    /// Its name.
    pub series: String,
    /// The last value.
    pub last: String,
    /// The least.
    pub least: String,
    /// The mean.
    pub mean: String,
    /// The most.
    pub most: String,
}

/// The history of all figures, or of one with its points.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HistoryView {
    /// The figures.
    pub lines: Vec<HistoryLine>,
    /// Of one figure: when (microseconds since 1970), mean, least, most.
    pub points: Vec<[f64; 4]>,
    /// The range begins, microseconds since 1970.
    pub since_us: i64,
    /// It ends.
    pub until_us: i64,
    /// Between two points, seconds.
    pub step_s: i64,
}
