//! One test suite for every kind of device: it checks each guarantee of the contract.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use device::crash::PmemMode;
use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{
    AlignedBuffer, BLOCK_BYTES, CrashShelf, Device, DeviceError, DeviceShelf, FaultyShelf, FileOptions, FileShelf,
    MemoryShelf, Shelf, WORD_BYTES,
};

use crate::seeds;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Runs a check on a new shelf of every kind.
fn on_every_kind(check: impl Fn(&str, &dyn Shelf)) {
    let home = tempfile::tempdir().expect("temporary directory");
    let file = |name: &str, direct, uring| -> Arc<dyn Shelf> {
        let shelf = FileShelf::open(&home.path().join(name), FileOptions { direct, uring, ..FileOptions::default() })
            .expect("open a shelf");
        println!("{name}: {}", shelf.kind());
        Arc::new(shelf)
    };
    let pmem = |directory: &Path, absent| -> Arc<dyn Shelf> {
        let shelf = PmemShelf::open(directory, PmemOptions { absent }).expect("open a shelf");
        println!("{}: {}", directory.display(), shelf.mapping());
        Arc::new(shelf)
    };
    let memory_of_the_machine = Path::new("/dev/shm");
    let volatile = memory_of_the_machine.is_dir().then(|| {
        let directory = tempfile::tempdir_in(memory_of_the_machine).expect("temporary directory");
        let shelf = FileShelf::open(directory.path(), FileOptions::default()).expect("open a shelf");
        let lines = pmem(&directory.path().join("lines"), Absent::Emulate);
        (directory, Arc::new(shelf) as Arc<dyn Shelf>, lines)
    });
    let mut kinds: Vec<(&str, Arc<dyn Shelf>)> = vec![
        ("memory", Arc::new(MemoryShelf::new())),
        ("file", file("file", true, false)),
        ("file, io_uring", file("uring", true, true)),
        ("file, buffered", file("buffered", false, false)),
        ("file, buffered, io_uring", file("buffered-uring", false, true)),
        ("crash without a crash", Arc::new(CrashShelf::new(0))),
        ("faulty memory without a fault", Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())))),
        ("faulty file without a fault", Arc::new(FaultyShelf::new(file("faulty", true, true)))),
    ];
    if let Some(node) = device::memory::nodes().expect("nodes").first() {
        match MemoryShelf::on_node(node.number) {
            Ok(shelf) => kinds.push(("memory of a node", Arc::new(shelf))),
            Err(DeviceError::Io { source, .. }) if source.kind() == io::ErrorKind::Unsupported => {
                println!("skipped: memory of a node: {source}");
            }
            Err(error) => panic!("open a shelf: {error}"),
        }
    }
    let crash = |mode| Arc::new(CrashShelf::pmem(0, mode)) as Arc<dyn Shelf>;
    kinds.push(("persistent memory by line, ADR without a crash", crash(PmemMode::Adr)));
    kinds.push(("persistent memory by line, eADR without a crash", crash(PmemMode::Eadr)));
    kinds.push(("persistent memory by page without a crash", crash(PmemMode::Pages)));
    kinds.push(("persistent memory by line, faulty without a fault", Arc::new(FaultyShelf::new(crash(PmemMode::Adr)))));
    kinds.push(("persistent memory by line", pmem(&home.path().join("lines"), Absent::Emulate)));
    kinds.push(("persistent memory by page", pmem(&home.path().join("pages"), Absent::Pages)));
    for (kind, shelf) in [
        ("parts of a device in memory", Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>),
        ("parts of a file", file("parts", true, true)),
        ("persistent memory by line, parts of it", pmem(&home.path().join("parts-lines"), Absent::Emulate)),
    ] {
        let device = shelf.create("whole", 64 << 20).expect("create");
        DeviceShelf::format(kind, &device).expect("format");
        kinds.push((kind, Arc::new(DeviceShelf::open(kind, device).expect("open a shelf"))));
    }
    if let Some((_, shelf, lines)) = &volatile {
        kinds.push(("file on tmpfs", Arc::clone(shelf)));
        kinds.push(("persistent memory by line on tmpfs", Arc::clone(lines)));
    }
    for (kind, shelf) in kinds {
        check(kind, &*shelf);
    }
}

fn read(device: &dyn Device, offset: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    device.read(offset, &mut buffer).expect("read");
    buffer.to_vec()
}

#[test]
fn a_new_device_has_its_length_and_reads_as_zeros() {
    on_every_kind(|kind, shelf| {
        // Longer than the pieces in which files are filled with zeros, and no multiple of a piece.
        let bytes = (1 << 20) + 5 * BLOCK;
        let device = shelf.create("a", bytes).expect("create");
        let is_by_line = kind.starts_with("persistent memory by line");
        let block = if is_by_line { WORD_BYTES } else { BLOCK_BYTES };
        assert_eq!((device.len(), device.block_bytes() as usize), (bytes, block), "{kind}");
        assert!(read(&*device, 0, bytes as usize).iter().all(|b| *b == 0), "{kind}");
    });
}

