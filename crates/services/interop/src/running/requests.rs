//! The requests of the control socket: how `terrace message resend`, `terrace production reload` and the like reach a running
//! node. The socket itself is `node::control`.
//!
//! | request | response |
//! |---|---|
//! | `status` | `NodeStatus` |
//! | `reload`, `reload HASH` | what changed; with the hash of a folder that a difference told, only if it is still that |
//! | `resend ID [OPERATION ...]` | the id of the new message |
//! | `resend-edited REQUEST`, with the request as JSON ([`EditedRequest`](super::EditedRequest)) | the id of the new message |
//! | `reprocess REQUEST`, with the request as JSON ([`ReprocessRequest`](super::ReprocessRequest)) | `ReprocessPage` |
//! | `export REQUEST`, `import REQUEST`, with the request as JSON ([`ExportRequest`](crate::history::ExportRequest), [`ImportRequest`](super::ImportRequest)) | `ExportPage`, `ImportPage` |
//! | `suspend OPERATION`, `resume OPERATION` | |
//! | `start REQUEST`, with the request as JSON ([`StartRequest`](super::StartRequest)) | |
//! | `set-aside REQUEST`, with the request as JSON ([`SetAsideRequest`](super::SetAsideRequest)) | `SetAsideMessage` |
//! | `todo REQUEST`, with the request as JSON ([`TodoRequest`](super::TodoRequest)) | `TodoPage`, or the `TodoNote` after a change |
//! | `operations` | an `OperationStatus` for each |
//! | `operation NAME` | `OperationReport` |
//! | `messages FILTER`, with the filter of a list as JSON | lines of the list |
//! | `tail REQUEST`, with the request as JSON ([`TailRequest`](super::TailRequest)) | a part for each message and outcome as it becomes durable, until the client ends it |
//! | `message-page QUERY`, with the query as JSON | some lines of the list, and where the next ones begin |
//! | `message ID` | the message with its outputs and their outcomes; without a right to bodies, these are left out |
//! | `message ID metadata` | the same without bodies |
//! | `count` | how much is stored |
//! | `check` | whether all rows fit together |
//! | `verify` | whether the pages below them are sound; takes long |
//! | `backup FOLDER`, with the folder as a JSON text | makes a backup there; takes long |
//! | `encryption CHANGE` | a new data key, or another key-encryption key; see `node::encryption` |
//! | `production REQUEST`, with the request as JSON | generations of the production; see `generations` |
//! | `confirm-clock` | ; the clock is right as it is |
//! | `audit REQUEST`, with the request as JSON | entries of the audit, its head, a check of its chain |
//! | `identity REQUEST`, with the request as JSON | roles and rights |
//! | `stop` | ; the node ends |
//!
//! Ahead of each, `as TOKEN` makes it a request of the token's role. Without it, it is one of the role of the user that the system
//! names: root and the user that the node runs as are the node's own role.
//!
//! ```text
//!   line --caller--> Caller --+
//!        --read----> ControlRequest --requirement--> may(caller, action, object) --> entry in the audit --> answer
//! ```
//!
//! Other ports of the process pass requests on for callers who have proven there who they are ([`RunningProduction::request_of`]): they
//! go the same way.
//!
//! Which right each needs, and which has an entry in the audit, is in `control_request`. A message of a service whose messages a
//! caller may not list is to it as one that is not there.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::audit::{AuditEntry, AuditOutcome, EntryMarks, Reads, requests as audit_requests};
use node::control::{LocalPeer, PLAIN_REQUEST_BYTES_MAX, ProgressSender, Requests};
use node::identity::{self, Action, Caller, Denied, Grant, IdentityError, IdentityRequest, Object};
use node::maintenance;
use serde_json::{Value, json};

use super::audited::{self, Answered, Audited};
use super::control_request::{ControlRequest, ServiceRequest, first_word};
use super::generations::{ProductionRequest, answer_production, go_back};
use super::operator_request::EDITED;
use super::requirement::{Needs, refusal_text};
use super::resend::resend;
use super::stored::read_stored;
use super::transfer_request::IMPORT;
use super::{RunningProduction, switch, tail, transfer, verbs, waiting};
use crate::error::InteropError;
use crate::history::{self, Filter};
use crate::record::Stored;
use crate::rows::Reader;

