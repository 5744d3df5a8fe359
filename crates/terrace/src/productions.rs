//! `terrace production`: the folder of text files.

mod generations;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use interop::production::{Production, settings};

use crate::cli::ProductionCommand;
use crate::config::Config;
use crate::serve;
use crate::show::TextTable;

/// The production that `new` writes, with a message to try it.
pub const TEMPLATE: &[(&str, &str)] = &[
    ("production.toml", include_str!("../template/production.toml")),
    ("services/inbound.toml", include_str!("../template/services/inbound.toml")),
    ("rules/main.rules", include_str!("../template/rules/main.rules")),
    ("transforms/to-archive.hl7t", include_str!("../template/transforms/to-archive.hl7t")),
    ("tables/wards.csv", include_str!("../template/tables/wards.csv")),
    ("operations/archive.toml", include_str!("../template/operations/archive.toml")),
    ("admission.hl7", include_str!("../template/admission.hl7")),
];

/// Runs one of the commands.
pub fn run(command: ProductionCommand) -> anyhow::Result<ExitCode> {
    match command {
        ProductionCommand::Check { dir, ports, environment } => check(&dir, ports, environment.as_deref()),
        ProductionCommand::New { dir } => new(&dir),
        ProductionCommand::Reload(place) => serve::reload(&place),
        ProductionCommand::Generations(args) => generations::list(&args),
        ProductionCommand::Diff { from, to, json, place } => generations::diff(&place.data, (from, to), json),
        ProductionCommand::Back { generation, write, place } => {
            generations::back(&place.data, generation, write.as_deref())
        }
    }
}

fn check(dir: &Path, ports: bool, environment: Option<&str>) -> anyhow::Result<ExitCode> {
    let production = Production::load_with(dir, &Config::read(None)?.values(environment)?)?;
    if ports {
        for service in production.services.values() {
            if let settings::ServiceSettings::Mllp(mllp) = &service.settings {
                TcpListener::bind(mllp.listen)
                    .with_context(|| format!("service {}: cannot listen on {}", service.name, mllp.listen))?;
            }
        }
    }
    let mut table = TextTable::new(&["part", "name", "what"]);
    for service in production.services.values() {
        let what = match &service.settings {
            settings::ServiceSettings::Mllp(mllp) => format!("listens on {}", mllp.listen),
            settings::ServiceSettings::File(file) => format!("watches {}", file.folder.display()),
        };
        let rules = service.settings.rules().map_or_else(String::new, |rules| format!(", rules {rules}"));
        table.row(&["service", &service.name, &format!("{what}{rules}")]);
    }
    for operation in &production.operations {
        let what = match &operation.settings {
            settings::OperationSettings::Mllp(mllp) => format!("sends to {}", mllp.address),
            settings::OperationSettings::File(file) => format!("writes to {}", file.folder.display()),
        };
        table.row(&["operation", &operation.name, &what]);
    }
    println!("{table}");
    production.warnings.iter().for_each(|warning| println!("note: {warning}"));
    println!("production {} is in order", production.name);
    Ok(ExitCode::SUCCESS)
}

fn new(dir: &Path) -> anyhow::Result<ExitCode> {
    if dir.exists() {
        bail!("{} exists already; choose another name", dir.display());
    }
    for (name, text) in TEMPLATE {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a file in the folder"))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let dir = dir.display();
    println!("wrote {dir}; run it with:    terrace serve --production {dir}");
    println!("then, elsewhere, try:  terrace message send {dir}/admission.hl7");
    Ok(ExitCode::SUCCESS)
}
