//! Records accesses as a profile, in bounded memory.
//!
//! ```text
//!   access -> counts of its interval and structure                                     always
//!          -> Shards: reuse distances, one sample for all structures                   its hash is below the sample's threshold
//!          -> stream: chunks in a spool                                                its hash is below the stream's threshold
//! ```
//!
//! Structures share the memory, as they share a page cache: the distance of an access counts the bytes of all structures, and is added to
//! the histogram of its own. Those that are beside the page cache ([`RecorderOptions::beside`]) have a sample of their own each, and their
//! distances count their own bytes alone.
//!
//! The stream's threshold falls when it has more than `stream_keys` different keys, or when the file would be too large.
//!
//! An importer passes every access ([`Recorder::record`]). A node, which must not be slowed down, passes only those whose hashes are below
//! [`Recorder::threshold`] ([`Recorder::sample`]), and how many there were of all ([`Recorder::count`]). Its chunks are in a file with a name,
//! with what is known every few minutes ([`Recorder::save`]), so that [`recover`](crate::recover) makes a profile of them after a crash.

use std::collections::{BinaryHeap, HashSet};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use foldhash::fast::FixedState;

use crate::ProfileError;
use crate::beside::BesideSamples;
use crate::chunk::{CHUNK_ENTRIES, Chunk, StreamEntry};
use crate::format::REUSE_BUCKETS_MAX;
use crate::hash::Salt;
use crate::node_use::NodeFigures;
use crate::reuse::{BUCKET_BYTES, KEYS_DEFAULT, ReuseCounts, Sampled, Shards};
use crate::spool::{FILE_BYTES_DEFAULT, Spool, SpoolPlace};
use crate::summary::{INTERVALS_MAX, Interval, Lack, Origin, PAGE_BYTES_MAX, STRUCTURES_MAX, StructureUse, Summary};
use crate::write_guard::WriteGuard;
use crate::writer::{encode_state, write};

/// Keys of the stream, if nothing else is said.
pub const STREAM_KEYS_DEFAULT: usize = 64 * 1024;
/// Length of an interval at first, seconds.
const INTERVAL_S: u64 = 3600;
const MICROS: u64 = 1_000_000;
/// What the file takes beside its stream, about.
const BESIDE_BYTES: u64 = 1 << 20;
/// Buckets of all intervals together at most, when a new one begins: 4 MiB.
const INTERVAL_BUCKETS_MAX: usize = (4 << 20) / BUCKET_BYTES;

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

/// An access whose hash was computed where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledAccess {
    /// Microseconds after the begin; a smaller one than before counts as the one before.
    pub time_us: u64,
    /// The salted hash of the page.
    pub hash: u64,
    /// Its bytes, at least 1.
    pub bytes: u32,
    /// The number of its structure.
    pub structure: u8,
    /// Whether it writes.
    pub is_write: bool,
    /// Whether it makes the page.
    pub is_new: bool,
}

/// How many accesses there were to a structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Accesses that read.
    pub reads: u64,
    /// Accesses that wrote.
    pub writes: u64,
    /// Pages that were made.
    pub made: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes of the pages that were made.
    pub made_bytes: u64,
}

/// How a profile is recorded.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The secret of its hashes.
    pub salt: Salt,
    /// Names of the structures.
    pub structures: Vec<String>,
    /// Numbers of structures that do not go through the page cache. Default none.
    pub beside: Vec<u8>,
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
    /// A file for the part that is recorded, which must not exist; without one, nothing is left of an interrupted recording.
    pub part: Option<PathBuf>,
    /// Whether large pieces may be written. Default: always.
    pub guard: WriteGuard,
}

impl RecorderOptions {
    /// Defaults, with temporary files in `folder`.
    pub fn new(salt: Salt, structures: &[&str], page_bytes: u64, folder: &Path) -> RecorderOptions {
        RecorderOptions {
            salt,
            structures: structures.iter().map(|name| (*name).to_owned()).collect(),
            beside: Vec::new(),
            page_bytes,
            keys: KEYS_DEFAULT,
            stream_keys: STREAM_KEYS_DEFAULT,
            file_bytes: FILE_BYTES_DEFAULT,
            folder: folder.to_owned(),
            part: None,
            guard: WriteGuard::default(),
        }
    }
}

