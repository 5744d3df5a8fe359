//! The requests of the control socket: how `terrace message resend`, `terrace production reload` and the like reach a running
//! node. The socket itself is `node::control`.
//!
//! | request | response |
//! |---|---|
//! | `status` | `NodeStatus` |
//! | `reload` | what changed |
//! | `resend ID [OPERATION ...]` | the id of the new message |
//! | `suspend OPERATION`, `resume OPERATION` | |
//! | `messages FILTER`, with the filter of a list as JSON | lines of the list |
//! | `message ID` | the message with its outputs and their outcomes |
//! | `count` | how much is stored |
//! | `check` | whether all rows fit together |
//! | `verify` | whether the pages below them are sound; takes long |
//! | `backup FOLDER`, with the folder as a JSON text | makes a backup there; takes long |
//! | `confirm-clock` | ; the clock is right as it is |
//! | `audit REQUEST`, with the request as JSON | entries of the audit, its head, a check of its chain |
//! | `stop` | ; the node ends |
//!
//! Which of them have an entry in the audit is in `audited`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use node::audit::{AuditRequest, requests as audit_requests};
use node::control::{LocalPeer, ProgressSender, Requests};
use node::maintenance;
use serde_json::{Value, json};

use super::audited;
use super::resend::resend;
use super::{RunningProduction, lock};
use crate::error::InteropError;
use crate::history;
use crate::record::Switch;
use crate::rows::Reader;

/// How long a request waits for a service that is still starting, and how often it looks.
const SERVICES_PATIENCE: Duration = Duration::from_secs(3);
const SERVICES_PAUSE: Duration = Duration::from_millis(20);

/// See the module's text.
#[derive(Clone)]
pub(super) struct ControlRequests {
    running: Arc<RunningProduction>,
}

/// Answers requests to the control socket; `None` to one that it does not know. It may block for as long as a search takes.
pub type ServiceRequests = dyn Fn(&str) -> Option<Result<Value, String>> + Send + Sync;

impl RunningProduction {
    /// From now on `answer` gets the requests that nothing else of the node knows.
    pub fn serve_requests(&self, answer: Box<ServiceRequests>) {
        lock(&self.service_requests).push(Arc::from(answer));
    }

    /// The same for requests that have nothing to do with stored messages: they are answered also while the store cannot be read.
    pub fn serve_requests_at_once(&self, answer: Box<ServiceRequests>) {
        lock(&self.requests_at_once).push(Arc::from(answer));
    }

    /// Every service that was to follow has started.
    pub fn services_started(&self) {
        self.services_follow.store(false, Ordering::Release);
    }

    fn service_request(&self, request: &str) -> Option<Result<Value, InteropError>> {
        let services = lock(&self.service_requests).clone();
        let answered = services.iter().find_map(|answer| answer(request))?;
        Some(answered.map_err(InteropError::Refused))
    }
}

impl Requests for ControlRequests {
    async fn handle(&self, line: &str, peer: &LocalPeer, progress: ProgressSender) -> Result<Value, String> {
        let request = self.clone().request(line.to_owned(), progress);
        let handled = audited::handle(&self.running.audit, line, peer, request).await;
        handled.map_err(|error| error.to_string())
    }
}

impl ControlRequests {
    pub(super) fn of(running: &Arc<RunningProduction>) -> Arc<ControlRequests> {
        Arc::new(ControlRequests { running: Arc::clone(running) })
    }

    async fn request(self, line: String, progress: ProgressSender) -> Result<Value, InteropError> {
        device::supervise::rehearse("control");
        let (running, line) = (&self.running, line.as_str());
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["status"] => Ok(serde_json::to_value(running.status()).expect("plain data becomes JSON")),
            ["reload"] => Ok(json!(running.reload().await?)),
            ["resend", id, operations @ ..] => {
                let id = id.parse().map_err(|_| InteropError::Refused(format!("`{id}` is not a message id")))?;
                Ok(json!(resend(&running.engine, id, operations).await?))
            }
            ["suspend", operation] => self.switch(operation, true).await,
            ["resume", operation] => self.switch(operation, false).await,
            ["confirm-clock"] => running.housekeeping.confirm_clock().map(|()| Value::Null),
            ["stop"] => {
                running.stop.send_replace(true);
                Ok(Value::Null)
            }
            [audit_requests::AUDIT_REQUEST, ..] => match AuditRequest::of(line) {
                Some(request) => Ok(audit_requests::answer(&running.audit, request?).await?),
                None => self.read(line).await,
            },
            _ => match maintenance::handle(running.store(), line, progress).await {
                Some(handled) => Ok(handled?),
                None => self.read(line).await,
            },
        }
    }

    /// Requests that read stored data, and those of other services. One of a service that is still starting waits a moment for it.
    async fn read(&self, line: &str) -> Result<Value, InteropError> {
        let deadline = Instant::now() + SERVICES_PATIENCE;
        loop {
            // Looked at before the request: a service that starts in between is found the next time.
            let is_starting = self.running.services_follow.load(Ordering::Acquire);
            if let Some(response) = self.read_once(line).await? {
                return Ok(response);
            }
            if !is_starting {
                return Err(InteropError::Refused(format!("`{line}` is not a request")));
            }
            if Instant::now() >= deadline {
                let starting = "the services of this node are still starting: try again in a moment";
                return Err(InteropError::Refused(starting.to_owned()));
            }
            tokio::time::sleep(SERVICES_PAUSE).await;
        }
    }

    /// `None`: nothing knows the request.
    async fn read_once(&self, line: &str) -> Result<Option<Value>, InteropError> {
        let message_log = Arc::clone(&self.running.engine.message_log);
        let (request, running) = (line.to_owned(), Arc::clone(&self.running));
        // Messages acknowledged before the request are in the response.
        let read = move || {
            let at_once = lock(&running.requests_at_once).clone();
            if let Some(answered) = at_once.iter().find_map(|answer| answer(&request)) {
                return answered.map(Some).map_err(InteropError::Refused);
            }
            message_log.wait_visible().map_err(InteropError::from)?;
            let answered = history::answer(&Reader::new(message_log.store()), &request);
            answered.or_else(|| running.service_request(&request)).transpose()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(InteropError::Stopping))
    }

    /// Suspends or resumes an operation; it stays so across restarts.
    async fn switch(&self, operation: &str, suspended: bool) -> Result<Value, InteropError> {
        // A reload moves queues: not while one is searched.
        let _no_reload = self.running.reloading.lock().await;
        let queues = self.running.operations.queues();
        let queue = queues.iter().find(|queue| queue.name == operation).ok_or_else(|| InteropError::NoSuch {
            what: "operation",
            name: operation.to_owned(),
            known: queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        if queue.is_broken() {
            return Err(InteropError::Refused(format!(
                "operation {operation} has stopped because of a programming error (see the log): `terrace stop` and `terrace serve` start it again"
            )));
        }
        let at_us = self.running.engine.clock.now_us();
        let switch = Switch { operation: operation.to_owned(), suspended, at_us, reason: "by hand".to_owned() };
        let durable = self
            .running
            .engine
            .message_log
            .switch(&switch)
            .map_err(|refusal| InteropError::Refused(refusal.to_string()))?;
        durable.await.map_err(|_| InteropError::Stopping)?;
        queue.order(|orders| orders.suspended = suspended);
        Ok(Value::Null)
    }
}
