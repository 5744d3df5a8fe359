//! The crash simulator produces every result that the contract allows, and no other.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::{BLOCK_BYTES, CrashShelf, Device, DeviceError, Durability, Operation, SECTOR_BYTES, Shelf};

use crate::seeds;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The first byte of every sector of a device on a shelf.
fn sectors(shelf: &dyn Shelf, name: &str) -> Vec<u8> {
    let device = shelf.open_read_only(name).expect("open");
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).expect("read");
    for sector in bytes.chunks(SECTOR_BYTES) {
        assert!(sector.iter().all(|b| *b == sector[0]), "a sector is never a mixture");
    }
    bytes.iter().step_by(SECTOR_BYTES).copied().collect()
}

/// Every different content of a device in the images of the last point.
fn outcomes(shelf: &CrashShelf, name: &str) -> BTreeSet<Vec<u8>> {
    shelf.images(shelf.operations()).map(|image| sectors(&image.shelf(), name)).collect()
}

fn write(device: &dyn Device, block: u64, value: u8) {
    device.write(block * BLOCK, &[value; BLOCK_BYTES]).expect("write");
}

#[test]
fn a_flushed_write_is_in_every_image_and_an_unflushed_one_may_vanish_stay_or_tear_at_any_sector() {
    let shelf = CrashShelf::new(1);
    let device = shelf.create("a", BLOCK).expect("create");
    write(&*device, 0, 1);
    device.flush().expect("flush");
    assert_eq!(outcomes(&shelf, "a"), BTreeSet::from([vec![1; 8]]));
    write(&*device, 0, 2);
    let found = outcomes(&shelf, "a");
    for cut in 0..=8 {
        let head = [vec![2; cut], vec![1; 8 - cut]].concat();
        let tail = [vec![1; cut], vec![2; 8 - cut]].concat();
        assert!(found.contains(&head) && found.contains(&tail), "torn after {cut} sectors");
    }
    assert!(found.iter().flatten().all(|sector| [1, 2].contains(sector)));
}

#[test]
fn unflushed_writes_are_reordered_and_an_older_version_of_a_sector_can_come_back() {
    let shelf = CrashShelf::new(2);
    let device = shelf.create("a", 2 * BLOCK).expect("create");
    write(&*device, 0, 1);
    write(&*device, 1, 2);
    write(&*device, 1, 3);
    let found = outcomes(&shelf, "a");
    for (first, second) in [(0, 0), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)] {
        assert!(found.contains(&[[first; 8], [second; 8]].concat()), "{first} and {second}");
    }
}

#[test]
fn a_flush_covers_its_own_device_and_no_other() {
    let shelf = CrashShelf::new(3);
    let a = shelf.create("a", BLOCK).expect("create");
    let b = shelf.create("b", BLOCK).expect("create");
    write(&*a, 0, 1);
    write(&*b, 0, 1);
    a.flush().expect("flush");
    assert_eq!(outcomes(&shelf, "a").len(), 1);
    assert!(outcomes(&shelf, "b").contains(&vec![0; 8]));
}

#[test]
fn a_name_operation_in_flight_has_either_outcome_and_one_that_returned_has_one() {
    let shelf = CrashShelf::new(4);
    shelf.create("a", BLOCK).expect("create");
    shelf.rename("a", "b").expect("rename");
    shelf.remove("b").expect("remove");
    let names = |point| -> BTreeSet<Vec<String>> {
        shelf.images(point).map(|image| image.shelf().list().expect("list")).collect()
    };
    let set = |lists: &[&[&str]]| -> BTreeSet<Vec<String>> {
        lists.iter().map(|list| list.iter().map(|name| name.to_string()).collect()).collect()
    };
    assert_eq!(names(0), set(&[&[], &["a"]]));
    assert_eq!(names(1), set(&[&["a"], &["b"]]));
    assert_eq!(names(2), set(&[&["b"], &[]]));
    assert_eq!(names(3), set(&[&[]]));
}

#[test]
fn a_name_operation_says_nothing_about_unflushed_writes() {
    let shelf = CrashShelf::new(5);
    write(&*shelf.create("a", BLOCK).expect("create"), 0, 1);
    shelf.rename("a", "b").expect("rename");
    let found = outcomes(&shelf, "b");
    assert!(found.contains(&vec![0; 8]) && found.contains(&vec![1; 8]));
}

