//! The chunks of the stream while a profile is recorded: in a temporary file without a name, or in one that survives its process.
//!
//! ```text
//!   part:  header | STRM | STRM | STAT | STRM | STAT ...        format.rs; a state is what was known when it was written
//!   too many bytes  ->  half of the hashes leave: every chunk is read, thinned and written anew, with one state
//! ```
//!
//! The profile that results is never larger than `bytes_max`; for a moment of thinning the disk holds both. A file with a name is replaced as a
//! whole, so that there is one which can be read at any moment.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::ProfileError;
use crate::chunk::Chunk;
use crate::format::{
    FILE_HEADER_BYTES, Kind, PART_MAGIC, SECTION_HEADER_BYTES, SectionHeader, file_header, pack, unpack, write_section,
};
use crate::write_guard::WriteGuard;

/// The largest size of a profile, if nothing else is said.
pub const FILE_BYTES_DEFAULT: u64 = 1 << 30;

/// States are written over by thinning when they take so much of the file.
const STATES_PART: u64 = 8;

/// Where the chunks are.
#[derive(Clone, Debug)]
pub(crate) enum SpoolPlace {
    /// In a file without a name in this folder: it ends with the process.
    Unnamed(PathBuf),
    /// In this file.
    Named(PathBuf),
}

/// See the head comment of this file.
pub(crate) struct Spool {
    file: BufWriter<File>,
    place: SpoolPlace,
    /// Of chunks, with their headers.
    bytes: u64,
    /// Of states.
    state_bytes: u64,
    bytes_max: u64,
    /// Chunks and states.
    sections: u32,
    chunks: u32,
    entries: u64,
    guard: WriteGuard,
}

impl Spool {
    /// An empty one.
    pub(crate) fn new(place: SpoolPlace, bytes_max: u64, guard: WriteGuard) -> Result<Spool, ProfileError> {
        let file = match &place {
            SpoolPlace::Unnamed(folder) => tempfile::tempfile_in(folder)?,
            SpoolPlace::Named(path) => File::options().read(true).write(true).create_new(true).open(path)?,
        };
        Spool::in_file(file, place, bytes_max, guard)
    }

    fn in_file(file: File, place: SpoolPlace, bytes_max: u64, guard: WriteGuard) -> Result<Spool, ProfileError> {
        let mut file = BufWriter::new(file);
        file.write_all(&file_header(PART_MAGIC))?;
        Ok(Spool { file, place, bytes: 0, state_bytes: 0, bytes_max, sections: 0, chunks: 0, entries: 0, guard })
    }

