//! Batches: several messages in one file or frame.
//!
//! ```text
//! FHS|^~\&|...                         file header      |  [FHS]
//!   BHS|^~\&|...                       batch header     |  { [BHS]
//!     MSH|^~\&|...  PID|...  OBX|...   message          |    { message }
//!     MSH|^~\&|...  PID|...            message          |
//!   BTS|2                              messages in it   |    [BTS] }
//! FTS|1                                batches in it    |  [FTS]
//! ```
//!
//! (HL7 2.5.1 section 2.10.3.) Everything in brackets may be missing, so one plain message is a batch of one, and so are
//! files put one after the other. Each header declares its own delimiters.
//!
//! [`split`] takes the whole input, [`Stream`] takes input in pieces that need not fit in memory together. Both look at
//! the beginnings of lines only. A header begins at the start of a line, after a byte order mark and blanks if need be.
//! In input that uses CR, a bare LF may be part of a text; there a line counts only if its separator is the one in
//! force, as in a [`Message`](crate::Message).
//!
//! Invariants:
//! - The parts tile the input: each byte belongs to exactly one part, in order. Line ends belong to the line before.
//! - Nothing is dropped or repaired: a fault is reported as a [`BatchProblem`], and the messages are returned
//!   nevertheless.
//!
//! Not here: parsing the messages; a message with an unreadable MSH is a part like any other.

mod splitter;
mod stream;

use memchr::memchr2;
use std::borrow::Cow;
use std::ops::Range;
use thiserror::Error;

use crate::ack::Writer;
use crate::charset::Charset;
use crate::table::Lines;
use crate::{Delimiters, Segment, SegmentName, Value};
use splitter::{LineStarts, Splitter};
pub use stream::{BatchEvent, Stream};

const FHS: SegmentName = SegmentName::new(*b"FHS");
const BHS: SegmentName = SegmentName::new(*b"BHS");
const BTS: SegmentName = SegmentName::new(*b"BTS");
const FTS: SegmentName = SegmentName::new(*b"FTS");

/// Length of BTS-2 (HL7 2.5.1 section 2.15.3).
const COMMENT: usize = 80;

/// What a part of the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// FHS.
    FileHeader,
    /// BHS.
    BatchHeader,
    /// MSH up to the next part.
    Message,
    /// BTS.
    BatchTrailer,
    /// FTS.
    FileTrailer,
    /// Other bytes: before the first header, or after a header or trailer.
    Stray,
}

/// A part of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub kind: Kind,
    /// Where it is, its line end and the empty lines after it included.
    pub range: Range<usize>,
}

/// A fault in the structure. Each names a part by its index in [`Batch::parts`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchProblem {
    /// BTS-1 is not the number of messages, or FTS-1 not the number of batches: data was lost on the way.
    #[error("part {part}: the trailer declares {declared}, found {found}; ask the sender to send it again")]
    Count {
        /// The trailer.
        part: usize,
        /// What it declares.
        declared: u64,
        /// What there is.
        found: u64,
    },
    /// BTS-1 or FTS-1 holds something that is not a number; it could not be checked.
    #[error("part {part}: the count in the trailer is not a number; it was not checked")]
    NotACount {
        /// The trailer.
        part: usize,
    },
    /// A header without its trailer: the file may be cut short. The standard allows it.
    #[error("part {part}: the header has no trailer; the file may be cut short")]
    Unclosed {
        /// The header.
        part: usize,
    },
    /// Bytes that belong to no message.
    #[error("part {part}: {bytes} bytes outside of any message; they were not taken")]
    Stray {
        /// Where.
        part: usize,
        /// How many.
        bytes: usize,
    },
}

/// Input split into its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    raw: &'a [u8],
    /// All parts in order.
    pub parts: Vec<Part>,
    /// Where the messages are, in order.
    pub messages: Vec<Range<usize>>,
    /// What does not fit, in order.
    pub problems: Vec<BatchProblem>,
}

