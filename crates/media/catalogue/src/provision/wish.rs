//! The requested configuration of a machine: a goal, namespaces, file systems. Also a hypothetical machine, described
//! by a few numbers.

use serde::{Deserialize, Serialize};

use super::ProvisionError;
use super::geometry::{GIB, MIB, Map, parse_bytes};
use super::goal::Goal;
use super::machine::{Labels, Machine, Module, NamespaceMode, Series};

/// Default of the largest ratio of far to near memory: the rule of the published experiments.
pub const RATIO_LIMIT: u32 = 8;

/// The requested configuration of the persistent memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The division of the modules; `None` keeps the current one.
    pub goal: Option<Goal>,
    /// Namespaces to create in each region, in this order.
    pub namespaces: Vec<NamespaceWish>,
    /// The regions of these namespaces; empty = all.
    pub regions: Vec<String>,
    /// The medium of the page structures.
    pub map: Map,
    /// The file system for fsdax namespaces.
    pub file_system: FileSystem,
    /// Prefix of the mount points; the number of the region is appended: `/mnt/pmem` gives `/mnt/pmem0`.
    pub mount: String,
    /// Largest size of far memory, as a multiple of near memory.
    pub ratio_limit: u32,
    /// Namespaces that may be destroyed with their content.
    pub overwrite: Vec<String>,
}

impl Default for Wish {
    fn default() -> Self {
        Wish {
            goal: None,
            namespaces: vec![NamespaceWish { mode: NamespaceMode::Fsdax, size: None }],
            regions: Vec::new(),
            map: Map::default(),
            file_system: FileSystem::default(),
            mount: "/mnt/pmem".into(),
            ratio_limit: RATIO_LIMIT,
            overwrite: Vec::new(),
        }
    }
}

/// A namespace to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceWish {
    /// Its mode.
    pub mode: NamespaceMode,
    /// Bytes of the region; `None` = the bytes that the others leave.
    pub size: Option<u64>,
}

impl NamespaceWish {
    /// Reads `fsdax=384MiB,devdax=256MiB,sector=rest`.
    ///
    /// Errors: [`ProvisionError::Malformed`].
    pub fn parse_list(text: &str) -> Result<Vec<NamespaceWish>, ProvisionError> {
        let malformed = |what: String| {
            ProvisionError::Malformed(format!("{what}; namespaces are given as fsdax=384MiB,devdax=256MiB,sector=rest"))
        };
        let read = |part: &str| {
            let (mode, size) = part.split_once('=').unwrap_or((part, "rest"));
            let mode = NamespaceMode::parse(mode.trim()).filter(|mode| *mode != NamespaceMode::Raw);
            let mode = mode.ok_or_else(|| malformed(format!("\"{part}\" is none of fsdax, devdax, sector")))?;
            let size = match size.trim() {
                "rest" => None,
                size => Some(parse_bytes(size).ok_or_else(|| malformed(format!("\"{size}\" is no size")))?),
            };
            Ok(NamespaceWish { mode, size })
        };
        let list: Vec<NamespaceWish> =
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(read).collect::<Result<_, _>>()?;
        match list.iter().filter(|wish| wish.size.is_none()).count() {
            0 | 1 if !list.is_empty() => Ok(list),
            0 => Err(malformed("no namespace is named".into())),
            _ => Err(malformed("only one namespace can have the rest".into())),
        }
    }
}

/// File systems that map their files directly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// XFS without reflink, which most kernels do not support together with direct mapping.
    #[default]
    Xfs,
    /// ext4 with blocks of a page.
    Ext4,
}

impl FileSystem {
    /// `xfs` or `ext4`.
    pub fn as_str(self) -> &'static str {
        match self {
            FileSystem::Xfs => "xfs",
            FileSystem::Ext4 => "ext4",
        }
    }

    /// The smallest device for it, in bytes: mkfs.xfs 6.1 refuses less than 300 MiB.
    pub(super) fn least(self) -> u64 {
        match self {
            FileSystem::Xfs => 300 * MIB,
            FileSystem::Ext4 => 16 * MIB,
        }
    }

    /// The command that creates one on a device of `bytes`. Extents in units of 2 MiB allow large pages in the mapping.
    /// On a small device, XFS would then have no space for its log.
    pub(super) fn command(self, device: &str, bytes: u64) -> Vec<String> {
        let (words, aligned): (&[&str], &[&str]) = match self {
            FileSystem::Xfs => (&["mkfs.xfs", "-q", "-f", "-m", "reflink=0"], &["-d", "su=2m,sw=1"]),
            FileSystem::Ext4 => (&["mkfs.ext4", "-q", "-F", "-b", "4096"], &["-E", "stride=512,stripe-width=512"]),
        };
        let aligned = if bytes >= GIB { aligned } else { &[] };
        words.iter().chain(aligned).map(|word| (*word).to_owned()).chain([device.to_owned()]).collect()
    }
}

/// A hypothetical machine, described by a few numbers.
#[derive(Debug, Clone, Default)]
pub struct Hypothesis {
    /// Modules of each socket, `6x128GiB`. A comma separates sockets that differ, a plus separates sizes in one socket.
    pub modules: String,
    /// DRAM of the whole machine in bytes.
    pub dram_bytes: Option<u64>,
    /// Number of sockets. Each has the given modules, unless they are given for each socket.
    pub sockets: u32,
    /// Generation of the modules.
    pub series: Option<Series>,
    /// Bytes that the processor of a socket can map; `None` = unknown, and not checked.
    pub socket_limit_bytes: Option<u64>,
}

impl Hypothesis {
    /// The machine.
    ///
    /// Errors: [`ProvisionError::Malformed`].
    pub fn machine(&self) -> Result<Machine, ProvisionError> {
        let malformed = |part: &str| {
            ProvisionError::Malformed(format!(
                "\"{part}\" describes no modules; write 6x128GiB for each socket, or 6x128GiB,4x128GiB for two sockets that differ"
            ))
        };
        let part = match self.series.unwrap_or(Series::S100) {
            Series::S100 => "NMA",
            Series::S200 => "NMB",
            Series::S300 => "NMC",
        };
        let sockets: Vec<&str> = match self.modules.contains(',') {
            true => self.modules.split(',').collect(),
            false => vec![self.modules.as_str(); self.sockets.clamp(1, 64) as usize],
        };
        let mut modules: Vec<Module> = Vec::new();
        for (socket, text) in sockets.iter().enumerate() {
            for group in text.split('+').map(str::trim) {
                let (count, size) = group.split_once(['x', 'X']).ok_or_else(|| malformed(group))?;
                let count = count.trim().parse::<usize>().ok().filter(|count| (1..=64).contains(count));
                let (count, bytes) =
                    count.zip(parse_bytes(size).filter(|bytes| *bytes > 0)).ok_or_else(|| malformed(group))?;
                modules.extend((0..count).map(|_| Module {
                    name: String::new(),
                    socket: Some(socket as u32),
                    bytes: Some(bytes),
                    part: Some(part.to_owned()),
                    labels: Labels::Ready,
                    dirty_shutdowns: None,
                }));
            }
        }
        for (number, module) in modules.iter_mut().enumerate() {
            module.name = format!("nmem{number}");
        }
        let tools = ["ipmctl", "ndctl", "cxl", "daxctl", "mkfs.xfs", "mkfs.ext4"].map(str::to_owned).to_vec();
        let (dram_bytes, socket_limit_bytes) = (self.dram_bytes, self.socket_limit_bytes);
        Ok(Machine { modules, dram_bytes, socket_limit_bytes, tools, ..Machine::default() })
    }
}
