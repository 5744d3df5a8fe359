//! Printing a journal: [`inspect`] prints every frame, [`verify`] counts and checks.
//!
//! The same printer writes the golden dump that locks the format (`tests/main/golden.rs`), so operators read the same
//! output that the tests compare.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use crate::error::{Corruption, JournalError};
use crate::format::{BatchHeader, CLOSE, FIRST, FRAME_HEADER_BYTES, Frame, LAST, OPEN};
use crate::lsn::Lsn;
use crate::recovery::Verdict;
use crate::segment::Segment;
use crate::view::View;
use crate::window::Window;

/// Options of [`inspect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inspect {
    /// Batches that end at or before this are omitted.
    pub from: Lsn,
    /// How many bytes of each payload are shown; 0, the default, shows none (payloads contain personal data).
    pub payload_bytes: usize,
}

/// Prints segments, batches and frames in log order, and how the log ends.
///
/// Errors: [`JournalError::Output`], and those of [`View::open`].
pub fn inspect(view: &View, out: &mut dyn Write, what: Inspect) -> Result<(), JournalError> {
    let segments = view.segments();
    let mut headers = segments.iter();
    let mut printed = Ok(());
    let ending = view.walk(&mut |segment, header, window| {
        if printed.is_ok() && header.next(segment.header.unit) > what.from {
            printed = print_headers(out, &mut headers, segment.header.base)
                .and_then(|()| print_batch(out, header, window, what.payload_bytes));
        }
    })?;
    printed?;
    print_headers(out, &mut headers, Lsn(u64::MAX))?;
    let progress = &ending.progress;
    match (&ending.verdict, &ending.corruption) {
        (_, Some(corruption)) => writeln!(out, "end {}: {corruption}", progress.position)?,
        (Verdict::Torn, None) => {
            writeln!(out, "end {}: torn, {} bytes after it are dropped", progress.position, ending.torn_bytes)?;
        }
        (_, None) => writeln!(out, "end {}: {} records", progress.position, progress.records)?,
    }
    Ok(())
}

/// Prints the headers of the segments up to the one at `base`.
fn print_headers(
    out: &mut dyn Write,
    segments: &mut std::slice::Iter<'_, Arc<Segment>>,
    base: Lsn,
) -> Result<(), JournalError> {
    while let Some(segment) = segments.as_slice().first().filter(|segment| segment.header.base <= base) {
        let header = &segment.header;
        writeln!(
            out,
            "segment {} base {} bytes {} unit {} nonce {} durable {}{}",
            segment.name(),
            header.base,
            header.bytes,
            header.unit,
            header.nonce,
            header.durable,
            header.encrypted.map_or(String::new(), |mark| format!(" encrypted, data key {}", mark.id))
        )?;
        segments.next();
    }
    Ok(())
}

