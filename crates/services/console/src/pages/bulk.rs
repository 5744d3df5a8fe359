//! Bulk resend: the messages of a search go out again, as they were. First a preview of what goes where, then once.
//!
//! ```text
//!   GET  /resend?state=failed&to=lab    the search, page by page --> each message's outputs --> counts by operation   nothing is sent
//!   POST with the ids of the preview    one after the other, in the order they came in       a key for each: nothing twice
//! ```
//!
//! Invariants: what is sent is among the messages of the preview, whatever came in since; one message is looked at and sent at a time, so
//! that no two runs send the same one; a run is bounded in messages and in time, and the same form goes on with what is left; what waits
//! in a queue goes out from there, and is not sent again.
//!
//! Messages that were sent again before are left out, unless they are asked for; so are those that a resend made, which often match the
//! same search. Where they are asked for, one of each origin goes out, the newest: no receiver gets a message twice by one run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Caller, Object};

use super::messages_fields::MessagesFields;
use super::refused;
use super::reprocess::is_over;
use crate::address::{message_path, operation_path};
use crate::admin::{AdminError, MessageLine, MessageQuery, MessageView, OutputState, OutputView};
use crate::form::{Fields, SignedForm};
use crate::format::{count, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, table, token_field};
use crate::once::once;
use crate::respond;
use crate::secret;
use crate::state::ConsoleState;

/// Messages of one run at most.
const MESSAGES_MAX: usize = 1_000;

/// Messages of a page of the search.
const PAGE_LINES: usize = 200;

/// How long a preview may take, and how long a run.
const PREVIEW_TIME: Duration = Duration::from_secs(10);
const RUN_TIME: Duration = Duration::from_secs(40);

/// Failures that a page lists.
const FAILURES_SHOWN: usize = 20;

/// Why messages are left out, where they are.
const SENT_BEFORE: &str = "was sent again before";
const IS_RESENT: &str = "was itself made by a resend";
const IS_WAITING: &str = "still waits in its queue";
const IS_MIXED: &str = "has outputs to one operation of which only some are meant: resend it from its page";
const HAS_NONE: &str = "has no such output";
const IS_OLDER: &str = "is of the same origin as a newer one that goes out";

/// Resends of resends that are followed to their origin.
const ORIGINS_MAX: usize = 32;

/// Which outputs of a message are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct BulkChoice {
    /// In this state; none: in any.
    state: Option<OutputState>,
    /// To these operations; none: to all.
    operations: Option<Vec<String>>,
    /// Also of messages that were sent again before, or made by that.
    again: bool,
}

impl BulkChoice {
    /// The operations that a message goes out to again; why it does not, where it does not.
    fn of(&self, view: &MessageView) -> Result<Vec<String>, &'static str> {
        if !self.again && !view.derived.is_empty() {
            return Err(SENT_BEFORE);
        }
        if !self.again && matches!(&*view.made, "resent" | "edited") {
            return Err(IS_RESENT);
        }
        let is_waiting = |output: &&OutputView| output.state == OutputState::Waiting;
        let is_meant =
            |output: &&OutputView| !is_waiting(output) && self.state.is_none_or(|state| output.state == state);
        let is_named =
            |output: &&OutputView| self.operations.as_ref().is_none_or(|all| all.contains(&output.operation));
        let meant = view.outputs.iter().filter(is_named).filter(is_meant);
        let mut found: Vec<String> = meant.map(|output| output.operation.clone()).collect();
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            let waits = view.outputs.iter().filter(is_named).any(|output| is_waiting(&output));
            return Err(if waits { IS_WAITING } else { HAS_NONE });
        }
        // A resend is of all outputs to an operation.
        if view.outputs.iter().any(|output| found.contains(&output.operation) && !is_meant(&output)) {
            return Err(IS_MIXED);
        }
        Ok(found)
    }
}

/// What a preview found.
#[derive(Debug, Default)]
struct BulkPlan {
    /// The messages that have something to send, in the order they came in.
    ids: Vec<u64>,
    /// Outputs by operation.
    operations: BTreeMap<String, u64>,
    /// Messages that are left out, and why.
    left_out: BTreeMap<&'static str, u64>,
    /// Whether more match than were looked at.
    is_partial: bool,
}

