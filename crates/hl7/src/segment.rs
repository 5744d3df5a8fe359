//! One segment, and the walk from it down to a subcomponent.
//!
//! ```text
//! PID|1||123^^^A&1.2&ISO^MR~456^^^B^SS||DOE^JOHN
//!     | | |          |      +- field 3, repetition 2
//!     | | |          +-------- field 3, repetition 1, component 4, subcomponent 2 is 1.2
//!     | | +------------------- field 3, repetition 1, component 1
//!     | +--------------------- field 2: empty
//!     +----------------------- field 1
//! ```
//!
//! Nothing is stored: each question walks the separators of one level at a time. In a header (`MSH`, `FHS`, `BHS`)
//! field 1 is the field separator itself and field 2 the encoding characters, so every later field is one separator
//! earlier than its number; those two are atomic, never split into components.

use std::ops::Range;

use memchr::memchr_iter;

use crate::path::{Condition, Place, Which};
use crate::{Delimiters, SegmentName, Value};

/// One segment of a message: its bytes without the line end, and the delimiters to read them by.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    raw: &'a [u8],
    name: SegmentName,
    delimiters: Delimiters,
}

impl<'a> Segment<'a> {
    /// A segment on its own: `raw` starts with the name and holds no line end.
    #[must_use]
    pub fn new(raw: &'a [u8], delimiters: Delimiters) -> Segment<'a> {
        let name = crate::table::name_of(raw, delimiters.field);
        Segment { raw, name, delimiters }
    }

    pub(crate) fn named(raw: &'a [u8], name: SegmentName, delimiters: Delimiters) -> Segment<'a> {
        Segment { raw, name, delimiters }
    }

    /// The name, or [`SegmentName::UNREADABLE`] for a line that has none.
    #[must_use]
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// All bytes, from the name up to but not including the line end.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The delimiters of its message.
    #[must_use]
    pub fn delimiters(&self) -> Delimiters {
        self.delimiters
    }

    /// Field `number` (1-based), all repetitions, raw.
    #[must_use]
    pub fn field(&self, number: u16) -> Value<'a> {
        self.field_bytes(number).into()
    }

    /// All fields in order, from field 1; MSH-1 and MSH-2 among them.
    pub fn fields(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let separator = self.delimiters.field;
        let first = if self.name.is_header() { self.raw.get(3..4) } else { None };
        let rest = self.raw.split(move |&b| b == separator).skip(1);
        first.into_iter().chain(rest).map(Value::of)
    }

    /// The value at a place: the first one, if the place selects several repetitions.
    #[must_use]
    pub fn get(&self, place: &Place) -> Value<'a> {
        let Some(field) = self.field_bytes(place.field) else { return Value::Absent };
        if self.is_atomic(place.field) {
            return if place.is_first() { Value::of(field) } else { Value::Absent };
        }
        let repetition = match (&place.repetition, place.component) {
            (None, None) => Some(field),
            (None, Some(_)) => part(field, self.delimiters.repetition, 1),
            (Some(which), _) => self.repetition(field, which),
        };
        self.below(repetition, place)
    }

    /// Every place the place selects: one for a numbered repetition (even where absent), one for each that exists
    /// with `[*]`, `[last]` or a condition.
    pub fn all<'p>(&self, place: &'p Place) -> impl Iterator<Item = Value<'a>> + use<'a, 'p> {
        let segment = *self;
        let single = match &place.repetition {
            None | Some(Which::Nth(_)) => Some(self.get(place)),
            Some(_) if self.is_atomic(place.field) => Some(self.get(place)),
            Some(_) => None,
        };
        let field = if single.is_some() { None } else { self.field_bytes(place.field) };
        let many = field.into_iter().flat_map(move |field| {
            segment.selected(field, place).map(move |(_, bytes)| segment.below(Some(bytes), place))
        });
        single.into_iter().chain(many)
    }

    /// Whether the segment meets a condition: a place whose raw bytes equal the given ones. An absent place equals `''`.
    #[must_use]
    pub fn meets(&self, condition: &Condition) -> bool {
        match condition.place.repetition {
            None | Some(Which::Nth(_)) => self.get(&condition.place).bytes() == condition.equals,
            Some(_) => self.all(&condition.place).any(|value| value.bytes() == condition.equals),
        }
    }

    /// The bytes of field `number`, or nothing when the segment ends before it.
    pub(crate) fn field_bytes(&self, number: u16) -> Option<&'a [u8]> {
        if self.name.is_header() {
            match number {
                0 => None,
                1 => self.raw.get(3..4),
                _ => part(self.raw, Some(self.delimiters.field), usize::from(number)),
            }
        } else if number == 0 {
            None
        } else {
            part(self.raw, Some(self.delimiters.field), usize::from(number) + 1)
        }
    }

    /// Whether field `number` is MSH-1 or MSH-2: made of delimiters, so never split by them.
    pub(crate) fn is_atomic(&self, number: u16) -> bool {
        number <= 2 && self.name.is_header()
    }

    /// The repetitions of `field` that `place` selects, each with its 0-based number.
    pub(crate) fn selected<'p>(
        &self,
        field: &'a [u8],
        place: &'p Place,
    ) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a, 'p> {
        let segment = *self;
        let separator = self.delimiters.repetition;
        let wanted = match &place.repetition {
            None => Some(0),
            Some(Which::Nth(n)) => Some(n.wrapping_sub(1) as usize),
            Some(Which::Last) => Some(count(field, separator) - 1),
            Some(Which::All | Which::Where(_)) => None,
        };
        parts(field, separator).enumerate().filter(move |(at, bytes)| match (&place.repetition, wanted) {
            (_, Some(wanted)) => *at == wanted,
            (Some(Which::Where(condition)), None) => segment.repetition_meets(bytes, condition),
            _ => true,
        })
    }

    fn repetition(&self, field: &'a [u8], which: &Which) -> Option<&'a [u8]> {
        let separator = self.delimiters.repetition;
        match which {
            Which::Nth(n) => part(field, separator, *n as usize),
            Which::All => part(field, separator, 1),
            Which::Last => part(field, separator, count(field, separator)),
            Which::Where(condition) => parts(field, separator).find(|bytes| self.repetition_meets(bytes, condition)),
        }
    }

    /// A repetition's condition speaks of the repetition itself: only component and subcomponent are looked at.
    fn repetition_meets(&self, repetition: &[u8], condition: &Condition) -> bool {
        self.below(Some(repetition), &condition.place).bytes() == condition.equals
    }

    /// From a repetition down to the component and subcomponent of a place.
    fn below<'b>(&self, repetition: Option<&'b [u8]>, place: &Place) -> Value<'b> {
        let mut bytes = repetition;
        if let Some(component) = place.component {
            bytes = bytes.and_then(|b| part(b, self.delimiters.component, usize::from(component)));
            if let Some(subcomponent) = place.subcomponent {
                bytes = bytes.and_then(|b| part(b, self.delimiters.subcomponent, usize::from(subcomponent)));
            }
        }
        bytes.into()
    }
}

