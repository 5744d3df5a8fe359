//! `terrace tier probe`: latency and bandwidth of memory and of directories, by doing what an engine does there.
//!
//! ```text
//!   memory      each NUMA node         dependent reads (ns), sequential and random accesses by 1..cores threads (GB/s)
//!   directory   files                  4 KiB write and flush, write, read (p50, p99), 1 MiB sequential (GB/s), IOPS
//!               mapped persistent mem. as memory, and 256 B, 1 KiB, 4 KiB stores with a fence (p50, p99)
//! ```
//!
//! Invariants: nothing but files of its own is written to, and these have no name any more while they are used, so that a
//! killed probe leaves no bytes behind (an empty folder at most). Percentiles and medians, never means: other work on the
//! machine shows as p99.
//!
//! It is no benchmark of a medium at its best. It shows the speed with the queue depth and the threads named.

mod curves;
mod doubt;
mod folder;
mod medium;
mod memory;
mod times;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use catalogue::provision::Machine;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::args::ProbeArgs;
use super::planning;
use crate::show::TextTable;

use curves::Curve;
use folder::Folder;
use memory::Memory;

/// All that was measured.
#[derive(Debug, Serialize)]
struct Probed {
    /// When, in local time.
    date: String,
    /// Processor and its threads.
    machine: String,
    /// The machine's load in the minute before.
    load_average: Option<f64>,
    memory: Vec<Memory>,
    directories: Vec<Folder>,
    /// Why the figures may not be those of the media, a sentence each; empty where nothing speaks against them.
    doubts: Vec<String>,
}

impl Probed {
    fn begin() -> Probed {
        let (date, machine, load_average) = (today(), machine(), workload::machine::load_average());
        Probed { date, machine, load_average, memory: Vec::new(), directories: Vec::new(), doubts: Vec::new() }
    }
}

