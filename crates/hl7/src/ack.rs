//! Acknowledgements: which ones a message requests, building them, reading them.
//!
//! ```text
//! MSH|^~\&|LAB|NORTH|HIS|SOUTH|20261121||ORU^R01^ORU_R01|77|P|2.5.1||||||UNICODE UTF-8        the message
//!
//! MSH|^~\&|HIS|SOUTH|LAB|NORTH|20261122||ACK^R01^ACK|9001|P|2.5.1||||||UNICODE UTF-8          the answer: 3,4 <-> 5,6
//! MSA|AE|77|no patient id                                                                     its MSH-10, raw
//! ERR||PID^1^3|101^Required field missing^HL70357|E||||no patient id                          what, where
//! ```
//!
//! Rules (HL7 2.5.1 sections 2.9 and 2.15; each is a test):
//! - Original mode, MSH-15 and MSH-16 empty: one answer, AA, AE or AR. Enhanced mode: a commit answer (CA, CE, CR) as
//!   MSH-15 requests, and later an application answer (AA, AE, AR) as MSH-16 requests; that is a message of its own
//!   that requests no acknowledgement.
//! - An acknowledgement is never acknowledged.
//! - The answer is written in the delimiters, version and charset of the message. Echoed values are copied raw, except
//!   that LF, VT and FS, which would end a segment or the frame, become blanks.
//! - Versions differ: MSH-9 is plain `ACK` before 2.3.1; the error is ERR-1 up to 2.4 and ERR-2 to ERR-8 from 2.5;
//!   MSA-3 ends with 2.6. If the version cannot be read, the answer has version 2.5, which has both MSA-3 and ERR-3.
//!
//! Text is escaped and cut to the field's length. Characters the sender's charset cannot write (ASCII where MSH-18 is
//! empty), or writes with bytes that look like delimiters, become `?`.
//!
//! Not here: deciding on a code, waiting for answers, the sequence number protocol (MSA-4).

mod writer;

use crate::charset::Charset;
pub(crate) use writer::Writer;
use writer::unbroken;

use crate::{Delimiters, Message, Path, Place, Segment, SegmentName, Value, Which};

const MSA: SegmentName = SegmentName::new(*b"MSA");
const ERR: SegmentName = SegmentName::new(*b"ERR");

/// Length of MSA-3 (HL7 2.5.1 section 2.15.8).
const MSA_TEXT: usize = 80;
/// Length of ERR-8 (HL7 2.5.1 section 2.15.5).
const ERR_TEXT: usize = 250;

/// Acknowledgement code, MSA-1 (table 0008).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Application accept: processed.
    AA,
    /// Application error: the message is at fault.
    AE,
    /// Application reject: not processed, for reasons outside the message or in its header.
    AR,
    /// Commit accept: stored safely.
    CA,
    /// Commit error: not stored.
    CE,
    /// Commit reject: not stored, header values not acceptable.
    CR,
}

impl Code {
    /// Reads MSA-1.
    #[must_use]
    pub fn from_bytes(raw: &[u8]) -> Option<Code> {
        match raw.trim_ascii() {
            b"AA" => Some(Code::AA),
            b"AE" => Some(Code::AE),
            b"AR" => Some(Code::AR),
            b"CA" => Some(Code::CA),
            b"CE" => Some(Code::CE),
            b"CR" => Some(Code::CR),
            _ => None,
        }
    }

    /// AA or CA.
    #[must_use]
    pub fn is_accept(self) -> bool {
        matches!(self, Code::AA | Code::CA)
    }

    /// CA, CE or CR: about storing, not about processing.
    #[must_use]
    pub fn is_commit(self) -> bool {
        matches!(self, Code::CA | Code::CE | Code::CR)
    }

    /// The commit code with the same meaning.
    #[must_use]
    pub fn commit(self) -> Code {
        match self {
            Code::AA | Code::CA => Code::CA,
            Code::AE | Code::CE => Code::CE,
            Code::AR | Code::CR => Code::CR,
        }
    }
}

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        match self {
            Code::AA => "AA",
            Code::AE => "AE",
            Code::AR => "AR",
            Code::CA => "CA",
            Code::CE => "CE",
            Code::CR => "CR",
        }
    }
}

/// When an answer is wanted (table 0155).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// AL.
    Always,
    /// NE.
    Never,
    /// ER: only when the code is an error or a reject.
    ErrorOnly,
    /// SU: only when the code is an accept.
    SuccessOnly,
}

