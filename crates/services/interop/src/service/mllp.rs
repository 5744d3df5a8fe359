//! The MLLP service: accepts connections, takes frames, sends acknowledgements.
//!
//! ```text
//! accept -> (TLS) -> read -> frames -> engine.take, one after the other -> wait until durable -> answers in order
//! ```
//!
//! Invariants:
//! 1. Frames of one connection are taken in order and answered in order; several frames in one read are committed
//!    together (up to `PIPELINE`), none is lost.
//! 2. An answer is written only after the record is durable. If the journal fails, the connection closes unanswered.
//! 3. A connection holds at most one message over the size bound plus one read in memory.
//! 4. A reload does not touch connections: each message asks for the plan in force.
//! 5. Log lines name the service, the peer and counts; never bytes of a message.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hl7::mllp::{self, Decoder, Event, Limits};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::apart;
use crate::engine::{Engine, Taken, count};
use crate::error::InteropError;
use crate::production::{Service, settings};
use crate::record::Status;

/// Frames taken from one connection before their answers are written: bounds what one sender can have in flight.
const PIPELINE: usize = 64;

/// Silence after which TCP asks whether the peer is still there, so that dead peers do not hold connections.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Read ahead while a message waits for room: enough to see that the sender has closed.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// A peer that does not read its answers for this long is disconnected.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// A peer that does not finish its TLS handshake within this is disconnected.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What connections of one listener share; `service` changes at a reload.
#[derive(Debug)]
pub struct Listening {
    /// The socket's address, the port resolved.
    pub address: SocketAddr,
    service: watch::Sender<Arc<Service>>,
    stop: watch::Sender<bool>,
}

impl Listening {
    /// Puts another version of the service in force, for connections there are and to come.
    pub fn replace(&self, service: Arc<Service>) {
        self.service.send_replace(service);
    }

    /// The service as it stands.
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service.borrow())
    }

    /// Stops listening; connections end after the message they are at.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Binds the service's address; nothing is accepted before `serve`.
///
/// # Errors
/// `Listen`.
pub async fn bind(service: &Service, address: SocketAddr) -> Result<TcpListener, InteropError> {
    TcpListener::bind(address).await.map_err(|source| InteropError::Listen {
        service: service.name.clone(),
        address,
        source,
    })
}

