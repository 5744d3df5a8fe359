//! To do: the messages that need a person, the oldest first, each with why, who takes care of it, and what can be done.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Object};

use super::refused;
use crate::address::{in_query, message_path, target};
use crate::admin::AdminError;
use crate::form::{Fields, SignedForm};
use crate::format::time;
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, cards, command, token_field};
use crate::operator::{TodoAct, TodoLine, TodoList, TodoQuery};
use crate::respond;
use crate::state::ConsoleState;

/// Messages of a page.
const PAGE_LINES: usize = 50;

/// The longest comment, in bytes.
const COMMENT_MAX: usize = 500;

/// The query of a request's fields. Errors: the text for who asked.
pub(crate) fn query_of(fields: &Fields) -> Result<TodoQuery, AdminError> {
    let after = match fields.get("after").map(str::parse::<u64>) {
        None => 0,
        Some(Ok(after)) => after,
        Some(Err(_)) => return Err(AdminError::Refused("after is the `next` of an earlier page".to_owned())),
    };
    let owner = fields.get("owner").map(str::to_owned);
    Ok(TodoQuery { after, limit: PAGE_LINES, owner, done: fields.get("done").is_some() })
}

/// The change of a request's fields.
pub(crate) fn act_of(fields: &Fields) -> Result<TodoAct, AdminError> {
    match fields.get("act") {
        Some("take") => Ok(TodoAct::Take),
        Some("done") => Ok(TodoAct::Done),
        Some("comment") => {
            let text = fields.get("text").unwrap_or_default();
            if text.is_empty() || text.len() > COMMENT_MAX || text.chars().any(char::is_control) {
                return Err(AdminError::Refused(format!("a comment has 1 to {COMMENT_MAX} bytes, on one line")));
            }
            Ok(TodoAct::Comment(text.to_owned()))
        }
        _ => Err(AdminError::Refused("act is take, comment or done".to_owned())),
    }
}

/// `GET /todo`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let query = match query_of(&fields) {
        Ok(query) => query,
        Err(error) => return refused(&error),
    };
    let list = match state.admin.todo(&visitor.caller, &query).await {
        Ok(list) => list,
        Err(error) => return refused(&error),
    };
    let may_some = state.may_some(&visitor.caller, Action::MessageResend);
    let main = html! {
        div.title {
            h1 { "To do" } span.sub { "messages that need a person, the oldest first" }
            @if may_some {
                div.act {
                    a.button href="/reprocess?status=errored" { "Reprocess errored" }
                    a.button href="/reprocess?status=unmatched" { "Reprocess unmatched" }
                    a.button href="/resend?state=failed" { "Resend failed" }
                }
            }
        }
        (chips(&visitor, &query))
        section.card {
            @if list.items.is_empty() { p.empty { @if list.next.is_some() { "None among those looked at." } @else { "No message needs a person." } } }
            @else { (rows(&state, &visitor, &list, &here(&query))) }
            (pager(&list, &query))
        }
        div.commands {
            (command("terrace todo list"))
            (command("terrace message reprocess --status errored --preview"))
        }
    };
    respond::page(StatusCode::OK, layout::page(&state, &visitor, ("To do", Place::ToDo, Extras::None), "", main))
}

/// The address of the list with the same conditions.
fn here(query: &TodoQuery) -> String {
    let done = if query.done { "yes" } else { "" };
    target("/todo", &[("owner", query.owner.as_deref().unwrap_or_default()), ("done", done)])
}

fn chips(visitor: &Visitor, query: &TodoQuery) -> Markup {
    let own = query.owner.as_deref() == Some(&*visitor.name);
    let done = if query.done { "yes" } else { "" };
    html! {
        nav.chips aria-label="Which" {
            a.chip href=(target("/todo", &[("done", done)])) aria-current=[query.owner.is_none().then_some("true")] { "all" }
            a.chip href=(target("/todo", &[("owner", &visitor.name), ("done", done)])) aria-current=[own.then_some("true")] { "mine" }
            @let other = if query.done { "" } else { "yes" };
            a.chip href=(target("/todo", &[("owner", query.owner.as_deref().unwrap_or_default()), ("done", other)]))
                aria-current=[query.done.then_some("true")] { "with those done" }
        }
    }
}

fn reason_tag(reason: &str) -> Markup {
    let class = if matches!(reason, "errored" | "failed") { "tag bad" } else { "tag warn" };
    html! { span class=(class) { @if reason == "set-aside" { "set aside" } @else { (reason) } } }
}

