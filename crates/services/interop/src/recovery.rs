//! Reads from the store at the start of a node: the outputs whose outcome is not known, to be sent; the messages seen
//! recently, against duplicates; the suspended operations.
//!
//! These have their own trees, so that a start reads only the waiting outputs and the entries of the duplicate window,
//! however much is stored; bodies are read only for waiting outputs.
//!
//! Invariants: reading the same store twice gives the same result; outputs are queued in LSN order, so order holds
//! across a crash; an output whose operation is not in the production is not forgotten: it waits in the store, is
//! counted, and is sent when the operation is back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hl7::Reading;
use store::{Direction, StoreError};

use crate::duplicates::{Key, Window};
use crate::engine::Plan;
use crate::error::InteropError;
use crate::production::{Operation, Production};
use crate::queue::{Entry, Queue, Suspension, key_hash};
use crate::record::Status;
use crate::rows::Reader;

/// The result.
#[derive(Debug, Default)]
pub struct Found {
    /// Messages remembered against duplicates.
    pub remembered: u64,
    /// Outputs without a known outcome, by message: those still to be sent.
    pub waiting: BTreeMap<u64, BTreeSet<u16>>,
    /// Suspended operations.
    pub suspended: BTreeMap<String, Suspension>,
    /// Operations that were started outside their schedules, and until when.
    pub started: BTreeMap<String, i64>,
    /// Waiting outputs by operation that the production does not have.
    pub homeless: BTreeMap<String, u64>,
}

