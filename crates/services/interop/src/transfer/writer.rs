//! [`ExportWriter`]: messages as a file, in the format that was asked for.
//!
//! ```text
//!   terrace   everything, see `format`
//!   hl7       one message after the other; masked ones as batch, since their mask has to be stated
//!   batch     FHS, BHS, messages, BTS with their number, FTS
//! ```
//!
//! Files of HL7 hold what is a message and can be found again by its MSH; other bytes, which a service refused, are left out and counted.
//! Their segments end with CR. What else is known of a message is not in them.

use std::io::Write;

use super::format::TransferWriter;
use super::{MASKED, TransferHead, TransferMessage};

/// The format of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// With checksums and metadata: what an import reads best.
    #[default]
    Terrace,
    /// Messages one after the other.
    Hl7,
    /// The same between FHS, BHS and BTS, FTS.
    Batch,
}

impl ExportFormat {
    /// The format with a name.
    pub fn named(name: &str) -> Option<ExportFormat> {
        match name {
            "terrace" => Some(ExportFormat::Terrace),
            "hl7" => Some(ExportFormat::Hl7),
            "batch" => Some(ExportFormat::Batch),
            _ => None,
        }
    }

    /// How names of its files end.
    pub fn extension(self) -> &'static str {
        match self {
            ExportFormat::Terrace => "messages",
            ExportFormat::Hl7 | ExportFormat::Batch => "hl7",
        }
    }
}

/// Writes messages as a file.
#[derive(Debug)]
pub struct ExportWriter<W: Write> {
    to: Inner<W>,
    written: u64,
    left_out: u64,
    unreadable: u64,
}

#[derive(Debug)]
enum Inner<W: Write> {
    Terrace(Box<TransferWriter<W>>),
    Text { to: W, is_batch: bool },
}

impl<W: Write> ExportWriter<W> {
    /// Begins a file. `stamp`: the time as HL7 writes it, for headers.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(
        format: ExportFormat,
        mut to: W,
        head: &TransferHead,
        stamp: &str,
    ) -> std::io::Result<ExportWriter<W>> {
        let to = match format {
            ExportFormat::Terrace => Inner::Terrace(Box::new(TransferWriter::begin(to, head)?)),
            ExportFormat::Hl7 if !head.masked => Inner::Text { to, is_batch: false },
            ExportFormat::Hl7 | ExportFormat::Batch => {
                let source = &head.source;
                let comment = if head.masked { MASKED } else { "" };
                write!(to, "FHS|^~\\&|TERRACE|{source}|||{stamp}|||{comment}\rBHS|^~\\&|TERRACE|{source}|||{stamp}\r")?;
                Inner::Text { to, is_batch: true }
            }
        };
        Ok(ExportWriter { to, written: 0, left_out: 0, unreadable: 0 })
    }

    /// Adds a message; false where the format cannot have it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn message(&mut self, message: &TransferMessage, body: &[u8]) -> std::io::Result<bool> {
        let is_taken = match &mut self.to {
            Inner::Terrace(writer) => writer.message(message, body).map(|()| true),
            Inner::Text { to, .. } => text(to, body),
        }?;
        *(if is_taken { &mut self.written } else { &mut self.left_out }) += 1;
        Ok(is_taken)
    }

    /// So many messages could not be read, and may belong to the file. The end of the formats terrace and batch says so.
    pub fn unreadable(&mut self, messages: u64) {
        self.unreadable += messages;
        if let Inner::Terrace(writer) = &mut self.to {
            writer.unreadable(messages);
        }
    }

    /// Messages written, and left out.
    pub fn counts(&self) -> (u64, u64) {
        (self.written, self.left_out)
    }

    /// What is written to.
    pub fn inner(&mut self) -> &mut W {
        match &mut self.to {
            Inner::Terrace(writer) => writer.inner(),
            Inner::Text { to, .. } => to,
        }
    }

    /// Writes the end, and gives back what was written to.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(self) -> std::io::Result<W> {
        match self.to {
            Inner::Terrace(writer) => writer.end().map(|(to, _)| to),
            Inner::Text { mut to, is_batch } => {
                if is_batch {
                    let count = |n: u64, what: &str| (n > 0).then(|| format!("{n} {what}"));
                    let left_out = count(self.left_out, "left out: no single HL7 message");
                    let unreadable = count(self.unreadable, "could not be read and may belong to it");
                    let comment: Vec<String> = left_out.into_iter().chain(unreadable).collect();
                    let comment = if comment.is_empty() { String::new() } else { format!("|{}", comment.join(", ")) };
                    write!(to, "BTS|{}{comment}\rFTS|1\r", self.written)?;
                }
                Ok(to)
            }
        }
    }
}

