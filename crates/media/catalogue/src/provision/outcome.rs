//! The result of a goal on a machine's modules, or why it is refused.
//!
//! ```text
//!   every module:   | Memory Mode, whole GiB | App Direct, whole GiB | reserved and rounding |        see `split`
//!   every socket:   App Direct of its modules = one region (interleave set), unless not interleaved
//! ```
//!
//! Refused, with the reason: percents over 100; modules that differ in size or number between sockets; a number of
//! modules that does not form a single interleave set or exceeds the slots; Memory Mode on modules or machines without
//! it; and a ratio of near to far memory over the limit.
//!
//! The limit is a policy; the published experiments stay at 1:8. It is checked because nothing else checks it: ipmctl
//! accepts `MemoryMode=1` (its issue 95), and the machine then has less memory than before. Other warnings of ipmctl
//! are notes of the plan: a ratio outside of what a generation was designed for.

use std::collections::BTreeMap;

use super::ProvisionError;
use super::geometry::{module_bytes, print_bytes};
use super::goal::Goal;
use super::machine::{Machine, Series};
use super::split::{Socket, Split, split};

/// The result of a goal on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// System memory in Memory Mode, bytes; 0 without.
    pub(super) far: u64,
    /// DRAM, its cache.
    pub(super) near: u64,
    /// Regions in App Direct: number of modules in each, and bytes.
    pub(super) regions: Vec<(u64, u64)>,
    /// Bytes of all modules as printed on them.
    pub(super) printed: u64,
    /// Bytes in neither mode.
    pub(super) unused: u64,
    /// The part of those that would be used if the processors could map more; for the whole machine.
    pub(super) unmapped: u64,
    /// The largest memory that a socket maps then, in bytes, for machines whose limit is unknown.
    pub(super) mapped: u64,
    /// The warnings of ipmctl, reworded.
    pub(super) warnings: Vec<String>,
}

/// Checks a goal against a machine.
pub(super) fn outcome(machine: &Machine, goal: &Goal, ratio_limit: u32) -> Result<Outcome, ProvisionError> {
    check_modes(machine, goal)?;
    let sockets = sockets(machine, goal)?;
    let (_, modules) = sockets.first_key_value().expect("sockets() refuses a machine without modules");
    let series = series(machine);
    let dram = machine.dram_bytes.unwrap_or(0) / sockets.len() as u64;
    let (number, raw) = (modules.len() as u64, module_bytes(modules[0], series));
    let socket = Socket { modules: number, raw, dram, limit: machine.socket_limit_bytes };
    let Split { memory, app_direct: direct, unmapped } = split(&socket, goal);
    for (name, percent, bytes) in [("memory", goal.memory, memory), ("app-direct", goal.app_direct, direct)] {
        if percent > 0 && bytes == 0 {
            let why = match unmapped {
                0 => "rounding leaves nothing of it: goals are whole GiB of each module".to_owned(),
                _ => format!("the processors map at most {} a socket", print_bytes(socket.limit.unwrap_or(0))),
            };
            return Err(ProvisionError::refused(
                format!("{name}={percent} comes to nothing: {why}"),
                format!("ask for more {name}=, for less of the rest, or for none"),
            ));
        }
    }
    let count: u64 = sockets.values().map(|modules| modules.len() as u64).sum();
    let printed: u64 = sockets.values().flatten().sum();
    let far = memory * count;
    let near = if far > 0 { check_ratio(machine, far, goal, ratio_limit)? } else { machine.dram_bytes.unwrap_or(0) };
    let warnings = if far > 0 { ratio_warning(series, near, far).into_iter().collect() } else { Vec::new() };
    let mapped = (memory + direct) * number + if far > 0 { 0 } else { dram };
    let regions = match (direct, goal.interleaved) {
        (0, _) => Vec::new(),
        (_, true) => sockets.values().map(|modules| (modules.len() as u64, direct * modules.len() as u64)).collect(),
        (_, false) => vec![(1, direct); count as usize],
    };
    let (unused, unmapped) = (printed - count * (memory + direct), unmapped * count);
    Ok(Outcome { far, near, regions, printed, unused, unmapped, mapped, warnings })
}

