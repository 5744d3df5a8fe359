//! Chunks of the stream while a profile is recorded, in a temporary file without a name.
//!
//! ```text
//!   chunk:  4 bytes packed | 4 bytes unpacked | the bytes
//!   too many bytes  ->  half of the hashes leave: every chunk is read, thinned and written anew
//! ```
//!
//! The file that results is never larger than `bytes_max`; for a moment of thinning the disk holds both.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use crate::ProfileError;
use crate::chunk::Chunk;
use crate::format::{Kind, SECTION_HEADER_BYTES, pack, unpack, write_section};

/// The largest size of a profile, if nothing else is said.
pub const FILE_BYTES_DEFAULT: u64 = 1 << 30;

/// See the head comment of this file.
pub(crate) struct Spool {
    file: BufWriter<File>,
    folder: std::path::PathBuf,
    bytes: u64,
    bytes_max: u64,
    chunks: u32,
    entries: u64,
}

impl Spool {
    /// An empty one, with its file in `folder`.
    pub(crate) fn new(folder: &Path, bytes_max: u64) -> Result<Spool, ProfileError> {
        let file = BufWriter::new(tempfile::tempfile_in(folder)?);
        Ok(Spool { file, folder: folder.to_owned(), bytes: 0, bytes_max, chunks: 0, entries: 0 })
    }

    /// Accesses in it.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Sections that it will be.
    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Adds a chunk. Returns whether it has become too large: the caller then thins it.
    pub(crate) fn push(&mut self, chunk: &Chunk) -> Result<bool, ProfileError> {
        if chunk.entries.is_empty() {
            return Ok(false);
        }
        let content = chunk.encode();
        let packed = pack(&content)?;
        self.file.write_all(&(packed.len() as u32).to_le_bytes())?;
        self.file.write_all(&(content.len() as u32).to_le_bytes())?;
        self.file.write_all(&packed)?;
        self.bytes += (packed.len() + SECTION_HEADER_BYTES) as u64;
        self.chunks += 1;
        self.entries += chunk.entries.len() as u64;
        Ok(self.bytes > self.bytes_max || self.chunks >= crate::format::SECTIONS_MAX - 8)
    }

    /// Leaves only hashes below the threshold; returns whether it is still too large.
    pub(crate) fn thin(&mut self, threshold: u64) -> Result<bool, ProfileError> {
        let mut thinned = Spool::new(&self.folder, self.bytes_max)?;
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
        *self = thinned;
        Ok(is_large)
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
        file.rewind()?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut packed = Vec::new();
        for _ in 0..self.chunks {
            let mut lengths = [0; 8];
            file.read_exact(&mut lengths)?;
            let length = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| lengths[at + byte]));
            packed.resize(length(0) as usize, 0);
            file.read_exact(&mut packed)?;
            take(&packed, length(4).into())?;
        }
        Ok(())
    }
}
