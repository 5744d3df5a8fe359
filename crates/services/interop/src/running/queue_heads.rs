//! What stands at the heads of the queues: for a console, which shows what an operation waits with.

use std::sync::Arc;

use crate::production::settings::OperationSettings;
use crate::queue::Queue;

/// An operation, and what waits in front of it.
#[derive(Debug, Clone)]
pub struct QueueHead {
    /// The operation's name.
    pub operation: String,
    /// `mllp` or `file`.
    pub kind: &'static str,
    /// Where it sends to: host and port, or a folder.
    pub to: String,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Its lanes.
    pub lanes: usize,
    /// Whether a programming error has stopped it until the next start.
    pub broken: bool,
    /// The oldest message that waits.
    pub oldest: Option<u64>,
    /// The first messages of its lanes, in the order of their ids; as many as were asked for.
    pub first: Vec<u64>,
}

/// The heads of queues, with at most `most` messages of each.
pub(super) fn heads(queues: &[Arc<Queue>], most: usize) -> Vec<QueueHead> {
    queues.iter().map(|queue| head(queue, most)).collect()
}

fn head(queue: &Queue, most: usize) -> QueueHead {
    let orders = queue.orders();
    let operation = orders.borrow().operation.clone();
    let (kind, to) = match &operation.settings {
        OperationSettings::Mllp(mllp) => ("mllp", mllp.address.clone()),
        OperationSettings::File(file) => ("file", file.folder.display().to_string()),
    };
    let mut first: Vec<u64> = queue.lanes().iter().flat_map(|lane| lane.first(most)).map(|(id, ..)| id).collect();
    first.sort_unstable();
    first.truncate(most);
    QueueHead {
        operation: queue.name.clone(),
        kind,
        to,
        tls: operation.tls.is_some(),
        lanes: queue.lanes().len(),
        broken: queue.is_broken(),
        oldest: queue.oldest(),
        first,
    }
}
