//! [`NodeAdmin`]: what the console asks of the node, as requests of the control socket by the caller of the page.
//!
//! ```text
//!   page --Caller--> NodeAdmin --a line of the control socket--> RunningProduction::request_of: right, entry, masking --> JSON --> page
//! ```
//!
//! Invariant: nothing of a message, of the audit, of roles or of volumes is read past `request_of`, so a page shows what a command of the
//! same caller would show, and has the same entries. Figures are the exception: they hold no message, and the console asks for the right.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use interop::InteropError;
use interop::history::{Filter, Line, ListPage, ListPlace, ListQuery, OutputState, Trace, trace_of};
use interop::record::{Delivery, DeliveryOutcome, MessageOrigin, Output, Status, shown_source};
use interop::running::RunningProduction;
use interop::trial::output_differences;
use node::audit::{AuditEntry, AuditOutcome, AuditPage, AuditQuery, AuditRequest};
use node::clock::monotonic;
use node::identity::{Action, Caller, IdentityChange, IdentityRequest, Object, ObjectPattern, REQUEST, RoleReport};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use web_console::admin::{
    FoundLine, FoundPage, GlassRequest, MessageLine, MessagePage, MessageQuery, MessageView, NodeFigures,
    OutputState as ShownState, OutputView, ProductionSources, SavedSearch, TryReport, TryRequest, VolumeLine,
};
use web_console::{Admin, AdminError, SearchSource, SqlSource};

use super::figures::FiguresMemory;
use super::{saved, trying};
use crate::messages::search::{self, FoundMessages};
use crate::volumes::{self, VolumeReport, VolumeRequest};

/// The name of the console's port in the audit.
pub(super) const PORT: &str = "console";

/// Messages at the head of a queue that a page has.
const QUEUE_SHOWN: usize = 20;

/// Messages that a search shows.
const FOUND_MAX: usize = 50;

/// How long a search may take: a person waits for it.
const SEARCH_MS: u64 = 20_000;

/// Bytes of a body whose differences are looked for.
const DIFFERENCES_BYTES_MAX: usize = 1 << 20;

/// Characters of a name in a request.
const NAME_MAX: usize = 255;

/// See the module's text.
pub struct NodeAdmin {
    pub(super) node: Arc<RunningProduction>,
    memory: Arc<FiguresMemory>,
    lent: LentServices,
}

/// The services that run beside the console, as it knows them.
#[derive(Default)]
pub struct LentServices {
    /// SQL; none where it does not run.
    pub sql: Option<Arc<dyn SqlSource>>,
    /// Search; none where it does not run.
    pub indices: Option<Arc<dyn SearchSource>>,
}

/// What an error of the node means to who asked.
pub(super) fn refused(error: InteropError) -> AdminError {
    let text = error.to_string();
    match error {
        InteropError::Denied(_) => AdminError::Denied(text),
        InteropError::NoMessage { .. } | InteropError::NoSuch { .. } => AdminError::Absent(text),
        // What a masked reader may not select by is refused in these words.
        InteropError::Refused(_) if text.starts_with("permission denied") => AdminError::Denied(text),
        InteropError::Refused(_) | InteropError::Production(_) => AdminError::Refused(text),
        _ => AdminError::Unavailable(text),
    }
}

fn unreadable(error: impl std::fmt::Display) -> AdminError {
    AdminError::Unavailable(format!("the node's answer cannot be read: {error}"))
}

/// A name as one word of a request.
fn name_word(name: &str) -> Result<&str, AdminError> {
    let is_word =
        !name.is_empty() && name.len() <= NAME_MAX && !name.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_word { Ok(name) } else { Err(AdminError::Absent(format!("nothing is called `{}`", name.escape_default()))) }
}

fn status_name(status: Status) -> String {
    format!("{status:?}").to_lowercase()
}

fn shown_state(state: OutputState) -> ShownState {
    match state {
        OutputState::Waiting => ShownState::Waiting,
        OutputState::Delivered => ShownState::Delivered,
        OutputState::Failed => ShownState::Failed,
        OutputState::SetAside => ShownState::SetAside,
    }
}

