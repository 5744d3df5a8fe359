//! Alerts: what is on, what is silenced and until when, the rules, what was; a silence is set and ended here, with a reason.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Object};

use super::refused;
use crate::admin::AdminError;
use crate::form::SignedForm;
use crate::format::{age, time};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, table, token_field};
use crate::respond;
use crate::state::ConsoleState;
use crate::watch::{AlertLine, AlertLineState, AlertNoteLine, AlertsView, SilenceAsked, SilenceLine};

/// How long a silence may be, on the page.
const SPANS: [(u32, &str); 5] =
    [(30, "30 minutes"), (120, "2 hours"), (480, "8 hours"), (1_440, "a day"), (10_080, "a week")];

/// `GET /alerts`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    let view = match state.admin.alerts(&visitor.caller).await {
        Ok(view) => view,
        Err(error) => return refused(&error),
    };
    let now_us = state.options.guard.now_us();
    let may = state.may(&visitor.caller, Action::AlertSilence, Object::Node);
    let token = visitor.form_token().filter(|_| may);
    let main = html! {
        div.title { h1 { "Alerts" } }
        section.card {
            h2 { "On now" }
            @if view.rules.is_empty() {
                p.empty { "There are no rules. They are in a file alerts.toml beside terrace.toml, which a reload of the node reads." }
            } @else if view.alerts.is_empty() { p.empty { "Nothing is on." } } @else { (alerts(&view.alerts, now_us)) }
            @for (channel, messages) in &view.waiting {
                p.note.warn { (messages) " messages wait for the channel " b { (channel) } ", which does not take them." }
            }
        }
        section.card {
            h2 { "Silenced" }
            @if view.silences.is_empty() { p.empty { "Nothing is silenced." } } @else { (silences(&view.silences, token.as_deref())) }
        }
        @if let Some(token) = &token { (silence_form(&view, token)) }
        @if !view.rules.is_empty() { section.card { h2 { "Rules" } (rules(&view)) } }
        section.card {
            h2 { "What was" }
            @if view.notes.is_empty() { p.empty { "Nothing yet." } } @else { (notes(&view.notes)) }
        }
        div.commands { (command("terrace alert list")) (command("terrace alert history")) (command("terrace alert test CHANNEL")) }
    };
    respond::page(StatusCode::OK, layout::page(&state, &visitor, ("Alerts", Place::Alerts, Extras::None), "", main))
}

fn alerts(lines: &[AlertLine], now_us: i64) -> Markup {
    let head = html! {
        th scope="col" { "Alert" } th scope="col" { "About" } th scope="col" { "State" } th.num scope="col" { "For" }
        th scope="col" { "What is the matter" } th.wide scope="col" { "Told" }
    };
    let rows = html! {
        @for line in lines {
            @let tag = match line.state {
                AlertLineState::On | AlertLineState::Escalated => "tag bad",
                AlertLineState::Waits | AlertLineState::Silenced => "tag",
            };
            tr {
                td { b { (line.rule) } }
                td.break { (line.subject) }
                td { span class=(tag) { (line.state.name()) } }
                td.num { (age(line.since_us, now_us)) }
                td.break { (line.text) }
                td.wide.break { @if line.told.is_empty() { "-" } @else { (line.told.join(", ")) } }
            }
        }
    };
    table("Alerts that are on", head, rows)
}

fn silences(lines: &[SilenceLine], token: Option<&str>) -> Markup {
    let head = html! {
        th scope="col" { "Alert" } th scope="col" { "About" } th scope="col" { "Until" } th scope="col" { "By" } th scope="col" { "Reason" }
        th scope="col" { span.hidden { "Action" } }
    };
    let rows = html! {
        @for line in lines {
            tr {
                td { (line.rule.as_deref().unwrap_or("all")) }
                td.break { (line.subject.as_deref().unwrap_or("all")) }
                td { (time(line.until_us)) }
                td.break { (line.by) }
                td.break { (line.reason) }
                td.num {
                    @if let Some(token) = token {
                        form action="/alerts/unsilence" method="post" {
                            (token_field(token))
                            input type="hidden" name="number" value=(line.number);
                            button aria-label={ "End silence " (line.number) } { "End" }
                        }
                    }
                }
            }
        }
    };
    table("Silences", head, rows)
}