/// See the head comment of this file.
pub struct Recorder {
    options: RecorderOptions,
    /// The sample of the page cache.
    shards: Shards,
    /// Those of structures beside it.
    beside: BesideSamples,
    intervals: Vec<Interval>,
    interval_s: u64,
    last_us: u64,
    /// Time of the last count, which may be after the last access.
    counted_us: u64,
    times_back: u64,
    chunk: Chunk,
    spool: Spool,
    threshold: Option<u64>,
    stream_hashes: BinaryHeap<u64>,
    stream_set: HashSet<u64, FixedState>,
    about: Option<About>,
}

/// What the caller knows about a profile.
#[derive(Clone)]
struct About {
    origin: Origin,
    lacks: Vec<Lack>,
    figures: Option<NodeFigures>,
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
        if options.beside.iter().any(|structure| usize::from(*structure) >= options.structures.len()) {
            return refuse("what is beside the page cache is a structure");
        }
        if options.file_bytes < 2 * BESIDE_BYTES {
            return refuse("a profile needs at least 2 MiB");
        }
        let place = match &options.part {
            Some(part) => SpoolPlace::Named(part.clone()),
            None => SpoolPlace::Unnamed(options.folder.clone()),
        };
        let spool = Spool::new(place, options.file_bytes - BESIDE_BYTES, options.guard.clone())?;
        Ok(Recorder {
            shards: Shards::new(options.keys),
            beside: BesideSamples::of(&options.beside, options.keys),
            intervals: Vec::new(),
            interval_s: INTERVAL_S,
            last_us: 0,
            counted_us: 0,
            times_back: 0,
            chunk: Chunk::default(),
            spool,
            threshold: None,
            stream_hashes: BinaryHeap::new(),
            stream_set: HashSet::default(),
            about: None,
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
        let sampled = self.distance(hash, bytes, access.structure);
        let used = &mut self.interval().structures[usize::from(access.structure)];
        used.reuse.count(sampled);
        let (count, sum) = match access.is_write {
            true => (&mut used.writes, &mut used.write_bytes),
            false => (&mut used.reads, &mut used.read_bytes),
        };
        *count += 1;
        *sum = sum.saturating_add(bytes.into());
        if self.threshold.is_none_or(|threshold| hash < threshold) {
            let (time_us, structure, is_write) = (self.last_us, access.structure, access.is_write);
            self.stream(StreamEntry { time_us, hash, bytes, structure, is_write, is_new: false })?;
        }
        Ok(sampled)
    }

    /// What the sample of its memory says about an access.
    fn distance(&mut self, hash: u64, bytes: u32, structure: u8) -> Option<Sampled> {
        let most = self.threshold();
        match self.beside.of_structure(structure) {
            None => self.shards.access(hash, bytes.into()),
            Some(beside) => beside.access(hash, bytes.into(), most),
        }
    }

    /// Adds reads from a device, and their bytes, of a structure beside the page cache whose memory is its own.
    pub fn device_reads(&mut self, structure: u8, counted: (u64, u64)) {
        if let Some(beside) = self.beside.of_structure(structure) {
            beside.add_device_reads(counted);
        }
    }

    /// Hashes at or above are in neither sample: accesses to them need not be passed. Structures beside the page cache are sampled as far as
    /// it and the stream are.
    pub fn threshold(&self) -> u64 {
        let of = |threshold: Option<u64>| threshold.unwrap_or(u64::MAX);
        of(self.threshold).max(of(self.shards.threshold()))
    }

    /// From now on hashes at or above are in neither sample.
    pub fn lower(&mut self, threshold: u64) {
        self.shards.lower(threshold);
        self.beside.lower(threshold);
        if self.threshold.is_none_or(|before| threshold < before) {
            self.lower_stream(threshold);
        }
    }

    /// Records an access that is counted elsewhere. Panics if its structure has no name.
    ///
    /// # Errors
    /// Those of writing the temporary file.
    pub fn sample(&mut self, access: SampledAccess) -> Result<(), ProfileError> {
        let SampledAccess { hash, structure, is_write, is_new, .. } = access;
        assert!(usize::from(structure) < self.options.structures.len(), "structure {structure}");
        self.last_us = self.last_us.max(access.time_us);
        let bytes = access.bytes.max(1);
        let sampled = self.distance(hash, bytes, structure);
        if !is_new {
            self.interval().structures[usize::from(structure)].reuse.add_sampled(sampled);
        }
        if self.threshold.is_none_or(|threshold| hash < threshold) {
            self.stream(StreamEntry { time_us: self.last_us, hash, bytes, structure, is_write, is_new })?;
        }
        Ok(())
    }

    /// Counts all accesses to a structure since the last call, up to now. Panics if it has no name.
    pub fn count(&mut self, time_us: u64, structure: u8, counts: AccessCounts) {
        // Accesses that are sampled later have their own times.
        self.counted_us = self.counted_us.max(time_us);
        if counts == AccessCounts::default() {
            return;
        }
        let used = &mut self.interval().structures[usize::from(structure)];
        used.reads += counts.reads;
        used.writes += counts.writes;
        used.made += counts.made;
        used.read_bytes += counts.read_bytes;
        used.write_bytes += counts.write_bytes;
        used.made_bytes += counts.made_bytes;
        used.reuse.accesses += counts.reads + counts.writes;
    }

    /// Sets what the profile says beside the accesses.
    pub fn set_about(&mut self, origin: Origin, lacks: &[Lack], figures: NodeFigures) {
        self.about = Some(About { origin, lacks: lacks.to_vec(), figures: Some(figures) });
    }

    /// Saves what is known now in the part, and makes it durable. Does nothing without a part, or before [`set_about`](Recorder::set_about).
    ///
    /// # Errors
    /// Those of writing.
    pub fn save(&mut self) -> Result<(), ProfileError> {
        if self.about.is_some() && self.spool.is_named() {
            self.spill()?;
        }
        if let Some(state) = self.state()?
            && self.spool.push_state(&state)?
        {
            self.spool.thin(self.threshold.unwrap_or(u64::MAX), Some(&state))?;
        }
        Ok(())
    }

    /// The bytes of a state.
    fn state(&self) -> Result<Option<Vec<u8>>, ProfileError> {
        match &self.about {
            Some(about) if self.spool.is_named() => encode_state(&self.summary(about.clone())).map(Some),
            _ => Ok(None),
        }
    }

    /// The reuse of all structures in the page cache so far.
    pub fn reuse(&self) -> ReuseCounts {
        self.used().iter().enumerate().fold(ReuseCounts::default(), |mut sum, (structure, used)| {
            if !self.beside.has(structure) {
                sum.merge(&used.reuse);
            }
            sum
        })
    }

    /// What each structure was used for so far.
    pub fn used(&self) -> Vec<StructureUse> {
        let mut sums = vec![StructureUse::default(); self.options.structures.len()];
        for interval in &self.intervals {
            sums.iter_mut().zip(&interval.structures).for_each(|(sum, used)| sum.merge(used));
        }
        sums
    }

    /// Bytes of the part, or of the temporary file, about.
    pub fn written_bytes(&self) -> u64 {
        self.spool.bytes()
    }

    /// Accesses in the stream so far.
    pub fn stream_entries(&self) -> u64 {
        self.spool.entries() + self.chunk.entries.len() as u64
    }

    /// The number of pages of the page cache that were used so far, and their bytes: estimates.
    pub fn touched(&self) -> (f64, f64) {
        self.shards.touched()
    }

    /// The same of a structure beside it; `None`: it is not beside it.
    pub fn touched_beside(&self, structure: u8) -> Option<(f64, f64)> {
        self.beside.touched(structure)
    }

    /// Length of an interval at present, seconds: an hour, or more if it has recorded for long.
    pub fn interval_s(&self) -> u64 {
        self.interval_s
    }

    /// Memory that it takes, bytes: about.
    pub fn memory_bytes(&self) -> usize {
        let intervals = self.buckets() * BUCKET_BYTES + self.intervals.len() * self.options.structures.len() * 160;
        let stream = self.stream_hashes.capacity() * 8 + self.stream_set.capacity() * 8 / 7 * 9;
        let chunk = self.chunk.entries.capacity() * std::mem::size_of::<StreamEntry>();
        self.shards.memory_bytes() + self.beside.memory_bytes() + intervals + stream + chunk
    }

    fn buckets(&self) -> usize {
        let used = self.intervals.iter().flat_map(|interval| &interval.structures);
        used.map(|used| used.reuse.distances.made()).sum()
    }

    /// The interval of the present time.
    fn interval(&mut self) -> &mut Interval {
        let begin = |interval_s: u64, time_us: u64| time_us / MICROS / interval_s * interval_s;
        let begin_s = begin(self.interval_s, self.last_us.max(self.counted_us));
        let is_new = self.intervals.last().is_none_or(|last| last.begin_s < begin_s);
        let is_full = |recorder: &Recorder| {
            let many = recorder.intervals.len();
            many == INTERVALS_MAX || many > 2 && recorder.buckets() > INTERVAL_BUCKETS_MAX
        };
        if is_new && is_full(self) {
            self.widen();
            return self.interval();
        }
        if is_new {
            let structures = vec![StructureUse::default(); self.options.structures.len()];
            self.intervals.push(Interval { begin_s, structures });
        }
        let last = self.intervals.len() - 1;
        &mut self.intervals[last]
    }

    /// Makes intervals twice as long.
    fn widen(&mut self) {
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
            if threshold == 0 {
                let why = "one page alone is used more often than the file has room for";
                return Err(ProfileError::Refused(why.into()));
            }
            self.lower_stream(threshold);
            is_large = self.spool.thin(threshold, self.state()?.as_deref())?;
        }
        Ok(())
    }

