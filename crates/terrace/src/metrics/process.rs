//! Figures of the process, from /proc, under the names that Prometheus' own clients use.

use std::fs;
use std::sync::OnceLock;

use node::{Clock, Descriptors, descriptors};
use node_metrics::{Samples, table};

/// Clock ticks a second of /proc/self/stat: USER_HZ, which is 100 on every architecture of Linux that Rust has.
const TICKS: f64 = 100.0;

/// Adds them. What cannot be read is left out.
pub(super) fn collect(samples: &mut Samples) {
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| ProcessStat::read(&text)) {
        samples.seconds(table::PROCESS_CPU_SECONDS_TOTAL, &[], stat.ticks as f64 / TICKS);
        samples.gauge(table::PROCESS_THREADS, &[], stat.threads as f64);
        if let Some(began) = began(&stat) {
            samples.gauge(table::PROCESS_START_TIME_SECONDS, &[], began);
        }
    }
    if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().and_then(|text| resident(&text)) {
        samples.gauge(table::PROCESS_RESIDENT_MEMORY_BYTES, &[], bytes as f64);
    }
    if let Some(open) = descriptors::open() {
        samples.gauge(table::PROCESS_OPEN_FDS, &[], open as f64);
    }
    samples.gauge(table::PROCESS_MAX_FDS, &[], Descriptors::current().limit as f64);
}

/// When the process started, seconds since 1970: the same at each scrape, whatever the clock does later.
fn began(stat: &ProcessStat) -> Option<f64> {
    static BEGAN: OnceLock<Option<f64>> = OnceLock::new();
    let up = || fs::read_to_string("/proc/uptime").ok()?.split(' ').next()?.parse::<f64>().ok();
    *BEGAN.get_or_init(|| {
        let ago = up()? - stat.began_ticks as f64 / TICKS;
        Some(Clock::system().now_us() as f64 / 1e6 - ago)
    })
}

/// Bytes in RAM, by the text of /proc/self/status.
fn resident(status: &str) -> Option<u64> {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    kib.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What is read of /proc/self/stat.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    /// Processor time of user and system.
    ticks: u64,
    threads: u64,
    /// Since the machine started.
    began_ticks: u64,
}

impl ProcessStat {
    fn read(text: &str) -> Option<ProcessStat> {
        // The name of the program stands in brackets and may contain any character.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        // proc(5) counts from 1, and the first of these is number 3.
        let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
        Some(ProcessStat { ticks: field(14)? + field(15)?, threads: field(20)?, began_ticks: field(22)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_move_the_fields() {
        let text =
            "7 (a) b ( c) S 1 7 7 0 -1 4194560 100 0 0 0 11 22 0 0 20 0 9 0 555 1000000 333 18446744073709551615 1\n";
        let read = ProcessStat::read(text);
        assert_eq!(read, Some(ProcessStat { ticks: 33, threads: 9, began_ticks: 555 }));
        assert_eq!(ProcessStat::read("nothing"), None);
        assert_eq!(resident("VmSize:\t  90 kB\nVmRSS:\t     12 kB\n"), Some(12 << 10));
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut samples = Samples::default();
        collect(&mut samples);
        let value = |name: &str| samples.value(name, &[]).unwrap_or_else(|| panic!("no {name}"));
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_start_time_seconds") > 1.7e9);
        assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
    }
}
