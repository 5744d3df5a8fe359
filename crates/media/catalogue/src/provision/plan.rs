//! The plan: from a machine and a wish to steps in order, with an account of every requested byte.
//!
//! ```text
//!   goal        removes namespaces that are in the way, ipmctl create -goal, restart        only with ipmctl, Intel modules
//!   regions     the existing ones, or those that the goal creates
//!   namespaces  of each region: labels if blank, then ndctl create-namespace for each wish
//!   files       on fsdax: mkfs, directory, mount; lines for terrace.toml
//! ```
//!
//! Invariants: a mounted namespace is never in a step. One that has a mode is removed only if the wish names it; one
//! without a mode (raw) only after a check that it contains only zeros, unless the wish names it. The sum of the
//! namespaces created in a region never exceeds its free space.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ProvisionError;
use super::geometry::{Map, print_bytes, region_align, usable};
use super::machine::{Labels, Machine, Namespace, NamespaceMode};
use super::outcome::{Outcome, outcome};
use super::steps::{Command, Step};
use super::wish::{NamespaceWish, Wish};

/// The smallest limit of a processor for persistent memory: 1 TiB, Cascade Lake without the letters M or L (Intel ARK,
/// from memory).
const SMALLEST_LIMIT: u64 = 1 << 40;

/// The steps, and their results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    /// Requested and usable sizes.
    pub capacities: Vec<Capacity>,
    /// Information for the user, a sentence each.
    pub notes: Vec<String>,
    /// Expected names for the slots of commands.
    pub names: BTreeMap<String, String>,
    /// Lines for `terrace.toml`.
    pub settings: String,
    /// Whether it is for a directory of an ordinary file system instead of hardware.
    pub modelled: bool,
}

/// One line of the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// The namespace or mode, `region0 fsdax`.
    pub what: String,
    /// Requested bytes.
    pub asked: u64,
    /// Bytes for data.
    pub usable: u64,
    /// The reason of the difference.
    pub why: String,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether the machine must be switched off and on.
    pub fn needs_restart(&self) -> bool {
        self.steps.contains(&Step::Restart)
    }

    fn run(&mut self, words: impl IntoIterator<Item = impl Into<String>>, purpose: impl Into<String>) {
        let words = words.into_iter().map(Into::into).collect();
        self.steps.push(Step::Run(Command { words, purpose: purpose.into(), answers: None, region: None }));
    }
}

/// A region to divide: an existing one, or one that a goal will create.
struct Ground {
    name: String,
    bytes: u64,
    free: u64,
    align: u64,
    /// Modules whose label area has to be initialised first.
    blank: Vec<String>,
    /// Set if it can only be a single namespace: the existing one.
    whole: Option<String>,
}

/// Makes the plan.
///
/// Errors: [`ProvisionError::Refused`], [`ProvisionError::Occupied`].
pub fn plan(machine: &Machine, wish: &Wish) -> Result<Plan, ProvisionError> {
    let mut plan = Plan {
        steps: Vec::new(),
        capacities: Vec::new(),
        notes: Vec::new(),
        names: BTreeMap::new(),
        settings: String::new(),
        modelled: false,
    };
    if machine.modules.is_empty() && machine.regions.is_empty() {
        return Err(ProvisionError::refused(
            "this machine has no persistent memory that Linux shows",
            "describe one (--modules 6x128GiB --dram 192GiB --sockets 2), or make a modelled tier in a directory (--model DIR)",
        ));
    }
    let grounds = match &wish.goal {
        Some(_) => set_goal(machine, wish, &mut plan)?,
        None => found(machine, wish, &mut plan)?,
    };
    if !grounds.is_empty() && !machine.has_tool("ndctl") {
        return Err(ProvisionError::refused(
            "ndctl is not installed, and nothing else makes namespaces",
            "install ndctl",
        ));
    }
    let maker = format!("mkfs.{}", wish.file_system.as_str());
    let has_files = wish.namespaces.iter().any(|one| one.mode == NamespaceMode::Fsdax);
    if !grounds.is_empty() && has_files && !machine.has_tool(&maker) {
        return Err(ProvisionError::refused(
            format!("{maker} is not installed"),
            "install xfsprogs or e2fsprogs, or choose the other file system",
        ));
    }
    for ground in &grounds {
        divide(ground, wish, &mut plan)?;
    }
    if has_files && !grounds.is_empty() {
        plan.notes.push(format!(
            "a restart unmounts {}N: add lines for them to /etc/fstab with the options nofail,dax=always",
            wish.mount
        ));
    }
    Ok(plan)
}

