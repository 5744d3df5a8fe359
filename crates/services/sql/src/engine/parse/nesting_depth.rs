//! Estimates how deep a statement nests, from its tokens. The estimate is an upper bound and needs little grammar.
//!
//! ```text
//!   an expression    operators, keywords, brackets behind a term: one each, since the last comma, AND or OR;
//!                    AND, OR: one each, since the last comma;
//!                    the content of brackets or of CASE, and one for these; the expressions of the tables that it reads,
//!                    because projections are merged; those of all queries of WITH, because these may read each other
//!   a statement      its deepest expression; QUERY_DEPTH for each set operation, join, table of FROM, OVER and query of
//!                    WITH, and SUBQUERY_DEPTH for each subquery, because the plan nests once for each; the content of its
//!                    deepest subquery
//! ```
//!
//! A list of values or columns is flat, whatever its length. Nearly every keyword may also be a name (`SELECT set OR
//! set ..`). So a keyword resets a count only where no name can be: behind a complete term.
//!
//! Not here: which depth is accepted ([`parse`](super)).

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

/// The stack that planning a set operation or join takes, in operators of an expression.
const QUERY_DEPTH: usize = 5;

/// The same for a subquery in an expression. Planning 95 of them takes 6 s, and 390 takes more than 4 minutes
/// (2026-11-22): this limit is for the time, not for the stack.
const SUBQUERY_DEPTH: usize = 20;

/// The nesting depth of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NestingDepth {
    /// The deepest expression, in operators.
    pub(crate) expression: usize,
    /// The whole statement, in the same unit.
    pub(crate) statement: usize,
    /// How often the parser reads the innermost part: once more for each bracket that directly contains another one,
    /// where a table is expected.
    pub(crate) readings: usize,
}

impl NestingDepth {
    /// The depth of this statement inside another one: a view inside the query that reads it.
    pub(crate) fn inside(self, around: NestingDepth) -> NestingDepth {
        NestingDepth {
            expression: self.expression + around.expression,
            statement: self.statement + around.statement,
            readings: self.readings,
        }
    }

    fn or(self, other: NestingDepth) -> NestingDepth {
        NestingDepth {
            expression: self.expression.max(other.expression),
            statement: self.statement.max(other.statement),
            readings: self.readings.max(other.readings),
        }
    }
}

/// What the commas inside a bracket separate.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum List {
    #[default]
    Values,
    /// FROM, USING: each is a join.
    Tables,
    /// WITH: each query may read those before it.
    Queries,
}

/// The last token.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Before {
    /// An operator, a comma, a keyword, or no token yet: any name may follow, also one that is a keyword elsewhere.
    #[default]
    Open,
    /// The end of a term, or of a table: only a name that is not reserved can follow.
    Term,
    Dot,
    /// `::`, or AS behind a term: a name follows.
    Cast,
    /// UNION and similar words behind a query, also with ALL or DISTINCT.
    SetOperation,
    Update,
    /// OPERATOR: the name of an operator follows in brackets, and behind them a term.
    Operator,
}

impl Before {
    /// The state after one more token, which is not a bracket.
    fn then(self, token: &Token) -> Before {
        use Keyword as K;
        match token {
            Token::Period => Before::Dot,
            Token::DoubleColon => Before::Cast,
            Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => Before::Term,
            Token::Word(word) if word.quote_style.is_some() => Before::Term,
            Token::Word(_) if matches!(self, Before::Dot | Before::Cast) => Before::Term,
            Token::Word(word) => match (word.keyword, self) {
                (K::NoKeyword | K::NULL | K::TRUE | K::FALSE | K::END, _) => Before::Term,
                (K::AS, Before::Term) => Before::Cast,
                (K::UNION | K::EXCEPT | K::INTERSECT | K::MINUS, Before::Term) => Before::SetOperation,
                (K::ALL | K::DISTINCT, Before::SetOperation) => Before::SetOperation,
                (K::UPDATE, _) => Before::Update,
                (K::OPERATOR, _) => Before::Operator,
                _ => Before::Open,
            },
            _ => Before::Open,
        }
    }
}

