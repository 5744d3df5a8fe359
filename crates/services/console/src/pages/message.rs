//! Message: its facts, its path from service to outcomes, its body by segments and names, and beside it what each output changed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Object};

use super::editing::may_edit;
use super::messages::status_tag;
use super::refused;
use crate::address::{message_path, operation_path, target};
use crate::admin::{AdminError, GlassRequest, MessageView, OutputState, OutputView};
use crate::body;
use crate::form::{Fields, SignedForm};
use crate::format::{bytes, count, span, time, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, token_field};
use crate::respond;
use crate::state::ConsoleState;

/// Minutes that a glass may be broken for, on the page.
const GLASS_MINUTES: [u32; 3] = [15, 30, 60];

/// Messages made from one that a page names.
const DERIVED_SHOWN: usize = 5;

/// How a message was made from another one.
fn made_words(made: &str) -> &'static str {
    match made {
        "edited" => "Edited",
        "reprocessed" => "Reprocessed",
        _ => "Resent",
    }
}

/// Bytes of a body that a page is made of; the rest is in the raw message.
const BODY_BYTES_MAX: usize = 1 << 20;

/// `GET /messages/ID`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(id): Path<u64>,
    fields: Fields,
) -> Response {
    // Asked for only where it may be shown: a page without bodies is no read of one.
    let bodies = state.may_some(&visitor.caller, Action::MessageBody);
    let view = match state.admin.message(&visitor.caller, id, bodies).await {
        Ok(view) => view,
        Err(error) => return refused(&error),
    };
    let view = match bodies {
        true => view,
        false => MessageView { withheld: Some(may_not_read(&view.service)), ..view },
    };
    let may_resend = state.may(&visitor.caller, Action::MessageResend, Object::Service(&view.service));
    let main = html! {
        div.title {
            h1 { "Message " (view.id) }
            (status_tag(&view.status))
            @if view.duplicate { span.tag.warn { "duplicate" } }
            div.act {
                @if may_resend && !view.outputs.is_empty() { a.button href={ (message_path(id)) "/resend" } { "Resend" } }
                @if view.withheld.is_none() && !view.masked && !view.outputs.is_empty() && may_edit(&state, &visitor, &view.service) {
                    a.button href={ (message_path(id)) "/edit" } { "Edit and resend" }
                }
                @if may_resend && view.made.is_empty() { a.button href={ (message_path(id)) "/reprocess" } { "Reprocess" } }
                @if view.withheld.is_none() { a.button href={ (message_path(id)) "/raw" } download { "Download" } }
            }
        }
        @if let Some(new) = fields.get("resent") {
            p.note.good role="status" { "It went out again as this message: " (new) "." }
        }
        @if let Some(new) = fields.get("reprocessed") {
            p.note.good role="status" { "It was decided anew, as this message: " (new) "." }
        }
        section.card { h2 { "Facts" } (facts(&view)) }
        section.card { h2 { "Its way" } (way(&view)) }
        (bodies_of(&state, &visitor, &view))
        div.commands {
            (command(&format!("terrace message trace {id}")))
            (command(&format!("terrace message show {id}")))
            (command(&format!("terrace message reprocess {id} --preview")))
        }
    };
    let title = format!("Message {id}");
    let page = layout::page(&state, &visitor, (&title, Place::Messages, Extras::None), "", main);
    respond::page(StatusCode::OK, page)
}

/// Why a body is not there that was not asked for.
fn may_not_read(service: &str) -> String {
    format!(
        "You may not read bodies of messages of {service}: the right message-body is needed, which nobody has until it is granted."
    )
}

