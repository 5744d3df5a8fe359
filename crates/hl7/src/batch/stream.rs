//! [`Stream`]: splitting of input that comes in pieces, in memory that its longest message bounds.
//!
//! ```text
//!   feed(piece) --> [ the message that is open, up to the bound ][ the line that is open ] --> BatchEvent, as each is complete
//! ```
//!
//! It gives the result of [`split`](super::split) for the same bytes, however they are cut (the fuzz target compares
//! the two).

use memchr::memchr2;

use super::splitter::{HEAD_BYTES, LineStarts, Splitter};
use super::{BatchProblem, Kind, Part};
use crate::table::Lines;

/// What a stream found.
#[derive(Clone, PartialEq, Eq)]
pub enum BatchEvent {
    /// A message, whole.
    Message {
        /// Where it begins in the input.
        at: usize,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A message longer than the bound; its bytes were passed over.
    Oversize {
        /// Where it begins in the input.
        at: usize,
        /// How long it is.
        bytes: usize,
    },
    /// A fault in the structure. Parts are counted as in [`Batch::parts`](super::Batch::parts).
    Problem(BatchProblem),
}

/// Splits input that comes in pieces.
pub struct Stream {
    splitter: Splitter,
    starts: LineStarts,
    bound: usize,
    /// The beginning of the open line, until it is passed to the splitter.
    head: Vec<u8>,
    is_told: bool,
    /// Where the open line begins, and how much input there was.
    line: usize,
    at: usize,
    /// The last bytes of the open line, two at most.
    tail: Vec<u8>,
    /// The bytes of the open message, or of the blanks before the first part; no more once it is over the bound.
    open: Vec<u8>,
}

impl Stream {
    /// `has_cr`: whether the input contains a CR anywhere, which the caller has checked; messages have `bound` bytes at
    /// most.
    #[must_use]
    pub fn new(has_cr: bool, bound: usize) -> Stream {
        Stream {
            splitter: Splitter::default(),
            starts: LineStarts::new(if has_cr { Lines::Cr } else { Lines::Lf }),
            bound,
            head: Vec::new(),
            is_told: false,
            line: 0,
            at: 0,
            tail: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Takes the next piece; what is complete goes to `events`.
    pub fn feed(&mut self, mut piece: &[u8], events: &mut Vec<BatchEvent>) {
        while let Some(first) = piece.first() {
            // A CR is the end of its line unless an LF follows; only the next byte shows that.
            let after_cr = self.tail.ends_with(b"\r");
            if after_cr && *first != b'\n' {
                self.end_line(events);
            }
            let end = if after_cr && *first == b'\n' { Some(0) } else { memchr2(b'\r', b'\n', piece) };
            let (part, rest) = piece.split_at(end.map_or(piece.len(), |end| end + 1));
            piece = rest;
            self.push(part, events);
            if part.ends_with(b"\n") {
                self.end_line(events);
            }
        }
    }

    /// The input has ended.
    pub fn end(mut self, events: &mut Vec<BatchEvent>) {
        if !self.tail.is_empty() {
            self.end_line(events);
        }
        let (last, problems) = self.splitter.finish(self.at);
        ended(last, self.bound, &mut self.open, events);
        events.extend(problems.into_iter().map(BatchEvent::Problem));
    }

    /// More bytes of the open line.
    fn push(&mut self, bytes: &[u8], events: &mut Vec<BatchEvent>) {
        self.at += bytes.len();
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(2)..]);
        self.tail.drain(..self.tail.len().saturating_sub(2));
        if self.is_told {
            self.splitter.more(self.at);
            self.keep(bytes);
            return;
        }
        self.head.extend_from_slice(bytes);
        if self.head.len() >= HEAD_BYTES {
            self.emit(events);
        }
    }

    /// Passes the open line to the splitter.
    fn emit(&mut self, events: &mut Vec<BatchEvent>) {
        let head = std::mem::take(&mut self.head);
        let last = self.splitter.line(&head, self.line..self.at, self.starts.is_bare());
        if last.is_some() {
            ended(last, self.bound, &mut self.open, events);
        }
        events.extend(self.splitter.problems().into_iter().map(BatchEvent::Problem));
        self.is_told = true;
        self.keep(&head);
    }

    fn end_line(&mut self, events: &mut Vec<BatchEvent>) {
        if !self.is_told {
            self.emit(events);
        }
        self.starts.ended(&self.tail);
        self.tail.clear();
        self.is_told = false;
        self.line = self.at;
    }

    fn keep(&mut self, bytes: &[u8]) {
        if matches!(self.splitter.current(), None | Some(Kind::Message)) && self.open.len() <= self.bound {
            self.open.extend_from_slice(bytes);
        }
    }
}

/// A part has ended; `open` holds its bytes, if it is a message that is not over the bound.
fn ended(part: Option<Part>, bound: usize, open: &mut Vec<u8>, events: &mut Vec<BatchEvent>) {
    let bytes = std::mem::take(open);
    let Some(Part { kind: Kind::Message, range }) = part else { return };
    events.push(match range.len() > bound {
        true => BatchEvent::Oversize { at: range.start, bytes: range.len() },
        false => BatchEvent::Message { at: range.start, bytes },
    });
}

impl std::fmt::Debug for Stream {
    /// Names no content: it is a patient's, and must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("at", &self.at).field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for BatchEvent {
    /// As above.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BatchEvent::Message { at, bytes } => write!(f, "Message({} bytes at {at})", bytes.len()),
            BatchEvent::Oversize { at, bytes } => write!(f, "Oversize({bytes} bytes at {at})"),
            BatchEvent::Problem(problem) => write!(f, "{problem:?}"),
        }
    }
}
