//! Sizes, durations and character sets as written in a production: `"64MiB"`, `"30s"`, `"SHIFT_JIS"`.
//!
//! A bare number is refused on purpose: `timeout = 30` could mean seconds or milliseconds.

use std::fmt;
use std::time::Duration;

use hl7::charset::Charset;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::record;

/// A number of bytes, written `"512B"`, `"64KiB"`, `"16MiB"`, `"2GiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A span of time, written `"250ms"`, `"30s"`, `"5m"`, `"2h"`, `"30d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// The mode of a file, written `"0640"`: reading and writing, for the owner at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl FileMode {
    /// The mode of a folder whose files have this one: a user who may read or write them may list and enter it, one who may write may also
    /// add and remove.
    pub fn of_folder(self) -> u32 {
        self.0 | ((self.0 & 0o444) >> 2)
    }
}

impl Default for FileMode {
    fn default() -> FileMode {
        FileMode(0o600)
    }
}

impl std::str::FromStr for FileMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o066 == 0o600);
        mode.map(FileMode).ok_or_else(|| {
            format!("`{text}` is not a mode of files: write it in octal, with 6 for the owner, as in \"0640\"")
        })
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// A character set, by its name in HL7 table 0211 or by that of IANA: `"8859/15"`, `"SHIFT_JIS"`, `"windows-1252"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CharsetName(pub Charset);

const BYTE_UNITS: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SPAN_UNITS: &[(&str, u64)] =
    &[("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

impl Bytes {
    /// The size as a `usize`, saturating on machines whose addresses are narrower than 64 bits.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Reads digits and a unit of `units`; `None` where the text is anything else or the product does not fit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

impl std::str::FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, BYTE_UNITS)
            .map(Bytes)
            .ok_or_else(|| format!("`{text}` is not a size: write digits and B, KiB, MiB or GiB, as in \"64MiB\""))
    }
}

impl std::str::FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, SPAN_UNITS)
            .map(|us| Span(Duration::from_micros(us)))
            .ok_or_else(|| format!("`{text}` is not a duration: write digits and us, ms, s, m, h or d, as in \"30s\""))
    }
}

impl std::str::FromStr for CharsetName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Charset::named(text.as_bytes()).and_then(record::known_charset);
        known.map(CharsetName).ok_or_else(|| {
            format!(
                "`{text}` is not a character set that can be set here: write one of {}; UTF-16 is found by its first bytes",
                record::CHARSETS.join(", ")
            )
        })
    }
}

impl fmt::Display for CharsetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = largest(self.0, BYTE_UNITS.iter().copied());
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        let (unit, factor) = largest(us, SPAN_UNITS.iter().rev().copied());
        write!(f, "{}{unit}", us / factor)
    }
}

/// The largest unit that divides `value` without rest, so that printing loses nothing.
fn largest<'a>(value: u64, mut units: impl Iterator<Item = (&'a str, u64)> + Clone) -> (&'a str, u64) {
    let smallest = units.clone().last().expect("the unit tables are not empty");
    if value == 0 {
        return smallest;
    }
    units.find(|(_, factor)| value.is_multiple_of(*factor)).unwrap_or(smallest)
}

struct Text<T>(std::marker::PhantomData<T>);

impl<T: std::str::FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, as in \"30s\", \"64MiB\" or \"8859/1\"")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! serde_as_text {
    ($($kind:ty),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_str(Text::<$kind>(std::marker::PhantomData))
            }
        }
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
    )*};
}
serde_as_text!(Bytes, Span, FileMode, CharsetName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_of_files_is_octal_and_leaves_the_owner_in() {
        for (text, folder) in [("0600", 0o700), ("0640", 0o750), ("0660", 0o770), ("0644", 0o755), ("0666", 0o777)] {
            let mode: FileMode = text.parse().expect("a mode");
            assert_eq!((mode.to_string().as_str(), mode.of_folder()), (text, folder));
        }
        for text in ["", "0400", "0700", "0611", "600x", "9", "04600"] {
            assert!(text.parse::<FileMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_durations_read_back_as_they_print() {
        for (text, bytes) in [("0B", 0), ("512B", 512), ("64KiB", 65_536), ("16MiB", 16 << 20), ("2GiB", 2 << 30)] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        for (text, us) in [("250ms", 250_000), ("30s", 30_000_000), ("5m", 300_000_000), ("30d", 2_592_000_000_000)] {
            assert_eq!(text.parse::<Span>(), Ok(Span(Duration::from_micros(us))));
            assert_eq!(Span(Duration::from_micros(us)).to_string(), text);
        }
    }

    #[test]
    fn every_character_set_that_can_be_stored_reads_back_as_it_prints() {
        for name in record::CHARSETS {
            let set: CharsetName = name.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(set.to_string().parse(), Ok(set), "{name}");
        }
        for name in ["", "UTF-16", "JOHAB", "nonsense"] {
            assert!(name.parse::<CharsetName>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        for text in ["", "30", "s", "1.5s", "-1s", "99999999999999999999B", "99999999999GiB", "10 parsecs"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
