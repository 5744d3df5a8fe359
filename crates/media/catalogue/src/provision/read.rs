//! Reads a machine from `/sys` and `/proc` below any root: `/` of this machine, a copied tree, or a test's.
//!
//! An attribute that is missing, unreadable or unexpected gives a field without a value: kernels differ in their
//! attributes, and some attributes require root. Only a root without `/sys` is an error, since it is not a machine.

use std::path::Path;

use super::ProvisionError;
use super::attributes::Tree;
use super::machine::{DaxDevice, Disk, Machine, Mount, Node, Synchronous};
use super::{cxl, nvdimm};

/// Tools that plans use.
const TOOLS: [&str; 6] = ["ipmctl", "ndctl", "cxl", "daxctl", "mkfs.xfs", "mkfs.ext4"];

/// Block devices without a medium of their own: memory, and files presented as disks.
const NO_DISKS: [&str; 4] = ["loop", "ram", "zram", "fd"];

impl Machine {
    /// Reads the machine below `root`, which is `/` for this machine.
    ///
    /// Errors: [`ProvisionError::Unreadable`] if there is no `/sys`.
    pub fn read(root: &Path) -> Result<Machine, ProvisionError> {
        let sys = Tree(root.join("sys"));
        std::fs::read_dir(&sys.0)
            .map_err(|source| ProvisionError::Unreadable { path: sys.0.display().to_string(), source })?;
        let disks = disks(&sys);
        let memory = nvdimm::firmware(&sys);
        let modules = nvdimm::modules(&sys, &memory);
        Ok(Machine {
            nodes: nodes(&sys),
            dram_bytes: nvdimm::dram_bytes(&memory),
            slots: nvdimm::slots(&sys, &memory),
            socket_limit_bytes: nvdimm::socket_limit(&sys),
            regions: nvdimm::regions(&sys, &modules),
            namespaces: nvdimm::namespaces(&sys),
            modules,
            dax: dax_devices(&sys),
            cxl: cxl::memory(&sys),
            mounts: mounts(&root.join("proc/mounts"), &disks),
            disks,
            tools: tools(root),
        })
    }
}

fn nodes(sys: &Tree) -> Vec<Node> {
    let all = sys.at("devices/system/node");
    let read = |name: String| {
        let node = all.at(&name);
        let memory = node.text("meminfo").unwrap_or_default();
        Some(Node {
            id: name.strip_prefix("node")?.parse().ok()?,
            cpus: node.text("cpulist").unwrap_or_default(),
            bytes: kilobytes(&memory, "MemTotal:"),
            free_bytes: kilobytes(&memory, "MemFree:"),
            distances: node.text("distance")?.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
            performance: cxl::performance(&node),
            side_cache_bytes: cxl::side_cache(&node),
        })
    };
    all.numbered("node").into_iter().filter_map(read).collect()
}

/// The value of a key of `meminfo`: `Node 0 MemTotal:  1946060 kB`.
fn kilobytes(text: &str, key: &str) -> u64 {
    let mut words = text.split_whitespace().skip_while(|word| *word != key).skip(1);
    words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn dax_devices(sys: &Tree) -> Vec<DaxDevice> {
    let all = sys.at("bus/dax/devices");
    let read = |name: String| {
        let device = all.at(&name);
        let driver = std::fs::read_link(device.0.join("driver")).ok();
        DaxDevice {
            bytes: device.number("size").unwrap_or(0),
            target_node: device.number("target_node").and_then(|node| u32::try_from(node).ok()),
            driver: driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())),
            name,
        }
    };
    all.numbered("dax").into_iter().map(read).collect()
}

fn disks(sys: &Tree) -> Vec<Disk> {
    let all = sys.at("block");
    let holds_something = |name: &String| {
        !NO_DISKS
            .iter()
            .any(|kind| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
    };
    let read = |name: String| {
        let disk = all.at(&name);
        let queue = disk.at("queue");
        let chosen = |list: String| {
            let in_brackets = list.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            in_brackets.map_or(list.clone(), |(chosen, _)| chosen.to_owned())
        };
        Disk {
            // The unit of this attribute is 512 bytes whatever the device's block is (Linux, Documentation/ABI, block).
            bytes: disk.number("size").unwrap_or(0) * 512,
            rotational: queue.number("rotational") == Some(1),
            model: disk.text("device/model").filter(|model| !model.is_empty()),
            write_cache: queue.text("write_cache"),
            scheduler: queue.text("scheduler").map(chosen),
            dax: queue.number("dax") == Some(1),
            name,
        }
    };
    all.names().into_iter().filter(holds_something).map(read).filter(|disk| disk.bytes > 0).collect()
}

fn mounts(file: &Path, disks: &[Disk]) -> Vec<Mount> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let read = |line: &str| {
        let mut words = line.split_whitespace().map(unescape);
        let (source, path, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let device = source.strip_prefix("/dev/")?.to_owned();
        let dax = options.split(',').find_map(|option| match option.split_once('=') {
            Some(("dax", value)) => Some(value.to_owned()),
            None if option == "dax" => Some("always".to_owned()),
            _ => None,
        });
        let dax = dax.unwrap_or_default();
        // A partition of a device that maps directly does so too.
        let direct = disks.iter().any(|disk| disk.dax && is_part_of(&device, &disk.name));
        let synchronous = match (direct, kind.as_str(), dax.as_str()) {
            (true, "xfs" | "ext4", "always") => Synchronous::Yes,
            (true, "xfs" | "ext4", "" | "inode") => Synchronous::PerFile,
            _ => Synchronous::No,
        };
        Some(Mount { source, path, kind, dax, synchronous })
    };
    text.lines().filter_map(read).collect()
}

/// Whether `device` is the disk or a partition of it: `pmem0p1` of `pmem0`, but not `pmem0s`, which is another disk.
fn is_part_of(device: &str, disk: &str) -> bool {
    device.strip_prefix(disk).is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix('p').is_some_and(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
    })
}

/// In `/proc/mounts`, blanks, tabs, newlines and backslashes are three octal digits (fstab(5)).
fn unescape(word: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(word.to_owned(), |text, (code, character)| text.replace(code, character))
}

fn tools(root: &Path) -> Vec<String> {
    let installed =
        |tool: &&&str| ["usr/sbin", "usr/bin", "sbin", "bin"].iter().any(|dir| root.join(dir).join(**tool).exists());
    TOOLS.iter().filter(installed).map(|tool| (*tool).to_owned()).collect()
}