/// The goal's steps, and the regions that it will create.
fn set_goal(machine: &Machine, wish: &Wish, plan: &mut Plan) -> Result<Vec<Ground>, ProvisionError> {
    let goal = wish.goal.as_ref().expect("called with a goal");
    let outcome = outcome(machine, goal, wish.ratio_limit)?;
    let there: Vec<(u64, u64)> =
        machine.regions.iter().map(|region| (region.modules.len() as u64, region.bytes)).collect();
    if goal.memory == 0 && !there.is_empty() && there == outcome.regions {
        plan.notes.push("the modules are divided like this already: no goal has to be set".into());
        return found(machine, wish, plan);
    }
    for namespace in &machine.namespaces {
        clear(machine, wish, namespace, plan)?;
    }
    plan.run(goal.command(), "ask the firmware to divide the modules");
    plan.steps.push(Step::Restart);
    let asked = |percent: u32| (u128::from(outcome.printed) * u128::from(percent) / 100) as u64;
    let rounding = "modules hold a little less than is printed on them; goals are whole GiB of each";
    if outcome.far > 0 {
        let near = print_bytes(outcome.near);
        let (whole, tenth) = (outcome.far / outcome.near, outcome.far % outcome.near * 10 / outcome.near);
        plan.capacities.push(capacity("system memory", asked(goal.memory), outcome.far, rounding));
        plan.notes.push(format!(
            "near to far memory is 1:{whole}.{tenth}; the {near} of DRAM become its cache and no longer count as memory"
        ));
        plan.notes.push("system memory in Memory Mode is lost when the power goes, like DRAM".into());
    }
    note_warnings(machine, &outcome, plan);
    let direct: u64 = outcome.regions.iter().map(|(_, bytes)| bytes).sum();
    if direct > 0 {
        plan.capacities.push(capacity("App Direct", asked(goal.app_direct), direct, rounding));
    }
    if outcome.far > 0 && direct > 0 {
        plan.notes.push(
            "both modes share the modules' bandwidth: heavy use of the memory slows App Direct down (ipmctl issue 216)"
                .into(),
        );
    }
    if outcome.unused > 0 {
        let why = format!("{} in no mode, rounding included", print_bytes(outcome.unused));
        plan.capacities.push(capacity("reserved", asked(goal.reserved), 0, &why));
    }
    plan.notes.push("the goal is pending until the machine was switched off and on; ipmctl show -goal prints what the firmware will grant".into());
    let ground = |(number, (ways, bytes)): (usize, &(u64, u64))| {
        let align = region_align(*ways);
        let free = bytes / align * align;
        Ground { name: format!("region{number}"), bytes: *bytes, free, align, blank: Vec::new(), whole: None }
    };
    let wanted = |ground: &Ground| wish.regions.is_empty() || wish.regions.contains(&ground.name);
    Ok(outcome.regions.iter().enumerate().map(ground).filter(wanted).collect())
}

/// Adds the warnings of ipmctl, and notes about the limits of the processors.
fn note_warnings(machine: &Machine, outcome: &Outcome, plan: &mut Plan) {
    plan.notes.extend(outcome.warnings.iter().cloned());
    match machine.socket_limit_bytes {
        Some(limit) if outcome.unmapped > 0 => plan.notes.push(format!(
            "the processors map at most {} a socket: {} of the modules stay unused, App Direct first (ipmctl says so, too)",
            print_bytes(limit),
            print_bytes(outcome.unmapped)
        )),
        None if outcome.mapped > SMALLEST_LIMIT => plan.notes.push(format!(
            "a socket would map {}, and what its processor can map is not known here: ipmctl show -a -socket prints \
             MappedMemoryLimit; --socket-limit plans with it",
            print_bytes(outcome.mapped)
        )),
        _ => {}
    }
}

