//! A profile from the part that an interrupted recording left: up to its last state.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use crate::ProfileError;
use crate::chunk::Chunk;
use crate::format::{self, FILE_HEADER_BYTES, Kind, PART_MAGIC, SECTION_HEADER_BYTES, SectionHeader};
use crate::spool::{Spool, SpoolPlace};
use crate::summary::Summary;
use crate::write_guard::WriteGuard;
use crate::writer::{decode_state, write};

/// A section that verifies.
struct Found {
    kind: Kind,
    content: Vec<u8>,
}

/// Makes a profile of a part, which says that it was interrupted; the part stays. What follows its last state, or does not verify, is left
/// out. Temporary files go into the folder of the part.
///
/// # Errors
/// Those of reading and writing; that the file is no part, or has no state yet.
pub fn recover(part: &Path, out: &mut impl Write, guard: &WriteGuard) -> Result<Summary, ProfileError> {
    // Once as a temporary file, once as the profile.
    guard.check_room(std::fs::metadata(part)?.len().saturating_mul(2))?;
    let open = || Ok::<_, std::io::Error>(BufReader::with_capacity(256 << 10, File::open(part)?));
    let Some(LastState { sections: end, mut summary, threshold }) = last_state(open()?)? else {
        return Err(ProfileError::Refused("the recording was interrupted before it had saved anything".into()));
    };
    summary.stream_threshold = lower(summary.stream_threshold, threshold);
    let folder = part.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The part was within the limit of its recording.
    let mut spool = Spool::new(SpoolPlace::Unnamed(folder.to_owned()), u64::MAX, guard.clone())?;
    let (mut number, mut failed) = (0, None);
    each(open()?, |found| {
        number += 1;
        failed = guard.check_stop().err();
        if number > end || failed.is_some() {
            return None;
        }
        if found.kind == Kind::Stream {
            let mut chunk = Chunk::decode(&found.content)?;
            if let Some(threshold) = summary.stream_threshold {
                chunk.thin(threshold);
            }
            failed = spool.push(&chunk).err();
        }
        failed.is_none().then_some(())
    })?;
    failed.map_or(Ok(()), Err)?;
    summary.stream_rate = summary.stream_threshold.map_or(1.0, |threshold| threshold as f64 / 2f64.powi(64));
    summary.stream_entries = spool.entries();
    summary.node.get_or_insert_default().is_interrupted = true;
    write(&summary, &mut spool, out)?;
    Ok(summary)
}

/// What was known when a part was last saved.
pub(crate) struct LastState {
    /// Sections up to it, itself included.
    sections: u32,
    summary: Summary,
    /// The lowest threshold of the chunks before it.
    threshold: Option<u64>,
}

/// The lower one of two thresholds.
fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The last state of a part that verifies. Errors: those of reading; it is no part.
pub(crate) fn last_state(part: impl Read) -> Result<Option<LastState>, ProfileError> {
    let (mut last, mut sections, mut threshold) = (None, 0, None);
    each(part, |found| {
        sections += 1;
        match found.kind {
            Kind::Stream => threshold = lower(threshold, Chunk::decode(&found.content)?.threshold),
            Kind::State => {
                let summary = decode_state(&found.content)?;
                last = Some(LastState { sections, summary, threshold });
            }
            _ => return None,
        }
        Some(())
    })?;
    Ok(last)
}

/// Passes the sections that verify, in order, until one does not or `take` returns none.
fn each(mut bytes: impl Read, mut take: impl FnMut(Found) -> Option<()>) -> Result<(), ProfileError> {
    let mut header = [0; FILE_HEADER_BYTES];
    let is_part = bytes.read_exact(&mut header).is_ok() && header == format::file_header(PART_MAGIC);
    if !is_part {
        return Err(ProfileError::NotAProfile("it is not part of one either, of this version".into()));
    }
    let mut number = 0;
    loop {
        let mut header = [0; SECTION_HEADER_BYTES];
        if bytes.read_exact(&mut header).is_err() {
            return Ok(());
        }
        let Ok(header) = SectionHeader::decode(&header) else { return Ok(()) };
        let mut packed = Vec::new();
        (&mut bytes).take(header.packed).read_to_end(&mut packed)?;
        let is_whole = header.number == number
            && packed.len() as u64 == header.packed
            && format::checksum(&packed) == header.checksum;
        let content = is_whole.then(|| format::unpack(&packed, header.unpacked)).flatten();
        let Some(content) = content else { return Ok(()) };
        if take(Found { kind: header.kind, content }).is_none() {
            return Ok(());
        }
        number += 1;
    }
}
