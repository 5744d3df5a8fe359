//! [`TailAdmin`]: messages as they come, as the console asks a node for them. The stream of them is `tail`.

use async_trait::async_trait;
use node::identity::Caller;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::admin_error::AdminError;

/// What a node is asked about messages as they come; a part of [`Admin`](crate::Admin).
#[async_trait]
pub trait TailAdmin: Send + Sync + 'static {
    /// Sends a part for each message that is stored and each outcome that is recorded, until the receiver is dropped, the node stops or a
    /// right is revoked. Needs `message-metadata` on some service; for bodies also `message-body`.
    async fn tail(&self, caller: &Caller, query: &TailQuery, parts: mpsc::Sender<Value>) -> Result<(), AdminError>;
}

/// What is to be watched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TailQuery {
    /// Only messages of this service.
    pub service: Option<String>,
    /// Only messages with an output to this operation, and the outcomes of those outputs.
    pub operation: Option<String>,
    /// Only of this type: `ADT`, or with its event `ADT^A01`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// With the message as received.
    pub bodies: bool,
    /// Begin with the stored messages from this id on; none: with what comes now.
    pub from: Option<u64>,
}
