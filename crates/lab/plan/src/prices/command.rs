//! The command line of `terrace plan prices`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use catalogue::Medium;
use catalogue::price::{Price, PriceDate};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{AgedPrice, ImportedPrices, PriceFormat, PriceImportOptions, STALE_DAYS, date, import, prices_text};
use crate::output::{print, write_durably};

/// `terrace plan prices`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct PricesArgs {
    /// What to do
    #[command(subcommand)]
    pub command: Option<PricesCommand>,
    /// Show a file of prices with their ages; prices older than 90 days are told, older than 365 days refused
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    /// Do not refuse prices that are older than 365 days
    #[arg(long)]
    pub stale: bool,
    /// The day that counts as today [default: today]
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub on: Option<PriceDate>,
    /// A folder of media of your own, beside those of the catalogue
    #[arg(long, value_name = "DIR")]
    pub media: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `terrace plan prices` can do beside `--check`.
#[derive(Debug, Subcommand)]
pub enum PricesCommand {
    /// Make a file of prices of what a provider or vendor has published
    ///
    /// The file is fetched by you, as the provider's documentation says; nothing here opens a connection.
    ///
    ///   terrace plan prices import aws ec2-us-east-1.json --region us-east-1 --out prices.toml
    ///   terrace plan prices import azure pages.json --region eastus --dated 2026-11-27 --out prices.toml --add
    ///   terrace plan prices import gcp skus.json --region us-central1 --dated 2026-11-27 --out prices.toml --add
    ///   terrace plan prices import quote quote.csv --source "offer 4711 of a dealer" --dated 2026-11-27 --out prices.toml --add
    ///   terrace plan prices --check prices.toml
    ///
    /// Prices by throughput, reservations and other currencies than USD are left out, and counted.
    #[command(verbatim_doc_comment)]
    Import(PriceImportArgs),
}

/// `terrace plan prices import`
#[derive(Debug, Args)]
pub struct PriceImportArgs {
    /// Format of the file
    #[arg(value_enum)]
    pub format: PriceFormat,
    /// The file; - for standard input
    pub file: PathBuf,
    /// The file of prices to make
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Keep the prices of other media that FILE has; its comments are lost
    #[arg(long, conflicts_with = "overwrite")]
    pub add: bool,
    /// Replace FILE, if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// The region, as the provider names it: us-east-1, eastus, us-central1
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// The day on which it was fetched, where the file does not say it
    #[arg(long, value_name = "DATE")]
    pub dated: Option<String>,
    /// The source, where the file does not say it
    #[arg(long, value_name = "TEXT")]
    pub source: Option<String>,
}

impl PricesArgs {
    /// Runs it.
    ///
    /// # Errors
    /// What cannot be done, with the reason.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match (&self.command, &self.check) {
            (Some(PricesCommand::Import(args)), _) => args.run().map(|()| ExitCode::SUCCESS),
            (None, Some(file)) => self.check(file),
            (None, None) => anyhow::bail!("name a file with --check, or import one: --help shows how"),
        }
    }

    /// Exit code 1: there are stale prices.
    fn check(&self, file: &Path) -> anyhow::Result<ExitCode> {
        let media = Medium::all(self.media.as_deref())?;
        let prices = super::read(file, &media, self.on.unwrap_or_else(super::today))?;
        let stale = prices.iter().filter(|one| one.is_stale()).count();
        print(&if self.json { format!("{}\n", as_json(&prices)) } else { table(&prices, &media) })?;
        for warning in prices.iter().filter_map(AgedPrice::warning) {
            eprintln!("old: {warning}");
        }
        if stale > 0 && !self.stale {
            eprintln!(
                "{stale} of {} prices are older than {STALE_DAYS} days: no plan uses them without --stale",
                prices.len()
            );
            return Ok(ExitCode::from(1));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(prices: &[AgedPrice], media: &[Medium]) -> String {
    let mut text = format!(
        "{:<22} {:>12} {:>22} {:<15} {:<9} {:<11} {:>5}  of; source\n",
        "medium", "USD", "low..high", "unit", "basis", "dated", "days"
    );
    for AgedPrice { price, age_days } in prices {
        let Price { medium, of, value, low, high, unit, basis, dated, source, .. } = price;
        let range = low.zip(*high).map_or("-".to_owned(), |(low, high)| format!("{}..{}", usd(low), usd(high)));
        text += &format!(
            "{medium:<22} {:>12} {range:>22} {:<15} {:<9} {dated:<11} {age_days:>5}  {of}; {source}\n",
            usd(*value),
            unit.text(),
            basis.text()
        );
    }
    let priced: BTreeSet<&str> = prices.iter().map(|one| one.price.medium.as_str()).collect();
    let without: Vec<&str> =
        media.iter().map(|medium| medium.name.as_str()).filter(|name| !priced.contains(name)).collect();
    if !without.is_empty() {
        text +=
            &format!("\nno price, so a plan says up to which price they would be worth it: {}\n", without.join(", "));
    }
    text
}

/// Two digits after the point; five below a dollar, as prices by operation are.
fn usd(value: f64) -> String {
    if value < 1.0 { format!("{value:.5}") } else { format!("{value:.2}") }
}

fn as_json(prices: &[AgedPrice]) -> serde_json::Value {
    let rows = prices.iter().map(|AgedPrice { price, age_days }| {
        json!({
            "medium": price.medium, "of": price.of, "value": price.value, "low": price.low, "high": price.high,
            "unit": price.unit.text(), "basis": price.basis.text(), "dated": price.dated, "age_days": age_days,
            "source": price.source,
        })
    });
    json!({ "prices": rows.collect::<Vec<_>>() })
}

impl PriceImportArgs {
    fn run(&self) -> anyhow::Result<()> {
        let out = &self.out;
        let exists = out.exists();
        ensure!(
            self.add || self.overwrite || !exists,
            "{} exists: --add keeps its prices of other media, --overwrite replaces it",
            out.display()
        );
        let media = catalogue::media();
        let kept = if self.add && exists { catalogue::price::read(out, media)? } else { Vec::new() };
        let options =
            PriceImportOptions { region: self.region.clone(), dated: self.dated.clone(), source: self.source.clone() };
        let input: Box<dyn Read> = match self.file.to_str() {
            Some("-") => Box::new(std::io::stdin()),
            _ => Box::new(File::open(&self.file).with_context(|| format!("opening {}", self.file.display()))?),
        };
        let ImportedPrices { prices: fresh, left_out } =
            import(self.format, input, &options).with_context(|| format!("importing {}", self.file.display()))?;
        let (many, others) = (fresh.len(), kept.len());
        let mut prices: Vec<Price> =
            kept.into_iter().filter(|old| fresh.iter().all(|new| new.medium != old.medium)).collect();
        let others = (prices.len(), others - prices.len());
        prices.extend(fresh);
        let text = prices_text(&prices, "Made by `terrace plan prices import`.");
        catalogue::price::parse(&text, media).map_err(|what| anyhow::anyhow!("{what}; nothing was written"))?;
        write_durably(out, text.as_bytes())?;
        let mut told = format!("{many} prices -> {}", out.display());
        if self.add {
            told += &format!("; {} others kept, {} replaced", others.0, others.1);
        }
        for (why, many) in &left_out {
            told += &format!("\nleft out: {many} {why}");
        }
        print(&format!("{told}\n"))
    }
}
