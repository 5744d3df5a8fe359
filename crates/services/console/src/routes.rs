//! The routes to pages and to the API.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::pages::{
    account, alerts, audit, bulk, changes, connections, editing, finding, history, media, message, messages, operation,
    plan, production, reprocess, resend, saved, set_aside, sql, tail_page, todo, transfer, trying, users, volumes,
};
use crate::state::ConsoleState;
use crate::{api, api_work, by_provider, sign_in};

/// A request of each route, method and target, about the message `{id}` and the operation `out`: for tests that walk all of them from
/// outside; a number in a path is that of a generation. A test of this module holds that no route is without one.
pub const PAGE_EXAMPLES: &[(&str, &str)] = &[
    ("GET", "/"),
    ("GET", "/live/production"),
    ("GET", "/messages"),
    ("GET", "/messages?q=M1"),
    ("GET", "/messages/{id}"),
    ("GET", "/messages/{id}/raw"),
    ("GET", "/messages/{id}/resend"),
    ("POST", "/messages/{id}/resend"),
    ("POST", "/messages/{id}/glass"),
    ("GET", "/operations/out"),
    ("POST", "/operations/out/suspend"),
    ("POST", "/operations/out/resume"),
    ("POST", "/operations/out/set-aside"),
    ("GET", "/messages.csv"),
    ("GET", "/messages/export"),
    ("GET", "/messages/tail?service=adt"),
    ("GET", "/live/tail?operation=out"),
    ("POST", "/messages/saved"),
    ("GET", "/messages/{id}/edit"),
    ("POST", "/messages/{id}/edit"),
    ("GET", "/messages/{id}/reprocess"),
    ("POST", "/messages/{id}/reprocess"),
    ("GET", "/reprocess?status=errored"),
    ("POST", "/reprocess"),
    ("GET", "/resend?state=failed"),
    ("POST", "/resend"),
    ("GET", "/todo"),
    ("POST", "/todo/{id}"),
    ("GET", "/changes?from=1&to=disk"),
    ("GET", "/changes/1/back"),
    ("POST", "/changes/1/back"),
    ("POST", "/changes/load"),
    ("GET", "/sql"),
    ("POST", "/sql"),
    ("GET", "/search?q=SAMPLE"),
    ("GET", "/alerts"),
    ("POST", "/alerts/silence"),
    ("POST", "/alerts/unsilence"),
    ("GET", "/connections?port=mllp"),
    ("GET", "/connections/{id}/close"),
    ("POST", "/connections/{id}/close"),
    ("GET", "/history?figure=intake&range=1h"),
    ("GET", "/media"),
    ("GET", "/live/media"),
    ("GET", "/plan?more=64"),
    ("POST", "/plan/start"),
    ("POST", "/plan/stop"),
    ("GET", "/try"),
    ("POST", "/try"),
    ("GET", "/volumes"),
    ("GET", "/users"),
    ("GET", "/audit"),
    ("GET", "/account"),
    ("POST", "/sign-out"),
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/operations/out"),
    ("POST", "/api/v1/operations/out/suspend"),
    ("POST", "/api/v1/operations/out/resume"),
    ("GET", "/api/v1/messages"),
    ("GET", "/api/v1/messages/tail?from=now"),
    ("GET", "/api/v1/messages/export"),
    ("POST", "/api/v1/messages/import?service=adt"),
    ("GET", "/api/v1/messages/{id}"),
    ("GET", "/api/v1/messages/{id}/body"),
    ("POST", "/api/v1/messages/{id}/resend"),
    ("POST", "/api/v1/messages/{id}/edit?to=out"),
    ("POST", "/api/v1/messages/{id}/reprocess"),
    ("POST", "/api/v1/reprocess?status=errored"),
    ("POST", "/api/v1/operations/out/set-aside?message={id}&reason=x"),
    ("GET", "/api/v1/todo"),
    ("POST", "/api/v1/todo/{id}?act=take"),
    ("GET", "/api/v1/generations"),
    ("GET", "/api/v1/generations/diff?from=1&to=disk"),
    ("POST", "/api/v1/generations/1/back"),
    ("POST", "/api/v1/production/load"),
    ("POST", "/api/v1/sql?q=SELECT+body+FROM+hl7.messages"),
    ("GET", "/api/v1/indices"),
    ("GET", "/api/v1/search?q=SAMPLE"),
    ("GET", "/api/v1/alerts"),
    ("GET", "/api/v1/connections"),
    ("POST", "/api/v1/connections/{id}/close"),
    ("GET", "/api/v1/history"),
    ("GET", "/api/v1/profile"),
    ("GET", "/api/v1/audit"),
    ("GET", "/api/v1/users"),
    ("GET", "/api/v1/volumes"),
];

