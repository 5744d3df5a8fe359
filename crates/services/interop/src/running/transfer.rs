//! Exporting stored messages with their bodies, and importing messages from elsewhere, a page for each request.
//!
//! ```text
//!   export   rights on each service --> walk, oldest first --> masked for who asks --> a page: metadata, bodies, where the next one begins
//!   import   number and source --> imported before? --> again
//!                \--> ingest, as a message that a sender sent: duplicates, rules, room in the queues --> durable --> its id
//! ```
//!
//! Invariants:
//! 1. Messages of a service on which the caller lacks a right are neither in an export nor counted in it.
//! 2. Of one source and one number a message is imported into a service once, however often and by however many the request comes, also across a crash:
//!    source and number lie in its own record, and one request at a time looks and stores for a service.
//! 3. A result says that a message is stored only once it is durable.
//! 4. A page of an import is bounded in messages and in time; back pressure ends it, with the reason.
//! 5. A dry run stores and sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hl7::Reading;
use hl7::charset::Charset;
use node::audit::{EntryMarks, Reads};
use node::identity::{Action, Caller, Denied, Grant, Object};
use serde_json::json;
use store::Lsn;
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::audited::Answered;
use super::stored::{read_stored, settled};
use super::transfer_request::{
    ImportMessage, ImportOutcome, ImportPage, ImportRequest, ImportResult, MASKED, TransferRequest, UNMASKED,
};
use super::{RunningProduction, lock};
use crate::engine::{Arrival, Engine, Ingested, Waits};
use crate::error::InteropError;
use crate::history::{self, ExportRequest, ExportSight};
use crate::intake::{self, Inbound};
use crate::plan::PlannedService;
use crate::production::Service;
use crate::record::{Derivation, MessageOrigin, Status, Stored};
use crate::rows::Reader;

/// How long a page of an import goes on before it ends with what it has.
const PAGE_TIME: Duration = Duration::from_secs(2);

/// How long a message waits for room in the queues of its operations.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// A turn for each service that imports go on into: one page at a time, and none waits for those of another service.
#[derive(Debug, Default)]
pub(super) struct ImportTurns(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl ImportTurns {
    async fn take(&self, service: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = lock(&self.0);
            // Nobody has those, or waits for them.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(service.to_owned()).or_default())
        };
        turn.lock_owned().await
    }
}

/// Answers what was decided and recorded.
pub(super) async fn answer(
    running: &RunningProduction,
    caller: &Caller,
    request: TransferRequest,
) -> Result<Answered, InteropError> {
    match request {
        TransferRequest::Export(request) => export(running, caller, *request).await,
        TransferRequest::Import(request) => import(running, *request).await,
    }
}

/// A page of an export.
async fn export(
    running: &RunningProduction,
    caller: &Caller,
    request: ExportRequest,
) -> Result<Answered, InteropError> {
    let (view, caller) = (running.guard.view(), caller.clone());
    let masker = Arc::clone(running.masker());
    let is_by_masked = history::masked_condition(&masker, &request.filter).is_some();
    if is_by_masked && view.may_some(&caller, Action::Unmasked).is_err() {
        history::refuse_conditions(&masker, &request.filter)?;
    }
    // Whether a message matches tells what is in it.
    let needed = if request.masked && !is_by_masked { MASKED } else { UNMASKED };
    let found = move |reader: &Reader| {
        let (mut known, mut marks) = (BTreeMap::<String, bool>::new(), EntryMarks::default());
        let mut may = |name: &str| {
            if let Some(may) = known.get(name) {
                return *may;
            }
            let grants: Result<Vec<Grant>, Denied> =
                needed.iter().map(|action| view.may(&caller, *action, Object::Service(name))).collect();
            let grants = grants.ok();
            marks = grants.iter().flatten().fold(marks, |marks, grant| marks.and(grant));
            known.insert(name.to_owned(), grants.is_some());
            grants.is_some()
        };
        let seen = |stored: Stored| match view.may(&caller, Action::Unmasked, Object::Service(&stored.service)) {
            Ok(_) => stored,
            Err(_) => history::masked(&masker, stored, true),
        };
        let written = |stored: Stored| if request.masked { history::masked(&masker, stored, true) } else { stored };
        let sight = ExportSight { may: &mut may, seen: &seen, written: &written };
        let page = history::export_page(reader, &request, sight)?;
        let mut reads = Reads::default();
        page.messages.iter().for_each(|one| reads.push(one.message.id));
        marks.masked = Some(request.masked);
        Ok(Answered { reads, marks, ..Answered::with(json!(page)) })
    };
    read_stored(running, found).await
}

/// A message of a page, ready to be decided on.
struct Item {
    origin: MessageOrigin,
    body: Bytes,
    at_us: Option<i64>,
    charset: Option<String>,
}

