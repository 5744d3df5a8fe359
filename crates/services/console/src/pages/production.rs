//! Production: what is the matter, how much goes in and out, services and operations, and what somebody has to look at.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::banner::{banner, to_do};
use super::charts::{self, Chart, ChartLine};
use super::messages::{SHOWN_FEW, lines_table};
use super::operation_table::operations;
use super::past::{self, PastFigure};
use super::{no_figures, not_yet};
use crate::address::target;
use crate::admin::{MessageLine, MessageQuery, NodeFigures, OutputState};
use crate::form::Fields;
use crate::format::{age, count, rate};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, denied, live_mark, table};
use crate::live;
use crate::respond;
use crate::state::{ConsolePeer, ConsoleState};
use crate::ticker::Snapshot;

/// Messages that need a person, on the page.
const TO_DO_SHOWN: usize = 8;

/// Services on the page: it is sent again each second.
const SERVICES_SHOWN: usize = 100;

/// `GET /`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    if !state.sees_node(&visitor.caller) {
        // Who may only look at messages begins there.
        return if state.may_some(&visitor.caller, node::identity::Action::MessageMetadata) {
            respond::see("/messages")
        } else {
            respond::see("/account")
        };
    }
    let Some(snapshot) = state.figures().await else { return not_yet() };
    let need = needs_person(&state, &visitor).await;
    let past = past::section(&state, &visitor, ("/", past::range_of(&fields)), |_| past_figures()).await;
    let main = html! {
        div.stack hx-sse:connect="/live/production" hx-swap="innerMorph" { (fragment(&state, &visitor, &snapshot)) }
        (past)
        section.card {
            div.head { h2 { "Newest messages that need a person" } a href="/todo" { "The list" } }
            @match &need {
                Ok(lines) if lines.is_empty() => { p.empty { "None. Messages that errored, failed or matched no rule are listed here." } }
                Ok(lines) => { (lines_table("Messages that need a person", lines, SHOWN_FEW)) }
                Err(why) => { (denied(why)) }
            }
        }
        details.more {
            summary { "The same on the command line" }
            div.commands {
                (command("terrace status"))
                (command("terrace message list --status errored"))
                (command("terrace reload"))
            }
        }
    };
    let page = layout::page(&state, &visitor, ("Production", Place::Production, Extras::Charts), "", main);
    respond::page(StatusCode::OK, page)
}

/// `GET /live/production`
pub(crate) async fn live(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    visitor: Visitor,
) -> Response {
    if !state.sees_node(&visitor.caller) {
        return no_figures();
    }
    live::stream_of(&state, visitor, peer, fragment)
}

/// The newest messages that errored, failed or matched no rule, as far as the visitor may list them.
async fn needs_person(state: &ConsoleState, visitor: &Visitor) -> Result<Vec<MessageLine>, String> {
    let limit = TO_DO_SHOWN;
    let of_status = |status: &str| MessageQuery { status: Some(status.to_owned()), limit, ..MessageQuery::default() };
    let failed = MessageQuery { output: Some(OutputState::Failed), limit, ..MessageQuery::default() };
    let mut lines: Vec<MessageLine> = Vec::new();
    for query in [of_status("errored"), of_status("unmatched"), failed] {
        let page = state.admin.messages(&visitor.caller, &query).await.map_err(|error| error.to_string())?;
        lines.extend(page.lines);
    }
    lines.sort_unstable_by_key(|line| std::cmp::Reverse(line.id));
    lines.dedup_by_key(|line| line.id);
    lines.truncate(TO_DO_SHOWN);
    Ok(lines)
}

/// The figures of the node whose history is on the page.
fn past_figures() -> Vec<PastFigure> {
    [
        ("intake", "Messages in, a second"),
        ("delivered", "Delivered, a second"),
        ("waiting", "Waiting"),
        ("oldest", "Age of the oldest"),
    ]
    .map(|(series, title)| PastFigure::new(series, title))
    .to_vec()
}