/// The generation of the modules, which [`check_modes`] has checked to be known; the oldest if they differ.
fn series(machine: &Machine) -> Series {
    machine
        .modules
        .iter()
        .filter_map(|module| module.series())
        .min_by_key(|series| series.number())
        .unwrap_or(Series::S100)
}

/// ipmctl's warning about a ratio of near to far memory outside of what a generation was designed for (1:3.6 to 1:16
/// for the 100 series, 1:2 to 1:8 for later ones: ipmctl 03.00.00.0468, CheckNmFmLimits and NvmTypes.h; it checks each
/// socket, and here all are equal).
fn ratio_warning(series: Series, near: u64, far: u64) -> Option<String> {
    let (low_tenths, high) = match series {
        Series::S100 => (36, 16),
        Series::S200 | Series::S300 => (20, 8),
    };
    let low = u64::try_from(u128::from(near) * low_tenths / 10).unwrap_or(u64::MAX);
    let side = if far > near.saturating_mul(high) {
        "above"
    } else if far < low {
        "below"
    } else {
        return None;
    };
    let least = if low_tenths % 10 == 0 {
        format!("1:{}", low_tenths / 10)
    } else {
        format!("1:{}.{}", low_tenths / 10, low_tenths % 10)
    };
    Some(format!(
        "1:{}.{} of near to far memory is {side} what ipmctl recommends for the {} series, {least} to 1:{high}: it warns, and sets the \
         goal all the same",
        far / near,
        far % near * 10 / near,
        series.number()
    ))
}

/// The sizes of the modules of each socket, all known and equal.
fn sockets(machine: &Machine, goal: &Goal) -> Result<BTreeMap<u32, Vec<u64>>, ProvisionError> {
    let mut sockets: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for module in &machine.modules {
        let bytes = module.bytes.ok_or_else(|| {
            ProvisionError::refused(
                format!("the size of module {} is not known", module.name),
                "run as root, so that the firmware's tables can be read, or describe the machine: --modules 6x128GiB --dram 192GiB --sockets 2",
            )
        })?;
        sockets.entry(module.socket.unwrap_or(0)).or_default().push(bytes);
    }
    let sizes: Vec<u64> = sockets.values().flatten().copied().collect();
    let (Some(first), Some(least), Some(most)) = (sizes.first(), sizes.iter().min(), sizes.iter().max()) else {
        return Err(ProvisionError::refused(
            "there is no persistent-memory module",
            "plug some in, or describe a machine that has some: --modules 6x128GiB --dram 192GiB --sockets 2",
        ));
    };
    if least != most {
        return Err(ProvisionError::refused(
            format!("modules of different sizes, {} and {}", print_bytes(*least), print_bytes(*most)),
            "a goal and an interleave set take modules of one kind: use equal modules",
        ));
    }
    let numbers: Vec<usize> = sockets.values().map(Vec::len).collect();
    let (fewest, most) = (numbers.iter().min().copied().unwrap_or(0), numbers.iter().max().copied().unwrap_or(0));
    if fewest != most {
        let (socket, _) =
            sockets.iter().find(|(_, modules)| modules.len() == fewest).expect("the minimum is one of them");
        return Err(ProvisionError::refused(
            format!(
                "socket {socket} has {fewest} modules of {}, another has {most}: one is missing or broken",
                print_bytes(*first)
            ),
            "ndctl list -D and ipmctl show -dimm list them; fit the same number at each socket",
        ));
    }
    check_number(machine, most, sockets.len(), goal)?;
    Ok(sockets)
}

