//! Tests of files only: a lock, half-made devices, foreign files, a full disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use device::{BLOCK_BYTES, DeviceError, Durability, Extent, FileOptions, FileShelf, Shelf, free_bytes};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn open(directory: &Path) -> FileShelf {
    FileShelf::open(directory, FileOptions::default()).expect("open a shelf")
}

#[test]
fn a_second_writer_is_told_who_holds_the_shelf_and_a_viewer_is_let_in() {
    let home = tempfile::tempdir().expect("temporary directory");
    fs::write(home.path().join("lock"), "4294967295\n").expect("the number of a process long gone");
    let shelf = open(home.path());
    let device = shelf.create("a", BLOCK).expect("create");
    let second = FileShelf::open(home.path(), FileOptions::default()).expect_err("locked");
    assert!(matches!(second, DeviceError::Busy { holder: Some(pid), .. } if pid == std::process::id()), "{second}");
    assert!(second.to_string().contains(&format!("in use by process {}", std::process::id())), "{second}");

    let viewer = FileShelf::open_read_only(home.path()).expect("open read-only");
    device.write_flush(0, &[5; BLOCK_BYTES]).expect("write");
    let mut seen = [0; BLOCK_BYTES];
    viewer.open_read_only("a").expect("open read-only").read(0, &mut seen).expect("read");
    assert_eq!(seen, [5; BLOCK_BYTES]);
    assert_eq!(viewer.list().expect("list"), ["a"]);
}

#[test]
fn the_lock_is_held_until_the_last_device_is_closed() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelf = open(home.path());
    let device = shelf.create("a", BLOCK).expect("create");
    drop(shelf);
    let second = FileShelf::open(home.path(), FileOptions::default());
    assert!(matches!(second, Err(DeviceError::Busy { .. })), "a device is still open to write");
    drop(device);
    drop(open(home.path()));
}

#[test]
fn a_shelf_opened_read_only_changes_nothing() {
    let home = tempfile::tempdir().expect("temporary directory");
    drop(open(home.path()).create("a", BLOCK).expect("create"));
    fs::write(home.path().join(".b.making"), "half made by the writer right now").expect("write");
    let viewer = FileShelf::open_read_only(home.path()).expect("open read-only");
    let refusals =
        [viewer.create("b", BLOCK).map(drop), viewer.open("a").map(drop), viewer.remove("a"), viewer.rename("a", "b")];
    for refusal in refusals {
        assert!(matches!(refusal, Err(DeviceError::ReadOnly { .. })), "{refusal:?}");
    }
    assert!(home.path().join(".b.making").exists());
    let missing = FileShelf::open_read_only(&home.path().join("missing"));
    assert!(matches!(missing, Err(DeviceError::NotFound { .. })), "{missing:?}");
}

#[test]
fn a_directory_is_made_with_its_ancestors_and_found_again() {
    let home = tempfile::tempdir().expect("temporary directory");
    let deep = home.path().join("one/two/three");
    open(&deep).create("a", 3 * BLOCK).expect("create").write_flush(BLOCK, &[7; BLOCK_BYTES]).expect("write");
    let device = open(&deep).open("a").expect("open");
    let mut bytes = [0; 3 * BLOCK_BYTES];
    device.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [[0; BLOCK_BYTES], [7; BLOCK_BYTES], [0; BLOCK_BYTES]].concat()[..]);
}

#[test]
fn a_device_that_a_crash_left_half_made_is_removed_by_the_next_writer() {
    let home = tempfile::tempdir().expect("temporary directory");
    fs::write(home.path().join(".a.making"), [0; 100]).expect("write");
    let shelf = open(home.path());
    assert!(shelf.list().expect("list").is_empty());
    assert!(!home.path().join(".a.making").exists());
    shelf.create("a", BLOCK).expect("create");
    let left: Vec<_> =
        fs::read_dir(home.path()).expect("read").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left.len(), 2, "the device and the lock, nothing else: {left:?}");
}

/// Open descriptors of this process on files in `home`.
fn descriptors(home: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("the system has them");
    open.filter(|entry| {
        let link = entry.as_ref().ok().and_then(|entry| fs::read_link(entry.path()).ok());
        link.is_some_and(|link| link.starts_with(home) && link != home && !link.ends_with("lock"))
    })
    .count()
}

#[test]
fn a_device_takes_one_descriptor_and_one_more_only_where_two_threads_flush_it_side_by_side() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelf = open(home.path());
    let made: Vec<_> = (0..8).map(|n| shelf.create(&format!("a{n}"), 4 * BLOCK).expect("create")).collect();
    for device in &made {
        device.write(0, &[1; BLOCK_BYTES]).expect("write");
        device.write_flush(BLOCK, &[2; BLOCK_BYTES]).expect("write");
        device.flush().expect("flush");
    }
    assert_eq!(descriptors(home.path()), 8, "made");
    drop(made);
    let opened: Vec<_> = (0..8).map(|n| shelf.open(&format!("a{n}")).expect("open")).collect();
    assert_eq!(descriptors(home.path()), 8, "opened");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &opened[0];
            scope.spawn(move || {
                for _ in 0..50 {
                    device.write_flush(thread * BLOCK, &[3; BLOCK_BYTES]).expect("write");
                    device.flush().expect("flush");
                }
            });
        }
    });
    assert!(descriptors(home.path()) <= 9, "four threads, two descriptors");
}

#[test]
fn what_is_stored_is_its_users_alone_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().expect("temporary directory");
    let folder = home.path().join("one/two");
    let shelf = open(&folder);
    shelf.create("a", BLOCK).expect("create");
    shelf.create_unwritten("b", BLOCK).expect("create");
    let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    for file in ["a", "b", "lock"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    for folder in [home.path().join("one"), folder] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
}

