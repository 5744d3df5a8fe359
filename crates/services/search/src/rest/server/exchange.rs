//! One request: from its head to its response.
//!
//! ```text
//!   head -> target, form -> who -> may it? -> body -> turn of its class -> thread: unpack, handler, render -> response
//!     |___________________________________________________|                (a brief write: the connection's own)
//!                 a refusal at any step; the rest of the body is read and dropped, so that the client can read the refusal
//! ```
//!
//! Invariants: nothing of a body is read for a client that may not send it; a request is cancelled when its client has gone
//! away (the protocol drops the future) and when the server ends; a panic ends one request.
//!
//! The protocol's library reads no further where a client sent a part of its next request already: such a connection is looked at
//! a few times a second (`pulse`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use device::supervise::{caught, rehearse, said};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::EXPECT;
use hyper::http::request::Parts as RequestHead;
use hyper::{Method, Request};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer::{self, AnswerForm, HttpResponse};
use super::body::{ArrivedBody, BodyBudget};
use super::figures::{REFUSED_CLASS, SearchFigures};
use super::held::HeldResponses;
use super::lanes::{ConnectionUse, RequestClass, RequestLanes, RequestTurn, TurnAsker, TurnOwner};
use super::logins::{self, CountedRole, HttpLogins, HttpOrigin};
use super::options::HttpOptions;
use super::pulse::ConnectionPulse;
use super::target::RequestTarget;
use crate::error::SearchError;
use crate::rest::message::{RestHandler, RestMethod, RestRequest, RestResponse};

/// Most bytes of the headers of a request. The protocol's library refuses those that are more than twice as large itself (431).
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;

/// Characters of `X-Opaque-Id` that are kept.
const OPAQUE_ID_MAX: usize = 256;

/// Most bytes of the body of a brief write.
const BRIEF_BYTES_MAX: usize = 16 << 10;

/// Operations that wait for the journal, and for nothing else.
const BRIEF: &[&str] = &["_bulk", "_doc", "_create", "_update"];

/// How far the server is with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopStage {
    /// It is not.
    Serving,
    /// No more requests are accepted; those that run may end.
    Ending,
    /// Those that still run are cancelled.
    Cancelling,
}

/// What all connections share.
pub(super) struct HttpShared {
    pub(super) handler: Arc<dyn RestHandler>,
    pub(super) options: HttpOptions,
    pub(super) lanes: RequestLanes,
    pub(super) logins: HttpLogins,
    pub(super) bodies: BodyBudget,
    pub(super) responses: Arc<HeldResponses>,
    pub(super) figures: Arc<SearchFigures>,
    pub(super) stop: watch::Receiver<StopStage>,
}

/// What a connection knows from one of its requests to the next.
pub(super) struct ConnectionState {
    pub(super) pulse: Arc<ConnectionPulse>,
    pub(super) counted: CountedRole,
    pub(super) used: ConnectionUse,
}

/// Sets the flag of a request when its future is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request that may run.
struct Accepted {
    request: RestRequest,
    body: ArrivedBody,
    turn: RequestTurn,
    class: RequestClass,
}

/// Answers a request.
pub(super) async fn answer(
    shared: &HttpShared,
    from: &HttpOrigin,
    of: &ConnectionState,
    request: Request<Incoming>,
) -> HttpResponse {
    let (_busy, began) = (of.pulse.busy(), Instant::now());
    let (head, mut body) = request.into_parts();
    let mut form = AnswerForm::usual(&head.method);
    if head.method == Method::OPTIONS {
        return answer::options();
    }
    let refusal = match caught(accept(shared, from, of, &head, &mut body, &mut form)).await {
        Ok(Ok(accepted)) => {
            let (class, runs) = (accepted.class, Instant::now());
            let (role, may_refuse) = (accepted.request.caller.session(), class == RequestClass::Read);
            let response = run(shared, accepted, form.clone()).await;
            of.used.took(runs.elapsed());
            let held = shared.responses.hold(role, may_refuse, response).await;
            let (response, class) = (held.unwrap_or_else(|full| form.render(full.into())), class.name());
            shared.figures.answered(class, response.status().as_u16(), began.elapsed());
            return response;
        }
        Ok(Err(refusal)) => refusal,
        Err(why) => panicked(&why),
    };
    // A client that was to wait for our leave to send its body got none.
    if !body.is_end_stream() && !head.headers.contains_key(EXPECT) {
        node::task::session("search-discard", discard(body, shared.options.clone(), shared.stop.clone()));
    }
    shared.figures.answered(REFUSED_CLASS, refusal.status, began.elapsed());
    form.render(refusal)
}

