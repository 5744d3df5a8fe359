//! Which cache belongs to which capacity, and what damage of the stored form is found.

use std::sync::Arc;

use device::{BLOCK_BYTES, DeviceError, MemoryShelf, Shelf};
use volume::VolumeError;
use volume::write_back::{CacheOptions, CachedShelf, WRITE_BACK};

use crate::write_back::rig::{BLOCK, filled, parts, small, tag_at};

type Pair = (Arc<MemoryShelf>, Arc<MemoryShelf>);

fn options() -> CacheOptions {
    small(20, 16 << 10)
}

fn fresh(identity: u8) -> Pair {
    let pair: Pair = (Arc::new(MemoryShelf::new()), Arc::new(MemoryShelf::new()));
    let options = CacheOptions { identity: [identity; 16], ..options() };
    drop(CachedShelf::create(pair.0.clone(), pair.1.clone(), &options).expect("creates"));
    pair
}

fn open(pair: &Pair) -> Result<CachedShelf, VolumeError> {
    CachedShelf::open(pair.0.clone(), pair.1.clone(), &options())
}

fn copy(shelf: &MemoryShelf) -> Arc<MemoryShelf> {
    let copy = MemoryShelf::new();
    for name in shelf.list().expect("lists") {
        let from = shelf.open(&name).expect("opens");
        let mut bytes = vec![0; from.len() as usize];
        from.read(0, &mut bytes).expect("reads");
        copy.create(&name, from.len()).expect("creates").write(0, &bytes).expect("writes");
    }
    Arc::new(copy)
}

