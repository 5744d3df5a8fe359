//! The space against a model: pages in use, or needed after a crash or by a snapshot, are never allocated; opening
//! finds what a checkpoint wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};

use super::*;
use crate::space::poison::Poison;

const GEOMETRY: Geometry = Geometry { page_bytes: 4096, device_pages: 64 };

fn make(shelf: Arc<dyn Shelf>) -> (Arc<DataDevices>, Space) {
    shelf.create(&device_name(0), GEOMETRY.device_bytes()).expect("there is room");
    let data_devices = Arc::new(DataDevices::open(shelf, GEOMETRY, Poison::default(), true).expect("opens"));
    let space = Space::open(data_devices.clone(), 0, 0).expect("no map is read");
    (data_devices, space)
}

/// Why a page must not be allocated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    InUse,
    Uncommitted,
    /// Removed from the state as of a checkpoint, and not freed.
    PendingFree,
    /// Freed as of a record, and the checkpoint that must be over.
    Freed(u64, Option<u64>),
}

/// The expected behaviour of the space, page by page.
#[derive(Default)]
struct Model {
    held: BTreeMap<u32, Held>,
    checkpoint: Vec<u32>,
    horizon: u64,
    over: u64,
}

impl Model {
    fn settle(&mut self) {
        let (horizon, over) = (self.horizon, self.over);
        self.held.retain(|_, held| match held {
            Held::Freed(lsn, checkpoint) => *lsn > horizon || checkpoint.is_some_and(|checkpoint| checkpoint > over),
            _ => true,
        });
    }

    fn in_use(&self) -> Vec<u32> {
        self.held.iter().filter(|(_, held)| **held == Held::InUse).map(|(page, _)| *page).collect()
    }
}

/// Pages that a map counts, without the store's own.
fn counted(maps: &[Bitmap]) -> Vec<u32> {
    let pages = (0..maps.len() as u32).flat_map(|device| {
        let map = &maps[device as usize];
        let used = (GEOMETRY.reserved(device)..GEOMETRY.device_pages).filter(|place| map.is_used(*place, 1));
        used.map(move |place| GEOMETRY.page(device, place).0)
    });
    pages.collect()
}

/// A space and its model.
struct Rig {
    random: fastrand::Rng,
    data_devices: Arc<DataDevices>,
    space: Space,
    model: Model,
    /// First page, pages, whether it is uncommitted.
    runs: Vec<(PageId, u32, bool)>,
    /// First page, pages, the last checkpoint when it was pending free.
    pending_free: Vec<(PageId, u32, u64)>,
    checkpoint: u64,
    devices: u32,
    /// A checkpoint that has begun and is not over.
    open: Option<u64>,
}

impl Rig {
    fn allocate(&mut self) {
        let most = [1, 2, 7, 32][self.random.usize(..4)];
        let pages = self.random.u32(1..=most);
        let is_uncommitted = self.random.u8(..4) == 0;
        let first = if is_uncommitted { self.space.allocate_uncommitted(pages) } else { self.space.allocate(pages) };
        let first = first.expect("devices are made");
        assert_eq!(first.0 % pages.next_power_of_two(), 0, "on a multiple of its class");
        let held = if is_uncommitted { Held::Uncommitted } else { Held::InUse };
        for page in first.0..first.0 + pages {
            assert_eq!(self.model.held.insert(page, held), None, "page {page} was held");
        }
        self.runs.push((first, pages, is_uncommitted));
    }

    fn hold(&mut self, first: PageId, pages: u32, held: Held) {
        self.model.held.extend((first.0..first.0 + pages).map(|page| (page, held)));
    }

    fn free(&mut self, lsn: u64) {
        let (first, pages, is_uncommitted) = self.runs.swap_remove(self.random.usize(..self.runs.len()));
        if is_uncommitted && self.random.bool() {
            self.space.attach(first, pages);
            self.hold(first, pages, Held::InUse);
            return self.runs.push((first, pages, false));
        }
        self.space.free(first, pages);
        let mut all = first.0..first.0 + pages;
        if is_uncommitted {
            return all.for_each(|page| assert_eq!(self.model.held.remove(&page), Some(Held::Uncommitted)));
        }
        let is_in_checkpoint = all.any(|page| self.model.checkpoint.contains(&page));
        self.hold(first, pages, Held::Freed(lsn, is_in_checkpoint.then_some(self.checkpoint + 1)));
    }

    fn mark_pending_free(&mut self) {
        let (first, pages, is_uncommitted) = self.runs.swap_remove(self.random.usize(..self.runs.len()));
        if is_uncommitted {
            return self.runs.push((first, pages, true));
        }
        self.space.mark_pending_free(first, pages);
        self.hold(first, pages, Held::PendingFree);
        self.pending_free.push((first, pages, self.checkpoint));
    }

