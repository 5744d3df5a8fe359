//! Resend: first a preview of what goes where, then once.
//!
//! The preview has a key of its own: sending its form again, by a second Enter or by loading the answer again, shows the message that
//! was made and sends nothing (`resends`).

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::html;
use node::identity::{Action, Caller, Object};

use super::message::outputs_in_words;
use super::refused;
use crate::address::message_path;
use crate::admin::{AdminError, OperationState};
use crate::form::SignedForm;
use crate::format::{bytes, time, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, table, token_field};
use crate::once::once;
use crate::respond;
use crate::secret;
use crate::state::ConsoleState;

/// `GET /messages/ID/resend`
pub(crate) async fn preview(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(id): Path<u64>) -> Response {
    let view = match state.admin.message(&visitor.caller, id, false).await {
        Ok(view) => view,
        Err(error) => return refused(&error),
    };
    if !state.may(&visitor.caller, Action::MessageResend, Object::Service(&view.service)) {
        return refused(&AdminError::Denied("permission denied: message-resend is not allowed".to_owned()));
    }
    if view.outputs.is_empty() {
        let text = format!("message {id} went nowhere: there is nothing to send again");
        return refused(&AdminError::Refused(text));
    }
    let (Some(token), Ok(key)) = (visitor.form_token(), secret::draw()) else {
        return refused(&AdminError::Refused("a page needs a session: sign in".to_owned()));
    };
    let snapshot = state.snapshot.borrow().clone().filter(|_| state.sees_node(&visitor.caller));
    let state_of = |operation: &str| {
        let all = snapshot.as_ref().map(|snapshot| &snapshot.figures.operations);
        all.and_then(|all| all.iter().find(|one| one.name == operation).map(|one| one.state))
    };
    let head = html! {
        th scope="col" { "Send" } th scope="col" { "To" } th.wide scope="col" { "Made by" } th.num scope="col" { "Size" } th scope="col" { "Then" }
    };
    let rows = html! {
        @for (at, output) in view.outputs.iter().enumerate() {
            @let field = format!("to{at}");
            tr {
                td { input type="checkbox" id=(field) name="to" value=(output.operation) checked; }
                td { label for=(field) { (output.operation) } }
                td.wide { @if output.transform.is_empty() { "no transform" } @else { code { (output.transform) } } }
                td.num { (bytes(output.bytes)) }
                td {
                    (output.state.name())
                    @if let Some((at_us, answer)) = &output.ended { " " span.sub { (time(*at_us)) " " (answer) } }
                    @if state_of(&output.operation) == Some(OperationState::Suspended) { " " span.tag.warn { "suspended: it will wait" } }
                }
            }
        }
    };
    let main = html! {
        div.title { h1 { "Resend message " (id) } }
        section.card {
            p { "The " (outputs_in_words(view.outputs.len())) " below go out again as they were, as a new message that names this one. \
                Rules and transforms are not run again." }
            form action={ (message_path(id)) "/resend" } method="post" {
                (token_field(&token))
                input type="hidden" name="key" value=(key);
                (table("Outputs", head, rows))
                div.empty { button.main { "Send again" } " " a.button href=(message_path(id)) { "Not now" } }
            }
        }
        (command(&format!("terrace message resend {id}")))
    };
    let title = format!("Resend {id}");
    let page = layout::page(&state, &visitor, (&title, Place::Messages, Extras::None), "", main);
    respond::page(StatusCode::OK, page)
}

/// Sends once under a key; the new message.
pub(crate) async fn send_once(
    state: &Arc<ConsoleState>,
    caller: &Caller,
    key: &str,
    (id, operations): (u64, &[String]),
) -> Result<u64, AdminError> {
    let request = format!("{id} {operations:?}");
    let (admin, by, operations) = (Arc::clone(&state.admin), caller.clone(), operations.to_vec());
    let work = async move { admin.resend(&by, id, &operations).await };
    once(state, caller, (key, request.as_bytes()), work).await
}

/// `POST /messages/ID/resend`
pub(crate) async fn send(State(state): State<Arc<ConsoleState>>, Path(id): Path<u64>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let operations: Vec<String> = fields.all("to").map(str::to_owned).collect();
    let Some(key) = fields.get("key").filter(|_| !operations.is_empty()) else {
        return refused(&AdminError::Refused("choose at least one output".to_owned()));
    };
    if operations.iter().any(|name| word(name).is_none()) {
        return refused(&AdminError::Refused("an operation has another name".to_owned()));
    }
    match send_once(&state, &visitor.caller, key, (id, &operations)).await {
        Ok(new) => respond::see(&format!("{}?resent={new}", message_path(new))),
        Err(error) => refused(&error),
    }
}
