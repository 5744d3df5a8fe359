//! `terrace transform try` and `terrace rules try`: what a production in a folder would make of messages, before it is loaded.
//!
//! Nothing is sent, stored or acknowledged. Messages come from a node, whether it runs or not, or from a file.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use interop::history::{History, Line};
use interop::production::Production;
use interop::record::Status;
use interop::trial::{SegmentDifference, Trial, TrialResult, TriedMessage, TriedOutput};
use node::Clock;
use serde_json::json;

use crate::cli::{RulesCommand, TransformCommand, TrialArgs};
use crate::config::Config;
use crate::messages;

/// Runs `terrace transform ...`.
pub fn transform(command: &TransformCommand) -> anyhow::Result<ExitCode> {
    let TransformCommand::Try { name, args } = command;
    let trial = Trial::new(
        Production::load_with(&args.production, &Config::read(None)?.values(None)?)?,
        Some(name),
        Clock::system(),
    )?;
    match &args.file {
        Some(file) => of_file(file, args, |raw| match &args.wanted.filter.service {
            Some(service) => Ok(trial.file(service, raw)?),
            None => Ok(trial.alone(raw)),
        }),
        None => of_stored(&trial, args, &[]),
    }
}

/// Runs `terrace rules ...`.
pub fn rules(command: &RulesCommand) -> anyhow::Result<ExitCode> {
    let RulesCommand::Try { name, args } = command;
    let trial = Trial::new(
        Production::load_with(&args.production, &Config::read(None)?.values(None)?)?,
        None,
        Clock::system(),
    )?;
    let services = trial.services_of(name)?;
    let Some(file) = &args.file else { return of_stored(&trial, args, &services) };
    let service = match (&args.wanted.filter.service, &services[..]) {
        (Some(service), _) if services.contains(&service.as_str()) => service,
        (Some(service), _) => bail!("service {service} does not use rules {name}; these do: {}", services.join(", ")),
        (None, [one]) => *one,
        (None, _) => bail!("rules {name} are used by several services; choose one: --service {}", services.join("|")),
    };
    of_file(file, args, |raw| Ok(trial.file(service, raw)?))
}

/// How many messages had which result.
#[derive(Default)]
struct Counts {
    same: usize,
    changed: usize,
    errored: usize,
    unaffected: usize,
    resent: usize,
}

/// Prints results as they come.
struct Report<'a> {
    args: &'a TrialArgs,
    counts: Counts,
    began: Instant,
    shown: usize,
}