fn why(refused: Result<CachedShelf, VolumeError>) -> String {
    match refused {
        Err(error @ VolumeError::Device(DeviceError::WrongCache { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_capacity_is_refused_without_its_cache_with_another_one_and_with_an_older_state_of_either() {
    let pair = fresh(1);
    let empty = Arc::new(MemoryShelf::new());
    assert_eq!(
        why(open(&(pair.0.clone(), empty.clone()))),
        "the capacity needs its write-back cache, and there is no cache on the cache shelf: attach that cache, or replace this \
         copy and fill it from the others"
    );
    assert!(why(open(&(pair.0.clone(), fresh(2).1))).contains("belongs to another capacity"));
    let old = (copy(&pair.0), copy(&pair.1));
    for _ in 0..2 {
        drop(open(&pair).expect("opens"));
    }
    assert!(why(open(&(pair.0.clone(), old.1.clone()))).contains("older state of it"));
    assert!(why(open(&(old.0.clone(), pair.1.clone()))).contains("the capacity is an older state"));
    assert!(matches!(open(&(empty, pair.1.clone())), Err(VolumeError::Device(DeviceError::NoShelf { .. }))));
    // Both as they were: nothing can tell, and nothing is lost.
    drop(open(&old).expect("opens"));
    assert_eq!(open(&pair).expect("opens").status().generation, 5);
}

#[test]
fn a_program_that_does_not_know_of_the_cache_finds_no_device_of_the_capacity() {
    let pair = fresh(1);
    let shelf = open(&pair).expect("opens");
    shelf.create("superblock", BLOCK).expect("creates");
    assert!(matches!(pair.0.open("superblock"), Err(DeviceError::NotFound { .. })));
}

#[test]
fn creating_refuses_a_shelf_that_has_a_cache_and_impossible_options() {
    let pair = fresh(1);
    let create = |capacity: &Arc<MemoryShelf>, cache: &Arc<MemoryShelf>, options: &CacheOptions| {
        CachedShelf::create(capacity.clone(), cache.clone(), options)
    };
    let new = || Arc::new(MemoryShelf::new());
    let other = CacheOptions { identity: [9; 16], ..options() };
    for (capacity, cache) in [(&pair.0, &new()), (&new(), &pair.1)] {
        let refused = create(capacity, cache, &other);
        assert!(matches!(refused, Err(VolumeError::Device(DeviceError::AlreadyExists { .. }))), "{refused:?}");
    }
    let impossible = [
        CacheOptions { page_bytes: 12 << 10, ..options() },
        CacheOptions { page_bytes: 2 << 20, ..options() },
        CacheOptions { cache_bytes: 3 * BLOCK, ..options() },
        CacheOptions { cache_bytes: (1 << 20) + 1, ..options() },
        CacheOptions { dirty_start: 0.8, dirty_max: 0.7, ..options() },
        CacheOptions { dirty_max: 1.1, ..options() },
        CacheOptions { dirty_start: f64::NAN, ..options() },
    ];
    for options in impossible {
        let refused = create(&new(), &new(), &options);
        assert!(matches!(refused, Err(VolumeError::Options(_))), "{options:?}");
    }
    open(&pair).expect("it is as before");
}

#[test]
fn a_creation_that_a_crash_interrupts_is_finished_or_can_be_repeated() {
    for (name, machine) in crate::write_back::rig::media(7) {
        // Two pages: an image for each of few points.
        let options = small(2, 4 << 10);
        drop(crate::write_back::rig::create(&(machine.clone() as Arc<dyn Shelf>), &options));
        let (mut finished, mut repeated) = (0, 0);
        for point in machine.points() {
            for image in machine.images(point) {
                let any: Arc<dyn Shelf> = Arc::new(image.shelf());
                let (capacity, cache) = parts(&any);
                if CachedShelf::open(capacity.clone(), cache.clone(), &options).is_ok() {
                    finished += 1;
                    continue;
                }
                let again = CachedShelf::create(capacity, cache, &options);
                drop(again.unwrap_or_else(|error| panic!("{name}, {image}: {error}")));
                repeated += 1;
            }
        }
        println!("{name}: {finished} finished, {repeated} repeated");
        assert!(finished > 3 && repeated > 3);
    }
}

/// Inverts a byte of a stored device.
fn damage(shelf: &MemoryShelf, name: &str, at: u64) {
    let device = shelf.open(name).expect("opens");
    let mut block = [0; BLOCK_BYTES];
    let start = at / BLOCK * BLOCK;
    device.read(start, &mut block).expect("reads");
    block[(at - start) as usize] ^= 0xFF;
    device.write(start, &block).expect("writes");
}

#[test]
fn damage_to_one_header_or_label_loses_nothing_and_to_both_is_reported() {
    for is_cache in [true, false] {
        for places in [&[0][..], &[1], &[0, 1]] {
            let pair = fresh(1);
            let device = open(&pair).expect("opens").create("a", BLOCK).expect("creates");
            device.write_flush(0, &filled(3, 1)).expect("writes");
            drop(device);
            let shelf = if is_cache { &pair.1 } else { &pair.0 };
            places.iter().for_each(|place| damage(shelf, WRITE_BACK, place * BLOCK + 20));
            match open(&pair) {
                Ok(shelf) => {
                    assert_eq!(places.len(), 1);
                    assert_eq!(tag_at(&*shelf.open("a").expect("opens"), 0), 3);
                }
                Err(VolumeError::Format { .. }) => assert_eq!(places.len(), 2),
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// Two headers, then the entries.
const ENTRIES_AT: u64 = 2 * BLOCK;

#[test]
fn a_damaged_entry_is_counted_and_its_page_is_as_it_was_before_or_as_the_capacity_has_it() {
    let mut older = 0;
    // Every byte of every place of the entries of two pages, one at a time.
    for at in (0..4 * 64).chain([19 * 128, 19 * 128 + 64]) {
        let pair = fresh(1);
        let shelf = open(&pair).expect("opens");
        let device = shelf.create("a", 8 * BLOCK).expect("creates");
        device.write_flush(0, &filled(1, 1)).expect("writes");
        device.write_flush(4 * BLOCK, &filled(2, 1)).expect("writes");
        device.write_flush(BLOCK, &filled(3, 1)).expect("writes");
        drop((device, shelf));
        damage(&pair.1, WRITE_BACK, ENTRIES_AT + at);
        let shelf = open(&pair).expect("opens");
        let device = shelf.open("a").expect("opens");
        let found = [0, 1, 2, 4].map(|block| tag_at(&*device, block));
        let possible = [[1, 3, 0, 2], [1, 0, 0, 2], [0, 0, 0, 2], [1, 3, 0, 0]];
        assert!(possible.contains(&found), "byte {at}: {found:?}");
        assert_eq!(shelf.status().damaged_entries, 1, "byte {at}");
        older += u64::from(found != possible[0]);
        device.write_flush(0, &filled(9, 2)).expect("writes");
        shelf.destage_all().expect("destages");
        assert_eq!([0, 1].map(|block| tag_at(&*device, block)), [9, 9]);
    }
    assert!(older > 60, "only {older} bytes mattered");
}

#[test]
fn damage_to_a_page_is_left_to_the_sums_of_the_volume_above() {
    let pair = fresh(1);
    let shelf = open(&pair).expect("opens");
    shelf.create("a", BLOCK).expect("creates").write_flush(0, &filled(1, 1)).expect("writes");
    drop(shelf);
    let pages_at = ENTRIES_AT + BLOCK;
    for page in 0..20 {
        damage(&pair.1, WRITE_BACK, pages_at + page * (16 << 10) + 5);
    }
    let shelf = open(&pair).expect("opens");
    let mut bytes = filled(0, 1);
    shelf.open("a").expect("opens").read(0, &mut bytes).expect("it reads");
    assert!(bytes != filled(1, 1), "the damage is read");
}

#[test]
fn an_entry_of_a_device_that_there_is_not_is_written_off() {
    let pair = fresh(1);
    let shelf = open(&pair).expect("opens");
    let device = shelf.create("a", 8 * BLOCK).expect("creates");
    device.write_flush(0, &filled(1, 8)).expect("writes");
    drop((device, shelf));
    // As after a crash right after the capacity has removed it.
    pair.0.remove("c1.a").expect("removes");
    let shelf = open(&pair).expect("opens");
    let status = shelf.status();
    assert_eq!((status.dirty_pages, status.entries_written), (0, 2));
    let device = shelf.create("a", 8 * BLOCK).expect("creates");
    assert_eq!((tag_at(&*device, 0), pair.0.list().expect("lists")), (0, vec!["c2.a".to_owned(), WRITE_BACK.into()]));
}