/// Reads the waiting outputs, the suspended operations, and the newest messages into the window, at most `capacity` of
/// them.
///
/// # Errors
/// `AtStake` where it cannot be read what waits or which operation is suspended; a row of another version.
pub fn read(reader: &Reader, window: &mut Window, capacity: usize) -> Result<Found, InteropError> {
    let switches = reader.switches().map_err(InteropError::at_stake("which operations are suspended"))?;
    let started = switches.iter().filter_map(|switch| Some((switch.operation.clone(), switch.until_us?))).collect();
    let suspended = switches.into_iter().filter(|switch| switch.suspended);
    let suspended = suspended
        .map(|switch| (switch.operation, Suspension { since_us: switch.at_us, reason: switch.reason.into() }))
        .collect();
    let mut newest = Vec::new();
    let mut cursor = reader.by_time(None, None, Direction::Backward);
    while newest.len() < capacity {
        let summary = match cursor.next() {
            Ok(Some((_, _, summary))) => summary,
            Ok(None) => break,
            Err(InteropError::Store(StoreError::Corrupt(_))) => {
                tracing::warn!(
                    "a part of the index by time cannot be read: duplicates of its messages are not recognised"
                );
                cursor.skip_damage()?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let (status, _, resent) = summary.decided();
        // As when they were received: refused messages are not remembered, and a message resent by hand does not count
        // as first seen.
        if !resent && !matches!(status, Status::Rejected | Status::Errored) && summary.identity != 0 {
            newest.push(Key::stored(summary.identity, summary.content));
        }
    }
    let remembered = newest.len() as u64;
    for key in newest.into_iter().rev() {
        window.see(key);
        window.submitted(key);
    }
    let waiting = reader.pending().map_err(InteropError::at_stake("what waits to be delivered"))?;
    Ok(Found { remembered, waiting, suspended, started, homeless: BTreeMap::new() })
}

impl Found {
    /// An empty queue for an operation, with what people ordered about it.
    pub fn queue(&self, operation: &Arc<Operation>) -> Arc<Queue> {
        let queue = Queue::new(Arc::clone(operation), self.suspended.get(&operation.name).cloned());
        queue.order(|orders| orders.started_until_us = self.started.get(&operation.name).copied());
        Arc::new(queue)
    }
}

/// An output that waits for an operation that a reload brings, and can be read.
#[derive(Debug)]
struct HomelessOutput {
    operation: String,
    key_hash: u64,
    /// Without its body, which is read again when its turn comes: there may be many.
    entry: Entry,
}

/// What waits for operations that the production did not have.
#[derive(Debug, Default)]
pub struct Homeless {
    adopted: Vec<HomelessOutput>,
    left: BTreeMap<String, u64>,
}

/// Reads what of `found` waits for operations of another production, oldest first; nothing is changed.
///
/// # Errors
/// As for [`requeue`].
pub fn read_homeless(reader: &Reader, production: &Production, found: &Found) -> Result<Homeless, InteropError> {
    let mut homeless = Homeless::default();
    for (&id, outputs) in &found.waiting {
        let at_stake = || InteropError::at_stake(format!("message {id}, which waits to be delivered,"));
        let inbound = reader.inbound(id).and_then(|found| found.ok_or(InteropError::NoMessage { id }));
        let (stored, _) = inbound.map_err(at_stake())?;
        let reading = Reading::lenient(&stored.raw, stored.charset);
        let message = reading.message();
        for &output in outputs {
            let made = reader.output(id, output, &stored.raw).map_err(at_stake())?;
            let operation = production.operations.iter().find(|operation| operation.name == made.operation);
            let Some(operation) = operation else {
                *homeless.left.entry(made.operation.clone()).or_default() += 1;
                continue;
            };
            let key_hash = message.as_ref().map_or(0, |message| key_hash(operation.key.as_ref(), message));
            let (charset, received_us) = (stored.charset, stored.received_us);
            let entry = Entry { id, output, received_us, charset, body: None };
            homeless.adopted.push(HomelessOutput { operation: operation.name.clone(), key_hash, entry });
        }
    }
    Ok(homeless)
}

/// Queues what was read for the operations of a plan, and takes it out of `found`; how many outputs.
pub fn adopt(homeless: Homeless, plan: &Plan, found: &mut Found) -> usize {
    let adopted = homeless.adopted.len();
    for HomelessOutput { operation, key_hash, entry } in homeless.adopted {
        let queue = plan.queues.iter().find(|queue| queue.name == operation);
        let queue = queue.expect("it was read for the production of this plan");
        if let Some(outputs) = found.waiting.get_mut(&entry.id) {
            outputs.remove(&entry.output);
            if outputs.is_empty() {
                found.waiting.remove(&entry.id);
            }
        }
        queue.reserve();
        queue.push(queue.lane_of(key_hash), entry);
    }
    found.homeless = homeless.left;
    adopted
}

/// Queues the waiting outputs, oldest first, when a node starts. Those without an operation stay in `found`.
///
/// # Errors
/// `AtStake` if a waiting output cannot be read: later ones must not be sent ahead of it. The node does not start then.
pub fn requeue(reader: &Reader, plan: &Plan, found: &mut Found) -> Result<u64, InteropError> {
    let mut queued = 0;
    let mut homeless = BTreeMap::new();
    for id in found.waiting.keys().copied().collect::<Vec<_>>() {
        let at_stake = || InteropError::at_stake(format!("message {id}, which waits to be delivered,"));
        let inbound = reader.inbound(id).and_then(|found| found.ok_or(InteropError::NoMessage { id }));
        let (stored, _) = inbound.map_err(at_stake())?;
        let reading = Reading::lenient(&stored.raw, stored.charset);
        let message = reading.message();
        let outputs = found.waiting.remove(&id).expect("one of its keys");
        let mut left = BTreeSet::new();
        for output in outputs {
            let made = reader.output(id, output, &stored.raw).map_err(at_stake())?;
            let Some(queue) = plan.queues.iter().find(|queue| queue.name == made.operation) else {
                *homeless.entry(made.operation.clone()).or_default() += 1;
                left.insert(output);
                continue;
            };
            let key_hash = message.as_ref().map_or(0, |message| queue.key_hash(message));
            queue.reserve();
            let body = Some(Bytes::copy_from_slice(&made.body));
            let (charset, received_us) = (stored.charset, stored.received_us);
            queue.push(queue.lane_of(key_hash), Entry { id, output, received_us, charset, body });
            queued += 1;
        }
        if !left.is_empty() {
            found.waiting.insert(id, left);
        }
    }
    found.homeless = homeless;
    Ok(queued)
}
