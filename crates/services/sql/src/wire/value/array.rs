//! Arrays of one dimension, split into elements: `{1,NULL,"a b"}`, and PostgreSQL's binary layout.

use bytes::Buf;

/// The elements of an array given as text; `None` if it is not an array of one dimension.
pub(crate) fn parse(text: &str) -> Option<Vec<Option<String>>> {
    let inside = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    let mut rest = inside.trim_start();
    if rest.is_empty() {
        return Some(items);
    }
    loop {
        let (item, after) = if let Some(quoted) = rest.strip_prefix('"') {
            let (item, after) = unquote(quoted)?;
            (Some(item), after.trim_start())
        } else {
            let (item, after) = bare(rest)?;
            (item, after)
        };
        items.push(item);
        rest = match after.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if after.is_empty() => return Some(items),
            None => return None,
        };
    }
}

/// An element in quotes, and the text after the quotes.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut item = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((item, &text[at + 1..])),
            '\\' => item.push(letters.next()?.1),
            letter => item.push(letter),
        }
    }
    None
}

/// An element without quotes, and the text after it.
fn bare(text: &str) -> Option<(Option<String>, &str)> {
    let mut item = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            ',' => {
                end = at;
                break;
            }
            '{' | '}' | '"' => return None,
            '\\' => item.push(letters.next()?.1),
            letter => item.push(letter),
        }
    }
    let item = item.trim_end();
    if item.is_empty() {
        return None;
    }
    let item = (!item.eq_ignore_ascii_case("null")).then(|| item.to_owned());
    Some((item, &text[end..]))
}

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
    fn texts_are_taken_apart_as_postgresql_does() {
        let some = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>();
        assert_eq!(parse("{}"), Some(vec![]));
        assert_eq!(parse(" { 1 , 2 } "), Some(some(&["1", "2"])));
        assert_eq!(parse(r#"{"a,b","c\"d",e\,f}"#), Some(some(&["a,b", "c\"d", "e,f"])));
        assert_eq!(parse(r#"{NULL,"NULL"}"#), Some(vec![None, Some("NULL".into())]));
        for broken in ["", "{", "1", "{1", "{1,}", "{,}", "{{1},{2}}", "{\"a}", "{\"a\"b}", "{a\"b}"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

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