#[test]
fn reads_see_completed_writes_through_any_handle_and_any_memory() {
    on_every_kind(|kind, shelf| {
        for seed in seeds(3) {
            agrees_with_a_flat_vector(kind, shelf, seed);
        }
    });
}

fn agrees_with_a_flat_vector(kind: &str, shelf: &dyn Shelf, seed: u64) {
    let blocks = 40;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = vec![0; blocks * BLOCK_BYTES];
    let name = format!("model-{seed}");
    let mut device = shelf.create(&name, model.len() as u64).expect("create");
    for step in 0..150 {
        let first = random.usize(..blocks);
        let range = first * BLOCK_BYTES..(first + random.usize(..=blocks - first)) * BLOCK_BYTES;
        let at = range.start as u64;
        // One byte further the memory is not aligned for direct I/O.
        let shift = random.usize(..=1);
        let mut memory = AlignedBuffer::zeroed(range.len() + shift);
        random.fill(&mut memory);
        let data = &mut memory[shift..];
        match random.u8(..12) {
            0..=2 => {
                device.write(at, data).expect("write");
                model[range.clone()].copy_from_slice(data);
            }
            3..=5 => {
                device.write_flush(at, data).expect("write_flush");
                model[range.clone()].copy_from_slice(data);
            }
            6 => device.flush().expect("flush"),
            7 => {
                device.discard(at, range.len() as u64).expect("discard");
                model[range.clone()].fill(0);
            }
            8 => device = shelf.open(&name).expect("open"),
            9 => {
                shelf.open_read_only(&name).expect("open read-only").read(at, data).expect("read");
                assert!(*data == model[range.clone()], "{kind}, SEED={seed}, step {step}: read-only handle");
            }
            _ => {
                device.read(at, data).expect("read");
                assert!(*data == model[range.clone()], "{kind}, SEED={seed}, step {step}");
            }
        }
    }
    assert!(read(&*device, 0, model.len()) == model, "{kind}, SEED={seed}: at the end");
}

#[test]
fn names_are_unique_listed_in_order_and_can_be_changed_and_removed() {
    on_every_kind(|kind, shelf| {
        for name in ["b", "a", "c-1.x_Y"] {
            shelf
                .create(name, BLOCK)
                .expect("create")
                .write_flush(0, &[name.as_bytes()[0]; BLOCK_BYTES])
                .expect("write");
        }
        assert_eq!(shelf.list().expect("list"), ["a", "b", "c-1.x_Y"], "{kind}");
        assert!(matches!(shelf.create("a", BLOCK), Err(DeviceError::AlreadyExists { name }) if name == "a"), "{kind}");
        assert!(matches!(shelf.rename("a", "b"), Err(DeviceError::AlreadyExists { name }) if name == "b"), "{kind}");
        shelf.rename("a", "d").expect("rename");
        shelf.remove("b").expect("remove");
        assert_eq!(shelf.list().expect("list"), ["c-1.x_Y", "d"], "{kind}");
        assert_eq!(read(&*shelf.open("d").expect("open"), 0, BLOCK_BYTES), [b'a'; BLOCK_BYTES], "{kind}");
        shelf.create("a", 2 * BLOCK).expect("a freed name can be taken again");
        assert_eq!(read(&*shelf.open("a").expect("open"), 0, 2 * BLOCK_BYTES), [0; 2 * BLOCK_BYTES], "{kind}");
    });
}

#[test]
fn of_several_threads_that_create_one_name_one_succeeds_and_the_others_are_told() {
    on_every_kind(|kind, shelf| {
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| shelf.create("a", 1 << 20))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{kind}");
        let is_told = |result: &Result<_, _>| matches!(result, Ok(_) | Err(DeviceError::AlreadyExists { .. }));
        assert!(results.iter().all(is_told), "{kind}: {results:?}");
        assert_eq!(shelf.list().expect("list"), ["a"], "{kind}");
    });
}

