//! The sockets of both sides: unix, TCP, and either of them below TLS, behind one trait.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{client, server};

/// What a session is carried by.
pub(crate) trait Carrier: AsyncRead + AsyncWrite + Unpin + Send {}

impl Carrier for Socket {}
impl Carrier for server::TlsStream<Socket> {}
impl Carrier for client::TlsStream<Socket> {}
impl<S: Carrier> Carrier for node::CountedIo<S> {}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// A socket without TLS.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, into),
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
