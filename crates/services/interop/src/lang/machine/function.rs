//! Operations that make values: sources and functions. Null (`""`) goes through every function unchanged.

use hl7::{Path, Value, Which};

use super::super::content::{self, Case};
use super::super::context::RunProblem;
use super::super::program::{Op, Spot, SpotId};
use super::super::time::{Form, Present, Unfit};
use super::value::{standing, value};
use super::{Flow, Frame, MAX_KEPT_BYTES, MAX_VALUE_BYTES, Machine, Stop, too_long};

/// HL7's "delete what you have".
pub(super) const NULL: &[u8] = b"\"\"";

/// Memory for a time as text: HL7 writes one in 24 bytes at most. Other patterns may be longer.
const TIME_BYTES: usize = 24;

impl<'s> Machine<'s, '_> {
    pub(super) fn value_step(&mut self, frame: Frame<'s>, op: &'s Op) -> Result<Flow, Stop> {
        match op {
            Op::Constant(constant) => {
                let bytes = self.constant(frame, *constant)?;
                self.push(&bytes);
            }
            Op::Value(spot) => self.push_value(frame, *spot)?,
            Op::Variable(variable) => {
                self.starts.push(self.arena.len());
                self.arena.extend_from_slice(&self.variables[frame.variables + usize::from(*variable)]);
            }
            Op::Service => self.push_text(self.context.service)?,
            Op::ControlId => self.push_text(self.context.control_id)?,
            Op::Index(cursor) => self.push(self.cursors[frame.cursor(*cursor)].turn.to_string().as_bytes()),
            Op::Count(spot) => {
                let count = self.count(frame, *spot)?;
                self.push(count.to_string().as_bytes());
            }
            Op::Now(form) => {
                let mut text = String::with_capacity(TIME_BYTES);
                let now = || self.now();
                let present = Present { now: &now, zone: &self.context.zone };
                let written = frame.program.forms[*form as usize].write(&self.now(), &present, &mut text);
                written.expect("the present knows all of its parts");
                self.push_text(&text)?;
            }
            Op::Keep(variable) => {
                let range = self.range(0);
                let kept = &mut self.variables[frame.variables + usize::from(*variable)];
                self.kept = self.kept - kept.len() + range.len();
                kept.clear();
                kept.extend_from_slice(&self.arena[range]);
                self.pop();
                self.check_kept()?;
            }
            Op::Extend { variable, parts } => self.extend(frame, *variable, *parts as usize)?,
            Op::JumpIfValue(to) => {
                if !self.peek(0).is_empty() {
                    return Ok(Flow::Goto(*to));
                }
                self.pop();
            }
            Op::Lookup { table, what, found } => {
                if self.lookup(*table, found.is_some())? {
                    return Ok(found.map_or(Flow::Next, Flow::Goto));
                }
                if found.is_none() {
                    let table = self.tables.name(*table).to_owned();
                    return Err(RunProblem::NoEntry { table, what: frame.text(*what) }.into());
                }
                self.pop();
            }
            Op::Date { from, to, what, read } => {
                let (from, to) = (&frame.program.forms[*from as usize], &frame.program.forms[*to as usize]);
                match self.date(from, to)? {
                    Ok(()) => return Ok(read.map_or(Flow::Next, Flow::Goto)),
                    Err(unfit) if read.is_none() => return Err(problem(unfit, frame.text(*what)).into()),
                    Err(_) => self.pop(),
                }
            }
            Op::Join(spot) => self.join(frame, *spot)?,
            op => self.function(frame, op)?,
        }
        Ok(Flow::Next)
    }

    fn function(&mut self, frame: Frame<'s>, op: &'s Op) -> Result<(), Stop> {
        let escape = self.delimiters.escape;
        let arguments = match op {
            Op::Concat(parts) => {
                self.concat(*parts as usize);
                return Ok(());
            }
            Op::Replace => 2,
            Op::Split(_) | Op::Pad { .. } => 1,
            _ => 0,
        };
        if self.peek(arguments) == NULL && !matches!(op, Op::Length) {
            (0..arguments).for_each(|_| self.pop());
            return Ok(());
        }
        if matches!(op, Op::Split(_) | Op::Replace) {
            self.check_wanted(arguments - 1)?;
        }
        match op {
            Op::Upper => self.rewrite(0, |value, _, to| content::change_case(value, escape, Case::Upper, to)),
            Op::Lower => self.rewrite(0, |value, _, to| content::change_case(value, escape, Case::Lower, to)),
            Op::Trim => self.narrow(content::trim(self.peek(0))),
            Op::Length => {
                let value = self.peek(0);
                let length = if value == NULL { 0 } else { content::length(value, escape) };
                self.pop();
                self.push(length.to_string().as_bytes());
            }
            Op::Substring { start, length } => {
                self.narrow(content::substring(self.peek(0), escape, *start, *length));
            }
            Op::Split(part) => {
                let range = content::split(self.peek(1), self.peek(0), escape, *part);
                self.pop();
                self.narrow(range);
            }
            Op::Replace => self.replace_text()?,
            Op::Pad { left, width } => {
                let width = *width as usize;
                self.rewrite(1, |value, arguments, to| {
                    let missing = width.saturating_sub(content::length(value, escape));
                    let padding = arguments[0].repeat(missing);
                    let (first, second) = if *left { (&padding[..], value) } else { (value, &padding[..]) };
                    to.extend_from_slice(first);
                    to.extend_from_slice(second);
                });
            }
            Op::Add { unit, amount, what } => {
                if self.peek(0).is_empty() {
                    return Ok(());
                }
                let now = || self.now();
                let present = Present { now: &now, zone: &self.context.zone };
                let mut text = String::new();
                Form::HL7
                    .read(&self.text(self.peek(0)), &present)
                    .and_then(|moment| moment.add(*unit, *amount))
                    .and_then(|moment| Form::HL7.write(&moment, &present, &mut text))
                    .map_err(|unfit| problem(unfit, frame.text(*what)))?;
                self.pop();
                self.push_text(&text)?;
            }
            op => unreachable!("{op:?} is run elsewhere"),
        }
        Ok(())
    }

    /// Refuses a text to find that is too long; `depth` is its place on the stack.
    fn check_wanted(&self, depth: usize) -> Result<(), Stop> {
        if self.peek(depth).len() > content::WANTED_BYTES_MAX {
            let limit = content::WANTED_BYTES_MAX as u32;
            return Err(RunProblem::TooMuch { limit, what: "bytes in a text to find" }.into());
        }
        Ok(())
    }

    /// Replaces a value, a text to find and one to put there by what that makes.
    fn replace_text(&mut self) -> Result<(), Stop> {
        let escape = self.delimiters.escape;
        let made = content::replaced_bytes(self.peek(2), self.peek(1), self.peek(0), escape);
        if made > MAX_VALUE_BYTES {
            return Err(too_long());
        }
        self.rewrite(2, |value, arguments, to| content::replace(value, arguments[0], arguments[1], escape, to));
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<(), Stop> {
        let content = self.content_of(text)?;
        self.push(&content);
        Ok(())
    }

    /// Adds the topmost `parts` to a variable, as [`concat`](Self::concat) would.
    fn extend(&mut self, frame: Frame<'s>, variable: u16, parts: usize) -> Result<(), Stop> {
        let mut text = std::mem::take(&mut self.variables[frame.variables + usize::from(variable)]);
        let before = text.len();
        if text == NULL {
            text.clear();
        }
        for depth in (0..parts).rev() {
            let part = self.peek(depth);
            text.extend_from_slice(if part == NULL { b"" } else { part });
        }
        (0..parts).for_each(|_| self.pop());
        let length = text.len();
        self.variables[frame.variables + usize::from(variable)] = text;
        self.kept = self.kept - before + length;
        if length <= MAX_VALUE_BYTES { self.check_kept() } else { Err(too_long()) }
    }

    /// Refuses more in all variables together than they may hold.
    fn check_kept(&self) -> Result<(), Stop> {
        if self.kept > MAX_KEPT_BYTES {
            return Err(RunProblem::TooMuch { limit: MAX_KEPT_BYTES as u32, what: "bytes in variables" }.into());
        }
        Ok(())
    }

    /// Makes one value of the topmost `parts`. A null among them counts as empty: joined to text it would be two
    /// quotes.
    pub(super) fn concat(&mut self, parts: usize) {
        let has_null = (0..parts).any(|depth| self.peek(depth) == NULL);
        if has_null {
            let mut kept = std::mem::take(&mut self.scratch);
            kept.clear();
            for depth in (0..parts).rev() {
                let part = self.peek(depth);
                kept.extend_from_slice(if part == NULL { b"" } else { part });
            }
            (0..parts).for_each(|_| self.pop());
            self.push(&kept);
            self.scratch = kept;
        } else {
            self.starts.truncate(self.starts.len() + 1 - parts);
        }
    }

    /// Replaces a value and its `arguments` above it by what `make` writes.
    fn rewrite(&mut self, arguments: usize, make: impl FnOnce(&[u8], [&[u8]; 2], &mut Vec<u8>)) {
        let mut made = std::mem::take(&mut self.scratch);
        made.clear();
        let argument = |number: usize| if number < arguments { self.peek(arguments - 1 - number) } else { b"" };
        make(self.peek(arguments), [argument(0), argument(1)], &mut made);
        (0..=arguments).for_each(|_| self.pop());
        self.push(&made);
        self.scratch = made;
    }

    /// Replaces the key on the stack by its entry; false if there is none. Without a default (`or_else`), an empty key
    /// gives an empty value and null gives null.
    fn lookup(&mut self, table: u32, or_else: bool) -> Result<bool, Stop> {
        let key = self.text(self.peek(0));
        let Some(found) = self.tables.table(table).get(&key) else {
            return Ok(!or_else && matches!(self.peek(0), b"" | NULL));
        };
        let content = self.content_of(found)?;
        self.pop();
        self.push(&content);
        Ok(true)
    }

    /// Replaces the time on the stack by its other form, if it is a time. Empty and null stay unchanged.
    fn date(&mut self, from: &Form, to: &Form) -> Result<Result<(), Unfit>, Stop> {
        if matches!(self.peek(0), b"" | NULL) {
            return Ok(Ok(()));
        }
        let now = || self.now();
        let present = Present { now: &now, zone: &self.context.zone };
        let mut text = String::with_capacity(TIME_BYTES);
        let read = from.read(&self.text(self.peek(0)), &present);
        if let Err(unfit) = read.and_then(|moment| to.write(&moment, &present, &mut text)) {
            return Ok(Err(unfit));
        }
        let content = self.content_of(&text)?;
        self.pop();
        self.push(&content);
        Ok(Ok(()))
    }

    /// The number of segments, or of places with content.
    fn count(&self, frame: Frame<'s>, spot: SpotId) -> Result<usize, Stop> {
        if let Spot::Path(Path { segment, place: None }) = &frame.program.spots[spot as usize] {
            return Ok(self.subject.count(segment));
        }
        let mut count = 0;
        self.each_value(frame, spot, &mut |value| {
            count += usize::from(!value.bytes().is_empty());
            true
        })?;
        Ok(count)
    }

    /// Replaces the separator on the stack by all values of a spot that have content, joined by it.
    fn join(&mut self, frame: Frame<'s>, spot: SpotId) -> Result<(), Stop> {
        let mut joined = std::mem::take(&mut self.scratch);
        joined.clear();
        // The separator may be a value of the message, as long as that, and stand between as many values.
        self.each_value(frame, spot, &mut |value| {
            if !matches!(value, Value::Absent | Value::Empty | Value::Null) {
                if !joined.is_empty() {
                    joined.extend_from_slice(self.peek(0));
                }
                joined.extend_from_slice(value.bytes());
            }
            joined.len() <= MAX_VALUE_BYTES
        })?;
        if joined.len() > MAX_VALUE_BYTES {
            return Err(too_long());
        }
        self.pop();
        self.push(&joined);
        self.scratch = joined;
        Ok(())
    }

    /// Calls `see` with every value of a spot until it returns false; without any value, if the spot selects nothing.
    pub(super) fn each_value(
        &self,
        frame: Frame<'_>,
        spot: SpotId,
        see: &mut dyn FnMut(Value<'_>) -> bool,
    ) -> Result<(), Stop> {
        match &frame.program.spots[spot as usize] {
            Spot::Path(Path { segment, place: Some(place) }) => {
                for at in self.subject.select(segment) {
                    if !self.subject.segment(at).all(place).all(&mut *see) {
                        return Ok(());
                    }
                }
            }
            Spot::Place(cursor, place) => {
                let at = standing(&self.subject, &self.cursors, frame, *cursor, spot)?.0;
                if matches!(place.repetition, None | Some(Which::Nth(_))) {
                    see(self.subject.get_at(at, place));
                } else {
                    self.subject.segment(at).all(place).all(see);
                }
            }
            _ => {
                see(value(&self.subject, &self.cursors, frame, spot)?);
            }
        }
        Ok(())
    }
}

fn problem(unfit: Unfit, what: String) -> RunProblem {
    match unfit {
        Unfit::NotATime => RunProblem::NotATime { what },
        Unfit::Imprecise => RunProblem::Imprecise { what },
    }
}
