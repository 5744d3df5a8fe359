//! [`ServerState`]: the state that all connections of a server share.

use std::sync::Arc;

use node::identity::Guard;
use tokio::sync::watch;

use super::figures::SqlFigures;
use super::registry::Registry;
use super::server_options::WireOptions;
use crate::Engine;

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) engine: Arc<Engine>,
    pub(super) options: WireOptions,
    pub(super) registry: Arc<Registry>,
    /// What clients have asked for.
    pub(super) figures: Arc<SqlFigures>,
    /// Logs callers in, and decides what they may.
    pub(super) guard: Arc<Guard>,
    /// Whether the server is stopping.
    pub(super) stop: watch::Receiver<bool>,
}
