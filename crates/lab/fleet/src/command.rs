//! The command line of `terrace bench fleet`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use interop::production::units::Bytes;

use crate::diskspd;
use crate::measure::{self, FleetOptions, Times};
use crate::media::{Base, CacheLayout, Layout, usual_parent};
use crate::report::{FleetReport, Way};
use crate::server::{self, ServerProgram};

/// Size of a volume: two of them are twice the last cache of most processors.
const SIZE: u64 = 512 << 20;
const QUICK_SIZE: u64 = 64 << 20;

/// Mirrored volumes under the published loads: 4 KiB reads, 90/10, 2 MiB reads; in-process and over NBD
///
/// Makes volumes of three copies, writes every block, and reads and writes them with 4 threads x 16 requests in progress for each volume,
/// as the published runs did: in this process, then over NBD to a server in a process of its own, and each time on the bare medium beside
/// it. Everything that is read is checked. Exit code 1: a request failed, a block contained what it must not, or (with --slow-copies) less
/// than 99 % of the reads went to the fast copy.
///
///   terrace bench fleet --quick                                   # a minute, memory as persistent memory
///   terrace bench fleet --size 1GiB --json fleet.json             # the run for results
///   terrace bench fleet --media file --path /mnt/nvme/x           # a real disk
///   terrace bench fleet --capacity-model nvme-p4510 --cache-model dcpmm100-128g --cache 256MiB --cache-reads
///   terrace bench fleet --slow-copies sata-s4500 --path-kind in-process     # reads go to the fast copy
///
/// What the columns mean: docs/fleet.md.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct FleetArgs {
    /// A small run of a minute: volumes of 64 MiB, 1 s for each load
    #[arg(long)]
    pub quick: bool,
    /// Volumes, each under a load of its own
    #[arg(long, default_value_t = 2)]
    pub volumes: usize,
    /// Copies of each volume
    #[arg(long, default_value_t = 3)]
    pub copies: usize,
    /// Size of a volume, a multiple of 64 KiB [default: 512MiB, with --quick 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,
    /// Where copies lie
    #[arg(long, value_enum, default_value = "pmem")]
    pub media: Base,
    /// Folder in which a folder for the copies is made and removed again; default: /dev/shm for pmem, else this one
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// Slow the blocks of each copy down to a medium of the catalogue; `terrace tier list` names them
    #[arg(long, value_name = "NAME")]
    pub capacity_model: Option<String>,
    /// The same for the caches, and the journals with them
    #[arg(long, value_name = "NAME", requires = "cache")]
    pub cache_model: Option<String>,
    /// Size of a write-back cache in front of each copy [default: none]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<Bytes>,
    /// Size of its pages
    #[arg(long, value_name = "SIZE", default_value = "16KiB", requires = "cache")]
    pub cache_page: Bytes,
    /// Put into it what is read, too
    #[arg(long, requires = "cache")]
    pub cache_reads: bool,
    /// Slow all copies but the first down to a medium: shows that reads go to the fast one, and writes wait for the slowest
    #[arg(long, value_name = "NAME")]
    pub slow_copies: Option<String>,
    /// The copy to read, from 0 [default: the fastest, as measured]
    #[arg(long, value_name = "COPY")]
    pub prefer: Option<u8>,
    /// Threads on each volume
    #[arg(long, default_value_t = 4)]
    pub threads: usize,
    /// Requests that each thread keeps in progress; at most 2 of 2 MiB
    #[arg(long, default_value_t = 16)]
    pub outstanding: usize,
    /// Only in-process, or only over NBD; both without
    #[arg(long, value_enum, value_name = "KIND")]
    pub path_kind: Option<Way>,
    /// Only loads whose name contains this text, as "random read"
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Warm-up of a run, in seconds [default: 2, with --quick 0.2]
    #[arg(long, value_name = "SECONDS")]
    pub warm: Option<f64>,
    /// Measured time of a run, in seconds [default: 10, with --quick 1]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Cool-down of a run, in seconds [default: 1, with --quick 0.1]
    #[arg(long, value_name = "SECONDS")]
    pub cool: Option<f64>,
    /// Seed of the offsets
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the result in the manner of DISKSPD: as its XML to a file that ends with .xml, otherwise as its text
    #[arg(long, value_name = "FILE")]
    pub diskspd: Option<PathBuf>,
    /// The server's side of a measurement
    #[arg(long, value_name = "LAYOUT", hide = true)]
    pub serve: Option<String>,
}