/// Runs it.
pub fn run(args: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let bytes = planning::size(&args.size)?;
    if !(4 << 20..=64 << 30).contains(&bytes) {
        bail!("--size {} is not from 4 MiB to 64 GiB", args.size);
    }
    let bytes = usize::try_from(bytes)? / (1 << 20) * (1 << 20);
    // Known now rather than after a minute.
    args.write.as_deref().map(medium::name).transpose()?;
    if let Some(path) = args.paths.iter().find(|path| !path.is_dir()) {
        bail!("{} is no directory", path.display());
    }
    let found = Machine::read(Path::new("/"))?;
    let nodes: Vec<u32> = found.nodes.iter().filter(|node| node.bytes > 0).map(|node| node.id).collect();
    let threads = thread_counts();
    let bar = bar(nodes.len().max(1) + args.paths.len());
    let mut probed = Probed::begin();
    // On one node everything is there; binding to it would only need a permission.
    let bound: Vec<Option<u32>> = if nodes.len() > 1 { nodes.into_iter().map(Some).collect() } else { vec![None] };
    for node in bound {
        bar.set_message(node.map_or("memory".to_owned(), |node| format!("memory of node {node}")));
        probed.memory.push(memory::measure(node, bytes, &threads)?);
        bar.inc(1);
    }
    for path in &args.paths {
        bar.set_message(path.display().to_string());
        probed
            .directories
            .push(folder::measure(path, bytes, &threads).with_context(|| format!("measuring {}", path.display()))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    probed.doubts = doubt::of(&probed, hardware_threads());
    let mut out = crate::terminal::out();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&probed)?)?,
        false => write!(out, "{}", text(&probed))?,
    }
    if let Some(file) = &args.write {
        medium::write(file, &probed)?;
        if !args.json {
            let (place, name) = (file.display(), medium::name(file)?);
            writeln!(
                out,
                "\nWritten as a medium: {place}\nA tier can be modelled on it: media = its folder, model = \"{name}\""
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// 1, 2, 4, ... and all hardware threads.
fn thread_counts() -> Vec<usize> {
    let most = hardware_threads();
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

fn hardware_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

fn today() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%d").to_string()
}

/// `2 x Some CPU`: how many hardware threads of what.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    format!("{} hardware threads of {}", hardware_threads(), model.unwrap_or("an unnamed processor"))
}

fn text(probed: &Probed) -> String {
    let mut out = format!("Measured {} on {}\n", probed.date, probed.machine);
    out.extend(probed.doubts.iter().map(|doubt| format!("Doubtful: {doubt}\n")));
    for memory in &probed.memory {
        let name = memory.node.map_or("Memory".to_owned(), |node| format!("Memory of node {node}"));
        out += &format!(
            "\n{name}: {:.0} ns a dependent random read, {:.1} ns a sequential one\n\n",
            memory.random_ns.median, memory.sequential_ns.median
        );
        out += &bandwidth(&memory.curves);
    }
    for folder in &probed.directories {
        out += &format!("\n{}: {}\n\n", folder.path, folder.kind);
        let mut table = TextTable::new(&["operation", "p50 us", "p99 us"]);
        for row in &folder.latencies {
            table.row(&[&row.operation, &format!("{:.2}", row.p50_ns / 1e3), &format!("{:.2}", row.p99_ns / 1e3)]);
        }
        out += &table.to_string();
        if let Some(files) = &folder.files {
            out += &format!(
                "\nread {:.2} GB/s, write {:.2} GB/s; with {} threads {:.0} reads/s, {:.0} writes/s of 4 KiB\n",
                files.read_gb_per_s,
                files.write_gb_per_s,
                folder::DEPTH,
                files.read_iops.median,
                files.write_iops.median
            );
        }
        if let Some(mapped) = &folder.mapped {
            out += &format!(
                "\nmapped: {:.0} ns a dependent random read, {:.1} ns a sequential one, through the device's interface\n\n",
                mapped.random_ns.median, mapped.sequential_ns.median
            );
            out += &bandwidth(&mapped.curves);
        }
    }
    out
}

/// Bandwidth by threads.
fn bandwidth(curves: &[Curve]) -> String {
    let mut headings = vec!["GB/s by threads".to_owned()];
    headings.extend(curves.first().into_iter().flat_map(|curve| curve.threads.iter().map(ToString::to_string)));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = TextTable::new(&headings);
    for curve in curves {
        let mut cells = vec![curve.to_string()];
        cells.extend(curve.gb_per_s.iter().map(|rate| format!("{rate:.2}")));
        table.row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_memory_and_a_directory_leaves_nothing_there_and_makes_media_that_a_model_takes() {
        let place = tempfile::tempdir().expect("temporary directory");
        let bytes = 4 << 20;
        let memory = memory::measure(None, bytes, &[1, 2]).expect("memory");
        let folder = folder::measure(place.path(), bytes, &[1, 2]).expect("a directory");
        assert_eq!(std::fs::read_dir(place.path()).expect("readable").count(), 0, "everything is removed");
        assert!(
            memory.random_ns.median > 0.0
                && memory.curves.iter().all(|curve| curve.gb_per_s.iter().all(|rate| *rate > 0.0))
        );
        let mut probed = Probed { machine: "a \"quoted\" machine".into(), memory: vec![memory], ..Probed::begin() };
        probed.doubts.push("the \"machine\" was loaded".into());
        let file = place.path().join("mine.toml");
        for _ in 0..2 {
            medium::write(&file, &probed).expect("a medium");
            let text = std::fs::read_to_string(&file).expect("written");
            assert!(text.contains("measured by terrace tier probe") && text.contains("was loaded"), "{text}");
            let read = catalogue::Medium::parse("mine", &text).expect("the catalogue reads it");
            catalogue::Model::of(&read, 1).expect("and models it");
            // The second time with the directory: then that is the medium.
            if probed.directories.is_empty() {
                assert_eq!(read.kind, catalogue::MediumKind::Memory);
                probed.directories.push(folder::measure(place.path(), bytes, &[1, 2]).expect("a directory"));
            } else {
                assert_eq!(
                    read.kind,
                    if folder.mapped.is_some() { catalogue::MediumKind::Pmem } else { catalogue::MediumKind::Drive }
                );
            }
        }
    }

    #[test]
    fn thread_counts_double_up_to_all_and_never_repeat() {
        let counts = thread_counts();
        assert!(counts.windows(2).all(|pair| pair[0] < pair[1]) && counts[0] == 1, "{counts:?}");
    }
}
