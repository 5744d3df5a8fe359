//! [`ConnectionAdmin`]: the connections of a node, as the console asks for them.

use async_trait::async_trait;
use node::ConnectionLine;
use node::identity::Caller;
use serde::Serialize;

use crate::admin_error::AdminError;

/// What a node is asked about its connections; a part of [`Admin`](crate::Admin).
#[async_trait]
pub trait ConnectionAdmin: Send + Sync + 'static {
    /// The connections of every port, or of one kind; without statements. Needs `node-status`.
    async fn connections(&self, caller: &Caller, port: Option<&str>) -> Result<Vec<ConnectionLine>, AdminError>;

    /// Ends one. Needs `connection-close`.
    async fn close_connection(&self, caller: &Caller, id: u64) -> Result<ConnectionClosed, AdminError>;
}

/// A connection that was closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConnectionClosed {
    /// What it was.
    pub connection: ConnectionLine,
    /// Whether it has ended: otherwise its socket has, and something that it had begun runs on for a moment.
    pub ended: bool,
    /// What follows from it, of one that the node had opened itself.
    pub next: Option<String>,
}
