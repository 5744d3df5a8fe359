//! [`AlertBook`]: which alerts are on, who is to be told, what is silenced. A pure state machine.
//!
//! ```text
//!             condition holds            has held for `for`
//!   (nothing) ---------------> waiting ---------------------> on: told ----- after `after` -----> told to the escalation too
//!       ^                         |                             |   |
//!       +--- does not hold -------+                             |   +-- silenced: not told, until the silence is over
//!       +------------------------------- does not hold: told to whom was told that it began
//! ```
//!
//! A message is [`Outgoing`] until its channel has taken it: kept with the state, it goes out after a restart too, under the same number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rules::{AlertRule, AlertRules, Escalation};

/// Most alerts that wait or are on at a time: further ones wait until one is over.
const ALERTS_MAX: usize = 1_000;

/// Most silences.
const SILENCES_MAX: usize = 100;

/// Most messages that wait for a channel: with more, what begins is told when there is room, and what ends is noted as not told.
const WAITING_MAX: usize = 50;

/// The name of a rule, and its subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AlertKey {
    /// The rule.
    pub rule: String,
    /// What it is about: an operation, a service, a tier.
    pub subject: String,
}

/// How far an alert is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// Since when the condition holds, microseconds since 1970.
    pub since_us: i64,
    /// When it began to count; none while it waits for that.
    pub began_us: Option<i64>,
    /// What was the matter when it began.
    pub text: String,
    /// Channels that were told that it began.
    pub told: Vec<String>,
    /// Whether the channels of its escalation were told, all of them.
    pub is_escalated: bool,
    /// Those of them that were told while others had no room.
    #[serde(default)]
    pub escalated: Vec<String>,
}

/// Nobody is told of what it matches, until it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
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
    /// When.
    pub at_us: i64,
}

impl Silence {
    /// Whether it is about an alert.
    pub fn matches(&self, key: &AlertKey) -> bool {
        self.rule.as_ref().is_none_or(|rule| *rule == key.rule)
            && self.subject.as_ref().is_none_or(|subject| *subject == key.subject)
    }
}

/// What is kept over a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertState {
    /// Those that wait or are on.
    #[serde(with = "pairs")]
    pub firing: BTreeMap<AlertKey, Firing>,
    /// Those in force.
    pub silences: Vec<Silence>,
    /// The number of the last silence.
    pub last_silence: u64,
    /// The number of the last message.
    pub last_message: u64,
}

/// JSON has no keys but texts.
mod pairs {
    use super::{AlertKey, BTreeMap, Deserialize, Firing};

    pub(super) fn serialize<S: serde::Serializer>(map: &BTreeMap<AlertKey, Firing>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<AlertKey, Firing>, D::Error> {
        Ok(Vec::<(AlertKey, Firing)>::deserialize(from)?.into_iter().collect())
    }
}

/// What a message to a channel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// It began.
    On,
    /// It lasts.
    Escalated,
    /// It is over.
    Off,
    /// Somebody tries a channel.
    Test,
}

/// A message to a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertNotice {
    /// Its number in this node. One that is sent twice, because its answer was lost, has the same.
    pub id: u64,
    /// What it says.
    pub kind: NoticeKind,
    /// The rule and its subject.
    #[serde(flatten)]
    pub key: AlertKey,
    /// The rule, as it was written.
    pub when: String,
    /// What is, or was, the matter.
    pub text: String,
    /// Since when the condition held, microseconds since 1970.
    pub since_us: i64,
    /// Now.
    pub at_us: i64,
}

/// A message that its channel has not taken yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// The channel.
    pub channel: String,
    /// The message.
    pub notice: AlertNotice,
}