/// The same of the routes to sign in, which are for everybody.
pub const DOOR_EXAMPLES: &[(&str, &str)] = &[
    ("GET", "/sign-in"),
    ("POST", "/sign-in"),
    ("GET", "/sign-in/oidc?next=//evil.example"),
    ("GET", "/sign-in/oidc/callback?code=x&state=x"),
];

/// All routes. Those to sign in, and the description of the API, are for everybody.
pub(crate) fn router(state: &Arc<ConsoleState>) -> Router {
    Router::new()
        .route("/", get(production::show))
        .route("/live/production", get(production::live))
        .route("/messages", get(messages::show))
        .route("/messages/{id}", get(message::show))
        .route("/messages/{id}/raw", get(message::raw))
        .route("/messages/{id}/resend", get(resend::preview).post(resend::send))
        .route("/messages/{id}/glass", post(message::break_glass))
        .route("/operations/{name}", get(operation::show))
        .route("/operations/{name}/suspend", post(operation::suspend))
        .route("/operations/{name}/resume", post(operation::resume))
        .route("/operations/{name}/set-aside", post(set_aside::set_aside))
        .route("/messages.csv", get(saved::file))
        .route("/messages/export", get(transfer::export))
        .route("/messages/tail", get(tail_page::show))
        .route("/live/tail", get(tail_page::live))
        .route("/messages/saved", post(saved::change))
        .route("/messages/{id}/edit", get(editing::show).post(editing::send))
        .route("/messages/{id}/reprocess", get(reprocess::preview_one).post(reprocess::run_one))
        .route("/reprocess", get(reprocess::preview_search).post(reprocess::run_search))
        .route("/resend", get(bulk::preview).post(bulk::send))
        .route("/todo", get(todo::show))
        .route("/todo/{id}", post(todo::change))
        .route("/changes", get(changes::show))
        .route("/changes/{number}/back", get(changes::preview_back).post(changes::back))
        .route("/changes/load", post(changes::load))
        .route("/sql", get(sql::show).post(sql::run))
        .route("/search", get(finding::show))
        .route("/alerts", get(alerts::show))
        .route("/alerts/silence", post(alerts::silence))
        .route("/alerts/unsilence", post(alerts::unsilence))
        .route("/connections", get(connections::show))
        .route("/connections/{id}/close", get(connections::confirm).post(connections::close))
        .route("/history", get(history::show))
        .route("/media", get(media::show))
        .route("/live/media", get(media::live))
        .route("/plan", get(plan::show))
        .route("/plan/start", post(plan::start))
        .route("/plan/stop", post(plan::stop))
        .route("/try", get(trying::show).post(trying::run))
        .route("/volumes", get(volumes::show))
        .route("/users", get(users::show))
        .route("/audit", get(audit::show))
        .route("/account", get(account::show))
        .route("/sign-in", get(sign_in::show).post(sign_in::enter_by_password))
        .route("/sign-in/oidc", get(by_provider::start))
        .route("/sign-in/oidc/callback", get(by_provider::come_back))
        .route("/sign-out", post(sign_in::leave))
        .merge(api::router())
        .merge(api_work::router())
        .with_state(Arc::clone(state))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_of_a_visitor_has_an_example() {
        // The routes as they are written above, in `api` and in `api_work`, in their text.
        let text = [include_str!("routes.rs"), include_str!("api.rs"), include_str!("api_work.rs")].concat();
        let mut expected = BTreeSet::new();
        for line in text.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
            let (path, methods) = line.split_once("\", ").expect("a path and its methods");
            if path == "/api/v1/openapi.json" {
                continue;
            }
            for method in ["get", "post"] {
                if methods.contains(&format!("{method}(")) {
                    expected.insert((method.to_uppercase(), path.replace("{name}", "out").replace("{number}", "1")));
                }
            }
        }
        let found: BTreeSet<(String, String)> = PAGE_EXAMPLES
            .iter()
            .chain(DOOR_EXAMPLES)
            .map(|(method, target)| ((*method).to_owned(), target.split('?').next().unwrap_or_default().to_owned()))
            .collect();
        assert_eq!(found, expected);
    }
}