impl<'a> Report<'a> {
    fn new(args: &'a TrialArgs) -> Report<'a> {
        Report { args, counts: Counts::default(), began: Instant::now(), shown: 0 }
    }

    fn add(&mut self, name: &str, about: &serde_json::Value, tried: &TriedMessage) {
        let count = match tried.result {
            TrialResult::Same => &mut self.counts.same,
            TrialResult::Changed => &mut self.counts.changed,
            TrialResult::Errored => &mut self.counts.errored,
            TrialResult::Unaffected => &mut self.counts.unaffected,
        };
        *count += 1;
        if self.args.wanted.json {
            let mut object = json!(tried);
            object["message"] = about.clone();
            println!("{object}");
            return;
        }
        let differs = matches!(tried.result, TrialResult::Changed | TrialResult::Errored);
        if differs && (self.args.show == 0 || self.shown < self.args.show) {
            self.shown += 1;
            Report::show(name, tried);
        }
    }

    fn show(name: &str, tried: &TriedMessage) {
        let word = if tried.result == TrialResult::Errored { "fails" } else { "differs" };
        println!("{name}: {word}");
        match &tried.before {
            Some(before) => {
                println!("  decision then  {}", shown(before));
                println!("  decision now   {}", shown(&tried.decision));
            }
            None => println!("  decision       {}", shown(&tried.decision)),
        }
        tried.outputs.iter().for_each(Report::output);
    }

    fn output(output: &TriedOutput) {
        let TriedOutput { operation, transform, was, is, differences } = output;
        let through = if transform.is_empty() { String::new() } else { format!(", transform {transform}") };
        match (operation.is_empty(), was, is) {
            (true, ..) => {}
            (_, true, false) => return println!("  output to {operation}{through}: there is none any more"),
            (_, false, true) => println!("  output to {operation}{through}: new; beside the message as received:"),
            _ => println!("  output to {operation}{through}:"),
        }
        if differences.is_empty() {
            println!("    the same");
        }
        for difference in differences {
            match difference {
                SegmentDifference::Removed { segment } => println!("    - {segment}"),
                SegmentDifference::Added { segment } => println!("    + {segment}"),
                SegmentDifference::Field { path, before, now } => {
                    println!("    {path}");
                    println!("      - {before}");
                    println!("      + {now}");
                }
            }
        }
    }

    fn end(self) -> ExitCode {
        let Counts { same, changed, errored, unaffected, resent } = self.counts;
        let code = ExitCode::from(u8::from(errored > 0));
        if self.args.wanted.json {
            return code;
        }
        let tried = same + changed + errored + unaffected;
        let hidden = (changed + errored).saturating_sub(self.shown);
        if hidden > 0 {
            println!("and {hidden} more that differ or fail: --show 0 shows all");
        }
        let mut parts = vec![format!("{same} same"), format!("{changed} changed"), format!("{errored} errored")];
        if unaffected > 0 {
            parts.push(format!("{unaffected} do not go through it"));
        }
        if resent > 0 {
            parts.push(format!("{resent} sent again left out"));
        }
        let seconds = self.began.elapsed().as_secs_f64();
        println!("{tried} tried in {seconds:.2} s: {}; nothing was sent or stored", parts.join(", "));
        code
    }
}

/// A decision as text.
fn shown((status, why): &(Status, String)) -> String {
    format!("{}: {why}", format!("{status:?}").to_lowercase())
}

fn of_stored(trial: &Trial, args: &TrialArgs, services: &[&str]) -> anyhow::Result<ExitCode> {
    let data = &args.wanted.place.data;
    let history = History::open(data)?;
    let lines = history.list(&messages::filter(&args.wanted.filter, args.wanted.last)?)?;
    let mut report = Report::new(args);
    for line in &lines {
        if let Some(why) = &line.damaged {
            bail!("message {} cannot be read: {why}; `terrace verify` reports all damage", line.id);
        }
        if line.resent_from.is_some() || line.reprocessed_from.is_some() {
            report.counts.resent += 1;
            continue;
        }
        if !services.is_empty() && !services.contains(&line.service.as_str()) {
            report.counts.unaffected += 1;
            continue;
        }
        let trace = history.trace(line.id)?;
        if let Some(why) = &trace.withheld {
            bail!("a message is tried as it came in, and its body is not shown to you: {why}");
        }
        ensure!(
            !trace.masked,
            "a message is tried as it came in, and message {} is shown masked to you: the right `unmasked` on service {} is needed",
            line.id,
            line.service
        );
        let tried = trial.stored(&trace.stored)?;
        report.add(&named(line), &json!({ "id": line.id, "service": line.service, "type": line.kind }), &tried);
    }
    Ok(report.end())
}

fn named(line: &Line) -> String {
    format!("message {} ({}, service {})", line.id, line.kind, line.service)
}

fn of_file(
    file: &Path,
    args: &TrialArgs,
    work: impl Fn(&bytes::Bytes) -> anyhow::Result<TriedMessage>,
) -> anyhow::Result<ExitCode> {
    let raw = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let batch = hl7::batch::split(&raw);
    ensure!(!batch.messages.is_empty(), "{} holds no HL7 message (none begins with MSH)", file.display());
    let mut report = Report::new(args);
    for (n, range) in batch.messages.into_iter().enumerate() {
        let message = bytes::Bytes::from(hl7::batch::with_segment_ends(&raw[range]).into_owned());
        let tried = work(&message)?;
        report.add(&format!("message {} of {}", n + 1, file.display()), &json!({ "number": n + 1 }), &tried);
    }
    Ok(report.end())
}
