//! The MLLP client of a lane: connect, send one frame, wait for its acknowledgement.
//!
//! ```text
//!   (no link) --connect--> link --send--> wait --frame--> MSA-2 = our MSH-10 ? --> Reply (link kept)
//!       ^                    |             |                   \ no --> WrongId
//!       +---- closed <-------+-------------+------ timeout, end of stream, unreadable
//! ```
//!
//! Invariants: a link on which an answer was missed or doubtful is closed before anything else is sent; one that is
//! kept is checked before it is used again, so that one that was closed from outside is made anew; an answer counts only if it names our control id, so that a late answer is
//! never credited to the next message; nothing is sent on a connection that was made after the order to send nothing.
//! Nothing waits without a bound.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hl7::charset::Charset;
use hl7::mllp::{self, Decoder, Event, Limits};
use hl7::{Path, Reading, ack};
use node::connections::OPERATION_KIND;
use node::{ConnectionRegistry, CountedIo, OutgoingConnection};
use std::sync::LazyLock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Step;
use super::acknowledged::Acknowledged;
use super::reply::Answer;
use crate::production::Operation;
use crate::production::settings::{MllpOperation, ReplyKind};
use crate::queue::Entry;
use crate::queue::progress::{ConnectionState, LaneEvent, answer_text};

static CONTROL: LazyLock<Path> = LazyLock::new(|| "MSH-10".parse().expect("a constant path"));

/// A connection, or none yet.
pub(super) struct Link {
    open: Option<(Listed, Decoder)>,
    /// What was sent before.
    acknowledged: Acknowledged,
    connections: Arc<ConnectionRegistry>,
}

/// A connection that is in the list of the node's.
struct Listed {
    stream: CountedIo<Stream>,
    /// Dropped behind the stream.
    place: OutgoingConnection,
}

impl Link {
    /// None yet; those that it makes are in the list.
    pub(super) fn new(connections: &Arc<ConnectionRegistry>) -> Link {
        Link { open: None, acknowledged: Acknowledged::default(), connections: Arc::clone(connections) }
    }

    /// Whether it has a connection, as of the last message.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Connects where it has no connection, and sends nothing. Error: why that failed.
    pub(super) async fn connect(&mut self, operation: &Operation, settings: &MllpOperation) -> Result<(), String> {
        if self.open.is_none() {
            self.open = Some((connect((operation, settings), &self.connections).await?, decoder(settings)));
            self.acknowledged.reconnected();
        }
        Ok(())
    }

    /// Sends a message in a frame and waits for its answer. A connection kept from the message before that turns out to be closed is
    /// made anew at once: many receivers close when idle, and that is no failure.
    ///
    /// `None`: nothing was sent, since `may_send` says that nothing is to be sent any more.
    pub(super) async fn exchange(
        &mut self,
        at: (&Operation, &MllpOperation),
        (entry, body): (&Entry, &Bytes),
        step: Step<'_>,
    ) -> Option<Answer> {
        let impossible = |reason: String| Some(Answer::Impossible { reason });
        if let Some(at) = mllp::uncarriable(body) {
            return impossible(format!("MLLP cannot carry the control character at byte {at}"));
        }
        let reading = Reading::of_header(body, entry.charset);
        let Ok(message) = reading.message() else {
            return impossible("the transformed message has no MSH".to_owned());
        };
        let control_id = message.get(&CONTROL).bytes();
        if control_id.trim_ascii_end().is_empty() {
            return impossible("the transformed message has no control id (MSH-10)".to_owned());
        }
        let sent = Sent { number: entry.id, body, control_id, charset: reading.transcribed_from() };
        let kept = self.kept((at.0, sent.charset), control_id).await;
        let reused = kept.is_some();
        match self.on(kept, at, &sent, step).await? {
            Answer::Unanswered { .. } if reused => self.on(None, at, &sent, step).await,
            answer => Some(answer),
        }
    }

    /// The state of the connection after a try.
    pub(super) fn state(&self, answer: &Answer) -> ConnectionState {
        match answer {
            _ if self.open.is_some() => ConnectionState::Connected,
            Answer::Unreachable { .. } | Answer::Unanswered { .. } => ConnectionState::Down,
            _ => ConnectionState::Closed,
        }
    }

    /// The connection kept from before, if nothing speaks against using it: it is open, and all that has come on it
    /// since are late application acknowledgements of messages before.
    async fn kept(
        &mut self,
        (operation, charset): (&Operation, Option<Charset>),
        control_id: &[u8],
    ) -> Option<(Listed, Decoder)> {
        let (mut stream, mut decoder) = self.open.take()?;
        // The same id again (a retry, or a second output of one message): a late answer could be credited to it.
        if self.acknowledged.has_here(control_id) {
            return None;
        }
        let is_late = |frame: &[u8]| {
            let reading = Reading::lenient(frame, charset);
            let message = reading.message().ok();
            let received = message.as_ref().and_then(ack::read);
            received.is_some_and(|received| self.acknowledged.passes(&received, &operation.name))
        };
        loop {
            for event in decoder.by_ref() {
                match event {
                    Event::Frame(frame) if is_late(&frame) => {}
                    _ => return None,
                }
            }
            match arrived(&mut stream.stream, &mut decoder).await {
                None if !decoder.inside() => return Some((stream, decoder)),
                Some(Ok(bytes)) if bytes > 0 => {}
                _ => return None,
            }
        }
    }