#[test]
fn other_files_are_not_taken_for_devices() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelf = open(home.path());
    fs::create_dir(home.path().join("directory")).expect("make a directory");
    fs::write(home.path().join("has space"), "").expect("write");
    fs::write(home.path().join("notes.txt"), "four score").expect("write");
    fs::write(home.path().join("empty"), "").expect("write");
    assert_eq!(shelf.list().expect("list"), ["empty", "notes.txt"]);
    for (name, size) in [("notes.txt", 10), ("empty", 0)] {
        for opened in [shelf.open(name), shelf.open_read_only(name)] {
            assert!(matches!(opened, Err(DeviceError::NotADevice { bytes, .. }) if bytes == size), "{name}");
        }
    }
    assert!(shelf.open("directory").is_err());
    assert!(matches!(shelf.create("notes.txt", BLOCK), Err(DeviceError::AlreadyExists { .. })));
    assert_eq!(fs::read(home.path().join("notes.txt")).expect("read"), b"four score");
}

#[test]
fn a_device_larger_than_the_free_space_is_refused_and_leaves_nothing_behind() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelf = open(home.path());
    let wanted = (free_bytes(home.path()).expect("statfs") * 4).next_multiple_of(BLOCK);
    let full = shelf.create("a", wanted).expect_err("too large");
    assert!(matches!(full, DeviceError::Full { bytes, .. } if bytes == wanted), "{full}");
    assert!(shelf.list().expect("list").is_empty());
    shelf.create("a", BLOCK).expect("a smaller one fits");
}

#[test]
fn the_space_of_a_device_is_allocated_when_create_returns() {
    use std::os::unix::fs::MetadataExt;
    let home = tempfile::tempdir().expect("temporary directory");
    open(home.path()).create("a", 8 << 20).expect("create");
    let found = fs::metadata(home.path().join("a")).expect("metadata");
    assert!(found.blocks() * 512 >= 8 << 20, "only {} of {} bytes are allocated", found.blocks() * 512, found.len());
}

#[test]
fn the_kind_says_what_is_used_and_what_was_refused() {
    let home = tempfile::tempdir().expect("temporary directory");
    for options in 0..8 {
        let [direct, uring, batches] = [1, 2, 4].map(|bit| options & bit != 0);
        let shelf = FileShelf::open(home.path(), FileOptions { direct, uring, batches }).expect("open a shelf");
        let kind = shelf.kind();
        println!("{kind}");
        // A requested feature is either used or listed as missing. A feature that was not requested is not used.
        let granted = [(direct, kind.direct), (uring, kind.uring), (batches, kind.batches)];
        assert!(granted.iter().all(|(wanted, used)| *wanted || !*used), "{kind}");
        let missing = granted.iter().filter(|(wanted, used)| *wanted && !*used).count();
        assert_eq!(kind.refused.len(), missing, "{kind}");
        let device = shelf.create(&format!("a{options}"), BLOCK).expect("create");
        assert_eq!(device.waits_by_itself(), kind.batches, "{kind}");
    }
}

#[test]
fn memory_of_the_machine_is_not_called_durable() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        println!("skipped: no /dev/shm");
        return;
    }
    let home = tempfile::tempdir_in(memory).expect("temporary directory");
    let shelf = open(home.path());
    let device: Arc<dyn device::Device> = shelf.create("a", BLOCK).expect("create");
    assert_eq!(device.durability(), Durability::None);
    assert_eq!(shelf.kind().durability, Durability::None);
}

#[test]
fn a_sparse_file_takes_space_as_it_is_written_or_reserved_and_gives_it_back() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelf = open(home.path());
    let device = match shelf.create_sparse("a", 1 << 40) {
        Err(DeviceError::Unsupported { .. }) => return println!("skipped: the file system has no holes"),
        made => made.expect("it takes no space"),
    };
    let allocated = || device.allocated_bytes().expect("known");
    let metadata = 64 << 10;
    assert!(allocated() < metadata, "{}", allocated());
    device.write(4 * BLOCK, &[7; 2 * BLOCK_BYTES]).expect("it writes");
    device.reserve(1 << 30, 4 << 20).expect("there is space");
    device.flush().expect("it flushes");
    assert!(allocated() >= 4 << 20, "{}", allocated());
    let extents = |offset, bytes| device.extents(offset, bytes).expect("known");
    let extent = |blocks: u64, has_space| Extent { bytes: blocks * BLOCK, has_space };
    assert_eq!(extents(2 * BLOCK, 8 * BLOCK), [extent(2, false), extent(2, true), extent(4, false)]);
    assert_eq!(extents(4 * BLOCK, 2 * BLOCK), [extent(2, true)]);
    assert_eq!((extents(100 * BLOCK, 50 * BLOCK), extents(0, 0)), (vec![extent(50, false)], vec![]));
    let mut seen = vec![1; 3 * BLOCK_BYTES];
    device.read(4 * BLOCK, &mut seen).expect("it reads");
    assert!(
        seen[..2 * BLOCK_BYTES].iter().all(|byte| *byte == 7) && seen[2 * BLOCK_BYTES..].iter().all(|byte| *byte == 0)
    );
    device.discard(1 << 30, 4 << 20).expect("it discards");
    device.discard(4 * BLOCK, 2 * BLOCK).expect("it discards");
    device.flush().expect("it flushes");
    assert_eq!(extents(2 * BLOCK, 8 * BLOCK), [extent(8, false)]);
    assert!(allocated() < metadata, "{}", allocated());
    drop(device);
    assert_eq!(shelf.open("a").expect("it is there").len(), 1 << 40);
}