    /// Forgets the hashes at and above a threshold in the stream; chunks that are written keep theirs.
    fn lower_stream(&mut self, threshold: u64) {
        self.threshold = Some(threshold);
        while self.stream_hashes.peek().is_some_and(|hash| *hash >= threshold) {
            if let Some(hash) = self.stream_hashes.pop() {
                self.stream_set.remove(&hash);
            }
        }
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
        let about = About { origin, lacks: lacks.to_vec(), figures: None };
        self.write(about, out)
    }

    /// As [`finish`](Recorder::finish), with what [`set_about`](Recorder::set_about) was told, into a file that does not exist: it is whole
    /// and durable, or not there. The part is removed then; after an error it stays.
    ///
    /// # Errors
    /// Those of writing; there is a file of that name.
    pub fn finish_as(mut self, path: &Path) -> Result<Summary, ProfileError> {
        let about = self.about.clone();
        let about = about.ok_or_else(|| ProfileError::Refused("nothing is known about the profile".into()))?;
        let part = self.options.part.take();
        self.options.guard.check_room(self.spool.bytes().saturating_mul(if self.threshold.is_some() {
            2
        } else {
            1
        }))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.options.folder)?;
        let summary = {
            let mut out = BufWriter::new(file.as_file_mut());
            let summary = self.write(about, &mut out)?;
            out.flush()?;
            summary
        };
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        if let Some(part) = part {
            std::fs::remove_file(part)?;
        }
        std::fs::File::open(&self.options.folder)?.sync_all()?;
        Ok(summary)
    }

    fn write(&mut self, about: About, out: &mut impl Write) -> Result<Summary, ProfileError> {
        self.spill()?;
        if let Some(threshold) = self.threshold {
            // Early chunks may have ten times the hashes that the last one allows: nobody needs those.
            let state = self.state()?;
            self.spool.thin(threshold, state.as_deref())?;
        }
        // What a reader refuses is not written.
        while self.buckets() > REUSE_BUCKETS_MAX {
            self.widen();
        }
        let summary = self.summary(about);
        write(&summary, &mut self.spool, out)?;
        Ok(summary)
    }

    fn summary(&self, About { origin, mut lacks, figures }: About) -> Summary {
        let (keys, bytes) = self.shards.touched();
        lacks.sort_unstable();
        lacks.dedup();
        let mut summary = Summary {
            origin: Origin { times_back: self.times_back, ..origin },
            lacks,
            seconds: self.last_us.max(self.counted_us).div_ceil(MICROS),
            page_bytes: self.options.page_bytes,
            structures: self.options.structures.clone(),
            beside: self.beside.report(),
            touched_keys: keys.round() as u64,
            touched_bytes: bytes.round() as u64,
            interval_s: self.interval_s,
            intervals: self.intervals.clone(),
            stream_rate: self.threshold.map_or(1.0, |threshold| threshold as f64 / 2f64.powi(64)),
            stream_threshold: self.threshold,
            stream_entries: self.spool.entries(),
            write_backs: None,
            journal: None,
            committers: None,
            cpu: Vec::new(),
            node: None,
        };
        if let Some(NodeFigures { node, write_backs, journal, committers, cpu }) = figures {
            (summary.write_backs, summary.journal, summary.committers) =
                (Some(write_backs), Some(journal), Some(committers));
            (summary.cpu, summary.node) = (cpu, Some(node));
        }
        summary
    }
}