/// The message that came in, of which another was made, by resends of resends.
async fn origin(state: &ConsoleState, caller: &Caller, view: &MessageView) -> u64 {
    let (mut id, mut from) = (view.id, view.resent_from);
    for _ in 0..ORIGINS_MAX {
        let Some(before) = from else { break };
        // One that cannot be read, is not kept as long, or is shown to others only, is as far as it goes.
        let view = state.admin.message(caller, before, false).await;
        (id, from) = (before, view.ok().and_then(|view| view.resent_from));
    }
    id
}

/// The search of a page's fields, as one that can be resent.
fn query_of(fields: &Fields, now_us: i64) -> Result<MessageQuery, AdminError> {
    let asked = MessagesFields::of(fields).wanted(now_us).map_err(AdminError::Refused)?;
    if asked.text.is_some() || asked.word.is_some() || asked.id.is_some() {
        let text = "messages found by a word or by their text are sent one by one: search by state, operation, service, type or time";
        return Err(AdminError::Refused(text.to_owned()));
    }
    let query = MessageQuery { before: None, limit: PAGE_LINES, ..asked.query };
    if query == (MessageQuery { limit: PAGE_LINES, ..MessageQuery::default() }) {
        let text = "all messages are not sent again: name a state, an operation, a service, a type or a time";
        return Err(AdminError::Refused(text.to_owned()));
    }
    Ok(query)
}

/// The operations that a message of a search goes out to again; why it does not, where it does not. `origins`: of those that do.
async fn chosen(
    state: &ConsoleState,
    caller: &Caller,
    (line, choice): (&MessageLine, &BulkChoice),
    origins: &mut BTreeSet<u64>,
) -> Result<Result<Vec<String>, &'static str>, AdminError> {
    if !state.may(caller, Action::MessageResend, Object::Service(&line.service)) {
        return Ok(Err("may not be sent again by you"));
    }
    let view = match state.admin.message(caller, line.id, false).await {
        Ok(view) => view,
        Err(AdminError::Absent(_)) => return Ok(Err("is not there any more")),
        Err(error) => return Err(error),
    };
    let operations = choice.of(&view);
    if operations.is_ok() && !origins.insert(origin(state, caller, &view).await) {
        return Ok(Err(IS_OLDER));
    }
    Ok(operations)
}

async fn plan(
    state: &ConsoleState,
    caller: &Caller,
    (query, choice): (&MessageQuery, &BulkChoice),
) -> Result<BulkPlan, AdminError> {
    let (mut plan, mut query, mut looked) = (BulkPlan::default(), query.clone(), 0);
    // The newest come first.
    let mut origins = BTreeSet::new();
    let begun_ms = state.now_ms();
    loop {
        let page = state.admin.messages(caller, &query).await?;
        for line in page.lines.iter().filter(|line| line.damaged.is_none()) {
            if looked == MESSAGES_MAX || is_over(state, begun_ms, PREVIEW_TIME) {
                plan.is_partial = true;
                break;
            }
            looked += 1;
            match chosen(state, caller, (line, choice), &mut origins).await? {
                Ok(operations) => {
                    plan.ids.push(line.id);
                    operations.into_iter().for_each(|name| *plan.operations.entry(name).or_default() += 1);
                }
                Err(why) => *plan.left_out.entry(why).or_default() += 1,
            }
        }
        match page.next {
            Some(next) if !plan.is_partial && !is_over(state, begun_ms, PREVIEW_TIME) => query.before = Some(next),
            next => {
                plan.is_partial |= next.is_some();
                break;
            }
        }
    }
    plan.ids.sort_unstable();
    Ok(plan)
}

