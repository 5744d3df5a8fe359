//! Paths: how people name a place in a message.
//!
//! ```text
//! OBX[3.1='GLU']-5[2].1.1         canonical form, as `Display` writes it
//! ---            - -  - -
//!  |      |      | |  | +- subcomponent   1..
//!  |      |      | |  +--- component      1..
//!  |      |      | +------ repetition     [n] [*] [last] [1='A'], none: see `Place::repetition`
//!  |      |      +-------- field          1..
//!  |      +--------------- which segment  [n] [*] [last] [condition], none: the first
//!  +---------------------- segment name
//! ```
//!
//! Everything counts from 1. Read too, and written back in the canonical form: `PID-5-1`, `PID.5.1`, `PID:5.1`,
//! `PID:5(1).1`, `PID-5(2)-1`, and `"GLU"` in double quotes. A quote inside a value is written twice.
//! HAPI's Terser counts repetitions from 0 and would read differently, so its leading `/` is refused, not guessed.
//!
//! Invariant: `path.to_string().parse() == Ok(path)` for every path that was parsed.

mod parse;

use std::fmt;

use crate::SegmentName;

/// A place in a message, or a whole segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// Which segment or segments.
    pub segment: SegmentSelector,
    /// What in the segment; none: the whole segment.
    pub place: Option<Place>,
}

/// Which segments of a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SegmentSelector {
    /// The name they have.
    pub name: SegmentName,
    /// Which of them; `Which::Nth(1)` if the path does not specify one.
    pub which: Which,
}

/// Which of several segments or repetitions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Which {
    /// The nth, 1-based.
    Nth(u32),
    /// The last there is.
    Last,
    /// Each.
    All,
    /// Each that meets the condition.
    Where(Box<Condition>),
}

/// A place whose raw bytes equal a value. An absent place equals the empty value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Where to look. In a repetition's condition (`PID-3[5='MR']`) only component and subcomponent are looked at and
    /// `field` repeats the field the repetition is in.
    pub place: Place,
    /// The raw bytes to find there, escaped as in the message.
    pub equals: Vec<u8>,
}

/// A place in a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The field, 1-based.
    pub field: u16,
    /// The repetition. None: without a component the whole field with all its repetitions, with one the first.
    pub repetition: Option<Which>,
    /// The component, 1-based; none: the whole repetition or field.
    pub component: Option<u16>,
    /// The subcomponent, 1-based; only with a component.
    pub subcomponent: Option<u16>,
}

impl Path {
    /// The first segment of a name, at a place.
    #[must_use]
    pub const fn new(name: SegmentName, place: Place) -> Path {
        Path { segment: SegmentSelector { name, which: Which::Nth(1) }, place: Some(place) }
    }
}

impl Place {
    /// A whole field.
    #[must_use]
    pub const fn field(field: u16) -> Place {
        Place { field, repetition: None, component: None, subcomponent: None }
    }

    /// A component of a field's first repetition.
    #[must_use]
    pub const fn component(field: u16, component: u16) -> Place {
        Place { field, repetition: None, component: Some(component), subcomponent: None }
    }

    /// Whether the place can be reached in a field that has one part at every level.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.repetition, None | Some(Which::Nth(1) | Which::All | Which::Last))
            && self.component.is_none_or(|n| n == 1)
            && self.subcomponent.is_none_or(|n| n == 1)
    }

    /// What follows the field number: repetition, component, subcomponent.
    fn write_below(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(which) = &self.repetition {
            match which {
                Which::Where(condition) => {
                    write!(f, "[{}", condition.place.component.unwrap_or(1))?;
                    if let Some(subcomponent) = condition.place.subcomponent {
                        write!(f, ".{subcomponent}")?;
                    }
                    write!(f, "={}]", Quoted(&condition.equals))?;
                }
                _ => write!(f, "[{which}]")?,
            }
        }
        if let Some(component) = self.component {
            write!(f, ".{component}")?;
            if let Some(subcomponent) = self.subcomponent {
                write!(f, ".{subcomponent}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.segment)?;
        self.place.as_ref().map_or(Ok(()), |place| write!(f, "-{place}"))
    }
}

impl fmt::Display for SegmentSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Which::Nth(1) => write!(f, "{}", self.name),
            which => write!(f, "{}[{which}]", self.name),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Nth(n) => write!(f, "{n}"),
            Which::Last => write!(f, "last"),
            Which::All => write!(f, "*"),
            Which::Where(condition) => write!(f, "{condition}"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.place, Quoted(&self.equals))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.field)?;
        self.write_below(f)
    }
}

/// A value in single quotes, quotes in it doubled.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", String::from_utf8_lossy(self.0).replace('\'', "''"))
    }
}
