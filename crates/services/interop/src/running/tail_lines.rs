//! What a tail shows: its request, its parts, and how events become parts for one reader.
//!
//! Invariants: a part is made of what the reader may see by the rights of one moment: nothing of a service without `message-metadata`
//! there, masked without `unmasked`, and with a body only where `message-body` is there too. A message that cannot be read is named to
//! who may list all services, and to nobody else.
//!
//! Rights and the service that was asked for are looked at first, by the head of a row: what is not shown is not parsed and not masked.

use std::collections::BTreeMap;
use std::time::Duration;

use hl7::mask::Masker;
use node::audit::{EntryMarks, Reads};
use node::identity::{Action, Caller, Grant, Object, RightsView};
use serde::{Deserialize, Serialize};
use store::{Direction, StoreError};

use crate::error::InteropError;
use crate::history::{self, EVERY_SERVICE, Filter, Line, Sees};
use crate::record::{Delivery, DeliveryOutcome, Stored};
use crate::rows::{IdRange, Ids, InboundOf, Reader, Wanted};
use crate::tail::TailEvent;

/// Bytes of a body that a tail shows: a few of them wait for a slow reader.
pub const TAIL_BODY_BYTES_MAX: usize = 256 << 10;

/// Bytes of the bodies of one batch.
const BATCH_BYTES: usize = 1 << 20;

/// Messages that are looked at together.
const BATCH: usize = 64;

/// What is to be watched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TailRequest {
    /// Only messages of this service.
    pub service: Option<String>,
    /// Only messages with an output to this operation, and the outcomes of those outputs.
    pub operation: Option<String>,
    /// Only of this type: `ADT`, or with its event `ADT^A01`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// With the message as received, where the caller may read it.
    pub bodies: bool,
    /// Begin with the stored messages from this id on; none: with what comes now.
    pub from: Option<u64>,
}

impl TailRequest {
    /// The conditions, as a list of messages has them.
    pub(super) fn filter(&self) -> Filter {
        Filter {
            service: self.service.clone(),
            interface: self.operation.clone(),
            kind: self.kind.clone(),
            ..Filter::default()
        }
    }
}

/// A part of a tail.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TailPart {
    /// It has begun.
    Began {
        /// When, microseconds since 1970.
        at_us: i64,
        /// The last record that lies before it: what follows is shown, or said to be left out.
        after: u64,
    },
    /// A message is stored.
    Message(Box<TailMessage>),
    /// What became of an output is recorded.
    Outcome(Box<TailOutcome>),
    /// The reader was too slow, and some messages and outcomes between the parts around this one are not shown.
    LeftOut {
        /// So many at most, of all services; none where the caller may not list all of them.
        count: Option<u64>,
    },
    /// Nothing has come for a while.
    Quiet {
        /// When, microseconds since 1970.
        at_us: i64,
    },
}

/// A message that is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TailMessage {
    /// As in a list of messages.
    #[serde(flatten)]
    pub line: Line,
    /// Microseconds from the append of its record until it was durable; none of one that was stored before the tail began.
    pub took_us: Option<u64>,
    /// The message as received, byte b as character U+00b; masked where the caller sees it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Why the body is left out, where bodies were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// Whether it is masked.
    #[serde(default)]
    pub masked: bool,
}

/// The outcome of an output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TailOutcome {
    /// The message.
    pub id: u64,
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// The service of the message.
    pub service: String,
    /// Its type, MSH-9.
    #[serde(rename = "type")]
    pub kind: String,
    /// MSH-10.
    pub control_id: String,
    /// The operation.
    pub operation: String,
    /// Which output, from 0.
    pub output: u16,
    /// The outcome.
    pub outcome: DeliveryOutcome,
    /// The reply code, why it failed, or why it was set aside.
    pub detail: String,
    /// Who set it aside; empty for other outcomes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Milliseconds since the message came in.
    pub ms: i64,
}

/// Parts for a reader, and what is to be known of them.
#[derive(Default)]
pub(super) struct Built {
    pub(super) parts: Vec<TailPart>,
    /// The bodies in them.
    pub(super) reads: Reads,
    pub(super) marks: EntryMarks,
    /// What the reader sees of each service that was met.
    pub(super) sees: BTreeMap<String, Sees>,
    /// Whether it sees all services.
    pub(super) sees_all: bool,
    /// How long it took.
    pub(super) worked: Duration,
    bytes: usize,
}

/// What a reader sees of the messages of a service by a view, and by which rights.
pub(super) fn sees(view: &RightsView, caller: &Caller, name: &str) -> (Sees, Vec<Grant>) {
    let may = |action| view.may(caller, action, Object::Service(name)).ok();
    let grants = [may(Action::MessageMetadata), may(Action::MessageBody), may(Action::Unmasked)];
    let seen = Sees { metadata: grants[0].is_some(), body: grants[1].is_some(), unmasked: grants[2].is_some() };
    (seen, grants.into_iter().flatten().collect())
}