/// Accepts connections until stopped.
pub fn serve(engine: Arc<Engine>, service: Arc<Service>, listener: TcpListener) -> io::Result<Listening> {
    let address = listener.local_addr()?;
    let (stop, mut stopped) = watch::channel(false);
    let service = watch::Sender::new(service);
    let listening = Listening { address, service: service.clone(), stop };
    tokio::spawn(async move {
        let open = Arc::new(());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopped.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((socket, peer)) => {
                    let current = Arc::clone(&service.borrow());
                    if Arc::strong_count(&open) > limit(&current) {
                        tracing::warn!(service = current.name, %peer, "connection refused: the service's bound is reached");
                        continue;
                    }
                    let connection = Connection {
                        engine: Arc::clone(&engine),
                        service: service.subscribe(),
                        stop: stopped.clone(),
                        peer,
                    };
                    let open = Arc::clone(&open);
                    tokio::spawn(async move {
                        let _open = (open, Open::new(&connection.engine));
                        connection.start(socket).await;
                    });
                }
                Err(error) => {
                    // Out of file descriptors, most often: wait for some to be closed instead of spinning.
                    tracing::warn!(%address, %error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(listening)
}

fn settings_of(service: &Service) -> &settings::MllpService {
    match &service.settings {
        settings::Service::Mllp(mllp) => mllp,
        settings::Service::File(_) => unreachable!("an MLLP listener belongs to an MLLP service"),
    }
}

fn limit(service: &Service) -> usize {
    settings_of(service).connections
}

/// Counts a connection for as long as it lives, however it ends.
struct Open(Arc<Engine>);

impl Open {
    fn new(engine: &Arc<Engine>) -> Self {
        engine.connections.send_modify(|open| *open += 1);
        Self(Arc::clone(engine))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.send_modify(|open| *open -= 1);
    }
}

struct Connection {
    engine: Arc<Engine>,
    service: watch::Receiver<Arc<Service>>,
    stop: watch::Receiver<bool>,
    peer: SocketAddr,
}

impl Connection {
    async fn start(self, socket: TcpStream) {
        let service = Arc::clone(&self.service.borrow());
        if let Err(error) = prepare(&socket) {
            tracing::warn!(service = service.name, peer = %self.peer, %error, "socket options refused");
        }
        match &service.tls {
            None => self.run(socket).await,
            Some(config) => {
                let acceptor = TlsAcceptor::from(Arc::clone(config));
                match tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await {
                    Ok(Ok(stream)) => self.run(stream).await,
                    Ok(Err(error)) => {
                        tracing::warn!(service = service.name, peer = %self.peer, %error, "TLS handshake failed");
                    }
                    Err(_) => tracing::warn!(service = service.name, peer = %self.peer, "TLS handshake timed out"),
                }
            }
        }
    }

    async fn run<S: AsyncRead + AsyncWrite + Unpin>(mut self, mut stream: S) {
        let service = Arc::clone(&self.service.borrow());
        match self.exchange(&mut stream).await {
            Ok(()) => tracing::debug!(service = service.name, peer = %self.peer, "connection closed"),
            Err(error) => tracing::info!(service = service.name, peer = %self.peer, %error, "connection ended"),
        }
        // A TLS peer is told; nothing can be done where that fails.
        let _ = tokio::time::timeout(HANDSHAKE, stream.shutdown()).await;
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S) -> io::Result<()> {
        let mut decoder = {
            let service = self.service.borrow();
            let mllp = settings_of(&service);
            Decoder::new(Limits {
                message_bytes: mllp.intake.message_bytes.as_usize(),
                require_final_cr: mllp.require_final_cr,
            })
        };
        let mut answers = Vec::new();
        let mut due = Vec::new();
        loop {
            // Not a `for`: while a message waits for room, more is read into the decoder.
            loop {
                let Some(event) = decoder.next() else { break };
                let service = Arc::clone(&self.service.borrow());
                let mut taking = std::pin::pin!(self.event(&service, event));
                let taken = tokio::select! {
                    biased;
                    taken = &mut taking => taken,
                    () = std::future::ready(()) => {
                        // It waits for room, maybe for long: what is stored already is not kept waiting with it.
                        self.settle(&service, &mut due, &mut answers).await?;
                        flush(stream, &mut answers).await?;
                        match self.still_there(stream, &mut decoder, taking).await? {
                            Some(taken) => taken,
                            None => return Ok(()),
                        }
                    }
                };
                due.extend(taken);
                if due.len() == PIPELINE {
                    self.settle(&service, &mut due, &mut answers).await?;
                    flush(stream, &mut answers).await?;
                }
            }
            let service = Arc::clone(&self.service.borrow());
            self.settle(&service, &mut due, &mut answers).await?;
            flush(stream, &mut answers).await?;
            if *self.stop.borrow() {
                return Ok(());
            }
            if !self.read(stream, &mut decoder, &service).await? {
                if let Some(event) = decoder.end() {
                    self.event(&service, event).await;
                }
                return Ok(());
            }
        }
    }

    /// Waits for a message that waits for room, as long as its sender is there. One that has gone away (or only closed
    /// its side, which cannot be told apart) will send the message again: taken in later, each copy would be delivered.
    async fn still_there<S: AsyncRead + Unpin, T>(
        &self,
        stream: &mut S,
        decoder: &mut Decoder,
        mut taking: Pin<&mut impl Future<Output = T>>,
    ) -> io::Result<Option<T>> {
        let mut stop = self.stop.clone();
        loop {
            let more = decoder.buffer().len() < READ_AHEAD_BYTES;
            tokio::select! {
                biased;
                taken = &mut taking => return Ok(Some(taken)),
                read = stream.read_buf(decoder.buffer()), if more => {
                    if read? == 0 {
                        return Ok(None);
                    }
                }
                _ = stop.wait_for(|stop| *stop) => return Ok(None),
            }
        }
    }

    /// Reads some; `false` at the end of the stream, on idling too long and on stop.
    async fn read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        decoder: &mut Decoder,
        service: &Service,
    ) -> io::Result<bool> {
        let buffer = decoder.buffer();
        let idle = settings_of(service).idle_timeout;
        let read = async {
            match idle {
                None => stream.read_buf(buffer).await,
                Some(idle) => tokio::time::timeout(idle.0, stream.read_buf(buffer)).await.unwrap_or_else(|_| {
                    tracing::info!(service = service.name, "connection closed: silent longer than idle_timeout");
                    Ok(0)
                }),
            }
        };
        tokio::select! {
            read = read => Ok(read? > 0),
            _ = self.stop.wait_for(|stop| *stop) => Ok(false),
        }
    }

    /// What an event leaves to be answered.
    async fn event(&self, service: &Arc<Service>, event: Event) -> Option<Taken> {
        let counters = &self.engine.counters;
        match event {
            Event::Frame(frame) => {
                return Some(match apart::several(&frame) {
                    None => self.engine.take(service, frame).await,
                    Some(batch) => apart::take(&self.engine, service, &frame, &batch).await,
                });
            }
            Event::Oversize { seen } => {
                count(&counters.oversize);
                tracing::warn!(service = service.name, peer = %self.peer, "a message over message_bytes was refused");
                let answer = self.engine.refuse_oversize(service, &seen);
                return Some(Taken::Now { answer, accepted: false });
            }
            Event::Junk { bytes, first } => {
                counters.junk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                let what = mllp::explain(&first);
                if what != mllp::Stray::Blank {
                    tracing::warn!(service = service.name, peer = %self.peer, bytes, "dropped: {what}");
                }
            }
            Event::Restarted { discarded } => {
                count(&counters.partial);
                tracing::warn!(service = service.name, peer = %self.peer, discarded, "the sender began a new frame inside one");
            }
            Event::Truncated { bytes } => {
                count(&counters.partial);
                tracing::warn!(service = service.name, peer = %self.peer, bytes, "closed inside a frame; the part was not taken");
            }
            Event::Commit(_) => unreachable!("a service's decoder does not look for commit frames"),
        }
        None
    }

    /// Waits for each taken frame, in order, and gathers the answers.
    async fn settle(&self, service: &Service, due: &mut Vec<Taken>, answers: &mut Vec<u8>) -> io::Result<()> {
        let commit_bytes = settings_of(service).commit_bytes;
        for taken in due.drain(..) {
            let (answer, accepted) = answered(taken).await?;
            if commit_bytes {
                answers.extend_from_slice(if accepted { &mllp::COMMIT_ACK } else { &mllp::COMMIT_NAK });
            }
            answers.extend_from_slice(&answer);
        }
        Ok(())
    }
}

/// What to answer, once that may be said, and whether the message was accepted.
pub(super) async fn answered(taken: Taken) -> io::Result<(Vec<u8>, bool)> {
    match taken {
        Taken::Now { answer, accepted } => Ok((answer, accepted)),
        Taken::Closed => Err(io::Error::other("the journal is closed; the message is not acknowledged")),
        Taken::Stored { durable, answer, status } => {
            durable.await.map_err(|_| io::Error::other("the journal failed; the message is not acknowledged"))?;
            Ok((answer, !matches!(status, Status::Rejected | Status::Errored)))
        }
    }
}

async fn flush<S: AsyncWrite + Unpin>(stream: &mut S, answers: &mut Vec<u8>) -> io::Result<()> {
    if !answers.is_empty() {
        let write = async {
            stream.write_all(answers).await?;
            stream.flush().await
        };
        tokio::time::timeout(WRITE_PATIENCE, write).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        answers.clear();
    }
    Ok(())
}

/// Small frames are sent at once, and dead peers are noticed.
pub(crate) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket2::SockRef::from(socket).set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(KEEPALIVE))
}
