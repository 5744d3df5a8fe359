//! Reprocess: stored messages are decided on anew with the production in force. First a preview of what would go where, then once.
//!
//! ```text
//!   GET  /messages/ID/reprocess, /reprocess?status=errored   preview: outcome of each, outputs by operation    nothing is stored or sent
//!   POST the same, with the key of the preview               as many as were previewed, page by page, in their order
//! ```
//!
//! The form names the generation of the production that its preview was by: where another one was loaded meanwhile, nothing is done.
//!
//! The key is in the record of each message that is made, so that a form that is sent twice makes nothing twice, also across a restart.
//! A search is bounded in messages and in time; what is left over, the same form with the same key goes on with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Caller};

use super::refused;
use crate::address::{message_path, operation_path};
use crate::admin::AdminError;
use crate::form::{Fields, SignedForm};
use crate::format::{count, moment, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, table, token_field};
use crate::operator::{ReprocessFilter, ReprocessLine, ReprocessOrder};
use crate::respond;
use crate::secret;
use crate::state::ConsoleState;

/// Messages of one search at most.
pub(crate) const SEARCH_MAX: usize = 1_000;

/// How long a preview of a search may take, and how long the work on one.
const PREVIEW_TIME: Duration = Duration::from_secs(8);
const WORK_TIME: Duration = Duration::from_secs(40);

/// Messages that a page lists, and reasons.
const LINES_SHOWN: usize = 50;
const REASONS_SHOWN: usize = 20;

/// Decisions that a search may be for.
const STATUSES: [&str; 4] = ["errored", "unmatched", "rejected", "dropped"];

/// Which messages, as the fields of a page have it.
#[derive(Debug, Clone, Default)]
struct SearchFields {
    status: String,
    service: String,
    since: String,
    /// The moment of the preview, microseconds since 1970: what came in later is not meant.
    until: Option<i64>,
}

impl SearchFields {
    fn of(fields: &Fields, now_us: i64) -> SearchFields {
        let text = |name| fields.get(name).unwrap_or_default().to_owned();
        let until = fields.get("until").and_then(|text| text.parse().ok());
        SearchFields {
            status: text("status"),
            service: text("service"),
            since: text("since"),
            until: until.or(Some(now_us)),
        }
    }

    /// Errors: the text for who asked.
    fn filter(&self, now_us: i64) -> Result<ReprocessFilter, AdminError> {
        if !STATUSES.contains(&self.status.as_str()) {
            let text = format!("a search is for one of {}; others are named one by one", STATUSES.join(", "));
            return Err(AdminError::Refused(text));
        }
        let since_us = match self.since.as_str() {
            "" => None,
            text => Some(
                moment(text, now_us)
                    .ok_or_else(|| AdminError::Refused(format!("`{text}` is neither a time nor an age as 2h")))?,
            ),
        };
        let service = (!self.service.is_empty()).then(|| self.service.clone());
        Ok(ReprocessFilter { status: self.status.clone(), service, since_us, until_us: self.until })
    }
}

/// What several pages did together.
#[derive(Debug, Default)]
pub(crate) struct Together {
    pub(crate) lines: Vec<ReprocessLine>,
    /// Whether there are more that match.
    pub(crate) is_partial: bool,
    /// Why it ended early, if it did.
    pub(crate) stopped: Option<String>,
    /// The generation of the production that decided.
    pub(crate) generation: u32,
}

/// What a run has of its preview.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReprocessRun<'a> {
    /// The key.
    key: &'a str,
    /// The generation of the production that it was by.
    generation: u32,
}