/// The requested existing regions, cleared of what may be removed.
fn found(machine: &Machine, wish: &Wish, plan: &mut Plan) -> Result<Vec<Ground>, ProvisionError> {
    if let Some(missing) = wish.regions.iter().find(|name| machine.regions.iter().all(|region| region.name != **name)) {
        let names: Vec<&str> = machine.regions.iter().map(|region| region.name.as_str()).collect();
        return Err(ProvisionError::refused(
            format!("there is no {missing}"),
            format!("there are: {}", names.join(", ")),
        ));
    }
    if machine.regions.is_empty() {
        return Err(ProvisionError::refused(
            "the modules have no App Direct region",
            "set a goal first: --goal app-direct=100 (Intel modules, with ipmctl)",
        ));
    }
    let mut grounds = Vec::new();
    for region in machine.regions.iter().filter(|region| wish.regions.is_empty() || wish.regions.contains(&region.name))
    {
        let mut free = region.free_bytes;
        let there: Vec<&Namespace> = machine.namespaces_of(&region.name).collect();
        // Either the wishes fit beside the existing namespaces, or something must be removed.
        let needed: u64 = wish.namespaces.iter().map(|one| one.size.unwrap_or(region.align)).sum();
        let undivided = there.iter().any(|namespace| namespace.bytes == region.bytes);
        let mut whole = None;
        for namespace in &there {
            let named = wish.overwrite.contains(&namespace.name);
            if named || (free < needed && (namespace.mode == NamespaceMode::Raw || there.len() == 1)) {
                clear(machine, wish, namespace, plan)?;
                if undivided && !region.labels {
                    whole = Some(namespace.name.clone());
                }
                // A namespace of a divided region is destroyed; an undivided one disappears when labels are
                // initialised.
                free = if undivided { region.bytes / region.align * region.align } else { free + namespace.bytes };
            }
        }
        if free < needed {
            return Err(ProvisionError::Occupied {
                what: region.name.clone(),
                state: format!("full: {} are free, {} are needed", print_bytes(free), print_bytes(needed)),
                advice: format!("ask for less, or say which namespace may be destroyed: --overwrite {}", list(&there)),
            });
        }
        let keeps_labels =
            |name: &&String| machine.modules.iter().any(|m| m.name == **name && m.labels == Labels::Blank);
        let blank = if undivided && region.labels {
            region.modules.iter().filter(keeps_labels).cloned().collect()
        } else {
            Vec::new()
        };
        grounds.push(Ground {
            name: region.name.clone(),
            bytes: region.bytes,
            free,
            align: region.align.max(1),
            blank,
            whole,
        });
    }
    Ok(grounds)
}

/// Steps that remove a namespace, or why it must not be removed.
fn clear(machine: &Machine, wish: &Wish, namespace: &Namespace, plan: &mut Plan) -> Result<(), ProvisionError> {
    let occupied =
        |state: String, advice: String| ProvisionError::Occupied { what: namespace.name.clone(), state, advice };
    if let Some(mount) = namespace.device.as_deref().and_then(|device| machine.mount_of(device)) {
        return Err(occupied(
            format!("mounted at {}", mount.path),
            format!("stop what uses it and unmount it (umount {}), then plan again", mount.path),
        ));
    }
    let named = wish.overwrite.contains(&namespace.name);
    if !named && namespace.mode != NamespaceMode::Raw {
        return Err(occupied(
            format!("there already, {} {}", namespace.mode.as_str(), print_bytes(namespace.bytes)),
            format!("what is in it would be lost; if it may go, say so: --overwrite {}", namespace.name),
        ));
    }
    if !named && let Some(device) = &namespace.device {
        plan.steps.push(Step::Empty { namespace: namespace.name.clone(), device: device.clone() });
    }
    let region = machine.regions.iter().find(|region| region.name == namespace.region);
    if region.is_none_or(|region| region.bytes != namespace.bytes) {
        plan.run(["ndctl", "destroy-namespace", "-f", &namespace.name], format!("give {} up", namespace.name));
    }
    Ok(())
}

fn list(namespaces: &[&Namespace]) -> String {
    namespaces.iter().map(|namespace| namespace.name.as_str()).collect::<Vec<_>>().join(" --overwrite ")
}