impl<'a> Batch<'a> {
    /// The input.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Whether there is one message and nothing else.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(&self.parts[..], [Part { kind: Kind::Message, .. }])
    }

    /// The first segment of a part, to read its fields: BHS-11 and FHS-11 are the batch and file control ids. A header
    /// is read by its own delimiters, a trailer by its own separator; none for stray bytes and unreadable headers.
    #[must_use]
    pub fn segment(&self, part: usize) -> Option<Segment<'a>> {
        let Part { kind, range } = self.parts.get(part)?;
        splitter::segment(*kind, &self.raw[range.clone()])
    }
}

/// A message from a file as it goes over the wire: segments end in CR. Files edited by hand end lines in LF or CRLF; a
/// message that has a CR of its own that no LF follows is as it should be, and its LFs are content.
#[must_use]
pub fn with_segment_ends(message: &[u8]) -> Cow<'_, [u8]> {
    let bare_cr = message.windows(2).any(|pair| pair[0] == b'\r' && pair[1] != b'\n') || message.ends_with(b"\r");
    if bare_cr || !message.contains(&b'\n') {
        return Cow::Borrowed(message);
    }
    let lines = message.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut out = Vec::with_capacity(message.len() + 1);
    for line in lines.filter(|line| !line.is_empty()) {
        out.extend_from_slice(line);
        out.push(b'\r');
    }
    Cow::Owned(out)
}

/// Splits input into its parts. Any input can be split; input without any header is one stray part.
#[must_use]
pub fn split(raw: &[u8]) -> Batch<'_> {
    let Some(batch) = split_within(raw, usize::MAX) else { unreachable!("there are fewer parts than bytes") };
    batch
}

/// The same of input that nobody vouches for: none where it has more parts, of which each takes more memory than the five bytes that it
/// may have.
#[must_use]
pub fn split_within(raw: &[u8], parts_max: usize) -> Option<Batch<'_>> {
    let mut splitter = Splitter::default();
    let mut lines = LineStarts::new(Lines::of(raw));
    let mut parts = Vec::new();
    let mut at = 0;
    while at < raw.len() {
        let next = line_end(raw, at);
        let line = &raw[at..next];
        parts.extend(splitter.line(line, at..next, lines.is_bare()));
        if parts.len() >= parts_max {
            return None;
        }
        lines.ended(line);
        at = next;
    }
    let (last, problems) = splitter.finish(raw.len());
    parts.extend(last);
    let is_message = |part: &&Part| part.kind == Kind::Message;
    let messages = parts.iter().filter(is_message).map(|part| part.range.clone()).collect();
    Some(Batch { raw, parts, messages, problems })
}

/// Where the next line starts.
fn line_end(raw: &[u8], from: usize) -> usize {
    match memchr2(b'\r', b'\n', &raw[from..]) {
        Some(found) => {
            let at = from + found;
            if raw[at..].starts_with(b"\r\n") { at + 2 } else { at + 1 }
        }
        None => raw.len(),
    }
}

impl BatchProblem {
    /// The part at fault, an index of [`Batch::parts`].
    #[must_use]
    pub fn part(&self) -> usize {
        match *self {
            BatchProblem::Count { part, .. }
            | BatchProblem::NotACount { part }
            | BatchProblem::Unclosed { part }
            | BatchProblem::Stray { part, .. } => part,
        }
    }
}

/// The answer to a batch: its headers swapped, its trailers, and between them the acknowledgements. `answers` holds one
/// per message in order, as [`ack::build`](crate::ack::build) makes them, empty where none is due. Each header is given
/// a new `control_id` and refers to the one it answers (FHS-12, BHS-12); a wrong count is reported in the trailer's
/// comment (BTS-2, FTS-2).
///
/// # Panics
/// If there are fewer answers than messages.
#[must_use]
pub fn respond(
    batch: &Batch<'_>,
    answers: &[Vec<u8>],
    timestamp: &str,
    mut control_id: impl FnMut() -> String,
) -> Vec<u8> {
    let mut response = Response { out: Vec::new(), file: None, group: None, answers: 0, groups: 0 };
    let mut answers = answers.iter();
    let mut problems = batch.problems.iter().peekable();
    for (at, part) in batch.parts.iter().enumerate() {
        // Problems are in the order of their parts, as `parts` are. A search from the first problem for each part would
        // take time that grows with the square of the batch's length.
        while problems.next_if(|problem| problem.part() < at).is_some() {}
        let comment = problems.peek().filter(|problem| problem.part() == at).and_then(|problem| problem.comment());
        let segment = batch.segment(at);
        match part.kind {
            Kind::FileHeader => response.begin_file(segment, timestamp, &control_id()),
            Kind::BatchHeader => response.begin_group(segment, timestamp, &control_id()),
            Kind::Message => response.answer(answers.next().expect("there is an answer for each message")),
            Kind::BatchTrailer => response.end_group(segment, comment),
            Kind::FileTrailer => response.end_file(segment, comment),
            Kind::Stray => {}
        }
    }
    response.end_file(None, None);
    response.out
}