/// Makes parts for one reader.
pub(super) struct TailLines<'a> {
    pub(super) request: &'a TailRequest,
    pub(super) view: &'a RightsView,
    pub(super) caller: &'a Caller,
    pub(super) masker: &'a Masker,
    filter: Filter,
    /// Whether the filter is on something that is masked.
    is_by_masked: bool,
    built: Built,
    /// The messages of the events: that one is stored and its outcomes mostly come together, and are looked up once.
    looked: BTreeMap<u64, Looked>,
}

/// A line, the message as the reader sees it, and what the reader sees.
type LineOf = (Line, Stored, Sees);

/// A message that events are about.
enum Looked {
    /// Retention has removed it meanwhile.
    Gone,
    /// It is not shown.
    Unseen,
    /// It is.
    Shown(Box<Line>),
}

impl<'a> TailLines<'a> {
    pub(super) fn new(
        request: &'a TailRequest,
        (view, caller): (&'a RightsView, &'a Caller),
        masker: &'a Masker,
    ) -> TailLines<'a> {
        let sees_all = sees(view, caller, EVERY_SERVICE).0.metadata;
        let built = Built { sees_all, ..Built::default() };
        let filter = request.filter();
        let is_by_masked = history::masked_condition(masker, &filter).is_some();
        TailLines { request, view, caller, masker, filter, is_by_masked, built, looked: BTreeMap::new() }
    }

    pub(super) fn finish(self, worked: Duration) -> Built {
        Built { worked, ..self.built }
    }

    /// Whether a batch is large enough.
    pub(super) fn is_full(&self) -> bool {
        self.built.parts.len() >= BATCH || self.built.bytes >= BATCH_BYTES
    }

    /// What the reader sees of a service.
    fn sees(&mut self, name: &str) -> Sees {
        if let Some(known) = self.built.sees.get(name) {
            return *known;
        }
        let (seen, grants) = sees(self.view, self.caller, name);
        if seen.metadata {
            self.built.marks = grants.iter().fold(self.built.marks, |marks, grant| marks.and(grant));
        }
        self.built.sees.insert(name.to_owned(), seen);
        seen
    }

    /// The line of a message that the reader sees and asks for, with the message as it sees it.
    fn line(&mut self, reader: &Reader, id: u64, stored: Stored) -> Result<Option<LineOf>, InteropError> {
        let sees = self.sees(&stored.service);
        let is_asked_for = self.is_asked_for(&stored.service);
        if !sees.metadata || !is_asked_for || (!self.is_by_masked && !self.filter.found_by(&stored.keys)) {
            return Ok(None);
        }
        // Its sizes are those of the masked one. Its keys are only looked at where the filter has one.
        let wants_keys = self.filter.kind.is_some();
        let seen = if sees.unmasked { stored } else { history::masked(self.masker, stored, wants_keys) };
        let line = history::line_of(reader, &self.filter, (id, &seen))?;
        // A service may have the name of an operation.
        let is_wanted = |line: &Line| {
            let wanted = self.request.operation.as_ref();
            wanted.is_none_or(|wanted| line.outputs.iter().any(|(operation, _)| operation == wanted))
        };
        Ok(line.filter(is_wanted).map(|line| (line, seen, sees)))
    }

    fn message_part(&mut self, (line, seen, sees): (Line, &Stored, Sees), took_us: Option<u64>) -> TailPart {
        let (mut body, mut withheld) = (None, None);
        if self.request.bodies {
            if !sees.body {
                withheld = Some("permission denied: message-body is not allowed on its service".to_owned());
            } else if seen.raw.len() > TAIL_BODY_BYTES_MAX {
                withheld =
                    Some(format!("it has {} bytes: `terrace message show {}` prints it", seen.raw.len(), line.id));
            } else {
                body = Some(history::text_of(&seen.raw));
                self.built.bytes += seen.raw.len();
                self.built.reads.push(line.id);
            }
        }
        let masked = !sees.unmasked;
        TailPart::Message(Box::new(TailMessage { line, took_us, body, withheld, masked }))
    }

    fn outcome_part(&self, line: &Line, delivery: Delivery) -> Option<TailPart> {
        let operation = line.outputs.get(usize::from(delivery.output)).map(|(name, _)| name.clone())?;
        if self.request.operation.as_ref().is_some_and(|wanted| *wanted != operation) {
            return None;
        }
        let Delivery { id, output, outcome, at_us, detail, by } = delivery;
        Some(TailPart::Outcome(Box::new(TailOutcome {
            id,
            at_us,
            service: line.service.clone(),
            kind: line.kind.clone(),
            control_id: line.control_id.clone(),
            operation,
            output,
            outcome,
            detail,
            by,
            ms: at_us.saturating_sub(line.received_us).max(0) / 1_000,
        })))
    }

    /// The part of an event that became durable.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn event(&mut self, reader: &Reader, event: TailEvent) -> Result<(), InteropError> {
        let (TailEvent::Message { id, .. } | TailEvent::Outcome { id, .. }) = event;
        let part = match self.try_event(reader, event) {
            Ok(part) => part,
            Err(InteropError::Store(StoreError::Corrupt(why))) => {
                let damaged = || TailMessage {
                    line: Line::damaged(id, why.to_string()),
                    took_us: None,
                    body: None,
                    withheld: None,
                    masked: false,
                };
                self.built.sees_all.then(|| TailPart::Message(Box::new(damaged())))
            }
            Err(error) => return Err(error),
        };
        self.built.parts.extend(part);
        Ok(())
    }

    fn try_event(&mut self, reader: &Reader, event: TailEvent) -> Result<Option<TailPart>, InteropError> {
        match event {
            TailEvent::Message { id, took_us } => {
                let (looked, found) = self.look(reader, id)?;
                if matches!(looked, Looked::Gone) {
                    self.left_out();
                }
                self.looked.insert(id, looked);
                Ok(found.map(|(line, seen, sees)| self.message_part((line, &seen, sees), Some(took_us))))
            }
            TailEvent::Outcome { id, output, .. } => {
                if !self.looked.contains_key(&id) {
                    let (looked, _) = self.look(reader, id)?;
                    self.looked.insert(id, looked);
                }
                match self.looked.get(&id) {
                    Some(Looked::Shown(line)) => {
                        let found = reader.outcomes(id)?.into_iter().find(|delivery| delivery.output == output);
                        Ok(found.and_then(|delivery| self.outcome_part(line, delivery)))
                    }
                    Some(Looked::Gone) => {
                        self.left_out();
                        Ok(None)
                    }
                    Some(Looked::Unseen) | None => Ok(None),
                }
            }
        }
    }

    /// Looks a message up; with what its own part is made of, where it is shown.
    fn look(&mut self, reader: &Reader, id: u64) -> Result<(Looked, Option<LineOf>), InteropError> {
        for name in [&self.request.service, &self.request.operation].into_iter().flatten() {
            if !reader.is_about(name, id)? {
                let is_there = reader.is_there(id)?;
                return Ok((if is_there { Looked::Unseen } else { Looked::Gone }, None));
            }
        }
        match reader.inbound_of(id, |service| self.sees(service).metadata && self.is_asked_for(service))? {
            InboundOf::Gone => Ok((Looked::Gone, None)),
            InboundOf::Unwanted => Ok((Looked::Unseen, None)),
            InboundOf::Wanted(stored) => match self.line(reader, id, *stored)? {
                None => Ok((Looked::Unseen, None)),
                Some(found) => Ok((Looked::Shown(Box::new(found.0.clone())), Some(found))),
            },
        }
    }

    fn is_asked_for(&self, service: &str) -> bool {
        self.request.service.as_ref().is_none_or(|wanted| wanted == service)
    }

    /// Says that an event is not shown since retention has removed its message: whose it was is not known.
    fn left_out(&mut self) {
        match self.built.parts.last_mut() {
            Some(TailPart::LeftOut { count: Some(count) }) => *count += 1,
            Some(TailPart::LeftOut { count: None }) => {}
            _ => self.built.parts.push(TailPart::LeftOut { count: self.built.sees_all.then_some(1) }),
        }
    }

    /// The parts of stored messages from an id on, each with the outcomes that are recorded; the last id that was looked at, and whether an
    /// output of those waits; none where there is no message from there on.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn stored_from(&mut self, reader: &Reader, from: u64) -> Result<Option<(u64, bool)>, InteropError> {
        let mut walk = reader.walk(Ids { from, to: None }, Wanted { outputs: false, outcomes: true });
        let (mut last, mut looked_at) = (None, 0);
        while !self.is_full() && looked_at < BATCH {
            let Some(found) = walk.next()? else { break };
            last = Some(found.id);
            looked_at += 1;
            if let Some((line, seen, sees)) = self.line(reader, found.id, found.stored)? {
                let outcomes = found.outcomes.into_iter().filter_map(|delivery| self.outcome_part(&line, delivery));
                let outcomes: Vec<TailPart> = outcomes.collect();
                let message = self.message_part((line, &seen, sees), None);
                self.built.parts.push(message);
                self.built.parts.extend(outcomes);
            }
        }
        let Some(last) = last else { return Ok(None) };
        let below = IdRange { first: 0, below: Some(last.saturating_add(1)) };
        let mut waiting = reader.with_waiting_output_within(below, Direction::Backward);
        Ok(Some((last, waiting.next()?.is_some_and(|id| id >= from))))
    }
}
