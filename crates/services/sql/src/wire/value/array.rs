//! Arrays of one dimension, split into elements: as text, and in PostgreSQL's binary layout.

use bytes::Buf;

pub(crate) use crate::text::array_text::parse;

/// The elements of an array in the binary layout; `None` if the bytes are no such array, or if it has more than one
/// dimension, or elements of another type than `oid`.
pub(crate) fn read(mut bytes: &[u8], oid: u32) -> Option<Vec<Option<&[u8]>>> {
    let dimensions = bytes.try_get_u32().ok()?;
    let _has_null = bytes.try_get_u32().ok()?;
    let of = bytes.try_get_u32().ok()?;
    if dimensions == 0 {
        return bytes.is_empty().then(Vec::new);
    }
    let count = bytes.try_get_u32().ok()? as usize;
    let _first = bytes.try_get_u32().ok()?;
    // Each element has at least its length word.
    if dimensions != 1 || of != oid || count > bytes.len() / 4 {
        return None;
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        match bytes.try_get_i32().ok()? {
            -1 => items.push(None),
            length => {
                let (item, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
                items.push(Some(item));
                bytes = rest;
            }
        }
    }
    bytes.is_empty().then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_the_bytes_do_not_hold_are_refused() {
        let array = |count: u32| {
            let mut bytes = [1u32, 0, 23, count, 1].map(u32::to_be_bytes).concat();
            bytes.extend_from_slice(b"\0\0\0\x04\0\0\0\x07");
            bytes
        };
        assert_eq!(read(&array(1), 23), Some(vec![Some(&[0, 0, 0, 7][..])]));
        assert_eq!(read(&array(1), 25), None, "of another type");
        assert_eq!(read(&array(2), 23), None);
        assert_eq!(read(&array(u32::MAX), 23), None);
        assert_eq!(read(&array(0), 23), None, "left over");
    }
}
