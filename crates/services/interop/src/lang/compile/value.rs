//! Values and functions: each leaves one value on the stack.
//!
//! A literal is a constant of the program. Numbers that count (a start, a width, days) and forms of time are literals
//! too and go into the operation, so they are checked when the file is loaded. Defaults of `lookup` and `date`, and the
//! later values of `coalesce`, are only computed if they are needed: operations jump over them.
//!
//! Not here: user functions and arithmetic, which the language does not have.

use super::super::content;
use super::super::diagnostic::{Fault, SourceSpan, suggest};
use super::super::program::{ConstantId, Op, Spot};
use super::super::syntax::{Base, Expression, Kind, Name, Reference};
use super::super::time::{Form, Unit};
use super::{Binding, Compiler, is_segment};

/// A function's name, how it is written, and how many arguments it takes (the table of `lookup` not counted).
struct Signature {
    name: &'static str,
    usage: &'static str,
    least: usize,
    most: usize,
}

const fn signature(name: &'static str, usage: &'static str, least: usize, most: usize) -> Signature {
    Signature { name, usage, least, most }
}

const FUNCTIONS: [Signature; 24] = [
    signature("upper", "upper(value)", 1, 1),
    signature("lower", "lower(value)", 1, 1),
    signature("trim", "trim(value)", 1, 1),
    signature("length", "length(value)", 1, 1),
    signature("substring", "substring(value, start [, length]), counted from 1, from the end if negative", 2, 3),
    signature("replace", "replace(value, 'from', 'to')", 3, 3),
    signature("split", "split(value, ' ', part), parts counted from 1", 3, 3),
    signature("pad_left", "pad_left(value, width, '0')", 3, 3),
    signature("pad_right", "pad_right(value, width, ' ')", 3, 3),
    signature("coalesce", "coalesce(value, value, ...): the first that is not empty", 2, 99),
    signature("join", "join(OBX[*]-5, ', ')", 2, 2),
    signature("count", "count(OBX) or count(PID-3)", 1, 1),
    signature("index", "index(o): which turn of its loop o is in", 1, 1),
    signature("lookup", "lookup(table, key [, default])", 1, 2),
    signature("now", "now('yyyyMMddHHmmss')", 1, 1),
    signature("date", "date(value, 'from', 'to' [, default]); 'hl7' is HL7's own form", 3, 4),
    signature("add_minutes", "add_minutes(value, 30)", 2, 2),
    signature("add_hours", "add_hours(value, -1)", 2, 2),
    signature("add_days", "add_days(value, 7)", 2, 2),
    signature("add_months", "add_months(value, 1)", 2, 2),
    signature("control_id", "control_id()", 0, 0),
    signature("hl7", "hl7(\"ICU^1^A\"): content with delimiters", 1, 1),
    signature("text", "text(\"a^b\"): plain text, whatever is in it", 1, 1),
    signature("service", "service", 0, 0),
];

