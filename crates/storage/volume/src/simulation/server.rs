//! The simulated places: a [`Server`] keeps the devices of one copy, a [`Link`] is the way of one owner to it.
//!
//! ```text
//!   owner 7 --- link (up? which term?) ---+
//!                                         +--> server of copy 1: devices, promised term, boot, sectors not flushed
//!   owner 8 --- link (up? which term?) ---+
//! ```
//!
//! A server loses sectors that were not flushed when its power fails, each alone: old, in between, or new. Handles of before are dead
//! then. It refuses handles of a lower term than it has promised, as an export does whose name contains the term.
//!
//! Invariants: everything is decided by the seed; no lock is held while a hook runs, which may use the same server.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{BLOCK_BYTES, Device, DeviceError, Durability, Operation, SECTOR_BYTES, Shelf};
use parking_lot::Mutex;

use crate::options::{Fence, Place};

/// What silently goes wrong with the next write of a block in place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Silent {
    Lost,
    Misdirected,
    Flipped,
}

#[derive(Debug)]
struct Bytes {
    live: Vec<u8>,
    /// Older content of sectors that were written since the last flush.
    older: HashMap<usize, Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct File {
    name: String,
    bytes: Mutex<Bytes>,
}

/// The place of one copy.
#[derive(Debug)]
pub(super) struct Server {
    names: Mutex<BTreeMap<String, Arc<File>>>,
    promised: AtomicU64,
    boot: AtomicU64,
    pub(super) is_up: AtomicBool,
    silent: Mutex<Option<Silent>>,
    /// Blocks in place whose bytes were damaged on purpose.
    pub(super) tainted: Mutex<Vec<u64>>,
}

impl Server {
    pub(super) fn new() -> Arc<Server> {
        Arc::new(Server {
            names: Mutex::default(),
            promised: AtomicU64::new(0),
            boot: AtomicU64::new(1),
            is_up: AtomicBool::new(true),
            silent: Mutex::new(None),
            tainted: Mutex::default(),
        })
    }

    /// The power fails, and is back at once.
    pub(super) fn power_fails(&self, random: &mut fastrand::Rng) {
        self.boot.fetch_add(1, Ordering::SeqCst);
        *self.silent.lock() = None;
        for file in self.names.lock().values() {
            let mut bytes = file.bytes.lock();
            let mut older: Vec<_> = std::mem::take(&mut bytes.older).into_iter().collect();
            older.sort_unstable_by_key(|(sector, _)| *sector);
            for (sector, states) in older {
                let chosen = random.usize(..=states.len());
                if let Some(state) = states.get(chosen) {
                    bytes.live[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(state);
                }
            }
        }
    }

    /// Nothing fails any more.
    pub(super) fn works(&self) {
        self.is_up.store(true, Ordering::SeqCst);
        *self.silent.lock() = None;
    }

    /// The medium is another one, with nothing on it.
    pub(super) fn is_replaced(&self) {
        self.boot.fetch_add(1, Ordering::SeqCst);
        self.names.lock().clear();
        self.tainted.lock().clear();
        self.promised.store(0, Ordering::SeqCst);
    }

    pub(super) fn has_no_copy(&self) -> bool {
        !self.names.lock().contains_key("superblock")
    }

    pub(super) fn next_write_is(&self, silent: Silent) {
        *self.silent.lock() = Some(silent);
    }

    /// Inverts a bit of a block in place.
    pub(super) fn rots(&self, block: u64) {
        let Some(file) = self.names.lock().get("data-0").cloned() else { return };
        file.bytes.lock().live[block as usize * BLOCK_BYTES + 77] ^= 8;
        self.tainted.lock().push(block);
    }

    /// Whether a device has what an owner writes: a tag, 8 bytes, again and again, for half a block.
    pub(super) fn has_content_in_clear(&self) -> bool {
        const HALF: usize = BLOCK_BYTES / 2;
        self.names.lock().values().any(|file| {
            let bytes = file.bytes.lock();
            let (mut same, mut run) = (0, 0);
            bytes.live.windows(9).any(|window| {
                run = if window[0] == window[8] { run + 1 } else { 0 };
                // Zeros, and maps that are full, are no tags.
                same = if window[0] == window[1] { same + 1 } else { 0 };
                run >= HALF - 8 && same < 8
            })
        })
    }

    /// The bytes of a block in place.
    pub(super) fn block(&self, block: u64) -> Vec<u8> {
        let file = self.names.lock().get("data-0").cloned();
        file.map_or_else(Vec::new, |file| {
            file.bytes.lock().live[block as usize * BLOCK_BYTES..][..BLOCK_BYTES].to_vec()
        })
    }
}

/// An owner's process: it may be killed, or interrupted at one of its operations.
pub(super) struct Process {
    pub(super) is_alive: AtomicBool,
    countdown: AtomicU64,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Process {
    pub(super) fn new() -> Arc<Process> {
        Arc::new(Process { is_alive: AtomicBool::new(true), countdown: AtomicU64::new(0), hook: Mutex::default() })
    }

    /// Before its `nth` operation from now on, something else happens.
    pub(super) fn interrupt(&self, nth: u64, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
        self.countdown.store(nth, Ordering::SeqCst);
    }

    fn operation(&self) {
        let left = self.countdown.load(Ordering::SeqCst);
        if left == 0 {
            return;
        }
        self.countdown.store(left - 1, Ordering::SeqCst);
        if left == 1
            && let Some(hook) = { self.hook.lock().take() }
        {
            hook();
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("is_alive", &self.is_alive).finish_non_exhaustive()
    }
}

/// How one operation of a link fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// It was not done.
    Refused,
    /// It was done, and the answer is lost.
    Unanswered,
}

/// The way of one owner to one server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: Arc<Server>,
    process: Arc<Process>,
    pub(super) is_up: AtomicBool,
    term: AtomicU64,
    failure: Mutex<Option<(u64, Failure)>>,
}

impl Link {
    pub(super) fn new(server: Arc<Server>, process: Arc<Process>) -> Arc<Link> {
        let (is_up, term) = (AtomicBool::new(true), AtomicU64::new(0));
        Arc::new(Link { server, process, is_up, term, failure: Mutex::new(None) })
    }

