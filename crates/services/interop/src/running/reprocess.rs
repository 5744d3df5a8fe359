//! Deciding on stored messages anew, with the loaded production: `terrace message reprocess`.
//!
//! ```text
//!   ids, or a search by status --page by page--> right on its service? --> made under this key before? --> again: the first result
//!        --> decide, with the loaded production --> routed, or dropped now --> a new message, linked both ways
//!                                                \-> errored, rejected, unmatched, dropped as before --> told, nothing is stored
//! ```
//!
//! Invariants:
//! 1. Under one key a message is made from another once at most, however often and by however many the request comes, also across a
//!    crash: key and new message are one record, and one request at a time looks and stores.
//! 2. A page is bounded in messages, in candidates that are looked at, and in time. A search goes on behind the last one; without a key it
//!    leaves out what was reprocessed before.
//! 3. A search finds none of the messages that it makes: what is stored is routed, or dropped where the original was not.
//! 4. A preview stores and sends nothing, and is by one generation of the production. A request that names the generation of its preview
//!    is decided on by that one, or ends.
//!
//! Bytes of messages are in no result.

use std::time::{Duration, Instant};

use node::identity::{Action, Caller, Object};
use serde_json::json;
use store::{Lsn, StoreError};
use tokio::sync::oneshot;

use super::RunningProduction;
use super::audited::Answered;
use super::operator_request::{PAGE_MAX, ReprocessOutcome, ReprocessPage, ReprocessRequest, ReprocessResult};
use super::stored::{read_stored, settled};
use crate::engine::Engine;
use crate::error::InteropError;
use crate::history::{DERIVED_SHOWN, EVERY_SERVICE};
use crate::intake::{self, Inbound, Work};
use crate::plan::{Plan, PlannedService};
use crate::record::{self, Derivation, MessageOrigin, Status, Stored};
use crate::rows::Reader;

/// Messages that are looked at for one page at most.
const LOOKED_MAX: usize = 1_000;

/// How long a page goes on before it ends with what it has.
const PAGE_TIME: Duration = Duration::from_secs(2);

/// How long a message waits for room in the queue of an operation.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// A stored message of a page.
struct Found {
    id: u64,
    stored: Stored,
    /// What was made from it before under the key; or at all.
    again: Option<u64>,
    already: Option<u64>,
}

/// A message that is being stored, and its place among the results.
type Submitted = Vec<(usize, oneshot::Receiver<Lsn>)>;

/// Decides on the messages of a page anew.
pub(super) async fn reprocess(
    running: &RunningProduction,
    caller: &Caller,
    mut request: ReprocessRequest,
) -> Result<Answered, InteropError> {
    // Held until all of the page is durable: the next request finds what this one has made.
    let _one = if request.preview { None } else { Some(running.reprocessing.lock().await) };
    if !request.preview {
        // What one before has made that ended before it was durable.
        settled(running).await?;
    }
    let generation = request.generation.unwrap_or_else(|| running.engine.plan().production.generation());
    if request.preview {
        request.generation = Some(generation);
    }
    let (ids, mut next) = candidates(running, &request).await?;
    let (mut results, mut submitted) = (Vec::new(), Submitted::new());
    let (began, mut stopped) = (Instant::now(), None);
    let limit = if (1..PAGE_MAX).contains(&request.limit) { request.limit } else { PAGE_MAX };
    let mut last = request.after;
    for id in ids {
        let is_search = request.search.is_some();
        if is_search && (results.len() >= limit || began.elapsed() > PAGE_TIME) {
            next = Some(last);
            break;
        }
        let found = found(running, caller, &request, id).await?;
        let made = match found {
            None if is_search => Ok(None),
            None => Ok(Some((refused(id, InteropError::NoMessage { id }.to_string()), None))),
            Some(Err(damaged)) => Ok(Some((damaged, None))),
            Some(Ok(found)) => match again(&found, &request) {
                Some(result) => Ok(Some((result, None))),
                None => decide_anew(&running.engine, &found, &request).await.map(Some),
            },
        };
        match made {
            Err(why) => {
                (next, stopped) = (is_search.then_some(last), Some(why));
                break;
            }
            Ok(made) => {
                if let Some((result, receiver)) = made {
                    submitted.extend(receiver.map(|receiver| (results.len(), receiver)));
                    results.push(result);
                }
            }
        }
        last = id;
    }
    for (at, durable) in submitted {
        results[at].new = Some(durable.await.map_err(|_| InteropError::Stopping)?.0);
    }
    if results.is_empty()
        && let Some(why) = &stopped
    {
        return Err(InteropError::Refused(why.clone()));
    }
    // That somebody has looked what would go where is recorded, as each use of this right.
    let is_recorded = request.preview;
    Ok(Answered { is_recorded, ..Answered::with(json!(ReprocessPage { results, next, stopped, generation })) })
}

/// The ids to look at, and where the search goes on behind them.
async fn candidates(
    running: &RunningProduction,
    request: &ReprocessRequest,
) -> Result<(Vec<u64>, Option<u64>), InteropError> {
    let Some(search) = request.search.clone() else {
        let mut ids = request.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        return Ok((ids, None));
    };
    let after = request.after;
    read_stored(running, move |reader: &Reader| {
        let mut ids = Vec::new();
        let Some(mut found) = reader.by_status_after(search.status, after) else { return Ok((ids, None)) };
        while let Some(id) = found.next()? {
            ids.push(id);
            if ids.len() == LOOKED_MAX {
                return Ok((ids, Some(id)));
            }
        }
        Ok((ids, None))
    })
    .await
}

