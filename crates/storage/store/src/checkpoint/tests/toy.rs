//! [`Toy`]: six values in runs of pages, and a root page with their places; changed through the real journal, space and
//! checkpoints.
//!
//! ```text
//!   record    | number u64 | slot u8 | what u8 | pages u8 |      the value of a slot is the number of the record that set it
//!   root      header | number of the last record | per slot: first page u32, pages u32, value u64
//!   run       bytes derived from value and place: a page of another time or place does not match
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use device::CrashShelf;
use device::Shelf;
use device::crash::PmemMode;
use journal::{Check, Journal, Lsn, Preparation};

use crate::StoreError;
use crate::checkpoint::machine::Step;
use crate::checkpoint::open::{JournalFacts, Layout, OpenFindings, OpenedPages};
use crate::checkpoint::writer::{CheckpointBegin, CheckpointWriter, DirtyPages};
use crate::page::{self, Kind, PageHeader, PageId, u32_at, u64_at};
use crate::space::Space;
use crate::space::devices::DataDevices;
use crate::space::poison::Poison;
use crate::space::superblock::Superblock;

pub(crate) const SLOTS: usize = 6;

pub(crate) const LAYOUT: Layout =
    Layout { page_bytes: 4096, data_device_bytes: 64 * 4096, images_device_bytes: 10 * 4096 };

const PAGE: usize = 4096;

pub(crate) type Values = [u64; SLOTS];

/// Creates a simulated machine from a seed.
type Medium = Box<dyn Fn(u64) -> Arc<CrashShelf>>;

/// The machines on which every crash test runs.
pub(crate) fn media() -> Vec<(&'static str, Medium)> {
    vec![
        ("sectors", Box::new(|seed| Arc::new(CrashShelf::new(seed)))),
        ("ADR", Box::new(|seed| Arc::new(CrashShelf::pmem(seed, PmemMode::Adr)))),
        ("eADR", Box::new(|seed| Arc::new(CrashShelf::pmem(seed, PmemMode::Eadr)))),
        ("pages", Box::new(|seed| Arc::new(CrashShelf::pmem(seed, PmemMode::Pages)))),
    ]
}

/// The seed of a randomised test: from the environment variable SEED, or `default`.
pub(crate) fn seed(default: u64) -> u64 {
    std::env::var("SEED").map_or(default, |text| text.parse().expect("SEED is a number"))
}

