//! Statements of a transform.
//!
//! ```text
//! statement = "set" place "=" value                  | "append" place "=" value
//!           | "copy" place "to" place                | "move" place "to" place        | "delete" place
//!           | "insert" SEG ( ( "after" | "before" ) place | "at" "end" ) [ "as" name [ block ] ]
//!           | "for" "each" place [ "under" name ] "as" name block
//!           | "if" condition block { "else" "if" condition block } [ "else" block ]
//!           | "let" name "=" value | "call" NAME | "fail" TEXT | "skip"
//! ```

use super::super::diagnostic::{Fault, suggest};
use super::super::syntax::{Base, Beside, Block, Statement, StatementAction};
use super::Parser;

const STATEMENTS: [&str; 12] =
    ["set", "append", "copy", "move", "delete", "insert", "for each", "if", "let", "call", "fail", "skip"];

impl Parser<'_> {
    /// Statements up to the closing brace (`inside`) or the end of the file.
    pub(super) fn statements(&mut self, inside: bool) -> Block {
        let mut block = Block::new();
        loop {
            self.scan.skip_ends();
            if self.scan.at_end() || (inside && self.scan.sees("}")) {
                return block;
            }
            match self.statement() {
                Ok(statement) => block.push(statement),
                Err(fault) => {
                    self.faults.push(fault);
                    self.scan.recover();
                    if !inside {
                        // A surplus closing brace: reported above or by this fault's own block.
                        self.scan.accept("}");
                    }
                }
            }
        }
    }

    fn statement(&mut self) -> Result<Statement, Fault> {
        let start = self.scan.here();
        let action = self.nested(Self::action)?;
        let span = self.scan.since(start);
        if !self.scan.at_statement_end() {
            return Err(self
                .scan
                .unexpected("the end of the line")
                .hint("one statement a line, or `;` between two; values are joined by +"));
        }
        Ok(Statement { action, span })
    }

    fn action(&mut self) -> Result<StatementAction, Fault> {
        let Some(word) = self.scan.word() else { return Err(self.not_a_statement()) };
        let start = self.scan.here();
        let known = ["set", "append", "copy", "move", "delete", "insert", "for", "if", "let", "call", "fail", "skip"];
        if !known.contains(&word) {
            return Err(self.not_a_statement());
        }
        self.scan.accept_word(word);
        Ok(match word {
            "set" | "append" => {
                let place = self.reference("the place to change, such as PID-5.1")?;
                self.scan.expect("=", "and the new value")?;
                let value = self.expression()?;
                if word == "set" { StatementAction::Set(place, value) } else { StatementAction::Append(place, value) }
            }
            "copy" | "move" => {
                let from = self.reference("the place to take from, such as PID-3")?;
                self.scan.expect_word("to", "and the place to write")?;
                let to = self.reference("the place to write, such as PID-2")?;
                if word == "copy" { StatementAction::Copy(from, to) } else { StatementAction::Move(from, to) }
            }
            "delete" => StatementAction::Delete(self.reference("what to delete, such as PID-19 or NK1[*]")?),
            "insert" => self.insert()?,
            "for" => self.for_each()?,
            "if" => self.choice()?,
            "let" => {
                let name = self.identifier("the name of the variable")?;
                self.scan.expect("=", "and its value")?;
                StatementAction::Let(name, self.expression()?)
            }
            "call" => StatementAction::Call(self.name("the name of a transform")?),
            "fail" => {
                let text = self.scan.string()?;
                if text.trim().is_empty() {
                    return Err(Fault::new(self.scan.since(start), "this says nothing about what is wrong"));
                }
                StatementAction::Fail(text)
            }
            _ => StatementAction::Skip,
        })
    }

    fn not_a_statement(&mut self) -> Fault {
        let span = self.scan.word_span();
        let fault = self.scan.unexpected("a statement");
        if fault.hint.is_some() {
            return fault;
        }
        let word = self.scan.word().unwrap_or("");
        if self.scan.sees("}") {
            return Fault::new(span, "this brace closes nothing");
        }
        if self.scan.sees_segment() {
            return fault.hint(format!("to change a place write `set {word}-... = ...`"));
        }
        fault.hint(suggest(word, STATEMENTS, "statements"))
    }

    fn insert(&mut self) -> Result<StatementAction, Fault> {
        let place = self.reference("the name of the new segment, such as NTE")?;
        let Base::Message { path, indexed: false } = &place.base else {
            return Err(Fault::new(place.span, "the name of a new segment is three letters or digits, such as NTE"));
        };
        if path.place.is_some() {
            return Err(Fault::new(place.span, "`insert` makes a segment, not a field")
                .hint("insert the segment, then set its fields: insert NTE after PID as note { set note-3 = 'x' }"));
        }
        let segment = path.segment.name;
        let beside = if self.scan.accept_word("after") {
            Beside::After(self.reference("a segment, such as PID or OBX[last]")?)
        } else if self.scan.accept_word("before") {
            Beside::Before(self.reference("a segment, such as PV1")?)
        } else if self.scan.accept_word("at") {
            self.scan.expect_word("end", "after `at`")?;
            Beside::End
        } else {
            return Err(self.scan.unexpected("`after SEGMENT`, `before SEGMENT` or `at end`"));
        };
        let name =
            if self.scan.accept_word("as") { Some(self.identifier("a name for the new segment")?) } else { None };
        if !self.scan.sees("{") {
            return Ok(StatementAction::Insert { segment, beside, name, block: None });
        }
        if name.is_none() {
            return Err(self
                .scan
                .unexpected("the end of the line")
                .hint(format!("give the new segment a name to use in the block: insert {segment} ... as new {{")));
        }
        Ok(StatementAction::Insert {
            segment,
            beside,
            name,
            block: Some(self.block("to begin the new segment's block")?),
        })
    }

    fn for_each(&mut self) -> Result<StatementAction, Fault> {
        self.scan.expect_word("each", "after `for`")?;
        let what = self.reference("segments or a field, such as OBX or PID-3")?;
        let under = if self.scan.accept_word("under") {
            Some(self.identifier("the name of an outer loop's segment")?)
        } else {
            None
        };
        if !self.scan.accept_word("as") {
            return Err(self
                .scan
                .unexpected("`as` and a name for each of them")
                .hint("for each OBX as o { ... o-5 ... }"));
        }
        let name = self.identifier("a name for each of them")?;
        Ok(StatementAction::ForEach { what, under, name, block: self.block("to begin the loop")? })
    }

    fn choice(&mut self) -> Result<StatementAction, Fault> {
        let mut arms = Vec::new();
        loop {
            let condition = self.condition()?;
            arms.push((condition, self.block("after the condition")?));
            if !self.scan.accept_word_below("else") {
                return Ok(StatementAction::If { arms, otherwise: None });
            }
            if !self.scan.accept_word("if") {
                return Ok(StatementAction::If { arms, otherwise: Some(self.block("after `else`")?) });
            }
        }
    }

    fn block(&mut self, of: &str) -> Result<Block, Fault> {
        self.scan.skip_lines();
        let start = self.scan.here();
        if !self.scan.accept("{") {
            let fault = self.scan.unexpected(&format!("`{{` {of}"));
            let symbol = self.scan.sees("&") || self.scan.sees("|");
            return Err(fault.hint(if symbol {
                "conditions are joined by `and` and `or`"
            } else {
                "what is done under a condition or in a loop stands in braces: { ... }"
            }));
        }
        let opened = self.scan.since(start);
        let block = self.statements(true);
        if !self.scan.accept("}") {
            return Err(Fault::new(opened, "this block is not closed").hint("add the `}` that belongs to it"));
        }
        Ok(block)
    }
}
