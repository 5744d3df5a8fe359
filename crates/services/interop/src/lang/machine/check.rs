//! Tests of places and values.
//!
//! Texts are compared after their escapes and character set are decoded. `hl7("...")` is compared as content, byte for
//! byte. Order is that of numbers; a side that is no number makes the test false.

use std::cmp::Ordering;

use hl7::{Path, Value};

use super::super::program::{CompiledRelation, Operand, Spot, SpotId};
use super::super::syntax::NumberOrder;
use super::super::{content, number};
use super::value::{standing, value};
use super::{Frame, Machine, Stop};

/// The right side of a test.
enum Right<'r> {
    /// A literal as the author means it.
    Text(&'r str),
    /// Content of this message.
    Content(&'r [u8]),
}

impl<'s> Machine<'s, '_> {
    pub(super) fn check(&mut self, frame: Frame<'s>, check: u32) -> Result<bool, Stop> {
        let check = &frame.program.checks[check as usize];
        let right = usize::from(check.relation.takes_operand());
        let passes = |machine: &Self, value: Value<'_>| -> Result<bool, Stop> {
            Ok(machine.relate(frame, &check.relation, value)? != check.negated)
        };
        let result = match check.place {
            None => passes(self, Value::of(self.peek(right)))?,
            Some(spot) if !check.many => passes(self, value(&self.subject, &self.cursors, frame, spot)?)?,
            Some(spot) => {
                // One value that passes decides `any`; one that does not pass decides `all`.
                let (mut seen, mut decided, mut failed) = (false, false, None);
                self.each_value(frame, spot, &mut |value| {
                    seen = true;
                    match passes(self, value) {
                        Ok(passed) => decided |= passed != check.all,
                        Err(stop) => failed = Some(stop),
                    }
                    !decided && failed.is_none()
                })?;
                if let Some(stop) = failed {
                    return Err(stop);
                }
                if seen { decided != check.all } else { passes(self, Value::Absent)? }
            }
        };
        let taken = right + usize::from(check.place.is_none());
        (0..taken).for_each(|_| self.pop());
        Ok(result)
    }

    /// Whether the segment is there, or the place holds anything, null included.
    pub(super) fn exists(&self, frame: Frame<'s>, spot: SpotId) -> Result<bool, Stop> {
        match &frame.program.spots[spot as usize] {
            Spot::Path(path @ Path { place: None, .. }) => Ok(self.subject.first(&path.segment).is_some()),
            Spot::Segment(cursor) => Ok(standing(&self.subject, &self.cursors, frame, *cursor, spot).is_ok()),
            _ => {
                let mut found = false;
                self.each_value(frame, spot, &mut |value| {
                    found = !value.bytes().is_empty();
                    !found
                })?;
                Ok(found)
            }
        }
    }

    /// Whether a value is in the relation, before negation.
    fn relate(&self, frame: Frame<'s>, relation: &CompiledRelation, value: Value<'_>) -> Result<bool, Stop> {
        let raw = value.bytes();
        Ok(match relation {
            CompiledRelation::Empty => raw.is_empty(),
            CompiledRelation::Absent => value == Value::Absent,
            CompiledRelation::Null => value == Value::Null,
            CompiledRelation::Equals(right) => self.equals(frame, raw, *right)?,
            CompiledRelation::EqualsNumber(right) => self.compare(frame, raw, *right) == Some(Ordering::Equal),
            CompiledRelation::Ordered(order, right) => {
                self.compare(frame, raw, *right).is_some_and(|found| match order {
                    NumberOrder::Less => found.is_lt(),
                    NumberOrder::LessOrEqual => found.is_le(),
                    NumberOrder::Greater => found.is_gt(),
                    NumberOrder::GreaterOrEqual => found.is_ge(),
                })
            }
            CompiledRelation::OneOf(texts) => {
                let text = self.text(raw);
                texts.binary_search_by(|known| (**known).cmp(&text)).is_ok()
            }
            CompiledRelation::InTable(table) => self.tables.table(*table).get(&self.text(raw)).is_some(),
            CompiledRelation::Contains(right) => self.text(raw).contains(&*self.right_text(frame, *right)),
            CompiledRelation::StartsWith(right) => self.text(raw).starts_with(&*self.right_text(frame, *right)),
            CompiledRelation::EndsWith(right) => self.text(raw).ends_with(&*self.right_text(frame, *right)),
            CompiledRelation::Matches(pattern) => content::matches(&self.text(raw), pattern),
        })
    }

    fn right(&self, frame: Frame<'s>, operand: Operand) -> Right<'_> {
        match operand {
            Operand::Constant(constant) => Right::Text(&frame.program.constants[constant as usize].text),
            Operand::Stack => Right::Content(self.peek(0)),
        }
    }

    fn right_text(&self, frame: Frame<'s>, operand: Operand) -> std::borrow::Cow<'_, str> {
        match self.right(frame, operand) {
            Right::Text(text) => text.into(),
            Right::Content(raw) => self.text(raw),
        }
    }

    fn equals(&self, frame: Frame<'s>, raw: &[u8], operand: Operand) -> Result<bool, Stop> {
        if let Operand::Constant(constant) = operand
            && frame.program.constants[constant as usize].content
        {
            return Ok(*self.constant(frame, constant)? == *raw);
        }
        Ok(match self.right(frame, operand) {
            Right::Text(text) => self.text(raw) == text,
            Right::Content(other) => raw == other || self.text(raw) == self.text(other),
        })
    }

    fn compare(&self, frame: Frame<'s>, raw: &[u8], operand: Operand) -> Option<Ordering> {
        match self.right(frame, operand) {
            Right::Text(text) => number::compare(raw, text.as_bytes()),
            Right::Content(other) => number::compare(raw, other),
        }
    }
}
