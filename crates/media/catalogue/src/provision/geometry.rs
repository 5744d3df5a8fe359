//! Sizes: formatting, parsing, and the usable part after metadata and alignment.
//!
//! ```text
//!   module          128 GiB as printed on it, 126.422 GiB as ipmctl shows it, 126 GiB in an App Direct goal
//!   region          modules of one socket x whole GiB of each
//!   namespace       a multiple of the region's alignment
//!     fsdax, devdax   | info 8 KiB | 64 bytes for each page of 4 KiB, if kept there | ... 2 MiB | data |
//!     sector          | info | data and 256 free blocks | map, 4 bytes a block | log 16 KiB | info |
//! ```
//!
//! Each rule was verified on Linux 6.1 and ndctl 76 in a guest on 2026-11-21; the tests contain the observed sizes.

use super::machine::{NamespaceMode, Series};

/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// The multiple of a namespace's size that a plan uses before the region exists: the kernel's rule since Linux 5.7, 16
/// MiB, times the modules if they do not divide that.
pub fn region_align(ways: u64) -> u64 {
    let ways = ways.max(1);
    let align = 16 * MIB;
    if align.is_multiple_of(ways) { align } else { align * ways }
}

/// Bytes of a module that goals can divide (its raw capacity), from the bytes printed on it.
///
/// The values of `ipmctl show -dimm`, in GiB, as shown by users and by its documentation: 100 series 126.422, 252.454,
/// 502.599 (firmware 01.02.00.5355 and 5446, 01.00.00.5127); 200 series 126.742, 253.734, 507.688 (firmware
/// 02.02.00.1553, 02.01.00.1034; ipmctl 03.00.00.0468, ipmctl-pbr-overview). Nothing was found for the 300 series; the
/// values of the 200 series are used. Other sizes use the share of the smallest of the 100 series. A plan advises to
/// compare.
pub fn module_bytes(printed: u64, series: Series) -> u64 {
    let thousandths = match (series, printed / GIB) {
        (Series::S100, 128) => 126_422,
        (Series::S100, 256) => 252_454,
        (Series::S100, 512) => 502_599,
        (Series::S200 | Series::S300, 128) => 126_742,
        (Series::S200 | Series::S300, 256) => 253_734,
        (Series::S200 | Series::S300, 512) => 507_688,
        _ => return printed / 1280 * 1264,
    };
    // Capacities are multiples of 4 KiB; the rounding of ipmctl's output is smaller than that.
    thousandths * (GIB / 4096) / 1000 * 4096
}

/// Where a mapped namespace keeps 64 bytes for each of its pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Map {
    /// On the persistent memory itself: 1/64 of it.
    #[default]
    Dev,
    /// In DRAM: all of the namespace is usable, but it takes 16 GiB of DRAM per TiB.
    Mem,
}

impl Map {
    /// The name in ndctl.
    pub fn as_str(self) -> &'static str {
        match self {
            Map::Dev => "dev",
            Map::Mem => "mem",
        }
    }
}

/// Bytes for data in a namespace of `bytes`; 0 if it is too small for its own metadata.
pub fn usable(mode: NamespaceMode, map: Map, bytes: u64) -> u64 {
    match mode {
        NamespaceMode::Raw => bytes,
        NamespaceMode::Fsdax | NamespaceMode::Devdax => {
            let pages = match map {
                Map::Dev => bytes / 4096 * 64,
                Map::Mem => 0,
            };
            bytes.saturating_sub((8192 + pages).next_multiple_of(2 * MIB))
        }
        NamespaceMode::Sector => sector_usable(bytes),
    }
}

/// BTT (UEFI 2.7, chapter 6): arenas of up to 512 GiB, each with two info blocks, a log of 256 lanes of 64
/// bytes, a map of 4 bytes a block, and 256 blocks that no map entry names. Blocks of 4 KiB.
fn sector_usable(bytes: u64) -> u64 {
    const BLOCK: u64 = 4096;
    // The first page is not used: label format 1.1, which ndctl writes on modules without support for a newer one,
    // begins after it.
    let mut rest = bytes.saturating_sub(BLOCK);
    let mut blocks = 0;
    // An arena is at least 16 MiB.
    while rest >= 16 * MIB {
        let arena = rest.min(512 * GIB);
        blocks += ((arena - 3 * BLOCK - 256 * 64) / (BLOCK + 4)).saturating_sub(256);
        rest -= arena;
    }
    blocks * BLOCK
}

/// Parses `128GiB`, `128g`, `1.5TiB`, `512 MiB` or a plain number of bytes. Units are powers of 1024; GB means GiB, as
/// on the labels of modules.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(unit),
        Some(_) => {
            let bytes = number.parse::<f64>().ok()? * unit as f64;
            (bytes.is_finite() && bytes < (1u64 << 60) as f64).then_some(bytes as u64)
        }
    }
}

/// `1.5 TiB`, `126 GiB`, `376 MiB`: at most two decimals, never rounded up.
pub fn print_bytes(bytes: u64) -> String {
    for (unit, size) in [("TiB", 1u64 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)] {
        if bytes >= size {
            let hundredths = u128::from(bytes) * 100 / u128::from(size);
            let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
            let text = text.trim_end_matches('0').trim_end_matches('.');
            return format!("{text} {unit}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_namespace_is_what_linux_and_ndctl_left_in_a_guest() {
        assert_eq!(usable(NamespaceMode::Fsdax, Map::Dev, 384 * MIB), 394_264_576, "seen: 376 MiB");
        assert_eq!(usable(NamespaceMode::Devdax, Map::Mem, 256 * MIB), 266_338_304, "seen: 254 MiB");
        assert_eq!(usable(NamespaceMode::Sector, Map::Dev, 128 * MIB), 133_005_312, "seen: 126.84 MiB");
    }

    #[test]
    fn a_namespace_of_1500_gib_leaves_1476() {
        // ndctl issue 149: requested 1500 G, got 1476 G.
        assert_eq!(usable(NamespaceMode::Fsdax, Map::Dev, 1500 * GIB) / GIB, 1476);
    }

    #[test]
    fn a_namespace_smaller_than_its_metadata_leaves_nothing() {
        for mode in [NamespaceMode::Fsdax, NamespaceMode::Devdax, NamespaceMode::Sector] {
            for bytes in [0, 4096, MIB] {
                assert_eq!(usable(mode, Map::Dev, bytes), 0, "{mode:?} {bytes}");
            }
        }
    }

    #[test]
    fn alignment_follows_the_number_of_modules_that_do_not_divide_sixteen() {
        let aligns: Vec<u64> = [1, 2, 3, 4, 6, 8].into_iter().map(|ways| region_align(ways) / MIB).collect();
        assert_eq!(aligns, [16, 16, 48, 16, 96, 16]);
        assert!((1..=8).all(|ways| region_align(ways).is_multiple_of(ways * 2 * MIB)), "ndctl's own rule holds too");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("128GiB", 128 * GIB),
            ("128g", 128 * GIB),
            ("1.5TiB", 1536 * GIB),
            ("512 MiB", 512 * MIB),
            ("4096", 4096),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "GiB", "12 parsecs", "1.2.3G", "-1G", "99999999999T", "1e5"] {
            assert_eq!(parse_bytes(text), None, "{text:?}");
        }
    }

    #[test]
    fn sizes_are_printed_without_rounding_up() {
        let cases = [
            (0, "0 B"),
            (1536 * GIB, "1.5 TiB"),
            (394_264_576, "376 MiB"),
            (133_005_312, "126.84 MiB"),
            (GIB - 1, "1023.99 MiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(print_bytes(bytes), text);
        }
    }
}
