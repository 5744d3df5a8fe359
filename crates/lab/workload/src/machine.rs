//! The machine of a run: processor, memory, kernel, and the file system under a folder.
//!
//! Read from `/proc`; a value that cannot be read is reported as unknown, because the other results are still useful.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Logical processors this process may use.
    pub cores: usize,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let cpu = proc_value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
        let memory = proc_value("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()));
        Machine {
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.unwrap_or(0) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        }
    }
}

/// The machine's load in the last minute, from proc(5); other programs disturb figures.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The file system that holds a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// Its type, as `ext4`.
    pub kind: String,
    /// The mounted device, as `/dev/nvme0n1p2`.
    pub source: String,
}

impl FileSystem {
    /// The file system that holds `folder`, which must exist.
    pub fn of(folder: &Path) -> FileSystem {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        find(&table, &folder).unwrap_or(FileSystem { kind: "unknown".to_owned(), source: "unknown".to_owned() })
    }

    /// Whether it forgets everything when the power goes.
    pub fn is_volatile(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs" | "devtmpfs")
    }
}

/// The last mount of the longest mount point above `folder`; the format is that of proc(5).
fn find(table: &str, folder: &Path) -> Option<FileSystem> {
    let mounts = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?.replace("\\040", " ");
        let mut fields = right.split(' ');
        let mount = FileSystem { kind: fields.next()?.to_owned(), source: fields.next()?.to_owned() };
        folder.starts_with(&point).then_some((point.len(), mount))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

fn proc_value(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                         30 22 0:25 / /tmp rw shared:5 - tmpfs tmpfs rw\n\
                         31 22 8:2 / /tmp/my\\040disk rw - xfs /dev/sdb1 rw\n";

    #[test]
    fn the_longest_mount_point_above_a_folder_holds_it() {
        for (folder, kind, volatile) in [
            ("/srv/a", "ext4", false),
            ("/tmp", "tmpfs", true),
            ("/tmp/x", "tmpfs", true),
            ("/tmpx", "ext4", false),
            ("/tmp/my disk/data", "xfs", false),
        ] {
            let found = find(TABLE, Path::new(folder)).expect("the root is mounted");
            assert_eq!((found.kind.as_str(), found.is_volatile()), (kind, volatile), "{folder}");
        }
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
    }
}
