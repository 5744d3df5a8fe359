//! Faults below the cache: what is reported, who is poisoned, and that nothing acknowledged is lost.

use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{Device, DeviceError, FaultyShelf, MemoryShelf, Operation, Shelf};
use volume::Threads;
use volume::write_back::{CacheOptions, CachePolicy, CachedShelf, WRITE_BACK};

use crate::write_back::rig::{BLOCK, filled, read, small, tag_at};

/// A cache whose capacity and cache device fail by a script.
struct Faulty {
    capacity: Arc<FaultyShelf>,
    cache: Arc<FaultyShelf>,
    memory: Arc<MemoryShelf>,
    options: CacheOptions,
}

impl Faulty {
    fn new(options: CacheOptions) -> Faulty {
        let memory = Arc::new(MemoryShelf::new());
        let faulty = |inner: Arc<MemoryShelf>| Arc::new(FaultyShelf::new(inner));
        let made =
            Faulty { capacity: faulty(memory.clone()), cache: faulty(Arc::new(MemoryShelf::new())), memory, options };
        drop(CachedShelf::create(made.capacity.clone(), made.cache.clone(), &made.options).expect("creates"));
        made
    }

    fn open(&self) -> CachedShelf {
        CachedShelf::open(self.capacity.clone(), self.cache.clone(), &self.options).expect("opens")
    }

    /// What the capacity has by itself.
    fn below(&self, name: &str, block: u64) -> u64 {
        tag_at(&*self.memory.open_read_only(name).expect("opens"), block)
    }
}

/// Two devices of eight blocks; blocks 0 to 3 of each flushed.
fn two(shelf: &CachedShelf) -> [Arc<dyn Device>; 2] {
    ["a", "b"].map(|name| {
        let device = shelf.create(name, 8 * BLOCK).expect("creates");
        for block in 0..4 {
            device.write(block * BLOCK, &filled(10 + block, 1)).expect("writes");
        }
        device.flush().expect("flushes");
        device
    })
}

fn is_poisoned(result: Result<(), DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Poisoned { .. }))
}

fn has_all(shelf: &CachedShelf) {
    for name in ["a", "b"] {
        let device = shelf.open(name).expect("opens");
        assert_eq!((0..4).map(|block| tag_at(&*device, block)).collect::<Vec<_>>(), [10, 11, 12, 13], "{name}");
    }
}

#[test]
fn a_failed_write_or_flush_of_the_cache_device_poisons_all_of_it_and_loses_nothing_flushed() {
    for operation in [Operation::Write, Operation::Flush] {
        let faulty = Faulty::new(small(20, 16 << 10));
        let shelf = faulty.open();
        let [a, b] = two(&shelf);
        faulty.cache.inject(Rule::nth(operation, 1, Fault::Eio).on(WRITE_BACK));
        let failed = a.write_flush(5 * BLOCK, &filled(99, 1));
        match failed {
            Err(DeviceError::Io { operation: found, name, .. }) => assert_eq!((found, name.as_str()), (operation, "a")),
            other => panic!("{other:?}"),
        }
        faulty.cache.heal();
        assert!(is_poisoned(a.write(0, &filled(1, 1))) && is_poisoned(b.flush()) && is_poisoned(b.discard(0, BLOCK)));
        assert!(is_poisoned(shelf.open("b").map(drop)) && is_poisoned(shelf.create("c", BLOCK).map(drop)));
        assert!(is_poisoned(shelf.destage_step().map(drop)) && shelf.status().failure.is_some());
        assert_eq!(tag_at(&*b, 3), 13, "reads go on");
        drop((a, b, shelf));
        let shelf = faulty.open();
        has_all(&shelf);
        assert!([0, 99].contains(&tag_at(&*shelf.open("a").expect("opens"), 5)));
    }
}

