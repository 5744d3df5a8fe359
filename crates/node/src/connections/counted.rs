//! [`CountedIo`]: a socket whose bytes are counted for the list of connections.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::OpenConnection;

/// See the module's text.
#[derive(Debug)]
pub struct CountedIo<S> {
    socket: S,
    connection: Arc<OpenConnection>,
}

impl<S> CountedIo<S> {
    /// The socket of a connection.
    pub fn new(socket: S, connection: &Arc<OpenConnection>) -> CountedIo<S> {
        CountedIo { socket, connection: Arc::clone(connection) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedIo<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let polled = Pin::new(&mut this.socket).poll_read(context, into);
        let came = into.filled().len() - before;
        if came > 0 {
            this.connection.received(came as u64);
        }
        polled
    }
}

impl<S> CountedIo<S> {
    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.connection.sent(*bytes as u64);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedIo<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.wrote(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write_vectored(context, bytes);
        this.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
