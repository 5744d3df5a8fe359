//! Routing rules: where a message goes, and why.

use std::fmt::Write as _;
use std::sync::Arc;

use hl7::Message;

use super::compile::{self, Known};
use super::context::{Context, RunError};
use super::diagnostic::{Diagnostic, Fault, Source, suggest};
use super::index::{ConditionIndex, numbers};
use super::machine::Machine;
use super::parse;
use super::program::{Address, Program};
use super::syntax::{Actions, MatchMode, Name, RuleFile};
use super::table::Tables;
use super::transforms::{TransformId, Transforms};

/// One destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Index in the operations the rules were compiled with.
    pub operation: usize,
    /// The transform to apply before; none: the message is sent as received.
    pub transform: Option<TransformId>,
}

/// The verdict of the rules on a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent: see [`Decision::sends`].
    Routed,
    /// It is acknowledged and not delivered.
    Dropped {
        /// The reason the rule gives.
        why: String,
    },
    /// It is refused: a negative acknowledgement is sent, and it is not delivered.
    Rejected {
        /// The reason the rule gives, for the sender.
        why: String,
        /// HL7 table 0357, 200 to 207.
        code: u16,
    },
    /// No rule held and there is no `otherwise`.
    Unmatched,
}

/// Where a message goes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The destinations in the order of the rules, each once; empty unless [`Verdict::Routed`].
    pub sends: Vec<Send>,
    /// The verdict on the message.
    pub verdict: Verdict,
    /// One line to store with the message: the rules' name, the rules that held, and those that were evaluated and did
    /// not hold. It contains only names from the file.
    pub reason: String,
    /// How many conditions were run; by the index, the others could not hold.
    pub evaluated: usize,
}

/// One compiled file of rules.
#[derive(Debug)]
pub struct Rules {
    name: String,
    mode: MatchMode,
    rules: Vec<Rule>,
    otherwise: Option<Consequence>,
    program: Program,
    index: ConditionIndex,
    tables: Arc<Tables>,
}

#[derive(Debug)]
struct Rule {
    name: String,
    condition: Address,
    consequence: Consequence,
}

#[derive(Debug)]
enum Consequence {
    Send(Vec<Send>),
    Drop(String),
    Reject(String, u16),
}

/// More names of rules that did not hold are counted in a reason, not listed.
const LISTED: usize = 8;

impl Rules {
    /// Compiles a file of rules. `operations` are the names it may send to; [`Send::operation`] is an index in them.
    ///
    /// # Errors
    /// Every fault found.
    pub fn compile(
        name: &str,
        source: Source<'_>,
        operations: &[&str],
        transforms: &Transforms,
        tables: &Arc<Tables>,
    ) -> Result<Rules, Vec<Diagnostic>> {
        let bind = |faults: Vec<Fault>| faults.into_iter().map(|fault| source.diagnostic(fault)).collect::<Vec<_>>();
        let (file, mut faults) = parse::rules(&source);
        let known = Known { tables, transforms: &[] };
        let conditions = || file.rules.iter().map(|rule| rule.condition.as_ref());
        let compiled = compile::conditions(&source, conditions(), known);
        let resolver = Resolver { operations, transforms };
        let (rules, otherwise) = resolver.file(&file, &mut faults);
        let (program, starts) = match compiled {
            Ok(compiled) if faults.is_empty() => compiled,
            other => {
                faults.extend(other.err().into_iter().flatten());
                faults.sort_by_key(|fault| fault.span.start);
                return Err(bind(faults));
            }
        };
        let rules = rules.into_iter().zip(starts);
        Ok(Rules {
            name: name.to_owned(),
            mode: file.mode,
            rules: rules.map(|((name, consequence), condition)| Rule { name, condition, consequence }).collect(),
            otherwise,
            program,
            index: ConditionIndex::new(conditions()),
            tables: Arc::clone(tables),
        })
    }

    /// The name they were compiled under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Decides where a message goes.
    ///
    /// In `match first` the first rule that holds decides. In `match all` every rule that holds adds its sends (the
    /// same operation with the same transform counts once), and the first `drop` or `reject` is final: the sends of
    /// rules before it are cancelled.
    ///
    /// # Errors
    /// A condition could not be evaluated, such as a lookup without a default.
    pub fn decide(&self, message: &Message<'_>, context: &Context<'_>) -> Result<Decision, RunError> {
        let machine = Machine::read(&self.tables, message, context);
        let candidates = self.index.candidates(message, context, &machine);
        self.decide_among(numbers(&candidates), machine)
    }

    /// Decides by running every condition; the result must be the same as with the index. For the fuzzer, which
    /// compares the two.
    #[cfg(feature = "fuzzing")]
    pub(super) fn decide_without_index(
        &self,
        message: &Message<'_>,
        context: &Context<'_>,
    ) -> Result<Decision, RunError> {
        self.decide_among(0..self.rules.len(), Machine::read(&self.tables, message, context))
    }

