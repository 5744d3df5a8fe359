//! Makes the output of one send of a message: the message as received, as its transform changed it, or converted to the
//! charset of its operation.
//!
//! ```text
//!   no charset of the operation    message --transform--> runs of the bytes as received and new ones, in the same charset
//!   a charset                      text (UTF-8) --transform--> MSH-18 set --encode--> new bytes
//! ```
//!
//! A message in UTF-16 is converted to UTF-8 if the operation has no charset: no frame can carry UTF-16.

use std::ops::Range;

use bytes::Bytes;
use hl7::charset::Charset;
use hl7::{Draft, Message, Piece, Run, escape};

use super::Inbound;
use crate::lang::{Context, Outcome, Send};
use crate::plan::{Bodies, Plan};
use crate::production::Operation;
use crate::record::Writer;

/// A body shares the memory of its record if that is at most so many times as large. The published workload makes four
/// outputs of a message, so that it is five times.
const SHARED_TIMES: usize = 8;

/// The sources of the outputs of one message.
pub(super) struct OutputSource<'m> {
    pub(super) inbound: &'m Inbound<'m>,
    /// The reading of the message.
    pub(super) message: &'m Message<'m>,
    /// The message as text, where an operation converts it.
    pub(super) converted: Option<&'m Message<'m>>,
    pub(super) plan: &'m Plan,
    pub(super) context: &'m Context<'m>,
    pub(super) bodies: Bodies,
}

/// Where the body of an output is.
pub(super) enum OutputBody {
    /// In the record of the message.
    InRecord(Range<usize>),
    /// The record has only the parts of it that are not in the message as received.
    Apart(Bytes),
}

/// Whether an operation gets the message in another charset than it came in, or may.
pub(super) fn converts(inbound: &Inbound<'_>, operation: &Operation) -> bool {
    operation.settings.charset().0.is_some() || inbound.reading.is_wide()
}

