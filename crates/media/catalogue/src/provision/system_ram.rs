//! The plan that turns memory behind a link into system memory: CXL memory, HBM, and persistent memory as device-DAX.
//!
//! ```text
//!   CXL memory in no region    cxl create-region -t ram -m mem0      -> region5, whose device is dax5.0
//!   device-DAX, not yet used   daxctl reconfigure-device --mode=system-ram dax5.0      -> a NUMA node without processors
//! ```
//!
//! Invariants: a device that is a namespace of persistent memory contains data, and is planned only if the wish names
//! the namespace as removable. A device that is already system memory is not changed.
//!
//! It does not interleave several devices in one region (each becomes a separate node, which placement can name),
//! partition a device between volatile and persistent, or revert to device-DAX.

use std::collections::BTreeMap;

use super::ProvisionError;
use super::geometry::print_bytes;
use super::machine::{DaxDevice, Machine};
use super::plan::{Capacity, Plan};
use super::steps::{Command, Step};

/// The driver of device-DAX that is used as system memory.
const AS_MEMORY: &str = "kmem";

/// Plans for all devices, or the named ones; `overwrite` names namespaces whose content may be lost.
///
/// Errors: [`ProvisionError::Refused`] if there is nothing to do, a name does not exist, or a tool is missing;
/// [`ProvisionError::Occupied`] if a named device contains a namespace that must be kept.
pub fn plan_system_ram(machine: &Machine, devices: &[String], overwrite: &[String]) -> Result<Plan, ProvisionError> {
    let known = |name: &String| {
        machine.cxl.iter().any(|one| one.name == *name) || machine.dax.iter().any(|one| one.name == *name)
    };
    if let Some(missing) = devices.iter().find(|name| !known(name)) {
        let names: Vec<&str> = machine
            .cxl
            .iter()
            .map(|one| one.name.as_str())
            .chain(machine.dax.iter().map(|one| one.name.as_str()))
            .collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(ProvisionError::refused(format!("there is no device {missing}"), format!("there are: {there}")));
    }
    let wanted = |name: &String| devices.is_empty() || devices.contains(name);
    let mut plan = empty();
    for device in machine.cxl.iter().filter(|device| wanted(&device.name)) {
        if device.persistent_bytes > 0 {
            plan.notes.push(format!(
                "{} has {} of persistent memory besides: cxl create-region -t pmem makes it a region that terrace tier plan divides",
                device.name,
                print_bytes(device.persistent_bytes)
            ));
        }
        if device.region.is_none() && device.volatile_bytes > 0 {
            let slot = format!("{}.dax", device.name);
            plan.names.insert(slot.clone(), format!("dax-of-{}", device.name));
            let words = ["cxl", "create-region", "-t", "ram", "-m", device.name.as_str()];
            plan.steps.push(run(&words, format!("addresses for {}", device.name), Some(slot.clone())));
            to_memory(&mut plan, &format!("{{{slot}}}"), &device.name, device.volatile_bytes, None);
        }
    }
    for device in machine.dax.iter().filter(|device| wanted(&device.name)) {
        if device.driver.as_deref() == Some(AS_MEMORY) || !may_go(machine, device, devices, overwrite)? {
            continue;
        }
        to_memory(&mut plan, &device.name, &device.name, device.bytes, device.target_node);
    }
    if plan.steps.is_empty() {
        return Err(ProvisionError::refused(
            "no CXL device is without a region, and no device-DAX is not in use already: nothing can become memory of the system",
            "terrace tier list shows what there is; a namespace of persistent memory has to be named: --overwrite namespace0.0",
        ));
    }
    for (tool, package) in [("cxl", "the cxl command (package cxl, of the ndctl project)"), ("daxctl", "daxctl")] {
        let needed = plan.steps.iter().any(|step| matches!(step, Step::Run(run) if run.words[0] == tool));
        if needed && !machine.has_tool(tool) {
            return Err(ProvisionError::refused(format!("{tool} is not installed"), format!("install {package}")));
        }
    }
    plan.notes.push("memory of the system is lost when the power goes, whatever it is of".into());
    plan.notes.push("the system describes it with 64 B for each page of 4 KiB: 16 GiB of DRAM for each TiB".into());
    plan.notes.push("a restart may undo it: daxctl reconfigure-device has to run again, unless the kernel puts such memory online itself".into());
    Ok(plan)
}

fn empty() -> Plan {
    Plan {
        steps: Vec::new(),
        capacities: Vec::new(),
        notes: Vec::new(),
        names: BTreeMap::new(),
        settings: String::new(),
        modelled: false,
    }
}

fn run(words: &[&str], purpose: String, answers: Option<String>) -> Step {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Step::Run(Command { words, purpose, answers, region: None })
}

/// Whether a device of device-DAX may lose what is in it: it is no namespace, or one that was named.
fn may_go(
    machine: &Machine,
    device: &DaxDevice,
    devices: &[String],
    overwrite: &[String],
) -> Result<bool, ProvisionError> {
    let namespace = machine.namespaces.iter().find(|one| one.device.as_deref() == Some(device.name.as_str()));
    let Some(namespace) = namespace.filter(|one| !overwrite.contains(&one.name)) else { return Ok(true) };
    if !devices.contains(&device.name) {
        return Ok(false);
    }
    Err(ProvisionError::Occupied {
        what: device.name.clone(),
        state: format!("{}, persistent memory of {}", namespace.name, print_bytes(namespace.bytes)),
        advice: format!("what is in it would be lost; if it may go, say so: --overwrite {}", namespace.name),
    })
}

/// The step that makes a device memory of the system, and the lines that name its node.
fn to_memory(plan: &mut Plan, device: &str, name: &str, bytes: u64, node: Option<u32>) {
    let words = ["daxctl", "reconfigure-device", "--mode=system-ram", device];
    plan.steps.push(run(&words, format!("{} of {name} become a node", print_bytes(bytes)), None));
    let why = "all of it; its pages are described in DRAM".to_owned();
    plan.capacities.push(Capacity { what: format!("{name} as system memory"), asked: bytes, usable: bytes, why });
    let tier = name.replace('.', "-");
    let node = match node {
        Some(node) => format!("node = {node}\n"),
        None => "# node = the number that terrace tier list shows of it then\n".to_owned(),
    };
    let size = print_bytes(bytes);
    plan.settings += &format!("[tiers.{tier}]\nkind = \"memory\"\n{node}bytes = \"{size}\"\n\n");
}
