//! The edits themselves: each finds its segments and places, checks the value, and splices.
//!
//! A value is checked against every delimiter that would end the place it goes into; line ends are checked on the
//! segment it makes, because whether a bare LF ends a line depends on the bytes beside it.

use memchr::{memchr, memchr2};

use super::long::{LONG_BYTES, Long};
use super::splice::{Target, rewritten, take};
use super::{Draft, SegmentId, Slot, Text, one_repetition, repetition_of};
use crate::path::{Path, Place, Which};
use crate::segment::count;
use crate::table::{Lines, breaks_line, name_of};
use crate::{Delimiters, EditError, SegmentName};

impl Draft<'_> {
    /// Writes `raw` to every place the path selects, making missing fields, repetitions and components; returns the
    /// number of places. `raw` is already escaped for this message. A path of a segment only replaces it whole, as
    /// [`set_segment`](Self::set_segment) does.
    ///
    /// With `[n]` and `[last]` the segment must exist; `[*]` and conditions may select none, which returns 0.
    ///
    /// # Errors
    /// [`EditError`]; of several places, those before the refused one have been written.
    pub fn set(&mut self, path: &Path, raw: &[u8]) -> Result<usize, EditError> {
        if let Some(at) = self.one(path)? {
            return self.set_in(at, path, raw);
        }
        let mut places = 0;
        for at in self.select(&path.segment) {
            places += self.set_in(at, path, raw)?;
        }
        Ok(places)
    }

    fn set_in(&mut self, at: SegmentId, path: &Path, raw: &[u8]) -> Result<usize, EditError> {
        match &path.place {
            Some(place) => self.set_at(at, place, raw),
            None => self.set_segment(at, raw).map(|()| 1),
        }
    }

    /// Writes `raw` to a place of a segment; returns the number of places, which differs from 1 only if the place
    /// selects repetitions by `[*]` or a condition. `[last]` of a field that is absent makes its first.
    ///
    /// # Errors
    /// [`EditError`], as [`set`](Self::set); [`EditError::Deleted`].
    pub fn set_at(&mut self, at: SegmentId, place: &Place, raw: &[u8]) -> Result<usize, EditError> {
        self.check_place(at, place)?;
        if self.is_atomic(at, place.field) {
            return if self.segment(at).get(place).bytes() == raw { Ok(1) } else { Err(EditError::Header) };
        }
        check_value(raw, place, self.delimiters())?;
        let long = self.lengthen_edited(at);
        let repetition = match self.repetition(at, place) {
            Selected::One(repetition) => repetition,
            Selected::Several => return self.rewrite(at, place, Some(raw)),
        };
        if long && memchr2(b'\r', b'\n', raw).is_some() {
            self.shorten(at);
        }
        if let Text::Long { blocks, changed } = &mut self.slots[at.0 as usize].text {
            *changed |= blocks.set(place, repetition, raw, &mut self.left)?;
            self.name_again(at);
            return Ok(1);
        }
        let target = Target::find(&self.segment(at), place, repetition)?;
        take(&mut self.left, target.padding.len() + raw.len())?;
        self.splice(at, &target, raw)?;
        Ok(1)
    }

    /// Whether [`extend_at`](Self::extend_at) can be used for this place: its cost grows with the added bytes, the cost
    /// of writing anew with the present content. It can be used in a long segment that was edited before, unless the
    /// place holds null.
    #[must_use]
    pub fn can_extend(&self, at: SegmentId, place: &Place) -> bool {
        match self.slots.get(at.0 as usize).map(|slot| &slot.text) {
            Some(Text::Long { blocks, .. }) if one_repetition(place) && !self.is_atomic(at, place.field) => {
                !blocks.is_null(place, repetition_of(place))
            }
            _ => false,
        }
    }

    /// Appends `raw` to the content of a place, if [`can_extend`](Self::can_extend) permits it.
    ///
    /// # Errors
    /// [`EditError`], as [`set_at`](Self::set_at); delimiters that the place itself may hold are accepted.
    pub fn extend_at(&mut self, at: SegmentId, place: &Place, raw: &[u8]) -> Result<(), EditError> {
        self.check_place(at, place)?;
        check_value(raw, place, self.delimiters())?;
        if memchr2(b'\r', b'\n', raw).is_none()
            && let Text::Long { blocks, changed } = &mut self.slots[at.0 as usize].text
        {
            *changed |= blocks.extend(place, repetition_of(place), raw, &mut self.left)?;
            self.name_again(at);
            return Ok(());
        }
        let whole = [self.get_at(at, place).bytes(), raw].concat();
        self.set_at(at, place, &whole).map(|_| ())
    }

    /// Adds a repetition to the field in every segment the path selects; returns the number of segments. An empty or
    /// absent field gets its first.
    ///
    /// # Errors
    /// [`EditError::NotAField`] unless the path is of a whole field; else as [`set`](Self::set).
    pub fn append(&mut self, path: &Path, raw: &[u8]) -> Result<usize, EditError> {
        let Some(Place { field, repetition: None, component: None, .. }) = path.place else {
            return Err(EditError::NotAField);
        };
        let segments = self.one(path)?.map_or_else(|| self.select(&path.segment), |at| vec![at]);
        for &at in &segments {
            self.append_at(at, field, raw)?;
        }
        Ok(segments.len())
    }

    /// Adds a repetition to a field of a segment.
    ///
    /// # Errors
    /// [`EditError`], as [`append`](Self::append); [`EditError::Deleted`].
    pub fn append_at(&mut self, at: SegmentId, field: u16, raw: &[u8]) -> Result<(), EditError> {
        self.check_place(at, &Place::field(field))?;
        if self.is_atomic(at, field) {
            return Err(EditError::Header);
        }
        self.lengthen_edited(at);
        let count = self.repetitions(at, field);
        let first = Place { repetition: Some(Which::Nth(1)), ..Place::field(field) };
        let next = if count == 1 && self.get_at(at, &first).bytes().is_empty() { 1 } else { count + 1 };
        let place = Place { repetition: Some(Which::Nth(next as u32)), ..Place::field(field) };
        self.set_at(at, &place, raw).map(|_| ())
    }

    /// Deletes what the path selects: segments whole; a field, component or subcomponent is emptied; a repetition is
    /// taken out of its field. Returns the number of deleted places.
    ///
    /// # Errors
    /// [`EditError::Header`] for MSH, MSH-1 and MSH-2.
    pub fn delete(&mut self, path: &Path) -> Result<usize, EditError> {
        let segments = self.select(&path.segment);
        let Some(place) = &path.place else { return self.delete_segments(&segments) };
        let mut places = 0;
        for at in segments {
            places += self.delete_places(at, place)?;
        }
        Ok(places)
    }

    /// Deletes a place of a segment; returns whether it had content.
    ///
    /// # Errors
    /// [`EditError`], as [`delete`](Self::delete); [`EditError::Deleted`].
    pub fn delete_at(&mut self, at: SegmentId, place: &Place) -> Result<bool, EditError> {
        self.delete_places(at, place).map(|places| places > 0)
    }

    /// Takes a segment out, with its line end.
    ///
    /// # Errors
    /// [`EditError::Header`] for MSH, [`EditError::Deleted`].
    pub fn delete_segment(&mut self, at: SegmentId) -> Result<(), EditError> {
        self.check(at)?;
        self.delete_segments(&[at]).map(|_| ())
    }

    /// Puts a segment without fields before another.
    ///
    /// # Errors
    /// [`EditError::Header`] before MSH, and of MSH, FHS and BHS; [`EditError::Deleted`].
    pub fn insert_before(&mut self, at: SegmentId, name: SegmentName) -> Result<SegmentId, EditError> {
        self.check(at)?;
        if at == SegmentId(0) { Err(EditError::Header) } else { self.insert(name, Some((at, false))) }
    }

    /// Puts a segment without fields behind another.
    ///
    /// # Errors
    /// As [`insert_before`](Self::insert_before).
    pub fn insert_after(&mut self, at: SegmentId, name: SegmentName) -> Result<SegmentId, EditError> {
        self.check(at)?;
        self.insert(name, Some((at, true)))
    }

    /// Puts a segment without fields last.
    ///
    /// # Errors
    /// As [`insert_before`](Self::insert_before).
    pub fn insert_last(&mut self, name: SegmentName) -> Result<SegmentId, EditError> {
        self.insert(name, None)
    }

    fn insert(&mut self, name: SegmentName, beside: Option<(SegmentId, bool)>) -> Result<SegmentId, EditError> {
        if name.is_header() {
            return Err(EditError::Header);
        }
        if SegmentName::from_bytes(name.bytes()).is_none() {
            return Err(EditError::NotASegment);
        }
        self.make_ordered();
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { name, text: Text::New(name.bytes().to_vec()) });
        let mut order = self.order.take().expect("it was made just now");
        match beside {
            Some((SegmentId(beside), after)) => order.insert(name, beside, after),
            None => order.push(name),
        }
        order.cut(slot, |slot| self.slots[slot as usize].name);
        let _ = self.order.set(order);
        Ok(SegmentId(slot))
    }

    /// Replaces a segment whole; `raw` starts with a name and has no line end. MSH may only be replaced by an MSH with
    /// the same delimiters, and nothing else by an MSH.
    ///
    /// # Errors
    /// [`EditError::Header`], [`EditError::NotASegment`], [`EditError::LineEnd`], [`EditError::Deleted`].
    pub fn set_segment(&mut self, at: SegmentId, raw: &[u8]) -> Result<(), EditError> {
        self.check(at)?;
        if self.segment_bytes(at) == raw {
            return Ok(());
        }
        take(&mut self.left, raw.len())?;
        let field = self.delimiters().field;
        let name = name_of(raw, field);
        if SegmentName::from_bytes(name.bytes()).is_none() {
            return Err(EditError::NotASegment);
        }
        let header = at == SegmentId(0);
        let keeps_header = name == SegmentName::MSH && Delimiters::of_header(raw) == Ok(self.delimiters());
        if (header && !keeps_header) || (!header && name == SegmentName::MSH) {
            return Err(EditError::Header);
        }
        self.store(at, raw.to_vec())
    }

    /// Takes segments out.
    fn delete_segments(&mut self, segments: &[SegmentId]) -> Result<usize, EditError> {
        if segments.contains(&SegmentId(0)) {
            return Err(EditError::Header);
        }
        if segments.is_empty() {
            return Ok(0);
        }
        self.make_ordered();
        for &at in segments {
            let name = self.name(at);
            *self.text_mut(at) = Text::Deleted;
            self.deleted += usize::from(self.is_original(at));
            self.order.get_mut().expect("it was made just now").remove(at.0, name);
        }
        Ok(segments.len())
    }

    fn delete_places(&mut self, at: SegmentId, place: &Place) -> Result<usize, EditError> {
        self.check_place(at, place)?;
        if self.is_atomic(at, place.field) {
            return Err(EditError::Header);
        }
        if self.lengthen_edited(at)
            && let Selected::One(repetition) = self.repetition(at, place)
        {
            return Ok(usize::from(self.delete_in_long(at, place, repetition)));
        }
        if place.repetition.is_some() {
            return self.rewrite(at, place, None);
        }
        let segment = self.segment(at);
        match Target::find(&segment, place, place.component.map(|_| 1)) {
            Ok(target) if target.holds_something() => self.splice(at, &target, b"").map(|()| 1),
            // The place does not exist, or is of a level that MSH-2 does not declare, which no field can have.
            _ => Ok(0),
        }
    }

    /// Deletes a place with one repetition, or none, of a long segment; returns whether it had content.
    fn delete_in_long(&mut self, at: SegmentId, place: &Place, repetition: Option<usize>) -> bool {
        let Text::Long { blocks, changed } = self.text_mut(at) else { unreachable!("the caller has looked") };
        let deleted = match (repetition, place.component) {
            (Some(repetition), None) => blocks.delete_repetition(place.field, repetition),
            _ => blocks.empty(place, repetition),
        };
        *changed |= deleted;
        self.name_again(at);
        deleted
    }

    /// Writes `value` to the place in each repetition it selects, or deletes it there; returns the number of changed
    /// repetitions.
    fn rewrite(&mut self, at: SegmentId, place: &Place, value: Option<&[u8]>) -> Result<usize, EditError> {
        let segment = self.segment(at);
        let Some(field) = segment.field_bytes(place.field) else { return Ok(0) };
        if field.is_empty() && value.is_none() {
            return Ok(0);
        }
        let before = field.len();
        let (field, places) = rewritten(&segment, field, place, value)?;
        let written = places.saturating_mul(value.map_or(0, <[u8]>::len));
        take(&mut self.left, written.max(field.len().saturating_sub(before)))?;
        self.shorten(at);
        let target = Target::find(&self.segment(at), &Place::field(place.field), None)?;
        self.splice(at, &target, &field)?;
        Ok(places)
    }

    /// The segment that a path names by number, which must be there; none where it selects any number of them.
    fn one(&self, path: &Path) -> Result<Option<SegmentId>, EditError> {
        match path.segment.which {
            Which::All | Which::Where(_) => Ok(None),
            Which::Nth(_) | Which::Last => {
                self.first(&path.segment).map(Some).ok_or(EditError::NoSegment { name: path.segment.name })
            }
        }
    }

    /// The repetition (1-based; none: the whole field) that a place selects, where it can only be one.
    fn repetition(&self, at: SegmentId, place: &Place) -> Selected {
        match (&place.repetition, place.component) {
            (None, None) => Selected::One(None),
            (None, Some(_)) => Selected::One(Some(1)),
            (Some(Which::Nth(n)), _) => Selected::One(Some(*n as usize)),
            (Some(Which::Last), _) => Selected::One(Some(self.repetitions(at, place.field))),
            (Some(Which::All | Which::Where(_)), _) => Selected::Several,
        }
    }

    /// How many repetitions a field has; one at least.
    fn repetitions(&self, at: SegmentId, field: u16) -> usize {
        match self.text(at) {
            Text::Long { blocks, .. } => blocks.repetitions(field),
            _ => count(self.segment(at).field(field).bytes(), self.delimiters().repetition),
        }
    }

    /// Replaces the target's range, if that changes anything and breaks no line.
    fn splice(&mut self, at: SegmentId, target: &Target, value: &[u8]) -> Result<(), EditError> {
        let raw = self.segment_bytes(at);
        if target.exists() && &raw[target.range.clone()] == value {
            return Ok(());
        }
        let line_ends =
            memchr2(b'\r', b'\n', value).is_some() || (self.lines == Lines::Cr && memchr(b'\n', raw).is_some());
        if let (false, Text::New(bytes)) = (line_ends, self.text_mut(at)) {
            bytes.splice(target.range.clone(), target.padding.bytes().chain(value.iter().copied()));
            self.name_again(at);
            return Ok(());
        }
        let raw = self.segment_bytes(at);
        let mut bytes = Vec::with_capacity(raw.len() + value.len() + 16);
        target.write(raw, value, &mut bytes);
        self.store(at, bytes)
    }

    fn store(&mut self, at: SegmentId, new: Vec<u8>) -> Result<(), EditError> {
        if breaks_line(&new, self.delimiters().field, self.lines) {
            return Err(EditError::LineEnd);
        }
        *self.text_mut(at) = Text::New(new);
        self.name_again(at);
        Ok(())
    }

    /// Reads the name of a segment that was changed: a line that had none may have become one, and a segment another.
    fn name_again(&mut self, at: SegmentId) {
        let field = self.delimiters().field;
        let slot = &mut self.slots[at.0 as usize];
        let name = match &slot.text {
            Text::New(bytes) => name_of(bytes, field),
            Text::Long { blocks, .. } => blocks.name(),
            Text::Kept | Text::Deleted => return,
        };
        let before = std::mem::replace(&mut slot.name, name);
        if let Some(order) = self.order.get_mut().filter(|_| before != name) {
            order.rename(at.0, before, name);
        }
    }

    /// Keeps a segment in blocks from now on, if it is long and was edited before: for a single edit, making the blocks
    /// would be the greater part of the cost. Returns whether it is in blocks.
    fn lengthen_edited(&mut self, at: SegmentId) -> bool {
        match self.text(at) {
            Text::New(bytes) if bytes.len() >= LONG_BYTES => {
                self.lengthen(at);
                matches!(self.text(at), Text::Long { .. })
            }
            Text::Long { .. } => true,
            _ => false,
        }
    }

    pub(super) fn lengthen(&mut self, at: SegmentId) {
        let raw = self.segment_bytes(at);
        if raw.len() < LONG_BYTES {
            return;
        }
        let Some(blocks) = Long::new(raw, self.delimiters()) else { return };
        let text = self.text_mut(at);
        *text = Text::Long { changed: !matches!(text, Text::Kept), blocks: Box::new(blocks) };
    }

    /// Keeps a segment in one piece again: the value to be written depends on line ends, contains line ends, or is most
    /// of the segment.
    fn shorten(&mut self, at: SegmentId) {
        let text = self.text_mut(at);
        *text = match std::mem::replace(text, Text::Kept) {
            Text::Long { changed: true, blocks } => Text::New(blocks.into_joined()),
            Text::Long { changed: false, .. } => Text::Kept,
            other => other,
        };
    }

    /// Makes the order, where none was needed so far.
    fn make_ordered(&mut self) {
        if self.order.get().is_none() {
            let _ = self.order.set(self.make_order());
        }
    }

    fn text_mut(&mut self, at: SegmentId) -> &mut Text {
        &mut self.slots[at.0 as usize].text
    }

    fn check(&self, at: SegmentId) -> Result<(), EditError> {
        if self.contains(at) { Ok(()) } else { Err(EditError::Deleted) }
    }

    /// Paths that were parsed count from 1; places made by hand may not.
    fn check_place(&self, at: SegmentId, place: &Place) -> Result<(), EditError> {
        self.check(at)?;
        let repetition = !matches!(place.repetition, Some(Which::Nth(0)));
        let counts = [Some(place.field), place.component, place.subcomponent];
        let levels = place.subcomponent.is_none() || place.component.is_some();
        if repetition && levels && !counts.contains(&Some(0)) { Ok(()) } else { Err(EditError::Index) }
    }
}

/// How many repetitions a place may select.
enum Selected {
    /// This one.
    One(Option<usize>),
    /// Any number.
    Several,
}

/// Refuses a value that holds a delimiter of a level at or above its place.
fn check_value(raw: &[u8], place: &Place, d: Delimiters) -> Result<(), EditError> {
    let single = place.repetition.is_some() || place.component.is_some();
    let ends = [
        Some(d.field),
        d.repetition.filter(|_| single),
        d.component.filter(|_| place.component.is_some()),
        d.subcomponent.filter(|_| place.subcomponent.is_some()),
    ];
    match ends.into_iter().flatten().find(|&end| memchr(end, raw).is_some()) {
        Some(byte) => Err(EditError::Delimiter { byte }),
        None => Ok(()),
    }
}
