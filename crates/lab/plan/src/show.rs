//! A profile as text and as JSON.
//!
//! The keys of the JSON are what scripts rely on: `file, version, origin, lacks, seconds, page_bytes, touched_keys, touched_bytes, structures,
//! intervals, stream, curves`; of a node `beside`, `journal, cpu, write_backs, committers, node` too. What a profile lacks is absent, never 0.

use catalogue::provision::geometry::print_bytes;
use serde_json::{Value, json};

use crate::profile::{Interval, StructureUse, Summary, VERSION};
use crate::reuse::MissRatioCurve;
use crate::show_node;

/// Columns and lines of the plot.
const COLUMNS: usize = 72;
const LINES: usize = 13;
/// Intervals in the table: the busiest ones.
const INTERVALS_SHOWN: usize = 12;

/// A name and its curve.
struct NamedCurve<'a> {
    name: &'a str,
    curve: MissRatioCurve,
}

/// The curve of all that goes through the page cache, then of each structure, if there are several.
fn curves(summary: &Summary) -> Vec<NamedCurve<'_>> {
    let totals = summary.totals();
    let mut curves = vec![NamedCurve { name: "all", curve: summary.cached_in(&totals).reuse.curve() }];
    if summary.structures.len() > 1 {
        let used = summary.structures.iter().zip(&totals.structures).filter(|(_, used)| used.reuse.accesses > 0);
        curves.extend(used.map(|(name, used)| NamedCurve { name, curve: used.reuse.curve() }));
    }
    curves
}

/// Sizes in equal steps of their logarithm, from a page to all that was touched.
fn sizes(summary: &Summary, many: usize) -> Vec<u64> {
    let low = summary.page_bytes.max(1) as f64;
    let touched = summary.beside.iter().map(|beside| beside.touched_bytes).fold(summary.touched_bytes, u64::max);
    let high = (touched as f64 * 1.05).max(low * 2.0);
    let steps = many.saturating_sub(1).max(1) as f64;
    (0..many).map(|step| (low * (high / low).powf(step as f64 / steps)).round() as u64).collect()
}

/// The profile as text for a terminal.
pub fn text(summary: &Summary) -> String {
    let totals = summary.totals();
    let all = summary.cached_in(&totals);
    let mut out = format!("{} of {}\n", summary.origin.made_by, summary.origin.kind);
    let accesses = all.reuse.accesses;
    let over = if summary.seconds > 0 { format!(" in {} s", summary.seconds) } else { String::new() };
    out += &format!(
        "{accesses} accesses{over} to {} {}s, {} in all\n\n",
        summary.touched_keys,
        summary.origin.keys,
        print_bytes(summary.touched_bytes)
    );
    out += &structure_table(summary, &totals);
    out += "\nmiss ratio of an LRU cache, by its size\n";
    let curves = curves(summary);
    out += &plot(&curves, &sizes(summary, COLUMNS));
    out += &knees(&curves[0].curve);
    if summary.intervals.len() > 1 {
        out += &interval_table(summary);
    }
    out += &show_node::text(summary);
    out += &format!(
        "\nsampled stream: {} accesses, {:.4} % of all keys\n",
        summary.stream_entries,
        summary.stream_rate * 100.0
    );
    for (count, what) in [
        (summary.origin.bad_lines, "bad lines were left out"),
        (summary.origin.other_requests, "requests were neither reads nor writes"),
        (summary.origin.times_back, "times went back, and count as the time before"),
    ] {
        if count > 0 {
            out += &format!("{count} {what}\n");
        }
    }
    if !summary.lacks.is_empty() {
        out += "\nwhat it has not:\n";
    }
    for lack in &summary.lacks {
        out += &format!("  {}\n", lack.text());
    }
    out
}

fn structure_table(summary: &Summary, totals: &Interval) -> String {
    let mut out = format!(
        "{:<16} {:>13} {:>13} {:>12} {:>12} {:>9}\n",
        "structure", "reads", "writes", "read", "written", "first use"
    );
    for (name, used) in summary.structures.iter().zip(&totals.structures) {
        let StructureUse { reads, writes, read_bytes, write_bytes, reuse, .. } = used;
        let first = if reuse.accesses > 0 { 100.0 * reuse.first / reuse.accesses as f64 } else { 0.0 };
        out += &format!(
            "{name:<16} {reads:>13} {writes:>13} {:>12} {:>12} {first:>7.2} %\n",
            print_bytes(*read_bytes),
            print_bytes(*write_bytes)
        );
    }
    out
}

/// The sizes from which on a cache misses at most so much.
fn knees(curve: &MissRatioCurve) -> String {
    let floor = curve.miss_ratio(curve.largest());
    let mut out = format!("no cache misses less than {:.2} %: first uses\n", floor * 100.0);
    for part in [0.5, 0.9, 0.95, 0.99] {
        // That part of what any cache can find.
        let ratio = 1.0 - (1.0 - floor) * part;
        if let Some(bytes) = curve.bytes_for(ratio) {
            out += &format!("{:>3.0} % of what a cache can find: {}\n", part * 100.0, print_bytes(bytes));
        }
    }
    out
}

