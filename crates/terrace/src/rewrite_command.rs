//! `terrace encryption rewrite`: has a node that runs write anew what older data keys have encrypted, and shows how far it has come.
//!
//! The work is the node's: the command may end, and be run again to look at it.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use node::control;
use node::rewriting::{self, REQUEST, RewriteRequest, RewriteState, RewriteStatus};

use crate::cli::RewriteArgs;
use crate::maintenance::Bar;
use crate::show::{bytes, count, time};

/// How often the node is asked.
const EVERY: Duration = Duration::from_millis(300);

/// What is requested.
pub fn run(args: &RewriteArgs) -> anyhow::Result<ExitCode> {
    let data = &args.place.data;
    anyhow::ensure!(
        control::is_running(data),
        "no node runs on {}: a node writes anew while it runs; start it with `terrace serve`",
        data.display()
    );
    if args.stop {
        let status = request(data, RewriteRequest::Stop)?;
        println!("stopped; `terrace encryption rewrite` goes on with it");
        status.iter().for_each(|status| println!("{}", line(status)));
        return Ok(ExitCode::SUCCESS);
    }
    let (bytes_per_second, drops_kept_journal) = (args.rate.0, args.drop_kept_journal);
    let start = RewriteRequest::Start { bytes_per_second, drops_kept_journal };
    request(data, start)?;
    if args.detach {
        println!("the node writes anew in the background; `terrace encryption status` shows how far it has come");
        return Ok(ExitCode::SUCCESS);
    }
    let ended = watch(data)?;
    anyhow::ensure!(ended.state != RewriteState::Failed, "{}", line(&ended));
    println!("{}", line(&ended));
    match ended.state {
        RewriteState::Complete => {
            println!("`terrace stop` the node; then `terrace encryption retire-data-key` removes the older ones");
            Ok(ExitCode::SUCCESS)
        }
        _ => Ok(ExitCode::from(1)),
    }
}

/// Shows how far the node has come until it has ended.
fn watch(data: &Path) -> anyhow::Result<RewriteStatus> {
    let bar = Bar::new()?;
    loop {
        let status = request(data, RewriteRequest::Status)?.context("the node has forgotten what it was asked for")?;
        if status.state != RewriteState::Running {
            return Ok(status);
        }
        let what = match (status.part.as_str(), &status.waits) {
            (_, Some(_)) => "it waits",
            ("pages", None) => "pages",
            ("journal", None) => "journal",
            _ => "index files",
        };
        bar.show(what, status.pages, status.pages_total);
        std::thread::sleep(EVERY);
    }
}

fn request(data: &Path, request: RewriteRequest) -> anyhow::Result<Option<RewriteStatus>> {
    let text = serde_json::to_string(&request)?;
    let answer = control::request(data, &format!("{REQUEST} {text}"))?;
    serde_json::from_value(answer).context("the node's answer cannot be read by this release")
}

/// What has become of the last rewrite of a data directory; of a node that runs, how far it has come.
pub fn last(data: &Path) -> anyhow::Result<Option<RewriteStatus>> {
    if control::is_running(data)
        && let Ok(status) = request(data, RewriteRequest::Status)
    {
        return Ok(status);
    }
    Ok(rewriting::recorded(data)?)
}

/// What is being rewritten by a node that runs, or failed there: for its status.
pub fn of_running(data: &Path) -> Option<RewriteStatus> {
    let status = request(data, RewriteRequest::Status).ok().flatten();
    status.filter(|status| matches!(status.state, RewriteState::Running | RewriteState::Failed))
}

/// As a line, for people.
pub fn line(status: &RewriteStatus) -> String {
    let RewriteStatus { data_key, pages, pages_total, renewed, values, file_bytes, .. } = status;
    let state = match status.state {
        RewriteState::Running => "goes on",
        RewriteState::Complete => "is complete",
        RewriteState::Stopped => "was stopped",
        RewriteState::Failed => "failed",
    };
    let mut line = format!(
        "rewriting with data key {data_key}, of {}, {state}: {} of {} pages looked at; {} pages of trees, {} values and {} of index files \
         read and written anew",
        time(status.begun_us),
        count(*pages),
        count(*pages_total),
        count(*renewed),
        count(*values),
        bytes(*file_bytes)
    );
    if status.state == RewriteState::Running {
        line.push_str(&format!("; at {} a second, now the {}", bytes(status.bytes_per_second), status.part));
    }
    for (word, text) in [("it waits for", &status.waits), ("why:", &status.why)] {
        text.iter().for_each(|text| line.push_str(&format!("; {word} {text}")));
    }
    line
}
