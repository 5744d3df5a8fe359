//! Reading the bytes of a declared file: blanks, comments, words, names, strings, numbers and paths.
//!
//! There is no token stream. `to-billing` is one name after `call` and `o-5` is a place of the loop variable `o` in a
//! value, so the parser requests what the grammar expects at this point, and the scanner returns its position.
//!
//! Statements end at a line's end. Inside parentheses and conditions ([`Scanner::enter`]) a line may be broken.

use hl7::{Path, PathError, Place, Which};

use super::diagnostic::{Fault, SourceSpan};

/// Words that begin a statement or separate its parts: not names of variables.
pub(super) const KEYWORDS: [&str; 49] = [
    "absent",
    "after",
    "all",
    "and",
    "any",
    "append",
    "as",
    "at",
    "before",
    "call",
    "code",
    "contains",
    "copy",
    "delete",
    "drop",
    "each",
    "else",
    "empty",
    "end",
    "ends",
    "exists",
    "fail",
    "first",
    "for",
    "if",
    "in",
    "insert",
    "is",
    "let",
    "match",
    "matches",
    "move",
    "not",
    "null",
    "or",
    "otherwise",
    "reject",
    "rule",
    "send",
    "service",
    "set",
    "skip",
    "starts",
    "table",
    "to",
    "under",
    "using",
    "when",
    "with",
];

pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    free: u32,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Scanner<'a> {
        // Some editors write a byte order mark before the text; it is not part of it.
        Scanner { text, at: if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }, free: 0 }
    }

    /// Where the next thing begins, blanks skipped.
    pub(super) fn here(&mut self) -> usize {
        self.skip_blanks();
        self.at
    }

    /// From `start` to the end of what was read last.
    pub(super) fn since(&self, start: usize) -> SourceSpan {
        SourceSpan::new(start..self.at.max(start))
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// From here on a line end is a blank, until the matching [`Scanner::leave`].
    pub(super) fn enter(&mut self) {
        self.free += 1;
    }

    pub(super) fn leave(&mut self) {
        self.free -= 1;
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\n') if self.free > 0 => self.at += 1,
                Some(b'#') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    /// Skips blanks, line ends and semicolons: to the next statement.
    pub(super) fn skip_ends(&mut self) {
        loop {
            self.skip_blanks();
            match self.byte() {
                Some(b'\n' | b';') => self.at += 1,
                _ => return,
            }
        }
    }

    /// Skips line ends, where the grammar is in the middle of something.
    pub(super) fn skip_lines(&mut self) {
        self.enter();
        self.skip_blanks();
        self.leave();
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.at == self.text.len()
    }

    /// At the end of a statement: line end, semicolon, closing brace, end of file.
    pub(super) fn at_statement_end(&mut self) -> bool {
        self.skip_blanks();
        matches!(self.byte(), None | Some(b'\n' | b';' | b'}'))
    }

    /// Takes punctuation if it is next.
    pub(super) fn accept(&mut self, mark: &str) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    pub(super) fn sees(&mut self, mark: &str) -> bool {
        self.skip_blanks();
        self.rest().starts_with(mark)
    }

    pub(super) fn expect(&mut self, mark: &str, after: &str) -> Result<(), Fault> {
        if self.accept(mark) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{mark}` {after}")))
    }

    /// "expected X here", pointing at the word or character found instead.
    pub(super) fn unexpected(&mut self, expected: &str) -> Fault {
        let span = self.word_span();
        let found = &self.text[span.start as usize..span.end as usize];
        let end = found.is_empty() || found == "\n";
        let found = if end { "the line ends".to_owned() } else { format!("found `{found}`") };
        let fault = Fault::new(span, format!("expected {expected}, {found}"));
        match self.word().map(str::to_lowercase) {
            Some(lower) if KEYWORDS.contains(&lower.as_str()) && self.word() != Some(lower.as_str()) => {
                fault.hint(format!("keywords are written in lower case: `{lower}`"))
            }
            _ => fault,
        }
    }

    /// The word or single character here.
    pub(super) fn word_span(&mut self) -> SourceSpan {
        self.skip_blanks();
        let length = match self.word() {
            Some(word) => word.len(),
            None => self.rest().chars().next().map_or(0, char::len_utf8),
        };
        let length = if self.byte() == Some(b'\n') { 0 } else { length };
        SourceSpan::new(self.at..self.at + length)
    }

    /// The word here, not taken: a letter or `_`, then letters, digits, `_`.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        let rest = self.rest();
        let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let letter = rest.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        (letter && length > 0).then(|| &rest[..length])
    }

    pub(super) fn accept_word(&mut self, wanted: &str) -> bool {
        let found = self.word() == Some(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    /// Takes the word if it is next, be it some lines below; else stays here.
    pub(super) fn accept_word_below(&mut self, wanted: &str) -> bool {
        let before = self.at;
        self.skip_lines();
        let found = self.accept_word(wanted);
        if !found {
            self.at = before;
        }
        found
    }

    pub(super) fn expect_word(&mut self, wanted: &str, after: &str) -> Result<(), Fault> {
        if self.accept_word(wanted) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{wanted}` {after}")))
    }

    /// The name of a variable: a word.
    pub(super) fn identifier(&mut self, what: &str) -> Result<(String, SourceSpan), Fault> {
        let start = self.here();
        let Some(word) = self.word() else { return Err(self.unexpected(what)) };
        self.at += word.len();
        Ok((word.to_owned(), self.since(start)))
    }

    /// The name of a file or a rule: a letter or digit, then also `-` and `.`; or any text in quotes.
    pub(super) fn name(&mut self, what: &str) -> Result<(String, SourceSpan), Fault> {
        let start = self.here();
        if matches!(self.byte(), Some(b'\'' | b'"')) {
            return Ok((self.string()?, self.since(start)));
        }
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let length = self.rest().bytes().take_while(inner).count();
        if length == 0 || !self.rest().as_bytes()[0].is_ascii_alphanumeric() {
            return Err(self.unexpected(what));
        }
        let name = self.rest()[..length].to_owned();
        self.at += length;
        Ok((name, self.since(start)))
    }

    pub(super) fn sees_string(&mut self) -> bool {
        self.skip_blanks();
        matches!(self.byte(), Some(b'\'' | b'"'))
    }

    /// A text in single or double quotes on one line; a doubled quote means one quote; no other escapes.
    pub(super) fn string(&mut self) -> Result<String, Fault> {
        let start = self.here();
        let quote = match self.byte() {
            Some(quote @ (b'\'' | b'"')) => quote as char,
            _ => return Err(self.unexpected("a text in quotes")),
        };
        let mut text = String::new();
        let mut characters = self.text[start + 1..].char_indices().peekable();
        while let Some((offset, character)) = characters.next() {
            if character == '\n' {
                break;
            }
            if character != quote {
                text.push(character);
            } else if characters.next_if(|(_, next)| *next == quote).is_some() {
                text.push(quote);
            } else {
                self.at = start + 1 + offset + 1;
                return Ok(text);
            }
        }
        self.at = start + self.text[start..].lines().next().map_or(0, str::len);
        Err(Fault::new(self.since(start), format!("this text has no closing {quote}"))
            .hint(format!("a text ends on its line; write a {quote} inside it twice: {quote}{quote}")))
    }

    pub(super) fn sees_number(&mut self) -> bool {
        self.skip_blanks();
        let rest = self.rest().as_bytes();
        let digits = if rest.first() == Some(&b'-') { &rest[1..] } else { rest };
        digits.first().is_some_and(u8::is_ascii_digit)
    }

    /// Digits with an optional sign and fraction, as written.
    pub(super) fn number(&mut self) -> Result<(String, SourceSpan), Fault> {
        let start = self.here();
        if !self.sees_number() {
            return Err(self.unexpected("a number"));
        }
        let bytes = self.rest().as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let sign = usize::from(bytes[0] == b'-');
        let mut length = sign + digits(sign);
        if bytes.get(length) == Some(&b'.') && digits(length + 1) > 0 {
            length += 1 + digits(length + 1);
        }
        self.at += length;
        let span = self.since(start);
        if self.rest().bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Fault::new(span, "a number is followed by a letter").hint("put texts in quotes"));
        }
        Ok((self.text[start..self.at].to_owned(), span))
    }

    /// Three characters like a segment's name, not the beginning of a longer word.
    pub(super) fn sees_segment(&mut self) -> bool {
        self.word().is_some_and(|word| {
            word.len() == 3
                && word.as_bytes()[0].is_ascii_uppercase()
                && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        })
    }

    /// A path of the message; true beside it if an occurrence was written after the segment's name.
    pub(super) fn path(&mut self) -> Result<(Path, bool, SourceSpan), Fault> {
        let start = self.here();
        let line = self.line();
        let indexed = matches!(line.as_bytes().get(3), Some(b'[' | b'('));
        match Path::parse_prefix(line) {
            Ok((path, length)) => {
                self.at += length;
                let span = self.since(start);
                match self.rest().bytes().next() {
                    Some(byte) if byte.is_ascii_alphanumeric() || b"-.[_:".contains(&byte) => Err(Fault::new(
                        SourceSpan::new(self.at..self.at + 1),
                        "this does not belong to the path before it",
                    )
                    .hint(PATH_HINT)),
                    _ => check_conditions(&path, span).map(|()| (path, indexed, span)),
                }
            }
            Err(error) => Err(self.path_fault(&error, start, 0)),
        }
    }

    /// The `-5.1` after a loop variable: the place in its segment.
    pub(super) fn place_after_variable(&mut self) -> Option<Result<Place, Fault>> {
        let bytes = self.rest().as_bytes();
        if bytes.first() != Some(&b'-') || !bytes.get(1).is_some_and(u8::is_ascii_digit) {
            return None;
        }
        let start = self.at;
        // Any segment's name would do: only the place behind it is kept.
        let whole = format!("ZZZ{}", self.line());
        Some(match Path::parse_prefix(&whole) {
            Ok((path @ Path { place: Some(_), .. }, length)) => {
                self.at += length - 3;
                check_conditions(&path, self.since(start))
                    .map(|()| path.place.expect("the pattern says that there is one"))
            }
            Ok(_) => {
                Err(Fault::new(SourceSpan::new(start..start + 1), "this is no place in a segment").hint(PATH_HINT))
            }
            Err(error) => Err(self.path_fault(&error, start, 3)),
        })
    }

    /// A path that does not parse; its text began `before` bytes before `start`.
    fn path_fault(&mut self, error: &PathError, start: usize, before: usize) -> Fault {
        let end = start + path_length(&self.text[start..]);
        let at = (start + error.column).saturating_sub(1 + before).clamp(start, end);
        self.at = end;
        Fault::new(SourceSpan::new(at..end.max(at + 1)), error.problem.to_string()).hint(PATH_HINT)
    }

    /// The `.4.2` after a loop variable: component and subcomponent of its repetition.
    pub(super) fn components_after_variable(&mut self) -> Option<Result<(u16, Option<u16>), Fault>> {
        let start = self.at;
        let first = self.dotted()?;
        let second = self.dotted();
        let span = self.since(start);
        let valid = |number: &Option<u16>| number.filter(|n| *n > 0);
        Some(match (valid(&first), second) {
            (Some(component), None) => Ok((component, None)),
            (Some(component), Some(sub)) if valid(&sub).is_some() => Ok((component, sub)),
            _ => Err(Fault::new(span, "components are numbered from 1 to 65535")),
        })
    }

    /// `.` and digits: the outer option is whether they are there, the inner whether the number fits.
    fn dotted(&mut self) -> Option<Option<u16>> {
        let bytes = self.rest().as_bytes();
        if bytes.first() != Some(&b'.') {
            return None;
        }
        let digits = bytes[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let number = self.rest()[1..1 + digits].parse().ok();
        self.at += 1 + digits;
        Some(number)
    }

    fn line(&self) -> &'a str {
        self.rest().lines().next().unwrap_or("")
    }

    /// After a fault: to the end of the line, or past the block that begins on it.
    pub(super) fn recover(&mut self) {
        let mut depth = 0usize;
        let mut quote = None;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match (byte, quote) {
                (b'\n', _) => {
                    quote = None;
                    if depth == 0 {
                        return;
                    }
                }
                (byte, Some(open)) if *byte == open => quote = None,
                (_, Some(_)) => {}
                (b'\'' | b'"', None) => quote = Some(*byte),
                (b'#', None) => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                    continue;
                }
                (b'{', None) => depth += 1,
                (b'}', None) if depth == 0 => return,
                (b'}', None) => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }
}

