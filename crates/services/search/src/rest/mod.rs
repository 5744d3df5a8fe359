//! The Elasticsearch REST API: requests, what answers them, and the server that reads them from sockets.
//!
//! ```text
//!   socket -- server --> RestRequest -- Api: routes --> documents, bulk, searches, by_query, admin, cluster, tasks, cat
//!                                                         |
//!                                       RestResponse <----+
//! ```

mod admin;
mod aliases;
mod api;
mod audited;
mod authenticated;
mod bulk;
mod by_query;
mod cat;
mod cluster;
mod conditions;
mod contexts;
mod documents;
mod examples;
mod lookups;
mod maintenance;
pub mod message;
mod nodes;
mod parameters;
mod routes;
mod routing;
mod searches;
pub mod server;
mod tables;
mod task_requests;
mod tasks;
mod templates;
#[cfg(test)]
mod tests;

pub use api::Api;
pub use examples::ROUTE_EXAMPLES;
pub use message::{RestBody, RestHandler, RestMethod, RestRequest, RestResponse, Unavailable};
pub use server::{HttpError, HttpOptions, HttpServer, HttpTimes, LaneBounds, SearchFigures};
