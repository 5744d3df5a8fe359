//! Answers `tail`: what is stored and recorded, as it happens, until the client goes away, the node stops or a right is revoked.
//!
//! ```text
//!   TailHub --events--> feed, a bounded ring --batch--> rows, rights of now --entry for bodies--> parts, a few ahead of the client
//!   from ID: stored messages, page by page, each page by a snapshot of its own; then what the pages did not cover
//! ```
//!
//! Invariants: what follows the beginning is shown or said to be left out, in the order of the journal, and nothing twice; no snapshot is
//! held while the client is waited for; a body has its entry in the audit, durable, before it goes out; when the caller loses something
//! that it saw, the tail ends at once, and what waited for the client stays here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use node::audit::{AuditEntry, Reads};
use node::control::ProgressSender;
use node::identity::{Action, Caller};
use node::{NoPlace, RolePlaces};
use serde_json::{Value, json};
use store::Lsn;

use super::audited::Answered;
use super::tail_lines::{Built, TailLines, TailPart, TailRequest, sees};
use super::{RunningProduction, lock};
use crate::error::InteropError;
use crate::history::{self, Sees};
use crate::tail::{TailBatch, TailEvent};

/// Tails of one role, and of the node, at one time.
const OF_ROLE: usize = 4;
const OF_NODE: usize = 16;

/// After so long without anything the client is told that the tail is there.
const QUIET: Duration = Duration::from_secs(10);

/// How often it is looked whether the rights still hold, besides each time that they change: some end with time.
const LOOK: Duration = Duration::from_millis(250);

/// So long is gathered what is looked at together: a message and its outcomes mostly, and of bodies what has one entry of the audit.
const GATHER: Duration = Duration::from_millis(100);

/// For so much of the time that it has worked, a tail rests, for each tail that is open: all of them together take a quarter of a processor.
const REST: u32 = 4;

/// How long a tail rests for what it has worked.
fn rest_of(worked: Duration, tails: usize) -> Duration {
    worked.saturating_mul(REST.saturating_mul(u32::try_from(tails.max(1)).unwrap_or(u32::MAX)))
}

/// Places for the tails that are open.
pub(super) fn places() -> RolePlaces {
    RolePlaces::new(OF_NODE, OF_ROLE)
}

fn no_place(none: NoPlace) -> InteropError {
    let text = match none {
        NoPlace::OfRole(own) => format!("{own} tails of this role are open, as many as there may be"),
        NoPlace::OfAll(all) => format!("{all} tails of the node are open, as many as there may be"),
    };
    InteropError::Refused(format!("{text}: end one; `terrace connection list` shows who has connections open"))
}

/// What was shown from the rows: of messages up to an id, what was recorded up to a position.
///
/// An outcome that is recorded later can only be of an output that waited. So the part of a page on which nothing waited goes to the
/// next one, and there are as many parts as pages with something that waited.
#[derive(Debug, Default)]
struct Covered {
    parts: VecDeque<(u64, u64)>,
    /// Whether something waited in the last part.
    waits: bool,
}

impl Covered {
    fn add(&mut self, last_id: u64, lsn: u64, waits: bool) {
        if !self.waits {
            self.parts.pop_back();
        }
        self.parts.push_back((last_id, lsn));
        self.waits = waits;
    }

    /// Whether an event was shown.
    fn has(&self, event: TailEvent) -> bool {
        match event {
            TailEvent::Message { id, .. } => self.parts.back().is_some_and(|(last, _)| id <= *last),
            TailEvent::Outcome { lsn, id, .. } => {
                let at = self.parts.partition_point(|(last, _)| *last < id);
                self.parts.get(at).is_some_and(|(_, seen)| lsn <= *seen)
            }
        }
    }
}

/// What the caller saw, for the watch over its rights.
type Saw = Mutex<BTreeMap<String, Sees>>;

/// A tail at work.
struct Tail<'a> {
    running: &'a Arc<RunningProduction>,
    caller: &'a Caller,
    request: Arc<TailRequest>,
    progress: &'a ProgressSender,
    /// The entry of bodies that are shown, without what they are.
    reads: AuditEntry,
    saw: &'a Saw,
    covered: Covered,
    /// What it has worked since it rested.
    worked: Duration,
}

/// The client is gone, or the node stops.
struct Over;

