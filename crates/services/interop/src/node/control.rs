//! The control socket: how `terrace message resend`, `terrace production reload` and the like reach a running node.
//!
//! A Unix socket in the data directory, so that the file system says who may use it. One request a line, words
//! separated by blanks; one line of JSON back: `{"ok": ...}` or `{"error": "..."}`. Ahead of it, what takes long says how far
//! it has come: `{"progress": {"done": ..., "total": ...}}`, as often as whoever asked reads. Who hangs up ends it.
//!
//! | request | answer |
//! |---|---|
//! | `status` | `Status` |
//! | `reload` | what changed |
//! | `resend ID [OPERATION ...]` | the id of the new message |
//! | `suspend OPERATION`, `resume OPERATION` | |
//! | `messages FILTER`, with the filter of a list as JSON | lines of the list |
//! | `message ID` | the message with its outputs and fates |
//! | `count` | how much is stored |
//! | `check` | whether all rows fit together |
//! | `verify` | whether the pages below them are sound; takes long |
//! | `backup FOLDER`, with the folder as a JSON text | makes a backup there; takes long |
//! | `confirm-clock` | ; the clock is right as it is |
//! | `stop` | ; the node ends |

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::node::{Bounds, Permit};
use device::os::PRIVATE_FILE;
use serde_json::{Value, json};
use store::Store;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader as AsyncBufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::Node;
use crate::error::InteropError;
use crate::history;
use crate::intake;
use crate::ledger::Destination;
use crate::queue::Entry;
use crate::record::{Head, Status, Switch, Writer};
use crate::rows::Reader;
use crate::supervise::{session, supervised};
use crate::upkeep::{self, Progress};
use hl7::{Piece, Reading};

/// Longest request taken; the longest real one names every operation of a large production.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// Clients at one time. One that has not asked anything for a while makes room for another.
const CLIENTS: Bounds = Bounds { sockets: 32, of_address: 32 };

/// How long a client waits for an answer. A check reads all that is stored: at 100 MB/s, this much is 360 GB.
const PATIENCE: Duration = Duration::from_secs(3_600);

fn socket_path(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// Starts answering.
pub(super) fn listen(node: &Arc<Node>) -> Result<(), InteropError> {
    let path = socket_path(&node.options.data);
    // The data directory's lock is held: a socket that lies here belongs to a node that is gone.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(InteropError::file("listen on", &path))?;
    // Whoever reaches it may read every message.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(PRIVATE_FILE))
        .map_err(InteropError::file("protect", &path))?;
    let node = Arc::clone(node);
    let door = node.engine.admission.door("control", "control", CLIENTS);
    let mut stop = node.stop.subscribe();
    let ledger = Arc::clone(&node.engine.ledger);
    supervised(&ledger, "control", async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    device::supervise::rehearse("control-listener");
                    if let Some(permit) = door.admit_local(CLIENTS) {
                        session("control", client(Arc::clone(&node), stream, permit));
                    }
                }
                Err(error) => door.not_accepted(&error).await,
            }
        }
        let _ = std::fs::remove_file(&path);
    });
    Ok(())
}

