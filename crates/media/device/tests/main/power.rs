//! Tests of files and names on a real kernel that loses power: `TERRACE_POWER_TEST=1 cargo test -p device power` as
//! root.
//!
//! ```text
//!   FileShelf on ext4 on a loop device on disk.img --- after each operation: copy disk.img = what the drive had received
//!                                                        mount the copy (the file system recovers), look
//! ```
//!
//! Everything that a call guaranteed must be on the copy. Data that was not flushed is not on it, which the canary
//! proves. The loop device forwards every request at once, so this tests the system calls, and not whether the drive's
//! cache is flushed: the crash shelf tests that. The test is skipped without the variable, without root or without
//! `mkfs.ext4`.

use std::path::{Path, PathBuf};
use std::process::Command;

use device::{BLOCK_BYTES, FileOptions, FileShelf, Shelf};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Small enough to copy after every operation, large enough for the journal of ext4.
const DISK_BYTES: u64 = 48 << 20;

/// A mounted image of a disk. It is unmounted when dropped, also by a failed test.
struct Mount {
    at: PathBuf,
}

impl Mount {
    fn new(image: &Path, at: PathBuf) -> Mount {
        std::fs::create_dir_all(&at).expect("make a mount point");
        // The file system commits every 5 s on its own; this test allows only commits that it requests.
        run(Command::new("mount").args(["-o", "loop,commit=300"]).arg(image).arg(&at));
        Mount { at }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.at).status();
        println!("umount {}: {status:?}", self.at.display());
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("start a command");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A new disk in a directory. If that is not possible, prints the reason and returns `None`.
fn disk(home: &Path) -> Option<PathBuf> {
    if std::env::var_os("TERRACE_POWER_TEST").is_none() {
        println!("skipped: set TERRACE_POWER_TEST=1, and be root");
        return None;
    }
    let image = home.join("disk.img");
    std::fs::File::create_new(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("make a disk");
    run(Command::new("mkfs.ext4").arg("-q").arg(&image));
    Some(image)
}

/// The devices that exist if the power fails now: names, and the first byte of each block.
fn after_power_failure(home: &Path, disk: &Path) -> Vec<(String, Vec<u8>)> {
    let copy = home.join("copy.img");
    std::fs::copy(disk, &copy).expect("copy the disk");
    let mount = Mount::new(&copy, home.join("copy"));
    let shelf = FileShelf::open(&mount.at.join("shelf"), FileOptions::default()).expect("open the copy");
    let names = shelf.list().expect("list");
    let content = |name: &String| {
        let device = shelf.open(name).expect("open");
        let mut bytes = vec![0; device.len() as usize];
        device.read(0, &mut bytes).expect("read");
        bytes.iter().step_by(BLOCK_BYTES).copied().collect()
    };
    names.iter().map(|name| (name.clone(), content(name))).collect()
}

fn devices(list: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    list.iter().map(|(name, blocks)| (name.to_string(), blocks.to_vec())).collect()
}

#[test]
fn what_a_call_promised_is_there_after_the_power_failed() {
    let home = tempfile::tempdir().expect("temporary directory");
    let Some(disk) = disk(home.path()) else { return };
    let mount = Mount::new(&disk, home.path().join("disk"));
    for (turn, (direct, uring)) in [(true, false), (true, true), (false, false), (false, true)].into_iter().enumerate()
    {
        let directory = mount.at.join("shelf");
        let shelf =
            FileShelf::open(&directory, FileOptions { direct, uring, ..FileOptions::default() }).expect("open a shelf");
        println!("turn {turn}: {}", shelf.kind());
        let expect = |list: &[(&str, &[u8])], what: &str| {
            assert_eq!(after_power_failure(home.path(), &disk), devices(list), "turn {turn}: after {what}");
        };
        expect(&[], "opening");
        let a = shelf.create("a", 3 * BLOCK).expect("create");
        expect(&[("a", &[0, 0, 0])], "create");
        a.write_flush(BLOCK, &[1; BLOCK_BYTES]).expect("write_flush");
        expect(&[("a", &[0, 1, 0])], "write_flush");
        a.write(0, &[2; BLOCK_BYTES]).expect("write");
        a.flush().expect("flush");
        expect(&[("a", &[2, 1, 0])], "flush");
        shelf.create("b", BLOCK).expect("create");
        shelf.rename("b", "c").expect("rename");
        expect(&[("a", &[2, 1, 0]), ("c", &[0])], "rename");
        a.write(2 * BLOCK, &[3; BLOCK_BYTES]).expect("write");
        drop(a);
        shelf.open("a").expect("open");
        expect(&[("a", &[2, 1, 3]), ("c", &[0])], "reopening");
        shelf.remove("c").expect("remove");
        expect(&[("a", &[2, 1, 3])], "remove");
        shelf.open("a").expect("open").discard(0, 2 * BLOCK).expect("discard");
        shelf.open("a").expect("open").flush().expect("flush");
        expect(&[("a", &[0, 0, 3])], "discard and flush");
        shelf.remove("a").expect("remove");
        let d = shelf.create_unwritten("d", 3 * BLOCK).expect("create");
        expect(&[("d", &[0, 0, 0])], "reserving");
        d.write(BLOCK, &[4; BLOCK_BYTES]).expect("write");
        d.flush().expect("flush");
        expect(&[("d", &[0, 4, 0])], "flush of what was reserved");
        d.write_flush(2 * BLOCK, &[5; BLOCK_BYTES]).expect("write_flush");
        expect(&[("d", &[0, 4, 5])], "write_flush of what was reserved");
        d.write(0, &[6; BLOCK_BYTES]).expect("write");
        drop(d);
        shelf.open("d").expect("open");
        expect(&[("d", &[6, 4, 5])], "reopening of what was reserved");
        shelf.remove("d").expect("remove");
    }
}

#[test]
fn what_was_not_flushed_is_gone_after_the_power_failed() {
    let home = tempfile::tempdir().expect("temporary directory");
    let Some(disk) = disk(home.path()) else { return };
    let mount = Mount::new(&disk, home.path().join("disk"));
    let directory = mount.at.join("shelf");
    let shelf =
        FileShelf::open(&directory, FileOptions { direct: false, uring: false, batches: false }).expect("open a shelf");
    let a = shelf.create("a", BLOCK).expect("create");
    a.write(0, &[1; BLOCK_BYTES]).expect("write, and no flush");
    std::fs::rename(directory.join("a"), directory.join("b")).expect("rename, and no fsync of the directory");
    assert_eq!(after_power_failure(home.path(), &disk), devices(&[("a", &[0])]), "neither is on the disk");
    shelf.open("b").expect("open");
    assert_eq!(shelf.list().expect("list"), ["b"]);
}
