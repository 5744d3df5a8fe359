//! The visitor's own page: who it is, and what it may.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::html;
use node::identity::{Action, ObjectKind};

use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, table};
use crate::respond;
use crate::state::ConsoleState;

/// `GET /account`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    let view = state.options.guard.view();
    let own = view.attributes(visitor.caller.session());
    let must_change = own.is_some_and(|own| own.must_change_password);
    let asked = [ObjectKind::Node, ObjectKind::Service, ObjectKind::Operation, ObjectKind::Volume];
    let has = |action: &&Action| asked.contains(&action.kind()) && view.may_some(&visitor.caller, **action).is_ok();
    let rights: Vec<Action> = Action::ALL.iter().filter(has).copied().collect();
    let head = html! { th scope="col" { "Right" } th scope="col" { "On" } th scope="col" { "What it is" } };
    let rows = html! {
        @for right in &rights { tr { td.nowrap { code { (right.name()) } } td { (right.kind().name()) } td { (right.description()) } } }
    };
    let main = html! {
        div.title {
            h1 { (visitor.name) }
            @if own.is_some_and(|own| own.administrator) { span.tag.warn { "administrator" } }
        }
        @if must_change {
            p.note.warn { "Your password must be changed before you may do anything. An administrator does that with:" }
            (command("terrace user password NAME"))
        }
        section.card {
            h2 { "What you may, on something at least" }
            @if rights.is_empty() { p.empty { "Nothing yet: an administrator grants rights with the command below." } } @else { (table("Your rights", head, rows)) }
        }
        (command("terrace role grant node-status --on node --to NAME"))
    };
    respond::page(
        StatusCode::OK,
        layout::page(&state, &visitor, ("Your rights", Place::Elsewhere, Extras::None), "", main),
    )
}
