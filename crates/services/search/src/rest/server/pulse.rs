//! What a connection is waiting for, and since when: each stage has its own time.
//!
//! ```text
//!   Silent --first byte--> Head --whole--> Busy --answered--> Silent, or Head if bytes of the next request are there already
//! ```
//!
//! [`PulsedIo`] lies between the socket and the protocol and notes bytes that come and go. A peer that does not take the bytes of
//! a response is overdue in every stage. The body of a request has its time where it is read (`body`).
//!
//! This is here because the protocol's library has one time for a silent connection and for a slow head: clients keep silent
//! connections for minutes, and a head that takes minutes is an attack.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use node::identity::RoleId;
use node::{OpenConnection, Reason};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::options::HttpTimes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PulseStage {
    Silent,
    Head,
    /// A request is read or run.
    Busy {
        /// It was read to its end.
        runs: bool,
        /// Bytes came after that.
        more: bool,
    },
}

#[derive(Debug)]
struct PulseState {
    stage: PulseStage,
    since: Instant,
    /// Since when the peer takes no bytes.
    unwritten: Option<Instant>,
}

/// The pulse of a connection, shared by its socket, its requests and its task.
#[derive(Debug)]
pub(super) struct ConnectionPulse {
    state: Mutex<PulseState>,
    is_proven: AtomicBool,
    proven: Notify,
    connection: Arc<OpenConnection>,
}

impl ConnectionPulse {
    pub(super) fn new(connection: &Arc<OpenConnection>) -> Arc<ConnectionPulse> {
        let state = PulseState { stage: PulseStage::Silent, since: Instant::now(), unwritten: None };
        let (is_proven, connection) = (AtomicBool::new(false), Arc::clone(connection));
        Arc::new(ConnectionPulse { state: Mutex::new(state), is_proven, proven: Notify::new(), connection })
    }

    /// Who the present request is from, for the list of connections.
    pub(super) fn is_of(&self, role: RoleId) {
        self.connection.proven_as(role);
    }

    fn read_some(&self) {
        let state = &mut *self.state.lock();
        match &mut state.stage {
            PulseStage::Silent => (state.stage, state.since) = (PulseStage::Head, Instant::now()),
            PulseStage::Head => {}
            PulseStage::Busy { more, .. } => *more = true,
        }
    }

    /// Bytes of a response went out, or wait for the peer.
    fn wrote<T>(&self, polled: &Poll<io::Result<T>>) {
        let mut state = self.state.lock();
        match polled {
            Poll::Pending => _ = state.unwritten.get_or_insert_with(Instant::now),
            Poll::Ready(_) => state.unwritten = None,
        }
    }

    /// As `wrote`. A long response counts as silence from its last bytes on.
    fn wrote_some(&self, polled: &Poll<io::Result<usize>>) {
        self.wrote(polled);
        let mut state = self.state.lock();
        if polled.is_ready() && state.stage == PulseStage::Silent {
            state.since = Instant::now();
        }
    }

    /// A request of it was accepted: it is no silent newcomer any more. Only the first one is told: a task that is woken while it runs
    /// is polled once more, and wakes another thread for that.
    pub(super) fn prove(&self) {
        if !self.is_proven.load(Ordering::Relaxed) && !self.is_proven.swap(true, Ordering::Relaxed) {
            self.proven.notify_one();
        }
    }

    /// Waits for the first accepted request.
    pub(super) async fn proven(&self) {
        self.proven.notified().await;
    }

    /// The body of the request was read: bytes that come from now on are of the next one.
    pub(super) fn whole(&self) {
        self.state.lock().stage = PulseStage::Busy { runs: true, more: false };
    }

    /// A head is whole; the request is busy until the returned guard is dropped.
    pub(super) fn busy(self: &Arc<ConnectionPulse>) -> BusyPulse {
        self.connection.began(1);
        self.state.lock().stage = PulseStage::Busy { runs: false, more: false };
        BusyPulse(Arc::clone(self))
    }

    /// Whether a request runs, and a part of the next one was read: the protocol reads no further then, and does not see the end of
    /// the connection.
    pub(super) fn is_ahead(&self) -> bool {
        self.state.lock().stage == PulseStage::Busy { runs: true, more: true }
    }

    /// Whether it waits for the rest of a head.
    pub(super) fn is_in_head(&self) -> bool {
        self.state.lock().stage == PulseStage::Head
    }

    /// Why the connection has to end, if it has to.
    pub(super) fn overdue(&self, times: &HttpTimes) -> Option<Reason> {
        let state = self.state.lock();
        if state.unwritten.is_some_and(|since| since.elapsed() > times.silence) {
            return Some(Reason::Idle);
        }
        let waited = state.since.elapsed();
        match state.stage {
            PulseStage::Silent if waited > times.idle => Some(Reason::Idle),
            PulseStage::Head if waited > times.head => Some(Reason::Frame),
            _ => None,
        }
    }
}

/// How often a connection is looked at.
pub(super) fn period(times: &HttpTimes) -> Duration {
    (times.head.min(times.idle).min(times.silence) / 4).clamp(Duration::from_millis(10), Duration::from_millis(250))
}

/// A request that is read or run.
pub(super) struct BusyPulse(Arc<ConnectionPulse>);

impl Drop for BusyPulse {
    fn drop(&mut self) {
        let state = &mut *self.0.state.lock();
        let more = matches!(state.stage, PulseStage::Busy { more: true, .. });
        state.stage = if more { PulseStage::Head } else { PulseStage::Silent };
        state.since = Instant::now();
    }
}

/// A socket whose bytes are noted.
pub(super) struct PulsedIo<S> {
    pub(super) socket: S,
    pub(super) pulse: Arc<ConnectionPulse>,
}

impl<S: AsyncRead + Unpin> AsyncRead for PulsedIo<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let polled = Pin::new(&mut this.socket).poll_read(context, into);
        if into.filled().len() > before {
            this.pulse.read_some();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PulsedIo<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.pulse.wrote_some(&polled);
        polled
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write_vectored(context, bytes);
        this.pulse.wrote_some(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS keeps bytes that the socket did not take. A flush is no sign of the peer: there may be nothing to flush.
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_flush(context);
        this.pulse.wrote(&polled);
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_shutdown(context);
        this.pulse.wrote(&polled);
        polled
    }
}
