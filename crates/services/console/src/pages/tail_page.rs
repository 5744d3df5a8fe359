//! Tail: messages as they are stored and outcomes as they are recorded, while one looks; of all services, or of one service or operation.
//!
//! ```text
//!   /messages/tail: the fields, and a table without rows --script--> /live/tail: the stream of `tail`, each part a row, the newest on top
//! ```
//!
//! Invariants: rights, masks and what is left out are those of the node's request; a row is made here, where texts are escaped, and the
//! script only puts it into the table; a stream of this page is no sign of a person. Bodies are in it where somebody who may read them asks
//! for them, and of each the beginning: each row leads to its message.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use maud::{Markup, html};
use node::identity::{Action, Object};
use serde_json::Value;

use super::messages::status_tag;
use super::refused;
use super::tail::{TailForm, stream_as};
use crate::address::{message_path, target};
use crate::admin_error::AdminError;
use crate::body;
use crate::form::Fields;
use crate::format::{count, span, time, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, cards, command};
use crate::live::event_of;
use crate::respond;
use crate::state::{ConsolePeer, ConsoleState};
use crate::tail_admin::TailQuery;

/// Columns of the table.
const COLUMNS: usize = 6;

/// What the fields ask for; one that is empty asks for all.
fn query_of(fields: &Fields) -> TailQuery {
    let text = |name: &str| fields.get(name).map(str::to_owned);
    TailQuery {
        service: text("service"),
        operation: text("operation"),
        kind: text("type"),
        bodies: fields.get("bodies").is_some(),
        from: None,
    }
}

/// An address with what is asked for.
fn address(path: &str, query: &TailQuery) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (service, operation, kind) = (text(&query.service), text(&query.operation), text(&query.kind));
    let bodies = if query.bodies { "yes" } else { "" };
    target(path, &[("service", &service), ("operation", &operation), ("type", &kind), ("bodies", bodies)])
}

/// `GET /messages/tail`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let query = query_of(&fields);
    let needed =
        if query.bodies { &[Action::MessageMetadata, Action::MessageBody][..] } else { &[Action::MessageMetadata][..] };
    let lacks = |action: &&Action| match &query.service {
        None => !state.may_some(&visitor.caller, **action),
        Some(name) => !state.may(&visitor.caller, **action, Object::Service(name)),
    };
    if let Some(action) = needed.iter().find(lacks) {
        return refused(&AdminError::Denied(format!("permission denied: {} is not allowed", action.name())));
    }
    let head = html! {
        th scope="col" { "Time" } th.num scope="col" { "Id" } th scope="col" { "Service" } th scope="col" { "Type" }
        th scope="col" { "Control id" } th scope="col" { "What" }
    };
    let main = html! {
        div.title {
            h1 { "Tail" }
            span.live role="status" data-state="lost" { i {} span { "not live" } }
            div.act { button #tail-switch type="button" hidden { "Pause" } }
        }
        section.card { (filters(&state, &visitor, &query)) }
        noscript { p.note.warn { "This page needs a script. The command below shows the same." } }
        section.card #tail data-from=(address("/live/tail", &query)) {
            (cards("Messages and outcomes, the newest first", head, html! {}))
        }
        (terminal(&query))
    };
    respond::page(StatusCode::OK, layout::page(&state, &visitor, ("Tail", Place::Messages, Extras::None), "", main))
}

fn filters(state: &ConsoleState, visitor: &Visitor, query: &TailQuery) -> Markup {
    let snapshot = state.snapshot.borrow().clone().filter(|_| state.sees_node(&visitor.caller));
    let (services, operations): (Vec<String>, Vec<String>) = snapshot.map_or_else(Default::default, |snapshot| {
        let services = snapshot.figures.services.iter().map(|one| one.name.clone());
        let operations = snapshot.figures.operations.iter().map(|one| one.name.clone());
        (services.collect(), operations.collect())
    });
    let field = |(id, label): (&'static str, &'static str), own: &Option<String>, names: &[String]| {
        let names_id = format!("{id}-names");
        html! {
            div.field {
                label for=(id) { (label) }
                input id=(id) name=(id) value=[own.as_deref()] list=[(!names.is_empty()).then_some(&names_id)] placeholder="all" autocomplete="off" spellcheck="false" maxlength="200";
                @if !names.is_empty() { datalist id=(names_id) { @for name in names { option value=(name) {} } } }
            }
        }
    };
    html! {
        form.filters action="/messages/tail" method="get" {
            (field(("service", "Service"), &query.service, &services))
            (field(("operation", "Operation"), &query.operation, &operations))
            (field(("type", "Type"), &query.kind, &[]))
            @if state.may_some(&visitor.caller, Action::MessageBody) {
                label { input type="checkbox" name="bodies" value="yes" checked[query.bodies]; "With bodies" }
            }
            button.main { "Watch" }
        }
    }
}

