//! One request: its target, who may have the answer, and the answer.
//!
//! | target | answer | for whom |
//! |---|---|---|
//! | `/healthz` | 200 `ok`: the process lives and serves this | whoever the access rules let come |
//! | `/readyz` | 200 `ready`, or 503 `not ready` | the same; the reasons are for who may read the figures |
//! | `/metrics` | the figures | who has the right `node-metrics` |
//!
//! Methods are GET and HEAD; a body is not read. A browser at this machine may open `/healthz` and `/readyz`, no page may read figures.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::http::HeaderValue;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use super::logins::{self, ScrapeOrigin, ScrapeRefusal};
use super::{MetricsShared, Phase, Served};

/// A response, made whole.
pub(super) type ScrapeResponse = Response<Full<Bytes>>;

/// The content type of everything but figures.
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers a request; whether its sender is one who belongs here.
pub(super) async fn answer(
    shared: &MetricsShared,
    from: ScrapeOrigin,
    request: &Request<Incoming>,
) -> (ScrapeResponse, bool) {
    let answered = match device::supervise::caught(answered(shared, from, request)).await {
        Ok(answered) => answered,
        Err(why) => {
            tracing::error!(why, "a request for metrics ended by a panic, and no other; report it");
            Err(ScrapeRefusal::new(500, "the request ended by a fault of the program; its log has the text"))
        }
    };
    let is_proven = answered.is_ok();
    let mut response = match answered {
        Ok((status, content_type, body)) => response(status, content_type, body),
        Err(refusal) => refused(&refusal),
    };
    if !request.body().is_end_stream() {
        // A body is not read, so nothing that follows it can be.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    (response, is_proven)
}

/// Status, content type, body.
type Answered = (StatusCode, &'static str, Bytes);

async fn answered(
    shared: &MetricsShared,
    from: ScrapeOrigin,
    request: &Request<Incoming>,
) -> Result<Answered, ScrapeRefusal> {
    let phase = shared.phase.read().clone();
    match &phase {
        Phase::Starting
            if !shared.options.access.admit_anybody(from.visit().port, Some(from.peer.ip()), from.is_secure) =>
        {
            return Err(ScrapeRefusal::new(403, "the access rules let nobody come from there"));
        }
        Phase::Starting => {}
        Phase::Serving(served) | Phase::Ending(served) => logins::admit(served, from).await?,
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(ScrapeRefusal::new(405, "only GET and HEAD are answered"));
    }
    match request.uri().path() {
        "/healthz" => Ok((StatusCode::OK, TEXT, Bytes::from_static(b"ok\n"))),
        "/readyz" => Ok(readiness(shared, &phase, from, request.headers()).await),
        "/metrics" => metrics(shared, &phase, from, request.headers()).await,
        _ => Err(ScrapeRefusal::new(404, "there are /metrics, /healthz and /readyz")),
    }
}

/// Whether the node takes messages; why not is for who may read the figures.
async fn readiness(shared: &MetricsShared, phase: &Phase, from: ScrapeOrigin, headers: &HeaderMap) -> Answered {
    let (served, hindrances) = match phase {
        Phase::Starting => (None, vec!["starting: the store is being opened".to_owned()]),
        Phase::Serving(served) => (Some(served), hindrances(served).await),
        Phase::Ending(served) => (Some(served), vec!["stopping".to_owned()]),
    };
    if hindrances.is_empty() {
        return (StatusCode::OK, TEXT, Bytes::from_static(b"ready\n"));
    }
    let is_told = match served {
        // Nobody can log in yet, and there is nothing but that to tell.
        None => true,
        // A probe that shows nothing gets the status alone, without a failed login.
        Some(served) => logins::reader(served, headers, from, shared.options.trust).await.is_ok(),
    };
    let reasons = if is_told { hindrances.iter().map(|why| format!("{why}\n")).collect() } else { String::new() };
    (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready\n{reasons}").into())
}

async fn hindrances(served: &Arc<Served>) -> Vec<String> {
    let asked = Arc::clone(served);
    let answer = tokio::task::spawn_blocking(move || (asked.hindrances)()).await;
    answer.unwrap_or_else(|_| vec!["it cannot be told whether it is ready: a fault of the program".to_owned()])
}

async fn metrics(
    shared: &MetricsShared,
    phase: &Phase,
    from: ScrapeOrigin,
    headers: &HeaderMap,
) -> Result<Answered, ScrapeRefusal> {
    let (Phase::Serving(served) | Phase::Ending(served)) = phase else {
        let text = "the node is starting: its store is being opened";
        return Err(ScrapeRefusal { retry_after: Some(1), ..ScrapeRefusal::new(503, text) });
    };
    logins::reader(served, headers, from, shared.options.trust).await?;
    let snapshots = Arc::clone(&served.snapshots);
    match tokio::task::spawn_blocking(move || snapshots.exposition()).await {
        Ok(exposition) => {
            let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
            let (content_type, text) = exposition.accepted(accept);
            Ok((StatusCode::OK, content_type, text))
        }
        Err(error) => {
            tracing::error!(%error, "figures could not be gathered; report it");
            Err(ScrapeRefusal::new(500, "figures could not be gathered: a fault of the program; its log has the text"))
        }
    }
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> ScrapeResponse {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

fn refused(refusal: &ScrapeRefusal) -> ScrapeResponse {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = response(status, TEXT, format!("{}\n", refusal.text).into());
    let headers = response.headers_mut();
    match refusal.status {
        401 => _ = headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"terrace\"")),
        405 => _ = headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD")),
        _ => {}
    }
    if let Some(seconds) = refusal.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