impl When {
    /// Whether an answer of this code is wanted.
    #[must_use]
    pub fn wants(self, code: Code) -> bool {
        match self {
            When::Always => true,
            When::Never => false,
            When::ErrorOnly => !code.is_accept(),
            When::SuccessOnly => code.is_accept(),
        }
    }

    /// A value that is none of the four codes requests an answer: a sender can drop an answer too many, but waits for a
    /// missing one.
    fn of(value: Value<'_>) -> When {
        match value.bytes().trim_ascii() {
            b"" | b"\"\"" | b"NE" => When::Never,
            b"ER" => When::ErrorOnly,
            b"SU" => When::SuccessOnly,
            _ => When::Always,
        }
    }
}

/// Which answers a message requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One application answer, always.
    Original,
    /// Two kinds of answers, each on its condition.
    Enhanced {
        /// The commit answer (MSH-15).
        accept: When,
        /// The application answer (MSH-16).
        application: When,
    },
}

/// The answers that MSH-15 and MSH-16 request. If only one of them has a value, the other requests nothing. Blanks are
/// no value: a sender of blanks waits for the one answer of original mode and would wait without end.
#[must_use]
pub fn mode(message: &Message<'_>) -> Mode {
    let header = message.header();
    let (accept, application) = (header.field(15), header.field(16));
    if !accept.is_valued() && !application.is_valued() {
        return Mode::Original;
    }
    Mode::Enhanced { accept: When::of(accept), application: When::of(application) }
}

/// Whether the message answers another one (its type is ACK, or it has an MSA), and so must not be acknowledged:
/// two systems that acknowledge acknowledgements never stop.
#[must_use]
pub fn is_acknowledgement(message: &Message<'_>) -> bool {
    message.header().get(&Place::component(9, 1)).bytes().trim_ascii() == b"ACK" || message.segment(MSA, 1).is_some()
}

/// A message error condition (table 0357).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCondition {
    /// The number, ERR-3.1.
    pub number: u16,
    /// The table's text, ERR-3.2.
    pub text: &'static str,
    /// The acknowledgement code of the table's class: 1xx are errors, 2xx are rejections.
    pub code: Code,
}

/// Table 0357 as of HL7 2.8; 104 came with 2.7, the others with 2.3.1.
pub const CONDITIONS: [ErrorCondition; 14] = [
    ErrorCondition { number: 0, text: "Message accepted", code: Code::AA },
    ErrorCondition { number: 100, text: "Segment sequence error", code: Code::AE },
    ErrorCondition { number: 101, text: "Required field missing", code: Code::AE },
    ErrorCondition { number: 102, text: "Data type error", code: Code::AE },
    ErrorCondition { number: 103, text: "Table value not found", code: Code::AE },
    ErrorCondition { number: 104, text: "Value too long", code: Code::AE },
    ErrorCondition { number: 200, text: "Unsupported message type", code: Code::AR },
    ErrorCondition { number: 201, text: "Unsupported event code", code: Code::AR },
    ErrorCondition { number: 202, text: "Unsupported processing id", code: Code::AR },
    ErrorCondition { number: 203, text: "Unsupported version id", code: Code::AR },
    ErrorCondition { number: 204, text: "Unknown key identifier", code: Code::AR },
    ErrorCondition { number: 205, text: "Duplicate key identifier", code: Code::AR },
    ErrorCondition { number: 206, text: "Application record locked", code: Code::AR },
    ErrorCondition { number: 207, text: "Application internal error", code: Code::AR },
];

/// The condition of a number of table 0357.
#[must_use]
pub fn condition(number: u16) -> Option<&'static ErrorCondition> {
    CONDITIONS.iter().find(|condition| condition.number == number)
}

/// What is wrong with a message, for ERR.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Number of table 0357.
    pub code: u16,
    /// The place at fault, in the message answered.
    pub location: Option<&'a Path>,
    /// Text for a person; cut to 250 bytes.
    pub text: &'a str,
}

/// An answer to build.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// MSA-1.
    pub code: Code,
    /// MSH-10 of the answer: new for each.
    pub control_id: &'a str,
    /// MSH-7: now, as an HL7 time stamp.
    pub timestamp: &'a str,
    /// MSA-3, cut to 80 bytes; from version 2.7 on it goes to ERR-8 if there is no problem to go there.
    pub text: Option<&'a str>,
    /// ERR.
    pub problem: Option<Problem<'a>>,
}

