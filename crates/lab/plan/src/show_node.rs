//! What only a node's profile has, as text and JSON: page cache, journal, checkpoints, processor time, threads.

use catalogue::provision::geometry::print_bytes;
use serde_json::{Value, json};

use crate::profile::{CpuUse, NodeUse, Summary};

/// Lines for a terminal; empty of a trace.
pub(crate) fn text(summary: &Summary) -> String {
    let Some(node) = &summary.node else { return String::new() };
    let mut out = String::new();
    if node.is_interrupted {
        out += "\nthe node ended before the recording did: this is what had been saved\n";
    }
    for (count, what) in [
        (node.dropped, "sampled accesses were lost, since their buffer was full or in use: they count as hits"),
        (node.left_out, "pages were left out of the sample, since they alone would have filled it: they count as hits"),
    ] {
        if count > 0 {
            out += &format!("{count} {what}\n");
        }
    }
    out += &made(summary);
    out += &beside(summary);
    out += &cache(node);
    out += &journal(summary, node);
    out += &checkpoints(summary, node);
    out += &processors(summary, node);
    out += &hours(node);
    out
}

fn made(summary: &Summary) -> String {
    let cached = summary.cached();
    match cached.made {
        0 => String::new(),
        made => format!("{made} pages and extents were made, {}\n", print_bytes(cached.made_bytes)),
    }
}

/// What does not go through the page cache.
fn beside(summary: &Summary) -> String {
    let totals = summary.totals();
    let mut out = String::new();
    for beside in &summary.beside {
        let structure = usize::from(beside.structure);
        let (Some(name), Some(used)) = (summary.structures.get(structure), totals.structures.get(structure)) else {
            continue;
        };
        if [used.reads, used.writes, used.made] == [0; 3] {
            continue;
        }
        out += &format!("{name}, beside the page cache: {} used", print_bytes(beside.touched_bytes));
        if used.made > 0 {
            out += &format!("; {} made, {}", used.made, print_bytes(used.made_bytes));
        }
        if let Some(reads) = beside.device_reads {
            out += &format!("; {reads} of {} reads were of the medium", used.reads);
        }
        out.push('\n');
    }
    out
}

fn cache(node: &NodeUse) -> String {
    let cache = &node.cache;
    // A file from outside may say anything.
    let all = cache.near_hits.saturating_add(cache.far_hits).saturating_add(cache.misses);
    if all == 0 {
        return String::new();
    }
    let percent = |part: u64| 100.0 * part as f64 / all as f64;
    let far = if cache.far_bytes > 0 {
        format!(", {:.2} % in {} of far memory", percent(cache.far_hits), print_bytes(cache.far_bytes))
    } else {
        String::new()
    };
    format!(
        "\npage cache, as it was: {:.2} % found in {} of near memory{far}; {} misses\n",
        percent(cache.near_hits),
        print_bytes(cache.near_bytes),
        cache.misses
    )
}

fn journal(summary: &Summary, node: &NodeUse) -> String {
    let Some(journal) = &summary.journal else { return String::new() };
    let per_second = |count: u64| count as f64 / summary.seconds.max(1) as f64;
    let mut out = format!(
        "\njournal: {} records of {}, {:.1} a second; {} flushes, {:.1} a second\n",
        journal.records,
        print_bytes(journal.bytes),
        per_second(journal.records),
        journal.flushes,
        per_second(journal.flushes)
    );
    if journal.records > 0 && journal.flushes > 0 {
        out += &format!(
            "  a record has {:.0} bytes, half of them up to {}; {:.2} records share a flush",
            journal.bytes as f64 / journal.records as f64,
            print_bytes(quantile(&journal.record_bytes, 0.5)),
            journal.records as f64 / journal.flushes as f64
        );
        out += &format!("; {} written with headers and padding\n", print_bytes(node.journal_written_bytes));
    }
    if node.journal_write_us > 0 && journal.flushes > 0 {
        out +=
            &format!("  a write with its flush took {:.0} us\n", node.journal_write_us as f64 / journal.flushes as f64);
    }
    if let Some(committers) = &summary.committers {
        let waiting: Vec<(u64, u64)> =
            committers.waiting.iter().map(|(many, times)| ((*many).into(), *times)).collect();
        if !waiting.is_empty() {
            out += &format!(
                "  commits that waited for one flush: half up to {}, 99 % up to {}\n",
                quantile(&waiting, 0.5),
                quantile(&waiting, 0.99)
            );
        }
    }
    out
}

