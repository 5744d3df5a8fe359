//! [`waiting`]: work of a request that may wait for another request, a merge or a medium.
//!
//! ```text
//!   thread of connections --a brief write on persistent memory--> runs here, in microseconds
//!                                      |
//!                                      +-- it waits after all --> the runtime gets another thread for the other connections
//! ```
//!
//! Handing the runtime over costs two changes of threads, more than such a write takes: it happens only where something is waited for.
//! Nothing is handed over on threads that do not belong to a runtime, or to one that has no other.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work`, which may wait; the connections of this thread are served by another one meanwhile.
pub(crate) fn waiting<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn while_one_waits_its_thread_s_connections_go_on_and_elsewhere_it_just_runs() {
        assert_eq!(waiting(|| 1), 1, "no runtime");
        let alone = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(alone.block_on(async { waiting(|| 2) }), 2, "it has no other thread");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (sender, receiver) = mpsc::channel();
        let waits = runtime.spawn(async move { waiting(|| receiver.recv().expect("the other one sends")) });
        // With one thread, this runs only if the one that waits has given it away.
        runtime.spawn(async move { sender.send(3).expect("it waits") });
        assert_eq!(runtime.block_on(waits).expect("it ends"), 3);
        assert_eq!(
            runtime.block_on(async { tokio::task::spawn_blocking(|| waiting(|| 4)).await }).expect("it ends"),
            4
        );
    }
}
