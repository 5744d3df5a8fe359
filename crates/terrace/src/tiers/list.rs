//! `terrace tier list`: the machine as tables that line up, or as the JSON that `tier plan --machine` reads.

use std::io::Write;
use std::process::ExitCode;

use catalogue::provision::Machine;
use catalogue::provision::geometry::print_bytes;
use catalogue::provision::machine::{Labels, Slots, Synchronous};
use serde::Serialize;

use super::apply::{self, Waiting};
use super::args::TierListArgs;
use crate::show::TextTable;

/// The output of `--json`: the machine's fields, and a plan that waits.
#[derive(Debug, Serialize)]
struct Listing {
    #[serde(flatten)]
    machine: Machine,
    waiting: Option<Waiting>,
}

/// Runs it.
pub fn run(args: &TierListArgs) -> anyhow::Result<ExitCode> {
    let machine = Machine::read(&args.place.root)?;
    let waiting = apply::waiting(&args.place)?;
    let mut out = crate::terminal::out();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&Listing { machine, waiting })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    write!(out, "{}", text(&machine))?;
    if let Some(waiting) = waiting {
        writeln!(out, "\n{}", waiting.to_text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables.
pub fn text(machine: &Machine) -> String {
    let mut out = section("Memory", &memory(machine), "");
    out += &slots(machine);
    if !machine.cxl.is_empty() {
        out += &format!("\n{}", section("CXL memory", &cxl(machine), ""));
    }
    let none = "none that Linux shows; a directory can be used instead: terrace tier apply --model DIR\n";
    out += "\nPersistent memory\n\n";
    if machine.modules.is_empty() && machine.regions.is_empty() && machine.dax.is_empty() {
        out += none;
    } else {
        let tables = [modules(machine), regions(machine), namespaces(machine), dax(machine)];
        let tables: Vec<String> = tables.iter().filter(|table| !table.is_empty()).map(ToString::to_string).collect();
        out += &tables.join("\n");
        for region in &machine.regions {
            out += &format!("\n{}: {}\n", region.name, region.verdict());
        }
    }
    out += "\n";
    out += &section("Disks", &disks(machine), "none\n");
    out += "\n";
    out += &section("File systems on them", &mounts(machine), "none is mounted\n");
    out
}

fn section(title: &str, table: &TextTable, none: &str) -> String {
    format!("{title}\n\n{}", if table.is_empty() { none.to_owned() } else { table.to_string() })
}

/// A cell that has no value is a dash.
fn cell(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".into())
}

fn memory(machine: &Machine) -> TextTable {
    // The last three are what the firmware states (HMAT), from the nearest processors; `tier probe` measures.
    let stated = machine.nodes.iter().any(|node| node.performance.is_some() || node.side_cache_bytes.is_some());
    let mut headings = vec!["node", "kind", "processors", "memory", "free", "distances"];
    if stated {
        headings.extend(["stated read ns", "stated read GB/s", "cache before it"]);
    }
    let mut table = TextTable::new(&headings);
    for node in &machine.nodes {
        let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        let kind = match (machine.is_high_bandwidth(node), node.is_far_memory()) {
            (true, _) => "high bandwidth",
            (false, true) => "far memory",
            (false, false) => "memory",
        };
        let mut cells = vec![
            node.id.to_string(),
            kind.to_owned(),
            cell(Some(&node.cpus)),
            print_bytes(node.bytes),
            print_bytes(node.free_bytes),
            distances.join(" "),
        ];
        if stated {
            let performance = node.performance.unwrap_or_default();
            cells.push(cell(performance.read_latency_ns));
            cells.push(cell(performance.read_mib_per_s.map(|rate| format!("{:.1}", rate as f64 * 1.048_576 / 1e3))));
            cells.push(cell(node.side_cache_bytes.map(print_bytes)));
        }
        table.row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    table
}

/// The firmware's report of slots, and of how much a processor can map.
fn slots(machine: &Machine) -> String {
    let mut out = String::new();
    if let Some(Slots { all, dram, persistent }) = machine.slots {
        out += &format!("\n{all} slots: {dram} with DRAM, {persistent} with persistent memory\n");
    }
    if let Some(limit) = machine.socket_limit_bytes {
        out += &format!("\nThe processor of a socket maps {} at most\n", print_bytes(limit));
    }
    out
}

fn cxl(machine: &Machine) -> TextTable {
    let mut table =
        TextTable::new(&["device", "volatile", "persistent", "beside node", "region", "firmware", "serial"]);
    for device in &machine.cxl {
        table.row(&[
            &device.name,
            &print_bytes(device.volatile_bytes),
            &print_bytes(device.persistent_bytes),
            &cell(device.near_node),
            &cell(device.region.as_ref()),
            &cell(device.firmware.as_ref()),
            &cell(device.serial.as_ref()),
        ]);
    }
    table
}

fn modules(machine: &Machine) -> TextTable {
    let mut table = TextTable::new(&["module", "socket", "size", "part", "labels", "dirty shutdowns"]);
    for module in &machine.modules {
        let labels = match module.labels {
            Labels::None => "none",
            Labels::Blank => "blank",
            Labels::Ready => "ready",
        };
        table.row(&[
            &module.name,
            &cell(module.socket),
            &cell(module.bytes.map(print_bytes)),
            &cell(module.part.as_ref()),
            labels,
            &cell(module.dirty_shutdowns),
        ]);
    }
    table
}

fn regions(machine: &Machine) -> TextTable {
    let mut table =
        TextTable::new(&["region", "size", "free", "modules", "aligned to", "node", "persistence domain", "is"]);
    for region in &machine.regions {
        table.row(&[
            &region.name,
            &print_bytes(region.bytes),
            &print_bytes(region.free_bytes),
            &region.modules.len().to_string(),
            &print_bytes(region.align),
            &cell(region.node),
            &cell(Some(&region.persistence_domain)),
            region.domain(),
        ]);
    }
    table
}

fn namespaces(machine: &Machine) -> TextTable {
    let mut table = TextTable::new(&["namespace", "mode", "size", "usable", "device", "mounted at"]);
    for namespace in &machine.namespaces {
        let mount = namespace.device.as_deref().and_then(|device| machine.mount_of(device));
        table.row(&[
            &namespace.name,
            namespace.mode.as_str(),
            &print_bytes(namespace.bytes),
            &cell(namespace.usable_bytes.map(print_bytes)),
            &cell(namespace.device.as_ref()),
            &cell(mount.map(|mount| &mount.path)),
        ]);
    }
    table
}

fn dax(machine: &Machine) -> TextTable {
    let mut table = TextTable::new(&["dax device", "size", "node it would be", "driver"]);
    for device in &machine.dax {
        table.row(&[
            &device.name,
            &print_bytes(device.bytes),
            &cell(device.target_node),
            &cell(device.driver.as_ref()),
        ]);
    }
    table
}

fn disks(machine: &Machine) -> TextTable {
    let mut table = TextTable::new(&["disk", "size", "kind", "model", "write cache", "scheduler"]);
    for disk in &machine.disks {
        let kind = match (disk.dax, disk.rotational) {
            (true, _) => "maps directly",
            (false, true) => "rotational",
            (false, false) => "solid state",
        };
        table.row(&[
            &disk.name,
            &print_bytes(disk.bytes),
            kind,
            &cell(disk.model.as_ref()),
            &cell(disk.write_cache.as_ref()),
            &cell(disk.scheduler.as_ref()),
        ]);
    }
    table
}

fn mounts(machine: &Machine) -> TextTable {
    let mut table = TextTable::new(&["mounted at", "device", "kind", "dax", "MAP_SYNC"]);
    for mount in &machine.mounts {
        let synchronous = match mount.synchronous {
            Synchronous::Yes => "yes",
            Synchronous::PerFile => "per file (mount with dax=always)",
            Synchronous::No => "no",
        };
        table.row(&[&mount.path, &mount.source, &mount.kind, &cell(Some(&mount.dax)), synchronous]);
    }
    table
}

#[cfg(test)]
mod tests {
    use catalogue::provision::machine::{CxlMemory, Node, Performance, Region};

    use super::*;

    #[test]
    fn a_machine_without_persistent_memory_says_how_to_go_on_and_one_with_it_says_what_it_promises() {
        let mut machine = Machine::default();
        machine.nodes.push(Node { bytes: 8 << 30, ..Node::default() });
        let without = text(&machine);
        assert!(without.contains("far memory") && without.contains("terrace tier apply --model DIR"), "{without}");
        machine.regions.push(Region {
            name: "region0".into(),
            persistence_domain: "cpu_cache".into(),
            ..Region::default()
        });
        let with = text(&machine);
        assert!(with.contains("cpu_cache") && with.contains("region0: eADR"), "{with}");
        assert!(!with.contains("--model"), "{with}");
    }

    #[test]
    fn hbm_cxl_devices_stated_speeds_and_slots_are_listed_and_only_where_they_are_known() {
        let node = |id: u32, cpus: &str, rate: u64| {
            let performance =
                Performance { read_latency_ns: Some(100), read_mib_per_s: Some(rate), ..Performance::default() };
            Node { id, cpus: cpus.into(), bytes: 64 << 30, performance: Some(performance), ..Node::default() }
        };
        let nodes = vec![node(0, "0-55", 200_000), node(1, "", 900_000), node(2, "", 20_000)];
        let mut machine = Machine { nodes, ..Machine::default() };
        machine.cxl.push(CxlMemory { name: "mem0".into(), volatile_bytes: 96 << 30, ..CxlMemory::default() });
        machine.slots = Some(Slots { all: 12, dram: 6, persistent: 6 });
        machine.socket_limit_bytes = Some(1 << 40);
        let listed = text(&machine);
        let line =
            |start: &str| listed.lines().map(str::trim_start).find(|line| line.starts_with(start)).unwrap_or_default();
        assert!(line("1 ").contains("high bandwidth") && line("1 ").contains("943.7"), "{listed}");
        assert!(line("2 ").contains("far memory") && line("mem0").contains("96 GiB"), "{listed}");
        assert!(
            listed.contains("12 slots: 6 with DRAM, 6 with persistent") && listed.contains("maps 1 TiB at most"),
            "{listed}"
        );
        let plain = text(&Machine { nodes: vec![Node::default()], ..Machine::default() });
        assert!(!plain.contains("stated") && !plain.contains("CXL") && !plain.contains("slots"), "{plain}");
    }

    #[test]
    fn what_list_prints_as_json_plan_reads_as_a_machine() {
        let machine = Machine { dram_bytes: Some(7), tools: vec!["ndctl".into()], ..Machine::default() };
        let printed = serde_json::to_string(&Listing { machine: machine.clone(), waiting: None }).expect("plain data");
        let read: Machine = serde_json::from_str(&printed).expect("a machine");
        assert_eq!(read, machine);
    }
}
