//! `terrace message resend` and `terrace message reprocess`: stored messages go out again, as new ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use interop::record::Status;
use interop::running::{EditedRequest, ReprocessOutcome, ReprocessPage, ReprocessRequest, ReprocessSearch};
use node::{Clock, control};
use serde_json::json;

use crate::cli::{FewName, ReprocessArgs};
use crate::moments::moment;
use crate::show::{TextTable, count};

/// Ids in one request at most.
const IDS_AT_A_TIME: usize = 100;

/// Reasons that are listed.
const REASONS_SHOWN: usize = 20;

/// Sends outputs again as they are, or an edited body.
pub(super) fn resend(data: &Path, id: u64, to: Vec<String>, edited: Option<&Path>) -> anyhow::Result<ExitCode> {
    let Some(file) = edited else {
        let answer = control::request(data, &format!("resend {id} {}", to.join(" ")))?;
        println!("message {id} goes out again as message {answer}");
        return Ok(ExitCode::SUCCESS);
    };
    let raw = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let batch = hl7::batch::split(&raw);
    ensure!(batch.messages.len() == 1, "{} holds {} messages, not one", file.display(), batch.messages.len());
    let body = hl7::batch::with_segment_ends(&raw[batch.messages[0].clone()]);
    let request = EditedRequest::new(id, to, &body);
    let answer = control::request(data, &format!("resend-edited {}", json!(request)))?;
    println!("message {id} goes out edited, as message {answer}");
    Ok(ExitCode::SUCCESS)
}

/// What all pages together did.
#[derive(Default)]
struct Totals {
    outcomes: BTreeMap<ReprocessOutcome, u64>,
    operations: BTreeMap<String, u64>,
    /// Why something was not sent on: how often, and the first message.
    reasons: BTreeMap<(ReprocessOutcome, String), (u64, u64)>,
    stopped: Option<String>,
    /// The generation of the production that decided last; 0 where it has no number.
    generation: u32,
}

impl Totals {
    fn add(&mut self, page: &ReprocessPage) {
        for result in &page.results {
            *self.outcomes.entry(result.outcome).or_default() += 1;
            match result.outcome {
                ReprocessOutcome::Routed => {
                    for operation in &result.operations {
                        *self.operations.entry(operation.clone()).or_default() += 1;
                    }
                }
                ReprocessOutcome::Dropped | ReprocessOutcome::Again | ReprocessOutcome::Already => {}
                outcome => {
                    let reason = self.reasons.entry((outcome, result.reason.clone())).or_insert((0, result.id));
                    reason.0 += 1;
                }
            }
        }
        self.stopped.clone_from(&page.stopped);
        self.generation = page.generation;
    }

    /// Messages that count for `--limit`.
    fn counted(&self) -> u64 {
        let is_old =
            |outcome: &ReprocessOutcome| matches!(outcome, ReprocessOutcome::Again | ReprocessOutcome::Already);
        self.outcomes.iter().filter(|(outcome, _)| !is_old(outcome)).map(|(_, n)| n).sum()
    }

