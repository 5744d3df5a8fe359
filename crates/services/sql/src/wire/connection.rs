//! One connection: messages in, replies out, over a socket, plain or TLS.
//!
//! Replies gather until they are many or the client waits for them, so that an answer of many rows takes few writes, and
//! no more memory than [`HIGH_BYTES`] and a row.

use std::io;
use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::{Framed, FramedParts};

use super::codec::Codec;
use super::fault::Fault;
use super::{Message, Reply};
use crate::engine::budget::Account;

/// What may gather before it is sent, and the size that buffers begin with: two records of TLS.
const HIGH_BYTES: usize = 32 << 10;

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

/// One connection.
pub(super) struct Connection(Framed<Box<dyn Socket>, Codec>);

impl Connection {
    /// A connection over a socket, whose messages may have so many bytes.
    pub(super) fn new(socket: Box<dyn Socket>, limit: usize) -> Connection {
        Connection(Framed::with_capacity(socket, Codec::new(limit), HIGH_BYTES))
    }

    /// The socket, if nothing was read beyond what was asked for: bytes sent in clear before a TLS handshake must not
    /// count as if they had come through it.
    pub(super) fn into_socket(self) -> Result<Box<dyn Socket>, Broken> {
        let parts = self.0.into_parts();
        if parts.read_buf.is_empty() {
            return Ok(parts.io);
        }
        Err(Broken::fatal(Fault::protocol("received unencrypted data after SSL request")))
    }

    /// Goes on over another socket, and gives back the one that it was over. What was read stays read.
    pub(super) fn over(self, socket: Box<dyn Socket>) -> (Box<dyn Socket>, Connection) {
        let old = self.0.into_parts();
        let mut parts = FramedParts::new::<Reply>(socket, old.codec);
        (parts.read_buf, parts.write_buf) = (old.read_buf, old.write_buf);
        (old.io, Connection(Framed::from_parts(parts)))
    }

    /// From now on queries and data may come, and take memory of this account.
    pub(super) fn logged_in(&mut self, account: Option<Arc<Account>>) {
        self.0.codec_mut().logged_in(account);
    }

    /// The next message; it may be cancelled while it waits, and loses nothing then.
    pub(super) async fn message(&mut self) -> Result<Message, Broken> {
        self.0.next().await.unwrap_or(Err(Broken::Closed))
    }

    /// Whether the next message is there already and of this kind.
    pub(super) fn next_is(&self, kind: u8) -> bool {
        self.0.read_buffer().first() == Some(&kind)
    }

    /// Takes a reply; sends what gathered if it is much.
    pub(super) async fn reply(&mut self, reply: Reply) -> Result<(), Broken> {
        self.0.feed(reply).await
    }

    /// Sends what gathered.
    pub(super) async fn flush(&mut self) -> Result<(), Broken> {
        SinkExt::<Reply>::flush(&mut self.0).await
    }

    /// Sends what gathered, and ends the connection.
    pub(super) async fn close(&mut self) {
        // The client may be gone already.
        let _ = SinkExt::<Reply>::close(&mut self.0).await;
    }
}
