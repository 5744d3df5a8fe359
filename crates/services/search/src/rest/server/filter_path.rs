//! `filter_path`: the parts of a response that a client wants, as patterns of paths.
//!
//! ```text
//!   took,hits.hits._id,-**.secret       * is any text within a name, ** any names, or none
//! ```
//!
//! With patterns to include, only what they name stays, and objects and lists of which nothing stays are left out. Patterns
//! with a `-` take away what they name. A list has no step of its own: `a.b` names `b` of each object in list `a`. A dot in
//! a name is written `\.`.
//!
//! The work is bounded: each name of the response is compared with at most [`STEPS_MAX`] steps.

use serde_json::{Map, Value};

use crate::error::SearchError;

/// Most steps of all patterns together.
const STEPS_MAX: usize = 256;

/// A step of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathStep {
    /// `**`
    AnyDepth,
    /// A name with `*`.
    Name(String),
}

type PathPattern = Vec<PathStep>;

/// What stays of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PathFilter {
    include: Vec<PathPattern>,
    exclude: Vec<PathPattern>,
}

/// Where the path to a node is in a pattern: its remaining steps.
type Remaining<'a> = Vec<&'a [PathStep]>;

impl PathFilter {
    /// Reads the parameter; none if it has no pattern. Errors: its patterns have more steps than [`STEPS_MAX`].
    pub(super) fn parse(text: &str) -> Result<Option<PathFilter>, SearchError> {
        let mut filter = PathFilter::default();
        for pattern in text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()) {
            match pattern.strip_prefix('-') {
                Some(pattern) => filter.exclude.push(steps(pattern)),
                None => filter.include.push(steps(pattern)),
            }
        }
        if filter.include.iter().chain(&filter.exclude).map(Vec::len).sum::<usize>() > STEPS_MAX {
            return Err(SearchError::argument(format!("[filter_path] has more than {STEPS_MAX} names")));
        }
        Ok((filter != PathFilter::default()).then_some(filter))
    }

    /// What stays of a response.
    pub(super) fn apply(&self, mut value: Value) -> Value {
        if !self.include.is_empty() {
            let remaining = start(&self.include);
            value = included(value, &remaining).unwrap_or_else(|| Value::Object(Map::new()));
        }
        if !self.exclude.is_empty() {
            take_away(&mut value, &start(&self.exclude));
        }
        value
    }
}

/// The steps of a pattern.
fn steps(pattern: &str) -> PathPattern {
    let (mut steps, mut name, mut escaped) = (Vec::new(), String::new(), false);
    for letter in pattern.chars() {
        match letter {
            '.' if !escaped => steps.push(std::mem::take(&mut name)),
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            letter => name.push(letter),
        }
        escaped = false;
    }
    steps.push(name);
    let steps = steps.into_iter().filter(|name| !name.is_empty());
    let mut steps: PathPattern =
        steps.map(|name| if name == "**" { PathStep::AnyDepth } else { PathStep::Name(name) }).collect();
    steps.dedup_by(|later, earlier| *later == PathStep::AnyDepth && *earlier == PathStep::AnyDepth);
    steps
}

fn start(patterns: &[PathPattern]) -> Remaining<'_> {
    patterns.iter().filter(|pattern| !pattern.is_empty()).map(Vec::as_slice).collect()
}

/// The remaining steps behind a name; true if a pattern ends with it.
fn behind<'a>(remaining: &Remaining<'a>, name: &str) -> (bool, Remaining<'a>) {
    let (mut ends, mut next) = (false, Remaining::new());
    let mut add = |rest: &'a [PathStep]| {
        ends |= rest.is_empty() || matches!(rest, [PathStep::AnyDepth]);
        next.push(rest);
    };
    for steps in remaining {
        // Any depth may be none: the name may be that of the step behind it.
        let mut steps = *steps;
        loop {
            match steps {
                [PathStep::AnyDepth, rest @ ..] => {
                    add(steps);
                    steps = rest;
                }
                [PathStep::Name(pattern), rest @ ..] => {
                    if matches(pattern.as_bytes(), name.as_bytes()) {
                        add(rest);
                    }
                    break;
                }
                [] => break,
            }
        }
    }
    // Any depth leads to the same place on several ways.
    next.sort_unstable_by_key(|steps| (steps.as_ptr().addr(), steps.len()));
    next.dedup_by_key(|steps| (steps.as_ptr().addr(), steps.len()));
    (ends, next)
}