fn rows(state: &ConsoleState, visitor: &Visitor, list: &TodoList, back: &str) -> Markup {
    let head = html! {
        th.num scope="col" { "Message" } th scope="col" { "Received" } th scope="col" { "Service" } th scope="col" { "Why" }
        th scope="col" { "Owner" } th scope="col" { "Said" } th scope="col" { span.hidden { "Actions" } }
    };
    let rows = html! {
        @for item in &list.items {
            tr {
                td.num { a href=(message_path(item.id)) { (item.id) } }
                td { (time(item.received_us)) }
                td data-label="Service" { (item.service) }
                td.text.break { (reason_tag(&item.reason)) " " (item.detail) }
                td data-label="Owner" { @match &item.owner { Some(owner) => { (owner) } None => { span.dim { "nobody" } } } @if item.done { " " span.tag.good { "done" } } }
                td.text { (said(item)) }
                td { (actions(state, visitor, item, back)) }
            }
        }
    };
    cards("Messages that need a person", head, rows)
}

fn said(item: &TodoLine) -> Markup {
    let Some(last) = item.comments.last() else { return html! {} };
    let words = |words: &crate::operator::TodoWords| html! { b { (words.by) } ": " span.break { (words.text) } " " span.sub { (time(words.at_us)) } };
    html! {
        @if item.comments.len() == 1 { (words(last)) } @else {
            details { summary { (words(last)) } @for one in item.comments.iter().rev().skip(1) { div { (words(one)) } } }
        }
    }
}

fn actions(state: &ConsoleState, visitor: &Visitor, item: &TodoLine, back: &str) -> Markup {
    let may = state.may(&visitor.caller, Action::MessageResend, Object::Service(&item.service));
    let Some(token) = visitor.form_token().filter(|_| may) else { return html! {} };
    let path = message_path(item.id);
    let (verb, word) = match item.reason.as_str() {
        "errored" | "unmatched" => ("reprocess", "Reprocess"),
        _ => ("resend", "Resend"),
    };
    let is_own = item.owner.as_deref() == Some(&*visitor.name);
    let change = |act: &str, inner: Markup| {
        html! {
            form.inline action={ "/todo/" (item.id) } method="post" {
                (token_field(&token))
                input type="hidden" name="back" value=(back);
                input type="hidden" name="act" value=(act);
                (inner)
            }
        }
    };
    html! {
        div.row {
            a.button href={ (path) "/" (verb) } aria-label={ (word) " " (item.id) } { (word) }
            @if !is_own { (change("take", html! { button aria-label={ "Take " (item.id) } { "Take" } })) }
            @if !item.done { (change("done", html! { button aria-label={ "Done " (item.id) } { "Done" } })) }
            details.more {
                summary aria-label={ "Say something about " (item.id) } { "Say" }
                @let field = format!("text{}", item.id);
                (change("comment", html! {
                    label.hidden for=(field) { "Comment on message " (item.id) ", without patient data" }
                    input id=(field) name="text" required maxlength=(COMMENT_MAX) autocomplete="off" placeholder="without patient data";
                    button { "Say" }
                }))
            }
        }
    }
}

fn pager(list: &TodoList, query: &TodoQuery) -> Markup {
    if list.next.is_none() && query.after == 0 {
        return html! {};
    }
    let first = here(query);
    html! {
        nav.pager.empty aria-label="Pages of the list" {
            @if query.after > 0 { a.button href=(first) { "Oldest" } }
            @if let Some(next) = list.next {
                a.button rel="next" href={ (first) (if first.contains('?') { "&" } else { "?" }) "after=" (in_query(&next.to_string())) } { "Newer" }
            }
        }
    }
}

/// `POST /todo/ID`
pub(crate) async fn change(State(state): State<Arc<ConsoleState>>, Path(id): Path<u64>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let done = match act_of(&fields) {
        Ok(act) => state.admin.change_todo(&visitor.caller, id, &act).await,
        Err(error) => Err(error),
    };
    match done {
        // Back to the list only: no address that a form brings leads elsewhere.
        Ok(()) => respond::see(
            fields.get("back").filter(|back| *back == "/todo" || back.starts_with("/todo?")).unwrap_or("/todo"),
        ),
        Err(error) => refused(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_of_three_and_a_comment_is_bounded() {
        let fields = |pairs: &[(&str, &str)]| {
            Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(act_of(&fields(&[("act", "take")])), Ok(TodoAct::Take));
        assert_eq!(
            act_of(&fields(&[("act", "comment"), ("text", " called them ")])),
            Ok(TodoAct::Comment("called them".to_owned()))
        );
        let long = "x".repeat(COMMENT_MAX + 1);
        for wrong in
            [vec![], vec![("act", "drop")], vec![("act", "comment")], vec![("act", "comment"), ("text", &*long)]]
        {
            assert!(act_of(&fields(&wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_said_is_escaped() {
        let evil = "<img src=x onerror=alert(1)>";
        let words = |text: &str| crate::operator::TodoWords { by: evil.into(), at_us: 0, text: text.into() };
        let item = TodoLine { comments: vec![words(evil), words(evil)], ..TodoLine::default() };
        assert!(!said(&item).into_string().contains("<img"));
        assert!(!reason_tag(evil).into_string().contains("<img"));
    }
}