fn checkpoints(summary: &Summary, node: &NodeUse) -> String {
    let Some(written) = summary.write_backs.as_ref().filter(|written| written.checkpoints > 0) else {
        return String::new();
    };
    let mut out = format!(
        "\ncheckpoints: {}, {} written, {} of them images\n",
        written.checkpoints,
        print_bytes(written.bytes),
        print_bytes(node.image_bytes)
    );
    if !node.checkpoint_dirty.is_empty() {
        out += &format!(
            "  changed pages of one: half up to {}, the most {}\n",
            print_bytes(quantile(&node.checkpoint_dirty, 0.5)),
            print_bytes(quantile(&node.checkpoint_dirty, 1.0))
        );
    }
    out
}

fn processors(summary: &Summary, node: &NodeUse) -> String {
    let mut out = String::new();
    let seconds: f64 = summary.cpu.iter().map(|used| used.seconds).sum();
    if seconds > 0.0 {
        let there = f64::from(node.processors.max(1)) * summary.seconds.max(1) as f64;
        out += &format!(
            "\nprocessor time: {seconds:.1} s, {:.1} % of {} processors\n",
            100.0 * seconds / there,
            node.processors
        );
        let wait = |component: &str| node.cpu_waits.iter().find(|used| used.component == component);
        let mut cpu: Vec<&CpuUse> = summary.cpu.iter().collect();
        cpu.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        for CpuUse { component, seconds: used } in cpu {
            let waited =
                wait(component).map_or_else(String::new, |wait| format!(", waited {:.1} s for one", wait.seconds));
            out += &format!("  {component:<12} {used:>9.1} s {:>5.1} %{waited}\n", 100.0 * used / seconds);
        }
    }
    if let Some(committers) = summary.committers.as_ref().filter(|committers| !committers.runnable.is_empty()) {
        let runnable: Vec<(u64, u64)> =
            committers.runnable.iter().map(|(many, times)| ((*many).into(), *times)).collect();
        out += &format!(
            "threads that ran or could run: half of the time up to {}, 99 % up to {}, at most {}\n",
            quantile(&runnable, 0.5),
            quantile(&runnable, 0.99),
            quantile(&runnable, 1.0)
        );
    }
    out
}

fn hours(node: &NodeUse) -> String {
    if node.hours.len() < 2 {
        return String::new();
    }
    let mut busiest: Vec<_> = node.hours.iter().collect();
    busiest.sort_by_key(|hour| (std::cmp::Reverse(hour.records), hour.begin_s));
    let mut out = format!(
        "\n{:>10} {:>13} {:>13} {:>10} {:>9} {:>12}\n",
        "begin, h", "records", "flushes", "found", "threads", "processors"
    );
    for hour in busiest.iter().take(12) {
        let all = hour.hits.saturating_add(hour.misses);
        let found = if all > 0 { format!("{:.2} %", 100.0 * hour.hits as f64 / all as f64) } else { "-".to_owned() };
        let cpu: f64 = hour.cpu.iter().map(|used| used.seconds).sum();
        out += &format!(
            "{:>10.1} {:>13} {:>13} {found:>10} {:>9} {cpu:>10.1} s\n",
            hour.begin_s as f64 / 3600.0,
            hour.records,
            hour.flushes,
            hour.runnable_max
        );
    }
    out
}

/// The largest value of the class in which so large a part of all lies.
fn quantile(classes: &[(u64, u64)], part: f64) -> u64 {
    let all: u64 = classes.iter().map(|(_, times)| times).fold(0, |sum, times| sum.saturating_add(*times));
    let wanted = all as f64 * part;
    let mut sum = 0u64;
    for (largest, times) in classes {
        sum = sum.saturating_add(*times);
        if sum as f64 >= wanted {
            return *largest;
        }
    }
    classes.last().map_or(0, |(largest, _)| *largest)
}

/// Adds it to the JSON of a profile.
pub(crate) fn add_json(summary: &Summary, out: &mut Value) {
    if let Some(write_backs) = &summary.write_backs {
        out["write_backs"] = json!(write_backs);
    }
    if let Some(committers) = &summary.committers {
        out["committers"] = json!(committers);
    }
    if let Some(node) = &summary.node {
        out["node"] = json!(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_end_of_its_class() {
        let classes = [(1, 50), (3, 30), (7, 20)];
        assert_eq!([0.0, 0.5, 0.51, 0.8, 1.0].map(|part| quantile(&classes, part)), [1, 1, 3, 3, 7]);
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
