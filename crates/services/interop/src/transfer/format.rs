//! The file of an export: what is in it, byte by byte.
//!
//! ```text
//!   "TERRACE-MESSAGES 1\n"                          19 bytes, which say what it is and its version
//!   record 'H'                                      TransferHead
//!   record 'M' ...                                  TransferMessage, and the body
//!   record 'E'                                      TransferEnd; nothing behind it
//!
//!   record   u8 kind | u32 bytes of the metadata | u32 bytes of the body | metadata, JSON | body | u32 CRC-32C of all of these
//! ```
//! All integers little endian.
//!
//! A record is read whole or not at all; the end has the number of messages and the SHA-256 of everything before it, so that a file that
//! is cut, at a record or within one, and records that are left out or in another order, are found. Metadata may get more members:
//! unknown ones are passed over.
//!
//! Invariants: reading never panics on any bytes (fuzzed), and takes no more memory than it has read; lengths beyond their bounds are
//! refused before anything is read for them; errors name the place, and nothing of a message.

use std::io::{ErrorKind, Read, Write};

use ring::digest::{Context, SHA256};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BODY_BYTES_MAX, TransferEnd, TransferHead, TransferMessage, hex};
use crate::error::InteropError;

/// How every file of any version begins, and what is read of it.
const NAME: &[u8] = b"TERRACE-MESSAGES ";
const MAGIC: &[u8; 19] = b"TERRACE-MESSAGES 1\n";

const HEAD: u8 = b'H';
const MESSAGE: u8 = b'M';
const END: u8 = b'E';

/// Bytes of a record before its metadata.
const PREFIX: usize = 9;

/// Longest metadata: that of a message with a thousand outputs and the longest answers is a third of it.
const META_BYTES_MAX: usize = 4 << 20;

/// Whether a file begins as one of these.
pub(super) fn is_transfer(first: &[u8]) -> bool {
    first.starts_with(NAME)
}

/// A file that cannot be read on.
fn damaged(offset: u64, what: impl Into<String>) -> InteropError {
    InteropError::Damaged { offset, what: what.into() }
}

/// Writes a file. The caller flushes and syncs what it gives as `to`.
pub struct TransferWriter<W: Write> {
    to: W,
    sum: Context,
    messages: u64,
    body_bytes: u64,
    unreadable: u64,
}

impl<W: Write> TransferWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(to: W, head: &TransferHead) -> std::io::Result<TransferWriter<W>> {
        let mut writer = TransferWriter { to, sum: Context::new(&SHA256), messages: 0, body_bytes: 0, unreadable: 0 };
        writer.put(MAGIC)?;
        writer.record(HEAD, head, &[])?;
        Ok(writer)
    }

    /// Adds a message.
    ///
    /// # Errors
    /// It cannot be written; `InvalidInput` where it is longer than a file may have it.
    pub fn message(&mut self, message: &TransferMessage, body: &[u8]) -> std::io::Result<()> {
        self.record(MESSAGE, message, body)?;
        self.messages += 1;
        self.body_bytes += body.len() as u64;
        Ok(())
    }

    /// So many messages could not be read, and may belong to the file: its end says so.
    pub fn unreadable(&mut self, messages: u64) {
        self.unreadable += messages;
    }

    /// Writes the end, and gives back what was written to.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(mut self) -> std::io::Result<(W, TransferEnd)> {
        let sha256 = hex(self.sum.clone().finish().as_ref());
        let (messages, body_bytes, unreadable) = (self.messages, self.body_bytes, self.unreadable);
        let end = TransferEnd { messages, body_bytes, sha256, unreadable };
        self.record(END, &end, &[])?;
        Ok((self.to, end))
    }

    /// What is written to.
    pub fn inner(&mut self) -> &mut W {
        &mut self.to
    }

    fn record(&mut self, kind: u8, metadata: &impl Serialize, body: &[u8]) -> std::io::Result<()> {
        let metadata = serde_json::to_vec(metadata)?;
        if metadata.len() > META_BYTES_MAX || body.len() > BODY_BYTES_MAX {
            return Err(std::io::Error::new(ErrorKind::InvalidInput, "a message is longer than a file may have it"));
        }
        let mut prefix = [kind; PREFIX];
        prefix[1..5].copy_from_slice(&(metadata.len() as u32).to_le_bytes());
        prefix[5..].copy_from_slice(&(body.len() as u32).to_le_bytes());
        let parts = [&prefix[..], &metadata, body];
        let sum = checksum(&parts);
        parts.into_iter().chain([&sum[..]]).try_for_each(|part| self.put(part))
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sum.update(bytes);
        self.to.write_all(bytes)
    }
}

