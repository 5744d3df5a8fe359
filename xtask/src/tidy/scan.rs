//! A hand-written scanner for Rust text: it separates code, comments and literals.
//!
//! ```text
//!   text      let a = "x; // y"; // why
//!   code      let a = "       ";
//!   comments                     // why
//! ```
//!
//! Invariant: both views have the length and the line ends of the text, so an offset in one view is valid in the other.
//! `code` keeps the quotes of a literal, but not its content.
//!
//! It does not parse. The rules that use it are heuristics over tokens; rustc and clippy check the rest.

/// The two views of one Rust file.
pub(crate) struct Source {
    /// The text, with spaces in place of comments and the contents of literals.
    pub(crate) code: String,
    /// The text, with spaces in place of everything but comments.
    pub(crate) comments: String,
}

/// The kind of a byte of the text.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    /// Splits `text` into its views.
    pub(crate) fn scan(text: &str) -> Source {
        let bytes = text.as_bytes();
        let mut kinds = vec![Kind::Code; bytes.len()];
        let mut at = 0;
        while at < bytes.len() {
            let (kind, end) = next(bytes, at);
            kinds[at..end].fill(kind);
            at = end;
        }
        let view = |wanted: Kind| {
            let kept = bytes
                .iter()
                .zip(&kinds)
                .map(|(&byte, &kind)| if byte == b'\n' || kind == wanted { byte } else { b' ' });
            String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
        };
        Source { code: view(Kind::Code), comments: view(Kind::Comment) }
    }

    /// The number (from 1) of the line with byte `at`.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        line_of(&self.code, at)
    }

    /// Every function with a body: its name, first line and last line.
    pub(crate) fn functions(&self) -> Vec<(String, usize, usize)> {
        let mut found = Vec::new();
        for at in words(&self.code, "fn") {
            let rest = &self.code[at + 2..];
            let name: String = rest.trim_start().chars().take_while(|c| is_word(*c) || *c == '$').collect();
            if name.is_empty() {
                continue; // the type of a function pointer
            }
            if let Some(end) = self.body_end(at) {
                found.push((name, self.line_of(at), self.line_of(end)));
            }
        }
        found
    }

    /// The lines (from 1) inside `#[cfg(test)]` modules and items.
    pub(crate) fn test_lines(&self) -> Vec<std::ops::RangeInclusive<usize>> {
        let starts = self.code.match_indices("#[cfg(test)]").map(|(at, _)| at);
        starts.filter_map(|at| Some(self.line_of(at)..=self.line_of(self.body_end(at + 12)?))).collect()
    }

    /// The offset of the brace that closes the item at `at`; `None` if the item ends with a semicolon.
    fn body_end(&self, at: usize) -> Option<usize> {
        let (mut nesting, mut braces) = (0i32, 0i32);
        for (offset, byte) in self.code.bytes().enumerate().skip(at) {
            match byte {
                b'(' | b'[' => nesting += 1,
                b')' | b']' => nesting -= 1,
                b';' if nesting == 0 && braces == 0 => return None,
                b'{' if nesting == 0 || braces > 0 => braces += 1,
                b'}' if braces > 0 => {
                    braces -= 1;
                    if braces == 0 {
                        return Some(offset);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// The number (from 1) of the line of `text` with byte `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

/// Whether `c` can be part of a Rust name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Offsets of `word` in `text` as a whole word.
pub(crate) fn words<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back().is_some_and(is_word);
        let after = text[at + word.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// The kind of the token at `at`, and its end. The quotes of a literal are separate tokens of code.
fn next(bytes: &[u8], at: usize) -> (Kind, usize) {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => (Kind::Comment, at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => (Kind::Comment, at + block_comment(rest)),
        [b'"', ..] => literal_or_quote(bytes, at),
        [b'r', b'"' | b'#', ..] | [b'b' | b'c', b'r', b'"' | b'#', ..] if starts_word(bytes, at) => {
            raw_string(bytes, at)
        }
        [b'\'', ..] => (Kind::Literal, at + char_or_lifetime(rest)),
        _ => (Kind::Code, at + 1),
    }
}

fn starts_word(bytes: &[u8], at: usize) -> bool {
    at == 0 || !is_word(bytes[at - 1] as char)
}

/// The length of a block comment, with nested ones.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// A string literal with escapes, from its opening quote.
fn literal_or_quote(bytes: &[u8], at: usize) -> (Kind, usize) {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (Kind::Literal, (end + 1).min(bytes.len()))
}

/// A raw string (`r"`, `r#"`, `br#"`, ...); a raw identifier (`r#name`) is code.
fn raw_string(bytes: &[u8], at: usize) -> (Kind, usize) {
    let r = at + bytes[at..].iter().position(|b| *b == b'r').unwrap_or(0);
    let hashes = bytes[r + 1..].iter().take_while(|b| **b == b'#').count();
    let open = r + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return (Kind::Code, r + 1);
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    (Kind::Literal, length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// The length of a character literal. For a lifetime it is the quote only, so that the name stays code.
fn char_or_lifetime(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|b| *b == b'\'');
        return close.map_or(rest.len(), |close| close + 4);
    }
    // One character of up to four UTF-8 bytes and a closing quote; anything else is a lifetime.
    let width = rest.get(1).map_or(0, |lead| match lead {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    });
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::scan(text).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_leave_the_code_view() {
        for (text, expected) in [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            ("f(\"x // \\\" y\") + 1", "f( ) + 1"),
            ("f(r#\"a \" b\"#, z)", "f( , z)"),
            ("f(br\"a\", b\"b\")", "f( , b )"),
            ("let c = '\"'; d", "let c = ; d"),
            ("let c = '\\''; d", "let c = ; d"),
            ("fn f<'a>(x: &'a str) {}", "fn f< a>(x: & a str) {}"),
            ("let r#type = 1;", "let r#type = 1;"),
            ("for x in y { r\"z\" }", "for x in y { }"),
        ] {
            assert_eq!(code(text), expected, "text: {text}");
        }
    }

    #[test]
    fn both_views_keep_length_and_lines() {
        let text = "a // b\n\"\u{e9}\n\" /* c\n */ d";
        let source = Source::scan(text);
        assert_eq!((source.code.len(), source.comments.len()), (text.len(), text.len()));
        assert_eq!(source.code.lines().count(), text.lines().count());
        assert_eq!(source.comments.trim(), "// b\n   \n  /* c\n */");
    }

    #[test]
    fn functions_are_measured_from_fn_to_their_closing_brace() {
        let source = Source::scan("fn a(x: [u8; { 3 }]) {\n  if x {\n  }\n}\ntrait T { fn b(); }\ntype F = fn(u8);\n");
        assert_eq!(source.functions(), [("a".to_owned(), 1, 4)]);
    }

    #[test]
    fn test_modules_are_found_with_their_lines() {
        let source = Source::scan("fn a() {}\n#[cfg(test)]\nmod tests {\n}\nfn b() {}\n");
        assert_eq!(source.test_lines(), [2..=4]);
    }
}
