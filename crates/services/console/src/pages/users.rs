//! Users: all roles, what proves them and what they may. They are changed by commands, each of which the page shows.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::RoleReport;

use super::refused;
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, cards, command};
use crate::respond;
use crate::state::ConsoleState;

/// Roles that the page has.
const SHOWN: usize = 500;

/// `GET /users`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    let roles = match state.admin.roles(&visitor.caller).await {
        Ok(roles) => roles,
        Err(error) => return refused(&error),
    };
    let main = html! {
        div.title { h1 { "Users and groups" } }
        section.card { (rows(&roles)) @if roles.len() > SHOWN { p.empty { "The first " (SHOWN) " are shown; " code { "terrace user list" } " has all." } } }
        div.commands {
            (command("terrace user add NAME"))
            (command("terrace role grant message-metadata --on 'service *' --to NAME"))
            (command("terrace user lock NAME --reason 'why'"))
            (command("terrace role actions"))
        }
    };
    respond::page(StatusCode::OK, layout::page(&state, &visitor, ("Users", Place::Users, Extras::None), "", main))
}

/// What is remarkable about a role.
fn tags(role: &RoleReport) -> Markup {
    let attributes = &role.attributes;
    html! {
        @if attributes.administrator { span.tag.warn { "administrator" } " " }
        @if !attributes.login { span.tag { "group" } " " }
        @if attributes.must_change_password { span.tag { "must change its password" } " " }
        @if let Some(why) = &attributes.locked { span.tag.bad { "locked: " (why) } " " }
    }
}

fn rows(roles: &[RoleReport]) -> Markup {
    let head = html! {
        th scope="col" { "Name" } th scope="col" { "What it is" } th.wide scope="col" { "Proofs" } th.wide scope="col" { "Member of" } th scope="col" { "Rights" }
    };
    let body = html! {
        @for role in roles.iter().take(SHOWN) {
            tr {
                td.break { b { (role.name) } }
                td { (tags(role)) }
                td.wide.break { (role.proofs.join(", ")) }
                td.wide.break { (role.member_of.join(", ")) }
                td.text.break.sub {
                    @if role.privileges.len() > 3 {
                        details { summary { (role.privileges.len()) " rights" } @for right in &role.privileges { div { (right) } } }
                    } @else { @for right in &role.privileges { div { (right) } } }
                }
            }
        }
    };
    cards("Users and groups", head, body)
}
