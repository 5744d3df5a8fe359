//! Running a program on a message.
//!
//! ```text
//! arena    S m i t h , _ A n n        bytes of all values on the stack
//! starts   0         5 7              where each begins; values are joined by removing their starts
//! ```
//!
//! A loop over a flat list of operations. A value is raw content: bytes as they are, or will be, in the message.
//! Setting constants and copying allocate nothing but what the edit itself needs and, once, the arena.
//!
//! Cursors (loop variables, new segments) hold ids of segments. An id does not change when other segments are inserted
//! or deleted, so a loop may insert and delete. The cost of an operation depends on the parts that it reads and
//! changes, not on the rest of the message.

mod check;
mod edit;
mod function;
mod value;

use std::cell::OnceCell;
use std::sync::Arc;

use hl7::charset::Charset;
use hl7::{Delimiters, Draft, Message, SegmentId};

use super::allowance::LOOK;
use super::context::{Context, Outcome, RunError, RunProblem};
use super::program::{Address, Op, Program, SpotId};
use super::table::Tables;
use super::time::Moment;

/// More segments than any transform should add to one message; each takes about 100 bytes of memory.
const MAX_INSERTS: u32 = 1 << 20;

/// More than any transform should write into one message, all edits together: loops that append a field to itself double
/// it each time.
const MAX_WRITTEN_BYTES: usize = 256 << 20;

/// The memory for values that a transform begins with: bytes, and values. It grows where that is not enough.
const ARENA_BYTES: usize = 256;
const STACK_VALUES: usize = 8;

/// The longest value that is computed: more than the largest document sent in a field, and memory stays bounded.
const MAX_VALUE_BYTES: usize = 64 << 20;

/// All variables of one run together.
const MAX_KEPT_BYTES: usize = 256 << 20;

/// The message that a program reads, or the draft that a transform edits.
enum Subject<'s, 'm> {
    Message(&'s Message<'m>),
    Draft(&'s mut Draft<'m>),
}

/// The value of a loop variable or of a new segment's name.
#[derive(Default)]
struct Cursor {
    /// The segment; none before the first turn.
    segment: Option<SegmentId>,
    /// In a loop over repetitions: the field, and which repetition it is, from 1.
    field: u16,
    repetition: u32,
    /// The repetition was deleted in this turn.
    gone: bool,
    /// Segments still to come, last first.
    pending: Vec<SegmentId>,
    /// Repetitions still to come.
    remaining: u32,
    /// Which turn it is, from 1.
    turn: u32,
}

/// One run of a transform, or the conditions of rules on one message.
pub(super) struct Machine<'s, 'm> {
    programs: &'s [Program],
    tables: &'s Tables,
    context: &'s Context<'s>,
    subject: Subject<'s, 'm>,
    delimiters: Delimiters,
    /// The delimiters are `|^~\&`, for which constants are ready.
    standard: bool,
    charset: OnceCell<Charset>,
    now: OnceCell<Moment>,
    arena: Vec<u8>,
    starts: Vec<usize>,
    scratch: Vec<u8>,
    variables: Vec<Vec<u8>>,
    /// Bytes in all of them.
    kept: usize,
    cursors: Vec<Cursor>,
    flag: bool,
    /// The charges since the meter was last read.
    charged: u32,
    /// The charge of an operation: 1, and more if it may go through a large message.
    charge: u32,
    inserts: u32,
    written: usize,
}

/// A program being run, and where its variables and cursors begin.
#[derive(Clone, Copy)]
struct Frame<'s> {
    program: &'s Program,
    variables: usize,
    cursors: usize,
}

/// Where to go on after an operation.
enum Flow {
    Next,
    Goto(Address),
    Return,
    Skip,
}

impl<'s, 'm> Machine<'s, 'm> {
    /// Makes a machine that edits a draft.
    pub(super) fn edit(
        programs: &'s [Program],
        tables: &'s Tables,
        draft: &'s mut Draft<'m>,
        context: &'s Context<'s>,
    ) -> Machine<'s, 'm> {
        let mut machine = Machine::new(programs, tables, Subject::Draft(draft), context);
        // Nearly every transform computes values: these do not grow step by step.
        machine.arena.reserve(ARENA_BYTES);
        machine.starts.reserve(STACK_VALUES);
        machine
    }

    /// Makes a machine that only reads.
    pub(super) fn read(tables: &'s Tables, message: &'s Message<'m>, context: &'s Context<'s>) -> Machine<'s, 'm> {
        Machine::new(&[], tables, Subject::Message(message), context)
    }

    fn new(
        programs: &'s [Program],
        tables: &'s Tables,
        subject: Subject<'s, 'm>,
        context: &'s Context<'s>,
    ) -> Machine<'s, 'm> {
        let message = match &subject {
            Subject::Message(message) => message,
            Subject::Draft(draft) => draft.message(),
        };
        let (delimiters, charge) = (message.delimiters(), charge(message));
        Machine {
            programs,
            tables,
            context,
            subject,
            delimiters,
            standard: delimiters == Delimiters::default(),
            charset: OnceCell::new(),
            now: OnceCell::new(),
            arena: Vec::new(),
            starts: Vec::new(),
            scratch: Vec::new(),
            variables: Vec::new(),
            kept: 0,
            cursors: Vec::new(),
            flag: false,
            charged: 0,
            charge,
            inserts: 0,
            written: 0,
        }
    }

    /// Runs a transform.
    pub(super) fn transform(&mut self, program: usize) -> Result<Outcome, RunError> {
        let skipped = self.run(&self.programs[program], 0)?;
        Ok(if skipped { Outcome::Skip } else { Outcome::Send })
    }

