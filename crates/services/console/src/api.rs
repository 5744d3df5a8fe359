//! The same as the pages, as JSON for programs: `/api/v1`.
//!
//! A program sends a token (`Authorization: Bearer`); a session of a browser may read, and changes nothing here. Lists are pages with a
//! cursor: `next` of one is `before` (of the audit: `from`) of the next. A refusal is problem+json. A change takes an `Idempotency-Key`:
//! sent again it is done once, as far as the process remembers it.
//!
//! `openapi.json` beside this file describes it; a test compares its paths with the routes.
//!
//! Not here: what operators do beyond resending (`api_work`), what the pages show of the media each second, trials, roles' changes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::admin::{AdminError, MessagePage, MessageView};
use crate::form::Fields;
use crate::gate::Visitor;
use crate::pages::{
    alerts, audit, connections, history, messages_fields, no_figures, not_yet, plan, refused, resend, tail,
};
use crate::respond::{self, json_of};
use crate::state::ConsoleState;

/// The description of the API (OpenAPI 3.1).
pub const OPENAPI: &str = include_str!("openapi.json");

/// The routes.
pub(crate) fn router() -> Router<Arc<ConsoleState>> {
    Router::new()
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/status", get(status))
        .route("/api/v1/operations/{name}", get(operation))
        .route("/api/v1/operations/{name}/suspend", post(suspend))
        .route("/api/v1/operations/{name}/resume", post(resume))
        .route("/api/v1/messages", get(list))
        .route("/api/v1/messages/tail", get(tail::stream))
        .route("/api/v1/messages/{id}", get(message))
        .route("/api/v1/messages/{id}/body", get(message_body))
        .route("/api/v1/messages/{id}/resend", post(resend_message))
        .route("/api/v1/alerts", get(alerts::as_json))
        .route("/api/v1/connections", get(connections::as_json))
        .route("/api/v1/connections/{id}/close", post(close_connection))
        .route("/api/v1/history", get(history::as_json))
        .route("/api/v1/profile", get(plan::as_json))
        .route("/api/v1/audit", get(audit_page))
        .route("/api/v1/users", get(users))
        .route("/api/v1/volumes", get(volumes))
}

async fn openapi() -> Response {
    let mut response = OPENAPI.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer of the node as JSON.
pub(crate) fn answered(answer: Result<impl serde::Serialize, AdminError>) -> Response {
    match answer {
        Ok(value) => json_of(&value),
        Err(error) => refused(&error),
    }
}

/// Whether a visitor may change something here: with a token only. A page's form has another way, with a token of its own.
pub(crate) fn by_token(visitor: &Visitor) -> Result<(), AdminError> {
    match visitor.secret {
        None => Ok(()),
        Some(_) => {
            Err(AdminError::Denied("a change over the API needs a token: Authorization: Bearer TOKEN".to_owned()))
        }
    }
}

async fn status(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    if !state.sees_node(&visitor.caller) {
        return no_figures();
    }
    match state.figures().await {
        Some(snapshot) => json_of(&snapshot.figures),
        None => not_yet(),
    }
}

async fn operation(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(name): Path<String>) -> Response {
    if !state.sees_node(&visitor.caller) {
        return no_figures();
    }
    let Some(snapshot) = state.figures().await else { return not_yet() };
    let Some(one) = snapshot.figures.operations.iter().find(|one| one.name == name) else {
        return refused(&AdminError::Absent(format!("the production has no operation {name}")));
    };
    match state.admin.queue(&visitor.caller, &name).await {
        Ok(queue) => json_of(&json!({ "operation": one, "queue": queue })),
        // Who may not list messages sees the operation without them.
        Err(AdminError::Denied(_)) => json_of(&json!({ "operation": one, "queue": [] })),
        Err(error) => refused(&error),
    }
}

async fn suspend(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(name): Path<String>) -> Response {
    switch(&state, &visitor, &name, true).await
}

async fn resume(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(name): Path<String>) -> Response {
    switch(&state, &visitor, &name, false).await
}

async fn switch(state: &ConsoleState, visitor: &Visitor, name: &str, suspended: bool) -> Response {
    let done = match by_token(visitor) {
        Ok(()) => state.admin.set_suspended(&visitor.caller, name, suspended).await,
        Err(error) => Err(error),
    };
    answered(done.map(|()| json!({ "operation": name, "suspended": suspended })))
}

/// A page of the list, with its cursor as a text.
fn page_json(page: &MessagePage) -> Value {
    json!({
        "messages": page.lines,
        "next": page.next.map(messages_fields::place_text),
        "looked_at": page.looked_at,
        "is_partial": page.is_partial,
    })
}

async fn list(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let query = match messages_fields::query_of(&fields, state.options.guard.now_us()) {
        Ok(query) => query,
        Err(why) => return refused(&AdminError::Refused(why)),
    };
    answered(state.admin.messages(&visitor.caller, &query).await.map(|page| page_json(&page)))
}

/// A message without its bodies.
fn message_json(view: &MessageView) -> Value {
    let outputs = view.outputs.iter().map(|output| {
        json!({
            "operation": output.operation,
            "transform": output.transform,
            "bytes": output.bytes,
            "state": output.state,
            "at_us": output.ended.as_ref().map(|(at_us, _)| at_us),
            "answer": output.ended.as_ref().map(|(_, answer)| answer),
        })
    });
    json!({
        "id": view.id,
        "received_us": view.received_us,
        "service": view.service,
        "charset": view.charset,
        "status": view.status,
        "reason": view.reason,
        "duplicate": view.duplicate,
        "resent_from": view.resent_from,
        "made": view.made,
        "imported": view.imported,
        "derived": view.derived.iter().map(|(id, how)| json!({ "id": id, "how": how })).collect::<Vec<_>>(),
        "generation": view.generation,
        "bytes": view.bytes,
        "outputs": outputs.collect::<Vec<_>>(),
    })
}

async fn message(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(id): Path<u64>) -> Response {
    answered(state.admin.message(&visitor.caller, id, false).await.map(|view| message_json(&view)))
}

async fn message_body(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(id): Path<u64>) -> Response {
    match state.admin.message(&visitor.caller, id, true).await {
        Ok(MessageView { withheld: Some(why), .. }) => refused(&AdminError::Denied(why)),
        Ok(view) => {
            let output = |one: &crate::admin::OutputView| json!({ "operation": one.operation, "body": BASE64.encode(&one.body), "differences": one.differences });
            json_of(&json!({
                "id": view.id,
                "masked": view.masked,
                "body": BASE64.encode(&view.raw),
                "outputs": view.outputs.iter().map(output).collect::<Vec<_>>(),
            }))
        }
        Err(error) => refused(&error),
    }
}

/// The idempotency key of a request: 8 characters at least, so that two do not have the same by chance. Errors: the answer.
pub(crate) fn key_of(headers: &HeaderMap, most: usize) -> Result<&str, Response> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    key.filter(|key| (8..=most).contains(&key.len())).ok_or_else(|| {
        let text = format!("the request needs a header Idempotency-Key of 8 to {most} characters");
        respond::problem(400, &text).into_response()
    })
}