impl<W: Write> std::fmt::Debug for TransferWriter<W> {
    /// Names no content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransferWriter").field("messages", &self.messages).finish_non_exhaustive()
    }
}

fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    (digest.finalize() as u32).to_le_bytes()
}

/// The same bytes as a file whose records have right checksums and whose end is right, as far as it has records: for fuzzing what lies
/// behind the checksums.
#[cfg(feature = "fuzzing")]
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let mut rest = bytes.strip_prefix(&MAGIC[..]).unwrap_or(bytes);
    let (mut messages, mut body_bytes) = (0, 0);
    while let Some(prefix) = rest.get(..PREFIX) {
        let length = |at: usize| prefix[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
        let (metadata, body) = (length(1).min(rest.len() - PREFIX), length(5));
        let body = body.min(rest.len() - PREFIX - metadata);
        let record = [&[prefix[0]], &(metadata as u32).to_le_bytes()[..], &(body as u32).to_le_bytes()].concat();
        let content = &rest[PREFIX..PREFIX + metadata + body];
        if prefix[0] == END {
            break;
        }
        messages += u64::from(prefix[0] == MESSAGE);
        body_bytes += if prefix[0] == MESSAGE { body as u64 } else { 0 };
        out.extend_from_slice(&record);
        out.extend_from_slice(content);
        out.extend_from_slice(&checksum(&[&record, content]));
        rest = rest.get(PREFIX + metadata + body + 4..).unwrap_or_default();
    }
    let mut sum = Context::new(&SHA256);
    sum.update(&out);
    let end = TransferEnd { messages, body_bytes, sha256: hex(sum.finish().as_ref()), unreadable: 0 };
    let metadata = serde_json::to_vec(&end).unwrap_or_default();
    let prefix = [&[END], &(metadata.len() as u32).to_le_bytes()[..], &0u32.to_le_bytes()].concat();
    let sum = checksum(&[&prefix, &metadata]);
    [out, prefix, metadata, sum.to_vec()].concat()
}

/// Reads a file, record by record.
pub struct TransferFile<R: Read> {
    from: R,
    at: u64,
    sum: Context,
    head: TransferHead,
    messages: u64,
    body_bytes: u64,
    end: Option<TransferEnd>,
}

