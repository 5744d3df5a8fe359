//! Edits as an overlay: the message stays as received, and only segments that change are written anew.
//!
//! ```text
//! message   MSH.... CR  PID.... CR  OBX|1.. CR  OBX|2.. CR
//! slots     Kept        Kept        Kept        Kept
//!                       | set PID-5 | delete OBX            insert ZPD last
//! slots     Kept        New         Deleted     Kept        New
//! pieces    [Original.] [New] [CR]              [Original.] [New] [New CR]
//! ```
//!
//! Line ends are not part of a segment: an edited one keeps its own. A line end is only made where a segment was
//! inserted or deleted, in the style of the message.
//!
//! Invariants, which the fuzz targets check:
//! - without an edit, `write_to` writes the message's bytes; a segment no edit names is never changed;
//! - an edit that would change nothing touches nothing;
//! - the written message parses to the same segments and delimiters that the draft returns: no value can end its own
//!   place, its segment or the header.
//!
//! A segment keeps its id when others are inserted or deleted. The cost of an edit depends on the size of the change: a
//! long segment that is edited again and again is kept in blocks (`long`), and the segments of a long draft are found
//! by name (`order`); a short message uses neither.
//!
//! It does not unescape, escape or decode. Values are passed as they will be written in the message; see
//! [`escape`](crate::escape).

mod edit;
mod long;
mod order;
mod pieces;
mod splice;

use std::cell::OnceCell;

pub use pieces::Piece;

use crate::path::{Path, Place, SegmentSelector, Which};
use crate::table::Lines;
use crate::{Delimiters, Message, Segment, SegmentName, Value};
use long::Long;
use order::Order;

/// Up to so many segments are gone through one by one, as long as none comes or goes.
const FEW: usize = 64;

/// What all edits of a draft together may write, separators included: a value goes to as many places as its path selects, which is
/// up to who wrote the message.
const WRITTEN_BYTES_MAX: usize = 256 << 20;

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
    /// How many bytes edits may still write.
    left: usize,
}

/// Identifies a segment of a draft. It does not change when others are inserted or deleted, and is not used again after
/// the segment was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentId(u32);

impl SegmentId {
    /// The segment at an index (0-based) of the message under the draft.
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

/// One segment of the draft. The slots up to the length of the message are those of its segments, in order; inserted
/// segments follow. The name is stored here because every selector searches for it.
#[derive(Clone)]
struct Slot {
    name: SegmentName,
    text: Text,
}

/// The content of a slot.
#[derive(Clone)]
enum Text {
    /// The segment of the message with the slot's number.
    Kept,
    New(Vec<u8>),
    /// In blocks; changed, unless it is as the message has it.
    Long {
        changed: bool,
        blocks: Box<Long>,
    },
    Deleted,
}

impl<'m> Draft<'m> {
    /// A draft without edits.
    #[must_use]
    pub fn new(message: &'m Message<'m>) -> Draft<'m> {
        let slots = message.spans().iter().map(|span| Slot { name: span.name, text: Text::Kept }).collect();
        Draft { message, lines: message.lines(), slots, order: OnceCell::new(), deleted: 0, left: WRITTEN_BYTES_MAX }
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
        self.slots.get(id.0 as usize).is_some_and(|slot| !matches!(slot.text, Text::Deleted))
    }