impl<'a> ReprocessRun<'a> {
    fn of(fields: &'a Fields) -> Result<ReprocessRun<'a>, AdminError> {
        let generation = fields.get("generation").and_then(|number| number.parse().ok());
        match (fields.get("key"), generation) {
            (Some(key), Some(generation)) => Ok(ReprocessRun { key, generation }),
            _ => Err(AdminError::Refused("the form is none of a preview: begin there".to_owned())),
        }
    }

    /// Its fields, hidden in a form.
    fn fields(self) -> Markup {
        html! {
            input type="hidden" name="key" value=(self.key);
            input type="hidden" name="generation" value=(self.generation);
        }
    }
}

impl Together {
    fn outcomes(&self) -> BTreeMap<&str, u64> {
        let mut found = BTreeMap::new();
        self.lines.iter().for_each(|line| *found.entry(&*line.outcome).or_default() += 1);
        found
    }

    fn operations(&self) -> BTreeMap<&str, u64> {
        let mut found = BTreeMap::new();
        let routed = self.lines.iter().filter(|line| line.outcome == "routed");
        routed.flat_map(|line| &line.operations).for_each(|name| *found.entry(&**name).or_default() += 1);
        found
    }

    /// Why something is not sent on: how often, and the first message.
    fn reasons(&self) -> BTreeMap<(&str, &str), (u64, u64)> {
        let mut found: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| !line.is_made() && line.outcome != "already") {
            found.entry((&line.outcome, &line.reason)).or_insert((0, line.id)).0 += 1;
        }
        found
    }
}

/// Whether work that began at `begun_ms` has taken its time.
pub(super) fn is_over(state: &ConsoleState, begun_ms: u64, time: Duration) -> bool {
    u128::from(state.now_ms().saturating_sub(begun_ms)) > time.as_millis()
}

