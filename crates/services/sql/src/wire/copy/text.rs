//! COPY's text format: the end of a row, its fields, and how a value is written.

use bytes::{BufMut, BytesMut};

use super::Fields;

/// The position of the first line end at or after `from` without a backslash before it; a backslash before `from` must
/// not belong to the byte at `from`. Otherwise the position at which to continue when there are more bytes.
pub(super) fn line_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => return Ok(at),
            b'\\' if at + 1 == bytes.len() => return Err(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    Err(at)
}

/// Splits a row into fields.
pub(super) fn split(row: &[u8], delimiter: u8, null: &[u8], fields: &mut Fields) {
    let mut start = 0;
    loop {
        let mut end = start;
        while end < row.len() && row[end] != delimiter {
            end += if row[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(row.len());
        let raw = &row[start..end];
        if raw == null {
            fields.end_null();
        } else {
            unescape(raw, fields);
            fields.end();
        }
        if end == row.len() {
            return;
        }
        start = end + 1;
    }
}

fn unescape(raw: &[u8], fields: &mut Fields) {
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        fields.extend(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((letter, after)) = rest.split_first() else {
            // A backslash at the end of the data is a plain character.
            fields.push(b'\\');
            return;
        };
        rest = after;
        match letter {
            b'b' => fields.push(8),
            b'f' => fields.push(12),
            b'n' => fields.push(b'\n'),
            b'r' => fields.push(b'\r'),
            b't' => fields.push(b'\t'),
            b'v' => fields.push(11),
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                let value = rest[..more].iter().fold(u32::from(letter - b'0'), |n, d| n * 8 + u32::from(d - b'0'));
                fields.push((value & 0xff) as u8);
                rest = &rest[more..];
            }
            b'x' => {
                let more = rest.iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
                if more == 0 {
                    fields.push(b'x');
                } else {
                    let digit = |byte: &u8| (*byte as char).to_digit(16).unwrap_or(0);
                    fields.push(rest[..more].iter().fold(0, |n, d| n * 16 + digit(d)) as u8);
                    rest = &rest[more..];
                }
            }
            other => fields.push(*other),
        }
    }
    fields.extend(rest);
}

/// Writes a value.
pub(super) fn write(out: &mut BytesMut, value: &[u8], delimiter: u8) {
    for byte in value {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            other if *other == delimiter => *other,
            other => {
                out.put_u8(*other);
                continue;
            }
        };
        out.put_slice(&[b'\\', letter]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_read_as_postgresql_reads_them() {
        let examples: [(&[u8], &[u8]); 8] = [
            (b"a\\tb", b"a\tb"),
            (b"\\\\", b"\\"),
            (b"\\101\\x42\\x4", b"AB\x04"),
            (b"\\1a", b"\x01a"),
            (b"\\xg", b"xg"),
            (b"\\q", b"q"),
            (b"\\|", b"|"),
            (b"end\\", b"end\\"),
        ];
        for (raw, value) in examples {
            let mut fields = Fields::default();
            split(raw, b'|', b"\\N", &mut fields);
            assert_eq!((fields.len(), fields.get(0)), (1, Some(value)), "{raw:?}");
        }
        let mut fields = Fields::default();
        split(b"\\N|N|\\|\\N", b'|', b"\\N", &mut fields);
        let read: Vec<_> = (0..fields.len()).map(|at| fields.get(at)).collect();
        assert_eq!(read, [None, Some(&b"N"[..]), Some(b"|N")]);
    }

    #[test]
    fn a_line_ends_where_no_backslash_stands_before() {
        assert_eq!(line_end(b"ab\ncd", 0), Ok(2));
        assert_eq!(line_end(b"a\\\nb\n", 0), Ok(4));
        assert_eq!(line_end(b"a\\\\\n", 0), Ok(3));
        assert_eq!(line_end(b"ab\\", 0), Err(2));
        assert_eq!(line_end(b"ab", 0), Err(2));
    }
}
