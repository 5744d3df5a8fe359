//! The Elasticsearch REST API: requests, what answers them, and the server that reads them from sockets.
//!
//! ```text
//!   socket -- server --> RestRequest -- RestHandler --> RestResponse -- server --> socket
//! ```

pub mod message;
pub mod server;

pub use message::{RestBody, RestHandler, RestRequest, RestResponse};
pub use server::{Authenticate, HttpError, HttpOptions, HttpServer, HttpTimes, LaneBounds};