fn silence_form(view: &AlertsView, token: &str) -> Markup {
    html! {
        section.card.stack {
            h2 { "Tell nobody for a time" }
            form.fields action="/alerts/silence" method="post" {
                (token_field(token))
                div.field {
                    label for="rule" { "Alert" }
                    select #rule name="rule" {
                        option value="" { "all" }
                        @for rule in &view.rules { option value=(rule.name) { (rule.name) } }
                    }
                }
                div.field {
                    label for="subject" { "About " span.sub { "an operation, a service, a tier; empty: all" } }
                    input #subject name="subject" maxlength="200" autocomplete="off" spellcheck="false";
                }
                div.field {
                    label for="minutes" { "For" }
                    select #minutes name="minutes" { @for (minutes, text) in SPANS { option value=(minutes) { (text) } } }
                }
                div.field {
                    label for="reason" { "Reason" }
                    input #reason name="reason" required maxlength="1000" autocomplete="off";
                }
                div { button { "Silence" } }
            }
        }
    }
}

fn rules(view: &AlertsView) -> Markup {
    let head = html! { th scope="col" { "Alert" } th scope="col" { "When" } th scope="col" { "Tells" } };
    let rows = html! {
        @for rule in &view.rules {
            tr { td { b { (rule.name) } } td { code { (rule.when) } } td.break { (rule.channels.join(", ")) } }
        }
    };
    table("Rules", head, rows)
}

fn notes(lines: &[AlertNoteLine]) -> Markup {
    let head = html! {
        th scope="col" { "At" } th scope="col" { "What" } th scope="col" { "Alert" } th scope="col" { "About" } th scope="col" { "More" }
    };
    let rows = html! {
        @for line in lines {
            tr {
                td { (time(line.at_us)) }
                td { (line.what) }
                td { @if line.rule.is_empty() { "all" } @else { (line.rule) } }
                td.break { @if line.subject.is_empty() { "all" } @else { (line.subject) } }
                td.break { (line.text) }
            }
        }
    };
    table("What was", head, rows)
}

/// `POST /alerts/silence`
pub(crate) async fn silence(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let minutes = fields.get("minutes").and_then(|text| text.parse().ok());
    let Some(minutes) = minutes.filter(|minutes| SPANS.iter().any(|(known, _)| known == minutes)) else {
        return refused(&AdminError::Refused("a silence ends after one of the times of the page".to_owned()));
    };
    let asked = SilenceAsked {
        rule: fields.get("rule").map(str::to_owned),
        subject: fields.get("subject").map(str::to_owned),
        minutes,
        reason: fields.get("reason").unwrap_or_default().to_owned(),
    };
    match state.admin.silence_alerts(&visitor.caller, &asked).await {
        Ok(_) => respond::see("/alerts"),
        Err(error) => refused(&error),
    }
}

/// `POST /alerts/unsilence`
pub(crate) async fn unsilence(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let Some(number) = fields.get("number").and_then(|text| text.parse().ok()) else {
        return refused(&AdminError::Refused("the number of a silence is missing".to_owned()));
    };
    match state.admin.unsilence_alerts(&visitor.caller, number).await {
        Ok(()) => respond::see("/alerts"),
        Err(error) => refused(&error),
    }
}

/// `GET /api/v1/alerts`
pub(crate) async fn as_json(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    match state.admin.alerts(&visitor.caller).await {
        Ok(view) => respond::json_of(&view),
        Err(error) => refused(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_and_silenced_is_shown_escaped_and_ended_only_by_who_may() {
        let hostile = "<script>alert(1)</script>".to_owned();
        let line = AlertLine {
            rule: "old".to_owned(),
            subject: hostile.clone(),
            text: hostile.clone(),
            ..AlertLine::default()
        };
        let text = alerts(&[line], 5_000_000).into_string();
        assert!(!text.contains("<script>") && text.contains("waits"), "{text}");
        let silence = SilenceLine { number: 7, reason: hostile, ..SilenceLine::default() };
        let lines = std::slice::from_ref(&silence);
        let (with, without) = (silences(lines, Some("t")), silences(lines, None));
        assert!(with.into_string().contains("End silence 7"));
        let without = without.into_string();
        assert!(!without.contains("form") && !without.contains("<script>"), "{without}");
    }
}