pub(crate) fn journal_options() -> journal::Options {
    journal::Options {
        segment_bytes: 32 << 10,
        buffer_bytes: 16 << 10,
        max_record_bytes: 1 << 20,
        spare_segments: 2,
        preparation: Preparation::Inline,
        check: Check::Everything,
        identity: 0x5eed_1d00,
        sealer: None,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slot {
    first: PageId,
    pages: u32,
    value: u64,
}

/// One change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToyOp {
    pub(crate) slot: u8,
    /// 0 deletes, 1 sets in place where that is possible, 2 sets at a new place.
    pub(crate) what: u8,
    pub(crate) pages: u8,
}

struct Entry {
    bytes: Vec<u8>,
    is_dirty: bool,
}

pub(crate) struct Toy {
    pub(crate) journal: Journal,
    pub(crate) data_devices: Arc<DataDevices>,
    pub(crate) space: Arc<Space>,
    /// `None` while a thread has it.
    writer: Option<CheckpointWriter>,
    pub(crate) superblock: Superblock,
    pub(crate) found: OpenFindings,
    cache: BTreeMap<PageId, Entry>,
    root: PageId,
    slots: [Slot; SLOTS],
    /// Number of the last record applied.
    pub(crate) number: u64,
    pub(crate) redo_lsn: Lsn,
    pub(crate) poison: Poison,
}

/// The content of a run of pages.
fn content(value: u64, first: PageId, pages: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(value << 32 | u64::from(first.0));
    let mut bytes = vec![0; pages as usize * PAGE];
    random.fill(&mut bytes);
    bytes
}

struct ToyDirtyPages {
    fresh: Vec<(PageId, u32)>,
    changed: Vec<PageId>,
    images: BTreeMap<PageId, Vec<u8>>,
}

impl DirtyPages for ToyDirtyPages {
    fn fresh(&self) -> &[(PageId, u32)] {
        &self.fresh
    }

    fn changed(&self) -> &[PageId] {
        &self.changed
    }

    fn image(&self, first: PageId, buffer: &mut [u8]) -> Result<bool, StoreError> {
        buffer.copy_from_slice(&self.images[&first]);
        Ok(true)
    }

    fn written_back(&self, first: PageId) {
        assert!(self.images.contains_key(&first));
    }

    fn finish(self: Box<Self>) {}
}

impl Toy {
    /// Opens all places on one shelf, checks the data devices page by page, and redoes the journal.
    pub(crate) fn open(shelf: Arc<dyn Shelf>) -> Result<Toy, StoreError> {
        Toy::open_on(shelf.clone(), shelf)
    }

    pub(crate) fn open_on(logs: Arc<dyn Shelf>, data: Arc<dyn Shelf>) -> Result<Toy, StoreError> {
        let poison = Poison::default();
        let (journal, recovered) = Journal::open(logs.clone(), journal_options())?;
        let facts =
            JournalFacts { identity: journal.identity(), first: recovered.first, end: recovered.end, sealer: None };
        let opened = OpenedPages::open(data, logs, LAYOUT, facts, false, &poison)?;
        let OpenedPages { data_devices, space, writer, superblock, found } = opened;
        let mut toy = Toy {
            journal,
            root: superblock.catalog,
            redo_lsn: superblock.redo_lsn,
            data_devices,
            space,
            writer: Some(writer),
            superblock,
            found,
            cache: BTreeMap::new(),
            slots: Default::default(),
            number: 0,
            poison,
        };
        toy.load()?;
        toy.redo()?;
        Ok(toy)
    }

    /// Reads everything that the root refers to; the map must count exactly that.
    fn load(&mut self) -> Result<(), StoreError> {
        let corrupt = |why: String| Err(StoreError::Corrupt(why.into()));
        let mut reachable = Vec::new();
        if self.root.0 != 0 {
            let mut bytes = vec![0; PAGE];
            self.data_devices.read(self.root, &mut bytes)?;
            page::check(self.root, &bytes)?;
            reachable.push(self.root.0);
            self.number = u64_at(&bytes, 32).expect("in a page");
            for (slot, entry) in self.slots.iter_mut().zip(bytes[40..].chunks_exact(16)) {
                let number = |at| u32_at(entry, at).expect("in an entry");
                *slot = Slot { first: PageId(number(0)), pages: number(4), value: u64_at(entry, 8).expect("in it") };
            }
            self.cache.insert(self.root, Entry { bytes, is_dirty: false });
            for Slot { first, pages, value } in self.slots.into_iter().filter(|slot| slot.pages > 0) {
                let mut bytes = vec![0; pages as usize * PAGE];
                self.data_devices.read(first, &mut bytes)?;
                if bytes != content(value, first, pages) {
                    return corrupt(format!("value {value} in page {first} does not fit"));
                }
                reachable.extend(first.0..first.0 + pages);
                self.cache.insert(first, Entry { bytes, is_dirty: false });
            }
        }
        reachable.sort_unstable();
        let counted = self.counted();
        if counted != reachable {
            return corrupt(format!("the map counts {counted:?}, the root reaches {reachable:?}"));
        }
        Ok(())
    }

    fn counted(&self) -> Vec<u32> {
        let geometry = self.data_devices.geometry();
        let maps = self.space.maps();
        let of = |device: u32| {
            let map = maps[device as usize].clone();
            let used = (geometry.reserved(device)..geometry.device_pages).filter(move |place| map.is_used(*place, 1));
            used.map(move |place| geometry.page(device, place).0)
        };
        (0..maps.len() as u32).flat_map(of).collect()
    }

    fn redo(&mut self) -> Result<(), StoreError> {
        let mut records = Vec::new();
        for record in self.journal.read(self.redo_lsn) {
            records.push(record?);
        }
        for record in records {
            self.apply(record.lsn, &record.payload)?;
        }
        self.redo_lsn = self.journal.durable();
        Ok(())
    }

    /// Appends a change to the journal, makes it durable, and applies it.
    pub(crate) fn change(&mut self, op: ToyOp) -> Result<(), StoreError> {
        self.poison.check()?;
        let mut record = (self.number + 1).to_le_bytes().to_vec();
        record.extend([op.slot, op.what, op.pages]);
        let lsn = self.journal.append_commit(16, &[&record])?;
        self.apply(lsn, &record)?;
        self.redo_lsn = self.journal.durable();
        Ok(())
    }

    fn apply(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), StoreError> {
        let number = u64_at(record, 0).expect("a record has a number");
        if number != self.number + 1 {
            let why = format!("record {number} at {lsn} is redone on a state behind record {}", self.number);
            return Err(StoreError::Corrupt(why.into()));
        }
        let (slot, what, pages) = (record[8] as usize, record[9], u32::from(record[10]));
        self.space.applying(lsn);
        if self.root.0 == 0 {
            self.root = self.space.allocate(1)?;
        }
        let old = self.slots[slot];
        if what == 1 && old.pages == 1 {
            self.put(Slot { value: number, ..old }, slot);
        } else {
            let new = if what == 0 {
                Slot::default()
            } else {
                Slot { first: self.space.allocate(pages)?, pages, value: number }
            };
            if old.pages > 0 {
                self.cache.remove(&old.first);
                self.space.free(old.first, old.pages);
            }
            self.put(new, slot);
        }
        self.number = number;
        let mut bytes = vec![0; PAGE];
        PageHeader { kind: Kind::Leaf, level: 0, flags: 0, tree: 0, lsn: lsn.0 }.put(&mut bytes);
        bytes[32..40].copy_from_slice(&number.to_le_bytes());
        for (entry, slot) in bytes[40..].chunks_exact_mut(16).zip(&self.slots) {
            entry[..4].copy_from_slice(&slot.first.0.to_le_bytes());
            entry[4..8].copy_from_slice(&slot.pages.to_le_bytes());
            entry[8..].copy_from_slice(&slot.value.to_le_bytes());
        }
        page::seal(self.root, &mut bytes);
        self.cache.insert(self.root, Entry { bytes, is_dirty: true });
        Ok(())
    }

    fn put(&mut self, new: Slot, slot: usize) {
        self.slots[slot] = new;
        if new.pages > 0 {
            let bytes = content(new.value, new.first, new.pages);
            self.cache.insert(new.first, Entry { bytes, is_dirty: true });
        }
    }

    pub(crate) fn writer(&mut self) -> &mut CheckpointWriter {
        self.writer.as_mut().expect("no thread has it")
    }

    pub(crate) fn take_writer(&mut self) -> CheckpointWriter {
        self.writer.take().expect("no thread has it")
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.cache.values().filter(|entry| entry.is_dirty).map(|entry| entry.bytes.len() as u64).sum()
    }

    pub(crate) fn values(&self) -> Values {
        self.slots.map(|slot| slot.value)
    }

    /// Returns what is dirty now, as a cache would.
    pub(crate) fn begin_checkpoint(&mut self) -> CheckpointBegin {
        let mut checkpoint = ToyDirtyPages { fresh: Vec::new(), changed: Vec::new(), images: BTreeMap::new() };
        for (first, entry) in self.cache.iter_mut().filter(|(_, entry)| entry.is_dirty) {
            entry.is_dirty = false;
            let pages = (entry.bytes.len() / PAGE) as u32;
            if self.space.is_in_checkpoint(*first, pages) {
                assert_eq!(pages, 1, "a run of several pages does not change");
                checkpoint.changed.push(*first);
            } else {
                checkpoint.fresh.push((*first, pages));
            }
            checkpoint.images.insert(*first, entry.bytes.clone());
        }
        CheckpointBegin {
            redo_lsn: self.redo_lsn,
            catalog: self.root,
            next_tree: 7,
            micros: self.number,
            dirty: Box::new(checkpoint),
            map: self.space.begin_checkpoint(self.redo_lsn),
        }
    }

    /// Writes every dirty fresh run in place, as a cache under pressure would.
    pub(crate) fn write_early(&mut self) -> Result<(), StoreError> {
        for (first, entry) in self.cache.iter_mut().filter(|(_, entry)| entry.is_dirty) {
            let pages = (entry.bytes.len() / PAGE) as u32;
            if !self.space.is_in_checkpoint(*first, pages) {
                self.data_devices.write(*first, &entry.bytes)?;
                entry.is_dirty = false;
            }
        }
        Ok(())
    }

    /// Runs a checkpoint; `between` runs before each step, and ends the checkpoint by returning `false`.
    pub(crate) fn checkpoint_with(
        &mut self,
        close: bool,
        mut between: impl FnMut(&mut Toy, Step) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let begin = self.begin_checkpoint();
        let mut checkpoint = self.writer().begin(begin, close);
        while let Some(step) = checkpoint.next_step() {
            if !between(self, step)? {
                return Ok(false);
            }
            if let Some(written) = self.writer().step(&mut checkpoint)? {
                self.journal.truncate(written.redo_lsn)?;
                self.space.set_horizon(written.redo_lsn);
            }
        }
        Ok(true)
    }

    pub(crate) fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.checkpoint_with(false, |_, _| Ok(true)).map(|_| ())
    }
}