impl<R: Read> TransferFile<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// `Damaged`; `Refused` where it is of a newer release, or none of these files.
    pub fn open(from: R) -> Result<TransferFile<R>, InteropError> {
        let (sum, head) = (Context::new(&SHA256), TransferHead::default());
        let mut file = TransferFile { from, at: 0, sum, head, messages: 0, body_bytes: 0, end: None };
        let magic = file.take(MAGIC.len(), 0)?;
        if !magic.starts_with(NAME) {
            return Err(InteropError::Refused("it is no file of exported messages".to_owned()));
        }
        if magic != MAGIC {
            let text = "it is of another version than this release reads: use the release that wrote it";
            return Err(InteropError::Refused(text.to_owned()));
        }
        file.sum.update(&magic);
        let record = file.record()?;
        if record.kind != HEAD || !record.body.is_empty() {
            return Err(damaged(record.at, "it does not begin with a head"));
        }
        file.head = metadata(&record)?;
        Ok(file)
    }

    /// The head.
    pub fn head(&self) -> &TransferHead {
        &self.head
    }

    /// The next message, where its record begins, and its body; none at the end, which is checked.
    ///
    /// # Errors
    /// `Damaged`, with the place; nothing can be read behind it.
    #[expect(clippy::should_implement_trait, reason = "a failure must be told apart from the end")]
    pub fn next(&mut self) -> Result<Option<(u64, TransferMessage, Vec<u8>)>, InteropError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let before = self.sum.clone();
        let record = self.record()?;
        match record.kind {
            MESSAGE => {
                let message = metadata(&record)?;
                self.messages += 1;
                self.body_bytes += record.body.len() as u64;
                Ok(Some((record.at, message, record.body)))
            }
            END => {
                let end: TransferEnd = metadata(&record)?;
                let sha256 = hex(before.finish().as_ref());
                let (messages, body_bytes, unreadable) = (self.messages, self.body_bytes, end.unreadable);
                let found = TransferEnd { messages, body_bytes, sha256, unreadable };
                if end != found {
                    let text = format!(
                        "its end is of {} messages, and there are {}: records were left out, moved or changed",
                        end.messages, found.messages
                    );
                    return Err(damaged(record.at, text));
                }
                if self.from.read(&mut [0]).map_err(|error| damaged(self.at, error.to_string()))? > 0 {
                    return Err(damaged(self.at, "there are bytes behind its end"));
                }
                self.end = Some(end);
                Ok(None)
            }
            _ => Err(damaged(record.at, "there is a record of an unknown kind")),
        }
    }

    /// The end, once it was read.
    pub fn end(&self) -> Option<&TransferEnd> {
        self.end.as_ref()
    }

    /// Reads a record.
    fn record(&mut self) -> Result<Record, InteropError> {
        let at = self.at;
        let prefix = self.take(PREFIX, at)?;
        let length =
            |from: usize| prefix[from..].first_chunk().map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        let (metadata, body) = (length(1), length(5));
        if metadata > META_BYTES_MAX || body > BODY_BYTES_MAX {
            return Err(damaged(at, "a record is longer than any can be"));
        }
        let (metadata, body) = (self.take(metadata, at)?, self.take(body, at)?);
        let sum = self.take(4, at)?;
        if checksum(&[&prefix, &metadata, &body])[..] != sum[..] {
            return Err(damaged(at, "the checksum of a record does not fit"));
        }
        for part in [&prefix, &metadata, &body, &sum] {
            self.sum.update(part);
        }
        Ok(Record { at, kind: prefix[0], metadata, body })
    }

    /// So many bytes, of the record that begins at `record`.
    fn take(&mut self, bytes: usize, record: u64) -> Result<Vec<u8>, InteropError> {
        let mut taken = Vec::new();
        let read = self.from.by_ref().take(bytes as u64).read_to_end(&mut taken);
        read.map_err(|error| damaged(self.at, format!("it cannot be read: {error}")))?;
        self.at += taken.len() as u64;
        if taken.len() < bytes {
            return Err(damaged(record, "it ends within a record, or without its end: it was cut"));
        }
        Ok(taken)
    }
}

impl<R: Read> std::fmt::Debug for TransferFile<R> {
    /// Names no content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransferFile").field("at", &self.at).field("messages", &self.messages).finish_non_exhaustive()
    }
}

struct Record {
    at: u64,
    kind: u8,
    metadata: Vec<u8>,
    body: Vec<u8>,
}

