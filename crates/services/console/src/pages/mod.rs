//! The pages, a file each: what a visitor sees, made of what the node answers to the visitor. The routes to them are in `routes`.

pub(crate) mod account;
pub(crate) mod alerts;
pub(crate) mod audit;
mod banner;
pub(crate) mod bulk;
pub(crate) mod changes;
mod charts;
pub(crate) mod connections;
pub(crate) mod editing;
pub(crate) mod finding;
pub(crate) mod history;
pub(crate) mod media;
pub(crate) mod message;
pub(crate) mod messages;
pub(crate) mod messages_fields;
pub(crate) mod operation;
mod operation_table;
mod past;
pub(crate) mod plan;
pub(crate) mod production;
pub(crate) mod reprocess;
pub(crate) mod resend;
pub(crate) mod saved;
pub(crate) mod set_aside;
pub(crate) mod sql;
pub(crate) mod tail;
pub(crate) mod tail_page;
pub(crate) mod todo;
pub(crate) mod transfer;
pub(crate) mod trying;
pub(crate) mod users;
pub(crate) mod volumes;

use axum::response::Response;

use crate::admin::AdminError;
use crate::respond;

/// The response to somebody whose request the node did not answer.
pub(crate) fn refused(error: &AdminError) -> Response {
    let status = match error {
        AdminError::Denied(_) => 403,
        AdminError::Absent(_) => 404,
        AdminError::Refused(_) => 422,
        AdminError::Unavailable(_) => 503,
    };
    respond::problem(status, &error.to_string()).into_response()
}

/// The response to somebody who may not see the figures of the node.
pub(crate) fn no_figures() -> Response {
    let text =
        "permission denied: node-status is not allowed; `terrace role grant node-status --on node --to ROLE` grants it";
    respond::problem(403, text).into_response()
}

/// The response while there are no figures yet.
pub(crate) fn not_yet() -> Response {
    respond::problem(503, "the node has not counted anything yet: load the page again in a moment").into_response()
}
