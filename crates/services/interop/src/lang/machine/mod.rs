//! Running a program on a message.
//!
//! ```text
//! arena    S m i t h , _ A n n        bytes of all values on the stack
//! starts   0         5 7              where each begins; joining values is forgetting their starts
//! ```
//!
//! A loop over a flat list of operations. A value is raw content: bytes as they stand, or will stand, in the message.
//! Setting constants and copying allocate nothing but what the edit itself needs and, once, the arena.
//!
//! Cursors (loop variables, new segments) hold segment indexes; when segments come or go, every cursor and every
//! loop's list is moved along, so that a loop may insert and delete.

mod check;
mod edit;
mod function;
mod value;

use std::cell::OnceCell;
use std::sync::Arc;

use hl7::charset::Charset;
use hl7::{Delimiters, Draft, Message};

use super::context::{Context, Outcome, Problem, RunError};
use super::program::{Address, Op, Program, SpotId};
use super::table::Tables;
use super::time::Moment;

/// Where a run is given up as endless: a few seconds' work. An operation counts 1, and 1 more for every 64 segments,
/// because finding a segment looks at all of them.
const MAX_STEPS: u32 = 100_000_000;

/// More segments than any transform should add to one message. Each insert moves the list of those behind it.
const MAX_INSERTS: u32 = 20_000;

/// The longest value that is computed: more than the largest document sent in a field, and memory stays bounded.
const MAX_VALUE_BYTES: usize = 64 << 20;

/// What a program reads, and a transform edits.
enum Subject<'s, 'm> {
    Message(&'s Message<'m>),
    Draft(&'s mut Draft<'m>),
}

/// What a loop variable or a new segment's name stands for.
#[derive(Default)]
struct Cursor {
    /// Index of the segment; none before the first turn, or when it was deleted.
    segment: Option<usize>,
    /// In a loop over repetitions: the field, and which repetition it is, from 1.
    field: u16,
    repetition: u32,
    /// The repetition was deleted in this turn.
    gone: bool,
    /// Segments still to come, last first.
    pending: Vec<usize>,
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
    cursors: Vec<Cursor>,
    flag: bool,
    steps: u32,
    /// What an operation counts.
    weight: u32,
    inserts: u32,
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
        Machine::new(programs, tables, Subject::Draft(draft), context)
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
        let (delimiters, segments) = match &subject {
            Subject::Message(message) => (message.delimiters(), message.len()),
            Subject::Draft(draft) => (draft.delimiters(), draft.len()),
        };
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
            cursors: Vec::new(),
            flag: false,
            steps: 0,
            weight: weight(segments),
            inserts: 0,
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
        self.variables.truncate(frame.variables);
        self.cursors.truncate(frame.cursors);
        Ok(skipped)
    }

    fn step(&mut self, frame: Frame<'s>, op: &'s Op) -> Result<Flow, Stop> {
        self.steps = self.steps.saturating_add(self.weight);
        if self.steps > MAX_STEPS {
            return Err(Problem::Endless { limit: MAX_STEPS, what: "steps" }.into());
        }
        match op {
            Op::SetConstant { spot, constant } => self.set_constant(frame, *spot, *constant)?,
            Op::Set(spot) => self.set(frame, *spot)?,
            Op::Append(spot) => self.append(frame, *spot)?,
            Op::Copy { from, to } => self.copy(frame, *from, *to)?,
            Op::Move { from, to } => {
                self.copy(frame, *from, *to)?;
                self.delete(frame, *from)?;
            }
            Op::Delete(spot) => self.delete(frame, *spot)?,
            Op::Insert { segment, beside, after, cursor } => {
                let at = self.beside(frame, *beside, *after)?;
                self.insert(frame, *segment, at, *cursor)?;
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
            Op::Fail(text) => return Err(Problem::Failed { text: frame.program.texts[*text as usize].clone() }.into()),
            Op::End => return Ok(Flow::Return),
            op => {
                let flow = self.value_step(frame, op)?;
                return if self.arena.len() <= MAX_VALUE_BYTES { Ok(flow) } else { Err(too_long()) };
            }
        }
        Ok(Flow::Next)
    }
}

/// What an operation counts on a message of so many segments.
fn weight(segments: usize) -> u32 {
    1 + u32::try_from(segments / 64).unwrap_or(u32::MAX / 2)
}

fn too_long() -> Stop {
    Problem::Endless { limit: MAX_VALUE_BYTES as u32, what: "bytes in a value" }.into()
}

/// Why a step did not go on: its own problem, or an error of a called transform, which knows its file and line.
/// Boxed: errors are rare, and a large result would be moved on every step.
enum Stop {
    Problem(Box<Problem>),
    Called(Box<RunError>),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Stop {
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
