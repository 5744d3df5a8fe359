//! The command line of `terrace bench what-if`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use catalogue::Medium;
use clap::Args;
use interop::production::units::{Bytes, Span};

use crate::figures::OwnPatterns;
use crate::measure;
use crate::media::Target;
use crate::options::WhatIfOptions;

/// A SATA SSD, an NVMe SSD, an Optane SSD, persistent memory.
const MEDIA: [&str; 4] = ["sata-s4500", "nvme-p4510", "optane-p4800x", "dcpmm100-128g"];
/// The smallest file system: ext4 with a journal.
const SIZE_MIN: u64 = 64 << 20;

/// Your own command on a file system over media that are not here, in turns with the disk that is
///
/// Makes a file system over each medium (memory with the medium's times, exported over NBD, mounted through nbdfuse and a loop device), runs
/// the command in each of them and in a folder of the real disk in turns, and prints its rate, its latency and its processor time. What the
/// mount itself costs is measured and taken off. A medium that is faster than the mount is never run: its rate is read off runs with four
/// added times, and refused if these do not lie on a line.
///
/// The command runs in the file system, finds its folder in TERRACE_DIR or as {} in its arguments, and the medium in TERRACE_MEDIUM. The rate
/// is read from what it prints: pgbench, fio, db_bench, sysbench, redis-benchmark are known; --rate reads any other; without a rate it is
/// runs a second.
///
/// Needs root, and the packages nbdfuse, fuse3, e2fsprogs, mount. Exit code 1: a figure was refused.
///
///   terrace bench what-if -- fio --name=log --filename={}/log --size=64M --rw=write --bs=4k --fdatasync=1 --runtime=5 --time_based
///   terrace bench what-if --media sata-s4500,optane-p4800x --setup './load.sh' -- ./run.sh
///   terrace bench what-if --media sata-s4500+sata-s4500+optane-p4800x -- ./run.sh      # a mirror of three
///   terrace bench what-if --media 'nbd+unix:///vol?socket=/run/t/nbd.sock' -- ./run.sh # a volume, an export
///
/// How it works and what it is not: docs/what-if.md.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct WhatIfArgs {
    /// Media of the catalogue (`terrace tier list` names them), mirrors of them (joined by +), or NBD addresses
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values = MEDIA)]
    pub media: Vec<String>,
    /// Folder with media descriptions of your own, as `media` in a node's settings: NAMES may name them too
    #[arg(long, value_name = "DIR")]
    pub media_folder: Option<PathBuf>,
    /// Size of each file system; memory is used as it is written
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub size: Bytes,
    /// Folder on the real disk, in which a folder for the comparison is made and removed again [default: this one]
    #[arg(long, value_name = "DIR")]
    pub disk: Option<PathBuf>,
    /// Rounds; in each one the command runs everywhere
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// One round
    #[arg(long, conflicts_with = "rounds")]
    pub quick: bool,
    /// A command for the shell that prepares each place, once; it is not measured
    #[arg(long, value_name = "COMMAND")]
    pub setup: Option<String>,
    /// Regular expression for the rate in the command's output, its number in the first group; several are added
    #[arg(long, value_name = "REGEX")]
    pub rate: Option<String>,
    /// The same for the latency, in microseconds; the last one counts
    #[arg(long, value_name = "REGEX")]
    pub latency: Option<String>,
    /// The longest time of a run
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub timeout: Span,
    /// Extrapolate the media too that can be run, to show how far an extrapolation is off
    #[arg(long)]
    pub check: bool,
    /// Overwrite exports that are not empty
    #[arg(long)]
    pub overwrite: bool,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl WhatIfArgs {
    /// Runs it.
    ///
    /// # Errors
    /// What cannot be run, with the reason.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let report = measure::run(&self.options()?)?;
        println!("{}", report.to_text());
        if let Some(file) = &self.json {
            std::fs::write(file, report.to_json()).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// What is to be measured.
    ///
    /// # Errors
    /// What cannot be, with the reason.
    pub fn options(&self) -> anyhow::Result<WhatIfOptions> {
        let rounds = if self.quick { 1 } else { self.rounds };
        ensure!((1..=1000).contains(&rounds), "--rounds takes 1 to 1000");
        ensure!(self.size.0 >= SIZE_MIN, "--size takes 64MiB at least: ext4 needs room for its journal");
        let mut known = catalogue::media().to_vec();
        if let Some(folder) = &self.media_folder {
            known.extend(Medium::read_folder(folder).context("the media of --media-folder")?);
        }
        let targets = self.media.iter().map(|text| Target::parse(text, &known)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(WhatIfOptions {
            targets,
            // Whole blocks of 4 KiB, as the file system's.
            bytes: self.size.0 / 4096 * 4096,
            disk: self.disk.clone(),
            rounds,
            setup: self.setup.clone(),
            command: self.command.clone(),
            patterns: OwnPatterns::new(self.rate.as_deref(), self.latency.as_deref())?,
            timeout: self.timeout.0,
            check: self.check,
            overwrite: self.overwrite,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        what_if: WhatIfArgs,
    }

    fn options(line: &str) -> anyhow::Result<WhatIfOptions> {
        Line::try_parse_from(["what-if"].into_iter().chain(line.split_whitespace()))?.what_if.options()
    }

    #[test]
    fn the_command_comes_after_two_dashes_and_the_rest_has_defaults() {
        let plain = options("-- fio --name=x --rate 5").expect("good");
        assert_eq!(plain.command, ["fio", "--name=x", "--rate", "5"]);
        assert_eq!((plain.targets.len(), plain.rounds, plain.bytes), (4, 3, 2 << 30));
        assert_eq!(plain.timeout, std::time::Duration::from_secs(3600));
        let own =
            options("--quick --media sata-s4500,nvme-p4510+nvme-p4510 --size 100MiB --check -- true").expect("good");
        assert_eq!((own.targets.len(), own.rounds, own.check), (2, 1, true));
        assert_eq!(own.bytes % 4096, 0);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for line in [
            "",
            "fio",
            "--rounds 0 -- true",
            "--size 1MiB -- true",
            "--media no-such -- true",
            "--rate x -- true",
            "--quick --rounds 2 -- true",
        ] {
            assert!(options(line).is_err(), "{line}");
        }
    }
}
