//! One connection of the control socket, at the node's end: requests one after the other, and what goes back.
//!
//! ```text
//!   line --> handled --> {"part": ..}, {"progress": ..}   as the work makes them, before the response
//!                    --> {"ok": ..} or {"error": ..}
//! ```
//!
//! Invariants: nothing waits for a client that reads nothing but its own connection, and that ends when it is closed from outside; a client
//! that goes away ends a request that streams parts, also while there are none. Other work goes on to its end: see the handler.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Take};
use tokio::net::UnixStream;
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    LONG_REQUEST, LONG_REQUEST_BYTES_MAX, LONG_REQUEST_TIME, LocalPeer, ProgressSender, REQUEST_BYTES_MAX, Requests,
};
use crate::admission::{Ending, Permit};
use crate::connections::OpenConnection;

/// Lines to the client: counted, and given up when the connection has to end.
struct Out<'s> {
    write: WriteHalf<'s>,
    connection: Arc<OpenConnection>,
    ending: Ending,
    /// How long a line may take while the client has the turn that others wait for.
    patience: Option<Duration>,
}

impl Out<'_> {
    /// Sends a line; false where the client is gone, reads nothing while others wait, or the connection has to end.
    async fn send(&mut self, line: &Value) -> bool {
        let line = format!("{line}\n");
        let patience = self.patience;
        let late = async move {
            match patience {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            written = self.write.write_all(line.as_bytes()) => {
                self.connection.sent(line.len() as u64);
                written.is_ok()
            }
            () = late => false,
            _ = self.ending.ended() => false,
        }
    }
}

type Input<'s> = BufReader<Take<ReadHalf<'s>>>;

/// Serves a connection to its end.
pub(super) async fn client(
    requests: Arc<impl Requests>,
    mut stream: UnixStream,
    (long, mut permit): (Arc<Semaphore>, Permit),
    stop: watch::Receiver<bool>,
) {
    let (uid, pid) = stream.peer_cred().ok().map(|peer| (peer.uid(), peer.pid())).unzip();
    let (pid, connection) = (pid.flatten(), Arc::clone(permit.connection()));
    connection.of_user(|| match (uid, pid) {
        (Some(uid), Some(pid)) => format!("user {uid}, process {pid}"),
        (Some(uid), None) => format!("user {uid}"),
        (None, _) => "a user that the system does not name".to_owned(),
    });
    let mut peer = None;
    let (read, write) = stream.split();
    let mut input: Input<'_> = BufReader::new(read.take(REQUEST_BYTES_MAX));
    let mut out = Out { write, connection: Arc::clone(&connection), ending: permit.ending(), patience: None };
    loop {
        let mut line = Vec::new();
        let Some((read, turn)) = read_line(&mut input, &mut line, &long, &mut permit).await else { return };
        out.patience = turn.is_some().then_some(LONG_REQUEST_TIME);
        connection.received(line.len() as u64);
        // A line without its end was cut: it may be another request than the one that was meant.
        let text = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
        let (Ok(_), Some(text)) = (read, text) else {
            if input.get_ref().limit() == 0 {
                let most = if is_long(&line) { LONG_REQUEST_BYTES_MAX } else { REQUEST_BYTES_MAX };
                let why = format!("a request has {most} bytes at most, and this one is longer");
                // The client may have gone away; the connection ends in any case.
                let _ = out.send(&json!({ "error": why })).await;
            }
            return;
        };
        permit.prove();
        connection.began(1);
        // Not before it has sent something: who only connects makes the node read no list of users.
        let peer = &*peer.get_or_insert_with(|| LocalPeer::of(uid, pid, connection.id()));
        let response = respond((&*requests, text, peer), &mut input, &mut out, &stop).await;
        // Others have their turn, and the memory, however slowly this client reads.
        drop((line, turn));
        out.patience = None;
        let Some(response) = response else { return };
        if !out.send(&response).await {
            return;
        }
    }
}

/// Reads a request, and the turn that a long one needs: one at a time of all clients, the others wait, for as long as their own place is theirs.
/// None where the connection has to end.
async fn read_line(
    input: &mut Input<'_>,
    line: &mut Vec<u8>,
    long: &Arc<Semaphore>,
    permit: &mut Permit,
) -> Option<(std::io::Result<usize>, Option<OwnedSemaphorePermit>)> {
    input.get_mut().set_limit(REQUEST_BYTES_MAX);
    let read = tokio::select! {
        read = input.read_until(b'\n', line) => read,
        _ = permit.ended() => return None,
    };
    if read.is_err() || line.ends_with(b"\n") || input.get_ref().limit() > 0 || !is_long(line) {
        return Some((read, None));
    }
    let turn = tokio::select! {
        turn = Arc::clone(long).acquire_owned() => turn.ok(),
        _ = permit.ended() => return None,
    };
    permit.prove();
    input.get_mut().set_limit(LONG_REQUEST_BYTES_MAX - REQUEST_BYTES_MAX);
    let read = tokio::select! {
        read = tokio::time::timeout(LONG_REQUEST_TIME, input.read_until(b'\n', line)) => read.ok()?,
        _ = permit.ended() => return None,
    };
    Some((read, turn))
}

/// Whether a line is the request that may be long, also one with a token ahead of it.
pub(super) fn is_long(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"as ").and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        rest.get(end + 1..)
    });
    rest.unwrap_or(line).starts_with(LONG_REQUEST)
}

/// Handles a request and sends what it reports; its response, none where the connection has to end.
async fn respond(
    (requests, line, peer): (&impl Requests, &str, &LocalPeer),
    input: &mut Input<'_>,
    out: &mut Out<'_>,
    stop: &watch::Receiver<bool>,
) -> Option<Value> {
    let (progress, mut reported, mut parts) = ProgressSender::heard(stop.clone());
    let mut response = pin!(requests.handle(line, peer, progress));
    let (mut has_parts, mut is_over, mut watches) = (false, false, true);
    let mut ending = out.ending.clone();
    let response = loop {
        tokio::select! {
            biased;
            response = &mut response => break response,
            _ = ending.ended() => return None,
            part = parts.recv(), if !is_over => match part {
                Some(part) => {
                    has_parts = true;
                    if !out.send(&json!({ "part": part })).await {
                        return None;
                    }
                }
                None => is_over = true,
            },
            Ok(()) = reported.changed() => {
                let progress = *reported.borrow_and_update();
                // A client that has gone away wants the response no more: the work has no receiver left, and ends.
                if !out.send(&json!({ "progress": progress })).await {
                    return None;
                }
            }
            // Of work that streams nothing a client may have closed its side and wait for the response.
            left = input.fill_buf(), if has_parts && watches => match left {
                Ok([]) | Err(_) => return None,
                // The next request is there already.
                Ok(_) => watches = false,
            },
        }
    };
    let response = match response {
        Ok(value) => {
            while let Ok(part) = parts.try_recv() {
                if !out.send(&json!({ "part": part })).await {
                    return None;
                }
            }
            json!({ "ok": value })
        }
        // What was on its way to somebody who may not have it any more stays here.
        Err(error) => json!({ "error": error }),
    };
    Some(response)
}
