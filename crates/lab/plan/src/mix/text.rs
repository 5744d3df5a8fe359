//! A plan as text for a terminal.

use std::fmt::Write as _;

use catalogue::provision::geometry::print_bytes;

use super::report::{MixReport, PlanReport, TargetReport, WasteReport};
use super::target::print_seconds;

/// Reasons in the text at most.
const REASONS_SHOWN: usize = 8;

/// The plan.
pub fn text(report: &PlanReport) -> String {
    let mut out = String::new();
    for workload in &report.workloads {
        let hot = workload
            .hot_bytes
            .map_or(String::new(), |bytes| format!(", {} find 95 % of what a cache can", print_bytes(bytes)));
        let _ = writeln!(out, "{}: {} used{hot}", workload.name, print_bytes(workload.touched_bytes));
        let commits = workload.commits_per_s.map_or(String::new(), |per_s| format!(", {per_s:.0} commits/s"));
        let cpu = workload
            .cpu_per_operation_s
            .map_or(String::new(), |cpu_s| format!(", {} of a processor each", print_seconds(cpu_s)));
        let _ = writeln!(
            out,
            "  the worst minute begins at {} s: {:.0} accesses/s{commits}{cpu}; {} written each second",
            workload.worst_begin_s,
            workload.worst_accesses_per_s,
            print_bytes(workload.written_bytes_per_s as u64)
        );
    }
    let server = &report.server;
    let _ = writeln!(
        out,
        "server: {}, {} sockets, {} processors, {} slots for memory, {} lanes, {} bays",
        server.name, server.sockets, server.cores, server.dimm_slots, server.lanes, server.bays
    );
    let _ = writeln!(out, "target: {}\n", target(&report.target));
    for refused in &report.refused {
        let _ = writeln!(out, "{refused}");
    }
    out += &table(report);
    let _ = writeln!(out, "\n{}", report.says);
    if let Some(chosen) = report.chosen.and_then(|number| report.mixes.get(number)) {
        out += &about(chosen);
    }
    section(&mut out, "does not help:", &report.no_help);
    let flips = report.flips.iter().map(|flip| {
        let side = if flip.factor >= 1.0 { "above" } else { "below" };
        let price = match (flip.unit.as_str(), flip.usd_per_gb) {
            // A plan of an earlier version.
            ("", usd) => format!("{:.2} USD/GB", usd.unwrap_or_default()),
            (unit, _) if flip.usd < 0.1 => format!("{:.4} {unit}", flip.usd),
            (unit, _) => format!("{:.2} {unit}", flip.usd),
        };
        format!("{} {side} {price} ({:.2} times the price): {}", flip.medium, flip.factor, flip.to_name)
    });
    section(&mut out, "the answer changes with:", &flips.collect::<Vec<_>>());
    let even = report
        .break_even
        .iter()
        .map(|one| format!("{} at or below {:.2} USD/GB: {}", one.medium, one.usd_per_gb, one.mix));
    section(&mut out, "no price, worth it with:", &even.collect::<Vec<_>>());
    let sure = report.sure.iter().map(|sure| format!("{}: {} ({})", sure.what, sure.error, sure.because));
    section(&mut out, "how sure:", &sure.collect::<Vec<_>>());
    let considered = &report.considered;
    let _ = writeln!(out, "{} mixes, {} of them replayed; left out:", considered.mixes, considered.predicted);
    for (why, many) in considered.left_out.iter().take(REASONS_SHOWN) {
        let _ = writeln!(out, "  {many:>6}  {why}");
    }
    out
}

fn section(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "{title}");
    for line in lines {
        let _ = writeln!(out, "  {line}");
    }
}

fn target(target: &TargetReport) -> String {
    let mut words = Vec::new();
    let times = [
        ("p99 of commits", target.p99_commit_s),
        ("p99 of accesses", target.p99_read_s),
        ("p95 of queries", target.p95_query_s),
    ];
    words
        .extend(times.into_iter().filter_map(|(what, seconds)| Some(format!("{what} <= {}", print_seconds(seconds?)))));
    words.extend(target.rate.map(|rate| format!("{rate:.0} operations/s")));
    words.extend(target.budget_usd.map(|usd| format!("at most {usd:.0} USD")));
    if words.is_empty() {
        words.push("none".into());
    }
    if target.growth > 1.0 {
        words.push(format!("{}x growth", target.growth));
    }
    words.push(format!("{:.0} % more load than that", target.headroom * 100.0));
    words.join(", ")
}