fn terminal(query: &TailQuery) -> Markup {
    let mut line = "terrace message tail".to_owned();
    for (name, value) in [("--service", &query.service), ("--operation", &query.operation), ("--type", &query.kind)] {
        match value.as_deref().map(word) {
            None => {}
            Some(Some(value)) => line.push_str(&format!(" {name} {value}")),
            Some(None) => return html! {},
        }
    }
    if query.bodies {
        line.push_str(" --bodies");
    }
    html! { div.commands { (command(&line)) } }
}

/// `GET /live/tail`: who lacks the right is refused; what else cannot be is said in a row.
pub(crate) async fn live(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Extension(peer): Extension<ConsolePeer>,
    fields: Fields,
) -> Response {
    stream_as(state, (visitor, peer), query_of(&fields), TailForm { event, is_page: true }).await
}

/// A part as an event: a row; nothing of a part that only says that the stream is there.
fn event(part: &Value) -> Bytes {
    let Some(row) = row_of(part) else { return Bytes::from_static(b": quiet\n\n") };
    let data = event_of(&row.into_string());
    // The script asks for no other one behind it.
    let name: &[u8] = if part["event"] == "ended" { b"event: ended\n" } else { b"" };
    Bytes::from([name, &data].concat())
}

/// The row of a part.
fn row_of(part: &Value) -> Option<Markup> {
    let text = |name: &str| part[name].as_str().unwrap_or_default();
    let note = |at: Option<i64>, words: Markup| {
        html! {
            tr { td { @if let Some(at) = at { (time(at)) } } td.text.dim colspan=(COLUMNS - 1) { (words) } }
        }
    };
    let row = |at: i64, what: Markup| {
        html! {
            tr {
                td { (time(at)) }
                td.num { a href=(message_path(part["id"].as_u64().unwrap_or(0))) { (part["id"].as_u64().unwrap_or(0)) } }
                td data-label="Service" { (text("service")) }
                td.nowrap data-label="Type" { (text(if text("event") == "message" { "kind" } else { "type" })) }
                td.break data-label="Control id" { code { (text("control_id")) } }
                td.text { (what) }
            }
        }
    };
    match text("event") {
        "began" => Some(note(part["at_us"].as_i64(), html! { "It begins: what is stored and recorded from now on." })),
        "message" => match part["damaged"].as_str() {
            Some(why) => Some(note(
                None,
                html! { span.bad { "Message " (part["id"].as_u64().unwrap_or(0)) " cannot be read: " (why) } },
            )),
            None => Some(row(part["received_us"].as_i64()?, stored(part))),
        },
        "outcome" => Some(row(part["at_us"].as_i64()?, outcome(part))),
        "left-out" => Some(note(
            None,
            html! {
                span.warn {
                    @if let Some(left) = part["count"].as_u64() { (count(left)) " messages and outcomes" } @else { "Messages and outcomes" }
                    " between these rows are not shown: more came than is looked at, or they were removed meanwhile."
                }
            },
        )),
        "ended" => Some(note(None, html! { span.bad { "It has ended: " (text("why")) } })),
        _ => None,
    }
}

/// What became of a message when it was stored.
fn stored(part: &Value) -> Markup {
    let names: Vec<&str> = part["outputs"].as_array().into_iter().flatten().filter_map(|one| one[0].as_str()).collect();
    html! {
        (status_tag(part["status"].as_str().unwrap_or_default()))
        @if part["duplicate"] == true { " " span.tag { "duplicate" } }
        @if !names.is_empty() { " to " (names.join(", ")) }
        @if part["masked"] == true { " " span.tag.warn { "masked" } }
        @if let Some(body) = part["body"].as_str() { (body::beginning(&bytes_of(body))) }
        @if let Some(why) = part["withheld"].as_str() { p.dim { "Without its body: " (why) } }
    }
}

/// Bytes, of which each came as a character.
fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|one| u8::try_from(u32::from(one)).unwrap_or(b'?')).collect()
}