/// Writes a message whose segments end with CR, if the bytes are one that is found again.
fn text(to: &mut impl Write, body: &[u8]) -> std::io::Result<bool> {
    let body = hl7::batch::with_segment_ends(body);
    let batch = hl7::batch::split(&body);
    let is_one = batch.parts.len() == 1 && batch.messages.len() == 1;
    if !is_one {
        return Ok(false);
    }
    to.write_all(&body)?;
    if !body.ends_with(b"\r") {
        to.write_all(b"\r")?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Status;
    use crate::transfer::ImportReader;

    fn message(id: u64) -> TransferMessage {
        TransferMessage {
            id,
            service: "in".into(),
            received_us: 0,
            kind: String::new(),
            control_id: String::new(),
            charset: None,
            status: Status::Routed,
            reason: String::new(),
            duplicate: false,
            generation: 0,
            origin: None,
            outputs: Vec::new(),
        }
    }

    #[test]
    fn files_of_hl7_hold_messages_that_are_found_again_and_count_what_is_left_out() {
        let bodies: [&[u8]; 4] = [
            b"MSH|^~\\&|A|B|||1||ADT^A01|1|P|2.5\rPID|1\r",
            b"MSH|^~\\&|A|B|||1||ADT^A01|2|P|2.5\nPID|1",
            b"no message",
            b"MSH|^~\\&|A|B|||1||ADT^A01|3|P|2.5\rMSH|^~\\&|A|B|||1||ADT^A01|4|P|2.5\r",
        ];
        for (format, masked) in [(ExportFormat::Hl7, false), (ExportFormat::Hl7, true), (ExportFormat::Batch, false)] {
            let head = TransferHead { source: "node-1".into(), masked, ..TransferHead::default() };
            let mut writer = ExportWriter::begin(format, Vec::new(), &head, "20260101120000").expect("memory");
            for (n, body) in bodies.iter().enumerate() {
                assert_eq!(writer.message(&message(n as u64), body).expect("memory"), n < 2, "{n}");
            }
            assert_eq!(writer.counts(), (2, 2));
            writer.unreadable(3);
            let file = writer.end().expect("memory");
            let batch = hl7::batch::split(&file);
            let found: Vec<&[u8]> = batch.messages.iter().map(|range| &file[range.clone()]).collect();
            assert_eq!(found, [bodies[0], b"MSH|^~\\&|A|B|||1||ADT^A01|2|P|2.5\rPID|1\r"]);
            assert!(batch.problems.is_empty(), "{:?}", batch.problems);
            let has_headers = masked || format == ExportFormat::Batch;
            let text = String::from_utf8(file).expect("text");
            let comment = if masked { "masked" } else { "" };
            let header = format!("FHS|^~\\&|TERRACE|node-1|||20260101120000|||{comment}\r");
            assert_eq!(text.starts_with(&header), has_headers, "{text}");
            assert_eq!(text.contains("BTS|2|2 left out"), has_headers, "{text}");
            assert_eq!(text.contains("3 could not be read"), has_headers, "{text}");
            let (_, checked) = ImportReader::open(std::io::Cursor::new(text.into_bytes())).expect("it is whole");
            assert_eq!((checked.masked, checked.messages), (masked, 2), "the mask is seen by who imports it");
        }
    }
}
