//! Records accesses as a profile, in bounded memory.
//!
//! ```text
//!   access -> counts of its interval and structure                                     always
//!          -> Shards: reuse distances, one sample for all structures                   its hash is below the sample's threshold
//!          -> stream: chunks in a spool                                                its hash is below the stream's threshold
//! ```
//!
//! Structures share the memory, as they share a page cache: the distance of an access counts the bytes of all structures, and is added to
//! the histogram of its own. Curves of a structure that has a memory of its own are made from the stream.
//!
//! The stream's threshold falls when it has more than `stream_keys` different keys, or when the file would be too large.

use std::collections::{BinaryHeap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use foldhash::fast::FixedState;

use crate::ProfileError;
use crate::chunk::{CHUNK_ENTRIES, Chunk, StreamEntry};
use crate::format::{self, Kind, SECTION_BYTES_MAX, pack, write_section};
use crate::hash::Salt;
use crate::reuse::{KEYS_DEFAULT, Sampled, Shards};
use crate::spool::{FILE_BYTES_DEFAULT, Spool};
use crate::summary::{INTERVALS_MAX, Interval, Lack, Origin, PAGE_BYTES_MAX, STRUCTURES_MAX, StructureUse, Summary};

/// Keys of the stream, if nothing else is said.
pub const STREAM_KEYS_DEFAULT: usize = 64 * 1024;
/// Length of an interval at first, seconds.
const INTERVAL_S: u64 = 3600;
const MICROS: u64 = 1_000_000;
/// What the file takes beside its stream at most.
const BESIDE_BYTES: u64 = 1 << 20;

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Microseconds after the begin; a smaller one than before counts as the one before.
    pub time_us: u64,
    /// The page or object: any number that is its own.
    pub key: u64,
    /// Its bytes, at least 1.
    pub bytes: u32,
    /// The number of its structure.
    pub structure: u8,
    /// Whether it writes.
    pub is_write: bool,
}

/// How a profile is recorded.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The secret of its hashes.
    pub salt: Salt,
    /// Names of the structures.
    pub structures: Vec<String>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Keys of the sample of reuse distances. Default [`KEYS_DEFAULT`].
    pub keys: usize,
    /// Keys of the sampled stream. Default [`STREAM_KEYS_DEFAULT`].
    pub stream_keys: usize,
    /// The largest size of the file, bytes. Default [`FILE_BYTES_DEFAULT`].
    pub file_bytes: u64,
    /// Where temporary files go: the folder of the profile.
    pub folder: PathBuf,
}

impl RecorderOptions {
    /// Defaults, with temporary files in `folder`.
    pub fn new(salt: Salt, structures: &[&str], page_bytes: u64, folder: &Path) -> RecorderOptions {
        RecorderOptions {
            salt,
            structures: structures.iter().map(|name| (*name).to_owned()).collect(),
            page_bytes,
            keys: KEYS_DEFAULT,
            stream_keys: STREAM_KEYS_DEFAULT,
            file_bytes: FILE_BYTES_DEFAULT,
            folder: folder.to_owned(),
        }
    }
}

/// See the head comment of this file.
pub struct Recorder {
    options: RecorderOptions,
    shards: Shards,
    intervals: Vec<Interval>,
    interval_s: u64,
    last_us: u64,
    times_back: u64,
    chunk: Chunk,
    spool: Spool,
    threshold: Option<u64>,
    stream_hashes: BinaryHeap<u64>,
    stream_set: HashSet<u64, FixedState>,
}

impl Recorder {
    /// An empty profile.
    ///
    /// # Errors
    /// What is impossible about the options; those of making a temporary file.
    pub fn new(options: RecorderOptions) -> Result<Recorder, ProfileError> {
        let refuse = |what: &str| Err(ProfileError::Refused(what.to_owned()));
        if !(1..=STRUCTURES_MAX).contains(&options.structures.len()) {
            return refuse("a profile has 1 to 16 structures");
        }
        if !(1..=PAGE_BYTES_MAX).contains(&options.page_bytes) || options.keys == 0 || options.stream_keys == 0 {
            return refuse("pages have 1 byte to 1 MiB, and samples have keys");
        }
        if options.file_bytes < 2 * BESIDE_BYTES {
            return refuse("a profile needs at least 2 MiB");
        }
        let spool = Spool::new(&options.folder, options.file_bytes - BESIDE_BYTES)?;
        Ok(Recorder {
            shards: Shards::new(options.keys),
            intervals: Vec::new(),
            interval_s: INTERVAL_S,
            last_us: 0,
            times_back: 0,
            chunk: Chunk::default(),
            spool,
            threshold: None,
            stream_hashes: BinaryHeap::new(),
            stream_set: HashSet::default(),
            options,
        })
    }

    /// Records an access; returns what the sample says about it. Panics if its structure has no name.
    ///
    /// # Errors
    /// Those of writing the temporary file.
    pub fn record(&mut self, access: Access) -> Result<Option<Sampled>, ProfileError> {
        assert!(usize::from(access.structure) < self.options.structures.len(), "structure {}", access.structure);
        if access.time_us < self.last_us {
            self.times_back += 1;
        }
        self.last_us = self.last_us.max(access.time_us);
        let hash = self.options.salt.hash(access.key);
        let bytes = access.bytes.max(1);
        let sampled = self.shards.access(hash, bytes.into());
        let used = &mut self.interval().structures[usize::from(access.structure)];
        used.reuse.count(sampled);
        let (count, sum) = match access.is_write {
            true => (&mut used.writes, &mut used.write_bytes),
            false => (&mut used.reads, &mut used.read_bytes),
        };
        *count += 1;
        *sum = sum.saturating_add(bytes.into());
        if self.threshold.is_none_or(|threshold| hash < threshold) {
            let time_us = self.last_us;
            self.stream(StreamEntry { time_us, hash, bytes, structure: access.structure, is_write: access.is_write })?;
        }
        Ok(sampled)
    }

