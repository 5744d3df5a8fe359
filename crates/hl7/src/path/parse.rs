//! From text to a path, or to the segment name alone: a cursor over bytes, one function per part of the picture in the module above.
//!
//! A path ends where no further part of it can start, which lets [`Path::parse_prefix`] read paths inside a larger
//! language; a text that looks like a part but is not one (`PID-0`, `PID[x]`) is an error at its column.

use std::str::FromStr;

use super::{Condition, Path, Place, SegmentSelector, Which};
use crate::SegmentName;
use crate::error::{PathError, PathProblem};

impl Path {
    /// Reads the path a text starts with; returns it and its length in bytes. The path is the longest there is: in
    /// `PID-5.1 = 'x'` it is `PID-5.1`, in `PID-5.` it is `PID-5`.
    ///
    /// # Errors
    /// [`PathError`] with the column where the text stops being a path.
    pub fn parse_prefix(text: &str) -> Result<(Path, usize), PathError> {
        let mut cursor = Cursor { text: text.as_bytes(), at: 0 };
        let path = cursor.path()?;
        Ok((path, cursor.at))
    }
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Path, PathError> {
        let mut cursor = Cursor { text: text.as_bytes(), at: 0 };
        let path = cursor.path()?;
        let next = cursor.text.get(cursor.at + 1);
        match cursor.peek() {
            None => Ok(path),
            Some(b'-' | b'.' | b':') if next.is_none_or(|b| b.is_ascii_alphabetic() || *b == b'*') => {
                cursor.at += 1;
                Err(cursor.error(PathProblem::Number))
            }
            Some(b'[' | b'(') if path.place.as_ref().is_some_and(|place| place.component.is_some()) => {
                Err(cursor.error(PathProblem::RepetitionPlace))
            }
            Some(_) => Err(cursor.error(PathProblem::Trailing)),
        }
    }
}

impl FromStr for SegmentName {
    type Err = PathError;

    fn from_str(text: &str) -> Result<SegmentName, PathError> {
        SegmentName::from_bytes(text.as_bytes()).ok_or(PathError { column: 1, problem: PathProblem::SegmentName })
    }
}

/// The position of a condition; it decides which places the condition may name.
#[derive(Clone, Copy)]
enum Inside {
    /// `OBX[3.1='x']`: a place in the segment.
    Segment,
    /// `PID-3[5='x']`: a component of this field's repetition.
    Repetition { field: u16 },
    /// Already in a condition.
    Condition,
}

struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

impl Cursor<'_> {
    fn path(&mut self) -> Result<Path, PathError> {
        let name = self.name()?;
        let which = self.selector(Inside::Segment)?.unwrap_or(Which::Nth(1));
        let place = if self.part_follows(b"-.:") { Some(self.place(None)?) } else { None };
        Ok(Path { segment: SegmentSelector { name, which }, place })
    }

    fn name(&mut self) -> Result<SegmentName, PathError> {
        if self.peek() == Some(b'/') {
            return Err(self.error(PathProblem::Group));
        }
        let name = self.text.get(self.at..self.at + 3).and_then(SegmentName::from_bytes);
        let longer = self.text.get(self.at + 3).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        match name {
            Some(name) if !longer => {
                self.at += 3;
                Ok(name)
            }
            _ => Err(self.error(PathProblem::SegmentName)),
        }
    }

    /// `field[repetition].component.subcomponent`; `within` is set inside a condition.
    fn place(&mut self, within: Option<Inside>) -> Result<Place, PathError> {
        let field = self.index()?;
        let repetition = self.selector(within.unwrap_or(Inside::Repetition { field }))?;
        let mut place = Place { field, repetition, component: None, subcomponent: None };
        if self.part_follows(b".-") {
            place.component = Some(self.index()?);
            if self.part_follows(b".-") {
                place.subcomponent = Some(self.index()?);
            }
        }
        Ok(place)
    }

    /// Brackets, square or round, with their content; none if there are no brackets.
    fn selector(&mut self, inside: Inside) -> Result<Option<Which>, PathError> {
        let close = match self.peek() {
            Some(b'[') => b']',
            Some(b'(') => b')',
            _ => return Ok(None),
        };
        self.at += 1;
        self.blanks();
        let start = self.at;
        let which = if self.eat(b"*") {
            Which::All
        } else if self.eat(b"last") {
            Which::Last
        } else if self.peek().is_some_and(|b| b.is_ascii_digit()) {
            let number = self.index()?;
            self.blanks();
            if matches!(self.peek(), None | Some(b']' | b')')) {
                Which::Nth(u32::from(number))
            } else {
                self.at = start;
                Which::Where(Box::new(self.condition(inside)?))
            }
        } else {
            return Err(self.error(PathProblem::Selector));
        };
        self.blanks();
        if !self.eat(&[close]) {
            return Err(self.error(PathProblem::Unclosed { close: char::from(close) }));
        }
        Ok(Some(which))
    }

    fn condition(&mut self, inside: Inside) -> Result<Condition, PathError> {
        let place = match inside {
            Inside::Segment => self.place(Some(Inside::Condition))?,
            Inside::Repetition { field } => {
                let component = Some(self.index()?);
                let subcomponent = if self.part_follows(b".") { Some(self.index()?) } else { None };
                Place { field, repetition: None, component, subcomponent }
            }
            Inside::Condition => return Err(self.error(PathProblem::Nested)),
        };
        self.blanks();
        if !self.eat(b"=") {
            return Err(self.error(PathProblem::Condition));
        }
        self.blanks();
        Ok(Condition { place, equals: self.quoted()? })
    }

    /// A value in single or double quotes; the same quote twice stands for itself.
    fn quoted(&mut self) -> Result<Vec<u8>, PathError> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.error(PathProblem::Condition)),
        };
        let start = self.at;
        self.at += 1;
        let mut value = Vec::new();
        while let Some(byte) = self.peek() {
            self.at += 1;
            if byte != quote {
                value.push(byte);
            } else if self.peek() == Some(quote) {
                value.push(quote);
                self.at += 1;
            } else {
                return Ok(value);
            }
        }
        self.at = start;
        Err(self.error(PathProblem::Quote))
    }

    /// A number from 1 to 65535.
    fn index(&mut self) -> Result<u16, PathError> {
        let start = self.at;
        let mut number = 0u16;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let next = number.checked_mul(10).and_then(|n| n.checked_add(u16::from(digit - b'0')));
            let Some(next) = next else {
                self.at = start;
                return Err(self.error(PathProblem::TooLarge));
            };
            number = next;
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error(PathProblem::Number));
        }
        if number == 0 {
            self.at = start;
            return Err(self.error(PathProblem::Zero));
        }
        Ok(number)
    }

    /// Steps over one of `separators` when a digit follows it; otherwise the path ends before it.
    fn part_follows(&mut self, separators: &[u8]) -> bool {
        let follows = self.peek().is_some_and(|b| separators.contains(&b))
            && self.text.get(self.at + 1).is_some_and(u8::is_ascii_digit);
        self.at += usize::from(follows);
        follows
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn error(&self, problem: PathProblem) -> PathError {
        PathError { column: self.at + 1, problem }
    }
}
