//! One MLLP connection, from its first byte to its last.
//!
//! ```text
//!   (TLS) -> read -> frames -> engine.take, one after the other -> wait until durable -> answers in order
//! ```
//!
//! Invariants: those of the service (see `mllp`). Besides: an unfinished frame over [`FREE_BYTES`] is read on only as
//! far as the memory limits of the service and the node allow; the reasons for which connections end are counted in the
//! service's status.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BufMut;
use hl7::mllp::{self, Decoder, Event, Limits};
use node::admission::{FREE_BYTES, STEP_BYTES};
use node::{Permit, Reason};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::pace::Pace;
use super::{CLOSING, PIPELINE, READ_AHEAD_BYTES, WRITE_PATIENCE, Watched, settings_of};
use crate::engine::{Engine, Ingested, Waits, aside, count};
use crate::plan::PlannedService;
use crate::production::settings::ServerTls;
use crate::production::{Service, tls};
use crate::service::batch_frame;

/// How long a sender that has closed its side is still taken to wait for the answer: about what senders wait for one.
const CLOSED: Duration = Duration::from_secs(30);

/// See the module's text.
pub(super) struct Connection {
    pub(super) engine: Arc<Engine>,
    pub(super) service: watch::Receiver<Arc<PlannedService>>,
    pub(super) closed: watch::Receiver<bool>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) peer: SocketAddr,
    pub(super) permit: Permit,
    pub(super) pace: Pace,
    /// Bytes that an unfinished frame may have in memory.
    pub(super) granted: usize,
    /// The reason why the present message waits.
    pub(super) waits: Waits,
}

impl Connection {
    /// A connection that has just been let in.
    pub(super) fn new(
        engine: &Arc<Engine>,
        Watched { service, closed, stop }: Watched,
        (peer, permit): (SocketAddr, Permit),
    ) -> Connection {
        let (pace, granted) = (Pace::default(), FREE_BYTES as usize);
        let (engine, waits) = (Arc::clone(engine), Waits::default());
        Connection { engine, service, closed, stop, peer, permit, pace, granted, waits }
    }

    /// Serves it to its end.
    pub(super) async fn start(mut self, socket: TcpStream) {
        let service = Arc::clone(&self.service.borrow());
        if let Err(error) = node::socket::prepare(&socket) {
            tracing::debug!(service = service.name, peer = %self.peer, %error, "socket options refused");
        }
        match (&service.tls, &settings_of(&service).tls) {
            (Some(config), Some(settings)) => {
                if let Some(stream) = self.handshake(socket, config, settings, &service).await {
                    self.permit.connection().secured();
                    self.run(stream).await;
                }
            }
            _ => self.run(socket).await,
        }
    }