/// The metadata of a record. An error of JSON could quote it: only its place is told.
fn metadata<T: DeserializeOwned>(record: &Record) -> Result<T, InteropError> {
    serde_json::from_slice(&record.metadata).map_err(|error| {
        damaged(record.at, format!("the metadata of a record cannot be read at column {}", error.column()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{OutputState, Status};
    use crate::transfer::TransferOutput;

    fn message(id: u64) -> TransferMessage {
        TransferMessage {
            id,
            service: "in".into(),
            received_us: 1_767_268_800_000_000,
            kind: "ADT^A01".into(),
            control_id: format!("M{id}"),
            charset: (id == 2).then(|| "8859/1".to_owned()),
            status: Status::Routed,
            reason: "main: all".into(),
            duplicate: false,
            generation: 3,
            origin: None,
            outputs: vec![TransferOutput {
                operation: "out".into(),
                state: OutputState::Delivered,
                at_us: Some(7),
                detail: "AA".into(),
            }],
        }
    }

    fn file(bodies: &[&[u8]]) -> Vec<u8> {
        let head =
            TransferHead { source: "node-0000002a".into(), made_us: 9, masked: false, ..TransferHead::default() };
        let mut writer = TransferWriter::begin(Vec::new(), &head).expect("memory");
        for (body, id) in bodies.iter().zip(1..) {
            writer.message(&message(id), body).expect("memory");
        }
        writer.end().expect("memory").0
    }

    fn read(bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, InteropError> {
        let mut file = TransferFile::open(bytes)?;
        let mut found = Vec::new();
        while let Some((_, message, body)) = file.next()? {
            found.push((message.id, body));
        }
        assert_eq!(file.end().expect("it was read").messages, found.len() as u64);
        Ok(found)
    }

    #[test]
    fn what_is_written_is_read_and_a_file_that_is_cut_or_changed_anywhere_is_damaged() {
        let whole = file(&[b"MSH|^~\\&|A\r", b"\xfc\0\xff", b""]);
        let expected = vec![(1, b"MSH|^~\\&|A\r".to_vec()), (2, b"\xfc\0\xff".to_vec()), (3, Vec::new())];
        assert_eq!(read(&whole).expect("it is whole"), expected);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "changed at {at}");
        }
        assert!(read(&[&whole[..], b"x"].concat()).is_err(), "longer than its end");
    }

    #[test]
    fn records_that_are_left_out_are_missed() {
        let whole = file(&[b"a", b"b"]);
        let mut reader = TransferFile::open(&whole[..]).expect("a head");
        let (first, ..) = reader.next().expect("whole").expect("one");
        let (second, ..) = reader.next().expect("whole").expect("two");
        let without = [&whole[..first as usize], &whole[second as usize..]].concat();
        let error = read(&without).expect_err("one is missing").to_string();
        assert!(error.contains("2 messages, and there are 1"), "{error}");
    }

    #[test]
    fn a_forged_length_takes_no_memory_and_other_versions_are_told_apart() {
        let mut forged = [&MAGIC[..], b"H"].concat();
        forged.extend_from_slice(&(META_BYTES_MAX as u32).to_le_bytes());
        forged.extend_from_slice(&(BODY_BYTES_MAX as u32).to_le_bytes());
        assert!(matches!(read(&forged), Err(InteropError::Damaged { offset: 19, .. })));
        for (bytes, expected) in [
            (&b"TERRACE-MESSAGES 2\nH"[..], "another version"),
            (&b"MSH|^~\\&|HIS|NORTH|HUB|X"[..], "no file of exported messages"),
        ] {
            let error = read(bytes).expect_err("it is none").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// Written anew with `UPDATE=1`: then the version changes, too.
    #[test]
    fn the_format_is_that_of_the_golden_dump() {
        let bytes = file(&[b"MSH|^~\\&|HIS|NORTH|HUB|X|2026||ADT^A01|M1|P|2.5\r", b"M\xfcller"]);
        let mut found = String::new();
        for (n, line) in bytes.chunks(32).enumerate() {
            let text: String =
                line.iter().map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '.' }).collect();
            found += &format!("{:05} {:<64} {text}\n", n * 32, hex(line));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/transfer.txt");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &found).expect("the golden directory is there");
        }
        assert_eq!(found, std::fs::read_to_string(path).expect("the golden dump"), "the format is another one");
    }
}