    /// A segment, as edited.
    ///
    /// # Panics
    /// If the id is another draft's, or the segment was deleted.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Segment<'_> {
        match self.text(id) {
            Text::Kept => self.original(id),
            Text::New(bytes) => Segment::new(bytes, self.delimiters()),
            Text::Long { blocks, .. } => Segment::new(blocks.joined(), self.delimiters()),
            Text::Deleted => panic!("the segment was deleted"),
        }
    }

    /// The name of a segment. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn name(&self, id: SegmentId) -> SegmentName {
        let slot = &self.slots[id.0 as usize];
        assert!(!matches!(slot.text, Text::Deleted), "the segment was deleted");
        slot.name
    }

    /// The bytes of a segment, without its line end. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn segment_bytes(&self, id: SegmentId) -> &[u8] {
        self.segment(id).raw()
    }

    /// The segments a selector selects, in order.
    #[must_use]
    pub fn select(&self, selector: &SegmentSelector) -> Vec<SegmentId> {
        match &selector.which {
            Which::All => self.named(selector.name).collect(),
            Which::Where(condition) => {
                self.named(selector.name).filter(|id| self.segment(*id).meets(condition)).collect()
            }
            Which::Nth(_) | Which::Last => self.first(selector).into_iter().collect(),
        }
    }

    /// The first of the segments a selector selects.
    #[must_use]
    pub fn first(&self, selector: &SegmentSelector) -> Option<SegmentId> {
        match &selector.which {
            Which::All => self.named(selector.name).next(),
            Which::Where(condition) => self.named(selector.name).find(|id| self.segment(*id).meets(condition)),
            Which::Nth(n) => self.nth(selector.name, *n as usize),
            Which::Last => self.last(selector.name),
        }
    }

    /// How many segments a selector selects.
    #[must_use]
    pub fn count(&self, selector: &SegmentSelector) -> usize {
        match (&selector.which, self.order()) {
            (Which::All, Some(order)) => order.count(selector.name),
            (Which::All, None) => self.named(selector.name).count(),
            (Which::Where(condition), _) => {
                self.named(selector.name).filter(|id| self.segment(*id).meets(condition)).count()
            }
            (Which::Nth(_) | Which::Last, _) => usize::from(self.first(selector).is_some()),
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
        let group = behind.take_while(|id| !self.is_named(id.0, name));
        let named = |id: &SegmentId| self.is_named(id.0, selector.name);
        match &selector.which {
            Which::All => group.filter(named).collect(),
            Which::Where(condition) => group.filter(|id| named(id) && self.segment(*id).meets(condition)).collect(),
            Which::Nth(_) | Which::Last => {
                let one = self.first(selector);
                group.filter(|id| Some(*id) == one).collect()
            }
        }
    }

    /// The first place a path selects; see [`Message::get`].
    #[must_use]
    pub fn get(&self, path: &Path) -> Value<'_> {
        let first = || self.first(&path.segment);
        match &path.place {
            None => first().map_or(Value::Absent, |id| Value::Present(self.segment_bytes(id))),
            Some(place) if one_repetition(place) => first().map_or(Value::Absent, |id| self.get_at(id, place)),
            Some(place) => {
                let segments = self.select(&path.segment).into_iter().map(|id| self.segment(id));
                segments.flat_map(|segment| segment.all(place)).next().unwrap_or(Value::Absent)
            }
        }
    }

    /// The value at a place of a segment. Panics as [`segment`](Self::segment) does.
    #[must_use]
    pub fn get_at(&self, id: SegmentId, place: &Place) -> Value<'_> {
        match self.text(id) {
            Text::Long { blocks, .. } if one_repetition(place) && !self.is_atomic(id, place.field) => {
                blocks.get(place, repetition_of(place))
            }
            _ => self.segment(id).get(place),
        }
    }

    /// Prepares for a loop that reads or edits the repetitions of a field of this segment one by one. It changes no
    /// content.
    pub fn expect_loop(&mut self, id: SegmentId) {
        if self.contains(id) && !matches!(self.text(id), Text::Long { .. }) {
            self.lengthen(id);
        }
    }

    /// How many segments were rewritten, inserted or deleted. Deleting an inserted one undoes it.
    #[must_use]
    pub fn touched(&self) -> usize {
        let untouched =
            |slot: &&Slot| matches!(slot.text, Text::Kept | Text::Deleted | Text::Long { changed: false, .. });
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

    fn text(&self, id: SegmentId) -> &Text {
        &self.slots[id.0 as usize].text
    }

    fn is_named(&self, slot: u32, name: SegmentName) -> bool {
        self.slots[slot as usize].name == name
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
        Order::new(self.slots.iter().map(|slot| slot.name))
    }

    /// The segments of a name, in order.
    fn named(&self, name: SegmentName) -> impl Iterator<Item = SegmentId> {
        let (few, many) = match self.order() {
            None => (0..self.slots.len() as u32, None),
            Some(order) => (0..0, Some(order.near(name))),
        };
        few.chain(many.into_iter().flatten()).filter(move |slot| self.is_named(*slot, name)).map(SegmentId)
    }

    /// The `nth` segment (from 1) of a name.
    fn nth(&self, name: SegmentName, nth: usize) -> Option<SegmentId> {
        let skip = nth.checked_sub(1)?;
        let slot = match self.order() {
            None => self.slots.iter().zip(0..).filter(|(slot, _)| slot.name == name).nth(skip).map(|(_, at)| at),
            Some(order) => {
                let (slots, nth) = order.nth(name, nth)?;
                slots.iter().copied().filter(|slot| self.is_named(*slot, name)).nth(nth - 1)
            }
        };
        slot.map(SegmentId)
    }

    /// The last segment of a name.
    fn last(&self, name: SegmentName) -> Option<SegmentId> {
        let slot = match self.order() {
            None => self.slots.iter().rposition(|slot| slot.name == name).map(|at| at as u32),
            Some(order) => order.last(name)?.iter().copied().rfind(|slot| self.is_named(*slot, name)),
        };
        slot.map(SegmentId)
    }

    fn is_original(&self, id: SegmentId) -> bool {
        (id.0 as usize) < self.message.len()
    }

    fn original(&self, id: SegmentId) -> Segment<'m> {
        self.message.segment_at(id.0 as usize).expect("only segments of the message are kept")
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
        write!(f, "{} ", self.name)?;
        match &self.text {
            Text::Kept => write!(f, "kept"),
            Text::New(bytes) => write!(f, "new, {} bytes", bytes.len()),
            Text::Long { changed, .. } => write!(f, "long, changed: {changed}"),
            Text::Deleted => write!(f, "deleted"),
        }
    }
}
