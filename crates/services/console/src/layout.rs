//! What all pages share: the head, the line at the top, commands to copy, tables, notes.

use axum::http::StatusCode;
use maud::{DOCTYPE, Markup, html};
use node::identity::{Action, Object};

use crate::assets;
use crate::form::TOKEN;
use crate::gate::Visitor;
use crate::state::ConsoleState;

/// The pages of the line at the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Production,
    Messages,
    ToDo,
    Changes,
    Try,
    Sql,
    Search,
    Alerts,
    Connections,
    Media,
    Plan,
    History,
    Volumes,
    Users,
    Audit,
    /// None of them.
    Elsewhere,
}

impl Place {
    const ALL: [(Place, &'static str, &'static str); 15] = [
        (Place::Production, "Production", "/"),
        (Place::Messages, "Messages", "/messages"),
        (Place::ToDo, "To do", "/todo"),
        (Place::Changes, "Changes", "/changes"),
        (Place::Try, "Try", "/try"),
        (Place::Sql, "SQL", "/sql"),
        (Place::Search, "Search", "/search"),
        (Place::Alerts, "Alerts", "/alerts"),
        (Place::Connections, "Connections", "/connections"),
        (Place::Media, "Media", "/media"),
        (Place::Plan, "Plan", "/plan"),
        (Place::History, "History", "/history"),
        (Place::Volumes, "Volumes", "/volumes"),
        (Place::Users, "Users", "/users"),
        (Place::Audit, "Audit", "/audit"),
    ];

    /// Whether a visitor has the right to what is there.
    fn is_open(self, state: &ConsoleState, visitor: &Visitor) -> bool {
        let node = |action| state.may(&visitor.caller, action, Object::Node);
        match self {
            Place::Production | Place::Media | Place::Alerts | Place::Connections => node(Action::NodeStatus),
            Place::History | Place::Plan => node(Action::NodeMetrics),
            Place::Messages | Place::ToDo => state.may_some(&visitor.caller, Action::MessageMetadata),
            Place::Changes => node(Action::ProductionRead),
            Place::Sql => node(Action::SqlConnect) && state.admin.sql().is_some(),
            Place::Search => state.may_some(&visitor.caller, Action::IndexRead) && state.admin.indices().is_some(),
            Place::Try => node(Action::ProductionLoad),
            Place::Volumes => state.may_some(&visitor.caller, Action::VolumeList),
            Place::Users => node(Action::UserAdminister),
            Place::Audit => node(Action::AuditRead),
            Place::Elsewhere => false,
        }
    }
}

/// What a page needs besides its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extras {
    /// Nothing.
    None,
    /// Something is live, and has charts.
    Charts,
}

fn head(title: &str, extras: Extras) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            // Only what is used of the library: no styles of its own, no history, no time for a stream.
            meta name="htmx-config" content=r#"{"includeIndicatorCSS":false,"history":false,"extensions":"sse","defaultTimeout":0}"#;
            title { (title) " - Terrace" }
            link rel="icon" href=(assets::path("icon.svg")) type="image/svg+xml";
            link rel="stylesheet" href=(assets::path("console.css"));
            @if extras == Extras::Charts {
                link rel="stylesheet" href=(assets::path("uplot.css"));
                script src=(assets::path("uplot.js")) defer {}
            }
            @if extras != Extras::None {
                script src=(assets::path("htmx.js")) defer {}
                script src=(assets::path("hx-sse.js")) defer {}
            }
            script src=(assets::path("console.js")) defer {}
        }
    }
}

fn brand(href: &str) -> Markup {
    html! { a.brand href=(href) { img src=(assets::path("icon.svg")) alt="" width="20" height="20"; "Terrace" } }
}

