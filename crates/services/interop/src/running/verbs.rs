//! Requests about operations: what they do, and setting a message aside.

use node::identity::{Action, Caller, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::audited::Answered;
use super::requests::ControlRequests;
use super::waiting;
use crate::error::InteropError;
use crate::history::EVERY_SERVICE;
use crate::queue::{Queue, SetAsideOrder, SetAsideRefusal};

/// Longest reason that is taken, in bytes: it fits the record of the outcome and one detail of the audit.
const REASON_MAX: usize = 500;

/// A request to set a message aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAsideRequest {
    /// The operation.
    pub operation: String,
    /// The message; none: the one at the head, where there is one head only.
    #[serde(default)]
    pub message: Option<u64>,
    /// Why. It is shown with the message's metadata: no patient data belongs in it.
    pub reason: String,
}

impl SetAsideRequest {
    /// Refuses what is no reason.
    ///
    /// # Errors
    /// `Refused`, with what is wrong.
    pub(super) fn check(&self) -> Result<(), InteropError> {
        let is_plain = !self.reason.chars().any(char::is_control);
        if !self.reason.trim().is_empty() && self.reason.len() <= REASON_MAX && is_plain {
            return Ok(());
        }
        let text = format!("a reason is needed, of {REASON_MAX} bytes at most, on one line");
        Err(InteropError::Refused(text))
    }
}

/// A message was set aside, durably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAsideMessage {
    /// The operation.
    pub operation: String,
    /// The message.
    pub message: u64,
    /// How many of its outputs to this operation.
    pub outputs: usize,
    /// By whom.
    pub by: String,
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// The message that is now at the head of its lane; none where nothing else waits there.
    pub next: Option<u64>,
}

impl ControlRequests {
    /// What all operations do.
    pub(super) fn operations(&self) -> Value {
        json!(waiting::statuses(self.running()))
    }

    /// What an operation does, lane by lane; with texts of answers for who may read bodies without the mask.
    pub(super) async fn operation(&self, caller: &Caller, name: &str) -> Result<Answered, InteropError> {
        let queue = self.queue(name).await?;
        let view = self.running().guard.view();
        let every = Object::Service(EVERY_SERVICE);
        let may = [Action::MessageBody, Action::Unmasked].iter().all(|action| view.may(caller, *action, every).is_ok());
        let withheld = (!may).then(|| {
            let text = "texts of answers can quote messages: they need message-body and unmasked on `service *`";
            text.to_owned()
        });
        let report = waiting::report(&queue, self.running().engine.clock.now_us(), withheld);
        let is_recorded = report.lanes.iter().filter_map(|lane| lane.last.as_ref()).any(|last| last.text.is_some());
        Ok(Answered { is_recorded, ..Answered::with(json!(report)) })
    }

    /// Sets a message aside that waits in an operation.
    pub(super) async fn set_aside(&self, request: SetAsideRequest, by: &str) -> Result<Value, InteropError> {
        let SetAsideRequest { operation, message, reason } = request;
        let queue = self.queue(&operation).await?;
        let id = match message {
            Some(id) => id,
            None => only_head(&queue)?,
        };
        let place = queue.lanes().iter().find(|lane| !lane.outputs_of(id).is_empty());
        let lane = place.ok_or_else(|| not_there(&operation, id))?;
        let (answer, answered) = oneshot::channel();
        let order = SetAsideOrder { id, by: by.to_owned(), reason, answer };
        if !lane.order_set_aside(order) {
            return Err(ended(&queue));
        }
        match answered.await {
            Ok(Ok(done)) => {
                let (outputs, at_us, next) = (done.outputs, done.at_us, lane.oldest());
                Ok(json!(SetAsideMessage { operation, message: id, outputs, by: by.to_owned(), at_us, next }))
            }
            Ok(Err(SetAsideRefusal::NotThere)) => Err(not_there(&operation, id)),
            Ok(Err(SetAsideRefusal::NotStored(why))) => Err(InteropError::Refused(format!(
                "message {id} stays where it is: that it is set aside could not be stored: {why}"
            ))),
            Err(_) => Err(ended(&queue)),
        }
    }
}

/// The message at the head, where there is one head.
fn only_head(queue: &Queue) -> Result<u64, InteropError> {
    let heads: Vec<u64> = queue.lanes().iter().filter_map(|lane| lane.oldest()).collect();
    match heads[..] {
        [head] => Ok(head),
        [] => Err(InteropError::Refused(format!("nothing waits in operation {}", queue.name))),
        _ => {
            let heads: Vec<String> = heads.iter().map(u64::to_string).collect();
            let (name, heads) = (&queue.name, heads.join(", "));
            Err(InteropError::Refused(format!("operation {name} has several heads: name the message, one of {heads}")))
        }
    }
}

fn not_there(operation: &str, id: u64) -> InteropError {
    InteropError::Refused(format!(
        "message {id} does not wait in operation {operation}; if it did a moment ago, its outcome came first: `terrace message trace \
         {id}` shows it"
    ))
}

/// Why a lane carries nothing out any more.
fn ended(queue: &Queue) -> InteropError {
    if !queue.is_broken() {
        return InteropError::Stopping;
    }
    let name = &queue.name;
    InteropError::Refused(format!(
        "operation {name} has stopped because of a programming error (see the log): `terrace stop` and `terrace serve` start it again"
    ))
}
