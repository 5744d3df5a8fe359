//! A description of a machine: memory, persistent memory, disks, mounts. Plain data, as printed by `terrace tier list
//! --json`.
//!
//! A [`Machine`] is read from a root of `/sys` and `/proc` ([`Machine::read`]), loaded from a file written elsewhere,
//! or derived from a few numbers ([`crate::provision::Hypothesis`]). A field that the machine does not report is `None`
//! or empty; nothing is guessed.

use serde::{Deserialize, Serialize};

/// The memory and devices of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// NUMA nodes, by number.
    pub nodes: Vec<Node>,
    /// DRAM as reported by its firmware, in bytes; in Memory Mode it is not visible to the operating system.
    pub dram_bytes: Option<u64>,
    /// Slots for memory of any kind, if the firmware reports them.
    pub slots: Option<Slots>,
    /// Bytes of DRAM and persistent memory together that the processor of a socket can map, if the firmware reports it;
    /// the smallest of all sockets. DRAM that is a cache does not count.
    pub socket_limit_bytes: Option<u64>,
    /// Persistent-memory modules.
    pub modules: Vec<Module>,
    /// Regions: addressable persistent memory, each an interleave set of modules.
    pub regions: Vec<Region>,
    /// Namespaces: parts of regions with a mode.
    pub namespaces: Vec<Namespace>,
    /// Character devices of device-DAX, including those of CXL memory.
    pub dax: Vec<DaxDevice>,
    /// CXL memory devices.
    pub cxl: Vec<CxlMemory>,
    /// Block devices.
    pub disks: Vec<Disk>,
    /// Mounted file systems on block devices.
    pub mounts: Vec<Mount>,
    /// Which of ipmctl, ndctl, cxl, daxctl, mkfs.xfs and mkfs.ext4 are installed.
    pub tools: Vec<String>,
}

/// Slots for memory modules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// Number of slots.
    pub all: u32,
    /// Slots with DRAM.
    pub dram: u32,
    /// Slots with persistent memory.
    pub persistent: u32,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its processors in Linux's format, `0-23,48-71`; empty for a node without processors.
    pub cpus: String,
    /// Memory in bytes.
    pub bytes: u64,
    /// Free memory in bytes.
    pub free_bytes: u64,
    /// Distance to each node, including itself, as reported by the firmware; 10 is local.
    pub distances: Vec<u32>,
    /// The firmware's figures of its speed from the nearest processors, if there is a table of them (HMAT).
    #[serde(default)]
    pub performance: Option<Performance>,
    /// Memory that is a cache before this node's, in bytes: near memory of Memory Mode, or HBM in cache mode.
    #[serde(default)]
    pub side_cache_bytes: Option<u64>,
}

impl Node {
    /// Whether it is memory without processors: CXL memory, HBM, or persistent memory used as system memory.
    pub fn is_far_memory(&self) -> bool {
        self.cpus.is_empty() && self.bytes > 0
    }
}

/// Speed of a node's memory, as stated by the firmware (HMAT); not a measurement. Omitted values are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Performance {
    /// Latency of a read, ns.
    pub read_latency_ns: Option<u64>,
    /// Latency of a write, ns.
    pub write_latency_ns: Option<u64>,
    /// MiB/s.
    pub read_mib_per_s: Option<u64>,
    /// MiB/s.
    pub write_mib_per_s: Option<u64>,
}

/// A CXL memory device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CxlMemory {
    /// The kernel's name, `mem0`.
    pub name: String,
    /// Its volatile memory, bytes.
    pub volatile_bytes: u64,
    /// Its persistent memory, bytes.
    pub persistent_bytes: u64,
    /// The node of the processors to which it is attached.
    pub near_node: Option<u32>,
    /// Serial number as the kernel prints it.
    pub serial: Option<String>,
    /// Version of its firmware.
    pub firmware: Option<String>,
    /// The region of its addresses; `None`: it is not used.
    pub region: Option<String>,
}