    /// One exchange, on `link` or a new connection. `None`: nothing was sent, and the connection is kept.
    async fn on(
        &mut self,
        link: Option<(Listed, Decoder)>,
        (operation, settings): (&Operation, &MllpOperation),
        sent: &Sent<'_>,
        step: Step<'_>,
    ) -> Option<Answer> {
        let (mut stream, mut decoder) = match link {
            Some(link) => link,
            None => {
                (step.note)(LaneEvent::Connecting);
                self.acknowledged.reconnected();
                match connect((operation, settings), &self.connections).await {
                    Ok(stream) => (stream, decoder(settings)),
                    Err(reason) => return Some(Answer::Unreachable { reason }),
                }
            }
        };
        // Connecting may have taken long.
        if !(step.may_send)() {
            self.open = Some((stream, decoder));
            return None;
        }
        (step.note)(LaneEvent::Sent);
        stream.place.connection().began(1);
        let expected = Expected {
            control_id: sent.control_id,
            charset: sent.charset,
            acknowledged: &self.acknowledged,
            operation: &operation.name,
            commit_bytes: settings.commit_bytes,
        };
        let exchange = async {
            let broken = |when: &str, error: io::Error| Answer::Unanswered { reason: format!("{when}: {error}") };
            match send(&mut stream.stream, sent.body).await {
                // What was sent may have been all, and may have been the reason.
                Err(error) => broken("the connection broke while sending", error),
                Ok(()) => answer(&mut stream.stream, &mut decoder, &expected)
                    .await
                    .unwrap_or_else(|error| broken("the receiver went away before answering", error)),
            }
        };
        // One bound on both: a receiver that stops reading would delay a large message without end.
        let answer = tokio::time::timeout(settings.ack_timeout.0, exchange).await.unwrap_or_else(|_| Answer::Reply {
            kind: ReplyKind::Timeout,
            detail: format!("no answer within {}", settings.ack_timeout),
            text: None,
        });
        self.acknowledged.add(sent.control_id, sent.number);
        let ours = |kind: &ReplyKind| !matches!(kind, ReplyKind::WrongId | ReplyKind::Unreadable | ReplyKind::Timeout);
        if matches!(&answer, Answer::Reply { kind, .. } if ours(kind)) {
            self.open = Some((stream, decoder));
        }
        Some(answer)
    }
}

/// A message that is sent.
struct Sent<'a> {
    number: u64,
    body: &'a [u8],
    /// MSH-10, in UTF-8 where the charset of the message cannot be split.
    control_id: &'a [u8],
    /// That charset.
    charset: Option<Charset>,
}

/// The bytes that have arrived, without waiting: `None` = none.
async fn arrived(stream: &mut CountedIo<Stream>, decoder: &mut Decoder) -> Option<io::Result<usize>> {
    let mut chunk = [0; 512];
    let mut read = ReadBuf::new(&mut chunk);
    let polled = std::future::poll_fn(|cx| match Pin::new(&mut *stream).poll_read(cx, &mut read) {
        Poll::Pending => Poll::Ready(None),
        Poll::Ready(result) => Poll::Ready(Some(result)),
    });
    let result = polled.await?;
    decoder.buffer().extend_from_slice(read.filled());
    Some(result.map(|()| read.filled().len()))
}

fn decoder(settings: &MllpOperation) -> Decoder {
    Decoder::new(Limits { message_bytes: settings.reply_bytes.as_usize(), require_final_cr: false }).expect_commits()
}

/// Sends the frame of a body: over TCP without copying it; TLS copies it anyway, and makes one record of one write.
async fn send(stream: &mut CountedIo<Stream>, body: &[u8]) -> io::Result<()> {
    if stream.is_write_vectored() {
        let mut parts = [IoSlice::new(&mllp::HEADER), IoSlice::new(body), IoSlice::new(&mllp::TRAILER)];
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            match stream.write_vectored(parts).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut parts, written),
            }
        }
        return Ok(());
    }
    let mut frame = Vec::new();
    mllp::encode(body, &mut frame);
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// What an answer is compared with.
struct Expected<'a> {
    control_id: &'a [u8],
    /// The charset of our message where it is one that cannot be split: the receiver repeats our bytes in MSA-2, and may declare none.
    charset: Option<Charset>,
    /// Late answers to these are passed over and credited to none.
    acknowledged: &'a Acknowledged,
    operation: &'a str,
    commit_bytes: bool,
}

