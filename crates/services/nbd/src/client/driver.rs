//! The loop of a client on a thread of its own: the connection, the clock and the callers around the [`Engine`].
//!
//! ```text
//!            +--------------- lost, raise ----------------+
//!            v                                            |
//!   dialing (again and again, slower each time) ---> serving ---> closed (the device was dropped)
//!            |                                            |
//!            +-----> dead: everything is refused <--------+
//! ```

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt, ReadBuf};
use tokio::time::Sleep;

use super::dial::{Dialer, Link, is_same};
use super::engine::{Due, Engine};
use super::mailbox::{ClientMailbox, Post, RaiseOrder};
use super::status::StatusBoard;
use crate::error::NbdError;
use crate::protocol::asking::{AskingError, Opened, Refusal};
use crate::protocol::command;
use crate::protocol::reply::SMALL_PAYLOAD_BYTES_MAX;
use crate::protocol::request::Request;
use crate::socket::Carrier;

/// Bytes that are received at a time.
const INPUT_BYTES: usize = 256 << 10;

/// The most that is kept of bytes that cannot be used yet.
const INPUT_BYTES_MAX: usize = SMALL_PAYLOAD_BYTES_MAX + INPUT_BYTES;

/// Waiting time behind the first attempt to connect that fails, and behind each one after many.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// How long the last bytes to a server may take.
const GOODBYE_TIME: Duration = Duration::from_millis(200);

/// What callers and the loop share.
#[derive(Default)]
pub(super) struct ClientShared {
    pub(super) mailbox: ClientMailbox,
    pub(super) board: StatusBoard,
}

/// How a connection, or an attempt to make one, ended.
enum Ended {
    /// It is lost.
    Lost(String),
    /// A higher epoch was ordered.
    Raise(RaiseOrder),
    /// The device was dropped.
    Closed,
    /// No connection is made any more.
    Dead(String),
}

/// See the head comment of this module.
pub(super) struct Driver {
    pub(super) shared: Arc<ClientShared>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) engine: Engine,
    /// What the export was when the device was made.
    pub(super) first: Opened,
    pub(super) epoch: Option<u64>,
    pub(super) post: Post,
    pub(super) raising: Option<Raising>,
    /// How long an order may take to reach the server.
    pub(super) patience: Duration,
}

/// An order in progress.
pub(super) struct Raising {
    order: RaiseOrder,
    /// The epoch before it.
    before: Option<u64>,
    until: Instant,
}

/// Buffers of one connection.
struct Wires {
    stream: Box<dyn Carrier>,
    input: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
    sent: usize,
    must_flush: bool,
}

impl Driver {
    /// Runs until the device was dropped.
    pub(super) async fn run(mut self, first: Link) {
        let mut link = Some(first);
        loop {
            let ended = match link.take() {
                Some(made) => self.serve(made).await,
                None => match self.redial().await {
                    Ok(made) => {
                        self.change(|status| status.reconnects += 1);
                        link = Some(made);
                        continue;
                    }
                    Err(ended) => ended,
                },
            };
            match ended {
                Ended::Lost(why) => {
                    tracing::warn!(address = self.dialer.address, why, "the connection is lost");
                    self.lose(&why);
                }
                Ended::Raise(order) => {
                    self.lose("a higher epoch was ordered");
                    let before = self.raising.take().map_or(self.epoch, |raising| raising.before);
                    self.epoch = Some(order.epoch);
                    self.raising = Some(Raising { order, before, until: Instant::now() + self.patience });
                }
                Ended::Dead(why) => {
                    tracing::error!(address = self.dialer.address, why, "the device is given up");
                    self.engine.end(&why);
                }
                Ended::Closed => break,
            }
            self.publish();
            if self.engine.is_dead() {
                self.refuse_all().await;
                break;
            }
        }
        self.engine.deliver();
        self.shared.mailbox.end();
    }

    fn lose(&mut self, why: &str) {
        self.change(|status| {
            status.connected = false;
            status.last_error = Some(why.to_owned());
        });
        self.engine.lost(why, Instant::now());
    }

    fn change(&self, change: impl FnOnce(&mut super::status::ClientStatus)) {
        change(&mut self.shared.board.rare.lock());
    }

    /// Shows callers the state, then gives them their results: who has one sees what it did.
    fn publish(&mut self) {
        let board = &self.shared.board;
        board.in_flight.store(self.engine.jobs(), Ordering::Relaxed);
        board.unflushed.store(self.engine.unflushed_bytes(), Ordering::Relaxed);
        board.latency_nanos.store(self.engine.latency().as_nanos() as u64, Ordering::Relaxed);
        let is_connected = self.engine.is_settled();
        let mut rare = board.rare.lock();
        rare.connected = is_connected;
        if rare.poisoned.is_none() {
            rare.poisoned = self.engine.poisoned().map(str::to_owned);
        }
        drop(rare);
        self.engine.deliver();
    }

