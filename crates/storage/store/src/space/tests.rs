//! The space against a model: nothing in use, or needed by a crash or a snapshot, is ever given out; what a cut writes is what
//! opening finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};

use super::*;
use crate::space::freeze::Freeze;

const GEOMETRY: Geometry = Geometry { page_bytes: 4096, device_pages: 64 };

fn make(shelf: Arc<dyn Shelf>) -> (Arc<Devices>, Space) {
    shelf.create(&device_name(0), GEOMETRY.device_bytes()).expect("there is room");
    let home = Arc::new(Devices::open(shelf, GEOMETRY, Freeze::default(), true).expect("opens"));
    let space = Space::open(home.clone(), 0, 0).expect("no map is read");
    (home, space)
}

/// Why a page may not be given out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    InUse,
    Loose,
    /// Freed as of a record, and the cycle that must be over.
    Freed(u64, Option<u64>),
}

/// What the space should do, page by page.
#[derive(Default)]
struct Model {
    held: BTreeMap<u32, Held>,
    cut: Vec<u32>,
    horizon: u64,
    over: u64,
}

impl Model {
    fn settle(&mut self) {
        let (horizon, over) = (self.horizon, self.over);
        self.held.retain(|_, held| match held {
            Held::Freed(lsn, cycle) => *lsn > horizon || cycle.is_some_and(|cycle| cycle > over),
            _ => true,
        });
    }

    fn in_use(&self) -> Vec<u32> {
        self.held.iter().filter(|(_, held)| **held == Held::InUse).map(|(page, _)| *page).collect()
    }
}

/// Pages that a map counts, the store's own left out.
fn counted(maps: &[Bitmap]) -> Vec<u32> {
    let pages = (0..maps.len() as u32).flat_map(|device| {
        let map = &maps[device as usize];
        let used = (GEOMETRY.reserved(device)..GEOMETRY.device_pages).filter(|place| map.is_used(*place, 1));
        used.map(move |place| GEOMETRY.page(device, place).0)
    });
    pages.collect()
}

#[test]
fn no_page_is_given_out_that_the_state_a_crash_or_a_snapshot_may_need() {
    for seed in 0..60 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let shelf = Arc::new(MemoryShelf::new());
        let (home, space) = make(shelf.clone());
        let mut model = Model::default();
        let mut runs: Vec<(PageId, u32, bool)> = Vec::new();
        let (mut cycle, mut devices, mut open) = (0, 0, None);
        for lsn in 1..600 {
            space.applying(Lsn(lsn));
            match random.u8(..12) {
                0..=5 => {
                    let most = [1, 2, 7, 32][random.usize(..4)];
                    let pages = random.u32(1..=most);
                    let is_loose = random.u8(..4) == 0;
                    let first = if is_loose { space.allocate_loose(pages) } else { space.allocate(pages) };
                    let first = first.expect("devices are made");
                    assert_eq!(first.0 % pages.next_power_of_two(), 0, "seed {seed}: on a multiple of its class");
                    for page in first.0..first.0 + pages {
                        let held = if is_loose { Held::Loose } else { Held::InUse };
                        assert_eq!(model.held.insert(page, held), None, "seed {seed}: page {page} was held");
                    }
                    runs.push((first, pages, is_loose));
                }
                6..=8 if !runs.is_empty() => {
                    let (first, pages, is_loose) = runs.swap_remove(random.usize(..runs.len()));
                    let all: Vec<u32> = (first.0..first.0 + pages).collect();
                    if is_loose && random.bool() {
                        space.attach(first, pages);
                        model.held.extend(all.iter().map(|page| (*page, Held::InUse)));
                        runs.push((first, pages, false));
                    } else {
                        space.free(first, pages);
                        let is_in_cut = all.iter().any(|page| model.cut.contains(page));
                        for page in all {
                            let freed = Held::Freed(lsn, is_in_cut.then_some(cycle + 1));
                            if is_loose {
                                model.held.remove(&page)
                            } else {
                                model.held.insert(page, freed)
                            };
                        }
                    }
                }
                9 if open.is_none() => {
                    let cut = space.cut(Lsn(lsn));
                    cycle += 1;
                    assert_eq!(cut.cycle, cycle);
                    model.cut = model.in_use();
                    for (page, image) in &cut.pages {
                        home.write(*page, image).expect("memory takes it");
                    }
                    (devices, open) = (cut.devices, Some(cycle));
                    let found = Space::open(home.clone(), devices, cycle).expect("the map verifies");
                    assert_eq!(counted(&found.maps()), model.cut, "seed {seed}: what is found is what was cut");
                }
                10 => {
                    model.horizon = model.horizon.max(random.u64(..=lsn));
                    space.set_horizon(Lsn(model.horizon));
                }
                11 if open.is_some() => {
                    model.over = open.take().expect("one is open");
                    space.cleared(model.over);
                }
                _ => {}
            }
            model.settle();
            assert_eq!(counted(&space.maps()), model.in_use(), "seed {seed}");
        }
        assert!(devices > 1, "seed {seed}: too few pages to mean anything");
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
    assert_eq!(space.allocate(8).expect("what was never cut is free at once"), taken[3]);
    shelf.heal();
    assert_eq!(GEOMETRY.place(space.allocate(8).expect("there is space again")).0, 1);
}

#[test]
fn a_changed_bit_of_the_map_is_told_by_its_page() {
    let shelf = Arc::new(MemoryShelf::new());
    let (home, space) = make(shelf);
    space.allocate(1).expect("there is room");
    let cut = space.cut(Lsn(1));
    let (page, mut image) = cut.pages[0].clone();
    image[100] ^= 1;
    home.write(page, &image).expect("memory takes it");
    let error = Space::open(home, cut.devices, cut.cycle).map(|_| ()).expect_err("it is damaged");
    assert!(error.to_string().contains("page 1 (pages-0000 at 4096)"), "{error}");
}

#[test]
fn a_run_that_no_device_can_hold_is_refused() {
    let (_, space) = make(Arc::new(MemoryShelf::new()));
    for pages in [0, 33, 257] {
        assert!(matches!(space.allocate(pages), Err(StoreError::Refused(_))), "{pages}");
    }
}
