//! All mixes that a server has room for.
//!
//! ```text
//!   DRAM in steps of modules x far memory by cards or modules x the journal with the data or alone x data drives
//! ```
//!
//! Invariants: a mix fits into the slots, lanes and bays of its server; modules of DRAM are the same in each socket; memory beyond all that is
//! used is tried in one size only; there are at most [`MIXES_MAX`]. What a medium's goal leaves of it is asked of `provision`.

use std::collections::BTreeMap;

use catalogue::provision::geometry::GIB;
use catalogue::provision::machine::{Machine, Series};
use catalogue::provision::{Goal, Hypothesis, Wish, plan as provision};

use super::server::{Owned, OwnedKind, Server};
use super::supply::{CARD_LANES, Duty, Plug, Supply};
use crate::PlanError;

/// Mixes at most.
pub const MIXES_MAX: usize = 20_000;
/// Sizes of DRAM at most.
const NEAR_SIZES_MAX: usize = 12;
/// A drive is planned for so much of its capacity: the rest is for its file system, and for what it moves inside.
const DRIVE_PERCENT: u64 = 85;
/// Volumes that are rented by their operations are tried with so many times those of the worst minute.
pub(super) const VOLUME_ROOMS: [u32; 3] = [3, 12, 48];

/// Which operations of volumes were tried.
pub(super) fn rooms_tried() -> String {
    let rooms = VOLUME_ROOMS.map(|room| room.to_string()).join(", ");
    format!("volumes were tried with {rooms} times the operations of the worst minute, and not with more")
}

/// Modules of DRAM, or a machine of a cloud.
#[derive(Clone, Debug, PartialEq)]
pub struct NearPart {
    /// How many modules of so many bytes.
    pub modules: Vec<(u32, u64)>,
    /// How many of the modules are owned.
    pub owned: u32,
    /// The number of the instance whose memory it is, in place of modules.
    pub instance: Option<usize>,
    /// All of it, bytes.
    pub bytes: u64,
}

/// What modules or cards behind near memory are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarUse {
    /// A node of memory: the page cache moves pages.
    Node,
    /// Memory Mode: DRAM is its direct-mapped cache.
    MemoryMode,
    /// The journal alone.
    AppDirect,
    /// Half of each.
    Dual,
}

/// Cards or modules.
#[derive(Clone, Debug, PartialEq)]
pub struct FarPart {
    /// The number of the supply.
    pub supply: usize,
    /// How many.
    pub count: u32,
    /// What they are used for.
    pub usage: FarUse,
    /// Bytes of far memory that they give; 0 in App Direct.
    pub memory_bytes: u64,
    /// Bytes for the journal that they give.
    pub direct_bytes: u64,
    /// Commands and remarks of provisioning.
    pub steps: Vec<String>,
}

/// Where the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalPart {
    /// With the data.
    Data,
    /// On so many of a supply of its own.
    Own(usize, u32),
    /// On the modules of [`Mix::far`].
    Modules,
}

/// A mix of media.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Near memory.
    pub near: NearPart,
    /// Far memory, or modules for the journal.
    pub far: Option<FarPart>,
    /// The journal.
    pub journal: JournalPart,
    /// The data: the number of the supply, and how many.
    pub data: (usize, u32),
    /// Its volumes are rented with so many times the operations of the worst minute; 0: with none.
    pub room: u32,
    /// It is what there is today.
    pub is_today: bool,
}

impl Mix {
    /// Memory that the system sees, bytes.
    pub fn system_bytes(&self) -> u64 {
        match &self.far {
            Some(far) if matches!(far.usage, FarUse::MemoryMode | FarUse::Dual) => far.memory_bytes,
            _ => self.near.bytes,
        }
    }

    /// What it uses of each supply: the number, how many, and for what.
    pub fn supplies(&self) -> Vec<(usize, u32, Vec<String>)> {
        let mut used: BTreeMap<usize, (u32, Vec<String>)> = BTreeMap::new();
        let mut add = |supply: usize, count: u32, what: &str| {
            let one = used.entry(supply).or_default();
            one.0 += count;
            one.1.push(what.to_owned());
        };
        if let Some(far) = &self.far {
            if far.usage != FarUse::AppDirect {
                add(far.supply, far.count, "far");
            }
            if self.journal == JournalPart::Modules {
                add(far.supply, if far.usage == FarUse::AppDirect { far.count } else { 0 }, "journal");
            }
        }
        add(self.data.0, self.data.1, "data");
        match self.journal {
            JournalPart::Own(supply, count) => add(supply, count, "journal"),
            JournalPart::Data => add(self.data.0, 0, "journal"),
            JournalPart::Modules => {}
        }
        used.into_iter().map(|(supply, (count, what))| (supply, count, what)).collect()
    }
}

