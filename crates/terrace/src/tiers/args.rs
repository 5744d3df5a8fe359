//! The command line of `terrace tier`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `terrace tier ...`
#[derive(Debug, Subcommand)]
pub enum TierCommand {
    /// Show the memory, persistent memory and disks of this machine, and whether they keep data when the power fails
    List(TierListArgs),
    /// Measure latency and bandwidth of memory, and of directories named
    ///
    /// Memory of each NUMA node is measured, and each directory by files that are removed again.
    /// Devices are never written to. Some ten seconds a node and a directory:
    ///
    ///   terrace tier probe --path /mnt/pmem0 --path /var/lib/terrace
    #[command(verbatim_doc_comment)]
    Probe(ProbeArgs),
    /// Plan how persistent memory is divided, with the commands and the space left for data; changes nothing
    ///
    /// A goal divides modules between Memory Mode and App Direct, in percent (Intel modules, with
    /// ipmctl); namespaces divide the regions that App Direct makes (ndctl). For this machine:
    ///
    ///   terrace tier plan                                       # one file system on each region
    ///   terrace tier plan --namespaces fsdax=384GiB,sector=rest
    ///   terrace tier plan --goal memory=50,app-direct=50
    ///   terrace tier plan --system-ram                          # CXL memory, HBM: nodes of the system
    ///
    /// For another one, from the output of `terrace tier list --json` there, or a few numbers:
    ///
    ///   terrace tier plan --goal app-direct=100 --machine other.json
    ///   terrace tier plan --goal memory=100 --modules 6x128GiB --dram 192GiB --sockets 2
    #[command(verbatim_doc_comment)]
    Plan(PlanArgs),
    /// Carry a plan out, after confirmation; called again after the restart of a goal, it continues
    ///
    ///   terrace tier plan --goal app-direct=100 --out plan.json
    ///   terrace tier apply plan.json                            # asks for confirmation, sets the goal, then prints: switch off and on
    ///   terrace tier apply                                      # after that: namespaces, file systems, mounts
    ///
    /// Without hardware, a directory can be used instead:
    ///
    ///   terrace tier apply --model ./tiers --size 1GiB
    #[command(verbatim_doc_comment)]
    Apply(ApplyArgs),
}

/// `terrace tier list`
#[derive(Debug, Args)]
pub struct TierListArgs {
    /// Print JSON, which `tier plan --machine` reads
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Where the machine and the state are found.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Read /sys and /proc below this directory: a copy of another machine's
    #[arg(long, default_value = "/", value_name = "DIR", hide = true)]
    pub root: PathBuf,
    /// Where apply keeps its progress
    #[arg(long, default_value = "/var/lib/terrace/provision.json", value_name = "FILE")]
    pub state: PathBuf,
}

/// `terrace tier probe`
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Measure files in this directory too; may be given several times
    #[arg(long = "path", value_name = "DIR")]
    pub paths: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the results as a medium for models of tiers: those of the directory, or of the memory without one
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Size of the measured memory, and of the file in each directory
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    pub size: String,
}

/// `terrace tier plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub wish: WishArgs,
    #[command(flatten)]
    pub hypothesis: HypothesisArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the plan to a file that `tier apply` takes
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The wish.
#[derive(Debug, Args)]
pub struct WishArgs {
    /// Percent of every module, as memory=50,app-direct=50; the rest is App Direct, or reserved
    #[arg(long, value_name = "PERCENTS")]
    pub goal: Option<String>,
    /// Make each module a region of its own, instead of all modules of a socket one
    #[arg(long, requires = "goal")]
    pub not_interleaved: bool,
    /// Namespaces to make in each region
    #[arg(long, default_value = "fsdax=rest", value_name = "MODE=SIZE,...")]
    pub namespaces: String,
    /// Only in this region; may be given several times
    #[arg(long = "region", value_name = "REGION")]
    pub regions: Vec<String>,
    /// Where the 64 bytes that describe each page are kept
    #[arg(long, value_enum, default_value = "dev")]
    pub map: MapName,
    /// File system of fsdax namespaces
    #[arg(long, value_enum, default_value = "xfs")]
    pub file_system: FileSystemName,
    /// Mount points: this and the number of the region
    #[arg(long, default_value = "/mnt/pmem", value_name = "PREFIX")]
    pub mount: String,
    /// Far memory at most this many times the DRAM in Memory Mode
    #[arg(long, default_value_t = catalogue::provision::wish::RATIO_LIMIT, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub ratio_limit: u32,
    /// This namespace may be destroyed with its content; may be given several times
    #[arg(long, value_name = "NAMESPACE")]
    pub overwrite: Vec<String>,
    /// Make CXL memory and device-DAX memory (HBM, far memory) nodes of the system, with cxl and daxctl
    #[arg(long, conflicts_with_all = ["goal", "model", "regions", "namespaces"])]
    pub system_ram: bool,
    /// Only this device, as mem0 or dax0.0; may be given several times
    #[arg(long = "device", value_name = "DEVICE", requires = "system_ram")]
    pub devices: Vec<String>,
    /// No hardware: use a directory as the region
    #[arg(long, value_name = "DIR", conflicts_with = "goal")]
    pub model: Option<PathBuf>,
    /// Size of that region
    #[arg(long, default_value = "1GiB", value_name = "SIZE", requires = "model")]
    pub size: String,
}

