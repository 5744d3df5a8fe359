//! The two ways in which a task of a service is started, so that the end of each is noticed.
//!
//! ```text
//!   supervised   what the node needs (a listener, maintenance): its panic fails the node, with the reason
//!   session      one peer's, one request's: its panic ends it alone, with a line of the log
//! ```

use device::supervise::caught;
use tokio::task::JoinHandle;

/// Starts a task that the node needs; `fail` gets the text of its panic, to fail the node.
pub fn supervised(
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
    fail: impl FnOnce(&str) + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(why) = caught(work).await {
            fail(&format!("the task {name} panicked: {why}"));
        }
    })
}

/// Starts a task whose end affects only its peer.
pub fn session(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(why) = caught(work).await {
            tracing::error!(session = name, why, "a session ended by a panic, and no other; report it");
        }
    })
}
