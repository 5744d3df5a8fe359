//! The routes to pages and to the API.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::pages::{account, audit, media, message, messages, operation, production, resend, trying, users, volumes};
use crate::state::ConsoleState;
use crate::{api, by_provider, sign_in};

/// A request of each route, method and target, about the message `{id}` and the operation `out`: for tests that walk all of them from
/// outside. A test of this module holds that no route is without one.
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
    ("GET", "/media"),
    ("GET", "/live/media"),
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
    ("GET", "/api/v1/messages/{id}"),
    ("GET", "/api/v1/messages/{id}/body"),
    ("POST", "/api/v1/messages/{id}/resend"),
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
        .route("/media", get(media::show))
        .route("/live/media", get(media::live))
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
        .with_state(Arc::clone(state))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_has_an_example() {
        // The routes as they are written above and in `api`, in their text.
        let text = [include_str!("routes.rs"), include_str!("api.rs")].concat();
        let mut expected = BTreeSet::new();
        for line in text.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
            let (path, methods) = line.split_once("\", ").expect("a path and its methods");
            if path == "/api/v1/openapi.json" {
                continue;
            }
            for method in ["get", "post"] {
                if methods.contains(&format!("{method}(")) {
                    expected.insert((method.to_uppercase(), path.replace("{name}", "out")));
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
