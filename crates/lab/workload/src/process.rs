//! The kernel's counts for a process: processor time, bytes written to storage, memory, descriptors.
//!
//! From proc(5): `/proc/PID/stat` fields 14 and 15 (user and system time of all its threads, ended ones too, in clock ticks of
//! 10 ms), `/proc/PID/io` `write_bytes` (bytes the process caused to be sent to storage), `/proc/PID/status` `VmRSS` and `VmHWM`
//! (memory in use, and its peak since [`ProcessSize::forget_peak`]), the entries of `/proc/PID/fd`.

use std::fs;
use std::io;

use rustix::time::{ClockId, clock_gettime};

/// Counters of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time, microseconds.
    pub cpu_us: u64,
    /// Bytes sent to storage.
    pub written_bytes: u64,
}

impl Usage {
    /// The counters of process `pid` now.
    pub fn of(pid: u32) -> io::Result<Usage> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let io = fs::read_to_string(format!("/proc/{pid}/io"))?;
        let ticks =
            cpu_ticks(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not as proc(5) says")))?;
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
        Ok(Usage {
            cpu_us: ticks * 1_000_000 / rustix::param::clock_ticks_per_second(),
            written_bytes: written.unwrap_or(0),
        })
    }

    /// The use since `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }
}

/// How much a process holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSize {
    /// Memory in use, bytes.
    pub resident_bytes: u64,
    /// The most it was, bytes.
    pub peak_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl ProcessSize {
    /// The present use of process `pid`.
    pub fn of(pid: u32) -> io::Result<ProcessSize> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let bytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
        };
        let missing = || io::Error::other(format!("/proc/{pid}/status is not as proc(5) says"));
        Ok(ProcessSize {
            resident_bytes: bytes("VmRSS:").ok_or_else(missing)?,
            peak_bytes: bytes("VmHWM:").ok_or_else(missing)?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
        })
    }

    /// From now on the peak of process `pid` counts anew: proc(5), `/proc/PID/clear_refs`.
    pub fn forget_peak(pid: u32) -> io::Result<()> {
        fs::write(format!("/proc/{pid}/clear_refs"), "5")
    }
}

/// Processor time of this process so far, all its threads, in nanoseconds.
pub fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// utime + stime. The name of the program, field 2, is in parentheses and may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let stat = "12 (a ) b) S 1 12 12 0 -1 4194304 100 0 0 0 731 269 0 0 20 0 8 0 5";
        assert_eq!(cpu_ticks(stat), Some(1000));
        assert_eq!(cpu_ticks("12 (a) S 1"), None);
    }

    #[test]
    fn the_peak_of_a_process_is_never_below_what_it_holds_and_its_open_files_count() {
        let before = ProcessSize::of(std::process::id()).expect("our own");
        let file = std::fs::File::open("/dev/null").expect("is there");
        let after = ProcessSize::of(std::process::id()).expect("our own");
        assert!(before.resident_bytes > 0 && before.peak_bytes >= before.resident_bytes);
        assert!(after.descriptors > 3, "{after:?}");
        drop(file);
    }

    #[test]
    fn the_counters_of_this_process_only_grow() {
        let before = Usage::of(std::process::id()).expect("our own");
        let after = Usage::of(std::process::id()).expect("our own");
        assert_eq!(before.since(after), Usage::default());
    }
}
