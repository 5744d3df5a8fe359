//! One sending system: a connection, one message outstanding, the next when it is acknowledged.
//!
//! ```text
//! Down --connect--> Connecting --> Ready --send--> Waiting --ACK AA--> Ready (next message)
//!   ^                                                 |  \--AE/AR--> Refused --after a pause--> Waiting (same message)
//!   +------------- broken connection -----------------+              the message in doubt is sent again
//! ```
//!
//! A message is sent again until it is acknowledged, as a real sender does, unless the sender is set to give it up.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use memchr::memmem;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::Due;
use super::account::Account;
use super::frames::Frames;
use super::pool::Pool;
use crate::histogram::Histogram;
use crate::messages::control_id;

/// Where a sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Down,
    Connecting,
    Ready,
    Waiting(Instant),
    Refused,
}

/// The state that all senders of a run share.
pub(super) struct Desk<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) account: &'a mut Account,
    pub(super) latency: &'a mut Histogram,
    pub(super) buffer: &'a mut [u8],
    pub(super) due: Due,
}

/// A sending system.
pub(super) struct Sender {
    service: usize,
    stream: Option<TcpStream>,
    state: State,
    /// The message outstanding or next to send.
    sequence: usize,
    frames: Frames,
    unsent: Vec<u8>,
}

impl Sender {
    pub(super) fn new(service: usize) -> Self {
        Sender { service, stream: None, state: State::Down, sequence: 0, frames: Frames::default(), unsent: Vec::new() }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Messages acknowledged or given up.
    pub(super) fn settled(&self) -> usize {
        self.sequence
    }

    /// Goes on to the next message if one is in doubt and the connection is gone.
    pub(super) fn give_up(&mut self, account: &mut Account) {
        if self.state == State::Down && account.in_doubt(self.service) {
            account.give_up(self.service, self.sequence);
            self.sequence += 1;
        }
    }

    /// Starts to connect; a refusal now or later leaves the sender `Down`.
    pub(super) fn connect(&mut self, address: SocketAddr, registry: &Registry, token: Token) {
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        if registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE).is_ok() {
            self.stream = Some(stream);
            self.state = State::Connecting;
        }
    }

    /// The connection is gone; a message without an acknowledgement stays the next to send.
    pub(super) fn disconnect(&mut self) {
        self.stream = None;
        self.state = State::Down;
        self.frames.clear();
        self.unsent.clear();
    }

    /// The socket accepts bytes: the connection is established, or the rest of a message can be sent.
    pub(super) fn writable(&mut self, desk: &mut Desk<'_>, go: bool) {
        let Some(stream) = &mut self.stream else { return };
        if self.state == State::Connecting {
            match stream.peer_addr() {
                Ok(_) if stream.take_error().is_ok_and(|error| error.is_none()) => {}
                Err(error) if error.kind() == ErrorKind::NotConnected && matches!(stream.take_error(), Ok(None)) => {
                    return;
                }
                _ => return self.disconnect(),
            }
            let _ = stream.set_nodelay(true); // only latency depends on it
            self.state = State::Ready;
        }
        if !self.unsent.is_empty() {
            match stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.disconnect(),
            }
        } else if go && self.state == State::Ready {
            self.send(desk);
        }
    }

    /// Sends the next message, or the same again after a refusal or a broken connection.
    pub(super) fn send(&mut self, desk: &mut Desk<'_>) {
        let Some(stream) = &mut self.stream else { return };
        if self.sequence >= desk.due.messages && !desk.account.in_doubt(self.service) {
            self.state = State::Ready;
            return;
        }
        let frame = desk.pool.frame(self.service, self.sequence);
        desk.account.send(self.service, self.sequence);
        self.state = State::Waiting(desk.due.since(self.sequence));
        match stream.write(frame) {
            Ok(count) if count == frame.len() => {}
            Ok(count) => self.unsent.extend_from_slice(&frame[count..]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.unsent.extend_from_slice(frame),
            Err(_) => self.disconnect(),
        }
    }

    /// Bytes have come, or the connection has ended.
    pub(super) fn readable(&mut self, desk: &mut Desk<'_>) {
        loop {
            let Some(stream) = &mut self.stream else { return };
            let count = match stream.read(desk.buffer) {
                Ok(0) => return self.disconnect(),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.disconnect(),
            };
            self.replies(desk, count);
            // A read that did not fill the buffer has emptied the socket: epoll(7), edge triggered, stream sockets.
            if count < desk.buffer.len() {
                return;
            }
        }
    }

    fn replies(&mut self, desk: &mut Desk<'_>, count: usize) {
        let mut frames = std::mem::take(&mut self.frames);
        let mut answers = 0;
        let Desk { account, latency, buffer, .. } = desk;
        let fault = frames.feed(&buffer[..count], |reply| {
            answers += 1;
            match (self.state, verdict(reply, self.service, self.sequence)) {
                (State::Waiting(since), Verdict::Accepted) => {
                    latency.record(since.elapsed().as_nanos() as u64);
                    account.acknowledge(self.service, self.sequence);
                    self.sequence += 1;
                    self.state = State::Ready;
                }
                (State::Waiting(_), Verdict::Refused) => {
                    account.refuse(self.service, self.sequence, reply);
                    self.state = State::Refused;
                }
                _ => account.bad_acknowledgement(self.service, self.sequence, reply),
            }
        });
        self.frames = frames;
        if let Err(fault) = fault {
            let service = self.service;
            desk.account.framing(|| format!("the replies to service {service} are not MLLP: {fault:?}"));
            self.disconnect();
        } else if answers > 0 && self.state == State::Ready {
            self.send(desk);
        }
    }
}

/// The content of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    Refused,
    /// No MSA, another code, or another message's control id.
    Unrelated,
}

/// Reads MSA-1 and MSA-2 of a reply to message `sequence` of `service`.
fn verdict(reply: &[u8], service: usize, sequence: usize) -> Verdict {
    let Some(at) = memmem::find(reply, b"\rMSA|") else { return Verdict::Unrelated };
    let mut fields = reply[at + 5..].split(|byte| matches!(byte, b'|' | b'\r'));
    let (code, id) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    if control_id::read(id) != Some((service, sequence)) {
        return Verdict::Unrelated;
    }
    match code {
        b"AA" => Verdict::Accepted,
        b"AE" | b"AR" => Verdict::Refused,
        _ => Verdict::Unrelated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_aa_with_the_message_s_own_control_id_accepts() {
        for (msa, expected) in [
            ("MSA|AA|T4-001-0000007", Verdict::Accepted),
            ("MSA|AA|T4-001-0000007|all is well", Verdict::Accepted),
            ("MSA|AE|T4-001-0000007|no", Verdict::Refused),
            ("MSA|AR|T4-001-0000007", Verdict::Refused),
            ("MSA|CA|T4-001-0000007", Verdict::Unrelated),
            ("MSA|AA|T4-001-0000006", Verdict::Unrelated),
            ("MSA|AA|T4-002-0000007", Verdict::Unrelated),
            ("MSA|AA|", Verdict::Unrelated),
            ("MSA", Verdict::Unrelated),
            ("ERR|AA|T4-001-0000007", Verdict::Unrelated),
        ] {
            let reply = format!("MSH|^~\\&|A|B|C|D|20260101||ACK|1|P|2.5\r{msa}\r");
            assert_eq!(verdict(reply.as_bytes(), 1, 7), expected, "{msa}");
        }
    }
}