/// How long a request waits for a service that is still starting, and how often it looks.
const SERVICES_PATIENCE: Duration = Duration::from_secs(3);
const SERVICES_PAUSE: Duration = Duration::from_millis(20);

/// The word ahead of a request that comes with a token.
const AS: &str = "as";

/// Where a request came in.
#[derive(Clone, Copy)]
enum RequestPort<'a> {
    /// At the control socket, from a user of this machine.
    Control(&'a LocalPeer),
    /// At another port, of this name.
    Other(&'static str),
}

/// See the module's text.
#[derive(Clone)]
pub(super) struct ControlRequests {
    running: Arc<RunningProduction>,
}

impl RunningProduction {
    /// Handles a request of the control socket for a caller who has proven at `port`, another one of this process, who it is: by the
    /// same rights, with the same entries in the audit. Work that reports how far it has come ends at its first report: nobody hears it.
    ///
    /// # Errors
    /// Those of the request; `Denied` where the caller may not do it.
    pub async fn request_of(
        self: &Arc<Self>,
        caller: &Caller,
        port: &'static str,
        line: &str,
    ) -> Result<Value, InteropError> {
        let progress = ProgressSender::unheard(self.stop.subscribe());
        ControlRequests::of(self).request(caller, RequestPort::Other(port), line, progress).await
    }

    /// The same of a request that streams: its parts go to `parts`, and it ends when their receiver is dropped.
    ///
    /// # Errors
    /// As `request_of`.
    pub async fn stream_of(
        self: &Arc<Self>,
        caller: &Caller,
        port: &'static str,
        (line, parts): (&str, tokio::sync::mpsc::Sender<Value>),
    ) -> Result<Value, InteropError> {
        let progress = ProgressSender::to(parts, self.stop.subscribe());
        ControlRequests::of(self).request(caller, RequestPort::Other(port), line, progress).await
    }
}

impl Requests for ControlRequests {
    async fn handle(&self, line: &str, peer: &LocalPeer, progress: ProgressSender) -> Result<Value, String> {
        device::supervise::rehearse("control");
        let handled = match self.caller(line, peer).await {
            Ok((caller, request)) => self.request(&caller, RequestPort::Control(peer), request, progress).await,
            Err(error) => Err(error),
        };
        handled.map_err(|error| error.to_string())
    }
}

/// Why a request is not begun.
struct NotBegun {
    error: InteropError,
    outcome: AuditOutcome,
    /// For the audit; the error may say less.
    why: String,
}

impl NotBegun {
    fn failed(error: InteropError) -> NotBegun {
        NotBegun { why: error.to_string(), outcome: AuditOutcome::Failed, error }
    }
}

/// A decision to answer.
#[derive(Default)]
struct Decided {
    /// Of a request for a message: by which right, and the service that it came in by.
    granted: Option<(Grant, String)>,
    /// What is remarkable about the rights.
    marks: EntryMarks,
}

impl Decided {
    fn by(marks: EntryMarks) -> Decided {
        Decided { granted: None, marks }
    }
}

/// The rights to one object, for a request that is moved to where it is answered.
fn owned(needs: Needs<'_>) -> Option<(Vec<Action>, identity::ObjectPattern)> {
    match needs {
        Needs::Right(action, object) => Some((vec![action], object.exactly().ok()?)),
        Needs::Every(actions, object) => Some((actions.to_vec(), object.exactly().ok()?)),
        Needs::Some(_)
        | Needs::SomeOfEach(_)
        | Needs::OfMessage(..)
        | Needs::EveryOfMessage(..)
        | Needs::ByIdentity => None,
    }
}

/// An error of a request about roles and rights.
fn of_identity(error: &IdentityError) -> InteropError {
    match error {
        IdentityError::Denied(_) => InteropError::Denied(error.to_string()),
        _ => InteropError::Refused(error.to_string()),
    }
}

/// Whether a service's messages may be listed.
type MaySee<'a> = &'a mut dyn FnMut(&str) -> bool;

/// A message as it may be seen.
type Seen<'a> = &'a dyn Fn(Stored) -> Stored;

/// A service's object.
fn service(name: &str) -> Object<'_> {
    Object::Service(name)
}

/// Who asks, for what a request leaves in the store: the role, or the user of the machine where that is the node's own.
fn name_of(entry: AuditEntry) -> String {
    let role = entry.details.get("role").cloned().unwrap_or(entry.actor.name);
    match (role.as_str(), entry.actor.id) {
        ("", Some(id)) => format!("user {id}"),
        _ => role,
    }
}

