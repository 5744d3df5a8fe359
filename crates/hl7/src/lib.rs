//! HL7 v2 as a pure library: bytes in, bytes out, no I/O, no clock, no schema.
//!
//! ```text
//!  bytes --> mllp / batch --> Reading --> Message (segment table) --> Path --> Value
//!                                            |                                   |
//!                                            +--> Draft (edits) --> pieces       +--> escape, charset --> text
//!                                            +--> ack
//!                                            +--> mask
//! ```
//!
//! Four rules hold everywhere:
//!
//! 1. **The bytes are the message.** A [`Message`] borrows them and never changes them; unedited parts are written back
//!    byte for byte, even if they are not valid HL7.
//! 2. **Only requested parts are read.** Parsing finds line ends; a field is found when a path selects it.
//! 3. **Three kinds of nothing.** Absent, empty and `""` are different [`Value`]s at every level.
//! 4. **Text is made last.** Routing and copying work on raw bytes; unescaping and decoding are for display.
//!
//! ```
//! use hl7::{Draft, Message, Path, Value};
//!
//! let raw = b"MSH|^~\\&|LAB|NORTH|||20260101||ORU^R01|42|P|2.5.1\rPID|1||123^^^NORTH^MR||DOE^JANE\r";
//! let message = Message::parse(raw)?;
//! let name: Path = "PID-5.1".parse()?;
//! assert_eq!(message.get(&name), Value::Present(b"DOE"));
//!
//! let mut draft = Draft::new(&message);
//! draft.set(&name, b"ROE")?;
//! let mut out = Vec::new();
//! draft.write_to(&mut out);
//! assert!(out.ends_with(b"PID|1||123^^^NORTH^MR||ROE^JANE\r"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It does not know message structures (which segment may follow which), data types or code tables.
//!
//! A level's separators are found by looking at bytes. That is right for every charset whose bytes below 0x80 always
//! mean ASCII (ASCII, UTF-8, ISO 8859, EUC); it would split a character in two in Shift_JIS, ISO-2022-JP, Big5 and GB
//! 18030, where the second byte of a character may look like `|` or `\`. A [`Reading`] determines the charset of a
//! message, and splits a message of the second kind in a transcript: the same text in UTF-8, from which edits are
//! written back.

#![forbid(unsafe_code)]

pub mod ack;
pub mod batch;
pub mod charset;
mod declared_charset;
mod delimiters;
mod draft;
mod error;
pub mod escape;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod index;
pub mod mask;
mod message;
pub mod mllp;
mod name;
mod path;
mod reading;
mod segment;
mod table;
mod value;

pub use delimiters::Delimiters;
pub use draft::{Draft, Piece, SegmentId};
pub use error::{EditError, ParseError, PathError, PathProblem, ReadingError};
pub use index::FieldIndex;
pub use message::Message;
pub use name::SegmentName;
pub use path::{Condition, Path, Place, SegmentSelector, Which};
pub use reading::{Reading, Run};
pub use segment::Segment;
pub use value::Value;
