//! The part of the API for what operators do, for queries and for searches: see `api`, whose rules count here.
//!
//! An `Idempotency-Key` of a reprocess is stored with each message that it makes, so that it counts across a restart too.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};
use node::identity::{Action, Object};
use serde_json::json;

use crate::admin::AdminError;
use crate::api::{answered, by_token, key_of, operations_of};
use crate::form::Fields;
use crate::format::moment;
use crate::gate::Visitor;
use crate::once::once;
use crate::operator::{ReprocessFilter, ReprocessOrder};
use crate::pages::{changes, finding, refused, set_aside, sql, todo, transfer};
use crate::respond;
use crate::state::ConsoleState;
use crate::transfer_admin::ImportOrder;

/// Bytes of an edited body.
const EDITED_BYTES_MAX: usize = 16 << 20;

/// Bytes of a file that is imported here; the command line takes longer ones.
const IMPORT_BYTES_MAX: usize = 16 << 20;

/// Characters of a key that is stored with messages.
const STORED_KEY_MAX: usize = 100;

/// Generations of a list.
const GENERATIONS: usize = 100;

/// The routes.
pub(crate) fn router() -> Router<Arc<ConsoleState>> {
    Router::new()
        .route("/api/v1/messages/export", get(transfer::export))
        .route("/api/v1/messages/import", post(import))
        .route("/api/v1/messages/{id}/edit", post(edit))
        .route("/api/v1/messages/{id}/reprocess", post(reprocess_message))
        .route("/api/v1/reprocess", post(reprocess))
        .route("/api/v1/operations/{name}/set-aside", post(set_message_aside))
        .route("/api/v1/todo", get(todo_list))
        .route("/api/v1/todo/{id}", post(change_todo))
        .route("/api/v1/generations", get(generations))
        .route("/api/v1/generations/diff", get(generation_diff))
        .route("/api/v1/generations/{number}/back", post(back))
        .route("/api/v1/production/load", post(load))
        .route("/api/v1/sql", post(query))
        .route("/api/v1/indices", get(indices))
        .route("/api/v1/search", get(search))
}

async fn edit(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(id): Path<u64>,
    fields: Fields,
    request: Request,
) -> Response {
    if let Err(error) = by_token(&visitor) {
        return refused(&error);
    }
    let (parts, body) = request.into_parts();
    let key = match key_of(&parts.headers, 255) {
        Ok(key) => key,
        Err(response) => return response,
    };
    let operations = match operations_of(&fields) {
        Ok(operations) => operations,
        Err(error) => return refused(&error),
    };
    // As of a file that is imported: who sends slowly holds up others that edit, and nobody else.
    let _place = match state.edit_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let Ok(body) = axum::body::to_bytes(body, EDITED_BYTES_MAX).await else {
        return respond::problem(413, "an edited body has 16 MiB at most").into_response();
    };
    let request = [format!("edit {id} {operations:?} ").as_bytes(), &body].concat();
    let (admin, by) = (Arc::clone(&state.admin), visitor.caller.clone());
    let work = async move { admin.resend_edited(&by, id, &operations, &body).await };
    // The key of a resend is another one: who may not edit learns nothing of it.
    let sent = once(&state, &visitor.caller, (&format!("edit:{key}"), &request), work).await;
    answered(sent.map(|new| json!({ "id": new, "resent_from": id })))
}

/// `POST /api/v1/messages/import`: needs no idempotency key, since the same file is never stored twice.
async fn import(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    fields: Fields,
    request: Request,
) -> Response {
    let service = fields.get("service").unwrap_or_default().to_owned();
    let may = state.may(&visitor.caller, Action::MessageImport, Object::Service(&service));
    let denied = AdminError::Denied("permission denied: message-import is not allowed".to_owned());
    if let Err(error) = by_token(&visitor).and(if may { Ok(()) } else { Err(denied) }) {
        return refused(&error);
    }
    let replay = match fields.get("as") {
        None | Some("received") => false,
        Some("replay") => true,
        Some(_) => return refused(&AdminError::Refused("as is received or replay".to_owned())),
    };
    // Before the file is read: as many as have a place take the memory of one. A slow one holds up imports only.
    let _place = match state.import_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let Ok(file) = axum::body::to_bytes(request.into_body(), IMPORT_BYTES_MAX).await else {
        return respond::problem(413, "a file has 16 MiB at most here: `terrace message import` takes longer ones")
            .into_response();
    };
    let (dry_run, allow_masked) = (fields.get("dry_run").is_some(), fields.get("allow_masked").is_some());
    let order = ImportOrder { service, replay, dry_run, allow_masked, file };
    answered(state.admin.import(&visitor.caller, &order).await)
}

/// The key of a reprocess; none of a preview, which makes nothing.
fn reprocess_key(headers: &HeaderMap, fields: &Fields) -> Result<Option<String>, Response> {
    match fields.get("preview") {
        Some(_) => Ok(None),
        None => key_of(headers, STORED_KEY_MAX).map(|key| Some(key.to_owned())),
    }
}

