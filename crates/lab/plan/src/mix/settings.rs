//! terrace.toml of a mix, checked by the placement rules that a node has.
//!
//! The same text is what is printed and what is checked. `Real` names the folders and nodes of the machine on which the mix is built, with
//! remarks where they have to be adapted; `Modelled` slows tiers down to the media's figures, so that any machine can try it.

use std::path::{Path, PathBuf};

use catalogue::MediumKind;
use catalogue::placement::{ActsAs, MediumFacts, Mode, Needs, Placement, PlacementSettings, Settings, TierSettings};
use catalogue::provision::geometry::GIB;
use serde::Deserialize;

use super::mixes::{FarPart, FarUse, JournalPart, Mix};
use super::server::Server;
use super::supply::{Duty, Supply};
use crate::PlanError;

const MIB: u64 = 1 << 20;
/// What a journal with the default limit takes at most: its limit and three segments.
const JOURNAL_BYTES: u64 = GIB + 3 * 64 * MIB;
/// The least page cache that a node has, bytes.
const CACHE_LEAST: u64 = 4 * MIB;

/// For which machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsFor {
    /// The one on which the mix is built.
    Real,
    /// Any one, with the media's figures.
    Modelled,
}

/// The page cache of a mix, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBytes {
    /// Near memory; in Memory Mode all DRAM.
    pub near: u64,
    /// Far memory.
    pub far: Option<u64>,
    /// The hardware moves pages between them.
    pub is_direct: bool,
}

/// The page cache of a mix.
///
/// # Errors
/// Nothing is left for it.
pub(super) fn cache_of(mix: &Mix, server: &Server) -> Result<CacheBytes, PlanError> {
    let system = mix.system_bytes();
    let reserve = server.reserve_of(system)?;
    let left = system.saturating_sub(reserve) / MIB * MIB;
    if left < CACHE_LEAST {
        return Err(PlanError::Refused("the reserve leaves no memory for the page cache".into()));
    }
    Ok(match &mix.far {
        Some(far) if matches!(far.usage, FarUse::MemoryMode | FarUse::Dual) => {
            CacheBytes { near: mix.near.bytes, far: Some(left), is_direct: true }
        }
        Some(far) if far.usage == FarUse::Node => {
            CacheBytes { near: left, far: Some(far.memory_bytes), is_direct: false }
        }
        _ => CacheBytes { near: left, far: None, is_direct: false },
    })
}

/// A size as settings have it.
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(GIB) { format!("{} GiB", bytes / GIB) } else { format!("{} MiB", bytes / MIB) }
}

/// The name of the mode for the report.
pub(super) fn mode_of(mix: &Mix) -> &'static str {
    match mix.far.as_ref().map(|far| far.usage) {
        None => "dram",
        Some(FarUse::Node) => "far",
        Some(FarUse::MemoryMode) => "memory",
        Some(FarUse::AppDirect) => "app-direct",
        Some(FarUse::Dual) => "dual",
    }
}

/// terrace.toml.
///
/// # Errors
/// Nothing is left for the page cache.
pub(super) fn text(mix: &Mix, supplies: &[Supply], server: &Server, of: SettingsFor) -> Result<String, PlanError> {
    let cache = cache_of(mix, server)?;
    let is_modelled = of == SettingsFor::Modelled;
    let mut head = "# Of terrace plan.".to_owned();
    if !is_modelled {
        head += " Folders and numbers of nodes are those of the machine: adapt them.";
    }
    // Memory Mode is below the system: it sees far memory alone.
    let near = if cache.is_direct && !is_modelled { cache.far.unwrap_or(cache.near) } else { cache.near };
    let mode = match (&mix.far, is_modelled) {
        (Some(far), true) if far.usage == FarUse::MemoryMode => Mode::Memory,
        (Some(far), true) if far.usage == FarUse::Dual => Mode::Dual,
        _ if mix.journal == JournalPart::Modules => Mode::AppDirect,
        _ => Mode::Dram,
    };
    let mut writing = SettingsText {
        mix,
        supplies,
        is_modelled,
        tiers: format!("\n[tiers.dram]\nkind = \"memory\"\nbytes = \"{}\"\n", size(near)),
        placement: "\n[placement]\n".into(),
    };
    match &mix.far {
        Some(far) if far.usage == FarUse::Node => writing.node(far, server.sockets),
        Some(far) => writing.modules(far, &cache),
        None => {}
    }
    writing.data();
    writing.journal();
    let SettingsText { tiers, placement, .. } = writing;
    Ok(format!("{head}\nmode = \"{mode}\"\n{tiers}{placement}"))
}

/// terrace.toml while it is written.
struct SettingsText<'a> {
    mix: &'a Mix,
    supplies: &'a [Supply],
    is_modelled: bool,
    tiers: String,
    placement: String,
}

