//! The command line of `terrace profile`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use catalogue::provision::geometry::{parse_bytes, print_bytes};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::hash::Salt;
use crate::import::{ImportOptions, Imported, TraceFormat, import};
use crate::output::{folder_of, persist};
use crate::profile::{
    FILE_BYTES_DEFAULT, PAGE_BYTES_MAX, Profile, ProfileReader, RecorderOptions, STREAM_KEYS_DEFAULT,
};
use crate::reuse::{KEYS_DEFAULT, mean_absolute_error};
use crate::show;
use crate::simulate::{CacheMemory, CacheShape, simulate};

/// `terrace profile ...`
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Make a profile of a trace that another program has recorded
    ///
    /// A profile has what a plan needs of a workload: counts by hour, how soon what was used is used again, a
    /// sample of the accesses. Pages and keys are hashes with a salt that is stored nowhere, so it can be given
    /// away. What a format lacks (flushes, processor time, ...) is named in the profile.
    ///
    ///   blkparse -i sda | terrace profile import blkparse - --out sda.tprof
    ///   terrace profile import fio app.iolog --out app.tprof
    ///   zstdcat cluster52.zst | terrace profile import twitter - --out cluster52.tprof
    ///   terrace profile show sda.tprof
    ///
    /// A line that is not of the format ends the import, with its number; --bad-lines leaves some out.
    #[command(verbatim_doc_comment)]
    Import(ImportArgs),
    /// Show a profile: counts, the miss-ratio curve, the busiest hours, and what it lacks
    ///
    ///   terrace profile show sda.tprof
    ///   terrace profile show sda.tprof --json --at 1GiB,4GiB,16GiB
    #[command(verbatim_doc_comment)]
    Show(ShowArgs),
    /// Show what a node's page cache would find of a profile's accesses, by its size
    ///
    /// The curve of `show` is that of LRU; this simulates the policies that run in the node, on the sampled
    /// stream: CLOCK with a ghost list, near memory with far memory behind it, or the direct map of Memory Mode.
    ///
    ///   terrace profile cache sda.tprof --near 256MiB,1GiB,4GiB
    ///   terrace profile cache sda.tprof --near 1GiB --far 8GiB
    ///   terrace profile cache sda.tprof --near 1GiB --far 8GiB --policy direct
    #[command(verbatim_doc_comment)]
    Cache(CacheArgs),
}