/// The counts of one open bracket or CASE.
#[derive(Clone, Copy, Default)]
struct Level {
    is_case: bool,
    /// The bracket contains the name of an operator.
    is_operator: bool,
    is_query: bool,
    /// The bracket opens where a table is expected.
    is_table: bool,
    /// Where a table is expected: how many brackets directly enclose each other here, including this one; and how often
    /// the outermost of them is read.
    run: usize,
    readings: usize,
    /// The largest number of readings of a bracket inside this one.
    deepest_readings: usize,
    list: List,
    /// The depth from set operations, joins and similar parts.
    queries: usize,
    /// The deepest subquery, without its expressions.
    subquery: usize,
    /// AND and OR of the present item: each is a level above all terms before it.
    chained: usize,
    /// Operators of the present term.
    operators: usize,
    /// The deepest bracket of the present term.
    inner: usize,
    /// The deepest term of the present item so far.
    term: usize,
    /// The deepest item so far.
    item: usize,
    /// The deepest expression of the tables that are read.
    below: usize,
}

impl Level {
    fn end_term(&mut self) {
        self.term = self.term.max(self.operators + self.inner);
        (self.operators, self.inner) = (0, 0);
        self.chained += 1;
    }

    fn end_item(&mut self) {
        self.item = self.item.max(1 + self.chained + self.term.max(self.operators + self.inner));
        (self.chained, self.operators, self.inner, self.term) = (0, 0, 0, 0);
    }

    /// The depth of the bracket at its end.
    fn depth(&mut self) -> NestingDepth {
        self.end_item();
        let expression = self.item + self.below;
        let statement = expression + self.queries + self.subquery;
        NestingDepth { expression, statement, readings: self.readings.max(self.deepest_readings) }
    }

    /// A new level for a bracket that opens inside this one.
    fn bracket(&self, before: Before, is_first: bool) -> Level {
        let level = Level { is_operator: before == Before::Operator, readings: self.readings, ..Level::default() };
        if self.is_table && is_first {
            Level {
                is_table: true,
                run: self.run + 1,
                readings: (self.readings / self.run).saturating_mul(self.run + 1),
                ..level
            }
        } else {
            Level { is_table: self.list == List::Tables && before == Before::Open, run: 1, ..level }
        }
    }

    /// Adds a bracket, or CASE, that has ended.
    fn take(&mut self, mut level: Level) {
        let whole = level.depth();
        match self.list {
            List::Queries => {
                self.queries += QUERY_DEPTH + level.queries + level.subquery;
                self.below += whole.expression;
            }
            List::Tables if level.is_query || level.is_table => {
                self.queries += QUERY_DEPTH;
                self.below = self.below.max(whole.expression);
                self.take_plan(&level);
            }
            _ => {
                self.queries += if level.is_query { SUBQUERY_DEPTH } else { 0 };
                self.inner = self.inner.max(whole.expression);
                self.operators += 1;
                self.take_plan(&level);
            }
        }
        self.deepest_readings = self.deepest_readings.max(whole.readings);
    }

    /// Adds the depth of a bracket to the plan: subqueries are beside each other, and a bracket in an expression
    /// encloses the rest.
    fn take_plan(&mut self, level: &Level) {
        if level.is_query {
            self.subquery = self.subquery.max(level.queries + level.subquery);
        } else {
            self.queries += level.queries;
            self.subquery = self.subquery.max(level.subquery);
        }
    }

    /// Processes a keyword or a name.
    fn word(&mut self, keyword: Keyword, before: Before) {
        use Keyword as K;
        let is_clause = before == Before::Term;
        match keyword {
            K::NoKeyword => {}
            K::WITH => self.list = List::Queries,
            K::SELECT | K::VALUES | K::INSERT | K::UPDATE | K::DELETE if before == Before::Cast => self.is_query = true,
            _ if matches!(before, Before::Dot | Before::Cast) => {}
            K::AND | K::OR if is_clause => self.end_term(),
            K::WHEN | K::THEN | K::ELSE if self.is_case => {
                if is_clause {
                    self.end_item();
                }
            }
            K::INNER | K::LEFT | K::RIGHT | K::FULL | K::CROSS | K::NATURAL if is_clause => self.end_item(),
            K::UNION | K::EXCEPT | K::INTERSECT | K::MINUS | K::JOIN | K::APPLY | K::OVER | K::PIVOT | K::UNPIVOT => {
                self.queries += QUERY_DEPTH;
                if is_clause && keyword != K::OVER {
                    self.end_item();
                }
                if matches!(keyword, K::JOIN | K::APPLY | K::PIVOT | K::UNPIVOT) {
                    self.list = List::Tables;
                }
            }
            K::FROM | K::USING => {
                self.list = List::Tables;
                if is_clause {
                    self.end_item();
                }
            }
            K::SELECT | K::VALUES | K::INSERT | K::UPDATE | K::DELETE => {
                self.is_query = true;
                // The other keywords may be the name of a table without AS.
                let is_query =
                    before == Before::SetOperation || is_clause && (keyword == K::SELECT || self.list != List::Tables);
                self.clause(is_query);
            }
            K::SET => self.clause(is_clause || before == Before::Update),
            K::WHERE | K::GROUP | K::HAVING | K::ORDER | K::WINDOW | K::LIMIT | K::RETURNING => self.clause(is_clause),
            _ => self.operators += 1,
        }
    }

