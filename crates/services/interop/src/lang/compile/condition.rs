//! Conditions: tests that leave the flag, and short circuits.
//!
//! `a and b` is `a; JumpUnless end; b; end:` and `a or b` is `a; JumpIf end; b; end:`, so a side that cannot change
//! the outcome is not run.

use super::super::diagnostic::{Fault, SourceSpan};
use super::super::program::{Check, CompiledRelation, Op, Operand, SpotId};
use super::super::syntax::{self, Base, Condition, Expression, Kind, NumberOrder, Reference, Test};
use super::{Binding, Compiler, Reach, is_segment};
use hl7::Path;

impl Compiler<'_> {
    /// Emits the operations that leave the truth of a condition in the flag.
    pub(super) fn condition(&mut self, condition: &Condition) -> Result<(), Fault> {
        match condition {
            Condition::Or(sides) => self.circuit(sides, Op::JumpIf(0)),
            Condition::And(sides) => self.circuit(sides, Op::JumpUnless(0)),
            Condition::Not(inner) => {
                self.condition(inner)?;
                self.emit(Op::Not, SourceSpan::default());
                Ok(())
            }
            Condition::Exists(reference) => {
                let (mut spot, _) = match self.place(reference) {
                    Ok(place) => place,
                    Err(fault) if fault.hint.is_none() => {
                        return Err(fault.hint("`exists` is for places; for a variable write `... is not empty`"));
                    }
                    Err(fault) => return Err(fault),
                };
                if let super::Spot::Path(path) = &mut spot
                    && path.place.is_none()
                {
                    super::statement::name_all(path, reference);
                }
                let spot = self.spot(spot, reference.span);
                self.emit(Op::Exists(spot), reference.span);
                Ok(())
            }
            Condition::Test(test) => self.test(test),
        }
    }

    fn circuit(&mut self, sides: &[Condition], jump: Op) -> Result<(), Fault> {
        let (last, before) = sides.split_last().expect("the parser makes no empty list");
        let mut ends = Vec::new();
        for side in before {
            self.condition(side)?;
            let jump = if matches!(jump, Op::JumpIf(_)) { Op::JumpIf(0) } else { Op::JumpUnless(0) };
            ends.push(self.emit(jump, SourceSpan::default()));
        }
        self.condition(last)?;
        ends.into_iter().for_each(|end| self.land(end));
        Ok(())
    }

    fn test(&mut self, test: &Test) -> Result<(), Fault> {
        let (place, reach) = self.left(&test.left)?;
        if test.all && reach == Reach::One {
            return Err(Fault::new(test.left.span, "`all` is for a path that selects several places")
                .hint("as in all OBX[*]-11 = 'F'"));
        }
        let relation = self.relation(test, place)?;
        let many = reach != Reach::One;
        self.check(Check { place, many, all: test.all, negated: test.negated, relation }, test.span);
        Ok(())
    }

    /// The left side: a place, which may select several, or a value left on the stack.
    fn left(&mut self, left: &Expression) -> Result<(Option<SpotId>, Reach), Fault> {
        if let Kind::Reference(reference) = &left.kind
            && !self.names_variable(reference)
        {
            let (spot, reach) = self.place(reference)?;
            if is_segment(&spot) {
                return Err(Fault::new(reference.span, "this is a whole segment, and has no value to test")
                    .hint("test for it with `exists PV1`, or add a field, as in PV1-2"));
            }
            return Ok((Some(self.spot(spot, reference.span)), reach));
        }
        self.value(left)?;
        Ok((None, Reach::One))
    }

    fn names_variable(&self, reference: &Reference) -> bool {
        matches!(&reference.base, Base::Variable(name) if matches!(self.find(&name.text), Some(Binding::Variable(_))))
    }

    fn relation(&mut self, test: &Test, place: Option<SpotId>) -> Result<CompiledRelation, Fault> {
        use syntax::Relation as R;
        Ok(match &test.relation {
            R::Equals(Expression { kind: Kind::Null, .. }) | R::Null => CompiledRelation::Null,
            R::Equals(right) => {
                self.refuse_structure_in_test(&test.left, right)?;
                if matches!(right.kind, Kind::Number(_)) || matches!(test.left.kind, Kind::Number(_)) {
                    CompiledRelation::EqualsNumber(self.operand(right)?)
                } else {
                    CompiledRelation::Equals(self.operand(right)?)
                }
            }
            R::Ordered(order, right) => self.ordered(*order, right)?,
            R::In(items) => CompiledRelation::OneOf(self.items(&test.left, items)?),
            R::InTable(name) => CompiledRelation::InTable(self.table(name)?),
            R::Contains(right) => CompiledRelation::Contains(self.operand(right)?),
            R::StartsWith(right) => CompiledRelation::StartsWith(self.operand(right)?),
            R::EndsWith(right) => CompiledRelation::EndsWith(self.operand(right)?),
            R::Matches(pattern) => CompiledRelation::Matches(pattern.as_str().into()),
            R::Empty => CompiledRelation::Empty,
            R::Absent if place.is_none() => {
                return Err(Fault::new(test.left.span, "only a place of the message can be absent")
                    .hint("a computed value is empty or not: `is empty`"));
            }
            R::Absent => CompiledRelation::Absent,
        })
    }

    fn operand(&mut self, right: &Expression) -> Result<Operand, Fault> {
        if let Some(constant) = self.literal(right)? {
            return Ok(Operand::Constant(constant));
        }
        self.value(right)?;
        Ok(Operand::Stack)
    }

    fn ordered(&mut self, order: NumberOrder, right: &Expression) -> Result<CompiledRelation, Fault> {
        if let Kind::Text(text) = &right.kind
            && super::super::number::compare(text.as_bytes(), b"0").is_none()
        {
            return Err(Fault::new(right.span, "`<` and `>` compare numbers, and this text is none")
                .hint("timestamps are numbers in HL7's form, such as 20240131"));
        }
        Ok(CompiledRelation::Ordered(order, self.operand(right)?))
    }

    /// The texts of a list, sorted.
    fn items(&mut self, left: &Expression, items: &[Expression]) -> Result<Vec<Box<str>>, Fault> {
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let (Kind::Text(text) | Kind::Number(text)) = &item.kind else {
                return Err(Fault::new(item.span, "a list holds texts and numbers written here")
                    .hint("compare with other values by `=` and `or`; a long list can be a table: in table NAME"));
            };
            self.refuse_structure_in_test(left, item)?;
            texts.push(text.as_str().into());
        }
        texts.sort_unstable();
        Ok(texts)
    }

    /// Whether `MSH-9 = 'ADT^A01'` holds would depend on the sender's delimiters.
    fn refuse_structure_in_test(&self, left: &Expression, right: &Expression) -> Result<(), Fault> {
        let whole_field = match &left.kind {
            Kind::Reference(Reference {
                base: Base::Message { path: Path { place: Some(place), .. }, .. }, ..
            })
            | Kind::Reference(Reference { base: Base::OfSegment(_, place), .. }) => place.component.is_none(),
            _ => false,
        };
        let refused = if whole_field { self.refuse_structured_text(right) } else { Ok(()) };
        refused.map_err(|fault| {
            let hint = fault.hint.clone().unwrap_or_default();
            fault.hint(format!("compare component by component, as in MSH-9.1 = 'ADT' and MSH-9.2 = 'A01'; or {hint}"))
        })
    }
}
