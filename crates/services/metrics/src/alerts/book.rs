//! [`AlertBook`]: which alerts are on, who was told, what is silenced. A pure state machine.
//!
//! ```text
//!             condition holds            has held for `for`
//!   (nothing) ---------------> waiting ---------------------> on: told ----- after `after` -----> told to the escalation too
//!       ^                         |                             |   |
//!       +--- does not hold -------+                             |   +-- silenced: not told, until the silence is over
//!       +------------------------------- does not hold: told to whom was told that it began
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rules::{AlertRule, AlertRules};

/// Most alerts that are on at a time, and most silences: further ones are noted in the log and dropped.
const ALERTS_MAX: usize = 1_000;

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
    /// What is the matter, as of the last look.
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
    /// The number of the next one.
    pub next: u64,
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
}

/// A message to a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertNotice {
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
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlertAction {
    /// Send a message to a channel.
    Tell(String, AlertNotice),
    /// Write a line of the history.
    Note(AlertNote),
    /// Write the state: it is another one.
    Save,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct AlertBook {
    rules: AlertRules,
    state: AlertState,
}

impl AlertBook {
    /// With the state of before.
    pub fn new(rules: AlertRules, state: AlertState) -> AlertBook {
        AlertBook { rules, state }
    }

    /// The rules in force.
    pub fn rules(&self) -> &AlertRules {
        &self.rules
    }

    /// Puts other rules in force. Alerts of rules that are gone end with the next look, and who was told of them is told so.
    pub fn replace(&mut self, rules: AlertRules) {
        self.rules = rules;
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
        }
        if self.state != before {
            actions.push(AlertAction::Save);
        }
        actions
    }

    fn silence(&mut self, silence: Silence, actions: &mut Vec<AlertAction>) {
        if self.state.silences.len() >= ALERTS_MAX {
            return;
        }
        self.state.next += 1;
        let silence = Silence { number: self.state.next, ..silence };
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
                kind: NoticeKind::Off,
                key: key.clone(),
                when: when.clone(),
                text: firing.text.clone(),
                since_us: firing.since_us,
                at_us: now_us,
            };
            actions.push(AlertAction::Tell(channel.clone(), notice));
        }
    }

    /// A condition holds.
    fn holds(&mut self, rule: &AlertRule, key: &AlertKey, text: &str, (now_us, actions): (i64, &mut Vec<AlertAction>)) {
        let is_silenced = self.state.silences.iter().any(|silence| silence.matches(key));
        if !self.state.firing.contains_key(key) && self.state.firing.len() >= ALERTS_MAX {
            return;
        }
        let firing = self.state.firing.entry(key.clone()).or_insert_with(|| Firing {
            since_us: now_us,
            began_us: None,
            text: text.to_owned(),
            told: Vec::new(),
            is_escalated: false,
        });
        let lasted_us = now_us.saturating_sub(firing.since_us);
        let after = |span: std::time::Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        if firing.began_us.is_none() {
            firing.text = text.to_owned();
            if lasted_us < after(rule.lasts) {
                return;
            }
            firing.began_us = Some(now_us);
            actions.push(AlertAction::Note(note(key, "on", text, now_us)));
        }
        if is_silenced {
            return;
        }
        let mut tell = |firing: &mut Firing, kind: NoticeKind, channels: &[String]| {
            for channel in channels {
                if firing.told.contains(channel) && kind == NoticeKind::On {
                    continue;
                }
                if !firing.told.contains(channel) {
                    firing.told.push(channel.clone());
                }
                let notice = AlertNotice {
                    kind,
                    key: key.clone(),
                    when: rule.text.clone(),
                    text: text.to_owned(),
                    since_us: firing.since_us,
                    at_us: now_us,
                };
                actions.push(AlertAction::Tell(channel.clone(), notice));
            }
        };
        tell(firing, NoticeKind::On, &rule.channels);
        let began_us = firing.began_us.unwrap_or(now_us);
        let later = rule.escalation.as_ref().filter(|later| now_us.saturating_sub(began_us) >= after(later.after));
        if let (Some(later), false) = (later, firing.is_escalated) {
            firing.is_escalated = true;
            tell(firing, NoticeKind::Escalated, &later.channels);
            actions.push(AlertAction::Note(note(key, "escalated", text, now_us)));
        }
    }
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
            "[channels.duty]\nwebhook = 'http://a/'\n[channels.chief]\nwebhook = 'http://b/'\n[[alert]]\nname = 'old'\nwhen = \
             'queue_age > 5m'\nfor = '2m'\nchannels = ['duty']\nescalate = { after = '30m', channels = ['chief'] }\n",
        );
        AlertBook::new(rules.expect("rules"), AlertState::default())
    }

    fn key() -> AlertKey {
        AlertKey { rule: "old".to_owned(), subject: "lab".to_owned() }
    }

    /// Whom it tells what at a minute.
    fn look(book: &mut AlertBook, minute: i64, holds: bool) -> Vec<String> {
        let found = holds.then(|| (key(), "waits".to_owned())).into_iter().collect();
        told(&book.apply(AlertEvent::Looked(found), minute * MINUTE))
    }

    fn told(actions: &[AlertAction]) -> Vec<String> {
        let line = |action: &AlertAction| match action {
            AlertAction::Tell(channel, notice) => Some(format!("{channel} {:?}", notice.kind)),
            AlertAction::Note(_) | AlertAction::Save => None,
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
        assert!(told(&book.apply(silence(10), 0)).is_empty());
        let all: Vec<_> = (0..12).flat_map(|minute| look(&mut book, minute, true)).collect();
        assert_eq!(all, ["duty On"]);
        assert!(book.state().silences.is_empty(), "it is over");
        // Who was told hears of the end, silenced or not.
        let number = book.state().next + 1;
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
        let mut again = AlertBook::new(book.rules().clone(), serde_json::from_str(&kept).expect("the same"));
        assert_eq!(again.state(), book.state());
        assert!(look(&mut again, 6, true).is_empty());
        let nothing = book.apply(AlertEvent::Looked([(key(), "waits".to_owned())].into()), 5 * MINUTE);
        assert!(nothing.is_empty(), "nothing is written where nothing has changed: {nothing:?}");
        again.replace(AlertRules::default());
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
                    1 => AlertEvent::Unsilenced(random.u64(0..=book.state().next)),
                    _ => {
                        let holds = random.u8(0..12) > 0;
                        AlertEvent::Looked(holds.then(|| (key(), "waits".to_owned())).into_iter().collect())
                    }
                };
                for action in book.apply(event, minute * MINUTE) {
                    let AlertAction::Tell(channel, notice) = action else { continue };
                    let count = open.entry(channel).or_default();
                    *count += if notice.kind == NoticeKind::Off { -1 } else { 1 };
                    assert!((0..=1).contains(count), "seed {seed}, minute {minute}: {notice:?}");
                }
            }
            look(&mut book, 301, false);
            assert!(book.state().firing.is_empty(), "seed {seed}");
        }
    }
}