/// The namespaces of one region.
fn divide(ground: &Ground, wish: &Wish, plan: &mut Plan) -> Result<(), ProvisionError> {
    let sizes = sizes(ground, &wish.namespaces)?;
    if !ground.blank.is_empty() {
        plan.run(["ndctl", "disable-region", &ground.name], "take the region from its driver");
        plan.run(
            ["ndctl", "init-labels", "-f"].into_iter().chain(ground.blank.iter().map(String::as_str)),
            "so that it can be divided",
        );
        plan.run(["ndctl", "enable-region", &ground.name], "give it back");
    }
    let mut mounted = 0;
    for (number, (one, size)) in wish.namespaces.iter().zip(sizes).enumerate() {
        let left = usable(one.mode, wish.map, size);
        if left == 0 {
            return Err(ProvisionError::refused(
                format!("{} of {} leave nothing after their own metadata", one.mode.as_str(), print_bytes(size)),
                "ask for more, 32 MiB at least",
            ));
        }
        let why = lost_to(one.mode, wish.map, ground.align, one.size.unwrap_or(size) != size);
        let asked = one.size.unwrap_or(size);
        plan.capacities.push(capacity(&format!("{} {}", ground.name, one.mode.as_str()), asked, left, &why));
        let slot = format!("{}.{}.{number}", ground.name, one.mode.as_str());
        plan.names.insert(slot.clone(), expected_name(&ground.name, number, one.mode));
        let mut words: Vec<String> = vec!["ndctl".into(), "create-namespace".into()];
        match &ground.whole {
            Some(namespace) => words.extend(["-f".to_owned(), "-e".into(), namespace.clone()]),
            None => words.extend([format!("--region={}", ground.name), format!("--size={size}")]),
        }
        words.push(format!("--mode={}", one.mode.as_str()));
        if one.mode != NamespaceMode::Sector {
            words.push(format!("--map={}", wish.map.as_str()));
        }
        plan.steps.push(Step::Run(Command {
            words,
            purpose: format!("{} of {}", one.mode.as_str(), print_bytes(size)),
            answers: Some(slot.clone()),
            region: Some(ground.name.clone()),
        }));
        if one.mode == NamespaceMode::Fsdax {
            let suffix = if mounted == 0 { String::new() } else { format!(".{mounted}") };
            let path = format!("{}{}{suffix}", wish.mount, ground.name.trim_start_matches("region"));
            put_file_system(wish, &slot, &path, left, plan)?;
            mounted += 1;
        }
    }
    Ok(())
}

/// How many bytes of the region each wish gets.
fn sizes(ground: &Ground, wishes: &[NamespaceWish]) -> Result<Vec<u64>, ProvisionError> {
    if let Some(namespace) = &ground.whole {
        let [only] = wishes else {
            return Err(ProvisionError::refused(
                format!("{} cannot be divided: its modules keep no labels", ground.name),
                format!("ask for one namespace, as --namespaces fsdax; {namespace} becomes that as a whole"),
            ));
        };
        if only.size.is_some_and(|size| size != ground.bytes) {
            return Err(ProvisionError::refused(
                format!("{} cannot be divided: its modules keep no labels", ground.name),
                format!("leave the size away: --namespaces {}", only.mode.as_str()),
            ));
        }
        return Ok(vec![ground.bytes]);
    }
    let down = |bytes: u64| bytes / ground.align * ground.align;
    let named: u64 = wishes.iter().filter_map(|wish| wish.size).map(down).sum();
    let over = |needed: u64| {
        ProvisionError::refused(
            format!(
                "{} has {} for namespaces, {} are asked for",
                ground.name,
                print_bytes(ground.free),
                print_bytes(needed)
            ),
            "ask for less; =rest takes what the others leave",
        )
    };
    let rest = down(ground.free.checked_sub(named).ok_or_else(|| over(named))?);
    let size = |wish: &NamespaceWish| match wish.size.map_or(rest, down) {
        0 if wish.size.is_none() => Err(over(named + ground.align)),
        0 => Err(ProvisionError::refused(
            format!(
                "{} is less than {}, the unit of {}",
                print_bytes(wish.size.unwrap_or(0)),
                print_bytes(ground.align),
                ground.name
            ),
            format!("ask for a multiple of {}", print_bytes(ground.align)),
        )),
        size => Ok(size),
    };
    wishes.iter().map(size).collect()
}

fn capacity(what: &str, asked: u64, usable: u64, why: &str) -> Capacity {
    Capacity { what: what.into(), asked, usable, why: why.into() }
}

