//! Escape sequences: how text contains characters that would otherwise separate.
//!
//! ```text
//! \F\ field   \S\ component   \T\ subcomponent   \R\ repetition   \E\ escape   \P\ truncation     the delimiters
//! \X0D0A\  bytes in hex                                                                           decoded
//! \.br\ \.sp3\ \.ce\  new lines    \.sk4\  blanks    \.in+2\ \.ti-2\ \.fi\ \.nf\ \H\ \N\  layout  see `unescape`
//! \C2842\ \M208B3E\  other character sets    \Zany\  by agreement                                 kept as written
//! ```
//!
//! (HL7 2.5.1, 2.7.) Letters are case-sensitive and sequences do not nest. A backslash that starts none of these is
//! text: it stays, so that nothing a sender wrote is lost.
//!
//! Invariants: `unescape(escape(text)) == text`; `escape` returns no delimiter and no line end, if the message declares
//! an escape character; after `convert`, `unescape` returns the same text for each leaf value (except that sequences
//! kept as written get the target's escape characters).
//!
//! All of this works on bytes whose values below 0x80 mean ASCII (see the crate's head comment).

use std::borrow::Cow;

use memchr::memchr;

use crate::Delimiters;

/// Escapes literal text for a field: delimiters as `\F\` and so on, LF as `\.br\`, other control bytes except TAB in
/// hex (MLLP carries none below 0x20 but CR). What looks like an escape sequence in `text` is text too, and is escaped;
/// so never give it a value taken from a message.
///
/// In a message that declares no escape character nothing can be escaped: the text is returned unchanged, and
/// [`Draft::set`](crate::Draft::set) refuses it where it would split a place.
#[must_use]
pub fn escape(text: &[u8], d: Delimiters) -> Cow<'_, [u8]> {
    let Some(escape) = d.escape else { return Cow::Borrowed(text) };
    let Some(first) = text.iter().position(|&b| must_escape(b, d)) else { return Cow::Borrowed(text) };
    let mut out = Vec::with_capacity(text.len() + 16);
    out.extend_from_slice(&text[..first]);
    for &byte in &text[first..] {
        push_literal(&mut out, byte, d, escape);
    }
    Cow::Owned(out)
}

/// Text from a raw value: delimiters and hex decoded, `\.br\`, `\.sp<n>\` (n lines, 1 if not given) and `\.ce\` as LF,
/// `\.sk<n>\` as blanks; layout that plain text cannot show (highlighting, indents, wrapping) is left out. `\C..\`,
/// `\M..\`, `\Z..\`, unknown sequences and lone escape characters are kept as written.
#[must_use]
pub fn unescape(raw: &[u8], d: Delimiters) -> Cow<'_, [u8]> {
    let Some(escape) = d.escape else { return Cow::Borrowed(raw) };
    if memchr(escape, raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    for token in (Tokens { rest: raw, d, escape }) {
        match token {
            Token::Text(text) | Token::Sequence { written: text, means: Meaning::Kept } => out.extend_from_slice(text),
            Token::Sequence { means, .. } => means.push_text(&mut out),
        }
    }
    Cow::Owned(out)
}

/// Whether a sequence in hex names a byte above 0x7F, which is text of one charset only.
#[must_use]
pub fn has_high_bytes(raw: &[u8], d: Delimiters) -> bool {
    let Some(escape) = d.escape else { return false };
    (Tokens { rest: raw, d, escape }).any(|token| match token {
        Token::Sequence { means: Meaning::Hex(digits), .. } => digits.chunks_exact(2).any(|pair| hex(pair[0]) >= 8),
        _ => false,
    })
}