/// A persistent-memory module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The kernel's name, `nmem0`.
    pub name: String,
    /// The socket of its slot, if the firmware reports it.
    pub socket: Option<u32>,
    /// Size in bytes as printed on it, if the firmware reports it (reading that requires root).
    pub bytes: Option<u64>,
    /// Part number, if the firmware reports it.
    pub part: Option<String>,
    /// The state of its label area, without which a region cannot be divided.
    pub labels: Labels,
    /// How often power was lost before it was ready; `None` if the module does not count that.
    pub dirty_shutdowns: Option<u64>,
}

/// The state of a module's label area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Labels {
    /// It has none.
    #[default]
    None,
    /// It has one that was never written.
    Blank,
    /// It is in use.
    Ready,
}

/// A generation of Intel Optane persistent memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Series {
    /// 100 series, Cascade Lake: up to 6 modules a socket.
    #[serde(rename = "100")]
    S100,
    /// 200 series, Cooper Lake and Ice Lake: up to 8 modules a socket.
    #[serde(rename = "200")]
    S200,
    /// 300 series, Sapphire Rapids: App Direct only.
    #[serde(rename = "300")]
    S300,
}

impl Series {
    /// Determined by the first letters of a part number: NMA, NMB and NMC are the generations in order (Intel part
    /// numbers).
    pub fn of_part(part: &str) -> Option<Series> {
        match part.get(..3)? {
            "NMA" => Some(Series::S100),
            "NMB" => Some(Series::S200),
            "NMC" => Some(Series::S300),
            _ => None,
        }
    }

    /// `100`, `200` or `300`.
    pub fn number(self) -> u32 {
        match self {
            Series::S100 => 100,
            Series::S200 => 200,
            Series::S300 => 300,
        }
    }
}

impl Module {
    /// Its generation, if the part number contains it; other makes have none.
    pub fn series(&self) -> Option<Series> {
        self.part.as_deref().and_then(Series::of_part)
    }
}

/// Addressable persistent memory: one interleave set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The kernel's name, `region0`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes in no namespace.
    pub free_bytes: u64,
    /// The modules over which it is interleaved.
    pub modules: Vec<String>,
    /// Namespace sizes are multiples of this, in bytes.
    pub align: u64,
    /// NUMA node, if the firmware reports it.
    pub node: Option<u32>,
    /// Whether it can be divided: its modules have labels.
    pub labels: bool,
    /// `persistence_domain` as reported by the kernel; empty if it is missing.
    pub persistence_domain: String,
}

impl Region {
    /// What happens to stores when the power fails, and what a program must do; unknown is treated as ADR.
    pub fn verdict(&self) -> &'static str {
        match self.persistence_domain.as_str() {
            "cpu_cache" => "eADR: stores are safe in the cache, only a fence is needed",
            "memory_controller" => "ADR: lines are written back, then a fence",
            _ => "unknown, treated as ADR: lines are written back, then a fence",
        }
    }

    /// `ADR`, `eADR` or `unknown`.
    pub fn domain(&self) -> &'static str {
        match self.persistence_domain.as_str() {
            "cpu_cache" => "eADR",
            "memory_controller" => "ADR",
            _ => "unknown",
        }
    }
}

/// Modes of a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamespaceMode {
    /// A block device whose file systems map their files directly, as a journal needs.
    Fsdax,
    /// A character device that is mapped as a whole.
    Devdax,
    /// A block device whose sectors are written whole or not at all (BTT); it cannot be mapped.
    Sector,
    /// A block device without metadata; on most kernels it cannot be mapped.
    #[default]
    Raw,
}

impl NamespaceMode {
    /// The name in ndctl.
    pub fn as_str(self) -> &'static str {
        match self {
            NamespaceMode::Fsdax => "fsdax",
            NamespaceMode::Devdax => "devdax",
            NamespaceMode::Sector => "sector",
            NamespaceMode::Raw => "raw",
        }
    }

    /// Converts ndctl's name.
    pub fn parse(name: &str) -> Option<NamespaceMode> {
        [NamespaceMode::Fsdax, NamespaceMode::Devdax, NamespaceMode::Sector, NamespaceMode::Raw]
            .into_iter()
            .find(|mode| mode.as_str() == name)
    }
}

