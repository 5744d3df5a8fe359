//! The client: an export of any NBD server becomes a [`Device`].
//!
//! ```text
//!   callers     read, write, flush, submit          on their own threads
//!                  |           ^
//!   mailbox        v           | results
//!   driver      one thread: connection, clock, connecting again           dial, driver
//!   engine      jobs, copies of what is unflushed, replies (pure)         engine, job, receiving, unflushed
//!                  |           ^
//!                  v           |
//!               unix socket, TCP, TLS
//! ```
//!
//! Requests are pipelined over one connection; no request has a thread. Blocks of the server that are larger than the device's are read,
//! changed and written as a whole. A connection that is lost, or a server that does not answer, is replaced: the acknowledged writes that
//! no flush has covered are sent first, since the server may have crashed and lost them, then what was on the wire, then what is new.
//!
//! Invariants:
//! * A flush that returned `Ok` was confirmed on a connection that held every write that had completed before it was called.
//! * The first change that fails poisons the device, and so does a request that waited for a connection longer than `reconnect_for`.
//! * An export that is another one after a new connection (smaller, other flags), or whose epoch is over, ends the device.
//! * A server can make the device fail or wait; it cannot make it panic, or take memory without bound.
//!
//! Left out: several connections for one device; TRIM (it does not promise zeros, so a discard is a request for zeros); changes of
//! the size. A request of a lost connection that a slow server still carries out could come after a newer one: this project's server ends
//! the sessions that a client had before it opens another one; other servers have that gap.

mod dial;
mod driver;
mod engine;
#[cfg(test)]
mod engine_tests;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod job;
mod mailbox;
mod options;
mod receiving;
mod status;
mod unflushed;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{AlignedBuffer, Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink, Operation};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Builder;

use self::dial::{Dialer, Link};
use self::driver::{ClientShared, Driver};
use self::engine::{Bounds, Engine, Persistence};
use self::job::{ExtentsWaiter, Job};
use self::mailbox::{Post, RaiseOrder};
use crate::error::NbdError;
use crate::protocol::asking::Opened;
use crate::protocol::status::{STATUS_HOLE, STATUS_ZERO};
use crate::protocol::{ExportFacts, export_flag};

pub use self::options::ClientOptions;
pub use self::status::ClientStatus;

/// Bytes of one request of a call that waits: its buffer is a copy of the caller's.
const CALL_BYTES: usize = 8 << 20;

/// Bytes of one request for extents.
const EXTENTS_BYTES: u64 = 1 << 30;

/// An export of a server as a device. It ends its session when it is dropped.
///
/// `block_bytes` is 4,096, or the largest power of two that divides the size. `durability` is [`Durability::Emulated`] where the server
/// has flush or FUA, since what is below the server is not known here, and [`Durability::None`] otherwise.
pub struct NbdDevice {
    name: String,
    facts: ExportFacts,
    block: u32,
    persistence: Persistence,
    has_extents: bool,
    shared: Arc<ClientShared>,
}

