//! Devices that fail, fill up and change bits during checkpoints.

use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{AlignedBuffer, FaultyShelf, MemoryShelf, Operation, Shelf};

use super::toy::{Toy, ToyOp, Values};
use crate::StoreError;
use crate::checkpoint::machine::Step;

fn set(slot: u8, what: u8, pages: u8) -> ToyOp {
    ToyOp { slot, what, pages }
}

/// A toy whose pages are on a shelf with faults, and whose journal and images are on one without.
fn toy() -> (Arc<MemoryShelf>, Arc<FaultyShelf>, Toy) {
    let logs = Arc::new(MemoryShelf::new());
    let data = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let mut toy = Toy::open_on(logs.clone(), data.clone()).expect("opens");
    for slot in 0..6 {
        toy.change(set(slot, 2, 1)).expect("works");
    }
    toy.checkpoint().expect("works");
    (logs, data, toy)
}

#[test]
fn a_write_or_flush_that_fails_at_any_step_poisons_the_store_and_reopening_finds_everything() {
    for (operation, nth) in [(Operation::Write, 1), (Operation::Write, 2), (Operation::Flush, 1), (Operation::Flush, 2)]
    {
        let (logs, data, mut toy) = toy();
        for slot in 0..6 {
            toy.change(set(slot, u8::from(slot % 2 == 0) + 1, 1)).expect("works");
        }
        data.inject(Rule::nth(operation, nth, Fault::Eio));
        let error = toy.checkpoint().expect_err("the device fails");
        assert_eq!(data.hits(), 1, "{operation} {nth}");
        assert!(matches!(error, StoreError::Poisoned { .. }), "{error}");
        assert!(matches!(toy.change(set(0, 1, 1)), Err(StoreError::Poisoned { .. })), "updates are refused");
        assert!(matches!(toy.checkpoint(), Err(StoreError::Poisoned { .. })), "and checkpoints");
        let mut page = vec![0; 4096];
        toy.data_devices.read(toy.superblock.catalog, &mut page).expect("reads go on");
        let values = toy.values();
        drop(toy);
        data.heal();
        let again = Toy::open_on(logs, data).expect("opens");
        assert_eq!(again.values(), values, "{operation} {nth}: nothing is lost");
    }
}

#[test]
fn a_full_medium_of_images_delays_the_checkpoint_and_changes_nothing_until_there_is_room() {
    let logs = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let data = Arc::new(MemoryShelf::new());
    let mut toy = Toy::open_on(logs.clone(), data.clone()).expect("opens");
    (0..6).for_each(|slot| toy.change(set(slot, 2, 1)).expect("works"));
    toy.checkpoint().expect("one device is enough for a root, a map and a superblock");
    // Root, six values, map and superblock need more than one device.
    (0..6).for_each(|slot| toy.change(set(slot, 1, 1)).expect("works"));
    toy.change(set(5, 2, 2)).expect("works");
    logs.inject(Rule::from(Operation::Create, 1, Fault::NoSpace).on("images-0001"));
    let begin = toy.begin_checkpoint();
    let mut checkpoint = toy.writer().begin(begin, false);
    for _ in 0..2 {
        let error = toy.writer().run(&mut checkpoint).expect_err("there is no room");
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        assert_eq!(checkpoint.next_step(), Some(Step::Reserve));
        toy.change(set(0, 1, 1)).expect("updates go on");
    }
    logs.heal();
    toy.writer().run(&mut checkpoint).expect("there is room again");
    let values = toy.values();
    drop(toy);
    assert_eq!(Toy::open_on(logs, data).expect("opens").values(), values);
}

#[test]
fn a_full_medium_of_pages_is_told_and_taken_up_again_once_there_is_room() {
    let (logs, data, toy) = toy();
    data.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    let space = &toy.space;
    let error = loop {
        if let Err(error) = space.allocate(16) {
            break error;
        }
    };
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    data.heal();
    assert_eq!(space.allocate(16).expect("there is room again").0 % 16, 0);
    let values = toy.values();
    drop(toy);
    assert_eq!(Toy::open_on(logs, data).expect("opens").values(), values);
}

