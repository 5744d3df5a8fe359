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
//! Segments have ids that stay theirs whatever comes and goes around them. Edits cost what they change: a long segment
//! that is edited again and again is kept in blocks (`long`), and the segments of a long draft are found by name (`order`);
//! a short message needs neither and pays for neither.
//!
//! What it does not do: unescape, escape or decode. Values go in as they will stand in the message; see
//! [`escape`](crate::escape).

mod edit;
mod long;
mod order;
mod pieces;
mod splice;

use std::cell::OnceCell;

pub use pieces::Piece;

use crate::path::{Path, Place, SegmentSelector, Which};
use crate::table::{Lines, name_of};
use crate::{Delimiters, Message, Segment, SegmentName, Value};
use long::Long;
use order::Order;

/// Up to so many segments are gone through one by one, as long as none comes or goes.
const FEW: usize = 64;

/// A message with edits on top.
#[derive(Debug, Clone)]
pub struct Draft<'m> {
    message: &'m Message<'m>,
    lines: Lines,
    slots: Vec<Slot>,
    /// Made when it is needed: then some segments were inserted or deleted, or there are many. Else the order is that of
    /// the slots.
    order: OnceCell<Order>,
    deleted: usize,
}

/// A segment of a draft; it stays the segment's when others are inserted or deleted, and is no other's after it was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentId(u32);

impl SegmentId {
    /// The segment that stands at an index (0-based) of the message under the draft.
    #[must_use]
    pub const fn original(at: u32) -> SegmentId {
        SegmentId(at)
    }

    /// The index in the message under the draft, or a number above all of those.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// One segment of the draft. `original` is its index in the message; none: it was inserted.
#[derive(Clone)]
enum Slot {
    Kept(u32),
    Edited { original: u32, bytes: Vec<u8> },
    Inserted(Vec<u8>),
    Long { original: Option<u32>, changed: bool, text: Box<Long> },
    Deleted,
}

impl Slot {
    fn original(&self) -> Option<u32> {
        match self {
            Slot::Kept(original) | Slot::Edited { original, .. } => Some(*original),
            Slot::Long { original, .. } => *original,
            Slot::Inserted(_) | Slot::Deleted => None,
        }
    }
}

impl<'m> Draft<'m> {
    /// A draft without edits.
    #[must_use]
    pub fn new(message: &'m Message<'m>) -> Draft<'m> {
        let slots = (0..message.len() as u32).map(Slot::Kept).collect();
        Draft { message, lines: message.lines(), slots, order: OnceCell::new(), deleted: 0 }
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
        self.order.get().map_or(self.slots.len(), Order::len)
    }

    /// All segments in order.
    pub fn ids(&self) -> impl Iterator<Item = SegmentId> {
        let (few, many) = match self.order.get() {
            None => (0..self.slots.len() as u32, None),
            Some(order) => (0..0, Some(order.all())),
        };
        few.chain(many.into_iter().flatten()).map(SegmentId)
    }

    /// Whether a segment of this draft has not been deleted.
    #[must_use]
    pub fn contains(&self, id: SegmentId) -> bool {
        self.slots.get(id.0 as usize).is_some_and(|slot| !matches!(slot, Slot::Deleted))
    }

