//! What is live: one collection of figures a second for all tabs, and a stream of events for each tab that has some.
//!
//! ```text
//!   Ticker, once a second --Admin::figures--> Snapshot --watch--> stream of a tab: still allowed? --> the fragment of its page
//! ```
//!
//! Invariants: no number of tabs makes another collection; a tab that does not read makes nothing wait and keeps nothing: it gets the
//! newest fragment when it reads again; before each fragment is asked whether the session holds and the right is there, and the stream
//! ends if not. So what was revoked shows nothing new after a second.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use maud::Markup;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{Admin, NodeFigures};
use crate::answer;
use crate::gate::{Visitor, still_holds};
use crate::rates::{History, Point, Rates};
use crate::state::{ConsolePeer, ConsoleState};

/// How often figures are collected.
const TICK: Duration = Duration::from_secs(1);

/// One collection.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) figures: NodeFigures,
    pub(crate) rates: Rates,
    /// The last minutes, for charts.
    pub(crate) history: Arc<Mutex<History>>,
}

/// What a watcher of collections gets; none before the first one.
type Newest = watch::Receiver<Option<Arc<Snapshot>>>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Ticker;

impl Ticker {
    /// Starts to collect, until `stop` is set. `failed` gets the text of a panic.
    pub(crate) fn start(
        admin: Arc<dyn Admin>,
        mut stop: watch::Receiver<bool>,
        failed: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> (JoinHandle<()>, Newest) {
        let (newest, snapshot) = watch::channel(None);
        let work = async move {
            let history = Arc::new(Mutex::new(History::default()));
            let mut tick = interval(TICK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = tick.tick() => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
                match admin.figures().await {
                    Ok(figures) => {
                        let before = newest.borrow().clone();
                        newest.send_replace(Some(next(before.as_deref(), figures, &history)));
                    }
                    Err(error) => tracing::debug!(%error, "the console has no new figures"),
                }
            }
        };
        (node::task::supervised("console-ticker", work, move |why| failed(why)), snapshot)
    }
}

fn next(before: Option<&Snapshot>, figures: NodeFigures, history: &Arc<Mutex<History>>) -> Arc<Snapshot> {
    let rates = before.map(|before| Rates::between(&before.figures, &figures)).unwrap_or_default();
    if before.is_some() {
        history.lock().push(Point::of(figures.at_us, &rates));
    }
    Arc::new(Snapshot { figures, rates, history: Arc::clone(history) })
}

/// A fragment of a page, of the newest collection.
pub(crate) type Fragment = fn(&ConsoleState, &Visitor, &Snapshot) -> Markup;

/// A tab's stream.
struct Tab {
    state: Arc<ConsoleState>,
    visitor: Visitor,
    peer: ConsolePeer,
    newest: Newest,
    fragment: Fragment,
    _place: OwnedSemaphorePermit,
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
fn event_of(text: &str) -> Bytes {
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
pub(crate) fn stream_of(state: &Arc<ConsoleState>, visitor: Visitor, peer: ConsolePeer, fragment: Fragment) -> Response {
    if !state.sees_node(&visitor.caller) {
        return answer::problem(403, "permission denied: node-status is not allowed").into_response();
    }
    let Ok(place) = Arc::clone(&state.tabs).try_acquire_owned() else {
        let text = "as many tabs are live as may be: close some, or load the page again to see it as it is now";
        return answer::problem(503, text).into_response();
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