    /// Processes a keyword that begins a clause without tables, or that is a name.
    fn clause(&mut self, is_clause: bool) {
        if is_clause {
            self.list = List::Values;
            self.end_item();
        }
    }

    fn comma(&mut self) {
        if self.list != List::Values {
            self.queries += QUERY_DEPTH;
        }
        self.end_item();
    }
}

/// Ends the innermost bracket or CASE and returns it; the outermost level stays.
fn close(open: &mut Vec<Level>) -> Option<Level> {
    let level = open.pop()?;
    match open.last_mut() {
        Some(outer) => {
            outer.take(level);
            Some(level)
        }
        // One closing bracket too many: the parser reports it.
        None => {
            open.push(level);
            None
        }
    }
}

/// Ends the innermost bracket; a CASE without its END ends with it. Returns the state before the next token.
fn close_bracket(open: &mut Vec<Level>) -> Before {
    loop {
        match close(open) {
            Some(Level { is_case: true, .. }) => {}
            Some(Level { is_operator: true, .. }) => return Before::Open,
            _ => return Before::Term,
        }
    }
}

/// Ends a statement, with all open brackets in it.
fn end(open: &mut Vec<Level>) -> NestingDepth {
    while close(open).is_some() {}
    let depth = open.last_mut().map(Level::depth).unwrap_or_default();
    *open = vec![Level { readings: 1, run: 1, ..Level::default() }];
    depth
}

/// The largest depth of some statements.
pub(crate) fn depth<'a>(tokens: impl Iterator<Item = &'a Token>) -> NestingDepth {
    let tokens: Vec<&Token> = tokens.filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let mut open = Vec::new();
    let mut most = end(&mut open);
    let (mut before, mut is_first) = (Before::Open, false);
    for (at, token) in tokens.iter().enumerate() {
        let last = open.last_mut().expect("the outermost level stays");
        let mut next = before.then(token);
        let is_bracket = matches!(token, Token::LParen | Token::LBracket | Token::LBrace);
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let level = last.bracket(before, is_first);
                open.push(level);
            }
            Token::RParen | Token::RBracket | Token::RBrace => next = close_bracket(&mut open),
            Token::Comma => last.comma(),
            Token::SemiColon => most = most.or(end(&mut open)),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE if before == Before::Open => {
                    let level =
                        Level { is_case: true, list: last.list, readings: last.readings, run: 1, ..Level::default() };
                    open.push(level);
                }
                Keyword::END if last.is_case => _ = close(&mut open),
                Keyword::WITH if is_time_zone(&tokens[at + 1..]) => {}
                keyword => last.word(keyword, before),
            },
            Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => {}
            // Operators, of which there are many.
            _ => last.operators += 1,
        }
        (before, is_first) = (next, is_bracket);
    }
    most.or(end(&mut open))
}