    /// A segment, as edited.
    ///
    /// # Panics
    /// If the id is another draft's, or the segment was deleted.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Segment<'_> {
        match self.slot(id) {
            Slot::Kept(original) => self.original(*original),
            Slot::Edited { bytes, .. } | Slot::Inserted(bytes) => Segment::new(bytes, self.delimiters()),
            Slot::Long { text, .. } => Segment::new(text.joined(), self.delimiters()),
            Slot::Deleted => panic!("the segment was deleted"),
        }
    }

    /// The name of a segment. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn name(&self, id: SegmentId) -> SegmentName {
        self.slot_name(self.slot(id))
    }

    /// The bytes of a segment, without its line end. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn segment_bytes(&self, id: SegmentId) -> &[u8] {
        self.segment(id).raw()
    }

    /// The segments a selector selects, in order.
    #[must_use]
    pub fn select(&self, selector: &SegmentSelector) -> Vec<SegmentId> {
        self.selected(selector).collect()
    }

    /// The first of the segments a selector selects.
    #[must_use]
    pub fn first(&self, selector: &SegmentSelector) -> Option<SegmentId> {
        self.selected(selector).next()
    }

    /// How many segments a selector selects.
    #[must_use]
    pub fn count(&self, selector: &SegmentSelector) -> usize {
        match (&selector.which, self.order()) {
            (Which::All, Some(order)) => order.count(selector.name),
            _ => self.selected(selector).count(),
        }
    }

    /// The segments a selector selects from those behind a segment, up to the next of that one's name. Panics as
    /// [`segment`](Self::segment) does.
    #[must_use]
    pub fn select_under(&self, selector: &SegmentSelector, outer: SegmentId) -> Vec<SegmentId> {
        let name = self.name(outer);
        let few = if self.order().is_none() { outer.0 + 1..self.slots.len() as u32 } else { 0..0 };
        let many = self.order().map(|order| order.behind(outer.0));
        let behind = few.chain(many.into_iter().flatten()).map(SegmentId);
        let group = behind.take_while(|id| self.name(*id) != name);
        match &selector.which {
            Which::All => group.filter(|id| self.name(*id) == selector.name).collect(),
            Which::Where(condition) => {
                group.filter(|id| self.name(*id) == selector.name && self.segment(*id).meets(condition)).collect()
            }
            Which::Nth(_) | Which::Last => {
                let one = self.first(selector);
                group.filter(|id| Some(*id) == one).collect()
            }
        }
    }

    /// The first place a path selects; see [`Message::get`].
    #[must_use]
    pub fn get(&self, path: &Path) -> Value<'_> {
        let mut segments = self.selected(&path.segment);
        let Some(place) = &path.place else {
            return segments.next().map_or(Value::Absent, |id| Value::Present(self.segment_bytes(id)));
        };
        if one_repetition(place) {
            return segments.next().map_or(Value::Absent, |id| self.get_at(id, place));
        }
        segments.map(|id| self.segment(id)).flat_map(|segment| segment.all(place)).next().unwrap_or(Value::Absent)
    }

    /// What stands at a place of a segment. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn get_at(&self, id: SegmentId, place: &Place) -> Value<'_> {
        match self.slot(id) {
            Slot::Long { text, .. } if one_repetition(place) && !self.is_atomic(id, place.field) => {
                text.get(place, repetition_of(place))
            }
            _ => self.segment(id).get(place),
        }
    }

    /// Says that the repetitions of a field of this segment will be gone through one by one. It changes nothing.
    pub fn expect_loop(&mut self, id: SegmentId) {
        if self.contains(id) && !matches!(self.slot(id), Slot::Long { .. }) {
            self.lengthen(id);
        }
    }

    /// How many segments were rewritten, inserted or deleted. Deleting an inserted one undoes it.
    #[must_use]
    pub fn touched(&self) -> usize {
        let untouched = |slot: &&Slot| {
            matches!(slot, Slot::Kept(_) | Slot::Deleted | Slot::Long { original: Some(_), changed: false, .. })
        };
        self.deleted + self.slots.len() - self.slots.iter().filter(untouched).count()
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

    fn slot(&self, id: SegmentId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    fn slot_name(&self, slot: &Slot) -> SegmentName {
        match slot {
            Slot::Kept(original) => self.message.spans()[*original as usize].name,
            Slot::Edited { bytes, .. } | Slot::Inserted(bytes) => name_of(bytes, self.delimiters().field),
            Slot::Long { text, .. } => text.name(),
            Slot::Deleted => panic!("the segment was deleted"),
        }
    }

    /// Whether a field of a segment is MSH-1 or MSH-2.
    fn is_atomic(&self, id: SegmentId, field: u16) -> bool {
        field <= 2 && self.name(id).is_header()
    }

    /// The order, where segments have come or gone or there are many.
    fn order(&self) -> Option<&Order> {
        if self.slots.len() <= FEW {
            return self.order.get();
        }
        Some(self.order.get_or_init(|| self.make_order()))
    }

    fn make_order(&self) -> Order {
        Order::new(self.slots.iter().map(|slot| self.slot_name(slot)))
    }

    /// The segments a selector selects, without a list of them.
    fn selected<'s>(&'s self, selector: &'s SegmentSelector) -> impl Iterator<Item = SegmentId> + 's {
        let name = selector.name;
        let named = move |slot: &u32| self.name(SegmentId(*slot)) == name;
        let (candidates, skip) = match (self.order(), &selector.which) {
            (None, which) => {
                let all = 0..self.slots.len() as u32;
                let skip = match which {
                    Which::Nth(n) => (*n as usize).wrapping_sub(1),
                    Which::Last => all.clone().filter(named).count().saturating_sub(1),
                    Which::All | Which::Where(_) => 0,
                };
                (Candidates::All(all), skip)
            }
            (Some(order), Which::Nth(n)) => {
                let (slots, nth) = order.nth(name, *n as usize).filter(|_| *n > 0).unwrap_or((&[], 1));
                (Candidates::Of(slots.iter()), nth - 1)
            }
            (Some(order), Which::Last) => {
                let slots = order.last(name).unwrap_or_default();
                (Candidates::Of(slots.iter()), slots.iter().filter(|slot| named(slot)).count().saturating_sub(1))
            }
            (Some(order), Which::All | Which::Where(_)) => (Candidates::Near(order.near(name)), 0),
        };
        let take = if matches!(selector.which, Which::Nth(_)) { 1 } else { usize::MAX };
        candidates.filter(named).skip(skip).take(take).map(SegmentId).filter(move |id| match &selector.which {
            Which::Where(condition) => self.segment(*id).meets(condition),
            _ => true,
        })
    }

    fn original(&self, index: u32) -> Segment<'m> {
        self.message.segment_at(index as usize).expect("slots hold indexes of the message's own segments")
    }
}

/// Slots among which those of a name are looked for.
enum Candidates<'s, I> {
    All(std::ops::Range<u32>),
    Of(std::slice::Iter<'s, u32>),
    Near(I),
}

impl<I: Iterator<Item = u32>> Iterator for Candidates<'_, I> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Candidates::All(slots) => slots.next(),
            Candidates::Of(slots) => slots.next().copied(),
            Candidates::Near(slots) => slots.next(),
        }
    }
}

/// Whether a place names one repetition, or the whole field, rather than those that meet a condition.
fn one_repetition(place: &Place) -> bool {
    matches!(place.repetition, None | Some(Which::Nth(_)))
}

/// The repetition (1-based; none: the whole field) of such a place.
fn repetition_of(place: &Place) -> Option<usize> {
    match (&place.repetition, place.component) {
        (Some(Which::Nth(n)), _) => Some(*n as usize),
        (None, Some(_)) => Some(1),
        _ => None,
    }
}

impl std::fmt::Debug for Slot {
    /// Names no content: it is a patient's, and must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Slot::Kept(original) => write!(f, "Kept({original})"),
            Slot::Edited { original, bytes } => write!(f, "Edited({original}, {} bytes)", bytes.len()),
            Slot::Inserted(bytes) => write!(f, "Inserted({} bytes)", bytes.len()),
            Slot::Long { original, changed, .. } => write!(f, "Long({original:?}, changed: {changed})"),
            Slot::Deleted => write!(f, "Deleted"),
        }
    }
}
