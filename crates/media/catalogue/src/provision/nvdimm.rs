//! Persistent memory as `libnvdimm` presents it, and modules as described by the firmware's tables.
//!
//! ```text
//!   bus/nd/devices/nmem0        a module; nfit/phys_id is the handle of its SMBIOS entry, nfit/handle contains the socket
//!                 /region0      an interleave set; mapping0 = "nmem0,offset,bytes,position"
//!                 /namespace0.0 a part of region 0; holder names the device on it:
//!                 /pfn0.0         fsdax: block/pmem0
//!                 /dax0.0         devdax: dax0.1
//!                 /btt0.0         sector: block/pmem0.2s
//!   firmware/dmi/entries/17-N/raw   one memory device (SMBIOS 3.2, type 17); readable by root
//! ```
//!
//! This module only reads; it decides nothing.

use super::attributes::Tree;
use super::machine::{Labels, Module, Namespace, NamespaceMode, Region, Slots};

/// Alignment of namespace sizes if the kernel does not report it (Linux 5.6 and older, 2 MiB for each module).
const ALIGN_OLD: u64 = 2 << 20;

/// A memory device of the firmware's tables.
pub(super) struct Dimm {
    handle: u64,
    bytes: u64,
    part: String,
    persistent: bool,
}

/// Reads the firmware's tables; empty without the permission.
pub(super) fn firmware(sys: &Tree) -> Vec<Dimm> {
    raw_dimms(sys).iter().filter_map(|raw| parse_dimm(raw)).collect()
}

fn raw_dimms(sys: &Tree) -> Vec<Vec<u8>> {
    let all = sys.at("firmware/dmi/entries");
    let entries = all.names().into_iter().filter(|name| name.starts_with("17-"));
    entries.filter_map(|name| std::fs::read(all.0.join(name).join("raw")).ok()).collect()
}

/// The slots; each has an entry whether or not it is used. `None` if the tables cannot be read.
pub(super) fn slots(sys: &Tree, dimms: &[Dimm]) -> Option<Slots> {
    let all = u32::try_from(raw_dimms(sys).len()).ok().filter(|all| *all > 0)?;
    let persistent = dimms.iter().filter(|dimm| dimm.persistent).count() as u32;
    Some(Slots { all, dram: dimms.len() as u32 - persistent, persistent })
}

/// The memory that the processor of a socket can map, the smallest of all sockets. It is in the ACPI table PCAT of
/// Intel's platforms for persistent memory (Intel, Optane persistent memory OS provisioning specification; fields as
/// ipmctl 03.00.00.0468 reads them, NvmTables.h): after 40 bytes, parts with type and length, 16 bits each; type 6 has
/// socket and die, then the limit in 64 bits. `None` without the table or the permission to read it.
pub(super) fn socket_limit(sys: &Tree) -> Option<u64> {
    let table = std::fs::read(sys.0.join("firmware/acpi/tables/PCAT")).ok()?;
    let mut rest = table.get(..4).filter(|signature| *signature == b"PCAT").and(table.get(40..))?;
    let mut least: Option<u64> = None;
    while let Some(header) = rest.get(..4) {
        let (kind, length) = (u16::from_le_bytes([header[0], header[1]]), u16::from_le_bytes([header[2], header[3]]));
        let Some(part) = rest.get(..usize::from(length)).filter(|part| part.len() >= 4) else { break };
        if kind == 6
            && let Some(limit) = part.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
            && limit > 0
        {
            least = Some(least.map_or(limit, |least| least.min(limit)));
        }
        rest = &rest[part.len()..];
    }
    least
}

/// SMBIOS 3.2, 7.18 Memory Device: length 1h, handle 2h, size Ch, part number 1Ah, extended size 1Ch, technology 28h.
fn parse_dimm(raw: &[u8]) -> Option<Dimm> {
    let length = usize::from(*raw.get(1)?);
    let fixed = raw.get(..length)?;
    let word = |at: usize| Some(u64::from(u16::from_le_bytes(fixed.get(at..at + 2)?.try_into().ok()?)));
    let bytes = match word(0x0c)? {
        // Not installed, or unknown.
        0 | 0xffff => return None,
        0x7fff => u64::from(u32::from_le_bytes(fixed.get(0x1c..0x20)?.try_into().ok()?) & 0x7fff_ffff) << 20,
        size if size & 0x8000 != 0 => (size & 0x7fff) << 10,
        size => size << 20,
    };
    // Technologies 4 to 7 are persistent: NVDIMM-N, -F, -P, Intel Optane persistent memory.
    let persistent = fixed.get(0x28).is_some_and(|technology| (4..=7).contains(technology));
    let strings = raw.get(length..)?.split(|byte| *byte == 0);
    let part = match *fixed.get(0x1a)? {
        0 => String::new(),
        number => {
            strings.skip(usize::from(number) - 1).map(|text| String::from_utf8_lossy(text).trim().to_owned()).next()?
        }
    };
    Some(Dimm { handle: word(2)?, bytes, part, persistent })
}