/// Why a tail ends.
enum Ends {
    Over,
    Failed(InteropError),
}

impl From<InteropError> for Ends {
    fn from(error: InteropError) -> Ends {
        Ends::Failed(error)
    }
}

impl From<Over> for Ends {
    fn from(_: Over) -> Ends {
        Ends::Over
    }
}

/// Streams what becomes durable. `reads`: the entry of bodies that are shown, by who asks.
pub(super) async fn tail(
    running: &Arc<RunningProduction>,
    caller: &Caller,
    (request, reads): (TailRequest, AuditEntry),
    progress: ProgressSender,
) -> Result<Answered, InteropError> {
    check(running, caller, &request)?;
    let _place = running.tails.take(caller.session()).map_err(no_place)?;
    let saw = Saw::default();
    let needs_bodies = request.bodies;
    let tail = Tail {
        running,
        caller,
        request: Arc::new(request),
        progress: &progress,
        reads,
        saw: &saw,
        covered: Covered::default(),
        worked: Duration::ZERO,
    };
    let ended = tokio::select! {
        biased;
        error = revoked(running, caller, (&saw, needs_bodies)) => Err(error),
        () = progress.is_over() => Ok(()),
        ended = tail.run() => match ended {
            Ends::Over => Ok(()),
            Ends::Failed(error) => Err(error),
        },
    };
    ended.map(|()| Answered::with(Value::Null))
}

/// Refuses what could show nothing, or tell what the caller may not know.
fn check(running: &RunningProduction, caller: &Caller, request: &TailRequest) -> Result<(), InteropError> {
    let view = running.guard.view();
    let filter = request.filter();
    if history::masked_condition(running.masker(), &filter).is_some()
        && view.may_some(caller, Action::Unmasked).is_err()
    {
        history::refuse_conditions(running.masker(), &filter)?;
    }
    let seen = |name: &str| sees(&view, caller, name).0.metadata;
    if let Some(name) = &request.service {
        if !seen(name) {
            let text = format!("permission denied: message-metadata on service {name} is not allowed");
            return Err(InteropError::Denied(text));
        }
        let plan = running.engine.plan();
        let names = || plan.production.services.keys().map(String::as_str);
        // Of one that is there no more, stored messages can be shown.
        if request.from.is_none() && !names().any(|known| known == name) {
            let known: Vec<&str> = names().filter(|name| seen(name)).collect();
            return Err(InteropError::NoSuch { what: "service", name: name.clone(), known: known.join(", ") });
        }
    }
    if let Some(name) = &request.operation {
        let queues = running.operations.queues();
        if request.from.is_none() && queues.iter().all(|queue| queue.name != *name) {
            let known: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
            return Err(InteropError::NoSuch { what: "operation", name: name.clone(), known: known.join(", ") });
        }
    }
    Ok(())
}