impl Item {
    fn of(message: ImportMessage) -> Result<Item, InteropError> {
        let body = message.bytes();
        let body = body.ok_or_else(|| InteropError::Refused("a body is not bytes as characters".to_owned()))?;
        let origin = MessageOrigin { id: message.number, derivation: Derivation::Imported, key: message.source };
        Ok(Item { origin, body, at_us: message.received_us, charset: message.charset })
    }
}

/// A result that says what was not done.
fn without(outcome: ImportOutcome, reason: impl Into<String>) -> ImportResult {
    ImportResult { outcome, id: None, reason: reason.into() }
}

/// Takes a page in.
async fn import(running: &RunningProduction, request: ImportRequest) -> Result<Answered, InteropError> {
    let engine = &running.engine;
    // Held until all of the page is durable: the next request finds what this one has stored.
    let _one = if request.dry_run { None } else { Some(running.importing.take(&request.service).await) };
    if !request.dry_run {
        // What one before has stored that ended before it was durable.
        settled(running).await?;
    }
    // Behind it: it may have taken as long as a reload.
    let plan = engine.plan();
    let Some(service) = PlannedService::of(&plan, &request.service) else {
        let known = plan.production.services.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(InteropError::NoSuch { what: "service", name: request.service, known });
    };
    let items: Vec<Item> = request.messages.into_iter().map(Item::of).collect::<Result<_, _>>()?;
    let origins: Vec<(u64, String)> = items.iter().map(|item| (item.origin.id, item.origin.key.clone())).collect();
    let into = service.name.clone();
    let before = read_stored(running, move |reader: &Reader| {
        let found = origins.iter().map(|(number, source)| reader.imported_as(*number, source, &into));
        found.collect::<Result<Vec<_>, _>>()
    })
    .await?;
    let (mut page, began) = (ImportPage::default(), Instant::now());
    let (mut here, mut waiting) = (BTreeSet::new(), Vec::new());
    for (item, before) in items.iter().zip(before) {
        if began.elapsed() > PAGE_TIME {
            break;
        }
        let is_twice = !here.insert((item.origin.id, &item.origin.key));
        let result = match before {
            Some(id) => ImportResult { id: Some(id), ..without(ImportOutcome::Again, "it was imported before") },
            None if is_twice => without(ImportOutcome::Again, "it is in the same request twice"),
            None if is_of_other_charset(&service, item) => {
                without(ImportOutcome::Refused, other_charset(&service, item))
            }
            None if request.replay && is_too_old(running, item) => without(ImportOutcome::Refused, TOO_OLD),
            None if request.dry_run => would_be(engine, &service, item, request.replay).await?,
            None => match take(engine, &service, item, request.replay).await {
                Ok((result, durable)) => {
                    waiting.extend(durable.map(|durable| (page.results.len(), durable)));
                    result
                }
                Err(why) => {
                    page.stopped = Some(why);
                    break;
                }
            },
        };
        page.results.push(result);
    }
    for (at, durable) in waiting {
        // The node failed or stops: nothing of the page is said to be stored that may not be.
        page.results[at].id = Some(durable.await.map_err(|_| InteropError::Stopping)?.0);
    }
    explain(running, &mut page).await?;
    Ok(Answered { is_recorded: request.dry_run, ..Answered::with(json!(page)) })
}

/// Adds to what was stored and goes nowhere, why: it is in the record.
async fn explain(running: &RunningProduction, page: &mut ImportPage) -> Result<(), InteropError> {
    let is_open = |result: &ImportResult| {
        matches!(result.outcome, ImportOutcome::Unmatched | ImportOutcome::Rejected | ImportOutcome::Errored)
    };
    let open: Vec<(usize, u64)> = page
        .results
        .iter()
        .enumerate()
        .filter(|(_, one)| is_open(one))
        .filter_map(|(at, one)| Some((at, one.id?)))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let read = move |reader: &Reader| {
        let reason = |(at, id)| Ok((at, reader.inbound(id)?.map(|(stored, _)| stored.reason).unwrap_or_default()));
        open.into_iter().map(reason).collect::<Result<Vec<(usize, String)>, InteropError>>()
    };
    for (at, reason) in read_stored(running, read).await? {
        page.results[at].reason = reason;
    }
    Ok(())
}

/// Whether bytes beyond ASCII would be read in another charset than at their source.
fn is_of_other_charset(service: &Service, item: &Item) -> bool {
    let (Some(theirs), false) = (&item.charset, item.body.is_ascii()) else { return false };
    let declares = Reading::of(&item.body, None).is_ok_and(|reading| {
        reading.message().is_ok_and(|message| message.get(&"MSH-18".parse().expect("a constant path")).is_valued())
    });
    let ours = service.settings.intake().charset().unwrap_or(Charset::UTF_8);
    !declares && Charset::named(theirs.as_bytes()) != Some(ours)
}

