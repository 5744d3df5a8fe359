//! What a node finds in its journal when it starts: the outputs whose fate is not known, to be sent; the messages seen
//! lately, against duplicates; the operations that were suspended.
//!
//! Invariants: reading the same journal twice finds the same; outputs are queued in LSN order, so order holds across a
//! crash; an output whose operation is not in the production is not forgotten: it waits in the journal, is counted,
//! and goes out when the operation is back.

use std::collections::{BTreeMap, BTreeSet};

use hl7::Message;
use journal::{Journal, Lsn};

use crate::duplicates::Window;
use crate::engine::Plan;
use crate::error::InteropError;
use crate::intake;
use crate::queue::Entry;
use crate::record::{self, Status, Stored};

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Messages in the journal.
    pub messages: u64,
    /// Outputs without a known fate, by message: those still to be sent.
    pub waiting: BTreeMap<u64, BTreeSet<u16>>,
    /// Operations that stand suspended.
    pub suspended: BTreeSet<String>,
    /// Waiting outputs by operation that the production does not have.
    pub homeless: BTreeMap<String, u64>,
}

impl Found {
    /// The oldest message with an output that waits for an operation the production does not have.
    pub fn oldest(&self) -> Option<u64> {
        self.waiting.keys().next().copied()
    }
}

/// Reads the journal from its start.
///
/// # Errors
/// Corruption, or a record of another version: the node must not start then.
pub fn read(journal: &Journal, from: Lsn, window: &mut Window) -> Result<Found, InteropError> {
    let mut found = Found::default();
    for record in journal.read(from) {
        let record = record?;
        let (id, payload) = (record.lsn.0, record.payload.into());
        match record.kind {
            record::KIND_MESSAGE => {
                let stored = record::decode_message(&payload)?;
                found.messages += 1;
                remember(&stored, window);
                if !stored.outputs.is_empty() {
                    let outputs = u16::try_from(stored.outputs.len()).expect("the record counts them in 16 bits");
                    found.waiting.insert(id, (0..outputs).collect());
                }
            }
            record::KIND_DELIVERIES => {
                for delivery in record::decode_deliveries(&payload)? {
                    found.done(delivery.id, delivery.output);
                }
            }
            record::KIND_OPERATION => {
                let switch = record::decode_switch(&payload)?;
                if switch.suspended {
                    found.suspended.insert(switch.operation);
                } else {
                    found.suspended.remove(&switch.operation);
                }
            }
            kind => return Err(InteropError::UnknownRecord { kind }),
        }
    }
    Ok(found)
}

impl Found {
    fn done(&mut self, id: u64, output: u16) {
        // A fate whose message was truncated away is of no interest any more.
        if let Some(outputs) = self.waiting.get_mut(&id) {
            outputs.remove(&output);
            if outputs.is_empty() {
                self.waiting.remove(&id);
            }
        }
    }
}

/// Puts a message into the window against duplicates, as it was when it came in.
fn remember(stored: &Stored, window: &mut Window) {
    let taken = !matches!(stored.status, Status::Rejected | Status::Errored) && stored.resent_from.is_none();
    if let (true, Ok(message)) = (taken, Message::parse(&stored.raw)) {
        let key = window.hasher().key(&stored.service, &message);
        window.see(key);
        window.submitted(key);
    }
}

/// Queues what waits, oldest first. What has no operation is left in `found`.
///
/// # Errors
/// The journal cannot be read.
pub fn requeue(journal: &Journal, plan: &Plan, found: &mut Found) -> Result<u64, InteropError> {
    let mut queued = 0;
    let mut homeless = BTreeMap::new();
    // What cannot be read now stays in `waiting`: it is neither sent nor given up.
    for id in found.waiting.keys().copied().collect::<Vec<_>>() {
        let stored = record::decode_message(&journal.read_at(Lsn(id))?.payload.into())?;
        let message = Message::parse(&stored.raw);
        let outputs = found.waiting.remove(&id).expect("one of its keys");
        let mut left = BTreeSet::new();
        for output in outputs {
            let made = &stored.outputs[usize::from(output)];
            let Some(queue) = plan.queues.iter().find(|queue| queue.name == made.operation) else {
                *homeless.entry(made.operation.clone()).or_default() += 1;
                left.insert(output);
                continue;
            };
            let key_hash = message.as_ref().map_or(0, |message| queue.key_hash(message));
            queue.reserve();
            let frame = Some(intake::frame(&made.body));
            queue.push(queue.lane_of(key_hash), Entry { id, output, frame });
            queued += 1;
        }
        if !left.is_empty() {
            found.waiting.insert(id, left);
        }
    }
    found.homeless = homeless;
    Ok(queued)
}
