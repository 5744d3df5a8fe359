//! How a goal divides the modules of one socket, by the rules of ipmctl: what its `create -goal` grants before the
//! firmware processes it.
//!
//! ```text
//!   |<-------------------------------- raw capacity of a module -------------------------------->|
//!   | Memory Mode, the partition takes what rounding leaves over | App Direct, whole GiB | reserved |
//! ```
//!
//! 1. Percents are of the raw capacity of all modules of the socket, divided equally.
//! 2. The boundary between the partitions moves to the nearest whole GiB counted from the end of the module, so that
//!    App Direct is whole GiB and Memory Mode has the odd rest. It is rounded up from more than half, else down, and a
//!    requested part never becomes empty.
//! 3. Reserved is taken from App Direct in whole GiB of each module, rounded up; without Memory Mode the odd rest
//!    counts towards it.
//! 4. If Memory Mode and reserved sum to 100, App Direct gets nothing, whatever rounding leaves.
//! 5. Memory that a processor cannot map is taken from App Direct first, then from Memory Mode, in whole GiB of each
//!    module, rounded up. DRAM counts unless it is the cache of Memory Mode.
//! 6. Memory Mode is used in whole GiB of each module.
//!
//! Source: ipmctl 03.00.00.0468 (Debian bookworm's source package), driver/Core/Region.c, read on 2026-11-22: the
//! functions CalculateDimmCapacityFromPercent (1), CalculateActualVolatileSize (2),
//! MapRequestToActualRegionGoalTemplates and ReduceAppDirectCapacityPerReservedCapacity (3), CreateGoalConfig (4),
//! ReduceCapacityForSocketSKU (5), CalculateFarMemorySizeForNewGoalConfigs (6). All alignments are 1 GiB there
//! (NvmDimmDriver.c).
//!
//! Not covered: modules that differ within a socket, which plans refuse, and modules that already have a goal.

use super::geometry::GIB;
use super::goal::Goal;

/// The modules of a socket, all equal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Socket {
    /// Their number; at least 1.
    pub(super) modules: u64,
    /// Raw capacity of each, bytes.
    pub(super) raw: u64,
    /// DRAM of the socket, bytes; 0 if unknown.
    pub(super) dram: u64,
    /// The memory that its processor can map, bytes, if known.
    pub(super) limit: Option<u64>,
}

/// The parts of each module, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    /// System memory, whole GiB.
    pub(super) memory: u64,
    /// App Direct, whole GiB.
    pub(super) app_direct: u64,
    /// The part that the processor's limit took from both.
    pub(super) unmapped: u64,
}

/// Divides by the rules above. `app_direct` may be 0 although it was requested: ipmctl refuses that.
pub(super) fn split(socket: &Socket, goal: &Goal) -> Split {
    let Socket { modules, raw, .. } = *socket;
    let all = raw * modules;
    let asked = percent(all, goal.memory);
    if all <= asked {
        return limited(socket, raw, 0);
    }
    let mut partition = memory_partition(raw, asked / modules);
    if goal.memory + goal.reserved == 100 {
        return limited(socket, partition, 0);
    }
    if partition >= down(raw) {
        // A part of each module stays persistent.
        partition = memory_partition(raw, raw.saturating_sub(GIB));
    }
    let mut reserved = percent(all, goal.reserved);
    if asked == 0 {
        reserved = reserved.saturating_sub((raw - down(raw)) * modules);
    }
    let mut app_direct = less_evenly(down(raw - partition), modules, &mut reserved);
    if asked == 0 && app_direct == 0 {
        // Not everything was requested as reserved.
        app_direct = GIB;
    }
    limited(socket, partition, app_direct)
}

/// The partition for Memory Mode of a module, including the odd rest, if `asked` bytes of it are requested.
fn memory_partition(raw: u64, asked: u64) -> u64 {
    if asked == 0 {
        return 0;
    }
    let asked = asked.max(GIB);
    if raw <= asked {
        return raw;
    }
    let rest = raw - asked;
    let persistent = if rest % GIB > GIB / 2 { up(rest) } else { down(rest).max(GIB) };
    // A request for memory always gets some.
    raw - if persistent >= raw { persistent - GIB } else { persistent }
}

/// Takes `less` from `each` of the modules, in whole GiB of each; the taken bytes are subtracted from `less`.
fn less_evenly(each: u64, modules: u64, less: &mut u64) -> u64 {
    let all = each * modules;
    if all <= *less {
        *less -= all;
        return 0;
    }
    let by = up(*less / modules);
    *less = 0;
    each.saturating_sub(by)
}

