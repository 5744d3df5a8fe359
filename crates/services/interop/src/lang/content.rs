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

/// The longest text that is looked for: it can be the message's, and finding it takes a table of its length.
pub(super) const WANTED_BYTES_MAX: usize = 64 << 10;

/// Texts up to this length are compared at each place; of a longer one the places are found without comparing a byte twice.
const SHORT_BYTES: usize = 64;

/// Where units end, asked for with numbers that ascend.
struct Edges<'a> {
    raw: &'a [u8],
    escape: Option<u8>,
    at: usize,
}

impl Edges<'_> {
    /// Whether a unit begins or ends there.
    fn is_at(&mut self, place: usize) -> bool {
        while self.at < place {
            self.at += unit(&self.raw[self.at..], self.escape);
        }
        self.at == place
    }
}

/// Where `wanted` stands in `raw`, also where two of these places overlap; none for an empty `wanted`.
fn occurrences<'a>(raw: &'a [u8], wanted: &'a [u8]) -> Box<dyn Iterator<Item = usize> + 'a> {
    if wanted.is_empty() || wanted.len() > raw.len() {
        return Box::new(std::iter::empty());
    }
    if wanted.len() <= SHORT_BYTES {
        let (finder, mut from) = (memchr::memmem::Finder::new(wanted), 0);
        return Box::new(std::iter::from_fn(move || {
            let found = from + finder.find(raw.get(from..)?)?;
            from = found + 1;
            Some(found)
        }));
    }
    // Knuth, Morris, Pratt: how much of `wanted` is still matched when a byte does not continue the match.
    let mut borders = vec![0_u32; wanted.len()];
    let mut matched = 0;
    for at in 1..wanted.len() {
        matched = continued(&borders, wanted, matched, wanted[at]);
        borders[at] = matched as u32;
    }
    matched = 0;
    Box::new(raw.iter().enumerate().filter_map(move |(at, byte)| {
        if matched == wanted.len() {
            matched = borders[matched - 1] as usize;
        }
        matched = continued(&borders, wanted, matched, *byte);
        (matched == wanted.len()).then(|| at + 1 - matched)
    }))
}

/// How much of `wanted` is matched with one byte more.
fn continued(borders: &[u32], wanted: &[u8], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && wanted[matched] != byte {
        matched = borders[matched - 1] as usize;
    }
    matched + usize::from(wanted[matched] == byte)
}

/// The positions of `wanted` in `raw`, units matched whole, none overlapping; none for an empty `wanted`. The time is that of going
/// through `raw` some times, whatever both contain.
fn places<'a>(raw: &'a [u8], wanted: &'a [u8], escape: Option<u8>) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut free = 0;
    let (mut starts, mut ends) = (Edges { raw, escape, at: 0 }, Edges { raw, escape, at: 0 });
    occurrences(raw, wanted).filter_map(move |start| {
        let end = start + wanted.len();
        // `wanted` may not end inside an escape sequence of `raw`: a lone `\` is not the beginning of `\T\`.
        let whole = start >= free && starts.is_at(start) && ends.is_at(end);
        whole.then(|| {
            free = end;
            start..end
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

    /// What stands in for `places`: each unit is compared, and the units behind it are walked.
    fn plain_places(raw: &[u8], wanted: &[u8]) -> Vec<Range<usize>> {
        let (mut free, mut found) = (0, Vec::new());
        for start in units(raw, ESCAPE).map(|unit| unit.start) {
            let mut behind = units(&raw[start..], ESCAPE).map(|unit| unit.end);
            let is_there = !wanted.is_empty() && start >= free && raw[start..].starts_with(wanted);
            if is_there && behind.find(|end| *end >= wanted.len()) == Some(wanted.len()) {
                free = start + wanted.len();
                found.push(start..free);
            }
        }
        found
    }

    #[test]
    fn a_text_is_found_where_comparing_each_unit_finds_it() {
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut text = |most: usize| -> Vec<u8> {
                let piece: Vec<u8> =
                    (0..random.usize(1..4)).map(|_| *random.choice(b"ab\\T\xc3").expect("some")).collect();
                piece.repeat(random.usize(1..most))
            };
            let wanted = text(if seed % 2 == 0 { 4 } else { 60 });
            let raw = [text(30), wanted.clone(), text(60), wanted.clone(), text(3)].concat();
            let found: Vec<_> = places(&raw, &wanted, ESCAPE).collect();
            assert_eq!(found, plain_places(&raw, &wanted), "seed {seed}");
        }
    }

    /// With work that grows with the square of the length this takes hours.
    #[test]
    fn a_text_of_the_message_is_found_in_time_that_grows_with_the_length() {
        const MANY: usize = 4 << 20;
        let most = WANTED_BYTES_MAX;
        let sequences = b"\\.br\\".repeat(MANY / 5);
        let cases: [(Vec<u8>, Vec<u8>, usize); 4] = [
            (b"a".repeat(MANY), [&b"a".repeat(most - 1)[..], b"b"].concat(), 0),
            (sequences.clone(), [&sequences[..most / 5 * 5 - 5], b"\\"].concat(), 0),
            ([b"\\Z", &b"a".repeat(MANY)[..], b"\\"].concat(), b"a".repeat(most), 0),
            (b"a".repeat(MANY), b"a".repeat(most), MANY / most),
        ];
        for (number, (raw, wanted, expected)) in cases.iter().enumerate() {
            assert_eq!(places(raw, wanted, ESCAPE).count(), *expected, "case {number}");
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
