//! The edits themselves: each finds its segments and places, checks the value, and splices.
//!
//! A value is checked against every delimiter that would end the place it goes into; line ends are checked on the
//! segment it makes, because whether a bare LF ends a line depends on what stands beside it.

use memchr::{memchr, memchr2};

use super::splice::{Target, rewritten};
use super::{Draft, Slot};
use crate::path::{Path, Place, Which};
use crate::segment::count;
use crate::table::{Lines, breaks_line};
use crate::{Delimiters, EditError, SegmentName};

/// Highest number in a place; paths are parsed with the same limit.
const MOST: u32 = u16::MAX as u32;

impl Draft<'_> {
    /// Writes `raw` to every place the path selects, making missing fields, repetitions and components; answers how
    /// many places. `raw` is already escaped for this message. A path of a segment only replaces it whole, as
    /// [`set_segment`](Self::set_segment) does.
    ///
    /// With `[n]` and `[last]` the segment must be there; `[*]` and conditions may select none, which answers 0.
    ///
    /// # Errors
    /// [`EditError`]; of several places, those before the refused one have been written.
    pub fn set(&mut self, path: &Path, raw: &[u8]) -> Result<usize, EditError> {
        let mut places = 0;
        for at in self.required(path)? {
            places += match &path.place {
                Some(place) => self.set_at(at, place, raw)?,
                None => self.set_segment(at, raw).map(|()| 1)?,
            };
        }
        Ok(places)
    }

    /// Writes `raw` to a place of the segment at an index; answers how many places, which is not 1 only where the
    /// place selects repetitions by `[*]` or a condition. `[last]` of a field that is absent makes its first.
    ///
    /// # Errors
    /// [`EditError`], as [`set`](Self::set).
    pub fn set_at(&mut self, at: usize, place: &Place, raw: &[u8]) -> Result<usize, EditError> {
        self.check_place(at, place)?;
        let segment = self.segment(at);
        if segment.is_atomic(place.field) {
            return if segment.get(place).bytes() == raw { Ok(1) } else { Err(EditError::Header) };
        }
        check_value(raw, place, self.delimiters())?;
        let repetition = match self.repetition(at, place) {
            Selected::One(repetition) => repetition,
            Selected::Several => return self.rewrite(at, place, Some(raw)),
        };
        let target = Target::find(&self.segment(at), place, repetition)?;
        self.splice(at, &target, raw)?;
        Ok(1)
    }

    /// Adds a repetition to the field in every segment the path selects; answers how many. An empty or absent field
    /// gets its first.
    ///
    /// # Errors
    /// [`EditError::NotAField`] unless the path is of a whole field; else as [`set`](Self::set).
    pub fn append(&mut self, path: &Path, raw: &[u8]) -> Result<usize, EditError> {
        let Some(Place { field, repetition: None, component: None, .. }) = path.place else {
            return Err(EditError::NotAField);
        };
        let segments = self.required(path)?;
        for &at in &segments {
            self.append_at(at, field, raw)?;
        }
        Ok(segments.len())
    }

    /// Adds a repetition to a field of the segment at an index.
    ///
    /// # Errors
    /// [`EditError`], as [`append`](Self::append).
    pub fn append_at(&mut self, at: usize, field: u16, raw: &[u8]) -> Result<(), EditError> {
        self.check_place(at, &Place::field(field))?;
        let segment = self.segment(at);
        if segment.is_atomic(field) {
            return Err(EditError::Header);
        }
        let present = segment.field(field).bytes();
        let next = if present.is_empty() { 1 } else { count(present, self.delimiters().repetition) + 1 };
        let place = Place { repetition: Some(Which::Nth(next as u32)), ..Place::field(field) };
        self.set_at(at, &place, raw).map(|_| ())
    }

    /// Deletes what the path selects: segments whole; a field, component or subcomponent is emptied; a repetition is
    /// taken out of its field. Answers how many were there to delete.
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

    /// Deletes a place of the segment at an index; answers whether there was anything.
    ///
    /// # Errors
    /// [`EditError`], as [`delete`](Self::delete).
    pub fn delete_at(&mut self, at: usize, place: &Place) -> Result<bool, EditError> {
        self.delete_places(at, place).map(|places| places > 0)
    }

    /// Takes a segment out, with its line end.
    ///
    /// # Errors
    /// [`EditError::Header`] for index 0, [`EditError::NoIndex`].
    pub fn delete_segment(&mut self, at: usize) -> Result<(), EditError> {
        self.check_index(at, self.len())?;
        self.delete_segments(&[at]).map(|_| ())
    }

    /// Puts a segment without fields at an index from 1 to [`len`](Self::len), which puts it last.
    ///
    /// # Errors
    /// [`EditError::Header`] for index 0 and for MSH, FHS and BHS; [`EditError::NoIndex`].
    pub fn insert_segment(&mut self, at: usize, name: SegmentName) -> Result<(), EditError> {
        self.check_index(at, self.len() + 1)?;
        if at == 0 || name.is_header() {
            return Err(EditError::Header);
        }
        if SegmentName::from_bytes(name.bytes()).is_none() {
            return Err(EditError::NotASegment);
        }
        self.slots.insert(at, Slot::Inserted(name.bytes().to_vec()));
        Ok(())
    }

    /// Replaces the segment at an index whole; `raw` starts with a name and has no line end. MSH may only be replaced
    /// by an MSH with the same delimiters, and nothing else by an MSH.
    ///
    /// # Errors
    /// [`EditError::Header`], [`EditError::NotASegment`], [`EditError::LineEnd`], [`EditError::NoIndex`].
    pub fn set_segment(&mut self, at: usize, raw: &[u8]) -> Result<(), EditError> {
        self.check_index(at, self.len())?;
        if self.segment_bytes(at) == raw {
            return Ok(());
        }
        let field = self.delimiters().field;
        let name = crate::table::name_of(raw, field);
        if SegmentName::from_bytes(name.bytes()).is_none() {
            return Err(EditError::NotASegment);
        }
        let keeps_header = name == SegmentName::MSH && Delimiters::of_header(raw) == Ok(self.delimiters());
        if (at == 0 && !keeps_header) || (at > 0 && name == SegmentName::MSH) {
            return Err(EditError::Header);
        }
        self.store(at, raw.to_vec())
    }

    /// Takes the segments at these indexes, which ascend, out in one pass.
    fn delete_segments(&mut self, segments: &[usize]) -> Result<usize, EditError> {
        if segments.first() == Some(&0) {
            return Err(EditError::Header);
        }
        let mut doomed = segments.iter().peekable();
        let mut at = 0;
        self.slots.retain(|slot| {
            let dies = doomed.next_if_eq(&&at).is_some();
            self.deleted += usize::from(dies && !matches!(slot, Slot::Inserted(_)));
            at += 1;
            !dies
        });
        Ok(segments.len())
    }

    fn delete_places(&mut self, at: usize, place: &Place) -> Result<usize, EditError> {
        self.check_place(at, place)?;
        let segment = self.segment(at);
        if segment.is_atomic(place.field) {
            return Err(EditError::Header);
        }
        if place.repetition.is_some() {
            return self.rewrite(at, place, None);
        }
        match Target::find(&segment, place, place.component.map(|_| 1)) {
            Ok(target) if target.holds_something() => self.splice(at, &target, b"").map(|()| 1),
            // Not there, or of a level that MSH-2 does not declare, which no field can have.
            _ => Ok(0),
        }
    }

    /// Writes `value` to the place in each repetition it selects, or deletes it there; answers in how many.
    fn rewrite(&mut self, at: usize, place: &Place, value: Option<&[u8]>) -> Result<usize, EditError> {
        let segment = self.segment(at);
        let Some(field) = segment.field_bytes(place.field) else { return Ok(0) };
        if field.is_empty() && value.is_none() {
            return Ok(0);
        }
        let (field, places) = rewritten(&segment, field, place, value)?;
        let target = Target::find(&segment, &Place::field(place.field), None)?;
        self.splice(at, &target, &field)?;
        Ok(places)
    }

    /// The segments an edit needs: none is an error where the path names one by number.
    fn required(&self, path: &Path) -> Result<Vec<usize>, EditError> {
        let segments = self.select(&path.segment);
        if segments.is_empty() && matches!(path.segment.which, Which::Nth(_) | Which::Last) {
            return Err(EditError::NoSegment { name: path.segment.name });
        }
        Ok(segments)
    }

    /// The repetition (1-based; none: the whole field) that a place selects, where it can only be one.
    fn repetition(&self, at: usize, place: &Place) -> Selected {
        match (&place.repetition, place.component) {
            (None, None) => Selected::One(None),
            (None, Some(_)) => Selected::One(Some(1)),
            (Some(Which::Nth(n)), _) => Selected::One(Some(*n as usize)),
            (Some(Which::Last), _) => {
                let field = self.segment(at).field(place.field).bytes();
                Selected::One(Some(count(field, self.delimiters().repetition)))
            }
            (Some(Which::All | Which::Where(_)), _) => Selected::Several,
        }
    }

    /// Replaces the target's range, if that changes anything and breaks no line.
    fn splice(&mut self, at: usize, target: &Target, value: &[u8]) -> Result<(), EditError> {
        let raw = self.segment_bytes(at);
        if target.exists() && &raw[target.range.clone()] == value {
            return Ok(());
        }
        let line_ends =
            memchr2(b'\r', b'\n', value).is_some() || (self.lines == Lines::Cr && memchr(b'\n', raw).is_some());
        if let (false, Slot::Edited { bytes, .. } | Slot::Inserted(bytes)) = (line_ends, &mut self.slots[at]) {
            bytes.splice(target.range.clone(), target.padding().chain(value.iter().copied()));
            return Ok(());
        }
        let raw = self.segment_bytes(at);
        let mut bytes = Vec::with_capacity(raw.len() + value.len() + 16);
        target.write(raw, value, &mut bytes);
        self.store(at, bytes)
    }

    fn store(&mut self, at: usize, new: Vec<u8>) -> Result<(), EditError> {
        if breaks_line(&new, self.delimiters().field, self.lines) {
            return Err(EditError::LineEnd);
        }
        match &mut self.slots[at] {
            Slot::Edited { bytes, .. } | Slot::Inserted(bytes) => *bytes = new,
            Slot::Kept(original) => self.slots[at] = Slot::Edited { original: *original, bytes: new },
        }
        Ok(())
    }

    fn check_index(&self, at: usize, end: usize) -> Result<(), EditError> {
        if at < end { Ok(()) } else { Err(EditError::NoIndex { at, len: self.len() }) }
    }

    /// Paths that were parsed count from 1; places made by hand may not.
    fn check_place(&self, at: usize, place: &Place) -> Result<(), EditError> {
        self.check_index(at, self.len())?;
        let repetition = !matches!(place.repetition, Some(Which::Nth(n)) if n == 0 || n > MOST);
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