fn print_batch(
    out: &mut dyn Write,
    header: &BatchHeader,
    window: &mut Window,
    payload_bytes: usize,
) -> Result<(), JournalError> {
    let mark = match header.flags {
        OPEN => " opens",
        CLOSE => " closes",
        _ => "",
    };
    let BatchHeader { lsn, nonce, durable, bytes, records, .. } = header;
    writeln!(out, "  batch {lsn} epoch {}{mark} bytes {bytes} records {records} durable {durable}", nonce.epoch)?;
    let end = window.segment().end();
    let bytes = window.bytes(header.lsn, header.bytes as usize, end)?;
    for (frame, payload) in Frames::of(header, bytes) {
        let part = match (frame.has(FIRST), frame.has(LAST)) {
            (true, true) => "record",
            (true, false) => "first",
            (false, false) => "middle",
            (false, true) => "last",
        };
        write!(
            out,
            "    {part} {} kind {} bytes {} crc {:08x}",
            frame.lsn,
            frame.kind,
            payload.len(),
            frame.payload_crc
        )?;
        if payload_bytes > 0 {
            write!(out, " {}", payload[..payload.len().min(payload_bytes)].escape_ascii())?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The frames of a batch that is known to be whole.
struct Frames<'a> {
    batch: &'a BatchHeader,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Frames<'a> {
    fn of(batch: &'a BatchHeader, bytes: &'a [u8]) -> Frames<'a> {
        // The batch frame, which the scan has verified, is the first.
        let at = Frame::decode(&bytes[..FRAME_HEADER_BYTES], batch.lsn, batch.nonce.identity)
            .map_or(0, |first| first.bytes());
        Frames { batch, bytes, at }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = (Frame, &'a [u8]);

    fn next(&mut self) -> Option<(Frame, &'a [u8])> {
        let header = self.bytes.get(self.at..self.at + FRAME_HEADER_BYTES)?;
        let frame = Frame::decode(header, self.batch.lsn.plus(self.at as u64), self.batch.nonce.identity).ok()?;
        let start = self.at + FRAME_HEADER_BYTES;
        let payload = self.bytes.get(start..start + frame.payload_bytes as usize)?;
        self.at += frame.bytes();
        Some((frame, payload))
    }
}

/// The result of [`verify`]. Its `Display` is the report of `terrace verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The oldest position.
    pub first: Lsn,
    /// The end of the last whole batch.
    pub end: Lsn,
    /// Segments of the log.
    pub segments: usize,
    /// Whole batches.
    pub batches: u64,
    /// Complete records.
    pub records: u64,
    /// Bytes of whole batches that are headers or padding.
    pub overhead_bytes: u64,
    /// Bytes at the end that recovery would drop.
    pub torn_bytes: u64,
    /// Bytes of padding that should be zero but are not. Nothing reads them, but a medium that changed them may change
    /// others.
    pub dirty_padding_bytes: u64,
    /// The damage because of which the journal would not open.
    pub corruption: Option<Corruption>,
}

impl Verified {
    /// Whether nothing is wrong; a torn tail is normal.
    pub fn is_sound(&self) -> bool {
        self.corruption.is_none() && self.dirty_padding_bytes == 0
    }
}

/// Reads the whole log and checks every checksum and all padding.
///
/// Errors: those of [`View::open`]; damage to batches is not an error but part of the result.
pub fn verify(view: &View) -> Result<Verified, JournalError> {
    let mut overhead_bytes = 0;
    let mut dirty_padding_bytes = 0;
    let mut failure = Ok(());
    let ending = view.walk(&mut |segment, header, window| {
        let whole = (header.bytes as usize).next_multiple_of(segment.header.unit as usize);
        match window.bytes(header.lsn, whole, segment.end()) {
            Ok(bytes) => {
                let (overhead, dirty) = padding_of(header, bytes);
                overhead_bytes += overhead;
                dirty_padding_bytes += dirty;
            }
            Err(error) => failure = Err(error),
        }
    })?;
    failure?;
    Ok(Verified {
        first: view.first(),
        end: ending.progress.position,
        segments: view.segments().len(),
        batches: ending.progress.batches,
        records: ending.progress.records,
        overhead_bytes,
        torn_bytes: ending.torn_bytes,
        dirty_padding_bytes,
        corruption: ending.corruption,
    })
}

/// The bytes of a batch (given with its padding) that are not payload; and how many of the padding bytes are not zero.
fn padding_of(header: &BatchHeader, bytes: &[u8]) -> (u64, u64) {
    let mut payload_bytes = 0;
    let mut dirty = 0;
    let mut count = |gap: &[u8]| dirty += gap.iter().filter(|byte| **byte != 0).count() as u64;
    for (frame, payload) in Frames::of(header, &bytes[..header.bytes as usize]) {
        payload_bytes += payload.len() as u64;
        let start = frame.lsn.since(header.lsn) as usize;
        count(&bytes[start + FRAME_HEADER_BYTES + payload.len()..start + frame.bytes()]);
    }
    count(&bytes[header.bytes as usize..]);
    (bytes.len() as u64 - payload_bytes, dirty)
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verified { first, end, segments, batches, records, overhead_bytes, .. } = self;
        writeln!(f, "{records} records in {batches} batches in {segments} segments, lsn {first} to {end}")?;
        let span = end.0 - first.0;
        let percent = if span == 0 { 0.0 } else { 100.0 * *overhead_bytes as f64 / span as f64 };
        writeln!(f, "{overhead_bytes} bytes ({percent:.1} %) are headers and padding")?;
        if self.torn_bytes > 0 {
            writeln!(f, "{} bytes after the end were never acknowledged and will be dropped", self.torn_bytes)?;
        }
        if self.dirty_padding_bytes > 0 {
            writeln!(f, "{} bytes of padding are not zero: the medium changed them", self.dirty_padding_bytes)?;
        }
        match &self.corruption {
            Some(corruption) => writeln!(f, "{corruption}"),
            None if self.is_sound() => writeln!(f, "sound"),
            None => Ok(()),
        }
    }
}