impl fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdDevice").field("name", &self.name).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl NbdDevice {
    /// Opens the export in one attempt, and flushes it unless it is read-only: what it shows is persistent, as far as the server says.
    ///
    /// # Errors
    /// [`NbdError::Address`], [`NbdError::Tls`], [`NbdError::Connect`], [`NbdError::Refused`], [`NbdError::Superseded`],
    /// [`NbdError::NotADevice`], [`NbdError::Thread`].
    pub fn connect(options: ClientOptions) -> Result<Arc<NbdDevice>, NbdError> {
        let (name, epoch) = options.target()?;
        let dialer = Arc::new(Dialer::new(&options, name)?);
        let address = dialer.address.clone();
        let shared = Arc::new(ClientShared::default());
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        let runtime = runtime.map_err(NbdError::Thread)?;
        let (tell, told) = std::sync::mpsc::channel();
        let (inside, on_panic) = (Arc::clone(&shared), Arc::clone(&shared));
        let work = move || {
            let link = match runtime.block_on(dialer.dial(epoch)) {
                Ok(link) => link,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let first = link.opened.clone();
            if tell.send(Ok(first.clone())).is_ok() {
                let driver = driver(&options, dialer, inside, first, epoch);
                runtime.block_on(run(driver, link));
            }
            // A lookup of a host's name may still be in a thread of the runtime.
            runtime.shutdown_background();
        };
        let panicked = move |why: &str| {
            tracing::error!(why, "the client of an export ended");
            on_panic.board.rare.lock().poisoned = Some(why.to_owned());
            on_panic.mailbox.end();
        };
        device::supervise::thread("nbd-client", work, panicked).map_err(NbdError::Thread)?;
        let opened: Opened = told.recv().unwrap_or(Err(NbdError::Ended))?;
        let device = NbdDevice {
            name: address,
            block: device_block(&opened),
            persistence: Persistence::of(&opened),
            has_extents: opened.allocation.is_some(),
            facts: opened.facts,
            shared,
        };
        if !device.is_read_only() {
            device
                .flush()
                .map_err(|error| NbdError::NotADevice { address: device.name.clone(), problem: error.to_string() })?;
        }
        Ok(Arc::new(device))
    }

    /// Opens the export again under a higher epoch. When this returns `Ok`, the server has kept the epoch durably, refuses every lower
    /// one, also after its crash, and nothing of an older session reaches the device any more. The epoch that is in force already is
    /// `Ok` too.
    ///
    /// # Errors
    /// [`NbdError::Superseded`]: a higher one is in force, and the device is poisoned if that is the server's answer;
    /// [`NbdError::Unfenced`]; [`NbdError::Refused`]: nothing changed; [`NbdError::Connect`]: not reached in `reconnect_for`, and the
    /// device goes on trying under the higher epoch; [`NbdError::Ended`].
    pub fn raise(&self, epoch: u64) -> Result<(), NbdError> {
        let (order, answer) = RaiseOrder::new(epoch);
        self.shared.mailbox.put_raise(order);
        answer.wait()
    }

    /// Whether the server confirmed, on the present or the last connection, that it enforces the epoch under which it is open.
    pub fn is_fenced(&self) -> bool {
        self.shared.board.fenced.load(Ordering::Relaxed)
    }

    /// What the server stated about the export when it was opened: size, flags, block sizes.
    pub fn facts(&self) -> &ExportFacts {
        &self.facts
    }

    /// The state of the connection.
    pub fn status(&self) -> ClientStatus {
        self.shared.board.read()
    }

    fn is_read_only(&self) -> bool {
        self.facts.has(export_flag::READ_ONLY)
    }

    fn check(&self, offset: u64, bytes: u64) {
        let block = u64::from(self.block);
        assert!(offset & (block - 1) == 0, "offset {offset} is not a multiple of {block}");
        assert!(bytes & (block - 1) == 0, "length {bytes} is not a multiple of {block}");
        let len = self.len();
        assert!(offset <= len && bytes <= len - offset, "range {offset}+{bytes} does not lie inside {len} bytes");
    }

    /// Why a request is not sent at all.
    fn refusal(&self, kind: IoKind) -> Option<DeviceError> {
        let operation = match kind {
            IoKind::Read => return None,
            IoKind::Write | IoKind::WriteFlush | IoKind::WriteZeroes { .. } => Operation::Write,
            IoKind::Flush => Operation::Flush,
            IoKind::Discard => Operation::Discard,
        };
        if self.is_read_only() {
            return Some(DeviceError::ReadOnly { operation, name: self.name.clone() });
        }
        let is_unsupported = kind == IoKind::Discard && !self.facts.has(export_flag::WRITE_ZEROES);
        is_unsupported.then(|| DeviceError::Unsupported { operation, name: self.name.clone() })
    }

    /// Does a request, and waits for it.
    fn call(&self, request: IoRequest) -> (IoRequest, Result<(), DeviceError>) {
        let waiter = Arc::new(CallWaiter::default());
        self.shared.mailbox.put_job(Job::of_request(request, Arc::clone(&waiter) as Arc<dyn IoSink>, true));
        waiter.wait()
    }

    fn change(&self, kind: IoKind, offset: u64, bytes: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, bytes);
        if let Some(error) = self.refusal(kind) {
            return Err(error);
        }
        if bytes == 0 && kind != IoKind::Flush {
            return Ok(());
        }
        self.call(IoRequest { kind, offset, bytes, buffer: data.into(), token: 0 }).1
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.shared.mailbox.close();
    }
}

/// The device's own block.
fn device_block(opened: &Opened) -> u32 {
    let most = device::BLOCK_BYTES as u64;
    most.min(1 << opened.facts.bytes.trailing_zeros().min(63)) as u32
}

fn driver(
    options: &ClientOptions,
    dialer: Arc<Dialer>,
    shared: Arc<ClientShared>,
    first: Opened,
    epoch: Option<u64>,
) -> Driver {
    let block = u64::from(device_block(&first));
    let engine = Engine::new(&dialer.address, block, Persistence::of(&first), Bounds::of(options));
    let patience = options.reconnect_for;
    Driver { shared, dialer, engine, first, epoch, post: Post::default(), raising: None, patience }
}

async fn run(driver: Driver, link: Link) {
    driver.run(link).await;
}

/// Waits for one request.
#[derive(Default)]
struct CallWaiter {
    result: Mutex<Option<(IoRequest, Result<(), DeviceError>)>>,
    done: Condvar,
}

impl CallWaiter {
    fn wait(&self) -> (IoRequest, Result<(), DeviceError>) {
        let mut result = self.result.lock();
        loop {
            match result.take() {
                Some(result) => return result,
                None => self.done.wait(&mut result),
            }
        }
    }
}

impl IoSink for CallWaiter {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        *self.result.lock() = Some((request, result));
        self.done.notify_one();
    }
}