async fn client(node: Arc<Node>, mut stream: UnixStream, mut permit: Permit) {
    let (read, mut write) = stream.split();
    let mut lines = AsyncBufReader::new(read.take(REQUEST_BYTES_MAX)).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            _ = permit.ended() => return,
        };
        let Ok(Some(line)) = line else { return };
        permit.prove();
        let (tell, mut told) = watch::channel(Progress::default());
        let mut answer = std::pin::pin!(node.request(&line, tell));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                Ok(()) = told.changed() => {
                    let progress = *told.borrow_and_update();
                    // A client that has gone away wants it no more: what works on it finds nobody to tell, and ends.
                    if write.write_all(format!("{}\n", json!({ "progress": progress })).as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        };
        let answer = match answer {
            Ok(answer) => json!({ "ok": answer }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        if write.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

impl Node {
    async fn request(&self, line: &str, told: watch::Sender<Progress>) -> Result<Value, InteropError> {
        device::supervise::rehearse("control");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["status"] => Ok(serde_json::to_value(self.status()).expect("plain data becomes JSON")),
            ["reload"] => Ok(json!(self.reload().await?)),
            ["resend", id, operations @ ..] => {
                let id = id.parse().map_err(|_| InteropError::Refused(format!("`{id}` is not a message id")))?;
                Ok(json!(self.resend(id, operations).await?))
            }
            ["suspend", operation] => self.switch(operation, true).await,
            ["resume", operation] => self.switch(operation, false).await,
            ["confirm-clock"] => self.confirm_clock().map(|()| Value::Null),
            ["stop"] => {
                self.stop.send_replace(true);
                Ok(Value::Null)
            }
            ["verify"] => {
                let work = |store: &Store, tell: upkeep::Tell<'_>| {
                    let report = upkeep::verify(store, &mut |progress| _ = tell(progress))?;
                    Ok(json!(report))
                };
                self.long(told, work).await
            }
            ["backup", ..] => {
                let text = line.trim().trim_start_matches("backup");
                let folder: PathBuf = serde_json::from_str(text)
                    .map_err(|_| InteropError::Refused(format!("`{}` is no folder as a JSON text", text.trim())))?;
                self.long(told, move |store, tell| Ok(json!(upkeep::back_up(store, &folder, tell)?))).await
            }
            _ => {
                let ledger = Arc::clone(&self.engine.ledger);
                let request = line.to_owned();
                // What was acknowledged before the question is in the answer.
                let look = move || {
                    ledger.wait_visible().map_err(InteropError::from)?;
                    history::answer(&Reader::new(ledger.store()), &request).transpose()
                };
                let answer = tokio::task::spawn_blocking(look).await.unwrap_or(Err(InteropError::Stopping))?;
                answer.ok_or_else(|| InteropError::Refused(format!("`{line}` is not a request")))
            }
        }
    }

    /// Does on the store what takes long, telling how far it has come; it ends when nobody listens, or the node stops.
    async fn long<W>(&self, told: watch::Sender<Progress>, work: W) -> Result<Value, InteropError>
    where
        W: FnOnce(&Store, upkeep::Tell<'_>) -> Result<Value, InteropError> + Send + 'static,
    {
        let (ledger, stop) = (Arc::clone(&self.engine.ledger), self.stop.subscribe());
        let work = move || {
            let mut tell = |progress| match told.send(progress) {
                Ok(()) if !*stop.borrow() => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            };
            work(ledger.store(), &mut tell)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(InteropError::Stopping))
    }

    /// Stores a stored message's outputs again, as a new message, and sends them: all, or those to `operations`.
    ///
    /// # Errors
    /// No such message, output or operation; the journal refuses.
    pub async fn resend(&self, id: u64, operations: &[&str]) -> Result<u64, InteropError> {
        let ledger = Arc::clone(&self.engine.ledger);
        let read = move || {
            ledger.wait_visible()?;
            Reader::new(ledger.store()).message(id)
        };
        let stored = tokio::task::spawn_blocking(read).await.unwrap_or(Err(InteropError::Stopping))?;
        let names: Vec<&str> = stored.outputs.iter().map(|o| o.operation.as_str()).collect();
        if let Some(wrong) = operations.iter().find(|wanted| !names.contains(wanted)) {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(InteropError::NoSuch { what: "output of this message", name: (*wrong).to_owned(), known });
        }
        let plan = self.engine.plan();
        let head = Head {
            status: Status::Routed,
            duplicate: false,
            resent_from: Some(id),
            received_us: self.engine.clock.now_us(),
            service: &stored.service,
            charset: stored.charset,
            reason: "resent by hand",
        };
        let mut writer = Writer::new(&head, &stored.raw);
        let mut destinations = Vec::new();
        let chosen =
            stored.outputs.iter().filter(|o| operations.is_empty() || operations.contains(&o.operation.as_str()));
        for (n, output) in chosen.enumerate() {
            let operation = plan.production.operation(&output.operation)?;
            let at = plan.production.operations.iter().position(|o| Arc::ptr_eq(o, operation)).expect("found just now");
            let queue = Arc::clone(&plan.queues[at]);
            let reading = Reading::lenient(&stored.raw, stored.charset);
            let key_hash = reading.message().map_or(0, |message| queue.key_hash(&message));
            let lane = queue.lane_of(key_hash);
            let index = u16::try_from(n).expect("a record has fewer outputs than 65536");
            writer.output(&output.operation, &output.transform, &output.body, None::<std::iter::Empty<Piece<'_>>>);
            let frame = Some(intake::frame(&output.body));
            let entry = Entry { id: 0, output: index, charset: stored.charset, frame };
            destinations.push(Destination { queue, lane, entry });
        }
        if destinations.is_empty() {
            return Err(InteropError::Refused(format!("message {id} went nowhere: there is nothing to send again")));
        }
        destinations.iter().for_each(|d| d.queue.reserve());
        let submitted = self.engine.ledger.submit(&writer.finish().parts(), destinations);
        let durable = submitted.map_err(|refusal| InteropError::Refused(refusal.to_string()))?;
        Ok(durable.await.map_err(|_| InteropError::Stopping)?.0)
    }

    /// Suspends or resumes an operation; it stays so across restarts.
    async fn switch(&self, operation: &str, suspended: bool) -> Result<Value, InteropError> {
        // A reload moves queues: not while one is looked for.
        let _still = self.reloading.lock().await;
        let queues = self.queues();
        let queue = queues.iter().find(|queue| queue.name == operation).ok_or_else(|| InteropError::NoSuch {
            what: "operation",
            name: operation.to_owned(),
            known: queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        if queue.is_broken() {
            return Err(InteropError::Refused(format!(
                "operation {operation} stands still for a programming error (see the log): `terrace stop` and `terrace serve` start it again"
            )));
        }
        let at_us = self.engine.clock.now_us();
        let switch = Switch { operation: operation.to_owned(), suspended, at_us, reason: "by hand".to_owned() };
        let durable =
            self.engine.ledger.switch(&switch).map_err(|refusal| InteropError::Refused(refusal.to_string()))?;
        durable.await.map_err(|_| InteropError::Stopping)?;
        queue.order(|orders| orders.suspended = suspended);
        Ok(Value::Null)
    }
}

/// Whether a node answers for the data directory `data`.
pub fn answers(data: &Path) -> bool {
    Blocking::connect(socket_path(data)).is_ok()
}

/// Asks the node whose data directory is `data`.
///
/// # Errors
/// `NoNode` where none runs there; `NodeRefused` with its reason.
pub fn ask(data: &Path, request: &str) -> Result<Value, InteropError> {
    ask_telling(data, request, &mut |_| ())
}

/// Asks for what takes long; `tell` hears how far it has come.
///
/// # Errors
/// As [`ask`].
pub fn ask_telling(data: &Path, request: &str, tell: &mut dyn FnMut(Progress)) -> Result<Value, InteropError> {
    let path = socket_path(data);
    let no_node = |source| InteropError::NoNode { path: path.clone(), source };
    let mut stream = Blocking::connect(&path).map_err(no_node)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(no_node)?;
    stream.write_all(format!("{request}\n").as_bytes()).map_err(no_node)?;
    let mut lines = BufReader::new(stream).lines();
    let mut answer = loop {
        let line = lines.next().transpose().map_err(no_node)?.unwrap_or_default();
        let mut answer: Value = serde_json::from_str(&line).map_err(|_| {
            InteropError::NodeRefused("nothing that can be read; is it of the same release?".to_owned())
        })?;
        match answer.get_mut("progress").map(Value::take).map(serde_json::from_value) {
            None => break answer,
            // A release that tells otherwise is asked all the same.
            Some(progress) => progress.into_iter().for_each(&mut *tell),
        }
    };
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(InteropError::NodeRefused(error.to_owned())),
        None => Ok(answer["ok"].take()),
    }
}
