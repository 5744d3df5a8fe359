//! Writes the results as a medium's file that the catalogue reads: those of the last directory, or of the memory
//! without one.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use catalogue::{Medium, Model};

use super::Probed;
use super::curves::Curve;
use super::folder::Files;

/// The medium's name: that of its file.
pub fn name(file: &Path) -> anyhow::Result<&str> {
    let name = file.file_stem().and_then(|stem| stem.to_str()).context("the file has no name")?;
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !is_plain || file.extension().is_none_or(|extension| extension != "toml") {
        bail!("{} does not name a medium: use a-z, 0-9 and -, and the ending .toml", file.display());
    }
    Ok(name)
}

/// Writes it, after the catalogue has read it and made a model of it.
pub fn write(file: &Path, probed: &Probed) -> anyhow::Result<()> {
    let name = name(file)?;
    let text = text(name, probed)?;
    let medium = Medium::parse(name, &text).context("the catalogue cannot read the results")?;
    Model::of(&medium, 1).context("no model can be made from the results")?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn text(name: &str, probed: &Probed) -> anyhow::Result<String> {
    // A model made from these figures later contains the doubts about them.
    let doubts: String = probed.doubts.iter().map(|doubt| format!("; {doubt}")).collect();
    let source = format!("measured by terrace tier probe, {}, {}{doubts}", probed.date, probed.machine);
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let (kind, title, bytes, figures, curves) = match (probed.directories.last(), probed.memory.first()) {
        (Some(folder), _) => match (&folder.files, &folder.mapped) {
            (Some(files), _) => {
                ("drive", format!("{}, {}", folder.path, folder.kind), folder.free_bytes, drive(files), &[][..])
            }
            (None, Some(mapped)) => {
                let figures = vec![
                    ("read_latency_random", mapped.random_ns.median, "ns"),
                    ("read_latency_sequential", mapped.sequential_ns.median, "ns"),
                ];
                (
                    "pmem",
                    format!("{}, {}", folder.path, folder.kind),
                    folder.free_bytes,
                    figures,
                    mapped.curves.as_slice(),
                )
            }
            (None, None) => bail!("nothing was measured in {}", folder.path),
        },
        (None, Some(memory)) => {
            let figures = vec![
                ("read_latency_random", memory.random_ns.median, "ns"),
                ("read_latency_sequential", memory.sequential_ns.median, "ns"),
            ];
            ("memory", "memory".to_owned(), memory.bytes, figures, memory.curves.as_slice())
        }
        (None, None) => bail!("nothing was measured"),
    };
    let mut out = format!(
        "# Written by terrace tier probe. The capacity is that of the memory, or what was free in the directory.\nname = {}\n",
        quoted(name)
    );
    // Drives count in powers of ten, memory does not.
    let capacity = bytes as f64 / if kind == "drive" { 1e9 } else { (1u64 << 30) as f64 };
    writeln!(
        out,
        "title = {}\nkind = \"{kind}\"\ncapacity_gb = {capacity:.3}\nmodules = 1\nfigure = [",
        quoted(&title)
    )?;
    for (key, value, unit) in figures {
        writeln!(
            out,
            "  {{ key = \"{key}\", value = {value:.3}, unit = \"{unit}\", source = \"probe\", confidence = \"M\" }},"
        )?;
    }
    out += "]\n";
    if !curves.is_empty() {
        out += "curve = [\n";
        curves.iter().for_each(|curve| out += &line(curve));
        out += "]\n";
    }
    writeln!(out, "\n[source]\nprobe = {}", quoted(&source))?;
    Ok(out)
}

fn drive(files: &Files) -> Vec<(&'static str, f64, &'static str)> {
    let [read, written, flushed] = files.p50_ns;
    vec![
        ("read_latency", read, "ns"),
        ("write_latency", written, "ns"),
        // The time that the flush adds to the write; if a write alone is slower than with a flush, the difference is
        // noise.
        ("flush_latency", (flushed - written).max(1.0), "ns"),
        ("read_iops", files.read_iops.median, "IOPS"),
        ("write_iops", files.write_iops.median, "IOPS"),
        ("read_bandwidth", files.read_gb_per_s, "GB/s"),
        ("write_bandwidth", files.write_gb_per_s, "GB/s"),
    ]
}

fn line(curve: &Curve) -> String {
    let store = if curve.store.is_empty() { String::new() } else { format!("store = \"{}\", ", curve.store) };
    let rates: Vec<String> = curve.gb_per_s.iter().map(|rate| format!("{rate:.4}")).collect();
    format!(
        "  {{ operation = \"{}\", pattern = \"{}\", {store}bytes = {}, modules = 1, threads = {:?}, gb_per_s = [{}], source = \"probe\", confidence = \"M\" }},\n",
        curve.operation,
        curve.pattern,
        curve.bytes,
        curve.threads,
        rates.join(", ")
    )
}
