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
//! 4. A preview stores and sends nothing.
//!
//! Bytes of messages are in no result.

use std::time::{Duration, Instant};

use node::identity::{Action, Caller, Object};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Lsn, StoreError};
use tokio::sync::oneshot;

use super::audited::Answered;
use super::requests::ControlRequests;
use crate::engine::Engine;
use crate::error::InteropError;
use crate::history::{DERIVED_SHOWN, EVERY_SERVICE};
use crate::intake::{self, Inbound, Work};
use crate::record::{self, Derivation, Origin, Status, Stored};
use crate::rows::Reader;

/// Messages of one page at most.
const PAGE_MAX: usize = 100;

/// Messages that are looked at for one page at most.
const LOOKED_MAX: usize = 1_000;

/// How long a page goes on before it ends with what it has.
const PAGE_TIME: Duration = Duration::from_secs(2);

/// How long a message waits for room in the queue of an operation.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// The request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReprocessRequest {
    /// These messages, 100 at most; or none, and a search.
    pub ids: Vec<u64>,
    /// All messages that match, oldest first.
    pub search: Option<ReprocessSearch>,
    /// Of a search: only ids above this. What the page before said.
    pub after: u64,
    /// Of a search: so many of those that match at most; 0, or more than 100: 100.
    pub limit: usize,
    /// The idempotency key: under the same one no message is made twice from another.
    pub key: Option<String>,
    /// Only tell what would be done.
    pub preview: bool,
}

/// Which messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReprocessSearch {
    /// With this status, which is not routed.
    pub status: Status,
    /// Only from this service.
    #[serde(default)]
    pub service: Option<String>,
    /// Only received at or after, microseconds since 1970.
    #[serde(default)]
    pub since_us: Option<i64>,
    /// Only received before, microseconds since 1970.
    #[serde(default)]
    pub until_us: Option<i64>,
}

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReprocessPage {
    /// Each message that was named or found.
    pub results: Vec<ReprocessResult>,
    /// Where the search goes on: ids above this; none at its end.
    pub next: Option<u64>,
    /// Why the page ended early, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// What became of a message, or would become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReprocessResult {
    /// The stored message.
    pub id: u64,
    /// What became of it.
    pub outcome: ReprocessOutcome,
    /// Why: the rule, or the error.
    pub reason: String,
    /// The message that was made from it: now, or before.
    pub new: Option<u64>,
    /// Where the new message goes, an operation for each output.
    pub operations: Vec<String>,
}

/// See [`ReprocessResult`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReprocessOutcome {
    /// A new message goes out.
    Routed,
    /// A rule drops it now; a new message says so.
    Dropped,
    /// It was reprocessed before, under this key: nothing was done now.
    Again,
    /// It was reprocessed before, and the request has no key or another one: a search leaves it out.
    Already,
    /// A rule or a transform fails on it: nothing was stored.
    Errored,
    /// It is refused: nothing was stored.
    Rejected,
    /// No rule matches: nothing was stored.
    Unmatched,
    /// It cannot be decided on: see the reason.
    Refused,
}

impl ReprocessOutcome {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ReprocessOutcome::Routed => "routed",
            ReprocessOutcome::Dropped => "dropped",
            ReprocessOutcome::Again => "again",
            ReprocessOutcome::Already => "already",
            ReprocessOutcome::Errored => "errored",
            ReprocessOutcome::Rejected => "rejected",
            ReprocessOutcome::Unmatched => "unmatched",
            ReprocessOutcome::Refused => "refused",
        }
    }

    fn of(status: Status) -> ReprocessOutcome {
        match status {
            Status::Routed => ReprocessOutcome::Routed,
            Status::Dropped => ReprocessOutcome::Dropped,
            Status::Unmatched => ReprocessOutcome::Unmatched,
            Status::Rejected => ReprocessOutcome::Rejected,
            Status::Errored => ReprocessOutcome::Errored,
        }
    }
}

impl ReprocessRequest {
    /// Refuses what is no request.
    ///
    /// # Errors
    /// `Refused`, with what is wrong.
    pub(super) fn check(&self) -> Result<(), InteropError> {
        let refused = |text: &str| Err(InteropError::Refused(text.to_owned()));
        match (&self.search, self.ids.len()) {
            (None, 0) => return refused("nothing is to be reprocessed: name messages, or a status"),
            (None, 1..=PAGE_MAX) => {}
            (None, _) => return refused("a request names 100 messages at most"),
            (Some(_), 1..) => return refused("name messages, or a status, and not both"),
            (Some(search), _) if search.status == Status::Routed => {
                return refused(
                    "a search is for errored, unmatched, rejected or dropped messages; name routed ones by their ids",
                );
            }
            (Some(_), _) => {}
        }
        self.key.as_deref().map_or(Ok(()), Origin::check_key).map_err(InteropError::Refused)
    }

    fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }
}

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

impl ControlRequests {
    /// Decides on the messages of a page anew.
    pub(super) async fn reprocess(&self, caller: &Caller, request: ReprocessRequest) -> Result<Answered, InteropError> {
        let running = self.running();
        // Held until all of the page is durable: the next request finds what this one has made.
        let _one = if request.preview { None } else { Some(running.reprocessing.lock().await) };
        let (ids, mut next) = self.candidates(&request).await?;
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
            let found = self.found(caller, &request, id).await?;
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
        Ok(Answered::with(json!(ReprocessPage { results, next, stopped })))
    }

    /// The ids to look at, and where the search goes on behind them.
    async fn candidates(&self, request: &ReprocessRequest) -> Result<(Vec<u64>, Option<u64>), InteropError> {
        let Some(search) = request.search.clone() else {
            let mut ids = request.ids.clone();
            ids.sort_unstable();
            ids.dedup();
            return Ok((ids, None));
        };
        let after = request.after;
        self.read_stored(move |reader| {
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
        &self,
        caller: &Caller,
        request: &ReprocessRequest,
        id: u64,
    ) -> Result<Option<Result<Found, ReprocessResult>>, InteropError> {
        let (view, who, request) = (self.running().guard.view(), caller.clone(), request.clone());
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
        match self.read_stored(read).await {
            Err(InteropError::Store(StoreError::Corrupt(_))) => {
                Ok(may_all.then(|| Err(refused(id, "it is damaged; `terrace verify` reports all damage".to_owned()))))
            }
            found => found,
        }
    }
}

impl ReprocessSearch {
    fn matches(&self, stored: &Stored) -> bool {
        stored.status == self.status
            && self.service.as_ref().is_none_or(|service| *service == stored.service)
            && self.since_us.is_none_or(|since| stored.received_us >= since)
            && self.until_us.is_none_or(|until| stored.received_us < until)
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

/// Decides on a message anew, and has the new one stored where there is something new. The error is why the page ends here.
async fn decide_anew(engine: &Engine, found: &Found, request: &ReprocessRequest) -> Result<Made, String> {
    let Found { id, stored, .. } = found;
    let plan = engine.plan();
    let Some(service) = plan.production.services.get(&stored.service) else {
        let text = format!("the production has no service {}, whose rules it went through", stored.service);
        return Ok((refused(*id, text), None));
    };
    let origin = Origin { id: *id, derivation: Derivation::Reprocessed, key: request.key().to_owned() };
    let control_id = engine.control_id();
    let (reading, unreadable) = intake::read(service, &stored.raw);
    let inbound = Inbound::new(service, &stored.raw, (&reading, unreadable), engine.clock.now_us(), &control_id);
    let inbound = inbound.derived(Some(&origin));
    let Some(work) = engine.decide(&inbound, service, &plan, false).await else {
        return Err("the node is stopping".to_owned());
    };
    let mut told = told(*id, &work)?;
    let operations = work.outputs.iter().map(|output| plan.production.operations[output.operation].name.clone());
    told.operations = operations.collect();
    let is_new = work.status == Status::Routed || (work.status == Status::Dropped && stored.status != Status::Dropped);
    if request.preview || !is_new {
        return Ok((told, None));
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
    let durable = engine.submit(&plan, work).map_err(|refusal| refusal.to_string())?;
    Ok((told, Some(durable)))
}

/// What was decided.
fn told(id: u64, work: &Work) -> Result<ReprocessResult, String> {
    let reason = match &work.problem {
        Some(problem) => problem.text.clone(),
        None => record::decode_message(&work.record).map_err(|error| error.to_string())?.reason,
    };
    Ok(result(id, ReprocessOutcome::of(work.status), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_messages_or_a_status_of_few_and_a_plain_key() {
        let of = |text: &str| {
            let request: ReprocessRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
            request.check().map_err(|error| error.to_string())
        };
        for (text, is_right) in [
            (r#"{"ids":[1,2]}"#, true),
            (r#"{"ids":[1],"key":"ticket 7","preview":true}"#, true),
            (r#"{"search":{"status":"errored","service":"in"},"after":7,"limit":5}"#, true),
            (r#"{}"#, false),
            (r#"{"ids":[1],"search":{"status":"errored"}}"#, false),
            (r#"{"search":{"status":"routed"}}"#, false),
            (r#"{"search":{"status":"errored","mrn":"1"}}"#, false),
            (r#"{"ids":[1],"key":""}"#, false),
            (r#"{"ids":[1],"invented":1}"#, false),
        ] {
            assert_eq!(of(text).is_ok(), is_right, "{text}: {:?}", of(text));
        }
        let many: Vec<String> = (0..=PAGE_MAX).map(|id| id.to_string()).collect();
        assert!(of(&format!("{{\"ids\":[{}]}}", many.join(","))).is_err());
    }
}