/// Returns once the caller has lost something that it saw, or may watch nothing any more.
async fn revoked(running: &RunningProduction, caller: &Caller, (saw, bodies): (&Saw, bool)) -> InteropError {
    let guard = &running.guard;
    let mut changed = guard.changed();
    loop {
        let view = guard.view();
        let mut may = view.may_some(caller, Action::MessageMetadata);
        if bodies {
            may = may.and_then(|()| view.may_some(caller, Action::MessageBody));
        }
        if let Err(denied) = may {
            return InteropError::Denied(denied.to_string());
        }
        let is_less = |(name, before): (&String, &Sees)| {
            let (now, _) = sees(&view, caller, name);
            (before.metadata && !now.metadata)
                || (bodies && before.body && !now.body)
                || (before.unmasked && !now.unmasked)
        };
        if lock(saw).iter().any(is_less) {
            let text =
                "permission denied: a right to what this tail shows has ended; begin it again with those that are left";
            return InteropError::Denied(text.to_owned());
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

impl Tail<'_> {
    async fn run(mut self) -> Ends {
        match self.work().await {
            Ok(never) => match never {},
            Err(ends) => ends,
        }
    }

    async fn work(&mut self) -> Result<std::convert::Infallible, Ends> {
        let message_log = Arc::clone(&self.running.engine.message_log);
        let open = message_log.tails().watch();
        // What was appended before that, and may not be in the feed, is durable then, and in the first snapshot.
        let before = message_log.barrier().map_err(|refusal| InteropError::Refused(refusal.to_string()))?;
        if let Some(before) = before {
            before.await.map_err(|_| InteropError::Stopping)?;
        }
        let after = self.on_rows(|_, reader| Ok(reader.snapshot().lsn().0)).await?.0;
        let at_us = self.running.engine.clock.now_us();
        self.send(&TailPart::Began { at_us, after }).await?;
        match self.request.from {
            None => self.covered.add(after, after, true),
            Some(from) => {
                self.covered.add(from.saturating_sub(1), after, true);
                self.stored(from).await?;
            }
        }
        loop {
            tokio::select! {
                () = open.feed.news() => {}
                () = tokio::time::sleep(QUIET) => {
                    let at_us = self.running.engine.clock.now_us();
                    self.send(&TailPart::Quiet { at_us }).await?;
                    continue;
                }
            }
            self.rest(GATHER).await;
            let TailBatch { events, left_out } = open.feed.take();
            let events: VecDeque<TailEvent> = events.into_iter().filter(|event| !self.covered.has(*event)).collect();
            let sees_all = self.live(events).await?;
            if left_out > 0 {
                self.send(&TailPart::LeftOut { count: sees_all.then_some(left_out) }).await?;
            }
        }
    }

    /// Leaves processors and medium to others, for so long at least. What comes meanwhile waits in the ring, or is counted there.
    async fn rest(&mut self, least: Duration) {
        let tails = self.running.engine.message_log.tails().open();
        tokio::time::sleep(rest_of(std::mem::take(&mut self.worked), tails).max(least)).await;
    }

    /// Shows stored messages from an id on, until there are no more.
    async fn stored(&mut self, mut from: u64) -> Result<(), Ends> {
        loop {
            let page = move |lines: &mut TailLines<'_>, reader: &crate::rows::Reader| {
                Ok((lines.stored_from(reader, from)?, reader.snapshot().lsn().0))
            };
            let ((last, lsn), built) = self.on_rows(page).await?;
            self.show(built).await?;
            self.rest(Duration::ZERO).await;
            match last {
                Some((last, waits)) => {
                    self.covered.add(last, lsn, waits);
                    from = last.saturating_add(1);
                }
                None => {
                    // No message lies between the last one and the end of what this snapshot sees.
                    self.covered.add(lsn.max(from.saturating_sub(1)), lsn, true);
                    return Ok(());
                }
            }
        }
    }

    /// Shows events that became durable; whether the caller sees all services.
    async fn live(&mut self, mut events: VecDeque<TailEvent>) -> Result<bool, Ends> {
        loop {
            let newest = events.back().map(|event| event.lsn());
            let work = move |lines: &mut TailLines<'_>, reader: &crate::rows::Reader| {
                while let Some(event) = events.pop_front() {
                    lines.event(reader, event)?;
                    if lines.is_full() {
                        break;
                    }
                }
                Ok(events)
            };
            // They are durable; their rows may be a moment behind.
            let (left, built) = self.on_rows_at(newest, work).await?;
            let sees_all = built.sees_all;
            self.show(built).await?;
            if left.is_empty() {
                return Ok(sees_all);
            }
            events = left;
        }
    }

    /// Works on the rows of now, by the rights of now, on a thread for that.
    async fn on_rows<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut TailLines<'_>, &crate::rows::Reader) -> Result<T, InteropError> + Send + 'static,
    ) -> Result<(T, Built), InteropError> {
        self.on_rows_at(None, work).await
    }

    /// The same, once the record at a position is visible.
    async fn on_rows_at<T: Send + 'static>(
        &self,
        lsn: Option<u64>,
        work: impl FnOnce(&mut TailLines<'_>, &crate::rows::Reader) -> Result<T, InteropError> + Send + 'static,
    ) -> Result<(T, Built), InteropError> {
        let (running, caller) = (Arc::clone(self.running), self.caller.clone());
        let request = Arc::clone(&self.request);
        let work = move || {
            let message_log = &running.engine.message_log;
            match lsn {
                Some(lsn) => message_log.store().wait_visible(Lsn(lsn)).map_err(InteropError::from)?,
                None => message_log.wait_visible().map_err(InteropError::from)?,
            }
            let began = Instant::now();
            let reader = crate::rows::Reader::new(message_log.store());
            let view = running.guard.view();
            let mut lines = TailLines::new(&request, (&view, &caller), running.masker());
            let done = work(&mut lines, &reader)?;
            Ok((done, lines.finish(began.elapsed())))
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(InteropError::Stopping))
    }

    /// Sends what was built; bodies once their entry is durable.
    async fn show(&mut self, built: Built) -> Result<(), Ends> {
        self.worked += built.worked;
        {
            let mut saw = lock(self.saw);
            for (name, sees) in built.sees {
                // What it saw once counts: the tail ends when that is less.
                let known = saw.entry(name).or_insert(sees);
                known.metadata |= sees.metadata;
                known.body |= sees.body;
                known.unmasked |= sees.unmasked;
            }
        }
        if built.reads != Reads::default() {
            let mut marks = built.marks;
            marks.masked = Some(built.parts.iter().any(|part| matches!(part, TailPart::Message(one) if one.masked)));
            let entry = AuditEntry { reads: built.reads, ..self.reads.clone() }.marked(marks);
            let written = self.running.audit.write(entry).await;
            written.map_err(|error| InteropError::from(node::NodeError::from(error)))?;
        }
        for part in &built.parts {
            let began = Instant::now();
            let part = json!(part);
            self.worked += began.elapsed();
            self.send_json(part).await?;
        }
        Ok(())
    }

    async fn send(&self, part: &TailPart) -> Result<(), Over> {
        self.send_json(json!(part)).await
    }

    async fn send_json(&self, part: Value) -> Result<(), Over> {
        if self.progress.part(part).await.is_break() { Err(Over) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_shown_once_whether_the_rows_or_the_feed_had_it_first() {
        let message = |id| TailEvent::Message { id, took_us: 1 };
        let outcome = |lsn, id| TailEvent::Outcome { lsn, id, output: 0 };
        let mut covered = Covered::default();
        // Begun after position 100, from message 40 on: pages up to 60 as of 110, up to 120 as of 130, and the end as of 140.
        for (last, lsn) in [(39, 100), (60, 110), (120, 130), (140, 140)] {
            covered.add(last, lsn, true);
        }
        for (event, shown) in [
            (message(50), true),
            (message(140), true),
            (message(141), false),
            // Of a message before the first: what was recorded before the tail is none of it.
            (outcome(100, 10), true),
            (outcome(101, 10), false),
            // Of one on a page: what that page saw.
            (outcome(110, 50), true),
            (outcome(111, 50), false),
            (outcome(125, 61), true),
            (outcome(131, 120), false),
            (outcome(150, 145), false),
        ] {
            assert_eq!(covered.has(event), shown, "{event:?}");
        }
    }

    #[test]
    fn pages_on_which_nothing_waited_take_no_room_and_change_no_answer() {
        let mut covered = Covered::default();
        covered.add(9, 100, true);
        for page in 0..1_000 {
            covered.add(10 + 64 * page, 101 + page, page == 500);
        }
        covered.add(70_000, 2_000, true);
        let last_ids: Vec<u64> = covered.parts.iter().map(|(last, _)| *last).collect();
        assert_eq!(last_ids, [9, 10 + 64 * 500, 70_000]);
        let outcome = |lsn, id| TailEvent::Outcome { lsn, id, output: 0 };
        // Of the page on which something waited: what came behind that page's rows was not shown.
        assert!(covered.has(outcome(601, 10 + 64 * 500)) && !covered.has(outcome(602, 10 + 64 * 500)));
        // Of others nothing can come that their rows did not have.
        assert!(covered.has(outcome(150, 10 + 64 * 49)) && covered.has(outcome(700, 10 + 64 * 599)));
        assert!(!covered.has(outcome(101, 9)) && covered.has(TailEvent::Message { id: 70_000, took_us: 0 }));
    }

    #[test]
    fn all_tails_together_work_a_quarter_of_the_time_of_a_processor_at_most() {
        for tails in [1, 4, OF_NODE] {
            let worked = Duration::from_millis(500);
            let share = worked.as_secs_f64() / (worked + rest_of(worked, tails)).as_secs_f64();
            assert!(share * tails as f64 <= 0.25, "{tails} tails, {share} each");
        }
    }
}
