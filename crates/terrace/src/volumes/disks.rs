//! The disks below a folder, to tell which copies one failed disk would take together.
//!
//! ```text
//!   folder, or what exists above it --> device number --/sys/dev/block--> partition: its disk
//!                                            |                            dm, md without redundancy: the devices below
//!                                            |                            loop: the disks below its file
//!                                            +-- none, as of tmpfs or NFS: the file system itself
//! ```
//!
//! What it does not do: it sees no disks behind a controller or a file system of its own numbers (btrfs, ZFS), nor that two disks share a
//! cable. An array with redundancy counts as one disk of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::requests::SharedDisk;

/// Where the system describes block devices.
const SYSTEM: &str = "/sys/dev/block";

/// Devices on devices are followed so far.
const DEPTH_MAX: usize = 8;

/// The names of the disks on which a folder lies, or will lie; none if that cannot be found out.
pub fn below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Some(number) = device_of(folder) {
        add(Path::new(SYSTEM), number, DEPTH_MAX, &mut found);
    }
    found
}

/// Major and minor number of the device of a file or folder, or of the nearest folder above it that exists.
fn device_of(path: &Path) -> Option<(u64, u64)> {
    let found = path.ancestors().find_map(|above| fs::metadata(above).ok())?;
    let device = found.dev();
    // As glibc takes them apart.
    Some(((device >> 8 & 0xfff) | (device >> 32 & !0xfff), (device & 0xff) | (device >> 12 & !0xff)))
}

fn add(system: &Path, (major, minor): (u64, u64), depth: usize, found: &mut BTreeSet<String>) {
    match fs::canonicalize(system.join(format!("{major}:{minor}"))) {
        Ok(device) => add_device(&device, depth, found),
        Err(_) => drop(found.insert(format!("file system {major}:{minor}"))),
    }
}

/// Adds the disks of a block device, by its folder in the system's description.
fn add_device(device: &Path, depth: usize, found: &mut BTreeSet<String>) {
    let device = match (device.join("partition").exists(), device.parent()) {
        (true, Some(disk)) => disk,
        _ => device,
    };
    let file = fs::read_to_string(device.join("loop/backing_file")).ok();
    let below = devices_below(device);
    match (file, depth) {
        (Some(file), 1..) => match device_of(Path::new(file.trim())) {
            Some(number) => add(Path::new(SYSTEM), number, depth - 1, found),
            None => drop(found.insert(name_of(device))),
        },
        (None, 1..) if !below.is_empty() => below.iter().for_each(|device| add_device(device, depth - 1, found)),
        _ => drop(found.insert(name_of(device))),
    }
}

/// The devices of which a device is made, if it fails with any of them.
fn devices_below(device: &Path) -> Vec<PathBuf> {
    let level = fs::read_to_string(device.join("md/level"));
    if level.is_ok_and(|level| !matches!(level.trim(), "raid0" | "linear")) {
        return Vec::new();
    }
    let entries = fs::read_dir(device.join("slaves")).into_iter().flatten();
    entries.filter_map(|entry| fs::canonicalize(entry.ok()?.path()).ok()).collect()
}

fn name_of(device: &Path) -> String {
    device.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The disks on which several copies lie, which are given by their disks.
pub fn shared(copies: &[BTreeSet<String>]) -> Vec<SharedDisk> {
    let all: BTreeSet<&String> = copies.iter().flatten().collect();
    let with = |disk: &String| -> Vec<u8> {
        (0u8..).zip(copies).filter(|(_, disks)| disks.contains(disk)).map(|(copy, _)| copy).collect()
    };
    let shared = all.into_iter().map(|disk| SharedDisk { disk: disk.clone(), copies: with(disk) });
    shared.filter(|shared| shared.copies.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A description of `sda` with two partitions, `sdb`, and devices made of these.
    fn system() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        let device = |path: &str, number: &str, below: &[&str]| {
            let folder = dir.path().join("devices").join(path);
            fs::create_dir_all(folder.join("slaves")).expect("a folder");
            for below in below {
                let name = Path::new(below).file_name().expect("a name");
                symlink(dir.path().join("devices").join(below), folder.join("slaves").join(name)).expect("a link");
            }
            symlink(&folder, dir.path().join(number)).expect("a link");
            folder
        };
        device("sda", "8:0", &[]);
        for (path, number) in [("sda/sda1", "8:1"), ("sda/sda2", "8:2")] {
            fs::write(device(path, number, &[]).join("partition"), "1\n").expect("a file");
        }
        device("sdb", "8:16", &[]);
        device("dm-0", "253:0", &["sda/sda2", "sdb"]);
        device("dm-1", "253:1", &["dm-0"]);
        for (name, number, level) in [("md0", "9:0", "raid1\n"), ("md1", "9:1", "raid0\n")] {
            let folder = device(name, number, &["sda/sda1", "sdb"]);
            fs::create_dir(folder.join("md")).expect("a folder");
            fs::write(folder.join("md/level"), level).expect("a file");
        }
        dir
    }

    #[test]
    fn a_device_lies_on_the_disks_with_which_it_fails() {
        let system = system();
        for (number, disks) in [
            ((8, 0), &["sda"][..]),
            ((8, 1), &["sda"]),
            ((8, 2), &["sda"]),
            ((8, 16), &["sdb"]),
            ((253, 0), &["sda", "sdb"]),
            ((253, 1), &["sda", "sdb"]),
            ((9, 0), &["md0"]),
            ((9, 1), &["sda", "sdb"]),
            ((0, 45), &["file system 0:45"]),
        ] {
            let mut found = BTreeSet::new();
            add(system.path(), number, DEPTH_MAX, &mut found);
            assert!(found.iter().eq(disks), "{number:?}: {found:?}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_yet_lies_where_the_one_above_it_does() {
        let dir = tempfile::tempdir().expect("a folder");
        let here = below(dir.path());
        assert!(!here.is_empty());
        assert_eq!(below(&dir.path().join("volumes/v/0-1")), here);
    }

    #[test]
    fn a_disk_is_shared_by_the_copies_that_have_a_part_on_it() {
        let of = |disks: &[&str]| disks.iter().map(|disk| (*disk).to_owned()).collect::<BTreeSet<String>>();
        let pairs = |copies: &[BTreeSet<String>]| {
            shared(copies).into_iter().map(|shared| (shared.disk, shared.copies)).collect::<Vec<_>>()
        };
        assert!(pairs(&[of(&["sda"]), of(&["sdb"]), of(&[])]).is_empty());
        assert_eq!(
            pairs(&[of(&["sda", "pmem0"]), of(&["sdb", "pmem0"]), of(&["sda"])]),
            [("pmem0".to_owned(), vec![0, 1]), ("sda".to_owned(), vec![0, 2])]
        );
    }
}
