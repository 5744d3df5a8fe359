//! Masking: a message whose values at given paths are a fixed text, for readers who may not see whom it is about.
//!
//! ```text
//!   PID|1||123^^^NORTH^MR~9^^^^SS||DOE^JANE||19700101|F      as received
//!   PID|1||MASKED||MASKED||MASKED|F                          PID-3, PID-5, PID-7
//!   PID|1||MASKED^^^NORTH^MR~MASKED^^^^SS||DOE^JANE|..       PID-3.1
//!   NK1|MASKED                                               NK1
//! ```
//!
//! A path names a segment, a field, a component or a subcomponent: of every segment of that name, in every repetition.
//!
//! Invariants:
//! - What is written depends on nothing in a masked place: not on its length, its parts or its repetitions, and not on
//!   whether it is empty, `""` or absent, since for some fields that is the value (PID-29, date of death). So a segment
//!   that ends before a masked field is made longer.
//! - What cannot be attributed is masked: a message without a usable header or of an unknown charset as a whole, a line
//!   without a readable name, a place whose level has no delimiter in this message, a message that masking would make
//!   many times as long.
//! - All other bytes are as they were, except in charsets that are split in a transcript ([`Reading`]): there, all that
//!   is text is encoded again.
//!
//! It does not know data types or where senders put values by mistake: a name in PID-8, or in a Z segment that is not
//! listed, is shown. It is no anonymization: times, places and codes that stay can tell who somebody is.

use std::cell::LazyCell;

use thiserror::Error;

use crate::charset::{Charset, ESC};
use crate::error::PathError;
use crate::message::{BYTE_ORDER_MARK, header_start};
use crate::path::{Path, Place, Which};
use crate::segment::{count, nth, parts};
use crate::table::{Lines, breaks_line, line_end};
use crate::{Delimiters, Reading, Segment, SegmentName};

/// What stands for a masked value. Letters: no message can declare one of them as a delimiter, and every charset has
/// them.
pub const MASK: &str = "MASKED";

/// What identifies a patient, in the segments of HL7 2.x, and where texts quote it. The reasons are in
/// `docs/masking.md`.
pub const DEFAULT_PATHS: &[&str] = &[
    "PID-2", "PID-3", "PID-4", "PID-5", "PID-6", "PID-7", "PID-9", "PID-11", "PID-12", "PID-13", "PID-14", "PID-18",
    "PID-19", "PID-20", "PID-21", "PID-23", "PID-29", "PID-40", "PV1-5", "PV1-19", "PV1-50", "MRG", "NK1", "GT1",
    "IN1", "IN2", "IN3", "QPD", "QRD-8", "OBR-13", "OBX-5", "NTE-3", "DSP", "ADD", "MSA-3", "ERR-7", "ERR-8",
];

/// The largest number in a masked path: a segment is made that long, if need be.
const NUMBER_MAX: u16 = 255;

/// A message may become so many times as long, and so many bytes longer.
const TIMES_LONGER: usize = 4;
const BYTES_LONGER: usize = 64 << 10;

/// Why a path cannot be masked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("masked path `{path}`: {problem}")]
pub struct MaskError {
    /// The path as written.
    pub path: String,
    /// What is wrong with it.
    pub problem: MaskProblem,
}

/// What is wrong with a path to mask.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MaskProblem {
    /// It is no path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It selects some segments or repetitions only.
    #[error("every segment and every repetition is masked; write it without brackets, as PID-3.1")]
    Selector,
    /// Without these nothing in a message can be found.
    #[error("the fields 1, 2 and 18 of a header say how a message is read; name other fields, such as MSH-10")]
    Header,
    /// Its number is too large.
    #[error("the largest number in a masked path is {NUMBER_MAX}")]
    TooLarge,
}

/// A part at one level, and which parts below it are masked; none below: all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    number: u16,
    below: Vec<Node>,
}

/// What is masked in segments of one name; no fields: all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    name: SegmentName,
    fields: Vec<Node>,
}

/// Which places are masked. See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masker {
    /// By name.
    rules: Vec<Rule>,
}

impl Default for Masker {
    /// Masks [`DEFAULT_PATHS`].
    fn default() -> Masker {
        Masker::new(DEFAULT_PATHS).expect("the default paths can be masked")
    }
}

