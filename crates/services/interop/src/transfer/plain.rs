//! [`PlainFile`]: a file of HL7 messages, with or without batch headers, as other programs export them.
//!
//! ```text
//!   first pass    SHA-256 of the file: its name as a source; whether there is a CR; problems of the structure
//!   second pass   message by message
//! ```
//!
//! A trailer whose number is not that of the messages refuses the whole file: something was lost. Other faults are reported with their
//! line, and the messages are taken.
//!
//! Invariants: memory is bounded by the longest message; reading never panics on any bytes (fuzzed).
//!
//! Not here: UTF-16, which a watched folder reads; such a file is refused.

use std::collections::VecDeque;
use std::io::{Read, Seek};

use hl7::batch::{BatchEvent, BatchProblem, Stream};
use memchr::memmem;
use ring::digest::{Context, SHA256};

use super::{BODY_BYTES_MAX, LeftOut, MASKED, hex};
use crate::error::InteropError;

/// How many bytes are read at a time.
const PIECE: usize = 256 << 10;

/// Faults of the structure that are listed; the others are counted.
const FAULTS_MAX: usize = 100;

/// See the module's text.
pub(super) struct PlainFile<R: Read + Seek> {
    from: R,
    stream: Option<Stream>,
    found: VecDeque<BatchEvent>,
    number: u64,
}

/// What the first pass found.
pub(super) struct PlainCheck {
    /// `file-` and the beginning of its SHA-256.
    pub(super) source: String,
    /// Whether it says of itself that its bodies are masked, as an export of a node does.
    pub(super) masked: bool,
    /// Messages that are not over the bound.
    pub(super) messages: u64,
    pub(super) body_bytes: u64,
    pub(super) left_out: Vec<LeftOut>,
}

fn unreadable(error: &std::io::Error) -> InteropError {
    InteropError::Refused(format!("it cannot be read: {error}"))
}

impl<R: Read + Seek> PlainFile<R> {
    /// Reads a file once, and begins it anew.
    ///
    /// # Errors
    /// It cannot be read, has no message, or lost some.
    pub(super) fn open(mut from: R) -> Result<(PlainFile<R>, PlainCheck), InteropError> {
        let First { has_cr, sum, masked } = first_pass(&mut from)?;
        from.rewind().map_err(|error| unreadable(&error))?;
        let stream = Some(Stream::new(has_cr, BODY_BYTES_MAX));
        let mut file = PlainFile { from, stream, found: VecDeque::new(), number: 0 };
        let source = format!("file-{}", &sum[..32]);
        let mut check = PlainCheck { source, masked, messages: 0, body_bytes: 0, left_out: Vec::new() };
        let (mut strays, mut more) = (Vec::new(), 0);
        while let Some(event) = file.event()? {
            match event {
                BatchEvent::Message { bytes, .. } => {
                    check.messages += 1;
                    check.body_bytes += bytes.len() as u64;
                }
                BatchEvent::Oversize { at, bytes } => {
                    check.left_out.push(LeftOut { at: Some(at as u64), why: format!("a message has {bytes} bytes") });
                }
                BatchEvent::Problem(problem @ BatchProblem::Count { .. }) => {
                    return Err(InteropError::Refused(problem.to_string()));
                }
                BatchEvent::Problem(problem) if strays.len() < FAULTS_MAX => strays.push(problem.to_string()),
                BatchEvent::Problem(_) => more += 1,
            }
            if check.left_out.len() > FAULTS_MAX {
                return Err(InteropError::Refused(format!("more than {FAULTS_MAX} messages are too long")));
            }
        }
        if check.messages == 0 {
            let text = match check.left_out.first() {
                Some(LeftOut { at: Some(at), why }) => {
                    format!("none of its messages can be taken: {why} (byte {at}), and {BODY_BYTES_MAX} is the most")
                }
                _ => "it has no HL7 message: none begins with MSH, in a charset with letters of one byte".to_owned(),
            };
            return Err(InteropError::Refused(text));
        }
        check.left_out.extend(strays.into_iter().map(|why| LeftOut { at: None, why }));
        check.left_out.extend((more > 0).then(|| LeftOut { at: None, why: format!("and {more} faults more") }));
        file.from.rewind().map_err(|error| unreadable(&error))?;
        let stream = Some(Stream::new(has_cr, BODY_BYTES_MAX));
        Ok((PlainFile { stream, found: VecDeque::new(), number: 0, ..file }, check))
    }

