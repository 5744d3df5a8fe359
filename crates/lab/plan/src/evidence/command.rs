//! The command line of `terrace plan evidence`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{DateOf, EvidenceKind, EvidenceQuery, EvidenceRecord, records, resembling};
use crate::mix::report::PlanReport;
use crate::output::print;

/// `terrace plan evidence`
#[derive(Debug, Args)]
pub struct EvidenceArgs {
    /// Kind of medium (dram, pmem, cxl, nvme, san), or a medium's name in the catalogue
    #[arg(long, value_name = "NAME")]
    pub medium: Option<String>,
    /// Class (messaging, analytics, search, volumes, database, key-value, virtual-machines, device, rule, survey), or part of the system's name
    #[arg(long, value_name = "TEXT")]
    pub workload: Option<String>,
    /// Part of the metric's name or of its unit: throughput, latency, %
    #[arg(long, value_name = "TEXT")]
    pub metric: Option<String>,
    /// Only figures of this sort
    #[arg(long, value_enum)]
    pub kind: Option<EvidenceSort>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Sorts of evidence, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EvidenceSort {
    /// Measured by who published it
    Measurement,
    /// Reported of a system in use
    Deployment,
    /// Claimed or quoted by who sells it
    Vendor,
    /// Advice on sizes
    Rule,
    /// Counted over reports
    Survey,
}

impl EvidenceArgs {
    /// Runs it; exit code 1: nothing fits.
    ///
    /// # Errors
    /// It cannot be printed.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let kind = self.kind.map(|sort| match sort {
            EvidenceSort::Measurement => EvidenceKind::Measurement,
            EvidenceSort::Deployment => EvidenceKind::Deployment,
            EvidenceSort::Vendor => EvidenceKind::Vendor,
            EvidenceSort::Rule => EvidenceKind::Rule,
            EvidenceSort::Survey => EvidenceKind::Survey,
        });
        let query = EvidenceQuery {
            medium: self.medium.clone(),
            workload: self.workload.clone(),
            metric: self.metric.clone(),
            kind,
        };
        let found = query.find();
        print(&if self.json { format!("{}\n", json!({ "records": found })) } else { text(&found) })?;
        Ok(if found.is_empty() { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

/// The records as text for a terminal.
fn text(found: &[&EvidenceRecord]) -> String {
    let mut text = String::new();
    for record in found {
        text += &format!("{}: {}\n", record.id, line(record));
        text += &format!("    {}: {}\n    on {}\n", record.system, record.what, record.mix);
        let how = record.how.as_deref().map_or(String::new(), |how| format!("; computed: {how}"));
        let date = match record.date_of {
            DateOf::Publication => "",
            DateOf::Citation => " (cited)",
            DateOf::Reading => " (read)",
        };
        text += &format!("    {}{date}: {}; {}{how}\n", record.dated, record.source, record.at);
    }
    text + &format!("{} of {} records\n", found.len(), records().len())
}

/// Records shown below a plan in text.
const BESIDE_MAX: usize = 4;

/// The records that resemble a plan, for a terminal; empty if none does.
pub fn beside(plan: &PlanReport) -> String {
    let found = resembling(plan);
    if found.is_empty() {
        return String::new();
    }
    let mut text = "\nothers have measured with such a mix (terrace plan evidence has more):\n".to_owned();
    for record in found.iter().take(BESIDE_MAX) {
        text += &format!("  {}: {}; {}, {}\n", record.system, line(record), record.dated, record.source);
    }
    text
}

/// The figure in a line: `throughput 5399 messages/s`.
fn line(record: &EvidenceRecord) -> String {
    let figure = match (record.low.zip(record.high), &record.bound) {
        (Some((low, high)), _) => format!("{low} to {high}"),
        (None, Some(bound)) => format!("{bound} {}", record.figure),
        (None, None) => record.figure.to_string(),
    };
    let against = record.against.as_deref().map_or(String::new(), |against| format!(", against {against}"));
    format!("{} {figure} {}{against}", record.metric, record.unit)
}
