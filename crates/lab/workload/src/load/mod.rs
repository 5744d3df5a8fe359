//! The load on a node: sending systems and receiving systems in one thread, over real sockets.
//!
//! ```text
//!  128 senders            node under test              4 receivers
//!  +--------+   MLLP     +---------------+    MLLP    +------------+
//!  | s000   |----------->| service  s000 |            | billing    |
//!  | s001   |----------->|   ...         |----------->| laboratory |
//!  |  ...   |<-- ACK ----|   operations  |            | pharmacy   |
//!  | s127   |            |               |<-- ACK ----| registry   |
//!  +--------+            +---------------+            +------------+
//!       \______________ one thread, epoll (mio), this module _________/
//! ```
//!
//! One thread, because the load shares its cores with the node: it must cost little, not be fast by itself. In the usual
//! case a message costs one write and one read, a delivery one read and one write, and nothing is allocated.
//!
//! Invariants: a sender has one message outstanding; messages are prepared before the clock starts; *every* delivery is
//! compared whole. The parts: `sender` and `receiver` are the connections, `pool` the messages and what should become
//! of them, `account` who got what, `frames` the framing.

mod account;
mod frames;
mod pool;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

pub use account::{Account, Counts};
pub use pool::{Expectation, Pool};

use crate::histogram::Histogram;
use receiver::{Counter, Receiver};
use sender::{Desk, Sender, State};

/// Length of the buffer all sockets are read into: more than the longest generated message.
const BUFFER_BYTES: usize = 256 * 1024;
/// How long a sender that was refused or cut off waits before it tries again.
const RETRY: Duration = Duration::from_millis(20);

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Sending systems, 1 to 1,000.
    pub services: usize,
    /// Messages each sends.
    pub messages: usize,
    /// Receiving systems.
    pub interfaces: usize,
    /// Prepared messages.
    pub bodies: usize,
    /// Seed of the messages.
    pub seed: u64,
    /// How long before a kill a delivery may have come to be delivered again after it. Zero where nothing is killed.
    pub crash_window: Duration,
}

/// When messages are due, where senders do not send as fast as they can.
#[derive(Clone, Copy, Debug)]
struct Pace {
    start: Instant,
    /// Between two messages of one sender.
    interval: Duration,
}

impl Pace {
    /// When message `sequence` of a sender is due.
    fn due(self, sequence: usize) -> Instant {
        self.start + self.interval.mul_f64(sequence as f64)
    }

    /// How many messages of a sender are due by now.
    fn due_by(self, now: Instant) -> usize {
        (now.saturating_duration_since(self.start).as_nanos() / self.interval.as_nanos().max(1)) as usize + 1
    }
}

/// How many messages the senders may have sent by now.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// So many messages each; lowered to end a run early.
    messages: usize,
    pace: Option<Pace>,
}

impl Due {
    /// From when the time of message `sequence` counts that is sent now.
    fn since(self, sequence: usize) -> Instant {
        self.pace.map_or_else(Instant::now, |pace| pace.due(sequence))
    }
}

/// A load in progress. It does nothing but in `step`.
pub struct Load {
    poll: Poll,
    events: Events,
    buffer: Vec<u8>,
    plan: Plan,
    pool: Pool,
    account: Account,
    latency: Histogram,
    senders: Vec<Sender>,
    targets: Vec<SocketAddr>,
    listeners: Vec<TcpListener>,
    receivers: HashMap<Token, Receiver>,
    next_token: usize,
    go: bool,
    pace: Option<Pace>,
    started: Instant,
    dying_since_ms: u64,
    first_byte: Option<Instant>,
    last_delivery: Instant,
    retry_at: Instant,
}

