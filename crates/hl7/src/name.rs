//! Segment names: `PID`, `OBX`, `ZPD`.
//!
//! Three bytes, compared as one number. The letters' case counts, as in the standard.

use std::fmt;

/// The name of a segment: a letter A-Z, then two of A-Z or 0-9 (HL7 2.5.1, 2.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentName([u8; 3]);

impl SegmentName {
    /// Message header.
    pub const MSH: SegmentName = SegmentName(*b"MSH");
    /// The result of [`Segment::name`](crate::Segment::name) for a line that has no name; no text parses to it.
    pub const UNREADABLE: SegmentName = SegmentName(*b"???");

    /// A name known when the program is written: `SegmentName::new(*b"PID")`.
    ///
    /// # Panics
    /// If the bytes are no segment name; use [`str::parse`] for names from outside.
    #[must_use]
    pub const fn new(bytes: [u8; 3]) -> SegmentName {
        assert!(SegmentName::is_name(&bytes), "a segment name is A-Z, then A-Z or 0-9 twice");
        SegmentName(bytes)
    }

    /// The name these bytes are, if they are one.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8]) -> Option<SegmentName> {
        match bytes {
            [a, b, c] if SegmentName::is_name(&[*a, *b, *c]) => Some(SegmentName([*a, *b, *c])),
            _ => None,
        }
    }

    /// The three bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 3] {
        &self.0
    }

    /// Whether the segment declares delimiters, so that its field 1 is the field separator itself.
    #[must_use]
    pub const fn is_header(self) -> bool {
        matches!(&self.0, b"MSH" | b"FHS" | b"BHS")
    }

    /// The first three bytes of a segment, of any kind; for the segment table.
    pub(crate) const fn unchecked(bytes: [u8; 3]) -> SegmentName {
        SegmentName(bytes)
    }

    const fn is_name(bytes: &[u8; 3]) -> bool {
        let [a, b, c] = *bytes;
        a.is_ascii_uppercase()
            && (b.is_ascii_uppercase() || b.is_ascii_digit())
            && (c.is_ascii_uppercase() || c.is_ascii_digit())
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
