//! From text to statements, with a limit to how deep one may be.
//!
//! ```text
//!   text -> tokens -> how deep would it nest? -> parser -> gate -> plan
//! ```
//!
//! The parser limits brackets, but builds `a OR b OR c ..` as a tree as deep as it has terms, and everything that walks a tree
//! behind it (planning, the optimizer, even giving the tree back) goes one frame of the stack deeper with each. A stack
//! that is at its end takes the whole node with it, so that depth is told from the tokens, before there is a tree.
//!
//! The depth is an estimate from above, made with little grammar:
//!
//! ```text
//!   operators, keywords, brackets behind a term   one each, since the last comma, AND or OR
//!   AND, OR                                        one each, since the last comma
//!   set operations, joins, tables of FROM, OVER,   QUERY_DEPTH each, in the whole bracket: the plan nests once for each,
//!   subqueries, the queries of WITH                and queries of WITH as deep as all of them together
//!   what is open (brackets, CASE)                  one each, and what is counted in each
//! ```
//!
//! A list of values or columns is flat, however long. Nearly every keyword may be a name too (`SELECT set OR set ..`), so one
//! only ends what was counted where no name can stand: behind a whole term.

use datafusion::sql::sqlparser::ast::{Expr, Statement};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::dialect::Patient;
use crate::SqlError;

/// The deepest statement taken: half of what a development build was seen to plan and run on a stack of
/// [`STACK_BYTES`](crate::STACK_BYTES) (sums, ORs and ANDs of 990 terms, 2026-11-22). Planning such a sum took it 70 s: what is
/// exact in arithmetic costs the cube of the depth.
const DEPTH_MAX: usize = 500;

/// What planning a set operation or join takes of the stack, in operators of an expression.
const QUERY_DEPTH: usize = 5;

/// Parses statements separated by semicolons.
///
/// Errors: 42601; 54001 for one that nests too deep.
pub(crate) fn statements(sql: &str) -> Result<Vec<Statement>, SqlError> {
    Ok(deep_statements(sql, 0)?.0)
}

/// The same for text that is planned inside of what is `around` deep already, such as a view's, and how deep both are.
pub(crate) fn deep_statements(sql: &str, around: usize) -> Result<(Vec<Statement>, usize), SqlError> {
    parse(sql, around, |parser| parser.parse_statements())
}

/// Parses one expression, such as a stored default. Errors: as [`statements`].
pub(crate) fn expression(sql: &str) -> Result<Expr, SqlError> {
    Ok(parse(sql, 0, |parser| parser.parse_expr())?.0)
}

fn parse<T>(
    sql: &str,
    around: usize,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<(T, usize), SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location();
    let tokens = tokens.map_err(|error| fault(error.into()))?;
    let depth = check_depth(&tokens, around)?;
    let dialect = Patient::new(tokens.len());
    let tree = read(&mut Parser::new(&dialect).with_tokens_with_locations(tokens)).map_err(fault)?;
    Ok((tree, depth))
}

fn fault(error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => too_deep("brackets and subqueries nest too deep".into()),
        other => SqlError::statement("42601", other.to_string()),
    }
}

fn too_deep(message: String) -> SqlError {
    let hint = "Use IN with a list instead of many ORs, or a table of the values and a join.";
    SqlError::statement("54001", message).with_hint(hint)
}

fn check_depth(tokens: &[TokenWithSpan], around: usize) -> Result<usize, SqlError> {
    let depth = around + depth(tokens.iter().map(|token| &token.token));
    match (depth > DEPTH_MAX, around) {
        (false, _) => Ok(depth),
        (true, 0) => {
            Err(too_deep(format!("the statement nests {depth} operators deep, and at most {DEPTH_MAX} are taken")))
        }
        (true, _) => Err(too_deep(format!(
            "the views that read each other nest {depth} operators deep together, and at most {DEPTH_MAX} are taken"
        ))),
    }
}

/// What the commas of a bracket are between.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum List {
    #[default]
    Values,
    /// FROM, USING: each is a join.
    Tables,
    /// WITH: each may read those before it.
    Queries,
}

/// What the last token was.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Before {
    /// An operator, a comma, a keyword, nothing: a name may follow, whatever it is called.
    #[default]
    Open,
    /// The end of a term, or of a table: no name can follow but one that is not reserved.
    Term,
    Dot,
    /// `::`, or AS behind a term: a name follows.
    Cast,
    /// UNION and the like behind a query, with ALL or DISTINCT.
    SetOperation,
    Update,
    /// Behind a term: IS, IS NOT.
    Is,
    /// Behind a term: IS DISTINCT, IS NOT DISTINCT.
    IsDistinct,
    /// The name of an operator follows in brackets, and behind them a term.
    Operator,
}