impl Masker {
    /// Masks these paths; with none, nothing.
    ///
    /// # Errors
    /// [`MaskError`] for the first that is no path, or cannot be masked.
    pub fn new<S: AsRef<str>>(paths: impl IntoIterator<Item = S>) -> Result<Masker, MaskError> {
        let mut masker = Masker { rules: Vec::new() };
        for text in paths {
            let text = text.as_ref();
            let wrong = |problem| MaskError { path: text.to_owned(), problem };
            let path: Path = text.parse().map_err(|error| wrong(MaskProblem::Path(error)))?;
            masker.add(&path).map_err(wrong)?;
        }
        Ok(masker)
    }

    fn add(&mut self, path: &Path) -> Result<(), MaskProblem> {
        let name = path.segment.name;
        let repetition = path.place.as_ref().and_then(|place| place.repetition.as_ref());
        if !matches!(path.segment.which, Which::Nth(1) | Which::All) || !matches!(repetition, None | Some(Which::All)) {
            return Err(MaskProblem::Selector);
        }
        let field = path.place.as_ref().map(|place| place.field);
        if name.is_header() && field.is_none_or(|field| matches!(field, 1 | 2 | 18)) {
            return Err(MaskProblem::Header);
        }
        let place = path.place.as_ref();
        let numbers = [field, place.and_then(|p| p.component), place.and_then(|p| p.subcomponent)];
        if numbers.iter().flatten().any(|number| *number > NUMBER_MAX) {
            return Err(MaskProblem::TooLarge);
        }
        let at = match self.rules.binary_search_by_key(&name, |rule| rule.name) {
            Ok(at) if self.rules[at].fields.is_empty() => return Ok(()),
            Ok(at) => at,
            Err(at) => {
                self.rules.insert(at, Rule { name, fields: Vec::new() });
                at
            }
        };
        add_below(&mut self.rules[at].fields, numbers.into_iter().flatten());
        Ok(())
    }

    /// Whether it masks nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a path reads anything that is masked, or selects by it: then neither its value nor whether it equals one
    /// may be shown.
    #[must_use]
    pub fn covers(&self, path: &Path) -> bool {
        let Some(rule) = self.rule(path.segment.name) else { return false };
        let covers = |place: &Place| covers_place(&rule.fields, place);
        let by_segment = match &path.segment.which {
            Which::Where(condition) => covers(&condition.place),
            _ => false,
        };
        let by_repetition = match path.place.as_ref().and_then(|place| place.repetition.as_ref()) {
            Some(Which::Where(condition)) => covers(&condition.place),
            _ => false,
        };
        by_segment || by_repetition || path.place.as_ref().is_none_or(covers)
    }

    /// The message with its masked places replaced; `assumed` is its charset where MSH-18 declares none. Of several
    /// messages in one, each is read by its own header.
    #[must_use]
    pub fn mask(&self, raw: &[u8], assumed: Option<Charset>) -> Vec<u8> {
        if self.is_empty() {
            return raw.to_vec();
        }
        let Ok(reading) = Reading::of(raw, assumed) else { return MASK.into() };
        match reading.transcript() {
            None => self.masked(raw, None).unwrap_or_else(|| MASK.into()),
            Some((text, charset)) => {
                let Some(masked) = self.masked(text.as_bytes(), Some(charset)) else { return MASK.into() };
                charset.encode_or(&String::from_utf8_lossy(&masked), "?").into_owned()
            }
        }
    }

    fn rule(&self, name: SegmentName) -> Option<&Rule> {
        self.rules.binary_search_by_key(&name, |rule| rule.name).ok().map(|at| &self.rules[at])
    }

