//! [`World`]: the servers, the owners, and what happens next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{BLOCK_BYTES, Device};
use parking_lot::Mutex;

use super::history::{History, Value};
use super::server::{Failure, Link, Process, Server, Silent};
use super::{Report, Witness};
use crate::encryption::{Secret, VolumeKeys};
use crate::error::VolumeError;
use crate::membership::needed;
use crate::{CopyState, NewVolume, Options, Place, Step, Threads, Volume};

pub(super) const BLOCKS: u64 = 64;
const BLOCK: u64 = BLOCK_BYTES as u64;
const HALF: usize = BLOCK_BYTES / 2;
/// Events that are kept to be printed.
const EVENTS: usize = 400;
/// How deep owners may be paused inside each other.
const DEPTH: u64 = 3;

/// One owner of the volume, from its opening on.
pub(super) struct Owner {
    pub(super) id: usize,
    process: Arc<Process>,
    pub(super) links: Vec<Arc<Link>>,
    volume: Mutex<Option<Arc<Volume>>>,
    /// It is in the middle of a call.
    is_busy: AtomicBool,
}

pub(super) struct World {
    pub(super) copies: u8,
    pub(super) min_copies: u8,
    is_thin: bool,
    /// Of an encrypted volume.
    keys: Option<Arc<VolumeKeys>>,
    witness: Arc<Witness>,
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) random: Mutex<fastrand::Rng>,
    pub(super) history: Mutex<History>,
    owners: Mutex<Vec<Arc<Owner>>>,
    next_owner: AtomicU64,
    next_tag: AtomicU64,
    depth: AtomicU64,
    steps: u64,
    /// The copy whose blocks may be damaged.
    fragile: usize,
    trouble: Mutex<Option<String>>,
    events: Mutex<VecDeque<String>>,
    pub(super) report: Mutex<Report>,
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<World> {
        let mut random = fastrand::Rng::with_seed(seed);
        let choices = [(3, 2), (3, 2), (3, 2), (3, 2), (3, 2), (2, 1), (2, 1), (2, 2), (3, 1), (3, 3)];
        let (copies, min_copies) = choices[random.usize(..choices.len())];
        let witness = Arc::<Witness>::default();
        let keys = VolumeKeys::new(vec![(1, Secret::new([7; 32]))]).map(|keys| keys.watched(witness.clone()));
        Arc::new(World {
            copies,
            min_copies,
            // Not drawn: a seed of a volume that is not thin is what it was.
            is_thin: seed % 3 == 2,
            keys: keys.filter(|_| seed / 3 % 2 == 1),
            witness,
            servers: (0..copies).map(|_| Server::new()).collect(),
            fragile: random.usize(..copies as usize),
            steps: random.u64(20..120),
            random: Mutex::new(random),
            history: Mutex::new(History::new(BLOCKS)),
            owners: Mutex::default(),
            next_owner: AtomicU64::new(1),
            next_tag: AtomicU64::new(1),
            depth: AtomicU64::new(0),
            trouble: Mutex::default(),
            events: Mutex::default(),
            report: Mutex::default(),
        })
    }

    pub(super) fn run(self: &Arc<World>) -> Result<(), String> {
        let encrypted = if self.is_encrypted() { ", encrypted" } else { "" };
        self.event(format!("{} copies, at least {}{encrypted}", self.copies, self.min_copies));
        let creator = self.new_owner();
        let places: Vec<Place> = creator.links.iter().map(Link::place).collect();
        let new = NewVolume {
            volume: *b"simulated volume",
            bytes: BLOCKS * BLOCK,
            min_copies: Some(self.min_copies),
            is_thin: self.is_thin,
        };
        Volume::create(&places, &new, &self.options(creator.id)).map_err(|error| format!("create: {error}"))?;
        for _ in 0..self.steps {
            self.step();
            self.check()?;
        }
        self.finish()?;
        // Where a person accepts a loss nobody knows which terms were promised: the random bits remain.
        let lost =
            ["media lost", "damaged on the last copy"].map(|what| self.report.lock().of(what)).iter().sum::<u64>();
        let sealed = self.witness.check(lost > 0)?;
        self.report.lock().count_all("blocks sealed", sealed as u64);
        Ok(())
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.keys.is_some()
    }

    pub(super) fn options(&self, owner: usize) -> Options {
        Options {
            window_bytes: 1 << 20,
            segment_bytes: 64 << 10,
            write_timeout: Duration::ZERO,
            threads: Threads::Callers,
            prefer: Some((owner % 3) as u8),
            keys: self.keys.clone(),
            ..Options::new(owner as u64)
        }
    }

    /// Ends all owners.
    pub(super) fn end(&self) -> Report {
        self.kill_all();
        self.report.lock().clone()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.trouble.lock().take().map_or(Ok(()), Err)
    }

    pub(super) fn events(&self) -> String {
        self.events.lock().iter().cloned().collect::<Vec<_>>().join("\n")
    }

    pub(super) fn event(&self, event: String) {
        let mut events = self.events.lock();
        if events.len() == EVENTS {
            events.pop_front();
        }
        events.push_back(format!("{}{event}", "  ".repeat(self.depth.load(Ordering::SeqCst) as usize)));
    }

    pub(super) fn count(&self, what: &'static str) {
        self.report.lock().count(what);
    }

    fn violated(&self, why: String) {
        self.event(format!("VIOLATED {why}"));
        self.trouble.lock().get_or_insert(why);
    }

    fn any(&self, below: u64) -> u64 {
        self.random.lock().u64(..below)
    }

    pub(super) fn new_owner(&self) -> Arc<Owner> {
        let process = Process::new();
        let links = self.servers.iter().map(|server| Link::new(server.clone(), process.clone())).collect();
        let id = self.next_owner.fetch_add(1, Ordering::SeqCst) as usize;
        Arc::new(Owner { id, process, links, volume: Mutex::default(), is_busy: AtomicBool::new(false) })
    }

    fn kill(&self, owner: &Owner) {
        owner.process.is_alive.store(false, Ordering::SeqCst);
        // Who is in the middle of a call has a handle of its own.
        let volume = owner.volume.lock().take();
        drop(volume);
        self.owners.lock().retain(|other| other.id != owner.id);
    }

    pub(super) fn kill_all(&self) {
        let owners = self.owners.lock().clone();
        owners.iter().for_each(|owner| self.kill(owner));
    }

    /// An owner that is in no call, mostly the newest.
    fn idle(&self) -> Option<(Arc<Owner>, Arc<Volume>)> {
        let is_dead = |owner: &&Arc<Owner>| !owner.process.is_alive.load(Ordering::SeqCst);
        let dead: Vec<Arc<Owner>> = self.owners.lock().iter().filter(is_dead).cloned().collect();
        dead.iter().for_each(|owner| self.kill(owner));
        let mut owners = self.owners.lock().clone();
        owners.retain(|owner| !owner.is_busy.load(Ordering::SeqCst) && owner.volume.lock().is_some());
        let at = if self.any(4) == 0 { self.any(owners.len().max(1) as u64) as usize } else { owners.len().max(1) - 1 };
        let owner = owners.get(at)?.clone();
        let volume = owner.volume.lock().clone()?;
        Some((owner, volume))
    }

    /// Something happens.
    fn step(self: &Arc<World>) {
        let dice = self.any(100);
        let Some((owner, volume)) = self.idle().filter(|_| dice >= 6) else {
            return self.open();
        };
        owner.is_busy.store(true, Ordering::SeqCst);
        match dice {
            0..=45 => self.write(&owner, &volume),
            46..=63 => self.read(&owner, &volume),
            64..=67 => self.checkpoint(&owner, &volume),
            68..=83 => self.bring_back(&owner, &volume),
            84 => {
                self.event(format!("owner {} scrubs", owner.id));
                _ = volume.scrub();
            }
            85 => {
                self.event(format!("owner {} closes", owner.id));
                _ = volume.close();
                self.kill(&owner);
            }
            86 => self.exclude(&owner, &volume),
            _ => {
                owner.is_busy.store(false, Ordering::SeqCst);
                self.fault(&owner, &volume);
            }
        }
        owner.is_busy.store(false, Ordering::SeqCst);
    }

    /// Another owner opens the volume; the ones before are gone, or go on.
    fn open(self: &Arc<World>) {
        if self.any(4) == 0 {
            self.servers.iter().for_each(|server| server.is_up.store(true, Ordering::SeqCst));
        }
        if self.any(3) > 0 {
            let owners = self.owners.lock().clone();
            owners.iter().filter(|owner| !owner.is_busy.load(Ordering::SeqCst)).for_each(|owner| self.kill(owner));
        }
        let owner = self.new_owner();
        if self.any(3) == 0 {
            let away = self.any(u64::from(self.copies)) as usize;
            owner.links[away].is_up.store(false, Ordering::SeqCst);
        }
        if self.any(4) == 0 {
            self.arm(&owner);
        }
        let mut places: Vec<Place> = owner.links.iter().map(Link::place).collect();
        self.random.lock().shuffle(&mut places);
        self.event(format!("owner {} opens: links {:?}", owner.id, ups(&owner)));
        self.history.lock().begins(owner.id);
        match Volume::open(places, self.options(owner.id)) {
            Ok(volume) => {
                let status = volume.status();
                let term = owner.links.iter().map(|link| link.term()).max().unwrap_or(0);
                self.event(format!("owner {} has opened it: {} in sync {}", owner.id, status.epoch, status.in_sync));
                self.count(if status.is_frozen { "openings, frozen" } else { "openings" });
                self.history.lock().opened(owner.id, term, status.is_frozen);
                *owner.volume.lock() = Some(Arc::new(volume));
                self.owners.lock().push(owner);
            }
            Err(error) => {
                self.event(format!("owner {} cannot open it: {error}", owner.id));
                self.count("openings refused");
                self.kill(&owner);
            }
        }
    }

    fn write(self: &Arc<World>, owner: &Owner, volume: &Volume) {
        let (block, kind) = (self.any(BLOCKS - 3), self.any(8));
        let tag = self.next_tag.fetch_add(1, Ordering::SeqCst);
        let known = self.history.lock().known(owner.id, block);
        let (values, result): (Vec<Value>, _) = match (kind, known) {
            (0, Some(before)) => {
                let value = (before.0, tag);
                self.issue(owner, block, &[value]);
                (vec![value], volume.write(block * BLOCK + HALF as u64, &bytes_of(value)[HALF..]))
            }
            (1, _) => {
                self.issue(owner, block, &[(0, 0)]);
                (vec![(0, 0)], volume.discard(block * BLOCK, BLOCK))
            }
            (2, _) => {
                let values: Vec<Value> = (0..3).map(|index| (tag, index + 1)).collect();
                self.issue(owner, block, &values);
                let bytes: Vec<u8> = values.iter().flat_map(|value| bytes_of(*value)).collect();
                (values, volume.write(block * BLOCK, &bytes))
            }
            _ => {
                self.issue(owner, block, &[(tag, tag)]);
                (vec![(tag, tag)], volume.write(block * BLOCK, &bytes_of((tag, tag))))
            }
        };
        self.event(format!("owner {} writes {values:?} to {block}: {:?}", owner.id, result.as_ref().err()));
        self.count(if result.is_ok() { "writes acknowledged" } else { "writes refused" });
        if result.is_ok() {
            for (index, value) in values.iter().enumerate() {
                let noted = self.history.lock().acknowledged(owner.id, block + index as u64, *value);
                noted.unwrap_or_else(|why| self.violated(why));
            }
        }
    }

    fn issue(&self, owner: &Owner, block: u64, values: &[Value]) {
        let mut history = self.history.lock();
        (block..).zip(values).for_each(|(block, value)| history.issue(owner.id, block, *value));
    }

    fn read(&self, owner: &Owner, volume: &Volume) {
        let (block, blocks) = (self.any(BLOCKS - 4), self.any(4) + 1);
        let mut bytes = vec![0; (blocks * BLOCK) as usize];
        let result = volume.read(block * BLOCK, &mut bytes);
        self.event(format!("owner {} reads {blocks} of {block}: {:?}", owner.id, result.as_ref().err()));
        if result.is_err() {
            return self.count("reads refused");
        }
        self.count(if self.history.lock().is_newest(owner.id) { "reads" } else { "reads of a replaced owner" });
        for (index, bytes) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            self.note(owner.id, block + index as u64, bytes);
        }
    }

    pub(super) fn note(&self, owner: usize, block: u64, bytes: &[u8]) {
        let noted = match value_of(bytes) {
            Some(value) => self.history.lock().read(owner, block, value),
            None => Err(format!("block {block} is a mixture")),
        };
        noted.unwrap_or_else(|why| self.violated(why));
    }

    fn checkpoint(&self, owner: &Owner, volume: &Volume) {
        let result = volume.checkpoint();
        self.event(format!("owner {} makes a checkpoint: {:?}", owner.id, result.err()));
    }

    fn exclude(&self, owner: &Owner, volume: &Volume) {
        let copy = self.any(u64::from(self.copies)) as u8;
        let result = volume.exclude(copy);
        self.event(format!("owner {} excludes {copy}: {:?}", owner.id, result.err()));
        self.count("exclusions by hand");
    }

    /// The next thing that brings a copy back: attach, replace, or some steps.
    fn bring_back(&self, owner: &Owner, volume: &Volume) {
        let states: Vec<CopyState> = volume.status().copies.iter().map(|copy| copy.state).collect();
        let from = self.any(u64::from(self.copies)) as usize;
        let mut order = (0..states.len()).map(|copy| (copy + from) % states.len());
        let Some(copy) = order.find(|copy| states[*copy] != CopyState::InSync) else { return };
        if let CopyState::Syncing { .. } = states[copy] {
            for _ in 0..self.any(4) + 1 {
                let result = volume.resync_step(copy as u8);
                self.event(format!("owner {} copies to {copy}: {result:?}", owner.id));
                if matches!(result, Ok(Step::Joined)) {
                    self.count("joined");
                }
                if !matches!(result, Ok(Step::Copied { .. })) {
                    break;
                }
            }
            return;
        }
        let result = attach(volume, &owner.links[copy], copy as u8);
        self.event(format!("owner {} brings {copy} back: {result:?}", owner.id));
        self.count(match result {
            Ok("attached") => "attached",
            Ok(_) => "replaced",
            Err(_) => "not brought back",
        });
    }

    fn fault(self: &Arc<World>, owner: &Arc<Owner>, volume: &Volume) {
        let copy = self.any(u64::from(self.copies)) as usize;
        let link = &owner.links[copy];
        match self.any(12) {
            0 | 1 => self.arm(owner),
            2 => {
                self.event(format!("owner {} is killed", owner.id));
                self.count("owners killed");
                self.kill(owner);
            }
            3 => self.power_fails(&[copy]),
            4 => {
                self.kill_all();
                let all: Vec<usize> = (0..self.servers.len()).collect();
                self.power_fails(&all);
            }
            5 => {
                let is_up = !link.is_up.fetch_xor(true, Ordering::SeqCst);
                self.event(format!("the link of owner {} to {copy} is up: {is_up}", owner.id));
                self.count("links broken or mended");
            }
            6 => {
                let is_up = !self.servers[copy].is_up.fetch_xor(true, Ordering::SeqCst);
                self.event(format!("server {copy} is up: {is_up}"));
                self.count("servers away or back");
            }
            7 | 8 => {
                owner.links.iter().for_each(|link| link.is_up.store(true, Ordering::SeqCst));
                self.servers.iter().for_each(|server| server.is_up.store(true, Ordering::SeqCst));
                self.event("all links and servers are up".to_owned());
            }
            9 => {
                let how = if self.any(2) == 0 { Failure::Refused } else { Failure::Unanswered };
                let nth = self.any(12) + 1;
                self.event(format!("operation {nth} of owner {} on {copy}: {how:?}", owner.id));
                link.fails(nth, how);
                self.count("single failures");
            }
            10 => self.damage(),
            _ => self.wipe(owner, volume),
        }
    }

    pub(super) fn power_fails(&self, servers: &[usize]) {
        self.event(format!("the power of {servers:?} fails"));
        self.count("power failures");
        servers.iter().for_each(|server| self.servers[*server].power_fails(&mut self.random.lock()));
    }

    fn damage(&self) {
        let server = &self.servers[self.fragile];
        let dice = self.any(6);
        self.event(format!("damage {dice} of {}", self.fragile));
        self.count("damaged");
        match dice {
            0 => server.next_write_is(Silent::Lost),
            1 => server.next_write_is(Silent::Misdirected),
            2 => server.next_write_is(Silent::Flipped),
            _ => server.rots(self.any(BLOCKS)),
        }
    }

    /// The medium of a copy is lost, where the others are enough.
    fn wipe(&self, owner: &Owner, volume: &Volume) {
        let status = volume.status();
        let is_whole = status.copies.iter().all(|copy| copy.state == CopyState::InSync);
        let are_enough = self.copies > needed(self.copies, self.min_copies).max(self.min_copies);
        if !is_whole || !are_enough || !self.history.lock().is_newest(owner.id) {
            return;
        }
        self.event(format!("the medium of {} is lost", self.fragile));
        self.count("media lost");
        self.servers[self.fragile].is_replaced();
    }

    /// In the middle of one of its next operations something happens to an owner.
    fn arm(self: &Arc<World>, owner: &Arc<Owner>) {
        let (nth, dice, world) = (self.any(40) + 1, self.any(4), Arc::downgrade(self));
        let (id, process) = (owner.id, owner.process.clone());
        owner.process.interrupt(nth, move || {
            let Some(world) = world.upgrade() else { return };
            match dice {
                0 => {
                    world.event(format!("owner {id} is killed in the middle"));
                    world.count("owners killed in the middle");
                    process.is_alive.store(false, Ordering::SeqCst);
                }
                1 => {
                    process.is_alive.store(false, Ordering::SeqCst);
                    world.count("power failures in the middle");
                    let all: Vec<usize> = (0..world.servers.len()).collect();
                    world.power_fails(&all);
                    world.owners.lock().iter().for_each(|owner| owner.process.is_alive.store(false, Ordering::SeqCst));
                }
                _ => world.meanwhile(id),
            }
        });
    }

    /// An owner is paused, and others go on.
    fn meanwhile(self: &Arc<World>, id: usize) {
        if self.depth.load(Ordering::SeqCst) >= DEPTH {
            return;
        }
        self.event(format!("owner {id} is paused"));
        self.count("owners paused");
        self.depth.fetch_add(1, Ordering::SeqCst);
        if self.any(3) > 0 {
            self.open();
        }
        for _ in 0..self.any(12) {
            self.step();
        }
        self.depth.fetch_sub(1, Ordering::SeqCst);
        self.event(format!("owner {id} goes on"));
    }
}

fn ups(owner: &Owner) -> Vec<bool> {
    owner.links.iter().map(|link| link.is_up.load(Ordering::SeqCst)).collect()
}

/// Attaches a copy, or replaces one that is too old or not there.
pub(super) fn attach(volume: &Volume, link: &Arc<Link>, copy: u8) -> Result<&'static str, VolumeError> {
    match volume.attach(link.place()) {
        Ok(_) => Ok("attached"),
        Err(VolumeError::TooOld(_)) => volume.replace(copy, link.place()).map(|()| "replaced"),
        Err(VolumeError::Device(_)) if link.server.has_no_copy() => {
            volume.replace(copy, link.place()).map(|()| "replaced by an empty one")
        }
        Err(error) => Err(error),
    }
}

fn bytes_of(value: Value) -> Vec<u8> {
    let half = |tag: u64| tag.to_le_bytes().repeat(HALF / 8);
    [half(value.0), half(value.1)].concat()
}

fn value_of(bytes: &[u8]) -> Option<Value> {
    let tag = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let value = (tag(0), tag(HALF));
    (bytes == bytes_of(value)).then_some(value)
}