fn line_of(line: Line) -> MessageLine {
    MessageLine {
        id: line.id,
        received_us: line.received_us,
        service: line.service,
        kind: line.kind,
        control_id: line.control_id,
        status: status_name(line.status),
        duplicate: line.duplicate,
        resent_from: line.resent_from.or(line.reprocessed_from),
        bytes: line.bytes as u64,
        outputs: line.outputs.into_iter().map(|(name, state)| (name, shown_state(state))).collect(),
        damaged: line.damaged,
    }
}

fn page_of(page: ListPage) -> MessagePage {
    MessagePage {
        lines: page.lines.into_iter().map(line_of).collect(),
        next: page.next.map(|place| (place.received_us, place.id)),
        looked_at: page.looked_at as u64,
        is_partial: page.is_partial,
    }
}

pub(super) fn filter_of(query: &MessageQuery) -> Result<Filter, AdminError> {
    let status = query.status.as_ref().map(|name| {
        serde_json::from_value(json!(name)).map_err(|_| AdminError::Refused(format!("`{name}` is no decision")))
    });
    Ok(Filter {
        service: query.service.clone(),
        interface: query.interface.clone(),
        status: status.transpose()?,
        output: query.output.map(|state| match state {
            ShownState::Waiting => OutputState::Waiting,
            ShownState::Delivered => OutputState::Delivered,
            ShownState::Failed => OutputState::Failed,
            ShownState::SetAside => OutputState::SetAside,
        }),
        control_id: query.control_id.clone(),
        mrn: query.mrn.clone(),
        kind: query.kind.clone(),
        wanted: query.wanted.clone(),
        since_us: query.since_us,
        until_us: query.until_us,
        last: 0,
    })
}

fn output_view(trace: &Trace, (at, output): (usize, &Output)) -> OutputView {
    let outcome: Option<&Delivery> = trace.deliveries.iter().find(|delivery| usize::from(delivery.output) == at);
    let state = match outcome.map(|delivery| delivery.outcome) {
        None => ShownState::Waiting,
        Some(DeliveryOutcome::Delivered) => ShownState::Delivered,
        Some(DeliveryOutcome::Failed) => ShownState::Failed,
        Some(DeliveryOutcome::SetAside) => ShownState::SetAside,
    };
    let raw = &trace.stored.raw;
    let is_small = raw.len().max(output.body.len()) <= DIFFERENCES_BYTES_MAX;
    let differences = match trace.withheld.is_none() && is_small {
        true => output_differences(raw, &output.body, trace.stored.charset),
        false => Vec::new(),
    };
    OutputView {
        operation: output.operation.clone(),
        transform: output.transform.clone(),
        bytes: trace.output_bytes.get(at).copied().unwrap_or(0) as u64,
        body: output.body.clone(),
        state,
        ended: outcome.map(|delivery| (delivery.at_us, delivery.detail.clone())),
        differences: differences.into_iter().map(trying::difference).collect(),
    }
}

/// How a message was made from another one of this node; empty where it was not.
fn made_of(origin: Option<&MessageOrigin>) -> String {
    let made = origin.filter(|origin| origin.stored().is_some());
    made.map(|origin| origin.derivation.name().to_owned()).unwrap_or_default()
}

/// Where an imported message is from, in words.
fn imported(origin: &MessageOrigin) -> String {
    format!("number {} of {}", origin.id, shown_source(&origin.key))
}

fn view_of(trace: &Trace) -> MessageView {
    let stored = &trace.stored;
    MessageView {
        id: trace.id,
        received_us: stored.received_us,
        service: stored.service.clone(),
        charset: stored.charset.map(|charset| charset.name().to_owned()),
        status: status_name(stored.status),
        reason: stored.reason.clone(),
        duplicate: stored.duplicate,
        resent_from: stored.origin.as_ref().and_then(MessageOrigin::stored),
        imported: stored.origin.as_ref().filter(|origin| origin.stored().is_none()).map(imported),
        made: made_of(stored.origin.as_ref()),
        derived: trace.derived.iter().map(|link| (link.id, link.how.name().to_owned())).collect(),
        generation: stored.generation,
        bytes: trace.bytes as u64,
        raw: stored.raw.clone(),
        withheld: trace.withheld.clone(),
        masked: trace.masked && trace.withheld.is_none(),
        outputs: stored.outputs.iter().enumerate().map(|output| output_view(trace, output)).collect(),
    }
}

