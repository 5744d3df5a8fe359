//! CXL memory as the kernel's `cxl` bus presents it, and the firmware's HMAT figures of nodes.
//!
//! ```text
//!   bus/cxl/devices/mem0       a device: ram/size, pmem/size, serial, firmware_version, numa_node (of the processors beside it)
//!                  /region0    addresses that devices answer to: size, target0 = the decoder of a device
//!                  /endpoint2  a device's port; its directory holds decoder2.0, its link uport names mem0
//!   devices/system/node/node2/access1/initiators/read_latency     ns, and read_bandwidth in MiB/s, from the nearest processors
//!                            /memory_side_cache/index1/size       memory that is a cache before the node's own
//! ```
//!
//! Linux: Documentation/ABI/testing/sysfs-bus-cxl, Documentation/admin-guide/mm/numaperf.rst. Access class 1 is that of
//! processors, class 0 that of any initiator; a kernel before 5.10 has class 0 only.
//!
//! This module only reads; it decides nothing.

use std::collections::BTreeMap;

use super::attributes::Tree;
use super::machine::{CxlMemory, Performance};

/// The memory devices, with the region of each.
pub(super) fn memory(sys: &Tree) -> Vec<CxlMemory> {
    let all = sys.at("bus/cxl/devices");
    let regions = regions(&all);
    let read = |name: String| {
        let device = all.at(&name);
        CxlMemory {
            volatile_bytes: device.number("ram/size").unwrap_or(0),
            persistent_bytes: device.number("pmem/size").unwrap_or(0),
            near_node: device.number("numa_node").and_then(|node| u32::try_from(node).ok()),
            serial: device.text("serial"),
            firmware: device.text("firmware_version").filter(|version| !version.is_empty()),
            region: regions.get(&name).cloned(),
            name,
        }
    };
    all.numbered("mem").into_iter().map(read).collect()
}

/// Regions, indexed by their devices.
fn regions(all: &Tree) -> BTreeMap<String, String> {
    let device_of: BTreeMap<String, String> = all
        .numbered("endpoint")
        .into_iter()
        .filter_map(|endpoint| {
            let port = std::fs::read_link(all.at(&endpoint).0.join("uport")).ok()?;
            Some((endpoint.strip_prefix("endpoint")?.to_owned(), port.file_name()?.to_str()?.to_owned()))
        })
        .collect();
    let mut regions = BTreeMap::new();
    for name in all.numbered("region") {
        let region = all.at(&name);
        for target in region.numbered("target") {
            // decoder5.0 is the first decoder of endpoint5.
            let decoder = region.text(&target).unwrap_or_default();
            let port = decoder.strip_prefix("decoder").and_then(|rest| rest.split('.').next());
            if let Some(device) = port.and_then(|port| device_of.get(port)) {
                regions.insert(device.clone(), name.clone());
            }
        }
    }
    regions
}

/// The firmware's figures of a node's memory, seen from the nearest processors; `None` if there are none.
pub(super) fn performance(node: &Tree) -> Option<Performance> {
    let of = |class: &str| {
        let from = node.at(format!("{class}/initiators"));
        // A figure of 0 means that the firmware omitted it.
        let figure = |name: &str| from.number(name).filter(|figure| *figure > 0);
        let found = Performance {
            read_latency_ns: figure("read_latency"),
            write_latency_ns: figure("write_latency"),
            read_mib_per_s: figure("read_bandwidth"),
            write_mib_per_s: figure("write_bandwidth"),
        };
        (found != Performance::default()).then_some(found)
    };
    of("access1").or_else(|| of("access0"))
}

/// Bytes of the memory that is a cache before the node's own, if the firmware reports it.
pub(super) fn side_cache(node: &Tree) -> Option<u64> {
    let caches = node.at("memory_side_cache");
    let sizes = caches.numbered("index").into_iter().filter_map(|index| caches.at(index).number("size"));
    sizes.max().filter(|bytes| *bytes > 0)
}