    /// The same of bytes that can be split, or of the transcript of a message in `known`. None: not even the first header
    /// can be read, another one declares a charset that does not go with the first one's, or it would be too long.
    fn masked(&self, raw: &[u8], known: Option<Charset>) -> Option<Vec<u8>> {
        let start = header_start(raw);
        header_separator(&raw[start..])?;
        let lines = Lines::of(&raw[start..]);
        let mut writer = Writer::new(raw.len());
        // Once: there may be a header in each line.
        let is_plain = LazyCell::new(|| known.is_none() && raw.is_ascii() && !raw.contains(&ESC));
        // What the last header declares; none where it cannot be read: then nothing of what follows it can.
        let (mut delimiters, mut field) = (None, 0);
        let (mut from, mut copied) = (start, 0);
        while from < raw.len() {
            let header = header_at(raw, from);
            if let Some((_, separator)) = header {
                field = separator;
            }
            let (end, next) = line_end(raw, from, field, lines);
            let begin = header.map_or(from, |(at, _)| at);
            if end > begin {
                let line = &raw[begin..end];
                if header.is_some() {
                    delimiters = Delimiters::of_header(line).ok();
                }
                if begin == start && delimiters.is_none() {
                    return None;
                }
                if begin > start && header.is_some() && !can_follow(line, delimiters, *is_plain, known) {
                    return None;
                }
                let name = delimiters.and_then(|delimiters| name(line, delimiters.field));
                let rule = name.and_then(|name| self.rule(name));
                if name.is_none() || rule.is_some() {
                    // Blanks before a header stay only where it can be read.
                    let kept = if rule.is_some() { begin } else { from };
                    writer.out.extend_from_slice(&raw[copied..kept]);
                    copied = end;
                    match (rule, delimiters) {
                        (Some(rule), Some(delimiters)) => writer.segment(line, delimiters, rule, lines)?,
                        _ => writer.mask(),
                    }
                }
            }
            from = next;
        }
        writer.out.extend_from_slice(&raw[copied..]);
        Some(writer.out)
    }
}

/// Adds a place below; what it is a part of, or what is a part of it, is masked once.
fn add_below(nodes: &mut Vec<Node>, mut numbers: impl Iterator<Item = u16>) {
    let Some(number) = numbers.next() else {
        nodes.clear();
        return;
    };
    match nodes.binary_search_by_key(&number, |node| node.number) {
        Ok(at) if nodes[at].below.is_empty() => {}
        Ok(at) => add_below(&mut nodes[at].below, numbers),
        Err(at) => {
            let mut node = Node { number, below: Vec::new() };
            add_below(&mut node.below, numbers);
            nodes.insert(at, node);
        }
    }
}

/// Whether a place is within a masked one, or a masked one within it.
fn covers_place(fields: &[Node], place: &Place) -> bool {
    let mut nodes = fields;
    for number in [Some(place.field), place.component, place.subcomponent] {
        let (Some(number), false) = (number, nodes.is_empty()) else { return true };
        match nodes.binary_search_by_key(&number, |node| node.number) {
            Ok(at) => nodes = &nodes[at].below,
            Err(_) => return false,
        }
    }
    true
}

/// The field separator of a line that is a header, readable or not.
fn header_separator(line: &[u8]) -> Option<u8> {
    match *line {
        [b'M', b'S', b'H', separator, ..] | [b'F' | b'B', b'H', b'S', separator, ..]
            if !separator.is_ascii_alphanumeric() && separator > b' ' =>
        {
            Some(separator)
        }
        _ => None,
    }
}

/// Where in the line that begins at `from` a header begins, after a byte order mark and blanks, and its field separator. It looks at this line
/// only: a message may have millions of empty ones.
fn header_at(raw: &[u8], from: usize) -> Option<(usize, u8)> {
    let blanks = |from: usize| {
        let found = raw[from..].iter().position(|byte| !matches!(byte, 0 | b' ' | b'\t'));
        found.map_or(raw.len(), |blanks| from + blanks)
    };
    let start = blanks(from);
    let mark = raw[start..].starts_with(BYTE_ORDER_MARK);
    let at = if mark { blanks(start + BYTE_ORDER_MARK.len()) } else { start };
    header_separator(&raw[at..]).map(|separator| (at, separator))
}

/// Whether a message whose header is `line` can be read as the one before it was: as bytes, or in the transcript.
///
/// `is_plain`: the bytes are the same in each charset.
fn can_follow(line: &[u8], delimiters: Option<Delimiters>, is_plain: bool, known: Option<Charset>) -> bool {
    // What cannot be read is masked.
    let Some(delimiters) = delimiters else { return true };
    let field = Segment::new(line, delimiters).field(18);
    match (Charset::declared_by(field.bytes(), delimiters), known) {
        _ if is_plain => true,
        _ if Charset::unsupported(field.bytes(), delimiters).is_some() => false,
        (Some(declared), None) => declared.splits(),
        (Some(declared), Some(known)) => known.is_utf16() || declared.reads_as(known),
        (None, _) => true,
    }
}

/// The name of a line, if it has one. A header's name alone is no header, and nothing else either.
fn name(line: &[u8], field: u8) -> Option<SegmentName> {
    let name = SegmentName::from_bytes(line.get(..3)?)?;
    let is_name = line.get(3).map_or(!name.is_header(), |separator| *separator == field);
    is_name.then_some(name)
}

