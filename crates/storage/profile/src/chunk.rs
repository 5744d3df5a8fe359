//! A chunk of the sampled stream: up to 65,536 accesses, by columns, because columns pack well.
//!
//! ```text
//!    0   8  threshold: hashes at or above were not sampled when the chunk was written; 0: all were
//!    8   8  time of the first access, microseconds after the begin of the profile
//!   16   4  n: accesses, at least 1         20   4  m: different hashes
//!   24      m times: 8 hash                 in the order of their first access
//!           n times: 2 which of them
//!           n times: varint of the microseconds since the access before
//!           n times: varint of the bytes
//!           n times: 1 structure, and 128 for a write, 64 for a page that was made
//! ```

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::format::{Fields, put_varint};
use crate::summary::STRUCTURES_MAX;

/// Accesses of a chunk at most: each of its hashes has a number of 16 bits.
pub const CHUNK_ENTRIES: usize = 1 << 16;

/// The bit of a write.
const WRITE: u8 = 1 << 7;
/// The bit of a page that was made.
const NEW: u8 = 1 << 6;

/// An access of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// Microseconds after the begin of the profile; never before the access in front of it.
    pub time_us: u64,
    /// The salted hash of the page or key.
    pub hash: u64,
    /// Bytes of the page or object.
    pub bytes: u32,
    /// The number of its structure in the summary.
    pub structure: u8,
    /// Whether it wrote.
    pub is_write: bool,
    /// Whether it made the page: that takes memory, and is neither a hit nor a miss. A trace of another program has none.
    pub is_new: bool,
}

/// Accesses that follow each other in the sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Hashes at or above were not sampled; `None`: all were.
    pub threshold: Option<u64>,
    /// The accesses, by time.
    pub entries: Vec<StreamEntry>,
}

impl Chunk {
    /// Its bytes. Panics without accesses, or with more than [`CHUNK_ENTRIES`].
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!((1..=CHUNK_ENTRIES).contains(&self.entries.len()), "{} accesses in a chunk", self.entries.len());
        let mut numbers: HashMap<u64, u16, FixedState> = HashMap::default();
        let (mut hashes, mut which) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            let next = numbers.len() as u16;
            let number = *numbers.entry(entry.hash).or_insert_with(|| {
                hashes.extend(entry.hash.to_le_bytes());
                next
            });
            which.extend(number.to_le_bytes());
        }
        let first_us = self.entries[0].time_us;
        let mut out = Vec::with_capacity(24 + hashes.len() + 6 * self.entries.len());
        out.extend(self.threshold.unwrap_or(0).to_le_bytes());
        out.extend(first_us.to_le_bytes());
        out.extend((self.entries.len() as u32).to_le_bytes());
        out.extend((numbers.len() as u32).to_le_bytes());
        out.extend(hashes);
        out.extend(which);
        let mut before = first_us;
        for entry in &self.entries {
            put_varint(&mut out, entry.time_us - before);
            before = entry.time_us;
        }
        for entry in &self.entries {
            put_varint(&mut out, entry.bytes.into());
        }
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        out.extend(
            self.entries.iter().map(|entry| entry.structure | flag(entry.is_write, WRITE) | flag(entry.is_new, NEW)),
        );
        out
    }

    /// Decodes a chunk; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Chunk> {
        let mut fields = Fields(bytes);
        let threshold = Some(fields.u64()?).filter(|threshold| *threshold > 0);
        let mut time_us = fields.u64()?;
        let (entries, many) = (fields.u32()? as usize, fields.u32()? as usize);
        if !(1..=CHUNK_ENTRIES).contains(&entries) || many > entries {
            return None;
        }
        let (hashes, _) = fields.take(many * 8)?.as_chunks::<8>();
        let (which, _) = fields.take(entries * 2)?.as_chunks::<2>();
        let mut found = Vec::with_capacity(entries);
        for number in which {
            let hash = u64::from_le_bytes(*hashes.get(usize::from(u16::from_le_bytes(*number)))?);
            time_us = time_us.checked_add(fields.varint()?)?;
            if threshold.is_some_and(|threshold| hash >= threshold) {
                return None;
            }
            found.push(StreamEntry { time_us, hash, bytes: 0, structure: 0, is_write: false, is_new: false });
        }
        for entry in &mut found {
            entry.bytes = u32::try_from(fields.varint()?).ok()?;
        }
        for entry in &mut found {
            let byte = *fields.take(1)?.first()?;
            (entry.structure, entry.is_write, entry.is_new) =
                (byte & !(WRITE | NEW), byte & WRITE != 0, byte & NEW != 0);
            if usize::from(entry.structure) >= STRUCTURES_MAX {
                return None;
            }
        }
        fields.0.is_empty().then_some(Chunk { threshold, entries: found })
    }

    /// Leaves only hashes below the threshold.
    pub fn thin(&mut self, threshold: u64) {
        self.entries.retain(|entry| entry.hash < threshold);
        self.threshold = Some(self.threshold.map_or(threshold, |before| before.min(threshold)));
    }
}
