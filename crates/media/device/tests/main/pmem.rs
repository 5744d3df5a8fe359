//! Tests of mapped devices only: words as blocks, lines, lost pages, and the abilities and limits of a file system.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use device::pmem::{Absent, Domain, Granularity, PmemOptions, PmemShelf};
use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, Shelf, WORD_BYTES};

use crate::seeds;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn open(directory: &Path, absent: Absent) -> PmemShelf {
    PmemShelf::open(directory, PmemOptions { absent }).expect("open a shelf")
}

fn read(device: &dyn Device, offset: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = AlignedBuffer::zeroed(bytes);
    device.read(offset, &mut buffer).expect("read");
    buffer.to_vec()
}

/// Whether the directory of these tests is on persistent memory: then all features are available.
fn is_real(directory: &Path) -> bool {
    PmemShelf::open(directory, PmemOptions::default()).is_ok()
}

#[test]
fn writes_of_every_length_at_every_word_across_lines_change_exactly_their_bytes() {
    for absent in [Absent::Emulate, Absent::Pages] {
        let home = tempfile::tempdir().expect("temporary directory");
        let device = open(home.path(), absent).create("a", 2 * BLOCK).expect("create");
        let word = device.block_bytes() as usize;
        if absent == Absent::Emulate {
            assert_eq!(word, WORD_BYTES);
        }
        let mut model = vec![0; 2 * BLOCK_BYTES];
        let mut random = fastrand::Rng::with_seed(0);
        // One byte further the memory has no alignment.
        let mut memory = vec![0; 2 * BLOCK_BYTES + 1];
        for offset in (0..=512).step_by(8).filter(|offset| offset % word == 0) {
            for bytes in (8..=600).step_by(8).chain([BLOCK_BYTES]).filter(|bytes| bytes % word == 0) {
                random.fill(&mut memory);
                let data = &memory[offset % 2..][..bytes];
                device.write_flush(offset as u64, data).expect("write");
                model[offset..offset + bytes].copy_from_slice(data);
                assert!(read(&*device, 0, model.len()) == model, "{absent:?} {offset}+{bytes}");
            }
        }
    }
}

#[test]
fn random_changes_in_words_agree_with_a_flat_vector_through_every_handle() {
    for seed in seeds(3) {
        let home = tempfile::tempdir().expect("temporary directory");
        let shelf = open(home.path(), Absent::Emulate);
        let mut device = shelf.create("a", 16 * BLOCK).expect("create");
        let viewer = PmemShelf::open_read_only(home.path()).expect("view").open_read_only("a").expect("view");
        let mut model = vec![0; 16 * BLOCK_BYTES];
        let mut random = fastrand::Rng::with_seed(seed);
        for step in 0..400 {
            let words = model.len() / WORD_BYTES;
            let first = random.usize(..words);
            let most = if random.bool() { 40 } else { words };
            let count = random.usize(..=most.min(words - first));
            let range = first * WORD_BYTES..(first + count) * WORD_BYTES;
            let at = range.start as u64;
            let mut data = vec![0; range.len()];
            random.fill(&mut data);
            match random.u8(..8) {
                0 => {
                    device.discard(at, data.len() as u64).expect("discard");
                    data.fill(0);
                    model[range].copy_from_slice(&data);
                }
                1 => device = shelf.open("a").expect("open"),
                2 => device.deep_flush().expect("deep flush"),
                3..=5 => {
                    device.write(at, &data).expect("write");
                    model[range].copy_from_slice(&data);
                }
                _ => {
                    let reader = if random.bool() { &device } else { &viewer };
                    reader.read(at, &mut data).expect("read");
                    assert!(data == model[range], "SEED={seed}, step {step}");
                }
            }
        }
        drop((device, shelf));
        let device = open(home.path(), Absent::Emulate).open("a").expect("open anew");
        assert!(read(&*device, 0, model.len()) == model, "SEED={seed}");
    }
}