fn facts(view: &MessageView) -> Markup {
    html! {
        dl.facts {
            div { dt { "Received" } dd { (time(view.received_us)) } }
            div { dt { "Service" } dd { a href=(target("/messages", &[("service", &view.service)])) { (view.service) } } }
            div { dt { "Size" } dd { (bytes(view.bytes)) } }
            @if let Some(charset) = &view.charset { div { dt { "Charset of the service" } dd { (charset) } } }
            @if let Some(origin) = view.resent_from {
                div { dt { (made_words(&view.made)) " from" } dd { a href=(message_path(origin)) { "message " (origin) } } }
            }
            @if let Some(source) = &view.imported { div { dt { "Imported as" } dd { (source) } } }
            @if !view.derived.is_empty() {
                div {
                    dt { "Made from it" }
                    dd {
                        @for (at, (id, how)) in view.derived.iter().rev().take(DERIVED_SHOWN).enumerate() {
                            @if at > 0 { ", " } a href=(message_path(*id)) { "message " (id) } " " span.sub { (how) }
                        }
                        @if view.derived.len() > DERIVED_SHOWN { ", \u{2026}" }
                    }
                }
            }
            @if view.generation > 0 {
                div { dt { "Decided by" } dd { a href={ "/changes?from=" (view.generation) "&to=disk" } { "generation " (view.generation) } } }
            }
            @if view.masked { div { dt { "Patient data" } dd { span.tag.warn { "masked" } } } }
        }
    }
}

/// Service, decision, and each output with what became of it.
fn way(view: &MessageView) -> Markup {
    let decided = match view.status.as_str() {
        "errored" | "rejected" => "bad",
        "unmatched" => "warn",
        _ => "",
    };
    html! {
        ol.path {
            li { "Came in by " b { (view.service) } " " span.sub { (time(view.received_us)) } }
            li class=(decided) { (status_tag(&view.status)) " " span.break { (view.reason) } }
            @for output in &view.outputs { (output_step(view, output)) }
            @if view.outputs.is_empty() { li { span.dim { "It was sent nowhere." } } }
        }
    }
}

fn output_step(view: &MessageView, output: &OutputView) -> Markup {
    let class = match output.state {
        OutputState::Delivered => "",
        OutputState::Waiting | OutputState::SetAside => "warn",
        OutputState::Failed => "bad",
    };
    let tag = match output.state {
        OutputState::Delivered => "tag good",
        OutputState::Waiting | OutputState::SetAside => "tag warn",
        OutputState::Failed => "tag bad",
    };
    html! {
        li class=(class) {
            "To " a href=(operation_path(&output.operation)) { b { (output.operation) } }
            @if !output.transform.is_empty() { ", through " code { (output.transform) } }
            ", " (bytes(output.bytes)) ": " span class=(tag) { (output.state.name()) }
            @if let Some((at_us, answer)) = &output.ended {
                " " span.sub { "after " (span((*at_us - view.received_us).max(0) as f64)) ", " (time(*at_us)) }
                @if !answer.is_empty() { div.sub.break { "answer: " code { (answer) } } }
            }
        }
    }
}

fn bodies_of(state: &ConsoleState, visitor: &Visitor, view: &MessageView) -> Markup {
    if let Some(why) = &view.withheld {
        return html! {
            section.card.stack {
                h2 { "Body" }
                p.note.warn.break { (why) }
                (glass(state, visitor, view, false))
            }
        };
    }
    let shown = &view.raw[..view.raw.len().min(BODY_BYTES_MAX)];
    let received = html! {
        section.card {
            div.head { h2 { "As received" } @if view.masked { span.tag.warn { "patient data is masked" } } }
            (body::segments(shown, view.charset.as_deref()))
            @if view.raw.len() > shown.len() { p.empty { "The first " (bytes(shown.len() as u64)) " are shown; the raw message has all." } }
        }
    };
    html! {
        @if view.outputs.is_empty() { (received) } @else {
            div.grid.c2 {
                (received)
                section.card.stack {
                    h2 { "What the outputs changed" }
                    @for output in &view.outputs {
                        div {
                            p { b { (output.operation) } @if !output.transform.is_empty() { span.sub { " through " (output.transform) } } }
                            (body::differences(&output.differences))
                        }
                    }
                }
            }
        }
        @if view.masked { (glass(state, visitor, view, true)) }
    }
}