/// A raw value of one message as a raw value of another with different delimiters: separators and escape sequences
/// are translated, text that would separate there is escaped. A level the target does not declare cannot be kept
/// apart; its separators become text.
///
/// For fields and below, and for whole segments that are no header: MSH-1 and MSH-2 are not values.
#[must_use]
pub fn convert(raw: &[u8], from: Delimiters, to: Delimiters) -> Cow<'_, [u8]> {
    if from == to {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len() + raw.len() / 16);
    let Some(escape) = from.escape else {
        convert_text(&mut out, raw, from, to);
        return Cow::Owned(out);
    };
    for token in (Tokens { rest: raw, d: from, escape }) {
        match token {
            Token::Text(text) => convert_text(&mut out, text, from, to),
            Token::Sequence { written, means } => convert_sequence(&mut out, written, &means, to),
        }
    }
    Cow::Owned(out)
}

/// Text and separators of `from`, written for `to`.
fn convert_text(out: &mut Vec<u8>, text: &[u8], from: Delimiters, to: Delimiters) {
    for &byte in text {
        let target = match Some(byte) {
            b if b == Some(from.field) => Some(to.field),
            b if b == from.component => to.component,
            b if b == from.repetition => to.repetition,
            b if b == from.subcomponent => to.subcomponent,
            b if b == from.truncation => to.truncation,
            _ => None,
        };
        match (target, to.escape) {
            (Some(separator), _) => out.push(separator),
            (None, Some(escape)) if to.contains(byte) => push_literal(out, byte, to, escape),
            (None, _) => out.push(byte),
        }
    }
}

/// One escape sequence, written for `to`.
fn convert_sequence(out: &mut Vec<u8>, written: &[u8], means: &Meaning, to: Delimiters) {
    let body = &written[1..written.len() - 1];
    match (means, to.escape) {
        (Meaning::Delimiter(byte), Some(escape)) => push_literal(out, *byte, to, escape),
        (_, Some(escape)) if !body.iter().any(|&b| to.contains(b)) => {
            out.push(escape);
            out.extend_from_slice(body);
            out.push(escape);
        }
        // Nothing can be escaped there, or the sequence's own letters separate there (`.` as a delimiter): its text.
        (Meaning::Kept, Some(escape)) => written.iter().for_each(|&b| push_literal(out, b, to, escape)),
        (_, Some(escape)) => {
            let mut text = Vec::new();
            means.push_text(&mut text);
            text.iter().for_each(|&b| push_literal(out, b, to, escape));
        }
        (Meaning::Kept, None) => out.extend_from_slice(written),
        (_, None) => means.push_text(out),
    }
}

/// Whether literal text cannot hold this byte.
fn must_escape(byte: u8, d: Delimiters) -> bool {
    (byte < b' ' && byte != b'\t') || d.contains(byte)
}

/// One byte of literal text, escaped where it must be.
fn push_literal(out: &mut Vec<u8>, byte: u8, d: Delimiters, escape: u8) {
    if !must_escape(byte, d) {
        return out.push(byte);
    }
    let letter = match Some(byte) {
        b if b == Some(d.field) => b'F',
        b if b == d.component => b'S',
        b if b == d.subcomponent => b'T',
        b if b == d.repetition => b'R',
        b if b == d.escape => b'E',
        b if b == d.truncation => b'P',
        Some(b'\n') if !d.contains(b'.') => {
            out.extend_from_slice(&[escape, b'.', b'b', b'r', escape]);
            return;
        }
        _ => {
            let digit = |n: u8| b"0123456789ABCDEF"[usize::from(n)];
            out.extend_from_slice(&[escape, b'X', digit(byte >> 4), digit(byte & 15), escape]);
            return;
        }
    };
    out.extend_from_slice(&[escape, letter, escape]);
}

/// A raw value, cut into text and escape sequences.
struct Tokens<'a> {
    rest: &'a [u8],
    d: Delimiters,
    escape: u8,
}

enum Token<'a> {
    /// No sequence in it; may hold escape characters that start none.
    Text(&'a [u8]),
    /// With its two escape characters.
    Sequence { written: &'a [u8], means: Meaning<'a> },
}

