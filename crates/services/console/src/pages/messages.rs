//! Messages: one box, chips, and pages of 50 by key: never an offset, never a total.
//!
//! ```text
//!   one word  --> message of that id, then of that control id, then of that patient: each by its index
//!   names, chips --> the list, page by page from the newest back
//!   more words --> full-text search, where the visitor may read and see everything
//! ```

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::Action;

use super::messages_fields::{MessagesFields, PAGE_LINES, place_text};
use super::{refused, saved, tail, transfer};
use crate::address::{in_query, message_path, target};
use crate::admin::{AdminError, FoundPage, MessageLine, MessagePage, MessageQuery, OutputState};
use crate::form::Fields;
use crate::format::{bytes, count, span, time, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, denied, table};
use crate::query_text::{self, Asked, STATES};
use crate::respond;
use crate::state::ConsoleState;

/// Whether the table has all of its columns.
pub(super) const SHOWN_FEW: bool = false;
const SHOWN_ALL: bool = true;

/// What was found.
enum Found {
    /// A page of the list.
    Page(MessagePage),
    /// Of one word: what each index has, and what could not be looked at.
    Word(Vec<MessageLine>, Vec<String>),
    /// By full-text search.
    Text(FoundPage),
}

async fn find(state: &ConsoleState, visitor: &Visitor, asked: &Asked) -> Result<Found, AdminError> {
    let (admin, caller) = (&state.admin, &visitor.caller);
    if let Some(text) = &asked.text {
        return admin.search(caller, text).await.map(Found::Text);
    }
    if let Some(id) = asked.id {
        return by_word(state, visitor, &id.to_string(), false).await;
    }
    match &asked.word {
        Some(word) => by_word(state, visitor, word, true).await,
        None => admin.messages(caller, &asked.query).await.map(Found::Page),
    }
}

/// Looks a word up: as a message's id, and as a control id and a number of a patient.
async fn by_word(state: &ConsoleState, visitor: &Visitor, word: &str, as_keys: bool) -> Result<Found, AdminError> {
    let (admin, caller) = (&state.admin, &visitor.caller);
    let (mut lines, mut left_out) = (Vec::new(), Vec::new());
    if let Ok(id) = word.parse::<u64>() {
        match admin.message(caller, id, false).await {
            Ok(view) => lines.push(line_of(&view)),
            Err(AdminError::Absent(_) | AdminError::Denied(_)) => {}
            Err(error) => return Err(error),
        }
    }
    if as_keys {
        let limit = PAGE_LINES;
        let control = MessageQuery { control_id: Some(word.to_owned()), limit, ..MessageQuery::default() };
        let mrn = MessageQuery { mrn: Some(word.to_owned()), limit, ..MessageQuery::default() };
        for (what, query) in [("control ids", control), ("numbers of patients", mrn)] {
            match admin.messages(caller, &query).await {
                Ok(page) => lines.extend(page.lines),
                Err(AdminError::Denied(why) | AdminError::Refused(why)) => {
                    left_out.push(format!("Not looked up among {what}: {why}"))
                }
                Err(error) => return Err(error),
            }
        }
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.id));
    lines.dedup_by_key(|line| line.id);
    lines.truncate(PAGE_LINES);
    Ok(Found::Word(lines, left_out))
}

/// A message that was shown, as a line.
fn line_of(view: &crate::admin::MessageView) -> MessageLine {
    MessageLine {
        id: view.id,
        received_us: view.received_us,
        service: view.service.clone(),
        status: view.status.clone(),
        duplicate: view.duplicate,
        resent_from: view.resent_from,
        bytes: view.bytes,
        outputs: view.outputs.iter().map(|output| (output.operation.clone(), output.state)).collect(),
        ..MessageLine::default()
    }
}

