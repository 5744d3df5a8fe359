//! Statements: edits, loops, choices, variables and calls, each to a few operations.
//!
//! ```text
//! for each OBX as o { set o-1 = 'x' }      EachSegment o;  next: Next o, exit end;  SetConstant;  Jump next;  end:
//! if A { x } else { y }                    A;  JumpUnless other;  x;  Jump end;  other: y;  end:
//! ```
//!
//! The places that a statement names are checked here: whole segments or fields, one place or several, delimiters that
//! must not change. A name lives to the end of its block.

use hl7::{Path, Which};

use super::super::diagnostic::{Fault, SourceSpan, suggest};
use super::super::program::{Address, Cursor, Op, Spot, SpotId};
use super::super::syntax::{
    Base, Beside, Block, Condition, Expression, Kind, Name, Reference, Statement, StatementAction,
};
use super::{Binding, Compiler, Reach, is_segment, refuse_delimiters};

impl Compiler<'_> {
    /// A block's statements, in a scope of their own unless they are the file's.
    pub(super) fn block(&mut self, block: &Block) {
        for statement in block {
            let result = self.statement(statement);
            self.note(result);
        }
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), Fault> {
        let span = statement.span;
        match &statement.action {
            StatementAction::Set(target, value) => self.set(target, value, span)?,
            StatementAction::Append(target, value) => self.append(target, value, span)?,
            StatementAction::Copy(from, to) => {
                let (from, to) = self.pair(from, to)?;
                self.emit(Op::Copy { from, to }, span);
            }
            StatementAction::Move(from, to) => self.relocate(from, to, span)?,
            StatementAction::Delete(what) => self.delete(what, span)?,
            StatementAction::Insert { segment, beside, name, block } => {
                let (after, beside) = match beside {
                    Beside::After(place) => (true, Some(self.neighbour(place, true)?)),
                    Beside::Before(place) => (false, Some(self.neighbour(place, false)?)),
                    Beside::End => (true, None),
                };
                if segment.is_header() {
                    return Err(Fault::new(span, format!("a message has one {segment}, and it comes first")));
                }
                let cursor = if name.is_some() { Some(self.new_cursor(span)?) } else { None };
                self.emit(Op::Insert { segment: *segment, beside, after, cursor }, span);
                self.name_inserted(name.as_ref().zip(cursor), block.as_ref())?;
            }
            StatementAction::ForEach { what, under, name, block } => {
                self.for_each(what, under.as_ref(), name, block)?
            }
            StatementAction::If { arms, otherwise } => self.choice(arms, otherwise.as_ref(), span),
            StatementAction::Let(name, value) => self.keep(name, value)?,
            StatementAction::Call(name) => self.call(name, span)?,
            StatementAction::Fail(text) => {
                let text = self.text(text);
                self.emit(Op::Fail(text), span);
            }
            StatementAction::Skip => {
                self.emit(Op::Skip, span);
            }
        }
        Ok(())
    }

    fn set(&mut self, target: &Reference, value: &Expression, span: SourceSpan) -> Result<(), Fault> {
        self.refuse_structure(target, value)?;
        if let Kind::Reference(from) = &value.kind
            && !self.is_variable(from)
        {
            // The value of a place is its raw content: setting from a place is copying.
            let (from, to) = (self.single(from)?, self.target(target)?);
            self.emit(Op::Copy { from, to }, span);
            return Ok(());
        }
        if let Some(constant) = self.literal(value)? {
            let spot = self.target(target)?;
            self.emit(Op::SetConstant { spot, constant }, span);
            return Ok(());
        }
        let extended = self.extend(target, value, span)?;
        self.value(value)?;
        let spot = self.target(target)?;
        self.emit(Op::Set(spot), span);
        if let Some(end) = extended {
            self.land(end);
        }
        Ok(())
    }

    /// `set P = P + ...` appends to the present value if that is long: if a loop wrote the text anew in each pass, the
    /// time would grow with the square of its length. Returns the jump past the ordinary operations.
    fn extend(&mut self, target: &Reference, value: &Expression, span: SourceSpan) -> Result<Option<Address>, Fault> {
        let Kind::Concat(parts) = &value.kind else { return Ok(None) };
        let Some((Expression { kind: Kind::Reference(first), .. }, more)) = parts.split_first() else {
            return Ok(None);
        };
        if self.is_variable(first) {
            return Ok(None);
        }
        let (from, spot) = (self.single(first)?, self.target(target)?);
        if self.program.spots[from as usize] != self.program.spots[spot as usize] {
            return Ok(None);
        }
        let look = self.emit(Op::CanExtend { spot, otherwise: 0 }, span);
        self.parts(more)?;
        self.emit(Op::ExtendPlace { spot, parts: more.len() as u32 }, span);
        let end = self.emit(Op::Jump(0), span);
        self.land(look);
        Ok(Some(end))
    }

    fn append(&mut self, target: &Reference, value: &Expression, span: SourceSpan) -> Result<(), Fault> {
        self.refuse_structure(target, value)?;
        let (spot, _) = self.place(target)?;
        let whole_field = match &spot {
            Spot::Path(Path { place: Some(place), .. }) | Spot::Place(_, place) => {
                place.component.is_none() && place.repetition.is_none()
            }
            _ => false,
        };
        if !whole_field {
            return Err(Fault::new(target.span, "`append` adds a repetition to a field")
                .hint("name the field alone, as in append PID-3 = ..."));
        }
        refuse_delimiters(&spot, target.span)?;
        self.value(value)?;
        let spot = self.spot(spot, target.span);
        self.emit(Op::Append(spot), span);
        Ok(())
    }

    /// A text with `^` or `~` for a whole field may mean components or the characters: the author must specify which.
    fn refuse_structure(&mut self, target: &Reference, value: &Expression) -> Result<(), Fault> {
        let place = match &target.base {
            Base::Message { path: Path { place: Some(place), .. }, .. } | Base::OfSegment(_, place) => place,
            _ => return Ok(()),
        };
        if place.component.is_some() {
            return Ok(());
        }
        self.refuse_structured_text(value)
    }

    fn is_variable(&self, reference: &Reference) -> bool {
        matches!(&reference.base, Base::Variable(name) if matches!(self.find(&name.text), Some(Binding::Variable(_))))
    }

    /// Both sides of a copy: two places, or two whole segments.
    fn pair(&mut self, from: &Reference, to: &Reference) -> Result<(SpotId, SpotId), Fault> {
        let (source, reach) = self.place(from)?;
        let (target, _) = self.place(to)?;
        match (is_segment(&source), is_segment(&target)) {
            (false, false) => Ok((self.single(from)?, self.target(to)?)),
            (true, true) => {
                if reach == Reach::All {
                    return Err(Fault::new(from.span, "this stands for several segments; one is copied")
                        .hint("loop with `for each`, and insert a segment for each"));
                }
                for (spot, place) in [(&source, from), (&target, to)] {
                    if matches!(spot, Spot::Path(path) if path.segment.name.is_header()) {
                        return Err(Fault::new(place.span, "MSH is not copied as a whole")
                            .hint("copy its fields, as in copy MSH-3 to MSH-5"));
                    }
                }
                Ok((self.spot(source, from.span), self.spot(target, to.span)))
            }
            (segment, _) => {
                Err(Fault::new(from.span.to(to.span), "a whole segment and a field cannot stand for each other").hint(
                    if segment {
                        "add a field to the first, as in PID-5"
                    } else {
                        "add a field to the second, as in PID-5"
                    },
                ))
            }
        }
    }

    fn relocate(&mut self, from: &Reference, to: &Reference, span: SourceSpan) -> Result<(), Fault> {
        let (source, _) = self.place(from)?;
        if is_segment(&source) {
            return Err(Fault::new(from.span, "`move` moves fields and parts of them, not segments")
                .hint("insert the new segment, copy to it, and delete the old one"));
        }
        refuse_delimiters(&source, from.span)?;
        let (from, to) = self.pair(from, to)?;
        self.emit(Op::Move { from, to }, span);
        Ok(())
    }

    fn delete(&mut self, what: &Reference, span: SourceSpan) -> Result<(), Fault> {
        let (mut spot, _) = self.place(what)?;
        if let Spot::Path(path) = &mut spot
            && path.place.is_none()
        {
            if path.segment.name.is_header() {
                return Err(Fault::new(what.span, "a message cannot be without MSH"));
            }
            name_all(path, what);
        }
        refuse_delimiters(&spot, what.span)?;
        let spot = self.spot(spot, what.span);
        self.emit(Op::Delete(spot), span);
        Ok(())
    }

    /// The segment beside which another goes.
    fn neighbour(&mut self, place: &Reference, after: bool) -> Result<SpotId, Fault> {
        let (spot, reach) = self.place(place)?;
        if !is_segment(&spot) {
            return Err(
                Fault::new(place.span, "a segment goes beside a segment, not a field").hint("leave the field away")
            );
        }
        if reach == Reach::All {
            return Err(Fault::new(place.span, "this stands for several segments")
                .hint("name one ([1], [last]), or insert within `for each`"));
        }
        if !after && matches!(&spot, Spot::Path(path) if path.segment.name.is_header()) {
            return Err(Fault::new(place.span, "nothing comes before MSH"));
        }
        Ok(self.spot(spot, place.span))
    }

    fn name_inserted(&mut self, name: Option<(&Name, Cursor)>, block: Option<&Block>) -> Result<(), Fault> {
        let Some((name, cursor)) = name else { return Ok(()) };
        let Some(block) = block else { return self.declare(name, Binding::Segment(cursor)) };
        let mut declared = Ok(());
        self.scoped(|compiler| {
            declared = compiler.declare(name, Binding::Segment(cursor));
            if declared.is_ok() {
                compiler.block(block);
            }
        });
        declared
    }

    fn for_each(&mut self, what: &Reference, under: Option<&Name>, name: &Name, block: &Block) -> Result<(), Fault> {
        let (mut spot, reach) = self.place(what)?;
        let under = under.map(|outer| self.outer(outer)).transpose()?;
        let cursor = self.new_cursor(what.span)?;
        let segments = is_segment(&spot);
        if segments {
            match &mut spot {
                Spot::Path(path) => name_all(path, what),
                _ => return Err(Fault::new(what.span, "this is one segment, there is nothing to loop over")),
            }
            let spot = self.spot(spot, what.span);
            self.emit(Op::EachSegment { cursor, spot, under }, what.span);
        } else {
            if under.is_some() {
                return Err(Fault::new(what.span, "`under` is for segments").hint(
                    "for each OBX under o as x { ... }: the OBX after the segment o, up to the next of o's name",
                ));
            }
            let spot = self.repeating(spot, reach, what)?;
            self.emit(Op::EachRepetition { cursor, spot }, what.span);
        }
        let next = self.emit(Op::Next { cursor, exit: 0 }, what.span);
        let binding = if segments { Binding::Segment(cursor) } else { Binding::Repetition(cursor) };
        let mut declared = Ok(());
        self.scoped(|compiler| {
            declared = compiler.declare(name, binding);
            if declared.is_ok() {
                compiler.block(block);
            }
        });
        self.emit(Op::Jump(next), what.span);
        self.land(next);
        declared
    }

    /// The field whose repetitions a loop goes over.
    fn repeating(&mut self, mut spot: Spot, reach: Reach, what: &Reference) -> Result<SpotId, Fault> {
        let several_segments = matches!(&spot, Spot::Path(path) if path.segment.which == Which::All);
        let (Spot::Path(Path { place: Some(place), .. }) | Spot::Place(_, place)) = &mut spot else {
            return Err(Fault::new(what.span, "this is one repetition, there is nothing to loop over"));
        };
        let one = place.component.is_some() || matches!(place.repetition, Some(Which::Nth(_) | Which::Last));
        if one || several_segments || (reach == Reach::Some && place.repetition.is_some()) {
            return Err(Fault::new(what.span, "a loop goes over segments, or over the repetitions of one field")
                .hint("for each OBX as o { for each o-5 as value { ... } }"));
        }
        place.repetition = None;
        Ok(self.spot(spot, what.span))
    }

    fn outer(&self, name: &Name) -> Result<Cursor, Fault> {
        match self.lookup_name(name)? {
            Binding::Segment(cursor) => Ok(cursor),
            _ => Err(Fault::new(name.span, format!("`{}` is not a segment", name.text))
                .hint("for each OBR as order { for each OBX under order as result { ... } }")),
        }
    }

    fn choice(&mut self, arms: &[(Condition, Block)], otherwise: Option<&Block>, span: SourceSpan) {
        let mut ends = Vec::new();
        for (at, (condition, block)) in arms.iter().enumerate() {
            let result = self.condition(condition);
            self.note(result);
            let past = self.emit(Op::JumpUnless(0), span);
            self.scoped(|compiler| compiler.block(block));
            if at + 1 < arms.len() || otherwise.is_some() {
                ends.push(self.emit(Op::Jump(0), span));
            }
            self.land(past);
        }
        if let Some(block) = otherwise {
            self.scoped(|compiler| compiler.block(block));
        }
        for end in ends {
            self.land(end);
        }
    }

    /// `let` makes a variable, or gives the one of this name another value.
    fn keep(&mut self, name: &Name, value: &Expression) -> Result<(), Fault> {
        // `let x = x + ...` appends to the value: copying the text in each pass of a loop would take time that grows
        // with the square of its length.
        if let Kind::Concat(parts) = &value.kind
            && let Some((Expression { kind: Kind::Reference(first), .. }, more)) = parts.split_first()
            && matches!(&first.base, Base::Variable(variable) if variable.text == name.text)
            && let Some(Binding::Variable(variable)) = self.find(&name.text)
        {
            self.parts(more)?;
            self.emit(Op::Extend { variable, parts: more.len() as u32 }, name.span);
            return Ok(());
        }
        let result = self.value(value);
        let variable = match self.find(&name.text) {
            Some(Binding::Variable(variable)) => variable,
            _ => {
                let variable = self.new_variable(name.span)?;
                self.declare(name, Binding::Variable(variable))?;
                variable
            }
        };
        // The name is declared even if its value is wrong, so that its uses are not wrong as well.
        result?;
        self.emit(Op::Keep(variable), name.span);
        Ok(())
    }

    fn call(&mut self, name: &Name, span: SourceSpan) -> Result<(), Fault> {
        let Some(id) = self.known.transforms.iter().position(|known| *known == name.text) else {
            return Err(Fault::new(name.span, format!("there is no transform `{}`", name.text)).hint(suggest(
                &name.text,
                self.known.transforms.iter().copied(),
                "transforms",
            )));
        };
        self.calls.push((id, name.span));
        self.emit(Op::Run(id as u32), span);
        Ok(())
    }
}

/// In a statement about segments as such, a bare name means all of them.
pub(super) fn name_all(path: &mut Path, written: &Reference) {
    if matches!(&written.base, Base::Message { indexed: false, .. }) {
        path.segment.which = Which::All;
    }
}
