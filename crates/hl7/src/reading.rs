//! A reading of a message: its bytes, the charset they are in, and a form of them that can be split at delimiters.
//!
//! ```text
//!  as received   ASCII, UTF-8, ISO 8859, EUC ... -----------------> the bytes themselves
//!                Shift_JIS, GBK, GB 18030, Big5, ISO 2022, UTF-16 -> transcript (UTF-8) --+
//!                             ^                                                           |
//!                             +---- runs: kept lines as they came, new text encoded <-- Draft
//! ```
//!
//! The charset is determined in this order: UTF-16 by its first bytes; MSH-18; the assumed one (a setting); the escape
//! sequences of ISO 2022; UTF-8 if the bytes are valid UTF-8. An MSH-18 that declares ASCII, or UTF-8 for bytes that
//! are not UTF-8, is ignored. All other messages are taken to be in a set of one byte a character and are split as
//! bytes, unless they look like a set that must not be split so ([`ReadingError::Undeclared`]).
//!
//! Invariants:
//! - the received bytes never change, and unedited parts are written back byte for byte: unedited lines from the
//!   received bytes; in an edited line, each value that the encoder would write with other bytes comes from a list of
//!   such values;
//! - a transcript has the same lines as the bytes, since CR and LF are no part of a character in any of the sets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use memchr::{memchr, memchr2, memchr2_iter};

use crate::charset::{Charset, ESC, EncodeError, suspect};
use crate::error::{ParseError, ReadingError};
use crate::message::header_start;
use crate::path::Which;
use crate::{Delimiters, Draft, Message, Path, Piece, Segment, SegmentName, Value};

/// A message and how it is read. See the module's text.
#[derive(Clone)]
pub struct Reading<'a> {
    raw: &'a [u8],
    /// The message in UTF-8, where its own bytes cannot be split.
    transcript: Option<String>,
    /// The charset of `raw`, where it is known otherwise than by MSH-18.
    known: Option<Charset>,
    /// The charset where MSH-18 names none.
    assumed: Option<Charset>,
}

/// A part of an edited message, in the charset of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// These bytes of the message as received.
    Original(Range<usize>),
    /// These bytes.
    New(Vec<u8>),
}

impl Run {
    /// The same as a piece of a draft.
    #[must_use]
    pub fn piece(&self) -> Piece<'_> {
        match self {
            Run::Original(range) => Piece::Original(range.clone()),
            Run::New(bytes) => Piece::New(bytes),
        }
    }
}