#[test]
fn a_device_that_was_only_reserved_is_as_one_that_was_written() {
    on_every_kind(|kind, shelf| {
        let device = shelf.create_unwritten("a", 64 * BLOCK).expect("create");
        assert_eq!(device.len(), 64 * BLOCK, "{kind}");
        device.write(9 * BLOCK, &[7; BLOCK_BYTES]).expect("write");
        device.flush().expect("flush");
        let again = shelf.open("a").expect("open");
        for (block, byte) in [(0, 0), (8, 0), (9, 7), (10, 0), (63, 0)] {
            assert_eq!(read(&*again, block * BLOCK, BLOCK_BYTES), [byte; BLOCK_BYTES], "{kind}: block {block}");
        }
        assert!(matches!(shelf.create_unwritten("a", BLOCK), Err(DeviceError::AlreadyExists { .. })), "{kind}");
        shelf.remove("a").expect("remove");
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    on_every_kind(|kind, shelf| {
        let is_not_found = |result: Result<(), DeviceError>| {
            assert!(matches!(result, Err(DeviceError::NotFound { name }) if name == "a"), "{kind}");
        };
        is_not_found(shelf.open("a").map(drop));
        is_not_found(shelf.open_read_only("a").map(drop));
        is_not_found(shelf.remove("a"));
        is_not_found(shelf.rename("a", "b"));
        assert!(shelf.list().expect("list").is_empty(), "{kind}");
    });
}

#[test]
fn a_handle_outlives_its_name() {
    on_every_kind(|kind, shelf| {
        let device = shelf.create("a", BLOCK).expect("create");
        shelf.rename("a", "b").expect("rename");
        device.write_flush(0, &[1; BLOCK_BYTES]).expect("write after rename");
        assert_eq!(read(&*shelf.open("b").expect("open"), 0, BLOCK_BYTES), [1; BLOCK_BYTES], "{kind}");
        shelf.remove("b").expect("remove");
        device.write_flush(0, &[2; BLOCK_BYTES]).expect("write after remove");
        assert_eq!(read(&*device, 0, BLOCK_BYTES), [2; BLOCK_BYTES], "{kind}");
    });
}

#[test]
fn a_read_only_handle_reads_and_refuses_to_change() {
    on_every_kind(|kind, shelf| {
        let writer = shelf.create("a", BLOCK).expect("create");
        let viewer = shelf.open_read_only("a").expect("open read-only");
        writer.write(0, &[3; BLOCK_BYTES]).expect("write");
        let refusals = [
            viewer.write(0, &[4; BLOCK_BYTES]),
            viewer.write_flush(0, &[4; BLOCK_BYTES]),
            viewer.flush(),
            viewer.discard(0, BLOCK),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, Err(DeviceError::ReadOnly { .. })), "{kind}: {refusal:?}");
        }
        assert_eq!(read(&*viewer, 0, BLOCK_BYTES), [3; BLOCK_BYTES], "{kind}");
    });
}

#[test]
fn many_threads_write_and_flush_one_device_and_every_write_arrives() {
    const THREADS: u64 = 7;
    const TURNS: u8 = 20;
    on_every_kind(|kind, shelf| {
        let device = shelf.create("a", 2 * THREADS * BLOCK).expect("create");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let device = &device;
                scope.spawn(move || {
                    for turn in 1..=TURNS {
                        let data = AlignedBuffer::from(&[turn; 2 * BLOCK_BYTES][..]);
                        let at = 2 * thread * BLOCK;
                        if turn.is_multiple_of(3) {
                            device.write(at, &data).expect("write");
                            device.flush().expect("flush");
                        } else {
                            device.write_flush(at, &data).expect("write_flush");
                        }
                        assert!(read(&**device, at, data.len()) == data[..]);
                    }
                });
            }
        });
        assert!(read(&*device, 0, device.len() as usize).iter().all(|b| *b == TURNS), "{kind}");
    });
}

#[test]
fn empty_transfers_are_allowed_up_to_the_very_end() {
    on_every_kind(|kind, shelf| {
        let device = shelf.create("a", BLOCK).expect("create");
        for at in [0, BLOCK] {
            device.read(at, &mut []).unwrap_or_else(|error| panic!("{kind}: {error}"));
            device.write(at, &[]).unwrap_or_else(|error| panic!("{kind}: {error}"));
            device.write_flush(at, &[]).unwrap_or_else(|error| panic!("{kind}: {error}"));
            device.discard(at, 0).unwrap_or_else(|error| panic!("{kind}: {error}"));
        }
    });
}

#[test]
fn what_no_caller_may_ask_panics_and_changes_nothing() {
    on_every_kind(|kind, shelf| {
        let device = shelf.create("a", 2 * BLOCK).expect("create");
        let panics = |what: &str, call: &dyn Fn()| {
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{kind}: {what} did not panic");
        };
        let block = [0; BLOCK_BYTES];
        let half = device.block_bytes() / 2;
        panics("an offset inside a block", &|| drop(device.write(half.into(), &block)));
        panics("half a block", &|| drop(device.write_flush(0, &block[..half as usize])));
        panics("a read past the end", &|| drop(device.read(2 * BLOCK, &mut [0; BLOCK_BYTES])));
        panics("a write across the end", &|| drop(device.write(BLOCK, &[0; 2 * BLOCK_BYTES])));
        panics("an offset near the largest number", &|| drop(device.write(u64::MAX - 4095, &block)));
        panics("a discard past the end", &|| drop(device.discard(0, 3 * BLOCK)));
        for name in ["", ".", "..", ".hidden", "a/b", "lock", "a b", "\u{e4}", &"x".repeat(201)] {
            panics(name, &|| drop(shelf.create(name, BLOCK)));
            panics(name, &|| drop(shelf.rename("a", name)));
        }
        panics("a device of no bytes", &|| drop(shelf.create("b", 0)));
        panics("a device of part of a block", &|| drop(shelf.create("b", 100)));
        assert_eq!(shelf.list().expect("list"), ["a"], "{kind}");
        device.write_flush(0, &block).expect("the device is as good as before");
    });
}
