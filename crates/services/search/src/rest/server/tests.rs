//! The server over real sockets of this machine, with handlers of a few lines.

mod addresses;
mod bounds;
mod client;
mod forms;
mod security;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{HttpOptions, HttpServer, HttpTimes, LaneBounds};
use crate::rest::message::{RestBody, RestHandler, RestRequest, RestResponse};

/// A handler of one function.
struct Answering<F>(F);

impl<F: Fn(&RestRequest) -> RestResponse + Send + Sync + 'static> RestHandler for Answering<F> {
    fn respond(&self, request: &RestRequest) -> RestResponse {
        (self.0)(request)
    }
}

/// Options on a free port.
fn options() -> HttpOptions {
    HttpOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..HttpOptions::default() }
}

async fn started(
    options: HttpOptions,
    answer: impl Fn(&RestRequest) -> RestResponse + Send + Sync + 'static,
) -> HttpServer {
    HttpServer::start(Arc::new(Answering(answer)), options).await.expect("it starts")
}

/// Says what arrived.
fn echo(request: &RestRequest) -> RestResponse {
    let body = String::from_utf8_lossy(&request.body).into_owned();
    let method = format!("{:?}", request.method);
    RestResponse::json(
        200,
        json!({"method": method, "path": request.path, "body": body, "user": format!("{:?}", request.caller.session())}),
    )
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
