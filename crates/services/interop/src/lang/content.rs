//! Text functions on raw field content; they leave delimiters and escape sequences unchanged.
//!
//! ```text
//! raw content:   Smith \T\ Sons^Ltd\.br\x
//! units:         S m i t h _ \T\ _ S o n s ^ L t d \.br\ x       an escape sequence is one unit, so is a delimiter
//! ```
//!
//! A value in the language is raw content, as in the message. A function walks its units: a character, a delimiter, or
//! a whole escape sequence. So `upper` never turns `\.br\` into `\.BR\`, `substring` never cuts a sequence in two,
//! `replace(x, '&', '+')` finds the text `&` (written `\T\`) and not the delimiter, and a function that has nothing to
//! change returns the same bytes.
//!
//! Not UTF-8 (an ISO 8859 message)? Then each byte is a character, and only ASCII letters change case.

use std::ops::Range;

/// Length of the unit at the beginning of `raw`, which is not empty.
fn unit(raw: &[u8], escape: Option<u8>) -> usize {
    if Some(raw[0]) == escape {
        return sequence(raw, raw[0]).unwrap_or(1);
    }
    character(raw).map_or(1, |(_, length)| length)
}

/// The length of the escape sequence `raw` begins with; `None` for a lone escape character.
///
/// HL7 v2.5.1, 2.7: F S T R E are delimiters, H N highlighting, X C M hexadecimal, Z local, `.` formatting; P and L
/// (2.7) are the truncation character.
fn sequence(raw: &[u8], escape: u8) -> Option<usize> {
    let body = memchr::memchr(escape, &raw[1..])?;
    let (first, rest) = raw[1..=body].split_first()?;
    let known = match first {
        b'F' | b'S' | b'T' | b'R' | b'E' | b'P' | b'L' | b'H' | b'N' => rest.is_empty(),
        b'X' | b'C' | b'M' => !rest.is_empty() && rest.iter().all(u8::is_ascii_hexdigit),
        b'Z' => rest.iter().all(u8::is_ascii_graphic),
        b'.' => !rest.is_empty() && rest.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-')),
        _ => false,
    };
    known.then_some(body + 2)
}

/// The character `raw` begins with and its length in bytes, if it is UTF-8.
fn character(raw: &[u8]) -> Option<(char, usize)> {
    let head = &raw[..raw.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).expect("valid up to there by the error's word"),
    };
    valid.chars().next().map(|c| (c, c.len_utf8()))
}

/// The units of `raw` as ranges.
fn units(raw: &[u8], escape: Option<u8>) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = raw.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        at += unit(rest, escape);
        Some(start..at)
    })
}

/// How many units there are: the length of a text.
pub(super) fn length(raw: &[u8], escape: Option<u8>) -> usize {
    units(raw, escape).count()
}

/// Which letters a change of case makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Lower,
}

/// Appends `raw` with its letters changed.
pub(super) fn change_case(raw: &[u8], escape: Option<u8>, case: Case, to: &mut Vec<u8>) {
    for range in units(raw, escape) {
        let unit = &raw[range];
        if Some(unit[0]) == escape {
            to.extend_from_slice(unit);
            continue;
        }
        match (character(unit), case) {
            (Some((c, _)), Case::Upper) => to.extend(c.to_uppercase().collect::<String>().bytes()),
            (Some((c, _)), Case::Lower) => to.extend(c.to_lowercase().collect::<String>().bytes()),
            (None, _) => to.extend_from_slice(unit),
        }
    }
}

/// The part of `raw` from unit `start` (from 1; negative counts from the end) on, at most `length` units.
pub(super) fn substring(raw: &[u8], escape: Option<u8>, start: i32, length: u32) -> Range<usize> {
    let skipped = match start {
        1.. => start as usize - 1,
        _ => self::length(raw, escape).saturating_sub(start.unsigned_abs() as usize),
    };
    let mut taken = units(raw, escape).skip(skipped).take(length as usize);
    match taken.next() {
        Some(first) => first.start..taken.last().map_or(first.end, |last| last.end),
        None => raw.len()..raw.len(),
    }
}

/// The position of `wanted` in `raw`, units matched whole; none for an empty `wanted`.
fn places<'a>(raw: &'a [u8], wanted: &'a [u8], escape: Option<u8>) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut free = 0;
    units(raw, escape).filter_map(move |range| {
        let end = range.start + wanted.len();
        let found = !wanted.is_empty() && range.start >= free && raw[range.start..].starts_with(wanted);
        // `wanted` may not end inside an escape sequence of `raw`: a lone `\` is not the beginning of `\T\`.
        let mut within = units(&raw[range.start..], escape).map(|unit| unit.end);
        let whole = found && within.find(|unit| *unit >= wanted.len()) == Some(wanted.len());
        whole.then(|| {
            free = end;
            range.start..end
        })
    })
}

/// How many bytes [`replace`] would write, or somewhat more.
pub(super) fn replaced_bytes(raw: &[u8], from: &[u8], with: &[u8], escape: Option<u8>) -> usize {
    let growth = with.len().saturating_sub(from.len());
    if growth == 0 {
        return raw.len();
    }
    raw.len().saturating_add(places(raw, from, escape).count().saturating_mul(growth))
}

