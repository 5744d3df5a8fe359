//! The shelf on one device: its bytes, its slots, its crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::directory::{Directory, SlotContent, slot_bytes};
use super::*;
use crate::crash::PmemMode;
use crate::faulty::{Fault, Rule};
use crate::{CrashShelf, FaultyShelf, MemoryShelf};

const BLOCK: u64 = BLOCK_BYTES as u64;
const BYTES: u64 = 256 << 10;

fn run(start: u64, end: u64) -> Vec<Range<u64>> {
    vec![Range { start, end }]
}

fn device_in_memory() -> Arc<dyn Device> {
    let device = MemoryShelf::new().create("whole", BYTES).expect("memory");
    DeviceShelf::format("whole", &device).expect("format");
    device
}

fn open(device: &Arc<dyn Device>) -> Result<DeviceShelf, DeviceError> {
    DeviceShelf::open("whole", Arc::clone(device))
}

/// Each part with the first byte of each of its blocks.
fn content(shelf: &DeviceShelf) -> BTreeMap<String, Vec<u8>> {
    let read = |name: &String| {
        let part = shelf.open_read_only(name).expect("open");
        let mut bytes = vec![0; part.len() as usize];
        part.read(0, &mut bytes).expect("read");
        (name.clone(), bytes.chunks(BLOCK_BYTES).map(|block| block[0]).collect())
    };
    shelf.list().expect("list").iter().map(read).collect()
}

#[test]
fn the_bytes_of_a_directory_are_these() {
    let parts = [("b-1", vec![36_864..40_960, 49_152..57_344]), ("a", run(32_768, 36_864))];
    let parts = parts.into_iter().map(|(name, runs)| (name.to_owned(), runs)).collect();
    let directory = Directory { generation: 258, parts };
    let encoded = directory.encode(BYTES).expect("it fits");
    let shown = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    assert_eq!(encoded.len(), BLOCK_BYTES);
    assert_eq!(shown(&encoded[..8]), "5445525253484c46");
    assert_eq!(shown(&encoded[16..40]), "0201000000000000".to_owned() + "0000040000000000" + "38000000" + "02000000");
    assert_eq!(shown(&encoded[64..83]), "010161".to_owned() + "0080000000000000" + "0090000000000000");
    assert_eq!(shown(&encoded[83..88]), "0302622d31");
    assert_eq!(shown(&encoded[120..124]), "00000000", "zeros to the end of the block");
    assert_eq!(Directory::decode(&encoded, BYTES), SlotContent::Whole(directory));
}

#[test]
fn a_directory_with_any_bit_changed_is_refused() {
    let parts = BTreeMap::from([("part".to_owned(), run(32_768, 65_536))]);
    let encoded = Directory { generation: 3, parts }.encode(BYTES).expect("it fits").to_vec();
    let used = 64 + 2 + 4 + 16;
    for bit in 0..used * 8 {
        let mut changed = encoded.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(Directory::decode(&changed, BYTES), SlotContent::Whole(_)), "bit {bit}");
    }
    for cut in 0..used {
        assert!(!matches!(Directory::decode(&encoded[..cut], BYTES), SlotContent::Whole(_)), "cut at {cut}");
    }
}

#[test]
fn a_directory_whose_parts_cannot_be_is_refused_although_its_checksum_is_right() {
    let cases: [(&str, Vec<Range<u64>>); 6] = [
        ("inside a slot", run(16_384, 36_864)),
        ("beyond the device", run(32_768, BYTES + BLOCK)),
        ("not in blocks", run(32_768, 32_770)),
        ("empty", run(32_768, 32_768)),
        ("backwards", run(40_960, 36_864)),
        ("twice the same bytes", vec![32_768..40_960, 36_864..45_056]),
    ];
    for (what, runs) in cases {
        let directory = Directory { generation: 1, parts: BTreeMap::from([("a".to_owned(), runs)]) };
        let encoded = directory.encode(BYTES).expect("it fits");
        assert!(matches!(Directory::decode(&encoded, BYTES), SlotContent::Damaged(_)), "{what}");
    }
}

#[test]
fn damage_to_one_slot_loses_nothing_is_repaired_and_damage_to_both_is_reported() {
    let slot = slot_bytes(BYTES);
    for damaged in [&[0][..], &[slot][..], &[0, slot][..]] {
        let device = device_in_memory();
        let shelf = open(&device).expect("open");
        shelf.create("a", BLOCK).expect("create").write_flush(0, &[7; BLOCK_BYTES]).expect("write");
        drop(shelf);
        for offset in damaged {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
            device.read(*offset, &mut block).expect("read");
            block[70] ^= 1;
            device.write(*offset, &block).expect("write");
        }
        let found = open(&device);
        if damaged.len() == 2 {
            assert!(matches!(found, Err(DeviceError::Damaged { .. })), "{found:?}");
            let read_only = DeviceShelf::open_read_only("whole", Arc::clone(&device));
            assert!(matches!(read_only, Err(DeviceError::Damaged { .. })), "{read_only:?}");
            continue;
        }
        assert_eq!(content(&found.expect("one slot is enough")), BTreeMap::from([("a".to_owned(), vec![7])]));
        let slots = super::directory::read_slots(&device).expect("read");
        assert_eq!(slots[0], slots[1], "opening made them equal");
    }
}