/// Writes masked segments.
struct Writer {
    out: Vec<u8>,
    bytes_max: usize,
}

impl Writer {
    fn new(bytes: usize) -> Writer {
        let bytes_max = bytes.saturating_mul(TIMES_LONGER).saturating_add(BYTES_LONGER);
        // Most messages become shorter, and small ones longer.
        Writer { out: Vec::with_capacity(bytes + 256), bytes_max }
    }

    fn mask(&mut self) {
        self.out.extend_from_slice(MASK.as_bytes());
    }

    /// None where it would be too long.
    fn segment(&mut self, line: &[u8], delimiters: Delimiters, rule: &Rule, lines: Lines) -> Option<()> {
        let begin = self.out.len();
        self.out.extend_from_slice(&line[..3]);
        self.out.push(delimiters.field);
        if rule.fields.is_empty() {
            self.mask();
            return self.fits();
        }
        self.fields(line.get(4..).unwrap_or_default(), delimiters, rule)?;
        if breaks_line(&self.out[begin..], delimiters.field, lines) {
            // A text with line feeds ended in what was no segment, `\nNTE` for example, and is one in a longer line. In a
            // header, all that follows would be read otherwise.
            if rule.name.is_header() {
                return None;
            }
            self.out.truncate(begin + 4);
            self.fields(b"", delimiters, rule)?;
        }
        Some(())
    }

    /// What follows the first separator of a segment.
    fn fields(&mut self, fields: &[u8], delimiters: Delimiters, rule: &Rule) -> Option<()> {
        let first = if rule.name.is_header() { 2 } else { 1 };
        self.level(fields, first, delimiters.field, &rule.fields, |writer, field, node| {
            writer.field(field, delimiters, node)
        })
    }

    /// A field of which parts are masked, in every repetition.
    fn field(&mut self, field: &[u8], delimiters: Delimiters, node: &Node) -> Option<()> {
        for (at, repetition) in parts(field, delimiters.repetition).enumerate() {
            if at > 0 {
                self.out.extend(delimiters.repetition);
            }
            match delimiters.component {
                None => self.mask(),
                Some(component) => self.level(repetition, 1, component, &node.below, |writer, part, node| {
                    match delimiters.subcomponent {
                        None => writer.mask(),
                        Some(below) => writer.level(part, 1, below, &node.below, |_, _, _| Some(()))?,
                    }
                    Some(())
                })?,
            }
            self.fits()?;
        }
        Some(())
    }

    /// The parts that `separator` makes of `bytes`, of which `first` is the number of the first: those of `nodes` masked,
    /// by `below` where only parts of them are.
    fn level(
        &mut self,
        bytes: &[u8],
        first: u16,
        separator: u8,
        nodes: &[Node],
        below: impl Fn(&mut Writer, &[u8], &Node) -> Option<()>,
    ) -> Option<()> {
        // The part `number` begins at `start`; `copied` is written up to there.
        let (mut number, mut start, mut copied) = (first, 0, 0);
        let mut is_over = false;
        for node in nodes {
            let distance = usize::from(node.number.saturating_sub(number));
            if !is_over && distance > 0 {
                match nth(&bytes[start..], separator, distance - 1) {
                    Some(at) => start += at + 1,
                    None => {
                        is_over = true;
                        // Fewer than `distance`.
                        number += (count(&bytes[start..], Some(separator)) - 1) as u16;
                        self.out.extend_from_slice(&bytes[copied..]);
                    }
                }
            }
            let mut part = &b""[..];
            if is_over {
                let missing = usize::from(node.number.saturating_sub(number));
                self.out.resize(self.out.len() + missing, separator);
            } else {
                self.out.extend_from_slice(&bytes[copied..start]);
                copied = nth(&bytes[start..], separator, 0).map_or(bytes.len(), |length| start + length);
                part = &bytes[start..copied];
            }
            number = node.number;
            if node.below.is_empty() {
                self.mask();
            } else {
                below(self, part, node)?;
            }
        }
        if !is_over {
            self.out.extend_from_slice(&bytes[copied..]);
        }
        self.fits()
    }

    fn fits(&self) -> Option<()> {
        (self.out.len() <= self.bytes_max).then_some(())
    }
}
