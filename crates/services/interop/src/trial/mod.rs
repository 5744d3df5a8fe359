//! Tries a production on messages, before it is loaded: nothing is stored, sent, counted or acknowledged.
//!
//! ```text
//!   stored message --bytes as received--> intake::decide, with the other production --> decision and outputs of now
//!        |                                                                                    |
//!        +---- decision and outputs of then ------------------- compared ---------------------+--> same | changed | errored
//! ```
//!
//! A message is decided on as the engine would, at the time when it came in, with the bounds of its service. What must differ does not
//! count as a difference: ids that `control_id()` made.
//!
//! Not known to a trial: whether the message was seen before (it is taken as it was then), and what receivers say.

mod difference;

use std::sync::Arc;

use bytes::Bytes;
use hl7::charset::Charset;
use hl7::{Draft, Reading};
use node::Clock;
use node::clock::thread_time;
use serde::Serialize;

use crate::error::InteropError;
use crate::intake::{self, Inbound};
use crate::lang::{Allowance, Context, Outcome};
use crate::plan::{Bodies, Plan};
use crate::production::{Production, Service};
use crate::queue::Queue;
use crate::record::{self, Output, Status, Stored};
use difference::{differences, lines};

pub use difference::SegmentDifference;

/// What `control_id()` returns in a trial. Those of the engine are `T` and hexadecimal digits.
const TRIAL_ID: &str = "TRIAL-CONTROL-ID";

/// A production that is tried.
#[derive(Debug)]
pub struct Trial {
    plan: Plan,
    clock: Clock,
    /// Only outputs of this transform are compared.
    transform: Option<String>,
}

/// What a trial found of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialResult {
    /// As it was.
    Same,
    /// The decision or an output differs.
    Changed,
    /// A rule or transform fails on it.
    Errored,
    /// It does not go through the transform that is tried, neither then nor now.
    Unaffected,
}

/// A message that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct TriedMessage {
    /// What was found.
    pub result: TrialResult,
    /// The decision of now, and why.
    pub decision: (Status, String),
    /// The decision of then, where it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<(Status, String)>,
    /// Outputs that differ, and all of a message without a former decision.
    pub outputs: Vec<TriedOutput>,
}

/// An output of a message that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct TriedOutput {
    /// The operation that it goes to; empty where a transform is tried by itself.
    pub operation: String,
    /// The transform; empty for none.
    pub transform: String,
    /// Whether there was one then, and is one now.
    pub was: bool,
    /// See `was`.
    pub is: bool,
    /// What differs.
    pub differences: Vec<SegmentDifference>,
}

/// What differs between a message as received and an output of it; `charset` is that of both where they declare none.
pub fn output_differences(received: &[u8], output: &[u8], charset: Option<Charset>) -> Vec<SegmentDifference> {
    differences(&lines(received, charset), &lines(output, charset), TRIAL_ID)
}

impl Trial {
    /// A trial of a production. With `transform`, only its outputs count.
    ///
    /// # Errors
    /// `NoSuch`: the production has no transform of that name.
    pub fn new(production: Production, transform: Option<&str>, clock: Clock) -> Result<Trial, InteropError> {
        if let Some(name) = transform {
            known("transform", name, production.transforms.names(), production.transforms.find(name).is_some())?;
        }
        let queues = production.operations.iter().map(|operation| Arc::new(Queue::new(Arc::clone(operation), None)));
        let plan = Plan { queues: queues.collect(), production: Arc::new(production) };
        Ok(Trial { plan, clock, transform: transform.map(str::to_owned) })
    }

    /// The names of the services whose messages go through these rules.
    ///
    /// # Errors
    /// `NoSuch`: no service has them.
    pub fn services_of(&self, rules: &str) -> Result<Vec<&str>, InteropError> {
        let services = || self.plan.production.services.values();
        let of = |service: &&Arc<Service>| service.settings.rules() == Some(rules);
        let found: Vec<&str> = services().filter(of).map(|service| service.name.as_str()).collect();
        let names = services().filter_map(|service| service.settings.rules());
        known("file of rules that a service uses", rules, names, !found.is_empty())?;
        Ok(found)
    }

    /// Tries a message that was stored, and compares with what was decided then.
    ///
    /// # Errors
    /// `NoSuch`: the production has no service of its name.
    pub fn stored(&self, then: &Stored) -> Result<TriedMessage, InteropError> {
        let now = self.decide(&then.service, &then.raw, then.received_us, then.duplicate)?;
        let outputs = self.compare(&then.outputs, &now, (&then.raw, then));
        let is_other = (then.status, &then.reason) != (now.status, &now.reason);
        let is_of_transform = || {
            let uses = |stored: &Stored| stored.outputs.iter().any(|output| self.counts(output));
            let errored = |stored: &Stored| stored.status == Status::Errored;
            uses(then) || uses(&now) || errored(then) || errored(&now)
        };
        let result = match now.status {
            _ if self.transform.is_some() && !is_of_transform() => TrialResult::Unaffected,
            Status::Errored => TrialResult::Errored,
            _ if is_other || !outputs.is_empty() => TrialResult::Changed,
            _ => TrialResult::Same,
        };
        let before = is_other.then(|| (then.status, then.reason.clone()));
        Ok(TriedMessage { result, decision: (now.status, now.reason), before, outputs })
    }