/// What mixes are made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct MixNeeds {
    /// Bytes that the page cache can use: all that is used at all.
    pub cache_bytes: u64,
    /// Bytes that are stored.
    pub data_bytes: u64,
    /// There is a journal whose place makes a difference.
    pub has_commits: bool,
}

/// The mixes, and why others were left out: the reason, and how many.
#[derive(Clone, Debug, Default)]
pub(super) struct Mixes {
    /// In a fixed order; what there is today first, if it can be.
    pub mixes: Vec<Mix>,
    /// Reasons.
    pub left_out: BTreeMap<String, usize>,
}

struct Enumeration<'a> {
    server: &'a Server,
    supplies: &'a [Supply],
    needs: MixNeeds,
    owned: Vec<Owned>,
    found: Mixes,
}

/// Enumerates them.
///
/// # Errors
/// There is no mix at all, with the reasons.
pub(super) fn enumerate(server: &Server, supplies: &[Supply], needs: MixNeeds) -> Result<Mixes, PlanError> {
    let owned = server.owned()?;
    let mut work = Enumeration { server, supplies, needs, owned, found: Mixes::default() };
    for owned in &work.owned {
        if let OwnedKind::Medium(name) = &owned.what
            && !supplies.iter().any(|supply| supply.medium.name == *name)
        {
            return Err(PlanError::Refused(format!("what one has: {name} is no medium that can be planned with here")));
        }
    }
    let nears = work.nears()?;
    let data = work.data();
    if data.is_empty() && work.found.left_out.is_empty() {
        work.leave_out("it has no place for a drive: describe bays or volumes, or say which drives there are, as --have 2xnvme-p4510".into());
    }
    for near in &nears {
        let reserve = server.reserve_of(near.bytes)?;
        let fars = work.fars(near, reserve);
        for far in &fars {
            for data in &data {
                for journal in work.journals(near, far.as_ref(), *data) {
                    for room in work.rooms(journal, *data) {
                        let (near, far) = (near.clone(), far.clone());
                        let mut mix = Mix { near, far, journal, data: *data, room: *room, is_today: false };
                        mix.is_today = work.is_today(&mix);
                        work.found.mixes.push(mix);
                    }
                }
                if work.found.mixes.len() > MIXES_MAX {
                    return Err(PlanError::Refused(format!(
                        "there are more than {MIXES_MAX} mixes: name fewer media (offer = [...] in the server's description, or --no)"
                    )));
                }
            }
        }
    }
    let mut found = work.found;
    found.mixes.sort_by_key(|mix| !mix.is_today);
    if found.mixes.is_empty() {
        let why: Vec<String> = found.left_out.into_keys().collect();
        return Err(PlanError::Refused(format!("there is no mix for this server: {}", why.join("; "))));
    }
    Ok(found)
}