/// Appends `raw` with every `from` turned into `with`.
pub(super) fn replace(raw: &[u8], from: &[u8], with: &[u8], escape: Option<u8>, to: &mut Vec<u8>) {
    let mut kept = 0;
    for place in places(raw, from, escape) {
        to.extend_from_slice(&raw[kept..place.start]);
        to.extend_from_slice(with);
        kept = place.end;
    }
    to.extend_from_slice(&raw[kept..]);
}

/// The `number`th (from 1) of the parts that `separator` makes of `raw`; an empty range where there are fewer.
pub(super) fn split(raw: &[u8], separator: &[u8], escape: Option<u8>, number: u32) -> Range<usize> {
    let mut start = 0;
    let mut part = 1;
    for place in places(raw, separator, escape) {
        if part == number {
            return start..place.start;
        }
        part += 1;
        start = place.end;
    }
    if part == number { start..raw.len() } else { raw.len()..raw.len() }
}

/// `raw` without blanks at both ends.
pub(super) fn trim(raw: &[u8]) -> Range<usize> {
    let start = raw.len() - raw.trim_ascii_start().len();
    start..start + raw.trim_ascii().len()
}

/// Whether the whole of `text` is `pattern`, where `*` is any run of characters and `?` any one.
pub(super) fn matches(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut t, mut p) = (0, 0);
    // After a star: where the pattern continues, and the text position up to which the star has matched.
    let mut retry = None;
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            p += 1;
            retry = Some((p, t));
        } else if pattern.get(p).is_some_and(|c| *c == '?' || *c == text[t]) {
            (t, p) = (t + 1, p + 1);
        } else if let Some((star, swallowed)) = retry {
            (t, p) = (swallowed + 1, star);
            retry = Some((star, swallowed + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESCAPE: Option<u8> = Some(b'\\');

    fn made(make: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut to = Vec::new();
        make(&mut to);
        String::from_utf8(to).expect("the cases are UTF-8")
    }

    #[test]
    fn case_changes_letters_and_nothing_else() {
        let cases = [
            ("Smith \\T\\ sons^ltd", "SMITH \\T\\ SONS^LTD"),
            ("a\\.br\\b\\X0d\\c", "A\\.br\\B\\X0d\\C"),
            ("stra\u{df}e \u{e9}", "STRASSE \u{c9}"),
            ("c:\\dir\\x", "C:\\DIR\\X"),
            ("lone \\", "LONE \\"),
        ];
        for (raw, upper) in cases {
            assert_eq!(made(|to| change_case(raw.as_bytes(), ESCAPE, Case::Upper, to)), upper);
        }
        let mut latin = Vec::new();
        change_case(b"caf\xe9", ESCAPE, Case::Upper, &mut latin);
        assert_eq!(latin, b"CAF\xe9", "a byte that is not UTF-8 stays");
    }

    #[test]
    fn a_part_of_a_text_never_cuts_a_sequence() {
        let raw = "a\\T\\b\\.br\\c";
        let cases = [
            (1, 1, "a"),
            (2, 1, "\\T\\"),
            (2, 9, "\\T\\b\\.br\\c"),
            (4, 1, "\\.br\\"),
            (6, 1, ""),
            (-2, 9, "\\.br\\c"),
            (-9, 2, "a\\T\\"),
        ];
        for (start, count, expected) in cases {
            assert_eq!(&raw[substring(raw.as_bytes(), ESCAPE, start, count)], expected, "from {start}, {count} units");
        }
        assert_eq!(length(raw.as_bytes(), ESCAPE), 5);
        assert_eq!(length("\u{e9}\u{e9}".as_bytes(), ESCAPE), 2);
    }

    #[test]
    fn replacing_finds_text_and_not_the_letters_of_sequences() {
        let cases = [
            ("a\\T\\T", "T", "x", "a\\T\\x"),
            ("a\\T\\b&c", "\\T\\", "+", "a+b&c"),
            ("a^b^c", "^", " ", "a b c"),
            ("aaa", "aa", "b", "ba"),
            ("abc", "", "x", "abc"),
            ("\\E\\T", "\\", "x", "\\E\\T"),
        ];
        for (raw, from, with, expected) in cases {
            let found = made(|to| replace(raw.as_bytes(), from.as_bytes(), with.as_bytes(), ESCAPE, to));
            assert_eq!(found, expected, "{raw} with {from} to {with}");
        }
    }

    #[test]
    fn parts_count_from_one_and_missing_ones_are_empty() {
        let cases = [
            ("a, b,c", ", ", 1, "a"),
            ("a, b,c", ", ", 2, "b,c"),
            ("a, b", ", ", 3, ""),
            ("", ",", 1, ""),
            ("abc", ",", 1, "abc"),
        ];
        for (raw, separator, number, expected) in cases {
            assert_eq!(
                &raw[split(raw.as_bytes(), separator.as_bytes(), ESCAPE, number)],
                expected,
                "{raw} part {number}"
            );
        }
    }

    #[test]
    fn wildcards_match_the_whole_text() {
        let cases = [
            ("A01", "A0?", true),
            ("A01", "A*", true),
            ("A01", "*1", true),
            ("A01", "A", false),
            ("", "*", true),
            ("", "?", false),
            ("abcabc", "*abc", true),
            ("abcab", "*abc", false),
            ("aXbXc", "a*X*c", true),
            ("**", "*", true),
        ];
        for (text, pattern, expected) in cases {
            assert_eq!(matches(text, pattern), expected, "{text} against {pattern}");
        }
    }
}