    fn show(&self, preview: bool) {
        let (goes, done) = if preview { ("would go", "nothing was sent or stored") } else { ("go", "done") };
        if !self.operations.is_empty() {
            let mut table = TextTable::new(&["operation", if preview { "outputs that would go" } else { "outputs" }]);
            self.operations.iter().for_each(|(name, n)| table.row(&[name, &count(*n)]));
            println!("{table}");
        }
        for ((outcome, reason), (n, first)) in self.reasons.iter().take(REASONS_SHOWN) {
            println!(
                "{} {}: {reason} (message {first}{})",
                count(*n),
                outcome.name(),
                if *n > 1 { ", ..." } else { "" }
            );
        }
        if self.reasons.len() > REASONS_SHOWN {
            println!("and {} more reasons: --json shows each message", self.reasons.len() - REASONS_SHOWN);
        }
        let of = |outcome: ReprocessOutcome| self.outcomes.get(&outcome).copied().unwrap_or_default();
        let mut parts = vec![format!("{} {goes} out", count(of(ReprocessOutcome::Routed)))];
        for (outcome, words) in [
            (ReprocessOutcome::Dropped, "dropped by a rule"),
            (ReprocessOutcome::Again, "done before under this key"),
            (ReprocessOutcome::Already, "reprocessed before"),
        ] {
            parts.extend((of(outcome) > 0).then(|| format!("{} {words}", count(of(outcome)))));
        }
        let left: u64 = self.reasons.values().map(|(n, _)| n).sum();
        parts.extend((left > 0).then(|| format!("{} not sent on", count(left))));
        println!("{}; {done}", parts.join(", "));
        if preview && self.generation > 0 {
            println!(
                "with --generation {0} this counts for generation {0} of the production, and for no other",
                self.generation
            );
        }
    }
}

/// Decides on messages anew, page by page.
pub(super) fn reprocess(args: &ReprocessArgs) -> anyhow::Result<ExitCode> {
    let search = args.status.map(|status| search_of(args, status)).transpose()?;
    let key = args.key.clone().or_else(|| {
        let is_run = search.is_some() && !args.preview;
        is_run.then(|| format!("run-{}", Clock::system().now_us()))
    });
    if let (Some(key), None, false) = (&key, &args.key, args.json) {
        println!("key {key}: if this is interrupted, the same command with --key {key} finishes it");
    }
    let mut totals = Totals::default();
    match search {
        None => {
            for ids in args.ids.chunks(IDS_AT_A_TIME) {
                let request = ReprocessRequest { ids: ids.to_vec(), key: key.clone(), ..Default::default() };
                page(args, request, &mut totals)?;
                if totals.stopped.is_some() {
                    break;
                }
            }
        }
        Some(search) => {
            let mut after = 0;
            while args.limit == 0 || totals.counted() < args.limit as u64 {
                let left = if args.limit == 0 { 0 } else { args.limit - totals.counted() as usize };
                let request = ReprocessRequest {
                    search: Some(search.clone()),
                    after,
                    limit: left,
                    key: key.clone(),
                    ..Default::default()
                };
                match page(args, request, &mut totals)? {
                    Some(next) if totals.stopped.is_none() => after = next,
                    _ => break,
                }
            }
        }
    }
    if !args.json {
        totals.show(args.preview);
    }
    if let Some(why) = &totals.stopped {
        eprintln!("stopped: {why}");
    }
    let is_whole = totals.reasons.is_empty() && totals.stopped.is_none();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn search_of(args: &ReprocessArgs, status: FewName) -> anyhow::Result<ReprocessSearch> {
    let status = match status {
        FewName::Errored => Status::Errored,
        FewName::Unmatched => Status::Unmatched,
        FewName::Rejected => Status::Rejected,
        FewName::Dropped => Status::Dropped,
    };
    let since_us = args.since.as_deref().map(moment).transpose()?;
    let until_us = args.until.as_deref().map(moment).transpose()?;
    Ok(ReprocessSearch { status, service: args.service.clone(), since_us, until_us })
}

/// One request; where the search goes on.
fn page(args: &ReprocessArgs, request: ReprocessRequest, totals: &mut Totals) -> anyhow::Result<Option<u64>> {
    // All pages of a preview are by the generation of the first.
    let first = Some(totals.generation).filter(|number| args.preview && *number > 0);
    let request = ReprocessRequest { preview: args.preview, generation: args.generation.or(first), ..request };
    let answer = control::request(&args.place.data, &format!("reprocess {}", json!(request)))?;
    let page: ReprocessPage = control::read_response(answer)?;
    if args.json {
        page.results.iter().for_each(|result| println!("{}", json!(result)));
    }
    totals.add(&page);
    Ok(page.next)
}