/// `terrace profile import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Format of the trace
    #[arg(value_enum)]
    pub format: TraceFormat,
    /// The trace; - for standard input
    pub trace: PathBuf,
    /// The profile to make
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace it, if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// Bytes of a page of the cache that is planned
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = size)]
    pub page: u64,
    /// A block trace: each request is one object, named by its first byte, as cache simulators take it
    #[arg(long)]
    pub objects: bool,
    /// Objects count as one page each, whatever their size
    #[arg(long)]
    pub same_size: bool,
    /// Leave out up to so many bad lines, and report the first ones
    #[arg(long, value_name = "MAX", default_value_t = 0)]
    pub bad_lines: u64,
    /// Keys of the sample of reuse distances
    #[arg(long, value_name = "MANY", default_value_t = KEYS_DEFAULT, value_parser = keys)]
    pub keys: usize,
    /// Keys of the sampled stream
    #[arg(long, value_name = "MANY", default_value_t = STREAM_KEYS_DEFAULT, value_parser = keys)]
    pub stream_keys: usize,
    /// Largest size of the profile
    #[arg(long, value_name = "SIZE", default_value_t = FILE_BYTES_DEFAULT, value_parser = size)]
    pub limit: u64,
    /// Compute the exact curve too and print how far the sample is off; memory grows with the number of pages
    #[arg(long)]
    pub exact: bool,
    /// Take the salt from this number, to get the same profile again; whoever knows it can guess page numbers
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `terrace profile show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The profile
    pub profile: PathBuf,
    /// Sizes of caches for the curves of --json [default: 100, from a page to everything]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size, requires = "json")]
    pub at: Vec<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What moves pages between near and far memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// The node: pages that leave near memory go to far memory, and come back with a probability
    Managed,
    /// The hardware: near memory is a direct-mapped cache of far memory
    Direct,
}

/// `terrace profile cache`
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// The profile
    pub profile: PathBuf,
    /// Near memory, one or more sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', required = true, value_parser = size)]
    pub near: Vec<u64>,
    /// Far memory behind it
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub far: Option<u64>,
    /// What moves pages between them
    #[arg(long, value_enum, default_value = "managed", requires = "far")]
    pub policy: PolicyName,
    /// Probability that a use in far memory promotes
    #[arg(long, value_name = "PART", default_value_t = 0.1)]
    pub promote: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).ok_or("write a size as 64MiB, 1.5GiB or a number of bytes")?;
    if bytes == 0 { Err("a size is above 0".into()) } else { Ok(bytes) }
}

fn keys(text: &str) -> Result<usize, String> {
    let many = text.parse::<usize>().map_err(|error| error.to_string())?;
    if (64..=1 << 26).contains(&many) { Ok(many) } else { Err("a sample has 64 to 67108864 keys".into()) }
}

impl ProfileCommand {
    /// Runs it.
    ///
    /// # Errors
    /// What cannot be done, with the reason.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            ProfileCommand::Import(args) => args.run(),
            ProfileCommand::Show(args) => args.run(),
            ProfileCommand::Cache(args) => args.run(),
        }
        .map(|()| ExitCode::SUCCESS)
    }
}

/// Prints all of it; who reads may have gone.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing the result"),
    }
}

impl ImportArgs {
    fn run(&self) -> anyhow::Result<()> {
        let out = &self.out;
        ensure!(self.overwrite || !out.exists(), "{} exists; --overwrite replaces it", out.display());
        ensure!(self.page.is_power_of_two() && self.page <= PAGE_BYTES_MAX, "--page takes a power of two up to 1MiB");
        let folder = folder_of(out);
        let salt = match self.seed {
            Some(seed) => Salt::of_seed(seed),
            None => Salt::secret().context("drawing the salt")?,
        };
        let structure = if self.format.is_of_blocks() { "block" } else { "object" };
        let mut recorder = RecorderOptions::new(salt, &[structure], self.page, folder);
        (recorder.keys, recorder.stream_keys, recorder.file_bytes) = (self.keys, self.stream_keys, self.limit);
        let options = ImportOptions {
            format: self.format,
            objects: self.objects,
            same_size: self.same_size,
            bad_lines_max: self.bad_lines,
            exact: self.exact,
        };
        // Under another name until it is whole and durable.
        let mut file = tempfile::NamedTempFile::new_in(folder)
            .with_context(|| format!("making a file in {}", folder.display()))?;
        let imported = {
            let mut trace = open(&self.trace)?;
            let advice = if self.bad_lines == 0 { "; --bad-lines leaves out some" } else { "" };
            import(&mut trace, &options, recorder, &mut file).map_err(|error| match error {
                error @ crate::PlanError::BadLine { .. } => anyhow::anyhow!("{error}{advice}"),
                other => other.into(),
            })
        }
        .with_context(|| format!("importing {}", self.trace.display()))?;
        persist(file, out)?;
        self.print(&imported)
    }

    fn print(&self, imported: &Imported) -> anyhow::Result<()> {
        let Imported { summary, requests, bad_lines, exact } = imported;
        let reuse = summary.totals().total().reuse;
        let error = exact
            .as_ref()
            .map(|exact| mean_absolute_error(&reuse.curve(), &exact.curve(), summary.touched_bytes.max(1), 100));
        if self.json {
            let mut out = show::json(&self.out.to_string_lossy(), summary, &[]);
            out["requests"] = json!(requests);
            out["bad_lines"] = json!(bad_lines);
            if let Some(error) = error {
                out["mean_absolute_error"] = json!(error);
            }
            return print(&format!("{out}\n"));
        }
        for line in bad_lines {
            eprintln!("left out: {line}");
        }
        let accesses = reuse.accesses;
        let mut text = format!("{requests} requests, {accesses} accesses -> {}\n", self.out.display());
        if let Some(error) = error {
            text += &format!("mean absolute error of the sampled curve: {error:.5}\n");
        }
        for lack in &summary.lacks {
            text += &format!("it lacks {}\n", lack.text());
        }
        print(&text)
    }
}

fn open(trace: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if trace == Path::new("-") {
        return Ok(Box::new(BufReader::with_capacity(1 << 20, std::io::stdin())));
    }
    let file = File::open(trace).with_context(|| format!("opening {}", trace.display()))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

impl ShowArgs {
    fn run(&self) -> anyhow::Result<()> {
        let file = &self.profile;
        let profile = Profile::read(file).with_context(|| format!("reading {}", file.display()))?;
        match self.json {
            true => print(&format!("{}\n", show::json(&file.to_string_lossy(), &profile.summary, &self.at))),
            false => print(&show::text(&profile.summary)),
        }
    }
}

impl CacheArgs {
    fn run(&self) -> anyhow::Result<()> {
        let file = &self.profile;
        let context = || format!("reading {}", file.display());
        let mut profile = ProfileReader::open(file).with_context(context)?;
        let page_bytes = profile.summary().page_bytes;
        let memory = match (self.far, self.policy) {
            (None, _) => CacheMemory::Near,
            (Some(far_bytes), PolicyName::Managed) => CacheMemory::NearFar { far_bytes, promote: self.promote },
            (Some(far_bytes), PolicyName::Direct) => CacheMemory::DirectMapped { far_bytes },
        };
        let shapes: Vec<CacheShape> =
            self.near.iter().map(|near_bytes| CacheShape { page_bytes, near_bytes: *near_bytes, memory }).collect();
        let curve = profile.summary().cached().reuse.curve();
        let served = simulate(&mut profile, &shapes).with_context(context)?;
        let rows = shapes.iter().zip(&served);
        if self.json {
            let rows: Vec<_> = rows
                .map(|(shape, served)| {
                    json!({"near_bytes": shape.near_bytes, "far_bytes": self.far, "near": served.near, "far": served.far,
                           "device": served.device, "lru_miss_ratio": curve.miss_ratio(shape.near_bytes)})
                })
                .collect();
            return print(&format!("{}\n", json!({"file": file, "caches": rows})));
        }
        let percent = |part: f64| format!("{:.2} %", part * 100.0);
        let mut text =
            format!("{:>12} {:>12} {:>10} {:>10} {:>10}\n", "near memory", "far memory", "near", "far", "device");
        for (shape, served) in rows {
            text += &format!(
                "{:>12} {:>12} {:>10} {:>10} {:>10}\n",
                print_bytes(shape.near_bytes),
                self.far.map_or("-".to_owned(), print_bytes),
                percent(served.near),
                percent(served.far),
                percent(served.device)
            );
        }
        print(&text)
    }
}