/// The answer to `message`: unframed, each segment ends in CR.
#[must_use]
pub fn build(message: &Message<'_>, reply: &Reply<'_>) -> Vec<u8> {
    let version = Version::of(message);
    let texts = [Some(reply.timestamp), Some(reply.control_id), reply.text, reply.problem.map(|problem| problem.text)];
    // The charset's name is looked up only where it matters: most answers are ASCII.
    let charset = if texts.iter().flatten().all(|text| text.is_ascii()) { None } else { message.charset() };
    let charset = charset.unwrap_or(Charset::ASCII);
    let mut out = Writer::new(message.delimiters(), charset);
    let header = message.header();
    out.header(SegmentName::MSH);
    for swapped in [5, 6, 3, 4] {
        out.echo(header.field(swapped));
    }
    out.text(reply.timestamp, usize::MAX);
    out.field(b"");
    out.message_type(header, version);
    out.text(reply.control_id, usize::MAX);
    out.echo(header.field(11));
    out.echo(header.field(12));
    let asks_for_none: &[u8] = match mode(message) {
        Mode::Enhanced { .. } if !reply.code.is_commit() => b"NE",
        _ => b"",
    };
    for field in [b"", b"", asks_for_none, asks_for_none, b""] {
        out.field(field);
    }
    out.echo(header.field(18));
    out.end();
    out.answer(header.field(10), version, reply);
    let location = reply.problem.and_then(|problem| problem.location);
    out.errors(version, location.map(|path| Location::of(path, Some(message))), reply);
    out.finish()
}

/// The answer to bytes that contain no readable MSH: it has no receiver and no control id, and version 2.5. It reports
/// to a waiting sender that the bytes were no message.
#[must_use]
pub fn build_without_header(reply: &Reply<'_>) -> Vec<u8> {
    let version = Version::ASSUMED;
    let mut out = Writer::new(Delimiters::default(), Charset::ASCII);
    out.header(SegmentName::MSH);
    for _ in 3..=6 {
        out.field(b"");
    }
    out.text(reply.timestamp, usize::MAX);
    out.field(b"");
    out.field(b"ACK");
    out.text(reply.control_id, usize::MAX);
    out.field(b"P");
    out.field(b"2.5");
    out.end();
    out.answer(Value::Absent, version, reply);
    let location = reply.problem.and_then(|problem| problem.location);
    out.errors(version, location.map(|path| Location::of(path, None)), reply);
    out.finish()
}

/// The answer a message carries: an ACK, or a response such as ADR^A19 that has an MSA among its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// MSA-1.
    pub code: Code,
    /// MSA-2, raw: the control id of the message it answers.
    pub control_id: &'a [u8],
    /// The first there is of MSA-3, ERR-8, ERR-7, ERR-3.2 and ERR-1.4, raw.
    pub text: Value<'a>,
}

/// Reads the answer in a response. `None`: there is no MSA, or MSA-1 is none of the six codes. Its MSH is not looked
/// at, since peers that forget to swap sender and receiver are common.
#[must_use]
pub fn read<'a>(message: &Message<'a>) -> Option<Received<'a>> {
    let answer = message.segment(MSA, 1)?;
    let error = message.segment(ERR, 1);
    let error = |place: Place| error.map_or(Value::Absent, |error| error.get(&place));
    let texts = [
        answer.field(3),
        error(Place::field(8)),
        error(Place::field(7)),
        error(Place::component(3, 2)),
        error(Place::component(1, 4)),
    ];
    Some(Received {
        code: Code::from_bytes(answer.field(1).bytes())?,
        control_id: answer.field(2).bytes(),
        text: texts.into_iter().find(|text| text.is_present()).unwrap_or(texts[0]),
    })
}

/// Whether the answer is for the message with this control id (raw MSH-10). Blanks at the end, which some peers pad
/// with or strip, do not count; an empty id matches nothing.
#[must_use]
pub fn matches(received: &Received<'_>, control_id: &[u8]) -> bool {
    let sent = control_id.trim_ascii_end();
    !sent.is_empty() && received.control_id.trim_ascii_end() == sent
}

/// HL7 version 2.minor.patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    minor: u8,
    patch: u8,
}

impl Version {
    const V2_3_1: Version = Version { minor: 3, patch: 1 };
    const V2_5: Version = Version { minor: 5, patch: 0 };
    const V2_7: Version = Version { minor: 7, patch: 0 };
    const ASSUMED: Version = Version::V2_5;

    fn of(message: &Message<'_>) -> Version {
        let raw = message.header().get(&Place::component(12, 1)).bytes();
        Version::parse(raw.trim_ascii()).unwrap_or(Version::ASSUMED)
    }

