//! COPY's binary format: its head, and rows cut out of it.

use bytes::{Buf, BytesMut};

use super::Fields;
use crate::wire::fault::Fault;

/// How the data begins.
pub(super) const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// What stands where the next row would.
pub(super) const END: [u8; 2] = [0xff, 0xff];

fn wrong(text: &str) -> Fault {
    Fault::new("22P04", text)
}

/// Takes the head off the front; answers whether it was all there.
pub(super) fn head(bytes: &mut BytesMut, limit: usize) -> Result<bool, Fault> {
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
    // The upper half of the flags is what a reader must understand; none is known.
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

/// What stands next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A row; it was taken off.
    Row,
    /// The end.
    End,
    /// More bytes are needed.
    More,
}

/// Takes the next row off the front.
pub(super) fn row(bytes: &mut BytesMut, columns: usize, limit: usize, fields: &mut Fields) -> Result<Next, Fault> {
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