    /// TLS; none where it did not come about, which is counted.
    async fn handshake(
        &mut self,
        socket: TcpStream,
        config: &Arc<ServerConfig>,
        settings: &ServerTls,
        service: &Service,
    ) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(Arc::clone(config));
        let shaken = tokio::select! {
            shaken = timeout(settings.handshake_timeout.0, acceptor.accept(socket)) => shaken,
            _ = self.permit.ended() => return None,
            _ = self.stop.wait_for(|stop| *stop) => return None,
        };
        match shaken {
            Ok(Ok(stream)) if tls::carries(stream.get_ref().1.peer_certificates(), &service.client_names) => {
                Some(stream)
            }
            Ok(Ok(mut stream)) => {
                self.permit.note(Reason::Certificate, &self.peer.to_string());
                // The peer gets a close notification; nothing can be done where that fails.
                let _ = timeout(CLOSING, stream.shutdown()).await;
                None
            }
            Ok(Err(error)) => {
                self.permit.note(Reason::Handshake, &format!("{}: {error}", self.peer));
                None
            }
            Err(_) => {
                self.permit.note(Reason::Handshake, &format!("{}: no handshake in time", self.peer));
                None
            }
        }
    }

    async fn run<S: AsyncRead + AsyncWrite + Unpin>(mut self, mut stream: S) {
        let service = Arc::clone(&self.service.borrow());
        match self.exchange(&mut stream).await {
            Ok(()) => tracing::debug!(service = service.name, peer = %self.peer, "connection closed"),
            // Only faults of the node are logged; otherwise a peer could fill the log with its connections.
            Err(error) if error.kind() == io::ErrorKind::Other => {
                tracing::info!(service = service.name, peer = %self.peer, %error, "connection ended");
            }
            Err(error) => tracing::debug!(service = service.name, peer = %self.peer, %error, "connection ended"),
        }
        // A TLS peer gets a close notification; nothing can be done where that fails.
        let _ = timeout(CLOSING, stream.shutdown()).await;
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S) -> io::Result<()> {
        let mut decoder = Decoder::new(limits_of(&self.service.borrow_and_update()));
        let mut due = DueAnswers::default();
        loop {
            let mut ended = false;
            // Not a `for`: while a message waits for room, more is read into the decoder.
            loop {
                if self.service.has_changed().unwrap_or(false) && !decoder.inside() {
                    decoder.set_limits(limits_of(&self.service.borrow_and_update()));
                }
                let Some(event) = decoder.next() else { break };
                if self.ends(&event) {
                    ended = true;
                    due.arrived.push_back(Instant::now());
                }
                let service = Arc::clone(&self.service.borrow());
                let mut ingesting = std::pin::pin!(self.event(&service, event));
                let ingested = tokio::select! {
                    biased;
                    ingested = &mut ingesting => ingested,
                    () = std::future::ready(()) => {
                        // It waits for room, possibly for long: the answers to messages already stored are sent before.
                        let taken = beside(&mut ingesting, self.answer(stream, &service, &mut due)).await?;
                        let taken = match taken {
                            None => self.still_there(stream, &mut decoder, ingesting).await?,
                            taken => taken,
                        };
                        match taken {
                            Some(ingested) => ingested,
                            None => return Ok(()),
                        }
                    }
                };
                due.ingested.extend(ingested);
                if due.ingested.len() == PIPELINE {
                    self.answer(stream, &service, &mut due).await?;
                }
            }
            let service = Arc::clone(&self.service.borrow());
            self.answer(stream, &service, &mut due).await?;
            if *self.stop.borrow() || *self.closed.borrow() {
                return Ok(());
            }
            self.look(&mut decoder, ended);
            if !self.read(stream, &mut decoder, &service).await? {
                if let Some(event) = decoder.end() {
                    self.event(&service, event).await;
                }
                return Ok(());
            }
        }
    }

    /// Whether an event ends a frame. A whole one proves the sender.
    fn ends(&mut self, event: &Event) -> bool {
        match event {
            Event::Frame(_) => {
                self.permit.prove();
                self.permit.whole();
                self.permit.connection().began(1);
                true
            }
            Event::Oversize { .. } => true,
            _ => false,
        }
    }

    /// Notes how far the frame is that the decoder is at, if it is at one, and gives memory back where it needs none.
    fn look(&mut self, decoder: &mut Decoder, ended: bool) {
        let bytes = decoder.buffer().len();
        self.pace.look(ended, decoder.inside(), bytes, Instant::now);
        if bytes < FREE_BYTES as usize {
            self.permit.release();
            self.granted = FREE_BYTES as usize;
        }
    }

    /// Waits for a message that waits for room or is decided on, as long as its sender is there. One that has gone away will
    /// send the message again: taken in later, each copy would be delivered. It looks the same as one that only closed its
    /// side and waits for the answer; that has its answer unless the message waits for room, or for longer than [`CLOSED`].
    async fn still_there<S: AsyncRead + Unpin, T>(
        &self,
        stream: &mut S,
        decoder: &mut Decoder,
        mut ingesting: Pin<&mut impl Future<Output = T>>,
    ) -> io::Result<Option<T>> {
        let (mut stop, mut ending) = (self.stop.clone(), self.permit.ending());
        loop {
            let more = decoder.buffer().len() < READ_AHEAD_BYTES;
            tokio::select! {
                biased;
                ingested = &mut ingesting => return Ok(Some(ingested)),
                _ = ending.ended() => return Ok(None),
                read = stream.read_buf(decoder.buffer()), if more => {
                    let read = read?;
                    if read == 0 {
                        break;
                    }
                    self.permit.connection().received(read as u64);
                }
                _ = stop.wait_for(|stop| *stop) => return Ok(None),
            }
        }
        tokio::select! {
            biased;
            ingested = &mut ingesting => Ok(Some(ingested)),
            () = self.waits.for_room() => Ok(None),
            () = tokio::time::sleep(CLOSED) => Ok(None),
            _ = ending.ended() => Ok(None),
            _ = stop.wait_for(|stop| *stop) => Ok(None),
        }
    }

    /// Reads some, once there is memory for it; `false` at the end of the stream, when a time is over, and on stop.
    async fn read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        decoder: &mut Decoder,
        service: &Service,
    ) -> io::Result<bool> {
        let settings = settings_of(service);
        let frame = self.pace.deadline(settings.frame_timeout.0).map(|at| (at, Reason::Frame));
        let idle = settings.idle_timeout.and_then(|idle| Instant::now().checked_add(idle.0));
        let until = [frame, idle.map(|at| (at, Reason::Idle))].into_iter().flatten().min_by_key(|(at, _)| *at);
        let Self { permit, closed, stop, granted, peer, .. } = self;
        let over = async {
            match until {
                None => std::future::pending().await,
                Some((at, reason)) => {
                    tokio::time::sleep_until(at).await;
                    reason
                }
            }
        };
        let mut over = std::pin::pin!(over);
        let buffer = decoder.buffer();
        if buffer.len() >= *granted {
            let wanted = buffer.len() as u64 + STEP_BYTES;
            tokio::select! {
                held = permit.hold(wanted, settings.frame_memory.0) => match held {
                    Ok(()) => *granted = wanted as usize,
                    Err(_) => return Ok(false),
                },
                reason = &mut over => {
                    permit.note(reason, &peer.to_string());
                    return Ok(false);
                }
                _ = stop.wait_for(|stop| *stop) => return Ok(false),
            }
        }
        let mut room = buffer.limit(*granted - buffer.len());
        tokio::select! {
            read = stream.read_buf(&mut room) => {
                let read = read?;
                if read > 0 {
                    permit.connection().received(read as u64);
                }
                Ok(read > 0)
            }
            reason = &mut over => {
                permit.note(reason, &peer.to_string());
                Ok(false)
            }
            _ = permit.ended() => Ok(false),
            _ = closed.wait_for(|closed| *closed) => Ok(false),
            _ = stop.wait_for(|stop| *stop) => Ok(false),
        }
    }

    /// The answers that an event requires.
    async fn event(&self, service: &Arc<PlannedService>, event: Event) -> Option<Ingested> {
        let (counters, figures) = (&self.engine.counters, &service.figures);
        match event {
            Event::Frame(frame) => {
                device::supervise::rehearse("mllp");
                return Some(match aside(frame.len(), || batch_frame::several(&frame)) {
                    None => self.engine.ingest(service, frame, &self.waits).await,
                    Some(several) => batch_frame::take(&self.engine, service, &frame, &several, &self.waits).await,
                });
            }
            Event::Oversize { seen } => {
                count(&counters.oversize);
                count(&figures.oversize);
                self.log(service, 0, "a message over message_bytes was refused");
                let answer = self.engine.refuse_oversize(service, &seen);
                return Some(Ingested::Now { answer, accepted: false, lasts: true });
            }
            Event::Junk { bytes, first } => {
                counters.junk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                figures.junk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                let what = mllp::explain(&first);
                if what != mllp::Stray::Blank {
                    self.log(service, bytes, &format!("dropped: {what}"));
                }
            }
            Event::Restarted { discarded } => {
                count(&counters.partial);
                count(&figures.partial);
                self.log(service, discarded, "the sender began a new frame inside one");
            }
            Event::Truncated { bytes } => {
                count(&counters.partial);
                count(&figures.partial);
                self.log(service, bytes, "closed inside a frame; the part was not taken");
            }
            Event::Commit(_) => unreachable!("a service's decoder does not look for commit frames"),
        }
        None
    }

    /// Logs a fault in the peer's bytes, within the rate limit.
    fn log(&self, service: &Service, bytes: usize, what: &str) {
        if let Some(left_out) = self.permit.line() {
            tracing::warn!(service = service.name, peer = %self.peer, bytes, left_out, "{what}");
        }
    }

    /// Waits for each taken frame, in order, and sends the answers.
    async fn answer<S: AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        service: &Service,
        due: &mut DueAnswers,
    ) -> io::Result<()> {
        let commit_bytes = settings_of(service).commit_bytes;
        let frames = due.ingested.len();
        let (mut answers, mut ended) = (Vec::new(), Ok(()));
        for ingested in due.ingested.drain(..) {
            let (answer, accepted) = match ingested.answer(&self.engine, service).await {
                Ok(answered) => answered,
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            };
            if commit_bytes {
                answers.extend_from_slice(if accepted { &mllp::COMMIT_ACK } else { &mllp::COMMIT_NAK });
            }
            answers.extend_from_slice(&answer);
        }
        // Also where a later one has none: what is durable and not answered would be sent again.
        write(stream, &answers).await?;
        ended?;
        if !answers.is_empty() {
            self.permit.connection().sent(answers.len() as u64);
        }
        for arrived in due.arrived.drain(..frames.min(due.arrived.len())) {
            service.figures.acknowledged(arrived.elapsed());
        }
        Ok(())
    }
}

