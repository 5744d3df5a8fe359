//! From text to syntax tree: transforms and rules share names, expressions and conditions.
//!
//! ```text
//! transform = { statement }                     rules = "match" ( "first" | "all" ) { rule } [ "otherwise" actions ]
//! block     = "{" { statement } "}"             rule  = "rule" NAME [ "when" condition ] "{" actions "}"
//! ```
//!
//! A fault skips its statement, not the file: the parser records it, goes to the next line (past the block, if one was
//! opened) and continues, so that one load reports all faults.

mod expression;
mod rules;
mod statement;

use super::diagnostic::{Fault, Source};
use super::scan::Scanner;
use super::syntax::{Block, Name, RuleFile};

/// Deepest nesting of blocks and conditions: the parser recurses, and a deeper nesting would be unreadable.
const MAX_DEPTH: usize = 64;

struct Parser<'a> {
    scan: Scanner<'a>,
    faults: Vec<Fault>,
    depth: usize,
}

/// Reads a transform; returns the statements that could be read, and the faults of the rest.
pub(super) fn transform(source: &Source<'_>) -> (Block, Vec<Fault>) {
    let mut parser = Parser::new(source);
    (parser.statements(false), parser.faults)
}

/// Reads a file of rules; returns the rules that could be read, and the faults of the rest.
pub(super) fn rules(source: &Source<'_>) -> (RuleFile, Vec<Fault>) {
    let mut parser = Parser::new(source);
    (parser.rule_file(), parser.faults)
}

impl<'a> Parser<'a> {
    fn new(source: &Source<'a>) -> Parser<'a> {
        let fault = source.check_size().err();
        // A file that is too long is not read at all.
        let text = if fault.is_some() { "" } else { source.text };
        Parser { scan: Scanner::new(text), faults: fault.into_iter().collect(), depth: 0 }
    }

    /// Runs `read` one level deeper; refuses nesting beyond the limit.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == MAX_DEPTH {
            let span = self.scan.word_span();
            return Err(Fault::new(span, format!("this is nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Lets lines break anywhere while `read` runs: in parentheses, and in conditions, which a `{` ends.
    fn freely<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        self.scan.enter();
        let result = read(self);
        self.scan.leave();
        result
    }

    fn name(&mut self, what: &str) -> Result<Name, Fault> {
        self.scan.name(what).map(|(text, span)| Name { text, span })
    }

    fn identifier(&mut self, what: &str) -> Result<Name, Fault> {
        self.scan.identifier(what).map(|(text, span)| Name { text, span })
    }
}