#[test]
fn a_device_without_a_shelf_is_not_taken_for_an_empty_one() {
    let device = MemoryShelf::new().create("whole", BYTES).expect("memory");
    assert!(!DeviceShelf::is_on(&device).expect("read"));
    assert!(matches!(open(&device), Err(DeviceError::NoShelf { .. })));
    DeviceShelf::format("whole", &device).expect("format");
    assert!(DeviceShelf::is_on(&device).expect("read"));
    assert_eq!(open(&device).expect("open").list().expect("list"), Vec::<String>::new());
    let small = MemoryShelf::new().create("small", BLOCK).expect("memory");
    assert!(matches!(DeviceShelf::format("small", &small), Err(DeviceError::Full { .. })));
    assert!(matches!(DeviceShelf::open("small", small), Err(DeviceError::NoShelf { .. })));
}

#[test]
fn space_comes_back_once_the_last_handle_of_a_removed_part_is_dropped_and_reads_as_zeros() {
    let device = device_in_memory();
    let shelf = open(&device).expect("open");
    let all = shelf.free_bytes().expect("free").expect("known");
    let held = shelf.create("a", all).expect("create");
    held.write(0, &vec![9; all as usize]).expect("write");
    assert!(matches!(shelf.create("b", BLOCK), Err(DeviceError::Full { .. })));
    shelf.remove("a").expect("remove");
    assert!(matches!(shelf.create("b", BLOCK), Err(DeviceError::Full { .. })), "a handle still reads its bytes");
    let mut byte = vec![0; BLOCK_BYTES];
    held.read(0, &mut byte).expect("read");
    assert_eq!(byte[0], 9);
    drop(held);
    shelf.create("b", BLOCK).expect("create");
    shelf.create_unwritten("c", 2 * BLOCK).expect("create");
    assert_eq!(content(&shelf), BTreeMap::from([("b".to_owned(), vec![0]), ("c".to_owned(), vec![0, 0])]));
    assert_eq!(shelf.free_bytes().expect("free"), Some(all - 3 * BLOCK));
}

#[test]
fn a_part_in_several_runs_is_one_device() {
    let device = device_in_memory();
    let shelf = open(&device).expect("open");
    let pieces = shelf.free_bytes().expect("free").expect("known") / BLOCK;
    for index in 0..pieces {
        shelf.create(&format!("p{index}"), BLOCK).expect("create");
    }
    for index in (0..pieces).step_by(2) {
        shelf.remove(&format!("p{index}")).expect("remove");
    }
    let blocks = pieces.div_ceil(2);
    let part = shelf.create("scattered", blocks * BLOCK).expect("create");
    let bytes: Vec<u8> = (0..blocks).flat_map(|index| [index as u8 + 1; BLOCK_BYTES]).collect();
    part.write_flush(0, &bytes).expect("write");
    part.discard(BLOCK, 2 * BLOCK).expect("discard");
    drop(shelf);
    let found = content(&open(&device).expect("open"));
    let expected: Vec<u8> =
        (0..blocks as u8).map(|index| if (1..3).contains(&index) { 0 } else { index + 1 }).collect();
    assert_eq!(found["scattered"], expected);
    for index in (1..pieces).step_by(2) {
        assert_eq!(found[&format!("p{index}")], [0], "neighbours are untouched");
    }
}

/// What a step of the script below acknowledged: the names, with the first byte of each block.
type Seen = BTreeMap<String, Vec<u8>>;

/// A name so long that three of them do not fit in a sector: otherwise no write of a directory could be torn.
fn long(name: &str) -> String {
    name.repeat(180)
}