/// `GET /messages`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    if !state.may_some(&visitor.caller, Action::MessageMetadata) {
        return refused(&AdminError::Denied("permission denied: message-metadata is not allowed".to_owned()));
    }
    let asked_for = MessagesFields::of(&fields);
    let now_us = state.options.guard.now_us();
    let (asked, found) = match asked_for.wanted(now_us) {
        Err(why) => (None, Err(AdminError::Refused(why))),
        Ok(asked) => {
            let found = find(&state, &visitor, &asked).await;
            (Some(asked), found)
        }
    };
    let status = match &found {
        Ok(_) => StatusCode::OK,
        Err(AdminError::Denied(_)) => StatusCode::FORBIDDEN,
        Err(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    // Without them the page is whole, too.
    let saved = state.admin.saved_searches(&visitor.caller).await.unwrap_or_default();
    let main = html! {
        div.title { h1 { "Messages" } (actions(&state, &visitor, &found, &asked_for)) }
        (filters(&state, &visitor, &asked_for))
        div.row { (tail::link(&state, &visitor, &asked_for.service, &asked_for.to)) (saved::saved(&visitor, &saved, &asked_for)) }
        section.card {
            @match &found {
                Ok(found) => { (results(found, &asked_for)) }
                Err(error) => { p.note.warn role="alert" { (error) } }
            }
        }
        @if let Some(asked) = &asked { (commands(asked)) }
    };
    let extras = ("Messages", Place::Messages, Extras::None);
    respond::page(status, layout::page(&state, &visitor, extras, &asked_for.q, main))
}

/// What can be done with the messages of a list.
fn actions(
    state: &ConsoleState,
    visitor: &Visitor,
    found: &Result<Found, AdminError>,
    fields: &MessagesFields,
) -> Markup {
    let Ok(Found::Page(page)) = found else { return html! {} };
    let may_resend = state.may_some(&visitor.caller, Action::MessageResend) && visitor.secret.is_some();
    let is_search = fields.pairs().iter().any(|(_, value)| !value.is_empty());
    let can_reprocess = matches!(fields.state.as_str(), "errored" | "unmatched" | "rejected" | "dropped")
        && fields.q.is_empty()
        && fields.to.is_empty();
    html! {
        @if !page.lines.is_empty() {
            div.act {
                @if may_resend && can_reprocess {
                    a.button href=(target("/reprocess", &[("status", &fields.state), ("service", &fields.service), ("since", &fields.since)])) { "Reprocess these" }
                } @else if may_resend && is_search { a.button href=(fields.address("/resend")) { "Resend these" } }
                a.button href=(fields.address("/messages.csv")) download { "CSV" }
                (transfer::buttons(state, visitor, fields))
            }
        }
    }
}

fn filters(state: &ConsoleState, visitor: &Visitor, fields: &MessagesFields) -> Markup {
    let snapshot = state.snapshot.borrow().clone().filter(|_| state.sees_node(&visitor.caller));
    let names = |all: Vec<String>, own: &str| {
        let mut all = all;
        if !own.is_empty() && !all.iter().any(|name| name == own) {
            all.push(own.to_owned());
        }
        all
    };
    let (services, operations) = snapshot.as_ref().map_or_else(Default::default, |snapshot| {
        let services = snapshot.figures.services.iter().map(|one| one.name.clone()).collect();
        let operations: Vec<String> = snapshot.figures.operations.iter().map(|one| one.name.clone()).collect();
        (services, operations)
    });
    let choice = |id: &'static str, label: &str, any: &str, names: Vec<String>, own: &str| {
        html! {
            div.field {
                label for=(id) { (label) }
                select id=(id) name=(id) {
                    option value="" { (any) }
                    @for name in names { option value=(name) selected[name == own] { (name) } }
                }
            }
        }
    };
    html! {
        section.card.stack {
            form.filters action="/messages" method="get" {
                div.field.grow {
                    label for="query" { "Find" }
                    input #query name="q" value=(fields.q) autocomplete="off" spellcheck="false" maxlength=(query_text::TEXT_BYTES_MAX) placeholder="4711, MSG0007713, PID-8=F, state:failed to:lab since:2h, \"chest pain\"";
                }
                (choice("service", "Service", "all", names(services, &fields.service), &fields.service))
                (choice("to", "Operation", "all", names(operations, &fields.to), &fields.to))
                (choice("since", "Received", "at any time", ["15m", "1h", "24h", "7d"].map(str::to_owned).to_vec(), &fields.since))
                @if !fields.state.is_empty() { input type="hidden" name="state" value=(fields.state); }
                button.main { "Find" }
            }
            nav.chips aria-label="States" {
                a.chip href=(fields.with("state", "")) aria-current=[fields.state.is_empty().then_some("true")] { "all" }
                @for state in STATES {
                    a.chip href=(fields.with("state", state)) aria-current=[(fields.state == state).then_some("true")] { (state) }
                }
            }
        }
    }
}