impl NodeAdmin {
    /// Of a node.
    pub fn new(node: Arc<RunningProduction>, lent: LentServices) -> NodeAdmin {
        NodeAdmin { node, memory: Arc::default(), lent }
    }

    async fn request(&self, caller: &Caller, line: &str) -> Result<Value, AdminError> {
        self.node.request_of(caller, PORT, line).await.map_err(refused)
    }

    pub(super) async fn read<T: DeserializeOwned>(&self, caller: &Caller, line: &str) -> Result<T, AdminError> {
        serde_json::from_value(self.request(caller, line).await?).map_err(unreadable)
    }

    /// A request that streams.
    pub(super) async fn stream(
        &self,
        caller: &Caller,
        line: &str,
        parts: tokio::sync::mpsc::Sender<Value>,
    ) -> Result<(), AdminError> {
        self.node.stream_of(caller, PORT, (line, parts)).await.map(drop).map_err(refused)
    }

    async fn trace(&self, caller: &Caller, id: u64, bodies: bool) -> Result<Trace, AdminError> {
        let part = if bodies { "" } else { " metadata" };
        let answer = self.request(caller, &format!("message {id}{part}")).await?;
        trace_of(id, answer).map_err(refused)
    }

    async fn page(&self, caller: &Caller, query: &MessageQuery) -> Result<ListPage, AdminError> {
        let query = ListQuery {
            filter: filter_of(query)?,
            before: query.before.map(|(received_us, id)| ListPlace { received_us, id }),
            limit: query.limit,
        };
        self.read(caller, &format!("message-page {}", json!(query))).await
    }

    /// The folder of the production; none of a node that only stores.
    fn folder(&self) -> Option<PathBuf> {
        let folder = self.node.engine().plan().production.folder.clone();
        (folder != Path::new(".")).then_some(folder)
    }

    /// Whether a caller may load a production; with an entry of what it is used for, durable before that is done.
    async fn may_load(&self, caller: &Caller, entry: AuditEntry) -> Result<(), AdminError> {
        let (guard, audit) = (self.node.guard(), self.node.audit());
        let entry = entry.by_role(PORT, caller, &guard.view());
        if let Err(denied) = guard.may(caller, Action::ProductionLoad, Object::Node) {
            // It is refused with an entry and without.
            _ = audit.write_bounded(entry.ended(AuditOutcome::Refused, denied.to_string())).await;
            return Err(AdminError::Denied(denied.to_string()));
        }
        audit.write(entry).await.map_err(|error| AdminError::Unavailable(error.to_string()))?;
        Ok(())
    }

    /// The messages of a trial, as the caller may read them; what is shown masked cannot be tried.
    async fn read_for_trial(
        &self,
        caller: &Caller,
        chosen: Vec<(u64, String)>,
    ) -> Result<Vec<(Trace, String)>, AdminError> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for (id, kind) in chosen {
            let trace = self.trace(caller, id, true).await?;
            if let Some(why) = &trace.withheld {
                return Err(AdminError::Denied(format!("a message is tried as it came in: {why}")));
            }
            if trace.masked {
                let text = format!("a message is tried as it came in, and message {id} is shown masked to you");
                return Err(AdminError::Denied(text));
            }
            bytes += trace.stored.raw.len();
            messages.push((trace, kind));
            if bytes > trying::TRIAL_BYTES_MAX {
                break;
            }
        }
        Ok(messages)
    }
}

/// Runs what blocks on a thread for that.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
) -> Result<T, AdminError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(AdminError::Unavailable("the node is stopping".to_owned())))
}

#[async_trait]
impl Admin for NodeAdmin {
    async fn figures(&self) -> Result<NodeFigures, AdminError> {
        let (node, memory) = (Arc::clone(&self.node), Arc::clone(&self.memory));
        blocking(move || memory.collect(&node).map_err(refused)).await
    }

    async fn messages(&self, caller: &Caller, query: &MessageQuery) -> Result<MessagePage, AdminError> {
        self.page(caller, query).await.map(page_of)
    }

