//! Values: their sources, and the stack that holds them.

use std::borrow::Cow;

use hl7::charset::Charset;
use hl7::{Message, Place, Segment, SegmentId, SegmentSelector, Value, Which, escape};

use super::super::context::RunProblem;
use super::super::program::{ConstantId, Spot, SpotId};
use super::super::time::Moment;
use super::{Cursor, Frame, Machine, Stop, Subject};

impl Subject<'_, '_> {
    pub(super) fn get(&self, path: &hl7::Path) -> Value<'_> {
        match self {
            Subject::Message(message) => message.get(path),
            Subject::Draft(draft) => draft.get(path),
        }
    }

    pub(super) fn segment(&self, at: SegmentId) -> Segment<'_> {
        match self {
            Subject::Message(message) => message.segment_at(at.number() as usize).expect("ids come from this message"),
            Subject::Draft(draft) => draft.segment(at),
        }
    }

    /// The value at a place of a segment.
    pub(super) fn get_at(&self, at: SegmentId, place: &Place) -> Value<'_> {
        match self {
            Subject::Message(_) => self.segment(at).get(place),
            Subject::Draft(draft) => draft.get_at(at, place),
        }
    }

    pub(super) fn contains(&self, at: SegmentId) -> bool {
        match self {
            Subject::Message(_) => true,
            Subject::Draft(draft) => draft.contains(at),
        }
    }

    pub(super) fn select(&self, selector: &SegmentSelector) -> Vec<SegmentId> {
        match self {
            Subject::Message(message) => positions(message, selector),
            Subject::Draft(draft) => draft.select(selector),
        }
    }

    pub(super) fn first(&self, selector: &SegmentSelector) -> Option<SegmentId> {
        match self {
            Subject::Message(message) => first(message, selector),
            Subject::Draft(draft) => draft.first(selector),
        }
    }

    pub(super) fn count(&self, selector: &SegmentSelector) -> usize {
        match self {
            Subject::Message(message) => message.select(selector).count(),
            Subject::Draft(draft) => draft.count(selector),
        }
    }
}

/// The first of the segments a selector selects, without a list of them.
fn first(message: &Message<'_>, selector: &SegmentSelector) -> Option<SegmentId> {
    let mut named = message.segments().enumerate().filter(|(_, segment)| segment.name() == selector.name);
    let found = match &selector.which {
        Which::Nth(n) => named.nth(*n as usize - 1),
        Which::Last => named.next_back(),
        Which::All => named.next(),
        Which::Where(condition) => named.find(|(_, segment)| segment.meets(condition)),
    };
    found.map(|(at, _)| SegmentId::original(at as u32))
}

/// The segments a selector selects.
fn positions(message: &Message<'_>, selector: &SegmentSelector) -> Vec<SegmentId> {
    let named: Vec<SegmentId> = message
        .segments()
        .enumerate()
        .filter(|(_, segment)| segment.name() == selector.name)
        .map(|(at, _)| SegmentId::original(at as u32))
        .collect();
    match &selector.which {
        Which::Nth(n) => named.get(*n as usize - 1).copied().into_iter().collect(),
        Which::Last => named.last().copied().into_iter().collect(),
        Which::All => named,
        Which::Where(condition) => named
            .into_iter()
            .filter(|at| message.segment_at(at.number() as usize).is_some_and(|segment| segment.meets(condition)))
            .collect(),
    }
}

/// The value of a spot; of several places the first.
pub(super) fn value<'v>(
    subject: &'v Subject<'_, '_>,
    cursors: &[Cursor],
    frame: Frame<'_>,
    spot: SpotId,
) -> Result<Value<'v>, Stop> {
    let (cursor, place) = match &frame.program.spots[spot as usize] {
        Spot::Path(path) => return Ok(subject.get(path)),
        Spot::Segment(cursor) => {
            let at = standing(subject, cursors, frame, *cursor, spot)?.0;
            return Ok(Value::of(subject.segment(at).raw()));
        }
        Spot::Place(cursor, place) => (*cursor, Cow::Borrowed(place)),
        Spot::Repetition { cursor, component, subcomponent } => {
            let state = standing(subject, cursors, frame, *cursor, spot)?.1;
            (*cursor, Cow::Owned(repetition_place(state, *component, *subcomponent)))
        }
    };
    let at = standing(subject, cursors, frame, cursor, spot)?.0;
    Ok(subject.get_at(at, &place))
}