/// A line of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertNote {
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// `on`, `off`, `escalated`, `silenced`, `silence over`, `not told`.
    pub what: String,
    /// The rule; empty where it is about all.
    pub rule: String,
    /// The subject; empty where it is about all.
    pub subject: String,
    /// More, in words.
    pub text: String,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum AlertEvent {
    /// The figures were looked at: what holds, by rule and subject.
    Looked(BTreeMap<AlertKey, String>),
    /// Somebody silences alerts. The number is drawn here.
    Silenced(Silence),
    /// Somebody ends a silence, by its number.
    Unsilenced(u64),
    /// A channel has taken the message of this number, or it was given up, for this reason.
    Done(u64, Option<String>),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlertAction {
    /// Keep a message, then send it.
    Tell(Outgoing),
    /// Keep the message of this number no more.
    Drop(u64),
    /// Write a line of the history.
    Note(AlertNote),
    /// Write the state: it is another one.
    Save,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct AlertBook {
    rules: Arc<AlertRules>,
    state: AlertState,
    /// Messages that were not taken yet, by their numbers.
    outgoing: BTreeMap<u64, Outgoing>,
}

impl AlertBook {
    /// With the state of before, and the messages that were not taken.
    pub fn new(rules: Arc<AlertRules>, state: AlertState, outgoing: BTreeMap<u64, Outgoing>) -> AlertBook {
        AlertBook { rules, state, outgoing }
    }

    /// Puts other rules in force. Alerts of rules that are gone end with the next look, and who was told of them is told so.
    pub fn replace(&mut self, rules: Arc<AlertRules>) {
        self.rules = rules;
    }

    /// Messages that were not taken yet, by their numbers.
    pub fn outgoing(&self) -> &BTreeMap<u64, Outgoing> {
        &self.outgoing
    }

    /// The state now.
    pub fn state(&self) -> &AlertState {
        &self.state
    }

    /// Applies what happened at a time, microseconds since 1970.
    pub fn apply(&mut self, event: AlertEvent, now_us: i64) -> Vec<AlertAction> {
        let before = self.state.clone();
        let mut actions = Vec::new();
        match event {
            AlertEvent::Looked(holds) => self.look(&holds, now_us, &mut actions),
            AlertEvent::Silenced(silence) => self.silence(silence, &mut actions),
            AlertEvent::Unsilenced(number) => self.unsilence(|silence| silence.number == number, now_us, &mut actions),
            AlertEvent::Done(id, failed) => {
                if let Some(Outgoing { channel, notice }) = self.outgoing.remove(&id) {
                    actions.push(AlertAction::Drop(id));
                    let why = failed.map(|why| format!("{channel}: {why}"));
                    actions.extend(why.map(|why| AlertAction::Note(note(&notice.key, "not told", &why, now_us))));
                }
            }
        }
        if self.state != before {
            actions.push(AlertAction::Save);
        }
        actions
    }

    fn silence(&mut self, silence: Silence, actions: &mut Vec<AlertAction>) {
        if self.state.silences.len() >= SILENCES_MAX {
            return;
        }
        self.state.last_silence += 1;
        let silence = Silence { number: self.state.last_silence, ..silence };
        actions.push(AlertAction::Note(note_of(&silence, "silenced", silence.at_us)));
        self.state.silences.push(silence);
    }

    fn unsilence(&mut self, ends: impl Fn(&Silence) -> bool, now_us: i64, actions: &mut Vec<AlertAction>) {
        self.state.silences.retain(|silence| {
            let ends = ends(silence);
            if ends {
                actions.push(AlertAction::Note(note_of(silence, "silence over", now_us)));
            }
            !ends
        });
    }

    fn look(&mut self, holds: &BTreeMap<AlertKey, String>, now_us: i64, actions: &mut Vec<AlertAction>) {
        self.unsilence(|silence| silence.until_us <= now_us, now_us, actions);
        let is_over = |key: &&AlertKey| !holds.contains_key(*key);
        let over: Vec<AlertKey> = self.state.firing.keys().filter(is_over).cloned().collect();
        for key in over {
            self.end(&key, now_us, actions);
        }
        for (key, text) in holds {
            let Some(rule) = self.rules.rules.iter().find(|rule| rule.name == key.rule).cloned() else { continue };
            self.holds(&rule, key, text, (now_us, &mut *actions));
        }
    }

    /// A condition does not hold any more.
    fn end(&mut self, key: &AlertKey, now_us: i64, actions: &mut Vec<AlertAction>) {
        let Some(firing) = self.state.firing.remove(key) else { return };
        let when = self.rules.rules.iter().find(|rule| rule.name == key.rule).map_or("", |rule| &rule.text).to_owned();
        if firing.began_us.is_some() {
            actions.push(AlertAction::Note(note(key, "off", &firing.text, now_us)));
        }
        for channel in &firing.told {
            let notice = AlertNotice {
                id: 0,
                kind: NoticeKind::Off,
                key: key.clone(),
                when: when.clone(),
                text: firing.text.clone(),
                since_us: firing.since_us,
                at_us: now_us,
            };
            if !self.send_to(channel, notice, actions) {
                let why = format!("{channel}: {WAITING_MAX} messages wait for it");
                actions.push(AlertAction::Note(note(key, "not told", &why, now_us)));
            }
        }
    }

    /// Puts a message behind those that wait for a channel; false: there are too many.
    fn send_to(&mut self, channel: &str, notice: AlertNotice, actions: &mut Vec<AlertAction>) -> bool {
        if self.outgoing.values().filter(|waits| waits.channel == channel).count() >= WAITING_MAX {
            return false;
        }
        self.state.last_message += 1;
        let id = self.state.last_message;
        let outgoing = Outgoing { channel: channel.to_owned(), notice: AlertNotice { id, ..notice } };
        self.outgoing.insert(id, outgoing.clone());
        actions.push(AlertAction::Tell(outgoing));
        true
    }

    /// A condition holds.
    fn holds(&mut self, rule: &AlertRule, key: &AlertKey, text: &str, (now_us, actions): (i64, &mut Vec<AlertAction>)) {
        let is_silenced = self.state.silences.iter().any(|silence| silence.matches(key));
        if !self.state.firing.contains_key(key) && self.state.firing.len() >= ALERTS_MAX {
            return;
        }
        let mut firing = self.state.firing.remove(key).unwrap_or_else(|| Firing {
            since_us: now_us,
            began_us: None,
            text: text.to_owned(),
            told: Vec::new(),
            is_escalated: false,
            escalated: Vec::new(),
        });
        let begins = firing.begins(rule, text, now_us);
        if begins {
            actions.push(AlertAction::Note(note(key, "on", text, now_us)));
        }
        if firing.began_us.is_some() && !is_silenced {
            self.send_due(rule, key, &mut firing, (text, now_us, actions));
        }
        self.state.firing.insert(key.clone(), firing);
    }

    /// Tells those who are to be told by now and were not.
    fn send_due(
        &mut self,
        rule: &AlertRule,
        key: &AlertKey,
        firing: &mut Firing,
        (text, now_us, actions): (&str, i64, &mut Vec<AlertAction>),
    ) {
        let since_us = firing.since_us;
        let notice = |kind: NoticeKind| AlertNotice {
            id: 0,
            kind,
            key: key.clone(),
            when: rule.text.clone(),
            text: text.to_owned(),
            since_us,
            at_us: now_us,
        };
        for channel in &rule.channels {
            if !firing.told.contains(channel) && self.send_to(channel, notice(NoticeKind::On), actions) {
                firing.told.push(channel.clone());
            }
        }
        let began_us = firing.began_us.unwrap_or(now_us);
        let is_due = |later: &&Escalation| now_us.saturating_sub(began_us) >= micros(later.after);
        let Some(later) = rule.escalation.as_ref().filter(is_due) else { return };
        if firing.is_escalated {
            return;
        }
        let was_told = !firing.escalated.is_empty();
        for channel in &later.channels {
            // One without room is told once it has some.
            if firing.escalated.contains(channel) || !self.send_to(channel, notice(NoticeKind::Escalated), actions) {
                continue;
            }
            firing.escalated.push(channel.clone());
            if !firing.told.contains(channel) {
                firing.told.push(channel.clone());
            }
        }
        firing.is_escalated = later.channels.iter().all(|channel| firing.escalated.contains(channel));
        if !was_told && !firing.escalated.is_empty() {
            actions.push(AlertAction::Note(note(key, "escalated", text, now_us)));
        }
    }
}

impl Firing {
    /// Takes what is the matter while it waits; whether it has waited long enough, just now.
    fn begins(&mut self, rule: &AlertRule, text: &str, now_us: i64) -> bool {
        if self.began_us.is_some() {
            return false;
        }
        text.clone_into(&mut self.text);
        let begins = now_us.saturating_sub(self.since_us) >= micros(rule.lasts);
        self.began_us = begins.then_some(now_us);
        begins
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn note(key: &AlertKey, what: &str, text: &str, at_us: i64) -> AlertNote {
    AlertNote {
        at_us,
        what: what.to_owned(),
        rule: key.rule.clone(),
        subject: key.subject.clone(),
        text: text.to_owned(),
    }
}

fn note_of(silence: &Silence, what: &str, at_us: i64) -> AlertNote {
    AlertNote {
        at_us,
        what: what.to_owned(),
        rule: silence.rule.clone().unwrap_or_default(),
        subject: silence.subject.clone().unwrap_or_default(),
        text: format!("{} by {}: {}", silence.number, silence.by, silence.reason),
    }
}

#[cfg(test)]
mod tests;
