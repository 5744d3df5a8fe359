//! The command line of `terrace plan`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use catalogue::Medium;
use catalogue::price::{self, Price, PriceDate};
use catalogue::provision::geometry::parse_bytes;
use clap::{Args, Subcommand};

use crate::evidence::{EvidenceArgs, beside};
use crate::mix::sizing::{QUERY_PAGES, Sizing, SizingInput, sizing};
use crate::mix::target::{HEADROOM, MONTHS_DEFAULT, parse_growth, parse_number, parse_rate, parse_seconds};
use crate::mix::text::text;
use crate::mix::{
    PlanReport, PlanRequest, Planning, PriceList, ProfileSource, Query, Server, Shortness, Target, VerifyConfig,
    VerifyReport,
};
use crate::output::{print, read_plan, read_text, write_durably};
use crate::page::{PageArgs, page};
use crate::prices::{PricesArgs, date, today};

/// The largest description of a server or a machine, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Profiles at most.
const PROFILES_MAX: usize = 64;

/// `terrace plan`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PlanArgs {
    /// What to do with plans that were made
    #[command(subcommand)]
    pub command: Option<PlanSubcommand>,
    /// What to plan
    #[command(flatten)]
    pub make: MakePlanArgs,
}

/// What `terrace plan` does beside planning.
#[derive(Debug, Subcommand)]
pub enum PlanSubcommand {
    /// Show a plan.json again, as text
    Show {
        /// The file
        plan: PathBuf,
    },
    /// Run the mixes of a plan through the real page cache, on modelled media with virtual time: predicted beside measured
    ///
    /// Its options are those of the plan. The profile's stream goes through the page cache of the store, in a memory
    /// that is as much smaller as the sample. Queues, journal and processors are not part of it.
    Verify(Box<MakePlanArgs>),
    /// Check files of prices, and make them of what providers publish
    Prices(PricesArgs),
    /// Show what others have reported and measured about media
    Evidence(EvidenceArgs),
    /// Make one page of HTML of a plan.json
    Page(PageArgs),
}

impl PlanArgs {
    /// Runs it.
    ///
    /// # Errors
    /// What cannot be done, with the reason.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            None => self.make.run(),
            Some(PlanSubcommand::Show { plan }) => {
                let report = read_plan(plan)?;
                print(&(text(&report) + &beside(&report)))?;
                Ok(ExitCode::SUCCESS)
            }
            Some(PlanSubcommand::Verify(args)) => args.verify(),
            Some(PlanSubcommand::Prices(args)) => args.run(),
            Some(PlanSubcommand::Evidence(args)) => args.run(),
            Some(PlanSubcommand::Page(args)) => args.run(),
        }
    }
}

