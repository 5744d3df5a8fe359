//! What a node tells its service manager, and the sockets it takes over from it: the thin shell around `node::service_manager`.
//!
//! ```text
//!   begin: adopt sockets      "opening the store"
//!   ready: READY=1            every few seconds: STATUS= if it changed, WATCHDOG=1 if it is asked for
//!   stopping: STOPPING=1
//! ```
//!
//! The watchdog says that the runtime of sockets still turns: its task runs there. A node whose storage has failed stays alive on purpose
//! (stored data can be read), and its status says why it has failed.
//!
//! Without a service manager nothing of this happens.

use std::sync::Arc;
use std::time::Duration;

use interop::running::{NodeStatus, RunningProduction};
use node::service_manager::{self, Notifier};
use tokio::task::JoinHandle;

/// How often the status is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The service manager of a node that starts.
#[derive(Debug)]
pub struct Supervision {
    notifier: Option<Arc<Notifier>>,
}

impl Supervision {
    /// Takes over the sockets of the service manager, if there is one.
    ///
    /// # Errors
    /// What it passed cannot be used.
    pub fn begin() -> anyhow::Result<Supervision> {
        let adopted = service_manager::adopt()?;
        if adopted > 0 {
            tracing::info!(sockets = adopted, "the service manager passed listening sockets");
        }
        let notifier = Notifier::of_environment()?.map(Arc::new);
        if let Some(notifier) = &notifier {
            notifier.status("opening the store");
        }
        Ok(Supervision { notifier })
    }

    /// The node serves.
    pub fn ready(self, node: &Arc<RunningProduction>) -> WatchedNode {
        let Some(notifier) = self.notifier else { return WatchedNode::default() };
        for socket in service_manager::unclaimed() {
            tracing::warn!(
                socket,
                "the service manager listens where no service of this node does: clients wait there in vain"
            );
        }
        let mut told = line(&node.status());
        notifier.ready(&told);
        let (every, watchdog) =
            (notifier.watchdog().map_or(LOOK, |time| time.min(LOOK)), notifier.watchdog().is_some());
        let (node, teller) = (Arc::downgrade(node), Arc::clone(&notifier));
        let task = node::task::session("service-manager", async move {
            loop {
                tokio::time::sleep(every).await;
                // The node has ended, and this process does so next.
                let Some(node) = node.upgrade() else { return };
                let now = line(&node.status());
                if now != told {
                    teller.status(&now);
                    told = now;
                }
                if watchdog {
                    teller.alive();
                }
            }
        });
        WatchedNode { told: Some((notifier, task)) }
    }
}

/// A running node, whose service manager is told of its end.
#[derive(Debug, Default)]
pub struct WatchedNode {
    told: Option<(Arc<Notifier>, JoinHandle<()>)>,
}

impl WatchedNode {
    /// The node ends now.
    pub fn stopping(self) {
        if let Some((notifier, task)) = self.told {
            task.abort();
            notifier.stopping();
        }
    }
}

/// What `systemctl status` shows: names and counts.
fn line(status: &NodeStatus) -> String {
    if let Some(trouble) = status.troubles.first() {
        let more = status.troubles.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        return format!("{}: {}{more}; `terrace status` shows what to do", trouble.matter.name(), trouble.reason);
    }
    let waiting: usize = status.operations.iter().map(|operation| operation.waiting).sum();
    let (services, operations) = (status.services.len(), status.operations.len());
    format!("production {}: {services} services, {operations} operations, {waiting} outputs wait", status.production)
}