impl Before {
    /// Behind one more token that is no bracket.
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
                (K::IS, Before::Term) | (K::NOT, Before::Is) => Before::Is,
                (K::DISTINCT, Before::Is) => Before::IsDistinct,
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

/// What one bracket, or CASE, has come to.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The depth of the brackets around it.
    base: usize,
    is_case: bool,
    /// The name of an operator is in it.
    is_operator: bool,
    is_query: bool,
    list: List,
    /// Set operations, joins and the like.
    queries: usize,
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
}

impl Level {
    fn inside(outer: &Level, is_case: bool) -> Level {
        Level { base: outer.base + outer.depth(), is_case, ..Level::default() }
    }

    fn depth(&self) -> usize {
        1 + self.queries + self.chained + self.term.max(self.operators + self.inner)
    }

    fn end_term(&mut self) {
        self.term = self.term.max(self.operators + self.inner);
        (self.operators, self.inner) = (0, 0);
        self.chained += 1;
    }

    fn end_item(&mut self) {
        self.item = self.item.max(self.depth() - self.queries);
        (self.chained, self.operators, self.inner, self.term) = (0, 0, 0, 0);
    }

    /// What it adds to the bracket around it, at its end.
    fn whole(&mut self) -> usize {
        self.end_item();
        self.queries + self.item
    }

    /// Takes a word of the language, or a name.
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
            K::FROM | K::USING if before != Before::IsDistinct => {
                self.list = List::Tables;
                if is_clause {
                    self.end_item();
                }
            }
            K::SELECT | K::VALUES | K::INSERT | K::UPDATE | K::DELETE => {
                self.is_query = true;
                // The others may be what a table is called without AS.
                let is_query =
                    before == Before::SetOperation || is_clause && (keyword == K::SELECT || self.list != List::Tables);
                self.clause(is_query);
            }
            K::SET => self.clause(is_clause || before == Before::Update),
            K::WHERE | K::GROUP | K::HAVING | K::ORDER | K::WINDOW | K::LIMIT | K::RETURNING => self.clause(is_clause),
            _ => self.operators += 1,
        }
    }

    /// Takes a keyword that begins a clause without tables, or is a name.
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

/// Ends the innermost bracket or CASE, and gives it.
fn close(open: &mut Vec<Level>) -> Level {
    let Some(mut level) = open.pop() else { return Level::default() };
    let whole = level.whole();
    match open.last_mut() {
        Some(outer) if outer.list == List::Queries => outer.queries += whole,
        Some(outer) => {
            outer.queries += if level.is_query { QUERY_DEPTH } else { 0 };
            outer.inner = outer.inner.max(whole);
            outer.operators += 1;
        }
        // One bracket too many: the parser's to tell.
        None => open.push(level),
    }
    level
}

/// Ends the innermost bracket; a CASE without its END ends with it. Answers what stands before the next token.
fn close_bracket(open: &mut Vec<Level>) -> Before {
    loop {
        match close(open) {
            Level { is_case: true, .. } => {}
            Level { is_operator: true, .. } => return Before::Open,
            _ => return Before::Term,
        }
    }
}

