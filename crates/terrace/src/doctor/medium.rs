//! What the data directory lies on, and whether a flush there reaches the medium, as far as that can be told from above.
//!
//! A flush that returns before the medium has the bytes loses acknowledged messages with the power, and nothing that a program reads
//! proves that it does not. Three things give it away: a file system in memory; a disk that turns and is faster than its turns; and a time
//! that no medium below a block layer needs so little of. Only pulling the plug proves the opposite.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use device::{AlignedBuffer, FileOptions, FileShelf, Shelf};

use super::finding::FindingList;

/// Writes with a flush that are measured.
const FLUSHES: usize = 20;

/// A turn of a disk with 15,000 turns a minute takes 4 ms: half of one, on average, is the least for a write that reaches it.
const TURNING: Duration = Duration::from_micros(2_000);

/// A write of 4 KiB and a flush through the kernel to any drive take longer (published figures of NVMe drives with a protected cache
/// begin at about 10 us).
const ANY: Duration = Duration::from_micros(5);

/// Checks the medium of the data directory.
pub fn check(findings: &mut FindingList, data: &Path) {
    let Some(place) = data.ancestors().find(|place| place.is_dir()).filter(|place| !place.as_os_str().is_empty())
    else {
        findings.unknown("medium", "there is no folder to look at yet");
        return;
    };
    match device::os::file_system(place) {
        Err(error) => findings.unknown("medium", format!("{}: {error}", place.display())),
        Ok(found) if found.is_volatile() => findings.problem(
            "medium",
            format!("{} lies on {}, which is memory: all data are lost with the power", place.display(), found.name()),
            "set `data` to a folder on a disk",
        ),
        Ok(found) => {
            let disk = disk_of(place);
            let named = disk.as_ref().map_or("an unknown device".to_owned(), |disk| disk.describe());
            findings.fine("medium", format!("real: {} on {named}", found.name()));
            check_flush(findings, data, disk.as_ref());
        }
    }
}

/// A block device, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Disk {
    name: String,
    turns: bool,
    /// `write back`: it has a volatile cache, which flushes empty.
    cache: Option<String>,
}

impl Disk {
    fn describe(&self) -> String {
        let kind = if self.turns { "a disk that turns" } else { "no disk that turns" };
        let cache = self.cache.as_ref().map_or(String::new(), |cache| format!(", cache: {cache}"));
        format!("{} ({kind}{cache})", self.name)
    }
}

/// The disk below a folder; `None` where several or none are (overlay, btrfs, network).
fn disk_of(place: &Path) -> Option<Disk> {
    let number = fs::metadata(place).ok()?.dev();
    // makedev(3): the numbers of a device lie in pieces.
    let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
    let minor = (number & 0xff) | (number >> 12 & !0xff);
    let found = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has no queue of its own.
    let whole = found.ancestors().take(2).find(|folder| folder.join("queue").is_dir())?;
    let read = |name: &str| Some(fs::read_to_string(whole.join("queue").join(name)).ok()?.trim().to_owned());
    let name = whole.file_name()?.to_string_lossy().into_owned();
    Some(Disk { name, turns: read("rotational")? == "1", cache: read("write_cache") })
}

fn check_flush(findings: &mut FindingList, data: &Path, disk: Option<&Disk>) {
    match median_flush(data) {
        Err(error) => findings.unknown("flush", format!("not measured: {error:#}")),
        Ok(median) => judge(findings, median, disk),
    }
}

/// The median of some writes of 4 KiB with a flush, in a folder of our own that is removed at once.
fn median_flush(data: &Path) -> anyhow::Result<Duration> {
    let place = tempfile::Builder::new().prefix("terrace-doctor-").tempdir_in(data)?;
    let shelf = FileShelf::open(&place.path().join("files"), FileOptions::default())?;
    let device = shelf.create("flush", 64 << 10)?;
    shelf.remove("flush")?;
    let bytes = AlignedBuffer::zeroed(4096);
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        let begin = node::clock::monotonic();
        device.write_flush(0, &bytes)?;
        times.push(node::clock::monotonic().saturating_sub(begin));
    }
    times.sort_unstable();
    drop((device, shelf));
    place.close()?;
    Ok(times[FLUSHES / 2])
}

fn judge(findings: &mut FindingList, median: Duration, disk: Option<&Disk>) {
    let time = format!("a write of 4 KiB with a flush takes {} us", median.as_micros());
    let doubt = "look for a cache between the kernel and the medium (a controller, a virtual disk with cache=unsafe or writeback, \
                 a file system mounted with nobarrier) and make sure that it survives a power failure";
    match disk {
        Some(Disk { turns: true, .. }) if median < TURNING => {
            findings.warning(
                "flush",
                format!("{time}, less than half a turn of the disk: the bytes were not on it"),
                doubt,
            );
        }
        _ if median < ANY => {
            findings.warning("flush", format!("{time}, less than any drive needs: it may not be one"), doubt)
        }
        _ => findings.fine("flush", format!("{time}; that it survives a power failure cannot be seen from here")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;

    #[test]
    fn a_flush_that_is_faster_than_its_medium_is_doubted() {
        let disk = |turns| Disk { name: "sda".to_owned(), turns, cache: Some("write back".to_owned()) };
        for (micros, disk, state) in [
            (8_000, Some(disk(true)), FindingState::Fine),
            (300, Some(disk(true)), FindingState::Warning),
            (300, Some(disk(false)), FindingState::Fine),
            (300, None, FindingState::Fine),
            (2, Some(disk(false)), FindingState::Warning),
            (2, None, FindingState::Warning),
        ] {
            let mut findings = FindingList::default();
            judge(&mut findings, Duration::from_micros(micros), disk.as_ref());
            assert_eq!(findings.worst(), state, "{micros} us");
        }
    }

    #[test]
    fn measuring_leaves_nothing_behind() {
        let data = tempfile::tempdir().expect("a folder");
        assert!(median_flush(data.path()).expect("it is measured") > Duration::ZERO);
        assert_eq!(fs::read_dir(data.path()).expect("it lists").count(), 0);
    }
}
