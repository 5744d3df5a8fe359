//! A mix as the report has it: its parts and their cost, its name, what is wasted, how long it lasts.

use catalogue::medium::{Direction, Pattern, Store};
use catalogue::model::Access;
use catalogue::provision::geometry::{GIB, print_bytes};

use super::cost::{MediumCost, MediumShare, MixCost, PriceList, UsdRange};
use super::mixes::{FarUse, JournalPart, Mix};
use super::rate::{MixModels, Rated};
use super::report::{EnduranceReport, PartReport, WasteReport};
use super::server::{OwnedKind, Server};
use super::supply::{Plug, Supply};
use super::workload::Workload;
use crate::PlanError;

/// Bandwidth is counted with accesses of this size, bytes.
const LARGE_BYTES: u64 = 128 << 10;
/// Operations of drives are counted with this size, bytes.
const COMMAND_BYTES: u64 = 4096;
const SECONDS_OF_A_DAY: f64 = 86_400.0;

/// Bytes that a journal uses.
const JOURNAL_BYTES: f64 = GIB as f64;
/// GB that a volume of its own for a journal has.
pub(super) const JOURNAL_GB: f64 = 10.0;

/// What volumes of a network are rented with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VolumeNeeds {
    /// GB of data.
    pub data_gb: f64,
    /// Operations each second of the data, and of the journal if it is with it.
    pub data_iops: f64,
    /// Operations each second of a journal of its own.
    pub journal_iops: f64,
}

/// The parts of a mix with what is owned of each.
pub(super) fn parts(
    mix: &Mix,
    supplies: &[Supply],
    server: &Server,
    prices: &PriceList,
    volumes: &VolumeNeeds,
) -> Result<(Vec<PartReport>, MixCost), PlanError> {
    let mut parts = Vec::new();
    let mut shares = Vec::new();
    let mut cost = MixCost::default();
    let months = prices.months();
    if let Some(instance) = mix.near.instance.and_then(|number| server.instance.get(number)) {
        let usd = instance.usd_per_month.map(|usd| UsdRange::exactly(usd * months));
        let gb = mix.near.bytes as f64 / GIB as f64;
        let (medium, uses) = (instance.name.clone(), vec!["near".into()]);
        cost.media.push(MediumCost { medium: medium.clone(), gb, usd });
        parts.push(PartReport { medium, count: 1, gb, uses, owned: 0, usd });
    }
    let mut owned_left = mix.near.owned;
    for (count, bytes) in &mix.near.modules {
        let gib = *bytes as f64 / GIB as f64;
        let owned = owned_left.min(*count);
        owned_left -= owned;
        let share = MediumShare { medium: server.dram.clone(), gb: gib * f64::from(count - owned), iops: 0.0 };
        let usd = prices.cost(std::slice::from_ref(&share)).total().or((share.gb == 0.0).then(UsdRange::default));
        parts.push(PartReport {
            medium: server.dram.clone(),
            count: *count,
            gb: gib * f64::from(*count),
            uses: vec!["near".into()],
            owned,
            usd,
        });
        shares.push(share);
    }
    let owned = server.owned()?;
    for (number, count, uses) in mix.supplies() {
        let supply = &supplies[number];
        let medium = supply.medium.name.clone();
        let has: u32 =
            owned.iter().filter(|one| one.what == OwnedKind::Medium(medium.clone())).map(|one| one.count).sum();
        let has = has.min(count);
        let (gb, iops) = if supply.plug == Plug::Network {
            volume_of(mix, number, volumes)
        } else {
            (supply.medium.capacity_gb * f64::from(count), 0.0)
        };
        let to_get = f64::from(count - has) / f64::from(count.max(1));
        // Operations are paid for where a volume is rented.
        let iops = if prices.is_rented(&medium) { (iops * to_get).ceil() } else { 0.0 };
        let share = MediumShare { medium: medium.clone(), gb: gb * to_get, iops };
        let usd = prices.cost(std::slice::from_ref(&share)).total().or((share.gb == 0.0).then(UsdRange::default));
        parts.push(PartReport { medium, count, gb, uses, owned: has, usd });
        shares.push(share);
    }
    shares.retain(|share| share.gb > 0.0);
    cost.media.extend(prices.cost(&shares).media);
    Ok((parts, cost))
}