async fn reprocess_message(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(id): Path<u64>,
    (headers, fields): (HeaderMap, Fields),
) -> Response {
    if let Err(error) = by_token(&visitor) {
        return refused(&error);
    }
    let key = match reprocess_key(&headers, &fields) {
        Ok(key) => key,
        Err(response) => return response,
    };
    let generation = match generation_of(&fields) {
        Ok(generation) => generation,
        Err(error) => return refused(&error),
    };
    // It may wait for queues.
    let _place = match state.long_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let order = ReprocessOrder { ids: vec![id], preview: key.is_none(), key, generation, ..ReprocessOrder::default() };
    answered(state.admin.reprocess(&visitor.caller, &order).await)
}

/// The generation of the preview that a run is of.
fn generation_of(fields: &Fields) -> Result<Option<u32>, AdminError> {
    let read = fields.get("generation").map(str::parse).transpose();
    read.map_err(|_| AdminError::Refused("generation is the number that a preview told".to_owned()))
}

/// The search of a reprocess's fields, and where it begins.
fn search_of(fields: &Fields, now_us: i64) -> Result<(ReprocessFilter, u64, usize), AdminError> {
    let wrong = |text: String| AdminError::Refused(text);
    let time = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(text) => {
            moment(text, now_us).map(Some).ok_or_else(|| wrong(format!("`{text}` is neither a time nor an age as 2h")))
        }
    };
    let number = |name: &str| match fields.get(name).map(str::parse::<u64>) {
        None => Ok(0),
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => Err(wrong(format!("{name} is a number"))),
    };
    let status =
        fields.get("status").ok_or_else(|| wrong("status is errored, unmatched, rejected or dropped".into()))?;
    let filter = ReprocessFilter {
        status: status.to_owned(),
        service: fields.get("service").map(str::to_owned),
        since_us: time("since")?,
        until_us: time("until")?,
    };
    Ok((filter, number("after")?, number("limit")?.min(100) as usize))
}

async fn reprocess(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    (headers, fields): (HeaderMap, Fields),
) -> Response {
    if let Err(error) = by_token(&visitor) {
        return refused(&error);
    }
    let key = match reprocess_key(&headers, &fields) {
        Ok(key) => key,
        Err(response) => return response,
    };
    let asked = search_of(&fields, state.options.guard.now_us());
    let ((filter, after, limit), generation) = match asked.and_then(|search| Ok((search, generation_of(&fields)?))) {
        Ok(asked) => asked,
        Err(error) => return refused(&error),
    };
    let _place = match state.long_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    let preview = key.is_none();
    let order = ReprocessOrder { ids: Vec::new(), search: Some(filter), after, limit, key, preview, generation };
    answered(state.admin.reprocess(&visitor.caller, &order).await)
}

async fn set_message_aside(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(name): Path<String>,
    fields: Fields,
) -> Response {
    let order = by_token(&visitor).and_then(|()| set_aside::order_of(&name, &fields));
    match order {
        Ok(order) => answered(state.admin.set_aside(&visitor.caller, &order).await),
        Err(error) => refused(&error),
    }
}

async fn todo_list(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    match todo::query_of(&fields) {
        Ok(query) => answered(state.admin.todo(&visitor.caller, &query).await),
        Err(error) => refused(&error),
    }
}

async fn change_todo(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(id): Path<u64>,
    fields: Fields,
) -> Response {
    let done = match by_token(&visitor).and_then(|()| todo::act_of(&fields)) {
        Ok(act) => state.admin.change_todo(&visitor.caller, id, &act).await,
        Err(error) => Err(error),
    };
    answered(done.map(|()| json!({ "id": id })))
}

async fn generations(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    answered(state.admin.generations(&visitor.caller, GENERATIONS).await)
}

async fn generation_diff(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let sides = changes::side(fields.get("from").unwrap_or_default())
        .and_then(|from| Ok((from, changes::side(fields.get("to").unwrap_or_default())?)));
    match sides {
        Ok((from, to)) => answered(state.admin.generation_diff(&visitor.caller, from, to).await),
        Err(error) => refused(&error),
    }
}

async fn back(State(state): State<Arc<ConsoleState>>, visitor: Visitor, Path(number): Path<u32>) -> Response {
    match by_token(&visitor) {
        Ok(()) => answered(state.admin.go_back(&visitor.caller, number).await),
        Err(error) => refused(&error),
    }
}

async fn load(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let done = match by_token(&visitor).and_then(|()| changes::shown_folder(&fields)) {
        Ok(shown) => state.admin.load_folder(&visitor.caller, shown).await,
        Err(error) => Err(error),
    };
    answered(done.map(|changes| json!({ "changes": changes })))
}

async fn query(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    // A page of another site cannot send a token, and so runs nothing.
    match by_token(&visitor) {
        Ok(()) => answered(sql::read(&state, &visitor, fields.text("q"), sql::API_BOUNDS).await),
        Err(error) => refused(&error),
    }
}

async fn indices(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    let source = match finding::source(&state, &visitor) {
        Ok(source) => source,
        Err(error) => return refused(&error),
    };
    answered(source.indices(&visitor.caller).await.map(|indices| json!({ "indices": indices })))
}

async fn search(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let asked = finding::source(&state, &visitor).and_then(|source| Ok((source, finding::question_of(&fields)?)));
    match asked {
        Ok((source, question)) => answered(source.find(&visitor.caller, &question).await),
        Err(error) => refused(&error),
    }
}
