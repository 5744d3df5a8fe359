//! Sizes in the form of `terrace.toml`: `"64 GiB"`, `"512MiB"`. A bare number is refused, because its unit would be
//! unclear.

use std::fmt;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let trimmed = text.trim();
        let (number, unit) = trimmed.split_at(trimmed.bytes().take_while(u8::is_ascii_digit).count());
        let factor = UNITS.iter().find(|(name, _)| *name == unit.trim()).map(|(_, factor)| *factor);
        let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
        bytes.map(Size).ok_or_else(|| {
            format!("`{text}` is not a size: write digits and B, KiB, MiB, GiB or TiB, as in \"64 GiB\"")
        })
    }
}

/// Exact if a unit divides it, else with one decimal.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS.iter().find(|(_, factor)| self.0 >= *factor).copied().unwrap_or(("B", 1));
        if self.0.is_multiple_of(factor) {
            write!(f, "{} {unit}", self.0 / factor)
        } else {
            write!(f, "{:.1} {unit}", self.0 as f64 / factor as f64)
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them_and_a_number_without_a_unit_is_refused() {
        for (text, bytes) in [("64 GiB", 64 << 30), ("64GiB", 64 << 30), (" 1 TiB ", 1 << 40), ("512B", 512)] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "64", "GiB", "1.5 GiB", "-1 B", "64 GB", "99999999999 TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(64 << 30).to_string(), "64 GiB");
        assert_eq!(Size((3 << 30) / 2).to_string(), "1.5 GiB");
    }
}
