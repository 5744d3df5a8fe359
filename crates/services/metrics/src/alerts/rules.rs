//! [`AlertRules`]: `alerts.toml`, read and checked.
//!
//! ```toml
//! every = "10s"
//! [channels.duty]
//! webhook = "https://alerts.example.org/terrace"
//! [channels.pager]
//! command = ["/usr/local/bin/page", "--now"]
//!
//! [[alert]]
//! name = "old"
//! when = "queue_age > 5m"
//! for = "1m"
//! channels = ["duty"]
//! escalate = { after = "30m", channels = ["pager"] }
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::channel::{Channel, ChannelText};
use super::condition::{Condition, duration};
use super::schedule::{Schedule, ScheduleText};

/// Most rules.
const RULES_MAX: usize = 200;

/// Most channels.
pub(super) const CHANNELS_MAX: usize = 50;

/// Most bytes of the file.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Most characters of a name.
const NAME_MAX: usize = 64;

/// How often the figures are looked at where nothing is set.
const EVERY: Duration = Duration::from_secs(10);

/// The least and the most that may be set for it.
const EVERY_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertsText {
    every: Option<String>,
    #[serde(default)]
    channels: BTreeMap<String, ChannelText>,
    #[serde(default)]
    alert: Vec<RuleText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: String,
    when: String,
    #[serde(rename = "for")]
    lasts: Option<String>,
    #[serde(default)]
    only: Vec<String>,
    schedule: Option<ScheduleText>,
    channels: Vec<String>,
    escalate: Option<EscalationText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EscalationText {
    after: String,
    channels: Vec<String>,
}

/// Who is told later, if an alert lasts.
#[derive(Debug, Clone, PartialEq)]
pub struct Escalation {
    /// So long after it began.
    pub after: Duration,
    /// Over these channels.
    pub channels: Vec<String>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertRule {
    /// Its name, used once.
    pub name: String,
    /// As it was written.
    pub text: String,
    /// What it is about.
    pub condition: Condition,
    /// It begins once the condition has held for so long.
    pub lasts: Duration,
    /// Only these subjects; empty: all.
    pub only: Vec<String>,
    /// When it counts.
    pub schedule: Schedule,
    /// Who is told.
    pub channels: Vec<String>,
    /// Who is told later.
    pub escalation: Option<Escalation>,
}

/// All rules and channels.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertRules {
    /// How often the figures are looked at.
    pub every: Duration,
    /// By name.
    pub channels: BTreeMap<String, Channel>,
    /// In their order.
    pub rules: Vec<AlertRule>,
}

impl Default for AlertRules {
    fn default() -> AlertRules {
        AlertRules { every: EVERY, channels: BTreeMap::new(), rules: Vec::new() }
    }
}

/// Whether a text can be the name of a rule or a channel.
fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

impl AlertRules {
    /// Reads the text of `alerts.toml`.
    ///
    /// # Errors
    /// The first fault, with the name of the rule or channel.
    pub fn read(text: &str) -> Result<AlertRules, String> {
        if text.len() > FILE_BYTES_MAX {
            return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
        }
        let AlertsText { every, channels, alert } = toml::from_str(text).map_err(|error| error.to_string())?;
        let every = every.as_deref().map(duration).transpose()?.unwrap_or(EVERY);
        if every < EVERY_LIMITS.0 || every > EVERY_LIMITS.1 {
            return Err("every is from 1s to 10m".to_owned());
        }
        if channels.len() > CHANNELS_MAX || alert.len() > RULES_MAX {
            return Err(format!("there are more than {RULES_MAX} rules, or {CHANNELS_MAX} channels"));
        }
        let channel = |(name, text): (String, ChannelText)| {
            let read =
                if is_name(&name) { Channel::of(text) } else { Err("a name has letters, digits, - and _".to_owned()) };
            let channel = read.map_err(|why| format!("channels.{name}: {why}"))?;
            Ok((name, channel))
        };
        let channels = channels.into_iter().map(channel).collect::<Result<BTreeMap<_, _>, String>>()?;
        let mut rules: Vec<AlertRule> = Vec::new();
        for text in alert {
            let name = text.name.clone();
            let rule = rule(text).map_err(|why| format!("alert {name}: {why}"))?;
            let named = rule.channels.iter().chain(rule.escalation.iter().flat_map(|later| &later.channels));
            if let Some(unknown) = named.into_iter().find(|channel| !channels.contains_key(*channel)) {
                return Err(format!("alert {name}: there is no channel `{unknown}`"));
            }
            if rules.iter().any(|other| other.name == name) {
                return Err(format!("alert {name}: there are two of this name"));
            }
            rules.push(rule);
        }
        Ok(AlertRules { every, channels, rules })
    }
}

fn rule(text: RuleText) -> Result<AlertRule, String> {
    if !is_name(&text.name) {
        return Err("a name has letters, digits, - and _".to_owned());
    }
    if text.channels.is_empty() {
        return Err("channels names nobody: who is to be told?".to_owned());
    }
    let escalation = text
        .escalate
        .map(|later| Ok::<_, String>(Escalation { after: duration(&later.after)?, channels: later.channels }));
    Ok(AlertRule {
        name: text.name,
        condition: text.when.parse()?,
        text: text.when,
        lasts: text.lasts.as_deref().map(duration).transpose()?.unwrap_or_default(),
        only: text.only,
        schedule: text.schedule.as_ref().map(Schedule::of).transpose()?.unwrap_or_default(),
        channels: text.channels,
        escalation: escalation.transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[channels.duty]\nwebhook = 'https://a.example/x'\n[channels.pager]\ncommand = ['/bin/page', '-n']\n\
        timeout = '5s'\n[[alert]]\nname = 'old'\nwhen = 'queue_age > 5m'\nfor = '1m'\nchannels = ['duty']\n\
        escalate = { after = '30m', channels = ['pager'] }\nschedule = { days = 'mon-fri', hours = '7-19', zone = 'UTC' }\n";

    #[test]
    fn a_file_is_read_whole() {
        let read = AlertRules::read(TEXT).expect("it is right");
        assert_eq!((read.channels.len(), read.rules.len()), (2, 1));
        let old = &read.rules[0];
        assert_eq!((old.lasts, &old.channels[..]), (Duration::from_secs(60), &["duty".to_owned()][..]));
        assert_eq!(old.escalation.as_ref().map(|later| later.after), Some(Duration::from_secs(1800)));
        assert_eq!(AlertRules::read("").expect("nothing"), AlertRules::default());
        assert_eq!(AlertRules::read("every = '1m'").expect("it is right").every, Duration::from_secs(60));
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_name() {
        for (from, to, why) in [
            ("'https://a.example/x'", "'ftp://a'", "channels.duty: webhook is an address"),
            ("['/bin/page', '-n']", "['page']", "channels.pager: command begins with the whole path"),
            ("[channels.duty]", "[channels.'d u']", "channels.d u: a name has letters"),
            ("[channels.duty]", "every = '10ms'\n[channels.duty]", "every is from 1s to 10m"),
            ("queue_age > 5m", "age > 5m", "alert old: `age` is no condition"),
            ("channels = ['duty']", "channels = ['duti']", "alert old: there is no channel `duti`"),
            ("channels = ['pager']", "channels = ['nobody']", "there is no channel `nobody`"),
            ("channels = ['duty']", "channels = []", "names nobody"),
            ("name = 'old'", "name = 'o l d'", "a name has letters"),
            ("for = '1m'", "fro = '1m'", "fro"),
        ] {
            let told = AlertRules::read(&TEXT.replace(from, to)).expect_err("it cannot work");
            assert!(told.contains(why), "{to}: {told}");
        }
        let twice = format!("{TEXT}{}", &TEXT[TEXT.find("[[alert]]").expect("there")..]);
        assert!(AlertRules::read(&twice).expect_err("twice").contains("two of this name"));
    }
}