impl ControlRequests {
    pub(super) fn of(running: &Arc<RunningProduction>) -> Arc<ControlRequests> {
        Arc::new(ControlRequests { running: Arc::clone(running) })
    }

    /// Who sends a line, and the request in it.
    async fn caller<'l>(&self, line: &'l str, peer: &LocalPeer) -> Result<(Caller, &'l str), InteropError> {
        let guard = &self.running.guard;
        let (word, rest) = first_word(line);
        let (login, request) = match (word, peer.uid) {
            (AS, _) => {
                let (token, request) = first_word(rest);
                (guard.token(token, None), request)
            }
            (_, Some(uid)) => (guard.local(uid), line),
            (_, None) => {
                let text = "permission denied: the system does not say which user sent the request";
                return Err(InteropError::Denied(text.to_owned()));
            }
        };
        match login {
            Ok(caller) => Ok((caller, request)),
            Err(error) => {
                let proof = if word == AS { "token" } else { "uid" };
                let entry = AuditEntry::new("login", "").by(peer).with("proof", proof);
                audited::refused(&self.running.audit, entry, AuditOutcome::Refused, format!("{error}: {error:?}"))
                    .await;
                Err(InteropError::Denied(format!("permission denied: {error}")))
            }
        }
    }

    /// The one way to every request: it is read, then its right is asked for, then it is recorded and done.
    async fn request(
        &self,
        caller: &Caller,
        port: RequestPort<'_>,
        line: &str,
        progress: ProgressSender,
    ) -> Result<Value, InteropError> {
        let mut request = self.read(line).await?;
        let view = self.running.guard.view();
        let by = |entry: AuditEntry| match port {
            RequestPort::Control(peer) => entry.at_control(peer, caller, &view),
            RequestPort::Other(port) => entry.by_role(port, caller, &view),
        };
        if let ControlRequest::Tail { reads, .. } = &mut request {
            *reads = Some(by(AuditEntry::new("message.body", "tail")));
        }
        let requirement = request.requirement();
        let entry = requirement.entry.map(|(audited, entry)| (audited, by(entry)));
        let decided = match &request {
            ControlRequest::Identity(request) => {
                self.check_identity(caller, request).await.map(|()| Decided::default())
            }
            _ => self.decide(caller, requirement.needs).await,
        };
        let Decided { granted, marks } = match decided {
            Ok(decided) => decided,
            Err(NotBegun { error, outcome, why }) => {
                if let Some((_, entry)) = entry.filter(|(audited, _)| *audited != Audited::Used) {
                    audited::refused(&self.running.audit, entry, outcome, why).await;
                }
                return Err(error);
            }
        };
        let is_change = matches!(entry, Some((Audited::Change | Audited::Begun, _)))
            && !matches!(request, ControlRequest::Backup(_));
        // What changes something is not left half done; other work ends with the right to it.
        let needs = (!is_change).then(|| owned(request.requirement().needs)).flatten();
        let who = (caller.clone(), name_of(by(AuditEntry::new("", ""))));
        let answer = self.clone().answer(who, request, granted, progress);
        let entry = entry.map(|(audited, entry)| (audited, entry.marked(marks)));
        let work = audited::handle(&self.running.audit, entry, answer);
        match needs {
            None => work.await,
            Some((actions, object)) => {
                tokio::select! {
                    biased;
                    error = self.revoked(caller, &actions, &object) => Err(error),
                    done = work => done,
                }
            }
        }
    }

    /// Reads a line. One of a service that is still starting waits a moment for it.
    async fn read(&self, line: &str) -> Result<ControlRequest, InteropError> {
        if line.len() > PLAIN_REQUEST_BYTES_MAX && ![EDITED, IMPORT].contains(&first_word(line).0) {
            let text =
                format!("a request without a body has {PLAIN_REQUEST_BYTES_MAX} bytes at most, and this one is longer");
            return Err(InteropError::Refused(text));
        }
        if let Some(request) = ControlRequest::of(line)? {
            return Ok(request);
        }
        let deadline = Instant::now() + SERVICES_PATIENCE;
        loop {
            // Looked at before the request: a service that starts in between is found the next time.
            let is_starting = self.running.service_verbs.are_starting();
            if let Some(request) = self.running.service_verbs.request(line) {
                return request;
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

    /// Decides.
    async fn decide(&self, caller: &Caller, needs: Needs<'_>) -> Result<Decided, NotBegun> {
        let guard = &self.running.guard;
        let refused = |denied: Denied| {
            let error = InteropError::Denied(refusal_text(denied, caller, &guard.view()));
            NotBegun { error, outcome: AuditOutcome::Refused, why: denied.to_string() }
        };
        match needs {
            Needs::Right(action, object) => {
                guard.may(caller, action, object).map(|grant| Decided::by(EntryMarks::of(&grant))).map_err(refused)
            }
            Needs::Every(actions, object) => {
                let view = guard.view();
                let all = actions.iter().try_fold(EntryMarks::default(), |marks, action| {
                    view.may(caller, *action, object).map(|grant| marks.and(&grant))
                });
                all.map(Decided::by).map_err(refused)
            }
            Needs::Some(action) => guard.view().may_some(caller, action).map(|()| Decided::default()).map_err(refused),
            Needs::SomeOfEach(actions) => {
                let view = guard.view();
                let all = actions.iter().try_for_each(|action| view.may_some(caller, *action));
                all.map(|()| Decided::default()).map_err(refused)
            }
            // See `check_identity`.
            Needs::ByIdentity => Ok(Decided::default()),
            Needs::OfMessage(action, id) => self.decide_of_message(caller, &[action], id).await,
            Needs::EveryOfMessage(actions, id) => self.decide_of_message(caller, actions, id).await,
        }
    }

    /// Decides on what is done to a message, which needs the rights to all of these actions on its service.
    async fn decide_of_message(&self, caller: &Caller, actions: &[Action], id: u64) -> Result<Decided, NotBegun> {
        let guard = &self.running.guard;
        let refused = |denied: Denied| {
            let error = InteropError::Denied(refusal_text(denied, caller, &guard.view()));
            NotBegun { error, outcome: AuditOutcome::Refused, why: denied.to_string() }
        };
        actions.iter().try_for_each(|action| guard.view().may_some(caller, *action)).map_err(refused)?;
        // Of a message that is not there, the decision is made for one beside it: the same steps as for one that is hidden.
        let found = read_stored(&self.running, move |reader| reader.service_at_or_beside(id)).await;
        let Some((is_it, name)) = found.map_err(NotBegun::failed)? else {
            return Err(NotBegun::failed(InteropError::NoMessage { id }));
        };
        let grants = actions.iter().map(|action| guard.may(caller, *action, service(&name)));
        let grants: Result<Vec<Grant>, Denied> = grants.collect();
        let denied = match grants {
            Ok(grants) if is_it => {
                let marks = grants.iter().fold(EntryMarks::default(), |marks, grant| marks.and(grant));
                let granted = grants.into_iter().next().map(|grant| (grant, name));
                return Ok(Decided { granted, marks });
            }
            Ok(_) => return Err(NotBegun::failed(InteropError::NoMessage { id })),
            Err(denied) => denied,
        };
        let is_known = guard.may(caller, Action::MessageMetadata, service(&name)).is_ok();
        let refused = refused(denied);
        match (is_it, is_known) {
            (true, true) => Err(refused),
            (true, false) => Err(NotBegun { error: InteropError::NoMessage { id }, ..refused }),
            (false, _) => Err(NotBegun::failed(InteropError::NoMessage { id })),
        }
    }

    /// Whether a request about roles and rights may be made, and can be: before it has an entry as one that is begun.
    async fn check_identity(&self, caller: &Caller, request: &IdentityRequest) -> Result<(), NotBegun> {
        let (guard, caller, request) = (Arc::clone(&self.running.guard), caller.clone(), request.clone());
        let checked = tokio::task::spawn_blocking(move || identity::check(&guard, &caller, &request));
        let checked = checked.await.map_err(|_| NotBegun::failed(InteropError::Stopping))?;
        checked.map_err(|error| {
            let outcome = match error {
                IdentityError::Denied(_) => AuditOutcome::Refused,
                _ => AuditOutcome::Failed,
            };
            NotBegun { why: error.to_string(), outcome, error: of_identity(&error) }
        })
    }

    /// Returns once the caller has the right no more.
    async fn revoked(&self, caller: &Caller, actions: &[Action], object: &identity::ObjectPattern) -> InteropError {
        let guard = &self.running.guard;
        let mut changed = guard.changed();
        loop {
            let view = guard.view();
            let all = actions.iter().try_for_each(|action| view.may(caller, *action, object.as_object()).map(drop));
            if let Err(denied) = all {
                return InteropError::Denied(denied.to_string());
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Answers what was decided and recorded.
    async fn answer(
        self,
        (caller, by): (Caller, String),
        request: ControlRequest,
        granted: Option<(Grant, String)>,
        progress: ProgressSender,
    ) -> Result<Answered, InteropError> {
        let (running, caller) = (&self.running, &caller);
        let value = match request {
            ControlRequest::Status => serde_json::to_value(running.status()).expect("plain data becomes JSON"),
            ControlRequest::Reload { shown } => json!(running.reload_by(by, shown.as_deref()).await?),
            ControlRequest::Production(request) => self.production(caller, request, by).await?,
            ControlRequest::Resend { id, operations } => json!(resend(&running.engine, id, &operations, &by).await?),
            ControlRequest::Operator(request) => return verbs::answer(running, caller, request, &by).await,
            ControlRequest::Transfer(request) => return transfer::answer(running, caller, request).await,
            ControlRequest::Switch { operation, suspended } => {
                switch::switch(running, &operation, switch::Ordered::of(suspended), &by).await?
            }
            ControlRequest::ConfirmClock => running.housekeeping.confirm_clock().map(|()| Value::Null)?,
            ControlRequest::Stop => {
                running.stop.send_replace(true);
                Value::Null
            }
            ControlRequest::Verify => maintenance::answer_verify(running.store(), progress).await?,
            ControlRequest::Backup(folder) => maintenance::answer_backup(running.store(), folder, progress).await?,
            ControlRequest::Keys(change) => {
                node::encryption::answer_change(running.data(), running.store(), change).await?
            }
            ControlRequest::Messages(filter) => {
                let list = |reader: &Reader, filter: &Filter, may_see: MaySee<'_>, seen: Seen<'_>| {
                    history::answer_list(reader, filter, may_see, seen)
                };
                return self.messages(caller, *filter, list).await;
            }
            ControlRequest::MessagePage(query) => {
                let filter = query.filter.clone();
                let page = move |reader: &Reader, _: &Filter, may_see: MaySee<'_>, seen: Seen<'_>| {
                    history::answer_page(reader, &query, may_see, seen)
                };
                return self.messages(caller, filter, page).await;
            }
            ControlRequest::Tail { request, reads } => {
                let reads = reads.unwrap_or_else(|| AuditEntry::new("message.body", "tail"));
                return tail::tail(running, caller, (request, reads), progress).await;
            }
            ControlRequest::Message { id, bodies } => return self.message(caller, (id, bodies), granted).await,
            ControlRequest::Count => read_stored(&self.running, history::answer_count).await?,
            ControlRequest::Check => read_stored(&self.running, history::answer_check).await?,
            ControlRequest::Audit(request) => audit_requests::answer(&running.audit, request).await?,
            ControlRequest::Identity(request) => self.identity(caller, request).await?,
            ControlRequest::OfService { request, at_once } => self.of_service(caller, request, at_once).await?,
        };
        Ok(Answered::with(value))
    }

    /// The messages that match, of the services that the caller may list, as `list` finds them.
    async fn messages(
        &self,
        caller: &Caller,
        filter: Filter,
        list: impl FnOnce(&Reader, &Filter, MaySee<'_>, Seen<'_>) -> Result<Value, InteropError> + Send + 'static,
    ) -> Result<Answered, InteropError> {
        let (view, caller) = (self.running.guard.view(), caller.clone());
        let masker = Arc::clone(self.running.masker());
        let is_by_masked = history::masked_condition(&masker, &filter).is_some();
        if is_by_masked && view.may_some(&caller, Action::Unmasked).is_err() {
            history::refuse_conditions(&masker, &filter)?;
        }
        let found = move |reader: &Reader| {
            let mut needed = vec![Action::MessageMetadata];
            needed.extend(filter.reads_bodies().then_some(Action::MessageBody));
            needed.extend(is_by_masked.then_some(Action::Unmasked));
            let mut known: BTreeMap<String, bool> = BTreeMap::new();
            let (mut is_recorded, mut marks, is_masked) = (false, EntryMarks::default(), Cell::new(false));
            let mut may_see = |name: &str| {
                if let Some(may) = known.get(name) {
                    return *may;
                }
                let grants: Result<Vec<Grant>, Denied> =
                    needed.iter().map(|action| view.may(&caller, *action, service(name))).collect();
                let grants = grants.ok();
                for grant in grants.iter().flatten() {
                    is_recorded |= grant.audited;
                    marks = marks.and(grant);
                }
                known.insert(name.to_owned(), grants.is_some());
                grants.is_some()
            };
            let seen = |stored: Stored| match view.may(&caller, Action::Unmasked, service(&stored.service)) {
                Ok(_) => stored,
                Err(_) => {
                    is_masked.set(true);
                    history::masked(&masker, stored, true)
                }
            };
            let value = list(reader, &filter, &mut may_see, &seen)?;
            marks.masked = Some(is_masked.get());
            Ok(Answered { is_recorded, marks, ..Answered::with(value) })
        };
        read_stored(&self.running, found).await
    }

    /// A message: with its bodies if they are requested and the caller may read them, and masked if the caller may not see it
    /// otherwise.
    async fn message(
        &self,
        caller: &Caller,
        (id, bodies): (u64, bool),
        granted: Option<(Grant, String)>,
    ) -> Result<Answered, InteropError> {
        let Some((metadata, name)) = granted else { return Err(InteropError::NoMessage { id }) };
        let view = self.running.guard.view();
        let body = bodies.then(|| view.may(caller, Action::MessageBody, service(&name)));
        let withheld = match body {
            None => Some("the bodies are left out, as requested".to_owned()),
            Some(Err(denied)) => Some(refusal_text(denied, caller, &view)),
            Some(Ok(_)) => None,
        };
        let reads = if withheld.is_none() { Reads::one(id) } else { Reads::default() };
        let unmasked = view.may(caller, Action::Unmasked, service(&name));
        let masker = unmasked.is_err().then(|| Arc::clone(self.running.masker()));
        let (queues, now_us) = (self.running.operations.queues(), self.running.engine.clock.now_us());
        let answer = move |reader: &Reader| {
            let waits = |id: u64, open: &[(u16, &str)]| waiting::waits(&queues, now_us, id, open);
            history::answer_message(reader, id, withheld, masker.as_deref(), &waits)
        };
        let value = read_stored(&self.running, answer).await?;
        let mut marks = EntryMarks::of(&metadata);
        if let Some(Ok(body)) = &body {
            marks = marks.and(body);
            marks.masked = Some(unmasked.is_err());
        }
        if let Ok(unmasked) = &unmasked {
            marks = marks.and(unmasked);
        }
        Ok(Answered {
            value,
            reads,
            refused: body.and_then(Result::err).map(|denied| denied.to_string()),
            is_recorded: metadata.audited,
            marks,
        })
    }

    async fn identity(&self, caller: &Caller, request: IdentityRequest) -> Result<Value, InteropError> {
        let (guard, caller) = (Arc::clone(&self.running.guard), caller.clone());
        let work = move || identity::answer(&guard, &caller, request).map_err(|error| of_identity(&error));
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(InteropError::Stopping))
    }

    async fn of_service(
        &self,
        caller: &Caller,
        request: Box<dyn ServiceRequest>,
        at_once: bool,
    ) -> Result<Value, InteropError> {
        let (message_log, caller) = (Arc::clone(&self.running.engine.message_log), caller.clone());
        let work = move || {
            if !at_once {
                message_log.wait_visible().map_err(InteropError::from)?;
            }
            request.answer(&caller).map_err(InteropError::Refused)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(InteropError::Stopping))
    }

    /// Generations of the production. `by`: who asks.
    async fn production(&self, caller: &Caller, request: ProductionRequest, by: String) -> Result<Value, InteropError> {
        if let ProductionRequest::Back { generation } = request {
            return Ok(json!(go_back(&self.running, generation, by).await?));
        }
        let all = service(history::EVERY_SERVICE);
        let shows_tables = self.running.guard.may(caller, Action::Unmasked, all).is_ok();
        let running = Arc::clone(&self.running);
        let work = move || answer_production(&running, shows_tables, &request);
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(InteropError::Stopping))
    }
}
