//! A workload on a cached shelf that is drawn from a seed, and what each word may contain after a power failure at any point of it.
//!
//! Every write fills its blocks with a number of its own. After a failure a word of 8 bytes may contain the number of the last write
//! that a returned flush covers, or of any later write that had been called; on drives, where 512 bytes are the atom, all words of a
//! sector the same one.

use std::sync::Arc;

use device::{CrashShelf, Device, DeviceError, Shelf};
use volume::write_back::{CacheOptions, CachedShelf};

use crate::write_back::rig::{BLOCK, filled, open, open_lazily, read};

/// A content of a block.
#[derive(Clone, Debug)]
struct Version {
    tag: u64,
    /// The operation of the recording at which it was called.
    called: usize,
    /// The operation at which a flush that covers it had returned.
    flushed: Option<usize>,
}

/// A device, from its creation to its removal.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    name: String,
    blocks: Vec<Vec<Version>>,
    created: (usize, usize),
    removed: Option<(usize, usize)>,
}

impl Life {
    fn latest(&self, block: u64) -> u64 {
        self.blocks[block as usize].last().expect("there is always one").tag
    }

    fn allowed(&self, block: u64, point: usize) -> impl Iterator<Item = u64> {
        let versions = &self.blocks[block as usize];
        let base = versions.iter().rposition(|version| version.flushed.is_some_and(|at| at <= point)).unwrap_or(0);
        versions[base..].iter().filter(move |version| version.called <= point).map(|version| version.tag)
    }