    fn decide_among<'s>(
        &'s self,
        candidates: impl Iterator<Item = usize>,
        mut machine: Machine<'s, '_>,
    ) -> Result<Decision, RunError> {
        let (mut held, mut others) = (Vec::new(), Vec::new());
        let mut decision =
            Decision { sends: Vec::new(), verdict: Verdict::Unmatched, reason: String::new(), evaluated: 0 };
        for rule in candidates.map(|at| &self.rules[at]) {
            decision.evaluated += 1;
            if !machine.holds(&self.program, rule.condition)? {
                others.push(rule.name.as_str());
                continue;
            }
            held.push(rule.name.as_str());
            let last = decision.apply(&rule.consequence);
            if last || self.mode == MatchMode::First {
                break;
            }
        }
        if held.is_empty()
            && let Some(otherwise) = &self.otherwise
        {
            held.push("otherwise");
            decision.apply(otherwise);
        }
        decision.reason = self.reason(&held, &others);
        Ok(decision)
    }

    /// `main: adt, lab (not: orders, tests)`
    fn reason(&self, held: &[&str], others: &[&str]) -> String {
        let held = if held.is_empty() { "no rule holds".to_owned() } else { held.join(", ") };
        let mut reason = format!("{}: {held}", self.name);
        if !others.is_empty() {
            let listed = others[..others.len().min(LISTED)].join(", ");
            write!(reason, " (not: {listed}").expect("a string takes all");
            if others.len() > LISTED {
                write!(reason, " and {} more", others.len() - LISTED).expect("a string takes all");
            }
            reason.push(')');
        }
        reason
    }
}

impl Decision {
    /// Runs the actions of a rule; true if they are final.
    fn apply(&mut self, consequence: &Consequence) -> bool {
        match consequence {
            Consequence::Send(sends) => {
                for send in sends {
                    if !self.sends.contains(send) {
                        self.sends.push(*send);
                    }
                }
                self.verdict = Verdict::Routed;
                return false;
            }
            Consequence::Drop(why) => self.verdict = Verdict::Dropped { why: why.clone() },
            Consequence::Reject(why, code) => self.verdict = Verdict::Rejected { why: why.clone(), code: *code },
        }
        self.sends.clear();
        true
    }
}

/// Finds the operations and transforms that rules name.
struct Resolver<'a> {
    operations: &'a [&'a str],
    transforms: &'a Transforms,
}

/// Names and consequences of the rules, and of `otherwise`.
type Resolved = (Vec<(String, Consequence)>, Option<Consequence>);

impl Resolver<'_> {
    fn file(&self, file: &RuleFile, faults: &mut Vec<Fault>) -> Resolved {
        let mut rules: Vec<(String, Consequence)> = Vec::new();
        for (at, rule) in file.rules.iter().enumerate() {
            let name = &rule.name;
            let last = at + 1 == file.rules.len() && file.otherwise.is_none();
            if rule.condition.is_none() && file.mode == MatchMode::First && !last {
                faults.push(
                    Fault::new(name.span, format!("`{}` always holds, so nothing below it is reached", name.text))
                        .hint("give it a `when`, or put it last as `otherwise`"),
                );
            }
            if rules.iter().any(|(known, _)| *known == name.text) {
                faults.push(
                    Fault::new(name.span, format!("there is a rule `{}` already", name.text))
                        .hint("the name is stored with each message it routes; give each rule its own"),
                );
            }
            rules.push((name.text.clone(), self.consequence(&rule.actions, faults)));
        }
        let otherwise = file.otherwise.as_ref().map(|actions| self.consequence(actions, faults));
        (rules, otherwise)
    }

    fn consequence(&self, actions: &Actions, faults: &mut Vec<Fault>) -> Consequence {
        let sends = match actions {
            Actions::Drop(why) => return Consequence::Drop(why.clone()),
            Actions::Reject(why, code) => return Consequence::Reject(why.clone(), *code),
            Actions::Sends(sends) => sends,
        };
        let mut resolved = Vec::new();
        for send in sends {
            let operation = self.operation(&send.operation);
            let transform = send.transform.as_ref().map(|name| self.transform(name)).transpose();
            match (operation, transform) {
                (Ok(operation), Ok(transform)) => resolved.push(Send { operation, transform }),
                (operation, transform) => faults.extend(operation.err().into_iter().chain(transform.err())),
            }
        }
        Consequence::Send(resolved)
    }

    fn operation(&self, name: &Name) -> Result<usize, Fault> {
        self.operations.iter().position(|known| *known == name.text).ok_or_else(|| {
            Fault::new(name.span, format!("there is no operation `{}`", name.text)).hint(suggest(
                &name.text,
                self.operations.iter().copied(),
                "operations",
            ))
        })
    }

    fn transform(&self, name: &Name) -> Result<TransformId, Fault> {
        self.transforms.find(&name.text).ok_or_else(|| {
            Fault::new(name.span, format!("there is no transform `{}`", name.text)).hint(suggest(
                &name.text,
                self.transforms.names(),
                "transforms",
            ))
        })
    }
}
