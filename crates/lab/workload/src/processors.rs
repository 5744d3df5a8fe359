//! The kernel's counts for each processor: how busy the machine was, whoever made it busy.
//!
//! From proc(5), `/proc/stat`: lines `cpuN user nice system idle iowait irq softirq steal ...`, in clock ticks. Time that the host gave to
//! others (steal) is neither busy nor idle here.
//!
//! Also the size of the last cache, from `/sys/devices/system/cpu/cpu0/cache`: a working set that fits into it says little about memory.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// A processor's time by use; between two moments, as shares of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorUse {
    /// Its number.
    pub number: usize,
    /// Programs.
    pub user: f64,
    /// The kernel.
    pub kernel: f64,
    /// Nothing.
    pub idle: f64,
}

impl ProcessorUse {
    /// All processors, in clock ticks since the start of the machine; none if they cannot be read.
    pub fn now() -> Vec<ProcessorUse> {
        parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The shares of the time between two moments, in percent.
    pub fn between(earlier: &[ProcessorUse], later: &[ProcessorUse]) -> Vec<ProcessorUse> {
        let share = |(then, now): (&ProcessorUse, &ProcessorUse)| {
            let (user, kernel, idle) = (now.user - then.user, now.kernel - then.kernel, now.idle - then.idle);
            let whole = (user + kernel + idle).max(1.0) / 100.0;
            ProcessorUse { number: now.number, user: user / whole, kernel: kernel / whole, idle: idle / whole }
        };
        earlier.iter().zip(later).map(share).collect()
    }

    /// What is not idle.
    pub fn busy(self) -> f64 {
        self.user + self.kernel
    }

    /// The mean of several.
    pub fn mean(all: &[ProcessorUse]) -> ProcessorUse {
        let count = all.len().max(1) as f64;
        let sum = |of: fn(&ProcessorUse) -> f64| all.iter().map(of).sum::<f64>() / count;
        ProcessorUse {
            number: all.len(),
            user: sum(|one| one.user),
            kernel: sum(|one| one.kernel),
            idle: sum(|one| one.idle),
        }
    }
}

fn parse(stat: &str) -> Vec<ProcessorUse> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let number = name.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<f64> = rest.split_ascii_whitespace().filter_map(|ticks| ticks.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
        Some(ProcessorUse { number, user: at(0) + at(1), kernel: at(2) + at(5) + at(6), idle: at(3) + at(4) })
    };
    stat.lines().filter_map(line).collect()
}

/// Size of the largest cache of a processor in bytes, if the system tells.
pub fn last_cache_bytes() -> Option<u64> {
    let entries = fs::read_dir(Path::new("/sys/devices/system/cpu/cpu0/cache")).ok()?;
    let size = |text: String| {
        let text = text.trim();
        match text.strip_suffix('K') {
            Some(digits) => digits.parse::<u64>().ok().map(|kib| kib << 10),
            None => text.strip_suffix('M')?.parse::<u64>().ok().map(|mib| mib << 20),
        }
    };
    entries.filter_map(|entry| size(fs::read_to_string(entry.ok()?.path().join("size")).ok()?)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "cpu  30 0 30 140 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\ncpu1 20 0 20 60 0 0 0 0 0 0\nintr 5\n";
    const AFTER: &str =
        "cpu  90 0 60 250 0 0 0 9 0 0\ncpu0 30 10 15 140 5 3 2 7 0 0\ncpu1 60 0 30 110 0 0 0 2 0 0\nintr 9\n";

    #[test]
    fn shares_are_of_the_time_between_and_add_up_to_a_hundred() {
        let uses = ProcessorUse::between(&parse(BEFORE), &parse(AFTER));
        assert_eq!(uses.len(), 2);
        assert_eq!(
            uses[0],
            ProcessorUse { number: 0, user: 28.57142857142857, kernel: 9.523809523809524, idle: 61.904761904761905 }
        );
        assert_eq!((uses[1].user, uses[1].kernel, uses[1].idle, uses[1].busy()), (40.0, 10.0, 50.0, 50.0));
        let mean = ProcessorUse::mean(&uses);
        assert!((mean.busy() + mean.idle - 100.0).abs() < 1e-9);
        assert!(ProcessorUse::between(&parse(BEFORE), &parse(BEFORE)).iter().all(|one| one.busy() == 0.0));
    }

    #[test]
    fn this_machine_has_processors() {
        assert!(!ProcessorUse::now().is_empty());
    }
}
