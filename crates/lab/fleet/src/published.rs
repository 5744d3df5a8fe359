//! The published runs: Storage Spaces Direct of Windows Server 2019 on 12 servers, each with 2 x 28 cores, persistent memory as a cache and
//! four NVMe drives; 12 volumes of three copies; 312 virtual machines with 4 threads x 16 outstanding on a file each.
//!
//! Sources: the announcement of October 2018 ("The new HCI industry record: 13.7 million IOPS with Windows Server 2019 and Intel Optane DC
//! persistent memory", Microsoft's storage blog), and Microsoft's page "Understand and deploy persistent memory". The blog gives 535.86
//! GB/s for the sequential reads, the page 549 GB/s; both are printed.
//!
//! What differs is printed with them: their figures are of the whole stack under virtual machines.

use serde::Serialize;

/// Servers, and cores of each.
const SERVERS: f64 = 12.0;
const CORES: f64 = 56.0;

/// Printed below every comparison.
pub const DIFFERS: &str = "Theirs is the whole stack under virtual machines: guest, hypervisor, file system, network of 2 x 25 Gb/s, mirror, \
                           cache, drives, on 12 servers. Here are the mirror and, where named, its cache and NBD, on one machine; the load \
                           generator runs on the same processors, and no copy is behind a network.";

/// A published run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedRun {
    /// The load's name.
    #[serde(skip)]
    pub load: &'static str,
    /// Requests per second of all servers, if that was the unit.
    pub iops: Option<f64>,
    /// Bytes per second of all servers, if that was the unit: the page's figure.
    pub bytes_per_s: Option<f64>,
    /// The same in the announcement, where it differs.
    pub bytes_per_s_announced: Option<f64>,
    /// Requests per second of a core.
    pub iops_per_core: Option<f64>,
    /// Bytes per second of a core.
    pub bytes_per_s_per_core: Option<f64>,
    /// Latency below so many microseconds, "as reported by the file system".
    pub latency_below_us: Option<f64>,
}

const fn of_iops(load: &'static str, iops: f64, latency_below_us: Option<f64>) -> PublishedRun {
    PublishedRun {
        load,
        iops: Some(iops),
        bytes_per_s: None,
        bytes_per_s_announced: None,
        iops_per_core: Some(iops / (SERVERS * CORES)),
        bytes_per_s_per_core: None,
        latency_below_us,
    }
}

/// The published runs.
pub const PUBLISHED: [PublishedRun; 3] = [
    of_iops("random read, 4 KiB", 13_798_674.0, Some(40.0)),
    of_iops("random 90/10, 4 KiB", 9_459_587.0, None),
    PublishedRun {
        load: "sequential read, 2 MiB",
        iops: None,
        bytes_per_s: Some(549e9),
        bytes_per_s_announced: Some(535.86e9),
        iops_per_core: None,
        bytes_per_s_per_core: Some(549e9 / (SERVERS * CORES)),
        latency_below_us: None,
    },
];

/// The published run of a load, if there is one.
pub fn of(load: &str) -> Option<PublishedRun> {
    PUBLISHED.into_iter().find(|published| published.load == load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;

    #[test]
    fn the_figures_per_core_are_those_of_672_cores_and_every_published_run_is_a_load() {
        let per_core: Vec<Option<f64>> =
            PUBLISHED.iter().map(|published| published.iops_per_core.map(f64::round)).collect();
        assert_eq!(per_core, [Some(20_534.0), Some(14_077.0), None]);
        let bytes = of("sequential read, 2 MiB").and_then(|published| published.bytes_per_s_per_core).expect("there");
        assert_eq!((bytes / 1e6).round(), 817.0);
        let loads = Load::all(4, 16);
        assert!(PUBLISHED.iter().all(|published| loads.iter().any(|load| load.name == published.load)));
        assert_eq!(of("something else"), None);
    }
}