    /// The interval of the present time.
    fn interval(&mut self) -> &mut Interval {
        let begin = |interval_s: u64, time_us: u64| time_us / MICROS / interval_s * interval_s;
        let begin_s = begin(self.interval_s, self.last_us);
        let is_new = self.intervals.last().is_none_or(|last| last.begin_s < begin_s);
        if is_new && self.intervals.len() == INTERVALS_MAX {
            self.interval_s *= 2;
            for interval in std::mem::take(&mut self.intervals) {
                let begin_s = interval.begin_s / self.interval_s * self.interval_s;
                match self.intervals.last_mut().filter(|last| last.begin_s == begin_s) {
                    Some(last) => {
                        for (sum, used) in last.structures.iter_mut().zip(&interval.structures) {
                            sum.merge(used);
                        }
                    }
                    None => self.intervals.push(Interval { begin_s, ..interval }),
                }
            }
            return self.interval();
        }
        if is_new {
            let structures = vec![StructureUse::default(); self.options.structures.len()];
            self.intervals.push(Interval { begin_s, structures });
        }
        let last = self.intervals.len() - 1;
        &mut self.intervals[last]
    }

    fn stream(&mut self, entry: StreamEntry) -> Result<(), ProfileError> {
        self.chunk.entries.push(entry);
        if self.stream_set.insert(entry.hash) {
            self.stream_hashes.push(entry.hash);
            if self.stream_hashes.len() > self.options.stream_keys
                && let Some(largest) = self.stream_hashes.pop()
            {
                self.stream_set.remove(&largest);
                // Earlier chunks keep their threshold, this one is thinned when it is full.
                self.threshold = Some(largest);
            }
        }
        if self.chunk.entries.len() == CHUNK_ENTRIES { self.spill() } else { Ok(()) }
    }

    /// Puts the chunk into the spool.
    fn spill(&mut self) -> Result<(), ProfileError> {
        let mut chunk = std::mem::take(&mut self.chunk);
        if let Some(threshold) = self.threshold {
            chunk.thin(threshold);
        }
        let mut is_large = self.spool.push(&chunk)?;
        while is_large {
            let threshold = self.threshold.unwrap_or(u64::MAX) / 2;
            self.threshold = Some(threshold);
            while self.stream_hashes.peek().is_some_and(|hash| *hash >= threshold) {
                if let Some(hash) = self.stream_hashes.pop() {
                    self.stream_set.remove(&hash);
                }
            }
            if threshold == 0 {
                return Err(ProfileError::Refused(
                    "one page alone is used more often than the file has room for".into(),
                ));
            }
            is_large = self.spool.thin(threshold)?;
        }
        Ok(())
    }

    /// Microseconds of the last access.
    pub fn last_us(&self) -> u64 {
        self.last_us
    }

    /// Writes the profile. `out` gets all of it; on an error it has a part, which no reader takes for a profile.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self, origin: Origin, lacks: &[Lack], out: &mut impl Write) -> Result<Summary, ProfileError> {
        self.spill()?;
        if let Some(threshold) = self.threshold {
            // Early chunks may have ten times the hashes that the last one allows: nobody needs those.
            self.spool.thin(threshold)?;
        }
        let (keys, bytes) = self.shards.touched();
        let mut lacks = lacks.to_vec();
        lacks.sort_unstable();
        lacks.dedup();
        let summary = Summary {
            origin: Origin { times_back: self.times_back, ..origin },
            lacks,
            seconds: self.last_us.div_ceil(MICROS),
            page_bytes: self.options.page_bytes,
            structures: self.options.structures.clone(),
            touched_keys: keys.round() as u64,
            touched_bytes: bytes.round() as u64,
            interval_s: self.interval_s,
            intervals: std::mem::take(&mut self.intervals),
            stream_rate: self.threshold.map_or(1.0, |threshold| threshold as f64 / 2f64.powi(64)),
            stream_threshold: self.threshold,
            stream_entries: self.spool.entries(),
            write_backs: None,
            journal: None,
            committers: None,
            cpu: Vec::new(),
        };
        write(&summary, &mut self.spool, out)?;
        Ok(summary)
    }
}

fn write(summary: &Summary, spool: &mut Spool, out: &mut impl Write) -> Result<(), ProfileError> {
    let head = serde_json::to_vec(summary).map_err(|error| ProfileError::Refused(error.to_string()))?;
    let reuse = format::encode_reuse(summary);
    let tail_number = 2 + spool.chunks();
    let mut tail = Vec::new();
    tail.extend(tail_number.to_le_bytes());
    tail.extend(spool.entries().to_le_bytes());
    debug_assert!(head.len() as u64 <= SECTION_BYTES_MAX);
    out.write_all(&format::file_header())?;
    for (number, kind, content) in [(0, Kind::Head, &head), (1, Kind::Reuse, &reuse)] {
        write_section(out, kind, number, &pack(content)?, content.len() as u64)?;
    }
    spool.write_to(out, 2)?;
    write_section(out, Kind::Tail, tail_number, &pack(&tail)?, tail.len() as u64)
}