/// The content of MSH-18.
enum Declared {
    Nothing,
    Charset(Charset),
    Unsupported(&'static str),
}

impl<'a> Reading<'a> {
    /// Finds out how a message is read; `assumed` is its charset where MSH-18 declares none.
    ///
    /// # Errors
    /// [`ReadingError`] where splitting it could cut a character in two.
    pub fn of(raw: &'a [u8], assumed: Option<Charset>) -> Result<Reading<'a>, ReadingError> {
        if let Some(charset) = utf16(raw) {
            return Reading::transcribed(raw, charset, assumed);
        }
        let has_escape = has_escape(raw);
        let plain = Reading::plain(raw, assumed);
        if !has_escape && raw.is_ascii() {
            return Ok(plain);
        }
        let declared = match declared(raw) {
            Declared::Unsupported(name) => return Err(ReadingError::Unsupported { name }),
            Declared::Nothing => None,
            Declared::Charset(charset) if charset == Charset::ASCII => None,
            Declared::Charset(charset) if charset == Charset::UTF_8 && charset.read(raw).is_none() => None,
            Declared::Charset(charset) => Some(charset),
        };
        match declared.or(assumed) {
            Some(charset) if charset.splits() => Ok(Reading { known: Some(charset), ..plain }),
            Some(charset) => match Reading::transcribed(raw, charset, assumed) {
                // UTF-8 can be split whatever it is called; escape sequences are not UTF-8 text.
                Err(_) if !has_escape && Charset::UTF_8.read(raw).is_some() => {
                    Ok(Reading { known: Some(Charset::UTF_8), ..plain })
                }
                reading => reading,
            },
            None if has_escape && switches(raw) => Reading::transcribed(raw, Charset::ISO_2022_JP, assumed),
            None if Charset::UTF_8.read(raw).is_some() => Ok(Reading { known: Some(Charset::UTF_8), ..plain }),
            None => match header(raw).and_then(|(_, delimiters)| suspect(raw, delimiters)) {
                Some(charset) => Err(ReadingError::Undeclared { charset: charset.name() }),
                None => Ok(plain),
            },
        }
    }

    /// The same for messages that are only displayed or searched: if the charset cannot be determined, they are split
    /// as bytes.
    #[must_use]
    pub fn lenient(raw: &'a [u8], assumed: Option<Charset>) -> Reading<'a> {
        Reading::of(raw, assumed).unwrap_or_else(|_| Reading::plain(raw, assumed))
    }

    /// The same for the header alone, for callers that need no more: the segments after it are not examined.
    #[must_use]
    pub fn of_header(raw: &'a [u8], assumed: Option<Charset>) -> Reading<'a> {
        if utf16(raw).is_some() {
            return Reading::lenient(raw, assumed);
        }
        let start = header_start(raw);
        let line_end = memchr(b'\r', &raw[start..]).or_else(|| memchr(b'\n', &raw[start..]));
        // With its line end, which shows how the lines of the message end.
        Reading::lenient(line_end.map_or(raw, |at| &raw[..=start + at]), assumed)
    }

    /// For text, which is UTF-8 whatever MSH-18 declares.
    #[must_use]
    pub fn of_text(text: &'a str) -> Reading<'a> {
        Reading { known: Some(Charset::UTF_8), ..Reading::plain(text.as_bytes(), None) }
    }

    fn plain(raw: &'a [u8], assumed: Option<Charset>) -> Reading<'a> {
        Reading { raw, transcript: None, known: None, assumed }
    }

    fn transcribed(raw: &'a [u8], charset: Charset, assumed: Option<Charset>) -> Result<Reading<'a>, ReadingError> {
        let text = charset.read(raw).ok_or(ReadingError::NotInCharset { charset: charset.name() })?;
        Ok(Reading { raw, transcript: Some(text.into_owned()), known: Some(charset), assumed })
    }

    /// The message as received.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Whether it is split in a transcript, not in its own bytes.
    #[must_use]
    pub fn is_transcript(&self) -> bool {
        self.transcript.is_some()
    }

    /// The charset of a message whose own bytes cannot be split.
    #[must_use]
    pub fn transcribed_from(&self) -> Option<Charset> {
        self.transcript().map(|(_, charset)| charset)
    }

    /// The transcript, and the charset that it is of.
    pub(crate) fn transcript(&self) -> Option<(&str, Charset)> {
        self.transcript.as_deref().zip(self.known)
    }

    /// Whether it is in a set of two bytes a unit, which no frame can carry and which is written as UTF-8.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.known.is_some_and(Charset::is_utf16)
    }

    /// The message, to be split: over its bytes, or over the transcript, whose charset is UTF-8 whatever MSH-18
    /// declares.
    ///
    /// # Errors
    /// As [`Message::parse`].
    pub fn message(&self) -> Result<Message<'_>, ParseError> {
        self.message_up_to(|_| false)
    }

    /// What [`Message::get`] and [`Message::text`] of [`message`](Self::message) are for a path; none where the place is
    /// absent. Of a message whose path names the segment by its number, what is behind that segment is not split.
    ///
    /// # Errors
    /// As [`Message::parse`].
    pub fn text_at(&self, path: &Path) -> Result<Option<Cow<'_, str>>, ParseError> {
        let mut left = match path.segment.which {
            Which::Nth(nth) => nth,
            Which::Last | Which::All | Which::Where(_) => u32::MAX,
        };
        let message = self.message_up_to(|name| {
            left = left.saturating_sub(u32::from(name == path.segment.name && left < u32::MAX));
            left == 0
        })?;
        Ok((message.get(path) != Value::Absent).then(|| message.text(path)))
    }

    fn message_up_to(&self, is_last: impl FnMut(SegmentName) -> bool) -> Result<Message<'_>, ParseError> {
        match &self.transcript {
            Some(text) => Ok(Message::parse_up_to(text.as_bytes(), is_last)?.with_charset(Some(Charset::UTF_8), None)),
            None => Ok(Message::parse_up_to(self.raw, is_last)?.with_charset(self.known, self.assumed)),
        }
    }

    /// The whole message as text, to be written in another charset.
    ///
    /// # Errors
    /// `Unknown` if the charset is not declared, `NotInCharset` if the bytes are not valid in the declared one.
    pub fn text(&self) -> Result<Cow<'_, str>, ReadingError> {
        if let Some(text) = &self.transcript {
            return Ok(Cow::Borrowed(unmarked(text)));
        }
        let raw = self.raw.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(self.raw);
        let declared = || self.message().ok().and_then(|message| message.charset());
        let charset = self.known.or_else(declared).filter(|charset| *charset != Charset::ASCII);
        match charset {
            Some(charset) if !raw.is_ascii() && charset != Charset::UTF_8 => {
                charset.read(raw).ok_or(ReadingError::NotInCharset { charset: charset.name() })
            }
            _ => Charset::UTF_8.read(raw).ok_or(ReadingError::Unknown),
        }
    }

    /// The whole message as text for display: this never fails; unknown bytes are read as by [`Charset::decode`].
    #[must_use]
    pub fn shown(&self) -> Cow<'_, str> {
        match &self.transcript {
            Some(text) => Cow::Borrowed(unmarked(text)),
            None => {
                let charset = self.message().ok().and_then(|message| message.charset());
                charset.unwrap_or(Charset::UTF_8).decode(self.raw)
            }
        }
    }

