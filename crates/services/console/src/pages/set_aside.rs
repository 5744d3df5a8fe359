//! Setting aside: takes a message out of the way that an operation cannot deliver, so that the next ones go on, in their order.
//!
//! The form names the message that the page showed at the head: where that has been delivered meanwhile, nothing else is set aside in
//! its place.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Object};

use super::refused;
use crate::address::{message_path, operation_path, target};
use crate::admin::{AdminError, MessageLine, OperationFigures};
use crate::form::{Fields, SignedForm};
use crate::gate::Visitor;
use crate::layout::token_field;
use crate::operator::SetAsideOrder;
use crate::respond;
use crate::state::ConsoleState;

/// The longest reason, in bytes.
const REASON_MAX: usize = 500;

/// What was done, on the page of the operation after it.
pub(super) fn outcome_note(fields: &Fields) -> Markup {
    let number = |name: &str| fields.get(name).and_then(|id| id.parse::<u64>().ok());
    let Some(aside) = number("aside") else { return html! {} };
    html! {
        p.note.good role="status" {
            "Message " a href=(message_path(aside)) { (aside) } " is set aside. "
            @match number("next") {
                Some(next) => { "Message " a href=(message_path(next)) { (next) } " is next. " }
                None => { "Nothing waits behind it. " }
            }
            "It is on the list of " a href="/todo" { "what needs a person" } "."
        }
    }
}

/// The form on the page of an operation; nothing for who may not, and where nothing waits.
pub(super) fn form(state: &ConsoleState, visitor: &Visitor, one: &OperationFigures, queue: &[MessageLine]) -> Markup {
    let may = state.may(&visitor.caller, Action::OperationSetAside, Object::Operation(&one.name));
    let Some(token) = visitor.form_token().filter(|_| may && one.waiting > 0) else { return html! {} };
    let head = queue.first().map(|line| line.id).or(one.oldest.map(|(id, _)| id));
    html! {
        details.more.card {
            summary { "Set the head aside" }
            form.fields action={ (operation_path(&one.name)) "/set-aside" } method="post" {
                (token_field(&token))
                p.sub {
                    "The message is not sent, and stays stored with the reason; the next ones go on in their order. It can be sent again later."
                }
                div.filters {
                    div.field {
                        label for="message" { "Message" }
                        input #message name="message" value=[head] type="number" min="1" required;
                    }
                    div.field.grow {
                        label for="reason" { "Why, without patient data" }
                        input #reason name="reason" required maxlength=(REASON_MAX) autocomplete="off";
                    }
                    button.danger { "Set aside" }
                }
                @if one.lanes > 1 { p.sub { "This operation has " (one.lanes) " lanes, each with a head of its own: name the message that is stuck." } }
            }
        }
    }
}

/// `POST /operations/NAME/set-aside`
pub(crate) async fn set_aside(
    State(state): State<Arc<ConsoleState>>,
    Path(name): Path<String>,
    form: SignedForm,
) -> Response {
    let SignedForm { visitor, fields } = form;
    let order = match order_of(&name, &fields) {
        Ok(order) => order,
        Err(error) => return refused(&error),
    };
    match state.admin.set_aside(&visitor.caller, &order).await {
        Ok(done) => {
            let (aside, next) = (done.message.to_string(), done.next.map(|id| id.to_string()).unwrap_or_default());
            respond::see(&target(&operation_path(&name), &[("aside", &aside), ("next", &next)]))
        }
        Err(error) => refused(&error),
    }
}

/// The order of a request's fields.
pub(crate) fn order_of(operation: &str, fields: &Fields) -> Result<SetAsideOrder, AdminError> {
    let wrong = |text: &str| Err(AdminError::Refused(text.to_owned()));
    let message = match fields.get("message").map(str::parse::<u64>) {
        // The head may be another one by now than the one that somebody looked at.
        None => return wrong("name the message that is to be set aside: message is its id"),
        Some(Ok(id)) => id,
        Some(Err(_)) => return wrong("message is the id of a message"),
    };
    let reason = fields.get("reason").unwrap_or_default();
    if reason.is_empty() || reason.len() > REASON_MAX || reason.chars().any(char::is_control) {
        return wrong("a reason is needed, of 500 bytes at most, on one line");
    }
    Ok(SetAsideOrder { operation: operation.to_owned(), message, reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_its_message_and_has_a_reason() {
        let fields = |pairs: &[(&str, &str)]| {
            Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let order = order_of("lab", &fields(&[("message", "7"), ("reason", "rejected by the receiver")]));
        assert!(order.is_ok_and(|order| order.message == 7 && order.operation == "lab"));
        for wrong in [
            &[("reason", "r"), ("reason", "r")],
            &[("message", "x"), ("reason", "r")],
            &[("message", "7"), ("reason", " ")],
            &[("message", "7"), ("reason", "a\nb")],
        ] {
            assert!(order_of("lab", &fields(wrong)).is_err(), "{wrong:?}");
        }
        assert!(order_of("lab", &fields(&[("reason", &"x".repeat(REASON_MAX + 1))])).is_err());
    }
}