#[test]
fn a_capacity_that_fails_during_destaging_poisons_its_device_and_keeps_its_pages_dirty_until_it_is_opened_again() {
    for operation in [Operation::Write, Operation::Flush] {
        let faulty = Faulty::new(small(20, 16 << 10));
        let shelf = faulty.open();
        let [a, b] = two(&shelf);
        faulty.capacity.inject(Rule::nth(operation, 1, Fault::Eio).on("c1.a"));
        match shelf.destage_step() {
            Err(DeviceError::Io { operation: found, name, .. }) => assert_eq!((found, name.as_str()), (operation, "a")),
            other => panic!("{other:?}"),
        }
        assert_eq!(faulty.capacity.hits(), 1);
        assert!(is_poisoned(a.write(0, &filled(1, 1))) && is_poisoned(a.flush()));
        b.write_flush(7 * BLOCK, &filled(77, 1)).expect("the other device is as before");
        assert_eq!(faulty.below("c2.b", 2), 12, "it was destaged all the same");
        assert!(is_poisoned(shelf.destage_all()), "pages are left");
        assert!(shelf.status().failure.expect("it is shown").contains(" a "));
        has_all(&shelf);
        let a = shelf.open("a").expect("opened again it works");
        a.write_flush(5 * BLOCK, &filled(55, 1)).expect("writes");
        shelf.destage_all().expect("destages");
        assert_eq!((faulty.below("c1.a", 1), faulty.below("c1.a", 5), shelf.status().dirty_pages), (11, 55, 0));
        has_all(&shelf);
    }
}

#[test]
fn pages_that_a_failed_capacity_left_dirty_are_found_after_the_cache_is_opened_again() {
    let faulty = Faulty::new(small(20, 16 << 10));
    let shelf = faulty.open();
    drop(two(&shelf));
    faulty.capacity.inject(Rule::from(Operation::Flush, 1, Fault::Eio));
    shelf.destage_step().expect_err("the capacity cannot be flushed");
    drop(shelf);
    faulty.capacity.heal();
    let shelf = faulty.open();
    assert_eq!(shelf.status().dirty_pages, 2);
    has_all(&shelf);
    shelf.destage_all().expect("destages");
    assert_eq!(faulty.below("c1.a", 3), 13);
}

#[test]
fn a_read_that_fails_below_is_reported_and_poisons_nothing_and_clean_blocks_come_from_the_capacity() {
    let faulty = Faulty::new(CacheOptions { policy: CachePolicy::ReadWrite, ..small(20, 16 << 10) });
    let shelf = faulty.open();
    let [a, _] = two(&shelf);
    faulty.capacity.inject(Rule::nth(Operation::Read, 1, Fault::Eio));
    let mut buffer = filled(0, 1);
    assert!(matches!(a.read(6 * BLOCK, &mut buffer), Err(DeviceError::Io { name, .. }) if name == "a"));
    assert_eq!(tag_at(&*a, 6), 0);
    // Dirty: only the cache has it.
    faulty.cache.inject(Rule::nth(Operation::Read, 1, Fault::Eio));
    match a.read(2 * BLOCK, &mut buffer) {
        Err(DeviceError::Io { name, offset, .. }) => assert_eq!((name.as_str(), offset), ("a", 2 * BLOCK)),
        other => panic!("{other:?}"),
    }
    shelf.destage_all().expect("destages");
    let before = shelf.status();
    faulty.cache.inject(Rule::nth(Operation::Read, 1, Fault::Eio));
    assert_eq!(tag_at(&*a, 2), 12, "clean: the capacity has it");
    assert!(shelf.status().read_misses > before.read_misses);
    a.write_flush(0, &filled(1, 1)).expect("nothing is poisoned");
}

#[test]
fn a_dirty_page_that_cannot_be_read_is_set_aside_and_destaged_once_it_is_written_again() {
    let faulty = Faulty::new(small(20, 16 << 10));
    let shelf = faulty.open();
    let [a, b] = two(&shelf);
    faulty.cache.inject(Rule::nth(Operation::Read, 1, Fault::Eio));
    shelf.destage_step().expect_err("page 0 of a cannot be read");
    assert!(is_poisoned(shelf.destage_all()), "it is left");
    assert_eq!((faulty.below("c1.a", 0), faulty.below("c2.b", 0)), (0, 10));
    b.flush().expect("nothing is poisoned");
    a.write_flush(0, &filled(44, 1)).expect("writes");
    shelf.destage_all().expect("destages");
    assert_eq!((faulty.below("c1.a", 0), faulty.below("c1.a", 3)), (44, 13));
}

