//! Queries of queries: `bool`, `constant_score`, `dis_max`, `boosting`, and how many optional clauses must match.

use serde_json::{Map, Value};
use tantivy::query::{BooleanQuery, DisjunctionMaxQuery, Occur};

use crate::error::SearchError;

use super::demoting::DemotingQuery;
use super::{BoxedQuery, QueryBuilder, all, boost_of, boosted, constant, is_none, known_only, needed, none, number_of};

impl QueryBuilder<'_> {
    /// `{"bool": {"must": .., "filter": .., "should": .., "must_not": ..}}`
    pub(super) fn bool_query(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        let known = ["must", "filter", "should", "must_not", "mustNot", "minimum_should_match", "adjust_pure_negative"];
        known_only("bool", body, &known)?;
        let mut clauses = Vec::new();
        for query in self.clauses_of(body, &["must"])? {
            clauses.push((Occur::Must, query));
        }
        for query in self.clauses_of(body, &["filter"])? {
            clauses.push((Occur::Must, constant(query, 0.0)));
        }
        let required = clauses.len();
        for query in self.clauses_of(body, &["should"])? {
            clauses.push((Occur::Should, query));
        }
        let optional = clauses.len() - required;
        self.silent += 1;
        let excluded = self.clauses_of(body, &["must_not", "mustNot"]);
        self.silent -= 1;
        for query in excluded? {
            clauses.push((Occur::MustNot, query));
        }
        let boost = boost_of("bool", body)?;
        let minimum = match body.get("minimum_should_match") {
            None | Some(Value::Null) => usize::from(required == 0 && optional > 0),
            Some(given) => minimum_should_match(given, optional)?,
        };
        if clauses.is_empty() {
            return Ok(boosted(if minimum == 0 { all(1.0) } else { none() }, boost));
        }
        if required == 0 && optional == 0 {
            // Only exclusions: everything else matches, and nothing says how well.
            clauses.push((Occur::Must, all(0.0)));
        }
        let query = BooleanQuery::with_minimum_required_clauses(clauses, minimum);
        Ok(boosted(Box::new(query), boost))
    }

    /// The queries under one of `keys`, which may be one query or a list.
    fn clauses_of(&mut self, body: &Map<String, Value>, keys: &[&str]) -> Result<Vec<BoxedQuery>, SearchError> {
        let mut queries = Vec::new();
        for key in keys {
            match body.get(*key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(all)) => {
                    for query in all {
                        queries.push(self.query(query)?);
                    }
                }
                Some(one @ Value::Object(_)) => queries.push(self.query(one)?),
                Some(other) => {
                    return Err(SearchError::parsing(format!(
                        "[{key}] is a query or a list of queries, not [{other}]"
                    )));
                }
            }
        }
        Ok(queries)
    }

    /// `{"constant_score": {"filter": ..}}`
    pub(super) fn constant_score(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        known_only("constant_score", body, &["filter"])?;
        let Some(filter) = body.get("filter") else {
            return Err(SearchError::parsing("[constant_score] requires a 'filter' element"));
        };
        let boost = boost_of("constant_score", body)?;
        Ok(constant(self.query(filter)?, boost))
    }

    /// `{"dis_max": {"queries": [..], "tie_breaker": 0.3}}`
    pub(super) fn dis_max(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        known_only("dis_max", body, &["queries", "tie_breaker"])?;
        if !body.contains_key("queries") {
            return Err(SearchError::parsing("[dis_max] requires 'queries' field with at least one clause"));
        }
        let queries = self.clauses_of(body, &["queries"])?;
        let boost = boost_of("dis_max", body)?;
        Ok(boosted(best_of(queries, tie_breaker("dis_max", body, 0.0)?), boost))
    }

    /// `{"boosting": {"positive": .., "negative": .., "negative_boost": 0.5}}`
    pub(super) fn boosting(&mut self, body: &Map<String, Value>) -> Result<BoxedQuery, SearchError> {
        known_only("boosting", body, &["positive", "negative", "negative_boost"])?;
        let factor = number_of("boosting", "negative_boost", needed("boosting", body, "negative_boost")?)? as f32;
        if factor < 0.0 {
            return Err(SearchError::argument(
                "[boosting] query requires 'negative_boost' to be set to be a positive value",
            ));
        }
        let positive = self.query(needed("boosting", body, "positive")?)?;
        self.silent += 1;
        let negative = self.query(needed("boosting", body, "negative")?);
        self.silent -= 1;
        let query = DemotingQuery { positive, negative: negative?, factor };
        Ok(boosted(Box::new(query), boost_of("boosting", body)?))
    }
}

/// The tie breaker of a query over several fields.
pub(super) fn tie_breaker(name: &str, body: &Map<String, Value>, default: f32) -> Result<f32, SearchError> {
    match body.get("tie_breaker") {
        None | Some(Value::Null) => Ok(default),
        Some(value) => Ok(number_of(name, "tie_breaker", value)? as f32),
    }
}

/// What matches one of the queries, with the score of the best and a part of the others'.
pub(super) fn best_of(queries: Vec<BoxedQuery>, tie_breaker: f32) -> BoxedQuery {
    let mut queries: Vec<BoxedQuery> = queries.into_iter().filter(|query| !is_none(query)).collect();
    match queries.len() {
        0 => none(),
        1 => queries.remove(0),
        _ => Box::new(DisjunctionMaxQuery::with_tie_breaker(queries, tie_breaker)),
    }
}

/// How many of `count` optional clauses must match: `2`, `-1`, `75%`, `-25%`, `3<90%`, `2<-25% 9<-3`. May be more than `count`,
/// and then nothing matches. Errors: it cannot be read.
pub(super) fn minimum_should_match(given: &Value, count: usize) -> Result<usize, SearchError> {
    let unreadable = || SearchError::argument(format!("[minimum_should_match] cannot be [{given}]"));
    let text = match given {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return Err(unreadable()),
    };
    let simple = |text: &str| -> Option<usize> {
        let count = i64::try_from(count).ok()?;
        let minimum = match text.strip_suffix('%') {
            Some(percent) => {
                let part = count.checked_mul(percent.trim().parse::<i64>().ok()?)? / 100;
                if part < 0 { count + part } else { part }
            }
            None => match text.parse::<i64>().ok()? {
                number if number < 0 => count.saturating_add(number),
                number => number,
            },
        };
        Some(usize::try_from(minimum.max(0)).unwrap_or(usize::MAX))
    };
    if !text.contains('<') {
        return simple(&text).ok_or_else(unreadable);
    }
    let mut minimum = count;
    for condition in text.split_whitespace() {
        let (above, then) = condition.split_once('<').ok_or_else(unreadable)?;
        let above: usize = above.trim().parse().map_err(|_| unreadable())?;
        if count <= above {
            break;
        }
        minimum = simple(then).ok_or_else(unreadable)?;
    }
    Ok(minimum)
}
