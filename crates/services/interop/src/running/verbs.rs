//! Answers the requests of operators: what operations do, setting a message aside; the others are in modules of their own.

use node::identity::{Action, Caller, Object};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::audited::Answered;
use super::operator_request::{OperatorRequest, SetAsideMessage, SetAsideRequest};
use super::reprocess::reprocess;
use super::resend::resend_edited;
use super::todo::todo;
use super::{RunningProduction, stored, switch, waiting};
use crate::error::InteropError;
use crate::history::EVERY_SERVICE;
use crate::queue::{Queue, SetAsideOrder, SetAsideRefusal};

/// Answers what was decided and recorded. `by`: who asks, for what it leaves in the store.
pub(super) async fn answer(
    running: &RunningProduction,
    caller: &Caller,
    request: OperatorRequest,
    by: &str,
) -> Result<Answered, InteropError> {
    let value = match request {
        OperatorRequest::ResendEdited(request) => json!(resend_edited(&running.engine, &request, by).await?),
        OperatorRequest::Reprocess(request) => return reprocess(running, caller, request).await,
        OperatorRequest::SetAside(request) => set_aside(running, request, by).await?,
        OperatorRequest::Start(request) => switch::start(running, request, by).await?,
        OperatorRequest::Todo(request) => return todo(running, caller, request, by).await,
        OperatorRequest::Operations => json!(waiting::statuses(running)),
        OperatorRequest::Operation(name) => return operation(running, caller, &name).await,
    };
    Ok(Answered::with(value))
}

/// What an operation does, lane by lane; with texts of answers for who may read bodies without the mask.
async fn operation(running: &RunningProduction, caller: &Caller, name: &str) -> Result<Answered, InteropError> {
    let queue = stored::queue(running, name).await?;
    let view = running.guard.view();
    let every = Object::Service(EVERY_SERVICE);
    let may = [Action::MessageBody, Action::Unmasked].iter().all(|action| view.may(caller, *action, every).is_ok());
    let withheld = (!may).then(|| {
        let text = "texts of answers can quote messages: they need message-body and unmasked on `service *`";
        text.to_owned()
    });
    let queues = running.operations.queues();
    let report = waiting::report(&queue, &queues, running.engine.clock.now_us(), withheld);
    let is_recorded = report.lanes.iter().filter_map(|lane| lane.last.as_ref()).any(|last| last.text.is_some());
    Ok(Answered { is_recorded, ..Answered::with(json!(report)) })
}

/// Sets a message aside that waits in an operation.
async fn set_aside(running: &RunningProduction, request: SetAsideRequest, by: &str) -> Result<Value, InteropError> {
    let SetAsideRequest { operation, message, reason } = request;
    let queue = stored::queue(running, &operation).await?;
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