#[test]
fn where_nothing_maps_synchronously_the_caller_chooses_and_the_mapping_says_what_became_of_it() {
    let home = tempfile::tempdir().expect("temporary directory");
    if is_real(home.path()) {
        println!("skipped: the temporary directory is on persistent memory");
        return;
    }
    let refused = PmemShelf::open(home.path(), PmemOptions::default()).expect_err("no persistent memory");
    assert!(matches!(refused, DeviceError::NotPersistentMemory { .. }), "{refused}");
    let text = refused.to_string();
    assert!(["MAP_SYNC", "ndctl", "dax=always", "emulation"].iter().all(|word| text.contains(word)), "{text}");

    let lines = open(home.path(), Absent::Emulate);
    let found = lines.mapping();
    println!("{found}");
    assert_eq!((found.synchronous, found.emulated), (false, true));
    assert_eq!((found.granularity, found.durability), (Granularity::Line, Durability::Emulated));
    assert_eq!(found.write_back == "none", found.domain == Domain::Eadr);
    let device = lines.create("a", BLOCK).expect("create");
    assert_eq!((device.block_bytes(), device.atom_bytes(), device.is_inline()), (8, 8, true));
    assert_eq!(device.durability(), Durability::Emulated);
    drop((lines, device));

    let pages = open(home.path(), Absent::Pages);
    let found = pages.mapping();
    println!("{found}");
    assert_eq!((found.synchronous, found.emulated, found.write_back), (false, false, "none"));
    assert_eq!(found.granularity, Granularity::Page);
    let device = pages.open("a").expect("open");
    assert_eq!((device.block_bytes(), device.atom_bytes(), device.is_inline()), (4096, 8, false));
    assert_eq!(device.durability(), found.durability);
    assert_ne!(device.durability(), Durability::Emulated);
}

#[test]
fn memory_of_the_machine_never_passes_for_persistent() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        println!("skipped: no /dev/shm");
        return;
    }
    let home = tempfile::tempdir_in(memory).expect("temporary directory");
    assert!(!is_real(home.path()));
    let by_page = open(home.path(), Absent::Pages).create("a", BLOCK).expect("create");
    assert_eq!(by_page.durability(), Durability::None);
    drop(by_page);
    let by_line = open(home.path(), Absent::Emulate).open("a").expect("open");
    assert_eq!(by_line.durability(), Durability::Emulated);
}

#[test]
fn a_second_writer_of_mapped_devices_is_refused_until_the_last_is_unmapped() {
    let home = tempfile::tempdir().expect("temporary directory");
    let device = open(home.path(), Absent::Emulate).create("a", BLOCK).expect("create");
    let second = PmemShelf::open(home.path(), PmemOptions { absent: Absent::Emulate });
    assert!(matches!(second, Err(DeviceError::Busy { .. })), "{second:?}");
    drop(device);
    drop(open(home.path(), Absent::Emulate));
    let left: Vec<_> =
        fs::read_dir(home.path()).expect("read").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left.len(), 2, "the device and the lock, no probe: {left:?}");
}

/// A device of four pages whose file was truncated to two: the other pages fail as poisoned ones do.
fn shortened(directory: &Path, absent: Absent) -> Arc<dyn Device> {
    let device = open(directory, absent).create("a", 4 * BLOCK).expect("create");
    device.write_flush(0, &[1; 4 * BLOCK_BYTES]).expect("write");
    File::options().write(true).open(directory.join("a")).expect("open").set_len(2 * BLOCK).expect("shorten");
    device
}

#[test]
fn a_page_that_is_gone_is_an_error_for_that_page_and_the_others_can_be_read_and_written() {
    for absent in [Absent::Emulate, Absent::Pages] {
        let home = tempfile::tempdir().expect("temporary directory");
        let device = shortened(home.path(), absent);
        // The first error comes from the fault, the second from the record of it.
        for turn in 0..2 {
            let lost = device.read(BLOCK, &mut [0; 2 * BLOCK_BYTES]).expect_err("half of it is gone");
            let is_it = matches!(&lost, DeviceError::Lost { name, offset: 8192, bytes: 4096 } if name == "a");
            assert!(is_it, "{absent:?}, turn {turn}: {lost}");
        }
        assert_eq!(read(&*device, 0, 2 * BLOCK_BYTES), [1; 2 * BLOCK_BYTES]);
        device.write_flush(0, &[2; BLOCK_BYTES]).expect("a write elsewhere");
        assert_eq!(read(&*device, 0, BLOCK_BYTES), [2; BLOCK_BYTES]);
    }
}