/// `GET /resend`
pub(crate) async fn preview(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    if !state.may_some(&visitor.caller, Action::MessageResend) {
        return refused(&AdminError::Denied("permission denied: message-resend is not allowed".to_owned()));
    }
    let query = match query_of(&fields, state.options.guard.now_us()) {
        Ok(query) => query,
        Err(error) => return refused(&error),
    };
    let _place = match state.long_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let choice = BulkChoice { state: query.output, operations: None, again: fields.get("again").is_some() };
    let plan = match plan(&state, &visitor.caller, (&query, &choice)).await {
        Ok(plan) => plan,
        Err(error) => return refused(&error),
    };
    let (Some(token), Ok(key)) = (visitor.form_token(), secret::draw()) else {
        return refused(&AdminError::Refused("a page needs a session: sign in".to_owned()));
    };
    let search = MessagesFields::of(&fields);
    let again = format!("{}&again=yes", search.address("/resend"));
    let main = html! {
        div.title { h1 { "Resend what was found" } span.sub { "nothing was sent yet" } }
        section.card.stack {
            p {
                b { (count(plan.ids.len() as u64)) } @if plan.ids.len() == 1 { " message goes" } @else { " messages go" }
                " out again as they were, the oldest first, each as a new message. Rules and transforms are not run again."
            }
            @for (why, number) in &plan.left_out {
                p.sub {
                    (count(*number)) " " (why) ", left out"
                    @if [SENT_BEFORE, IS_RESENT].contains(why) { " (" a href=(again) { "with these" } ")" }
                }
            }
            @if plan.is_partial { p.note.warn { "These are the newest that one run takes. Do these, then come back for the rest." } }
            @if plan.ids.is_empty() { p.empty { "Nothing is to be sent." } }
            @else { (confirm((&token, &key), &plan, (&choice, query.interface.as_deref()))) }
        }
        p { a.button href=(search.address("/messages")) { "Back to the search" } }
    };
    page(&state, &visitor, main)
}

fn confirm((token, key): (&str, &str), plan: &BulkPlan, (choice, wanted): (&BulkChoice, Option<&str>)) -> Markup {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name || !plan.operations.contains_key(wanted));
    let head = html! { th scope="col" { "Send" } th scope="col" { "To" } th.num scope="col" { "Outputs" } };
    let rows = html! {
        @for (at, (name, number)) in plan.operations.iter().enumerate() {
            @let field = format!("to{at}");
            tr {
                td { input type="checkbox" id=(field) name="to" value=(name) checked[is_wanted(name)]; }
                td.break { label for=(field) { (name) } }
                td.num { (count(*number)) }
            }
        }
    };
    html! {
        form action="/resend" method="post" {
            (run_fields((token, key), &plan.ids, choice))
            (table("Where it goes", head, rows))
            div.empty { button.main { "Resend " (count(plan.ids.len() as u64)) } " " a.button href="/messages" { "Not now" } }
        }
    }
}

/// The hidden fields of a run.
fn run_fields((token, key): (&str, &str), ids: &[u64], choice: &BulkChoice) -> Markup {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    html! {
        (token_field(token))
        input type="hidden" name="key" value=(key);
        input type="hidden" name="ids" value=(ids.join(" "));
        input type="hidden" name="state" value=(choice.state.map_or("", OutputState::name));
        @if choice.again { input type="hidden" name="again" value="yes"; }
    }
}

/// What a run did.
#[derive(Debug, Default)]
struct BulkResult {
    sent: u64,
    /// Messages that were not sent, and why.
    failures: Vec<(u64, String)>,
    /// Messages that the run did not come to.
    left: usize,
}

/// Reads the form of a run.
fn read_run(fields: &Fields) -> Result<(String, Vec<u64>, BulkChoice), AdminError> {
    let wrong = |text: &str| AdminError::Refused(text.to_owned());
    let key = fields.get("key").ok_or_else(|| wrong("the form is none of a preview: begin there"))?;
    let ids: Result<Vec<u64>, _> = fields.text("ids").split_ascii_whitespace().map(str::parse).collect();
    let ids = ids.map_err(|_| wrong("the ids of the messages cannot be read: begin at the preview"))?;
    if ids.is_empty() || ids.len() > MESSAGES_MAX {
        return Err(wrong("a run is of 1 to 1,000 messages"));
    }
    let operations: Vec<String> = fields.all("to").map(str::to_owned).collect();
    if operations.is_empty() {
        return Err(wrong("choose at least one operation"));
    }
    if operations.iter().any(|name| word(name).is_none()) {
        return Err(wrong("an operation has another name"));
    }
    let all = [OutputState::Waiting, OutputState::Delivered, OutputState::Failed, OutputState::SetAside];
    let state = match fields.get("state") {
        None => None,
        Some(name) => {
            let found = all.into_iter().find(|state| state.name() == name);
            Some(found.ok_or_else(|| wrong("an output has no such state"))?)
        }
    };
    let choice = BulkChoice { state, operations: Some(operations), again: fields.get("again").is_some() };
    Ok((key.to_owned(), ids, choice))
}