/// The segment of a cursor and the cursor itself.
pub(super) fn standing<'c>(
    subject: &Subject<'_, '_>,
    cursors: &'c [Cursor],
    frame: Frame<'_>,
    cursor: u16,
    spot: SpotId,
) -> Result<(SegmentId, &'c Cursor), Stop> {
    let state = &cursors[frame.cursor(cursor)];
    match state.segment {
        Some(at) if !state.gone && subject.contains(at) => Ok((at, state)),
        _ => Err(RunProblem::Deleted { place: frame.label(spot) }.into()),
    }
}

/// The place of a cursor's repetition.
pub(super) fn repetition_place(state: &Cursor, component: Option<u16>, subcomponent: Option<u16>) -> Place {
    Place { field: state.field, repetition: Some(Which::Nth(state.repetition)), component, subcomponent }
}

impl Machine<'_, '_> {
    // The stack.

    pub(super) fn begin(&mut self) {
        self.starts.push(self.arena.len());
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.begin();
        self.arena.extend_from_slice(bytes);
    }

    pub(super) fn push_value(&mut self, frame: Frame<'_>, spot: SpotId) -> Result<(), Stop> {
        let value = value(&self.subject, &self.cursors, frame, spot)?;
        self.starts.push(self.arena.len());
        self.arena.extend_from_slice(value.bytes());
        Ok(())
    }

    /// Where the value `depth` below the top begins and ends.
    pub(super) fn range(&self, depth: usize) -> std::ops::Range<usize> {
        let at = self.starts.len() - 1 - depth;
        self.starts[at]..self.starts.get(at + 1).copied().unwrap_or(self.arena.len())
    }

    pub(super) fn peek(&self, depth: usize) -> &[u8] {
        &self.arena[self.range(depth)]
    }

    pub(super) fn pop(&mut self) {
        let start = self.starts.pop().expect("the compiler balances the stack");
        self.arena.truncate(start);
    }

    /// Keeps only `part` of the top value; `part` counts from the value's beginning.
    pub(super) fn narrow(&mut self, part: std::ops::Range<usize>) {
        let start = self.range(0).start;
        self.arena.copy_within(start + part.start..start + part.end, start);
        self.arena.truncate(start + part.len());
    }

    // Literals and text.

    /// A literal, as written in this message.
    pub(super) fn constant<'s>(&self, frame: Frame<'s>, constant: ConstantId) -> Result<Cow<'s, [u8]>, Stop> {
        let constant = &frame.program.constants[constant as usize];
        if self.standard && (constant.text.is_ascii() || self.charset() == Charset::UTF_8) {
            return Ok(Cow::Borrowed(&constant.standard));
        }
        let encoded = self.encode(&constant.text)?;
        let made = if constant.content {
            escape::convert(&encoded, hl7::Delimiters::default(), self.delimiters)
        } else {
            escape::escape(&encoded, self.delimiters)
        };
        Ok(Cow::Owned(made.into_owned()))
    }

    /// Plain text of the configuration, as written in this message.
    pub(super) fn content_of<'t>(&self, text: &'t str) -> Result<Cow<'t, [u8]>, Stop> {
        Ok(match self.encode(text)? {
            Cow::Borrowed(encoded) => escape::escape(encoded, self.delimiters),
            Cow::Owned(encoded) => Cow::Owned(escape::escape(&encoded, self.delimiters).into_owned()),
        })
    }

    fn encode<'t>(&self, text: &'t str) -> Result<Cow<'t, [u8]>, Stop> {
        if text.is_ascii() {
            return Ok(Cow::Borrowed(text.as_bytes()));
        }
        let charset = self.charset();
        charset.encode(text).map_err(|_| RunProblem::Charset { charset: charset.name() }.into())
    }

    /// A value as text: escapes and character set decoded.
    pub(in super::super) fn text<'v>(&self, raw: &'v [u8]) -> Cow<'v, str> {
        let plain = self.delimiters.escape.is_none_or(|escape| memchr::memchr(escape, raw).is_none());
        match std::str::from_utf8(raw) {
            Ok(text) if plain && raw.is_ascii() => Cow::Borrowed(text),
            _ => self.charset().text(raw, self.delimiters),
        }
    }

    fn charset(&self) -> Charset {
        *self.charset.get_or_init(|| {
            let declared = match &self.subject {
                Subject::Message(message) => message.charset(),
                Subject::Draft(draft) => draft.message().charset(),
            };
            declared.unwrap_or(self.context.charset)
        })
    }

    pub(super) fn now(&self) -> Moment {
        *self.now.get_or_init(|| Moment::now(self.context.now, &self.context.zone))
    }
}