#[test]
fn writing_all_of_a_lost_page_makes_it_good_again_and_a_part_does_not() {
    for is_known in [false, true] {
        let home = tempfile::tempdir().expect("temporary directory");
        let device = shortened(home.path(), Absent::Emulate);
        if is_known {
            device.read(2 * BLOCK, &mut [0; BLOCK_BYTES]).expect_err("gone");
        }
        // More than the page: the range starts and ends inside other pages.
        let (at, bytes) = (2 * BLOCK - 64, BLOCK_BYTES + 64);
        device.write(at, &vec![3; bytes]).expect("all of a lost page");
        assert_eq!(read(&*device, at, bytes), vec![3; bytes], "{is_known}");
        let file = fs::read(home.path().join("a")).expect("read");
        assert!(file[at as usize..][..bytes].iter().all(|byte| *byte == 3), "{is_known}: through the file");

        for bytes in [8, 512] {
            let home = tempfile::tempdir().expect("temporary directory");
            let device = shortened(home.path(), Absent::Emulate);
            if is_known {
                device.read(2 * BLOCK, &mut [0; BLOCK_BYTES]).expect_err("gone");
            }
            let lost = device.write(2 * BLOCK + 8, &vec![4; bytes]).expect_err("a part");
            assert!(matches!(lost, DeviceError::Lost { offset: 8192, bytes: 4096, .. }), "{lost}");
            let later = device.write_flush(0, &[4; 8]).expect_err("as after any failed write");
            assert!(matches!(later, DeviceError::Poisoned { .. }), "{later}");
            assert_eq!(read(&*device, 0, 8), [1; 8], "reads go on");
        }
    }
}

#[test]
fn threads_that_meet_the_same_lost_page_are_all_told() {
    let home = tempfile::tempdir().expect("temporary directory");
    let device = shortened(home.path(), Absent::Emulate);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for page in [2, 3, 2, 3] {
                    let lost = device.read(page * BLOCK, &mut [0; BLOCK_BYTES]).expect_err("gone");
                    assert!(matches!(lost, DeviceError::Lost { offset, .. } if offset == page * BLOCK), "{lost}");
                }
                assert_eq!(read(&*device, 0, 64), [1; 64]);
            });
        }
    });
}

#[test]
fn a_viewer_is_told_of_a_lost_page_and_reads_the_others() {
    let home = tempfile::tempdir().expect("temporary directory");
    let _writer = shortened(home.path(), Absent::Emulate);
    // The file was mapped when it was whole, and truncated after that.
    File::options().write(true).open(home.path().join("a")).expect("open").set_len(4 * BLOCK).expect("lengthen");
    let viewer = PmemShelf::open_read_only(home.path()).expect("view");
    println!("{}", viewer.mapping());
    let device = viewer.open_read_only("a").expect("view");
    File::options().write(true).open(home.path().join("a")).expect("open").set_len(BLOCK).expect("shorten");
    let lost = device.read(BLOCK, &mut [0; BLOCK_BYTES]).expect_err("gone");
    assert!(matches!(lost, DeviceError::Lost { offset: 4096, bytes: 4096, .. }), "{lost}");
    assert_eq!(read(&*device, 0, BLOCK_BYTES), [1; BLOCK_BYTES]);
    for refusal in [device.write(0, &[0; 8]), device.flush(), device.deep_flush()] {
        assert!(matches!(refusal, Err(DeviceError::ReadOnly { .. })), "{refusal:?}");
    }
}

/// Set in the process that a test starts and that kills itself.
const DIES: &str = "DEVICE_TEST_STORES_AND_DIES";

#[test]
fn what_a_killed_process_stored_is_there_for_its_successor() {
    if let Some(directory) = std::env::var_os(DIES) {
        let device = open(Path::new(&directory), Absent::Emulate).create("a", BLOCK).expect("create");
        device.write(64, &[5; 512]).expect("write");
        device.write(1024, &[6; 8]).expect("write");
        std::process::abort();
    }
    let home = tempfile::tempdir().expect("temporary directory");
    let child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "pmem::what_a_killed_process_stored_is_there_for_its_successor"])
        .env(DIES, home.path())
        .output()
        .expect("run ourselves");
    assert!(child.status.signal().is_some(), "{child:?}");
    let device = open(home.path(), Absent::Emulate).open("a").expect("the lock died with its holder");
    let mut expected = [0; BLOCK_BYTES];
    expected[64..576].fill(5);
    expected[1024..1032].fill(6);
    assert_eq!(read(&*device, 0, BLOCK_BYTES), expected);
}

