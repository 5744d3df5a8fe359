//! What `terrace volume list`, `status` and `export` print.

use std::process::ExitCode;

use crate::show::{TextTable, bytes, count};
use crate::volumes::{CopyReport, VolumeKind, VolumeReport, VolumeState};

/// One line a volume.
pub fn list(reports: &[VolumeReport], json: bool) -> anyhow::Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string_pretty(reports)?);
        return Ok(ExitCode::SUCCESS);
    }
    if reports.is_empty() {
        println!("there is no volume; `terrace volume create NAME --size 1GiB` makes one");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["volume", "size", "copies", "on", "state", "exported"]);
    for report in reports {
        let tiers: Vec<&str> = report.copies.iter().map(|copy| copy.tier.as_str()).collect();
        let copies = match report.kind {
            VolumeKind::Mirror => format!("{}, {} must work", report.copies.len(), report.min_copies),
            VolumeKind::Place => "a place".to_owned(),
        };
        table.row(&[&report.name, &size(report), &copies, &tiers.join(" "), report.state.name(), exported(report)]);
    }
    print!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// Its size; of a thin volume also what the copy takes that takes most.
fn size(report: &VolumeReport) -> String {
    let size = bytes(report.bytes);
    let most = report.copies.iter().filter_map(|copy| copy.space).map(|space| space.allocated_bytes).max();
    match most {
        Some(most) => format!("{size}, thin: {}", bytes(most)),
        None if report.is_thin => format!("{size}, thin"),
        None => size,
    }
}

fn exported(report: &VolumeReport) -> &'static str {
    match &report.export {
        None => "no",
        Some(export) if export.read_only => "read-only",
        Some(_) => "yes",
    }
}

/// All about each volume.
pub fn status(reports: &[VolumeReport], json: bool) -> anyhow::Result<ExitCode> {
    let code = if reports.iter().all(VolumeReport::is_well) { ExitCode::SUCCESS } else { ExitCode::from(1) };
    if json {
        println!("{}", serde_json::to_string_pretty(reports)?);
        return Ok(code);
    }
    if reports.is_empty() {
        return list(reports, false);
    }
    for (number, report) in reports.iter().enumerate() {
        if number > 0 {
            println!();
        }
        one(report);
    }
    Ok(code)
}

fn one(report: &VolumeReport) {
    println!("volume {}: {}, {}", report.name, bytes(report.bytes), report.state.name());
    if let Some(why) = &report.why {
        println!("  {why}");
    }
    if let Some(next) = next(report) {
        println!("  next: {next}");
    }
    println!();
    let mut copies =
        TextTable::new(&["copy", "tier", "journal", "state", "behind", "reads", "read time", "repaired", "failures"]);
    for copy in &report.copies {
        copies.row(&[
            &copy.number.to_string(),
            &copy.tier,
            &copy.journal_tier,
            &copy.state,
            &if copy.behind_bytes > 0 { bytes(copy.behind_bytes) } else { "-".to_owned() },
            &count(copy.reads),
            &if copy.read_ns > 0 { micros(copy.read_ns) } else { "-".to_owned() },
            &count(copy.repaired),
            &count(copy.failures),
        ]);
    }
    print!("{copies}");
    report.copies.iter().for_each(lies);
    report.same_disk.iter().for_each(|shared| println!("{shared}"));
    println!();
    let mut totals = TextTable::new(&["since it was opened", ""]);
    let activity = &report.activity;
    totals.row(&["exported", exported(report)]);
    for uri in report.export.iter().flat_map(|export| &export.uris) {
        totals.row(&["at", uri]);
    }
    if let Some(export) = &report.export {
        totals.row(&["sessions", &count(export.sessions as u64)]);
        totals.row(&["requests answered with an error", &count(export.errors)]);
    }
    totals.row(&["clients get", &limits(report)]);
    totals.row(&["durability of an acknowledged write", &report.durability]);
    totals.row(&["encrypted at rest", if report.is_encrypted { "yes, AES-256-GCM" } else { "no" }]);
    totals.row(&["space", if report.is_thin { "thin: taken by what is written" } else { "reserved" }]);
    totals.row(&["epoch", &report.epoch]);
    totals.row(&["reads", &requests(&activity.reads, activity.read_bytes)]);
    totals.row(&["writes", &requests(&activity.writes, activity.written_bytes)]);
    totals.row(&["in the journals, not yet in place", &bytes(activity.journaled_bytes)]);
    totals.row(&["checkpoints", &count(activity.checkpoints)]);
    totals.row(&["scrubs", &format!("{}; {} read", count(activity.scrubs), bytes(activity.scrubbed_bytes))]);
    totals.row(&["reads of blocks damaged on every copy", &count(activity.damaged)]);
    if report.is_encrypted {
        totals.row(&["bytes of a copy that somebody changed or moved", &count(activity.forged)]);
    }
    totals.row(&["blocks that copies disagreed about at the start", &count(activity.disputed)]);
    print!("{totals}");
}

/// How much all clients together get.
pub fn limits(report: &VolumeReport) -> String {
    match (report.iops, report.bytes_per_second) {
        (None, None) => "as much as there is".to_owned(),
        (Some(iops), None) => format!("{} requests/s", count(iops)),
        (None, Some(moved)) => format!("{}/s", bytes(moved)),
        (Some(iops), Some(moved)) => format!("{} requests/s and {}/s", count(iops), bytes(moved)),
    }
}