    /// The pieces of the edited message, in the charset of the message as received; `draft` is over
    /// [`message`](Self::message). One in UTF-16 is UTF-8 once it is edited.
    ///
    /// # Errors
    /// [`EncodeError`] with the first new character that the charset does not have.
    pub fn runs(&self, draft: &Draft<'_>) -> Result<Vec<Run>, EncodeError> {
        let (Some(text), Some(charset)) = (&self.transcript, self.known) else {
            return Ok(draft
                .pieces()
                .map(|piece| match piece {
                    Piece::Original(range) => Run::Original(range),
                    Piece::New(bytes) => Run::New(bytes.to_vec()),
                })
                .collect());
        };
        if self.is_wide() {
            let mut edited = Vec::new();
            draft.write_to(&mut edited);
            return Ok(vec![if draft.touched() == 0 { Run::Original(0..self.raw.len()) } else { Run::New(edited) }]);
        }
        let lines = Lines::new(text.as_bytes(), self.raw);
        let odd = Odd::of(self.raw, draft.delimiters(), charset);
        let mut runs = Vec::new();
        for piece in draft.pieces() {
            runs.push(match piece {
                Piece::Original(range) => Run::Original(lines.of(range.start)..lines.of(range.end)),
                // New bytes are text: a draft of a transcript takes nothing else.
                Piece::New(bytes) => Run::New(odd.encode(&String::from_utf8_lossy(bytes))?),
            });
        }
        Ok(runs)
    }

    /// An answer to the message, made of its [`message`](Self::message), in the charset of the message; characters that
    /// it does not have are replaced by `?`. The answer to a message that no frame can carry is in UTF-8, and declares
    /// it.
    #[must_use]
    pub fn encode_answer(&self, answer: Vec<u8>) -> Vec<u8> {
        let Some(charset) = self.known.filter(|_| self.is_transcript()) else { return answer };
        if !charset.is_utf16() {
            return charset.encode_or(&String::from_utf8_lossy(&answer), "?").into_owned();
        }
        let declared = Message::parse(&answer).ok().map(|message| {
            let (mut draft, mut out) = (Draft::new(&message), Vec::new());
            // The delimiters do not permit the name in MSH-18: the rest of the answer is right.
            let _ = Charset::UTF_8.declare(&mut draft);
            draft.write_to(&mut out);
            out
        });
        declared.unwrap_or(answer)
    }
}

impl std::fmt::Debug for Reading<'_> {
    /// Names no content: it is a patient's, and must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading")
            .field("bytes", &self.raw.len())
            .field("is_transcript", &self.is_transcript())
            .field("known", &self.known)
            .field("assumed", &self.assumed)
            .finish()
    }
}

/// Without a byte order mark.
fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// UTF-16, by its mark or by an MSH in it, which is no MSH in any other set.
fn utf16(raw: &[u8]) -> Option<Charset> {
    match raw {
        [0xFF, 0xFE, ..] | [b'M', 0, b'S', 0, b'H', 0, ..] => Some(Charset::UTF_16_LE),
        [0xFE, 0xFF, ..] | [0, b'M', 0, b'S', 0, b'H', ..] => Some(Charset::UTF_16_BE),
        _ => None,
    }
}

/// Whether it has a sequence that begins a set of two bytes a character, or one of JIS.
fn switches(raw: &[u8]) -> bool {
    raw.windows(3).any(|bytes| matches!(bytes, [ESC, b'$', _] | [ESC, b'(', b'I' | b'J']))
}

/// The header's line, and its delimiters.
fn header(raw: &[u8]) -> Option<(&[u8], Delimiters)> {
    let line = &raw[header_start(raw)..];
    let line = &line[..memchr2(b'\r', b'\n', line).unwrap_or(line.len())];
    Some((line, Delimiters::of_header(line).ok()?))
}

