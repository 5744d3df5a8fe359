//! Chooses the thread that decides on a message.
//!
//! ```text
//! small --> here, on the thread of its socket --done within SLICE--> go on
//!                      \-- not done: forgotten
//! long, or forgotten ---------------------> a turn on one of THREADS threads, up to `decision_time` of processor time
//! ```
//!
//! Deciding is pure, so a decision can be abandoned half-way and made again. A socket's thread serves thousands of
//! connections, timers and the control socket: it spends at most [`SLICE`] on a message.
//!
//! Invariants: a connection's next message is not read before this one is decided on, whichever thread decides; a
//! decision for which no task waits any more (its sender has disconnected) is abandoned at the next reading of the
//! meter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Bodies, Engine, PlannedService};
use crate::intake::{self, Inbound, Work};
use crate::lang::Allowance;
use crate::record::MessageOrigin;
use node::clock::{self, Clock};

/// A message of this size is not tried on a socket's thread: parsing and copying it alone take about a millisecond.
const LONG_BYTES: usize = 256 << 10;

/// The time of a socket's thread for a message: a hundred times what one of the published workload takes, and less than
/// is noticed behind it.
const SLICE: Duration = Duration::from_millis(5);

/// Threads for long messages: one must not hold up all others, and more would take the processor from the sockets.
pub(super) const THREADS: usize = 2;

/// All that deciding needs, to be taken to another thread.
struct Job {
    service: Arc<PlannedService>,
    raw: Bytes,
    now_us: i64,
    origin: Option<MessageOrigin>,
    control_id: String,
    bodies: Bodies,
    flagged: bool,
    clock: Clock,
}

impl Job {
    fn run(&self, abandoned: Arc<AtomicBool>) -> Work {
        let limit = self.service.settings.intake().decision_time.0;
        let allowance = Allowance::new(limit, clock::thread_time).until(Arc::clone(&abandoned));
        let (reading, unreadable) = intake::read(&self.service, &self.raw);
        let read = (&reading, unreadable);
        let inbound = Inbound::new(&self.service, &self.raw, read, self.now_us, &self.control_id);
        let inbound = inbound.derived(self.origin.as_ref());
        let work = intake::decide(&inbound, self.service.plan(), self.bodies, self.flagged, &self.clock, &allowance);
        if allowance.was_exceeded() && !abandoned.load(Ordering::Relaxed) {
            let (service, bytes) = (self.service.name.as_str(), self.raw.len());
            let reason = work.problem.as_ref().map_or("", |problem| problem.text.as_str());
            tracing::error!(service, bytes, reason, "a message was refused: it took too long to decide on");
        }
        work
    }
}

/// Marks the decision as abandoned when it is dropped.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Parses, checksums or hands over a message: a long one not in the way of what else the thread of its socket serves, which goes to
/// another thread meanwhile. Of 16 MiB reading, parsing and checksum take 8 ms (dev build, 2026-11-22); handing it to the journal
/// waits for the medium. Where there is none to go to (a runtime of one thread), here all the same.
pub(crate) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let has_others = || Handle::try_current().is_ok_and(|at| at.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes < LONG_BYTES || !has_others() { work() } else { tokio::task::block_in_place(work) }
}

impl Engine {
    /// Decides on a message, here or elsewhere; none where the node's threads end.
    pub(crate) async fn decide(
        &self,
        inbound: &Inbound<'_>,
        service: &Arc<PlannedService>,
        flagged: bool,
    ) -> Option<Work> {
        if inbound.raw.len() < LONG_BYTES {
            let slice = Allowance::new(SLICE, clock::monotonic);
            let work = intake::decide(inbound, service.plan(), self.bodies, flagged, &self.clock, &slice);
            if !slice.was_exceeded() {
                return Some(work);
            }
        }
        let turn = Arc::clone(&self.deciders).acquire_owned().await.ok()?;
        let job = Job {
            service: Arc::clone(service),
            raw: inbound.raw.clone(),
            now_us: inbound.now_us,
            origin: inbound.origin.cloned(),
            control_id: inbound.control_id.to_owned(),
            bodies: self.bodies,
            flagged,
            clock: self.clock.clone(),
        };
        let waiting = Waiting(Arc::default());
        let abandoned = Arc::clone(&waiting.0);
        let decided = tokio::task::spawn_blocking(move || {
            let work = job.run(abandoned);
            drop(turn);
            work
        });
        match decided.await {
            Ok(work) => Some(work),
            // As if it had been decided on here: the panic is this connection's.
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;
    use node::task::session;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn while_a_long_message_is_parsed_the_thread_of_its_socket_serves_others() {
        let (answer, served) = oneshot::channel();
        let on_the_only_thread = session("long", async {
            let (tell, told) = mpsc::channel();
            session("other", async move { tell.send(()).expect("it is waited for") });
            let served = aside(LONG_BYTES, move || told.recv_timeout(Duration::from_secs(60)));
            answer.send(served).expect("the test waits");
        });
        on_the_only_thread.await.expect("it was not stopped");
        let served = served.await.expect("it does not panic");
        assert!(served.is_ok(), "no other was served meanwhile");
    }

    #[tokio::test]
    async fn a_long_message_is_parsed_on_a_runtime_of_one_thread_as_well() {
        assert_eq!(aside(LONG_BYTES, || 7), 7);
    }
}
