//! From text to syntax tree: transforms and rules share names, expressions and conditions.
//!
//! ```text
//! transform = { statement }                     rules = "match" ( "first" | "all" ) { rule } [ "otherwise" actions ]
//! block     = "{" { statement } "}"             rule  = "rule" NAME [ "when" condition ] "{" actions "}"
//! ```
//!
//! A fault costs its statement, not the file: the parser notes it, goes to the next line (past the block, if one was
//! opened) and reads on, so that one load reports all there is to mend.

mod expression;
mod rules;
mod statement;

use super::diagnostic::{Fault, Source};
use super::scan::Scanner;
use super::syntax::{Block, Name, RuleFile};

/// Deepest nesting of blocks and conditions: the parser recurses, and nobody reads deeper.
const MAX_DEPTH: usize = 64;

struct Parser<'a> {
    scan: Scanner<'a>,
    faults: Vec<Fault>,
    depth: usize,
}

/// Reads a transform.
pub(super) fn transform(source: &Source<'_>) -> Result<Block, Vec<Fault>> {
    read(source, |parser| parser.statements(false))
}

/// Reads a file of rules.
pub(super) fn rules(source: &Source<'_>) -> Result<RuleFile, Vec<Fault>> {
    read(source, Parser::rule_file)
}

fn read<'a, T>(source: &Source<'a>, parse: impl FnOnce(&mut Parser<'a>) -> T) -> Result<T, Vec<Fault>> {
    source.check_size().map_err(|fault| vec![fault])?;
    let mut parser = Parser { scan: Scanner::new(source.text), faults: Vec::new(), depth: 0 };
    let tree = parse(&mut parser);
    if parser.faults.is_empty() { Ok(tree) } else { Err(parser.faults) }
}

impl Parser<'_> {
    /// Runs `read` one level deeper, refusing what is nested beyond reason.
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