/// The part of both that the processor can map (rule 5), in the units of the system (rule 6).
fn limited(socket: &Socket, partition: u64, app_direct: u64) -> Split {
    let memory = down(partition);
    let Some(limit) = socket.limit else { return Split { memory, app_direct, unmapped: 0 } };
    let dram = if partition == 0 { socket.dram } else { 0 };
    let mut over = ((memory + app_direct) * socket.modules + dram).saturating_sub(limit);
    let mapped = less_evenly(app_direct, socket.modules, &mut over);
    let kept = down(less_evenly(partition, socket.modules, &mut over));
    Split { memory: kept, app_direct: mapped, unmapped: memory - kept + app_direct - mapped }
}

fn percent(bytes: u64, percent: u32) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

fn down(bytes: u64) -> u64 {
    bytes / GIB * GIB
}

fn up(bytes: u64) -> u64 {
    bytes.next_multiple_of(GIB)
}

#[cfg(test)]
mod tests {
    use super::super::geometry::module_bytes;
    use super::super::machine::Series;
    use super::*;

    fn parts(series: Series, printed: u64, socket: (u64, u64, u64), goal: &str) -> (u64, u64) {
        let (modules, limit, dram) = socket;
        let raw = module_bytes(printed * GIB, series);
        let limit = (limit > 0).then_some(limit * GIB);
        let socket = Socket { modules, raw, dram: dram * GIB, limit };
        let Split { memory, app_direct, .. } = split(&socket, &Goal::parse(goal).expect("a goal"));
        (memory / GIB, app_direct / GIB)
    }

    /// Of modules of three sizes.
    type Three = [(u64, u64); 3];

    /// Goals of six modules, and what ipmctl 03.00.00.0468 grants each module of 128, 256 and 512 GiB: Memory Mode and
    /// App Direct, in GiB. Computed from its rules independently of this code; both agree on 135,366 goals of 1 to 8
    /// modules (2026-11-22).
    const GRANTED: &[(&str, Three, Three)] = &[
        // goal                        100 series                          200 series
        ("app-direct=100", [(0, 126), (0, 252), (0, 502)], [(0, 126), (0, 253), (0, 507)]),
        ("memory=1", [(1, 125), (2, 250), (4, 498)], [(1, 125), (2, 251), (4, 503)]),
        ("memory=25", [(31, 95), (63, 189), (125, 377)], [(31, 95), (63, 190), (126, 381)]),
        ("memory=50", [(63, 63), (126, 126), (251, 251)], [(63, 63), (126, 127), (253, 254)]),
        ("memory=75", [(94, 32), (189, 63), (376, 126)], [(94, 32), (190, 63), (380, 127)]),
        ("memory=99", [(125, 1), (249, 3), (497, 5)], [(125, 1), (250, 3), (502, 5)]),
        ("memory=100", [(126, 0), (252, 0), (502, 0)], [(126, 0), (253, 0), (507, 0)]),
        ("app-direct=80", [(0, 101), (0, 201), (0, 402)], [(0, 101), (0, 202), (0, 406)]),
        ("memory=25,reserved=25", [(31, 63), (63, 125), (125, 251)], [(31, 63), (63, 126), (126, 254)]),
        ("memory=50,reserved=50", [(63, 0), (126, 0), (251, 0)], [(63, 0), (126, 0), (253, 0)]),
        ("memory=60,reserved=10", [(75, 38), (151, 75), (301, 150)], [(75, 38), (152, 75), (304, 152)]),
        ("reserved=99", [(0, 1), (0, 2), (0, 5)], [(0, 1), (0, 2), (0, 5)]),
    ];

    #[test]
    fn a_goal_divides_modules_as_ipmctl_does() {
        for (goal, s100, s200) in GRANTED {
            for (series, granted) in [(Series::S100, s100), (Series::S200, s200)] {
                let ours = [128, 256, 512].map(|printed| parts(series, printed, (6, 0, 0), goal));
                assert_eq!(&ours, granted, "{goal}, {series:?}");
            }
        }
    }

    #[test]
    fn what_a_processor_cannot_map_goes_from_app_direct_first_and_dram_counts_unless_it_is_the_cache() {
        // What ipmctl grants each of six modules of 128, 256 and 512 GiB of the 100 series, by limit and DRAM of the socket in GiB.
        let granted = [
            ("app-direct=100", (6, 1024, 96), [(0, 126), (0, 154), (0, 154)]),
            ("app-direct=100", (6, 2048, 96), [(0, 126), (0, 252), (0, 325)]),
            ("memory=50", (6, 1024, 96), [(63, 63), (126, 44), (170, 0)]),
            ("memory=25", (6, 512, 0), [(31, 54), (63, 22), (85, 0)]),
        ];
        for (goal, socket, granted) in granted {
            let ours = [128, 256, 512].map(|printed| parts(Series::S100, printed, socket, goal));
            assert_eq!(ours, granted, "{goal} {socket:?}");
        }
    }
}
