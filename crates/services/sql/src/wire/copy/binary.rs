//! COPY's binary format: its header, and its rows.

use bytes::{Buf, BytesMut};

use super::Fields;
use crate::wire::error_response::ErrorResponse;

/// The first bytes of the data.
pub(super) const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The end marker, in the place of a next row.
pub(super) const END: [u8; 2] = [0xff, 0xff];

fn wrong(text: &str) -> ErrorResponse {
    ErrorResponse::new("22P04", text)
}

/// Removes the header from the front. Returns whether it was complete.
pub(super) fn head(bytes: &mut BytesMut, limit: usize) -> Result<bool, ErrorResponse> {
    let fixed = SIGNATURE.len() + 8;
    let common = bytes.len().min(SIGNATURE.len());
    if bytes[..common] != SIGNATURE[..common] {
        return Err(wrong("COPY file signature not recognized"));
    }
    if bytes.len() < fixed {
        return Ok(false);
    }
    let mut rest = &bytes[SIGNATURE.len()..];
    let (flags, extension) = (rest.get_u32(), rest.get_u32() as usize);
    // A reader must understand the upper half of the flags; none is known.
    if flags >> 16 != 0 {
        return Err(wrong("unrecognized critical flags in COPY file header"));
    }
    if extension > limit {
        return Err(wrong("invalid COPY file header (wrong length)"));
    }
    if bytes.len() < fixed + extension {
        return Ok(false);
    }
    bytes.advance(fixed + extension);
    Ok(true)
}

/// The next part of the data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A row; it was removed from the buffer.
    Row,
    /// The end.
    End,
    /// More bytes are needed.
    More,
}

/// Removes the next row from the front.
pub(super) fn row(
    bytes: &mut BytesMut,
    columns: usize,
    limit: usize,
    fields: &mut Fields,
) -> Result<Next, ErrorResponse> {
    let mut rest = &bytes[..];
    let Ok(count) = rest.try_get_u16() else { return Ok(Next::More) };
    if count.to_be_bytes() == END {
        bytes.advance(2);
        return Ok(Next::End);
    }
    if usize::from(count) != columns {
        return Err(wrong(&format!("row field count is {count}, expected {columns}")));
    }
    for _ in 0..count {
        let Ok(length) = rest.try_get_i32() else { return Ok(Next::More) };
        if length == -1 {
            fields.end_null();
            continue;
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= limit);
        let length = length.ok_or_else(|| wrong("invalid field size"))?;
        let Some((value, after)) = rest.split_at_checked(length) else { return Ok(Next::More) };
        fields.extend(value);
        fields.end();
        rest = after;
    }
    let taken = bytes.len() - rest.len();
    bytes.advance(taken);
    Ok(Next::Row)
}
