//! Writes the segments of an answer, field by field.

use std::borrow::Cow;

use crate::charset::Charset;
use crate::escape::escape;
use crate::{Delimiters, SegmentName, Value};

/// Segments in the delimiters and the charset of the message that is answered.
pub(crate) struct Writer {
    out: Vec<u8>,
    delimiters: Delimiters,
    charset: Charset,
}

impl Writer {
    pub(crate) fn new(delimiters: Delimiters, charset: Charset) -> Writer {
        Writer { out: Vec::with_capacity(256), delimiters, charset }
    }

    pub(crate) fn delimiters(&self) -> Delimiters {
        self.delimiters
    }

    /// Everything written.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Begins a segment.
    pub(crate) fn segment(&mut self, name: SegmentName) {
        self.out.extend_from_slice(name.bytes());
    }

    /// Begins MSH, FHS or BHS: fields 1 and 2.
    pub(crate) fn header(&mut self, name: SegmentName) {
        self.segment(name);
        self.field(b"");
        self.out.extend(self.delimiters.encoding_characters());
    }

    pub(crate) fn field(&mut self, raw: &[u8]) {
        self.out.push(self.delimiters.field);
        self.out.extend_from_slice(raw);
    }

    /// A field of the message that is answered, raw.
    pub(crate) fn echo(&mut self, value: Value<'_>) {
        self.field(&unbroken(value.bytes()));
    }

    /// A field of text, escaped, at most `limit` bytes.
    pub(crate) fn text(&mut self, text: &str, limit: usize) {
        self.out.push(self.delimiters.field);
        let plain = |&byte: &u8| matches!(byte, b' '..=b'~') && !self.delimiters.contains(byte);
        if text.len() <= limit && text.as_bytes().iter().all(plain) {
            return self.out.extend_from_slice(text.as_bytes());
        }
        let start = self.out.len();
        for character in text.chars() {
            let before = self.out.len();
            self.character(character);
            if self.out.len() - start > limit {
                self.out.truncate(before);
                break;
            }
        }
    }

    fn character(&mut self, character: char) {
        let mut buffer = [0; 4];
        let text: &str = character.encode_utf8(&mut buffer);
        match (u8::try_from(character), self.delimiters.escape) {
            (Ok(byte), None) if byte.is_ascii_control() || self.delimiters.contains(byte) => self.out.push(b' '),
            (Ok(byte), _) if byte.is_ascii() => self.out.extend_from_slice(&escape(&[byte], self.delimiters)),
            _ => match self.charset.encode(text) {
                Ok(bytes) if !bytes.iter().any(u8::is_ascii) => self.out.extend_from_slice(&bytes),
                _ => self.out.push(b'?'),
            },
        }
    }

    /// A field of several parts; those at the end that are empty are left out, and all but the first where the
    /// message declares no delimiter for them.
    pub(crate) fn parts(&mut self, delimiter: Option<u8>, parts: &[&[u8]]) {
        let used = parts.iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1);
        let used = if delimiter.is_none() { used.min(1) } else { used };
        self.field(&parts[..used].join(&delimiter.unwrap_or_default()));
    }

    /// Ends a segment; fields at its end that are empty are left out.
    pub(crate) fn end(&mut self) {
        while self.out.last() == Some(&self.delimiters.field) {
            self.out.pop();
        }
        self.out.push(b'\r');
    }
}

/// Echoed bytes that cannot end a segment or a frame. CR cannot occur: it ends the segment they come from.
pub(crate) fn unbroken(raw: &[u8]) -> Cow<'_, [u8]> {
    let breaks = |byte: &u8| matches!(byte, b'\n' | 0x0B | 0x1C);
    if !raw.iter().any(breaks) {
        return Cow::Borrowed(raw);
    }
    Cow::Owned(raw.iter().map(|byte| if breaks(byte) { b' ' } else { *byte }).collect())
}