    /// Accesses in it.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Sections that it will be.
    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Bytes of the file, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.state_bytes
    }

    /// Whether it outlives its process.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self.place, SpoolPlace::Named(_))
    }

    fn section(&mut self, kind: Kind, content: &[u8]) -> Result<u64, ProfileError> {
        let packed = pack(content)?;
        write_section(&mut self.file, kind, self.sections, &packed, content.len() as u64)?;
        self.sections += 1;
        Ok((packed.len() + SECTION_HEADER_BYTES) as u64)
    }

    /// Adds a chunk. Returns whether it has become too large: the caller then thins it.
    pub(crate) fn push(&mut self, chunk: &Chunk) -> Result<bool, ProfileError> {
        if chunk.entries.is_empty() {
            return Ok(false);
        }
        self.bytes += self.section(Kind::Stream, &chunk.encode())?;
        self.chunks += 1;
        self.entries += chunk.entries.len() as u64;
        Ok(self.bytes > self.bytes_max || self.sections >= crate::format::SECTIONS_MAX - 8)
    }

    /// Adds what is known now, and makes the file durable up to here. Returns whether states take too much of it: the caller then thins it
    /// with the threshold that it has.
    pub(crate) fn push_state(&mut self, state: &[u8]) -> Result<bool, ProfileError> {
        let bytes = self.section(Kind::State, state)?;
        let is_second = self.state_bytes > 0;
        self.state_bytes += bytes;
        self.file.flush()?;
        self.file.get_ref().sync_data()?;
        Ok(is_second && self.state_bytes > self.bytes_max / STATES_PART)
    }

    /// Leaves only hashes below the threshold, and this state; returns whether it is still too large. After an error it is as it was.
    pub(crate) fn thin(&mut self, threshold: u64, state: Option<&[u8]>) -> Result<bool, ProfileError> {
        self.guard.check_room(self.bytes())?;
        let beside = match &self.place {
            SpoolPlace::Unnamed(_) => None,
            SpoolPlace::Named(path) => Some(beside(path)),
        };
        let thinned = self.thinned(threshold, state, beside.as_deref());
        if let (Err(_), Some(beside)) = (&thinned, &beside) {
            // It takes room for nothing. If it stays, the next start of the node removes it.
            _ = std::fs::remove_file(beside);
        }
        let (thinned, is_large) = thinned?;
        *self = thinned;
        Ok(is_large)
    }

    fn thinned(
        &mut self,
        threshold: u64,
        state: Option<&[u8]>,
        beside: Option<&Path>,
    ) -> Result<(Spool, bool), ProfileError> {
        let (place, bytes_max, guard) = (self.place.clone(), self.bytes_max, self.guard.clone());
        let mut thinned = match beside {
            None => Spool::new(place, bytes_max, guard)?,
            Some(path) => {
                let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
                Spool::in_file(file, place, bytes_max, guard)?
            }
        };
        let mut pending = Chunk::default();
        let mut is_large = false;
        self.each(|packed, unpacked| {
            let bad = || ProfileError::Refused("the temporary file of the profile was changed".into());
            let mut chunk = unpack(packed, unpacked).and_then(|bytes| Chunk::decode(&bytes)).ok_or_else(bad)?;
            chunk.thin(threshold);
            // Small chunks become one, so that their number falls too.
            if pending.entries.len() + chunk.entries.len() > crate::chunk::CHUNK_ENTRIES {
                is_large |= thinned.push(&std::mem::take(&mut pending))?;
            }
            pending.threshold = Some(threshold);
            pending.entries.append(&mut chunk.entries);
            Ok(())
        })?;
        is_large |= thinned.push(&pending)?;
        if let Some(state) = state {
            thinned.push_state(state)?;
        }
        if let (Some(from), SpoolPlace::Named(to)) = (beside, &self.place) {
            thinned.file.flush()?;
            std::fs::rename(from, to)?;
        }
        Ok((thinned, is_large))
    }

    /// Writes all chunks as sections, from this number on.
    pub(crate) fn write_to(&mut self, out: &mut impl Write, mut number: u32) -> Result<(), ProfileError> {
        self.each(|packed, unpacked| {
            write_section(out, Kind::Stream, number, packed, unpacked)?;
            number += 1;
            Ok(())
        })
    }

    /// Passes the packed bytes and the unpacked length of each chunk, in their order.
    fn each(&mut self, mut take: impl FnMut(&[u8], u64) -> Result<(), ProfileError>) -> Result<(), ProfileError> {
        self.file.flush()?;
        let mut file = self.file.get_ref().try_clone()?;
        let end = file.stream_position()?;
        let passed = self.each_in(file.try_clone()?, &mut take);
        // The clones share their position with the writer.
        file.seek(std::io::SeekFrom::Start(end))?;
        passed
    }

    fn each_in(
        &self,
        mut file: File,
        take: &mut impl FnMut(&[u8], u64) -> Result<(), ProfileError>,
    ) -> Result<(), ProfileError> {
        file.rewind()?;
        let mut reader = BufReader::with_capacity(256 << 10, file);
        reader.seek_relative(FILE_HEADER_BYTES as i64)?;
        let mut packed = Vec::new();
        for _ in 0..self.sections {
            self.guard.check_stop()?;
            let mut header = [0; SECTION_HEADER_BYTES];
            reader.read_exact(&mut header)?;
            let changed = |_| ProfileError::Refused("the temporary file of the profile was changed".into());
            let header = SectionHeader::decode(&header).map_err(changed)?;
            if header.kind != Kind::Stream {
                reader.seek_relative(header.packed as i64)?;
                continue;
            }
            packed.resize(header.packed as usize, 0);
            reader.read_exact(&mut packed)?;
            take(&packed, header.unpacked)?;
        }
        Ok(())
    }
}

/// The file that replaces another one.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