    /// The next message: its number in the file, from 1, where it begins, its bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<(u64, u64, Vec<u8>)>, InteropError> {
        while let Some(event) = self.event()? {
            match event {
                BatchEvent::Message { at, bytes } => {
                    self.number += 1;
                    return Ok(Some((self.number, at as u64, bytes)));
                }
                // They have been reported, and have their numbers: what is left out moves no other.
                BatchEvent::Oversize { .. } => self.number += 1,
                BatchEvent::Problem(_) => {}
            }
        }
        Ok(None)
    }

    fn event(&mut self) -> Result<Option<BatchEvent>, InteropError> {
        loop {
            if let Some(event) = self.found.pop_front() {
                return Ok(Some(event));
            }
            let Some(stream) = &mut self.stream else { return Ok(None) };
            let mut events = Vec::new();
            let piece = piece(&mut self.from)?;
            if piece.is_empty() {
                if let Some(stream) = self.stream.take() {
                    stream.end(&mut events);
                }
            } else {
                stream.feed(&piece, &mut events);
            }
            self.found.extend(events);
        }
    }
}

/// The next piece; empty at the end.
fn piece(from: &mut impl Read) -> Result<Vec<u8>, InteropError> {
    let mut piece = Vec::new();
    from.take(PIECE as u64).read_to_end(&mut piece).map_err(|error| unreadable(&error))?;
    Ok(piece)
}

/// What the first pass finds.
struct First {
    has_cr: bool,
    sum: String,
    masked: bool,
}

/// Reads all once.
fn first_pass(from: &mut impl Read) -> Result<First, InteropError> {
    let (mut has_cr, mut masked, mut sum) = (false, false, Context::new(&SHA256));
    // The end of what was read, in which a header may begin.
    let (mut is_first, mut before) = (true, b"\r".to_vec());
    loop {
        let piece = piece(from)?;
        if piece.is_empty() {
            return Ok(First { has_cr, sum: hex(sum.finish().as_ref()), masked: masked || is_masked(&before) });
        }
        if std::mem::take(&mut is_first) && is_wide(&piece) {
            let text = "it is UTF-16: convert it to UTF-8 first, or put it into the folder of a file service";
            return Err(InteropError::Refused(text.to_owned()));
        }
        has_cr |= piece.contains(&b'\r');
        sum.update(&piece);
        before.extend_from_slice(&piece);
        masked |= is_masked(&before);
        before.drain(..before.len().saturating_sub(HEADER_BYTES));
    }
}

/// The beginning of a header of a file of ours, and how long one is at most.
const HEADER: &[u8] = b"FHS|^~\\&|TERRACE|";
const HEADER_BYTES: usize = 200;

/// Whether there is a header of a file of ours whose comment, FHS-10, says that bodies are masked.
fn is_masked(bytes: &[u8]) -> bool {
    memmem::find_iter(bytes, HEADER).any(|at| {
        let is_line = at.checked_sub(1).is_none_or(|before| matches!(bytes[before], b'\r' | b'\n'));
        let line = bytes[at..].split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        is_line && line.split(|byte| *byte == b'|').nth(9) == Some(MASKED.as_bytes())
    })
}

fn is_wide(piece: &[u8]) -> bool {
    matches!(piece, [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [_, 0, _, 0, _, 0, ..] | [0, _, 0, _, 0, _, ..])
}

/// The line, from 1, of a place in a file.
pub(super) fn line_at(from: &mut (impl Read + Seek), at: u64) -> Option<u64> {
    from.rewind().ok()?;
    let mut rest = from.take(at);
    let (mut lines, mut last) = (1, 0);
    loop {
        let piece = piece(&mut rest).ok()?;
        if piece.is_empty() {
            return Some(lines);
        }
        for byte in piece {
            // CR LF is one end of a line.
            lines += u64::from(byte == b'\r' || (byte == b'\n' && last != b'\r'));
            last = byte;
        }
    }
}