/// The form that takes a right for a time, for who may; else the command by which somebody may get it.
fn glass(state: &ConsoleState, visitor: &Visitor, view: &MessageView, unmasked: bool) -> Markup {
    let may = state.may(&visitor.caller, Action::BreakGlass, Object::Node);
    let rights = if unmasked { "unmasked" } else { "message-body" };
    let Some(token) = visitor.form_token().filter(|_| may) else {
        let line = word(&visitor.name).zip(word(&format!("service {}", view.service)));
        return html! {
            div.commands {
                p.sub { "Who may grant rights gives it with:" }
                @if let Some((name, service)) = line { (command(&format!("terrace role grant {rights} --on {service} --to {name}"))) }
            }
        };
    };
    html! {
        details.more.card {
            summary { "Break the glass: see " @if unmasked { "patient data" } @else { "bodies" } " of " (view.service) " for a time" }
            form.fields action={ (message_path(view.id)) "/glass" } method="post" {
                (token_field(&token))
                p.sub { "The right ends by itself. Administrators are alerted, and each message that you read is in the audit with the reason." }
                div.field { label for="reason" { "Why" } input #reason name="reason" required maxlength="500" autocomplete="off"; }
                div.field {
                    label for="minutes" { "For" }
                    select #minutes name="minutes" { @for minutes in GLASS_MINUTES { option value=(minutes) { (minutes) " minutes" } } }
                }
                label { input type="checkbox" name="unmasked" value="yes" checked[unmasked]; "Patient data without the mask" }
                div { button.danger { "Break the glass" } }
            }
        }
    }
}

/// `POST /messages/ID/glass`
pub(crate) async fn break_glass(
    State(state): State<Arc<ConsoleState>>,
    Path(id): Path<u64>,
    form: SignedForm,
) -> Response {
    let SignedForm { visitor, fields } = form;
    let reason = fields.get("reason").unwrap_or_default().to_owned();
    let minutes = fields.get("minutes").and_then(|minutes| minutes.parse().ok());
    let Some(minutes) = minutes.filter(|minutes| GLASS_MINUTES.contains(minutes)) else {
        return refused(&AdminError::Refused(format!("minutes is one of {GLASS_MINUTES:?}")));
    };
    if reason.is_empty() {
        return refused(&AdminError::Refused("a reason is needed".to_owned()));
    }
    // The service is that of the message, as far as the visitor may know of it.
    let view = match state.admin.message(&visitor.caller, id, false).await {
        Ok(view) => view,
        Err(error) => return refused(&error),
    };
    let unmasked = fields.get("unmasked").is_some();
    let request = GlassRequest { service: view.service, unmasked, minutes, reason };
    match state.admin.break_glass(&visitor.caller, &request).await {
        Ok(()) => respond::see(&message_path(id)),
        Err(error) => refused(&error),
    }
}

/// `GET /messages/ID/raw`: the bytes as they are shown to the visitor, as a file.
pub(crate) async fn raw(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(id): Path<u64>) -> Response {
    match state.admin.message(&visitor.caller, id, true).await {
        Ok(MessageView { withheld: Some(why), .. }) => refused(&AdminError::Denied(why)),
        Ok(view) => {
            let mut response = Response::new(Body::from(view.raw));
            let headers = response.headers_mut();
            // Never shown by the browser itself: what is in it was written by others.
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            let file = format!("attachment; filename=\"message-{id}.hl7\"");
            headers.insert(
                CONTENT_DISPOSITION,
                HeaderValue::from_str(&file).unwrap_or(HeaderValue::from_static("attachment")),
            );
            response
        }
        Err(error) => refused(&error),
    }
}

/// How many outputs there are, in words.
pub(super) fn outputs_in_words(number: usize) -> String {
    if number == 1 { "1 output".to_owned() } else { format!("{} outputs", count(number as u64)) }
}
