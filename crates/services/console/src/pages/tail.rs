//! `GET /api/v1/messages/tail`: what `terrace message tail` shows, as a stream of events (`text/event-stream`), one JSON object each. The page
//! has the same stream with rows of its table.
//!
//! ```text
//!   node's request `tail` --parts, a few ahead--> stream: does the session hold? --> data: {"event":"message", ..}
//! ```
//!
//! Invariants: rights, masking and the audit are those of the node's request; a program that does not read makes nothing wait but its own
//! stream; before each event, and each second, it is asked whether the visitor is still one; when the stream is dropped the request ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use maud::{Markup, html};
use node::RolePlace;
use node::identity::Action;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::refused;
use crate::address::target;
use crate::admin_error::AdminError;
use crate::form::Fields;
use crate::gate::{Visitor, still_holds};
use crate::respond;
use crate::state::{ConsolePeer, ConsoleState};
use crate::tail_admin::TailQuery;

/// Parts that are made ahead of a client.
const AHEAD: usize = 4;

/// How often it is asked whether the visitor is still one, while nothing comes.
const LOOK: Duration = Duration::from_secs(1);

/// A link to the page about this service or operation, for who may look at messages.
pub(super) fn link(state: &ConsoleState, visitor: &Visitor, service: &str, operation: &str) -> Markup {
    let path = target("/messages/tail", &[("service", service), ("operation", operation)]);
    html! { @if state.may_some(&visitor.caller, Action::MessageMetadata) { a.button href=(path) { "Tail" } } }
}

/// The query of a request's fields.
fn query_of(fields: &Fields) -> Result<TailQuery, AdminError> {
    let text = |name: &str| fields.get(name).map(str::to_owned);
    let from = match fields.get("from") {
        None | Some("now") => None,
        Some(id) => {
            let read = id.parse().ok();
            Some(read.ok_or_else(|| AdminError::Refused("from is the id of a message, or now".to_owned()))?)
        }
    };
    Ok(TailQuery {
        service: text("service"),
        operation: text("operation"),
        kind: text("type"),
        bodies: fields.get("bodies").is_some(),
        from,
    })
}

/// How the parts of a stream are written.
#[derive(Clone, Copy)]
pub(super) struct TailForm {
    /// A part, as an event.
    pub(super) event: fn(&Value) -> Bytes,
    /// Whether it is for a page, which can show why there is no stream only as a part of one.
    pub(super) is_page: bool,
}

/// For programs.
const JSON: TailForm = TailForm { event: json_event, is_page: false };

fn json_event(part: &Value) -> Bytes {
    // JSON has no line ends of its own.
    Bytes::from(format!("data: {part}\n\n"))
}

/// The last part, why there are no more.
fn last_words(error: &AdminError) -> Value {
    json!({ "event": "ended", "why": error.to_string() })
}

/// A stream at work.
struct TailStream {
    state: Arc<ConsoleState>,
    visitor: Visitor,
    peer: ConsolePeer,
    form: TailForm,
    first: Option<Value>,
    parts: mpsc::Receiver<Value>,
    /// Why it ended, once it has.
    ended: oneshot::Receiver<Result<(), AdminError>>,
    is_over: bool,
    _place: RolePlace,
}

impl TailStream {
    /// The next event; none at the end.
    async fn event(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let part = match self.first.take() {
            Some(first) => Some(first),
            None => self.part().await?,
        };
        if !still_holds(&self.state, &self.visitor, self.peer) {
            return None;
        }
        let part = match (part, self.ended.try_recv()) {
            // What was on its way to somebody who may not have it any more stays here.
            (_, Ok(Err(error))) => self.over(&error),
            (Some(part), _) => part,
            (None, Err(oneshot::error::TryRecvError::Empty)) => match (&mut self.ended).await {
                Ok(Err(error)) => self.over(&error),
                _ => return None,
            },
            (None, _) => return None,
        };
        Some((self.form.event)(&part))
    }

    /// The next part; within it none where there are no more.
    async fn part(&mut self) -> Option<Option<Value>> {
        let mut stop = self.state.stop.clone();
        loop {
            tokio::select! {
                part = self.parts.recv() => return Some(part),
                _ = stop.wait_for(|stop| *stop) => return None,
                () = tokio::time::sleep(LOOK) => {
                    if !still_holds(&self.state, &self.visitor, self.peer) {
                        return None;
                    }
                }
            }
        }
    }

    /// The reason why a tail was ended, as its last event.
    fn over(&mut self, error: &AdminError) -> Value {
        self.is_over = true;
        last_words(error)
    }
}

/// See the module's text.
pub(crate) async fn stream(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Extension(peer): Extension<ConsolePeer>,
    fields: Fields,
) -> Response {
    match query_of(&fields) {
        Ok(query) => stream_as(state, (visitor, peer), query, JSON).await,
        Err(error) => refused(&error),
    }
}

/// A stream of what is asked for, in a form.
pub(super) async fn stream_as(
    state: Arc<ConsoleState>,
    (visitor, peer): (Visitor, ConsolePeer),
    query: TailQuery,
    form: TailForm,
) -> Response {
    let not_begun = |error: &AdminError| match error {
        AdminError::Absent(_) | AdminError::Refused(_) | AdminError::Unavailable(_) if form.is_page => {
            events((form.event)(&last_words(error)).into())
        }
        _ => refused(error),
    };
    let place = match state.tab_place(&visitor.caller) {
        Ok(place) => place,
        Err(full) => return not_begun(&full),
    };
    let ((sender, mut parts), (told, mut ended)) = (mpsc::channel(AHEAD), oneshot::channel());
    let (admin, caller) = (Arc::clone(&state.admin), visitor.caller.clone());
    node::task::session("console-tail", async move {
        // The stream may be gone.
        let _ = told.send(admin.tail(&caller, &query, sender).await);
    });
    // What is refused is refused before anything is streamed.
    let Some(first) = parts.recv().await else {
        return match (&mut ended).await {
            Ok(Err(error)) => not_begun(&error),
            _ => respond::problem(503, "the node is stopping").into_response(),
        };
    };
    let (first, _place) = (Some(first), place);
    let tail = TailStream { state, visitor, peer, form, first, parts, ended, is_over: false, _place };
    let all = stream::unfold(tail, async |mut tail| tail.event().await.map(|event| (Ok::<_, Infallible>(event), tail)));
    events(Body::from_stream(all))
}

fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_a_query_and_a_wrong_beginning_is_refused() {
        let fields = |all: &[(&str, &str)]| {
            Fields(all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
        };
        let read = query_of(&fields(&[("type", "ADT"), ("from", "8"), ("bodies", "yes")])).expect("a query");
        let expected = TailQuery { kind: Some("ADT".into()), from: Some(8), bodies: true, ..TailQuery::default() };
        assert_eq!(read, expected);
        assert_eq!(query_of(&fields(&[("from", "now")])), Ok(TailQuery::default()));
        assert!(query_of(&fields(&[("from", "yesterday")])).is_err());
    }
}