/// The operations that a request names with `to`.
pub(crate) fn operations_of(fields: &Fields) -> Result<Vec<String>, AdminError> {
    let operations: Vec<String> = fields.all("to").map(str::to_owned).collect();
    match operations.iter().any(|name| crate::format::word(name).is_none()) {
        true => Err(AdminError::Refused("an operation has another name".to_owned())),
        false => Ok(operations),
    }
}

async fn resend_message(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(id): Path<u64>,
    (headers, fields): (HeaderMap, Fields),
) -> Response {
    if let Err(error) = by_token(&visitor) {
        return refused(&error);
    }
    let key = match key_of(&headers, 255) {
        Ok(key) => key,
        Err(response) => return response,
    };
    let operations = match operations_of(&fields) {
        Ok(operations) => operations,
        Err(error) => return refused(&error),
    };
    let sent = resend::send_once(&state, &visitor.caller, key, (id, &operations)).await;
    answered(sent.map(|new| json!({ "id": new, "resent_from": id })))
}

async fn audit_page(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    match audit::query_of(&fields, state.options.guard.now_us()) {
        Ok(query) => answered(state.admin.audit(&visitor.caller, &query).await),
        Err(why) => refused(&AdminError::Refused(why)),
    }
}

async fn close_connection(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(id): Path<u64>) -> Response {
    match by_token(&visitor) {
        Ok(()) => answered(state.admin.close_connection(&visitor.caller, id).await),
        Err(error) => refused(&error),
    }
}

async fn users(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    answered(state.admin.roles(&visitor.caller).await.map(|roles| json!({ "users": roles })))
}

async fn volumes(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    answered(state.admin.volumes(&visitor.caller).await.map(|volumes| json!({ "volumes": volumes })))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let described: Value = serde_json::from_str(OPENAPI).expect("JSON");
        let paths = described["paths"].as_object().expect("paths");
        let found: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                methods
                    .as_object()
                    .expect("methods")
                    .keys()
                    .map(move |method| (format!("/api/v1{path}"), method.clone()))
            })
            .collect();
        let text = [include_str!("api.rs"), include_str!("api_work.rs")].concat();
        let routes = text.lines().filter_map(|line| line.trim().strip_prefix(".route(\""));
        let expected: BTreeSet<(String, String)> = routes
            .map(|line| {
                let (path, rest) = line.split_once("\", ").expect("a path and a method");
                (path.to_owned(), rest.split('(').next().unwrap_or_default().to_owned())
            })
            .collect();
        assert_eq!(found, expected);
        for (path, methods) in paths {
            for (method, about) in methods.as_object().expect("methods") {
                assert!(about["summary"].is_string() && about["responses"].is_object(), "{method} {path}");
            }
        }
    }
}