/// Checks that a socket has slots for this number of modules, beside the DRAM, and that they form an interleave set.
fn check_number(machine: &Machine, number: usize, sockets: usize, goal: &Goal) -> Result<(), ProvisionError> {
    let series = series(machine);
    // One module per channel; each channel has two slots, of which DRAM takes the other (Intel, quick start guides of
    // the 100 and the 200 series, from memory).
    let channels = if series == Series::S100 { 6 } else { 8 };
    if number > channels {
        let spread = format!("{channels}x128GiB --sockets {}", (number * sockets).div_ceil(channels));
        return Err(ProvisionError::refused(
            format!(
                "{number} modules at a socket have no slots: one of the {} series has {} slots, one module to each of {channels} \
                 channels, the others for DRAM",
                series.number(),
                2 * channels
            ),
            format!("give the number of one socket and how many sockets there are, as --modules {spread}"),
        ));
    }
    if goal.interleaved && matches!(number, 5 | 7) {
        return Err(ProvisionError::refused(
            format!("{number} modules at a socket make no single interleave set: one is missing, or one too many"),
            "fit 1, 2, 3, 4 or 6 modules (8 from the 200 series on) at each socket, or ask for --not-interleaved",
        ));
    }
    Ok(())
}

/// Checks that this machine has the requested modes, and the tool that sets them.
fn check_modes(machine: &Machine, goal: &Goal) -> Result<(), ProvisionError> {
    let app_direct_only = "leave --goal away: regions that are there can be divided into namespaces without one";
    if let Some(module) = machine.modules.iter().find(|module| module.series().is_none()) {
        return Err(ProvisionError::refused(
            format!("module {} takes no goal: that is a property of Intel Optane modules", module.name),
            app_direct_only,
        ));
    }
    // Without modules, the missing tool is not the main problem.
    if !machine.has_tool("ipmctl") && !machine.modules.is_empty() {
        return Err(ProvisionError::refused(
            "ipmctl is not installed, and nothing else can set a goal",
            format!("install ipmctl; or {app_direct_only}"),
        ));
    }
    if goal.memory > 0 && machine.modules.iter().any(|module| module.series() == Some(Series::S300)) {
        return Err(ProvisionError::refused(
            "300 series modules are App Direct only: ipmctl refuses Memory Mode on them (its issue 222)",
            "ask for app-direct=100; for a large memory use device-DAX as system memory (daxctl reconfigure-device --mode=system-ram)",
        ));
    }
    Ok(())
}

/// Returns the DRAM, if the far memory is a sensible multiple of it.
fn check_ratio(machine: &Machine, far: u64, goal: &Goal, limit: u32) -> Result<u64, ProvisionError> {
    let near = machine.dram_bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
        ProvisionError::refused("how much DRAM there is is not known", "run as root, or say it: --dram 192GiB")
    })?;
    let ratio = format!("1:{}.{}", far / near, far % near * 10 / near);
    if u128::from(far) > u128::from(near) * u128::from(limit) {
        let most = (u128::from(near) * u128::from(limit) * u128::from(goal.memory) / u128::from(far)) as u32;
        let smaller = if most > 0 { format!("memory={most} at most") } else { "no Memory Mode".into() };
        return Err(ProvisionError::refused(
            format!(
                "Memory Mode would put {} behind {} of DRAM, {ratio}, over the limit of 1:{limit}",
                print_bytes(far),
                print_bytes(near)
            ),
            format!(
                "the DRAM is a direct-mapped cache then: the more far memory shares it, the more of what is in use evicts each other.\n  \
                 Ask for {smaller}, fit more DRAM, or raise the limit with --ratio-limit: ipmctl itself warns beyond 1:16 for the \
                 100 series and 1:8 for later ones"
            ),
        ));
    }
    if far < near {
        return Err(ProvisionError::refused(
            format!(
                "Memory Mode would leave {} of memory where there are {} of DRAM now, {ratio}",
                print_bytes(far),
                print_bytes(near)
            ),
            "the DRAM becomes a cache and does not count as memory any more: ask for more memory=, or for none",
        ));
    }
    Ok(near)
}