impl Compiler<'_> {
    /// Emits the operations that leave the value on the stack.
    pub(super) fn value(&mut self, expression: &Expression) -> Result<(), Fault> {
        if let Some(constant) = self.literal(expression)? {
            self.emit(Op::Constant(constant), expression.span);
            return Ok(());
        }
        match &expression.kind {
            Kind::Service => {
                self.emit(Op::Service, expression.span);
            }
            Kind::Reference(reference) => self.reference(reference)?,
            Kind::Concat(parts) => {
                self.parts(parts)?;
                self.emit(Op::Concat(parts.len() as u32), expression.span);
            }
            Kind::Call { function, table, arguments } => {
                if let Some(table) = table {
                    return self.lookup(table, arguments, expression.span);
                }
                self.call_function(function, arguments, expression.span)?;
            }
            Kind::Text(_) | Kind::Number(_) | Kind::Null => unreachable!("these are literals"),
        }
        Ok(())
    }

    /// Emits the operations that leave the values to be joined on the stack.
    pub(super) fn parts(&mut self, parts: &[Expression]) -> Result<(), Fault> {
        for part in parts {
            if matches!(part.kind, Kind::Null) {
                return Err(Fault::new(part.span, "null is a value of its own and cannot be joined to others"));
            }
            self.value(part)?;
        }
        Ok(())
    }

    /// The constant an expression is, if it is one.
    pub(super) fn literal(&mut self, expression: &Expression) -> Result<Option<ConstantId>, Fault> {
        Ok(Some(match &expression.kind {
            Kind::Text(text) | Kind::Number(text) => self.constant(text, false),
            Kind::Null => self.constant("\"\"", true),
            Kind::Call { function, arguments, .. } if matches!(function.text.as_str(), "hl7" | "text") => {
                let usage = if function.text == "hl7" { "hl7(\"ICU^1^A\")" } else { "text(\"a^b\")" };
                let [Expression { kind: Kind::Text(text), span }] = arguments.as_slice() else {
                    return Err(Fault::new(expression.span, format!("{} takes one text in quotes", function.text))
                        .hint(format!("as in {usage}")));
                };
                if function.text == "hl7" && text.contains('|') {
                    return Err(Fault::new(*span, "`|` would end the field").hint("write \\F\\ for a bar that is text"));
                }
                self.constant(text, function.text == "hl7")
            }
            _ => return Ok(None),
        }))
    }

    /// Refuses a text that may mean components or mean its characters.
    pub(super) fn refuse_structured_text(&self, expression: &Expression) -> Result<(), Fault> {
        match &expression.kind {
            Kind::Text(text) if text.contains(['^', '~']) => {
                Err(Fault::new(expression.span, "a text for a whole field holds a delimiter").hint(format!(
                    "write hl7({0}) if ^ and ~ separate components and repetitions, text({0}) if they are characters",
                    &self.source.text[expression.span.start as usize..expression.span.end as usize]
                )))
            }
            Kind::Concat(parts) => parts.iter().try_for_each(|part| self.refuse_structured_text(part)),
            _ => Ok(()),
        }
    }

    fn reference(&mut self, reference: &Reference) -> Result<(), Fault> {
        if let Base::Variable(name) = &reference.base
            && let Binding::Variable(variable) = self.lookup_name(name)?
        {
            self.emit(Op::Variable(variable), reference.span);
            return Ok(());
        }
        let spot = self.single(reference)?;
        self.emit(Op::Value(spot), reference.span);
        Ok(())
    }

    fn lookup(&mut self, table: &Name, arguments: &[Expression], span: SourceSpan) -> Result<(), Fault> {
        let (key, default) = match arguments {
            [key] => (key, None),
            [key, default] => (key, Some(default)),
            _ => {
                return Err(Fault::new(span, "lookup takes a table, a key and perhaps a default").hint(usage("lookup")));
            }
        };
        let table = self.table(table)?;
        self.value(key)?;
        let what = self.quote(key.span);
        let at = self.emit(Op::Lookup { table, what, found: None }, span);
        if let Some(default) = default {
            self.value(default)?;
            self.land(at);
        }
        Ok(())
    }

    fn call_function(&mut self, function: &Name, arguments: &[Expression], span: SourceSpan) -> Result<(), Fault> {
        let Some(signature) = FUNCTIONS.iter().find(|known| known.name == function.text) else {
            return Err(Fault::new(function.span, format!("there is no function `{}`", function.text)).hint(suggest(
                &function.text,
                FUNCTIONS.iter().map(|known| known.name),
                "functions",
            )));
        };
        if !(signature.least..=signature.most).contains(&arguments.len()) {
            let count = arguments.len();
            return Err(
                Fault::new(span, format!("{} does not take {count} arguments", function.text)).hint(signature.usage)
            );
        }
        match signature.name {
            "coalesce" => return self.coalesce(arguments),
            "join" | "count" | "index" => return self.of_places(signature.name, arguments, span),
            "now" | "date" => return self.time(arguments, span),
            "control_id" => {
                self.emit(Op::ControlId, span);
                return Ok(());
            }
            "lookup" => return Err(Fault::new(span, "lookup takes a table, a key and perhaps a default")),
            "service" => return Err(Fault::new(span, "`service` is written without parentheses")),
            _ => {}
        }
        self.value(&arguments[0])?;
        let op = self.plain_function(signature.name, arguments)?;
        self.emit(op, span);
        Ok(())
    }

    /// The functions of one value and constants (and `replace`, of values); the first is on the stack.
    fn plain_function(&mut self, name: &str, arguments: &[Expression]) -> Result<Op, Fault> {
        Ok(match name {
            "upper" => Op::Upper,
            "lower" => Op::Lower,
            "trim" => Op::Trim,
            "length" => Op::Length,
            "substring" => {
                let start = whole_number(&arguments[1], "the start", i32::MIN)?;
                if start == 0 {
                    return Err(Fault::new(arguments[1].span, "characters are counted from 1"));
                }
                let length = arguments.get(2).map_or(Ok(i32::MAX), |length| whole_number(length, "the length", 0))?;
                Op::Substring { start, length: length as u32 }
            }
            "replace" => {
                self.value(&arguments[1])?;
                self.value(&arguments[2])?;
                Op::Replace
            }
            "split" => {
                self.value(&arguments[1])?;
                Op::Split(whole_number(&arguments[2], "the part", 1)? as u32)
            }
            "pad_left" | "pad_right" => {
                let width = whole_number(&arguments[1], "the width", 1)?;
                if width > MAX_WIDTH {
                    return Err(Fault::new(arguments[1].span, format!("the widest padding is {MAX_WIDTH}")));
                }
                let one = matches!(&arguments[2].kind, Kind::Text(text) | Kind::Number(text)
                    if content::length(text.as_bytes(), None) == 1);
                if !one {
                    return Err(Fault::new(arguments[2].span, "the padding is one character in quotes"));
                }
                self.value(&arguments[2])?;
                Op::Pad { left: name == "pad_left", width: width as u32 }
            }
            "add_minutes" => self.add(Unit::Minutes, arguments)?,
            "add_hours" => self.add(Unit::Hours, arguments)?,
            "add_days" => self.add(Unit::Days, arguments)?,
            "add_months" => self.add(Unit::Months, arguments)?,
            name => unreachable!("{name} is compiled elsewhere"),
        })
    }

    fn add(&mut self, unit: Unit, arguments: &[Expression]) -> Result<Op, Fault> {
        let amount = whole_number(&arguments[1], "what is added", i32::MIN)?;
        Ok(Op::Add { unit, amount, what: self.quote(arguments[0].span) })
    }

    /// The last value is used in any case; each one before it only if it is not empty.
    fn coalesce(&mut self, arguments: &[Expression]) -> Result<(), Fault> {
        let (last, before) = arguments.split_last().expect("coalesce has two arguments at least");
        let mut ends = Vec::new();
        for argument in before {
            self.value(argument)?;
            ends.push(self.emit(Op::JumpIfValue(0), argument.span));
        }
        self.value(last)?;
        ends.into_iter().for_each(|end| self.land(end));
        Ok(())
    }

    /// The functions of places rather than values.
    fn of_places(&mut self, name: &str, arguments: &[Expression], span: SourceSpan) -> Result<(), Fault> {
        let Kind::Reference(reference) = &arguments[0].kind else {
            return Err(Fault::new(arguments[0].span, format!("{name} is of places, not of values")).hint(usage(name)));
        };
        if name == "index" {
            let binding = match &reference.base {
                Base::Variable(variable) => self.lookup_name(variable)?,
                _ => return Err(Fault::new(reference.span, "index is of a loop variable").hint(usage(name))),
            };
            let (Binding::Segment(cursor) | Binding::Repetition(cursor)) = binding else {
                return Err(Fault::new(reference.span, "index is of a loop variable").hint(usage(name)));
            };
            self.emit(Op::Index(cursor), span);
            return Ok(());
        }
        let (mut spot, _) = self.place(reference)?;
        if name == "join" && is_segment(&spot) {
            return Err(Fault::new(reference.span, "join is of fields, not of segments").hint(usage(name)));
        }
        if name == "count" {
            count_all(&mut spot, reference);
            let spot = self.spot(spot, reference.span);
            self.emit(Op::Count(spot), span);
            return Ok(());
        }
        self.value(&arguments[1])?;
        let spot = self.spot(spot, reference.span);
        self.emit(Op::Join(spot), span);
        Ok(())
    }

    fn time(&mut self, arguments: &[Expression], span: SourceSpan) -> Result<(), Fault> {
        if let [pattern] = arguments {
            let form = self.form(pattern, Form::to_write)?;
            self.emit(Op::Now(form), span);
            return Ok(());
        }
        self.value(&arguments[0])?;
        let (from, to) = (self.form(&arguments[1], Form::to_read)?, self.form(&arguments[2], Form::to_write)?);
        let what = self.quote(arguments[0].span);
        let at = self.emit(Op::Date { from, to, what, read: None }, span);
        if let Some(default) = arguments.get(3) {
            self.value(default)?;
            self.land(at);
        }
        Ok(())
    }

    fn form(&mut self, pattern: &Expression, parse: fn(&str) -> Result<Form, String>) -> Result<u32, Fault> {
        let Kind::Text(text) = &pattern.kind else {
            return Err(Fault::new(pattern.span, "the form of a time is a pattern in quotes").hint(PATTERNS));
        };
        let form = parse(text).map_err(|fault| Fault::new(pattern.span, fault).hint(PATTERNS))?;
        self.program.forms.push(form);
        Ok((self.program.forms.len() - 1) as u32)
    }
}