enum Meaning<'a> {
    /// This one character.
    Delimiter(u8),
    /// Pairs of hex digits.
    Hex(&'a [u8]),
    /// This many of this character.
    Spacing(u8, usize),
    /// Something plain text cannot show.
    Kept,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let end = match memchr(self.escape, self.rest) {
            Some(0) => {
                let close = self.rest[1..].iter().position(|&b| b == self.escape).map_or(self.rest.len(), |n| n + 1);
                let means = self.rest.get(1..close).filter(|_| close < self.rest.len());
                if let Some(means) = means.and_then(|body| meaning(body, self.d)) {
                    let (written, rest) = self.rest.split_at(close + 1);
                    self.rest = rest;
                    return Some(Token::Sequence { written, means });
                }
                close
            }
            Some(at) => at,
            None => self.rest.len(),
        };
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        if text.is_empty() { None } else { Some(Token::Text(text)) }
    }
}

impl Meaning<'_> {
    fn push_text(&self, out: &mut Vec<u8>) {
        match *self {
            Meaning::Delimiter(byte) => out.push(byte),
            Meaning::Spacing(byte, times) => out.resize(out.len() + times, byte),
            Meaning::Hex(digits) => out.extend(digits.chunks_exact(2).map(|pair| hex(pair[0]) << 4 | hex(pair[1]))),
            Meaning::Kept => {}
        }
    }
}

/// The meaning of the text between two escape characters; none if it is no sequence.
fn meaning(body: &[u8], d: Delimiters) -> Option<Meaning<'_>> {
    let all_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    match body {
        b"F" => Some(Meaning::Delimiter(d.field)),
        b"S" => d.component.map(Meaning::Delimiter),
        b"T" => d.subcomponent.map(Meaning::Delimiter),
        b"R" => d.repetition.map(Meaning::Delimiter),
        b"E" => d.escape.map(Meaning::Delimiter),
        b"P" => d.truncation.map(Meaning::Delimiter),
        b"H" | b"N" => Some(Meaning::Spacing(b' ', 0)),
        [b'X', digits @ ..] if !digits.is_empty() && digits.len() % 2 == 0 && all_hex(digits) => {
            Some(Meaning::Hex(digits))
        }
        [b'C', digits @ ..] if digits.len() == 4 && all_hex(digits) => Some(Meaning::Kept),
        [b'M', digits @ ..] if matches!(digits.len(), 4 | 6) && all_hex(digits) => Some(Meaning::Kept),
        [b'Z', rest @ ..] if !rest.iter().any(|&b| d.contains(b)) => Some(Meaning::Kept),
        [b'.', a, b, number @ ..] => layout(&[*a, *b], number),
        _ => None,
    }
}

/// A formatting command: two letters, and for some of them a number.
fn layout(command: &[u8; 2], number: &[u8]) -> Option<Meaning<'static>> {
    let signed = matches!(number, [b'+' | b'-', ..]);
    let digits = if signed { &number[1..] } else { number };
    // At most 255: a short sequence must not produce gigabytes of blanks. A larger number is no sequence, and is kept.
    let count = match std::str::from_utf8(digits).ok()?.parse::<u8>() {
        Ok(count) if digits[0].is_ascii_digit() => usize::from(count),
        _ if number.is_empty() => 1,
        _ => return None,
    };
    match command {
        b"br" | b"ce" if number.is_empty() => Some(Meaning::Spacing(b'\n', 1)),
        b"fi" | b"nf" if number.is_empty() => Some(Meaning::Spacing(b' ', 0)),
        b"sp" if number.first() != Some(&b'-') => Some(Meaning::Spacing(b'\n', count)),
        b"sk" if !signed => Some(Meaning::Spacing(b' ', count)),
        b"in" | b"ti" => Some(Meaning::Spacing(b' ', 0)),
        _ => None,
    }
}

/// The value of a hex digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