/// A message, if it is there, matches, and the caller may send it again. One that cannot be read is told to who may send all.
async fn found(
    running: &RunningProduction,
    caller: &Caller,
    request: &ReprocessRequest,
    id: u64,
) -> Result<Option<Result<Found, ReprocessResult>>, InteropError> {
    let (view, who, request) = (running.guard.view(), caller.clone(), request.clone());
    let may_all = view.may(&who, Action::MessageResend, Object::Service(EVERY_SERVICE)).is_ok();
    let read = move |reader: &Reader| {
        let Some((stored, _)) = reader.inbound(id)? else { return Ok(None) };
        let may = view.may(&who, Action::MessageResend, Object::Service(&stored.service)).is_ok();
        if !may || !request.search.as_ref().is_none_or(|search| search.matches(&stored)) {
            return Ok(None);
        }
        let again = match request.key() {
            "" => None,
            key => reader.derived_under(id, key)?,
        };
        let derived = reader.derived_from(id, DERIVED_SHOWN)?;
        let already = derived.iter().rev().find(|link| link.how == Derivation::Reprocessed).map(|link| link.id);
        Ok(Some(Ok(Found { id, stored, again, already })))
    };
    match read_stored(running, read).await {
        Err(InteropError::Store(StoreError::Corrupt(_))) => {
            Ok(may_all.then(|| Err(refused(id, "it is damaged; `terrace verify` reports all damage".to_owned()))))
        }
        found => found,
    }
}

fn result(id: u64, outcome: ReprocessOutcome, reason: String) -> ReprocessResult {
    ReprocessResult { id, outcome, reason, new: None, operations: Vec::new() }
}

fn refused(id: u64, reason: String) -> ReprocessResult {
    result(id, ReprocessOutcome::Refused, reason)
}

/// The result for a message of which nothing is to be made now.
fn again(found: &Found, request: &ReprocessRequest) -> Option<ReprocessResult> {
    let (outcome, new, reason) = match (found.again, found.already) {
        (Some(new), _) => (ReprocessOutcome::Again, new, "it was reprocessed under this key"),
        (None, Some(new)) if request.search.is_some() => {
            (ReprocessOutcome::Already, new, "it was reprocessed before; name it to do so again")
        }
        _ => return None,
    };
    Some(ReprocessResult { new: Some(new), ..result(found.id, outcome, reason.to_owned()) })
}

type Made = (ReprocessResult, Option<oneshot::Receiver<Lsn>>);

/// Whether the generation that is meant is in force.
fn check_generation(plan: &Plan, request: &ReprocessRequest) -> Result<(), String> {
    let in_force = plan.production.generation();
    match request.generation {
        Some(meant) if meant != in_force => Err(format!(
            "generation {in_force} of the production is in force, and this is for generation {meant}: look at a preview again"
        )),
        _ => Ok(()),
    }
}

/// Decides on a message anew, and has the new one stored where there is something new. The error is why the page ends here.
async fn decide_anew(engine: &Engine, found: &Found, request: &ReprocessRequest) -> Result<Made, String> {
    let Found { id, stored, .. } = found;
    let plan = engine.plan();
    check_generation(&plan, request)?;
    let Some(service) = PlannedService::of(&plan, &stored.service) else {
        let text = format!("the production has no service {}, whose rules it went through", stored.service);
        return Ok((refused(*id, text), None));
    };
    let origin = MessageOrigin { id: *id, derivation: Derivation::Reprocessed, key: request.key().to_owned() };
    let control_id = engine.control_id();
    let (reading, unreadable) = intake::read(&service, &stored.raw);
    let inbound = Inbound::new(&service, &stored.raw, (&reading, unreadable), engine.clock.now_us(), &control_id);
    let inbound = inbound.derived(Some(&origin));
    let Some(work) = engine.decide(&inbound, &service, false).await else {
        return Err("the node is stopping".to_owned());
    };
    let mut result = decided(*id, &work)?;
    let operations = work.outputs.iter().map(|output| plan.production.operations[output.operation].name.clone());
    result.operations = operations.collect();
    let is_new = work.status == Status::Routed || (work.status == Status::Dropped && stored.status != Status::Dropped);
    if request.preview || !is_new {
        return Ok((result, None));
    }
    for output in &work.outputs {
        let queue = &plan.queues[output.operation];
        let waited = tokio::time::timeout(ROOM_PATIENCE, queue.room()).await;
        if waited.is_err() {
            return Err(format!(
                "as many messages wait in operation {} as its settings allow; the same request with the same key goes on later",
                queue.name
            ));
        }
    }
    // It may have taken its time.
    check_generation(&engine.plan(), request)?;
    let durable = engine.submit(&plan, work).map_err(|refusal| refusal.to_string())?;
    Ok((result, Some(durable)))
}

/// What was decided.
fn decided(id: u64, work: &Work) -> Result<ReprocessResult, String> {
    let reason = match &work.problem {
        Some(problem) => problem.text.clone(),
        None => record::decode_message(&work.record).map_err(|error| error.to_string())?.reason,
    };
    Ok(result(id, ReprocessOutcome::of(work.status), reason))
}