/// Where a copy lies, and why it is away.
fn lies(copy: &CopyReport) {
    let medium = if copy.medium.is_empty() { String::new() } else { format!(": {}", copy.medium) };
    let unfenced = if copy.is_unfenced { "; unfenced: an older owner could still write there" } else { "" };
    println!("copy {} in {}{medium}{unfenced}", copy.number, copy.at);
    if let Some(space) = &copy.space {
        let free = space.free_bytes.map_or("an unknown part".to_owned(), bytes);
        let short = if space.is_short { ": too little for new data" } else { "" };
        println!(
            "copy {} takes {} for its blocks; {free} of its medium is free{short}",
            copy.number,
            bytes(space.allocated_bytes)
        );
    }
    if let Some(cache) = &copy.cache {
        let read = cache.hit_bytes + cache.miss_bytes;
        let hits = if read == 0 {
            "nothing read yet".to_owned()
        } else {
            format!("{:.1} % of reads hit", 100.0 * cache.hit_bytes as f64 / read as f64)
        };
        println!(
            "copy {} cache of {} on {}: {hits}, {} dirty, {} destaged, {} writes waited",
            copy.number,
            bytes(cache.bytes),
            cache.tier,
            bytes(cache.dirty_bytes),
            bytes(cache.destaged_bytes),
            count(cache.stalls)
        );
    }
    if let Some(why) = &copy.why {
        println!("copy {} cannot be attached: {why}", copy.number);
    }
}

/// What to do, where something is the matter.
fn next(report: &VolumeReport) -> Option<String> {
    let name = &report.name;
    let lost = report.copies.iter().find(|copy| matches!(copy.state.as_str(), "missing" | "out"));
    match (report.state, lost) {
        (VolumeState::Unreadable, _) => {
            Some("restore that file; without it the data of the copies stays where it is".to_owned())
        }
        (VolumeState::Unfinished, _) => Some(format!("terrace volume delete {name}")),
        (VolumeState::Superseded, _) => {
            Some("its clients go to the other owner; a restart here takes it back, and ends the other one".to_owned())
        }
        (VolumeState::Failed, _) if report.kind == VolumeKind::Place => Some(format!(
            "it is opened again by itself; if its medium is lost: terrace volume delete {name}, make it anew, and the copy on its owner"
        )),
        (VolumeState::Failed, _) => Some(format!(
            "bring the medium back (it is opened then); if copies are lost for good: terrace volume accept-loss {name}"
        )),
        (VolumeState::Frozen, _) => Some(format!(
            "writes wait: bring the medium of a missing copy back (it is used then); if it is lost for good: terrace volume accept-loss {name}"
        )),
        (VolumeState::NoSpace, None) => Some(
            "free space on that medium, or discard data of the volume (fstrim in its file system): new data is taken again then".to_owned(),
        ),
        (_, Some(copy)) => {
            // A copy on an export cannot be made anew in the same place.
            let place = if copy.tier == "nbd" { " --copy URI, of another place" } else { "" };
            Some(format!(
                "bring the medium of copy {0} back (it is attached then); if it is lost: terrace volume replace {name} {0}{place}",
                copy.number
            ))
        }
        _ if report.copies.iter().any(|copy| copy.space.is_some_and(|space| space.is_short)) => {
            Some("a copy waits for space: free some on its medium, and it goes on".to_owned())
        }
        _ if report.activity.damaged > 0 => {
            Some(format!("terrace volume scrub {name}, then write the damaged blocks anew"))
        }
        _ => None,
    }
}

fn requests(classes: &[(u64, u64)], moved: u64) -> String {
    let total: u64 = classes.iter().map(|(_, times)| times).sum();
    if total == 0 {
        return "0".to_owned();
    }
    let at = |part| micros(percentile(classes, part));
    format!("{}, {}; p50 {}, p99 {}, p99.9 {}", count(total), bytes(moved), at(0.5), at(0.99), at(0.999))
}

/// The class in which a part of all lies: its upper end.
pub fn percentile(classes: &[(u64, u64)], part: f64) -> u64 {
    let total: u64 = classes.iter().map(|(_, times)| times).sum();
    let wanted = ((total as f64 * part).ceil() as u64).max(1);
    let mut seen = 0;
    for (value, times) in classes {
        seen += times;
        if seen >= wanted {
            return *value;
        }
    }
    classes.last().map_or(0, |(value, _)| *value)
}

/// Nanoseconds as microseconds, or milliseconds from 10 on.
pub fn micros(ns: u64) -> String {
    match ns {
        0..100_000 => format!("{:.1} us", ns as f64 / 1e3),
        100_000..10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// After a change of an export.
pub fn export(report: &VolumeReport) {
    match &report.export {
        None => println!("volume {} is not exported any more; its data stays", report.name),
        Some(export) if export.uris.is_empty() => {
            println!("volume {} is exported once it is open ({})", report.name, report.state.name());
        }
        Some(export) => {
            let how = if export.read_only { ", read-only" } else { "" };
            println!("volume {} is exported{how}:", report.name);
            export.uris.iter().for_each(|uri| println!("  {uri}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_upper_end_of_its_class() {
        let classes = [(10, 98), (20, 1), (40, 1)];
        assert_eq!([0.5, 0.98, 0.99, 1.0].map(|part| percentile(&classes, part)), [10, 10, 20, 40]);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        assert_eq!([4_200, 150_400, 12_300_000].map(micros), ["4.2 us", "150 us", "12.3 ms"]);
    }
}