/// Sum of the memory that is not persistent; `None` if the tables cannot be read.
pub(super) fn dram_bytes(dimms: &[Dimm]) -> Option<u64> {
    let sum: u64 = dimms.iter().filter(|dimm| !dimm.persistent).map(|dimm| dimm.bytes).sum();
    (sum > 0).then_some(sum)
}

/// The modules.
pub(super) fn modules(sys: &Tree, dimms: &[Dimm]) -> Vec<Module> {
    let all = sys.at("bus/nd/devices");
    let read = |name: String| {
        let module = all.at(&name);
        let commands = module.text("commands").unwrap_or_default();
        let flags = module.text("flags").unwrap_or_default();
        let has = |text: &str, word: &str| text.split_whitespace().any(|one| one == word);
        let labels = match (has(&commands, "set_data"), has(&flags, "label")) {
            (true, true) => Labels::Ready,
            (true, false) => Labels::Blank,
            (false, _) => Labels::None,
        };
        let handle = module.number("nfit/phys_id");
        let dimm = dimms.iter().find(|dimm| dimm.persistent && Some(dimm.handle) == handle);
        Module {
            // ACPI 6.3, 9.20.3 NVDIMM device handle: bits 15:12 are the socket.
            socket: module.number("nfit/handle").map(|handle| ((handle >> 12) & 0xf) as u32),
            bytes: dimm.map(|dimm| dimm.bytes),
            part: dimm.map(|dimm| dimm.part.clone()).filter(|part| !part.is_empty()),
            labels,
            dirty_shutdowns: module.number("nfit/dirty_shutdown"),
            name,
        }
    };
    all.numbered("nmem").into_iter().map(read).collect()
}

/// The persistent regions.
pub(super) fn regions(sys: &Tree, modules: &[Module]) -> Vec<Region> {
    let all = sys.at("bus/nd/devices");
    let read = |name: String| {
        let region = all.at(&name);
        if region.text("devtype").is_some_and(|kind| kind != "nd_pmem") {
            return None;
        }
        let ways = region.number("mappings").unwrap_or(1).clamp(1, 64);
        let mapping = |at: u64| Some(region.text(&format!("mapping{at}"))?.split(',').next()?.to_owned());
        let members: Vec<String> = (0..ways).filter_map(mapping).collect();
        let keeps =
            |member: &String| modules.iter().any(|module| module.name == *member && module.labels != Labels::None);
        Some(Region {
            bytes: region.number("size").unwrap_or(0),
            free_bytes: free_bytes(&region),
            align: region.number("align").unwrap_or(ALIGN_OLD * ways),
            node: region.number("numa_node").and_then(|node| u32::try_from(node).ok()),
            labels: !members.is_empty() && members.iter().all(keeps),
            persistence_domain: region.text("persistence_domain").unwrap_or_default(),
            modules: members,
            name,
        })
    };
    all.numbered("region").into_iter().filter_map(read).collect()
}

/// A region without labels (`nstype` 4) is a single namespace, and nothing of it is free, even if the kernel reports free space.
fn free_bytes(region: &Tree) -> u64 {
    match region.number("nstype") {
        Some(4) => 0,
        _ => region.number("available_size").unwrap_or(0),
    }
}

