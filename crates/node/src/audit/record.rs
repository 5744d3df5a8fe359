//! The record of an entry in the journal, and the chain of their hashes.
//!
//! ```text
//! AUDIT (kind 4)                                       then seven texts, each u16 length + UTF-8:
//!   u8  version = 1                                      actor, protocol, address, session, action, object, reason
//!   u8  flags        (bit 0: a text was cut)           then the reads
//!   u8  outcome      (0 granted, 1 refused, 2 failed)    u64 count
//!   u8  kind of actor (0 node, 1 local, 2 role,          u8  1 where a range is wider than what was read
//!                     3 claimed)                         u8  ranges, each u64 first, u64 last message id
//!   u32 id of the actor, 2^32 - 1 for none             then the details
//!   u64 number, from 1                                   u8  details, each text of its name, text of its value;
//!   u64 time, microseconds since 1970                        names ascending
//!   u64 bytes of all entries before it, ever
//!   32  SHA-256 of the record of the entry before, zeros for the first
//! ```
//! All integers little endian. The hash of an entry is the SHA-256 of its whole record. The row of an entry is its record,
//! byte for byte.
//!
//! Invariants: decoding never panics on any bytes (fuzzed); what is decoded is encoded to the same bytes, so that there is one
//! record for an entry. A record has at most [`RECORD_BYTES_MAX`] bytes, whatever the entry says.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::entry::{Actor, ActorKind, AuditEntry, AuditOrigin, AuditOutcome, Reads};

/// Journal record kind of an entry.
pub const KIND_AUDIT: u8 = 4;

/// No record is longer.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

const VERSION: u8 = 1;
const FLAG_CUT: u8 = 1;
const NO_ID: u32 = u32::MAX;

/// The bounds of the texts, in their order: actor, protocol, address, session, action, object, reason.
const TEXTS_MAX: [usize; 7] = [256, 32, 128, 128, 64, 1024, 1024];
const DETAILS_MAX: usize = AuditEntry::DETAILS_MAX;
const NAME_MAX: usize = 64;
const VALUE_MAX: usize = AuditEntry::VALUE_BYTES_MAX;

/// The SHA-256 of a record.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntryHash(pub [u8; 32]);

impl EntryHash {
    /// Of the bytes of a record.
    pub fn of(record: &[u8]) -> EntryHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, record).as_ref());
        EntryHash(hash)
    }
}

impl fmt::Display for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<EntryHash> for String {
    fn from(hash: EntryHash) -> String {
        hash.to_string()
    }
}

impl FromStr for EntryHash {
    type Err = String;

    fn from_str(text: &str) -> Result<EntryHash, String> {
        let wrong = || format!("`{text}` is no hash: it has 64 digits 0 to 9, a to f");
        let digits: Option<Vec<u8>> = text.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or_else(wrong)?;
        let mut hash = [0; 32];
        hash.iter_mut().zip(digits.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
        Ok(EntryHash(hash))
    }
}

impl TryFrom<String> for EntryHash {
    type Error = String;

    fn try_from(text: String) -> Result<EntryHash, String> {
        text.parse()
    }
}

/// The number of an entry and its hash: with it kept elsewhere, nothing up to it can be removed or changed unnoticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// The number; 0 before the first entry.
    pub number: u64,
    /// The hash; zeros before the first entry.
    pub hash: EntryHash,
}

impl fmt::Display for AuditHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.hash)
    }
}

impl FromStr for AuditHead {
    type Err = String;

    fn from_str(text: &str) -> Result<AuditHead, String> {
        let parts = text.split_once(':').and_then(|(number, hash)| Some((number.parse().ok()?, hash)));
        let (number, hash) = parts.ok_or_else(|| format!("`{text}` is no head: write NUMBER:HASH"))?;
        Ok(AuditHead { number, hash: hash.parse()? })
    }
}

/// An entry with its place in the chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainedEntry {
    /// Its number, from 1.
    pub number: u64,
    /// When it was written, microseconds since 1970.
    pub time_us: u64,
    /// Bytes of all entries before it, ever.
    #[serde(skip)]
    pub bytes_before: u64,
    /// The hash of the entry before.
    pub previous: EntryHash,
    /// A text or the details were cut, because they were too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// What it says.
    #[serde(flatten)]
    pub entry: AuditEntry,
}

/// Texts of a record, written in their bounds.
struct Writer {
    out: Vec<u8>,
    cut: bool,
}

impl Writer {
    fn text(&mut self, text: &str, max: usize) {
        let kept = &text[..text.floor_char_boundary(max)];
        self.cut |= kept.len() < text.len();
        self.out.extend_from_slice(&(kept.len() as u16).to_le_bytes());
        self.out.extend_from_slice(kept.as_bytes());
    }
}

