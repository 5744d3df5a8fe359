//! The state of splitting, a line at a time: what is open, how much it holds, and which lines begin a part.

use std::ops::Range;

use memchr::memchr2;

use super::{BatchProblem, Kind, Part};
use crate::table::Lines;
use crate::{Delimiters, Segment};

/// Length of the beginning of a line that is examined to find out what it begins, in bytes; it includes a trailer's
/// count. A line that begins with more blanks begins no part, however it arrives.
pub(super) const HEAD_BYTES: usize = 4 << 10;

/// See the module's text. It holds the last part only; a part is given back when the next one begins.
#[derive(Default)]
pub(super) struct Splitter {
    last: Option<Part>,
    /// Whether all of the last part is blank.
    is_blank: bool,
    /// Parts so far.
    parts: usize,
    problems: Vec<BatchProblem>,
    /// The field separator in force: that of the last header.
    separator: Option<u8>,
    file: Option<Open>,
    group: Option<Open>,
    /// Batches since the file began.
    batches: u64,
}

/// A batch or file that has begun.
struct Open {
    /// The part of its header; none where the first message began the batch.
    header: Option<usize>,
    messages: u64,
}

/// Which lines stand after an LF that may be part of a text.
pub(super) struct LineStarts {
    lines: Lines,
    bare: bool,
}

impl LineStarts {
    pub(super) fn new(lines: Lines) -> LineStarts {
        LineStarts { lines, bare: false }
    }

    /// Whether the line that begins now does.
    pub(super) fn is_bare(&self) -> bool {
        self.bare
    }

    /// A line has ended; of a line of more than two bytes the last two are enough.
    pub(super) fn ended(&mut self, line: &[u8]) {
        // An LF at the start of a line is a blank line, and the next one starts a line too.
        let starts = line.len() == 1 && !self.bare;
        self.bare = self.lines == Lines::Cr && line.ends_with(b"\n") && !line.ends_with(b"\r\n") && !starts;
    }
}

impl Splitter {
    /// Takes a line; `text` is at least its beginning. Returns the part that the line ended, if it began another.
    pub(super) fn line(&mut self, text: &[u8], line: Range<usize>, bare: bool) -> Option<Part> {
        let text = &text[..text.len().min(HEAD_BYTES)];
        let found = self.kind(text, bare);
        // What follows the beginning of a longer line was not examined: it must not pass for blank.
        let is_blank = blanks(text) == text.len() && text.len() < HEAD_BYTES;
        let start = match (found, &mut self.last) {
            (None, None) if is_blank => return None, // the first part will take it
            (None, Some(last)) if bare || last.takes(is_blank) => {
                last.range.end = line.end;
                self.is_blank &= is_blank;
                return None;
            }
            (_, None) => 0,
            _ => line.start,
        };
        let ended = self.end_part();
        let part = self.parts;
        self.parts += 1;
        self.last = Some(Part { kind: found.unwrap_or(Kind::Stray), range: start..line.end });
        self.is_blank = is_blank;
        match found {
            Some(Kind::FileHeader) => {
                self.end_group();
                self.end_file();
                self.file = Some(Open { header: Some(part), messages: 0 });
                self.batches = 0;
            }
            Some(Kind::BatchHeader) => self.begin_group(Some(part)),
            Some(Kind::Message) => {
                if self.group.is_none() {
                    self.begin_group(None);
                }
                self.group.as_mut().expect("a group has begun").messages += 1;
            }
            Some(Kind::BatchTrailer) => {
                if self.group.is_none() {
                    self.begin_group(None);
                }
                let found = self.group.take().map_or(0, |group| group.messages);
                self.check(Kind::BatchTrailer, part, text, found);
            }
            Some(Kind::FileTrailer) => {
                self.end_group();
                self.file = None;
                self.check(Kind::FileTrailer, part, text, self.batches);
                self.batches = 0;
            }
            Some(Kind::Stray) | None => {}
        }
        ended
    }

    /// The part that the last line belongs to.
    pub(super) fn current(&self) -> Option<Kind> {
        self.last.as_ref().map(|part| part.kind)
    }

    /// The last line goes on up to `end`.
    pub(super) fn more(&mut self, end: usize) {
        if let Some(last) = &mut self.last {
            last.range.end = end;
        }
    }

    /// The problems found since the last call.
    pub(super) fn problems(&mut self) -> Vec<BatchProblem> {
        std::mem::take(&mut self.problems)
    }