    /// Answers everything with errors until the device was dropped.
    async fn refuse_all(&mut self) {
        self.raising = None;
        poll_fn(|context| {
            loop {
                let has_new = self.take_post(context);
                self.post.raise.clear();
                self.publish();
                if self.post.is_closed {
                    return Poll::Ready(());
                }
                if !has_new {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Passes new jobs to the engine.
    fn take_post(&mut self, context: &Context<'_>) -> bool {
        let has_new = self.shared.mailbox.take(&mut self.post, context);
        if has_new {
            device::supervise::rehearse("nbd-client");
            let now = Instant::now();
            for job in self.post.jobs.drain(..) {
                self.engine.push(job, now);
            }
        }
        has_new
    }

    /// The order to raise the epoch, if it is one that has to be carried out.
    fn next_order(&mut self) -> Option<RaiseOrder> {
        let is_fenced = self.shared.board.fenced.load(Ordering::Relaxed);
        while let Some(order) = self.post.raise.pop() {
            match self.epoch {
                Some(_) if !is_fenced => order.finish(Err(NbdError::Unfenced { address: self.dialer.address.clone() })),
                Some(now) if now > order.epoch => {
                    let text = format!("epoch {} is over: it is {now}", order.epoch);
                    let (address, epoch) = (self.dialer.address.clone(), order.epoch);
                    order.finish(Err(NbdError::Superseded { address, epoch, text }));
                }
                Some(now) if now == order.epoch && self.engine.is_settled() => order.finish(Ok(())),
                _ => return Some(order),
            }
        }
        None
    }

    /// Serves callers over a connection until it ends.
    async fn serve(&mut self, link: Link) -> Ended {
        let Link { stream, opened, rest, place } = link;
        self.engine.connected(&opened);
        self.shared.board.fenced.store(opened.facts.has_epochs && self.epoch.is_some(), Ordering::Relaxed);
        let epoch = self.epoch;
        self.change(|status| status.epoch = epoch);
        self.publish();
        if let Some(Raising { order, .. }) = self.raising.take() {
            let address = self.dialer.address.clone();
            order.finish(if opened.facts.has_epochs { Ok(()) } else { Err(NbdError::Unfenced { address }) });
        }
        let filled = rest.len();
        let mut input = rest;
        input.resize(INPUT_BYTES.max(filled), 0);
        // Listed until the stream is gone.
        let _place = place;
        let mut wires = Wires { stream, input, filled, out: Vec::new(), sent: 0, must_flush: false };
        let mut alarm = Alarm::new();
        let ended = poll_fn(|context| self.poll_serve(context, &mut wires, &mut alarm)).await;
        if matches!(ended, Ended::Closed) {
            let goodbye = Request { command: command::DISCONNECT, ..Request::default() }.encode();
            let say = async {
                wires.stream.write_all(&goodbye).await?;
                wires.stream.shutdown().await
            };
            let _ = tokio::time::timeout(GOODBYE_TIME, say).await;
        }
        ended
    }

    fn poll_serve(&mut self, context: &mut Context<'_>, wires: &mut Wires, alarm: &mut Alarm) -> Poll<Ended> {
        loop {
            let mut has_moved = self.take_post(context);
            if let Some(order) = self.next_order() {
                return Poll::Ready(Ended::Raise(order));
            }
            if self.engine.has_results() {
                self.publish();
            }
            if self.post.is_closed && self.engine.jobs() == 0 {
                return Poll::Ready(Ended::Closed);
            }
            let now = Instant::now();
            for moved in [self.poll_send(context, wires, now), self.poll_receive(context, wires, now)] {
                match moved {
                    Ok(moved) => has_moved |= moved,
                    Err(why) => return Poll::Ready(Ended::Lost(why)),
                }
            }
            if self.engine.is_dead() {
                return Poll::Ready(Ended::Dead("an acknowledged write could not be sent again".to_owned()));
            }
            match self.engine.due(now) {
                Some(Due::Cut) => return Poll::Ready(Ended::Lost("the server does not answer in time".to_owned())),
                Some(Due::End) => return Poll::Ready(Ended::Dead(self.given_up())),
                None => {}
            }
            if !has_moved && alarm.poll_set(context, self.engine.deadline()).is_pending() {
                self.publish();
                return Poll::Pending;
            }
        }
    }

    fn given_up(&self) -> String {
        let last = self.shared.board.rare.lock().last_error.clone();
        format!("requests waited too long for a connection: {}", last.unwrap_or_default())
    }

    fn poll_send(&mut self, context: &mut Context<'_>, wires: &mut Wires, now: Instant) -> Result<bool, String> {
        let mut has_moved = false;
        loop {
            if wires.sent == wires.out.len() {
                wires.out.clear();
                wires.sent = 0;
                self.engine.emit(&mut wires.out, now);
                if wires.out.is_empty() {
                    break;
                }
            }
            match Pin::new(&mut *wires.stream).poll_write(context, &wires.out[wires.sent..]) {
                Poll::Ready(Ok(count)) if count > 0 => wires.sent += count,
                Poll::Ready(Ok(_)) => return Err("the connection takes no bytes".to_owned()),
                Poll::Ready(Err(error)) => return Err(lost(&error)),
                Poll::Pending => break,
            }
            (has_moved, wires.must_flush) = (true, true);
        }
        if wires.must_flush {
            match Pin::new(&mut *wires.stream).poll_flush(context) {
                Poll::Ready(Ok(())) => wires.must_flush = false,
                Poll::Ready(Err(error)) => return Err(lost(&error)),
                Poll::Pending => {}
            }
        }
        Ok(has_moved)
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, wires: &mut Wires, now: Instant) -> Result<bool, String> {
        let mut space = ReadBuf::new(&mut wires.input[wires.filled..]);
        let count = match Pin::new(&mut *wires.stream).poll_read(context, &mut space) {
            Poll::Pending if wires.filled == 0 => return Ok(false),
            // Bytes behind the negotiation, or of half a reply.
            Poll::Pending => 0,
            Poll::Ready(Err(error)) => return Err(lost(&error)),
            Poll::Ready(Ok(())) if space.filled().is_empty() => {
                return Err("the server ended the connection".to_owned());
            }
            Poll::Ready(Ok(())) => space.filled().len(),
        };
        wires.filled += count;
        let used = self.engine.receive(&wires.input[..wires.filled], now)?;
        wires.input.copy_within(used..wires.filled, 0);
        wires.filled -= used;
        if wires.filled == wires.input.len() {
            let more = (wires.input.len() * 2).min(INPUT_BYTES_MAX);
            if more == wires.input.len() {
                return Err("a reply that is too long".to_owned());
            }
            wires.input.resize(more, 0);
        }
        Ok(count > 0 || used > 0)
    }

    /// Connects again, however often that takes.
    async fn redial(&mut self) -> Result<Link, Ended> {
        let mut pause = BACKOFF.0;
        loop {
            let (dialer, epoch) = (Arc::clone(&self.dialer), self.epoch);
            let attempt = self.attend(async move { dialer.dial(epoch).await }).await?;
            let error = match attempt {
                Ok(link) => match is_same(&self.first, &link.opened) {
                    Ok(()) => return Ok(link),
                    Err(problem) => self.dialer.unusable(problem),
                },
                Err(error) => error,
            };
            let text = error.to_string();
            self.change(|status| status.last_error = Some(text));
            self.judge(error)?;
            self.attend(tokio::time::sleep(pause)).await?;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Whether another attempt may succeed.
    fn judge(&mut self, error: NbdError) -> Result<(), Ended> {
        if let NbdError::Superseded { .. } = &error {
            self.change(|status| status.superseded = true);
            let text = error.to_string();
            if let Some(raising) = self.raising.take() {
                raising.order.finish(Err(error));
            }
            return Err(Ended::Dead(text));
        }
        let is_final = matches!(error, NbdError::NotADevice { .. });
        let Some(raising) = self.raising.take() else {
            return if is_final { Err(Ended::Dead(error.to_string())) } else { Ok(()) };
        };
        let is_refused = match &error {
            NbdError::Refused { source: AskingError::Refused { kind, text }, .. } => {
                // Requests of the owner before are still in its device.
                *kind != Refusal::Shutdown && !text.contains("try again")
            }
            _ => is_final,
        };
        if is_refused {
            // Nothing was raised: the epoch before is still in force, or the server says that it is not.
            self.epoch = raising.before;
            raising.order.finish(Err(error));
        } else if raising.until <= Instant::now() {
            // The server may have kept the higher epoch: there is no way back.
            raising.order.finish(Err(error));
        } else {
            self.raising = Some(raising);
        }
        Ok(())
    }

    /// Does something while callers and the clock are attended to.
    async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Ended> {
        let mut work = pin!(work);
        let mut alarm = Alarm::new();
        poll_fn(|context| {
            loop {
                self.take_post(context);
                if self.post.is_closed {
                    return Poll::Ready(Err(Ended::Closed));
                }
                if let Some(order) = self.next_order() {
                    return Poll::Ready(Err(Ended::Raise(order)));
                }
                if self.engine.due(Instant::now()) == Some(Due::End) {
                    return Poll::Ready(Err(Ended::Dead(self.given_up())));
                }
                if let Poll::Ready(done) = work.as_mut().poll(context) {
                    return Poll::Ready(Ok(done));
                }
                self.publish();
                ready!(alarm.poll_set(context, self.engine.deadline()));
            }
        })
        .await
    }
}

fn lost(error: &io::Error) -> String {
    format!("the connection failed: {error}")
}

/// A clock that is set rarely: a deadline that moves on is noticed when the old one is over.
struct Alarm {
    sleep: Pin<Box<Sleep>>,
    is_set: bool,
}

impl Alarm {
    fn new() -> Alarm {
        Alarm { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), is_set: false }
    }

    /// Wakes the task at `deadline` or before it; ready when something may be due.
    fn poll_set(&mut self, context: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        let deadline = tokio::time::Instant::from_std(deadline);
        if !self.is_set || deadline < self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
            self.is_set = true;
        }
        ready!(self.sleep.as_mut().poll(context));
        self.is_set = false;
        Poll::Ready(())
    }
}
