//! The bytes of one connection: a buffer each way over a socket, plain or TLS.
//!
//! What is written gathers in the buffer until it is large or the client waits for it, so that an answer of many rows
//! takes few writes, and no more memory than [`HIGH_BYTES`] and a row.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::fault::Fault;
use super::message::{self, Malformed, Message, Opening};

/// What may gather before it is sent.
const HIGH_BYTES: usize = 64 << 10;

/// A socket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The client is gone.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The client must be told, and is sent away.
    #[error("{}", .0.message)]
    Fatal(Box<Fault>),
    /// The client said goodbye, or hung up between two messages.
    #[error("closed")]
    Closed,
}

impl Broken {
    /// The client is told this and sent away.
    pub(super) fn fatal(fault: Fault) -> Broken {
        Broken::Fatal(Box::new(fault))
    }
}

impl From<Malformed> for Broken {
    fn from(malformed: Malformed) -> Broken {
        Broken::fatal(malformed.into())
    }
}

/// One connection's bytes.
pub(super) struct Connection {
    socket: Box<dyn Socket>,
    input: BytesMut,
    /// What is to be sent; the functions of `reply` append to it.
    pub(super) out: BytesMut,
    limit: usize,
}

impl Connection {
    /// A connection over a socket, whose messages may have so many bytes.
    pub(super) fn new(socket: Box<dyn Socket>, limit: usize) -> Connection {
        Connection { socket, input: BytesMut::with_capacity(8 << 10), out: BytesMut::new(), limit }
    }

    /// The socket, if nothing was read beyond what was asked for: bytes sent in clear before a TLS handshake must not
    /// count as if they had come through it.
    pub(super) fn into_socket(self) -> Result<Box<dyn Socket>, Broken> {
        if self.input.is_empty() {
            return Ok(self.socket);
        }
        Err(Broken::fatal(Fault::protocol("received unencrypted data after SSL request")))
    }

    /// The first packet.
    pub(super) async fn opening(&mut self) -> Result<Opening, Broken> {
        loop {
            if let Some(opening) = message::opening(&mut self.input)? {
                return Ok(opening);
            }
            self.fill().await?;
        }
    }

    /// The next message; it may be cancelled while it waits, and loses nothing then.
    pub(super) async fn message(&mut self) -> Result<Message, Broken> {
        loop {
            if let Some(message) = message::message(&mut self.input, self.limit)? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// Whether the next message is there already and of this kind.
    pub(super) fn next_is(&self, kind: u8) -> bool {
        self.input.first() == Some(&kind)
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        if self.socket.read_buf(&mut self.input).await? > 0 {
            return Ok(());
        }
        if self.input.is_empty() {
            return Err(Broken::Closed);
        }
        Err(Broken::Io(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Sends what gathered, if it is much.
    pub(super) async fn flush_if_high(&mut self) -> Result<(), Broken> {
        if self.out.len() >= HIGH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends what gathered.
    pub(super) async fn flush(&mut self) -> Result<(), Broken> {
        if !self.out.is_empty() {
            self.socket.write_all(&self.out).await?;
            self.out.clear();
        }
        self.socket.flush().await?;
        Ok(())
    }

    /// Sends what gathered, and ends the connection.
    pub(super) async fn close(&mut self) {
        // The client may be gone already.
        let _ = self.flush().await;
        let _ = self.socket.shutdown().await;
    }
}
