//! The syntax tree of both kinds of files: the parser makes it, the compiler reads it. It is never executed.
//!
//! Every node that can be wrong on its own carries its [`SourceSpan`], so that the compiler can point at it.

use hl7::{Path, Place, SegmentName};

use super::diagnostic::SourceSpan;

/// A name as written, with its place.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: SourceSpan,
}

/// A place of the message, or of a loop variable's segment or repetition; or a `let` variable (bare name).
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) base: Base,
    pub(super) span: SourceSpan,
}

#[derive(Clone, Debug)]
pub(super) enum Base {
    /// `PID-5.1`, `OBX[3.1='GLU']`; `indexed` = an occurrence was written in brackets after the segment name.
    Message { path: Path, indexed: bool },
    /// `o`
    Variable(Name),
    /// `o-5.1`: a place of the segment of `o`.
    OfSegment(Name, Place),
    /// `id.4.2`: a component of the repetition of `id`.
    OfRepetition(Name, u16, Option<u16>),
}

/// An expression with a value.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) kind: Kind,
    pub(super) span: SourceSpan,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Text(String),
    Number(String),
    Null,
    Service,
    Reference(Reference),
    Concat(Vec<Expression>),
    Call { function: Name, table: Option<Name>, arguments: Vec<Expression> },
}

/// A condition: true or false.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    Or(Vec<Condition>),
    And(Vec<Condition>),
    Not(Box<Condition>),
    Exists(Reference),
    Test(Box<Test>),
}

#[derive(Clone, Debug)]
pub(super) struct Test {
    /// `all` was written: every place must pass instead of any.
    pub(super) all: bool,
    pub(super) left: Expression,
    /// `!=`, `not in`, `is not`: the test of each place is negated.
    pub(super) negated: bool,
    pub(super) relation: Relation,
    pub(super) span: SourceSpan,
}

#[derive(Clone, Debug)]
pub(super) enum Relation {
    Equals(Expression),
    Ordered(NumberOrder, Expression),
    In(Vec<Expression>),
    InTable(Name),
    Contains(Expression),
    StartsWith(Expression),
    EndsWith(Expression),
    Matches(String),
    Empty,
    Absent,
    Null,
}

/// Which numbers pass an ordering test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberOrder {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) action: StatementAction,
    pub(super) span: SourceSpan,
}

pub(super) type Block = Vec<Statement>;

#[derive(Clone, Debug)]
pub(super) enum StatementAction {
    Set(Reference, Expression),
    Append(Reference, Expression),
    Copy(Reference, Reference),
    Move(Reference, Reference),
    Delete(Reference),
    Insert { segment: SegmentName, beside: Beside, name: Option<Name>, block: Option<Block> },
    ForEach { what: Reference, under: Option<Name>, name: Name, block: Block },
    If { arms: Vec<(Condition, Block)>, otherwise: Option<Block> },
    Let(Name, Expression),
    Call(Name),
    Fail(String),
    Skip,
}

/// Where a new segment goes.
#[derive(Clone, Debug)]
pub(super) enum Beside {
    After(Reference),
    Before(Reference),
    End,
}

/// A file of routing rules.
#[derive(Clone, Debug)]
pub(super) struct RuleFile {
    pub(super) mode: MatchMode,
    pub(super) rules: Vec<Rule>,
    pub(super) otherwise: Option<Actions>,
}

/// Whether routing ends with the first rule that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchMode {
    First,
    All,
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: Name,
    /// `None`: a rule without `when` always holds.
    pub(super) condition: Option<Condition>,
    pub(super) actions: Actions,
}

/// The actions of a rule: sends, or one verdict.
#[derive(Clone, Debug)]
pub(super) enum Actions {
    Sends(Vec<SendAction>),
    Drop(String),
    Reject(String, u16),
}

#[derive(Clone, Debug)]
pub(super) struct SendAction {
    pub(super) operation: Name,
    pub(super) transform: Option<Name>,
}