impl ChainedEntry {
    /// Its record.
    pub fn encode(&self) -> Vec<u8> {
        let AuditEntry { actor, origin, action, object, outcome, reason, reads, details, by_administrator: _ } =
            &self.entry;
        let mut writer = Writer { out: Vec::with_capacity(320), cut: self.cut };
        let (kind, id) = (kind_code(actor.kind), actor.id.unwrap_or(NO_ID));
        writer.out.extend_from_slice(&[VERSION, 0, *outcome as u8, kind]);
        writer.out.extend_from_slice(&id.to_le_bytes());
        for number in [self.number, self.time_us, self.bytes_before] {
            writer.out.extend_from_slice(&number.to_le_bytes());
        }
        writer.out.extend_from_slice(&self.previous.0);
        let texts = [&actor.name, &origin.protocol, &origin.address, &origin.session, action, object, reason];
        texts.into_iter().zip(TEXTS_MAX).for_each(|(text, max)| writer.text(text, max));
        writer.out.extend_from_slice(&reads.count.to_le_bytes());
        let ranges = &reads.ranges[..reads.ranges.len().min(Reads::RANGES_MAX)];
        writer.out.extend_from_slice(&[u8::from(reads.wide), ranges.len() as u8]);
        for (first, last) in ranges {
            writer.out.extend_from_slice(&first.to_le_bytes());
            writer.out.extend_from_slice(&last.to_le_bytes());
        }
        self.details(&mut writer, details);
        writer.out[1] = if writer.cut { FLAG_CUT } else { 0 };
        writer.out
    }

    fn details(&self, writer: &mut Writer, details: &BTreeMap<String, String>) {
        // Names that are cut may become alike: one of these is left out.
        let mut kept: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, value) in details {
            let short = &name[..name.floor_char_boundary(NAME_MAX)];
            if kept.len() == DETAILS_MAX || short.len() < name.len() {
                writer.cut = true;
            }
            if kept.len() < DETAILS_MAX {
                kept.entry(short).or_insert(value);
            }
        }
        writer.out.push(kept.len() as u8);
        for (name, value) in kept {
            writer.text(name, NAME_MAX);
            writer.text(value, VALUE_MAX);
        }
    }

    /// Reads a record; none where the bytes are not one of this version.
    pub fn decode(record: &[u8]) -> Option<ChainedEntry> {
        let mut reader = Reader { rest: record };
        let [version, flags, outcome, kind] = reader.take()?;
        if version != VERSION || flags > FLAG_CUT || record.len() > RECORD_BYTES_MAX {
            return None;
        }
        let id = u32::from_le_bytes(reader.take()?);
        let (number, time_us, bytes_before) = (reader.number()?, reader.number()?, reader.number()?);
        let previous = EntryHash(reader.take()?);
        let mut texts = TEXTS_MAX.map(|_| String::new());
        for (text, max) in texts.iter_mut().zip(TEXTS_MAX) {
            *text = reader.text(max)?.to_owned();
        }
        let [name, protocol, address, session, action, object, reason] = texts;
        let actor = Actor { kind: actor_kind(kind)?, id: Some(id).filter(|id| *id != NO_ID), name };
        let origin = AuditOrigin { protocol, address, session };
        let (reads, details) = (reader.reads()?, reader.details()?);
        let outcome = outcome_of(outcome)?;
        let by_administrator = false;
        let entry = AuditEntry { actor, origin, action, object, outcome, reason, reads, details, by_administrator };
        let chained = ChainedEntry { number, time_us, bytes_before, previous, cut: flags == FLAG_CUT, entry };
        reader.rest.is_empty().then_some(chained)
    }
}

/// The number of a record, without the rest of it.
pub fn number_of(record: &[u8]) -> Option<u64> {
    (*record.first()? == VERSION).then_some(u64::from_le_bytes(*record.get(8..)?.first_chunk()?))
}

/// When the entry of a record was written, microseconds since 1970.
pub fn time_us(record: &[u8]) -> Option<u64> {
    (*record.first()? == VERSION).then_some(u64::from_le_bytes(*record.get(16..)?.first_chunk()?))
}

fn kind_code(kind: ActorKind) -> u8 {
    match kind {
        ActorKind::Node => 0,
        ActorKind::Local => 1,
        ActorKind::Role => 2,
        ActorKind::Claimed => 3,
    }
}

fn actor_kind(code: u8) -> Option<ActorKind> {
    [ActorKind::Node, ActorKind::Local, ActorKind::Role, ActorKind::Claimed].get(usize::from(code)).copied()
}

