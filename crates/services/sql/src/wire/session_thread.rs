//! Runs a session on a thread of its own, behind a socket that is served elsewhere.
//!
//! ```text
//!   socket, TLS <--> pumps, on the runtime of the sockets <--pipe--> Serving, on the session's thread
//! ```
//!
//! The work of a session, planning a query or changing rows, delays neither sockets nor logins nor other sessions. A
//! client that disconnects is noticed while the session computes: then its statement is ended. A thread that does not
//! end in time is left alone; it keeps the connection's place until it ends.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use node::Permit;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::connection::{Connection, Socket};
use super::login::Entered;
use super::serve::Serving;
use super::server_state::ServerState;
use crate::{Canceller, STACK_BYTES};

/// Bytes on their way between socket and session in each direction: two records of TLS.
const PIPE_BYTES: usize = 32 << 10;

/// The time that a session gets to end, and to report it, once it is told to: a second to notice, and one more on a
/// busy machine.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Starts a thread with the stack of a session. Who starts it waits for what the work sends, and reports where it ends without.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Serves a logged-in client until it disconnects or is disconnected.
pub(super) async fn serve(
    connection: Connection,
    entered: Entered,
    shared: &Arc<ServerState>,
    (peer, permit): (SocketAddr, Permit),
) {
    let (near, far) = duplex(PIPE_BYTES);
    let (mut socket, connection) = connection.over(Box::new(far));
    let canceller = entered.session.canceller();
    let mut terminated = entered.registered.terminated.clone();
    let (ended, done) = oneshot::channel();
    let shared = Arc::clone(shared);
    let session = move || {
        run(connection, entered, &shared, peer);
        drop(permit);
        // This fails if the session took too long and is no longer awaited.
        let _ = ended.send(());
    };
    if let Err(error) = start("sql session", session) {
        tracing::warn!(%peer, %error, "cannot start a thread for a session");
        let _ = timeout(GRACE, socket.shutdown()).await;
        return;
    }
    let told = async {
        // The sender lives as long as the session.
        let _ = terminated.wait_for(|terminated| *terminated).await;
        sleep(GRACE).await;
    };
    tokio::select! {
        () = pump(socket, near, &canceller) => {}
        () = told => {}
    }
    // Its pipe is closed: it can neither read nor write any more.
    canceller.terminate();
    match timeout(GRACE, done).await {
        Ok(Ok(())) => {}
        // A panic is a fault of this program. It ended its own connection and transaction, and no other.
        Ok(Err(_)) => tracing::error!(%peer, "a session ended by a panic"),
        Err(_) => tracing::warn!(%peer, "a session does not end: its thread continues alone"),
    }
}

/// Copies bytes in both directions until one side ends. The statement of a client that disconnects is ended.
async fn pump(socket: Box<dyn Socket>, near: DuplexStream, canceller: &Canceller) {
    let (mut reads, mut writes) = split(socket);
    let (mut out, mut into) = split(near);
    let mut outward = pin!(async {
        // A disconnected client is noticed in the other direction too.
        let _ = tokio::io::copy(&mut out, &mut writes).await;
        let _ = writes.shutdown().await;
    });
    tokio::select! {
        _ = tokio::io::copy(&mut reads, &mut into) => {
            canceller.terminate();
            // The client may have disconnected at the same time.
            let _ = into.shutdown().await;
            let _ = timeout(GRACE, outward).await;
        }
        () = &mut outward => {}
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