/// What became of an output.
fn outcome(part: &Value) -> Markup {
    let text = |name: &str| part[name].as_str().unwrap_or_default();
    let class = match text("outcome") {
        "delivered" => "tag good",
        "failed" => "tag bad",
        _ => "tag warn",
    };
    let (detail, by) = (text("detail"), text("by"));
    html! {
        span class=(class) { (text("outcome")) } " " (text("operation"))
        span.dim {
            " after " (span(part["ms"].as_f64().unwrap_or(0.0) * 1e3))
            @if !detail.is_empty() { ", " span.break { (detail) } }
            @if !by.is_empty() { ", by " (by) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_part_is_a_row_that_says_what_it_is_and_a_quiet_one_is_none() {
        let message = json!({
            "event": "message", "id": 8, "received_us": 1, "service": "adt", "kind": "ADT^A01", "control_id": "M8",
            "status": "routed", "duplicate": false, "outputs": [["lab", "waiting"], ["out", "waiting"]],
        });
        let outcome = json!({
            "event": "outcome", "id": 8, "at_us": 2, "service": "adt", "type": "ADT^A01", "control_id": "M8",
            "operation": "lab", "output": 0, "outcome": "failed", "detail": "AR", "ms": 12,
        });
        let mut with_body = message.clone();
        with_body["body"] = json!("MSH|^~\\&|A||||||ADT^A01|M8|P|2.5||||||8859/1\rPID|1||MASKED||M\u{fc}ller\r");
        with_body["masked"] = json!(true);
        let mut withheld = message.clone();
        withheld["withheld"] = json!("it is too long");
        for (part, expected) in [
            (with_body, vec!["PID|1||MASKED||M\u{fc}ller", ">masked<", "to lab, out"]),
            (withheld, vec!["Without its body: it is too long"]),
            (message, vec!["href=\"/messages/8\"", "ADT^A01", "M8", "routed", " to lab, out"]),
            (outcome, vec!["href=\"/messages/8\"", "ADT^A01", "M8", "tag bad\">failed", " lab", "12 ms", "AR"]),
            (json!({"event": "left-out", "count": 1_200}), vec!["1,200 messages and outcomes"]),
            (json!({"event": "left-out", "count": null}), vec!["Messages and outcomes between"]),
            (json!({"event": "message", "id": 9, "damaged": "cut"}), vec!["Message 9 cannot be read: cut"]),
            (json!({"event": "began", "at_us": 1, "after": 7}), vec!["from now on"]),
            (json!({"event": "ended", "why": "permission denied"}), vec!["event: ended\n", "permission denied"]),
        ] {
            let event = event(&part);
            let found = std::str::from_utf8(&event).expect("text");
            assert!(expected.iter().all(|text| found.contains(text)), "{expected:?}: {found}");
            assert!(found.contains("data: <tr>") && found.ends_with("</tr>\n\n"), "{found}");
        }
        assert_eq!(event(&json!({"event": "quiet", "at_us": 1})), ": quiet\n\n");
    }

    #[test]
    fn every_text_of_a_row_is_escaped_and_ends_no_event() {
        let evil = "<script>alert(1)</script>\r\n\r\nevent: x";
        for name in ["message", "outcome", "ended", "left-out"] {
            let part = json!({
                "event": name, "id": 1, "at_us": 1, "received_us": 1, "service": evil, "kind": evil, "type": evil,
                "control_id": evil, "status": evil, "outputs": [[evil, "waiting"]], "body": evil, "withheld": evil, "masked": true, "operation": evil, "outcome": evil,
                "detail": evil, "by": evil, "why": evil, "ms": 1,
            });
            let event = event(&part);
            let text = std::str::from_utf8(&event).expect("text");
            assert!(!text.contains("<script") && text.matches("\n\n").count() == 1, "{text}");
        }
        let part = json!({"event": "message", "id": 1, "damaged": evil});
        assert!(!String::from_utf8_lossy(&event(&part)).contains("<script"));
    }

    #[test]
    fn fields_that_are_empty_ask_for_all_and_bodies_are_there_where_they_are_asked_for() {
        let fields = |all: &[(&str, &str)]| {
            Fields(all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
        };
        let asked = [("service", ""), ("operation", " lab "), ("type", "ADT"), ("bodies", "yes")];
        let mut expected =
            TailQuery { operation: Some("lab".into()), kind: Some("ADT".into()), ..TailQuery::default() };
        assert_eq!(query_of(&fields(&asked[..3])), expected);
        assert_eq!(address("/live/tail", &expected), "/live/tail?operation=lab&type=ADT");
        expected.bodies = true;
        assert_eq!(query_of(&fields(&asked)), expected);
        assert_eq!(address("/live/tail", &expected), "/live/tail?operation=lab&type=ADT&bodies=yes");
    }
}
