//! Connections: those of every port and those that the node has opened, and the end of one, which is confirmed on a page of its own.
//!
//! Statements of SQL are not here: `terrace connection list --statements` and `pg_stat_activity` show them to who may see them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::ConnectionLine;
use node::identity::{Action, Object};
use serde_json::json;

use super::refused;
use crate::admin::AdminError;
use crate::form::{Fields, SignedForm};
use crate::format::{age, bytes, count, time};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, cards, command, token_field};
use crate::respond;
use crate::state::ConsoleState;

/// Connections that the page has.
const SHOWN: usize = 500;

/// `GET /connections`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let port = fields.get("port").filter(|port| !port.is_empty());
    let lines = match state.admin.connections(&visitor.caller, port).await {
        Ok(lines) => lines,
        Err(error) => return refused(&error),
    };
    let may = may_close(&state, &visitor) && visitor.form_token().is_some();
    let main = html! {
        div.title { h1 { "Connections" } span.sub { (count(lines.len() as u64)) " open" } }
        (choice(port))
        section.card {
            @if lines.is_empty() { p.empty { "No connection is open." } } @else { (rows(&lines, state.options.guard.now_us(), may)) }
            @if lines.len() > SHOWN { p.empty { "The first " (SHOWN) " are shown; " code { "terrace connection list" } " has all." } }
        }
        div.commands { (command("terrace connection list --statements")) (command("terrace connection close ID")) }
    };
    let at = ("Connections", Place::Connections, Extras::None);
    respond::page(StatusCode::OK, layout::page(&state, &visitor, at, "", main))
}

fn may_close(state: &ConsoleState, visitor: &Visitor) -> bool {
    state.may(&visitor.caller, Action::ConnectionClose, Object::Node)
}

/// The choice of a kind of port.
fn choice(port: Option<&str>) -> Markup {
    html! {
        form.fields action="/connections" method="get" {
            div.field {
                label for="port" { "Port" }
                select #port name="port" {
                    option value="" { "all" }
                    @for kind in node::connections::KINDS { option value=(kind) selected[port == Some(kind)] { (kind) } }
                }
            }
            div { button { "Show" } }
        }
    }
}

/// Who is at the other end.
fn who(line: &ConnectionLine) -> Markup {
    html! {
        @if let Some(role) = &line.role { b { (role) } " " }
        @if let Some(user) = &line.user { span.sub { (user) } }
        @if line.role.is_none() && line.user.is_none() { "-" }
    }
}

fn rows(lines: &[ConnectionLine], now_us: i64, may_close: bool) -> Markup {
    let head = html! {
        th.num scope="col" { "Number" } th scope="col" { "Port" } th scope="col" { "Other end" } th scope="col" { "Who" } th.wide scope="col" { "TLS" }
        th.wide scope="col" { "Since" } th.num scope="col" { "Silent for" } th.num.wide scope="col" { "In" } th.num.wide scope="col" { "Out" }
        th.num scope="col" { "Requests" } th scope="col" { span.hidden { "Action" } }
    };
    let body = html! {
        @for line in lines.iter().take(SHOWN) {
            tr {
                td.num { (line.id) }
                td.break {
                    (line.port) @if line.service != line.port { " " b { (line.service) } }
                    @if let Some(about) = &line.about { " " span.sub { (about) } }
                    @if line.closing { " " span.tag.warn { "closing" } }
                }
                td.break { @if line.outgoing { span.sub { "to " } } (line.remote) }
                td.break { (who(line)) }
                td.wide { @if line.tls { "yes" } @else { "no" } }
                td.wide { (time(line.since_us)) }
                td.num { (age(line.idle_since_us, now_us)) }
                td.num.wide.nowrap { (bytes(line.received_bytes)) }
                td.num.wide.nowrap { (bytes(line.sent_bytes)) }
                td.num { (count(line.requests)) }
                td.num {
                    @if may_close { a.button href={ "/connections/" (line.id) "/close" } aria-label={ "Close connection " (line.id) } { "Close" } }
                }
            }
        }
    };
    cards("Connections", head, body)
}

fn one_of(lines: Vec<ConnectionLine>, id: u64) -> Result<ConnectionLine, AdminError> {
    let found = lines.into_iter().find(|line| line.id == id);
    found.ok_or_else(|| AdminError::Absent(format!("no connection {id} is open: it has ended, or never was")))
}

/// `GET /connections/ID/close`
pub(crate) async fn confirm(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(id): Path<u64>) -> Response {
    if !may_close(&state, &visitor) {
        return refused(&AdminError::Denied("permission denied: connection-close is not allowed".to_owned()));
    }
    let found = state.admin.connections(&visitor.caller, None).await.and_then(|lines| one_of(lines, id));
    let line = match found {
        Ok(line) => line,
        Err(error) => return refused(&error),
    };
    let Some(token) = visitor.form_token() else {
        return refused(&AdminError::Denied("a program closes a connection over the API".to_owned()));
    };
    let main = html! {
        div.title { h1 { "Close connection " (id) } }
        section.card { (rows(std::slice::from_ref(&line), state.options.guard.now_us(), false)) }
        section.card.stack {
            p {
                "What was acknowledged stays acknowledged; what was not is as if the peer had gone away. "
                @if line.outgoing { "The node connects again by itself." } @else { "The peer may connect again." }
            }
            form action={ "/connections/" (id) "/close" } method="post" {
                (token_field(&token))
                button.danger { "Close connection " (id) } " " a.button href="/connections" { "Not now" }
            }
        }
        (command(&format!("terrace connection close {id}")))
    };
    let title = format!("Close connection {id}");
    let at = (title.as_str(), Place::Connections, Extras::None);
    respond::page(StatusCode::OK, layout::page(&state, &visitor, at, "", main))
}

/// `POST /connections/ID/close`
pub(crate) async fn close(State(state): State<Arc<ConsoleState>>, Path(id): Path<u64>, form: SignedForm) -> Response {
    match state.admin.close_connection(&form.visitor.caller, id).await {
        Ok(_) => respond::see("/connections"),
        Err(error) => refused(&error),
    }
}

/// `GET /api/v1/connections`
pub(crate) async fn as_json(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    match state.admin.connections(&visitor.caller, fields.get("port")).await {
        Ok(lines) => respond::json_of(&json!({ "connections": lines })),
        Err(error) => refused(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_shown_escaped_and_closed_only_by_who_may() {
        let line = ConnectionLine {
            id: 7,
            port: "nbd".to_owned(),
            service: "nbd".to_owned(),
            remote: "10.0.0.1:2".to_owned(),
            role: Some("<script>alert(1)</script>".to_owned()),
            about: Some("<b>v</b>".to_owned()),
            ..ConnectionLine::default()
        };
        let lines = std::slice::from_ref(&line);
        let (with, without) = (rows(lines, 5_000_000, true).into_string(), rows(lines, 5_000_000, false).into_string());
        assert!(
            with.contains("/connections/7/close") && !with.contains("<script>") && !with.contains("<b>v"),
            "{with}"
        );
        assert!(!without.contains("/close"), "{without}");
        assert!(one_of(vec![line.clone()], 7).is_ok() && one_of(vec![line], 8).is_err());
    }
}
