//! What can go wrong with a message, a path or an edit.
//!
//! There are several enums, because they are for different readers: [`ParseError`] and [`ReadingError`] for the sender
//! of a message, [`PathError`] for the author of a path, [`EditError`] for the author of a transform. Each text
//! contains what to do.

use thiserror::Error;

use crate::SegmentName;

/// Why bytes are not an HL7 message. Only the header is ever refused: past MSH-2, every byte is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The first bytes, after a byte order mark and blanks, are not `MSH` and a field separator.
    #[error("the message does not start with MSH and a field separator; check the sender's framing")]
    NoHeader,
    /// MSH-2 holds no character or more than five, or the message ends inside it.
    #[error("MSH-2 must hold 1 to 5 encoding characters, found {found}; declare them as in MSH|^~\\&|")]
    EncodingCharacters {
        /// How many bytes there are between MSH-1 and the next field separator.
        found: usize,
    },
    /// A delimiter is a letter, a digit, a blank or no ASCII character.
    #[error("delimiter 0x{byte:02x} in MSH-1 or MSH-2 is no ASCII punctuation; use characters such as |^~\\&")]
    NotPunctuation {
        /// The byte found.
        byte: u8,
    },
    /// The same character is declared for two levels, so their values could not be distinguished.
    #[error("delimiter '{}' is declared twice in MSH-1 and MSH-2; use a different character for each", char::from(*byte))]
    Repeated {
        /// The byte found twice.
        byte: u8,
    },
    /// Offsets are kept in 32 bits.
    #[error("the message has {bytes} bytes; split it, the largest is 4294967295")]
    TooLarge {
        /// Length of the input.
        bytes: usize,
    },
}

/// Why a message cannot be split: its characters may hide delimiters, and its charset is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReadingError {
    /// The bytes are not valid in the charset that MSH-18 or the receiver's settings declare.
    #[error(
        "the message is not in {charset}, its character set by MSH-18 or by the settings; send it as it says, or change `charset`"
    )]
    NotInCharset {
        /// The charset's name.
        charset: &'static str,
    },
    /// MSH-18 names a charset that is known and cannot be read.
    #[error("character set {name} cannot be read; send UNICODE UTF-8")]
    Unsupported {
        /// Its name.
        name: &'static str,
    },
    /// The charset is not declared, and the bytes look like one whose characters hide delimiters.
    #[error(
        "the message declares no character set and looks like {charset}; declare it in MSH-18, or set the `charset` of the service"
    )]
    Undeclared {
        /// What it looks like.
        charset: &'static str,
    },
    /// The message is to be converted to text, and its charset is not declared.
    #[error(
        "the message declares no character set and is not UTF-8; declare it in MSH-18, or set the `charset` of the service"
    )]
    Unknown,
}

/// Why a text is not a path, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("column {column}: {problem}")]
pub struct PathError {
    /// 1-based column (in bytes) of the first character that does not fit.
    pub column: usize,
    /// What does not fit.
    pub problem: PathProblem,
}

/// What does not fit in a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathProblem {
    /// No segment name where one is required.
    #[error("expected a segment name of three characters, A-Z then A-Z or 0-9, such as PID")]
    SegmentName,
    /// A leading slash: paths through groups.
    #[error("group paths need a schema and are not supported; start with the segment name, such as OBX[2]-5")]
    Group,
    /// No number where one is required.
    #[error("expected a number")]
    Number,
    /// Zero: everything is counted from 1.
    #[error("numbers count from 1; write 1 for the first")]
    Zero,
    /// A number above 65535.
    #[error("the number is too large; the largest is 65535")]
    TooLarge,
    /// Not a number, `*`, `last` or condition between brackets.
    #[error("expected a number, *, last or a condition such as 3.1='GLU' between the brackets")]
    Selector,
    /// A bracket left open.
    #[error("expected '{close}'")]
    Unclosed {
        /// The closing bracket that is missing.
        close: char,
    },
    /// A condition without its quoted value.
    #[error("expected = and a value in single quotes, such as 3.1='GLU'")]
    Condition,
    /// A quoted value that does not end.
    #[error("the quoted value does not end; close it with '")]
    Quote,
    /// A condition inside a condition.
    #[error("a condition cannot hold another condition; use a number, * or last")]
    Nested,
    /// A repetition after a component.
    #[error("the repetition stands right after the field; write PID-5[2].1")]
    RepetitionPlace,
    /// The path ends here but the text goes on.
    #[error("the path ends before this character; a place is written field[repetition].component.subcomponent")]
    Trailing,
}

/// Why an edit was refused. The draft is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EditError {
    /// The path names a segment the message does not have.
    #[error("the message has no such {name} segment; insert it first")]
    NoSegment {
        /// The segment's name.
        name: SegmentName,
    },
    /// The segment was deleted before.
    #[error("the segment was deleted before")]
    Deleted,
    /// One value in many repetitions would make a segment of more than 256 MiB.
    #[error("this would make a segment of more than 256 MiB; write a shorter value")]
    TooLong,
    /// All edits of a draft together would write more than 256 MiB.
    #[error(
        "the edits of one message together would write more than 256 MiB; write shorter values, or to fewer places"
    )]
    TooMuch,
    /// The edit would remove MSH, add a second one, or change MSH-1 or MSH-2.
    #[error("MSH and its delimiters (fields 1 and 2) cannot be changed; convert the message instead")]
    Header,
    /// The value holds a delimiter that would end the place it is put into.
    #[error("the value holds delimiter '{}', which would split the place it is put into; escape it", char::from(*byte))]
    Delimiter {
        /// The delimiter.
        byte: u8,
    },
    /// The value holds a carriage return or a line feed that would end the segment.
    #[error("the value holds a line end, which would end the segment; escape it as \\.br\\")]
    LineEnd,
    /// The place needs a delimiter that MSH-2 does not declare.
    #[error("MSH-2 declares no {level} delimiter, so this place cannot be made; write to the level above")]
    Undeclared {
        /// Which delimiter: repetition, component or subcomponent.
        level: &'static str,
    },
    /// An index of zero, or one above 65535, in a place made by hand.
    #[error("places count from 1 to 65535")]
    Index,
    /// `append` on a path that names no field, or names more than a field.
    #[error("append makes a repetition of a whole field; write the path as PID-3")]
    NotAField,
    /// A whole segment that does not begin with a name and the field separator.
    #[error("a segment is a name of three characters and fields after the field separator, such as ZPD|1")]
    NotASegment,
}