fn table(report: &PlanReport) -> String {
    let has_commits = report.mixes.iter().any(|mix| mix.p99_commit_s.is_some());
    let has_queries = report.mixes.iter().any(|mix| mix.p95_query_s.is_some());
    let mut rows = vec![headings(has_commits, has_queries)];
    for (number, mix) in report.mixes.iter().enumerate() {
        let mark = match (report.chosen == Some(number), mix.is_today, mix.meets_target) {
            (true, _, _) => "*",
            (_, true, _) => "=",
            (_, _, true) => "+",
            _ => "",
        };
        rows.push(row(mix, mark, has_commits, has_queries));
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let is_left = column < 2 || column + 2 >= widths.len();
            let _ = if is_left { write!(line, "{cell:<width$}  ") } else { write!(line, "{cell:>width$}  ") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out += "* chosen   + meets the target   = what there is today\n";
    out
}

fn headings(has_commits: bool, has_queries: bool) -> Vec<String> {
    let mut headings = vec!["", "mix", "USD (low..high)", "found", "p99 read"];
    if has_commits {
        headings.push("p99 commit");
    }
    if has_queries {
        headings.push("p95 query");
    }
    headings.extend(["spare", "binds", "most wasted"]);
    headings.into_iter().map(str::to_owned).collect()
}

fn row(mix: &MixReport, mark: &str, has_commits: bool, has_queries: bool) -> Vec<String> {
    let usd = match mix.usd {
        Some(usd) if usd.low == usd.high => format!("{:.0}", usd.expected),
        Some(usd) => format!("{:.0} ({:.0}..{:.0})", usd.expected, usd.low, usd.high),
        None => "no price".to_owned(),
    };
    let time = |seconds: Option<f64>| seconds.map_or("-".to_owned(), print_seconds);
    let found = format!("{:.1} %", (1.0 - mix.served.device) * 100.0);
    let mut row = vec![mark.to_owned(), mix.name.clone(), usd, found, time(mix.p99_read_s)];
    if has_commits {
        row.push(time(mix.p99_commit_s));
    }
    if has_queries {
        row.push(time(mix.p95_query_s));
    }
    row.push(format!("{:.0} %", mix.spare * 100.0));
    row.push(mix.binds.clone());
    let counted = mix.wasted.iter().filter(|waste| waste.unit != "GB/s");
    let most = counted.max_by(|one, two| share(one).total_cmp(&share(two)));
    row.push(
        most.map_or(String::new(), |waste| format!("{:.0} % of {} {}", share(waste) * 100.0, waste.medium, waste.unit)),
    );
    row
}

/// The part that is not used.
fn share(waste: &WasteReport) -> f64 {
    if waste.bought > 0.0 { 1.0 - waste.used / waste.bought } else { 0.0 }
}

/// The chosen mix in detail.
fn about(mix: &MixReport) -> String {
    let mut out = String::new();
    let served = &mix.served;
    let far = mix
        .far_bytes
        .map_or(String::new(), |bytes| format!(", far {} finds {:.1} %", print_bytes(bytes), served.far * 100.0));
    let _ = writeln!(
        out,
        "  page cache: near {} finds {:.1} %{far}, from the drives {:.2} %",
        print_bytes(mix.near_bytes),
        served.near * 100.0,
        served.device * 100.0
    );
    let stations: Vec<String> =
        mix.stations.iter().map(|station| format!("{} {:.0} %", station.name, station.used * 100.0)).collect();
    let _ = writeln!(out, "  busy: {}", stations.join(", "));
    if let Some(rate) = mix.rate_max {
        let _ = writeln!(out, "  it can do {rate:.0} operations/s; {} binds", mix.binds);
    }
    let wasted: Vec<String> = mix
        .wasted
        .iter()
        .map(|waste| {
            format!("{:.1} of {:.1} {} of {}", waste.bought - waste.used, waste.bought, waste.unit, waste.medium)
        })
        .collect();
    let _ = writeln!(out, "  not used: {}", wasted.join("; "));
    for (of, wear) in [("", mix.endurance), (" for the journal", mix.journal_endurance)] {
        let Some(wear) = wear else { continue };
        let allowed = wear.allowed_bytes_per_day.map_or("not published".to_owned(), |bytes| print_bytes(bytes as u64));
        let _ = writeln!(
            out,
            "  written each day{of}: {}; endurance: {allowed}",
            print_bytes(wear.written_bytes_per_day as u64)
        );
    }
    out
}
