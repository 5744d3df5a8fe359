//! From syntax tree to program: names become indices, and faults are refused here rather than at run time.
//!
//! ```text
//! mod         pools, scopes, meanings of names
//! statement   edits, loops, choices
//! value       expressions and functions
//! condition   tests, short circuits
//! ```
//!
//! A fault skips its statement only; the rest is still checked, so that one load reports all faults.

mod condition;
mod statement;
mod value;

use super::diagnostic::{Fault, Source, SourceSpan, suggest};
use super::program::{Address, Check, Constant, ConstantId, Cursor, Op, Program, Spot, SpotId, TextId, Variable};
use super::scan::KEYWORDS;
use super::syntax::{Base, Block, Condition, Name, Reference};
use super::table::{TableId, Tables};
use hl7::{Path, SegmentName, Which};

/// The names outside the file that a program may use.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) tables: &'a Tables,
    pub(super) transforms: &'a [&'a str],
}

/// A compiled transform and the transforms it calls, with the places of the calls.
pub(super) struct Compiled {
    pub(super) program: Program,
    pub(super) calls: Vec<(usize, SourceSpan)>,
}

/// Compiles a transform of which the parser read `block` and found `faults`.
pub(super) fn transform(
    source: &Source<'_>,
    (block, faults): (Block, Vec<Fault>),
    known: Known<'_>,
) -> Result<Compiled, Vec<Fault>> {
    let mut compiler = Compiler::new(source, known);
    compiler.block(&block);
    compiler.emit(Op::End, SourceSpan::default());
    compiler.finish(faults)
}

/// Compiles the conditions of rules; returns where each begins. A condition ends with [`Op::End`] and leaves the flag.
pub(super) fn conditions<'c>(
    source: &Source<'_>,
    conditions: impl Iterator<Item = Option<&'c Condition>>,
    known: Known<'_>,
) -> Result<(Program, Vec<Address>), Vec<Fault>> {
    let mut compiler = Compiler::new(source, known);
    let mut starts = Vec::new();
    for condition in conditions {
        starts.push(compiler.here());
        let result = match condition {
            Some(condition) => compiler.condition(condition),
            None => {
                compiler.emit(Op::True, SourceSpan::default());
                Ok(())
            }
        };
        compiler.note(result);
        compiler.emit(Op::End, SourceSpan::default());
    }
    compiler.finish(Vec::new()).map(|compiled| (compiled.program, starts))
}

/// The meaning of a name in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    Variable(Variable),
    Segment(Cursor),
    Repetition(Cursor),
}

/// How many places a reference selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    One,
    /// Those that meet a condition: the first of them where one value is expected.
    Some,
    /// `[*]`
    All,
}

struct Compiler<'a> {
    source: &'a Source<'a>,
    known: Known<'a>,
    /// Offset of each line's first byte.
    lines: Vec<u32>,
    program: Program,
    scopes: Vec<Vec<(String, Binding)>>,
    calls: Vec<(usize, SourceSpan)>,
    faults: Vec<Fault>,
}