/// The `number`th (1-based) of the parts that `separator` makes; without a separator there is one part.
pub(crate) fn part(bytes: &[u8], separator: Option<u8>, number: usize) -> Option<&[u8]> {
    part_range(bytes, separator, number).map(|range| &bytes[range])
}

/// Where in `bytes` that part is.
pub(crate) fn part_range(bytes: &[u8], separator: Option<u8>, number: usize) -> Option<Range<usize>> {
    let Some(separator) = separator else { return (number == 1).then_some(0..bytes.len()) };
    let start = match number {
        0 => return None,
        1 => 0,
        _ => nth(bytes, separator, number - 2)? + 1,
    };
    Some(start..nth(&bytes[start..], separator, 0).map_or(bytes.len(), |length| start + length))
}

/// Bytes that are looked at eight at a time: fields are a few bytes long, and to start a search for each of their ends
/// costs more than their bytes. Behind them long values are likelier, for which `memchr` is faster.
const NEAR: usize = 512;

/// The position of the `nth` (from 0) separator.
pub(crate) fn nth(bytes: &[u8], separator: u8, mut nth: usize) -> Option<usize> {
    let (near, far) = bytes.split_at(bytes.len().min(NEAR));
    let (words, rest) = near.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let mut hits = hits(u64::from_le_bytes(*word), separator);
        // Sums the bits up in the highest byte: there are eight at most.
        let count = ((hits >> 7).wrapping_mul(EACH) >> 56) as usize;
        if nth < count {
            for _ in 0..nth {
                hits &= hits - 1;
            }
            return Some(8 * at + hits.trailing_zeros() as usize / 8);
        }
        nth -= count;
    }
    let start = near.len() - rest.len();
    for (at, _) in rest.iter().enumerate().filter(|(_, byte)| **byte == separator) {
        if nth == 0 {
            return Some(start + at);
        }
        nth -= 1;
    }
    memchr_iter(separator, far).nth(nth).map(|at| near.len() + at)
}

/// One in each byte of a word.
const EACH: u64 = u64::MAX / 0xFF;

/// The top bit of each byte of `word` that is `byte`.
fn hits(word: u64, byte: u8) -> u64 {
    let low = EACH * 0x7F;
    let differs = word ^ (EACH * u64::from(byte));
    // The sum has the top bit of a byte where one of its lower bits differs; none carries into the next byte.
    !(((differs & low) + low) | differs | low)
}

/// All the parts that `separator` makes, at least one.
pub(crate) fn parts(bytes: &[u8], separator: Option<u8>) -> impl Iterator<Item = &[u8]> {
    bytes.split(move |&b| Some(b) == separator)
}

/// How many parts `separator` makes, at least one.
pub(crate) fn count(bytes: &[u8], separator: Option<u8>) -> usize {
    separator.map_or(1, |separator| memchr_iter(separator, bytes).count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around the eight bytes of a word and the near part, separators rare and dense, every number of a part.
    #[test]
    fn a_part_is_what_splitting_at_the_separator_gives() {
        for seed in 0..400 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let length = if rng.bool() { rng.usize(..40) } else { rng.usize(NEAR - 20..NEAR + 40) };
            // The separator's neighbours, its high half, and what a carry would make of it.
            let choice = [b'|', b'|' - 1, b'|' + 1, b'|' | 0x80, 0, 0xFF, 0x80, b'A'];
            let dense = rng.usize(1..choice.len());
            let bytes: Vec<u8> = (0..length)
                .map(|_| if rng.usize(..8) < dense { choice[rng.usize(..choice.len())] } else { b'A' })
                .collect();
            let wanted: Vec<&[u8]> = parts(&bytes, Some(b'|')).collect();
            for number in 0..wanted.len() + 3 {
                let part = part(&bytes, Some(b'|'), number);
                assert_eq!(part, number.checked_sub(1).and_then(|at| wanted.get(at).copied()), "seed {seed}: {number}");
            }
            assert_eq!(count(&bytes, Some(b'|')), wanted.len(), "seed {seed}");
        }
    }
}
