//! Operation: its state in words, its figures, the head of its queue, and what suspends and resumes it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::messages::{SHOWN_FEW, lines_table};
use super::operation_table::{dot, switch_form};
use super::past::{self, PastFigure};
use super::production::card;
use super::set_aside;
use super::{no_figures, not_yet, refused, tail};
use crate::address::{operation_path, target};
use crate::admin::{AdminError, OperationFigures, OperationState};
use crate::form::{Fields, SignedForm};
use crate::format::{age, bytes, count, rate, sentence, time, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, denied};
use crate::rates::OperationRates;
use crate::respond;
use crate::state::ConsoleState;

/// `GET /operations/NAME`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(name): Path<String>,
    fields: Fields,
) -> Response {
    if !state.sees_node(&visitor.caller) {
        return no_figures();
    }
    let Some(snapshot) = state.figures().await else { return not_yet() };
    let found = snapshot.figures.operations.iter().find(|one| one.name == name);
    let Some(one) = found else {
        return refused(&AdminError::Absent(format!("the production has no operation {name}")));
    };
    let rates = snapshot.rates.operations.get(&name).copied();
    let queue = state.admin.queue(&visitor.caller, &name).await;
    let now_us = snapshot.figures.at_us;
    let place = (operation_path(&one.name), past::range_of(&fields));
    let shown = past_figures(&one.name);
    let past = past::section(&state, &visitor, (&place.0, place.1), |_| shown).await;
    let main = html! {
        div.title {
            h1 { "Operation " (one.name) }
            span.tag { (one.kind) } @if one.tls { span.tag { "TLS" } }
            div.act {
                (tail::link(&state, &visitor, "", &one.name))
                (switch_form(&state, &visitor, one, &operation_path(&one.name)))
            }
        }
        (set_aside::outcome_note(&fields))
        (state_banner(one, now_us))
        (figures(one, rates, now_us))
        (past)
        section.card {
            div.head {
                h2 { "Head of the queue" }
                @if one.waiting > 0 { a href=(target("/messages", &[("state", "waiting"), ("to", &one.name)])) { "All that wait" } }
            }
            @match &queue {
                Ok(lines) if lines.is_empty() => { p.empty { "Nothing waits." } }
                Ok(lines) => { (lines_table("Head of the queue", lines, SHOWN_FEW)) }
                Err(why) => { (denied(&why.to_string())) }
            }
        }
        (set_aside::form(&state, &visitor, one, queue.as_deref().unwrap_or_default()))
        (commands(one))
    };
    let page = layout::page(&state, &visitor, (&one.name, Place::Production, Extras::None), "", main);
    respond::page(StatusCode::OK, page)
}

/// The figures of an operation whose history is on its page.
fn past_figures(name: &str) -> Vec<PastFigure> {
    [("waiting", "Waiting"), ("oldest", "Age of the oldest")]
        .map(|(series, title)| PastFigure::new(format!("{series}.{name}"), title))
        .to_vec()
}

fn state_banner(one: &OperationFigures, now_us: i64) -> Markup {
    let (class, text) = match one.state {
        OperationState::Running if one.waiting == 0 => ("", "It sends what comes. Nothing waits."),
        OperationState::Running => ("", "It sends what waits, in order."),
        OperationState::Suspended => ("warn", "It sends nothing until it is resumed. Resuming also means: try now."),
        OperationState::Ending => ("warn", "The production has it no more. It sends what waits, and then ends."),
        OperationState::Broken => (
            "bad",
            "A programming error has stopped it. The node's log has the text; it goes on after terrace stop and terrace serve.",
        ),
    };
    html! {
        div class={ "banner " (class) } role="status" {
            div {
                span class={ "dot " (dot(one)) } {}
                b { (one.state.name()) }
                @if let Some((at_us, why)) = one.since.as_ref().filter(|_| one.state == OperationState::Suspended) {
                    " since " (time(*at_us)) " (" (age(*at_us, now_us)) "): " span.break { (why) }
                }
                ". " (text)
                @if !one.cause.is_empty() && one.state != OperationState::Suspended { " " span.break { (sentence(&one.cause)) } "." }
            }
        }
    }
}

fn figures(one: &OperationFigures, rates: Option<OperationRates>, now_us: i64) -> Markup {
    let of = |pick: fn(OperationRates) -> f64| rate(rates.map(pick));
    html! {
        div.grid.c4 {
            (card("Waiting", html! { (count(one.waiting)) }, match one.oldest {
                Some((id, since)) => html! { "oldest " (age(since, now_us)) ", message " (id) },
                None => html! { "nothing waits" },
            }))
            (card("Delivered", html! { (of(|rates| rates.delivered)) small { " /s" } }, html! { (count(one.delivered)) " since the start" }))
            (card("Tried again", html! { (of(|rates| rates.retried)) small { " /s" } }, html! { (count(one.retried)) " since the start" }))
            (card("Given up", html! { span.bad[one.failed > 0] { (count(one.failed)) } }, html! { "since the start, " (of(|rates| rates.failed)) " /s" }))
        }
        section.card {
            h2 { "Facts" }
            dl.facts {
                div { dt { "Sends to" } dd { code { (one.to) } } }
                div { dt { "Lanes" } dd { (count(one.lanes)) } }
                div { dt { "Bodies in memory" } dd { (bytes(one.memory_bytes)) } }
            }
        }
    }
}

fn commands(one: &OperationFigures) -> Markup {
    let Some(name) = word(&one.name) else { return html! {} };
    let verb = if one.state == OperationState::Suspended { "resume" } else { "suspend" };
    html! {
        div.commands {
            (command(&format!("terrace operation {verb} {name}")))
            (command(&format!("terrace operation set-aside {name} --reason 'why'")))
            (command(&format!("terrace message list --interface {name} --output waiting --last 20")))
        }
    }
}

/// `POST /operations/NAME/suspend`
pub(crate) async fn suspend(
    State(state): State<Arc<ConsoleState>>,
    Path(name): Path<String>,
    form: SignedForm,
) -> Response {
    switch(&state, &name, true, form).await
}

/// `POST /operations/NAME/resume`
pub(crate) async fn resume(
    State(state): State<Arc<ConsoleState>>,
    Path(name): Path<String>,
    form: SignedForm,
) -> Response {
    switch(&state, &name, false, form).await
}

async fn switch(state: &Arc<ConsoleState>, name: &str, suspended: bool, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    match state.admin.set_suspended(&visitor.caller, name, suspended).await {
        Ok(()) => {
            wait_for(state, name, suspended).await;
            // Back to one of two pages.
            respond::see(if fields.get("back") == Some("/") { "/".to_owned() } else { operation_path(name) }.as_str())
        }
        Err(error) => refused(&error),
    }
}

/// Waits until the figures show it, a little more than a second: the next page should say what was done.
async fn wait_for(state: &Arc<ConsoleState>, name: &str, suspended: bool) {
    let mut newest = state.snapshot.clone();
    let shows = |snapshot: &Option<Arc<crate::ticker::Snapshot>>| {
        let operations = snapshot.iter().flat_map(|snapshot| &snapshot.figures.operations);
        let mut found = operations.filter(|one| one.name == name);
        found.any(|one| (one.state == OperationState::Suspended) == suspended)
    };
    // In time or not: it is done.
    let _ = tokio::time::timeout(std::time::Duration::from_millis(1_500), newest.wait_for(shows)).await;
}