impl FleetArgs {
    /// Runs it. `arguments` are those with which this program comes here: the server is this program again.
    ///
    /// # Errors
    /// What cannot be run, with the reason.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<ExitCode> {
        if let Some(setup) = &self.serve {
            server::serve(setup)?;
            return Ok(ExitCode::SUCCESS);
        }
        let program = std::env::current_exe().context("finding this program")?;
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let report = measure::run(&self.options(ServerProgram { program, arguments })?)?;
        println!("{}", report.to_text());
        self.write(&report)?;
        Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn write(&self, report: &FleetReport) -> anyhow::Result<()> {
        write(self.json.as_deref(), || report.to_json())?;
        write(self.diskspd.as_deref(), || match self.diskspd.as_deref().and_then(Path::extension) {
            Some(ending) if ending == "xml" => diskspd::to_xml(report),
            _ => diskspd::to_text(report),
        })
    }

    /// What is to be measured.
    ///
    /// # Errors
    /// What cannot be, with the reason.
    pub fn options(&self, server: ServerProgram) -> anyhow::Result<FleetOptions> {
        let or = |given: Option<f64>, long: f64, quick: f64| given.unwrap_or(if self.quick { quick } else { long });
        let (warm, seconds, cool) = (or(self.warm, 2.0, 0.2), or(self.seconds, 10.0, 1.0), or(self.cool, 1.0, 0.1));
        ensure!(
            (0.0..=3_600.0).contains(&warm) && (0.0..=3_600.0).contains(&cool),
            "--warm and --cool take 0 to 3600 s"
        );
        ensure!((0.05..=86_400.0).contains(&seconds), "--seconds takes 0.05 to 86400");
        ensure!(self.prefer.is_none_or(|copy| usize::from(copy) < self.copies), "--prefer takes the number of a copy");
        let cache = self.cache.map(|Bytes(bytes)| -> anyhow::Result<CacheLayout> {
            let page_bytes = u32::try_from(self.cache_page.0).context("a page of a cache is 1 MiB at most")?;
            Ok(CacheLayout { bytes, page_bytes, reads: self.cache_reads })
        });
        let layout = Layout {
            folder: self.path.clone().unwrap_or_else(|| usual_parent(self.media)),
            base: self.media,
            volumes: self.volumes,
            copies: self.copies,
            bytes: self.size.map_or(if self.quick { QUICK_SIZE } else { SIZE }, |Bytes(bytes)| bytes),
            cache: cache.transpose()?,
            capacity_model: self.capacity_model.clone(),
            cache_model: self.cache_model.clone(),
            slow_copies: self.slow_copies.clone(),
            prefer: self.prefer,
        };
        Ok(FleetOptions {
            layout,
            threads: self.threads,
            outstanding: self.outstanding,
            times: Times {
                warm: Duration::from_secs_f64(warm),
                measured: Duration::from_secs_f64(seconds),
                cool: Duration::from_secs_f64(cool),
            },
            ways: self.path_kind.map_or(vec![Way::InProcess, Way::Nbd], |way| vec![way]),
            only: self.only.clone(),
            seed: self.seed,
            server,
        })
    }
}

fn write(file: Option<&Path>, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, text()).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fleet: FleetArgs,
    }

    fn options(line: &str) -> anyhow::Result<FleetOptions> {
        let line = ["fleet"].into_iter().chain(line.split_whitespace());
        let server = ServerProgram { program: PathBuf::from("terrace-fleet"), arguments: Vec::new() };
        Line::try_parse_from(line)?.fleet.options(server)
    }

    #[test]
    fn the_command_line_becomes_options_with_the_published_load_as_default() {
        let plain = options("").expect("all have defaults");
        assert_eq!((plain.layout.volumes, plain.layout.copies, plain.threads, plain.outstanding), (2, 3, 4, 16));
        assert_eq!((plain.layout.bytes, plain.times.measured), (SIZE, Duration::from_secs(10)));
        assert_eq!(plain.ways, [Way::InProcess, Way::Nbd]);
        let quick = options("--quick --path-kind nbd --media file --path /mnt/x --size 1MiB").expect("good");
        assert_eq!((quick.ways, quick.layout.bytes), (vec![Way::Nbd], 1 << 20));
        assert_eq!((quick.layout.folder, quick.layout.base), (PathBuf::from("/mnt/x"), Base::File));
        let cached =
            options("--cache 8MiB --cache-page 64KiB --cache-reads --cache-model dcpmm100-128g").expect("good");
        assert_eq!(cached.layout.cache, Some(CacheLayout { bytes: 8 << 20, page_bytes: 64 << 10, reads: true }));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for line in [
            "--seconds 0",
            "--warm -1",
            "--prefer 3",
            "--cache-reads",
            "--cache-model x",
            "--media tape",
            "--path-kind tcp",
            "--cache 1GiB --cache-page 8GiB",
        ] {
            assert!(options(line).is_err(), "{line}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        for line in ["--volumes 0", "--copies 4", "--threads 0", "--outstanding 0", "--only nothing", "--size 64KiB"] {
            let options = options(&format!("{line} --path {}", folder.path().display())).expect("a value");
            assert!(measure::run(&options).is_err(), "{line}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "folders are removed");
    }
}
