//! A system that sends messages and waits for their acknowledgements, over a real socket.

use std::io;
use std::net::SocketAddr;

use bytes::BytesMut;
use hl7::mllp::{self, Decoder, Event, Limits};
use hl7::{Message, Path};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::rig::PATIENCE;

/// A stream, plain or TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// `message` in its frame.
pub(crate) fn framed(message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    mllp::encode(message.as_bytes(), &mut out);
    out
}

pub(crate) struct Sender {
    local: Option<SocketAddr>,
    stream: Box<dyn Stream>,
    decoder: Decoder,
}

/// The answer in one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer(pub(crate) Vec<u8>);

impl Answer {
    /// The text at a path of the answer.
    pub(crate) fn at(&self, path: &str) -> String {
        let path: Path = path.parse().expect("a path");
        Message::parse(&self.0).expect("an answer is a message").text(&path).into_owned()
    }

    /// Code and control id, as in `AA 17`.
    pub(crate) fn short(&self) -> String {
        format!("{} {}", self.at("MSA-1"), self.at("MSA-2"))
    }
}

impl Sender {
    pub(crate) async fn connect(address: SocketAddr) -> Sender {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.expect("in time").expect("it listens");
        stream.set_nodelay(true).expect("a socket option");
        let local = stream.local_addr().expect("it is connected");
        Sender { local: Some(local), ..Sender::over(Box::new(stream)) }
    }

    /// A connection that is reset when it is dropped, not closed.
    pub(crate) async fn connect_to_reset(address: SocketAddr) -> Sender {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.expect("in time").expect("it listens");
        stream.set_zero_linger().expect("a socket option");
        Sender::over(Box::new(stream))
    }

    /// Our end, as the node's log names it.
    pub(crate) fn local(&self) -> String {
        self.local.expect("made by connect").to_string()
    }

    pub(crate) fn over(stream: Box<dyn Stream>) -> Sender {
        Sender { local: None, stream, decoder: Decoder::new(Limits::default()) }
    }

    /// Writes bytes unchanged.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the node reads");
        self.stream.flush().await.expect("the node reads");
    }

    /// Sends a message without waiting.
    pub(crate) async fn send(&mut self, message: &str) {
        self.write(&framed(message)).await;
    }

    /// Sends a message and waits for its answer.
    pub(crate) async fn exchange(&mut self, message: &str) -> Answer {
        self.send(message).await;
        self.answer().await
    }

    /// Sends the bytes of a message, in whatever charset, and waits for its answer.
    pub(crate) async fn exchange_bytes(&mut self, message: &[u8]) -> Answer {
        let mut frame = Vec::new();
        hl7::mllp::encode(message, &mut frame);
        self.write(&frame).await;
        self.answer().await
    }

    /// Sends a message that is to be accepted.
    pub(crate) async fn accepted(&mut self, message: &str) {
        let answer = self.exchange(message).await;
        assert_eq!(answer.at("MSA-1"), "AA", "{answer:?}");
    }

    /// Sends a message that is to be accepted, and counts the answers to earlier messages.
    pub(crate) async fn accepted_behind(&mut self, message: &str, answers: usize, what: &std::path::Path) {
        self.send(message).await;
        let end = format!("MSA|AA|{}", message.split('|').nth(9).expect("a control id"));
        let mut found = 0;
        loop {
            let answer = String::from_utf8_lossy(&self.answer().await.0).into_owned();
            if answer.contains(&end) {
                break;
            }
            found += answer.matches("\rMSA").count();
        }
        assert!(found >= answers, "{found} answers of {answers} to {}", what.display());
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.answer_or_end().await.expect("an answer, not the end of the connection")
    }

    /// The next answer, or `None` where the connection has ended.
    pub(crate) async fn answer_or_end(&mut self) -> Option<Answer> {
        loop {
            match self.decoder.next() {
                Some(Event::Frame(frame)) => return Some(Answer(frame.to_vec())),
                Some(other) => panic!("only frames come back: {other:?}"),
                None => {}
            }
            let read = self.stream.read_buf(self.decoder.buffer());
            match timeout(PATIENCE, read).await.expect("an answer in time") {
                Ok(0) => return None,
                Ok(_) => {}
                // Reset, or over TLS refused.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::InvalidData) => {
                    return None;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends a message; its answer, or `None` where the connection ends instead.
    pub(crate) async fn answer_of(&mut self, message: &str) -> Option<Answer> {
        // If the node has closed already, writing fails, and reading reports it.
        let _ = self.stream.write_all(&framed(message)).await;
        self.answer_or_end().await
    }

    /// Whether nothing has come back so far.
    pub(crate) async fn is_silent(&mut self) -> bool {
        let mut buffer = BytesMut::new();
        let now = std::future::ready(());
        // Checked several times, since the first check only registers for the event.
        for _ in 0..16 {
            tokio::select! {
                biased;
                _ = self.stream.read_buf(&mut buffer) => return false,
                () = now.clone() => tokio::task::yield_now().await,
            }
        }
        true
    }

    /// Whether the connection ends, whatever comes on it before.
    pub(crate) async fn ends(&mut self) -> bool {
        let mut rest = Vec::new();
        // An end by reset is an end as well.
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("an end in time");
        true
    }

    /// Closes the sending side, and still reads.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.expect("a half close");
    }
}