fn outcome_of(code: u8) -> Option<AuditOutcome> {
    [AuditOutcome::Granted, AuditOutcome::Refused, AuditOutcome::Failed].get(usize::from(code)).copied()
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, max: usize) -> Option<&'a str> {
        let len = usize::from(u16::from_le_bytes(self.take()?));
        let (taken, rest) = self.rest.split_at_checked(len).filter(|_| len <= max)?;
        self.rest = rest;
        std::str::from_utf8(taken).ok()
    }

    fn reads(&mut self) -> Option<Reads> {
        let count = self.number()?;
        let [wide, ranges] = self.take()?;
        let mut reads = Reads { count, ranges: Vec::new(), wide: wide == 1 };
        for _ in 0..ranges {
            let (first, last) = (self.number()?, self.number()?);
            let is_apart = reads.ranges.last().is_none_or(|(_, end)| *end < first);
            reads.ranges.push((is_apart && first <= last).then_some((first, last))?);
        }
        (wide <= 1 && usize::from(ranges) <= Reads::RANGES_MAX).then_some(reads)
    }

    fn details(&mut self) -> Option<BTreeMap<String, String>> {
        let [count] = self.take()?;
        let mut details = BTreeMap::new();
        for _ in 0..count {
            let (name, value) = (self.text(NAME_MAX)?, self.text(VALUE_MAX)?);
            let is_ascending = details.last_key_value().is_none_or(|(last, _): (&String, _)| last.as_str() < name);
            is_ascending.then(|| details.insert(name.to_owned(), value.to_owned()))?;
        }
        (usize::from(count) <= DETAILS_MAX).then_some(details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> ChainedEntry {
        let actor = Actor { kind: ActorKind::Local, id: Some(1_000), name: "ada".to_owned() };
        let origin = AuditOrigin { protocol: "control".into(), address: "unix".into(), session: "7".into() };
        let entry =
            AuditEntry { actor, origin, reads: Reads::one(4_711), ..AuditEntry::new("message.body", "message 4711") };
        let entry = entry.ended(AuditOutcome::Failed, "T-1").with("pid", "42");
        let previous = EntryHash(std::array::from_fn(|n| n as u8));
        ChainedEntry { number: 2, time_us: 3, bytes_before: 4, previous, cut: false, entry }
    }

    #[test]
    fn the_bytes_of_a_record_are_those_of_the_format() {
        let golden: &[u8] = b"\x01\x00\x02\x01\xe8\x03\0\0\
            \x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\
            \x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\
            \x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\
            \x03\0ada\x07\0control\x04\0unix\x01\x007\x0c\0message.body\x0c\0message 4711\x03\0T-1\
            \x01\0\0\0\0\0\0\0\x00\x01\x67\x12\0\0\0\0\0\0\x67\x12\0\0\0\0\0\0\
            \x01\x03\0pid\x02\x0042";
        assert_eq!(entry().encode(), golden);
        assert_eq!(ChainedEntry::decode(golden), Some(entry()));
        assert_eq!((number_of(golden), time_us(golden)), (Some(2), Some(3)));
        let head = AuditHead { number: 2, hash: EntryHash::of(golden) };
        assert_eq!(head.to_string().parse(), Ok(head));
        assert_eq!(
            EntryHash::of(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn the_largest_entry_is_cut_to_the_bound_says_so_and_reads_back_the_same() {
        let long = "\u{e9}".repeat(5_000);
        let mut large = entry();
        let AuditEntry { actor, origin, action, object, reason, .. } = &mut large.entry;
        for text in
            [&mut actor.name, &mut origin.protocol, &mut origin.address, &mut origin.session, action, object, reason]
        {
            text.clone_from(&long);
        }
        large.entry.details = (0..40).map(|n| (format!("{n:02}{long}"), long.clone())).collect();
        (0..500).for_each(|n| large.entry.reads.push(n * 10));
        let bytes = large.encode();
        assert!(bytes.len() <= RECORD_BYTES_MAX, "{}", bytes.len());
        let read = ChainedEntry::decode(&bytes).expect("it is one");
        assert!(read.cut && read.entry.reads.count == 501 && read.entry.details.len() == DETAILS_MAX);
        assert_eq!(read.encode(), bytes);
    }

    #[test]
    fn every_shorter_or_longer_record_is_refused() {
        let bytes = entry().encode();
        assert!((0..bytes.len()).all(|end| ChainedEntry::decode(&bytes[..end]).is_none()));
        assert_eq!(ChainedEntry::decode(&[&bytes[..], b"x"].concat()), None);
    }

    #[test]
    fn what_is_no_head_is_refused_with_how_to_write_one() {
        for text in ["", "7", "7:", "x:00", "7:zz", &format!("7:{}", "0".repeat(63))] {
            assert!(text.parse::<AuditHead>().is_err(), "{text}");
        }
    }
}