    /// Tries a message of a file, as if it came in through `service`; outputs are compared with the message.
    ///
    /// # Errors
    /// As [`stored`](Trial::stored).
    pub fn file(&self, service: &str, raw: &Bytes) -> Result<TriedMessage, InteropError> {
        let now = self.decide(service, raw, self.clock.now_us(), false)?;
        let body = |output: &&Output| self.counts(output);
        let shown = |output: &Output| TriedOutput {
            operation: output.operation.clone(),
            transform: output.transform.clone(),
            was: true,
            is: true,
            differences: differences(&lines(raw, now.charset), &lines(&output.body, now.charset), TRIAL_ID),
        };
        let outputs = now.outputs.iter().filter(body).map(shown).collect();
        let result = if now.status == Status::Errored { TrialResult::Errored } else { TrialResult::Changed };
        Ok(TriedMessage { result, decision: (now.status, now.reason), before: None, outputs })
    }

    /// Runs the transform by itself on a message of a file, whatever the rules say, and compares with the message.
    ///
    /// # Panics
    /// The trial has no transform.
    pub fn alone(&self, raw: &Bytes) -> TriedMessage {
        let name = self.transform.as_deref().expect("a trial of a transform");
        let transforms = &self.plan.production.transforms;
        let reading = Reading::lenient(raw, None);
        let errored = |why: String| TriedMessage {
            result: TrialResult::Errored,
            decision: (Status::Errored, why),
            before: None,
            outputs: Vec::new(),
        };
        let message = match reading.message() {
            Ok(message) => message,
            Err(error) => return errored(format!("not an HL7 message: {error}")),
        };
        let allowance = Allowance::new(crate::production::settings::Intake::default().decision_time.0, thread_time);
        let context = Context {
            zone: self.clock.zone().clone(),
            allowance: Some(&allowance),
            ..Context::new(self.clock.timestamp(self.clock.now_us()), "trial", TRIAL_ID)
        };
        let mut draft = Draft::new(&message);
        let id = transforms.find(name).expect("it was looked for");
        match transforms.run(id, &mut draft, &context) {
            Err(error) => errored(error.to_string()),
            Ok(Outcome::Skip) => TriedMessage {
                result: TrialResult::Changed,
                decision: (Status::Dropped, format!("transform {name} skips it")),
                before: None,
                outputs: Vec::new(),
            },
            Ok(Outcome::Send) => {
                let mut body = Vec::with_capacity(raw.len());
                draft.write_to(&mut body);
                // Edits of a transcript are text; those of the bytes as received are in their charset.
                let charset = if reading.is_transcript() { Some(Charset::UTF_8) } else { None };
                let differences = differences(&lines(raw, None), &lines(&body, charset), TRIAL_ID);
                let result = if differences.is_empty() { TrialResult::Same } else { TrialResult::Changed };
                let output = TriedOutput {
                    operation: String::new(),
                    transform: name.to_owned(),
                    was: true,
                    is: true,
                    differences,
                };
                let decision = (Status::Routed, format!("transform {name}"));
                TriedMessage { result, decision, before: None, outputs: vec![output] }
            }
        }
    }

    /// Whether an output is one of those that are compared.
    fn counts(&self, output: &Output) -> bool {
        self.transform.as_ref().is_none_or(|transform| *transform == output.transform)
    }

    fn decide(&self, service: &str, raw: &Bytes, now_us: i64, duplicate: bool) -> Result<Stored, InteropError> {
        let services = &self.plan.production.services;
        let found = services.get(service);
        known("service", service, services.keys().map(String::as_str), found.is_some())?;
        let service = found.expect("it was looked for");
        let (reading, unreadable) = intake::read(service, raw);
        let inbound = Inbound::new(service, raw, (&reading, unreadable), now_us, TRIAL_ID);
        let allowance = Allowance::new(service.settings.intake().decision_time.0, thread_time);
        let work = intake::decide(&inbound, &self.plan, Bodies::Full, duplicate, &self.clock, &allowance);
        record::decode_message(&work.record)
    }

    /// The outputs that differ: those to the same operation are compared in their order.
    fn compare(&self, then: &[Output], now: &Stored, (raw, before): (&Bytes, &Stored)) -> Vec<TriedOutput> {
        let mut found = Vec::new();
        let mut former: Vec<&Output> = then.iter().filter(|output| self.counts(output)).collect();
        for output in now.outputs.iter().filter(|output| self.counts(output)) {
            let at = former.iter().position(|other| other.operation == output.operation);
            let other = at.map(|at| former.remove(at));
            // A new output is compared with the message, so that what the transform does is seen.
            let old = match other {
                Some(other) => lines(&other.body, before.charset),
                None => lines(raw, before.charset),
            };
            let differences = differences(&old, &lines(&output.body, now.charset), TRIAL_ID);
            if other.is_some_and(|other| other.transform == output.transform) && differences.is_empty() {
                continue;
            }
            found.push(TriedOutput {
                operation: output.operation.clone(),
                transform: output.transform.clone(),
                was: other.is_some(),
                is: true,
                differences,
            });
        }
        found.extend(former.into_iter().map(|output| TriedOutput {
            operation: output.operation.clone(),
            transform: output.transform.clone(),
            was: true,
            is: false,
            differences: Vec::new(),
        }));
        found
    }
}

fn known<'a>(
    what: &'static str,
    name: &str,
    names: impl Iterator<Item = &'a str>,
    is_known: bool,
) -> Result<(), InteropError> {
    if is_known {
        return Ok(());
    }
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    Err(InteropError::NoSuch { what, name: name.to_owned(), known: names.join(", ") })
}

#[cfg(test)]
mod tests;