fn chart() -> Chart {
    let line = |label: &str, colour, of: fn(&crate::rates::Point) -> Option<f64>| ChartLine {
        label: label.to_owned(),
        colour,
        unit: " /s",
        of: Box::new(of),
    };
    Chart {
        id: "flow",
        label: "Messages in and outputs delivered, each second of the last minutes",
        lines: vec![line("in", "--accent", |point| point.stored), line("out", "--warn", |point| point.delivered)],
    }
}

/// What is live of the page.
fn fragment(state: &ConsoleState, visitor: &Visitor, snapshot: &Snapshot) -> Markup {
    let (figures, rates) = (&snapshot.figures, &snapshot.rates);
    let waiting: u64 = figures.operations.iter().map(|one| one.waiting).sum();
    let oldest = figures.operations.iter().filter_map(|one| Some((one.oldest?.1, &one.name))).min();
    let flow = chart();
    html! {
        div.title {
            h1 { (figures.production) }
            span.sub { "process " (figures.pid) }
            div.act { (live_mark()) }
        }
        (banner(state, visitor, figures))
        div.grid.c4 {
            (card("Messages in", html! { (rate(rates.stored)) small { " /s" } }, html! { (count(figures.stored)) " since the start" }))
            (card("Delivered", html! { (rate(rates.delivered)) small { " /s" } }, html! { (count(figures.operations.iter().map(|one| one.delivered).sum())) " since the start" }))
            (card(
                "Waiting",
                html! { span class=[(oldest.is_some_and(|(since, _)| figures.at_us - since > 60_000_000)).then_some("warn")] { (count(waiting)) } },
                match oldest {
                    Some((since, name)) => html! { "oldest " (age(since, figures.at_us)) ", " (name) },
                    None => html! { "nothing waits" },
                },
            ))
            (card("Need a person", need_figure(figures), to_do(figures)))
        }
        div.grid.c2 {
            section.card { h2 { "Operations" } (operations(state, visitor, snapshot)) }
            section.card { h2 { "In and out, last 5 minutes" } (flow.host(snapshot)) (charts::newest(&[flow], snapshot)) }
        }
        section.card { h2 { "Services" } (services(figures)) }
    }
}

fn need_figure(figures: &NodeFigures) -> Markup {
    let to_do = figures.to_do;
    let all = to_do.errored + to_do.failed + to_do.unmatched;
    let is_more = [to_do.errored, to_do.failed, to_do.unmatched].contains(&crate::admin::ToDoFigures::MOST);
    html! { span class=[(all > 0).then_some("bad")] { (count(all)) @if is_more { "+" } } }
}

/// A card with one figure.
pub(super) fn card(title: &str, figure: Markup, below: Markup) -> Markup {
    html! { section.card { h2 { (title) } div.figure { (figure) } div.sub { (below) } } }
}

fn services(figures: &NodeFigures) -> Markup {
    if figures.services.is_empty() {
        return html! { p.empty { "No service takes messages." } };
    }
    let head = html! {
        th scope="col" { "Service" }
        th scope="col" { "At" }
        th.wide scope="col" { "Rules" }
        th.num scope="col" { "Connections" }
        th.num.wide scope="col" { "Refused" }
    };
    let rows = html! {
        @for one in figures.services.iter().take(SERVICES_SHOWN) {
            tr {
                @let class = if one.note.is_empty() { "dot" } else { "dot warn" };
                td { span.nowrap { span class=(class) {} a href=(target("/messages", &[("service", &one.name)])) { (one.name) } } }
                td { code { (one.at) } " " span.tag { (one.kind) } @if one.tls { " " span.tag { "TLS" } } @if !one.note.is_empty() { p.warn { (one.note) } } }
                td.wide { (one.rules.as_deref().unwrap_or("-")) }
                td.num { @match one.connections { Some(open) => { (count(open)) } None => { "-" } } }
                td.num.wide { (count(one.refused)) }
            }
        }
    };
    let left_out = figures.services.len().saturating_sub(SERVICES_SHOWN);
    html! {
        (table("Services", head, rows))
        @if left_out > 0 { p.empty { (left_out) " more services are not shown; " code { "terrace status" } " has all." } }
    }
}