impl Enumeration<'_> {
    fn leave_out(&mut self, why: String) {
        *self.found.left_out.entry(why).or_default() += 1;
    }

    fn owned_of(&self, name: &str) -> u32 {
        let of_it = self.owned.iter().filter(|owned| owned.what == OwnedKind::Medium(name.to_owned()));
        of_it.map(|owned| owned.count).sum()
    }

    fn owned_dram(&self) -> Vec<(u32, u64)> {
        let modules = self.owned.iter().filter_map(|owned| match owned.what {
            OwnedKind::Dram(bytes) => Some((owned.count, bytes)),
            OwnedKind::Medium(_) => None,
        });
        modules.collect()
    }

    /// Sizes of DRAM: with what is owned and without, by size.
    fn nears(&mut self) -> Result<Vec<NearPart>, PlanError> {
        let mut nears: Vec<NearPart> = Vec::new();
        for (number, instance) in self.server.instance.iter().enumerate() {
            let bytes = instance.memory_bytes()?;
            nears.push(NearPart { modules: Vec::new(), owned: 0, instance: Some(number), bytes });
        }
        if nears.is_empty() {
            nears = self.dimms()?;
        }
        nears.sort_by_key(|near| (near.bytes, std::cmp::Reverse(near.owned)));
        // More than everything is of no use: one size of it stays.
        let mut kept: Vec<NearPart> = Vec::new();
        for near in nears {
            let reserve = self.server.reserve_of(near.bytes)?;
            let is_today = near.instance.is_none() && near.modules == self.owned_dram();
            if near.instance.is_some() && near.bytes > reserve {
                // Another machine has other processors, too.
                kept.push(near);
            } else if near.bytes <= reserve {
                self.leave_out("DRAM that is not more than the reserve".into());
            } else if !is_today
                && kept.iter().any(|kept| {
                    kept.bytes < near.bytes
                        && kept.bytes - self.server.reserve_of(kept.bytes).unwrap_or(0) >= self.needs.cache_bytes
                })
            {
                self.leave_out("more DRAM than everything that is used".into());
            } else {
                kept.push(near);
            }
        }
        let is_thinned = self.server.instance.is_empty() && kept.len() > NEAR_SIZES_MAX;
        if is_thinned {
            let owned = self.owned_dram();
            let (every, all) = (kept.len() as f64 / NEAR_SIZES_MAX as f64, kept.len());
            let chosen: Vec<usize> =
                (0..NEAR_SIZES_MAX).map(|step| (step as f64 * every) as usize).chain([all - 1]).collect();
            let (stay, go): (Vec<_>, Vec<_>) = kept
                .into_iter()
                .enumerate()
                .partition(|(number, near)| chosen.contains(number) || near.modules == owned);
            for _ in go {
                self.leave_out("sizes of DRAM between others that were tried".into());
            }
            kept = stay.into_iter().map(|(_, near)| near).collect();
        }
        Ok(kept)
    }

    fn dimms(&self) -> Result<Vec<NearPart>, PlanError> {
        let Server { sockets, dimm_slots, channels, .. } = self.server;
        let mut counts: Vec<u32> = [1, 2, 4, channels / 2, *channels, 2 * channels]
            .into_iter()
            .filter(|count| (1..=*dimm_slots).contains(count))
            .collect();
        counts.sort_unstable();
        counts.dedup();
        let owned = self.owned_dram();
        let owned_count: u32 = owned.iter().map(|(count, _)| count).sum();
        let owned_bytes: u64 = owned.iter().map(|(count, bytes)| u64::from(*count) * bytes).sum();
        // By size and what is owned of it; smaller modules first, which use more channels.
        let mut by_size: BTreeMap<(u64, u32), NearPart> = BTreeMap::new();
        let mut add = |modules: Vec<(u32, u64)>, owned: u32| {
            let bytes = modules.iter().map(|(count, bytes)| u64::from(*count) * bytes).sum();
            by_size.entry((bytes, owned)).or_insert(NearPart { modules, owned, instance: None, bytes });
        };
        if owned_count > 0 {
            add(owned.clone(), owned_count);
        }
        for bytes in self.server.dimm_bytes()? {
            for count in counts.iter().rev() {
                let all = count * sockets;
                let same = owned.iter().filter(|(_, size)| *size == bytes).map(|(count, _)| *count).sum::<u32>();
                add(vec![(all, bytes)], same.min(all));
                if owned_count > 0 && owned_count + all <= dimm_slots * sockets {
                    let mut modules = owned.clone();
                    match modules.iter_mut().find(|(_, size)| *size == bytes) {
                        Some((count, _)) => *count += all,
                        None => modules.push((all, bytes)),
                    }
                    add(modules, owned_count);
                }
            }
        }
        let limit = self.server.memory_limit()?.map(|limit| limit.saturating_mul(u64::from(*sockets)));
        let fits = |near: &NearPart| limit.is_none_or(|limit| near.bytes <= limit) || near.bytes == owned_bytes;
        Ok(by_size.into_values().filter(fits).collect())
    }

    /// Far memory behind so much near memory, and none.
    fn fars(&mut self, near: &NearPart, reserve: u64) -> Vec<Option<FarPart>> {
        let mut fars = vec![None];
        if near.instance.is_some() {
            return fars;
        }
        let holds_all = near.bytes - reserve >= self.needs.cache_bytes;
        for (number, supply) in self.supplies.iter().enumerate() {
            let owned = self.owned_of(&supply.medium.name);
            match supply.duty {
                Duty::Far => {
                    let most = self.server.lanes / CARD_LANES;
                    let mut counts = vec![owned, owned + 1, owned + 2, owned + 4];
                    counts.retain(|count| (1..=most.max(owned)).contains(count) && supply.may_be(*count, owned));
                    counts.dedup();
                    for count in counts {
                        if holds_all && count > owned {
                            self.leave_out("far memory behind near memory that holds everything".into());
                            continue;
                        }
                        let memory_bytes = supply.bytes().saturating_mul(u64::from(count));
                        let steps = card_steps(count);
                        let usage = FarUse::Node;
                        fars.push(Some(FarPart { supply: number, count, usage, memory_bytes, direct_bytes: 0, steps }));
                    }
                }
                Duty::Modules => fars.extend(self.modules(near, number, owned)),
                _ => {}
            }
        }
        fars
    }

    /// Persistent modules, by goals that the provisioning rules allow.
    fn modules(&mut self, near: &NearPart, number: usize, owned: u32) -> Vec<Option<FarPart>> {
        let supply = &self.supplies[number];
        let sockets = self.server.sockets;
        let free = (self.server.dimm_slots * sockets).saturating_sub(near.modules.iter().map(|(count, _)| count).sum());
        let mut counts = vec![owned, sockets, 2 * sockets, 4 * sockets, supply.medium.modules * sockets];
        counts.retain(|count| {
            (1..=free.max(owned)).contains(count) && count.is_multiple_of(sockets) && supply.may_be(*count, owned)
        });
        counts.sort_unstable();
        counts.dedup();
        let mut found = Vec::new();
        for count in counts {
            for (usage, goal) in [
                (FarUse::MemoryMode, "memory=100"),
                (FarUse::AppDirect, "app-direct=100"),
                (FarUse::Dual, "memory=50,app-direct=50"),
            ] {
                if usage != FarUse::MemoryMode && !self.needs.has_commits {
                    continue;
                }
                match goal_of(self.server, supply, near.bytes, count, goal) {
                    Ok((memory_bytes, direct_bytes, steps)) => {
                        let far = FarPart { supply: number, count, usage, memory_bytes, direct_bytes, steps };
                        found.push(Some(far));
                    }
                    Err(why) => self.leave_out(why),
                }
            }
        }
        found
    }

    /// Drives for the data, and how many.
    fn data(&mut self) -> Vec<(usize, u32)> {
        let mut found = Vec::new();
        for (number, supply) in self.supplies.iter().enumerate() {
            if supply.duty != Duty::Drive || supply.bytes() == 0 {
                continue;
            }
            let name = &supply.medium.name;
            let owned = self.owned_of(name);
            let room = match supply.plug {
                Plug::Network => supply.bytes(),
                _ => supply.bytes() / 100 * DRIVE_PERCENT,
            };
            let least = self.needs.data_bytes.div_ceil(room.max(1)).max(1);
            let most = match supply.plug {
                Plug::Network if self.server.volumes => 1,
                Plug::Network => 0,
                _ => self.server.bays.max(owned),
            };
            let most = if supply.only_owned { most.min(owned) } else { most };
            let Some(least) = u32::try_from(least).ok().filter(|least| *least <= most) else {
                if most > 0 {
                    self.leave_out(format!("the data does not fit on {most} x {name}"));
                }
                continue;
            };
            let mut counts = vec![least, least + 1, 2 * least, owned];
            counts.retain(|count| (least..=most).contains(count));
            counts.sort_unstable();
            counts.dedup();
            found.extend(counts.into_iter().map(|count| (number, count)));
        }
        found
    }

    /// Operations that volumes are rented with.
    fn rooms(&self, journal: JournalPart, data: (usize, u32)) -> &'static [u32] {
        let is_rented = |supply: usize| self.supplies[supply].by_operations;
        let has_volume = is_rented(data.0) || matches!(journal, JournalPart::Own(supply, _) if is_rented(supply));
        if has_volume { &VOLUME_ROOMS } else { &[0] }
    }

    fn journals(&self, near: &NearPart, far: Option<&FarPart>, data: (usize, u32)) -> Vec<JournalPart> {
        let is_direct = far.is_some_and(|far| matches!(far.usage, FarUse::AppDirect | FarUse::Dual));
        if is_direct {
            return vec![JournalPart::Modules];
        }
        let plugged = |plug: Plug| far.filter(|far| self.supplies[far.supply].plug == plug).map_or(0, |far| far.count);
        let modules = near.modules.iter().map(|(count, _)| *count).sum::<u32>() + plugged(Plug::Dimm);
        let cards = plugged(Plug::Lanes);
        let mut found = vec![JournalPart::Data];
        if !self.needs.has_commits {
            return found;
        }
        let bays = match self.supplies[data.0].plug {
            Plug::Bay => self.server.bays.saturating_sub(data.1),
            _ => self.server.bays,
        };
        for (number, supply) in self.supplies.iter().enumerate() {
            let has_room = match (supply.duty, supply.plug) {
                (Duty::Drive, Plug::Bay) => bays > 0,
                (Duty::Drive, Plug::Network) => self.server.volumes,
                (Duty::Journal, Plug::Lanes) => self.server.lanes >= (cards + 1) * CARD_LANES,
                (Duty::Journal, _) => modules < self.server.dimm_slots * self.server.sockets,
                _ => false,
            };
            let in_use = if data.0 == number { data.1 } else { 0 };
            if has_room && supply.may_be(in_use + 1, self.owned_of(&supply.medium.name)) {
                found.push(JournalPart::Own(number, 1));
            }
        }
        found
    }

    /// Whether a mix is exactly what is owned.
    fn is_today(&self, mix: &Mix) -> bool {
        let dram = self.owned_dram();
        if dram.is_empty() || mix.near.modules != dram {
            return false;
        }
        let mut used: BTreeMap<&str, u32> = BTreeMap::new();
        for (supply, count, _) in mix.supplies() {
            *used.entry(self.supplies[supply].medium.name.as_str()).or_default() += count;
        }
        let mut owned: BTreeMap<&str, u32> = BTreeMap::new();
        for one in &self.owned {
            if let OwnedKind::Medium(name) = &one.what {
                *owned.entry(name.as_str()).or_default() += one.count;
            }
        }
        used == owned
    }
}

