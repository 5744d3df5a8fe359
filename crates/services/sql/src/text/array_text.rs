//! Arrays of one dimension as text, split into elements: `{1,NULL,"a b"}`.

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
}
