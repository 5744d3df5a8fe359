//! Replies on their way out: heads and buffers in order, sent by one system call for many.
//!
//! ```text
//!   [ head | bytes of a buffer ][ head ][ head | bytes of a buffer ]  --one writev-->  socket
//! ```
//!
//! Bytes are sent from the buffer that the device filled. A buffer returns to its pool once its last byte was taken.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use device::AlignedBuffer;
use tokio::io::AsyncWrite;

use super::pool::BufferPool;
use crate::protocol::reply::Head;

/// Slices of one system call: replies of a queue of 64 reads. Linux takes up to 1,024.
const SLICES: usize = 128;

/// What follows a head.
#[derive(Debug)]
enum Payload {
    Nothing,
    /// A part of a buffer that is nobody else's.
    Buffer(AlignedBuffer, Range<usize>),
    /// A part of a buffer of several replies, and how much of its memory is counted with this one: all of it with the last.
    Part(Arc<AlignedBuffer>, Range<usize>, u64),
    Bytes(Vec<u8>),
}

impl Payload {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Payload::Nothing => &[],
            Payload::Buffer(buffer, range) => &buffer[range.clone()],
            Payload::Part(buffer, range, _) => &buffer[range.clone()],
            Payload::Bytes(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
struct Piece {
    head: Head,
    payload: Payload,
}

impl Piece {
    #[inline]
    fn len(&self) -> usize {
        self.head.as_slice().len() + self.payload.as_slice().len()
    }
}

/// The replies of one session that were not sent yet.
#[derive(Debug)]
pub(super) struct Outbox {
    pool: Arc<BufferPool>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were sent.
    sent: usize,
    /// Memory in buffers.
    held: u64,
}

impl Outbox {
    pub(super) fn new(pool: Arc<BufferPool>) -> Outbox {
        Outbox { pool, pieces: VecDeque::new(), sent: 0, held: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Memory of buffers that wait to be sent.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Replies without payload that wait to be sent, and others.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    #[inline]
    pub(super) fn head(&mut self, head: Head) {
        self.pieces.push_back(Piece { head, payload: Payload::Nothing });
    }

    #[inline]
    pub(super) fn buffer(&mut self, head: Head, buffer: AlignedBuffer, range: Range<usize>) {
        self.held += buffer.capacity() as u64;
        self.pieces.push_back(Piece { head, payload: Payload::Buffer(buffer, range) });
    }

    /// A part of a buffer; all of its memory is held until the part is sent after which nothing more of it follows.
    pub(super) fn part(&mut self, head: Head, buffer: &Arc<AlignedBuffer>, range: Range<usize>, is_last: bool) {
        let counted = if is_last { buffer.capacity() as u64 } else { 0 };
        self.held += counted;
        self.pieces.push_back(Piece { head, payload: Payload::Part(Arc::clone(buffer), range, counted) });
    }

    pub(super) fn bytes(&mut self, head: Head, bytes: Vec<u8>) {
        self.held += bytes.len() as u64;
        self.pieces.push_back(Piece { head, payload: Payload::Bytes(bytes) });
    }

    /// Throws everything away.
    pub(super) fn clear(&mut self) {
        while let Some(piece) = self.pieces.pop_front() {
            self.release(piece);
        }
        self.sent = 0;
    }

    fn release(&mut self, piece: Piece) {
        match piece.payload {
            Payload::Nothing => {}
            Payload::Buffer(buffer, _) => {
                self.held -= buffer.capacity() as u64;
                self.pool.give(buffer);
            }
            Payload::Part(_, _, counted) => self.held -= counted,
            Payload::Bytes(bytes) => self.held -= bytes.len() as u64,
        }
    }

    /// Sends as much as the socket takes by one call. Ready with the bytes sent; to be called with something to send.
    pub(super) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        let mut skip = self.sent;
        for piece in &self.pieces {
            if count + 2 > SLICES {
                break;
            }
            for part in [piece.head.as_slice(), piece.payload.as_slice()] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices[count] = IoSlice::new(&part[skipped..]);
                    count += 1;
                }
            }
        }
        let sent = ready!(Pin::new(stream).poll_write_vectored(context, &slices[..count]))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(sent);
        Poll::Ready(Ok(sent))
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        while let Some(first) = self.pieces.front() {
            let length = first.len();
            if self.sent < length {
                break;
            }
            self.sent -= length;
            if let Some(piece) = self.pieces.pop_front() {
                self.release(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// A socket that takes a few bytes at a time.
    struct Narrow {
        taken: Vec<u8>,
        at_once: usize,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.at_once);
            self.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let count = all.len().min(self.at_once);
            self.taken.extend_from_slice(&all[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn however_little_a_socket_takes_the_bytes_are_in_order_and_every_buffer_comes_back() {
        for at_once in [5, 16, 4111, 100_000] {
            let mut outbox = Outbox::new(Arc::default());
            let mut expected = Vec::new();
            let shared = Arc::new(AlignedBuffer::from(&[9u8; 300][..]));
            for number in 0..80u64 {
                let head = Head::simple(number, 0);
                expected.extend_from_slice(head.as_slice());
                match number % 4 {
                    0 => outbox.head(head),
                    1 => {
                        outbox.buffer(head, AlignedBuffer::from(&[number as u8; 500][..]), 10..410);
                        expected.extend_from_slice(&[number as u8; 400]);
                    }
                    2 => {
                        outbox.part(head, &shared, 100..200, number == 78);
                        expected.extend_from_slice(&[9; 100]);
                    }
                    _ => {
                        outbox.bytes(head, vec![3; 12]);
                        expected.extend_from_slice(&[3; 12]);
                    }
                }
            }
            assert!(outbox.held() > shared.capacity() as u64, "the whole buffer counts until its last part is sent");
            let mut socket = Narrow { taken: Vec::new(), at_once };
            while !outbox.is_empty() {
                let sent = outbox.poll_send(&mut socket, &mut Context::from_waker(Waker::noop()));
                assert!(matches!(sent, Poll::Ready(Ok(count)) if count > 0));
            }
            assert!(socket.taken == expected, "{at_once} bytes at once");
            assert_eq!((outbox.held(), outbox.sent), (0, 0));
        }
    }
}