impl BatchProblem {
    /// The comment for the sender in the trailer of the answer.
    fn comment(&self) -> Option<String> {
        match self {
            BatchProblem::Count { declared, found, .. } => Some(format!("declared {declared}, received {found}")),
            BatchProblem::NotACount { .. } => Some("the count is not a number".to_owned()),
            BatchProblem::Unclosed { .. } | BatchProblem::Stray { .. } => None,
        }
    }
}

/// A batch response being written.
struct Response {
    out: Vec<u8>,
    /// The delimiters of the open file and batch header, if there is one.
    file: Option<Delimiters>,
    group: Option<Delimiters>,
    /// Answers since the batch began, batches since the file began.
    answers: u64,
    groups: u64,
}

impl Response {
    fn begin_file(&mut self, received: Option<Segment<'_>>, timestamp: &str, control_id: &str) {
        self.end_file(None, None);
        self.file = Some(self.header(FHS, received, timestamp, control_id));
    }

    fn begin_group(&mut self, received: Option<Segment<'_>>, timestamp: &str, control_id: &str) {
        self.end_group(None, None);
        self.group = Some(self.header(BHS, received, timestamp, control_id));
    }

    fn answer(&mut self, answer: &[u8]) {
        self.answers += u64::from(!answer.is_empty());
        self.out.extend_from_slice(answer);
    }

    /// A trailer is written where one was received, and where a header was written.
    fn end_group(&mut self, received: Option<Segment<'_>>, comment: Option<String>) {
        let answers = std::mem::take(&mut self.answers);
        let delimiters = self.group.take().or(received.map(|trailer| trailer.delimiters()));
        if let Some(delimiters) = delimiters {
            self.trailer(BTS, delimiters, answers, comment);
        }
        self.groups += u64::from(delimiters.is_some() || answers > 0);
    }

    fn end_file(&mut self, received: Option<Segment<'_>>, comment: Option<String>) {
        if self.group.is_some() || self.answers > 0 {
            self.end_group(None, None);
        }
        let groups = std::mem::take(&mut self.groups);
        let delimiters = self.file.take().or(received.map(|trailer| trailer.delimiters()));
        if let Some(delimiters) = delimiters {
            self.trailer(FTS, delimiters, groups, comment);
        }
    }

    /// FHS or BHS in the delimiters of the one received, or the usual ones where that was unreadable.
    fn header(&mut self, name: SegmentName, received: Option<Segment<'_>>, timestamp: &str, id: &str) -> Delimiters {
        let delimiters = received.map_or_else(Delimiters::default, |segment| segment.delimiters());
        let field = |number| received.map_or(Value::Absent, |segment| segment.field(number));
        let mut out = Writer::new(delimiters, Charset::ASCII);
        out.header(name);
        for swapped in [5, 6, 3, 4] {
            out.echo(field(swapped));
        }
        out.text(timestamp, usize::MAX);
        for _ in 8..=10 {
            out.field(b"");
        }
        out.text(id, usize::MAX);
        out.echo(field(11));
        out.end();
        self.out.extend_from_slice(&out.finish());
        delimiters
    }

    fn trailer(&mut self, name: SegmentName, delimiters: Delimiters, count: u64, comment: Option<String>) {
        let mut out = Writer::new(delimiters, Charset::ASCII);
        out.segment(name);
        out.text(&count.to_string(), usize::MAX);
        out.text(&comment.unwrap_or_default(), COMMENT);
        out.end();
        self.out.extend_from_slice(&out.finish());
    }
}
