//! Reads the file of a profile: the summary at once, the stream chunk by chunk.
//!
//! Memory: the summary, the reuse, and one chunk. Whatever the bytes are, reading returns what was written, or an error that says where.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::ProfileError;
use crate::chunk::{Chunk, StreamEntry};
use crate::format::{
    self, FILE_HEADER_BYTES, Fields, Kind, MAGIC, PART_MAGIC, SECTION_HEADER_BYTES, SectionHeader, VERSION,
};
use crate::summary::Summary;

/// A profile without its stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What it says.
    pub summary: Summary,
}

impl Profile {
    /// Reads a file, and verifies all of it.
    ///
    /// # Errors
    /// Those of reading; that it is damaged, or none.
    pub fn read(file: &Path) -> Result<Profile, ProfileError> {
        let mut reader = ProfileReader::open(file)?;
        while reader.next_chunk()?.is_some() {}
        Ok(Profile { summary: reader.summary })
    }
}

/// A profile whose stream is being read.
#[derive(Debug)]
pub struct ProfileReader<R> {
    bytes: R,
    /// Bytes read so far.
    at: u64,
    sections: u32,
    entries: u64,
    last_us: u64,
    is_over: bool,
    summary: Summary,
}

impl ProfileReader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of reading; that it is damaged, or none.
    pub fn open(file: &Path) -> Result<ProfileReader<BufReader<File>>, ProfileError> {
        ProfileReader::new(BufReader::with_capacity(1 << 20, File::open(file)?))
    }
}

impl<R: Read> ProfileReader<R> {
    /// Reads the header, the summary and the reuse.
    ///
    /// # Errors
    /// As [`open`](ProfileReader::open).
    pub fn new(mut bytes: R) -> Result<ProfileReader<R>, ProfileError> {
        let mut header = [0; FILE_HEADER_BYTES];
        let none = |what: String| ProfileError::NotAProfile(what);
        bytes.read_exact(&mut header).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => none("it is too short".into()),
            _ => error.into(),
        })?;
        let mut fields = Fields(&header[8..]);
        let (version, sum) = (fields.u32().unwrap_or_default(), fields.u32().unwrap_or_default());
        if &header[..8] == PART_MAGIC {
            let what = "it is part of one that is being recorded, or was interrupted: `terrace profile recover` makes a profile of it";
            return Err(none(what.into()));
        }
        if &header[..8] != MAGIC {
            return Err(none("its first bytes are others".into()));
        }
        if sum != format::checksum(&header[..12]) {
            return Err(ProfileError::Damaged { at: 0, what: "the header does not match its checksum".into() });
        }
        if !(1..=VERSION).contains(&version) {
            return Err(none(format!("its version is {version}, and this program reads 1 to {VERSION}")));
        }
        let mut sections = Sections { bytes, at: FILE_HEADER_BYTES as u64, sections: 0 };
        let head = sections.expect(Kind::Head)?;
        let mut summary: Summary =
            serde_json::from_slice(&head.content).map_err(|error| head.damaged(&format!("the summary: {error}")))?;
        if let Some(what) = summary.contradiction() {
            return Err(head.damaged(&what));
        }
        let reuse = sections.expect(Kind::Reuse)?;
        format::decode_reuse(&reuse.content, &mut summary)
            .ok_or_else(|| reuse.damaged("the reuse is not that of the summary"))?;
        let Sections { bytes, at, sections } = sections;
        Ok(ProfileReader { bytes, at, sections, entries: 0, last_us: 0, is_over: false, summary })
    }

    /// What it says beside the stream.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The next accesses of the stream, only those that are below the threshold at its end; `None` at its end, when the file has been
    /// verified as a whole.
    ///
    /// # Errors
    /// Those of reading; that it is damaged.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<StreamEntry>>, ProfileError> {
        if self.is_over {
            return Ok(None);
        }
        let mut sections = Sections { bytes: &mut self.bytes, at: self.at, sections: self.sections };
        let section = sections.next()?;
        (self.at, self.sections) = (sections.at, sections.sections);
        match section.header.kind {
            Kind::Stream => {
                let chunk = Chunk::decode(&section.content).ok_or_else(|| section.damaged("a chunk of the stream"))?;
                self.entries += chunk.entries.len() as u64;
                self.filtered(chunk, &section).map(Some)
            }
            Kind::Tail => {
                let mut fields = Fields(&section.content);
                let (sections, entries) = (fields.u32(), fields.u64());
                let is_right = sections == Some(section.header.number)
                    && entries == Some(self.entries)
                    && self.summary.stream_entries == self.entries
                    && fields.0.is_empty();
                if !is_right {
                    return Err(section.damaged("sections are missing"));
                }
                if self.bytes.read(&mut [0])? != 0 {
                    return Err(section.damaged("something follows the end"));
                }
                self.is_over = true;
                Ok(None)
            }
            Kind::Head | Kind::Reuse | Kind::State => Err(section.damaged("a second summary")),
        }
    }

    fn filtered(&mut self, mut chunk: Chunk, section: &Section) -> Result<Vec<StreamEntry>, ProfileError> {
        let structures = self.summary.structures.len();
        for entry in &chunk.entries {
            if entry.time_us < self.last_us || usize::from(entry.structure) >= structures {
                return Err(section.damaged("a chunk of the stream does not fit to the summary"));
            }
            self.last_us = entry.time_us;
        }
        if let Some(threshold) = self.summary.stream_threshold {
            chunk.thin(threshold);
        }
        Ok(chunk.entries)
    }
}

struct Sections<R> {
    bytes: R,
    at: u64,
    sections: u32,
}

struct Section {
    at: u64,
    header: SectionHeader,
    content: Vec<u8>,
}

impl Section {
    fn damaged(&self, what: &str) -> ProfileError {
        ProfileError::Damaged { at: self.at, what: what.to_owned() }
    }
}

impl<R: Read> Sections<R> {
    fn next(&mut self) -> Result<Section, ProfileError> {
        let at = self.at;
        let damaged = |what: &str| ProfileError::Damaged { at, what: what.to_owned() };
        let short = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => damaged("the file ends before its end"),
            _ => error.into(),
        };
        let mut header = [0; SECTION_HEADER_BYTES];
        self.bytes.read_exact(&mut header).map_err(short)?;
        let header = SectionHeader::decode(&header).map_err(damaged)?;
        if header.number != self.sections {
            return Err(damaged("a section is missing"));
        }
        // Memory grows with what is there, not with what the header says.
        let mut packed = Vec::new();
        (&mut self.bytes).take(header.packed).read_to_end(&mut packed)?;
        if packed.len() as u64 != header.packed {
            return Err(damaged("the file ends before its end"));
        }
        if format::checksum(&packed) != header.checksum {
            return Err(damaged("a section does not match its checksum"));
        }
        let content =
            format::unpack(&packed, header.unpacked).ok_or_else(|| damaged("a section cannot be unpacked"))?;
        self.at += SECTION_HEADER_BYTES as u64 + header.packed;
        self.sections += 1;
        Ok(Section { at, header, content })
    }

    fn expect(&mut self, kind: Kind) -> Result<Section, ProfileError> {
        let section = self.next()?;
        if section.header.kind != kind { Err(section.damaged("a section of another kind")) } else { Ok(section) }
    }
}
