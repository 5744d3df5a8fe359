//! The command lines of `terrace bench rally` and `terrace bench kill --search`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use crate::in_process;
use crate::kill::{self, SearchKillOptions};
use crate::measure::{self, RallyOptions};
use crate::media::MEDIA;
use crate::track;

/// Documents of a race by the size of its bulks: some seconds on two cores.
const DOCUMENTS: [(usize, usize); 3] = [(1, 10_000), (100, 100_000), (5_000, 300_000)];
/// The same in a quick run.
const QUICK_DOCUMENTS: [(usize, usize); 3] = [(1, 1_000), (100, 10_000), (5_000, 20_000)];
/// Documents of a track that is only written.
const TRACK_DOCUMENTS: usize = 500_000;
/// Times that each query is measured.
const ITERATIONS: usize = 100;
const QUICK_ITERATIONS: usize = 10;

/// `terrace bench rally`
#[derive(Debug, Args)]
pub struct RallyArgs {
    /// A small run: one round, fewer documents and queries; esrally sends all queries at the same time
    #[arg(long)]
    pub quick: bool,
    /// Load by this program, without esrally and Python
    #[arg(long)]
    pub builtin: bool,
    /// One client in the process of the engine, without a socket: what a medium is worth to the engine itself
    #[arg(long, conflicts_with_all = ["builtin", "races", "svg", "track"])]
    pub in_process: bool,
    /// Documents of a bulk request, separated by commas [default: 5000, with --builtin or --in-process 1,100,5000]
    #[arg(long, value_name = "N,N...", value_delimiter = ',')]
    pub bulk: Vec<usize>,
    /// Races at a time, separated by commas [default: 1,2,4]
    #[arg(long, value_name = "N,N...", value_delimiter = ',')]
    pub races: Vec<usize>,
    /// Documents of each race [default: 10,000 in bulks of 1, up to 300,000 in bulks of 5,000]
    #[arg(long)]
    pub docs: Option<usize>,
    /// How often each medium takes its turn [default: 3, with --quick 1]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Seed of the documents
    #[arg(long, default_value_t = track::SEED)]
    pub seed: u64,
    /// A folder on a real SATA drive, in place of the model
    #[arg(long, value_name = "DIR")]
    pub sata: Option<PathBuf>,
    /// A folder on a real NVMe drive, in place of the model
    #[arg(long, value_name = "DIR")]
    pub nvme: Option<PathBuf>,
    /// A folder mounted with DAX on persistent memory, in place of the model
    #[arg(long, value_name = "DIR")]
    pub pmem: Option<PathBuf>,
    /// Where to put the modelled media and the documents; default: /dev/shm where there is one
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the figure to a file as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Only write the track with its documents to a folder, for esrally by hand, and print its parameters
    #[arg(long, value_name = "DIR", conflicts_with_all = ["builtin", "json", "svg"])]
    pub track: Option<PathBuf>,
}

impl RallyArgs {
    /// Runs it.
    ///
    /// # Errors
    /// What cannot be run, with the reason.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(folder) = &self.track {
            let documents = self.docs.unwrap_or(TRACK_DOCUMENTS);
            println!("{}", track::write(folder, documents, self.seed)?.parameters());
            return Ok(ExitCode::SUCCESS);
        }
        if self.in_process {
            let report = in_process::run(&self.options()?)?;
            println!("{}", report.to_text());
            write(self.json.as_deref(), &report.to_json())?;
            return Ok(ExitCode::SUCCESS);
        }
        let report = measure::run(&self.options()?)?;
        println!("{}", report.to_text());
        write(self.json.as_deref(), &report.to_json())?;
        write(self.svg.as_deref(), &report.to_svg())?;
        Ok(exit(report.is_clean()))
    }

    fn options(&self) -> anyhow::Result<RallyOptions> {
        let or = |given: &[usize], default: &[usize]| if given.is_empty() { default.to_vec() } else { given.to_vec() };
        let (bulk, races) = (
            or(&self.bulk, if self.builtin || self.in_process { &[1, 100, 5_000] } else { &[5_000] }),
            or(&self.races, &[1, 2, 4]),
        );
        ensure!(bulk.iter().all(|bulk| (1..=100_000).contains(bulk)), "--bulk takes 1 to 100,000");
        ensure!(races.iter().all(|races| (1..=16).contains(races)), "--races takes 1 to 16");
        let rounds = self.rounds.unwrap_or(if self.quick { 1 } else { 3 });
        ensure!((1..=100).contains(&rounds), "--rounds takes 1 to 100");
        let sizes = if self.quick { QUICK_DOCUMENTS } else { DOCUMENTS };
        let bulk = bulk.into_iter().map(|bulk| (bulk, self.docs.unwrap_or(documents(&sizes, bulk)))).collect();
        let real = MEDIA.iter().zip([&self.sata, &self.nvme, &self.pmem]);
        Ok(RallyOptions {
            builtin: self.builtin,
            bulk,
            races,
            rounds,
            iterations: if self.quick { QUICK_ITERATIONS } else { ITERATIONS },
            together: self.quick,
            seed: self.seed,
            real: real.filter_map(|(medium, folder)| Some((medium.tier, folder.clone()?))).collect(),
            dir: self.dir.clone(),
        })
    }
}

/// The documents of the largest size of bulks that is not beyond `bulk`.
fn documents(sizes: &[(usize, usize)], bulk: usize) -> usize {
    sizes.iter().rev().find(|(of, _)| *of <= bulk).map_or(bulk, |(_, documents)| *documents)
}

/// Runs `terrace bench kill --search`.
///
/// # Errors
/// What cannot be run, with the reason.
pub fn kill(options: &SearchKillOptions, json: Option<&Path>) -> anyhow::Result<ExitCode> {
    let report = kill::run(options)?;
    println!("{}", report.to_text());
    write(json, &report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn write(file: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// A result that breaks a promise is a problem found: exit code 1.
fn exit(clean: bool) -> ExitCode {
    if clean { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        rally: RallyArgs,
    }

    fn options(line: &str) -> anyhow::Result<RallyOptions> {
        let line = ["rally"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(line)?.rally.options()
    }

    #[test]
    fn the_command_line_becomes_options_with_documents_for_each_size_of_bulks() {
        let plain = options("").expect("all have defaults");
        assert_eq!((plain.bulk, plain.races, plain.rounds), (vec![(5_000, 300_000)], vec![1, 2, 4], 3));
        let quick = options("--quick --builtin --races 2 --pmem /mnt/pmem0").expect("good");
        assert_eq!((quick.races, quick.rounds, quick.iterations), (vec![2], 1, QUICK_ITERATIONS));
        assert_eq!(quick.bulk, [(1, 1_000), (100, 10_000), (5_000, 20_000)]);
        assert_eq!(quick.real, [("pmem", PathBuf::from("/mnt/pmem0"))]);
        let own = options("--bulk 1,50,100000 --docs 7").expect("good");
        assert_eq!(own.bulk, [(1, 7), (50, 7), (100_000, 7)]);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for line in ["--bulk 0", "--races 0", "--races 17", "--rounds 0", "--bulk x", "--track x --builtin"] {
            assert!(options(line).is_err(), "{line}");
        }
    }
}
