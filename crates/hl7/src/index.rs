//! All fields of a message found in one pass, for work that reads most of them (search, a viewer, a schema check).
//!
//! ```text
//! PID|1||123\rPV1|1|I\r
//!    ^ ^^       ^ ^            separators = [3, 5, 6, 14, 16]
//!    |----3---| |-2-|          first = [0, 3, 5]: segment s owns separators first[s]..first[s + 1]
//! ```
//!
//! Field n of a segment lies between its nth separator and the next one, or the segment's end. Reading one is then
//! two array reads, where [`Segment::field`](crate::Segment::field) walks the segment.
//!
//! The pass reads eight bytes at a time as one number and finds separators by arithmetic (H. S. Warren, "Hacker's
//! Delight", 6-1: find first 0-byte, the exact form). Separators are close together, so this is faster than
//! `memchr_iter`, which starts again after each: 1.9 GB/s against 1.1 on lab results, 1.9 against 1.6 on public
//! corpora, where they are 13 bytes apart (measured 2026-11-21, one core, with `examples/speed.rs`).

use crate::table::Span;
use crate::{Message, Value};

/// Where every field of a message is.
#[derive(Debug, Clone)]
pub struct FieldIndex<'m> {
    raw: &'m [u8],
    spans: &'m [Span],
    separators: Vec<u32>,
    first: Vec<u32>,
}

impl<'a> Message<'a> {
    /// Finds every field. One pass over the message, two allocations.
    #[must_use]
    pub fn index_fields(&self) -> FieldIndex<'_> {
        let spans = self.spans();
        // Dense messages have a separator every 5 bytes; growing once is cheaper than room for one at every byte.
        let mut separators = Vec::with_capacity(self.raw().len() / 4 + 8);
        let mut first = Vec::with_capacity(spans.len() + 1);
        for span in spans {
            first.push(separators.len() as u32);
            find_all(self.raw(), span, self.delimiters().field, &mut separators);
        }
        first.push(separators.len() as u32);
        FieldIndex { raw: self.raw(), spans, separators, first }
    }
}

impl<'m> FieldIndex<'m> {
    /// How many fields the segment at a 0-based index has; the highest number that is not [`Value::Absent`]. 0 past
    /// the last segment.
    #[must_use]
    pub fn fields(&self, segment: usize) -> usize {
        let (Some(&first), Some(&end)) = (self.first.get(segment), self.first.get(segment + 1)) else { return 0 };
        (end - first) as usize + usize::from(self.is_header(segment))
    }

    /// Field `number` (1-based) of the segment at a 0-based index; the same as
    /// [`Segment::field`](crate::Segment::field).
    #[must_use]
    pub fn field(&self, segment: usize, number: u16) -> Value<'m> {
        let number = usize::from(number);
        if number == 0 || number > self.fields(segment) {
            return Value::Absent;
        }
        let own = &self.separators[self.first[segment] as usize..self.first[segment + 1] as usize];
        // In a header the first separator is field 1, and field 2 follows it.
        let nth = if self.is_header(segment) { number - 1 } else { number };
        let start = match nth {
            0 => own[0] as usize,
            _ => own[nth - 1] as usize + 1,
        };
        let end = match nth {
            0 => start + 1,
            _ => own.get(nth).copied().unwrap_or(self.spans[segment].end) as usize,
        };
        Value::of(&self.raw[start..end])
    }

    fn is_header(&self, segment: usize) -> bool {
        self.spans[segment].name.is_header() && self.first[segment] < self.first[segment + 1]
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;

/// Appends the position of every `separator` in a segment.
fn find_all(raw: &[u8], span: &Span, separator: u8, found: &mut Vec<u32>) {
    let pattern = ONES * u64::from(separator);
    let (words, rest) = raw[span.start as usize..span.end as usize].as_chunks::<8>();
    let mut at = span.start;
    for word in words {
        let differs = u64::from_le_bytes(*word) ^ pattern;
        // The top bit of each byte that is zero, exactly: no carry crosses a byte.
        let mut zeros = !(((differs & LOW) + LOW) | differs | LOW);
        while zeros != 0 {
            found.push(at + zeros.trailing_zeros() / 8);
            zeros &= zeros - 1;
        }
        at += 8;
    }
    found.extend(rest.iter().zip(at..).filter(|(byte, _)| **byte == separator).map(|(_, at)| at));
}
