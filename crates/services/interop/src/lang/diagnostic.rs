//! Reports of faults in a file, with the information that its author needs to correct them.
//!
//! ```text
//! transforms/to-billing.hl7t:3:22: there is no table `wardz`
//!   3 | set PV1-3.1 = lookup(wardz, PV1-3.1)
//!     |                      ^^^^^
//!   hint: did you mean `wards`? The tables are: payers, wards
//! ```
//!
//! Lines and columns count from 1, columns in characters. Diagnostics quote the declared files only, never a message,
//! so they may be logged and shown to every user who may see the configuration.

use std::fmt;
use std::ops::Range;

/// The text of one declared file and its name in diagnostics.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name of the file in diagnostics: a path relative to the production folder, for example
    /// `transforms/to-billing.hl7t`.
    pub file: &'a str,
    /// The whole content.
    pub text: &'a str,
}

/// One fault found when a file was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's name as given in [`Source::file`].
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The fault, lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line of source with a caret line under it.
    pub excerpt: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}\n{}", self.file, self.line, self.column, self.message, self.excerpt)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// A diagnostic about a range of bytes of a declared file that is not in this language (the TOML files).
pub(crate) fn diagnose(source: Source<'_>, at: Range<usize>, message: String, hint: Option<String>) -> Diagnostic {
    source.diagnostic(Fault { hint, ..Fault::new(SourceSpan::new(at), message) })
}

/// A stretch of source bytes that a fault or an operation belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceSpan {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl SourceSpan {
    pub(super) fn new(range: Range<usize>) -> SourceSpan {
        // Files longer than 4 GiB are refused by `check_size` before any span is made.
        SourceSpan { start: range.start as u32, end: range.end as u32 }
    }

    pub(super) fn to(self, other: SourceSpan) -> SourceSpan {
        SourceSpan { start: self.start, end: other.end.max(self.end) }
    }
}

/// A fault before it is bound to a file.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) span: SourceSpan,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// It may be there only because a statement before it could not be read.
    pub(super) consequent: bool,
}

impl Fault {
    pub(super) fn new(span: SourceSpan, message: impl Into<String>) -> Fault {
        Fault { span, message: message.into(), hint: None, consequent: false }
    }

    pub(super) fn consequent(mut self) -> Fault {
        self.consequent = true;
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }
}

/// The longest file read: far beyond any real one, and offsets fit 32 bits.
pub(super) const MAX_FILE_BYTES: usize = 16 << 20;

impl<'a> Source<'a> {
    /// The line and column (both from 1) of a byte offset.
    pub(super) fn position(&self, offset: u32) -> (u32, u32) {
        let start = self.line_start(offset);
        let line = self.text[..start].bytes().filter(|byte| *byte == b'\n').count() as u32 + 1;
        let at = self.floor(offset as usize);
        (line, self.text[start..at].chars().count() as u32 + 1)
    }

    /// Turns a fault into what the author reads.
    pub(super) fn diagnostic(&self, fault: Fault) -> Diagnostic {
        let (line, column) = self.position(fault.span.start);
        Diagnostic {
            file: self.file.to_owned(),
            line,
            column,
            excerpt: self.excerpt(fault.span, line),
            message: fault.message,
            hint: fault.hint,
        }
    }

    /// Refuses a file that is too long to index with 32 bits.
    pub(super) fn check_size(&self) -> Result<(), Fault> {
        if self.text.len() <= MAX_FILE_BYTES {
            return Ok(());
        }
        Err(Fault::new(SourceSpan::default(), format!("the file is longer than {} MiB", MAX_FILE_BYTES >> 20)))
    }

    fn floor(&self, offset: usize) -> usize {
        let mut at = offset.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    fn line_start(&self, offset: u32) -> usize {
        self.text[..self.floor(offset as usize)].rfind('\n').map_or(0, |newline| newline + 1)
    }

    fn excerpt(&self, span: SourceSpan, line: u32) -> String {
        let start = self.line_start(span.start);
        let text = self.text[start..].lines().next().unwrap_or("");
        let number = line.to_string();
        let from = self.floor(span.start as usize);
        let to = self.floor(span.end as usize).clamp(from, (start + text.len()).max(from));
        // Tabs are kept in the caret line so that the caret is under its place for every width of a tab.
        let indent: String = self.text[start..from].chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = self.text[from..to].chars().count().max(1);
        let blank = " ".repeat(number.len());
        format!("  {number} | {text}\n  {blank} | {indent}{}", "^".repeat(carets))
    }
}

/// "did you mean `x`?" and the list of known names: the hint for an unknown name.
///
/// `kind` is the plural noun of the list: "tables".
pub(crate) fn suggest<'n>(wrong: &str, known: impl IntoIterator<Item = &'n str>, kind: &str) -> String {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    let nearest = known.iter().map(|name| (distance(wrong, name), *name)).min();
    let mut hint = String::new();
    if let Some((edits, name)) = nearest
        && edits <= wrong.chars().count().max(3) / 3
        && edits < wrong.chars().count()
    {
        hint.push_str(&format!("did you mean `{name}`? "));
    }
    let the = if hint.is_empty() { "the" } else { "The" };
    /// A longer list of names would not be read.
    const LISTED: usize = 40;
    match known.len() {
        0 => hint.push_str(&format!("there are no {kind}")),
        count => {
            hint.push_str(&format!("{the} {kind} are: {}", known[..count.min(LISTED)].join(", ")));
            if count > LISTED {
                hint.push_str(&format!(" and {} more", count - LISTED));
            }
        }
    }
    hint
}

/// Edits (insert, delete, replace, each 1) between two names, ignoring case: Wagner and Fischer's table, one row kept.
fn distance(a: &str, b: &str) -> usize {
    /// Longer names are compared by this many first characters: the table is quadratic and a name is not.
    const COMPARED: usize = 64;
    let b: Vec<char> = b.chars().take(COMPARED).flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(COMPARED).flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_its_place() {
        let source = Source { file: "a.hl7t", text: "one\n\ttwo \u{e9}t three\nfour" };
        let cases = [
            (0..3, (1, 1), "  1 | one\n    | ^^^"),
            (13..18, (2, 9), "  2 | \ttwo \u{e9}t three\n    | \t       ^^^^^"),
            (19..23, (3, 1), "  3 | four\n    | ^^^^"),
            (23..23, (3, 5), "  3 | four\n    |     ^"),
            (0..23, (1, 1), "  1 | one\n    | ^^^"),
        ];
        for (range, position, excerpt) in cases {
            let found = source.diagnostic(Fault::new(SourceSpan::new(range.clone()), "m"));
            assert_eq!((found.line, found.column), position, "{range:?}");
            assert_eq!(found.excerpt, excerpt, "{range:?}");
        }
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        assert_eq!(
            suggest("wardz", ["wards", "payers"], "tables"),
            "did you mean `wards`? The tables are: payers, wards"
        );
        assert_eq!(suggest("xyz", ["wards"], "tables"), "the tables are: wards");
        assert_eq!(suggest("xyz", [], "tables"), "there are no tables");
    }
}