    /// `2.5` or `2.5.1`; later parts are local.
    fn parse(raw: &[u8]) -> Option<Version> {
        let mut parts = raw.split(|&byte| byte == b'.');
        let mut digit = || match parts.next() {
            Some(&[digit @ b'0'..=b'9']) => Some(digit - b'0'),
            _ => None,
        };
        match (digit(), digit(), digit()) {
            (Some(2), Some(minor), patch) => Some(Version { minor, patch: patch.unwrap_or(0) }),
            _ => None,
        }
    }
}

/// A place as ERR names it: segment, its number among those of its name, field, repetition, component, subcomponent.
/// Unknown parts are left out.
struct Location {
    segment: SegmentName,
    numbers: [Option<u32>; 5],
}

impl Location {
    fn of(path: &Path, message: Option<&Message<'_>>) -> Location {
        let selector = &path.segment;
        let sequence = match selector.which {
            Which::Nth(nth) => Some(nth),
            _ => message.and_then(|message| {
                let selected = message.select(selector).next()?.raw().as_ptr();
                let mut named = message.segments().filter(|segment| segment.name() == selector.name);
                named.position(|segment| segment.raw().as_ptr() == selected).map(|at| at as u32 + 1)
            }),
        };
        let place = path.place.as_ref();
        let component = place.and_then(|place| place.component).map(u32::from);
        let repetition = match place.and_then(|place| place.repetition.as_ref()) {
            Some(&Which::Nth(nth)) => Some(nth),
            Some(_) => None,
            None => component.map(|_| 1),
        };
        let field = place.map(|place| u32::from(place.field));
        let subcomponent = place.and_then(|place| place.subcomponent).map(u32::from);
        Location { segment: selector.name, numbers: [sequence, field, repetition, component, subcomponent] }
    }

    /// The first `count` parts, the segment's name among them.
    fn parts(&self, count: usize) -> Vec<Vec<u8>> {
        let numbers = self.numbers.iter().map(|number| number.map_or_else(String::new, |n| n.to_string()).into_bytes());
        std::iter::once(self.segment.bytes().to_vec()).chain(numbers).take(count).collect()
    }
}

impl Writer {
    /// MSH-9: the trigger event is that of the message, the structure came with 2.3.1.
    fn message_type(&mut self, header: Segment<'_>, version: Version) {
        let event = unbroken(header.get(&Place::component(9, 2)).bytes());
        if version < Version::V2_3_1 || event.is_empty() {
            self.field(b"ACK");
        } else {
            self.parts(self.delimiters().component, &[b"ACK", &event, b"ACK"]);
        }
    }

    /// MSA.
    fn answer(&mut self, control_id: Value<'_>, version: Version, reply: &Reply<'_>) {
        self.segment(MSA);
        self.field(reply.code.as_ref().as_bytes());
        self.echo(control_id);
        if version < Version::V2_7 {
            self.text(reply.text.unwrap_or_default(), MSA_TEXT);
        }
        self.end();
    }

    /// ERR, if the reply has information that MSA cannot contain.
    fn errors(&mut self, version: Version, location: Option<Location>, reply: &Reply<'_>) {
        let unsaid = reply.text.filter(|_| version >= Version::V2_7).map(|text| {
            let code = if reply.code.is_accept() { 0 } else { 207 };
            Problem { code, location: None, text }
        });
        let Some(problem) = reply.problem.or(unsaid) else { return };
        let number = problem.code.to_string();
        let text = condition(problem.code).map_or("", |condition| condition.text);
        let coded: [&[u8]; 3] = [number.as_bytes(), text.as_bytes(), b"HL70357"];
        self.segment(ERR);
        if version < Version::V2_5 {
            let coded = match self.delimiters().subcomponent {
                Some(subcomponent) => coded.join(&subcomponent),
                None => coded[0].to_vec(),
            };
            let place = location.map_or_else(|| vec![Vec::new(); 3], |location| location.parts(3));
            self.parts(self.delimiters().component, &[&place[0], &place[1], &place[2], &coded]);
        } else {
            self.field(b"");
            let place = location.map_or_else(Vec::new, |location| location.parts(6));
            self.parts(self.delimiters().component, &place.iter().map(Vec::as_slice).collect::<Vec<_>>());
            self.parts(self.delimiters().component, &coded);
            self.field(if problem.code == 0 { b"I" } else { b"E" });
            for _ in 5..=7 {
                self.field(b"");
            }
            self.text(problem.text, ERR_TEXT);
        }
        self.end();
    }
}