/// What is planned, and how.
#[derive(Debug, Args)]
pub struct MakePlanArgs {
    /// A profile of the workload; several of them share the server
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "messages_per_day",
        conflicts_with = "messages_per_day"
    )]
    pub profile: Vec<PathBuf>,
    /// The server, described in a file of TOML: sockets, slots, channels, lanes, bays
    #[arg(long, value_name = "FILE", required_unless_present = "machine", conflicts_with = "machine")]
    pub server: Option<PathBuf>,
    /// The server, as `terrace tier list --json` printed it
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Dated prices; without them the prices at which media would be worth it are all that there is
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// The day that counts as today [default: today]
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub on: Option<PriceDate>,
    /// Take prices that are older than 365 days
    #[arg(long)]
    pub stale: bool,
    /// 99 of 100 commits take at most this time
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub p99_commit: Option<f64>,
    /// 99 of 100 accesses of pages or objects take at most this time
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub p99_read: Option<f64>,
    /// 95 of 100 queries take at most this time; needs --query-pages
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub p95_query: Option<f64>,
    /// Pages that a query reads one after the other
    #[arg(long, value_name = "MANY", value_parser = number)]
    pub query_pages: Option<f64>,
    /// Processor time of a query
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub query_cpu: Option<f64>,
    /// Operations each second (commits if the profile has a journal, else accesses) [default: those of the worst minute]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Data and rate grow by this factor: 3y:2x
    #[arg(long, value_name = "GROWTH", value_parser = parse_growth, default_value = "1x")]
    pub growth: f64,
    /// The most it may cost, US dollars
    #[arg(long, value_name = "USD", value_parser = number)]
    pub budget: Option<f64>,
    /// Months for which rented media are counted
    #[arg(long, value_name = "MONTHS", value_parser = number, default_value_t = MONTHS_DEFAULT)]
    pub months: f64,
    /// What is owned already, beside what the server's description says: 8x16GiB (DRAM), 2xnvme-p4510
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub have: Vec<String>,
    /// DRAM of the machine, where --machine does not say it: ddr5, ddr4-3200, ddr4-2666
    #[arg(long, value_name = "NAME")]
    pub dram: Option<String>,
    /// Media that may not be: a name, cxl, pmem, network, far, discontinued
    #[arg(long = "no", value_name = "KIND", value_delimiter = ',')]
    pub without: Vec<String>,
    /// A folder of media of your own, beside those of the catalogue
    #[arg(long, value_name = "DIR")]
    pub media: Option<PathBuf>,
    /// Bytes that are stored, if they are more than the profile has touched
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub data_bytes: Option<u64>,
    /// Processor time of an operation, where the profile does not have it
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub cpu_per_operation: Option<f64>,
    /// So many sessions make one operation after the other: how many operations is predicted, not given
    #[arg(long, value_name = "MANY")]
    pub sessions: Option<u32>,
    /// Plan from a profile that is too short, with the error said
    #[arg(long)]
    pub take_short: bool,
    /// Without a profile: messages a day, as 2M
    #[arg(long, value_name = "MANY", value_parser = number, requires_all = ["message_size", "retention"])]
    pub messages_per_day: Option<f64>,
    /// Without a profile: the size of a message
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "messages_per_day")]
    pub message_size: Option<u64>,
    /// Without a profile: days for which messages are kept, as 90d
    #[arg(long, value_name = "DAYS", value_parser = days, requires = "messages_per_day")]
    pub retention: Option<f64>,
    /// Without a profile: queries a day
    #[arg(long, value_name = "MANY", value_parser = number, requires = "messages_per_day")]
    pub queries: Option<f64>,
    /// Write plan.json, plan.html, and terrace.toml and commands.sh of the chosen mix into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace the files there
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn number(text: &str) -> Result<f64, String> {
    let number = parse_number(text).filter(|number| *number > 0.0);
    number.ok_or_else(|| "write a number above 0, as 250, 8k or 2.5M".into())
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "write a size as 64MiB, 1.5GiB or a number of bytes".into())
}

fn days(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.trim() {
        years if years.ends_with('y') => (years.trim_end_matches('y'), 365.0),
        days => (days.trim_end_matches('d'), 1.0),
    };
    let days = parse_number(digits).map(|number| number * factor).filter(|days| *days > 0.0);
    days.ok_or_else(|| "write days or years, as 90d or 7y".into())
}

