//! Alerts of a node, where `alerts.toml` lies beside terrace.toml: read at the start and on a reload; requests about them; their command line.
//!
//! The file is no part of a production: who may load one must not thereby have programs run.

mod commands;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use anyhow::Context;
use interop::InteropError;
use interop::running::{Audited, Needs, Renewed, Requirement, RunningProduction, ServiceRequest};
use node::Clock;
use node::audit::AuditEntry;
use node::identity::{Action, Caller, Guard, Object};
use node_metrics::alerts::{AlertKeeper, AlertRule, AlertRules, FILE_BYTES_MAX, Silence};
use node_metrics::{Snapshots, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use commands::{AlertCommand, ListedAlerts, ShownRule, ShownRules, run};

/// The file.
const FILE: &str = "alerts.toml";

/// The word that requests begin with.
pub const REQUEST: &str = "alert";

/// Lines of the history that are shown at most.
const NOTES_MAX: usize = 1_000;

/// Most characters of a reason.
const REASON_MAX: usize = 1_000;

/// The longest silence, microseconds: 90 days.
const SILENCE_US_MAX: i64 = 90 * 86_400 * 1_000_000;

/// Where Linux keeps the name of the machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Where the file is for these settings.
pub fn place(config: Option<&Path>) -> PathBuf {
    config.and_then(Path::parent).unwrap_or(Path::new("")).join(FILE)
}

/// Reads the rules beside these settings; none where there is no file. Errors: a fault in it, by its name; a link that leads nowhere and a folder
/// that cannot be read are such faults, and not the absence of rules.
pub fn read(config: Option<&Path>) -> anyhow::Result<Option<AlertRules>> {
    let place = place(config);
    let found = std::fs::symlink_metadata(&place);
    if found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    read_file(&place).map(Some)
}

/// Reads a file with rules. Errors: a fault in it, by its name.
pub fn read_file(place: &Path) -> anyhow::Result<AlertRules> {
    let cannot = || format!("cannot read {}", place.display());
    let found = std::fs::metadata(place).with_context(cannot)?;
    anyhow::ensure!(found.is_file(), "{} is no regular file", place.display());
    let size = found.len();
    anyhow::ensure!(size <= FILE_BYTES_MAX as u64, "{} has more than {FILE_BYTES_MAX} bytes", place.display());
    let text = std::fs::read_to_string(place).with_context(cannot)?;
    AlertRules::read(&text).map_err(|why| anyhow::anyhow!("{} is wrong: {why}", place.display()))
}

/// The name that messages are from.
fn host_name() -> String {
    let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "terrace".to_owned() } else { name }
}

/// The keeper of a node, once it has one.
pub type KeeperPlace = Arc<OnceLock<Weak<AlertKeeper>>>;

/// Adds how many alerts are on, once there is a keeper.
pub fn source(keeper: &KeeperPlace) -> Box<Source> {
    let keeper = Arc::clone(keeper);
    Box::new(move |samples| {
        if let Some(keeper) = keeper.get().and_then(Weak::upgrade) {
            keeper.collect(samples);
        }
    })
}

/// Alerts that are watched, until they are stopped.
#[derive(Debug)]
pub struct RunningAlerts(Arc<AlertKeeper>);

impl RunningAlerts {
    /// Watches the figures of a node by these rules, none without a file, and answers requests about them. Errors: what was kept cannot be read.
    pub fn start(
        node: &RunningProduction,
        (rules, config): (Option<AlertRules>, Option<&Path>),
        snapshots: &Arc<Snapshots>,
        place: &KeeperPlace,
    ) -> anyhow::Result<RunningAlerts> {
        if let Some(rules) = &rules {
            tracing::info!(rules = rules.rules.len(), channels = rules.channels.len(), "alerts");
        }
        let (store, rules) = (node.store().clone(), rules.unwrap_or_default());
        let keeper = AlertKeeper::start(rules, store, Clock::system(), Arc::clone(snapshots), host_name())
            .map_err(|why| anyhow::anyhow!("alerts cannot be watched: {why}"))?;
        let weak = Arc::downgrade(&keeper);
        // Nobody has set it: a node starts once.
        let _ = place.set(Weak::clone(&weak));
        renew_with(node, Weak::clone(&weak), config.map(Path::to_owned));
        let guard = Arc::clone(node.guard());
        node.serve_requests(
            REQUEST,
            true,
            Box::new(move |text| {
                let request =
                    serde_json::from_str(text).map_err(|error| format!("not a request of this release: {error}"))?;
                Ok(Box::new(GuardedAlertRequest { keeper: Weak::clone(&weak), guard: Arc::clone(&guard), request }))
            }),
        );
        Ok(RunningAlerts(keeper))
    }