/// How a path is written, for the hint beside a fault in one.
const PATH_HINT: &str = "a path is SEG-field.component.subcomponent, all counted from 1: PID-5.1, OBX[2]-5, \
                         PID-3[2].1, OBX[*]-5, OBX[last]-5, OBX[3.1='GLU']-5";

/// A condition in a path is compared with raw bytes, whatever the message's delimiters and character set are: its value
/// must mean the same in all of them.
fn check_conditions(path: &Path, span: SourceSpan) -> Result<(), Fault> {
    let repetition = path.place.as_ref().and_then(|place| place.repetition.as_ref());
    for which in [Some(&path.segment.which), repetition].into_iter().flatten() {
        let Which::Where(condition) = which else { continue };
        if !condition.equals.is_ascii() {
            return Err(Fault::new(span, "a condition in a path holds a letter that is not ASCII")
                .hint("its bytes depend on the message's character set; use `for each` and `if`"));
        }
        if condition.equals.iter().any(|byte| b"|^~&\\".contains(byte)) {
            return Err(Fault::new(span, "a condition in a path holds a delimiter")
                .hint("name the component, as in OBX[3.1='GLU']; for other texts use `for each` and `if`"));
        }
    }
    Ok(())
}

/// How far a path that does not parse seems to go: for the caret line only.
fn path_length(line: &str) -> usize {
    let mut brackets = 0usize;
    for (offset, character) in line.char_indices() {
        match character {
            '[' => brackets += 1,
            ']' => brackets = brackets.saturating_sub(1),
            '\n' => return offset.max(1),
            ' ' | '\t' | ',' | ')' | '=' | '+' | '{' if brackets == 0 => return offset.max(1),
            _ => {}
        }
    }
    line.len()
}