/// GB and operations each second of a volume: by what is on it.
fn volume_of(mix: &Mix, number: usize, volumes: &VolumeNeeds) -> (f64, f64) {
    let (mut gb, mut iops) = (0.0, 0.0);
    if mix.data.0 == number {
        (gb, iops) = (volumes.data_gb, volumes.data_iops);
    }
    if matches!(mix.journal, JournalPart::Own(supply, _) if supply == number) {
        (gb, iops) = (gb + JOURNAL_GB, iops + volumes.journal_iops);
    }
    (gb, iops)
}

/// Its name: `8 x 16 GiB ddr5 + 1 x cxl-expander + 2 x nvme-p4510, journal on optane-p5800x`. Volumes that are rented by their operations are
/// named with them.
pub(super) fn name(mix: &Mix, supplies: &[Supply], server: &Server, volumes: &VolumeNeeds) -> String {
    let mut words = Vec::new();
    if let Some(instance) = mix.near.instance.and_then(|number| server.instance.get(number)) {
        words.push(instance.name.clone());
    }
    for (count, bytes) in &mix.near.modules {
        words.push(format!("{count} x {} {}", print_bytes(*bytes), server.dram));
    }
    let named = |supply: usize, count: u32| format!("{count} x {}", supplies[supply].medium.name);
    if let Some(far) = &mix.far {
        let usage = match far.usage {
            FarUse::Node => "",
            FarUse::MemoryMode => " (Memory Mode)",
            FarUse::AppDirect => " (App Direct)",
            FarUse::Dual => " (Dual)",
        };
        words.push(format!("{}{usage}", named(far.supply, far.count)));
    }
    let with = |supply: usize, count: u32, iops: f64| match supplies[supply].by_operations {
        true => format!("{} with {:.0} IOPS", named(supply, count), iops.ceil()),
        false => named(supply, count),
    };
    words.push(with(mix.data.0, mix.data.1, volumes.data_iops));
    let mut name = words.join(" + ");
    if let JournalPart::Own(supply, count) = mix.journal {
        name += &format!(", journal on {}", with(supply, count, volumes.journal_iops));
    }
    name
}

/// GB/s of large reads.
fn peak(model: &catalogue::Model) -> f64 {
    let access = Access {
        direction: Direction::Read,
        pattern: Pattern::Sequential,
        store: Store::Cached,
        bytes: LARGE_BYTES,
        overlapped: true,
    };
    LARGE_BYTES as f64 / model.at_least(&access)
}

