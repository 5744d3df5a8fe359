//! [`AlertRules`]: `alerts.toml`, read and checked.
//!
//! ```toml
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
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::condition::{Condition, duration};
use super::schedule::{Schedule, ScheduleText};

/// Most rules, and most channels.
const RULES_MAX: usize = 200;

/// How long a channel may take where nothing is set.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a channel may be given.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertsText {
    #[serde(default)]
    channels: BTreeMap<String, ChannelText>,
    #[serde(default)]
    alert: Vec<RuleText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelText {
    webhook: Option<String>,
    #[serde(default)]
    command: Vec<String>,
    timeout: Option<String>,
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

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A POST of JSON.
    Webhook {
        /// The address, `http` or `https`.
        url: String,
        /// How long it may take.
        timeout: Duration,
    },
    /// A program with arguments; it gets the JSON on its standard input.
    Command {
        /// The program, and its arguments.
        argv: Vec<String>,
        /// How long it may take; then it is killed.
        timeout: Duration,
    },
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AlertRules {
    /// By name.
    pub channels: BTreeMap<String, Channel>,
    /// In their order.
    pub rules: Vec<AlertRule>,
}

fn channel(name: &str, text: ChannelText) -> Result<Channel, String> {
    let fault = |why: String| format!("channels.{name}: {why}");
    let timeout = text.timeout.as_deref().map(duration).transpose().map_err(&fault)?.unwrap_or(TIMEOUT);
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        return Err(fault("timeout is more than nothing and at most 60s".to_owned()));
    }
    match (text.webhook, text.command) {
        (Some(url), command) if command.is_empty() => {
            let is_url = url.starts_with("http://") || url.starts_with("https://");
            if !is_url || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
                return Err(fault("webhook is an address that begins with http:// or https://".to_owned()));
            }
            Ok(Channel::Webhook { url, timeout })
        }
        (None, argv) if !argv.is_empty() => {
            if !Path::new(&argv[0]).is_absolute() {
                return Err(fault("command begins with the whole path of a program".to_owned()));
            }
            Ok(Channel::Command { argv, timeout })
        }
        _ => Err(fault("it has either a webhook or a command".to_owned())),
    }
}

impl AlertRules {
    /// Reads the text of `alerts.toml`.
    ///
    /// # Errors
    /// The first fault, with the name of the rule or channel.
    pub fn read(text: &str) -> Result<AlertRules, String> {
        let AlertsText { channels, alert } = toml::from_str(text).map_err(|error| error.to_string())?;
        if channels.len() > RULES_MAX || alert.len() > RULES_MAX {
            return Err(format!("there are more than {RULES_MAX} rules or channels"));
        }
        let channels = channels.into_iter().map(|(name, text)| Ok((name.clone(), channel(&name, text)?)));
        let channels = channels.collect::<Result<BTreeMap<_, _>, String>>()?;
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
        Ok(AlertRules { channels, rules })
    }
}

fn rule(text: RuleText) -> Result<AlertRule, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.name.is_empty() || !text.name.chars().all(is_name) {
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
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_name() {
        for (from, to, why) in [
            ("'https://a.example/x'", "'ftp://a'", "channels.duty: webhook is an address"),
            ("['/bin/page', '-n']", "['page']", "channels.pager: command begins with the whole path"),
            ("timeout = '5s'", "timeout = '2m'", "at most 60s"),
            ("command = ['/bin/page', '-n']", "command = []", "either a webhook or a command"),
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
