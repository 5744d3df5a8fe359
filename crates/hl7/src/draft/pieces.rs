//! What a draft writes: runs of the original, and new bytes between them.
//!
//! Each slot yields two parts, its content and the line end after it; neighbouring parts of the original then merge.
//! The one difficult case is the line end at a seam, where a segment has a new neighbour:
//!
//! - the last segment of a message may have no line end; followed by another it needs one;
//! - in a message that uses CR, a bare LF ends a line only before a segment name and a separator (see `table`), and
//!   what follows now may have none; so there a bare LF becomes CR.

use std::iter::{Peekable, once};
use std::ops::Range;

use memchr::memchr;

use super::{Draft, SegmentId, Text};
use crate::table::Lines;

/// A part of what a draft writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'d> {
    /// These bytes of the message under the draft.
    Original(Range<usize>),
    /// These bytes.
    New(&'d [u8]),
}

impl Piece<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Piece::Original(range) => range.is_empty(),
            Piece::New(bytes) => bytes.is_empty(),
        }
    }
}

pub(super) fn pieces<'d>(draft: &'d Draft<'_>) -> impl Iterator<Item = Piece<'d>> {
    let before = once(Piece::Original(0..draft.message.spans()[0].start as usize));
    let mut ids = draft.ids().peekable();
    let slots = std::iter::from_fn(move || {
        let first = ids.next()?;
        let mut last = first;
        // Between kept neighbours of the message, the line end is unchanged.
        while is_kept(draft, last)
            && let Some(next) = ids.next_if(|next| next.0 == last.0 + 1 && is_kept(draft, *next))
        {
            last = next;
        }
        Some([content(draft, first, last), line_end(draft, last, ids.peek().copied())])
    });
    Merged { parts: before.chain(slots.flatten()).filter(|piece| !piece.is_empty()).peekable() }
}

fn is_kept(draft: &Draft<'_>, id: SegmentId) -> bool {
    matches!(draft.text(id), Text::Kept | Text::Long { changed: false, .. })
}

/// The content of one slot, or of a run of kept neighbours.
fn content<'d>(draft: &'d Draft<'_>, first: SegmentId, last: SegmentId) -> Piece<'d> {
    match draft.text(first) {
        Text::Kept | Text::Long { changed: false, .. } => {
            let spans = draft.message.spans();
            Piece::Original(spans[first.0 as usize].start as usize..spans[last.0 as usize].end as usize)
        }
        Text::New(bytes) => Piece::New(bytes),
        Text::Long { blocks, .. } => Piece::New(blocks.joined()),
        Text::Deleted => unreachable!("what is deleted is not among the ids"),
    }
}

/// The line end between a slot and the next one.
fn line_end<'d>(draft: &'d Draft<'_>, id: SegmentId, next: Option<SegmentId>) -> Piece<'d> {
    if !draft.is_original(id) {
        return Piece::New(made_line_end(draft));
    }
    let original = id.0 as usize;
    let own = line_end_of(draft, original);
    let bytes = &draft.message.raw()[own.clone()];
    if bytes.is_empty() {
        return if next.is_some() { Piece::New(made_line_end(draft)) } else { Piece::Original(own) };
    }
    let seam = match next {
        None => original + 1 != draft.message.len(),
        Some(next) => {
            // A name alone was followed by a separator before.
            let is_name = matches!(draft.text(next), Text::New(bytes) if bytes.len() == 3);
            is_name || next.0 != id.0 + 1 || !draft.is_original(next)
        }
    };
    if seam && draft.lines == Lines::Cr && memchr(b'\r', bytes).is_none() {
        return Piece::New(b"\r");
    }
    Piece::Original(own)
}

/// The line ends (and blank lines) after a segment of the message.
fn line_end_of(draft: &Draft<'_>, original: usize) -> Range<usize> {
    let spans = draft.message.spans();
    let end = spans.get(original + 1).map_or(draft.message.raw().len(), |next| next.start as usize);
    spans[original].end as usize..end
}

/// A line end in the style of the message's first.
fn made_line_end(draft: &Draft<'_>) -> &'static [u8] {
    let first = &draft.message.raw()[line_end_of(draft, 0)];
    match (draft.lines, first) {
        (Lines::Cr, [b'\r', b'\n', ..]) => b"\r\n",
        (Lines::Lf, [b'\n', ..]) => b"\n",
        _ => b"\r",
    }
}

/// Merges neighbouring runs of the original.
struct Merged<'d, I: Iterator<Item = Piece<'d>>> {
    parts: Peekable<I>,
}

impl<'d, I: Iterator<Item = Piece<'d>>> Iterator for Merged<'d, I> {
    type Item = Piece<'d>;

    fn next(&mut self) -> Option<Piece<'d>> {
        let mut run = match self.parts.next()? {
            Piece::Original(range) => range,
            new @ Piece::New(_) => return Some(new),
        };
        while let Some(Piece::Original(more)) =
            self.parts.next_if(|part| matches!(part, Piece::Original(more) if more.start == run.end))
        {
            run.end = more.end;
        }
        Some(Piece::Original(run))
    }
}
