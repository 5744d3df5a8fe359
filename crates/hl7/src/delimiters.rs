//! The characters that separate, as one message declares them.
//!
//! ```text
//! MSH|^~\&#|        MSH-1 = |   MSH-2 = ^~\&#
//!    |||||+-- 5 truncation   (only from 2.7, and only when declared)
//!    ||||+--- 4 subcomponent
//!    |||+---- 3 escape
//!    ||+----- 2 repetition
//!    |+------ 1 component
//!    +------- MSH-1 field
//! ```
//! MSH-2 is positional and ends at the next field separator: a shorter one declares fewer delimiters, and a level
//! without a delimiter has exactly one part. Invariant: every delimiter is ASCII punctuation and no two are equal.

use crate::error::ParseError;

/// The delimiters one message declares in MSH-1 and MSH-2 (or a batch in FHS or BHS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delimiters {
    /// MSH-1, `|` by custom.
    pub field: u8,
    /// First of MSH-2, `^` by custom.
    pub component: Option<u8>,
    /// Second of MSH-2, `~` by custom.
    pub repetition: Option<u8>,
    /// Third of MSH-2, `\` by custom.
    pub escape: Option<u8>,
    /// Fourth of MSH-2, `&` by custom.
    pub subcomponent: Option<u8>,
    /// Fifth of MSH-2, `#` by custom (HL7 2.7); an ordinary character in messages that do not declare it.
    pub truncation: Option<u8>,
}

impl Default for Delimiters {
    /// `|^~\&`, what the standard recommends; no truncation character.
    fn default() -> Delimiters {
        Delimiters {
            field: b'|',
            component: Some(b'^'),
            repetition: Some(b'~'),
            escape: Some(b'\\'),
            subcomponent: Some(b'&'),
            truncation: None,
        }
    }
}

impl Delimiters {
    /// Reads the delimiters of a header segment (`MSH`, `FHS` or `BHS`) without its line end; the bytes after field 2
    /// are not examined.
    ///
    /// # Errors
    /// [`ParseError`] when the segment is no header or declares delimiters that cannot be told apart.
    pub fn of_header(segment: &[u8]) -> Result<Delimiters, ParseError> {
        let (Some(b"MSH" | b"FHS" | b"BHS"), Some(&field)) = (segment.get(..3), segment.get(3)) else {
            return Err(ParseError::NoHeader);
        };
        if field.is_ascii_alphanumeric() || field <= b' ' {
            return Err(ParseError::NoHeader); // a word such as MSHELL, or a lone MSH
        }
        let rest = &segment[4..];
        let found = rest.iter().position(|&b| b == field).unwrap_or(rest.len());
        if !(1..=5).contains(&found) {
            return Err(ParseError::EncodingCharacters { found });
        }
        let declared = &segment[3..4 + found];
        for (at, &byte) in declared.iter().enumerate() {
            if !byte.is_ascii_punctuation() {
                return Err(ParseError::NotPunctuation { byte });
            }
            if declared[..at].contains(&byte) {
                return Err(ParseError::Repeated { byte });
            }
        }
        let nth = |n: usize| declared.get(n).copied();
        Ok(Delimiters {
            field,
            component: nth(1),
            repetition: nth(2),
            escape: nth(3),
            subcomponent: nth(4),
            truncation: nth(5),
        })
    }

    /// Field 2 of a header that declares these delimiters: `^~\&`. A declared character after an undeclared one
    /// cannot be written, since the field is positional, and is left out.
    pub fn encoding_characters(&self) -> impl Iterator<Item = u8> {
        [self.component, self.repetition, self.escape, self.subcomponent, self.truncation].into_iter().map_while(|b| b)
    }

    /// Whether this byte is one of the delimiters.
    #[must_use]
    pub fn contains(&self, byte: u8) -> bool {
        self.field == byte
            || [self.component, self.repetition, self.escape, self.subcomponent, self.truncation].contains(&Some(byte))
    }
}