impl<'a> Compiler<'a> {
    fn new(source: &'a Source<'a>, known: Known<'a>) -> Compiler<'a> {
        let newlines = source.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Compiler {
            source,
            known,
            lines: std::iter::once(0).chain(newlines.map(|(at, _)| at as u32 + 1)).collect(),
            program: Program { file: source.file.to_owned(), ..Program::default() },
            scopes: vec![Vec::new()],
            calls: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// The program, or all faults: those of the parser and those found here.
    fn finish(mut self, mut faults: Vec<Fault>) -> Result<Compiled, Vec<Fault>> {
        if !faults.is_empty() {
            // If a statement could not be read, names that it would have declared are not reported as unknown.
            self.faults.retain(|fault| !fault.consequent);
        }
        faults.append(&mut self.faults);
        if !faults.is_empty() {
            faults.sort_by_key(|fault| fault.span.start);
            return Err(faults);
        }
        assert!(self.program.ops.len() < Address::MAX as usize, "a file of 16 MiB has fewer operations");
        Ok(Compiled { program: self.program, calls: self.calls })
    }

    /// Records a fault, if it is one, and continues.
    fn note(&mut self, result: Result<(), Fault>) {
        self.faults.extend(result.err());
    }

    fn emit(&mut self, op: Op, span: SourceSpan) -> Address {
        let at = self.here();
        self.program.ops.push(op);
        // An operation that only joins others has no place in the source: it belongs to the line of the one before.
        let before = self.program.lines.last().copied().filter(|_| span == SourceSpan::default());
        let line = before.unwrap_or_else(|| self.lines.partition_point(|start| *start <= span.start) as u32);
        self.program.lines.push(line);
        at
    }

    fn here(&self) -> Address {
        self.program.ops.len() as Address
    }

    /// Lets the jump at `at` go to the next operation.
    fn land(&mut self, at: Address) {
        let here = self.here();
        match &mut self.program.ops[at as usize] {
            Op::Jump(to)
            | Op::JumpIf(to)
            | Op::JumpUnless(to)
            | Op::JumpIfValue(to)
            | Op::Next { exit: to, .. }
            | Op::CanExtend { otherwise: to, .. } => *to = here,
            Op::Lookup { found: to, .. } | Op::Date { read: to, .. } => *to = Some(here),
            op => panic!("{op:?} does not jump"),
        }
    }

    fn constant(&mut self, text: &str, content: bool) -> ConstantId {
        let pool = &mut self.program.constants;
        let known = pool.iter().rev().take(64).position(|c| c.content == content && &*c.text == text);
        if let Some(back) = known {
            return (pool.len() - 1 - back) as ConstantId;
        }
        pool.push(Constant::new(text, content));
        (pool.len() - 1) as ConstantId
    }

    fn text(&mut self, text: &str) -> TextId {
        self.program.texts.push(text.to_owned());
        (self.program.texts.len() - 1) as TextId
    }

    /// The source of a span, to name the thing in a message at run time.
    fn quote(&mut self, span: SourceSpan) -> TextId {
        self.text(&self.source.text[span.start as usize..span.end as usize])
    }

    fn spot(&mut self, spot: Spot, span: SourceSpan) -> SpotId {
        self.program.spots.push(spot);
        self.program.labels.push(self.source.text[span.start as usize..span.end as usize].to_owned());
        (self.program.spots.len() - 1) as SpotId
    }

    fn check(&mut self, check: Check, span: SourceSpan) {
        self.program.checks.push(check);
        self.emit(Op::Check((self.program.checks.len() - 1) as u32), span);
    }

    // Names.

    fn scoped(&mut self, compile: impl FnOnce(&mut Self)) {
        self.scopes.push(Vec::new());
        compile(self);
        self.scopes.pop();
    }

    fn find(&self, name: &str) -> Option<Binding> {
        let mut all = self.scopes.iter().rev().flat_map(|scope| scope.iter().rev());
        all.find(|(known, _)| known == name).map(|(_, binding)| *binding)
    }

    /// A new name: a small letter first, no keyword, and not in use.
    fn declare(&mut self, name: &Name, binding: Binding) -> Result<(), Fault> {
        if KEYWORDS.contains(&name.text.as_str()) {
            return Err(Fault::new(name.span, format!("`{}` is a word of the language, not a name", name.text)));
        }
        if !name.text.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(Fault::new(name.span, "a variable begins with a small letter")
                .hint(format!("segments are written in capitals, variables not: {}", name.text.to_lowercase())));
        }
        if self.find(&name.text).is_some() {
            return Err(
                Fault::new(name.span, format!("`{}` is in use here already", name.text)).hint("choose another name")
            );
        }
        self.scopes.last_mut().expect("there is always the file's scope").push((name.text.clone(), binding));
        Ok(())
    }

    fn new_variable(&mut self, span: SourceSpan) -> Result<Variable, Fault> {
        let next = self.program.variables.checked_add(1).ok_or_else(|| too_many(span));
        next.map(|next| std::mem::replace(&mut self.program.variables, next))
    }

    fn new_cursor(&mut self, span: SourceSpan) -> Result<Cursor, Fault> {
        let next = self.program.cursors.checked_add(1).ok_or_else(|| too_many(span));
        next.map(|next| std::mem::replace(&mut self.program.cursors, next))
    }

    fn lookup_name(&self, name: &Name) -> Result<Binding, Fault> {
        self.find(&name.text).ok_or_else(|| {
            let fault = Fault::new(name.span, format!("there is no variable `{}` here", name.text));
            let capitals = name.text.to_uppercase();
            if capitals.parse::<SegmentName>().is_ok() {
                return fault.hint(format!("segments are written in capitals: {capitals}-..."));
            }
            let fault =
                if name.text.starts_with(|c: char| c.is_ascii_lowercase()) { fault.consequent() } else { fault };
            let names: Vec<&str> = self.scopes.iter().flatten().map(|(known, _)| known.as_str()).collect();
            if names.is_empty() {
                return fault.hint(format!("texts stand in quotes: '{}'", name.text));
            }
            fault.hint(format!("{}; texts stand in quotes: '{}'", suggest(&name.text, names, "variables"), name.text))
        })
    }

    fn table(&self, name: &Name) -> Result<TableId, Fault> {
        self.known.tables.find(&name.text).ok_or_else(|| {
            Fault::new(name.span, format!("there is no table `{}`", name.text)).hint(suggest(
                &name.text,
                self.known.tables.names(),
                "tables",
            ))
        })
    }

    // Places.

    /// The place of a reference, and how many places it selects.
    fn place(&mut self, reference: &Reference) -> Result<(Spot, Reach), Fault> {
        match &reference.base {
            Base::Message { path, .. } => Ok((Spot::Path(path.clone()), reach(path))),
            Base::Variable(name) => match self.lookup_name(name)? {
                Binding::Segment(cursor) => Ok((Spot::Segment(cursor), Reach::One)),
                Binding::Repetition(cursor) => {
                    Ok((Spot::Repetition { cursor, component: None, subcomponent: None }, Reach::One))
                }
                Binding::Variable(_) => Err(Fault::new(
                    reference.span,
                    format!("`{}` is a variable, not a place of the message", name.text),
                )),
            },
            Base::OfSegment(name, place) => match self.lookup_name(name)? {
                Binding::Segment(cursor) => {
                    let reach = place.repetition.as_ref().map_or(Reach::One, reach_of);
                    Ok((Spot::Place(cursor, place.clone()), reach))
                }
                Binding::Repetition(_) => {
                    Err(Fault::new(reference.span, format!("`{}` is a repetition of a field", name.text))
                        .hint(format!("write {0} for all of it, {0}.1 for its first component", name.text)))
                }
                Binding::Variable(_) => {
                    Err(Fault::new(reference.span, format!("`{}` is a variable, not a segment", name.text)))
                }
            },
            Base::OfRepetition(name, component, subcomponent) => match self.lookup_name(name)? {
                Binding::Repetition(cursor) => {
                    let spot = Spot::Repetition { cursor, component: Some(*component), subcomponent: *subcomponent };
                    Ok((spot, Reach::One))
                }
                Binding::Segment(_) => Err(Fault::new(reference.span, format!("`{}` is a segment", name.text))
                    .hint(format!("write {}-{component} for its field {component}", name.text))),
                Binding::Variable(_) => Err(Fault::new(reference.span, format!("`{}` is a variable", name.text))
                    .hint("a variable holds one value; take it apart with split(...)")),
            },
        }
    }

    /// The place, where one value is expected.
    fn single(&mut self, reference: &Reference) -> Result<SpotId, Fault> {
        let (spot, reach) = self.place(reference)?;
        if reach == Reach::All {
            return Err(Fault::new(reference.span, "this stands for several places, and one value is wanted here")
                .hint(
                    "name one ([1], [last], [3.1='GLU']), loop with `for each`, or use join(path, ', ') or count(path)",
                ));
        }
        if is_segment(&spot) {
            return Err(Fault::new(reference.span, "this is a whole segment, and a value is wanted here")
                .hint("add a field, as in PID-5; a text stands in quotes; `copy` takes whole segments"));
        }
        Ok(self.spot(spot, reference.span))
    }

    /// The place, where it is written to.
    fn target(&mut self, reference: &Reference) -> Result<SpotId, Fault> {
        if let Base::Variable(name) = &reference.base
            && let Some(Binding::Variable(_)) = self.find(&name.text)
        {
            return Err(Fault::new(
                reference.span,
                format!("`{}` is a variable, not a place of the message", name.text),
            )
            .hint(format!("to give it another value write `let {} = ...`", name.text)));
        }
        let (spot, _) = self.place(reference)?;
        if is_segment(&spot) {
            return Err(Fault::new(reference.span, "this is a whole segment; a value goes into a field of it")
                .hint("add a field, as in PID-5; to fill a whole segment from another one use `copy`"));
        }
        refuse_delimiters(&spot, reference.span)?;
        Ok(self.spot(spot, reference.span))
    }
}

fn too_many(span: SourceSpan) -> Fault {
    Fault::new(span, format!("a file has at most {} variables", Variable::MAX))
}

fn is_segment(spot: &Spot) -> bool {
    matches!(spot, Spot::Segment(_) | Spot::Path(Path { place: None, .. }))
}

/// MSH-1 and MSH-2 determine how the rest is read: changing them would change every field.
fn refuse_delimiters(spot: &Spot, span: SourceSpan) -> Result<(), Fault> {
    match spot {
        Spot::Path(Path { segment, place: Some(place) }) if segment.name.is_header() && place.field <= 2 => {
            Err(Fault::new(span, "MSH-1 and MSH-2 declare the delimiters and cannot be changed"))
        }
        _ => Ok(()),
    }
}

fn reach(path: &Path) -> Reach {
    let segment = reach_of(&path.segment.which);
    let repetition = path.place.as_ref().and_then(|place| place.repetition.as_ref()).map_or(Reach::One, reach_of);
    match (segment, repetition) {
        (Reach::All, _) | (_, Reach::All) => Reach::All,
        (Reach::Some, _) | (_, Reach::Some) => Reach::Some,
        _ => Reach::One,
    }
}

fn reach_of(which: &Which) -> Reach {
    match which {
        Which::Nth(_) | Which::Last => Reach::One,
        Which::Where(_) => Reach::Some,
        Which::All => Reach::All,
    }
}