impl MakePlanArgs {
    /// Runs it.
    ///
    /// # Errors
    /// What cannot be planned, with the reason.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let report = self.plan()?;
        if let Some(folder) = &self.out {
            self.write(&report, folder)?;
        }
        match self.json {
            true => print(&(serde_json::to_string_pretty(&report)? + "\n"))?,
            false => print(&(text(&report) + &beside(&report)))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The plan.
    ///
    /// # Errors
    /// What cannot be planned, with the reason.
    pub fn plan(&self) -> anyhow::Result<PlanReport> {
        let (planning, prices) = self.planning()?;
        Ok(planning.report(&prices)?)
    }

    /// Predicted beside measured. Exit code 1: no mix could be run.
    fn verify(&self) -> anyhow::Result<ExitCode> {
        let (planning, prices) = self.planning()?;
        let plan = planning.report(&prices)?;
        let workloads = plan.workloads.iter().map(|workload| workload.name.clone()).collect();
        let config = VerifyConfig { held_out: false, seed: None, accesses: None, workloads };
        let verified = VerifyReport::new(config, planning.verify(&plan, None)?);
        match self.json {
            true => print(&(serde_json::to_string_pretty(&verified)? + "\n"))?,
            false => print(&verified.to_text())?,
        }
        let has_run = verified.runs.iter().any(|run| run.refused.is_none());
        Ok(if has_run { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn planning(&self) -> anyhow::Result<(Planning, Vec<Price>)> {
        ensure!(self.profile.len() <= PROFILES_MAX, "at most {PROFILES_MAX} profiles");
        let media = Medium::all(self.media.as_deref())?;
        let today = self.on.unwrap_or_else(today);
        let prices = self.prices(&media)?;
        let sizing = self.sizing()?;
        let sources = match &sizing {
            Some(sizing) => vec![sizing.source.clone()],
            None => self.profile.iter().cloned().map(ProfileSource::File).collect(),
        };
        let short = if self.take_short || sizing.is_some() { Shortness::Take } else { Shortness::Refuse };
        let request = PlanRequest {
            sources,
            short,
            server: self.server()?,
            media,
            prices: PriceList::new(&prices, self.months, today, self.stale)?,
            target: self.target(),
            without: self.without.clone(),
            data_bytes: self.data_bytes.or(sizing.as_ref().map(|sizing| sizing.data_bytes)),
            cpu_s: self.cpu_per_operation,
            sessions: self.sessions,
            query: self.query_pages.map(|pages| Query { pages, cpu_s: self.query_cpu.unwrap_or(0.0) }),
            commits: sizing.as_ref().map(|sizing| sizing.commits),
            scale: sizing.as_ref().map_or(1.0, |sizing| sizing.scale),
            assumed: sizing.map_or(Vec::new(), |sizing| sizing.sure),
        };
        Ok((Planning::of(request)?, prices))
    }

    fn prices(&self, media: &[Medium]) -> anyhow::Result<Vec<Price>> {
        self.prices.as_ref().map_or(Ok(Vec::new()), |file| Ok(price::read(file, media)?))
    }

    fn server(&self) -> anyhow::Result<Server> {
        let mut server = match (&self.server, &self.machine) {
            (Some(file), _) => {
                Server::parse(&read_text(file, FILE_BYTES_MAX)?).with_context(|| file.display().to_string())?
            }
            (None, Some(file)) => {
                Server::of_listing(&read_text(file, FILE_BYTES_MAX)?).with_context(|| file.display().to_string())?
            }
            (None, None) => bail!("a plan needs --server or --machine"),
        };
        server.have.extend(self.have.iter().cloned());
        ensure!(
            self.machine.is_none() || self.dram.is_some(),
            "a listing of a machine does not say which DRAM it has: add --dram ddr5, ddr4-3200 or ddr4-2666"
        );
        if let Some(dram) = &self.dram {
            server.dram.clone_from(dram);
        }
        Ok(server)
    }

    fn target(&self) -> Target {
        Target {
            p99_commit_s: self.p99_commit,
            p99_read_s: self.p99_read,
            p95_query_s: self.p95_query,
            rate: self.rate,
            growth: self.growth,
            budget_usd: self.budget,
            months: self.months,
            headroom: HEADROOM,
        }
    }

    fn sizing(&self) -> anyhow::Result<Option<Sizing>> {
        let (Some(messages_per_day), Some(bytes), Some(retention_days)) =
            (self.messages_per_day, self.message_size, self.retention)
        else {
            return Ok(None);
        };
        let input = SizingInput {
            messages_per_day,
            message_bytes: bytes as f64,
            retention_days,
            queries_per_day: self.queries.unwrap_or(0.0),
            query_pages: self.query_pages.map_or(QUERY_PAGES, |pages| pages as u32),
        };
        Ok(Some(sizing(&input, &std::env::temp_dir())?))
    }

    /// plan.json and plan.html; terrace.toml and commands.sh if a mix was chosen.
    fn write(&self, report: &PlanReport, folder: &Path) -> anyhow::Result<()> {
        let context = || format!("writing into {}", folder.display());
        fs::create_dir_all(folder).with_context(context)?;
        let mut files = vec![("plan.json", serde_json::to_string_pretty(report)? + "\n"), ("plan.html", page(report)?)];
        if let Some(mix) = report.chosen.and_then(|number| report.mixes.get(number)) {
            files.push(("terrace.toml", mix.settings.clone()));
            files.push(("commands.sh", format!("#!/bin/sh\n# {}\nset -eu\n{}\n", mix.name, mix.commands.join("\n"))));
        }
        for (name, content) in files {
            let path = folder.join(name);
            ensure!(self.overwrite || !path.exists(), "{} exists; --overwrite replaces it", path.display());
            write_durably(&path, content.as_bytes())?;
        }
        Ok(())
    }
}
