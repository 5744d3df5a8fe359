//! Where in a segment's bytes an edit goes: the range it replaces, and the separators to write first when the
//! segment, field, repetition or component is too short to have the place.
//!
//! ```text
//! PID|1||A^B        set PID-5[2].3 to X:  range = end of segment
//!           |~^^X   padding = 1 field, 1 repetition, 2 component separators
//! ```

use std::ops::Range;

use crate::path::Place;
use crate::segment::{count, part};
use crate::{EditError, Segment};

/// The range a value replaces, and how many of which separator come before it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) range: Range<usize>,
    padding: [(u8, usize); 4],
}

impl Target {
    /// The place `place` with repetition `repetition` (1-based; none: the whole field) in `segment`.
    pub(super) fn find(segment: &Segment<'_>, place: &Place, repetition: Option<usize>) -> Result<Target, EditError> {
        let d = segment.delimiters();
        let mut target = Target { range: 0..segment.raw().len(), padding: [(0, 0); 4] };
        // The name is part 1, so field n is part n + 1; in a header MSH-1 is a separator and takes no part of its own.
        let field = usize::from(place.field) + usize::from(!segment.name().is_header());
        target.enter(segment.raw(), 0, Some(d.field), field)?;
        if let Some(repetition) = repetition {
            target.enter(segment.raw(), 1, d.repetition, repetition)?;
        }
        if let Some(component) = place.component {
            target.enter(segment.raw(), 2, d.component, usize::from(component))?;
            if let Some(subcomponent) = place.subcomponent {
                target.enter(segment.raw(), 3, d.subcomponent, usize::from(subcomponent))?;
            }
        }
        Ok(target)
    }

    /// Whether the place is there, so that nothing but its content is replaced.
    pub(super) fn exists(&self) -> bool {
        self.padding.iter().all(|&(_, times)| times == 0)
    }

    /// The separators to write before the value.
    pub(super) fn padding(&self) -> impl Iterator<Item = u8> + use<> {
        self.padding.into_iter().flat_map(|(separator, times)| std::iter::repeat_n(separator, times))
    }

    /// Takes the separator on one side of a repetition into the range, so that removing it leaves no empty one.
    pub(super) fn widen_over_separator(&mut self, raw: &[u8], separator: Option<u8>) {
        if self.range.start > 0 && separator == Some(raw[self.range.start - 1]) {
            self.range.start -= 1;
        } else if self.range.end < raw.len() && separator == Some(raw[self.range.end]) {
            self.range.end += 1;
        }
    }

    /// Narrows the range to part `number` of what `separator` makes of it, or to its end, with what is missing as
    /// padding.
    fn enter(&mut self, raw: &[u8], level: usize, separator: Option<u8>, number: usize) -> Result<(), EditError> {
        const LEVELS: [&str; 4] = ["field", "repetition", "component", "subcomponent"];
        let bytes = &raw[self.range.clone()];
        match (part(bytes, separator, number), separator) {
            (Some(found), _) => {
                let start = self.range.start + offset(bytes, found);
                self.range = start..start + found.len();
            }
            (None, Some(separator)) => {
                self.padding[level] = (separator, number - count(bytes, Some(separator)));
                self.range.start = self.range.end;
            }
            (None, None) => return Err(EditError::Undeclared { level: LEVELS[level] }),
        }
        Ok(())
    }
}

/// Where in `whole` its own part begins.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}
