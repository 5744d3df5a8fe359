//! COPY's CSV format: where a record ends, what its fields are, and how a value is written.

use bytes::{BufMut, BytesMut};

use super::Fields;

/// The special bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    pub(super) delimiter: u8,
    pub(super) quote: u8,
    pub(super) escape: u8,
}

/// Searches for the end of a record, chunk after chunk.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RecordEnds {
    quoted: bool,
    /// Whether the byte before was an escape character other than the quote, inside quotes.
    escaped: bool,
}

impl RecordEnds {
    /// The position of the record's line end, at or after `from`.
    pub(super) fn find(&mut self, bytes: &[u8], from: usize, marks: Marks) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            // Two quotes inside quotes end and begin them again, which has the same effect.
            if self.escaped {
                self.escaped = false;
            } else if self.quoted && *byte == marks.escape && marks.escape != marks.quote {
                self.escaped = true;
            } else if *byte == marks.quote {
                self.quoted = !self.quoted;
            } else if *byte == b'\n' && !self.quoted {
                return Some(at);
            }
        }
        None
    }

    /// Whether the record is still inside quotes.
    pub(super) fn is_open(self) -> bool {
        self.quoted
    }
}

/// Splits a record into fields. An unquoted field that is `null` is NULL.
pub(super) fn split(record: &[u8], marks: Marks, null: &[u8], fields: &mut Fields) {
    let mut at = 0;
    loop {
        let start = at;
        let mut quoted_ever = false;
        let mut quoted = false;
        // The first pass over the field adds nothing, because the field may still be NULL.
        while at < record.len() && (quoted || record[at] != marks.delimiter) {
            let byte = record[at];
            if !quoted && byte == marks.quote {
                if !quoted_ever {
                    fields.extend(&record[start..at]);
                }
                (quoted, quoted_ever) = (true, true);
            } else if quoted && byte == marks.escape && record.get(at + 1).is_some_and(|next| escapable(*next, marks)) {
                at += 1;
                fields.push(record[at]);
            } else if quoted && byte == marks.quote {
                quoted = false;
            } else if quoted_ever {
                fields.push(byte);
            }
            at += 1;
        }
        if quoted_ever {
            fields.end();
        } else if &record[start..at] == null {
            fields.end_null();
        } else {
            fields.extend(&record[start..at]);
            fields.end();
        }
        if at >= record.len() {
            return;
        }
        at += 1;
    }
}

fn escapable(byte: u8, marks: Marks) -> bool {
    byte == marks.quote || byte == marks.escape
}

/// Writes a value; in quotes if it would be read as something else without them.
pub(super) fn write(out: &mut BytesMut, value: &[u8], marks: Marks, null: &[u8], alone: bool) {
    let special = |byte: &u8| *byte == marks.delimiter || *byte == marks.quote || matches!(byte, b'\n' | b'\r');
    // A record that consists of `\.` would end the data.
    let quoted = value == null || value.iter().any(special) || (alone && value == b"\\.");
    if !quoted {
        out.put_slice(value);
        return;
    }
    out.put_u8(marks.quote);
    for byte in value {
        if escapable(*byte, marks) {
            out.put_u8(marks.escape);
        }
        out.put_u8(*byte);
    }
    out.put_u8(marks.quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: Marks = Marks { delimiter: b',', quote: b'"', escape: b'"' };

    fn read(record: &[u8], marks: Marks) -> Vec<Option<Vec<u8>>> {
        let mut fields = Fields::default();
        split(record, marks, b"", &mut fields);
        (0..fields.len()).map(|at| fields.get(at).map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn records_are_taken_apart_as_postgresql_does() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(read(b"a,\"b,\"\"c\"\"\",,\"\"", COMMON), [some("a"), some("b,\"c\""), None, some("")]);
        assert_eq!(read(b"x\"y,z\"w,", COMMON), [some("xy,zw"), None], "quotes in the middle of a field");
        assert_eq!(read(b"", COMMON), [None]);
        let backslash = Marks { escape: b'\\', quote: b'\'', delimiter: b';' };
        assert_eq!(read(b"'a\\'b\\\\';c", backslash), [some("a'b\\"), some("c")]);
    }

    #[test]
    fn line_ends_inside_quotes_do_not_end_a_record_wherever_the_chunks_are_cut() {
        let text = b"a,\"b\n\"\"\nc\"\nnext\n";
        for cut in 0..text.len() {
            let mut ends = RecordEnds::default();
            let found = ends.find(&text[..cut], 0, COMMON).or_else(|| ends.find(text, cut, COMMON));
            assert_eq!(found, Some(10), "cut at {cut}");
        }
    }

    #[test]
    fn values_read_as_they_are_written() {
        for value in ["plain", "", "a,b", "q\"", "line\nend", "\r", "\\."] {
            let mut out = BytesMut::new();
            write(&mut out, value.as_bytes(), COMMON, b"", true);
            assert_eq!(read(&out, COMMON), [Some(value.as_bytes().to_vec())], "{value:?}");
        }
    }
}