fn depth<'a>(tokens: impl Iterator<Item = &'a Token>) -> usize {
    let mut open = vec![Level::default()];
    let (mut most, mut before) = (0, Before::Open);
    for token in tokens {
        let last = open.last_mut().expect("the outermost level stays");
        let mut next = before.then(token);
        match token {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket | Token::LBrace => {
                let level = Level { is_operator: before == Before::Operator, ..Level::inside(last, false) };
                open.push(level);
            }
            Token::RParen | Token::RBracket | Token::RBrace => next = close_bracket(&mut open),
            Token::Comma => last.comma(),
            Token::SemiColon => open = vec![Level::default()],
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE => {
                    let level = Level::inside(last, true);
                    open.push(level);
                }
                Keyword::END if last.is_case => _ = close(&mut open),
                keyword => last.word(keyword, before),
            },
            Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => {}
            // Operators, of which there are many.
            _ => last.operators += 1,
        }
        before = next;
        let last = open.last().expect("the outermost level stays");
        most = most.max(last.base + last.depth());
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth_of(sql: &str) -> usize {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().expect("tokens");
        depth(tokens.iter())
    }

    #[test]
    fn depth_follows_operators_brackets_and_cases_and_lists_are_flat() {
        for (sql, expected) in [
            ("", 0),
            ("SELECT 1", 1),
            ("SELECT a + b", 2),
            ("SELECT a + b, c + d, e", 2),
            ("SELECT a = 1 AND b = 2 OR c", 4),
            ("SELECT a FROM t WHERE a IN (1, 2, 3, 4, 5, 6, 7, 8, 9)", 4),
            ("SELECT ((a))", 5),
            ("SELECT f(1, 2 + 3, g(4)) + 1", 6),
            ("SELECT a IN (1) IN (1) IN (1)", 8),
            ("SELECT a::int[][][]", 6),
            ("SELECT CASE WHEN a = 1 THEN 1 WHEN a = 2 THEN 2 ELSE 3 END + 1", 5),
            ("INSERT INTO t VALUES (1 + 1), (2 + 1), (3 + 1)", 4),
            ("SELECT 1 + 1; SELECT 1", 2),
            ("SELECT 1 UNION SELECT 1", 1 + QUERY_DEPTH),
            ("SELECT 1, 2 UNION SELECT 1, 2 UNION SELECT 1, 2", 1 + 2 * QUERY_DEPTH),
            ("SELECT a FROM b, c, d", 1 + 2 * QUERY_DEPTH),
            ("SELECT a, b, c IS DISTINCT FROM d, e, f FROM g", 4),
            ("SELECT '+ + + +', \"OR\"", 1),
        ] {
            assert_eq!(depth_of(sql), expected, "{sql}");
        }
        for sql in [")))", "SELECT (CASE WHEN a = 1 THEN 1), 1 + 1", "CASE END END", "((", "WITH (", "[1}"] {
            assert!((1..20).contains(&depth_of(sql)), "{sql}");
        }
    }

    #[test]
    fn whatever_is_repeated_counts_if_the_tree_grows_with_it() {
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
        ] {
            let many = format!("{sql}{}", repeated.repeat(2000));
            assert!(depth_of(&many) >= 2000, "{sql}, then {repeated}: {}", depth_of(&many));
        }
        for (sql, repeated) in [
            ("SELECT 1", ", a + 1"),
            ("SELECT a IN (1", ", -2"),
            ("INSERT INTO t VALUES (1)", ", (NULL, 'a', -1, DEFAULT, now() + 1)"),
            ("CREATE TABLE t (a int", ", b numeric(5, 2) NOT NULL DEFAULT 1"),
            ("SELECT f(1", ", g(a)"),
            ("SELECT CASE a WHEN 0 THEN 1", " WHEN 1 THEN b + 1"),
        ] {
            let many = format!("{sql}{}", repeated.repeat(2000));
            assert!(depth_of(&many) < 30, "{sql}, then {repeated}: {}", depth_of(&many));
        }
    }
    #[test]
    fn what_the_parser_would_try_again_and_again_is_refused() {
        for (sql, repeated) in [
            ("SELECT ", "case + "),
            ("SELECT ", "not + "),
            ("SELECT ", "case (a) = "),
            ("SELECT ", "("),
            ("SELECT ", "((a "),
            ("SELECT * FROM ", "("),
            ("SELECT * FROM ", "((SELECT * FROM "),
            ("SELECT * FROM ", "(SELECT * FROM t JOIN ("),
            ("SELECT ", "position("),
            ("SELECT ", "a IN ("),
            ("SELECT a", " = ANY ("),
        ] {
            // Else this takes hours.
            for times in [10, 20, 40, 60] {
                assert!(statements(&format!("{sql}{}", repeated.repeat(times))).is_err());
            }
        }
    }

    /// How deep a syntax tree is, by what its own dump nests.
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
        // No open brackets, and few repetitions: some text the parser reads twice as often with each more.
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
            let tree = |times: usize| Parser::parse_sql(&PostgreSqlDialect {}, &of(times)).ok();
            if let Some(tree) = tree(2) {
                let ours = Parser::parse_sql(&Patient::new(0), &of(2));
                assert_eq!(ours.as_ref(), Ok(&tree), "seed {seed}: {}", of(2));
            }
            let (Some(few), Some(more)) = (tree(6), tree(14)) else { continue };
            if nests(&more) >= nests(&few) + 8 {
                grown += 1;
                let depth = depth_of(&of(1000));
                assert!(depth >= 1000, "seed {seed}: {depth} only for 1000 like {}", of(6));
            }
        }
        assert!(grown > 300, "{grown} of them grew");
    }
}
