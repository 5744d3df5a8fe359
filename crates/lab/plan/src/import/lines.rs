//! Lines and records of a file, each of bounded length.

use std::io::{BufRead, Read};

use crate::PlanError;

/// Bytes of a line at most, with its end.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Reads the next line into `line`, without LF or CR LF; `false` at the end of the file. Errors: a line that is too long, which is read to
/// its end, so that the next one can be read.
pub(super) fn next_line(bytes: &mut impl BufRead, line: &mut Vec<u8>) -> Result<Result<bool, String>, PlanError> {
    line.clear();
    bytes.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(Ok(false));
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    } else if line.len() as u64 == LINE_BYTES_MAX {
        while !matches!(bytes.fill_buf()?.first(), None | Some(b'\n')) {
            let buffer = bytes.fill_buf()?;
            let end = memchr::memchr(b'\n', buffer).unwrap_or(buffer.len());
            bytes.consume(end);
        }
        let has_end = !bytes.fill_buf()?.is_empty();
        bytes.consume(usize::from(has_end));
        return Ok(Err(format!("it has more than {LINE_BYTES_MAX} bytes")));
    }
    Ok(Ok(true))
}

/// Reads the next record; `false` at the end of the file. Errors: the file ends within it.
pub(super) fn next_record(
    bytes: &mut impl Read,
    record: &mut Vec<u8>,
    length: usize,
) -> Result<Result<bool, String>, PlanError> {
    record.clear();
    bytes.by_ref().take(length as u64).read_to_end(record)?;
    Ok(match record.len() {
        0 => Ok(false),
        read if read == length => Ok(true),
        _ => Err("the file ends within it".into()),
    })
}
