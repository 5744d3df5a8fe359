//! What requests share: reading what is stored, and finding an operation.

use std::sync::Arc;

use super::RunningProduction;
use crate::error::InteropError;
use crate::queue::Queue;
use crate::rows::Reader;

/// Reads what is stored, on a thread. Messages acknowledged before the request are there.
pub(super) async fn read_stored<T: Send + 'static>(
    running: &RunningProduction,
    read: impl FnOnce(&Reader) -> Result<T, InteropError> + Send + 'static,
) -> Result<T, InteropError> {
    let message_log = Arc::clone(&running.engine.message_log);
    let work = move || {
        message_log.wait_visible().map_err(InteropError::from)?;
        read(&Reader::new(message_log.store()))
    };
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(InteropError::Stopping))
}

/// Returns once all that was submitted before is durable and seen by who reads: also what a request has made that failed, or was given up,
/// before it knew. For who has a turn, and looks whether something was made before.
///
/// # Errors
/// The store's.
pub(super) async fn settled(running: &RunningProduction) -> Result<(), InteropError> {
    let store = running.engine.message_log.store().clone();
    let settle = move || store.wait_visible(store.appended()).map_err(InteropError::from);
    tokio::task::spawn_blocking(settle).await.unwrap_or(Err(InteropError::Stopping))
}

/// The queue of an operation.
pub(super) async fn queue(running: &RunningProduction, operation: &str) -> Result<Arc<Queue>, InteropError> {
    // A reload moves queues: not while one is searched.
    let _no_reload = running.reloading.lock().await;
    queue_during(running, operation)
}

/// The same for who has locked reloads out.
pub(super) fn queue_during(running: &RunningProduction, operation: &str) -> Result<Arc<Queue>, InteropError> {
    let queues = running.operations.queues();
    let found = queues.iter().find(|queue| queue.name == operation).map(Arc::clone);
    found.ok_or_else(|| InteropError::NoSuch {
        what: "operation",
        name: operation.to_owned(),
        known: queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}
