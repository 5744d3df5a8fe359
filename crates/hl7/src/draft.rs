//! Edits as an overlay: the message stays as it came, and only segments that change are written anew.
//!
//! ```text
//! message   MSH.... CR  PID.... CR  OBX|1.. CR  OBX|2.. CR
//! slots     Kept        Kept        Kept        Kept
//!                       | set PID-5 | delete OBX            insert ZPD last
//! slots     Kept        Edited                  Kept        Inserted
//! pieces    [Original.] [New] [CR]              [Original.] [New] [New CR]
//! ```
//!
//! Line ends are not part of a segment: an edited one keeps its own. A line end is only made where a segment was
//! inserted or deleted, in the style of the message.
//!
//! Invariants, which the fuzz targets check:
//! - without an edit, `write_to` writes the message's bytes; a segment no edit names is never changed;
//! - an edit that would change nothing touches nothing;
//! - what is written parses to the same segments and delimiters the draft answers: no value can end its own place,
//!   its segment or the header.
//!
//! What it does not do: unescape, escape or decode. Values go in as they will stand in the message; see
//! [`escape`](crate::escape).

mod edit;
mod pieces;
mod splice;

pub use pieces::Piece;

use crate::path::{Path, Place, SegmentSelector, Which};
use crate::table::{Lines, name_of};
use crate::{Delimiters, Message, Segment, SegmentName, Value};

/// A message with edits on top.
#[derive(Debug, Clone)]
pub struct Draft<'m> {
    message: &'m Message<'m>,
    lines: Lines,
    slots: Vec<Slot>,
    deleted: usize,
}

/// One segment of the draft. `original` is its index in the message.
#[derive(Clone)]
enum Slot {
    Kept(u32),
    Edited { original: u32, bytes: Vec<u8> },
    Inserted(Vec<u8>),
}

impl<'m> Draft<'m> {
    /// A draft without edits.
    #[must_use]
    pub fn new(message: &'m Message<'m>) -> Draft<'m> {
        let slots = (0..message.len() as u32).map(Slot::Kept).collect();
        Draft { message, lines: message.lines(), slots, deleted: 0 }
    }

    /// The message under the edits.
    #[must_use]
    pub fn message(&self) -> &'m Message<'m> {
        self.message
    }

    /// The message's delimiters; no edit changes them.
    #[must_use]
    pub fn delimiters(&self) -> Delimiters {
        self.message.delimiters()
    }

    /// How many segments it has now; at least one, MSH.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "MSH cannot be deleted")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The segment at an index (0-based), as edited.
    ///
    /// # Panics
    /// If `at` is not below [`len`](Self::len).
    #[must_use]
    pub fn segment(&self, at: usize) -> Segment<'_> {
        match &self.slots[at] {
            Slot::Kept(original) => self.original(*original),
            Slot::Edited { bytes, .. } | Slot::Inserted(bytes) => Segment::new(bytes, self.delimiters()),
        }
    }

    /// The name of the segment at an index. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn name(&self, at: usize) -> SegmentName {
        match &self.slots[at] {
            Slot::Kept(original) => self.message.spans()[*original as usize].name,
            Slot::Edited { bytes, .. } | Slot::Inserted(bytes) => name_of(bytes, self.delimiters().field),
        }
    }

    /// The bytes of the segment at an index, without its line end. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn segment_bytes(&self, at: usize) -> &[u8] {
        self.segment(at).raw()
    }

    /// The indexes of the segments a selector selects, in order.
    #[must_use]
    pub fn select(&self, selector: &SegmentSelector) -> Vec<usize> {
        self.selected(selector).collect()
    }

    /// The first place a path selects; see [`Message::get`].
    #[must_use]
    pub fn get(&self, path: &Path) -> Value<'_> {
        let mut segments = self.selected(&path.segment).map(|at| self.segment(at));
        let Some(place) = &path.place else {
            return segments.next().map_or(Value::Absent, |segment| Value::Present(segment.raw()));
        };
        segments.flat_map(|segment| segment.all(place)).next().unwrap_or(Value::Absent)
    }

    /// What stands at a place of the segment at an index. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn get_at(&self, at: usize, place: &Place) -> Value<'_> {
        self.segment(at).get(place)
    }

    /// How many segments were rewritten, inserted or deleted. Deleting an inserted one undoes it.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.deleted + self.slots.iter().filter(|slot| !matches!(slot, Slot::Kept(_))).count()
    }

    /// The result as runs of the original and new bytes; untouched neighbours are one run.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        pieces::pieces(self)
    }

    /// Appends the result to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        for piece in self.pieces() {
            match piece {
                Piece::Original(range) => out.extend_from_slice(&self.message.raw()[range]),
                Piece::New(bytes) => out.extend_from_slice(bytes),
            }
        }
    }

    /// The segments a selector selects, without a list of them.
    fn selected(&self, selector: &SegmentSelector) -> impl Iterator<Item = usize> {
        let named = (0..self.len()).filter(|&at| self.name(at) == selector.name);
        let skip = match selector.which {
            Which::Nth(n) => (n as usize).wrapping_sub(1),
            Which::Last => named.clone().count().saturating_sub(1),
            Which::All | Which::Where(_) => 0,
        };
        let take = if matches!(selector.which, Which::Nth(_)) { 1 } else { usize::MAX };
        named.skip(skip).take(take).filter(|&at| match &selector.which {
            Which::Where(condition) => self.segment(at).meets(condition),
            _ => true,
        })
    }

    fn original(&self, index: u32) -> Segment<'m> {
        self.message.segment_at(index as usize).expect("slots hold indexes of the message's own segments")
    }
}

impl std::fmt::Debug for Slot {
    /// Names no content: it is a patient's, and must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Slot::Kept(original) => write!(f, "Kept({original})"),
            Slot::Edited { original, bytes } => write!(f, "Edited({original}, {} bytes)", bytes.len()),
            Slot::Inserted(bytes) => write!(f, "Inserted({} bytes)", bytes.len()),
        }
    }
}
