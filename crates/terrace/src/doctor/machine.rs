//! The machine: its clock, what a process may open and take, and settings of the kernel that matter to a node.

use std::fs;
use std::path::Path;

use node::timekeeping::Timekeeping;
use node::{Clock, Descriptors};

use super::finding::FindingList;
use super::settings::ReadSettings;
use crate::show::{bytes, count};

/// No release is older than that, so no right clock shows less: 2026-01-01T00:00:00Z, in microseconds.
const EARLIEST_US: i64 = 1_767_225_600_000_000;

/// So much may a clock be corrected backwards, in microseconds.
const CORRECTION_US: i64 = 600 * 1_000_000;

/// Descriptors with which hundreds of connections and a store of some 100 GiB fit.
const DESCRIPTORS_WANTED: u64 = 4096;

/// How many connections may wait to be accepted: what the sockets of a node ask for.
const BACKLOG: u64 = 1024;

/// Checks the machine.
pub fn check(findings: &mut FindingList, read: Option<&ReadSettings>) {
    findings.fine("release", format!("terrace {}", env!("CARGO_PKG_VERSION")));
    check_clock(findings, read.map(|read| &*read.data));
    check_descriptors(findings, Descriptors::current());
    if let Some(read) = read {
        check_memory(findings, read.memory_bytes);
    }
    check_kernel(findings, Path::new("/proc/sys"));
}

fn check_clock(findings: &mut FindingList, data: Option<&Path>) {
    let clock = Clock::system();
    let now_us = clock.now_us();
    let shown = crate::show::time(now_us);
    let set = "set the clock (`timedatectl`), and keep it right with systemd-timesyncd or chrony";
    let kept = data.and_then(Timekeeping::kept);
    if now_us < EARLIEST_US {
        findings.problem("clock", format!("it shows {shown}, before this program was written"), set);
    } else if let Some(kept) = kept.filter(|kept| now_us < kept.wall_us - CORRECTION_US) {
        let found = format!("it shows {shown}, and a node saw {} on this directory", crate::show::time(kept.wall_us));
        findings.problem("clock", found, set);
    } else {
        findings.fine("clock", shown);
    }
    match Path::new("/run/systemd/timesync/synchronized").exists() || Path::new("/run/chrony/chronyd.pid").exists() {
        true => findings.fine("clock-kept-right", "by a time service"),
        false => findings.unknown(
            "clock-kept-right",
            "no time service that is known here (systemd-timesyncd, chrony) reports that it keeps the clock",
        ),
    }
}

fn check_descriptors(findings: &mut FindingList, descriptors: Descriptors) {
    let found =
        format!("{} for this command; the service has those of its unit (LimitNOFILE)", count(descriptors.limit));
    match descriptors.enough() {
        Err(error) => findings.problem("descriptors", found, error.to_string()),
        Ok(enough) if enough.limit < DESCRIPTORS_WANTED => {
            let next = "raise the hard limit: `ulimit -Hn 65536` as root, or LimitNOFILE=65536 in the unit";
            findings.warning("descriptors", found, next);
        }
        Ok(_) => findings.fine("descriptors", found),
    }
}

fn check_memory(findings: &mut FindingList, wanted: u64) {
    match crate::memory::limit() {
        None => findings
            .unknown("memory", format!("a node takes up to {}; how much there is cannot be read", bytes(wanted))),
        Some(limit) => {
            let found = format!("a node takes up to {}, of {}", bytes(wanted), bytes(limit));
            match wanted > limit / 10 * 9 {
                true => findings.warning("memory", found, "set `cache`, `versions`, [sql] memory and [search] memory smaller: docs/configuration.md, \"How much memory a node takes\""),
                false => findings.fine("memory", found),
            }
        }
    }
}

/// Settings below /proc/sys, of which a node feels the wrong value.
fn check_kernel(findings: &mut FindingList, sys: &Path) {
    let read = |name: &str| fs::read_to_string(sys.join(name)).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let mut fine = true;
    let mut warn = |found: String, next: &str| {
        fine = false;
        findings.warning("kernel", found, next);
    };
    if let Some(disabled @ 1..) = read("kernel/io_uring_disabled") {
        warn(
            format!("kernel.io_uring_disabled = {disabled}: batches of reads and writes go one by one"),
            "sysctl kernel.io_uring_disabled=0, where a policy does not forbid it; volumes and large searches are slower without",
        );
    }
    if let Some(backlog @ ..BACKLOG) = read("net/core/somaxconn") {
        warn(
            format!(
                "net.core.somaxconn = {backlog}: more connections than that are refused while they wait to be accepted"
            ),
            "sysctl net.core.somaxconn=4096, and a file in /etc/sysctl.d for the next start",
        );
    }
    if read("vm/overcommit_memory") == Some(2) {
        warn(
            "vm.overcommit_memory = 2: memory that is reserved and not used counts, and the caches reserve theirs"
                .to_owned(),
            "set vm.overcommit_ratio so that twice what a node takes fits, or vm.overcommit_memory=0",
        );
    }
    if fine {
        findings.fine("kernel", "io_uring, somaxconn, overcommit_memory");
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;

    #[test]
    fn settings_of_the_kernel_that_a_node_feels_are_told_with_the_command() {
        let sys = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = sys.path().join(name);
            fs::create_dir_all(path.parent().expect("below")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        let mut findings = FindingList::default();
        check_kernel(&mut findings, sys.path());
        assert_eq!(findings.worst(), FindingState::Fine, "an older kernel has none of them");
        put("kernel/io_uring_disabled", "2\n");
        put("net/core/somaxconn", "128\n");
        put("vm/overcommit_memory", "2\n");
        let mut findings = FindingList::default();
        check_kernel(&mut findings, sys.path());
        assert_eq!(findings.all().len(), 3, "{findings:?}");
        assert!(findings.all().iter().all(|finding| finding.next.is_some()));
    }

    #[test]
    fn too_few_descriptors_are_a_problem_and_few_a_warning() {
        for (limit, state) in [(64, FindingState::Problem), (1024, FindingState::Warning), (65_536, FindingState::Fine)]
        {
            let mut findings = FindingList::default();
            check_descriptors(&mut findings, Descriptors::of(limit));
            assert_eq!(findings.worst(), state, "{limit}");
        }
    }

    #[test]
    fn a_clock_behind_the_time_that_a_node_has_seen_is_a_problem() {
        let data = tempfile::tempdir().expect("a folder");
        let reading = node::clock::ClockReading {
            wall_us: Clock::system().now_us() + 3_600_000_000,
            boot_us: 0,
            boot: "a".to_owned(),
        };
        Timekeeping::begin(None, None, &reading).save(data.path()).expect("there is room");
        let mut findings = FindingList::default();
        check_clock(&mut findings, Some(data.path()));
        assert_eq!(findings.all()[0].state, FindingState::Problem, "{findings:?}");
    }
}