impl Device for NbdDevice {
    fn len(&self) -> u64 {
        self.facts.bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, buffer.len() as u64);
        let mut at = offset;
        for piece in buffer.chunks_mut(CALL_BYTES) {
            let (request, result) = self.call(IoRequest::read(at, AlignedBuffer::zeroed(piece.len()), 0));
            result?;
            piece.copy_from_slice(&request.buffer);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, data.len() as u64);
        for (number, piece) in data.chunks(CALL_BYTES).enumerate() {
            let at = offset + (number * CALL_BYTES) as u64;
            self.change(IoKind::Write, at, piece.len() as u64, piece)?;
        }
        if data.is_empty() { self.change(IoKind::Write, offset, 0, &[]) } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.change(IoKind::Flush, 0, 0, &[])
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        if (1..=CALL_BYTES).contains(&data.len()) {
            return self.change(IoKind::WriteFlush, offset, data.len() as u64, data);
        }
        self.write(offset, data)?;
        self.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.change(IoKind::Discard, offset, bytes, &[])
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.change(IoKind::WriteZeroes { free }, offset, bytes, &[])
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.check(offset, bytes);
        if !self.has_extents {
            return Ok(vec![Extent { bytes, has_space: true }]);
        }
        let mut extents: Vec<Extent> = Vec::new();
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let waiter = Arc::new(ExtentsWaiter::default());
            let length = (end - at).min(EXTENTS_BYTES);
            self.shared.mailbox.put_job(Job::extents(at, length, Arc::clone(&waiter)));
            // The server rounded the range to its blocks, and says as much of it as it likes: at least one byte.
            let mut skip = at & u64::from(self.facts.min_block - 1);
            let before = at;
            for descriptor in waiter.wait()? {
                let skipped = skip.min(descriptor.bytes.into());
                skip -= skipped;
                let bytes = (u64::from(descriptor.bytes) - skipped).min(before + length - at);
                let has_space = descriptor.status & (STATUS_HOLE | STATUS_ZERO) != STATUS_HOLE | STATUS_ZERO;
                append(&mut extents, Extent { bytes, has_space });
                at += bytes;
            }
            if at == before {
                append(&mut extents, Extent { bytes: length, has_space: true });
                at += length;
            }
        }
        Ok(whole_blocks(&extents, u64::from(self.block)))
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let jobs: Vec<Job> = batch
            .drain(..)
            .filter_map(|request| {
                self.check(request.offset, request.bytes);
                let is_empty =
                    request.bytes == 0 && request.kind != IoKind::Flush && request.kind != IoKind::WriteFlush;
                match self.refusal(request.kind) {
                    Some(error) => sink.complete(request, Err(error)),
                    None if is_empty => sink.complete(request, Ok(())),
                    None => return Some(Job::of_request(flush_of_nothing(request), Arc::clone(sink), false)),
                }
                None
            })
            .collect();
        if !jobs.is_empty() {
            self.shared.mailbox.put_jobs(jobs.into_iter());
        }
    }

    fn durability(&self) -> Durability {
        match self.persistence {
            Persistence::Nothing => Durability::None,
            Persistence::Flush { .. } | Persistence::Fua => Durability::Emulated,
        }
    }
}

/// A write of nothing that is flushed is a flush.
fn flush_of_nothing(mut request: IoRequest) -> IoRequest {
    if request.kind == IoKind::WriteFlush && request.bytes == 0 {
        request.kind = IoKind::Flush;
    }
    request
}

/// Extents of whole blocks: a block that has space in part has space. The range begins and ends with a block.
fn whole_blocks(extents: &[Extent], block: u64) -> Vec<Extent> {
    let mut whole = Vec::new();
    let (mut at, mut done) = (0, 0);
    for extent in extents {
        let (from, to) = (at, at + extent.bytes);
        at = to;
        let (first, last) = (from.next_multiple_of(block), to & !(block - 1));
        if !extent.has_space && first < last {
            append(&mut whole, Extent { bytes: first - done, has_space: true });
            append(&mut whole, Extent { bytes: last - first, has_space: false });
            done = last;
        }
    }
    append(&mut whole, Extent { bytes: at - done, has_space: true });
    whole
}

/// Adds an extent; neighbours that are alike are one.
fn append(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        _ if extent.bytes == 0 => {}
        Some(last) if last.has_space == extent.has_space => last.bytes += extent.bytes,
        _ => extents.push(extent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_has_space_in_part_has_space() {
        let extents = |text: &str| -> Vec<Extent> {
            let extent =
                |word: &str| Extent { bytes: word[1..].parse().expect("a number"), has_space: &word[..1] == "d" };
            text.split_whitespace().map(extent).collect()
        };
        for (given, expected) in [
            ("", ""),
            ("d16", "d16"),
            ("h16", "h16"),
            ("d1 h15", "d8 h8"),
            ("h15 d1", "h8 d8"),
            ("h12 d2 h18", "h8 d8 h16"),
            ("d8 h4 d4", "d16"),
            ("h8 d8 h8", "h8 d8 h8"),
        ] {
            assert_eq!(whole_blocks(&extents(given), 8), extents(expected), "{given}");
        }
    }
}