fn interval_table(summary: &Summary) -> String {
    let mut busiest: Vec<(&Interval, StructureUse)> =
        summary.intervals.iter().map(|interval| (interval, summary.cached_in(interval))).collect();
    busiest.sort_by_key(|(interval, used)| (std::cmp::Reverse(used.reuse.accesses), interval.begin_s));
    let hours = summary.interval_s as f64 / 3600.0;
    let mut out = format!(
        "\nthe busiest of {} intervals of {hours} h\n{:>10} {:>13} {:>13} {:>14}\n",
        summary.intervals.len(),
        "begin, h",
        "reads",
        "writes",
        "90 % found in"
    );
    for (interval, used) in busiest.iter().take(INTERVALS_SHOWN) {
        let curve = used.reuse.curve();
        let floor = curve.miss_ratio(curve.largest());
        let bytes = curve.bytes_for(1.0 - (1.0 - floor) * 0.9).map_or("-".to_owned(), print_bytes);
        let begin = interval.begin_s as f64 / 3600.0;
        out += &format!("{begin:>10.1} {:>13} {:>13} {bytes:>14}\n", used.reads, used.writes);
    }
    out
}

/// Draws curves over sizes; each has the first free letter, `*` where several fall together.
fn plot(curves: &[NamedCurve<'_>], sizes: &[u64]) -> String {
    let mut cells = vec![vec![' '; sizes.len()]; LINES];
    for (letter, NamedCurve { curve, .. }) in ('a'..='z').zip(curves) {
        for (column, bytes) in sizes.iter().enumerate() {
            let line = ((1.0 - curve.miss_ratio(*bytes)) * (LINES - 1) as f64).round() as usize;
            let cell = &mut cells[line.min(LINES - 1)][column];
            *cell = if *cell == ' ' { letter } else { '*' };
        }
    }
    let mut out = String::new();
    for (line, row) in cells.iter().enumerate() {
        let percent = 100.0 * (LINES - 1 - line) as f64 / (LINES - 1) as f64;
        let label = if line % 3 == 0 { format!("{percent:.0} %") } else { String::new() };
        let row: String = row.iter().collect();
        out += format!("{label:>6} |{row}").trim_end();
        out.push('\n');
    }
    out += &format!("{:>6} +{}\n", "", "-".repeat(sizes.len()));
    let (low, high) = (sizes.first().copied().unwrap_or(0), sizes.last().copied().unwrap_or(0));
    let middle = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    let half = sizes.len() / 2;
    out += &format!("{:>8}{:<half$}{:<}{:>10}\n", "", print_bytes(low), print_bytes(middle), "");
    out = out.trim_end().to_owned();
    out += &format!(" ... {}\n", print_bytes(high));
    if curves.len() > 1 {
        for (letter, NamedCurve { name, .. }) in ('a'..='z').zip(curves) {
            out += &format!("{:>8}{letter} = {name}\n", "");
        }
    }
    out
}

/// The profile as JSON; `at` are sizes of caches for the curves, or 100 sizes by their logarithm.
pub fn json(file: &str, summary: &Summary, at: &[u64]) -> Value {
    let sizes = if at.is_empty() { sizes(summary, 100) } else { at.to_vec() };
    let curve = |NamedCurve { name, curve }: &NamedCurve<'_>| {
        let points: Vec<Value> =
            sizes.iter().map(|bytes| json!({"bytes": bytes, "miss_ratio": curve.miss_ratio(*bytes)})).collect();
        json!({"structure": name, "points": points})
    };
    let totals = summary.totals();
    let used = |(name, used): (&String, &StructureUse)| {
        json!({"name": name, "reads": used.reads, "writes": used.writes, "made": used.made, "read_bytes": used.read_bytes,
               "write_bytes": used.write_bytes, "first_uses": used.reuse.first})
    };
    let interval = |interval: &Interval| {
        let structures: Vec<Value> = summary.structures.iter().zip(&interval.structures).map(used).collect();
        json!({"begin_s": interval.begin_s, "structures": structures})
    };
    let mut out = json!({
        "file": file,
        "version": VERSION,
        "origin": summary.origin,
        "lacks": summary.lacks,
        "seconds": summary.seconds,
        "page_bytes": summary.page_bytes,
        "touched_keys": summary.touched_keys,
        "touched_bytes": summary.touched_bytes,
        "structures": summary.structures.iter().zip(&totals.structures).map(used).collect::<Vec<_>>(),
        "beside": summary.beside,
        "interval_s": summary.interval_s,
        "intervals": summary.intervals.iter().map(interval).collect::<Vec<_>>(),
        "stream": {"entries": summary.stream_entries, "rate": summary.stream_rate},
        "curves": curves(summary).iter().map(curve).collect::<Vec<_>>(),
    });
    if let Some(journal) = &summary.journal {
        out["journal"] = json!(journal);
    }
    if !summary.cpu.is_empty() {
        out["cpu"] = json!(summary.cpu);
    }
    show_node::add_json(summary, &mut out);
    out
}
