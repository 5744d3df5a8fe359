//! `terrace volume`: block volumes of a node, or of a data directory without one.
//!
//! ```text
//!   command --node runs--> control socket: `volume {...}` --> VolumeHost of the node
//!           --none-------> lock of the data directory     --> VolumeHost of this process, for one request or until Ctrl-C
//! ```
//!
//! `report` and `top` are what people see, `exporting` serves volumes without a node.

mod exporting;
mod report;
mod top;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use node::{DirectoryLock, control};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::assemble::OwnExports;
use crate::config::Config;
use crate::show::{bytes, count};
use crate::volumes::{
    CreateArgs, ExportArgs, GrowArgs, LimitArgs, MadeReport, NameArgs, NewVolumeRequest, REQUEST, RekeyArgs,
    ReplaceArgs, ScrubReport, VolumeCommand, VolumeHost, VolumeKind, VolumePlace, VolumeReport, VolumeRequest,
};

/// Runs the command.
pub fn run(command: VolumeCommand) -> anyhow::Result<ExitCode> {
    match command {
        VolumeCommand::Create(args) => create(&args),
        VolumeCommand::List(args) => {
            let reports: Vec<VolumeReport> =
                Target::find(&args.at)?.send(VolumeRequest::Status { names: Vec::new() })?;
            report::list(&reports, args.json)
        }
        VolumeCommand::Status(args) => {
            let reports: Vec<VolumeReport> =
                Target::find(&args.at)?.send(VolumeRequest::Status { names: args.names })?;
            report::status(&reports, args.json)
        }
        VolumeCommand::Replace(args) => replace(&args),
        VolumeCommand::Scrub(args) => scrub(&args),
        VolumeCommand::Grow(args) => grow(&args),
        VolumeCommand::Limit(args) => limit(&args),
        VolumeCommand::Rekey(args) => rekey(&args),
        VolumeCommand::Export(args) => export(&args),
        VolumeCommand::Top(args) => top::run(&args),
        VolumeCommand::AcceptLoss(args) => {
            let what = "What only the missing copies contain is given up, also writes that were acknowledged.";
            if !args.yes && !confirm(&format!("{what} Open {} without them?", args.name))? {
                return Ok(ExitCode::from(1));
            }
            Target::find(&args.at)?.send::<Value>(VolumeRequest::AcceptLoss { name: args.name.clone() })?;
            println!("volume {} opens; replace the copies that are lost: `terrace volume status {0}`", args.name);
            Ok(ExitCode::SUCCESS)
        }
        VolumeCommand::Delete(args) => {
            if !args.yes && !confirm(&format!("All data of volume {} will be gone. Delete it?", args.name))? {
                return Ok(ExitCode::from(1));
            }
            Target::find(&args.at)?.send::<Value>(VolumeRequest::Delete { name: args.name.clone() })?;
            println!("volume {} is deleted", args.name);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Who does what is requested.
enum Target {
    /// A process that serves the data directory.
    Running(PathBuf),
    /// This process, which has the lock of the directory as long as this exists.
    Here { host: Arc<VolumeHost>, _lock: DirectoryLock },
}

impl Target {
    fn find(at: &VolumePlace) -> anyhow::Result<Target> {
        let (config, data) = config_of(at)?;
        if control::is_running(&data) {
            return Ok(Target::Running(data));
        }
        let lock = DirectoryLock::acquire(&data)?;
        let host = host_of(config, &data)?;
        Ok(Target::Here { host, _lock: lock })
    }

    fn send<T: DeserializeOwned>(&self, request: VolumeRequest) -> anyhow::Result<T> {
        let response = match self {
            Target::Running(data) => {
                let line = format!("{REQUEST} {}", serde_json::to_string(&request)?);
                control::request(data, &line)?
            }
            Target::Here { host, .. } => host.handle(request)?,
        };
        serde_json::from_value(response).context("the node's answer cannot be read by this release")
    }
}

/// The settings, and the data directory.
fn config_of(at: &VolumePlace) -> anyhow::Result<(Config, PathBuf)> {
    let config = Config::read(at.config.as_deref())?;
    let data = at.data.clone().unwrap_or_else(|| config.data().to_owned());
    Ok((config, data))
}

/// The volumes of a data directory, for one request.
fn host_of(mut config: Config, data: &Path) -> anyhow::Result<Arc<VolumeHost>> {
    let options = config.take_services().volumes.options(data)?;
    let plan = config.plan_of(data)?;
    plan.tiers().reach_with(options.client);
    plan.tiers().exports_are(OwnExports { socket: options.socket, listen: options.listen });
    VolumeHost::new(data, plan.tiers(), options.scrub)
}

/// Asks on the terminal.
fn confirm(question: &str) -> anyhow::Result<bool> {
    ensure!(std::io::stdin().is_terminal(), "{question} There is no terminal to ask on: add --yes");
    print!("{question} [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn create(args: &CreateArgs) -> anyhow::Result<ExitCode> {
    let new = NewVolumeRequest {
        name: args.name.clone(),
        kind: if args.place { VolumeKind::Place } else { VolumeKind::Mirror },
        bytes: args.size.0,
        copies: args.copies.clone(),
        min_copies: args.min_copies,
        prefer: args.prefer,
        iops: args.iops,
        bytes_per_second: args.bandwidth.map(|bytes| bytes.0),
        upkeep_bytes_per_second: args.upkeep.map(|bytes| bytes.0),
        share_tiers: args.share_tiers,
        thin: args.thin,
        key_file: args.key_file.as_deref().map(std::path::absolute).transpose()?,
    };
    let made: MadeReport = Target::find(&args.at)?.send(VolumeRequest::Create(new))?;
    let thin = if args.thin { "thin " } else { "" };
    let what = match (args.place, args.copies.len()) {
        (true, _) => "place for a copy".to_owned(),
        (false, 1) => format!("{thin}volume of one copy"),
        (false, copies) => format!("{thin}volume of {copies} copies"),
    };
    println!("made {}: a {what}, {}", args.name, bytes(args.size.0));
    println!("  next: terrace volume export {}", args.name);
    for shared in &made.same_disk {
        eprintln!("warning: {shared}; --share-tiers says that this is wanted");
    }
    Ok(ExitCode::SUCCESS)
}

fn replace(args: &ReplaceArgs) -> anyhow::Result<ExitCode> {
    let target = Target::find(&args.at)?;
    let (name, copy) = (args.name.clone(), args.number);
    let place: String = target.send(VolumeRequest::Replace { name, copy, wanted: args.copy.clone() })?;
    println!("copy {} of {} is made anew in {place}", args.number, args.name);
    if !args.wait {
        println!("  `terrace volume status {}` shows how far it is", args.name);
        return Ok(ExitCode::SUCCESS);
    }
    let bar = bar("copying")?;
    loop {
        let reports: Vec<VolumeReport> = target.send(VolumeRequest::Status { names: vec![args.name.clone()] })?;
        let found = reports.first().and_then(|report| report.copies.get(usize::from(args.number)));
        let found = found.context("the node does not report this copy any more")?;
        match found.state.as_str() {
            "in-sync" => break,
            "syncing" => {
                bar.set_length(reports[0].bytes);
                bar.set_position(reports[0].bytes.saturating_sub(found.behind_bytes));
            }
            other => anyhow::bail!("the new copy is {other}: `terrace volume status {}` shows why", args.name),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    bar.finish_and_clear();
    println!("it is in sync");
    Ok(ExitCode::SUCCESS)
}

fn bar(what: &'static str) -> anyhow::Result<ProgressBar> {
    let style =
        ProgressStyle::with_template("{msg:<12} [{bar:30}] {percent:>3} %  {bytes} of {total_bytes}  {elapsed}")?;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    Ok(bar.with_style(style).with_message(what))
}

fn scrub(args: &NameArgs) -> anyhow::Result<ExitCode> {
    let target = Target::find(&args.at)?;
    let found: ScrubReport = target.send(VolumeRequest::Scrub { name: args.name.clone() })?;
    let code = if found.damaged == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(code);
    }
    println!(
        "read {} on all copies together: {} blocks repaired, {} damaged on every copy",
        bytes(found.bytes),
        count(found.repaired),
        count(found.damaged)
    );
    if found.damaged > 0 {
        println!("reads of these are errors until they are written anew; the node's log names them");
    }
    Ok(code)
}

fn grow(args: &GrowArgs) -> anyhow::Result<ExitCode> {
    Target::find(&args.at)?.send::<Value>(VolumeRequest::Grow { name: args.name.clone(), bytes: args.size.0 })?;
    println!("volume {} has {} now", args.name, bytes(args.size.0));
    Ok(ExitCode::SUCCESS)
}

fn limit(args: &LimitArgs) -> anyhow::Result<ExitCode> {
    let LimitArgs { name, iops, bandwidth, at } = args;
    let request = VolumeRequest::Limit { name: name.clone(), iops: *iops, bytes_per_second: *bandwidth };
    let report: VolumeReport = Target::find(at)?.send(request)?;
    println!("clients of volume {name} get {}, all together", report::limits(&report));
    Ok(ExitCode::SUCCESS)
}

fn rekey(args: &RekeyArgs) -> anyhow::Result<ExitCode> {
    let RekeyArgs { name, key_file, new_data_key, at } = args;
    let (key_file, new_data_key) = (std::path::absolute(key_file)?, *new_data_key);
    let request = VolumeRequest::Rekey { name: name.clone(), key_file: key_file.clone(), new_data_key };
    Target::find(at)?.send::<Value>(request)?;
    println!(
        "volume {name} is opened with the secret in {} from now on; it does not need the former one",
        key_file.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let (config, data) = config_of(&args.at)?;
    if !control::is_running(&data) && !args.stop {
        return exporting::run(config, &data, args);
    }
    ensure!(
        args.listen.is_none() && args.socket.is_none(),
        "a node runs on {}: it listens where terrace.toml says, under [volumes]",
        data.display()
    );
    let target = Target::find(&args.at)?;
    for name in args.names.clone() {
        let request = match args.stop {
            true => VolumeRequest::Unexport { name },
            false => VolumeRequest::Export { name, read_only: args.read_only },
        };
        let report: VolumeReport = target.send(request)?;
        report::export(&report);
    }
    Ok(ExitCode::SUCCESS)
}