/// Decides on the messages of a search, or tells what would become of them: `most` at most, as far as `time` goes.
pub(crate) async fn search(
    state: &ConsoleState,
    caller: &Caller,
    (filter, run): (&ReprocessFilter, Option<ReprocessRun<'_>>),
    (most, time): (usize, Duration),
) -> Result<Together, AdminError> {
    let (mut all, mut after, begun) = (Together::default(), 0, state.now_ms());
    let mut generation = run.map(|run| run.generation);
    loop {
        let order = ReprocessOrder {
            search: Some(filter.clone()),
            after,
            limit: (most - all.lines.len()).min(100),
            key: run.map(|run| run.key.to_owned()),
            preview: run.is_none(),
            generation,
            ..ReprocessOrder::default()
        };
        let page = match state.admin.reprocess(caller, &order).await {
            Ok(page) => page,
            Err(error) if all.lines.is_empty() => return Err(error),
            Err(error) => {
                (all.stopped, all.is_partial) = (Some(error.to_string()), true);
                return Ok(all);
            }
        };
        // All pages of a preview are by the generation of the first.
        all.generation = *generation.get_or_insert(page.generation);
        all.lines.extend(page.results);
        all.stopped = page.stopped;
        match page.next {
            None => return Ok(all),
            Some(next) => after = next,
        }
        if all.stopped.is_some() || all.lines.len() >= most || is_over(state, begun, time) {
            all.is_partial = true;
            return Ok(all);
        }
    }
}

/// What would become of one message, or becomes of it in a run; and the generation that decided.
async fn one(
    state: &ConsoleState,
    caller: &Caller,
    id: u64,
    run: Option<ReprocessRun<'_>>,
) -> Result<(ReprocessLine, u32), AdminError> {
    let order = ReprocessOrder {
        ids: vec![id],
        key: run.map(|run| run.key.to_owned()),
        preview: run.is_none(),
        generation: run.map(|run| run.generation),
        ..ReprocessOrder::default()
    };
    let report = state.admin.reprocess(caller, &order).await?;
    if let Some(why) = report.stopped {
        return Err(AdminError::Unavailable(why));
    }
    let line = report.results.into_iter().next().map(|line| (line, report.generation));
    line.ok_or_else(|| AdminError::Absent(format!("there is no message {id}, or you may not send it again")))
}

/// `GET /messages/ID/reprocess`
pub(crate) async fn preview_one(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(id): Path<u64>,
) -> Response {
    let (line, generation) = match one(&state, &visitor.caller, id, None).await {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let (Some(token), Ok(key)) = (visitor.form_token(), secret::draw()) else {
        return refused(&AdminError::Refused("a page needs a session: sign in".to_owned()));
    };
    let main = html! {
        div.title { h1 { "Reprocess message " (id) } }
        section.card.stack {
            p { "It is decided on anew, as it came in, with the rules and transforms in force now. This is what would become of it:" }
            (outcome(&line))
            @if line.is_made() {
                form action={ (message_path(id)) "/reprocess" } method="post" {
                    (token_field(&token))
                    (ReprocessRun { key: &key, generation }.fields())
                    button.main { "Reprocess" } " " a.button href=(message_path(id)) { "Not now" }
                }
            } @else {
                p.sub { "Nothing would be stored or sent. Mend the rules first, and " a href="/try" { "try them" } "; the message stays on the list." }
                p { a.button href=(message_path(id)) { "Back to the message" } }
            }
        }
        div.commands {
            (command(&format!("terrace message reprocess {id} --preview")))
            (command(&format!("terrace message reprocess {id}")))
        }
    };
    let title = format!("Reprocess {id}");
    let page = layout::page(&state, &visitor, (&title, Place::Messages, Extras::None), "", main);
    respond::page(StatusCode::OK, page)
}

fn outcome(line: &ReprocessLine) -> Markup {
    let class = if line.is_made() { "tag good" } else { "tag bad" };
    html! {
        p { span class=(class) { (line.outcome) } " " span.break { (line.reason) } }
        @if !line.operations.is_empty() {
            p { "To " @for (at, name) in line.operations.iter().enumerate() { @if at > 0 { ", " } a href=(operation_path(name)) { b { (name) } } } }
        } @else if line.outcome == "routed" { p { "It goes nowhere." } }
    }
}

/// `POST /messages/ID/reprocess`
pub(crate) async fn run_one(State(state): State<Arc<ConsoleState>>, Path(id): Path<u64>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let run = match ReprocessRun::of(&fields) {
        Ok(run) => run,
        Err(error) => return refused(&error),
    };
    let _place = match state.long_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    match one(&state, &visitor.caller, id, Some(run)).await {
        Ok((line, _)) => match line.new {
            Some(new) => respond::see(&format!("{}?reprocessed={new}", message_path(new))),
            None => {
                let text = format!("message {id} is {}: {}; nothing was stored or sent", line.outcome, line.reason);
                refused(&AdminError::Refused(text))
            }
        },
        Err(error) => refused(&error),
    }
}

/// `GET /reprocess`
pub(crate) async fn preview_search(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    if !state.may_some(&visitor.caller, Action::MessageResend) {
        return refused(&AdminError::Denied("permission denied: message-resend is not allowed".to_owned()));
    }
    let now_us = state.options.guard.now_us();
    let wanted = SearchFields { until: Some(now_us), ..SearchFields::of(&fields, now_us) };
    if wanted.status.is_empty() {
        return page(&state, &visitor, &wanted, html! {});
    }
    let filter = match wanted.filter(now_us) {
        Ok(filter) => filter,
        Err(error) => return refused(&error),
    };
    let _place = match state.long_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let found = match search(&state, &visitor.caller, (&filter, None), (SEARCH_MAX, PREVIEW_TIME)).await {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let (Some(token), Ok(key)) = (visitor.form_token(), secret::draw()) else {
        return refused(&AdminError::Refused("a page needs a session: sign in".to_owned()));
    };
    let made = found.lines.iter().filter(|line| line.is_made()).count();
    let result = html! {
        section.card.stack {
            div.head { h2 { "Preview" } span.sub { "nothing was stored or sent" } }
            (summary(&found, "would go out"))
            @if found.is_partial { p.note.warn { "These are the first " (count(found.lines.len() as u64)) ", from the oldest on. Do these, then come back for the rest." } }
            @if made > 0 { (confirm((&token, ReprocessRun { key: &key, generation: found.generation }), &wanted, found.lines.len(), &format!("Reprocess {}", count(made as u64)))) }
        }
        (lines(&found))
    };
    page(&state, &visitor, &wanted, result)
}

/// The form that does what was previewed; of a form that was sent, what goes on with it.
fn confirm((token, run): (&str, ReprocessRun<'_>), wanted: &SearchFields, number: usize, word: &str) -> Markup {
    html! {
        form action="/reprocess" method="post" {
            (token_field(token))
            (run.fields())
            input type="hidden" name="status" value=(wanted.status);
            input type="hidden" name="service" value=(wanted.service);
            input type="hidden" name="since" value=(wanted.since);
            input type="hidden" name="until" value=(wanted.until.unwrap_or_default());
            input type="hidden" name="number" value=(number);
            button.main { (word) } " " a.button href="/todo" { "Not now" }
        }
    }
}

/// `POST /reprocess`
pub(crate) async fn run_search(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let now_us = state.options.guard.now_us();
    let wanted = SearchFields::of(&fields, now_us);
    let number = fields.get("number").and_then(|number| number.parse::<usize>().ok());
    let (Ok(run), Some(number)) =
        (ReprocessRun::of(&fields), number.filter(|number| (1..=SEARCH_MAX).contains(number)))
    else {
        return refused(&AdminError::Refused("the form is none of a preview: begin there".to_owned()));
    };
    let _place = match state.long_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    // An age is meant from the preview on, whenever the form is sent.
    let found = match wanted.filter(wanted.until.unwrap_or(now_us)) {
        Ok(filter) => search(&state, &visitor.caller, (&filter, Some(run)), (number, WORK_TIME)).await,
        Err(error) => Err(error),
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let is_short = found.lines.len() < number && found.is_partial;
    let token = visitor.form_token().unwrap_or_default();
    let result = html! {
        section.card.stack {
            h2 { "Result" }
            div role="status" { (summary(&found, "went out")) }
            @if let Some(why) = &found.stopped { p.note.warn { "It ended early: " (why) "." } }
            @if is_short {
                p { "Not all are done yet. What is done is not done again." }
                (confirm((&token, run), &wanted, number, "Go on"))
            } @else { p { a.button href="/todo" { "To the to-do list" } } }
        }
        (lines(&found))
    };
    page(&state, &visitor, &wanted, result)
}

fn summary(found: &Together, goes: &str) -> Markup {
    let outcomes = found.outcomes();
    let of = |outcome: &str| outcomes.get(outcome).copied().unwrap_or_default();
    let reasons = found.reasons();
    html! {
        p {
            b { (count(of("routed"))) } " " (goes)
            @if of("dropped") > 0 { ", " b { (count(of("dropped"))) } " dropped by a rule" }
            @if of("again") > 0 { ", " b { (count(of("again"))) } " done before under this key" }
            @if of("already") > 0 { ", " b { (count(of("already"))) } " reprocessed before, left out" }
            @let left: u64 = reasons.values().map(|(number, _)| number).sum();
            @if left > 0 { ", " b.bad { (count(left)) } " not sent on" }
        }
        @let operations = found.operations();
        @if !operations.is_empty() {
            ul.plain { @for (name, number) in &operations { li { b { (count(*number)) } " to " a href=(operation_path(name)) { (name) } } } }
        }
        @if !reasons.is_empty() {
            ul.plain {
                @for ((outcome, reason), (number, first)) in reasons.iter().take(REASONS_SHOWN) {
                    li { (count(*number)) " " span.tag.bad { (outcome) } " " span.break { (reason) } " (" a href=(message_path(*first)) { "message " (first) } ")" }
                }
                @if reasons.len() > REASONS_SHOWN { li.sub { (reasons.len() - REASONS_SHOWN) " more reasons" } }
            }
        }
    }
}

fn lines(found: &Together) -> Markup {
    if found.lines.is_empty() {
        return html! { section.card { p.empty { "No message matches." } } };
    }
    let head = html! { th.num scope="col" { "Message" } th scope="col" { "Outcome" } th scope="col" { "To" } th.num scope="col" { "New" } };
    let rows = html! {
        @for line in found.lines.iter().take(LINES_SHOWN) {
            tr {
                td.num { a href=(message_path(line.id)) { (line.id) } }
                td.break { span class=(if line.is_made() { "tag good" } else { "tag warn" }) { (line.outcome) } " " (line.reason) }
                td.break { (line.operations.join(", ")) }
                td.num { @match line.new { Some(new) => { a href=(message_path(new)) { (new) } } None => { "-" } } }
            }
        }
    };
    html! {
        section.card {
            (table("Messages", head, rows))
            @if found.lines.len() > LINES_SHOWN { p.empty { (count((found.lines.len() - LINES_SHOWN) as u64)) " more are not listed." } }
        }
    }
}

fn page(state: &ConsoleState, visitor: &Visitor, wanted: &SearchFields, result: Markup) -> Response {
    let main = html! {
        div.title { h1 { "Reprocess" } span.sub { "decide anew, with the production in force" } }
        section.card {
            form.filters action="/reprocess" method="get" {
                div.field {
                    label for="status" { "Decision" }
                    select #status name="status" { @for status in STATUSES { option value=(status) selected[status == wanted.status] { (status) } } }
                }
                div.field { label for="service" { "Service" } input #service name="service" value=(wanted.service) placeholder="all" maxlength="255"; }
                div.field { label for="since" { "Since" } input #since name="since" value=(wanted.since) placeholder="24h" maxlength="64"; }
                button { "Preview" }
            }
        }
        (result)
        @if let Some(line) = command_line(wanted) { (command(&line)) }
    };
    let page = layout::page(state, visitor, ("Reprocess", Place::ToDo, Extras::None), "", main);
    respond::page(StatusCode::OK, page)
}

fn command_line(wanted: &SearchFields) -> Option<String> {
    let mut line = format!("terrace message reprocess --status {} --preview", word(&wanted.status)?);
    for (name, value) in [("service", &wanted.service), ("since", &wanted.since)] {
        if !value.is_empty() {
            line.push_str(&format!(" --{name} {}", word(value)?));
        }
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_search_is_for_a_decision_and_ends_at_its_preview() {
        let wanted = SearchFields::of(&fields(&[("status", "errored"), ("since", "1h")]), 7_200_000_000);
        let filter = wanted.filter(7_200_000_000).expect("it can be read");
        assert_eq!((filter.since_us, filter.until_us), (Some(3_600_000_000), Some(7_200_000_000)));
        for wrong in [fields(&[]), fields(&[("status", "routed")]), fields(&[("status", "errored"), ("since", "soon")])]
        {
            assert!(SearchFields::of(&wrong, 0).filter(0).is_err());
        }
    }

    #[test]
    fn what_would_become_of_messages_is_counted_by_operation_and_reason_and_escaped() {
        let line = |id, outcome: &str, reason: &str, operations: &[&str]| ReprocessLine {
            id,
            outcome: outcome.to_owned(),
            reason: reason.to_owned(),
            new: None,
            operations: operations.iter().map(|name| (*name).to_owned()).collect(),
        };
        let lines = vec![
            line(1, "routed", "", &["a", "b"]),
            line(2, "routed", "", &["a"]),
            line(3, "errored", "<script>", &[]),
            line(4, "errored", "<script>", &[]),
            line(5, "already", "", &[]),
        ];
        let found = Together { lines, ..Together::default() };
        assert_eq!(found.operations(), BTreeMap::from([("a", 2), ("b", 1)]));
        assert_eq!(found.reasons(), BTreeMap::from([(("errored", "<script>"), (2, 3))]));
        let text = summary(&found, "would go out").into_string();
        assert!(text.contains("<b>2</b> would go out") && !text.contains("<script>"), "{text}");
    }
}