    /// Ends the watch. It blocks for a moment.
    pub async fn stop(self) {
        // It joins a thread. It fails only if that panicked, which was reported.
        let _ = tokio::task::spawn_blocking(move || self.0.stop()).await;
    }
}

/// Has a reload of the node read the rules again. Rules in force end by a file that says so, and not because it is gone.
fn renew_with(node: &RunningProduction, keeper: Weak<AlertKeeper>, config: Option<PathBuf>) {
    node.on_reload(Box::new(move || -> Result<Renewed, InteropError> {
        let refused = |why: String| InteropError::Refused(format!("alerts: {why}"));
        let Some(keeper) = keeper.upgrade() else { return Ok(Box::new(Vec::new)) };
        let rules = read(config.as_deref()).map_err(|error| refused(format!("{error:#}")))?;
        let before = keeper.rules();
        if rules.is_none() && *before != AlertRules::default() {
            return Err(refused(format!("{FILE} is gone, and the rules in force were read from it: empty it instead")));
        }
        let rules = rules.unwrap_or_default();
        Ok(Box::new(move || {
            if *before == rules {
                return Vec::new();
            }
            let text = format!("alerts: {} rules are in force", rules.rules.len());
            keeper.replace(rules);
            vec![text]
        }))
    }));
}

/// What is asked about alerts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AlertRequest {
    /// Those that are on, and what is silenced.
    List,
    /// The rules and channels in force.
    Rules,
    /// Send a trial message to a channel.
    Test {
        /// The channel.
        channel: String,
    },
    /// What was.
    History {
        /// The newest so many.
        last: usize,
    },
    /// Tell nobody for a time.
    Silence {
        /// The rule; none: all.
        rule: Option<String>,
        /// The subject; none: all.
        subject: Option<String>,
        /// Until when, microseconds since 1970.
        until_us: i64,
        /// Why.
        reason: String,
    },
    /// End a silence.
    Unsilence {
        /// Its number.
        number: u64,
    },
}

struct GuardedAlertRequest {
    keeper: Weak<AlertKeeper>,
    guard: Arc<Guard>,
    request: AlertRequest,
}

