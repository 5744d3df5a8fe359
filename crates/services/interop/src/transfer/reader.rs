//! [`ImportReader`]: a file that is imported, of whatever format, as messages with their source.
//!
//! ```text
//!   open: the whole file is read and checked --> CheckedImport
//!   next: message by message, checked again   --> ImportItem
//! ```
//!
//! Invariant: nothing is given out of a file that is damaged anywhere: it was read to its end before.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use bytes::Bytes;

use super::format::{TransferFile, is_transfer};
use super::plain::{PlainFile, line_at};
use super::{LeftOut, TransferHead, hex};
use crate::error::InteropError;
use crate::record::search::content;

/// What the check of a file found.
#[derive(Debug, Clone, Default)]
pub struct CheckedImport {
    /// The head; none of a file of HL7.
    pub head: Option<TransferHead>,
    /// Where its messages are from.
    pub source: String,
    /// Whether its bodies are masked, as far as it says so.
    pub masked: bool,
    /// Messages that can be taken.
    pub messages: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// What cannot be taken of it, and why.
    pub left_out: Vec<LeftOut>,
}

/// A message of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportItem {
    /// Its id at its source, or its number in the file, from 1.
    pub number: u64,
    /// Its source: the store or the file, and of a store the checksum of its body. The same message of the same source has the same.
    pub source: String,
    /// Where in the file it begins.
    pub at: u64,
    /// The service that took it there; none in a file of HL7.
    pub service: Option<String>,
    /// When; none in a file of HL7.
    pub received_us: Option<i64>,
    /// The charset where the body declares none; none: not known.
    pub charset: Option<String>,
    /// The bytes.
    pub body: Bytes,
}

/// Reads a file message by message.
pub struct ImportReader<R: Read + Seek> {
    source: String,
    file: Inner<R>,
}

enum Inner<R: Read + Seek> {
    Terrace(Box<TransferFile<BufReader<R>>>),
    Plain(Box<PlainFile<R>>),
}

impl ImportReader<File> {
    /// Opens and checks a file by its path.
    ///
    /// # Errors
    /// It cannot be read; it is damaged; it has no message.
    pub fn open_path(path: &Path) -> Result<(ImportReader<File>, CheckedImport), InteropError> {
        let file = File::open(path).map_err(InteropError::file("open", path))?;
        if !file.metadata().map_err(InteropError::file("read", path))?.is_file() {
            return Err(InteropError::Refused("it is no regular file, which can be read twice".to_owned()));
        }
        ImportReader::open(file)
    }
}

impl<R: Read + Seek> ImportReader<R> {
    /// Opens and checks what can be read twice.
    ///
    /// # Errors
    /// As [`ImportReader::open_path`].
    pub fn open(mut from: R) -> Result<(ImportReader<R>, CheckedImport), InteropError> {
        let unreadable = |error: std::io::Error| InteropError::Refused(format!("it cannot be read: {error}"));
        let mut first = Vec::new();
        from.by_ref().take(32).read_to_end(&mut first).map_err(unreadable)?;
        from.rewind().map_err(unreadable)?;
        if !is_transfer(&first) {
            let (file, check) = PlainFile::open(from)?;
            let checked = CheckedImport {
                head: None,
                source: check.source.clone(),
                masked: check.masked,
                messages: check.messages,
                body_bytes: check.body_bytes,
                left_out: check.left_out,
            };
            return Ok((ImportReader { source: check.source, file: Inner::Plain(Box::new(file)) }, checked));
        }
        let mut file = TransferFile::open(BufReader::new(&mut from))?;
        while file.next()?.is_some() {}
        let end = file.end().cloned().unwrap_or_default();
        from.rewind().map_err(unreadable)?;
        let file = TransferFile::open(BufReader::new(from))?;
        let head = file.head().clone();
        if !is_source(&head.source) {
            return Err(InteropError::Refused("the name of its source is none".to_owned()));
        }
        let unreadable = (end.unreadable > 0).then(|| LeftOut {
            at: None,
            why: format!("{} could not be read where the file was made, and may belong to it", end.unreadable),
        });
        let checked = CheckedImport {
            source: head.source.clone(),
            masked: head.masked,
            messages: end.messages,
            body_bytes: end.body_bytes,
            left_out: unreadable.into_iter().collect(),
            head: Some(head),
        };
        Ok((ImportReader { source: checked.source.clone(), file: Inner::Terrace(Box::new(file)) }, checked))
    }