/// Formats a device and changes names on it; returns, for each operation count of the machine, what had been acknowledged and what
/// was being done.
fn script(machine: &CrashShelf) -> Vec<(usize, Seen)> {
    let device = machine.create("whole", BYTES).expect("create");
    // Not zeros, so that the zeros of a new part are missed if they are not there.
    device.write_flush(0, &[0xff; BYTES as usize]).expect("write");
    DeviceShelf::format("whole", &device).expect("format");
    let shelf = open(&device).expect("open");
    for name in ["x", "y"] {
        let part = shelf.create(&long(name), BLOCK).expect("create");
        part.write_flush(0, &[5; BLOCK_BYTES]).expect("write");
    }
    let mut moments = vec![(machine.operations(), content(&shelf))];
    let mut step = |change: &dyn Fn(&DeviceShelf)| {
        change(&shelf);
        moments.push((machine.operations(), content(&shelf)));
    };
    step(&|shelf| drop(shelf.create(&long("a"), BLOCK).expect("create")));
    step(&|shelf| drop(shelf.create(&long("b"), 2 * BLOCK).expect("create")));
    step(&|shelf| shelf.rename(&long("x"), &long("c")).expect("rename"));
    step(&|shelf| shelf.remove(&long("c")).expect("remove"));
    step(&|shelf| drop(shelf.create(&long("d"), BLOCK).expect("create")));
    step(&|shelf| shelf.rename(&long("b"), &long("x")).expect("rename"));
    moments
}

/// Checks every image of every point; returns what is wrong with the first that is.
fn check_all(machine: &CrashShelf, moments: &[(usize, Seen)]) -> Result<u64, String> {
    let mut images = 0;
    for point in machine.points().filter(|point| *point >= moments[0].0) {
        // What was acknowledged before this point, and what is there if the step that is running succeeds.
        let done = moments.iter().rposition(|(at, _)| *at <= point).expect("the first is before");
        let allowed: BTreeSet<&Seen> = moments[done..].iter().take(2).map(|(_, seen)| seen).collect();
        for image in machine.images(point) {
            images += 1;
            let device = image.shelf().open("whole").expect("the device was made before");
            let found = open(&device).map_err(|error| format!("{image}: {error}"))?;
            let seen = content(&found);
            // A write in flight may be torn between blocks of the content, never between names.
            let is_allowed = allowed.contains(&seen);
            if !is_allowed {
                return Err(format!("{image}: {seen:?} is none of {allowed:?}"));
            }
        }
    }
    Ok(images)
}

#[test]
fn create_remove_and_rename_are_atomic_and_persistent_in_every_crash_image() {
    let media = [
        ("sectors", CrashShelf::new(11)),
        ("ADR", CrashShelf::pmem(11, PmemMode::Adr)),
        ("pages", CrashShelf::pmem(11, PmemMode::Pages)),
    ];
    for (medium, machine) in media {
        let moments = script(&machine);
        let images = check_all(&machine, &moments).unwrap_or_else(|wrong| panic!("{medium}: {wrong}"));
        assert!(images > 500, "{medium}: {images} images");
        println!("{medium}: {images} images");
    }
}

/// Mutation check. A flush may be left out if another one follows before the next write to a slot, and if it finds nothing to make
/// persistent; that of the format has acknowledged nothing.
#[test]
fn each_flush_of_a_change_of_names_is_needed() {
    let whole = CrashShelf::new(0);
    let moments = script(&whole);
    let persists = whole.persists();
    let is_slot = |step: &crate::crash::Step| step.range().is_some_and(|(_, at, _)| at < 2 * slot_bytes(BYTES));
    let mut needed = 0;
    for (nth, persist) in persists.iter().enumerate().filter(|(_, persist)| persist.step >= moments[0].0) {
        let is_needed = (0..200).any(|seed| {
            let machine = CrashShelf::new(seed);
            machine.omit(nth);
            let moments = script(&machine);
            check_all(&machine, &moments).is_err()
        });
        let next = persists.get(nth + 1).map_or(persist.step, |next| next.step);
        let is_covered = !whole.trace()[persist.step..next].iter().any(is_slot);
        println!("{persist:?}: {}", if is_needed { "needed" } else { "left out without effect" });
        assert!(is_needed || is_covered || persist.atoms == 0, "{persist:?} was left out, and no image was wrong");
        needed += usize::from(is_needed);
    }
    assert!(needed > 8, "{needed}");
}

#[test]
fn a_failed_write_of_the_directory_leaves_the_names_as_they_were_and_poisons() {
    let faulty = FaultyShelf::new(Arc::new(MemoryShelf::new()));
    let device = faulty.create("whole", BYTES).expect("create");
    DeviceShelf::format("whole", &device).expect("format");
    let shelf = open(&device).expect("open");
    shelf.create("a", BLOCK).expect("create");
    faulty.inject(Rule::nth(Operation::Flush, 1, Fault::Eio));
    let failed = shelf.rename("a", "b");
    assert!(matches!(failed, Err(DeviceError::Io { .. })), "{failed:?}");
    assert!(matches!(shelf.rename("a", "b"), Err(DeviceError::Poisoned { .. })));
    assert_eq!(shelf.list().expect("list"), ["a"]);
    drop((shelf, device));
    let shelf = open(&faulty.open("whole").expect("open")).expect("open");
    let names = shelf.list().expect("list");
    assert!(names == ["a"] || names == ["b"], "{names:?}");
}