fn flip(shelf: &dyn Shelf, name: &str, offset: u64) {
    let device = shelf.open(name).expect("is there");
    let mut block = AlignedBuffer::zeroed(4096);
    device.read(offset / 4096 * 4096, &mut block).expect("reads");
    block[(offset % 4096) as usize] ^= 0x10;
    device.write(offset / 4096 * 4096, &block).expect("writes");
}

fn opened(logs: Arc<MemoryShelf>, data: Arc<MemoryShelf>) -> Result<Values, String> {
    Toy::open_on(logs, data).map(|toy| toy.values()).map_err(|error| error.to_string())
}

/// A store that was killed just before `step`.
fn killed(step: Step) -> (Arc<MemoryShelf>, Arc<MemoryShelf>, Values) {
    let (logs, data) = (Arc::new(MemoryShelf::new()), Arc::new(MemoryShelf::new()));
    let mut toy = Toy::open_on(logs.clone(), data.clone()).expect("opens");
    (0..6).for_each(|slot| toy.change(set(slot, 2, 1)).expect("works"));
    toy.checkpoint().expect("works");
    (0..6).for_each(|slot| toy.change(set(slot, 1, 1)).expect("works"));
    toy.checkpoint_with(false, |_, next| Ok(next != step)).expect("works");
    (logs, data, toy.values())
}

#[test]
fn a_changed_bit_on_a_data_device_or_in_the_images_is_mended_or_named_and_never_passed_over() {
    // Invalidated: the data devices are whole, so the content of the images does not matter.
    let (logs, data, values) = killed(Step::Over);
    flip(&*logs, "images-0000", 12_288 + 77);
    assert_eq!(opened(logs, data), Ok(values));
    // Committed and not in place: a page on the data devices that changes is written again.
    let (logs, data, values) = killed(Step::InPlace(0, 8));
    flip(&*data, "pages-0000", 77);
    assert_eq!(opened(logs, data), Ok(values));
    // Committed, with a damaged image whose page is not on the data devices.
    let (logs, data, _) = killed(Step::InPlace(0, 8));
    flip(&*logs, "images-0000", 12_288 + 77);
    let why = opened(logs, data).expect_err("the page is lost");
    assert!(why.contains("is damaged: pages [0]"), "{why}");
    // The same when all pages are on the data devices.
    let (logs, data, values) = killed(Step::FlushInPlace);
    flip(&*logs, "images-0000", 12_288 + 77);
    assert_eq!(opened(logs, data), Ok(values));
    // The table is damaged.
    let (logs, data, _) = killed(Step::InPlace(0, 8));
    flip(&*logs, "images-0000", 8192);
    let why = opened(logs, data).expect_err("what is lost cannot be told");
    assert!(why.contains("its table of pages"), "{why}");
    // One copy of the header is damaged, then both.
    let (logs, data, values) = killed(Step::FlushInPlace);
    flip(&*logs, "images-0000", 20);
    assert_eq!(opened(logs.clone(), data.clone()), Ok(values));
    // The superblock is damaged, and its batch is invalidated.
    flip(&*data, "pages-0000", 300);
    assert_eq!(opened(logs.clone(), data.clone()), Ok(values), "its image is written in place again");
    // The superblock is damaged, and so is its image.
    flip(&*data, "pages-0000", 300);
    flip(&*logs, "images-0000", 12_288 + 77);
    let why = opened(logs, data).expect_err("page 0 is damaged");
    assert!(why.contains("superblock"), "{why}");
}

#[test]
fn shelves_that_do_not_belong_together_are_refused_and_say_what_to_do() {
    let (logs, data, _) = killed(Step::Over);
    let (other_logs, other_data, _) = killed(Step::Over);
    let why = opened(other_logs, data.clone()).expect_err("another store's images");
    assert!(why.contains("not of one store"), "{why}");
    let why = opened(logs.clone(), Arc::new(MemoryShelf::new())).expect_err("no pages");
    assert!(why.contains("no pages"), "{why}");
    let bare = Arc::new(MemoryShelf::new());
    let why = opened(bare, other_data).expect_err("no images");
    assert!(why.contains("write image journal is missing"), "{why}");
    data.remove("pages-0000").expect("is there");
    let why = opened(logs, data).expect_err("no first device");
    assert!(why.contains("no pages"), "{why}");
}