/// Cards become one node of memory, over which its addresses are interleaved.
pub(super) fn card_steps(count: u32) -> Vec<String> {
    if count == 1 {
        return vec![
            "terrace tier plan --system-ram --out far.json    # the card becomes a node of memory".into(),
            "terrace tier apply far.json".into(),
        ];
    }
    let cards: Vec<String> = (0..count).map(|number| format!("mem{number}")).collect();
    vec![
        format!(
            "cxl create-region -t ram -w {count} -m {}    # one node of all cards; its device is printed",
            cards.join(" ")
        ),
        "daxctl reconfigure-device --mode=system-ram \"${DAX:?set it to that device}\"".into(),
    ]
}

/// What a goal leaves for memory and for the journal, and its steps; or why it cannot be.
fn goal_of(
    server: &Server,
    supply: &Supply,
    dram: u64,
    count: u32,
    goal: &str,
) -> Result<(u64, u64, Vec<String>), String> {
    let refused = |error: catalogue::provision::ProvisionError| {
        let text = error.to_string();
        format!("{} with {goal}: {}", supply.medium.name, text.lines().next().unwrap_or_default())
    };
    let each = count / server.sockets;
    let gib = supply.bytes() / GIB;
    let (sockets, series) =
        (server.sockets, if supply.medium.name.starts_with("pmem200") { Series::S200 } else { Series::S100 });
    let hypothesis = Hypothesis {
        modules: format!("{each}x{gib}GiB"),
        dram_bytes: Some(dram),
        sockets,
        series: Some(series),
        socket_limit_bytes: server.memory_limit().ok().flatten(),
    };
    let machine: Machine = hypothesis.machine().map_err(refused)?;
    let wish = Wish { goal: Some(Goal::parse(goal).map_err(refused)?), ..Wish::default() };
    let plan = provision(&machine, &wish).map_err(refused)?;
    let usable =
        |what: &str| plan.capacities.iter().filter(|one| one.what.starts_with(what)).map(|one| one.usable).sum::<u64>();
    // A journal lies on the modules of one socket.
    let direct = if goal.contains("app-direct") { usable("region") / u64::from(sockets) } else { 0 };
    let mut steps = vec![format!("terrace tier plan --goal {goal} --out goal.json")];
    steps.push(format!(
        "# on a machine that is not there: terrace tier plan --goal {goal} --modules {each}x{gib}GiB --dram {}GiB --sockets {sockets}",
        dram / GIB
    ));
    steps.push("terrace tier apply goal.json".into());
    steps.extend(plan.steps.iter().map(|step| step.to_text(&plan.names)).map(|text| format!("#   {text}")));
    Ok((usable("system memory"), direct, steps))
}