/// Reads until an answer is complete. A release 2 commit byte ACK is the answer where the settings take it as one,
/// else it precedes the acknowledgement and is passed over; NAK is always an answer.
async fn answer(stream: &mut CountedIo<Stream>, decoder: &mut Decoder, expected: &Expected<'_>) -> io::Result<Answer> {
    loop {
        for event in decoder.by_ref() {
            match event {
                Event::Frame(frame) => {
                    if let Some(answer) = read(&frame, expected) {
                        return Ok(answer);
                    }
                }
                Event::Commit(true) if expected.commit_bytes => {
                    return Ok(reply(ReplyKind::CA, "ACK (MLLP release 2)"));
                }
                Event::Commit(true) | Event::Restarted { .. } => {}
                Event::Commit(false) => {
                    return Ok(reply(ReplyKind::CR, "NAK (MLLP release 2)"));
                }
                Event::Oversize { .. } => return Ok(unreadable("an answer over reply_bytes")),
                Event::Junk { first, .. } => {
                    let stray = mllp::explain(&first);
                    if stray != mllp::Stray::Blank {
                        return Ok(unreadable(&format!("{stray}")));
                    }
                }
                Event::Truncated { .. } => unreachable!("only at the end of a stream"),
            }
        }
        if stream.read_buf(decoder.buffer()).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
    }
}

fn unreadable(what: &str) -> Answer {
    reply(ReplyKind::Unreadable, &format!("no acknowledgement: {what}"))
}

/// An answer without a text of the receiver.
fn reply(kind: ReplyKind, detail: &str) -> Answer {
    Answer::Reply { kind, detail: detail.to_owned(), text: None }
}

/// The answer in a frame to our message; `None` if it is a late one to a message before.
fn read(frame: &[u8], expected: &Expected<'_>) -> Option<Answer> {
    let reading = Reading::lenient(frame, expected.charset);
    let Ok(message) = reading.message() else {
        return Some(unreadable("a frame without MSH"));
    };
    let Some(received) = ack::read(&message) else {
        return Some(unreadable("a message without a readable MSA"));
    };
    if !ack::matches(&received, expected.control_id) {
        if expected.acknowledged.passes(&received, expected.operation) {
            return None;
        }
        return Some(reply(ReplyKind::WrongId, "an acknowledgement of another message (MSA-2)"));
    }
    let kind = match received.code {
        ack::Code::AA => ReplyKind::AA,
        ack::Code::AE => ReplyKind::AE,
        ack::Code::AR => ReplyKind::AR,
        ack::Code::CA => ReplyKind::CA,
        ack::Code::CE => ReplyKind::CE,
        ack::Code::CR => ReplyKind::CR,
    };
    let is_refused = !matches!(kind, ReplyKind::AA | ReplyKind::CA);
    let text = if is_refused { answer_text(received.text.bytes()) } else { None };
    Some(Answer::Reply { kind, detail: format!("{kind:?}"), text })
}

async fn connect(
    (operation, settings): (&Operation, &MllpOperation),
    connections: &Arc<ConnectionRegistry>,
) -> Result<Listed, String> {
    let connecting = async {
        let socket = node::name_lookup::connect_to(&settings.address).await?;
        node::socket::prepare(&socket)?;
        let remote = match socket.peer_addr() {
            Ok(peer) if peer.to_string() != settings.address => format!("{} ({peer})", settings.address),
            _ => settings.address.clone(),
        };
        let place = connections.outgoing((OPERATION_KIND, &operation.name), &remote, &socket);
        let stream = match &operation.tls {
            None => Stream::Plain(socket),
            Some(tls) => {
                let connector = TlsConnector::from(Arc::clone(&tls.config));
                let stream = connector.connect(tls.server_name.clone(), socket).await?;
                place.connection().secured();
                Stream::Tls(Box::new(stream))
            }
        };
        Ok(Listed { stream: CountedIo::new(stream, place.connection()), place })
    };
    match tokio::time::timeout(settings.connect_timeout.0, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(io_reason(&settings.address, &error)),
        Err(_) => Err(format!("no connection to {} within {}", settings.address, settings.connect_timeout)),
    }
}

fn io_reason(address: &str, error: &io::Error) -> String {
    format!("no connection to {address}: {error}")
}

/// Plain or TLS.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! either {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
            Stream::Tls($inner) => {
                let $inner = Pin::new($inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => inner.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, inner => inner.poll_write(cx, data))
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, inner => inner.poll_write_vectored(cx, buffers))
    }

    /// TLS copies what it is given, and makes one record of one write.
    fn is_write_vectored(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => inner.poll_flush(cx))
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => inner.poll_shutdown(cx))
    }
}
