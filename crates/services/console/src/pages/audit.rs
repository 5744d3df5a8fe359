//! Audit: who did what, from the newest entry back. Looking at it is an entry, too.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::audit::{ActorKind, AuditFilter, AuditOutcome, AuditPage, AuditQuery, ShownEntry};

use super::refused;
use crate::address::{in_query, target};
use crate::admin::AdminError;
use crate::form::Fields;
use crate::format::{moment, time, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, cards, command};
use crate::respond;
use crate::state::ConsoleState;

/// Entries of a page.
pub(crate) const PAGE_ENTRIES: usize = 50;

/// Outcomes to choose from.
const OUTCOMES: [(&str, AuditOutcome); 3] =
    [("granted", AuditOutcome::Granted), ("refused", AuditOutcome::Refused), ("failed", AuditOutcome::Failed)];

/// The query of a request's fields. Errors: the text for who asked.
pub(crate) fn query_of(fields: &Fields, now_us: i64) -> Result<AuditQuery, String> {
    let text = |name| fields.get(name).map(str::to_owned);
    let number = |name: &str| match fields.get(name).map(str::parse::<u64>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(format!("{name} is a number")),
    };
    let time = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(text) => {
            moment(text, now_us).map(Some).ok_or_else(|| format!("`{text}` is neither a time nor an age as 2h"))
        }
    };
    let outcome = match fields.get("outcome") {
        None => None,
        Some(name) => {
            let found = OUTCOMES.iter().find(|(known, _)| *known == name).map(|(_, outcome)| *outcome);
            Some(found.ok_or("outcome is granted, refused or failed")?)
        }
    };
    let filter = AuditFilter {
        since_us: time("since")?,
        until_us: time("until")?,
        actor: text("actor"),
        action: text("action"),
        object: text("object"),
        message: number("message")?,
        outcome,
    };
    Ok(AuditQuery { filter, newest_first: true, from: number("from")?, limit: PAGE_ENTRIES })
}

/// `GET /audit`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let found = match query_of(&fields, state.options.guard.now_us()) {
        Ok(query) => state.admin.audit(&visitor.caller, &query).await,
        Err(why) => Err(AdminError::Refused(why)),
    };
    let found = match found {
        Err(error @ (AdminError::Denied(_) | AdminError::Unavailable(_))) => return refused(&error),
        found => found,
    };
    let status = if found.is_ok() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    let main = html! {
        div.title { h1 { "Audit" } span.sub { "looking at it is recorded, too" } }
        (filters(&fields))
        section.card {
            @match &found {
                Ok(page) => { (entries(page)) (pager(page, &fields)) }
                Err(error) => { p.note.warn role="alert" { (error) } }
            }
        }
        div.commands { (command_line(&fields)) (command("terrace audit verify")) }
    };
    respond::page(status, layout::page(&state, &visitor, ("Audit", Place::Audit, Extras::None), "", main))
}

fn filters(fields: &Fields) -> Markup {
    let field = |name: &'static str, label: &str, hint: &str| {
        html! {
            div.field { label for=(name) { (label) } input id=(name) name=(name) value=(fields.get(name).unwrap_or_default()) placeholder=(hint) maxlength="255" autocomplete="off"; }
        }
    };
    html! {
        form.card.filters action="/audit" method="get" {
            (field("actor", "Actor", "ann, uid:1000, node"))
            (field("action", "Action", "message, login"))
            (field("object", "Object", "message 8240"))
            (field("message", "Reads of message", "8240"))
            (field("since", "Since", "24h"))
            div.field {
                label for="outcome" { "Outcome" }
                select #outcome name="outcome" {
                    option value="" { "all" }
                    @for (name, _) in OUTCOMES { option value=(name) selected[fields.get("outcome") == Some(name)] { (name) } }
                }
            }
            button.main { "Find" }
        }
    }
}

fn actor(entry: &ShownEntry) -> String {
    let actor = &entry.chained.entry.actor;
    match (actor.kind, actor.id) {
        (ActorKind::Node, _) => "the node".to_owned(),
        (ActorKind::Local, Some(uid)) if actor.name.is_empty() => format!("uid:{uid}"),
        (ActorKind::Claimed, _) => format!("{}?", actor.name),
        _ => actor.name.clone(),
    }
}

fn entries(page: &AuditPage) -> Markup {
    let head = html! {
        th.num scope="col" { "Number" } th scope="col" { "Time" } th scope="col" { "Actor" } th.wide scope="col" { "From" }
        th scope="col" { "Action" } th scope="col" { "Object" } th scope="col" { "Outcome" } th.wide scope="col" { "More" }
    };
    let rows = html! {
        @for shown in &page.entries {
            @let entry = &shown.chained.entry;
            tr {
                td.num { (shown.chained.number) }
                td { (time(i64::try_from(shown.chained.time_us).unwrap_or(i64::MAX))) }
                td.break { (actor(shown)) }
                td.wide { (entry.origin.protocol) @if !entry.origin.address.is_empty() { " " span.dim { (entry.origin.address) } } }
                td.nowrap { (entry.action) }
                td.break { (entry.object) }
                td {
                    @match entry.outcome {
                        AuditOutcome::Granted => { span.dim { "granted" } }
                        outcome => { span.tag.bad { (outcome.name()) } }
                    }
                }
                td.wide.break.sub {
                    (entry.reason)
                    @for (name, value) in &entry.details { " " (name) "=" (value) }
                    @if !entry.reads.is_empty() { " " (entry.reads.count) " read" }
                }
            }
        }
    };
    html! {
        @if page.entries.is_empty() { p.empty { "No entry matches." } } @else { (cards("Entries of the audit", head, rows)) }
        @for why in &page.damaged { p.note.bad { "damaged: " (why) } }
    }
}

fn pairs(fields: &Fields) -> Vec<(&str, &str)> {
    let names = ["actor", "action", "object", "message", "since", "until", "outcome"];
    names.iter().map(|name| (*name, fields.get(name).unwrap_or_default())).collect()
}

fn pager(page: &AuditPage, fields: &Fields) -> Markup {
    let first = target("/audit", &pairs(fields));
    html! {
        @if page.next.is_some() || fields.get("from").is_some() {
            nav.pager.empty aria-label="Pages of the audit" {
                @if fields.get("from").is_some() { a.button href=(first) { "Newest" } }
                @if let Some(next) = page.next {
                    a.button rel="next" href={ (first) (if first.contains('?') { "&" } else { "?" }) "from=" (in_query(&next.to_string())) } { "Older" }
                }
            }
        }
    }
}

fn command_line(fields: &Fields) -> Markup {
    let mut line = format!("terrace audit list --last {PAGE_ENTRIES}");
    for (name, value) in pairs(fields).into_iter().filter(|(_, value)| !value.is_empty()) {
        let Some(value) = word(value) else { return html! {} };
        line.push_str(&format!(" --{name} {value}"));
    }
    command(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused_with_what_is_wrong() {
        let fields = |pairs: &[(&str, &str)]| {
            Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let query = query_of(&fields(&[("actor", "ann"), ("message", "7"), ("outcome", "refused"), ("from", "9")]), 0);
        let query = query.expect("it can be read");
        assert_eq!((query.filter.actor.as_deref(), query.filter.message, query.from), (Some("ann"), Some(7), Some(9)));
        assert!(query.newest_first && query.filter.outcome == Some(AuditOutcome::Refused));
        for wrong in [("message", "x"), ("outcome", "maybe"), ("since", "soon"), ("from", "-1")] {
            assert!(query_of(&fields(&[wrong]), 0).is_err(), "{wrong:?}");
        }
    }
}