impl SettingsText<'_> {
    fn name(&self, supply: usize) -> &str {
        &self.supplies[supply].medium.name
    }

    fn model(&self, supply: usize, count: u32) -> String {
        match self.is_modelled {
            true => format!("model = \"{}\"\nmodules = {count}\n", self.name(supply)),
            false => String::new(),
        }
    }

    fn absent(&self) -> &'static str {
        if self.is_modelled { "absent = \"emulate\"\n" } else { "" }
    }

    /// Far memory that is a node of memory.
    fn node(&mut self, far: &FarPart, sockets: u32) {
        let node = if self.is_modelled { String::new() } else { format!("node = {sockets}\n") };
        let (bytes, model) = (size(far.memory_bytes), self.model(far.supply, far.count));
        let name = self.name(far.supply);
        let tier = format!("\n[tiers.far]    # {name}\nkind = \"memory\"\n{node}bytes = \"{bytes}\"\n{model}");
        self.tiers += &tier;
        self.placement += "cache = \"dram\"\nfar = \"far\"\n";
    }

    /// Persistent modules: in Memory Mode alone nothing of them is seen.
    fn modules(&mut self, far: &FarPart, cache: &CacheBytes) {
        let has_journal = self.mix.journal == JournalPart::Modules;
        if !self.is_modelled && !has_journal {
            return;
        }
        let memory = if self.is_modelled { cache.far.unwrap_or(0) } else { 0 };
        let (bytes, model) = (size((memory + far.direct_bytes) / MIB * MIB), self.model(far.supply, far.count));
        let (name, absent) = (self.name(far.supply), self.absent());
        let tier = format!(
            "\n[tiers.pmem]    # {name}\nkind = \"pmem\"\npath = \"/mnt/pmem0/terrace\"\nbytes = \"{bytes}\"\n{absent}{model}"
        );
        self.tiers += &tier;
        if has_journal {
            self.placement += "write_image_journal = \"pmem\"\nwrite_image_journal_bytes = \"64 MiB\"\n";
            if memory > 0 {
                self.placement += &format!("far_bytes = \"{}\"\n", size(memory));
            }
        }
    }

    fn data(&mut self) {
        let (supply, count) = self.mix.data;
        let striped = match count {
            1 => String::new(),
            _ => format!(", {count} of them striped (mdadm --level=0, or LVM)"),
        };
        let (name, model) = (self.name(supply), self.model(supply, count));
        let tier =
            format!("\n[tiers.data]    # {name}{striped}\nkind = \"file\"\npath = \"/mnt/data/terrace\"\n{model}");
        self.tiers += &tier;
        self.placement += "data = \"data\"\n";
    }

    fn journal(&mut self) {
        match self.mix.journal {
            JournalPart::Modules => self.placement += "journal = \"pmem\"\n",
            JournalPart::Data => self.placement += "journal = \"data\"\nwrite_image_journal = \"data\"\n",
            JournalPart::Own(supply, count) => {
                let is_pmem = self.supplies[supply].duty == Duty::Journal;
                let (kind, absent) = if is_pmem { ("pmem", self.absent()) } else { ("file", "") };
                let (name, model) = (self.name(supply), self.model(supply, count));
                let tier = format!(
                    "\n[tiers.journal]    # {name}\nkind = \"{kind}\"\npath = \"/mnt/journal/terrace\"\n{absent}{model}"
                );
                self.tiers += &tier;
                self.placement += "journal = \"journal\"\nwrite_image_journal = \"data\"\n";
            }
        }
    }
}

#[derive(Deserialize)]
struct PlacedFile {
    mode: Option<Mode>,
    #[serde(default)]
    tiers: std::collections::BTreeMap<String, TierSettings>,
    #[serde(default)]
    placement: PlacementSettings,
}

/// Checks a text by the rules of placement.
///
/// # Errors
/// What they refuse.
pub(super) fn check(text: &str, supplies: &[Supply]) -> Result<Placement, String> {
    let file: PlacedFile = toml::from_str(text).map_err(|error| error.to_string())?;
    let facts = |name: &str| {
        let supply = supplies.iter().find(|supply| supply.medium.name == name);
        let supply = supply.ok_or_else(|| format!("no medium {name}"))?;
        let acts_as = match supply.medium.kind {
            MediumKind::Memory => ActsAs::Memory,
            MediumKind::Pmem => ActsAs::Pmem,
            MediumKind::Drive | MediumKind::San => ActsAs::Drive,
        };
        let capacity = Some(supply.bytes()).filter(|bytes| *bytes > 0);
        Ok(MediumFacts { acts_as, capacity, modules: supply.medium.modules })
    };
    let settings = Settings { mode: file.mode, tiers: file.tiers, placement: file.placement };
    let needs = Needs { home: PathBuf::from(Path::new("/var/lib/terrace")), journal_bytes: JOURNAL_BYTES };
    Placement::of(&settings, &needs, &facts).map_err(|error| error.to_string())
}
