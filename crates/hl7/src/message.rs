//! A message: raw bytes, its delimiters and a segment table; everything below a segment is found on request.
//!
//! `parse` is two passes of `memchr` (is there a CR; where are the line ends) and allocates nothing for messages of
//! up to 24 segments. Reading a path allocates nothing. Invariants: the bytes are never changed, and segment 0 is MSH.
//!
//! It deliberately does not check a message against a schema, group segments, or refuse what it does not know. Z
//! segments, unknown segments and lines without a name are all kept, and all in the table.

use std::borrow::Cow;
use std::fmt;

use crate::charset::Charset;
use crate::error::ParseError;
use crate::path::{Path, SegmentSelector, Which};
use crate::table::{Lines, Span, Table};
use crate::{Delimiters, Segment, SegmentName, Value};

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One HL7 v2 message over the bytes it came in.
#[derive(Clone)]
pub struct Message<'a> {
    raw: &'a [u8],
    delimiters: Delimiters,
    table: Table,
    /// The charset of the bytes, where it is known otherwise than by MSH-18, which then counts for nothing.
    known: Option<Charset>,
    /// The charset where MSH-18 names none.
    assumed: Option<Charset>,
}

impl<'a> Message<'a> {
    /// Finds the delimiters and the segments. A byte order mark and blanks (CR, LF, NUL, space, tab) before MSH are
    /// skipped; they stay part of [`raw`](Self::raw).
    ///
    /// # Errors
    /// [`ParseError`] when there is no usable MSH; nothing after MSH-2 is ever refused.
    pub fn parse(raw: &'a [u8]) -> Result<Message<'a>, ParseError> {
        Message::parse_up_to(raw, |_| false)
    }

    /// The same up to the first segment that `is_last` holds for: those behind it are not there.
    pub(crate) fn parse_up_to(
        raw: &'a [u8],
        is_last: impl FnMut(SegmentName) -> bool,
    ) -> Result<Message<'a>, ParseError> {
        if u32::try_from(raw.len()).is_err() {
            return Err(ParseError::TooLarge { bytes: raw.len() });
        }
        let start = header_start(raw);
        let [b'M', b'S', b'H', field, ..] = raw[start..] else { return Err(ParseError::NoHeader) };
        let table = Table::scan(raw, start, field, is_last);
        let header = table.spans().first().map_or(&b""[..], |span| &raw[span.start as usize..span.end as usize]);
        Ok(Message { raw, delimiters: Delimiters::of_header(header)?, table, known: None, assumed: None })
    }

