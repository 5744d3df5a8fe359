//! The table of operations, and the buttons that suspend and resume one.

use maud::{Markup, html};
use node::identity::{Action, Object};

use crate::address::{operation_path, target};
use crate::admin::{OperationFigures, OperationState};
use crate::format::{age, count, rate};
use crate::gate::Visitor;
use crate::layout::{table, token_field};
use crate::state::ConsoleState;
use crate::ticker::Snapshot;

/// Operations on the page: it is sent again each second.
const OPERATIONS_SHOWN: usize = 100;

/// The colour of a state.
pub(super) fn dot(one: &OperationFigures) -> &'static str {
    match one.state {
        OperationState::Broken => "bad",
        OperationState::Suspended if one.waiting > 0 => "bad",
        OperationState::Suspended => "warn",
        OperationState::Ending => "off",
        OperationState::Running => "",
    }
}

/// The button that suspends or resumes an operation, and returns to a page; nothing for who may not.
pub(super) fn switch_form(state: &ConsoleState, visitor: &Visitor, one: &OperationFigures, back: &str) -> Markup {
    let may = state.may(&visitor.caller, Action::OperationSuspend, Object::Operation(&one.name));
    let (verb, word) = match one.state {
        OperationState::Suspended => ("resume", "Resume"),
        OperationState::Running => ("suspend", "Suspend"),
        OperationState::Ending | OperationState::Broken => return html! {},
    };
    let Some(token) = visitor.form_token().filter(|_| may) else { return html! {} };
    html! {
        form action={ (operation_path(&one.name)) "/" (verb) } method="post" {
            (token_field(&token))
            input type="hidden" name="back" value=(back);
            button class=[(verb == "resume").then_some("main")] aria-label={ (word) " " (one.name) } { (word) }
        }
    }
}

/// The table.
pub(super) fn operations(state: &ConsoleState, visitor: &Visitor, snapshot: &Snapshot) -> Markup {
    let (figures, rates) = (&snapshot.figures, &snapshot.rates);
    if figures.operations.is_empty() {
        return html! { p.empty { "The production has no operation: messages are stored, and go nowhere." } };
    }
    let head = html! {
        th scope="col" { "Operation" }
        th.wide scope="col" { "To" }
        th.num scope="col" { "Waiting" }
        th.num scope="col" { "Oldest" }
        th.num scope="col" { "Out /s" }
        th.num.wide scope="col" { "Failed" }
        th.wide scope="col" { "State" }
        th scope="col" { span.hidden { "Action" } }
    };
    let rows = html! {
        @for one in figures.operations.iter().take(OPERATIONS_SHOWN) {
            @let late = one.waiting > 0 && one.state != OperationState::Running;
            tr {
                td { span.nowrap { span class={ "dot " (dot(one)) } {} a href=(operation_path(&one.name)) { (one.name) } span.hidden { ", " (one.state.name()) } } }
                td.wide { code { (one.to) } @if one.tls { " " span.tag { "TLS" } } }
                td.num {
                    @if one.waiting > 0 {
                        a class=[late.then_some("warn")] href=(target("/messages", &[("state", "waiting"), ("to", &one.name)])) { (count(one.waiting)) }
                    } @else { "0" }
                }
                td.num.warn[late] { (one.oldest.map_or_else(|| "-".to_owned(), |(_, since)| age(since, figures.at_us))) }
                td.num { (rate(rates.operations.get(&one.name).map(|rates| rates.delivered))) }
                td.num.wide { @if one.failed > 0 { span.bad { (count(one.failed)) } } @else { "0" } }
                td.wide { (one.state.name()) }
                td.num { (switch_form(state, visitor, one, "/")) }
            }
        }
    };
    let left_out = figures.operations.len().saturating_sub(OPERATIONS_SHOWN);
    html! {
        (table("Operations", head, rows))
        @if left_out > 0 { p.empty { (left_out) " more operations are not shown; " code { "terrace status" } " has all." } }
    }
}