fn results(found: &Found, fields: &MessagesFields) -> Markup {
    match found {
        Found::Page(page) => html! {
            @if page.lines.is_empty() { p.empty { @if page.next.is_some() { "None among those looked at." } @else { "No message matches." } } }
            @else { (lines_table("Messages", &page.lines, SHOWN_ALL)) }
            (pager(page, fields))
        },
        Found::Word(lines, left_out) => html! {
            @if lines.is_empty() { p.empty { "No message has this id, control id or number of a patient." } }
            @else {
                div.head { h2 { (count(lines.len() as u64)) @if lines.len() == PAGE_LINES { " newest" } " found" } }
                (lines_table("Messages found", lines, SHOWN_ALL))
            }
            @for why in left_out { (denied(why)) }
        },
        Found::Text(page) => text_results(page),
    }
}

fn pager(page: &MessagePage, fields: &MessagesFields) -> Markup {
    if page.next.is_none() && fields.before.is_empty() {
        return html! {};
    }
    html! {
        nav.pager.empty aria-label="Pages of the list" {
            @if !fields.before.is_empty() { a.button href=(fields.with("before", "")) { "Newest" } }
            @if let Some(next) = page.next {
                a.button rel="next" href={ (join(&fields.with("before", ""))) "before=" (in_query(&place_text(next))) } {
                    @if page.is_partial { "Go on looking" } @else { "Older" }
                }
            }
            @if page.is_partial {
                span.sub { (count(page.looked_at)) " messages were looked at. A service, an operation or a state makes it faster." }
            }
        }
    }
}

/// An address to which a pair can be added.
fn join(address: &str) -> String {
    format!("{address}{}", if address.contains('?') { "&" } else { "?" })
}

fn text_results(page: &FoundPage) -> Markup {
    let head = html! {
        th.num scope="col" { "Id" } th scope="col" { "Received" } th.wide scope="col" { "Service" } th scope="col" { "Type" }
        th scope="col" { "Patient" } th scope="col" { "Decision" }
    };
    let rows = html! {
        @for (at, one) in page.lines.iter().enumerate() {
            tr {
                td.num { a href=(message_path(one.line.id)) autofocus[at == 0] { (one.line.id) } }
                @if let Some(why) = &one.line.damaged { td.bad colspan="5" { "cannot be read: " (why) } } @else {
                    td { (time(one.line.received_us)) }
                    td.wide { (one.line.service) }
                    td { (one.line.kind) }
                    td { (one.name) " " span.dim { (one.mrn.join(" ")) } }
                    td { (one.line.status) }
                }
            }
        }
    };
    html! {
        div.head {
            h2 { (count(page.total)) @if !page.total_is_exact { " or more" } " contain it" }
            span.sub { "found in " (span(page.took_us as f64)) }
        }
        @if page.is_behind { p.note.warn { "The newest messages are not indexed yet: search again in a moment." } }
        @if page.lines.is_empty() { p.empty { "No message contains it." } } @else { (table("Messages found", head, rows)) }
    }
}