#[test]
fn opening_makes_persistent_what_a_killed_process_left_behind() {
    let shelf = CrashShelf::new(6);
    write(&*shelf.create("a", BLOCK).expect("create"), 0, 1);
    shelf.open_read_only("a").expect("a viewer makes nothing persistent");
    assert!(outcomes(&shelf, "a").contains(&vec![0; 8]));
    shelf.open("a").expect("open");
    assert_eq!(outcomes(&shelf, "a"), BTreeSet::from([vec![1; 8]]));
}

#[test]
fn a_discard_is_lost_and_torn_like_a_write() {
    let shelf = CrashShelf::new(7);
    let device = shelf.create("a", BLOCK).expect("create");
    device.write_flush(0, &[1; BLOCK_BYTES]).expect("write");
    device.discard(0, BLOCK).expect("discard");
    let found = outcomes(&shelf, "a");
    assert!(
        found.contains(&vec![1; 8]) && found.contains(&vec![0; 8]) && found.contains(&vec![0, 0, 0, 1, 1, 1, 1, 1])
    );
    device.flush().expect("flush");
    assert_eq!(outcomes(&shelf, "a"), BTreeSet::from([vec![0; 8]]));
}

/// The results that the contract allows, in a simple model: for every sector the values it may have after the failure.
struct Oracle {
    allowed: Vec<BTreeSet<u8>>,
    live: Vec<u8>,
}

impl Oracle {
    fn write(&mut self, first: usize, values: &[u8]) {
        for (at, value) in values.iter().enumerate() {
            self.live[first + at] = *value;
            self.allowed[first + at].insert(*value);
        }
    }

    fn flush(&mut self) {
        for (allowed, live) in self.allowed.iter_mut().zip(&self.live) {
            *allowed = BTreeSet::from([*live]);
        }
    }

    fn check(&self, found: &[u8], context: &dyn std::fmt::Display) {
        for (sector, (found, allowed)) in found.iter().zip(&self.allowed).enumerate() {
            assert!(allowed.contains(found), "sector {sector} holds {found}, allowed {allowed:?}; {context}");
        }
    }
}

#[test]
fn every_image_of_a_random_recording_holds_only_what_the_contract_allows() {
    for seed in seeds(20) {
        let mut random = fastrand::Rng::with_seed(seed);
        let shelf = CrashShelf::new(seed);
        let blocks = 4;
        let device = shelf.create("a", blocks as u64 * BLOCK).expect("create");
        let count = blocks * BLOCK_BYTES / SECTOR_BYTES;
        let mut oracle = Oracle { allowed: vec![BTreeSet::from([0]); count], live: vec![0; count] };
        let mut value = 0;
        for _ in 0..30 {
            let point = shelf.operations();
            let is_flush = random.u8(..4) == 0;
            if is_flush {
                device.flush().expect("flush");
            } else {
                let first = random.usize(..blocks);
                let length = random.usize(1..=blocks - first);
                value += 1;
                oracle.write(first * 8, &vec![value; length * 8]);
                device.write(first as u64 * BLOCK, &vec![value; length * BLOCK_BYTES]).expect("write");
            }
            // While the operation runs, the guarantees are those before it, and a write may be there already.
            for image in shelf.images(point) {
                oracle.check(&sectors(&image.shelf(), "a"), &format_args!("SEED={seed}: {image}"));
            }
            if is_flush {
                oracle.flush();
            }
            for image in shelf.images(shelf.operations()) {
                oracle.check(&sectors(&image.shelf(), "a"), &format_args!("SEED={seed}: {image}"));
            }
        }
    }
}

/// A small recording with operations of every kind.
fn recording(seed: u64) -> CrashShelf {
    let shelf = CrashShelf::new(seed);
    let device = shelf.create("a", 3 * BLOCK).expect("create");
    for value in 1..=3 {
        write(&*device, u64::from(value - 1), value);
    }
    device.flush().expect("flush");
    shelf.create("b", BLOCK).expect("create");
    write(&*device, 0, 4);
    shelf
}