impl ServiceRequest for GuardedAlertRequest {
    fn requirement(&self) -> Requirement<'_> {
        let entry = match &self.request {
            AlertRequest::List | AlertRequest::Rules | AlertRequest::History { .. } => {
                return Requirement { needs: Needs::Right(Action::NodeStatus, Object::Node), entry: None };
            }
            AlertRequest::Silence { rule, subject, reason, .. } => {
                let all = || "*".to_owned();
                let object = format!("{} {}", rule.clone().unwrap_or_else(all), subject.clone().unwrap_or_else(all));
                AuditEntry::new("alert.silence", &object).with("reason", reason.clone())
            }
            AlertRequest::Unsilence { number } => AuditEntry::new("alert.unsilence", number.to_string()),
            AlertRequest::Test { channel } => AuditEntry::new("alert.test", channel),
        };
        let needs = Needs::Right(Action::AlertSilence, Object::Node);
        Requirement { needs, entry: Some((Audited::Change, entry)) }
    }

    fn answer(&self, caller: &Caller) -> Result<Value, String> {
        let keeper = self.keeper.upgrade().ok_or("the node is stopping")?;
        match &self.request {
            AlertRequest::List => Ok(listed(&keeper)),
            AlertRequest::Rules => Ok(in_force(&keeper.rules())),
            AlertRequest::Test { channel } => keeper.test(channel).map(|()| Value::Null),
            AlertRequest::History { last } => {
                let notes = keeper.history((*last).min(NOTES_MAX)).map_err(|error| error.to_string())?;
                serde_json::to_value(notes).map_err(|error| error.to_string())
            }
            AlertRequest::Silence { rule, subject, until_us, reason } => {
                let at_us = Clock::system().now_us();
                check_silence(*until_us, at_us, subject.as_deref(), reason)?;
                let rules = keeper.rules();
                if let Some(unknown) = rule.as_ref().filter(|name| rules.rules.iter().all(|rule| rule.name != **name)) {
                    return Err(format!("there is no rule `{unknown}`: `terrace alert rules` shows them"));
                }
                let by = self.guard.view().name(caller.session()).unwrap_or("?").to_owned();
                let silence = Silence {
                    number: 0,
                    rule: rule.clone(),
                    subject: subject.clone(),
                    until_us: *until_us,
                    reason: reason.clone(),
                    by,
                    at_us,
                };
                keeper.silence(silence).map(Value::from)
            }
            AlertRequest::Unsilence { number } => match keeper.unsilence(*number)? {
                true => Ok(Value::Null),
                false => Err(format!("there is no silence {number}: `terrace alert list` shows them")),
            },
        }
    }
}

/// Errors: a silence cannot be like that.
fn check_silence(until_us: i64, at_us: i64, subject: Option<&str>, reason: &str) -> Result<(), String> {
    if until_us <= at_us || until_us.saturating_sub(at_us) > SILENCE_US_MAX {
        return Err(
            "a silence ends in the future, within 90 days: a rule that nobody needs is removed from alerts.toml"
                .to_owned(),
        );
    }
    if reason.trim().is_empty()
        || reason.chars().count() > REASON_MAX
        || subject.is_some_and(|name| name.len() > REASON_MAX)
    {
        return Err(format!("a silence has a reason, of at most {REASON_MAX} characters"));
    }
    Ok(())
}

/// What is on, what is silenced, and what waits for a channel.
fn listed(keeper: &AlertKeeper) -> Value {
    let state = keeper.state();
    json!({ "alerts": state.firing.iter().collect::<Vec<_>>(), "silences": state.silences, "waiting": keeper.waiting() })
}

/// Rules and channels, for people: without secrets.
fn in_force(rules: &AlertRules) -> Value {
    let rule = |rule: &AlertRule| {
        json!({
            "name": rule.name, "when": rule.text, "for_s": rule.lasts.as_secs(), "only": rule.only, "channels": rule.channels,
            "escalate_after_s": rule.escalation.as_ref().map(|later| later.after.as_secs()),
            "escalate_channels": rule.escalation.as_ref().map(|later| later.channels.clone()).unwrap_or_default(),
        })
    };
    let channels: BTreeMap<_, _> = rules.channels.iter().map(|(name, channel)| (name, channel.place())).collect();
    json!({ "rules": rules.rules.iter().map(rule).collect::<Vec<_>>(), "channels": channels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_not_there_means_no_rules() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = folder.path().join("terrace.toml");
        assert_eq!(read(Some(&settings)).expect("none"), None);
        let rules = folder.path().join(FILE);
        std::os::unix::fs::symlink(folder.path().join("gone"), &rules).expect("a link");
        assert!(read(Some(&settings)).is_err(), "a link that leads nowhere");
        std::fs::write(folder.path().join("gone"), "every = '20s'").expect("a file");
        assert!(read(Some(&settings)).expect("rules").is_some());
        std::fs::write(&settings, "").expect("a file");
        assert!(read(Some(&settings.join("terrace.toml"))).is_err(), "a folder that is none");
        std::fs::remove_file(&rules).expect("ours");
        std::fs::create_dir(&rules).expect("a folder");
        assert!(format!("{:#}", read(Some(&settings)).expect_err("a folder")).contains("no regular file"));
    }
}
