//! [`Ticker`]: one collection of figures a second, for all who look.
//!
//! ```text
//!   Ticker, once a second --Admin::figures--> Snapshot: figures, rates, the last minutes --watch--> pages and streams
//! ```
//!
//! Invariant: no number of tabs makes another collection.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{Admin, NodeFigures};
use crate::rates::{History, Point, Rates};

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
pub(crate) type Newest = watch::Receiver<Option<Arc<Snapshot>>>;

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