/// What the patterns include of a value; none if that is nothing.
fn included(value: Value, remaining: &Remaining<'_>) -> Option<Value> {
    match value {
        Value::Object(object) => {
            let mut kept = Map::new();
            for (name, value) in object {
                let (ends, next) = behind(remaining, &name);
                if let Some(value) = if ends { Some(value) } else { included(value, &next) } {
                    kept.insert(name, value);
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(list) if !remaining.is_empty() => {
            let kept: Vec<Value> = list.into_iter().filter_map(|value| included(value, remaining)).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

/// Takes away what the patterns name.
fn take_away(value: &mut Value, remaining: &Remaining<'_>) {
    match value {
        Value::Object(object) => object.retain(|name, value| {
            let (ends, next) = behind(remaining, name);
            if !ends && !next.is_empty() {
                take_away(value, &next);
            }
            !ends
        }),
        Value::Array(list) => list.iter_mut().for_each(|value| take_away(value, remaining)),
        _ => {}
    }
}

/// Whether a name fits a pattern with `*`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // The usual two pointers: at a mismatch the last star takes one byte more.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (p, n) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_keep_and_take_away_what_they_name() {
        let response = || {
            json!({
                "took": 3,
                "hits": {"total": {"value": 2}, "hits": [{"_id": "1", "_source": {"a.b": 1, "c": {"d": 2}}}, {"_id": "2"}]},
                "empty": {"list": []},
            })
        };
        for (patterns, expected) in [
            ("took", json!({"took": 3})),
            ("hits.hits._id", json!({"hits": {"hits": [{"_id": "1"}, {"_id": "2"}]}})),
            ("took,hits.total", json!({"took": 3, "hits": {"total": {"value": 2}}})),
            ("h*.t*l.value", json!({"hits": {"total": {"value": 2}}})),
            ("**.d", json!({"hits": {"hits": [{"_source": {"c": {"d": 2}}}]}})),
            ("**.took", json!({"took": 3})),
            ("hits.**.value", json!({"hits": {"total": {"value": 2}}})),
            ("hits.**", json!({"hits": response()["hits"]})),
            ("hits.hits._source.a\\.b", json!({"hits": {"hits": [{"_source": {"a.b": 1}}]}})),
            ("empty", json!({"empty": {"list": []}})),
            ("empty.list.x", json!({})),
            ("took.x,nothing", json!({})),
            ("-hits,-empty", json!({"took": 3})),
            ("-**.hits,-empty", json!({"took": 3})),
            ("hits.hits,-**._source,-**.total", json!({"hits": {"hits": [{"_id": "1"}, {"_id": "2"}]}})),
            ("-hits.hits._*,-t*,-empty", json!({"hits": {"total": {"value": 2}, "hits": [{}, {}]}})),
            ("*", response()),
            ("**", response()),
            ("-*", json!({})),
        ] {
            let filter = PathFilter::parse(patterns).expect("it is short").expect("it has a pattern");
            assert_eq!(filter.apply(response()), expected, "{patterns}");
        }
        assert_eq!(PathFilter::parse(" , ").expect("it is short"), None);
        assert!(PathFilter::parse(&"a.".repeat(STEPS_MAX + 1)).is_err());
    }

    #[test]
    fn stars_take_any_text() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("*b*", "abc", true),
            ("**", "x", true),
            ("a", "ab", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }
}
