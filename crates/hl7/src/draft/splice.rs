//! Where in a segment's bytes an edit goes: the range it replaces, and the separators to write first when the
//! segment, field, repetition or component is too short to have the place.
//!
//! ```text
//! PID|1||A^B        set PID-5[2].3 to X:  range = end of segment
//!           |~^^X   padding = 1 field, 1 repetition, 2 component separators
//! ```

use std::ops::Range;

use crate::path::Place;
use crate::segment::{count, part_range, parts};
use crate::{Delimiters, EditError, Segment};

/// The longest segment that is made by writing one value to many places: more than any message that is taken.
const SEGMENT_BYTES_MAX: usize = 256 << 20;

/// Takes what is about to be written from what edits may still write.
pub(super) fn take(left: &mut usize, bytes: usize) -> Result<(), EditError> {
    *left = left.checked_sub(bytes).ok_or(EditError::TooMuch)?;
    Ok(())
}

/// How many of which separator are written before a value, level by level: fields, repetitions, components,
/// subcomponents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Padding([(u8, usize); 4]);

impl Padding {
    pub(super) fn add(&mut self, level: usize, separator: Option<u8>, times: usize) {
        self.0[level] = (separator.unwrap_or_default(), times);
    }

    /// Whether there is any: the place is not there.
    pub(super) fn is_needed(&self) -> bool {
        self.0.iter().any(|&(_, times)| times > 0)
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|&(_, times)| times).sum()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|&(separator, times)| out.resize(out.len() + times, separator));
    }

    pub(super) fn bytes(&self) -> impl Iterator<Item = u8> + use<> {
        self.0.into_iter().flat_map(|(separator, times)| std::iter::repeat_n(separator, times))
    }

    /// Repetitions are made up to the highest number a path can have, and beyond it one by one.
    pub(super) fn check(&self, repetition: Option<usize>) -> Result<(), EditError> {
        let far = self.0[1].1 > 1 && repetition.is_some_and(|repetition| repetition > usize::from(u16::MAX));
        if far { Err(EditError::Index) } else { Ok(()) }
    }

    pub(super) fn undeclared(level: usize) -> EditError {
        EditError::Undeclared { level: ["field", "repetition", "component", "subcomponent"][level] }
    }
}

/// The range a value replaces, and how many of which separator come before it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) range: Range<usize>,
    pub(super) padding: Padding,
}

impl Target {
    /// The place `place` with repetition `repetition` (1-based; none: the whole field) in `segment`.
    pub(super) fn find(segment: &Segment<'_>, place: &Place, repetition: Option<usize>) -> Result<Target, EditError> {
        let (raw, d) = (segment.raw(), segment.delimiters());
        let mut target = Target { range: 0..raw.len(), padding: Padding::default() };
        // The name is part 1, so field n is part n + 1; in a header MSH-1 is a separator and takes no part of its own.
        let field = usize::from(place.field) + usize::from(!segment.name().is_header());
        target.enter(raw, 0, Some(d.field), field)?;
        if let Some(repetition) = repetition {
            target.enter(raw, 1, d.repetition, repetition)?;
        }
        target.enter_components(raw, place, d)?;
        target.padding.check(repetition)?;
        Ok(target)
    }

    /// The component and subcomponent of `place` in `repetition`, which is one repetition's bytes.
    pub(super) fn within(repetition: &[u8], place: &Place, d: Delimiters) -> Result<Target, EditError> {
        let mut target = Target { range: 0..repetition.len(), padding: Padding::default() };
        target.enter_components(repetition, place, d)?;
        Ok(target)
    }

    /// Whether the place is there, so that nothing but its content is replaced.
    pub(super) fn exists(&self) -> bool {
        !self.padding.is_needed()
    }

    /// Whether the place is there and not empty.
    pub(super) fn holds_something(&self) -> bool {
        self.exists() && !self.range.is_empty()
    }

    /// Appends `raw` to `out` with `value` at the target.
    pub(super) fn write(&self, raw: &[u8], value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&raw[..self.range.start]);
        self.padding.write(out);
        out.extend_from_slice(value);
        out.extend_from_slice(&raw[self.range.end..]);
    }

    fn enter_components(&mut self, raw: &[u8], place: &Place, d: Delimiters) -> Result<(), EditError> {
        let Some(component) = place.component else { return Ok(()) };
        self.enter(raw, 2, d.component, usize::from(component))?;
        let Some(subcomponent) = place.subcomponent else { return Ok(()) };
        self.enter(raw, 3, d.subcomponent, usize::from(subcomponent))
    }

    /// Splits the range at `separator` and narrows it to part `number`, or to its end, with the missing separators as
    /// padding.
    fn enter(&mut self, raw: &[u8], level: usize, separator: Option<u8>, number: usize) -> Result<(), EditError> {
        let bytes = &raw[self.range.clone()];
        match (part_range(bytes, separator, number), separator) {
            (Some(found), _) => self.range = self.range.start + found.start..self.range.start + found.end,
            (None, Some(separator)) => {
                self.padding.add(level, Some(separator), number - count(bytes, Some(separator)));
                self.range.start = self.range.end;
            }
            (None, None) => return Err(Padding::undeclared(level)),
        }
        Ok(())
    }
}

/// `field` of `segment` with `value` at `place` in each repetition that selects, or with that deleted; and in how many
/// repetitions there was something to do. One pass: a message may hold millions of repetitions, and splicing each
/// would be quadratic.
pub(super) fn rewritten(
    segment: &Segment<'_>,
    field: &[u8],
    place: &Place,
    value: Option<&[u8]>,
) -> Result<(Vec<u8>, usize), EditError> {
    let d = segment.delimiters();
    let mut selected = segment.selected(field, place).map(|(index, _)| index).peekable();
    let (mut out, mut written, mut places) = (Vec::with_capacity(field.len() + 16), 0, 0);
    for (index, bytes) in parts(field, d.repetition).enumerate() {
        let chosen = selected.next_if_eq(&index).is_some();
        if chosen && value.is_none() && place.component.is_none() {
            places += 1;
            continue;
        }
        out.extend(d.repetition.filter(|_| written > 0));
        written += 1;
        let target = if chosen { Some(Target::within(bytes, place, d)) } else { None };
        match (target, value) {
            (Some(target), Some(value)) => target?.write(bytes, value, &mut out),
            (Some(Ok(target)), None) if target.holds_something() => target.write(bytes, b"", &mut out),
            _ => {
                out.extend_from_slice(bytes);
                continue;
            }
        }
        if out.len() > SEGMENT_BYTES_MAX {
            return Err(EditError::TooLong);
        }
        places += 1;
    }
    Ok((out, places))
}