#[test]
fn the_same_seed_gives_the_same_images_and_each_can_be_had_again_by_its_numbers() {
    let (one, two) = (recording(9), recording(9));
    let mut count = 0;
    for point in one.points() {
        for (image, twin) in one.images(point).zip(two.images(point)) {
            assert_eq!(image.to_string(), twin.to_string());
            let again = one.image(point, image.index()).expect("the same image");
            for name in image.shelf().list().expect("list") {
                let content = sectors(&image.shelf(), &name);
                assert_eq!(content, sectors(&twin.shelf(), &name), "{image}");
                assert_eq!(content, sectors(&again.shelf(), &name), "{image}");
            }
            count += 1;
        }
        assert_eq!(one.images(point).count(), two.images(point).count());
    }
    println!("{count} images of {} operations", one.operations());
    assert!(one.image(0, 1_000).is_none());
}

#[test]
fn the_power_fails_at_the_operation_asked_for_and_stays_off() {
    let whole = recording(10);
    for operation in 0..whole.operations() {
        let shelf = CrashShelf::new(10);
        shelf.crash_at(operation);
        let run = || -> Result<(), DeviceError> {
            let device = shelf.create("a", 3 * BLOCK)?;
            for value in 1..=3 {
                device.write(u64::from(value - 1) * BLOCK, &[value; BLOCK_BYTES])?;
            }
            device.flush()?;
            shelf.create("b", BLOCK)?;
            device.write(0, &[4; BLOCK_BYTES])
        };
        assert!(matches!(run(), Err(DeviceError::PowerLost)), "operation {operation}");
        assert!(matches!(shelf.list(), Err(DeviceError::PowerLost)));
        assert_eq!(shelf.operations(), operation + 1, "the one that failed is the last that was called");
        // The result equals that of enumerating the whole recording at the same point.
        let describe = |shelf: &CrashShelf| shelf.images(operation).map(|image| image.to_string()).collect::<Vec<_>>();
        assert_eq!(describe(&shelf), describe(&whole));
    }
}

#[test]
fn an_image_records_in_its_turn_so_that_recovery_can_crash_too() {
    let shelf = CrashShelf::new(11);
    write(&*shelf.create("a", BLOCK).expect("create"), 0, 1);
    let after_crash = shelf.images(1).next().expect("the image that kept nothing").shelf();
    assert_eq!(sectors(&after_crash, "a"), [0; 8]);
    assert_eq!((after_crash.operations(), after_crash.trace().len()), (0, 0));
    write(&*after_crash.open("a").expect("open"), 0, 2);
    let found = outcomes(&after_crash, "a");
    assert!(found.contains(&vec![0; 8]) && found.contains(&vec![2; 8]) && !found.contains(&vec![1; 8]));
    assert_eq!(sectors(&after_crash.images(0).next().expect("an image").shelf(), "a"), [0; 8]);
}

#[test]
fn the_trace_names_every_operation_so_that_each_flush_can_be_counted() {
    let shelf = recording(12);
    let trace: Vec<String> = shelf.trace().iter().map(ToString::to_string).collect();
    let expected = ["create a 12288", "write a 0+4096", "write a 4096+4096", "write a 8192+4096", "flush a"];
    assert_eq!(trace[..5], expected);
    assert_eq!(trace[5..], ["create b 4096", "write a 0+4096"]);
    assert_eq!(shelf.trace().iter().filter(|step| step.operation() == Operation::Flush).count(), 1);
    assert_eq!(shelf.create("c", BLOCK).expect("create").durability(), Durability::Emulated);
}

#[test]
fn what_several_threads_flushed_at_once_is_in_every_image() {
    let shelf = Arc::new(CrashShelf::new(13));
    let device = shelf.create("a", 8 * BLOCK).expect("create");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = Arc::clone(&device);
            scope.spawn(move || {
                for turn in 1..=5 {
                    device.write_flush(thread * BLOCK, &[turn; BLOCK_BYTES]).expect("write_flush");
                }
            });
        }
    });
    let expected: Vec<u8> = [[5; 8]; 4].concat().into_iter().chain([0; 32]).collect();
    assert_eq!(outcomes(&shelf, "a"), BTreeSet::from([expected]));
}
