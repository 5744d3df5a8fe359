//! The compiled form of a declared file: a flat list of operations with every name resolved to an index.
//!
//! ```text
//! if PID-8 = 'F' { set PID-8 = 'W' }          0  Check 0          place 0, equals text 0 -> flag
//!                                             1  JumpUnless 3
//!                                             2  SetConstant { place 0, constant 1 }
//!                                             3  End
//! ```
//!
//! Operations work on a stack of values (bytes in one arena), one flag, variables and cursors (the values of loop
//! variables). Constants hold their bytes already escaped for `|^~\&`, which nearly every message declares.
//!
//! Invariants, kept by the compiler and relied on by the machine: every index is within its pool, every jump within the
//! operations, and each operation finds its operands on the stack. A program of rules contains no edits.

use hl7::{Path, Place, SegmentName};

use super::syntax::NumberOrder;
use super::table::TableId;
use super::time::{Form, Unit};

/// Index of an operation.
pub(super) type Address = u32;
/// Index of a `let` variable within its program.
pub(super) type Variable = u16;
/// Index of a loop variable or new segment within its program.
pub(super) type Cursor = u16;
/// Index in [`Program::spots`].
pub(super) type SpotId = u32;
/// Index in [`Program::constants`].
pub(super) type ConstantId = u32;
/// Index in [`Program::texts`].
pub(super) type TextId = u32;
/// Index in [`Program::forms`].
pub(super) type FormId = u32;

/// One compiled transform, or the conditions of a file of rules.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) file: String,
    pub(super) ops: Vec<Op>,
    /// Line of each operation.
    pub(super) lines: Vec<u32>,
    pub(super) spots: Vec<Spot>,
    /// Each spot as written.
    pub(super) labels: Vec<String>,
    pub(super) constants: Vec<Constant>,
    pub(super) checks: Vec<Check>,
    pub(super) forms: Vec<Form>,
    /// Texts for error messages: the source of an operation, as written.
    pub(super) texts: Vec<String>,
    pub(super) variables: Variable,
    pub(super) cursors: Cursor,
}

/// A place, resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In the message.
    Path(Path),
    /// The segment of a cursor.
    Segment(Cursor),
    /// A place in it.
    Place(Cursor, Place),
    /// The repetition of a cursor, or a component of it.
    Repetition { cursor: Cursor, component: Option<u16>, subcomponent: Option<u16> },
}

/// A literal.
#[derive(Debug)]
pub(super) struct Constant {
    /// As the author means it.
    pub(super) text: Box<str>,
    /// True for `hl7("...")`: `text` holds content with delimiters and escapes, not plain text.
    pub(super) content: bool,
    /// Raw content for the delimiters `|^~\&` and UTF-8.
    pub(super) standard: Box<[u8]>,
}

impl Constant {
    pub(super) fn new(text: &str, content: bool) -> Constant {
        let standard = if content {
            text.as_bytes().into()
        } else {
            hl7::escape::escape(text.as_bytes(), hl7::Delimiters::default()).into()
        };
        Constant { text: text.into(), content, standard }
    }
}

/// A test of one place, of every place a path selects, or of a computed value.
#[derive(Debug)]
pub(super) struct Check {
    /// `None`: the value on the stack, below the operand if that is there too.
    pub(super) place: Option<SpotId>,
    /// The place may be several, or none.
    pub(super) many: bool,
    /// Every place must pass, not any.
    pub(super) all: bool,
    /// The result is negated for each place.
    pub(super) negated: bool,
    pub(super) relation: CompiledRelation,
}

/// The right side of a test.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Constant(ConstantId),
    /// On top of the stack.
    Stack,
}

#[derive(Debug)]
pub(super) enum CompiledRelation {
    Equals(Operand),
    /// Both sides are numbers and equal as such.
    EqualsNumber(Operand),
    Ordered(NumberOrder, Operand),
    /// Sorted texts.
    OneOf(Vec<Box<str>>),
    InTable(TableId),
    Contains(Operand),
    StartsWith(Operand),
    EndsWith(Operand),
    Matches(Box<str>),
    Empty,
    Absent,
    Null,
}

impl CompiledRelation {
    /// Whether the test takes its right side from the stack.
    pub(super) fn takes_operand(&self) -> bool {
        use CompiledRelation::{Contains, EndsWith, Equals, EqualsNumber, Ordered, StartsWith};
        matches!(
            self,
            Equals(Operand::Stack)
                | EqualsNumber(Operand::Stack)
                | Ordered(_, Operand::Stack)
                | Contains(Operand::Stack)
                | StartsWith(Operand::Stack)
                | EndsWith(Operand::Stack)
        )
    }
}

/// One operation; "takes" means from the stack, "gives" means onto the stack.
#[derive(Debug)]
pub(super) enum Op {
    // Values: each gives one.
    Constant(ConstantId),
    Value(SpotId),
    Variable(Variable),
    Service,
    ControlId,
    /// Which turn of the loop it is, from 1.
    Index(Cursor),
    Count(SpotId),
    /// Takes the separator.
    Join(SpotId),
    Now(FormId),
    // Functions: each takes its arguments and gives one value.
    Concat(u32),
    Upper,
    Lower,
    Trim,
    Length,
    Substring {
        start: i32,
        length: u32,
    },
    Replace,
    Split(u32),
    Pad {
        left: bool,
        width: u32,
    },
    /// Goes to `found` with the value, or on without it where there is a default.
    Lookup {
        table: TableId,
        what: TextId,
        found: Option<Address>,
    },
    /// As `Lookup`.
    Date {
        from: FormId,
        to: FormId,
        what: TextId,
        read: Option<Address>,
    },
    Add {
        unit: Unit,
        amount: i32,
        what: TextId,
    },
    /// If the value is not empty goes there with it, else drops it and goes on.
    JumpIfValue(Address),
    /// Takes a value for a variable.
    Keep(Variable),
    /// Takes values and adds them to a variable.
    Extend {
        variable: Variable,
        parts: u32,
    },
    // Edits.
    SetConstant {
        spot: SpotId,
        constant: ConstantId,
    },
    /// Takes the value.
    Set(SpotId),
    /// Takes the value.
    Append(SpotId),
    /// Continues if a value can be appended to the place at a cost that depends on the appended bytes only, else goes
    /// to `otherwise`.
    CanExtend {
        spot: SpotId,
        otherwise: Address,
    },
    /// Takes values and appends them to the content of a place.
    ExtendPlace {
        spot: SpotId,
        parts: u32,
    },
    Copy {
        from: SpotId,
        to: SpotId,
    },
    Move {
        from: SpotId,
        to: SpotId,
    },
    Delete(SpotId),
    Insert {
        segment: SegmentName,
        beside: Option<SpotId>,
        after: bool,
        cursor: Option<Cursor>,
    },
    // Conditions and control.
    Check(u32),
    /// Whether the place has content.
    Exists(SpotId),
    Not,
    /// A condition that always holds.
    True,
    Jump(Address),
    JumpIf(Address),
    JumpUnless(Address),
    /// Puts a cursor before the first of the segments selected now.
    EachSegment {
        cursor: Cursor,
        spot: SpotId,
        under: Option<Cursor>,
    },
    /// Puts a cursor before the first of the present repetitions.
    EachRepetition {
        cursor: Cursor,
        spot: SpotId,
    },
    Next {
        cursor: Cursor,
        exit: Address,
    },
    Run(u32),
    Skip,
    Fail(TextId),
    End,
}