/// Why a namespace holds less than its size.
fn lost_to(mode: NamespaceMode, map: Map, align: u64, rounded: bool) -> String {
    let metadata = match (mode, map) {
        (NamespaceMode::Fsdax | NamespaceMode::Devdax, Map::Dev) => {
            "64 B for each page of 4 KiB (1/64), then a multiple of 2 MiB"
        }
        (NamespaceMode::Fsdax | NamespaceMode::Devdax, Map::Mem) => {
            "2 MiB; pages are described in DRAM, 16 GiB of it for each TiB"
        }
        (NamespaceMode::Sector, _) => "block translation table: 4 B a block, 256 spare blocks, log",
        (NamespaceMode::Raw, _) => "nothing",
    };
    if rounded { format!("{metadata}; rounded down to {}", print_bytes(align)) } else { metadata.into() }
}

/// The name that the kernel gives to the device of a region's namespace.
fn expected_name(region: &str, number: usize, mode: NamespaceMode) -> String {
    let region = region.trim_start_matches("region");
    let number = if number == 0 { String::new() } else { format!(".{number}") };
    match mode {
        NamespaceMode::Devdax => format!("dax{region}{}", if number.is_empty() { ".0" } else { &number }),
        NamespaceMode::Sector => format!("pmem{region}{number}s"),
        NamespaceMode::Fsdax | NamespaceMode::Raw => format!("pmem{region}{number}"),
    }
}

/// File system, directory, mount, and the lines of settings for them.
fn put_file_system(wish: &Wish, slot: &str, path: &str, bytes: u64, plan: &mut Plan) -> Result<(), ProvisionError> {
    let (kind, least) = (wish.file_system.as_str(), wish.file_system.least());
    if bytes < least {
        return Err(ProvisionError::refused(
            format!("{kind} is not made on less than {}, and {} are left", print_bytes(least), print_bytes(bytes)),
            "ask for more, or for --file-system ext4",
        ));
    }
    let device = format!("/dev/{{{slot}}}");
    plan.run(wish.file_system.command(&device, bytes), "a file system");
    plan.steps.push(Step::Directory { path: path.into() });
    plan.run(["mount", "-t", kind, "-o", "dax=always", &device, path], "its files mapped directly");
    plan.settings += &settings(path, "refuse");
    Ok(())
}

/// The lines of `terrace.toml` for a tier; its name is derived from the mount point.
fn settings(path: &str, absent: &str) -> String {
    let name = Path::new(path).file_name().map_or("pmem".into(), |name| name.to_string_lossy().replace('.', "-"));
    format!("[tiers.{name}]\nkind = \"pmem\"\npath = \"{path}\"\nabsent = \"{absent}\"\n\n")
}

/// A plan for a directory of an ordinary file system that simulates persistent memory: fsdax becomes a directory for a
/// node's files, devdax and sector become files with all of their space allocated.
///
/// Errors: [`ProvisionError::Refused`] if the namespaces do not fit in `bytes`.
pub fn plan_modelled(directory: &str, bytes: u64, wish: &Wish) -> Result<Plan, ProvisionError> {
    let align = region_align(1);
    let ground =
        Ground { name: "region0".into(), bytes, free: bytes / align * align, align, blank: Vec::new(), whole: None };
    let mut plan = Plan {
        steps: vec![Step::Directory { path: directory.into() }],
        capacities: Vec::new(),
        notes: vec!["what lies there is as safe as that file system, and reported as emulated".into()],
        names: BTreeMap::new(),
        settings: String::new(),
        modelled: true,
    };
    for (number, (one, size)) in wish.namespaces.iter().zip(sizes(&ground, &wish.namespaces)?).enumerate() {
        let left = usable(one.mode, wish.map, size);
        let path = format!("{directory}/{}", expected_name("region0", number, one.mode));
        let why = lost_to(one.mode, wish.map, align, one.size.is_some_and(|asked| asked != size));
        plan.capacities.push(capacity(
            &format!("modelled {}", one.mode.as_str()),
            one.size.unwrap_or(size),
            left,
            &why,
        ));
        match one.mode {
            NamespaceMode::Fsdax => {
                plan.settings += &settings(&path, "emulate");
                plan.steps.push(Step::Directory { path });
            }
            _ if left == 0 => {
                return Err(ProvisionError::refused(
                    "a namespace smaller than its metadata",
                    "ask for 32 MiB at least",
                ));
            }
            _ => plan.steps.push(Step::File { path, bytes: left }),
        }
    }
    Ok(plan)
}
