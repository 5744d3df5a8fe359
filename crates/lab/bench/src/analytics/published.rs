//! The published analytical queries, with which ours are compared.

use serde::Serialize;

/// One of the published results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// The server.
    pub server: &'static str,
    /// Its cache.
    pub cache: &'static str,
    /// How the elapsed time compares.
    pub result: &'static str,
}

/// Data behind the published figures, in bytes.
pub(crate) const DATA_BYTES: f64 = 1.2e12;

/// Caches of the published runs against their data: 512 GiB, 1 TiB and 2 TiB on 1.2 TB.
pub const CACHES: [(&str, f64); 3] = [
    ("512 GiB", (512u64 << 30) as f64 / DATA_BYTES),
    ("1 TiB", (1u64 << 40) as f64 / DATA_BYTES),
    ("2 TiB", (2u64 << 40) as f64 / DATA_BYTES),
];

/// InterSystems IRIS, analytical queries over 1.2 TB on an all-flash array behind 16 Gb/s Fibre Channel
/// (community.intersystems.com, 2020-03-03).
pub const PUBLISHED: [Published; 3] = [
    Published { server: "4 x E7-8890 v4, 2 TiB DRAM", cache: "512 GiB", result: "1.0" },
    Published {
        server: "4 x Platinum 8280L, 3 TiB DCPMM + 768 GiB DRAM, Memory Mode",
        cache: "1 TiB, 2 TiB",
        result: "about 6 times shorter",
    },
    Published {
        server: "the two servers at like sizes",
        cache: "2 TiB",
        result: "about 20 % shorter on the newer one",
    },
];