/// The outputs of a line, those that need somebody first.
fn outputs(line: &MessageLine) -> Markup {
    let of = |state: OutputState| line.outputs.iter().filter(move |(_, found)| *found == state);
    let names = |state| of(state).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let delivered = of(OutputState::Delivered).count();
    html! {
        @if line.outputs.is_empty() { span.dim { "none" } }
        @if of(OutputState::Failed).next().is_some() { span.tag.bad { "failed" } " " (names(OutputState::Failed)) " " }
        @if of(OutputState::SetAside).next().is_some() { span.tag.warn { "set aside" } " " (names(OutputState::SetAside)) " " }
        @if of(OutputState::Waiting).next().is_some() { span.tag.warn { "waiting" } " " (names(OutputState::Waiting)) " " }
        @if delivered > 0 { span.dim { (delivered) " delivered" } }
    }
}

/// A decision, as a tag.
pub(super) fn status_tag(status: &str) -> Markup {
    let class = match status {
        "routed" => "tag good",
        "errored" | "rejected" => "tag bad",
        "unmatched" => "tag warn",
        _ => "tag",
    };
    html! { span class=(class) { (status) } }
}

/// Lines as a table; the first link has the focus of a page that answers a search.
pub(super) fn lines_table(label: &str, lines: &[MessageLine], all: bool) -> Markup {
    // What was read without bodies has no type and no control id.
    let keyed = lines.iter().any(|line| !line.kind.is_empty() || !line.control_id.is_empty());
    let head = html! {
        th.num scope="col" { "Id" } th scope="col" { "Received" } th scope="col" { "Service" }
        @if keyed { th scope="col" { "Type" } th.wide scope="col" { "Control id" } }
        @if all { th.num.wide scope="col" { "Size" } }
        th scope="col" { "Decision" } th scope="col" { "Outputs" }
    };
    let rows = html! {
        @for (at, line) in lines.iter().enumerate() {
            tr {
                td.num { a href=(message_path(line.id)) autofocus[all && at == 0] { (line.id) } }
                @if let Some(why) = &line.damaged { td.bad colspan="7" { "cannot be read: " (why) } } @else {
                    td { (time(line.received_us)) }
                    td { (line.service) }
                    @if keyed { td.nowrap { (line.kind) } td.wide.break { code { (line.control_id) } } }
                    @if all { td.num.wide.nowrap { (bytes(line.bytes)) } }
                    td.nowrap {
                        (status_tag(&line.status))
                        @if line.duplicate { " " span.tag { "duplicate" } }
                        @if let Some(origin) = line.resent_from { " " a.tag href=(message_path(origin)) { "resent from " (origin) } }
                    }
                    td { (outputs(line)) }
                }
            }
        }
    };
    table(label, head, rows)
}

fn commands(asked: &Asked) -> Markup {
    let query = &asked.query;
    if let Some(text) = &asked.text {
        return match word(text) {
            Some(text) => html! { (command(&format!("terrace message search {text}"))) },
            None => html! {},
        };
    }
    let mut line = format!("terrace message list --last {PAGE_LINES}");
    let output = query.output.map(|output| output.name().to_owned());
    let options = [
        ("--service", &query.service),
        ("--interface", &query.interface),
        ("--status", &query.status),
        ("--output", &output),
        ("--control", &query.control_id),
        ("--mrn", &query.mrn),
        ("--type", &query.kind),
    ];
    for (name, value) in options {
        match value.as_deref().map(word) {
            None => {}
            Some(Some(value)) => line.push_str(&format!(" {name} {value}")),
            Some(None) => return html! {},
        }
    }
    html! { (command(&line)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_a_line_is_escaped() {
        let evil = "<script>alert(1)</script>";
        let line = MessageLine {
            service: evil.into(),
            kind: evil.into(),
            control_id: evil.into(),
            status: evil.into(),
            outputs: vec![(evil.into(), OutputState::Failed)],
            ..MessageLine::default()
        };
        let text = lines_table("x", &[line], SHOWN_ALL).into_string();
        assert!(!text.contains("<script") && text.matches("&lt;script&gt;").count() == 5, "{text}");
    }
}
