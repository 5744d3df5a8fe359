//! Trials for the console: rules and transforms of the production's folder, or a text in the place of one, on stored messages.
//!
//! A trial runs what somebody wrote, and reads bodies: it needs the right to load a production, has an entry in the audit, and each
//! message that it reads is read as the caller may read it, with an entry of its own.

use std::path::{Path, PathBuf};

use interop::history::{ListPage, Trace};
use interop::production::{Production, Values};
use interop::record::Status;
use interop::trial::{SegmentDifference, Trial, TrialResult, TriedMessage, TriedOutput};
use node::Clock;
use web_console::AdminError;
use web_console::admin::{self, Difference, ProductionSources, TriedLine, TryReport, TryRequest};

/// Files of one kind that are shown, and bytes of each.
const FILES_MAX: usize = 500;
const FILE_BYTES_MAX: u64 = 200 << 10;

/// Bytes of the messages of one trial.
pub const TRIAL_BYTES_MAX: usize = 32 << 20;

fn unavailable(error: impl std::fmt::Display) -> AdminError {
    AdminError::Unavailable(error.to_string())
}

/// The texts of the files of a folder with an ending, by name.
fn texts(folder: &Path, ending: &str) -> Result<Vec<(String, String)>, AdminError> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(unavailable)?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
        let is_it = path.extension().is_some_and(|own| own == ending);
        let Some(name) = name.filter(|_| is_it) else { continue };
        if found.len() == FILES_MAX {
            break;
        }
        let bytes = std::fs::metadata(&path).map_err(unavailable)?.len();
        if bytes <= FILE_BYTES_MAX {
            found.push((name, std::fs::read_to_string(&path).map_err(unavailable)?));
        }
    }
    found.sort();
    Ok(found)
}

/// Rules and transforms of a production's folder.
pub fn sources(folder: Option<PathBuf>) -> Result<ProductionSources, AdminError> {
    let Some(folder) = folder else { return Ok(ProductionSources::default()) };
    Ok(ProductionSources {
        rules: texts(&folder.join("rules"), "rules")?,
        transforms: texts(&folder.join("transforms"), "hl7t")?,
        folder: Some(folder.display().to_string()),
    })
}

/// What a request is tried with. Errors: the production has faults, with file and line.
pub fn trial(folder: &Path, values: &Values, request: &TryRequest) -> Result<(Trial, Vec<String>), AdminError> {
    let refused = |error: interop::InteropError| AdminError::Refused(error.to_string());
    let file = match request.of_rules {
        true => format!("rules/{}.rules", request.name),
        false => format!("transforms/{}.hl7t", request.name),
    };
    let production = match &request.text {
        Some(text) => Production::load_replaced(folder, (&file, text), values),
        None => Production::load_with(folder, values),
    };
    let transform = (!request.of_rules).then_some(request.name.as_str());
    let trial = Trial::new(production.map_err(refused)?, transform, Clock::system()).map_err(refused)?;
    let services = match request.of_rules {
        true => trial.services_of(&request.name).map_err(refused)?.into_iter().map(str::to_owned).collect(),
        false => Vec::new(),
    };
    Ok((trial, services))
}

/// The messages of a page that go through the services of the rules that are tried; how many are left out.
pub fn chosen(page: &ListPage, services: &[String]) -> (Vec<(u64, String)>, u64) {
    let is_meant = |service: &String| services.is_empty() || services.contains(service);
    let lines = page.lines.iter().filter(|line| line.damaged.is_none());
    let (meant, others): (Vec<_>, Vec<_>) =
        lines.partition(|line| line.resent_from.or(line.reprocessed_from).is_none() && is_meant(&line.service));
    (meant.into_iter().map(|line| (line.id, line.kind.clone())).collect(), others.len() as u64)
}

/// Tries messages.
pub fn run(trial: &Trial, messages: &[(Trace, String)]) -> Result<TryReport, AdminError> {
    let mut report = TryReport::default();
    for (trace, kind) in messages {
        let tried = trial.stored(&trace.stored).map_err(|error| AdminError::Refused(error.to_string()))?;
        match tried.result {
            TrialResult::Same => report.same += 1,
            TrialResult::Changed => report.changed += 1,
            TrialResult::Errored => report.errored += 1,
            TrialResult::Unaffected => report.left_out += 1,
        }
        if matches!(tried.result, TrialResult::Changed | TrialResult::Errored) {
            report.messages.push(line(trace.id, kind, tried));
        }
    }
    Ok(report)
}

fn decision((status, why): &(Status, String)) -> String {
    format!("{}: {why}", format!("{status:?}").to_lowercase())
}

fn line(id: u64, kind: &str, tried: TriedMessage) -> TriedLine {
    TriedLine {
        id,
        kind: kind.to_owned(),
        errored: tried.result == TrialResult::Errored,
        decision: decision(&tried.decision),
        before: tried.before.as_ref().map(decision),
        outputs: tried.outputs.into_iter().map(output).collect(),
    }
}

fn output(output: TriedOutput) -> admin::TriedOutput {
    let TriedOutput { operation, transform, was, is, differences } = output;
    let through = if transform.is_empty() { String::new() } else { format!(", through {transform}") };
    let title = match (was, is) {
        (true, false) => format!("to {operation}{through}: there is none any more"),
        (false, true) => format!("to {operation}{through}: new; beside the message as received"),
        _ => format!("to {operation}{through}"),
    };
    admin::TriedOutput { title, differences: differences.into_iter().map(difference).collect() }
}

/// A difference as the console shows it.
pub fn difference(difference: SegmentDifference) -> Difference {
    match difference {
        SegmentDifference::Removed { segment } => Difference { before: Some(segment), ..Difference::default() },
        SegmentDifference::Added { segment } => Difference { now: Some(segment), ..Difference::default() },
        SegmentDifference::Field { path, before, now } => Difference { path, before: Some(before), now: Some(now) },
    }
}
