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
    /// Whether the channels of its escalation were told.
    pub is_escalated: bool,
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
        firing.is_escalated = true;
        actions.push(AlertAction::Note(note(key, "escalated", text, now_us)));
        for channel in &later.channels {
            if self.send_to(channel, notice(NoticeKind::Escalated), actions) {
                if !firing.told.contains(channel) {
                    firing.told.push(channel.clone());
                }
            } else {
                let why = format!("{channel}: {WAITING_MAX} messages wait for it");
                actions.push(AlertAction::Note(note(key, "not told", &why, now_us)));
            }
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
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn book() -> AlertBook {
        let rules = AlertRules::read(
            "[channels.duty]\nwebhook = 'https://a/'\n[channels.chief]\nwebhook = 'https://b/'\n[[alert]]\nname = 'old'\nwhen = \
             'queue_age > 5m'\nfor = '2m'\nchannels = ['duty']\nescalate = { after = '30m', channels = ['chief'] }\n",
        );
        AlertBook::new(Arc::new(rules.expect("rules")), AlertState::default(), BTreeMap::new())
    }

    fn key() -> AlertKey {
        AlertKey { rule: "old".to_owned(), subject: "lab".to_owned() }
    }

    /// Whom it tells what at a minute; they take it at once.
    fn look(book: &mut AlertBook, minute: i64, holds: bool) -> Vec<String> {
        let found = holds.then(|| (key(), "waits".to_owned())).into_iter().collect();
        let actions = book.apply(AlertEvent::Looked(found), minute * MINUTE);
        taken(book, &actions, minute);
        sent(&actions)
    }

    fn taken(book: &mut AlertBook, actions: &[AlertAction], minute: i64) {
        for action in actions {
            if let AlertAction::Tell(outgoing) = action {
                let id = outgoing.notice.id;
                let done = book.apply(AlertEvent::Done(id, None), minute * MINUTE);
                assert_eq!(done, [AlertAction::Drop(id)]);
            }
        }
    }

    fn sent(actions: &[AlertAction]) -> Vec<String> {
        let line = |action: &AlertAction| match action {
            AlertAction::Tell(Outgoing { channel, notice }) => Some(format!("{channel} {:?}", notice.kind)),
            AlertAction::Drop(_) | AlertAction::Note(_) | AlertAction::Save => None,
        };
        actions.iter().filter_map(line).collect()
    }

    fn silence(until_minute: i64) -> AlertEvent {
        AlertEvent::Silenced(Silence {
            number: 0,
            rule: Some("old".to_owned()),
            subject: None,
            until_us: until_minute * MINUTE,
            reason: "work on the line".to_owned(),
            by: "ann".to_owned(),
            at_us: 0,
        })
    }

    #[test]
    fn one_message_when_it_begins_and_one_when_it_is_over_however_often_it_is_looked_at() {
        let mut book = book();
        let mut all = Vec::new();
        for minute in 0..20 {
            all.extend(look(&mut book, minute, (1..15).contains(&minute)).into_iter().map(|line| (minute, line)));
        }
        assert_eq!(all, [(3, "duty On".to_owned()), (15, "duty Off".to_owned())]);
        // What holds for too short is never told.
        assert!(
            (20..22).all(|minute| look(&mut book, minute, true).is_empty()) && look(&mut book, 22, false).is_empty()
        );
    }

    #[test]
    fn one_that_lasts_is_escalated_once_and_all_who_were_told_hear_of_its_end() {
        let mut book = book();
        let mut all = Vec::new();
        for minute in 0..60 {
            all.extend(look(&mut book, minute, minute < 50).into_iter().map(|line| (minute, line)));
        }
        let expected = [(2, "duty On"), (32, "chief Escalated"), (50, "duty Off"), (50, "chief Off")];
        assert_eq!(all, expected.map(|(minute, line)| (minute, line.to_owned())));
    }

    #[test]
    fn what_is_silenced_is_told_when_the_silence_is_over_if_it_still_holds() {
        let mut book = book();
        assert!(sent(&book.apply(silence(10), 0)).is_empty());
        let all: Vec<_> = (0..12).flat_map(|minute| look(&mut book, minute, true)).collect();
        assert_eq!(all, ["duty On"]);
        assert!(book.state().silences.is_empty(), "it is over");
        // Who was told hears of the end, silenced or not.
        let number = book.state().last_silence + 1;
        book.apply(silence(100), 12 * MINUTE);
        assert_eq!(look(&mut book, 13, false), ["duty Off"]);
        book.apply(AlertEvent::Unsilenced(number), 14 * MINUTE);
        assert!(book.state().silences.is_empty());
    }

    #[test]
    fn a_restart_tells_nothing_again_and_a_rule_that_is_gone_ends() {
        let mut book = book();
        let all: Vec<_> = (0..5).flat_map(|minute| look(&mut book, minute, true)).collect();
        assert_eq!(all, ["duty On"]);
        let kept = serde_json::to_string(book.state()).expect("JSON");
        let mut again =
            AlertBook::new(Arc::clone(&book.rules), serde_json::from_str(&kept).expect("the same"), BTreeMap::new());
        assert_eq!(again.state(), book.state());
        assert!(look(&mut again, 6, true).is_empty());
        let nothing = book.apply(AlertEvent::Looked([(key(), "waits".to_owned())].into()), 5 * MINUTE);
        assert!(nothing.is_empty(), "nothing is written where nothing has changed: {nothing:?}");
        again.replace(Arc::default());
        assert_eq!(look(&mut again, 7, false), ["duty Off"]);
    }

    #[test]
    fn through_any_sequence_who_was_told_of_a_begin_is_told_of_one_end() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut book, mut open) = (book(), BTreeMap::<String, i32>::new());
            for minute in 0..300 {
                let event = match random.u8(0..20) {
                    0 => silence(minute + i64::from(random.u8(1..40))),
                    1 => AlertEvent::Unsilenced(random.u64(0..=book.state().last_silence)),
                    _ => {
                        let holds = random.u8(0..12) > 0;
                        AlertEvent::Looked(holds.then(|| (key(), "waits".to_owned())).into_iter().collect())
                    }
                };
                let actions = book.apply(event, minute * MINUTE);
                taken(&mut book, &actions, minute);
                for action in actions {
                    let AlertAction::Tell(Outgoing { channel, notice }) = action else { continue };
                    let count = open.entry(channel).or_default();
                    *count += if notice.kind == NoticeKind::Off { -1 } else { 1 };
                    assert!((0..=1).contains(count), "seed {seed}, minute {minute}: {notice:?}");
                }
            }
            look(&mut book, 301, false);
            assert!(book.state().firing.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn a_channel_that_takes_nothing_holds_a_bounded_number_of_messages_and_hears_of_the_rest_once_it_does() {
        let mut book = book();
        let subject = |n: usize| AlertKey { rule: "old".to_owned(), subject: format!("lab{n}") };
        let holds: BTreeMap<_, _> = (0..80).map(|n| (subject(n), "waits".to_owned())).collect();
        book.apply(AlertEvent::Looked(holds.clone()), 0);
        book.apply(AlertEvent::Looked(holds.clone()), 3 * MINUTE);
        assert_eq!(book.outgoing().len(), WAITING_MAX);
        let ids: Vec<u64> = book.outgoing().keys().copied().collect();
        ids.iter().for_each(|id| _ = book.apply(AlertEvent::Done(*id, None), 4 * MINUTE));
        let more = sent(&book.apply(AlertEvent::Looked(holds), 5 * MINUTE));
        assert_eq!(more, vec!["duty On".to_owned(); 80 - WAITING_MAX]);
        // Given up, it is noted; its end is told all the same.
        let id = *book.outgoing().keys().next().expect("one waits");
        let noted = book.apply(AlertEvent::Done(id, Some("no answer".to_owned())), 6 * MINUTE);
        let AlertAction::Note(note) = &noted[1] else { panic!("{noted:?}") };
        assert_eq!((&note.what[..], &note.text[..]), ("not told", "duty: no answer"));
        let over = book.apply(AlertEvent::Looked(BTreeMap::new()), 7 * MINUTE);
        let missed = over.iter().filter(|action| matches!(action, AlertAction::Note(note) if note.what == "not told"));
        assert_eq!(sent(&over).len() + missed.count(), 80);
    }
}