    async fn search(&self, caller: &Caller, text: &str) -> Result<FoundPage, AdminError> {
        let query = search::MessageQuery {
            query: text.to_owned(),
            last: FOUND_MAX,
            by_score: false,
            since_us: None,
            until_us: None,
            time_max_ms: SEARCH_MS,
        };
        let answer = self.read(caller, &format!("{} {}", search::REQUEST, json!(query))).await;
        let found: FoundMessages = match answer {
            Err(AdminError::Refused(text)) if text.contains("is not a request") => {
                let text = "this node does not search the text of messages: add [search] to its terrace.toml, and start it again";
                return Err(AdminError::Refused(text.to_owned()));
            }
            answer => answer?,
        };
        let line = |message: search::FoundMessage| FoundLine {
            line: MessageLine {
                id: message.id,
                received_us: message.received_us,
                service: message.service,
                kind: message.kind,
                control_id: message.control_id,
                status: message.status,
                damaged: message.unreadable,
                ..MessageLine::default()
            },
            mrn: message.mrn,
            name: message.name,
        };
        Ok(FoundPage {
            lines: found.messages.into_iter().map(line).collect(),
            total: found.total,
            total_is_exact: found.total_is_exact,
            took_us: found.took_us,
            is_behind: found.is_behind,
        })
    }

    async fn message(&self, caller: &Caller, id: u64, bodies: bool) -> Result<MessageView, AdminError> {
        let trace = self.trace(caller, id, bodies).await?;
        blocking(move || Ok(view_of(&trace))).await
    }

    async fn resend(&self, caller: &Caller, id: u64, operations: &[String]) -> Result<u64, AdminError> {
        let names: Result<Vec<&str>, AdminError> = operations.iter().map(|name| name_word(name)).collect();
        self.read(caller, &format!("resend {id} {}", names?.join(" "))).await
    }

    async fn set_suspended(&self, caller: &Caller, operation: &str, suspended: bool) -> Result<(), AdminError> {
        let verb = if suspended { "suspend" } else { "resume" };
        self.request(caller, &format!("{verb} {}", name_word(operation)?)).await.map(drop)
    }