impl OutputSource<'_> {
    /// Makes the output of a send, writes it to the record and returns where its body is; none if the transform skips it.
    /// An error has the reason why there can be none, without patient data.
    pub(super) fn make(&self, send: &Send, writer: &mut Writer) -> Result<Option<OutputBody>, String> {
        let operation = &*self.plan.production.operations[send.operation];
        let transforms = &self.plan.production.transforms;
        let converted = self.converted.filter(|_| converts(self.inbound, operation));
        let mut draft = Draft::new(converted.unwrap_or(self.message));
        let mut name = "";
        if let Some(transform) = send.transform {
            name = transforms.name(transform);
            match transforms.run(transform, &mut draft, self.context) {
                Ok(Outcome::Send) => {}
                Ok(Outcome::Skip) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
        let names = (&*operation.name, name);
        let body = match converted {
            Some(_) => self.encoded(&mut draft, operation, names, writer)?,
            None if send.transform.is_none() => self.unchanged(names, writer),
            None if self.inbound.reading.is_transcript() => self.written_back(&draft, names, writer)?,
            None => self.edited(&draft, names, writer),
        };
        Ok(Some(body))
    }

    /// The bytes as received.
    fn unchanged(&self, (operation, transform): (&str, &str), writer: &mut Writer) -> OutputBody {
        let raw = self.inbound.raw;
        match self.bodies {
            Bodies::Delta => {
                writer.pieces(operation, transform, raw.len(), [Piece::Original(0..raw.len())].into_iter());
                // Not the bytes as received: they may be a part of a large frame, which they would keep in memory.
                OutputBody::InRecord(writer.raw())
            }
            Bodies::Full => OutputBody::InRecord(writer.whole(operation, transform, |out| out.extend_from_slice(raw))),
        }
    }

    /// Edits of the bytes as received.
    fn edited(&self, draft: &Draft<'_>, names: (&str, &str), writer: &mut Writer) -> OutputBody {
        self.store(names, &|| draft.pieces(), |out| draft.write_to(out), writer)
    }

    /// Edits of the transcript, in the charset of the bytes as received.
    fn written_back(&self, draft: &Draft<'_>, names: (&str, &str), writer: &mut Writer) -> Result<OutputBody, String> {
        let runs = self.inbound.reading.runs(draft).map_err(|error| {
            let name = error.charset;
            format!(
                "a text does not fit the message's character set, {name}; use plain letters, or convert the message"
            )
        })?;
        let write = |out: &mut Vec<u8>| {
            for run in &runs {
                out.extend_from_slice(match run {
                    Run::Original(range) => &self.inbound.raw[range.clone()],
                    Run::New(bytes) => bytes,
                });
            }
        };
        Ok(self.store(names, &|| runs.iter().map(Run::piece), write, writer))
    }

    /// In the charset of the operation, which MSH-18 then declares; `draft` is over text.
    fn encoded(
        &self,
        draft: &mut Draft<'_>,
        operation: &Operation,
        names: (&str, &str),
        writer: &mut Writer,
    ) -> Result<OutputBody, String> {
        let failed = |error: &str| format!("it cannot be converted for operation {}: {error}", operation.name);
        let (target, replacement) = operation.settings.charset();
        let target = target.unwrap_or(Charset::UTF_8);
        target.declare(draft).map_err(|error| failed(&error.to_string()))?;
        let text = draft.message().raw();
        // Text that came as UTF-8 and stays UTF-8: the bytes are those received, and runs of them can be stored.
        if target == Charset::UTF_8 && *text == **self.inbound.raw {
            return Ok(self.edited(draft, names, writer));
        }
        let mut body = Vec::with_capacity(text.len() + 256);
        draft.write_to(&mut body);
        let delimiters = draft.delimiters();
        if escape::has_high_bytes(&body, delimiters) {
            return Err(failed("an escape \\X..\\ in it holds bytes of its own character set"));
        }
        if replacement.is_some_and(|text| text.bytes().any(|byte| delimiters.contains(byte))) {
            return Err(failed("`replacement` holds one of its delimiters"));
        }
        let body = String::from_utf8_lossy(&body);
        let encoded = match replacement {
            Some(replacement) => target.encode_or(&body, replacement),
            None => target.encode(&body).map_err(|error| {
                let name = error.charset;
                failed(&format!("it has characters that {name} does not have; set `replacement`, or another `charset`"))
            })?,
        };
        let (operation, transform) = names;
        Ok(OutputBody::InRecord(writer.whole(operation, transform, |out| out.extend_from_slice(&encoded))))
    }

    /// Writes an output to the record: as pieces where it is to be and there are not too many, else whole.
    fn store<'p, I: Iterator<Item = Piece<'p>>>(
        &self,
        (operation, transform): (&str, &str),
        pieces: &dyn Fn() -> I,
        write: impl FnOnce(&mut Vec<u8>),
        writer: &mut Writer,
    ) -> OutputBody {
        let few = || pieces().take(usize::from(u16::MAX)).count() < usize::from(u16::MAX);
        if self.bodies == Bodies::Full || !few() {
            return OutputBody::InRecord(writer.whole(operation, transform, write));
        }
        let mut body = Vec::with_capacity(self.inbound.raw.len() + 256);
        write(&mut body);
        writer.pieces(operation, transform, body.len(), pieces());
        OutputBody::Apart(body.into())
    }
}

impl OutputBody {
    /// The body, once the record is complete. A small body of a large record is copied: else it would keep the whole of it
    /// in memory while it waits.
    pub(super) fn of(self, record: &Bytes) -> Bytes {
        match self {
            OutputBody::Apart(body) => body,
            OutputBody::InRecord(range) if range.len() * SHARED_TIMES < record.len() => {
                Bytes::copy_from_slice(&record[range])
            }
            OutputBody::InRecord(range) => record.slice(range),
        }
    }
}