/// Sends them one after the other.
async fn run(
    state: &Arc<ConsoleState>,
    caller: &Caller,
    key: &str,
    (ids, choice): (&[u64], &BulkChoice),
) -> BulkResult {
    let (mut result, begun_ms) = (BulkResult::default(), state.now_ms());
    for (at, id) in ids.iter().copied().enumerate() {
        if is_over(state, begun_ms, RUN_TIME) {
            result.left = ids.len() - at;
            break;
        }
        let (admin, by, choice) = (Arc::clone(&state.admin), caller.clone(), choice.clone());
        let request = format!("bulk {id} {choice:?}");
        let all = Arc::clone(state);
        let work = async move {
            let _one = all.bulk.lock().await;
            let view = admin.message(&by, id, false).await?;
            let operations = choice.of(&view).map_err(|why| AdminError::Refused(format!("it {why}")))?;
            admin.resend(&by, id, &operations).await
        };
        match once(state, caller, (&format!("{key}:{id}"), request.as_bytes()), work).await {
            Ok(_) => result.sent += 1,
            Err(error) => result.failures.push((id, error.to_string())),
        }
    }
    result
}

/// `POST /resend`
pub(crate) async fn send(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let (key, ids, choice) = match read_run(&fields) {
        Ok(read) => read,
        Err(error) => return refused(&error),
    };
    let _place = match state.bulk_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let result = run(&state, &visitor.caller, &key, (&ids, &choice)).await;
    let token = visitor.form_token().unwrap_or_default();
    let main = html! {
        div.title { h1 { "Resend what was found" } }
        section.card.stack {
            p role="status" {
                b { (count(result.sent)) } @if result.sent == 1 { " message went out again" } @else { " messages went out again" }
                @if !result.failures.is_empty() { ", " b.bad { (count(result.failures.len() as u64)) } " did not" }
                @if result.left > 0 { ", " b { (count(result.left as u64)) } " are left" }
            }
            @if !result.failures.is_empty() {
                ul.plain { @for (id, why) in result.failures.iter().take(FAILURES_SHOWN) { li { a href=(message_path(*id)) { "message " (id) } ": " span.break { (why) } } } }
                @if result.failures.len() > FAILURES_SHOWN { p.sub { (result.failures.len() - FAILURES_SHOWN) " more" } }
            }
            @if result.left > 0 {
                form action="/resend" method="post" {
                    (run_fields((&token, &key), &ids, &choice))
                    @for name in choice.operations.iter().flatten() { input type="hidden" name="to" value=(name); }
                    button.main { "Go on" } span.sub { " What went out is not sent again." }
                }
            }
            p { @for name in choice.operations.iter().flatten() { a.button href=(operation_path(name)) { (name) } " " } a.button href="/todo" { "To the to-do list" } }
        }
    };
    page(&state, &visitor, main)
}

