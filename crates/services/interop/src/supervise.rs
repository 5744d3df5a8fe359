//! The two ways in which a task of the engine is started, so that none is gone in silence.
//!
//! ```text
//!   supervised   what the node cannot do without (a listener, upkeep): its panic fails the node, with the reason
//!   session      one peer's, one request's: its panic ends it alone, with a line of the log
//! ```

use std::sync::Arc;

use device::supervise::caught;
use tokio::task::JoinHandle;

use crate::ledger::Ledger;

/// Starts a task that the node cannot do without.
pub(crate) fn supervised(
    ledger: &Arc<Ledger>,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let ledger = Arc::clone(ledger);
    tokio::spawn(async move {
        if let Err(why) = caught(work).await {
            ledger.fail(&format_args!("the task {name} panicked: {why}"));
        }
    })
}

/// Starts a task whose end concerns nobody but its peer.
pub(crate) fn session(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(why) = caught(work).await {
            tracing::error!(session = name, why, "a session ended by a panic, and no other; report it");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

    #[tokio::test]
    async fn a_panic_of_a_task_that_the_node_needs_fails_it_and_one_of_a_session_ends_that_alone() {
        let options = store::Options { interpreter: Some(Arc::new(Rows)), ..store::Options::default() };
        let ledger = Ledger::new(store::Store::in_memory(options).expect("memory"));
        session("peer", async { panic!("of a session") }).await.expect("it was caught");
        assert!(!ledger.has_failed());
        supervised(&ledger, "upkeep", async { panic!("number {}", 7) }).await.expect("it was caught");
        let cause = ledger.failed().borrow().clone().expect("it has failed");
        assert_eq!(&*cause, "the task upkeep panicked: number 7");
        assert_eq!(ledger.store().poisoned().as_deref(), Some("the task upkeep panicked: number 7"));
    }
}