/// A page for a visitor; `asked` is what stands in the box.
pub(crate) fn page(
    state: &ConsoleState,
    visitor: &Visitor,
    (title, place, extras): (&str, Place, Extras),
    asked: &str,
    main: Markup,
) -> Markup {
    let open: Vec<_> = Place::ALL.iter().filter(|(place, ..)| place.is_open(state, visitor)).collect();
    let production = state.snapshot.borrow().as_ref().map(|snapshot| snapshot.figures.production.clone());
    let production = production.filter(|_| state.sees_node(&visitor.caller));
    let has_messages = open.iter().any(|(place, ..)| *place == Place::Messages);
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, extras))
            body {
                a.skip href="#main" { "Skip to the page" }
                header.top {
                    (brand("/"))
                    @if let Some(production) = production { span.tag.node title=(production) { (production) } }
                    nav aria-label="Pages" {
                        ul {
                            @for (at, name, path) in open {
                                li { a href=(path) aria-current=[(*at == place).then_some("page")] { (name) } }
                            }
                        }
                    }
                    @if has_messages {
                        form.box action="/messages" method="get" role="search" {
                            label.hidden for="q" { "Find a message by patient number, control id or message id" }
                            input #q name="q" type="search" value=(asked) placeholder="Patient number, control id, id" autocomplete="off" spellcheck="false" maxlength="2000";
                            kbd aria-hidden="true" { "/" }
                        }
                    }
                    (menu(visitor))
                }
                main #main tabindex="-1" { (main) }
            }
        }
    }
}

fn menu(visitor: &Visitor) -> Markup {
    html! {
        details.who {
            summary { (visitor.name) }
            div.menu {
                a href="/account" { "Your rights" }
                @if let Some(token) = visitor.form_token() {
                    form action="/sign-out" method="post" {
                        (token_field(&token))
                        button { "Sign out" }
                    }
                }
            }
        }
    }
}

/// The field with the token of a form.
pub(crate) fn token_field(token: &str) -> Markup {
    html! { input type="hidden" name=(TOKEN) value=(token); }
}

/// A page of somebody who is not signed in.
pub(crate) fn outside(title: &str, main: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, Extras::None))
            body { main.sign #main { (brand("/sign-in")) (main) } }
        }
    }
}

/// The page of something that was not done.
pub(crate) fn refusal(status: StatusCode, text: &str) -> Markup {
    let title = match status {
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Not there",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "Not now",
        _ => "Not done",
    };
    outside(
        title,
        html! {
            div.card.stack {
                h1 { (title) }
                p.break { (text) }
                p { a.button href="/" { "To the first page" } }
            }
        },
    )
}

/// A command to copy.
pub(crate) fn command(line: &str) -> Markup {
    html! { div.command { code { (line) } button type="button" data-copy aria-label="Copy the command" { "Copy" } } }
}

/// A section that cannot be shown, and why.
pub(crate) fn denied(text: &str) -> Markup {
    html! { p.empty.break { (text) } }
}

/// A table that can be moved sideways where there is no room for it.
pub(crate) fn table(label: &str, head: Markup, rows: Markup) -> Markup {
    html! {
        div.table tabindex="0" role="region" aria-label=(label) {
            table { thead { tr { (head) } } tbody { (rows) } }
        }
    }
}

/// The same, whose rows are stacked on a narrow screen: each cell there begins with its `data-label`, if it has one.
pub(crate) fn cards(label: &str, head: Markup, rows: Markup) -> Markup {
    html! {
        div.table.cards tabindex="0" role="region" aria-label=(label) {
            table { thead { tr { (head) } } tbody { (rows) } }
        }
    }
}

/// Says that a page is live, and shows when it is not.
pub(crate) fn live_mark() -> Markup {
    html! { span.live data-state="live" { i {} span { "live" } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_page_is_escaped() {
        let text = refusal(StatusCode::NOT_FOUND, "<img src=x onerror=alert(1)>").into_string();
        assert!(text.contains("&lt;img") && !text.contains("<img src=x"));
        assert!(
            command("a\"><script>").into_string().contains("a\"&gt;&lt;script&gt;")
                || command("a\"><script>").into_string().contains("&quot;&gt;&lt;script")
        );
    }
}