    /// The next message.
    ///
    /// # Errors
    /// The file has changed since it was checked.
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<ImportItem>, InteropError> {
        match &mut self.file {
            Inner::Plain(file) => {
                let Some((number, at, bytes)) = file.next()? else { return Ok(None) };
                let body = Bytes::from(hl7::batch::with_segment_ends(&bytes).into_owned());
                let source = self.source.clone();
                Ok(Some(ImportItem { number, source, at, service: None, received_us: None, charset: None, body }))
            }
            Inner::Terrace(file) => {
                let Some((at, message, body)) = file.next()? else { return Ok(None) };
                let source = format!("{} {}", self.source, hex(&content(&body).to_be_bytes()));
                Ok(Some(ImportItem {
                    number: message.id,
                    source,
                    at,
                    service: Some(message.service),
                    received_us: Some(message.received_us),
                    charset: message.charset,
                    body: Bytes::from(body),
                }))
            }
        }
    }
}

/// The line of a place in a file, from 1.
pub fn line_of(path: &Path, at: u64) -> Option<u64> {
    line_at(&mut File::open(path).ok()?, at)
}

/// Whether a name of a source is short and plain, so that it is a part of an idempotency key.
fn is_source(name: &str) -> bool {
    (1..=60).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

impl<R: Read + Seek> std::fmt::Debug for ImportReader<R> {
    /// Names no content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportReader").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const TWO: &str = "MSH|^~\\&|A|B|||1||ADT^A01|1|P|2.5\rPID|1\rMSH|^~\\&|A|B|||1||ADT^A01|2|P|2.5\rPID|2\r";

    fn all(text: &str) -> Result<(Vec<ImportItem>, CheckedImport), InteropError> {
        let (mut reader, checked) = ImportReader::open(Cursor::new(text.as_bytes().to_vec()))?;
        let mut items = Vec::new();
        while let Some(item) = reader.next()? {
            items.push(item);
        }
        assert_eq!(items.len() as u64, checked.messages);
        Ok((items, checked))
    }

    #[test]
    fn files_of_hl7_are_read_with_and_without_headers_and_the_same_file_is_the_same_source() {
        let (items, checked) = all(TWO).expect("two messages");
        assert_eq!(items.iter().map(|item| item.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((items[1].at, items[0].service.as_ref(), checked.left_out.len()), (40, None, 0));
        assert!(checked.source.starts_with("file-") && items.iter().all(|item| item.source == checked.source));
        assert_eq!(all(TWO).expect("again").1.source, checked.source);
        let batch = format!("FHS|^~\\&|X\rBHS|^~\\&|X\r{TWO}BTS|2\rFTS|1\r");
        let (in_batch, other) = all(&batch).expect("two messages");
        assert_eq!(
            in_batch.iter().map(|item| &item.body).collect::<Vec<_>>(),
            items.iter().map(|item| &item.body).collect::<Vec<_>>()
        );
        assert_ne!(other.source, checked.source);
        let lines = TWO.replace('\r', "\n");
        assert_eq!(all(&lines).expect("two messages").0[0].body, items[0].body, "segments end with CR in a node");
    }

    #[test]
    fn a_file_that_lost_messages_or_has_none_is_refused_and_what_stands_beside_them_is_reported() {
        for (text, why) in [
            (format!("BHS|^~\\&|X\r{TWO}BTS|3\r"), "declares 3, found 2"),
            ("PID|1\r".to_owned(), "no HL7 message"),
            (String::new(), "no HL7 message"),
            ("M\0S\0H\0|\0".to_owned(), "UTF-16"),
        ] {
            let error = all(&text).expect_err("it is refused").to_string();
            assert!(error.contains(why), "{error}");
        }
        let (_, checked) = all(&format!("rubbish\r{TWO}")).expect("two messages");
        assert!(checked.left_out[0].why.contains("outside of any message"), "{:?}", checked.left_out);
    }

    #[test]
    fn a_file_whose_only_message_is_too_long_says_so() {
        let long =
            format!("MSH|^~\\&|A|B|C|D||| ADT^A01|1|P|2.5\rNTE|1||{}\r", "9".repeat(super::super::BODY_BYTES_MAX));
        let Err(refused) = ImportReader::open(Cursor::new(long.as_bytes())) else { panic!("it was taken") };
        let refused = refused.to_string();
        assert!(refused.contains("none of its messages can be taken: a message has 6"), "{refused}");
    }

    #[test]
    fn a_place_in_a_file_has_a_line_whatever_its_ends() {
        for (text, at, line) in [("a\rb\rc", 4, 3), ("a\r\nb\r\nc", 6, 3), ("a\nb\nc", 4, 3), ("a", 0, 1)] {
            assert_eq!(line_at(&mut Cursor::new(text.as_bytes()), at), Some(line), "{text:?}");
        }
    }
}