    /// The same, its bytes known to be in `known`, whatever MSH-18 declares, or in `assumed` if it declares nothing.
    pub(crate) fn with_charset(self, known: Option<Charset>, assumed: Option<Charset>) -> Message<'a> {
        Message { known, assumed, ..self }
    }

    /// The charset its bytes are in: the one known by its [`Reading`](crate::Reading), else the one MSH-18 declares,
    /// else the assumed one of the reading. None: it is not known.
    #[must_use]
    pub fn charset(&self) -> Option<Charset> {
        // What `Charset::declared` answers, which is made of messages.
        let declared = || Charset::declared_by(self.header().field(18).bytes(), self.delimiters);
        self.known.or_else(declared).or(self.assumed)
    }

    /// The bytes it was parsed from, all of them.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The delimiters MSH declares.
    #[must_use]
    pub fn delimiters(&self) -> Delimiters {
        self.delimiters
    }

    /// How many segments there are; at least one, MSH.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        self.spans().len()
    }

    /// All segments in order.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = Segment<'a>> + ExactSizeIterator {
        self.spans().iter().map(|span| self.at_span(span))
    }

    /// Segment at a 0-based index; index 0 is MSH.
    #[must_use]
    pub fn segment_at(&self, at: usize) -> Option<Segment<'a>> {
        self.spans().get(at).map(|span| self.at_span(span))
    }

    /// The message header.
    #[must_use]
    pub fn header(&self) -> Segment<'a> {
        self.at_span(&self.spans()[0])
    }

    /// The `occurrence`th (1-based) segment of a name.
    #[must_use]
    pub fn segment(&self, name: SegmentName, occurrence: usize) -> Option<Segment<'a>> {
        let nth = occurrence.checked_sub(1)?;
        self.spans().iter().filter(|span| span.name == name).nth(nth).map(|span| self.at_span(span))
    }

    /// The first place a path selects. A path of a segment only returns the raw segment.
    #[must_use]
    pub fn get(&self, path: &Path) -> Value<'a> {
        let selector = &path.segment;
        let segment = match &selector.which {
            Which::Nth(n) => self.segment(selector.name, *n as usize),
            Which::Last => self.spans().iter().rfind(|span| span.name == selector.name).map(|span| self.at_span(span)),
            Which::All | Which::Where(_) => return self.all(path).next().unwrap_or(Value::Absent),
        };
        match (segment, &path.place) {
            (None, _) => Value::Absent,
            (Some(segment), None) => Value::Present(segment.raw()),
            (Some(segment), Some(place)) => segment.get(place),
        }
    }

    /// Every place a path selects, in order: for each selected segment one place, or each selected repetition. A
    /// selected segment without the field yields [`Value::Absent`], so that there is one value for each segment; with
    /// `[*]`, `[last]` or a condition on the repetition it yields nothing.
    pub fn all<'p>(&self, path: &'p Path) -> impl Iterator<Item = Value<'a>> {
        self.select(&path.segment).flat_map(move |segment| {
            let whole = if path.place.is_none() { Some(Value::Present(segment.raw())) } else { None };
            whole.into_iter().chain(path.place.iter().flat_map(move |place| segment.all(place)))
        })
    }

    /// The value of [`get`](Self::get) as text, for display or for comparison with text that a person typed: decoded by
    /// its [`charset`](Self::charset) and unescaped; empty for absent and empty places, `""` for null.
    #[must_use]
    pub fn text(&self, path: &Path) -> Cow<'a, str> {
        let charset = self.charset().unwrap_or(Charset::UTF_8);
        charset.text(self.get(path).bytes(), self.delimiters)
    }

    /// The segments a selector selects, in order.
    pub fn select<'p>(&self, selector: &'p SegmentSelector) -> impl Iterator<Item = Segment<'a>> {
        let named = self.spans().iter().filter(|span| span.name == selector.name);
        let skip = match selector.which {
            Which::Nth(n) => (n as usize).wrapping_sub(1),
            Which::Last => named.clone().count().saturating_sub(1),
            Which::All | Which::Where(_) => 0,
        };
        let take = if matches!(selector.which, Which::Nth(_)) { 1 } else { usize::MAX };
        named.skip(skip).take(take).map(|span| self.at_span(span)).filter(move |segment| match &selector.which {
            Which::Where(condition) => segment.meets(condition),
            _ => true,
        })
    }

    pub(crate) fn spans(&self) -> &[Span] {
        self.table.spans()
    }

    pub(crate) fn lines(&self) -> Lines {
        self.table.lines()
    }

    fn at_span(&self, span: &Span) -> Segment<'a> {
        Segment::named(&self.raw[span.start as usize..span.end as usize], span.name, self.delimiters)
    }
}

impl fmt::Debug for Message<'_> {
    /// Header and size only: the rest of a message is a patient's, and must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header();
        let field = |number| String::from_utf8_lossy(header.field(number).bytes()).into_owned();
        f.debug_struct("Message")
            .field("type", &field(9))
            .field("control_id", &field(10))
            .field("segments", &self.len())
            .field("bytes", &self.raw.len())
            .finish()
    }
}

/// Where MSH should start: after blanks, a byte order mark, and blanks.
pub(crate) fn header_start(raw: &[u8]) -> usize {
    let blanks = |from: usize| {
        raw[from..].iter().position(|b| !matches!(b, b'\r' | b'\n' | 0 | b' ' | b'\t')).map_or(raw.len(), |n| from + n)
    };
    let start = blanks(0);
    if raw[start..].starts_with(BYTE_ORDER_MARK) { blanks(start + BYTE_ORDER_MARK.len()) } else { start }
}
