//! Runs a session on a thread of its own, which reads and writes its socket ([`SharedSocket`]).
//!
//! The work of a session, planning a query or changing rows, delays neither sockets nor logins nor other sessions. A
//! client that disconnects is noticed while the session computes: then its statement is ended (`registry`). A thread that does not
//! end in time is left alone; it keeps the connection's place until it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::{Permit, SharedSocket};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::login::Entered;
use super::serve::Serving;
use super::server_state::ServerState;
use crate::STACK_BYTES;

/// The time that a session gets to end, and to report it, once it is told to: a second to notice, and one more on a
/// busy machine.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Starts a thread with the stack of a session. Who starts it waits for what the work sends, and reports where it ends without.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Serves a logged-in client until it disconnects or is disconnected.
pub(super) async fn serve(
    (connection, socket): (Connection, SharedSocket),
    entered: Entered,
    shared: &Arc<ServerState>,
    (peer, permit): (SocketAddr, Permit),
) {
    entered.registered.reads(socket.clone());
    let canceller = entered.session.canceller();
    let mut terminated = entered.registered.terminated.clone();
    let (ended, mut done) = oneshot::channel();
    let shared = Arc::clone(shared);
    let session = move || {
        run(connection, entered, &shared, peer);
        // Who waits closes the socket before it gives the place back. If the session took too long, nobody does.
        let _ = ended.send(permit);
    };
    if let Err(error) = start("sql session", session) {
        tracing::warn!(%peer, %error, "cannot start a thread for a session");
        let _ = socket.shut_down();
        return;
    }
    let told = async {
        // The sender lives as long as the session.
        let _ = terminated.wait_for(|terminated| *terminated).await;
        sleep(GRACE).await;
    };
    let in_time = tokio::select! {
        outcome = &mut done => Some(outcome),
        () = told => None,
    };
    let outcome = match in_time {
        Some(outcome) => Ok(outcome),
        None => {
            canceller.terminate();
            // It may wait for a client that does not read.
            let _ = socket.shut_down();
            timeout(GRACE, done).await
        }
    };
    match outcome {
        Ok(Ok(permit)) => {
            drop(socket);
            drop(permit);
        }
        // A panic is a fault of this program. It ended its own connection and transaction, and no other.
        Ok(Err(_)) => tracing::error!(%peer, "a session ended by a panic"),
        Err(_) => tracing::warn!(%peer, "a session does not end: its thread continues alone"),
    }
}

/// Runs on the session's thread.
fn run(mut connection: Connection, entered: Entered, shared: &Arc<ServerState>, peer: SocketAddr) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::warn!(%peer, %error, "cannot start a runtime for a session"),
    };
    entered.session.count_here();
    runtime.block_on(async {
        let ended = Serving::new(&mut connection, entered, shared).run().await;
        connection.end(ended, peer, GRACE).await;
    });
    runtime.shutdown_background();
}