fn page(state: &ConsoleState, visitor: &Visitor, main: Markup) -> Response {
    respond::page(StatusCode::OK, layout::page(state, visitor, ("Resend", Place::Messages, Extras::None), "", main))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn view(outputs: &[(&str, OutputState)], derived: &[u64]) -> MessageView {
        let output = |(operation, state): &(&str, OutputState)| OutputView {
            operation: (*operation).to_owned(),
            transform: String::new(),
            bytes: 0,
            body: bytes::Bytes::new(),
            state: *state,
            ended: None,
            differences: Vec::new(),
        };
        MessageView {
            outputs: outputs.iter().map(output).collect(),
            derived: derived.iter().map(|id| (*id, "resent".to_owned())).collect(),
            ..MessageView::default()
        }
    }

    #[test]
    fn only_outputs_of_the_state_and_the_operations_go_out_and_of_no_message_twice() {
        let (failed, delivered) = (OutputState::Failed, OutputState::Delivered);
        let both = view(&[("a", failed), ("b", delivered), ("c", failed)], &[]);
        let of_state = BulkChoice { state: Some(failed), ..BulkChoice::default() };
        assert_eq!(of_state.of(&both), Ok(vec!["a".to_owned(), "c".to_owned()]));
        let one = BulkChoice { operations: Some(vec!["c".to_owned()]), ..of_state.clone() };
        assert_eq!(one.of(&both), Ok(vec!["c".to_owned()]));
        assert!(one.of(&view(&[("c", delivered)], &[])).is_err());
        assert!(of_state.of(&view(&[("a", failed)], &[9])).is_err(), "it was sent again before");
        assert!(BulkChoice { again: true, ..of_state }.of(&view(&[("a", failed)], &[9])).is_ok());
    }

    #[test]
    fn a_copy_that_a_resend_made_is_left_out_unless_it_is_asked_for() {
        let (failed, delivered) = (OutputState::Failed, OutputState::Delivered);
        let made =
            |how: &str, state| MessageView { resent_from: Some(1), made: how.to_owned(), ..view(&[("a", state)], &[]) };
        let of_state = |state| BulkChoice { state: Some(state), ..BulkChoice::default() };
        for (how, state) in [("resent", failed), ("edited", failed), ("resent", delivered)] {
            assert_eq!(of_state(state).of(&made(how, state)), Err(IS_RESENT));
            assert_eq!(BulkChoice::default().of(&made(how, state)), Err(IS_RESENT));
            assert!(BulkChoice { again: true, ..of_state(state) }.of(&made(how, state)).is_ok());
        }
        assert!(of_state(failed).of(&made("reprocessed", failed)).is_ok(), "its first message went nowhere");
    }

    #[test]
    fn what_waits_is_never_sent_again_and_an_operation_with_outputs_of_other_states_is_left_to_a_person() {
        let (failed, delivered, waiting) = (OutputState::Failed, OutputState::Delivered, OutputState::Waiting);
        let (all, of_state) =
            (BulkChoice::default(), |state| BulkChoice { state: Some(state), again: true, ..BulkChoice::default() });
        assert_eq!(all.of(&view(&[("a", waiting), ("b", failed)], &[])), Ok(vec!["b".to_owned()]));
        assert_eq!(all.of(&view(&[("a", waiting)], &[])), Err(IS_WAITING));
        assert_eq!(of_state(waiting).of(&view(&[("a", waiting)], &[])), Err(IS_WAITING));
        let mixed = view(&[("a", failed), ("b", failed), ("a", delivered)], &[]);
        assert_eq!(of_state(failed).of(&mixed), Err(IS_MIXED));
        assert_eq!(all.of(&mixed), Ok(vec!["a".to_owned(), "b".to_owned()]), "each operation once");
        let only_b = BulkChoice { operations: Some(vec!["b".to_owned()]), ..of_state(failed) };
        assert_eq!(only_b.of(&mixed), Ok(vec!["b".to_owned()]));
        assert_eq!(all.of(&view(&[("a", failed), ("a", waiting)], &[])), Err(IS_MIXED));
    }

    #[test]
    fn a_run_is_read_as_a_preview_wrote_it_and_bounded() {
        let good = [("key", "k"), ("ids", "1 2 3"), ("to", "a"), ("state", "failed")];
        let (key, ids, choice) = read_run(&fields(&good)).expect("it can be read");
        assert_eq!((key.as_str(), ids), ("k", vec![1, 2, 3]));
        assert_eq!((choice.state, choice.again), (Some(OutputState::Failed), false));
        let many = "1 ".repeat(MESSAGES_MAX + 1);
        for (at, wrong) in [(0, ""), (1, ""), (1, "1 x"), (1, &*many), (2, ""), (3, "gone")] {
            let mut pairs = good;
            pairs[at].1 = wrong;
            let pairs: Vec<_> = pairs.into_iter().filter(|(name, value)| *name != "to" || !value.is_empty()).collect();
            assert!(read_run(&fields(&pairs)).is_err(), "{pairs:?}");
        }
    }

    #[test]
    fn a_search_that_can_be_resent_has_a_condition() {
        assert!(query_of(&fields(&[("state", "failed")]), 0).is_ok());
        for wrong in [&[][..], &[("q", "4711")], &[("q", "chest pain")], &[("q", "id:7")], &[("before", "1.2")]] {
            assert!(query_of(&fields(wrong), 0).is_err(), "{wrong:?}");
        }
    }
}
