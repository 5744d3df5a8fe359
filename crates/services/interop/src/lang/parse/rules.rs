//! Rules and their actions.
//!
//! ```text
//! actions = { "send" "to" OPERATION [ "using" TRANSFORM ] } | "drop" TEXT | "reject" TEXT [ "code" NUMBER ]
//! ```

use super::super::diagnostic::{Fault, suggest};
use super::super::syntax::{Actions, MatchMode, Rule, RuleFile, SendAction};
use super::Parser;

/// HL7 table 0357, the codes of a message that is rejected rather than malformed (reference: HL7 v2.5.1, 2.15.5.3).
const REJECT_CODES: std::ops::RangeInclusive<u16> = 200..=207;

/// "Application internal error": the code of table 0357 for all other reasons.
const DEFAULT_REJECT_CODE: u16 = 207;

impl Parser<'_> {
    pub(super) fn rule_file(&mut self) -> RuleFile {
        self.scan.skip_ends();
        let mode = self.mode().unwrap_or_else(|fault| {
            self.faults.push(fault);
            self.scan.recover();
            MatchMode::First
        });
        let mut file = RuleFile { mode, rules: Vec::new(), otherwise: None };
        loop {
            self.scan.skip_ends();
            if self.scan.at_end() {
                return file;
            }
            if let Err(fault) = self.rule(&mut file) {
                self.faults.push(fault);
                self.scan.recover();
                self.scan.accept("}");
            }
        }
    }

    fn mode(&mut self) -> Result<MatchMode, Fault> {
        if !self.scan.accept_word("match") {
            return Err(self.scan.unexpected("`match first` or `match all`").hint(
                "the first line says whether the first rule that holds ends the routing, or all that hold count",
            ));
        }
        let mode = if self.scan.accept_word("first") {
            MatchMode::First
        } else if self.scan.accept_word("all") {
            MatchMode::All
        } else {
            return Err(self.scan.unexpected("`first` or `all` after `match`"));
        };
        self.ended()?;
        Ok(mode)
    }

    fn rule(&mut self, file: &mut RuleFile) -> Result<(), Fault> {
        let start = self.scan.here();
        if self.scan.accept_word("otherwise") {
            let actions = self.actions()?;
            if file.otherwise.is_some() {
                return Err(Fault::new(self.scan.since(start), "there is an `otherwise` already"));
            }
            file.otherwise = Some(actions);
            return Ok(());
        }
        if !self.scan.accept_word("rule") {
            let word = self.scan.word().unwrap_or("");
            let fault = self.scan.unexpected("`rule` or `otherwise`");
            return Err(if fault.hint.is_some() {
                fault
            } else {
                fault.hint(suggest(word, ["rule", "otherwise"], "words here"))
            });
        }
        let name = self.name("the rule's name")?;
        if file.otherwise.is_some() {
            return Err(Fault::new(name.span, "this rule comes after `otherwise`").hint("put `otherwise` last"));
        }
        let condition = if self.scan.accept_word_below("when") { Some(self.condition()?) } else { None };
        let actions = self.actions()?;
        file.rules.push(Rule { name, condition, actions });
        Ok(())
    }

    fn actions(&mut self) -> Result<Actions, Fault> {
        self.scan.skip_lines();
        let start = self.scan.here();
        self.scan.expect("{", "and what to do")?;
        let opened = self.scan.since(start);
        let mut sends = Vec::new();
        let mut verdict = None;
        loop {
            self.scan.skip_ends();
            if self.scan.accept("}") {
                break;
            }
            if self.scan.at_end() {
                return Err(Fault::new(opened, "this block is not closed").hint("add the `}` that belongs to it"));
            }
            let start = self.scan.here();
            let action = self.rule_action(&mut sends);
            let span = self.scan.since(start);
            match action {
                Ok(Some(_)) if verdict.is_some() => {
                    self.faults.push(Fault::new(span, "a rule has one `drop` or `reject`"));
                }
                Ok(Some(found)) => verdict = Some((found, span)),
                Ok(None) => {}
                Err(fault) => {
                    self.faults.push(fault);
                    self.scan.recover();
                }
            }
        }
        match verdict {
            Some((_, span)) if !sends.is_empty() => {
                Err(Fault::new(span, "a rule that sends cannot also drop or reject the message"))
            }
            Some((verdict, _)) => Ok(verdict),
            None if sends.is_empty() && self.faults.is_empty() => {
                Err(Fault::new(opened, "this rule does nothing").hint(ACTIONS))
            }
            None => Ok(Actions::Sends(sends)),
        }
    }

    fn rule_action(&mut self, sends: &mut Vec<SendAction>) -> Result<Option<Actions>, Fault> {
        let verdict = if self.scan.accept_word("send") {
            self.scan.expect_word("to", "after `send`")?;
            let operation = self.name("the name of an operation")?;
            let transform =
                if self.scan.accept_word("using") { Some(self.name("the name of a transform")?) } else { None };
            sends.push(SendAction { operation, transform });
            None
        } else if self.scan.accept_word("drop") {
            Some(Actions::Drop(self.reason()?))
        } else if self.scan.accept_word("reject") {
            Some(Actions::Reject(self.reason()?, self.reject_code()?))
        } else {
            return Err(self.scan.unexpected("an action").hint(ACTIONS));
        };
        self.ended()?;
        Ok(verdict)
    }

    /// Why a message is not delivered: required, because users will need the reason.
    fn reason(&mut self) -> Result<String, Fault> {
        if !self.scan.sees_string() {
            return Err(self.scan.unexpected("the reason in quotes").hint("the reason is stored with the message"));
        }
        let start = self.scan.here();
        let text = self.scan.string()?;
        if text.trim().is_empty() {
            return Err(
                Fault::new(self.scan.since(start), "this is no reason").hint("the reason is stored with the message")
            );
        }
        Ok(text)
    }

    fn reject_code(&mut self) -> Result<u16, Fault> {
        if !self.scan.accept_word("code") {
            return Ok(DEFAULT_REJECT_CODE);
        }
        let (number, span) = self.scan.number()?;
        match number.parse() {
            Ok(code) if REJECT_CODES.contains(&code) => Ok(code),
            _ => Err(Fault::new(span, "this is not a code for a rejected message").hint(
                "table 0357: 200 message type, 201 event, 202 processing id, 203 version, 204 unknown key, \
                 205 duplicate key, 206 record locked, 207 other (the default)",
            )),
        }
    }

    fn ended(&mut self) -> Result<(), Fault> {
        if self.scan.at_statement_end() { Ok(()) } else { Err(self.scan.unexpected("the end of the line")) }
    }
}

const ACTIONS: &str = "a rule does `send to OPERATION [using TRANSFORM]` (one or more), \
                       `drop \"why\"` or `reject \"why\" [code 200..207]`";