#[test]
fn poison_can_be_asked_for_only_where_a_handle_is_open() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelf = open(home.path(), Absent::Emulate);
    drop(shelf.create("a", BLOCK).expect("create"));
    for name in ["a", "b"] {
        let refused = shelf.inject_poison(name, 0).expect_err("no handle");
        assert!(matches!(refused, DeviceError::NotFound { .. }), "{refused}");
    }
}

#[test]
fn a_mapping_that_is_kept_shows_its_own_file_and_no_other_whatever_their_names_become() {
    let home = tempfile::tempdir().expect("temporary directory");
    for absent in [Absent::Emulate, Absent::Pages] {
        let shelf = open(&home.path().join(format!("{absent:?}")), absent);
        // More devices than the shelf keeps mappings of; each is written through its own handle and closed.
        let names: Vec<String> = (0..7).map(|number| format!("device-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let device = shelf.create(name, 2 * BLOCK).expect("create");
            device.write(0, &[number as u8 + 1; BLOCK_BYTES]).expect("write");
        }
        // The last two change places; one more is removed and created again with a larger size.
        shelf.rename("device-6", "aside").expect("rename");
        shelf.rename("device-5", "device-6").expect("rename");
        shelf.rename("aside", "device-5").expect("rename");
        shelf.remove("device-4").expect("remove");
        shelf.create("device-4", 3 * BLOCK).expect("create");
        let expected = [1, 2, 3, 4, 0, 7, 6];
        for (name, first) in names.iter().zip(expected) {
            let device = shelf.open(name).expect("open");
            assert_eq!(device.len(), if first == 0 { 3 * BLOCK } else { 2 * BLOCK }, "{name}");
            assert_eq!(read(&*device, 0, BLOCK_BYTES), [first; BLOCK_BYTES], "{name}");
            device.write(BLOCK, &[first + 100; BLOCK_BYTES]).expect("write");
            device.flush().expect("flush");
        }
        for (name, first) in names.iter().zip(expected) {
            let file = std::fs::read(home.path().join(format!("{absent:?}")).join(name)).expect("read");
            assert_eq!(file[BLOCK_BYTES..2 * BLOCK_BYTES], [first + 100; BLOCK_BYTES], "{name}");
        }
    }
}

#[test]
fn a_device_opened_anew_remembers_no_loss_that_has_been_made_good() {
    for absent in [Absent::Emulate, Absent::Pages] {
        let home = tempfile::tempdir().expect("temporary directory");
        let shelf = open(home.path(), absent);
        let device = shelf.create("a", 2 * BLOCK).expect("create");
        let resize = |bytes| {
            let file = File::options().write(true).open(home.path().join("a")).expect("open");
            file.set_len(bytes).expect("resize");
        };
        resize(BLOCK);
        device.read(BLOCK, &mut [0; BLOCK_BYTES]).expect_err("gone");
        drop(device);
        resize(2 * BLOCK);
        let device = shelf.open("a").expect("open anew");
        assert_eq!(read(&*device, BLOCK, BLOCK_BYTES), [0; BLOCK_BYTES], "{absent:?}");
    }
}

/// After a failed sync, the page cache has pages that are not on the medium. Reopening drops them, unless they are
/// still mapped elsewhere.
#[test]
fn by_page_nothing_is_mapped_once_it_is_closed_so_that_opening_reads_from_the_medium() {
    let home = tempfile::tempdir().expect("temporary directory");
    if is_real(home.path()) {
        println!("skipped: the temporary directory is on persistent memory, which has no cache of pages");
        return;
    }
    let shelf = open(home.path(), Absent::Pages);
    let is_mapped = || fs::read_to_string("/proc/self/maps").expect("read").contains(&*home.path().to_string_lossy());
    let device = shelf.create("a", BLOCK).expect("create");
    assert!(is_mapped());
    drop(device);
    assert!(!is_mapped());
}