/// Everything up to the request's turn. Errors: the response with the refusal.
async fn accept(
    shared: &HttpShared,
    from: &HttpOrigin,
    of: &ConnectionState,
    head: &RequestHead,
    body: &mut Incoming,
    form: &mut AnswerForm,
) -> Result<Accepted, RestResponse> {
    let method = method(head)?;
    if head_bytes(head) > HEAD_BYTES_MAX {
        let reason = format!("HTTP header is larger than {HEAD_BYTES_MAX} bytes.");
        return Err(SearchError::new(400, "too_long_http_header_exception", reason).into());
    }
    let target = RequestTarget::read(&head.uri)?;
    *form = AnswerForm::read(head, &target.parameters)?;
    logins::refuse_other_sites(&head.headers)?;
    let caller = shared.logins.caller(&head.headers, from, head.uri.path()).await?;
    shared.logins.count(&of.counted, &caller, head.uri.path())?;
    of.pulse.prove();
    of.pulse.is_of(caller.session());
    let RequestTarget { path, parameters } = target;
    let cancelled = Arc::new(AtomicBool::new(false));
    let opaque_id = head.headers.get("x-opaque-id").and_then(|id| id.to_str().ok());
    let opaque_id = opaque_id.map(|id| id.chars().take(OPAQUE_ID_MAX).collect());
    let request = RestRequest { method, path, parameters, body: bytes::Bytes::new(), caller, opaque_id, cancelled };
    let most = if body.is_end_stream() { 0 } else { shared.handler.admit(&request)? };
    let role = request.caller.session();
    let body = shared.bodies.at_most(most, role).read(&head.headers, body, &shared.options.times).await?;
    if !body.is_empty() {
        answer::check_content_type(&head.headers)?;
    }
    of.pulse.whole();
    let waits = request.parameters.keys().any(|name| name.starts_with("wait_for_"));
    let class = RequestClass::of_request(method, &request.path, waits);
    let owner = TurnOwner::Role(role);
    let asker = TurnAsker { role: owner, operation: class.operation(&request.path), since: of.used.waits_since() };
    let Some(turn) = shared.lanes.of(class).turn(asker).await else {
        let name = class.name();
        return Err(SearchError::busy(format!("rejected execution: too many {name} requests run and wait")).into());
    };
    Ok(Accepted { request, body, turn, class })
}

fn head_bytes(head: &RequestHead) -> usize {
    head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

fn method(head: &RequestHead) -> Result<RestMethod, RestResponse> {
    Ok(match head.method {
        Method::GET => RestMethod::Get,
        Method::HEAD => RestMethod::Head,
        Method::POST => RestMethod::Post,
        Method::PUT => RestMethod::Put,
        Method::DELETE => RestMethod::Delete,
        ref other => {
            let path = head.uri.path();
            let allowed = answer::METHODS;
            let reason = format!("Incorrect HTTP method for uri [{path}] and method [{other}], allowed: [{allowed}]");
            let mut response = answer::refused(405, &reason);
            response.headers.push(("Allow", allowed.to_owned()));
            return Err(response);
        }
    })
}

/// Whether a request writes a few documents and waits for nothing but the journal.
fn is_brief(request: &RestRequest, body: &ArrivedBody) -> bool {
    let writes = matches!(request.method, RestMethod::Post | RestMethod::Put | RestMethod::Delete);
    let operation = request.path.iter().take(2).find(|segment| segment.starts_with('_'));
    writes
        && operation.is_some_and(|operation| BRIEF.contains(&operation.as_str()))
        && !request.parameters.contains_key("refresh")
        && body.is_at_most(BRIEF_BYTES_MAX)
}

/// Whether the runtime has another thread for what this one serves meanwhile.
fn has_others() -> bool {
    Handle::try_current().is_ok_and(|at| at.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Runs a request on a thread. Its turn and the memory of its body are given back when it has ended there. A brief write runs on the thread
/// of its connection, which serves nothing else meanwhile: two changes of threads take longer than a fast medium. Where it waits for a
/// device, the runtime has another thread for other connections; on persistent memory it waits for none. It cannot be cancelled.
///
/// One client, bulks of one document, modelled drive: 4,400 documents/s in this way, 2,940 with a thread of its own for each request;
/// modelled persistent memory: 7,000 on the connection's thread, 5,600 where the runtime changed threads (2026-11-26).
async fn run(shared: &HttpShared, accepted: Accepted, form: AnswerForm) -> HttpResponse {
    let Accepted { mut request, body, turn, class: _ } = accepted;
    let (cancelled, caller) = (Arc::clone(&request.cancelled), request.caller.clone());
    let _leaving = CancelOnDrop(Arc::clone(&cancelled));
    let handler = Arc::clone(&shared.handler);
    let is_brief = is_brief(&request, &body);
    let work = move || {
        let _turn = turn;
        let work = || {
            rehearse("search-request");
            let (bytes, _memory) = body.unpacked()?;
            request.body = bytes;
            Ok(form.render(handler.respond(&request)))
        };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(response)) => response,
            Ok(Err(refusal)) => form.render(SearchError::into(refusal)),
            Err(payload) => form.render(panicked(&said(&*payload))),
        }
    };
    if is_brief && shared.handler.is_inline() {
        return work();
    }
    if is_brief && has_others() {
        return tokio::task::block_in_place(work);
    }
    let mut work = tokio::task::spawn_blocking(work);
    let mut stop = shared.stop.clone();
    let ended = tokio::select! {
        ended = &mut work => Some(ended),
        _ = stop.wait_for(|stage| *stage == StopStage::Cancelling) => None,
        // Nobody may have the answer any more.
        () = shared.logins.revoked(&caller) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            cancelled.store(true, Ordering::Relaxed);
            work.await
        }
    };
    // It fails only if the runtime ends, as panics are caught.
    ended.unwrap_or_else(|error| AnswerForm::default().render(SearchError::internal(error.to_string()).into()))
}

/// A panic is a fault of this program: it is logged, and the client learns that it happened.
fn panicked(why: &str) -> RestResponse {
    tracing::error!(why, "a request of search ended by a panic, and no other; report it");
    SearchError::internal("the request ended by a fault of the program; its log has the text").into()
}

/// Reads the rest of a body that was refused, for a while: a connection that is closed before that would lose the response.
async fn discard(mut body: Incoming, options: HttpOptions, mut stop: watch::Receiver<StopStage>) {
    let all = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
            if bytes > options.body_bytes_max {
                break;
            }
        }
    };
    // In time or not: the connection ends with the rest unread.
    tokio::select! {
        _ = timeout(options.times.head, all) => {}
        _ = stop.wait_for(|stage| *stage > StopStage::Serving) => {}
    }
}
