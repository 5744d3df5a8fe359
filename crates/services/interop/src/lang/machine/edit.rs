//! Edits and loops: operations that change the draft, and that keep cursors at their segments when others are inserted
//! or deleted.

use std::borrow::Cow;

use hl7::{Draft, EditError, Path, Place, SegmentId, SegmentName, Value, Which};

use super::super::context::RunProblem;
use super::super::program::{ConstantId, Spot, SpotId};
use super::function::NULL;
use super::value::{repetition_place, standing, value};
use super::{Cursor, Frame, MAX_INSERTS, MAX_WRITTEN_BYTES, Machine, Stop, Subject};

impl<'s, 'm> Machine<'s, 'm> {
    fn draft(&mut self) -> &mut Draft<'m> {
        match &mut self.subject {
            Subject::Draft(draft) => draft,
            Subject::Message(_) => unreachable!("a program of rules edits nothing"),
        }
    }

    pub(super) fn set_constant(&mut self, frame: Frame<'s>, spot: SpotId, constant: ConstantId) -> Result<(), Stop> {
        let bytes = self.constant(frame, constant)?;
        self.write(frame, spot, &bytes)
    }

    /// Takes the value on the stack.
    pub(super) fn set(&mut self, frame: Frame<'s>, spot: SpotId) -> Result<(), Stop> {
        // The arena is lent out while the draft is changed: both belong to the machine.
        let arena = std::mem::take(&mut self.arena);
        let start = *self.starts.last().expect("the compiler balances the stack");
        let result = self.write(frame, spot, &arena[start..]);
        self.arena = arena;
        self.pop();
        result
    }

    /// Counts the bytes that are about to be written.
    fn account(&mut self, bytes: usize) -> Result<(), Stop> {
        self.written = self.written.saturating_add(bytes);
        if self.written > MAX_WRITTEN_BYTES {
            return Err(RunProblem::TooMuch { limit: MAX_WRITTEN_BYTES as u32, what: "bytes" }.into());
        }
        Ok(())
    }

    fn write(&mut self, frame: Frame<'s>, spot: SpotId, raw: &[u8]) -> Result<(), Stop> {
        self.account(raw.len())?;
        let spots = &frame.program.spots;
        if raw.is_empty() && names_one(&spots[spot as usize]) && self.is_blank(frame, spot)? {
            return Ok(());
        }
        let result = match &spots[spot as usize] {
            Spot::Path(path) => self.draft().set(path, raw),
            Spot::Place(cursor, place) => {
                let at = standing(&self.subject, &self.cursors, frame, *cursor, spot)?.0;
                self.draft().set_at(at, place, raw)
            }
            Spot::Repetition { cursor, component, subcomponent } => {
                let (at, state) = standing(&self.subject, &self.cursors, frame, *cursor, spot)?;
                let place = repetition_place(state, *component, *subcomponent);
                self.draft().set_at(at, &place, raw)
            }
            Spot::Segment(_) => unreachable!("a value goes into a field"),
        };
        result.map(|_| ()).map_err(|source| refused(frame, spot, source))
    }

    /// The segment exists and ends before the place: writing an empty value there changes nothing.
    fn is_blank(&self, frame: Frame<'s>, spot: SpotId) -> Result<bool, Stop> {
        let absent = value(&self.subject, &self.cursors, frame, spot)? == Value::Absent;
        Ok(absent && self.segment_of(frame, spot).is_ok())
    }

    /// Takes the value on the stack.
    pub(super) fn append(&mut self, frame: Frame<'s>, spot: SpotId) -> Result<(), Stop> {
        self.account(self.peek(0).len())?;
        let arena = std::mem::take(&mut self.arena);
        let start = *self.starts.last().expect("the compiler balances the stack");
        let raw = &arena[start..];
        let result = match &frame.program.spots[spot as usize] {
            Spot::Path(path) => self.draft().append(path, raw).map(|_| ()).map_err(|e| refused(frame, spot, e)),
            Spot::Place(cursor, place) => {
                standing(&self.subject, &self.cursors, frame, *cursor, spot).map(|found| found.0).and_then(|at| {
                    self.draft().append_at(at, place.field, raw).map_err(|source| refused(frame, spot, source))
                })
            }
            _ => unreachable!("append is of a field"),
        };
        self.arena = arena;
        self.pop();
        result
    }

    /// Whether a value can be appended to a place at a cost that depends on the appended bytes only.
    pub(super) fn can_extend(&mut self, frame: Frame<'s>, spot: SpotId) -> Result<bool, Stop> {
        let found = self.one_place(frame, spot)?;
        Ok(found.is_some_and(|(at, place)| self.draft().can_extend(at, &place)))
    }

    /// Takes values and appends them to the content of a place. Null among them counts as empty, as in joining.
    pub(super) fn extend_place(&mut self, frame: Frame<'s>, spot: SpotId, parts: usize) -> Result<(), Stop> {
        self.concat(parts);
        self.account(self.peek(0).len())?;
        let (at, place) = self.one_place(frame, spot)?.expect("it was there when it was looked whether it is long");
        let arena = std::mem::take(&mut self.arena);
        let start = *self.starts.last().expect("the compiler balances the stack");
        let raw = if arena[start..] == *NULL { b"" } else { &arena[start..] };
        let result = self.draft().extend_at(at, &place, raw);
        self.arena = arena;
        self.pop();
        result.map_err(|source| refused(frame, spot, source))
    }

    /// The one place of a segment that a spot names; none if it is no place, or several, or the segment does not exist.
    fn one_place(&self, frame: Frame<'s>, spot: SpotId) -> Result<Option<(SegmentId, Cow<'s, Place>)>, Stop> {
        let spots = &frame.program.spots;
        Ok(match &spots[spot as usize] {
            named if !names_one(named) => None,
            Spot::Path(Path { segment, place: Some(place) }) => {
                self.subject.first(segment).map(|at| (at, Cow::Borrowed(place)))
            }
            Spot::Place(cursor, place) => {
                let at = standing(&self.subject, &self.cursors, frame, *cursor, spot)?.0;
                Some((at, Cow::Borrowed(place)))
            }
            Spot::Repetition { cursor, component, subcomponent } => {
                let (at, state) = standing(&self.subject, &self.cursors, frame, *cursor, spot)?;
                Some((at, Cow::Owned(repetition_place(state, *component, *subcomponent))))
            }
            Spot::Path(_) | Spot::Segment(_) => None,
        })
    }

    pub(super) fn copy(&mut self, frame: Frame<'s>, from: SpotId, to: SpotId) -> Result<(), Stop> {
        if matches!(&frame.program.spots[from as usize], Spot::Segment(_) | Spot::Path(Path { place: None, .. })) {
            return self.copy_segment(frame, from, to);
        }
        self.push_value(frame, from)?;
        self.set(frame, to)
    }

    /// Fills a segment with the fields of another; its name stays.
    fn copy_segment(&mut self, frame: Frame<'s>, from: SpotId, to: SpotId) -> Result<(), Stop> {
        let (source, target) = (self.segment_of(frame, from)?, self.segment_of(frame, to)?);
        self.account(self.subject.segment(source).raw().len())?;
        let draft = self.draft();
        let mut raw = draft.name(target).bytes().to_vec();
        raw.extend_from_slice(draft.segment_bytes(source).get(3..).unwrap_or_default());
        draft.set_segment(target, &raw).map_err(|source| refused(frame, to, source))
    }

    /// The one segment that a spot names.
    fn segment_of(&self, frame: Frame<'s>, spot: SpotId) -> Result<SegmentId, Stop> {
        match &frame.program.spots[spot as usize] {
            Spot::Path(path) => {
                let found = self.subject.first(&path.segment);
                found.ok_or_else(|| RunProblem::NoSegment { place: frame.label(spot) }.into())
            }
            Spot::Segment(cursor) | Spot::Place(cursor, _) | Spot::Repetition { cursor, .. } => {
                Ok(standing(&self.subject, &self.cursors, frame, *cursor, spot)?.0)
            }
        }
    }

    pub(super) fn delete(&mut self, frame: Frame<'s>, spot: SpotId) -> Result<(), Stop> {
        let result = match &frame.program.spots[spot as usize] {
            Spot::Segment(cursor) => {
                let at = standing(&self.subject, &self.cursors, frame, *cursor, spot)?.0;
                self.draft().delete_segment(at)
            }
            Spot::Path(path) => self.draft().delete(path).map(|_| ()),
            Spot::Place(cursor, place) => {
                let at = standing(&self.subject, &self.cursors, frame, *cursor, spot)?.0;
                self.draft().delete_at(at, place).map(|_| ())
            }
            Spot::Repetition { cursor, component, subcomponent } => {
                let (at, state) = standing(&self.subject, &self.cursors, frame, *cursor, spot)?;
                let place = repetition_place(state, *component, *subcomponent);
                let whole = component.is_none();
                let result = self.draft().delete_at(at, &place).map(|_| ());
                if whole {
                    let state = &mut self.cursors[frame.cursor(*cursor)];
                    state.gone = true;
                    state.repetition -= 1;
                }
                result
            }
        };
        result.map_err(|source| refused(frame, spot, source))
    }

    /// Inserts a segment beside another, or at the end.
    pub(super) fn insert(
        &mut self,
        frame: Frame<'s>,
        name: SegmentName,
        beside: Option<SpotId>,
        after: bool,
        cursor: Option<u16>,
    ) -> Result<(), Stop> {
        self.inserts += 1;
        if self.inserts > MAX_INSERTS {
            return Err(RunProblem::TooMuch { limit: MAX_INSERTS, what: "segments" }.into());
        }
        let beside = beside.map(|spot| self.segment_of(frame, spot)).transpose()?;
        let draft = self.draft();
        let inserted = match beside {
            Some(at) if after => draft.insert_after(at, name),
            Some(at) => draft.insert_before(at, name),
            None => draft.insert_last(name),
        };
        let at = inserted.map_err(|source| RunProblem::Edit { place: name.to_string(), source })?;
        if let Some(cursor) = cursor {
            self.cursors[frame.cursor(cursor)] = Cursor { segment: Some(at), turn: 1, ..Cursor::default() };
        }
        Ok(())
    }

    pub(super) fn each_segment(
        &mut self,
        frame: Frame<'s>,
        cursor: u16,
        spot: SpotId,
        under: Option<u16>,
    ) -> Result<(), Stop> {
        let Spot::Path(path) = &frame.program.spots[spot as usize] else {
            unreachable!("a loop over segments is over a path");
        };
        let mut pending = match under {
            None => self.subject.select(&path.segment),
            Some(outer) => {
                let from = standing(&self.subject, &self.cursors, frame, outer, spot)?.0;
                self.draft().select_under(&path.segment, from)
            }
        };
        pending.reverse();
        self.cursors[frame.cursor(cursor)] = Cursor { pending, ..Cursor::default() };
        Ok(())
    }

    pub(super) fn each_repetition(&mut self, frame: Frame<'s>, cursor: u16, spot: SpotId) -> Result<(), Stop> {
        let (segment, place) = match &frame.program.spots[spot as usize] {
            Spot::Path(Path { segment, place: Some(place) }) => (self.subject.first(segment), place),
            Spot::Place(outer, place) => (Some(standing(&self.subject, &self.cursors, frame, *outer, spot)?.0), place),
            _ => unreachable!("a loop over repetitions is over a field"),
        };
        if let Some(at) = segment {
            self.draft().expect_loop(at);
        }
        let field = segment.map_or(&b""[..], |at| self.subject.get_at(at, &Place::field(place.field)).bytes());
        let separators =
            self.delimiters.repetition.map_or(0, |separator| memchr::memchr_iter(separator, field).count());
        let remaining = if field.is_empty() { 0 } else { separators as u32 + 1 };
        self.cursors[frame.cursor(cursor)] = Cursor { segment, field: place.field, remaining, ..Cursor::default() };
        Ok(())
    }

    /// Moves a cursor on; false after the last.
    pub(super) fn next_turn(&mut self, frame: Frame<'s>, cursor: u16) -> bool {
        let state = &mut self.cursors[frame.cursor(cursor)];
        state.turn += 1;
        if state.field == 0 {
            // A segment that was deleted before its turn has no pass.
            state.segment = std::iter::from_fn(|| state.pending.pop()).find(|at| self.subject.contains(*at));
            return state.segment.is_some();
        }
        state.gone = false;
        state.repetition += 1;
        let more = state.remaining > 0 && state.segment.is_some_and(|at| self.subject.contains(at));
        state.remaining = state.remaining.saturating_sub(1);
        more
    }
}

/// Whether a spot names one place rather than all that meet a condition.
fn names_one(spot: &Spot) -> bool {
    let one = |which: &Which| matches!(which, Which::Nth(_) | Which::Last);
    let place = match spot {
        Spot::Path(Path { segment, place: Some(place) }) if one(&segment.which) => place,
        Spot::Place(_, place) => place,
        Spot::Repetition { .. } => return true,
        _ => return false,
    };
    place.repetition.as_ref().is_none_or(one)
}

fn refused(frame: Frame<'_>, spot: SpotId, source: EditError) -> Stop {
    if let (EditError::NoSegment { .. }, Spot::Path(path)) = (source, &frame.program.spots[spot as usize]) {
        return RunProblem::NoSegment { place: path.segment.to_string() }.into();
    }
    RunProblem::Edit { place: frame.label(spot), source }.into()
}