    async fn queue(&self, caller: &Caller, operation: &str) -> Result<Vec<MessageLine>, AdminError> {
        let heads = self.node.queue_heads(QUEUE_SHOWN);
        let first = heads.into_iter().find(|head| head.operation == operation).map(|head| head.first);
        let mut lines = Vec::new();
        for id in first.unwrap_or_default() {
            match self.trace(caller, id, false).await {
                Ok(trace) => lines.push(metadata_line(&trace)),
                // It was delivered meanwhile, or the caller may not know of it.
                Err(AdminError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(lines)
    }

    async fn break_glass(&self, caller: &Caller, request: &GlassRequest) -> Result<(), AdminError> {
        let wrong = |error: &dyn std::fmt::Display| AdminError::Refused(error.to_string());
        let object = ObjectPattern::parse(&format!("service {}", request.service)).map_err(|error| wrong(&error))?;
        let time = Duration::from_secs(u64::from(request.minutes) * 60);
        let until_us = self.node.guard().now_us().saturating_add(time.as_micros() as i64);
        let mut actions = vec![Action::MessageMetadata, Action::MessageBody];
        actions.extend(request.unmasked.then_some(Action::Unmasked));
        let change = |action| IdentityChange::BreakGlass {
            action,
            object: object.clone(),
            until_us,
            reason: request.reason.clone(),
        };
        let request = IdentityRequest::Change { changes: actions.into_iter().map(change).collect() };
        self.request(caller, &format!("{REQUEST} {}", json!(request))).await.map(drop)
    }

    async fn sources(&self, caller: &Caller) -> Result<ProductionSources, AdminError> {
        self.may_load(caller, AuditEntry::new("production.read", "")).await?;
        let folder = self.folder();
        blocking(move || trying::sources(folder)).await
    }

    async fn try_on_stored(&self, caller: &Caller, request: &TryRequest) -> Result<TryReport, AdminError> {
        let what = if request.of_rules { "rules" } else { "transform" };
        let entry = AuditEntry::new("production.try", format!("{what} {}", request.name));
        self.may_load(caller, entry).await?;
        let began = monotonic();
        let Some(folder) = self.folder() else {
            return Err(AdminError::Refused("this node has no production folder".to_owned()));
        };
        let wanted = request.clone();
        let values = self.node.values().clone();
        let (trial, services) = blocking(move || trying::trial(&folder, &values, &wanted)).await?;
        let page = self.page(caller, &request.query).await?;
        let (chosen, left_out) = trying::chosen(&page, &services);
        let messages = self.read_for_trial(caller, chosen).await?;
        let mut report = blocking(move || trying::run(&trial, &messages)).await?;
        report.left_out += left_out;
        report.took_us = monotonic().saturating_sub(began).as_micros() as u64;
        Ok(report)
    }

    async fn audit(&self, caller: &Caller, query: &AuditQuery) -> Result<AuditPage, AdminError> {
        self.read(caller, &AuditRequest::Read { query: query.clone() }.line()).await
    }

    async fn roles(&self, caller: &Caller) -> Result<Vec<RoleReport>, AdminError> {
        self.read(caller, &format!("{REQUEST} {}", json!(IdentityRequest::List))).await
    }

    async fn volumes(&self, caller: &Caller) -> Result<Vec<VolumeLine>, AdminError> {
        let request = VolumeRequest::Status { names: Vec::new() };
        let reports: Vec<VolumeReport> = self.read(caller, &format!("{} {}", volumes::REQUEST, json!(request))).await?;
        Ok(reports.iter().map(volume_line).collect())
    }

    fn sql(&self) -> Option<Arc<dyn SqlSource>> {
        self.lent.sql.clone()
    }

    fn indices(&self) -> Option<Arc<dyn SearchSource>> {
        self.lent.indices.clone()
    }

    async fn saved_searches(&self, caller: &Caller) -> Result<Vec<SavedSearch>, AdminError> {
        let (store, role) = (self.node.store().clone(), caller.session());
        blocking(move || saved::read(&store, role)).await
    }

    async fn save_search(&self, caller: &Caller, name: &str, target: Option<&str>) -> Result<(), AdminError> {
        let view = self.node.guard().view();
        // As the page of the list asks, where they are saved.
        view.may_some(caller, Action::MessageMetadata).map_err(|denied| AdminError::Denied(denied.to_string()))?;
        let (store, role) = (self.node.store().clone(), caller.session());
        let (name, target) = (name.to_owned(), target.map(str::to_owned));
        let (checked, named, to) = (store.clone(), name.clone(), target.clone());
        blocking(move || saved::check(&checked, role, &named, to.as_deref())).await?;
        // A name may be of a patient: the entry has none.
        let action = if target.is_some() { "console.save-search" } else { "console.forget-search" };
        let entry = AuditEntry::new(action, "").by_role(PORT, caller, &view);
        // It needs no right that is recorded, and can be done again and again.
        self.node.audit().write_bounded(entry).await.map_err(|error| AdminError::Unavailable(error.to_string()))?;
        blocking(move || saved::change(&store, role, &name, target.as_deref())).await
    }
}

/// A message of which only metadata was asked for, as a line: its type is in its body, and is not known then.
fn metadata_line(trace: &Trace) -> MessageLine {
    let view = view_of(trace);
    MessageLine {
        id: view.id,
        received_us: view.received_us,
        service: view.service,
        status: view.status,
        duplicate: view.duplicate,
        resent_from: view.resent_from,
        bytes: view.bytes,
        outputs: view.outputs.iter().map(|output| (output.operation.clone(), output.state)).collect(),
        ..MessageLine::default()
    }
}

fn volume_line(report: &VolumeReport) -> VolumeLine {
    let copy = |copy: &volumes::CopyReport| {
        let real = if copy.real { "" } else { ", modelled" };
        format!("{} on {}{real}: {}", copy.number, copy.tier, copy.state)
    };
    let why = report.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    VolumeLine {
        name: report.name.clone(),
        bytes: report.bytes,
        state: format!("{}{why}", report.state.name()),
        is_well: report.is_well(),
        copies: report.copies.iter().map(copy).collect(),
        export: report.export.as_ref().and_then(|export| export.uris.first().cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_become_another_word_of_a_request() {
        assert_eq!(name_word("lab-out"), Ok("lab-out"));
        for wrong in ["", "a b", "a\nstop", "a\tb", "a\u{2028}b", &"x".repeat(NAME_MAX + 1)] {
            assert!(name_word(wrong).is_err(), "{wrong:?}");
        }
    }
}
