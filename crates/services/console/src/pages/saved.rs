//! Saved searches of messages: each user's own, by name, in the store; and a list of messages as CSV, without bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::messages_fields::MessagesFields;
use super::refused;
use super::reprocess::is_over;
use super::sql::csv_file;
use crate::admin::{AdminError, MessageLine, SavedSearch};
use crate::csv;
use crate::form::{Fields, SignedForm};
use crate::format::{count, time_text};
use crate::gate::Visitor;
use crate::layout::token_field;
use crate::respond;
use crate::state::ConsoleState;

/// Lines of a file at most, and of a page of it.
const FILE_LINES: usize = 10_000;
const PAGE_LINES: usize = 1_000;

/// How long a file may take.
const FILE_TIME: Duration = Duration::from_secs(30);

/// The address that all saved searches have before their own query.
const MESSAGES: &str = "/messages";

/// The saved searches as chips, and the form that saves the one of the page.
pub(super) fn saved(visitor: &Visitor, all: &[SavedSearch], search: &MessagesFields) -> Markup {
    let Some(token) = visitor.form_token() else { return html! {} };
    let here = search.address(MESSAGES);
    let is_saved = all.iter().find(|one| one.target == here);
    let is_search = here != MESSAGES;
    html! {
        @if !all.is_empty() {
            nav.chips aria-label="Saved searches" {
                span.dim { "Saved" }
                @for one in all { a.chip href=(one.target) aria-current=[(one.target == here).then_some("true")] { (one.name) } }
            }
        }
        @match is_saved {
            Some(one) => {
                form.inline action="/messages/saved" method="post" {
                    (token_field(&token))
                    input type="hidden" name="name" value=(one.name);
                    input type="hidden" name="act" value="forget";
                    button.quiet { "Forget \u{201c}" (one.name) "\u{201d}" }
                }
            }
            None if is_search => {
                details.more {
                    summary { "Save this search" }
                    form.inline action="/messages/saved" method="post" {
                        (token_field(&token))
                        label.hidden for="name" { "Name of the search" }
                        input #name name="name" required maxlength=(SavedSearch::NAME_BYTES_MAX) autocomplete="off" placeholder="failed at the laboratory";
                        (search_fields(search))
                        button { "Save" }
                    }
                }
            }
            None => {}
        }
    }
}

/// The fields of a search, hidden in a form.
fn search_fields(search: &MessagesFields) -> Markup {
    html! { @for (name, value) in search.pairs() { @if !value.is_empty() { input type="hidden" name={ "search-" (name) } value=(value); } } }
}

/// `POST /messages/saved`
pub(crate) async fn change(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let name = fields.get("name").unwrap_or_default();
    if name.is_empty() || name.len() > SavedSearch::NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let text = format!("the name of a search has 1 to {} bytes, on one line", SavedSearch::NAME_BYTES_MAX);
        return refused(&AdminError::Refused(text));
    }
    if fields.get("act") == Some("forget") {
        return match state.admin.save_search(&visitor.caller, name, None).await {
            Ok(()) => respond::see(MESSAGES),
            Err(error) => refused(&error),
        };
    }
    // The address is made here of the fields, so that a saved search leads to the page of messages and nowhere else.
    let own = fields.0.iter().filter_map(|(key, value)| Some((key.strip_prefix("search-")?.to_owned(), value.clone())));
    let search = MessagesFields::of(&Fields(own.collect()));
    let target = search.address(MESSAGES);
    if target.len() > SavedSearch::TARGET_BYTES_MAX {
        let text = format!("a saved search has {} bytes at most", SavedSearch::TARGET_BYTES_MAX);
        return refused(&AdminError::Refused(text));
    }
    match state.admin.save_search(&visitor.caller, name, Some(&target)).await {
        Ok(()) => respond::see(&target),
        Err(error) => refused(&error),
    }
}

/// `GET /messages.csv`: all lines of the search, or none.
pub(crate) async fn file(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let asked = MessagesFields::of(&fields).wanted(state.options.guard.now_us());
    let asked = match asked {
        Ok(asked) if asked.text.is_none() && asked.word.is_none() && asked.id.is_none() => asked,
        Ok(_) => {
            let text = "a file is of a list: search by state, operation, service, type, number or time";
            return refused(&AdminError::Refused(text.to_owned()));
        }
        Err(why) => return refused(&AdminError::Refused(why)),
    };
    let _place = match state.long_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let (mut query, mut out, mut lines) = (asked.query, String::new(), 0);
    query.limit = PAGE_LINES;
    let begun_ms = state.now_ms();
    let names =
        ["id", "received", "service", "type", "control id", "bytes", "decision", "duplicate", "made from", "outputs"];
    csv::line(&mut out, names.into_iter().map(Some));
    loop {
        let page = match state.admin.messages(&visitor.caller, &query).await {
            Ok(page) => page,
            Err(error) => return refused(&error),
        };
        lines += page.lines.len();
        page.lines.iter().for_each(|line| write(&mut out, line));
        if lines > FILE_LINES || (page.next.is_some() && is_over(&state, begun_ms, FILE_TIME)) {
            let text = format!(
                "there are more than {} messages, or looking for them takes too long, and a file has all of them: narrow the search",
                count(FILE_LINES as u64)
            );
            return refused(&AdminError::Refused(text));
        }
        match page.next {
            Some(next) => query.before = Some(next),
            None => return csv_file(out, "messages.csv"),
        }
    }
}

fn write(out: &mut String, line: &MessageLine) {
    let id = line.id.to_string();
    if let Some(why) = &line.damaged {
        return csv::line(out, [id.as_str(), "", "", "", "", "", "damaged", "", "", why].into_iter().map(Some));
    }
    let outputs: Vec<String> = line.outputs.iter().map(|(name, state)| format!("{name}: {}", state.name())).collect();
    let (received, bytes, outputs) = (time_text(line.received_us), line.bytes.to_string(), outputs.join(", "));
    let origin = line.resent_from.map(|id| id.to_string());
    let duplicate = if line.duplicate { "yes" } else { "no" };
    let cells = [
        Some(id.as_str()),
        Some(&received),
        Some(&line.service),
        Some(&line.kind),
        Some(&line.control_id),
        Some(&bytes),
        Some(&line.status),
        Some(duplicate),
        origin.as_deref(),
        Some(&outputs),
    ];
    csv::line(out, cells.into_iter());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::OutputState;

    #[test]
    fn a_line_of_a_file_has_no_formula_and_no_body() {
        let line = MessageLine {
            id: 7,
            service: "adt".into(),
            kind: "ADT^A01".into(),
            control_id: "=cmd|' /C calc'!A0".into(),
            status: "routed".into(),
            outputs: vec![("a".into(), OutputState::Failed), ("b".into(), OutputState::Delivered)],
            ..MessageLine::default()
        };
        let mut out = String::new();
        write(&mut out, &line);
        assert!(out.contains(",adt,ADT^A01,'=cmd|' /C calc'!A0,0,routed,no,,\"a: failed, b: delivered\"\r\n"), "{out}");
    }
}