    /// The last part, and the problems not yet taken, in order of their parts; input of `len` bytes has ended.
    pub(super) fn finish(mut self, len: usize) -> (Option<Part>, Vec<BatchProblem>) {
        self.end_group();
        self.end_file();
        if self.last.is_none() && len > 0 {
            self.last = Some(Part { kind: Kind::Stray, range: 0..len });
            self.is_blank = true;
            self.parts += 1;
        }
        let last = self.end_part();
        self.problems.sort_by_key(BatchProblem::part);
        (last, self.problems)
    }

    fn end_part(&mut self) -> Option<Part> {
        let last = self.last.take()?;
        if last.kind == Kind::Stray && !self.is_blank {
            self.problems.push(BatchProblem::Stray { part: self.parts - 1, bytes: last.range.len() });
        }
        Some(last)
    }

    /// What a line begins, if it begins anything. A `bare` line stands after an LF that may be part of a text.
    fn kind(&mut self, line: &[u8], bare: bool) -> Option<Kind> {
        let text = if bare { line } else { &line[blanks(line)..] };
        let (name, rest) = text.split_at_checked(3)?;
        let kind = match name {
            b"FHS" => Kind::FileHeader,
            b"BHS" => Kind::BatchHeader,
            b"MSH" => Kind::Message,
            b"BTS" => Kind::BatchTrailer,
            b"FTS" => Kind::FileTrailer,
            _ => return None,
        };
        let trailer = matches!(kind, Kind::BatchTrailer | Kind::FileTrailer);
        let begins = match rest.first() {
            Some(&byte) if bare && self.separator.is_some() => self.separator == Some(byte),
            Some(byte) if byte.is_ascii_punctuation() => true,
            None | Some(b'\r' | b'\n') => trailer,
            Some(_) => false,
        };
        if begins && !trailer {
            self.separator = rest.first().copied();
        }
        begins.then_some(kind)
    }

    fn begin_group(&mut self, header: Option<usize>) {
        self.end_group();
        self.batches += 1;
        self.group = Some(Open { header, messages: 0 });
    }

    fn end_group(&mut self) {
        let header = self.group.take().and_then(|group| group.header);
        self.problems.extend(header.map(|part| BatchProblem::Unclosed { part }));
    }

    fn end_file(&mut self) {
        let header = self.file.take().and_then(|file| file.header);
        self.problems.extend(header.map(|part| BatchProblem::Unclosed { part }));
    }

    /// Compares the count that a trailer declares with the count found; an empty count declares nothing.
    fn check(&mut self, kind: Kind, part: usize, text: &[u8], found: u64) {
        let segment = segment(kind, text).expect("a trailer can be read");
        let declared = segment.field(1).bytes().trim_ascii();
        if declared.is_empty() {
            return;
        }
        match std::str::from_utf8(declared).ok().and_then(|digits| digits.parse().ok()) {
            Some(declared) if declared == found => {}
            Some(declared) => self.problems.push(BatchProblem::Count { part, declared, found }),
            None => self.problems.push(BatchProblem::NotACount { part }),
        }
    }
}

impl Part {
    /// Whether a line that begins nothing belongs to this part.
    fn takes(&self, is_blank: bool) -> bool {
        matches!(self.kind, Kind::Message | Kind::Stray) || is_blank
    }
}

/// The first segment of a part; none of stray bytes and of an unreadable header.
pub(super) fn segment(kind: Kind, part: &[u8]) -> Option<Segment<'_>> {
    let line = &part[blanks(part)..];
    let line = &line[..memchr2(b'\r', b'\n', line).unwrap_or(line.len())];
    let delimiters = match kind {
        Kind::Stray => return None,
        Kind::FileHeader | Kind::BatchHeader | Kind::Message => Delimiters::of_header(line).ok()?,
        Kind::BatchTrailer | Kind::FileTrailer => {
            Delimiters { field: line.get(3).copied().unwrap_or(b'|'), ..Delimiters::default() }
        }
    };
    Some(Segment::new(line, delimiters))
}

/// How many bytes of byte order mark and blanks a line starts with.
fn blanks(line: &[u8]) -> usize {
    let blank = |from: usize| {
        let rest = line[from..].iter();
        from + rest.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0)).count()
    };
    let at = blank(0);
    if line[at..].starts_with(b"\xEF\xBB\xBF") { blank(at + 3) } else { at }
}