fn other_charset(service: &Service, item: &Item) -> String {
    let ours = service.settings.intake().charset().unwrap_or(Charset::UTF_8).name();
    format!(
        "it declares no charset and was read as {} where it came from; service {} reads {ours}: choose a service with that charset",
        item.charset.as_deref().unwrap_or_default(),
        service.name
    )
}

/// Why a message of long ago is not imported with its time.
const TOO_OLD: &str = "it was received longer ago than this node keeps messages ([messages] age): with that time it would be removed at \
                       once, and imported again by the next try; import it with the time of now, or keep messages longer";

/// Whether retention would remove a message as soon as it is delivered, and with it that it was imported.
fn is_too_old(running: &RunningProduction, item: &Item) -> bool {
    let age = running.options.retention.age.and_then(|age| i64::try_from(age.as_micros()).ok());
    let oldest_us = age.map(|age| running.engine.clock.now_us().saturating_sub(age));
    item.at_us.zip(oldest_us).is_some_and(|(at_us, oldest_us)| at_us < oldest_us)
}

/// When a message is said to have come in.
fn time_of(engine: &Engine, item: &Item, replay: bool) -> i64 {
    let now_us = engine.clock.now_us();
    // A time that is yet to come would be shown before those that come until then.
    item.at_us.filter(|_| replay).map_or(now_us, |at_us| at_us.clamp(0, now_us))
}

/// What would become of a message.
async fn would_be(
    engine: &Arc<Engine>,
    service: &Arc<PlannedService>,
    item: &Item,
    replay: bool,
) -> Result<ImportResult, InteropError> {
    if let Err(why) = fits(service, item) {
        return Ok(without(ImportOutcome::Refused, why));
    }
    let control_id = engine.control_id();
    let (reading, unreadable) = intake::read(service, &item.body);
    let inbound = Inbound::new(service, &item.body, (&reading, unreadable), time_of(engine, item, replay), &control_id);
    let work = engine.decide(&inbound, service, false).await.ok_or(InteropError::Stopping)?;
    let reason = work.problem.map(|problem| problem.text).unwrap_or_default();
    Ok(without(outcome_of(work.status), reason))
}

/// Whether a service takes a message of this length.
fn fits(service: &Service, item: &Item) -> Result<(), String> {
    let bound = service.settings.intake().message_bytes;
    if item.body.len() as u64 <= bound.0 {
        return Ok(());
    }
    Err(format!("it has {} bytes, and service {} takes {bound} at most", item.body.len(), service.name))
}

fn outcome_of(status: Status) -> ImportOutcome {
    match status {
        Status::Routed => ImportOutcome::Routed,
        Status::Dropped => ImportOutcome::Dropped,
        Status::Unmatched => ImportOutcome::Unmatched,
        Status::Rejected => ImportOutcome::Rejected,
        Status::Errored => ImportOutcome::Errored,
    }
}

/// Returns once a message has waited for room for as long as one may.
async fn no_room(waits: &Waits) {
    loop {
        waits.for_room().await;
        tokio::time::sleep(ROOM_PATIENCE).await;
        if waits.are_for_room() {
            return;
        }
    }
}

type Taken = (ImportResult, Option<oneshot::Receiver<Lsn>>);

/// Takes a message in. The error is why the page ends before it.
async fn take(engine: &Arc<Engine>, service: &Arc<PlannedService>, item: &Item, replay: bool) -> Result<Taken, String> {
    if let Err(why) = fits(service, item) {
        return Ok((without(ImportOutcome::Refused, why), None));
    }
    let arrival = Arrival { at_us: time_of(engine, item, replay), origin: Some(&item.origin) };
    let waits = Waits::default();
    // Given up before it is stored, or not at all: what is behind the wait for room does not wait. Deciding has a time of its own.
    let ingested = tokio::select! {
        ingested = engine.ingest_as(service, item.body.clone(), &waits, arrival) => ingested,
        () = no_room(&waits) => {
            let text = "as many messages wait in an operation as its settings allow; the same import goes on later";
            return Err(text.to_owned());
        }
    };
    match ingested {
        Ingested::Stored { durable, status, .. } => Ok((without(outcome_of(status), ""), Some(durable))),
        Ingested::Now { accepted: true, .. } => {
            let text = "the service has the same message of the same sender, and drops duplicates";
            Ok((without(ImportOutcome::Duplicate, text), None))
        }
        Ingested::Now { lasts: true, .. } => Ok((
            without(
                ImportOutcome::Refused,
                "it has too many segments, or with its outputs it is larger than the store takes",
            ),
            None,
        )),
        Ingested::Now { accepted: false, .. } => {
            Err("the node does not store messages at the moment: `terrace status` says why".to_owned())
        }
        Ingested::Closed => Err("the node is stopping".to_owned()),
    }
}
