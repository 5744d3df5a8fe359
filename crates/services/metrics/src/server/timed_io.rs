//! [`TimedIo`]: a socket whose peer has to take what is written within a time.
//!
//! A response waits here for as long as its peer reads nothing; without this, a peer that stops reading would keep its place for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// See the module's text.
pub(super) struct TimedIo<S> {
    socket: S,
    silence: Duration,
    /// Since the peer takes nothing: until when it may.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedIo<S> {
    /// The peer may take nothing for so long.
    pub(super) fn new(socket: S, silence: Duration) -> TimedIo<S> {
        TimedIo { socket, silence, until: None }
    }

    /// Looks whether a write that waits has waited too long.
    fn timed<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.until = None;
            return polled;
        }
        let silence = self.silence;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + silence)));
        match until.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.timed(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write_vectored(context, bytes);
        this.timed(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS keeps bytes that the socket did not take.
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_flush(context);
        this.timed(context, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_shutdown(context);
        this.timed(context, polled)
    }
}