impl Load {
    /// Prepares the messages and opens the receivers' ports on the loopback interface.
    pub fn new(plan: Plan, expectation: Expectation) -> io::Result<Load> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        for interface in 0..plan.interfaces {
            let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            poll.registry().register(&mut listener, Token(plan.services + interface), Interest::READABLE)?;
            listeners.push(listener);
        }
        let now = Instant::now();
        Ok(Load {
            poll,
            events: Events::with_capacity(1024),
            buffer: vec![0; BUFFER_BYTES],
            pool: Pool::new(plan.seed, plan.bodies, plan.interfaces, expectation),
            account: Account::new(plan.services, plan.interfaces, plan.crash_window),
            latency: Histogram::default(),
            senders: (0..plan.services).map(Sender::new).collect(),
            targets: Vec::new(),
            listeners,
            receivers: HashMap::new(),
            next_token: plan.services + plan.interfaces,
            go: false,
            pace: None,
            started: now,
            dying_since_ms: 0,
            first_byte: None,
            last_delivery: now,
            retry_at: now,
            plan,
        })
    }

    /// Where the receivers listen, by interface.
    pub fn receivers(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// The node's services, one address a sender. Connections still open are dropped; new ones are made from the next step on.
    ///
    /// # Panics
    /// If there are not as many as senders.
    pub fn aim(&mut self, targets: Vec<SocketAddr>) {
        assert_eq!(targets.len(), self.plan.services, "one address for each sender");
        self.targets = targets;
        self.senders.iter_mut().for_each(Sender::disconnect);
        self.retry_at = Instant::now();
    }

    /// The node is about to be killed. Senders that are cut off stay so until the next `aim`: once the node is gone, any
    /// process of this machine may get its ports, and would take messages meant for it.
    pub fn node_dies(&mut self) {
        self.targets.clear();
        self.dying_since_ms = self.now_ms();
    }

    /// Lets the senders send; before, they only connect.
    pub fn go(&mut self) {
        self.go = true;
        self.first_byte = Some(Instant::now());
        self.kick();
    }

    /// Lets the senders send so many messages a second together, from now on. The time of a message then counts from
    /// when it was due: a message that waits behind one that takes long is late itself.
    pub fn go_at(&mut self, messages_per_s: f64) {
        let interval = Duration::from_secs_f64(self.plan.services as f64 / messages_per_s);
        self.pace = Some(Pace { start: Instant::now(), interval });
        self.go();
    }

    /// Has the senders that are ready send, if a message of theirs is due.
    fn kick(&mut self) {
        let due = self.due();
        let mut desk = desk(&mut self.pool, &mut self.account, &mut self.latency, &mut self.buffer, due);
        self.senders
            .iter_mut()
            .filter(|sender| sender.state() == State::Ready)
            .for_each(|sender| sender.send(&mut desk));
    }

    /// How many messages of each sender are due, and when each of them was.
    fn due(&self) -> Due {
        let messages = self.pace.map_or(usize::MAX, |pace| pace.due_by(Instant::now()));
        Due { messages: messages.min(self.plan.messages), pace: self.pace }
    }

    /// Ends the sending: each sender finishes the message it has begun.
    pub fn hold(&mut self) {
        self.plan.messages = 0;
    }

    /// The node is dead, and nothing it sent is left in the sockets.
    pub fn node_is_dead(&mut self) {
        self.account.kill(self.dying_since_ms..=self.now_ms());
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Has those cut-off senders give up the message they are in doubt about that `choose` picks.
    pub fn give_up(&mut self, mut choose: impl FnMut() -> bool) {
        for sender in self.senders.iter_mut().filter(|sender| sender.state() == State::Down) {
            if choose() {
                sender.give_up(&mut self.account);
            }
        }
    }

    /// Connections open, in both directions.
    pub fn connections(&self) -> usize {
        self.receivers.len() + self.senders.iter().filter(|sender| sender.state() != State::Down).count()
    }

    /// Senders with a connection.
    pub fn connected(&self) -> usize {
        self.senders.iter().filter(|sender| !matches!(sender.state(), State::Down | State::Connecting)).count()
    }

    /// Whether all senders have sent all of their messages, and all are acknowledged.
    pub fn sending_is_over(&self) -> bool {
        let finished = |(service, sender): (usize, &Sender)| {
            sender.settled() >= self.plan.messages && !self.account.in_doubt(service)
        };
        self.senders.iter().enumerate().all(finished)
    }

    /// Whether the sending is over and everything acknowledged has been delivered.
    pub fn is_over(&self) -> bool {
        self.sending_is_over() && self.account.is_complete()
    }

    /// The account so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Time from send to acknowledgement of the messages so far, in nanoseconds.
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// The same, for the messages acknowledged since the last call.
    pub fn take_latency(&mut self) -> Histogram {
        std::mem::take(&mut self.latency)
    }

    /// From the first byte sent until the last delivery so far was acknowledged.
    pub fn elapsed(&self) -> Duration {
        self.first_byte.map_or(Duration::ZERO, |first| self.last_delivery.saturating_duration_since(first))
    }

    /// Mean length of the messages, in bytes.
    pub fn mean_bytes(&self) -> usize {
        self.pool.mean_bytes()
    }

    /// Waits up to `timeout` for sockets to become ready and handles those that are.
    pub fn step(&mut self, timeout: Duration) -> io::Result<()> {
        self.retry();
        if self.go && self.pace.is_some() {
            self.kick();
        }
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let (now_ms, due) = (self.now_ms(), self.due());
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let token = event.token().0;
            if token < self.plan.services {
                let mut desk = desk(&mut self.pool, &mut self.account, &mut self.latency, &mut self.buffer, due);
                let sender = &mut self.senders[token];
                if event.is_writable() {
                    sender.writable(&mut desk, self.go);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    sender.readable(&mut desk);
                }
            } else if token < self.plan.services + self.plan.interfaces {
                self.accept(token - self.plan.services)?;
            } else {
                self.receive(event.token(), event.is_readable() || event.is_read_closed(), now_ms);
            }
        }
        self.events = events;
        Ok(())
    }

    fn receive(&mut self, token: Token, readable: bool, now_ms: u64) {
        let Some(receiver) = self.receivers.get_mut(&token) else { return };
        let mut goes_on = receiver.writable();
        if goes_on && readable {
            let before = self.account.counts().delivered;
            let mut counter =
                Counter { pool: &self.pool, account: &mut self.account, buffer: &mut self.buffer, now_ms };
            goes_on = receiver.readable(&mut counter);
            if self.account.counts().delivered != before {
                self.last_delivery = Instant::now();
            }
        }
        if !goes_on {
            self.receivers.remove(&token);
        }
    }

    fn accept(&mut self, interface: usize) -> io::Result<()> {
        loop {
            let stream = match self.listeners[interface].accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The peer may have given up before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            let token = Token(self.next_token);
            self.next_token += 1;
            let mut receiver = Receiver::new(interface, stream);
            self.poll.registry().register(receiver.stream(), token, Interest::READABLE | Interest::WRITABLE)?;
            self.receivers.insert(token, receiver);
        }
    }

    /// Connects the senders that are cut off and lets the refused ones try again, every `RETRY`.
    fn retry(&mut self) {
        let now = Instant::now();
        if now < self.retry_at || self.targets.is_empty() {
            return;
        }
        self.retry_at = now + RETRY;
        let due = self.due();
        let mut desk = desk(&mut self.pool, &mut self.account, &mut self.latency, &mut self.buffer, due);
        for (index, sender) in self.senders.iter_mut().enumerate() {
            match sender.state() {
                State::Down => sender.connect(self.targets[index], self.poll.registry(), Token(index)),
                State::Refused => sender.send(&mut desk),
                State::Connecting | State::Ready | State::Waiting(_) => {}
            }
        }
    }
}

fn desk<'a>(
    pool: &'a mut Pool,
    account: &'a mut Account,
    latency: &'a mut Histogram,
    buffer: &'a mut [u8],
    due: Due,
) -> Desk<'a> {
    Desk { pool, account, latency, buffer, due }
}
