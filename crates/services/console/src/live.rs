//! What is live: a stream of events for each tab that has something live, of the one collection a second that `ticker` makes.
//!
//! ```text
//!   Snapshot --watch--> stream of a tab: still allowed? --> the fragment of its page
//! ```
//!
//! Invariants: a tab that does not read makes nothing wait and keeps nothing: it gets the
//! newest fragment when it reads again; before each fragment is asked whether the session holds and the right is there, and the stream
//! ends if not. So what was revoked shows nothing new after a second.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use maud::Markup;
use node::RolePlace;

use crate::gate::{Visitor, still_holds};
use crate::respond;
use crate::state::{ConsolePeer, ConsoleState};
use crate::ticker::{Newest, Snapshot};

/// A fragment of a page, of the newest collection.
pub(crate) type Fragment = fn(&ConsoleState, &Visitor, &Snapshot) -> Markup;

/// A tab's stream.
struct Tab {
    state: Arc<ConsoleState>,
    visitor: Visitor,
    peer: ConsolePeer,
    newest: Newest,
    fragment: Fragment,
    _place: RolePlace,
}

impl Tab {
    /// The next event; none at the end.
    async fn event(&mut self) -> Option<Bytes> {
        let mut stop = self.state.stop.clone();
        tokio::select! {
            changed = self.newest.changed() => changed.ok()?,
            _ = stop.wait_for(|stop| *stop) => return None,
        }
        if !still_holds(&self.state, &self.visitor, self.peer) || !self.state.sees_node(&self.visitor.caller) {
            return None;
        }
        let snapshot = self.newest.borrow_and_update().clone()?;
        Some(event_of(&(self.fragment)(&self.state, &self.visitor, &snapshot).into_string()))
    }
}

/// A text as the data of an event.
pub(crate) fn event_of(text: &str) -> Bytes {
    let mut event = String::with_capacity(text.len() + 16);
    for line in text.split(['\n', '\r']) {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    Bytes::from(event)
}

/// The stream of a tab; refused where there are too many, or the visitor may not see the node.
pub(crate) fn stream_of(
    state: &Arc<ConsoleState>,
    visitor: Visitor,
    peer: ConsolePeer,
    fragment: Fragment,
) -> Response {
    if !state.sees_node(&visitor.caller) {
        return respond::problem(403, "permission denied: node-status is not allowed").into_response();
    }
    let place = match state.tab_place(&visitor.caller) {
        Ok(place) => place,
        Err(full) => return respond::problem(503, &full.to_string()).into_response(),
    };
    let mut newest = state.snapshot.clone();
    // A page has what is there now; the stream has what comes next.
    newest.mark_unchanged();
    let tab = Tab { state: Arc::clone(state), visitor, peer, newest, fragment, _place: place };
    let events = stream::unfold(tab, async |mut tab| tab.event().await.map(|event| (Ok::<_, Infallible>(event), tab)));
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_end_an_event_or_begin_another_one() {
        let event = event_of("<p>a\r\n\r\nevent: close\ndata: x</p>");
        let text = std::str::from_utf8(&event).expect("text");
        assert_eq!(text.matches("\n\n").count(), 1, "{text:?}");
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with("data: ")), "{text:?}");
    }
}
