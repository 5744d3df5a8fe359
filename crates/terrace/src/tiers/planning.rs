//! `terrace tier plan`: options to a wish, a machine found or described, and the plan as text.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use catalogue::provision::geometry::{Map, parse_bytes, print_bytes};
use catalogue::provision::machine::Series;
use catalogue::provision::plan::plan_modelled;
use catalogue::provision::system_ram::plan_system_ram;
use catalogue::provision::wish::Hypothesis;
use catalogue::provision::{FileSystem, Goal, Machine, NamespaceWish, Plan, Wish, plan};

use super::args::{FileSystemName, HypothesisArgs, MapName, PlaceArgs, PlanArgs, SeriesName, WishArgs};
use crate::show::TextTable;

/// Runs it.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let machine = machine(&args.hypothesis, &args.place)?;
    let plan = make(&args.wish, &machine)?;
    if let Some(file) = &args.out {
        std::fs::write(file, serde_json::to_string_pretty(&plan)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut out = crate::terminal::out();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    write!(out, "{}", text(&plan))?;
    let described = args.hypothesis.machine.is_some() || args.hypothesis.modules.is_some();
    let how = match (&args.out, described) {
        (Some(file), _) => format!("terrace tier apply {}", file.display()),
        (None, true) => "the same with --out FILE, and terrace tier apply FILE on that machine".into(),
        (None, false) => "terrace tier apply, with the same options".into(),
    };
    writeln!(out, "\nTo carry it out: {how}")?;
    Ok(ExitCode::SUCCESS)
}

/// The machine to plan for.
fn machine(args: &HypothesisArgs, place: &PlaceArgs) -> anyhow::Result<Machine> {
    let dram = args.dram.as_deref().map(size).transpose()?;
    let mut machine = if let Some(file) = &args.machine {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not what terrace tier list --json prints", file.display()))?
    } else if let Some(modules) = &args.modules {
        let series = match args.series {
            SeriesName::S100 => Series::S100,
            SeriesName::S200 => Series::S200,
            SeriesName::S300 => Series::S300,
        };
        Hypothesis {
            modules: modules.clone(),
            dram_bytes: dram,
            sockets: args.sockets,
            series: Some(series),
            socket_limit_bytes: None,
        }
        .machine()?
    } else {
        Machine::read(&place.root)?
    };
    machine.dram_bytes = dram.or(machine.dram_bytes);
    machine.socket_limit_bytes = args.socket_limit.as_deref().map(size).transpose()?.or(machine.socket_limit_bytes);
    Ok(machine)
}

/// Makes the plan that the options request.
pub fn make(args: &WishArgs, machine: &Machine) -> anyhow::Result<Plan> {
    if args.system_ram {
        return Ok(plan_system_ram(machine, &args.devices, &args.overwrite)?);
    }
    let mut goal = args.goal.as_deref().map(Goal::parse).transpose()?;
    if let Some(goal) = &mut goal {
        goal.interleaved = !args.not_interleaved;
    }
    let wish = Wish {
        goal,
        namespaces: NamespaceWish::parse_list(&args.namespaces)?,
        regions: args.regions.clone(),
        map: match args.map {
            MapName::Dev => Map::Dev,
            MapName::Mem => Map::Mem,
        },
        file_system: match args.file_system {
            FileSystemName::Xfs => FileSystem::Xfs,
            FileSystemName::Ext4 => FileSystem::Ext4,
        },
        mount: args.mount.clone(),
        ratio_limit: args.ratio_limit,
        overwrite: args.overwrite.clone(),
    };
    match &args.model {
        Some(directory) => {
            Ok(plan_modelled(directory.to_str().context("--model is not UTF-8")?, size(&args.size)?, &wish)?)
        }
        None => Ok(plan(machine, &wish)?),
    }
}

/// Reads a size.
pub fn size(text: &str) -> anyhow::Result<u64> {
    match parse_bytes(text).filter(|bytes| *bytes > 0) {
        Some(bytes) => Ok(bytes),
        None => bail!("\"{text}\" is no size; write 192GiB, 1.5TiB or a number of bytes"),
    }
}

/// The plan as text: its result, notes, and the commands.
pub fn text(plan: &Plan) -> String {
    let mut table = TextTable::new(&["what", "asked", "usable", "the difference"]);
    for line in &plan.capacities {
        table.row(&[&line.what, &print_bytes(line.asked), &print_bytes(line.usable), &line.why]);
    }
    let mut out = table.to_string();
    if !plan.notes.is_empty() {
        out += "\nNote\n";
        out.extend(plan.notes.iter().map(|note| format!("  - {note}\n")));
    }
    out += "\nCommands, in this order\n";
    out.extend(plan.steps.iter().map(|step| format!("  {}\n", step.to_text(&plan.names))));
    if !plan.settings.is_empty() {
        out += "\nLines for terrace.toml\n";
        out.extend(plan.settings.trim_end().lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n"));
    }
    out
}
