//! What a client knows about its connection, for people and for decisions of callers.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The state of a client at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientStatus {
    /// Whether there is a connection on which all acknowledged writes are.
    pub connected: bool,
    /// Connections after the first one.
    pub reconnects: u64,
    /// The epoch under which the export is open.
    pub epoch: Option<u64>,
    /// Requests of callers that are not complete.
    pub in_flight: usize,
    /// Bytes of acknowledged writes of which copies are kept.
    pub unflushed_bytes: u64,
    /// Time to the reply of requests, smoothed over about the last 16; zero before the first reply.
    pub latency: Duration,
    /// The last fault of the connection.
    pub last_error: Option<String>,
    /// Why the device refuses changes, once it does.
    pub poisoned: Option<String>,
    /// Whether the server refused the epoch because a higher one is in force.
    pub superseded: bool,
}

/// The same, as the loop keeps it up to date.
#[derive(Debug, Default)]
pub(super) struct StatusBoard {
    pub(super) rare: Mutex<ClientStatus>,
    pub(super) fenced: AtomicBool,
    pub(super) in_flight: AtomicUsize,
    pub(super) unflushed: AtomicU64,
    pub(super) latency_nanos: AtomicU64,
}

impl StatusBoard {
    pub(super) fn read(&self) -> ClientStatus {
        ClientStatus {
            in_flight: self.in_flight.load(Ordering::Relaxed),
            unflushed_bytes: self.unflushed.load(Ordering::Relaxed),
            latency: Duration::from_nanos(self.latency_nanos.load(Ordering::Relaxed)),
            ..self.rare.lock().clone()
        }
    }
}
