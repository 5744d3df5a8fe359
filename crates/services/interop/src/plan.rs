//! The plan for a message: a production, the queues of its operations, and how outputs are stored.

use std::sync::Arc;

use crate::production::Production;
use crate::queue::Queue;

/// How outputs are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bodies {
    /// Only what the transform changed, with references into the message as received.
    #[default]
    Delta,
    /// Whole.
    Full,
}

/// A production with the queues of its operations, in the same order.
#[derive(Debug)]
pub struct Plan {
    /// The production.
    pub production: Arc<Production>,
    /// One queue an operation.
    pub queues: Vec<Arc<Queue>>,
}
