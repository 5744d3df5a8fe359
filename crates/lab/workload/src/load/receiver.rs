//! One receiving system: a listener, and its connections.
//!
//! Each delivery is checked before it is acknowledged: which message it is (MSH-10), that its bytes are the expected ones
//! (`pool`), that its turn has come and that it has not come before (`account`). The acknowledgement is always AA: the
//! receiver takes note of faults, it does not make the node try again.

use std::io::{ErrorKind, Read, Write};

use mio::net::TcpStream;

use super::account::Account;
use super::frames::Frames;
use super::pool::{self, Pool};
use crate::messages::control_id;

/// An acknowledgement without its control id (MSH-10) and the acknowledged one (MSA-2).
const ACK: [&[u8]; 3] =
    [b"\x0bMSH|^~\\&|RECEIVER|T4|TERRACE|HUB|20260101000000||ACK|A-", b"|P|2.5.1\rMSA|AA|", b"\r\x1c\r"];

/// The state that all receivers of a run share.
pub(super) struct Counter<'a> {
    pub(super) pool: &'a Pool,
    pub(super) account: &'a mut Account,
    pub(super) buffer: &'a mut [u8],
    pub(super) now_ms: u64,
}

/// A connection from the node.
pub(super) struct Receiver {
    interface: usize,
    stream: TcpStream,
    frames: Frames,
    replies: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(interface: usize, stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true); // only latency depends on it
        Receiver { interface, stream, frames: Frames::default(), replies: Vec::new() }
    }

    /// The socket, to register it.
    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Handles received bytes; returns whether the connection continues.
    pub(super) fn readable(&mut self, counter: &mut Counter<'_>) -> bool {
        loop {
            let count = match self.stream.read(counter.buffer) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let Counter { pool, account, buffer, now_ms } = counter;
            let (interface, replies) = (self.interface, &mut self.replies);
            let fault = self.frames.feed(&buffer[..count], |message| {
                let id = header_field(message, 9);
                check(interface, id, message, pool, account, *now_ms);
                for (piece, id) in ACK.into_iter().zip([id, id, b""]) {
                    replies.extend_from_slice(piece);
                    replies.extend_from_slice(id);
                }
            });
            if let Err(fault) = fault {
                account.framing(|| format!("interface {interface}: what came is not MLLP: {fault:?}"));
                return false;
            }
            if !self.writable() {
                return false;
            }
            // A read that did not fill the buffer has emptied the socket: epoll(7), edge triggered, stream sockets.
            if count < counter.buffer.len() {
                return true;
            }
        }
    }

    /// Sends the acknowledgements that are due; returns whether the connection continues.
    pub(super) fn writable(&mut self) -> bool {
        if self.replies.is_empty() {
            return true;
        }
        match self.stream.write(&self.replies) {
            Ok(count) if count == self.replies.len() => self.replies.clear(),
            Ok(count) => drop(self.replies.drain(..count)),
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        true
    }
}

fn check(interface: usize, id: &[u8], message: &[u8], pool: &Pool, account: &mut Account, now_ms: u64) {
    let Some((service, sequence)) = control_id::read(id) else {
        return account.foreign(interface, &format!("a message with control id {}", id.escape_ascii()));
    };
    if !pool.matches(interface, service, sequence, message) {
        let what = || {
            let difference = pool::difference(&pool.expected(interface, service, sequence), message);
            format!("message {sequence} of service {service}: {difference}")
        };
        account.wrong(interface, what);
    }
    account.deliver(interface, service, sequence, now_ms);
}

/// The piece after the `number`th `|` of the first segment: 9 for MSH-10, since MSH-1 is the separator itself.
fn header_field(message: &[u8], number: usize) -> &[u8] {
    let end = memchr::memchr(b'\r', message).unwrap_or(message.len());
    message[..end].split(|byte| *byte == b'|').nth(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_id_is_the_tenth_header_field_and_not_looked_for_in_other_segments() {
        assert_eq!(header_field(b"MSH|^~\\&|a|b|c|d|e||g|ID|P\rPID|1", 9), b"ID");
        assert_eq!(header_field(b"MSH|^~\\&|a\rPID|1|2|3|4|5|6|7|8|9|10|11", 9), b"");
        assert_eq!(header_field(b"", 9), b"");
    }
}