/// Reads MSH-18. If a name before it (of a facility, for example) is in a set that hides delimiters, the place of
/// MSH-18 is only known in that set: the set is accepted if MSH-18, read in it, names it.
fn declared(raw: &[u8]) -> Declared {
    let Some((line, delimiters)) = header(raw) else { return Declared::Nothing };
    let field = |line: &[u8]| Segment::new(line, delimiters).field(18).bytes().to_vec();
    let as_bytes = field(line);
    if let Some(name) = Charset::unsupported(&as_bytes, delimiters) {
        return Declared::Unsupported(name);
    }
    let found = Charset::declared_by(&as_bytes, delimiters);
    if found.is_some() {
        return found.map_or(Declared::Nothing, Declared::Charset);
    }
    if line.is_ascii() && !has_escape(line) {
        return Declared::Nothing;
    }
    let sets = [Charset::SHIFT_JIS, Charset::GB_18030, Charset::BIG_5, Charset::ISO_2022_JP];
    let named = sets.into_iter().find_map(|set| {
        let text = set.read(line)?;
        Charset::declared_by(&field(text.as_bytes()), delimiters).filter(|named| named.reads_as(set))
    });
    named.map_or(Declared::Nothing, Declared::Charset)
}

/// The line ends of a transcript and of the bytes it is of: where each is, in order. There are as many.
struct Lines<'r> {
    text: &'r [u8],
    raw: &'r [u8],
    text_ends: Vec<usize>,
    raw_ends: Vec<usize>,
}

impl<'r> Lines<'r> {
    fn new(text: &'r [u8], raw: &'r [u8]) -> Lines<'r> {
        let ends = |bytes| memchr2_iter(b'\r', b'\n', bytes).collect();
        Lines { text, raw, text_ends: ends(text), raw_ends: ends(raw) }
    }

    /// Where in the bytes a place of the transcript is that begins or ends a line, or the blanks before MSH.
    fn of(&self, at: usize) -> usize {
        let line = self.text_ends.partition_point(|end| *end < at);
        let start = |ends: &[usize]| line.checked_sub(1).map_or(0, |before| ends[before] + 1);
        let (text_start, raw_start) = (start(&self.text_ends), start(&self.raw_ends));
        // Escape sequences may follow the last character of a line, and belong to it.
        let text_end = self.text_ends.get(line).copied().unwrap_or(self.text.len());
        if at == text_end && (at > text_start || (at > 0 && at == self.text.len())) {
            return self.raw_ends.get(line).copied().unwrap_or(self.raw.len());
        }
        let before = &self.text[text_start..at];
        if before.is_ascii() && self.raw[raw_start..].starts_with(before) {
            return raw_start + before.len();
        }
        self.raw_ends.get(line).copied().unwrap_or(self.raw.len())
    }
}

/// Values that the encoder would write with other bytes: some sets have a character in two places, or one that only a
/// vendor's tables write. Empty for nearly every message.
struct Odd {
    charset: Charset,
    delimiters: Delimiters,
    values: HashMap<String, Vec<u8>>,
}

impl Odd {
    fn of(raw: &[u8], delimiters: Delimiters, charset: Charset) -> Odd {
        let mut values = HashMap::new();
        let is_same = |text: &str, raw: &[u8]| matches!(charset.encode(text), Ok(bytes) if *bytes == *raw);
        for line in raw.split(|byte| matches!(byte, b'\r' | b'\n')).filter(|line| !line.is_ascii() || has_escape(line))
        {
            if charset.read(line).is_none_or(|text| is_same(&text, line)) {
                continue;
            }
            for value in charset.values(line, |byte| delimiters.contains(byte)) {
                // Escape sequences alone are no text: they would be written at every empty value.
                if let Some(text) = charset.read(&value).filter(|text| !text.is_empty() && !is_same(text, &value)) {
                    let text = text.into_owned();
                    values.entry(text).or_insert_with(|| value.into_owned());
                }
            }
        }
        Odd { charset, delimiters, values }
    }

    fn encode(&self, text: &str) -> Result<Vec<u8>, EncodeError> {
        if self.values.is_empty() {
            return self.charset.encode(text).map(Cow::into_owned);
        }
        let ends = |c: char| separates(self.delimiters, c) || matches!(c, '\r' | '\n');
        let mut out = Vec::with_capacity(text.len());
        for value in text.split_inclusive(ends) {
            let own = value.trim_end_matches(ends);
            match self.values.get(own) {
                Some(bytes) => out.extend_from_slice(bytes),
                None => out.extend_from_slice(&self.charset.encode(own)?),
            }
            out.extend_from_slice(&value.as_bytes()[own.len()..]);
        }
        Ok(out)
    }
}

fn has_escape(bytes: &[u8]) -> bool {
    memchr(ESC, bytes).is_some()
}

fn separates(delimiters: Delimiters, character: char) -> bool {
    u8::try_from(character).is_ok_and(|byte| byte.is_ascii() && delimiters.contains(byte))
}
