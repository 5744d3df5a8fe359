//! Values and conditions.
//!
//! ```text
//! value     = term { "+" term }
//! term      = TEXT | NUMBER | "null" | "service" | place | name | FUNCTION "(" [ value { "," value } ] ")"
//! place     = PATH | name [ "-" field... | "." component [ "." subcomponent ] ]
//! condition = both { "or" both }            both = negation { "and" negation }
//! negation  = "not" negation | "(" condition ")" | "exists" place | [ "any" | "all" ] value relation
//! relation  = ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
//!           | [ "not" ] "in" ( "(" value { "," value } ")" | "table" NAME )
//!           | [ "not" ] ( "contains" | "starts" "with" | "ends" "with" ) value | [ "not" ] "matches" TEXT
//!           | "is" [ "not" ] ( "empty" | "absent" | "null" )
//! ```

use super::super::diagnostic::{Fault, SourceSpan};
use super::super::scan::KEYWORDS;
use super::super::syntax::{Base, Condition, Expression, Kind, Name, NumberOrder, Reference, Relation, Test};
use super::Parser;

/// The relations, for the fault of a condition that has none.
const RELATIONS: &str = "=  !=  <  <=  >  >=  in (...)  in table NAME  contains  starts with  ends with  matches  \
                         is empty  is absent  is null";

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Result<Expression, Fault> {
        self.nested(|parser| {
            let start = parser.scan.here();
            let first = parser.term()?;
            if !parser.scan.sees("+") {
                return Ok(first);
            }
            let mut parts = vec![first];
            while parser.scan.accept("+") {
                parser.scan.skip_lines();
                parts.push(parser.term()?);
            }
            Ok(Expression { kind: Kind::Concat(parts), span: parser.scan.since(start) })
        })
    }

    fn term(&mut self) -> Result<Expression, Fault> {
        let start = self.scan.here();
        let kind = if self.scan.sees_string() {
            Kind::Text(self.scan.string()?)
        } else if self.scan.sees_number() {
            Kind::Number(self.scan.number()?.0)
        } else if self.scan.sees_segment() {
            Kind::Reference(self.reference("a path")?)
        } else {
            match self.scan.word() {
                Some("null") => {
                    self.scan.accept_word("null");
                    Kind::Null
                }
                Some("service") if !self.calls("service") => {
                    self.scan.accept_word("service");
                    Kind::Service
                }
                Some(word) if self.calls(word) => self.call()?,
                Some(word) if KEYWORDS.contains(&word) => return Err(self.scan.unexpected("a value").hint(VALUES)),
                Some(_) => Kind::Reference(self.reference("a value")?),
                None => return Err(self.scan.unexpected("a value").hint(VALUES)),
            }
        };
        Ok(Expression { kind, span: self.scan.since(start) })
    }

    /// Whether arguments follow the word here.
    fn calls(&self, word: &str) -> bool {
        self.scan.rest()[word.len()..].trim_start_matches([' ', '\t']).starts_with('(')
    }

    fn call(&mut self) -> Result<Kind, Fault> {
        let function = self.identifier("a function")?;
        self.scan.expect("(", "after the function")?;
        let (table, arguments) = self.freely(|parser| parser.arguments(&function))?;
        Ok(Kind::Call { function, table, arguments })
    }

    fn arguments(&mut self, function: &Name) -> Result<(Option<Name>, Vec<Expression>), Fault> {
        let mut arguments = Vec::new();
        if self.scan.accept(")") {
            return Ok((None, arguments));
        }
        let table = if function.text == "lookup" { Some(self.name("the name of a table")?) } else { None };
        if table.is_none() {
            arguments.push(self.expression()?);
        }
        while !self.scan.accept(")") {
            self.scan.expect(",", &format!("or `)` in the arguments of {}", function.text))?;
            arguments.push(self.expression()?);
        }
        Ok((table, arguments))
    }

    /// A path, a loop variable followed by a place, or a variable.
    pub(super) fn reference(&mut self, what: &str) -> Result<Reference, Fault> {
        if self.scan.sees_segment() {
            let (path, indexed, span) = self.scan.path()?;
            return Ok(Reference { base: Base::Message { path, indexed }, span });
        }
        let start = self.scan.here();
        let name = self.identifier(what)?;
        let base = if let Some(place) = self.scan.place_after_variable() {
            Base::OfSegment(name, place?)
        } else if let Some(components) = self.scan.components_after_variable() {
            let (component, subcomponent) = components?;
            Base::OfRepetition(name, component, subcomponent)
        } else {
            Base::Variable(name)
        };
        Ok(Reference { base, span: self.scan.since(start) })
    }

    /// A condition; the lines within it may break anywhere, because a `{` or `)` ends it.
    pub(super) fn condition(&mut self) -> Result<Condition, Fault> {
        self.nested(|parser| parser.freely(Self::either))
    }

    fn either(&mut self) -> Result<Condition, Fault> {
        let mut sides = vec![self.both()?];
        while self.scan.accept_word("or") {
            sides.push(self.both()?);
        }
        Ok(if sides.len() == 1 { sides.swap_remove(0) } else { Condition::Or(sides) })
    }

    fn both(&mut self) -> Result<Condition, Fault> {
        let mut sides = vec![self.negation()?];
        while self.scan.accept_word("and") {
            sides.push(self.negation()?);
        }
        Ok(if sides.len() == 1 { sides.swap_remove(0) } else { Condition::And(sides) })
    }

    fn negation(&mut self) -> Result<Condition, Fault> {
        if self.scan.accept_word("not") {
            return Ok(Condition::Not(Box::new(self.nested(Self::negation)?)));
        }
        if self.scan.accept("(") {
            let inner = self.condition()?;
            self.scan.expect(")", "after the condition")?;
            return Ok(inner);
        }
        if self.scan.accept_word("exists") {
            return Ok(Condition::Exists(self.reference("a path, such as PV1 or PID-8")?));
        }
        self.test()
    }

    fn test(&mut self) -> Result<Condition, Fault> {
        let start = self.scan.here();
        let all = self.scan.accept_word("all");
        if !all {
            self.scan.accept_word("any");
        }
        let left = self.expression()?;
        let (negated, relation) = self.relation(left.span)?;
        Ok(Condition::Test(Box::new(Test { all, left, negated, relation, span: self.scan.since(start) })))
    }

    fn relation(&mut self, left: SourceSpan) -> Result<(bool, Relation), Fault> {
        // Longer marks first: `<=` begins with `<`.
        let marks = [
            ("<=", NumberOrder::LessOrEqual),
            (">=", NumberOrder::GreaterOrEqual),
            ("<", NumberOrder::Less),
            (">", NumberOrder::Greater),
        ];
        if self.scan.sees("==") {
            let fault = Fault::new(self.scan.word_span(), "`==` is not a relation");
            return Err(fault.hint("equality is one `=`"));
        }
        for (mark, negated) in [("!=", true), ("=", false)] {
            if self.scan.accept(mark) {
                return Ok((negated, Relation::Equals(self.expression()?)));
            }
        }
        for (mark, order) in marks {
            if self.scan.accept(mark) {
                return Ok((false, Relation::Ordered(order, self.expression()?)));
            }
        }
        if self.scan.accept_word("is") {
            let negated = self.scan.accept_word("not");
            return Ok((negated, self.state()?));
        }
        let negated = self.scan.accept_word("not");
        Ok((negated, self.worded_relation(left)?))
    }

    fn state(&mut self) -> Result<Relation, Fault> {
        for (word, relation) in [("empty", Relation::Empty), ("absent", Relation::Absent), ("null", Relation::Null)] {
            if self.scan.accept_word(word) {
                return Ok(relation);
            }
        }
        Err(self.scan.unexpected("`empty`, `absent` or `null` after `is`").hint("to compare with a value write `=`"))
    }

    fn worded_relation(&mut self, left: SourceSpan) -> Result<Relation, Fault> {
        if self.scan.accept_word("in") {
            return self.membership();
        }
        if self.scan.accept_word("contains") {
            return Ok(Relation::Contains(self.expression()?));
        }
        if self.scan.accept_word("starts") {
            self.scan.expect_word("with", "after `starts`")?;
            return Ok(Relation::StartsWith(self.expression()?));
        }
        if self.scan.accept_word("ends") {
            self.scan.expect_word("with", "after `ends`")?;
            return Ok(Relation::EndsWith(self.expression()?));
        }
        if self.scan.accept_word("matches") {
            return Ok(Relation::Matches(self.pattern()?));
        }
        let fault = self.scan.unexpected("a relation");
        // `if PID-8 {` is what a programmer writes for "has a value".
        Err(if self.scan.sees("{") {
            Fault::new(left, "a value alone is not a condition").hint("write `exists PATH` or `... is not empty`")
        } else {
            fault.hint(format!("the relations are: {RELATIONS}"))
        })
    }

    fn pattern(&mut self) -> Result<String, Fault> {
        if self.scan.sees_string() {
            return self.scan.string();
        }
        Err(self.scan.unexpected("a pattern in quotes").hint("`*` is any run of characters, `?` any one: 'A0?'"))
    }

    fn membership(&mut self) -> Result<Relation, Fault> {
        if self.scan.accept_word("table") {
            return Ok(Relation::InTable(self.name("the name of a table")?));
        }
        if !self.scan.accept("(") {
            return Err(self.scan.unexpected("`(` and a list, or `table NAME`, after `in`"));
        }
        let mut items = Vec::new();
        loop {
            items.push(self.expression()?);
            if self.scan.accept(")") {
                return Ok(Relation::In(items));
            }
            self.scan.expect(",", "or `)` in the list")?;
        }
    }
}

const VALUES: &str = "a value is a path (PID-5.1), a text ('M'), a number, null, service, a variable, or a function \
                      such as upper(PID-5.1); join values with +";
