//! Alerts of a node, where `alerts.toml` lies beside terrace.toml: read at the start and on a reload; requests about them; their command line.
//!
//! The file is no part of a production: who may load one must not thereby have programs run.

mod commands;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use anyhow::Context;
use interop::InteropError;
use interop::running::{Audited, Needs, Renewed, Requirement, RunningProduction, ServiceRequest};
use node::Clock;
use node::audit::AuditEntry;
use node::identity::{Action, Caller, Guard, Object};
use node_metrics::alerts::{AlertKeeper, AlertRules, Silence};
use node_metrics::{Snapshots, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use commands::{AlertCommand, run};

/// The file.
const FILE: &str = "alerts.toml";

/// The word that requests begin with.
const REQUEST: &str = "alert";

/// Lines of the history that are shown at most.
const NOTES_MAX: usize = 1_000;

/// Where the file is for these settings.
fn place(config: Option<&Path>) -> PathBuf {
    config.and_then(Path::parent).unwrap_or(Path::new("")).join(FILE)
}

/// Reads the rules; none where there is no file. Errors: a fault in it, by its name.
pub fn read(config: Option<&Path>) -> anyhow::Result<Option<AlertRules>> {
    let place = place(config);
    if !place.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&place).with_context(|| format!("cannot read {}", place.display()))?;
    let rules = AlertRules::read(&text).map_err(|why| anyhow::anyhow!("{} is wrong: {why}", place.display()))?;
    Ok(Some(rules))
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
pub struct RunningAlerts(Option<Arc<AlertKeeper>>);

impl RunningAlerts {
    /// Watches the figures of a node by these rules, if there are any, and answers requests about them. Errors: what was kept cannot be read.
    pub fn start(
        node: &RunningProduction,
        (rules, config): (Option<AlertRules>, Option<&Path>),
        snapshots: &Arc<Snapshots>,
        place: &KeeperPlace,
    ) -> anyhow::Result<RunningAlerts> {
        let store = node.store().clone();
        let start = |rules: AlertRules| {
            let count = rules.rules.len();
            let keeper = AlertKeeper::start(rules, store, Clock::system(), Arc::clone(snapshots));
            tracing::info!(rules = count, "alerts");
            keeper.map_err(|why| anyhow::anyhow!("alerts cannot be watched: {why}"))
        };
        let keeper = rules.map(start).transpose()?;
        let weak = keeper.as_ref().map_or_else(Weak::new, Arc::downgrade);
        // Nobody has set it: a node starts once.
        let _ = place.set(Weak::clone(&weak));
        if keeper.is_some() {
            renew_with(node, Weak::clone(&weak), config.map(Path::to_owned));
        }
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
        if let Some(keeper) = self.0 {
            // It joins a thread. It fails only if that panicked, which was reported.
            let _ = tokio::task::spawn_blocking(move || keeper.stop()).await;
        }
    }
}

/// Has a reload of the node read the rules again. Rules in force end by a file that says so, and not because it is gone.
fn renew_with(node: &RunningProduction, keeper: Weak<AlertKeeper>, config: Option<PathBuf>) {
    node.on_reload(Box::new(move || -> Result<Renewed, InteropError> {
        let refused = |why: String| InteropError::Refused(format!("alerts: {why}"));
        let rules = read(config.as_deref()).map_err(|error| refused(format!("{error:#}")))?;
        let rules =
            rules.ok_or_else(|| refused(format!("{FILE} is gone, and the rules in force were read from it")))?;
        let keeper = Weak::clone(&keeper);
        Ok(Box::new(move || match keeper.upgrade() {
            Some(keeper) => {
                let text = format!("alerts: {} rules are in force", rules.rules.len());
                keeper.replace(rules);
                vec![text]
            }
            None => Vec::new(),
        }))
    }));
}

/// What is asked about alerts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
enum AlertRequest {
    /// Those that are on, and what is silenced.
    List,
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
            AlertRequest::List | AlertRequest::History { .. } => {
                return Requirement { needs: Needs::Right(Action::NodeStatus, Object::Node), entry: None };
            }
            AlertRequest::Silence { rule, subject, reason, .. } => {
                let all = || "*".to_owned();
                let object = format!("{} {}", rule.clone().unwrap_or_else(all), subject.clone().unwrap_or_else(all));
                AuditEntry::new("alert.silence", &object).with("reason", reason.clone())
            }
            AlertRequest::Unsilence { number } => AuditEntry::new("alert.unsilence", &number.to_string()),
        };
        let needs = Needs::Right(Action::AlertSilence, Object::Node);
        Requirement { needs, entry: Some((Audited::Change, entry)) }
    }

    fn answer(&self, caller: &Caller) -> Result<Value, String> {
        let keeper =
            self.keeper.upgrade().ok_or_else(|| format!("no alerts are watched: write {FILE} beside terrace.toml"))?;
        let failed = |error: store::StoreError| error.to_string();
        match &self.request {
            AlertRequest::List => {
                let state = keeper.state();
                Ok(json!({ "alerts": state.firing.iter().collect::<Vec<_>>(), "silences": state.silences }))
            }
            AlertRequest::History { last } => {
                let notes = keeper.history((*last).min(NOTES_MAX)).map_err(failed)?;
                serde_json::to_value(notes).map_err(|error| error.to_string())
            }
            AlertRequest::Silence { rule, subject, until_us, reason } => {
                let at_us = Clock::system().now_us();
                if *until_us <= at_us || reason.trim().is_empty() || reason.len() > 1_000 {
                    return Err("a silence ends in the future, and has a reason of at most 1,000 characters".to_owned());
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
                keeper.silence(silence).map(Value::from).map_err(failed)
            }
            AlertRequest::Unsilence { number } => match keeper.unsilence(*number).map_err(failed)? {
                true => Ok(Value::Null),
                false => Err(format!("there is no silence {number}: `terrace alert list` shows them")),
            },
        }
    }
}