impl WishArgs {
    /// Whether nothing is requested; namespaces that may be destroyed can be named later than the rest.
    pub fn is_default(&self) -> bool {
        self.goal.is_none()
            && !self.system_ram
            && self.model.is_none()
            && self.namespaces == "fsdax=rest"
            && self.regions.is_empty()
            && matches!(self.map, MapName::Dev)
            && matches!(self.file_system, FileSystemName::Xfs)
            && self.mount == "/mnt/pmem"
            && self.ratio_limit == catalogue::provision::wish::RATIO_LIMIT
    }
}

/// Where page structures are kept.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum MapName {
    /// On the persistent memory: takes 1/64 of it
    Dev,
    /// In DRAM: takes 16 GiB for each TiB
    Mem,
}

/// File systems with direct mapping.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FileSystemName {
    /// XFS
    Xfs,
    /// ext4
    Ext4,
}

/// A machine that is not this one.
#[derive(Debug, Args)]
pub struct HypothesisArgs {
    /// The output of `terrace tier list --json` on the machine to plan for
    #[arg(long, value_name = "FILE", conflicts_with = "modules")]
    pub machine: Option<PathBuf>,
    /// Modules of each socket; with commas socket by socket
    #[arg(long, value_name = "COUNTxSIZE")]
    pub modules: Option<String>,
    /// DRAM of the whole machine
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<String>,
    /// How much the processor of a socket can map, DRAM included unless it is a cache; default: as the firmware reports
    #[arg(long, value_name = "SIZE")]
    pub socket_limit: Option<String>,
    /// Sockets that have the modules named
    #[arg(long, default_value_t = 1, value_name = "N", requires = "modules", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub sockets: u32,
    /// Generation of the modules
    #[arg(long, value_enum, default_value = "100", requires = "modules")]
    pub series: SeriesName,
}

/// Generations of Intel Optane persistent memory.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SeriesName {
    /// Cascade Lake
    #[value(name = "100")]
    S100,
    /// Cooper Lake, Ice Lake
    #[value(name = "200")]
    S200,
    /// Sapphire Rapids; App Direct only
    #[value(name = "300")]
    S300,
}

/// `terrace tier apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// A plan that `tier plan --out` wrote; without one, the plan that waits, else a new one from the options
    pub plan: Option<PathBuf>,
    #[command(flatten)]
    pub wish: WishArgs,
    /// Do not request confirmation
    #[arg(long)]
    pub yes: bool,
    /// Discard the plan that waits; completed steps are not undone
    #[arg(long)]
    pub discard: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn apply(options: &[&str]) -> ApplyArgs {
        let words = ["terrace", "tier", "apply"].iter().chain(options);
        match Cli::parse_from(words).command {
            Command::Tier(TierCommand::Apply(args)) => args,
            other => panic!("{other:?} is not tier apply"),
        }
    }

    #[test]
    fn options_of_a_new_plan_are_noticed_and_what_may_go_is_none_of_them() {
        assert!(apply(&[]).wish.is_default());
        assert!(apply(&["--yes", "--overwrite", "namespace0.0"]).wish.is_default());
        for option in [
            "--goal=memory=50",
            "--namespaces=devdax",
            "--region=region0",
            "--map=mem",
            "--file-system=ext4",
            "--mount=/data",
            "--ratio-limit=16",
            "--model=tiers",
            "--system-ram",
        ] {
            assert!(!apply(&[option]).wish.is_default(), "{option}");
        }
    }
}
