//! How much memory a process may take here.

use std::fs;

/// What the machine, or the group of processes that this one is in, may take; `None` where that cannot be read.
pub fn limit() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())?;
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some((kib << 10).min(group.unwrap_or(u64::MAX)))
}