    fn free_pending(&mut self) {
        let (first, pages, then) = self.pending_free.swap_remove(self.random.usize(..self.pending_free.len()));
        self.space.free(first, pages);
        // If it is in the last checkpoint, the next one must be over; else the last one must be.
        let is_in_checkpoint =
            then == self.checkpoint && (first.0..first.0 + pages).any(|page| self.model.checkpoint.contains(&page));
        self.hold(first, pages, Held::Freed(0, Some(self.checkpoint + u64::from(is_in_checkpoint))));
    }

    fn begin_checkpoint(&mut self, lsn: u64) {
        let checkpoint = self.space.begin_checkpoint(Lsn(lsn));
        self.checkpoint += 1;
        assert_eq!(checkpoint.checkpoint, self.checkpoint);
        self.model.checkpoint = self.model.in_use();
        for (page, image) in &checkpoint.pages {
            self.data_devices.write(*page, image).expect("memory takes it");
        }
        (self.devices, self.open) = (checkpoint.devices, Some(self.checkpoint));
        let found = Space::open(self.data_devices.clone(), self.devices, self.checkpoint).expect("the map verifies");
        assert_eq!(counted(&found.maps()), self.model.checkpoint, "what is found is what the checkpoint had");
    }

    fn step(&mut self, lsn: u64) {
        self.space.applying(Lsn(lsn));
        match self.random.u8(..12) {
            0..=5 => self.allocate(),
            6..=8 if !self.runs.is_empty() => self.free(lsn),
            9 if self.random.bool() && !self.runs.is_empty() => self.mark_pending_free(),
            10 if self.random.bool() && !self.pending_free.is_empty() => self.free_pending(),
            9 if self.open.is_none() => self.begin_checkpoint(lsn),
            10 => {
                self.model.horizon = self.model.horizon.max(self.random.u64(..=lsn));
                self.space.set_horizon(Lsn(self.model.horizon));
            }
            11 => {
                if let Some(over) = self.open.take() {
                    self.model.over = over;
                    self.space.checkpoint_over(over);
                }
            }
            _ => {}
        }
        self.model.settle();
        assert_eq!(counted(&self.space.maps()), self.model.in_use());
    }
}

#[test]
fn no_page_is_given_out_that_the_state_a_crash_or_a_snapshot_may_need() {
    for seed in 0..60 {
        println!("seed {seed}");
        let (data_devices, space) = make(Arc::new(MemoryShelf::new()));
        let mut rig = Rig {
            random: fastrand::Rng::with_seed(seed),
            data_devices,
            space,
            model: Model::default(),
            runs: Vec::new(),
            pending_free: Vec::new(),
            checkpoint: 0,
            devices: 0,
            open: None,
        };
        (1..600).for_each(|lsn| rig.step(lsn));
        assert!(rig.devices > 1, "too few pages to mean anything");
    }
}

#[test]
fn a_full_shelf_is_told_and_room_is_found_again() {
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let (_, space) = make(shelf.clone());
    shelf.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    let mut taken = Vec::new();
    let error = loop {
        match space.allocate(8) {
            Ok(first) => taken.push(first),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    assert_eq!(taken.len(), 7, "the first class of 8 pages is partly the store's own");
    space.free(taken[3], 8);
    space.set_horizon(Lsn(1));
    assert_eq!(space.allocate(8).expect("what no checkpoint had is free at once"), taken[3]);
    shelf.heal();
    assert_eq!(GEOMETRY.place(space.allocate(8).expect("there is space again")).0, 1);
}

#[test]
fn a_changed_bit_of_the_map_is_told_by_its_page_and_what_it_is_of_counts_as_in_use() {
    let shelf = Arc::new(MemoryShelf::new());
    let (data_devices, space) = make(shelf);
    space.allocate(1).expect("there is room");
    let checkpoint = space.begin_checkpoint(Lsn(1));
    let (page, mut image) = checkpoint.pages[0].clone();
    image[100] ^= 1;
    data_devices.write(page, &image).expect("memory takes it");
    let opened = Space::open(data_devices.clone(), checkpoint.devices, checkpoint.checkpoint)
        .expect("a damaged map page is no error");
    let told = data_devices.quarantine().list();
    assert!(told.len() == 1 && told[0].why.contains("page 1 (pages-0000 at 4096)"), "{told:?}");
    let usage = opened.usage();
    assert_eq!(usage.used, usage.pages, "none of it is given out");
    let page = opened.allocate(1).expect("another device is made");
    assert!(u64::from(page.0) >= usage.pages, "{page} lies in it");
    assert!(
        opened.begin_checkpoint(Lsn(2)).pages.iter().any(|(written, _)| *written == PageId(1)),
        "it is written anew"
    );
}

#[test]
fn a_run_that_no_device_can_hold_is_refused() {
    let (_, space) = make(Arc::new(MemoryShelf::new()));
    for pages in [0, 33, 257] {
        assert!(matches!(space.allocate(pages), Err(StoreError::Refused(_))), "{pages}");
    }
}