    /// Whether the content of the device may be found after a failure at a point.
    fn allows(&self, content: &[u8], atom: usize, point: usize) -> Result<(), String> {
        for (block, bytes) in content.chunks_exact(BLOCK as usize).enumerate() {
            let allowed: Vec<u64> = self.allowed(block as u64, point).collect();
            for (index, bytes) in bytes.chunks_exact(atom).enumerate() {
                let tag = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                if !allowed.contains(&tag) || bytes.chunks_exact(8).any(|word| word != &bytes[..8]) {
                    let at = index * atom;
                    return Err(format!(
                        "{} block {block}+{at} contains {tag}, of {allowed:?} at point {point}",
                        self.name
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The lives of all devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    lives: Vec<Life>,
}

impl Model {
    fn find(&mut self, name: &str) -> Option<&mut Life> {
        self.lives.iter_mut().find(|life| life.name == name && life.removed.is_none())
    }

    /// Whether what a shelf contains may be found after a failure at a point.
    pub(crate) fn check(&self, shelf: &CachedShelf, point: usize) -> Result<(), String> {
        let names = shelf.list().map_err(|error| error.to_string())?;
        for life in &self.lives {
            let is_certain = life.created.1 <= point && life.removed.is_none_or(|(called, _)| called > point);
            if is_certain && !names.contains(&life.name) {
                return Err(format!("{} is gone at point {point}", life.name));
            }
        }
        for name in names {
            let device = shelf.open(&name).map_err(|error| error.to_string())?;
            let content = read(&*device, 0, device.len() / BLOCK);
            let is_possible =
                |life: &&Life| life.created.0 <= point && life.removed.is_none_or(|(_, returned)| returned > point);
            let mut why = format!("there is a device {name}");
            let fits = self.lives.iter().filter(|life| life.name == name).filter(is_possible).any(|life| {
                let allowed = life.allows(&content, device.atom_bytes() as usize, point);
                allowed.map_err(|found| why = found).is_ok()
            });
            if !fits {
                return Err(why);
            }
        }
        Ok(())
    }
}

/// A running workload.
pub(crate) struct Workload {
    pub(crate) machine: Arc<CrashShelf>,
    pub(crate) options: CacheOptions,
    pub(crate) model: Model,
    shelf: Option<CachedShelf>,
    handles: Vec<(String, Arc<dyn Device>)>,
    random: fastrand::Rng,
    tag: u64,
}

impl Workload {
    /// A workload on a machine on which a cache was created.
    pub(crate) fn new(machine: &Arc<CrashShelf>, options: &CacheOptions, seed: u64) -> Workload {
        Workload {
            machine: machine.clone(),
            options: options.clone(),
            model: Model::default(),
            shelf: Some(open(&(machine.clone() as Arc<dyn Shelf>), options)),
            handles: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            tag: 0,
        }
    }

    fn shelf(&self) -> &CachedShelf {
        self.shelf.as_ref().expect("it is open")
    }

    fn create(&mut self, name: &str) {
        let blocks = self.random.u64(5..14);
        let called = self.machine.operations();
        let device = self.shelf().create(name, blocks * BLOCK).expect("creates");
        let done = self.machine.operations();
        let empty = Version { tag: 0, called, flushed: Some(called) };
        let blocks = vec![vec![empty]; blocks as usize];
        self.model.lives.push(Life { name: name.into(), blocks, created: (called, done), removed: None });
        self.handles.push((name.into(), device));
    }

    fn remove(&mut self, name: &str) {
        self.handles.retain(|(own, _)| own != name);
        let called = self.machine.operations();
        self.shelf().remove(name).expect("removes");
        let done = self.machine.operations();
        self.model.find(name).expect("it is known").removed = Some((called, done));
    }

    fn change(&mut self, index: usize) {
        let (name, device) = self.handles[index].clone();
        let blocks = device.len() / BLOCK;
        let first = self.random.u64(..blocks);
        let most = if self.random.u8(..4) == 0 { 8 } else { 2 };
        let count = self.random.u64(1..=most).min(blocks - first);
        let called = self.machine.operations();
        self.tag += 1;
        let mut tag = self.tag;
        match self.random.u8(..10) {
            0 => {
                tag = 0;
                device.discard(first * BLOCK, count * BLOCK).expect("discards");
            }
            1 => {
                tag = 0;
                device.write_zeroes(first * BLOCK, count * BLOCK, false).expect("zeros");
            }
            _ => device.write(first * BLOCK, &filled(tag, count)).expect("writes"),
        }
        let life = self.model.find(&name).expect("it is known");
        for block in first..first + count {
            life.blocks[block as usize].push(Version { tag, called, flushed: None });
        }
    }

    fn flush(&mut self, index: usize) {
        let (name, device) = self.handles[index].clone();
        device.flush().expect("flushes");
        self.flushed(&name);
    }

    fn flushed(&mut self, name: &str) {
        let now = self.machine.operations();
        for versions in &mut self.model.find(name).expect("it is known").blocks {
            for version in versions {
                version.flushed.get_or_insert(now);
            }
        }
    }

    /// All that is read is what was written last.
    fn verify(&mut self) {
        for (name, device) in self.handles.clone() {
            let blocks = device.len() / BLOCK;
            let first = self.random.u64(..blocks);
            let count = self.random.u64(1..=blocks - first);
            let found = read(&*device, first, count);
            let life = self.model.find(&name).expect("it is known");
            let expected: Vec<u8> = (first..first + count).flat_map(|block| filled(life.latest(block), 1)).collect();
            assert!(found == expected, "{name} reads something else");
        }
    }

    /// The process ends without closing, and another one opens the cache: what was not flushed may be old or new.
    fn restart(&mut self) {
        let called = self.machine.operations();
        self.handles.clear();
        drop(self.shelf.take());
        self.shelf = Some(open(&(self.machine.clone() as Arc<dyn Shelf>), &self.options));
        self.model.check(self.shelf(), called).unwrap_or_else(|why| panic!("after a restart: {why}"));
        for name in self.shelf().list().expect("lists") {
            let device = self.shelf().open(&name).expect("opens");
            let done = self.machine.operations();
            let content = read(&*device, 0, device.len() / BLOCK);
            let life = self.model.find(&name).expect("it is known");
            for (bytes, versions) in content.chunks_exact(BLOCK as usize).zip(&mut life.blocks) {
                let tag = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                versions.push(Version { tag, called, flushed: Some(done) });
            }
            self.handles.push((name, device));
        }
    }

    /// Does `steps` random steps.
    pub(crate) fn run(&mut self, steps: u32) {
        self.create("a");
        self.create("b");
        for _ in 0..steps {
            let index = self.random.usize(..self.handles.len());
            match self.random.u8(..40) {
                0..=19 => self.change(index),
                20..=27 => self.flush(index),
                28..=31 => drop(self.shelf().destage_step().expect("destages")),
                32 => self.shelf().destage_all().expect("destages"),
                33 => self.restart(),
                34 if self.handles.len() > 1 => {
                    let name = self.handles[index].0.clone();
                    self.remove(&name);
                }
                35 if self.handles.len() < 3 => {
                    let free = ["a", "b", "c"].into_iter().find(|name| self.handles.iter().all(|(own, _)| own != name));
                    self.create(free.expect("one of three is free"));
                }
                _ => self.verify(),
            }
        }
        self.verify();
    }

    /// Makes one device; returns the operation from which on `run_strict` works.
    pub(crate) fn begin_strict(&mut self) -> usize {
        self.create("a");
        // A place that was never used has zeros, as the capacity has: there the first flush would not be needed.
        self.run_strict(3);
        self.machine.operations()
    }

    /// Writes and flushes one block after the other, each of another page than the one before.
    pub(crate) fn run_strict(&mut self, steps: u64) {
        let (_, device) = self.handles[0].clone();
        for step in 0..steps {
            let block = step % 3 * 2;
            let called = self.machine.operations();
            self.tag += 1;
            device.write(block * BLOCK, &filled(self.tag, 1)).expect("writes");
            let written = Version { tag: self.tag, called, flushed: None };
            self.model.lives[0].blocks[block as usize].push(written);
            self.flush(0);
        }
    }

    /// Ends without closing; what was recorded.
    pub(crate) fn end(self) -> (Arc<CrashShelf>, Model) {
        (self.machine, self.model)
    }
}

/// Threads that write and flush blocks of their own, two of each page, while the cache's threads destage and populate.
pub(crate) fn run_threads(machine: &Arc<CrashShelf>, options: &CacheOptions, seed: u64, turns: u64) -> Model {
    const THREADS: u64 = 3;
    let any: Arc<dyn Shelf> = machine.clone();
    let shelf = open_lazily(&any, options);
    let called = machine.operations();
    let device = shelf.create("a", 6 * THREADS * BLOCK).expect("creates");
    let created = (called, machine.operations());
    let empty = Version { tag: 0, called, flushed: Some(called) };
    let mut blocks = vec![vec![empty]; 6 * THREADS as usize];
    let work = |thread: u64| {
        let mut random = fastrand::Rng::with_seed(seed * 10 + thread);
        let mut own: Vec<(usize, Version)> = Vec::new();
        for turn in 1..=turns {
            let block = random.u64(..6) * THREADS + thread;
            match random.u8(..7) {
                kind @ 0..=4 => {
                    let tag = if kind == 0 { 0 } else { thread << 32 | turn };
                    let called = machine.operations();
                    match kind {
                        0 => device.discard(block * BLOCK, BLOCK).expect("discards"),
                        _ => device.write(block * BLOCK, &filled(tag, 1)).expect("writes"),
                    }
                    own.push((block as usize, Version { tag, called, flushed: None }));
                }
                5 => {
                    device.flush().expect("flushes");
                    let now = machine.operations();
                    own.iter_mut().for_each(|(_, version)| version.flushed = version.flushed.or(Some(now)));
                }
                _ => {
                    let last =
                        own.iter().rev().find(|(own, _)| *own == block as usize).map_or(0, |(_, version)| version.tag);
                    assert!(read(&*device, block, 1) == filled(last, 1), "SEED={seed}: block {block}");
                }
            }
        }
        own
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        for thread in threads {
            thread.join().expect("no panic").into_iter().for_each(|(block, version)| blocks[block].push(version));
        }
    });
    drop(shelf);
    Model { lives: vec![Life { name: "a".into(), blocks, created, removed: None }] }
}

/// What the cache makes of a machine after its power is back; the error is why that is wrong. Destaging all of it, and opening it
/// again, changes nothing of what was read.
pub(crate) fn recover(
    machine: CrashShelf,
    options: &CacheOptions,
    model: &Model,
    point: usize,
) -> Result<Arc<CrashShelf>, String> {
    let machine = Arc::new(machine);
    let any: Arc<dyn Shelf> = machine.clone();
    let (capacity, cache) = super::rig::parts(&any);
    let shelf = CachedShelf::open(capacity, cache, options).map_err(|error| error.to_string())?;
    model.check(&shelf, point)?;
    let content = |shelf: &CachedShelf| -> Result<Vec<Vec<u8>>, DeviceError> {
        let names = shelf.list()?;
        names.iter().map(|name| shelf.open(name).map(|device| read(&*device, 0, device.len() / BLOCK))).collect()
    };
    let first = content(&shelf).map_err(|error| error.to_string())?;
    shelf.destage_all().map_err(|error| error.to_string())?;
    let second = content(&shelf).map_err(|error| error.to_string())?;
    if first != second {
        return Err("destaging has changed what is read".into());
    }
    let status = shelf.status();
    if status.dirty_pages > 0 || status.failure.is_some() {
        return Err(format!("after destaging: {status:?}"));
    }
    drop(shelf);
    let third = content(&open(&any, options)).map_err(|error| error.to_string())?;
    if first != third {
        return Err("opening it again has changed what is read".into());
    }
    Ok(machine)
}
