//! `terrace production generations`, `diff` and `back`: what was loaded when, what differs, and an earlier one again.
//!
//! A running node answers; of a stopped one its store is read, and nothing on the medium changes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use interop::generations::{FileChange, FileDifference, Generation, LoadKind, VALUES_IN_FORCE};
use interop::running::{GenerationDifference, GenerationList, ProductionRequest, WentBack};
use node::control;

use crate::cli::GenerationListArgs;
use crate::production_requests::request;
use crate::show::{TextTable, bytes, count, time};
use crate::terminal;

/// Digits of a hash or a commit that a table shows.
const DIGITS: usize = 10;

/// How a generation came, in words.
fn how(kind: LoadKind) -> String {
    match kind {
        LoadKind::Start => "start".to_owned(),
        LoadKind::Reload => "reload".to_owned(),
        LoadKind::Back(to) => format!("back to {to}"),
    }
}

fn short(digits: &str) -> &str {
    digits.get(..DIGITS).unwrap_or(digits)
}

/// Files of a generation that the one before has not, or has with another text.
fn changed(generation: &Generation, before: Option<&Generation>) -> String {
    let Some(before) = before else { return "-".to_owned() };
    let texts: BTreeMap<&str, &str> = before.files.iter().map(|file| (&*file.path, &*file.hash)).collect();
    let differs = |path: &str, hash: &str| texts.get(path) != Some(&hash);
    let came = generation.files.iter().filter(|file| differs(&file.path, &file.hash)).count();
    let went = before.files.iter().filter(|old| generation.files.iter().all(|file| file.path != old.path)).count();
    (came + went).to_string()
}

/// `terrace production generations`
pub fn list(args: &GenerationListArgs) -> anyhow::Result<ExitCode> {
    // One more: what changed in the last one that is shown is beside it.
    let wanted = ProductionRequest::Generations { last: args.last.max(1).saturating_add(1) };
    let found: GenerationList = request(&args.place.data, &wanted)?;
    let mut out = terminal::out();
    if args.json {
        for generation in found.generations.iter().take(args.last.max(1)) {
            let mut line = serde_json::to_value(generation)?;
            line["in_force"] = (found.in_force == Some(generation.number)).into();
            writeln!(out, "{line}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if found.generations.is_empty() {
        writeln!(out, "no production was loaded here yet")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        TextTable::new(&["generation", "loaded", "by", "how", "files", "changed", "bytes", "hash", "commit", ""]);
    for (at, generation) in found.generations.iter().enumerate().take(args.last.max(1)) {
        let total: u64 = generation.files.iter().map(|file| file.bytes).sum();
        let is_in_force = found.in_force == Some(generation.number);
        table.row(&[
            &generation.number.to_string(),
            &time(generation.loaded_us),
            &generation.by,
            &how(generation.how),
            &count(generation.files.len() as u64),
            &changed(generation, found.generations.get(at + 1)),
            &bytes(total),
            short(&generation.hash),
            generation.commit.as_deref().map_or("-", short),
            if is_in_force { "in force" } else { "" },
        ]);
    }
    write!(out, "{table}")?;
    Ok(ExitCode::SUCCESS)
}

/// `terrace production diff`
pub fn diff(data: &Path, (from, to): (String, String), json: bool) -> anyhow::Result<ExitCode> {
    let found: GenerationDifference = request(data, &ProductionRequest::Diff { from, to })?;
    let code = if found.files.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    let mut out = terminal::out();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
        return Ok(code);
    }
    if found.files.is_empty() {
        writeln!(out, "{} and {} are the same", found.from, found.to)?;
    }
    for file in &found.files {
        let place = |is_there: bool, side: &str| {
            if is_there { format!("{}\t({side})", file.path) } else { "/dev/null".to_owned() }
        };
        writeln!(out, "--- {}", place(file.change != FileChange::Came, &found.from))?;
        writeln!(out, "+++ {}", place(file.change != FileChange::Went, &found.to))?;
        write!(out, "{}", file.lines)?;
        if let Some(note) = &file.note {
            writeln!(out, "# {} lines came, {} went: {note}", count(file.added as u64), count(file.removed as u64))?;
        }
    }
    Ok(code)
}

/// `terrace production back`
pub fn back(data: &Path, generation: u32, write: Option<&Path>) -> anyhow::Result<ExitCode> {
    ensure!(control::is_running(data), "no node runs in {}: `terrace serve` loads the folder", data.display());
    if let Some(folder) = write {
        // Before anything changes: what cannot be written is not half done.
        write_out(data, generation, folder)?;
    }
    let answer = control::request(data, &ProductionRequest::Back { generation }.line())?;
    let made: WentBack = serde_json::from_value(answer).context("the answer cannot be read by this release")?;
    println!("generation {generation} is in force again, as generation {}; connections stayed open", made.generation);
    made.changes.iter().for_each(|change| println!("  {change}"));
    report_disk(&made, generation, write);
    Ok(ExitCode::SUCCESS)
}

/// What the folder has otherwise, and what to do about that.
fn report_disk(made: &WentBack, generation: u32, write: Option<&Path>) {
    let on_disk: Vec<&FileDifference> = made.on_disk.iter().filter(|file| file.path != VALUES_IN_FORCE).collect();
    if on_disk.is_empty() {
        println!("the folder {} has the same files", made.folder);
        return;
    }
    println!("\nthe folder {} was not changed, and has other files: the next reload or start loads those", made.folder);
    for file in on_disk {
        // Seen from what is in force.
        let what = match file.change {
            FileChange::Came => "is in the folder only",
            FileChange::Went => "is not in the folder",
            FileChange::Changed => "has another text there",
        };
        println!("  {} {what}", file.path);
    }
    match write {
        Some(folder) => println!("the files of generation {generation} are in {}", folder.display()),
        None => println!(
            "to have its files: terrace production back {generation} --write DIR; what differs: terrace production diff {} disk",
            made.generation
        ),
    }
}

/// Writes the files of a generation to a new folder.
fn write_out(data: &Path, generation: u32, folder: &Path) -> anyhow::Result<()> {
    ensure!(!folder.exists(), "{} exists already; name a folder that is not there yet", folder.display());
    let texts: BTreeMap<String, Option<String>> = request(data, &ProductionRequest::Texts { generation })?;
    if let Some((path, _)) = texts.iter().find(|(_, text)| text.is_none()) {
        let why = if path.starts_with("tables/") {
            "it is not kept any more, or needs the right unmasked on all services"
        } else {
            "it is not kept any more, or was too large to be kept"
        };
        anyhow::bail!("generation {generation} cannot be written out: {path}: {why}");
    }
    for (path, text) in texts {
        let is_plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        ensure!(is_plain, "generation {generation} has a file of an odd name: {path}");
        let place = folder.join(&path);
        fs::create_dir_all(place.parent().expect("a file is in a folder"))?;
        fs::write(&place, text.unwrap_or_default()).with_context(|| format!("cannot write {}", place.display()))?;
    }
    Ok(())
}
