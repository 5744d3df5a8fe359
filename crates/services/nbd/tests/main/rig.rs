//! A server on a unix socket and on TCP, and a device that records what reaches it, can hold requests back, and has
//! holes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink, MemoryShelf, Shelf};
use nbd::{Export, NbdError, NbdServer, ServerOptions};
use node::{Admission, Descriptors};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::client::{self, Client, PATIENCE};

pub(crate) const BLOCK: u64 = 4096;

/// A device of zeros.
pub(crate) fn memory(bytes: u64) -> Arc<dyn Device> {
    MemoryShelf::new().create("disk", bytes).expect("memory")
}

/// Waits until something is true.
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a future of the server's.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(work)
}

/// A running server. A panic inside it fails the test.
pub(crate) struct Rig {
    server: Option<NbdServer>,
    pub(crate) unix: PathBuf,
    pub(crate) tcp: SocketAddr,
    failures: Arc<Mutex<Vec<String>>>,
    _folder: TempDir,
}

impl Rig {
    /// With the exports, and otherwise as it comes.
    pub(crate) fn new(exports: impl IntoIterator<Item = Export>) -> Rig {
        Rig::with(ServerOptions { workers: 2, ..ServerOptions::default() }, exports)
    }

    pub(crate) fn with(options: ServerOptions, exports: impl IntoIterator<Item = Export>) -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let failures = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&failures);
        let admission = Admission::new(Descriptors::raise().expect("descriptors"), 0);
        let server =
            NbdServer::start(options, &admission, move |why| told.lock().push(why.to_owned())).expect("starts");
        exports.into_iter().for_each(|export| server.add(export).expect("a new name"));
        let unix = folder.path().join("nbd.sock");
        server.listen_unix(&unix).expect("listens");
        let tcp = server.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
        Rig { server: Some(server), unix, tcp, failures, _folder: folder }
    }

    /// With one export `disk`.
    pub(crate) fn of(device: Arc<dyn Device>) -> Rig {
        Rig::new([Export::new("disk", device)])
    }

    /// A session over the unix socket with simple replies.
    pub(crate) fn simple(&self, name: &str) -> Client {
        Client::open(client::unix(&self.unix), name, None)
    }

    /// A session over TCP with structured replies and block status.
    pub(crate) fn structured(&self, name: &str) -> Client {
        Client::open(client::tcp(self.tcp), name, Some(&["base:allocation"]))
    }

    /// One of each.
    pub(crate) fn both(&self, name: &str) -> [(&'static str, Client); 2] {
        [("simple, unix", self.simple(name)), ("structured, TCP", self.structured(name))]
    }

    pub(crate) fn server(&self) -> &NbdServer {
        self.server.as_ref().expect("it runs")
    }

    /// Stops the server.
    pub(crate) async fn stop(&mut self, patience: Duration) -> Result<(), NbdError> {
        self.server.take().expect("it runs").stop(patience).await
    }

    pub(crate) fn sessions(&self) -> usize {
        self.server().status().iter().map(|status| status.sessions).sum()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(*self.failures.lock(), [""; 0], "the server panicked");
        }
    }
}

/// What reached a device: kind, offset, bytes.
pub(crate) type Seen = (IoKind, u64, u64);

/// A device that records, holds back, and knows which of its blocks were written.
#[derive(Debug)]
pub(crate) struct Probe {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    has_space: Vec<bool>,
    /// Requests that are held back; `None`: nothing is.
    held: Option<Vec<(IoRequest, Arc<dyn IoSink>)>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("seen", &self.seen.len()).finish_non_exhaustive()
    }
}

impl Probe {
    pub(crate) fn new(bytes: u64) -> Arc<Probe> {
        Probe::around(memory(bytes))
    }

    pub(crate) fn around(inner: Arc<dyn Device>) -> Arc<Probe> {
        let has_space = vec![false; (inner.len() / BLOCK) as usize];
        Arc::new(Probe { inner, state: Mutex::new(State { has_space, ..State::default() }) })
    }

    /// What reached it since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.lock().seen)
    }

    /// Holds every request back from now on.
    pub(crate) fn hold(&self) {
        self.state.lock().held = Some(Vec::new());
    }

    /// Waits until so many requests are held back.
    pub(crate) fn wait_for(&self, count: usize) {
        let held = || self.state.lock().held.as_ref().map_or(0, Vec::len);
        until(&format!("{count} requests in the device"), || held() >= count);
        assert_eq!(held(), count);
    }

    /// Does what was held back, the last first, and holds nothing back any more.
    pub(crate) fn release(&self) {
        let held = self.state.lock().held.take().expect("it holds requests back");
        for (mut request, sink) in held.into_iter().rev() {
            let result = request.perform(self);
            sink.complete(request, result);
        }
    }

    fn note(&self, kind: IoKind, offset: u64, bytes: u64) {
        let mut state = self.state.lock();
        state.seen.push((kind, offset, bytes));
        let has_space = match kind {
            IoKind::Read | IoKind::Flush => return,
            IoKind::Write | IoKind::WriteFlush => true,
            IoKind::Discard => false,
            IoKind::WriteZeroes { free } => !free,
        };
        state.has_space[(offset / BLOCK) as usize..((offset + bytes) / BLOCK) as usize].fill(has_space);
    }
}

impl Device for Probe {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.note(IoKind::Read, offset, buffer.len() as u64);
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.note(IoKind::Write, offset, data.len() as u64);
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.note(IoKind::Flush, 0, 0);
        self.inner.flush()
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.note(IoKind::WriteFlush, offset, data.len() as u64);
        self.inner.write_flush(offset, data)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.note(IoKind::Discard, offset, bytes);
        self.inner.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.note(IoKind::WriteZeroes { free }, offset, bytes);
        self.inner.write_zeroes(offset, bytes, free)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        let state = self.state.lock();
        let blocks = &state.has_space[(offset / BLOCK) as usize..((offset + bytes) / BLOCK) as usize];
        Ok(blocks.iter().map(|has_space| Extent { bytes: BLOCK, has_space: *has_space }).collect())
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        if let Some(held) = &mut self.state.lock().held {
            return held.extend(batch.drain(..).map(|request| (request, Arc::clone(sink))));
        }
        device::contract::submit_in_turn(self, batch, sink);
    }

    fn durability(&self) -> Durability {
        Durability::None
    }
}