/// Waits for `answering`, and has `ingesting` go on meanwhile: it may be given one of the turns to decide, which others wait for too.
/// Returns what was ingested, if that has ended.
async fn beside<T>(
    ingesting: &mut Pin<&mut impl Future<Output = T>>,
    answering: impl Future<Output = io::Result<()>>,
) -> io::Result<Option<T>> {
    let mut answering = std::pin::pin!(answering);
    let mut taken = None;
    loop {
        tokio::select! {
            biased;
            ingested = &mut *ingesting, if taken.is_none() => taken = Some(ingested),
            answered = &mut answering => return answered.map(|()| taken),
        }
    }
}

/// What a frame may be, by the settings in force.
fn limits_of(service: &Service) -> Limits {
    let mllp = settings_of(service);
    Limits { message_bytes: mllp.intake.message_bytes.as_usize(), require_final_cr: mllp.require_final_cr }
}

/// Frames that were taken and have no answer yet.
#[derive(Default)]
struct DueAnswers {
    ingested: Vec<Ingested>,
    /// When the last byte of each was read, and of the one that is being taken.
    arrived: VecDeque<Instant>,
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, answers: &[u8]) -> io::Result<()> {
    if !answers.is_empty() {
        let write = async {
            stream.write_all(answers).await?;
            stream.flush().await
        };
        timeout(WRITE_PATIENCE, write).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    Ok(())
}