const PATTERNS: &str = "'hl7', or letters: yyyy MM dd HH mm ss, yy M MMM d H hh h a m s S..SSSSSS, Z (+0100), \
                        three times X (+01:00); other text in single quotes: \"yyyy-MM-dd'T'HH:mm\"";

/// Padding is for identifiers and columns; the field it makes must stay a field.
const MAX_WIDTH: i32 = 1000;

fn usage(name: &str) -> &'static str {
    FUNCTIONS.iter().find(|known| known.name == name).map_or("", |known| known.usage)
}

fn whole_number(expression: &Expression, what: &str, least: i32) -> Result<i32, Fault> {
    let number = match &expression.kind {
        Kind::Number(text) => text.parse().ok().filter(|number| *number >= least),
        _ => None,
    };
    number.ok_or_else(|| {
        Fault::new(expression.span, format!("{what} is a whole number written here")).hint(if least >= 1 {
            "such as 1 or 20"
        } else {
            "such as 1 or 20; a computed number cannot be used here"
        })
    })
}

/// `count` counts segments and repetitions as such: a bare name means all of them.
fn count_all(spot: &mut Spot, written: &Reference) {
    use hl7::{Path, Which};
    if let Spot::Path(path) = spot
        && path.place.is_none()
        && matches!(&written.base, Base::Message { indexed: false, .. })
    {
        path.segment.which = Which::All;
    }
    if let Spot::Path(Path { place: Some(place), .. }) | Spot::Place(_, place) = spot
        && place.repetition.is_none()
        && place.component.is_none()
    {
        place.repetition = Some(Which::All);
    }
}
