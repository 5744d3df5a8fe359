//! Names as SQL writes and reads them: in quotes if they need them, with points between their parts.

use super::keywords;

/// A name as SQL writes it.
pub(crate) fn quoted(name: &str) -> String {
    let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit());
    let plain = letters && !name.starts_with(|first: char| first.is_ascii_digit()) && !name.is_empty();
    if plain && !keywords::is_reserved(name) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The parts of a name with points, folded; `None` if it is not a name.
pub(crate) fn parts(name: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = name.trim();
    loop {
        let part;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut end = 0;
            let bytes = quoted.as_bytes();
            loop {
                end += quoted[end..].find('"')?;
                if bytes.get(end + 1) != Some(&b'"') {
                    break;
                }
                end += 2;
            }
            part = quoted[..end].replace("\"\"", "\"");
            rest = &quoted[end + 1..];
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            part = rest[..end].to_lowercase();
            let is_letter = |letter: char| letter.is_alphabetic() || letter == '_';
            if !part.starts_with(is_letter) || !part.chars().all(|c| is_letter(c) || c.is_numeric() || c == '$') {
                return None;
            }
            rest = &rest[end..];
        }
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_sql_would_not_read_as_they_are_get_quotes() {
        for (name, expected) in [
            ("a_1", "a_1"),
            ("select", "\"select\""),
            ("integer", "\"integer\""),
            ("name", "name"),
            ("1a", "\"1a\""),
            ("Ab", "\"Ab\""),
            ("a\"b", "\"a\"\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(name), expected, "{name}");
        }
    }

    #[test]
    fn names_are_cut_at_points_outside_of_quotes() {
        for (name, expected) in [
            ("T", Some(vec!["t"])),
            ("S.T", Some(vec!["s", "t"])),
            ("\"S.x\".\"a\"\"b\"", Some(vec!["S.x", "a\"b"])),
            ("\"open", None),
            ("a..b", None),
            ("a b", None),
            ("1a", None),
            ("\"a\"b", None),
            ("", None),
        ] {
            let expected = expected.map(|parts| parts.into_iter().map(String::from).collect::<Vec<_>>());
            assert_eq!(parts(name), expected, "{name}");
        }
    }
}