/// What is bought and not used.
pub(super) fn wasted(
    mix: &Mix,
    models: &MixModels,
    rated: &Rated,
    workload: &Workload,
    needs: (u64, u64, u64),
    growth: f64,
) -> Vec<WasteReport> {
    let (near_bytes, far_bytes, data_bytes) = needs;
    let gib = |bytes: f64| bytes / GIB as f64;
    let curve = |bytes: u64| {
        let misses: f64 =
            workload.summaries.iter().map(|summary| summary.cached().reuse.curve().miss_ratio(bytes)).sum();
        misses / workload.summaries.len().max(1) as f64
    };
    // The smallest memory with the same misses, as LRU would have them, in steps of a sixteenth.
    let all = near_bytes + far_bytes;
    let scaled = |bytes: u64| (bytes as f64 / growth / workload.scale) as u64;
    let enough = |bytes: u64| curve(scaled(bytes)) <= curve(scaled(all)) + 0.001;
    let useful = (1..=16).map(|step| all / 16 * step).find(|bytes| enough(*bytes)).unwrap_or(all);
    let mut wasted = Vec::new();
    let mut add = |medium: &str, unit: &str, bought: f64, used: f64| {
        wasted.push(WasteReport { medium: medium.into(), unit: unit.into(), bought, used: used.min(bought) });
    };
    let used_of = |name: &str| {
        let station = rated.stations.iter().zip(&rated.used).find(|(station, _)| station.name == name);
        station.map_or(0.0, |(_, used)| used.min(1.0))
    };
    let near_name = models.near.name();
    add(
        near_name,
        "GiB",
        gib(mix.near.bytes as f64),
        gib((mix.near.bytes - near_bytes.min(mix.near.bytes)) as f64 + useful.min(near_bytes) as f64),
    );
    add(near_name, "GB/s", peak(&models.near), peak(&models.near) * used_of("near memory"));
    if let (Some(far), Some(model)) = (&mix.far, &models.far) {
        let bought = (far.memory_bytes + far.direct_bytes) as f64;
        let journal =
            if mix.journal == JournalPart::Modules { JOURNAL_BYTES.min(far.direct_bytes as f64) } else { 0.0 };
        let of_memory = useful.saturating_sub(near_bytes).min(far.memory_bytes) as f64;
        add(model.name(), "GiB", gib(bought), gib(of_memory + journal));
        let of_journal = if mix.journal == JournalPart::Modules { used_of("journal") } else { 0.0 };
        add(model.name(), "GB/s", peak(model), peak(model) * used_of("far memory").max(of_journal));
    }
    let command = Access {
        direction: Direction::Read,
        pattern: Pattern::Random,
        store: Store::Cached,
        bytes: COMMAND_BYTES,
        overlapped: true,
    };
    let iops = 1e9 / models.data.at_least(&command);
    add(models.data.name(), "IOPS", iops, rated.data_iops);
    add(models.data.name(), "GB/s", peak(&models.data), rated.bytes_per_s.0 / 1e9);
    let is_volume = models.data.kind() == catalogue::MediumKind::San;
    let bought = if is_volume { data_bytes as f64 } else { models.data.capacity_gb() * 1e9 };
    add(models.data.name(), "GiB", gib(bought), gib(data_bytes as f64));
    if let (JournalPart::Own(..), Some(model)) = (mix.journal, &models.journal) {
        let bought = if model.kind() == catalogue::MediumKind::San { JOURNAL_GB } else { model.capacity_gb() };
        add(model.name(), "GiB", gib(bought * 1e9), gib(JOURNAL_BYTES));
        add(model.name(), "GB/s", peak(model), rated.bytes_per_s.1 / 1e9);
    }
    wasted
}

/// What wears drives out, at so many times the rate of the record: those of the data first, then that of a journal of its own.
pub(super) fn wear(mix: &Mix, supplies: &[Supply], workload: &Workload, factor: f64) -> Vec<(String, EnduranceReport)> {
    let per_s =
        |summary: &crate::profile::Summary| summary.cached().reuse.accesses as f64 / summary.seconds.max(1) as f64;
    let accesses = workload.summaries.iter().map(per_s).sum::<f64>() * workload.scale;
    let of_commits = workload.commits.map_or(0.0, |commits| commits.bytes / workload.accesses_per_operation());
    let beside: f64 = workload.beside.iter().map(|load| load.written_per_s).sum();
    let of_data = accesses * workload.data_write_bytes(mix.journal) + beside;
    let of = |(number, count): (usize, u32), bytes_per_s: f64| {
        let supply = &supplies[number];
        let bytes = supply.bytes() as f64 * f64::from(count);
        let written_bytes_per_day = bytes_per_s * SECONDS_OF_A_DAY * factor;
        let allowed_bytes_per_day = supply.endurance().map(|times| times * bytes);
        (supply.medium.name.clone(), EnduranceReport { written_bytes_per_day, allowed_bytes_per_day })
    };
    match mix.journal {
        JournalPart::Data => vec![of(mix.data, of_data + accesses * of_commits)],
        JournalPart::Modules => vec![of(mix.data, of_data)],
        JournalPart::Own(supply, count) => {
            vec![of(mix.data, of_data), of((supply, count), accesses * of_commits)]
        }
    }
}