/// The namespaces that have a size; the kernel also lists the next one that could be created.
pub(super) fn namespaces(sys: &Tree) -> Vec<Namespace> {
    let all = sys.at("bus/nd/devices");
    let read = |name: String| {
        let namespace = all.at(&name);
        let bytes = namespace.number("size").filter(|bytes| *bytes > 0)?;
        let mode = match namespace.text("mode").as_deref() {
            Some("memory") => NamespaceMode::Fsdax,
            Some("dax") => NamespaceMode::Devdax,
            Some("safe") => NamespaceMode::Sector,
            _ => NamespaceMode::Raw,
        };
        let number = name.strip_prefix("namespace")?;
        let holder = namespace.text("holder").filter(|holder| !holder.is_empty());
        let holds = all.at(holder.as_deref().unwrap_or(&name));
        let device = holds.at("block").names().into_iter().next().or_else(|| holds.numbered("dax").into_iter().next());
        Some(Namespace {
            region: format!("region{}", number.split('.').next()?),
            mode,
            bytes,
            usable_bytes: if holder.is_some() { holds.number("size") } else { device.as_ref().map(|_| bytes) },
            device,
            name,
        })
    };
    all.numbered("namespace").into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: u16, extended: u32, technology: u8, part: &str) -> Vec<u8> {
        let mut raw = vec![0u8; 0x54];
        raw[0] = 17;
        raw[1] = 0x54;
        raw[2..4].copy_from_slice(&0x1100u16.to_le_bytes());
        raw[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        raw[0x1a] = 2;
        raw[0x1c..0x20].copy_from_slice(&extended.to_le_bytes());
        raw[0x28] = technology;
        raw.extend_from_slice(b"CPU0_A1\0");
        raw.extend_from_slice(part.as_bytes());
        raw.extend_from_slice(b"\0\0");
        raw
    }

    #[test]
    fn a_memory_device_of_the_firmware_tells_its_size_kind_and_part_number() {
        let optane = parse_dimm(&entry(0x7fff, 128 << 10, 7, "NMA1XXD128GPS ")).expect("installed");
        assert_eq!((optane.bytes, optane.persistent, optane.handle), (128 << 30, true, 0x1100));
        assert_eq!(optane.part, "NMA1XXD128GPS");
        let dram = parse_dimm(&entry(16 << 10, 0, 3, "M393A2K43CB2")).expect("installed");
        assert_eq!((dram.bytes, dram.persistent), (16 << 30, false));
        assert_eq!(parse_dimm(&entry(0x8000 | 512, 0, 3, "X")).expect("installed").bytes, 512 << 10);
        assert!(parse_dimm(&entry(0, 0, 3, "X")).is_none(), "an empty slot");
    }

    #[test]
    fn slots_are_counted_with_what_is_in_them_and_the_least_limit_of_a_socket_is_read_from_pcat() {
        let root = tempfile::tempdir().expect("temporary directory");
        let sys = Tree(root.path().to_owned());
        assert_eq!((slots(&sys, &[]), socket_limit(&sys)), (None, None));
        let raws = [entry(0x7fff, 128 << 10, 7, "NMA1XXD128GPS"), entry(16 << 10, 0, 3, "X"), entry(0, 0, 3, "")];
        for (number, raw) in raws.iter().enumerate() {
            let folder = root.path().join(format!("firmware/dmi/entries/17-{number}"));
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("raw"), raw).expect("an attribute");
        }
        let dimms = firmware(&sys);
        assert_eq!(slots(&sys, &dimms), Some(Slots { all: 3, dram: 1, persistent: 1 }));
        let mut table = vec![0u8; 40];
        table[..4].copy_from_slice(b"PCAT");
        table.extend([0, 0, 8, 0, 1, 2, 3, 4]);
        for (socket, limit) in [(0u16, 4u64 << 40), (1, 1 << 40)] {
            table.extend([6, 0, 32, 0]);
            table.extend(socket.to_le_bytes());
            table.extend([0, 0]);
            table.extend(limit.to_le_bytes());
            table.extend([0; 16]);
        }
        let file = root.path().join("firmware/acpi/tables/PCAT");
        std::fs::create_dir_all(file.parent().expect("below")).expect("a folder");
        std::fs::write(&file, &table).expect("a table");
        assert_eq!(socket_limit(&sys), Some(1 << 40));
        for length in 0..table.len() {
            std::fs::write(&file, &table[..length]).expect("a table");
            assert!(socket_limit(&sys).is_none_or(|limit| limit == 4 << 40), "cut at {length}");
        }
        // A part without a length ends the walk.
        table[42] = 0;
        std::fs::write(&file, &table).expect("a table");
        assert_eq!(socket_limit(&sys), None);
    }

    #[test]
    fn a_table_entry_cut_anywhere_is_left_out_and_never_a_panic() {
        let whole = entry(0x7fff, 128 << 10, 7, "NMA1XXD128GPS");
        for length in 0..0x54 {
            assert!(parse_dimm(&whole[..length]).is_none(), "{length} bytes");
        }
        assert!(
            (0x54..whole.len()).all(|length| parse_dimm(&whole[..length]).is_none_or(|dimm| dimm.bytes == 128 << 30))
        );
    }
}