#[test]
fn a_write_past_the_cache_is_acknowledged_by_a_flush_only_if_the_capacity_was_flushed() {
    let faulty = Faulty::new(CacheOptions { bypass_bytes: Some(2 * BLOCK), ..small(20, 16 << 10) });
    let shelf = faulty.open();
    let [a, b] = two(&shelf);
    a.write(5 * BLOCK, &filled(5, 2)).expect("writes");
    assert_eq!(faulty.below("c1.a", 6), 5, "it went past");
    faulty.capacity.inject(Rule::nth(Operation::Flush, 1, Fault::Eio).on("c1.a"));
    assert!(matches!(a.flush(), Err(DeviceError::Io { .. })));
    assert!(is_poisoned(a.flush()) && is_poisoned(a.write(0, &filled(1, 1))));
    b.write_flush(0, &filled(10, 1)).expect("the other device is as before");
    drop((a, b));
    faulty.capacity.inject(Rule::nth(Operation::Write, 1, Fault::Eio).on("c1.a"));
    let a = shelf.open("a").expect("opens");
    assert!(matches!(a.write(5 * BLOCK, &filled(6, 2)), Err(DeviceError::Io { .. })) && is_poisoned(a.flush()));
    has_all(&shelf);
}

#[test]
fn a_write_that_waits_for_a_capacity_that_fails_is_refused_and_other_devices_go_on() {
    let threads = Threads::Background;
    let faulty = Faulty::new(CacheOptions { threads, dirty_start: 0.9, dirty_max: 1.0, ..small(4, 4 << 10) });
    let shelf = faulty.open();
    let a = shelf.create("a", 64 * BLOCK).expect("creates");
    let b = shelf.create("b", 64 * BLOCK).expect("creates");
    faulty.capacity.inject(Rule::from(Operation::Write, 1, Fault::Eio).on("c1.a"));
    let failed = (0..64).find_map(|block| a.write(block * BLOCK, &filled(block, 1)).err());
    assert!(matches!(failed, Some(DeviceError::Poisoned { .. })), "{failed:?}");
    for block in 0..64 {
        b.write(block * BLOCK, &filled(block, 1)).expect("past the cache, which is full");
    }
    b.flush().expect("flushes");
    assert!((0..64).all(|block| tag_at(&*b, block) == block));
    assert!(shelf.status().passed_bytes > 0);
}

#[test]
fn a_populating_write_that_fails_poisons_the_cache_and_the_read_has_its_bytes() {
    let faulty = Faulty::new(CacheOptions { policy: CachePolicy::ReadWrite, ..small(20, 16 << 10) });
    let shelf = faulty.open();
    let [a, _] = two(&shelf);
    faulty.cache.inject(Rule::nth(Operation::Write, 1, Fault::Eio));
    assert_eq!(tag_at(&*a, 6), 0);
    assert!(is_poisoned(a.flush()));
    assert_eq!((tag_at(&*a, 6), tag_at(&*a, 1)), (0, 11));
    drop((a, shelf));
    has_all(&faulty.open());
}

#[test]
fn a_closed_cache_refuses_changes_and_has_everything_when_it_is_opened_again() {
    let faulty = Faulty::new(CacheOptions { threads: Threads::Background, ..small(20, 16 << 10) });
    let shelf = faulty.open();
    let [a, _] = two(&shelf);
    a.write(6 * BLOCK, &filled(6, 1)).expect("writes");
    shelf.close().expect("closes");
    assert!(is_poisoned(a.write(0, &filled(1, 1))) && is_poisoned(shelf.open("a").map(drop)));
    assert_eq!(read(&*a, 6, 1), filled(6, 1));
    drop((a, shelf));
    let shelf = faulty.open();
    has_all(&shelf);
    assert_eq!(tag_at(&*shelf.open("a").expect("opens"), 6), 6);
}
