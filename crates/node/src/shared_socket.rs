//! [`SharedSocket`]: a TCP socket that one reads and writes, while others ask whether the peer is there still, and shut it down.
//!
//! ```text
//!   the protocol, or a session's thread --reads, writes--> SharedSocket --.
//!   runtime of the socket               --what is ready------------------+--> TcpStream
//!   who looks after connections         --is it left? shut it down-------'
//! ```
//!
//! Who reads may do so on another thread than the runtime's: a request then takes one change of threads.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// See the head of this file. At most one reads at a time, and one writes. The socket is closed with its last clone.
#[derive(Clone, Debug)]
pub struct SharedSocket(Arc<TcpStream>);

impl SharedSocket {
    /// Shares a socket.
    pub fn new(socket: TcpStream) -> SharedSocket {
        SharedSocket(Arc::new(socket))
    }

    /// Whether the peer has ended its side, whatever it sent before that and nobody has read, or is gone. It costs no call of the
    /// system: the socket's runtime has noted it.
    pub fn is_left(&self) -> bool {
        let ready = pin!(self.0.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Nothing more can be read or written here, whoever waits for it.
    ///
    /// # Errors
    /// Those of the system: the peer may be gone.
    pub fn shut_down(&self) -> io::Result<()> {
        socket2::SockRef::from(&*self.0).shutdown(Shutdown::Both)
    }

    fn poll_written(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for SharedSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_written(context, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(context, |socket| socket.try_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What the system has taken is on its way.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_has_ended_its_side_is_seen_behind_what_nobody_has_read_and_a_reader_is_woken_by_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let mut peer = TcpStream::connect(listener.local_addr().expect("it listens")).await.expect("it listens");
        let socket = SharedSocket::new(listener.accept().await.expect("it came").0);
        peer.write_all(b"unread").await.expect("it is open");
        let (mut reads, mut bytes) = (socket.clone(), [0; 2]);
        reads.read_exact(&mut bytes).await.expect("it was written");
        assert!(!socket.is_left());
        peer.shutdown().await.expect("it is open");
        let until_left = async {
            while !socket.is_left() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), until_left).await.expect("the runtime notes it");
        socket.shut_down().expect("it is open");
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(60), reads.read_to_end(&mut rest))
            .await
            .expect("it ends")
            .expect("all");
        assert_eq!((&bytes, rest.as_slice()), (b"un", &b"read"[..]));
    }
}