/// Whether the WITH before these tokens belongs to the name of a type.
fn is_time_zone(tokens: &[&Token]) -> bool {
    let word = |token: &Token| match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    matches!(tokens, [time, zone, ..] if word(time) == Keyword::TIME && word(zone) == Keyword::ZONE)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::engine::parse::bounded_dialect::BoundedDialect;

    fn depth_of(sql: &str) -> NestingDepth {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().expect("tokens");
        depth(tokens.iter())
    }

    #[test]
    fn depth_follows_operators_brackets_and_cases_and_lists_are_flat() {
        const Q: usize = QUERY_DEPTH;
        for (sql, expression, plan) in [
            ("", 1, 0),
            ("SELECT 1", 1, 0),
            ("SELECT a + b", 2, 0),
            ("SELECT a + b, c + d, e", 2, 0),
            ("SELECT a = 1 AND b = 2 OR c", 4, 0),
            ("SELECT a FROM t WHERE a IN (1, 2, 3, 4, 5, 6, 7, 8, 9)", 4, 0),
            ("SELECT ((a))", 5, 0),
            ("SELECT f(1, 2 + 3, g(4)) + 1", 6, 0),
            ("SELECT a IN (1) IN (1) IN (1)", 8, 0),
            ("SELECT a::int[][][]", 6, 0),
            ("SELECT CASE WHEN a = 1 THEN 1 WHEN a = 2 THEN 2 ELSE 3 END + 1", 5, 0),
            ("INSERT INTO t VALUES (1 + 1), (2 + 1), (3 + 1)", 4, 0),
            ("SELECT 1 + 1; SELECT 1", 2, 0),
            ("SELECT 1 UNION SELECT 1", 1, Q),
            ("SELECT 1, 2 UNION SELECT 1, 2 UNION SELECT 1 + 1, 2", 2, 2 * Q),
            ("SELECT a FROM b, c, d", 1, 2 * Q),
            ("SELECT a + 1 FROM (SELECT b + c + d AS a FROM e, f) AS g", 6, 2 * Q),
            ("SELECT a + 1 FROM t WHERE a = (SELECT 1 FROM t, u) OR b IN (SELECT 2 FROM t)", 5, Q + 2 * SUBQUERY_DEPTH),
            ("WITH a AS (SELECT 1 + 1), b AS (SELECT a + 1 FROM a) SELECT b + 1 FROM b", 6, 3 * Q),
            ("SELECT a, b, c IS DISTINCT FROM d, e, f FROM g", 3, 2 * Q),
            ("SELECT '+ + + +', \"OR\"", 1, 0),
        ] {
            let depth = depth_of(sql);
            assert_eq!((depth.expression, depth.statement - depth.expression), (expression, plan), "{sql}");
        }
        for sql in [")))", "SELECT (CASE WHEN a = 1 THEN 1), 1 + 1", "CASE END END", "((", "WITH (", "[1}"] {
            assert!((1..20).contains(&depth_of(sql).statement), "{sql}");
        }
    }

    #[test]
    fn whatever_is_repeated_counts_if_the_tree_or_the_plan_grows_with_it() {
        for (sql, repeated) in [
            ("SELECT 1", " + 1"),
            ("SELECT a", " OR b"),
            ("SELECT 1, 1", " UNION ALL SELECT 1, 1"),
            ("SELECT 1 GROUP BY 1, 2", " MINUS SELECT 1 GROUP BY 1, 2"),
            ("SELECT * FROM t", ", t AS u"),
            ("SELECT * FROM t", " CROSS JOIN t AS u"),
            ("SELECT NULL::int", "[]"),
            ("SELECT a", "::int"),
            ("SELECT a", " IN (1)"),
            ("SELECT a", "[1]"),
            ("SELECT (a)", ".b"),
            ("SELECT a", " IS NULL"),
            ("SELECT a", " NOTNULL"),
            ("SELECT ", "NOT "),
            ("SELECT ", "- "),
            ("SELECT ", "("),
            ("SELECT ", "f("),
            ("SELECT ", "CASE WHEN "),
            ("SELECT a", " SIMILAR TO 'b'"),
            ("SELECT a", " OPERATOR(+) 1"),
            ("SELECT 1", ", (SELECT 1)"),
            ("SELECT 1", ", sum(a) OVER (ORDER BY a)"),
            ("SELECT a", " AND a IN (SELECT 1)"),
            ("WITH a AS (SELECT 1)", ", a AS (SELECT a + 1 FROM a)"),
            ("SELECT a FROM ", "(SELECT a + 1 FROM "),
            ("SELECT a", " AT TIME ZONE 'UTC'"),
            ("SELECT a", " BETWEEN 1 AND 2"),
            ("SELECT a", " COLLATE \"C\""),
            ("SELECT a", " -> 'b'"),
            // Keywords as names.
            ("SELECT 1 WHERE set", " OR set"),
            ("SELECT 1", " + and"),
            ("SELECT a.limit", " + a.limit"),
            ("SELECT a", " OPERATOR(+) set"),
            ("SELECT CASE WHEN a", " OR when"),
            ("SELECT 1", " + sum(a) OVER ()"),
            ("SELECT * FROM t CROSS JOIN t", ", t AS u"),
            ("SELECT DISTINCT FROM t", ", t AS u"),
            ("SELECT is DISTINCT FROM t", ", t AS u"),
            ("SELECT * FROM t AS limit", ", t AS u"),
            ("SELECT * FROM t update", ", t AS u"),
            ("SELECT * FROM union AS select", ", t AS u"),
            ("SELECT * FROM union values", ", t AS u"),
            ("SELECT 1", ", abs(sum(a) OVER (ORDER BY a))"),
            ("SELECT 1", ", coalesce((SELECT 1), 0)"),
            ("SELECT 1 FROM t AS case", ", t AS u"),
            ("SELECT 1 FROM t case", ", t AS u"),
            ("WITH case AS (SELECT 1)", ", a AS (SELECT a + 1 FROM a)"),
            ("SELECT DISTINCT ON (1) is DISTINCT FROM (SELECT 1 AS is) z", ", t AS u"),
        ] {
            let many = format!("{sql}{}", repeated.repeat(2000));
            let depth = depth_of(&many);
            assert!(depth.statement >= 2000, "{sql}, then {repeated}: {depth:?}");
        }
    }

    #[test]
    fn lists_are_flat_and_brackets_around_tables_multiply_readings() {
        for (sql, repeated) in [
            ("SELECT 1", ", a + 1"),
            ("SELECT a IN (1", ", -2"),
            ("INSERT INTO t VALUES (1)", ", (NULL, 'a', -1, DEFAULT, now() + 1)"),
            ("CREATE TABLE t (a int", ", b numeric(5, 2) NOT NULL DEFAULT 1"),
            ("CREATE TABLE t (a int", ", b timestamp with time zone, c timestamp(3) with time zone, d varchar(9)"),
            ("SELECT a::timestamp with time zone", ", b::timestamp with time zone"),
            ("SELECT f(1", ", g(a)"),
            ("SELECT CASE a WHEN 0 THEN 1", " WHEN 1 THEN b + 1"),
        ] {
            let many = format!("{sql}{}", repeated.repeat(2000));
            assert!(depth_of(&many).statement < 30, "{sql}, then {repeated}: {:?}", depth_of(&many));
        }
        let nested = format!("SELECT FROM {}", "((((SELECT FROM ".repeat(9));
        assert_eq!(depth_of(&nested).readings, 4usize.pow(9));
        let joins = format!("SELECT * FROM {}a{}", "(".repeat(20), " JOIN b ON c = d)".repeat(20));
        assert_eq!(depth_of(&joins).readings, 20);
    }

    /// The depth of a syntax tree, from the nesting of its debug output.
    fn nests(statements: &[Statement]) -> usize {
        let (mut depth, mut most) = (0usize, 0);
        for byte in format!("{statements:?}").bytes() {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            most = most.max(depth);
        }
        most
    }

    #[test]
    fn where_a_tree_grows_with_what_is_repeated_the_depth_does_too() {
        // No open brackets and few repetitions: for some texts the parser's time doubles with each further word.
        let words = "a|b|1|'x'|+|=|,|,|(a)|f(b)|.|::|int|AS|AND|OR|NOT|IS|NULL|DISTINCT|FROM|t|JOIN|ON|CROSS|UNION|ALL|SELECT|\
                     VALUES|SET|LIMIT|WHERE|GROUP BY|ORDER BY|CASE|WHEN|THEN|ELSE|END|OVER ()|WITH|UPDATE|IN|OPERATOR(+)|[1]|\
                     BETWEEN|LEFT|RETURNING|USING";
        let words: Vec<&str> = words.split('|').collect();
        let seed = u64::from(std::process::id());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut grown = 0;
        for _ in 0..100_000 {
            let mut some = |most| {
                let some = (0..random.usize(1..most)).map(|_| words[random.usize(..words.len())]);
                some.collect::<Vec<_>>().join(" ")
            };
            let (begin, repeated, end) = (some(5), some(6), some(3));
            let of = |times: usize| format!("SELECT {begin} {} {end}", format!("{repeated} ").repeat(times));
            // Within bounds: one text in some millions would take the parser minutes (233 s, 2026-11-28).
            let tree = |times: usize| Parser::parse_sql(&BoundedDialect::new(0), &of(times)).ok();
            if let Ok(theirs) = Parser::parse_sql(&PostgreSqlDialect {}, &of(2)) {
                assert_eq!(tree(2), Some(theirs), "seed {seed}: {}", of(2));
            }
            let (Some(few), Some(more)) = (tree(6), tree(14)) else { continue };
            if nests(&more) >= nests(&few) + 8 {
                grown += 1;
                let depth = depth_of(&of(1000));
                assert!(depth.statement >= 1000, "seed {seed}: {depth:?} only for 1000 like {}", of(6));
            }
        }
        assert!(grown > 300, "{grown} of them grew");
    }
}
