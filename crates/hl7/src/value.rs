//! What a place holds: three kinds of nothing, or bytes.
//!
//! HL7 distinguishes three cases that most formats treat as one: a field never sent (the receiver keeps its value), one
//! sent empty (the same, but the place exists), and `""` (the receiver deletes its value). They are distinct at every
//! level.

/// The raw content of a field, repetition, component or subcomponent: not unescaped, not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// The segment or level ends before this place.
    Absent,
    /// The place is there, with nothing in it.
    Empty,
    /// The place holds `""`: delete what you have.
    Null,
    /// Anything else; never empty.
    Present(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Classifies the bytes of a place that is there.
    #[must_use]
    pub fn of(raw: &'a [u8]) -> Value<'a> {
        match raw {
            b"" => Value::Empty,
            b"\"\"" => Value::Null,
            _ => Value::Present(raw),
        }
    }

    /// The bytes as in the message: nothing for `Absent` and `Empty`, `""` for `Null`.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Absent | Value::Empty => b"",
            Value::Null => b"\"\"",
            Value::Present(raw) => raw,
        }
    }

    /// Whether there is content other than `""`.
    #[must_use]
    pub fn is_present(self) -> bool {
        matches!(self, Value::Present(_))
    }

    /// Whether there is content other than `""` and blanks: in a header, a field of blanks counts as having no value.
    #[must_use]
    pub fn is_valued(self) -> bool {
        matches!(self, Value::Present(raw) if !raw.trim_ascii().is_empty())
    }
}

impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(found: Option<&'a [u8]>) -> Value<'a> {
        found.map_or(Value::Absent, Value::of)
    }
}
