//! One connection: messages in, replies out, over a socket, plain or TLS.
//!
//! Replies are collected until there are many or the client waits for them. So a result of many rows takes few writes,
//! and no more memory than [`HIGH_BYTES`] and a row.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::Framed;

use super::codec::Codec;
use super::connection_error::ConnectionError;
use super::error_response::ErrorResponse;
use super::{Message, Reply};
use crate::engine::limits::memory_budget::Account;

/// The size at which collected replies are sent, and the initial size of buffers: two records of TLS.
const HIGH_BYTES: usize = 32 << 10;

/// A socket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// One connection.
pub(super) struct Connection(Framed<Box<dyn Socket>, Codec>);

impl Connection {
    /// A connection over a socket, whose messages may have at most `limit` bytes.
    pub(super) fn new(socket: Box<dyn Socket>, limit: usize) -> Connection {
        Connection(Framed::with_capacity(socket, Codec::new(limit), HIGH_BYTES))
    }

    /// The socket, if no bytes behind the last message were read: bytes sent in clear before a TLS handshake must not
    /// be treated as if they had come through TLS.
    pub(super) fn into_socket(self) -> Result<Box<dyn Socket>, ConnectionError> {
        let parts = self.0.into_parts();
        if parts.read_buf.is_empty() {
            return Ok(parts.io);
        }
        Err(ConnectionError::fatal(ErrorResponse::protocol("received unencrypted data after SSL request")))
    }

    /// From now on queries and data are accepted, and their memory is charged to this account.
    pub(super) fn logged_in(&mut self, account: Option<Arc<Account>>) {
        self.0.codec_mut().logged_in(account);
    }

    /// The next message. Cancelling this call while it waits loses nothing.
    pub(super) async fn message(&mut self) -> Result<Message, ConnectionError> {
        self.0.next().await.unwrap_or(Err(ConnectionError::Closed))
    }

    /// Whether the next message has already arrived and is of this kind.
    pub(super) fn next_is(&self, kind: u8) -> bool {
        self.0.read_buffer().first() == Some(&kind)
    }

    /// Adds a reply; sends the collected replies if they are large.
    pub(super) async fn reply(&mut self, reply: Reply) -> Result<(), ConnectionError> {
        self.0.feed(reply).await
    }

    /// Sends the collected replies.
    pub(super) async fn flush(&mut self) -> Result<(), ConnectionError> {
        SinkExt::<Reply>::flush(&mut self.0).await
    }

    /// Sends the client the reason why its connection ends, and ends it, within this time.
    pub(super) async fn end(&mut self, ended: Result<(), ConnectionError>, peer: SocketAddr, within: Duration) {
        let mut last = None;
        match ended {
            Ok(()) | Err(ConnectionError::Closed) => {}
            Err(ConnectionError::Io(error)) => tracing::debug!(%peer, %error, "connection lost"),
            Err(ConnectionError::Fatal(response)) => {
                tracing::debug!(%peer, code = response.code, "connection ended");
                last = Some(response.reply(true));
            }
        }
        // A client that does not read cannot delay this without end, and one that has disconnected cannot be notified.
        let _ = tokio::time::timeout(within, async {
            if let Some(last) = last {
                let _ = self.reply(last).await;
            }
            self.close().await;
        })
        .await;
    }

    /// Sends the collected replies, and ends the connection.
    async fn close(&mut self) {
        // The client may have disconnected already.
        let _ = SinkExt::<Reply>::close(&mut self.0).await;
    }
}