/// What was done and acknowledged, each with its moment in the recording.
#[derive(Clone, Default)]
pub(crate) struct History {
    /// The values after record n.
    pub(crate) states: Vec<Values>,
    /// Operations executed at that moment, records acknowledged at that moment.
    pub(crate) acknowledged: Vec<(usize, u64)>,
    /// Operations executed when the opening that restores a batch began.
    pub(crate) restoring: usize,
    /// Operations of a checkpoint that was never committed.
    pub(crate) dropped: Range<usize>,
}

impl History {
    pub(crate) fn new() -> History {
        History { states: vec![Values::default()], ..History::default() }
    }

    pub(crate) fn change(&mut self, toy: &mut Toy, shelf: &CrashShelf, op: ToyOp) -> Result<(), StoreError> {
        let number = toy.number + 1;
        let mut state = self.states[toy.number as usize];
        state[op.slot as usize] = if op.what == 0 { 0 } else { number };
        self.states.truncate(number as usize);
        self.states.push(state);
        toy.change(op)?;
        self.acknowledged.push((shelf.operations(), number));
        Ok(())
    }

    /// Whether a power failure at `point` may leave this state.
    pub(crate) fn check(&self, point: usize, toy: &Toy) -> Result<(), String> {
        let acknowledged = self.acknowledged.iter().filter(|(when, _)| *when <= point).map(|(_, n)| *n).max();
        if toy.number < acknowledged.unwrap_or(0) {
            return Err(format!("record {acknowledged:?} was acknowledged, found is the state behind {}", toy.number));
        }
        match self.states.get(toy.number as usize) {
            Some(state) if *state == toy.values() => Ok(()),
            expected => Err(format!("behind record {}: {:?} instead of {expected:?}", toy.number, toy.values())),
        }
    }
}
