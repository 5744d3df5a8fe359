//! The machine on which something ran, as results say it: the keys are those of `workload::machine`, of which this crate would be as large.

use std::fs;

use serde::Serialize;

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Model of the processor.
    pub cpu: String,
    /// Logical processors that this process may use.
    pub cores: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Host {
    /// This machine; what cannot be read is unknown, or 0.
    pub fn here() -> Host {
        let value = |file: &str, key: &str| {
            let text = fs::read_to_string(file).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kib = value("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Host {
            cpu: value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        }
    }
}