/// A part of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// The kernel's name, `namespace0.0`.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Its mode.
    pub mode: NamespaceMode,
    /// Its size in the region, bytes.
    pub bytes: u64,
    /// Bytes usable for data, if a driver uses it.
    pub usable_bytes: Option<u64>,
    /// Its device, `pmem0` or `dax0.0`, if a driver uses it.
    pub device: Option<String>,
}

/// A character device of device-DAX.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaxDevice {
    /// The kernel's name, `dax0.0`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The node that it becomes when it is used as system memory.
    pub target_node: Option<u32>,
    /// Its driver: `device_dax` for mapping, `kmem` as system memory.
    pub driver: Option<String>,
}

/// A block device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The kernel's name, `nvme0n1`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the kernel considers it a rotating disk; virtual disks are often reported so.
    pub rotational: bool,
    /// Model, if it has one.
    pub model: Option<String>,
    /// `write back`: it has a volatile cache that a flush empties; `write through`: it has none.
    pub write_cache: Option<String>,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Whether files on it can be mapped directly.
    pub dax: bool,
}

/// A mounted file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The mounted device, `/dev/pmem0`.
    pub source: String,
    /// The mount point.
    pub path: String,
    /// `xfs`, `ext4`, ...
    pub kind: String,
    /// Its `dax` mount option: `always`, `inode`, `never`, or empty.
    pub dax: String,
    /// Whether files on it can be mapped so that a store is persistent without a system call (`MAP_SYNC`).
    pub synchronous: Synchronous,
}

/// Whether a file system maps its files synchronously.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Synchronous {
    /// Not at all.
    #[default]
    No,
    /// Files with the attribute do (`chattr +x`, `xfs_io -c 'chattr +x'`); mount with `dax=always` for all of them.
    PerFile,
    /// All files do.
    Yes,
}

impl Machine {
    /// Whether a tool is installed.
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool == name)
    }

    /// Whether a node is memory without processors that is faster than every node with processors according to the
    /// firmware: HBM beside DRAM. Its bandwidth decides, because its latency is not better.
    pub fn is_high_bandwidth(&self, node: &Node) -> bool {
        let speed = |node: &Node| node.performance.and_then(|performance| performance.read_mib_per_s);
        let dram = self.nodes.iter().filter(|other| !other.cpus.is_empty()).filter_map(speed).max();
        node.is_far_memory() && speed(node).zip(dram).is_some_and(|(speed, dram)| speed > dram)
    }

    /// The mount of a block device.
    pub fn mount_of(&self, device: &str) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.source.strip_prefix("/dev/") == Some(device))
    }

    /// The namespaces of a region.
    pub fn namespaces_of(&self, region: &str) -> impl Iterator<Item = &Namespace> {
        let region = region.to_owned();
        self.namespaces.iter().filter(move |namespace| namespace.region == region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cpu_cache_is_eadr_and_whatever_else_is_treated_as_adr() {
        let region = |domain: &str| Region { persistence_domain: domain.into(), ..Region::default() };
        assert_eq!(region("cpu_cache").domain(), "eADR");
        assert_eq!(region("memory_controller").domain(), "ADR");
        for other in ["", "unknown", "cpu_cache memory_controller", "CPU_CACHE"] {
            assert_eq!(region(other).domain(), "unknown", "{other:?}");
            assert!(region(other).verdict().contains("treated as ADR"), "{other:?}");
        }
    }

    #[test]
    fn a_part_number_tells_the_generation_and_another_make_has_none() {
        let series = |part: &str| Series::of_part(part).map(Series::number);
        assert_eq!(series("NMA1XXD128GPS"), Some(100));
        assert_eq!(series("NMB1XXD256GPS"), Some(200));
        assert_eq!(series("NMC2XXD128GPS"), Some(300));
        assert_eq!(series("18ASF2G72PF12G6V21AB"), None);
        assert_eq!(series(""), None);
    }
}