    /// The place that an owner uses through it.
    pub(super) fn place(self: &Arc<Link>) -> Place {
        let shelf: Arc<dyn Shelf> = Arc::new(LinkShelf(self.clone()));
        Place { fence: Some(self.clone()), ..Place::on(shelf) }
    }

    /// The term under which the owner uses it.
    pub(super) fn term(&self) -> u64 {
        self.term.load(Ordering::SeqCst)
    }

    /// The `nth` operation from now on fails.
    pub(super) fn fails(&self, nth: u64, failure: Failure) {
        *self.failure.lock() = Some((nth, failure));
    }

    /// Whether an operation may begin, and whether its answer is lost.
    fn begin(&self, operation: Operation, name: &str) -> Result<bool, DeviceError> {
        self.process.operation();
        if !self.process.is_alive.load(Ordering::SeqCst) {
            return Err(DeviceError::PowerLost);
        }
        if !self.is_up.load(Ordering::SeqCst) || !self.server.is_up.load(Ordering::SeqCst) {
            return Err(failed(operation, name));
        }
        let mut failure = self.failure.lock();
        match &mut *failure {
            Some((1, how)) => {
                let is_refused = matches!(how, Failure::Refused);
                *failure = None;
                if is_refused { Err(failed(operation, name)) } else { Ok(true) }
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn handle(self: &Arc<Link>, file: Arc<File>) -> Arc<dyn Device> {
        let (term, boot) = (self.term.load(Ordering::SeqCst), self.server.boot.load(Ordering::SeqCst));
        Arc::new(Handle { link: self.clone(), file, term, boot, is_poisoned: AtomicBool::new(false) })
    }
}

fn failed(operation: Operation, name: &str) -> DeviceError {
    let source = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    DeviceError::Io { operation, name: name.to_owned(), offset: 0, source }
}

impl Fence for Link {
    fn raise(&self, term: u64) -> Result<(), DeviceError> {
        let is_unanswered = self.begin(Operation::Open, "fence")?;
        if self.server.promised.load(Ordering::SeqCst) > term {
            return Err(failed(Operation::Open, "fence"));
        }
        self.server.promised.store(term, Ordering::SeqCst);
        self.term.store(term, Ordering::SeqCst);
        if is_unanswered { Err(failed(Operation::Open, "fence")) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct LinkShelf(Arc<Link>);

impl LinkShelf {
    /// Changes the names, if the owner still may.
    fn change<T>(
        &self,
        operation: Operation,
        name: &str,
        change: impl FnOnce(&mut BTreeMap<String, Arc<File>>) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let is_unanswered = self.0.begin(operation, name)?;
        if self.0.server.promised.load(Ordering::SeqCst) > self.0.term.load(Ordering::SeqCst) {
            return Err(failed(operation, name));
        }
        let done = change(&mut self.0.server.names.lock())?;
        if is_unanswered { Err(failed(operation, name)) } else { Ok(done) }
    }
}

impl Shelf for LinkShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        let file = self.change(Operation::Create, name, |names| {
            if names.contains_key(name) {
                return Err(DeviceError::AlreadyExists { name: name.to_owned() });
            }
            let bytes = Bytes { live: vec![0; bytes as usize], older: HashMap::new() };
            let file = Arc::new(File { name: name.to_owned(), bytes: Mutex::new(bytes) });
            names.insert(name.to_owned(), file.clone());
            Ok(file)
        })?;
        Ok(self.0.handle(file))
    }

    /// It has space without end.
    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.create(name, bytes)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        let is_unanswered = self.0.begin(Operation::Open, name)?;
        let file = self.0.server.names.lock().get(name).cloned();
        let file = file.ok_or_else(|| DeviceError::NotFound { name: name.to_owned() })?;
        file.bytes.lock().older.clear();
        if is_unanswered { Err(failed(Operation::Open, name)) } else { Ok(self.0.handle(file)) }
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.open(name)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.0.begin(Operation::List, "")?;
        Ok(self.0.server.names.lock().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.change(Operation::Remove, name, |names| {
            names.remove(name).map(drop).ok_or_else(|| DeviceError::NotFound { name: name.to_owned() })
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.change(Operation::Rename, from, |names| {
            if names.contains_key(to) {
                return Err(DeviceError::AlreadyExists { name: to.to_owned() });
            }
            let file = names.remove(from).ok_or_else(|| DeviceError::NotFound { name: from.to_owned() })?;
            names.insert(to.to_owned(), file);
            Ok(())
        })
    }
}

/// A device of a server, opened through a link.
#[derive(Debug)]
struct Handle {
    link: Arc<Link>,
    file: Arc<File>,
    term: u64,
    boot: u64,
    is_poisoned: AtomicBool,
}

impl Handle {
    fn begin(&self, operation: Operation) -> Result<bool, DeviceError> {
        let is_unanswered = self.link.begin(operation, &self.file.name)?;
        let server = &self.link.server;
        // Who has no term yet looks only.
        let is_fenced = server.promised.load(Ordering::SeqCst) > self.term;
        let may = !is_fenced || self.term == 0 && operation == Operation::Read;
        if !may || server.boot.load(Ordering::SeqCst) != self.boot {
            return Err(failed(operation, &self.file.name));
        }
        Ok(is_unanswered)
    }

    /// A change; a failed one poisons.
    fn change(&self, operation: Operation, change: impl FnOnce(&mut Bytes)) -> Result<(), DeviceError> {
        if self.is_poisoned.load(Ordering::SeqCst) {
            return Err(DeviceError::Poisoned { name: self.file.name.clone() });
        }
        let begun = self.begin(operation);
        if let Ok(is_unanswered) = &begun {
            change(&mut self.file.bytes.lock());
            if !is_unanswered {
                return Ok(());
            }
        }
        self.is_poisoned.store(true, Ordering::SeqCst);
        Err(begun.err().unwrap_or_else(|| failed(operation, &self.file.name)))
    }

    /// Stores bytes, as the next silent fault wants it.
    fn store(&self, bytes: &mut Bytes, offset: u64, data: &[u8]) {
        let server = &self.link.server;
        let silent = if self.file.name == "data-0" { server.silent.lock().take() } else { None };
        let (mut offset, mut data) = (offset as usize, data.to_vec());
        let block = offset / BLOCK_BYTES;
        let blocks = block..block + data.len() / BLOCK_BYTES;
        match silent {
            None => {}
            Some(Silent::Lost) => {
                server.tainted.lock().extend(blocks.map(|block| block as u64));
                return;
            }
            Some(Silent::Flipped) => {
                data[99] ^= 1;
                server.tainted.lock().push(block as u64);
            }
            Some(Silent::Misdirected) => {
                let places = bytes.live.len() - data.len() + BLOCK_BYTES;
                let elsewhere = (offset + 3 * BLOCK_BYTES) % places;
                let hit = elsewhere / BLOCK_BYTES..(elsewhere + data.len()) / BLOCK_BYTES;
                server.tainted.lock().extend(blocks.chain(hit).map(|block| block as u64));
                offset = elsewhere;
            }
        }
        for (index, new) in data.chunks_exact(SECTOR_BYTES).enumerate() {
            let sector = offset / SECTOR_BYTES + index;
            let place = &mut bytes.live[sector * SECTOR_BYTES..][..SECTOR_BYTES];
            bytes.older.entry(sector).or_default().push(place.to_vec());
            place.copy_from_slice(new);
        }
    }
}

impl Device for Handle {
    fn len(&self) -> u64 {
        self.file.bytes.lock().live.len() as u64
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        if self.begin(Operation::Read)? {
            return Err(failed(Operation::Read, &self.file.name));
        }
        buffer.copy_from_slice(&self.file.bytes.lock().live[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.change(Operation::Write, |bytes| self.store(bytes, offset, data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.change(Operation::Flush, |bytes| bytes.older.clear())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let zeros = vec![0; bytes as usize];
        self.change(Operation::Discard, |content| self.store(content, offset, &zeros))
    }

    fn durability(&self) -> Durability {
        Durability::Emulated
    }
}
