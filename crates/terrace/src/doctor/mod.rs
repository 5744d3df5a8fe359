//! `terrace doctor`: checks settings, data directory and machine before a node is blamed, and says for each finding what to do.
//!
//! ```text
//!   settings   the file, the production, certificates and keys, ports          directory  owner, mode, space, lock, journal, format
//!   medium     what the data lie on, and how long a flush takes there          machine    clock, descriptors, memory, kernel
//!   running    the node, over its control socket: its troubles and users
//!        |
//!        +--> FindingList --> a table and what to do, or JSON; exit code 0 fine, 1 warnings, 2 problems
//! ```
//!
//! Invariants: it changes nothing and ends, whatever it meets: lists are bounded, and a file that cannot be read is a finding. What cannot
//! be found out is said to be unknown, and not taken for fine. It prints names, numbers and paths, never a stored byte.
//!
//! Not here: damage of stored data (`terrace verify`), the speed of media (`terrace tier probe`).

mod directory;
mod finding;
mod machine;
mod medium;
mod running;
mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::{DoctorArgs, ServeArgs};
use crate::config::FILE;
use crate::init::SYSTEM_SETTINGS;
use crate::show::TextTable;
use finding::{FindingList, FindingState};

/// Runs it.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = FindingList::default();
    let file = settings_file(args.config.as_deref());
    let serve =
        ServeArgs { config: file.clone(), data: args.data.clone(), production: args.production.clone(), bodies: None };
    let read = settings::check(&mut findings, &serve);
    machine::check(&mut findings, read.as_ref());
    if let Some(read) = &read {
        let is_running = node::control::is_running(&read.data);
        directory::check(&mut findings, read, is_running);
        medium::check(&mut findings, &read.data);
        settings::check_ports(&mut findings, read, is_running);
        running::check(&mut findings, read, is_running);
    }
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&findings)?),
        false => print_findings(&findings),
    }
    Ok(ExitCode::from(findings.exit_code()))
}

/// The file that is named, that of this directory, or that of the package.
fn settings_file(named: Option<&Path>) -> Option<PathBuf> {
    let system = Path::new(SYSTEM_SETTINGS).join(FILE);
    match named {
        Some(file) => Some(file.to_owned()),
        None if Path::new(FILE).exists() => Some(PathBuf::from(FILE)),
        None => system.exists().then_some(system),
    }
}

fn print_findings(findings: &FindingList) {
    let mut table = TextTable::new(&["", "check", "found"]);
    for finding in findings.all() {
        table.row(&[finding.state.word(), finding.check, &finding.found]);
    }
    println!("{table}");
    for finding in findings.all() {
        if let Some(next) = &finding.next {
            println!("{}: {}: {}\n  next: {next}\n", finding.state.word(), finding.check, finding.found);
        }
    }
    println!(
        "{}",
        match findings.worst() {
            FindingState::Fine => "all is fine",
            FindingState::Unknown => "nothing is wrong that could be found out",
            FindingState::Warning => "a node runs like this; see the warnings",
            FindingState::Problem => "there are problems: a node does not run like this, or not safely",
        }
    );
}