    /// Whether the condition that begins at `start` holds.
    pub(super) fn holds(&mut self, program: &'s Program, start: Address) -> Result<bool, RunError> {
        self.run(program, start)?;
        Ok(self.flag)
    }

    /// Runs a program to its end; true if it ended with `skip`.
    fn run(&mut self, program: &'s Program, start: Address) -> Result<bool, RunError> {
        let frame = Frame { program, variables: self.variables.len(), cursors: self.cursors.len() };
        self.variables.resize_with(frame.variables + usize::from(program.variables), Vec::new);
        self.cursors.resize_with(frame.cursors + usize::from(program.cursors), Cursor::default);
        let mut at = start as usize;
        let skipped = loop {
            match self.step(frame, &program.ops[at]) {
                Ok(Flow::Next) => at += 1,
                Ok(Flow::Goto(to)) => at = to as usize,
                Ok(Flow::Return) => break false,
                Ok(Flow::Skip) => break true,
                Err(Stop::Problem(problem)) => {
                    return Err(RunError {
                        file: Arc::from(program.file.as_str()),
                        line: program.lines[at],
                        problem: *problem,
                    });
                }
                Err(Stop::Called(error)) => return Err(*error),
            }
        };
        self.kept -= self.variables[frame.variables..].iter().map(Vec::len).sum::<usize>();
        self.variables.truncate(frame.variables);
        self.cursors.truncate(frame.cursors);
        Ok(skipped)
    }

    /// Checks whether time is left.
    #[cold]
    fn look(&mut self) -> Result<(), Stop> {
        self.charged = 0;
        match self.context.allowance {
            Some(allowance) if allowance.is_over() => Err(RunProblem::OutOfTime { limit: allowance.limit() }.into()),
            _ => Ok(()),
        }
    }

    fn step(&mut self, frame: Frame<'s>, op: &'s Op) -> Result<Flow, Stop> {
        self.charged += self.charge;
        if self.charged >= LOOK {
            self.look()?;
        }
        match op {
            Op::SetConstant { spot, constant } => self.set_constant(frame, *spot, *constant)?,
            Op::Set(spot) => self.set(frame, *spot)?,
            Op::Append(spot) => self.append(frame, *spot)?,
            Op::CanExtend { spot, otherwise } => {
                if !self.can_extend(frame, *spot)? {
                    return Ok(Flow::Goto(*otherwise));
                }
            }
            Op::ExtendPlace { spot, parts } => self.extend_place(frame, *spot, *parts as usize)?,
            Op::Copy { from, to } => self.copy(frame, *from, *to)?,
            Op::Move { from, to } => {
                self.copy(frame, *from, *to)?;
                self.delete(frame, *from)?;
            }
            Op::Delete(spot) => self.delete(frame, *spot)?,
            Op::Insert { segment, beside, after, cursor } => {
                self.insert(frame, *segment, *beside, *after, *cursor)?;
            }
            Op::Check(check) => self.flag = self.check(frame, *check)?,
            Op::Exists(spot) => self.flag = self.exists(frame, *spot)?,
            Op::Not => self.flag = !self.flag,
            Op::True => self.flag = true,
            Op::Jump(to) => return Ok(Flow::Goto(*to)),
            Op::JumpIf(to) if self.flag => return Ok(Flow::Goto(*to)),
            Op::JumpUnless(to) if !self.flag => return Ok(Flow::Goto(*to)),
            Op::JumpIf(_) | Op::JumpUnless(_) => {}
            Op::EachSegment { cursor, spot, under } => self.each_segment(frame, *cursor, *spot, *under)?,
            Op::EachRepetition { cursor, spot } => self.each_repetition(frame, *cursor, *spot)?,
            Op::Next { cursor, exit } => {
                if !self.next_turn(frame, *cursor) {
                    return Ok(Flow::Goto(*exit));
                }
            }
            Op::Run(program) => {
                let skipped = self.run(&self.programs[*program as usize], 0).map_err(|e| Stop::Called(Box::new(e)))?;
                return Ok(if skipped { Flow::Skip } else { Flow::Next });
            }
            Op::Skip => return Ok(Flow::Skip),
            Op::Fail(text) => {
                return Err(RunProblem::Failed { text: frame.program.texts[*text as usize].clone() }.into());
            }
            Op::End => return Ok(Flow::Return),
            op => {
                let flow = self.value_step(frame, op)?;
                return if self.arena.len() <= MAX_VALUE_BYTES { Ok(flow) } else { Err(too_long()) };
            }
        }
        Ok(Flow::Next)
    }
}

/// The charge of an operation on this message: 1 for about 50 ns, and as much again for every 1,024 segments or 64 KiB,
/// because an operation goes at most once through the message as a rule.
fn charge(message: &Message<'_>) -> u32 {
    let parts = message.len() / 1024 + message.raw().len() / (64 << 10);
    1 + u32::try_from(parts).map_or(LOOK, |parts| parts.min(LOOK))
}

fn too_long() -> Stop {
    RunProblem::TooMuch { limit: MAX_VALUE_BYTES as u32, what: "bytes in a value" }.into()
}

/// Why a step failed: its own problem, or an error of a called transform, which knows its file and line. Boxed: errors
/// are rare, and a large result would be moved on every step.
enum Stop {
    Problem(Box<RunProblem>),
    Called(Box<RunError>),
}

impl From<RunProblem> for Stop {
    fn from(problem: RunProblem) -> Stop {
        Stop::Problem(Box::new(problem))
    }
}

impl<'s> Frame<'s> {
    fn label(&self, spot: SpotId) -> String {
        self.program.labels[spot as usize].clone()
    }

    fn text(&self, text: u32) -> String {
        self.program.texts[text as usize].clone()
    }

    fn cursor(&self, cursor: super::program::Cursor) -> usize {
        self.cursors + usize::from(cursor)
    }
}
